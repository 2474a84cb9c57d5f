/*
 * Copies of exchanged pages: for a child of fork, and for a mapping that moves,
 * because it cannot grow where it is.
 */
#include "preload.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 };

bool copy_map(const struct map *m)
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

/* Pages that cannot be read are not there. */
bool copy_span(struct span at)
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

void copies_missing(void)
{
	static atomic_bool said;

	say(&said, "rocev2: no memory for the copies that a child of fork gets%s\n", "");
	syscall(SYS_exit_group, 127);
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

/*
 * A mapping that grows would grow beyond the end of the memfd. One that moves
 * has our pages there.
 */
EXPORT void *mremap(void *p, size_t old, size_t new, int flags, ...)
{
	struct span s = { (uintptr_t)p, (uintptr_t)p + old }, t;
	bool ours = pages_leave(s);
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
