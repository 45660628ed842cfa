/* model_weights.c: bind the tensors of a checkpoint to a config, both ways.
 *
 * What the config calls for must be there, and what is there must be called for: a bias or a
 * q_norm that nobody reads means that the config does not tell the whole story. Matrices stay
 * where they lie; norms are widened into one block; quantize-at-load widens one matrix at a
 * time. Nothing of *out is touched before all of it stands.
 *
 * Source: conformance/spec/config.md, config#fit and config#names;
 * conformance/spec/safetensors.md, safetensors#12. */
#include "tl/model.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_internal.h"
#include "util.h"

#define NAME_CAP 96    /* the longest name of the model: "model.layers." and a count and a suffix */
#define NAME_SHOWN 80  /* bytes of a name that a message quotes */
#define GROUP_DIGITS 8 /* no count has more */

/* One load. */
typedef struct binder {
    const tl_checkpoint *ckpt;
    const tl_model_config *cfg;
    tl_error *err;
    size_t file_group; /* int4 file: its group; 0: dense */
    size_t load_group; /* quantize at load: the group; 0: leave as it is */
    uint8_t *used;     /* [tl_checkpoint_count]: 1 for a tensor that the config calls for */
    float *next_norm;  /* room for the norms to come */
} binder;

/* ------------------------------------------------------------------ what a config calls for */

typedef enum width { WIDTH_HIDDEN, WIDTH_HEADS, WIDTH_KV_HEADS, WIDTH_MLP } width;

typedef struct projection {
    const char *name; /* without .weight, below the layer's prefix */
    size_t offset;    /* of the tl_linear in tl_llama_layer */
    width n_out, n_in;
} projection;

static const projection projections[] = {
    {"self_attn.q_proj", offsetof(tl_llama_layer, wq), WIDTH_HEADS, WIDTH_HIDDEN},
    {"self_attn.k_proj", offsetof(tl_llama_layer, wk), WIDTH_KV_HEADS, WIDTH_HIDDEN},
    {"self_attn.v_proj", offsetof(tl_llama_layer, wv), WIDTH_KV_HEADS, WIDTH_HIDDEN},
    {"self_attn.o_proj", offsetof(tl_llama_layer, wo), WIDTH_HIDDEN, WIDTH_HEADS},
    {"mlp.gate_proj", offsetof(tl_llama_layer, w_gate), WIDTH_MLP, WIDTH_HIDDEN},
    {"mlp.up_proj", offsetof(tl_llama_layer, w_up), WIDTH_MLP, WIDTH_HIDDEN},
    {"mlp.down_proj", offsetof(tl_llama_layer, w_down), WIDTH_HIDDEN, WIDTH_MLP},
};

#define N_PROJECTIONS (sizeof projections / sizeof projections[0])

static size_t width_of(const tl_model_config *cfg, width w) {
    switch (w) {
    case WIDTH_HEADS:
        return cfg->n_heads * cfg->head_dim;
    case WIDTH_KV_HEADS:
        return cfg->n_kv_heads * cfg->head_dim;
    case WIDTH_MLP:
        return cfg->intermediate_size;
    case WIDTH_HIDDEN:
    default:
        return cfg->hidden_size;
    }
}

static tl_linear *linear_at(tl_llama_layer *layer, const projection *p) {
    return (tl_linear *)(void *)((char *)layer + p->offset);
}

/* As tl_model_config_parse asks of a real. NaN is not. */
static bool positive_as_f32(double x) {
    const float rounded = (float)x;
    return rounded > 0 && isfinite(rounded);
}

/* A config from a caller is no parsed file: what would divide by 0 or wrap below is looked for. */
static tl_status check_config(const tl_model_config *cfg, tl_error *err) {
    const bool is_llama = cfg->arch == TL_ARCH_LLAMA;
    size_t n = 0;
    bool sound = (is_llama || cfg->arch == TL_ARCH_BIGRAM) && cfg->vocab_size > 0;
    if (is_llama) {
        sound = sound && cfg->hidden_size > 0 && cfg->intermediate_size > 0 && cfg->n_layers > 0 &&
                cfg->n_heads > 0 && cfg->n_kv_heads > 0 && cfg->head_dim > 0 &&
                cfg->n_kv_heads <= cfg->n_heads && tli_mul(cfg->n_heads, cfg->head_dim, &n) &&
                positive_as_f32(cfg->rope_theta) && positive_as_f32(cfg->rms_norm_eps);
    }
    return sound ? TL_OK
                 : tli_fail(err, TL_ERR_INVALID,
                            "tl_weights_load: the config has a zero, a number that does not fit "
                            "the others, or a real that is not above 0 and finite as f32");
}

/* ------------------------------------------------------------------ tensors by name */

static tl_status take(const binder *b, const char *name, tli_tensor *tensor) {
    if (!tli_checkpoint_tensor(b->ckpt, name, tensor)) {
        return tli_fail(b->err, TL_ERR_NOT_FOUND,
                        "there is no tensor '%s', which the config calls for", name);
    }
    b->used[tensor->index] = 1;
    return TL_OK;
}

static tl_status bind_dense(const binder *b, const char *name, size_t n_out, size_t n_in,
                            tl_linear *out) {
    const size_t shape[2] = {n_out, n_in};
    tli_tensor tensor = {0};
    tl_matrix_kind kind = TL_MATRIX_F32;
    TLI_TRY(take(b, name, &tensor));
    TLI_TRY(tli_tensor_expect(tensor.info, shape, 2, &kind, b->err));
    const tl_matrix matrix = {.kind = kind, .n_out = n_out, .n_in = n_in, .data = tensor.data};
    out->kind = TL_LINEAR_DENSE;
    out->as.dense = matrix;
    return TL_OK;
}

static tl_status bind_norm(binder *b, const char *name, const float **out) {
    const size_t shape[1] = {b->cfg->hidden_size};
    tli_tensor tensor = {0};
    tl_matrix_kind kind = TL_MATRIX_F32;
    TLI_TRY(take(b, name, &tensor));
    TLI_TRY(tli_tensor_expect(tensor.info, shape, 1, &kind, b->err));
    tli_widen(kind, tensor.data, shape[0], b->next_norm);
    *out = b->next_norm;
    b->next_norm += shape[0];
    return TL_OK;
}

/* ------------------------------------------------------------------ linears, dense or int4 */

static tl_status bind_pair(const binder *b, const char *name, size_t n_out, size_t n_in,
                           tl_linear *out) {
    char member[NAME_CAP + 16];
    tli_tensor tensor = {0};
    tl_qlinear q4 = {0};
    (void)snprintf(member, sizeof member, "%s.qweight", name);
    TLI_TRY(take(b, member, &tensor));
    (void)snprintf(member, sizeof member, "%s.scales", name);
    TLI_TRY(take(b, member, &tensor));
    TLI_TRY(tl_checkpoint_q4(b->ckpt, name, n_out, n_in, b->file_group, &q4, b->err));
    out->kind = TL_LINEAR_Q4;
    out->as.q4 = q4;
    return TL_OK;
}

/* Put the int4 form of a dense linear in its place. */
static tl_status quantize(const binder *b, const char *name, tl_linear *linear) {
    const tl_matrix dense = linear->as.dense;
    tl_error inner = {.offset = TL_NO_OFFSET};
    tl_qlinear q4 = {0};
    const size_t n = dense.n_out * dense.n_in; /* elements that lie in a file: no overflow */
    float *wide = (float *)tli_calloc(n, sizeof *wide);
    if (wide == NULL) {
        return tli_fail(b->err, TL_ERR_NOMEM, "no memory to widen '%s' [%zu, %zu]", name,
                        dense.n_out, dense.n_in);
    }
    tli_widen(dense.kind, dense.data, n, wide);
    const tl_status status =
        tl_qlinear_quantize(&q4, wide, n, dense.n_out, dense.n_in, b->load_group, &inner);
    free(wide);
    if (status != TL_OK) {
        return tli_fail(b->err, status, "'%s' cannot be quantized: %s", name, inner.text);
    }
    linear->kind = TL_LINEAR_Q4;
    linear->as.q4 = q4;
    return TL_OK;
}

/* name is without .weight. */
static tl_status bind_linear(const binder *b, const char *name, size_t n_out, size_t n_in,
                             tl_linear *out) {
    char weight[NAME_CAP + 16];
    if (b->file_group != 0) {
        return bind_pair(b, name, n_out, n_in, out);
    }
    (void)snprintf(weight, sizeof weight, "%s.weight", name);
    TLI_TRY(bind_dense(b, weight, n_out, n_in, out));
    return b->load_group == 0 ? TL_OK : quantize(b, weight, out);
}

/* ------------------------------------------------------------------ llama */

static tl_status bind_layer(binder *b, size_t i_layer, tl_llama_layer *layer) {
    char name[NAME_CAP];
    (void)snprintf(name, sizeof name, "model.layers.%zu.input_layernorm.weight", i_layer);
    TLI_TRY(bind_norm(b, name, &layer->attn_norm));
    (void)snprintf(name, sizeof name, "model.layers.%zu.post_attention_layernorm.weight", i_layer);
    TLI_TRY(bind_norm(b, name, &layer->mlp_norm));
    for (size_t i = 0; i < N_PROJECTIONS; i++) {
        const projection *p = &projections[i];
        const size_t n_out = width_of(b->cfg, p->n_out);
        const size_t n_in = width_of(b->cfg, p->n_in);
        (void)snprintf(name, sizeof name, "model.layers.%zu.%s", i_layer, p->name);
        TLI_TRY(bind_linear(b, name, n_out, n_in, linear_at(layer, p)));
    }
    return TL_OK;
}

/* A head that is stored though it is tied: the embedding's bytes once more, or one of the two is
 * wrong. */
static tl_status check_tied_head(const binder *b) {
    tli_tensor head = {0};
    tli_tensor embed = {0};
    if (!tli_checkpoint_tensor(b->ckpt, "lm_head.weight", &head)) {
        return TL_OK;
    }
    TLI_TRY(take(b, "model.embed_tokens.weight", &embed));
    const tl_tensor_info *x = head.info;
    const tl_tensor_info *y = embed.info;
    bool same = x->dtype == y->dtype && x->n_dims == y->n_dims;
    for (size_t i = 0; same && i < x->n_dims; i++) {
        same = x->dims[i] == y->dims[i];
    }
    same = same && memcmp(head.data, embed.data, tli_tensor_size(&head)) == 0;
    if (!same) {
        return tli_fail(b->err, TL_ERR_UNSUPPORTED,
                        "tie_word_embeddings is true, and 'lm_head.weight' is stored with another "
                        "type, shape or content than 'model.embed_tokens.weight'");
    }
    b->used[head.index] = 1;
    return TL_OK;
}

static tl_status bind_llama(binder *b, tl_llama_weights *llama) {
    const tl_model_config *cfg = b->cfg;
    const size_t vocab = cfg->vocab_size;
    const size_t d = cfg->hidden_size;
    TLI_TRY(bind_dense(b, "model.embed_tokens.weight", vocab, d, &llama->embed));
    for (size_t i = 0; i < cfg->n_layers; i++) {
        TLI_TRY(bind_layer(b, i, &llama->layers[i]));
    }
    TLI_TRY(bind_norm(b, "model.norm.weight", &llama->final_norm));
    if (!cfg->tie_word_embeddings) {
        return bind_linear(b, "lm_head", vocab, d, &llama->lm_head);
    }
    llama->lm_head = llama->embed;
    return check_tied_head(b);
}

/* ------------------------------------------------------------------ quantization asked for */

/* The g of "int4-g<g>-sym". */
static tl_status parse_quant(const char *quant, size_t *group, tl_error *err) {
    static const char prefix[] = "int4-g";
    static const char suffix[] = "-sym";
    const size_t n_prefix = strlen(prefix);
    const bool has_prefix = strncmp(quant, prefix, n_prefix) == 0;
    const char *digits = has_prefix ? quant + n_prefix : "";
    const size_t n_digits = strspn(digits, "0123456789");
    if (n_digits == 0 || strcmp(digits + n_digits, suffix) != 0) {
        return tli_fail(err, TL_ERR_UNSUPPORTED,
                        "the metadata has the quant '%.60s'; only int4-g<g>-sym is run", quant);
    }
    size_t g = 0;
    for (size_t i = 0; i < n_digits && i < GROUP_DIGITS; i++) {
        g = g * 10 + (size_t)(digits[i] - '0');
    }
    if (digits[0] == '0' || n_digits > GROUP_DIGITS || g % 2 != 0) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "the metadata has the quant '%.60s'; its group must be even, above 0, "
                        "without leading zeros",
                        quant);
    }
    *group = g;
    return TL_OK;
}

/* The group divides the columns of every linear. */
static tl_status check_group(const tl_model_config *cfg, size_t group, tl_status status,
                             tl_error *err) {
    for (size_t i = 0; i < N_PROJECTIONS; i++) {
        const size_t n_in = width_of(cfg, projections[i].n_in);
        if (group % 2 != 0 || n_in % group != 0) {
            return tli_fail(err, status,
                            "the int4 group %zu must be even and divide the %zu columns of %s",
                            group, n_in, projections[i].name);
        }
    }
    return TL_OK;
}

static tl_status choose_quant(binder *b, const tl_quant_cfg *quant) {
    const char *stored = tl_checkpoint_metadata(b->ckpt, "quant");
    const bool is_llama = b->cfg->arch == TL_ARCH_LLAMA;
    b->load_group = quant == NULL ? 0 : quant->int4_group;
    if (b->load_group != 0 && stored != NULL) {
        return tli_fail(b->err, TL_ERR_INVALID,
                        "int4 at load was asked for, and the file is quantized (quant '%.60s')",
                        stored);
    }
    if (b->load_group != 0 && !is_llama) {
        return tli_fail(b->err, TL_ERR_INVALID,
                        "int4 at load was asked for, and a bigram is never quantized");
    }
    if (b->load_group != 0) {
        return check_group(b->cfg, b->load_group, TL_ERR_INVALID, b->err);
    }
    if (stored == NULL) {
        return TL_OK;
    }
    if (!is_llama) {
        return tli_fail(b->err, TL_ERR_UNSUPPORTED,
                        "the metadata has the quant '%.60s', and a bigram is never quantized",
                        stored);
    }
    TLI_TRY(parse_quant(stored, &b->file_group, b->err));
    return check_group(b->cfg, b->file_group, TL_ERR_FORMAT, b->err);
}

/* ------------------------------------------------------------------ both ways */

/* A table of rope frequencies: recomputed by everybody, and stored by some. */
static bool is_inv_freq(const tl_tensor_info *info) {
    static const char suffix[] = "rotary_emb.inv_freq";
    const size_t n = strlen(suffix);
    return info->name_len >= n && strcmp(info->name + info->name_len - n, suffix) == 0;
}

static tl_status check_left_over(const binder *b) {
    const size_t n = tl_checkpoint_count(b->ckpt);
    for (size_t i = 0; i < n; i++) {
        const tl_tensor_info *info = tl_checkpoint_at(b->ckpt, i);
        if (b->used[i] == 0 && !is_inv_freq(info)) {
            return tli_fail(b->err, TL_ERR_UNSUPPORTED,
                            "tensor '%.*s' is left over: the config does not call for it",
                            NAME_SHOWN, info->name);
        }
    }
    return TL_OK;
}

/* Before memory is taken for them: a config may promise more norms than the file can have. */
static tl_status check_norms(const binder *b) {
    const size_t shape[1] = {b->cfg->hidden_size};
    char name[NAME_CAP];
    tli_tensor tensor = {0};
    tl_matrix_kind kind = TL_MATRIX_F32;
    for (size_t i = 0; i < 2 * b->cfg->n_layers; i++) {
        (void)snprintf(name, sizeof name, "model.layers.%zu.%s.weight", i / 2,
                       i % 2 == 0 ? "input_layernorm" : "post_attention_layernorm");
        TLI_TRY(take(b, name, &tensor));
        TLI_TRY(tli_tensor_expect(tensor.info, shape, 1, &kind, b->err));
    }
    return TL_OK;
}

static tl_status make_room(binder *b, tl_weights *weights) {
    const size_t n_layers = b->cfg->n_layers;
    tl_llama_weights *llama = &weights->as.llama;
    size_t n_norms = 0;
    size_t n = 0;
    TLI_TRY(check_norms(b));
    if (tli_mul(n_layers, 2, &n_norms) && tli_add(n_norms, 1, &n_norms) &&
        tli_mul(n_norms, b->cfg->hidden_size, &n)) {
        llama->layers = (tl_llama_layer *)tli_calloc(n_layers, sizeof(tl_llama_layer));
        weights->norms = (float *)tli_calloc(n, sizeof(float));
    }
    if (llama->layers == NULL || weights->norms == NULL) {
        return tli_fail(b->err, TL_ERR_NOMEM, "no memory for the norms of %zu layers", n_layers);
    }
    llama->n_layers = n_layers;
    b->next_norm = weights->norms;
    return TL_OK;
}

static tl_status bind_all(binder *b, tl_weights *weights) {
    const size_t vocab = b->cfg->vocab_size;
    if (weights->arch == TL_ARCH_BIGRAM) {
        TLI_TRY(bind_dense(b, "bigram.weight", vocab, vocab, &weights->as.bigram));
    } else {
        TLI_TRY(make_room(b, weights));
        TLI_TRY(bind_llama(b, &weights->as.llama));
    }
    return check_left_over(b);
}

tl_status tl_weights_load(tl_weights *out, tl_checkpoint **ckpt, const tl_model_config *cfg,
                          const tl_quant_cfg *quant, tl_error *err) {
    if (out == NULL || ckpt == NULL || *ckpt == NULL || cfg == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "tl_weights_load: an argument is NULL");
    }
    TLI_TRY(check_config(cfg, err));
    binder b = {.ckpt = *ckpt, .cfg = cfg, .err = err};
    tl_weights weights = {.arch = cfg->arch};
    TLI_TRY(choose_quant(&b, quant));
    b.used = (uint8_t *)tli_calloc(tl_checkpoint_count(*ckpt), 1);
    if (b.used == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory to mark the tensors of a checkpoint");
    }
    const tl_status status = bind_all(&b, &weights);
    free(b.used);
    if (status != TL_OK) {
        tl_weights_clear(&weights);
        return status;
    }
    weights.ckpt = *ckpt;
    *ckpt = NULL;
    *out = weights;
    return TL_OK;
}

void tl_weights_clear(tl_weights *weights) {
    const tl_weights none = {0};
    if (weights == NULL) {
        return;
    }
    if (weights->arch == TL_ARCH_LLAMA) {
        tl_llama_weights *llama = &weights->as.llama;
        for (size_t i = 0; i < llama->n_layers; i++) {
            for (size_t j = 0; j < N_PROJECTIONS; j++) {
                tl_linear_clear(linear_at(&llama->layers[i], &projections[j]));
            }
        }
        tl_linear_clear(&llama->lm_head);
        tl_linear_clear(&llama->embed);
        free(llama->layers);
    }
    free(weights->norms);
    tl_checkpoint_free(weights->ckpt);
    *weights = none;
}
