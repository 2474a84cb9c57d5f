/*
 * Contexts of a file that is open already, and what other contexts of it have
 * made. librxe has nothing of it. A context needs only that libibverbs opens
 * the device once more, and gets the file; a domain or a region, a structure
 * that names it.
 *
 * The structures are those of infiniband/verbs.h, which programs use.
 */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of a library that is loaded at the start: no call of the dynamic linker. */
#define OWN static _Thread_local __attribute__((tls_model("initial-exec")))

OWN int import_fd = -1;
OWN bool import_used;

int importing(void)
{
	return import_fd;
}

void import_opened(void)
{
	import_used = true;
}

struct import_device {
	void *ops[2];
	int node_type, transport_type;
	char name[64], dev_name[64];
};

struct import_context {
	void *before[33];
	int cmd_fd;
};

struct import_pd {
	struct import_context *context;
	uint32_t handle;
};

struct import_mr {
	struct import_context *context;
	struct import_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
	char room[128]; /* for what libibverbs keeps behind it */
};

static struct file *device(int fd)
{
	struct file *f = file_of(fd);

	return f && f->kind == VERBS ? f : NULL;
}

struct verbs_device_context *ibv_open_device(void *device);

/* context opens the device that a number is of, as that number. */
static void *context(int fd, struct import_device *d)
{
	int saved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3), err;
	void *c;

	if (saved < 0)
		return NULL;
	file_copied(fd, saved);
	import_fd = fd;
	import_used = false;
	c = ibv_open_device(d);
	import_fd = -1;
	err = errno;
	if (!c && import_used && !file_of(fd)) { /* libibverbs has closed it */
		syscall(SYS_dup3, saved, fd, O_CLOEXEC);
		file_copied(saved, fd);
	}
	if (file_closing(saved))
		syscall(SYS_close, saved);
	errno = err;
	return c;
}

void *ibv_import_device(int fd);

EXPORT void *ibv_import_device(int fd)
{
	static _Atomic(void *) next, get, put;
	struct file *f = device(fd);
	void *p = verbs_function(&next, "ibv_import_device");
	struct import_device **list;
	void *c = NULL;
	int n = 0;

	if (!f || !verbs_function(&get, "ibv_get_device_list") || !verbs_function(&put, "ibv_free_device_list")) {
		errno = ENOSYS;
		return p ? ((void *(*)(int))p)(fd) : NULL;
	}
	list = ((struct import_device **(*)(int *))get)(&n);
	errno = ENODEV;
	for (int i = 0; list && i < n && !c; i++)
		if (strcmp(list[i]->dev_name, f->name) == 0)
			c = context(fd, list[i]);
	if (list)
		((void (*)(struct import_device **))put)(list);
	return c;
}

static bool ask(int fd, enum imported what, uint32_t handle, void *resp, size_t room)
{
	struct call c = { .op = OP_IMPORT, .arg = (uint64_t)what << 32 | handle, .send_fd = -1, .resp = resp, .room = room };

	if (wire_call(device(fd), fd, &c) != 0)
		return false;
	if (c.reply.ret < 0) {
		errno = -c.reply.ret;
		return false;
	}
	return true;
}

void *ibv_import_pd(struct import_context *context, uint32_t handle);

EXPORT void *ibv_import_pd(struct import_context *context, uint32_t handle)
{
	static _Atomic(void *) next;
	void *p = verbs_function(&next, "ibv_import_pd");
	struct import_pd *pd;

	if (!device(context->cmd_fd))
		return p ? ((void *(*)(void *, uint32_t))p)(context, handle) : NULL;
	if (!ask(context->cmd_fd, IMPORT_PD, handle, NULL, 0) || !(pd = calloc(1, sizeof *pd)))
		return NULL;
	pd->context = context;
	pd->handle = handle;
	return pd;
}

void *ibv_import_mr(struct import_pd *pd, uint32_t handle);

/* Where the memory of the region is only the program knows that has made it. */
EXPORT void *ibv_import_mr(struct import_pd *pd, uint32_t handle)
{
	static _Atomic(void *) next;
	void *p = verbs_function(&next, "ibv_import_mr");
	struct {
		uint64_t length;
		uint32_t lkey, rkey;
	} said = { 0, 0, 0 };
	struct import_mr *mr;

	if (!device(pd->context->cmd_fd))
		return p ? ((void *(*)(void *, uint32_t))p)(pd, handle) : NULL;
	if (!ask(pd->context->cmd_fd, IMPORT_MR, handle, &said, sizeof said) || !(mr = calloc(1, sizeof *mr)))
		return NULL;
	mr->context = pd->context;
	mr->pd = pd;
	mr->length = (size_t)said.length;
	mr->handle = handle;
	mr->lkey = said.lkey;
	mr->rkey = said.rkey;
	return mr;
}

typedef void unimport(void *object);

unimport ibv_unimport_pd, ibv_unimport_mr;

EXPORT void ibv_unimport_pd(void *object)
{
	static _Atomic(void *) next;
	void *p = verbs_function(&next, "ibv_unimport_pd");

	if (device(((struct import_pd *)object)->context->cmd_fd))
		free(object);
	else if (p)
		((unimport *)p)(object);
}

EXPORT void ibv_unimport_mr(void *object)
{
	static _Atomic(void *) next;
	void *p = verbs_function(&next, "ibv_unimport_mr");

	if (device(((struct import_mr *)object)->context->cmd_fd))
		free(object);
	else if (p)
		((unimport *)p)(object);
}
