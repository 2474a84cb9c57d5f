/* Questions to the daemon, one at a time on each file's socket. */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* How long the daemon may take for an answer. */
enum { PATIENCE_SECONDS = 60 };

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

static void shut(int fd)
{
	int saved = errno;

	if (fd >= 0)
		syscall(SYS_close, fd);
	errno = saved;
}

static atomic_bool said_unreachable, said_version, said_memory, said_refused, said_silent;

static void say_unreachable(const char *path)
{
	if (errno == EACCES || errno == EPERM)
		say(&said_unreachable,
		    "rocev2: no permission for %s: the daemon's configuration says who may use it\n", path);
	else
		say(&said_unreachable,
		    "rocev2: no daemon answers at %s: start rocev2d, or run the program by 'rocev2 run -- PROGRAM'\n", path);
}

/*
 * copier lets the daemon copy our memory where Yama allows that to processes
 * that we name only.
 */
static void copier(int fd)
{
	struct ucred daemon = { 0, 0, 0 };
	socklen_t n = sizeof daemon;

	if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &daemon, &n) == 0 && daemon.pid > 0)
		syscall(SYS_prctl, PR_SET_PTRACER, (unsigned long)daemon.pid, 0, 0, 0);
}

/* dial connects to the daemon: a socket, or -1. */
static int dial(bool quiet)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = PATIENCE_SECONDS };
	int n, fd;

	n = snprintf(to.sun_path, sizeof to.sun_path, "%s/socket", paths_dir());
	if (n < 0 || n >= (int)sizeof to.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (syscall(SYS_connect, fd, &to, sizeof to) != 0) {
		if (!quiet)
			say_unreachable(to.sun_path);
		shut(fd);
		return -1;
	}
	syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	copier(fd);
	return fd;
}

/* What has run out on our side says nothing of the daemon. */
static bool scarce(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS || err == ETOOMANYREFS;
}

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(WIRE_FILES * sizeof(int))];
};

static int send_request(int fd, struct call *c)
{
	struct wire_request q = { .op = c->op, .arg = c->arg };
	struct iovec iov[6] = { { &q, sizeof q } };
	union control ctl;
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 1 };
	size_t len = 0, sent = 0;
	int numbers[2];
	ssize_t n;

	for (int i = 0; i < c->pieces; i++) {
		iov[m.msg_iovlen++] = c->payload[i];
		len += c->payload[i].iov_len;
	}
	if (len > WIRE_MAX) {
		errno = EINVAL;
		return -1;
	}
	q.len = (uint32_t)len;
	if (c->send_fd >= 0)
		numbers[sent++] = c->send_fd;
	if (c->copier > 0)
		numbers[sent++] = c->copier;
	if (sent > 0) {
		memset(&ctl, 0, sizeof ctl);
		m.msg_control = &ctl;
		m.msg_controllen = CMSG_SPACE(sent * sizeof(int));
		ctl.align.cmsg_level = SOL_SOCKET;
		ctl.align.cmsg_type = SCM_RIGHTS;
		ctl.align.cmsg_len = CMSG_LEN(sent * sizeof(int));
		memcpy(CMSG_DATA(&ctl.align), numbers, sent * sizeof(int));
	}
	do
		n = syscall(SYS_sendmsg, fd, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -1 : 0;
}

static void take_files(struct msghdr *m, struct call *c)
{
	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
		size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
			if (c->nfds < WIRE_FILES)
				c->fds[c->nfds++] = fd;
			else
				shut(fd);
		}
	}
}

/* receive_reply returns 0, or -1: EPIPE where the daemon has gone. */
static int receive_reply(int fd, struct call *c)
{
	struct iovec iov[2] = { { &c->reply, sizeof c->reply }, { c->resp, c->room } };
	union control ctl;
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2, .msg_control = &ctl,
			    .msg_controllen = sizeof ctl };
	ssize_t n;

	c->nfds = 0;
	do
		n = syscall(SYS_recvmsg, fd, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		if (scarce(errno))
			errno = EIO; /* the answer would come to another question */
		return -1;
	}
	take_files(&m, c);
	if (n < (ssize_t)sizeof c->reply) {
		for (int i = 0; i < c->nfds; i++)
			shut(c->fds[i]);
		errno = EPIPE;
		return -1;
	}
	if (c->reply.nfds != (uint32_t)c->nfds) {
		/* The limit of open files cuts them off. */
		for (int i = 0; i < c->nfds; i++)
			shut(c->fds[i]);
		c->nfds = 0;
		c->reply.ret = -EMFILE;
	}
	return 0;
}

static int ask(int fd, struct call *c)
{
	return send_request(fd, c) == 0 ? receive_reply(fd, c) : -1;
}

/* What the daemon says of a file. */
struct about {
	uint32_t pid, token, major, minor;
};

/* refuse turns the reply to a greeting into errno and says what to do. */
static void refuse(int ret, const char *name)
{
	switch (-ret) {
	case EMFILE:
	case ENFILE:
		break; /* the program knows what that means */
	case EPROTO:
		say(&said_version, "rocev2: the daemon at %s is of another version than the preloaded library: "
				   "restart the program with the library of that daemon\n", paths_dir());
		break;
	case EPERM:
		say(&said_memory, "rocev2: the daemon may not copy the memory of this program, which opens %s, and no thread of "
				  "the program can do it: run both as the same user, or give the daemon CAP_SYS_PTRACE\n", name);
		break;
	default:
		say(&said_refused, "rocev2: the daemon does not let this program open %s: its log, or its configuration, "
				   "says why\n", name);
	}
	errno = -ret;
}

static int greet(int fd, uint32_t op, const char *name, int proof, int copier, struct about *about, struct call *c)
{
	*c = (struct call){
		.op = op, .arg = WIRE_VERSION, .send_fd = proof, .copier = copier,
		.payload = { { (void *)name, strlen(name) + 1 } }, .pieces = 1,
		.resp = about, .room = sizeof *about,
	};
	memset(about, 0, sizeof *about);
	if (ask(fd, c) != 0)
		return -1;
	return c->reply.ret < 0 ? -1 : 0;
}

/*
 * introduce greets the daemon. One that may not copy our memory is offered a
 * thread that does.
 */
static int introduce(int fd, uint32_t op, const char *name, int proof, struct about *about, struct call *c)
{
	int ret = greet(fd, op, name, proof, 0, about, c), copier;

	if (c->reply.ret == -EPERM && (copier = copier_start()) >= 0)
		ret = greet(fd, op, name, proof, copier, about, c);
	if (c->reply.ret < 0) {
		errno = -c->reply.ret;
		if (*name)
			refuse(c->reply.ret, name);
	}
	return ret;
}

/* adopt takes the files of a greeting: the visible number, or -1. */
static int adopt(struct file *f, int rpc, struct call *c)
{
	int want = f->kind == VERBS ? 2 : 1;
	int saved = errno;

	if (c->nfds != want) {
		for (int i = 0; i < c->nfds; i++)
			shut(c->fds[i]);
		errno = EPROTO;
		return -1;
	}
	errno = saved;
	if (want == 2)
		f->bell_fd = fd_hide(c->fds[1]);
	f->rpc_fd = fd_hide(rpc);
	f->pid = (pid_t)syscall(SYS_getpid);
	return c->fds[0];
}

static bool map_area(struct file *f, int fd)
{
	void *p = mmap(NULL, AREA_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return false;
	f->area = p;
	if (f->area->magic == AREA_MAGIC && f->area->version == AREA_VERSION)
		return true;
	errno = EPROTO;
	return false;
}

static void hang_up(struct file *f)
{
	int rpc = atomic_exchange(&f->rpc_fd, -1), bell = atomic_exchange(&f->bell_fd, -1);

	fd_show(rpc);
	fd_show(bell);
	shut(rpc);
	shut(bell);
}

/* undo gives up a file that was not entered. */
static void undo(struct file *f, int rpc)
{
	if (atomic_load(&f->rpc_fd) >= 0)
		hang_up(f);
	else
		shut(rpc);
	if (f->area)
		munmap(f->area, AREA_SIZE);
	file_drop(f);
}

int wire_open(const char *name, int flags)
{
	struct file *f = file_new(strcmp(name, "rdma_cm") == 0 ? CM : VERBS);
	struct about about;
	struct call c;
	int rpc, fd = -1;

	if (!f)
		return -1;
	strncpy(f->name, name, sizeof f->name - 1);
	device_number(name, &f->major, &f->minor);
	rpc = dial(false);
	if (rpc >= 0 && introduce(rpc, OP_HELLO, name, -1, &about, &c) == 0)
		fd = adopt(f, rpc, &c);
	if (fd < 0 || fd >= MAX_NUMBER || (f->kind == VERBS && !map_area(f, fd))) {
		shut(fd);
		undo(f, rpc);
		return -1;
	}
	f->token = about.token;
	if (!(flags & O_CLOEXEC))
		syscall(SYS_fcntl, fd, F_SETFD, 0);
	if (f->kind == CM)
		syscall(SYS_fcntl, fd, F_SETFL, flags & O_NONBLOCK);
	file_note(f, fd);
	file_enter(f, fd);
	if (!(flags & O_CLOEXEC))
		file_lend(fd, INHERITED);
	return fd;
}

/* join gives a child of the process that opened the file a socket of its own. */
static int join(struct file *f, int visible)
{
	int rpc, fd = -1, old_rpc = f->rpc_fd, old_bell = f->bell_fd;
	struct about about;
	struct call c;

	if (visible < 0) {
		errno = EBADF;
		return -1;
	}
	rpc = dial(false);
	if (rpc < 0)
		return -1;
	if (introduce(rpc, OP_ATTACH, f->name, visible, &about, &c) == 0)
		fd = adopt(f, rpc, &c);
	if (fd < 0) {
		shut(rpc);
		return -1;
	}
	shut(fd); /* the one that we have stands for the same */
	fd_show(old_rpc);
	fd_show(old_bell);
	shut(old_rpc);
	shut(old_bell);
	return 0;
}

void wire_refresh(void)
{
	struct call c = { .op = OP_REFRESH, .send_fd = -1 };
	int saved = errno, fd = dial(true);

	if (fd >= 0) {
		ask(fd, &c);
		shut(fd);
	}
	errno = saved;
}

/* The number is the proof; the daemon says what it is of. */
void wire_join(int fd)
{
	int rpc = dial(true), again = -1;
	struct about about;
	struct file *f;
	struct call c;

	if (rpc < 0)
		return;
	if (introduce(rpc, OP_ATTACH, "", fd, &about, &c) != 0 || !(f = file_new(c.nfds == 2 ? VERBS : CM))) {
		shut(rpc);
		return;
	}
	f->major = about.major;
	f->minor = about.minor;
	f->token = about.token;
	device_name(f->major, f->minor, f->name, sizeof f->name);
	again = adopt(f, rpc, &c);
	if (again < 0 || (f->kind == VERBS && !map_area(f, again))) {
		shut(again);
		undo(f, rpc);
		return;
	}
	shut(again);
	file_note(f, fd);
	file_enter(f, fd);
	if (!(syscall(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC))
		file_lend(fd, INHERITED);
}

static void lost(struct file *f)
{
	if (errno == EAGAIN)
		say(&said_silent, "rocev2: the daemon at %s does not answer any more\n", paths_dir());
	atomic_store(&f->dead, true);
	errno = EIO;
}

int wire_call(struct file *f, int visible, struct call *c)
{
	signals before = lock_take(&f->rpc);
	int result = -1;

	if (atomic_load(&f->dead)) {
		errno = EIO;
	} else if (f->pid != (pid_t)syscall(SYS_getpid) && join(f, visible) != 0) {
		if (!scarce(errno))
			lost(f);
	} else {
		result = ask(f->rpc_fd, c);
		if (result != 0 && errno != EFAULT && errno != EINVAL && !scarce(errno))
			lost(f);
	}
	lock_give(&f->rpc, before);
	return result;
}

void wire_bye(struct file *f, int visible)
{
	struct call c = { .op = OP_BYE, .send_fd = -1 };

	if (f->pid == (pid_t)syscall(SYS_getpid) && !atomic_load(&f->dead))
		wire_call(f, visible, &c);
	hang_up(f);
	if (f->area)
		munmap(f->area, AREA_SIZE);
	f->area = NULL;
}

bool wire_lost(struct file *f)
{
	char byte;
	int saved = errno;
	ssize_t n;

	if (atomic_load(&f->dead))
		return true;
	n = syscall(SYS_recvfrom, f->rpc_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL);
	if (n == 0 || (n < 0 && errno == ECONNRESET))
		atomic_store(&f->dead, true);
	errno = saved;
	return atomic_load(&f->dead);
}
