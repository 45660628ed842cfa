/* ops_avx2.c: the products in AVX2, FMA and F16C, with the bits of ops_portable.c.
 *
 * One register is the eight lanes of one sum, so a tile of outputs is a tile of registers: 4 rows
 * of x against 3 rows of W leaves room for the operands in 16 registers, and 12 chains hide the
 * latency of the FMA. Where k ends inside a register, the missing products are made -0: x is +0 and
 * w is -0 there, and adding -0 changes no lane (adding +0 would turn a lane that underflowed to -0
 * into +0).
 *
 * A product of one row is bound by memory, so it reads four rows of W at once and prefetches the
 * next four in the order in which they lie in memory.
 *
 * Source: conformance/spec/forward.md, clauses dot and linear. */
#include "ops_avx2.h"

#if TLI_HAVE_AVX2

#include "util.h"

/* ------------------------------------------------------------------ dot and the tile */

AVX2_INLINE __m256 minus_zero_outside(__m256 v, __m256i inside) {
    const __m256i minus_zero = _mm256_set1_epi32(INT32_MIN);
    const __m256i pad = _mm256_andnot_si256(inside, minus_zero);
    return _mm256_or_ps(v, _mm256_castsi256_ps(pad));
}

/* n floats (0 < n < 8), and in the other lanes +0 for x, -0 for w. */
AVX2_INLINE __m256 load_x_tail(const float *p, __m256i inside) {
    return _mm256_maskload_ps(p, inside);
}

AVX2_INLINE __m256 load_w_tail(const float *p, __m256i inside) {
    return minus_zero_outside(_mm256_maskload_ps(p, inside), inside);
}

AVX2 static float dot(const float *a, const float *b, size_t n) {
    __m256 lane = _mm256_setzero_ps();
    size_t k = 0;
    for (; k + 8 <= n; k += 8) {
        lane = _mm256_fmadd_ps(_mm256_loadu_ps(a + k), _mm256_loadu_ps(b + k), lane);
    }
    if (k < n) {
        const __m256i inside = first_lanes(n - k);
        const __m256 b_tail = load_w_tail(b + k, inside);
        lane = _mm256_fmadd_ps(load_x_tail(a + k, inside), b_tail, lane);
    }
    return tree8(lane);
}

/* One step along k for M rows of x and N rows of w: lane += x * w for every pair. */
#define TILE_STEP(M, N, LOAD_X, LOAD_W)                                                            \
    do {                                                                                           \
        __m256 w_now[N];                                                                           \
        LOOP_UNROLL for (size_t j = 0; j < (N); j++) {                                             \
            w_now[j] = LOAD_W;                                                                     \
        }                                                                                          \
        LOOP_UNROLL for (size_t i = 0; i < (M); i++) {                                             \
            const __m256 x_now = LOAD_X;                                                           \
            LOOP_UNROLL for (size_t j = 0; j < (N); j++) {                                         \
                lane[i][j] = _mm256_fmadd_ps(x_now, w_now[j], lane[i][j]);                         \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* A tile of M x N outputs; instantiated for M 1 to 4 and N 1 to 3. Each step along k asks for what
 * lies next_step bytes further from next on, into the second-level cache: the units that multiply
 * have little to do with those that wait for memory. No branch tells whether there is something to
 * ask for; a step of 0 asks for the same line again. */
#define DEFINE_TILE(M, N)                                                                          \
    AVX2 static void tile_##M##x##N(const float *x, size_t ldx, const float *w, size_t n_k,        \
                                    float scale, float *y, size_t ldy, uintptr_t next,             \
                                    size_t next_step) {                                            \
        __m256 lane[M][N];                                                                         \
        LOOP_UNROLL for (size_t i = 0; i < (M); i++) {                                             \
            LOOP_UNROLL for (size_t j = 0; j < (N); j++) {                                         \
                lane[i][j] = _mm256_setzero_ps();                                                  \
            }                                                                                      \
        }                                                                                          \
        size_t k = 0;                                                                              \
        for (; k + 8 <= n_k; k += 8, next += next_step) {                                          \
            _mm_prefetch((const char *)next, _MM_HINT_T1);                                         \
            TILE_STEP(M, N, _mm256_loadu_ps(x + i * ldx + k), _mm256_loadu_ps(w + j * n_k + k));   \
        }                                                                                          \
        if (k < n_k) {                                                                             \
            const __m256i inside = first_lanes(n_k - k);                                           \
            TILE_STEP(M, N, load_x_tail(x + i * ldx + k, inside),                                  \
                      load_w_tail(w + j * n_k + k, inside));                                       \
        }                                                                                          \
        LOOP_UNROLL for (size_t i = 0; i < (M); i++) {                                             \
            LOOP_UNROLL for (size_t j = 0; j < (N); j++) {                                         \
                y[i * ldy + j] = tree8(lane[i][j]) * scale;                                        \
            }                                                                                      \
        }                                                                                          \
    }

DEFINE_TILE(1, 1)
DEFINE_TILE(1, 2)
DEFINE_TILE(1, 3)
DEFINE_TILE(2, 1)
DEFINE_TILE(2, 2)
DEFINE_TILE(2, 3)
DEFINE_TILE(3, 1)
DEFINE_TILE(3, 2)
DEFINE_TILE(3, 3)
DEFINE_TILE(4, 1)
DEFINE_TILE(4, 2)
DEFINE_TILE(4, 3)

#define TILE_M 4u
#define TILE_N 3u

typedef void (*tile_function)(const float *x, size_t ldx, const float *w, size_t n_k, float scale,
                              float *y, size_t ldy, uintptr_t next, size_t next_step);

static const tile_function tiles[TILE_M][TILE_N] = {
    {tile_1x1, tile_1x2, tile_1x3},
    {tile_2x1, tile_2x2, tile_2x3},
    {tile_3x1, tile_3x2, tile_3x3},
    {tile_4x1, tile_4x2, tile_4x3},
};

/* The rows of x stay in the first-level cache while all of w goes by; what is next is spread over
 * all steps of all tiles. */
static void tile(const float *x, size_t ldx, size_t m, const float *w, size_t n, size_t k,
                 float scale, float *y, size_t ldy, const uint8_t *next, size_t n_next) {
    const size_t n_tiles = ((m + TILE_M - 1) / TILE_M) * ((n + TILE_N - 1) / TILE_N);
    const size_t n_steps = n_tiles * (k / 8) + 1;
    const size_t next_step = n_next == 0 ? 0 : n_next / n_steps + 1;
    uintptr_t at = n_next == 0 ? (uintptr_t)x : (uintptr_t)next;
    for (size_t i = 0; i < m; i += TILE_M) {
        const size_t n_rows = m - i < TILE_M ? m - i : TILE_M;
        for (size_t j = 0; j < n; j += TILE_N) {
            const size_t n_columns = n - j < TILE_N ? n - j : TILE_N;
            tiles[n_rows - 1][n_columns - 1](x + i * ldx, ldx, w + j * k, k, scale, y + i * ldy + j,
                                             ldy, at, next_step);
            at += k / 8 * next_step;
        }
    }
}

/* ------------------------------------------------------------------ one row of x, dense W */

/* Eight weights from where they lie. `kind` is a constant wherever this is used. */
AVX2_INLINE __m256 widen8(tl_matrix_kind kind, const uint8_t *p) {
    if (kind == TL_MATRIX_F32) {
        return load8(p);
    }
    __m128i half;
    memcpy(&half, p, sizeof half);
    if (kind == TL_MATRIX_F16) {
        return _mm256_cvtph_ps(half);
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* The last n weights of a row (0 < n < 8), and -0 in the other lanes; the sign is the top bit in
 * all of the dense formats. */
AVX2_INLINE __m256 widen8_tail(tl_matrix_kind kind, const uint8_t *p, size_t n) {
    uint8_t padded[32];
    const size_t size = kind == TL_MATRIX_F32 ? 4 : 2;
    for (size_t i = 0; i < 8 * size; i++) {
        padded[i] = i % size == size - 1 ? 0x80 : 0;
    }
    memcpy(padded, p, n * size);
    return widen8(kind, padded);
}

/* Far enough ahead to hide the memory's latency at its full rate, and no further: measured best
 * from 8 to 12 KiB. Into the second-level cache, because the first has too few buffers to wait for
 * memory. */
#define PREFETCH_AHEAD ((size_t)9 * 1024)

/* The address may lie past the end of the matrix, which is harmless to the machine but must not be
 * computed as a pointer. */
AVX2_INLINE void prefetch(const uint8_t *p, size_t offset) {
    const uintptr_t address = (uintptr_t)p + PREFETCH_AHEAD + offset;
    _mm_prefetch((const char *)address, _MM_HINT_T1);
}

/* y[j] = dot(x, row j) for n_rows (a constant) rows that start at w. */
AVX2_INLINE void dense_rows(tl_matrix_kind kind, size_t n_rows, const float *x, const uint8_t *w,
                            size_t n_k, float *y) {
    const size_t size = kind == TL_MATRIX_F32 ? 4 : 2;
    const size_t per_line = 64 / size; /* weights in a cache line */
    const size_t row_bytes = n_k * size;
    __m256 lane[4];
    LOOP_UNROLL for (size_t j = 0; j < n_rows; j++) {
        lane[j] = _mm256_setzero_ps();
    }
    size_t k = 0;
    for (; k + per_line <= n_k; k += per_line) {
        LOOP_UNROLL for (size_t j = 0; j < n_rows; j++) {
            prefetch(w, n_rows * k * size + 64 * j);
        }
        LOOP_UNROLL for (size_t h = 0; h < per_line; h += 8) {
            const __m256 x_now = _mm256_loadu_ps(x + k + h);
            LOOP_UNROLL for (size_t j = 0; j < n_rows; j++) {
                const __m256 w_now = widen8(kind, w + j * row_bytes + (k + h) * size);
                lane[j] = _mm256_fmadd_ps(x_now, w_now, lane[j]);
            }
        }
    }
    for (; k + 8 <= n_k; k += 8) {
        const __m256 x_now = _mm256_loadu_ps(x + k);
        LOOP_UNROLL for (size_t j = 0; j < n_rows; j++) {
            const __m256 w_now = widen8(kind, w + j * row_bytes + k * size);
            lane[j] = _mm256_fmadd_ps(x_now, w_now, lane[j]);
        }
    }
    if (k < n_k) {
        const __m256 x_now = load_x_tail(x + k, first_lanes(n_k - k));
        LOOP_UNROLL for (size_t j = 0; j < n_rows; j++) {
            const __m256 w_now = widen8_tail(kind, w + j * row_bytes + k * size, n_k - k);
            lane[j] = _mm256_fmadd_ps(x_now, w_now, lane[j]);
        }
    }
    LOOP_UNROLL for (size_t j = 0; j < n_rows; j++) {
        y[j] = tree8(lane[j]);
    }
}

AVX2_INLINE void dense_matrix(tl_matrix_kind kind, const tl_matrix *w, size_t begin, size_t end,
                              const float *x, float *y) {
    const size_t row_bytes = tli_row_bytes(w);
    size_t row = begin;
    for (; row + 4 <= end; row += 4) {
        dense_rows(kind, 4, x, w->data + row * row_bytes, w->n_in, y + row - begin);
    }
    for (; row < end; row++) {
        dense_rows(kind, 1, x, w->data + row * row_bytes, w->n_in, y + row - begin);
    }
}

AVX2 static void rows_f32(const tl_matrix *w, size_t begin, size_t end, const float *x, float *y) {
    dense_matrix(TL_MATRIX_F32, w, begin, end, x, y);
}

AVX2 static void rows_f16(const tl_matrix *w, size_t begin, size_t end, const float *x, float *y) {
    dense_matrix(TL_MATRIX_F16, w, begin, end, x, y);
}

AVX2 static void rows_bf16(const tl_matrix *w, size_t begin, size_t end, const float *x, float *y) {
    dense_matrix(TL_MATRIX_BF16, w, begin, end, x, y);
}

/* ------------------------------------------------------------------ one row of x, int4 W */

/* Eight weights of one group from four bytes. Each nibble is moved to the top of its lane, where
 * its sign is the lane's; scale is the group's times 2^-28, and the product q * s is exact. */
AVX2_INLINE __m256 widen8_int4(const uint8_t *p, __m256 scale) {
    const __m256i shift = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    const __m256i top = _mm256_set1_epi32((int)0xf0000000u);
    uint32_t word = 0;
    memcpy(&word, p, sizeof word);
    const __m256i at_top = _mm256_sllv_epi32(_mm256_set1_epi32((int)word), shift);
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_and_si256(at_top, top)), scale);
}

/* n f16 scales, widened and times 2^-28 (exact: f16 reaches down to 2^-24). */
AVX2_INLINE void widen_scales(const uint8_t *src, size_t n, float *scales) {
    const __m256 factor = _mm256_set1_ps(0x1p-28f);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 scale = widen8(TL_MATRIX_F16, src + 2 * i);
        _mm256_storeu_ps(scales + i, _mm256_mul_ps(scale, factor));
    }
    for (; i < n; i++) {
        const __m128i one = _mm_cvtsi32_si128(tli_load_u16(src + 2 * i));
        scales[i] = _mm_cvtss_f32(_mm_cvtph_ps(one)) * 0x1p-28f;
    }
}

/* As dense_rows. scales has the widened scales of the n_rows rows. */
AVX2_INLINE void int4_rows(size_t n_rows, const float *x, const uint8_t *w, const float *scales,
                           size_t n_k, size_t group, float *y) {
    const size_t row_bytes = n_k / 2;
    const size_t n_groups = n_k / group;
    __m256 lane[4];
    LOOP_UNROLL for (size_t j = 0; j < n_rows; j++) {
        lane[j] = _mm256_setzero_ps();
    }
    for (size_t g = 0; g < n_groups; g++) {
        __m256 scale[4];
        LOOP_UNROLL for (size_t j = 0; j < n_rows; j++) {
            scale[j] = _mm256_broadcast_ss(scales + j * n_groups + g);
        }
        for (size_t k = g * group; k < (g + 1) * group; k += 8) {
            const __m256 x_now = _mm256_loadu_ps(x + k);
            if (k % 32 == 0) { /* n_rows * 16 bytes are read until the next time */
                prefetch(w, n_rows * k / 2);
            }
            LOOP_UNROLL for (size_t j = 0; j < n_rows; j++) {
                const __m256 w_now = widen8_int4(w + j * row_bytes + k / 2, scale[j]);
                lane[j] = _mm256_fmadd_ps(x_now, w_now, lane[j]);
            }
        }
    }
    LOOP_UNROLL for (size_t j = 0; j < n_rows; j++) {
        y[j] = tree8(lane[j]);
    }
}

/* Rows of a group size that eight divides; room takes the scales of four rows. */
AVX2 static void rows_int4(const tl_matrix *w, size_t begin, size_t end, const float *x, float *y,
                           float *room) {
    const size_t row_bytes = tli_row_bytes(w);
    const size_t n_groups = w->n_in / w->group;
    size_t row = begin;
    for (; row + 4 <= end; row += 4) {
        widen_scales(w->scales + row * n_groups * 2, 4 * n_groups, room);
        int4_rows(4, x, w->data + row * row_bytes, room, w->n_in, w->group, y + row - begin);
    }
    for (; row < end; row++) {
        widen_scales(w->scales + row * n_groups * 2, n_groups, room);
        int4_rows(1, x, w->data + row * row_bytes, room, w->n_in, w->group, y + row - begin);
    }
}

/* ------------------------------------------------------------------ widening */

AVX2_INLINE void widen_dense(tl_matrix_kind kind, const uint8_t *src, size_t n, float *y) {
    const size_t size = kind == TL_MATRIX_F32 ? 4 : 2;
    size_t k = 0;
    for (; k + 8 <= n; k += 8) {
        _mm256_storeu_ps(y + k, widen8(kind, src + k * size));
    }
    if (k < n) {
        const __m256 tail = widen8_tail(kind, src + k * size, n - k);
        store_first(y + k, n - k, tail);
    }
}

AVX2_INLINE void widen_int4(const tl_matrix *w, size_t row, float *y) {
    const size_t n_groups = w->n_in / w->group;
    const uint8_t *packed = w->data + row * tli_row_bytes(w);
    const uint8_t *scales = w->scales + row * n_groups * 2;
    for (size_t g = 0; g < n_groups; g++) {
        float scale = 0;
        widen_scales(scales + 2 * g, 1, &scale);
        for (size_t k = g * w->group; k < (g + 1) * w->group; k += 8) {
            _mm256_storeu_ps(y + k, widen8_int4(packed + k / 2, _mm256_set1_ps(scale)));
        }
    }
}

AVX2 static void widen(const tl_matrix *w, size_t row, float *y) {
    const uint8_t *src = w->data + row * tli_row_bytes(w);
    switch (w->kind) {
    case TL_MATRIX_F32:
        widen_dense(TL_MATRIX_F32, src, w->n_in, y);
        return;
    case TL_MATRIX_F16:
        widen_dense(TL_MATRIX_F16, src, w->n_in, y);
        return;
    case TL_MATRIX_BF16:
        widen_dense(TL_MATRIX_BF16, src, w->n_in, y);
        return;
    case TL_MATRIX_INT4:
        if (w->group % 8 == 0) {
            widen_int4(w, row, y);
        } else {
            tli_portable_widen(w, row, y);
        }
        return;
    }
}

/* A group that ends inside a register is rare (it is at most 14 columns): widen the row, then
 * multiply. */
static void rows_widened(const tl_matrix *w, size_t begin, size_t end, const float *x, float *y,
                         float *room) {
    for (size_t row = begin; row < end; row++) {
        widen(w, row, room);
        y[row - begin] = dot(x, room, w->n_in);
    }
}

static void rows(const tl_matrix *w, size_t begin, size_t end, const float *x, float *y,
                 float *room) {
    switch (w->kind) {
    case TL_MATRIX_F32:
        rows_f32(w, begin, end, x, y);
        return;
    case TL_MATRIX_F16:
        rows_f16(w, begin, end, x, y);
        return;
    case TL_MATRIX_BF16:
        rows_bf16(w, begin, end, x, y);
        return;
    case TL_MATRIX_INT4:
        if (w->group % 8 == 0) {
            rows_int4(w, begin, end, x, y, room);
        } else {
            rows_widened(w, begin, end, x, y, room);
        }
        return;
    }
}

const tli_kernels tli_kernels_avx2 = {
    .isa = TL_ISA_AVX2,
    .dot = dot,
    .rows = rows,
    .widen = widen,
    .tile = tile,
    .values = tli_avx2_values,
    .norm = tli_avx2_norm,
    .divide = tli_avx2_divide,
    .rope = tli_avx2_rope,
    .softmax_exp = tli_avx2_softmax_exp,
    .silu_mul = tli_avx2_silu_mul,
    .axpy = tli_avx2_axpy,
    .f16_widen = tli_avx2_f16_widen,
    .f16_round = tli_avx2_f16_round,
};

#else
typedef int tli_translation_unit_is_not_empty;
#endif
