/* profile.h: how wrong a result is along its index, in a few numbers, for the picture in a report.
 *
 * The index is cut into at most 64 stretches; each keeps its largest error. Made only for a
 * comparison that does not hold. */
#ifndef OL_PROFILE_H
#define OL_PROFILE_H

#include "compare.h"

#include <jansson.h>

/* {"unit": "allowed"|"ulp"|"differs", "n": elements, "values": [...]}: ratios to what is allowed,
 * distances in ulp, or the share of elements that differ; null where a value is not finite. NULL
 * when the lengths differ, when there are fewer than 4 elements, or without memory. */
json_t *ol_profile_bits(ol_type type, const void *got, size_t n_got, const void *want,
                        size_t n_want);
json_t *ol_profile_max_abs(const float *got, size_t n_got, const float *want, size_t n_want,
                           double allowed);
json_t *ol_profile_within(const float *got, size_t n_got, const double *want, const double *allowed,
                          size_t n_want);

#endif
