/* test_bigram.c: bigram_checkpoint_still_serves: the smallest model through every layer.
 *
 * The model is the goldens' bigram, or one that is drawn where a folder of goldens has none. The
 * expected rows are read from its file by the judge. Costs no multiply-adds. */
#include "model_maker.h"
#include "steps.h"
#include "tests.h"

#include <string.h>

typedef struct bigram {
    const tm_model *model;
    const float *weights; /* [vocab, vocab] */
    const char *dir;
} bigram;

static bigram find_bigram(ol_test *t) {
    bigram b = {.model = NULL, .dir = "bigram"};
    for (size_t i = 0; i < ol_n_models(t) && b.model == NULL; i++) {
        const char *name = ol_model_at(t, i);
        if (!tm_shape_of(t, NULL, name).llama) {
            b.model = tm_read(t, NULL, name);
        }
    }
    if (b.model == NULL) {
        b.model = tm_draw_bigram(t);
    }
    b.weights = tm_find(b.model, "bigram.weight")->values;
    tm_put(t, b.model, b.dir);
    return b;
}

static const float *row_of(const bigram *b, uint32_t token) {
    return b->weights + (size_t)token * b->model->shape.vocab;
}

/* ------------------------------------------------------------------ loading */

static bool text_is(const json_t *config, const char *key, const char *want) {
    const char *got = json_string_value(json_object_get(config, key));
    return got != NULL && strcmp(got, want) == 0;
}

static void count_is(ol_test *t, const json_t *config, const char *key, size_t want) {
    (void)ol_check_int(t, "loads", json_integer_value(json_object_get(config, key)), (int64_t)want,
                       key);
}

static void check_config(ol_test *t, const bigram *b, const json_t *config) {
    const tm_shape *s = &b->model->shape;
    const json_t *eos = json_object_get(config, "eos_token_ids");
    (void)ol_check(t, "loads", text_is(config, "arch", "bigram"), "arch is not bigram");
    (void)ol_check(t, "loads", text_is(config, "tokenizer", s->tokenizer), "tokenizer is not %s",
                   s->tokenizer);
    count_is(t, config, "vocab_size", s->vocab);
    count_is(t, config, "max_positions", s->positions);
    (void)ol_check_int(t, "loads", (int64_t)json_array_size(eos), (int64_t)s->n_eos,
                       "number of eos ids");
    for (size_t i = 0; i < s->n_eos && i < json_array_size(eos); i++) {
        (void)ol_check_int(t, "loads", json_integer_value(json_array_get(eos, i)),
                           (int64_t)s->eos[i], "eos id");
    }
}

/* The header of an empty envelope tells the pool's shape. */
static void check_pool_shape(ol_test *t, const step_runner *r) {
    static const struct {
        const char *name;
        size_t at, value;
    } fields[] = {{"n_layers", 24, 1}, {"n_kv_heads", 28, 1}, {"head_dim", 32, 2}};
    const json_t *answer =
        ol_call(t, "kv_export", "{s:I, s:o}", "pool", (json_int_t)r->pool, "ids", ol_u32(NULL, 0));
    if (!ol_check_ok(t, "pool_shape", answer, "export of no block")) {
        return;
    }
    size_t n = 0;
    const uint8_t *bytes = ol_res_u8s(t, answer, "bytes", &n);
    if (!ol_check_int(t, "pool_shape", (int64_t)n, 64, "bytes of an envelope of no block")) {
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        const uint8_t *at = bytes + fields[i].at;
        uint32_t value = (uint32_t)at[0] | ((uint32_t)at[1] << 8) | ((uint32_t)at[2] << 16) |
                         ((uint32_t)at[3] << 24);
        (void)ol_check_int(t, "pool_shape", value, (int64_t)fields[i].value, fields[i].name);
    }
}

/* ------------------------------------------------------------------ serving */

static void check_row(ol_test *t, const char *check, const bigram *b, const float *row,
                      uint32_t token) {
    if (row != NULL) {
        size_t n = b->model->shape.vocab;
        (void)ol_check_f32_bits(t, check, row, n, row_of(b, token), n,
                                ol_text(t, "logits after id %u", token));
    }
}

static void serve_greedy(ol_test *t, const bigram *b, const step_runner *r) {
    uint32_t text[4] = {'a'};
    uint32_t *blocks = step_alloc(t, "greedy_bcd", r, 2);
    if (blocks == NULL) {
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        float *row = step_piece(t, "greedy_bcd", r, text, i, i + 1, blocks, 2);
        check_row(t, "logits_row_bits", b, row, text[i]);
        step_check_fills(t, "fill_rises", r, blocks, 2, i + 1);
        text[i + 1] = (uint32_t)('b' + i);
        if (row != NULL) {
            (void)ol_check_int(t, "greedy_bcd", (int64_t)step_argmax(row, r->vocab), text[i + 1],
                               "greedy id");
        }
    }
    step_release(t, "greedy_bcd", r, blocks, 2);
}

/* A prompt that fills a block and a half in one step, then one more token. */
static void serve_prompt(ol_test *t, const bigram *b, const step_runner *r) {
    size_t n = r->block_tokens + 2;
    uint32_t *tokens = step_prompt(t, r->vocab, n + 1);
    uint32_t *blocks = step_alloc(t, "fill_rises", r, 3);
    if (blocks == NULL) {
        return;
    }
    step_poison(t, "slabs_untouched", r, blocks, 3, 0);
    size_t n_before = 0;
    size_t n_after = 0;
    const uint16_t *before = step_slabs(t, r, blocks, 3, SIZE_MAX, &n_before);
    check_row(t, "logits_row_bits", b, step_piece(t, "logits_row_bits", r, tokens, 0, n, blocks, 3),
              tokens[n - 1]);
    step_check_fills(t, "fill_rises", r, blocks, 3, n);
    check_row(t, "logits_row_bits", b,
              step_piece(t, "logits_row_bits", r, tokens, n, n + 1, blocks, 3), tokens[n]);
    step_check_fills(t, "fill_rises", r, blocks, 3, n + 1);
    const uint16_t *after = step_slabs(t, r, blocks, 3, SIZE_MAX, &n_after);
    (void)ol_check_u16s(t, "slabs_untouched", after, n_after, before, n_before,
                        "slabs after two steps");
    step_release(t, "fill_rises", r, blocks, 3);
}

static void serve_batch(ol_test *t, const bigram *b, const step_runner *r) {
    enum { N = 4 };
    step_seq seqs[N];
    uint32_t *blocks = step_alloc(t, "batch", r, N);
    if (blocks == NULL) {
        return;
    }
    for (size_t i = 0; i < N; i++) {
        size_t n = 1 + (i * 2) % r->block_tokens;
        seqs[i] = (step_seq){.tokens = step_prompt(t, r->vocab, n),
                             .n_tokens = n,
                             .blocks = blocks + i,
                             .n_blocks = 1};
    }
    const float *rows = step_run(t, "batch", r, seqs, N);
    for (size_t i = 0; i < N && rows != NULL; i++) {
        check_row(t, "batch", b, rows + i * r->vocab, seqs[i].tokens[seqs[i].n_tokens - 1]);
    }
    step_release(t, "batch", r, blocks, N);
}

static void serve_once(ol_test *t, const bigram *b, const step_runner *r) {
    uint32_t *tokens = step_prompt(t, r->vocab, 11);
    for (size_t n = 1; n <= 11; n += 5) {
        float *hidden = NULL;
        size_t n_hidden = 0;
        float *row = step_once(t, "run_once", r, tokens, n, n == 6 ? NULL : &hidden, &n_hidden);
        check_row(t, "run_once", b, row, tokens[n - 1]);
        (void)ol_check_int(t, "run_once", (int64_t)n_hidden, 0, "hidden values of a bigram");
        step_check_stats(t, "run_once", r, r->n_blocks, 0, 0, "after run_once");
    }
}

/* ------------------------------------------------------------------ refusing */

static void refuse(ol_test *t, const step_runner *r, step_seq bad, step_seq sound,
                   const char *status, const char *what) {
    (void)ol_check_refused(t, "checks_hold", step_try(t, r, &bad, 1), status, NULL, -1, what);
    (void)ol_check_ok(t, "checks_hold", step_try(t, r, &sound, 1),
                      ol_text(t, "the sound twin of: %s", what));
}

static void refuse_all(ol_test *t, const bigram *b, const step_runner *r) {
    size_t positions = b->model->shape.positions;
    size_t n_blocks = step_blocks_for(r, positions) + 1;
    uint32_t *tokens = step_prompt(t, r->vocab, positions + 1);
    uint32_t *blocks = step_alloc(t, "checks_hold", r, n_blocks);
    if (blocks == NULL) {
        return;
    }
    step_seq one = {.tokens = tokens, .n_tokens = 1, .blocks = blocks, .n_blocks = n_blocks};
    step_seq full = one;
    full.n_tokens = positions;
    step_seq over = full;
    over.n_tokens = positions + 1;
    refuse(t, r, over, full, "INVALID", "one position past the context");
    step_seq covered = one;
    covered.n_tokens = r->block_tokens + 1;
    covered.n_blocks = 2;
    step_seq uncovered = covered;
    uncovered.n_blocks = 1;
    refuse(t, r, uncovered, covered, "INVALID", "a table that is a block short");
    step_release(t, "checks_hold", r, &blocks[n_blocks - 1], 1);
    step_seq tail = one;
    tail.n_blocks = n_blocks - 1;
    refuse(t, r, one, tail, "STATE", "a free block in the table");
    uint32_t past = (uint32_t)r->vocab;
    uint32_t last = past - 1;
    step_seq unknown = tail;
    unknown.tokens = &past;
    step_seq known = tail;
    known.tokens = &last;
    refuse(t, r, unknown, known, "INVALID", "an id equal to the vocabulary");
    step_release(t, "checks_hold", r, blocks, n_blocks - 1);
}

void test_bigram_checkpoint_still_serves(ol_test *t) {
    bigram b = find_bigram(t);
    step_cfg cfg = {.n_blocks = 32, .block_tokens = 4};
    step_runner r;
    const json_t *answer = step_load_try(t, b.dir, &cfg, &r);
    if (!ol_check_ok(t, "loads", answer, "load of the bigram")) {
        return;
    }
    check_config(t, &b, json_object_get(answer, "config"));
    check_pool_shape(t, &r);
    if (r.vocab != b.model->shape.vocab) {
        return; /* its rows have another length, which is on record */
    }
    if (ol_begin(t, "greedy")) {
        serve_greedy(t, &b, &r);
    }
    if (ol_begin(t, "prompt")) {
        serve_prompt(t, &b, &r);
    }
    if (ol_begin(t, "batch")) {
        serve_batch(t, &b, &r);
    }
    if (ol_begin(t, "run-once")) {
        serve_once(t, &b, &r);
    }
    if (ol_begin(t, "refused")) {
        refuse_all(t, &b, &r);
    }
}
