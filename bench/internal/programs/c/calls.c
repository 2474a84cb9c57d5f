/*
 * calls measures calls of libibverbs: how long it takes to open a device for
 * the first time in a process, and again; what a call of ibv_post_send costs
 * that posts one WRITE of 8 bytes; and one of ibv_poll_cq that finds nothing.
 * The queue pair is connected to itself.
 *
 * Another process opens a device, makes a queue pair, and sleeps: how much
 * larger it is then, and how many threads more it has.
 *
 * usage: calls. It prints "idle_mb N", "idle_threads N", "first_us N",
 * "open_us N", "post_ns N" and "poll_ns N"; the last three are medians.
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OPENS = 101, ROUNDS = 101, BATCH = 64, POLLS = 1000, SIZE = 4096 };

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, n, sizeof *v, by_value);
	return v[n / 2];
}

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static double status_of(const char *key)
{
	char line[256];
	double v = -1;
	FILE *f = fopen("/proc/self/status", "r");

	need(f != NULL, "/proc/self/status");
	while (v < 0 && fgets(line, sizeof line, f))
		if (strncmp(line, key, strlen(key)) == 0)
			v = atof(line + strlen(key));
	fclose(f);
	return v;
}

static void measure_idle(struct ibv_device *dev)
{
	double before = status_of("VmRSS:"), threads = status_of("Threads:");
	struct ibv_context *c = ibv_open_device(dev);

	need(c != NULL, "ibv_open_device");
	struct ibv_cq *cq = ibv_create_cq(c, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	need(cq && ibv_create_qp(ibv_alloc_pd(c), &init), "ibv_create_qp");
	sleep(2);
	printf("idle_mb %.2f\n", (status_of("VmRSS:") - before) * 1024 / 1e6);
	printf("idle_threads %.0f\n", status_of("Threads:") - threads);
	fflush(stdout);
}

static void measure_open(struct ibv_device *dev)
{
	double v[OPENS];

	for (int i = 0; i < OPENS; i++) {
		double begin = now_ns();
		struct ibv_context *c = ibv_open_device(dev);

		v[i] = now_ns() - begin;
		need(c != NULL, "ibv_open_device");
		ibv_close_device(c);
	}
	printf("first_us %.1f\n", v[0] / 1e3);
	printf("open_us %.1f\n", median(v, OPENS) / 1e3);
}

static int ip_gid(struct ibv_context *c, union ibv_gid *gid)
{
	for (int i = 0; i < 16; i++)
		if (!ibv_query_gid(c, 1, i, gid) && gid->raw[10] == 0xff && gid->raw[11] == 0xff)
			return i;
	need(0, "no GID of an IPv4 address");
	return -1;
}

static void connect_to_self(struct ibv_context *c, struct ibv_qp *qp)
{
	union ibv_gid gid;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	};

	need(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } },
	};
	a.ah_attr.grh.sgid_index = ip_gid(c, &gid);
	a.ah_attr.grh.dgid = gid;
	need(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	need(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void measure_post(struct ibv_context *c)
{
	static char memory[SIZE];
	double v[ROUNDS];
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 2 * BATCH, NULL, NULL, 0);

	need(pd && cq, "ibv_alloc_pd, ibv_create_cq");
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2 * BATCH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	need(mr && qp, "ibv_reg_mr, ibv_create_qp");
	connect_to_self(c, qp);
	for (int round = 0; round < ROUNDS; round++) {
		double begin = now_ns();

		for (int i = 0; i < BATCH; i++) {
			struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
			struct ibv_send_wr wr = {
				.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				.send_flags = i == BATCH - 1 ? IBV_SEND_SIGNALED : 0,
				.wr.rdma = { (uintptr_t)memory + 64, mr->rkey },
			}, *bad;

			need(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
		}
		v[round] = (now_ns() - begin) / BATCH;
		struct ibv_wc wc;
		int n;

		while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
			;
		need(n == 1 && wc.status == IBV_WC_SUCCESS, "completion");
	}
	printf("post_ns %.1f\n", median(v, ROUNDS));
	for (int round = 0; round < ROUNDS; round++) {
		double begin = now_ns();
		struct ibv_wc wc;

		for (int i = 0; i < POLLS; i++)
			need(ibv_poll_cq(cq, 1, &wc) == 0, "ibv_poll_cq");
		v[round] = (now_ns() - begin) / POLLS;
	}
	printf("poll_ns %.1f\n", median(v, ROUNDS));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	need(list && list[0], "no RDMA device");
	if (fork() == 0) {
		measure_idle(list[0]);
		_exit(0);
	}
	wait(NULL);
	measure_open(list[0]);
	struct ibv_context *c = ibv_open_device(list[0]);

	need(c != NULL, "ibv_open_device");
	measure_post(c);
	return 0;
}
