/* naive_rng.c: see naive_rng.h. */
#include "naive_rng.h"

#define MULTIPLIER UINT64_C(6364136223846793005)

static void step(naive_rng *rng) {
    rng->state = rng->state * MULTIPLIER + rng->inc;
}

naive_rng naive_rng_new(uint64_t seed, uint64_t seq) {
    naive_rng rng = {.state = 0, .inc = (seq << 1) | 1u};
    step(&rng);
    rng.state += seed;
    step(&rng);
    return rng;
}

static uint64_t mix64(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

naive_rng naive_rng_stream(uint64_t seed, uint64_t purpose) {
    return naive_rng_new(mix64(seed + purpose * UINT64_C(0x9E3779B97F4A7C15)), purpose);
}

uint32_t naive_rng_u32(naive_rng *rng) {
    uint64_t old = rng->state;
    step(rng);
    uint32_t x = (uint32_t)(((old >> 18) ^ old) >> 27);
    unsigned r = (unsigned)(old >> 59);
    return r == 0 ? x : (x >> r) | (x << (32 - r));
}

uint64_t naive_rng_u53(naive_rng *rng) {
    uint64_t a = naive_rng_u32(rng);
    uint64_t b = naive_rng_u32(rng);
    return ((a >> 5) << 26) | (b >> 6);
}

double naive_rng_uniform(naive_rng *rng) {
    return (double)naive_rng_u53(rng) * 0x1p-53;
}

naive_rng naive_rng_after(naive_rng rng, uint64_t n_outputs) {
    for (uint64_t i = 0; i < n_outputs; i++) {
        step(&rng);
    }
    return rng;
}

/* A state whose output is x: no rotation (the top five bits are 0), and the xorshift undone. With w
 * = x at bits 27 to 58, old ^ (old >> 18) = w there; the shift reaches the lower 14 of these bits
 * only, once. Bits 0 to 26 take no part in the output, so the lowest one is free. */
static uint64_t state_for(uint32_t x, uint64_t lowest_bit) {
    uint64_t w = (uint64_t)x << 27;
    uint64_t old = w ^ (w >> 18);
    return ((old >> 27) << 27) | lowest_bit;
}

naive_rng naive_rng_with_u53(uint64_t u53) {
    uint64_t first = state_for((uint32_t)((u53 >> 26) << 5), 0);
    uint64_t second = state_for((uint32_t)((u53 & ((UINT64_C(1) << 26) - 1)) << 6), 1);
    /* The increment that leads from one to the other: odd, since the multiplier is odd and the
     * lowest bits differ. */
    naive_rng rng = {.state = first, .inc = second - first * MULTIPLIER};
    return rng;
}
