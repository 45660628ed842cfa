/* sample.c: from logits to one token.
 *
 * To be written. Eleven steps, in this order, in f64; the worked example is the first test.
 *
 * Read conformance/spec/sampling.md; the header says what each call promises.
 * Tests: ol check L10.1 --engine . --only 'hand_example_*' (and sampler_*, top_p_*, penalties_*).
 * */
#include "tl/sample.h"

#include "util.h"

/* Every call refuses until it is written. */
static tl_status not_written(const char *call, tl_error *err) {
    return tli_fail(err, TL_ERR_INTERNAL, "%s is not written yet", call);
}

tl_sampling_params tl_sampling_params_default(void) {
    return (tl_sampling_params){0};
}

tl_status tl_sampler_new(tl_sampler **out, size_t vocab, tl_error *err) {
    (void)vocab;
    if (out != NULL) {
        *out = NULL;
    }
    return not_written("tl_sampler_new", err);
}

void tl_sampler_free(tl_sampler *sampler) {
    (void)sampler;
}

tl_status tl_sample(tl_sampler *sampler, const float *logits, size_t n_logits,
                    const tl_sampling_params *params, const uint32_t *prompt, size_t n_prompt,
                    const uint32_t *output, size_t n_output, tl_pcg32 *rng, uint32_t *token,
                    double *logprob, tl_error *err) {
    (void)sampler;
    (void)logits;
    (void)n_logits;
    (void)params;
    (void)prompt;
    (void)n_prompt;
    (void)output;
    (void)n_output;
    (void)rng;
    (void)token;
    (void)logprob;
    return not_written("tl_sample", err);
}
