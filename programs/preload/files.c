/* Which file numbers of the program are ours, and which are hidden. */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_FILES = 4096 };

static struct file files[MAX_FILES];
static _Atomic(struct file *) table[MAX_NUMBER];
static atomic_bool hidden[MAX_NUMBER];
static atomic_uint end;
static struct lock table_lock;
static uint64_t last_opened;
static _Atomic pid_t self;
static atomic_uint forks;
static signals fork_signals;

struct file *file_of(int fd)
{
	if (fd < 0 || fd >= MAX_NUMBER)
		return NULL;
	return atomic_load_explicit(&table[fd], memory_order_acquire);
}

unsigned files_end(void)
{
	return atomic_load(&end);
}

static void reach(int fd)
{
	unsigned want = (unsigned)fd + 1, is = atomic_load(&end);

	while (is < want && !atomic_compare_exchange_weak(&end, &is, want))
		;
}

unsigned fork_count(void)
{
	return atomic_load(&forks);
}

/*
 * Between vfork and exec a child writes to the memory of its parent: it must
 * not change the table. fork tells us by before_fork and in_child.
 */
bool vforked(void)
{
	return (pid_t)syscall(SYS_getpid) != atomic_load(&self);
}

static void before_fork(void)
{
	fork_signals = lock_take(&table_lock);
	atomic_fetch_add(&forks, 1);
	pages_before_fork();
}

static void in_parent(void)
{
	pages_in_parent();
	lock_give(&table_lock, fork_signals);
}

/* The other threads are gone, and with them whoever held a lock. */
static void in_child(void)
{
	atomic_store(&self, (pid_t)syscall(SYS_getpid));
	for (int i = 0; i < MAX_FILES && i < (int)last_opened; i++)
		atomic_store(&files[i].rpc.state, 0);
	resize_in_child();
	pages_in_child();
	copier_in_child();
	lock_give(&table_lock, fork_signals);
}

void files_init(void)
{
	if (atomic_load(&self))
		return;
	atomic_store(&self, (pid_t)syscall(SYS_getpid));
	pthread_atfork(before_fork, in_parent, in_child);
}

struct file *file_new(enum kind kind)
{
	signals before = lock_take(&table_lock);
	struct file *f = NULL;

	for (int i = 0; i < MAX_FILES && !f; i++)
		if (files[i].kind == FREE)
			f = &files[i];
	if (f) {
		memset(f, 0, sizeof *f);
		f->kind = kind;
		f->opened = ++last_opened;
		f->forks = fork_count();
		f->rpc_fd = f->bell_fd = -1;
	}
	lock_give(&table_lock, before);
	if (!f)
		errno = ENFILE;
	return f;
}

void file_drop(struct file *f)
{
	signals before = lock_take(&table_lock);

	f->kind = FREE;
	lock_give(&table_lock, before);
}

void file_enter(struct file *f, int fd)
{
	signals before = lock_take(&table_lock);

	f->numbers++;
	reach(fd);
	atomic_store_explicit(&table[fd], f, memory_order_release);
	lock_give(&table_lock, before);
}

void file_copied(int from, int to)
{
	struct file *f = file_of(from);

	if (f && to >= 0 && to < MAX_NUMBER && from != to && !vforked())
		file_enter(f, to);
}

/* leave takes a number off the table: the file, if it was the last one. */
static struct file *leave(int fd)
{
	signals before = lock_take(&table_lock);
	struct file *f = atomic_load(&table[fd]);

	atomic_store(&table[fd], NULL);
	if (f && --f->numbers > 0)
		f = NULL;
	lock_give(&table_lock, before);
	return f;
}

static bool alive(struct file *f, uint64_t opened)
{
	return f && f->opened == opened && (f->kind == VERBS || f->kind == CM);
}

/*
 * The daemon forgets a channel that nobody can read any more. A process that
 * has forked cannot know.
 */
static void forget_channel(struct file *f)
{
	struct call c = { .op = OP_FORGET, .arg = f->handle, .send_fd = -1 };

	if (f->forks == fork_count() && alive(f->owner, f->owner_opened) &&
	    !atomic_load(&f->owner->dead))
		wire_call(f->owner, -1, &c);
}

bool file_closing(int fd)
{
	struct file *f;

	if (fd < 0 || fd >= MAX_NUMBER || (!file_of(fd) && !fd_hidden(fd)) || vforked())
		return true;
	if (fd_hidden(fd)) {
		errno = EBADF;
		return false;
	}
	f = leave(fd);
	if (!f)
		return true;
	if (f->kind == CHANNEL)
		forget_channel(f);
	else if (f->kind == VERBS || f->kind == CM)
		wire_bye(f, fd);
	file_drop(f);
	return true;
}

static bool identity(int fd, uint64_t *dev, uint64_t *ino)
{
	struct stat st;
	int saved = errno;
	bool ok = syscall(SYS_fstat, fd, &st) == 0;

	if (ok) {
		*dev = st.st_dev;
		*ino = st.st_ino;
	}
	errno = saved;
	return ok;
}

void file_note(struct file *f, int fd)
{
	identity(fd, &f->dev, &f->ino);
}

bool file_is(struct file *f, int fd)
{
	uint64_t dev, ino;

	return identity(fd, &dev, &ino) && dev == f->dev && ino == f->ino;
}

bool file_known(int fd)
{
	struct file *same = NULL;
	uint64_t dev, ino;
	signals before;

	if (!identity(fd, &dev, &ino))
		return false;
	before = lock_take(&table_lock);
	for (int i = 0; i < MAX_FILES && i < (int)last_opened && !same; i++)
		if ((files[i].kind == VERBS || files[i].kind == CM) && files[i].numbers > 0 &&
		    files[i].dev == dev && files[i].ino == ino)
			same = &files[i];
	if (same && atomic_load(&table[fd]) != same) {
		same->numbers++;
		reach(fd);
		atomic_store(&table[fd], same);
	}
	lock_give(&table_lock, before);
	return same != NULL;
}

/* ---- hidden numbers ---- */

static void conceal(int fd)
{
	reach(fd);
	atomic_store(&hidden[fd], true);
}

/*
 * fd_hide moves a number to where programs rarely look: three quarters up to
 * the limit, which leaves low numbers for select(2).
 */
int fd_hide(int fd)
{
	struct rlimit limit = { 1024, 1024 };
	int moved, from;

	syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit);
	from = limit.rlim_cur > MAX_NUMBER ? MAX_NUMBER / 4 * 3 : (int)(limit.rlim_cur / 4 * 3);
	moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, from);
	if (moved >= MAX_NUMBER) {
		syscall(SYS_close, moved);
		moved = -1;
	}
	if (moved < 0)
		moved = fd; /* no room up there */
	else
		syscall(SYS_close, fd);
	if (moved < MAX_NUMBER)
		conceal(moved);
	return moved;
}

void fd_show(int fd)
{
	if (fd >= 0 && fd < MAX_NUMBER)
		atomic_store(&hidden[fd], false);
}

bool fd_hidden(int fd)
{
	return fd >= 0 && fd < MAX_NUMBER && atomic_load_explicit(&hidden[fd], memory_order_relaxed);
}

bool fd_move(_Atomic int *place, int fd)
{
	int moved;

	if (atomic_load(place) != fd)
		return true;
	moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, fd + 1);
	if (moved < 0)
		moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
	if (moved < 0 || moved >= MAX_NUMBER)
		return false;
	conceal(moved);
	atomic_store(place, moved);
	fd_show(fd);
	return true;
}

void files_each_verbs(void (*visit)(struct file *f, void *arg), void *arg)
{
	pid_t pid = (pid_t)syscall(SYS_getpid);

	for (int i = 0; i < MAX_FILES && i < (int)last_opened; i++)
		if (files[i].kind == VERBS && atomic_load(&files[i].rpc_fd) >= 0 && atomic_load(&files[i].pid) == pid)
			visit(&files[i], arg);
}

bool fd_make_room(int fd)
{
	bool ok = true;

	if (!fd_hidden(fd) || vforked())
		return true;
	for (int i = 0; i < MAX_FILES && ok; i++) {
		struct file *f = &files[i];
		signals before;

		if (f->kind != VERBS && f->kind != CM)
			continue;
		before = lock_take(&f->rpc);
		ok = fd_move(&f->rpc_fd, fd) && fd_move(&f->bell_fd, fd);
		lock_give(&f->rpc, before);
	}
	ok = ok && pages_make_room(fd) && copier_make_room(fd);
	if (!ok)
		errno = EBUSY;
	return ok;
}
