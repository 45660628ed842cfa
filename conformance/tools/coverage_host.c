/* coverage_host.c: the counters of ol-host and of the library that it loads go below its working
 * directory, the one place where its cage lets it write; see coverage_hooks.c. */
#include <stdlib.h>

__attribute__((constructor)) static void keep_counters_here(void) {
    (void)setenv("GCOV_PREFIX", ".", 1);
}
