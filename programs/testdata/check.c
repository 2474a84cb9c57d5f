/* Cases that TestLibrary runs with the library preloaded, each by its name. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "check.h"

#ifndef __GLIBC__ /* musl has neither; the library has */
__attribute__((weak)) int close_range(unsigned first, unsigned last, int flags);
__attribute__((weak)) void closefrom(int first);
#endif

const char node[] = "/dev/infiniband/uverbs0";

/* The fake daemon answers with the last word of the command, one higher. */
static int echo(int fd, uint32_t v)
{
	struct {
		uint32_t command;
		uint16_t in, out;
		uint64_t response;
		uint32_t value, pad;
	} c = { 100, 6, 1, 0, v, 0 };
	uint32_t got = 0;

	c.response = (uintptr_t)&got;
	if (write(fd, &c, sizeof c) != sizeof c)
		return 0;
	return got == v + 1;
}

static int make_channel(int fd)
{
	struct {
		uint32_t command;
		uint16_t in, out;
		uint64_t response;
	} c = { 17, 4, 1, 0 };
	int got = -1;

	c.response = (uintptr_t)&got;
	return write(fd, &c, sizeof c) == sizeof c ? got : -1;
}

static void case_paths(void)
{
	char text[256], where[PATH_MAX];
	struct stat st;
	FILE *f = fopen("/sys/class/infiniband/rxe_lo0/node_guid", "r");
	DIR *d = opendir("/sys/class/infiniband");
	int n = 0, dir;

	CHECK(f && fgets(text, sizeof text, f) && strcmp(text, "0011:2233:4455:6677\n") == 0);
	CHECK(d);
	for (struct dirent *e; (e = readdir(d));)
		n += strcmp(e->d_name, "rxe_lo0") == 0;
	CHECK(n == 1);
	dir = open("/sys/class/infiniband_verbs/uverbs0", O_RDONLY | O_DIRECTORY);
	CHECK(dir >= 0 && (n = openat(dir, "dev", O_RDONLY)) >= 0);
	CHECK(read(n, text, sizeof text) == 8 && memcmp(text, "231:192\n", 8) == 0);
	CHECK(access("/sys//class/infiniband/rxe_lo0", F_OK) == 0);
	CHECK(access("/sys/class/infiniband_none", F_OK) != 0);
	CHECK(realpath("/sys/class/infiniband/rxe_lo0/../rxe_lo0", where));
	CHECK(strcmp(where, "/sys/class/infiniband/rxe_lo0") == 0);
	CHECK(stat(node, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(231, 192));
	CHECK(access(node, R_OK | W_OK) == 0);
	CHECK(access("/dev/infiniband/uverbs1", F_OK) != 0 && errno == ENOENT);
	CHECK(open("/dev/infiniband/uverbs1", O_RDWR) < 0 && errno == ENOENT);
	CHECK(socket(AF_NETLINK, SOCK_RAW, 20) < 0 && errno == EPROTONOSUPPORT);
	CHECK(stat("/dev/null", &st) == 0 && st.st_rdev == makedev(1, 3));
}

static void case_file(void)
{
	int fd = open(node, O_RDWR | O_CLOEXEC), channel, copy;
	char events[16] = { 0 };
	uint32_t create_cq[12] = { 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
	uint32_t short_room[6] = { 101, 0, 0, 0, 0, 0 };
	struct stat st;

	CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK(fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(231, 192));
	CHECK(ioctl(fd, 0xc0181b01, events) < 0 && errno == ENOTTY);
	CHECK(read(fd, events, 1) < 0 && errno == EINVAL);
	CHECK(echo(fd, 7));
	CHECK(write(fd, "abc", 3) < 0 && errno == EINVAL);
	CHECK(write(fd, short_room, sizeof short_room) < 0 && errno == EOPNOTSUPP);
	channel = make_channel(fd);
	CHECK(channel >= 0 && fstat(channel, &st) == 0 && S_ISFIFO(st.st_mode));
	CHECK(read(channel, events, sizeof events) == 8 && strncmp(events, "cookie!!", 8) == 0);
	copy = dup(channel);
	create_cq[8] = (uint32_t)copy;
	CHECK(write(fd, create_cq, sizeof create_cq) == 77); /* its handle */
	create_cq[8] = (uint32_t)-1;
	CHECK(write(fd, create_cq, sizeof create_cq) == -1 && errno == EPERM); /* -1 */
	create_cq[8] = (uint32_t)fd;
	CHECK(write(fd, create_cq, sizeof create_cq) == 0x7fffffff);
	CHECK(close(channel) == 0 && close(copy) == 0);
	CHECK(write(fd, (uint32_t[4]){ 102, 0, 0, 0 }, 16) == 77); /* forgotten */
	CHECK(close(fd) == 0 && !echo(fd, 1) && errno == EBADF);
}

static void case_bell(void)
{
	int fd = open(node, O_RDWR);
	uint32_t post[8] = { 28, 0, 0, 0, 130, 0, 0, 0 };
	uint32_t notify[4] = { 23, 0, 5, 1 };
	uint8_t *area = mmap(NULL, 0x20000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(area != MAP_FAILED);
	area[8] = 1; /* the daemon sleeps */
	CHECK(write(fd, post, sizeof post) == sizeof post);
	CHECK(area[8] == 0 && *(uint64_t *)(area + 0x1010) == 4 && *(uint64_t *)(area + 0x40) == 4);
	CHECK(write(fd, (uint32_t[4]){ 103, 0, 0, 0 }, 16) == 1); /* rung */
	CHECK(write(fd, notify, sizeof notify) == sizeof notify);
	CHECK(*(uint32_t *)(area + 0x10014) == 1);
	notify[3] = 0;
	CHECK(write(fd, notify, sizeof notify) == sizeof notify);
	CHECK(*(uint32_t *)(area + 0x10014) == 2);
	notify[3] = 1;
	CHECK(write(fd, notify, sizeof notify) == sizeof notify);
	CHECK(*(uint32_t *)(area + 0x10014) == 2);
	post[4] = 1 << 20;
	CHECK(write(fd, post, sizeof post) == 28); /* asked */
}

static void case_numbers(void)
{
	int fd = open(node, O_RDWR), a = dup(fd), b = dup2(fd, 100), c = fcntl(fd, F_DUPFD_CLOEXEC, 50);
	int d = dup3(fd, 101, O_CLOEXEC), null = open("/dev/null", O_RDWR);

	CHECK(b == 100 && c >= 50 && d == 101);
	CHECK(close(fd) == 0 && echo(a, 1) && echo(b, 2) && echo(c, 3) && echo(d, 4));
	CHECK(dup2(null, a) == a && !echo(a, 1) && echo(b, 2));
	/* A daemon that closes all it may have. */
	for (int i = 3; i < 65536; i++)
		if (i != b && i != null)
			close(i);
	CHECK(echo(b, 3));
	/* Programs may take any number. */
	for (int i = 200; i < 60000 && i < (int)sysconf(_SC_OPEN_MAX); i += 1)
		CHECK(dup2(null, i) == i);
	CHECK(echo(b, 4));
	CHECK(close_range(3, 99, 0) == 0 && close_range(102, ~0U, 0) == 0);
	CHECK(echo(b, 5));
	CHECK(close_range(3, ~0U, 0) == 0 && fcntl(b, F_GETFD) < 0);
	fd = open(node, O_RDWR);
	CHECK(echo(fd, 6));
	closefrom(3);
	CHECK(!echo(fd, 6) && errno == EBADF);
}

void wait_for(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void case_fork(void)
{
	int fd = open(node, O_RDWR), second = open(node, O_RDWR), status;
	pid_t pid = fork();

	if (pid == 0) {
		CHECK(echo(fd, 1) && echo(second, 2) && close(second) == 0);
		pid = fork();
		if (pid == 0) {
			for (int i = 0; i < 100; i++)
				CHECK(echo(fd, i));
			_exit(0);
		}
		wait_for(pid);
		_exit(0);
	}
	for (int i = 0; i < 100; i++)
		CHECK(echo(fd, i) && echo(second, i));
	wait_for(pid);
	CHECK(echo(fd, 3) && echo(second, 4));
	/* A child on its way to exec does not take anything from its parent. */
	pid = vfork();
	if (pid == 0) {
		close(fd);
		dup2(0, second);
		close_range(3, ~0U, 0);
		execl("/proc/self/exe", "check", "nothing", NULL);
		_exit(127);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(echo(fd, 5) && echo(second, 6));
	/* daemon(3): the parent goes, and what it had open lives on. */
	pid = fork();
	if (pid > 0)
		wait_for(pid);
	else {
		CHECK(daemon(1, 1) == 0);
		CHECK(echo(fd, 7));
		_exit(0);
	}
}

/* Shells and ls make other calls on a path than libibverbs. */
static void case_places(void)
{
	char where[PATH_MAX];
	struct stat st;

	CHECK(chdir("/sys/class/infiniband") == 0 && stat("rxe_lo0/node_guid", &st) == 0);
	CHECK(getcwd(where, sizeof where) && strcmp(where, "/sys/class/infiniband") == 0);
	CHECK(getxattr(node, "user.none", where, sizeof where) < 0 && errno != ENOENT);
	CHECK(lgetxattr(node, "user.none", where, sizeof where) < 0 && errno != ENOENT);
	CHECK(listxattr(node, where, sizeof where) >= 0 && llistxattr(node, where, sizeof where) >= 0);
	CHECK(chdir("/") == 0 && getcwd(where, sizeof where) && strcmp(where, "/") == 0);
}

/* pass sends a number over a socket, take receives it. */
static int pass(int s, int fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} ctl = { .align = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { "x", 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl };

	memcpy(CMSG_DATA(&ctl.align), &fd, sizeof fd);
	return sendmsg(s, &m, 0) == 1;
}

static int take(int s)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} ctl;
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl };
	int fd = -1;

	if (recvmsg(s, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(&ctl.align), sizeof fd);
	return fd;
}

/* Another process gets a device file, which its opener closes at once. */
static void case_passed(void)
{
	int s[2], fd, null[2];
	uint32_t event[2] = { 0 };
	struct {
		uint32_t command;
		uint16_t in, out;
		uint64_t response;
	} get = { 12, 8, 8, (uintptr_t)event };
	struct stat st;
	char byte = 1;
	pid_t pid;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && pipe(null) == 0);
	pid = fork();
	if (pid == 0) {
		close(s[0]);
		fd = take(s[1]);
		CHECK(fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(231, 192));
		CHECK(read(s[1], &byte, 1) == 1 && echo(fd, 7) && make_channel(fd) >= 0);
		CHECK(write(fd, (uint32_t[8]){ 28, 0, 0, 0, 130 }, 32) == 32); /* rings the bell */
		CHECK(ioctl(fd, 0xc0181b01, &st) < 0 && errno == ENOTTY);
		close(fd);
		CHECK(!echo(fd, 1));
		fd = take(s[1]);
		CHECK(fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(10, 122));
		CHECK(write(fd, &get, sizeof get) == sizeof get && event[0] == 4711);
		fd = take(s[1]); /* a pipe is one */
		CHECK(fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && read(fd, &byte, 1) == 1);
		_exit(0);
	}
	close(s[1]);
	fd = open(node, O_RDWR);
	CHECK(fd >= 0 && pass(s[0], fd) && close(fd) == 0 && write(s[0], &byte, 1) == 1);
	fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
	CHECK(write(fd, (uint32_t[4]){ 200, 0, 0, 0 }, 16) == 16); /* makes an event */
	CHECK(pass(s[0], fd) && close(fd) == 0);
	CHECK(fcntl(null[1], F_SETPIPE_SZ, 4096) == 4096 && write(null[1], &byte, 1) == 1 && pass(s[0], null[0]));
	wait_for(pid);
	/* Who gets back his own file has it twice. */
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && (fd = open(node, O_RDWR)) >= 0 && pass(s[0], fd));
	close(fd);
	fd = take(s[1]);
	CHECK(fd >= 0 && echo(fd, 9));
	CHECK(pass(s[0], fd));
	s[0] = take(s[1]);
	CHECK(close(fd) == 0 && echo(s[0], 10));
}

/* exec keeps a device file that is not closed then. */
static void case_exec(void)
{
	const char *number = getenv("CHECK_FD");
	struct stat st;
	char text[16];
	int fd;

	if (number) {
		fd = atoi(number);
		CHECK(fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && echo(fd, 3) && make_channel(fd) >= 0);
		return;
	}
	fd = open(node, O_RDWR | O_CLOEXEC);
	snprintf(text, sizeof text, "%d", fd);
	CHECK(fd >= 0 && setenv("CHECK_FD", text, 1) == 0 && fcntl(fd, F_SETFD, 0) == 0);
	execl("/proc/self/exe", "check", "exec", NULL);
	CHECK(0);
}

/* A program at its limit of open files loses nothing that it has. */
static void case_limit(void)
{
	int fd = open(node, O_RDWR), pid;
	struct rlimit few = { 0 }, many;

	CHECK(getrlimit(RLIMIT_NOFILE, &many) == 0);
	few.rlim_cur = few.rlim_max = many.rlim_max;
	few.rlim_cur = 4;
	pid = fork();
	if (pid == 0) {
		CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
		CHECK(open(node, O_RDWR) < 0 && errno == EMFILE);
		CHECK(!echo(fd, 1) && errno == EMFILE);
		few.rlim_cur = many.rlim_cur;
		CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0 && echo(fd, 2));
		_exit(0);
	}
	wait_for(pid);
	CHECK(close_range(3, ~0U, 1 << 20) < 0 && errno == EINVAL && echo(fd, 3));
}

static volatile sig_atomic_t handled;
static int shared_fd;

static void handler(int sig)
{
	(void)sig;
	handled += echo(shared_fd, (uint32_t)handled);
	close(dup(shared_fd));
}

static void case_signals(void)
{
	struct sigaction a = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 200 }, { 0, 200 } };

	shared_fd = open(node, O_RDWR);
	CHECK(sigaction(SIGALRM, &a, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (uint32_t i = 0; i < 20000 || handled < 50; i++)
		CHECK(echo(shared_fd, i));
}

static void *in_thread(void *p)
{
	for (uint32_t i = 0; i < 2000; i++) {
		int fd = i % 50 == 0 ? open(node, O_RDWR) : dup(shared_fd);

		CHECK(fd >= 0 && echo(fd, i) && echo(shared_fd, i) && close(fd) == 0);
	}
	return p;
}

static void case_threads(void)
{
	pthread_t t[4];

	shared_fd = open(node, O_RDWR);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, in_thread, NULL) == 0);
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			CHECK(echo(shared_fd, 9));
			_exit(0);
		}
		wait_for(pid);
	}
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

static void interrupted(int sig)
{
	(void)sig;
}

static void case_events(void)
{
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
	uint32_t event[2] = { 0 };
	struct {
		uint32_t command;
		uint16_t in, out;
		uint64_t response;
	} get = { 12, 8, 8, (uintptr_t)event };
	struct sigaction a = { .sa_handler = interrupted };
	struct pollfd p = { .fd = fd, .events = POLLIN };

	CHECK(fd >= 0 && poll(&p, 1, 0) == 0);
	sigaction(SIGALRM, &a, NULL);
	ualarm(20000, 0);
	CHECK(write(fd, &get, sizeof get) < 0 && errno == EINTR);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	CHECK(write(fd, &get, sizeof get) < 0 && errno == EAGAIN);
	fcntl(fd, F_SETFL, 0);
	CHECK(write(fd, (uint32_t[4]){ 200, 0, 0, 0 }, 16) == 16); /* makes an event */
	CHECK(poll(&p, 1, -1) == 1);
	CHECK(write(fd, &get, sizeof get) == sizeof get && event[0] == 4711);
}

static void case_gone(void)
{
	int fd = open(node, O_RDWR), async;
	struct {
		uint32_t command;
		uint16_t in, out;
		uint64_t response;
	} context = { 0, 4, 2, 0 };
	uint32_t event[4], got[2];

	context.response = (uintptr_t)got;
	CHECK(write(fd, &context, sizeof context) == sizeof context);
	async = (int)got[0];
	CHECK(write(fd, (uint32_t[4]){ 104, 0, 0, 0 }, 16) < 0 && errno == EIO); /* the daemon goes */
	CHECK(read(async, event, sizeof event) == sizeof event && event[2] == 8);
	CHECK(read(async, event, sizeof event) < 0 && errno == EIO);
	CHECK(!echo(fd, 1) && errno == EIO);
	CHECK(close(fd) == 0);
}

int reg_mr(int fd, void *p, size_t n)
{
	struct {
		uint32_t command;
		uint16_t in, out;
		uint64_t response, start, length, iova;
		uint32_t pd, access;
	} c = { 9, 12, 0, 0, (uintptr_t)p, n, (uintptr_t)p, 0, 0 };

	return (int)write(fd, &c, sizeof c);
}

/* in_daemon is the byte that the daemon finds behind the last MAP. */
int in_daemon(int fd, uint32_t off)
{
	return (int)write(fd, (uint32_t[4]){ 105, 0, 0, off }, 16);
}

static void case_pages(void)
{
	enum { SIZE = 1 << 20, NONE = 300 };
	int fd = open(node, O_RDWR);
	unsigned char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *small, *q;
	pid_t pid;

	small = malloc(1000);
	CHECK(reg_mr(fd, small, 1000) == 0 && in_daemon(fd, 0) == NONE);
	memset(p, 7, SIZE);
	/* Pages that are not covered wholly stay. */
	CHECK(reg_mr(fd, p + 100, SIZE - 200) == 1 && in_daemon(fd, 0) == 7);
	for (int i = 0; i < SIZE; i++)
		CHECK(p[i] == 7);
	p[4096] = 8;
	CHECK(in_daemon(fd, 0) == 8);
	CHECK(reg_mr(fd, p + 100, 300000) == 1 && in_daemon(fd, 0) == 8); /* again */
	/* A child has copies. */
	pid = fork();
	if (pid == 0) {
		p[4096] = 9;
		CHECK(p[5000] == 7 && in_daemon(fd, 0) == 8);
		_exit(0);
	}
	wait_for(pid);
	CHECK(p[4096] == 8);
	/* Pages that are given back are zero. */
	CHECK(madvise(p + 4096, 8192, MADV_DONTNEED) == 0 && p[4096] == 0 && p[3 * 4096] == 7);
	/* It can grow. */
	CHECK(reg_mr(fd, p + 8192, 1000) == 1);
	p = mremap(p, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
	CHECK(p != MAP_FAILED && p[3 * 4096] == 7 && p[4096] == 0);
	memset(p, 6, 2 * SIZE);
	/* What is mapped there later is something else. */
	p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(reg_mr(fd, p, SIZE) == 1);
	q = mmap(p, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(q == p && reg_mr(fd, p + 8192, 1000) == 0 && in_daemon(fd, 0) == NONE);
}

static int rereg_mr(int fd, void *p, size_t n)
{
	struct {
		uint32_t command;
		uint16_t in, out;
		uint64_t response;
		uint32_t mr, flags;
		uint64_t start, length, iova;
		uint32_t pd, access;
	} c = { 11, 14, 0, 0, 0, 1, (uintptr_t)p, n, (uintptr_t)p, 0, 0 };

	return (int)write(fd, &c, sizeof c);
}

/* What the program does with the addresses when the buffer is no more. */
static void case_reuse(void)
{
	enum { SIZE = 1 << 20, NONE = 300, RW = PROT_READ | PROT_WRITE };
	int fd = open(node, O_RDWR), second = open(node, O_RDWR), anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
	unsigned char *p = mmap(NULL, SIZE, RW, anonymous, -1, 0);
	char name[] = "/tmp/rocev2-check-XXXXXX";
	int file = mkstemp(name);
	pid_t pid;

	/* A file of its own is not touched. */
	CHECK(file >= 0 && unlink(name) == 0 && ftruncate(file, SIZE) == 0);
	CHECK(reg_mr(fd, p, SIZE) == 1);
	CHECK(mmap(p, SIZE, RW, MAP_SHARED | MAP_FIXED, file, 0) == p);
	memset(p, 5, SIZE);
	CHECK(madvise(p, SIZE, MADV_DONTNEED) == 0 && p[0] == 5 && p[SIZE - 1] == 5);
	/* Every open device learns that there are other pages. */
	p = mmap(NULL, SIZE, RW, anonymous, -1, 0);
	CHECK(reg_mr(fd, p, SIZE) == 1 && reg_mr(second, p, SIZE) == 1);
	CHECK(mmap(p, SIZE, RW, anonymous | MAP_FIXED, -1, 0) == p);
	CHECK(reg_mr(fd, p, 1000) == 0 && in_daemon(fd, 0) == NONE && in_daemon(second, 0) == NONE);
	/* So with a region that gets new memory. */
	p = mmap(NULL, SIZE, RW, anonymous, -1, 0);
	CHECK(reg_mr(fd, p, SIZE) == 1);
	CHECK(mmap(p, SIZE, RW, anonymous | MAP_FIXED, -1, 0) == p);
	rereg_mr(fd, p, 1000);
	CHECK(in_daemon(fd, 0) == NONE);
	/* What is left of a buffer is the child's own, and is given back. */
	p = mmap(NULL, SIZE, RW, anonymous, -1, 0);
	memset(p, 3, SIZE);
	CHECK(reg_mr(fd, p, SIZE) == 1 && munmap(p + SIZE / 2, SIZE / 2) == 0);
	CHECK(reg_mr(fd, p, 1000) == 0 && mprotect(p + 8192, 4096, PROT_NONE) == 0);
	pid = fork();
	if (pid == 0) {
		CHECK(p[0] == 3 && mprotect(p + 8192, 4096, RW) == 0 && p[8192] == 3);
		p[0] = p[8192] = 4;
		_exit(0);
	}
	wait_for(pid);
	CHECK(p[0] == 3 && mprotect(p + 8192, 4096, RW) == 0 && p[8192] == 3);
	CHECK(madvise(p, 4096, MADV_DONTNEED) == 0 && p[0] == 0 && p[4096] == 3);
}

/* Exchanged pages in parts, and elsewhere. */
static void case_moves(void)
{
	enum { SIZE = 1 << 20, PAGE = 4096, RW = PROT_READ | PROT_WRITE };
	int fd = open(node, O_RDWR), anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
	unsigned char *p, *q, *room = mmap(NULL, 8 * SIZE, PROT_NONE, anonymous, -1, 0);
	pid_t pid;

	/* It grows to a place that the program names. */
	p = mmap(NULL, SIZE, RW, anonymous, -1, 0);
	memset(p, 3, SIZE);
	CHECK(reg_mr(fd, p, SIZE) == 1);
	CHECK(mremap(p, SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, p + PAGE) == MAP_FAILED && errno == EINVAL);
	q = mremap(p, SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, room);
	CHECK(q == room && q[SIZE - 1] == 3 && q[SIZE] == 0);
	memset(q, 4, 2 * SIZE);
	/* It moves; pages that are given back there are zero, and it grows. */
	p = mmap(NULL, SIZE, RW, anonymous, -1, 0);
	memset(p, 5, SIZE);
	CHECK(reg_mr(fd, p, SIZE) == 1);
	q = mremap(p, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 4 * SIZE);
	CHECK(q == room + 4 * SIZE && madvise(q + PAGE, PAGE, MADV_DONTNEED) == 0);
	CHECK(q[0] == 5 && q[PAGE] == 0 && q[2 * PAGE] == 5);
	pid = fork();
	if (pid == 0) {
		q[0] = 9;
		_exit(0);
	}
	wait_for(pid);
	CHECK(q[0] == 5);
	q = mremap(q, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED && q[0] == 5 && q[2 * PAGE] == 5);
	memset(q, 6, 2 * SIZE);
	/* Parts of it go, or are protected. */
	p = mmap(NULL, SIZE, RW, anonymous, -1, 0);
	memset(p, 7, SIZE);
	CHECK(reg_mr(fd, p, SIZE) == 1 && munmap(p + SIZE / 2, PAGE) == 0 && mprotect(p + PAGE, PAGE, PROT_READ) == 0);
	CHECK(mremap(p, SIZE, 2 * SIZE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
	CHECK(mremap(p, SIZE / 4, SIZE / 2, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
	CHECK(madvise(p, 3 * PAGE, MADV_DONTNEED) == 0 && p[0] == 0 && p[PAGE] == 0 && p[3 * PAGE] == 7);
	pid = fork();
	if (pid == 0) {
		CHECK(mprotect(p + PAGE, PAGE, RW) == 0 && p[3 * PAGE] == 7);
		p[PAGE] = p[3 * PAGE] = 8;
		_exit(0);
	}
	wait_for(pid);
	CHECK(p[PAGE] == 0 && p[3 * PAGE] == 7 && p[SIZE - 1] == 7);
}

/* A process that does not see its maps any more. */
static void case_noproc(void)
{
	enum { SIZE = 1 << 20, PAGE = 4096 };
	int fd = open(node, O_RDWR);
	unsigned char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char dir[] = "/tmp/rocev2-check-XXXXXX";
	pid_t pid;

	memset(p, 3, SIZE);
	CHECK(reg_mr(fd, p, SIZE) == 1 && munmap(p + PAGE, PAGE) == 0 && mkdtemp(dir) && chdir(dir) == 0 && rmdir(dir) == 0);
	if (chroot(".") != 0)
		return; /* not root */
	pid = fork();
	if (pid == 0) {
		CHECK(p[0] == 3 && p[SIZE - 1] == 3);
		p[0] = p[SIZE - 1] = 4;
		_exit(0);
	}
	wait_for(pid);
	CHECK(p[0] == 3 && p[SIZE - 1] == 3);
}

static void case_nothing(void)
{
}

static void case_nopages(void)
{
	enum { SIZE = 1 << 20, NONE = 300 };
	int fd = open(node, O_RDWR);
	char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (getenv("ROCEV2_SHARE")) {
		CHECK(reg_mr(fd, p, SIZE) == 0 && in_daemon(fd, 0) == NONE);
		return;
	}
	/* Registered before. */
	for (int i = 0; i < SIZE; i += 16384)
		CHECK(reg_mr(fd, p + i, 100) == 0);
	CHECK(reg_mr(fd, p, SIZE) == 0 && in_daemon(fd, 0) == NONE);
	p = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(reg_mr(fd, p, SIZE) == 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "paths", case_paths }, { "file", case_file }, { "bell", case_bell },
		{ "numbers", case_numbers }, { "fork", case_fork }, { "signals", case_signals },
		{ "threads", case_threads }, { "events", case_events }, { "gone", case_gone },
		{ "pages", case_pages }, { "nopages", case_nopages },
		{ "reuse", case_reuse }, { "crowd", case_crowd }, { "held", case_held }, { "grown", case_grown }, { "moves", case_moves }, { "nothing", case_nothing }, { "noproc", case_noproc },
		{ "places", case_places }, { "passed", case_passed }, { "exec", case_exec }, { "limit", case_limit },
	};

	alarm(60);
	for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
		if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	fprintf(stderr, "no such case\n");
	return 2;
}
