/* kv.h: the bounded pool of key and value blocks.
 *
 * A pool has n_blocks blocks of block_tokens (B) positions. A block holds, for every layer, one K
 * slab and one V slab of f16 values in the order [n_kv_heads][B][head_dim]: the K of KV head h at
 * position j of a sequence whose block table is t starts at element (h * B + j % B) * head_dim of
 * the layer's K slab of block t[j / B]. All memory is taken (and zeroed) by tl_kv_pool_new and
 * none later:
 *   n_blocks * n_layers * 2 * n_kv_heads * B * head_dim * 2 bytes of slabs, at most 96 bytes a
 *   block beside them, and less than 4 KiB.
 *
 * A block is in exactly one state:
 *   free    no reference, no key; on the free list
 *   used    at least one reference; perhaps with a key, then found by tl_kv_pool_lookup
 *   cached  no reference, has a key; found by lookup, evicted oldest release first when alloc
 *           needs it
 *
 * Every call is O(1) but for copying (alloc and import: O(blocks); new: O(pool)). An id that is not
 * below n_blocks is TL_ERR_INVALID everywhere, and so is a NULL pool.
 *
 * Source: conformance/spec/kv-block.md. */
#ifndef TL_KV_H
#define TL_KV_H

#include "tl/base.h"

#define TL_KV_DTYPE_F16 1
#define TL_KV_FORMAT_V1 1u
#define TL_KV_REFS_MAX 65535u

typedef enum tl_prefix_cache { TL_PREFIX_CACHE_OFF = 0, TL_PREFIX_CACHE_ON = 1 } tl_prefix_cache;

typedef struct tl_kv_cfg {
    uint32_t n_blocks;     /* blocks in the pool, at least 1 */
    uint32_t block_tokens; /* B, token positions a block, at least 1 */
    uint32_t n_layers;     /* at least 1 */
    uint32_t n_kv_heads;   /* H_kv, at least 1 */
    uint32_t head_dim;     /* D, f16 elements a head and position, at least 1 */
    int32_t dtype;         /* TL_KV_DTYPE_F16 */
    uint32_t format;       /* TL_KV_FORMAT_V1 */
    /* OFF: register is STATE, lookup NOT_FOUND, nothing stays cached. */
    tl_prefix_cache prefix_cache;
    uint64_t model_tag; /* fingerprint of the model that makes the values; 0: not known */
} tl_kv_cfg;

typedef enum tl_kv_side { TL_KV_K = 0, TL_KV_V = 1 } tl_kv_side;

/* The key of a prefix: 128 bits, supplied by the caller and trusted (two prefixes never share
 * one). */
typedef struct tl_prefix_key {
    uint8_t bytes[16];
} tl_prefix_key;

typedef struct tl_kv_stats {
    uint32_t n_free;   /* never used, or dropped */
    uint32_t n_cached; /* no references, still found by key */
    uint32_t n_used;   /* at least one reference */
} tl_kv_stats;         /* the three always sum to n_blocks */

typedef struct tl_kv_block_info {
    uint32_t n_refs;   /* 0: free or cached */
    uint32_t n_filled; /* positions filled, <= B */
    bool registered;   /* is in the prefix index */
    tl_prefix_key key; /* zeros unless registered */
} tl_kv_block_info;

typedef struct tl_kv_pool tl_kv_pool;

TL_BEGIN_DECLS

/* Make a pool with every block free.
 * INVALID: a zero among n_blocks to head_dim, another dtype, format or prefix_cache value, NULL.
 * NOMEM: the size overflows or the C library refuses it. */
TL_MUST_USE tl_status tl_kv_pool_new(tl_kv_pool **out, const tl_kv_cfg *cfg, tl_error *err);
void tl_kv_pool_free(tl_kv_pool *pool);

/* Take n_ids blocks, all or none: free ones first (which is not said), then the cached ones whose
 * last release is oldest; those leave the index. Each comes with 1 reference, fill 0, no key. What
 * its slabs hold is not said. n_ids 0 succeeds.
 * ids  [n_ids] u32, written on success only
 * CAPACITY: more than free + cached. */
TL_MUST_USE tl_status tl_kv_pool_alloc(tl_kv_pool *pool, uint32_t *ids, size_t n_ids,
                                       tl_error *err);

/* Add a reference. STATE: the block is not used, or has TL_KV_REFS_MAX already. */
TL_MUST_USE tl_status tl_kv_pool_retain(tl_kv_pool *pool, uint32_t id, tl_error *err);

/* Give a reference back. At the last one the block becomes cached (as the most recent) when it has
 * a key, else free. STATE: the block is not used. */
TL_MUST_USE tl_status tl_kv_pool_release(tl_kv_pool *pool, uint32_t id, tl_error *err);

/* Say how many positions of the block are filled.
 * INVALID: more than B. STATE: not used, or registered and less than B. */
TL_MUST_USE tl_status tl_kv_pool_set_fill(tl_kv_pool *pool, uint32_t id, uint32_t n_filled,
                                          tl_error *err);

/* Enter a full, used block into the index under `key`. Its own key again changes nothing. A key
 * that is in the index keeps its first block: the call succeeds and leaves this block without a
 * key.
 * STATE: not used, not full, has another key, or prefix caching is off. */
TL_MUST_USE tl_status tl_kv_pool_register(tl_kv_pool *pool, uint32_t id, const tl_prefix_key *key,
                                          tl_error *err);

/* Find the block of `key` and take a reference, in one step, so that nobody can evict it in
 * between.
 * NOT_FOUND: no such key, or prefix caching is off. STATE: TL_KV_REFS_MAX references already. */
TL_MUST_USE tl_status tl_kv_pool_lookup(tl_kv_pool *pool, const tl_prefix_key *key, uint32_t *id,
                                        tl_error *err);

/* Borrow one slab, for as long as the block is used.
 * slab  [n_kv_heads][B][head_dim] f16 bit patterns; *slab_len = n_kv_heads * B * head_dim
 * INVALID: layer or side out of range. STATE: the block is not used. */
TL_MUST_USE tl_status tl_kv_pool_slab(const tl_kv_pool *pool, uint32_t id, uint32_t layer,
                                      tl_kv_side side, const uint16_t **slab, size_t *slab_len,
                                      tl_error *err);
TL_MUST_USE tl_status tl_kv_pool_slab_mut(tl_kv_pool *pool, uint32_t id, uint32_t layer,
                                          tl_kv_side side, uint16_t **slab, size_t *slab_len,
                                          tl_error *err);

/* Bytes of an envelope of n_ids blocks of this pool. NOMEM: the size overflows. */
TL_MUST_USE tl_status tl_kv_pool_export_size(const tl_kv_pool *pool, size_t n_ids, size_t *n_bytes,
                                             tl_error *err);

/* Write the envelope of the blocks `ids` (used ones, none twice, perhaps none at all): fills, keys
 * and slabs, with zeros from the fill on, whatever the slab holds there.
 * buf  [buf_len] u8; *n_written = size of the envelope
 * INVALID: an id out of range or listed twice. STATE: a block is not used.
 * CAPACITY: buf_len is too small; *n_written is the size needed and buf is untouched. */
TL_MUST_USE tl_status tl_kv_pool_export(const tl_kv_pool *pool, const uint32_t *ids, size_t n_ids,
                                        uint8_t *buf, size_t buf_len, size_t *n_written,
                                        tl_error *err);

/* Take the blocks of an envelope into the pool, each with 1 reference, its fill, and its key
 * unless that key is in the index by then or caching is off. All checks come first; after any
 * failure the pool is exactly as it was. The pool keeps nothing of buf.
 * ids  [ids_cap] u32; *n_ids = blocks in the envelope
 * UNSUPPORTED: version, dtype, a dimension or the model tag is another than the pool's.
 * FORMAT: anything else about the bytes, with the offset.
 * CAPACITY: more blocks than free + cached, or than ids_cap; *n_ids is the count needed. */
TL_MUST_USE tl_status tl_kv_pool_import(tl_kv_pool *pool, const uint8_t *buf, size_t buf_len,
                                        uint32_t *ids, size_t ids_cap, size_t *n_ids,
                                        tl_error *err);

/* Tell references, fill and key of a block in any state. */
TL_MUST_USE tl_status tl_kv_pool_block_info(const tl_kv_pool *pool, uint32_t id,
                                            tl_kv_block_info *info, tl_error *err);

/* Lives as long as the pool; NULL for NULL. */
const tl_kv_cfg *tl_kv_pool_cfg(const tl_kv_pool *pool);
/* Zeros for NULL. */
tl_kv_stats tl_kv_pool_stats(const tl_kv_pool *pool);

TL_END_DECLS

#endif
