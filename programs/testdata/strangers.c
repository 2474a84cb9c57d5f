/* Cases of signals, and of threads with odd stacks, beside the adapter. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#ifdef __GLIBC__
#include <ucontext.h>
#endif

#include "check.h"

static volatile uint32_t go_on[2]; /* the call may end, and has begun */
static volatile sig_atomic_t came;
static int device;

static void count(int sig)
{
	came += sig;
}

static void *sends(void *arg)
{
	pthread_t to = *(pthread_t *)arg;

	while (!go_on[1])
		sched_yield();
	pthread_kill(to, SIGUSR1);
	pthread_kill(to, SIGUSR2);
	for (int i = 0; i < 100; i++)
		sched_yield();
	CHECK(came == 0);
	go_on[0] = 1;
	return NULL;
}

/* Signals that come inside the adapter wait until the call returns. */
void case_deferred(void)
{
	struct sigaction a = { .sa_handler = count };
	pthread_t me = pthread_self(), t;
	sigset_t mask;

	device = open(node, O_RDWR);
	CHECK(sigaction(SIGUSR1, &a, NULL) == 0 && signal(SIGUSR2, count) == SIG_DFL && echo(device, 1));
	for (int i = 0; i < 10; i++) {
		go_on[0] = go_on[1] = 0;
		came = 0;
		CHECK(pthread_create(&t, NULL, sends, &me) == 0);
		CHECK(ask(device, 110, go_on, 0) == 1 && came == SIGUSR1 + SIGUSR2);
		CHECK(pthread_join(t, NULL) == 0);
	}
	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
	CHECK(!sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGUSR2));
}

/* A program sees what it has set, before and after the adapter is there. */
void case_actions(void)
{
	struct sigaction a = { .sa_handler = count, .sa_flags = SA_RESTART }, got;

	sigemptyset(&a.sa_mask);
	sigaddset(&a.sa_mask, SIGHUP);
	CHECK(sigaction(SIGUSR1, &a, NULL) == 0 && signal(SIGUSR2, SIG_IGN) == SIG_DFL && signal(SIGSEGV, SIG_DFL) == SIG_DFL);
	device = open(node, O_RDWR);
	CHECK(echo(device, 1) && sigaction(SIGUSR1, NULL, &got) == 0);
	CHECK(got.sa_handler == count && (got.sa_flags & ~0x04000000) == SA_RESTART && sigismember(&got.sa_mask, SIGHUP));
	CHECK(raise(SIGUSR1) == 0 && came == SIGUSR1);
	CHECK(signal(SIGUSR2, count) == SIG_IGN && signal(SIGUSR2, SIG_DFL) == count && signal(SIGSEGV, count) == SIG_DFL);
	CHECK(sigaction(SIGSEGV, NULL, &got) == 0 && got.sa_handler == count && raise(SIGSEGV) == 0 && came == SIGUSR1 + SIGSEGV);
	CHECK(signal(SIGSEGV, SIG_IGN) == count && raise(SIGSEGV) == 0 && signal(SIGSEGV, SIG_DFL) == SIG_IGN);
	a.sa_flags = (int)SA_RESETHAND;
	CHECK(sigaction(SIGUSR2, &a, &got) == 0 && got.sa_handler == SIG_DFL && raise(SIGUSR2) == 0);
	CHECK(came == SIGUSR1 + SIGSEGV + SIGUSR2 && signal(SIGUSR2, count) == SIG_DFL);
	CHECK(siginterrupt(SIGUSR2, 1) == 0 && sigaction(SIGUSR2, NULL, &got) == 0 && !(got.sa_flags & SA_RESTART));
	CHECK(sigaction(SIGKILL, &a, NULL) < 0 && errno == EINVAL && sigaction(65, &a, NULL) < 0 && errno == EINVAL);
}

/* A thread's first call leaves its mask, and what waits for it. */
static void *masked(void *arg)
{
	sigset_t all, mask, waiting;

	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, &mask) == 0 && pthread_kill(pthread_self(), SIGCHLD) == 0);
	CHECK(echo(device, 1) && echo(device, 2));
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && sigismember(&mask, SIGCHLD) && sigismember(&mask, SIGPROF));
	CHECK(sigpending(&waiting) == 0 && sigismember(&waiting, SIGCHLD));
	return arg;
}

void case_masks(void)
{
	sigset_t all, mask;
	siginfo_t info;
	pthread_t t;
	pid_t pid;

	sigfillset(&all);
	CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
	device = open(node, O_RDWR);
	CHECK(echo(device, 1) && sigprocmask(SIG_SETMASK, NULL, &mask) == 0);
	for (int sig = 1; sig < 32; sig++)
		CHECK(sig == SIGKILL || sig == SIGSTOP || sigismember(&mask, sig));
	CHECK(pthread_create(&t, NULL, masked, NULL) == 0 && pthread_join(t, NULL) == 0);
	/* Nothing takes the signal of a child from a program that waits for it. */
	for (int i = 0; i < 50; i++) {
		pid = fork();
		if (pid == 0)
			_exit(0);
		sigemptyset(&mask);
		sigaddset(&mask, SIGCHLD);
		CHECK(sigwaitinfo(&mask, &info) == SIGCHLD && info.si_pid == pid && waitpid(pid, NULL, 0) == pid);
	}
}

static sigjmp_buf back;

static void jump(int sig)
{
	siglongjmp(back, sig);
}

/* Faults of the program are its own: they come to its handler, or end it. */
void case_faults(void)
{
	volatile char *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t pid;

	device = open(node, O_RDWR);
	CHECK(echo(device, 1) && signal(SIGSEGV, jump) == SIG_DFL);
	for (int i = 0; i < 3; i++)
		if (sigsetjmp(back, 1) == 0) {
			*none = 1;
			CHECK(0);
		}
	CHECK(echo(device, 2) && signal(SIGSEGV, SIG_DFL) == jump);
	pid = fork();
	if (pid == 0) {
		alarm(10);
		*none = 1;
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	pid = fork();
	if (pid == 0) {
		kill(getpid(), SIGSEGV);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* A fault inside is the adapter's, also where the program has a handler. */
void case_inner(void)
{
	int out[2];
	char said[64] = { 0 };

	CHECK(pipe(out) == 0);
	if (fork() == 0) {
		dup2(out[1], 1);
		signal(SIGSEGV, jump);
		device = open(node, O_RDWR);
		signal(SIGSEGV, count);
		ask(device, 109, (void *)16, 0);
		_exit(1);
	}
	CHECK(read(out[0], said, sizeof said - 1) > 0 && strcmp(said, "the adapter has had a fault\n") == 0);
}

/* What the adapter's runtime does with other signals is undone. */
void case_pipe(void)
{
	int status, ends[2];
	pid_t pid;

	device = open(node, O_RDWR);
	CHECK(echo(device, 1) && pipe(ends) == 0);
	close(ends[0]);
	pid = fork();
	if (pid == 0) {
		CHECK(write(ends[1], "x", 1) == 1);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
}

/* ---- stacks ---- */

static void *small(void *arg)
{
	CHECK(ask(device, 108, NULL, 0) == 0 && echo(device, 1));
	return arg;
}

#ifdef __GLIBC__
static ucontext_t main_context, coroutine;
static char coroutine_stack[16 << 10];

static bool on_stack(int fd, const void *low, size_t n)
{
	uint32_t page = 0;

	CHECK(ask(fd, 111, &page, 0) == 0);
	return page - (uint32_t)((uintptr_t)low >> 12) < n >> 12;
}

static void in_coroutine(void)
{
	CHECK(ask(device, 108, NULL, 0) == 0);
	CHECK(!on_stack(device, coroutine_stack, sizeof coroutine_stack));
	swapcontext(&coroutine, &main_context);
	CHECK(echo(device, 5));
}
#endif

static char *alternative;

static void on_alternative(int sig)
{
	char here;

	came = &here - alternative < SIGSTKSZ ? sig : -1;
}

/* Threads with small stacks, coroutines, and programs with a signal stack. */
void case_stacks(void)
{
	struct sigaction a = { .sa_handler = on_alternative, .sa_flags = SA_ONSTACK };
	stack_t ss = { .ss_size = (size_t)SIGSTKSZ }, got;
	pthread_attr_t attr;
	pthread_t t;

	device = open(node, O_RDWR);
	CHECK(sigaltstack(NULL, &got) == 0 && got.ss_flags == SS_DISABLE);
	CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, 16 << 10) == 0);
	for (int i = 0; i < 20; i++)
		CHECK(pthread_create(&t, &attr, small, NULL) == 0 && pthread_join(t, NULL) == 0);
	alternative = ss.ss_sp = malloc(ss.ss_size);
	CHECK(sigaltstack(&ss, &got) == 0 && got.ss_flags == SS_DISABLE && sigaction(SIGUSR1, &a, NULL) == 0);
	CHECK(raise(SIGUSR1) == 0 && came == SIGUSR1 && echo(device, 3));
	CHECK(sigaltstack(NULL, &got) == 0 && got.ss_sp == alternative);
	ss.ss_flags = SS_DISABLE;
	CHECK(sigaltstack(&ss, NULL) == 0 && sigaltstack(NULL, &got) == 0 && got.ss_flags == SS_DISABLE);
	CHECK(raise(SIGUSR1) == 0 && came == -1);
#ifdef __GLIBC__
	CHECK(getcontext(&coroutine) == 0);
	coroutine.uc_stack.ss_sp = coroutine_stack;
	coroutine.uc_stack.ss_size = sizeof coroutine_stack;
	coroutine.uc_link = &main_context;
	makecontext(&coroutine, in_coroutine, 0);
	CHECK(swapcontext(&main_context, &coroutine) == 0 && echo(device, 4));
	CHECK(swapcontext(&main_context, &coroutine) == 0 && echo(device, 6));
#endif
}

/* ---- handlers that come while a thread waits ---- */

static int channel;

static void jump_out(int sig)
{
	siglongjmp(back, sig);
}

/* interrupts sends a signal to a thread that waits, then an event. */
static void *interrupts(void *arg)
{
	pthread_t to = *(pthread_t *)arg;

	while (ask(device, 106, NULL, 0) == 0)
		sched_yield();
	pthread_kill(to, SIGUSR1);
	while (came == 0)
		sched_yield();
	CHECK(ask(device, 105, NULL, 0) > 0);
	return NULL;
}

/* SA_RESTART has a read go on, and without it the read ends, as a kernel's. */
void case_restart(void)
{
	struct sigaction a = { .sa_handler = count, .sa_flags = SA_RESTART };
	pthread_t me = pthread_self(), t;
	char cookie[8];

	device = open(node, O_RDWR);
	channel = make_channel(device);
	CHECK(sigaction(SIGUSR1, &a, NULL) == 0 && pthread_create(&t, NULL, interrupts, &me) == 0);
	CHECK(read(channel, cookie, 8) == 8 && came == SIGUSR1 && pthread_join(t, NULL) == 0);
	a.sa_flags = 0;
	came = 0;
	CHECK(sigaction(SIGUSR1, &a, NULL) == 0 && pthread_create(&t, NULL, interrupts, &me) == 0);
	CHECK(read(channel, cookie, 8) < 0 && errno == EINTR && came == SIGUSR1);
	CHECK(read(channel, cookie, 8) == 8 && pthread_join(t, NULL) == 0 && ask(device, 106, NULL, 0) == 0);
}

/* A signal that comes as a wait begins ends it, too. */
void case_early(void)
{
	struct sigaction a = { .sa_handler = count };
	struct pollfd p = { .events = POLLIN };
	char cookie[8];

	device = open(node, O_RDWR);
	p.fd = channel = make_channel(device);
	CHECK(sigaction(SIGUSR1, &a, NULL) == 0);
	CHECK(ask(device, 112, NULL, SIGUSR1) > 0 && read(channel, cookie, 8) < 0 && errno == EINTR && came == SIGUSR1);
	a.sa_flags = SA_RESTART;
	CHECK(sigaction(SIGUSR1, &a, NULL) == 0 && ask(device, 112, NULL, SIGUSR1) > 0);
	CHECK(poll(&p, 1, -1) < 0 && errno == EINTR && came == 2 * SIGUSR1 && ask(device, 106, NULL, 0) == 0);
}

static void *jumps(void *arg)
{
	struct pollfd p[40] = { { .fd = channel, .events = POLLIN } };
	char cookie[8];

	for (int i = 1; i < 40; i++)
		p[i].fd = -1;
	for (volatile int i = 0; i < 4; i++) {
		if (sigsetjmp(back, 1) == 0) {
			go_on[0] = (uint32_t)i + 1;
			if (i < 2)
				CHECK(read(channel, cookie, 8) == 0);
			CHECK(poll(p, i == 2 ? 1 : 40, -1) == 0);
		}
		/* The wait is over, and another thread receives. */
		CHECK(ask(device, 106, NULL, 0) == 0);
	}
	go_on[0] = 9;
	pthread_exit(arg);
}

/* A handler that leaves a wait by siglongjmp takes nothing with it. */
void case_jump(void)
{
	struct sigaction a = { .sa_handler = jump_out, .sa_flags = SA_NODEFER };
	void *result;
	pthread_t t;

	device = open(node, O_RDWR);
	channel = make_channel(device);
	CHECK(sigaction(SIGUSR1, &a, NULL) == 0 && pthread_create(&t, NULL, jumps, &device) == 0);
	for (uint32_t i = 1; i < 5; i++) {
		while (go_on[0] < i || ask(device, 106, NULL, 0) == 0)
			sched_yield();
		pthread_kill(t, SIGUSR1);
	}
	CHECK(pthread_join(t, &result) == 0 && result == &device && go_on[0] == 9);
}

/* A handler may use the device while its thread waits for it. */
static void uses(int sig)
{
	CHECK(echo(device, 7) && ask(device, 106, NULL, 0) == 0);
	came = sig;
}

void case_handler(void)
{
	struct sigaction a = { .sa_handler = uses, .sa_flags = SA_RESTART };
	pthread_t me = pthread_self(), t;
	char cookie[8];

	device = open(node, O_RDWR);
	channel = make_channel(device);
	for (int i = 0; i < 10; i++) {
		came = 0;
		CHECK(sigaction(SIGUSR1, &a, NULL) == 0 && pthread_create(&t, NULL, interrupts, &me) == 0);
		CHECK(read(channel, cookie, 8) == 8 && came == SIGUSR1 && pthread_join(t, NULL) == 0);
	}
}

static void *waits_idly(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* setuid and its kin wait for all threads, those of the adapter, too. */
void case_user(void)
{
	pthread_t t;

	device = open(node, O_RDWR);
	CHECK(pthread_create(&t, NULL, waits_idly, NULL) == 0 && echo(device, 1));
	CHECK(setresuid(getuid(), geteuid(), geteuid()) == 0 && seteuid(geteuid()) == 0 && setgid(getgid()) == 0);
	CHECK(echo(device, 2));
}
