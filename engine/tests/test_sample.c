/* tl_sample on the worked example and the traps of its page, each with the page's own numbers;
 * the draws that it takes; and every refusal. test_sample_drawn.c holds the comparison with a
 * slow implementation.
 *
 * Source: conformance/spec/sampling.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tl/sample.h"

/* ---- what the page works out ----------------------------------------------------------------- */

/* A state whose output is `output`: its rotation is 0, and bit i + 27 of (s >> 18) ^ s is bit i. */
static uint64_t state_for(uint32_t output) {
    uint64_t s = 0;
    for (unsigned bit = 58; bit >= 27; bit--) {
        const uint64_t wanted = output >> (bit - 27) & 1u;
        s |= (wanted ^ (s >> (bit + 18 < 64 ? bit + 18 : 63) & 1u)) << bit;
    }
    return s;
}

/* A generator whose next uniform is k * 2^-53. The increment leads from the state of the first
 * output to that of the second, of which bit 0 is free, so that it can be made odd. */
static tl_pcg32 generator_for(uint64_t k) {
    const uint64_t first = state_for((uint32_t)(k >> 26) << 5);
    const uint64_t second = state_for((uint32_t)(k & 0x3ffffff) << 6) | 1u;
    const tl_pcg32 rng = {first, second - first * UINT64_C(6364136223846793005)};
    tl_pcg32 copy = rng;
    assert_true((rng.inc & 1u) == 1 && tl_pcg32_uniform_f64(&copy) == (double)k * 0x1p-53);
    return rng;
}

static uint32_t sample_at(const float *x, size_t v, const tl_sampling_params *p, uint64_t k) {
    tl_pcg32 rng = generator_for(k);
    tl_sampler *s = NULL;
    uint32_t id = 0;
    double logprob = 0.0;
    assert_int_equal(tl_sampler_new(&s, v, NULL), TL_OK);
    assert_int_equal(tl_sample(s, x, v, p, NULL, 0, NULL, 0, &rng, &id, &logprob, NULL), TL_OK);
    tl_sampler_free(s);
    return id;
}

#define LAST_K (UINT64_C(0x1fffffffffffff)) /* u = 1 - 2^-53 */

/* Bit i is set when some u gives id i. */
static unsigned kept_ids(const float *x, size_t v, const tl_sampling_params *p) {
    unsigned kept = 0;
    for (uint64_t i = 0; i <= 100; i++) {
        kept |= 1u << sample_at(x, v, p, LAST_K / 100 * i);
    }
    return kept;
}

static void worked_example(void **state) {
    (void)state;
    const float x[5] = {1, 3, 2, 3, -1};
    tl_sampling_params p = tl_sampling_params_default();
    p.top_k = 3;
    p.top_p = 0.8;
    tl_sampler *s = NULL;
    tl_pcg32 rng = tl_stream(0, TL_PURPOSE_SAMPLE);
    uint32_t id = 0;
    double logprob = 0.0;
    assert_int_equal(tl_sampler_new(&s, 5, NULL), TL_OK);
    assert_int_equal(tl_sample(s, x, 5, &p, NULL, 0, NULL, 0, &rng, &id, &logprob, NULL), TL_OK);
    assert_int_equal(id, 3);
    assert_true(fabs(logprob + 0.92487) < 5e-6);
    tl_sampler_free(s);
    assert_int_equal(kept_ids(x, 5, &p), 1u << 1 | 1u << 3);
    assert_int_equal(sample_at(x, 5, &p, LAST_K / 2), 1); /* the last u below one half */
    assert_int_equal(sample_at(x, 5, &p, LAST_K / 2 + 1), 3);
    p.top_p = 1.0;
    assert_int_equal(kept_ids(x, 5, &p), 1u << 1 | 1u << 2 | 1u << 3);
}

static void traps_of_the_page(void **state) {
    (void)state;
    float equal[10];
    for (size_t i = 0; i < 10; i++) {
        equal[i] = 0.5f;
    }
    tl_sampling_params p = tl_sampling_params_default();
    p.top_p = 0.8; /* eight additions of 0.1 stay below it */
    assert_int_equal(kept_ids(equal, 10, &p), 0x1ff);
    p.top_p = 1.0;
    assert_int_equal(kept_ids(equal, 10, &p), 0x3ff);
    p.top_p = 0.0;
    assert_int_equal(kept_ids(equal, 10, &p), 1);
    p = tl_sampling_params_default();
    p.top_k = 3;
    const float ties[5] = {1, 2, 2, 2, 3};
    assert_int_equal(kept_ids(ties, 5, &p), 1u << 1 | 1u << 2 | 1u << 4);
    p.top_k = 1;
    const float zeros[3] = {-0.0f, 0.0f, -0.0f};
    assert_int_equal(kept_ids(zeros, 3, &p), 1);
    p = tl_sampling_params_default();
    p.top_p = 0.5;
    const float halves[2] = {1, 1};
    assert_int_equal(kept_ids(halves, 2, &p), 1);
    p = tl_sampling_params_default();
    const float masked[3] = {-INFINITY, 1, -INFINITY};
    assert_int_equal(kept_ids(masked, 3, &p), 1u << 1);
}

static void edges_of_the_uniform(void **state) {
    (void)state;
    const tl_sampling_params p = tl_sampling_params_default();
    const float first_masked[4] = {-INFINITY, -INFINITY, 1, 1};
    assert_int_equal(sample_at(first_masked, 4, &p, 0), 2);
    float x[12];
    for (size_t i = 0; i < 12; i++) {
        x[i] = i < 10 ? 1.0f : -INFINITY;
    }
    /* Ten times 0.1 ends at 0.9999999999999999 = 1 - 2^-53, which is not above u. */
    assert_int_equal(sample_at(x, 10, &p, LAST_K), 9);
    assert_int_equal(sample_at(x, 12, &p, LAST_K), 9);
}

static void logprob_ignores_temperature_and_filters(void **state) {
    (void)state;
    const float x[6] = {0.25f, -1.5f, 7.0f, 6.5f, -INFINITY, 2.0f};
    static const double temperatures[4] = {0.0, 0.1, 1.0, 5.0};
    static const double fractions[3] = {0.0, 0.3, 0.8};
    tl_sampler *s = NULL;
    assert_int_equal(tl_sampler_new(&s, 6, NULL), TL_OK);
    double first = 0.0;
    for (size_t i = 0; i < 4 * 3; i++) {
        tl_sampling_params p = tl_sampling_params_default();
        p.temperature = temperatures[i % 4];
        p.top_k = 1; /* id 2 always */
        p.top_p = fractions[i / 4];
        p.min_p = fractions[i / 4];
        tl_pcg32 rng = tl_pcg32_new(i, 0);
        uint32_t id = 0;
        double logprob = 0.0;
        assert_int_equal(tl_sample(s, x, 6, &p, NULL, 0, NULL, 0, &rng, &id, &logprob, NULL),
                         TL_OK);
        first = i == 0 ? logprob : first;
        assert_int_equal(id, 2);
        assert_true(logprob == first);
    }
    tl_sampler_free(s);
}

/* Logit 1, r = 2, presence 2, one occurrence: -1.5; the other order of penalties gives -2. */
static void penalties_come_in_order(void **state) {
    (void)state;
    const float x[2] = {1.0f, -1.75f};
    const uint32_t output[1] = {0};
    tl_sampling_params p = tl_sampling_params_default();
    p.temperature = 0.0;
    p.repetition_penalty = 2.0;
    p.presence_penalty = 2.0;
    tl_pcg32 rng = tl_pcg32_new(0, 0);
    tl_sampler *s = NULL;
    uint32_t id = 9;
    double logprob = 0.0;
    assert_int_equal(tl_sampler_new(&s, 2, NULL), TL_OK);
    assert_int_equal(tl_sample(s, x, 2, &p, NULL, 0, output, 1, &rng, &id, &logprob, NULL), TL_OK);
    assert_int_equal(id, 0);
    assert_true(logprob == 0.0 - log(1.0 + exp(-0.25)));
    tl_sampler_free(s);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* One good call of three ids, in which a test breaks one thing. */
typedef struct arguments {
    tl_sampler *s;
    float x[3];
    const float *logits;
    size_t n_logits;
    tl_sampling_params params;
    const tl_sampling_params *p;
    uint32_t ids[2];
    const uint32_t *prompt;
    const uint32_t *output;
    tl_pcg32 rng;
    tl_pcg32 *r;
    uint32_t id;
    uint32_t *token;
    double lp;
    double *logprob;
} arguments;

static void good_arguments(arguments *a, tl_sampler *s) {
    *a = (arguments){.s = s, .x = {1, 2, 3}, .n_logits = 3, .id = 77, .lp = 77.0};
    a->logits = a->x;
    a->params = tl_sampling_params_default();
    a->p = &a->params;
    a->prompt = a->ids;
    a->output = a->ids;
    a->rng = tl_pcg32_new(3, 3);
    a->r = &a->rng;
    a->token = &a->id;
    a->logprob = &a->lp;
}

static tl_status run(arguments *a, tl_error *err) {
    return tl_sample(a->s, a->logits, a->n_logits, a->p, a->prompt, 2, a->output, 2, a->r, a->token,
                     a->logprob, err);
}

static void assert_refused(arguments *a, const char *subject) {
    const tl_pcg32 before = a->rng;
    tl_error err = {TL_OK, 0, ""};
    assert_int_equal(run(a, &err), TL_ERR_INVALID);
    assert_int_equal(run(a, NULL), TL_ERR_INVALID);
    assert_int_equal(err.status, TL_ERR_INVALID);
    assert_non_null(strstr(err.text, subject));
    assert_true(a->rng.state == before.state && a->rng.inc == before.inc);
    assert_true(a->id == 77 && a->lp == 77.0);
}

static void arguments_are_checked(void **state) {
    (void)state;
    tl_sampler *s = NULL;
    assert_int_equal(tl_sampler_new(&s, 3, NULL), TL_OK);
    arguments a;
#define REFUSED(subject, ...)                                                                      \
    do {                                                                                           \
        good_arguments(&a, s);                                                                     \
        __VA_ARGS__;                                                                               \
        assert_refused(&a, subject);                                                               \
    } while (0)
    REFUSED("sampler", a.s = NULL);
    REFUSED("logits", a.logits = NULL);
    REFUSED("params", a.p = NULL);
    REFUSED("rng", a.r = NULL);
    REFUSED("token", a.token = NULL);
    REFUSED("logprob", a.logprob = NULL);
    REFUSED("prompt", a.prompt = NULL);
    REFUSED("output", a.output = NULL);
    REFUSED("n_logits", a.n_logits = 2);
    REFUSED("n_logits", a.n_logits = 4);
    REFUSED("logits[1]", a.x[1] = NAN);
    REFUSED("logits[2]", a.x[2] = INFINITY);
    REFUSED("-infinity", a.x[0] = a.x[1] = a.x[2] = -INFINITY);
    REFUSED("prompt[1] is 3", a.ids[1] = 3);
    REFUSED("output[0] is 4294967295", a.output = (const uint32_t[]){UINT32_MAX, 0});
#undef REFUSED
    good_arguments(&a, s);
    assert_int_equal(run(&a, NULL), TL_OK);
    tl_sampler_free(s);
}

static void set_param(tl_sampling_params *p, size_t field, double value) {
    memcpy((char *)p + field, &value, sizeof value);
}

static const double never_valid[3] = {(double)NAN, (double)INFINITY, -(double)INFINITY};

static const struct {
    const char *name;
    size_t field;
    size_t n_refused; /* besides what is never valid */
    double refused[5];
    double accepted[3];
} rules[] = {
    {"temperature",
     offsetof(tl_sampling_params, temperature),
     5,
     {-1.0, 9.99999e-6, -1e-5, -5e-324, 5e-324},
     {1e-5, 1e308, -0.0}},
    {"top_p",
     offsetof(tl_sampling_params, top_p),
     3,
     {-5e-324, 1.0000000000000002, -1.0},
     {0.0, 1.0, -0.0}},
    {"min_p",
     offsetof(tl_sampling_params, min_p),
     3,
     {-5e-324, 1.0000000000000002, -1.0},
     {0.0, 1.0, -0.0}},
    {"repetition_penalty",
     offsetof(tl_sampling_params, repetition_penalty),
     4,
     {0.0, -0.0, -1.0, -5e-324},
     {1.0, 1e-3, 1e3}},
    {"presence_penalty",
     offsetof(tl_sampling_params, presence_penalty),
     0,
     {0.0},
     {-2.0, 0.0, 1e300}},
    {"frequency_penalty",
     offsetof(tl_sampling_params, frequency_penalty),
     0,
     {0.0},
     {-2.0, 0.0, 1e300}},
};

static void parameters_are_checked_also_when_greedy(void **state) {
    (void)state;
    tl_sampler *s = NULL;
    assert_int_equal(tl_sampler_new(&s, 3, NULL), TL_OK);
    for (size_t r = 0; r < 2 * sizeof rules / sizeof rules[0]; r++) {
        arguments a;
        for (size_t i = 0; i < rules[r / 2].n_refused + 3; i++) {
            good_arguments(&a, s);
            a.params.temperature = r % 2 == 0 ? 0.0 : 1.0;
            set_param(&a.params, rules[r / 2].field,
                      i < 3 ? never_valid[i] : rules[r / 2].refused[i - 3]);
            assert_refused(&a, rules[r / 2].name);
        }
        for (size_t i = 0; i < 3; i++) {
            good_arguments(&a, s);
            a.params.temperature = r % 2 == 0 ? 0.0 : 1.0;
            a.ids[1] = 1;
            set_param(&a.params, rules[r / 2].field, rules[r / 2].accepted[i]);
            assert_int_equal(run(&a, NULL), TL_OK);
        }
    }
    tl_sampler_free(s);
}

static void greedy_takes_no_draw_and_sampling_one(void **state) {
    (void)state;
    tl_sampler *s = NULL;
    assert_int_equal(tl_sampler_new(&s, 3, NULL), TL_OK);
    arguments a;
    for (size_t i = 0; i < 16; i++) {
        good_arguments(&a, s);
        a.params.top_k = (i & 1) != 0 ? 1 : 0;
        a.params.top_p = (i & 2) != 0 ? 0.0 : 1.0;
        a.params.min_p = (i & 4) != 0 ? 1.0 : 0.0;
        a.params.temperature = (i & 8) != 0 ? 0.0 : 1.0;
        tl_pcg32 expected = a.rng;
        if (a.params.temperature != 0.0) {
            (void)tl_pcg32_uniform_f64(&expected);
        }
        assert_int_equal(run(&a, NULL), TL_OK);
        assert_true(a.rng.state == expected.state && a.rng.inc == expected.inc);
    }
    tl_sampler_free(s);
}

static void constructor_is_checked(void **state) {
    (void)state;
    tl_error err = {TL_OK, 0, ""};
    arguments a;
    tl_sampler *s = (tl_sampler *)&a;
    assert_int_equal(tl_sampler_new(&s, 0, &err), TL_ERR_INVALID);
    assert_null(s);
    assert_int_equal(err.status, TL_ERR_INVALID);
    assert_int_equal(tl_sampler_new(NULL, 5, &err), TL_ERR_INVALID);
    s = (tl_sampler *)&a;
    assert_int_equal(tl_sampler_new(&s, SIZE_MAX, &err), TL_ERR_NOMEM);
    assert_null(s);
    tl_sampler_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worked_example),
        cmocka_unit_test(traps_of_the_page),
        cmocka_unit_test(edges_of_the_uniform),
        cmocka_unit_test(logprob_ignores_temperature_and_filters),
        cmocka_unit_test(penalties_come_in_order),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(parameters_are_checked_also_when_greedy),
        cmocka_unit_test(greedy_takes_no_draw_and_sampling_one),
        cmocka_unit_test(constructor_is_checked),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
