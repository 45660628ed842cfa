/* sampler_ask.c: see sampler_ask.h. */
#include "sampler_ask.h"

#include <string.h>

#define GRID 128 /* uniforms of a sweep beside the borders: an id of mass 1/100 is met */

json_t *ask_rng_json(naive_rng rng) {
    return json_pack("{s:o, s:o}", "state", ol_u64(rng.state), "inc", ol_u64(rng.inc));
}

naive_rng ask_rng_of(ol_test *t, const char *name, const json_t *response) {
    const json_t *value = json_object_get(response, "rng");
    if (!ol_check(t, name, json_is_object(value), "the answer has no generator")) {
        return (naive_rng){0};
    }
    naive_rng rng = {.state = ol_res_u64(t, value, "state"), .inc = ol_res_u64(t, value, "inc")};
    return rng;
}

json_t *ask_args(const naive_input *in) {
    const naive_params *p = &in->params;
    json_t *params =
        json_pack("{s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "temperature", ol_f64(p->temperature),
                  "top_k", (json_int_t)p->top_k, "top_p", ol_f64(p->top_p), "min_p",
                  ol_f64(p->min_p), "repetition_penalty", ol_f64(p->repetition), "presence_penalty",
                  ol_f64(p->presence), "frequency_penalty", ol_f64(p->frequency));
    return json_pack("{s:o, s:o, s:o, s:o}", "logits", ol_f32(in->x, in->n), "params", params,
                     "prompt", ol_u32(in->prompt, in->n_prompt), "output",
                     ol_u32(in->output, in->n_output));
}

const json_t *ask_sample(ol_test *t, const naive_input *in, naive_rng rng) {
    json_t *args = ask_args(in);
    (void)json_object_set_new(args, "rng", ask_rng_json(rng));
    return ol_call_object(t, "sample", args);
}

const json_t *ask_sweep_args(ol_test *t, json_t *args, const uint64_t *u53s, size_t n) {
    uint64_t *words = ol_alloc(t, 2 * n * sizeof *words);
    for (size_t i = 0; i < n; i++) {
        naive_rng rng = naive_rng_with_u53(u53s[i]);
        words[2 * i] = rng.state;
        words[2 * i + 1] = rng.inc;
    }
    (void)json_object_set_new(args, "rngs", ol_u64s(words, 2 * n));
    return ol_call_object(t, "sample_sweep", args);
}

const json_t *ask_sweep(ol_test *t, const naive_input *in, const uint64_t *u53s, size_t n) {
    return ask_sweep_args(t, ask_args(in), u53s, n);
}

uint64_t *ask_grid(ol_test *t, size_t n) {
    uint64_t *u53s = ol_alloc(t, n * sizeof *u53s);
    for (size_t i = 0; i < n; i++) {
        u53s[i] = NAIVE_U_LAST / (n - 1) * i;
    }
    u53s[n - 1] = NAIVE_U_LAST;
    return u53s;
}

bool check_kept(ol_test *t, const char *name, const naive_input *in, const uint32_t *want,
                size_t n_want, const char *what) {
    naive_result r = naive_sample(t, in);
    uint64_t *u53s = ol_alloc(t, (2 * in->n + 2 + GRID) * sizeof *u53s);
    size_t n = naive_edges(&r, u53s);
    memcpy(u53s + n, ask_grid(t, GRID), GRID * sizeof *u53s);
    n += GRID;
    const json_t *answer = ask_sweep(t, in, u53s, n);
    if (!ol_check_ok(t, name, answer, what)) {
        return false;
    }
    size_t n_ids = 0;
    const uint32_t *ids = ol_res_u32s(t, answer, "ids", &n_ids);
    uint32_t *seen = ol_alloc(t, (in->n + 1) * sizeof *seen);
    size_t n_seen = 0;
    for (uint32_t id = 0; id < in->n; id++) {
        bool drawn = false;
        for (size_t i = 0; i < n_ids; i++) {
            drawn = drawn || ids[i] == id;
        }
        if (drawn) {
            seen[n_seen++] = id;
        }
    }
    return ol_check_u32s(t, name, seen, n_seen, want, n_want, what);
}

bool check_walk(ol_test *t, const char *name, const naive_input *in, const char *what) {
    naive_result r = naive_sample(t, in);
    uint64_t *u53s = ol_alloc(t, (2 * in->n + 2) * sizeof *u53s);
    size_t n = naive_edges(&r, u53s);
    uint32_t *want = ol_alloc(t, n * sizeof *want);
    for (size_t i = 0; i < n; i++) {
        want[i] = naive_pick(&r, u53s[i]);
    }
    const json_t *answer = ask_sweep(t, in, u53s, n);
    if (!ol_check_ok(t, name, answer, what)) {
        return false;
    }
    size_t n_ids = 0;
    const uint32_t *ids = ol_res_u32s(t, answer, "ids", &n_ids);
    return ol_check_u32s(t, name, ids, n_ids, want, n, what);
}

/* Takes the references of both. */
static bool same_sweeps(ol_test *t, const char *name, json_t *a, json_t *b, const char *what) {
    const uint64_t *grid = ask_grid(t, GRID);
    const json_t *got = ask_sweep_args(t, a, grid, GRID);
    const json_t *want = ask_sweep_args(t, b, grid, GRID);
    if (!ol_check_ok(t, name, got, what) || !ol_check_ok(t, name, want, what)) {
        return false;
    }
    size_t n = 0;
    size_t n_want = 0;
    const uint32_t *ids = ol_res_u32s(t, got, "ids", &n);
    const uint32_t *want_ids = ol_res_u32s(t, want, "ids", &n_want);
    bool held = ol_check_u32s(t, name, ids, n, want_ids, n_want, what);
    const double *logprobs = ol_res_f64s(t, got, "logprobs", &n);
    const double *want_logprobs = ol_res_f64s(t, want, "logprobs", &n_want);
    return ol_check_f64s_bits(t, name, logprobs, n, want_logprobs, n_want, what) && held;
}

bool check_same_answers(ol_test *t, const char *name, const naive_input *a, const naive_input *b,
                        const char *what) {
    bool held = same_sweeps(t, name, ask_args(a), ask_args(b), what);
    naive_input greedy_a = *a;
    naive_input greedy_b = *b;
    greedy_a.params.temperature = 0.0;
    greedy_b.params.temperature = 0.0;
    return same_sweeps(t, name, ask_args(&greedy_a), ask_args(&greedy_b), what) && held;
}

bool check_left_out(ol_test *t, const char *name, const naive_input *in, const char *member) {
    json_t *args = ask_args(in);
    json_t *params = json_object_get(args, "params");
    if (member == NULL) {
        (void)json_object_clear(params);
    } else {
        (void)json_object_del(params, member);
    }
    const char *what = ol_text(t, "%s left out", member == NULL ? "every parameter" : member);
    return same_sweeps(t, name, args, ask_args(in), what);
}
