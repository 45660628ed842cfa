/* test_sample_penalties.c: what the three penalties do to a logit.
 *
 * Property: a call with penalties and history answers exactly (ids and logprob bits, for a grid of
 * u and greedily) as a call without them whose logits were penalised by hand. All numbers are short
 * binary fractions, so the logits by hand are f32 and nothing rounds. Kills s06 (presence and
 * frequency over the prompt too) and s07 (negative logits divided).
 *
 * Source: conformance/spec/sampling.md, clauses inputs, 2, 3, 4. */
#include "sampler_ask.h"

#include <math.h>

#define MAX_IDS 6

/* One line: logits, history, penalties, and the logits by hand. */
typedef struct penalty_case {
    const char *check;
    const char *what;
    float x[4];
    uint32_t prompt[MAX_IDS];
    size_t n_prompt;
    uint32_t output[MAX_IDS];
    size_t n_output;
    double repetition, presence, frequency;
    float want[4];
} penalty_case;

enum { V = 4 };

/* clang-format off */
static const penalty_case cases[] = {
    {"repetition_divides_positive", "3 / 2 and 0.5 / 2",
     {3, 1, 0.5f, -1}, {0}, 1, {2}, 1, 2, 0, 0, {1.5f, 1, 0.25f, -1}},
    {"repetition_multiplies_rest", "-1.5 x 2 and -0.25 x 2",
     {1, -1.5f, 0.5f, -0.25f}, {1}, 1, {3}, 1, 2, 0, 0, {1, -3, 0.5f, -0.5f}},
    {"repetition_zero", "0, -0 and -inf stay",
     {0, -0.0f, -INFINITY, -1}, {0, 1, 2}, 3, {2}, 1, 2, 0, 0, {0, -0.0f, -INFINITY, -1}},
    {"repetition_reaches_prompt", "ids 0 and 2 in the prompt alone",
     {2, 1, -1, 0.5f}, {0, 2}, 2, {0}, 0, 4, 0, 0, {0.5f, 1, -4, 0.5f}},
    {"repetition_reaches_output", "ids 0 and 2 in the output alone",
     {2, 1, -1, 0.5f}, {0}, 0, {2, 0}, 2, 4, 0, 0, {0.5f, 1, -4, 0.5f}},
    {"repetition_once", "ids 0 and 2 many times in both",
     {2, 1, -1, 0.5f}, {0, 0, 2, 0}, 4, {2, 0, 2, 2, 0}, 5, 2, 0, 0, {1, 1, -2, 0.5f}},
    {"presence_once", "id 1 three times, id 3 once, presence 0.75",
     {2, 1, -1, 0.5f}, {0}, 0, {1, 1, 3, 1}, 4, 1, 0.75, 0, {2, 0.25f, -1, -0.25f}},
    {"frequency_counts", "id 1 three times, id 0 once, frequency 0.25",
     {2, 1, -1, 0.5f}, {0}, 0, {1, 1, 0, 1}, 4, 1, 0, 0.25, {1.75f, 0.25f, -1, 0.5f}},
    {"prompt_is_exempt", "id 1 five times in the prompt alone; presence 0.5, frequency 0.25",
     {2, 1, -1, 0.5f}, {1, 1, 1, 1, 1}, 5, {0}, 0, 1, 0.5, 0.25, {2, 1, -1, 0.5f}},
    {"prompt_is_exempt", "the same with id 0 once in the output",
     {2, 1, -1, 0.5f}, {1, 1, 1, 1, 1}, 5, {0}, 1, 1, 0.5, 0.25, {1.25f, 1, -1, 0.5f}},
    {"prompt_not_counted", "id 1 twice in the prompt, once in the output",
     {2, 1, -1, 0.5f}, {1, 0, 1}, 3, {1}, 1, 1, 0.5, 0.25, {2, 0.25f, -1, 0.5f}},
    {"penalty_order", "1 / 2 - 2, never (1 - 2) x 2",
     {1, 0.25f, -1, 0.5f}, {0}, 0, {0}, 1, 2, 2, 0, {-1.5f, 0.25f, -1, 0.5f}},
    {"penalty_order", "-1 x 2 + 4, never (-1 + 4) / 2",
     {1, 0.25f, -1, 0.5f}, {0}, 0, {2}, 1, 2, -4, 0, {1, 0.25f, 2, 0.5f}},
    {"negative_penalties", "presence -0.5, frequency -0.25, id 2 twice",
     {2, 1, -1, 0.5f}, {0}, 0, {2, 2}, 2, 1, -0.5, -0.25, {2, 1, 0, 0.5f}},
    {"negative_penalties", "r = 0.5: 2 / 0.5 and -1 x 0.5",
     {2, 1, -1, 0.5f}, {0, 2}, 2, {0}, 0, 0.5, 0, 0, {4, 1, -0.5f, 0.5f}},
};
/* clang-format on */

static void run_case(ol_test *t, const penalty_case *c) {
    naive_input penalised = {.x = c->x,
                             .n = V,
                             .params = naive_params_off(),
                             .prompt = c->prompt,
                             .n_prompt = c->n_prompt,
                             .output = c->output,
                             .n_output = c->n_output};
    penalised.params.repetition = c->repetition;
    penalised.params.presence = c->presence;
    penalised.params.frequency = c->frequency;
    naive_input by_hand = {.x = c->want, .n = V, .params = naive_params_off()};
    check_same_answers(t, c->check, &penalised, &by_hand, c->what);
}

static void part_by_hand(ol_test *t) {
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        run_case(t, &cases[i]);
    }
}

/* More places than 8 or 16 bits count. One question of each kind: a sweep over such a history would
 * cost a slow testee a minute. */
static void part_often(ol_test *t) {
    enum { MOST = 65537 };
    static const size_t counts[] = {255, 256, 257, 65536, MOST};
    static const float x[] = {2, 1, -1, 0.5f};
    uint32_t *output = ol_alloc(t, MOST * sizeof *output);
    for (size_t i = 0; i < MOST; i++) {
        output[i] = 0;
    }
    for (size_t i = 0; i < TEST_COUNT(counts); i++) {
        naive_input in = {x, V, naive_params_off(), NULL, 0, output, counts[i]};
        in.params.presence = 0.25;
        in.params.frequency = 0x1p-15;
        const float want[] = {2 - 0.25f - (float)counts[i] * 0x1p-15f, 1, -1, 0.5f};
        naive_input by_hand = {.x = want, .n = V, .params = naive_params_off()};
        const uint64_t u53 = 0; /* id 0 */
        const json_t *got = ask_sweep(t, &in, &u53, 1);
        const json_t *right = ask_sweep(t, &by_hand, &u53, 1);
        const char *what = ol_text(t, "logprob of an id that the output has %zu times", counts[i]);
        if (ol_check_ok(t, "frequency_counts", got, what) &&
            ol_check_ok(t, "frequency_counts", right, what)) {
            size_t n = 0;
            size_t n_right = 0;
            const double *logprobs = ol_res_f64s(t, got, "logprobs", &n);
            const double *wanted = ol_res_f64s(t, right, "logprobs", &n_right);
            ol_check_f64s_bits(t, "frequency_counts", logprobs, n, wanted, n_right, what);
        }
    }
}

/* Numbers that round: the penalties are f64, one rounding an operation, and the logprob is of what
 * they give. */
static void part_logprob(ol_test *t) {
    enum { N = 12, ROUNDS = 8, DRAWS = 16 };
    uint32_t prompt[6];
    uint32_t output[9];
    float x[N];
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < N; i++) {
            x[i] = 2.0f * ol_rand_normal(t);
        }
        for (size_t i = 0; i < TEST_COUNT(prompt); i++) {
            prompt[i] = ol_rand_below(t, N);
        }
        for (size_t i = 0; i < TEST_COUNT(output); i++) {
            output[i] = ol_rand_below(t, N / 2);
        }
        naive_input in = {
            x, N, naive_params_off(), prompt, TEST_COUNT(prompt), output, TEST_COUNT(output)};
        in.params.repetition = 1.0 + ol_rand_unit(t) / 3.0;
        in.params.presence = ol_rand_unit(t) / 3.0;
        in.params.frequency = ol_rand_unit(t) / 7.0;
        naive_result r = naive_sample(t, &in);
        const json_t *answer = ask_sweep(t, &in, ask_grid(t, DRAWS), DRAWS);
        if (!ol_check_ok(t, "logprob_after_penalties", answer, "drawn penalties")) {
            return;
        }
        size_t n = 0;
        const uint32_t *ids = ol_res_u32s(t, answer, "ids", &n);
        const double *got = ol_res_f64s(t, answer, "logprobs", &n);
        double want[DRAWS] = {0};
        for (size_t i = 0; i < n && i < DRAWS; i++) {
            /* An id past the vocabulary has no logprob: a positive number never matches. */
            want[i] = ids[i] < N ? r.logprob[ids[i]] : 1.0;
        }
        ol_check_f64s_bits(t, "logprob_after_penalties", got, n, want, DRAWS,
                           "logprobs of the penalised logits");
    }
}

/* What is off need not be said: each parameter alone, and all of them. */
static void part_left_out(ol_test *t) {
    static const char *const members[] = {
        "temperature",       "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
        "frequency_penalty", NULL};
    static const float x[] = {2, 1, -1, 0.5f};
    static const uint32_t prompt[] = {0, 2};
    static const uint32_t output[] = {1, 3, 1};
    const naive_input in = {
        x, V, naive_params_off(), prompt, TEST_COUNT(prompt), output, TEST_COUNT(output)};
    for (size_t i = 0; i < TEST_COUNT(members); i++) {
        check_left_out(t, "left_out_is_off", &in, members[i]);
    }
}

void test_penalties_follow_hf_and_openai_semantics(ol_test *t) {
    static const test_part parts[] = {{"by-hand", part_by_hand},
                                      {"often", part_often},
                                      {"logprob", part_logprob},
                                      {"left-out", part_left_out}};
    test_run_parts(t, parts, TEST_COUNT(parts));
}
