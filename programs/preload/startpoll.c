/*
 * Polling of extended completion queues (ibv_start_poll), as that of the others
 * (pollcq.c). It is a function pointer in the queue, which a function makes that
 * is a pointer before the context (struct verbs_context of
 * infiniband/verbs.h): it grows at its other end, so its places are fixed.
 */
#include "preload.h"

#include <errno.h>
#include <pthread.h>

struct poll_context {
	void *before[33];
	int cmd_fd, async_fd, vectors;
	pthread_mutex_t mutex;
	void *abi; /* all ones where there is something before it */
};

struct poll_cq_ex {
	struct poll_context *context;
	void *channel, *user;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t completed, async_completed, mask;
	int status;
	uint64_t wr_id;
	int (*start_poll)(struct poll_cq_ex *cq, void *attr);
	int (*next_poll)(struct poll_cq_ex *cq);
	void (*end_poll)(struct poll_cq_ex *cq);
};

typedef int start_function(struct poll_cq_ex *cq, void *attr);
typedef void end_function(struct poll_cq_ex *cq);
typedef struct poll_cq_ex *create_function(struct poll_context *c, void *attr);

/* Words before the context. */
enum { SIZE = 1, CREATE_CQ_EX = 15 };

static _Atomic(start_function *) librxe_start;
static _Atomic(end_function *) librxe_end;
static _Atomic(create_function *) librxe_create;

static int start_poll(struct poll_cq_ex *cq, void *attr)
{
	start_function *start = atomic_load_explicit(&librxe_start, memory_order_relaxed);
	struct file *f = file_of(cq->context->cmd_fd);
	int result, came;

	if (f && child_refused(f))
		return EIO;
	result = start(cq, attr);
	if ((result != ENOENT && result != 0) || !f || (result == 0 && !doorbells_left(f)))
		return result;
	came = poll_empty(f);
	if (result == 0)
		return 0;
	if (came < 0)
		return EIO;
	return came > 0 ? start(cq, attr) : result;
}

/* end_poll is librxe's, for an adapter that wants to know of polls. */
static void end_poll(struct poll_cq_ex *cq)
{
	struct file *f = file_of(cq->context->cmd_fd);

	atomic_load_explicit(&librxe_end, memory_order_relaxed)(cq);
	if (f)
		poll_told(f, cq->handle);
}

static struct poll_cq_ex *create_cq_ex(struct poll_context *c, void *attr)
{
	struct poll_cq_ex *cq = atomic_load(&librxe_create)(c, attr);
	start_function *none = NULL;
	end_function *nothing = NULL;
	struct file *f = file_of(c->cmd_fd);

	if (!cq || !f)
		return cq;
	if (cq->start_poll && cq->start_poll != start_poll &&
	    (atomic_compare_exchange_strong(&librxe_start, &none, cq->start_poll) || none == cq->start_poll))
		cq->start_poll = start_poll;
	if (f->tell_polls && cq->end_poll && cq->end_poll != end_poll &&
	    (atomic_compare_exchange_strong(&librxe_end, &nothing, cq->end_poll) || nothing == cq->end_poll))
		cq->end_poll = end_poll;
	return cq;
}

void start_poll_opened(void *context)
{
	struct poll_context *c = context;
	void **words = context;
	create_function *is, *none = NULL;

	if (c->abi != (void *)UINTPTR_MAX || (uintptr_t)words[-SIZE] < CREATE_CQ_EX * sizeof *words)
		return;
	is = (create_function *)words[-CREATE_CQ_EX];
	if (!is || is == create_cq_ex)
		return;
	if (atomic_compare_exchange_strong(&librxe_create, &none, is) || none == is)
		words[-CREATE_CQ_EX] = (void *)create_cq_ex;
}
