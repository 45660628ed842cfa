/* test_quant_int4.c: int4: the worked numbers, nibble order, scales at the edges, refusals.
 *
 * Property: scale, values and bytes of the page's example; the quotient is taken by the stored
 * scale; column 2b is in the low nibble. Kills s09 (nibbles swapped) and s10 (quotient by the f32
 * scale).
 *
 * Source: conformance/spec/safetensors.md, int4 tensors. */
#include "naive_quant.h"

#include <math.h>
#include <string.h>

#define SCALE_ONE 0x3c00

static const json_t *ask_quantize(ol_test *t, const float *w, size_t n_w, size_t n_out, size_t n_in,
                                  size_t group) {
    return ol_call(t, "quantize", "{s:o, s:I, s:I, s:I}", "w", ol_f32(w, n_w), "n_out",
                   (json_int_t)n_out, "n_in", (json_int_t)n_in, "group", (json_int_t)group);
}

/* What a quantizer gave, unpacked by the judge. */
typedef struct quantized {
    uint16_t *scales;
    size_t n_scales;
    int8_t *q;
    size_t n_q;
    uint8_t *bytes;
    size_t n_bytes;
} quantized;

static int8_t *unpack(ol_test *t, const uint8_t *bytes, size_t n) {
    int8_t *q = ol_alloc(t, 2 * n + 1);
    for (size_t i = 0; i < n; i++) {
        naive_unpack(bytes[i], q + 2 * i);
    }
    return q;
}

/* false: refused, and recorded as a failure of the check. */
static bool quantize(ol_test *t, const char *name, const float *w, size_t n_out, size_t n_in,
                     size_t group, const char *what, quantized *out) {
    const json_t *answer = ask_quantize(t, w, n_out * n_in, n_out, n_in, group);
    if (!ol_check_ok(t, name, answer, what)) {
        return false;
    }
    out->scales = ol_res_u16s(t, answer, "scales", &out->n_scales);
    out->bytes = ol_res_u8s(t, answer, "qweight", &out->n_bytes);
    out->n_q = 2 * out->n_bytes;
    out->q = unpack(t, out->bytes, out->n_bytes);
    return true;
}

/* The check `name`: one row of one group gives this scale and these values. */
static void check_row(ol_test *t, const char *name, const float *w, size_t n, uint16_t scale,
                      const int8_t *q, const char *what) {
    quantized got;
    if (quantize(t, name, w, 1, n, n, what, &got)) {
        ol_check_u16s(t, name, got.scales, got.n_scales, &scale, 1, ol_text(t, "scale: %s", what));
        ol_check_i8s(t, name, got.q, got.n_q, q, n, ol_text(t, "values: %s", what));
    }
}

/* ------------------------------------------------------------------ the example */

/* 1.4 / 7 = 0.2, stored as 0.199951171875. By the stored scale 0.29995 / s is 1.5001, by the other
 * one 1.49975. */
static void part_example(ol_test *t) {
    static const float w[] = {0.7f, -1.4f, 0.0f, 0.29995f};
    static const uint16_t scale = 0x3266;
    static const int8_t q[] = {4, -7, 0, 2};
    quantized got;
    bool ok = quantize(t, "example_scale", w, 1, 4, 4, "[0.7, -1.4, 0, 0.29995]", &got);
    if (ok) {
        ol_check_u16s(t, "example_scale", got.scales, got.n_scales, &scale, 1, "the stored scale");
    }
    check_row(t, "example_values", w, 4, scale, q, "[0.7, -1.4, 0, 0.29995]");
}

static const json_t *ask_pack(ol_test *t, const int8_t *q, size_t rows, size_t cols) {
    return ol_call(t, "int4_pack", "{s:o, s:I, s:I}", "q", ol_i8(q, rows * cols), "rows",
                   (json_int_t)rows, "cols", (json_int_t)cols);
}

static void check_packed(ol_test *t, const char *name, const int8_t *q, size_t n,
                         const uint8_t *want, const char *what) {
    const json_t *answer = ask_pack(t, q, 1, n);
    if (ol_check_ok(t, name, answer, what)) {
        size_t n_got = 0;
        const uint8_t *got = ol_res_u8s(t, answer, "packed", &n_got);
        ol_check_u8s(t, name, got, n_got, want, n / 2, what);
    }
}

static void check_unpacked(ol_test *t, const char *name, const uint8_t *bytes, size_t n,
                           const int8_t *want, const char *what) {
    const json_t *answer = ol_call(t, "int4_unpack", "{s:o}", "packed", ol_u8(bytes, n));
    if (ol_check_ok(t, name, answer, what)) {
        size_t n_got = 0;
        const int8_t *got = ol_res_i8s(t, answer, "q", &n_got);
        ol_check_i8s(t, name, got, n_got, want, 2 * n, what);
    }
}

static void part_packing(ol_test *t) {
    static const int8_t q[] = {-8, 7, 1, -1};
    static const uint8_t bytes[] = {0x78, 0xf1};
    check_packed(t, "example_packing", q, 4, bytes, "bytes of -8, 7, 1, -1");
    check_unpacked(t, "example_packing", bytes, 2, q, "values of the bytes 78 f1");
}

/* In pack, in unpack, and in what dequantize makes of a byte. */
static void part_nibbles(ol_test *t) {
    static const uint8_t bytes[] = {0x21, 0x43};
    static const int8_t q[] = {1, 2, 3, 4};
    static const float w[] = {1, 2, 3, 4};
    static const uint16_t scale = SCALE_ONE;
    check_unpacked(t, "nibble_order", bytes, 2, q, "values of the bytes 21 43");
    check_packed(t, "nibble_order", q, 4, bytes, "bytes of 1, 2, 3, 4");
    const json_t *answer =
        ol_call(t, "dequantize", "{s:o, s:o, s:i, s:i, s:i}", "qweight", ol_u8(bytes, 2), "scales",
                ol_u16(&scale, 1), "n_out", 1, "n_in", 4, "group", 4);
    if (ol_check_ok(t, "nibble_order", answer, "dequantize of the bytes 21 43")) {
        size_t n = 0;
        const float *got = ol_res_f32s(t, answer, "w", &n);
        ol_check_f32_bits(t, "nibble_order", got, n, w, 4, "dequantized bytes 21 43");
    }
}

static void part_bytes(ol_test *t) {
    uint8_t bytes[256];
    for (size_t i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
    }
    const int8_t *q = unpack(t, bytes, 256);
    check_unpacked(t, "all_bytes", bytes, 256, q, "values of all 256 bytes");
    check_packed(t, "all_bytes", q, 512, bytes, "all 256 bytes, packed again");
}

static void part_pack_range(ol_test *t) {
    static const int8_t outside[] = {8, -9, 127, -128, 15, 16, -16, 9};
    for (size_t i = 0; i < TEST_COUNT(outside); i++) {
        for (size_t at = 0; at < 8; at += 7) {
            int8_t q[8] = {7, -8, 0, 1, -1, 2, -2, 7};
            q[at] = outside[i];
            const char *what = ol_text(t, "pack of %d at index %zu", outside[i], at);
            ol_check_refused(t, "pack_refuses_range", ask_pack(t, q, 2, 4), "INVALID",
                             ol_text(t, OL_TERMS("q %zu %d -8 7"), at, outside[i]), -1, what);
            q[at] = outside[i] < 0 ? -8 : 7;
            ol_check_ok(t, "pack_refuses_range", ask_pack(t, q, 2, 4),
                        ol_text(t, "pack of %d at index %zu", q[at], at));
        }
    }
    static const int8_t zeros[9] = {0};
    ol_check_refused(t, "pack_refuses_range", ask_pack(t, zeros, 3, 3), "INVALID",
                     OL_TERMS("cols|columns|n_in 3"), -1, "pack of three columns");
}

/* ------------------------------------------------------------------ quotients and scales */

/* A largest weight of 7 makes the scale 1: the quotients are the weights. */
static void part_half(ol_test *t) {
    static const float w[] = {7.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, -3.5f, 6.5f, -6.5f};
    static const int8_t q[] = {7, 0, 2, 2, 0, -2, -2, -4, 6, -6};
    check_row(t, "half_to_even", w, TEST_COUNT(w), SCALE_ONE, q, "halves at scale 1");
    static const float w2[] = {-14.0f, 1.0f, 3.0f, 5.0f, -1.0f, -3.0f, -5.0f, 13.0f};
    static const int8_t q2[] = {-7, 0, 2, 2, 0, -2, -2, 6};
    check_row(t, "half_to_even", w2, TEST_COUNT(w2), 0x4000, q2, "halves at scale 2");
}

static void check_zero_scale(ol_test *t, const float *w, const char *what) {
    static const int8_t zeros[4] = {0};
    static const float none[4] = {0};
    quantized got;
    check_row(t, "zero_scale", w, 4, 0, zeros, what);
    if (!quantize(t, "zero_scale", w, 1, 4, 4, what, &got)) {
        return;
    }
    const json_t *answer = ol_call(
        t, "dequantize", "{s:o, s:o, s:i, s:i, s:i}", "qweight", ol_u8(got.bytes, got.n_bytes),
        "scales", ol_u16(got.scales, got.n_scales), "n_out", 1, "n_in", 4, "group", 4);
    if (ol_check_ok(t, "zero_scale", answer, what)) {
        size_t n = 0;
        const float *values = ol_res_f32s(t, answer, "w", &n);
        ol_check_f32_bits(t, "zero_scale", values, n, none, 4, what);
    }
}

/* Half of the smallest f16 is 2^-25: a largest weight of 7 x 2^-25 is the last one whose scale
 * rounds to 0. */
static void part_zero_scale(ol_test *t) {
    static const float zeros[] = {0.0f, -0.0f, 0.0f, 0.0f};
    static const float tiny[] = {1e-8f, -2e-8f, 0.0f, 1.5e-8f};
    static const float edge[] = {7 * 0x1p-25f, -7 * 0x1p-25f, 0.0f, 0x1p-25f};
    check_zero_scale(t, zeros, "a group of zeros");
    check_zero_scale(t, tiny, "weights of 1e-8");
    check_zero_scale(t, edge, "a largest weight of 7 x 2^-25");
}

/* 1.4 units of 2^-24 are stored as one unit: the quotients go past the range and are clamped. */
static void part_subnormal_scale(ol_test *t) {
    static const float unit = 0x1p-24f;
    const float w[] = {9.8f * unit, -9.8f * unit, 7.0f * unit, -8.0f * unit,
                       3.4f * unit, -8.6f * unit, 0.4f * unit, -0.6f * unit};
    static const int8_t q[] = {7, -8, 7, -8, 3, -8, 0, -1};
    check_row(t, "subnormal_scale", w, TEST_COUNT(w), 1, q, "1.4 x 2^-24 stored as 2^-24");
    const float w2[] = {7.0f * 2.6f * unit, -7.0f * 2.6f * unit, 3.0f * unit, 6.0f * unit};
    static const int8_t q2[] = {6, -6, 1, 2};
    check_row(t, "subnormal_scale", w2, TEST_COUNT(w2), 3, q2, "2.6 x 2^-24 stored as 3 x 2^-24");
}

/* ------------------------------------------------------------------ refusals */

static void check_weight(ol_test *t, float weight, bool legal, const char *what) {
    for (size_t at = 0; at < 16; at += 5) {
        float w[16];
        for (size_t i = 0; i < 16; i++) {
            w[i] = (float)i * 0.125f - 1.0f;
        }
        w[at] = weight;
        const json_t *answer = ask_quantize(t, w, 16, 2, 8, 4);
        const char *where = ol_text(t, "%s at index %zu of 16", what, at);
        if (legal) {
            ol_check_ok(t, "refused_weights", answer, where);
        } else {
            /* A group by row and number, a weight by row and column; or by one index. */
            const char *terms =
                isfinite(weight)
                    ? ol_text(t, OL_TERMS("w|weight|row %zu|%zu group|groups %zu|%zu"), at / 8,
                              at / 4, at / 4 % 2, at / 4)
                    : ol_text(t, OL_TERMS("w|weight|row %zu|%zu %zu|%zu"), at / 8, at, at % 8, at);
            ol_check_refused(t, "refused_weights", answer, "INVALID", terms, -1, where);
        }
    }
}

/* 7 x 65520 is the first largest weight whose scale rounds to infinity. */
static void part_refused_weights(ol_test *t) {
    check_weight(t, NAN, false, "NaN");
    check_weight(t, naive_f32_of(0xff800001u), false, "a NaN with its payload in the lowest bit");
    check_weight(t, INFINITY, false, "infinity");
    check_weight(t, -INFINITY, false, "-infinity");
    check_weight(t, 458640.0f, false, "458640 = 7 x 65520");
    check_weight(t, -458640.0f, false, "-458640");
    check_weight(t, 3e38f, false, "3e38");
    check_weight(t, nextafterf(458640.0f, 0.0f), true, "the f32 below 458640");
    check_weight(t, -nextafterf(458640.0f, 0.0f), true, "the f32 above -458640");
}

static void part_refused_shapes(ol_test *t) {
    static const struct {
        size_t n_w, n_out, n_in, group;
        const char *what;
        const char *terms; /* of the refusal; NULL: legal */
    } shapes[] = {
        {12, 2, 6, 0, "a group of 0", OL_TERMS("group 0")},
        {12, 2, 6, 3, "a group of 3, which is odd", OL_TERMS("group 3")},
        {12, 2, 6, 1, "a group of 1, which is odd", OL_TERMS("group 1")},
        {12, 2, 6, 4, "a group of 4 in 6 columns", OL_TERMS("group 4 6")},
        {12, 2, 6, 12, "a group of 12 in 6 columns", OL_TERMS("group 12 6")},
        {10, 2, 5, 5, "5 columns in a group of 5", OL_TERMS("group 5")},
        {6, 0, 6, 6, "no rows", OL_TERMS("n_out|shape|rows|w 0")},
        {6, 2, 0, 6, "no columns", OL_TERMS("n_in|shape|columns|w 0")},
        {11, 2, 6, 6, "11 weights for 2 x 6", OL_TERMS("w_len|weights|w 11 2|12 6|12")},
        {13, 2, 6, 6, "13 weights for 2 x 6", OL_TERMS("w_len|weights|w 13 2|12 6|12")},
        {12, 2, 6, 6, "a group of 6 in 6 columns", NULL},
        {12, 2, 6, 2, "a group of 2 in 6 columns", NULL},
    };
    float w[16];
    for (size_t i = 0; i < 16; i++) {
        w[i] = (float)i;
    }
    for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
        const json_t *answer =
            ask_quantize(t, w, shapes[i].n_w, shapes[i].n_out, shapes[i].n_in, shapes[i].group);
        if (shapes[i].terms == NULL) {
            ol_check_ok(t, "refused_shapes", answer, shapes[i].what);
        } else {
            ol_check_refused(t, "refused_shapes", answer, "INVALID", shapes[i].terms, -1,
                             shapes[i].what);
        }
    }
}

/* ------------------------------------------------------------------ the bound */

static void part_error_bound(ol_test *t) {
    enum { ROWS = 12, COLS = 96, GROUP = 16, N = ROWS * COLS };
    float *w = ol_alloc(t, N * sizeof *w);
    for (size_t i = 0; i < N; i++) {
        /* Each group has a size of its own, down to scales near the smallest normal one. */
        w[i] = ol_rand_normal(t) * ldexpf(1.0f, (int)(i / GROUP % 20) - 8);
    }
    quantized got;
    if (!quantize(t, "error_bound", w, ROWS, COLS, GROUP, "drawn weights", &got) ||
        !ol_check_int(t, "error_bound", (int64_t)got.n_q, N, "number of values") ||
        !ol_check_int(t, "error_bound", (int64_t)got.n_scales, N / GROUP, "number of scales")) {
        return;
    }
    for (size_t i = 0; i < N; i++) {
        uint16_t scale = got.scales[i / GROUP];
        double s = (double)naive_f32_of(naive_f16_widen(scale));
        double off = fabs((double)w[i] - (double)got.q[i] * s);
        /* The quotient is rounded to f32 before it is rounded to an integer: up to 8 x 2^-24 of s
         * more. */
        double allowed = s / 2 + s * 8 * 0x1p-24;
        if (scale >= 0x0400 && !(off <= allowed)) {
            ol_check(t, "error_bound", false, "weight %zu is off by %g, half a scale is %g", i, off,
                     allowed);
            return;
        }
    }
    ol_held(t, "error_bound");
}

/* ------------------------------------------------------------------ the golden */

static const char *case_statuses(ol_test *t, const ol_case *c) {
    const json_t *list = ol_get_array(t, c, c->body, "status");
    const char *text = "";
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *status = json_string_value(json_array_get(list, i));
        text = ol_text(t, "%s%s%s", text, i == 0 ? "" : "|", status == NULL ? "" : status);
    }
    return text;
}

static bool is_refused(const ol_case *c) {
    const char *verdict = json_string_value(json_object_get(c->body, "verdict"));
    return verdict != NULL && strcmp(verdict, "refuse") == 0;
}

static const json_t *ask_case(ol_test *t, const ol_case *c) {
    size_t n_out = ol_get_count(t, c, c->body, "n_out");
    size_t n_in = ol_get_count(t, c, c->body, "n_in");
    if (json_object_get(c->body, "weights") == NULL) {
        size_t n = 0;
        const int8_t *q = ol_get_i8s(t, c, c->body, "q", &n);
        return ol_call(t, "int4_pack", "{s:o, s:I, s:I}", "q", ol_i8(q, n), "rows",
                       (json_int_t)n_out, "cols", (json_int_t)n_in);
    }
    size_t n = 0;
    const float *w = ol_get_f32s(t, c, c->body, "weights", &n);
    return ask_quantize(t, w, n, n_out, n_in, ol_get_count(t, c, c->body, "group"));
}

static void check_accepted(ol_test *t, const ol_case *c) {
    const json_t *answer = ask_case(t, c);
    if (!ol_check_ok(t, "golden_vectors", answer, c->id)) {
        return;
    }
    size_t n = 0;
    size_t n_want = 0;
    const uint8_t *bytes = ol_get_bytes(t, c, c->body, "qweight", &n_want);
    bool packed_only = json_object_get(c->body, "weights") == NULL;
    const uint8_t *got = ol_res_u8s(t, answer, packed_only ? "packed" : "qweight", &n);
    ol_check_u8s(t, "golden_vectors", got, n, bytes, n_want, "packed bytes");
    if (packed_only) {
        return;
    }
    const int8_t *q = unpack(t, got, n);
    const int8_t *want_q = ol_get_i8s(t, c, c->body, "q", &n_want);
    ol_check_i8s(t, "golden_vectors", q, 2 * n, want_q, n_want, "values");
    const uint16_t *want = ol_get_u16s(t, c, c->body, "scales", &n_want);
    const uint16_t *scales = ol_res_u16s(t, answer, "scales", &n);
    ol_check_u16s(t, "golden_vectors", scales, n, want, n_want, "scales");
}

static void run_case(ol_test *t, const ol_case *c) {
    ol_begin_case(t, c);
    if (!is_refused(c)) {
        check_accepted(t, c);
        return;
    }
    const char *subject = ol_get_text_or(t, c, c->body, "subject", NULL);
    ol_check_refused(t, "golden_vectors", ask_case(t, c), case_statuses(t, c), subject, -1, c->id);
    const ol_case *twin = ol_case_find(t, c, ol_get_text(t, c, c->body, "twin"));
    if (twin != NULL) {
        check_accepted(t, twin);
    }
}

void test_int4_hand_example(ol_test *t) {
    static const test_part parts[] = {{"example", part_example},
                                      {"packing", part_packing},
                                      {"nibbles", part_nibbles},
                                      {"bytes", part_bytes},
                                      {"pack-range", part_pack_range},
                                      {"half", part_half},
                                      {"zero-scale", part_zero_scale},
                                      {"subnormal-scale", part_subnormal_scale},
                                      {"refused-weights", part_refused_weights},
                                      {"refused-shapes", part_refused_shapes},
                                      {"error-bound", part_error_bound}};
    for (size_t i = 0; i < ol_n_cases(t, "int4"); i++) {
        run_case(t, ol_case_at(t, "int4", i));
    }
    test_run_parts(t, parts, TEST_COUNT(parts));
    test_c_arguments(t, "quant");
}
