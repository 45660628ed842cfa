/* test_int4_runner.c: int4_runner_matches_its_dequantized_model: a model quantized while loading,
 * its int4 file, and the F32 model of what int4 makes of it.
 *
 * The judge draws the models and makes file and twin by itself (model_maker.h). One is untied and
 * stored in F32, one tied and stored in BF16. About 8 million multiply-adds in all. */
#include "model_maker.h"
#include "steps.h"
#include "tests.h"

#include <math.h>
#include <string.h>

enum { N_PROMPTS = 3 };

static const size_t lengths[N_PROMPTS] = {3, 9, 17};

typedef struct kind {
    const char *part, *dtype;
    size_t group, no_divisor; /* even, divides some columns and not all */
    tm_shape shape;
} kind;

/* Columns: hidden, heads x head_dim, inter. */
static const kind untied = {"untied",
                            "F32",
                            16,
                            32,
                            {.vocab = 48,
                             .hidden = 32,
                             .inter = 48,
                             .layers = 2,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 8,
                             .positions = 64}};
static const kind small_groups = {"small-groups",
                                  "F16",
                                  2,
                                  20,
                                  {.vocab = 31,
                                   .hidden = 20,
                                   .inter = 22,
                                   .layers = 1,
                                   .heads = 3,
                                   .kv_heads = 1,
                                   .head_dim = 4,
                                   .positions = 64}};
static const kind tied = {"tied",
                          "BF16",
                          8,
                          24,
                          {.vocab = 40,
                           .hidden = 24,
                           .inter = 40,
                           .layers = 2,
                           .heads = 3,
                           .kv_heads = 1,
                           .head_dim = 8,
                           .positions = 64,
                           .tied = true}};

/* The four ways to run one model. */
typedef struct family {
    const kind *k;
    const uint32_t *prompts[N_PROMPTS];
    const float *dense[N_PROMPTS], *at_load[N_PROMPTS], *from_file[N_PROMPTS], *twin[N_PROMPTS];
    size_t vocab;
} family;

/* The rows of all prompts by a runner that is loaded for it and freed. */
static void run(ol_test *t, const char *check, const char *dir, size_t group, family *f,
                const float **rows) {
    step_runner r;
    step_cfg cfg = {.n_blocks = 16, .int4_group = group};
    if (!step_load(t, check, dir, &cfg, &r)) {
        return;
    }
    if (!ol_check_int(t, check, (int64_t)r.vocab, (int64_t)f->vocab, "vocab_size")) {
        return;
    }
    for (size_t i = 0; i < N_PROMPTS; i++) {
        rows[i] = step_cold(t, check, &r, f->prompts[i], lengths[i]);
        if (rows[i] != NULL) {
            (void)ol_check(t, "finite", step_finite(rows[i], f->vocab),
                           "a logit of %s after %zu tokens is not finite", dir, lengths[i]);
        }
    }
    step_free(t, &r);
}

static family make_family(ol_test *t, const kind *k) {
    family f = {.k = k, .vocab = k->shape.vocab};
    tm_model *dense = tm_draw(t, &k->shape, k->dtype);
    tm_put(t, dense, "dense");
    tm_put(t, tm_int4(t, dense, k->group), "int4");
    tm_put(t, tm_dequantized(t, dense, k->group), "dequantized");
    for (size_t i = 0; i < N_PROMPTS; i++) {
        f.prompts[i] = step_prompt(t, f.vocab, lengths[i]);
    }
    return f;
}

/* ------------------------------------------------------------------ the same model */

static void compare_bits(ol_test *t, const char *check, const family *f, size_t i) {
    if (f->at_load[i] != NULL && f->from_file[i] != NULL) {
        (void)ol_check_f32_bits(
            t, check, f->at_load[i], f->vocab, f->from_file[i], f->vocab,
            ol_text(t, "%s, groups of %zu: at load and from the file", f->k->part, f->k->group));
    }
}

/* Quantizing changes the logits by far more than any order of sums. */
static void compare_dense(ol_test *t, const family *f, size_t i) {
    if (f->dense[i] == NULL || f->at_load[i] == NULL) {
        return;
    }
    double largest = 0.0;
    double moved = 0.0;
    for (size_t v = 0; v < f->vocab; v++) {
        largest = fmax(largest, fabs((double)f->dense[i][v]));
        moved = fmax(moved, fabs((double)f->at_load[i][v] - (double)f->dense[i][v]));
    }
    (void)ol_check(t, "differs_from_dense", moved > STEP_BOUND * largest,
                   "quantizing moved the logits by %g of the largest only", moved / largest);
}

static void part_of(ol_test *t, const kind *k) {
    family f = make_family(t, k);
    run(t, "loads_both", "dense", 0, &f, f.dense);
    run(t, "loads_both", "dense", k->group, &f, f.at_load);
    run(t, "loads_both", "int4", 0, &f, f.from_file);
    run(t, "near_dequantized", "dequantized", 0, &f, f.twin);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        compare_bits(t, "file_equals_load_bits", &f, i);
        compare_bits(t, "untied_head", &f, i);
        step_same(t, "near_dequantized", "dequantized_bits", f.at_load[i], f.twin[i], f.vocab,
                  "quantized at load against the dequantized twin");
        step_same(t, "near_dequantized", "dequantized_bits", f.from_file[i], f.twin[i], f.vocab,
                  "the int4 file against the dequantized twin");
        step_same(t, "untied_head", NULL, f.from_file[i], f.twin[i], f.vocab,
                  "the int4 file against the dequantized twin");
        compare_dense(t, &f, i);
    }
}

static void part_untied(ol_test *t) {
    part_of(t, &untied);
}

static void part_tied(ol_test *t) {
    part_of(t, &tied);
}

static void part_small_groups(ol_test *t) {
    part_of(t, &small_groups);
}

/* ------------------------------------------------------------------ batches */

static void batch(ol_test *t, const char *dir, size_t group, const family *f) {
    step_runner r;
    step_cfg cfg = {.n_blocks = 16, .int4_group = group};
    step_seq seqs[N_PROMPTS];
    if (!step_load(t, "batch_bits", dir, &cfg, &r) ||
        !ol_check_int(t, "batch_bits", (int64_t)r.vocab, (int64_t)f->vocab, "vocab_size")) {
        return;
    }
    const float *alone[N_PROMPTS];
    for (size_t i = 0; i < N_PROMPTS; i++) {
        size_t n_blocks = step_blocks_for(&r, lengths[i]);
        alone[i] = step_cold(t, "batch_bits", &r, f->prompts[i], lengths[i]);
        seqs[i] = (step_seq){.tokens = f->prompts[i],
                             .n_tokens = lengths[i],
                             .blocks = step_alloc(t, "batch_bits", &r, n_blocks),
                             .n_blocks = n_blocks};
    }
    const float *rows = step_run(t, "batch_bits", &r, seqs, N_PROMPTS);
    for (size_t i = 0; i < N_PROMPTS && rows != NULL; i++) {
        if (alone[i] != NULL) {
            (void)ol_check_f32_bits(t, "batch_bits", rows + i * f->vocab, f->vocab, alone[i],
                                    f->vocab, ol_text(t, "%s: row %zu of a batch", dir, i));
        }
    }
    step_free(t, &r);
}

static void part_batch(ol_test *t) {
    family f = make_family(t, &untied);
    batch(t, "int4", 0, &f);
    batch(t, "dense", untied.group, &f);
    f = make_family(t, &tied);
    batch(t, "int4", 0, &f);
}

/* ------------------------------------------------------------------ refusing */

static void refuse(ol_test *t, const char *check, const char *dir, size_t group, const char *what) {
    step_runner r;
    step_cfg cfg = {.n_blocks = 4, .int4_group = group};
    const json_t *answer = step_load_try(t, dir, &cfg, &r);
    const char *terms = strcmp(check, "refuses_both") == 0
                            ? OL_TERMS("int4_group|int4 quant")
                            : ol_text(t, OL_TERMS("int4_group|group %zu"), group);
    (void)ol_check_refused(t, check, answer, "INVALID", terms, -1, what);
    if (ol_ok(answer)) {
        step_free(t, &r);
    }
}

static void refuse_kind(ol_test *t, const kind *k) {
    family f = make_family(t, k);
    run(t, "loads_both", "int4", 0, &f, f.from_file);
    refuse(t, "refuses_both", "int4", k->group, "quantize-at-load of an int4 file");
    refuse(t, "refuses_both", "int4", 2, "quantize-at-load of an int4 file, another group");
    refuse(t, "refuses_group", "dense", 1, "a group of 1");
    refuse(t, "refuses_group", "dense", 3, "an odd group");
    refuse(t, "refuses_group", "dense", 10, "an even group that does not divide the hidden size");
    refuse(t, "refuses_group", "dense", k->no_divisor, "a group that divides some of the widths");
    refuse(t, "refuses_group", "dense", 4096, "a group wider than any weight");
    run(t, "refuses_group", "dense", 2, &f, f.at_load);
}

static void part_refused(ol_test *t) {
    refuse_kind(t, &untied);
    refuse_kind(t, &tied);
}

void test_int4_runner_matches_its_dequantized_model(ol_test *t) {
    static const test_part parts[] = {
        {"untied", part_untied}, {"tied", part_tied},       {"small-groups", part_small_groups},
        {"batch", part_batch},   {"refused", part_refused},
    };
    test_run_parts(t, parts, TEST_COUNT(parts));
}
