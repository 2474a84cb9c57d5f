/*
 * What the files of the library share. The library stands between a program
 * and libc: it answers for the device files of RDMA, for their part of sysfs
 * and for nothing else. What a device file does is in the adapter, a library
 * that is loaded when the program opens the first one.
 *
 * Only libc is needed. No function of a glibc newer than 2.31 may be used:
 * a test looks at the symbols.
 */
#ifndef ROCEV2_PRELOAD_H
#define ROCEV2_PRELOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/*
 * glibc 2.34 moved these into libc under a new version. The old one is there
 * in every glibc.
 */
#if defined(__GLIBC__) && defined(__x86_64__)
#define OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#define OLD_CANCEL(name) __asm__(".symver " #name "," #name "@GLIBC_2.3.3")
#elif defined(__GLIBC__) && (defined(__aarch64__) || defined(__powerpc64__))
#define OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#define OLD_CANCEL(name) OLD(name)
#endif
#ifdef OLD
OLD(dlsym);
OLD(dlvsym);
OLD(dlopen);
OLD(dlerror);
OLD(dladdr);
OLD(pthread_attr_getstack);
OLD(pthread_attr_setstack);
OLD(pthread_attr_setstacksize);
OLD(pthread_join);
OLD(pthread_key_create);
OLD(pthread_once);
OLD(pthread_setspecific);
OLD_CANCEL(__pthread_register_cancel);
OLD_CANCEL(__pthread_unregister_cancel);
OLD_CANCEL(__pthread_unwind_next);
#endif

#define EXPORT __attribute__((visibility("default")))

/* Of a library that is loaded at the start: no call of the dynamic linker. */
#define OWN _Thread_local __attribute__((tls_model("initial-exec")))

/* ---- next.c: the functions that the library stands before ---- */

/* next_symbol finds the next definition of a function, or NULL. */
void *next_symbol(const char *name);

/* library_symbol finds a function of a library that is loaded, or NULL. */
void *library_symbol(const char *library, const char *name);

/* verbs_function finds one of libibverbs. *found is where it is kept. */
void *verbs_function(_Atomic(void *) *found, const char *name);

/* A function that the library stands before. */
struct next {
	const char *called;
	_Atomic(void *) found;
};

/*
 * next_look_up looks all of them up. The look-up takes locks and may allocate
 * memory, so it must not happen in a signal handler or in a child of fork.
 */
void next_look_up(void);

/*
 * NEXT is the next definition of a function with the type of ours. Each place
 * of the source has an entry in a table, which next_look_up fills.
 */
#define NEXT(name) NEXT_NAMED(#name, name)

/* NEXT_NAMED is for functions of ours that C calls otherwise. */
#define NEXT_NAMED(symbol, name)                                               \
	({                                                                     \
		static struct next next                                        \
			__attribute__((section("next_table"), used)) = { symbol, NULL }; \
		void *p = atomic_load_explicit(&next.found, memory_order_relaxed); \
		if (!p) {                                                      \
			p = next_symbol(next.called);                            \
			atomic_store_explicit(&next.found, p, memory_order_relaxed); \
		}                                                              \
		(__typeof__(&name))p;                                          \
	})

/* ---- lock.c ---- */

/*
 * A lock that is held with all signals blocked, so that no handler finds its
 * own thread inside. No thread waits for a program while it holds one.
 */
struct lock {
	atomic_int state; /* 0 free, 1 held, 2 held and waited for */
};

typedef uint64_t signals;

signals lock_take(struct lock *l);
void lock_give(struct lock *l, signals before);

/* The same where signals_hold has them wait, which costs no system call. */
void lock_enter(struct lock *l);
void lock_leave(struct lock *l);

/* set_mask sets the signals of this thread that are blocked. */
signals set_mask(signals mask);

/* but_faults are all signals but those that an instruction causes. */
signals but_faults(void);

/* ---- paths.c ---- */

enum { PATH_ROOM = 4096 };

void paths_init(void);

/* paths_dir is the directory of the daemon. */
const char *paths_dir(void);

/*
 * redirect returns path, or where the daemon has what path names, in room. NULL
 * means that it is too long (errno is set).
 */
const char *redirect(const char *path, char room[PATH_ROOM]);

/*
 * PATH_CALL is a function whose path may be redirected: to is what the next one
 * gets.
 */
#define PATH_CALL(type, failure, name, parameters, arguments)                  \
	EXPORT type name parameters                                            \
	{                                                                      \
		char room[PATH_ROOM];                                          \
		const char *to = redirect(path, room);                         \
                                                                               \
		return to || !path ? NEXT(name) arguments : failure;           \
	}

/*
 * device_of returns the name of the device file that a redirected path stands
 * for ("uverbs0"), or NULL.
 */
const char *device_of(const char *path, const char *redirected);

/* undo_redirect makes a path below the daemon's directory one of the system. */
void undo_redirect(char *path);

/* device_number says which device a name stands for. */
bool device_number(const char *name, unsigned *major, unsigned *minor);

/* ---- files.c: which file numbers are ours ---- */

enum kind {
	FREE,
	VERBS,   /* /dev/infiniband/uverbsN */
	CM,      /* /dev/infiniband/rdma_cm */
	ASYNC,   /* asynchronous events of a VERBS file */
	CHANNEL, /* completion events */
};

/* Which file a number stands for. */
struct identity {
	uint64_t dev, ino;
};

/*
 * When a program that polls without result looks for packets. Threads share it,
 * and none waits for another.
 */
struct looks {
	_Atomic(int64_t) since; /* polls without result since (ns), or 0 */
	_Atomic(int64_t) last;  /* its last look */
	atomic_uint passed;     /* polls without a look after that */
};

/* An open file. Several numbers may stand for one (dup). */
struct file {
	enum kind kind;
	int numbers; /* how many stand for it */
	struct identity is;
	char name[32]; /* VERBS, CM */
	unsigned major, minor;
	uint64_t opened;     /* a number that no other file has */
	unsigned generation; /* of the adapter that has it */
	uint64_t handle;     /* the adapter's, of the device file */
	struct rocev2_doorbells *doorbells; /* VERBS; NULL: it has none */
	struct looks looks;  /* VERBS */
	bool tell_polls;     /* VERBS: the adapter wants to know of polls */
	bool refuse_child;   /* VERBS: a child of fork cannot post and poll */
	struct lock reading; /* ASYNC, CHANNEL */
	atomic_bool told;    /* ASYNC: the program has got the fatal event */
};

enum { MAX_NUMBER = 65536 };

/* file_of returns what a number stands for, or NULL where it is not ours. */
struct file *file_of(int fd);

/* device_file is file_of where it is a device file. */
struct file *device_file(int fd);

/* file_enter makes a file, which a number stands for: NULL, with errno. */
struct file *file_enter(enum kind kind, int fd, const char *name, uint64_t handle);
void file_copied(int from, int to);

/*
 * file_closing is called before a number is closed. It returns whether the
 * caller goes on to close it (else errno is set).
 */
bool file_closing(int fd);

/* files_end is above every number that is ours or the adapter's. */
unsigned files_end(void);

/* fd_hidden reports whether a number is the adapter's. */
bool fd_hidden(int fd);

/*
 * files_change begins a call in which the adapter may open or close files,
 * files_changed ends it, and notes which numbers the adapter has.
 */
signals files_change(void);
void files_changed(signals before);

/*
 * low_take takes the low numbers that are free, until low_give, so that what the
 * adapter opens for itself gets others. low_number gives the program one of them.
 */
enum { LOW_NUMBERS = 64 };

struct low {
	uint64_t taken;
};

void low_take(struct low *l);
void low_give(struct low *l);
int low_number(int fd);

/*
 * vforked reports whether this memory belongs to another process: ours is its
 * child on the way to exec.
 */
bool vforked(void);

void files_init(void);

/* ---- adapter.c ---- */

typedef long adapter_function(long a, long b, long c, long d, long e);

/* The functions of adapter.h, once it is loaded. */
extern struct adapter {
	atomic_bool loaded;
	adapter_function *version, *open, *close, *command, *post, *poll, *polled, *wait_begin, *wait_end, *descriptors,
		*farewell;
} adapter;

/* adapter_load loads it, if it is not there: false, with errno. */
bool adapter_load(void);

/* adapter_generation counts the adapters of this process and its ancestors. */
unsigned adapter_generation(void);

/* adapter_has reports whether this process has the adapter of a file. */
bool adapter_has(const struct file *f);

void adapter_before_fork(void);
void adapter_in_parent(void);
void adapter_in_child(void);

/* say writes a line to the standard error, once for each text. */
void say(atomic_bool *once, const char *text, const char *what);

/* ---- threads.c ---- */

enum { SIGNAL_STACK = 64 << 10 };

struct thread {
	unsigned inside;      /* calls of the adapter that have not returned */
	unsigned known;       /* to which generation of it */
	bool adapters;        /* it is a thread of the adapter */
	bool switched;        /* the call is on call_stack */
	bool interrupted;     /* a handler without SA_RESTART has run */
	unsigned handled;     /* how often a handler has run */
	unsigned handling;    /* handlers that have not returned */
	uint64_t deferred;    /* signals that wait for its return */
	uintptr_t stack;      /* of the thread */
	size_t stack_size;
	void *signal_stack, *call_stack;
	struct call *call;
	struct wait *wait; /* in which it receives for a device */
};

extern OWN struct thread self;

/* adapter_call calls one of its functions. */
long adapter_call(adapter_function *function, long a, long b, long c, long d, long e);

/*
 * signals_hold has the signals of the program wait as those of a thread inside
 * the adapter do, until signals_release.
 */
static inline void signals_hold(void)
{
	self.inside++;
	atomic_signal_fence(memory_order_seq_cst);
}

void signals_release(void);

void threads_in_child(void);

/* ---- signals.c ---- */

void signals_before_load(void);
void signals_after_load(void);
void signals_deferred(void);
void signals_thread(void);
void signals_thread_ends(void);

/* ---- command.c ---- */

ssize_t device_write(struct file *f, int fd, const void *buf, size_t n);

/* poll_told says that completions were taken from a queue, if the adapter asks. */
void poll_told(struct file *f, uint32_t cq);

/* doorbells_left reports whether requests wait for a call of the adapter. */
bool doorbells_left(const struct file *f);

/* device_open opens a device file: its number, or -1. */
int device_open(const char *name, const char *path, int flags);

/* ---- wait.c ---- */

struct pollfd;
struct timespec;

/* time_now is the time in ns, from some moment on. */
int64_t time_now(void);

/*
 * wait_readable waits until a number of ours is: 1, or -1 with errno. It may be
 * too early, or late: the caller looks.
 */
int wait_readable(int fd);

/* wait_suspend and wait_resume are around a handler of the program. */
struct wait *wait_suspend(void);
void wait_resume(struct wait *w);

/* ---- verbs.c ---- */

/* resize_in_child frees the lock that another thread of the parent had. */
void resize_in_child(void);

/* ---- startpoll.c ---- */

/* start_poll_opened has the extended queues of a context polled so, too. */
void start_poll_opened(void *context);

/* ---- child.c ---- */

/* child_opened has posts on a context refused to a child of fork. */
void child_opened(void *context);

/* child_refused reports whether this is such a child, and tells of it. */
static inline bool child_refused(const struct file *f)
{
	return f->refuse_child && !adapter_has(f);
}

/* ---- pollcq.c ---- */

/* receive looks for packets: as rocev2_poll. */
int receive(struct file *f);

/* poll_empty does so after a poll without result, unless it is too soon. */
int poll_empty(struct file *f);

/* poll_expects says that there may soon be something to be polled. */
static inline void poll_expects(struct file *f)
{
	if (atomic_load_explicit(&f->looks.since, memory_order_relaxed))
		atomic_store_explicit(&f->looks.since, 0, memory_order_relaxed);
}

#endif
