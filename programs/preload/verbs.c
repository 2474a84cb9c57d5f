/*
 * Functions of libibverbs that need more than librxe has. The structures are
 * those of infiniband/verbs.h, which programs use.
 */
#include "preload.h"

#include <errno.h>
#include <string.h>

struct context {
	void *before[33];
	int cmd_fd;
};

struct domain {
	struct context *context;
	uint32_t handle;
};

struct region {
	struct context *context;
	struct domain *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

struct cq {
	struct context *context;
};

/* VERBS_NEXT is libibverbs' own function with the name and type of ours, or NULL. */
#define VERBS_NEXT(name)                                                       \
	({                                                                     \
		static _Atomic(void *) found;                                  \
		(__typeof__(&name))verbs_function(&found, #name);              \
	})

/* ---- re-registration of memory ---- */

enum {
	VERBS_REREG_MR = 11,

	CHANGE_TRANSLATION = 1,
	CHANGE_PD = 2,

	ERR_COMMAND = -4, /* IBV_REREG_MR_ERR_CMD */
};

/* A command with its header (ib_uverbs_rereg_mr), and the reply. */
struct rereg_command {
	uint32_t command;
	uint16_t in_words, out_words;
	uint64_t response;
	uint32_t mr_handle, flags;
	uint64_t start, length, hca_va;
	uint32_t pd_handle, access_flags;
};

struct rereg_reply {
	uint32_t lkey, rkey;
};

_Static_assert(sizeof(struct rereg_command) == 56, "layout");

static int reregister(struct file *f, struct region *mr, int flags, struct domain *pd,
		      void *addr, size_t length, int access)
{
	struct rereg_reply reply;
	struct rereg_command c = {
		.command = VERBS_REREG_MR,
		.in_words = sizeof c / 4,
		.out_words = sizeof reply / 4,
		.response = (uintptr_t)&reply,
		.mr_handle = mr->handle,
		.flags = (uint32_t)flags,
		.start = (uintptr_t)addr,
		.length = length,
		.hca_va = (uintptr_t)addr,
		.pd_handle = flags & CHANGE_PD ? pd->handle : 0,
		.access_flags = (uint32_t)access,
	};

	if (device_write(f, mr->context->cmd_fd, &c, sizeof c) != (ssize_t)sizeof c)
		return ERR_COMMAND;
	mr->lkey = reply.lkey;
	mr->rkey = reply.rkey;
	if (flags & CHANGE_PD)
		mr->pd = pd;
	if (flags & CHANGE_TRANSLATION) {
		mr->addr = addr;
		mr->length = length;
	}
	return 0;
}

int ibv_rereg_mr(struct region *mr, int flags, struct domain *pd, void *addr, size_t length, int access);

/*
 * The adapter can do it, and the command is there; only librxe, up to now, has
 * nothing between ibv_rereg_mr and the command. So where libibverbs says that it
 * is not supported, the command is written here.
 */
EXPORT int ibv_rereg_mr(struct region *mr, int flags, struct domain *pd, void *addr, size_t length, int access)
{
	__typeof__(&ibv_rereg_mr) next = VERBS_NEXT(ibv_rereg_mr);
	struct file *f;
	int err;

	if (!next) {
		errno = ENOSYS;
		return ERR_COMMAND;
	}
	err = next(mr, flags, pd, addr, length, access);
	if (err != ERR_COMMAND || errno != EOPNOTSUPP)
		return err;
	f = file_of(mr->context->cmd_fd);
	if (!f || f->kind != VERBS)
		return err;
	return reregister(f, mr, flags, pd, addr, length, access);
}

/* ---- completion queues of another size ---- */

static struct lock resizing;

int ibv_resize_cq(struct cq *cq, int entries);

/*
 * librxe notes the size of the new ring when it has given up the lock of the
 * queue. So where two threads resize a queue, one of them unmaps by the old
 * size: memory of others as well. Here they do it one after the other.
 */
EXPORT int ibv_resize_cq(struct cq *cq, int entries)
{
	__typeof__(&ibv_resize_cq) next = VERBS_NEXT(ibv_resize_cq);
	signals before;
	int result;

	if (!next)
		return ENOSYS;
	if (!file_of(cq->context->cmd_fd))
		return next(cq, entries);
	before = lock_take(&resizing);
	result = next(cq, entries);
	lock_give(&resizing, before);
	return result;
}

void resize_in_child(void)
{
	atomic_store(&resizing.state, 0);
}
