/* forward.c: the scratch, the logits, and the frame of a step: check everything, run the model,
 * raise the fills. All memory that a step uses is taken by tl_scratch_new.
 *
 * The scratch is one allocation, laid out below; in 4-byte words it is
 *   N * (3 d + (2 H + 2 H_kv) D + 2 inter + D + 1) + S d + D + 4 (S + 1) + 12 max_blocks
 *   + T * (ROWS * (C + PAD) + (2 ROWS + KEYS) D), ROWS = 32, PAD = 24, KEYS = 24,
 * beside each thread's tl_work.
 *
 * Source: conformance/spec/forward.md. */
#include "tl/forward.h"

#include <math.h>
#include <stdlib.h>

#include "forward_internal.h"
#include "util.h"

/* ------------------------------------------------------------------ logits */

tl_status tl_logits_init(tl_logits *out, size_t max_rows, size_t vocab, tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = (tl_logits){0};
    if (max_rows == 0 || vocab == 0) {
        return tli_fail(err, TL_ERR_INVALID, "%zu rows of %zu logits: neither may be 0", max_rows,
                        vocab);
    }
    size_t n = 0;
    float *data = NULL;
    if (tli_mul(max_rows, vocab, &n)) {
        data = tli_calloc(n, sizeof *data);
    }
    if (data == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for %zu rows of %zu logits", max_rows, vocab);
    }
    *out = (tl_logits){.vocab = vocab, .max_rows = max_rows, .data = data, .data_len = n};
    return TL_OK;
}

void tl_logits_clear(tl_logits *logits) {
    if (logits == NULL) {
        return;
    }
    free(logits->data);
    *logits = (tl_logits){0};
}

const float *tl_logits_row(const tl_logits *logits, size_t row) {
    if (logits == NULL || row >= logits->n_rows) {
        return NULL;
    }
    return logits->data + row * logits->vocab;
}

/* ------------------------------------------------------------------ the layout of a scratch */

/* Hands out parts of one allocation. With a NULL base it only counts. */
typedef struct carver {
    char *base;
    size_t n_bytes;
    bool overflow;
} carver;

/* Room for n0 * n1 elements, aligned for any of the types below; NULL while counting. */
static void *carve(carver *c, size_t n0, size_t n1, size_t size) {
    size_t n_bytes = 0;
    if (c->overflow || !tli_mul(n0, n1, &n_bytes) || !tli_mul(n_bytes, size, &n_bytes) ||
        !tli_add(n_bytes, 15, &n_bytes)) {
        c->overflow = true;
        return NULL;
    }
    n_bytes -= n_bytes % 16;
    void *part = c->base != NULL ? c->base + c->n_bytes : NULL;
    c->overflow = !tli_add(c->n_bytes, n_bytes, &c->n_bytes);
    return part;
}

/* The products here stay far from overflow: tl_model_config_parse bounds every count by 2^24, and a
 * config made by hand is bounded in check_config. */
static void carve_rows(carver *c, tl_scratch *s) {
    const tl_model_config *cfg = &s->cfg;
    const size_t n = s->limits.max_batch_tokens;
    const size_t q_width = cfg->n_heads * cfg->head_dim;
    const size_t kv_width = cfg->n_kv_heads * cfg->head_dim;
    s->x = carve(c, n, cfg->hidden_size, sizeof(float));
    s->h = carve(c, n, cfg->hidden_size, sizeof(float));
    s->t = carve(c, n, cfg->hidden_size, sizeof(float));
    s->q = carve(c, n, q_width, sizeof(float));
    s->o = carve(c, n, q_width, sizeof(float));
    s->k = carve(c, n, kv_width, sizeof(float));
    s->v = carve(c, n, kv_width, sizeof(float));
    s->gate = carve(c, n, cfg->intermediate_size, sizeof(float));
    s->up = carve(c, n, cfg->intermediate_size, sizeof(float));
    s->cos = carve(c, n, cfg->head_dim / 2, sizeof(float));
    s->sin = carve(c, n, cfg->head_dim / 2, sizeof(float));
    s->last = carve(c, s->limits.max_seqs, cfg->hidden_size, sizeof(float));
    s->inv_freq = carve(c, cfg->head_dim / 2, 1, sizeof(float));
}

static void carve_scratch(carver *c, tl_scratch *s) {
    const tl_limits *limits = &s->limits;
    const size_t head_dim = s->cfg.head_dim;
    carve_rows(c, s);
    s->token_seq = carve(c, limits->max_batch_tokens, 1, sizeof *s->token_seq);
    s->first_token = carve(c, limits->max_seqs + 1, 1, sizeof *s->first_token);
    s->first_tile = carve(c, limits->max_seqs + 1, 1, sizeof *s->first_tile);
    s->marks = carve(c, limits->max_blocks, 1, sizeof *s->marks);
    s->slabs = carve(c, limits->max_blocks, 1, sizeof *s->slabs);
    for (size_t i = 0; i < limits->n_threads; i++) {
        tli_attn_room *room = &s->attn[i];
        room->scores = carve(c, TLI_ATTN_ROWS, s->score_stride, sizeof(float));
        room->q = carve(c, TLI_ATTN_ROWS, head_dim, sizeof(float));
        room->o = carve(c, TLI_ATTN_ROWS, head_dim, sizeof(float));
        room->kv = carve(c, TLI_ATTN_KEYS, head_dim, sizeof(float));
    }
}

/* The longest row that a linear of this model multiplies. */
static size_t longest_row(const tl_model_config *cfg) {
    size_t longest = cfg->n_heads * cfg->head_dim;
    longest = cfg->hidden_size > longest ? cfg->hidden_size : longest;
    longest = cfg->intermediate_size > longest ? cfg->intermediate_size : longest;
    return longest;
}

/* ------------------------------------------------------------------ checking config and limits */

#define COUNT_MAX ((size_t)1 << 24)

/* As tl_model_config_parse asks of a real. NaN is not. */
static bool positive_as_f32(double x) {
    const float rounded = (float)x;
    return rounded > 0 && isfinite(rounded);
}

/* A config that tl_model_config_parse made passes; one made by hand must not make the forward
 * divide by zero, index past a head or overflow a size. */
static tl_status check_config(const tl_model_config *cfg, tl_error *err) {
    const size_t counts[] = {cfg->vocab_size,        cfg->hidden_size,  cfg->n_layers,
                             cfg->intermediate_size, cfg->n_heads,      cfg->n_kv_heads,
                             cfg->head_dim,          cfg->max_positions};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i] > COUNT_MAX) {
            return tli_fail(err, TL_ERR_INVALID,
                            "the config has a count of %zu, at most %zu is run", counts[i],
                            COUNT_MAX);
        }
    }
    if (cfg->arch != TL_ARCH_LLAMA && cfg->arch != TL_ARCH_BIGRAM) {
        return tli_fail(err, TL_ERR_INVALID, "architecture %d is not known", (int)cfg->arch);
    }
    const bool llama = cfg->arch == TL_ARCH_LLAMA;
    if (cfg->vocab_size == 0 || cfg->n_layers == 0 || cfg->n_heads == 0 || cfg->n_kv_heads == 0 ||
        cfg->max_positions == 0 || (llama && cfg->hidden_size == 0) ||
        (llama && cfg->intermediate_size == 0)) {
        return tli_fail(err, TL_ERR_INVALID, "the config has a count of 0");
    }
    if (cfg->head_dim == 0 || cfg->head_dim % 2 != 0 || cfg->n_heads % cfg->n_kv_heads != 0) {
        return tli_fail(err, TL_ERR_INVALID,
                        "%zu heads, %zu KV heads, head_dim %zu do not fit each other", cfg->n_heads,
                        cfg->n_kv_heads, cfg->head_dim);
    }
    if (llama && (!positive_as_f32(cfg->rope_theta) || !positive_as_f32(cfg->rms_norm_eps))) {
        return tli_fail(err, TL_ERR_INVALID,
                        "rope_theta %g or rms_norm_eps %g is not above 0 and finite as f32",
                        cfg->rope_theta, cfg->rms_norm_eps);
    }
    return TL_OK;
}

static tl_status check_limits(const tl_limits *limits, tl_error *err) {
    if (limits->max_batch_tokens == 0 || limits->max_seqs == 0 || limits->max_blocks == 0) {
        return tli_fail(err, TL_ERR_INVALID,
                        "limits of %zu tokens, %zu sequences, %u blocks: none may be 0",
                        limits->max_batch_tokens, limits->max_seqs, (unsigned)limits->max_blocks);
    }
    if (limits->n_threads == 0 || limits->n_threads > TLI_THREADS_MAX) {
        return tli_fail(err, TL_ERR_INVALID, "%zu threads: 1 to %u are allowed", limits->n_threads,
                        TLI_THREADS_MAX);
    }
    return TL_OK;
}

/* Check both and fill in what the caller left open. */
static tl_status resolve(const tl_model_config *cfg, const tl_limits *limits, tl_limits *resolved,
                         tl_error *err) {
    if (cfg == NULL || limits == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "cfg or limits is NULL");
    }
    TLI_TRY(check_config(cfg, err));
    TLI_TRY(check_limits(limits, err));
    *resolved = *limits;
    TLI_TRY(tl_isa_resolve(limits->isa, &resolved->isa, err));
    const bool open = limits->max_context == 0 || limits->max_context > cfg->max_positions;
    resolved->max_context = open ? cfg->max_positions : limits->max_context;
    return TL_OK;
}

/* Fill in what the layout depends on, and count its bytes. */
static tl_status plan_scratch(tl_scratch *s, const tl_model_config *cfg, const tl_limits *limits,
                              size_t *n_bytes, tl_error *err) {
    TLI_TRY(resolve(cfg, limits, &s->limits, err));
    s->cfg = *cfg;
    s->score_stride = s->limits.max_context / 8 * 8 + TLI_ATTN_PAD;
    carver counter = {0};
    carve_scratch(&counter, s);
    if (counter.overflow || s->limits.max_seqs == SIZE_MAX) {
        return tli_fail(err, TL_ERR_NOMEM, "a scratch of %zu tokens and %zu sequences overflows",
                        limits->max_batch_tokens, limits->max_seqs);
    }
    *n_bytes = counter.n_bytes;
    return TL_OK;
}

/* ------------------------------------------------------------------ scratch */

tl_status tl_scratch_size(const tl_model_config *cfg, const tl_limits *limits, size_t *n_bytes,
                          tl_error *err) {
    if (n_bytes == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "n_bytes is NULL");
    }
    tl_scratch plan = {0};
    size_t total = 0;
    size_t a_thread = 0;
    TLI_TRY(plan_scratch(&plan, cfg, limits, &total, err));
    if (!tli_mul(64 * sizeof(float), longest_row(cfg) + 16, &a_thread) ||
        !tli_mul(a_thread, limits->n_threads, &a_thread) || !tli_add(total, a_thread, &total)) {
        return tli_fail(err, TL_ERR_NOMEM, "the size of the scratch overflows");
    }
    *n_bytes = total;
    return TL_OK;
}

/* Everything but the plan; on failure tl_scratch_free cleans up. */
static tl_status build_scratch(tl_scratch *s, size_t n_bytes, tl_error *err) {
    s->memory = tli_calloc(n_bytes, 1);
    if (s->memory == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a scratch of %zu bytes", n_bytes);
    }
    carver c = {.base = s->memory};
    carve_scratch(&c, s);
    for (size_t i = 0; i < s->limits.n_threads; i++) {
        TLI_TRY(tl_work_new(&s->works[i], s->limits.isa, longest_row(&s->cfg), err));
    }
    tl_ops_rope_inv_freq(s->cfg.rope_theta, s->cfg.head_dim, s->inv_freq);
    return tli_workers_new(&s->workers, s->limits.n_threads, err);
}

tl_status tl_scratch_new(tl_scratch **out, const tl_model_config *cfg, const tl_limits *limits,
                         tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    tl_scratch plan = {0};
    size_t n_bytes = 0;
    TLI_TRY(plan_scratch(&plan, cfg, limits, &n_bytes, err));
    tl_scratch *s = tli_calloc(1, sizeof *s);
    if (s == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a scratch");
    }
    *s = plan;
    const tl_status status = build_scratch(s, n_bytes, err);
    if (status != TL_OK) {
        tl_scratch_free(s);
        return status;
    }
    *out = s;
    return TL_OK;
}

void tl_scratch_free(tl_scratch *scratch) {
    if (scratch == NULL) {
        return;
    }
    tli_workers_free(scratch->workers);
    for (size_t i = 0; i < scratch->limits.n_threads; i++) {
        tl_work_free(scratch->works[i]);
    }
    free(scratch->memory);
    free(scratch);
}

const tl_limits *tl_scratch_limits(const tl_scratch *scratch) {
    return scratch != NULL ? &scratch->limits : NULL;
}

/* ------------------------------------------------------------------ a step */

static bool q4_sound(const tl_qlinear *q) {
    return q->qweight != NULL && q->scales != NULL && q->group != 0 && q->group % 2 == 0 &&
           q->n_in % q->group == 0 && q->qweight_len == q->n_out * (q->n_in / 2) &&
           q->scales_len == q->n_out * (q->n_in / q->group) * 2;
}

static bool dense_sound(const tl_linear *linear) {
    const tl_matrix *w = &linear->as.dense;
    return linear->kind == TL_LINEAR_DENSE && w->data != NULL &&
           (w->kind == TL_MATRIX_F32 || w->kind == TL_MATRIX_F16 || w->kind == TL_MATRIX_BF16);
}

/* Nothing about the layer that tl_linear_forward would refuse. The shape comes first: it bounds
 * the products of q4_sound. */
static bool has_shape(const tl_linear *linear, size_t n_out, size_t n_in) {
    return tl_linear_n_out(linear) == n_out && tl_linear_n_in(linear) == n_in &&
           (linear->kind == TL_LINEAR_Q4 ? q4_sound(&linear->as.q4) : dense_sound(linear));
}

static bool layer_fits(const tl_llama_layer *layer, const tl_model_config *cfg) {
    const size_t d = cfg->hidden_size;
    const size_t inter = cfg->intermediate_size;
    const size_t q_width = cfg->n_heads * cfg->head_dim;
    const size_t kv_width = cfg->n_kv_heads * cfg->head_dim;
    return layer->attn_norm != NULL && layer->mlp_norm != NULL &&
           has_shape(&layer->wq, q_width, d) && has_shape(&layer->wk, kv_width, d) &&
           has_shape(&layer->wv, kv_width, d) && has_shape(&layer->wo, d, q_width) &&
           has_shape(&layer->w_gate, inter, d) && has_shape(&layer->w_up, inter, d) &&
           has_shape(&layer->w_down, d, inter);
}

/* Whether the weights are of the config's model, so that no product can fail once the step has
 * begun. */
static bool weights_fit(const tl_weights *weights, const tl_model_config *cfg) {
    if (weights->arch != cfg->arch) {
        return false;
    }
    if (cfg->arch == TL_ARCH_BIGRAM) {
        return weights->as.bigram.kind == TL_LINEAR_DENSE &&
               has_shape(&weights->as.bigram, cfg->vocab_size, cfg->vocab_size);
    }
    const tl_llama_weights *llama = &weights->as.llama;
    if (llama->n_layers != cfg->n_layers || llama->layers == NULL || llama->final_norm == NULL ||
        llama->embed.kind != TL_LINEAR_DENSE ||
        !has_shape(&llama->embed, cfg->vocab_size, cfg->hidden_size) ||
        !has_shape(&llama->lm_head, cfg->vocab_size, cfg->hidden_size)) {
        return false;
    }
    for (size_t i = 0; i < llama->n_layers; i++) {
        if (!layer_fits(&llama->layers[i], cfg)) {
            return false;
        }
    }
    return true;
}

static tl_status check_outputs(const tl_model_config *cfg, const tl_forward_batch *batch,
                               size_t n_tokens, const float *hidden, size_t hidden_len,
                               const tl_logits *logits, tl_error *err) {
    const size_t n_hidden = hidden != NULL ? n_tokens * cfg->hidden_size : 0;
    if (hidden_len != n_hidden || (hidden != NULL && n_hidden == 0)) {
        return tli_fail(err, TL_ERR_INVALID, "hidden has %zu elements, %zu tokens of %zu are due",
                        hidden_len, n_tokens, cfg->hidden_size);
    }
    if (logits->vocab != cfg->vocab_size) {
        return tli_fail(err, TL_ERR_INVALID, "logits has rows of %zu, the vocabulary has %zu",
                        logits->vocab, cfg->vocab_size);
    }
    size_t n_room = 0;
    if (logits->data == NULL || !tli_mul(logits->max_rows, logits->vocab, &n_room) ||
        logits->data_len < n_room) {
        return tli_fail(err, TL_ERR_INVALID, "logits has %zu elements for %zu rows of %zu",
                        logits->data_len, logits->max_rows, logits->vocab);
    }
    if (logits->max_rows < batch->n_seqs) {
        return tli_fail(err, TL_ERR_CAPACITY, "logits has room for %zu rows, the batch has %zu",
                        logits->max_rows, batch->n_seqs);
    }
    return TL_OK;
}

/* Where each sequence's tokens and tiles begin, and which sequence each token is of. */
static void lay_out_batch(tli_step *step) {
    tl_scratch *s = step->s;
    size_t n_tokens = 0;
    size_t n_tiles = 0;
    for (size_t i = 0; i < step->batch->n_seqs; i++) {
        const size_t n_new = step->batch->seqs[i].n_tokens;
        s->first_token[i] = n_tokens;
        s->first_tile[i] = n_tiles;
        for (size_t k = 0; k < n_new; k++) {
            s->token_seq[n_tokens + k] = (uint32_t)i; /* below max_seqs, which memory bounds */
        }
        n_tokens += n_new;
        n_tiles += tli_attention_tiles(step->cfg, n_new);
    }
    s->first_token[step->batch->n_seqs] = n_tokens;
    s->first_tile[step->batch->n_seqs] = n_tiles;
    step->n_tokens = n_tokens;
    for (size_t i = 0; i < s->limits.n_threads; i++) {
        s->errors[i].status = TL_OK;
    }
}

tl_status tl_forward(const tl_model_config *cfg, const tl_weights *weights, tl_kv_pool *pool,
                     tl_scratch *scratch, const tl_forward_batch *batch, float *hidden,
                     size_t hidden_len, tl_logits *logits, tl_error *err) {
    if (weights == NULL || logits == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "weights or logits is NULL");
    }
    TLI_TRY(tl_forward_check(cfg, pool, scratch, batch, err));
    if (!weights_fit(weights, cfg)) {
        return tli_fail(err, TL_ERR_INVALID, "the weights are not of this config");
    }
    tli_step step = {
        .cfg = cfg,
        .weights = weights,
        .pool = pool,
        .s = scratch,
        .batch = batch,
        .block_tokens = tl_kv_pool_cfg(pool)->block_tokens,
        .hidden = hidden,
        .logits = logits->data,
        .eps = (float)cfg->rms_norm_eps,
        .score_scale = (float)(1.0 / sqrt((double)cfg->head_dim)),
    };
    lay_out_batch(&step);
    TLI_TRY(check_outputs(cfg, batch, step.n_tokens, hidden, hidden_len, logits, err));
    if (cfg->arch == TL_ARCH_BIGRAM) {
        TLI_TRY(tli_bigram_forward(&step, err));
    } else {
        TLI_TRY(tli_llama_forward(&step, err));
    }
    TLI_TRY(tli_raise_fills(&step, err));
    logits->n_rows = batch->n_seqs;
    return TL_OK;
}
