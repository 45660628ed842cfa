/* tool.h: run a compiler or linker over what a learner wrote, in a cage: it can read the given
 * headers and the system, not the goldens (`.incbin` and `#include` read files, too). */
#ifndef OL_TOOL_H
#define OL_TOOL_H

#include "sandbox.h"

/* Run argv (a path first) in cage->dir and wait. What it prints, both outputs together, is put into
 * `text`, cut at cap. The exit status, or -1 with the reason in text: killed, out of time, not
 * started. */
int ol_tool_run(const ol_cage *cage, char *const argv[], double wall_s, char *text, size_t cap);

#endif
