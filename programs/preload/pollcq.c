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

bool polled(struct file *f, bool found)
{
	unsigned empty;

	if (found) {
		atomic_store_explicit(&f->empty, 0, memory_order_relaxed);
		return true;
	}
	empty = atomic_load_explicit(&f->empty, memory_order_relaxed) + 1;
	atomic_store_explicit(&f->empty, empty, memory_order_relaxed);
	if (empty <= SPINS)
		return true;
	if (empty % LOOK_FOR_DAEMON == 0 && wire_lost(f))
		return false;
	syscall(SYS_sched_yield);
	return true;
}

static int poll_cq(struct verbs_cq *cq, int n, void *wc)
{
	int found = poll_kept(cq, n, wc);
	struct file *f = file_of(cq->context->cmd_fd);

	return !f || polled(f, found != 0) ? found : -1;
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
