/*
 * A thread that copies memory of the process for a daemon that may not do it
 * itself (ptrace(2): another user without privileges, a program that is not
 * dumpable, a filter of system calls). The kernel copies between the message and
 * the memory that a question names; where that is not there, the answer is
 * EFAULT. Questions and answers: package foreign.
 */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { READ = 1, WRITE = 2, CHECK = 3, CHECK_RW = 4, MOST = 64 << 10 };

struct question {
	uint32_t what, length;
	uint64_t addr, number;
};

struct answer {
	int32_t ret;
	uint32_t unused;
	uint64_t number;
};

/* Hidden: the thread's end of the socket, and the daemon's. */
static _Atomic int copier_fd = -1, offered_fd = -1;
static atomic_uint running;

unsigned copier_count(void)
{
	return atomic_load(&running);
}

static ssize_t message(long call, struct iovec *iov, size_t n, int flags)
{
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = n };
	ssize_t done;
	int fd;

	do {
		fd = atomic_load(&copier_fd);
		done = syscall(call, fd, &m, flags);
	} while (done < 0 && (errno == EINTR || (errno == EBADF && fd != atomic_load(&copier_fd))));
	return done;
}

static bool answer(const struct question *q, int ret, void *from, size_t n)
{
	struct answer a = { .ret = ret, .number = q->number };
	struct iovec iov[2] = { { &a, sizeof a }, { from, n } };

	return message(SYS_sendmsg, iov, n ? 2 : 1, MSG_NOSIGNAL) >= 0;
}

/* take reads a question, and what follows it to where it belongs. */
static int take(struct question *q, void *to, size_t n)
{
	struct iovec iov[2] = { { q, sizeof *q }, { to, n } };
	ssize_t got = message(SYS_recvmsg, iov, n ? 2 : 1, 0);

	if (got < 0)
		return -errno;
	return (size_t)got == sizeof *q + n ? 0 : -EINVAL;
}

static bool serve(void)
{
	struct question q;
	struct iovec head = { &q, sizeof q };
	void *at;
	uint64_t length;
	int ret;

	if (message(SYS_recvmsg, &head, 1, MSG_PEEK) != sizeof q)
		return false;
	at = (void *)(uintptr_t)q.addr;
	if (q.length > MOST)
		return false;
	switch (q.what) {
	case READ:
		return take(&q, NULL, 0) == 0 && (answer(&q, 0, at, q.length) || (errno == EFAULT && answer(&q, -EFAULT, NULL, 0)));
	case WRITE:
		ret = take(&q, at, q.length);
		return answer(&q, ret, NULL, 0);
	case CHECK:
	case CHECK_RW:
		ret = take(&q, &length, sizeof length);
		if (ret == 0 && !pages_there(q.addr, length, q.what == CHECK_RW))
			ret = -EFAULT;
		return answer(&q, ret, NULL, 0);
	}
	return false;
}

static void end(_Atomic int *place)
{
	int fd = atomic_exchange(place, -1);

	if (fd < 0)
		return;
	fd_show(fd);
	syscall(SYS_close, fd);
}

static void *copier(void *unused)
{
	syscall(SYS_prctl, PR_SET_NAME, "rocev2-copier", 0, 0, 0);
	while (serve())
		;
	end(&offered_fd);
	end(&copier_fd);
	atomic_fetch_sub(&running, 1);
	return unused;
}

/*
 * The thread blocks all signals. A program with more rights than its user does
 * not open its memory to others.
 */
int copier_start(void)
{
	int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = next_symbol("pthread_create");
	int (*detach)(pthread_t) = next_symbol("pthread_detach");
	uint64_t all = ~(uint64_t)0, before;
	pthread_t thread;
	int s[2], err;

	if (atomic_load(&offered_fd) >= 0)
		return atomic_load(&offered_fd);
	if (getauxval(AT_SECURE) || !create || !detach || atomic_load(&copier_fd) >= 0 ||
	    syscall(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) != 0)
		return -1;
	atomic_store(&offered_fd, fd_hide(s[0]));
	atomic_store(&copier_fd, fd_hide(s[1]));
	atomic_fetch_add(&running, 1);
	syscall(SYS_rt_sigprocmask, 2, &all, &before, sizeof all);
	err = create(&thread, NULL, copier, NULL);
	syscall(SYS_rt_sigprocmask, 2, &before, NULL, sizeof all);
	if (err == 0) {
		detach(thread);
		return atomic_load(&offered_fd);
	}
	atomic_fetch_sub(&running, 1);
	end(&offered_fd);
	end(&copier_fd);
	return -1;
}

void copier_in_child(void)
{
	end(&offered_fd);
	end(&copier_fd);
	atomic_store(&running, 0);
}

bool copier_make_room(int fd)
{
	return fd < 0 || (fd_move(&copier_fd, fd) && fd_move(&offered_fd, fd));
}
