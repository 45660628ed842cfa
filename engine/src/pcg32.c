/* pcg32.c: the one generator (PCG-XSH-RR 64/32, M. O'Neill, 2014), child seeds and streams.
 *
 * A generator is two plain numbers of the caller's; nothing is kept here. Unsigned arithmetic
 * wraps, which is what the definition asks for.
 *
 * Source: conformance/spec/pcg32.md. */
#include "tl/sample.h"

#define MULTIPLIER UINT64_C(6364136223846793005)
#define GOLDEN_GAMMA UINT64_C(0x9E3779B97F4A7C15) /* 2^64 / golden ratio, odd */

static void step(tl_pcg32 *rng) {
    rng->state = rng->state * MULTIPLIER + rng->inc;
}

static uint32_t rotate_right(uint32_t x, uint32_t n_bits) {
    const uint32_t right = n_bits & 31u;
    const uint32_t left = (32u - n_bits) & 31u; /* 0 for 0: a shift by 32 is not defined */
    return x >> right | x << left;
}

tl_pcg32 tl_pcg32_new(uint64_t seed, uint64_t seq) {
    tl_pcg32 rng = {.state = 0, .inc = (seq << 1) | 1u};
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
    const uint32_t mixed = (uint32_t)((((old >> 18) ^ old) >> 27) & UINT32_MAX);
    const uint32_t rotation = (uint32_t)(old >> 59);
    return rotate_right(mixed, rotation);
}

double tl_pcg32_uniform_f64(tl_pcg32 *rng) {
    const uint32_t first = tl_pcg32_next_u32(rng);
    const uint32_t second = tl_pcg32_next_u32(rng);
    const uint32_t high = first >> 5;
    const uint32_t low = second >> 6;
    /* 27 + 26 bits: the sum and the scaling are exact. */
    return ((double)high * 0x1p26 + (double)low) * 0x1p-53;
}

/* The finaliser of splitmix64: every bit of z reaches every bit of the result. */
static uint64_t mix64(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint64_t tl_child_seed(uint64_t seed, uint64_t purpose) {
    return mix64(seed + purpose * GOLDEN_GAMMA);
}

tl_pcg32 tl_stream(uint64_t seed, uint64_t purpose) {
    const uint64_t child = tl_child_seed(seed, purpose);
    return tl_pcg32_new(child, purpose);
}
