/* kv.c: the bounded pool of key and value blocks.
 *
 * To be written. Begin with tl_kv_pool_new and the four states of a block, then the list of free
 * blocks; the envelope (export, import) comes last.
 *
 * Read conformance/spec/kv-block.md; the header says what each call promises.
 * Tests: ol check L10.1 --engine . --only 'kv_pool_*'. */
#include "tl/kv.h"

#include "util.h"

/* Every call refuses until it is written. */
static tl_status not_written(const char *call, tl_error *err) {
    return tli_fail(err, TL_ERR_INTERNAL, "%s is not written yet", call);
}

tl_status tl_kv_pool_new(tl_kv_pool **out, const tl_kv_cfg *cfg, tl_error *err) {
    (void)cfg;
    if (out != NULL) {
        *out = NULL;
    }
    return not_written("tl_kv_pool_new", err);
}

void tl_kv_pool_free(tl_kv_pool *pool) {
    (void)pool;
}

tl_status tl_kv_pool_alloc(tl_kv_pool *pool, uint32_t *ids, size_t n_ids, tl_error *err) {
    (void)pool;
    (void)ids;
    (void)n_ids;
    return not_written("tl_kv_pool_alloc", err);
}

tl_status tl_kv_pool_retain(tl_kv_pool *pool, uint32_t id, tl_error *err) {
    (void)pool;
    (void)id;
    return not_written("tl_kv_pool_retain", err);
}

tl_status tl_kv_pool_release(tl_kv_pool *pool, uint32_t id, tl_error *err) {
    (void)pool;
    (void)id;
    return not_written("tl_kv_pool_release", err);
}

tl_status tl_kv_pool_set_fill(tl_kv_pool *pool, uint32_t id, uint32_t n_filled, tl_error *err) {
    (void)pool;
    (void)id;
    (void)n_filled;
    return not_written("tl_kv_pool_set_fill", err);
}

tl_status tl_kv_pool_register(tl_kv_pool *pool, uint32_t id, const tl_prefix_key *key,
                              tl_error *err) {
    (void)pool;
    (void)id;
    (void)key;
    return not_written("tl_kv_pool_register", err);
}

tl_status tl_kv_pool_lookup(tl_kv_pool *pool, const tl_prefix_key *key, uint32_t *id,
                            tl_error *err) {
    (void)pool;
    (void)key;
    (void)id;
    return not_written("tl_kv_pool_lookup", err);
}

tl_status tl_kv_pool_slab(const tl_kv_pool *pool, uint32_t id, uint32_t layer, tl_kv_side side,
                          const uint16_t **slab, size_t *slab_len, tl_error *err) {
    (void)pool;
    (void)id;
    (void)layer;
    (void)side;
    (void)slab;
    (void)slab_len;
    return not_written("tl_kv_pool_slab", err);
}

tl_status tl_kv_pool_slab_mut(tl_kv_pool *pool, uint32_t id, uint32_t layer, tl_kv_side side,
                              uint16_t **slab, size_t *slab_len, tl_error *err) {
    (void)pool;
    (void)id;
    (void)layer;
    (void)side;
    (void)slab;
    (void)slab_len;
    return not_written("tl_kv_pool_slab_mut", err);
}

tl_status tl_kv_pool_export_size(const tl_kv_pool *pool, size_t n_ids, size_t *n_bytes,
                                 tl_error *err) {
    (void)pool;
    (void)n_ids;
    (void)n_bytes;
    return not_written("tl_kv_pool_export_size", err);
}

tl_status tl_kv_pool_export(const tl_kv_pool *pool, const uint32_t *ids, size_t n_ids, uint8_t *buf,
                            size_t buf_len, size_t *n_written, tl_error *err) {
    (void)pool;
    (void)ids;
    (void)n_ids;
    (void)buf;
    (void)buf_len;
    (void)n_written;
    return not_written("tl_kv_pool_export", err);
}

tl_status tl_kv_pool_import(tl_kv_pool *pool, const uint8_t *buf, size_t buf_len, uint32_t *ids,
                            size_t ids_cap, size_t *n_ids, tl_error *err) {
    (void)pool;
    (void)buf;
    (void)buf_len;
    (void)ids;
    (void)ids_cap;
    (void)n_ids;
    return not_written("tl_kv_pool_import", err);
}

tl_status tl_kv_pool_block_info(const tl_kv_pool *pool, uint32_t id, tl_kv_block_info *info,
                                tl_error *err) {
    (void)pool;
    (void)id;
    (void)info;
    return not_written("tl_kv_pool_block_info", err);
}

const tl_kv_cfg *tl_kv_pool_cfg(const tl_kv_pool *pool) {
    (void)pool;
    return NULL;
}

tl_kv_stats tl_kv_pool_stats(const tl_kv_pool *pool) {
    (void)pool;
    return (tl_kv_stats){0};
}
