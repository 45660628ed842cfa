/* The generator, its streams and its uniforms have the bits of the specification.
 *
 * Expected numbers: the demo line of the pcg_basic library for (42, 54), the worked numbers of
 * conformance/spec/pcg32.md, and a second implementation below that keeps the 64-bit product in
 * halves of 32 bits, so that it shares no arithmetic with the one under test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tl/sample.h"

/* a * b mod 2^64, by schoolbook halves. */
static uint64_t times(uint64_t a, uint64_t b) {
    const uint64_t a0 = a & 0xffffffffu;
    const uint64_t a1 = a >> 32;
    const uint64_t b0 = b & 0xffffffffu;
    const uint64_t b1 = b >> 32;
    return a0 * b0 + ((a0 * b1 + a1 * b0) << 32);
}

static uint64_t reference_step(uint64_t state, uint64_t inc) {
    return times(state, UINT64_C(6364136223846793005)) + inc;
}

/* Rotation bit by bit. */
static uint32_t reference_output(uint64_t state) {
    uint32_t x = (uint32_t)((((state >> 18) ^ state) >> 27) & 0xffffffffu);
    for (uint64_t n = state >> 59; n > 0; n--) {
        x = (x >> 1) | ((x & 1u) << 31);
    }
    return x;
}

static void demo_line_of_the_reference_library(void **state) {
    (void)state;
    static const uint32_t expected[] = {0xa15c02b7, 0x7b47f409, 0xba1d3330,
                                        0x83d2f293, 0xbfa4784b, 0xcbed606e};
    tl_pcg32 rng = tl_pcg32_new(42, 54);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_int_equal(tl_pcg32_next_u32(&rng), expected[i]);
    }
}

static void seeding_and_outputs_match_a_second_implementation(void **state) {
    (void)state;
    static const uint64_t edges[] = {
        0, 1, 42, UINT64_C(1) << 63, UINT64_MAX, UINT32_MAX, UINT64_MAX - 1};
    const size_t n_edges = sizeof edges / sizeof edges[0];
    for (size_t i = 0; i < n_edges * n_edges; i++) {
        const uint64_t seed = edges[i / n_edges];
        const uint64_t seq = edges[i % n_edges];
        const uint64_t inc = times(seq, 2) + 1;
        uint64_t expected = reference_step(reference_step(0, inc) + seed, inc);
        tl_pcg32 rng = tl_pcg32_new(seed, seq);
        assert_true(rng.state == expected && rng.inc == inc);
        for (int draw = 0; draw < 1000; draw++) {
            assert_int_equal(tl_pcg32_next_u32(&rng), reference_output(expected));
            expected = reference_step(expected, inc);
            assert_true(rng.state == expected && rng.inc == inc);
        }
    }
}

static void top_bit_of_seq_is_shifted_out(void **state) {
    (void)state;
    const tl_pcg32 a = tl_pcg32_new(7, UINT64_C(1) << 63);
    const tl_pcg32 b = tl_pcg32_new(7, 0);
    assert_true(a.state == b.state && a.inc == b.inc && a.inc == 1);
}

/* The first draw gives 27 upper bits, the second 26 lower ones. */
static void uniform_takes_two_draws_in_order(void **state) {
    (void)state;
    tl_pcg32 rng = tl_stream(0, TL_PURPOSE_SAMPLE);
    for (int i = 0; i < 10000; i++) {
        tl_pcg32 draws = rng;
        const uint64_t a = tl_pcg32_next_u32(&draws) / 32;
        const uint64_t b = tl_pcg32_next_u32(&draws) / 64;
        const double u = tl_pcg32_uniform_f64(&rng);
        const double scaled = u * 9007199254740992.0; /* 2^53, exact */
        assert_true(u >= 0.0 && u < 1.0);
        assert_true((uint64_t)scaled == (a << 26) + b && scaled == (double)((a << 26) + b));
        assert_true(rng.state == draws.state);
    }
}

static void child_seeds_and_streams_have_the_worked_numbers(void **state) {
    (void)state;
    assert_true(tl_child_seed(0, 4) == UINT64_C(0xf88bb8a8724c81ec));
    assert_true(tl_child_seed(0, 0) == 0); /* mix64 keeps 0 */
    tl_pcg32 rng = tl_stream(0, TL_PURPOSE_SAMPLE);
    assert_true(rng.inc == 9); /* sequence = purpose = 4 */
    assert_true(tl_pcg32_uniform_f64(&rng) == 0.8020949661137535);
    const tl_pcg32 by_hand = tl_pcg32_new(tl_child_seed(99, 1234567), 1234567);
    const tl_pcg32 stream = tl_stream(99, 1234567);
    assert_true(by_hand.state == stream.state && by_hand.inc == stream.inc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demo_line_of_the_reference_library),
        cmocka_unit_test(seeding_and_outputs_match_a_second_implementation),
        cmocka_unit_test(top_bit_of_seq_is_shifted_out),
        cmocka_unit_test(uniform_takes_two_draws_in_order),
        cmocka_unit_test(child_seeds_and_streams_have_the_worked_numbers),
    };
    return cmocka_run_group_tests_name("pcg32", tests, NULL, NULL);
}
