/* test_sample_nucleus.c: which ids the filters keep, at their edges.
 *
 * Property: the nucleus ends with the id that reaches p, masses are f64 sums from left to right
 * over what top-k kept, and the draw is renormalised. Masses of one half and one quarter are exact
 * (exp(0) = 1), so no libm takes part in most of it. Kills s04 (> for >=).
 *
 * Source: conformance/spec/sampling.md, clauses 8, 9, 10. */
#include "sampler_ask.h"

#include <math.h>

#define P_BELOW_ONE (1.0 - 0x1p-53) /* the largest p that does not turn the nucleus off */

static const float zeros[256];
static const uint32_t ascending[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

/* n equal logits with this p: the first n_want ids are kept. */
static void check_equal(ol_test *t, const char *name, size_t n, double p, size_t n_want) {
    naive_input in = {.x = zeros, .n = n, .params = naive_params_off()};
    in.params.top_p = p;
    check_kept(t, name, &in, ascending, n_want,
               ol_text(t, "ids of %zu equal logits, p = %.17g", n, p));
}

static void part_exact(ol_test *t) {
    check_equal(t, "exact_half", 2, 0.5, 1);
    check_equal(t, "exact_quarters", 4, 0.25, 1);
    check_equal(t, "exact_quarters", 4, 0.5, 2);
    check_equal(t, "exact_quarters", 4, 0.75, 3);
}

static void part_crossing(ol_test *t) {
    check_equal(t, "crossing_kept", 4, 0.3, 2);
    check_equal(t, "crossing_kept", 4, nextafter(0.25, 1.0), 2);
    check_equal(t, "crossing_kept", 4, nextafter(0.5, 1.0), 3);
    check_equal(t, "crossing_kept", 4, nextafter(0.5, 0.0), 2);
    check_equal(t, "crossing_kept", 4, 0.9, 4);
    check_equal(t, "crossing_kept", 2, 0.25, 1);
}

/* At p = 1 there is no walk, which could end too late, or too early: in [-40, 0] the second id
 * alone sums to 1. */
static void part_ten(ol_test *t) {
    static const float far[] = {-40.0f, 0.0f};
    check_equal(t, "ten_equal_keep_nine", 10, 0.8, 9);
    check_equal(t, "p_one_keeps_all", 10, 1.0, 10);
    naive_input in = {.x = far, .n = TEST_COUNT(far), .params = naive_params_off()};
    check_kept(t, "p_one_keeps_all", &in, ascending, 2, "ids of [-40, 0], p = 1");
}

/* Find a count whose shares sum to less than the largest p below 1; then no id reaches it. */
static void part_unreached(ol_test *t) {
    size_t n = 2;
    double c = 1.0;
    for (; n < TEST_COUNT(zeros); n++) {
        c = 0.0;
        for (size_t i = 0; i < n; i++) {
            c = c + 1.0 / (double)n;
        }
        if (c < P_BELOW_ONE) {
            break;
        }
    }
    uint32_t want[TEST_COUNT(zeros)];
    for (uint32_t i = 0; i < n; i++) {
        want[i] = i;
    }
    naive_input in = {.x = zeros, .n = n, .params = naive_params_off()};
    in.params.top_p = P_BELOW_ONE;
    check_kept(t, "unreached_keeps_all", &in, want, n,
               ol_text(t, "ids of %zu equal logits, whose mass sums to %.17g", n, c));
}

static void part_order(ol_test *t) {
    static const float x[] = {1, 3, 2, 3};
    static const float equal[] = {1, 2, 2, 2};
    static const uint32_t first[] = {1};
    static const uint32_t lower_two[] = {1, 2};
    naive_input in = {.x = x, .n = TEST_COUNT(x), .params = naive_params_off()};
    in.params.top_p = 0.0;
    check_kept(t, "p_zero_keeps_one", &in, first, 1, "ids of [1, 3, 2, 3], p = 0");
    in.x = equal;
    in.params.top_p = 0.4;
    check_kept(t, "equal_mass_by_id", &in, lower_two, TEST_COUNT(lower_two),
               "ids of [1, 2, 2, 2], p = 0.4");
}

/* A p that is hardly above 0, or hardly below 1, is what it is. */
static void part_near_ends(ol_test *t) {
    enum { MANY = 131072 };
    static const float steep[] = {-16.0f, 0.0f, -40.0f};
    static const uint32_t top[] = {1};
    naive_input in = {.x = steep, .n = TEST_COUNT(steep), .params = naive_params_off()};
    in.params.top_p = 0.9999995;
    check_kept(t, "crossing_kept", &in, top, 1, "ids of [-16, 0, -40], p = 0.9999995");
    in.params.top_p = 0.9999999;
    check_kept(t, "crossing_kept", &in, ascending, 2, "ids of [-16, 0, -40], p = 0.9999999");
    const uint64_t *grid = ask_grid(t, 3);
    static const uint32_t want[3] = {0};
    in.x = ol_alloc(t, MANY * sizeof *in.x);
    in.n = MANY;
    in.params.top_p = 1e-6;
    const json_t *answer = ask_sweep(t, &in, grid, 3);
    const char *what = "ids of 131,072 equal logits, p = 1e-6";
    if (ol_check_ok(t, "crossing_kept", answer, what)) {
        size_t n = 0;
        const uint32_t *ids = ol_res_u32s(t, answer, "ids", &n);
        ol_check_u32s(t, "crossing_kept", ids, n, want, 3, what);
    }
}

/* Of four quarters top-k keeps two, which are halves then. */
static void part_after_top_k(ol_test *t) {
    naive_input in = {.x = zeros, .n = 4, .params = naive_params_off()};
    in.params.top_k = 2;
    in.params.top_p = 0.5;
    check_kept(t, "mass_after_top_k", &in, ascending, 1,
               "ids of four equal logits, k = 2, p = 0.5");
    in.params.top_p = nextafter(0.5, 1.0);
    check_kept(t, "mass_after_top_k", &in, ascending, 2,
               "ids of four equal logits, k = 2, p just above 0.5");
}

/* ------------------------------------------------------------------ min-p */

static void part_min_p_edge(ol_test *t) {
    enum { N = 2, TRIES = 1000 };
    static const uint32_t both[] = {0, 1};
    float x[N] = {0};
    naive_input in = {.x = x, .n = N, .params = naive_params_off()};
    double m = 0.0;
    /* A gap where some m times the largest q is the other q exactly, and the next m is above it. */
    for (int i = 1; i < TRIES; i++) {
        x[1] = -(float)i / 128.0f;
        naive_result r = naive_sample(t, &in);
        m = r.q[1] / r.q[0];
        if (m * r.q[0] == r.q[1] && nextafter(m, 1.0) * r.q[0] > r.q[1]) {
            break;
        }
    }
    in.params.min_p = m;
    check_kept(t, "min_p_edge", &in, both, 2, "ids where m x the largest q is the other q");
    in.params.min_p = nextafter(m, 1.0);
    check_kept(t, "min_p_edge", &in, both, 1, "ids where m is one step larger");
    in.x = zeros;
    in.n = 4;
    in.params.min_p = 1.0;
    check_kept(t, "min_p_edge", &in, ascending, 4, "ids of four equal logits, m = 1");
}

/* Does the last kept id pass min-p, by masses that are normalised over the ids in `over`? */
static bool passes(const naive_result *r, const bool *over, size_t id, double m) {
    double sum = 0.0;
    for (size_t i = 0; i < r->n; i++) {
        if (over[i]) {
            sum = sum + exp(r->t[i] - r->t[r->order[0]]);
        }
    }
    double top = 1.0 / sum;
    double mass = exp(r->t[id] - r->t[r->order[0]]) / sum;
    return mass >= m * top;
}

/* Draw until the masses of step 8 decide otherwise than masses over all ids, and than masses over
 * the nucleus alone: the three differ by rounding only, at an m that sits on the edge. */
static bool find_min_p_case(ol_test *t, naive_input *in, float *x, bool *keeps) {
    enum { N = 8, TRIES = 4000 };
    bool all[N];
    for (size_t i = 0; i < N; i++) {
        all[i] = true;
    }
    for (int i = 0; i < TRIES; i++) {
        for (size_t j = 0; j < N; j++) {
            x[j] = ol_rand_normal(t);
        }
        *in = (naive_input){.x = x, .n = N, .params = naive_params_off()};
        in->params.top_k = 6;
        in->params.top_p = 0.8;
        naive_result r = naive_sample(t, in);
        size_t last = r.order[1];
        for (size_t j = 2; j < N && r.kept[r.order[j]]; j++) {
            last = r.order[j];
        }
        double m = r.q[last] / r.q[r.order[0]];
        for (int step = 0; step < 2 && r.kept[last]; step++) {
            *keeps = r.q[last] >= m * r.q[r.order[0]];
            if (passes(&r, all, last, m) != *keeps && passes(&r, r.kept, last, m) != *keeps) {
                in->params.min_p = m;
                return true;
            }
            m = nextafter(m, 1.0);
        }
    }
    return false;
}

static void part_min_p_mass(ol_test *t) {
    float x[8];
    naive_input in;
    bool keeps = false;
    if (!ol_check(t, "min_p_uses_top_k_mass", find_min_p_case(t, &in, x, &keeps),
                  "the judge found no case in 4,000 draws")) {
        return;
    }
    check_walk(t, "min_p_uses_top_k_mass", &in,
               keeps ? "ids where only the q of step 8 keep the last of the nucleus"
                     : "ids where only the q of step 8 drop the last of the nucleus");
}

static void part_renormalise(ol_test *t) {
    static const float x[] = {0.0f, 1.0f, 0.5f, -1.0f, 1.5f};
    naive_input in = {.x = zeros, .n = 4, .params = naive_params_off()};
    in.params.top_p = 0.5;
    check_walk(t, "draw_renormalises", &in, "ids at the borders of two halves, from four quarters");
    in.x = x;
    in.n = TEST_COUNT(x);
    in.params.top_p = 0.7;
    check_walk(t, "draw_renormalises", &in, "ids at the borders of [0, 1, 0.5, -1, 1.5], p = 0.7");
    in.params.top_p = 1.0;
    in.params.top_k = 3;
    in.params.min_p = 0.4;
    check_walk(t, "draw_renormalises", &in, "ids at the borders of the same, k = 3, m = 0.4");
}

void test_top_p_keeps_the_crossing_token(ol_test *t) {
    static const test_part parts[] = {{"exact", part_exact},
                                      {"crossing", part_crossing},
                                      {"ten", part_ten},
                                      {"unreached", part_unreached},
                                      {"order", part_order},
                                      {"near-ends", part_near_ends},
                                      {"after-top-k", part_after_top_k},
                                      {"min-p-edge", part_min_p_edge},
                                      {"min-p-mass", part_min_p_mass},
                                      {"renormalise", part_renormalise}};
    test_run_parts(t, parts, TEST_COUNT(parts));
}
