/* test_greedy.c: tiny_llama_greedy_matches_hf: 32 tokens a prompt under the near-tie rule.
 *
 * The judge picks the id from the testee's logits and feeds Hugging Face's token, so one answer
 * that differs says nothing about the next. The goldens of this suite ask for about 150 million
 * multiply-adds. */
#include "golden_models.h"
#include "tests.h"

#include <math.h>
#include <string.h>

#define MAX_TIES 1

typedef struct stream {
    const ol_case *c;
    const uint32_t *prompt;
    size_t n_prompt;
    const uint32_t *tokens; /* Hugging Face's */
    size_t n_tokens;
    const json_t *top_ids, *top_logits; /* one array of five for each step */
    const float *max_abs;               /* [n_tokens] */
} stream;

typedef enum step_kind { SAME, TIE, DIVERGED } step_kind;

static stream read_stream(ol_test *t, const ol_case *c) {
    size_t n = 0;
    stream s = {.c = c};
    s.prompt = ol_get_ids(t, c, c->body, "prompt", &s.n_prompt);
    s.tokens = ol_get_ids(t, c, c->body, "tokens", &s.n_tokens);
    s.max_abs = ol_get_f32s(t, c, c->body, "max_abs", &n);
    s.top_ids = ol_get_array(t, c, c->body, "top_ids");
    s.top_logits = ol_get_array(t, c, c->body, "top_logits");
    return s;
}

/* Hugging Face's logits of its five best ids at a step, as an object that the readers take. */
static const float *top_of(ol_test *t, const stream *s, size_t step, uint32_t **ids, size_t *n) {
    json_t *row = json_pack("{s:O, s:O}", "ids", json_array_get(s->top_ids, step), "logits",
                            json_array_get(s->top_logits, step));
    size_t n_ids = 0;
    *ids = ol_get_ids(t, s->c, row, "ids", &n_ids);
    const float *logits = ol_get_f32s(t, s->c, row, "logits", n);
    json_decref(row);
    *n = n_ids < *n ? n_ids : *n;
    return logits;
}

/* forward#near-tie for one step, the first step's and the second tie's rule apart. */
static step_kind judge_step(ol_test *t, const stream *s, size_t step, uint32_t ours) {
    uint32_t theirs = s->tokens[step];
    if (ours == theirs) {
        return SAME;
    }
    uint32_t *ids = NULL;
    size_t n = 0;
    const float *logits = top_of(t, s, step, &ids, &n);
    double bound = s->c->bound * (double)s->max_abs[step];
    double gap = HUGE_VAL;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == ours) {
            gap = (double)logits[0] - (double)logits[i];
        }
    }
    return gap <= 2.0 * bound ? TIE : DIVERGED;
}

/* Record one step; is our id another than Hugging Face's? */
static bool record(ol_test *t, const stream *s, size_t step, uint32_t ours) {
    step_kind kind = judge_step(t, s, step, ours);
    const char *said = ol_text(t, "step %zu: id %u, Hugging Face has %u%s", step, ours,
                               s->tokens[step], kind == TIE ? " (a near tie)" : "");
    if (step == 0) {
        (void)ol_check(t, "first_step", kind == SAME, "%s", said);
    } else {
        (void)ol_check(t, "tokens", kind != DIVERGED, "%s", said);
    }
    return kind != SAME;
}

/* To the end also after a divergence: every step is fed Hugging Face's token, so that a wrong
 * engine shows at how many of them it departs. */
static void decode(ol_test *t, const stream *s, const step_runner *r, const uint32_t *blocks,
                   size_t n_blocks) {
    float *row = step_piece(t, "runs", r, s->prompt, 0, s->n_prompt, blocks, n_blocks);
    size_t n_departures = 0;
    for (size_t step = 0; step < s->n_tokens && row != NULL; step++) {
        (void)ol_check(t, "finite", step_finite(row, r->vocab), "a logit of step %zu is not finite",
                       step);
        uint32_t ours = (uint32_t)step_argmax(row, r->vocab);
        n_departures += record(t, s, step, ours) ? 1 : 0;
        if (step + 1 < s->n_tokens) {
            step_seq next = {.tokens = &s->tokens[step],
                             .n_tokens = 1,
                             .start = s->n_prompt + step,
                             .blocks = blocks,
                             .n_blocks = n_blocks};
            row = step_run(t, "runs", r, &next, 1);
        }
    }
    (void)ol_check(t, "ties", n_departures <= MAX_TIES,
                   "%zu steps chose another id than Hugging Face, one near tie is allowed",
                   n_departures);
}

void test_tiny_llama_greedy_matches_hf(ol_test *t) {
    golden_model m = {.name = NULL};
    for (size_t i = 0; i < ol_n_cases(t, "greedy"); i++) {
        const ol_case *c = ol_case_at(t, "greedy", i);
        ol_begin_case(t, c);
        stream s = read_stream(t, c);
        size_t longest = golden_longest(t, "greedy", ol_get_text(t, c, c->body, "model"));
        if (!golden_load(t, "runs", &m, c, longest + s.n_tokens)) {
            continue;
        }
        size_t n_blocks = step_blocks_for(&m.r, s.n_prompt + s.n_tokens - 1);
        uint32_t *blocks = step_alloc(t, "runs", &m.r, n_blocks);
        if (blocks != NULL) {
            decode(t, &s, &m.r, blocks, n_blocks);
            step_release(t, "runs", &m.r, blocks, n_blocks);
        }
    }
    golden_free(t, &m);
}
