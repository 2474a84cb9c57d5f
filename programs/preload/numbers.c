/* Calls on file numbers: what is ours is answered, copied, protected. */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#undef fcntl64

/* ARGUMENT is the one after the last that has a name. */
#define ARGUMENT(last)                                                         \
	({                                                                     \
		va_list ap;                                                    \
		va_start(ap, last);                                            \
		void *a = va_arg(ap, void *);                                  \
		va_end(ap);                                                    \
		a;                                                             \
	})

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	struct file *f = device_file(fd);

	return f ? device_write(f, fd, buf, n) : NEXT(write)(fd, buf, n);
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	if (!device_file(fd))
		return NEXT(writev)(fd, iov, n);
	if (n == 1)
		return device_write(device_file(fd), fd, iov->iov_base, iov->iov_len);
	errno = EINVAL;
	return -1;
}

/*
 * RDMA's ioctl commands are refused as by a kernel that lacks them: then the
 * program's library writes the command instead.
 */
int device_ioctl(int fd, unsigned long request, ...) __asm__("ioctl");

EXPORT int device_ioctl(int fd, unsigned long request, ...)
{
	struct file *f = device_file(fd);
	void *arg = ARGUMENT(request);

	if (f && ((request >> 8) & 0xff) == 0x1b) {
		errno = ENOTTY;
		return -1;
	}
	return NEXT_NAMED("ioctl", device_ioctl)(fd, request, arg);
}

/* Discovery by netlink would find the devices of the kernel, and not ours. */
EXPORT int socket(int domain, int type, int protocol)
{
	enum { RDMA = 20 };
	char room[PATH_ROOM];
	static const char probe[] = "/sys/class/infiniband";

	if (domain == AF_NETLINK && protocol == RDMA && redirect(probe, room) != probe) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return NEXT(socket)(domain, type, protocol);
}

/* ---- copies and ends ---- */

EXPORT int close(int fd)
{
	return file_closing(fd) ? NEXT(close)(fd) : -1;
}

static int copied(int fd, int copy)
{
	if (copy >= 0)
		file_copied(fd, copy);
	return copy;
}

EXPORT int dup(int fd)
{
	return copied(fd, NEXT(dup)(fd));
}

/* before_dup frees the place of a copy. The adapter's numbers are not free. */
static bool before_dup(int fd, int to)
{
	if (fd == to || syscall(SYS_fcntl, fd, F_GETFD) < 0 || vforked())
		return true;
	if (fd_hidden(fd) || fd_hidden(to)) {
		errno = fd_hidden(fd) ? EBADF : EBUSY;
		return false;
	}
	return file_closing(to);
}

EXPORT int dup2(int fd, int to)
{
	return copied(fd, before_dup(fd, to) ? NEXT(dup2)(fd, to) : -1);
}

EXPORT int dup3(int fd, int to, int flags)
{
	return copied(fd, before_dup(fd, to) ? NEXT(dup3)(fd, to, flags) : -1);
}

static int after_fcntl(int fd, int command, int result)
{
	return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? copied(fd, result) : result;
}

EXPORT int fcntl(int fd, int command, ...)
{
	void *arg = ARGUMENT(command);

	return after_fcntl(fd, command, NEXT(fcntl)(fd, command, arg));
}

int fcntl64(int fd, int command, ...);

/* glibc has it since 2.28. */
EXPORT int fcntl64(int fd, int command, ...)
{
	void *arg = ARGUMENT(command);

	return after_fcntl(fd, command, NEXT(fcntl64)(fd, command, arg));
}

/* ---- many at once ---- */

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static int close_some(unsigned first, unsigned last, int flags)
{
	return first > last ? 0 : (int)syscall(SYS_close_range, first, last, flags);
}

int close_range(unsigned first, unsigned last, int flags);

/* What is hidden stays open. It goes with exec. */
EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	enum { ON_EXEC = 4 };
	unsigned from = first, end = files_end();

	if (first > last || (first >= end && !atomic_load(&adapter.loaded)) || flags & ON_EXEC || vforked())
		return (int)syscall(SYS_close_range, first, last, flags);
	/* Nothing is closed where the kernel refuses the call or its flags. */
	if (syscall(SYS_close_range, ~0U, ~0U, flags) != 0)
		return -1;
	if (!self.inside && atomic_load(&adapter.loaded)) { /* it opens files when it likes, too */
		files_changed(files_change());
		end = files_end();
	}
	for (unsigned fd = first; fd <= last && fd < end; fd++) {
		if (fd_hidden((int)fd)) {
			if (fd > 0 && close_some(from, fd - 1, flags) != 0)
				return -1;
			from = fd + 1;
		} else if (file_of((int)fd)) {
			file_closing((int)fd);
		}
	}
	return close_some(from, last, flags);
}

void closefrom(int first);

EXPORT void closefrom(int first)
{
	if (close_range(first < 0 ? 0 : (unsigned)first, ~0U, 0) == 0)
		return;
	for (int fd = first < 0 ? 0 : first; fd < MAX_NUMBER; fd++)
		close(fd); /* a kernel before 5.9 */
}
