/* model_config.c: config.json, row by row of the page's table and in the order of its Decisions:
 * first the two keys of this project, then everything that would be run wrongly, then the numbers.
 *
 * Each row has one function. They read members through member(), which is the one place where null
 * means absent.
 *
 * Source: conformance/spec/config.md. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_json.h"
#include "model_plain.h"
#include "util.h"

enum { MAX_FILE = 1 << 20, MAX_NODES = 100000, MAX_COUNT = 1 << 24, MAX_LAYERS = 1 << 16 };

static const char *member(const char *object, const char *key) {
    const char *value = plain_json_find(object, key);
    return value == NULL || plain_json_kind(value) == PLAIN_NULL ? NULL : value;
}

/* Every refusal names the key and its value. */
static tl_status refuse(tl_error *err, tl_status status, const char *key, const char *value,
                        const char *why) {
    return tli_fail(err, status, "config.json: %s is %.*s, %s", key, plain_json_show(value), value,
                    why);
}

/* FORMAT unless the value is of this kind. */
static tl_status check_kind(const char *key, const char *value, plain_kind kind, tl_error *err) {
    static const char *const words[] = {"an object is needed", "a list is needed",
                                        "a string is needed",  "a number is needed",
                                        "a boolean is needed", "null is needed"};
    if (plain_json_kind(value) != kind) {
        return refuse(err, TL_ERR_FORMAT, key, value, words[kind]);
    }
    return TL_OK;
}

/* A string that must be one of two. */
static tl_status check_words(const char *key, const char *value, const char *one, const char *two,
                             tl_error *err) {
    TLI_TRY(check_kind(key, value, PLAIN_STRING, err));
    if (!plain_json_equal(value, one) && !plain_json_equal(value, two)) {
        char why[80];
        (void)snprintf(why, sizeof why, "%s and %s are run", one, two);
        return refuse(err, TL_ERR_UNSUPPORTED, key, value, why);
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ which model it is */

static tl_status read_word(const char *root, const char *key, const char *one, const char *two,
                           bool *is_one, tl_error *err) {
    const char *value = member(root, key);
    if (value == NULL) {
        return tli_fail(err, TL_ERR_UNSUPPORTED,
                        "config.json: %s is missing, \"%s\" or \"%s\" is needed", key, one, two);
    }
    TLI_TRY(check_words(key, value, one, two, err));
    *is_one = plain_json_equal(value, one);
    return TL_OK;
}

/* ------------------------------------------------------------------ rows that are UNSUPPORTED */

/* A key that may only be one of two strings. */
static tl_status check_optional_words(const char *root, const char *key, const char *one,
                                      const char *two, tl_error *err) {
    const char *value = member(root, key);
    return value == NULL ? TL_OK : check_words(key, value, one, two, err);
}

/* Every element of a list must be one of two strings. */
static tl_status check_list_of_words(const char *key, const char *list, const char *one,
                                     const char *two, tl_error *err) {
    TLI_TRY(check_kind(key, list, PLAIN_ARRAY, err));
    plain_walk walk = plain_walk_of(list);
    while (plain_walk_next(&walk)) {
        TLI_TRY(check_kind(key, walk.value, PLAIN_STRING, err));
    }
    walk = plain_walk_of(list);
    while (plain_walk_next(&walk)) {
        TLI_TRY(check_words(key, walk.value, one, two, err));
    }
    return TL_OK;
}

static tl_status check_architectures(const char *root, tl_error *err) {
    const char *list = member(root, "architectures");
    if (list == NULL) {
        return TL_OK;
    }
    TLI_TRY(
        check_list_of_words("architectures", list, "LlamaForCausalLM", "MistralForCausalLM", err));
    if (plain_json_count(list) != 1) {
        return refuse(err, TL_ERR_UNSUPPORTED, "architectures", list, "exactly one is needed");
    }
    return TL_OK;
}

static tl_status check_partial(const char *object, tl_error *err) {
    const char *value = member(object, "partial_rotary_factor");
    if (value == NULL) {
        return TL_OK;
    }
    TLI_TRY(check_kind("partial_rotary_factor", value, PLAIN_NUMBER, err));
    if (plain_json_real(value) != 1) {
        return refuse(err, TL_ERR_UNSUPPORTED, "partial_rotary_factor", value, "1 is supported");
    }
    return TL_OK;
}

/* One of the two names that the type of a rope has had. */
static tl_status check_rope_type(const char *name, const char *rope, const char *key, bool *found,
                                 tl_error *err) {
    const char *type = member(rope, key);
    if (type == NULL) {
        return TL_OK;
    }
    const bool is_string = plain_json_kind(type) == PLAIN_STRING;
    if (!is_string || !plain_json_equal(type, "default")) {
        return tli_fail(err, is_string ? TL_ERR_UNSUPPORTED : TL_ERR_FORMAT,
                        "config.json: %s has the %s %.*s, \"default\" is supported", name, key,
                        plain_json_show(type), type);
    }
    *found = true;
    return TL_OK;
}

/* rope_scaling and rope_parameters: the default written out, and nothing else. */
static tl_status check_rope(const char *root, const char *name, bool type_needed, tl_error *err) {
    const char *rope = member(root, name);
    bool has_type = false;
    if (rope == NULL) {
        return TL_OK;
    }
    TLI_TRY(check_kind(name, rope, PLAIN_OBJECT, err));
    TLI_TRY(check_rope_type(name, rope, "rope_type", &has_type, err));
    TLI_TRY(check_rope_type(name, rope, "type", &has_type, err));
    TLI_TRY(check_partial(rope, err));
    plain_walk walk = plain_walk_of(rope);
    while (plain_walk_next(&walk)) {
        const bool known = plain_json_equal(walk.key, "rope_type") ||
                           plain_json_equal(walk.key, "type") ||
                           plain_json_equal(walk.key, "rope_theta") ||
                           plain_json_equal(walk.key, "partial_rotary_factor");
        if (!known && plain_json_kind(walk.value) != PLAIN_NULL) {
            return tli_fail(err, TL_ERR_UNSUPPORTED,
                            "config.json: %s has %.*s, which changes the result", name,
                            plain_json_show(walk.key), walk.key);
        }
    }
    if (type_needed && !has_type) {
        return refuse(err, TL_ERR_UNSUPPORTED, name, rope, "which does not say its type");
    }
    return TL_OK;
}

static tl_status check_window(const char *root, tl_error *err) {
    const char *use = member(root, "use_sliding_window");
    if (use != NULL) {
        TLI_TRY(check_kind("use_sliding_window", use, PLAIN_BOOL, err));
    }
    const bool off = use != NULL && !plain_json_true(use);
    const char *window = member(root, "sliding_window");
    if (window != NULL && !off) {
        return refuse(err, TL_ERR_UNSUPPORTED, "sliding_window", window, "no window is supported");
    }
    const char *types = member(root, "layer_types");
    return types == NULL
               ? TL_OK
               : check_list_of_words("layer_types", types, "full_attention", "full_attention", err);
}

static tl_status check_off(const char *root, const char *key, tl_error *err) {
    const char *value = member(root, key);
    if (value == NULL) {
        return TL_OK;
    }
    TLI_TRY(check_kind(key, value, PLAIN_BOOL, err));
    if (plain_json_true(value)) {
        return refuse(err, TL_ERR_UNSUPPORTED, key, value, "false is supported");
    }
    return TL_OK;
}

static tl_status check_foreign(const char *root, tl_error *err) {
    static const char *const keys[] = {"quantization_config",
                                       "quantization",
                                       "compression_config",
                                       "text_config",
                                       "num_local_experts",
                                       "no_rope_layers",
                                       "attn_logit_softcapping",
                                       "final_logit_softcapping",
                                       "logit_scale",
                                       "logits_scaling",
                                       "embedding_multiplier",
                                       "residual_multiplier",
                                       "attention_multiplier",
                                       "auto_map"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = member(root, keys[i]);
        if (value != NULL) {
            return refuse(err, TL_ERR_UNSUPPORTED, keys[i], value,
                          "and this engine does not know the key");
        }
    }
    return TL_OK;
}

/* The page leaves the order of these open: a file with two faults has two right answers. */
static tl_status check_unsupported(const char *root, tl_error *err) {
    static const char *const off[] = {"attention_bias", "mlp_bias", "bias", "qkv_bias",
                                      "use_qk_norm"};
    TLI_TRY(check_optional_words(root, "model_type", "llama", "mistral", err));
    TLI_TRY(check_optional_words(root, "position_embedding_type", "rope", "rope", err));
    TLI_TRY(check_optional_words(root, "hidden_act", "silu", "swish", err));
    TLI_TRY(check_optional_words(root, "hidden_activation", "silu", "swish", err));
    TLI_TRY(check_architectures(root, err));
    TLI_TRY(check_foreign(root, err));
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        TLI_TRY(check_off(root, off[i], err));
    }
    TLI_TRY(check_window(root, err));
    TLI_TRY(check_partial(root, err));
    TLI_TRY(check_rope(root, "rope_parameters", false, err));
    return check_rope(root, "rope_scaling", true, err);
}

/* ------------------------------------------------------------------ numbers */

/* An integer from 1 to `most`. *out keeps its value when the key is absent and not required. */
static tl_status read_count(const char *root, const char *key, bool required, int64_t most,
                            size_t *out, tl_error *err) {
    const char *value = member(root, key);
    int64_t number;
    if (value == NULL && !required) {
        return TL_OK;
    }
    if (value == NULL) {
        return tli_fail(err, TL_ERR_FORMAT, "config.json: %s is missing", key);
    }
    TLI_TRY(check_kind(key, value, PLAIN_NUMBER, err));
    if (!plain_json_int(value, &number)) {
        return refuse(err, TL_ERR_FORMAT, key, value, "an integer is needed");
    }
    if (number < 1 || number > most) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "config.json: %s is %" PRId64 ", 1 to %" PRId64 " is allowed", key, number,
                        most);
    }
    *out = (size_t)number;
    return TL_OK;
}

/* A number that is above 0 and finite, as f64 and as f32. *found says whether the key is there. */
static tl_status read_positive(const char *object, const char *key, double *out, bool *found,
                               tl_error *err) {
    const char *value = member(object, key);
    *found = value != NULL;
    if (value == NULL) {
        return TL_OK;
    }
    TLI_TRY(check_kind(key, value, PLAIN_NUMBER, err));
    const double number = plain_json_real(value);
    const float rounded = (float)number;
    if (!(rounded > 0) || !isfinite(rounded)) {
        return refuse(err, TL_ERR_FORMAT, key, value,
                      "a number above 0 that f32 can hold is needed");
    }
    *out = number;
    return TL_OK;
}

/* theta may stand in three places, which must agree. */
static tl_status read_theta(const char *root, double *theta, tl_error *err) {
    const char *const places[] = {root, member(root, "rope_parameters"),
                                  member(root, "rope_scaling")};
    bool any = false;
    for (size_t i = 0; i < 3; i++) {
        double here = 0;
        bool found = false;
        if (places[i] == NULL) {
            continue;
        }
        TLI_TRY(read_positive(places[i], "rope_theta", &here, &found, err));
        if (found && any && here != *theta) {
            return tli_fail(err, TL_ERR_FORMAT,
                            "config.json: rope_theta is %g in one place and %g in another", *theta,
                            here);
        }
        if (found) {
            *theta = here;
            any = true;
        }
    }
    return TL_OK;
}

static tl_status read_heads(const char *root, tl_model_config *cfg, tl_error *err) {
    cfg->n_kv_heads = cfg->n_heads;
    TLI_TRY(read_count(root, "num_key_value_heads", false, MAX_COUNT, &cfg->n_kv_heads, err));
    if (cfg->n_heads % cfg->n_kv_heads != 0) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "config.json: num_key_value_heads is %zu, which does "
                        "not divide the %zu heads",
                        cfg->n_kv_heads, cfg->n_heads);
    }
    TLI_TRY(read_count(root, "head_dim", false, MAX_COUNT, &cfg->head_dim, err));
    if (cfg->head_dim == 0 && cfg->hidden_size % cfg->n_heads != 0) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "config.json: no head_dim is given, and hidden_size "
                        "%zu / %zu heads is not whole",
                        cfg->hidden_size, cfg->n_heads);
    }
    if (cfg->head_dim == 0) {
        cfg->head_dim = cfg->hidden_size / cfg->n_heads;
    }
    if (cfg->head_dim % 2 != 0) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "config.json: head_dim is %zu, an even number is needed", cfg->head_dim);
    }
    return TL_OK;
}

/* Every matrix of the model has to have a size in bytes. */
static tl_status check_products(const tl_model_config *cfg, tl_error *err) {
    size_t q_rows;
    size_t norms;
    size_t n;
    bool fits = tli_mul(cfg->n_heads, cfg->head_dim, &q_rows) &&
                tli_mul(2 * cfg->n_layers + 1, cfg->hidden_size, &norms) && tli_mul(norms, 4, &n);
    const size_t rows[] = {cfg->vocab_size, cfg->intermediate_size, fits ? q_rows : 0};
    for (size_t i = 0; i < 3; i++) {
        fits = fits && tli_mul(rows[i], cfg->hidden_size, &n) && tli_mul(n, 4, &n);
    }
    if (!fits) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "config.json: hidden_size %zu, intermediate_size %zu, "
                        "%zu heads of head_dim %zu: a product overflows",
                        cfg->hidden_size, cfg->intermediate_size, cfg->n_heads, cfg->head_dim);
    }
    return TL_OK;
}

static tl_status read_eos_id(const char *value, tl_model_config *cfg, tl_error *err) {
    int64_t id;
    TLI_TRY(check_kind("eos_token_id", value, PLAIN_NUMBER, err));
    if (!plain_json_int(value, &id) || id < 0 || (uint64_t)id >= cfg->vocab_size) {
        return refuse(err, TL_ERR_FORMAT, "eos_token_id", value,
                      "an id below vocab_size is needed");
    }
    for (size_t i = 0; i < cfg->n_eos_token_ids; i++) {
        if (cfg->eos_token_ids[i] == (uint32_t)id) {
            return refuse(err, TL_ERR_FORMAT, "eos_token_id", value, "which stands there twice");
        }
    }
    cfg->eos_token_ids[cfg->n_eos_token_ids++] = (uint32_t)id;
    return TL_OK;
}

static tl_status read_eos(const char *root, tl_model_config *cfg, tl_error *err) {
    const char *value = member(root, "eos_token_id");
    if (value == NULL) {
        return TL_OK;
    }
    if (plain_json_kind(value) != PLAIN_ARRAY) {
        return read_eos_id(value, cfg, err);
    }
    const size_t n = plain_json_count(value);
    if (n < 1 || n > TL_EOS_IDS_MAX) {
        return refuse(err, TL_ERR_FORMAT, "eos_token_id", value, "1 to 16 ids are allowed");
    }
    plain_walk walk = plain_walk_of(value);
    while (plain_walk_next(&walk)) {
        TLI_TRY(read_eos_id(walk.value, cfg, err));
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ the whole file */

static tl_status read_llama(const char *root, tl_model_config *cfg, tl_error *err) {
    bool found = false;
    TLI_TRY(read_count(root, "hidden_size", true, MAX_COUNT, &cfg->hidden_size, err));
    TLI_TRY(read_count(root, "intermediate_size", true, MAX_COUNT, &cfg->intermediate_size, err));
    TLI_TRY(read_count(root, "num_hidden_layers", true, MAX_LAYERS, &cfg->n_layers, err));
    TLI_TRY(read_count(root, "num_attention_heads", true, MAX_COUNT, &cfg->n_heads, err));
    TLI_TRY(read_heads(root, cfg, err));
    TLI_TRY(read_positive(root, "rms_norm_eps", &cfg->rms_norm_eps, &found, err));
    if (!found) {
        return tli_fail(err, TL_ERR_FORMAT, "config.json: rms_norm_eps is missing");
    }
    cfg->rope_theta = 10000;
    TLI_TRY(read_theta(root, &cfg->rope_theta, err));
    const char *tie = member(root, "tie_word_embeddings");
    if (tie != NULL) {
        TLI_TRY(check_kind("tie_word_embeddings", tie, PLAIN_BOOL, err));
        cfg->tie_word_embeddings = plain_json_true(tie);
    }
    return check_products(cfg, err);
}

static tl_status read_config(const char *root, tl_model_config *cfg, tl_error *err) {
    bool llama = false;
    bool byte = false;
    TLI_TRY(read_word(root, "tl_arch", "llama", "bigram", &llama, err));
    TLI_TRY(read_word(root, "tl_tokenizer", "byte", "bpe", &byte, err));
    cfg->arch = llama ? TL_ARCH_LLAMA : TL_ARCH_BIGRAM;
    cfg->tokenizer = byte ? TL_TOKENIZER_BYTE : TL_TOKENIZER_BPE;
    if (llama) {
        TLI_TRY(check_unsupported(root, err));
    }
    TLI_TRY(read_count(root, "vocab_size", true, MAX_COUNT, &cfg->vocab_size, err));
    if (byte && cfg->vocab_size < 256) {
        return tli_fail(err, TL_ERR_FORMAT, "config.json: vocab_size is %zu, bytes need 256",
                        cfg->vocab_size);
    }
    cfg->max_positions = 2048;
    TLI_TRY(
        read_count(root, "max_position_embeddings", false, MAX_COUNT, &cfg->max_positions, err));
    TLI_TRY(read_eos(root, cfg, err));
    if (llama) {
        return read_llama(root, cfg, err);
    }
    cfg->n_layers = 1;
    cfg->n_heads = 1;
    cfg->n_kv_heads = 1;
    cfg->head_dim = 2;
    return TL_OK;
}

tl_status tl_model_config_parse(tl_model_config *out, const char *json, size_t json_len,
                                tl_error *err) {
    static const plain_json_limits limits = {MAX_FILE, MAX_NODES, MAX_NODES};
    if (out == NULL || json == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out or json is NULL");
    }
    TLI_TRY(plain_json_check(json, json_len, 0, &limits, "config.json", err));
    tl_model_config cfg = {0};
    TLI_TRY(read_config(strchr(json, '{'), &cfg, err));
    *out = cfg;
    return TL_OK;
}

static bool above_0(double x) {
    return (float)x > 0 && isfinite((float)x);
}

tl_status plain_config_check(const tl_model_config *cfg, tl_error *err) {
    const bool counts = cfg->vocab_size > 0 && cfg->n_layers > 0 && cfg->n_heads > 0 &&
                        cfg->n_kv_heads > 0 && cfg->n_kv_heads <= cfg->n_heads && cfg->head_dim > 0;
    const bool llama = cfg->hidden_size > 0 && cfg->intermediate_size > 0 &&
                       above_0(cfg->rope_theta) && above_0(cfg->rms_norm_eps);
    if (counts && (cfg->arch == TL_ARCH_BIGRAM || (cfg->arch == TL_ARCH_LLAMA && llama))) {
        return TL_OK;
    }
    return tli_fail(err, TL_ERR_INVALID, "the config is none that a config.json gives");
}

tl_status plain_config_load(tl_model_config *out, const plain_folder *folder, tl_error *err) {
    plain_file file;
    TLI_TRY(plain_folder_open(folder, "config.json", TL_WEIGHTS_COPY, MAX_FILE, &file, err));
    const tl_status status =
        tl_model_config_parse(out, (const char *)file.bytes, file.n_bytes, err);
    plain_file_close(&file);
    return status;
}

tl_status tl_model_config_load(tl_model_config *out, const char *dir, tl_error *err) {
    if (out == NULL || dir == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out or dir is NULL");
    }
    return plain_config_load(out, &(plain_folder){.dir = dir}, err);
}
