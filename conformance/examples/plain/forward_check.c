/* forward_check.c: everything that must hold before a step writes its first byte.
 *
 * One function for each row of the table, in its order: first whatever is INVALID anywhere in
 * the batch, then CAPACITY, then STATE.
 *
 * Source: conformance/spec/forward.md (forward#checks). */
#include "forward_plain.h"
#include "util.h"

/* What every row looks at. */
typedef struct call {
    const tl_model_config *cfg;
    const tl_kv_pool *pool;
    const tl_kv_cfg *kv;
    const tl_limits *limits;
    const tl_forward_batch *batch;
    tl_error *err;
} call;

/* One sequence of the batch. */
typedef tl_status row(const call *c, size_t s, const tl_forward_seq *seq);

static tl_status each(const call *c, row *check) {
    for (size_t s = 0; s < c->batch->n_seqs; s++) {
        TLI_TRY(check(c, s, &c->batch->seqs[s]));
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ INVALID */

static tl_status check_tokens(const call *c, size_t s, const tl_forward_seq *seq) {
    if (seq->n_tokens == 0 || seq->tokens == NULL || (seq->blocks == NULL && seq->n_blocks > 0)) {
        return tli_fail(c->err, TL_ERR_INVALID,
                        "sequence %zu has no tokens, or tokens or blocks is NULL", s);
    }
    return TL_OK;
}

static tl_status check_ids(const call *c, size_t s, const tl_forward_seq *seq) {
    for (size_t i = 0; i < seq->n_tokens; i++) {
        if (seq->tokens[i] >= c->cfg->vocab_size) {
            return tli_fail(c->err, TL_ERR_INVALID,
                            "sequence %zu: token %zu is %lu, ids below %zu are allowed", s, i,
                            (unsigned long)seq->tokens[i], c->cfg->vocab_size);
        }
    }
    return TL_OK;
}

static tl_status check_context(const call *c, size_t s, const tl_forward_seq *seq) {
    const size_t most = c->cfg->max_positions;
    if (seq->start > most || seq->n_tokens > most - seq->start) {
        return tli_fail(c->err, TL_ERR_INVALID,
                        "sequence %zu: %zu tokens from position %zu, the model has %zu positions",
                        s, seq->n_tokens, seq->start, most);
    }
    return TL_OK;
}

static tl_status check_table(const call *c, size_t s, const tl_forward_seq *seq) {
    const size_t last = seq->start + seq->n_tokens - 1;
    if (last / c->kv->block_tokens >= seq->n_blocks) {
        return tli_fail(c->err, TL_ERR_INVALID,
                        "sequence %zu: %zu blocks of %lu positions do not reach position %zu", s,
                        seq->n_blocks, (unsigned long)c->kv->block_tokens, last);
    }
    for (size_t i = 0; i < seq->n_blocks; i++) {
        const unsigned long id = seq->blocks[i];
        if (id >= c->kv->n_blocks) {
            return tli_fail(c->err, TL_ERR_INVALID,
                            "sequence %zu lists block %lu, the pool has %lu", s, id,
                            (unsigned long)c->kv->n_blocks);
        }
        for (size_t j = 0; j < i; j++) {
            if (seq->blocks[j] == id) {
                return tli_fail(c->err, TL_ERR_INVALID, "sequence %zu lists block %lu twice", s,
                                id);
            }
        }
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ CAPACITY */

static tl_status check_limits(const call *c) {
    const tl_limits *limits = c->limits;
    size_t n_tokens = 0;
    if (c->batch->n_seqs > limits->max_seqs) {
        return tli_fail(c->err, TL_ERR_CAPACITY,
                        "%zu sequences, sequence %zu is past the limit of %zu", c->batch->n_seqs,
                        limits->max_seqs, limits->max_seqs);
    }
    for (size_t s = 0; s < c->batch->n_seqs; s++) {
        const tl_forward_seq *seq = &c->batch->seqs[s];
        if (seq->n_tokens > limits->max_batch_tokens - n_tokens) {
            return tli_fail(c->err, TL_ERR_CAPACITY,
                            "with sequence %zu the step has more than %zu new tokens", s,
                            limits->max_batch_tokens);
        }
        n_tokens += seq->n_tokens;
        if (seq->start + seq->n_tokens > limits->max_context) {
            return tli_fail(c->err, TL_ERR_CAPACITY,
                            "sequence %zu ends at position %zu, the limit is %zu", s,
                            seq->start + seq->n_tokens, limits->max_context);
        }
    }
    if (c->kv->n_blocks > limits->max_blocks) {
        return tli_fail(c->err, TL_ERR_CAPACITY, "the pool has %lu blocks, the limit is %lu",
                        (unsigned long)c->kv->n_blocks, (unsigned long)limits->max_blocks);
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ STATE */

static tl_status check_used(const call *c, size_t s, const tl_forward_seq *seq) {
    for (size_t i = 0; i < seq->n_blocks; i++) {
        tl_kv_block_info info;
        TLI_TRY(tl_kv_pool_block_info(c->pool, seq->blocks[i], &info, c->err));
        if (info.n_refs == 0) {
            return tli_fail(c->err, TL_ERR_STATE, "sequence %zu lists block %lu, which is not used",
                            s, (unsigned long)seq->blocks[i]);
        }
    }
    return TL_OK;
}

/* Every position before the first new one is filled. */
static tl_status check_filled(const call *c, size_t s, const tl_forward_seq *seq) {
    const size_t per_block = c->kv->block_tokens;
    for (size_t i = 0; i * per_block < seq->start; i++) {
        const size_t left = seq->start - i * per_block;
        const size_t needed = left < per_block ? left : per_block;
        tl_kv_block_info info;
        TLI_TRY(tl_kv_pool_block_info(c->pool, seq->blocks[i], &info, c->err));
        if (info.n_filled < needed) {
            return tli_fail(c->err, TL_ERR_STATE,
                            "sequence %zu starts at position %zu, but "
                            "position %zu was never filled",
                            s, seq->start, i * per_block + info.n_filled);
        }
    }
    return TL_OK;
}

static bool lists(const tl_forward_seq *seq, uint32_t id) {
    for (size_t i = 0; i < seq->n_blocks; i++) {
        if (seq->blocks[i] == id) {
            return true;
        }
    }
    return false;
}

/* A block that is written belongs to this sequence alone. */
static tl_status check_target(const call *c, size_t s, const tl_forward_seq *seq) {
    const size_t last = seq->start + seq->n_tokens - 1;
    for (size_t i = seq->start / c->kv->block_tokens; i <= last / c->kv->block_tokens; i++) {
        const uint32_t id = seq->blocks[i];
        tl_kv_block_info info;
        TLI_TRY(tl_kv_pool_block_info(c->pool, id, &info, c->err));
        if (info.n_refs != 1 || info.registered) {
            return tli_fail(c->err, TL_ERR_STATE,
                            "sequence %zu would write to block %lu, which has %s", s,
                            (unsigned long)id, info.registered ? "a key" : "other holders");
        }
        for (size_t other = 0; other < c->batch->n_seqs; other++) {
            if (other != s && lists(&c->batch->seqs[other], id)) {
                return tli_fail(c->err, TL_ERR_STATE,
                                "sequence %zu would write to block %lu, "
                                "which sequence %zu lists too",
                                s, (unsigned long)id, other);
            }
        }
    }
    return TL_OK;
}

static tl_status check_pool(const call *c) {
    const tl_model_config *cfg = c->cfg;
    if (c->kv->n_layers != cfg->n_layers || c->kv->n_kv_heads != cfg->n_kv_heads ||
        c->kv->head_dim != cfg->head_dim) {
        return tli_fail(c->err, TL_ERR_STATE,
                        "the pool has %lu layers, %lu KV heads and head_dim "
                        "%lu, the model %zu, %zu and %zu",
                        (unsigned long)c->kv->n_layers, (unsigned long)c->kv->n_kv_heads,
                        (unsigned long)c->kv->head_dim, cfg->n_layers, cfg->n_kv_heads,
                        cfg->head_dim);
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ all of them */

static bool same_model(const tl_model_config *a, const tl_model_config *b) {
    return a->arch == b->arch && a->vocab_size == b->vocab_size &&
           a->hidden_size == b->hidden_size && a->intermediate_size == b->intermediate_size &&
           a->n_heads == b->n_heads && a->n_kv_heads == b->n_kv_heads && a->head_dim == b->head_dim;
}

tl_status tl_forward_check(const tl_model_config *cfg, const tl_kv_pool *pool, tl_scratch *scratch,
                           const tl_forward_batch *batch, tl_error *err) {
    if (cfg == NULL || pool == NULL || scratch == NULL || batch == NULL || batch->n_seqs == 0 ||
        batch->seqs == NULL) {
        return tli_fail(err, TL_ERR_INVALID,
                        "there is no sequence, or cfg, pool, scratch or batch is NULL");
    }
    if (!same_model(cfg, &scratch->cfg)) {
        return tli_fail(err, TL_ERR_INVALID, "the scratch was made for another model");
    }
    const call c = {cfg, pool, tl_kv_pool_cfg(pool), &scratch->limits, batch, err};
    TLI_TRY(each(&c, check_tokens));
    TLI_TRY(each(&c, check_ids));
    TLI_TRY(each(&c, check_context));
    TLI_TRY(each(&c, check_table));
    TLI_TRY(check_limits(&c));
    TLI_TRY(each(&c, check_used));
    TLI_TRY(each(&c, check_filled));
    TLI_TRY(each(&c, check_target));
    return check_pool(&c);
}
