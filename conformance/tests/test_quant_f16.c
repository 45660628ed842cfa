/* test_quant_f16.c: rounding to f16, widening from f16 and bf16.
 *
 * Property: to nearest, ties to even, subnormals kept, 65520 and beyond infinite, NaN stays NaN.
 * Every tie that exists between two neighbours is asked, of both signs, and both f32 neighbours of
 * it; beyond these a strided sweep over all f32 patterns against integer arithmetic. Kills s08
 * (truncation).
 *
 * Source: conformance/spec/safetensors.md, int4 tensors; forward.md. */
#include "naive_quant.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    F16_LARGEST = 0x7bff,
    F16_INFINITY = 0x7c00,
    N_TIES = F16_LARGEST + 1, /* one above each finite pattern; the last is 65520 */
    N_PATTERNS = 65536
};

/* A list of f32 inputs with the f16 patterns that they give. */
typedef struct rounding {
    float *x;
    uint16_t *want;
    size_t n;
} rounding;

static rounding new_rounding(ol_test *t, size_t cap) {
    rounding r = {.x = ol_alloc(t, cap * sizeof *r.x), .want = ol_alloc(t, cap * sizeof *r.want)};
    return r;
}

/* The value, and with it its negative. */
static void add_both(rounding *r, float x, unsigned want) {
    r->x[r->n] = x;
    r->want[r->n++] = (uint16_t)want;
    r->x[r->n] = -x;
    r->want[r->n++] = (uint16_t)(want | 0x8000u);
}

static void add_one(rounding *r, float x) {
    r->x[r->n] = x;
    r->want[r->n++] = naive_f16_round(naive_f32_bits(x));
}

static void check_rounding(ol_test *t, const char *name, const rounding *r, const char *what) {
    const json_t *answer = ol_call(t, "f32_to_f16", "{s:o}", "x", ol_f32(r->x, r->n));
    if (!ol_check_ok(t, name, answer, what)) {
        return;
    }
    size_t n = 0;
    const uint16_t *got = ol_res_u16s(t, answer, "h", &n);
    ol_check_f16s(t, name, got, n, r->want, r->n, what);
}

/* Halfway between pattern h and the next one, which is 65536 after the largest. */
static float tie_above(unsigned h) {
    float low = naive_f32_of(naive_f16_widen((uint16_t)h));
    float high = h == F16_LARGEST ? 65536.0f : naive_f32_of(naive_f16_widen((uint16_t)(h + 1)));
    return low + (high - low) / 2.0f;
}

/* ------------------------------------------------------------------ ties and their neighbours */

static void part_ties(ol_test *t) {
    rounding r = new_rounding(t, (size_t)2 * N_TIES);
    for (unsigned h = 0; h < N_TIES; h++) {
        add_both(&r, tie_above(h), h % 2 == 0 ? h : h + 1);
    }
    check_rounding(t, "ties_to_even", &r, "f16 of every tie");
}

static void part_neighbours(ol_test *t) {
    rounding r = new_rounding(t, (size_t)4 * N_TIES);
    for (unsigned h = 0; h < N_TIES; h++) {
        add_both(&r, nextafterf(tie_above(h), 0.0f), h);
        add_both(&r, nextafterf(tie_above(h), INFINITY), h + 1);
    }
    check_rounding(t, "above_and_below_half", &r, "f16 of the f32 neighbours of every tie");
}

/* Mantissas of all ones: the tie above them is odd and goes up into the next exponent, and so does
 * all above it. */
static void part_carry(ol_test *t) {
    rounding r = new_rounding(t, (size_t)6 * 32);
    for (unsigned h = 0x3ff; h < F16_LARGEST; h += 0x400) {
        float next = naive_f32_of(naive_f16_widen((uint16_t)(h + 1)));
        add_both(&r, tie_above(h), h + 1);
        add_both(&r, nextafterf(next, 0.0f), h + 1);
        add_both(&r, nextafterf(tie_above(h), 0.0f), h);
    }
    check_rounding(t, "carry", &r, "f16 of values that round into the next exponent");
}

static void part_overflow(ol_test *t) {
    rounding r = new_rounding(t, 16);
    add_both(&r, 65504.0f, F16_LARGEST);
    add_both(&r, nextafterf(65520.0f, 0.0f), F16_LARGEST);
    add_both(&r, 65520.0f, F16_INFINITY);
    add_both(&r, 65536.0f, F16_INFINITY);
    add_both(&r, 1e10f, F16_INFINITY);
    add_both(&r, FLT_MAX, F16_INFINITY);
    add_both(&r, INFINITY, F16_INFINITY);
    check_rounding(t, "overflow", &r, "f16 of the largest values");
}

/* ------------------------------------------------------------------ small values */

static void part_subnormals(ol_test *t) {
    enum { DRAWN = 4096 };
    rounding r = new_rounding(t, (size_t)0x402 * 4 + DRAWN);
    for (unsigned h = 0; h < 0x401; h++) {
        add_both(&r, naive_f32_of(naive_f16_widen((uint16_t)h)), h);
        add_both(&r, tie_above(h), h % 2 == 0 ? h : h + 1);
    }
    for (size_t i = 0; i < DRAWN; i++) {
        float x = (float)ol_rand_unit(t) * 0x1p-14f;
        add_one(&r, i % 2 == 0 ? x : -x);
    }
    check_rounding(t, "subnormals", &r, "f16 of values up to 2^-14");
}

static void part_underflow(ol_test *t) {
    rounding r = new_rounding(t, 16);
    add_both(&r, 0x1p-25f, 0);
    add_both(&r, nextafterf(0x1p-25f, 1.0f), 1);
    add_both(&r, nextafterf(0x1p-25f, 0.0f), 0);
    add_both(&r, 0x1p-26f, 0);
    add_both(&r, FLT_MIN, 0);
    add_both(&r, 0x1p-149f, 0);
    add_both(&r, 0.0f, 0);
    check_rounding(t, "underflow", &r, "f16 of values around 2^-25");
}

/* Payloads in the high bits, in the low bits alone (which truncation drops), quiet and signalling,
 * both signs. */
static void part_nan(ol_test *t) {
    static const uint32_t nans[] = {0x7fc00000u, 0x7fc00001u, 0x7fffffffu, 0x7f800001u, 0x7f801fffu,
                                    0x7f802000u, 0x7fa00000u, 0x7f900000u, 0x7f800400u, 0xffc00000u,
                                    0xff800001u, 0xff801fffu, 0xffffffffu, 0xffbfffffu};
    rounding r = new_rounding(t, TEST_COUNT(nans));
    for (size_t i = 0; i < TEST_COUNT(nans); i++) {
        r.x[i] = naive_f32_of(nans[i]);
        r.want[i] = 0x7e00;
    }
    r.n = TEST_COUNT(nans);
    check_rounding(t, "nan_stays_nan", &r, "f16 of NaNs");
}

/* Sign, upper payload and the quiet bit, of the same NaNs and of all that f16 has. */
static void part_nan_bits(ol_test *t) {
    static const uint32_t nans[] = {0x7fc00000u, 0x7fc00001u, 0x7fffffffu, 0x7f800001u,
                                    0x7f801fffu, 0x7f802000u, 0x7fa00000u, 0x7f900000u,
                                    0x7f800400u, 0xffc00000u, 0xff800001u, 0xff801fffu,
                                    0xffffffffu, 0xffbfffffu, 0xff82a000u};
    enum { N = TEST_COUNT(nans), N_F16 = 2 * 1023 };
    float *x = ol_alloc(t, N * sizeof *x);
    uint16_t *want = ol_alloc(t, N * sizeof *want);
    for (size_t i = 0; i < N; i++) {
        x[i] = naive_f32_of(nans[i]);
        want[i] = (uint16_t)(nans[i] / 65536u / 32768u * 32768u + 0x7e00u + nans[i] / 8192u % 512u);
    }
    const json_t *answer = ol_call(t, "f32_to_f16", "{s:o}", "x", ol_f32(x, N));
    size_t n = 0;
    if (ol_check_ok(t, "nan_bits", answer, "f16 of NaNs")) {
        const uint16_t *got = ol_res_u16s(t, answer, "h", &n);
        ol_check_u16s(t, "nan_bits", got, n, want, N, "f16 of NaNs");
    }
    uint16_t *h = ol_alloc(t, N_F16 * sizeof *h);
    uint32_t *wide = ol_alloc(t, N_F16 * sizeof *wide);
    for (size_t i = 0; i < N_F16; i++) {
        const uint32_t payload = (uint32_t)(i % 1023) + 1;
        const uint32_t sign = i < 1023 ? 0 : 1;
        h[i] = (uint16_t)(sign * 32768u + 0x7c00u + payload);
        wide[i] = sign * 0x80000000u + 0x7fc00000u + payload % 512u * 8192u;
    }
    answer = ol_call(t, "f16_to_f32", "{s:o}", "h", ol_u16(h, N_F16));
    if (ol_check_ok(t, "nan_bits", answer, "f32 of the f16 NaNs")) {
        const float *got = ol_res_f32s(t, answer, "x", &n);
        uint32_t *bits = ol_alloc(t, n * sizeof *bits);
        memcpy(bits, got, n * sizeof *bits);
        ol_check_u32s(t, "nan_bits", bits, n, wide, N_F16, "f32 bits of the f16 NaNs");
    }
}

/* ------------------------------------------------------------------ all patterns */

static const json_t *widen_all(ol_test *t, const char *op) {
    uint16_t *all = ol_alloc(t, N_PATTERNS * sizeof *all);
    for (uint32_t i = 0; i < N_PATTERNS; i++) {
        all[i] = (uint16_t)i;
    }
    return ol_call(t, op, "{s:o}", "h", ol_u16(all, N_PATTERNS));
}

/* f32 values by their bits, where any NaN will do for a NaN: both sides are made the same NaN. */
static void check_widened(ol_test *t, const char *name, const json_t *answer, const float *want,
                          const char *what) {
    size_t n = 0;
    float *got = ol_res_f32s(t, answer, "x", &n);
    float *expected = ol_alloc(t, N_PATTERNS * sizeof *expected);
    for (size_t i = 0; i < N_PATTERNS; i++) {
        expected[i] = want[i];
        if (i < n && isnan(want[i]) && isnan(got[i])) {
            got[i] = expected[i] = 0.0f;
        }
    }
    ol_check_f32_bits(t, name, got, n, expected, N_PATTERNS, what);
}

static void part_widening(ol_test *t) {
    float *want = ol_alloc(t, N_PATTERNS * sizeof *want);
    for (uint32_t i = 0; i < N_PATTERNS; i++) {
        want[i] = naive_f32_of(naive_f16_widen((uint16_t)i));
    }
    const json_t *answer = widen_all(t, "f16_to_f32");
    if (ol_check_ok(t, "widening_exact", answer, "f16 to f32")) {
        check_widened(t, "widening_exact", answer, want, "f32 of every f16 pattern");
    }
    for (uint32_t i = 0; i < N_PATTERNS; i++) {
        want[i] = naive_f32_of(i << 16);
    }
    answer = widen_all(t, "bf16_to_f32");
    if (ol_check_ok(t, "bf16_widening", answer, "bf16 to f32")) {
        check_widened(t, "bf16_widening", answer, want, "f32 of every bf16 pattern");
    }
}

/* There and back by the engine alone. */
static void part_round_trip(ol_test *t) {
    const json_t *answer = widen_all(t, "f16_to_f32");
    if (!ol_check_ok(t, "round_trip", answer, "f16 to f32")) {
        return;
    }
    rounding r = new_rounding(t, N_PATTERNS);
    r.x = ol_res_f32s(t, answer, "x", &r.n);
    if (!ol_check_int(t, "round_trip", (int64_t)r.n, N_PATTERNS, "widened values")) {
        return;
    }
    for (uint32_t i = 0; i < N_PATTERNS; i++) {
        r.want[i] = (uint16_t)i;
    }
    check_rounding(t, "round_trip", &r, "f16 of the f32 of every f16 pattern");
}

static void part_sweep(ol_test *t) {
    /* A prime, so that the sweep meets every residue of the low bits. */
    enum { STRIDE = 16381, CHUNK = 65536 };
    rounding r = new_rounding(t, CHUNK);
    uint64_t bits = ol_rand_below(t, STRIDE);
    for (; bits <= UINT32_MAX; bits += STRIDE) {
        add_one(&r, naive_f32_of((uint32_t)bits));
        if (r.n == CHUNK) {
            check_rounding(t, "oracle_sweep", &r, "f16 of a sweep over all f32 patterns");
            r.n = 0;
        }
    }
    check_rounding(t, "oracle_sweep", &r, "f16 of a sweep over all f32 patterns");
}

/* ------------------------------------------------------------------ the golden */

static void run_case(ol_test *t, const ol_case *c) {
    rounding r = {0};
    size_t n_want = 0;
    r.x = ol_get_f32s(t, c, c->body, "f32", &r.n);
    r.want = ol_get_u16s(t, c, c->body, "f16", &n_want);
    r.n = n_want < r.n ? n_want : r.n;
    ol_begin_case(t, c);
    check_rounding(t, "golden_vectors", &r, "f16");
}

void test_f16_rounds_to_nearest_even(ol_test *t) {
    static const test_part parts[] = {{"ties", part_ties},
                                      {"neighbours", part_neighbours},
                                      {"carry-own", part_carry},
                                      {"overflow-own", part_overflow},
                                      {"subnormals", part_subnormals},
                                      {"underflow", part_underflow},
                                      {"nan-own", part_nan},
                                      {"nan-bits", part_nan_bits},
                                      {"widening", part_widening},
                                      {"round-trip", part_round_trip},
                                      {"sweep", part_sweep}};
    for (size_t i = 0; i < ol_n_cases(t, "f16"); i++) {
        run_case(t, ol_case_at(t, "f16", i));
    }
    test_run_parts(t, parts, TEST_COUNT(parts));
}
