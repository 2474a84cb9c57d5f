/*
 * Threads of the program inside the adapter.
 *
 * Go runs a call on a stack of its own, and what its runtime does meanwhile on
 * that of the thread. Where that one is small, or not the thread's own (a
 * coroutine), the call gets one that is large enough.
 */
#include "preload.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <ucontext.h>
#endif

OWN struct thread self;

/* What must be left of a thread's stack for a call that uses it. */
enum { STACK_LEAST = 64 << 10, CALL_STACK = 256 << 10 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static void *stack_new(size_t size)
{
	size_t guard = (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, guard + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	mprotect(p, guard, PROT_NONE);
	return p + guard;
}

static void stack_free(void *stack, size_t size)
{
	size_t guard = (size_t)sysconf(_SC_PAGESIZE);

	if (stack)
		munmap((char *)stack - guard, guard + size);
}

static void ends(void *arg)
{
	(void)arg;
	signals_thread_ends();
	stack_free(self.signal_stack, SIGNAL_STACK);
	stack_free(self.call_stack, CALL_STACK);
	self.signal_stack = self.call_stack = NULL;
	self.known = 0;
}

static void make_key(void)
{
	pthread_key_create(&key, ends);
}

/*
 * first_stack finds the stack of the first thread, which is where the kernel
 * has put the program's name. libc would look for it in the list of all
 * mappings. The kernel leaves room for more than is taken here.
 */
static bool first_stack(void)
{
	enum { MOST = 8 << 20 };
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t end = (getauxval(AT_EXECFN) | (page - 1)) + 1;
	struct rlimit limit = { MOST, MOST };
	size_t size;

	syscall(SYS_prlimit64, 0, RLIMIT_STACK, NULL, &limit);
	size = (limit.rlim_cur < MOST ? (size_t)limit.rlim_cur : MOST) & ~(page - 1);
	if (syscall(SYS_gettid) != getpid() || here >= end || end - here > size)
		return false;
	self.stack = end - size;
	self.stack_size = size;
	return true;
}

static void find_stack(void)
{
	pthread_attr_t attr;
	void *low;
	size_t size;

	if (first_stack())
		return;
	pthread_attr_init(&attr);
	if (NEXT(pthread_getattr_np)(pthread_self(), &attr) == 0 && pthread_attr_getstack(&attr, &low, &size) == 0) {
		self.stack = (uintptr_t)low;
		self.stack_size = size;
	}
	pthread_attr_destroy(&attr);
}

/* begins prepares a thread for its first call. */
static void begins(void)
{
	int saved = errno;

	self.known = adapter_generation();
	find_stack();
	if (!self.signal_stack)
		self.signal_stack = stack_new(SIGNAL_STACK);
	signals_thread();
	pthread_once(&once, make_key);
	pthread_setspecific(key, &self);
	errno = saved;
}

/* ---- calls ---- */

struct call {
	adapter_function *function;
	long args[5], result;
#ifdef __GLIBC__
	ucontext_t back, on;
#endif
};

static void do_call(struct call *c)
{
	c->result = c->function(c->args[0], c->args[1], c->args[2], c->args[3], c->args[4]);
}

#ifdef __GLIBC__
static void on_call_stack(void)
{
	do_call(self.call);
}

static void switch_stack(struct call *c)
{
	if (!self.call_stack)
		self.call_stack = stack_new(CALL_STACK);
	if (!self.call_stack || getcontext(&c->on) != 0) {
		do_call(c);
		return;
	}
	self.call = c;
	self.switched = true;
	c->on.uc_link = &c->back;
	c->on.uc_stack.ss_sp = self.call_stack;
	c->on.uc_stack.ss_size = CALL_STACK;
	makecontext(&c->on, on_call_stack, 0);
	swapcontext(&c->back, &c->on);
	self.switched = false;
}
#else
static void switch_stack(struct call *c)
{
	do_call(c); /* musl has no contexts, and no adapter */
}
#endif

/* roomy reports whether the stack is the thread's own, with room on it. */
static inline bool roomy(void)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	return here - self.stack - STACK_LEAST < self.stack_size - STACK_LEAST && self.stack_size > STACK_LEAST;
}

/* The first call of a thread changes the signals that it blocks. */
static __attribute__((noinline)) long first_call(struct call *c)
{
	signals mask;

	begins();
	mask = set_mask(but_faults());
	if (roomy())
		do_call(c);
	else
		switch_stack(c);
	set_mask(mask);
	return c->result;
}

void signals_release(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (--self.inside == 0 && self.deferred)
		signals_deferred();
}

long adapter_call(adapter_function *function, long a, long b, long c, long d, long e)
{
	long result;

	signals_hold();
	if (self.known && roomy()) {
		result = function(a, b, c, d, e);
	} else {
		struct call call = { .function = function, .args = { a, b, c, d, e } };

		if (!self.known)
			first_call(&call);
		else
			switch_stack(&call);
		result = call.result;
	}
	signals_release();
	return result;
}

/* The thread that has forked is the only one, and outside. */
void threads_in_child(void)
{
	self.inside = self.known = 0;
	self.deferred = 0;
}

/* ---- what the adapter's runtime asks of libc ---- */

/* It asks for the stack at each change of it, and libc's answer is slow. */
EXPORT int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
	if (!self.inside || !self.stack_size)
		return NEXT(pthread_getattr_np)(thread, attr);
	pthread_attr_init(attr);
	if (self.switched)
		return pthread_attr_setstack(attr, self.call_stack, CALL_STACK);
	return pthread_attr_setstack(attr, (void *)self.stack, self.stack_size);
}

struct start {
	void *(*function)(void *);
	void *arg;
};

static void *adapters_thread(void *arg)
{
	struct start s = *(struct start *)arg;

	free(arg);
	self.adapters = true;
	return s.function(s.arg);
}

/* Threads that the adapter makes are its own. */
EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*function)(void *), void *arg)
{
	struct start *s;
	int result;

	if (!self.inside && !self.adapters)
		return NEXT(pthread_create)(thread, attr, function, arg);
	s = malloc(sizeof *s);
	if (!s)
		return EAGAIN;
	*s = (struct start){ function, arg };
	result = NEXT(pthread_create)(thread, attr, adapters_thread, s);
	if (result != 0)
		free(s);
	return result;
}
