/* forward_fixture.h: small random models without files, and the forward as the page writes it: one
 * sequence, one loop inside the other, nothing shared with engine/src/forward*.c.
 *
 * For test_forward.c and test_runner.c. Source: conformance/spec/forward.md. */
#ifndef FORWARD_FIXTURE_H
#define FORWARD_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tl/tl.h"
#include "util.h"

#define PARTS_MAX 64u

typedef struct fixture {
    tl_model_config cfg;
    tl_weights weights;
    void *parts[PARTS_MAX]; /* every allocation */
    size_t n_parts;
    uint64_t random;
} fixture;

/* ------------------------------------------------------------------ random weights */

static inline void *fx_part(fixture *fx, size_t n, size_t size) {
    void *part = calloc(n == 0 ? 1 : n, size);
    assert_non_null(part);
    assert_true(fx->n_parts < PARTS_MAX);
    fx->parts[fx->n_parts++] = part;
    return part;
}

static inline uint32_t fx_next(fixture *fx) {
    fx->random = fx->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(fx->random >> 33);
}

/* Uniform in [-scale, scale). */
static inline float fx_float(fixture *fx, float scale) {
    return ((float)(fx_next(fx) % 65536) - 32768.0f) * (scale / 32768.0f);
}

static inline float *fx_norm(fixture *fx, size_t d) {
    float *w = (float *)fx_part(fx, d, sizeof *w);
    for (size_t i = 0; i < d; i++) {
        w[i] = 1.0f + fx_float(fx, 0.5f);
    }
    return w;
}

static inline void fx_fill_dense(fixture *fx, tl_matrix_kind kind, uint8_t *data, size_t n,
                                 float scale) {
    for (size_t i = 0; i < n; i++) {
        const float w = fx_float(fx, scale);
        if (kind == TL_MATRIX_F32) {
            tli_store_u32(data + 4 * i, tli_f32_bits(w));
        } else if (kind == TL_MATRIX_F16) {
            tli_store_u16(data + 2 * i, tl_f32_to_f16(w));
        } else {
            tli_store_u16(data + 2 * i, (uint16_t)(tli_f32_bits(w) >> 16));
        }
    }
}

static inline tl_linear fx_dense(fixture *fx, tl_matrix_kind kind, size_t n_out, size_t n_in) {
    const size_t size = kind == TL_MATRIX_F32 ? 4 : 2;
    uint8_t *data = (uint8_t *)fx_part(fx, n_out * n_in * size + 1, 1);
    data++; /* a file is not aligned either */
    fx_fill_dense(fx, kind, data, n_out * n_in, 2.0f / sqrtf((float)n_in));
    tl_linear linear = {.kind = TL_LINEAR_DENSE};
    linear.as.dense = (tl_matrix){.kind = kind, .n_out = n_out, .n_in = n_in, .data = data};
    return linear;
}

static inline tl_linear fx_int4(fixture *fx, size_t n_out, size_t n_in, size_t group) {
    uint8_t *q = (uint8_t *)fx_part(fx, n_out * n_in / 2, 1);
    uint8_t *scales = (uint8_t *)fx_part(fx, n_out * n_in / group, 2);
    for (size_t i = 0; i < n_out * n_in / 2; i++) {
        q[i] = (uint8_t)fx_next(fx);
    }
    for (size_t i = 0; i < n_out * n_in / group; i++) {
        const float scale = 0.3f / sqrtf((float)n_in);
        tli_store_u16(scales + 2 * i, tl_f32_to_f16(scale + fabsf(fx_float(fx, scale))));
    }
    tl_linear linear = {.kind = TL_LINEAR_Q4};
    linear.as.q4 = (tl_qlinear){.n_out = n_out,
                                .n_in = n_in,
                                .group = group,
                                .qweight = q,
                                .qweight_len = n_out * n_in / 2,
                                .scales = scales,
                                .scales_len = n_out * n_in / group * 2};
    return linear;
}

/* group 0: dense of `kind`; else int4 linears and a dense embedding. */
static inline tl_linear fx_linear(fixture *fx, tl_matrix_kind kind, size_t group, size_t n_out,
                                  size_t n_in) {
    return group == 0 ? fx_dense(fx, kind, n_out, n_in) : fx_int4(fx, n_out, n_in, group);
}

typedef struct fx_shape {
    size_t d, inter, n_layers, n_heads, n_kv_heads, head_dim, vocab;
    tl_matrix_kind kind;
    size_t group;
    bool tied;
} fx_shape;

static inline fixture *fx_llama(const fx_shape *shape) {
    fixture *fx = (fixture *)calloc(1, sizeof *fx);
    assert_non_null(fx);
    fx->random = 20250101;
    fx->cfg = (tl_model_config){.arch = TL_ARCH_LLAMA,
                                .tokenizer = TL_TOKENIZER_BPE,
                                .vocab_size = shape->vocab,
                                .hidden_size = shape->d,
                                .intermediate_size = shape->inter,
                                .n_layers = shape->n_layers,
                                .n_heads = shape->n_heads,
                                .n_kv_heads = shape->n_kv_heads,
                                .head_dim = shape->head_dim,
                                .max_positions = 200,
                                .rope_theta = 10000.0,
                                .rms_norm_eps = 1e-5,
                                .tie_word_embeddings = shape->tied};
    const size_t d = shape->d;
    const size_t q_width = shape->n_heads * shape->head_dim;
    const size_t kv_width = shape->n_kv_heads * shape->head_dim;
    fx->weights.arch = TL_ARCH_LLAMA;
    tl_llama_weights *w = &fx->weights.as.llama;
    w->embed = fx_dense(fx, shape->kind, shape->vocab, d);
    w->lm_head = shape->tied ? w->embed : fx_linear(fx, shape->kind, shape->group, shape->vocab, d);
    w->final_norm = fx_norm(fx, d);
    w->n_layers = shape->n_layers;
    w->layers = (tl_llama_layer *)fx_part(fx, shape->n_layers, sizeof *w->layers);
    for (size_t i = 0; i < shape->n_layers; i++) {
        tl_llama_layer *layer = &w->layers[i];
        layer->attn_norm = fx_norm(fx, d);
        layer->mlp_norm = fx_norm(fx, d);
        layer->wq = fx_linear(fx, shape->kind, shape->group, q_width, d);
        layer->wk = fx_linear(fx, shape->kind, shape->group, kv_width, d);
        layer->wv = fx_linear(fx, shape->kind, shape->group, kv_width, d);
        layer->wo = fx_linear(fx, shape->kind, shape->group, d, q_width);
        layer->w_gate = fx_linear(fx, shape->kind, shape->group, shape->inter, d);
        layer->w_up = fx_linear(fx, shape->kind, shape->group, shape->inter, d);
        layer->w_down = fx_linear(fx, shape->kind, shape->group, d, shape->inter);
    }
    return fx;
}

static inline fixture *fx_bigram(size_t vocab) {
    fixture *fx = (fixture *)calloc(1, sizeof *fx);
    assert_non_null(fx);
    fx->random = 7;
    fx->cfg = (tl_model_config){.arch = TL_ARCH_BIGRAM,
                                .tokenizer = TL_TOKENIZER_BYTE,
                                .vocab_size = vocab,
                                .n_layers = 1,
                                .n_heads = 1,
                                .n_kv_heads = 1,
                                .head_dim = 2,
                                .max_positions = 200};
    fx->weights.arch = TL_ARCH_BIGRAM;
    fx->weights.as.bigram = fx_dense(fx, TL_MATRIX_F32, vocab, vocab);
    return fx;
}

static inline void fx_free(fixture *fx) {
    for (size_t i = 0; i < fx->n_parts; i++) {
        free(fx->parts[i]);
    }
    free(fx);
}

/* Tokens of a prompt: not constant, not periodic with any block size. */
static inline void fx_tokens(const fixture *fx, uint32_t *tokens, size_t n, uint32_t seed) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t mixed = ((uint32_t)i + seed) * 2654435761u;
        tokens[i] = (mixed >> 12) % (uint32_t)fx->cfg.vocab_size;
    }
}

/* ------------------------------------------------------------------ the page, written out */

static inline float page_tree(const float lane[8]) {
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static inline float page_dot(const float *a, const float *b, size_t n) {
    float lane[8] = {0};
    for (size_t k = 0; k < n; k++) {
        lane[k & 7] = fmaf(a[k], b[k], lane[k & 7]);
    }
    return page_tree(lane);
}

static inline void page_row(const tl_linear *linear, size_t row, float *y) {
    if (linear->kind == TL_LINEAR_Q4) {
        const tl_qlinear *q = &linear->as.q4;
        for (size_t k = 0; k < q->n_in; k++) {
            const size_t at = row * q->n_in + k;
            const int nibble = at % 2 == 0 ? q->qweight[at / 2] & 15 : q->qweight[at / 2] >> 4;
            const float scale = tl_f16_to_f32(tli_load_u16(q->scales + 2 * (at / q->group)));
            y[k] = (float)(nibble < 8 ? nibble : nibble - 16) * scale;
        }
        return;
    }
    const tl_matrix *w = &linear->as.dense;
    for (size_t k = 0; k < w->n_in; k++) {
        const size_t at = row * w->n_in + k;
        if (w->kind == TL_MATRIX_F32) {
            y[k] = tli_f32_from_bits(tli_load_u32(w->data + 4 * at));
        } else if (w->kind == TL_MATRIX_F16) {
            y[k] = tl_f16_to_f32(tli_load_u16(w->data + 2 * at));
        } else {
            y[k] = tl_bf16_to_f32(tli_load_u16(w->data + 2 * at));
        }
    }
}

/* y = W x for one row of activations. */
static inline void page_linear(const tl_linear *linear, const float *x, float *y) {
    float *row = (float *)malloc(tl_linear_n_in(linear) * sizeof *row);
    assert_non_null(row);
    for (size_t i = 0; i < tl_linear_n_out(linear); i++) {
        page_row(linear, i, row);
        y[i] = page_dot(x, row, tl_linear_n_in(linear));
    }
    free(row);
}

static inline void page_norm(const float *x, const float *w, size_t d, double eps, float *y) {
    const float r = 1.0f / sqrtf(page_dot(x, x, d) / (float)d + (float)eps);
    for (size_t i = 0; i < d; i++) {
        y[i] = (x[i] * r) * w[i];
    }
}

static inline void page_rope(const tl_model_config *cfg, float *x, size_t position) {
    const size_t half = cfg->head_dim / 2;
    for (size_t i = 0; i < half; i++) {
        const double exponent = -2.0 * (double)i / (double)cfg->head_dim;
        const float angle = (float)position * (float)pow(cfg->rope_theta, exponent);
        const float c = (float)cos((double)angle);
        const float s = (float)sin((double)angle);
        const float a = x[i] * c;
        const float b = x[i + half] * s;
        const float e = x[i + half] * c;
        const float f = x[i] * s;
        x[i] = a - b;
        x[i + half] = e + f;
    }
}

/* o [D] of one query head against positions 0 to `position` of its KV head; k, v [T, H_kv, D]. */
static inline void page_attend(const tl_model_config *cfg, const float *q, size_t head,
                               size_t position, const float *k, const float *v, float *o) {
    const size_t d = cfg->head_dim;
    const size_t kv_head = head / (cfg->n_heads / cfg->n_kv_heads);
    const float scale = (float)(1.0 / sqrt((double)d));
    float *s = (float *)malloc((position + 1) * sizeof *s);
    assert_non_null(s);
    float max = -INFINITY;
    for (size_t j = 0; j <= position; j++) {
        s[j] = page_dot(q, k + (j * cfg->n_kv_heads + kv_head) * d, d) * scale;
        max = s[j] > max ? s[j] : max;
    }
    float lane[8] = {0};
    for (size_t j = 0; j <= position; j++) {
        s[j] = tl_ops_exp(s[j] - max);
        lane[j & 7] += s[j];
    }
    for (size_t i = 0; i < d; i++) {
        float sum = 0;
        for (size_t j = 0; j <= position; j++) {
            sum = fmaf(s[j], v[(j * cfg->n_kv_heads + kv_head) * d + i], sum);
        }
        o[i] = sum / page_tree(lane);
    }
    free(s);
}

static inline float *fx_floats(size_t n) {
    float *x = (float *)calloc(n == 0 ? 1 : n, sizeof *x);
    assert_non_null(x);
    return x;
}

/* One token through one layer; k and v [T, H_kv, D] hold the earlier positions, rounded through
 * f16. */
static inline void page_layer(const fixture *fx, const tl_llama_layer *layer, size_t position,
                              float *x, float *k, float *v) {
    const tl_model_config *cfg = &fx->cfg;
    const size_t d = cfg->hidden_size;
    const size_t kv_width = cfg->n_kv_heads * cfg->head_dim;
    float *h = fx_floats(d);
    float *q = fx_floats(cfg->n_heads * cfg->head_dim);
    float *o = fx_floats(cfg->n_heads * cfg->head_dim);
    float *gate = fx_floats(cfg->intermediate_size);
    float *up = fx_floats(cfg->intermediate_size);
    float *k_now = k + position * kv_width;
    float *v_now = v + position * kv_width;
    page_norm(x, layer->attn_norm, d, cfg->rms_norm_eps, h);
    page_linear(&layer->wq, h, q);
    page_linear(&layer->wk, h, k_now);
    page_linear(&layer->wv, h, v_now);
    for (size_t head = 0; head < cfg->n_kv_heads; head++) {
        page_rope(cfg, k_now + head * cfg->head_dim, position);
    }
    for (size_t i = 0; i < kv_width; i++) {
        k_now[i] = tl_f16_to_f32(tl_f32_to_f16(k_now[i]));
        v_now[i] = tl_f16_to_f32(tl_f32_to_f16(v_now[i]));
    }
    for (size_t head = 0; head < cfg->n_heads; head++) {
        page_rope(cfg, q + head * cfg->head_dim, position);
        page_attend(cfg, q + head * cfg->head_dim, head, position, k, v, o + head * cfg->head_dim);
    }
    page_linear(&layer->wo, o, h);
    for (size_t i = 0; i < d; i++) {
        x[i] += h[i];
    }
    page_norm(x, layer->mlp_norm, d, cfg->rms_norm_eps, h);
    page_linear(&layer->w_gate, h, gate);
    page_linear(&layer->w_up, h, up);
    for (size_t i = 0; i < cfg->intermediate_size; i++) {
        gate[i] = (gate[i] / (1.0f + tl_ops_exp(-gate[i]))) * up[i];
    }
    page_linear(&layer->w_down, gate, h);
    for (size_t i = 0; i < d; i++) {
        x[i] += h[i];
    }
    free(h);
    free(q);
    free(o);
    free(gate);
    free(up);
}

/* hidden [n, d] and logits [n, V] of every token of one sequence. */
static inline void page_forward(const fixture *fx, const uint32_t *tokens, size_t n, float *hidden,
                                float *logits) {
    const tl_model_config *cfg = &fx->cfg;
    const tl_llama_weights *w = &fx->weights.as.llama;
    const size_t d = cfg->hidden_size;
    const size_t kv_width = cfg->n_kv_heads * cfg->head_dim;
    float *x = fx_floats(d);
    float *k = fx_floats(cfg->n_layers * n * kv_width);
    float *v = fx_floats(cfg->n_layers * n * kv_width);
    for (size_t t = 0; t < n; t++) {
        page_row(&w->embed, tokens[t], x);
        for (size_t l = 0; l < cfg->n_layers; l++) {
            page_layer(fx, &w->layers[l], t, x, k + l * n * kv_width, v + l * n * kv_width);
        }
        page_norm(x, w->final_norm, d, cfg->rms_norm_eps, hidden + t * d);
        page_linear(&w->lm_head, hidden + t * d, logits + t * cfg->vocab_size);
    }
    free(x);
    free(k);
    free(v);
}

/* ------------------------------------------------------------------ comparing, making */

static inline void assert_same_floats(const float *got, const float *want, size_t n,
                                      const char *what) {
    for (size_t i = 0; i < n; i++) {
        if (tli_f32_bits(got[i]) != tli_f32_bits(want[i])) {
            fail_msg("%s: element %zu of %zu is %a, due is %a", what, i, n, (double)got[i],
                     (double)want[i]);
        }
    }
}

static inline tl_kv_pool *fx_pool(const fixture *fx, uint32_t n_blocks, uint32_t block_tokens) {
    const tl_kv_cfg cfg = {.n_blocks = n_blocks,
                           .block_tokens = block_tokens,
                           .n_layers = (uint32_t)fx->cfg.n_layers,
                           .n_kv_heads = (uint32_t)fx->cfg.n_kv_heads,
                           .head_dim = (uint32_t)fx->cfg.head_dim,
                           .dtype = TL_KV_DTYPE_F16,
                           .format = TL_KV_FORMAT_V1,
                           .prefix_cache = TL_PREFIX_CACHE_ON};
    tl_kv_pool *pool = NULL;
    assert_int_equal(tl_kv_pool_new(&pool, &cfg, NULL), TL_OK);
    return pool;
}

static inline tl_scratch *fx_scratch(const fixture *fx, size_t n_threads, tl_isa isa,
                                     uint32_t max_blocks) {
    const tl_limits limits = {.max_batch_tokens = 256,
                              .max_seqs = 64,
                              .n_threads = n_threads,
                              .isa = isa,
                              .max_blocks = max_blocks};
    tl_scratch *scratch = NULL;
    assert_int_equal(tl_scratch_new(&scratch, &fx->cfg, &limits, NULL), TL_OK);
    return scratch;
}

#endif
