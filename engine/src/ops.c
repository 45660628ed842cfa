/* ops.c: the public face of the tensor operations: choosing kernels, and the loop over blocks of
 * rows that a product of many rows runs in.
 *
 * A product of one row of x reads W once, in place, and widens it in registers; so does one of a
 * few rows, row by row. A product of more rows widens a block of W into the tl_work first and uses
 * it for all of them. All give, for each output, the one sum that tl_ops_dot defines, so nobody can
 * tell from a result how many rows it shared a call with.
 *
 * Source: conformance/spec/forward.md, clauses dot to silu. */
#include "tl/ops.h"

#include <math.h>
#include <stdlib.h>

#include "ops_attn.h"
#include "ops_internal.h"
#include "util.h"

#if TLI_HAVE_AVX2
#include <cpuid.h>
#endif

struct tl_work {
    const tli_kernels *kernels;
    size_t max_n_in;
    float *room; /* [64, max_n_in + 8], starts on a cache line */
    void *memory;
};

/* A block of widened weights takes at most this, so that it stays in a second-level cache. */
#define BLOCK_BYTES ((size_t)320 * 1024)
/* Up to as many rows of x a block is a single step, which stays in the nearest cache between its
 * making and its use; for more rows a larger block saves reading x again. */
#define MANY_ROWS 32u
/* Every tile kernel has 3 or 4 columns; a block of a multiple of both has no narrow tiles. */
#define BLOCK_STEP 12u

/* ------------------------------------------------------------------ instruction sets */

const char *tl_isa_name(tl_isa isa) {
    switch (isa) {
    case TL_ISA_AUTO:
        return "auto";
    case TL_ISA_PORTABLE:
        return "portable";
    case TL_ISA_AVX2:
        return "avx2";
    case TL_ISA_AVX512:
        return "avx512";
    case TL_ISA_NEON:
        return "neon";
    }
    return "unknown";
}

#if TLI_HAVE_AVX2
/* __builtin_cpu_supports knows avx2 and fma (and that the system saves the registers); the name
 * "f16c" is younger than the compilers we support, so that bit is read directly. */
static bool cpu_has_avx2(void) {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        return false;
    }
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

/* The table of an instruction set, or NULL when this CPU or build does not have it. */
static const tli_kernels *find_kernels(tl_isa isa) {
#if TLI_HAVE_AVX2
    if ((isa == TL_ISA_AUTO || isa == TL_ISA_AVX2) && cpu_has_avx2()) {
        return &tli_kernels_avx2;
    }
#endif
    if (isa == TL_ISA_AUTO || isa == TL_ISA_PORTABLE) {
        return &tli_kernels_portable;
    }
    return NULL;
}

static tl_status choose_kernels(const tli_kernels **out, tl_isa isa, tl_error *err) {
    if (isa < TL_ISA_AUTO || isa > TL_ISA_NEON) {
        return tli_fail(err, TL_ERR_INVALID, "isa %d is none of the known instruction sets",
                        (int)isa);
    }
    const tli_kernels *kernels = find_kernels(isa);
    if (kernels == NULL) {
        return tli_fail(err, TL_ERR_UNSUPPORTED,
                        "instruction set \"%s\" is not available on this CPU or in this build",
                        tl_isa_name(isa));
    }
    *out = kernels;
    return TL_OK;
}

tl_status tl_isa_resolve(tl_isa isa, tl_isa *resolved, tl_error *err) {
    if (resolved == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "resolved is NULL");
    }
    const tli_kernels *kernels = NULL;
    TLI_TRY(choose_kernels(&kernels, isa, err));
    *resolved = kernels->isa;
    return TL_OK;
}

/* ------------------------------------------------------------------ working memory */

#define CACHE_LINE 64u

tl_status tl_work_new(tl_work **out, tl_isa isa, size_t max_n_in, tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    if (max_n_in == 0) {
        return tli_fail(err, TL_ERR_INVALID, "max_n_in is 0, at least 1 is needed");
    }
    const tli_kernels *kernels = NULL;
    TLI_TRY(choose_kernels(&kernels, isa, err));
    size_t n_floats = 0;
    size_t n_bytes = 0;
    const size_t n_rows = TLI_BLOCK_ROWS + TLI_EXTRA_ROWS;
    if (!tli_add(max_n_in, 8, &n_floats) || !tli_mul(n_floats, n_rows, &n_floats) ||
        !tli_mul(n_floats, sizeof(float), &n_bytes) || !tli_add(n_bytes, CACHE_LINE, &n_bytes)) {
        return tli_fail(err, TL_ERR_NOMEM, "working memory for rows of %zu overflows", max_n_in);
    }
    tl_work *work = tli_calloc(1, sizeof *work);
    void *memory = tli_calloc(n_bytes, 1);
    if (work == NULL || memory == NULL) {
        free(work);
        free(memory);
        return tli_fail(err, TL_ERR_NOMEM, "no memory for %zu bytes of working memory", n_bytes);
    }
    const size_t past_line = (size_t)((uintptr_t)memory % CACHE_LINE);
    work->kernels = kernels;
    work->max_n_in = max_n_in;
    work->memory = memory;
    work->room = (float *)(void *)((char *)memory + (CACHE_LINE - past_line) % CACHE_LINE);
    *out = work;
    return TL_OK;
}

void tl_work_free(tl_work *work) {
    if (work == NULL) {
        return;
    }
    free(work->memory);
    free(work);
}

tl_isa tl_work_isa(const tl_work *work) {
    return work != NULL ? work->kernels->isa : TL_ISA_AUTO;
}

size_t tl_work_max_n_in(const tl_work *work) {
    return work != NULL ? work->max_n_in : 0;
}

/* ------------------------------------------------------------------ products */

float tl_ops_dot(const tl_work *work, const float *a, const float *b, size_t n) {
    return work->kernels->dot(a, b, n);
}

/* Rows of W that are widened at a time: as many as fit the cache, at least one step, at most the
 * room. */
static size_t rows_a_block(size_t n_in) {
    const size_t n_fit = BLOCK_BYTES / sizeof(float) / (n_in == 0 ? 1 : n_in);
    const size_t n_rows = n_fit / BLOCK_STEP * BLOCK_STEP;
    if (n_rows < BLOCK_STEP) {
        return BLOCK_STEP;
    }
    return n_rows < TLI_BLOCK_ROWS ? n_rows : TLI_BLOCK_ROWS;
}

/* Up to as many rows of x are multiplied one by one. f32 is read in place for nothing; int4 costs
 * so much to widen that doing it twice still beats a detour through memory. Measured. */
static size_t few_rows(tl_matrix_kind kind) {
    switch (kind) {
    case TL_MATRIX_F32:
        return 4;
    case TL_MATRIX_INT4:
        return 2;
    case TL_MATRIX_F16:
    case TL_MATRIX_BF16:
        break;
    }
    return 1;
}

/* A few rows of x: W is read four rows at a time, in place, and again for every row of x while they
 * are in the nearest cache. */
static void multiply_few(tl_work *work, const tl_matrix *w, size_t row_begin, size_t row_end,
                         const float *x, size_t m, float *y) {
    size_t n = 0;
    for (size_t row = row_begin; row < row_end; row += n) {
        n = row_end - row < 4 ? row_end - row : 4;
        for (size_t i = 0; i < m; i++) {
            work->kernels->rows(w, row, row + n, x + i * w->n_in, y + i * w->n_out + row,
                                work->room);
        }
    }
}

/* Many: a block of W is widened into the room and used for all rows of x, while the next block is
 * on its way from memory. Also f32, which costs a copy: the reads then go through memory in order,
 * and the block lies in one place. */
static void multiply_many(tl_work *work, const tl_matrix *w, size_t row_begin, size_t row_end,
                          const float *x, size_t m, float *y) {
    const size_t n_step = m <= MANY_ROWS ? BLOCK_STEP : rows_a_block(w->n_in);
    const size_t row_bytes = tli_row_bytes(w);
    size_t n = 0;
    for (size_t row = row_begin; row < row_end; row += n) {
        n = row_end - row < n_step ? row_end - row : n_step;
        for (size_t i = 0; i < n; i++) {
            work->kernels->widen(w, row + i, work->room + i * w->n_in);
        }
        const size_t n_left = row_end - row - n;
        const uint8_t *next = w->data + (row + n) * row_bytes;
        const size_t n_next = (n_left < n_step ? n_left : n_step) * row_bytes;
        work->kernels->tile(x, w->n_in, m, work->room, n, w->n_in, 1.0f, y + row, w->n_out, next,
                            n_next);
    }
}

void tl_ops_matmul(tl_work *work, const tl_matrix *w, size_t row_begin, size_t row_end,
                   const float *x, size_t m, float *y) {
    if (m == 1) {
        work->kernels->rows(w, row_begin, row_end, x, y + row_begin, work->room);
    } else if (m <= few_rows(w->kind)) {
        multiply_few(work, w, row_begin, row_end, x, m, y);
    } else {
        multiply_many(work, w, row_begin, row_end, x, m, y);
    }
}

void tl_ops_widen_row(const tl_work *work, const tl_matrix *w, size_t row, float *y) {
    work->kernels->widen(w, row, y);
}

/* ------------------------------------------------------------------ the rest of a layer */

void tl_ops_rmsnorm(const tl_work *work, const float *x, const float *w, size_t d, float eps,
                    float *y) {
    const float ss = work->kernels->dot(x, x, d);
    const float mean = ss / (float)d;
    const float r = 1.0f / sqrtf(mean + eps);
    work->kernels->norm(x, r, w, d, y);
}

void tl_ops_rope_angles(size_t position, const float *inv_freq, size_t half, float *c, float *s) {
    for (size_t i = 0; i < half; i++) {
        const float angle = (float)position * inv_freq[i];
        c[i] = (float)cos((double)angle);
        s[i] = (float)sin((double)angle);
    }
}

void tl_ops_rope_inv_freq(double theta, size_t head_dim, float *inv_freq) {
    for (size_t i = 0; i < head_dim / 2; i++) {
        const double exponent = -2.0 * (double)i / (double)head_dim;
        inv_freq[i] = (float)pow(theta, exponent);
    }
}

void tl_ops_rope(const tl_work *work, float *x, size_t half, const float *c, const float *s) {
    work->kernels->rope(x, half, c, s);
}

float tl_ops_softmax_exp(const tl_work *work, float *x, size_t n) {
    return work->kernels->softmax_exp(x, n);
}

void tl_ops_silu_mul(const tl_work *work, const float *g, const float *u, size_t n, float *y) {
    work->kernels->silu_mul(g, u, n, y);
}

void tl_ops_axpy(const tl_work *work, float a, const float *x, size_t n, float *y) {
    work->kernels->axpy(a, x, n, y);
}

void tl_ops_f16_widen(const tl_work *work, const uint16_t *h, size_t n, float *x) {
    work->kernels->f16_widen(h, n, x);
}

void tl_ops_f16_round(const tl_work *work, const float *x, size_t n, uint16_t *h) {
    work->kernels->f16_round(x, n, h);
}

/* ------------------------------------------------------------------ attention, ops_attn.h */

void tli_ops_scores(const tl_work *work, const float *q, size_t m, const float *k, size_t n,
                    size_t d, float scale, float *s, size_t lds) {
    work->kernels->tile(q, d, m, k, n, d, scale, s, lds, NULL, 0);
}

void tli_ops_values(const tl_work *work, const float *p, size_t ldp, size_t m, const float *v,
                    size_t n, size_t d, float *o) {
    work->kernels->values(p, ldp, m, v, n, d, o);
}

void tli_ops_divide(const tl_work *work, const float *x, float z, size_t n, float *y) {
    work->kernels->divide(x, z, n, y);
}
