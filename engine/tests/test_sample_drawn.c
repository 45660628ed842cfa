/* tl_sample is the specification, bit for bit: for thousands of drawn and awkward inputs its id,
 * its f64 logprob and the generator after it equal those of a slow implementation below, which
 * keeps a flag for each id, sorts by selection and follows the page's text step by step; and a
 * vocabulary of real size equals a full sort.
 *
 * Source: conformance/spec/sampling.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tl/sample.h"

#define MAX_V 400
#define MAX_HISTORY 40
#define LARGE_V 49152
#define D_INFINITY ((double)INFINITY)

/* ---- one call, and its expected outcome ------------------------------------------------------ */

typedef struct call {
    size_t v;
    float x[MAX_V];
    tl_sampling_params params;
    uint32_t prompt[MAX_HISTORY];
    size_t n_prompt;
    uint32_t output[MAX_HISTORY];
    size_t n_output;
    tl_pcg32 rng;
} call;

typedef struct outcome {
    bool refused;
    uint32_t id;
    double logprob;
    tl_pcg32 rng;
} outcome;

static size_t count_of(const uint32_t *ids, size_t n, uint32_t id) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ids[i] == id ? 1 : 0;
    }
    return count;
}

/* Steps 1 to 3 for one id. */
static double reference_logit(const call *c, uint32_t id) {
    const tl_sampling_params *p = &c->params;
    double l = (double)c->x[id];
    const size_t in_output = count_of(c->output, c->n_output, id);
    if (in_output + count_of(c->prompt, c->n_prompt, id) > 0) {
        l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
    }
    if (in_output > 0) {
        const double frequency = p->frequency_penalty * (double)in_output;
        l = l - (frequency + p->presence_penalty);
    }
    return l;
}

/* order[r] = the id at place r, by selecting the best of the rest again and again. */
static void reference_order(const double *t, size_t v, size_t *order) {
    bool taken[MAX_V] = {false};
    for (size_t r = 0; r < v; r++) {
        size_t best = v;
        for (size_t i = 0; i < v; i++) {
            if (!taken[i] && (best == v || t[i] > t[best])) {
                best = i;
            }
        }
        taken[best] = true;
        order[r] = best;
    }
}

/* Steps 7 to 9. */
static void reference_filters(const call *c, const double *t, double top, bool *kept) {
    const tl_sampling_params *p = &c->params;
    size_t order[MAX_V];
    double q[MAX_V] = {0};
    reference_order(t, c->v, order);
    const size_t k = p->top_k == 0 || p->top_k >= c->v ? c->v : p->top_k;
    for (size_t r = 0; r < c->v; r++) {
        kept[order[r]] = r < k;
    }
    double z = 0.0;
    for (size_t i = 0; i < c->v; i++) {
        z = kept[i] ? z + exp(t[i] - top) : z;
    }
    for (size_t i = 0; i < c->v; i++) {
        q[i] = kept[i] ? exp(t[i] - top) / z : 0.0;
    }
    double sum = 0.0;
    bool reached = false;
    for (size_t r = 0; r < k && p->top_p != 1.0; r++) {
        kept[order[r]] = !reached;
        sum += q[order[r]];
        reached = reached || sum >= p->top_p;
    }
    double max_q = 0.0;
    for (size_t i = 0; i < c->v; i++) {
        max_q = kept[i] && q[i] > max_q ? q[i] : max_q;
    }
    for (size_t i = 0; i < c->v && p->min_p != 0.0; i++) {
        kept[i] = kept[i] && q[i] >= p->min_p * max_q;
    }
}

/* Steps 10 and 11. */
static size_t reference_draw(const call *c, const double *t, double top, const bool *kept,
                             tl_pcg32 *rng) {
    double z = 0.0;
    for (size_t i = 0; i < c->v; i++) {
        z = kept[i] ? z + exp(t[i] - top) : z;
    }
    const double u = tl_pcg32_uniform_f64(rng);
    double sum = 0.0;
    size_t last = c->v;
    for (size_t i = 0; i < c->v; i++) {
        const double p = kept[i] ? exp(t[i] - top) / z : 0.0;
        sum += p;
        if (kept[i] && u < sum) {
            return i;
        }
        last = p > 0.0 ? i : last;
    }
    return last;
}

static double largest(const double *values, size_t n) {
    double max = -D_INFINITY;
    for (size_t i = 0; i < n; i++) {
        max = values[i] > max ? values[i] : max;
    }
    return max;
}

/* Steps 4 to 11, over the l of steps 1 to 3. */
static outcome reference_choose(const call *c, const double *l) {
    outcome o = {.refused = false, .rng = c->rng};
    double t[MAX_V] = {0};
    bool kept[MAX_V];
    size_t id = 0;
    const double top = largest(l, c->v);
    if (c->params.temperature == 0.0) {
        while (l[id] != top) {
            id++;
        }
    } else {
        for (size_t i = 0; i < c->v; i++) {
            t[i] = l[i] / c->params.temperature;
            o.refused = o.refused || (isfinite(l[i]) && !isfinite(t[i]));
        }
        if (o.refused) {
            return o;
        }
        const double scaled_top = largest(t, c->v);
        reference_filters(c, t, scaled_top, kept);
        id = reference_draw(c, t, scaled_top, kept, &o.rng);
    }
    double z = 0.0;
    for (size_t i = 0; i < c->v; i++) {
        z += exp(l[i] - top);
    }
    o.id = (uint32_t)id;
    /* cppcheck-suppress invalidFunctionArg ; z is at least the top's own term, which is 1 */
    o.logprob = (l[id] - top) - log(z);
    return o;
}

static outcome reference_sample(const call *c) {
    double l[MAX_V] = {0};
    bool refused = false;
    for (size_t i = 0; i < c->v; i++) {
        l[i] = reference_logit(c, (uint32_t)i);
        refused = refused || isnan(l[i]) || l[i] == D_INFINITY;
    }
    if (refused || largest(l, c->v) == -D_INFINITY) {
        return (outcome){.refused = true, .rng = c->rng};
    }
    return reference_choose(c, l);
}

static uint64_t bits_of(double x) {
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void print_call(const call *c) {
    const tl_sampling_params *p = &c->params;
    print_error("V %zu, T %a, k %zu, p %a, m %a, r %a, a_p %a, a_f %a, prompt %zu, output %zu\n",
                c->v, p->temperature, p->top_k, p->top_p, p->min_p, p->repetition_penalty,
                p->presence_penalty, p->frequency_penalty, c->n_prompt, c->n_output);
    for (size_t i = 0; i < c->v && i < 32; i++) {
        print_error("%s%a", i == 0 ? "x = " : ", ", (double)c->x[i]);
    }
    print_error("\n");
}

/* The sampler may have seen other calls before, refused ones too: nothing of them may show. */
static bool check_call(tl_sampler *s, const call *c) {
    const outcome want = reference_sample(c);
    tl_pcg32 rng = c->rng;
    uint32_t id = 0xabcdef;
    double logprob = 12345.0;
    tl_error err = {TL_OK, 0, ""};
    const tl_status status = tl_sample(s, c->x, c->v, &c->params, c->prompt, c->n_prompt, c->output,
                                       c->n_output, &rng, &id, &logprob, &err);
    const bool refused = status == TL_ERR_INVALID && err.status == TL_ERR_INVALID;
    const bool untouched = id == 0xabcdef && logprob == 12345.0;
    const bool same_bits = bits_of(logprob) == bits_of(want.logprob);
    const bool right =
        want.refused ? refused && untouched : status == TL_OK && id == want.id && same_bits;
    if (!right || rng.state != want.rng.state || rng.inc != want.rng.inc) {
        print_call(c);
        print_error("got %s, %u, %a; want %s, %u, %a\n", tl_status_name(status), (unsigned)id,
                    logprob, want.refused ? "refused" : "a token", (unsigned)want.id, want.logprob);
        fail();
    }
    return want.refused;
}

/* ---- drawn calls ----------------------------------------------------------------------------- */

static size_t below(tl_pcg32 *rng, size_t n) {
    return tl_pcg32_next_u32(rng) % n;
}

static double pick(tl_pcg32 *rng, const double *values, size_t n) {
    return values[below(rng, n)];
}

#define PICK(rng, ...)                                                                             \
    pick(rng, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

/* A rough bell, sd 1. */
static double bell(tl_pcg32 *rng) {
    double sum = -6.0;
    for (int i = 0; i < 12; i++) {
        sum += tl_pcg32_uniform_f64(rng);
    }
    return sum;
}

/* Families that stress ties, masks, signed zeros, neighbours that share a t, and far outliers. */
static float draw_logit(tl_pcg32 *rng, size_t family) {
    const double x = bell(rng);
    switch (family) {
    case 0:
        return (float)(3.0 * x);
    case 1:
        return (float)x;
    case 2:
        return (float)floor(x); /* many ties, both zeros */
    case 3:
        return below(rng, 3) == 0 ? -INFINITY : (float)(2.0 * x);
    case 4:
        return below(rng, 2) == 0 ? 0.0f : -0.0f;
    case 5:
        return nextafterf(1.0f, x > 0 ? 2.0f : 0.0f);
    case 6:
        return (float)PICK(rng, 1.0, 30.0, -700.0, -1e30, 88.0, 1e-40, -1e-40);
    case 7:
        return (float)(x * PICK(rng, 1.0, 1e3, 1e10, 1e38));
    case 8:
        return below(rng, 2) == 0 ? (float)x : -3.4028235e38f; /* a mask that is finite */
    default:
        return 1.0f;
    }
}

static double draw_temperature(tl_pcg32 *rng) {
    const size_t kind = below(rng, 10);
    if (kind < 5) {
        return 0.05 + 2.0 * tl_pcg32_uniform_f64(rng);
    }
    return PICK(rng, 0.0, 1.0, 1e-5, 1e-3, 3.0, 100.0, 1e30, 1e308, -0.0);
}

static tl_sampling_params draw_params(tl_pcg32 *rng, size_t v) {
    tl_sampling_params p = tl_sampling_params_default();
    p.temperature = draw_temperature(rng);
    if (below(rng, 2) == 0) {
        p.top_k = below(rng, v + 3);
    }
    if (below(rng, 3) != 0) {
        p.top_p = below(rng, 3) == 0
                      ? PICK(rng, 0.0, 0.1, 0.25, 0.5, 0.8, 0.9999999999999999, 1.0, 5e-324)
                      : tl_pcg32_uniform_f64(rng);
    }
    if (below(rng, 3) == 0) {
        p.min_p =
            below(rng, 2) == 0 ? PICK(rng, 0.0, 1.0, 0.5, 1e-300) : tl_pcg32_uniform_f64(rng) * 0.2;
    }
    if (below(rng, 2) == 0) {
        p.repetition_penalty = PICK(rng, 1.1, 2.0, 0.5, 1e-300, 1e300, 1.0, 1.3);
        p.presence_penalty = PICK(rng, 0.0, 0.5, -0.5, 2.0, 1e308, -1e308, -0.0);
        p.frequency_penalty = PICK(rng, 0.0, 0.1, -0.3, 1.0, 1e308, -1e308, 0.7);
    }
    return p;
}

static void draw_call(tl_pcg32 *rng, size_t v, call *c) {
    const size_t family = below(rng, 10);
    c->v = v;
    for (size_t i = 0; i < v; i++) {
        c->x[i] = draw_logit(rng, family);
    }
    if (below(rng, 8) == 0) {
        c->x[below(rng, v)] = draw_logit(rng, 6);
    }
    c->x[below(rng, v)] = 1.0f; /* one finite at least */
    c->params = draw_params(rng, v);
    c->n_prompt = below(rng, 2) == 0 ? 0 : below(rng, MAX_HISTORY);
    c->n_output = below(rng, 2) == 0 ? 0 : below(rng, MAX_HISTORY);
    for (size_t i = 0; i < MAX_HISTORY; i++) {
        c->prompt[i] = (uint32_t)below(rng, v);
        c->output[i] = (uint32_t)below(rng, below(rng, 2) == 0 ? v : (v < 5 ? v : 5));
    }
    c->rng = tl_pcg32_new(tl_pcg32_next_u32(rng), tl_pcg32_next_u32(rng));
}

static void drawn_calls_match_the_slow_reference(void **state) {
    (void)state;
    static const struct {
        size_t v;
        size_t n_calls;
    } sizes[] = {{1, 2000},  {2, 4000},  {3, 4000},  {7, 8000},   {10, 8000},
                 {16, 4000}, {17, 4000}, {63, 3000}, {150, 1500}, {400, 400}};
    tl_pcg32 rng = tl_pcg32_new(20240607, 1);
    static call c;
    size_t n_refused = 0;
    size_t n_calls = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        tl_sampler *s = NULL;
        assert_int_equal(tl_sampler_new(&s, sizes[i].v, NULL), TL_OK);
        for (size_t n = 0; n < sizes[i].n_calls; n++) {
            draw_call(&rng, sizes[i].v, &c);
            n_refused += check_call(s, &c) ? 1 : 0;
            n_calls++;
        }
        tl_sampler_free(s);
    }
    /* Both outcomes must have been seen often, or the draw above is not worth its name. */
    assert_true(n_refused > n_calls / 100 && n_refused < n_calls / 3);
}

/* ---- a vocabulary of real size --------------------------------------------------------------- */

typedef struct ranked {
    double t;
    uint32_t id;
} ranked;

static int compare_ranked(const void *a, const void *b) {
    const ranked *x = a;
    const ranked *y = b;
    if (x->t != y->t) {
        return x->t > y->t ? -1 : 1;
    }
    return x->id < y->id ? -1 : 1;
}

/* The plain way for T and top-k or top-p alone, over a fully sorted vocabulary. */
static uint32_t plain_large(const float *x, const tl_sampling_params *p, tl_pcg32 *rng) {
    ranked *r = malloc(LARGE_V * sizeof *r);
    bool *kept = calloc(LARGE_V, sizeof *kept);
    assert_true(r != NULL && kept != NULL);
    for (size_t i = 0; i < LARGE_V; i++) {
        r[i] = (ranked){(double)x[i] / p->temperature, (uint32_t)i};
    }
    qsort(r, LARGE_V, sizeof *r, compare_ranked);
    const double top = r[0].t;
    double z = 0.0;
    for (size_t i = 0; i < LARGE_V; i++) {
        z += exp((double)x[i] / p->temperature - top);
    }
    double sum = 0.0;
    for (size_t i = 0; i < LARGE_V; i++) {
        const bool reached = p->top_p < 1.0 && sum >= p->top_p;
        kept[r[i].id] = !reached && (p->top_k == 0 || i < p->top_k);
        sum += exp(r[i].t - top) / z;
    }
    z = 0.0;
    for (size_t i = 0; i < LARGE_V; i++) {
        z += kept[i] ? exp((double)x[i] / p->temperature - top) : 0.0;
    }
    const double u = tl_pcg32_uniform_f64(rng);
    uint32_t id = 0;
    for (sum = 0.0; id < LARGE_V; id++) {
        sum += kept[id] ? exp((double)x[id] / p->temperature - top) / z : 0.0;
        if (u < sum) {
            break;
        }
    }
    free(r);
    free(kept);
    return id;
}

static float large_logit(tl_pcg32 *rng, size_t family) {
    const double x = bell(rng);
    switch (family) {
    case 0:
        return (float)(3.0 * x);
    case 1:
        return (float)(round(x * 8.0) / 8.0); /* ties across the vocabulary */
    case 2:
        return below(rng, 4) == 0 ? (float)x : -3.4028235e38f;
    case 3:
        return (float)exp(14.0 * x); /* spread over many magnitudes */
    default:
        return 0.75f;
    }
}

static void large_vocabulary_matches_a_full_sort(void **state) {
    (void)state;
    tl_sampler *s = NULL;
    float *x = malloc(LARGE_V * sizeof *x);
    assert_non_null(x);
    assert_int_equal(tl_sampler_new(&s, LARGE_V, NULL), TL_OK);
    tl_pcg32 rng = tl_pcg32_new(5, 5);
    for (size_t i = 0; i < 5 * 4; i++) {
        tl_sampling_params p = tl_sampling_params_default();
        p.temperature = PICK(&rng, 1.0, 0.7, 0.001, 2.0);
        p.top_k = i % 4 < 2 ? 1 + below(&rng, i % 4 == 0 ? 100 : LARGE_V) : 0;
        p.top_p = i % 4 < 2 ? 1.0 : PICK(&rng, 0.9, 0.3, 0.999);
        for (size_t j = 0; j < LARGE_V; j++) {
            x[j] = large_logit(&rng, i / 4);
        }
        tl_pcg32 a = tl_pcg32_new(i, 3);
        tl_pcg32 b = a;
        uint32_t id = 0;
        double logprob = 0.0;
        assert_int_equal(tl_sample(s, x, LARGE_V, &p, NULL, 0, NULL, 0, &a, &id, &logprob, NULL),
                         TL_OK);
        assert_int_equal(id, plain_large(x, &p, &b));
        assert_true(a.state == b.state);
    }
    free(x);
    tl_sampler_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_calls_match_the_slow_reference),
        cmocka_unit_test(large_vocabulary_matches_a_full_sort),
    };
    return cmocka_run_group_tests_name("sample_drawn", tests, NULL, NULL);
}
