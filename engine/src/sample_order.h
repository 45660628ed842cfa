/* sample_order.h: token ids in the order (t descending, id ascending), sorted no further than is
 * asked for.
 *
 * Top-k and top-p look at the head of that order only, and a comparison sort of a whole
 * vocabulary costs as much as a small model's step. Private to sample*.c. */
#ifndef TLI_SAMPLE_ORDER_H
#define TLI_SAMPLE_ORDER_H

#include "tl/base.h"

/* Ids fall into buckets of equal width by their distance from the top; a bucket is sorted when
 * the first of its ids is asked for. */
typedef struct tli_order {
    size_t n;         /* ids in the order: 0 to n - 1 */
    size_t n_buckets; /* at least 1 */
    const double *t;  /* [n] borrowed; no NaN, no +infinity; unchanged while the order is in use */
    uint32_t *ids;    /* [n] */
    uint32_t *spare;  /* [n] the other side of a merge */
    uint16_t *bucket_of;  /* [n] */
    uint32_t *bucket_end; /* [n_buckets] where a bucket's ids end in ids */
    size_t n_sorted;      /* ids[0] to ids[n_sorted - 1] stand as they will stay */
    size_t next_bucket;   /* the first that is not sorted */
} tli_order;

/* Take memory for n ids over t. False: refused, and *order is still to be cleared. */
bool tli_order_init(tli_order *order, const double *t, size_t n);
void tli_order_clear(tli_order *order);

/* Start again with the t of now, whose largest is `top` (finite). `reach`: a distance from the
 * top beyond which ids are not expected to matter, > 0; it has no influence on the order, only
 * on speed. */
void tli_order_begin(tli_order *order, double top, double reach);

/* The id at place i < n. */
uint32_t tli_order_at(tli_order *order, size_t i);

/* The order itself: whether id a stands before id b. */
bool tli_order_before(const double *t, uint32_t a, uint32_t b);

#endif
