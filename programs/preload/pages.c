/*
 * Large buffers that a program registers. Their pages are exchanged for those
 * of a memfd, which the daemon maps: then it need not copy by system calls, and
 * atomic operations of peers are atomic towards the program.
 *
 * It is done where the program cannot notice: nobody else runs in the process,
 * the pages are private and anonymous, and nothing of them is registered yet.
 * A child that is forked gets copies, as it would.
 */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	PAGE = 4096,
	LEAST = 64 << 10, /* bytes that are worth it */
	MAX_RANGES = 64,
	MAX_SPANS = 1024,
	ADD_SEALS = 1033, /* F_ADD_SEALS */
	SEAL_SHRINK = 2,
};

static const uint64_t most = (uint64_t)1 << 30; /* more takes too long to copy */

struct span {
	uint64_t start, end;
};

/* Memory that has the pages of a memfd. */
struct range {
	struct span at;
	uint64_t ino;
	_Atomic int fd;  /* hidden */
	uint64_t told;   /* of which open file the daemon was told last */
};

static struct lock pages_lock;
static struct range ranges[MAX_RANGES];
static int range_count;
static struct span plain[MAX_SPANS]; /* registered, and not exchanged */
static int plain_count;
static int fork_pipe[2] = { -1, -1 };

static bool overlap(struct span a, struct span b)
{
	return a.start < b.end && b.start < a.end;
}

static bool within(struct span a, struct span b)
{
	return a.start >= b.start && a.end <= b.end;
}

static bool wanted(void)
{
	static atomic_int asked; /* 0 not yet, 1 no, 2 yes */
	const char *set;

	if (!atomic_load(&asked)) {
		set = secure_getenv("ROCEV2_SHARE");
		atomic_store(&asked, set && strcmp(set, "0") == 0 ? 1 : 2);
	}
	return atomic_load(&asked) == 2;
}

/* ---- what the process consists of ---- */

struct map {
	struct span at;
	char rights[4];
	uint64_t offset, ino;
	bool named;
};

static const char *hex(const char *p, uint64_t *v)
{
	for (*v = 0;; p++) {
		if (*p >= '0' && *p <= '9')
			*v = *v * 16 + (uint64_t)(*p - '0');
		else if (*p >= 'a' && *p <= 'f')
			*v = *v * 16 + (uint64_t)(*p - 'a' + 10);
		else
			return p;
	}
}

/* START-END RIGHTS OFFSET MAJOR:MINOR INODE NAME */
static bool parse_map(const char *line, struct map *m)
{
	uint64_t device;
	const char *p = hex(line, &m->at.start);

	if (*p != '-')
		return false;
	p = hex(p + 1, &m->at.end);
	if (*p != ' ' || strlen(p) < 6)
		return false;
	memcpy(m->rights, p + 1, 4);
	p = hex(p + 6, &m->offset);
	p = hex(p + 1, &device);
	p = hex(*p ? p + 1 : p, &device);
	for (m->ino = 0; *p == ' '; p++)
		;
	for (; *p >= '0' && *p <= '9'; p++)
		m->ino = m->ino * 10 + (uint64_t)(*p - '0');
	while (*p == ' ')
		p++;
	m->named = *p != 0;
	return true;
}

typedef bool map_test(const struct map *m, const void *arg);

/* all_maps reports whether all of a span is mapped as test demands. */
static bool all_maps(struct span s, map_test *test, const void *arg)
{
	char buf[4096 + 1];
	size_t have = 0;
	uint64_t reached = s.start;
	bool good = true;
	ssize_t n;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return false;
	while (good && reached < s.end && (n = syscall(SYS_read, fd, buf + have, sizeof buf - 1 - have)) > 0) {
		char *line = buf, *end;

		have += (size_t)n;
		buf[have] = 0;
		while (good && (end = strchr(line, '\n'))) {
			struct map m;

			*end = 0;
			if (parse_map(line, &m) && overlap(m.at, s)) {
				good = m.at.start <= reached && test(&m, arg);
				reached = m.at.end;
			}
			line = end + 1;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == sizeof buf - 1)
			have = 0; /* a very long name */
	}
	syscall(SYS_close, fd);
	return good && reached >= s.end;
}

static bool is_anonymous(const struct map *m, const void *arg)
{
	(void)arg;
	return memcmp(m->rights, "rw-p", 4) == 0 && m->ino == 0 && !m->named;
}

static bool is_range(const struct map *m, const void *arg)
{
	const struct range *r = arg;

	return m->ino == r->ino && m->offset - m->at.start == 0 - r->at.start;
}

/* The kernel counts a directory of threads by its links: 2 and one for each. */
static bool alone(void)
{
	struct stat st;

	return syscall(
#ifdef SYS_newfstatat
		       SYS_newfstatat,
#else
		       SYS_fstatat64,
#endif
		       AT_FDCWD, "/proc/self/task", &st, 0) == 0 &&
	       st.st_nlink == 3;
}

/* ---- the exchange ---- */

static void tell(struct file *f, int visible, struct range *r, uint32_t op)
{
	uint64_t about[3] = { r->at.start, r->at.end - r->at.start, 0 };
	struct call c = { .op = op, .send_fd = op == OP_MAP ? r->fd : -1,
			  .payload = { { about, sizeof about } }, .pieces = 1 };

	wire_call(f, visible, &c);
	r->told = f->opened;
}

static void forget(int i)
{
	fd_show(ranges[i].fd);
	syscall(SYS_close, ranges[i].fd);
	ranges[i].at = ranges[range_count - 1].at;
	ranges[i].ino = ranges[range_count - 1].ino;
	ranges[i].told = ranges[range_count - 1].told;
	atomic_store(&ranges[i].fd, ranges[range_count - 1].fd);
	range_count--;
}

static bool fill(int fd, struct span s)
{
	uint64_t done = 0, n = s.end - s.start;

	if (syscall(SYS_ftruncate, fd, (off_t)n) != 0)
		return false;
	while (done < n) {
		ssize_t k = syscall(SYS_pwrite64, fd, (void *)(uintptr_t)(s.start + done), n - done, (off_t)done);

		if (k <= 0)
			return false;
		done += (uint64_t)k;
	}
	return syscall(SYS_fcntl, fd, ADD_SEALS, SEAL_SHRINK) == 0;
}

/* exchange gives a span the pages of a memfd with the same contents. */
static struct range *exchange(struct span s)
{
	struct range *r = &ranges[range_count];
	struct rlimit limit;
	struct stat st;
	int fd;

	if (syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY)
		return NULL;
	fd = (int)syscall(SYS_memfd_create, "rocev2-shared", 1 | 2); /* CLOEXEC, ALLOW_SEALING */
	if (fd < 0)
		return NULL;
	if (!fill(fd, s) || syscall(SYS_fstat, fd, &st) != 0 ||
	    (void *)syscall(SYS_mmap, (void *)(uintptr_t)s.start, s.end - s.start, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		syscall(SYS_close, fd);
		return NULL;
	}
	r->at = s;
	r->ino = st.st_ino;
	r->told = 0;
	r->fd = fd_hide(fd);
	range_count++;
	return r;
}

/* remember notes what is registered without an exchange. */
static void remember(struct span s)
{
	for (int i = 0; i < plain_count; i++)
		if (within(s, plain[i]))
			return;
	if (plain_count < MAX_SPANS)
		plain[plain_count++] = s;
}

static bool fresh(struct span s)
{
	if (plain_count == MAX_SPANS || range_count == MAX_RANGES)
		return false;
	for (int i = 0; i < plain_count; i++)
		if (overlap(s, plain[i]))
			return false;
	return true;
}

/*
 * known handles the ranges that a span touches: one that the program has
 * unmapped meanwhile is forgotten, and the daemon learns of the others. It
 * returns whether there are others.
 */
static bool known(struct file *f, int visible, struct span s)
{
	bool any = false;

	for (int i = range_count - 1; i >= 0; i--) {
		struct range *r = &ranges[i];

		if (!overlap(r->at, s))
			continue;
		if (!all_maps(r->at, is_range, r)) {
			tell(f, visible, r, OP_UNMAP);
			forget(i);
			continue;
		}
		any = true;
		if (r->told != f->opened)
			tell(f, visible, r, OP_MAP);
	}
	return any;
}

static void look_at(struct file *f, int visible, struct span s)
{
	struct span pages = { (s.start + PAGE - 1) & ~(uint64_t)(PAGE - 1), s.end & ~(uint64_t)(PAGE - 1) };
	struct range *r = NULL;

	if (known(f, visible, s))
		return;
	if (wanted() && pages.end > pages.start && pages.end - pages.start >= LEAST && s.end - s.start <= most &&
	    fresh(s) && alone() && all_maps(pages, is_anonymous, NULL))
		r = exchange(pages);
	if (r)
		tell(f, visible, r, OP_MAP);
	else
		remember(s);
}

void pages_register(struct file *f, int visible, const void *command, size_t n)
{
	struct span s;
	uint64_t length;
	signals before;
	int saved = errno;

	if (n < 32 || vforked() || sysconf(_SC_PAGESIZE) != PAGE)
		return;
	memcpy(&s.start, (const char *)command + 16, 8);
	memcpy(&length, (const char *)command + 24, 8);
	s.end = s.start + length;
	if (s.end <= s.start || s.end > UINTPTR_MAX - PAGE)
		return;
	before = lock_take(&pages_lock);
	look_at(f, visible, s);
	lock_give(&pages_lock, before);
	errno = saved;
}

/* ---- fork: the parent waits until its child has copies ---- */

void pages_before_fork(void)
{
	fork_pipe[0] = fork_pipe[1] = -1;
	if (range_count > 0 && syscall(SYS_pipe2, fork_pipe, O_CLOEXEC) != 0)
		fork_pipe[0] = fork_pipe[1] = -1;
}

static void close_pipe(int i)
{
	if (fork_pipe[i] >= 0)
		syscall(SYS_close, fork_pipe[i]);
	fork_pipe[i] = -1;
}

void pages_in_parent(void)
{
	char byte;

	close_pipe(1);
	if (fork_pipe[0] >= 0)
		while (syscall(SYS_read, fork_pipe[0], &byte, 1) < 0 && errno == EINTR)
			;
	close_pipe(0);
}

/* own gives the child a copy of a range, unless it is something else by now. */
static void own(struct range *r)
{
	size_t n = (size_t)(r->at.end - r->at.start);
	void *copy, *at = (void *)(uintptr_t)r->at.start;

	if (!all_maps(r->at, is_range, r))
		return;
	copy = (void *)syscall(SYS_mmap, NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return;
	memcpy(copy, at, n);
	if ((void *)syscall(SYS_mremap, copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
		syscall(SYS_munmap, copy, n);
}

void pages_in_child(void)
{
	atomic_store(&pages_lock.state, 0);
	for (int i = range_count - 1; i >= 0; i--) {
		own(&ranges[i]);
		forget(i);
	}
	plain_count = 0;
	close_pipe(0);
	close_pipe(1);
}

bool pages_make_room(int fd)
{
	for (int i = 0; i < range_count; i++)
		if (!fd_move(&ranges[i].fd, fd))
			return false;
	return true;
}

/*
 * Allocators give pages back by this call, and expect zeros when they use them
 * again. Pages of a memfd keep what they have.
 */
EXPORT int madvise(void *p, size_t n, int advice)
{
	struct span s = { (uintptr_t)p, (uintptr_t)p + n };
	int saved = errno;
	int result = NEXT(madvise)(p, n, advice);

	if (result != 0 || (advice != MADV_DONTNEED && advice != MADV_FREE))
		return result;
	for (int i = 0; i < range_count; i++) {
		struct span r = ranges[i].at;
		uint64_t from = s.start > r.start ? s.start : r.start, to = s.end < r.end ? s.end : r.end;

		if (from < to)
			syscall(SYS_madvise, from, to - from, MADV_REMOVE);
	}
	errno = saved;
	return result;
}

/* grow moves a mapping that consists of several since pages were exchanged. */
static void *grow(void *p, size_t old, size_t new)
{
	void *to = (void *)syscall(SYS_mmap, NULL, new, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (to == MAP_FAILED)
		return to;
	memcpy(to, p, old);
	syscall(SYS_munmap, p, old);
	return to;
}

/* A mapping that grows would grow beyond the end of the memfd. */
EXPORT void *mremap(void *p, size_t old, size_t new, int flags, ...)
{
	struct span s = { (uintptr_t)p, (uintptr_t)p + old };
	bool ours = false;
	va_list ap;
	void *to;

	va_start(ap, flags);
	to = va_arg(ap, void *);
	va_end(ap);
	for (int i = 0; i < range_count && new > old; i++)
		ours = ours || (overlap(ranges[i].at, s) && all_maps(ranges[i].at, is_range, &ranges[i]));
	if (ours && flags == MREMAP_MAYMOVE)
		return grow(p, old, new);
	if (ours && !(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return NEXT(mremap)(p, old, new, flags, to);
}
