/* oracle_fit.c: everything that is wrong with a checkpoint for a config, as a set of statuses.
 *
 * A file with several faults may be refused for any of them, so two right readers can differ in
 * the status. This says which statuses are right: each must be of the set, and with a single fault
 * there is one. It is neither fast nor does it stop early; of the second implementation it uses
 * the look-up of tensors and the quantizer.
 *
 * Source: conformance/spec/config.md, config#fit; conformance/spec/safetensors.md, rule 12. */
#include "fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS_MAX 64 /* enough: what is wrong with a later one is wrong with these */
#define ELEMENTS_MAX 65536

typedef struct fit {
    const host_api *tl;
    const tl_model_config *cfg;
    const tl_checkpoint *ckpt;
    size_t file_group, load_group;
    bool *used; /* [tensors] */
    unsigned faults;
} fit;

static void fault(fit *x, tl_status status) {
    x->faults |= 1u << status;
}

static size_t index_of(const fit *x, const tl_tensor_info *info) {
    size_t i = 0;
    while (x->tl->checkpoint_at(x->ckpt, i) != info) {
        i++;
    }
    return i;
}

static const tl_tensor_info *need(fit *x, const char *name) {
    const tl_tensor_info *info = x->tl->checkpoint_find(x->ckpt, name);
    if (info == NULL) {
        fault(x, TL_ERR_NOT_FOUND);
    } else {
        x->used[index_of(x, info)] = true;
    }
    return info;
}

static void check(fit *x, const tl_tensor_info *info, bool dtype_fits, size_t rows, size_t cols) {
    const size_t n_dims = cols == 0 ? 1 : 2;
    if (!dtype_fits) {
        fault(x, TL_ERR_UNSUPPORTED);
    }
    if (info->n_dims != n_dims || info->dims[0] != rows || (cols != 0 && info->dims[1] != cols)) {
        fault(x, TL_ERR_FORMAT);
    }
}

static void check_dense(fit *x, const char *name, size_t rows, size_t cols) {
    const tl_tensor_info *info = need(x, name);
    if (info != NULL) {
        check(x, info,
              info->dtype == TL_DTYPE_F32 || info->dtype == TL_DTYPE_F16 ||
                  info->dtype == TL_DTYPE_BF16,
              rows, cols);
    }
}

/* Can the matrix be quantized? Only asked of one that is otherwise right. */
static void check_quantize(fit *x, const char *name, size_t rows, size_t cols) {
    const size_t shape[] = {rows, cols};
    if (rows * cols > ELEMENTS_MAX) {
        return;
    }
    float *w = fuzz_alloc(rows * cols * sizeof *w);
    tl_qlinear q;
    if (x->tl->checkpoint_f32(x->ckpt, name, shape, 2, w, rows * cols, NULL) == TL_OK) {
        const tl_status status =
            x->tl->qlinear_quantize(&q, w, rows * cols, rows, cols, x->load_group, NULL);
        if (status == TL_OK) {
            x->tl->qlinear_clear(&q);
        } else {
            fault(x, status);
        }
    }
    free(w);
}

static void check_linear(fit *x, const char *name, size_t rows, size_t cols) {
    char whole[160];
    const size_t group = x->file_group != 0 ? x->file_group : x->load_group;
    if (group != 0 && (group % 2 != 0 || cols % group != 0)) {
        fault(x, x->file_group != 0 ? TL_ERR_FORMAT : TL_ERR_INVALID);
        return;
    }
    if (x->file_group == 0) {
        (void)snprintf(whole, sizeof whole, "%s.weight", name);
        check_dense(x, whole, rows, cols);
        if (x->load_group != 0) {
            check_quantize(x, whole, rows, cols);
        }
        return;
    }
    (void)snprintf(whole, sizeof whole, "%s.qweight", name);
    const tl_tensor_info *qweight = need(x, whole);
    (void)snprintf(whole, sizeof whole, "%s.scales", name);
    const tl_tensor_info *scales = need(x, whole);
    if (qweight != NULL) {
        check(x, qweight, qweight->dtype == TL_DTYPE_U8, rows, cols / 2);
    }
    if (scales != NULL) {
        tl_qlinear q;
        check(x, scales, scales->dtype == TL_DTYPE_F16, rows, cols / group);
        if (x->tl->checkpoint_q4(x->ckpt, name, rows, cols, group, &q, NULL) == TL_ERR_FORMAT) {
            fault(x, TL_ERR_FORMAT); /* a scale, or a shape once more */
        }
    }
}

static void check_layers(fit *x) {
    const tl_model_config *c = x->cfg;
    const size_t d = c->hidden_size;
    const size_t q = c->n_heads * c->head_dim;
    const size_t kv = c->n_kv_heads * c->head_dim;
    const size_t inter = c->intermediate_size;
    const struct {
        const char *name;
        size_t rows, cols;
    } parts[] = {{"input_layernorm.weight", d, 0}, {"post_attention_layernorm.weight", d, 0},
                 {"self_attn.q_proj", q, d},       {"self_attn.k_proj", kv, d},
                 {"self_attn.v_proj", kv, d},      {"self_attn.o_proj", d, q},
                 {"mlp.gate_proj", inter, d},      {"mlp.up_proj", inter, d},
                 {"mlp.down_proj", d, inter}};
    for (size_t layer = 0; layer < c->n_layers && layer < LAYERS_MAX; layer++) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            char name[128];
            (void)snprintf(name, sizeof name, "model.layers.%zu.%s", layer, parts[i].name);
            if (parts[i].cols == 0) {
                check_dense(x, name, parts[i].rows, 0);
            } else {
                check_linear(x, name, parts[i].rows, parts[i].cols);
            }
        }
    }
}

/* A stored head that is tied is a fault unless it is equal, and then nobody refuses for it. */
static void check_tied(fit *x) {
    const tl_tensor_info *head = x->tl->checkpoint_find(x->ckpt, "lm_head.weight");
    if (head != NULL) {
        x->used[index_of(x, head)] = true;
        fault(x, TL_ERR_UNSUPPORTED);
    }
}

static void check_left(fit *x) {
    static const char suffix[] = "rotary_emb.inv_freq";
    const size_t n = sizeof suffix - 1;
    for (size_t i = 0; i < x->tl->checkpoint_count(x->ckpt); i++) {
        const tl_tensor_info *info = x->tl->checkpoint_at(x->ckpt, i);
        const bool is_table =
            info->name_len >= n && memcmp(info->name + info->name_len - n, suffix, n) == 0;
        if (!x->used[i] && !is_table) {
            fault(x, TL_ERR_UNSUPPORTED);
        }
    }
}

/* The group of "int4-g<g>-sym"; 0 with the fault. */
static size_t quant_group(fit *x, const char *quant) {
    size_t group = 0;
    const bool starts = strncmp(quant, "int4-g", 6) == 0;
    const size_t n = starts ? strspn(quant + 6, "0123456789") : 0;
    if (n == 0 || strcmp(quant + 6 + n, "-sym") != 0 || x->cfg->arch == TL_ARCH_BIGRAM) {
        fault(x, TL_ERR_UNSUPPORTED);
        return 0;
    }
    for (size_t i = 0; i < n && i < 9; i++) {
        group = group * 10 + (size_t)(quant[6 + i] - '0');
    }
    if (quant[6] == '0' || n > 8 || group % 2 != 0) {
        fault(x, TL_ERR_FORMAT);
        return 0;
    }
    return group;
}

unsigned fuzz_fit_faults(const host_api *tl, const tl_model_config *cfg, const tl_checkpoint *ckpt,
                         size_t load_group) {
    fit x = {.tl = tl, .cfg = cfg, .ckpt = ckpt, .load_group = load_group};
    const char *quant = tl->checkpoint_metadata(ckpt, "quant");
    if (load_group != 0 && (quant != NULL || cfg->arch == TL_ARCH_BIGRAM)) {
        fault(&x, TL_ERR_INVALID);
    }
    x.file_group = quant == NULL ? 0 : quant_group(&x, quant);
    if (quant != NULL && x.file_group == 0) {
        return x.faults; /* what the linears should be like is not known */
    }
    x.used = fuzz_alloc(tl->checkpoint_count(ckpt) * sizeof *x.used);
    if (cfg->arch == TL_ARCH_BIGRAM) {
        check_dense(&x, "bigram.weight", cfg->vocab_size, cfg->vocab_size);
    } else {
        check_dense(&x, "model.norm.weight", cfg->hidden_size, 0);
        check_layers(&x);
        check_dense(&x, "model.embed_tokens.weight", cfg->vocab_size, cfg->hidden_size);
        if (cfg->tie_word_embeddings) {
            check_tied(&x);
        } else {
            check_linear(&x, "lm_head", cfg->vocab_size, cfg->hidden_size);
        }
    }
    check_left(&x);
    free(x.used);
    return x.faults;
}

bool fuzz_lacks_shard(const fuzz_folder *folder) {
    const tl_file_view *index = fuzz_folder_find(folder, "model.safetensors.index.json");
    json_t *root =
        index == NULL ? NULL : json_loadb((const char *)index->bytes, index->n_bytes, 0, NULL);
    const char *key = NULL;
    json_t *value = NULL;
    bool lacks = false;
    json_object_foreach(json_object_get(root, "weight_map"), key, value) {
        const char *name = json_string_value(value);
        lacks = lacks || (name != NULL && fuzz_folder_find(folder, name) == NULL);
    }
    json_decref(root);
    return lacks;
}
