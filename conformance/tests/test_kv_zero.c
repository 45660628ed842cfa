/* test_kv_zero.c: pools that cannot be made.
 *
 * Property: a zero in any dimension, another dtype or another format is INVALID, a size that
 * overflows is NOMEM, and the pool of one in every dimension is made and works. Kills s19 (a pool
 * of no block is accepted). The sizes that overflow wrap around to 0 or to a few bytes at different
 * steps of the product, so that an engine that does not look makes a small pool and says so.
 *
 * Source: conformance/spec/kv-block.md, clause new. */
#include "kv_script.h"

#include <string.h>

static const kv_shape one = {
    .n_blocks = 1, .block_tokens = 1, .n_layers = 1, .n_kv_heads = 1, .head_dim = 1};

static void check_refused(ol_test *t, const char *name, json_t *args, const char *status,
                          const char *what) {
    const json_t *answer = ol_call_object(t, "kv_new", args);
    (void)ol_check_refused(t, name, answer, status, NULL, -1, what);
}

/* A zero alone, and a zero among large numbers, whose product overflows but for it. */
static void check_zero(ol_test *t, const char *name, const char *key) {
    static const uint32_t others[] = {1, 4, UINT32_MAX};
    for (size_t i = 0; i < TEST_COUNT(others); i++) {
        uint32_t n = others[i];
        kv_shape shape = {
            .n_blocks = n, .block_tokens = n, .n_layers = n, .n_kv_heads = n, .head_dim = n};
        json_t *args = kv_shape_args(&shape);
        (void)json_object_set_new(args, key, json_integer(0));
        check_refused(t, name, args, "INVALID",
                      ol_text(t, "%s 0, every other dimension %u", key, (unsigned)n));
    }
}

static void part_zeros(ol_test *t) {
    check_zero(t, "zero_blocks", "n_blocks");
    check_zero(t, "zero_block_tokens", "block_tokens");
    check_zero(t, "zero_layers", "n_layers");
    check_zero(t, "zero_kv_heads", "n_kv_heads");
    check_zero(t, "zero_head_dim", "head_dim");
}

static void part_other(ol_test *t) {
    static const int dtypes[] = {0, 2, 3, 0x7fffffff};
    static const int64_t formats[] = {0, 2, 0xffffffff};
    for (size_t i = 0; i < TEST_COUNT(dtypes); i++) {
        json_t *args = kv_shape_args(&one);
        (void)json_object_set_new(args, "dtype", json_integer(dtypes[i]));
        check_refused(t, "other_dtype", args, "INVALID", ol_text(t, "dtype %d", dtypes[i]));
    }
    for (size_t i = 0; i < TEST_COUNT(formats); i++) {
        json_t *args = kv_shape_args(&one);
        (void)json_object_set_new(args, "format", json_integer((json_int_t)formats[i]));
        check_refused(t, "other_format", args, "INVALID",
                      ol_text(t, "format %lld", (long long)formats[i]));
    }
    json_t *args = kv_shape_args(&one);
    (void)json_object_set_new(args, "dtype", json_integer(1));
    (void)json_object_set_new(args, "format", json_integer(1));
    const json_t *answer = ol_call_object(t, "kv_new", args);
    (void)ol_check_ok(t, "other_dtype", answer, "dtype 1 (f16)");
    (void)ol_check_ok(t, "other_format", answer, "format 1");
}

static void part_overflow(ol_test *t) {
    static const struct {
        uint32_t n_blocks, block_tokens, n_layers, n_kv_heads, head_dim;
        const char *what;
    } sizes[] = {
        {0x80000000u, 0x80000000u, 4, 1, 1, "2^31 x 2^31 x 4 elements: 2^64"},
        {1, 0x80000000u, 1, 0x80000000u, 4, "a slab of 2^64 elements"},
        {1, 0x80000000u, 1, 0x40000000u, 4, "a slab of 2^63 elements, 2^64 bytes"},
        {1, 0x40000000u, 1, 0x40000000u, 4, "a K and a V slab of 2^63 bytes each"},
        {1, 0x10000u, 0x10000u, 0x10000u, 0x10000u, "2^16 in every dimension but the blocks"},
        {0x10000u, 1, 0x10000u, 0x10000u, 0x10000u, "2^16 in every dimension but the tokens"},
        {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, "2^32 - 1 everywhere"},
        {1, 1, UINT32_MAX, UINT32_MAX, UINT32_MAX, "2^32 - 1 layers, heads and elements"},
        {0x80000001u, 0x80000000u, 2, 2, 1, "2^64 + 2^33 elements"},
    };
    for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
        kv_shape shape = {.n_blocks = sizes[i].n_blocks,
                          .block_tokens = sizes[i].block_tokens,
                          .n_layers = sizes[i].n_layers,
                          .n_kv_heads = sizes[i].n_kv_heads,
                          .head_dim = sizes[i].head_dim};
        check_refused(t, "size_overflow", kv_shape_args(&shape), "NOMEM", sizes[i].what);
    }
}

static void part_smallest(ol_test *t) {
    static const uint16_t value = 0x3c01;
    kv_script k = kv_open(t, "smallest_pool", one);
    kv_stats_are(&k, 1, 0, 0, "of the new pool");
    uint32_t id = kv_take(&k);
    if (!k.broken) {
        ol_check_int(t, k.check, id, 0, "id of the only block");
    }
    kv_alloc_refused(&k, 1, "a second block of one");
    kv_write(&k, id, 0, "v", &value, 1);
    const uint16_t *got = kv_read(&k, id, 0, "v");
    if (got != NULL) {
        ol_check_u16s(t, k.check, got, 1, &value, 1, "V slab");
    }
    kv_cache(&k, id, 1);
    kv_stats_are(&k, 0, 1, 0, "after the release");
    kv_finds(&k, 1, id);
    kv_do(&k, "kv_release", id);
    (void)kv_take(&k);
    kv_lookup_refused(&k, 1, "NOT_FOUND", "look-up after the only block was taken again");
    kv_close(&k);
}

void test_kv_pool_rejects_zero_capacity(ol_test *t) {
    static const test_part parts[] = {{"zeros", part_zeros},
                                      {"other", part_other},
                                      {"overflow", part_overflow},
                                      {"smallest", part_smallest}};
    test_run_parts(t, parts, TEST_COUNT(parts));
    test_c_arguments(t, "kv");
}
