/* golden_cross.c: see golden_cross.h. One function a suite, in the order of
 * conformance/spec/vectors.md. */
#include "golden_cross.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct finding {
    char *what;
    size_t cap;
} finding;

static bool wrong(finding *f, const char *what) {
    ol_format(f->what, f->cap, "%s", what);
    return false;
}

static size_t len(const json_t *body, const char *key) {
    return json_array_size(json_object_get(body, key));
}

static uint64_t count(const json_t *body, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(body, key));
}

static bool has(const json_t *body, const char *key) {
    return json_object_get(body, key) != NULL;
}

static bool is_text(const json_t *body, const char *key, const char *text) {
    const char *value = json_string_value(json_object_get(body, key));
    return value != NULL && strcmp(value, text) == 0;
}

/* Is n the product? Counts of a golden are small; a product that wraps is not equal to any length.
 */
static bool is_product(uint64_t n, uint64_t a, uint64_t b) {
    return a == 0 || b == 0 ? n == 0 : n % a == 0 && n / a == b;
}

static bool check_verdict(finding *f, const json_t *body) {
    if (is_text(body, "verdict", "refuse") && (!has(body, "status") || !has(body, "twin"))) {
        return wrong(f, "a refused case needs status and twin");
    }
    if (is_text(body, "verdict", "accept") &&
        (has(body, "status") || has(body, "twin") || has(body, "subject") || has(body, "offset"))) {
        return wrong(f, "an accepted case has no status, twin, subject or offset");
    }
    return true;
}

static bool check_sampler(finding *f, const json_t *body) {
    const json_t *steps = json_object_get(body, "steps");
    size_t vocab = 0;
    if (json_array_size(steps) == 0) {
        return wrong(f, "steps: is empty");
    }
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *step = json_array_get(steps, i);
        if (has(step, "logits") == has(step, "logits_of")) {
            return wrong(f, "steps: a step has either logits or logits_of");
        }
        uint64_t of = count(step, "logits_of");
        if (has(step, "logits_of") &&
            (of >= i || !has(json_array_get(steps, (size_t)of), "logits"))) {
            return wrong(f, "steps: logits_of names no earlier step with logits");
        }
        size_t n = has(step, "logits") ? len(step, "logits") : vocab;
        if (n == 0 || (vocab != 0 && n != vocab)) {
            return wrong(f, "steps: the vocabulary is empty or changes");
        }
        vocab = n;
        if (count(step, "id") >= vocab) {
            return wrong(f, "steps: an id is past the vocabulary");
        }
    }
    return true;
}

static bool check_int4(finding *f, const char *group, const json_t *body) {
    uint64_t n_out = count(body, "n_out");
    uint64_t n_in = count(body, "n_in");
    if (strcmp(group, "pack") == 0) {
        return has(body, "qweight") == is_text(body, "verdict", "accept") ||
               wrong(f, "qweight goes with an accepted case");
    }
    if (strcmp(group, "refused") == 0) {
        return true;
    }
    uint64_t n_qweight = json_string_length(json_object_get(body, "qweight"));
    if (!is_product(len(body, "weights"), n_out, n_in) ||
        !is_product(len(body, "q"), n_out, n_in)) {
        return wrong(f, "weights and q have n_out * n_in elements");
    }
    if (!is_product(n_qweight, n_out, n_in)) {
        return wrong(f, "qweight has n_out * n_in / 2 bytes");
    }
    return is_product(len(body, "weights"), len(body, "scales"), count(body, "group")) ||
           wrong(f, "scales has n_out * n_in / group elements");
}

static bool weights_fit(const json_t *body) {
    size_t n_digits = is_text(body, "dtype", "f32") ? 8 : 4;
    const json_t *weights = json_object_get(body, "weights");
    for (size_t i = 0; i < json_array_size(weights); i++) {
        if (json_string_length(json_array_get(weights, i)) != n_digits) {
            return false;
        }
    }
    return true;
}

static bool check_linear(finding *f, const json_t *body) {
    uint64_t n_out = count(body, "n_out");
    uint64_t n_in = count(body, "n_in");
    if (is_text(body, "dtype", "int4")) {
        uint64_t n_qweight = json_string_length(json_object_get(body, "qweight"));
        if (has(body, "weights") || !is_product(n_qweight, n_out, n_in)) {
            return wrong(f, "int4 has qweight of n_out * n_in / 2 bytes and no weights");
        }
        if (!is_product(n_qweight, len(body, "scales"), count(body, "group"))) {
            return wrong(f, "scales has n_out * n_in / group elements");
        }
    } else if (!is_product(len(body, "weights"), n_out, n_in) || !weights_fit(body) ||
               has(body, "qweight") || has(body, "scales") || has(body, "group")) {
        return wrong(
            f,
            "weights has n_out * n_in elements of the dtype's width, and no int4 keys beside it");
    }
    if (!is_product(len(body, "x"), count(body, "m"), n_in)) {
        return wrong(f, "x has m * n_in elements");
    }
    return is_product(len(body, "y"), count(body, "m"), n_out) ||
           wrong(f, "y has m * n_out elements");
}

/* The folder of a model has its two kinds of files. */
static bool check_model(finding *f, const ol_source *source, const json_t *body) {
    const char *model = json_string_value(json_object_get(body, "model"));
    size_t n_model = strlen(model);
    bool has_config = false;
    bool has_weights = false;
    for (size_t i = 0; i < source->n_paths; i++) {
        const char *path = source->paths[i];
        if (strncmp(path, model, n_model) != 0 || path[n_model] != '/') {
            continue;
        }
        const char *name = path + n_model + 1;
        const char *end = strrchr(name, '.');
        has_config = has_config || strcmp(name, "config.json") == 0;
        has_weights = has_weights || (end != NULL && strcmp(end, ".safetensors") == 0);
    }
    if (!ol_source_has_model(source, model) || !has_config || !has_weights) {
        ol_format(f->what, f->cap, "model: %s has no config.json and .safetensors in the manifest",
                  model);
        return false;
    }
    return len(body, "prompt") > 0 || wrong(f, "prompt: is empty");
}

static bool check_logits(finding *f, const ol_source *source, const json_t *body) {
    if (len(body, "logits") == 0) {
        return wrong(f, "logits: is empty");
    }
    if (has(body, "hidden") &&
        (len(body, "hidden") == 0 || len(body, "hidden") % len(body, "prompt") != 0)) {
        return wrong(f, "hidden has a row for each token of the prompt");
    }
    return check_model(f, source, body);
}

static bool check_greedy(finding *f, const ol_source *source, const json_t *body) {
    enum { STEPS = 32, BEST = 5 };
    static const char *const lists[] = {"tokens", "top_ids", "top_logits", "max_abs"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (len(body, lists[i]) != STEPS) {
            return wrong(f, "tokens, top_ids, top_logits and max_abs have 32 elements");
        }
    }
    for (size_t i = 0; i < STEPS; i++) {
        if (json_array_size(json_array_get(json_object_get(body, "top_ids"), i)) != BEST ||
            json_array_size(json_array_get(json_object_get(body, "top_logits"), i)) != BEST) {
            return wrong(f, "top_ids and top_logits have five elements for each step");
        }
    }
    return check_model(f, source, body);
}

static bool check_kv(finding *f, const char *group, const json_t *body) {
    const json_t *config = json_object_get(body, "config");
    const json_t *blocks = json_object_get(body, "blocks");
    uint64_t n_slab =
        count(config, "n_kv_heads") * count(config, "block_tokens") * count(config, "head_dim");
    if (strcmp(group, "refused") == 0 || strcmp(group, "adopted") == 0) {
        return true;
    }
    for (size_t b = 0; b < json_array_size(blocks); b++) {
        const json_t *layers = json_object_get(json_array_get(blocks, b), "layers");
        if (json_array_size(layers) != count(config, "n_layers")) {
            return wrong(f, "blocks: a block has not n_layers layers");
        }
        for (size_t l = 0; l < json_array_size(layers); l++) {
            const json_t *layer = json_array_get(layers, l);
            if (len(layer, "k") != n_slab || len(layer, "v") != n_slab) {
                return wrong(f,
                             "blocks: a slab has not n_kv_heads * block_tokens * head_dim values");
            }
        }
    }
    return true;
}

static bool check_safetensors(finding *f, const json_t *body) {
    bool one = has(body, "file") != has(body, "files");
    if (!one && !has(body, "node")) {
        return wrong(f, "needs file or files");
    }
    if (has(body, "node_of") && !has(body, "files")) {
        return wrong(f, "node_of goes with files");
    }
    if (has(body, "int4_group") && !has(body, "config")) {
        return wrong(f, "int4_group goes with config");
    }
    bool needs_tensors = is_text(body, "verdict", "accept") && !has(body, "config");
    return !needs_tensors || has(body, "tensors") || wrong(f, "an accepted file says its tensors");
}

static bool check_config(finding *f, const json_t *body) {
    if (!has(body, "file") && !has(body, "node")) {
        return wrong(f, "needs file or node");
    }
    bool needs_parsed = is_text(body, "verdict", "accept");
    return !needs_parsed || has(body, "parsed") ||
           wrong(f, "an accepted config says what was parsed");
}

bool golden_cross_check(const ol_source *source, const char *suite, const char *group,
                        const json_t *body, char *what, size_t cap) {
    finding f = {.what = what, .cap = cap};
    if (!check_verdict(&f, body)) {
        return false;
    }
    if (strcmp(suite, "sampler") == 0) {
        return check_sampler(&f, body);
    }
    if (strcmp(suite, "f16") == 0) {
        return len(body, "f32") == len(body, "f16") ||
               wrong(&f, "f32 and f16 have the same length");
    }
    if (strcmp(suite, "int4") == 0) {
        return check_int4(&f, group, body);
    }
    if (strcmp(suite, "linear") == 0) {
        return check_linear(&f, body);
    }
    if (strcmp(suite, "logits") == 0) {
        return check_logits(&f, source, body);
    }
    if (strcmp(suite, "greedy") == 0) {
        return check_greedy(&f, source, body);
    }
    if (strcmp(suite, "kv") == 0) {
        return check_kv(&f, group, body);
    }
    if (strcmp(suite, "safetensors") == 0) {
        return check_safetensors(&f, body);
    }
    return strcmp(suite, "config") != 0 || check_config(&f, body);
}
