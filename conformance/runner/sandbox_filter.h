/* sandbox_filter.h: the two kernel filters of the cage, seccomp and Landlock. Private to the
 * sandbox. */
#ifndef OL_SANDBOX_FILTER_H
#define OL_SANDBOX_FILTER_H

#include "sandbox.h"

/* Load the system-call filter; NULL, or a word for the step that failed. exec passes for the
 * pathname pointer `path` alone, or for any with may_exec; may_fork lets second processes and
 * ptrace pass, too. */
const char *ol_filter_load(bool may_fork, bool may_exec, const char *path);

int ol_landlock_abi(void); /* 0 when the kernel has none */
const char *ol_landlock_enter(const ol_cage *cage);

bool ol_path_holds(const char *folder, const char *path);

#endif
