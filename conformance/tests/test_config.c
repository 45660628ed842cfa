/* test_config.c: config_refuses_what_the_engine_cannot_run: every golden case of config.json.
 *
 * Without weights a case is parsed from memory and read from a directory; both must agree. With
 * weights the directory is loaded as a model. Costs no multiply-adds. */
#include "file_cases.h"
#include "steps.h"
#include "tests.h"

#include <stdlib.h>
#include <string.h>

static const json_t *load_model(ol_test *t, const ol_case *c, const char *dir) {
    ol_put_pieces(t, c, ol_text(t, "%s/model.safetensors", dir),
                  json_object_get(c->body, "weights"));
    step_cfg cfg = {.n_blocks = 2, .max_batch_tokens = 8};
    step_runner r;
    const json_t *answer = step_load_try(t, dir, &cfg, &r);
    if (ol_ok(answer)) {
        step_free(t, &r);
    }
    return answer;
}

/* The parsed fields of any answer that has them. */
static const json_t *fields_of(const json_t *answer) {
    const json_t *config = json_object_get(answer, "config");
    return config == NULL ? answer : config;
}

static bool same_verdict(const json_t *a, const json_t *b) {
    const char *status = json_string_value(json_object_get(a, "status"));
    const char *other = json_string_value(json_object_get(b, "status"));
    if (ol_ok(a) || ol_ok(b)) {
        return ol_ok(a) && ol_ok(b) &&
               json_equal(json_object_get(a, "rope_theta"), json_object_get(b, "rope_theta"));
    }
    return status != NULL && other != NULL && strcmp(status, other) == 0;
}

#define INLINE_MAX ((size_t)2 << 20) /* larger files are only read from a directory */

/* Bytes of a file of pieces. */
static size_t size_of(const json_t *pieces) {
    size_t size = 0;
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        const json_t *piece = json_array_get(pieces, i);
        const json_t *count = json_object_get(piece, "count");
        size_t text = json_string_length(json_object_get(piece, "text"));
        size_t hex = json_string_length(json_object_get(piece, "hex")) / 2;
        size_t unit = json_object_get(piece, "byte") != NULL ? 1 : text + hex;
        size += unit * (count == NULL ? 1 : (size_t)json_integer_value(count));
    }
    return size;
}

/* The bytes go in from memory and from a file. Where one of the two answers is not what the case
 * wants, that one is judged. */
static const json_t *parse(ol_test *t, const ol_case *c, const char *dir) {
    const json_t *loaded = ol_call(t, "config_load", "{s:s}", "dir", dir);
    const json_t *pieces = json_object_get(c->body, "file");
    if (size_of(pieces) > INLINE_MAX) {
        return loaded;
    }
    size_t n = 0;
    uint8_t *bytes = ol_pieces_bytes(t, c, pieces, &n);
    const json_t *parsed = ol_call(t, "config_parse", "{s:o}", "bytes", ol_u8(bytes, n));
    (void)ol_check(t, "parsed_fields", same_verdict(parsed, loaded),
                   "the same bytes from memory and from a file are taken differently");
    bool parsed_wrong = ol_ok(parsed) == file_is_refusal(t, c);
    return parsed_wrong ? parsed : loaded;
}

static file_outcome run_here(ol_test *t, const ol_case *c, size_t number) {
    file_outcome o = {.left_out = false};
    const char *dir = ol_text(t, "case-%zu", number);
    const char *node = ol_get_text_or(t, c, c->body, "node", NULL);
    bool made =
        ol_put_node(t, dir, "directory") &&
        file_put(t, c, ol_text(t, "%s/config.json", dir), json_object_get(c->body, "file"), node);
    if (!made) {
        o.left_out = true;
    } else if (json_object_get(c->body, "weights") != NULL) {
        o.answer = load_model(t, c, dir);
    } else if (node != NULL) {
        o.answer = ol_call(t, "config_load", "{s:s}", "dir", dir);
    } else {
        o.answer = parse(t, c, dir);
    }
    return o;
}

static file_outcome run_case(ol_test *t, const ol_case *c, size_t number) {
    const char *locale = ol_get_text_or(t, c, c->body, "locale", NULL);
    bool moved = locale != NULL && ol_restart_locale(t, locale);
    file_outcome o = run_here(t, c, number);
    if (moved) {
        ol_restart(t);
    }
    return o;
}

/* ------------------------------------------------------------------ sound files */

/* A field that is parsed wrongly also fails the check of its case: theta, eos ids, head_dim. */
static void look_at_field(ol_test *t, const char *check, const char *key, const json_t *got,
                          const json_t *want) {
    bool same = got != NULL && json_equal(got, want);
    char *got_text = json_dumps(got, JSON_ENCODE_ANY | JSON_COMPACT);
    char *want_text = json_dumps(want, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *said =
        ol_text(t, "%s is %s, the file says %s", key, got_text == NULL ? "missing" : got_text,
                want_text == NULL ? "?" : want_text);
    free(got_text);
    free(want_text);
    (void)ol_check(t, "parsed_fields", same, "%s", said);
    if (!same) {
        (void)ol_check(t, check, same, "%s", said);
    }
}

static void look(ol_test *t, const char *check, const file_outcome *o) {
    json_t *parsed = json_object_get(o->c->body, "parsed");
    const json_t *fields = fields_of(o->answer);
    const char *key = NULL;
    json_t *want = NULL;
    json_object_foreach(parsed, key, want) {
        look_at_field(t, check, key, json_object_get(fields, key), want);
    }
}

/* A real that is written as an integer may be more than 32 bits hold, or more than 2^53. */
static void part_large_theta(ol_test *t) {
    static const struct {
        const char *text;
        double theta;
    } rows[] = {{"2147483648", 2147483648.0},
                {"4294967297", 4294967297.0},
                {"1000000000000", 1e12},
                {"9007199254740993", 9007199254740992.0}};
    for (size_t i = 0; i < TEST_COUNT(rows); i++) {
        const char *config =
            ol_text(t,
                    "{\"tl_arch\": \"llama\", \"tl_tokenizer\": \"bpe\", \"vocab_size\": 5, "
                    "\"hidden_size\": 4, \"intermediate_size\": 4, \"num_hidden_layers\": 1, "
                    "\"num_attention_heads\": 1, \"rms_norm_eps\": 1, \"rope_theta\": %s}",
                    rows[i].text);
        const json_t *answer = ol_call(t, "config_parse", "{s:o}", "bytes",
                                       ol_u8((const uint8_t *)config, strlen(config)));
        if (ol_check_ok(t, "rope_theta", answer, config)) {
            json_t *want = ol_f64(rows[i].theta);
            look_at_field(t, "rope_theta", "rope_theta",
                          json_object_get(fields_of(answer), "rope_theta"), want);
            json_decref(want);
        }
    }
}

/* ------------------------------------------------------------------ the test */

/* A group of an unknown name: what is sound must be parsed right, what is not is about JSON. */
static const char *fallback(ol_test *t, const ol_case *c) {
    return file_is_refusal(t, c) ? "json_rules" : "parsed_fields";
}

static const char *subject_check(const char *check) {
    (void)check;
    return "names_subject";
}

void test_config_refuses_what_the_engine_cannot_run(ol_test *t) {
    static const char *const checks[] = {"json_rules",
                                         "arch_and_tokenizer",
                                         "model_family",
                                         "required_keys",
                                         "number_types",
                                         "number_ranges",
                                         "head_geometry",
                                         "rope_theta",
                                         "rope_scaling",
                                         "attention_window",
                                         "biases_and_norms",
                                         "activation",
                                         "foreign_keys",
                                         "eos_ids",
                                         "null_and_unknown",
                                         "bigram_rows",
                                         "parsed_fields",
                                         "sound_twins",
                                         "weights_fit",
                                         "tied_head",
                                         NULL};
    static const file_suite suite = {.suite = "config",
                                     .checks = checks,
                                     .fallback = fallback,
                                     .run = run_case,
                                     .look = look,
                                     .subject_check = subject_check,
                                     .offset_check = NULL};
    static const test_part parts[] = {{"large-theta", part_large_theta}};
    file_cases_run(t, &suite);
    test_run_parts(t, parts, TEST_COUNT(parts));
    test_c_arguments(t, "model");
}
