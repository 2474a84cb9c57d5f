/* Calls that look at a path or a file, but do not open it. */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
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
	    ((struct stat *)st)->st_ino == f->is.ino && ((struct stat *)st)->st_dev == f->is.dev)
		seem_device(st, f->major, f->minor);
	return result;
}

/* SEES is a function that looks at path, SEES_FILE at fd, SEES_AT at either. */

#define SEES(name, symbol, parameters, arguments)                              \
	EXPORT int name parameters                                             \
	{                                                                      \
		char room[PATH_ROOM];                                          \
		const char *to = redirect(path, room);                         \
                                                                               \
		return to || !path ? seen(NEXT_NAMED(symbol, name) arguments, path, to, st) : -1; \
	}

#define SEES_FILE(name, symbol, parameters, arguments)                         \
	EXPORT int name parameters                                             \
	{                                                                      \
		return seen_file(NEXT_NAMED(symbol, name) arguments, fd, st);  \
	}

#define SEES_AT(name, symbol, parameters, arguments)                           \
	EXPORT int name parameters                                             \
	{                                                                      \
		char room[PATH_ROOM];                                          \
		const char *to = redirect(path, room);                         \
		int result = to || !path ? NEXT_NAMED(symbol, name) arguments : -1; \
                                                                               \
		if (path && !*path && (flags & AT_EMPTY_PATH))                 \
			return seen_file(result, fd, st);                      \
		return seen(result, path, to, st);                             \
	}

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

SEES(stat, "stat", (const char *path, struct stat *st), (to, st))
SEES(lstat, "lstat", (const char *path, struct stat *st), (to, st))
SEES(stat_64, "stat64", (const char *path, void *st), (to, st))
SEES(lstat_64, "lstat64", (const char *path, void *st), (to, st))
SEES_FILE(fstat, "fstat", (int fd, struct stat *st), (fd, st))
SEES_FILE(fstat_64, "fstat64", (int fd, void *st), (fd, st))
SEES_AT(fstatat, "fstatat", (int fd, const char *path, struct stat *st, int flags), (fd, to, st, flags))
SEES_AT(fstatat_64, "fstatat64", (int fd, const char *path, void *st, int flags), (fd, to, st, flags))

/* Programs built for glibc before 2.33 call these. */

SEES(__xstat, "__xstat", (int v, const char *path, void *st), (v, to, st))
SEES(__lxstat, "__lxstat", (int v, const char *path, void *st), (v, to, st))
SEES(__xstat64, "__xstat64", (int v, const char *path, void *st), (v, to, st))
SEES(__lxstat64, "__lxstat64", (int v, const char *path, void *st), (v, to, st))
SEES_FILE(__fxstat, "__fxstat", (int v, int fd, void *st), (v, fd, st))
SEES_FILE(__fxstat64, "__fxstat64", (int v, int fd, void *st), (v, fd, st))
SEES_AT(__fxstatat, "__fxstatat", (int v, int fd, const char *path, void *st, int flags), (v, fd, to, st, flags))
SEES_AT(__fxstatat64, "__fxstatat64", (int v, int fd, const char *path, void *st, int flags), (v, fd, to, st, flags))

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
	if (f && (f->kind == VERBS || f->kind == CM) && st->ino == f->is.ino)
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
 * A user who sees a device file may try to open the device: the owner of the
 * port decides. The file itself, only the daemon may write. Programs (UCX) ask
 * whether they may, and do not see the device if not.
 */
static int openable(const char *path, const char *to, int mode)
{
	if ((mode & W_OK) && to && device_of(path, to))
		mode = (mode & ~W_OK) | R_OK;
	return mode;
}

PATH_CALL(int, -1, access, (const char *path, int mode), (to, openable(path, to, mode)))
PATH_CALL(int, -1, eaccess, (const char *path, int mode), (to, openable(path, to, mode)))
PATH_CALL(int, -1, euidaccess, (const char *path, int mode), (to, openable(path, to, mode)))
PATH_CALL(int, -1, faccessat, (int fd, const char *path, int mode, int flags), (fd, to, openable(path, to, mode), flags))

/* Shells and their tools look for these; ls -l for the attributes. */
PATH_CALL(int, -1, chdir, (const char *path), (to))
PATH_CALL(ssize_t, -1, getxattr, (const char *path, const char *name, void *value, size_t n), (to, name, value, n))
PATH_CALL(ssize_t, -1, lgetxattr, (const char *path, const char *name, void *value, size_t n), (to, name, value, n))
PATH_CALL(ssize_t, -1, listxattr, (const char *path, char *list, size_t n), (to, list, n))
PATH_CALL(ssize_t, -1, llistxattr, (const char *path, char *list, size_t n), (to, list, n))

ssize_t __readlink_chk(const char *path, char *buf, size_t n, size_t size);
ssize_t __readlinkat_chk(int fd, const char *path, char *buf, size_t n, size_t size);
char *__realpath_chk(const char *path, char *buf, size_t size);

PATH_CALL(ssize_t, -1, readlink, (const char *path, char *buf, size_t n), (to, buf, n))
PATH_CALL(ssize_t, -1, readlinkat, (int fd, const char *path, char *buf, size_t n), (fd, to, buf, n))
PATH_CALL(ssize_t, -1, __readlink_chk, (const char *path, char *buf, size_t n, size_t size), (to, buf, n, size))
PATH_CALL(ssize_t, -1, __readlinkat_chk, (int fd, const char *path, char *buf, size_t n, size_t size), (fd, to, buf, n, size))

/* What follows returns paths that begin with /sys again, and are not longer. */

EXPORT char *getcwd(char *buf, size_t n)
{
	char *found = NEXT(getcwd)(buf, n);

	undo_redirect(found);
	return found;
}

#define REAL_PATH(name, parameters, arguments)                                 \
	EXPORT char *name parameters                                           \
	{                                                                      \
		char room[PATH_ROOM];                                          \
		const char *to = redirect(path, room);                         \
		char *found = to || !path ? NEXT(name) arguments : NULL;       \
                                                                               \
		if (to != path)                                                \
			undo_redirect(found);                                  \
		return found;                                                  \
	}

REAL_PATH(realpath, (const char *path, char *buf), (to, buf))
REAL_PATH(__realpath_chk, (const char *path, char *buf, size_t size), (to, buf, size))

EXPORT char *canonicalize_file_name(const char *path)
{
	return realpath(path, NULL);
}
