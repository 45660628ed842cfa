/* forward_check.c: everything that is looked at before a step writes a byte, for the whole batch,
 * and the bookkeeping of fills after it.
 *
 * The checks go in the order of the contract's table: what is wrong with the arguments (INVALID),
 * what does not fit the scratch (CAPACITY), what is the wrong moment for the pool (STATE). Each
 * looks at the whole batch before the next begins. One mark a block makes it linear in the entries
 * of the tables.
 *
 * Source: conformance/spec/forward.md, "Checked before anything is written". */
#include <stddef.h>
#include <string.h>

#include "forward_internal.h"
#include "util.h"

/* Blocks that hold the positions 0 to n - 1. */
static size_t blocks_for(size_t n_positions, size_t block_tokens) {
    return n_positions / block_tokens + (n_positions % block_tokens != 0);
}

tli_range tli_written_blocks(const tl_forward_seq *seq, size_t block_tokens) {
    const size_t last_position = seq->start + seq->n_tokens - 1;
    return (tli_range){seq->start / block_tokens, last_position / block_tokens};
}

/* ------------------------------------------------------------------ INVALID */

static tl_status check_tokens(const tl_model_config *cfg, const tl_forward_seq *seq, size_t i_seq,
                              tl_error *err) {
    if (seq->n_tokens == 0) {
        return tli_fail(err, TL_ERR_INVALID, "sequence %zu has no new token, at least 1 is needed",
                        i_seq);
    }
    if (seq->tokens == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "sequence %zu: tokens is NULL", i_seq);
    }
    for (size_t i = 0; i < seq->n_tokens; i++) {
        const uint32_t id = seq->tokens[i];
        if (id >= cfg->vocab_size) {
            return tli_fail(err, TL_ERR_INVALID,
                            "sequence %zu: token %zu has id %u, the vocabulary has %zu", i_seq, i,
                            (unsigned)id, cfg->vocab_size);
        }
    }
    return TL_OK;
}

static tl_status check_positions(const tl_model_config *cfg, const tl_forward_seq *seq,
                                 size_t i_seq, size_t block_tokens, tl_error *err) {
    size_t n_positions = 0;
    if (!tli_add(seq->start, seq->n_tokens, &n_positions) || n_positions > cfg->max_positions) {
        return tli_fail(err, TL_ERR_INVALID,
                        "sequence %zu: %zu tokens from position %zu pass the context of %zu", i_seq,
                        seq->n_tokens, seq->start, cfg->max_positions);
    }
    const size_t n_needed = blocks_for(n_positions, block_tokens);
    if (seq->n_blocks < n_needed) {
        return tli_fail(err, TL_ERR_INVALID,
                        "sequence %zu: a table of %zu blocks does not cover position %zu, which "
                        "needs %zu",
                        i_seq, seq->n_blocks, n_positions - 1, n_needed);
    }
    if (seq->blocks == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "sequence %zu: blocks is NULL", i_seq);
    }
    return TL_OK;
}

/* Every entry is a block of the pool; the tail behind the last position too. */
static tl_status check_table_ids(const tl_forward_seq *seq, size_t i_seq, uint32_t n_blocks,
                                 tl_error *err) {
    for (size_t i = 0; i < seq->n_blocks; i++) {
        if (seq->blocks[i] >= n_blocks) {
            return tli_fail(err, TL_ERR_INVALID,
                            "sequence %zu: table entry %zu is block %u, the pool has %u", i_seq, i,
                            (unsigned)seq->blocks[i], (unsigned)n_blocks);
        }
    }
    return TL_OK;
}

/* Mark the blocks of a table and refuse one that it lists twice. */
static tl_status mark_table(tl_scratch *s, const tl_forward_seq *seq, size_t i_seq,
                            uint32_t batch_epoch, tl_error *err) {
    s->epoch++;
    for (size_t i = 0; i < seq->n_blocks; i++) {
        tli_block_mark *mark = &s->marks[seq->blocks[i]];
        if (mark->last_table == s->epoch) {
            return tli_fail(err, TL_ERR_INVALID,
                            "sequence %zu: table entry %zu lists block %u a second time", i_seq, i,
                            (unsigned)seq->blocks[i]);
        }
        const bool first_of_batch = mark->last_table <= batch_epoch;
        mark->n_tables = first_of_batch ? 1 : mark->n_tables + 1;
        mark->last_table = s->epoch;
    }
    return TL_OK;
}

static tl_status mark_tables(tl_scratch *s, const tl_forward_batch *batch, tl_error *err) {
    if (batch->n_seqs >= UINT32_MAX - s->epoch) { /* the epochs are used up: begin again */
        memset(s->marks, 0, s->limits.max_blocks * sizeof *s->marks);
        s->epoch = 0;
    }
    const uint32_t batch_epoch = s->epoch;
    for (size_t i = 0; i < batch->n_seqs; i++) {
        TLI_TRY(mark_table(s, &batch->seqs[i], i, batch_epoch, err));
    }
    return TL_OK;
}

static tl_status check_arguments(const tl_model_config *cfg, const tl_kv_pool *pool,
                                 const tl_forward_batch *batch, tl_error *err) {
    if (batch->n_seqs == 0 || batch->seqs == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "the batch has no sequence, at least 1 is needed");
    }
    const tl_kv_cfg *shape = tl_kv_pool_cfg(pool);
    for (size_t i = 0; i < batch->n_seqs; i++) {
        const tl_forward_seq *seq = &batch->seqs[i];
        TLI_TRY(check_tokens(cfg, seq, i, err));
        TLI_TRY(check_positions(cfg, seq, i, shape->block_tokens, err));
        TLI_TRY(check_table_ids(seq, i, shape->n_blocks, err));
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ CAPACITY */

static tl_status check_limits(const tl_limits *limits, const tl_kv_pool *pool,
                              const tl_forward_batch *batch, tl_error *err) {
    if (batch->n_seqs > limits->max_seqs) {
        return tli_fail(err, TL_ERR_CAPACITY, "the batch has %zu sequences, a step takes %zu",
                        batch->n_seqs, limits->max_seqs);
    }
    size_t n_left = limits->max_batch_tokens;
    for (size_t i = 0; i < batch->n_seqs; i++) {
        const tl_forward_seq *seq = &batch->seqs[i];
        if (seq->n_tokens > n_left) {
            return tli_fail(err, TL_ERR_CAPACITY,
                            "sequence %zu: its %zu tokens bring the batch past the %zu that a step "
                            "takes",
                            i, seq->n_tokens, limits->max_batch_tokens);
        }
        n_left -= seq->n_tokens;
        if (seq->start + seq->n_tokens > limits->max_context) {
            return tli_fail(err, TL_ERR_CAPACITY,
                            "sequence %zu: %zu tokens from position %zu pass the scratch's context "
                            "of %zu",
                            i, seq->n_tokens, seq->start, limits->max_context);
        }
    }
    const uint32_t n_blocks = tl_kv_pool_cfg(pool)->n_blocks;
    if (n_blocks > limits->max_blocks) {
        return tli_fail(err, TL_ERR_CAPACITY, "the pool has %u blocks, the scratch takes %u",
                        (unsigned)n_blocks, (unsigned)limits->max_blocks);
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ STATE */

static tl_status check_pool_shape(const tl_model_config *cfg, const tl_kv_pool *pool,
                                  tl_error *err) {
    const tl_kv_cfg *shape = tl_kv_pool_cfg(pool);
    if (shape->n_layers != cfg->n_layers || shape->n_kv_heads != cfg->n_kv_heads ||
        shape->head_dim != cfg->head_dim) {
        return tli_fail(err, TL_ERR_STATE,
                        "the pool is made for %u layers, %u KV heads, head_dim %u; the model has "
                        "%zu, %zu, %zu",
                        (unsigned)shape->n_layers, (unsigned)shape->n_kv_heads,
                        (unsigned)shape->head_dim, cfg->n_layers, cfg->n_kv_heads, cfg->head_dim);
    }
    return TL_OK;
}

/* Positions of block i_block of a table that lie before `start`, so that they must be filled. */
static size_t positions_before(size_t start, size_t i_block, size_t block_tokens) {
    const size_t first_position = i_block * block_tokens;
    if (start <= first_position) {
        return 0;
    }
    const size_t n_before = start - first_position;
    return n_before < block_tokens ? n_before : block_tokens;
}

static tl_status check_written_block(const tl_scratch *s, const tl_kv_block_info *info, uint32_t id,
                                     size_t i_seq, tl_error *err) {
    if (info->n_refs != 1) {
        return tli_fail(err, TL_ERR_STATE,
                        "sequence %zu: block %u would be written and has %u holders", i_seq,
                        (unsigned)id, (unsigned)info->n_refs);
    }
    if (info->registered) {
        return tli_fail(err, TL_ERR_STATE,
                        "sequence %zu: block %u would be written and is a registered prefix", i_seq,
                        (unsigned)id);
    }
    if (s->marks[id].n_tables != 1) {
        return tli_fail(err, TL_ERR_STATE,
                        "sequence %zu: block %u would be written and another sequence lists it",
                        i_seq, (unsigned)id);
    }
    return TL_OK;
}

static tl_status check_blocks(const tl_scratch *s, const tl_kv_pool *pool,
                              const tl_forward_seq *seq, size_t i_seq, tl_error *err) {
    const size_t block_tokens = tl_kv_pool_cfg(pool)->block_tokens;
    const tli_range written = tli_written_blocks(seq, block_tokens);
    for (size_t i = 0; i < seq->n_blocks; i++) {
        const uint32_t id = seq->blocks[i];
        tl_kv_block_info info;
        TLI_TRY(tl_kv_pool_block_info(pool, id, &info, err));
        if (info.n_refs == 0) {
            return tli_fail(err, TL_ERR_STATE,
                            "sequence %zu: table entry %zu lists block %u, which is not used",
                            i_seq, i, (unsigned)id);
        }
        const size_t n_before = positions_before(seq->start, i, block_tokens);
        if (info.n_filled < n_before) {
            return tli_fail(err, TL_ERR_STATE,
                            "sequence %zu: it starts at position %zu, but position %zu was never "
                            "filled",
                            i_seq, seq->start, i * block_tokens + info.n_filled);
        }
        if (i >= written.begin && i <= written.end) {
            TLI_TRY(check_written_block(s, &info, id, i_seq, err));
        }
    }
    return TL_OK;
}

/* Every field of a config: what a scratch was made for is the whole config, so that no field has to
 * be weighed when one is added. test_forward_check.c changes each byte of a config in turn. */
#define FIELD(name)                                                                                \
    { offsetof(tl_model_config, name), sizeof((tl_model_config *)0)->name }
static const struct {
    size_t at, size;
} config_fields[] = {
    FIELD(arch),
    FIELD(tokenizer),
    FIELD(vocab_size),
    FIELD(hidden_size),
    FIELD(intermediate_size),
    FIELD(n_layers),
    FIELD(n_heads),
    FIELD(n_kv_heads),
    FIELD(head_dim),
    FIELD(max_positions),
    FIELD(rope_theta),
    FIELD(rms_norm_eps),
    FIELD(tie_word_embeddings),
    FIELD(eos_token_ids),
    FIELD(n_eos_token_ids),
};

/* Field by field, since the bytes between them may be anything. */
static bool same_config(const tl_model_config *a, const tl_model_config *b) {
    bool same = true;
    for (size_t i = 0; i < sizeof config_fields / sizeof *config_fields; i++) {
        const size_t at = config_fields[i].at;
        same =
            same && memcmp((const char *)a + at, (const char *)b + at, config_fields[i].size) == 0;
    }
    return same;
}

tl_status tl_forward_check(const tl_model_config *cfg, const tl_kv_pool *pool, tl_scratch *scratch,
                           const tl_forward_batch *batch, tl_error *err) {
    if (cfg == NULL || pool == NULL || scratch == NULL || batch == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "cfg, pool, scratch or batch is NULL");
    }
    if (!same_config(cfg, &scratch->cfg)) {
        return tli_fail(err, TL_ERR_INVALID, "the scratch was made for another config");
    }
    TLI_TRY(check_arguments(cfg, pool, batch, err));
    /* A block listed twice is INVALID and comes before CAPACITY; only a pool that this scratch has
     * no marks for is refused without looking. */
    const bool has_marks = tl_kv_pool_cfg(pool)->n_blocks <= scratch->limits.max_blocks;
    TLI_TRY(has_marks ? mark_tables(scratch, batch, err) : TL_OK);
    TLI_TRY(check_limits(&scratch->limits, pool, batch, err));
    TLI_TRY(check_pool_shape(cfg, pool, err));
    for (size_t i = 0; i < batch->n_seqs; i++) {
        TLI_TRY(check_blocks(scratch, pool, &batch->seqs[i], i, err));
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ fills */

/* A block behind the last new position holds what an earlier, longer run of the sequence left
 * there; once this step has rewound, that belongs to no text any more. Shared and keyed ones are
 * somebody else's too. */
static tl_status forget_block(const tli_step *step, uint32_t id, tl_error *err) {
    tl_kv_block_info info;
    TLI_TRY(tl_kv_pool_block_info(step->pool, id, &info, err));
    const bool alone = info.n_refs == 1 && step->s->marks[id].n_tables == 1;
    if (!alone || info.registered || info.n_filled == 0) {
        return TL_OK;
    }
    return tl_kv_pool_set_fill(step->pool, id, 0, err);
}

static tl_status raise_fills_of(const tli_step *step, const tl_forward_seq *seq, tl_error *err) {
    const size_t block_tokens = step->block_tokens;
    const size_t last_position = seq->start + seq->n_tokens - 1;
    const tli_range written = tli_written_blocks(seq, block_tokens);
    for (size_t i = written.begin; i < written.end; i++) {
        TLI_TRY(tl_kv_pool_set_fill(step->pool, seq->blocks[i], (uint32_t)block_tokens, err));
    }
    const size_t last_fill = last_position % block_tokens + 1;
    TLI_TRY(tl_kv_pool_set_fill(step->pool, seq->blocks[written.end], (uint32_t)last_fill, err));
    for (size_t i = written.end + 1; i < seq->n_blocks; i++) {
        TLI_TRY(forget_block(step, seq->blocks[i], err));
    }
    return TL_OK;
}

tl_status tli_raise_fills(const tli_step *step, tl_error *err) {
    for (size_t i = 0; i < step->batch->n_seqs; i++) {
        TLI_TRY(raise_fills_of(step, &step->batch->seqs[i], err));
    }
    return TL_OK;
}
