/*
 * The adapter: a library in Go beside this one, which has the device. It is
 * loaded when the program opens its first device file, and stays.
 *
 * A child of fork has no thread of it, so there it is dead. What the child
 * opens by itself gets a second copy.
 */
#include "preload.h"

#include "adapter.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

struct adapter adapter;
static struct lock load_lock;
static atomic_bool said_farewell;
static signals fork_signals;
static atomic_uint generation = 1; /* 1 + forks that lost the adapter */

/* The adapter's file has the name of ours, with another word. */
static const char our_word[] = "preload", its_word[] = "adapter";

void say(atomic_bool *once, const char *text, const char *what)
{
	char line[1024];
	int saved = errno, n;

	if (atomic_exchange(once, true))
		return;
	n = snprintf(line, sizeof line, text, what);
	if (n > 0)
		n = (int)syscall(SYS_write, 2, line, n < (int)sizeof line ? n : (int)sizeof line - 1);
	errno = saved;
}

static atomic_bool said_missing, said_memory, said_failed, said_forked;

unsigned adapter_generation(void)
{
	return atomic_load(&generation);
}

/*
 * report_fork tells the report of strict mode, if there is one, what this child
 * does: the adapter, which tells of all else, is not there.
 */
static void report_fork(void)
{
	static atomic_bool told;
	const char *name = secure_getenv("ROCEV2_STRICT_REPORT"), *command = program_invocation_short_name;
	char line[512];
	int fd, n, saved = errno;

	if (!name || atomic_exchange(&told, true))
		return;
	for (const char *c = command; *c; c++)
		if (*c < ' ' || *c == '"' || *c == '\\' || (unsigned char)*c > '~')
			command = "?";
	fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0);
	n = snprintf(line, sizeof line, "{\"pid\":%d,\"command\":\"%.64s\",\"rule\":\"fork\",\"count\":1,"
		     "\"detail\":\"a child of fork uses a device that its parent has opened\"}\n", (int)getpid(), command);
	if (fd >= 0) {
		syscall(SYS_write, fd, line, n);
		syscall(SYS_close, fd);
	}
	errno = saved;
}

bool adapter_has(const struct file *f)
{
	if (f->generation == atomic_load(&generation))
		return true;
	report_fork();
	say(&said_forked,
	    "rocev2: a process that has forked uses a device that its parent has opened: with rocev2 only the parent can; "
	    "open the device after the fork (or daemon(3))%s\n", "");
	return false;
}

/* ---- the load ---- */

/*
 * Go reserves room for its heap, and ends the process if it does not get it.
 */
enum { ROOM_MB = 1700 };

static bool enough_room(void)
{
	struct rlimit limit;
	char text[64];
	long pages = 0;
	int fd, n;

	if (syscall(SYS_prlimit64, 0, RLIMIT_AS, NULL, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return true;
	fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/statm", O_RDONLY | O_CLOEXEC, 0);
	n = fd < 0 ? 0 : (int)syscall(SYS_read, fd, text, sizeof text - 1);
	if (fd >= 0)
		syscall(SYS_close, fd);
	if (n > 0) {
		text[n] = 0;
		pages = atol(text);
	}
	return limit.rlim_cur >= (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)ROOM_MB << 20);
}

static bool beside(char path[PATH_MAX])
{
	char *word = NULL, *next = path;
	Dl_info me;

	if (!dladdr((void *)(uintptr_t)beside, &me) || !me.dli_fname || strlen(me.dli_fname) >= PATH_MAX)
		return false;
	strcpy(path, me.dli_fname);
	while ((next = strstr(next, our_word)))
		word = next++;
	if (word)
		memcpy(word, its_word, sizeof its_word - 1);
	return word && !strchr(word, '/');
}

/*
 * copy_of makes a file with the same contents: the loader takes it for another
 * library. NULL: it cannot be made.
 */
static bool copy_of(char path[PATH_MAX], int *file)
{
	char buf[65536];
	int from = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	ssize_t n = -1;

	*file = (int)syscall(SYS_memfd_create, "rocev2-adapter", 1 /* MFD_CLOEXEC */);
	while (from >= 0 && *file >= 0 && (n = syscall(SYS_read, from, buf, sizeof buf)) > 0)
		if (syscall(SYS_write, *file, buf, n) != n)
			break;
	if (from >= 0)
		syscall(SYS_close, from);
	snprintf(path, PATH_MAX, "/proc/self/fd/%d", *file);
	return n == 0;
}

static const struct {
	const char *name;
	size_t at;
} functions[] = {
#define FUNCTION(name) { "rocev2_" #name, offsetof(struct adapter, name) }
	FUNCTION(version), FUNCTION(open), FUNCTION(close), FUNCTION(command), FUNCTION(post), FUNCTION(poll),
	FUNCTION(polled), FUNCTION(wait_begin), FUNCTION(wait_end), FUNCTION(descriptors), FUNCTION(farewell),
};

#ifdef __GLIBC__
#define CANNOT_LOAD "rocev2: the adapter cannot be loaded: %s"
#else
#define CANNOT_LOAD "rocev2: the adapter is in Go, which the loader of musl refuses: use a program that is built for glibc: %s"
#endif

struct loading {
	char path[PATH_MAX];
	bool ok;
};

/*
 * in_thread loads the adapter in a thread whose signals are blocked, and which
 * has a large stack: the adapter's threads inherit the first.
 */
static void *in_thread(void *arg)
{
	struct loading *l = arg;
	struct low low;
	void *lib;

	self.adapters = true;
	low_take(&low);
	lib = dlopen(l->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	l->ok = lib != NULL;
	if (!lib)
		say(&said_failed, CANNOT_LOAD "\n", dlerror());
	for (size_t i = 0; l->ok && i < sizeof functions / sizeof *functions; i++) {
		void *p = dlsym(lib, functions[i].name);

		memcpy((char *)&adapter + functions[i].at, &p, sizeof p);
		l->ok = p != NULL;
		if (!p)
			say(&said_failed, "rocev2: the adapter is of another version than the preloaded library: it lacks %s; install both from one build\n",
			    functions[i].name);
	}
	if (l->ok && adapter.version(0, 0, 0, 0, 0) != ROCEV2_ADAPTER_VERSION) {
		l->ok = false;
		say(&said_failed, "rocev2: the adapter is of another version than the preloaded library: install both from one build%s\n", "");
	}
	low_give(&low);
	return NULL;
}

static bool load(void)
{
	struct loading l;
	pthread_t thread;
	pthread_attr_t attr;
	int file = -1;

	memset(&l, 0, sizeof l);
	if (!enough_room()) {
		say(&said_memory, "rocev2: the adapter needs %s of address space: raise the limit (ulimit -v, RLIMIT_AS)\n", "1.7 GB");
		errno = ENOMEM;
		return false;
	}
	if (!beside(l.path) || syscall(SYS_faccessat, AT_FDCWD, l.path, R_OK) != 0) {
		say(&said_missing, "rocev2: there is no adapter at %s: install it beside the preloaded library\n", l.path);
		errno = ENODEV;
		return false;
	}
	if (atomic_load(&generation) > 1 && !copy_of(l.path, &file)) {
		if (file >= 0)
			syscall(SYS_close, file);
		errno = ENOMEM;
		return false;
	}
	signals_before_load();
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1 << 20);
	errno = NEXT(pthread_create)(&thread, &attr, in_thread, &l);
	if (errno == 0)
		pthread_join(thread, NULL);
	pthread_attr_destroy(&attr);
	signals_after_load();
	if (file >= 0)
		syscall(SYS_close, file);
	if (!l.ok && errno == 0)
		errno = ENODEV;
	return l.ok;
}

bool adapter_load(void)
{
	signals before;

	if (atomic_load(&adapter.loaded))
		return true;
	before = lock_take(&load_lock);
	if (!atomic_load(&adapter.loaded) && load())
		atomic_store(&adapter.loaded, true);
	lock_give(&load_lock, before);
	return atomic_load(&adapter.loaded);
}

/* ---- fork and exit ---- */

void adapter_before_fork(void)
{
	fork_signals = lock_take(&load_lock);
}

void adapter_in_parent(void)
{
	lock_give(&load_lock, fork_signals);
}

void adapter_in_child(void)
{
	if (atomic_exchange(&adapter.loaded, false))
		atomic_fetch_add(&generation, 1);
	atomic_store(&said_farewell, false);
	threads_in_child();
	lock_give(&load_lock, fork_signals);
}

/*
 * farewell closes what is open, so that peers and the owner of the port hear
 * of it.
 */
static void farewell(void)
{
	if (atomic_load(&adapter.loaded) && !vforked() && !atomic_exchange(&said_farewell, true))
		adapter_call(adapter.farewell, 0, 0, 0, 0, 0);
}

__attribute__((destructor)) static void at_exit(void)
{
	farewell();
}

/*
 * Workers that a program has forked often end so, which runs no destructors. A
 * handler may have interrupted anything, and a thread that is not known to the
 * adapter yet needs memory: these end at once.
 */
#define ENDS(name)                                                             \
	EXPORT void name(int status)                                           \
	{                                                                      \
		if (self.known && !self.inside && !self.handling)              \
			farewell();                                            \
		NEXT(name)(status);                                            \
		__builtin_unreachable();                                       \
	}

ENDS(_exit)
ENDS(_Exit)
