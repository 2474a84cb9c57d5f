/*
 * A target for "rocev2 conformance": it makes queue pairs on a device of
 * libibverbs, posts what it is asked to, and shows memory.
 *
 *     cc -O2 -o target target.c -libverbs
 *     ./target -d rxe0 -g 1 [-p 18520] [-b ADDRESS] [-i 1]
 *
 * -d names the device, -i its port, -g the index of the GID whose address is
 * tested (show_gids, or "ibv_devinfo -v"), -p the TCP port, and -b the address
 * to listen on (default: all). It serves one client at a time, for ever. The
 * protocol is described in docs/conformance.md. For tests only: a client may
 * have it send to any address.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { MEMORY = 1 << 16, RECV_BASE = 1 << 15, FIRST_RECV = 100, QUEUE = 64, SHOWN = 4096, LINE = 1 << 14, MAX_WAIT = 60000 };

static struct ibv_context *dev;
static int port_num = 1, gid_index, can_flush, can_atomic_write;

/*
 * Annex A19 in Linux's interface (ib_user_verbs.h), which headers of libibverbs
 * have since version 45.
 */
enum { ACCESS_FLUSH_GLOBAL = 1 << 8 };
#define CAP_FLUSH_GLOBAL (1ULL << 38)
#define CAP_ATOMIC_WRITE (1ULL << 40)
static char line[LINE], answer[2 * SHOWN + 100];

/* What one client has. */
static struct ibv_pd *pd, *other;
static struct ibv_mr *full, *readonly, *foreign;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static unsigned char *memory, *memory2;

static void destroy(void)
{
	if (qp) ibv_destroy_qp(qp);
	if (cq) ibv_destroy_cq(cq);
	if (full) ibv_dereg_mr(full);
	if (readonly) ibv_dereg_mr(readonly);
	if (foreign) ibv_dereg_mr(foreign);
	if (pd) ibv_dealloc_pd(pd);
	if (other) ibv_dealloc_pd(other);
	qp = NULL; cq = NULL; full = readonly = foreign = NULL; pd = other = NULL;
}

/* The text of the parameter "name=" of the line, and its length; or NULL. */
static const char *text(const char *name, size_t *n)
{
	size_t k = strlen(name);
	for (const char *p = line; (p = strchr(p, ' ')); ) {
		p++;
		if (!strncmp(p, name, k) && p[k] == '=') {
			*n = strcspn(p + k + 1, " ");
			return p + k + 1;
		}
	}
	return NULL;
}

static uint64_t number(const char *name)
{
	size_t n;
	const char *t = text(name, &n);
	return t ? strtoull(t, NULL, 0) : 0;
}

static int has(const char *name, const char *value)
{
	size_t n;
	const char *t = text(name, &n);
	return t && n == strlen(value) && !strncmp(t, value, n);
}

static int say(int ok, const char *format, ...)
{
	va_list args;
	size_t n = snprintf(answer, sizeof answer, ok ? "ok " : "error ");
	va_start(args, format);
	vsnprintf(answer + n, sizeof answer - n, format, args);
	va_end(args);
	return 0;
}

static int failed(const char *what, int err)
{
	return say(0, "%s: %s", what, strerror(err));
}

static int hello(void)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct utsname host;
	union ibv_gid gid;
	char kind[40], addr[INET6_ADDRSTRLEN];
	static const unsigned char mapped[12] = { [10] = 0xff, 0xff };

	if (ibv_query_device(dev, &attr) || ibv_query_port(dev, port_num, &port) || ibv_query_gid(dev, port_num, gid_index, &gid) || uname(&host))
		return say(0, "the device, its port or its GID cannot be asked");
	if (!memcmp(gid.raw, mapped, sizeof mapped))
		inet_ntop(AF_INET, gid.raw + 12, addr, sizeof addr);
	else
		inet_ntop(AF_INET6, gid.raw, addr, sizeof addr);
	if (attr.vendor_id == 0xffffff && !attr.vendor_part_id)
		snprintf(kind, sizeof kind, "linux-rxe");
	else
		snprintf(kind, sizeof kind, "vendor-%#x-%u", attr.vendor_id, attr.vendor_part_id);
	return say(1, "protocol=1 kind=%s release=%s device=%s addr=%s mtu=%d caps=rc,uc,ud%s%s%s", kind,
		   attr.fw_ver[0] && strcmp(kind, "linux-rxe") ? attr.fw_ver : host.release, ibv_get_device_name(dev->device), addr,
		   128 << port.active_mtu, attr.atomic_cap != IBV_ATOMIC_NONE ? ",atomic" : "",
		   can_atomic_write ? ",atomic-write" : "", can_flush ? ",flush" : "");
}

static int post_recv(uint64_t id, uint64_t off, uint64_t n)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory + off, .length = n, .lkey = full->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = n ? 1 : 0 }, *bad;
	return ibv_post_recv(qp, &wr, &bad);
}

static int access_flags(void)
{
	size_t n;
	const char *t = text("access", &n);
	int flags = 0;
	for (size_t i = 0; t && i < n; i++)
		switch (t[i]) {
		case 'l': flags |= IBV_ACCESS_LOCAL_WRITE; break;
		case 'r': flags |= IBV_ACCESS_REMOTE_READ; break;
		case 'w': flags |= IBV_ACCESS_REMOTE_WRITE; break;
		case 'a': flags |= IBV_ACCESS_REMOTE_ATOMIC; break;
		case 'f': flags |= can_flush ? ACCESS_FLUSH_GLOBAL : 0; break;
		}
	return flags;
}

static int peer_gid(union ibv_gid *gid)
{
	size_t n;
	const char *t = text("addr", &n);
	char addr[INET6_ADDRSTRLEN] = "";
	struct in_addr v4;
	if (!t || n >= sizeof addr)
		return -1;
	memcpy(addr, t, n);
	if (inet_pton(AF_INET, addr, &v4) == 1) {
		memset(gid, 0, sizeof *gid);
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &v4, 4);
		return 0;
	}
	return inet_pton(AF_INET6, addr, gid->raw) == 1 ? 0 : -1;
}

/* Takes the queue pair to RTS. */
static int connect_qp(enum ibv_qp_type type)
{
	int rc = type == IBV_QPT_RC, ud = type == IBV_QPT_UD, err, mtu = 1;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = port_num, .qp_access_flags = access_flags(), .qkey = number("qkey") };

	if ((err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS))))
		return failed("to INIT", err), -1;
	while (mtu < 5 && (128u << mtu) < number("mtu"))
		mtu++;
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = mtu;
	a.dest_qp_num = number("qpn");
	a.rq_psn = number("rqpsn");
	a.max_dest_rd_atomic = number("destrd");
	a.min_rnr_timer = number("rnr");
	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = port_num;
	a.ah_attr.grh.sgid_index = gid_index;
	a.ah_attr.grh.hop_limit = 64;
	if (peer_gid(&a.ah_attr.grh.dgid))
		return say(0, "addr is no address"), -1;
	if ((err = ibv_modify_qp(qp, &a, ud ? IBV_QP_STATE : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			(rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0))))
		return failed("to RTR", err), -1;
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = number("sqpsn");
	a.timeout = number("timeout");
	a.retry_cnt = number("retry");
	a.rnr_retry = number("rnrretry");
	a.max_rd_atomic = number("rd");
	if ((err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN |
			(rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0))))
		return failed("to RTS", err), -1;
	return 0;
}

static int make(void)
{
	enum ibv_qp_type type = has("type", "uc") ? IBV_QPT_UC : has("type", "ud") ? IBV_QPT_UD : IBV_QPT_RC;
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
		(can_flush ? ACCESS_FLUSH_GLOBAL : 0);
	uint64_t receives = number("receives"), size = number("size");

	destroy();
	if (receives > QUEUE || size > MEMORY || receives * size > MEMORY - RECV_BASE)
		return say(0, "the receives do not fit the memory");
	memset(memory, 0, MEMORY);
	memset(memory2, 0, MEMORY);
	if (!(pd = ibv_alloc_pd(dev)) || !(other = ibv_alloc_pd(dev)) ||
	    !(full = ibv_reg_mr(pd, memory, MEMORY, all)) || !(readonly = ibv_reg_mr(pd, memory, MEMORY, IBV_ACCESS_REMOTE_READ)) ||
	    !(foreign = ibv_reg_mr_iova(other, memory2, MEMORY, (uintptr_t)memory, all)))
		return say(0, "memory cannot be registered");
	cq = ibv_create_cq(dev, 4 * QUEUE, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = type, .sq_sig_all = 1,
		.cap = { .max_send_wr = QUEUE, .max_recv_wr = QUEUE, .max_send_sge = 1, .max_recv_sge = 1 } };
	if (!cq || !(qp = ibv_create_qp(pd, &init)))
		return say(0, "there is no queue pair");
	if (connect_qp(type))
		return destroy(), 0;
	for (uint64_t i = 0; i < receives; i++)
		if (post_recv(FIRST_RECV + i, RECV_BASE + i * size, size))
			return say(0, "a receive cannot be posted");
	return say(1, "qpn=%u va=%#lx len=%d rkey=%#x readonly=%#x foreign=%#x", qp->qp_num, (unsigned long)(uintptr_t)memory, MEMORY,
		   full->rkey, readonly->rkey, foreign->rkey);
}

static int post(void)
{
	static const struct { const char *name; enum ibv_wr_opcode op; } ops[] = {
		{ "send", IBV_WR_SEND }, { "send-imm", IBV_WR_SEND_WITH_IMM }, { "write", IBV_WR_RDMA_WRITE }, { "write-imm", IBV_WR_RDMA_WRITE_WITH_IMM },
		{ "read", IBV_WR_RDMA_READ }, { "fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD }, { "compare-swap", IBV_WR_ATOMIC_CMP_AND_SWP },
	};
	uint64_t off = number("off"), n = number("len");
	struct ibv_sge sge = { .addr = (uintptr_t)memory + off, .length = n, .lkey = full->lkey };
	struct ibv_send_wr wr = { .wr_id = number("id"), .sg_list = &sge, .num_sge = n ? 1 : 0, .send_flags = IBV_SEND_SIGNALED | (number("fence") ? IBV_SEND_FENCE : 0), .imm_data = htonl(number("imm")) }, *bad;
	size_t i = 0;
	int err;

	if (off > MEMORY || n > MEMORY - off)
		return say(0, "not inside the memory");
	while (i < sizeof ops / sizeof *ops && !has("op", ops[i].name))
		i++;
	if (i == sizeof ops / sizeof *ops)
		return say(0, "no such operation");
	wr.opcode = ops[i].op;
	if (i >= 5) {
		wr.wr.atomic.remote_addr = number("va");
		wr.wr.atomic.rkey = number("rkey");
		wr.wr.atomic.compare_add = number("add");
		wr.wr.atomic.swap = number("swap");
	} else {
		wr.wr.rdma.remote_addr = number("va");
		wr.wr.rdma.rkey = number("rkey");
	}
	if ((err = ibv_post_send(qp, &wr, &bad)))
		return failed("post", err);
	return say(1, "");
}

static int fill(void)
{
	size_t n, off = number("off");
	const char *t = text("hex", &n);
	unsigned byte;
	if (!t || off > MEMORY || n / 2 > MEMORY - off)
		return say(0, "not inside the memory");
	for (size_t i = 0; i < n / 2; i++) {
		if (sscanf(t + 2 * i, "%2x", &byte) != 1)
			return say(0, "no hexadecimal digits");
		memory[off + i] = byte;
	}
	return say(1, "");
}

static int show(void)
{
	size_t off = number("off"), n = number("len"), k;
	if (n > SHOWN || off > MEMORY || n > MEMORY - off)
		return say(0, "not inside the memory, or more than %d bytes", SHOWN);
	say(1, "hex=");
	k = strlen(answer);
	for (size_t i = 0; i < n; i++, k += 2)
		snprintf(answer + k, sizeof answer - k, "%02x", memory[off + i]);
	return 0;
}

static int completion(void)
{
	uint64_t ms = number("ms");
	if (ms > MAX_WAIT)
		return say(0, "ms is at most %d", MAX_WAIT);
	struct timespec start, now, pause = { .tv_nsec = 1000000 };
	struct ibv_wc wc;
	int n;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (!(n = ibv_poll_cq(cq, 1, &wc))) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((uint64_t)((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000) >= ms)
			return say(1, "none");
		nanosleep(&pause, NULL);
	}
	if (n < 0)
		return say(0, "the completion queue is broken");
	return say(1, "id=%lu status=%d len=%u imm=%#x", (unsigned long)wc.wr_id, wc.status, wc.byte_len, ntohl(wc.imm_data));
}

static int state(void)
{
	static const char *names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int err = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
	if (err)
		return failed("query", err);
	return say(1, "state=%s", (unsigned)attr.qp_state < 7 ? names[attr.qp_state] : "UNKNOWN");
}

static int command(void)
{
	size_t n = strcspn(line, " ");
	static const struct { const char *name; int needs_qp; int (*run)(void); } commands[] = {
		{ "hello", 0, hello }, { "qp", 0, make }, { "post", 1, post }, { "fill", 1, fill }, { "mem", 1, show }, { "wc", 1, completion }, { "state", 1, state },
	};
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (n == strlen(commands[i].name) && !strncmp(line, commands[i].name, n))
			return commands[i].needs_qp && !qp ? say(0, "there is no queue pair yet") : commands[i].run();
	if (n == 4 && !strncmp(line, "recv", n) && qp) {
		uint64_t off = number("off"), len = number("len");
		if (off > MEMORY || len > MEMORY - off)
			return say(0, "not inside the memory");
		return post_recv(number("id"), off, len) ? say(0, "it cannot be posted") : say(1, "");
	}
	return say(0, "no such command");
}

static void serve(int fd)
{
	FILE *in = fdopen(fd, "r+");
	if (!in) {
		close(fd);
		return;
	}
	while (fgets(line, sizeof line, in)) {
		line[strcspn(line, "\r\n")] = 0;
		command();
		if (dprintf(fd, "%s\n", answer) < 0)
			break;
	}
	fclose(in);
	destroy();
}

/* A GID of RoCE v1 has the same address, but its packets are not RoCEv2. */
static int is_roce_v1(void)
{
	char path[200], type[40] = "";
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/gid_attrs/types/%d", ibv_get_device_name(dev->device), port_num, gid_index);
	FILE *f = fopen(path, "r");
	if (!f)
		return 0;
	if (!fgets(type, sizeof type, f))
		type[0] = 0;
	fclose(f);
	return strstr(type, "v1") != NULL;
}

int main(int argc, char **argv)
{
	const char *name = NULL, *bind_to = "::", *tcp = "18520";
	int c, fd, one = 1, n;
	struct addrinfo *addr, hints = { .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
	struct ibv_device **list = ibv_get_device_list(&n);

	while ((c = getopt(argc, argv, "d:g:i:p:b:")) != -1)
		switch (c) {
		case 'd': name = optarg; break;
		case 'g': gid_index = atoi(optarg); break;
		case 'i': port_num = atoi(optarg); break;
		case 'p': tcp = optarg; break;
		case 'b': bind_to = optarg; break;
		default: return 2;
		}
	for (int i = 0; list && i < n && !dev; i++)
		if (!name || !strcmp(name, ibv_get_device_name(list[i])))
			dev = ibv_open_device(list[i]);
	if (!dev) {
		fprintf(stderr, "target: there is no device %s\n", name ? name : "");
		return 1;
	}
	if (is_roce_v1()) {
		fprintf(stderr, "target: -g %d is a GID of RoCE v1: take one of RoCE v2 (show_gids, or gid_attrs/types in /sys/class/infiniband)\n", gid_index);
		return 2;
	}
	struct ibv_device_attr_ex more;
	if (!ibv_query_device_ex(dev, NULL, &more)) {
		can_flush = !!(more.device_cap_flags_ex & CAP_FLUSH_GLOBAL);
		can_atomic_write = !!(more.device_cap_flags_ex & CAP_ATOMIC_WRITE);
	}
	signal(SIGPIPE, SIG_IGN);
	if (posix_memalign((void **)&memory, 4096, MEMORY) || posix_memalign((void **)&memory2, 4096, MEMORY))
		return 1;
	if (getaddrinfo(bind_to, tcp, &hints, &addr)) {
		fprintf(stderr, "target: -b %s -p %s: no address and port\n", bind_to, tcp);
		return 2;
	}
	fd = socket(addr->ai_family, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (fd < 0 || bind(fd, addr->ai_addr, addr->ai_addrlen) || listen(fd, 4)) {
		perror("target: listen");
		return 1;
	}
	printf("target on %s, control connections on port %s\n", ibv_get_device_name(dev->device), tcp);
	fflush(stdout);
	for (;;) {
		int client = accept(fd, NULL, NULL);
		if (client < 0)
			continue;
		struct timeval silent = { .tv_sec = 120 };
		setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &silent, sizeof silent);
		setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &silent, sizeof silent);
		serve(client);
	}
}
