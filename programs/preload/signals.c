/*
 * Signals of a program that has the adapter's threads beside its own.
 *
 * While a thread is inside the adapter, Go has it on a stack of its own, which
 * is small. So no handler of the program runs there: signals wait until the
 * call returns. Faults are the adapter's while inside it and on its threads,
 * and the program's everywhere else. For that a handler of ours stands before
 * each of the program's as soon as the adapter is loaded; sigaction says what
 * the program has set.
 */
#include "preload.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { LAST = 64, INTERNAL = 32 /* and 33: of libc */ };

/* What the program has set, where our handler stands before it. */
static struct {
	_Atomic uintptr_t handler;
	_Atomic int flags;
} programs[LAST + 1];

/* What the adapter's runtime has set for faults. */
static struct sigaction adapters[LAST + 1];

static atomic_bool active;
static struct lock table_lock;

typedef void handler_function(int sig, siginfo_t *info, void *context);

/* As rt_sigaction(2) has it. */
struct kernel_action {
	uintptr_t handler;
	unsigned long flags;
	void *restorer;
	uint64_t mask;
};

static bool is_fault(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE;
}

static bool is_function(uintptr_t handler)
{
	return handler != (uintptr_t)SIG_DFL && handler != (uintptr_t)SIG_IGN && handler != (uintptr_t)SIG_ERR;
}

static uintptr_t handler_of(const struct sigaction *a)
{
	return (uintptr_t)a->sa_handler; /* a union with the other kind */
}

static int next_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return NEXT(sigaction)(sig, act, old);
}

/* by_default does what the kernel does where there is no handler. */
static void by_default(int sig, siginfo_t *info)
{
	struct sigaction none = { .sa_handler = SIG_DFL };

	next_sigaction(sig, &none, NULL);
	if (info->si_code <= 0)
		syscall(SYS_rt_tgsigqueueinfo, syscall(SYS_getpid), syscall(SYS_gettid), sig, info);
	/* Else the instruction faults again. */
}

/*
 * later has the kernel keep a signal that comes inside the adapter: it is
 * blocked, and sent again, until adapter_call returns. One that a thread of the
 * adapter gets goes to the first thread of the program.
 */
static void later(int sig, siginfo_t *info, void *context)
{
	uint64_t bit = (uint64_t)1 << (sig - 1);
	pid_t pid = (pid_t)syscall(SYS_getpid);

	if (self.adapters) {
		syscall(SYS_rt_tgsigqueueinfo, pid, pid, sig, info);
		return;
	}
	sigaddset(&((ucontext_t *)context)->uc_sigmask, sig);
	self.deferred |= bit;
	syscall(SYS_rt_tgsigqueueinfo, pid, syscall(SYS_gettid), sig, info);
}

static void to_program(int sig, siginfo_t *info, void *context)
{
	uintptr_t handler = atomic_load(&programs[sig].handler);
	int flags = atomic_load(&programs[sig].flags);
	struct wait *wait;

	if (handler == (uintptr_t)SIG_IGN && info->si_code <= 0)
		return;
	if (!is_function(handler)) {
		by_default(sig, info);
		return;
	}
	if (flags & SA_RESETHAND) {
		struct sigaction none = { .sa_handler = SIG_DFL };

		sigaction(sig, &none, NULL);
	}
	wait = wait_suspend();
	self.handling++;
	((handler_function *)handler)(sig, info, context);
	self.handling--;
	wait_resume(wait);
	self.handled++;
	if (!(flags & SA_RESTART))
		self.interrupted = true;
}

static void dispatch(int sig, siginfo_t *info, void *context)
{
	int saved = errno;

	if (!self.inside && !self.adapters) {
		to_program(sig, info, context);
	} else if (info->si_code > 0 && is_fault(sig) && is_function(handler_of(&adapters[sig]))) {
		adapters[sig].sa_sigaction(sig, info, context);
	} else if (info->si_code > 0 && (is_fault(sig) || sig == SIGILL || sig == SIGTRAP || sig == SIGSYS)) {
		to_program(sig, info, context);
	} else {
		later(sig, info, context);
	}
	errno = saved;
}

void signals_deferred(void)
{
	uint64_t mask = self.deferred;
	int saved = errno;

	self.deferred = 0;
	syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &mask, NULL, sizeof mask);
	errno = saved;
}

/* stand_before makes of what the program wants what the kernel gets. */
static void stand_before(int sig, const struct sigaction *wanted, struct sigaction *given)
{
	*given = *wanted;
	atomic_store(&programs[sig].flags, wanted->sa_flags);
	atomic_store(&programs[sig].handler, handler_of(wanted));
	if (!is_function(handler_of(wanted)) && !is_fault(sig))
		return;
	given->sa_sigaction = dispatch;
	given->sa_flags = (int)(((unsigned)wanted->sa_flags | SA_ONSTACK | SA_SIGINFO) & ~(unsigned)SA_RESETHAND);
}

/* as_program makes of what the kernel has what the program has set. */
static void as_program(int sig, struct sigaction *a)
{
	if (handler_of(a) != (uintptr_t)dispatch)
		return;
	a->sa_handler = (void (*)(int))atomic_load(&programs[sig].handler);
	a->sa_flags = atomic_load(&programs[sig].flags);
}

/*
 * A child of vfork has handlers of its own, and the memory of its parent: what
 * it sets must not change our table.
 */
EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction given, before;
	signals mask;
	int result;

	if (sig < 1 || sig > LAST || !atomic_load(&active))
		return next_sigaction(sig, act, old);
	if (!act || vforked()) {
		result = next_sigaction(sig, act, old);
		if (result == 0 && old)
			as_program(sig, old);
		return result;
	}
	mask = lock_take(&table_lock);
	result = next_sigaction(sig, NULL, &before);
	if (result == 0) {
		as_program(sig, &before);
		stand_before(sig, act, &given);
		result = next_sigaction(sig, &given, NULL);
		if (result != 0)
			stand_before(sig, &before, &given);
		else if (old)
			*old = before;
	}
	lock_give(&table_lock, mask);
	return result;
}

/* ---- what libc makes of sigaction ---- */

typedef void simple_handler(int sig);

static _Atomic uint64_t interrupting; /* siginterrupt */

static simple_handler *set_simple(int sig, simple_handler *handler, int flags, bool mask)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = flags }, old;

	if (handler == SIG_ERR || sig < 1 || sig > LAST) {
		errno = EINVAL;
		return SIG_ERR;
	}
	sigemptyset(&act.sa_mask);
	if (mask)
		sigaddset(&act.sa_mask, sig);
	return sigaction(sig, &act, &old) == 0 ? old.sa_handler : SIG_ERR;
}

EXPORT simple_handler *signal(int sig, simple_handler *handler)
{
	bool interrupts = sig > 0 && sig <= LAST && atomic_load(&interrupting) >> (sig - 1) & 1;

	return set_simple(sig, handler, interrupts ? 0 : SA_RESTART, true);
}

#define ALIAS(name, of) EXPORT simple_handler *name(int sig, simple_handler *handler) __attribute__((alias(#of), nothrow, leaf))

#undef ssignal
ALIAS(bsd_signal, signal);
ALIAS(ssignal, signal);

simple_handler *__sysv_signal(int sig, simple_handler *handler);

EXPORT simple_handler *__sysv_signal(int sig, simple_handler *handler)
{
	return set_simple(sig, handler, (int)(SA_RESETHAND | SA_NODEFER), false);
}

ALIAS(sysv_signal, __sysv_signal);

EXPORT int siginterrupt(int sig, int flag)
{
	struct sigaction a;

	if (sigaction(sig, NULL, &a) != 0)
		return -1;
	if (flag) {
		atomic_fetch_or(&interrupting, (uint64_t)1 << (sig - 1));
		a.sa_flags &= ~SA_RESTART;
	} else {
		atomic_fetch_and(&interrupting, ~((uint64_t)1 << (sig - 1)));
		a.sa_flags |= SA_RESTART;
	}
	return sigaction(sig, &a, NULL);
}

EXPORT int sigignore(int sig)
{
	return set_simple(sig, SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
}

EXPORT simple_handler *sigset(int sig, simple_handler *handler)
{
	simple_handler *hold = (simple_handler *)2; /* SIG_HOLD */
	sigset_t set, before;
	struct sigaction old;

	sigemptyset(&set);
	if (sigaddset(&set, sig) != 0)
		return SIG_ERR;
	if (handler == hold) {
		if (sigprocmask(SIG_BLOCK, &set, &before) != 0 || sigaction(sig, NULL, &old) != 0)
			return SIG_ERR;
		return sigismember(&before, sig) ? hold : old.sa_handler;
	}
	handler = set_simple(sig, handler, 0, false);
	if (handler == SIG_ERR || sigprocmask(SIG_UNBLOCK, &set, &before) != 0)
		return SIG_ERR;
	return sigismember(&before, sig) ? hold : handler;
}

/* ---- stacks of handlers ---- */

/*
 * The program sees the stack that it has set. Where it has none, ours is there:
 * a signal inside the adapter must not come onto Go's.
 */
EXPORT int sigaltstack(const stack_t *ss, stack_t *old)
{
	stack_t ours = { .ss_sp = self.signal_stack, .ss_size = SIGNAL_STACK }, was;
	bool off = ss && ss->ss_flags & SS_DISABLE;

	if (!self.signal_stack)
		return NEXT(sigaltstack)(ss, old);
	if (NEXT(sigaltstack)(off ? &ours : ss, &was) != 0)
		return -1;
	if (old)
		*old = was;
	if (old && was.ss_sp == self.signal_stack)
		*old = (stack_t){ .ss_flags = SS_DISABLE };
	return 0;
}

void signals_thread(void)
{
	stack_t ours = { .ss_sp = self.signal_stack, .ss_size = SIGNAL_STACK }, has;

	if (self.signal_stack && NEXT(sigaltstack)(NULL, &has) == 0 && has.ss_flags & SS_DISABLE)
		NEXT(sigaltstack)(&ours, NULL);
}

void signals_thread_ends(void)
{
	stack_t off = { .ss_flags = SS_DISABLE }, has;

	if (NEXT(sigaltstack)(NULL, &has) == 0 && has.ss_sp == self.signal_stack)
		NEXT(sigaltstack)(&off, NULL);
}

/* ---- around the adapter's start ---- */

static struct sigaction before[LAST + 1];

void signals_before_load(void)
{
	for (int sig = 1; sig <= LAST; sig++)
		if (next_sigaction(sig, NULL, &before[sig]) != 0)
			memset(&before[sig], 0, sizeof before[sig]);
}

/* libc's own handlers keep their flags but for the stack. */
static void internal_onstack(int sig)
{
	struct kernel_action a;

	if (syscall(SYS_rt_sigaction, sig, NULL, &a, sizeof a.mask) != 0 || !is_function(a.handler))
		return;
	a.flags |= SA_ONSTACK;
	syscall(SYS_rt_sigaction, sig, &a, NULL, sizeof a.mask);
}

/*
 * The adapter's runtime has set handlers for faults, which it gets from ours,
 * and two more, which it does not need. What the program had is there again.
 */
void signals_after_load(void)
{
	signals mask = lock_take(&table_lock);

	for (int sig = 1; sig <= LAST; sig++) {
		struct sigaction now, given;

		if (sig == SIGKILL || sig == SIGSTOP)
			continue;
		if (sig == INTERNAL || sig == INTERNAL + 1) {
			internal_onstack(sig);
			continue;
		}
		if (next_sigaction(sig, NULL, &now) != 0)
			continue;
		if (is_fault(sig) && handler_of(&now) != handler_of(&before[sig]))
			adapters[sig] = now;
		stand_before(sig, &before[sig], &given);
		if (is_function(handler_of(&before[sig])) || is_function(handler_of(&now)))
			next_sigaction(sig, &given, NULL);
	}
	atomic_store(&active, true);
	lock_give(&table_lock, mask);
}
