/* What the cases have in common. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
	do {                                                                              \
		if (!(what)) {                                                            \
			fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #what, errno); \
			_exit(1);                                                         \
		}                                                                         \
	} while (0)

extern const char node[]; /* of the fake device */

void wait_for(pid_t pid); /* which ends with status 0 */

/* echo asks the adapter for v + 1, and reports whether that came. */
int echo(int fd, uint32_t v);

int make_channel(int fd);

/* ask writes a command of the fake adapter (adapter.c). */
ssize_t ask(int fd, uint32_t command, const volatile void *response, uint32_t value);

/* ---- strangers.c: signals, and threads with odd stacks ---- */

void case_deferred(void);
void case_actions(void);
void case_masks(void);
void case_faults(void);
void case_inner(void);
void case_pipe(void);
void case_stacks(void);
void case_restart(void);
void case_jump(void);
void case_early(void);
void case_handler(void);
void case_user(void);

#endif
