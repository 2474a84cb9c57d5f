/* The functions that the library stands before. */
#include "preload.h"

#include <dlfcn.h>
#include <errno.h>

/*
 * glibc 2.34 moved these into libc under a new version. The old one is there
 * in every glibc.
 */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
#elif defined(__GLIBC__) && (defined(__aarch64__) || defined(__powerpc64__))
__asm__(".symver dlsym,dlsym@GLIBC_2.17");
__asm__(".symver dlopen,dlopen@GLIBC_2.17");
#endif

void *next_symbol(const char *name)
{
	int saved = errno;
	void *p = dlsym(RTLD_NEXT, name);

	errno = saved;
	return p;
}

void *library_symbol(const char *library, const char *name)
{
	void *lib = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);

	return lib ? dlsym(lib, name) : NULL;
}
