/*
 * Large buffers that a program registers. Their pages are exchanged for those
 * of a memfd, which the daemon maps: then it need not copy by system calls, and
 * atomic operations of peers are atomic towards the program.
 *
 * It is done where the program cannot notice: the pages are private and
 * anonymous, nothing of them is registered yet, and nobody else runs in the
 * process. Where there are other threads the daemon stops them meanwhile. A
 * child that is forked gets copies, as it would.
 */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	PAGE = 4096,
	LEAST = 64 << 10, /* bytes of a buffer that are worth it */
	PIECE = 16 << 10, /* and of what is exchanged of one */
	MAX_PIECES = 16,
	MAX_RANGES = 128,
	MAX_SPANS = 1024,
	ADD_SEALS = 1033, /* F_ADD_SEALS */
	SEAL_SHRINK = 2,
};

static const uint64_t most = (uint64_t)1 << 30; /* more takes too long to copy */

/* Memory that has the pages of a memfd. */
struct range {
	struct span at;
	uint64_t ino;
	_Atomic int fd;  /* hidden */
	uint64_t told;   /* of which open file the daemon was told last */
	uint64_t seen;   /* bytes, when the maps were looked at */
};

static struct lock pages_lock;
static struct range ranges[MAX_RANGES];
static int range_count;
static struct span plain[MAX_SPANS]; /* registered, and not exchanged */
static int plain_count;
static bool exchanged; /* ever */
static bool remnants;  /* our pages are mapped that no range stands for */
static int fork_pipe[2] = { -1, -1 };

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

/* The first map with our pages in a span. */
struct shared_map {
	struct span within;
	struct map found;
	bool any;
};

static bool see_shared(const struct map *m, void *arg)
{
	struct shared_map *s = arg;

	if (m->shared && overlap(m->at, s->within)) {
		s->found = *m;
		s->any = true;
	}
	return !s->any;
}

static bool is_anonymous(const struct map *m)
{
	return memcmp(m->rights, "rw-p", 4) == 0 && m->ino == 0 && !m->named;
}

static bool is_range(const struct map *m, const struct range *r)
{
	return m->ino == r->ino && m->offset - m->at.start == 0 - r->at.start;
}

/* ---- what the daemon knows ---- */

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
	ranges[i].seen = ranges[range_count - 1].seen;
	atomic_store(&ranges[i].fd, ranges[range_count - 1].fd);
	range_count--;
}

static void untell(struct file *f, void *arg)
{
	tell(f, -1, arg, OP_UNMAP);
}

static bool see_range(const struct map *m, void *arg)
{
	(void)arg;
	for (int i = 0; i < range_count && m->shared; i++)
		if (overlap(m->at, ranges[i].at) && is_range(m, &ranges[i]))
			ranges[i].seen += m->at.end - m->at.start;
	return true;
}

static bool gone(const struct range *r)
{
	return r->seen != r->at.end - r->at.start;
}

/*
 * drop_gone forgets ranges that the program has unmapped, also in part. All
 * open devices of the process learn that, since each may know the range.
 */
static void drop_gone(void)
{
	for (int i = 0; i < range_count; i++)
		ranges[i].seen = 0;
	if (range_count == 0 || !each_map(see_range, NULL))
		return;
	for (int i = range_count - 1; i >= 0; i--) {
		struct shared_map left = { .within = ranges[i].at };

		if (!gone(&ranges[i]))
			continue;
		each_map(see_shared, &left);
		remnants = remnants || left.any;
		files_each_verbs(untell, &ranges[i]);
		forget(i);
	}
}

/* ---- the exchange ---- */

static bool fill(int fd, struct span s)
{
	uint64_t done = 0, n = s.end - s.start;

	while (done < n) {
		ssize_t k = syscall(SYS_pwrite64, fd, (void *)(uintptr_t)(s.start + done), n - done, (off_t)done);

		if (k <= 0)
			return false;
		done += (uint64_t)k;
	}
	return true;
}

/* prepare makes the next range, of a memfd without contents. */
static struct range *prepare(struct span s)
{
	struct range *r = &ranges[range_count];
	struct stat st;
	int fd = (int)syscall(SYS_memfd_create, memfd_name, 1 | 2); /* CLOEXEC, ALLOW_SEALING */

	if (fd < 0)
		return NULL;
	if (syscall(SYS_ftruncate, fd, (off_t)(s.end - s.start)) != 0 ||
	    syscall(SYS_fcntl, fd, ADD_SEALS, SEAL_SHRINK) != 0 || syscall(SYS_fstat, fd, &st) != 0) {
		syscall(SYS_close, fd);
		return NULL;
	}
	*r = (struct range){ .at = s, .ino = st.st_ino, .fd = fd_hide(fd) };
	range_count++;
	return r;
}

/* exchange gives a span the pages of a memfd with the same contents. */
static bool exchange(const struct range *r)
{
	return fill(r->fd, r->at) &&
	       (void *)syscall(SYS_mmap, (void *)(uintptr_t)r->at.start, r->at.end - r->at.start,
			       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, r->fd, 0) != MAP_FAILED;
}

/* What of a span is exchanged. */
struct pieces {
	struct span within, piece[MAX_PIECES];
	int count;
};

/* clear_of cuts what is registered off a span, and off what is behind it. */
static bool clear_of(struct span *s, uint64_t *next)
{
	bool moved = true;

	while (moved && s->start < s->end) {
		moved = false;
		for (int i = 0; i < plain_count; i++)
			if (plain[i].start < s->start + PAGE && plain[i].end > s->start) {
				s->start = (plain[i].end + PAGE - 1) & ~(uint64_t)(PAGE - 1);
				moved = true;
			}
	}
	*next = s->end;
	for (int i = 0; i < plain_count; i++)
		if (plain[i].start >= s->start && plain[i].start < s->end)
			s->end = plain[i].start & ~(uint64_t)(PAGE - 1);
	return s->start < s->end;
}

static bool see_anonymous(const struct map *m, void *arg)
{
	struct pieces *p = arg;
	struct span s = { m->at.start > p->within.start ? m->at.start : p->within.start,
			  m->at.end < p->within.end ? m->at.end : p->within.end };
	uint64_t next;

	while (s.start < s.end && is_anonymous(m) && p->count < MAX_PIECES && clear_of(&s, &next)) {
		if (s.end - s.start >= PIECE)
			p->piece[p->count++] = s;
		s = (struct span){ s.end, next };
	}
	return m->at.end < p->within.end;
}

static bool limited(void)
{
	struct rlimit limit;

	return syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

/* exchange_all exchanges pieces, while nobody else runs. */
static void exchange_all(struct file *f, int visible, struct pieces *p, bool only)
{
	int first = range_count, done;

	for (int i = 0; i < p->count && range_count < MAX_RANGES; i++)
		if (!prepare(p->piece[i]))
			break;
	if (range_count == first)
		return;
	exchanged = true; /* a child that another thread forks looks for them */
	done = first;
	if (only || stop_others(f, visible)) {
		while (done < range_count && exchange(&ranges[done]))
			done++;
		if (!only)
			let_go(f, visible);
	}
	while (range_count > done)
		forget(range_count - 1);
	for (int i = first; i < done; i++)
		tell(f, visible, &ranges[i], OP_MAP);
}

/* remember notes what is registered without an exchange. */
static void remember(struct span s)
{
	for (int i = 0; i < plain_count; i++)
		if (overlap(plain[i], s) || plain[i].end == s.start || plain[i].start == s.end) {
			plain[i].start = s.start < plain[i].start ? s.start : plain[i].start;
			plain[i].end = s.end > plain[i].end ? s.end : plain[i].end;
			return;
		}
	if (plain_count < MAX_SPANS)
		plain[plain_count++] = s;
}

/* remember_rest notes what of a span is in no range. */
static void remember_rest(struct span s)
{
	while (s.start < s.end) {
		struct span gap = s;

		for (int i = 0; i < range_count; i++) {
			struct span r = ranges[i].at;

			if (r.start <= gap.start && gap.start < r.end)
				gap.end = gap.start;
			else if (r.start > gap.start && r.start < gap.end)
				gap.end = r.start;
		}
		if (gap.start < gap.end) {
			remember(gap);
			s.start = gap.end;
			continue;
		}
		for (int i = 0; i < range_count; i++)
			if (ranges[i].at.start <= s.start && s.start < ranges[i].at.end)
				s.start = ranges[i].at.end;
	}
}

static bool touched(struct span s)
{
	for (int i = 0; i < range_count; i++)
		if (overlap(ranges[i].at, s))
			return true;
	return false;
}

/* known tells the daemon of the ranges that a span touches. */
static void known(struct file *f, int visible, struct span s)
{
	for (int i = 0; i < range_count; i++)
		if (overlap(ranges[i].at, s) && ranges[i].told != f->opened)
			tell(f, visible, &ranges[i], OP_MAP);
}

/*
 * whole_pages returns the pages that are exchanged of a span. Where there are
 * other threads, a child of fork sees exchanged pages as they are a moment
 * later. So the pages at both ends stay, in which there may be something else
 * (of malloc) if a library has extended the span to whole pages.
 */
static struct span whole_pages(struct span s, bool only)
{
	uint64_t more = only ? PAGE - 1 : PAGE;
	struct span pages = { (s.start + more) & ~(uint64_t)(PAGE - 1), (s.end - (more + 1 - PAGE)) & ~(uint64_t)(PAGE - 1) };

	return pages;
}

static void look_at(struct file *f, int visible, struct span s)
{
	bool large = wanted() && s.end - s.start >= LEAST && s.end - s.start <= most;
	struct pieces p = { .count = 0 };
	uint64_t stack = (uintptr_t)__builtin_frame_address(0);

	if (large || touched(s))
		drop_gone();
	known(f, visible, s);
	/* A stack changes while it is copied. With a hole it is no region. */
	if (large && plain_count < MAX_SPANS && !limited() && !(stack >= s.start && stack < s.end) &&
	    pages_there(s.start, s.end - s.start, false)) {
		bool only = alone();

		p.within = whole_pages(s, only);
		each_map(see_anonymous, &p);
		exchange_all(f, visible, &p, only);
	}
	remember_rest(s);
}

void pages_register(struct file *f, int visible, uint64_t start, uint64_t length)
{
	struct span s = { start, start + length };
	signals before;
	int saved = errno;

	if (vforked() || sysconf(_SC_PAGESIZE) != PAGE || s.end <= s.start || s.end > UINTPTR_MAX - PAGE)
		return;
	before = lock_take(&pages_lock);
	look_at(f, visible, s);
	lock_give(&pages_lock, before);
	errno = saved;
}

/* ---- fork: the parent waits until its child has copies ---- */

static signals fork_signals;

void pages_before_fork(void)
{
	fork_signals = lock_take(&pages_lock);
	fork_pipe[0] = fork_pipe[1] = -1;
	if (exchanged && syscall(SYS_pipe2, fork_pipe, O_CLOEXEC) != 0)
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
	lock_give(&pages_lock, fork_signals);
}

/*
 * What the child shared with its parent, either would see the other change. Not
 * only ranges are looked for, but all maps: the program may have moved some.
 */
void pages_in_child(void)
{
	struct shared_map s = { .within = { 0, UINT64_MAX } };
	bool seen = !exchanged || maps_seen();

	atomic_store(&pages_lock.state, 0);
	while (range_count > 0) {
		if (!seen && !copy_span(ranges[range_count - 1].at))
			copies_missing();
		forget(range_count - 1); /* and leave numbers of files for what follows */
	}
	plain_count = 0;
	while (exchanged && each_map(see_shared, &s) && s.any) {
		if (!copy_map(&s.found))
			copies_missing();
		s.any = false;
	}
	exchanged = remnants = false;
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

static bool zero(const struct map *m, void *arg)
{
	const struct span *s = arg;

	if (m->shared && overlap(m->at, *s)) {
		uint64_t from = s->start > m->at.start ? s->start : m->at.start;
		uint64_t to = s->end < m->at.end ? s->end : m->at.end;

		syscall(SYS_madvise, from, to - from, MADV_REMOVE);
	}
	return m->at.end < s->end;
}

/*
 * Allocators give pages back by this call, and expect zeros when they use them
 * again. Pages of a memfd keep what they have. The program may have a file of
 * its own by now where a range was: that is looked at first.
 */
EXPORT int madvise(void *p, size_t n, int advice)
{
	struct span s = { (uintptr_t)p, ((uintptr_t)p + n + PAGE - 1) & ~(uint64_t)(PAGE - 1) };
	int saved = errno;
	int result = NEXT(madvise)(p, n, advice);
	bool ours = remnants;
	signals before;

	if (result != 0 || !exchanged || (advice != MADV_DONTNEED && advice != MADV_FREE))
		return result;
	before = lock_take(&pages_lock);
	for (int i = 0; i < range_count; i++)
		ours = ours || overlap(ranges[i].at, s);
	if (ours)
		each_map(zero, &s);
	lock_give(&pages_lock, before);
	errno = saved;
	return result;
}

bool pages_leave(struct span s)
{
	struct shared_map found = { .within = s };
	bool ours = remnants;
	signals before;

	if (!exchanged)
		return false;
	before = lock_take(&pages_lock);
	for (int i = 0; i < range_count && !ours; i++)
		ours = overlap(ranges[i].at, s);
	if (ours && each_map(see_shared, &found))
		ours = found.any;
	remnants = remnants || ours; /* they are about to be elsewhere */
	lock_give(&pages_lock, before);
	return ours;
}
