/*
 * Cases of bulk data whose objects go while it is on its way, or that has
 * others beside it.
 */
#include "bulk.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

/* ---- what goes in the middle ---- */

enum { UNTOUCHED = 0xaa, ROUNDS = 36 };

static void drain(struct side *s)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(s->cq, 1, &wc) > 0)
		;
}

/* From now on nobody may write to the memory. */
static void paint(struct side *s)
{
	memset(s->buf, UNTOUCHED, SLOTS * SIZE);
}

static void check_paint(struct side *s)
{
	for (size_t i = 0; i < SLOTS * SIZE; i++)
		if (s->buf[i] != UNTOUCHED) {
			fprintf(stderr, "byte %zu is %x\n", i, s->buf[i]);
			_exit(1);
		}
}

static void new_qp(struct side *s)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .send_cq = s->cq, .recv_cq = s->cq, .srq = s->srq,
				      .cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1 } };

	s->qp = ibv_create_qp(s->pd, &a);
	CHECK(s->qp);
}

static void register_again(struct side *s)
{
	s->mr = ibv_reg_mr(s->pd, s->buf, SLOTS * SIZE, ALL);
	CHECK(s->mr);
}

static void to_state(struct side *s, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };

	CHECK(ibv_modify_qp(s->qp, &a, IBV_QP_STATE) == 0);
}

enum end { DESTROY_QP, DEREG_MR, REPLACE_MEMORY, REREG_MR, TO_RESET, TO_ERR, ENDS };

static unsigned char elsewhere[1 << 16];

/* stop ends what is on its way at one side: then its memory is its own. */
static void stop(struct side *s, enum end how)
{
	switch (how) {
	case DESTROY_QP:
		CHECK(ibv_destroy_cq(s->cq) == EBUSY);
		CHECK(ibv_destroy_qp(s->qp) == 0);
		CHECK(ibv_destroy_cq(s->cq) == 0 && (s->cq = ibv_create_cq(s->c, 256, NULL, s->channel, 0)));
		s->qp = NULL;
		break;
	case DEREG_MR:
		CHECK(ibv_dereg_mr(s->mr) == 0);
		s->mr = NULL;
		break;
	case REPLACE_MEMORY: /* as who frees it at once */
		CHECK(ibv_dereg_mr(s->mr) == 0 && munmap(s->buf, SLOTS * SIZE) == 0);
		CHECK(mmap(s->buf, SLOTS * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == s->buf);
		s->mr = NULL;
		break;
	case REREG_MR: /* the region is other memory from now on */
		CHECK(ibv_rereg_mr(s->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, elsewhere, sizeof elsewhere, 0) == 0);
		break;
	case TO_RESET:
		to_state(s, IBV_QPS_RESET);
		break;
	default:
		to_state(s, IBV_QPS_ERR);
	}
	paint(s);
}

/* clean ends the round. */
static void clean(struct side *s)
{
	if (s->qp)
		CHECK(ibv_destroy_qp(s->qp) == 0);
	if (s->mr && s->mr->addr != s->buf) {
		CHECK(ibv_dereg_mr(s->mr) == 0);
		s->mr = NULL;
	}
	if (!s->mr)
		register_again(s);
	drain(s);
	new_qp(s);
}

static const enum ibv_wr_opcode operations[] = { IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ };

/*
 * await_end polls what was posted: some of it has gone well, then one has not,
 * and the others are flushed.
 */
static void await_end(struct side *s, int done, int posted)
{
	struct ibv_wc wc;
	bool failed = false;

	for (; done < posted; done++) {
		CHECK(next(s, &wc) == 1 && wc.wr_id == (uint64_t)done);
		CHECK(failed ? wc.status == IBV_WC_WR_FLUSH_ERR : true);
		failed = wc.status != IBV_WC_SUCCESS;
	}
}

/* Side A posts. In odd rounds side B ends it, in even ones A does. */
void ends_out(struct side *s)
{
	int well = 0;

	for (int r = 0; r < ROUNDS; r++) {
		enum end how = r / 2 % ENDS;
		int polled = r * 5 % 8;

		connect_side(s);
		meet(s);
		for (int i = 0; i < SLOTS; i++)
			CHECK(try_post(s, operations[r / 12 % 3], (uint64_t)i, 0) == 0);
		for (int i = 0; i < polled; i++) {
			struct ibv_wc wc;

			CHECK(next(s, &wc) == 1);
			if (wc.status != IBV_WC_SUCCESS) /* B was faster, or the machine is busy */
				polled = i + 1;
			else
				well++;
		}
		if (r % 2 == 0) {
			stop(s, how);
			if (how == TO_ERR)
				await_end(s, polled, SLOTS);
		} else {
			await_end(s, polled, SLOTS);
		}
		meet(s);
		if (r % 2 == 0)
			check_paint(s);
		clean(s);
	}
	CHECK(well > ROUNDS);
}

void ends_in(struct side *s)
{
	for (int r = 0; r < ROUNDS; r++) {
		connect_side(s);
		for (int i = 0; i < SLOTS; i++)
			post_receive(s, (uint64_t)i);
		meet(s);
		if (r % 2) {
			struct ibv_wc wc;

			if (operations[r / 12 % 3] == IBV_WR_SEND)
				for (int i = 0; i < r * 3 % 7; i++)
					CHECK(next(s, &wc) == 1);
			stop(s, r / 2 % ENDS);
		}
		meet(s);
		if (r % 2)
			check_paint(s);
		clean(s);
	}
}

/* ---- completion channels beside bulk data ---- */

/* A second connection of a side, for short messages, which is waited for. */
struct bell {
	struct side *s;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint32_t sent[64], words[64];
	bool solicited;
};

enum { BELLS = 640, ARRIVE = 32 };

static void bell_receive(struct bell *b, uint64_t i)
{
	struct ibv_sge sge = { (uintptr_t)&b->words[i % ARRIVE], 4, b->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(b->qp, &wr, &bad) == 0);
}

static void bell_begin(struct bell *b, struct side *s, bool solicited)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC,
				      .cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct address mine = { 0 }, to;

	b->s = s;
	b->solicited = solicited;
	CHECK((b->channel = ibv_create_comp_channel(s->c)) && (b->cq = ibv_create_cq(s->c, 256, b, b->channel, 0)));
	CHECK((b->mr = ibv_reg_mr(s->pd, b->sent, sizeof b->sent + sizeof b->words, ALL)));
	a.send_cq = a.recv_cq = b->cq;
	CHECK((b->qp = ibv_create_qp(s->pd, &a)));
	mine.qpn = b->qp->qp_num;
	CHECK(ibv_query_gid(s->c, 1, 0, &mine.gid) == 0);
	say(s->sock, &mine, sizeof mine);
	hear(s->sock, &to, sizeof to);
	to_rts(b->qp, &to);
	for (uint64_t i = 0; i < ARRIVE; i++)
		bell_receive(b, i);
	meet(s);
}

/* bell_take waits for a completion as programs do that sleep. */
static void bell_take(struct bell *b, struct ibv_wc *wc)
{
	struct ibv_cq *cq;
	void *context;
	int n;

	while ((n = ibv_poll_cq(b->cq, 1, wc)) == 0) {
		CHECK(ibv_req_notify_cq(b->cq, b->solicited) == 0);
		if ((n = ibv_poll_cq(b->cq, 1, wc)) != 0)
			break;
		CHECK(ibv_get_cq_event(b->channel, &cq, &context) == 0 && cq == b->cq && context == b);
		ibv_ack_cq_events(cq, 1);
	}
	CHECK(n == 1 && wc->status == IBV_WC_SUCCESS);
}

static void bell_send(struct bell *b, uint32_t i, unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)&b->sent[i % 64], 4, b->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags }, *bad;

	b->sent[i % 64] = i;
	CHECK(ibv_post_send(b->qp, &wr, &bad) == 0);
}

/* Each message is answered: who misses one wake-up waits for ever. */
static void *ask(void *arg)
{
	struct bell *b = arg;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < BELLS; i++) {
		bool one = i % 16 == 15; /* only this one is waited for */

		bell_send(b, i, one ? IBV_SEND_SOLICITED | IBV_SEND_SIGNALED : 0);
		if (!one)
			continue;
		for (bool sent = false, answered = false; !sent || !answered;) {
			while (b->solicited && answered && ibv_poll_cq(b->cq, 1, &wc) == 0)
				; /* a send is not solicited */
			if (!b->solicited || !answered)
				bell_take(b, &wc);
			CHECK(wc.status == IBV_WC_SUCCESS);
			if (wc.opcode != IBV_WC_RECV) {
				sent = true;
				continue;
			}
			CHECK(b->words[wc.wr_id % ARRIVE] == i);
			bell_receive(b, wc.wr_id + ARRIVE);
			answered = true;
		}
	}
	return NULL;
}

static void *answer(void *arg)
{
	struct bell *b = arg;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < BELLS; i++) {
		bell_take(b, &wc);
		CHECK(wc.opcode == IBV_WC_RECV && wc.wr_id == i && b->words[i % ARRIVE] == i);
		bell_receive(b, i + ARRIVE);
		if (i % 16 == 15)
			bell_send(b, i, IBV_SEND_SOLICITED);
	}
	return NULL;
}

static void beside(struct side *s, void *(*what)(void *), void (*bulk)(struct side *s))
{
	static struct bell bells[2];
	pthread_t t[2];

	for (int i = 0; i < 2; i++)
		bell_begin(&bells[i], s, i == 1);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, what, &bells[i]) == 0);
	bulk(s);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	meet(s);
}

static void send_bulk(struct side *s)
{
	stream_out(s, IBV_WR_SEND, 60, NULL);
}

static void receive_bulk(struct side *s)
{
	stream_in(s, IBV_WR_SEND, 60, NULL);
}

void armed_out(struct side *s)
{
	meet(s);
	beside(s, ask, send_bulk);
}

void armed_in(struct side *s)
{
	post_receives(s, SLOTS);
	meet(s);
	beside(s, answer, receive_bulk);
}

/* Solicited messages among the bulk data wake who waits for those alone. */
void solicited_out(struct side *s)
{
	int posted = 0;

	meet(s);
	for (int i = 0; i < 60; i++) {
		for (; posted < 60 && posted < i + SLOTS; posted++) {
			fill(s, (uint64_t)posted);
			CHECK(try_post(s, IBV_WR_SEND, (uint64_t)posted, posted % 4 == 3 ? IBV_SEND_SOLICITED : 0) == 0);
		}
		expect(s, IBV_WC_SEND, (uint64_t)i);
	}
	meet(s);
}

/* ---- datagrams beside bulk data ---- */

enum { QKEY = 0x1234, GRAMS = 64, GRAM = 1024 };

struct grams {
	struct side *s;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_ah *ah[2]; /* of the peer, and of the group */
	uint32_t to[2];
	uint32_t last[2];
	int came[2];
	uint32_t sent, done;
	unsigned char out[GRAMS][GRAM], in[GRAMS][GRAM + 40];
};

static void gram_receive(struct grams *g, uint64_t i)
{
	struct ibv_sge sge = { (uintptr_t)g->in[i % GRAMS], sizeof g->in[0], g->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(g->qp, &wr, &bad) == 0);
}

/* group_of is a group that no other test of this host has. */
static union ibv_gid group_of(uint32_t one, uint32_t other)
{
	uint32_t n = one + other;
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, n >> 16 & 0x7f, n >> 8 & 0xff, n & 0xff } };

	return group;
}

static struct grams *grams_begin(struct side *s)
{
	struct grams *g = calloc(1, sizeof *g);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD,
					 .cap = { .max_send_wr = GRAMS, .max_recv_wr = GRAMS, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct ibv_ah_attr av = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct address mine = { 0 }, to;
	union ibv_gid group;

	CHECK(g);
	g->s = s;
	CHECK((g->cq = ibv_create_cq(s->c, 500, NULL, NULL, 0)) && (g->mr = ibv_reg_mr(s->pd, g, sizeof *g, ALL)));
	init.send_cq = init.recv_cq = g->cq;
	CHECK((g->qp = ibv_create_qp(s->pd, &init)));
	CHECK(ibv_modify_qp(g->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
	a.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(g->qp, &a, IBV_QP_STATE) == 0);
	a.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(g->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	for (uint64_t i = 0; i < GRAMS; i++)
		gram_receive(g, i);
	mine.qpn = g->qp->qp_num;
	CHECK(ibv_query_gid(s->c, 1, 0, &mine.gid) == 0);
	say(s->sock, &mine, sizeof mine);
	hear(s->sock, &to, sizeof to);
	group = group_of(mine.qpn, to.qpn);
	CHECK(ibv_attach_mcast(g->qp, &group, 0) == 0);
	av.grh.dgid = to.gid;
	g->to[0] = to.qpn;
	CHECK((g->ah[0] = ibv_create_ah(s->pd, &av)));
	av.grh.dgid = group;
	g->to[1] = 0xffffff;
	CHECK((g->ah[1] = ibv_create_ah(s->pd, &av)));
	meet(s);
	return g;
}

static void gram_send(struct grams *g, int to, uint32_t i)
{
	unsigned char *b = g->out[i * 2 % GRAMS + (uint32_t)to];
	struct ibv_sge sge = { (uintptr_t)b, GRAM, g->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				  .wr.ud = { g->ah[to], g->to[to], QKEY } }, *bad;

	g->sent++;
	memset(b, (int)i, GRAM);
	memcpy(b, &i, sizeof i);
	b[4] = (unsigned char)to;
	CHECK(ibv_post_send(g->qp, &wr, &bad) == 0);
}

/* gram_poll takes what is there: what comes is whole, and in order. */
static int gram_poll(struct grams *g)
{
	struct ibv_wc wc;
	uint32_t i;
	int n = ibv_poll_cq(g->cq, 1, &wc);

	CHECK(n >= 0);
	if (n == 0)
		return 0;
	CHECK(wc.status == IBV_WC_SUCCESS);
	if (wc.opcode != IBV_WC_RECV)
		g->done++;
	if (wc.opcode == IBV_WC_RECV) {
		unsigned char *b = g->in[wc.wr_id % GRAMS] + 40;

		memcpy(&i, b, sizeof i);
		CHECK(wc.byte_len == GRAM + 40 && b[4] < 2 && i > g->last[b[4]]);
		for (int k = 5; k < GRAM; k++)
			CHECK(b[k] == (unsigned char)i);
		g->last[b[4]] = i;
		g->came[b[4]]++;
		gram_receive(g, wc.wr_id + GRAMS);
	}
	return 1;
}

static struct grams *beside_grams;

static void send_some(struct side *s, int i)
{
	(void)s;
	while (gram_poll(beside_grams) || beside_grams->sent - beside_grams->done > GRAMS - 2)
		;
	gram_send(beside_grams, 0, (uint32_t)i + 1);
	gram_send(beside_grams, 1, (uint32_t)i + 1);
}

static void take_some(struct side *s, int i)
{
	(void)s;
	(void)i;
	while (gram_poll(beside_grams))
		;
}

void datagrams_out(struct side *s)
{
	beside_grams = grams_begin(s);
	stream_out(s, IBV_WR_SEND, 60, send_some);
}

void datagrams_in(struct side *s)
{
	struct grams *g = beside_grams = grams_begin(s);

	post_receives(s, SLOTS);
	stream_in(s, IBV_WR_SEND, 60, take_some);
	take_some(s, 0);
	CHECK(g->came[0] > 0 && g->came[1] > 0);
}
