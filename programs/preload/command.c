/*
 * Commands that a program writes to a device file. Most go to the daemon as
 * they are. Numbers of files and pointers are of this process only: they are
 * exchanged for what the daemon knows.
 */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Commands of verbs (ib_user_verbs.h) and of the connection manager. */
enum {
	EXTENDED = 0x80000000,

	VERBS_GET_CONTEXT = 0,
	VERBS_REG_MR = 9,
	VERBS_REREG_MR = 11,
	VERBS_COMP_CHANNEL = 17,
	VERBS_CREATE_CQ = 18,
	VERBS_REQ_NOTIFY = 23,
	VERBS_POST_SEND = 28,
	VERBS_MODIFY_SRQ = 33,

	CM_CREATE_ID = 0,
	CM_GET_EVENT = 12,
	CM_SET_OPTION = 14,
	CM_MIGRATE_ID = 18,

	NEW_TRANSLATION = 1, /* of VERBS_REREG_MR */

	MAX_OPTION = 4096,
	UNKNOWN_CHANNEL = 0x7fffffff,
};

struct header {
	uint32_t command;
	uint16_t in, out;
};

struct extended {
	struct header h;
	uint64_t response;
	uint16_t provider_in, provider_out;
	uint32_t reserved;
};

static uint32_t u32_at(const void *buf, size_t off)
{
	uint32_t v;

	memcpy(&v, (const char *)buf + off, sizeof v);
	return v;
}

static uint64_t u64_at(const void *buf, size_t off)
{
	uint64_t v;

	memcpy(&v, (const char *)buf + off, sizeof v);
	return v;
}

static void *pointer_at(const void *buf, size_t off)
{
	return (void *)(uintptr_t)u64_at(buf, off);
}

/* ---- without the daemon's help ---- */

/*
 * A request was posted to a send queue: ring its bell. If it cannot send yet
 * the daemon is asked, which says so.
 */
static bool ring(struct file *f, uint32_t qp)
{
	struct area *a = f->area;
	uint32_t word = qp / 64;
	uint64_t one = 1;

	if (qp >= AREA_QPS)
		return false;
	if (atomic_load_explicit(&a->unready[word], memory_order_relaxed) & one << (qp % 64))
		return false;
	/*
	 * The daemon clears the bit before it looks at the queue. So where it
	 * is still set, the daemon has yet to look, and to find the request.
	 */
	short_turns();
	atomic_fetch_or(&a->bells[word], one << (qp % 64));
	atomic_fetch_or(&a->summary[word / 64], one << (word % 64));
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&a->sleeping, memory_order_relaxed) == 1 &&
	    atomic_exchange(&a->sleeping, 0) == 1) {
		int saved = errno;

		syscall(SYS_write, f->bell_fd, &one, sizeof one);
		errno = saved;
	}
	return true;
}

static bool arm(struct file *f, uint32_t cq, bool solicited_only)
{
	uint32_t want = solicited_only ? 1 : 2, is;

	if (cq >= AREA_CQS)
		return false;
	is = atomic_load(&f->area->arm[cq]);
	while (is < want && !atomic_compare_exchange_weak(&f->area->arm[cq], &is, want))
		;
	atomic_thread_fence(memory_order_seq_cst);
	return true;
}

static bool without_daemon(struct file *f, const struct header *h, const void *buf, size_t n)
{
	if (f->kind != VERBS || !f->area)
		return false;
	if (h->command == VERBS_POST_SEND && n >= 24)
		return ring(f, u32_at(buf, 16));
	if (h->command == VERBS_REQ_NOTIFY && n >= 16)
		return arm(f, u32_at(buf, 8), u32_at(buf, 12) != 0);
	return false;
}

/* ---- what is exchanged ---- */

static void whole(struct call *c, const void *buf, size_t n)
{
	c->payload[0] = (struct iovec){ (void *)buf, n };
	c->pieces = 1;
}

/* replace exchanges the 4 bytes at off for those of *v. */
static void replace(struct call *c, const void *buf, size_t n, size_t off, uint32_t *v)
{
	if (n < off + 4)
		return;
	c->payload[0] = (struct iovec){ (void *)buf, off };
	c->payload[1] = (struct iovec){ v, 4 };
	c->payload[2] = (struct iovec){ (char *)buf + off + 4, n - off - 4 };
	c->pieces = 3;
}

static uint32_t channel_handle(struct file *f, int32_t fd)
{
	struct file *channel = file_of(fd);

	if (fd == -1)
		return (uint32_t)-1;
	if (!channel || channel->kind != CHANNEL || channel->owner != f)
		return UNKNOWN_CHANNEL;
	return channel->handle;
}

static uint32_t token_of(int32_t fd)
{
	struct file *other = file_of(fd);

	return other && other->kind == CM ? other->token : 0;
}

static void translate(struct file *f, const struct header *h, const void *buf, size_t n,
		      struct call *c, uint32_t *value)
{
	if (f->kind == VERBS && (h->command & ~(uint32_t)EXTENDED) == VERBS_CREATE_CQ) {
		size_t off = h->command & EXTENDED ? 40 : 32;

		if (n >= off + 4) {
			*value = channel_handle(f, (int32_t)u32_at(buf, off));
			replace(c, buf, n, off, value);
		}
	} else if (f->kind == CM && h->command == CM_MIGRATE_ID && n >= 24) {
		*value = token_of((int32_t)u32_at(buf, 20));
		replace(c, buf, n, 20, value);
	} else if (f->kind == CM && h->command == CM_SET_OPTION && n >= 32) {
		uint32_t len = u32_at(buf, 28);

		c->payload[1] = (struct iovec){ pointer_at(buf, 8), len <= MAX_OPTION ? len : 0 };
		c->pieces = 2;
	}
}

/* answer finds where the answer goes, and how much the program has room for. */
static void answer(struct file *f, const struct header *h, const void *buf, size_t n, struct call *c)
{
	if (f->kind == CM) {
		size_t off = h->command == CM_CREATE_ID ? 16 : 8;

		if (h->out && n >= off + 8) {
			c->resp = pointer_at(buf, off);
			c->room = h->out;
		}
	} else if (h->command & EXTENDED) {
		struct extended x;

		if (n >= sizeof x) {
			memcpy(&x, buf, sizeof x);
			c->resp = (void *)(uintptr_t)x.response;
			c->room = ((size_t)h->out + x.provider_out) * 8;
		}
	} else if (h->command == VERBS_MODIFY_SRQ && n >= 32) {
		c->resp = pointer_at(buf, 24); /* librxe's mmap_info_addr */
		c->room = 16;
	} else if (h->out && n >= 16) {
		c->resp = pointer_at(buf, 8);
		c->room = (size_t)h->out * 4;
	}
	if (!c->resp)
		c->room = 0;
}

/* ---- files that come with an answer ---- */

static void enter(struct file *f, const struct header *h, int fd, uint32_t handle)
{
	enum kind kind = h->command == VERBS_GET_CONTEXT ? ASYNC : CHANNEL;
	struct file *g;

	if (f->kind != VERBS || fd >= MAX_NUMBER)
		return;
	if (h->command != VERBS_GET_CONTEXT && h->command != VERBS_COMP_CHANNEL)
		return;
	g = file_new(kind);
	if (!g)
		return;
	g->handle = handle;
	g->owner = f;
	g->owner_opened = f->opened;
	file_note(g, fd);
	file_enter(g, fd);
}

static void give_files(struct file *f, const struct header *h, struct call *c)
{
	for (int i = 0; i < c->nfds; i++) {
		uint32_t off = c->reply.fd_off[i], handle;
		char *at = (char *)c->resp + off;

		if (c->room < 4 || off > c->room - 4) {
			syscall(SYS_close, c->fds[i]);
			continue;
		}
		memcpy(&handle, at, sizeof handle);
		memcpy(at, &c->fds[i], sizeof c->fds[i]);
		enter(f, h, c->fds[i], handle);
	}
}

static ssize_t ask(struct file *f, int fd, const struct header *h, const void *buf, size_t n)
{
	bool import = h->command == VERBS_GET_CONTEXT && f->kind == VERBS && importing() >= 0;
	struct call c = { .op = import ? OP_IMPORT : OP_COMMAND, .send_fd = -1 };
	uint32_t value;

	whole(&c, buf, n);
	translate(f, h, buf, n, &c, &value);
	answer(f, h, buf, n, &c);
	if (wire_call(f, fd, &c) != 0)
		return -1;
	give_files(f, h, &c);
	if (c.reply.ret < 0) {
		errno = -c.reply.ret;
		return -1;
	}
	return c.reply.ret;
}

/*
 * Waiting for an event of the connection manager happens here, where signals
 * and cancellation can end it, and the file can be made non-blocking. When
 * another thread closes the file meanwhile the wait goes on, as a kernel's does.
 */
static ssize_t get_event(struct file *f, int fd, const struct header *h, const void *buf, size_t n)
{
	uint64_t opened = f->opened;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		bool wait = !(syscall(SYS_fcntl, fd, F_GETFL) & O_NONBLOCK);
		ssize_t got;

		if (wait && NEXT(poll)(&p, 1, -1) < 0)
			return -1;
		if (file_of(fd) != f || f->opened != opened) {
			NEXT(poll)(NULL, 0, -1);
			return -1;
		}
		got = ask(f, fd, h, buf, n);
		if (got >= 0 || errno != EAGAIN || !wait)
			return got;
	}
}

ssize_t device_write(struct file *f, int fd, const void *buf, size_t n)
{
	struct header h;

	if (n < sizeof h || n > WIRE_MAX) {
		errno = EINVAL;
		return -1;
	}
	memcpy(&h, buf, sizeof h);
	if (without_daemon(f, &h, buf, n))
		return (ssize_t)n;
	if (f->kind == CM && h.command == CM_GET_EVENT)
		return get_event(f, fd, &h, buf, n);
	if (f->kind == VERBS && h.command == VERBS_REG_MR && n >= 32)
		pages_register(f, fd, u64_at(buf, 16), u64_at(buf, 24));
	if (f->kind == VERBS && h.command == VERBS_REREG_MR && n >= 40 && u32_at(buf, 20) & NEW_TRANSLATION)
		pages_register(f, fd, u64_at(buf, 24), u64_at(buf, 32));
	return ask(f, fd, &h, buf, n);
}
