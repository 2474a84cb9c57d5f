/*
 * What the files of the library share. The library stands between a program
 * and libc: it answers for the device files of RDMA, for their part of sysfs
 * and for nothing else. What a device file does is asked of a daemon.
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

#define EXPORT __attribute__((visibility("default")))

/* ---- next.c: the functions that the library stands before ---- */

/* next_symbol finds the next definition of a function, or NULL. */
void *next_symbol(const char *name);

/* library_symbol finds a function of a library that is loaded, or NULL. */
void *library_symbol(const char *library, const char *name);

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
 * own thread inside. Nobody waits for a program while holding one.
 */
struct lock {
	atomic_int state; /* 0 free, 1 held, 2 held and waited for */
};

typedef uint64_t signals;

signals lock_take(struct lock *l);
void lock_give(struct lock *l, signals before);

/* ---- paths.c ---- */

enum { PATH_ROOM = 4096 };

void paths_init(void);

/* paths_dir is the directory of the daemon. */
const char *paths_dir(void);

/* paths_named reports whether the environment names that directory. */
bool paths_named(void);

/*
 * redirect returns path, or where the daemon has what path names, in room. NULL
 * means that it is too long (errno is set).
 */
const char *redirect(const char *path, char room[PATH_ROOM]);

/*
 * redirect_open is redirect of a path that is about to be opened: files of the
 * daemon that change are up to date then.
 */
const char *redirect_open(const char *path, char room[PATH_ROOM]);

/*
 * device_of returns the name of the device file that a redirected path stands
 * for ("uverbs0"), or NULL.
 */
const char *device_of(const char *path, const char *redirected);

/* undo_redirect makes a path below the daemon's directory one of the system. */
void undo_redirect(char *path);

/* device_number says which device a name stands for. */
bool device_number(const char *name, unsigned *major, unsigned *minor);

/* device_name is the other way round. */
void device_name(unsigned major, unsigned minor, char *name, size_t n);

/* ---- files.c: which file numbers are ours ---- */

enum kind {
	FREE,
	VERBS,   /* /dev/infiniband/uverbsN */
	CM,      /* /dev/infiniband/rdma_cm */
	ASYNC,   /* asynchronous events of a VERBS file */
	CHANNEL, /* completion events */
};

/* The doorbell area: the first pages of a VERBS file's memory. */
struct area {
	uint32_t magic, version;
	_Atomic uint32_t sleeping;
	_Atomic uint32_t polling;
	_Atomic uint32_t waiting;
	_Atomic uint32_t completions;
	_Atomic uint32_t cpu;
	_Atomic uint32_t bulk;
	uint32_t unused[8];
	_Atomic uint64_t summary[16];
	uint8_t gap[0x1000 - 0x40 - 16 * 8];
	_Atomic uint64_t bells[1024];
	uint8_t gap2[0x4000 - 0x1000 - 1024 * 8];
	_Atomic uint64_t unready[1024]; /* queue pairs that cannot send yet */
	uint8_t gap3[0x10000 - 0x4000 - 1024 * 8];
	_Atomic uint32_t arm[16384];
};

enum {
	AREA_SIZE = 0x20000,
	AREA_MAGIC = 0x524f4345,
	AREA_VERSION = 1,
	AREA_QPS = 65536,
	AREA_CQS = 16384,
};

_Static_assert(offsetof(struct area, summary) == 0x40, "layout");
_Static_assert(offsetof(struct area, bells) == 0x1000, "layout");
_Static_assert(offsetof(struct area, unready) == 0x4000, "layout");
_Static_assert(offsetof(struct area, arm) == 0x10000, "layout");
_Static_assert(sizeof(struct area) == AREA_SIZE, "layout");

/* An open file. Several numbers may stand for one (dup). */
struct file {
	enum kind kind;
	int numbers; /* how many stand for it */
	uint64_t dev, ino;
	char name[32];
	unsigned major, minor;
	uint32_t token;  /* the daemon's number of the file */
	uint32_t handle; /* CHANNEL: the daemon's number of the channel */
	unsigned forks;  /* of this process, when the file was opened */

	struct file *owner; /* ASYNC, CHANNEL: of which VERBS file */
	uint64_t opened;    /* a number that no other file has */
	uint64_t owner_opened;

	struct lock rpc;      /* guards what follows */
	_Atomic int rpc_fd;   /* hidden: the socket of this process */
	_Atomic int bell_fd;  /* hidden: wakes the daemon */
	_Atomic pid_t pid;    /* of the process that the socket belongs to */
	atomic_bool dead;     /* the daemon has gone */
	atomic_bool told;     /* ASYNC: the program has got the fatal event */
	atomic_bool inherited; /* the daemon knows that exec may keep the file */
	atomic_uint empty;    /* polls that found nothing */
	atomic_uint restless; /* how many more polls do not wait */
	atomic_uint vain;     /* what restless was set to */
	struct area *area;
};

enum { MAX_NUMBER = 65536 };

/* file_of returns what a number stands for, or NULL where it is not ours. */
struct file *file_of(int fd);

struct file *file_new(enum kind kind);
void file_enter(struct file *f, int fd);
void file_drop(struct file *f); /* that was not entered */
void file_copied(int from, int to);

/*
 * file_closing is called before a number is closed. It returns whether the
 * caller goes on to close it (else errno is set).
 */
bool file_closing(int fd);

/* file_note notes which file a number is, file_is compares. */
void file_note(struct file *f, int fd);
bool file_is(struct file *f, int fd);

/*
 * file_known reports whether the process has the file of a number already. Then
 * the number stands for it, too.
 */
bool file_known(int fd);

/* files_each_verbs calls visit for each open device of this process. */
void files_each_verbs(void (*visit)(struct file *f, void *arg), void *arg);

/* files_end is above every number that is ours or hidden. */
unsigned files_end(void);

/* fd_hide gives a number of the library a place that programs leave alone. */
int fd_hide(int fd);
void fd_show(int fd);    /* before the library closes it */
bool fd_hidden(int fd);
bool fd_make_room(int fd); /* moves a hidden one that a program wants */
bool fd_move(_Atomic int *place, int fd); /* if fd stands there */

/*
 * vforked reports whether this memory belongs to another process: ours is its
 * child on the way to exec.
 */
bool vforked(void);
unsigned fork_count(void);

void files_init(void);

/* ---- wire.c: the daemon ---- */

enum {
	WIRE_VERSION = 2,
	WIRE_MAX = 65536,
	WIRE_FILES = 4,

	OP_HELLO = 1,
	OP_ATTACH = 2,
	OP_COMMAND = 3,
	OP_MAP = 4,
	OP_UNMAP = 5,
	OP_FORGET = 7,
	OP_BYE = 8,
	OP_LEND = 10,
	OP_IMPORT = 11,
	OP_FREEZE = 12,
	OP_THAW = 13,
	OP_REFRESH = 20,
};

struct wire_request {
	uint32_t op, len;
	uint64_t arg;
};

struct wire_reply {
	int32_t ret;
	uint32_t resp_len;
	uint32_t nfds;
	uint32_t fd_off[WIRE_FILES];
	uint32_t pad;
};

/* A question to the daemon, and where its answer goes. */
struct call {
	uint32_t op;
	uint64_t arg;
	struct iovec payload[5];
	int pieces;
	int send_fd; /* -1: none */
	int copier;  /* one more, or 0 */

	void *resp;
	size_t room;

	struct wire_reply reply;
	int fds[WIRE_FILES];
	int nfds;
};

/*
 * wire_call asks the daemon on the file's socket. It returns 0, or -1 with
 * errno where there was no answer. visible is a number of the file.
 */
int wire_call(struct file *f, int visible, struct call *c);

/* wire_open connects and says hello: the number of the file, or -1. */
int wire_open(const char *name, int flags);

/* wire_bye ends the process's share of a file. */
void wire_bye(struct file *f, int visible);

/* wire_lost reports whether the daemon has gone. */
bool wire_lost(struct file *f);

/* say writes a line to the standard error, once for each text. */
void say(atomic_bool *once, const char *text, const char *what);

/* wire_refresh has the daemon write the files again that change. */
void wire_refresh(void);

/* wire_join joins the file that a number from elsewhere is of, if it is one. */
void wire_join(int fd);

/* ---- copier.c ---- */

/*
 * copier_start starts a thread that copies memory of the process for the
 * daemon, if there is none. It returns the daemon's end of its socket, or -1.
 * By that a daemon knows a process again whose number it does not see.
 */
int copier_start(void);

/* copier_count is how many threads of the process there are for that. */
unsigned copier_count(void);
void copier_in_child(void);
bool copier_make_room(int fd);

/* ---- arrive.c ---- */

enum lent { SENT = 1, INHERITED = 2 };

/* file_lend tells the daemon that another program may get a file. */
void file_lend(int fd, enum lent how);

/* files_inherited joins what exec has left open. */
void files_inherited(void);

/* ---- command.c ---- */

ssize_t device_write(struct file *f, int fd, const void *buf, size_t n);

/* ---- pollcq.c ---- */

/*
 * verbs_function finds a function of libibverbs, which may have been loaded for
 * one module of the program alone. *found is where it is kept.
 */
void *verbs_function(_Atomic(void *) *found, const char *name);

void short_turns(void);

/*
 * polled notes whether a poll of a queue found something, and gives the
 * processor away where many did not. It returns false when the daemon has gone.
 */
bool polled(struct file *f, const void *cq, bool found);

/* ---- resize.c ---- */

/* resize_in_child frees the lock that another thread of the parent had. */
void resize_in_child(void);

/* ---- startpoll.c ---- */

/* start_poll_opened has the extended queues of a context polled so, too. */
void start_poll_opened(void *context);

/* ---- import.c ---- */

enum imported { IMPORT_CONTEXT, IMPORT_PD, IMPORT_MR };

/*
 * importing returns the number that this thread makes a context of, instead of
 * opening a file, or -1; import_opened notes that it is used.
 */
int importing(void);
void import_opened(void);

/* ---- maps.c ---- */

struct span {
	uint64_t start, end;
};

static inline bool overlap(struct span a, struct span b)
{
	return a.start < b.end && b.start < a.end;
}

struct map {
	struct span at;
	char rights[4];
	uint64_t offset, ino;
	bool named, shared; /* shared: the pages of a memfd of ours */
};

/* A visitor of maps returns whether it wants to see more of them. */
typedef bool map_visit(const struct map *m, void *arg);

/* each_map returns false where the process cannot see its maps. */
bool each_map(map_visit *visit, void *arg);
bool maps_seen(void);

/* pages_there reports whether memory is there, with the rights. */
bool pages_there(uint64_t start, uint64_t length, bool write);

extern const char memfd_name[]; /* of memfds of ours */

/* ---- others.c: the other threads ---- */

/* alone reports whether there are none. */
bool alone(void);

/*
 * stop_others stops them until let_go. In between nothing may be called that
 * takes a lock but of that file: a thread that is stopped may hold it.
 */
bool stop_others(struct file *f, int visible);
void let_go(struct file *f, int visible);

/* ---- pages.c ---- */

void pages_register(struct file *f, int visible, uint64_t start, uint64_t length);
void pages_before_fork(void);
void pages_in_parent(void);
void pages_in_child(void);
bool pages_make_room(int fd);

/*
 * pages_leave reports whether our pages are in a span, also moved ones, and
 * notes that they are about to be elsewhere.
 */
bool pages_leave(struct span s);

/* ---- copies.c ---- */

/*
 * copy_map gives a child a copy of pages that it would share with its parent,
 * copy_span where the process does not see what it consists of.
 */
bool copy_map(const struct map *m);
bool copy_span(struct span at);

/* copies_missing ends a child that cannot have what a child has. */
void copies_missing(void);

#endif
