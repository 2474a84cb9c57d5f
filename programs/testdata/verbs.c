/*
 * Cases with libibverbs that TestVerbs runs with the library preloaded, each by
 * its name.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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
				      .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };

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

static void wait_for(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void pass(int s, int fd, void *what, size_t n)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} ctl = { .align = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec iov = { what, n };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl };

	memcpy(CMSG_DATA(&ctl.align), &fd, sizeof fd);
	CHECK(sendmsg(s, &m, 0) == (ssize_t)n);
}

static int take(int s, void *what, size_t n)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} ctl;
	struct iovec iov = { what, n };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl };
	int fd = -1;

	CHECK(recvmsg(s, &m, 0) == (ssize_t)n && CMSG_FIRSTHDR(&m));
	memcpy(&fd, CMSG_DATA(&ctl.align), sizeof fd);
	return fd;
}

/* What the process says that shares its device. */
struct shared {
	uint32_t pd, mr, rkey;
	uint64_t addr;
};

/* A process that is no child uses the domain and the region of another one. */
static void import_in(int s)
{
	static char own[4096] = "from the other process";
	struct ibv_async_event event;
	struct ibv_context *c;
	struct ibv_mr *mr, *mine;
	struct shared with;
	struct ibv_pd *pd;
	struct pair p;
	int fd = take(s, &with, sizeof with);

	c = ibv_import_device(fd);
	CHECK(c && c->cmd_fd == fd && c->async_fd >= 0);
	CHECK(!ibv_import_pd(c, with.pd + 1000) && errno == EINVAL);
	errno = 0; /* what fails later has another reason */
	pd = ibv_import_pd(c, with.pd);
	CHECK(pd && !ibv_import_mr(pd, with.mr + 1000));
	mr = ibv_import_mr(pd, with.mr);
	CHECK(mr && mr->rkey == with.rkey && mr->length == 4096);
	mine = ibv_reg_mr(pd, own, sizeof own, ALL);
	CHECK(mine);
	p = make_pair(pd);
	CHECK(transfer(&p, IBV_WR_RDMA_WRITE, mine, own, 100, with.addr, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(transfer(&p, IBV_WR_RDMA_READ, mine, own + 1000, 100, with.addr + 200, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(strcmp(own + 1000, "from the owner") == 0);
	/* Its own events come here, and not to the owner. */
	CHECK(transfer(&p, IBV_WR_RDMA_WRITE, mine, own, 100, with.addr, mr->rkey + 1) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_get_async_event(c, &event) == 0 && event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == p.qp[1]);
	ibv_ack_async_event(&event);
	CHECK(ibv_destroy_qp(p.qp[0]) == 0 && ibv_destroy_qp(p.qp[1]) == 0 && ibv_destroy_cq(p.cq) == 0);
	ibv_unimport_mr(mr);
	CHECK(ibv_dereg_mr(mine) == 0);
	ibv_unimport_pd(pd);
	CHECK(ibv_close_device(c) == 0);
}

static void case_import(void)
{
	static char buf[4096];
	struct ibv_context *c;
	struct shared with;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	int s[2];
	pid_t pid;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		import_in(s[1]);
		_exit(0);
	}
	c = open_first();
	pd = ibv_alloc_pd(c);
	mr = ibv_reg_mr(pd, buf, sizeof buf, ALL);
	CHECK(pd && mr);
	strcpy(buf + 200, "from the owner");
	with = (struct shared){ pd->handle, mr->handle, mr->rkey, (uintptr_t)buf };
	pass(s[0], c->cmd_fd, &with, sizeof with);
	wait_for(pid);
	CHECK(strcmp(buf, "from the other process") == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(c) == 0);
}

/* The daemon may not copy the memory of the process: a thread of it does. */
static void case_copier(void)
{
	enum { SIZE = 1 << 20, PAGE = 4096 };
	static unsigned char from[SIZE], to[SIZE], after[2 * PAGE];
	struct ibv_context *c;
	struct ibv_mr *mr, *into, *part;
	unsigned char *gap;
	struct ibv_pd *pd;
	struct pair p;

	CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
	c = open_first();
	pd = ibv_alloc_pd(c);
	for (int i = 0; i < SIZE; i++)
		from[i] = (unsigned char)(i * 31 + i / 1000);
	mr = ibv_reg_mr(pd, from, SIZE, ALL);
	into = ibv_reg_mr(pd, to, SIZE, ALL);
	CHECK(mr && into);
	p = make_pair(pd);
	CHECK(transfer(&p, IBV_WR_RDMA_WRITE, mr, from + 1, SIZE - 1, (uintptr_t)to, into->rkey) == IBV_WC_SUCCESS);
	CHECK(memcmp(from + 1, to, SIZE - 1) == 0 && to[SIZE - 1] == 0);
	CHECK(transfer(&p, IBV_WR_RDMA_READ, into, to + 777, 300000, (uintptr_t)from, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(memcmp(from, to + 777, 300000) == 0 && to[776] == from[777] && to[300777] == from[300778]);
	/* What is not there, or has no such rights, is no region. */
	gap = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(munmap(gap + 8 * PAGE, PAGE) == 0 && mprotect(gap + 4 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(!ibv_reg_mr(pd, gap, 16 * PAGE, ALL) && errno == EFAULT);
	CHECK(!ibv_reg_mr(pd, gap, 8 * PAGE, ALL) && errno == EFAULT);
	part = ibv_reg_mr(pd, gap, 8 * PAGE, IBV_ACCESS_REMOTE_READ);
	CHECK(part && ibv_dereg_mr(part) == 0);
	/* What goes later is a fault, and no crash. */
	part = ibv_reg_mr(pd, gap, 4 * PAGE, ALL);
	CHECK(part && munmap(gap + PAGE, PAGE) == 0);
	CHECK(transfer(&p, IBV_WR_RDMA_WRITE, mr, from, 3 * PAGE, (uintptr_t)gap, part->rkey) == IBV_WC_REM_OP_ERR);
	/* A child copies for itself. */
	if (fork() == 0) {
		into = ibv_reg_mr(pd, after, sizeof after, ALL);
		CHECK(into);
		p = make_pair(pd);
		CHECK(transfer(&p, IBV_WR_RDMA_WRITE, mr, from, 5000, (uintptr_t)after, into->rkey) == IBV_WC_SUCCESS);
		CHECK(memcmp(from, after, 5000) == 0);
		_exit(0);
	}
	CHECK(wait(&(int){ 0 }) > 0 && after[1] == 0);
}

/* stopped is the process that is stopped while others write to its memory. */
static void stopped(int s)
{
	static char buf[4096];
	struct ibv_context *c = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof buf, ALL);
	struct pair p = make_pair(pd), own = make_pair(pd);
	struct shared with = { p.qp[1]->qp_num, 0, mr->rkey, (uintptr_t)buf };
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	uint32_t qpn;

	CHECK(ibv_modify_qp(p.qp[1], &reset, IBV_QP_STATE) == 0);
	CHECK(write(s, &with, sizeof with) == sizeof with && read(s, &qpn, sizeof qpn) == sizeof qpn);
	connect_to(p.qp[1], qpn);
	CHECK(write(s, "c", 1) == 1);
	raise(SIGSTOP);
	/* It goes on as if nothing had been. */
	strcpy(buf, "again");
	CHECK(transfer(&own, IBV_WR_RDMA_WRITE, mr, buf, 10, (uintptr_t)buf + 100, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(strcmp(buf + 100, "again") == 0);
}

static void case_stopped(void)
{
	static char buf[4096];
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct pair p, own;
	struct ibv_context *c;
	struct shared with;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	int s[2], status;
	char byte;
	pid_t pid;

	CHECK(prctl(PR_SET_DUMPABLE, 0) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		stopped(s[1]);
		_exit(0);
	}
	c = open_first();
	pd = ibv_alloc_pd(c);
	mr = ibv_reg_mr(pd, buf, sizeof buf, ALL);
	p = make_pair(pd);
	own = make_pair(pd);
	CHECK(ibv_modify_qp(p.qp[0], &reset, IBV_QP_STATE) == 0);
	CHECK(read(s[0], &with, sizeof with) == sizeof with && write(s[0], &p.qp[0]->qp_num, 4) == 4);
	CHECK(read(s[0], &byte, 1) == 1);
	connect_to(p.qp[0], with.pd);
	CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	CHECK(transfer(&p, IBV_WR_RDMA_WRITE, mr, buf, 10, with.addr + 2000, with.rkey) == IBV_WC_REM_OP_ERR);
	strcpy(buf, "others");
	CHECK(transfer(&own, IBV_WR_RDMA_WRITE, mr, buf, 10, (uintptr_t)buf + 100, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(strcmp(buf + 100, "others") == 0);
	CHECK(kill(pid, SIGCONT) == 0);
	wait_for(pid);
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
	struct timespec moment = { 0, 20000000 }; /* the counters' lifespan */
	long sent = number("hw_counters/rdma_sends"), packets = number("hw_counters/sent_pkts");
	struct ibv_context *c = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof buf, ALL);
	struct pair p = make_pair(pd);

	CHECK(number("state") == 4 && number("phys_state") == 5);
	for (int i = 0; i < 3; i++)
		CHECK(transfer(&p, IBV_WR_RDMA_WRITE, mr, buf, 10, (uintptr_t)buf + 100, mr->rkey) == IBV_WC_SUCCESS);
	nanosleep(&moment, NULL);
	CHECK(number("hw_counters/rdma_sends") == sent + 3 && number("hw_counters/sent_pkts") >= packets);
}

/* The beginning of the memory that a file shares with the daemon. */
struct doorbells {
	uint32_t magic, version;
	volatile uint32_t sleeping, polling, waiting, completions, cpu, bulk;
};

/*
 * look has a daemon that sleeps be awake for a poll, which finds nothing, and
 * keeps errno. It returns whether the poll waited.
 */
static bool look(struct doorbells *s, struct ibv_cq *cq)
{
	struct ibv_wc wc;
	bool waited;

	s->sleeping = 0;
	errno = 0;
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0 && errno == 0);
	waited = s->waiting != 0;
	s->waiting = 0;
	s->sleeping = 1;
	return waited;
}

/* pretend is look with the daemon on this processor. */
static bool pretend(struct doorbells *s, struct ibv_cq *cq)
{
	s->cpu = (uint32_t)sched_getcpu();
	return look(s, cq);
}

/* waits_for_both reports whether polls of two queues, the first twice, wait at last. */
static bool waits_for_both(struct doorbells *s, struct ibv_cq *a, struct ibv_cq *b)
{
	for (int i = 0; i < 10000; i++) { /* the daemon may wake up, and end some */
		s->bulk = 1;
		if (look(s, a) || look(s, a) || look(s, b))
			return true;
	}
	return false;
}

/* leftover: a queue that is polled at times for one completion has others. */
static void leftover(struct ibv_context *c, struct doorbells *s, struct ibv_cq *empty)
{
	static char buf[4096];
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof buf, ALL);
	struct pair p = make_pair(pd);
	struct ibv_sge sge = { (uintptr_t)buf, 10, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { (uintptr_t)buf + 100, mr->rkey } }, *bad;
	struct ibv_wc wc;

	CHECK(transfer(&p, IBV_WR_RDMA_WRITE, mr, buf, 10, (uintptr_t)buf + 100, mr->rkey) == IBV_WC_SUCCESS);
	for (uint32_t i = 0, before = s->completions; i < 4; i++) {
		CHECK(ibv_post_send(p.qp[0], &wr, &bad) == 0);
		while (s->completions - before < 2 * (i + 1))
			sched_yield();
	}
	for (int i = 0; i < 4; i++) {
		for (int k = 0; k < 300; k++) {
			s->bulk = 1;
			CHECK(!look(s, empty));
		}
		CHECK(ibv_poll_cq(p.cq, 1, &wc) == 1);
	}
}

/*
 * A poll waits for a daemon on its processor; of two files in turn, for none;
 * and for bulk data, wherever the daemon is, until it has waited in vain. Where
 * queues are polled in turn, none has something meanwhile.
 */
static void case_waits(void)
{
	struct ibv_context *c[2] = { open_first(), open_first() };
	struct ibv_cq *cq[2], *other;
	struct doorbells *s[2];
	cpu_set_t one;
	bool waited = false;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
	for (int i = 0; i < 2; i++) {
		cq[i] = ibv_create_cq(c[i], 16, NULL, NULL, 0);
		s[i] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, c[i]->cmd_fd, 0);
		CHECK(cq[i] && s[i] != MAP_FAILED && s[i]->magic == 0x524f4345);
	}
	other = ibv_create_cq(c[0], 16, NULL, NULL, 0);
	CHECK(other);
	for (int i = 0; i < 100; i++)
		CHECK(!pretend(s[i % 2], cq[i % 2]));
	for (int i = 0; i < 10000 && !waited; i++) /* the daemon may wake up, and end some */
		waited = pretend(s[0], cq[0]);
	CHECK(waited);
	s[0]->cpu = (uint32_t)-1;
	CHECK(!look(s[0], cq[0]) && !look(s[0], cq[0]));
	waited = false;
	for (int i = 0; i < 10000 && !waited; i++) {
		s[0]->bulk = 1; /* then it waits, wherever the daemon is */
		waited = look(s[0], cq[0]) && s[0]->bulk == 0;
	}
	CHECK(waited);
	for (int i = 0; i < 10; i++) {
		s[0]->completions += 2; /* behind the poll of the other: there may be one */
		s[0]->bulk = 1;
		CHECK(!look(s[0], other) && !look(s[0], cq[0]));
	}
	CHECK(waits_for_both(s[0], other, cq[0]));
	for (int i = 0; i < 10; i++) {
		s[0]->completions += 2; /* perhaps in the other, which had no poll since */
		for (int k = 0; k < 3; k++) {
			s[0]->bulk = 1;
			CHECK(!look(s[0], other));
		}
		CHECK(waits_for_both(s[0], other, cq[0]));
	}
	leftover(c[0], s[0], cq[0]);
	/* Of another file one was polled just now, and may have something. */
	CHECK(!pretend(s[1], cq[1]));
	for (int i = 0; i < 100; i++) {
		s[0]->bulk = 1;
		CHECK(!look(s[0], cq[0]));
	}
}

/* The daemon dies while the program moves bulk data, and waits in its polls. */
static void case_dead(void)
{
	struct ibv_context *c = open_first();
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, NULL, 0);
	struct doorbells *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, c->cmd_fd, 0);
	struct ibv_async_event event;
	struct ibv_wc wc;
	int n;

	CHECK(cq && s != MAP_FAILED && write(1, "ready\n", 6) == 6);
	CHECK(ibv_get_async_event(c, &event) == 0 && event.event_type == IBV_EVENT_DEVICE_FATAL);
	s->bulk = 1;
	s->sleeping = 0;
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(n < 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "import", case_import }, { "copier", case_copier }, { "stopped", case_stopped },
		{ "startpoll", case_startpoll }, { "counters", case_counters }, { "waits", case_waits },
		{ "dead", case_dead },
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
