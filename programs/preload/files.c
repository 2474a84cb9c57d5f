/* Which file numbers of the program are ours, and which are the adapter's. */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_FILES = 4096, MOST_HIDDEN = 1024 };

static struct file files[MAX_FILES];
static _Atomic(struct file *) table[MAX_NUMBER];
static atomic_bool hidden[MAX_NUMBER];
static struct {
	int fd;
	struct identity is;
} hidden_list[MOST_HIDDEN];
static int hidden_count;
static atomic_uint end;
static struct lock table_lock;
static uint64_t last_opened;
static _Atomic pid_t self_pid;
static signals fork_signals, changes_signals;
static void hide(void);
static struct lock changes; /* of the adapter's files: one at a time */

struct file *file_of(int fd)
{
	if (fd < 0 || fd >= MAX_NUMBER)
		return NULL;
	return atomic_load_explicit(&table[fd], memory_order_acquire);
}

struct file *device_file(int fd)
{
	struct file *f = file_of(fd);

	return f && (f->kind == VERBS || f->kind == CM) ? f : NULL;
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

/*
 * Between vfork and exec a child writes to the memory of its parent: it must
 * not change the table. fork tells us by before_fork and in_child.
 */
bool vforked(void)
{
	return (pid_t)syscall(SYS_getpid) != atomic_load(&self_pid);
}

static struct identity identity(int fd)
{
	struct identity is = { 0, 0 };
	struct stat st;
	int saved = errno;

	if (syscall(SYS_fstat, fd, &st) == 0)
		is = (struct identity){ st.st_dev, st.st_ino };
	errno = saved;
	return is;
}

static bool same(struct identity a, struct identity b)
{
	return a.dev == b.dev && a.ino == b.ino;
}

static void before_fork(void)
{
	changes_signals = files_change();
	hide();
	adapter_before_fork();
	fork_signals = lock_take(&table_lock);
}

static void in_parent(void)
{
	lock_give(&table_lock, fork_signals);
	adapter_in_parent();
	lock_give(&changes, changes_signals);
}

/*
 * The other threads are gone, and with them those that held a lock. What the
 * adapter has open is the parent's: the owner of the port must see it end.
 */
static void in_child(void)
{
	atomic_store(&self_pid, (pid_t)syscall(SYS_getpid));
	for (int i = 0; i < hidden_count; i++) {
		atomic_store(&hidden[hidden_list[i].fd], false);
		if (same(hidden_list[i].is, identity(hidden_list[i].fd)))
			syscall(SYS_close, hidden_list[i].fd);
	}
	hidden_count = 0;
	for (int i = 0; i < MAX_FILES && i < (int)last_opened; i++)
		atomic_store(&files[i].reading.state, 0);
	resize_in_child();
	lock_give(&table_lock, fork_signals);
	adapter_in_child();
	lock_give(&changes, changes_signals);
}

void files_init(void)
{
	if (atomic_load(&self_pid))
		return;
	atomic_store(&self_pid, (pid_t)syscall(SYS_getpid));
	pthread_atfork(before_fork, in_parent, in_child);
}

struct file *file_enter(enum kind kind, int fd, const char *name, uint64_t handle)
{
	signals before = lock_take(&table_lock);
	struct file *f = NULL;

	for (int i = 0; fd < MAX_NUMBER && i < MAX_FILES && !f; i++)
		if (files[i].kind == FREE)
			f = &files[i];
	if (f) {
		memset(f, 0, sizeof *f);
		f->kind = kind;
		f->opened = ++last_opened;
		f->handle = handle;
		f->generation = adapter_generation();
		f->numbers = 1;
		strncpy(f->name, name, sizeof f->name - 1);
		device_number(name, &f->major, &f->minor);
		f->is = identity(fd);
		reach(fd);
		atomic_store_explicit(&table[fd], f, memory_order_release);
	}
	lock_give(&table_lock, before);
	if (!f)
		errno = ENFILE;
	return f;
}

void file_copied(int from, int to)
{
	signals before;
	struct file *f;

	if (!file_of(from) || to < 0 || to >= MAX_NUMBER || from == to || vforked())
		return;
	before = lock_take(&table_lock);
	f = atomic_load(&table[from]);
	if (f) {
		f->numbers++;
		reach(to);
		atomic_store_explicit(&table[to], f, memory_order_release);
	}
	lock_give(&table_lock, before);
}

/* leave takes a number off the table: *last, if no other stands for its file. */
static bool leave(int fd, struct file *last)
{
	signals before = lock_take(&table_lock);
	struct file *f = atomic_exchange(&table[fd], NULL);
	bool gone = f && --f->numbers == 0;

	if (gone) {
		*last = *f;
		f->kind = FREE;
	}
	lock_give(&table_lock, before);
	return gone;
}

bool file_closing(int fd)
{
	struct file last;
	int saved = errno;

	if (fd < 0 || fd >= MAX_NUMBER || (!file_of(fd) && !fd_hidden(fd)) || self.inside || vforked())
		return true;
	if (!file_of(fd)) {
		errno = EBADF;
		return false;
	}
	if (leave(fd, &last) && last.generation == adapter_generation()) {
		bool events = last.kind == ASYNC || last.kind == CHANNEL;
		signals before = files_change();

		adapter_call(adapter.close, (long)last.handle, events ? (long)last.is.ino : 0, 0, 0, 0);
		files_changed(before);
	}
	errno = saved;
	return true;
}

/* ---- the adapter's numbers ---- */

/*
 * The adapter closes files when it likes, and the program may have their
 * numbers then: they are of other files.
 */
bool fd_hidden(int fd)
{
	struct identity is;
	bool found = false;
	signals before;

	if (fd < 0 || fd >= MAX_NUMBER || !atomic_load_explicit(&hidden[fd], memory_order_relaxed))
		return false;
	is = identity(fd);
	before = lock_take(&table_lock);
	for (int i = 0; i < hidden_count && !found; i++)
		found = hidden_list[i].fd == fd && same(hidden_list[i].is, is);
	lock_give(&table_lock, before);
	return found;
}

static void hide(void)
{
	int32_t list[MOST_HIDDEN];
	signals before;
	long n;

	if (!atomic_load(&adapter.loaded))
		return;
	n = adapter_call(adapter.descriptors, (long)list, MOST_HIDDEN, 0, 0, 0);
	before = lock_take(&table_lock);
	for (int i = 0; i < hidden_count; i++)
		atomic_store(&hidden[hidden_list[i].fd], false);
	hidden_count = 0;
	for (long i = 0; i < n && i < MOST_HIDDEN; i++) {
		if (list[i] < 0 || list[i] >= MAX_NUMBER)
			continue;
		hidden_list[hidden_count].fd = list[i];
		hidden_list[hidden_count++].is = identity(list[i]);
		reach(list[i]);
		atomic_store(&hidden[list[i]], true);
	}
	lock_give(&table_lock, before);
}

/* In between, a number on the adapter's list may be the program's already. */

signals files_change(void)
{
	return lock_take(&changes);
}

void files_changed(signals before)
{
	hide();
	lock_give(&changes, before);
}

/*
 * Low numbers are for the program: shells, servers and their children name
 * them.
 */
void low_take(struct low *l)
{
	struct rlimit limit = { 1024, 1024 };
	int saved = errno, most = LOW_NUMBERS, fd, from;

	l->taken = 0;
	syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit);
	if (limit.rlim_cur < LOW_NUMBERS * 4)
		most = 3;
	from = fd = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
	while (fd >= 0 && fd < most) {
		l->taken |= (uint64_t)1 << fd;
		fd = (int)syscall(SYS_fcntl, from, F_DUPFD_CLOEXEC, 0);
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	errno = saved;
}

void low_give(struct low *l)
{
	int saved = errno;

	for (int fd = 0; fd < LOW_NUMBERS; fd++)
		if (l->taken >> fd & 1)
			syscall(SYS_close, fd);
	errno = saved;
}

int low_number(int fd)
{
	int low = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);

	if (low < 0 || low > fd) {
		if (low >= 0)
			syscall(SYS_close, low);
		return fd;
	}
	syscall(SYS_close, fd);
	return low;
}
