/* Device files: they are opened, and commands are written to them. */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter.h"

/* Commands of verbs (ib_user_verbs.h) and of the connection manager. */
enum {
	VERBS_GET_CONTEXT = 0,
	VERBS_COMP_CHANNEL = 17,
	VERBS_POST_SEND = 28,

	CM_BIND_IP = 2,
	CM_RESOLVE_IP = 3,
	CM_LISTEN = 7,
	CM_GET_EVENT = 12,
	CM_BIND = 20,
	CM_RESOLVE_ADDR = 21,

	COMMAND_MOST = 65536,
};

struct header {
	uint32_t command;
	uint16_t in, out;
};

static uint32_t u32_at(const void *buf, size_t off)
{
	uint32_t v;

	memcpy(&v, (const char *)buf + off, sizeof v);
	return v;
}

int device_open(const char *name, const char *path, int flags)
{
	struct rocev2_opened opened = { 0, -1, 0, 0 };
	struct file *f;
	struct low low;
	signals before;
	long result;

	if (!adapter_load())
		return -1;
	before = files_change();
	low_take(&low);
	result = adapter_call(adapter.open, (long)path, flags, (long)&opened, 0, 0);
	low_give(&low);
	files_changed(before);
	if (result < 0) {
		errno = (int)-result;
		return -1;
	}
	opened.fd = low_number(opened.fd);
	f = file_enter(strcmp(name, "rdma_cm") == 0 ? CM : VERBS, opened.fd, name, opened.handle);
	if (!f) {
		adapter_call(adapter.close, (long)opened.handle, 0, 0, 0, 0);
		syscall(SYS_close, opened.fd);
		return -1;
	}
	f->doorbells = (struct rocev2_doorbells *)(uintptr_t)opened.doorbells;
	f->tell_polls = opened.flags & ROCEV2_TELL_POLLS;
	f->refuse_child = opened.flags & ROCEV2_REFUSE_CHILD;
	if (!(flags & O_CLOEXEC))
		syscall(SYS_fcntl, opened.fd, F_SETFD, 0);
	return opened.fd;
}

/*
 * made enters the number that an answer begins with. Where it cannot, the
 * program does not get it: false, with errno.
 */
static bool made(struct file *f, enum kind kind, const void *buf, size_t n)
{
	uint64_t response;
	signals before;
	struct stat st;
	int fd;

	if (n < 16)
		return true;
	memcpy(&response, (const char *)buf + 8, sizeof response);
	fd = low_number((int)u32_at((void *)(uintptr_t)response, 0));
	memcpy((void *)(uintptr_t)response, &fd, sizeof fd);
	if (file_enter(kind, fd, "", f->handle))
		return true;
	before = files_change();
	if (syscall(SYS_fstat, fd, &st) == 0)
		adapter_call(adapter.close, (long)f->handle, (long)st.st_ino, 0, 0, 0);
	files_changed(before);
	syscall(SYS_close, fd);
	errno = ENFILE;
	return false;
}

/* may_open reports whether files may be opened for a command. */
static bool may_open(const struct file *f, uint32_t command)
{
	if (f->kind == VERBS)
		return command == VERBS_GET_CONTEXT || command == VERBS_COMP_CHANNEL;
	return command == CM_BIND_IP || command == CM_RESOLVE_IP || command == CM_LISTEN || command == CM_BIND ||
	       command == CM_RESOLVE_ADDR;
}

static ssize_t command(struct file *f, const struct header *h, const void *buf, size_t n)
{
	bool opens = may_open(f, h->command);
	struct low low;
	signals before = 0;
	long result;

	if (opens) {
		before = files_change();
		low_take(&low);
	}
	result = adapter_call(adapter.command, (long)f->handle, (long)buf, (long)n, 0, 0);
	if (opens) {
		low_give(&low);
		files_changed(before);
	}
	if (result < 0) {
		errno = (int)-result;
		return -1;
	}
	if (f->kind == CM)
		return result;
	if (h->command == VERBS_GET_CONTEXT && !made(f, ASYNC, buf, n))
		return -1;
	if (h->command == VERBS_COMP_CHANNEL && !made(f, CHANNEL, buf, n))
		return -1;
	return result;
}

/*
 * Waiting for an event of the connection manager happens here, where signals
 * and cancellation can end it, and the file can be made non-blocking. When
 * another thread closes the file meanwhile the wait goes on, as a kernel's does.
 */
static ssize_t get_event(struct file *f, int fd, const struct header *h, const void *buf, size_t n)
{
	uint64_t opened = f->opened;

	for (;;) {
		bool wait = !(syscall(SYS_fcntl, fd, F_GETFL) & O_NONBLOCK);
		ssize_t got;

		if (wait && wait_readable(fd) < 0)
			return -1;
		while (file_of(fd) != f || f->opened != opened)
			pause();
		got = command(f, h, buf, n);
		if (got < 0 && errno == EBADF && (file_of(fd) != f || f->opened != opened))
			continue; /* closed while this thread was inside */
		if (got >= 0 || errno != EAGAIN || !wait)
			return got;
	}
}

/* leave_out reports whether the doorbell of a queue pair is left out. */
static bool leave_out(struct rocev2_doorbells *d, uint32_t qp)
{
	unsigned i = qp % ROCEV2_DOORBELL_WORDS;
	uint64_t w;

	if (!d)
		return false;
	w = atomic_load(&d->words[i]);
	do {
		if (w >> 32 != (uint64_t)qp + 1 || (uint32_t)w == 0)
			return false;
	} while (!atomic_compare_exchange_weak(&d->words[i], &w, w - 1));
	if (!(atomic_load(&d->rung) >> i & 1))
		atomic_fetch_or(&d->rung, (uint64_t)1 << i);
	return true;
}

bool doorbells_left(const struct file *f)
{
	return f->doorbells && atomic_load_explicit(&f->doorbells->rung, memory_order_relaxed) != 0;
}

ssize_t device_write(struct file *f, int fd, const void *buf, size_t n)
{
	struct header h;

	if (n < sizeof h || n > COMMAND_MOST) {
		errno = EINVAL;
		return -1;
	}
	if (!adapter_has(f)) {
		errno = EIO;
		return -1;
	}
	memcpy(&h, buf, sizeof h);
	if (f->kind == VERBS && h.command == VERBS_POST_SEND && n >= 24) {
		uint32_t qp = u32_at(buf, 16);
		long result;

		poll_expects(f);
		result = leave_out(f->doorbells, qp) ? 0 : adapter_call(adapter.post, (long)f->handle, qp, 0, 0, 0);

		if (result >= 0)
			return (ssize_t)n;
		errno = (int)-result;
		return -1;
	}
	if (f->kind == CM && h.command == CM_GET_EVENT)
		return get_event(f, fd, &h, buf, n);
	return command(f, &h, buf, n);
}
