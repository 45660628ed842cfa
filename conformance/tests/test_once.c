/* test_once.c: run_once_returns_its_blocks: computed beside the service, without a trace.
 *
 * A small model with steps of at most 8 tokens, so that most prompts are cut inside, and the same
 * with steps long enough. About 2 million multiply-adds in all. */
#include "model_maker.h"
#include "steps.h"
#include "tests.h"

#include <string.h>

enum { B = 4, STEP = 8, POSITIONS = 48 };

static const tm_shape shape = {.vocab = 29,
                               .hidden = 16,
                               .inter = 24,
                               .layers = 2,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_dim = 8,
                               .positions = POSITIONS};

/* A runner with this many blocks and this step limit on the test's model. */
static bool load(ol_test *t, const char *check, size_t n_blocks, size_t step, step_runner *r) {
    step_cfg cfg = {.n_blocks = n_blocks, .block_tokens = B, .max_batch_tokens = step};
    return step_load(t, check, "model", &cfg, r);
}

static bool prepare(ol_test *t, const char *check, size_t n_blocks, size_t step, step_runner *r) {
    tm_put(t, tm_draw(t, &shape, "F32"), "model");
    return load(t, check, n_blocks, step, r);
}

static const json_t *try_once(ol_test *t, const step_runner *r, const uint32_t *tokens,
                              size_t n_tokens) {
    return ol_call(t, "run_once", "{s:I, s:o}", "runner", (json_int_t)r->runner, "tokens",
                   ol_u32(tokens, n_tokens));
}

/* ------------------------------------------------------------------ blocks given back */

static void part_five_calls(ol_test *t) {
    static const size_t lengths[] = {1, 5, 9, 21, POSITIONS};
    step_runner r;
    if (!prepare(t, "five_calls", 16, STEP, &r)) {
        return;
    }
    for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
        (void)step_once(t, "five_calls", &r, step_prompt(t, r.vocab, lengths[i]), lengths[i], NULL,
                        NULL);
        step_check_stats(t, "five_calls", &r, r.n_blocks, 0, 0,
                         ol_text(t, "after call %zu", i + 1));
    }
    step_free(t, &r);
}

static void fail_once(ol_test *t, const step_runner *r, const uint32_t *tokens, size_t n,
                      const char *status, const char *what) {
    (void)ol_check_refused(t, "failing_calls", try_once(t, r, tokens, n), status, NULL, -1, what);
    step_check_stats(t, "failing_calls", r, r->n_blocks, 0, 0, ol_text(t, "after %s", what));
}

static void part_failing_calls(ol_test *t) {
    step_runner r;
    if (!prepare(t, "failing_calls", 16, STEP, &r)) {
        return;
    }
    uint32_t *tokens = step_prompt(t, r.vocab, POSITIONS + 1);
    uint32_t *unknown = step_prompt(t, r.vocab, 20);
    unknown[19] = (uint32_t)r.vocab; /* in the last of its steps */
    fail_once(t, &r, tokens, 0, "INVALID", "an empty prompt");
    fail_once(t, &r, tokens, POSITIONS + 1, "INVALID", "a prompt one longer than the context");
    fail_once(t, &r, unknown, 20, "INVALID", "an id equal to the vocabulary");
    unknown[19] = (uint32_t)r.vocab - 1;
    (void)ol_check_ok(t, "failing_calls", try_once(t, &r, unknown, 20), "the largest id");
    (void)ol_check_ok(t, "failing_calls", try_once(t, &r, tokens, POSITIONS),
                      "a prompt as long as the context");
    step_check_stats(t, "failing_calls", &r, r.n_blocks, 0, 0, "after the sound twins");
    step_free(t, &r);
}

/* ------------------------------------------------------------------ the index */

/* Cache n blocks and give them in the order of their release, which is neither that of their ids
 * nor its reverse. No values are needed for that. */
static uint32_t *cache_blocks(ol_test *t, const char *check, const step_runner *r, size_t n) {
    uint32_t *ids = step_alloc(t, check, r, n);
    uint32_t *order = ol_alloc(t, n * sizeof *order);
    for (size_t i = 0; i < n && ids != NULL; i++) {
        const json_t *filled = ol_call(t, "kv_set_fill", "{s:I, s:I, s:i}", "pool",
                                       (json_int_t)r->pool, "id", (json_int_t)ids[i], "fill", B);
        const json_t *keyed =
            ol_call(t, "kv_register", "{s:I, s:I, s:s}", "pool", (json_int_t)r->pool, "id",
                    (json_int_t)ids[i], "key", step_key(t, 0, i));
        (void)ol_check_ok(t, check, filled, "set_fill");
        (void)ol_check_ok(t, check, keyed, "register");
        order[(i + n / 2) % n] = ids[i];
    }
    if (ids == NULL) {
        return NULL;
    }
    step_release(t, check, r, order, n);
    return order;
}

/* The cached blocks, oldest first, are still those: taken one by one once no free one is left. */
static void check_eviction(ol_test *t, const char *check, const step_runner *r,
                           const uint32_t *oldest_first, size_t n) {
    const step_info *infos = step_infos(t, r, oldest_first, n);
    for (size_t i = 0; i < n; i++) {
        (void)ol_check(t, check, infos[i].registered && infos[i].refs == 0, "cached block %u is %s",
                       oldest_first[i], infos[i].registered ? "held" : "no longer in the index");
    }
    step_check_stats(t, check, r, r->n_blocks - n, n, 0, "with cached blocks");
    uint32_t *rest = step_alloc(t, check, r, r->n_blocks - n);
    for (size_t i = 0; i < n && rest != NULL; i++) {
        const uint32_t *id = step_alloc(t, check, r, 1);
        if (id == NULL) {
            return;
        }
        (void)ol_check_int(t, check, *id, oldest_first[i], ol_text(t, "eviction number %zu", i));
    }
}

static void part_index(ol_test *t) {
    enum { CACHED = 5 };
    step_runner r;
    if (!prepare(t, "index_unchanged", 16, STEP, &r)) {
        return;
    }
    const uint32_t *cached = cache_blocks(t, "index_unchanged", &r, CACHED);
    uint32_t *tokens = step_prompt(t, r.vocab, 21);
    for (size_t n = 1; n <= 21 && cached != NULL; n += 10) {
        (void)step_once(t, "index_unchanged", &r, tokens, n, NULL, NULL);
    }
    (void)try_once(t, &r, tokens, 0);
    if (cached != NULL) {
        check_eviction(t, "index_unchanged", &r, cached, CACHED);
    }
    step_free(t, &r);
}

/* Two blocks free and four cached: a prompt of three blocks does not fit, one of two does. */
static void part_free_only(ol_test *t) {
    enum { CACHED = 4, FREE = 2 };
    step_runner r;
    if (!prepare(t, "free_blocks_only", CACHED + FREE, STEP, &r)) {
        return;
    }
    const uint32_t *cached = cache_blocks(t, "free_blocks_only", &r, CACHED);
    uint32_t *tokens = step_prompt(t, r.vocab, FREE * B + 1);
    if (cached != NULL) {
        (void)ol_check_refused(t, "free_blocks_only", try_once(t, &r, tokens, FREE * B + 1),
                               "CAPACITY", NULL, -1,
                               "a prompt of three blocks, two free and four cached");
        step_check_stats(t, "free_blocks_only", &r, FREE, CACHED, 0, "after the refusal");
        (void)ol_check_ok(t, "free_blocks_only", try_once(t, &r, tokens, FREE * B),
                          "a prompt of two blocks");
        check_eviction(t, "free_blocks_only", &r, cached, CACHED);
    }
    step_free(t, &r);
}

static void part_used_blocks(ol_test *t) {
    enum { HELD = 3, N = 10 };
    step_runner r;
    if (!prepare(t, "used_blocks_untouched", 16, STEP, &r)) {
        return;
    }
    uint32_t *tokens = step_prompt(t, r.vocab, POSITIONS);
    uint32_t *held = step_alloc(t, "used_blocks_untouched", &r, HELD);
    if (held == NULL ||
        step_piece(t, "used_blocks_untouched", &r, tokens, 0, STEP, held, HELD) == NULL ||
        step_piece(t, "used_blocks_untouched", &r, tokens, STEP, N, held, HELD) == NULL) {
        return;
    }
    size_t n_before = 0;
    size_t n_after = 0;
    const uint16_t *before = step_slabs(t, &r, held, HELD, SIZE_MAX, &n_before);
    (void)step_once(t, "used_blocks_untouched", &r, tokens, POSITIONS, NULL, NULL);
    (void)step_once(t, "used_blocks_untouched", &r, tokens + N, 17, NULL, NULL);
    const uint16_t *after = step_slabs(t, &r, held, HELD, SIZE_MAX, &n_after);
    (void)ol_check_u16s(t, "used_blocks_untouched", after, n_after, before, n_before,
                        "slabs of held blocks");
    step_check_fills(t, "used_blocks_untouched", &r, held, HELD, N);
    const step_info *infos = step_infos(t, &r, held, HELD);
    for (size_t i = 0; i < HELD; i++) {
        (void)ol_check_int(t, "used_blocks_untouched", (int64_t)infos[i].refs, 1,
                           "references of a held block");
    }
    step_check_stats(t, "used_blocks_untouched", &r, r.n_blocks - HELD, 0, HELD, "afterwards");
    step_free(t, &r);
}

/* ------------------------------------------------------------------ results */

static void compare_hidden(ol_test *t, const char *check, const float *got, size_t n_got,
                           const float *want, size_t n_want, const char *what) {
    if (got != NULL && want != NULL) {
        (void)ol_check_f32_max_abs(t, check, got, n_got, want, n_want, STEP_BOUND, what);
        (void)ol_check_f32_bits(t, "same_bits", got, n_got, want, n_want, what);
    }
}

/* The short steps against a runner whose step takes the prompt whole, and against forward. */
static void part_chunks(ol_test *t) {
    enum { N = 3 * STEP + 5 };
    step_runner cut;
    step_runner whole;
    if (!prepare(t, "longer_than_step", 16, STEP, &cut) ||
        !load(t, "longer_than_step", 16, POSITIONS, &whole)) {
        return;
    }
    uint32_t *tokens = step_prompt(t, cut.vocab, N);
    float *got_hidden = NULL;
    float *want_hidden = NULL;
    size_t n_got = 0;
    size_t n_want = 0;
    float *got = step_once(t, "longer_than_step", &cut, tokens, N, &got_hidden, &n_got);
    float *want = step_once(t, "longer_than_step", &whole, tokens, N, &want_hidden, &n_want);
    step_same(t, "longer_than_step", "same_bits", got, want, cut.vocab,
              "logits of a prompt of three and a half steps");
    compare_hidden(t, "longer_than_step", got_hidden, n_got, want_hidden, n_want,
                   "hidden values of a prompt of three and a half steps");
    float *forward = step_cold(t, "last_logits", &whole, tokens, N);
    step_same(t, "last_logits", "same_bits", got, forward, cut.vocab, "logits, cut inside");
    step_same(t, "last_logits", "same_bits", want, forward, cut.vocab, "logits, in one step");
    forward = step_cold(t, "last_logits", &whole, tokens, 1);
    got = step_once(t, "last_logits", &cut, tokens, 1, NULL, NULL);
    step_same(t, "last_logits", "same_bits", got, forward, cut.vocab, "logits of one token");
    step_free(t, &cut);
    step_free(t, &whole);
}

static void part_hidden(ol_test *t) {
    enum { N = STEP + 4 };
    step_runner r;
    if (!prepare(t, "hidden_rows", 16, STEP, &r)) {
        return;
    }
    uint32_t *tokens = step_prompt(t, r.vocab, N);
    size_t d = shape.hidden;
    float *last_rows = ol_alloc(t, N * d * sizeof *last_rows);
    bool complete = true;
    for (size_t n = 1; n <= N; n++) {
        float *hidden = NULL;
        size_t n_hidden = 0;
        (void)step_once(t, "hidden_rows", &r, tokens, n, &hidden, &n_hidden);
        (void)ol_check_int(t, "hidden_rows", (int64_t)n_hidden, (int64_t)(n * d),
                           ol_text(t, "hidden values of %zu tokens", n));
        complete = complete && n_hidden == n * d;
        if (complete) {
            (void)ol_check(t, "hidden_rows", step_finite(hidden, n_hidden),
                           "a hidden value of %zu tokens is not finite", n);
            memcpy(last_rows + (n - 1) * d, hidden + (n - 1) * d, d * sizeof *last_rows);
        }
        if (complete && n == N) {
            compare_hidden(t, "hidden_rows", hidden, n_hidden, last_rows, N * d,
                           "each row against the last row of the prompt cut there");
        }
    }
    step_free(t, &r);
}

/* A head whose rows have a single 1 each: whatever the order of a product's sum, it is exact. */
static tm_model *with_unit_head(ol_test *t) {
    tm_model *m = tm_draw(t, &shape, "F32");
    for (size_t i = 0; i < m->n_tensors; i++) {
        const tm_tensor *head = &m->tensors[i];
        static const uint8_t one[4] = {0x00, 0x00, 0x80, 0x3f};
        if (strcmp(head->name, "lm_head.weight") == 0) {
            memset(head->bytes, 0, head->n_bytes);
            for (size_t row = 0; row < shape.vocab; row++) {
                memcpy(head->bytes + 4 * (row * shape.hidden + row % shape.hidden), one, 4);
            }
        }
    }
    return m;
}

static void part_head(ol_test *t) {
    enum { N = STEP - 1 };
    step_runner r;
    tm_put(t, with_unit_head(t), "model");
    if (!load(t, "head_exact", 16, STEP, &r)) {
        return;
    }
    float *hidden = NULL;
    size_t n_hidden = 0;
    const uint32_t *tokens = step_prompt(t, r.vocab, N);
    const float *logits = step_once(t, "head_exact", &r, tokens, N, &hidden, &n_hidden);
    if (logits != NULL && n_hidden == N * shape.hidden) {
        float *want = ol_alloc(t, shape.vocab * sizeof *want);
        for (size_t row = 0; row < shape.vocab; row++) {
            want[row] = hidden[(N - 1) * shape.hidden + row % shape.hidden];
        }
        (void)ol_check_f32_bits(t, "head_exact", logits, r.vocab, want, shape.vocab,
                                "logits by a head of single ones");
    }
    step_free(t, &r);
}

static void part_memory(ol_test *t) {
    if (ol_strict(t)) {
        tm_put(t, with_unit_head(t), "model");
        const json_t *answer = ol_call(t, "memory", "{s:s}", "dir", "model");
        (void)ol_check_ok(t, "memory", answer, "rounds of making, refusing and freeing");
        answer = ol_call(t, "faults", "{s:s}", "dir", "model");
        (void)ol_check_ok(t, "system_calls", answer, "a model where system calls fail");
    }
}

void test_run_once_returns_its_blocks(ol_test *t) {
    static const test_part parts[] = {
        {"five-calls", part_five_calls},
        {"failing-calls", part_failing_calls},
        {"index", part_index},
        {"free-blocks-only", part_free_only},
        {"used-blocks", part_used_blocks},
        {"chunks", part_chunks},
        {"hidden", part_hidden},
        {"head", part_head},
        {"memory", part_memory},
    };
    test_run_parts(t, parts, TEST_COUNT(parts));
}
