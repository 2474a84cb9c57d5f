/* The other threads of the process. */
#include "preload.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const uint64_t second = 1000000000; /* in ns */

/* The kernel counts a directory of threads by its links: 2 and one for each. */
bool alone(void)
{
	struct stat st;

	return syscall(
#ifdef SYS_newfstatat
		       SYS_newfstatat,
#else
		       SYS_fstatat64,
#endif
		       AT_FDCWD, "/proc/self/task", &st, 0) == 0 &&
	       st.st_nlink == 3 + copier_count();
}

static uint64_t now(void)
{
	struct timespec t = { 0, 0 };

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * second + (uint64_t)t.tv_nsec;
}

/*
 * The daemon stops them, which it may not, or not soon: then it is not asked
 * for a while.
 */
bool stop_others(struct file *f, int visible)
{
	static uint64_t not_before;
	struct call c = { .op = OP_FREEZE, .arg = (uint64_t)syscall(SYS_gettid), .send_fd = -1 };

	if (now() < not_before)
		return false;
	if (wire_call(f, visible, &c) == 0 && c.reply.ret == 0)
		return true;
	not_before = now() + second;
	return false;
}

void let_go(struct file *f, int visible)
{
	struct call c = { .op = OP_THAW, .send_fd = -1 };

	wire_call(f, visible, &c);
}
