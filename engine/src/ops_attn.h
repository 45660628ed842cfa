/* ops_attn.h: the two inner loops of attention that tl/ops.h has no name for.
 *
 * tl/ops.h is the small frozen face of ops (its dot, softmax and axpy are enough to write
 * attention); these give the same bits for a tile of query rows at a time, which is what makes a
 * prefill fast.
 *
 * Private, but given to learners as it is; never graded. Source: conformance/spec/forward.md,
 * clause attention. */
#ifndef TLI_OPS_ATTN_H
#define TLI_OPS_ATTN_H

#include "tl/ops.h"

/* s[i * lds + j] = tl_ops_dot(q row i, k row j) * scale.
 * q [m, d] f32, k [n, d] f32, s: m rows lds apart, n of each written. */
void tli_ops_scores(const tl_work *work, const float *q, size_t m, const float *k, size_t n,
                    size_t d, float scale, float *s, size_t lds);

/* Go on with the chain of every output: o[i, c] = fma(p[i * ldp + j], v[j, c], o[i, c]) for j = 0
 * .. n - 1. v [n, d] f32, o [m, d] f32. */
void tli_ops_values(const tl_work *work, const float *p, size_t ldp, size_t m, const float *v,
                    size_t n, size_t d, float *o);

/* y[i] = x[i] / z. y may be x. */
void tli_ops_divide(const tl_work *work, const float *x, float z, size_t n, float *y);

#endif
