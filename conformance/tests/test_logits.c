/* test_logits.c: tiny_llama_logits_match_hf: the whole graph against Hugging Face's numbers.
 *
 * Every case is a forward of its prompt; cases with hidden values also go through run_once. The
 * checks after `long_prompts` look at the same rows again for the models that have a property. The
 * goldens of this suite and the twins ask for about 165 million multiply-adds. */
#include "golden_models.h"
#include "model_maker.h"
#include "tests.h"

#include <string.h>

#define LONG_PROMPT 64

typedef struct property {
    const char *check;
    bool (*has)(const tm_shape *s, bool half);
    bool seen;
} property;

static bool is_grouped(const tm_shape *s, bool half) {
    (void)half;
    return s->kv_heads < s->heads;
}

static bool is_equal_heads(const tm_shape *s, bool half) {
    (void)half;
    return s->kv_heads == s->heads;
}

static bool is_tied(const tm_shape *s, bool half) {
    (void)half;
    return s->tied;
}

static bool is_untied(const tm_shape *s, bool half) {
    (void)half;
    return !s->tied;
}

static bool is_explicit_head_dim(const tm_shape *s, bool half) {
    (void)half;
    return s->heads * s->head_dim != s->hidden;
}

static bool is_half(const tm_shape *s, bool half) {
    (void)s;
    return half;
}

static bool is_other_theta(const tm_shape *s, bool half) {
    (void)half;
    return s->theta < 10000.0 || s->theta > 10000.0;
}

/* Is a tensor of the checkpoint stored in F16 or BF16? Asked of the testee, since a checkpoint may
 * be in shards; an int4 file's scales do not count. */
static bool has_half(ol_test *t, const char *dir) {
    const json_t *answer = ol_call(t, "checkpoint_open", "{s:s}", "dir", dir);
    if (!ol_ok(answer)) {
        return false;
    }
    const json_t *tensors = json_object_get(answer, "tensors");
    bool half = false;
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        const json_t *tensor = json_array_get(tensors, i);
        const char *name = json_string_value(json_object_get(tensor, "name"));
        const char *dtype = json_string_value(json_object_get(tensor, "dtype"));
        bool scales = name != NULL && strstr(name, ".scales") != NULL;
        bool narrow = dtype != NULL && (strcmp(dtype, "F16") == 0 || strcmp(dtype, "BF16") == 0);
        half = half || (narrow && !scales);
    }
    (void)ol_call(t, "checkpoint_free", "{s:I}", "checkpoint",
                  (json_int_t)ol_int(t, answer, "checkpoint"));
    return half;
}

/* ------------------------------------------------------------------ one case */

typedef struct wanted {
    const uint32_t *prompt;
    size_t n_prompt;
    const float *logits;
    size_t n_logits;
    const float *hidden; /* NULL when the case has none */
    size_t n_hidden;
} wanted;

static wanted read_case(ol_test *t, const ol_case *c) {
    wanted w = {.hidden = NULL};
    w.prompt = ol_get_ids(t, c, c->body, "prompt", &w.n_prompt);
    w.logits = ol_get_f32s(t, c, c->body, "logits", &w.n_logits);
    if (json_object_get(c->body, "hidden") != NULL) {
        w.hidden = ol_get_f32s(t, c, c->body, "hidden", &w.n_hidden);
    }
    return w;
}

static void compare(ol_test *t, const char *check, const ol_case *c, const wanted *w,
                    const float *row, size_t n, const char *from) {
    (void)ol_check_f32_max_abs(t, check, row, n, w->logits, w->n_logits, c->bound,
                               ol_text(t, "logits of %s after %zu tokens", from, w->n_prompt));
}

static void compare_properties(ol_test *t, const ol_case *c, const wanted *w, const float *row,
                               size_t n, property *properties, size_t n_properties) {
    if (w->n_prompt == 1) {
        compare(t, "one_token", c, w, row, n, "forward");
    }
    if (w->n_prompt > LONG_PROMPT) {
        compare(t, "long_prompts", c, w, row, n, "forward");
    }
    for (size_t i = 0; i < n_properties; i++) {
        if (properties[i].seen) {
            compare(t, properties[i].check, c, w, row, n, "forward");
        }
    }
}

static void run_hidden(ol_test *t, const ol_case *c, const wanted *w, const step_runner *r) {
    float *hidden = NULL;
    size_t n_hidden = 0;
    float *row = step_once(t, "hidden_bound", r, w->prompt, w->n_prompt, &hidden, &n_hidden);
    if (row == NULL) {
        return;
    }
    (void)ol_check(t, "finite", step_finite(hidden, n_hidden), "a hidden value is not finite");
    (void)ol_check_f32_max_abs(t, "hidden_bound", hidden, n_hidden, w->hidden, w->n_hidden,
                               c->bound, "hidden values of run_once");
    compare(t, "bound", c, w, row, r->vocab, "run_once");
}

static void run_case(ol_test *t, const ol_case *c, const step_runner *r, property *properties,
                     size_t n_properties) {
    wanted w = read_case(t, c);
    float *row = step_cold(t, "bound", r, w.prompt, w.n_prompt);
    if (row != NULL) {
        (void)ol_check(t, "finite", step_finite(row, r->vocab), "a logit is not finite");
        compare(t, "bound", c, &w, row, r->vocab, "forward");
        compare_properties(t, c, &w, row, r->vocab, properties, n_properties);
    }
    if (w.hidden != NULL) {
        run_hidden(t, c, &w, r);
    }
}

/* ------------------------------------------------------------------ the test */

void test_tiny_llama_logits_match_hf(ol_test *t) {
    property properties[] = {
        {"grouped_heads", is_grouped, false},
        {"equal_heads", is_equal_heads, false},
        {"tied_head", is_tied, false},
        {"untied_head", is_untied, false},
        {"explicit_head_dim", is_explicit_head_dim, false},
        {"half_precision_files", is_half, false},
        {"other_theta", is_other_theta, false},
    };
    size_t n = TEST_COUNT(properties);
    golden_model m = {.name = NULL};
    for (size_t i = 0; i < ol_n_cases(t, "logits"); i++) {
        const ol_case *c = ol_case_at(t, "logits", i);
        ol_begin_case(t, c);
        const char *name = ol_get_text(t, c, c->body, "model");
        bool other = m.name == NULL || strcmp(m.name, name) != 0;
        bool loaded = golden_load(t, "loads", &m, c, golden_longest(t, "logits", name));
        if (other && loaded) {
            tm_shape shape = tm_shape_of(t, c, name);
            bool half = has_half(t, m.dir);
            for (size_t p = 0; p < n; p++) {
                properties[p].seen = properties[p].has(&shape, half);
            }
        }
        if (loaded) {
            run_case(t, c, &m.r, properties, n);
        }
    }
    golden_free(t, &m);
    test_model_twins(t);
}
