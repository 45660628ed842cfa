/* model_maker.c: draw models, read them from the goldens, turn them into others, write them; see
 * model_maker.h. */
#include "model_maker.h"
#include "naive_quant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------ shape and config */

static size_t count_or(const json_t *config, const char *key, size_t none) {
    const json_t *value = json_object_get(config, key);
    return json_is_integer(value) ? (size_t)json_integer_value(value) : none;
}

/* Theta stands at the top level or inside one of two objects. */
static double theta_of(const json_t *config) {
    static const char *const homes[] = {"rope_parameters", "rope_scaling"};
    const json_t *theta = json_object_get(config, "rope_theta");
    for (size_t i = 0; i < 2 && !json_is_number(theta); i++) {
        theta = json_object_get(json_object_get(config, homes[i]), "rope_theta");
    }
    return json_is_number(theta) ? json_number_value(theta) : 10000.0;
}

static void eos_of(tm_shape *shape, const json_t *config) {
    const json_t *eos = json_object_get(config, "eos_token_id");
    if (json_is_integer(eos)) {
        shape->eos[shape->n_eos++] = (uint32_t)json_integer_value(eos);
    }
    for (size_t i = 0; i < json_array_size(eos) && i < 16; i++) {
        shape->eos[shape->n_eos++] = (uint32_t)json_integer_value(json_array_get(eos, i));
    }
}

static tm_shape shape_from(ol_test *t, const json_t *config) {
    const char *arch = json_string_value(json_object_get(config, "tl_arch"));
    const char *tokenizer = json_string_value(json_object_get(config, "tl_tokenizer"));
    tm_shape shape = {.llama = arch != NULL && strcmp(arch, "llama") == 0, .theta = 10000.0};
    shape.tokenizer = ol_text(t, "%s", tokenizer == NULL ? "" : tokenizer);
    shape.vocab = count_or(config, "vocab_size", 0);
    shape.positions = count_or(config, "max_position_embeddings", 2048);
    eos_of(&shape, config);
    if (shape.llama) {
        shape.hidden = count_or(config, "hidden_size", 0);
        shape.inter = count_or(config, "intermediate_size", 0);
        shape.layers = count_or(config, "num_hidden_layers", 0);
        shape.heads = count_or(config, "num_attention_heads", 1);
        shape.kv_heads = count_or(config, "num_key_value_heads", shape.heads);
        shape.head_dim = count_or(config, "head_dim", shape.hidden / shape.heads);
        shape.tied = json_is_true(json_object_get(config, "tie_word_embeddings"));
        shape.theta = theta_of(config);
    }
    return shape;
}

tm_shape tm_shape_of(ol_test *t, const ol_case *c, const char *model) {
    size_t n = 0;
    const uint8_t *bytes = ol_model_file(t, c, model, "config.json", &n);
    json_t *config = json_loadb((const char *)bytes, n, 0, NULL);
    tm_shape shape = shape_from(t, config);
    json_decref(config);
    return shape;
}

static const char *llama_config(ol_test *t, const tm_shape *s) {
    return ol_text(t,
                   "{\"tl_arch\": \"llama\", \"tl_tokenizer\": \"bpe\", \"vocab_size\": %zu, "
                   "\"hidden_size\": %zu, \"intermediate_size\": %zu, \"num_hidden_layers\": %zu, "
                   "\"num_attention_heads\": %zu, \"num_key_value_heads\": %zu, "
                   "\"head_dim\": %zu, \"max_position_embeddings\": %zu, "
                   "\"rms_norm_eps\": 1e-05, \"rope_theta\": 10000, "
                   "\"tie_word_embeddings\": %s}\n",
                   s->vocab, s->hidden, s->inter, s->layers, s->heads, s->kv_heads, s->head_dim,
                   s->positions, s->tied ? "true" : "false");
}

/* ------------------------------------------------------------------ tensors */

static tm_model *new_model(ol_test *t, const tm_shape *shape, const char *config, size_t max) {
    tm_model *m = ol_alloc(t, sizeof *m);
    m->shape = *shape;
    m->config = config;
    m->config_len = strlen(config);
    m->tensors = ol_alloc(t, max * sizeof *m->tensors);
    return m;
}

/* Append a tensor with room for its bytes; the values of what is no U8 come from the caller. */
static tm_tensor *add(ol_test *t, tm_model *m, const char *name, const char *dtype, size_t rows,
                      size_t columns) {
    tm_tensor *tensor = &m->tensors[m->n_tensors++];
    size_t n_columns = columns == 0 ? 1 : columns;
    *tensor = (tm_tensor){.name = name, .dtype = dtype, .dims = {rows, n_columns}};
    tensor->n_dims = columns == 0 ? 1 : 2;
    tensor->n_bytes = rows * n_columns * tm_dtype_bytes(dtype);
    tensor->bytes = ol_alloc(t, tensor->n_bytes);
    if (tm_dtype_bytes(dtype) > 1) {
        tensor->values = ol_alloc(t, rows * n_columns * sizeof *tensor->values);
    }
    return tensor;
}

static size_t n_values(const tm_tensor *tensor) {
    return tensor->dims[0] * tensor->dims[1];
}

const tm_tensor *tm_find(const tm_model *m, const char *name) {
    for (size_t i = 0; i < m->n_tensors; i++) {
        if (strcmp(m->tensors[i].name, name) == 0) {
            return &m->tensors[i];
        }
    }
    return NULL;
}

bool tm_is_quantized(const tm_model *m, const tm_tensor *tensor) {
    bool head = strcmp(tensor->name, "lm_head.weight") == 0;
    bool projection = strstr(tensor->name, "_proj.weight") != NULL;
    return projection || (head && !m->shape.tied);
}

/* ------------------------------------------------------------------ drawing */

/* A weight matrix whose outputs are of order `gain` for inputs of order one. */
static void draw_matrix(ol_test *t, tm_model *m, const char *name, const char *dtype, size_t rows,
                        size_t columns, double gain) {
    tm_tensor *tensor = add(t, m, name, dtype, rows, columns);
    float scale = (float)gain;
    for (size_t i = 0; i < n_values(tensor); i++) {
        tensor->values[i] = scale * ol_rand_normal(t);
    }
    tm_store(dtype, tensor->values, n_values(tensor), tensor->bytes);
}

/* A norm's weights scatter around one. A tied model's final norm has signs, or each token would
 * do little but predict itself. */
static void draw_norm(ol_test *t, tm_model *m, const char *name, const char *dtype, bool signs) {
    tm_tensor *tensor = add(t, m, name, dtype, m->shape.hidden, 0);
    for (size_t i = 0; i < n_values(tensor); i++) {
        float w = 1.0f + 0.25f * ol_rand_normal(t);
        tensor->values[i] = signs && ol_rand_below(t, 2) == 1 ? -w : w;
    }
    tm_store(dtype, tensor->values, n_values(tensor), tensor->bytes);
}

static void draw_layer(ol_test *t, tm_model *m, const char *dtype, size_t layer) {
    const tm_shape *s = &m->shape;
    size_t q = s->heads * s->head_dim;
    size_t kv = s->kv_heads * s->head_dim;
    double from_hidden = 1.0 / sqrt((double)s->hidden);
    const char *at = ol_text(t, "model.layers.%zu.", layer);
    draw_norm(t, m, ol_text(t, "%sinput_layernorm.weight", at), dtype, false);
    draw_matrix(t, m, ol_text(t, "%sself_attn.q_proj.weight", at), dtype, q, s->hidden,
                from_hidden);
    draw_matrix(t, m, ol_text(t, "%sself_attn.k_proj.weight", at), dtype, kv, s->hidden,
                from_hidden);
    draw_matrix(t, m, ol_text(t, "%sself_attn.v_proj.weight", at), dtype, kv, s->hidden,
                from_hidden);
    /* Below the MLP's share, since the attention carries the rounding of K and V. */
    draw_matrix(t, m, ol_text(t, "%sself_attn.o_proj.weight", at), dtype, s->hidden, q,
                0.6 / sqrt((double)q));
    draw_norm(t, m, ol_text(t, "%spost_attention_layernorm.weight", at), dtype, false);
    draw_matrix(t, m, ol_text(t, "%smlp.gate_proj.weight", at), dtype, s->inter, s->hidden,
                from_hidden);
    draw_matrix(t, m, ol_text(t, "%smlp.up_proj.weight", at), dtype, s->inter, s->hidden,
                from_hidden);
    draw_matrix(t, m, ol_text(t, "%smlp.down_proj.weight", at), dtype, s->hidden, s->inter,
                1.0 / sqrt((double)s->inter));
}

tm_model *tm_draw(ol_test *t, const tm_shape *shape, const char *dtype) {
    tm_model *m = new_model(t, shape, llama_config(t, shape), 3 + 9 * shape->layers);
    m->shape.llama = true;
    m->shape.theta = 10000.0;
    draw_matrix(t, m, "model.embed_tokens.weight", dtype, shape->vocab, shape->hidden, 1.0);
    for (size_t layer = 0; layer < shape->layers; layer++) {
        draw_layer(t, m, dtype, layer);
    }
    draw_norm(t, m, "model.norm.weight", dtype, shape->tied);
    if (!shape->tied) {
        draw_matrix(t, m, "lm_head.weight", dtype, shape->vocab, shape->hidden,
                    1.0 / sqrt((double)shape->hidden));
    }
    return m;
}

tm_model *tm_draw_bigram(ol_test *t) {
    tm_shape shape = {.vocab = 256, .positions = 64, .tokenizer = "byte", .eos = {0}, .n_eos = 1};
    tm_model *m = new_model(t, &shape,
                            "{\"tl_arch\": \"bigram\", \"tl_tokenizer\": \"byte\", "
                            "\"vocab_size\": 256, \"max_position_embeddings\": 64, "
                            "\"eos_token_id\": 0}\n",
                            1);
    tm_tensor *tensor = add(t, m, "bigram.weight", "F32", 256, 256);
    for (size_t i = 0; i < n_values(tensor); i++) {
        tensor->values[i] = ol_rand_normal(t);
    }
    for (size_t letter = 'a'; letter < 'z'; letter++) {
        tensor->values[letter * 256 + letter + 1] = 16.0f;
    }
    tm_store("F32", tensor->values, n_values(tensor), tensor->bytes);
    return m;
}

/* ------------------------------------------------------------------ reading a golden's */

static uint64_t length_field(const uint8_t *bytes) {
    uint64_t n = 0;
    for (size_t i = 8; i > 0; i--) {
        n = (n << 8) | bytes[i - 1];
    }
    return n;
}

static void read_tensor(ol_test *t, tm_model *m, const char *name, const json_t *entry,
                        const uint8_t *data) {
    static const char *const dtypes[] = {"F32", "F16", "BF16", "U8"};
    const char *word = json_string_value(json_object_get(entry, "dtype"));
    const json_t *dims = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    const char *dtype = "U8";
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        dtype = word != NULL && strcmp(word, dtypes[i]) == 0 ? dtypes[i] : dtype;
    }
    size_t rows = (size_t)json_integer_value(json_array_get(dims, 0));
    size_t columns = (size_t)json_integer_value(json_array_get(dims, 1)); /* 0 when not there */
    tm_tensor *tensor = add(t, m, ol_text(t, "%s", name), dtype, rows, columns);
    memcpy(tensor->bytes, data + begin, tensor->n_bytes);
    (void)tm_widen(dtype, tensor->bytes, n_values(tensor), tensor->values);
}

tm_model *tm_read(ol_test *t, const ol_case *c, const char *model) {
    size_t n_config = 0;
    size_t n = 0;
    const uint8_t *config = ol_model_file(t, c, model, "config.json", &n_config);
    const uint8_t *file = ol_model_file(t, c, model, "model.safetensors", &n);
    size_t n_header = (size_t)length_field(file);
    tm_shape shape = tm_shape_of(t, c, model);
    json_t *header = json_loadb((const char *)file + 8, n_header, 0, NULL);
    tm_model *m = new_model(t, &shape, ol_text(t, "%.*s", (int)n_config, (const char *)config),
                            json_object_size(header) + 1);
    const char *name = NULL;
    json_t *entry = NULL;
    json_object_foreach(header, name, entry) {
        if (strcmp(name, "__metadata__") != 0) {
            read_tensor(t, m, name, entry, file + 8 + n_header);
        }
    }
    json_decref(header);
    return m;
}

/* ------------------------------------------------------------------ int4 and its twin */

/* The quotients and scales of a whole matrix. */
static void quantize(ol_test *t, const tm_tensor *w, size_t group, int8_t **q, uint16_t **scales) {
    size_t n_groups = n_values(w) / group;
    *q = ol_alloc(t, n_values(w));
    *scales = ol_alloc(t, n_groups * sizeof **scales);
    for (size_t i = 0; i < n_groups; i++) {
        (*scales)[i] = tm_quantize_group(w->values + i * group, group, *q + i * group);
    }
}

static void add_pair(ol_test *t, tm_model *m, const tm_tensor *w, size_t group) {
    int8_t *q = NULL;
    uint16_t *scales = NULL;
    quantize(t, w, group, &q, &scales);
    int base = (int)(strlen(w->name) - strlen(".weight"));
    size_t rows = w->dims[0];
    size_t columns = w->dims[1];
    tm_tensor *packed =
        add(t, m, ol_text(t, "%.*s.qweight", base, w->name), "U8", rows, columns / 2);
    for (size_t b = 0; b < packed->n_bytes; b++) {
        unsigned low = (unsigned)q[2 * b] & 15u;
        unsigned high = (unsigned)q[2 * b + 1] & 15u;
        packed->bytes[b] = (uint8_t)(low | (high << 4));
    }
    tm_tensor *stored =
        add(t, m, ol_text(t, "%.*s.scales", base, w->name), "F16", rows, columns / group);
    for (size_t i = 0; i < n_values(stored); i++) {
        stored->values[i] = naive_f32_of(naive_f16_widen(scales[i]));
        stored->bytes[2 * i] = (uint8_t)(scales[i] & 0xffu);
        stored->bytes[2 * i + 1] = (uint8_t)(scales[i] >> 8);
    }
}

tm_model *tm_int4(ol_test *t, const tm_model *m, size_t group) {
    tm_model *made = new_model(t, &m->shape, m->config, 2 * m->n_tensors);
    made->int4_group = group;
    for (size_t i = 0; i < m->n_tensors; i++) {
        if (tm_is_quantized(m, &m->tensors[i])) {
            add_pair(t, made, &m->tensors[i], group);
        } else {
            made->tensors[made->n_tensors++] = m->tensors[i];
        }
    }
    return made;
}

tm_model *tm_dequantized(ol_test *t, const tm_model *m, size_t group) {
    tm_model *made = new_model(t, &m->shape, m->config, m->n_tensors);
    for (size_t i = 0; i < m->n_tensors; i++) {
        const tm_tensor *w = &m->tensors[i];
        if (!tm_is_quantized(m, w)) {
            made->tensors[made->n_tensors++] = *w;
            continue;
        }
        int8_t *q = NULL;
        uint16_t *scales = NULL;
        quantize(t, w, group, &q, &scales);
        tm_tensor *plain = add(t, made, w->name, "F32", w->dims[0], w->dims[1]);
        for (size_t j = 0; j < n_values(w); j++) {
            plain->values[j] = (float)q[j] * naive_f32_of(naive_f16_widen(scales[j / group]));
        }
        tm_store("F32", plain->values, n_values(w), plain->bytes);
    }
    return made;
}

/* ------------------------------------------------------------------ writing */

static json_t *header_of(const tm_model *m) {
    json_t *header = json_object();
    if (m->int4_group != 0) {
        char quant[48];
        (void)snprintf(quant, sizeof quant, "int4-g%zu-sym", m->int4_group);
        (void)json_object_set_new(header, "__metadata__", json_pack("{s:s}", "quant", quant));
    }
    size_t begin = 0;
    for (size_t i = 0; i < m->n_tensors; i++) {
        const tm_tensor *tensor = &m->tensors[i];
        json_t *dims = json_array();
        for (size_t d = 0; d < tensor->n_dims; d++) {
            (void)json_array_append_new(dims, json_integer((json_int_t)tensor->dims[d]));
        }
        size_t end = begin + tensor->n_bytes;
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", tensor->dtype, "shape", dims,
                                  "data_offsets", (json_int_t)begin, (json_int_t)end);
        (void)json_object_set_new(header, tensor->name, entry);
        begin = end;
    }
    return header;
}

/* The whole file; the header is not padded, so that the data lies at any address. */
static uint8_t *file_of(ol_test *t, const tm_model *m, size_t *n) {
    json_t *header = header_of(m);
    size_t n_header = json_dumpb(header, NULL, 0, JSON_COMPACT);
    size_t n_data = 0;
    for (size_t i = 0; i < m->n_tensors; i++) {
        n_data += m->tensors[i].n_bytes;
    }
    *n = 8 + n_header + n_data;
    uint8_t *file = ol_alloc(t, *n);
    for (size_t i = 0; i < 8; i++) {
        file[i] = (uint8_t)(((uint64_t)n_header >> (8 * i)) & 0xffu);
    }
    (void)json_dumpb(header, (char *)file + 8, n_header, JSON_COMPACT);
    json_decref(header);
    uint8_t *at = file + 8 + n_header;
    for (size_t i = 0; i < m->n_tensors; i++) {
        memcpy(at, m->tensors[i].bytes, m->tensors[i].n_bytes);
        at += m->tensors[i].n_bytes;
    }
    return file;
}

void tm_put(ol_test *t, const tm_model *m, const char *dir) {
    size_t n = 0;
    const uint8_t *file = file_of(t, m, &n);
    ol_put_file(t, ol_text(t, "%s/config.json", dir), (const uint8_t *)m->config, m->config_len);
    ol_put_file(t, ol_text(t, "%s/model.safetensors", dir), file, n);
}
