/*
 * Bulk data between two processes, or more, while something else happens to
 * them: cases that TestBulk runs with the library preloaded, each by its name.
 * Each process has its own open file, on the first device or the last.
 */
#include "bulk.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- a side, and what it is connected with ---- */

static struct ibv_context *open_device_of(bool last)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c;

	CHECK(list && n > 0);
	c = ibv_open_device(list[last ? n - 1 : 0]);
	CHECK(c);
	ibv_free_device_list(list);
	return c;
}

void begin(struct side *s, int sock, bool last, unsigned how)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 64, .max_sge = 1 } };
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC,
				      .cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1 } };

	*s = (struct side){ .sock = sock, .how = how, .c = open_device_of(last) };
	s->pd = ibv_alloc_pd(s->c);
	CHECK(s->pd);
	if (how & EVENTS)
		CHECK((s->channel = ibv_create_comp_channel(s->c)));
	s->cq = ibv_create_cq(s->c, 256, NULL, s->channel, 0);
	CHECK(s->cq);
	if (how & USE_SRQ)
		CHECK((s->srq = ibv_create_srq(s->pd, &srq)));
	s->buf = mmap(NULL, SLOTS * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(s->buf != MAP_FAILED);
	memset(s->buf, 0, SLOTS * SIZE);
	s->mr = ibv_reg_mr(s->pd, s->buf, SLOTS * SIZE, ALL);
	CHECK(s->mr);
	a.send_cq = a.recv_cq = s->cq;
	a.srq = s->srq;
	s->qp = ibv_create_qp(s->pd, &a);
	CHECK(s->qp);
}

void say(int sock, const void *what, size_t n)
{
	CHECK(send(sock, what, n, MSG_NOSIGNAL) == (ssize_t)n);
}

void hear(int sock, void *what, size_t n)
{
	CHECK(recv(sock, what, n, MSG_WAITALL) == (ssize_t)n);
}

void meet(struct side *s)
{
	char c = 'm';

	say(s->sock, &c, 1);
	hear(s->sock, &c, 1);
	CHECK(c == 'm');
}

pid_t other;
uint8_t ack_timeout = 18; /* a second: the machine may be busy */

void to_rts(struct ibv_qp *q, const struct address *to)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL };

	CHECK(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = to->qpn,
				  .max_dest_rd_atomic = 4, .min_rnr_timer = 5,
				  .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = to->gid, .hop_limit = 64 } } };
	CHECK(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = ack_timeout, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4 };
	CHECK(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				   IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

void connect_side(struct side *s)
{
	struct address mine = { .qpn = s->qp->qp_num, .rkey = s->mr->rkey, .addr = (uintptr_t)s->buf };

	CHECK(ibv_query_gid(s->c, 1, 0, &mine.gid) == 0);
	say(s->sock, &mine, sizeof mine);
	hear(s->sock, &s->peer, sizeof s->peer);
	to_rts(s->qp, &s->peer);
	meet(s);
}

/* ---- data that says which message it is of ---- */

static uint64_t word_of(uint64_t seq, uint64_t i)
{
	return (seq + 1) * 0x9e3779b97f4a7c15u + i * 0x2545f4914f6cdd1du;
}

void fill(struct side *s, uint64_t seq)
{
	uint64_t *w = (uint64_t *)(s->buf + seq % SLOTS * SIZE);

	for (uint64_t i = 0; i < SIZE / 8; i++)
		w[i] = word_of(seq, i);
}

bool is_whole(struct side *s, uint64_t seq)
{
	uint64_t *w = (uint64_t *)(s->buf + seq % SLOTS * SIZE);

	for (uint64_t i = 0; i < SIZE / 8; i++)
		if (w[i] != word_of(seq, i)) {
			fprintf(stderr, "message %lu: byte %lu: %lx, want %lx\n", seq, i * 8, w[i], word_of(seq, i));
			return false;
		}
	return true;
}

/* ---- requests and completions ---- */

int try_post(struct side *s, enum ibv_wr_opcode op, uint64_t seq, unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)(s->buf + seq % SLOTS * SIZE), SIZE, s->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = seq, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED | flags,
				  .imm_data = (uint32_t)seq,
				  .wr.rdma = { s->peer.addr + seq % SLOTS * SIZE, s->peer.rkey } }, *bad;

	return ibv_post_send(s->qp, &wr, &bad);
}

void post(struct side *s, enum ibv_wr_opcode op, uint64_t seq)
{
	CHECK(try_post(s, op, seq, 0) == 0);
}

void post_receive(struct side *s, uint64_t seq)
{
	struct ibv_sge sge = { (uintptr_t)(s->buf + seq % SLOTS * SIZE), SIZE, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = seq, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK((s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad)) == 0);
}

static int wait_for_event(struct side *s)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(s->channel, &cq, &context) != 0)
		return -1;
	CHECK(cq == s->cq);
	ibv_ack_cq_events(cq, 1);
	return 0;
}

int next(struct side *s, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(s->cq, 1, wc);

	while (n == 0 && s->channel) {
		CHECK(ibv_req_notify_cq(s->cq, (s->how & SOLICITED) != 0) == 0);
		n = ibv_poll_cq(s->cq, 1, wc);
		if (n == 0 && wait_for_event(s) != 0)
			return -1;
		if (n == 0)
			n = ibv_poll_cq(s->cq, 1, wc);
	}
	while (n == 0)
		n = ibv_poll_cq(s->cq, 1, wc);
	return n;
}

void expect(struct side *s, enum ibv_wc_opcode op, uint64_t seq)
{
	struct ibv_wc wc;
	int status;

	CHECK(next(s, &wc) == 1);
	if (wc.status != IBV_WC_SUCCESS || wc.opcode != op || wc.wr_id != seq) {
		fprintf(stderr, "%s of operation %d, request %lu; want %d, %lu\n", ibv_wc_status_str(wc.status), wc.opcode, wc.wr_id, op, seq);
		if (other && waitpid(other, &status, WNOHANG) == other)
			fprintf(stderr, "the other process has ended: status %x\n", status);
		_exit(1);
	}
}

/* ---- streams ---- */

/* give_credit says that a slot may be written again. */
static void give_credit(struct side *s)
{
	char c = 'c';

	say(s->sock, &c, 1);
}

static void take_credit(struct side *s)
{
	char c;

	hear(s->sock, &c, 1);
	CHECK(c == 'c');
}

/* stream_out has as many messages on their way as there are slots. */
void stream_out(struct side *s, enum ibv_wr_opcode op, int count, void (*meanwhile)(struct side *, int))
{
	enum ibv_wc_opcode done = op == IBV_WR_SEND ? IBV_WC_SEND : op == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
	int posted = 0;

	for (int i = 0; i < count; i++) {
		for (; posted < count && posted < i + SLOTS; posted++) {
			if (op == IBV_WR_RDMA_READ) {
				memset(s->buf + posted % SLOTS * SIZE, 0, SIZE);
			} else {
				if (posted >= SLOTS && op != IBV_WR_SEND)
					take_credit(s);
				fill(s, (uint64_t)posted);
			}
			post(s, op, (uint64_t)posted);
		}
		if (meanwhile)
			meanwhile(s, i);
		expect(s, done, (uint64_t)i);
		if (op == IBV_WR_RDMA_READ) /* the peer's slots stay as they are */
			for (uint64_t k = 0; k < SIZE / 8; k++)
				CHECK(((uint64_t *)(s->buf + i % SLOTS * SIZE))[k] == word_of((uint64_t)i % SLOTS, k));
	}
	meet_behind(s, op != IBV_WR_RDMA_WRITE_WITH_IMM ? 0 : count < SLOTS ? count : SLOTS);
}

/* meet_behind takes what credits are left, and meets the peer. */
void meet_behind(struct side *s, int credits)
{
	while (credits-- > 0)
		take_credit(s);
	meet(s);
}

void post_receives(struct side *s, int count)
{
	for (int i = 0; i < count && i < SLOTS; i++)
		post_receive(s, (uint64_t)i);
}

/* stream_in takes them, and looks at each. */
void stream_in(struct side *s, enum ibv_wr_opcode op, int count, void (*meanwhile)(struct side *, int))
{
	for (int i = 0; i < count && op != IBV_WR_RDMA_READ; i++) {
		if (meanwhile)
			meanwhile(s, i);
		expect(s, op == IBV_WR_SEND ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM, (uint64_t)i);
		CHECK(is_whole(s, (uint64_t)i));
		if (i + SLOTS < count)
			post_receive(s, (uint64_t)(i + SLOTS));
		if (op != IBV_WR_SEND)
			give_credit(s);
	}
	meet(s);
}
