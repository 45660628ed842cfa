/* model_twins.c: pairs of models that are one function by how they are made.
 *
 * The goldens are few and small; some mistakes show only where there are more heads to a K/V head
 * than a tile has, more than nine layers, more ids than sixteen bits count, scores far below 0.
 * No numbers of anybody are needed there: a second model that must give the same logits is enough.
 *
 * Source: conformance/spec/forward.md, Llama. */
#include "model_maker.h"
#include "steps.h"
#include "tests.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 9 }; /* tokens of a prompt; the last one is a step of its own */

static const tm_shape small = {.vocab = 40,
                               .hidden = 20,
                               .inter = 28,
                               .layers = 1,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 6,
                               .positions = 64};

/* ------------------------------------------------------------------ making and running */

/* One that is there, to be changed. */
static tm_tensor *tensor(tm_model *m, const char *name) {
    return &m->tensors[tm_find(m, name) - m->tensors];
}

static bool ends_with(const char *name, const char *suffix) {
    const size_t n = strlen(name);
    const size_t n_suffix = strlen(suffix);
    return n >= n_suffix && strcmp(name + n - n_suffix, suffix) == 0;
}

static void store(tm_tensor *to) {
    tm_store(to->dtype, to->values, to->dims[0] * to->dims[1], to->bytes);
}

/* Every tensor of this ending, times a power of two. */
static void scale(tm_model *m, const char *suffix, float factor) {
    for (size_t i = 0; i < m->n_tensors; i++) {
        tm_tensor *to = &m->tensors[i];
        for (size_t k = 0; ends_with(to->name, suffix) && k < to->dims[0] * to->dims[1]; k++) {
            to->values[k] *= factor;
        }
        store(to);
    }
}

/* The values of `from`; its rows in groups of `group`, each group `repeat` times. */
static void take(tm_tensor *to, const tm_tensor *from, size_t group, size_t repeat) {
    const size_t columns = to->dims[1];
    for (size_t row = 0; row < to->dims[0]; row++) {
        const size_t of = row / (group * repeat) * group + row % group;
        memcpy(to->values + row * columns, from->values + of * columns,
               columns * sizeof *to->values);
    }
    store(to);
}

static tm_model *same_again(ol_test *t, const tm_model *m, const char *dtype) {
    tm_model *again = tm_draw(t, &m->shape, dtype);
    for (size_t i = 0; i < m->n_tensors; i++) {
        take(&again->tensors[i], &m->tensors[i], 1, 1);
    }
    return again;
}

static bool open_model(ol_test *t, const tm_model *m, const char *dir, step_runner *r) {
    static const step_cfg cfg = {.n_blocks = 16, .block_tokens = 4};
    tm_put(t, m, dir);
    return step_load(t, "twin_models", dir, &cfg, r);
}

/* The prompt but for its last token, then that. */
static float *run(ol_test *t, const step_runner *r, const uint32_t *tokens, size_t n) {
    const size_t n_blocks = step_blocks_for(r, n);
    uint32_t *blocks = step_alloc(t, "twin_models", r, n_blocks);
    if (blocks == NULL ||
        (n > 1 && step_piece(t, "twin_models", r, tokens, 0, n - 1, blocks, n_blocks) == NULL)) {
        return NULL;
    }
    float *row = step_piece(t, "twin_models", r, tokens, n - 1, n, blocks, n_blocks);
    step_release(t, "twin_models", r, blocks, n_blocks);
    return row;
}

static float *run_model(ol_test *t, const tm_model *m, const uint32_t *tokens, size_t n) {
    step_runner r;
    if (!open_model(t, m, "twin", &r)) {
        return NULL;
    }
    float *row = run(t, &r, tokens, n);
    step_free(t, &r);
    return row;
}

static void check_twins(ol_test *t, const tm_model *a, const tm_model *b, size_t n,
                        const char *what) {
    uint32_t *tokens = step_prompt(t, a->shape.vocab, n);
    float *got = run_model(t, a, tokens, n);
    float *want = run_model(t, b, tokens, n);
    if (got != NULL) {
        (void)ol_check(t, "twin_models", step_finite(got, a->shape.vocab), "%s: not finite", what);
    }
    step_same(t, "twin_models", NULL, got, want, a->shape.vocab, what);
}

/* ------------------------------------------------------------------ the pairs */

/* Query heads that share a K/V head are as if each had its own. */
static void part_grouped(ol_test *t) {
    static const size_t ratios[] = {5, 6, 7, 9};
    for (size_t i = 0; i < TEST_COUNT(ratios); i++) {
        tm_shape shape = small;
        shape.layers = 2;
        shape.heads = 2 * ratios[i];
        tm_model *grouped = tm_draw(t, &shape, "F32");
        shape.kv_heads = shape.heads;
        tm_model *equal = tm_draw(t, &shape, "F32");
        for (size_t k = 0; k < grouped->n_tensors; k++) {
            const tm_tensor *from = &grouped->tensors[k];
            const bool shared =
                ends_with(from->name, "k_proj.weight") || ends_with(from->name, "v_proj.weight");
            take(&equal->tensors[k], from, shape.head_dim, shared ? ratios[i] : 1);
        }
        check_twins(t, grouped, equal, N,
                    ol_text(t, "logits with %zu query heads to a K/V head", ratios[i]));
    }
}

/* Where column or row `at` of heads of `narrow` dimensions lies among heads of `wide` ones, so that
 * the pairs of RoPE turn as before: pair i of D has the frequency of pair 4 i of 4 D. */
static size_t spread(size_t at, size_t narrow, size_t wide) {
    const size_t i = at % narrow;
    const size_t half = i < narrow / 2 ? 0 : 1;
    return at / narrow * wide + half * wide / 2 + wide / narrow * (i - half * narrow / 2);
}

/* Heads four times as wide whose further dimensions are 0, and q twice as large, since scores are
 * divided by a root that is. */
static void widen(tm_tensor *to, const tm_tensor *from, size_t narrow, size_t wide, float factor) {
    const bool by_column = to->dims[1] != from->dims[1];
    memset(to->values, 0, to->dims[0] * to->dims[1] * sizeof *to->values);
    for (size_t row = 0; row < from->dims[0]; row++) {
        for (size_t column = 0; column < from->dims[1]; column++) {
            const size_t to_row = by_column ? row : spread(row, narrow, wide);
            const size_t to_column = by_column ? spread(column, narrow, wide) : column;
            to->values[to_row * to->dims[1] + to_column] =
                factor * from->values[row * from->dims[1] + column];
        }
    }
    store(to);
}

static void part_wide_heads(ol_test *t) {
    static const size_t narrow[] = {18, 24, 32, 40};
    for (size_t i = 0; i < TEST_COUNT(narrow); i++) {
        tm_shape shape = small;
        shape.head_dim = narrow[i];
        tm_model *m = tm_draw(t, &shape, "F32");
        shape.head_dim = 4 * narrow[i];
        tm_model *wide = tm_draw(t, &shape, "F32");
        for (size_t k = 0; k < m->n_tensors; k++) {
            const tm_tensor *from = &m->tensors[k];
            tm_tensor *to = &wide->tensors[k];
            if (strstr(from->name, "self_attn") == NULL) {
                take(to, from, 1, 1);
            } else {
                widen(to, from, narrow[i], shape.head_dim,
                      ends_with(from->name, "q_proj.weight") ? 2.0f : 1.0f);
            }
        }
        check_twins(t, wide, m, N, ol_text(t, "logits with heads of %zu", shape.head_dim));
    }
}

/* Twelve layers of which all but one add nothing are that one. */
static void part_deep(ol_test *t) {
    enum { LAYERS = 12, ACTIVE = 10 };
    tm_shape shape = small;
    tm_model *one = tm_draw(t, &shape, "F32");
    shape.layers = LAYERS;
    tm_model *deep = tm_draw(t, &shape, "F32");
    scale(deep, "o_proj.weight", 0.0f);
    scale(deep, "down_proj.weight", 0.0f);
    for (size_t i = 0; i < one->n_tensors; i++) {
        const char *name = one->tensors[i].name;
        const char *in_layer = strncmp(name, "model.layers.0.", 15) == 0 ? name + 15 : NULL;
        const char *here =
            in_layer == NULL ? name : ol_text(t, "model.layers.%d.%s", ACTIVE, in_layer);
        take(tensor(deep, here), &one->tensors[i], 1, 1);
    }
    check_twins(t, deep, one, N,
                "logits of twelve layers, the eleventh alone of which adds anything");
}

/* An id past 16 bits whose row of the embedding is another id's. */
static void part_wide(ol_test *t) {
    enum { FAR = 65536 + 7, NEAR = 9 };
    tm_shape shape = small;
    shape.vocab = FAR + 30;
    shape.hidden = 8;
    tm_model *m = tm_draw(t, &shape, "F16");
    tm_tensor *embed = tensor(m, "model.embed_tokens.weight");
    memcpy(embed->values + (size_t)FAR * shape.hidden, embed->values + (size_t)NEAR * shape.hidden,
           shape.hidden * sizeof *embed->values);
    store(embed);
    uint32_t *tokens = step_prompt(t, shape.vocab, N);
    step_runner r;
    if (!open_model(t, m, "wide", &r)) {
        return;
    }
    tokens[2] = tokens[N - 1] = FAR;
    float *got = run(t, &r, tokens, N);
    tokens[2] = tokens[N - 1] = NEAR;
    float *want = run(t, &r, tokens, N);
    step_same(
        t, "twin_models", NULL, got, want, shape.vocab,
        ol_text(t, "logits after id %d, whose row of the embedding is that of %d", FAR, NEAR));
    step_free(t, &r);
}

/* Scores so far apart that one key takes all, gates so large that silu is 0 or the gate: sixteen
 * times more of it changes nothing. */
static void part_steep(ol_test *t) {
    tm_model *steep = tm_draw(t, &small, "F32");
    scale(steep, "q_proj.weight", 0x1p24f);
    scale(steep, "gate_proj.weight", 0x1p20f);
    scale(steep, "down_proj.weight", 0x1p-20f);
    tm_model *steeper = same_again(t, steep, "F32");
    scale(steeper, "q_proj.weight", 16.0f);
    scale(steeper, "gate_proj.weight", 16.0f);
    scale(steeper, "down_proj.weight", 1.0f / 16.0f);
    /* A single key has all the weight, however far below 0 its score is. */
    for (size_t n = 1; n < 5; n++) {
        check_twins(t, steep, steeper, 1, "logits of one token with scores in the millions");
        check_twins(t, steep, steeper, n, "logits with scores and gates in the millions");
    }
}

/* Norms of half the size beside matrices of F32. */
static void part_norms(ol_test *t) {
    static const char *const dtypes[] = {"F16", "BF16"};
    for (size_t i = 0; i < TEST_COUNT(dtypes); i++) {
        tm_model *half = tm_draw(t, &small, dtypes[i]);
        tm_model *full = same_again(t, half, "F32");
        tm_model *mixed = same_again(t, half, "F32");
        for (size_t k = 0; k < mixed->n_tensors; k++) {
            if (ends_with(mixed->tensors[k].name, "norm.weight")) {
                mixed->tensors[k] = half->tensors[k];
            }
        }
        check_twins(t, mixed, full, N, ol_text(t, "logits with norms in %s alone", dtypes[i]));
    }
}

/* Two models at a time that differ in theta alone: each is itself, whoever was asked before. */
static void part_side_by_side(ol_test *t) {
    static const char theta[] = "\"rope_theta\": 10000";
    tm_model *m = tm_draw(t, &small, "F32");
    tm_model *other = same_again(t, m, "F32");
    const char *at = strstr(m->config, theta);
    other->config = ol_text(t, "%.*s\"rope_theta\": 50%s", (int)(at - m->config), m->config,
                            at + strlen(theta));
    other->config_len = strlen(other->config);
    uint32_t *tokens = step_prompt(t, small.vocab, N);
    step_runner a;
    step_runner b;
    if (!open_model(t, m, "first", &a) || !open_model(t, other, "second", &b)) {
        return;
    }
    float *before = run(t, &a, tokens, N);
    float *beside = run(t, &b, tokens, N);
    float *after = run(t, &a, tokens, N);
    step_same(t, "twin_models", NULL, after, before, small.vocab,
              "logits of a model after another one was asked");
    if (before != NULL && beside != NULL) {
        (void)ol_check(t, "twin_models", memcmp(before, beside, small.vocab * sizeof *before) != 0,
                       "two models that differ in theta alone, both loaded, have the same logits");
    }
    step_free(t, &b);
    step_free(t, &a);
}

/* ------------------------------------------------------------------ past f16 */

static void check_overflow(ol_test *t, const step_runner *r, const char *isa) {
    const uint32_t *tokens = step_prompt(t, r->vocab, 1);
    uint32_t *blocks = step_alloc(t, "overflow_shows", r, 1);
    float *row =
        blocks == NULL ? NULL : step_piece(t, "overflow_shows", r, tokens, 0, 1, blocks, 1);
    if (row == NULL) {
        return;
    }
    size_t n = 0;
    size_t n_infinite = 0;
    size_t n_largest = 0;
    const uint16_t *slabs = step_slabs(t, r, blocks, 1, 1, &n);
    for (size_t i = 0; i < n; i++) {
        n_infinite += (slabs[i] & 0x7fffu) == 0x7c00u ? 1 : 0;
        n_largest += (slabs[i] & 0x7fffu) == 0x7bffu ? 1 : 0;
    }
    (void)ol_check(t, "overflow_shows", n_infinite > 0 && n_largest == 0,
                   "values of V in the millions, %s: %zu of the slabs are infinite and %zu the "
                   "largest of f16",
                   isa, n_infinite, n_largest);
    (void)ol_check(t, "overflow_shows", !step_finite(row, r->vocab),
                   "infinite values of V, %s: every logit is finite", isa);
    step_release(t, "overflow_shows", r, blocks, 1);
}

/* What is too large for f16 is infinite, and nobody can take the logits for sound. */
static void part_overflow(ol_test *t) {
    static const char *const isas[] = {"auto", "portable"};
    tm_model *m = tm_draw(t, &small, "F32");
    scale(m, "v_proj.weight", 0x1p24f);
    tm_put(t, m, "huge");
    for (size_t i = 0; i < TEST_COUNT(isas); i++) {
        const step_cfg cfg = {.n_blocks = 4, .block_tokens = 4, .isa = isas[i]};
        step_runner r;
        if (step_load(t, "overflow_shows", "huge", &cfg, &r)) {
            check_overflow(t, &r, isas[i]);
            step_free(t, &r);
        }
    }
}

void test_model_twins(ol_test *t) {
    static const test_part parts[] = {{"twins-grouped", part_grouped},
                                      {"twins-wide-heads", part_wide_heads},
                                      {"twins-deep", part_deep},
                                      {"twins-wide", part_wide},
                                      {"twins-steep", part_steep},
                                      {"twins-norms", part_norms},
                                      {"twins-side-by-side", part_side_by_side},
                                      {"overflow", part_overflow}};
    test_run_parts(t, parts, TEST_COUNT(parts));
}
