/* ops_internal.h: the table of kernels that one instruction set brings, and what its makers share.
 *
 * A table is const and chosen once for each tl_work, so that the library keeps no mutable state.
 * Every kernel of every table gives the bits of the portable one: sums run in 8 lanes along k and
 * end in the tree of tl_ops_dot, everything else is one rounding an operation. Which NaN comes out
 * of several is not part of that promise, because the hardware picks by operand order; exp and the
 * f16 conversions say it.
 *
 * Private to ops*.c. Source: conformance/spec/forward.md, clauses dot to silu. */
#ifndef TLI_OPS_INTERNAL_H
#define TLI_OPS_INTERNAL_H

#include <float.h>

#include "tl/ops.h"

/* One rounding an operation needs float arithmetic in float. 32-bit x86 has that with -msse2
 * -mfpmath=sse; gcc for s390x, where -std=c11 means double, with -fexcess-precision=fast. */
#if FLT_EVAL_METHOD != 0
#error "this compiler and these flags compute float expressions in a wider type"
#endif

/* Rows that a block of widened weights has at most: 48 rows fill the second-level cache well at the
 * row lengths of small models and are a multiple of every tile (3 and 4 columns). */
#define TLI_BLOCK_ROWS 48u
/* Rows' worth of floats beside the block: the widened scales of a few int4 rows. */
#define TLI_EXTRA_ROWS 16u

typedef struct tli_kernels {
    tl_isa isa;

    float (*dot)(const float *a, const float *b, size_t n);

    /* y[r - begin] = dot(x, row r of W) for r from begin to end - 1, widened in the register. room
     * holds the 64 rows of a tl_work. */
    void (*rows)(const tl_matrix *w, size_t begin, size_t end, const float *x, float *y,
                 float *room);

    /* Row `row` of W in f32. */
    void (*widen)(const tl_matrix *w, size_t row, float *y);

    /* y[i * ldy + j] = dot(x + i * ldx, w + j * k) * scale for i < m, j < n. With scale 1 the
     * product is exact. n_next bytes at next are about to be read: a hint, and NULL with 0 for
     * none. */
    void (*tile)(const float *x, size_t ldx, size_t m, const float *w, size_t n, size_t k,
                 float scale, float *y, size_t ldy, const uint8_t *next, size_t n_next);

    /* o[i * d + c] = fma(p[i * ldp + j], v[j * d + c], o[i * d + c]) for j = 0 .. n - 1, in this
     * order. */
    void (*values)(const float *p, size_t ldp, size_t m, const float *v, size_t n, size_t d,
                   float *o);

    void (*norm)(const float *x, float r, const float *w, size_t d, float *y); /* (x * r) * w */
    void (*divide)(const float *x, float z, size_t n, float *y);               /* x / z */
    void (*rope)(float *x, size_t half, const float *c, const float *s);
    float (*softmax_exp)(float *x, size_t n);
    void (*silu_mul)(const float *g, const float *u, size_t n, float *y);
    void (*axpy)(float a, const float *x, size_t n, float *y);
    void (*f16_widen)(const uint16_t *h, size_t n, float *x);
    void (*f16_round)(const float *x, size_t n, uint16_t *h);
} tli_kernels;

extern const tli_kernels tli_kernels_portable;
#if defined(__x86_64__)
#define TLI_HAVE_AVX2 1
extern const tli_kernels tli_kernels_avx2;
#else
#define TLI_HAVE_AVX2 0
#endif

/* Bytes from one row of W to the next; n_in is even for int4. */
static inline size_t tli_row_bytes(const tl_matrix *w) {
    switch (w->kind) {
    case TL_MATRIX_F32:
        return w->n_in * 4;
    case TL_MATRIX_F16:
    case TL_MATRIX_BF16:
        return w->n_in * 2;
    case TL_MATRIX_INT4:
        break;
    }
    return w->n_in / 2;
}

/* The portable kernels that another table falls back to for shapes not worth a vector form. */
void tli_portable_widen(const tl_matrix *w, size_t row, float *y);

#endif
