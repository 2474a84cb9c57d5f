/*
 * many measures messages from 64 UNIX sockets to one receiver, whose senders are
 * as many processes: what the scheduler leaves of the rate of one process.
 *
 * usage: many PROCESSES BYTES OUTSTANDING SECONDS. An answer of one byte stands
 * for a message.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SOCKETS = 64 };

static int out[SOCKETS], in[SOCKETS], size, depth;
static char *buf;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void send_all(int fd, long n)
{
	while (n > 0) {
		ssize_t k = write(fd, buf, n);

		if (k <= 0)
			_exit(1);
		n -= k;
	}
}

static int watch(const int *fd, int n)
{
	int e = epoll_create1(0);

	for (int i = 0; i < n; i++) {
		struct epoll_event x = { .events = EPOLLIN, .data.u32 = i };

		epoll_ctl(e, EPOLL_CTL_ADD, fd[i], &x);
	}
	return e;
}

static void sender(const int *fd, int n)
{
	struct epoll_event ev[SOCKETS];
	int e = watch(fd, n);

	for (int i = 0; i < n; i++)
		send_all(fd[i], (long)size * depth);
	for (;;) {
		int m = epoll_wait(e, ev, SOCKETS, -1);

		for (int i = 0; i < m; i++) {
			ssize_t k = read(fd[ev[i].data.u32], buf, depth);

			if (k <= 0)
				_exit(0);
			send_all(fd[ev[i].data.u32], (long)size * k);
		}
	}
}

/* receive takes what there is and answers the messages that are complete: how many. */
static long receive(int i, long *got)
{
	ssize_t k = read(in[i], buf, (long)size * depth);
	long done = got[i] / size;

	if (k <= 0)
		exit(1);
	got[i] += k;
	done = got[i] / size - done;
	if (done > 0 && write(in[i], buf, done) != done)
		exit(1);
	return done;
}

int main(int argc, char **argv)
{
	long got[SOCKETS] = { 0 }, messages = 0;
	pid_t pid[SOCKETS];
	struct epoll_event ev[SOCKETS];
	int processes, e, some = 1 << 20;
	double begin, seconds;

	if (argc != 5 || (processes = atoi(argv[1])) < 1 || SOCKETS % processes || (size = atoi(argv[2])) < 1 || (depth = atoi(argv[3])) < 1) {
		fprintf(stderr, "usage: many PROCESSES BYTES OUTSTANDING SECONDS\n");
		return 2;
	}
	seconds = atof(argv[4]);
	buf = calloc(depth, size);
	for (int i = 0; i < SOCKETS; i++) {
		int pair[2];

		if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
			return 1;
		out[i] = pair[0], in[i] = pair[1];
		setsockopt(out[i], SOL_SOCKET, SO_SNDBUF, &some, sizeof some);
	}
	for (int i = 0; i < processes; i++) {
		if ((pid[i] = fork()) == 0) {
			for (int k = 0; k < SOCKETS; k++)
				close(in[k]);
			sender(out + i * (SOCKETS / processes), SOCKETS / processes);
		}
	}
	e = watch(in, SOCKETS);
	begin = now();
	while (now() < begin + seconds) {
		int m = epoll_wait(e, ev, SOCKETS, 100);

		for (int i = 0; i < m; i++)
			messages += receive(ev[i].data.u32, got);
	}
	seconds = now() - begin;
	printf("gbps %.6f\nmpps %.6f\n", messages * 8.0 * size / seconds / 1e9, messages / seconds / 1e6);
	for (int i = 0; i < processes; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	return 0;
}
