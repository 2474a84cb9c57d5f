/* The functions that the library stands before. */
#include "preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/*
 * In glibc before 2.36, RTLD_NEXT finds the oldest version of a symbol. Of the
 * functions that the library stands before, libc has several versions of this
 * one only.
 */
static void *newest(const char *name)
{
#ifdef __GLIBC__
	if (strcmp(name, "realpath") == 0)
		return dlvsym(RTLD_NEXT, name, "GLIBC_2.3");
#else
	(void)name;
#endif
	return NULL;
}

void *next_symbol(const char *name)
{
	int saved = errno;
	void *p = newest(name);

	if (!p)
		p = dlsym(RTLD_NEXT, name);
	errno = saved;
	return p;
}

/* The linker puts the entries of all files one after the other. */
extern struct next __start_next_table[] __attribute__((visibility("hidden")));
extern struct next __stop_next_table[] __attribute__((visibility("hidden")));

void next_look_up(void)
{
	for (struct next *n = __start_next_table; n < __stop_next_table; n++)
		atomic_store_explicit(&n->found, next_symbol(n->called), memory_order_relaxed);
	dlerror(); /* what this libc lacks is no error that the program looks for */
}

void *library_symbol(const char *library, const char *name)
{
	void *lib = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);

	return lib ? dlsym(lib, name) : NULL;
}

void *verbs_function(_Atomic(void *) *found, const char *name)
{
	void *p = atomic_load(found);

	if (!p) {
		p = library_symbol("libibverbs.so.1", name); /* the newest version */
		if (!p)
			p = next_symbol(name);
		atomic_store(found, p);
	}
	return p;
}
