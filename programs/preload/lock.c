/* A lock by futex, held with signals blocked. */
#include "preload.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Operations of futex(2), private to the process. */
enum { WAIT = 128, WAKE = 129 };

/* Faults must be delivered, or the kernel kills the program. */
signals but_faults(void)
{
	signals all = ~(signals)0;
	static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT };

	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		all &= ~((signals)1 << (faults[i] - 1));
	return all;
}

signals set_mask(signals mask)
{
	signals before = 0;

	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &before, sizeof mask);
	return before;
}

void lock_enter(struct lock *l)
{
	int saved = errno, free = 0;

	if (!atomic_compare_exchange_strong(&l->state, &free, 1))
		while (atomic_exchange(&l->state, 2) != 0)
			syscall(SYS_futex, &l->state, WAIT, 2, NULL, NULL, 0);
	errno = saved;
}

void lock_leave(struct lock *l)
{
	int saved = errno;

	if (atomic_exchange(&l->state, 0) == 2)
		syscall(SYS_futex, &l->state, WAKE, 1, NULL, NULL, 0);
	errno = saved;
}

signals lock_take(struct lock *l)
{
	int saved = errno;
	signals before = set_mask(but_faults());

	lock_enter(l);
	errno = saved;
	return before;
}

void lock_give(struct lock *l, signals before)
{
	int saved = errno;

	lock_leave(l);
	set_mask(before);
	errno = saved;
}
