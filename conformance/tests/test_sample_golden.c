/* test_sample_golden.c: the sampler against the golden of the independent Python implementation.
 *
 * Property: the same token ids and the same logprob bits, step by step, and what single steps of
 * the page promise where a golden's token might agree by luck. Every step is asked with the
 * generator state that a right engine has there, so that one wrong count of draws does not hide the
 * steps after it. Kills s03 (logprob after temperature) and s05 (walk in the order of probability).
 *
 * Source: conformance/spec/sampling.md, clauses 4, 6, 7, 11. */
#include "sampler_ask.h"

#include <math.h>
#include <string.h>

#define PURPOSE_SAMPLE 4

/* ------------------------------------------------------------------ the golden */

static naive_params case_params(ol_test *t, const ol_case *c) {
    const json_t *p = ol_get_object(t, c, c->body, "params");
    naive_params params = {.temperature = ol_get_f64(t, c, p, "temperature"),
                           .top_k = ol_get_count(t, c, p, "top_k"),
                           .top_p = ol_get_f64(t, c, p, "top_p"),
                           .min_p = ol_get_f64(t, c, p, "min_p"),
                           .repetition = ol_get_f64(t, c, p, "repetition_penalty"),
                           .presence = ol_get_f64(t, c, p, "presence_penalty"),
                           .frequency = ol_get_f64(t, c, p, "frequency_penalty")};
    return params;
}

/* A step's logits are its own or those of an earlier step. */
static void step_logits(ol_test *t, const ol_case *c, const json_t *steps, const json_t *step,
                        naive_input *in) {
    if (json_object_get(step, "logits") == NULL) {
        uint64_t of = ol_get_count(t, c, step, "logits_of");
        step = json_array_get(steps, (size_t)of);
    }
    in->x = ol_get_f32s(t, c, step, "logits", &in->n);
}

/* What the steps of a case gave and should have given. */
typedef struct trace {
    uint32_t *ids, *want_ids;
    double *logprobs, *want_logprobs;
    bool draws_counted; /* every step left the generator where it belongs */
    bool refused;
} trace;

static void run_step(ol_test *t, const naive_input *in, size_t i, naive_rng *rng, trace *tr) {
    const json_t *answer = ask_sample(t, in, *rng);
    if (in->params.temperature != 0.0) {
        *rng = naive_rng_after(*rng, 2);
    }
    const char *what = ol_text(t, "step %zu", i);
    tr->refused = !ol_check_ok(t, "ids", answer, what);
    if (tr->refused) {
        (void)ol_check_ok(t, "logprobs", answer, what);
        (void)ol_check_ok(t, "generator_state", answer, what);
        return;
    }
    tr->ids[i] = (uint32_t)ol_int(t, answer, "id");
    tr->logprobs[i] = ol_res_f64(t, answer, "logprob");
    naive_rng after = ask_rng_of(t, "generator_state", answer);
    tr->draws_counted = tr->draws_counted && after.state == rng->state && after.inc == rng->inc;
}

static void run_case(ol_test *t, const ol_case *c) {
    const json_t *steps = ol_get_array(t, c, c->body, "steps");
    size_t n = json_array_size(steps);
    naive_input in = {.params = case_params(t, c)};
    in.prompt = ol_get_ids(t, c, c->body, "prompt", &in.n_prompt);
    naive_rng rng = naive_rng_stream(ol_get_u64(t, c, c->body, "seed"), PURPOSE_SAMPLE);
    trace tr = {.ids = ol_alloc(t, n * sizeof(uint32_t)),
                .want_ids = ol_alloc(t, n * sizeof(uint32_t)),
                .logprobs = ol_alloc(t, n * sizeof(double)),
                .want_logprobs = ol_alloc(t, n * sizeof(double)),
                .draws_counted = true};
    in.output = tr.want_ids;
    ol_begin_case(t, c);
    for (size_t i = 0; i < n && !tr.refused; i++) {
        const json_t *step = json_array_get(steps, i);
        step_logits(t, c, steps, step, &in);
        in.n_output = i;
        run_step(t, &in, i, &rng, &tr);
        tr.want_ids[i] = (uint32_t)ol_get_count(t, c, step, "id");
        tr.want_logprobs[i] = ol_get_f64(t, c, step, "logprob");
    }
    if (tr.refused) {
        return;
    }
    ol_check_u32s(t, "ids", tr.ids, n, tr.want_ids, n, "token ids by step");
    ol_check_f64s_bits(t, "logprobs", tr.logprobs, n, tr.want_logprobs, n, "logprobs by step");
    ol_check(t, "generator_state", tr.draws_counted,
             "a step did not leave the generator one uniform further (none when greedy)");
}

/* ------------------------------------------------------------------ step 4 */

static const float spread_x[] = {0.5f, -1.25f, 2.0f, 1.0f, 0.75f, -3.0f};
enum { SPREAD_N = TEST_COUNT(spread_x) };

/* The engine's own logprob of each id with everything off. false: the check failed. */
static bool plain_logprobs(ol_test *t, naive_input *in, double *plain) {
    uint64_t u53s[2 * SPREAD_N + 2];
    in->params = naive_params_off();
    naive_result r = naive_sample(t, in);
    size_t n_u = naive_edges(&r, u53s);
    const json_t *answer = ask_sweep(t, in, u53s, n_u);
    if (!ol_check_ok(t, "logprob_ignores_filters", answer, "everything off")) {
        return false;
    }
    size_t n = 0;
    const uint32_t *ids = ol_res_u32s(t, answer, "ids", &n);
    const double *logprobs = ol_res_f64s(t, answer, "logprobs", &n);
    size_t n_found = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < SPREAD_N && plain[ids[i]] == 0.0) {
            plain[ids[i]] = logprobs[i];
            n_found++;
        }
    }
    return ol_check_int(t, "logprob_ignores_filters", (int64_t)n_found, SPREAD_N,
                        "ids drawn with everything off");
}

/* For one combination, the logprob of every drawn id must be the one that it has with everything
 * off. */
static bool check_combination(ol_test *t, const naive_input *in, const double *plain) {
    enum { GRID = 24 };
    const json_t *answer = ask_sweep(t, in, ask_grid(t, GRID), GRID);
    const char *what =
        ol_text(t, "logprobs at T = %g, k = %d, p = %g, m = %g", in->params.temperature,
                (int)in->params.top_k, in->params.top_p, in->params.min_p);
    if (!ol_check_ok(t, "logprob_ignores_filters", answer, what)) {
        return false;
    }
    size_t n = 0;
    const uint32_t *ids = ol_res_u32s(t, answer, "ids", &n);
    const double *got = ol_res_f64s(t, answer, "logprobs", &n);
    double want[GRID] = {0};
    for (size_t j = 0; j < n && j < GRID; j++) {
        /* An id past the vocabulary has no logprob: a positive number never matches. */
        want[j] = ids[j] < SPREAD_N ? plain[ids[j]] : 1.0;
    }
    return ol_check_f64s_bits(t, "logprob_ignores_filters", got, n, want, GRID, what);
}

static void part_logprob(ol_test *t) {
    static const double temperatures[] = {1.0, 0.1, 5.0};
    static const uint64_t ks[] = {0, 1, 3};
    static const double ps[] = {1.0, 0.5, 0.0};
    static const double ms[] = {0.0, 0.2, 1.0};
    enum { COMBINATIONS = 81 };
    naive_input in = {.x = spread_x, .n = SPREAD_N};
    double plain[SPREAD_N] = {0};
    if (!plain_logprobs(t, &in, plain)) {
        return;
    }
    for (size_t i = 0; i < COMBINATIONS; i++) {
        in.params.temperature = temperatures[i % 3];
        in.params.top_k = ks[i / 3 % 3];
        in.params.top_p = ps[i / 9 % 3];
        in.params.min_p = ms[i / 27];
        if (!check_combination(t, &in, plain)) {
            return;
        }
    }
    in.params = naive_params_off();
    in.params.temperature = 0.0;
    (void)check_combination(t, &in, plain);
}

/* ------------------------------------------------------------------ steps 6 and 7 */

static void part_top_k_ties(ol_test *t) {
    static const float x[] = {1, 2, 2, 2, 3};
    static const float zeros[] = {-1.0f, -0.0f, 0.0f, -1.0f};
    static const float zeros_turned[] = {-1.0f, 0.0f, -0.0f, -1.0f};
    static const uint32_t want[] = {1, 2, 4};
    static const uint32_t first_zero[] = {1};
    naive_input in = {.x = x, .n = TEST_COUNT(x), .params = naive_params_off()};
    in.params.top_k = 3;
    check_kept(t, "top_k_ties", &in, want, TEST_COUNT(want), "ids of [1, 2, 2, 2, 3] with k = 3");
    in.x = zeros;
    in.n = TEST_COUNT(zeros);
    in.params.top_k = 1;
    check_kept(t, "top_k_ties", &in, first_zero, 1, "ids of [-1, -0, +0, -1] with k = 1");
    in.x = zeros_turned;
    check_kept(t, "top_k_ties", &in, first_zero, 1, "ids of [-1, +0, -0, -1] with k = 1");
}

/* Two penalised logits that differ in their last bit (1.75 and 1.75 + 2^-52) and have the same
 * quotient by T. */
static void check_last_bit(ol_test *t) {
    static const float x[] = {1.75f, 1.75f, 0.0f};
    static const uint32_t output[] = {1};
    static const uint32_t lower[] = {0};
    naive_input in = {
        .x = x, .n = TEST_COUNT(x), .params = naive_params_off(), .output = output, .n_output = 1};
    in.params.presence = -0x1p-52;
    in.params.top_k = 1;
    for (int i = 1; i < 512; i++) {
        in.params.temperature = 1.0 + i * 0x1p-10;
        double a = 1.75 / in.params.temperature;
        double b = (1.75 + 0x1p-52) / in.params.temperature;
        if (a == b) {
            break;
        }
    }
    check_kept(t, "scaled_ties", &in, lower, 1,
               "ids with k = 1 where logits that differ by 2^-52 divide to one value");
}

static void part_scaled_ties(ol_test *t) {
    static const float tiny[] = {1e-30f, 2e-30f, -1.0f};
    static const uint32_t lower[] = {0};
    naive_input in = {.x = tiny, .n = TEST_COUNT(tiny), .params = naive_params_off()};
    in.params.top_k = 1;
    in.params.temperature = 1e300;
    check_kept(t, "scaled_ties", &in, lower, 1,
               "ids of [1e-30, 2e-30, -1] at T = 1e300 with k = 1: both quotients are 0");
    check_last_bit(t);
}

/* ------------------------------------------------------------------ step 11 */

static void part_walk(ol_test *t) {
    static const float up_and_down[] = {0.0f, 2.0f, 1.0f, 3.0f, -1.0f, 2.5f};
    static const float falling[] = {3.0f, 2.0f, 1.0f, 0.0f};
    static const float rising[] = {0.0f, 1.0f, 2.0f, 3.0f};
    static const float below_zero[] = {-2.0f, 0.0f, -1.0f, -0.5f};
    naive_input in = {.x = up_and_down, .n = TEST_COUNT(up_and_down), .params = naive_params_off()};
    check_walk(t, "ascending_walk", &in, "ids at the borders of [0, 2, 1, 3, -1, 2.5]");
    in.params.top_k = 4;
    in.params.temperature = 0.75;
    check_walk(t, "ascending_walk", &in, "the same at T = 0.75 with k = 4");
    in.params = naive_params_off();
    in.x = falling;
    in.n = TEST_COUNT(falling);
    check_walk(t, "ascending_walk", &in, "ids at the borders of [3, 2, 1, 0]");
    in.x = rising;
    check_walk(t, "ascending_walk", &in, "ids at the borders of [0, 1, 2, 3]");
    /* Divided by any T the largest stays 0, and the others move. */
    in.x = below_zero;
    in.n = TEST_COUNT(below_zero);
    in.params.temperature = 2.0;
    check_walk(t, "ascending_walk", &in, "ids at the borders of [-2, 0, -1, -0.5] at T = 2");
    in.params.top_k = 3;
    in.params.temperature = 0.5;
    check_walk(t, "ascending_walk", &in, "the same at T = 0.5 with k = 3");
}

/* The id that is drawn for one u. */
static void check_at(ol_test *t, const char *name, const naive_input *in, uint64_t u53,
                     uint32_t want, const char *what) {
    const json_t *answer = ask_sample(t, in, naive_rng_with_u53(u53));
    if (ol_check_ok(t, name, answer, what)) {
        ol_check_int(t, name, ol_int(t, answer, "id"), want, what);
    }
}

static void part_first_masked(ol_test *t) {
    static const float x[] = {-INFINITY, -INFINITY, 1.0f, 2.0f};
    static const float vanishing[] = {-2000.0f, 1.0f, 2.0f};
    naive_input in = {.x = x, .n = TEST_COUNT(x), .params = naive_params_off()};
    check_at(t, "first_masked", &in, 0, 2, "ids 0 and 1 masked, u = 0");
    in.x = vanishing;
    in.n = TEST_COUNT(vanishing);
    check_at(t, "first_masked", &in, 0, 1, "the p of id 0 is 0 by rounding, u = 0");
}

/* Ten shares of 0.1 end at 1 - 2^-53, the largest u: no id has u < c. */
static void part_tail(ol_test *t) {
    static const float ten[10] = {0};
    static const float trailing[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -2000.0f, -2000.0f, -INFINITY};
    naive_input in = {.x = ten, .n = TEST_COUNT(ten), .params = naive_params_off()};
    check_at(t, "rounding_tail", &in, NAIVE_U_LAST, 9, "ten equal logits, u = 1 - 2^-53");
    in.x = trailing;
    in.n = TEST_COUNT(trailing);
    check_at(t, "tail_skips_zero", &in, NAIVE_U_LAST, 9,
             "ten equal logits and three of p = 0 after them, u = 1 - 2^-53");
    in.params.top_k = 12;
    check_at(t, "tail_skips_zero", &in, NAIVE_U_LAST, 9, "the same with k = 12");
}

static void check_large(ol_test *t, const naive_input *in, const char *what) {
    enum { N = 12 };
    naive_result r = naive_sample(t, in);
    const uint64_t *grid = ask_grid(t, N);
    uint32_t want_ids[N];
    double want_logprobs[N];
    for (size_t i = 0; i < N; i++) {
        want_ids[i] = naive_pick(&r, grid[i]);
        want_logprobs[i] = r.logprob[want_ids[i]];
    }
    const json_t *answer = ask_sweep(t, in, grid, N);
    if (!ol_check_ok(t, "large_vocab", answer, what)) {
        return;
    }
    size_t n = 0;
    const uint32_t *ids = ol_res_u32s(t, answer, "ids", &n);
    ol_check_u32s(t, "large_vocab", ids, n, want_ids, N, what);
    const double *logprobs = ol_res_f64s(t, answer, "logprobs", &n);
    ol_check_f64s_bits(t, "large_vocab", logprobs, n, want_logprobs, N, what);
}

/* Logits in steps of 1/4, so that every value of the top stands many times, far apart. */
static void part_large_vocab(ol_test *t) {
    enum { V = 49152 };
    float *x = ol_alloc(t, V * sizeof *x);
    for (size_t i = 0; i < V; i++) {
        x[i] = floorf(ol_rand_normal(t) * 8.0f) * 0.25f;
    }
    naive_input in = {.x = x, .n = V, .params = naive_params_off()};
    check_large(t, &in, "49,152 logits, no filter");
    in.params.top_k = 40;
    check_large(t, &in, "49,152 logits, k = 40");
    in.params.top_k = 0;
    in.params.top_p = 0.9;
    in.params.temperature = 0.8;
    check_large(t, &in, "49,152 logits, p = 0.9, T = 0.8");
    in.params.top_k = 1000;
    in.params.min_p = 0.05;
    check_large(t, &in, "49,152 logits, k = 1000, p = 0.9, m = 0.05, T = 0.8");
    in.params.temperature = 0.0;
    check_large(t, &in, "49,152 logits, greedy");
}

/* 4,096 of them far apart in the vocabulary, each 2^-17 from the next one, above nearly all others:
 * an order that is only nearly right keeps others. */
static void part_close_vocab(ol_test *t) {
    enum { V = 49152, EVERY = 12, CLOSE = V / EVERY };
    float *x = ol_alloc(t, V * sizeof *x);
    for (size_t i = 0; i < V; i++) {
        bool close = i % EVERY == 7;
        size_t rank = i / EVERY * 2654435761u % CLOSE;
        x[i] = close ? 8.0f + (float)rank * 0x1p-17f : ol_rand_normal(t) * 2.0f;
    }
    naive_input in = {.x = x, .n = V, .params = naive_params_off()};
    in.params.top_k = 100;
    check_large(t, &in, "49,152 logits, many of them close, k = 100");
    in.params.top_k = 0;
    in.params.top_p = 0.3;
    check_large(t, &in, "49,152 logits, many of them close, p = 0.3");
}

/* 300 logits that lie within a thousandth, and all others far below: an order made by throwing into
 * bands must still sort what falls into one. In no order, or each above the one before. */
static void check_crowded(ol_test *t, bool rising) {
    enum { EVERY = 17, V = 300 * EVERY };
    static const uint64_t ks[] = {2, 37, 100, 201, 299};
    float *x = ol_alloc(t, V * sizeof *x);
    for (size_t i = 0; i < V; i++) {
        const float drawn = ol_rand_normal(t);
        const float near = rising ? 0.0002f * (float)i / V : 0.0002f * drawn;
        x[i] = i % EVERY == 3 ? near : drawn - 100.0f;
    }
    naive_input in = {.x = x, .n = V, .params = naive_params_off()};
    for (size_t i = 0; i < TEST_COUNT(ks); i++) {
        in.params.top_k = ks[i];
        check_large(
            t, &in,
            ol_text(t, "5,100 logits, 300 on top%s, k = %d", rising ? ", rising" : "", (int)ks[i]));
    }
    in.params.top_k = 0;
    in.params.top_p = 0.4;
    check_large(t, &in,
                ol_text(t, "5,100 logits, 300 on top%s, p = 0.4", rising ? ", rising" : ""));
}

static void part_crowded_vocab(ol_test *t) {
    check_crowded(t, false);
    check_crowded(t, true);
}

/* More ids than 16 bits count, as newer vocabularies have: half of the top lies beyond. */
static void part_wide_vocab(ol_test *t) {
    enum { V = 131072 };
    float *x = ol_alloc(t, V * sizeof *x);
    for (size_t i = 0; i < V; i++) {
        x[i] = ol_rand_normal(t) * 2.0f;
    }
    naive_input in = {.x = x, .n = V, .params = naive_params_off()};
    in.params.top_k = 2000;
    check_large(t, &in, "131,072 logits, k = 2000");
    in.params.top_k = 0;
    in.params.top_p = 0.9;
    check_large(t, &in, "131,072 logits, p = 0.9");
    for (size_t i = 0; i < V; i++) {
        x[i] += 1000.0f;
    }
    check_large(t, &in, "131,072 logits of about 1,000, p = 0.9");
}

void test_sampler_matches_l81_golden(ol_test *t) {
    static const test_part parts[] = {
        {"logprob", part_logprob},           {"walk", part_walk},
        {"top-k-ties", part_top_k_ties},     {"scaled-ties", part_scaled_ties},
        {"first-masked", part_first_masked}, {"tail", part_tail},
        {"large-vocab", part_large_vocab},   {"close-vocab", part_close_vocab},
        {"wide-vocab", part_wide_vocab},     {"crowded-vocab", part_crowded_vocab}};
    for (size_t i = 0; i < ol_n_cases(t, "sampler"); i++) {
        run_case(t, ol_case_at(t, "sampler", i));
    }
    test_run_parts(t, parts, TEST_COUNT(parts));
}
