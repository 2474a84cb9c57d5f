/* Cases of the connection manager: the name of one, and the device's address. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
	do {                                                                              \
		if (!(what)) {                                                            \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
			_exit(1);                                                         \
		}                                                                         \
	} while (0)

static struct sockaddr_in address;

static struct rdma_event_channel *channel(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();

	CHECK(ch);
	return ch;
}

static struct rdma_cm_id *new_id(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0);
	return id;
}

/* take waits for an event, and returns its ID. */
static struct rdma_cm_id *take(struct rdma_event_channel *ch, enum rdma_cm_event_type want)
{
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	CHECK(rdma_get_cm_event(ch, &e) == 0);
	if (e->event != want) {
		fprintf(stderr, "%s, status %d; want %s\n", rdma_event_str(e->event), e->status, rdma_event_str(want));
		_exit(1);
	}
	id = e->id;
	CHECK(rdma_ack_cm_event(e) == 0);
	return id;
}

static void new_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
				      .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };

	CHECK(rdma_create_qp(id, NULL, &a) == 0);
}

static enum ibv_wc_status poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(n == 1);
	return wc.status;
}

/*
 * A peer with few RNR retries outlasts a program that posts its receive 20 ms
 * late: from the connection manager the timer is 655 ms.
 */
static void case_rnr(void)
{
	static char out[64] = "late", in[64];
	struct rdma_event_channel *server = channel(), *client = channel();
	struct rdma_cm_id *listener = new_id(server), *id = new_id(client), *accepted;
	struct rdma_conn_param param = { .rnr_retry_count = 2, .retry_count = 7 };
	struct ibv_recv_wr recv = { .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
	struct timespec late = { .tv_nsec = 20000000 };
	struct ibv_sge from = { (uintptr_t)out, sizeof out, 0 }, to = { (uintptr_t)in, sizeof in, 0 };
	struct ibv_mr *mr[2];

	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0 && rdma_listen(listener, 1) == 0);
	address.sin_port = rdma_get_src_port(listener);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
	take(client, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	take(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
	new_qp(id);
	CHECK(rdma_connect(id, &param) == 0);
	accepted = take(server, RDMA_CM_EVENT_CONNECT_REQUEST);
	new_qp(accepted);
	CHECK(rdma_accept(accepted, &param) == 0);
	take(client, RDMA_CM_EVENT_ESTABLISHED);
	take(server, RDMA_CM_EVENT_ESTABLISHED);
	CHECK((mr[0] = ibv_reg_mr(id->pd, out, sizeof out, 0)));
	CHECK((mr[1] = ibv_reg_mr(accepted->pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE)));
	from.lkey = mr[0]->lkey;
	to.lkey = mr[1]->lkey;
	send.sg_list = &from;
	recv.sg_list = &to;
	CHECK(ibv_post_send(id->qp, &send, &bad_send) == 0);
	nanosleep(&late, NULL);
	CHECK(ibv_post_recv(accepted->qp, &recv, &bad_recv) == 0);
	CHECK(poll_one(id->send_cq) == IBV_WC_SUCCESS && poll_one(accepted->recv_cq) == IBV_WC_SUCCESS && strcmp(in, "late") == 0);
}

/* No device has IPv6. A listener for all of IPv6 is one all the same. */
static void case_wildcard(void)
{
	struct rdma_cm_id *id = new_id(channel());
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	int on = 1;

	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&any) == 0 && rdma_listen(id, 1) == 0 && rdma_get_src_port(id) != 0);
	CHECK(rdma_destroy_id(id) == 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = { { "rnr", case_rnr }, { "wildcard", case_wildcard } };

	alarm(60);
	address.sin_family = AF_INET;
	CHECK(argc == 3 && inet_pton(AF_INET, argv[2], &address.sin_addr) == 1);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	fprintf(stderr, "no such case\n");
	return 2;
}
