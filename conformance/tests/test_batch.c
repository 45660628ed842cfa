/* test_batch.c: batched_forward_equals_single: what a user gets does not depend on who else is
 * in the step, bit for bit.
 *
 * Forty-five sequences, most of a few tokens, two longer than any tile, are run alone and then in
 * steps of many kinds; 300 of one token besides. Three models are drawn, no two with the same
 * widths. Multiply-adds counted in the project's engine: 380 million with all strict checks, 138
 * million without. */
#include "model_maker.h"
#include "steps.h"
#include "tests.h"

#include <string.h>

#define MAX_MEMBERS 45

typedef struct kind {
    const char *dir, *dtype;
    tm_shape shape;
} kind;

static const kind kinds[] = {
    {"grouped",
     "F32",
     {.vocab = 61,
      .hidden = 32,
      .inter = 48,
      .layers = 2,
      .heads = 4,
      .kv_heads = 2,
      .head_dim = 8,
      .positions = 160}},
    {"odd",
     "BF16",
     {.vocab = 37,
      .hidden = 20,
      .inter = 28,
      .layers = 2,
      .heads = 3,
      .kv_heads = 1,
      .head_dim = 6,
      .positions = 160,
      .tied = true}},
    {"wide",
     "F16",
     {.vocab = 43,
      .hidden = 36,
      .inter = 68,
      .layers = 1,
      .heads = 2,
      .kv_heads = 2,
      .head_dim = 18,
      .positions = 160}},
};

/* A sequence that a step takes from position `cut` to n; what it gives alone. */
typedef struct member {
    const uint32_t *tokens;
    size_t n, cut;
    const float *alone; /* [vocab]; NULL: refused, which is on record */
    const uint16_t *slabs;
    size_t n_slabs;
} member;

/* ------------------------------------------------------------------ running */

static bool load(ol_test *t, const char *check, const kind *k, const step_cfg *more,
                 step_runner *r) {
    step_cfg cfg = *more;
    cfg.n_blocks = 160;
    cfg.block_tokens = 8;
    cfg.max_batch_tokens = 1024;
    cfg.max_seqs = 48;
    return step_load(t, check, k->dir, &cfg, r);
}

/* Draw the model and load it with one thread. */
static bool prepare(ol_test *t, const char *check, const kind *k, step_runner *r) {
    static const step_cfg plain = {.threads = 1};
    tm_put(t, tm_draw(t, &k->shape, k->dtype), k->dir);
    return load(t, check, k, &plain, r);
}

/* Blocks for a member, with its positions before the cut already computed. */
static uint32_t *table(ol_test *t, const char *check, const step_runner *r, const member *m) {
    size_t n_blocks = step_blocks_for(r, m->n);
    uint32_t *blocks = step_alloc(t, check, r, n_blocks);
    bool ready = blocks != NULL;
    if (ready && m->cut > 0) {
        ready = step_piece(t, check, r, m->tokens, 0, m->cut, blocks, n_blocks) != NULL;
    }
    return ready ? blocks : NULL;
}

static void run_alone(ol_test *t, const char *check, const step_runner *r, member *m,
                      bool with_slabs) {
    size_t n_blocks = step_blocks_for(r, m->n);
    uint32_t *blocks = table(t, check, r, m);
    if (blocks == NULL) {
        return;
    }
    m->alone = step_piece(t, check, r, m->tokens, m->cut, m->n, blocks, n_blocks);
    if (with_slabs) {
        m->slabs = step_slabs(t, r, blocks, n_blocks, m->n, &m->n_slabs);
    }
    step_release(t, check, r, blocks, n_blocks);
}

/* Members of the lengths given, each already run alone. */
static member *draw_members(ol_test *t, const char *check, const step_runner *r,
                            const size_t *lengths, size_t n, bool with_slabs) {
    member *members = ol_alloc(t, n * sizeof *members);
    for (size_t i = 0; i < n; i++) {
        members[i].n = lengths[i];
        members[i].tokens = step_prompt(t, r->vocab, lengths[i]);
        run_alone(t, check, r, &members[i], with_slabs);
    }
    return members;
}

static void compare_rows(ol_test *t, const char *check, const step_runner *r,
                         const member *const *order, size_t n, const float *rows) {
    for (size_t i = 0; i < n; i++) {
        const float *row = rows + i * r->vocab;
        const char *what = ol_text(t, "logits of row %zu of %zu, %zu tokens from position %zu", i,
                                   n, order[i]->n - order[i]->cut, order[i]->cut);
        (void)ol_check(t, "finite", step_finite(row, r->vocab), "%s are not finite", what);
        if (order[i]->alone != NULL) {
            (void)ol_check_f32_bits(t, check, row, r->vocab, order[i]->alone, r->vocab, what);
        }
    }
}

/* One step of these members in this order; each row must be what it is alone. */
static void run_batch(ol_test *t, const char *check, const step_runner *r,
                      const member *const *order, size_t n) {
    step_seq seqs[MAX_MEMBERS] = {{.tokens = NULL}};
    uint32_t *blocks[MAX_MEMBERS];
    bool ready = true;
    for (size_t i = 0; i < n; i++) {
        const member *m = order[i];
        blocks[i] = ready ? table(t, check, r, m) : NULL;
        ready = blocks[i] != NULL;
        seqs[i] = (step_seq){.tokens = m->tokens + m->cut,
                             .n_tokens = m->n - m->cut,
                             .start = m->cut,
                             .blocks = blocks[i],
                             .n_blocks = step_blocks_for(r, m->n)};
    }
    const float *rows = ready ? step_run(t, check, r, seqs, n) : NULL;
    if (rows != NULL) {
        compare_rows(t, check, r, order, n, rows);
    }
    for (size_t i = 0; i < n && blocks[i] != NULL; i++) {
        if (rows != NULL && order[i]->slabs != NULL) {
            size_t n_slabs = 0;
            const uint16_t *slabs =
                step_slabs(t, r, blocks[i], seqs[i].n_blocks, order[i]->n, &n_slabs);
            (void)ol_check_u16s(t, "slab_bits", slabs, n_slabs, order[i]->slabs, order[i]->n_slabs,
                                ol_text(t, "slabs of row %zu of %zu", i, n));
        }
        step_release(t, check, r, blocks[i], seqs[i].n_blocks);
    }
}

static void in_order(const member **order, const member *members, size_t n) {
    for (size_t i = 0; i < n; i++) {
        order[i] = &members[i];
    }
}

static void shuffle(ol_test *t, const member **order, size_t n) {
    for (size_t i = n; i > 1; i--) {
        size_t j = ol_rand_below(t, (uint32_t)i);
        const member *m = order[i - 1];
        order[i - 1] = order[j];
        order[j] = m;
    }
}

/* Mostly short lengths, two long ones in the middle. */
static void draw_lengths(ol_test *t, size_t *lengths, size_t n) {
    for (size_t i = 0; i < n; i++) {
        lengths[i] = 1 + ol_rand_below(t, 11);
    }
    lengths[n / 2] = 131;
    lengths[n / 3] = 70;
}

/* ------------------------------------------------------------------ parts */

static void part_two(ol_test *t) {
    static const size_t pairs[][2] = {{1, 1}, {1, 9}, {7, 8}, {1, 131}, {70, 131}};
    step_runner r;
    if (!prepare(t, "batch_of_two", &kinds[0], &r)) {
        return;
    }
    for (size_t i = 0; i < TEST_COUNT(pairs); i++) {
        const member *order[2];
        const member *members = draw_members(t, "batch_of_two", &r, pairs[i], 2, false);
        in_order(order, members, 2);
        run_batch(t, "batch_of_two", &r, order, 2);
        if (pairs[i][1] > 64) {
            run_batch(t, "long_prompts", &r, order, 2);
        }
    }
    step_free(t, &r);
}

/* Batches of every size, and the largest two in other orders. */
static void batch_sizes(ol_test *t, const kind *k) {
    static const size_t sizes[] = {3, 7, 16, MAX_MEMBERS};
    size_t lengths[MAX_MEMBERS];
    const member *order[MAX_MEMBERS];
    step_runner r;
    if (!prepare(t, "batch_sizes", k, &r)) {
        return;
    }
    draw_lengths(t, lengths, MAX_MEMBERS);
    const member *members = draw_members(t, "batch_sizes", &r, lengths, MAX_MEMBERS, ol_strict(t));
    for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
        /* The last ones first, so that the long ones are in some and not in others. */
        in_order(order, members + MAX_MEMBERS - sizes[i], sizes[i]);
        run_batch(t, "batch_sizes", &r, order, sizes[i]);
        if (sizes[i] >= 16) {
            shuffle(t, order, sizes[i]);
            run_batch(t, "permuted", &r, order, sizes[i]);
        }
    }
    step_free(t, &r);
}

/* More sequences than a byte counts, each of one token: the row is that of the token alone. */
static void part_crowd(ol_test *t) {
    enum { CROWD = 300, SHOWN = 8 };
    const kind *k = &kinds[0];
    const step_cfg cfg = {
        .n_blocks = CROWD, .block_tokens = 1, .max_batch_tokens = CROWD, .max_seqs = CROWD};
    step_runner r;
    tm_put(t, tm_draw(t, &k->shape, k->dtype), k->dir);
    if (!step_load(t, "batch_sizes", k->dir, &cfg, &r)) {
        return;
    }
    const uint32_t *blocks = step_alloc(t, "batch_sizes", &r, CROWD);
    step_seq *seqs = ol_alloc(t, CROWD * sizeof *seqs);
    uint32_t *tokens = ol_alloc(t, CROWD * sizeof *tokens);
    for (size_t i = 0; i < CROWD && blocks != NULL; i++) {
        /* Another token where a count of 8 bits begins again. */
        tokens[i] = (uint32_t)((i + i / 256 * 5) % r.vocab);
        seqs[i] =
            (step_seq){.tokens = tokens + i, .n_tokens = 1, .blocks = blocks + i, .n_blocks = 1};
    }
    const float *rows = blocks == NULL ? NULL : step_run(t, "batch_sizes", &r, seqs, CROWD);
    for (size_t i = 0; i < SHOWN && rows != NULL; i++) {
        const size_t at = CROWD - 1 - i * 37;
        const float *alone = step_run(t, "batch_sizes", &r, &seqs[at], 1);
        if (alone != NULL) {
            (void)ol_check_f32_bits(t, "batch_sizes", rows + at * r.vocab, r.vocab, alone, r.vocab,
                                    ol_text(t, "logits of row %zu of %d", at, CROWD));
        }
    }
    step_free(t, &r);
}

static void part_sizes(ol_test *t) {
    batch_sizes(t, &kinds[0]);
}

static void part_sizes_odd(ol_test *t) {
    batch_sizes(t, &kinds[1]);
}

static void part_sizes_wide(ol_test *t) {
    batch_sizes(t, &kinds[2]);
}

/* Decode steps, second chunks and whole prompts side by side. */
static void mixed_steps(ol_test *t, const kind *k) {
    static const struct {
        size_t n, cut;
    } shapes[] = {{9, 8},   {5, 0},  {131, 130}, {70, 3}, {1, 0}, {2, 1},
                  {17, 16}, {20, 9}, {66, 65},   {12, 0}, {8, 7}};
    enum { N = TEST_COUNT(shapes) };
    step_runner r;
    if (!prepare(t, "mixed_steps", k, &r)) {
        return;
    }
    member *members = ol_alloc(t, N * sizeof *members);
    const member *order[N];
    for (size_t i = 0; i < N; i++) {
        members[i].n = shapes[i].n;
        members[i].cut = shapes[i].cut;
        members[i].tokens = step_prompt(t, r.vocab, members[i].n);
        run_alone(t, "mixed_steps", &r, &members[i], false);
    }
    in_order(order, members, N);
    run_batch(t, "mixed_steps", &r, order, N);
    shuffle(t, order, N);
    run_batch(t, "mixed_steps", &r, order, N);
    step_free(t, &r);
}

static void part_mixed(ol_test *t) {
    for (size_t i = 0; i < TEST_COUNT(kinds); i++) {
        mixed_steps(t, &kinds[i]);
    }
}

/* ------------------------------------------------------------------ other ways to the same bits */

enum { N_WAYS = 9 };

/* A batch run as it always was, and again, each so many times, by runners of these other
 * configurations. */
static void other_ways(ol_test *t, const char *check, const kind *k, const step_cfg *first,
                       const step_cfg *others, size_t n_others, size_t n_times) {
    static const size_t lengths[N_WAYS] = {1, 70, 5, 131, 2, 16, 3, 1, 9};
    const member *order[N_WAYS];
    step_runner r;
    tm_put(t, tm_draw(t, &k->shape, k->dtype), k->dir);
    if (!load(t, check, k, first, &r)) {
        return;
    }
    const member *members = draw_members(t, check, &r, lengths, N_WAYS, false);
    in_order(order, members, N_WAYS);
    step_free(t, &r);
    for (size_t i = 0; i < n_others; i++) {
        if (load(t, check, k, &others[i], &r)) {
            for (size_t n = 0; n < n_times; n++) {
                run_batch(t, check, &r, order, N_WAYS);
            }
            step_free(t, &r);
        }
    }
}

static const json_t *hello(ol_test *t) {
    return ol_call(t, "hello", "{}");
}

static void part_threads(ol_test *t) {
    static const step_cfg one = {.threads = 1};
    static const step_cfg others[] = {
        {.threads = 2}, {.threads = 3}, {.threads = 5}, {.threads = 16}, {.threads = 64}};
    if (!ol_strict(t) || !json_is_true(json_object_get(hello(t), "threads"))) {
        ol_held(t, "thread_bits");
        return;
    }
    /* Threads that are in each other's way are so now and then only, and most of all where each
     * has a processor. */
    other_ways(t, "thread_bits", &kinds[0], &one, others, 1, 20);
    other_ways(t, "thread_bits", &kinds[0], &one, others + 1, TEST_COUNT(others) - 1, 3);
    other_ways(t, "thread_bits", &kinds[1], &one, others + 1, 1, 3);
}

static void part_isas(ol_test *t) {
    static const step_cfg portable = {.isa = "portable"};
    const json_t *isas = json_object_get(hello(t), "isas");
    size_t n = json_array_size(isas);
    step_cfg *others = ol_alloc(t, (n + 1) * sizeof *others);
    for (size_t i = 0; i < n; i++) {
        others[i].isa = json_string_value(json_array_get(isas, i));
    }
    for (size_t i = 0; i < TEST_COUNT(kinds) && ol_strict(t); i++) {
        other_ways(t, "isa_bits", &kinds[i], &portable, others, n, 1);
    }
}

static void part_copied(ol_test *t) {
    static const step_cfg mapped = {.weights = "map"};
    static const step_cfg copied = {.weights = "copy"};
    for (size_t i = 0; i < TEST_COUNT(kinds) && ol_strict(t); i++) {
        other_ways(t, "copied_weights_bits", &kinds[i], &mapped, &copied, 1, 1);
    }
}

void test_batched_forward_equals_single(ol_test *t) {
    static const test_part parts[] = {
        {"two", part_two},
        {"sizes-grouped", part_sizes},
        {"sizes-odd", part_sizes_odd},
        {"sizes-wide", part_sizes_wide},
        {"crowd", part_crowd},
        {"mixed-steps", part_mixed},
        {"threads", part_threads},
        {"instruction-sets", part_isas},
        {"copied-weights", part_copied},
    };
    test_run_parts(t, parts, TEST_COUNT(parts));
}
