/*
 * Polling of completion queues. A program that polls without a pause takes the
 * processor from the daemon that it waits for, where there are few of them. So
 * polls that find nothing give the processor away.
 *
 * Polling is a function pointer in a structure of libibverbs that programs use
 * inline (struct ibv_context of infiniband/verbs.h), so its layout is fixed.
 */
#include "preload.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct verbs_cq;

typedef int poll_function(struct verbs_cq *cq, int n, void *wc);

struct verbs_device_context {
	void *device;
	void *before[11];
	poll_function *poll_cq;
	void *after[20];
	int cmd_fd;
	int async_fd;
};

struct verbs_cq {
	struct verbs_device_context *context;
};

/* The beginning of struct ibv_wc, and its size. */
struct completion {
	uint64_t id;
	uint32_t status, opcode, vendor_err;
	char after[28];
};

_Static_assert(sizeof(struct completion) == 48, "layout");

/*
 * What the daemon writes into completions of a queue pair that has gone to
 * RESET: the program is not to see them. The libraries of hardware take them
 * out of the queue.
 */
enum { FORGOTTEN = 0x676f6e65 };

static _Atomic(poll_function *) librxe_poll;

static int keep(struct completion *wc, int found)
{
	int kept = 0;

	for (int i = 0; i < found; i++) {
		if (wc[i].vendor_err == FORGOTTEN)
			continue;
		if (kept != i)
			wc[kept] = wc[i];
		kept++;
	}
	return kept;
}

/* poll_kept polls until there is something that the program may see, or nothing. */
static int poll_kept(struct verbs_cq *cq, int n, void *wc)
{
	poll_function *poll = atomic_load_explicit(&librxe_poll, memory_order_relaxed);
	int found, kept;

	do {
		found = poll(cq, n, wc);
		if (found <= 0)
			return found;
		kept = keep(wc, found);
	} while (kept == 0);
	return kept;
}

/*
 * The first polls that find nothing cost little, in case that the completion is
 * about to come.
 */
enum { SPINS = 4, LOOK_FOR_DAEMON = 4096 };

/* As struct sched_attr of Linux. */
struct turns {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

/*
 * short_turns asks the scheduler for turns of 100 us for this thread, as the
 * daemon does for its own: so who gives the processor away gives it to the
 * other. Before Linux 6.12 it has no effect.
 */
void short_turns(void)
{
	static _Thread_local bool asked __attribute__((tls_model("initial-exec")));
	struct turns t = { .size = sizeof t };
	int saved = errno;

	if (asked)
		return;
	asked = true;
	if (syscall(SYS_sched_getattr, 0, &t, sizeof t, 0) == 0 && t.policy == SCHED_OTHER) {
		t.runtime = 100000;
		syscall(SYS_sched_setattr, 0, &t, 0);
	}
	errno = saved;
}

/* How many polls do not wait after one that waited in vain, at most. */
enum { MOST_VAIN = 1023 };

/*
 * Which queues this thread polls: those whose last poll is not LONG_AGO, counted
 * in polls that found nothing. Who polls more than MOST_QUEUES waits for none of
 * them.
 */
enum { MOST_QUEUES = 16, LONG_AGO = 1024 };

struct polled_queue {
	struct file *file;
	const void *cq;
	unsigned at; /* which poll was the last */
	bool seen;   /* it was empty, and since then nothing has come */
};

/* seen: since the thread has read completions, the file has had no others. */
static _Thread_local struct {
	struct file *file;
	uint32_t completions;
	unsigned polls, crowded, used;
	struct polled_queue queues[MOST_QUEUES];
} seen __attribute__((tls_model("initial-exec")));

static bool recent(unsigned at)
{
	return seen.polls - at < LONG_AGO;
}

/* note_poll takes note of a poll. NULL: there are too many queues. */
static struct polled_queue *note_poll(struct file *f, const void *cq)
{
	struct polled_queue *q, *old = NULL;

	for (q = seen.queues; q < seen.queues + seen.used; q++) {
		if (q->cq == cq && q->file == f) {
			q->at = seen.polls;
			return q;
		}
		if (!recent(q->at))
			old = q;
	}
	if (!old && seen.used < MOST_QUEUES)
		old = &seen.queues[seen.used++];
	if (old)
		*old = (struct polled_queue){ .file = f, .cq = cq, .at = seen.polls };
	else
		seen.crowded = seen.polls;
	return old;
}

/*
 * seen_all reports whether nothing has come since this thread has polled all
 * the queues that it polls: this one just now. Who polls several files waits
 * for none of them.
 */
static bool seen_all(struct file *f, struct polled_queue *q, uint32_t completions)
{
	bool all = true;

	if (seen.file != f || seen.completions != completions) {
		seen.file = f;
		seen.completions = completions;
		for (unsigned i = 0; i < seen.used; i++)
			seen.queues[i].seen = false;
		return false; /* there may be one: the poll came before */
	}
	if (!q || (seen.crowded && recent(seen.crowded)))
		return false;
	q->seen = true;
	for (q = seen.queues; q < seen.queues + seen.used; q++)
		all = all && (!recent(q->at) || (q->file == f && q->seen));
	return all;
}

/*
 * wait waits for a completion until the daemon ends it. It may have died, or
 * have no time to look after this program. Who has waited for bulk data in vain
 * then does not so again before the daemon says so.
 */
static void wait_for_completion(struct area *a, uint32_t completions, bool bulk)
{
	const struct timespec most = { .tv_nsec = bulk ? 2000000 : 20000000 };
	int saved = errno;

	atomic_store(&a->waiting, 1);
	if (!atomic_load(&a->sleeping) &&
	    syscall(SYS_futex, &a->completions, 0 /* FUTEX_WAIT */, completions, &most, NULL, 0) != 0 && errno == ETIMEDOUT && bulk)
		atomic_store(&a->bulk, 0);
	errno = saved;
}

/*
 * rest gives the processor to others. Where the daemon is awake, and shares this
 * processor, it then waits for a completion, for some 50 us at most: the daemon
 * ends it. To be woken from another processor would take longer than to look.
 * But for bulk data it waits there, too, and for longer: the daemons need all
 * processors, and the program has posted enough.
 */
static void rest(struct file *f, struct polled_queue *q)
{
	struct area *a = f->area;
	uint32_t completions;
	unsigned vain;
	bool bulk;

	short_turns();
	syscall(SYS_sched_yield);
	bulk = atomic_load(&a->bulk);
	if (atomic_load(&a->sleeping) || (!bulk && sched_getcpu() != (int)atomic_load(&a->cpu)))
		return;
	completions = atomic_load(&a->completions);
	if (!seen_all(f, q, completions))
		return;
	vain = atomic_load_explicit(&f->restless, memory_order_relaxed);
	if (vain > 0 && !bulk) {
		atomic_store_explicit(&f->restless, vain - 1, memory_order_relaxed);
		return;
	}
	wait_for_completion(a, completions, bulk);
	if (bulk)
		return;
	vain = 0;
	if (atomic_load(&a->completions) - completions < 2) { /* nothing has come */
		vain = atomic_load_explicit(&f->vain, memory_order_relaxed) * 2 + 1;
		vain = vain > MOST_VAIN ? MOST_VAIN : vain;
	}
	atomic_store_explicit(&f->vain, vain, memory_order_relaxed);
	atomic_store_explicit(&f->restless, vain, memory_order_relaxed);
}

bool polled(struct file *f, const void *cq, bool found)
{
	struct polled_queue *q;
	unsigned empty;

	empty = atomic_load_explicit(&f->empty, memory_order_relaxed);
	if (found) {
		if (empty == 0)
			return true;
		atomic_store_explicit(&f->empty, 0, memory_order_relaxed);
		q = note_poll(f, cq);
		if (q)
			q->seen = false; /* there may be more */
		return true;
	}
	atomic_store_explicit(&f->empty, ++empty, memory_order_relaxed);
	seen.polls++;
	q = note_poll(f, cq);
	if (empty <= SPINS) {
		if (empty == SPINS && f->area)
			seen_all(f, q, atomic_load(&f->area->completions));
		return true;
	}
	if (empty % LOOK_FOR_DAEMON == 0 && wire_lost(f))
		return false;
	if (!f->area) {
		syscall(SYS_sched_yield);
		return true;
	}
	if (!atomic_load_explicit(&f->area->polling, memory_order_relaxed))
		atomic_store_explicit(&f->area->polling, 1, memory_order_relaxed);
	rest(f, q);
	return true;
}

static int poll_cq(struct verbs_cq *cq, int n, void *wc)
{
	int found = poll_kept(cq, n, wc);
	struct file *f = file_of(cq->context->cmd_fd);

	return !f || polled(f, cq, found != 0) ? found : -1;
}

static void opened(struct verbs_device_context *c)
{
	struct file *f = c ? file_of(c->cmd_fd) : NULL;
	poll_function *none = NULL;

	if (!f || f->kind != VERBS)
		return;
	start_poll_opened(c);
	if (!c->poll_cq || c->poll_cq == poll_cq)
		return;
	if (atomic_compare_exchange_strong(&librxe_poll, &none, c->poll_cq) || none == c->poll_cq)
		c->poll_cq = poll_cq;
}

void *verbs_function(_Atomic(void *) *found, const char *name)
{
	void *p = atomic_load(found);

	if (!p) {
		p = library_symbol("libibverbs.so.1", name); /* the newest version */
		if (!p)
			p = next_symbol(name);
		atomic_store(found, p);
	}
	return p;
}

struct verbs_device_context *ibv_open_device(void *device);

EXPORT struct verbs_device_context *ibv_open_device(void *device)
{
	static _Atomic(void *) next;
	struct verbs_device_context *c;
	void *p = verbs_function(&next, "ibv_open_device");

	if (!p) {
		errno = ENOSYS;
		return NULL;
	}
	c = ((struct verbs_device_context * (*)(void *))p)(device);
	opened(c);
	return c;
}
