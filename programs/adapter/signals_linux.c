/*
 * Go's runtime leaves some signals open on each of its threads, and on each
 * thread that calls it, whatever these block: SIGCHLD and SIGPROF. They would
 * come to a thread that the program does not know, or be lost there where the
 * program waits for them (sigwait, signalfd). A flag in a table of the runtime
 * says which these are. It is cleared here before the runtime starts: the
 * constructor has a priority, and the runtime's has none.
 *
 * Go's linker keeps the table to itself, so it is found by what is in it. Where
 * it is not found the preloaded library sends such a signal on.
 */
#define _GNU_SOURCE
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* runtime.sigTabT, and its flag _SigUnblock. */
struct entry {
	int32_t flags;
	const char *name;
	intptr_t length;
};

enum { UNBLOCK = 128 };

static const char child[] = "SIGCHLD: child status has changed";
static const char profile[] = "SIGPROF: profiling alarm clock";

static int is(const struct entry *e, const char *name, size_t length)
{
	return e->length == (intptr_t)length && e->flags & UNBLOCK && memcmp(e->name, name, length) == 0;
}

static int holds(struct dl_phdr_info *info, uintptr_t at, const ElfW(Phdr) *p)
{
	return p->p_type == PT_LOAD && at - (info->dlpi_addr + p->p_vaddr) < p->p_memsz;
}

static int open_none(struct dl_phdr_info *info, const ElfW(Phdr) *p)
{
	uintptr_t begin = (info->dlpi_addr + p->p_vaddr + sizeof(void *) - 1) & ~(sizeof(void *) - 1);
	uintptr_t end = info->dlpi_addr + p->p_vaddr + p->p_filesz;
	const size_t span = (SIGPROF + 1) * sizeof(struct entry);

	for (uintptr_t at = begin; at + span <= end; at += sizeof(void *)) {
		struct entry *table = (struct entry *)at, *e = &table[SIGCHLD];

		if (!is(e, child, sizeof child - 1) || !is(&table[SIGPROF], profile, sizeof profile - 1))
			continue;
		e->flags &= ~UNBLOCK;
		table[SIGPROF].flags &= ~UNBLOCK;
		return 1;
	}
	return 0;
}

/* What is done with the parts of the library that have these rights. */
struct parts {
	uint32_t rights;
	int (*do_it)(struct dl_phdr_info *info, const ElfW(Phdr) *p); /* 1: no more */
};

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct parts *want = arg;
	int mine = 0;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++)
		mine |= holds(info, (uintptr_t)look, &info->dlpi_phdr[i]);
	for (int i = 0; mine && i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & (PF_W | PF_X)) == want->rights &&
		    want->do_it(info, &info->dlpi_phdr[i]))
			break;
	return mine;
}

__attribute__((constructor(101))) static void before_the_runtime(void)
{
	dl_iterate_phdr(look, &(struct parts){ PF_W, open_none });
}

/*
 * The loader and the start of the runtime have read relocations and tables
 * that are hardly needed again. They come back from the file.
 */
static int drop(struct dl_phdr_info *info, const ElfW(Phdr) *p)
{
	uintptr_t begin = info->dlpi_addr + p->p_vaddr, page = (uintptr_t)sysconf(_SC_PAGESIZE);

	madvise((void *)(begin & ~(page - 1)), p->p_memsz + (begin & (page - 1)), MADV_DONTNEED);
	return 0;
}

void rocev2_forget(void)
{
	dl_iterate_phdr(look, &(struct parts){ 0, drop });
}
