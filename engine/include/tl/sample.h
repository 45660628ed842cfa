/* sample.h: the one generator, PCG32, and the way from logits to one token.
 *
 * Same logits, parameters, history and generator state: the same id and the same f64 logprob, bit
 * for bit, in every implementation. All arithmetic of tl_sample is IEEE binary64, one rounding an
 * operation, every sum a left-to-right loop; exp and log are the platform's libm.
 *
 * Source: conformance/spec/pcg32.md and conformance/spec/sampling.md. */
#ifndef TL_SAMPLE_H
#define TL_SAMPLE_H

#include "tl/base.h"

#define TL_PURPOSE_SAMPLE UINT64_C(4)

/* PCG-XSH-RR 64/32. Plain, so that callers can save, compare and restore it. */
typedef struct tl_pcg32 {
    uint64_t state; /* any value */
    uint64_t inc;   /* always odd */
} tl_pcg32;

typedef struct tl_sampling_params {
    double temperature;        /* 0: greedy; else finite and >= 1e-5 */
    size_t top_k;              /* 0, or >= V: off */
    double top_p;              /* 0 to 1; 1: off */
    double min_p;              /* 0 to 1; 0: off */
    double repetition_penalty; /* finite, > 0; 1: off */
    double presence_penalty;   /* finite; 0: off */
    double frequency_penalty;  /* finite; 0: off */
} tl_sampling_params;

/* The working memory for one vocabulary size. */
typedef struct tl_sampler tl_sampler;

TL_BEGIN_DECLS

tl_pcg32 tl_pcg32_new(uint64_t seed, uint64_t seq);
uint32_t tl_pcg32_next_u32(tl_pcg32 *rng); /* 0 for NULL */
/* A multiple of 2^-53 in [0, 1); two draws. 0 for NULL. */
double tl_pcg32_uniform_f64(tl_pcg32 *rng);
uint64_t tl_child_seed(uint64_t seed, uint64_t purpose);
tl_pcg32 tl_stream(uint64_t seed, uint64_t purpose); /* new(child_seed(seed, purpose), purpose) */

tl_sampling_params tl_sampling_params_default(void); /* everything off, temperature 1 */

/* Take all memory that sampling from `vocab` logits needs. INVALID: vocab is 0. NOMEM. */
TL_MUST_USE tl_status tl_sampler_new(tl_sampler **out, size_t vocab, tl_error *err);
void tl_sampler_free(tl_sampler *sampler);

/* Choose one token.
 * logits  [n_logits = the sampler's vocab] f32, each finite or -inf, at least one finite
 * prompt  [n_prompt] u32, output [n_output] u32: the history, every id < V
 * rng     moves by exactly one uniform when a token is sampled; not at all when greedy or refused
 * token, logprob: the id, and its log-probability before temperature and filters
 * INVALID: a parameter out of its range, a NaN or +inf logit, none finite, an id >= V, n_logits,
 * numbers that leave the finite on the way, NULL. Parameters are checked when greedy, too.
 * Allocates nothing. */
TL_MUST_USE tl_status tl_sample(tl_sampler *sampler, const float *logits, size_t n_logits,
                                const tl_sampling_params *params, const uint32_t *prompt,
                                size_t n_prompt, const uint32_t *output, size_t n_output,
                                tl_pcg32 *rng, uint32_t *token, double *logprob, tl_error *err);

TL_END_DECLS

#endif
