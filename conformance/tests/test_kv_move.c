/* test_kv_move.c: blocks that leave a pool and come into one: what must succeed, and the golden.
 *
 * Property: an envelope is the page's bytes, carries fills, keys and every bit of the filled
 * positions, and nothing of the others; import is all or nothing. What must be refused byte by byte
 * is in test_kv_envelope.c.
 *
 * Source: conformance/spec/kv-block.md, clauses envelope, export, import. */
#include "test_kv_move.h"

#include <string.h>

static const kv_shape shape = {.n_blocks = 6,
                               .block_tokens = 3,
                               .n_layers = 2,
                               .n_kv_heads = 2,
                               .head_dim = 4,
                               .model_tag = 0x51};

enum { N_SENT = 4 };
static const uint32_t sent_fills[N_SENT] = {3, 3, 2, 0};
static const int sent_keys[N_SENT] = {7, KV_NO_KEY, KV_NO_KEY, KV_NO_KEY};

/* Every slab of a block in turn, drawn over all 65,536 patterns, with the special ones among
 * them. */
static uint16_t *draw_slabs(ol_test *t, const kv_shape *s) {
    static const uint16_t special[] = {0x7e01, 0xfe00, 0x7c01, 0x7c00,
                                       0xfc00, 0x8000, 0x0001, 0xffff};
    size_t n = 2 * s->n_layers * kv_slab_len(s);
    uint16_t *values = ol_alloc(t, n * sizeof *values);
    for (size_t i = 0; i < n; i++) {
        /* Never 0, so that a stale value shows. */
        values[i] = (uint16_t)(1 + ol_rand_below(t, 65535));
        if (ol_rand_below(t, 4) == 0) {
            values[i] = special[ol_rand_below(t, TEST_COUNT(special))];
        }
    }
    return values;
}

static void put_block(kv_script *k, uint32_t id, const env_block *block) {
    size_t n = kv_slab_len(&k->shape);
    for (uint32_t i = 0; i < 2 * k->shape.n_layers; i++) {
        kv_write(k, id, i / 2, i % 2 == 0 ? "k" : "v", block->slabs + i * n, n);
    }
    kv_set_fill(k, id, block->fill);
    if (block->key != KV_NO_KEY) {
        kv_register(k, id, block->key);
    }
}

/* A pool with the four blocks in it. */
static kv_script sender(ol_test *t, const char *check, uint32_t ids[N_SENT],
                        env_block blocks[N_SENT]) {
    kv_script k = kv_open(t, check, shape);
    kv_alloc(&k, ids, N_SENT);
    for (size_t i = 0; i < N_SENT; i++) {
        blocks[i] = (env_block){sent_fills[i], sent_keys[i], draw_slabs(t, &shape)};
        put_block(&k, ids[i], &blocks[i]);
    }
    return k;
}

/* The bytes of an export that must succeed. */
static envelope must_export(kv_script *k, const uint32_t *ids, size_t n_ids) {
    envelope e = {0};
    const json_t *answer = env_export(k, ids, n_ids, -1);
    if (answer == NULL) {
        return e;
    }
    if (!ol_check_ok(k->t, k->check, answer, "export")) {
        k->broken = true;
        return e;
    }
    e.bytes = ol_res_u8s(k->t, answer, "bytes", &e.n_bytes);
    return e;
}

/* Fill every slab of a pool with values and give all blocks back: what import leaves alone
 * shows. */
static void soil(kv_script *k) {
    size_t n = kv_slab_len(&k->shape);
    uint16_t *junk = ol_alloc(k->t, n * sizeof *junk);
    uint32_t *ids = ol_alloc(k->t, k->shape.n_blocks * sizeof *ids);
    memset(junk, 0x6b, n * sizeof *junk);
    kv_alloc(k, ids, k->shape.n_blocks);
    for (uint32_t i = 0; !k->broken && i < k->shape.n_blocks; i++) {
        for (uint32_t j = 0; j < 2 * k->shape.n_layers; j++) {
            kv_write(k, ids[i], j / 2, j % 2 == 0 ? "k" : "v", junk, n);
        }
        kv_do(k, "kv_release", ids[i]);
    }
}

/* An imported block's slabs: the values, and zeros from the fill on. */
static void check_slabs(kv_script *k, uint32_t id, const env_block *block) {
    size_t n = kv_slab_len(&k->shape);
    uint16_t *want = ol_alloc(k->t, n * sizeof *want);
    for (uint32_t i = 0; i < 2 * k->shape.n_layers; i++) {
        for (size_t at = 0; at < n; at++) {
            bool stale = env_is_stale(&k->shape, at, block->fill);
            want[at] = stale ? 0 : block->slabs[i * n + at];
        }
        const uint16_t *got = kv_read(k, id, i / 2, i % 2 == 0 ? "k" : "v");
        if (got != NULL) {
            ol_check_u16s(k->t, k->check, got, n, want, n,
                          ol_text(k->t, "%s slab of layer %u of an imported block",
                                  i % 2 == 0 ? "K" : "V", (unsigned)(i / 2)));
        }
    }
}

/* ------------------------------------------------------------------ round trip */

static void part_round_trip(ol_test *t) {
    uint32_t ids[N_SENT];
    env_block blocks[N_SENT];
    kv_script from = sender(t, "round_trip_values", ids, blocks);
    envelope e = must_export(&from, ids, N_SENT);
    kv_script to = kv_open(t, "round_trip_values", shape);
    soil(&to);
    uint32_t came[N_SENT] = {0};
    if (!from.broken) {
        env_take(&to, &e, came, N_SENT);
        for (size_t i = 0; i < N_SENT; i++) {
            check_slabs(&to, came[i], &blocks[i]);
        }
    }
    kv_close(&from);
    kv_close(&to);
}

/* In another order than that of the ids, so that records and blocks are told apart. */
static void part_round_trip_state(ol_test *t) {
    uint32_t ids[N_SENT];
    env_block blocks[N_SENT];
    kv_script from = sender(t, "round_trip_state", ids, blocks);
    kv_do(&from, "kv_retain", ids[1]);
    const uint32_t order[N_SENT] = {ids[2], ids[0], ids[3], ids[1]};
    static const size_t index[N_SENT] = {2, 0, 3, 1};
    uint64_t before = kv_digest(&from);
    envelope e = must_export(&from, order, N_SENT);
    kv_digest_is(&from, before, "export");
    kv_script to = kv_open(t, "round_trip_state", shape);
    uint32_t came[N_SENT] = {0};
    if (!from.broken) {
        env_take(&to, &e, came, N_SENT);
        for (size_t i = 0; i < N_SENT; i++) {
            kv_info_is(&to, came[i], 1, sent_fills[index[i]], sent_keys[index[i]], "imported");
        }
        kv_stats_are(&to, 2, 0, 4, "after the import");
        kv_finds(&to, 7, came[1]);
    }
    kv_close(&from);
    kv_close(&to);
}

/* The judge's own envelope of the same blocks is the same bytes. */
static void part_own_bytes(ol_test *t) {
    uint32_t ids[N_SENT];
    env_block blocks[N_SENT];
    kv_script k = sender(t, "export_bytes", ids, blocks);
    envelope got = must_export(&k, ids, N_SENT);
    if (!k.broken) {
        envelope want = env_build(t, &shape, blocks, N_SENT);
        ol_check_u8s(t, k.check, got.bytes, got.n_bytes, want.bytes, want.n_bytes, "envelope");
    }
    kv_close(&k);
}

static void part_own_import(ol_test *t) {
    env_block blocks[N_SENT];
    for (size_t i = 0; i < N_SENT; i++) {
        blocks[i] = (env_block){sent_fills[i], sent_keys[i], draw_slabs(t, &shape)};
    }
    envelope e = env_build(t, &shape, blocks, N_SENT);
    kv_script k = kv_open(t, "import_golden", shape);
    soil(&k);
    uint32_t ids[N_SENT];
    env_take(&k, &e, ids, N_SENT);
    for (size_t i = 0; i < N_SENT; i++) {
        kv_info_is(&k, ids[i], 1, sent_fills[i], sent_keys[i], "imported");
        check_slabs(&k, ids[i], &blocks[i]);
    }
    kv_close(&k);
}

static void part_stale(ol_test *t) {
    uint32_t ids[N_SENT];
    env_block blocks[N_SENT];
    kv_script k = sender(t, "stale_slots", ids, blocks);
    uint64_t before = kv_digest(&k);
    envelope e = must_export(&k, ids, N_SENT);
    kv_digest_is(&k, before, "export cleans its copy, not the pool");
    size_t n_slab = kv_slab_len(&shape);
    size_t n = 2 * shape.n_layers * n_slab;
    bool whole =
        e.bytes != NULL && ol_check_int(t, k.check, (int64_t)e.n_bytes,
                                        (int64_t)env_record_at(&shape, N_SENT), "envelope bytes");
    for (size_t i = 0; whole && i < N_SENT * n; i++) {
        size_t at = env_element_at(&shape, i / n, 0, i % n);
        if (env_is_stale(&shape, i % n % n_slab, sent_fills[i / n])) {
            ol_check(t, k.check, e.bytes[at] == 0 && e.bytes[at + 1] == 0,
                     "byte %zu of the envelope carries a value past the fill of block %zu", at,
                     i / n);
        }
    }
    kv_close(&k);
}

/* ------------------------------------------------------------------ refused exports */

static void check_export_refused(kv_script *k, const uint32_t *ids, size_t n_ids,
                                 const char *status, const char *what) {
    const json_t *answer = env_export(k, ids, n_ids, 4096);
    if (answer != NULL) {
        ol_check_refused(k->t, k->check, answer, status, NULL, -1, what);
    }
}

static void check_short_buffer(kv_script *k, const uint32_t *ids, size_t n_ids, int64_t cap) {
    const json_t *answer = env_export(k, ids, n_ids, cap);
    if (answer == NULL) {
        return;
    }
    const char *what = ol_text(k->t, "export of %zu blocks into %d bytes", n_ids, (int)cap);
    ol_check_refused(k->t, k->check, answer, "CAPACITY", NULL, -1, what);
    ol_check_int(k->t, k->check, json_integer_value(json_object_get(answer, "needed")),
                 (int64_t)env_record_at(&k->shape, n_ids), "size needed");
}

static void part_export_refusals(ol_test *t) {
    uint32_t ids[N_SENT];
    env_block blocks[N_SENT];
    kv_script k = sender(t, "export_refusals", ids, blocks);
    kv_do(&k, "kv_release", ids[3]);
    kv_do(&k, "kv_release", ids[0]);
    const uint32_t with_free[] = {ids[1], ids[3]};
    const uint32_t with_cached[] = {ids[1], ids[0]};
    const uint32_t twice[] = {ids[1], ids[2], ids[1]};
    const uint32_t past[] = {ids[1], shape.n_blocks};
    const uint32_t good[] = {ids[2], ids[1]};
    uint64_t before = kv_digest(&k);
    check_export_refused(&k, with_free, 2, "STATE", "export of a free block");
    check_export_refused(&k, with_cached, 2, "STATE", "export of a cached block");
    check_export_refused(&k, twice, 3, "INVALID", "export of one block twice");
    check_export_refused(&k, past, 2, "INVALID", "export of an id past the pool");
    check_short_buffer(&k, good, 2, (int64_t)env_record_at(&shape, 2) - 1);
    check_short_buffer(&k, good, 2, 63);
    check_short_buffer(&k, good, 2, 0);
    check_short_buffer(&k, good, 0, 63);
    kv_digest_is(&k, before, "refused exports");
    const json_t *answer = env_export(&k, good, 2, (int64_t)env_record_at(&shape, 2));
    if (answer != NULL) {
        ol_check_ok(t, k.check, answer, "export into exactly enough bytes");
    }
    kv_close(&k);
}

/* In a pool of many blocks each one may stand once, and none twice, whatever the ids are. */
static void part_export_many(ol_test *t) {
    enum { MANY = 40000, LISTED = 200 };
    static const uint32_t doubled[] = {0,   1,   62,   63,   64,    65,    126,  127,
                                       128, 199, 4095, 4096, 32767, 32768, 39999};
    const kv_shape wide = {
        .n_blocks = MANY, .block_tokens = 1, .n_layers = 1, .n_kv_heads = 1, .head_dim = 1};
    kv_script k = kv_open(t, "export_refusals", wide);
    uint32_t *ids = ol_alloc(t, MANY * sizeof *ids);
    kv_alloc(&k, ids, MANY);
    /* All are used now, so any id may be listed: the first ones and some further apart, backwards
     * in the end. */
    for (uint32_t i = 0; i < LISTED; i++) {
        ids[i] = i < LISTED / 2 ? i : MANY - 1 - 64 * (i - LISTED / 2);
    }
    const int64_t cap = (int64_t)env_record_at(&wide, LISTED + 2);
    const json_t *answer = env_export(&k, ids, LISTED, cap);
    if (answer != NULL) {
        ol_check_ok(t, k.check, answer, "export of 200 of 40,000 blocks");
    }
    for (size_t i = 0; i < TEST_COUNT(doubled); i++) {
        ids[0] = ids[LISTED] = doubled[i];
        answer = env_export(&k, ids, LISTED + 1, cap);
        if (answer != NULL) {
            const char *what = ol_text(t, "block %u", (unsigned)doubled[i]);
            ol_check_refused(t, k.check, answer, "INVALID",
                             ol_text(t, OL_TERMS("block|ids %u"), (unsigned)doubled[i]), -1,
                             ol_text(t, "export of 201 blocks, %s twice", what));
        }
    }
    kv_close(&k);
}

static void part_empty(ol_test *t) {
    kv_script k = kv_open(t, "empty_envelope", shape);
    uint32_t id = kv_take(&k);
    envelope got = must_export(&k, NULL, 0);
    envelope want = env_build(t, &shape, NULL, 0);
    if (!k.broken) {
        ol_check_u8s(t, k.check, got.bytes, got.n_bytes, want.bytes, want.n_bytes,
                     "envelope of no block");
    }
    uint64_t before = kv_digest(&k);
    env_take(&k, &want, &id, 0);
    kv_digest_is(&k, before, "import of no block");
    kv_stats_are(&k, 5, 0, 1, "after import of no block");
    kv_close(&k);
}

/* ------------------------------------------------------------------ tags, room */

/* Import of one block with this tag into a pool with that one. */
static void part_tag_zero(ol_test *t) {
    static const struct {
        uint64_t ours, theirs;
    } tags[] = {{0, 0x1234}, {0x1234, 0}, {0, 0}, {0x8000000000000001u, 0x8000000000000001u}};
    for (size_t i = 0; i < TEST_COUNT(tags); i++) {
        kv_shape sent = shape;
        sent.model_tag = tags[i].theirs;
        env_block block = {3, KV_NO_KEY, draw_slabs(t, &shape)};
        envelope e = env_build(t, &sent, &block, 1);
        kv_shape ours = shape;
        ours.model_tag = tags[i].ours;
        kv_script k = kv_open(t, "model_tag_zero", ours);
        uint32_t id;
        env_take(&k, &e, &id, 1);
        check_slabs(&k, id, &block);
        kv_close(&k);
    }
}

static void check_capacity(kv_script *k, const envelope *e, int64_t cap, int64_t needed,
                           const char *what) {
    const json_t *answer = env_import(k, e, cap);
    if (answer == NULL) {
        return;
    }
    ol_check_refused(k->t, k->check, answer, "CAPACITY", NULL, -1, what);
    ol_check_int(k->t, k->check, json_integer_value(json_object_get(answer, "needed")), needed,
                 "count needed");
}

/* One used, one cached, one free. */
static void part_capacity(ol_test *t) {
    kv_shape three = shape;
    three.n_blocks = 3;
    env_block blocks[3];
    for (size_t i = 0; i < 3; i++) {
        blocks[i] = (env_block){3, (int)i + 20, draw_slabs(t, &shape)};
    }
    envelope of_two = env_build(t, &shape, blocks, 2);
    envelope of_three = env_build(t, &shape, blocks, 3);
    kv_script k = kv_open(t, "capacity", three);
    uint32_t ids[3];
    kv_alloc(&k, ids, 3);
    kv_cache(&k, ids[0], 1);
    kv_do(&k, "kv_release", ids[1]);
    uint64_t before = kv_digest(&k);
    check_capacity(&k, &of_three, -1, 3, "3 blocks into 1 free and 1 cached");
    check_capacity(&k, &of_three, 3, 3, "3 blocks into 1 free and 1 cached, room for 3 ids");
    check_capacity(&k, &of_two, 1, 2, "2 blocks, room for 1 id");
    check_capacity(&k, &of_two, 0, 2, "2 blocks, room for no id");
    kv_digest_is(&k, before, "imports for which there is no room");
    kv_finds(&k, 1, ids[0]);
    kv_do(&k, "kv_release", ids[0]);
    uint32_t came[2];
    env_take(&k, &of_two, came, 2);
    kv_stats_are(&k, 0, 0, 3, "after the import that fits");
    kv_lookup_refused(&k, 1, "NOT_FOUND", "look-up of the evicted key");
    kv_close(&k);
}

/* ------------------------------------------------------------------ keys */

static envelope one_keyed(ol_test *t, int key) {
    env_block block = {3, key, draw_slabs(t, &shape)};
    return env_build(t, &shape, &block, 1);
}

/* The key is in the index: the block comes in without. */
static void part_key_taken(ol_test *t) {
    envelope e = one_keyed(t, 1);
    for (int cached = 0; cached < 2; cached++) {
        kv_script k = kv_open(t, "keys_after_allocation", shape);
        uint32_t id = kv_take(&k);
        kv_fill_and_register(&k, id, 1);
        if (cached != 0) {
            kv_do(&k, "kv_release", id);
        }
        uint32_t came;
        env_take(&k, &e, &came, 1);
        kv_info_is(&k, came, 1, 3, KV_NO_KEY, "imported under a key that is taken");
        kv_finds(&k, 1, id);
        kv_close(&k);
    }
    kv_shape off = shape;
    off.cache_off = true;
    kv_script k = kv_open(t, "keys_after_allocation", off);
    uint32_t came;
    env_take(&k, &e, &came, 1);
    kv_info_is(&k, came, 1, 3, KV_NO_KEY, "imported with caching off");
    kv_close(&k);
}

/* The pool is full of cached blocks. The key of the one that goes is free by then; that of one that
 * stays is not. */
static void part_key_evicted(ol_test *t) {
    kv_shape two = shape;
    two.n_blocks = 2;
    for (int key = 1; key <= 2; key++) {
        kv_script k = kv_open(t, "keys_after_allocation", two);
        uint32_t ids[2];
        kv_alloc(&k, ids, 2);
        kv_cache(&k, ids[0], 1);
        kv_cache(&k, ids[1], 2);
        envelope e = one_keyed(t, key);
        uint32_t came;
        env_take(&k, &e, &came, 1);
        if (!k.broken) {
            ol_check_int(t, k.check, came, ids[0], "block that the import evicted");
        }
        kv_info_is(&k, came, 1, 3, key == 1 ? 1 : KV_NO_KEY,
                   key == 1 ? "imported under the key of the block that it evicted"
                            : "imported under the key of a block that stays");
        kv_finds(&k, key, key == 1 ? came : ids[1]);
        kv_close(&k);
    }
}

static void part_key_twice(ol_test *t) {
    env_block blocks[3];
    for (size_t i = 0; i < 3; i++) {
        blocks[i] = (env_block){3, i == 2 ? 6 : 5, draw_slabs(t, &shape)};
    }
    envelope e = env_build(t, &shape, blocks, 3);
    kv_script k = kv_open(t, "keys_after_allocation", shape);
    uint32_t ids[3];
    env_take(&k, &e, ids, 3);
    kv_info_is(&k, ids[0], 1, 3, 5, "the first of two with one key");
    kv_info_is(&k, ids[1], 1, 3, KV_NO_KEY, "the second of two with one key");
    kv_info_is(&k, ids[2], 1, 3, 6, "with a key of its own");
    kv_finds(&k, 5, ids[0]);
    kv_close(&k);
}

void test_kv_pool_exports_and_imports_rust_owned_blocks(ol_test *t) {
    static const test_part parts[] = {
        {"round-trip", part_round_trip},
        {"round-trip-state", part_round_trip_state},
        {"own-bytes", part_own_bytes},
        {"own-import", part_own_import},
        {"stale", part_stale},
        {"export-refusals", part_export_refusals},
        {"export-many", part_export_many},
        {"empty-envelope", part_empty},
        {"tag-zero", part_tag_zero},
        {"capacity", part_capacity},
        {"key-taken", part_key_taken},
        {"key-evicted", part_key_evicted},
        {"key-twice-own", part_key_twice},
        {"flips", test_kv_envelope_flips},
        {"cuts", test_kv_envelope_cuts},
        {"faults", test_kv_envelope_faults},
        {"order", test_kv_envelope_order},
        {"second-record", test_kv_envelope_second_record},
    };
    for (size_t i = 0; i < ol_n_cases(t, "kv"); i++) {
        test_kv_golden(t, ol_case_at(t, "kv", i));
    }
    test_run_parts(t, parts, TEST_COUNT(parts));
}
