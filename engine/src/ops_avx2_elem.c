/* ops_avx2_elem.c: everything but the products in AVX2: attention's values, exp and what stands on
 * it, norm, RoPE, f16. The bits are those of ops_portable.c.
 *
 * These are one rounding an operation on independent elements, so the lanes of a register beyond
 * the end only have to be kept out of memory: they are loaded as +0 and not stored.
 *
 * Source: conformance/spec/forward.md, clauses RMSNorm to silu. */
#include "ops_avx2.h"

#if TLI_HAVE_AVX2

#include <math.h>

/* Eight elements, or the n that are left; the others read +0 and are not written. */
AVX2_INLINE __m256 load_part(const float *p, size_t n) {
    return n >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first_lanes(n));
}

AVX2_INLINE void store_part(float *p, size_t n, __m256 v) {
    if (n >= 8) {
        _mm256_storeu_ps(p, v);
    } else {
        store_first(p, n, v);
    }
}

/* ------------------------------------------------------------------ attention's values */

/* The chains of M rows and N registers of dimensions, over all n positions. */
#define DEFINE_VALUES(M, N)                                                                        \
    AVX2 static void values_##M##x##N(const float *p, size_t ldp, const float *v, size_t n,        \
                                      size_t d, float *o) {                                        \
        __m256 sum[M][N];                                                                          \
        LOOP_UNROLL for (size_t i = 0; i < (M); i++) {                                             \
            LOOP_UNROLL for (size_t c = 0; c < (N); c++) {                                         \
                sum[i][c] = _mm256_loadu_ps(o + i * d + 8 * c);                                    \
            }                                                                                      \
        }                                                                                          \
        for (size_t j = 0; j < n; j++) {                                                           \
            __m256 p_now[M];                                                                       \
            LOOP_UNROLL for (size_t i = 0; i < (M); i++) {                                         \
                p_now[i] = _mm256_broadcast_ss(p + i * ldp + j);                                   \
            }                                                                                      \
            LOOP_UNROLL for (size_t c = 0; c < (N); c++) {                                         \
                const __m256 v_now = _mm256_loadu_ps(v + j * d + 8 * c);                           \
                LOOP_UNROLL for (size_t i = 0; i < (M); i++) {                                     \
                    sum[i][c] = _mm256_fmadd_ps(p_now[i], v_now, sum[i][c]);                       \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        LOOP_UNROLL for (size_t i = 0; i < (M); i++) {                                             \
            LOOP_UNROLL for (size_t c = 0; c < (N); c++) {                                         \
                _mm256_storeu_ps(o + i * d + 8 * c, sum[i][c]);                                    \
            }                                                                                      \
        }                                                                                          \
    }

DEFINE_VALUES(1, 4)
DEFINE_VALUES(2, 4)
DEFINE_VALUES(3, 4)
DEFINE_VALUES(1, 1)
DEFINE_VALUES(2, 1)
DEFINE_VALUES(3, 1)

#define VALUES_M 3u
#define VALUES_WIDTH 32u /* dimensions of the wide form */

typedef void (*values_function)(const float *p, size_t ldp, const float *v, size_t n, size_t d,
                                float *o);

static const values_function wide_values[VALUES_M] = {values_1x4, values_2x4, values_3x4};
static const values_function narrow_values[VALUES_M] = {values_1x1, values_2x1, values_3x1};

/* The last d % 8 dimensions of one row. */
AVX2 static void values_tail(const float *p, const float *v, size_t n, size_t d, size_t n_left,
                             float *o) {
    const __m256i inside = first_lanes(n_left);
    __m256 sum = _mm256_maskload_ps(o, inside);
    for (size_t j = 0; j < n; j++) {
        const __m256 v_now = _mm256_maskload_ps(v + j * d, inside);
        sum = _mm256_fmadd_ps(_mm256_broadcast_ss(p + j), v_now, sum);
    }
    store_first(o, n_left, sum);
}

void tli_avx2_values(const float *p, size_t ldp, size_t m, const float *v, size_t n, size_t d,
                     float *o) {
    for (size_t i = 0; i < m; i += VALUES_M) {
        const size_t n_rows = m - i < VALUES_M ? m - i : VALUES_M;
        const float *p_rows = p + i * ldp;
        float *o_rows = o + i * d;
        size_t c = 0;
        for (; c + VALUES_WIDTH <= d; c += VALUES_WIDTH) {
            wide_values[n_rows - 1](p_rows, ldp, v + c, n, d, o_rows + c);
        }
        for (; c + 8 <= d; c += 8) {
            narrow_values[n_rows - 1](p_rows, ldp, v + c, n, d, o_rows + c);
        }
        for (size_t r = 0; c < d && r < n_rows; r++) {
            values_tail(p_rows + r * ldp, v + c, n, d, d - c, o_rows + r * d + c);
        }
    }
}

/* ------------------------------------------------------------------ exp and what stands on it */

/* The largest element, NaN passed over; -infinity when there is none. */
AVX2_INLINE float max_of(const float *x, size_t n) {
    __m256 max = _mm256_set1_ps(-INFINITY);
    size_t j = 0;
    for (; j + 8 <= n; j += 8) {
        max = _mm256_max_ps(_mm256_loadu_ps(x + j), max); /* the second operand where one is NaN */
    }
    float lane[8];
    _mm256_storeu_ps(lane, max);
    float largest = -INFINITY;
    for (size_t i = 0; i < 8; i++) {
        largest = lane[i] > largest ? lane[i] : largest;
    }
    for (; j < n; j++) {
        largest = x[j] > largest ? x[j] : largest;
    }
    return largest;
}

AVX2 float tli_avx2_softmax_exp(float *x, size_t n) {
    const __m256 max = _mm256_set1_ps(max_of(x, n));
    __m256 lane = _mm256_setzero_ps();
    size_t j = 0;
    for (; j + 8 <= n; j += 8) {
        const __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + j), max));
        _mm256_storeu_ps(x + j, e);
        lane = _mm256_add_ps(lane, e);
    }
    if (j < n) {
        const __m256i inside = first_lanes(n - j);
        const __m256 e = exp8(_mm256_sub_ps(_mm256_maskload_ps(x + j, inside), max));
        store_first(x + j, n - j, e);
        lane = _mm256_add_ps(lane, _mm256_and_ps(e, _mm256_castsi256_ps(inside)));
    }
    return tree8(lane);
}

AVX2 void tli_avx2_silu_mul(const float *g, const float *u, size_t n, float *y) {
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 sign = _mm256_set1_ps(-0.0f);
    for (size_t i = 0; i < n; i += 8) {
        const __m256 gate = load_part(g + i, n - i);
        const __m256 denominator = _mm256_add_ps(one, exp8(_mm256_xor_ps(gate, sign)));
        const __m256 silu = _mm256_div_ps(gate, denominator);
        store_part(y + i, n - i, _mm256_mul_ps(silu, load_part(u + i, n - i)));
    }
}

/* ------------------------------------------------------------------ the others */

AVX2 void tli_avx2_norm(const float *x, float r, const float *w, size_t d, float *y) {
    const __m256 factor = _mm256_set1_ps(r);
    for (size_t i = 0; i < d; i += 8) {
        const __m256 scaled = _mm256_mul_ps(load_part(x + i, d - i), factor);
        store_part(y + i, d - i, _mm256_mul_ps(scaled, load_part(w + i, d - i)));
    }
}

AVX2 void tli_avx2_divide(const float *x, float z, size_t n, float *y) {
    const __m256 divisor = _mm256_set1_ps(z);
    for (size_t i = 0; i < n; i += 8) {
        store_part(y + i, n - i, _mm256_div_ps(load_part(x + i, n - i), divisor));
    }
}

AVX2 void tli_avx2_rope(float *x, size_t half, const float *c, const float *s) {
    for (size_t i = 0; i < half; i += 8) {
        const size_t n = half - i;
        const __m256 x1 = load_part(x + i, n);
        const __m256 x2 = load_part(x + half + i, n);
        const __m256 cosine = load_part(c + i, n);
        const __m256 sine = load_part(s + i, n);
        const __m256 y1 = _mm256_sub_ps(_mm256_mul_ps(x1, cosine), _mm256_mul_ps(x2, sine));
        const __m256 y2 = _mm256_add_ps(_mm256_mul_ps(x2, cosine), _mm256_mul_ps(x1, sine));
        store_part(x + i, n, y1);
        store_part(x + half + i, n, y2);
    }
}

AVX2 void tli_avx2_axpy(float a, const float *x, size_t n, float *y) {
    const __m256 factor = _mm256_set1_ps(a);
    for (size_t i = 0; i < n; i += 8) {
        const __m256 sum = load_part(y + i, n - i);
        store_part(y + i, n - i, _mm256_fmadd_ps(factor, load_part(x + i, n - i), sum));
    }
}

AVX2 void tli_avx2_f16_widen(const uint16_t *h, size_t n, float *x) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(h + i))));
    }
    if (i < n) {
        uint16_t padded[8] = {0};
        memcpy(padded, h + i, (n - i) * sizeof *h);
        const __m256 tail = _mm256_cvtph_ps(_mm_loadu_si128((const void *)padded));
        store_first(x + i, n - i, tail);
    }
}

AVX2 void tli_avx2_f16_round(const float *x, size_t n, uint16_t *h) {
    for (size_t i = 0; i < n; i += 8) {
        const __m128i half = _mm256_cvtps_ph(load_part(x + i, n - i), _MM_FROUND_TO_NEAREST_INT);
        const size_t n_now = n - i < 8 ? n - i : 8;
        memcpy(h + i, &half, n_now * sizeof *h);
    }
}

#else
typedef int tli_translation_unit_is_not_empty;
#endif
