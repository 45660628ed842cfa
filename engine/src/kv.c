/* kv.c: the life of the pool's blocks: free, used, cached; references; the prefix index;
 * eviction.
 *
 * What holds between any two calls: a block is in exactly one state, and the three counts sum to
 * n_blocks; the free list holds the free blocks, the cached list the cached ones by the time of
 * their last release, the index the registered ones, used or cached, under one key each. No call
 * takes memory but tl_kv_pool_new, none takes a lock, and each checks everything before it
 * changes anything.
 *
 * Source: conformance/spec/kv-block.md. */
#include "kv_internal.h"

#include <stdlib.h>
#include <string.h>

#include "util.h"

/* ---- making and freeing ---------------------------------------------------------------------- */

static tl_status check_at_least_one(const char *name, uint32_t value, tl_error *err) {
    if (value == 0) {
        return tli_fail(err, TL_ERR_INVALID, "kv pool: %s is 0, must be at least 1", name);
    }
    return TL_OK;
}

static tl_status check_cfg(const tl_kv_cfg *cfg, tl_error *err) {
    TLI_TRY(check_at_least_one("n_blocks", cfg->n_blocks, err));
    TLI_TRY(check_at_least_one("block_tokens", cfg->block_tokens, err));
    TLI_TRY(check_at_least_one("n_layers", cfg->n_layers, err));
    TLI_TRY(check_at_least_one("n_kv_heads", cfg->n_kv_heads, err));
    TLI_TRY(check_at_least_one("head_dim", cfg->head_dim, err));
    if (cfg->dtype != TL_KV_DTYPE_F16) {
        return tli_fail(err, TL_ERR_INVALID, "kv pool: dtype is %ld, must be %d (f16)",
                        (long)cfg->dtype, TL_KV_DTYPE_F16);
    }
    if (cfg->format != TL_KV_FORMAT_V1) {
        return tli_fail(err, TL_ERR_INVALID, "kv pool: format is %lu, must be %u",
                        (unsigned long)cfg->format, TL_KV_FORMAT_V1);
    }
    if (cfg->prefix_cache != TL_PREFIX_CACHE_OFF && cfg->prefix_cache != TL_PREFIX_CACHE_ON) {
        return tli_fail(err, TL_ERR_INVALID, "kv pool: prefix_cache is %d, must be 0 or 1",
                        (int)cfg->prefix_cache);
    }
    return TL_OK;
}

/* False when a size overflows, that of all slabs in bytes included. */
static bool measure(tl_kv_pool *pool) {
    const tl_kv_cfg *cfg = &pool->cfg;
    size_t n_slabs = 0;
    size_t n_bytes = 0;
    pool->n_slots = 1;
    while (pool->n_slots < cfg->n_blocks) {
        if (!tli_mul(pool->n_slots, 2, &pool->n_slots)) {
            return false;
        }
    }
    return tli_mul(cfg->n_kv_heads, cfg->block_tokens, &pool->slab_len) &&
           tli_mul(pool->slab_len, cfg->head_dim, &pool->slab_len) &&
           tli_mul(cfg->n_layers, 2, &n_slabs) &&
           tli_mul(n_slabs, pool->slab_len, &pool->block_len) &&
           tli_mul(pool->block_len, cfg->n_blocks, &n_bytes) &&
           tli_mul(n_bytes, sizeof *pool->slabs, &n_bytes);
}

static bool take_memory(tl_kv_pool *pool) {
    if (!measure(pool)) {
        return false;
    }
    pool->slabs = tli_calloc(pool->block_len * pool->cfg.n_blocks, sizeof *pool->slabs);
    pool->blocks = tli_calloc(pool->cfg.n_blocks, sizeof *pool->blocks);
    pool->slots = tli_calloc(pool->n_slots, sizeof *pool->slots);
    return pool->slabs != NULL && pool->blocks != NULL && pool->slots != NULL;
}

static void push_free(tl_kv_pool *pool, uint32_t id);

/* All blocks free, the lowest id on top. */
static void fill_lists(tl_kv_pool *pool) {
    for (size_t i = 0; i < pool->n_slots; i++) {
        pool->slots[i] = TLI_KV_NONE;
    }
    pool->oldest_cached = TLI_KV_NONE;
    pool->newest_cached = TLI_KV_NONE;
    pool->first_free = TLI_KV_NONE;
    for (uint32_t id = pool->cfg.n_blocks; id > 0; id--) {
        push_free(pool, id - 1);
    }
}

tl_status tl_kv_pool_new(tl_kv_pool **out, const tl_kv_cfg *cfg, tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "kv pool: out is NULL");
    }
    *out = NULL;
    if (cfg == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "kv pool: cfg is NULL");
    }
    TLI_TRY(check_cfg(cfg, err));
    tl_kv_pool *pool = tli_calloc(1, sizeof *pool);
    if (pool != NULL) {
        pool->cfg = *cfg;
    }
    if (pool == NULL || !take_memory(pool)) {
        tl_kv_pool_free(pool);
        return tli_fail(err, TL_ERR_NOMEM,
                        "kv pool: no memory for %lu blocks of %lu layers x 2 x %lu heads x %lu "
                        "positions x %lu f16 values",
                        (unsigned long)cfg->n_blocks, (unsigned long)cfg->n_layers,
                        (unsigned long)cfg->n_kv_heads, (unsigned long)cfg->block_tokens,
                        (unsigned long)cfg->head_dim);
    }
    fill_lists(pool);
    *out = pool;
    return TL_OK;
}

void tl_kv_pool_free(tl_kv_pool *pool) {
    if (pool == NULL) {
        return;
    }
    free(pool->slabs);
    free(pool->blocks);
    free(pool->slots);
    free(pool);
}

/* ---- the lists ------------------------------------------------------------------------------- */

static void push_free(tl_kv_pool *pool, uint32_t id) {
    tli_kv_block *block = &pool->blocks[id];
    TLI_ASSERT(block->n_refs == 0 && !block->registered);
    block->n_filled = 0;
    block->next = pool->first_free;
    pool->first_free = id;
    pool->stats.n_free++;
}

static uint32_t pop_free(tl_kv_pool *pool) {
    const uint32_t id = pool->first_free;
    TLI_ASSERT(id != TLI_KV_NONE);
    pool->first_free = pool->blocks[id].next;
    pool->stats.n_free--;
    return id;
}

/* As the most recent one. */
static void push_cached(tl_kv_pool *pool, uint32_t id) {
    tli_kv_block *block = &pool->blocks[id];
    TLI_ASSERT(block->n_refs == 0 && block->registered);
    block->prev = pool->newest_cached;
    block->next = TLI_KV_NONE;
    if (block->prev == TLI_KV_NONE) {
        pool->oldest_cached = id;
    } else {
        pool->blocks[block->prev].next = id;
    }
    pool->newest_cached = id;
    pool->stats.n_cached++;
}

static void remove_cached(tl_kv_pool *pool, uint32_t id) {
    const tli_kv_block *block = &pool->blocks[id];
    TLI_ASSERT(block->n_refs == 0 && block->registered);
    if (block->prev == TLI_KV_NONE) {
        pool->oldest_cached = block->next;
    } else {
        pool->blocks[block->prev].next = block->next;
    }
    if (block->next == TLI_KV_NONE) {
        pool->newest_cached = block->prev;
    } else {
        pool->blocks[block->next].prev = block->prev;
    }
    pool->stats.n_cached--;
}

/* ---- the prefix index ------------------------------------------------------------------------ */

/* Keys may be anything, counters for example: every bit of both halves must reach the low bits. */
static size_t slot_of(const tl_kv_pool *pool, const tl_prefix_key *key) {
    const uint64_t low = tli_load_u64(key->bytes);
    const uint64_t high = tli_load_u64(key->bytes + 8);
    uint64_t h = (low ^ (low >> 32)) * UINT64_C(0xBF58476D1CE4E5B9);
    h = (h ^ (h >> 29)) + high;
    h = (h ^ (h >> 32)) * UINT64_C(0x94D049BB133111EB);
    h ^= h >> 32;
    return (size_t)(h & (pool->n_slots - 1));
}

static bool same_key(const tl_prefix_key *a, const tl_prefix_key *b) {
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

uint32_t tli_kv_find(const tl_kv_pool *pool, const tl_prefix_key *key) {
    uint32_t id = pool->slots[slot_of(pool, key)];
    while (id != TLI_KV_NONE && !same_key(&pool->blocks[id].key, key)) {
        id = pool->blocks[id].chain_next;
    }
    return id;
}

void tli_kv_enter(tl_kv_pool *pool, uint32_t id, const tl_prefix_key *key) {
    tli_kv_block *block = &pool->blocks[id];
    TLI_ASSERT(block->n_refs != 0 && !block->registered);
    TLI_ASSERT(tli_kv_find(pool, key) == TLI_KV_NONE);
    uint32_t *slot = &pool->slots[slot_of(pool, key)];
    block->key = *key;
    block->registered = true;
    block->chain_next = *slot;
    *slot = id;
}

static void leave_index(tl_kv_pool *pool, uint32_t id) {
    tli_kv_block *block = &pool->blocks[id];
    TLI_ASSERT(block->registered);
    uint32_t *link = &pool->slots[slot_of(pool, &block->key)];
    while (*link != id) {
        link = &pool->blocks[*link].chain_next;
    }
    *link = block->chain_next;
    block->registered = false;
    block->key = (tl_prefix_key){{0}};
}

/* ---- references ------------------------------------------------------------------------------ */

tl_status tli_kv_check_id(const tl_kv_pool *pool, uint32_t id, const char *call, tl_error *err) {
    if (pool == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "kv %s: the pool is NULL", call);
    }
    if (id >= pool->cfg.n_blocks) {
        return tli_fail(err, TL_ERR_INVALID, "kv %s: block %lu, the pool has %lu", call,
                        (unsigned long)id, (unsigned long)pool->cfg.n_blocks);
    }
    return TL_OK;
}

static tl_status check_used(const tl_kv_pool *pool, uint32_t id, const char *call, tl_error *err) {
    const tli_kv_block *block = &pool->blocks[id];
    if (block->n_refs == 0) {
        return tli_fail(err, TL_ERR_STATE, "kv %s: block %lu is %s, must be used", call,
                        (unsigned long)id, block->registered ? "cached" : "free");
    }
    return TL_OK;
}

static tl_status check_refs(const tl_kv_pool *pool, uint32_t id, const char *call, tl_error *err) {
    if (pool->blocks[id].n_refs >= TL_KV_REFS_MAX) {
        return tli_fail(err, TL_ERR_STATE, "kv %s: block %lu has %u references, the most there are",
                        call, (unsigned long)id, TL_KV_REFS_MAX);
    }
    return TL_OK;
}

static uint32_t evict_oldest(tl_kv_pool *pool) {
    const uint32_t id = pool->oldest_cached;
    TLI_ASSERT(id != TLI_KV_NONE);
    remove_cached(pool, id);
    leave_index(pool, id);
    return id;
}

uint32_t tli_kv_take(tl_kv_pool *pool) {
    const uint32_t id = pool->stats.n_free != 0 ? pop_free(pool) : evict_oldest(pool);
    tli_kv_block *block = &pool->blocks[id];
    block->n_refs = 1;
    block->n_filled = 0;
    pool->stats.n_used++;
    return id;
}

tl_status tl_kv_pool_alloc(tl_kv_pool *pool, uint32_t *ids, size_t n_ids, tl_error *err) {
    if (pool == NULL || (ids == NULL && n_ids != 0)) {
        return tli_fail(err, TL_ERR_INVALID, "kv alloc: %s is NULL",
                        pool == NULL ? "the pool" : "ids");
    }
    const size_t n_available = (size_t)pool->stats.n_free + pool->stats.n_cached;
    if (n_ids > n_available) {
        return tli_fail(err, TL_ERR_CAPACITY,
                        "kv alloc: %zu blocks wanted, %lu are free and %lu cached", n_ids,
                        (unsigned long)pool->stats.n_free, (unsigned long)pool->stats.n_cached);
    }
    for (size_t i = 0; i < n_ids; i++) {
        ids[i] = tli_kv_take(pool);
    }
    return TL_OK;
}

tl_status tl_kv_pool_retain(tl_kv_pool *pool, uint32_t id, tl_error *err) {
    TLI_TRY(tli_kv_check_id(pool, id, "retain", err));
    TLI_TRY(check_used(pool, id, "retain", err));
    TLI_TRY(check_refs(pool, id, "retain", err));
    pool->blocks[id].n_refs++;
    return TL_OK;
}

tl_status tl_kv_pool_release(tl_kv_pool *pool, uint32_t id, tl_error *err) {
    TLI_TRY(tli_kv_check_id(pool, id, "release", err));
    TLI_TRY(check_used(pool, id, "release", err));
    tli_kv_block *block = &pool->blocks[id];
    block->n_refs--;
    if (block->n_refs != 0) {
        return TL_OK;
    }
    pool->stats.n_used--;
    if (block->registered) {
        push_cached(pool, id);
    } else {
        push_free(pool, id);
    }
    return TL_OK;
}

tl_status tl_kv_pool_set_fill(tl_kv_pool *pool, uint32_t id, uint32_t n_filled, tl_error *err) {
    TLI_TRY(tli_kv_check_id(pool, id, "set_fill", err));
    TLI_TRY(check_used(pool, id, "set_fill", err));
    if (n_filled > pool->cfg.block_tokens) {
        return tli_fail(err, TL_ERR_INVALID, "kv set_fill: %lu positions, a block has %lu",
                        (unsigned long)n_filled, (unsigned long)pool->cfg.block_tokens);
    }
    tli_kv_block *block = &pool->blocks[id];
    if (block->registered && n_filled < pool->cfg.block_tokens) {
        return tli_fail(err, TL_ERR_STATE,
                        "kv set_fill: %lu positions for block %lu, which is registered and full",
                        (unsigned long)n_filled, (unsigned long)id);
    }
    block->n_filled = n_filled;
    return TL_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static tl_status check_registrable(const tl_kv_pool *pool, uint32_t id, const tl_prefix_key *key,
                                   tl_error *err) {
    if (pool->cfg.prefix_cache == TL_PREFIX_CACHE_OFF) {
        return tli_fail(err, TL_ERR_STATE, "kv register: prefix caching is off in this pool");
    }
    TLI_TRY(check_used(pool, id, "register", err));
    const tli_kv_block *block = &pool->blocks[id];
    if (block->n_filled < pool->cfg.block_tokens) {
        return tli_fail(err, TL_ERR_STATE, "kv register: block %lu has %lu of %lu positions filled",
                        (unsigned long)id, (unsigned long)block->n_filled,
                        (unsigned long)pool->cfg.block_tokens);
    }
    if (block->registered && !same_key(&block->key, key)) {
        return tli_fail(err, TL_ERR_STATE, "kv register: block %lu has another key",
                        (unsigned long)id);
    }
    return TL_OK;
}

tl_status tl_kv_pool_register(tl_kv_pool *pool, uint32_t id, const tl_prefix_key *key,
                              tl_error *err) {
    TLI_TRY(tli_kv_check_id(pool, id, "register", err));
    if (key == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "kv register: key is NULL");
    }
    TLI_TRY(check_registrable(pool, id, key, err));
    /* The key's first block, this one perhaps, keeps it. */
    const uint32_t holder = tli_kv_find(pool, key);
    if (holder == TLI_KV_NONE) {
        tli_kv_enter(pool, id, key);
    }
    return TL_OK;
}

tl_status tl_kv_pool_lookup(tl_kv_pool *pool, const tl_prefix_key *key, uint32_t *id,
                            tl_error *err) {
    if (pool == NULL || key == NULL || id == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "kv lookup: %s is NULL",
                        pool == NULL  ? "the pool"
                        : key == NULL ? "key"
                                      : "id");
    }
    if (pool->cfg.prefix_cache == TL_PREFIX_CACHE_OFF) {
        return tli_fail(err, TL_ERR_NOT_FOUND, "kv lookup: prefix caching is off in this pool");
    }
    const uint32_t found = tli_kv_find(pool, key);
    if (found == TLI_KV_NONE) {
        return tli_fail(err, TL_ERR_NOT_FOUND, "kv lookup: no block has this key");
    }
    TLI_TRY(check_refs(pool, found, "lookup", err));
    tli_kv_block *block = &pool->blocks[found];
    if (block->n_refs == 0) {
        remove_cached(pool, found);
        pool->stats.n_used++;
    }
    block->n_refs++;
    *id = found;
    return TL_OK;
}

/* ---- slabs ----------------------------------------------------------------------------------- */

uint16_t *tli_kv_slab_at(const tl_kv_pool *pool, uint32_t id, uint32_t layer, tl_kv_side side) {
    const size_t i_slab = (size_t)layer * 2 + (side == TL_KV_V ? 1 : 0);
    return pool->slabs + (size_t)id * pool->block_len + i_slab * pool->slab_len;
}

static tl_status check_slab(const tl_kv_pool *pool, uint32_t id, uint32_t layer, tl_kv_side side,
                            const void *slab, const size_t *slab_len, tl_error *err) {
    TLI_TRY(tli_kv_check_id(pool, id, "slab", err));
    TLI_TRY(check_used(pool, id, "slab", err));
    if (slab == NULL || slab_len == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "kv slab: %s is NULL",
                        slab == NULL ? "slab" : "slab_len");
    }
    if (layer >= pool->cfg.n_layers) {
        return tli_fail(err, TL_ERR_INVALID, "kv slab: layer %lu, the pool has %lu",
                        (unsigned long)layer, (unsigned long)pool->cfg.n_layers);
    }
    if (side != TL_KV_K && side != TL_KV_V) {
        return tli_fail(err, TL_ERR_INVALID, "kv slab: side is %d, must be 0 (K) or 1 (V)",
                        (int)side);
    }
    return TL_OK;
}

tl_status tl_kv_pool_slab(const tl_kv_pool *pool, uint32_t id, uint32_t layer, tl_kv_side side,
                          const uint16_t **slab, size_t *slab_len, tl_error *err) {
    TLI_TRY(check_slab(pool, id, layer, side, (const void *)slab, slab_len, err));
    *slab = tli_kv_slab_at(pool, id, layer, side);
    *slab_len = pool->slab_len;
    return TL_OK;
}

tl_status tl_kv_pool_slab_mut(tl_kv_pool *pool, uint32_t id, uint32_t layer, tl_kv_side side,
                              uint16_t **slab, size_t *slab_len, tl_error *err) {
    TLI_TRY(check_slab(pool, id, layer, side, (const void *)slab, slab_len, err));
    *slab = tli_kv_slab_at(pool, id, layer, side);
    *slab_len = pool->slab_len;
    return TL_OK;
}

/* ---- telling --------------------------------------------------------------------------------- */

tl_status tl_kv_pool_block_info(const tl_kv_pool *pool, uint32_t id, tl_kv_block_info *info,
                                tl_error *err) {
    TLI_TRY(tli_kv_check_id(pool, id, "block_info", err));
    if (info == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "kv block_info: info is NULL");
    }
    const tli_kv_block *block = &pool->blocks[id];
    info->n_refs = block->n_refs;
    info->n_filled = block->n_filled;
    info->registered = block->registered;
    info->key = block->key;
    return TL_OK;
}

const tl_kv_cfg *tl_kv_pool_cfg(const tl_kv_pool *pool) {
    return pool == NULL ? NULL : &pool->cfg;
}

tl_kv_stats tl_kv_pool_stats(const tl_kv_pool *pool) {
    const tl_kv_stats none = {0};
    return pool == NULL ? none : pool->stats;
}
