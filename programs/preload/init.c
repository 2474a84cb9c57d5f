/* What happens when the library is loaded. */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Tests and the tool find out which source a library was built from. */
#ifndef SOURCE_HASH
#define SOURCE_HASH "unknown"
#endif
__attribute__((used)) static const char source[] = "rocev2-preload-source:" SOURCE_HASH;

/*
 * A signal handler may call these. They are looked up before there is one: the
 * look-up may allocate memory. The calls themselves fail, or do nothing.
 */
static void look_up(void)
{
	int saved = errno;

	(void)!write(-1, "", 0);
	(void)!read(-1, (char[1]){ 0 }, 0);
	close(-1);
	dup(-1);
	dup2(-1, -1);
	fcntl(-1, F_GETFD);
	(void)!access("", F_OK);
	open("", O_RDONLY);
	errno = saved;
}

__attribute__((constructor)) static void loaded(void)
{
	paths_init();
	files_init();
	look_up();
}
