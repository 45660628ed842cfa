/* naive_sampler.h: the eleven steps of sampling, as slowly and plainly as the page says them.
 *
 * What the judge compares with where no golden has the value. One run computes everything that does
 * not hang on u; then any number of draws can be asked. Legal input only: what must be refused is
 * not looked for.
 *
 * Source: conformance/spec/sampling.md. */
#ifndef OL_NAIVE_SAMPLER_H
#define OL_NAIVE_SAMPLER_H

#include "tests.h"

typedef struct naive_params {
    double temperature;
    uint64_t top_k;
    double top_p;
    double min_p;
    double repetition;
    double presence;
    double frequency;
} naive_params;

/* Everything off: T = 1. */
naive_params naive_params_off(void);

/* One question to a sampler, but for the generator. */
typedef struct naive_input {
    const float *x; /* [n] logits */
    size_t n;
    naive_params params;
    const uint32_t *prompt; /* [n_prompt] */
    size_t n_prompt;
    const uint32_t *output; /* [n_output] */
    size_t n_output;
} naive_input;

typedef struct naive_result {
    size_t n;
    double *l;       /* [n] penalised logits, after step 3 */
    double *logprob; /* [n] step 4 */
    double *t;       /* [n] step 6; l itself when greedy */
    size_t *order;   /* [n] ids by (t descending, id ascending) */
    double *q;       /* [n] step 8, of the ids that top-k kept; 0 else */
    bool *kept;      /* [n] after step 9 */
    double *p;       /* [n] step 10, of the kept ids; 0 else */
    bool greedy;
} naive_result;

naive_result naive_sample(ol_test *t, const naive_input *in);

/* Step 11 for u = u53 * 2^-53; step 5 when greedy. */
uint32_t naive_pick(const naive_result *r, uint64_t u53);

/* The uniforms at which naive_pick may change its answer: for each border c the last one below it
 * and the first one not below; and 0 and the largest. Returns their number, at most 2 n + 2. u53s
 * has room for that. */
size_t naive_edges(const naive_result *r, uint64_t *u53s);

#endif
