/* model_fixture.h: what the tests of the model module share: files made in memory, checks of
 * refusals.
 *
 * A file is made from a list of tensors; each byte of its data buffer tells its position, so
 * that a value read from the wrong place shows. */
#ifndef MODEL_FIXTURE_H
#define MODEL_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tl/model.h"
#include "util.h"

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* A growing piece of memory; data is exactly n bytes for the sanitizer's sake after blob_fit. */
typedef struct blob {
    uint8_t *data;
    size_t n, cap;
} blob;

static inline void blob_add(blob *b, const void *bytes, size_t n) {
    if (b->n + n > b->cap) {
        b->cap = 2 * (b->n + n);
        b->data = (uint8_t *)realloc(b->data, b->cap);
        assert_non_null(b->data);
    }
    if (n > 0) {
        memcpy(b->data + b->n, bytes, n);
    }
    b->n += n;
}

static inline void blob_text(blob *b, const char *text) {
    blob_add(b, text, strlen(text));
}

static inline void blob_fit(blob *b) {
    uint8_t *fit = (uint8_t *)malloc(b->n == 0 ? 1 : b->n);
    assert_non_null(fit);
    if (b->n > 0) {
        memcpy(fit, b->data, b->n);
    }
    free(b->data);
    b->data = fit;
    b->cap = b->n;
}

static inline void blob_clear(blob *b) {
    free(b->data);
    memset(b, 0, sizeof *b);
}

/* A file of this header and n_data bytes of data: byte i is i * 31 + 7. */
static inline blob make_file(const char *header, size_t n_header, size_t n_data) {
    uint8_t length[8];
    blob b = {0};
    tli_store_u64(length, n_header);
    blob_add(&b, length, sizeof length);
    blob_add(&b, header, n_header);
    for (size_t i = 0; i < n_data; i++) {
        const uint8_t byte = (uint8_t)(i * 31 + 7);
        blob_add(&b, &byte, 1);
    }
    blob_fit(&b);
    return b;
}

static inline blob make_text_file(const char *header, size_t n_data) {
    return make_file(header, strlen(header), n_data);
}

/* A tensor of a file to be made; n_dims at most 2. */
typedef struct made_tensor {
    char name[96];
    const char *dtype;
    size_t n_dims;
    size_t dims[2];
    size_t n_bytes; /* for data_offsets */
    int fill;       /* -1: as make_file has it; else this byte throughout */
} made_tensor;

static inline blob make_tensors(const made_tensor *tensors, size_t n, const char *metadata) {
    char text[256];
    blob header = {0};
    size_t at = 0;
    blob_text(&header, "{");
    if (metadata != NULL) {
        blob_text(&header, "\"__metadata__\":");
        blob_text(&header, metadata);
    }
    for (size_t i = 0; i < n; i++) {
        const made_tensor *t = &tensors[i];
        char shape[64] = "";
        if (t->n_dims == 1) {
            (void)snprintf(shape, sizeof shape, "%zu", t->dims[0]);
        } else if (t->n_dims == 2) {
            (void)snprintf(shape, sizeof shape, "%zu,%zu", t->dims[0], t->dims[1]);
        }
        blob_text(&header, header.n > 1 ? ",\"" : "\"");
        blob_text(&header, t->name);
        (void)snprintf(text, sizeof text,
                       "\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", t->dtype,
                       shape, at, at + t->n_bytes);
        blob_text(&header, text);
        at += t->n_bytes;
    }
    blob_text(&header, "}");
    blob file = make_file((const char *)header.data, header.n, at);
    size_t begin = file.n - at;
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].fill >= 0) {
            memset(file.data + begin, tensors[i].fill, tensors[i].n_bytes);
        }
        begin += tensors[i].n_bytes;
    }
    blob_clear(&header);
    return file;
}

/* The refusal is the one that is wanted, and its sentence names the subject. */
static inline void check_refusal(tl_status got, const tl_error *err, tl_status wanted,
                                 const char *subject, const char *id) {
    if (got != wanted || err->status != wanted || strstr(err->text, subject) == NULL ||
        err->text[0] == '\0') {
        fail_msg("%s: got %s (%s), wanted %s naming '%s'", id, tl_status_name(got), err->text,
                 tl_status_name(wanted), subject);
    }
}

static inline tl_error fresh_error(void) {
    tl_error err;
    memset(&err, 0, sizeof err);
    return err;
}

/* ------------------------------------------------------------------ a tiny llama */

#define TINY_V 256
#define TINY_D 64
#define TINY_INTER 128
#define TINY_TENSORS_MAX 64

static const char tiny_config[] =
    "{\"tl_arch\":\"llama\",\"tl_tokenizer\":\"byte\",\"vocab_size\":256,\"hidden_size\":64,"
    "\"intermediate_size\":128,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5,"
    "\"tie_word_embeddings\":true}";
static const char tiny_untied_config[] =
    "{\"tl_arch\":\"llama\",\"tl_tokenizer\":\"byte\",\"vocab_size\":256,\"hidden_size\":64,"
    "\"intermediate_size\":128,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5}";

typedef struct made_list {
    made_tensor tensors[TINY_TENSORS_MAX];
    size_t n;
} made_list;

static inline made_tensor *add_tensor(made_list *list, const char *name, const char *dtype,
                                      size_t element, size_t rows, size_t cols) {
    assert_true(list->n < TINY_TENSORS_MAX);
    made_tensor *t = &list->tensors[list->n];
    list->n++;
    memset(t, 0, sizeof *t);
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    t->dtype = dtype;
    t->n_dims = cols == 0 ? 1 : 2;
    t->dims[0] = rows;
    t->dims[1] = cols;
    t->n_bytes = rows * (cols == 0 ? 1 : cols) * element;
    t->fill = -1;
    return t;
}

static inline made_tensor *find_made(made_list *list, const char *name) {
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->tensors[i].name, name) == 0) {
            return &list->tensors[i];
        }
    }
    fail_msg("the fixture has no %s", name);
    return NULL;
}

typedef struct tiny_projection {
    const char *name;
    size_t rows, cols;
} tiny_projection;

static const tiny_projection tiny_projections[] = {
    {"self_attn.q_proj", 64, 64}, {"self_attn.k_proj", 32, 64}, {"self_attn.v_proj", 32, 64},
    {"self_attn.o_proj", 64, 64}, {"mlp.gate_proj", 128, 64},   {"mlp.up_proj", 128, 64},
    {"mlp.down_proj", 64, 128},
};

/* int4_group 0: dense BF16; else pairs for the projections. The head is not among them. */
static inline void make_tiny(made_list *list, size_t int4_group) {
    char name[96];
    memset(list, 0, sizeof *list);
    add_tensor(list, "model.embed_tokens.weight", "BF16", 2, TINY_V, TINY_D);
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < COUNT_OF(tiny_projections); j++) {
            const tiny_projection *p = &tiny_projections[j];
            if (int4_group == 0) {
                (void)snprintf(name, sizeof name, "model.layers.%zu.%s.weight", i, p->name);
                add_tensor(list, name, "BF16", 2, p->rows, p->cols);
                continue;
            }
            (void)snprintf(name, sizeof name, "model.layers.%zu.%s.qweight", i, p->name);
            add_tensor(list, name, "U8", 1, p->rows, p->cols / 2);
            (void)snprintf(name, sizeof name, "model.layers.%zu.%s.scales", i, p->name);
            add_tensor(list, name, "F16", 2, p->rows, p->cols / int4_group)->fill = 0x11;
        }
        (void)snprintf(name, sizeof name, "model.layers.%zu.input_layernorm.weight", i);
        add_tensor(list, name, "BF16", 2, TINY_D, 0);
        (void)snprintf(name, sizeof name, "model.layers.%zu.post_attention_layernorm.weight", i);
        add_tensor(list, name, "F32", 4, TINY_D, 0);
    }
    add_tensor(list, "model.norm.weight", "F16", 2, TINY_D, 0);
}

#endif
