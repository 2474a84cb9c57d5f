/* What the cases of bulk data have in common. */
#ifndef BULK_H
#define BULK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
	do {                                                                              \
		if (!(what)) {                                                            \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
			_exit(1);                                                         \
		}                                                                         \
	} while (0)

enum {
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	SIZE = 1 << 20,
	SLOTS = 8,
};

enum { EVENTS = 1, USE_SRQ = 2, UNCONNECTED = 4, SOLICITED = 8 };

struct address {
	union ibv_gid gid;
	uint32_t qpn, rkey;
	uint64_t addr;
};

/* One end of a connection: a process, its file, and its queues. */
struct side {
	int sock; /* to the process at the other end */
	unsigned how;
	struct ibv_context *c;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *buf;
	struct address peer;
};

extern pid_t other;         /* the process at the other end, in the parent */
extern uint8_t ack_timeout; /* of queue pairs that are connected from now on */

void begin(struct side *s, int sock, bool last, unsigned how);
void connect_side(struct side *s);
void to_rts(struct ibv_qp *q, const struct address *to);
void say(int sock, const void *what, size_t n);
void hear(int sock, void *what, size_t n);
void meet(struct side *s);
void meet_behind(struct side *s, int credits);
void fill(struct side *s, uint64_t seq);
bool is_whole(struct side *s, uint64_t seq);
int try_post(struct side *s, enum ibv_wr_opcode op, uint64_t seq, unsigned flags);
void post(struct side *s, enum ibv_wr_opcode op, uint64_t seq);
void post_receive(struct side *s, uint64_t seq);
void post_receives(struct side *s, int count);
int next(struct side *s, struct ibv_wc *wc); /* -1: the daemon is gone */
void expect(struct side *s, enum ibv_wc_opcode op, uint64_t seq);
void stream_out(struct side *s, enum ibv_wr_opcode op, int count, void (*meanwhile)(struct side *, int));
void stream_in(struct side *s, enum ibv_wr_opcode op, int count, void (*meanwhile)(struct side *, int));

/* ---- bulkends.c ---- */

void ends_out(struct side *s);
void ends_in(struct side *s);
void armed_out(struct side *s);
void armed_in(struct side *s);
void solicited_out(struct side *s);
void datagrams_out(struct side *s);
void datagrams_in(struct side *s);

#endif
