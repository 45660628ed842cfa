/* bench_model.c: a checkpoint of SmolLM2-135M's shape with random weights, written into memory as a
 * safetensors file and loaded like any other.
 *
 * Linears are F32, BF16 or int4 in groups of 32 (the embedding, which is the head too, is BF16
 * beside int4 linears, as such files have it). The random numbers are small, so that activations
 * stay finite; speed does not depend on them.
 *
 * Source: conformance/spec/safetensors.md. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define HIDDEN ((size_t)576)
#define LAYERS ((size_t)30)
#define Q_WIDTH ((size_t)576)
#define KV_WIDTH ((size_t)192)
#define INTER ((size_t)1536)
#define VOCAB ((size_t)49152)
#define GROUP ((size_t)32)
#define HEADER_CAP ((size_t)256 * 1024)
#define FILE_CAP ((size_t)600 * 1024 * 1024)

static const char config[] =
    "{\"tl_arch\":\"llama\",\"tl_tokenizer\":\"bpe\",\"vocab_size\":49152,\"hidden_size\":576,"
    "\"intermediate_size\":1536,\"num_hidden_layers\":30,\"num_attention_heads\":9,"
    "\"num_key_value_heads\":3,\"max_position_embeddings\":2048,\"rms_norm_eps\":1e-5,"
    "\"tie_word_embeddings\":true}";

/* A file that grows: first the data of each tensor, behind room for the header. */
typedef struct writer {
    char *header;
    size_t header_len;
    uint8_t *data;
    size_t n_data;
    uint32_t random;
} writer;

static uint32_t next_random(writer *w) {
    w->random = w->random * 1664525u + 1013904223u;
    return w->random >> 8;
}

static void add_entry(writer *w, const char *name, const char *dtype, size_t rows, size_t cols,
                      size_t n_bytes) {
    char shape[64];
    (void)snprintf(shape, sizeof shape, cols == 0 ? "%zu" : "%zu,%zu", rows, cols);
    const int n = snprintf(w->header + w->header_len, HEADER_CAP - w->header_len,
                           ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                           name, dtype, shape, w->n_data, w->n_data + n_bytes);
    w->header_len += (size_t)n;
    w->n_data += n_bytes;
}

static void add_f32(writer *w, const char *name, size_t rows, size_t cols) {
    uint8_t *to = w->data + w->n_data;
    for (size_t i = 0; i < rows * cols; i++) {
        const float x = ((float)(next_random(w) & 0xffff) - 32768.0f) * (0.05f / 32768.0f);
        memcpy(to + 4 * i, &x, sizeof x);
    }
    add_entry(w, name, "F32", rows, cols, 4 * rows * cols);
}

static void add_bf16(writer *w, const char *name, size_t rows, size_t cols) {
    uint8_t *to = w->data + w->n_data;
    for (size_t i = 0; i < rows * cols; i++) {
        const uint32_t r = next_random(w);
        to[2 * i] = (uint8_t)r;
        to[2 * i + 1] = (uint8_t)(0x3c | (r >> 8 & 0x80)); /* about 0.01, either sign */
    }
    add_entry(w, name, "BF16", rows, cols, 2 * rows * cols);
}

static void add_int4(writer *w, const char *name, size_t rows, size_t cols) {
    char part[160];
    uint8_t *to = w->data + w->n_data;
    for (size_t i = 0; i < rows * cols / 2; i++) {
        to[i] = (uint8_t)next_random(w);
    }
    (void)snprintf(part, sizeof part, "%s.qweight", name);
    add_entry(w, part, "U8", rows, cols / 2, rows * cols / 2);
    to = w->data + w->n_data;
    for (size_t i = 0; i < rows * cols / GROUP; i++) {
        to[2 * i] = (uint8_t)next_random(w);
        to[2 * i + 1] = 0x18; /* f16, about 0.002 */
    }
    (void)snprintf(part, sizeof part, "%s.scales", name);
    add_entry(w, part, "F16", rows, cols / GROUP, rows * cols / GROUP * 2);
}

static void add_norm(writer *w, const char *name) {
    for (size_t i = 0; i < HIDDEN; i++) {
        const float one = 1.0f;
        memcpy(w->data + w->n_data + 4 * i, &one, sizeof one);
    }
    add_entry(w, name, "F32", HIDDEN, 0, 4 * HIDDEN);
}

static void add_linear(writer *w, bench_kind kind, const char *name, size_t rows, size_t cols) {
    char weight[160];
    (void)snprintf(weight, sizeof weight, "%s.weight", name);
    if (kind == BENCH_F32) {
        add_f32(w, weight, rows, cols);
    } else if (kind == BENCH_BF16) {
        add_bf16(w, weight, rows, cols);
    } else {
        add_int4(w, name, rows, cols);
    }
}

static void add_layer(writer *w, bench_kind kind, size_t i_layer) {
    const struct {
        const char *name;
        size_t rows, cols;
    } linears[] = {{"self_attn.q_proj", Q_WIDTH, HIDDEN},  {"self_attn.k_proj", KV_WIDTH, HIDDEN},
                   {"self_attn.v_proj", KV_WIDTH, HIDDEN}, {"self_attn.o_proj", HIDDEN, Q_WIDTH},
                   {"mlp.gate_proj", INTER, HIDDEN},       {"mlp.up_proj", INTER, HIDDEN},
                   {"mlp.down_proj", HIDDEN, INTER}};
    char name[128];
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++) {
        (void)snprintf(name, sizeof name, "model.layers.%zu.%s", i_layer, linears[i].name);
        add_linear(w, kind, name, linears[i].rows, linears[i].cols);
    }
    (void)snprintf(name, sizeof name, "model.layers.%zu.input_layernorm.weight", i_layer);
    add_norm(w, name);
    (void)snprintf(name, sizeof name, "model.layers.%zu.post_attention_layernorm.weight", i_layer);
    add_norm(w, name);
}

static void write_tensors(writer *w, bench_kind kind) {
    w->header_len = (size_t)snprintf(w->header, HEADER_CAP, "{\"__metadata__\":{%s}",
                                     kind == BENCH_INT4 ? "\"quant\":\"int4-g32-sym\"" : "");
    if (kind == BENCH_F32) {
        add_f32(w, "model.embed_tokens.weight", VOCAB, HIDDEN);
    } else {
        add_bf16(w, "model.embed_tokens.weight", VOCAB, HIDDEN);
    }
    add_norm(w, "model.norm.weight");
    for (size_t i = 0; i < LAYERS; i++) {
        add_layer(w, kind, i);
    }
    w->header[w->header_len++] = '}';
    while (w->header_len % 8 != 0) {
        w->header[w->header_len++] = ' ';
    }
}

static void count_work(bench_model *m, bench_kind kind) {
    const size_t a_layer = 2 * HIDDEN * Q_WIDTH + 2 * HIDDEN * KV_WIDTH + 3 * HIDDEN * INTER;
    const double layer_bytes[] = {4, 2, 0.5 + 2.0 / (double)GROUP};
    m->n_layer_weights = (double)(LAYERS * a_layer);
    m->n_head_weights = (double)(VOCAB * HIDDEN);
    m->n_weight_bytes =
        m->n_layer_weights * layer_bytes[kind] + m->n_head_weights * (kind == BENCH_F32 ? 4 : 2);
}

const char *bench_model_new(bench_model *out, bench_kind kind) {
    static char reason[TL_ERROR_TEXT_CAP];
    *out = (bench_model){0};
    writer w = {.random = 1};
    w.header = malloc(HEADER_CAP);
    out->file = malloc(FILE_CAP);
    if (w.header == NULL || out->file == NULL) {
        free(w.header);
        free(out->file);
        *out = (bench_model){0};
        return "no memory for 600 MiB of weights";
    }
    w.data = out->file + HEADER_CAP; /* the file proper starts before this, right at its header */
    write_tensors(&w, kind);
    uint8_t *start = w.data - w.header_len - 8;
    for (size_t i = 0; i < 8; i++) {
        start[i] = (uint8_t)((uint64_t)w.header_len >> (8 * i));
    }
    memcpy(start + 8, w.header, w.header_len);
    out->n_file = 8 + w.header_len + w.n_data;
    free(w.header);
    const tl_file_view files[] = {{"config.json", (const uint8_t *)config, sizeof config - 1},
                                  {"model.safetensors", start, out->n_file}};
    tl_error err = {0};
    if (tl_model_view(&out->model, files, 2, NULL, &err) != TL_OK) {
        (void)snprintf(reason, sizeof reason, "%s", err.text);
        bench_model_free(out);
        return reason;
    }
    count_work(out, kind);
    return NULL;
}

void bench_model_free(bench_model *model) {
    tl_model_free(model->model);
    free(model->file);
    *model = (bench_model){0};
}
