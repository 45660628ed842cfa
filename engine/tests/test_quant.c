/* 16-bit floats against an exact integer oracle, int4 against the rules of its page computed
 * another way, and the linear layer against a dense one over its dequantized weights.
 *
 * Source: conformance/spec/safetensors.md, int4 tensors; conformance/spec/forward.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tl/quant.h"
#include "tl/sample.h"
#include "util.h"

/* ---- f16 ------------------------------------------------------------------------------------- */

static bool f16_is_nan(uint16_t h) {
    return (h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0;
}

/* The value of a finite f16, exact in f64. */
static double f16_value(uint16_t h) {
    const int exponent = h >> 10 & 31;
    const int mantissa = h & 0x3ff;
    const double magnitude =
        exponent == 0 ? ldexp(mantissa, -24) : ldexp(mantissa + 1024, exponent - 25);
    return (h & 0x8000) != 0 ? -magnitude : magnitude;
}

static void every_f16_widens_exactly_and_comes_back(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t h = (uint16_t)i;
        const float x = tl_f16_to_f32(h);
        const uint16_t back = tl_f32_to_f16(x);
        assert_int_equal(back & 0x8000, h & 0x8000);
        if (f16_is_nan(h)) {
            assert_true(isnan(x) && f16_is_nan(back));
            continue;
        }
        assert_int_equal(back, h);
        if ((h & 0x7c00) == 0x7c00) {
            assert_true(isinf(x) && (x < 0) == ((h & 0x8000) != 0));
        } else {
            assert_true((double)x == f16_value(h));
            assert_int_equal(signbit(x) != 0, (h & 0x8000) != 0);
        }
    }
}

/* The f16 of a finite non-negative f32 by its integers alone: x is m * 2^e, a step of f16 there
 * is 2^u, and the quotient of the two is rounded half to even. */
static uint16_t oracle(uint32_t bits) {
    const int exponent = (int)(bits >> 23);
    const uint64_t m = (bits & 0x7fffff) + (exponent == 0 ? 0u : 0x800000u);
    const int e = (exponent == 0 ? 1 : exponent) - 150;
    if ((double)m * ldexp(1.0, e) >= 65536.0) {
        return 0x7c00;
    }
    int u = -24;
    while (u < 5 && (double)m * ldexp(1.0, e) >= ldexp(2048.0, u)) {
        u++;
    }
    const int drop = u - e; /* the step is this many bits coarser, at least 13 */
    if (drop >= 40) {
        return 0;
    }
    const uint64_t step = UINT64_C(1) << drop;
    uint64_t n = m / step;
    const uint64_t twice_rest = m % step * 2;
    n += twice_rest > step || (twice_rest == step && n % 2 == 1) ? 1 : 0;
    const double value = ldexp((double)n, u);
    if (value >= 65536.0) {
        return 0x7c00;
    }
    /* n steps of 2^-24 are pattern n up to 2048; each later step of u moves the pattern by 1024. */
    return (uint16_t)(n + (uint64_t)(u + 24) * 1024);
}

static void check_against_oracle(uint32_t bits) {
    const uint16_t got = tl_f32_to_f16(tli_f32_from_bits(bits));
    const uint16_t negative = tl_f32_to_f16(tli_f32_from_bits(bits | 0x80000000u));
    assert_int_equal(negative, got | 0x8000);
    if (bits > 0x7f800000u) {
        assert_true(f16_is_nan(got));
    } else {
        assert_int_equal(got, bits == 0x7f800000u ? 0x7c00 : oracle(bits));
    }
}

static void f32_rounds_as_the_integer_oracle(void **state) {
    (void)state;
    /* 509 is prime: the low 13 bits take every value. */
    for (uint32_t bits = 0; bits < 0x7fffff00u; bits += 509 * 7) {
        check_against_oracle(bits);
    }
    /* Each f16, each middle between two, and their nearest f32 neighbours. */
    for (uint32_t h = 0; h < 0x7c00; h++) {
        const uint32_t at = tli_f32_bits(tl_f16_to_f32((uint16_t)h));
        const uint32_t next =
            tli_f32_bits((float)(h == 0x7bff ? 65536.0 : f16_value((uint16_t)(h + 1))));
        const double sum = (double)tli_f32_from_bits(at) + (double)tli_f32_from_bits(next);
        const uint32_t middle = tli_f32_bits((float)(sum / 2));
        check_against_oracle(at);
        check_against_oracle(at + 1);
        check_against_oracle(middle - 1);
        check_against_oracle(middle);
        check_against_oracle(middle + 1);
        check_against_oracle(next - 1);
    }
}

static void f16_has_the_numbers_of_the_page(void **state) {
    (void)state;
    assert_int_equal(tl_f32_to_f16(0.2f), 0x3266);
    assert_int_equal(tl_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(tl_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(tl_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(tl_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(tl_f32_to_f16(nextafterf(0x1p-25f, 1.0f)), 1);
    assert_int_equal(tl_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(tl_f32_to_f16(2049.0f), 0x6800); /* a tie, down to even */
    assert_int_equal(tl_f32_to_f16(2051.0f), 0x6802); /* a tie, up to even */
    assert_true(f16_is_nan(tl_f32_to_f16(tli_f32_from_bits(0x7f800001u))));
    assert_true(f16_is_nan(tl_f32_to_f16(tli_f32_from_bits(0xffffffffu))));
}

static void bf16_is_the_upper_half(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float x = tl_bf16_to_f32((uint16_t)h);
        const bool is_nan = (h & 0x7fff) > 0x7f80;
        assert_true(is_nan ? isnan(x) : tli_f32_bits(x) == h << 16);
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

static void packing_has_the_numbers_of_the_page(void **state) {
    (void)state;
    const int8_t q[4] = {-8, 7, 1, -1};
    uint8_t packed[2] = {0};
    assert_int_equal(tl_int4_pack(q, 4, 2, 2, packed, 2, NULL), TL_OK);
    assert_int_equal(packed[0], 0x78);
    assert_int_equal(packed[1], 0xf1);
}

static void all_bytes_unpack_and_pack_back(void **state) {
    (void)state;
    uint8_t bytes[256];
    uint8_t back[256] = {0};
    int8_t q[512];
    for (size_t i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
    }
    assert_int_equal(tl_int4_unpack(bytes, 256, q, 512, NULL), TL_OK);
    for (size_t i = 0; i < 256; i++) {
        const int low = (int)(i % 16);
        const int high = (int)(i / 16);
        assert_int_equal(q[2 * i], low < 8 ? low : low - 16);
        assert_int_equal(q[2 * i + 1], high < 8 ? high : high - 16);
    }
    assert_int_equal(tl_int4_pack(q, 512, 16, 32, back, 256, NULL), TL_OK);
    assert_memory_equal(bytes, back, 256);
}

static void packing_is_checked(void **state) {
    (void)state;
    int8_t q[6] = {0, 1, 2, 3, 4, 5};
    uint8_t packed[3] = {9, 9, 9};
    tl_error err = {TL_OK, 0, ""};
    assert_int_equal(tl_int4_pack(q, 5, 2, 3, packed, 3, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_pack(q, 6, 2, 3, packed, 3, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_pack(q, 5, 3, 2, packed, 3, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_pack(q, 6, 3, 2, packed, 2, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_pack(NULL, 6, 3, 2, packed, 3, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_pack(q, 6, 3, 2, NULL, 3, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_pack(q, 0, SIZE_MAX / 2 + 1, 2, packed, 0, &err), TL_ERR_INVALID);
    q[4] = 8;
    assert_int_equal(tl_int4_pack(q, 6, 3, 2, packed, 3, &err), TL_ERR_INVALID);
    assert_non_null(strstr(err.text, "q[4] is 8"));
    q[4] = -9;
    assert_int_equal(tl_int4_pack(q, 6, 3, 2, packed, 3, NULL), TL_ERR_INVALID);
    assert_true(packed[0] == 9 && packed[1] == 9 && packed[2] == 9);
    assert_int_equal(tl_int4_pack(NULL, 0, 0, 2, NULL, 0, NULL), TL_OK);
    assert_int_equal(tl_int4_unpack(packed, 3, q, 5, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_unpack(packed, 3, q, 7, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_unpack(packed, SIZE_MAX / 2 + 1, q, 0, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_unpack(NULL, 3, q, 6, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_unpack(packed, 3, NULL, 6, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_unpack(NULL, 3, NULL, 0, &err), TL_ERR_INVALID);
    assert_non_null(strstr(err.text, "packed is NULL"));
    assert_int_equal(tl_int4_unpack(NULL, 0, NULL, 0, NULL), TL_OK);
    size_t n = 5;
    assert_int_equal(tl_int4_packed_size(3, 4, NULL, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_packed_size(3, 3, &n, &err), TL_ERR_INVALID);
    assert_int_equal(tl_int4_packed_size(SIZE_MAX, 4, &n, &err), TL_ERR_NOMEM);
    assert_int_equal(n, 5);
    assert_int_equal(tl_int4_packed_size(3, 4, &n, &err), TL_OK);
    assert_int_equal(n, 6);
}

/* ---- quantizing ------------------------------------------------------------------------------ */

static void quantize_one(const float *w, size_t group, uint16_t *scale, int8_t *q) {
    tl_qlinear layer = {0};
    assert_int_equal(tl_qlinear_quantize(&layer, w, group, 1, group, group, NULL), TL_OK);
    *scale = tli_load_u16(layer.scales);
    assert_int_equal(tl_int4_unpack(layer.qweight, layer.qweight_len, q, group, NULL), TL_OK);
    tl_qlinear_clear(&layer);
    assert_null(layer.qweight);
}

static void quantizing_has_the_numbers_of_the_page(void **state) {
    (void)state;
    const float w[4] = {0.7f, -1.4f, 0.0f, 0.29995f};
    uint16_t scale = 0;
    int8_t q[4];
    quantize_one(w, 4, &scale, q);
    assert_int_equal(scale, 0x3266);
    assert_true(q[0] == 4 && q[1] == -7 && q[2] == 0 && q[3] == 2);
}

/* Quotients in the middle of two integers; the scale is 1. */
static void quotients_round_half_to_even(void **state) {
    (void)state;
    const float w[10] = {7.0f, 0.5f, 1.5f, 2.5f, 3.5f, -0.5f, -1.5f, -2.5f, -3.5f, -7.0f};
    static const int8_t expected[10] = {7, 0, 2, 2, 4, 0, -2, -2, -4, -7};
    uint16_t scale = 0;
    int8_t q[10];
    quantize_one(w, 10, &scale, q);
    assert_int_equal(scale, 0x3c00);
    assert_memory_equal(q, expected, 10);
}

/* A largest weight of `peak` units of 2^-24 times 7: 0.5 stores no scale, 1.49 one unit, 2.5
 * two. */
static void small_scales(void **state) {
    (void)state;
    static const struct {
        float peak;
        uint16_t scale;
        int8_t q;
        int8_t q_negative;
    } cases[] = {{0.5f, 0, 0, 0}, {1.49f, 1, 7, -8}, {2.5f, 2, 7, -8}, {3.0f, 3, 7, -7}};
    for (size_t i = 0; i < 4; i++) {
        const float w[2] = {cases[i].peak * 7.0f * 0x1p-24f, -cases[i].peak * 7.0f * 0x1p-24f};
        uint16_t scale = 9;
        int8_t q[2];
        quantize_one(w, 2, &scale, q);
        assert_int_equal(scale, cases[i].scale);
        assert_int_equal(q[0], cases[i].q);
        assert_int_equal(q[1], cases[i].q_negative);
    }
    const float zeros[2] = {0.0f, -0.0f};
    uint16_t scale = 9;
    int8_t q[2];
    quantize_one(zeros, 2, &scale, q);
    assert_true(scale == 0 && q[0] == 0 && q[1] == 0);
}

static float drawn(tl_pcg32 *rng) {
    return (float)(tl_pcg32_uniform_f64(rng) * 2.0 - 1.0);
}

/* Every weight is within half a scale, for scales that are normal: q is found again in f64. */
static void drawn_weights_are_within_half_a_scale(void **state) {
    (void)state;
    enum { N_OUT = 20, N_IN = 96 };
    static float w[N_OUT * N_IN];
    static float back[N_OUT * N_IN];
    static int8_t q[N_OUT * N_IN];
    static const size_t groups[] = {2, 6, 32, 96};
    tl_pcg32 rng = tl_pcg32_new(11, 0);
    for (size_t i = 0; i < 4 * 8; i++) {
        const size_t group = groups[i % 4];
        const float size = ldexpf(1.0f, (int)(i / 4) - 4);
        for (size_t j = 0; j < N_OUT * N_IN; j++) {
            w[j] = drawn(&rng) * size;
        }
        tl_qlinear layer = {0};
        assert_int_equal(tl_qlinear_quantize(&layer, w, N_OUT * N_IN, N_OUT, N_IN, group, NULL),
                         TL_OK);
        assert_int_equal(tl_qlinear_dequantize(&layer, back, N_OUT * N_IN, NULL), TL_OK);
        assert_int_equal(tl_int4_unpack(layer.qweight, layer.qweight_len, q, N_OUT * N_IN, NULL),
                         TL_OK);
        for (size_t j = 0; j < N_OUT * N_IN; j++) {
            const uint16_t stored = tli_load_u16(layer.scales + 2 * (j / group));
            const double s = f16_value(stored);
            const float quotient = w[j] / (float)s;
            const double rounded = nearbyint((double)quotient);
            assert_true((double)q[j] == fmax(-8.0, fmin(7.0, rounded)));
            assert_true((double)back[j] == (double)q[j] * s);
            assert_true(stored < 0x400 || fabs((double)w[j] - (double)back[j]) <= s * 0.5);
        }
        tl_qlinear_clear(&layer);
    }
}

static void assert_not_quantized(const float *w, size_t w_len, size_t n_out, size_t n_in,
                                 size_t group, const char *subject) {
    tl_qlinear layer = {.n_out = 3, .owned = NULL};
    tl_error err = {TL_OK, 0, ""};
    assert_int_equal(tl_qlinear_quantize(&layer, w, w_len, n_out, n_in, group, &err),
                     TL_ERR_INVALID);
    assert_non_null(strstr(err.text, subject));
    assert_true(layer.n_out == 0 && layer.qweight == NULL && layer.owned == NULL);
}

static void quantizing_is_checked(void **state) {
    (void)state;
    float w[16] = {0};
    assert_not_quantized(NULL, 16, 2, 8, 4, "w is NULL");
    assert_not_quantized(w, 15, 2, 8, 4, "w_len");
    assert_not_quantized(w, 16, 0, 8, 4, "zero");
    assert_not_quantized(w, 16, 2, 0, 4, "zero");
    assert_not_quantized(w, 16, 2, 8, 0, "group is 0");
    assert_not_quantized(w, 16, 2, 8, 1, "group is 1");
    assert_not_quantized(w, 15, 1, 15, 3, "group is 3");
    assert_not_quantized(w, 16, 2, 8, 6, "group is 6");
    assert_not_quantized(w, 16, 2, 8, 16, "group is 16");
    assert_not_quantized(w, 0, SIZE_MAX / 2 + 1, 2, 2, "w_len");
    w[13] = NAN;
    assert_not_quantized(w, 16, 2, 8, 4, "row 1, column 5");
    w[13] = -INFINITY;
    assert_not_quantized(w, 16, 2, 8, 4, "row 1, column 5");
    w[13] = -458640.0f; /* 7 * 65520 */
    assert_not_quantized(w, 16, 2, 8, 4, "row 1, group 1");
    w[13] = -458639.9f;
    tl_qlinear layer = {0};
    assert_int_equal(tl_qlinear_quantize(&layer, w, 16, 2, 8, 4, NULL), TL_OK);
    tl_qlinear_clear(&layer);
    assert_int_equal(tl_qlinear_quantize(NULL, w, 16, 2, 8, 4, NULL), TL_ERR_INVALID);
    tl_qlinear_clear(&layer);
    tl_qlinear_clear(NULL);
}

/* ---- the linear layer ------------------------------------------------------------------------ */

/* Bit for bit: each output is the one dot of the engine over a dequantized row, whatever m and
 * the range of rows; columns outside the range are left alone. The pointers are borrowed and at
 * odd addresses. */
static void check_forward_bits(tl_pcg32 *rng, tl_work *work, size_t n_out, size_t n_in,
                               size_t group, size_t m) {
    float *w = calloc(n_out * n_in, sizeof *w);
    float *x = calloc(m * n_in, sizeof *x);
    float *y = calloc(m * n_out, sizeof *y);
    uint8_t *odd = malloc(n_out * n_in * 2 + 2);
    tl_qlinear layer = {0};
    assert_non_null(w);
    assert_non_null(x);
    assert_non_null(y);
    assert_non_null(odd);
    for (size_t i = 0; i < n_out * n_in; i++) {
        w[i] = drawn(rng);
    }
    for (size_t i = 0; i < m * n_in; i++) {
        x[i] = drawn(rng);
    }
    assert_int_equal(tl_qlinear_quantize(&layer, w, n_out * n_in, n_out, n_in, group, NULL), TL_OK);
    assert_non_null(layer.qweight);
    tl_qlinear view = layer;
    memcpy(odd + 1, layer.qweight, layer.qweight_len);
    view.qweight = odd + 1;
    view.scales = odd + 1 + layer.qweight_len + (layer.qweight_len % 2);
    memcpy(odd + 1 + layer.qweight_len + (layer.qweight_len % 2), layer.scales, layer.scales_len);
    view.owned = NULL;
    assert_int_equal(tl_qlinear_dequantize(&view, w, n_out * n_in, NULL), TL_OK);
    const size_t begin = n_out / 3;
    const size_t end = n_out - n_out / 4;
    for (size_t i = 0; i < m * n_out; i++) {
        y[i] = 77.0f;
    }
    assert_int_equal(
        tl_qlinear_forward(&view, begin, end, x, m * n_in, m, y, m * n_out, work, NULL), TL_OK);
    for (size_t i = 0; i < m * n_out; i++) {
        const size_t row = i % n_out;
        const float dot = tl_ops_dot(work, x + i / n_out * n_in, w + row * n_in, n_in);
        const float expected = row >= begin && row < end ? dot : 77.0f;
        assert_int_equal(tli_f32_bits(y[i]), tli_f32_bits(expected));
    }
    tl_qlinear_clear(&layer);
    free(w);
    free(x);
    free(y);
    free(odd);
}

static void forward_equals_the_dequantized_matrix(void **state) {
    (void)state;
    static const size_t shapes[][3] = {{1, 2, 2},    {3, 6, 2},    {5, 16, 4},  {17, 30, 10},
                                       {33, 64, 32}, {65, 96, 48}, {7, 264, 66}};
    static const size_t rows[] = {1, 2, 3, 9, 20};
    tl_pcg32 rng = tl_pcg32_new(3, 4);
    tl_work *work = NULL;
    assert_int_equal(tl_work_new(&work, TL_ISA_AUTO, 264, NULL), TL_OK);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            check_forward_bits(&rng, work, shapes[s][0], shapes[s][1], shapes[s][2], rows[r]);
        }
    }
    tl_work_free(work);
}

static void assert_forward_refused(const tl_qlinear *q, size_t begin, size_t end, const float *x,
                                   size_t x_len, float *y, size_t y_len, tl_work *work) {
    tl_error err = {TL_OK, 0, ""};
    assert_int_equal(tl_qlinear_forward(q, begin, end, x, x_len, 2, y, y_len, work, &err),
                     TL_ERR_INVALID);
    assert_int_equal(err.status, TL_ERR_INVALID);
    assert_true(y == NULL || (y[0] == 5.0f && y[3] == 5.0f));
}

static void forward_is_checked(void **state) {
    (void)state;
    const float w[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const float x[8] = {1, 0, 0, 0, 0, 1, 0, 0};
    float y[4] = {5, 5, 5, 5};
    tl_work *work = NULL;
    tl_work *small = NULL;
    tl_qlinear q = {0};
    assert_int_equal(tl_work_new(&work, TL_ISA_AUTO, 4, NULL), TL_OK);
    assert_int_equal(tl_work_new(&small, TL_ISA_AUTO, 3, NULL), TL_OK);
    assert_int_equal(tl_qlinear_quantize(&q, w, 8, 2, 4, 4, NULL), TL_OK);
    assert_forward_refused(NULL, 0, 2, x, 8, y, 4, work);
    assert_forward_refused(&q, 0, 2, NULL, 8, y, 4, work);
    assert_forward_refused(&q, 0, 2, x, 8, NULL, 4, work);
    assert_forward_refused(&q, 0, 2, x, 8, y, 4, NULL);
    assert_forward_refused(&q, 0, 2, x, 7, y, 4, work);
    assert_forward_refused(&q, 0, 2, x, 8, y, 3, work);
    assert_forward_refused(&q, 2, 1, x, 8, y, 4, work);
    assert_forward_refused(&q, 0, 3, x, 8, y, 4, work);
    assert_forward_refused(&q, 0, 2, x, 8, y, 4, small);
    for (int field = 0; field < 9; field++) {
        tl_qlinear bad = q;
        bad.n_out = field == 0 ? 0 : field == 1 ? 3 : bad.n_out;
        bad.n_in = field == 2 ? 0 : field == 3 ? 8 : bad.n_in;
        bad.group = field == 4 ? 3 : bad.group;
        bad.qweight_len -= field == 5 ? 1 : 0;
        bad.scales_len += field == 6 ? 2 : 0;
        bad.qweight = field == 7 ? NULL : bad.qweight;
        bad.scales = field == 8 ? NULL : bad.scales;
        assert_forward_refused(&bad, 0, 2, x, 8, y, 4, work);
        float out[8];
        assert_int_equal(tl_qlinear_dequantize(&bad, out, 8, NULL), TL_ERR_INVALID);
    }
    float out[8];
    assert_int_equal(tl_qlinear_dequantize(&q, out, 7, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_qlinear_dequantize(&q, out, 9, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_qlinear_dequantize(&q, NULL, 8, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_qlinear_dequantize(NULL, out, 8, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_qlinear_forward(&q, 0, 2, NULL, 0, 0, NULL, 0, work, NULL), TL_OK);
    assert_int_equal(tl_qlinear_forward(&q, 1, 1, x, 8, 2, y, 4, work, NULL), TL_OK);
    assert_true(y[0] == 5.0f && y[3] == 5.0f);
    tl_qlinear_clear(&q);
    tl_work_free(work);
    tl_work_free(small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_widens_exactly_and_comes_back),
        cmocka_unit_test(f32_rounds_as_the_integer_oracle),
        cmocka_unit_test(f16_has_the_numbers_of_the_page),
        cmocka_unit_test(bf16_is_the_upper_half),
        cmocka_unit_test(packing_has_the_numbers_of_the_page),
        cmocka_unit_test(all_bytes_unpack_and_pack_back),
        cmocka_unit_test(packing_is_checked),
        cmocka_unit_test(quantizing_has_the_numbers_of_the_page),
        cmocka_unit_test(quotients_round_half_to_even),
        cmocka_unit_test(small_scales),
        cmocka_unit_test(drawn_weights_are_within_half_a_scale),
        cmocka_unit_test(quantizing_is_checked),
        cmocka_unit_test(forward_equals_the_dequantized_matrix),
        cmocka_unit_test(forward_is_checked),
    };
    return cmocka_run_group_tests_name("quant", tests, NULL, NULL);
}
