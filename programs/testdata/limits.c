/* Cases of what a device can do, and what it refuses. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
	do {                                                                              \
		if (!(what)) {                                                            \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
			_exit(1);                                                         \
		}                                                                         \
	} while (0)

static struct ibv_context *c;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static struct ibv_qp *new_qp(enum ibv_qp_type type, uint32_t wr, uint32_t sge)
{
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .qp_type = type, .sq_sig_all = 1,
				      .cap = { .max_send_wr = wr, .max_recv_wr = wr, .max_send_sge = sge, .max_recv_sge = sge } };

	return ibv_create_qp(pd, &a);
}

/* What the device says can be had: all at once, and the longest queues. */
static void case_maxima(void)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_device_attr most;
	struct ibv_qp *longest;
	static char buf[64];

	CHECK(ibv_query_device(c, &most) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && (cq = ibv_create_cq(c, most.max_cqe, NULL, NULL, 0)));
	CHECK((longest = new_qp(IBV_QPT_RC, (uint32_t)most.max_qp_wr, (uint32_t)most.max_sge)));
	CHECK(!new_qp(IBV_QPT_RC, 1 << 17, 1) && errno == EINVAL);
	CHECK(ibv_destroy_qp(longest) == 0 && ibv_destroy_cq(cq) == 0 && (cq = ibv_create_cq(c, 1, NULL, NULL, 0)));
	for (int i = 1; i < most.max_cq; i++)
		CHECK(ibv_create_cq(c, 1, NULL, NULL, 0));
	for (int i = 0; i < most.max_qp; i++)
		CHECK(new_qp(IBV_QPT_RC, 1, 1));
	for (int i = 0; i < most.max_srq; i++)
		CHECK(ibv_create_srq(pd, &srq));
	for (int i = 0; i < 100; i++)
		CHECK(ibv_reg_mr(pd, buf, sizeof buf, 0));
	CHECK(!new_qp(IBV_QPT_RC, 1, 1) && errno == ENOMEM);
}

/*
 * A datagram for a queue pair whose number has more than 24 bits fails, alone
 * or after others.
 */
static void case_qpn(void)
{
	static const uint32_t numbers[] = { 0x1000000, 0xdeadbeef, 0xffffffff };
	struct ibv_ah_attr av = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .wr.ud.remote_qkey = 7 }, *bad;
	struct ibv_wc wc;
	int n;

	CHECK(ibv_query_gid(c, 1, 0, &av.grh.dgid) == 0 && (wr.wr.ud.ah = ibv_create_ah(pd, &av)));
	for (int i = 0; i < 150; i++) {
		struct ibv_qp *q = new_qp(IBV_QPT_UD, 8, 1);
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7 };

		CHECK(q && ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
		a.qp_state = IBV_QPS_RTR;
		CHECK(ibv_modify_qp(q, &a, IBV_QP_STATE) == 0);
		a.qp_state = IBV_QPS_RTS;
		CHECK(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
		for (int k = 0; k <= i % 3; k++) {
			wr.wr_id = (uint64_t)k;
			wr.wr.ud.remote_qpn = k == i % 3 ? numbers[i / 3 % 3] : q->qp_num;
			CHECK(ibv_post_send(q, &wr, &bad) == 0);
		}
		for (int k = 0; k <= i % 3; k++) {
			while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
				;
			CHECK(n == 1 && wc.wr_id == (uint64_t)k);
			CHECK(wc.status == (k == i % 3 ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_SUCCESS));
		}
		CHECK(ibv_destroy_qp(q) == 0);
	}
}

static void *resizes(void *arg)
{
	static const int sizes[] = { 20, 2000, 300, 1000 };

	for (size_t i = 0; i < 2000; i++)
		CHECK(ibv_resize_cq(arg, sizes[i % 4]) == 0);
	return NULL;
}

/*
 * Threads may resize a queue at once, each of a size of its own. What is mapped
 * beside it stays.
 */
static void case_resizers(void)
{
	pthread_t t[2];

	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, resizes, cq) == 0);
	for (int i = 0; i < 3000; i++) {
		size_t n = (size_t)(1 + i % 20) * 4096;
		char *beside = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		CHECK(beside != MAP_FAILED);
		memset(beside, 1, n);
		sched_yield();
		for (size_t k = 0; k < n; k += 4096)
			CHECK(beside[k] == 1);
		CHECK(munmap(beside, n) == 0);
	}
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = { { "maxima", case_maxima }, { "qpn", case_qpn }, { "resizers", case_resizers } };
	struct ibv_device **list = ibv_get_device_list(NULL);

	alarm(60);
	CHECK(list && list[0] && (c = ibv_open_device(list[0])));
	CHECK((pd = ibv_alloc_pd(c)) && (cq = ibv_create_cq(c, 16, NULL, NULL, 0)));
	for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
		if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	fprintf(stderr, "no such case\n");
	return 2;
}
