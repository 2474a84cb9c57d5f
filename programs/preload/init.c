/* What happens when the library is loaded. */
#include "preload.h"

/* Tests and the tool find out which source a library was built from. */
#ifndef SOURCE_HASH
#define SOURCE_HASH "unknown"
#endif
__attribute__((used)) static const char source[] = "rocev2-preload-source:" SOURCE_HASH;

__attribute__((constructor)) static void loaded(void)
{
	paths_init();
	files_init();
	next_look_up();
}
