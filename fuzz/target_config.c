/* target_config.c: the bytes of a config.json.
 *
 * Both readers must take or refuse it with the same status and read the same fields; a refusal
 * leaves the caller's struct as it was, and reading twice gives the same.
 *
 * Source: conformance/spec/config.md. */
#include "fuzz.h"

#include <string.h>

static bool is_filled(const void *memory, size_t n, unsigned char byte) {
    const unsigned char *p = (const unsigned char *)memory;
    for (size_t i = 0; i < n; i++) {
        if (p[i] != byte) {
            return false;
        }
    }
    return true;
}

static void run(fuzz_case *f, const uint8_t *data, size_t n) {
    tl_model_config a;
    tl_model_config b;
    tl_error err = fuzz_error();
    memset(&a, 0xa5, sizeof a);
    memset(&b, 0xa5, sizeof b);
    const tl_status got = f->tl->model_config_parse(&a, (const char *)data, n, &err);
    fuzz_check_error(f, "model_config_parse", got, &err, n);
    const tl_status want = f->second->model_config_parse(&b, (const char *)data, n, &err);
    if (got != TL_OK && !is_filled(&a, sizeof a, 0xa5)) {
        (void)fuzz_wrong(f, "model_config_parse: refused, and *out has changed");
    }
    if (fuzz_agree(f, "model_config_parse", got, want)) {
        fuzz_compare_configs(f, &a, &b);
    }
}

static size_t mutate(uint8_t *data, size_t n, size_t cap, fuzz_rng *rng) {
    fuzz_text text = {.text = (char *)data, .n = n, .cap = cap};
    for (uint32_t i = fuzz_below(rng, 3) + 1; i > 0; i--) {
        fuzz_mutate_json(&text, fuzz_words_config, rng);
    }
    return text.n;
}

const fuzz_target fuzz_config = {"config", run, mutate};
