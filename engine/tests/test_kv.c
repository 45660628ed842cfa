/* The pool against a naive model over long random walks, with its inner lists checked after
 * every call; each refusal of the page; eviction order; and pools whose ids need more than 16
 * bits.
 *
 * test_kv_envelope.c holds export and import.
 *
 * Source: conformance/spec/kv-block.md, pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "kv_internal.h"
#include "tl/sample.h"

static tl_kv_cfg small_cfg(uint32_t n_blocks) {
    const tl_kv_cfg cfg = {
        .n_blocks = n_blocks,
        .block_tokens = 3,
        .n_layers = 2,
        .n_kv_heads = 2,
        .head_dim = 2,
        .dtype = TL_KV_DTYPE_F16,
        .format = TL_KV_FORMAT_V1,
        .prefix_cache = TL_PREFIX_CACHE_ON,
        .model_tag = 0,
    };
    return cfg;
}

static tl_kv_pool *new_pool(uint32_t n_blocks) {
    const tl_kv_cfg cfg = small_cfg(n_blocks);
    tl_kv_pool *pool = NULL;
    assert_int_equal(tl_kv_pool_new(&pool, &cfg, NULL), TL_OK);
    return pool;
}

static tl_prefix_key key_of(uint32_t number) {
    tl_prefix_key key = {{0}};
    key.bytes[0] = (uint8_t)(number & 0xff);
    key.bytes[9] = (uint8_t)(number >> 8 & 0xff);
    key.bytes[15] = (uint8_t)(number >> 16 & 0xff);
    return key;
}

/* ---- what must hold inside, always ----------------------------------------------------------- */

static void check_inside(const tl_kv_pool *pool) {
    const uint32_t n = pool->cfg.n_blocks;
    uint32_t n_free = 0;
    for (uint32_t id = pool->first_free; id != TLI_KV_NONE; id = pool->blocks[id].next) {
        assert_true(pool->blocks[id].n_refs == 0 && !pool->blocks[id].registered);
        assert_true(++n_free <= n);
    }
    uint32_t n_cached = 0;
    uint32_t prev = TLI_KV_NONE;
    for (uint32_t id = pool->oldest_cached; id != TLI_KV_NONE; id = pool->blocks[id].next) {
        assert_true(pool->blocks[id].n_refs == 0 && pool->blocks[id].registered);
        assert_true(pool->blocks[id].prev == prev);
        assert_true(++n_cached <= n);
        prev = id;
    }
    assert_true(pool->newest_cached == prev);
    uint32_t n_used = 0;
    uint32_t n_registered = 0;
    for (uint32_t id = 0; id < n; id++) {
        const tli_kv_block *block = &pool->blocks[id];
        n_used += block->n_refs != 0 ? 1 : 0;
        n_registered += block->registered ? 1 : 0;
        assert_true(!block->registered || tli_kv_find(pool, &block->key) == id);
        assert_true(!block->registered || block->n_filled == pool->cfg.block_tokens);
    }
    uint32_t n_chained = 0;
    for (size_t slot = 0; slot < pool->n_slots; slot++) {
        for (uint32_t id = pool->slots[slot]; id != TLI_KV_NONE; id = pool->blocks[id].chain_next) {
            assert_true(++n_chained <= n);
        }
    }
    const tl_kv_stats stats = tl_kv_pool_stats(pool);
    assert_true(n_chained == n_registered);
    assert_true(stats.n_free == n_free && stats.n_cached == n_cached && stats.n_used == n_used);
    assert_true(n_free + n_cached + n_used == n);
}

/* ---- the naive model ------------------------------------------------------------------------- */

#define MAX_BLOCKS 24
#define NO_KEY UINT32_MAX

typedef struct model {
    uint32_t n;
    uint32_t n_tokens;
    uint32_t refs[MAX_BLOCKS];
    uint32_t fill[MAX_BLOCKS];
    uint32_t key[MAX_BLOCKS];
    uint32_t released[MAX_BLOCKS]; /* when, for cached blocks */
    uint32_t clock;
} model;

static uint32_t model_find(const model *m, uint32_t key) {
    for (uint32_t id = 0; id < m->n; id++) {
        if (m->key[id] == key) {
            return id;
        }
    }
    return m->n;
}

static uint32_t model_count(const model *m, bool used, bool keyed) {
    uint32_t count = 0;
    for (uint32_t id = 0; id < m->n; id++) {
        count += (m->refs[id] != 0) == used && (used || (m->key[id] != NO_KEY) == keyed) ? 1 : 0;
    }
    return count;
}

static uint32_t model_oldest(const model *m) {
    uint32_t oldest = m->n;
    for (uint32_t id = 0; id < m->n; id++) {
        const bool cached = m->refs[id] == 0 && m->key[id] != NO_KEY;
        if (cached && (oldest == m->n || m->released[id] < m->released[oldest])) {
            oldest = id;
        }
    }
    return oldest;
}

/* The pool may choose among free blocks; among cached ones it may not. */
static void model_take(model *m, uint32_t id) {
    if (model_count(m, false, false) != 0) {
        assert_true(id < m->n && m->refs[id] == 0 && m->key[id] == NO_KEY);
    } else {
        assert_true(id == model_oldest(m));
    }
    m->refs[id] = 1;
    m->fill[id] = 0;
    m->key[id] = NO_KEY;
}

static void model_release(model *m, uint32_t id) {
    m->refs[id]--;
    m->released[id] = m->clock++;
    m->fill[id] = m->refs[id] == 0 && m->key[id] == NO_KEY ? 0 : m->fill[id];
}

static tl_status model_register(model *m, uint32_t id, uint32_t key) {
    const bool other_key = m->key[id] != NO_KEY && m->key[id] != key;
    if (m->refs[id] == 0 || m->fill[id] != m->n_tokens || other_key) {
        return TL_ERR_STATE;
    }
    if (model_find(m, key) == m->n) {
        m->key[id] = key;
    }
    return TL_OK;
}

static void compare_with_model(const tl_kv_pool *pool, const model *m) {
    const tl_kv_stats stats = tl_kv_pool_stats(pool);
    assert_int_equal(stats.n_free, model_count(m, false, false));
    assert_int_equal(stats.n_cached, model_count(m, false, true));
    assert_int_equal(stats.n_used, model_count(m, true, false));
    for (uint32_t id = 0; id < m->n; id++) {
        tl_kv_block_info info;
        assert_int_equal(tl_kv_pool_block_info(pool, id, &info, NULL), TL_OK);
        tl_prefix_key key = {{0}};
        if (m->key[id] != NO_KEY) {
            key = key_of(m->key[id]);
        }
        assert_int_equal(info.n_refs, m->refs[id]);
        assert_int_equal(info.n_filled, m->fill[id]);
        assert_int_equal(info.registered, m->key[id] != NO_KEY);
        assert_memory_equal(info.key.bytes, key.bytes, sizeof key.bytes);
    }
}

/* ---- the walk -------------------------------------------------------------------------------- */

static uint32_t below(tl_pcg32 *rng, uint32_t n) {
    return tl_pcg32_next_u32(rng) % n;
}

static void walk_alloc(tl_kv_pool *pool, model *m, tl_pcg32 *rng) {
    uint32_t ids[MAX_BLOCKS + 2];
    const size_t n = below(rng, 3) == 0 ? below(rng, m->n + 2) : 1;
    const uint32_t available = m->n - model_count(m, true, false);
    memset(ids, 0xee, sizeof ids);
    const tl_status status = tl_kv_pool_alloc(pool, ids, n, NULL);
    if (n > available) {
        assert_int_equal(status, TL_ERR_CAPACITY);
        assert_true(ids[0] == 0xeeeeeeeeu);
        return;
    }
    assert_int_equal(status, TL_OK);
    for (size_t i = 0; i < n; i++) {
        model_take(m, ids[i]);
    }
}

static void walk_references(tl_kv_pool *pool, model *m, tl_pcg32 *rng, bool retain) {
    const uint32_t id = below(rng, m->n + 1);
    const tl_status status =
        retain ? tl_kv_pool_retain(pool, id, NULL) : tl_kv_pool_release(pool, id, NULL);
    if (id == m->n || m->refs[id] == 0) {
        assert_int_equal(status, id == m->n ? TL_ERR_INVALID : TL_ERR_STATE);
        return;
    }
    assert_int_equal(status, TL_OK);
    if (retain) {
        m->refs[id]++;
    } else {
        model_release(m, id);
    }
}

static void walk_fill(tl_kv_pool *pool, model *m, tl_pcg32 *rng) {
    const uint32_t id = below(rng, m->n);
    const uint32_t fill = below(rng, 2) == 0 ? m->n_tokens : below(rng, m->n_tokens + 2);
    const bool keyed_and_less = m->key[id] != NO_KEY && fill < m->n_tokens;
    const tl_status expected = m->refs[id] == 0 || keyed_and_less ? TL_ERR_STATE
                               : fill > m->n_tokens               ? TL_ERR_INVALID
                                                                  : TL_OK;
    assert_int_equal(tl_kv_pool_set_fill(pool, id, fill, NULL), expected);
    m->fill[id] = expected == TL_OK ? fill : m->fill[id];
}

static void walk_keys(tl_kv_pool *pool, model *m, tl_pcg32 *rng, bool lookup) {
    const uint32_t number = below(rng, m->n * 2);
    const tl_prefix_key key = key_of(number);
    if (!lookup) {
        const uint32_t id = below(rng, m->n);
        const tl_status status = tl_kv_pool_register(pool, id, &key, NULL);
        assert_int_equal(status, model_register(m, id, number));
        return;
    }
    uint32_t id = 0xeeee;
    const uint32_t expected = model_find(m, number);
    const tl_status status = tl_kv_pool_lookup(pool, &key, &id, NULL);
    if (expected == m->n) {
        assert_int_equal(status, TL_ERR_NOT_FOUND);
        assert_int_equal(id, 0xeeee);
        return;
    }
    assert_int_equal(status, TL_OK);
    assert_int_equal(id, expected);
    m->refs[id]++;
}

static void random_walk_agrees_with_a_naive_model(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 5, 24};
    tl_pcg32 rng = tl_pcg32_new(77, 0);
    for (size_t s = 0; s < 4; s++) {
        tl_kv_pool *pool = new_pool(sizes[s]);
        model m = {.n = sizes[s], .n_tokens = 3};
        memset(m.key, 0xff, sizeof m.key);
        for (int step = 0; step < 20000; step++) {
            const uint32_t action = below(&rng, 12);
            if (action < 2) {
                walk_alloc(pool, &m, &rng);
            } else if (action < 6) {
                walk_references(pool, &m, &rng, action == 2);
            } else if (action < 9) {
                walk_fill(pool, &m, &rng);
            } else {
                walk_keys(pool, &m, &rng, action == 11);
            }
            compare_with_model(pool, &m);
            check_inside(pool);
        }
        tl_kv_pool_free(pool);
    }
}

/* ---- making a pool --------------------------------------------------------------------------- */

static void assert_not_made(const tl_kv_cfg *cfg, tl_status expected, const char *subject) {
    int dummy = 0;
    tl_kv_pool *pool = (void *)&dummy;
    tl_error err = {TL_OK, 0, ""};
    assert_int_equal(tl_kv_pool_new(&pool, cfg, &err), expected);
    assert_null(pool);
    assert_int_equal(err.status, expected);
    assert_non_null(strstr(err.text, subject));
}

static void configuration_is_checked(void **state) {
    (void)state;
    static const char *const names[] = {"n_blocks", "block_tokens", "n_layers", "n_kv_heads",
                                        "head_dim"};
    for (int field = 0; field < 5; field++) {
        tl_kv_cfg cfg = small_cfg(4);
        cfg.n_blocks = field == 0 ? 0 : cfg.n_blocks;
        cfg.block_tokens = field == 1 ? 0 : cfg.block_tokens;
        cfg.n_layers = field == 2 ? 0 : cfg.n_layers;
        cfg.n_kv_heads = field == 3 ? 0 : cfg.n_kv_heads;
        cfg.head_dim = field == 4 ? 0 : cfg.head_dim;
        assert_not_made(&cfg, TL_ERR_INVALID, names[field]);
    }
    tl_kv_cfg cfg = small_cfg(4);
    cfg.dtype = 0;
    assert_not_made(&cfg, TL_ERR_INVALID, "dtype");
    cfg = small_cfg(4);
    cfg.format = 2;
    assert_not_made(&cfg, TL_ERR_INVALID, "format");
    cfg = small_cfg(4);
    cfg.prefix_cache = (tl_prefix_cache)2;
    assert_not_made(&cfg, TL_ERR_INVALID, "prefix_cache");
    assert_not_made(NULL, TL_ERR_INVALID, "cfg");
    cfg = small_cfg(4);
    assert_int_equal(tl_kv_pool_new(NULL, &cfg, NULL), TL_ERR_INVALID);
    cfg = (tl_kv_cfg){UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, 1, 1, 0, 0};
    assert_not_made(&cfg, TL_ERR_NOMEM, "no memory");
    /* The bytes wrap to 0, or to a size that could be had. */
    cfg = (tl_kv_cfg){1u << 31, 1u << 31, 1, 1, 1, 1, 1, 0, 0};
    assert_not_made(&cfg, TL_ERR_NOMEM, "no memory");
    cfg = (tl_kv_cfg){1, 1u << 30, 1u << 30, 4, 1, 1, 1, 0, 0};
    assert_not_made(&cfg, TL_ERR_NOMEM, "no memory");
    cfg = (tl_kv_cfg){1, 1, 1, 1, 1, 1, 1, 0, 0};
    tl_kv_pool *pool = NULL;
    assert_int_equal(tl_kv_pool_new(&pool, &cfg, NULL), TL_OK);
    tl_kv_pool_free(pool);
}

static void memory_is_bounded(void **state) {
    (void)state;
    tl_kv_pool *pool = new_pool(1000);
    const size_t beside =
        1000 * sizeof pool->blocks[0] + pool->n_slots * sizeof pool->slots[0] + sizeof *pool;
    assert_true(beside < 1000 * 96 + 4096);
    tl_kv_pool_free(pool);
    /* The worst count for the index, which has a power of two of slots. */
    assert_true(sizeof(tli_kv_block) + 2 * sizeof(uint32_t) <= 96);
}

static void nothing_there_is_answered(void **state) {
    (void)state;
    const tl_prefix_key key = key_of(1);
    const uint16_t *slab = NULL;
    uint16_t *slab_mut = NULL;
    uint32_t id = 5;
    size_t n = 5;
    tl_kv_block_info info;
    tl_kv_pool *pool = new_pool(2);
    assert_int_equal(tl_kv_pool_alloc(NULL, &id, 1, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_alloc(pool, NULL, 1, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_alloc(pool, NULL, 0, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_alloc(pool, &id, SIZE_MAX, NULL), TL_ERR_CAPACITY);
    assert_int_equal(id, 5);
    assert_int_equal(tl_kv_pool_alloc(pool, &id, 1, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_retain(NULL, id, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_release(NULL, id, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_set_fill(NULL, id, 0, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_register(NULL, id, &key, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_register(pool, id, NULL, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_lookup(NULL, &key, &id, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_lookup(pool, NULL, &id, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_lookup(pool, &key, NULL, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_slab(NULL, id, 0, TL_KV_K, &slab, &n, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_slab(pool, id, 0, TL_KV_K, NULL, &n, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_slab(pool, id, 0, TL_KV_K, &slab, NULL, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_slab_mut(NULL, id, 0, TL_KV_K, &slab_mut, &n, NULL),
                     TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_block_info(NULL, id, &info, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_block_info(pool, id, NULL, NULL), TL_ERR_INVALID);
    assert_true(n == 5 && slab == NULL && slab_mut == NULL);
    const tl_kv_stats stats = tl_kv_pool_stats(NULL);
    assert_true(stats.n_free == 0 && stats.n_cached == 0 && stats.n_used == 0);
    assert_null(tl_kv_pool_cfg(NULL));
    assert_int_equal(tl_kv_pool_cfg(pool)->n_blocks, 2);
    tl_kv_pool_free(pool);
    tl_kv_pool_free(NULL);
}

/* An id past the pool, also one whose low 8 or 16 bits are those of a used block. */
static void ids_are_checked_in_every_call(void **state) {
    (void)state;
    static const uint32_t wrong[] = {3, 256, 65536, 65537, 0x80000000u, UINT32_MAX};
    tl_kv_pool *pool = new_pool(3);
    uint32_t ids[3];
    const tl_prefix_key key = key_of(1);
    assert_int_equal(tl_kv_pool_alloc(pool, ids, 3, NULL), TL_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const uint32_t id = wrong[i];
        const uint16_t *slab = NULL;
        size_t n = 0;
        tl_kv_block_info info;
        uint8_t buf[1000];
        tl_error err = {TL_OK, 0, ""};
        assert_int_equal(tl_kv_pool_retain(pool, id, &err), TL_ERR_INVALID);
        assert_int_equal(err.status, TL_ERR_INVALID);
        assert_int_equal(tl_kv_pool_release(pool, id, NULL), TL_ERR_INVALID);
        assert_int_equal(tl_kv_pool_set_fill(pool, id, 1, NULL), TL_ERR_INVALID);
        assert_int_equal(tl_kv_pool_register(pool, id, &key, NULL), TL_ERR_INVALID);
        assert_int_equal(tl_kv_pool_slab(pool, id, 0, TL_KV_K, &slab, &n, NULL), TL_ERR_INVALID);
        assert_int_equal(tl_kv_pool_block_info(pool, id, &info, NULL), TL_ERR_INVALID);
        assert_int_equal(tl_kv_pool_export(pool, &id, 1, buf, 1000, &n, NULL), TL_ERR_INVALID);
    }
    check_inside(pool);
    tl_kv_pool_free(pool);
}

/* ---- references and keys --------------------------------------------------------------------- */

static void references_have_a_maximum(void **state) {
    (void)state;
    tl_kv_pool *pool = new_pool(2);
    const tl_prefix_key key = key_of(9);
    uint32_t id = 0;
    uint32_t found = 77;
    assert_int_equal(tl_kv_pool_alloc(pool, &id, 1, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_set_fill(pool, id, 3, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_register(pool, id, &key, NULL), TL_OK);
    for (uint32_t n = 1; n < TL_KV_REFS_MAX; n++) {
        assert_int_equal(tl_kv_pool_retain(pool, id, NULL), TL_OK);
    }
    assert_int_equal(tl_kv_pool_retain(pool, id, NULL), TL_ERR_STATE);
    assert_int_equal(tl_kv_pool_lookup(pool, &key, &found, NULL), TL_ERR_STATE);
    assert_int_equal(found, 77);
    for (uint32_t n = 0; n < TL_KV_REFS_MAX; n++) {
        assert_int_equal(tl_kv_pool_stats(pool).n_used, 1);
        assert_int_equal(tl_kv_pool_release(pool, id, NULL), TL_OK);
    }
    assert_int_equal(tl_kv_pool_stats(pool).n_cached, 1);
    assert_int_equal(tl_kv_pool_release(pool, id, NULL), TL_ERR_STATE);
    tl_kv_pool_free(pool);
}

static void caching_can_be_off(void **state) {
    (void)state;
    tl_kv_cfg cfg = small_cfg(2);
    cfg.prefix_cache = TL_PREFIX_CACHE_OFF;
    tl_kv_pool *pool = NULL;
    const tl_prefix_key key = key_of(1);
    uint32_t id = 0;
    assert_int_equal(tl_kv_pool_new(&pool, &cfg, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_alloc(pool, &id, 1, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_set_fill(pool, id, 3, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_register(pool, id, &key, NULL), TL_ERR_STATE);
    assert_int_equal(tl_kv_pool_lookup(pool, &key, &id, NULL), TL_ERR_NOT_FOUND);
    assert_int_equal(tl_kv_pool_release(pool, id, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_stats(pool).n_free, 2);
    tl_kv_pool_free(pool);
}

static uint32_t cached_block(tl_kv_pool *pool, uint32_t number) {
    const tl_prefix_key key = key_of(number);
    uint32_t id = 0;
    assert_int_equal(tl_kv_pool_alloc(pool, &id, 1, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_set_fill(pool, id, 3, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_register(pool, id, &key, NULL), TL_OK);
    return id;
}

/* Released 0, 1, 2, 3; 1 is looked up and released again, 0 is looked up and kept: 2, 3, 1 go. */
static void eviction_is_by_last_release(void **state) {
    (void)state;
    tl_kv_pool *pool = new_pool(4);
    uint32_t id[4];
    uint32_t found = 0;
    for (uint32_t i = 0; i < 4; i++) {
        id[i] = cached_block(pool, i);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(tl_kv_pool_release(pool, id[i], NULL), TL_OK);
    }
    const tl_prefix_key one = key_of(1);
    const tl_prefix_key zero = key_of(0);
    assert_int_equal(tl_kv_pool_lookup(pool, &one, &found, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_release(pool, found, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_lookup(pool, &zero, &found, NULL), TL_OK);
    assert_int_equal(found, id[0]);
    uint32_t taken[4];
    assert_int_equal(tl_kv_pool_alloc(pool, taken, 4, NULL), TL_ERR_CAPACITY);
    assert_int_equal(tl_kv_pool_alloc(pool, taken, 1, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_alloc(pool, taken + 1, 2, NULL), TL_OK);
    assert_true(taken[0] == id[2] && taken[1] == id[3] && taken[2] == id[1]);
    assert_int_equal(tl_kv_pool_lookup(pool, &one, &found, NULL), TL_ERR_NOT_FOUND);
    assert_int_equal(tl_kv_pool_lookup(pool, &zero, &found, NULL), TL_OK);
    tl_kv_pool_free(pool);
}

/* ---- slabs ----------------------------------------------------------------------------------- */

static void every_slab_is_its_own_and_starts_as_zeros(void **state) {
    (void)state;
    tl_kv_pool *pool = new_pool(3);
    uint32_t ids[3];
    assert_int_equal(tl_kv_pool_alloc(pool, ids, 3, NULL), TL_OK);
    uint16_t mark = 1;
    for (int pass = 0; pass < 2; pass++) {
        mark = 1;
        for (uint32_t i = 0; i < 3 * 2 * 2; i++) {
            const uint32_t id = ids[i / 4];
            const tl_kv_side side = i % 2 == 0 ? TL_KV_K : TL_KV_V;
            const uint16_t *slab = NULL;
            uint16_t *slab_mut = NULL;
            size_t n = 0;
            size_t n_mut = 0;
            assert_int_equal(tl_kv_pool_slab(pool, id, i / 2 % 2, side, &slab, &n, NULL), TL_OK);
            assert_int_equal(
                tl_kv_pool_slab_mut(pool, id, i / 2 % 2, side, &slab_mut, &n_mut, NULL), TL_OK);
            assert_true(slab == slab_mut && n == 2 * 3 * 2 && n_mut == n);
            for (size_t j = 0; j < n; j++) {
                assert_int_equal(slab[j], pass == 0 ? 0 : mark);
                slab_mut[j] = mark++;
            }
        }
    }
    const uint16_t *slab = NULL;
    size_t n = 0;
    assert_int_equal(tl_kv_pool_slab(pool, ids[0], 2, TL_KV_K, &slab, &n, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_slab(pool, ids[0], 0, (tl_kv_side)2, &slab, &n, NULL),
                     TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_slab(pool, ids[0], 0, (tl_kv_side)-1, &slab, &n, NULL),
                     TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_release(pool, ids[0], NULL), TL_OK);
    assert_int_equal(tl_kv_pool_slab(pool, ids[0], 0, TL_KV_K, &slab, &n, NULL), TL_ERR_STATE);
    /* Two faults in one call: the block's state is blamed before what is left. */
    assert_int_equal(tl_kv_pool_slab(pool, ids[0], 2, TL_KV_K, &slab, &n, NULL), TL_ERR_STATE);
    assert_int_equal(tl_kv_pool_set_fill(pool, ids[0], UINT32_MAX, NULL), TL_ERR_STATE);
    tl_kv_pool_free(pool);
}

/* 70,000 blocks: each keeps what is written to it, and its key. */
static void ids_need_more_than_sixteen_bits(void **state) {
    (void)state;
    enum { N = 70000 };
    const tl_kv_cfg cfg = {N, 1, 1, 1, 2, 1, 1, TL_PREFIX_CACHE_ON, 0};
    tl_kv_pool *pool = NULL;
    uint32_t *ids = calloc(N, sizeof *ids);
    assert_non_null(ids);
    assert_int_equal(tl_kv_pool_new(&pool, &cfg, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_alloc(pool, ids, N, NULL), TL_OK);
    size_t n = 0;
    for (uint32_t i = 0; i < N; i++) {
        const tl_prefix_key key = key_of(i);
        uint16_t *k = NULL;
        assert_int_equal(tl_kv_pool_slab_mut(pool, ids[i], 0, TL_KV_K, &k, &n, NULL), TL_OK);
        k[0] = (uint16_t)(i & 0xffff);
        k[1] = (uint16_t)(i >> 16);
        assert_int_equal(tl_kv_pool_set_fill(pool, ids[i], 1, NULL), TL_OK);
        assert_int_equal(tl_kv_pool_register(pool, ids[i], &key, NULL), TL_OK);
        assert_int_equal(tl_kv_pool_release(pool, ids[i], NULL), TL_OK);
    }
    check_inside(pool);
    for (uint32_t i = N; i-- > 0;) {
        const tl_prefix_key key = key_of(i);
        const uint16_t *k = NULL;
        uint32_t id = 0;
        assert_int_equal(tl_kv_pool_lookup(pool, &key, &id, NULL), TL_OK);
        assert_int_equal(id, ids[i]);
        assert_int_equal(tl_kv_pool_slab(pool, id, 0, TL_KV_K, &k, &n, NULL), TL_OK);
        assert_int_equal(k[0] | (uint32_t)k[1] << 16, i);
        assert_int_equal(tl_kv_pool_release(pool, id, NULL), TL_OK);
    }
    assert_int_equal(tl_kv_pool_alloc(pool, ids, N, NULL), TL_OK);
    check_inside(pool);
    free(ids);
    tl_kv_pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_walk_agrees_with_a_naive_model),
        cmocka_unit_test(configuration_is_checked),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(nothing_there_is_answered),
        cmocka_unit_test(ids_are_checked_in_every_call),
        cmocka_unit_test(references_have_a_maximum),
        cmocka_unit_test(caching_can_be_off),
        cmocka_unit_test(eviction_is_by_last_release),
        cmocka_unit_test(every_slab_is_its_own_and_starts_as_zeros),
        cmocka_unit_test(ids_need_more_than_sixteen_bits),
    };
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
