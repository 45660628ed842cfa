/* test_pcg32.c: the generator against its vectors.
 *
 * Property: every output, uniform, child seed and stream of the golden, to the bit. Kills s01,
 * which swaps the shifts of a uniform's two draws: the outputs hold then and the uniforms do not.
 *
 * Source: conformance/spec/pcg32.md. */
#include "sampler_ask.h"

#include <string.h>

#define LONG_RUN_MIN 1000u /* outputs in all from which a case counts as a long run */
#define TOP_BIT (UINT64_C(1) << 63)

static const json_t *engine_new(ol_test *t, uint64_t seed, uint64_t seq) {
    return ol_call(t, "pcg32_new", "{s:o, s:o}", "seed", ol_u64(seed), "sequence", ol_u64(seq));
}

static const json_t *engine_run(ol_test *t, const char *op, naive_rng rng, uint64_t skip,
                                size_t n) {
    return ol_call(t, op, "{s:o, s:I, s:I}", "rng", ask_rng_json(rng), "skip", (json_int_t)skip,
                   "n", (json_int_t)n);
}

static void check_outputs(ol_test *t, const char *name, naive_rng rng, uint64_t skip,
                          const uint32_t *want, size_t n_want) {
    const json_t *answer = engine_run(t, "pcg32_next", rng, skip, n_want);
    if (!ol_check_ok(t, name, answer, "pcg32_next")) {
        return;
    }
    size_t n = 0;
    const uint32_t *got = ol_res_u32s(t, answer, "outputs", &n);
    ol_check_u32s(t, name, got, n, want, n_want, "outputs");
}

static void check_uniforms(ol_test *t, const char *name, naive_rng rng, uint64_t skip,
                           const double *want, size_t n_want) {
    const json_t *answer = engine_run(t, "pcg32_uniform", rng, skip, n_want);
    if (!ol_check_ok(t, name, answer, "pcg32_uniform")) {
        return;
    }
    size_t n = 0;
    const double *got = ol_res_f64s(t, answer, "values", &n);
    ol_check_f64s_bits(t, name, got, n, want, n_want, "uniforms");
}

/* ------------------------------------------------------------------ the golden */

static naive_rng new_of_case(ol_test *t, const char *name, const ol_case *c) {
    uint64_t seed = ol_get_u64(t, c, c->body, "seed");
    return ask_rng_of(t, name, engine_new(t, seed, ol_get_u64(t, c, c->body, "seq")));
}

static void case_next(ol_test *t, const ol_case *c) {
    size_t n = 0;
    const uint32_t *want = ol_get_u32s(t, c, c->body, "outputs", &n);
    uint64_t skip = ol_get_count_or(t, c, c->body, "skip", 0);
    const char *name = skip + n >= LONG_RUN_MIN ? "long_run" : "next_u32";
    check_outputs(t, name, new_of_case(t, name, c), skip, want, n);
}

static void case_uniform(ol_test *t, const ol_case *c) {
    size_t n = 0;
    const double *want = ol_get_f64s(t, c, c->body, "values", &n);
    uint64_t skip = ol_get_count_or(t, c, c->body, "skip", 0);
    check_uniforms(t, "uniform_f64", new_of_case(t, "uniform_f64", c), skip, want, n);
}

static void case_child_seed(ol_test *t, const ol_case *c) {
    uint64_t seed = ol_get_u64(t, c, c->body, "seed");
    uint64_t purpose = ol_get_u64(t, c, c->body, "purpose");
    const json_t *answer =
        ol_call(t, "child_seed", "{s:o, s:o}", "seed", ol_u64(seed), "purpose", ol_u64(purpose));
    if (!ol_check_ok(t, "child_seed", answer, "child_seed")) {
        return;
    }
    ol_check_u64(t, "child_seed", ol_res_u64(t, answer, "value"),
                 ol_get_u64(t, c, c->body, "value"), "child seed");
}

static void case_stream(ol_test *t, const ol_case *c) {
    uint64_t seed = ol_get_u64(t, c, c->body, "seed");
    uint64_t purpose = ol_get_u64(t, c, c->body, "purpose");
    const json_t *answer =
        ol_call(t, "stream", "{s:o, s:o}", "seed", ol_u64(seed), "purpose", ol_u64(purpose));
    naive_rng rng = ask_rng_of(t, "stream_outputs", answer);
    size_t n = 0;
    const uint32_t *outputs = ol_get_u32s(t, c, c->body, "outputs", &n);
    check_outputs(t, "stream_outputs", rng, 0, outputs, n);
    const double *uniforms = ol_get_f64s(t, c, c->body, "uniforms", &n);
    check_uniforms(t, "stream_uniforms", rng, 0, uniforms, n);
}

static void run_case(ol_test *t, const ol_case *c) {
    ol_begin_case(t, c);
    if (strcmp(c->group, "next_u32") == 0) {
        case_next(t, c);
    } else if (strcmp(c->group, "uniform_f64") == 0) {
        case_uniform(t, c);
    } else if (strcmp(c->group, "child_seed") == 0) {
        case_child_seed(t, c);
    } else if (strcmp(c->group, "stream") == 0) {
        case_stream(t, c);
    }
}

/* ------------------------------------------------------------------ beside the golden */

static void part_demo(ol_test *t) {
    static const uint32_t demo[] = {0xa15c02b7u, 0x7b47f409u, 0xba1d3330u,
                                    0x83d2f293u, 0xbfa4784bu, 0xcbed606eu};
    naive_rng rng = ask_rng_of(t, "demo_line", engine_new(t, 42, 54));
    check_outputs(t, "demo_line", rng, 0, demo, TEST_COUNT(demo));
}

/* The judge's own generator, so that a long run is looked at whatever the golden holds. */
static void part_long_run(ol_test *t) {
    enum { SKIP = 5000, N = 16 };
    uint32_t want[N];
    uint64_t seed = ((uint64_t)ol_rand_u32(t) << 32) | ol_rand_u32(t);
    uint64_t seq = ((uint64_t)ol_rand_u32(t) << 32) | ol_rand_u32(t);
    naive_rng rng = naive_rng_after(naive_rng_new(seed, seq), SKIP);
    for (size_t i = 0; i < N; i++) {
        want[i] = naive_rng_u32(&rng);
    }
    check_outputs(t, "long_run", ask_rng_of(t, "long_run", engine_new(t, seed, seq)), SKIP, want,
                  N);
}

static void part_top_bit(ol_test *t) {
    static const uint64_t seqs[] = {0, 54, 1, TOP_BIT - 1};
    for (size_t i = 0; i < TEST_COUNT(seqs); i++) {
        naive_rng low = ask_rng_of(t, "seq_top_bit", engine_new(t, 42, seqs[i]));
        naive_rng high = ask_rng_of(t, "seq_top_bit", engine_new(t, 42, seqs[i] | TOP_BIT));
        ol_check_u64(t, "seq_top_bit", high.state, low.state, "state of new(42, seq + 2^63)");
        ol_check_u64(t, "seq_top_bit", high.inc, low.inc, "inc of new(42, seq + 2^63)");
        ol_check_u64(t, "seq_top_bit", high.inc & 1u, 1, "the lowest bit of inc");
    }
}

void test_pcg32_reference_vectors(ol_test *t) {
    static const test_part parts[] = {
        {"demo", part_demo}, {"own-long-run", part_long_run}, {"seq-top-bit", part_top_bit}};
    test_run_parts(t, parts, TEST_COUNT(parts));
    for (size_t i = 0; i < ol_n_cases(t, "rng"); i++) {
        run_case(t, ol_case_at(t, "rng", i));
    }
}
