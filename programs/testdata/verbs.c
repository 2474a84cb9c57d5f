/*
 * Cases with libibverbs that TestVerbs runs with the library preloaded, each by
 * its name.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
	do {                                                                              \
		if (!(what)) {                                                            \
			fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #what, errno); \
			_exit(1);                                                         \
		}                                                                         \
	} while (0)

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = list && list[0] ? ibv_open_device(list[0]) : NULL;

	CHECK(c);
	ibv_free_device_list(list);
	return c;
}

/* Two queue pairs that are connected with each other. */
struct pair {
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
};

static void connect_to(struct ibv_qp *q, uint32_t to)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL };
	union ibv_gid gid;

	CHECK(ibv_query_gid(q->context, 1, 0, &gid) == 0);
	CHECK(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to,
				  .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
				  .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 64 } } };
	CHECK(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				   IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct pair make_pair_on(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct pair p = { .cq = cq };
	struct ibv_qp_init_attr a = { .send_cq = p.cq, .recv_cq = p.cq, .qp_type = IBV_QPT_RC,
				      .cap = { .max_send_wr = 64, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };

	CHECK(p.cq && (p.qp[0] = ibv_create_qp(pd, &a)) && (p.qp[1] = ibv_create_qp(pd, &a)));
	connect_to(p.qp[0], p.qp[1]->qp_num);
	connect_to(p.qp[1], p.qp[0]->qp_num);
	return p;
}

static struct pair make_pair(struct ibv_pd *pd)
{
	return make_pair_on(pd, ibv_create_cq(pd->context, 16, NULL, NULL, 0));
}

/* transfer does an operation on the first queue pair, and returns its status. */
static int transfer(struct pair *p, enum ibv_wr_opcode op, struct ibv_mr *mr, void *at, uint32_t n, uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)at, n, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { remote, rkey } }, *bad;
	struct ibv_wc wc = { 0 };
	int n_wc = 0;

	CHECK(ibv_post_send(p->qp[0], &wr, &bad) == 0);
	while ((n_wc = ibv_poll_cq(p->cq, 1, &wc)) == 0)
		;
	CHECK(n_wc == 1);
	return (int)wc.status;
}

/* An extended completion queue: the daemon ends while it is polled. */
static void case_startpoll(void)
{
	static char buf[4096];
	struct ibv_context *c = open_first();
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr poll = { 0 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(c, &attr);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof buf, ALL);
	struct ibv_sge sge = { (uintptr_t)buf, 10, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)buf + 100, mr->rkey } }, *bad;
	struct pair p;
	int result;

	CHECK(cq);
	p = make_pair_on(pd, ibv_cq_ex_to_cq(cq));
	CHECK(ibv_post_send(p.qp[0], &wr, &bad) == 0);
	while ((result = ibv_start_poll(cq, &poll)) == ENOENT)
		;
	CHECK(result == 0 && cq->wr_id == 5 && cq->status == IBV_WC_SUCCESS);
	ibv_end_poll(cq);
	CHECK(write(1, "ready\n", 6) == 6);
	while ((result = ibv_start_poll(cq, &poll)) == ENOENT)
		;
	CHECK(result == EIO);
}

/* number reads a file of the port. */
static long number(const char *name)
{
	char path[256], text[64] = "";
	struct ibv_device **list = ibv_get_device_list(NULL);
	FILE *f;

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/%s", list[0]->name, name);
	f = fopen(path, "r");
	CHECK(f && fgets(text, sizeof text, f));
	fclose(f);
	ibv_free_device_list(list);
	return atol(text);
}

static void case_counters(void)
{
	static char buf[4096];
	struct timespec moment = { 0, 20000000 };
	long packets = number("hw_counters/sent_pkts");
	struct ibv_context *c = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof buf, ALL);
	struct pair p = make_pair(pd);

	CHECK(number("state") == 4 && number("phys_state") == 5);
	for (int i = 0; i < 3; i++)
		CHECK(transfer(&p, IBV_WR_RDMA_WRITE, mr, buf, 10, (uintptr_t)buf + 100, mr->rkey) == IBV_WC_SUCCESS);
	/* The daemon writes them again each second while they are read. */
	while (number("hw_counters/sent_pkts") < packets + 3)
		nanosleep(&moment, NULL);
}

/* The program posts one by one, and then does nothing: all of it is sent. */
static void case_burst(void)
{
	enum { REQUESTS = 50, ROUNDS = 20 };
	static volatile uint64_t to[REQUESTS];
	static uint64_t from[ROUNDS];
	struct timespec moment = { 0, 100000 };
	struct ibv_context *c = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_mr *mr = ibv_reg_mr(pd, from, sizeof from, 0);
	struct ibv_mr *target = ibv_reg_mr(pd, (void *)to, sizeof to, ALL);
	struct pair p = make_pair(pd);
	struct ibv_wc wc;
	int n;

	for (uint64_t round = 1; round < ROUNDS; round++) {
		from[round] = round;
		for (int i = 0; i < REQUESTS; i++) {
			struct ibv_sge sge = { (uintptr_t)&from[round], 8, mr->lkey };
			struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
						  .send_flags = i < REQUESTS - 1 ? 0 : IBV_SEND_SIGNALED,
						  .wr.rdma = { (uintptr_t)&to[i], target->rkey } }, *bad;

			CHECK(ibv_post_send(p.qp[0], &wr, &bad) == 0);
		}
		for (int i = 0; i < REQUESTS; i++)
			while (to[i] != round)
				nanosleep(&moment, NULL);
		while ((n = ibv_poll_cq(p.cq, 1, &wc)) == 0)
			;
		CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
	}
}

/* The owner of the port dies while the program waits for an event, and polls. */
static void case_dead(void)
{
	struct ibv_context *c = open_first();
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, NULL, 0);
	struct ibv_async_event event;
	struct ibv_wc wc;
	int n;

	CHECK(cq && write(1, "ready\n", 6) == 6);
	CHECK(ibv_get_async_event(c, &event) == 0 && event.event_type == IBV_EVENT_DEVICE_FATAL);
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(n < 0);
}

static void *get_event(void *channel)
{
	struct ibv_cq *cq;
	void *user;

	CHECK(ibv_get_cq_event(channel, &cq, &user) == -1 && errno == EIO);
	return NULL;
}

/*
 * The owner of the port dies while threads wait for completions, none of which
 * is to come. An event that is not read does not hold up the end of its queue.
 */
static void case_waits(void)
{
	static char buf[64];
	struct ibv_context *c = open_first();
	struct ibv_comp_channel *waited = ibv_create_comp_channel(c), *other = ibv_create_comp_channel(c);
	struct ibv_cq *idle = ibv_create_cq(c, 16, NULL, waited, 0);
	struct ibv_cq *told[2] = { ibv_create_cq(c, 16, NULL, other, 0), ibv_create_cq(c, 16, NULL, other, 0) };
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof buf, ALL);
	struct pollfd end = { .fd = waited->fd, .events = POLLIN };
	struct ibv_async_event event;
	struct pair p[2];
	pthread_t t[2];

	CHECK(idle && mr && told[0] && told[1]);
	for (int i = 0; i < 2; i++) {
		p[i] = make_pair_on(pd, told[i]);
		CHECK(ibv_req_notify_cq(told[i], 0) == 0 && 
		      transfer(&p[i], IBV_WR_RDMA_WRITE, mr, buf, 8, (uintptr_t)buf + 32, mr->rkey) == IBV_WC_SUCCESS);
	}
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, get_event, waited) == 0);
	CHECK(write(1, "ready\n", 6) == 6);
	CHECK(poll(&end, 1, -1) == 1);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(ibv_get_async_event(c, &event) == 0 && event.event_type == IBV_EVENT_DEVICE_FATAL);
	CHECK(ibv_get_async_event(c, &event) == -1 && errno == EIO);
	for (int i = 0; i < 2; i++)
		CHECK(ibv_destroy_qp(p[i].qp[0]) == 0 && ibv_destroy_qp(p[i].qp[1]) == 0 && ibv_destroy_cq(told[i]) == 0);
	CHECK(!ibv_open_device(c->device));
	get_event(ibv_create_comp_channel(c));
}

/* ---- strict mode ---- */

static char strict_buf[4096];

/* strict_begin makes a pair and a region. */
static struct pair strict_begin(struct ibv_mr **mr, int cqe)
{
	struct ibv_context *c = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(c);

	CHECK(pd && (*mr = ibv_reg_mr(pd, strict_buf, sizeof strict_buf, ALL)));
	return make_pair_on(pd, ibv_create_cq(c, cqe, NULL, NULL, 0));
}

/* post_write posts a WRITE of 8 bytes, and returns what ibv_post_send does. */
static int post_write(struct pair *p, struct ibv_mr *mr, uint64_t id, int flags)
{
	struct ibv_sge sge = { (uintptr_t)strict_buf, 8, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = flags,
				  .wr.rdma = { (uintptr_t)strict_buf + 1024, mr->rkey } }, *bad;

	return ibv_post_send(p->qp[0], &wr, &bad);
}

static struct ibv_wc next_completion(struct pair *p)
{
	struct ibv_wc wc = { 0 };
	int n;

	while ((n = ibv_poll_cq(p->cq, 1, &wc)) == 0)
		;
	CHECK(n == 1);
	return wc;
}

/* As many requests as there are slots, none of which is signaled. */
static void case_unsignaled(void)
{
	struct ibv_mr *mr;
	struct pair p = strict_begin(&mr, 64);
	int room = 0, result;

	while ((result = post_write(&p, mr, room, 0)) == 0 && ++room < 1000)
		;
	CHECK(result == ENOMEM && room >= 64 && room < 256);
}

/* One request in 16 is signaled, and each completion is polled. */
static void case_signaled(void)
{
	struct ibv_mr *mr;
	struct pair p = strict_begin(&mr, 64);

	for (int i = 0; i < 4096; i++) {
		CHECK(post_write(&p, mr, i, i % 16 == 15 ? IBV_SEND_SIGNALED : 0) == 0);
		if (i % 16 == 15)
			CHECK(next_completion(&p).wr_id == (uint64_t)i);
	}
}

/* The same by an extended queue. */
static void case_signaledex(void)
{
	struct ibv_context *c = open_first();
	struct ibv_cq_init_attr_ex attr = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr poll = { 0 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(c, &attr);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_mr *mr = ibv_reg_mr(pd, strict_buf, sizeof strict_buf, ALL);
	struct pair p;
	int result;

	CHECK(cq && pd && mr);
	p = make_pair_on(pd, ibv_cq_ex_to_cq(cq));
	for (int i = 0; i < 1024; i++) {
		CHECK(post_write(&p, mr, i, i % 16 == 15 ? IBV_SEND_SIGNALED : 0) == 0);
		if (i % 16 != 15)
			continue;
		while ((result = ibv_start_poll(cq, &poll)) == ENOENT)
			;
		CHECK(result == 0 && cq->wr_id == (uint64_t)i);
		ibv_end_poll(cq);
	}
}

/* More completions than the queue has room for. */
static void case_overrun(void)
{
	struct ibv_mr *mr;
	struct pair p = strict_begin(&mr, 3);
	struct ibv_async_event event;

	for (int i = 0; i < 10; i++)
		CHECK(post_write(&p, mr, i, IBV_SEND_SIGNALED) == 0);
	CHECK(ibv_get_async_event(p.cq->context, &event) == 0 && event.event_type == IBV_EVENT_CQ_ERR);
}

/* The key of a region that was deregistered. */
static void case_stale(void)
{
	struct ibv_mr *mr, old;
	struct pair p = strict_begin(&mr, 64);
	struct ibv_wc wc;

	old = *mr;
	CHECK(ibv_dereg_mr(mr) == 0 && post_write(&p, &old, 0x51, IBV_SEND_SIGNALED) == 0);
	wc = next_completion(&p);
	CHECK(wc.status == IBV_WC_LOC_PROT_ERR && wc.wr_id == 0x51);
}

/* in_child runs f in a child, which must return. */
static void in_child(void f(struct pair *, struct ibv_mr *), struct pair *p, struct ibv_mr *mr)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		f(p, mr);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void child_frees(struct pair *p, struct ibv_mr *mr)
{
	(void)p;
	CHECK(ibv_dealloc_pd(mr->pd) != 0);
}

/* A child uses what its parent has opened. */
static void case_fork(void)
{
	struct ibv_mr *mr;
	struct pair p = strict_begin(&mr, 64);

	in_child(child_frees, &p, mr);
	CHECK(post_write(&p, mr, 1, IBV_SEND_SIGNALED) == 0 && next_completion(&p).status == IBV_WC_SUCCESS);
}

static void child_polls(struct pair *p, struct ibv_mr *mr)
{
	struct ibv_wc wc;

	(void)mr;
	CHECK(ibv_poll_cq(p->cq, 1, &wc) == -1);
}

static void child_posts(struct pair *p, struct ibv_mr *mr)
{
	struct ibv_recv_wr wr = { .wr_id = 7 }, *bad = NULL;

	CHECK(post_write(p, mr, 9, IBV_SEND_SIGNALED) == EIO);
	CHECK(ibv_post_recv(p->qp[1], &wr, &bad) == EIO && bad == &wr);
}

/* A child takes no completion of its parent's, and puts nothing into its queues. */
static void case_forkpoll(void)
{
	struct ibv_mr *mr;
	struct pair p = strict_begin(&mr, 64);
	struct timespec moment = { 0, 1000000 };

	CHECK(post_write(&p, mr, 1, IBV_SEND_SIGNALED) == 0);
	nanosleep(&moment, NULL);
	in_child(child_polls, &p, mr);
	CHECK(next_completion(&p).wr_id == 1);
}

static void case_forkpost(void)
{
	struct ibv_mr *mr;
	struct pair p = strict_begin(&mr, 64);

	in_child(child_posts, &p, mr);
	CHECK(post_write(&p, mr, 2, IBV_SEND_SIGNALED) == 0 && next_completion(&p).wr_id == 2);
}

/* The program opens the device three times, and does what is wrong 3, 2 and 1 times. */
static void case_again(void)
{
	for (int times = 3; times > 0; times--) {
		struct ibv_context *c = open_first();
		struct ibv_pd *pd = ibv_alloc_pd(c);
		struct ibv_mr *mr = ibv_reg_mr(pd, strict_buf, sizeof strict_buf, ALL);

		CHECK(pd && mr);
		for (int i = 0; i < times; i++) {
			struct pair p = make_pair(pd);

			CHECK(transfer(&p, IBV_WR_RDMA_WRITE, mr, strict_buf, 8, (uintptr_t)strict_buf, mr->rkey ^ 1) == IBV_WC_REM_ACCESS_ERR);
			CHECK(ibv_destroy_qp(p.qp[0]) == 0 && ibv_destroy_qp(p.qp[1]) == 0 && ibv_destroy_cq(p.cq) == 0);
		}
		CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(c) == 0);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "startpoll", case_startpoll }, { "counters", case_counters },
		{ "burst", case_burst }, { "dead", case_dead },
		{ "waits", case_waits },
		{ "unsignaled", case_unsignaled }, { "signaled", case_signaled },
		{ "signaledex", case_signaledex }, { "overrun", case_overrun },
		{ "stale", case_stale }, { "fork", case_fork },
		{ "forkpoll", case_forkpoll }, { "forkpost", case_forkpost },
		{ "again", case_again },
	};

	alarm(60);
	for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
		if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	fprintf(stderr, "no such case\n");
	return 2;
}
