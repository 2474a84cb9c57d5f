/* Calls that shells and their tools make on a path. */
#include "preload.h"

#include <sys/xattr.h>
#include <unistd.h>

EXPORT int chdir(const char *path)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(chdir)(to);
}

/* The result begins with /sys again. It is not longer than before. */
EXPORT char *getcwd(char *buf, size_t n)
{
	char *found = NEXT(getcwd)(buf, n);

	undo_redirect(found);
	return found;
}

/* ls -l asks for them. */

EXPORT ssize_t getxattr(const char *path, const char *name, void *value, size_t n)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(getxattr)(to, name, value, n);
}

EXPORT ssize_t lgetxattr(const char *path, const char *name, void *value, size_t n)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(lgetxattr)(to, name, value, n);
}

EXPORT ssize_t listxattr(const char *path, char *list, size_t n)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(listxattr)(to, list, n);
}

EXPORT ssize_t llistxattr(const char *path, char *list, size_t n)
{
	char room[PATH_ROOM];
	const char *to = redirect(path, room);

	return !to && path ? -1 : NEXT(llistxattr)(to, list, n);
}
