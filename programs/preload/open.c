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

	*path = redirect(given, room);
	*fd = -1;
	if (!*path)
		return given != NULL;
	name = device_of(given, *path);
	if (!name || (flags & O_PATH) == O_PATH || (flags & O_DIRECTORY) == O_DIRECTORY)
		return false;
	*fd = device_open(name, *path, flags);
	return true;
}

static bool makes_file(int flags)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

/* OPENS is a function that opens path with flags. */
#define OPENS(name, parameters, arguments)                                     \
	EXPORT int name parameters                                             \
	{                                                                      \
		char room[PATH_ROOM];                                          \
		int fd;                                                        \
                                                                               \
		return begin_open(&path, room, flags, &fd) ? fd : NEXT(name) arguments; \
	}

/* OPENS_WITH_MODE is one that may get a mode, too. */
#define OPENS_WITH_MODE(name, parameters, arguments)                           \
	EXPORT int name parameters                                             \
	{                                                                      \
		char room[PATH_ROOM];                                          \
		mode_t mode = 0;                                               \
		int fd;                                                        \
                                                                               \
		if (makes_file(flags)) {                                       \
			va_list ap;                                            \
			va_start(ap, flags);                                   \
			mode = (mode_t)va_arg(ap, unsigned);                   \
			va_end(ap);                                            \
		}                                                              \
		return begin_open(&path, room, flags, &fd) ? fd : NEXT(name) arguments; \
	}

int open64(const char *path, int flags, ...);
int openat64(int dir, const char *path, int flags, ...);

OPENS_WITH_MODE(open, (const char *path, int flags, ...), (path, flags, mode))
OPENS_WITH_MODE(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENS_WITH_MODE(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
OPENS_WITH_MODE(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))

/* What programs call that are compiled with _FORTIFY_SOURCE. */

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);

OPENS(__open_2, (const char *path, int flags), (path, flags))
OPENS(__open64_2, (const char *path, int flags), (path, flags))
OPENS(__openat_2, (int dir, const char *path, int flags), (dir, path, flags))
OPENS(__openat64_2, (int dir, const char *path, int flags), (dir, path, flags))

/* Of libc's own: no device is read so. */

FILE *fopen64(const char *path, const char *mode);

PATH_CALL(FILE *, NULL, fopen, (const char *path, const char *mode), (to, mode))
PATH_CALL(FILE *, NULL, fopen64, (const char *path, const char *mode), (to, mode))
PATH_CALL(DIR *, NULL, opendir, (const char *path), (to))
PATH_CALL(int, -1, scandir,
	  (const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
	   int (*compare)(const struct dirent **, const struct dirent **)),
	  (to, list, filter, compare))

int scandir_64(const char *path, void *list, void *filter, void *compare) __asm__("scandir64");

EXPORT int scandir_64(const char *path, void *list, void *filter, void *compare)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return to || !path ? NEXT_NAMED("scandir64", scandir_64)(to, list, filter, compare) : -1;
}
