/* kv_plain.h: the pool's one structure, which the pool and the envelope share.
 *
 * There are no lists: what a block is follows from its own fields. It is used when it has
 * references, cached when it has none and a key, free when it has neither; the oldest cached block
 * is the one with the smallest `released`. Questions about the whole pool look at every block. */
#ifndef PLAIN_KV_H
#define PLAIN_KV_H

#include "tl/kv.h"

typedef struct plain_block {
    uint32_t n_refs;
    uint32_t n_filled;
    bool has_key;
    tl_prefix_key key;
    uint64_t released; /* the pool's clock at the last release that left no reference */
} plain_block;

struct tl_kv_pool {
    tl_kv_cfg cfg;
    size_t slab_len;     /* elements of one slab: n_kv_heads * B * head_dim */
    plain_block *blocks; /* [n_blocks] */
    uint16_t *slabs;     /* [n_blocks][n_layers][2][slab_len] */
    uint64_t clock;
};

/* INVALID unless the pool and the id are sound, and STATE unless the block is used. */
tl_status plain_kv_used(const tl_kv_pool *pool, uint32_t id, tl_error *err);
uint16_t *plain_kv_slab(const tl_kv_pool *pool, uint32_t id, uint32_t layer, uint32_t side);
/* The id of the block that has this key; n_blocks when none has it. */
uint32_t plain_kv_find(const tl_kv_pool *pool, const tl_prefix_key *key);

#endif
