/* Cases that TestLibrary runs with the library preloaded, each by its name. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
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

/* The fake adapter answers with the last word of the command, one higher. */
int echo(int fd, uint32_t v)
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

static int make_events(int fd, uint32_t command)
{
	struct {
		uint32_t command;
		uint16_t in, out;
		uint64_t response;
	} c = { command, 4, 1, 0 };
	int got = -1;

	c.response = (uintptr_t)&got;
	return write(fd, &c, sizeof c) == sizeof c ? got : -1;
}

int make_channel(int fd)
{
	return make_events(fd, 17);
}

/* ask writes a command of the fake adapter (adapter.c). */
ssize_t ask(int fd, uint32_t command, const volatile void *response, uint32_t value)
{
	struct {
		uint32_t command;
		uint16_t in, out;
		uint64_t response;
		uint32_t value, pad;
	} c = { command, 6, 1, (uintptr_t)response, value, 0 };

	return write(fd, &c, sizeof c);
}

/* A packet comes for the device. */
static void packet(int fd)
{
	CHECK(ask(fd, 105, NULL, 0) == 24);
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
	uint32_t post[8] = { 28, 0, 0, 0, 130, 0, 0, 0 };
	char events[16] = { 0 };
	struct stat st;

	CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK(fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(231, 192));
	CHECK(ioctl(fd, 0xc0181b01, events) < 0 && errno == ENOTTY);
	CHECK(read(fd, events, 1) < 0 && errno == EINVAL);
	CHECK(echo(fd, 7));
	CHECK(write(fd, "abc", 3) < 0 && errno == EINVAL);
	CHECK(ask(fd, 101, NULL, 0) < 0 && errno == EOPNOTSUPP);
	CHECK(write(fd, post, sizeof post) == sizeof post && ask(fd, 103, NULL, 0) == 1);
	post[4] = 1 << 20;
	CHECK(write(fd, post, sizeof post) < 0 && errno == EINVAL);
	channel = make_channel(fd);
	CHECK(channel >= 0 && fstat(channel, &st) == 0 && S_ISFIFO(st.st_mode));
	packet(fd);
	CHECK(read(channel, events, sizeof events) == 8 && strncmp(events, "cookie!!", 8) == 0);
	copy = dup(channel);
	packet(fd);
	CHECK(close(channel) == 0 && read(copy, events, sizeof events) == 8);
	CHECK(close(copy) == 0 && close(fd) == 0 && !echo(fd, 1) && errno == EBADF);
}

/* Who blocks for a file of events receives for the device meanwhile. */
static void case_wait(void)
{
	int fd = open(node, O_RDWR), channel = make_channel(fd), other[2];
	struct timeval t = { 100, 0 };
	struct timespec soon = { 0, 1000000 };
	struct pollfd p[40] = { { .fd = channel, .events = POLLIN } };
	char cookie[8];
	fd_set set;

	CHECK(pipe(other) == 0);
	for (int i = 1; i < 40; i++)
		p[i] = (struct pollfd){ .fd = other[0], .events = POLLIN };
	CHECK(poll(p, 1, 0) == 0 && poll(p, 2, 1) == 0 && ppoll(p, 1, &soon, NULL) == 0);
	packet(fd);
	CHECK(poll(p, 40, -1) == 1 && p[0].revents == POLLIN && p[1].revents == 0);
	CHECK(read(channel, cookie, 8) == 8);
	packet(fd);
	CHECK(poll(p, 2, 0) == 1 && read(channel, cookie, 8) == 8);
	CHECK(write(other[1], "x", 1) == 1 && poll(p, 2, -1) == 1 && p[0].revents == 0 && p[1].revents == POLLIN);
	FD_ZERO(&set);
	FD_SET(channel, &set);
	FD_SET(other[0], &set);
	CHECK(select(other[1] + 1, &set, NULL, NULL, &t) == 1 && FD_ISSET(other[0], &set) && !FD_ISSET(channel, &set));
	CHECK(t.tv_sec == 99 || t.tv_sec == 100);
	FD_SET(channel, &set);
	packet(fd);
	CHECK(pselect(other[1] + 1, &set, NULL, NULL, NULL, NULL) == 2);
	CHECK(fcntl(channel, F_SETFL, O_NONBLOCK) == 0 && read(channel, cookie, 8) == 8);
	CHECK(read(channel, cookie, 8) < 0 && errno == EAGAIN);
	packet(fd);
	CHECK(read(channel, cookie, 8) == 8);
	CHECK(poll((struct pollfd[]){ { .fd = channel }, { .fd = 9999, .events = POLLIN } }, 2, -1) == 1);
	CHECK(ask(fd, 106, NULL, 0) == 0); /* no wait is left */
}

static void *waits(void *arg)
{
	char cookie[8];

	CHECK(read(*(int *)arg, cookie, sizeof cookie) == 8);
	return NULL;
}

/* A wait is a cancellation point. Several threads may wait. */
/* canceled is canceled when its read begins. */
static void *canceled(void *arg)
{
	CHECK(pthread_cancel(pthread_self()) == 0);
	return waits(arg);
}

static void case_cancel(void)
{
	int fd = open(node, O_RDWR), channel = make_channel(fd);
	pthread_t t[4];
	void *result;

	CHECK(pthread_create(&t[0], NULL, waits, &channel) == 0);
	while (ask(fd, 106, NULL, 0) == 0)
		sched_yield();
	CHECK(pthread_cancel(t[0]) == 0 && pthread_join(t[0], &result) == 0 && result == PTHREAD_CANCELED);
	CHECK(ask(fd, 106, NULL, 0) == 0);
	CHECK(pthread_create(&t[0], NULL, canceled, &channel) == 0 && pthread_join(t[0], &result) == 0);
	CHECK(result == PTHREAD_CANCELED && ask(fd, 106, NULL, 0) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, waits, &channel) == 0);
	for (int i = 0; i < 4; i++)
		packet(fd);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

static void case_numbers(void)
{
	int fd, a, b, c, d, null, closed = 0;

	closefrom(3); /* what this process has inherited */
	fd = open(node, O_RDWR);
	a = dup(fd);
	b = dup2(fd, 100);
	c = fcntl(fd, F_DUPFD_CLOEXEC, 50);
	d = dup3(fd, 101, O_CLOEXEC);
	null = open("/dev/null", O_RDWR);
	CHECK(b == 100 && c >= 50 && d == 101);
	CHECK(close(fd) == 0 && echo(a, 1) && echo(b, 2) && echo(c, 3) && echo(d, 4));
	CHECK(dup2(null, a) == a && !echo(a, 1) && echo(b, 2));
	/* A daemon that closes all it may have, and takes what numbers it likes. */
	for (int i = 3; i < 65536; i++)
		if (i != b && i != null)
			closed += close(i) == 0;
	CHECK(closed == 3 && echo(b, 3)); /* a, c, d */
	for (int i = 3; i < 64; i++)
		CHECK(dup2(null, i) == i);
	CHECK(echo(b, 4));
	packet(b);
	CHECK(ask(b, 113, NULL, 0) == 24);
	CHECK(close_range(3, 99, 0) == 0 && close_range(102, ~0U, 0) == 0);
	CHECK(echo(b, 5));
	packet(b);
	CHECK(close_range(3, ~0U, 0) == 0 && fcntl(b, F_GETFD) < 0);
	fd = open(node, O_RDWR);
	CHECK(echo(fd, 6));
	closefrom(3);
	CHECK(!echo(fd, 6) && errno == EBADF);
}

/* The standard files are closed: the adapter does not take their numbers. */
static void case_standard(void)
{
	int fd;

	close(0);
	close(2);
	fd = open(node, O_RDWR);
	CHECK(fd > 2 && dup2(fd, 0) == 0 && echo(0, 1));
	CHECK(open("/dev/null", O_RDWR) == 2);
}

void wait_for(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void case_fork(void)
{
	int fd = open(node, O_RDWR), second = open(node, O_RDWR), status, channel = make_channel(fd);
	char said[256] = { 0 }, cookie[8];
	int out[2];
	pid_t pid;

	CHECK(pipe(out) == 0);
	pid = fork();
	if (pid == 0) {
		dup2(out[1], 2);
		CHECK(!echo(fd, 1) && errno == EIO && !echo(second, 2) && errno == EIO);
		CHECK(read(out[0], said, sizeof said - 1) > 0);
		close(2);
		CHECK(strstr(said, "rocev2: a process that has forked uses a device that its parent has opened"));
		CHECK(close(second) == 0 && fcntl(channel, F_GETFD) >= 0);
		/* A device of its own works, by an adapter of its own. */
		second = open(node, O_RDWR);
		CHECK(second >= 0 && echo(second, 3) && !echo(fd, 1));
		channel = make_channel(second);
		packet(second);
		CHECK(read(channel, cookie, 8) == 8);
		pid = fork();
		if (pid == 0) {
			CHECK(!echo(second, 1) && errno == EIO && (fd = open(node, O_RDWR)) >= 0 && echo(fd, 3));
			exit(0);
		}
		wait_for(pid);
		CHECK(echo(second, 3));
		exit(0);
	}
	for (int i = 0; i < 100; i++)
		CHECK(echo(fd, i) && echo(second, i));
	wait_for(pid);
	packet(fd);
	CHECK(echo(fd, 3) && echo(second, 4) && read(channel, cookie, 8) == 8);
	/* A child on its way to exec does not take anything from its parent. */
	pid = vfork();
	if (pid == 0) {
		signal(SIGUSR1, SIG_IGN);
		close(fd);
		dup2(0, second);
		close_range(3, ~0U, 0);
		execl("/proc/self/exe", "check", "nothing", NULL);
		_exit(127);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(signal(SIGUSR1, SIG_DFL) == SIG_DFL);
	CHECK(echo(fd, 5) && echo(second, 6));
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

/* A program at its limit of open files loses nothing that it has. */
static void case_limit(void)
{
	int fd = open(node, O_RDWR);
	struct rlimit few = { 0 }, many;

	CHECK(getrlimit(RLIMIT_NOFILE, &many) == 0);
	few.rlim_max = many.rlim_max;
	few.rlim_cur = 4;
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	CHECK(open(node, O_RDWR) < 0 && errno == EMFILE);
	few.rlim_cur = many.rlim_cur;
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0 && echo(fd, 2));
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

		if (pid == 0)
			_exit(0);
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
	packet(fd); /* it makes an event */
	CHECK(poll(&p, 1, -1) == 1 && p.revents == POLLIN);
	CHECK(write(fd, &get, sizeof get) == sizeof get && event[0] == 4711);
}

static void case_gone(void)
{
	int fd = open(node, O_RDWR), async = make_events(fd, 0);
	uint32_t event[4];

	CHECK(ask(fd, 104, NULL, 0) < 0 && errno == EIO); /* the device is lost */
	CHECK(read(async, event, sizeof event) == sizeof event && event[2] == 8);
	CHECK(read(async, event, sizeof event) < 0 && errno == EIO);
	CHECK(close(fd) == 0);
}

/* A file of events that the library has no room for the program does not get. */
static void case_full(void)
{
	int fd = open(node, O_RDWR), made = 0, number;
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_max < 8192)
		return; /* too few files to see it */
	limit.rlim_cur = limit.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	while (made < 8192 && (number = make_channel(fd)) >= 0)
		made++;
	CHECK(made == 4095 && errno == ENFILE);
	number = dup(0);
	CHECK(number >= 0 && close(number) == 0 && make_channel(fd) < 0 && errno == ENFILE);
	CHECK(dup(0) == number); /* nothing is left open */
}

static void *gets_event(void *arg)
{
	uint32_t event[2];
	struct {
		uint32_t command;
		uint16_t in, out;
		uint64_t response;
	} get = { 12, 8, 8, (uintptr_t)event };

	return write(*(int *)arg, &get, sizeof get) < 0 ? "failed" : "event";
}

/* A thread that waits for an event goes on when another one closes the file. */
static void case_closed(void)
{
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
	void *result;
	pthread_t t;

	CHECK(fd >= 0 && ask(fd, 114, NULL, 0) == 24);
	packet(fd);
	CHECK(pthread_create(&t, NULL, gets_event, &fd) == 0);
	while (ask(fd, 115, NULL, 0) == 0)
		sched_yield();
	CHECK(close(fd) == 0 && pthread_cancel(t) == 0 && pthread_join(t, &result) == 0);
	CHECK(result == PTHREAD_CANCELED);
}

static void leave(int sig)
{
	(void)sig;
	_exit(0);
}

/* ends is a worker that uses a device and ends by _exit. */
static void ends(const char *file, int in_handler)
{
	pid_t pid = fork();
	int fd;

	if (pid == 0) {
		setenv("CHECK_FAREWELL", file, 1);
		signal(SIGUSR1, leave);
		fd = open(node, O_RDWR);
		CHECK(fd >= 0 && echo(fd, 1));
		if (in_handler)
			raise(SIGUSR1);
		_exit(0);
	}
	wait_for(pid);
}

/* A worker that ends by _exit closes its device, but not in a handler. */
static void case_ends(void)
{
	char dir[] = "/tmp/rocev2-check-XXXXXX", file[64];

	CHECK(mkdtemp(dir));
	snprintf(file, sizeof file, "%s/farewell", dir);
	ends(file, 1);
	CHECK(access(file, F_OK) != 0);
	ends(file, 0);
	CHECK(access(file, F_OK) == 0 && unlink(file) == 0 && rmdir(dir) == 0);
}

static void case_nothing(void)
{
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "paths", case_paths }, { "places", case_places }, { "file", case_file },
		{ "wait", case_wait }, { "cancel", case_cancel }, { "numbers", case_numbers },
		{ "standard", case_standard }, { "fork", case_fork }, { "signals", case_signals },
		{ "threads", case_threads }, { "events", case_events }, { "gone", case_gone },
		{ "limit", case_limit }, { "full", case_full }, { "ends", case_ends },
		{ "closed", case_closed }, { "nothing", case_nothing },
		{ "deferred", case_deferred }, { "actions", case_actions }, { "masks", case_masks },
		{ "faults", case_faults }, { "inner", case_inner }, { "pipe", case_pipe },
		{ "stacks", case_stacks }, { "restart", case_restart }, { "jump", case_jump },
		{ "handler", case_handler }, { "user", case_user }, { "early", case_early },
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
