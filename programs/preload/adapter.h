/*
 * What the preloaded library asks of the adapter, which is in Go
 * (programs/adapter).
 *
 * Results below 0 are negative errno. All pointers are of the program: those
 * that a command has may be wrong. Files that a call makes are in the process,
 * with O_CLOEXEC; the library changes that.
 */
#ifndef ROCEV2_ADAPTER_H
#define ROCEV2_ADAPTER_H

#include <poll.h>
#include <stdint.h>

enum { ROCEV2_ADAPTER_VERSION = 5 };

struct rocev2_opened {
	uint64_t handle; /* of the calls below */
	int32_t fd;      /* the program's: it maps it (uverbsN) or polls it (rdma_cm) */
	int32_t flags;   /* ROCEV2_TELL_POLLS, ROCEV2_REFUSE_CHILD */
	uint64_t doorbells; /* uverbsN: where struct rocev2_doorbells is */
};

/*
 * rocev2_polled is called after each poll that has found something; a child of
 * fork can neither post nor poll.
 */
enum { ROCEV2_TELL_POLLS = 1, ROCEV2_REFUSE_CHILD = 2 };

#ifndef ROCEV2_ADAPTER_TYPES

/*
 * Which calls of rocev2_post may be left out. A queue pair has the word of its
 * number modulo ROCEV2_DOORBELL_WORDS: the number plus 1 in the upper half, and in
 * the lower one how many calls may be, which one that is left out makes less by one.
 * Then the word's bit is set in rung, and the program's next poll or wait calls
 * the adapter. The memory stays when the file is closed.
 */
enum { ROCEV2_DOORBELL_WORDS = 64 };

struct rocev2_doorbells {
	_Atomic(uint64_t) rung, words[ROCEV2_DOORBELL_WORDS];
};

/* rocev2_version waits until the runtime is there: ROCEV2_ADAPTER_VERSION. */
int64_t rocev2_version(void);

/* node is the path of the device file in the daemon's directory. */
int64_t rocev2_open(const char *node, int32_t flags, struct rocev2_opened *out);

/*
 * The last number of the device file is closed, or about to be; or, where there
 * is an inode, that of its file of events with it.
 */
int64_t rocev2_close(uint64_t handle, uint64_t inode);

/* What write(2) got. It never waits: GET_EVENT without one is -EAGAIN. */
int64_t rocev2_command(uint64_t handle, const void *buf, uint64_t n);

/* POST_SEND with nothing but the handle of the queue pair. */
int64_t rocev2_post(uint64_t handle, uint32_t qp);

/* 1: packets have come. 0: none. Or an error where the device is lost. */
int64_t rocev2_poll(uint64_t handle);

/* The program has taken completions from the queue with the handle cq. */
int64_t rocev2_polled(uint64_t handle, uint32_t cq);

/*
 * The thread is about to wait in poll(2), for what the device gets, too. The
 * call puts files into fds (room) and returns how many. 0: another thread
 * receives, so the thread waits for the channel's own file. *timeout is in
 * nanoseconds, -1 none, 0 where the thread only looks; the call may make it
 * shorter. rocev2_wait_end follows always, also on cancellation, from the same
 * thread, which is a number that no other thread has: it receives.
 */
int64_t rocev2_wait_begin(uint64_t handle, struct pollfd *fds, int32_t room, int64_t *timeout, uint64_t thread);
int64_t rocev2_wait_end(uint64_t handle, uint64_t thread);

/* All files that the adapter (and Go's runtime) have for themselves. */
int64_t rocev2_descriptors(int32_t *fds, int32_t room);

/* The process ends: say goodbye, within a bounded time. */
int64_t rocev2_farewell(void);

#endif
#endif
