/* kv_internal.h: the pool's inside, for kv.c and kv_envelope.c only. Everything else uses
 * tl/kv.h.
 *
 * Links between blocks are block ids, TLI_KV_NONE where there is none. Functions here check
 * nothing: ids are in range, and the state is what the comment demands. */
#ifndef TLI_KV_INTERNAL_H
#define TLI_KV_INTERNAL_H

#include "tl/kv.h"

#define TLI_KV_NONE                                                                                \
    UINT32_MAX /* no block has this id: n_blocks is a u32, so the last one is below it */

/* free: no reference, no key, `next` leads through the free list.
 * used: references; `next` and `prev` mean nothing.
 * cached: no reference, a key, `next` (younger) and `prev` (older) lead through the cached list. */
typedef struct tli_kv_block {
    tl_prefix_key key;   /* zeros unless registered */
    uint32_t n_refs;     /* at most TL_KV_REFS_MAX */
    uint32_t n_filled;   /* 0 in a free block */
    uint32_t next;       /* see above */
    uint32_t prev;       /* see above */
    uint32_t chain_next; /* the next block of the same index slot, while registered */
    bool registered;     /* is in the index */
} tli_kv_block;

struct tl_kv_pool {
    tl_kv_cfg cfg;
    size_t slab_len;      /* elements of one slab: n_kv_heads * block_tokens * head_dim */
    size_t block_len;     /* elements of a block: n_layers * 2 * slab_len */
    uint16_t *slabs;      /* [n_blocks][n_layers][2][slab_len] f16 bit patterns */
    tli_kv_block *blocks; /* [n_blocks] */
    uint32_t *slots;      /* [n_slots] the prefix index: the first block of each chain */
    size_t n_slots;       /* a power of two, at least n_blocks: chains hold one block on average */
    uint32_t first_free;
    uint32_t oldest_cached;
    uint32_t newest_cached;
    tl_kv_stats stats;
};

/* Take a free block, else the oldest cached one, which leaves the index: 1 reference, fill 0, no
 * key. Demands free + cached >= 1. */
uint32_t tli_kv_take(tl_kv_pool *pool);

/* The block that is registered under key, or TLI_KV_NONE. */
uint32_t tli_kv_find(const tl_kv_pool *pool, const tl_prefix_key *key);

/* Register a used block without a key, under a key that is not in the index. */
void tli_kv_enter(tl_kv_pool *pool, uint32_t id, const tl_prefix_key *key);

/* The first element of a slab. */
uint16_t *tli_kv_slab_at(const tl_kv_pool *pool, uint32_t id, uint32_t layer, tl_kv_side side);

/* INVALID unless pool is there and id below n_blocks. `call` names the caller in the message. */
tl_status tli_kv_check_id(const tl_kv_pool *pool, uint32_t id, const char *call, tl_error *err);

#endif
