/* ops.h: the tensor operations that the other modules stand on, in the one order of sums that the
 * whole engine keeps, so that no result depends on batch, threads or instruction set.
 *
 * dot(a, b) is 8 lanes that start from +0; lane k % 8 takes fma(a[k], b[k], lane) with k
 * ascending; then ((0+4)+(2+6)) + ((1+5)+(3+7)). Every kernel here, of any instruction set, gives
 * the bits of that loop.
 *
 * The functions tl_ops_... are the inner loop: they check nothing, not for NULL either. What they
 * demand is stated, and the modules above (quant, model, forward) check it once for each call.
 *
 * Source: conformance/spec/forward.md, clauses dot to silu. */
#ifndef TL_OPS_H
#define TL_OPS_H

#include "tl/base.h"

/* Which kernels to use. AUTO takes the best that this CPU has. The result is the same for all. */
typedef enum tl_isa {
    TL_ISA_AUTO = 0,
    TL_ISA_PORTABLE = 1,
    TL_ISA_AVX2 = 2, /* x86 with AVX2, FMA and F16C */
    TL_ISA_AVX512 = 3,
    TL_ISA_NEON = 4
} tl_isa;

/* How the elements of a weight matrix lie in memory: little-endian, unaligned. */
typedef enum tl_matrix_kind {
    TL_MATRIX_F32 = 1,
    TL_MATRIX_F16 = 2,
    TL_MATRIX_BF16 = 3,
    TL_MATRIX_INT4 = 4
} tl_matrix_kind;

/* A weight matrix W [n_out, n_in], row-major, borrowed. Widening to f32 is exact for all four
 * kinds. */
typedef struct tl_matrix {
    tl_matrix_kind kind;
    size_t n_out, n_in;
    /* Dense: n_out * n_in elements. INT4: [n_out, n_in / 2] bytes, low nibble first. */
    const uint8_t *data;
    const uint8_t *scales; /* INT4: [n_out, n_in / group] f16; else NULL */
    size_t group;          /* INT4: columns a scale, even, divides n_in; else 0 */
} tl_matrix;

/* One thread's working memory: the chosen kernels and room to widen a few rows of a matrix.
 * Takes 64 * (max_n_in + 16) * 4 bytes + 4 KiB at most. */
typedef struct tl_work tl_work;

TL_BEGIN_DECLS

/* "auto", "portable", "avx2", "avx512", "neon", or "unknown". */
const char *tl_isa_name(tl_isa isa);

/* What `isa` means on this CPU, now: never AUTO. UNSUPPORTED: this CPU or build does not have it.
 * INVALID: no such value. */
TL_MUST_USE tl_status tl_isa_resolve(tl_isa isa, tl_isa *resolved, tl_error *err);

/* max_n_in: the longest row (n_in) that this thread will widen or multiply, at least 1.
 * INVALID: max_n_in is 0, no such isa. UNSUPPORTED: this CPU or build does not have it. NOMEM. */
TL_MUST_USE tl_status tl_work_new(tl_work **out, tl_isa isa, size_t max_n_in, tl_error *err);
void tl_work_free(tl_work *work);
tl_isa tl_work_isa(const tl_work *work);      /* resolved, never AUTO; AUTO for NULL */
size_t tl_work_max_n_in(const tl_work *work); /* 0 for NULL */

/* dot(a, b) over n elements. */
float tl_ops_dot(const tl_work *work, const float *a, const float *b, size_t n);

/* Columns [row_begin, row_end) of y = x W^T: each output is one dot of a row of x with a widened
 * row of W.
 * x  [m, n_in]   f32, read
 * y  [m, n_out]  f32; only the columns row_begin to row_end - 1 are written
 * Demands n_in <= tl_work_max_n_in(work) and row_begin <= row_end <= n_out. */
void tl_ops_matmul(tl_work *work, const tl_matrix *w, size_t row_begin, size_t row_end,
                   const float *x, size_t m, float *y);

/* Row `row` of W, widened: y [n_in] f32. */
void tl_ops_widen_row(const tl_work *work, const tl_matrix *w, size_t row, float *y);

/* y = (x * r) * w with r = 1 / sqrtf(dot(x, x) / d + eps). x, w, y [d] f32; y may be x. */
void tl_ops_rmsnorm(const tl_work *work, const float *x, const float *w, size_t d, float eps,
                    float *y);

/* cos and sin of the half = head_dim / 2 angles f32(position) * inv_freq[i] (a product in f32),
 * each computed in f64 and rounded once to f32. inv_freq, c, s [half] f32. */
void tl_ops_rope_angles(size_t position, const float *inv_freq, size_t half, float *c, float *s);

/* inv_freq[i] = theta^(-2i / head_dim), in f64, rounded once to f32. inv_freq [head_dim / 2]. */
void tl_ops_rope_inv_freq(double theta, size_t head_dim, float *inv_freq);

/* Rotate the pairs (i, i + half) of one head in place: y1 = x1*c - x2*s, y2 = x2*c + x1*s, each
 * product rounded, then the sum. x [2 * half] f32. */
void tl_ops_rope(const tl_work *work, float *x, size_t half, const float *c, const float *s);

/* exp to at most 1 ulp on [-87, 88]; below: +0; above: infinity; NaN stays NaN; exp(+-0) = 1. */
float tl_ops_exp(float x);

/* In place x[j] = exp(x[j] - max(x)), and return their sum in lanes j % 8 and the tree of dot.
 * n >= 1. */
float tl_ops_softmax_exp(const tl_work *work, float *x, size_t n);

/* y[i] = (g[i] / (1 + exp(-g[i]))) * u[i]. All [n] f32; y may be g or u. */
void tl_ops_silu_mul(const tl_work *work, const float *g, const float *u, size_t n, float *y);

/* y[i] = fma(a, x[i], y[i]). x, y [n] f32. One step of the chain that sums the values of
 * attention. */
void tl_ops_axpy(const tl_work *work, float a, const float *x, size_t n, float *y);

/* The same in f16 storage: widen n values exactly, or round n values to nearest, ties to even. The
 * 16-bit side is bit patterns in the machine's order. */
void tl_ops_f16_widen(const tl_work *work, const uint16_t *h, size_t n, float *x);
void tl_ops_f16_round(const tl_work *work, const float *x, size_t n, uint16_t *h);

TL_END_DECLS

#endif
