/* kv.c: the life of a block, by looking at all of them.
 *
 * Nothing here is fast: a look-up compares every key, an allocation walks over the pool, the
 * numbers are counted when somebody asks. In return nothing can get out of step, since there is
 * one place for each fact.
 *
 * Source: conformance/spec/kv-block.md. */
#include "tl/kv.h"

#include <stdlib.h>
#include <string.h>

#include "kv_plain.h"
#include "util.h"

/* ------------------------------------------------------------------ making a pool */

static tl_status check_cfg(const tl_kv_cfg *cfg, tl_error *err) {
    const uint32_t sizes[] = {cfg->n_blocks, cfg->block_tokens, cfg->n_layers, cfg->n_kv_heads,
                              cfg->head_dim};
    const char *const names[] = {"n_blocks", "block_tokens", "n_layers", "n_kv_heads", "head_dim"};
    for (size_t i = 0; i < 5; i++) {
        if (sizes[i] == 0) {
            return tli_fail(err, TL_ERR_INVALID, "%s is 0, at least 1 is needed", names[i]);
        }
    }
    if (cfg->dtype != TL_KV_DTYPE_F16) {
        return tli_fail(err, TL_ERR_INVALID, "dtype is %ld, 1 (f16) is allowed", (long)cfg->dtype);
    }
    if (cfg->format != TL_KV_FORMAT_V1) {
        return tli_fail(err, TL_ERR_INVALID, "format is %lu, 1 is allowed",
                        (unsigned long)cfg->format);
    }
    if (cfg->prefix_cache != TL_PREFIX_CACHE_OFF && cfg->prefix_cache != TL_PREFIX_CACHE_ON) {
        return tli_fail(err, TL_ERR_INVALID, "prefix_cache is %d, 0 or 1 is allowed",
                        (int)cfg->prefix_cache);
    }
    return TL_OK;
}

tl_status tl_kv_pool_new(tl_kv_pool **out, const tl_kv_cfg *cfg, tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    if (cfg == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "cfg is NULL");
    }
    TLI_TRY(check_cfg(cfg, err));
    size_t slab_len;
    size_t n_slabs;
    size_t n_elements;
    size_t n_bytes;
    if (!tli_mul(cfg->n_kv_heads, cfg->block_tokens, &slab_len) ||
        !tli_mul(slab_len, cfg->head_dim, &slab_len) ||
        !tli_mul(cfg->n_blocks, cfg->n_layers, &n_slabs) || !tli_mul(n_slabs, 2, &n_slabs) ||
        !tli_mul(n_slabs, slab_len, &n_elements) || !tli_mul(n_elements, 2, &n_bytes)) {
        return tli_fail(err, TL_ERR_NOMEM, "the size of the pool overflows");
    }
    tl_kv_pool *pool = tli_calloc(1, sizeof *pool);
    if (pool == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a pool");
    }
    pool->cfg = *cfg;
    pool->slab_len = slab_len;
    pool->blocks = tli_calloc(cfg->n_blocks, sizeof *pool->blocks);
    pool->slabs = tli_calloc(n_elements, sizeof *pool->slabs);
    if (pool->blocks == NULL || pool->slabs == NULL) {
        tl_kv_pool_free(pool);
        return tli_fail(err, TL_ERR_NOMEM, "no memory for slabs of %zu bytes", n_bytes);
    }
    *out = pool;
    return TL_OK;
}

void tl_kv_pool_free(tl_kv_pool *pool) {
    if (pool != NULL) {
        free(pool->blocks);
        free(pool->slabs);
        free(pool);
    }
}

/* ------------------------------------------------------------------ questions */

static tl_status check_id(const tl_kv_pool *pool, uint32_t id, tl_error *err) {
    if (pool == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "pool is NULL");
    }
    if (id >= pool->cfg.n_blocks) {
        return tli_fail(err, TL_ERR_INVALID, "block %lu, but the pool has %lu blocks",
                        (unsigned long)id, (unsigned long)pool->cfg.n_blocks);
    }
    return TL_OK;
}

tl_status plain_kv_used(const tl_kv_pool *pool, uint32_t id, tl_error *err) {
    TLI_TRY(check_id(pool, id, err));
    if (pool->blocks[id].n_refs == 0) {
        return tli_fail(err, TL_ERR_STATE, "block %lu is not used", (unsigned long)id);
    }
    return TL_OK;
}

uint32_t plain_kv_find(const tl_kv_pool *pool, const tl_prefix_key *key) {
    uint32_t id = 0;
    while (id < pool->cfg.n_blocks &&
           !(pool->blocks[id].has_key && memcmp(&pool->blocks[id].key, key, sizeof *key) == 0)) {
        id++;
    }
    return id;
}

tl_status tl_kv_pool_block_info(const tl_kv_pool *pool, uint32_t id, tl_kv_block_info *info,
                                tl_error *err) {
    TLI_TRY(check_id(pool, id, err));
    if (info == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "info is NULL");
    }
    const plain_block *b = &pool->blocks[id];
    *info = (tl_kv_block_info){
        .n_refs = b->n_refs, .n_filled = b->n_filled, .registered = b->has_key, .key = b->key};
    return TL_OK;
}

const tl_kv_cfg *tl_kv_pool_cfg(const tl_kv_pool *pool) {
    return pool == NULL ? NULL : &pool->cfg;
}

tl_kv_stats tl_kv_pool_stats(const tl_kv_pool *pool) {
    tl_kv_stats stats = {0};
    for (uint32_t id = 0; pool != NULL && id < pool->cfg.n_blocks; id++) {
        const plain_block *b = &pool->blocks[id];
        if (b->n_refs > 0) {
            stats.n_used++;
        } else if (b->has_key) {
            stats.n_cached++;
        } else {
            stats.n_free++;
        }
    }
    return stats;
}

/* ------------------------------------------------------------------ taking and giving back */

/* A block without references and key if there is one, at or after *from; else the cached one that
 * was released first. The caller knows that there is one of the two. */
static uint32_t next_block(const tl_kv_pool *pool, uint32_t *from) {
    while (*from < pool->cfg.n_blocks) {
        const plain_block *b = &pool->blocks[*from];
        if (b->n_refs == 0 && !b->has_key) {
            return (*from)++;
        }
        (*from)++;
    }
    uint32_t oldest = pool->cfg.n_blocks;
    for (uint32_t id = 0; id < pool->cfg.n_blocks; id++) {
        const plain_block *b = &pool->blocks[id];
        const bool cached = b->n_refs == 0 && b->has_key;
        if (cached &&
            (oldest == pool->cfg.n_blocks || b->released < pool->blocks[oldest].released)) {
            oldest = id;
        }
    }
    return oldest;
}

tl_status tl_kv_pool_alloc(tl_kv_pool *pool, uint32_t *ids, size_t n_ids, tl_error *err) {
    if (pool == NULL || (ids == NULL && n_ids > 0)) {
        return tli_fail(err, TL_ERR_INVALID, "pool or ids is NULL");
    }
    const tl_kv_stats stats = tl_kv_pool_stats(pool);
    if (n_ids > stats.n_free + stats.n_cached) {
        return tli_fail(err, TL_ERR_CAPACITY,
                        "%zu blocks are asked for, %lu are free and %lu cached", n_ids,
                        (unsigned long)stats.n_free, (unsigned long)stats.n_cached);
    }
    uint32_t from = 0;
    for (size_t i = 0; i < n_ids; i++) {
        ids[i] = next_block(pool, &from);
        pool->blocks[ids[i]] = (plain_block){.n_refs = 1};
    }
    return TL_OK;
}

static tl_status add_reference(tl_kv_pool *pool, uint32_t id, tl_error *err) {
    if (pool->blocks[id].n_refs == TL_KV_REFS_MAX) {
        return tli_fail(err, TL_ERR_STATE, "block %lu has %u references, which is the most",
                        (unsigned long)id, TL_KV_REFS_MAX);
    }
    pool->blocks[id].n_refs++;
    return TL_OK;
}

tl_status tl_kv_pool_retain(tl_kv_pool *pool, uint32_t id, tl_error *err) {
    TLI_TRY(plain_kv_used(pool, id, err));
    return add_reference(pool, id, err);
}

tl_status tl_kv_pool_release(tl_kv_pool *pool, uint32_t id, tl_error *err) {
    TLI_TRY(plain_kv_used(pool, id, err));
    pool->blocks[id].n_refs--;
    if (pool->blocks[id].n_refs == 0) {
        pool->clock++;
        pool->blocks[id].released = pool->clock;
        if (!pool->blocks[id].has_key) {
            pool->blocks[id].n_filled = 0;
        }
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ fills, keys, slabs */

tl_status tl_kv_pool_set_fill(tl_kv_pool *pool, uint32_t id, uint32_t n_filled, tl_error *err) {
    TLI_TRY(plain_kv_used(pool, id, err));
    const uint32_t most = pool->cfg.block_tokens;
    if (n_filled > most) {
        return tli_fail(err, TL_ERR_INVALID, "a fill of %lu, a block has %lu positions",
                        (unsigned long)n_filled, (unsigned long)most);
    }
    if (pool->blocks[id].has_key && n_filled < most) {
        return tli_fail(err, TL_ERR_STATE,
                        "a fill of %lu for block %lu, which has a key and stays full",
                        (unsigned long)n_filled, (unsigned long)id);
    }
    pool->blocks[id].n_filled = n_filled;
    return TL_OK;
}

tl_status tl_kv_pool_register(tl_kv_pool *pool, uint32_t id, const tl_prefix_key *key,
                              tl_error *err) {
    TLI_TRY(plain_kv_used(pool, id, err));
    if (key == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "key is NULL");
    }
    plain_block *b = &pool->blocks[id];
    if (pool->cfg.prefix_cache == TL_PREFIX_CACHE_OFF) {
        return tli_fail(err, TL_ERR_STATE, "prefix caching is off");
    }
    if (b->n_filled < pool->cfg.block_tokens) {
        return tli_fail(err, TL_ERR_STATE, "block %lu has %lu of %lu positions, a key needs all",
                        (unsigned long)id, (unsigned long)b->n_filled,
                        (unsigned long)pool->cfg.block_tokens);
    }
    if (b->has_key && memcmp(&b->key, key, sizeof *key) != 0) {
        return tli_fail(err, TL_ERR_STATE, "block %lu has another key", (unsigned long)id);
    }
    if (plain_kv_find(pool, key) == pool->cfg.n_blocks) {
        b->has_key = true;
        b->key = *key;
    }
    return TL_OK;
}

tl_status tl_kv_pool_lookup(tl_kv_pool *pool, const tl_prefix_key *key, uint32_t *id,
                            tl_error *err) {
    if (pool == NULL || key == NULL || id == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "pool, key or id is NULL");
    }
    const uint32_t found = plain_kv_find(pool, key);
    if (found == pool->cfg.n_blocks) {
        return tli_fail(err, TL_ERR_NOT_FOUND, "no block has this key");
    }
    TLI_TRY(add_reference(pool, found, err));
    *id = found;
    return TL_OK;
}

uint16_t *plain_kv_slab(const tl_kv_pool *pool, uint32_t id, uint32_t layer, uint32_t side) {
    const size_t slab = ((size_t)id * pool->cfg.n_layers + layer) * 2 + side;
    return pool->slabs + slab * pool->slab_len;
}

tl_status tl_kv_pool_slab(const tl_kv_pool *pool, uint32_t id, uint32_t layer, tl_kv_side side,
                          const uint16_t **slab, size_t *slab_len, tl_error *err) {
    TLI_TRY(plain_kv_used(pool, id, err));
    if (layer >= pool->cfg.n_layers || (side != TL_KV_K && side != TL_KV_V)) {
        return tli_fail(err, TL_ERR_INVALID, "layer %lu of %lu, side %d of 0 (K) and 1 (V)",
                        (unsigned long)layer, (unsigned long)pool->cfg.n_layers, (int)side);
    }
    if (slab == NULL || slab_len == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "slab or slab_len is NULL");
    }
    *slab = plain_kv_slab(pool, id, layer, (uint32_t)side);
    *slab_len = pool->slab_len;
    return TL_OK;
}

tl_status tl_kv_pool_slab_mut(tl_kv_pool *pool, uint32_t id, uint32_t layer, tl_kv_side side,
                              uint16_t **slab, size_t *slab_len, tl_error *err) {
    const uint16_t *same = NULL;
    TLI_TRY(tl_kv_pool_slab(pool, id, layer, side, slab == NULL ? NULL : &same, slab_len, err));
    *slab = plain_kv_slab(pool, id, layer, (uint32_t)side);
    return TL_OK;
}
