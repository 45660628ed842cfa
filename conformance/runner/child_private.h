/* child_private.h: what the three files of child.h share. */
#ifndef OL_CHILD_PRIVATE_H
#define OL_CHILD_PRIVATE_H

#include "child.h"

/* What the pump waits for. */
typedef enum child_wait {
    CHILD_WAIT_ANSWER = 0,
    CHILD_WAIT_END = 1,
} child_wait;

/* Move bytes until the whole answer is in `frame` (CHILD_WAIT_ANSWER) or the process has ended and
 * every pipe is drained (CHILD_WAIT_END). false: an event is set. */
bool child_pump(ol_child *child, child_wait what, const uint8_t *send, size_t n_send,
                ol_wire_buf *frame);

/* child_watch.c: clocks, memory, the end of a process. */
bool child_sample(ol_child *child);     /* false: a limit is reached, an event is set */
bool child_has_ended(ol_child *child);  /* without reaping it */
void child_kill(const ol_child *child); /* the process and its group */
void child_reap(
    ol_child *child); /* wait for it; name its end when no event is set and it was not clean */
void child_close(int *fd);
uint64_t child_cpu_ns(const ol_child *child); /* of all children of the test up to now */

#endif
