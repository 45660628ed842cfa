/* forward.c: one step of the model, one token after the other.
 *
 * A token goes through all layers before the next one starts. That is the same computation: what a
 * token reads of others are the keys and values of earlier positions, and those are in the slabs by
 * then. So there is no batch and no chunk anywhere below tl_forward, and a result cannot depend on
 * them. Sums are made in f64, one term after the other.
 *
 * Source: conformance/spec/forward.md. */
#include "tl/forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "forward_plain.h"
#include "util.h"

/* ------------------------------------------------------------------ logits and scratch */

tl_status tl_logits_init(tl_logits *out, size_t max_rows, size_t vocab, tl_error *err) {
    size_t n;
    if (out == NULL || max_rows == 0 || vocab == 0) {
        return tli_fail(
            err, TL_ERR_INVALID,
            "out is NULL, or there are %zu rows of %zu logits, at least 1 of 1 is needed", max_rows,
            vocab);
    }
    *out = (tl_logits){0};
    float *data = tli_mul(max_rows, vocab, &n) ? tli_calloc(n, sizeof *data) : NULL;
    if (data == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for %zu rows of %zu logits", max_rows, vocab);
    }
    *out = (tl_logits){.vocab = vocab, .max_rows = max_rows, .data = data, .data_len = n};
    return TL_OK;
}

void tl_logits_clear(tl_logits *logits) {
    if (logits != NULL) {
        free(logits->data);
        *logits = (tl_logits){0};
    }
}

const float *tl_logits_row(const tl_logits *logits, size_t row) {
    const bool there = logits != NULL && row < logits->n_rows;
    return there ? logits->data + row * logits->vocab : NULL;
}

static bool above_0(double x) {
    return (float)x > 0 && isfinite((float)x);
}

/* INVALID for a config that tl_model_config_parse would never make: this module can stand alone. */
static tl_status check_config(const tl_model_config *cfg, tl_error *err) {
    const bool counts = cfg->vocab_size > 0 && cfg->n_layers > 0 && cfg->n_heads > 0 &&
                        cfg->n_kv_heads > 0 && cfg->n_kv_heads <= cfg->n_heads && cfg->head_dim > 0;
    const bool llama = cfg->hidden_size > 0 && cfg->intermediate_size > 0 &&
                       above_0(cfg->rope_theta) && above_0(cfg->rms_norm_eps);
    if (counts && (cfg->arch == TL_ARCH_BIGRAM || (cfg->arch == TL_ARCH_LLAMA && llama))) {
        return TL_OK;
    }
    return tli_fail(err, TL_ERR_INVALID, "the config is none that a config.json gives");
}

/* The longest row of any linear, and the floats that one token needs: 2 d + 2 H D + 2 H_kv D +
 * 2 inter + D. */
static tl_status measure(const tl_model_config *cfg, size_t *max_n_in, size_t *n_floats,
                         tl_error *err) {
    size_t q;
    size_t kv;
    size_t n;
    if (!tli_mul(cfg->n_heads, cfg->head_dim, &q) ||
        !tli_mul(cfg->n_kv_heads, cfg->head_dim, &kv) || !tli_add(q, kv, &n) ||
        !tli_add(n, cfg->hidden_size, &n) || !tli_add(n, cfg->intermediate_size, &n) ||
        !tli_mul(n, 2, &n) || !tli_add(n, cfg->head_dim, &n)) {
        return tli_fail(err, TL_ERR_NOMEM, "the size of the scratch overflows");
    }
    *n_floats = n;
    *max_n_in = cfg->hidden_size > q ? cfg->hidden_size : q;
    *max_n_in = cfg->intermediate_size > *max_n_in ? cfg->intermediate_size : *max_n_in;
    return TL_OK;
}

static tl_status check_limits(const tl_model_config *cfg, const tl_limits *limits, tl_error *err) {
    if (cfg == NULL || limits == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "cfg or limits is NULL");
    }
    if (limits->max_batch_tokens == 0 || limits->max_seqs == 0 || limits->max_blocks == 0) {
        return tli_fail(err, TL_ERR_INVALID,
                        "limits of %zu tokens, %zu sequences and %lu blocks, "
                        "at least 1 of each is needed",
                        limits->max_batch_tokens, limits->max_seqs,
                        (unsigned long)limits->max_blocks);
    }
    if (limits->n_threads < 1 || limits->n_threads > 64) {
        return tli_fail(err, TL_ERR_INVALID, "%zu threads, 1 to 64 are allowed", limits->n_threads);
    }
    return TL_OK;
}

/* What this implementation takes: the floats of one token, and at most what ops.h says of a
 * tl_work. Neither threads nor the size of a batch cost anything. */
tl_status tl_scratch_size(const tl_model_config *cfg, const tl_limits *limits, size_t *n_bytes,
                          tl_error *err) {
    size_t max_n_in = 0;
    size_t n_floats = 0;
    size_t n;
    TLI_TRY(check_limits(cfg, limits, err));
    TLI_TRY(check_config(cfg, err));
    TLI_TRY(measure(cfg, &max_n_in, &n_floats, err));
    if (n_bytes == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "n_bytes is NULL");
    }
    if (!tli_add(max_n_in, 16, &n) || !tli_mul(n, 64, &n) || !tli_add(n, n_floats, &n) ||
        !tli_mul(n, 4, &n)) {
        return tli_fail(err, TL_ERR_NOMEM, "the size of the scratch overflows");
    }
    *n_bytes = n;
    return TL_OK;
}

/* Hand out the memory, piece after piece. */
static float *piece(float **memory, size_t n) {
    float *p = *memory;
    *memory += n;
    return p;
}

static void lay_out(tl_scratch *scratch) {
    const tl_model_config *cfg = &scratch->cfg;
    float *memory = scratch->memory;
    scratch->x = piece(&memory, cfg->hidden_size);
    scratch->h = piece(&memory, cfg->hidden_size);
    scratch->q = piece(&memory, cfg->n_heads * cfg->head_dim);
    scratch->o = piece(&memory, cfg->n_heads * cfg->head_dim);
    scratch->k = piece(&memory, cfg->n_kv_heads * cfg->head_dim);
    scratch->v = piece(&memory, cfg->n_kv_heads * cfg->head_dim);
    scratch->gate = piece(&memory, cfg->intermediate_size);
    scratch->up = piece(&memory, cfg->intermediate_size);
    scratch->c = piece(&memory, cfg->head_dim / 2);
    scratch->s = piece(&memory, cfg->head_dim / 2);
}

tl_status tl_scratch_new(tl_scratch **out, const tl_model_config *cfg, const tl_limits *limits,
                         tl_error *err) {
    size_t max_n_in = 0;
    size_t n_floats = 0;
    tl_isa isa = TL_ISA_AUTO;
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    TLI_TRY(check_limits(cfg, limits, err));
    TLI_TRY(check_config(cfg, err));
    TLI_TRY(measure(cfg, &max_n_in, &n_floats, err));
    TLI_TRY(tl_isa_resolve(limits->isa, &isa, err));
    tl_scratch *scratch = tli_calloc(1, sizeof *scratch);
    if (scratch == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a scratch");
    }
    scratch->cfg = *cfg;
    scratch->limits = *limits;
    scratch->limits.isa = isa;
    scratch->limits.max_context =
        limits->max_context == 0 ? cfg->max_positions : limits->max_context;
    scratch->memory = tli_calloc(n_floats, sizeof *scratch->memory);
    tl_status status = scratch->memory != NULL
                           ? tl_work_new(&scratch->work, isa, max_n_in, err)
                           : tli_fail(err, TL_ERR_NOMEM, "no memory for %zu floats", n_floats);
    if (status != TL_OK) {
        tl_scratch_free(scratch);
        return status;
    }
    lay_out(scratch);
    *out = scratch;
    return TL_OK;
}

void tl_scratch_free(tl_scratch *scratch) {
    if (scratch != NULL) {
        tl_work_free(scratch->work);
        free(scratch->memory);
        free(scratch);
    }
}

const tl_limits *tl_scratch_limits(const tl_scratch *scratch) {
    return scratch == NULL ? NULL : &scratch->limits;
}

/* ------------------------------------------------------------------ pieces of a layer */

static void rms_norm(const float *x, const float *w, size_t d, double eps, float *y) {
    double squares = 0;
    for (size_t i = 0; i < d; i++) {
        squares += (double)x[i] * (double)x[i];
    }
    const double r = 1 / sqrt(squares / (double)d + eps);
    for (size_t i = 0; i < d; i++) {
        y[i] = (float)((double)x[i] * r * (double)w[i]);
    }
}

/* The angles of one position; frequency and angle are f32, as Hugging Face forms them. */
static void set_angles(tl_scratch *scratch, size_t position) {
    const size_t half = scratch->cfg.head_dim / 2;
    for (size_t i = 0; i < half; i++) {
        const double exponent = -2.0 * (double)i / (double)scratch->cfg.head_dim;
        const float frequency = (float)pow(scratch->cfg.rope_theta, exponent);
        const float angle = (float)position * frequency;
        scratch->c[i] = (float)cos((double)angle);
        scratch->s[i] = (float)sin((double)angle);
    }
}

/* Rotate every head of x. A pair is an element of the first half and its like in the second. */
static void rotate(const tl_scratch *scratch, float *x, size_t n_heads) {
    const size_t half = scratch->cfg.head_dim / 2;
    for (size_t head = 0; head < n_heads; head++) {
        float *first = x + head * 2 * half;
        float *second = first + half;
        for (size_t i = 0; i < half; i++) {
            const double x1 = (double)first[i];
            const double x2 = (double)second[i];
            const double c = (double)scratch->c[i];
            const double s = (double)scratch->s[i];
            first[i] = (float)(x1 * c - x2 * s);
            second[i] = (float)(x2 * c + x1 * s);
        }
    }
}

/* One token of a sequence, at its absolute position. */
typedef struct token {
    const tl_forward_seq *seq;
    tl_kv_pool *pool;
    uint32_t layer;
    size_t position;
} token;

/* Where KV head `head` of a position starts in its slab. */
static size_t element_of(const tl_kv_cfg *kv, size_t head, size_t position) {
    return (head * kv->block_tokens + position % kv->block_tokens) * kv->head_dim;
}

/* Round K or V to f16 and write it to the slab of its position. */
static tl_status write_slab(const token *t, tl_kv_side side, const float *values, tl_error *err) {
    const tl_kv_cfg *kv = tl_kv_pool_cfg(t->pool);
    const uint32_t block = t->seq->blocks[t->position / kv->block_tokens];
    uint16_t *slab;
    size_t slab_len;
    TLI_TRY(tl_kv_pool_slab_mut(t->pool, block, t->layer, side, &slab, &slab_len, err));
    for (size_t head = 0; head < kv->n_kv_heads; head++) {
        uint16_t *to = slab + element_of(kv, head, t->position);
        for (size_t i = 0; i < kv->head_dim; i++) {
            to[i] = tl_f32_to_f16(values[head * kv->head_dim + i]);
        }
    }
    return TL_OK;
}

/* The K or V of one KV head at position j, as it lies in its slab. */
static tl_status read_slab(const token *t, tl_kv_side side, size_t head, size_t j,
                           const uint16_t **values, tl_error *err) {
    const tl_kv_cfg *kv = tl_kv_pool_cfg(t->pool);
    const uint32_t block = t->seq->blocks[j / kv->block_tokens];
    const uint16_t *slab;
    size_t slab_len;
    TLI_TRY(tl_kv_pool_slab(t->pool, block, t->layer, side, &slab, &slab_len, err));
    *values = slab + element_of(kv, head, j);
    return TL_OK;
}

static double score(const float *q, const uint16_t *k, size_t head_dim) {
    double sum = 0;
    for (size_t i = 0; i < head_dim; i++) {
        sum += (double)q[i] * (double)tl_f16_to_f32(k[i]);
    }
    return sum / sqrt((double)head_dim);
}

/* One query head over the keys 0 to the token's own position. Scores are computed twice, once for
 * their maximum and once for the sums, so that no memory grows with the context. */
static tl_status attend(const token *t, const float *q, size_t kv_head, float *o, tl_error *err) {
    const size_t head_dim = tl_kv_pool_cfg(t->pool)->head_dim;
    const uint16_t *k;
    const uint16_t *v;
    double max = -(double)INFINITY;
    double z = 0;
    for (size_t j = 0; j <= t->position; j++) {
        TLI_TRY(read_slab(t, TL_KV_K, kv_head, j, &k, err));
        const double here = score(q, k, head_dim);
        max = here > max ? here : max;
    }
    memset(o, 0, head_dim * sizeof *o);
    for (size_t j = 0; j <= t->position; j++) {
        TLI_TRY(read_slab(t, TL_KV_K, kv_head, j, &k, err));
        TLI_TRY(read_slab(t, TL_KV_V, kv_head, j, &v, err));
        const float e = (float)exp(score(q, k, head_dim) - max);
        z += (double)e;
        for (size_t i = 0; i < head_dim; i++) {
            o[i] += e * tl_f16_to_f32(v[i]);
        }
    }
    for (size_t i = 0; i < head_dim; i++) {
        o[i] = (float)((double)o[i] / z);
    }
    return TL_OK;
}

static tl_status multiply(tl_scratch *scratch, const tl_linear *w, const float *x, float *y,
                          tl_error *err) {
    const size_t n_in = tl_linear_n_in(w);
    const size_t n_out = tl_linear_n_out(w);
    return tl_linear_forward(w, 0, n_out, x, n_in, 1, y, n_out, scratch->work, err);
}

static void add(float *x, const float *h, size_t n) {
    for (size_t i = 0; i < n; i++) {
        x[i] += h[i];
    }
}

static tl_status attention_half(tl_scratch *scratch, const tl_llama_layer *w, const token *t,
                                tl_error *err) {
    const tl_model_config *cfg = &scratch->cfg;
    rms_norm(scratch->x, w->attn_norm, cfg->hidden_size, cfg->rms_norm_eps, scratch->h);
    TLI_TRY(multiply(scratch, &w->wq, scratch->h, scratch->q, err));
    TLI_TRY(multiply(scratch, &w->wk, scratch->h, scratch->k, err));
    TLI_TRY(multiply(scratch, &w->wv, scratch->h, scratch->v, err));
    rotate(scratch, scratch->q, cfg->n_heads);
    rotate(scratch, scratch->k, cfg->n_kv_heads);
    TLI_TRY(write_slab(t, TL_KV_K, scratch->k, err));
    TLI_TRY(write_slab(t, TL_KV_V, scratch->v, err));
    for (size_t head = 0; head < cfg->n_heads; head++) {
        const size_t at = head * cfg->head_dim;
        const size_t kv_head = head * cfg->n_kv_heads / cfg->n_heads; /* neighbours share one */
        TLI_TRY(attend(t, scratch->q + at, kv_head, scratch->o + at, err));
    }
    TLI_TRY(multiply(scratch, &w->wo, scratch->o, scratch->h, err));
    add(scratch->x, scratch->h, cfg->hidden_size);
    return TL_OK;
}

static tl_status mlp_half(tl_scratch *scratch, const tl_llama_layer *w, tl_error *err) {
    const tl_model_config *cfg = &scratch->cfg;
    rms_norm(scratch->x, w->mlp_norm, cfg->hidden_size, cfg->rms_norm_eps, scratch->h);
    TLI_TRY(multiply(scratch, &w->w_gate, scratch->h, scratch->gate, err));
    TLI_TRY(multiply(scratch, &w->w_up, scratch->h, scratch->up, err));
    for (size_t i = 0; i < cfg->intermediate_size; i++) {
        const double g = (double)scratch->gate[i];
        const double silu = g / (1 + exp(-g));
        scratch->gate[i] = (float)(silu * (double)scratch->up[i]);
    }
    TLI_TRY(multiply(scratch, &w->w_down, scratch->gate, scratch->h, err));
    add(scratch->x, scratch->h, cfg->hidden_size);
    return TL_OK;
}

/* ------------------------------------------------------------------ sequences */

/* All layers for one token, from its embedding to scratch->x. */
static tl_status run_token(tl_scratch *scratch, const tl_llama_weights *w, tl_kv_pool *pool,
                           const tl_forward_seq *seq, size_t i, tl_error *err) {
    token t = {.seq = seq, .pool = pool, .position = seq->start + i};
    tl_ops_widen_row(scratch->work, &w->embed.as.dense, seq->tokens[i], scratch->x);
    set_angles(scratch, t.position);
    for (size_t layer = 0; layer < w->n_layers; layer++) {
        t.layer = (uint32_t)layer;
        TLI_TRY(attention_half(scratch, &w->layers[layer], &t, err));
        TLI_TRY(mlp_half(scratch, &w->layers[layer], err));
    }
    return TL_OK;
}

/* One sequence of a llama: hidden has a row for each token or is NULL, logits is one row. */
static tl_status run_sequence(tl_scratch *scratch, const tl_llama_weights *w, tl_kv_pool *pool,
                              const tl_forward_seq *seq, float *hidden, float *logits,
                              tl_error *err) {
    const size_t d = scratch->cfg.hidden_size;
    for (size_t i = 0; i < seq->n_tokens; i++) {
        TLI_TRY(run_token(scratch, w, pool, seq, i, err));
        rms_norm(scratch->x, w->final_norm, d, scratch->cfg.rms_norm_eps, scratch->h);
        if (hidden != NULL) {
            memcpy(hidden + i * d, scratch->h, d * sizeof *hidden);
        }
    }
    return multiply(scratch, &w->lm_head, scratch->h, logits, err);
}

static bool listed_elsewhere(const tl_forward_batch *batch, size_t s, uint32_t id) {
    for (size_t other = 0; other < batch->n_seqs; other++) {
        for (size_t i = 0; other != s && i < batch->seqs[other].n_blocks; i++) {
            if (batch->seqs[other].blocks[i] == id) {
                return true;
            }
        }
    }
    return false;
}

/* Raise the fill of every block that was written. Whatever a later block of this sequence alone
 * held came after what was rewound, and is gone. (Where nothing was rewound it held nothing.) */
static tl_status set_fills(tl_kv_pool *pool, const tl_forward_batch *batch, size_t s,
                           tl_error *err) {
    const tl_forward_seq *seq = &batch->seqs[s];
    const size_t per_block = tl_kv_pool_cfg(pool)->block_tokens;
    const size_t end = seq->start + seq->n_tokens;
    const size_t last_block = (end - 1) / per_block;
    for (size_t i = seq->start / per_block; i <= last_block; i++) {
        const size_t fill = i < last_block ? per_block : (end - 1) % per_block + 1;
        TLI_TRY(tl_kv_pool_set_fill(pool, seq->blocks[i], (uint32_t)fill, err));
    }
    for (size_t i = last_block + 1; i < seq->n_blocks; i++) {
        tl_kv_block_info info;
        TLI_TRY(tl_kv_pool_block_info(pool, seq->blocks[i], &info, err));
        if (info.n_refs == 1 && !info.registered && !listed_elsewhere(batch, s, seq->blocks[i])) {
            TLI_TRY(tl_kv_pool_set_fill(pool, seq->blocks[i], 0, err));
        }
    }
    return TL_OK;
}

/* What tl_forward_check does not see: the buffers of the caller. */
static tl_status check_outputs(const tl_model_config *cfg, const tl_weights *weights,
                               const tl_forward_batch *batch, const float *hidden,
                               size_t hidden_len, const tl_logits *logits, tl_error *err) {
    size_t n_tokens = 0;
    if (weights == NULL || logits == NULL || weights->arch != cfg->arch ||
        logits->vocab != cfg->vocab_size) {
        return tli_fail(err, TL_ERR_INVALID, "weights or logits is NULL or another model's");
    }
    for (size_t s = 0; s < batch->n_seqs; s++) {
        n_tokens += batch->seqs[s].n_tokens;
    }
    const size_t needed = hidden == NULL ? 0 : n_tokens * cfg->hidden_size;
    if (hidden_len != needed || (hidden != NULL && cfg->arch == TL_ARCH_BIGRAM)) {
        return tli_fail(err, TL_ERR_INVALID, "room for %zu hidden values, %zu are needed",
                        hidden_len, needed);
    }
    if (logits->max_rows < batch->n_seqs) {
        return tli_fail(err, TL_ERR_CAPACITY, "room for %zu rows of logits, sequence %zu has none",
                        logits->max_rows, logits->max_rows);
    }
    return TL_OK;
}

tl_status tl_forward(const tl_model_config *cfg, const tl_weights *weights, tl_kv_pool *pool,
                     tl_scratch *scratch, const tl_forward_batch *batch, float *hidden,
                     size_t hidden_len, tl_logits *logits, tl_error *err) {
    TLI_TRY(tl_forward_check(cfg, pool, scratch, batch, err));
    TLI_TRY(check_outputs(cfg, weights, batch, hidden, hidden_len, logits, err));
    for (size_t s = 0; s < batch->n_seqs; s++) {
        const tl_forward_seq *seq = &batch->seqs[s];
        float *row = logits->data + s * logits->vocab;
        if (cfg->arch == TL_ARCH_BIGRAM) {
            const uint32_t last = seq->tokens[seq->n_tokens - 1];
            tl_ops_widen_row(scratch->work, &weights->as.bigram.as.dense, last, row);
        } else {
            TLI_TRY(run_sequence(scratch, &weights->as.llama, pool, seq, hidden, row, err));
            hidden = hidden == NULL ? NULL : hidden + seq->n_tokens * cfg->hidden_size;
        }
        TLI_TRY(set_fills(pool, batch, s, err));
    }
    logits->n_rows = batch->n_seqs;
    return TL_OK;
}
