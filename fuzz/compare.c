/* compare.c: two readers of the same bytes must have read the same; see fuzz.h. */
#include "fuzz.h"

#include <math.h>
#include <string.h>

bool fuzz_same_bytes(const void *a, const void *b, size_t n) {
    return n == 0 || memcmp(a, b, n) == 0;
}

uint32_t fuzz_f32_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

uint64_t fuzz_f64_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

bool fuzz_same_float(float x, float y) {
    return fuzz_f32_bits(x) == fuzz_f32_bits(y) || (isnan(x) && isnan(y));
}

bool fuzz_same_floats(const float *x, const float *y, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!fuzz_same_float(x[i], y[i])) {
            return false;
        }
    }
    return true;
}

bool fuzz_same_tensor(const tl_tensor_info *a, const tl_tensor_info *b) {
    if (a->name_len != b->name_len || memcmp(a->name, b->name, a->name_len + 1) != 0 ||
        a->dtype != b->dtype || a->n_dims != b->n_dims || a->begin != b->begin ||
        a->end != b->end) {
        return false;
    }
    return (a->n_dims > 0 || a->dims == NULL) &&
           fuzz_same_bytes(a->dims, b->dims, a->n_dims * sizeof *a->dims);
}

/* Both NULL, or both the same text. */
static bool same_text(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* The ranges tile the data buffer: each begins where those before it end, and the last one ends
 * with the file. */
static void check_tiling(fuzz_case *f, const tl_layout *a, uint64_t n_bytes) {
    uint64_t end = 0;
    for (size_t i = 0; i < f->tl->layout_count(a); i++) {
        const tl_tensor_info *info = f->tl->layout_at(a, i);
        if (info->begin != end || info->end < info->begin) {
            (void)fuzz_wrong(f, "tensor %zu is at [%llu, %llu), and %llu bytes are before it", i,
                             (unsigned long long)info->begin, (unsigned long long)info->end,
                             (unsigned long long)end);
            return;
        }
        end = info->end;
    }
    end += f->tl->layout_data_start(a);
    if (end != n_bytes) {
        (void)fuzz_wrong(f, "the tensors end at %llu of %llu bytes", (unsigned long long)end,
                         (unsigned long long)n_bytes);
    }
}

/* Among empty tensors at one place the pages leave the order open. */
static const tl_tensor_info *twin_of(fuzz_case *f, const tl_layout *b, size_t i,
                                     const tl_tensor_info *info) {
    const tl_tensor_info *other = f->second->layout_at(b, i);
    if (other != NULL && fuzz_same_tensor(info, other)) {
        return other;
    }
    return info->begin == info->end ? f->second->layout_find(b, info->name) : other;
}

void fuzz_compare_layouts(fuzz_case *f, const tl_layout *a, const tl_layout *b, uint64_t n_bytes) {
    static const char *const keys[] = {"quant", "format", "a", "b", "", "dtype", "x"};
    const size_t n = f->tl->layout_count(a);
    if (n != f->second->layout_count(b) ||
        f->tl->layout_data_start(a) != f->second->layout_data_start(b)) {
        (void)fuzz_wrong(f, "%zu tensors from byte %llu, the second one has %zu from %llu", n,
                         (unsigned long long)f->tl->layout_data_start(a),
                         f->second->layout_count(b),
                         (unsigned long long)f->second->layout_data_start(b));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const tl_tensor_info *info = f->tl->layout_at(a, i);
        const tl_tensor_info *other = twin_of(f, b, i, info);
        if (other == NULL || !fuzz_same_tensor(info, other)) {
            (void)fuzz_wrong(f, "tensor %zu ('%.60s') is another one in the second", i, info->name);
            return;
        }
        if (strlen(info->name) == info->name_len && f->tl->layout_find(a, info->name) != info) {
            (void)fuzz_wrong(f, "tensor %zu ('%.60s') is not found by its name", i, info->name);
            return;
        }
    }
    if (f->tl->layout_at(a, n) != NULL) {
        (void)fuzz_wrong(f, "there is a tensor past the end");
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!same_text(f->tl->layout_metadata(a, keys[i]),
                       f->second->layout_metadata(b, keys[i]))) {
            (void)fuzz_wrong(f, "metadata '%s' differs", keys[i]);
        }
    }
    check_tiling(f, a, n_bytes);
}

void fuzz_compare_configs(fuzz_case *f, const tl_model_config *a, const tl_model_config *b) {
    const struct {
        const char *name;
        bool same;
    } fields[] = {
        {"arch", a->arch == b->arch},
        {"tokenizer", a->tokenizer == b->tokenizer},
        {"vocab_size", a->vocab_size == b->vocab_size},
        {"hidden_size", a->hidden_size == b->hidden_size},
        {"intermediate_size", a->intermediate_size == b->intermediate_size},
        {"n_layers", a->n_layers == b->n_layers},
        {"n_heads", a->n_heads == b->n_heads},
        {"n_kv_heads", a->n_kv_heads == b->n_kv_heads},
        {"head_dim", a->head_dim == b->head_dim},
        {"max_positions", a->max_positions == b->max_positions},
        {"rope_theta", fuzz_f64_bits(a->rope_theta) == fuzz_f64_bits(b->rope_theta)},
        {"rms_norm_eps", fuzz_f64_bits(a->rms_norm_eps) == fuzz_f64_bits(b->rms_norm_eps)},
        {"tie_word_embeddings", a->tie_word_embeddings == b->tie_word_embeddings},
        {"n_eos_token_ids", a->n_eos_token_ids == b->n_eos_token_ids}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        /* The bigram has no rope and no norm; what stands there is not said. */
        const bool is_said = a->arch == TL_ARCH_LLAMA || strncmp(fields[i].name, "r", 1) != 0;
        if (!fields[i].same && is_said) {
            (void)fuzz_wrong(f, "config: %s differs", fields[i].name);
        }
    }
    if (f->wrong[0] == '\0' && memcmp(a->eos_token_ids, b->eos_token_ids,
                                      a->n_eos_token_ids * sizeof *a->eos_token_ids) != 0) {
        (void)fuzz_wrong(f, "config: eos_token_ids differ");
    }
}

/* ------------------------------------------------------------------ weights */

static bool same_linear(const tl_linear *a, const tl_linear *b) {
    if (a->kind != b->kind) {
        return false;
    }
    if (a->kind == TL_LINEAR_DENSE) {
        const tl_matrix *x = &a->as.dense;
        const tl_matrix *y = &b->as.dense;
        const size_t size = x->kind == TL_MATRIX_F32 ? 4 : 2;
        return x->kind == y->kind && x->n_out == y->n_out && x->n_in == y->n_in &&
               fuzz_same_bytes(x->data, y->data, x->n_out * x->n_in * size);
    }
    const tl_qlinear *x = &a->as.q4;
    const tl_qlinear *y = &b->as.q4;
    return x->n_out == y->n_out && x->n_in == y->n_in && x->group == y->group &&
           x->qweight_len == y->qweight_len && x->scales_len == y->scales_len &&
           fuzz_same_bytes(x->qweight, y->qweight, x->qweight_len) &&
           fuzz_same_bytes(x->scales, y->scales, x->scales_len);
}

static bool same_layer(const tl_llama_layer *a, const tl_llama_layer *b, size_t d) {
    return fuzz_same_floats(a->attn_norm, b->attn_norm, d) &&
           fuzz_same_floats(a->mlp_norm, b->mlp_norm, d) && same_linear(&a->wq, &b->wq) &&
           same_linear(&a->wk, &b->wk) && same_linear(&a->wv, &b->wv) &&
           same_linear(&a->wo, &b->wo) && same_linear(&a->w_gate, &b->w_gate) &&
           same_linear(&a->w_up, &b->w_up) && same_linear(&a->w_down, &b->w_down);
}

void fuzz_compare_weights(fuzz_case *f, const tl_weights *a, const tl_weights *b) {
    if (a->arch != b->arch) {
        (void)fuzz_wrong(f, "weights: another arch");
        return;
    }
    if (a->arch == TL_ARCH_BIGRAM) {
        if (!same_linear(&a->as.bigram, &b->as.bigram)) {
            (void)fuzz_wrong(f, "weights: the bigram differs");
        }
        return;
    }
    const tl_llama_weights *x = &a->as.llama;
    const tl_llama_weights *y = &b->as.llama;
    const size_t d = f->tl->linear_n_in(&x->embed);
    bool same = x->n_layers == y->n_layers && same_linear(&x->embed, &y->embed) &&
                same_linear(&x->lm_head, &y->lm_head) &&
                fuzz_same_floats(x->final_norm, y->final_norm, d);
    for (size_t i = 0; same && i < x->n_layers; i++) {
        same = same_layer(&x->layers[i], &y->layers[i], d);
    }
    if (!same) {
        (void)fuzz_wrong(f, "weights: a tensor differs");
    }
}
