/* forward_attn.c: attention over f16 blocks where they lie.
 *
 * The unit of work is a tile: some consecutive new positions of one sequence, times some query
 * heads of one KV head. Its rows share a walk over the keys: 24 at a time are widened to f32
 * (exact) and multiplied with every row that sees them; softmax; then the same walk over the
 * values. A row only ever takes in the keys that it sees, in their order, so the bits are those of
 * one row alone with one key after the other.
 *
 * Source: conformance/spec/forward.md, clause attention. */
#include <string.h>

#include "forward_internal.h"
#include "ops_attn.h"
#include "util.h"

/* ------------------------------------------------------------------ which key is whose */

/* Keys that the i_new-th new token of a sequence sees: all up to its own position, which counts
 * from the start of the sequence and not from the start of the step. */
static size_t visible_keys(const tl_forward_seq *seq, size_t i_new) {
    const size_t query_offset = seq->start;
    return query_offset + i_new + 1;
}

/* The i-th query head that reads a KV head: head h reads KV head h / (H / H_kv). */
static size_t query_head(const tl_model_config *cfg, size_t kv_head, size_t i) {
    const size_t n_group = cfg->n_heads / cfg->n_kv_heads;
    return kv_head * n_group + i;
}

/* ------------------------------------------------------------------ tiles */

typedef struct tile {
    const tl_forward_seq *seq;
    size_t first_row; /* of the batch: row of the sequence's first new token */
    size_t kv_head;
    size_t first_head, n_heads; /* of the KV head's query heads */
    size_t first_new, n_new;    /* of the sequence's new tokens */
    size_t n_keys;              /* that the last of them sees */
    tli_attn_room *room;
} tile;

static size_t ceil_div(size_t a, size_t b) {
    return a / b + (a % b != 0);
}

/* Query heads a tile has: those of one KV head, but at most TLI_ATTN_HEADS. */
static size_t heads_a_tile(const tl_model_config *cfg) {
    const size_t n_group = cfg->n_heads / cfg->n_kv_heads;
    return n_group < TLI_ATTN_HEADS ? n_group : TLI_ATTN_HEADS;
}

static size_t positions_a_tile(const tl_model_config *cfg) {
    return TLI_ATTN_ROWS / heads_a_tile(cfg);
}

/* Tiles along the heads: KV heads times the tiles of one. */
static size_t head_tiles(const tl_model_config *cfg) {
    const size_t n_group = cfg->n_heads / cfg->n_kv_heads;
    return cfg->n_kv_heads * ceil_div(n_group, heads_a_tile(cfg));
}

size_t tli_attention_tiles(const tl_model_config *cfg, size_t n_tokens) {
    return head_tiles(cfg) * ceil_div(n_tokens, positions_a_tile(cfg));
}

/* The sequence that has the tile: the last whose first tile is not behind it. */
static size_t sequence_of_tile(const tli_step *step, size_t i_tile) {
    size_t low = 0;
    size_t high = step->batch->n_seqs;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (step->s->first_tile[middle] <= i_tile) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static tile tile_at(const tli_step *step, size_t i_tile, size_t worker) {
    const tl_model_config *cfg = step->cfg;
    const size_t i_seq = sequence_of_tile(step, i_tile);
    const tl_forward_seq *seq = &step->batch->seqs[i_seq];
    const size_t n_group = cfg->n_heads / cfg->n_kv_heads;
    const size_t n_head_tiles = head_tiles(cfg);
    const size_t tiles_a_group = n_head_tiles / cfg->n_kv_heads;
    const size_t in_seq = i_tile - step->s->first_tile[i_seq];
    const size_t i_head_tile = in_seq % n_head_tiles;
    const size_t n_position_tiles = ceil_div(seq->n_tokens, positions_a_tile(cfg));
    /* Later positions see more keys; they come first, so that the end of the stage is made of small
     * pieces. */
    const size_t i_position_tile = n_position_tiles - 1 - in_seq / n_head_tiles;
    const size_t first_head = i_head_tile % tiles_a_group * heads_a_tile(cfg);
    const size_t first_new = i_position_tile * positions_a_tile(cfg);
    const size_t heads_left = n_group - first_head;
    const size_t new_left = seq->n_tokens - first_new;
    tile t = {
        .seq = seq,
        .first_row = step->s->first_token[i_seq],
        .kv_head = i_head_tile / tiles_a_group,
        .first_head = first_head,
        .n_heads = heads_left < heads_a_tile(cfg) ? heads_left : heads_a_tile(cfg),
        .first_new = first_new,
        .n_new = new_left < positions_a_tile(cfg) ? new_left : positions_a_tile(cfg),
        .room = &step->s->attn[worker],
    };
    t.n_keys = visible_keys(seq, t.first_new + t.n_new - 1);
    return t;
}

/* Where row (i_new, i_head) of a tile is in q and o [N, H, D]. */
static size_t row_offset(const tli_step *step, const tile *t, size_t i_new, size_t i_head) {
    const tl_model_config *cfg = step->cfg;
    const size_t row = t->first_row + t->first_new + i_new;
    const size_t head = query_head(cfg, t->kv_head, t->first_head + i_head);
    return (row * cfg->n_heads + head) * cfg->head_dim;
}

/* ------------------------------------------------------------------ the walk over keys and
 * values */

/* Widen n keys (or values) of the tile's KV head, from position `first` on, wherever their blocks
 * are. */
static void widen_positions(const tli_step *step, const tile *t, tl_kv_side side, size_t first,
                            size_t n, const tl_work *work) {
    const size_t block_tokens = step->block_tokens;
    const size_t head_dim = step->cfg->head_dim;
    size_t n_here = 0;
    for (size_t i = 0; i < n; i += n_here) {
        const size_t position = first + i;
        const size_t slot = position % block_tokens;
        const tli_block_slabs *slabs = &step->s->slabs[t->seq->blocks[position / block_tokens]];
        const uint16_t *slab = side == TL_KV_K ? slabs->k : slabs->v;
        const size_t in_block = block_tokens - slot;
        n_here = n - i < in_block ? n - i : in_block;
        const uint16_t *src = slab + (t->kv_head * block_tokens + slot) * head_dim;
        tl_ops_f16_widen(work, src, n_here * head_dim, t->room->kv + i * head_dim);
    }
}

/* The first of the tile's positions that sees key `key`, so that earlier ones need not look. */
static size_t first_to_see(const tile *t, size_t key) {
    size_t i = 0;
    while (i < t->n_new && visible_keys(t->seq, t->first_new + i) <= key) {
        i++;
    }
    return i;
}

static void score_keys(const tli_step *step, const tile *t, const tl_work *work) {
    const size_t head_dim = step->cfg->head_dim;
    const size_t stride = step->s->score_stride;
    size_t n = 0;
    for (size_t key = 0; key < t->n_keys; key += n) {
        n = t->n_keys - key < TLI_ATTN_KEYS ? t->n_keys - key : TLI_ATTN_KEYS;
        widen_positions(step, t, TL_KV_K, key, n, work);
        /* Rows that see some of these keys score all of them; what a row does not see is not
         * used. */
        const size_t row = first_to_see(t, key) * t->n_heads;
        const size_t n_rows = t->n_new * t->n_heads - row;
        tli_ops_scores(work, t->room->q + row * head_dim, n_rows, t->room->kv, n, head_dim,
                       step->score_scale, t->room->scores + row * stride + key, stride);
    }
}

/* Go on with the chains of the rows of one position that sees only the first of n values. */
static void add_seen_values(const tli_step *step, const tile *t, size_t i_new, size_t key, size_t n,
                            const tl_work *work) {
    const size_t head_dim = step->cfg->head_dim;
    const size_t stride = step->s->score_stride;
    const size_t n_left = visible_keys(t->seq, t->first_new + i_new) - key;
    const size_t n_seen = n_left < n ? n_left : n;
    const size_t row = i_new * t->n_heads;
    tli_ops_values(work, t->room->scores + row * stride + key, stride, t->n_heads, t->room->kv,
                   n_seen, head_dim, t->room->o + row * head_dim);
}

static void sum_values(const tli_step *step, const tile *t, const tl_work *work) {
    const size_t head_dim = step->cfg->head_dim;
    const size_t stride = step->s->score_stride;
    size_t n = 0;
    memset(t->room->o, 0, t->n_new * t->n_heads * head_dim * sizeof(float));
    for (size_t key = 0; key < t->n_keys; key += n) {
        n = t->n_keys - key < TLI_ATTN_KEYS ? t->n_keys - key : TLI_ATTN_KEYS;
        widen_positions(step, t, TL_KV_V, key, n, work);
        const size_t see_some = first_to_see(t, key);
        const size_t see_all = first_to_see(t, key + n - 1);
        for (size_t i = see_some; i < see_all; i++) {
            add_seen_values(step, t, i, key, n, work);
        }
        const size_t row = see_all * t->n_heads;
        const size_t n_rows = t->n_new * t->n_heads - row;
        tli_ops_values(work, t->room->scores + row * stride + key, stride, n_rows, t->room->kv, n,
                       head_dim, t->room->o + row * head_dim);
    }
}

/* ------------------------------------------------------------------ a tile */

static void gather_queries(const tli_step *step, const tile *t) {
    const size_t head_dim = step->cfg->head_dim;
    for (size_t i = 0; i < t->n_new; i++) {
        for (size_t head = 0; head < t->n_heads; head++) {
            memcpy(t->room->q + (i * t->n_heads + head) * head_dim,
                   step->s->q + row_offset(step, t, i, head), head_dim * sizeof(float));
        }
    }
}

/* e_j = exp(s_j - max) over the keys that the row sees; the sum goes where the row's first unseen
 * score would be, which nobody reads (the stride has room for it). */
static void softmax_rows(const tli_step *step, const tile *t, const tl_work *work) {
    const size_t stride = step->s->score_stride;
    for (size_t i = 0; i < t->n_new; i++) {
        const size_t n_seen = visible_keys(t->seq, t->first_new + i);
        for (size_t head = 0; head < t->n_heads; head++) {
            float *scores = t->room->scores + (i * t->n_heads + head) * stride;
            scores[n_seen] = tl_ops_softmax_exp(work, scores, n_seen);
        }
    }
}

static void divide_and_scatter(const tli_step *step, const tile *t, const tl_work *work) {
    const size_t head_dim = step->cfg->head_dim;
    const size_t stride = step->s->score_stride;
    for (size_t i = 0; i < t->n_new; i++) {
        const size_t n_seen = visible_keys(t->seq, t->first_new + i);
        for (size_t head = 0; head < t->n_heads; head++) {
            const size_t row = i * t->n_heads + head;
            const float z = t->room->scores[row * stride + n_seen];
            tli_ops_divide(work, t->room->o + row * head_dim, z, head_dim,
                           step->s->o + row_offset(step, t, i, head));
        }
    }
}

static void attention_piece(void *ctx, size_t worker, size_t piece) {
    const tli_step *step = ctx;
    const tl_work *work = step->s->works[worker];
    const tli_range tiles = tli_piece_range(step, piece);
    for (size_t i = tiles.begin; i < tiles.end; i++) {
        const tile t = tile_at(step, i, worker);
        gather_queries(step, &t);
        score_keys(step, &t, work);
        softmax_rows(step, &t, work);
        sum_values(step, &t, work);
        divide_and_scatter(step, &t, work);
    }
}

/* ------------------------------------------------------------------ slabs, and the stage */

static tl_status check_slab_len(const tli_step *step, size_t slab_len, tl_error *err) {
    const size_t n_due = step->cfg->n_kv_heads * step->block_tokens * step->cfg->head_dim;
    if (slab_len != n_due) {
        return tli_fail(err, TL_ERR_INTERNAL, "a slab has %zu elements, %zu are due", slab_len,
                        n_due);
    }
    return TL_OK;
}

static tl_status find_written(const tli_step *step, uint32_t id, tli_block_slabs *slabs,
                              tl_error *err) {
    size_t k_len = 0;
    size_t v_len = 0;
    TLI_TRY(tl_kv_pool_slab_mut(step->pool, id, step->layer_index, TL_KV_K, &slabs->k_mut, &k_len,
                                err));
    TLI_TRY(tl_kv_pool_slab_mut(step->pool, id, step->layer_index, TL_KV_V, &slabs->v_mut, &v_len,
                                err));
    TLI_TRY(check_slab_len(step, k_len, err));
    TLI_TRY(check_slab_len(step, v_len, err));
    slabs->k = slabs->k_mut;
    slabs->v = slabs->v_mut;
    return TL_OK;
}

static tl_status find_read(const tli_step *step, uint32_t id, tli_block_slabs *slabs,
                           tl_error *err) {
    size_t k_len = 0;
    size_t v_len = 0;
    TLI_TRY(tl_kv_pool_slab(step->pool, id, step->layer_index, TL_KV_K, &slabs->k, &k_len, err));
    TLI_TRY(tl_kv_pool_slab(step->pool, id, step->layer_index, TL_KV_V, &slabs->v, &v_len, err));
    slabs->k_mut = NULL;
    slabs->v_mut = NULL;
    TLI_TRY(check_slab_len(step, k_len, err));
    return check_slab_len(step, v_len, err);
}

tl_status tli_find_slabs(tli_step *step, tl_error *err) {
    step->s->lookup++;
    for (size_t i = 0; i < step->batch->n_seqs; i++) {
        const tl_forward_seq *seq = &step->batch->seqs[i];
        const tli_range written = tli_written_blocks(seq, step->block_tokens);
        for (size_t b = 0; b <= written.end; b++) {
            const uint32_t id = seq->blocks[b];
            tli_block_slabs *slabs = &step->s->slabs[id];
            if (slabs->lookup == step->s->lookup) {
                continue; /* a prefix that another sequence of the batch reads too */
            }
            slabs->lookup = step->s->lookup;
            if (b >= written.begin) {
                TLI_TRY(find_written(step, id, slabs, err));
            } else {
                TLI_TRY(find_read(step, id, slabs, err));
            }
        }
    }
    return TL_OK;
}

tl_status tli_attention(tli_step *step, tl_error *err) {
    const size_t n_tiles = step->s->first_tile[step->batch->n_seqs];
    size_t n_pairs = 0; /* of query row and key, an estimate for cutting the stage */
    for (size_t i = 0; i < step->batch->n_seqs; i++) {
        const tl_forward_seq *seq = &step->batch->seqs[i];
        n_pairs += seq->n_tokens * (seq->start + seq->n_tokens) * step->cfg->n_heads;
    }
    const size_t cost = 2 * step->cfg->head_dim * (n_pairs / n_tiles + 1);
    return tli_run_stage(step, attention_piece, n_tiles, 1, cost, err);
}
