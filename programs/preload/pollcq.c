/*
 * Polling of completion queues. A poll that finds nothing receives, and looks
 * again.
 *
 * Polling is a function pointer in a structure of libibverbs that programs use
 * inline (struct ibv_context of infiniband/verbs.h), so its layout is fixed.
 */
#include "preload.h"

#include <errno.h>

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
	void *channel, *user;
	uint32_t handle;
};

/* The beginning of struct ibv_wc, and its size. */
struct completion {
	uint64_t id;
	uint32_t status, opcode, vendor_err;
	char after[28];
};

_Static_assert(sizeof(struct completion) == 48, "layout");

/*
 * What the adapter writes into completions of a queue pair that has gone to
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

int receive(struct file *f)
{
	if (!adapter_has(f))
		return -1;
	return (int)adapter_call(adapter.poll, (long)f->handle, 0, 0, 0, 0);
}

/*
 * A look for packets is a call of Go and one of the kernel. So a program that
 * has polled for LONG_VAIN without result looks only every LOOK_EVERY: on
 * average a packet then comes half of that later, a fiftieth of the time that
 * the program has waited for it. A program that does other things between its
 * polls always looks. PASS_MOST is for clocks that stand still, as those of
 * some preloaded libraries do.
 */
enum { LONG_VAIN = 50000, LOOK_EVERY = 2000, PASS_MOST = 256 };

static bool too_soon(struct looks *l, int64_t now)
{
	int64_t since = atomic_load_explicit(&l->since, memory_order_relaxed);
	unsigned passed = atomic_load_explicit(&l->passed, memory_order_relaxed);

	if (since == 0) {
		atomic_store_explicit(&l->since, now, memory_order_relaxed);
		return false;
	}
	if (now - since < LONG_VAIN || passed >= PASS_MOST ||
	    now - atomic_load_explicit(&l->last, memory_order_relaxed) >= LOOK_EVERY)
		return false;
	atomic_store_explicit(&l->passed, passed + 1, memory_order_relaxed);
	return true;
}

int poll_empty(struct file *f)
{
	struct looks *l = &f->looks;
	int64_t now = time_now();
	int came;

	if (!doorbells_left(f) && too_soon(l, now))
		return 0;
	atomic_store_explicit(&l->last, now, memory_order_relaxed);
	atomic_store_explicit(&l->passed, 0, memory_order_relaxed);
	came = receive(f);
	if (came > 0)
		poll_expects(f);
	return came;
}

static int poll_cq(struct verbs_cq *cq, int n, void *wc)
{
	int found = poll_kept(cq, n, wc), came;
	struct file *f;

	if (found < 0 || (found > 0 && found == n) || !(f = file_of(cq->context->cmd_fd)) || (found > 0 && !doorbells_left(f)))
		return found;
	came = poll_empty(f);
	if (found > 0)
		return found;
	if (came < 0)
		return -1;
	return came > 0 ? poll_kept(cq, n, wc) : 0;
}

void poll_told(struct file *f, uint32_t cq)
{
	if (f->tell_polls && adapter_has(f))
		adapter_call(adapter.polled, (long)f->handle, cq, 0, 0, 0);
}

/* poll_and_tell is poll_cq where the adapter wants to know of polls, or of children. */
static int poll_and_tell(struct verbs_cq *cq, int n, void *wc)
{
	struct file *f = file_of(cq->context->cmd_fd);
	int found;

	if (f && child_refused(f))
		return -1;
	found = poll_cq(cq, n, wc);
	if (found > 0 && f)
		poll_told(f, cq->handle);
	return found;
}

static void opened(struct verbs_device_context *c)
{
	struct file *f = c ? file_of(c->cmd_fd) : NULL;
	poll_function *none = NULL;

	if (!f || f->kind != VERBS)
		return;
	start_poll_opened(c);
	if (f->refuse_child)
		child_opened(c);
	if (!c->poll_cq || c->poll_cq == poll_cq || c->poll_cq == poll_and_tell)
		return;
	if (atomic_compare_exchange_strong(&librxe_poll, &none, c->poll_cq) || none == c->poll_cq)
		c->poll_cq = f->tell_polls || f->refuse_child ? poll_and_tell : poll_cq;
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
