/* target_sampler.c: logits, parameters and history to tokens, against the second sampler.
 *
 * Same status, same id, same bits of the log-probability, same generator afterwards; a refusal
 * moves neither the generator nor the outputs.
 *
 * Source: conformance/spec/sampling.md. */
#include "fuzz.h"

#include <math.h>
#include <string.h>

#include <stdlib.h>

#define VOCAB_MAX 40
#define HISTORY_MAX 12

typedef struct question {
    float *logits; /* [n] on the heap: one past the end shows */
    size_t n;
    tl_sampling_params params;
    uint32_t *prompt, *output;
    size_t n_prompt, n_output;
    tl_pcg32 rng;
} question;

static double any_double(fuzz_tape *tape, double usual) {
    static const double edges[] = {
        0.0,    1.0,  -0.0,  0.5,    0.9, 1e-5,           9.999e-6,
        2.0,    -1.0, 1e300, 1e-300, 0.1, 0.999999999999, 1.0000000000000002,
        5e-324, 100.0};
    const uint8_t byte = fuzz_u8(tape);
    if (byte < 96) {
        return usual;
    }
    if (byte < 224) {
        return edges[byte % (sizeof edges / sizeof *edges)];
    }
    if (byte < 232) {
        return byte < 228 ? (double)INFINITY : (double)NAN;
    }
    const uint64_t bits = fuzz_u64(tape);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Few different values, so that ties are met; sometimes any bits at all. */
static float any_logit(fuzz_tape *tape) {
    const uint8_t byte = fuzz_u8(tape);
    if (byte < 248) {
        return (float)((int)byte - 124) / 8.0f;
    }
    if (byte < 252) {
        return -INFINITY;
    }
    const uint32_t bits = fuzz_u32(tape);
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint32_t *any_ids(fuzz_tape *tape, size_t vocab, size_t *n) {
    *n = fuzz_u8(tape) % (HISTORY_MAX + 1);
    uint32_t *ids = fuzz_alloc(*n * sizeof *ids);
    for (size_t i = 0; i < *n; i++) {
        const uint8_t byte = fuzz_u8(tape);
        ids[i] = byte == 255 ? (uint32_t)vocab : byte == 254 ? UINT32_MAX : byte % (uint32_t)vocab;
    }
    return ids;
}

static question read_question(fuzz_tape *tape) {
    question q = {.n = fuzz_u8(tape) % VOCAB_MAX + 1};
    q.rng.state = fuzz_u64(tape);
    q.rng.inc = fuzz_u32(tape) | 1;
    q.params.temperature = any_double(tape, 1.0);
    q.params.top_p = any_double(tape, 1.0);
    q.params.min_p = any_double(tape, 0.0);
    q.params.repetition_penalty = any_double(tape, 1.0);
    q.params.presence_penalty = any_double(tape, 0.0);
    q.params.frequency_penalty = any_double(tape, 0.0);
    const uint8_t k = fuzz_u8(tape);
    q.params.top_k = k == 255 ? SIZE_MAX : k % (q.n + 2);
    q.prompt = any_ids(tape, q.n, &q.n_prompt);
    q.output = any_ids(tape, q.n, &q.n_output);
    q.logits = fuzz_alloc(q.n * sizeof *q.logits);
    for (size_t i = 0; i < q.n; i++) {
        q.logits[i] = any_logit(tape);
    }
    return q;
}

static tl_status ask(const host_api *tl, tl_sampler *sampler, const question *q, tl_pcg32 *rng,
                     uint32_t *token, double *logprob, tl_error *err) {
    return tl->sample(sampler, q->logits, q->n, &q->params, q->n_prompt == 0 ? NULL : q->prompt,
                      q->n_prompt, q->n_output == 0 ? NULL : q->output, q->n_output, rng, token,
                      logprob, err);
}

/* One draw on both; the generator is that of the last one. */
static bool draw(fuzz_case *f, tl_sampler *a, tl_sampler *b, question *q) {
    tl_pcg32 rng_a = q->rng;
    tl_pcg32 rng_b = q->rng;
    uint32_t token_a = 0xa5a5a5a5;
    uint32_t token_b = 0xa5a5a5a5;
    double logprob_a = -12345.0;
    double logprob_b = -12345.0;
    tl_error err = fuzz_error();
    const tl_status got = ask(f->tl, a, q, &rng_a, &token_a, &logprob_a, &err);
    fuzz_check_error(f, "sample", got, &err, 0);
    const tl_status want = ask(f->second, b, q, &rng_b, &token_b, &logprob_b, NULL);
    const bool good = fuzz_agree(f, "sample", got, want);
    if (token_a != token_b || fuzz_f64_bits(logprob_a) != fuzz_f64_bits(logprob_b) ||
        memcmp(&rng_a, &rng_b, sizeof rng_a) != 0) {
        (void)fuzz_wrong(f, "sample: token %u logprob %a, the second says %u %a, or another draw",
                         token_a, logprob_a, token_b, logprob_b);
    }
    if (!good && (token_a != 0xa5a5a5a5 || memcmp(&rng_a, &q->rng, sizeof rng_a) != 0)) {
        (void)fuzz_wrong(f, "sample: refused, and something has changed");
    }
    q->rng = rng_a;
    return good;
}

static void run(fuzz_case *f, const uint8_t *data, size_t n) {
    fuzz_tape tape = {.data = data, .n = n};
    question q = read_question(&tape);
    tl_sampler *a = NULL;
    tl_sampler *b = NULL;
    if (f->tl->sampler_new(&a, q.n, NULL) != TL_OK ||
        f->second->sampler_new(&b, q.n, NULL) != TL_OK) {
        (void)fuzz_wrong(f, "there is no sampler of %zu", q.n);
    }
    for (int i = 0; a != NULL && b != NULL && i < 3 && draw(f, a, b, &q); i++) {
        q.logits[0] += 0.125f; /* the working memory of the draw before must not show */
    }
    f->tl->sampler_free(a);
    f->second->sampler_free(b);
    free(q.logits);
    free(q.prompt);
    free(q.output);
}

const fuzz_target fuzz_sampler = {.name = "sampler", .run = run};
