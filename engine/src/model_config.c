/* model_config.c: config.json to a tl_model_config, or a refusal that names the key and its
 * value.
 *
 * The order is the page's: which architecture, then everything that would be run wrongly
 * (UNSUPPORTED), then the numbers (FORMAT), so that a file of another family is told so. Rows
 * that differ in a name only are tables. A key that is null counts as absent everywhere, and a
 * key of no row is ignored.
 *
 * Source: conformance/spec/config.md. */
#include "tl/model.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "model_internal.h"
#include "util.h"

#define CONFIG_BYTES_MAX ((size_t)1024 * 1024)
#define COUNT_MAX (INT64_C(1) << 24)
#define LAYERS_MAX (INT64_C(1) << 16)
#define BYTE_VOCAB_MIN 256
#define DEFAULT_THETA 10000.0
#define DEFAULT_POSITIONS 2048
#define VALUE_SHOWN 72 /* bytes of a value that a message quotes */

static const tli_json_limits config_limits = {.max_bytes = CONFIG_BYTES_MAX,
                                              .max_depth = 64,
                                              .max_nodes = 100000,
                                              .max_member_nodes = 100000};

/* ------------------------------------------------------------------ values and refusals */

/* NULL when the key is not there or null. */
static json_t *find(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

typedef struct cut_text {
    char text[VALUE_SHOWN + 4];
    size_t n;
} cut_text;

/* jansson's sink: takes what fits, and ends the dump where no more does. */
static int add_cut(const char *piece, size_t n_piece, void *data) {
    cut_text *cut = (cut_text *)data;
    const size_t n_room = VALUE_SHOWN - cut->n;
    const size_t n = n_piece < n_room ? n_piece : n_room;
    memcpy(cut->text + cut->n, piece, n);
    cut->n += n;
    return n < n_piece ? -1 : 0;
}

/* The value as it would stand in a file, cut. */
static void value_text(const json_t *value, cut_text *cut) {
    const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9);
    cut->n = 0;
    if (value == NULL) {
        (void)snprintf(cut->text, sizeof cut->text, "missing");
        return;
    }
    const bool is_whole = json_dump_callback(value, add_cut, cut, flags) == 0;
    (void)snprintf(cut->text + cut->n, sizeof cut->text - cut->n, "%s", is_whole ? "" : "...");
}

/* "config.json: KEY is VALUE; RULE" */
static tl_status refuse(tl_error *err, tl_status status, const char *key, json_t *value,
                        const char *rule) {
    cut_text cut;
    value_text(value, &cut);
    return tli_fail(err, status, "config.json: %s is %s; %s", key, cut.text, rule);
}

static tl_status wrong_type(tl_error *err, const char *key, json_t *value, const char *rule) {
    return refuse(err, TL_ERR_FORMAT, key, value, rule);
}

static tl_status unsupported(tl_error *err, const char *key, json_t *value, const char *rule) {
    return refuse(err, TL_ERR_UNSUPPORTED, key, value, rule);
}

static bool is_text(json_t *value, const char *text) {
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* ------------------------------------------------------------------ rows of text */

/* A key whose value is one of two texts. */
typedef struct text_row {
    const char *key;
    const char *texts[2]; /* the second may be NULL */
    const char *rule;
} text_row;

static const text_row arch_row = {
    "tl_arch", {"llama", "bigram"}, "it must be \"llama\" or \"bigram\""};
static const text_row tokenizer_row = {
    "tl_tokenizer", {"byte", "bpe"}, "it must be \"byte\" or \"bpe\""};

/* Absent, or one of the texts. */
static const text_row optional_texts[] = {
    {"model_type", {"llama", "mistral"}, "only \"llama\" and \"mistral\" are run"},
    {"position_embedding_type", {"rope", NULL}, "only \"rope\" is run"},
    {"hidden_act", {"silu", "swish"}, "only \"silu\" (\"swish\") is run"},
    {"hidden_activation", {"silu", "swish"}, "only \"silu\" (\"swish\") is run"},
};

/* *which is the index of the text. A missing value is UNSUPPORTED, too: nothing says that the
 * file can be run. */
static tl_status read_text(json_t *value, const text_row *row, size_t *which, tl_error *err) {
    if (value != NULL && !json_is_string(value)) {
        return wrong_type(err, row->key, value, "it must be a string");
    }
    for (size_t i = 0; i < 2; i++) {
        if (row->texts[i] != NULL && is_text(value, row->texts[i])) {
            *which = i;
            return TL_OK;
        }
    }
    return unsupported(err, row->key, value, row->rule);
}

static tl_status read_identity(json_t *root, tl_model_config *cfg, tl_error *err) {
    size_t which = 0;
    TLI_TRY(read_text(find(root, arch_row.key), &arch_row, &which, err));
    cfg->arch = which == 0 ? TL_ARCH_LLAMA : TL_ARCH_BIGRAM;
    TLI_TRY(read_text(find(root, tokenizer_row.key), &tokenizer_row, &which, err));
    cfg->tokenizer = which == 0 ? TL_TOKENIZER_BYTE : TL_TOKENIZER_BPE;
    return TL_OK;
}

static tl_status check_texts(json_t *root, tl_error *err) {
    for (size_t i = 0; i < sizeof optional_texts / sizeof optional_texts[0]; i++) {
        json_t *value = find(root, optional_texts[i].key);
        size_t which = 0;
        if (value != NULL) {
            TLI_TRY(read_text(value, &optional_texts[i], &which, err));
        }
    }
    return TL_OK;
}

static bool is_list_of_names(json_t *value) {
    bool is_list = json_is_array(value);
    for (size_t i = 0; i < json_array_size(value); i++) {
        is_list = is_list && json_is_string(json_array_get(value, i));
    }
    return is_list;
}

static tl_status check_architectures(json_t *root, tl_error *err) {
    static const char rule[] = "it must be exactly one of LlamaForCausalLM, MistralForCausalLM";
    json_t *value = find(root, "architectures");
    if (value == NULL) {
        return TL_OK;
    }
    if (!is_list_of_names(value)) {
        return wrong_type(err, "architectures", value, "it must be a list of names");
    }
    json_t *name = json_array_get(value, 0);
    const bool known = is_text(name, "LlamaForCausalLM") || is_text(name, "MistralForCausalLM");
    if (json_array_size(value) != 1 || !known) {
        return unsupported(err, "architectures", value, rule);
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ what must not be there */

/* Each changes the result, whatever its value. */
static const char *const foreign_keys[] = {
    "quantization_config",  "quantization",   "compression_config",     "text_config",
    "num_local_experts",    "no_rope_layers", "attn_logit_softcapping", "final_logit_softcapping",
    "logit_scale",          "logits_scaling", "embedding_multiplier",   "residual_multiplier",
    "attention_multiplier", "auto_map",
};

static const char *const off_keys[] = {"attention_bias", "mlp_bias", "bias", "qkv_bias",
                                       "use_qk_norm"};

static tl_status check_foreign(json_t *root, tl_error *err) {
    for (size_t i = 0; i < sizeof foreign_keys / sizeof foreign_keys[0]; i++) {
        json_t *value = find(root, foreign_keys[i]);
        if (value != NULL) {
            return unsupported(err, foreign_keys[i], value, "it changes the result and is not run");
        }
    }
    return TL_OK;
}

static tl_status check_off(json_t *root, tl_error *err) {
    for (size_t i = 0; i < sizeof off_keys / sizeof off_keys[0]; i++) {
        json_t *value = find(root, off_keys[i]);
        if (value != NULL && !json_is_boolean(value)) {
            return wrong_type(err, off_keys[i], value, "it must be true or false");
        }
        if (json_is_true(value)) {
            return unsupported(err, off_keys[i], value, "only false is run");
        }
    }
    return TL_OK;
}

static tl_status check_window(json_t *root, tl_error *err) {
    json_t *use = find(root, "use_sliding_window");
    json_t *window = find(root, "sliding_window");
    if (use != NULL && !json_is_boolean(use)) {
        return wrong_type(err, "use_sliding_window", use, "it must be true or false");
    }
    if (window != NULL && !json_is_false(use)) {
        return unsupported(err, "sliding_window", window, "only full attention is run");
    }
    json_t *types = find(root, "layer_types");
    if (types != NULL && !is_list_of_names(types)) {
        return wrong_type(err, "layer_types", types, "it must be a list of names");
    }
    for (size_t i = 0; i < json_array_size(types); i++) {
        json_t *type = json_array_get(types, i);
        if (!is_text(type, "full_attention")) {
            return unsupported(err, "layer_types", type, "only \"full_attention\" is run");
        }
    }
    return TL_OK;
}

static tl_status check_partial(json_t *object, const char *where, tl_error *err) {
    json_t *value = find(object, "partial_rotary_factor");
    if (value == NULL) {
        return TL_OK;
    }
    if (!json_is_number(value)) {
        return wrong_type(err, where, value, "it must be a number");
    }
    if (json_number_value(value) != 1.0) {
        return unsupported(err, where, value, "only 1 is run");
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ numbers */

/* A real > 0 that is so also as f32. jansson has refused what is not finite as f64. */
static tl_status read_positive(json_t *value, const char *key, double *out, tl_error *err) {
    if (!json_is_number(value)) {
        return wrong_type(err, key, value, "it must be a number");
    }
    const double number = json_number_value(value);
    /* The ties that round to 0 and to infinity: 2^-150, and halfway from the largest f32 to
     * 2^128. */
    if (!(number > 0x1p-150 && number < 0x1.ffffffp127)) {
        return refuse(err, TL_ERR_FORMAT, key, value, "it must be above 0 and finite as f32");
    }
    *out = number;
    return TL_OK;
}

/* An integer from least to most. */
static tl_status read_count(json_t *value, const char *key, int64_t least, int64_t most,
                            size_t *out, tl_error *err) {
    char rule[64];
    if (!json_is_integer(value)) {
        return wrong_type(err, key, value, "it must be an integer");
    }
    const json_int_t number = json_integer_value(value);
    if (number < least || number > most) {
        (void)snprintf(rule, sizeof rule, "it must be from %lld to %lld", (long long)least,
                       (long long)most);
        return refuse(err, TL_ERR_FORMAT, key, value, rule);
    }
    *out = (size_t)number;
    return TL_OK;
}

typedef struct count_row {
    const char *key;
    size_t offset; /* of the field in tl_model_config */
    int64_t most;
} count_row;

static const count_row shape_rows[] = {
    {"hidden_size", offsetof(tl_model_config, hidden_size), COUNT_MAX},
    {"intermediate_size", offsetof(tl_model_config, intermediate_size), COUNT_MAX},
    {"num_hidden_layers", offsetof(tl_model_config, n_layers), LAYERS_MAX},
    {"num_attention_heads", offsetof(tl_model_config, n_heads), COUNT_MAX},
};

static tl_status read_shape(json_t *root, tl_model_config *cfg, tl_error *err) {
    for (size_t i = 0; i < sizeof shape_rows / sizeof shape_rows[0]; i++) {
        const count_row *row = &shape_rows[i];
        size_t count = 0;
        TLI_TRY(read_count(find(root, row->key), row->key, 1, row->most, &count, err));
        memcpy((char *)cfg + row->offset, &count, sizeof count);
    }
    return TL_OK;
}

static tl_status read_kv_heads(json_t *root, tl_model_config *cfg, tl_error *err) {
    json_t *value = find(root, "num_key_value_heads");
    if (value == NULL) {
        cfg->n_kv_heads = cfg->n_heads;
        return TL_OK;
    }
    TLI_TRY(read_count(value, "num_key_value_heads", 1, COUNT_MAX, &cfg->n_kv_heads, err));
    if (cfg->n_heads % cfg->n_kv_heads != 0) {
        return refuse(err, TL_ERR_FORMAT, "num_key_value_heads", value,
                      "it must divide num_attention_heads");
    }
    return TL_OK;
}

static tl_status read_head_dim(json_t *root, tl_model_config *cfg, tl_error *err) {
    json_t *value = find(root, "head_dim");
    if (value != NULL) {
        TLI_TRY(read_count(value, "head_dim", 2, COUNT_MAX, &cfg->head_dim, err));
    } else {
        if (cfg->hidden_size % cfg->n_heads != 0) {
            return tli_fail(err, TL_ERR_FORMAT,
                            "config.json: hidden_size %zu is no multiple of num_attention_heads "
                            "%zu, and head_dim is missing",
                            cfg->hidden_size, cfg->n_heads);
        }
        cfg->head_dim = cfg->hidden_size / cfg->n_heads;
    }
    if (cfg->head_dim % 2 != 0) {
        return tli_fail(err, TL_ERR_FORMAT, "config.json: head_dim is %zu; it must be even",
                        cfg->head_dim);
    }
    return TL_OK;
}

/* The bytes of a matrix in f32 fit memory, so that every product of two counts does. */
static tl_status check_matrix(const char *what, size_t n_out_a, size_t n_out_b, size_t n_in,
                              tl_error *err) {
    size_t n = 0;
    const bool fits =
        tli_mul(n_out_a, n_out_b, &n) && tli_mul(n, n_in, &n) && tli_mul(n, sizeof(float), &n);
    if (fits && n <= PTRDIFF_MAX) {
        return TL_OK;
    }
    return tli_fail(err, TL_ERR_FORMAT,
                    "config.json: %s is %zu x %zu x %zu, too large for this machine", what, n_out_a,
                    n_out_b, n_in);
}

static tl_status check_products(const tl_model_config *cfg, tl_error *err) {
    TLI_TRY(check_matrix("vocab_size x hidden_size", cfg->vocab_size, 1, cfg->hidden_size, err));
    TLI_TRY(check_matrix("num_attention_heads x head_dim x hidden_size", cfg->n_heads,
                         cfg->head_dim, cfg->hidden_size, err));
    TLI_TRY(check_matrix("intermediate_size x hidden_size", cfg->intermediate_size, 1,
                         cfg->hidden_size, err));
    return check_matrix("num_hidden_layers x hidden_size", 2 * cfg->n_layers + 1, 1,
                        cfg->hidden_size, err);
}

/* ------------------------------------------------------------------ rope */

/* One of the places where theta may stand; places that disagree are refused. */
static tl_status read_theta(json_t *object, const char *where, bool *found, double *theta,
                            tl_error *err) {
    json_t *value = find(object, "rope_theta");
    double here = 0.0;
    if (value == NULL) {
        return TL_OK;
    }
    TLI_TRY(read_positive(value, where, &here, err));
    if (*found && here != *theta) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "config.json: %s is %g, and another place of rope_theta says %g", where,
                        here, *theta);
    }
    *found = true;
    *theta = here;
    return TL_OK;
}

typedef struct rope_place {
    const char *key, *theta, *partial;
    bool needs_type;
} rope_place;

static const rope_place rope_places[] = {
    {"rope_parameters", "rope_parameters.rope_theta", "rope_parameters.partial_rotary_factor",
     false},
    {"rope_scaling", "rope_scaling.rope_theta", "rope_scaling.partial_rotary_factor", true},
};

#define N_ROPE_PLACES (sizeof rope_places / sizeof rope_places[0])

/* `key` is rope_type or, in older files, type. */
static tl_status check_rope_type(json_t *object, const char *where, const char *key,
                                 tl_error *err) {
    json_t *type = find(object, key);
    char path[64];
    (void)snprintf(path, sizeof path, "%s.%s", where, key);
    if (type != NULL && !json_is_string(type)) {
        return wrong_type(err, path, type, "it must be a string");
    }
    if (type != NULL && !is_text(type, "default")) {
        return unsupported(err, path, type, "only the rope type \"default\" is run");
    }
    return TL_OK;
}

/* Whatever else stands there scales, cuts or nests. */
static tl_status check_rope_keys(json_t *object, const char *where, tl_error *err) {
    static const char *const known[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(object, key, value) {
        bool is_known = json_is_null(value);
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            is_known = is_known || strcmp(key, known[i]) == 0;
        }
        if (!is_known) {
            char path[96];
            (void)snprintf(path, sizeof path, "%s.%.60s", where, key);
            return unsupported(err, path, value, "only the default rope is run");
        }
    }
    return TL_OK;
}

static tl_status check_rope_place(json_t *root, const rope_place *place, tl_error *err) {
    json_t *object = find(root, place->key);
    if (object == NULL) {
        return TL_OK;
    }
    if (!json_is_object(object)) {
        return wrong_type(err, place->key, object, "it must be an object");
    }
    TLI_TRY(check_rope_type(object, place->key, "rope_type", err));
    TLI_TRY(check_rope_type(object, place->key, "type", err));
    TLI_TRY(check_partial(object, place->partial, err));
    TLI_TRY(check_rope_keys(object, place->key, err));
    const bool has_type = find(object, "rope_type") != NULL || find(object, "type") != NULL;
    if (place->needs_type && !has_type) {
        return unsupported(err, place->key, object, "it must say its rope_type");
    }
    return TL_OK;
}

static tl_status read_rope_theta(json_t *root, tl_model_config *cfg, tl_error *err) {
    bool found = false;
    cfg->rope_theta = DEFAULT_THETA;
    TLI_TRY(read_theta(root, "rope_theta", &found, &cfg->rope_theta, err));
    for (size_t i = 0; i < N_ROPE_PLACES; i++) {
        json_t *object = find(root, rope_places[i].key);
        TLI_TRY(read_theta(object, rope_places[i].theta, &found, &cfg->rope_theta, err));
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ the rest, and the whole */

static tl_status read_vocab(json_t *root, tl_model_config *cfg, tl_error *err) {
    json_t *value = find(root, "vocab_size");
    TLI_TRY(read_count(value, "vocab_size", 1, COUNT_MAX, &cfg->vocab_size, err));
    if (cfg->tokenizer == TL_TOKENIZER_BYTE && cfg->vocab_size < BYTE_VOCAB_MIN) {
        return refuse(err, TL_ERR_FORMAT, "vocab_size", value,
                      "the tokenizer \"byte\" needs at least 256");
    }
    return TL_OK;
}

static tl_status read_positions(json_t *root, tl_model_config *cfg, tl_error *err) {
    static const char key[] = "max_position_embeddings";
    json_t *value = find(root, key);
    cfg->max_positions = DEFAULT_POSITIONS;
    return value == NULL ? TL_OK : read_count(value, key, 1, COUNT_MAX, &cfg->max_positions, err);
}

static tl_status read_tie(json_t *root, tl_model_config *cfg, tl_error *err) {
    json_t *value = find(root, "tie_word_embeddings");
    if (value != NULL && !json_is_boolean(value)) {
        return wrong_type(err, "tie_word_embeddings", value, "it must be true or false");
    }
    cfg->tie_word_embeddings = json_is_true(value);
    return TL_OK;
}

static tl_status add_eos_id(json_t *value, tl_model_config *cfg, tl_error *err) {
    size_t id = 0;
    const int64_t last = (int64_t)cfg->vocab_size - 1;
    TLI_TRY(read_count(value, "eos_token_id", 0, last, &id, err));
    for (size_t i = 0; i < cfg->n_eos_token_ids; i++) {
        if (cfg->eos_token_ids[i] == id) {
            return refuse(err, TL_ERR_FORMAT, "eos_token_id", value, "it stands twice in the list");
        }
    }
    cfg->eos_token_ids[cfg->n_eos_token_ids] = (uint32_t)id; /* below 2^24 */
    cfg->n_eos_token_ids++;
    return TL_OK;
}

static tl_status read_eos(json_t *root, tl_model_config *cfg, tl_error *err) {
    json_t *value = find(root, "eos_token_id");
    if (value == NULL) {
        return TL_OK;
    }
    if (!json_is_array(value)) {
        return add_eos_id(value, cfg, err);
    }
    const size_t n_ids = json_array_size(value);
    if (n_ids < 1 || n_ids > TL_EOS_IDS_MAX) {
        return refuse(err, TL_ERR_FORMAT, "eos_token_id", value, "a list must have 1 to 16 ids");
    }
    for (size_t i = 0; i < n_ids; i++) {
        TLI_TRY(add_eos_id(json_array_get(value, i), cfg, err));
    }
    return TL_OK;
}

/* What is sound and would be run wrongly. */
static tl_status check_llama(json_t *root, tl_error *err) {
    TLI_TRY(check_texts(root, err));
    TLI_TRY(check_architectures(root, err));
    TLI_TRY(check_foreign(root, err));
    TLI_TRY(check_off(root, err));
    TLI_TRY(check_window(root, err));
    TLI_TRY(check_partial(root, "partial_rotary_factor", err));
    for (size_t i = 0; i < N_ROPE_PLACES; i++) {
        TLI_TRY(check_rope_place(root, &rope_places[i], err));
    }
    return TL_OK;
}

static tl_status read_llama(json_t *root, tl_model_config *cfg, tl_error *err) {
    json_t *eps = find(root, "rms_norm_eps");
    TLI_TRY(read_shape(root, cfg, err));
    TLI_TRY(read_kv_heads(root, cfg, err));
    TLI_TRY(read_head_dim(root, cfg, err));
    TLI_TRY(check_products(cfg, err));
    TLI_TRY(read_positive(eps, "rms_norm_eps", &cfg->rms_norm_eps, err));
    TLI_TRY(read_rope_theta(root, cfg, err));
    return read_tie(root, cfg, err);
}

/* The bigram's pool: the smallest that forward can keep count in. */
static tl_status set_bigram(tl_model_config *cfg, tl_error *err) {
    cfg->n_layers = 1;
    cfg->n_heads = 1;
    cfg->n_kv_heads = 1;
    cfg->head_dim = 2;
    return check_matrix("vocab_size x vocab_size", cfg->vocab_size, 1, cfg->vocab_size, err);
}

static tl_status read_config(json_t *root, tl_model_config *cfg, tl_error *err) {
    TLI_TRY(read_identity(root, cfg, err));
    const bool is_llama = cfg->arch == TL_ARCH_LLAMA;
    if (is_llama) {
        TLI_TRY(check_llama(root, err));
    }
    TLI_TRY(read_vocab(root, cfg, err));
    TLI_TRY(is_llama ? read_llama(root, cfg, err) : set_bigram(cfg, err));
    TLI_TRY(read_positions(root, cfg, err));
    return read_eos(root, cfg, err);
}

tl_status tl_model_config_parse(tl_model_config *out, const char *json, size_t json_len,
                                tl_error *err) {
    const tli_json_span text = {.text = json, .len = json_len};
    tl_model_config cfg = {0};
    json_t *root = NULL;
    if (out == NULL || (json == NULL && json_len > 0)) {
        return tli_fail(err, TL_ERR_INVALID, "tl_model_config_parse: an argument is NULL");
    }
    TLI_TRY(tli_json_object(&root, text, &config_limits, TLI_CONFIG_NAME, err));
    const tl_status status = read_config(root, &cfg, err);
    json_decref(root);
    if (status == TL_OK) {
        *out = cfg;
    }
    return status;
}

tl_status tl_model_config_load(tl_model_config *out, const char *dir, tl_error *err) {
    tli_bytes bytes = {0};
    if (out == NULL || dir == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "tl_model_config_load: an argument is NULL");
    }
    char *path = tli_path_join(dir, TLI_CONFIG_NAME);
    if (path == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for the path of config.json");
    }
    tl_status status = tli_file_read(&bytes, path, CONFIG_BYTES_MAX, err);
    free(path);
    if (status == TL_OK) {
        status = tl_model_config_parse(out, (const char *)bytes.data, bytes.n, err);
    }
    tli_bytes_clear(&bytes);
    return status;
}
