/* model.h: from a checkpoint's bytes to weights: config.json, safetensors, one file or sharded.
 *
 * Everything that comes from a file is checked before anything of it is handed out; what this
 * engine would run wrongly is refused. Weights are used as they lie in the mapped file: loading
 * copies the norms (f32) and nothing else. Loading takes, beyond the map, the header's JSON one
 * entry at a time, for each tensor 76 bytes, 8 a dimension and its name, and the norms: 0.3 MiB for
 * SmolLM2-135M, less than 64 MiB for half a million tensors. Quantize-at-load takes the int4
 * weights and one widened matrix besides.
 *
 * A mapped file that another process cuts while it is in use ends this process by SIGBUS at the
 * next read past the new end (zeros inside the last page): map only files that nobody rewrites in
 * place, or load with TL_WEIGHTS_COPY, which reads the file once, completely, and keeps no map.
 *
 * Source: conformance/spec/config.md and conformance/spec/safetensors.md. */
#ifndef TL_MODEL_H
#define TL_MODEL_H

#include "tl/base.h"
#include "tl/quant.h"

#define TL_EOS_IDS_MAX 16

typedef enum tl_arch { TL_ARCH_BIGRAM = 1, TL_ARCH_LLAMA = 2 } tl_arch;
typedef enum tl_tokenizer_kind { TL_TOKENIZER_BYTE = 1, TL_TOKENIZER_BPE = 2 } tl_tokenizer_kind;
typedef enum tl_weights_mode { TL_WEIGHTS_MAP = 0, TL_WEIGHTS_COPY = 1 } tl_weights_mode;

/* The 22 element types of the format. Only F32, F16, BF16 and U8 are ever read. */
typedef enum tl_dtype {
    TL_DTYPE_F32 = 1,
    TL_DTYPE_F16 = 2,
    TL_DTYPE_BF16 = 3,
    TL_DTYPE_U8 = 4,
    TL_DTYPE_BOOL = 5,
    TL_DTYPE_I8 = 6,
    TL_DTYPE_F8_E5M2 = 7,
    TL_DTYPE_F8_E4M3 = 8,
    TL_DTYPE_F8_E8M0 = 9,
    TL_DTYPE_F8_E4M3FNUZ = 10,
    TL_DTYPE_F8_E5M2FNUZ = 11,
    TL_DTYPE_F4 = 12,
    TL_DTYPE_F6_E2M3 = 13,
    TL_DTYPE_F6_E3M2 = 14,
    TL_DTYPE_I16 = 15,
    TL_DTYPE_U16 = 16,
    TL_DTYPE_I32 = 17,
    TL_DTYPE_U32 = 18,
    TL_DTYPE_C64 = 19,
    TL_DTYPE_F64 = 20,
    TL_DTYPE_I64 = 21,
    TL_DTYPE_U64 = 22
} tl_dtype;

/* ------------------------------------------------------------------ config.json */

typedef struct tl_model_config {
    tl_arch arch;
    tl_tokenizer_kind tokenizer;
    size_t vocab_size;        /* V */
    size_t hidden_size;       /* d; 0 for the bigram */
    size_t intermediate_size; /* width of the MLP; 0 for the bigram */
    size_t n_layers;      /* 1 for the bigram, with n_kv_heads 1 and head_dim 2: its pool's shape */
    size_t n_heads;       /* H; 1 for the bigram */
    size_t n_kv_heads;    /* H_kv, divides H */
    size_t head_dim;      /* D, even; H * D need not be d */
    size_t max_positions; /* longest context */
    double rope_theta;    /* above 0 and finite, as f32 too; 0 for the bigram */
    double rms_norm_eps;  /* the same */
    bool tie_word_embeddings;
    uint32_t eos_token_ids[TL_EOS_IDS_MAX];
    size_t n_eos_token_ids;
} tl_model_config;

TL_BEGIN_DECLS

/* Parse the bytes of a config.json.
 * FORMAT: no such JSON, a missing or wrongly typed key, a value out of range, numbers that do not
 * fit each other. UNSUPPORTED: a sound file that this engine would run wrongly. The text names key
 * and value.
 * INVALID: NULL. NOMEM. */
TL_MUST_USE tl_status tl_model_config_parse(tl_model_config *out, const char *json, size_t json_len,
                                            tl_error *err);

/* Read DIR/config.json (a regular file, at most 1 MiB) and parse it. IO besides. */
TL_MUST_USE tl_status tl_model_config_load(tl_model_config *out, const char *dir, tl_error *err);

/* ------------------------------------------------------------------ safetensors: one file */

typedef struct tl_tensor_info {
    const char *name; /* NUL-ended, owned by the layout */
    size_t name_len;
    tl_dtype dtype;
    const uint64_t *dims; /* [n_dims], owned by the layout; NULL when n_dims is 0 */
    size_t n_dims;
    uint64_t begin, end; /* bytes, counted from the start of the data buffer */
} tl_tensor_info;

typedef struct tl_layout tl_layout;

const char *tl_dtype_name(tl_dtype dtype); /* "BF16"; "unknown" for no dtype. Static text. */

/* Check the whole of a file's bytes against the rules and list its tensors, in the order of their
 * offsets (begin, then end). The layout keeps nothing of bytes.
 * FORMAT with the rule, the tensor, the numbers, and the offset where there is one. NOMEM. */
TL_MUST_USE tl_status tl_layout_parse(tl_layout **out, const uint8_t *bytes, size_t n_bytes,
                                      tl_error *err);
void tl_layout_free(tl_layout *layout);
size_t tl_layout_count(const tl_layout *layout);
const tl_tensor_info *tl_layout_at(const tl_layout *layout, size_t index); /* NULL past the end */
const tl_tensor_info *tl_layout_find(const tl_layout *layout, const char *name); /* NULL if none */
const char *tl_layout_metadata(const tl_layout *layout, const char *key);        /* NULL if none */
/* Of the data buffer, in bytes of the file. */
uint64_t tl_layout_data_start(const tl_layout *layout);

typedef struct tl_safetensors tl_safetensors;

/* Open a file: map it, or read it whole into private memory.
 * IO: not there, not a regular file, not readable. FORMAT as tl_layout_parse. NOMEM. INVALID. */
TL_MUST_USE tl_status tl_safetensors_open(tl_safetensors **out, const char *path,
                                          tl_weights_mode mode, tl_error *err);
/* The same from memory; bytes are borrowed until tl_safetensors_free. */
TL_MUST_USE tl_status tl_safetensors_view(tl_safetensors **out, const uint8_t *bytes,
                                          size_t n_bytes, tl_error *err);
void tl_safetensors_free(tl_safetensors *st);
const tl_layout *tl_safetensors_layout(const tl_safetensors *st); /* lives as long as st */

/* Read a tensor as f32: F32 as it is, F16 and BF16 widened exactly.
 * shape [n_shape]; dst [dst_len = product of shape] f32
 * NOT_FOUND: no such name. UNSUPPORTED: another dtype. FORMAT: another shape. INVALID: dst_len. */
TL_MUST_USE tl_status tl_safetensors_f32(const tl_safetensors *st, const char *name,
                                         const size_t *shape, size_t n_shape, float *dst,
                                         size_t dst_len, tl_error *err);

/* Borrow the int4 pair NAME.qweight and NAME.scales (name is without either suffix), as long as st
 * lives.
 * NOT_FOUND: one of the two is missing. UNSUPPORTED: not U8 and F16. FORMAT: another shape, or a
 * scale that is NaN, infinite or has its sign bit set (with its byte offset). INVALID: group. */
TL_MUST_USE tl_status tl_safetensors_q4(const tl_safetensors *st, const char *name, size_t n_out,
                                        size_t n_in, size_t group, tl_qlinear *out, tl_error *err);

/* ------------------------------------------------------------------ checkpoints: a directory */

typedef struct tl_checkpoint tl_checkpoint;

/* A file of a checkpoint that is in memory. */
typedef struct tl_file_view {
    const char *name; /* "model.safetensors", base name only */
    const uint8_t *bytes;
    size_t n_bytes;
} tl_file_view;

/* Open DIR/model.safetensors, or the shards that DIR/model.safetensors.index.json names.
 * IO: neither is there, or a shard is not. FORMAT: a file breaks a rule, both are there, or index
 * and shards do not fit each other. */
TL_MUST_USE tl_status tl_checkpoint_open(tl_checkpoint **out, const char *dir, tl_weights_mode mode,
                                         tl_error *err);
/* The same from memory; every files[i].bytes is borrowed until tl_checkpoint_free. */
TL_MUST_USE tl_status tl_checkpoint_view(tl_checkpoint **out, const tl_file_view *files,
                                         size_t n_files, tl_error *err);
void tl_checkpoint_free(tl_checkpoint *ckpt);
size_t tl_checkpoint_count(const tl_checkpoint *ckpt); /* tensors in all */
/* As in the layout of one file, the shards one after the other; NULL past the end, NULL if none. */
const tl_tensor_info *tl_checkpoint_at(const tl_checkpoint *ckpt, size_t index);
const tl_tensor_info *tl_checkpoint_find(const tl_checkpoint *ckpt, const char *name);
/* What every shard says under the key; NULL where one lacks it or says another thing. */
const char *tl_checkpoint_metadata(const tl_checkpoint *ckpt, const char *key);
/* As tl_safetensors_f32 and tl_safetensors_q4, in whichever shard. */
TL_MUST_USE tl_status tl_checkpoint_f32(const tl_checkpoint *ckpt, const char *name,
                                        const size_t *shape, size_t n_shape, float *dst,
                                        size_t dst_len, tl_error *err);
TL_MUST_USE tl_status tl_checkpoint_q4(const tl_checkpoint *ckpt, const char *name, size_t n_out,
                                       size_t n_in, size_t group, tl_qlinear *out, tl_error *err);

/* ------------------------------------------------------------------ weights */

typedef enum tl_linear_kind { TL_LINEAR_DENSE = 1, TL_LINEAR_Q4 = 2 } tl_linear_kind;

typedef struct tl_linear {
    tl_linear_kind kind;
    union {
        tl_matrix dense; /* F32, F16 or BF16, as it lies in the checkpoint; borrowed */
        tl_qlinear q4;
    } as;
} tl_linear;

typedef struct tl_llama_layer {
    const float *attn_norm, *mlp_norm; /* [d] each */
    tl_linear wq, wk, wv, wo;          /* [H*D, d] [H_kv*D, d] [H_kv*D, d] [d, H*D] */
    tl_linear w_gate, w_up, w_down;    /* [inter, d] [inter, d] [d, inter] */
} tl_llama_layer;

typedef struct tl_llama_weights {
    tl_linear embed;         /* [V, d], dense */
    const float *final_norm; /* [d] */
    tl_linear lm_head;       /* [V, d]; a borrowed copy of embed when tied */
    tl_llama_layer *layers;  /* [n_layers] */
    size_t n_layers;
} tl_llama_weights;

typedef struct tl_weights {
    tl_arch arch;
    union {
        tl_linear bigram; /* [V, V], dense, row = current token */
        tl_llama_weights llama;
    } as;
    tl_checkpoint *ckpt; /* owned: what the borrowed pointers above point into */
    float *norms;        /* owned: every norm, widened */
} tl_weights;

typedef struct tl_quant_cfg {
    /* 0: weights as they are; else quantize the linears at load with this group. */
    size_t int4_group;
} tl_quant_cfg;

/* Bind the tensors of *ckpt to the config, both ways: everything that cfg calls for is there, and
 * nothing is left over. On success *out owns the checkpoint and *ckpt is NULL; on failure both are
 * as before. quant may be NULL.
 * NOT_FOUND: a tensor is missing. FORMAT: a wrong shape. UNSUPPORTED: a wrong dtype, a tensor left
 * over, a tied head that differs from the embedding. INVALID: quantize-at-load of an int4 file, a
 * group that does not fit, a weight that cannot be quantized, a config that tl_model_config_parse
 * would never make, NULL. NOMEM. */
TL_MUST_USE tl_status tl_weights_load(tl_weights *out, tl_checkpoint **ckpt,
                                      const tl_model_config *cfg, const tl_quant_cfg *quant,
                                      tl_error *err);
void tl_weights_clear(tl_weights *weights);

/* Columns [row_begin, row_end) of y = x W^T, each output by the same product whatever m is.
 * Lengths, work and errors as tl_qlinear_forward. */
TL_MUST_USE tl_status tl_linear_forward(const tl_linear *linear, size_t row_begin, size_t row_end,
                                        const float *x, size_t x_len, size_t m, float *y,
                                        size_t y_len, tl_work *work, tl_error *err);
size_t tl_linear_n_out(const tl_linear *linear);
size_t tl_linear_n_in(const tl_linear *linear);
void tl_linear_clear(tl_linear *linear);

/* ------------------------------------------------------------------ model: config and weights */

/* Immutable after loading: any number of runners and threads may use one at the same time, and it
 * must outlive them. */
typedef struct tl_model tl_model;

typedef struct tl_model_load_cfg {
    /* TL_WEIGHTS_MAP (0): use the mapped file; TL_WEIGHTS_COPY: private memory. */
    tl_weights_mode weights;
    tl_quant_cfg quant;
} tl_model_load_cfg;

/* Load config.json and the checkpoint of a directory. cfg may be NULL: map, no quantization.
 * Status as tl_model_config_load, tl_checkpoint_open and tl_weights_load. */
TL_MUST_USE tl_status tl_model_load(tl_model **out, const char *dir, const tl_model_load_cfg *cfg,
                                    tl_error *err);
/* The same from memory: files has "config.json" and the checkpoint's; borrowed until
 * tl_model_free, whatever cfg->weights says. IO: a file is not among them. */
TL_MUST_USE tl_status tl_model_view(tl_model **out, const tl_file_view *files, size_t n_files,
                                    const tl_model_load_cfg *cfg, tl_error *err);
void tl_model_free(tl_model *model);
const tl_model_config *tl_model_config_of(const tl_model *model); /* lives as long as the model */
const tl_weights *tl_model_weights(const tl_model *model);        /* lives as long as the model */

TL_END_DECLS

#endif
