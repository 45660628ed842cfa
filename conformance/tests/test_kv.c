/* test_kv.c: the life of a block: alloc, references, fills, keys, slabs, refusals.
 *
 * Property: a block is free, used or cached, never two of them, and every call does what the page's
 * table says or refuses with the page's status and changes nothing. The random walk and the large
 * pool are in test_kv_walk.c.
 *
 * Source: conformance/spec/kv-block.md, clause states. */
#include "test_kv.h"

#include <string.h>

static const kv_shape small = {
    .n_blocks = 8, .block_tokens = 4, .n_layers = 2, .n_kv_heads = 2, .head_dim = 3};

/* ------------------------------------------------------------------ alloc */

static void part_new(ol_test *t) {
    kv_script k = kv_open(t, "new_pool", small);
    kv_stats_are(&k, 8, 0, 0, "of a new pool");
    for (uint32_t id = 0; id < small.n_blocks; id++) {
        kv_info_is(&k, id, 0, -1, KV_NO_KEY, "in a new pool");
    }
    kv_close(&k);
}

/* The first pool leaves its values in memory that malloc gives again: a pool that is not zeroed
 * shows them. */
static void part_zeroed(ol_test *t) {
    size_t n = kv_slab_len(&small);
    uint16_t *junk = ol_alloc(t, n * sizeof *junk);
    uint16_t *zeros = ol_alloc(t, n * sizeof *zeros);
    memset(junk, 0x5b, n * sizeof *junk);
    for (int round = 0; round < 3; round++) {
        kv_script k = kv_open(t, "slabs_zeroed", small);
        uint32_t ids[8];
        kv_alloc(&k, ids, 8);
        for (size_t i = 0; i < (size_t)8 * 4; i++) {
            const char *side = i % 2 == 0 ? "k" : "v";
            uint32_t layer = (uint32_t)(i / 2 % 2);
            const uint16_t *slab = kv_read(&k, ids[i / 4], layer, side);
            if (slab != NULL) {
                ol_check_u16s(t, "slabs_zeroed", slab, n, zeros, n, "slab of a new pool");
            }
            kv_write(&k, ids[i / 4], layer, side, junk, n);
        }
        kv_close(&k);
    }
}

static void check_distinct(kv_script *k, const uint32_t *ids, size_t n) {
    bool seen[8] = {false};
    for (size_t i = 0; !k->broken && i < n; i++) {
        bool fresh = ids[i] < k->shape.n_blocks && !seen[ids[i]];
        ol_check(k->t, k->check, fresh, "alloc gave block %u twice, or none of the pool's",
                 (unsigned)ids[i]);
        seen[ids[i] % 8] = true;
    }
}

static void part_alloc(ol_test *t) {
    kv_script k = kv_open(t, "alloc_all_or_nothing", small);
    uint32_t ids[8];
    kv_alloc(&k, ids, 3);
    uint64_t before = kv_digest(&k);
    kv_alloc_refused(&k, 6, "alloc of 6 with 5 free");
    kv_alloc_refused(&k, 1000, "alloc of 1,000 with 5 free");
    kv_digest_is(&k, before, "alloc of too many");
    kv_stats_are(&k, 5, 0, 3, "after refused allocs");
    kv_alloc(&k, ids + 3, 0);
    kv_stats_are(&k, 5, 0, 3, "after alloc of 0");
    kv_alloc(&k, ids + 3, 5);
    kv_stats_are(&k, 0, 0, 8, "after alloc of the rest");
    check_distinct(&k, ids, 8);
    kv_alloc_refused(&k, 1, "alloc of 1 with none free");
    kv_alloc(&k, ids, 0);
    kv_close(&k);
}

/* Cached blocks count as room, and a refused alloc leaves them cached. */
static void part_alloc_cached(ol_test *t) {
    kv_script k = kv_open(t, "alloc_all_or_nothing", small);
    uint32_t ids[8];
    kv_alloc(&k, ids, 8);
    kv_cache(&k, ids[0], 1);
    kv_cache(&k, ids[1], 2);
    kv_do(&k, "kv_release", ids[2]);
    kv_alloc_refused(&k, 4, "alloc of 4 with 1 free and 2 cached");
    kv_stats_are(&k, 1, 2, 5, "after the refused alloc");
    kv_finds(&k, 1, ids[0]);
    kv_do(&k, "kv_release", ids[0]);
    kv_alloc(&k, ids, 3);
    kv_stats_are(&k, 0, 0, 8, "after alloc of 3");
    kv_close(&k);
}

/* Each block is used, filled and given back once before; with a key, its turn comes by eviction. */
static void part_fresh(ol_test *t) {
    kv_script k = kv_open(t, "fresh_block", small);
    uint32_t ids[8];
    kv_alloc(&k, ids, 8);
    for (int i = 0; i < 8; i++) {
        kv_info_is(&k, ids[i], 1, 0, KV_NO_KEY, "fresh from a new pool");
        kv_set_fill(&k, ids[i], (uint32_t)i % 5);
        if (i % 2 == 0) {
            kv_fill_and_register(&k, ids[i], i);
        }
        kv_do(&k, "kv_release", ids[i]);
    }
    kv_alloc(&k, ids, 8);
    for (size_t i = 0; i < 8; i++) {
        kv_info_is(&k, ids[i], 1, 0, KV_NO_KEY, "allocated again");
    }
    kv_close(&k);
}

/* ------------------------------------------------------------------ references */

static void part_references(ol_test *t) {
    kv_script k = kv_open(t, "references_balance", small);
    uint32_t id = kv_take(&k);
    for (uint32_t i = 0; i < 3; i++) {
        kv_do(&k, "kv_retain", id);
    }
    for (uint32_t refs = 4; refs > 1; refs--) {
        kv_info_is(&k, id, refs, 0, KV_NO_KEY, "while it is held");
        kv_stats_are(&k, 7, 0, 1, "while a block is held");
        kv_do(&k, "kv_release", id);
    }
    kv_info_is(&k, id, 1, 0, KV_NO_KEY, "with one holder left");
    kv_set_fill(&k, id, 3);
    kv_do(&k, "kv_release", id);
    kv_info_is(&k, id, 0, 0, KV_NO_KEY, "given back");
    kv_stats_are(&k, 8, 0, 0, "after the last release");
    kv_close(&k);
}

/* The check `name`: retain or release `times` times gives `done`, then STATE that names the block
 * and `terms` (NULL: success). */
static void check_repeated(kv_script *k, const char *op, uint32_t id, int times, int done,
                           const char *terms) {
    if (k->broken) {
        return;
    }
    const json_t *answer = ol_call(k->t, op, "{s:I, s:I, s:i}", "pool", (json_int_t)k->pool, "id",
                                   (json_int_t)id, "times", times);
    const char *what = ol_text(k->t, "%s %d times", op, times);
    if (terms == NULL) {
        ol_check_ok(k->t, k->check, answer, what);
    } else {
        terms = ol_text(k->t, OL_TERMS("block|id %u %s"), (unsigned)id, terms);
        ol_check_refused(k->t, k->check, answer, "STATE", terms, -1, what);
    }
    ol_check_int(k->t, k->check, json_integer_value(json_object_get(answer, "done")), done,
                 "calls that succeeded");
}

static void part_reference_maximum(ol_test *t) {
    kv_script k = kv_open(t, "reference_maximum", small);
    uint32_t id = kv_take(&k);
    kv_fill_and_register(&k, id, 1);
    check_repeated(&k, "kv_retain", id, 65534, 65534, NULL);
    kv_info_is(&k, id, 65535, 4, 1, "at the maximum");
    check_repeated(&k, "kv_retain", id, 3, 0, OL_TERMS("n_refs|refs|references 65535"));
    kv_lookup_refused(&k, 1, "STATE", "look-up of a block with 65,535 references");
    kv_info_is(&k, id, 65535, 4, 1, "after refused retain and look-up");
    kv_stats_are(&k, 7, 0, 1, "at the maximum");
    check_repeated(&k, "kv_release", id, 65534, 65534, NULL);
    kv_info_is(&k, id, 1, 4, 1, "with one holder left");
    check_repeated(&k, "kv_release", id, 2, 1, OL_TERMS("cached|used"));
    kv_stats_are(&k, 7, 1, 0, "after the last release");
    kv_close(&k);
}

/* ------------------------------------------------------------------ refusals */

static void part_unused(ol_test *t) {
    kv_script k = kv_open(t, "unused_refused", small);
    uint32_t ids[3];
    kv_alloc(&k, ids, 3);
    kv_do(&k, "kv_release", ids[0]);
    kv_cache(&k, ids[1], 1);
    uint64_t before = kv_digest(&k);
    kv_all_refused(&k, ids[0], "STATE", "a block that was given back");
    kv_all_refused(&k, ids[1], "STATE", "a cached block");
    for (uint32_t id = 0; id < small.n_blocks; id++) {
        if (id != ids[1] && id != ids[2]) {
            kv_refused(&k, "kv_release", id, "STATE", "release of a free block");
        }
    }
    kv_digest_is(&k, before, "refused calls on unused blocks");
    kv_stats_are(&k, 6, 1, 1, "after refused calls");
    kv_finds(&k, 1, ids[1]);
    kv_close(&k);
}

static void part_fill(ol_test *t) {
    kv_script k = kv_open(t, "fill_rules", small);
    uint32_t id = kv_take(&k);
    for (uint32_t fill = 0; fill <= 4; fill++) {
        kv_set_fill(&k, id, 4 - fill);
        kv_info_is(&k, id, 1, 4 - fill, KV_NO_KEY, "after set_fill");
    }
    kv_set_fill(&k, id, 3);
    kv_set_fill_refused(&k, id, 5, "INVALID", "fill 5 of 4");
    kv_set_fill_refused(&k, id, 0x80000000u, "INVALID", "fill 2^31 of 4");
    kv_set_fill_refused(&k, id, UINT32_MAX, "INVALID", "fill 2^32 - 1 of 4");
    kv_info_is(&k, id, 1, 3, KV_NO_KEY, "after refused fills");
    kv_fill_and_register(&k, id, 1);
    kv_set_fill(&k, id, 4);
    kv_set_fill_refused(&k, id, 3, "STATE", "fill 3 of 4 on a keyed block");
    kv_set_fill_refused(&k, id, 0, "STATE", "fill 0 on a keyed block");
    kv_info_is(&k, id, 1, 4, 1, "after refused fills");
    kv_close(&k);
}

/* ------------------------------------------------------------------ the index */

static void part_register(ol_test *t) {
    kv_script k = kv_open(t, "register_rules", small);
    uint32_t id = kv_take(&k);
    kv_register_refused(&k, id, 1, "STATE", "register of an empty block");
    kv_set_fill(&k, id, 3);
    kv_register_refused(&k, id, 1, "STATE", "register of a block that is not full");
    kv_lookup_refused(&k, 1, "NOT_FOUND", "look-up of a key that was refused");
    kv_fill_and_register(&k, id, 1);
    uint64_t before = kv_digest(&k);
    kv_register(&k, id, 1);
    kv_digest_is(&k, before, "register under the key that the block has");
    kv_register_refused(&k, id, 2, "STATE", "register of a block that has another key");
    kv_digest_is(&k, before, "the refused register");
    kv_lookup_refused(&k, 2, "NOT_FOUND", "look-up of the refused key");
    kv_do(&k, "kv_retain", id);
    kv_register(&k, id, 1);
    kv_info_is(&k, id, 2, 4, 1, "registered again while two hold it");
    kv_close(&k);
}

static void part_second_holder(ol_test *t) {
    kv_script k = kv_open(t, "register_second_holder", small);
    uint32_t ids[2];
    kv_alloc(&k, ids, 2);
    kv_fill_and_register(&k, ids[0], 1);
    kv_fill_and_register(&k, ids[1], 1);
    kv_info_is(&k, ids[0], 1, 4, 1, "which had the key first");
    kv_info_is(&k, ids[1], 1, 4, KV_NO_KEY, "whose key was taken");
    kv_finds(&k, 1, ids[0]);
    kv_set_fill(&k, ids[1], 2);
    kv_fill_and_register(&k, ids[1], 2);
    kv_finds(&k, 2, ids[1]);
    kv_close(&k);
    /* The first holder may be cached; its key is its own all the same, and the second one goes
     * free. */
    k = kv_open(t, "register_second_holder", small);
    kv_alloc(&k, ids, 2);
    kv_cache(&k, ids[0], 1);
    kv_cache(&k, ids[1], 1);
    kv_stats_are(&k, 7, 1, 0, "after both were given back");
    kv_finds(&k, 1, ids[0]);
    kv_close(&k);
}

static void part_release(ol_test *t) {
    kv_script k = kv_open(t, "release_caches_or_frees", small);
    uint32_t ids[3];
    kv_alloc(&k, ids, 3);
    kv_fill_and_register(&k, ids[0], 1);
    kv_do(&k, "kv_retain", ids[0]);
    kv_set_fill(&k, ids[1], 4);
    kv_do(&k, "kv_release", ids[0]);
    kv_stats_are(&k, 5, 0, 3, "while a keyed block has a holder");
    kv_do(&k, "kv_release", ids[0]);
    kv_stats_are(&k, 5, 1, 2, "after the last release of a keyed block");
    kv_info_is(&k, ids[0], 0, -1, 1, "cached");
    kv_do(&k, "kv_release", ids[1]);
    kv_stats_are(&k, 6, 1, 1, "after the release of a full block without a key");
    kv_do(&k, "kv_release", ids[2]);
    kv_stats_are(&k, 7, 1, 0, "after the release of an empty block");
    kv_close(&k);
}

static void part_lookup(ol_test *t) {
    kv_script k = kv_open(t, "lookup_takes_reference", small);
    uint32_t ids[2];
    kv_alloc(&k, ids, 2);
    kv_fill_and_register(&k, ids[0], 1);
    kv_cache(&k, ids[1], 2);
    kv_finds(&k, 1, ids[0]);
    kv_info_is(&k, ids[0], 2, 4, 1, "looked up while used");
    kv_finds(&k, 2, ids[1]);
    kv_info_is(&k, ids[1], 1, 4, 2, "looked up while cached");
    kv_stats_are(&k, 6, 0, 2, "after both look-ups");
    kv_do(&k, "kv_release", ids[1]);
    kv_stats_are(&k, 6, 1, 1, "after the release");
    kv_close(&k);
}

/* Keys that differ from the registered one in a single bit, in every place: all 128 bits are the
 * key. */
static void near_keys_miss(kv_script *k, int key) {
    for (size_t bit = 0; !k->broken && bit < 128; bit++) {
        static const char digits[] = "0123456789abcdef";
        char text[KV_KEY_TEXT];
        (void)kv_key(key, text);
        size_t value = (size_t)(strchr(digits, text[bit / 4]) - digits);
        text[bit / 4] = digits[value ^ ((size_t)1 << bit % 4)];
        const json_t *answer =
            ol_call(k->t, "kv_lookup", "{s:I, s:s}", "pool", (json_int_t)k->pool, "key", text);
        ol_check_refused(k->t, k->check, answer, "NOT_FOUND", NULL, -1,
                         "look-up of a key that differs in one bit");
    }
}

/* In the index of a pool of one block two keys have hardly a choice but to meet. */
static void part_near_keys(ol_test *t) {
    kv_shape one = small;
    one.n_blocks = 1;
    static const int keys[] = {1, KV_ZEROS_KEY};
    for (size_t i = 0; i < TEST_COUNT(keys); i++) {
        kv_script k = kv_open(t, "lookup_misses", one);
        kv_fill_and_register(&k, kv_take(&k), keys[i]);
        near_keys_miss(&k, keys[i]);
        kv_close(&k);
    }
}

static void part_misses(ol_test *t) {
    kv_script k = kv_open(t, "lookup_misses", small);
    kv_lookup_refused(&k, 1, "NOT_FOUND", "look-up in a new pool");
    uint32_t ids[2];
    kv_alloc(&k, ids, 2);
    kv_fill_and_register(&k, ids[0], 1);
    kv_cache(&k, ids[1], 2);
    uint64_t before = kv_digest(&k);
    kv_lookup_refused(&k, 3, "NOT_FOUND", "look-up of a key that was never registered");
    near_keys_miss(&k, 1);
    kv_digest_is(&k, before, "look-ups that missed");
    kv_stats_are(&k, 6, 1, 1, "after look-ups that missed");
    kv_close(&k);
}

static void part_cache_off(ol_test *t) {
    kv_shape shape = small;
    shape.cache_off = true;
    kv_script k = kv_open(t, "cache_off", shape);
    uint32_t ids[2];
    kv_alloc(&k, ids, 2);
    kv_set_fill(&k, ids[0], 4);
    kv_register_refused(&k, ids[0], 1, "STATE", "register with caching off");
    kv_lookup_refused(&k, 1, "NOT_FOUND", "look-up with caching off");
    kv_info_is(&k, ids[0], 1, 4, KV_NO_KEY, "after the refused register");
    kv_set_fill(&k, ids[0], 1);
    kv_do(&k, "kv_release", ids[0]);
    kv_do(&k, "kv_release", ids[1]);
    kv_stats_are(&k, 8, 0, 0, "after both were given back");
    kv_close(&k);
}

/* ------------------------------------------------------------------ ids, slabs */

static void part_ids(ol_test *t) {
    kv_script k = kv_open(t, "ids_checked", small);
    uint32_t used = kv_take(&k);
    kv_set_fill(&k, used, 4);
    uint64_t before = kv_digest(&k);
    const uint32_t past[] = {8,         9, used + 0x10000u, used + 0x80000000u, used + 0x1000000u,
                             UINT32_MAX};
    for (size_t i = 0; i < TEST_COUNT(past); i++) {
        const char *what = ol_text(t, "id %u of a pool of 8", (unsigned)past[i]);
        kv_all_refused(&k, past[i], "INVALID", what);
        kv_refused(&k, "kv_info", past[i], "INVALID", ol_text(t, "%s: block_info", what));
        if (!k.broken) {
            const uint32_t ids[] = {used, past[i]};
            const json_t *answer = ol_call(t, "kv_export", "{s:I, s:o, s:i}", "pool",
                                           (json_int_t)k.pool, "ids", ol_u32(ids, 2), "cap", 4096);
            ol_check_refused(t, k.check, answer, "INVALID",
                             ol_text(t, OL_TERMS("block|ids %u 8|7"), (unsigned)past[i]), -1,
                             ol_text(t, "%s: export", what));
        }
    }
    kv_digest_is(&k, before, "calls with ids past the pool");
    kv_close(&k);
}

static uint16_t element(uint32_t id, uint32_t layer, int side, size_t at) {
    return (uint16_t)(((id * 2 + layer) * 2 + (uint32_t)side) * 97u + at + 1u);
}

static void part_slabs(ol_test *t) {
    static const char *const sides[] = {"k", "v"};
    const kv_shape shape = {
        .n_blocks = 5, .block_tokens = 3, .n_layers = 2, .n_kv_heads = 2, .head_dim = 5};
    kv_script k = kv_open(t, "slab_addressing", shape);
    size_t n = kv_slab_len(&shape);
    uint16_t *values = ol_alloc(t, n * sizeof *values);
    uint32_t ids[5];
    kv_alloc(&k, ids, 5);
    for (uint32_t i = 0; i < 5 * 2 * 2; i++) {
        for (size_t at = 0; at < n; at++) {
            values[at] = element(ids[i / 4], i / 2 % 2, (int)(i % 2), at);
        }
        kv_write(&k, ids[i / 4], i / 2 % 2, sides[i % 2], values, n);
    }
    for (uint32_t i = 0; i < 5 * 2 * 2; i++) {
        const uint16_t *got = kv_read(&k, ids[i / 4], i / 2 % 2, sides[i % 2]);
        for (size_t at = 0; at < n; at++) {
            values[at] = element(ids[i / 4], i / 2 % 2, (int)(i % 2), at);
        }
        if (got != NULL) {
            ol_check_u16s(t, k.check, got, n, values, n, "slab, after all were written");
        }
    }
    kv_read_refused(&k, ids[0], 2, "k", "INVALID", "layer 2 of 2");
    kv_read_refused(&k, ids[0], UINT32_MAX, "v", "INVALID", "layer 2^32 - 1 of 2");
    kv_read_refused(&k, ids[0], 0x80000000u, "k", "INVALID", "layer 2^31 of 2");
    kv_read_refused(&k, ids[0], 0, "x", "INVALID", "a side that is neither K nor V");
    kv_close(&k);
}

void test_kv_pool_bounds_and_cache_lifecycle(ol_test *t) {
    static const test_part parts[] = {
        {"new", part_new},
        {"zeroed", part_zeroed},
        {"alloc", part_alloc},
        {"alloc-cached", part_alloc_cached},
        {"fresh", part_fresh},
        {"references", part_references},
        {"reference-maximum", part_reference_maximum},
        {"unused", part_unused},
        {"fill", part_fill},
        {"register", part_register},
        {"second-holder", part_second_holder},
        {"release", part_release},
        {"lookup", part_lookup},
        {"misses", part_misses},
        {"near keys", part_near_keys},
        {"cache-off", part_cache_off},
        {"ids", part_ids},
        {"slabs", part_slabs},
        {"walk", test_kv_walk},
        {"walk-cache-off", test_kv_walk_cache_off},
        {"large-pool", test_kv_large_pool},
    };
    test_run_parts(t, parts, TEST_COUNT(parts));
}
