/* test_ops.c: every kernel of every instruction set gives the bits of the loops that the contract
 * writes down, for any shape, alignment and number of rows.
 *
 * The loops are written out again here, from the page and not from ops_portable.c, so that a slip
 * there does not prove itself. f16, bf16 and int4 are widened by tl/quant.h, which is the other
 * implementation.
 *
 * Source: conformance/spec/forward.md, the arithmetic. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops_attn.h"
#include "ops_avx2.h"
#include "tl/ops.h"
#include "tl/quant.h"
#include "util.h"

#define N_MAX 1600u

/* ------------------------------------------------------------------ the page, written out */

static float page_tree(const float lane[8]) {
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static float page_dot(const float *a, const float *b, size_t n) {
    float lane[8] = {0};
    for (size_t k = 0; k < n; k++) {
        lane[k & 7] = fmaf(a[k], b[k], lane[k & 7]);
    }
    return page_tree(lane);
}

static float page_weight(const tl_matrix *w, size_t row, size_t k) {
    const size_t at = row * w->n_in + k;
    if (w->kind == TL_MATRIX_F32) {
        return tli_f32_from_bits(tli_load_u32(w->data + 4 * at));
    }
    if (w->kind == TL_MATRIX_F16) {
        return tl_f16_to_f32(tli_load_u16(w->data + 2 * at));
    }
    if (w->kind == TL_MATRIX_BF16) {
        return tl_bf16_to_f32(tli_load_u16(w->data + 2 * at));
    }
    const int nibble = at % 2 == 0 ? w->data[at / 2] & 15 : w->data[at / 2] >> 4;
    const int q = nibble < 8 ? nibble : nibble - 16;
    const size_t group = row * (w->n_in / w->group) + k / w->group;
    return (float)q * tl_f16_to_f32(tli_load_u16(w->scales + 2 * group));
}

/* ------------------------------------------------------------------ data */

static uint64_t random_state;

static uint32_t next_random(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static float random_float(void) {
    return ((float)(next_random() % 65536) - 32768.0f) / 16384.0f;
}

static void fill(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        x[i] = random_float();
    }
}

/* An exactly sized copy at an odd address, so that a sanitizer sees a read past either end. */
typedef struct bytes {
    uint8_t *memory;
    uint8_t *data;
} bytes;

static bytes bytes_new(size_t n, size_t odd) {
    bytes b = {.memory = malloc(n + odd)};
    assert_non_null(b.memory);
    b.data = b.memory + odd;
    return b;
}

static float *floats_new(size_t n) {
    float *x = malloc((n == 0 ? 1 : n) * sizeof *x);
    assert_non_null(x);
    return x;
}

static void assert_same_bits(const float *got, const float *want, size_t n, const char *what,
                             size_t a, size_t b) {
    for (size_t i = 0; i < n; i++) {
        if (tli_f32_bits(got[i]) != tli_f32_bits(want[i]) && !(isnan(got[i]) && isnan(want[i]))) {
            fail_msg("%s (%zu, %zu): element %zu is %a, the page gives %a", what, a, b, i,
                     (double)got[i], (double)want[i]);
        }
    }
}

/* The instruction sets that this CPU has. */
static size_t available(tl_isa isas[2]) {
    tl_isa resolved = TL_ISA_AUTO;
    isas[0] = TL_ISA_PORTABLE;
    isas[1] = TL_ISA_AVX2;
    return tl_isa_resolve(TL_ISA_AVX2, &resolved, NULL) == TL_OK ? 2 : 1;
}

/* Run `test` with a work of every instruction set. */
static void each_isa(void (*test)(tl_work *work)) {
    tl_isa isas[2];
    const size_t n_isas = available(isas);
    for (size_t i = 0; i < n_isas; i++) {
        tl_work *work = NULL;
        assert_int_equal(tl_work_new(&work, isas[i], N_MAX, NULL), TL_OK);
        assert_int_equal(tl_work_isa(work), isas[i]);
        random_state = 1;
        test(work);
        tl_work_free(work);
    }
}

/* ------------------------------------------------------------------ dot and products */

static void check_dot(tl_work *work) {
    for (size_t n = 0; n < 100; n++) {
        float *a = floats_new(n);
        float *b = floats_new(n);
        fill(a, n);
        fill(b, n);
        const float got = tl_ops_dot(work, a, b, n);
        const float want = page_dot(a, b, n);
        assert_same_bits(&got, &want, 1, "dot", n, 0);
        free(a);
        free(b);
    }
}

static void test_dot(void **state) {
    (void)state;
    each_isa(check_dot);
}

/* Lanes 0 to 7 underflow to -0; the ragged end must leave them so. The sum of eight -0 is -0. */
static void check_minus_zero(tl_work *work) {
    for (size_t n = 8; n < 16; n++) {
        float a[16];
        float b[16];
        for (size_t k = 0; k < n; k++) {
            a[k] = k < 8 ? -0x1p-100f : 0.0f;
            b[k] = k < 8 ? 0x1p-100f : -0.0f;
        }
        const float got = tl_ops_dot(work, a, b, n);
        assert_int_equal(tli_f32_bits(got), 0x80000000u);
        assert_int_equal(tli_f32_bits(page_dot(a, b, n)), 0x80000000u);
        uint8_t row[sizeof b];
        for (size_t k = 0; k < n; k++) {
            tli_store_u32(row + 4 * k, tli_f32_bits(b[k]));
        }
        const tl_matrix w = {.kind = TL_MATRIX_F32, .n_out = 1, .n_in = n, .data = row};
        float x[32];
        float y[2] = {1, 1};
        memcpy(x, a, n * sizeof *x);
        memcpy(x + n, a, n * sizeof *x);
        for (size_t m = 1; m <= 2; m++) {
            tl_ops_matmul(work, &w, 0, 1, x, m, y);
            assert_int_equal(tli_f32_bits(y[0]), 0x80000000u);
        }
    }
}

static void test_minus_zero(void **state) {
    (void)state;
    each_isa(check_minus_zero);
}

/* An infinity in x at a ragged end meets only the weights of its own column. */
static void check_no_leak(tl_work *work) {
    for (size_t n = 1; n < 24; n++) {
        float a[24];
        float b[24];
        for (size_t k = 0; k < n; k++) {
            a[k] = 1.0f;
            b[k] = 1.0f;
        }
        a[n - 1] = INFINITY;
        const float got = tl_ops_dot(work, a, b, n);
        assert_true(isinf(got) && got > 0);
    }
}

static void test_no_leak(void **state) {
    (void)state;
    each_isa(check_no_leak);
}

typedef struct shape {
    tl_matrix_kind kind;
    size_t n_out, n_in, group;
} shape;

static uint16_t random_scale(void) {
    return (uint16_t)(next_random() % 0x3c00); /* 0, subnormal or below 1 */
}

static tl_matrix random_matrix(const shape *s, bytes *data, bytes *scales) {
    const size_t n = s->n_out * s->n_in;
    const size_t size = s->kind == TL_MATRIX_F32 ? 4 : 2;
    const size_t n_bytes = s->kind == TL_MATRIX_INT4 ? n / 2 : n * size;
    *data = bytes_new(n_bytes, 1 + next_random() % 3);
    for (size_t i = 0; s->kind != TL_MATRIX_INT4 && i < n; i++) {
        const float weight = random_float();
        if (s->kind == TL_MATRIX_F32) {
            tli_store_u32(data->data + 4 * i, tli_f32_bits(weight));
        } else if (s->kind == TL_MATRIX_BF16) {
            tli_store_u16(data->data + 2 * i, (uint16_t)(tli_f32_bits(weight) >> 16));
        } else {
            tli_store_u16(data->data + 2 * i, tl_f32_to_f16(weight));
        }
    }
    for (size_t i = 0; s->kind == TL_MATRIX_INT4 && i < n_bytes; i++) {
        data->data[i] = (uint8_t)next_random();
    }
    const size_t n_scales = s->kind == TL_MATRIX_INT4 ? n / s->group : 0;
    *scales = bytes_new(2 * n_scales, 1);
    for (size_t i = 0; i < n_scales; i++) {
        tli_store_u16(scales->data + 2 * i, random_scale());
    }
    return (tl_matrix){.kind = s->kind,
                       .n_out = s->n_out,
                       .n_in = s->n_in,
                       .data = data->data,
                       .scales = n_scales != 0 ? scales->data : NULL,
                       .group = s->group};
}

/* m rows against columns [begin, end): the page's bits there, and nothing written elsewhere. */
static void check_product(tl_work *work, const tl_matrix *w, size_t m, size_t begin, size_t end) {
    float *x = floats_new(m * w->n_in);
    float *y = floats_new(m * w->n_out);
    float *want = floats_new(m * w->n_out);
    float *row = floats_new(w->n_in);
    fill(x, m * w->n_in);
    for (size_t j = 0; j < w->n_out; j++) {
        for (size_t k = 0; k < w->n_in; k++) {
            row[k] = page_weight(w, j, k);
        }
        for (size_t i = 0; i < m; i++) {
            const bool inside = j >= begin && j < end;
            want[i * w->n_out + j] = inside ? page_dot(x + i * w->n_in, row, w->n_in) : 77.0f;
            y[i * w->n_out + j] = 77.0f;
        }
    }
    tl_ops_matmul(work, w, begin, end, x, m, y);
    assert_same_bits(y, want, m * w->n_out, "matmul", w->n_out, w->n_in);
    free(x);
    free(y);
    free(want);
    free(row);
}

static void check_shape(tl_work *work, const shape *s) {
    bytes data;
    bytes scales;
    const tl_matrix w = random_matrix(s, &data, &scales);
    const size_t ms[] = {1, 2, 3, 4, 5, 9};
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
        check_product(work, &w, ms[i], 0, s->n_out);
        check_product(work, &w, ms[i], s->n_out / 3, s->n_out - s->n_out / 4);
    }
    check_product(work, &w, 2, s->n_out, s->n_out);
    tl_ops_matmul(work, &w, 0, s->n_out, NULL, 0, NULL);
    float *row = floats_new(s->n_in);
    tl_ops_widen_row(work, &w, s->n_out - 1, row);
    for (size_t k = 0; k < s->n_in; k++) {
        const float want = page_weight(&w, s->n_out - 1, k);
        assert_same_bits(row + k, &want, 1, "widen_row", s->n_in, k);
    }
    free(row);
    free(data.memory);
    free(scales.memory);
}

static void check_matmul(tl_work *work) {
    const size_t dense[][2] = {{1, 1},   {2, 2},   {3, 3},   {4, 7},    {5, 8},   {7, 9},
                               {12, 15}, {13, 16}, {11, 17}, {6, 31},   {9, 32},  {47, 33},
                               {48, 40}, {49, 63}, {50, 64}, {101, 65}, {13, 100}};
    const tl_matrix_kind kinds[] = {TL_MATRIX_F32, TL_MATRIX_F16, TL_MATRIX_BF16};
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++) {
        for (size_t k = 0; k < 3; k++) {
            check_shape(work, &(shape){kinds[k], dense[i][0], dense[i][1], 0});
        }
    }
    const size_t int4[][3] = {{1, 2, 2},    {3, 6, 2},    {5, 8, 8},    {4, 12, 4},   {9, 24, 6},
                              {7, 40, 8},   {6, 48, 16},  {13, 64, 32}, {50, 96, 32}, {12, 64, 64},
                              {5, 100, 10}, {49, 72, 24}, {8, 192, 64}, {5, 14, 14}};
    for (size_t i = 0; i < sizeof int4 / sizeof *int4; i++) {
        check_shape(work, &(shape){TL_MATRIX_INT4, int4[i][0], int4[i][1], int4[i][2]});
    }
}

static void test_matmul(void **state) {
    (void)state;
    each_isa(check_matmul);
}

/* Rows so long that a block has fewer than 48 of them, and as long as the work allows. */
static void check_long_rows(tl_work *work) {
    check_shape(work, &(shape){TL_MATRIX_BF16, 26, N_MAX, 0});
    check_shape(work, &(shape){TL_MATRIX_INT4, 27, N_MAX, 32});
    check_shape(work, &(shape){TL_MATRIX_F32, 60, N_MAX - 1, 0});
}

static void test_long_rows(void **state) {
    (void)state;
    each_isa(check_long_rows);
}

/* ------------------------------------------------------------------ f16 */

static void check_f16(tl_work *work) {
    enum { N = 65536 };
    uint16_t *h = malloc(N * sizeof *h);
    float *x = floats_new(N);
    assert_non_null(h);
    for (size_t i = 0; i < N; i++) {
        h[i] = (uint16_t)i;
    }
    tl_ops_f16_widen(work, h, N, x);
    for (size_t i = 0; i < N; i++) {
        const float want = tl_f16_to_f32((uint16_t)i);
        assert_same_bits(x + i, &want, 1, "f16_widen", i, 0);
        assert_int_equal(tli_f32_bits(x[i]) >> 31, i >> 15);
    }
    uint16_t part[7];
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 40009) {
        for (size_t i = 0; i < 7; i++) {
            x[i] = tli_f32_from_bits((uint32_t)(bits + i));
        }
        tl_ops_f16_round(work, x, 7, part);
        for (size_t i = 0; i < 7; i++) {
            const uint16_t want = tl_f32_to_f16(x[i]);
            if (isnan(x[i])) {
                assert_true(isnan(tl_f16_to_f32(part[i])));
                assert_int_equal(part[i] >> 15, tli_f32_bits(x[i]) >> 31);
            } else {
                assert_int_equal(part[i], want);
            }
        }
    }
    free(h);
    free(x);
}

static void test_f16(void **state) {
    (void)state;
    each_isa(check_f16);
}

/* The four numbers where a careless conversion goes wrong: carry, overflow, smallest subnormal,
 * tie. */
static void check_f16_edges(tl_work *work) {
    const float x[] = {1.9999911f,      65519.99f, 65520.0f,    0x1p-25f,
                       0x1.000002p-25f, -0.0f,     0x1.ffcp-15f};
    const uint16_t want[] = {0x4000, 0x7bff, 0x7c00, 0x0000, 0x0001, 0x8000, 0x0400};
    uint16_t h[7];
    tl_ops_f16_round(work, x, 7, h);
    assert_memory_equal(h, want, sizeof h);
}

static void test_f16_edges(void **state) {
    (void)state;
    each_isa(check_f16_edges);
}

/* ------------------------------------------------------------------ exp */

/* Distance from the exact value in units of the last place of f32 there. */
static double ulps_off(float got, double exact) {
    const float nearest = (float)exact;
    const float next = nextafterf(nearest, exact < (double)nearest ? -INFINITY : INFINITY);
    return fabs((double)got - exact) / fabs((double)next - (double)nearest);
}

/* A sample of all arguments; engine/tests/exhaustive_exp.c takes every one. */
static void test_exp(void **state) {
    (void)state;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 9973) {
        const float x = tli_f32_from_bits((uint32_t)bits);
        const float e = tl_ops_exp(x);
        if (isnan(x)) {
            assert_true(isnan(e));
        } else if (x < -87.0f) {
            assert_int_equal(tli_f32_bits(e), 0);
        } else if (x > 88.0f) {
            assert_true(isinf(e) && e > 0);
        } else {
            assert_true(ulps_off(e, exp((double)x)) <= 1.0);
        }
    }
    assert_int_equal(tli_f32_bits(tl_ops_exp(0.0f)), tli_f32_bits(1.0f));
    assert_int_equal(tli_f32_bits(tl_ops_exp(-0.0f)), tli_f32_bits(1.0f));
    assert_true(tl_ops_exp(-87.0f) > 0);
    assert_true(isfinite(tl_ops_exp(88.0f)));
}

#if TLI_HAVE_AVX2
AVX2 static void vector_exp(const float *x, float *y) {
    _mm256_storeu_ps(y, exp8(_mm256_loadu_ps(x)));
}
#endif

static void test_exp_vector(void **state) {
    (void)state;
#if TLI_HAVE_AVX2
    tl_isa isas[2];
    if (available(isas) < 2) {
        skip();
    }
    for (uint64_t bits = 0; bits <= UINT32_MAX - 8; bits += 10007) {
        float x[8];
        float y[8];
        for (size_t i = 0; i < 8; i++) {
            x[i] = tli_f32_from_bits((uint32_t)(bits + i));
        }
        vector_exp(x, y);
        for (size_t i = 0; i < 8; i++) {
            assert_int_equal(tli_f32_bits(y[i]), tli_f32_bits(tl_ops_exp(x[i])));
        }
    }
#else
    skip();
#endif
}

/* ------------------------------------------------------------------ the rest of a layer */

static void check_softmax(tl_work *work) {
    for (size_t n = 1; n < 70; n++) {
        float *x = floats_new(n);
        float *want = floats_new(n);
        fill(x, n);
        float max = x[0];
        for (size_t j = 0; j < n; j++) {
            max = x[j] > max ? x[j] : max;
        }
        float lane[8] = {0};
        for (size_t j = 0; j < n; j++) {
            want[j] = tl_ops_exp(x[j] - max);
            lane[j % 8] += want[j];
        }
        const float want_sum = page_tree(lane);
        const float sum = tl_ops_softmax_exp(work, x, n);
        assert_same_bits(x, want, n, "softmax_exp", n, 0);
        assert_same_bits(&sum, &want_sum, 1, "softmax sum", n, 0);
        free(x);
        free(want);
    }
}

static void test_softmax(void **state) {
    (void)state;
    each_isa(check_softmax);
}

/* A NaN among the scores makes the sum NaN, whatever the others are. */
static void check_softmax_nan(tl_work *work) {
    for (size_t at = 0; at < 19; at++) {
        float x[19] = {0};
        x[at] = NAN;
        assert_true(isnan(tl_ops_softmax_exp(work, x, 19)));
        assert_true(isnan(x[at]));
    }
}

static void test_softmax_nan(void **state) {
    (void)state;
    each_isa(check_softmax_nan);
}

static void check_elementwise(tl_work *work) {
    for (size_t n = 1; n < 40; n++) {
        float *g = floats_new(n);
        float *u = floats_new(n);
        float *y = floats_new(n);
        float *want = floats_new(n);
        fill(g, n);
        fill(u, n);
        g[0] = n % 3 == 0 ? -100.0f : n % 3 == 1 ? 100.0f : g[0];
        for (size_t i = 0; i < n; i++) {
            want[i] = (g[i] / (1.0f + tl_ops_exp(-g[i]))) * u[i];
        }
        tl_ops_silu_mul(work, g, u, n, y);
        assert_same_bits(y, want, n, "silu_mul", n, 0);
        memcpy(y, g, n * sizeof *y);
        tl_ops_silu_mul(work, y, u, n, y);
        assert_same_bits(y, want, n, "silu_mul in place", n, 0);

        const float r = 1.0f / sqrtf(page_dot(g, g, n) / (float)n + 1e-5f);
        for (size_t i = 0; i < n; i++) {
            want[i] = (g[i] * r) * u[i];
        }
        tl_ops_rmsnorm(work, g, u, n, 1e-5f, y);
        assert_same_bits(y, want, n, "rmsnorm", n, 0);

        for (size_t i = 0; i < n; i++) {
            want[i] = fmaf(0.7f, g[i], u[i]);
        }
        memcpy(y, u, n * sizeof *y);
        tl_ops_axpy(work, 0.7f, g, n, y);
        assert_same_bits(y, want, n, "axpy", n, 0);

        for (size_t i = 0; i < n; i++) {
            want[i] = g[i] / 1.7f;
        }
        tli_ops_divide(work, g, 1.7f, n, y);
        assert_same_bits(y, want, n, "divide", n, 0);
        free(g);
        free(u);
        free(y);
        free(want);
    }
}

static void test_elementwise(void **state) {
    (void)state;
    each_isa(check_elementwise);
}

static void check_rope(tl_work *work) {
    for (size_t half = 1; half < 40; half++) {
        float *inv_freq = floats_new(half);
        float *c = floats_new(half);
        float *s = floats_new(half);
        float *x = floats_new(2 * half);
        float *want = floats_new(2 * half);
        tl_ops_rope_inv_freq(500000.0, 2 * half, inv_freq);
        tl_ops_rope_angles(1234, inv_freq, half, c, s);
        fill(x, 2 * half);
        for (size_t i = 0; i < half; i++) {
            const double exact = pow(500000.0, -2.0 * (double)i / (double)(2 * half));
            assert_int_equal(tli_f32_bits(inv_freq[i]), tli_f32_bits((float)exact));
            const float angle = 1234.0f * inv_freq[i];
            assert_int_equal(tli_f32_bits(c[i]), tli_f32_bits((float)cos((double)angle)));
            assert_int_equal(tli_f32_bits(s[i]), tli_f32_bits((float)sin((double)angle)));
            const float a = x[i] * c[i];
            const float b = x[i + half] * s[i];
            const float e = x[i + half] * c[i];
            const float f = x[i] * s[i];
            want[i] = a - b;
            want[i + half] = e + f;
        }
        tl_ops_rope(work, x, half, c, s);
        assert_same_bits(x, want, 2 * half, "rope", half, 0);
        free(inv_freq);
        free(c);
        free(s);
        free(x);
        free(want);
    }
}

static void test_rope(void **state) {
    (void)state;
    each_isa(check_rope);
}

static void check_attention_shape(tl_work *work, size_t m, size_t n, size_t d) {
    const size_t ld = n + 3;
    float *q = floats_new(m * d);
    float *k = floats_new(n * d);
    float *s = floats_new(m * ld);
    float *o = floats_new(m * d);
    float *want = floats_new(m * ld);
    float *want_o = floats_new(m * d);
    fill(q, m * d);
    fill(k, n * d);
    fill(s, m * ld);
    fill(o, m * d);
    memcpy(want, s, m * ld * sizeof *s);
    memcpy(want_o, o, m * d * sizeof *o);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            want[i * ld + j] = page_dot(q + i * d, k + j * d, d) * 0.3f;
        }
    }
    tli_ops_scores(work, q, m, k, n, d, 0.3f, s, ld);
    assert_same_bits(s, want, m * ld, "scores", n, d);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            for (size_t c = 0; c < d; c++) {
                want_o[i * d + c] = fmaf(s[i * ld + j], k[j * d + c], want_o[i * d + c]);
            }
        }
    }
    tli_ops_values(work, s, ld, m, k, n, d, o);
    assert_same_bits(o, want_o, m * d, "values", n, d);
    free(q);
    free(k);
    free(s);
    free(o);
    free(want);
    free(want_o);
}

static void check_attention(tl_work *work) {
    const size_t ds[] = {2, 6, 8, 14, 32, 40, 62, 64, 96};
    for (size_t i = 0; i < sizeof ds / sizeof *ds; i++) {
        for (size_t m = 1; m < 9; m += 1 + m / 4) {
            check_attention_shape(work, m, 1, ds[i]);
            check_attention_shape(work, m, 5, ds[i]);
            check_attention_shape(work, m, 16, ds[i]);
        }
    }
}

static void test_attention(void **state) {
    (void)state;
    each_isa(check_attention);
}

/* ------------------------------------------------------------------ choosing, refusing */

static void test_isa(void **state) {
    (void)state;
    tl_error err = {0};
    tl_isa resolved = TL_ISA_NEON;
    assert_string_equal(tl_isa_name(TL_ISA_AUTO), "auto");
    assert_string_equal(tl_isa_name(TL_ISA_PORTABLE), "portable");
    assert_string_equal(tl_isa_name(TL_ISA_AVX2), "avx2");
    assert_string_equal(tl_isa_name(TL_ISA_AVX512), "avx512");
    assert_string_equal(tl_isa_name(TL_ISA_NEON), "neon");
    assert_string_equal(tl_isa_name((tl_isa)99), "unknown");
    assert_int_equal(tl_isa_resolve(TL_ISA_AUTO, &resolved, &err), TL_OK);
    assert_true(resolved != TL_ISA_AUTO);
    assert_int_equal(tl_isa_resolve(TL_ISA_PORTABLE, &resolved, &err), TL_OK);
    assert_int_equal(resolved, TL_ISA_PORTABLE);
    assert_int_equal(tl_isa_resolve((tl_isa)99, &resolved, &err), TL_ERR_INVALID);
    assert_non_null(strstr(err.text, "99"));
    assert_int_equal(tl_isa_resolve(TL_ISA_AUTO, NULL, &err), TL_ERR_INVALID);
    assert_int_equal(tl_isa_resolve(TL_ISA_NEON, &resolved, &err), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "neon"));
    assert_int_equal(resolved, TL_ISA_PORTABLE);
}

static void test_work(void **state) {
    (void)state;
    tl_error err = {0};
    tl_work *work = (tl_work *)&err;
    assert_int_equal(tl_work_new(&work, TL_ISA_AUTO, 0, &err), TL_ERR_INVALID);
    assert_null(work);
    assert_int_equal(tl_work_new(NULL, TL_ISA_AUTO, 1, &err), TL_ERR_INVALID);
    assert_int_equal(tl_work_new(&work, TL_ISA_AUTO, SIZE_MAX / 4, &err), TL_ERR_NOMEM);
    assert_int_equal(tl_work_new(&work, TL_ISA_AUTO, SIZE_MAX, NULL), TL_ERR_NOMEM);
    assert_int_equal(tl_work_new(&work, (tl_isa)7, 1, &err), TL_ERR_INVALID);
    assert_int_equal(tl_work_new(&work, TL_ISA_NEON, 1, &err), TL_ERR_UNSUPPORTED);
    assert_int_equal(tl_work_new(&work, TL_ISA_PORTABLE, 123, &err), TL_OK);
    assert_int_equal(tl_work_isa(work), TL_ISA_PORTABLE);
    assert_int_equal(tl_work_max_n_in(work), 123);
    tl_work_free(work);
    tl_work_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dot),         cmocka_unit_test(test_minus_zero),
        cmocka_unit_test(test_no_leak),     cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_long_rows),   cmocka_unit_test(test_f16),
        cmocka_unit_test(test_f16_edges),   cmocka_unit_test(test_exp),
        cmocka_unit_test(test_exp_vector),  cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_softmax_nan), cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_rope),        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_isa),         cmocka_unit_test(test_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
