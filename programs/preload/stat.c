/* Calls that look at a path or a file. */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>


/* A struct stat is the same in all of these calls where off_t has 64 bits. */
_Static_assert(sizeof(off_t) == 8, "build with 64-bit off_t");

static void seem_device(struct stat *st, unsigned major, unsigned minor)
{
	st->st_mode = S_IFCHR | 0666;
	st->st_rdev = makedev(major, minor);
	st->st_size = 0;
	st->st_blocks = 0;
}

/* seen mends what was found about a path. */
static int seen(int result, const char *path, const char *to, void *st)
{
	const char *name = result == 0 ? device_of(path, to) : NULL;
	unsigned major, minor;

	if (name && device_number(name, &major, &minor))
		seem_device(st, major, minor);
	return result;
}

static int seen_file(int result, int fd, void *st)
{
	struct file *f = result == 0 ? file_of(fd) : NULL;

	if (f && (f->kind == VERBS || f->kind == CM) &&
	    ((struct stat *)st)->st_ino == f->ino && ((struct stat *)st)->st_dev == f->dev)
		seem_device(st, f->major, f->minor);
	return result;
}

#define BY_PATH(call)                                                          \
	do {                                                                   \
		char room[PATH_ROOM];                                          \
		const char *to = redirect(path, room);                         \
		if (!to && path)                                               \
			return -1;                                             \
		return seen(call, path, to, st);                               \
	} while (0)

#define BY_FILE(call)                                                          \
	do {                                                                   \
		if (path && !*path && (flags & AT_EMPTY_PATH))                 \
			return seen_file(call, fd, st);                        \
	} while (0)

int stat_64(const char *path, void *st) __asm__("stat64");
int lstat_64(const char *path, void *st) __asm__("lstat64");
int fstat_64(int fd, void *st) __asm__("fstat64");
int fstatat_64(int fd, const char *path, void *st, int flags) __asm__("fstatat64");
int __xstat(int version, const char *path, void *st);
int __lxstat(int version, const char *path, void *st);
int __fxstat(int version, int fd, void *st);
int __fxstatat(int version, int fd, const char *path, void *st, int flags);
int __xstat64(int version, const char *path, void *st);
int __lxstat64(int version, const char *path, void *st);
int __fxstat64(int version, int fd, void *st);
int __fxstatat64(int version, int fd, const char *path, void *st, int flags);

EXPORT int stat(const char *path, struct stat *st) { BY_PATH(NEXT(stat)(to, st)); }
EXPORT int lstat(const char *path, struct stat *st) { BY_PATH(NEXT(lstat)(to, st)); }
EXPORT int stat_64(const char *path, void *st) { BY_PATH(NEXT_NAMED("stat64", stat_64)(to, st)); }
EXPORT int lstat_64(const char *path, void *st) { BY_PATH(NEXT_NAMED("lstat64", lstat_64)(to, st)); }

EXPORT int fstat(int fd, struct stat *st) { return seen_file(NEXT(fstat)(fd, st), fd, st); }
EXPORT int fstat_64(int fd, void *st) { return seen_file(NEXT_NAMED("fstat64", fstat_64)(fd, st), fd, st); }

EXPORT int fstatat(int fd, const char *path, struct stat *st, int flags)
{
	BY_FILE(NEXT(fstatat)(fd, path, st, flags));
	BY_PATH(NEXT(fstatat)(fd, to, st, flags));
}

EXPORT int fstatat_64(int fd, const char *path, void *st, int flags)
{
	BY_FILE(NEXT_NAMED("fstatat64", fstatat_64)(fd, path, st, flags));
	BY_PATH(NEXT_NAMED("fstatat64", fstatat_64)(fd, to, st, flags));
}

/* Programs built for glibc before 2.33 call these. */

EXPORT int __xstat(int v, const char *path, void *st) { BY_PATH(NEXT(__xstat)(v, to, st)); }
EXPORT int __lxstat(int v, const char *path, void *st) { BY_PATH(NEXT(__lxstat)(v, to, st)); }
EXPORT int __xstat64(int v, const char *path, void *st) { BY_PATH(NEXT(__xstat64)(v, to, st)); }
EXPORT int __lxstat64(int v, const char *path, void *st) { BY_PATH(NEXT(__lxstat64)(v, to, st)); }

EXPORT int __fxstat(int v, int fd, void *st)
{
	return seen_file(NEXT(__fxstat)(v, fd, st), fd, st);
}

EXPORT int __fxstat64(int v, int fd, void *st)
{
	return seen_file(NEXT(__fxstat64)(v, fd, st), fd, st);
}

EXPORT int __fxstatat(int v, int fd, const char *path, void *st, int flags)
{
	BY_FILE(NEXT(__fxstatat)(v, fd, path, st, flags));
	BY_PATH(NEXT(__fxstatat)(v, fd, to, st, flags));
}

EXPORT int __fxstatat64(int v, int fd, const char *path, void *st, int flags)
{
	BY_FILE(NEXT(__fxstatat64)(v, fd, path, st, flags));
	BY_PATH(NEXT(__fxstatat64)(v, fd, to, st, flags));
}

/* The kernel's struct statx, as far as it matters here. */
struct seen {
	uint8_t before[28];
	uint16_t mode, gap;
	uint64_t ino, size, blocks;
	uint8_t gap2[72];
	uint32_t rdev_major, rdev_minor;
};

_Static_assert(offsetof(struct seen, rdev_major) == 128, "layout");

int stat_x(int fd, const char *path, int flags, unsigned mask, struct seen *st) __asm__("statx");

EXPORT int stat_x(int fd, const char *path, int flags, unsigned mask, struct seen *st)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room), *name;
	struct file *f = path && !*path ? file_of(fd) : NULL;
	unsigned major, minor;
	int result;

	if (!to && path)
		return -1;
	result = NEXT_NAMED("statx", stat_x)(fd, to, flags, mask, st);
	if (result != 0)
		return result;
	name = to ? device_of(path, to) : NULL;
	if (f && (f->kind == VERBS || f->kind == CM) && st->ino == f->ino)
		name = f->name;
	if (!name || !device_number(name, &major, &minor))
		return result;
	st->mode = S_IFCHR | 0666;
	st->rdev_major = major;
	st->rdev_minor = minor;
	st->size = 0;
	st->blocks = 0;
	return result;
}

/*
 * Whoever may write the file in the daemon's directory may use the device; the
 * daemon looks again.
 */
EXPORT int access(const char *path, int mode)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(access)(to, mode);
}

EXPORT int eaccess(const char *path, int mode)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(eaccess)(to, mode);
}

EXPORT int euidaccess(const char *path, int mode)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(euidaccess)(to, mode);
}

EXPORT int faccessat(int fd, const char *path, int mode, int flags)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(faccessat)(fd, to, mode, flags);
}

EXPORT ssize_t readlink(const char *path, char *buf, size_t n)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(readlink)(to, buf, n);
}

EXPORT ssize_t readlinkat(int fd, const char *path, char *buf, size_t n)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(readlinkat)(fd, to, buf, n);
}

ssize_t __readlink_chk(const char *path, char *buf, size_t n, size_t size);
char *__realpath_chk(const char *path, char *buf, size_t size);

EXPORT ssize_t __readlink_chk(const char *path, char *buf, size_t n, size_t size)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(__readlink_chk)(to, buf, n, size);
}

ssize_t __readlinkat_chk(int fd, const char *path, char *buf, size_t n, size_t size);

EXPORT ssize_t __readlinkat_chk(int fd, const char *path, char *buf, size_t n, size_t size)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(__readlinkat_chk)(fd, to, buf, n, size);
}

/* The result begins with /sys again. It is not longer than before. */
EXPORT char *realpath(const char *path, char *buf)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);
	char *found;

	if (!to && path)
		return NULL;
	found = NEXT(realpath)(to, buf);
	if (to != path)
		undo_redirect(found);
	return found;
}

EXPORT char *__realpath_chk(const char *path, char *buf, size_t size)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);
	char *found;

	if (!to && path)
		return NULL;
	found = NEXT(__realpath_chk)(to, buf, size);
	if (to != path)
		undo_redirect(found);
	return found;
}

EXPORT char *canonicalize_file_name(const char *path)
{
	return realpath(path, NULL);
}
