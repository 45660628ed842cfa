/* pcg32.c: the generator, child seeds and streams.
 *
 * To be written. Twenty lines; check them by hand with the numbers on the page.
 *
 * Read conformance/spec/pcg32.md; the header says what each call promises.
 * Tests: ol check L10.1 --engine . --only 'pcg32_reference_vectors'. */
#include "tl/sample.h"

tl_pcg32 tl_pcg32_new(uint64_t seed, uint64_t seq) {
    (void)seed;
    (void)seq;
    return (tl_pcg32){0};
}

uint32_t tl_pcg32_next_u32(tl_pcg32 *rng) {
    (void)rng;
    return 0;
}

double tl_pcg32_uniform_f64(tl_pcg32 *rng) {
    (void)rng;
    return 0;
}

uint64_t tl_child_seed(uint64_t seed, uint64_t purpose) {
    (void)seed;
    (void)purpose;
    return 0;
}

tl_pcg32 tl_stream(uint64_t seed, uint64_t purpose) {
    (void)seed;
    (void)purpose;
    return (tl_pcg32){0};
}
