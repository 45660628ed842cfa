/* sampler_ask.h: questions to the engine's sampler, and the comparisons that the sampler's tests
 * share. */
#ifndef OL_SAMPLER_ASK_H
#define OL_SAMPLER_ASK_H

#include "naive_rng.h"
#include "naive_sampler.h"

json_t *ask_rng_json(naive_rng rng); /* new reference */
/* The generator of an answer, which a refusal has too. An answer without is a failure of the check
 * `name`, and gives zeros. */
naive_rng ask_rng_of(ol_test *t, const char *name, const json_t *response);

/* All arguments of `sample` but the generator. New reference. */
json_t *ask_args(const naive_input *in);
const json_t *ask_sample(ol_test *t, const naive_input *in, naive_rng rng);
/* One draw for each of the n uniforms; takes the reference of args. */
const json_t *ask_sweep_args(ol_test *t, json_t *args, const uint64_t *u53s, size_t n);
const json_t *ask_sweep(ol_test *t, const naive_input *in, const uint64_t *u53s, size_t n);

/* n uniforms that cover [0, 1): 0, the largest, and an even grid between. n >= 2. */
uint64_t *ask_grid(ol_test *t, size_t n);

/* The check `name`: sweeping u over a grid and over the borders that the naive sampler finds gives
 * exactly these ids (ascending), each at least once. */
bool check_kept(ol_test *t, const char *name, const naive_input *in, const uint32_t *want,
                size_t n_want, const char *what);
/* The check `name`: for every u at a border of the cumulative walk and beside it the engine gives
 * the id that the naive sampler gives. */
bool check_walk(ol_test *t, const char *name, const naive_input *in, const char *what);
/* The check `name`: two questions have the same answers, ids and logprob bits, for a grid of u and
 * greedily. */
bool check_same_answers(ol_test *t, const char *name, const naive_input *a, const naive_input *b,
                        const char *what);
/* The check `name`: without this member of the parameters (NULL: without all) the answers for a
 * grid of u are the same. */
bool check_left_out(ol_test *t, const char *name, const naive_input *in, const char *member);

#endif
