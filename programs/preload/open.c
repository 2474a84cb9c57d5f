/* Calls that open a path. */
#include "preload.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef open64
#undef openat64
#undef fopen64

/*
 * begin_open looks at a path. It returns true when the call is done, with its
 * result in *fd. Else the next function opens *path.
 */
static bool begin_open(const char **path, char room[PATH_ROOM], int flags, int *fd)
{
	const char *given = *path, *name;

	*path = redirect_open(given, room);
	*fd = -1;
	if (!*path)
		return given != NULL;
	name = device_of(given, *path);
	if (!name || (flags & O_PATH) == O_PATH || (flags & O_DIRECTORY) == O_DIRECTORY)
		return false;
	*fd = importing();
	if (*fd >= 0 && file_of(*fd) && strcmp(file_of(*fd)->name, name) == 0)
		import_opened();
	else
		*fd = wire_open(name, flags);
	return true;
}

static bool makes_file(int flags)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

#define MODE_OF(flags)                                                         \
	({                                                                     \
		mode_t m = 0;                                                  \
		if (makes_file(flags)) {                                       \
			va_list ap;                                            \
			va_start(ap, flags);                                   \
			m = (mode_t)va_arg(ap, unsigned);                      \
			va_end(ap);                                            \
		}                                                              \
		m;                                                             \
	})

EXPORT int open(const char *path, int flags, ...)
{
	char room[PATH_ROOM];
	mode_t mode = MODE_OF(flags);
	int fd;

	return begin_open(&path, room, flags, &fd) ? fd : NEXT(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...);

EXPORT int open64(const char *path, int flags, ...)
{
	char room[PATH_ROOM];
	mode_t mode = MODE_OF(flags);
	int fd;

	return begin_open(&path, room, flags, &fd) ? fd : NEXT(open64)(path, flags, mode);
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
	char room[PATH_ROOM];
	mode_t mode = MODE_OF(flags);
	int fd;

	return begin_open(&path, room, flags, &fd) ? fd : NEXT(openat)(dir, path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...);

EXPORT int openat64(int dir, const char *path, int flags, ...)
{
	char room[PATH_ROOM];
	mode_t mode = MODE_OF(flags);
	int fd;

	return begin_open(&path, room, flags, &fd) ? fd : NEXT(openat64)(dir, path, flags, mode);
}

/* What programs call that are compiled with _FORTIFY_SOURCE. */

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);

EXPORT int __open_2(const char *path, int flags)
{
	char room[PATH_ROOM];
	int fd;

	return begin_open(&path, room, flags, &fd) ? fd : NEXT(__open_2)(path, flags);
}

EXPORT int __open64_2(const char *path, int flags)
{
	char room[PATH_ROOM];
	int fd;

	return begin_open(&path, room, flags, &fd) ? fd : NEXT(__open64_2)(path, flags);
}

EXPORT int __openat_2(int dir, const char *path, int flags)
{
	char room[PATH_ROOM];
	int fd;

	return begin_open(&path, room, flags, &fd) ? fd : NEXT(__openat_2)(dir, path, flags);
}

EXPORT int __openat64_2(int dir, const char *path, int flags)
{
	char room[PATH_ROOM];
	int fd;

	return begin_open(&path, room, flags, &fd) ? fd : NEXT(__openat64_2)(dir, path, flags);
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
	char room[PATH_ROOM];
	const char *to = redirect_open(path, room);

	return !to && path ? NULL : NEXT(fopen)(to, mode);
}

FILE *fopen64(const char *path, const char *mode);

EXPORT FILE *fopen64(const char *path, const char *mode)
{
	char room[PATH_ROOM];
	const char *to = redirect_open(path, room);

	return !to && path ? NULL : NEXT(fopen64)(to, mode);
}

EXPORT DIR *opendir(const char *path)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? NULL : NEXT(opendir)(to);
}

EXPORT int scandir(const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
		   int (*compare)(const struct dirent **, const struct dirent **))
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(scandir)(to, list, filter, compare);
}

int scandir_64(const char *path, void *list, void *filter, void *compare) __asm__("scandir64");

EXPORT int scandir_64(const char *path, void *list, void *filter, void *compare)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT_NAMED("scandir64", scandir_64)(to, list, filter, compare);
}
