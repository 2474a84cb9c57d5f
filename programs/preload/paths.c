/* Which paths are those of RDMA devices, and where the daemon has them. */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const char default_dir[] = "/run/rocev2";

static char dir[PATH_MAX / 2];
static size_t dir_len;
static bool named;
static atomic_bool ready, answered;

/*
 * /etc/ld.so.preload loads the library into setuid programs, too. Those must
 * not trust a daemon that the user who starts them has named.
 */
void paths_init(void)
{
	const char *set;

	if (atomic_load(&ready))
		return;
	set = secure_getenv("ROCEV2_PROGRAMS");
	named = set && *set;
	if (!named)
		set = default_dir;
	dir_len = strlen(set);
	if (dir_len >= sizeof dir || *set != '/')
		dir_len = 0;
	memcpy(dir, set, dir_len);
	while (dir_len > 1 && dir[dir_len - 1] == '/')
		dir_len--;
	dir[dir_len] = 0;
	atomic_store(&ready, true);
}

const char *paths_dir(void)
{
	return dir;
}

/*
 * Without a daemon at the default directory the library stays out of the way.
 */
static bool active(void)
{
	char path[sizeof dir + 16];
	int saved = errno;

	paths_init();
	if (!dir_len)
		return false;
	if (named || atomic_load(&answered))
		return true;
	snprintf(path, sizeof path, "%s/socket", dir);
	if (syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0)
		atomic_store(&answered, true);
	errno = saved;
	return atomic_load(&answered);
}

/* connect_to connects to the daemon: -1 where none listens. */
static int connect_to(void)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd = -1;

	if ((size_t)snprintf(to.sun_path, sizeof to.sun_path, "%s/socket", dir) < sizeof to.sun_path)
		fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0 && syscall(SYS_connect, fd, &to, sizeof to) != 0) {
		syscall(SYS_close, fd);
		fd = -1;
	}
	return fd;
}

/*
 * await_tree waits until a daemon that has just begun shows its devices: it
 * then answers the process that has connected. One that is stopped may have
 * begun as well.
 */
static void await_tree(void)
{
	static atomic_bool seen;
	struct timespec most = { 10, 0 };
	char path[sizeof dir + 16];
	int saved = errno;

	if (atomic_load(&seen))
		return;
	snprintf(path, sizeof path, "%s/sys", dir);
	if (syscall(SYS_faccessat, AT_FDCWD, path, F_OK) != 0) {
		struct pollfd p = { .fd = connect_to(), .events = POLLIN };

		if (p.fd >= 0) {
			syscall(SYS_ppoll, &p, 1, &most, NULL, 0); /* a signal may end it */
			syscall(SYS_close, p.fd);
		}
	} else {
		atomic_store(&seen, true);
	}
	errno = saved;
}

static const char device_dir[] = "/dev/infiniband";

static const char *const roots[] = {
	"/sys/class/infiniband", "/sys/class/infiniband_verbs",
	"/sys/class/infiniband_mad", "/sys/class/infiniband_cm",
	"/sys/class/misc/rdma_cm", device_dir,
};

/*
 * below returns what follows root in path, or NULL. More than one slash counts
 * as one.
 */
static const char *below(const char *path, const char *root)
{
	while (*root) {
		if (*path != *root)
			return NULL;
		if (*path == '/')
			while (path[1] == '/')
				path++;
		path++;
		root++;
	}
	return *path == 0 || *path == '/' ? path : NULL;
}

const char *redirect(const char *path, char room[PATH_ROOM])
{
	const char *rest = NULL;
	size_t i, n;

	if (!path || path[0] != '/')
		return path;
	for (i = 0; i < sizeof roots / sizeof *roots && !rest; i++)
		rest = below(path, roots[i]);
	if (!rest || !active())
		return path;
	await_tree();
	n = strlen(roots[i - 1]);
	if (dir_len + n + strlen(rest) >= PATH_ROOM) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	memcpy(room, dir, dir_len);
	memcpy(room + dir_len, roots[i - 1], n);
	strcpy(room + dir_len + n, rest);
	return room;
}

/* A link stands for a device that is not ours. */
static bool plain_file(const char *path)
{
	struct stat st;
	int saved = errno;
	bool plain = syscall(
#ifdef SYS_newfstatat
			     SYS_newfstatat,
#else
			     SYS_fstatat64,
#endif
			     AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		     S_ISREG(st.st_mode);

	errno = saved;
	return plain;
}

const char *device_of(const char *path, const char *redirected)
{
	const char *rest;
	unsigned major, minor;

	if (path == redirected)
		return NULL;
	rest = below(path, device_dir);
	if (!rest)
		return NULL;
	while (*rest == '/')
		rest++;
	if (!device_number(rest, &major, &minor) || !plain_file(redirected))
		return NULL;
	return rest;
}

bool device_number(const char *name, unsigned *major, unsigned *minor)
{
	static const char verbs[] = "uverbs";
	unsigned n = 0, digits = 0;

	if (strcmp(name, "rdma_cm") == 0) {
		*major = 10;
		*minor = 122;
		return true;
	}
	if (strncmp(name, verbs, sizeof verbs - 1) != 0)
		return false;
	for (name += sizeof verbs - 1; *name >= '0' && *name <= '9' && digits < 4; name++, digits++)
		n = n * 10 + (unsigned)(*name - '0');
	*major = 231;
	*minor = 192 + n;
	return digits > 0 && *name == 0;
}

void undo_redirect(char *path)
{
	size_t n = dir_len;

	if (!path || !n || strncmp(path, dir, n) != 0)
		return;
	for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
		if (below(path + n, roots[i])) {
			memmove(path, path + n, strlen(path + n) + 1);
			return;
		}
}
