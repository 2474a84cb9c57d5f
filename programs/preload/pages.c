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

static const char memfd_name[] = "rocev2-shared";
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
static bool exchanged; /* ever */
static bool remnants;  /* our pages are mapped that no range stands for */
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
	bool named, shared; /* shared: the pages of a memfd of ours */
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
	m->shared = strncmp(p, "/memfd:", 7) == 0 && strncmp(p + 7, memfd_name, sizeof memfd_name - 1) == 0;
	return true;
}

/* A visitor of maps returns whether it wants to see more of them. */
typedef bool map_visit(const struct map *m, void *arg);

/* each_map returns false where the process cannot see its maps. */
static bool each_map(map_visit *visit, void *arg)
{
	char buf[4096 + 1];
	size_t have = 0;
	bool more = true;
	ssize_t n;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return false;
	while (more && (n = syscall(SYS_read, fd, buf + have, sizeof buf - 1 - have)) > 0) {
		char *line = buf, *end;

		have += (size_t)n;
		buf[have] = 0;
		while (more && (end = strchr(line, '\n'))) {
			struct map m;

			*end = 0;
			if (parse_map(line, &m))
				more = visit(&m, arg);
			line = end + 1;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == sizeof buf - 1)
			have = 0; /* a very long name */
	}
	syscall(SYS_close, fd);
	return true;
}

typedef bool map_test(const struct map *m, const void *arg);

struct wanted_maps {
	struct span at;
	uint64_t reached;
	map_test *test;
	const void *arg;
	bool good;
};

static bool see_wanted(const struct map *m, void *arg)
{
	struct wanted_maps *w = arg;

	if (overlap(m->at, w->at)) {
		w->good = m->at.start <= w->reached && w->test(m, w->arg);
		w->reached = m->at.end;
	}
	return w->good && w->reached < w->at.end;
}

/* all_maps reports whether all of a span is mapped as test demands. */
static bool all_maps(struct span s, map_test *test, const void *arg)
{
	struct wanted_maps w = { s, s.start, test, arg, true };

	return each_map(see_wanted, &w) && w.good && w.reached >= s.end;
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

struct rights {
	bool write;
};

static bool has_rights(const struct map *m, const void *arg)
{
	const struct rights *r = arg;

	return m->rights[0] == 'r' && (!r->write || m->rights[1] == 'w');
}

static bool see_nothing(const struct map *m, void *arg)
{
	(void)m;
	(void)arg;
	return false;
}

bool pages_there(uint64_t start, uint64_t length, bool write)
{
	struct span s = { start, start + length };
	struct rights r = { write };

	if (s.end < s.start)
		return false;
	return s.end == s.start || all_maps(s, has_rights, &r) || !each_map(see_nothing, NULL);
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
	       st.st_nlink == 3 + copier_count();
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

static void untell(struct file *f, void *arg)
{
	tell(f, -1, arg, OP_UNMAP);
}

/*
 * drop_if_gone forgets a range that the program has unmapped, also in part. All
 * open devices of the process learn that, since each may know the range.
 */
static bool drop_if_gone(int i)
{
	struct range *r = &ranges[i];
	struct shared_map left = { .within = r->at };

	if (all_maps(r->at, is_range, r))
		return false;
	each_map(see_shared, &left);
	remnants = remnants || left.any;
	files_each_verbs(untell, r);
	forget(i);
	return true;
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
	uint64_t stack = (uintptr_t)__builtin_frame_address(0);
	int fd;

	if (stack >= s.start && stack < s.end)
		return NULL; /* it changes while it is copied */
	if (syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY)
		return NULL;
	fd = (int)syscall(SYS_memfd_create, memfd_name, 1 | 2); /* CLOEXEC, ALLOW_SEALING */
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
	exchanged = true;
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
		if (drop_if_gone(i))
			continue;
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
	    alone() && all_maps(pages, is_anonymous, NULL)) {
		for (int i = range_count - 1; i >= 0; i--)
			drop_if_gone(i); /* it holds memory */
		if (fresh(s))
			r = exchange(pages);
	}
	if (r)
		tell(f, visible, r, OP_MAP);
	else
		remember(s);
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

void pages_before_fork(void)
{
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
}

/* own gives the child a copy of pages that it would share with its parent. */
static bool own(const struct map *m)
{
	size_t n = (size_t)(m->at.end - m->at.start);
	void *copy, *at = (void *)(uintptr_t)m->at.start;
	int rights = (m->rights[0] == 'r' ? PROT_READ : 0) | (m->rights[1] == 'w' ? PROT_WRITE : 0) |
		     (m->rights[2] == 'x' ? PROT_EXEC : 0);

	copy = (void *)syscall(SYS_mmap, NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return false;
	if (rights & PROT_READ || syscall(SYS_mprotect, at, n, PROT_READ) == 0)
		memcpy(copy, at, n);
	return (void *)syscall(SYS_mremap, copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED &&
	       syscall(SYS_mprotect, at, n, rights) == 0;
}

/*
 * own_range is own of a range where the process does not see what it consists
 * of: pages that cannot be read are not there.
 */
static bool own_range(struct span at)
{
	char *copy = (void *)syscall(SYS_mmap, NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t self = (pid_t)syscall(SYS_getpid);

	if (copy == MAP_FAILED)
		return false;
	for (uint64_t page = at.start; page < at.end; page += PAGE) {
		void *p = (void *)(uintptr_t)page;
		struct iovec to = { copy, PAGE }, from = { p, PAGE };

		if (syscall(SYS_process_vm_readv, self, &to, 1, &from, 1, 0) != PAGE)
			continue;
		if ((void *)syscall(SYS_mmap, p, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != p)
			return false;
		memcpy(p, copy, PAGE);
	}
	return syscall(SYS_munmap, copy, PAGE) == 0;
}

/* give_up ends a child that cannot have what a child has. */
static void give_up(void)
{
	static atomic_bool said;

	say(&said, "rocev2: no memory for the copies that a child of fork gets%s\n", "");
	syscall(SYS_exit_group, 127);
}

/*
 * What the child shared with its parent, either would see the other change. Not
 * only ranges are looked for, but all maps: the program may have moved some.
 */
void pages_in_child(void)
{
	struct shared_map s = { .within = { 0, UINT64_MAX } };
	bool seen = !exchanged || each_map(see_nothing, NULL);

	atomic_store(&pages_lock.state, 0);
	while (range_count > 0) {
		if (!seen && !own_range(ranges[range_count - 1].at))
			give_up();
		forget(range_count - 1); /* and leave numbers of files for what follows */
	}
	plain_count = 0;
	while (exchanged && each_map(see_shared, &s) && s.any) {
		if (!own(&s.found))
			give_up();
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

/*
 * grow moves a mapping that consists of several since pages were exchanged, to a
 * place that the program names, or to another one.
 */
static void *grow(void *p, size_t old, size_t new, void *at)
{
	void *to;

	if (!pages_there((uintptr_t)p, old, true)) {
		errno = EFAULT;
		return MAP_FAILED;
	}
	to = (void *)syscall(SYS_mmap, at, new, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
	if (to == MAP_FAILED)
		return to;
	memcpy(to, p, old);
	syscall(SYS_munmap, p, old);
	return to;
}

/* has_ours reports whether our pages are in a span, also moved ones. */
static bool has_ours(struct span s)
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

/*
 * A mapping that grows would grow beyond the end of the memfd. One that moves
 * has our pages there.
 */
EXPORT void *mremap(void *p, size_t old, size_t new, int flags, ...)
{
	struct span s = { (uintptr_t)p, (uintptr_t)p + old }, t;
	bool ours = has_ours(s);
	va_list ap;
	void *to;

	va_start(ap, flags);
	to = va_arg(ap, void *);
	va_end(ap);
	t = (struct span){ (uintptr_t)to, (uintptr_t)to + new };
	if (!ours || new <= old || s.start % PAGE != 0)
		return NEXT(mremap)(p, old, new, flags, to);
	if (!(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	if (!(flags & MREMAP_FIXED))
		return grow(p, old, new, NULL);
	if (t.start % PAGE != 0 || t.start == 0 || overlap(s, t)) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	return grow(p, old, new, to);
}
