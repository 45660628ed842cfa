/* sample.c: from logits to one token, one function for each step of the specification, in its
 * order.
 *
 * All arithmetic is f64 with one rounding an operation, and every sum is a left-to-right loop
 * that starts from 0.0: the order of the additions decides bits, so no loop here may be split,
 * merged or reversed. All memory is taken by tl_sampler_new. Everything that can be refused is
 * refused before the draw.
 *
 * Source: conformance/spec/sampling.md. */
#include "tl/sample.h"

#include <math.h>
#include <stdlib.h>

#include "sample_order.h"
#include "util.h"

#define MIN_TEMPERATURE 1e-5
/* exp of anything below is 0, so ids further than that from the top have no mass at all. */
#define EXP_REACH 746.0

struct tl_sampler {
    size_t vocab;
    double *logit;  /* [vocab] l, after the penalties from step 3 on */
    double *scaled; /* [vocab] t */
    double *weight; /* [vocab] exp(l - M) from step 4; exp(t - M') of the kept ids after step 7 */
    size_t *count;  /* [vocab] zeros between the steps */
    uint32_t *kept; /* [n_kept] the ids still kept, ascending */
    size_t n_kept;
    tli_order order; /* over scaled */
};

/* A call's history: token ids of the prompt and of the output so far. */
typedef struct history {
    const uint32_t *prompt;
    size_t n_prompt;
    const uint32_t *output;
    size_t n_output;
} history;

tl_sampling_params tl_sampling_params_default(void) {
    const tl_sampling_params params = {
        .temperature = 1.0,
        .top_k = 0,
        .top_p = 1.0,
        .min_p = 0.0,
        .repetition_penalty = 1.0,
        .presence_penalty = 0.0,
        .frequency_penalty = 0.0,
    };
    return params;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool take_memory(tl_sampler *s, size_t vocab) {
    s->vocab = vocab;
    s->logit = tli_calloc(vocab, sizeof *s->logit);
    s->scaled = tli_calloc(vocab, sizeof *s->scaled);
    s->weight = tli_calloc(vocab, sizeof *s->weight);
    s->count = tli_calloc(vocab, sizeof *s->count);
    s->kept = tli_calloc(vocab, sizeof *s->kept);
    if (s->logit == NULL || s->scaled == NULL || s->weight == NULL || s->count == NULL ||
        s->kept == NULL) {
        return false;
    }
    return tli_order_init(&s->order, s->scaled, vocab);
}

tl_status tl_sampler_new(tl_sampler **out, size_t vocab, tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "sampler: out is NULL");
    }
    *out = NULL;
    if (vocab == 0) {
        return tli_fail(err, TL_ERR_INVALID, "sampler: vocab is 0, must be at least 1");
    }
    /* Ids are u32; more of them would take more than 2^32 * 46 bytes anyway. */
    tl_sampler *s = vocab > UINT32_MAX ? NULL : tli_calloc(1, sizeof *s);
    if (s == NULL || !take_memory(s, vocab)) {
        tl_sampler_free(s);
        return tli_fail(err, TL_ERR_NOMEM, "sampler: no memory for a vocabulary of %zu", vocab);
    }
    *out = s;
    return TL_OK;
}

void tl_sampler_free(tl_sampler *sampler) {
    if (sampler == NULL) {
        return;
    }
    free(sampler->logit);
    free(sampler->scaled);
    free(sampler->weight);
    free(sampler->count);
    free(sampler->kept);
    tli_order_clear(&sampler->order);
    free(sampler);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static tl_status check_range(const char *name, double value, bool valid, const char *allowed,
                             tl_error *err) {
    if (!valid) {
        return tli_fail(err, TL_ERR_INVALID, "sample: %s is %.17g, must be %s", name, value,
                        allowed);
    }
    return TL_OK;
}

/* Written so that a NaN fails each of them. */
static tl_status check_params(const tl_sampling_params *p, tl_error *err) {
    const double t = p->temperature;
    const double r = p->repetition_penalty;
    const bool t_valid = t == 0.0 || (t >= MIN_TEMPERATURE && isfinite(t));
    TLI_TRY(check_range("temperature", t, t_valid, "0, or finite and at least 1e-5", err));
    const bool top_p_valid = p->top_p >= 0.0 && p->top_p <= 1.0;
    TLI_TRY(check_range("top_p", p->top_p, top_p_valid, "0 to 1", err));
    const bool min_p_valid = p->min_p >= 0.0 && p->min_p <= 1.0;
    TLI_TRY(check_range("min_p", p->min_p, min_p_valid, "0 to 1", err));
    const bool r_valid = r > 0.0 && isfinite(r);
    TLI_TRY(check_range("repetition_penalty", r, r_valid, "finite and above 0", err));
    const double presence = p->presence_penalty;
    TLI_TRY(check_range("presence_penalty", presence, isfinite(presence), "finite", err));
    const double frequency = p->frequency_penalty;
    return check_range("frequency_penalty", frequency, isfinite(frequency), "finite", err);
}

static tl_status check_logits(const float *logits, size_t n, tl_error *err) {
    bool any_finite = false;
    for (size_t i = 0; i < n; i++) {
        const bool valid = logits[i] < INFINITY; /* false for NaN, too */
        if (!valid) {
            return tli_fail(err, TL_ERR_INVALID,
                            "sample: logits[%zu] is %g, must be finite or -infinity", i,
                            (double)logits[i]);
        }
        any_finite |= logits[i] > -INFINITY;
    }
    if (!any_finite) {
        return tli_fail(err, TL_ERR_INVALID, "sample: all %zu logits are -infinity", n);
    }
    return TL_OK;
}

static tl_status check_ids(const char *name, const uint32_t *ids, size_t n_ids, size_t vocab,
                           tl_error *err) {
    if (ids == NULL && n_ids != 0) {
        return tli_fail(err, TL_ERR_INVALID, "sample: %s is NULL, its count is %zu", name, n_ids);
    }
    for (size_t i = 0; i < n_ids; i++) {
        if (ids[i] >= vocab) {
            return tli_fail(err, TL_ERR_INVALID, "sample: %s[%zu] is %lu, must be below %zu", name,
                            i, (unsigned long)ids[i], vocab);
        }
    }
    return TL_OK;
}

static tl_status check_pointers(const tl_sampler *s, const float *logits,
                                const tl_sampling_params *params, const tl_pcg32 *rng,
                                const uint32_t *token, const double *logprob, tl_error *err) {
    const char *missing = s == NULL         ? "sampler"
                          : logits == NULL  ? "logits"
                          : params == NULL  ? "params"
                          : rng == NULL     ? "rng"
                          : token == NULL   ? "token"
                          : logprob == NULL ? "logprob"
                                            : NULL;
    if (missing != NULL) {
        return tli_fail(err, TL_ERR_INVALID, "sample: %s is NULL", missing);
    }
    return TL_OK;
}

/* ---- steps 1 to 4: the distribution of which logprobs are told ------------------------------- */

/* Step 1. */
static void widen(tl_sampler *s, const float *logits) {
    for (size_t i = 0; i < s->vocab; i++) {
        s->logit[i] = (double)logits[i];
    }
}

static void repeat_once(tl_sampler *s, const uint32_t *ids, size_t n_ids, double r) {
    TLI_ASSERT(ids != NULL || n_ids == 0);
    for (size_t i = 0; i < n_ids; i++) {
        const uint32_t id = ids[i];
        if (s->count[id] != 0) {
            continue;
        }
        s->count[id] = 1;
        const double l = s->logit[id];
        s->logit[id] = l > 0.0 ? l / r : l * r;
    }
}

static void forget(tl_sampler *s, const uint32_t *ids, size_t n_ids) {
    TLI_ASSERT(ids != NULL || n_ids == 0);
    for (size_t i = 0; i < n_ids; i++) {
        s->count[ids[i]] = 0;
    }
}

/* Step 2: the ids of prompt and output together, each once. */
static void penalize_repetition(tl_sampler *s, const history *h, double r) {
    repeat_once(s, h->prompt, h->n_prompt, r);
    repeat_once(s, h->output, h->n_output, r);
    forget(s, h->prompt, h->n_prompt);
    forget(s, h->output, h->n_output);
}

/* Step 3: the ids of the output only. */
static void penalize_presence_and_frequency(tl_sampler *s, const history *h, double presence,
                                            double frequency) {
    TLI_ASSERT(h->output != NULL || h->n_output == 0);
    for (size_t i = 0; i < h->n_output; i++) {
        s->count[h->output[i]]++;
    }
    for (size_t i = 0; i < h->n_output; i++) {
        const uint32_t id = h->output[i];
        if (s->count[id] == 0) {
            continue; /* its first occurrence has paid for all */
        }
        const double c = (double)s->count[id];
        s->count[id] = 0;
        s->logit[id] = s->logit[id] - (frequency * c + presence);
    }
}

/* What the penalties left, and M = max l. */
static tl_status find_top(const tl_sampler *s, double *top, tl_error *err) {
    double max = -(double)INFINITY;
    for (size_t i = 0; i < s->vocab; i++) {
        const double l = s->logit[i];
        const bool valid = l < (double)INFINITY; /* false for NaN, too */
        if (!valid) {
            return tli_fail(err, TL_ERR_INVALID,
                            "sample: the penalties turn the logit of id %zu into %g", i, l);
        }
        max = l > max ? l : max;
    }
    if (!isfinite(max)) {
        return tli_fail(err, TL_ERR_INVALID, "sample: the penalties leave no finite logit");
    }
    *top = max;
    return TL_OK;
}

/* Step 4: log(Z). The terms stay in weight. */
static double log_partition(tl_sampler *s, double top) {
    double z = 0.0;
    for (size_t i = 0; i < s->vocab; i++) {
        s->weight[i] = exp(s->logit[i] - top);
        z += s->weight[i];
    }
    /* cppcheck-suppress invalidFunctionArg ; z is at least the top's own term, which is 1 */
    return log(z);
}

static double logprob_of(const tl_sampler *s, uint32_t id, double top, double log_z) {
    return (s->logit[id] - top) - log_z;
}

/* ---- step 5: greedy -------------------------------------------------------------------------- */

/* The largest l; a later equal one does not take its place, so ties go to the lowest id. */
static uint32_t choose_greedy(const tl_sampler *s) {
    size_t best = 0;
    for (size_t i = 1; i < s->vocab; i++) {
        if (s->logit[i] > s->logit[best]) {
            best = i;
        }
    }
    return (uint32_t)best;
}

/* ---- steps 6 to 9: temperature and filters --------------------------------------------------- */

/* Step 6, and M' = max t, which is the t of the largest l since division keeps the order. */
static tl_status apply_temperature(tl_sampler *s, double temperature, double top,
                                   double *scaled_top, tl_error *err) {
    for (size_t i = 0; i < s->vocab; i++) {
        const double t = s->logit[i] / temperature;
        if (!isfinite(t) && isfinite(s->logit[i])) {
            return tli_fail(err, TL_ERR_INVALID,
                            "sample: temperature %g turns the logit %g of id %zu into %g",
                            temperature, s->logit[i], i, t);
        }
        s->scaled[i] = t;
    }
    *scaled_top = top / temperature;
    return TL_OK;
}

static void keep_all(tl_sampler *s) {
    for (size_t i = 0; i < s->vocab; i++) {
        s->kept[i] = (uint32_t)i;
    }
    s->n_kept = s->vocab;
}

/* Of the kept ids, keep those up to and including `last` in the order. */
static void keep_up_to(tl_sampler *s, uint32_t last) {
    size_t n = 0;
    for (size_t j = 0; j < s->n_kept; j++) {
        const uint32_t id = s->kept[j];
        const bool after = tli_order_before(s->scaled, last, id);
        s->kept[n] = id;
        n += after ? 0 : 1;
    }
    s->n_kept = n;
}

/* Step 7. */
static void keep_top_k(tl_sampler *s, size_t k) {
    const uint32_t last = tli_order_at(&s->order, k - 1);
    keep_up_to(s, last);
}

/* exp(t - M') of the kept ids. q of steps 8 and 9 and p of step 10 divide it by their own sums. */
static void weigh_kept(tl_sampler *s, double scaled_top) {
    for (size_t j = 0; j < s->n_kept; j++) {
        const uint32_t id = s->kept[j];
        s->weight[id] = exp(s->scaled[id] - scaled_top);
    }
}

/* The sum of the kept weights, ids ascending: Z' before steps 8 and 9, Z'' in step 10. */
static double sum_kept(const tl_sampler *s) {
    double z = 0.0;
    for (size_t j = 0; j < s->n_kept; j++) {
        z += s->weight[s->kept[j]];
    }
    return z;
}

/* Step 8. The kept ids are the first n_kept of the order. */
static void keep_top_p(tl_sampler *s, double p, double z) {
    double c = 0.0;
    for (size_t j = 0; j < s->n_kept; j++) {
        const uint32_t id = tli_order_at(&s->order, j);
        const double q = s->weight[id] / z;
        c += q;
        const bool reached = c >= p;
        if (reached) {
            keep_up_to(s, id);
            return;
        }
    }
}

/* Step 9, with the z of step 8: the q are not made anew after top-p. */
static void keep_min_p(tl_sampler *s, double m, double z) {
    double max_q = 0.0;
    for (size_t j = 0; j < s->n_kept; j++) {
        const double q = s->weight[s->kept[j]] / z;
        max_q = q > max_q ? q : max_q;
    }
    const double least = m * max_q;
    size_t n = 0;
    for (size_t j = 0; j < s->n_kept; j++) {
        const uint32_t id = s->kept[j];
        const double q = s->weight[id] / z;
        const bool keep = q >= least;
        s->kept[n] = id;
        n += keep ? 1 : 0;
    }
    s->n_kept = n;
}

static void apply_filters(tl_sampler *s, const tl_sampling_params *params, double scaled_top) {
    const bool top_k_on = params->top_k != 0 && params->top_k < s->vocab;
    const bool top_p_on = params->top_p < 1.0;
    const bool min_p_on = params->min_p > 0.0;
    keep_all(s);
    if (top_k_on || top_p_on) {
        /* A low temperature stretches the distances, and top-k looks past what exp can tell
         * apart. */
        const double stretch = params->temperature < 1.0 ? 1.0 / params->temperature : 1.0;
        tli_order_begin(&s->order, scaled_top, EXP_REACH * stretch);
    }
    if (top_k_on) {
        keep_top_k(s, params->top_k);
    }
    if (params->temperature != 1.0) {
        weigh_kept(s, scaled_top); /* at 1, t is l, and step 4 left these very terms */
    }
    if (!top_p_on && !min_p_on) {
        return;
    }
    const double z = sum_kept(s);
    if (top_p_on) {
        keep_top_p(s, params->top_p, z);
    }
    if (min_p_on) {
        keep_min_p(s, params->min_p, z);
    }
}

/* ---- steps 10 and 11: the draw --------------------------------------------------------------- */

static uint32_t draw(const tl_sampler *s, tl_pcg32 *rng) {
    const double z = sum_kept(s);
    const double u = tl_pcg32_uniform_f64(rng);
    double c = 0.0;
    uint32_t last_with_mass = s->kept[0];
    for (size_t j = 0; j < s->n_kept; j++) {
        const uint32_t id = s->kept[j];
        const double p = s->weight[id] / z;
        c += p;
        if (u < c) {
            return id;
        }
        last_with_mass = p > 0.0 ? id : last_with_mass;
    }
    /* Rounding left c at or below u. */
    return last_with_mass;
}

tl_status tl_sample(tl_sampler *sampler, const float *logits, size_t n_logits,
                    const tl_sampling_params *params, const uint32_t *prompt, size_t n_prompt,
                    const uint32_t *output, size_t n_output, tl_pcg32 *rng, uint32_t *token,
                    double *logprob, tl_error *err) {
    TLI_TRY(check_pointers(sampler, logits, params, rng, token, logprob, err));
    if (n_logits != sampler->vocab) {
        return tli_fail(err, TL_ERR_INVALID, "sample: n_logits is %zu, the sampler's vocab is %zu",
                        n_logits, sampler->vocab);
    }
    TLI_TRY(check_params(params, err));
    TLI_TRY(check_logits(logits, n_logits, err));
    TLI_TRY(check_ids("prompt", prompt, n_prompt, sampler->vocab, err));
    TLI_TRY(check_ids("output", output, n_output, sampler->vocab, err));

    const history h = {prompt, n_prompt, output, n_output};
    double top = 0.0;
    widen(sampler, logits);
    penalize_repetition(sampler, &h, params->repetition_penalty);
    penalize_presence_and_frequency(sampler, &h, params->presence_penalty,
                                    params->frequency_penalty);
    TLI_TRY(find_top(sampler, &top, err));
    const double log_z = log_partition(sampler, top);

    uint32_t id = 0;
    if (params->temperature == 0.0) {
        id = choose_greedy(sampler);
    } else {
        double scaled_top = 0.0;
        TLI_TRY(apply_temperature(sampler, params->temperature, top, &scaled_top, err));
        apply_filters(sampler, params, scaled_top);
        id = draw(sampler, rng);
    }
    *token = id;
    *logprob = logprob_of(sampler, id, top, log_z);
    return TL_OK;
}
