/* host_checkpoint.c: the ops of config.json, safetensors files and checkpoints. */
#define _DEFAULT_SOURCE /* struct stat beyond C11 */
#include "host.h"

#include "../runner/wire.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* JSON integers are exact to here; larger dimensions travel as strings. */
#define JSON_EXACT_MAX (UINT64_C(1) << 53)
#define PATH_TEXT_CAP 4096
#define VIEW_MAX 65536         /* bytes of a file that is read from memory, too */
#define NO_SUCH "no such \x7f" /* a name that no file of the tests has */

/* ------------------------------------------------------------------ config */

static const char *arch_word(tl_arch arch) {
    switch (arch) {
    case TL_ARCH_BIGRAM:
        return "bigram";
    case TL_ARCH_LLAMA:
        return "llama";
    }
    return "unknown";
}

static const char *tokenizer_word(tl_tokenizer_kind kind) {
    switch (kind) {
    case TL_TOKENIZER_BYTE:
        return "byte";
    case TL_TOKENIZER_BPE:
        return "bpe";
    }
    return "unknown";
}

void host_put_config(json_t *out, const tl_model_config *cfg) {
    host_put_text(out, "arch", arch_word(cfg->arch));
    host_put_text(out, "tokenizer", tokenizer_word(cfg->tokenizer));
    host_put_int(out, "vocab_size", cfg->vocab_size);
    host_put_int(out, "hidden_size", cfg->hidden_size);
    host_put_int(out, "intermediate_size", cfg->intermediate_size);
    host_put_int(out, "n_layers", cfg->n_layers);
    host_put_int(out, "n_heads", cfg->n_heads);
    host_put_int(out, "n_kv_heads", cfg->n_kv_heads);
    host_put_int(out, "head_dim", cfg->head_dim);
    host_put_int(out, "max_positions", cfg->max_positions);
    host_put_f64(out, "rope_theta", cfg->rope_theta);
    host_put_f64(out, "rms_norm_eps", cfg->rms_norm_eps);
    host_put_bool(out, "tie_word_embeddings", cfg->tie_word_embeddings);
    json_t *ids = json_array();
    for (size_t i = 0; i < cfg->n_eos_token_ids && i < TL_EOS_IDS_MAX; i++) {
        (void)json_array_append_new(ids, json_integer(cfg->eos_token_ids[i]));
    }
    host_put(out, "eos_token_ids", ids);
}

static bool op_config_parse(host *h, const json_t *in, json_t *out) {
    size_t n = 0;
    const char *bytes = host_arg_array(h, in, "bytes", "u8", &n);
    tl_model_config *cfg = host_output(h, "config", sizeof *cfg);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    /* An empty file is empty text, not a missing pointer. */
    tl_status status = h->tl.model_config_parse(cfg, n == 0 ? "" : bytes, n, &err);
    if (!host_answer(out, status, &err)) {
        return false;
    }
    host_put_config(out, cfg);
    return true;
}

static bool op_config_load(host *h, const json_t *in, json_t *out) {
    const char *dir = host_arg_text(h, in, "dir");
    tl_model_config *cfg = host_output(h, "config", sizeof *cfg);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    if (!host_answer(out, h->tl.model_config_load(cfg, dir, &err), &err)) {
        return false;
    }
    host_put_config(out, cfg);
    return true;
}

/* ------------------------------------------------------------------ opening */

static json_t *dims_json(const tl_tensor_info *info) {
    json_t *shape = json_array();
    for (size_t i = 0; i < info->n_dims; i++) {
        uint64_t dim = info->dims[i];
        if (dim < JSON_EXACT_MAX) {
            (void)json_array_append_new(shape, json_integer((json_int_t)dim));
        } else {
            char digits[24];
            (void)snprintf(digits, sizeof digits, "%llu", (unsigned long long)dim);
            (void)json_array_append_new(shape, json_string(digits));
        }
    }
    return shape;
}

static void add_tensor(host *h, json_t *tensors, const tl_tensor_info *info, bool offsets) {
    json_t *tensor = json_object();
    host_put(tensor, "name", json_stringn(info->name, info->name_len));
    host_put_text(tensor, "dtype", h->tl.dtype_name(info->dtype));
    host_put(tensor, "shape", dims_json(info));
    if (offsets) {
        host_put_int(tensor, "begin", info->begin);
        host_put_int(tensor, "end", info->end);
    }
    (void)json_array_append_new(tensors, tensor);
}

/* The bytes of a regular file of at most VIEW_MAX, as an input that ends with the op; NULL for
 * another file. */
static const uint8_t *small_file(host *h, const char *path, size_t *n) {
    static uint8_t bytes[VIEW_MAX];
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size > VIEW_MAX) {
        return NULL;
    }
    FILE *file = fopen(path, "rb");
    *n = (size_t)about.st_size;
    const bool is_read = file != NULL && fread(bytes, 1, *n, file) == *n;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (!is_read || *n == 0) {
        return is_read ? bytes : NULL;
    }
    return host_const(h, "bytes", bytes, *n);
}

/* found may be NULL. Of a name that stands twice, which must not be, either will do here: a check
 * says it. */
static bool same_name(const tl_tensor_info *found, const tl_tensor_info *info) {
    return found != NULL && found->name_len == info->name_len &&
           memcmp(found->name, info->name, info->name_len) == 0;
}

static bool same_info(const tl_tensor_info *a, const tl_tensor_info *b) {
    return a->begin == b->begin && a->end == b->end && same_name(a, b);
}

/* What has been opened (NULL: it was refused with FORMAT) must be found by name as by number, and
 * be what the bytes of the file in memory give. */
static void check_layout(host *h, const char *path, const tl_layout *layout) {
    const size_t n = layout == NULL ? 0 : h->tl.layout_count(layout);
    for (size_t i = 0; i < n; i++) {
        const tl_tensor_info *info = h->tl.layout_at(layout, i);
        host_expect(h, same_name(h->tl.layout_find(layout, info->name), info), TL_OK,
                    "layout_find does not give tensor %zu of %zu by its name", i, n);
    }
    if (layout != NULL) {
        host_expect(
            h, h->tl.layout_find(layout, NO_SUCH) == NULL && h->tl.layout_at(layout, n) == NULL,
            TL_OK, "layout_find and layout_at give a tensor that is not there");
    }
    size_t n_bytes = 0;
    const uint8_t *bytes = small_file(h, path, &n_bytes);
    if (bytes == NULL) {
        return;
    }
    tl_error err = host_error();
    tl_layout *parsed = host_unset();
    const tl_status status = h->tl.layout_parse(&parsed, bytes, n_bytes, &err);
    bool same = status == (layout == NULL ? TL_ERR_FORMAT : TL_OK);
    if (status == TL_OK) {
        same = same && h->tl.layout_count(parsed) == n;
        for (size_t i = 0; same && i < n; i++) {
            same = same_info(h->tl.layout_at(parsed, i), h->tl.layout_at(layout, i));
        }
        h->tl.layout_free(parsed);
    }
    host_expect(h, same, status, "layout_parse makes something else of the file's bytes: status %d",
                (int)status);
    tl_safetensors *viewed = host_unset();
    const tl_status view_status = h->tl.safetensors_view(&viewed, bytes, n_bytes, &err);
    same = view_status == status && (status == TL_OK) == (viewed != NULL) &&
           h->tl.layout_count(h->tl.safetensors_layout(viewed)) == n;
    host_expect(h, same, view_status,
                "safetensors_view makes something else of the file's bytes: status %d",
                (int)view_status);
    if (view_status == TL_OK) {
        h->tl.safetensors_free(viewed);
    }
}

/* A checkpoint of one file, viewed in memory beside another file, must be as it was opened. */
static void check_view(host *h, const char *dir, const tl_checkpoint *ckpt) {
    char path[PATH_TEXT_CAP];
    const int n_path = snprintf(path, sizeof path, "%s/model.safetensors", dir);
    size_t n_bytes = 0;
    const uint8_t *bytes =
        n_path > 0 && (size_t)n_path < sizeof path ? small_file(h, path, &n_bytes) : NULL;
    if (bytes == NULL) {
        return;
    }
    const tl_file_view one = {.name = "model.safetensors", .bytes = bytes, .n_bytes = n_bytes};
    const tl_file_view other = {.name = "other", .bytes = bytes, .n_bytes = n_bytes};
    const tl_file_view orders[2][2] = {{one, other}, {other, one}};
    for (size_t i = 0; i < 2; i++) {
        tl_error err = host_error();
        tl_checkpoint *viewed = host_unset();
        const tl_status status = h->tl.checkpoint_view(&viewed, orders[i], 2, &err);
        const bool same =
            status == TL_OK && h->tl.checkpoint_count(viewed) == h->tl.checkpoint_count(ckpt);
        host_expect(h, same, status,
                    "checkpoint_view makes something else of the file's bytes: status %d",
                    (int)status);
        if (status == TL_OK) {
            h->tl.checkpoint_free(viewed);
        }
    }
}

static bool op_safetensors_open(host *h, const json_t *in, json_t *out) {
    const char *path = host_arg_text(h, in, "path");
    tl_weights_mode mode = host_arg_weights(h, in);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_safetensors *st = host_unset();
    tl_status status = h->tl.safetensors_open(&st, path, mode, &err);
    void *object = st;
    if (status == TL_ERR_FORMAT) {
        check_layout(h, path, NULL);
    }
    if (!host_made(h, out, status, &err, &object)) {
        return false;
    }
    const tl_layout *layout = h->tl.safetensors_layout(st);
    check_layout(h, path, layout);
    json_t *tensors = json_array();
    for (size_t i = 0; i < h->tl.layout_count(layout); i++) {
        add_tensor(h, tensors, h->tl.layout_at(layout, i), true);
    }
    host_put(out, "tensors", tensors);
    host_put_int(out, "checkpoint", (uint64_t)host_handle_add(h, HOST_SAFETENSORS, object, 0));
    return true;
}

/* Offsets mean something only where there is one file. */
static bool is_one_file(const char *dir) {
    char path[PATH_TEXT_CAP];
    struct stat about;
    int n = snprintf(path, sizeof path, "%s/model.safetensors", dir);
    return n > 0 && (size_t)n < sizeof path && stat(path, &about) == 0;
}

static bool op_checkpoint_open(host *h, const json_t *in, json_t *out) {
    const char *dir = host_arg_text(h, in, "dir");
    tl_weights_mode mode = host_arg_weights(h, in);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_checkpoint *ckpt = host_unset();
    tl_status status = h->tl.checkpoint_open(&ckpt, dir, mode, &err);
    void *object = ckpt;
    if (!host_made(h, out, status, &err, &object)) {
        return false;
    }
    bool offsets = is_one_file(dir);
    json_t *tensors = json_array();
    const size_t n = h->tl.checkpoint_count(ckpt);
    for (size_t i = 0; i < n; i++) {
        const tl_tensor_info *info = h->tl.checkpoint_at(ckpt, i);
        add_tensor(h, tensors, info, offsets);
        host_expect(h, same_name(h->tl.checkpoint_find(ckpt, info->name), info), TL_OK,
                    "checkpoint_find does not give tensor %zu of %zu by its name", i, n);
    }
    host_expect(
        h, h->tl.checkpoint_find(ckpt, NO_SUCH) == NULL && h->tl.checkpoint_at(ckpt, n) == NULL,
        TL_OK, "checkpoint_find and checkpoint_at give a tensor that is not there");
    check_view(h, dir, ckpt);
    host_put(out, "tensors", tensors);
    host_put_int(out, "checkpoint", (uint64_t)host_handle_add(h, HOST_CHECKPOINT, object, 0));
    return true;
}

static bool op_checkpoint_free(host *h, const json_t *in, json_t *out) {
    (void)out;
    int64_t number = 0;
    host_kind kind = HOST_CHECKPOINT;
    (void)host_arg_checkpoint(h, in, &kind, &number);
    if (!host_ready(h)) {
        return false;
    }
    host_handle_free(h, number);
    return true;
}

/* ------------------------------------------------------------------ reading */

/* The shape asked for, and the elements that it makes (host.bad when they are too many to
 * answer). */
static const size_t *arg_shape(host *h, const json_t *in, size_t *n_shape, size_t *n_elements) {
    const json_t *list = json_object_get(in, "shape");
    *n_shape = json_array_size(list);
    *n_elements = 1;
    size_t *shape = host_input(h, "shape", host_mul(h, *n_shape, sizeof *shape));
    for (size_t i = 0; shape != NULL && i < *n_shape; i++) {
        shape[i] = (size_t)json_integer_value(json_array_get(list, i));
        *n_elements = host_mul(h, *n_elements, shape[i]);
    }
    if (*n_elements > OL_WIRE_FRAME_MAX / 8) {
        host_bad(h, "a tensor of %zu elements does not fit an answer", *n_elements);
    }
    return shape;
}

static bool op_checkpoint_f32(host *h, const json_t *in, json_t *out) {
    host_kind kind = HOST_CHECKPOINT;
    const void *object = host_arg_checkpoint(h, in, &kind, NULL);
    const char *name = host_arg_text(h, in, "name");
    size_t n_shape = 0;
    size_t n = 0;
    const size_t *shape = arg_shape(h, in, &n_shape, &n);
    float *values = host_output(h, "dst", host_mul(h, n, sizeof *values));
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = TL_ERR_INTERNAL;
    if (kind == HOST_SAFETENSORS) {
        status = h->tl.safetensors_f32(object, name, shape, n_shape, values, n, &err);
    } else {
        status = h->tl.checkpoint_f32(object, name, shape, n_shape, values, n, &err);
    }
    if (!host_answer(out, status, &err)) {
        return false;
    }
    host_put_array(out, "values", "f32", values, n);
    return true;
}

static bool op_checkpoint_q4(host *h, const json_t *in, json_t *out) {
    host_kind kind = HOST_CHECKPOINT;
    const void *object = host_arg_checkpoint(h, in, &kind, NULL);
    const char *name = host_arg_text(h, in, "name");
    size_t n_out = host_arg_size_or(h, in, "n_out", 0);
    size_t n_in = host_arg_size_or(h, in, "n_in", 0);
    size_t group = host_arg_size_or(h, in, "group", 0);
    tl_qlinear *q = host_output(h, "qlinear", sizeof *q);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = TL_ERR_INTERNAL;
    if (kind == HOST_SAFETENSORS) {
        status = h->tl.safetensors_q4(object, name, n_out, n_in, group, q, &err);
    } else {
        status = h->tl.checkpoint_q4(object, name, n_out, n_in, group, q, &err);
    }
    if (!host_answer(out, status, &err)) {
        return false;
    }
    host_put_q4(h, out, q);
    return true;
}

const host_op host_checkpoint_ops[] = {
    {"config_parse", op_config_parse},         {"config_load", op_config_load},
    {"safetensors_open", op_safetensors_open}, {"checkpoint_open", op_checkpoint_open},
    {"checkpoint_f32", op_checkpoint_f32},     {"checkpoint_q4", op_checkpoint_q4},
    {"checkpoint_free", op_checkpoint_free},   {NULL, NULL},
};
