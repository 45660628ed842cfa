/* test_sample_hand.c: the worked sampling example, number by number.
 *
 * Property: for x = [1, 3, 2, 3, -1], T = 1, k = 3, p = 0.8 and seed 0 the engine goes through the
 * numbers of the page: u, the kept ids, the token, its logprob. Kills s02, whose token is right and
 * whose u is not.
 *
 * Source: conformance/spec/sampling.md, clause example. */
#include "sampler_ask.h"

#define PURPOSE_SAMPLE 4
#define EXAMPLE_U 0x1.9aac30ff7d566p-1          /* 0.8020949661137535 */
#define EXAMPLE_LOGPROB (-0x1.d9880972a106fp-1) /* -0.9248660042217248 */

static const float example_x[] = {1, 3, 2, 3, -1};

static naive_input example(void) {
    naive_input in = {.x = example_x, .n = TEST_COUNT(example_x), .params = naive_params_off()};
    in.params.top_k = 3;
    in.params.top_p = 0.8;
    return in;
}

static const json_t *engine_stream(ol_test *t) {
    return ol_call(t, "stream", "{s:o, s:o}", "seed", ol_u64(0), "purpose", ol_u64(PURPOSE_SAMPLE));
}

static void part_uniform(ol_test *t) {
    naive_rng rng = ask_rng_of(t, "stream_u_bits", engine_stream(t));
    const json_t *answer =
        ol_call(t, "pcg32_uniform", "{s:o, s:i}", "rng", ask_rng_json(rng), "n", 1);
    if (!ol_check_ok(t, "stream_u_bits", answer, "pcg32_uniform")) {
        return;
    }
    size_t n = 0;
    const double *u = ol_res_f64s(t, answer, "values", &n);
    ol_check_f64s_bits(t, "stream_u_bits", u, n, &(double){EXAMPLE_U}, 1,
                       "the first uniform of stream(0, 4)");
}

/* The engine's own stream, so that the whole way from the seed to the token is walked. */
static void part_token(ol_test *t) {
    naive_input in = example();
    const json_t *answer = ask_sample(t, &in, ask_rng_of(t, "token", engine_stream(t)));
    bool ok = ol_check_ok(t, "token", answer, "the worked example");
    if (!ol_check_ok(t, "logprob_bits", answer, "the worked example") || !ok) {
        return;
    }
    ol_check_int(t, "token", ol_int(t, answer, "id"), 3, "the example's token");
    ol_check_f64_bits(t, "logprob_bits", ol_res_f64(t, answer, "logprob"), EXAMPLE_LOGPROB,
                      "the logprob of the example's token");
}

static void part_kept(ol_test *t) {
    static const uint32_t top_k[] = {1, 2, 3};
    static const uint32_t nucleus[] = {1, 3};
    naive_input in = example();
    check_kept(t, "kept_ids", &in, nucleus, TEST_COUNT(nucleus),
               "ids drawn with k = 3 and p = 0.8");
    in.params.top_p = 1.0;
    check_kept(t, "top_k_keeps_three", &in, top_k, TEST_COUNT(top_k),
               "ids drawn with k = 3 and the nucleus off");
}

/* p = 0.5 for each of ids 1 and 3, exactly: the walk leaves id 1 at u = 0.5 and not one step of
 * 2^-53 earlier. */
static void part_edge(ol_test *t) {
    static const uint32_t want[] = {1, 1, 3, 3};
    const uint64_t half = UINT64_C(1) << 52;
    const uint64_t u53s[] = {0, half - 1, half, NAIVE_U_LAST};
    naive_input in = example();
    const json_t *answer = ask_sweep(t, &in, u53s, TEST_COUNT(u53s));
    if (!ol_check_ok(t, "cdf_edges", answer, "the example at chosen u")) {
        return;
    }
    size_t n = 0;
    const uint32_t *ids = ol_res_u32s(t, answer, "ids", &n);
    ol_check_u32s(t, "cdf_edges", ids, n, want, TEST_COUNT(want),
                  "ids at u = 0, 0.5 - 2^-53, 0.5 and 1 - 2^-53");
}

void test_hand_example_sampling(ol_test *t) {
    static const test_part parts[] = {
        {"uniform", part_uniform}, {"token", part_token}, {"kept", part_kept}, {"edge", part_edge}};
    test_run_parts(t, parts, TEST_COUNT(parts));
}
