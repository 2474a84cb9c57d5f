/*
 * Threads with stacks of 16 KiB and coroutines use a device, while a timer
 * sends signals: TestOddThreads.
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <ucontext.h>

#include "check.h"

enum { SMALL = 16 << 10, THREADS = 8 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static volatile sig_atomic_t alarms;

static void work(int polls)
{
	char buffer[64];
	struct ibv_port_attr port;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	for (int i = 0; i < polls; i++) {
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
		if (i % 64)
			continue;
		mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr && ibv_query_port(context, 1, &port) == 0 && ibv_dereg_mr(mr) == 0);
	}
}

static void *in_thread(void *arg)
{
	work(2000);
	return arg;
}

static ucontext_t outside, coroutine;

static void in_coroutine(void)
{
	for (;;) {
		work(200);
		swapcontext(&coroutine, &outside);
	}
}

static void count(int sig)
{
	(void)sig;
	alarms++;
}

/*
 * A queue with an event that was not read is destroyed where the process may
 * open no file any more, for the limit or because it has another user.
 */
static void destroy_unread(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *of = ibv_create_cq(context, 16, NULL, channel, 0);
	struct ibv_qp_init_attr init = { .send_cq = of, .recv_cq = of, .qp_type = IBV_QPT_UD, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct rlimit none = { 0, 0 };

	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0 && ibv_req_notify_cq(of, 0) == 0);
	a.qp_state = IBV_QPS_ERR;
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE) == 0 && poll(&p, 1, -1) == 1 && ibv_destroy_qp(qp) == 0);
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	alarm(20);
	CHECK(ibv_destroy_cq(of) == 0 && ibv_destroy_comp_channel(channel) == 0);
}

int main(void)
{
	static char stack[SMALL];
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct sigaction a = { .sa_handler = count, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 300 }, { 0, 300 } };
	pthread_attr_t attr;
	pthread_t t[THREADS];

	CHECK(list && list[0] && (context = ibv_open_device(list[0])));
	CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
	CHECK(sigaction(SIGALRM, &a, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, SMALL) == 0);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_create(&t[i], &attr, in_thread, NULL) == 0);
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_join(t[i], NULL) == 0);
	}
	CHECK(getcontext(&coroutine) == 0);
	coroutine.uc_stack.ss_sp = stack;
	coroutine.uc_stack.ss_size = sizeof stack;
	makecontext(&coroutine, in_coroutine, 0);
	for (int i = 0; i < 50; i++) {
		CHECK(swapcontext(&outside, &coroutine) == 0);
		work(100);
	}
	CHECK(alarms > 0 && setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL) == 0 && signal(SIGALRM, SIG_DFL) == count);
	destroy_unread();
	return 0;
}
