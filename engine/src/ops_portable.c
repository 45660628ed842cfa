/* ops_portable.c: every kernel in plain C: the definition that the other instruction sets are
 * tested against, bit for bit.
 *
 * fmaf is the C library's and correctly rounded with or without an instruction for it. Nothing here
 * depends on the order in which a compiler might like to add: contraction is off for the whole
 * project.
 *
 * Source: conformance/spec/forward.md, clauses dot to silu. */
#include <math.h>

#include "ops_exp.h"
#include "ops_internal.h"
#include "util.h"

/* ((0+4)+(2+6)) + ((1+5)+(3+7)) */
static float lane_tree(const float lane[8]) {
    const float even = (lane[0] + lane[4]) + (lane[2] + lane[6]);
    const float odd = (lane[1] + lane[5]) + (lane[3] + lane[7]);
    return even + odd;
}

static float dot(const float *a, const float *b, size_t n) {
    float lane[8] = {0};
    for (size_t k = 0; k < n; k++) {
        lane[k % 8] = fmaf(a[k], b[k], lane[k % 8]);
    }
    return lane_tree(lane);
}

/* ------------------------------------------------------------------ widening */

static float widen_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1fu;
    const uint32_t fraction = h & 0x3ffu;
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact in f32 */
        const float magnitude = (float)fraction * 0x1p-24f;
        return tli_f32_from_bits(sign | tli_f32_bits(magnitude));
    }
    if (exponent == 31) { /* infinity, or a NaN that is made quiet, as the hardware does */
        const uint32_t quiet = fraction != 0 ? 0x400000u : 0;
        return tli_f32_from_bits(sign | 0x7f800000u | quiet | (fraction << 13));
    }
    return tli_f32_from_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
}

/* To nearest, ties to even; a NaN keeps its sign and upper bits and becomes quiet, as in
 * hardware. */
static uint16_t round_f16(float x) {
    const uint32_t bits = tli_f32_bits(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x477ff000u) { /* 65520 and beyond */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) {
        /* Below the smallest normal number: adding 0.5 leaves a float whose last bit is 2^-24, the
         * unit of the f16 subnormals, so that the addition rounds as the conversion must. */
        const float sum = tli_f32_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (tli_f32_bits(sum) - 0x3f000000u));
    }
    const uint32_t tie_to_even = (magnitude >> 13) & 1u;
    const uint32_t rounded = magnitude + 0xfffu + tie_to_even;
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

static void widen_int4_row(const tl_matrix *w, size_t row, float *y) {
    const uint8_t *packed = w->data + row * (w->n_in / 2);
    const size_t n_groups = w->n_in / w->group;
    const uint8_t *scales = w->scales + row * n_groups * 2;
    for (size_t g = 0; g < n_groups; g++) {
        const float scale = widen_f16(tli_load_u16(scales + 2 * g));
        for (size_t k = g * w->group; k < (g + 1) * w->group; k += 2) {
            const uint8_t byte = packed[k / 2];
            const int low = byte & 0x0f;
            const int high = byte >> 4;
            y[k] = (float)((low ^ 8) - 8) * scale; /* two's complement; the product is exact */
            y[k + 1] = (float)((high ^ 8) - 8) * scale;
        }
    }
}

void tli_portable_widen(const tl_matrix *w, size_t row, float *y) {
    const uint8_t *src = w->data + row * tli_row_bytes(w);
    switch (w->kind) {
    case TL_MATRIX_F32:
        for (size_t k = 0; k < w->n_in; k++) {
            y[k] = tli_f32_from_bits(tli_load_u32(src + 4 * k));
        }
        return;
    case TL_MATRIX_F16:
        for (size_t k = 0; k < w->n_in; k++) {
            y[k] = widen_f16(tli_load_u16(src + 2 * k));
        }
        return;
    case TL_MATRIX_BF16:
        for (size_t k = 0; k < w->n_in; k++) {
            y[k] = tli_f32_from_bits((uint32_t)tli_load_u16(src + 2 * k) << 16);
        }
        return;
    case TL_MATRIX_INT4:
        widen_int4_row(w, row, y);
        return;
    }
}

/* ------------------------------------------------------------------ products */

static void rows(const tl_matrix *w, size_t begin, size_t end, const float *x, float *y,
                 float *room) {
    for (size_t row = begin; row < end; row++) {
        tli_portable_widen(w, row, room);
        y[row - begin] = dot(x, room, w->n_in);
    }
}

static void tile(const float *x, size_t ldx, size_t m, const float *w, size_t n, size_t k,
                 float scale, float *y, size_t ldy, const uint8_t *next, size_t n_next) {
    (void)next;
    (void)n_next;
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            y[i * ldy + j] = dot(x + i * ldx, w + j * k, k) * scale;
        }
    }
}

static void axpy(float a, const float *x, size_t n, float *y) {
    for (size_t i = 0; i < n; i++) {
        y[i] = fmaf(a, x[i], y[i]);
    }
}

static void values(const float *p, size_t ldp, size_t m, const float *v, size_t n, size_t d,
                   float *o) {
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            axpy(p[i * ldp + j], v + j * d, d, o + i * d);
        }
    }
}

/* ------------------------------------------------------------------ element by element */

static void norm(const float *x, float r, const float *w, size_t d, float *y) {
    for (size_t i = 0; i < d; i++) {
        y[i] = (x[i] * r) * w[i];
    }
}

static void divide(const float *x, float z, size_t n, float *y) {
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i] / z;
    }
}

static void rope(float *x, size_t half, const float *c, const float *s) {
    for (size_t i = 0; i < half; i++) {
        const float x1 = x[i];
        const float x2 = x[i + half];
        x[i] = x1 * c[i] - x2 * s[i];
        x[i + half] = x2 * c[i] + x1 * s[i];
    }
}

/* Steps and constants: ops_exp.h. */
float tl_ops_exp(float x) {
    if (isnan(x)) {
        return tli_f32_from_bits(TLI_EXP_NAN_BITS);
    }
    if (x < TLI_EXP_MIN) {
        return 0.0f;
    }
    if (x > TLI_EXP_MAX) {
        return INFINITY;
    }
    const float t = fmaf(x, TLI_EXP_LOG2E, TLI_EXP_SHIFT);
    const float n = t - TLI_EXP_SHIFT;
    const float r_hi = fmaf(n, -TLI_EXP_LN2_HI, x);
    const float r = fmaf(n, -TLI_EXP_LN2_LO, r_hi);
    float p = TLI_EXP_C6;
    p = fmaf(p, r, TLI_EXP_C5);
    p = fmaf(p, r, TLI_EXP_C4);
    p = fmaf(p, r, TLI_EXP_C3);
    p = fmaf(p, r, TLI_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return tli_f32_from_bits(tli_f32_bits(p) + (tli_f32_bits(t) << 23));
}

static float softmax_exp(float *x, size_t n) {
    float max = -INFINITY;
    for (size_t j = 0; j < n; j++) {
        max = x[j] > max ? x[j] : max;
    }
    float lane[8] = {0};
    for (size_t j = 0; j < n; j++) {
        x[j] = tl_ops_exp(x[j] - max);
        lane[j % 8] += x[j];
    }
    return lane_tree(lane);
}

static void silu_mul(const float *g, const float *u, size_t n, float *y) {
    for (size_t i = 0; i < n; i++) {
        const float silu = g[i] / (1.0f + tl_ops_exp(-g[i]));
        y[i] = silu * u[i];
    }
}

static void f16_widen(const uint16_t *h, size_t n, float *x) {
    for (size_t i = 0; i < n; i++) {
        x[i] = widen_f16(h[i]);
    }
}

static void f16_round(const float *x, size_t n, uint16_t *h) {
    for (size_t i = 0; i < n; i++) {
        h[i] = round_f16(x[i]);
    }
}

const tli_kernels tli_kernels_portable = {
    .isa = TL_ISA_PORTABLE,
    .dot = dot,
    .rows = rows,
    .widen = tli_portable_widen,
    .tile = tile,
    .values = values,
    .norm = norm,
    .divide = divide,
    .rope = rope,
    .softmax_exp = softmax_exp,
    .silu_mul = silu_mul,
    .axpy = axpy,
    .f16_widen = f16_widen,
    .f16_round = f16_round,
};
