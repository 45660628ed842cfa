/* ops_avx2.h: what both AVX2 files (and the tests of exp) use.
 *
 * Everything is compiled by target attribute, function by function, so that one library runs on any
 * CPU of the architecture. Loops over small constant counts carry LOOP_UNROLL because their bodies
 * index arrays of registers.
 *
 * Private to ops_avx2*.c. Source: conformance/spec/forward.md. */
#ifndef TLI_OPS_AVX2_H
#define TLI_OPS_AVX2_H

#include "ops_internal.h"

#if TLI_HAVE_AVX2

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "ops_exp.h"

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define AVX2_INLINE static inline __attribute__((target("avx2,fma,f16c"), always_inline))
#if defined(__clang__)
#define LOOP_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LOOP_UNROLL _Pragma("GCC unroll 16")
#endif

/* Eight floats from anywhere: weights lie in a file at any byte. */
AVX2_INLINE __m256 load8(const uint8_t *p) {
    __m256 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Lanes 0 to n - 1 set, n <= 8. */
AVX2_INLINE __m256i first_lanes(size_t n) {
    static const int32_t table[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(table + 8 - n));
}

/* Write the first n lanes, n <= 8. Not by a masked store, which memory checkers do not follow. */
AVX2_INLINE void store_first(float *p, size_t n, __m256 v) {
    float lane[8];
    _mm256_storeu_ps(lane, v);
    memcpy(p, lane, n * sizeof *p);
}

/* ((0+4)+(2+6)) + ((1+5)+(3+7)) */
AVX2_INLINE float tree8(__m256 lane) {
    const __m128 low = _mm256_castps256_ps128(lane);
    const __m128 high = _mm256_extractf128_ps(lane, 1);
    const __m128 by4 = _mm_add_ps(low, high);                    /* 0+4 1+5 2+6 3+7 */
    const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4)); /* even, odd */
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_shuffle_ps(by2, by2, 1)));
}

/* Steps and constants: ops_exp.h. What a lane outside [-87, 88] computes is replaced at the end. */
AVX2_INLINE __m256 exp8(__m256 x) {
    const __m256 shift = _mm256_set1_ps(TLI_EXP_SHIFT);
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(TLI_EXP_LOG2E), shift);
    const __m256 n = _mm256_sub_ps(t, shift);
    const __m256 r_hi = _mm256_fmadd_ps(n, _mm256_set1_ps(-TLI_EXP_LN2_HI), x);
    const __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-TLI_EXP_LN2_LO), r_hi);
    __m256 p = _mm256_set1_ps(TLI_EXP_C6);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TLI_EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TLI_EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TLI_EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(TLI_EXP_C2));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    __m256 e = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));

    const __m256 below = _mm256_cmp_ps(x, _mm256_set1_ps(TLI_EXP_MIN), _CMP_LT_OQ);
    const __m256 above = _mm256_cmp_ps(x, _mm256_set1_ps(TLI_EXP_MAX), _CMP_GT_OQ);
    const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)TLI_EXP_NAN_BITS));
    e = _mm256_andnot_ps(below, e);
    e = _mm256_blendv_ps(e, _mm256_set1_ps(INFINITY), above);
    return _mm256_blendv_ps(e, nan, is_nan);
}

/* The elementwise kernels, in ops_avx2_elem.c. */
void tli_avx2_values(const float *p, size_t ldp, size_t m, const float *v, size_t n, size_t d,
                     float *o);
void tli_avx2_norm(const float *x, float r, const float *w, size_t d, float *y);
void tli_avx2_divide(const float *x, float z, size_t n, float *y);
void tli_avx2_rope(float *x, size_t half, const float *c, const float *s);
float tli_avx2_softmax_exp(float *x, size_t n);
void tli_avx2_silu_mul(const float *g, const float *u, size_t n, float *y);
void tli_avx2_axpy(float a, const float *x, size_t n, float *y);
void tli_avx2_f16_widen(const uint16_t *h, size_t n, float *x);
void tli_avx2_f16_round(const float *x, size_t n, uint16_t *h);

#endif
#endif
