/* steps.h: the requests that the forward and runner tests share: load, take blocks, run a step.
 *
 * Each call that must succeed names the check under which a refusal is recorded, and gives NULL or
 * false then; the caller goes on with what does not need the result. Memory is the test's.
 *
 * Source: conformance/spec/testee.md. */
#ifndef OL_TESTS_STEPS_H
#define OL_TESTS_STEPS_H

#include "../runner/test.h"

/* forward#tolerance: the bound is this times the largest |value| of the reference row. */
#define STEP_BOUND 1e-3

/* A zero or NULL field takes the default that stands beside it. */
typedef struct step_cfg {
    size_t n_blocks;         /* 64 */
    size_t block_tokens;     /* 16 */
    size_t max_batch_tokens; /* 512 */
    size_t max_seqs;         /* 16 */
    size_t threads;          /* 1 */
    size_t int4_group;       /* 0: none */
    const char *isa;         /* "auto" */
    const char *weights;     /* "map" */
} step_cfg;

typedef struct step_runner {
    int64_t runner, pool;
    size_t n_blocks, block_tokens;
    size_t vocab, hidden, layers, head_dim; /* as the testee read them */
} step_runner;

typedef struct step_seq {
    const uint32_t *tokens;
    size_t n_tokens;
    uint64_t start;
    const uint32_t *blocks;
    size_t n_blocks;
} step_seq;

/* The answer to `load`, whatever it is; *r is valid when it says ok. */
const json_t *step_load_try(ol_test *t, const char *dir, const step_cfg *cfg, step_runner *r);
bool step_load(ol_test *t, const char *check, const char *dir, const step_cfg *cfg, step_runner *r);
void step_free(ol_test *t, const step_runner *r);

uint32_t *step_alloc(ol_test *t, const char *check, const step_runner *r, size_t n);
void step_release(ol_test *t, const char *check, const step_runner *r, const uint32_t *ids,
                  size_t n);

/* The answer to `forward`, whatever it is; with room for n_seqs rows, or for rows_cap. */
const json_t *step_try(ol_test *t, const step_runner *r, const step_seq *seqs, size_t n_seqs);
const json_t *step_try_rows(ol_test *t, const step_runner *r, const step_seq *seqs, size_t n_seqs,
                            size_t rows_cap);
/* The rows of logits [n_seqs, vocab]; NULL after a refusal. */
float *step_run(ol_test *t, const char *check, const step_runner *r, const step_seq *seqs,
                size_t n_seqs);
/* tokens [begin, end) of a prompt as one step on its table. */
float *step_piece(ol_test *t, const char *check, const step_runner *r, const uint32_t *tokens,
                  size_t begin, size_t end, const uint32_t *blocks, size_t n_blocks);
/* The row of a prompt in one step, on blocks that are given back. */
float *step_cold(ol_test *t, const char *check, const step_runner *r, const uint32_t *tokens,
                 size_t n_tokens);

/* run_once; hidden may be NULL. NULL after a refusal. */
float *step_once(ol_test *t, const char *check, const step_runner *r, const uint32_t *tokens,
                 size_t n_tokens, float **hidden, size_t *n_hidden);

typedef struct step_info {
    size_t refs, fill;
    bool registered;
} step_info;

/* What the pool says of each of these blocks. */
step_info *step_infos(ol_test *t, const step_runner *r, const uint32_t *ids, size_t n);
/* Are the fills of a table those of `n_filled` positions? */
void step_check_fills(ol_test *t, const char *check, const step_runner *r, const uint32_t *ids,
                      size_t n, size_t n_filled);
/* Every slab of these blocks, block by block, layer by layer, K then V; slots from the fill of
 * n_filled positions on are zero, whatever they hold. */
uint16_t *step_slabs(ol_test *t, const step_runner *r, const uint32_t *ids, size_t n,
                     size_t n_filled, size_t *n_values);
/* Fill the slots of these blocks from position `first` on with NaN, in every layer and side. */
void step_poison(ol_test *t, const char *check, const step_runner *r, const uint32_t *ids, size_t n,
                 size_t first);
/* Do the counts agree? SIZE_MAX: whatever it is. */
void step_check_stats(ol_test *t, const char *check, const step_runner *r, size_t n_free,
                      size_t n_cached, size_t n_used, const char *when);

/* A key of the judge's own for block number i of a prompt. */
const char *step_key(ol_test *t, unsigned prompt, size_t i);

/* Ids below vocab; the first four are distinct where the vocabulary has as many. */
uint32_t *step_prompt(ol_test *t, size_t vocab, size_t n);
size_t step_blocks_for(const step_runner *r, size_t n_tokens);
size_t step_argmax(const float *row, size_t n); /* the lowest of the largest; NaN never wins */
bool step_finite(const float *values, size_t n);

/* got equals want within the bound under `check`, and to the bit under `bits` (a strict check, or
 * NULL). Nothing is looked at when either is NULL: the refusal is on record. */
void step_same(ol_test *t, const char *check, const char *bits, const float *got, const float *want,
               size_t n, const char *what);

#endif
