/* The cases of bulk data. */
#include "bulk.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

typedef void role(struct side *s);
extern char **environ;

static void wait_for(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fprintf(stderr, "process %d: status %x\n", pid, status);
		_exit(1);
	}
}

static void play(role *r, int sock, bool last, unsigned how)
{
	struct side s;

	begin(&s, sock, last, how);
	if (!(how & UNCONNECTED))
		connect_side(&s);
	r(&s);
}

/* pair_of has two processes play, and waits for the second. */
static void pair_of(role *a, role *b, unsigned how_a, unsigned how_b)
{
	int s[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s) == 0);
	other = fork();
	if (other == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(s[0]);
		play(b, s[1], true, how_b);
		_exit(0);
	}
	close(s[1]);
	play(a, s[0], false, how_a);
	if (other)
		wait_for(other);
}

enum { SEND = IBV_WR_SEND, WRITE = IBV_WR_RDMA_WRITE_WITH_IMM, READ = IBV_WR_RDMA_READ };

static int op, count;

/* ---- eight pairs at once ---- */

/* lay_out has there be what the peer reads, or receives for what it sends. */
static void lay_out(struct side *s)
{
	if (op == READ)
		for (int i = 0; i < SLOTS; i++)
			fill(s, (uint64_t)i);
	else
		post_receives(s, count);
}

/* receives_in begins when the first messages are on their way. */
static void receives_in(struct side *s, void (*meanwhile)(struct side *, int))
{
	lay_out(s);
	stream_in(s, op, count, meanwhile);
}

static void meet_out(struct side *s)
{
	meet(s);
	stream_out(s, op, count, NULL);
}

static void meet_in(struct side *s)
{
	lay_out(s);
	meet(s);
	stream_in(s, op, count, NULL);
}

static void case_eight(void)
{
	static const int ops[] = { WRITE, SEND, READ, SEND };
	pid_t pid[8];

	count = 24;
	for (int i = 0; i < 8; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			op = ops[i % 4];
			pair_of(meet_out, meet_in, i & 4 ? EVENTS : 0, (i & 2 ? EVENTS : 0) | (i % 4 == 3 ? USE_SRQ : 0));
			_exit(0);
		}
	}
	for (int i = 0; i < 8; i++)
		wait_for(pid[i]);
}

/* ---- stopped for a while ---- */

static int stop_at;

static void stop_other(struct side *s, int i)
{
	int status;

	(void)s;
	if (i != stop_at)
		return;
	CHECK(kill(other, SIGSTOP) == 0 && waitpid(other, &status, WUNTRACED) == other && WIFSTOPPED(status));
	for (int k = 0; k < 2000; k++) /* what is on its way goes on */
		sched_yield();
	CHECK(kill(other, SIGCONT) == 0);
}

static void stopping_out(struct side *s)
{
	meet(s);
	stream_out(s, op, count, stop_other);
}

static void stopping_in(struct side *s)
{
	meet(s);
	receives_in(s, stop_other);
}

static void case_stopped(void)
{
	static const int ops[] = { WRITE, SEND, READ };

	count = 30;
	stop_at = 12;
	for (int i = 0; i < 6; i++) {
		op = ops[i % 3];
		if (i < 3)
			pair_of(stopping_out, meet_in, i == 1 ? EVENTS : 0, 0);
		else if (op != READ)
			pair_of(stopping_in, meet_out, i == 4 ? EVENTS : 0, 0);
	}
}

/* ---- killed ---- */

/*
 * Everything that was posted completes: some of it well, then one with an
 * error, and the rest is flushed.
 */
static void killer(struct side *s)
{
	struct ibv_wc wc;
	int failed = 0, status;
	uint64_t posted = 0, done = 0;

	meet(s);
	while (!failed || done < posted) {
		for (; !failed && posted < done + SLOTS; posted++)
			post(s, op == WRITE ? IBV_WR_RDMA_WRITE : op, posted);
		if (done == 20)
			CHECK(kill(other, SIGKILL) == 0 && waitpid(other, &status, 0) == other);
		CHECK(next(s, &wc) == 1 && wc.wr_id == done);
		done++;
		if (wc.status == IBV_WC_SUCCESS) {
			CHECK(!failed);
			continue;
		}
		CHECK(done > 20 && (failed ? wc.status == IBV_WC_WR_FLUSH_ERR
					   : wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_REM_OP_ERR));
		failed = 1;
	}
	other = 0;
	CHECK(ibv_destroy_qp(s->qp) == 0 && ibv_dereg_mr(s->mr) == 0 && ibv_destroy_cq(s->cq) == 0 && ibv_dealloc_pd(s->pd) == 0);
	CHECK((!s->channel || ibv_destroy_comp_channel(s->channel) == 0) && ibv_close_device(s->c) == 0);
}

static void victim(struct side *s)
{
	struct ibv_wc wc;

	for (int i = 0; i < SLOTS; i++)
		post_receive(s, (uint64_t)i);
	meet(s);
	for (;;) {
		CHECK(next(s, &wc) == 1);
		post_receive(s, wc.wr_id);
	}
}

static void case_killed(void)
{
	static const int ops[] = { WRITE, SEND, READ };

	ack_timeout = 15;
	for (int i = 0; i < 3; i++) {
		op = ops[i];
		pair_of(killer, victim, i == 1 ? EVENTS : 0, 0);
	}
}

/* Who receives a stream is not hurt by the death of who sends it. */
static void heir(struct side *s)
{
	struct ibv_wc wc;
	int status;

	post_receives(s, SLOTS);
	meet(s);
	for (int i = 0; i < 20; i++) {
		CHECK(next(s, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
		CHECK(is_whole(s, (uint64_t)i));
		post_receive(s, (uint64_t)(i + SLOTS));
	}
	CHECK(kill(other, SIGKILL) == 0 && waitpid(other, &status, 0) == other);
	other = 0;
	CHECK(ibv_destroy_qp(s->qp) == 0 && ibv_dereg_mr(s->mr) == 0);
}

static void testator(struct side *s)
{
	meet(s);
	for (int i = 0; i < SLOTS; i++) {
		fill(s, (uint64_t)i);
		post(s, IBV_WR_SEND, (uint64_t)i);
	}
	for (uint64_t i = 0;; i++) {
		expect(s, IBV_WC_SEND, i);
		fill(s, i + SLOTS);
		post(s, IBV_WR_SEND, i + SLOTS);
	}
}

static void case_heir(void)
{
	for (int i = 0; i < 3; i++)
		pair_of(heir, testator, i == 1 ? EVENTS : 0, 0);
}

/* ---- the daemon dies ---- */

static void *fatal(void *arg)
{
	struct side *s = arg;
	struct ibv_async_event e;

	do
		CHECK(ibv_get_async_event(s->c, &e) == 0);
	while (e.event_type != IBV_EVENT_DEVICE_FATAL);
	return NULL;
}

static void until_gone(struct side *s, bool sends)
{
	pthread_t t;
	struct ibv_wc wc = { 0 };
	uint64_t posted = 0, done = 0;

	CHECK(pthread_create(&t, NULL, fatal, s) == 0);
	for (int i = 0; i < SLOTS; i++)
		post_receive(s, (uint64_t)i);
	meet(s);
	for (;;) {
		for (; sends && posted < done + SLOTS; posted++)
			post(s, op, posted);
		if (done == 20 && sends)
			CHECK(write(1, "ready\n", 6) == 6);
		if (next(s, &wc) < 0)
			break;
		CHECK(wc.status == IBV_WC_SUCCESS);
		done++;
		if (!sends)
			post_receive(s, wc.wr_id);
	}
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(ibv_dereg_mr(s->mr) != 0);
}

static void gone_out(struct side *s)
{
	until_gone(s, true);
}

static void gone_in(struct side *s)
{
	until_gone(s, false);
}

static void case_gone(void)
{
	op = SEND;
	pair_of(gone_out, gone_in, 0, EVENTS);
}

static void case_gone_waiting(void)
{
	op = WRITE;
	pair_of(gone_out, gone_in, EVENTS, 0);
}

/* ---- queues change their size ---- */

static atomic_bool end;

/* Two threads resize a queue, others poll. */
static void *resizes(void *arg)
{
	struct side *s = arg;

	for (unsigned i = 1; !atomic_load(&end); i++) {
		CHECK(ibv_resize_cq(s->cq, i % 3 == 0 ? 2000 : i % 3 == 1 ? 64 : 500) == 0);
		sched_yield();
	}
	return NULL;
}

static void resize_beside(struct side *s, bool sends)
{
	pthread_t t[2];

	meet(s);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, resizes, s) == 0);
	if (sends)
		stream_out(s, op, count, NULL);
	else
		receives_in(s, NULL);
	atomic_store(&end, true);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

static void resize_out(struct side *s)
{
	resize_beside(s, true);
}

static void resize_in(struct side *s)
{
	resize_beside(s, false);
}

static void case_resize(void)
{
	static const int ops[] = { WRITE, SEND };

	count = 30;
	for (int i = 0; i < 2; i++) {
		op = ops[i];
		atomic_store(&end, false);
		pair_of(resize_out, resize_in, i ? EVENTS : 0, i ? 0 : EVENTS);
	}
}

/* ---- children ---- */

/* A child has the memory as it is. Its parent does not see what it writes. */
static void children(struct side *s, int i, bool filled)
{
	pid_t pid;
	char *argv[] = { "true", NULL };

	if (i % 5 == 4) {
		CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0);
		wait_for(pid);
		return;
	}
	if (i % 5 != 0)
		return;
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		if (filled)
			CHECK(is_whole(s, (uint64_t)i));
		memset(s->buf, 0xee, SLOTS * SIZE);
		_exit(0);
	}
	wait_for(pid);
}

static void fork_sender(struct side *s, int i)
{
	children(s, i, true);
}

static void fork_receiver(struct side *s, int i)
{
	children(s, i, false);
}

static void fork_out(struct side *s)
{
	meet(s);
	stream_out(s, op, count, op == READ ? fork_receiver : fork_sender);
}

static void fork_in(struct side *s)
{
	meet(s);
	receives_in(s, fork_receiver);
}

static void case_fork(void)
{
	static const int ops[] = { WRITE, SEND, READ };

	count = 20;
	for (int i = 0; i < 3; i++) {
		op = ops[i];
		pair_of(fork_out, op == READ ? meet_in : fork_in, i == 1 ? EVENTS : 0, i == 0 ? EVENTS : 0);
	}
}

static void case_ends(void)
{
	ack_timeout = 12;
	pair_of(ends_out, ends_in, UNCONNECTED, UNCONNECTED | EVENTS);
}

static void case_armed(void)
{
	pair_of(armed_out, armed_in, 0, 0);
	pair_of(armed_out, armed_in, EVENTS, EVENTS);
}

static void solicited_in(struct side *s)
{
	count = 60;
	op = SEND;
	post_receives(s, count);
	meet(s);
	stream_in(s, op, count, NULL);
}

static void case_solicited(void)
{
	pair_of(solicited_out, solicited_in, 0, EVENTS | SOLICITED);
	pair_of(solicited_out, solicited_in, EVENTS, EVENTS | SOLICITED | USE_SRQ);
}

static void case_datagrams(void)
{
	pair_of(datagrams_out, datagrams_in, 0, 0);
	pair_of(datagrams_out, datagrams_in, EVENTS, EVENTS | USE_SRQ);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "eight", case_eight }, { "stopped", case_stopped }, { "killed", case_killed }, { "heir", case_heir },
		{ "gone", case_gone }, { "gone-waiting", case_gone_waiting }, { "resize", case_resize }, { "fork", case_fork }, { "ends", case_ends },
		{ "armed", case_armed }, { "solicited", case_solicited }, { "datagrams", case_datagrams },
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
