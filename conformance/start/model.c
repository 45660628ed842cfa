/* model.c: config.json, safetensors, and the weights.
 *
 * To be written. Begin with tl_model_config_parse and tl_layout_parse, which need nothing else.
 * util.h and json.h (in given/) have checked sizes and a JSON reader.
 *
 * Read conformance/spec/config.md and safetensors.md; the header says what each call promises.
 * Tests: ol check L10.1 --engine . --only 'config_*' (and safetensors_*). */
#include "tl/model.h"

#include "util.h"

/* Every call refuses until it is written. */
static tl_status not_written(const char *call, tl_error *err) {
    return tli_fail(err, TL_ERR_INTERNAL, "%s is not written yet", call);
}

tl_status tl_model_config_parse(tl_model_config *out, const char *json, size_t json_len,
                                tl_error *err) {
    (void)out;
    (void)json;
    (void)json_len;
    return not_written("tl_model_config_parse", err);
}

tl_status tl_model_config_load(tl_model_config *out, const char *dir, tl_error *err) {
    (void)out;
    (void)dir;
    return not_written("tl_model_config_load", err);
}

const char *tl_dtype_name(tl_dtype dtype) {
    (void)dtype;
    return "unknown";
}

tl_status tl_layout_parse(tl_layout **out, const uint8_t *bytes, size_t n_bytes, tl_error *err) {
    (void)bytes;
    (void)n_bytes;
    if (out != NULL) {
        *out = NULL;
    }
    return not_written("tl_layout_parse", err);
}

void tl_layout_free(tl_layout *layout) {
    (void)layout;
}

size_t tl_layout_count(const tl_layout *layout) {
    (void)layout;
    return 0;
}

const tl_tensor_info *tl_layout_at(const tl_layout *layout, size_t index) {
    (void)layout;
    (void)index;
    return NULL;
}

const tl_tensor_info *tl_layout_find(const tl_layout *layout, const char *name) {
    (void)layout;
    (void)name;
    return NULL;
}

const char *tl_layout_metadata(const tl_layout *layout, const char *key) {
    (void)layout;
    (void)key;
    return NULL;
}

uint64_t tl_layout_data_start(const tl_layout *layout) {
    (void)layout;
    return 0;
}

tl_status tl_safetensors_open(tl_safetensors **out, const char *path, tl_weights_mode mode,
                              tl_error *err) {
    (void)path;
    (void)mode;
    if (out != NULL) {
        *out = NULL;
    }
    return not_written("tl_safetensors_open", err);
}

tl_status tl_safetensors_view(tl_safetensors **out, const uint8_t *bytes, size_t n_bytes,
                              tl_error *err) {
    (void)bytes;
    (void)n_bytes;
    if (out != NULL) {
        *out = NULL;
    }
    return not_written("tl_safetensors_view", err);
}

void tl_safetensors_free(tl_safetensors *st) {
    (void)st;
}

const tl_layout *tl_safetensors_layout(const tl_safetensors *st) {
    (void)st;
    return NULL;
}

tl_status tl_safetensors_f32(const tl_safetensors *st, const char *name, const size_t *shape,
                             size_t n_shape, float *dst, size_t dst_len, tl_error *err) {
    (void)st;
    (void)name;
    (void)shape;
    (void)n_shape;
    (void)dst;
    (void)dst_len;
    return not_written("tl_safetensors_f32", err);
}

tl_status tl_safetensors_q4(const tl_safetensors *st, const char *name, size_t n_out, size_t n_in,
                            size_t group, tl_qlinear *out, tl_error *err) {
    (void)st;
    (void)name;
    (void)n_out;
    (void)n_in;
    (void)group;
    (void)out;
    return not_written("tl_safetensors_q4", err);
}

tl_status tl_checkpoint_open(tl_checkpoint **out, const char *dir, tl_weights_mode mode,
                             tl_error *err) {
    (void)dir;
    (void)mode;
    if (out != NULL) {
        *out = NULL;
    }
    return not_written("tl_checkpoint_open", err);
}

tl_status tl_checkpoint_view(tl_checkpoint **out, const tl_file_view *files, size_t n_files,
                             tl_error *err) {
    (void)files;
    (void)n_files;
    if (out != NULL) {
        *out = NULL;
    }
    return not_written("tl_checkpoint_view", err);
}

void tl_checkpoint_free(tl_checkpoint *ckpt) {
    (void)ckpt;
}

size_t tl_checkpoint_count(const tl_checkpoint *ckpt) {
    (void)ckpt;
    return 0;
}

const tl_tensor_info *tl_checkpoint_at(const tl_checkpoint *ckpt, size_t index) {
    (void)ckpt;
    (void)index;
    return NULL;
}

const tl_tensor_info *tl_checkpoint_find(const tl_checkpoint *ckpt, const char *name) {
    (void)ckpt;
    (void)name;
    return NULL;
}

const char *tl_checkpoint_metadata(const tl_checkpoint *ckpt, const char *key) {
    (void)ckpt;
    (void)key;
    return NULL;
}

tl_status tl_checkpoint_f32(const tl_checkpoint *ckpt, const char *name, const size_t *shape,
                            size_t n_shape, float *dst, size_t dst_len, tl_error *err) {
    (void)ckpt;
    (void)name;
    (void)shape;
    (void)n_shape;
    (void)dst;
    (void)dst_len;
    return not_written("tl_checkpoint_f32", err);
}

tl_status tl_checkpoint_q4(const tl_checkpoint *ckpt, const char *name, size_t n_out, size_t n_in,
                           size_t group, tl_qlinear *out, tl_error *err) {
    (void)ckpt;
    (void)name;
    (void)n_out;
    (void)n_in;
    (void)group;
    (void)out;
    return not_written("tl_checkpoint_q4", err);
}

tl_status tl_weights_load(tl_weights *out, tl_checkpoint **ckpt, const tl_model_config *cfg,
                          const tl_quant_cfg *quant, tl_error *err) {
    (void)out;
    (void)ckpt;
    (void)cfg;
    (void)quant;
    return not_written("tl_weights_load", err);
}

void tl_weights_clear(tl_weights *weights) {
    (void)weights;
}

tl_status tl_linear_forward(const tl_linear *linear, size_t row_begin, size_t row_end,
                            const float *x, size_t x_len, size_t m, float *y, size_t y_len,
                            tl_work *work, tl_error *err) {
    (void)linear;
    (void)row_begin;
    (void)row_end;
    (void)x;
    (void)x_len;
    (void)m;
    (void)y;
    (void)y_len;
    (void)work;
    return not_written("tl_linear_forward", err);
}

size_t tl_linear_n_out(const tl_linear *linear) {
    (void)linear;
    return 0;
}

size_t tl_linear_n_in(const tl_linear *linear) {
    (void)linear;
    return 0;
}

void tl_linear_clear(tl_linear *linear) {
    (void)linear;
}

tl_status tl_model_load(tl_model **out, const char *dir, const tl_model_load_cfg *cfg,
                        tl_error *err) {
    (void)dir;
    (void)cfg;
    if (out != NULL) {
        *out = NULL;
    }
    return not_written("tl_model_load", err);
}

tl_status tl_model_view(tl_model **out, const tl_file_view *files, size_t n_files,
                        const tl_model_load_cfg *cfg, tl_error *err) {
    (void)files;
    (void)n_files;
    (void)cfg;
    if (out != NULL) {
        *out = NULL;
    }
    return not_written("tl_model_view", err);
}

void tl_model_free(tl_model *model) {
    (void)model;
}

const tl_model_config *tl_model_config_of(const tl_model *model) {
    (void)model;
    return NULL;
}

const tl_weights *tl_model_weights(const tl_model *model) {
    (void)model;
    return NULL;
}
