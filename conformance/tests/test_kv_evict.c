/* test_kv_evict.c: which cached block goes when room is needed.
 *
 * Property: free blocks go first; then the cached ones, the oldest last release first, exactly.
 * Kills s18, which evicts the newest. Blocks are released in an order that is neither that of ids,
 * nor of alloc, nor of register.
 *
 * Source: conformance/spec/kv-block.md, clause alloc. */
#include "kv_script.h"

#include <string.h>

enum { N = 6 };

static const kv_shape shape = {
    .n_blocks = N, .block_tokens = 2, .n_layers = 1, .n_kv_heads = 1, .head_dim = 2};
/* Registered in this order and released in that. */
static const size_t register_order[N] = {2, 0, 5, 3, 1, 4};
static const size_t release_order[N] = {3, 1, 4, 0, 5, 2};

/* A pool whose blocks are all cached: by_age[0] was released first. The key of block ids[i] is
 * i. */
static kv_script cached_pool(ol_test *t, const char *check, uint32_t by_age[N], uint32_t ids[N]) {
    kv_script k = kv_open(t, check, shape);
    kv_alloc(&k, ids, N);
    for (size_t i = 0; i < N; i++) {
        size_t at = register_order[i];
        kv_fill_and_register(&k, ids[at], (int)at);
    }
    for (size_t i = 0; i < N; i++) {
        by_age[i] = ids[release_order[i]];
        kv_do(&k, "kv_release", by_age[i]);
    }
    kv_stats_are(&k, 0, N, 0, "after all were cached");
    return k;
}

/* Allocate one at a time: the blocks must come in this order. */
static void check_order(kv_script *k, const uint32_t *want, size_t n, const char *what) {
    uint32_t got[N] = {0};
    for (size_t i = 0; i < n; i++) {
        got[i] = kv_take(k);
    }
    if (!k->broken) {
        ol_check_u32s(k->t, k->check, got, n, want, n, what);
    }
}

static void part_free_first(ol_test *t) {
    kv_script k = kv_open(t, "free_before_cached", shape);
    uint32_t ids[N];
    kv_alloc(&k, ids, N);
    /* Cached before and after the free ones, so that age alone does not save them. */
    kv_cache(&k, ids[0], 0);
    kv_do(&k, "kv_release", ids[1]);
    kv_do(&k, "kv_release", ids[2]);
    kv_cache(&k, ids[3], 3);
    kv_stats_are(&k, 2, 2, 2, "before the allocs");
    uint32_t got[2];
    kv_alloc(&k, got, 1);
    kv_stats_are(&k, 1, 2, 3, "after the first alloc");
    kv_alloc(&k, got + 1, 1);
    kv_stats_are(&k, 0, 2, 4, "after the second alloc");
    kv_same_ids(&k, got, ids + 1, 2, "blocks that alloc took, sorted");
    kv_finds(&k, 0, ids[0]);
    kv_finds(&k, 3, ids[3]);
    kv_close(&k);
}

static void part_oldest(ol_test *t) {
    uint32_t by_age[N];
    uint32_t ids[N];
    kv_script k = cached_pool(t, "oldest_first", by_age, ids);
    check_order(&k, by_age, N, "blocks in the order in which they were evicted");
    kv_close(&k);
}

/* A block that had two holders counts from its last release. */
static void part_last_release(ol_test *t) {
    kv_script k = kv_open(t, "oldest_first", shape);
    uint32_t ids[N];
    kv_alloc(&k, ids, N);
    kv_fill_and_register(&k, ids[0], 0);
    kv_fill_and_register(&k, ids[1], 1);
    kv_do(&k, "kv_retain", ids[0]);
    kv_do(&k, "kv_release", ids[0]);
    kv_do(&k, "kv_release", ids[1]);
    kv_do(&k, "kv_release", ids[0]);
    const uint32_t want[] = {ids[1], ids[0]};
    check_order(&k, want, 2, "blocks in the order of their last release");
    kv_close(&k);
}

static void part_several(ol_test *t) {
    uint32_t by_age[N];
    uint32_t ids[N];
    kv_script k = cached_pool(t, "several_at_once", by_age, ids);
    uint32_t got[N];
    kv_alloc(&k, got, 3);
    kv_same_ids(&k, got, by_age, 3, "blocks that alloc of 3 evicted, sorted");
    kv_stats_are(&k, 0, 3, 3, "after alloc of 3");
    kv_do(&k, "kv_release", got[1]);
    /* One free, three cached: alloc of 3 takes the free one and the two oldest. */
    const uint32_t want[] = {got[1], by_age[3], by_age[4]};
    kv_alloc(&k, got, 3);
    kv_same_ids(&k, got, want, 3, "blocks of alloc of 3 with one free, sorted");
    kv_stats_are(&k, 0, 1, 5, "after the second alloc of 3");
    kv_close(&k);
}

static void part_renews(ol_test *t) {
    uint32_t by_age[N];
    uint32_t ids[N];
    kv_script k = cached_pool(t, "release_renews", by_age, ids);
    kv_finds(&k, (int)release_order[0], by_age[0]);
    kv_finds(&k, (int)release_order[2], by_age[2]);
    kv_do(&k, "kv_release", by_age[2]);
    kv_do(&k, "kv_release", by_age[0]);
    const uint32_t want[N] = {by_age[1], by_age[3], by_age[4], by_age[5], by_age[2], by_age[0]};
    check_order(&k, want, N, "blocks in the order of eviction, two of them looked up between");
    kv_close(&k);
}

static void part_survives(ol_test *t) {
    uint32_t by_age[N];
    uint32_t ids[N];
    kv_script k = cached_pool(t, "looked_up_survives", by_age, ids);
    kv_finds(&k, (int)release_order[0], by_age[0]);
    kv_stats_are(&k, 0, N - 1, 1, "after the look-up");
    check_order(&k, by_age + 1, N - 1, "blocks evicted while the oldest is held");
    kv_alloc_refused(&k, 1, "alloc of 1 while every block is held");
    kv_info_is(&k, by_age[0], 1, 2, (int)release_order[0], "held all the time");
    kv_finds(&k, (int)release_order[0], by_age[0]);
    kv_close(&k);
}

static void part_misses(ol_test *t) {
    uint32_t by_age[N];
    uint32_t ids[N];
    kv_script k = cached_pool(t, "evicted_key_misses", by_age, ids);
    uint32_t got[2];
    kv_alloc(&k, got, 2);
    kv_lookup_refused(&k, (int)release_order[0], "NOT_FOUND", "look-up of the oldest key, evicted");
    kv_lookup_refused(&k, (int)release_order[1], "NOT_FOUND", "look-up of the second, evicted");
    for (size_t i = 2; i < N; i++) {
        kv_finds(&k, (int)release_order[i], by_age[i]);
    }
    kv_close(&k);
}

/* So many keys that some share a place in whatever the index is made of. */
static void part_many(ol_test *t) {
    enum { MANY = 64, GONE = 32 };
    kv_shape wide = shape;
    wide.n_blocks = MANY;
    kv_script k = kv_open(t, "evicted_key_misses", wide);
    uint32_t ids[MANY];
    kv_alloc(&k, ids, MANY);
    for (int key = 0; key < MANY; key++) {
        kv_fill_and_register(&k, ids[key], key);
    }
    int by_age[MANY];
    for (int i = 0; i < MANY; i++) {
        by_age[i] = i * 37 % MANY;
        kv_do(&k, "kv_release", ids[by_age[i]]);
    }
    uint32_t got[GONE];
    kv_alloc(&k, got, GONE);
    for (int i = 0; i < GONE; i++) {
        kv_lookup_refused(&k, by_age[i], "NOT_FOUND", "look-up of one of 32 evicted keys");
    }
    for (int i = GONE; i < MANY; i++) {
        kv_finds(&k, by_age[i], ids[by_age[i]]);
    }
    kv_close(&k);
}

static void part_fresh(ol_test *t) {
    uint32_t by_age[N];
    uint32_t ids[N];
    kv_script k = cached_pool(t, "evicted_block_is_fresh", by_age, ids);
    uint32_t id = kv_take(&k);
    kv_info_is(&k, id, 1, 0, KV_NO_KEY, "evicted and given out");
    kv_register_refused(&k, id, 77, "STATE", "register of the evicted block before it is filled");
    kv_fill_and_register(&k, id, 77);
    kv_finds(&k, 77, id);
    kv_lookup_refused(&k, (int)release_order[0], "NOT_FOUND", "look-up of the block's old key");
    kv_do(&k, "kv_release", id);
    kv_do(&k, "kv_release", id);
    /* Its old key may go to another block now. */
    uint32_t other = kv_take(&k);
    kv_fill_and_register(&k, other, (int)release_order[0]);
    kv_finds(&k, (int)release_order[0], other);
    kv_close(&k);
}

static void part_refused(ol_test *t) {
    uint32_t by_age[N];
    uint32_t ids[N];
    kv_script k = cached_pool(t, "refused_alloc_evicts_nothing", by_age, ids);
    kv_finds(&k, (int)release_order[0], by_age[0]);
    uint64_t before = kv_digest(&k);
    kv_alloc_refused(&k, N, "alloc of 6 with 5 cached and none free");
    kv_digest_is(&k, before, "the refused alloc");
    kv_stats_are(&k, 0, N - 1, 1, "after the refused alloc");
    check_order(&k, by_age + 1, N - 1, "blocks in the order of eviction, after a refused alloc");
    kv_close(&k);
}

void test_kv_pool_evicts_the_oldest_cached_block(ol_test *t) {
    static const test_part parts[] = {{"free-first", part_free_first},
                                      {"oldest", part_oldest},
                                      {"last-release", part_last_release},
                                      {"several", part_several},
                                      {"renews", part_renews},
                                      {"survives", part_survives},
                                      {"misses", part_misses},
                                      {"many", part_many},
                                      {"fresh", part_fresh},
                                      {"refused", part_refused}};
    test_run_parts(t, parts, TEST_COUNT(parts));
}
