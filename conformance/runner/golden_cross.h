/* golden_cross.h: what the keys of a case must be to each other: lengths, models that exist, steps
 * that refer to earlier ones. Private to the golden checks. */
#ifndef OL_GOLDEN_CROSS_H
#define OL_GOLDEN_CROSS_H

#include "source.h"

/* The case is well formed key by key. false with what is wrong. */
bool golden_cross_check(const ol_source *source, const char *suite, const char *group,
                        const json_t *body, char *what, size_t cap);

#endif
