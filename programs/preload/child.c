/*
 * Posts of a child of fork, where the adapter does not let one use a device. The
 * queues are in memory that it shares with its parent, so librxe would put its
 * requests between those of that, and say only then that it could not ring.
 *
 * Posting is a function pointer in a structure of libibverbs that programs use
 * inline (struct ibv_context of infiniband/verbs.h), so its layout is fixed.
 */
#include "preload.h"

#include <errno.h>

struct posting_context {
	void *before[33];
	int cmd_fd;
};

/* The beginning of struct ibv_qp and of struct ibv_srq. */
struct posted_to {
	struct posting_context *context;
};

typedef int post_function(struct posted_to *to, void *list, void **bad);

enum { SRQ_RECV, SEND, RECV, POSTS };

static _Atomic(post_function *) librxe_post[POSTS];

static int post(int which, struct posted_to *to, void *list, void **bad)
{
	struct file *f = file_of(to->context->cmd_fd);

	if (f && child_refused(f)) {
		*bad = list;
		return errno = EIO;
	}
	return atomic_load_explicit(&librxe_post[which], memory_order_relaxed)(to, list, bad);
}

static int post_srq_recv(struct posted_to *to, void *list, void **bad)
{
	return post(SRQ_RECV, to, list, bad);
}

static int post_send(struct posted_to *to, void *list, void **bad)
{
	return post(SEND, to, list, bad);
}

static int post_recv(struct posted_to *to, void *list, void **bad)
{
	return post(RECV, to, list, bad);
}

void child_opened(void *context)
{
	static const struct {
		int word; /* of the context */
		post_function *ours;
	} posts[POSTS] = { { 21, post_srq_recv }, { 26, post_send }, { 27, post_recv } };

	for (int i = 0; i < POSTS; i++) {
		void **word = (void **)context + posts[i].word;
		post_function *is = (post_function *)*word, *none = NULL;

		if (is && is != posts[i].ours && (atomic_compare_exchange_strong(&librxe_post[i], &none, is) || none == is))
			*word = (void *)posts[i].ours;
	}
}
