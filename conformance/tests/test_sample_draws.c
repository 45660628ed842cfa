/* test_sample_draws.c: how many uniforms a call takes, and what it refuses without taking any.
 *
 * Property: greedy moves the generator not at all, sampling moves it by exactly one uniform
 * whatever the filters leave, and a refused call leaves it alone. Every refusal has an accepted
 * twin beside it, so that an engine that refuses everything fails too.
 *
 * Source: conformance/spec/sampling.md, clauses inputs, refusal, overflow, 5, 11. */
#include "sampler_ask.h"

#include <float.h>
#include <math.h>

static const float plain_x[] = {0.5f, 2.0f, -1.0f, 1.0f, 0.25f};
static const uint32_t plain_history[] = {1, 3, 1};

static naive_input plain(void) {
    naive_input in = {.x = plain_x, .n = TEST_COUNT(plain_x), .params = naive_params_off()};
    return in;
}

static naive_rng start_rng(void) {
    return naive_rng_stream(2024, 4);
}

/* The check `name`: the call succeeds and the generator moves by n_outputs. */
static void check_moves(ol_test *t, const char *name, const naive_input *in, uint64_t n_outputs,
                        const char *what) {
    naive_rng want = naive_rng_after(start_rng(), n_outputs);
    const json_t *answer = ask_sample(t, in, start_rng());
    if (!ol_check_ok(t, name, answer, what)) {
        return;
    }
    naive_rng got = ask_rng_of(t, name, answer);
    ol_check_u64(t, name, got.state, want.state, what);
    ol_check_u64(t, name, got.inc, want.inc, what);
}

static void check_id(ol_test *t, const char *name, const naive_input *in, uint32_t want,
                     const char *what) {
    const json_t *answer = ask_sample(t, in, start_rng());
    if (ol_check_ok(t, name, answer, what)) {
        ol_check_int(t, name, ol_int(t, answer, "id"), want, what);
    }
}

/* The check `name`: refused as INVALID, naming `terms`; and the generator is as it was, also where
 * the engine went on wrongly. */
static void check_invalid(ol_test *t, const char *name, const naive_input *in, const char *terms,
                          const char *what) {
    const json_t *answer = ask_sample(t, in, start_rng());
    ol_check_refused(t, name, answer, "INVALID", terms, -1, what);
    naive_rng got = ask_rng_of(t, "refusal_takes_none", answer);
    ol_check_u64(t, "refusal_takes_none", got.state, start_rng().state, what);
    ol_check_u64(t, "refusal_takes_none", got.inc, start_rng().inc, what);
}

static void check_valid(ol_test *t, const char *name, const naive_input *in, const char *what) {
    (void)ol_check_ok(t, name, ask_sample(t, in, start_rng()), what);
}

/* ------------------------------------------------------------------ draws */

/* Combination i of 16: top-k, top-p, min-p and penalties on or off. */
static naive_input combination(unsigned i) {
    naive_input in = plain();
    in.params.top_k = (i & 1u) != 0 ? 2 : 0;
    in.params.top_p = (i & 2u) != 0 ? 0.7 : 1.0;
    in.params.min_p = (i & 4u) != 0 ? 0.3 : 0.0;
    if ((i & 8u) != 0) {
        in.prompt = plain_history;
        in.n_prompt = 2;
        in.output = plain_history;
        in.n_output = TEST_COUNT(plain_history);
        in.params.repetition = 1.5;
        in.params.presence = 0.25;
        in.params.frequency = 0.125;
    }
    return in;
}

static void part_counts(ol_test *t) {
    for (unsigned i = 0; i < 16; i++) {
        naive_input in = combination(i);
        const char *what = ol_text(t, "top-k %s, top-p %s, min-p %s, penalties %s",
                                   (i & 1u) != 0 ? "on" : "off", (i & 2u) != 0 ? "on" : "off",
                                   (i & 4u) != 0 ? "on" : "off", (i & 8u) != 0 ? "on" : "off");
        check_moves(t, "sampling_takes_one", &in, 2, what);
        in.params.temperature = 0.0;
        check_moves(t, "greedy_takes_none", &in, 0, what);
    }
}

static void part_one_candidate(ol_test *t) {
    static const float masked[] = {-INFINITY, 1.0f, -INFINITY};
    naive_input in = plain();
    in.params.top_k = 1;
    check_moves(t, "one_candidate_takes_one", &in, 2, "k = 1");
    in = plain();
    in.params.top_p = 0.0;
    check_moves(t, "one_candidate_takes_one", &in, 2, "p = 0");
    in = plain();
    in.params.min_p = 1.0;
    check_moves(t, "one_candidate_takes_one", &in, 2, "m = 1");
    in = plain();
    in.n = 1;
    check_moves(t, "one_candidate_takes_one", &in, 2, "a vocabulary of one id");
    in = plain();
    in.x = masked;
    in.n = TEST_COUNT(masked);
    check_moves(t, "one_candidate_takes_one", &in, 2, "all ids but one masked");
}

/* ------------------------------------------------------------------ ties, greedy */

static void part_greedy(ol_test *t) {
    static const float tie[] = {1.0f, 3.0f, 2.0f, 3.0f, 3.0f};
    static const float minus_first[] = {-1.0f, -0.0f, 0.0f};
    static const float plus_first[] = {-1.0f, 0.0f, -0.0f};
    static const float all_masked_but[] = {-INFINITY, -INFINITY, -5.0f};
    naive_input in = {.x = tie, .n = TEST_COUNT(tie), .params = naive_params_off()};
    in.params.temperature = 0.0;
    check_id(t, "greedy_tie", &in, 1, "[1, 3, 2, 3, 3], greedy");
    in.n = 3;
    in.x = minus_first;
    check_id(t, "greedy_tie", &in, 1, "[-1, -0, +0], greedy");
    in.x = plus_first;
    check_id(t, "greedy_tie", &in, 1, "[-1, +0, -0], greedy");
    in.x = all_masked_but;
    check_id(t, "greedy_tie", &in, 2, "[-inf, -inf, -5], greedy");
}

/* Raw, id 1 leads; penalised, id 0 does. The filters of the second call would leave the raw leader
 * alone. */
static void part_greedy_penalties(ol_test *t) {
    static const float x[] = {2.0f, 3.0f, 1.0f};
    static const uint32_t output[] = {1, 1};
    naive_input in = {.x = x,
                      .n = TEST_COUNT(x),
                      .params = naive_params_off(),
                      .output = output,
                      .n_output = TEST_COUNT(output)};
    in.params.temperature = 0.0;
    in.params.frequency = 0.75;
    check_id(t, "greedy_after_penalties", &in, 0, "[2, 3 - 1.5, 1], greedy");
    in.params.top_k = 1;
    in.params.top_p = 0.0;
    in.params.min_p = 1.0;
    check_id(t, "greedy_after_penalties", &in, 0, "the same with k = 1, p = 0, m = 1");
}

static void part_k_one(ol_test *t) {
    static const float tie[] = {1.0f, 3.0f, 3.0f, 3.0f};
    static const uint32_t want[] = {1};
    naive_input in = {.x = tie, .n = TEST_COUNT(tie), .params = naive_params_off()};
    in.params.top_k = 1;
    check_kept(t, "k_one_tie", &in, want, 1, "ids of [1, 3, 3, 3] with k = 1, for every u");
}

/* ------------------------------------------------------------------ refused logits */

static void check_logit(ol_test *t, float bad, size_t at, double temperature, const char *name) {
    float x[TEST_COUNT(plain_x)];
    for (size_t i = 0; i < TEST_COUNT(plain_x); i++) {
        x[i] = i == at ? bad : plain_x[i];
    }
    naive_input in = plain();
    in.x = x;
    in.params.temperature = temperature;
    check_invalid(t, "refused_logits", &in,
                  ol_text(t, OL_TERMS("logits|logit %zu %g"), at, (double)bad),
                  ol_text(t, "%s at index %zu of 5, T = %g", name, at, temperature));
    x[at] = -INFINITY;
    check_valid(t, "refused_logits", &in,
                ol_text(t, "-inf at index %zu of 5, T = %g", at, temperature));
}

/* Whatever is looked at several at a time has an end. */
static void check_last_logit(ol_test *t) {
    enum { LONGEST = 40 };
    float x[LONGEST];
    for (size_t n = 1; n <= LONGEST; n++) {
        for (size_t i = 0; i < n; i++) {
            x[i] = i + 1 == n ? NAN : 1.0f;
        }
        naive_input in = {.x = x, .n = n, .params = naive_params_off()};
        check_invalid(t, "refused_logits", &in,
                      ol_text(t, OL_TERMS("logits|logit %zu %g"), n - 1, (double)NAN),
                      ol_text(t, "NaN at the end of %zu logits", n));
    }
}

static void part_logits(ol_test *t) {
    static const float masked[] = {-INFINITY, -INFINITY, -INFINITY};
    for (int greedy = 0; greedy < 2; greedy++) {
        double temperature = greedy != 0 ? 0.0 : 1.0;
        for (size_t at = 0; at < TEST_COUNT(plain_x); at++) {
            check_logit(t, NAN, at, temperature, "NaN");
            check_logit(t, INFINITY, at, temperature, "+inf");
        }
        naive_input in = {.x = masked, .n = TEST_COUNT(masked), .params = naive_params_off()};
        in.params.temperature = temperature;
        check_invalid(t, "refused_logits", &in, OL_TERMS("logits|logit"),
                      "three masked logits and no other");
        in.n = 0;
        in.x = NULL;
        check_invalid(t, "refused_logits", &in, OL_TERMS("vocab|n_logits|logits 0|no"),
                      "no logit at all");
    }
    check_last_logit(t);
}

/* ------------------------------------------------------------------ refused parameters */

/* One parameter's values: illegal ones and their nearest legal neighbours. */
typedef struct range {
    const char *name;
    const char *limits; /* what else a refusal must name */
    size_t offset;      /* of the member in naive_params */
    double bad[6];
    size_t n_bad;
    double good[4];
    size_t n_good;
} range;

#define MEMBER(name) offsetof(naive_params, name)

static void check_value(ol_test *t, const range *r, double value, bool legal, bool greedy) {
    naive_input in = plain();
    /* With T itself under test there is no greedy twin. */
    in.params.temperature = greedy ? 0.0 : 1.0;
    *(double *)(void *)((char *)&in.params + r->offset) = value;
    const char *what =
        ol_text(t, "%s = %.17g%s", r->name, value, greedy ? " with T = 0" : " with T = 1");
    if (legal) {
        check_valid(t, "refused_parameters", &in, what);
    } else {
        check_invalid(t, "refused_parameters", &in,
                      ol_text(t, OL_TERMS("%s %.17g %s"), r->name, value, r->limits), what);
    }
}

static void check_range(ol_test *t, const range *r, bool greedy) {
    for (size_t i = 0; i < r->n_bad; i++) {
        check_value(t, r, r->bad[i], false, greedy);
    }
    for (size_t i = 0; i < r->n_good; i++) {
        check_value(t, r, r->good[i], true, greedy);
    }
}

static void part_parameters(ol_test *t) {
    const double least = 0x1p-1074; /* the smallest number above 0 */
    const double nan = (double)NAN;
    const double inf = (double)INFINITY;
    const range temperature = {"temperature",
                               OL_TERMS("1e-5"),
                               MEMBER(temperature),
                               {nextafter(1e-5, 0.0), least, -1.0, nan, inf, -inf},
                               6,
                               {0.0, 1e-5, 100.0},
                               3};
    /* clang-format off */
    const range ranges[] = {
        {"top_p", OL_TERMS("0 1"), MEMBER(top_p), {-least, nextafter(1.0, 2.0), nan, inf, -inf}, 5,
         {0.0, least, 1.0}, 3},
        {"min_p", OL_TERMS("0 1"), MEMBER(min_p), {-least, nextafter(1.0, 2.0), nan, inf, -inf}, 5,
         {0.0, least, 1.0}, 3},
        {"repetition_penalty", OL_TERMS("0"), MEMBER(repetition),
         {0.0, -least, -1.0, nan, inf, -inf}, 6,
         {least, DBL_MAX, 1.0}, 3},
        {"presence_penalty", "", MEMBER(presence),
         {nan, inf, -inf}, 3, {DBL_MAX, -DBL_MAX, 0.0}, 3},
        {"frequency_penalty", "", MEMBER(frequency),
         {nan, inf, -inf}, 3, {DBL_MAX, -DBL_MAX, 0.0}, 3},
    };
    /* clang-format on */
    check_range(t, &temperature, false);
    for (size_t i = 0; i < TEST_COUNT(ranges); i++) {
        check_range(t, &ranges[i], false);
        check_range(t, &ranges[i], true);
    }
    naive_input in = plain();
    in.params.top_k = UINT64_C(1) << 52;
    check_valid(t, "refused_parameters", &in, "top_k = 2^52: any count is legal");
    const naive_input off = plain();
    in.params.top_k = (UINT64_C(1) << 32) + 1;
    check_same_answers(t, "refused_parameters", &in, &off, "top_k = 2^32 + 1, beside none");
}

/* ------------------------------------------------------------------ refused history, overflow */

static void part_history(ol_test *t) {
    enum { V = TEST_COUNT(plain_x) };
    static const uint32_t past[] = {V, V + 1, UINT32_MAX, 0x80000000u};
    for (size_t i = 0; i < TEST_COUNT(past); i++) {
        for (size_t at = 0; at < 3; at++) {
            for (int side = 0; side < 4; side++) {
                uint32_t ids[] = {0, V - 1, V - 2};
                const bool in_prompt = side < 2;
                naive_input in = plain();
                in.params.temperature = side % 2 != 0 ? 0.0 : 1.0;
                *(in_prompt ? &in.prompt : &in.output) = ids;
                *(in_prompt ? &in.n_prompt : &in.n_output) = TEST_COUNT(ids);
                check_valid(t, "refused_history", &in, "ids 0, 4 and 3 of a vocabulary of 5");
                ids[at] = past[i];
                const char *place = ol_text(t, "%s[%zu]", in_prompt ? "prompt" : "output", at);
                check_invalid(
                    t, "refused_history", &in,
                    ol_text(t, OL_TERMS("%s %zu %u 5|4"),
                            in_prompt ? OL_TERMS("prompt") : OL_TERMS("output"), at,
                            (unsigned)past[i]),
                    ol_text(t, "%s is %u, the vocabulary has 5", place, (unsigned)past[i]));
            }
        }
    }
}

/* Finite input on its way out of the numbers; where `legal`, the neighbour that stays. */
typedef struct overflow {
    const char *what;
    float x[2];
    size_t n;
    uint32_t output[2]; /* ids of the history */
    size_t n_output;
    double temperature, repetition, presence, frequency;
    bool legal;
    const char *terms; /* of the refusal */
} overflow;

#define PENALTIES                                                                                  \
    OL_TERMS("penalties|penalty|repetition_penalty|presence_penalty|frequency_penalty")
#define TEMPERATURE OL_TERMS("temperature 1e-5")

/* clang-format off */
static const overflow overflows[] = {
    {"3e38 / 1e-300", {3e38f, 0}, 2, {0}, 1, 1, 1e-300, 0, 0, false, PENALTIES},
    {"-3e38 x 1e-300 is small", {-3e38f, 0}, 2, {0}, 1, 1, 1e-300, 0, 0, true, NULL},
    {"-3e38 x 1e300, another is finite", {-3e38f, 0}, 2, {0}, 1, 1, 1e300, 0, 0, true, NULL},
    {"-3e38 x 1e300, no other is finite",
     {-3e38f, 0}, 1, {0}, 1, 1, 1e300, 0, 0, false, PENALTIES},
    {"0 + twice 1e308", {0, 0}, 2, {0, 0}, 2, 1, 1, 0, -1e308, false, PENALTIES},
    {"0 + once 1e308", {0, 0}, 2, {0}, 1, 1, 1, 0, -1e308, true, NULL},
    {"0 + (1e308 + 1e308)", {0, 0}, 2, {0}, 1, 1, 1, -1e308, -1e308, false, PENALTIES},
    {"0 + (1e308 + 1e308), and id 1", {0, 0}, 2, {0, 1}, 2, 1, 1, -1e308, -1e308, false, PENALTIES},
    {"1 / 2 and 2 / 2, after that", {1, 2}, 2, {0, 1}, 2, 1, 2, 0, 0, true, NULL},
    {"0 - twice 1e308, another is finite", {0, 0}, 2, {0, 0}, 2, 1, 1, 0, 1e308, true, NULL},
    {"0 - twice 1e308, no other is finite",
     {0, 0}, 1, {0, 0}, 2, 1, 1, 0, 1e308, false, PENALTIES},
    {"-inf + inf", {-INFINITY, 0}, 2, {0, 0}, 2, 1, 1, 0, -1e308, false, PENALTIES},
    {"0 + (twice 1e308 - 1e308)", {0, 0}, 2, {0, 0}, 2, 1, 1, 1e308, -1e308, false, PENALTIES},
    {"1e308 / 1e-5", {0, 0}, 2, {0}, 1, 1e-5, 1, -1e308, 0, false, TEMPERATURE},
    {"1e308, greedy", {0, 0}, 2, {0}, 1, 0, 1, -1e308, 0, true, NULL},
    {"1e308 / 1", {0, 0}, 2, {0}, 1, 1, 1, -1e308, 0, true, NULL},
    {"-1e308 / 1e-5", {0, 0}, 2, {0}, 1, 1e-5, 1, 1e308, 0, false, TEMPERATURE},
    {"-1e308 / 1", {0, 0}, 2, {0}, 1, 1, 1, 1e308, 0, true, NULL},
    {"-inf / 1e-5 stays masked", {-INFINITY, 0}, 2, {0}, 0, 1e-5, 1, 0, 0, true, NULL},
};
/* clang-format on */

static void part_overflow(ol_test *t) {
    for (size_t i = 0; i < TEST_COUNT(overflows); i++) {
        const overflow *o = &overflows[i];
        naive_input in = {.x = o->x,
                          .n = o->n,
                          .params = naive_params_off(),
                          .output = o->output,
                          .n_output = o->n_output};
        in.params.temperature = o->temperature;
        in.params.repetition = o->repetition;
        in.params.presence = o->presence;
        in.params.frequency = o->frequency;
        if (o->legal) {
            check_valid(t, "refused_overflow", &in, o->what);
        } else {
            check_invalid(t, "refused_overflow", &in, o->terms, o->what);
        }
    }
}

void test_greedy_takes_no_draw_and_sampling_takes_one(ol_test *t) {
    static const test_part parts[] = {
        {"counts", part_counts},         {"one-candidate", part_one_candidate},
        {"greedy", part_greedy},         {"greedy-penalties", part_greedy_penalties},
        {"k-one", part_k_one},           {"logits", part_logits},
        {"parameters", part_parameters}, {"history", part_history},
        {"overflow", part_overflow}};
    test_run_parts(t, parts, TEST_COUNT(parts));
    test_c_arguments(t, "sample");
}
