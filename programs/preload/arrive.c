/*
 * Device files that come from another process: in a message over a Unix socket,
 * or through exec. Whoever gets one joins it as a child of fork does. The
 * daemon is told before one goes: nobody has it open while it is on its way.
 */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef F_GETPIPE_SZ
#define F_GETPIPE_SZ 1032
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

#ifdef __GLIBC__
typedef int many_flags;
#else
typedef unsigned many_flags;
#endif

/* ---- what goes ---- */

void file_lend(int fd, enum lent how)
{
	struct file *f = file_of(fd);
	struct call c = { .op = OP_LEND, .arg = how, .send_fd = -1 };
	int saved = errno;

	if (!f || (f->kind != VERBS && f->kind != CM) || vforked())
		return;
	if (how == INHERITED && atomic_exchange(&f->inherited, true))
		return;
	wire_call(f, fd, &c);
	errno = saved;
}

static void each_right(const struct msghdr *m, void (*visit)(int fd))
{
	struct msghdr copy = *m;

	if (!m->msg_control)
		return;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&copy); h; h = CMSG_NXTHDR(&copy, h)) {
		size_t n = h->cmsg_len < CMSG_LEN(0) ? 0 : (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
			visit(fd);
		}
	}
}

static void goes(int fd)
{
	file_lend(fd, SENT);
}

EXPORT ssize_t sendmsg(int s, const struct msghdr *m, int flags)
{
	if (m)
		each_right(m, goes);
	return NEXT(sendmsg)(s, m, flags);
}

EXPORT int sendmmsg(int s, struct mmsghdr *m, unsigned n, many_flags flags)
{
	for (unsigned i = 0; m && i < n; i++)
		each_right(&m[i].msg_hdr, goes);
	return NEXT(sendmmsg)(s, m, n, flags);
}

/* ---- what comes ---- */

/*
 * looks_ours reports whether a number may be of a device file, so that it is
 * worth a question: the memory of a device has its mark, and the pipe of the
 * connection manager the size of a page.
 */
static bool looks_ours(int fd)
{
	uint32_t mark[2];
	struct stat st;

	if (syscall(SYS_fstat, fd, &st) != 0)
		return false;
	if (S_ISFIFO(st.st_mode))
		return (syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) == O_RDONLY &&
		       syscall(SYS_fcntl, fd, F_GETPIPE_SZ) == sysconf(_SC_PAGESIZE);
	return S_ISREG(st.st_mode) && st.st_nlink == 0 && st.st_size >= AREA_SIZE &&
	       syscall(SYS_pread64, fd, mark, sizeof mark, 0) == sizeof mark &&
	       mark[0] == AREA_MAGIC && mark[1] == AREA_VERSION;
}

static void comes(int fd)
{
	static const char probe[] = "/dev/infiniband";
	char room[PATH_ROOM];
	int saved = errno;

	if (fd >= 0 && fd < MAX_NUMBER && !vforked() && looks_ours(fd) && redirect(probe, room) != probe &&
	    !file_known(fd))
		wire_join(fd);
	errno = saved;
}

EXPORT ssize_t recvmsg(int s, struct msghdr *m, int flags)
{
	ssize_t n = NEXT(recvmsg)(s, m, flags);

	if (n >= 0)
		each_right(m, comes);
	return n;
}

EXPORT int recvmmsg(int s, struct mmsghdr *m, unsigned n, many_flags flags, struct timespec *wait)
{
	int got = NEXT(recvmmsg)(s, m, n, flags, wait);

	for (int i = 0; i < got; i++)
		each_right(&m[i].msg_hdr, comes);
	return got;
}

int pidfd_getfd(int process, int number, unsigned flags);

EXPORT int pidfd_getfd(int process, int number, unsigned flags)
{
	int fd = (int)syscall(SYS_pidfd_getfd, process, number, flags);

	if (fd >= 0)
		comes(fd);
	return fd;
}

/* ---- what was there when the program began ---- */

struct entry { /* struct linux_dirent64 */
	uint64_t ino, off;
	uint16_t len;
	uint8_t type;
	char name[];
};

static int number_of(const char *name)
{
	int n = 0;

	for (; *name; name++) {
		if (*name < '0' || *name > '9' || n >= MAX_NUMBER)
			return -1;
		n = n * 10 + *name - '0';
	}
	return n;
}

void files_inherited(void)
{
	static const char probe[] = "/dev/infiniband";
	_Alignas(struct entry) char buf[2048];
	char room[PATH_ROOM];
	int saved = errno, dir;
	long n;

	if (redirect(probe, room) == probe)
		return;
	dir = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (dir < 0)
		for (int fd = 3; fd < 1024; fd++) /* /proc is not there */
			comes(fd);
	while (dir >= 0 && (n = syscall(SYS_getdents64, dir, buf, sizeof buf)) > 0)
		for (long at = 0; at < n;) {
			struct entry *e = (struct entry *)(buf + at);

			if (number_of(e->name) > 2)
				comes(number_of(e->name));
			at += e->len;
		}
	if (dir >= 0)
		syscall(SYS_close, dir);
	errno = saved;
}
