/* naive_rng.h: the judge's own PCG32, written from the page, and generator states made to order.
 *
 * Source: conformance/spec/pcg32.md. */
#ifndef OL_NAIVE_RNG_H
#define OL_NAIVE_RNG_H

#include <stdint.h>

typedef struct naive_rng {
    uint64_t state;
    uint64_t inc;
} naive_rng;

#define NAIVE_U_LAST ((UINT64_C(1) << 53) - 1) /* the largest uniform is this times 2^-53 */

naive_rng naive_rng_new(uint64_t seed, uint64_t seq);
naive_rng naive_rng_stream(uint64_t seed, uint64_t purpose);
uint32_t naive_rng_u32(naive_rng *rng);
uint64_t naive_rng_u53(naive_rng *rng); /* the next uniform, times 2^53 */
double naive_rng_uniform(naive_rng *rng);

/* The state after n outputs. */
naive_rng naive_rng_after(naive_rng rng, uint64_t n_outputs);

/* A generator whose next uniform is u53 * 2^-53, exactly. u53 <= NAIVE_U_LAST. */
naive_rng naive_rng_with_u53(uint64_t u53);

#endif
