/*
 * epoll measures SENDs of 8 bytes that go back and forth between two programs
 * which sleep in epoll_wait until their completion channel has an event.
 *
 * usage: epoll PORT ROUNDS [SERVER]. The two exchange numbers over TCP. The
 * client prints "us N", half a round trip, the median.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 8, DEPTH = 16 };

struct address {
	uint32_t qpn;
	union ibv_gid gid;
};

static struct ibv_context *device;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char memory[SIZE];
static int poller, gid_index;

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static int tcp(const char *port, const char *server)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_family = AF_INET, .ai_flags = server ? 0 : AI_PASSIVE }, *a;
	int fd, one = 1;

	need(getaddrinfo(server, port, &hints, &a) == 0, "getaddrinfo");
	fd = socket(a->ai_family, a->ai_socktype, 0);
	need(fd >= 0, "socket");
	if (server) {
		need(connect(fd, a->ai_addr, a->ai_addrlen) == 0, "connect");
		return fd;
	}
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	need(bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1) == 0, "listen");
	fd = accept(fd, NULL, NULL);
	need(fd >= 0, "accept");
	return fd;
}

static void open_device(struct address *me)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct epoll_event e = { .events = EPOLLIN };
	struct ibv_pd *pd;

	need(list && list[0], "no RDMA device");
	device = ibv_open_device(list[0]);
	need(device != NULL, "ibv_open_device");
	pd = ibv_alloc_pd(device);
	channel = ibv_create_comp_channel(device);
	need(pd && channel, "ibv_create_comp_channel");
	cq = ibv_create_cq(device, 2 * DEPTH, NULL, channel, 0);
	mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	need(cq && mr, "ibv_create_cq");
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	qp = ibv_create_qp(pd, &init);
	need(qp != NULL, "ibv_create_qp");
	need(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
	poller = epoll_create1(0);
	need(epoll_ctl(poller, EPOLL_CTL_ADD, channel->fd, &e) == 0, "epoll_ctl");
	me->qpn = qp->qp_num;
	for (gid_index = 0; gid_index < 16; gid_index++)
		if (!ibv_query_gid(device, 1, gid_index, &me->gid) && me->gid.raw[10] == 0xff && me->gid.raw[11] == 0xff)
			return;
	need(0, "no GID of an IPv4 address");
}

/* A queue pair takes receives from INIT on. */
static void initialize(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	need(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
}

static void connect_to(const struct address *peer)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qpn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64, .dgid = peer->gid, .sgid_index = gid_index } },
	};
	need(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	need(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void post_receive(void)
{
	struct ibv_sge sge = { (uintptr_t)memory, SIZE, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	need(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

static void send_one(void)
{
	struct ibv_sge sge = { (uintptr_t)memory, SIZE, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	need(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

/* poll takes completions, and returns how many receives there were. */
static int poll_queue(void)
{
	struct ibv_wc wc[4];
	int n, received = 0;

	while ((n = ibv_poll_cq(cq, 4, wc)) > 0)
		for (int i = 0; i < n; i++) {
			need(wc[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[i].status));
			received += wc[i].opcode == IBV_WC_RECV;
		}
	need(n == 0, "ibv_poll_cq");
	return received;
}

/* receive sleeps until a message has come. */
static void receive(void)
{
	struct epoll_event e;
	struct ibv_cq *of;
	void *context;

	while (!poll_queue()) {
		need(epoll_wait(poller, &e, 1, -1) == 1, "epoll_wait");
		if (ibv_get_cq_event(channel, &of, &context))
			continue;
		ibv_ack_cq_events(of, 1);
		need(!ibv_req_notify_cq(of, 0), "ibv_req_notify_cq");
	}
	post_receive();
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	const char *server = argc > 3 ? argv[3] : NULL;
	struct address me = { 0 }, peer;
	int rounds, fd;
	double *took;

	need(argc > 2, "usage: epoll PORT ROUNDS [SERVER]");
	rounds = atoi(argv[2]);
	took = calloc(rounds, sizeof *took);
	open_device(&me);
	fd = tcp(argv[1], server);
	need(write(fd, &me, sizeof me) == sizeof me && read(fd, &peer, sizeof peer) == sizeof peer, "exchange");
	initialize();
	for (int i = 0; i < DEPTH; i++)
		post_receive();
	connect_to(&peer);
	need(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
	need(write(fd, "", 1) == 1 && read(fd, memory, 1) == 1, "exchange"); /* both can receive */
	for (int i = 0; i < rounds; i++) {
		double begin = now_us();

		if (server)
			send_one();
		receive();
		if (!server)
			send_one();
		took[i] = (now_us() - begin) / 2;
	}
	qsort(took, rounds, sizeof *took, by_value);
	if (server)
		printf("us %.3f\n", took[rounds / 2]);
	need(write(fd, "", 1) == 1 && read(fd, memory, 1) == 1, "exchange"); /* all is acknowledged */
	return 0;
}
