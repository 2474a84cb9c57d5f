/* Cases of processes with several threads whose pages are exchanged. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

enum { SIZE = 1 << 20, WORDS = SIZE / 4, WRITERS = 2, ROUNDS = 10 };

static _Atomic(_Atomic uint32_t *) buffer;
static atomic_int writers_there;
static atomic_bool end;

static _Atomic uint32_t *new_buffer(void)
{
	void *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	memset(p, 0, SIZE);
	return p;
}

/* Each writer has words of its own, which it counts up. Nothing may be lost. */
static void *count_up(void *arg)
{
	size_t own = (uintptr_t)arg;
	_Atomic uint32_t *last = NULL;
	uint32_t n = 0;

	while (!atomic_load(&end)) {
		_Atomic uint32_t *p = atomic_load(&buffer);

		if (p != last) {
			last = p;
			n = 0;
			atomic_fetch_add(&writers_there, 1);
		}
		for (size_t i = own; i < WORDS; i += 509 * WRITERS) {
			CHECK(atomic_load_explicit(&p[i], memory_order_relaxed) == n);
			atomic_store_explicit(&p[i], n + 1, memory_order_relaxed);
		}
		n++;
	}
	return NULL;
}

/* A reader waits in the kernel, which writes to its buffer. */
static int ends[2];

static void *read_into(void *p)
{
	CHECK(read(ends[0], p, 1) == 1);
	return NULL;
}

static void nothing(int sig)
{
	(void)sig;
}

static void *get_signals(void *arg)
{
	sigset_t set;
	int sig;

	(void)arg;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	CHECK(sigwait(&set, &sig) == 0 && sig == SIGUSR2);
	return NULL;
}

void case_crowd(void)
{
	int fd = open(node, O_RDWR);
	pthread_t t[WRITERS], reader, waiter;
	_Atomic uint32_t *p = new_buffer();
	int shared = 0;
	sigset_t set;
	pid_t pid;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0 && signal(SIGUSR1, nothing) != SIG_ERR);
	CHECK(pthread_create(&waiter, NULL, get_signals, NULL) == 0);
	atomic_store(&buffer, p);
	for (uintptr_t i = 0; i < WRITERS; i++)
		CHECK(pthread_create(&t[i], NULL, count_up, (void *)i) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		p = new_buffer();
		atomic_store(&writers_there, 0);
		atomic_store(&buffer, p);
		while (atomic_load(&writers_there) < WRITERS)
			sched_yield();
		pthread_kill(t[0], SIGUSR1);
		reg_mr(fd, (void *)p, SIZE);
		/*
		 * It is the same memory on both sides: page 1 is the first. On a
		 * busy machine threads may not stop in time.
		 */
		((unsigned char *)p)[4096 + 4] = (unsigned char)i + 1;
		shared += in_daemon(fd, 4) == i + 1;
		((unsigned char *)p)[4096 + 4] = 0;
	}
	CHECK(shared > 0);
	atomic_store(&end, true);
	for (int i = 0; i < WRITERS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	/* A call that waits goes on, and writes to the pages that are there then. */
	do {
		p = new_buffer();
		CHECK(pipe2(ends, O_CLOEXEC) == 0 && pthread_create(&reader, NULL, read_into, (char *)p + 4097) == 0);
		CHECK(reg_mr(fd, (void *)p, SIZE) == 1 && write(ends[1], "x", 1) == 1 && pthread_join(reader, NULL) == 0);
		CHECK(((char *)p)[4097] == 'x' && close(ends[0]) == 0 && close(ends[1]) == 0);
	} while (in_daemon(fd, 1) != 'x');
	/* A child has copies. */
	pid = fork();
	if (pid == 0) {
		((char *)p)[4097] = 'y';
		CHECK(in_daemon(fd, 1) == 'x');
		_exit(0);
	}
	wait_for(pid);
	CHECK(((char *)p)[4097] == 'x');
	CHECK(kill(getpid(), SIGUSR2) == 0 && pthread_join(waiter, NULL) == 0);
}

/* A thread that nothing interrupts: its child has not come to exec. */
static _Atomic pid_t held_by;

static int wait_for_end(void *arg)
{
	(void)arg;
	atomic_store(&held_by, (pid_t)syscall(SYS_getpid));
	for (;;)
		syscall(SYS_ppoll, NULL, 0, NULL, NULL, 8);
}

static void *hold(void *arg)
{
	static char stack[65536] __attribute__((aligned(16)));
	pid_t pid = clone(wait_for_end, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, arg); /* as vfork */

	CHECK(waitpid(pid, NULL, 0) == pid);
	return NULL;
}

/* Then nothing is exchanged, and all goes on. */
void case_held(void)
{
	enum { NONE = 300 };
	int fd = open(node, O_RDWR);
	pthread_t t, other;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(pthread_create(&other, NULL, get_signals, NULL) == 0 && pthread_create(&t, NULL, hold, NULL) == 0);
	while (!atomic_load(&held_by))
		sched_yield();
	CHECK(reg_mr(fd, (void *)new_buffer(), SIZE) == 0 && in_daemon(fd, 0) == NONE);
	CHECK(kill(getpid(), SIGUSR2) == 0 && pthread_join(other, NULL) == 0);
	CHECK(kill(atomic_load(&held_by), SIGKILL) == 0 && pthread_join(t, NULL) == 0);
}

/* A part is registered before the whole, as caches of registrations do it. */
void case_grown(void)
{
	enum { PART = SIZE / 4, PAGE = 4096 };
	int fd = open(node, O_RDWR);
	unsigned char *p = (void *)new_buffer();

	p[0] = 6;
	p[PART] = 7;
	CHECK(reg_mr(fd, p, PART) == 1 && in_daemon(fd, 0) == 6);
	CHECK(reg_mr(fd, p, SIZE) == 1 && in_daemon(fd, 0) == 7);
	p[PART] = 8;
	CHECK(in_daemon(fd, 0) == 8 && p[0] == 6);
	/* What is registered as it is stays so, and what is behind it does not. */
	p = (void *)new_buffer();
	CHECK(reg_mr(fd, p + PART + 1, 1) == 1);
	p[PART + PAGE] = 9;
	CHECK(reg_mr(fd, p, SIZE) == 1 && in_daemon(fd, 0) == 9 && in_daemon(fd, 1) == 0);
	/* With a hole it is no region, and nothing is exchanged. */
	p = (void *)new_buffer();
	CHECK(munmap(p + PART, PAGE) == 0 && reg_mr(fd, p, SIZE) == 1 && in_daemon(fd, 0) == 9);
}
