/*
 * Completion queues of another size. librxe notes the size of the new ring when
 * it has given up the lock of the queue. So where two threads resize a queue,
 * one of them unmaps by the old size: memory of others as well. Here threads
 * resize one after the other.
 */
#include "preload.h"

#include <errno.h>

struct resized_context {
	void *before[33];
	int cmd_fd;
};

struct resized_cq {
	struct resized_context *context;
};

typedef int resize_function(struct resized_cq *cq, int entries);

static struct lock resizing;

resize_function ibv_resize_cq;

EXPORT int ibv_resize_cq(struct resized_cq *cq, int entries)
{
	static _Atomic(void *) next;
	void *p = verbs_function(&next, "ibv_resize_cq");
	signals before;
	int result;

	if (!p)
		return ENOSYS;
	if (!file_of(cq->context->cmd_fd))
		return ((resize_function *)p)(cq, entries);
	before = lock_take(&resizing);
	result = ((resize_function *)p)(cq, entries);
	lock_give(&resizing, before);
	return result;
}

void resize_in_child(void)
{
	atomic_store(&resizing.state, 0);
}
