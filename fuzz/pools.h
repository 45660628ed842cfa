/* pools.h: one pool of each implementation, driven by the same calls.
 *
 * Which free block alloc takes is not said, so the same block has two ids. A slot stands for a
 * block that is used or cached, and knows both; what a call is made on is a slot, or an id that is
 * no block's. The second pool has no lists and finds everything by looking at every block: it is
 * the naive model of the first. */
#ifndef FUZZ_POOLS_H
#define FUZZ_POOLS_H

#include "fuzz.h"

#define POOL_BLOCKS_MAX 24

typedef struct slot {
    uint32_t a, b; /* ids in the two pools */
} slot;

typedef struct pools {
    fuzz_case *f;
    tl_kv_cfg cfg;
    tl_kv_pool *a, *b;
    slot slots[POOL_BLOCKS_MAX]; /* used or cached blocks */
    uint32_t n_slots;
    bool was_full; /* the limit of references was tried, once is enough */
} pools;

/* A small shape from the tape. */
tl_kv_cfg pools_shape(fuzz_tape *tape);
/* Two pools of such a shape; false when the two do not agree that it is one. */
bool pools_new(pools *p, fuzz_case *f, fuzz_tape *tape);
void pools_free(pools *p);

/* One call of any kind, chosen by the tape, on both; statuses and answers are compared. */
void pools_step(pools *p, fuzz_tape *tape);

/* After alloc or import of n blocks on both: what was evicted leaves the slots, the new ones come
 * in, in order. */
void pools_took(pools *p, const uint32_t *ids_a, const uint32_t *ids_b, size_t n);

/* Everything that can be asked of the two is the same: numbers, every slot's references, fill,
 * key; and the used blocks, exported, are the same bytes. */
void pools_compare(pools *p);

/* Two forwards sum in different orders: the filled positions of every slab of the two must be near
 * (2^-9 of the slab's largest), and are made equal, by the engine's. */
void pools_take_slabs(pools *p);

/* The engine's pool, written down: infos of all blocks and the used ones' slabs. A refused call
 * changes nothing of it. */
typedef struct pool_picture {
    uint8_t *bytes;
    size_t n;
} pool_picture;

pool_picture pools_picture(const pools *p);
void pools_unchanged(pools *p, const char *call, pool_picture *before); /* frees it */

/* The id of a slot in the two pools; past the slots, ids that are no block's, or a free block's. */
slot pools_pick(const pools *p, fuzz_tape *tape);

#endif
