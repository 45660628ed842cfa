/* forward_llama.c: the Llama step, one function a stage, in the order of the page.
 *
 *   x = embedding rows
 *   each layer:  h = norm(x); q, k, v = h W^T; rope; k, v to the pool as f16; attention; x += o
 * Wo^T
 *                h = norm(x); x += (silu(h Wg^T) * (h Wu^T)) Wd^T
 *   logits = norm(last rows of x) W_head^T
 *
 * Every stage is a loop over pieces that the workers take; see forward_stage.c. Products go through
 * tl_linear_forward alone. Symbols are the page's: N tokens of the batch, d, H, H_kv, D, B.
 *
 * Source: conformance/spec/forward.md, Llama. */
#include <string.h>

#include "forward_internal.h"
#include "util.h"

/* A product of many rows works on blocks of 48 rows of W (ops.c); a product of one goes 4 by 4. */
#define ROW_UNIT_MANY ((size_t)48)
#define ROW_UNIT_ONE ((size_t)4)

/* ------------------------------------------------------------------ linears */

/* y [m, n_out] = x [m, n_in] W^T, columns [begin, end) of it. False: it failed and was reported. */
static bool linear_rows(tli_step *step, size_t worker, const tl_linear *w, tli_range rows,
                        const float *x, size_t m, float *y) {
    tl_error err = {0};
    const size_t x_len = m * tl_linear_n_in(w);
    const size_t y_len = m * tl_linear_n_out(w);
    const tl_status status = tl_linear_forward(w, rows.begin, rows.end, x, x_len, m, y, y_len,
                                               step->s->works[worker], &err);
    if (status != TL_OK) {
        tli_stage_failed(step, worker, status, &err);
    }
    return status == TL_OK;
}

/* Run a stage over n_rows rows of weights of length n_in, each times m rows of activations. */
static tl_status run_rows(tli_step *step, tli_piece_fn *fn, size_t n_rows, size_t n_in, size_t m,
                          tl_error *err) {
    const size_t n_threads = step->s->limits.n_threads;
    size_t unit = m == 1 ? ROW_UNIT_ONE : ROW_UNIT_MANY;
    while (unit > 12 && n_rows / unit < 3 * n_threads) {
        unit /= 2; /* narrower blocks, but work for every thread */
    }
    return tli_run_stage(step, fn, n_rows, unit, n_in * m, err);
}

/* The part of `rows` that lies in [first, first + n), counted from first. */
static tli_range overlap(tli_range rows, size_t first, size_t n) {
    const size_t begin = rows.begin > first ? rows.begin - first : 0;
    const size_t end = rows.end > first ? rows.end - first : 0;
    return (tli_range){begin < n ? begin : n, end < n ? end : n};
}

/* x += t in the columns of a range: each sum is rounded once, as fma(1, t, x) is. */
static void add_to_residual(tli_step *step, size_t worker, tli_range columns) {
    const tl_scratch *s = step->s;
    const size_t d = step->cfg->hidden_size;
    for (size_t i = 0; i < step->n_tokens; i++) {
        const size_t at = i * d + columns.begin;
        tl_ops_axpy(s->works[worker], 1.0f, s->t + at, columns.end - columns.begin, s->x + at);
    }
}

/* ------------------------------------------------------------------ before the layers */

static void embed_piece(void *ctx, size_t worker, size_t piece) {
    tli_step *step = ctx;
    const tl_scratch *s = step->s;
    const tl_matrix *table = &step->weights->as.llama.embed.as.dense;
    const tli_range tokens = tli_piece_range(step, piece);
    for (size_t i = tokens.begin; i < tokens.end; i++) {
        const uint32_t i_seq = s->token_seq[i];
        const uint32_t id = step->batch->seqs[i_seq].tokens[i - s->first_token[i_seq]];
        tl_ops_widen_row(s->works[worker], table, id, s->x + i * step->cfg->hidden_size);
    }
}

/* The position that RoPE turns the i_new-th new token of a sequence by: the absolute one, so that a
 * key does not depend on the step that wrote it. */
static size_t rope_position(const tl_forward_seq *seq, size_t i_new) {
    return seq->start + i_new;
}

/* cos and sin for every token, once for all layers. */
static void angles_piece(void *ctx, size_t worker, size_t piece) {
    (void)worker;
    tli_step *step = ctx;
    const tl_scratch *s = step->s;
    const size_t half = step->cfg->head_dim / 2;
    const tli_range tokens = tli_piece_range(step, piece);
    for (size_t i = tokens.begin; i < tokens.end; i++) {
        const uint32_t i_seq = s->token_seq[i];
        const size_t i_new = i - s->first_token[i_seq];
        const size_t position = rope_position(&step->batch->seqs[i_seq], i_new);
        tl_ops_rope_angles(position, s->inv_freq, half, s->cos + i * half, s->sin + i * half);
    }
}

/* ------------------------------------------------------------------ attention's half of a layer */

static void norm_rows(tli_step *step, size_t worker, size_t piece, const float *weight) {
    const tl_scratch *s = step->s;
    const size_t d = step->cfg->hidden_size;
    const tli_range tokens = tli_piece_range(step, piece);
    for (size_t i = tokens.begin; i < tokens.end; i++) {
        tl_ops_rmsnorm(s->works[worker], s->x + i * d, weight, d, step->eps, s->h + i * d);
    }
}

static void attn_norm_piece(void *ctx, size_t worker, size_t piece) {
    tli_step *step = ctx;
    norm_rows(step, worker, piece, step->layer->attn_norm);
}

/* The rows of Wq, Wk and Wv one after another are one range that is cut into pieces. */
static void qkv_piece(void *ctx, size_t worker, size_t piece) {
    tli_step *step = ctx;
    const tl_scratch *s = step->s;
    const tl_llama_layer *layer = step->layer;
    const size_t q_width = step->cfg->n_heads * step->cfg->head_dim;
    const size_t kv_width = step->cfg->n_kv_heads * step->cfg->head_dim;
    const tli_range rows = tli_piece_range(step, piece);
    const tli_range q_rows = overlap(rows, 0, q_width);
    const tli_range k_rows = overlap(rows, q_width, kv_width);
    const tli_range v_rows = overlap(rows, q_width + kv_width, kv_width);
    const size_t m = step->n_tokens;
    if (!linear_rows(step, worker, &layer->wq, q_rows, s->h, m, s->q) ||
        !linear_rows(step, worker, &layer->wk, k_rows, s->h, m, s->k)) {
        return;
    }
    (void)linear_rows(step, worker, &layer->wv, v_rows, s->h, m, s->v);
}

/* Rotate every head of a token's q and k. */
static void rotate_token(const tli_step *step, size_t worker, size_t i) {
    const tl_scratch *s = step->s;
    const tl_model_config *cfg = step->cfg;
    const size_t half = cfg->head_dim / 2;
    const float *c = s->cos + i * half;
    const float *sine = s->sin + i * half;
    for (size_t head = 0; head < cfg->n_heads; head++) {
        float *q = s->q + (i * cfg->n_heads + head) * cfg->head_dim;
        tl_ops_rope(s->works[worker], q, half, c, sine);
    }
    for (size_t head = 0; head < cfg->n_kv_heads; head++) {
        float *k = s->k + (i * cfg->n_kv_heads + head) * cfg->head_dim;
        tl_ops_rope(s->works[worker], k, half, c, sine);
    }
}

/* Round a token's k and v to f16 into the slot of its absolute position. */
static void store_token(const tli_step *step, size_t worker, size_t i) {
    const tl_scratch *s = step->s;
    const size_t n_kv_heads = step->cfg->n_kv_heads;
    const size_t head_dim = step->cfg->head_dim;
    const uint32_t i_seq = s->token_seq[i];
    const tl_forward_seq *seq = &step->batch->seqs[i_seq];
    const size_t position = seq->start + i - s->first_token[i_seq];
    const size_t slot = position % step->block_tokens;
    const tli_block_slabs *slabs = &s->slabs[seq->blocks[position / step->block_tokens]];
    for (size_t head = 0; head < n_kv_heads; head++) {
        const size_t at = (head * step->block_tokens + slot) * head_dim;
        const size_t from = (i * n_kv_heads + head) * head_dim;
        uint16_t *k_slab = slabs->k_mut;
        uint16_t *v_slab = slabs->v_mut;
        tl_ops_f16_round(s->works[worker], s->k + from, head_dim, k_slab + at);
        tl_ops_f16_round(s->works[worker], s->v + from, head_dim, v_slab + at);
    }
}

static void rope_and_store_piece(void *ctx, size_t worker, size_t piece) {
    const tli_step *step = ctx;
    const tli_range tokens = tli_piece_range(step, piece);
    for (size_t i = tokens.begin; i < tokens.end; i++) {
        rotate_token(step, worker, i);
        store_token(step, worker, i);
    }
}

static void attn_out_piece(void *ctx, size_t worker, size_t piece) {
    tli_step *step = ctx;
    const tl_scratch *s = step->s;
    const tli_range rows = tli_piece_range(step, piece);
    if (linear_rows(step, worker, &step->layer->wo, rows, s->o, step->n_tokens, s->t)) {
        add_to_residual(step, worker, rows);
    }
}

static tl_status attention_half(tli_step *step, tl_error *err) {
    const tl_model_config *cfg = step->cfg;
    const size_t d = cfg->hidden_size;
    const size_t q_width = cfg->n_heads * cfg->head_dim;
    const size_t kv_width = cfg->n_kv_heads * cfg->head_dim;
    const size_t n = step->n_tokens;
    TLI_TRY(tli_find_slabs(step, err));
    TLI_TRY(tli_run_stage(step, attn_norm_piece, n, 1, d, err));
    TLI_TRY(run_rows(step, qkv_piece, q_width + 2 * kv_width, d, n, err));
    TLI_TRY(tli_run_stage(step, rope_and_store_piece, n, 1, q_width + 2 * kv_width, err));
    TLI_TRY(tli_attention(step, err));
    return run_rows(step, attn_out_piece, d, q_width, n, err);
}

/* ------------------------------------------------------------------ the MLP's half of a layer */

static void mlp_norm_piece(void *ctx, size_t worker, size_t piece) {
    tli_step *step = ctx;
    norm_rows(step, worker, piece, step->layer->mlp_norm);
}

/* gate = silu(gate) * up for one token's columns of a range. */
static void activate(const tli_step *step, size_t worker, size_t i, tli_range columns) {
    const tl_scratch *s = step->s;
    const size_t at = i * step->cfg->intermediate_size + columns.begin;
    const size_t n = columns.end - columns.begin;
    float *gate = s->gate + at;
    const float *up = s->up + at;
    tl_ops_silu_mul(s->works[worker], gate, up, n, gate);
}

static void gate_up_piece(void *ctx, size_t worker, size_t piece) {
    tli_step *step = ctx;
    const tl_scratch *s = step->s;
    const tli_range rows = tli_piece_range(step, piece);
    if (!linear_rows(step, worker, &step->layer->w_gate, rows, s->h, step->n_tokens, s->gate) ||
        !linear_rows(step, worker, &step->layer->w_up, rows, s->h, step->n_tokens, s->up)) {
        return;
    }
    for (size_t i = 0; i < step->n_tokens; i++) {
        activate(step, worker, i, rows);
    }
}

static void down_piece(void *ctx, size_t worker, size_t piece) {
    tli_step *step = ctx;
    const tl_scratch *s = step->s;
    const tli_range rows = tli_piece_range(step, piece);
    if (linear_rows(step, worker, &step->layer->w_down, rows, s->gate, step->n_tokens, s->t)) {
        add_to_residual(step, worker, rows);
    }
}

static tl_status mlp_half(tli_step *step, tl_error *err) {
    const size_t d = step->cfg->hidden_size;
    const size_t inter = step->cfg->intermediate_size;
    const size_t n = step->n_tokens;
    TLI_TRY(tli_run_stage(step, mlp_norm_piece, n, 1, d, err));
    TLI_TRY(run_rows(step, gate_up_piece, inter, 2 * d, n, err));
    return run_rows(step, down_piece, d, inter, n, err);
}

/* ------------------------------------------------------------------ after the layers */

/* One row through the final norm. */
static void final_norm(const tli_step *step, size_t worker, const float *x, float *y) {
    const float *weight = step->weights->as.llama.final_norm;
    const size_t d = step->cfg->hidden_size;
    tl_ops_rmsnorm(step->s->works[worker], x, weight, d, step->eps, y);
}

/* Every token's row, for a caller who wants them. */
static void hidden_piece(void *ctx, size_t worker, size_t piece) {
    const tli_step *step = ctx;
    const size_t d = step->cfg->hidden_size;
    const tli_range tokens = tli_piece_range(step, piece);
    for (size_t i = tokens.begin; i < tokens.end; i++) {
        final_norm(step, worker, step->s->x + i * d, step->hidden + i * d);
    }
}

/* The row of each sequence's last token. */
static void last_rows(const tli_step *step) {
    const tl_scratch *s = step->s;
    const size_t d = step->cfg->hidden_size;
    for (size_t i = 0; i < step->batch->n_seqs; i++) {
        const size_t last = s->first_token[i + 1] - 1;
        final_norm(step, 0, s->x + last * d, s->last + i * d);
    }
}

static void head_piece(void *ctx, size_t worker, size_t piece) {
    tli_step *step = ctx;
    const tli_range rows = tli_piece_range(step, piece);
    const tl_linear *head = &step->weights->as.llama.lm_head;
    (void)linear_rows(step, worker, head, rows, step->s->last, step->batch->n_seqs, step->logits);
}

static tl_status run_layer(tli_step *step, size_t i_layer, tl_error *err) {
    step->layer = &step->weights->as.llama.layers[i_layer];
    step->layer_index = (uint32_t)i_layer;
    TLI_TRY(attention_half(step, err));
    return mlp_half(step, err);
}

tl_status tli_llama_forward(tli_step *step, tl_error *err) {
    const tl_model_config *cfg = step->cfg;
    const size_t n = step->n_tokens;
    TLI_TRY(tli_run_stage(step, embed_piece, n, 1, cfg->hidden_size, err));
    /* A sine costs about as much as 32 multiply-adds. */
    TLI_TRY(tli_run_stage(step, angles_piece, n, 1, 32 * cfg->head_dim, err));
    for (size_t i = 0; i < cfg->n_layers; i++) {
        TLI_TRY(run_layer(step, i, err));
    }
    if (step->hidden != NULL) {
        TLI_TRY(tli_run_stage(step, hidden_piece, n, 1, cfg->hidden_size, err));
    }
    last_rows(step);
    return run_rows(step, head_piece, cfg->vocab_size, cfg->hidden_size, step->batch->n_seqs, err);
}
