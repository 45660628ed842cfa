/* test_kv_walk.c: the pool against a naive model over random calls, and a pool of more than 65,536
 * blocks.
 *
 * Property: after every one of 10,000 random calls the engine has the model's status, counts,
 * references, fills and keys. Ids and keys are drawn from a small pool, so that most calls meet
 * blocks in every state, ids past the end and keys that are taken; every call is followed by stats,
 * and by block_info of the block that it named.
 *
 * Source: conformance/spec/kv-block.md, clause states. */
#include "naive_kv.h"
#include "test_kv.h"

#include <string.h>

enum {
    WALK_BLOCKS = 12,
    WALK_TOKENS = 3,
    WALK_KEYS = 10,
    WALK_STEPS = 10000,
    WALK_STEPS_OFF = 1000,
    WALK_BATCH = 100, /* calls in one request */
    CALLS_A_STEP = 3  /* the call, stats, block_info */
};

static const char *const op_names[] = {"kv_alloc",    "kv_retain", "kv_release", "kv_set_fill",
                                       "kv_register", "kv_lookup", "kv_read"};

/* ------------------------------------------------------------------ drawing calls */

/* More often than not a block that was used when the batch began. */
static uint32_t draw_id(ol_test *t, const naive_kv *m) {
    uint32_t id = ol_rand_below(t, WALK_BLOCKS + 2);
    if (id < WALK_BLOCKS && m->blocks[id].refs == 0 && ol_rand_below(t, 3) > 0) {
        id = ol_rand_below(t, WALK_BLOCKS);
    }
    return id;
}

static naive_op draw_op(ol_test *t) {
    static const naive_op ops[] = {NAIVE_ALLOC,    NAIVE_ALLOC,    NAIVE_ALLOC,    NAIVE_RETAIN,
                                   NAIVE_RELEASE,  NAIVE_RELEASE,  NAIVE_RELEASE,  NAIVE_RELEASE,
                                   NAIVE_SET_FILL, NAIVE_SET_FILL, NAIVE_SET_FILL, NAIVE_REGISTER,
                                   NAIVE_REGISTER, NAIVE_REGISTER, NAIVE_REGISTER, NAIVE_LOOKUP,
                                   NAIVE_LOOKUP,   NAIVE_LOOKUP,   NAIVE_SLAB};
    return ops[ol_rand_below(t, TEST_COUNT(ops))];
}

static naive_call draw_call(ol_test *t, const naive_kv *m) {
    naive_call call = {.op = draw_op(t), .id = draw_id(t, m)};
    call.key = (int)ol_rand_below(t, WALK_KEYS);
    if (call.op == NAIVE_ALLOC) {
        call.n = ol_rand_below(t, 5);
        call.n = call.n == 4 ? ol_rand_below(t, WALK_BLOCKS + 2) : call.n;
    } else {
        /* Full blocks matter most: only they take a key. */
        call.n = ol_rand_below(t, 2) == 0 ? WALK_TOKENS : ol_rand_below(t, WALK_TOKENS + 2);
    }
    return call;
}

static void add_call(ol_list *list, int64_t pool, const naive_call *call) {
    const char *op = op_names[call->op];
    json_int_t p = (json_int_t)pool;
    json_int_t id = (json_int_t)call->id;
    char key[KV_KEY_TEXT];
    (void)kv_key(call->key, key);
    switch (call->op) {
    case NAIVE_ALLOC:
        ol_list_add(list, op, "{s:I, s:I}", "pool", p, "n", (json_int_t)call->n);
        break;
    case NAIVE_SET_FILL:
        ol_list_add(list, op, "{s:I, s:I, s:I}", "pool", p, "id", id, "fill", (json_int_t)call->n);
        break;
    case NAIVE_REGISTER:
        ol_list_add(list, op, "{s:I, s:I, s:s}", "pool", p, "id", id, "key", key);
        break;
    case NAIVE_LOOKUP:
        ol_list_add(list, op, "{s:I, s:s}", "pool", p, "key", key);
        break;
    case NAIVE_SLAB:
        ol_list_add(list, op, "{s:I, s:I, s:i, s:s}", "pool", p, "id", id, "layer", 0, "side", "k");
        break;
    case NAIVE_RETAIN:
    case NAIVE_RELEASE:
        ol_list_add(list, op, "{s:I, s:I}", "pool", p, "id", id);
        break;
    }
}

/* ------------------------------------------------------------------ looking at answers */

/* true: the model still describes the pool. */
static bool follow(ol_test *t, naive_kv *m, const naive_call *call, const json_t *answer,
                   const char *what) {
    const char *expected = naive_kv_expect(m, call);
    if (strcmp(expected, "OK") != 0) {
        return ol_check_refused(t, "random_walk", answer, expected, NULL, -1, what);
    }
    if (!ol_check_ok(t, "random_walk", answer, what)) {
        return false;
    }
    uint32_t one = 0;
    const uint32_t *ids = &one;
    size_t n = 1;
    if (call->op == NAIVE_ALLOC) {
        ids = ol_res_u32s(t, answer, "ids", &n);
    } else if (call->op == NAIVE_LOOKUP) {
        one = (uint32_t)ol_int(t, answer, "id");
    }
    const char *wrong = naive_kv_apply(t, m, call, ids, n);
    return ol_check(t, "random_walk", wrong == NULL, "%s: %s", what, wrong == NULL ? "" : wrong);
}

static bool check_stats(ol_test *t, const naive_kv *m, const json_t *answer, const char *what) {
    if (!ol_check_ok(t, "random_walk", answer, "stats")) {
        return false;
    }
    int64_t n_free = ol_int(t, answer, "free");
    int64_t n_cached = ol_int(t, answer, "cached");
    int64_t n_used = ol_int(t, answer, "used");
    bool held = ol_check_int(t, "stats_always_sum", n_free + n_cached + n_used, m->n_blocks,
                             ol_text(t, "free + cached + used after %s", what));
    const char *text = ol_text(t, "free blocks after %s", what);
    held = ol_check_int(t, "random_walk", n_free, naive_kv_free_blocks(m), text) && held;
    text = ol_text(t, "cached blocks after %s", what);
    return ol_check_int(t, "random_walk", n_cached, m->n_cached, text) && held;
}

static bool check_info(ol_test *t, const naive_kv *m, uint32_t id, const json_t *answer,
                       const char *what) {
    if (id >= m->n_blocks) {
        return ol_check_refused(t, "random_walk", answer, "INVALID", NULL, -1, "block_info");
    }
    if (!ol_check_ok(t, "random_walk", answer, "block_info")) {
        return false;
    }
    const naive_block *b = &m->blocks[id];
    char key[KV_KEY_TEXT] = "00000000000000000000000000000000";
    if (b->key != NAIVE_NO_KEY) {
        (void)kv_key(b->key, key);
    }
    const char *text = ol_text(t, "references of block %u after %s", (unsigned)id, what);
    bool held = ol_check_int(t, "random_walk", ol_int(t, answer, "refs"), b->refs, text);
    if (b->refs > 0) {
        text = ol_text(t, "fill of block %u after %s", (unsigned)id, what);
        held = ol_check_int(t, "random_walk", ol_int(t, answer, "fill"), b->fill, text) && held;
    }
    bool registered = json_is_true(json_object_get(answer, "registered"));
    text = ol_text(t, "is block %u registered after %s", (unsigned)id, what);
    held =
        ol_check_int(t, "random_walk", registered ? 1 : 0, b->key != NAIVE_NO_KEY ? 1 : 0, text) &&
        held;
    const char *got = ol_res_text(t, answer, "key");
    return ol_check(t, "random_walk", strcmp(got, key) == 0,
                    "key of block %u after %s is %s, %s is right", (unsigned)id, what, got, key) &&
           held;
}

/* ------------------------------------------------------------------ the walk */

static bool run_batch(kv_script *k, naive_kv *m, size_t first_step) {
    ol_test *t = k->t;
    naive_call calls[WALK_BATCH];
    ol_list *list = ol_list_new(t);
    for (size_t i = 0; i < WALK_BATCH; i++) {
        calls[i] = draw_call(t, m);
        add_call(list, k->pool, &calls[i]);
        ol_list_add(list, "kv_stats", "{s:I}", "pool", (json_int_t)k->pool);
        ol_list_add(list, "kv_info", "{s:I, s:I}", "pool", (json_int_t)k->pool, "id",
                    (json_int_t)calls[i].id);
    }
    const json_t **answers = ol_list_run(list);
    for (size_t i = 0; i < WALK_BATCH; i++) {
        const naive_call *call = &calls[i];
        const json_t **a = answers + i * CALLS_A_STEP;
        const char *what =
            ol_text(t, "step %zu (%s, block %u, %u, key %d)", first_step + i, op_names[call->op],
                    (unsigned)call->id, (unsigned)call->n, call->key);
        bool held = follow(t, m, call, a[0], what);
        held = held && check_stats(t, m, a[1], what);
        if (!held || !check_info(t, m, call->id, a[2], what)) {
            return false; /* model and pool have parted: nothing after this means anything */
        }
    }
    return true;
}

static void walk(ol_test *t, size_t n_steps, bool cache_off) {
    const kv_shape shape = {.n_blocks = WALK_BLOCKS,
                            .block_tokens = WALK_TOKENS,
                            .n_layers = 1,
                            .n_kv_heads = 1,
                            .head_dim = 1,
                            .cache_off = cache_off};
    naive_kv m = naive_kv_new(t, WALK_BLOCKS, WALK_TOKENS, cache_off);
    kv_script k = kv_open(t, "random_walk", shape);
    bool together = !k.broken;
    for (size_t step = 0; together && step < n_steps; step += WALK_BATCH) {
        uint64_t mark = ol_mark(t);
        together = run_batch(&k, &m, step);
        ol_release(t, mark);
    }
    /* At least one evaluation, also where the walk ended before its first look at the counts. */
    kv_script sums = kv_open(t, "stats_always_sum", shape);
    kv_stats_are(&sums, WALK_BLOCKS, 0, 0, "of a new pool");
    kv_close(&sums);
    kv_close(&k);
}

void test_kv_walk(ol_test *t) {
    walk(t, WALK_STEPS, false);
}

void test_kv_walk_cache_off(ol_test *t) {
    walk(t, WALK_STEPS_OFF, true);
}

/* ------------------------------------------------------------------ more blocks than 2^16 */

enum { LARGE_BLOCKS = 65536 + 300, LARGE_PAIRS = 300 };

/* true: every id below LARGE_BLOCKS stands once in ids. */
static bool all_distinct(ol_test *t, const uint32_t *ids, size_t n) {
    bool *seen = ol_alloc(t, LARGE_BLOCKS * sizeof *seen);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= LARGE_BLOCKS || seen[ids[i]]) {
            return ol_check(t, "large_pool", false, "id %u was given twice, or is past the pool",
                            (unsigned)ids[i]);
        }
        seen[ids[i]] = true;
    }
    return true;
}

/* Block number i of the pairs: 0, 65536, 1, 65537, ... */
static uint32_t pair_id(uint32_t i) {
    return i / 2 + (i % 2 == 0 ? 0 : 65536u);
}

static void write_pairs(kv_script *k) {
    ol_list *list = ol_list_new(k->t);
    for (uint32_t i = 0; i < 2 * LARGE_PAIRS; i++) {
        const uint16_t value = (uint16_t)(i + 1);
        char key[KV_KEY_TEXT] = "00000000000000000000000000000000";
        for (int digit = 0; digit < 4; digit++) {
            key[digit] = "0123456789abcdef"[i >> (4 * digit) & 15u];
        }
        json_int_t id = (json_int_t)pair_id(i);
        json_int_t pool = (json_int_t)k->pool;
        ol_list_add(list, "kv_write", "{s:I, s:I, s:i, s:s, s:i, s:o}", "pool", pool, "id", id,
                    "layer", 0, "side", "k", "at", 0, "values", ol_u16(&value, 1));
        ol_list_add(list, "kv_set_fill", "{s:I, s:I, s:i}", "pool", pool, "id", id, "fill", 1);
        ol_list_add(list, "kv_register", "{s:I, s:I, s:s}", "pool", pool, "id", id, "key", key);
        ol_list_add(list, "kv_lookup", "{s:I, s:s}", "pool", pool, "key", key);
    }
    const json_t **answers = ol_list_run(list);
    for (uint32_t i = 0; i < 2 * LARGE_PAIRS; i++) {
        const json_t *found = answers[4 * i + 3];
        if (!ol_check_ok(k->t, "large_pool", found, "look-up") ||
            !ol_check_int(k->t, "large_pool", ol_int(k->t, found, "id"), pair_id(i),
                          "block that the key finds")) {
            k->broken = true;
            return;
        }
    }
}

/* Read every value back, give all references back, and take the same number again: the same blocks,
 * since no other is free or cached. */
static void read_pairs(kv_script *k) {
    ol_list *list = ol_list_new(k->t);
    uint32_t want[2 * LARGE_PAIRS];
    for (uint32_t i = 0; i < 2 * LARGE_PAIRS; i++) {
        want[i] = pair_id(i);
        json_int_t pool = (json_int_t)k->pool;
        ol_list_add(list, "kv_read", "{s:I, s:I, s:i, s:s}", "pool", pool, "id",
                    (json_int_t)want[i], "layer", 0, "side", "k");
        ol_list_add(list, "kv_release", "{s:I, s:I, s:i}", "pool", pool, "id", (json_int_t)want[i],
                    "times", 2);
    }
    const json_t **answers = ol_list_run(list);
    for (uint32_t i = 0; i < 2 * LARGE_PAIRS; i++) {
        const uint16_t value = (uint16_t)(i + 1);
        const json_t *slab = answers[2 * i];
        if (!ol_check_ok(k->t, "large_pool", slab, "slab") ||
            !ol_check_ok(k->t, "large_pool", answers[2 * i + 1], "release")) {
            k->broken = true;
            return;
        }
        size_t n = 0;
        const uint16_t *got = ol_res_u16s(k->t, slab, "values", &n);
        ol_check_u16s(k->t, "large_pool", got, n, &value, 1,
                      ol_text(k->t, "K slab of block %u", (unsigned)want[i]));
    }
    uint32_t again[2 * LARGE_PAIRS];
    kv_alloc(k, again, 2 * LARGE_PAIRS);
    kv_same_ids(k, again, want, 2 * LARGE_PAIRS, "blocks of the second alloc, sorted");
}

void test_kv_large_pool(ol_test *t) {
    const kv_shape shape = {
        .n_blocks = LARGE_BLOCKS, .block_tokens = 1, .n_layers = 1, .n_kv_heads = 1, .head_dim = 1};
    kv_script k = kv_open(t, "large_pool", shape);
    uint32_t *ids = ol_alloc(t, LARGE_BLOCKS * sizeof *ids);
    kv_alloc(&k, ids, LARGE_BLOCKS);
    if (!k.broken && all_distinct(t, ids, LARGE_BLOCKS)) {
        kv_stats_are(&k, 0, 0, LARGE_BLOCKS, "after alloc of all");
        kv_alloc_refused(&k, 1, "alloc of one more");
        write_pairs(&k);
        if (!k.broken) {
            read_pairs(&k);
        }
    }
    kv_close(&k);
}
