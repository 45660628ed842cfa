/* Export and import: the bytes of the page written down by hand, the round trip, every byte
 * flipped, every cut, each rule with its status and offset, and a pool that is the same memory,
 * byte for byte, after each refusal.
 *
 * Source: conformance/spec/kv-block.md, envelope version 1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "kv_internal.h"
#include "util.h"

/* 4 blocks, 2 positions, 1 layer, 2 heads, 2 elements: a slab has 8 values, a record 24 + 32
 * bytes. */
enum { B = 2, SLAB = 8, RECORD = 24 + 2 * SLAB * 2, MAX_BYTES = 64 + 4 * RECORD };

static tl_kv_cfg config(uint64_t model_tag) {
    const tl_kv_cfg cfg = {
        4, B, 1, 2, 2, TL_KV_DTYPE_F16, TL_KV_FORMAT_V1, TL_PREFIX_CACHE_ON, model_tag};
    return cfg;
}

static tl_kv_pool *new_pool(uint64_t model_tag) {
    const tl_kv_cfg cfg = config(model_tag);
    tl_kv_pool *pool = NULL;
    assert_int_equal(tl_kv_pool_new(&pool, &cfg, NULL), TL_OK);
    return pool;
}

static tl_prefix_key key_of(uint8_t first) {
    tl_prefix_key key;
    for (uint8_t i = 0; i < 16; i++) {
        key.bytes[i] = (uint8_t)(first + i);
    }
    return key;
}

static void write_slab(tl_kv_pool *pool, uint32_t id, tl_kv_side side, uint16_t first) {
    uint16_t *slab = NULL;
    size_t n = 0;
    assert_int_equal(tl_kv_pool_slab_mut(pool, id, 0, side, &slab, &n, NULL), TL_OK);
    assert_int_equal(n, SLAB);
    for (uint32_t i = 0; i < SLAB; i++) {
        slab[i] = (uint16_t)(first + i);
    }
}

/* A block with values everywhere, also past its fill. key 0: none. */
static uint32_t add_block(tl_kv_pool *pool, uint32_t fill, uint8_t key, uint16_t first) {
    uint32_t id = 0;
    assert_int_equal(tl_kv_pool_alloc(pool, &id, 1, NULL), TL_OK);
    write_slab(pool, id, TL_KV_K, first);
    write_slab(pool, id, TL_KV_V, (uint16_t)(first + 0x100));
    assert_int_equal(tl_kv_pool_set_fill(pool, id, fill, NULL), TL_OK);
    if (key != 0) {
        const tl_prefix_key bytes = key_of(key);
        assert_int_equal(tl_kv_pool_register(pool, id, &bytes, NULL), TL_OK);
    }
    return id;
}

/* ---- all memory of a pool, to be compared ---------------------------------------------------- */

typedef struct snapshot {
    tl_kv_pool pool;
    tli_kv_block blocks[4];
    uint32_t slots[4];
    uint16_t slabs[4 * 2 * SLAB];
} snapshot;

static void take_snapshot(const tl_kv_pool *pool, snapshot *s) {
    assert_true(pool->cfg.n_blocks <= 4 && pool->n_slots <= 4);
    memset(s, 0, sizeof *s);
    memcpy(&s->pool, pool, sizeof *pool);
    memcpy(s->blocks, pool->blocks, pool->cfg.n_blocks * sizeof s->blocks[0]);
    memcpy(s->slots, pool->slots, pool->n_slots * sizeof s->slots[0]);
    memcpy(s->slabs, pool->slabs, pool->cfg.n_blocks * pool->block_len * sizeof s->slabs[0]);
}

/* The import of bytes fails with this status and offset, and changes neither the pool nor an
 * output. */
static void assert_refused(tl_kv_pool *pool, const uint8_t *bytes, size_t n_bytes, tl_status status,
                           uint64_t offset) {
    static snapshot before;
    static snapshot after;
    uint32_t ids[4] = {9, 9, 9, 9};
    size_t n_ids = 99;
    tl_error err = {TL_OK, 0, ""};
    /* Memory of exactly that size, so that a sanitizer sees any read past it. */
    uint8_t *copy = malloc(n_bytes == 0 ? 1 : n_bytes);
    assert_non_null(copy);
    memcpy(copy, bytes, n_bytes);
    take_snapshot(pool, &before);
    assert_int_equal(tl_kv_pool_import(pool, copy, n_bytes, ids, 4, &n_ids, &err), status);
    assert_int_equal(tl_kv_pool_import(pool, copy, n_bytes, ids, 4, &n_ids, NULL), status);
    take_snapshot(pool, &after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(err.status, status);
    assert_true(err.offset == offset);
    assert_true(ids[0] == 9 && ids[3] == 9 && (n_ids == 99 || status == TL_ERR_CAPACITY));
    free(copy);
}

/* ---- the bytes ------------------------------------------------------------------------------- */

static void put_checksums(uint8_t *bytes, size_t n_bytes) {
    tli_store_u32(bytes + 56, (uint32_t)crc32(0, bytes + 64, (uInt)(n_bytes - 64)));
    tli_store_u32(bytes + 60, (uint32_t)crc32(0, bytes, 60));
}

/* A full block with key 0x10.. and one with one of two positions. Returns the size. */
static size_t export_two(tl_kv_pool *pool, uint8_t *bytes) {
    const uint32_t ids[2] = {add_block(pool, B, 0x10, 0x1000), add_block(pool, 1, 0, 0x2000)};
    size_t n = 0;
    assert_int_equal(tl_kv_pool_export(pool, ids, 2, bytes, MAX_BYTES, &n, NULL), TL_OK);
    assert_int_equal(n, 64 + 2 * RECORD);
    return n;
}

static void export_has_the_bytes_of_the_page(void **state) {
    (void)state;
    static const uint8_t head[56] = {
        0x54, 0x4c, 0x4b, 0x56, 1, 0, 0, 0, 64, 0, 0,    0,    1,    0,    0,    0,    2,    0,   0,
        0,    2,    0,    0,    0, 1, 0, 0, 0,  2, 0,    0,    0,    2,    0,    0,    0,    0,   0,
        0,    0,    112,  0,    0, 0, 0, 0, 0,  0, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01};
    uint8_t expected[64 + 2 * RECORD] = {0};
    uint8_t bytes[MAX_BYTES];
    tl_kv_pool *pool = new_pool(UINT64_C(0x0123456789abcdef));
    const size_t n = export_two(pool, bytes);
    memcpy(expected, head, sizeof head);
    uint8_t *first = expected + 64;
    uint8_t *second = first + RECORD;
    const tl_prefix_key key = key_of(0x10);
    tli_store_u32(first, 2);
    tli_store_u32(first + 4, 1);
    memcpy(first + 8, key.bytes, 16);
    tli_store_u32(second, 1);
    for (uint32_t i = 0; i < SLAB; i++) {
        const bool shown = i % 4 < 2; /* the first of two positions, in each head */
        tli_store_u16(first + 24 + 2 * i, (uint16_t)(0x1000 + i));
        tli_store_u16(first + 24 + 2 * SLAB + 2 * i, (uint16_t)(0x1100 + i));
        tli_store_u16(second + 24 + 2 * i, shown ? (uint16_t)(0x2000 + i) : 0);
        tli_store_u16(second + 24 + 2 * SLAB + 2 * i, shown ? (uint16_t)(0x2100 + i) : 0);
    }
    put_checksums(expected, sizeof expected);
    assert_int_equal(n, sizeof expected);
    assert_memory_equal(bytes, expected, sizeof expected);
    tl_kv_pool_free(pool);
}

static void round_trip(void **state) {
    (void)state;
    uint8_t bytes[MAX_BYTES];
    uint8_t again[MAX_BYTES];
    tl_kv_pool *from = new_pool(7);
    tl_kv_pool *to = new_pool(0);
    const size_t n = export_two(from, bytes);
    /* What lies in the slabs before must not stay past the fill. */
    uint32_t ids[4];
    for (size_t i = 0; i < 4; i++) {
        ids[i] = add_block(to, B, 0, 0x7000);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(tl_kv_pool_release(to, ids[i], NULL), TL_OK);
    }
    size_t n_ids = 0;
    assert_int_equal(tl_kv_pool_import(to, bytes, n, ids, 4, &n_ids, NULL), TL_OK);
    assert_int_equal(n_ids, 2);
    tl_kv_block_info info;
    assert_int_equal(tl_kv_pool_block_info(to, ids[0], &info, NULL), TL_OK);
    assert_true(info.n_refs == 1 && info.n_filled == B && info.registered);
    assert_int_equal(tl_kv_pool_block_info(to, ids[1], &info, NULL), TL_OK);
    assert_true(info.n_refs == 1 && info.n_filled == 1 && !info.registered);
    const uint16_t *slab = NULL;
    size_t slab_len = 0;
    assert_int_equal(tl_kv_pool_slab(to, ids[1], 0, TL_KV_V, &slab, &slab_len, NULL), TL_OK);
    for (uint32_t i = 0; i < SLAB; i++) {
        assert_int_equal(slab[i], i % 4 < 2 ? 0x2100 + i : 0);
    }
    const tl_prefix_key key = key_of(0x10);
    uint32_t found = 99;
    assert_int_equal(tl_kv_pool_lookup(to, &key, &found, NULL), TL_OK);
    assert_int_equal(found, ids[0]);
    size_t n_again = 0;
    assert_int_equal(tl_kv_pool_export(to, ids, 2, again, MAX_BYTES, &n_again, NULL), TL_OK);
    assert_int_equal(n_again, n);
    assert_memory_equal(again + 64, bytes + 64, n - 64);
    tl_kv_pool_free(from);
    tl_kv_pool_free(to);
}

static void no_blocks_are_an_envelope(void **state) {
    (void)state;
    uint8_t bytes[64];
    tl_kv_pool *pool = new_pool(1);
    size_t n = 0;
    size_t n_ids = 9;
    assert_int_equal(tl_kv_pool_export(pool, NULL, 0, bytes, 64, &n, NULL), TL_OK);
    assert_int_equal(n, 64);
    assert_int_equal(tl_kv_pool_import(pool, bytes, 64, NULL, 0, &n_ids, NULL), TL_OK);
    assert_int_equal(n_ids, 0);
    assert_int_equal(tl_kv_pool_stats(pool).n_free, 4);
    tl_kv_pool_free(pool);
}

/* ---- refused exports ------------------------------------------------------------------------- */

static void export_is_checked(void **state) {
    (void)state;
    uint8_t bytes[MAX_BYTES];
    uint8_t before[MAX_BYTES];
    tl_kv_pool *pool = new_pool(1);
    const uint32_t used = add_block(pool, B, 1, 0);
    const uint32_t other = add_block(pool, B, 2, 0);
    const uint32_t cached = add_block(pool, B, 3, 0);
    assert_int_equal(tl_kv_pool_release(pool, cached, NULL), TL_OK);
    const uint32_t lists[][3] = {
        {used, 4, other},
        {used, other, used},
        {used, used, 9},
        {used, cached, other},
    };
    static const tl_status expected[] = {TL_ERR_INVALID, TL_ERR_INVALID, TL_ERR_INVALID,
                                         TL_ERR_STATE};
    memset(bytes, 0xab, sizeof bytes);
    memset(before, 0xab, sizeof before);
    size_t n = 77;
    for (size_t i = 0; i < 4; i++) {
        tl_error err = {TL_OK, 0, ""};
        assert_int_equal(tl_kv_pool_export(pool, lists[i], 3, bytes, MAX_BYTES, &n, &err),
                         expected[i]);
        assert_int_equal(err.status, expected[i]);
    }
    const uint32_t *ids = lists[0];
    assert_int_equal(tl_kv_pool_export(NULL, ids, 1, bytes, MAX_BYTES, &n, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_export(pool, NULL, 1, bytes, MAX_BYTES, &n, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_export(pool, ids, 1, NULL, MAX_BYTES, &n, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_export(pool, ids, 1, bytes, MAX_BYTES, NULL, NULL), TL_ERR_INVALID);
    assert_int_equal(n, 77);
    assert_int_equal(tl_kv_pool_export(pool, ids, 1, bytes, 64 + RECORD - 1, &n, NULL),
                     TL_ERR_CAPACITY);
    assert_int_equal(n, 64 + RECORD);
    assert_memory_equal(bytes, before, sizeof bytes);
    n = 0;
    assert_int_equal(tl_kv_pool_export(pool, ids, 1, NULL, 0, &n, NULL), TL_ERR_CAPACITY);
    assert_int_equal(n, 64 + RECORD);
    assert_int_equal(tl_kv_pool_export_size(pool, 3, &n, NULL), TL_OK);
    assert_int_equal(n, 64 + 3 * RECORD);
    assert_int_equal(tl_kv_pool_export_size(pool, SIZE_MAX / RECORD, &n, NULL), TL_ERR_NOMEM);
    assert_int_equal(tl_kv_pool_export_size(pool, SIZE_MAX, &n, NULL), TL_ERR_NOMEM);
    assert_int_equal(tl_kv_pool_export_size(pool, 1, NULL, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_export_size(NULL, 1, &n, NULL), TL_ERR_INVALID);
    tl_kv_pool_free(pool);
}

/* Twins that lie far apart, in a pool of several windows of the check. */
static void twins_are_found_in_a_large_pool(void **state) {
    (void)state;
    enum { N = 100000, LISTED = 40000 };
    const tl_kv_cfg cfg = {N, 1, 1, 1, 1, 1, 1, TL_PREFIX_CACHE_OFF, 0};
    tl_kv_pool *pool = NULL;
    uint32_t *ids = calloc(N, sizeof *ids);
    uint8_t *bytes = calloc(64 + LISTED, 28);
    assert_true(ids != NULL && bytes != NULL);
    assert_int_equal(tl_kv_pool_new(&pool, &cfg, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_alloc(pool, ids, N, NULL), TL_OK);
    for (size_t i = 0; i < LISTED; i++) {
        ids[i] = (uint32_t)(i * 7919 % N); /* 7919 is prime to N: all distinct */
    }
    size_t n = 0;
    assert_int_equal(tl_kv_pool_export(pool, ids, LISTED, bytes, 64 + LISTED * 28, &n, NULL),
                     TL_OK);
    const uint32_t last = ids[LISTED - 1];
    for (size_t twin = 0; twin < LISTED - 1; twin += 1777) {
        ids[LISTED - 1] = ids[twin];
        assert_int_equal(tl_kv_pool_export(pool, ids, LISTED, bytes, 64, &n, NULL), TL_ERR_INVALID);
    }
    ids[LISTED - 1] = last;
    assert_int_equal(tl_kv_pool_export(pool, ids, LISTED, bytes, 64, &n, NULL), TL_ERR_CAPACITY);
    free(ids);
    free(bytes);
    tl_kv_pool_free(pool);
}

/* ---- refused imports ------------------------------------------------------------------------- */

/* A pool with a used, a cached and two free blocks, so that a refusal has something to spoil. */
static tl_kv_pool *target_pool(uint64_t model_tag) {
    tl_kv_pool *pool = new_pool(model_tag);
    (void)add_block(pool, 1, 0, 0x5000);
    const uint32_t cached = add_block(pool, B, 0x60, 0x6000);
    assert_int_equal(tl_kv_pool_release(pool, cached, NULL), TL_OK);
    return pool;
}

static void every_flip_and_every_cut_is_refused(void **state) {
    (void)state;
    uint8_t bytes[MAX_BYTES + 1];
    tl_kv_pool *from = new_pool(3);
    tl_kv_pool *to = target_pool(3);
    const size_t n = export_two(from, bytes);
    for (size_t at = 0; at < n; at++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] = (uint8_t)(bytes[at] ^ 1 << bit);
            const uint64_t offset = at < 4 ? 0 : at < 64 ? 60 : 56;
            assert_refused(to, bytes, n, TL_ERR_FORMAT, offset);
            bytes[at] = (uint8_t)(bytes[at] ^ 1 << bit);
        }
    }
    for (size_t cut = 0; cut < n; cut++) {
        assert_refused(to, bytes, cut, TL_ERR_FORMAT, cut < 64 ? cut : 40);
    }
    bytes[n] = 0;
    assert_refused(to, bytes, n + 1, TL_ERR_FORMAT, 40);
    tl_kv_pool_free(from);
    tl_kv_pool_free(to);
}

typedef struct patch {
    size_t at;
    uint32_t value;
    tl_status status;
    uint64_t offset;
} patch;

/* One word changed and both checksums made right again. */
static void each_rule_has_its_status_and_offset(void **state) {
    (void)state;
    enum {
        FIRST = 64,
        SECOND = 64 + RECORD,
        K_OF_SECOND = SECOND + 24,
        LAST = SECOND + RECORD - 4
    };
    static const patch patches[] = {
        {4, 0, TL_ERR_UNSUPPORTED, 4},
        {4, 2, TL_ERR_UNSUPPORTED, 4},
        {8, 68, TL_ERR_FORMAT, 8},
        {36, 1, TL_ERR_FORMAT, 36},
        {36, 0x80000000u, TL_ERR_FORMAT, 36},
        {12, 2, TL_ERR_UNSUPPORTED, 12},
        {20, 3, TL_ERR_UNSUPPORTED, 20},
        {24, 2, TL_ERR_UNSUPPORTED, 24},
        {28, 1, TL_ERR_UNSUPPORTED, 28},
        {32, 4, TL_ERR_UNSUPPORTED, 32},
        {48, 4, TL_ERR_UNSUPPORTED, 48},
        {52, 0x80000000u, TL_ERR_UNSUPPORTED, 48},
        {16, 3, TL_ERR_FORMAT, 40},
        {16, 1, TL_ERR_FORMAT, 40},
        {16, UINT32_MAX, TL_ERR_FORMAT, 40},
        {40, 111, TL_ERR_FORMAT, 40},
        {44, 1, TL_ERR_FORMAT, 40},
        {FIRST, 3, TL_ERR_FORMAT, FIRST},
        {FIRST, UINT32_MAX, TL_ERR_FORMAT, FIRST},
        {FIRST, 1, TL_ERR_FORMAT, FIRST + 4}, /* a key on a block that is not full */
        {FIRST + 4, 2, TL_ERR_FORMAT, FIRST + 4},
        {FIRST + 4, 0, TL_ERR_FORMAT, FIRST + 8}, /* a key of a block without one */
        {SECOND + 4, 1, TL_ERR_FORMAT, SECOND + 4},
        {SECOND + 20, 0x01000000u, TL_ERR_FORMAT, SECOND + 8},
        {K_OF_SECOND + 4, 0x8000u, TL_ERR_FORMAT, K_OF_SECOND + 4},
        {K_OF_SECOND + 4, 0x10000u, TL_ERR_FORMAT, K_OF_SECOND + 6},
        {LAST, 0x80000000u, TL_ERR_FORMAT, LAST + 2},
    };
    uint8_t bytes[MAX_BYTES];
    uint8_t good[MAX_BYTES];
    tl_kv_pool *from = new_pool(3);
    tl_kv_pool *to = target_pool(3);
    const size_t n = export_two(from, good);
    for (size_t i = 0; i < sizeof patches / sizeof patches[0]; i++) {
        memcpy(bytes, good, n);
        tli_store_u32(bytes + patches[i].at, patches[i].value);
        put_checksums(bytes, n);
        assert_refused(to, bytes, n, patches[i].status, patches[i].offset);
    }
    tl_kv_pool_free(from);
    tl_kv_pool_free(to);
}

/* Two rules broken: the one that is checked first answers. Each row breaks its own field and the
 * next row's. */
static void checks_come_in_the_order_of_the_page(void **state) {
    (void)state;
    static const patch order[] = {
        {0, 0, TL_ERR_FORMAT, 0},        {60, 0, TL_ERR_FORMAT, 60},
        {4, 9, TL_ERR_UNSUPPORTED, 4},   {8, 9, TL_ERR_FORMAT, 8},
        {36, 9, TL_ERR_FORMAT, 36},      {12, 9, TL_ERR_UNSUPPORTED, 12},
        {20, 9, TL_ERR_UNSUPPORTED, 20}, {24, 9, TL_ERR_UNSUPPORTED, 24},
        {28, 9, TL_ERR_UNSUPPORTED, 28}, {32, 9, TL_ERR_UNSUPPORTED, 32},
        {48, 9, TL_ERR_UNSUPPORTED, 48}, {40, 9, TL_ERR_FORMAT, 40},
        {56, 9, TL_ERR_FORMAT, 56},      {64, 9, TL_ERR_FORMAT, 64},
        {68, 9, TL_ERR_FORMAT, 68},
    };
    const size_t n_rules = sizeof order / sizeof order[0];
    uint8_t bytes[MAX_BYTES];
    tl_kv_pool *from = new_pool(3);
    tl_kv_pool *to = target_pool(3);
    const size_t n = export_two(from, bytes);
    /* From the last rule to the first, each broken on top of those after it. */
    for (size_t i = n_rules; i-- > 0;) {
        tli_store_u32(bytes + order[i].at, order[i].value);
        if (i > 12) {
            put_checksums(bytes, n);
        } else if (i > 1) {
            tli_store_u32(bytes + 60, (uint32_t)crc32(0, bytes, 60));
        }
        assert_refused(to, bytes, n, order[i].status, order[i].offset);
    }
    tl_kv_pool_free(from);
    tl_kv_pool_free(to);
}

static void import_arguments_are_checked(void **state) {
    (void)state;
    uint8_t bytes[MAX_BYTES];
    uint32_t ids[4];
    size_t n_ids = 99;
    tl_kv_pool *pool = new_pool(3);
    const size_t n = export_two(pool, bytes);
    assert_int_equal(tl_kv_pool_import(NULL, bytes, n, ids, 4, &n_ids, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_import(pool, NULL, n, ids, 4, &n_ids, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_import(pool, bytes, n, NULL, 4, &n_ids, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_kv_pool_import(pool, bytes, n, ids, 4, NULL, NULL), TL_ERR_INVALID);
    assert_int_equal(n_ids, 99);
    assert_int_equal(tl_kv_pool_import(pool, NULL, 0, ids, 4, &n_ids, NULL), TL_ERR_FORMAT);
    tl_kv_pool_free(pool);
}

static void room_is_checked_last(void **state) {
    (void)state;
    static snapshot before;
    static snapshot after;
    uint8_t bytes[MAX_BYTES];
    uint32_t ids[4];
    size_t n_ids = 99;
    tl_kv_pool *pool = new_pool(0);
    const size_t n = export_two(pool, bytes); /* two used, two free */
    take_snapshot(pool, &before);
    assert_int_equal(tl_kv_pool_import(pool, bytes, n, ids, 1, &n_ids, NULL), TL_ERR_CAPACITY);
    assert_int_equal(n_ids, 2);
    n_ids = 99;
    assert_int_equal(tl_kv_pool_import(pool, bytes, n, NULL, 0, &n_ids, NULL), TL_ERR_CAPACITY);
    assert_int_equal(n_ids, 2);
    take_snapshot(pool, &after);
    assert_memory_equal(&before, &after, sizeof before);
    (void)add_block(pool, 0, 0, 0);
    assert_refused(pool, bytes, n, TL_ERR_CAPACITY, TL_NO_OFFSET);
    tl_kv_pool_free(pool);
}

/* ---- keys after the allocation --------------------------------------------------------------- */

/* The key's old block is evicted by the import itself, so the imported one takes it. */
static void evicted_key_is_taken_over(void **state) {
    (void)state;
    uint8_t bytes[MAX_BYTES];
    tl_kv_pool *from = new_pool(0);
    tl_kv_pool *to = new_pool(0);
    const size_t n = export_two(from, bytes);
    const uint32_t old = add_block(to, B, 0x10, 0);
    (void)add_block(to, 0, 0, 0);
    (void)add_block(to, 0, 0, 0);
    assert_int_equal(tl_kv_pool_release(to, old, NULL), TL_OK);
    uint32_t ids[2];
    size_t n_ids = 0;
    assert_int_equal(tl_kv_pool_import(to, bytes, n, ids, 2, &n_ids, NULL), TL_OK);
    const tl_prefix_key key = key_of(0x10);
    uint32_t found = 99;
    assert_int_equal(tl_kv_pool_lookup(to, &key, &found, NULL), TL_OK);
    assert_int_equal(found, ids[0]);
    tl_kv_pool_free(from);
    tl_kv_pool_free(to);
}

static void known_key_stays_with_its_block(void **state) {
    (void)state;
    uint8_t bytes[MAX_BYTES];
    tl_kv_pool *from = new_pool(0);
    tl_kv_pool *to = new_pool(0);
    const size_t n = export_two(from, bytes);
    const uint32_t old = add_block(to, B, 0x10, 0);
    uint32_t ids[2];
    size_t n_ids = 0;
    assert_int_equal(tl_kv_pool_import(to, bytes, n, ids, 2, &n_ids, NULL), TL_OK);
    const tl_prefix_key key = key_of(0x10);
    uint32_t found = 99;
    assert_int_equal(tl_kv_pool_lookup(to, &key, &found, NULL), TL_OK);
    assert_int_equal(found, old);
    tl_kv_block_info info;
    assert_int_equal(tl_kv_pool_block_info(to, ids[0], &info, NULL), TL_OK);
    assert_true(!info.registered && info.n_filled == B && info.n_refs == 1);
    tl_kv_pool_free(from);
    tl_kv_pool_free(to);
}

static void keys_are_dropped_where_caching_is_off(void **state) {
    (void)state;
    uint8_t bytes[MAX_BYTES];
    tl_kv_cfg cfg = config(0);
    cfg.prefix_cache = TL_PREFIX_CACHE_OFF;
    tl_kv_pool *from = new_pool(9); /* a tag of 0 on one side matches any */
    tl_kv_pool *to = NULL;
    const size_t n = export_two(from, bytes);
    uint32_t ids[2];
    size_t n_ids = 0;
    assert_int_equal(tl_kv_pool_new(&to, &cfg, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_import(to, bytes, n, ids, 2, &n_ids, NULL), TL_OK);
    tl_kv_block_info info;
    assert_int_equal(tl_kv_pool_block_info(to, ids[0], &info, NULL), TL_OK);
    assert_true(!info.registered && info.n_filled == B);
    tl_kv_pool_free(from);
    tl_kv_pool_free(to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(export_has_the_bytes_of_the_page),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(no_blocks_are_an_envelope),
        cmocka_unit_test(export_is_checked),
        cmocka_unit_test(twins_are_found_in_a_large_pool),
        cmocka_unit_test(every_flip_and_every_cut_is_refused),
        cmocka_unit_test(each_rule_has_its_status_and_offset),
        cmocka_unit_test(checks_come_in_the_order_of_the_page),
        cmocka_unit_test(import_arguments_are_checked),
        cmocka_unit_test(room_is_checked_last),
        cmocka_unit_test(evicted_key_is_taken_over),
        cmocka_unit_test(known_key_stays_with_its_block),
        cmocka_unit_test(keys_are_dropped_where_caching_is_off),
    };
    return cmocka_run_group_tests_name("kv_envelope", tests, NULL, NULL);
}
