/* What the memory of the process consists of, as /proc has it. */
#include "preload.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

const char memfd_name[] = "rocev2-shared";

static const char *hex(const char *p, uint64_t *v)
{
	for (*v = 0;; p++) {
		if (*p >= '0' && *p <= '9')
			*v = *v * 16 + (uint64_t)(*p - '0');
		else if (*p >= 'a' && *p <= 'f')
			*v = *v * 16 + (uint64_t)(*p - 'a' + 10);
		else
			return p;
	}
}

/* START-END RIGHTS OFFSET MAJOR:MINOR INODE NAME */
static bool parse_map(const char *line, struct map *m)
{
	uint64_t device;
	const char *p = hex(line, &m->at.start);

	if (*p != '-')
		return false;
	p = hex(p + 1, &m->at.end);
	if (*p != ' ' || strlen(p) < 6)
		return false;
	memcpy(m->rights, p + 1, 4);
	p = hex(p + 6, &m->offset);
	p = hex(p + 1, &device);
	p = hex(*p ? p + 1 : p, &device);
	for (m->ino = 0; *p == ' '; p++)
		;
	for (; *p >= '0' && *p <= '9'; p++)
		m->ino = m->ino * 10 + (uint64_t)(*p - '0');
	while (*p == ' ')
		p++;
	m->named = *p != 0;
	m->shared = strncmp(p, "/memfd:", 7) == 0 && strncmp(p + 7, memfd_name, sizeof memfd_name - 1) == 0;
	return true;
}

bool each_map(map_visit *visit, void *arg)
{
	char buf[4096 + 1];
	size_t have = 0;
	bool more = true;
	ssize_t n;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return false;
	while (more && (n = syscall(SYS_read, fd, buf + have, sizeof buf - 1 - have)) > 0) {
		char *line = buf, *end;

		have += (size_t)n;
		buf[have] = 0;
		while (more && (end = strchr(line, '\n'))) {
			struct map m;

			*end = 0;
			if (parse_map(line, &m))
				more = visit(&m, arg);
			line = end + 1;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == sizeof buf - 1)
			have = 0; /* a very long name */
	}
	syscall(SYS_close, fd);
	return true;
}

typedef bool map_test(const struct map *m, const void *arg);

struct wanted_maps {
	struct span at;
	uint64_t reached;
	map_test *test;
	const void *arg;
	bool good;
};

static bool see_wanted(const struct map *m, void *arg)
{
	struct wanted_maps *w = arg;

	if (m->at.start < w->at.end && w->at.start < m->at.end) {
		w->good = m->at.start <= w->reached && w->test(m, w->arg);
		w->reached = m->at.end;
	}
	return w->good && w->reached < w->at.end;
}

/* all_maps reports whether all of a span is mapped as test demands. */
static bool all_maps(struct span s, map_test *test, const void *arg)
{
	struct wanted_maps w = { s, s.start, test, arg, true };

	return each_map(see_wanted, &w) && w.good && w.reached >= s.end;
}

struct rights {
	bool write;
};

static bool has_rights(const struct map *m, const void *arg)
{
	const struct rights *r = arg;

	return m->rights[0] == 'r' && (!r->write || m->rights[1] == 'w');
}

static bool see_nothing(const struct map *m, void *arg)
{
	(void)m;
	(void)arg;
	return false;
}

bool maps_seen(void)
{
	return each_map(see_nothing, NULL);
}

bool pages_there(uint64_t start, uint64_t length, bool write)
{
	struct span s = { start, start + length };
	struct rights r = { write };

	if (s.end < s.start)
		return false;
	return s.end == s.start || all_maps(s, has_rights, &r) || !maps_seen();
}
