/* naive_kv.h: the pool's life cycle as a plain model: arrays and linear searches, no slabs.
 *
 * The judge asks the model what a call must give, makes the call, and tells the model what came.
 * The model never chooses a block: which free one alloc gives is not said, so the engine's ids are
 * checked and taken over.
 *
 * Source: conformance/spec/kv-block.md, clause states. */
#ifndef OL_NAIVE_KV_H
#define OL_NAIVE_KV_H

#include "tests.h"

#define NAIVE_NO_KEY (-1)

typedef struct naive_block {
    uint32_t refs;
    uint32_t fill;
    int key; /* number of the key in the index, or NAIVE_NO_KEY */
} naive_block;

typedef struct naive_kv {
    uint32_t n_blocks, block_tokens;
    bool cache_off;
    naive_block *blocks; /* [n_blocks] */
    uint32_t *cached;    /* [n_cached] ids, oldest release first */
    uint32_t n_cached;
} naive_kv;

typedef enum naive_op {
    NAIVE_ALLOC,
    NAIVE_RETAIN,
    NAIVE_RELEASE,
    NAIVE_SET_FILL,
    NAIVE_REGISTER,
    NAIVE_LOOKUP,
    NAIVE_SLAB
} naive_op;

typedef struct naive_call {
    naive_op op;
    uint32_t id;
    uint32_t n; /* blocks of alloc, fill of set_fill */
    int key;
} naive_call;

naive_kv naive_kv_new(ol_test *t, uint32_t n_blocks, uint32_t block_tokens, bool cache_off);
uint32_t naive_kv_free_blocks(const naive_kv *m);
uint32_t naive_kv_used_blocks(const naive_kv *m);
uint32_t naive_kv_find(const naive_kv *m, int key); /* n_blocks: not in the index */

/* "OK", or the statuses of which one must come ("INVALID|STATE" where a call breaks two rules). */
const char *naive_kv_expect(const naive_kv *m, const naive_call *call);

/* Carry out a call that must succeed and did. ids [n] are what alloc gave, or the one that lookup
 * gave. NULL, or what is wrong with the ids; the model is of no use then. */
const char *naive_kv_apply(ol_test *t, naive_kv *m, const naive_call *call, const uint32_t *ids,
                           size_t n);

#endif
