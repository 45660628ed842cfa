/* model.c: bind a checkpoint's tensors to the config, and multiply by them.
 *
 * The tensors of a layer are one table. It is gone through twice by the same functions: once only
 * to check that everything is there and fits, before any memory is taken; once to bind.
 *
 * Source: conformance/spec/config.md (config#fit), conformance/spec/safetensors.md (rule 12) and
 * conformance/spec/forward.md (linear). */
#include "tl/model.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_plain.h"
#include "util.h"

/* ------------------------------------------------------------------ what must be there */

/* A side of a matrix. */
typedef enum side { NONE, HIDDEN, HEADS, KV_HEADS, INTER } side;

static const struct part {
    const char *name; /* without ".weight" */
    side rows, cols;  /* a norm has no columns */
    size_t member;    /* offset in tl_llama_layer; of the linears only */
} parts[] = {
    {"input_layernorm", HIDDEN, NONE, 0},
    {"post_attention_layernorm", HIDDEN, NONE, 0},
    {"self_attn.q_proj", HEADS, HIDDEN, offsetof(tl_llama_layer, wq)},
    {"self_attn.k_proj", KV_HEADS, HIDDEN, offsetof(tl_llama_layer, wk)},
    {"self_attn.v_proj", KV_HEADS, HIDDEN, offsetof(tl_llama_layer, wv)},
    {"self_attn.o_proj", HIDDEN, HEADS, offsetof(tl_llama_layer, wo)},
    {"mlp.gate_proj", INTER, HIDDEN, offsetof(tl_llama_layer, w_gate)},
    {"mlp.up_proj", INTER, HIDDEN, offsetof(tl_llama_layer, w_up)},
    {"mlp.down_proj", HIDDEN, INTER, offsetof(tl_llama_layer, w_down)},
};
enum { N_PARTS = sizeof parts / sizeof *parts, NAME_MAX_LEN = 128 };

/* All that one load needs. */
typedef struct loader {
    const tl_checkpoint *ckpt;
    const tl_model_config *cfg;
    size_t file_group; /* of `quant` in the file; 0: not quantized */
    size_t load_group; /* of the caller; 0: leave the weights as they are */
    bool *used;        /* for each tensor of the checkpoint: the config calls for it */
    tl_error *err;
} loader;

static size_t length_of(const tl_model_config *cfg, side which) {
    switch (which) {
    case HIDDEN:
        return cfg->hidden_size;
    case HEADS:
        return cfg->n_heads * cfg->head_dim;
    case KV_HEADS:
        return cfg->n_kv_heads * cfg->head_dim;
    case INTER:
        return cfg->intermediate_size;
    default:
        return 0;
    }
}

/* Find a tensor that the config calls for, and note that it is called for. */
static tl_status find(loader *l, const char *name, const char *ending, plain_place *place) {
    char whole[NAME_MAX_LEN];
    (void)snprintf(whole, sizeof whole, "%s%s", name, ending);
    if (!plain_find(l->ckpt->files, l->ckpt->n_files, whole, place)) {
        return tli_fail(l->err, TL_ERR_NOT_FOUND, "tensor %s is missing", whole);
    }
    l->used[place->number] = true;
    return TL_OK;
}

/* NAME.weight, which can be widened, as [rows, cols], or as [rows] when cols is 0. */
static tl_status find_dense(loader *l, const char *name, size_t rows, size_t cols,
                            plain_place *place) {
    const size_t shape[] = {rows, cols};
    TLI_TRY(find(l, name, ".weight", place));
    if (plain_float_size(place->info->dtype) == 0) {
        return tli_fail(l->err, TL_ERR_UNSUPPORTED, "tensor %s is %s, F32, F16 or BF16 is needed",
                        place->info->name, tl_dtype_name(place->info->dtype));
    }
    return plain_check_shape(place->info, shape, cols == 0 ? 1 : 2, l->err);
}

static tl_linear as_it_lies(const plain_place *place) {
    static const tl_matrix_kind kinds[] = {[TL_DTYPE_F32] = TL_MATRIX_F32,
                                           [TL_DTYPE_F16] = TL_MATRIX_F16,
                                           [TL_DTYPE_BF16] = TL_MATRIX_BF16};
    return (tl_linear){.kind = TL_LINEAR_DENSE,
                       .as.dense = {.kind = kinds[place->info->dtype],
                                    .n_out = (size_t)place->info->dims[0],
                                    .n_in = (size_t)place->info->dims[1],
                                    .data = plain_tensor_bytes(place)}};
}

/* Widen a whole matrix and quantize it. */
static tl_status quantize(loader *l, const plain_place *place, tl_linear *out) {
    const tl_tensor_info *t = place->info;
    const size_t shape[] = {(size_t)t->dims[0], (size_t)t->dims[1]};
    const size_t n = (size_t)(t->end - t->begin) / plain_float_size(t->dtype);
    float *w = tli_calloc(n, sizeof *w);
    if (w == NULL) {
        return tli_fail(l->err, TL_ERR_NOMEM, "no memory for %zu weights of %s", n, t->name);
    }
    tl_error why;
    *out = (tl_linear){.kind = TL_LINEAR_Q4};
    tl_status status = tl_safetensors_f32(place->st, t->name, shape, 2, w, n, &why);
    if (status == TL_OK) {
        status = tl_qlinear_quantize(&out->as.q4, w, n, shape[0], shape[1], l->load_group, &why);
    }
    free(w);
    return status == TL_OK ? TL_OK : tli_fail(l->err, status, "%s: %s", t->name, why.text);
}

/* A group that does not fit is the fault of whoever gave it: the file, or the caller. */
static tl_status check_group(loader *l, const char *name, size_t cols) {
    const bool file = l->file_group != 0;
    const size_t group = file ? l->file_group : l->load_group;
    if (group % 2 != 0 || (group != 0 && cols % group != 0)) {
        return tli_fail(l->err, file ? TL_ERR_FORMAT : TL_ERR_INVALID,
                        "%s: the int4 group is %zu%s, an even divisor of the %zu columns is needed",
                        name, group, file ? " by quant" : "", cols);
    }
    return TL_OK;
}

/* Check a linear; bind it too when out is not NULL. */
static tl_status load_linear(loader *l, const char *name, size_t rows, size_t cols,
                             tl_linear *out) {
    plain_place place;
    TLI_TRY(check_group(l, name, cols));
    if (l->file_group != 0) {
        tl_linear made = {.kind = TL_LINEAR_Q4};
        TLI_TRY(find(l, name, ".qweight", &place));
        TLI_TRY(find(l, name, ".scales", &place));
        TLI_TRY(plain_q4(l->ckpt->files, l->ckpt->n_files, name, rows, cols, l->file_group,
                         &made.as.q4, l->err));
        if (out != NULL) {
            *out = made;
        }
        return TL_OK;
    }
    TLI_TRY(find_dense(l, name, rows, cols, &place));
    if (out != NULL && l->load_group != 0) {
        return quantize(l, &place, out);
    }
    if (out != NULL) {
        *out = as_it_lies(&place);
    }
    return TL_OK;
}

/* Check a norm; widen it too when dst is not NULL. */
static tl_status load_norm(loader *l, const char *name, float *dst) {
    const size_t shape[] = {l->cfg->hidden_size};
    plain_place place = {0};
    TLI_TRY(find_dense(l, name, shape[0], 0, &place));
    return dst == NULL
               ? TL_OK
               : tl_safetensors_f32(place.st, place.info->name, shape, 1, dst, shape[0], l->err);
}

/* Check a layer; bind it too when out is not NULL. */
static tl_status load_layer(loader *l, size_t layer, tl_llama_layer *out, float *norms) {
    for (size_t i = 0; i < N_PARTS; i++) {
        const size_t rows = length_of(l->cfg, parts[i].rows);
        const size_t cols = length_of(l->cfg, parts[i].cols);
        void *member = out == NULL ? NULL : (unsigned char *)out + parts[i].member;
        char name[NAME_MAX_LEN];
        (void)snprintf(name, sizeof name, "model.layers.%zu.%s", layer, parts[i].name);
        if (parts[i].cols == NONE) {
            TLI_TRY(load_norm(l, name, out == NULL ? NULL : norms + i * rows));
        } else {
            TLI_TRY(load_linear(l, name, rows, cols, member));
        }
    }
    if (out != NULL) {
        out->attn_norm = norms;
        out->mlp_norm = norms + l->cfg->hidden_size;
    }
    return TL_OK;
}

/* A tied head that is stored all the same has to be the embedding, byte for byte. */
static tl_status check_tied_head(loader *l, const plain_place *embed) {
    plain_place head;
    if (!plain_find(l->ckpt->files, l->ckpt->n_files, "lm_head.weight", &head)) {
        return TL_OK;
    }
    const tl_tensor_info *a = head.info;
    const tl_tensor_info *b = embed->info;
    l->used[head.number] = true;
    if (a->dtype != b->dtype || a->n_dims != 2 || a->dims[0] != b->dims[0] ||
        a->dims[1] != b->dims[1] ||
        memcmp(plain_tensor_bytes(&head), plain_tensor_bytes(embed), (size_t)(b->end - b->begin)) !=
            0) {
        return tli_fail(l->err, TL_ERR_UNSUPPORTED,
                        "lm_head.weight differs from the embedding, to which it is tied");
    }
    return TL_OK;
}

/* Check everything but what is left over; bind it too when out is not NULL. */
static tl_status load_llama(loader *l, tl_llama_weights *out, float *norms) {
    const tl_model_config *cfg = l->cfg;
    const size_t d = cfg->hidden_size;
    plain_place embed = {0};
    TLI_TRY(load_norm(l, "model.norm", norms));
    for (size_t i = 0; i < cfg->n_layers; i++) {
        TLI_TRY(load_layer(l, i, out == NULL ? NULL : &out->layers[i],
                           out == NULL ? NULL : norms + (2 * i + 1) * d));
    }
    TLI_TRY(find_dense(l, "model.embed_tokens", cfg->vocab_size, d, &embed));
    if (out != NULL) {
        out->final_norm = norms;
        out->embed = as_it_lies(&embed);
        out->lm_head = out->embed;
    }
    if (cfg->tie_word_embeddings) {
        return check_tied_head(l, &embed);
    }
    return load_linear(l, "lm_head", cfg->vocab_size, d, out == NULL ? NULL : &out->lm_head);
}

/* Nothing is left over but the rotary tables, which are computed and never read. */
static tl_status check_left_over(loader *l) {
    static const char table[] = "rotary_emb.inv_freq";
    const size_t n_table = sizeof table - 1;
    for (size_t i = 0; i < tl_checkpoint_count(l->ckpt); i++) {
        const tl_tensor_info *t = tl_checkpoint_at(l->ckpt, i);
        const bool is_table =
            t->name_len >= n_table && strcmp(t->name + t->name_len - n_table, table) == 0;
        if (!l->used[i] && !is_table) {
            return tli_fail(l->err, TL_ERR_UNSUPPORTED,
                            "tensor %s is left over: the config does not call for it", t->name);
        }
    }
    return TL_OK;
}

static tl_status load_all(loader *l, tl_weights *out) {
    const tl_model_config *cfg = l->cfg;
    out->arch = cfg->arch;
    if (cfg->arch == TL_ARCH_BIGRAM) {
        plain_place place = {0};
        TLI_TRY(find_dense(l, "bigram", cfg->vocab_size, cfg->vocab_size, &place));
        out->as.bigram = as_it_lies(&place);
        return check_left_over(l);
    }
    TLI_TRY(load_llama(l, NULL, NULL));
    TLI_TRY(check_left_over(l));
    size_t n_norms = 0;
    const bool fits = tli_mul(2 * cfg->n_layers + 1, cfg->hidden_size, &n_norms);
    tl_llama_weights *w = &out->as.llama;
    w->layers = tli_calloc(cfg->n_layers, sizeof *w->layers);
    out->norms = fits ? tli_calloc(n_norms, sizeof *out->norms) : NULL;
    if (w->layers == NULL || out->norms == NULL) {
        return tli_fail(l->err, TL_ERR_NOMEM, "no memory for %zu layers", cfg->n_layers);
    }
    w->n_layers = cfg->n_layers;
    return load_llama(l, w, out->norms);
}

/* `quant` of the file: int4-g<g>-sym. What has that form with an impossible g breaks the format;
 * anything else is a scheme that we do not know. */
static tl_status read_quant(loader *l, const char *quant) {
    static const char start[] = "int4-g";
    const size_t n_start = sizeof start - 1;
    const bool starts = strncmp(quant, start, n_start) == 0;
    const char *digits = starts ? quant + n_start : quant;
    const size_t n_digits = strspn(digits, "0123456789");
    if (!starts || n_digits == 0 || strcmp(digits + n_digits, "-sym") != 0 ||
        l->cfg->arch == TL_ARCH_BIGRAM) {
        return tli_fail(l->err, TL_ERR_UNSUPPORTED,
                        "quant is %s, int4-g<group>-sym of a llama is supported", quant);
    }
    /* Nine digits are more than any number of columns has, and fit. */
    const bool good = digits[0] != '0' && n_digits <= 9;
    l->file_group = good ? (size_t)strtoul(digits, NULL, 10) : 0;
    if (!good || l->file_group % 2 != 0) {
        return tli_fail(l->err, TL_ERR_FORMAT,
                        "quant is %s, whose group is no even number that divides the columns",
                        quant);
    }
    return TL_OK;
}

tl_status tl_weights_load(tl_weights *out, tl_checkpoint **ckpt, const tl_model_config *cfg,
                          const tl_quant_cfg *quant, tl_error *err) {
    if (out == NULL || ckpt == NULL || *ckpt == NULL || cfg == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out, ckpt or cfg is NULL");
    }
    TLI_TRY(plain_config_check(cfg, err));
    loader l = {.ckpt = *ckpt, .cfg = cfg, .err = err};
    l.load_group = quant == NULL ? 0 : quant->int4_group;
    const char *stored = tl_checkpoint_metadata(*ckpt, "quant");
    if (l.load_group != 0 && (stored != NULL || cfg->arch == TL_ARCH_BIGRAM)) {
        return tli_fail(err, TL_ERR_INVALID, "int4 at load is asked for, but the %s",
                        stored != NULL ? "file has quant already" : "model is a bigram");
    }
    if (stored != NULL) {
        TLI_TRY(read_quant(&l, stored));
    }
    l.used = tli_calloc(tl_checkpoint_count(*ckpt) + 1, sizeof *l.used);
    if (l.used == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a list of tensors");
    }
    tl_weights made = {0};
    const tl_status status = load_all(&l, &made);
    free(l.used);
    if (status != TL_OK) {
        tl_weights_clear(&made);
        return status;
    }
    made.ckpt = *ckpt;
    *ckpt = NULL;
    *out = made;
    return TL_OK;
}

void tl_weights_clear(tl_weights *weights) {
    if (weights == NULL) {
        return;
    }
    if (weights->arch == TL_ARCH_LLAMA) {
        tl_llama_weights *w = &weights->as.llama;
        for (size_t i = 0; w->layers != NULL && i < w->n_layers; i++) {
            for (size_t j = 0; j < N_PARTS; j++) {
                void *member = (unsigned char *)&w->layers[i] + parts[j].member;
                if (parts[j].cols != NONE) {
                    tl_linear_clear(member);
                }
            }
        }
        free(w->layers);
        tl_linear_clear(&w->lm_head);
    }
    free(weights->norms);
    tl_checkpoint_free(weights->ckpt);
    *weights = (tl_weights){0};
}

/* ------------------------------------------------------------------ linears */

size_t tl_linear_n_out(const tl_linear *linear) {
    if (linear == NULL) {
        return 0;
    }
    return linear->kind == TL_LINEAR_Q4 ? linear->as.q4.n_out : linear->as.dense.n_out;
}

size_t tl_linear_n_in(const tl_linear *linear) {
    if (linear == NULL) {
        return 0;
    }
    return linear->kind == TL_LINEAR_Q4 ? linear->as.q4.n_in : linear->as.dense.n_in;
}

void tl_linear_clear(tl_linear *linear) {
    if (linear != NULL) {
        if (linear->kind == TL_LINEAR_Q4) {
            tl_qlinear_clear(&linear->as.q4);
        }
        *linear = (tl_linear){0};
    }
}

static float element(const tl_matrix *w, size_t at) {
    switch (w->kind) {
    case TL_MATRIX_F32:
        return tli_f32_from_bits(tli_load_u32(w->data + 4 * at));
    case TL_MATRIX_F16:
        return tl_f16_to_f32(tli_load_u16(w->data + 2 * at));
    default:
        return tl_bf16_to_f32(tli_load_u16(w->data + 2 * at));
    }
}

/* One sum in f64 for each output, so that nothing else in the call can change it. */
static void multiply(const tl_matrix *w, size_t row_begin, size_t row_end, const float *x, size_t m,
                     float *y) {
    for (size_t i = 0; i < m; i++) {
        for (size_t row = row_begin; row < row_end; row++) {
            double sum = 0;
            for (size_t k = 0; k < w->n_in; k++) {
                sum += (double)x[i * w->n_in + k] * (double)element(w, row * w->n_in + k);
            }
            y[i * w->n_out + row] = (float)sum;
        }
    }
}

tl_status tl_linear_forward(const tl_linear *linear, size_t row_begin, size_t row_end,
                            const float *x, size_t x_len, size_t m, float *y, size_t y_len,
                            tl_work *work, tl_error *err) {
    if (linear == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "linear is NULL");
    }
    if (linear->kind == TL_LINEAR_Q4) {
        return tl_qlinear_forward(&linear->as.q4, row_begin, row_end, x, x_len, m, y, y_len, work,
                                  err);
    }
    const tl_matrix *w = &linear->as.dense;
    if (linear->kind != TL_LINEAR_DENSE || w->kind < TL_MATRIX_F32 || w->kind > TL_MATRIX_BF16 ||
        w->n_out == 0 || w->n_in == 0 || w->data == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "no linear: kind %d, matrix kind %d, %zu x %zu, %s",
                        (int)linear->kind, (int)w->kind, w->n_out, w->n_in,
                        w->data == NULL ? "data is NULL" : "with data");
    }
    size_t x_need;
    size_t y_need;
    if (!tli_mul(m, w->n_in, &x_need) || x_len != x_need || !tli_mul(m, w->n_out, &y_need) ||
        y_len != y_need || row_begin > row_end || row_end > w->n_out) {
        return tli_fail(err, TL_ERR_INVALID,
                        "x_len is %zu and y_len %zu, rows %zu to %zu, for %zu "
                        "rows of %zu in and %zu out",
                        x_len, y_len, row_begin, row_end, m, w->n_in, w->n_out);
    }
    if (work == NULL || tl_work_max_n_in(work) < w->n_in || (m > 0 && (x == NULL || y == NULL))) {
        return tli_fail(err, TL_ERR_INVALID, "x, y or work is NULL, or work is for shorter rows");
    }
    multiply(w, row_begin, row_end, x, m, y);
    return TL_OK;
}

/* ------------------------------------------------------------------ a model */

struct tl_model {
    tl_model_config cfg;
    tl_weights weights;
};

static tl_status load_model(tl_model *model, const plain_folder *folder,
                            const tl_model_load_cfg *cfg, tl_error *err) {
    tl_checkpoint *ckpt = NULL;
    if (cfg->weights != TL_WEIGHTS_MAP && cfg->weights != TL_WEIGHTS_COPY) {
        return tli_fail(err, TL_ERR_INVALID, "weights is %d, which is no mode", (int)cfg->weights);
    }
    TLI_TRY(plain_config_load(&model->cfg, folder, err));
    TLI_TRY(plain_checkpoint_open(&ckpt, folder, cfg->weights, err));
    const tl_status status = tl_weights_load(&model->weights, &ckpt, &model->cfg, &cfg->quant, err);
    tl_checkpoint_free(ckpt); /* NULL when the weights have taken it over */
    return status;
}

static tl_status make_model(tl_model **out, const plain_folder *folder,
                            const tl_model_load_cfg *cfg, tl_error *err) {
    static const tl_model_load_cfg as_it_is;
    tl_model *model = tli_calloc(1, sizeof *model);
    if (model == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a model");
    }
    const tl_status status = load_model(model, folder, cfg == NULL ? &as_it_is : cfg, err);
    if (status != TL_OK) {
        free(model);
        return status;
    }
    *out = model;
    return TL_OK;
}

tl_status tl_model_load(tl_model **out, const char *dir, const tl_model_load_cfg *cfg,
                        tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    if (dir == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "dir is NULL");
    }
    return make_model(out, &(plain_folder){.dir = dir}, cfg, err);
}

tl_status tl_model_view(tl_model **out, const tl_file_view *files, size_t n_files,
                        const tl_model_load_cfg *cfg, tl_error *err) {
    const plain_folder folder = {.files = files, .n_files = n_files};
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    TLI_TRY(plain_folder_check(&folder, err));
    return make_model(out, &folder, cfg, err);
}

void tl_model_free(tl_model *model) {
    if (model != NULL) {
        tl_weights_clear(&model->weights);
        free(model);
    }
}

const tl_model_config *tl_model_config_of(const tl_model *model) {
    return model == NULL ? NULL : &model->cfg;
}

const tl_weights *tl_model_weights(const tl_model *model) {
    return model == NULL ? NULL : &model->weights;
}
