/* host_sample.c: the ops of the generator and of the sampler.
 *
 * A generator is a value that comes with the request and goes back with the answer; the host keeps
 * none. The sampler that answers is made anew for each request, so that nothing can be carried from
 * one to the next; a second one, which is kept as a server keeps its own, must agree with it. */
#include "host.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ generator */

static tl_pcg32 arg_rng(host *h, const json_t *in) {
    const json_t *value = json_object_get(in, "rng");
    tl_pcg32 rng = {.state = host_arg_u64(h, value, "state"), .inc = host_arg_u64(h, value, "inc")};
    return rng;
}

static void put_rng(json_t *out, const tl_pcg32 *rng) {
    json_t *value = json_object();
    host_put_u64(value, "state", rng->state);
    host_put_u64(value, "inc", rng->inc);
    host_put(out, "rng", value);
}

static bool op_pcg32_new(host *h, const json_t *in, json_t *out) {
    uint64_t seed = host_arg_u64(h, in, "seed");
    uint64_t seq = host_arg_u64(h, in, "sequence"); /* `seq` is the frame's own */
    if (!host_ready(h)) {
        return false;
    }
    tl_pcg32 rng = h->tl.pcg32_new(seed, seq);
    put_rng(out, &rng);
    return true;
}

static bool op_pcg32_next(host *h, const json_t *in, json_t *out) {
    tl_pcg32 rng = arg_rng(h, in);
    size_t n = host_arg_size_or(h, in, "n", 0);
    size_t skip = host_arg_size_or(h, in, "skip", 0);
    uint32_t *outputs = host_output(h, "outputs", host_mul(h, n, sizeof *outputs));
    if (!host_ready(h)) {
        return false;
    }
    for (size_t i = 0; i < skip; i++) {
        (void)h->tl.pcg32_next_u32(&rng);
    }
    for (size_t i = 0; i < n; i++) {
        outputs[i] = h->tl.pcg32_next_u32(&rng);
    }
    host_put_array(out, "outputs", "u32", outputs, n);
    put_rng(out, &rng);
    return true;
}

static bool op_pcg32_uniform(host *h, const json_t *in, json_t *out) {
    tl_pcg32 rng = arg_rng(h, in);
    size_t n = host_arg_size_or(h, in, "n", 0);
    size_t skip = host_arg_size_or(h, in, "skip", 0);
    double *values = host_output(h, "values", host_mul(h, n, sizeof *values));
    if (!host_ready(h)) {
        return false;
    }
    for (size_t i = 0; i < skip; i++) {
        (void)h->tl.pcg32_uniform_f64(&rng);
    }
    for (size_t i = 0; i < n; i++) {
        values[i] = h->tl.pcg32_uniform_f64(&rng);
    }
    host_put_array(out, "values", "f64", values, n);
    put_rng(out, &rng);
    return true;
}

static bool op_child_seed(host *h, const json_t *in, json_t *out) {
    uint64_t seed = host_arg_u64(h, in, "seed");
    uint64_t purpose = host_arg_u64(h, in, "purpose");
    if (!host_ready(h)) {
        return false;
    }
    host_put_u64(out, "value", h->tl.child_seed(seed, purpose));
    return true;
}

static bool op_stream(host *h, const json_t *in, json_t *out) {
    uint64_t seed = host_arg_u64(h, in, "seed");
    uint64_t purpose = host_arg_u64(h, in, "purpose");
    if (!host_ready(h)) {
        return false;
    }
    tl_pcg32 rng = h->tl.stream(seed, purpose);
    put_rng(out, &rng);
    return true;
}

/* ------------------------------------------------------------------ sampler */

/* What all calls of a request share. */
typedef struct draw {
    const float *logits;
    size_t n_logits;
    const tl_sampling_params *params;
    const uint32_t *prompt;
    size_t n_prompt;
    const uint32_t *output;
    size_t n_output;
    uint32_t *token; /* where the engine writes */
    double *logprob;
    tl_sampler *sampler;
} draw;

static void arg_param(host *h, const json_t *in, const char *key, double *value) {
    if (json_object_get(in, key) != NULL) {
        *value = host_arg_f64(h, in, key);
    }
}

/* What is left out has the engine's default. */
static const tl_sampling_params *arg_params(host *h, const json_t *in) {
    const json_t *value = json_object_get(in, "params");
    tl_sampling_params params = h->tl.sampling_params_default();
    if (!json_is_object(value)) {
        host_bad(h, "`params` is no object");
    }
    if (json_object_get(value, "top_k") != NULL) {
        params.top_k = (size_t)host_arg_count(h, value, "top_k", SIZE_MAX);
    }
    arg_param(h, value, "temperature", &params.temperature);
    arg_param(h, value, "top_p", &params.top_p);
    arg_param(h, value, "min_p", &params.min_p);
    arg_param(h, value, "repetition_penalty", &params.repetition_penalty);
    arg_param(h, value, "presence_penalty", &params.presence_penalty);
    arg_param(h, value, "frequency_penalty", &params.frequency_penalty);
    return host_const(h, "params", &params, sizeof params);
}

static draw arg_draw(host *h, const json_t *in) {
    draw d = {0};
    d.logits = host_arg_array(h, in, "logits", "f32", &d.n_logits);
    d.params = arg_params(h, in);
    d.prompt = host_arg_array(h, in, "prompt", "u32", &d.n_prompt);
    d.output = host_arg_array(h, in, "output", "u32", &d.n_output);
    d.token = host_output(h, "token", sizeof *d.token);
    d.logprob = host_output(h, "logprob", sizeof *d.logprob);
    return d;
}

static bool make_sampler(host *h, draw *d, json_t *out) {
    tl_error err = host_error();
    void *sampler = host_unset();
    d->sampler = sampler;
    tl_status status = h->tl.sampler_new(&d->sampler, d->n_logits, &err);
    sampler = d->sampler;
    bool made = host_made(h, out, status, &err, &sampler);
    d->sampler = sampler;
    return made;
}

static bool one_draw(host *h, const draw *d, tl_pcg32 *rng, json_t *out) {
    tl_error err = host_error();
    host_refill(h);
    tl_status status =
        h->tl.sample(d->sampler, d->logits, d->n_logits, d->params, d->prompt, d->n_prompt,
                     d->output, d->n_output, rng, d->token, d->logprob, &err);
    return host_answer(out, status, &err);
}

static void free_kept(host *h) {
    h->tl.sampler_free(h->kept_sampler);
    h->kept_sampler = NULL;
}

/* The sampler of earlier requests, refused ones among them; a new one for another vocabulary. */
static bool keep_sampler(host *h, size_t vocab) {
    if (h->kept_sampler != NULL && h->kept_vocab == vocab) {
        return true;
    }
    free_kept(h);
    h->kept_vocab = vocab;
    return h->tl.sampler_new(&h->kept_sampler, vocab, NULL) == TL_OK;
}

static uint64_t bits_of(double x) {
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* `rng` stood before the new sampler's call; after it, or after its refusal, it stands at `moved`.
 * The kept one must do the same. */
static void ask_kept(host *h, const draw *d, tl_pcg32 rng, bool ok, tl_pcg32 moved) {
    uint32_t token = 0;
    double logprob = 0.0;
    if (!keep_sampler(h, d->n_logits)) {
        return;
    }
    tl_status status =
        h->tl.sample(h->kept_sampler, d->logits, d->n_logits, d->params, d->prompt, d->n_prompt,
                     d->output, d->n_output, &rng, &token, &logprob, NULL);
    bool same = (status == TL_OK) == ok && rng.state == moved.state && rng.inc == moved.inc;
    if (same && ok) {
        same = token == *d->token && bits_of(logprob) == bits_of(*d->logprob);
    }
    host_expect(h, same, status,
                "a sampler that answered other requests before does not answer, or move the "
                "generator, as a new one");
}

void host_sampler_clear(host *h) {
    if (h->kept_sampler != NULL) {
        free_kept(h);
    }
}

static bool op_sample(host *h, const json_t *in, json_t *out) {
    tl_pcg32 rng = arg_rng(h, in);
    const tl_pcg32 before = rng;
    draw d = arg_draw(h, in);
    if (!host_ready(h)) {
        return false;
    }
    bool made = make_sampler(h, &d, out);
    bool ok = made && one_draw(h, &d, &rng, out);
    if (made) {
        ask_kept(h, &d, before, ok, rng);
    }
    if (ok) {
        host_put_int(out, "id", *d.token);
        host_put_f64(out, "logprob", *d.logprob);
    }
    put_rng(out, &rng);
    h->tl.sampler_free(d.sampler);
    return ok;
}

static bool op_sample_sweep(host *h, const json_t *in, json_t *out) {
    size_t n_words = 0;
    const uint64_t *words = host_arg_array(h, in, "rngs", "u64", &n_words);
    draw d = arg_draw(h, in);
    size_t n = n_words / 2;
    if (!host_ready(h)) {
        return false;
    }
    uint32_t *ids = calloc(n + 1, sizeof *ids);
    double *logprobs = calloc(n + 1, sizeof *logprobs);
    bool ok = ids != NULL && logprobs != NULL && make_sampler(h, &d, out);
    for (size_t i = 0; ok && i < n; i++) {
        tl_pcg32 rng = {.state = words[2 * i], .inc = words[2 * i + 1]};
        const tl_pcg32 before = rng;
        ok = one_draw(h, &d, &rng, out);
        if (i == 0) {
            ask_kept(h, &d, before, ok, rng);
        }
        if (ok) {
            ids[i] = *d.token;
            logprobs[i] = *d.logprob;
        }
    }
    if (ok) {
        host_put_array(out, "ids", "u32", ids, n);
        host_put_array(out, "logprobs", "f64", logprobs, n);
    }
    h->tl.sampler_free(d.sampler);
    free(ids);
    free(logprobs);
    return ok;
}

static bool op_sample_run(host *h, const json_t *in, json_t *out) {
    tl_pcg32 rng = arg_rng(h, in);
    size_t n = (size_t)host_arg_count(h, in, "n", SIZE_MAX / 8);
    draw d = arg_draw(h, in);
    if (!host_ready(h)) {
        return false;
    }
    uint32_t *ids = calloc(n + 1, sizeof *ids);
    bool ok = ids != NULL && make_sampler(h, &d, out);
    for (size_t i = 0; ok && i < n; i++) {
        ok = one_draw(h, &d, &rng, out);
        if (ok) {
            ids[i] = *d.token;
        }
    }
    if (ok) {
        host_put_array(out, "ids", "u32", ids, n);
    }
    put_rng(out, &rng);
    h->tl.sampler_free(d.sampler);
    free(ids);
    return ok;
}

const host_op host_sample_ops[] = {
    {"pcg32_new", op_pcg32_new},
    {"pcg32_next", op_pcg32_next},
    {"pcg32_uniform", op_pcg32_uniform},
    {"child_seed", op_child_seed},
    {"stream", op_stream},
    {"sample", op_sample},
    {"sample_sweep", op_sample_sweep},
    {"sample_run", op_sample_run},
    {NULL, NULL},
};
