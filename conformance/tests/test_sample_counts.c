/* test_sample_counts.c: counting what is drawn.
 *
 * Property: 4,000 draws fall on four ids as 0.4, 0.3, 0.2 and 0.1 say. The seeds are fixed, also
 * with fresh inputs: a right engine's draws under them are known to lie inside the bound
 * (chi-square 16.27 is passed by 999 of 1,000 seeds), and new seeds would fail one right engine in
 * 1,000. One generator runs through all draws of a case.
 *
 * Source: conformance/spec/sampling.md, clause 11. */
#include "sampler_ask.h"

#include <math.h>

enum { DRAWS = 4000 };
#define SEED 20240501
#define OTHER_SEED 20240502
#define CHI_SQUARE_MAX 16.27 /* three degrees of freedom, one in 1,000 */

static const double shares[] = {0.4, 0.3, 0.2, 0.1};
/* The f32 nearest to ln(share): the shares move by less than 1e-7, which 4,000 draws cannot
 * tell. */
static const float four[] = {-0.9162907f, -1.2039728f, -1.6094379f, -2.3025851f};
static const float five[] = {-0.9162907f, -1.2039728f, -INFINITY, -1.6094379f, -2.3025851f};

/* 4,000 ids of one generator, or NULL after a failed check `name`. */
static const uint32_t *draw(ol_test *t, const char *name, const naive_input *in, uint64_t seed) {
    json_t *args = ask_args(in);
    (void)json_object_set_new(args, "rng", ask_rng_json(naive_rng_stream(seed, 4)));
    (void)json_object_set_new(args, "n", json_integer(DRAWS));
    const json_t *answer = ol_call_object(t, "sample_run", args);
    if (!ol_check_ok(t, name, answer, "4,000 draws")) {
        return NULL;
    }
    size_t n = 0;
    const uint32_t *ids = ol_res_u32s(t, answer, "ids", &n);
    return ol_check_int(t, name, (int64_t)n, DRAWS, "number of ids") ? ids : NULL;
}

static size_t count_of(const uint32_t *ids, uint32_t id) {
    size_t count = 0;
    for (size_t i = 0; i < DRAWS; i++) {
        count += ids[i] == id ? 1 : 0;
    }
    return count;
}

static naive_input input_of(const float *x, size_t n) {
    naive_input in = {.x = x, .n = n, .params = naive_params_off()};
    return in;
}

static void part_distribution(ol_test *t) {
    naive_input in = input_of(four, TEST_COUNT(four));
    const uint32_t *ids = draw(t, "chi_square", &in, SEED);
    if (ids == NULL) {
        return;
    }
    double chi_square = 0.0;
    size_t n_inside = 0;
    for (uint32_t id = 0; id < TEST_COUNT(four); id++) {
        double expected = DRAWS * shares[id];
        double off = (double)count_of(ids, id) - expected;
        chi_square += off * off / expected;
        n_inside += count_of(ids, id);
    }
    ol_check_int(t, "chi_square", (int64_t)n_inside, DRAWS, "draws that gave one of the four ids");
    ol_check(t, "chi_square", chi_square < CHI_SQUARE_MAX,
             "chi-square of 4,000 draws is %.3f, below %.2f is allowed", chi_square,
             CHI_SQUARE_MAX);
}

static void part_seeds(ol_test *t) {
    naive_input in = input_of(four, TEST_COUNT(four));
    const uint32_t *first = draw(t, "same_seed_repeats", &in, SEED);
    const uint32_t *again = draw(t, "same_seed_repeats", &in, SEED);
    if (first != NULL && again != NULL) {
        ol_check_u32s(t, "same_seed_repeats", again, DRAWS, first, DRAWS,
                      "ids of the second run with the same seed");
    }
    const uint32_t *other = draw(t, "other_seed_differs", &in, OTHER_SEED);
    if (first == NULL || other == NULL) {
        return;
    }
    size_t n_same = 0;
    for (size_t i = 0; i < DRAWS; i++) {
        n_same += first[i] == other[i] ? 1 : 0;
    }
    ol_check(t, "other_seed_differs", n_same < DRAWS, "two seeds gave the same 4,000 ids");
}

static void part_masked(ol_test *t) {
    naive_input in = input_of(five, TEST_COUNT(five));
    const uint32_t *ids = draw(t, "masked_never_drawn", &in, SEED);
    if (ids == NULL) {
        return;
    }
    ol_check_int(t, "masked_never_drawn", (int64_t)count_of(ids, 2), 0, "draws of the masked id");
    for (uint32_t id = 0; id < TEST_COUNT(five); id++) {
        if (id != 2) {
            ol_check(t, "masked_never_drawn", count_of(ids, id) > 0, "id %u was never drawn",
                     (unsigned)id);
        }
    }
}

static void part_filtered(ol_test *t) {
    naive_input in = input_of(four, TEST_COUNT(four));
    in.params.top_k = 3;
    const uint32_t *ids = draw(t, "filtered_never_drawn", &in, SEED);
    if (ids == NULL) {
        return;
    }
    size_t n_kept = 0;
    for (uint32_t id = 0; id < 3; id++) {
        size_t count = count_of(ids, id);
        n_kept += count;
        ol_check(t, "filtered_never_drawn", count > 0, "id %u of the kept three was never drawn",
                 (unsigned)id);
    }
    ol_check_int(t, "filtered_never_drawn", (int64_t)n_kept, DRAWS,
                 "draws that gave one of the three kept ids");
}

void test_seeded_sampling_matches_the_distribution(ol_test *t) {
    static const test_part parts[] = {{"distribution", part_distribution},
                                      {"seeds", part_seeds},
                                      {"masked", part_masked},
                                      {"filtered", part_filtered}};
    test_run_parts(t, parts, TEST_COUNT(parts));
}
