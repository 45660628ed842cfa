/* pcg32.c: the generator, its child seeds and its streams, line by line from the page.
 *
 * Source: conformance/spec/pcg32.md. */
#include "tl/sample.h"

static void step(tl_pcg32 *rng) {
    rng->state = rng->state * UINT64_C(6364136223846793005) + rng->inc;
}

tl_pcg32 tl_pcg32_new(uint64_t seed, uint64_t seq) {
    tl_pcg32 rng = {.state = 0, .inc = (seq << 1) | 1};
    step(&rng);
    rng.state += seed;
    step(&rng);
    return rng;
}

uint32_t tl_pcg32_next_u32(tl_pcg32 *rng) {
    if (rng == NULL) {
        return 0;
    }
    const uint64_t old = rng->state;
    step(rng);
    const uint32_t x = (uint32_t)(((old >> 18) ^ old) >> 27);
    const uint32_t r = (uint32_t)(old >> 59);
    /* A shift by 32 is not defined in C, so a rotation by 0 has a line of its own. */
    return r == 0 ? x : (x >> r) | (x << (32 - r));
}

double tl_pcg32_uniform_f64(tl_pcg32 *rng) {
    const uint32_t a = tl_pcg32_next_u32(rng);
    const uint32_t b = tl_pcg32_next_u32(rng);
    return ((double)(a >> 5) * 0x1p26 + (double)(b >> 6)) * 0x1p-53;
}

static uint64_t mix64(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint64_t tl_child_seed(uint64_t seed, uint64_t purpose) {
    return mix64(seed + purpose * UINT64_C(0x9E3779B97F4A7C15));
}

tl_pcg32 tl_stream(uint64_t seed, uint64_t purpose) {
    return tl_pcg32_new(tl_child_seed(seed, purpose), purpose);
}
