/*
 * Waiting for events. A thread that waits in a call that blocks for a file of ours
 * receives for its device meanwhile: it waits for the device's sockets as well,
 * so that a packet wakes it, and nothing else has to wake it after that. Here it
 * waits in C, so signals and cancellation end it as they end any such call.
 */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_DEVICES = 16, DEVICE_FILES = 8, FEW_FILES = 32 };

/* A wait: the devices that it receives for, and what it has of the heap. */
struct wait {
	uint64_t handles[MOST_DEVICES];
	int count, begun;
	unsigned handled; /* handlers that have run before */
	int64_t timeout;  /* ns; -1: none */
	bool once;        /* the caller looks itself what is ready, and waits again */
	struct pollfd *more;
#ifdef __GLIBC__
	__pthread_unwind_buf_t *cleanup;
#endif
};

/* ---- time ---- */

int64_t time_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t nanoseconds(const struct timespec *t)
{
	if (!t || t->tv_sec > INT64_MAX / 1000000000 / 2)
		return -1;
	return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

/* ---- which devices ---- */

static bool ours(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (file_of(fds[i].fd))
			return true;
	return false;
}

static void find_devices(struct wait *d, const struct pollfd *fds, nfds_t n)
{
	d->count = d->begun = 0;
	for (nfds_t i = 0; i < n && d->count < MOST_DEVICES; i++) {
		struct file *f = file_of(fds[i].fd);
		int k = 0;

		if (!f || f->kind == VERBS || f->generation != adapter_generation() || !atomic_load(&adapter.loaded))
			continue;
		while (k < d->count && d->handles[k] != f->handle)
			k++;
		if (k == d->count)
			d->handles[d->count++] = f->handle;
	}
}

static void end(struct wait *d)
{
	signals_hold();
	while (d->begun > 0)
		adapter_call(adapter.wait_end, (long)d->handles[--d->begun], (long)&self, 0, 0, 0);
	signals_release();
}

static void leave(void *arg)
{
	struct wait *d = arg;

	self.wait = NULL;
	end(d);
	free(d->more);
}

/*
 * A handler of the program may never return (siglongjmp), use the device, or
 * take long. So its thread does not receive meanwhile, and nothing of the wait
 * is entered in libc, which longjmp would leave there.
 */
struct wait *wait_suspend(void)
{
	struct wait *d = self.wait;

	if (!d)
		return NULL;
	self.wait = NULL;
	end(d);
#ifdef __GLIBC__
	__pthread_unregister_cancel(d->cleanup);
#endif
	return d;
}

void wait_resume(struct wait *d)
{
	if (!d)
		return;
#ifdef __GLIBC__
	__pthread_register_cancel(d->cleanup);
#endif
	self.wait = d;
}

/* begin adds the devices' files to fds: how many. */
static int begin(struct wait *d, struct pollfd *fds, int64_t left)
{
	int n = 0;

	d->timeout = left;
	signals_hold();
	while (d->begun < d->count) {
		long added = adapter_call(adapter.wait_begin, (long)d->handles[d->begun], (long)(fds + n), DEVICE_FILES,
					  (long)&d->timeout, (long)&self);

		d->begun++;
		if (added > 0)
			n += (int)added;
	}
	signals_release();
	if (left >= 0 && (d->timeout < 0 || d->timeout > left))
		d->timeout = left;
	return n;
}

/* ---- waits ---- */

static int next_ppoll(struct pollfd *fds, nfds_t n, int64_t timeout, const sigset_t *mask)
{
	struct timespec t = { timeout / 1000000000, timeout % 1000000000 };

	return NEXT(ppoll)(fds, n, timeout < 0 ? NULL : &t, mask);
}

static int wait_once(struct wait *d, struct pollfd *all, nfds_t n, int64_t left, const sigset_t *mask)
{
	int added = begin(d, all + n, left), result = -1, saved = EINTR;

	if (self.handled == d->handled) { /* else it came too early for ppoll */
		result = next_ppoll(all, n + (nfds_t)added, d->timeout, mask);
		saved = errno;
	}
	end(d);
	errno = saved;
	return result;
}

/*
 * wait_all is ppoll of files of which some are ours. all has room for the
 * devices' own.
 */
static int wait_all(struct wait *d, struct pollfd *all, nfds_t n, int64_t timeout, const sigset_t *mask)
{
	int64_t end_at = timeout < 0 ? -1 : time_now() + timeout, left = timeout;
	int result;

	for (;;) {
		result = wait_once(d, all, n, left, mask);
		if (result < 0)
			return -1;
		if (d->once)
			return 1;
		result = next_ppoll(all, n, 0, NULL); /* what the wait has made ready, too */
		if (result != 0)
			return result;
		if (end_at >= 0 && (left = end_at - time_now()) <= 0)
			return 0;
		if (timeout == 0)
			return 0;
	}
}

static int wait_for(struct pollfd *fds, nfds_t n, int64_t timeout, const sigset_t *mask, bool once)
{
	struct pollfd few[FEW_FILES + MOST_DEVICES * DEVICE_FILES], *all = few;
	struct wait d = { .handled = self.handled, .once = once };
	int result, saved;

	if (n > FEW_FILES)
		all = d.more = malloc((n + MOST_DEVICES * DEVICE_FILES) * sizeof *all);
	if (!all) {
		errno = ENOMEM;
		return -1;
	}
	find_devices(&d, fds, n);
	memcpy(all, fds, n * sizeof *all);
	signals_hold();
	pthread_cleanup_push(leave, &d);
#ifdef __GLIBC__
	d.cleanup = &__cancel_buf; /* of pthread_cleanup_push */
#endif
	self.wait = &d;
	signals_release();
	result = wait_all(&d, all, n, timeout, mask);
	saved = errno;
	for (nfds_t i = 0; result >= 0 && i < n; i++)
		fds[i].revents = all[i].revents;
	signals_hold();
	pthread_cleanup_pop(1);
	signals_release();
	errno = saved;
	return result;
}

/* As in a kernel, a handler with SA_RESTART lets the wait go on. */
int wait_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int result;

	do {
		self.interrupted = false;
		result = wait_for(&p, 1, -1, NULL, true);
	} while (result < 0 && errno == EINTR && !self.interrupted);
	return result;
}

EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	if (!fds || !ours(fds, n))
		return NEXT(poll)(fds, n, timeout);
	return wait_for(fds, n, timeout < 0 ? -1 : (int64_t)timeout * 1000000, NULL, false);
}

EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	if (!fds || !ours(fds, n) || (timeout && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999)))
		return NEXT(ppoll)(fds, n, timeout, mask);
	return wait_for(fds, n, nanoseconds(timeout), mask, false);
}

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t size);

EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size)
{
	if (n > size / sizeof *fds)
		return NEXT(__poll_chk)(fds, n, timeout, size);
	return poll(fds, n, timeout);
}

EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t size)
{
	if (n > size / sizeof *fds)
		return NEXT(__ppoll_chk)(fds, n, timeout, mask, size);
	return ppoll(fds, n, timeout, mask);
}

/* ---- select ---- */

static bool in(int fd, const fd_set *set)
{
	return set && FD_ISSET(fd, set);
}

static bool sets_ours(int n, const fd_set *r, const fd_set *w, const fd_set *e)
{
	for (int fd = 0; fd < n; fd++)
		if (file_of(fd) && (in(fd, r) || in(fd, w) || in(fd, e)))
			return true;
	return false;
}

/* to_files makes files of the sets: how many. */
static nfds_t to_files(int n, const fd_set *r, const fd_set *w, const fd_set *e, struct pollfd *fds)
{
	nfds_t count = 0;

	for (int fd = 0; fd < n; fd++) {
		short events = (short)((in(fd, r) ? POLLIN : 0) | (in(fd, w) ? POLLOUT : 0) | (in(fd, e) ? POLLPRI : 0));

		if (events)
			fds[count++] = (struct pollfd){ .fd = fd, .events = events };
	}
	return count;
}

/* to_sets is the other way round, as select(2) says: how many bits, or -1. */
static int to_sets(const struct pollfd *fds, nfds_t count, fd_set *r, fd_set *w, fd_set *e)
{
	int bits = 0;

	for (nfds_t i = 0; i < count; i++)
		if (fds[i].revents & POLLNVAL) {
			errno = EBADF;
			return -1;
		}
	for (nfds_t i = 0; i < count; i++) {
		const struct {
			fd_set *set;
			short on;
		} all[] = { { r, POLLIN | POLLHUP | POLLERR }, { w, POLLOUT | POLLERR }, { e, POLLPRI } };

		for (int k = 0; k < 3; k++) {
			if (!in(fds[i].fd, all[k].set))
				continue;
			if (fds[i].revents & all[k].on)
				bits++;
			else
				FD_CLR(fds[i].fd, all[k].set);
		}
	}
	return bits;
}

static int select_for(int n, fd_set *r, fd_set *w, fd_set *e, int64_t timeout, const sigset_t *mask)
{
	struct pollfd fds[FD_SETSIZE];
	nfds_t count = to_files(n, r, w, e, fds);
	int result = wait_for(fds, count, timeout, mask, false);

	return result < 0 ? -1 : to_sets(fds, count, r, w, e);
}

/* As Linux does, it says what is left of the time. */
EXPORT int select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *timeout)
{
	int64_t wait = -1, began;
	int result;

	if (n < 0 || n > FD_SETSIZE || !sets_ours(n, r, w, e) ||
	    (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0 || timeout->tv_usec > 999999)))
		return NEXT(select)(n, r, w, e, timeout);
	if (timeout)
		wait = nanoseconds(&(struct timespec){ timeout->tv_sec, timeout->tv_usec * 1000 });
	began = time_now();
	result = select_for(n, r, w, e, wait, NULL);
	if (timeout && wait >= 0) {
		int64_t left = wait - (time_now() - began);

		if (left < 0)
			left = 0;
		timeout->tv_sec = left / 1000000000;
		timeout->tv_usec = left % 1000000000 / 1000;
	}
	return result;
}

EXPORT int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *timeout, const sigset_t *mask)
{
	if (n < 0 || n > FD_SETSIZE || !sets_ours(n, r, w, e) ||
	    (timeout && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999)))
		return NEXT(pselect)(n, r, w, e, timeout, mask);
	return select_for(n, r, w, e, nanoseconds(timeout), mask);
}

/* ---- read ---- */

/*
 * take reads what is there. Of several threads that wait for one file, one at a
 * time looks, so that none blocks in the read and receives in no one's place. Here no
 * call is one that cancellation ends, with the lock held.
 */
static ssize_t take(struct file *f, int fd, void *buf, size_t n)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	const struct timespec now = { 0, 0 };
	ssize_t got = -1;

	signals_hold();
	lock_enter(&f->reading);
	errno = EAGAIN;
	if (syscall(SYS_ppoll, &p, 1, &now, NULL, 0) > 0)
		got = syscall(SYS_read, fd, buf, n);
	lock_leave(&f->reading);
	signals_release();
	return got;
}

/*
 * No program reads a device file. When the device is lost its files of events are
 * at their end: the program gets the event that says so, then errors.
 */
static ssize_t after_read(struct file *f, void *buf, size_t n, ssize_t got)
{
	struct {
		uint64_t element;
		uint32_t type, reserved;
	} fatal = { 0, 8, 0 }; /* IBV_EVENT_DEVICE_FATAL */

	if (got != 0 || n == 0)
		return got;
	if (f->kind == ASYNC && n >= sizeof fatal && !atomic_exchange(&f->told, true)) {
		memcpy(buf, &fatal, sizeof fatal);
		return sizeof fatal;
	}
	errno = EIO;
	return -1;
}

EXPORT ssize_t read(int fd, void *buf, size_t n)
{
	struct file *f = file_of(fd);
	ssize_t got;

	if (!f)
		return NEXT(read)(fd, buf, n);
	if (f->kind == VERBS || f->kind == CM) {
		errno = EINVAL;
		return -1;
	}
	for (;;) {
		got = take(f, fd, buf, n);
		if (got >= 0 || errno != EAGAIN)
			return after_read(f, buf, n, got);
		if (syscall(SYS_fcntl, fd, F_GETFL) & O_NONBLOCK) {
			receive(f);
			return after_read(f, buf, n, take(f, fd, buf, n));
		}
		if (wait_readable(fd) < 0)
			return -1;
	}
}

ssize_t __read_chk(int fd, void *buf, size_t n, size_t size);

EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t size)
{
	if (!file_of(fd) || n > size)
		return NEXT(__read_chk)(fd, buf, n, size);
	return read(fd, buf, n);
}
