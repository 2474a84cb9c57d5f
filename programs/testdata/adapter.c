/*
 * An adapter without a device, in C: what the library makes of files, threads
 * and signals is seen without Go, too, and by sanitizers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../preload/adapter.h"

#define EXPORT __attribute__((visibility("default")))

enum { MOST = 4096 };

/* An open file. Its wire is what its device waits in. */
static struct device {
	atomic_bool open;
	bool cm;
	int wire[2], out; /* out: the end for writing of what the program reads */
	atomic_int posts, waits, event, raises;
	/*
	 * 1: the next command for an event stays inside until the file is
	 * closed. 2: it is there.
	 */
	atomic_int held;
} devices[MOST];

/* ---- commands ---- */

struct header {
	uint32_t command;
	uint16_t in, out;
	uint64_t response;
	uint32_t value, pad;
};

static int new_pipe(struct device *d)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -errno;
	if (d->out >= 0)
		close(d->out);
	d->out = ends[1];
	return ends[0];
}

static int answer(const struct header *h, uint32_t v)
{
	memcpy((void *)(uintptr_t)h->response, &v, sizeof v);
	return 0;
}

/* Signals that the program blocks are blocked, also those that Go unblocks. */
static int mask_is(uint32_t want)
{
	sigset_t mask;

	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	return sigismember(&mask, SIGCHLD) == (int)want ? 0 : -EPROTO;
}

static int64_t cm_event(struct device *d, const struct header *h)
{
	int one = 1;
	char byte;

	(void)byte;
	if (atomic_load(&d->held)) {
		atomic_store(&d->held, 2);
		while (atomic_load(&d->open))
			;
		return -EBADF; /* as the adapter finds no handle then */
	}
	if (!atomic_compare_exchange_strong(&d->event, &one, 0))
		return -EAGAIN;
	return answer((const struct header *)h, 4711);
}

/* deep uses more of the stack than a small thread has. */
static int deep(void)
{
	volatile char room[48 << 10];

	for (size_t i = 0; i < sizeof room; i += 512)
		room[i] = 1;
	return room[0] + room[512] - 2;
}

EXPORT int64_t rocev2_command(uint64_t handle, const void *buf, uint64_t n)
{
	struct device *d = &devices[handle];
	struct header h = { 0 };
	int fd;

	memcpy(&h, buf, n < sizeof h ? n : sizeof h);
	switch (h.command) {
	case 0:
	case 17:
		fd = new_pipe(d);
		if (fd < 0)
			return fd;
		answer(&h, (uint32_t)fd);
		return (int64_t)n;
	case 12:
		fd = (int)cm_event(d, &h);
		return fd < 0 ? fd : (int64_t)n;
	case 100: /* echo */
		answer(&h, h.value + 1);
		return (int64_t)n;
	case 103:
		return atomic_load(&d->posts);
	case 104: /* the device is lost */
		close(d->out);
		d->out = -1;
		return -EIO;
	case 105: /* a packet comes */
		return write(d->wire[1], "p", 1) == 1 ? (int64_t)n : -EIO;
	case 106:
		return atomic_load(&d->waits);
	case 107:
		return mask_is(h.value);
	case 108:
		return deep();
	case 109: /* a fault in the program's memory */
		return *(volatile char *)(uintptr_t)h.response;
	case 110: { /* stays inside for a while: until the value is there */
		volatile uint32_t *v = (volatile uint32_t *)(uintptr_t)h.response;

		v[1] = 1; /* it is inside */
		while (*v == 0)
			;
		return *v;
	}
	case 112: /* a signal comes while a wait begins */
		atomic_store(&d->raises, (int)h.value);
		return (int64_t)n;
	case 113: /* the adapter has other files, which no call has asked for */
		close(d->wire[0]);
		close(d->wire[1]);
		return pipe2(d->wire, O_CLOEXEC | O_NONBLOCK) == 0 ? (int64_t)n : -errno;
	case 114:
		atomic_store(&d->held, 1);
		return (int64_t)n;
	case 115:
		return atomic_load(&d->held) == 2;
	case 111: /* where it runs */
		return answer(&h, (uint32_t)((uintptr_t)__builtin_frame_address(0) >> 12));
	}
	return -EOPNOTSUPP;
}

EXPORT int64_t rocev2_post(uint64_t handle, uint32_t qp)
{
	if (qp >= 1 << 20)
		return -EINVAL;
	atomic_fetch_add(&devices[handle].posts, 1);
	return 0;
}

/* drain makes of packets of the wire events of the program. */
static int drain(struct device *d)
{
	char packets[64];
	ssize_t n = read(d->wire[0], packets, sizeof packets);

	for (ssize_t i = 0; i < n; i++) {
		if (d->cm)
			atomic_store(&d->event, 1);
		if (write(d->out, "cookie!!", d->cm ? 1 : 8) < 0)
			break;
	}
	return n > 0 ? (int)n : 0;
}

EXPORT int64_t rocev2_poll(uint64_t handle)
{
	return drain(&devices[handle]);
}

EXPORT int64_t rocev2_polled(uint64_t handle, uint32_t cq)
{
	(void)handle;
	(void)cq;
	return 0;
}

EXPORT int64_t rocev2_wait_begin(uint64_t handle, struct pollfd *fds, int32_t room, int64_t *timeout, uint64_t thread)
{
	struct device *d = &devices[handle];

	(void)timeout;
	(void)thread;
	if (room < 1)
		return 0;
	atomic_fetch_add(&d->waits, 1);
	if (atomic_load(&d->raises))
		raise(atomic_exchange(&d->raises, 0));
	fds[0] = (struct pollfd){ .fd = d->wire[0], .events = POLLIN };
	return 1;
}

EXPORT int64_t rocev2_wait_end(uint64_t handle, uint64_t thread)
{
	(void)thread;
	atomic_fetch_sub(&devices[handle].waits, 1);
	return drain(&devices[handle]);
}

/* ---- files ---- */

EXPORT int64_t rocev2_open(const char *node, int32_t flags, struct rocev2_opened *out)
{
	int k = 0;

	(void)flags;
	for (; k < MOST; k++) {
		bool no = false;

		if (atomic_compare_exchange_strong(&devices[k].open, &no, true))
			break;
	}
	if (k == MOST)
		return -ENFILE;
	struct device *d = &devices[k];

	d->cm = strstr(node, "rdma_cm") != NULL;
	d->out = -1;
	atomic_store(&d->posts, 0);
	atomic_store(&d->event, 0);
	atomic_store(&d->held, 0);
	out->handle = (uint64_t)k;
	out->fd = d->cm ? new_pipe(d) : memfd_create("fake", MFD_CLOEXEC);
	if (out->fd < 0 || pipe2(d->wire, O_CLOEXEC | O_NONBLOCK) != 0) {
		atomic_store(&d->open, false);
		return -errno;
	}
	return 0;
}

EXPORT int64_t rocev2_close(uint64_t handle, uint64_t inode)
{
	struct device *d = &devices[handle];

	if (inode)
		return 0;
	close(d->wire[0]);
	close(d->wire[1]);
	if (d->out >= 0)
		close(d->out);
	atomic_store(&d->open, false);
	return 0;
}

EXPORT int64_t rocev2_descriptors(int32_t *fds, int32_t room)
{
	int n = 0;

	for (int k = 0; k < MOST && n + 3 < room; k++)
		if (atomic_load(&devices[k].open)) {
			fds[n++] = devices[k].wire[0];
			fds[n++] = devices[k].wire[1];
			if (devices[k].out >= 0)
				fds[n++] = devices[k].out;
		}
	return n;
}

/* ---- the runtime ---- */

static void *sleeps(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* Go's runtime has handlers for faults, and threads. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
	static const char said[] = "the adapter has had a fault\n";

	(void)sig;
	(void)info;
	(void)context;
	if (write(1, said, sizeof said - 1) > 0)
		_exit(0);
}

__attribute__((constructor)) static void begin(void)
{
	struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	pthread_t t;

	sigaction(SIGSEGV, &a, NULL);
	sigaction(SIGPIPE, &a, NULL);
	if (!getenv("CHECK_NO_THREADS"))
		pthread_create(&t, NULL, sleeps, NULL);
}

EXPORT int64_t rocev2_version(void)
{
	return ROCEV2_ADAPTER_VERSION;
}

EXPORT int64_t rocev2_farewell(void)
{
	const char *file = getenv("CHECK_FAREWELL");

	if (file)
		close(open(file, O_CREAT | O_WRONLY, 0600));
	return 0;
}
