/* target_config.c: the bytes of a config.json.
 *
 * Both readers must take or refuse it with the same status and read the same fields; a refusal
 * leaves the caller's struct as it was, and reading twice gives the same.
 *
 * Source: conformance/spec/config.md. */
#include "fuzz.h"

#include <stdio.h>
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

/* The same from a directory, and what is no directory with a config. */
static void check_disk(fuzz_case *f, const uint8_t *data, size_t n, const tl_model_config *from,
                       tl_status status) {
    char path[FUZZ_PATH_MAX];
    tl_model_config cfg;
    tl_error err = fuzz_error();
    memset(&cfg, 0xa5, sizeof cfg);
    const bool good = f->tl->model_config_parse(NULL, "{}", 2, NULL) == TL_ERR_INVALID &&
                      f->tl->model_config_parse(&cfg, NULL, 2, NULL) == TL_ERR_INVALID &&
                      f->tl->model_config_load(NULL, ".", NULL) == TL_ERR_INVALID &&
                      f->tl->model_config_load(&cfg, NULL, NULL) == TL_ERR_INVALID;
    fuzz_file_write(f, "config.json", data, n, path);
    if (path[0] != '\0') {
        const tl_status got = f->tl->model_config_load(&cfg, f->disk, &err);
        fuzz_check_error(f, "model_config_load", got, &err, n);
        if (got != status || !fuzz_same_bytes(&cfg, from, sizeof cfg)) {
            (void)fuzz_wrong(f, "model_config_load: %s, from memory it is %s, or other fields",
                             f->tl->status_name(got), f->tl->status_name(status));
        }
        (void)remove(path);
        if (f->tl->model_config_load(&cfg, f->disk, NULL) != TL_ERR_IO) {
            (void)fuzz_wrong(f, "model_config_load: a directory without config.json is not IO");
        }
    }
    if (!good) {
        (void)fuzz_wrong(f, "an argument that is NULL is not INVALID");
    }
}

static tl_status read_once(const host_api *tl, const uint8_t *data, size_t n, tl_error *err) {
    tl_model_config cfg;
    return tl->model_config_parse(&cfg, (const char *)data, n, err);
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
    check_disk(f, data, n, &a, got);
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

const fuzz_target fuzz_config = {.name = "config", .run = run, .mutate = mutate, .read = read_once};
