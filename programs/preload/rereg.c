/*
 * Re-registration of memory. The daemon can do it, and the command is there;
 * only librxe, up to now, has nothing between ibv_rereg_mr and the command. So
 * where libibverbs says that it is not supported, the command is written here.
 *
 * The structures are those of infiniband/verbs.h, which programs use.
 */
#include "preload.h"

#include <errno.h>
#include <string.h>

struct rereg_context {
	void *before[33];
	int cmd_fd;
};

struct rereg_domain {
	struct rereg_context *context;
	uint32_t handle;
};

struct rereg_region {
	struct rereg_context *context;
	struct rereg_domain *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

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

static int reregister(struct file *f, struct rereg_region *mr, int flags, struct rereg_domain *pd,
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

typedef int rereg_function(struct rereg_region *mr, int flags, struct rereg_domain *pd, void *addr,
			   size_t length, int access);

rereg_function ibv_rereg_mr;

EXPORT int ibv_rereg_mr(struct rereg_region *mr, int flags, struct rereg_domain *pd, void *addr,
			size_t length, int access)
{
	static _Atomic(void *) next;
	rereg_function *p = (rereg_function *)verbs_function(&next, "ibv_rereg_mr");
	struct file *f;
	int err;

	if (!p) {
		errno = ENOSYS;
		return ERR_COMMAND;
	}
	err = p(mr, flags, pd, addr, length, access);
	if (err != ERR_COMMAND || errno != EOPNOTSUPP)
		return err;
	f = file_of(mr->context->cmd_fd);
	if (!f || f->kind != VERBS)
		return err;
	return reregister(f, mr, flags, pd, addr, length, access);
}
