/* exhaustive_exp.c: exp over all 2^32 arguments: at most 1 ulp from the f64 value on [-87, 88], the
 * edges as the contract says, and the vector form with the bits of the scalar one. Takes a minute
 * or two; run by `make check-exhaustive`.
 *
 * Source: conformance/spec/forward.md, clause exp. */
#include <math.h>
#include <stdio.h>

#include "ops_avx2.h"
#include "tl/ops.h"
#include "util.h"

#if TLI_HAVE_AVX2
AVX2 static void vector_exp(const float *x, float *y) {
    _mm256_storeu_ps(y, exp8(_mm256_loadu_ps(x)));
}
#endif

/* Distance from the exact value in units of the last place of f32 there. */
static double ulps_off(float got, double exact) {
    const float nearest = (float)exact;
    const float next = nextafterf(nearest, exact < (double)nearest ? -INFINITY : INFINITY);
    return fabs((double)got - exact) / fabs((double)next - (double)nearest);
}

/* Whether exp(x) = e is what the page asks for; the error in ulps goes to *worst. */
static bool is_right(float x, float e, double *worst) {
    if (isnan(x)) {
        return isnan(e);
    }
    if (x == 0.0f) {
        return e == 1.0f;
    }
    if (x < -87.0f) {
        return tli_f32_bits(e) == 0;
    }
    if (x > 88.0f) {
        return isinf(e) && e > 0;
    }
    const double off = ulps_off(e, exp((double)x));
    *worst = off > *worst ? off : *worst;
    return off <= 1.0;
}

int main(void) {
    tl_isa resolved = TL_ISA_AUTO;
    const bool has_vector = tl_isa_resolve(TL_ISA_AVX2, &resolved, NULL) == TL_OK;
    double worst = 0;
    uint64_t n_wrong = 0;
    uint64_t n_differ = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 8) {
        float x[8];
        float e[8];
        for (size_t i = 0; i < 8; i++) {
            x[i] = tli_f32_from_bits((uint32_t)(bits + i));
            e[i] = tl_ops_exp(x[i]);
            n_wrong += !is_right(x[i], e[i], &worst);
        }
#if TLI_HAVE_AVX2
        if (has_vector) {
            float y[8];
            vector_exp(x, y);
            for (size_t i = 0; i < 8; i++) {
                n_differ += tli_f32_bits(y[i]) != tli_f32_bits(e[i]);
            }
        }
#endif
        if (bits % (UINT64_C(1) << 28) == 0) {
            (void)fprintf(stderr, "\rexp: %2u of 16", (unsigned)(bits >> 28));
        }
    }
    (void)fprintf(stderr, "\n");
    printf("exp over 2^32 arguments: worst %.4f ulp, %llu wrong, vector form %s, %llu differ\n",
           worst, (unsigned long long)n_wrong, has_vector ? "compared" : "absent",
           (unsigned long long)n_differ);
    return n_wrong == 0 && n_differ == 0 ? 0 : 1;
}
