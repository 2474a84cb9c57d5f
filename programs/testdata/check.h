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

/* reg_mr registers memory: 1 if the daemon has ever mapped some of it. */
int reg_mr(int fd, void *p, size_t n);

/* in_daemon is a byte of what the daemon has mapped last. */
int in_daemon(int fd, uint32_t at);

/* ---- crowd.c: pages of processes with threads ---- */

void case_crowd(void);
void case_held(void);
void case_grown(void);

#endif
