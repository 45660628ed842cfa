/* sample.c: from logits to one token, in the eleven steps of the page and in their order.
 *
 * Every step is a loop over all ids, and an array says which ids are still kept. The one sort is a
 * bottom-up merge sort: it is stable, so equal values stay in the order of their ids by itself, and
 * it takes no memory.
 *
 * Source: conformance/spec/sampling.md; the numbers in the comments are its clauses. */
#include "tl/sample.h"

#include <math.h>
#include <stdlib.h>

#include "util.h"

/* What is known of one id. */
typedef struct candidate {
    double l; /* logit after the penalties */
    double logprob;
    double t;       /* logit after the temperature */
    double q;       /* probability, first of step 8, then of step 10 */
    uint32_t count; /* how often it stands in the output */
    bool seen;      /* stands in the prompt or the output */
    bool kept;      /* not filtered out so far */
} candidate;

struct tl_sampler {
    size_t vocab;
    candidate *ids;  /* [vocab] */
    uint32_t *order; /* [vocab] ids by t descending, then id ascending */
    uint32_t *spare; /* [vocab] the other half of the merge sort */
};

tl_sampling_params tl_sampling_params_default(void) {
    return (tl_sampling_params){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

tl_status tl_sampler_new(tl_sampler **out, size_t vocab, tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    if (vocab == 0) {
        return tli_fail(err, TL_ERR_INVALID, "vocab is 0, at least 1 is needed");
    }
    tl_sampler *s = tli_calloc(1, sizeof *s);
    if (s == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a sampler");
    }
    s->vocab = vocab;
    s->ids = tli_calloc(vocab, sizeof *s->ids);
    s->order = tli_calloc(vocab, sizeof *s->order);
    s->spare = tli_calloc(vocab, sizeof *s->spare);
    if (s->ids == NULL || s->order == NULL || s->spare == NULL) {
        tl_sampler_free(s);
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a sampler of %zu logits", vocab);
    }
    *out = s;
    return TL_OK;
}

void tl_sampler_free(tl_sampler *s) {
    if (s != NULL) {
        free(s->ids);
        free(s->order);
        free(s->spare);
        free(s);
    }
}

/* ------------------------------------------------------------------ what is legal */

static tl_status check_params(const tl_sampling_params *p, tl_error *err) {
    const bool greedy = p->temperature == 0;
    if (!greedy && !(isfinite(p->temperature) && p->temperature >= 1e-5)) {
        return tli_fail(err, TL_ERR_INVALID, "temperature is %.17g, 0 or at least 1e-5 is allowed",
                        p->temperature);
    }
    if (!(p->top_p >= 0 && p->top_p <= 1)) {
        return tli_fail(err, TL_ERR_INVALID, "top_p is %.17g, 0 to 1 is allowed", p->top_p);
    }
    if (!(p->min_p >= 0 && p->min_p <= 1)) {
        return tli_fail(err, TL_ERR_INVALID, "min_p is %.17g, 0 to 1 is allowed", p->min_p);
    }
    if (!(isfinite(p->repetition_penalty) && p->repetition_penalty > 0)) {
        return tli_fail(err, TL_ERR_INVALID,
                        "repetition_penalty is %.17g, a finite number above 0 is needed",
                        p->repetition_penalty);
    }
    if (!isfinite(p->presence_penalty)) {
        return tli_fail(err, TL_ERR_INVALID, "presence_penalty is %.17g, which is not finite",
                        p->presence_penalty);
    }
    if (!isfinite(p->frequency_penalty)) {
        return tli_fail(err, TL_ERR_INVALID, "frequency_penalty is %.17g, which is not finite",
                        p->frequency_penalty);
    }
    return TL_OK;
}

/* The same rule holds for the logits that come in and for those that the penalties leave: each is
 * finite or -inf, and at least one is finite. */
static tl_status check_values(const tl_sampler *s, const char *when, tl_error *err) {
    bool any_finite = false;
    for (size_t i = 0; i < s->vocab; i++) {
        const double l = s->ids[i].l;
        if (isnan(l) || l == (double)INFINITY) {
            return tli_fail(err, TL_ERR_INVALID, "logit %zu is %g%s, finite or -inf is allowed", i,
                            l, when);
        }
        any_finite = any_finite || isfinite(l);
    }
    if (!any_finite) {
        return tli_fail(err, TL_ERR_INVALID, "no logit is finite%s, at least one is needed", when);
    }
    return TL_OK;
}

static tl_status check_history(const uint32_t *ids, size_t n, size_t vocab, const char *what,
                               tl_error *err) {
    if (ids == NULL && n > 0) {
        return tli_fail(err, TL_ERR_INVALID, "%s is NULL, but has %zu ids", what, n);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= vocab) {
            return tli_fail(err, TL_ERR_INVALID, "%s[%zu] is %lu, ids below %zu are allowed", what,
                            i, (unsigned long)ids[i], vocab);
        }
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ steps 1 to 6 */

/* Steps 2 and 3. */
static void penalize(tl_sampler *s, const tl_sampling_params *p, const uint32_t *prompt,
                     size_t n_prompt, const uint32_t *output, size_t n_output) {
    for (size_t i = 0; i < n_prompt; i++) {
        s->ids[prompt[i]].seen = true;
    }
    for (size_t i = 0; i < n_output; i++) {
        s->ids[output[i]].seen = true;
        s->ids[output[i]].count++;
    }
    for (size_t i = 0; i < s->vocab; i++) {
        candidate *id = &s->ids[i];
        if (id->seen && id->l > 0) {
            id->l = id->l / p->repetition_penalty;
        } else if (id->seen) {
            id->l = id->l * p->repetition_penalty;
        }
        if (id->count > 0) {
            const double frequency = p->frequency_penalty * (double)id->count;
            id->l = id->l - (frequency + p->presence_penalty);
        }
    }
}

/* The lowest id with the largest l; an id that is only equal does not replace it. */
static size_t largest(const tl_sampler *s) {
    size_t best = 0;
    for (size_t i = 1; i < s->vocab; i++) {
        if (s->ids[i].l > s->ids[best].l) {
            best = i;
        }
    }
    return best;
}

/* Step 4. */
static void logprobs(tl_sampler *s) {
    const double max = s->ids[largest(s)].l;
    double z = 0.0;
    for (size_t i = 0; i < s->vocab; i++) {
        z = z + exp(s->ids[i].l - max);
    }
    for (size_t i = 0; i < s->vocab; i++) {
        s->ids[i].logprob = (s->ids[i].l - max) - log(z);
    }
}

/* Step 6. */
static tl_status divide(tl_sampler *s, double temperature, tl_error *err) {
    for (size_t i = 0; i < s->vocab; i++) {
        s->ids[i].t = s->ids[i].l / temperature;
        if (isfinite(s->ids[i].l) && !isfinite(s->ids[i].t)) {
            return tli_fail(err, TL_ERR_INVALID,
                            "logit %zu, %g, is no longer finite once divided by the temperature %g",
                            i, s->ids[i].l, temperature);
        }
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ steps 7 to 11 */

/* Merge two sorted neighbours, [begin, middle) and [middle, end), of `from` into `to`. The left
 * one, whose ids are lower, goes first when both are equal. */
static void merge(const candidate *ids, const uint32_t *from, uint32_t *to, size_t begin,
                  size_t middle, size_t end) {
    size_t left = begin;
    size_t right = middle;
    for (size_t i = begin; i < end; i++) {
        const bool take_right =
            right < end && (left == middle || ids[from[right]].t > ids[from[left]].t);
        to[i] = take_right ? from[right++] : from[left++];
    }
}

static size_t at_most(size_t n, size_t limit) {
    return n < limit ? n : limit;
}

/* The order of the page: by t descending, then by id ascending. */
static void sort_ids(tl_sampler *s) {
    const size_t n = s->vocab;
    for (size_t i = 0; i < n; i++) {
        s->order[i] = (uint32_t)i;
    }
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            merge(s->ids, s->order, s->spare, begin, at_most(begin + width, n),
                  at_most(begin + 2 * width, n));
        }
        uint32_t *sorted = s->spare;
        s->spare = s->order;
        s->order = sorted;
    }
}

/* Step 7. */
static void keep_top_k(tl_sampler *s, size_t k) {
    const size_t n_kept = k == 0 ? s->vocab : at_most(k, s->vocab);
    for (size_t i = 0; i < s->vocab; i++) {
        s->ids[s->order[i]].kept = i < n_kept;
    }
}

/* The first half of step 8 and the whole of step 10: q of the ids that are kept. The first id of
 * the order has the largest t, and no filter ever drops it. */
static void probabilities(tl_sampler *s) {
    const double max = s->ids[s->order[0]].t;
    double z = 0.0;
    for (size_t i = 0; i < s->vocab; i++) {
        if (s->ids[i].kept) {
            z = z + exp(s->ids[i].t - max);
        }
    }
    for (size_t i = 0; i < s->vocab; i++) {
        s->ids[i].q = s->ids[i].kept ? exp(s->ids[i].t - max) / z : 0.0;
    }
}

/* Step 8: the id that reaches p stays, and everything after it in the order goes. */
static void keep_top_p(tl_sampler *s, double p) {
    if (p == 1) {
        return;
    }
    double c = 0.0;
    bool reached = false;
    for (size_t i = 0; i < s->vocab; i++) {
        const uint32_t id = s->order[i];
        if (!s->ids[id].kept) {
            continue;
        }
        if (reached) {
            s->ids[id].kept = false;
            continue;
        }
        c = c + s->ids[id].q;
        reached = c >= p;
    }
}

/* Step 9: the first id of the order is still there and has the largest q. */
static void keep_min_p(tl_sampler *s, double m) {
    if (m == 0) {
        return;
    }
    const double limit = m * s->ids[s->order[0]].q;
    for (size_t i = 0; i < s->vocab; i++) {
        s->ids[i].kept = s->ids[i].kept && s->ids[i].q >= limit;
    }
}

/* Step 11. */
static uint32_t draw(const tl_sampler *s, double u) {
    double c = 0.0;
    uint32_t last = 0;
    for (size_t i = 0; i < s->vocab; i++) {
        if (!s->ids[i].kept) {
            continue;
        }
        c = c + s->ids[i].q;
        if (u < c) {
            return (uint32_t)i;
        }
        if (s->ids[i].q > 0) {
            last = (uint32_t)i;
        }
    }
    return last;
}

/* ------------------------------------------------------------------ all of them */

static tl_status check_call(const tl_sampler *s, const float *logits, size_t n_logits,
                            const tl_sampling_params *params, const tl_pcg32 *rng,
                            const uint32_t *token, const double *logprob, tl_error *err) {
    if (s == NULL || logits == NULL || params == NULL || rng == NULL || token == NULL ||
        logprob == NULL) {
        return tli_fail(err, TL_ERR_INVALID,
                        "sampler, logits, params, rng, token or logprob is NULL");
    }
    if (n_logits != s->vocab) {
        return tli_fail(err, TL_ERR_INVALID, "%zu logits for a sampler of %zu", n_logits, s->vocab);
    }
    return check_params(params, err);
}

tl_status tl_sample(tl_sampler *s, const float *logits, size_t n_logits,
                    const tl_sampling_params *params, const uint32_t *prompt, size_t n_prompt,
                    const uint32_t *output, size_t n_output, tl_pcg32 *rng, uint32_t *token,
                    double *logprob, tl_error *err) {
    TLI_TRY(check_call(s, logits, n_logits, params, rng, token, logprob, err));
    TLI_TRY(check_history(prompt, n_prompt, s->vocab, "prompt", err));
    TLI_TRY(check_history(output, n_output, s->vocab, "output", err));
    for (size_t i = 0; i < s->vocab; i++) {
        s->ids[i] = (candidate){.l = (double)logits[i]}; /* step 1 */
    }
    TLI_TRY(check_values(s, "", err));
    penalize(s, params, prompt, n_prompt, output, n_output);
    TLI_TRY(check_values(s, " after the penalties", err));
    logprobs(s);
    uint32_t id = (uint32_t)largest(s); /* step 5 */
    if (params->temperature != 0) {
        TLI_TRY(divide(s, params->temperature, err));
        sort_ids(s);
        keep_top_k(s, params->top_k);
        probabilities(s);
        keep_top_p(s, params->top_p);
        keep_min_p(s, params->min_p);
        probabilities(s);
        id = draw(s, tl_pcg32_uniform_f64(rng));
    }
    *token = id;
    *logprob = s->ids[id].logprob;
    return TL_OK;
}
