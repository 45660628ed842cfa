/* test_compare.c: the judge's comparisons hold exactly what they say, for NaN, infinities, signed
 * zeros, subnormals and wrong lengths; and show the first difference in full. */
#include "../runner/compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

static float f32(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static double f64(uint64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static ol_diff one(float got, float want) {
    return ol_compare_bits(OL_TYPE_F32, &got, 1, &want, 1);
}

static ol_diff near(float got, float want, double bound) {
    return ol_compare_max_abs(&got, 1, &want, 1, bound);
}

static void assert_says(const ol_diff *diff, const char *word) {
    char text[512];
    ol_diff_text(diff, text, sizeof text);
    if (strstr(text, word) == NULL) {
        fail_msg("`%s` is not said: %s", word, text);
    }
}

/* ------------------------------------------------------------------ bits */

static void bits_hold_for_the_same(void **state) {
    (void)state;
    static const uint32_t patterns[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff,
                                        0x00800000, 0x3f800000, 0x7f7fffff, 0x7f800000, 0xff800000};
    for (size_t i = 0; i < LEN(patterns); i++) {
        for (size_t k = 0; k < LEN(patterns); k++) {
            assert_int_equal(one(f32(patterns[i]), f32(patterns[k])).held, i == k);
        }
    }
}

static void bits_tell_signed_zeros(void **state) {
    (void)state;
    ol_diff diff = one(-0.0f, 0.0f);
    assert_false(diff.held);
    assert_true(diff.has_ulp);
    assert_int_equal(diff.ulp, 0);
    assert_says(&diff, "0x80000000");
    assert_says(&diff, "0x00000000");
}

static void nan_equals_nan_only(void **state) {
    (void)state;
    static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff};
    for (size_t i = 0; i < LEN(nans); i++) {
        assert_true(one(f32(nans[i]), f32(nans[0])).held);
        assert_false(one(f32(nans[i]), 1.0f).held);
        assert_false(one(1.0f, f32(nans[i])).held);
        assert_false(one(f32(nans[i]), (float)INFINITY).held);
        assert_false(one(0.0f, f32(nans[i])).held);
    }
    ol_diff diff = one((float)NAN, 1.0f);
    assert_true(diff.nonfinite);
    assert_false(diff.has_ulp);
    assert_says(&diff, "not a finite number");
    assert_false(one((float)NAN, (float)INFINITY).nonfinite);
}

static void f64_and_f16_follow_the_same_rules(void **state) {
    (void)state;
    double got = f64(0xfff8000000000001u);
    double want = f64(0x7ff8000000000000u);
    assert_true(ol_compare_bits(OL_TYPE_F64, &got, 1, &want, 1).held);
    got = nextafter(1.0, 2.0);
    want = 1.0;
    ol_diff diff = ol_compare_bits(OL_TYPE_F64, &got, 1, &want, 1);
    assert_false(diff.held);
    assert_int_equal(diff.ulp, 1);
    uint16_t h_nan[] = {0x7e00, 0xfe01, 0x7c01};
    uint16_t h_inf = 0x7c00;
    for (size_t i = 0; i < LEN(h_nan); i++) {
        assert_true(ol_compare_bits(OL_TYPE_F16, &h_nan[i], 1, &h_nan[0], 1).held);
        assert_false(ol_compare_bits(OL_TYPE_F16, &h_nan[i], 1, &h_inf, 1).held);
        /* As plain numbers of 16 bits they differ. */
        assert_int_equal(ol_compare_bits(OL_TYPE_U16, &h_nan[i], 1, &h_nan[0], 1).held, i == 0);
    }
    uint16_t h_got = 0x0001;
    uint16_t h_want = 0x8001;
    diff = ol_compare_bits(OL_TYPE_F16, &h_got, 1, &h_want, 1);
    assert_int_equal(diff.ulp, 2);
    assert_says(&diff, "5.9605e-08");
}

static void lengths_count(void **state) {
    (void)state;
    float x[] = {1, 2, 3};
    assert_true(ol_compare_bits(OL_TYPE_F32, x, 0, x, 0).held);
    assert_true(ol_compare_bits(OL_TYPE_F32, NULL, 0, NULL, 0).held);
    assert_false(ol_compare_bits(OL_TYPE_F32, x, 2, x, 3).held);
    assert_false(ol_compare_bits(OL_TYPE_F32, x, 3, x, 2).held);
    assert_false(ol_compare_bits(OL_TYPE_F32, NULL, 0, x, 3).held);
    assert_false(ol_compare_max_abs(x, 2, x, 3, 1).held);
    assert_false(ol_compare_max_abs(NULL, 0, x, 3, 1).held);
    double want[] = {1, 2};
    double allowed[] = {1, 1};
    assert_false(ol_compare_within(x, 3, want, allowed, 2).held);
    ol_diff diff = ol_compare_bits(OL_TYPE_F32, x, 2, x, 3);
    assert_true(diff.wrong_length);
    assert_says(&diff, "2 values came, 3 are wanted");
}

static void the_first_difference_is_kept(void **state) {
    (void)state;
    uint32_t got[] = {1, 2, 9, 4, 9};
    uint32_t want[] = {1, 2, 3, 4, 5};
    ol_diff diff = ol_compare_bits(OL_TYPE_U32, got, 5, want, 5);
    assert_false(diff.held);
    assert_int_equal(diff.index, 2);
    assert_int_equal(diff.n_over, 2);
    assert_string_equal(diff.got, "9 (0x00000009)");
    assert_string_equal(diff.want, "3 (0x00000003)");
    assert_says(&diff, "element 2 of 5 is the first of 2 that differ");
}

static void integers_are_shown_with_their_sign(void **state) {
    (void)state;
    int64_t got = -1;
    int64_t want = INT64_MIN;
    ol_diff diff = ol_compare_bits(OL_TYPE_I64, &got, 1, &want, 1);
    assert_string_equal(diff.got, "-1");
    assert_string_equal(diff.want, "-9223372036854775808");
    int8_t g8 = -128;
    int8_t w8 = 127;
    diff = ol_compare_bits(OL_TYPE_I8, &g8, 1, &w8, 1);
    assert_string_equal(diff.got, "-128");
    assert_string_equal(diff.want, "127");
    uint64_t gu = UINT64_MAX;
    uint64_t wu = 0;
    diff = ol_compare_bits(OL_TYPE_U64, &gu, 1, &wu, 1);
    assert_string_equal(diff.got, "18446744073709551615 (0xffffffffffffffff)");
}

/* ------------------------------------------------------------------ ulp */

static void ulp_counts_values_between(void **state) {
    (void)state;
    static const struct {
        uint32_t a, b;
        uint64_t ulp;
    } rows[] = {
        {0x3f800000, 0x3f800001, 1},          {0x00000000, 0x80000000, 0},
        {0x00000001, 0x80000001, 2},          {0x007fffff, 0x00800000, 1},
        {0x7f7fffff, 0x7f800000, 1},          {0xff800000, 0x7f800000, 2u * 0x7f800000u},
        {0x3f800000, 0xbf800000, 0x7f000000},
    };
    for (size_t i = 0; i < LEN(rows); i++) {
        uint64_t ulp = 77;
        assert_true(ol_ulp_f32(f32(rows[i].a), f32(rows[i].b), &ulp));
        assert_int_equal(ulp, rows[i].ulp);
        assert_true(ol_ulp_f32(f32(rows[i].b), f32(rows[i].a), &ulp));
        assert_int_equal(ulp, rows[i].ulp);
    }
    uint64_t ulp = 0;
    assert_false(ol_ulp_f32((float)NAN, 1.0f, &ulp));
    assert_false(ol_ulp_f64(1.0, (double)NAN, &ulp));
    assert_true(ol_ulp_f64(-(double)INFINITY, (double)INFINITY, &ulp));
    assert_true(ulp == 2 * UINT64_C(0x7ff0000000000000));
}

/* ------------------------------------------------------------------ tolerance */

static void max_abs_holds_up_to_the_bound(void **state) {
    (void)state;
    assert_true(near(1.5f, 1.0f, 0.5).held);
    assert_true(near(0.5f, 1.0f, 0.5).held);
    assert_false(near(1.5000001f, 1.0f, 0.5).held);
    assert_false(near(-1.0f, 1.0f, 0.5).held);
    ol_diff diff = near(2.0f, 1.0f, 0.25);
    assert_true(diff.worst == 4.0);
    assert_true(diff.error == 1.0 && diff.allowed == 0.25);
    assert_says(&diff, "4 times");
}

static void max_abs_counts_the_largest_want(void **state) {
    (void)state;
    float want[] = {0.001f, -100.0f, 0.0f};
    float got[] = {0.101f, -100.1f, -0.1f};
    assert_true(ol_compare_max_abs(got, 3, want, 3, 1.01e-3).held);
    got[2] = -0.2f;
    ol_diff diff = ol_compare_max_abs(got, 3, want, 3, 1.01e-3);
    assert_false(diff.held);
    assert_int_equal(diff.index, 2);
    assert_int_equal(diff.worst_index, 2);
    /* What is got does not widen it. */
    got[1] = -1000.0f;
    assert_int_equal(ol_compare_max_abs(got, 3, want, 3, 1.01e-3).n_over, 2);
}

static void no_tolerance_lets_nan_pass(void **state) {
    (void)state;
    static const double bounds[] = {0, 1e-3, 1e30, (double)INFINITY};
    for (size_t i = 0; i < LEN(bounds); i++) {
        ol_diff diff = near((float)NAN, 1.0f, bounds[i]);
        assert_false(diff.held);
        assert_true(diff.nonfinite);
        assert_false(near(1.0f, (float)NAN, bounds[i]).held);
        assert_true(near((float)NAN, (float)NAN, bounds[i]).held);
        assert_false(near((float)INFINITY, (float)NAN, bounds[i]).held);
    }
}

static void no_tolerance_lets_infinity_pass(void **state) {
    (void)state;
    static const double bounds[] = {0, 1e-3, 1e30};
    for (size_t i = 0; i < LEN(bounds); i++) {
        assert_false(near((float)INFINITY, 1.0f, bounds[i]).held);
        assert_false(near(-(float)INFINITY, 1.0f, bounds[i]).held);
        assert_false(near(1.0f, (float)INFINITY, bounds[i]).held);
        assert_false(near(-(float)INFINITY, (float)INFINITY, bounds[i]).held);
        assert_true(near((float)INFINITY, (float)INFINITY, bounds[i]).held);
    }
    /* An infinite want does not make the bound of the others infinite. */
    float want[] = {(float)INFINITY, 1.0f};
    float got[] = {(float)INFINITY, 2.0f};
    assert_false(ol_compare_max_abs(got, 2, want, 2, 1e-3).held);
}

static void zero_bounds_and_zero_wants(void **state) {
    (void)state;
    assert_true(near(0.0f, 0.0f, 1e-3).held);
    assert_true(near(-0.0f, 0.0f, 0.0).held);
    assert_false(near(f32(1), 0.0f, 1e-3).held);
    assert_true(near(f32(1), f32(1), 0.0).held);
    assert_false(near(f32(1), f32(2), 0.0).held);
    ol_diff diff = near(f32(1), 0.0f, 1e-3);
    assert_true(isinf(diff.worst));
}

static void within_has_an_allowance_for_each(void **state) {
    (void)state;
    float got[] = {1.0f, 2.5f, 3.0f};
    double want[] = {1.0, 2.0, 3.5};
    double allowed[] = {0.0, 0.5, 0.5};
    assert_true(ol_compare_within(got, 3, want, allowed, 3).held);
    allowed[2] = 0.49;
    ol_diff diff = ol_compare_within(got, 3, want, allowed, 3);
    assert_false(diff.held);
    assert_int_equal(diff.index, 2);
    got[0] = (float)NAN;
    assert_int_equal(ol_compare_within(got, 3, want, allowed, 3).n_over, 2);
    /* A broken allowance allows nothing. */
    allowed[1] = (double)NAN;
    assert_int_equal(ol_compare_within(got, 3, want, allowed, 3).n_over, 3);
    allowed[1] = -1;
    assert_int_equal(ol_compare_within(got, 3, want, allowed, 3).n_over, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_hold_for_the_same),
        cmocka_unit_test(bits_tell_signed_zeros),
        cmocka_unit_test(nan_equals_nan_only),
        cmocka_unit_test(f64_and_f16_follow_the_same_rules),
        cmocka_unit_test(lengths_count),
        cmocka_unit_test(the_first_difference_is_kept),
        cmocka_unit_test(integers_are_shown_with_their_sign),
        cmocka_unit_test(ulp_counts_values_between),
        cmocka_unit_test(max_abs_holds_up_to_the_bound),
        cmocka_unit_test(max_abs_counts_the_largest_want),
        cmocka_unit_test(no_tolerance_lets_nan_pass),
        cmocka_unit_test(no_tolerance_lets_infinity_pass),
        cmocka_unit_test(zero_bounds_and_zero_wants),
        cmocka_unit_test(within_has_an_allowance_for_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) == 0 ? 0 : 1;
}
