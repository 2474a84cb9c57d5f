/* Does a command and what undoes it so many times: BenchmarkCommands. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
static char buf[1 << 20] __attribute__((aligned(4096)));

static void memory(size_t n)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, n, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);

	CHECK(mr && ibv_dereg_mr(mr) == 0);
}

static void small(void)
{
	memory(4096);
}

static void large(void)
{
	memory(sizeof buf);
}

static void queue_pair(void)
{
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
				      .cap = { .max_send_wr = 128, .max_recv_wr = 128, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *q = ibv_create_qp(pd, &a);

	CHECK(q && ibv_destroy_qp(q) == 0);
}

static void queue(void)
{
	struct ibv_cq *q = ibv_create_cq(c, 256, NULL, NULL, 0);

	CHECK(q && ibv_destroy_cq(q) == 0);
}

static void domain(void)
{
	struct ibv_pd *p = ibv_alloc_pd(c);

	CHECK(p && ibv_dealloc_pd(p) == 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = { { "domain", domain }, { "memory-4KiB", small }, { "memory-1MiB", large }, { "cq", queue }, { "qp", queue_pair } };
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(argc == 3 && list && list[0] && (c = ibv_open_device(list[0])));
	CHECK((pd = ibv_alloc_pd(c)) && (cq = ibv_create_cq(c, 16, NULL, NULL, 0)));
	memset(buf, 1, sizeof buf);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(argv[1], all[i].name) == 0)
			for (long n = atol(argv[2]); n > 0; n--)
				all[i].run();
	return 0;
}
