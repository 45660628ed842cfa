/* model_maker.h: small models that the judge makes by itself, in its own memory, and puts into the
 * child's directory.
 *
 * A model is a config and a list of tensors in the order of the file. It is drawn (a Llama of a
 * given shape from the test's generator), read from the goldens, or made from another: the same
 * weights quantized to an int4 file, or the same with what int4 makes of them written out as F32.
 * Everything here is written from conformance/spec/{config,safetensors}.md and shares no code with
 * any engine.
 *
 * Memory is the test's. What cannot be read is a broken golden and does not return. */
#ifndef OL_TESTS_MODEL_MAKER_H
#define OL_TESTS_MODEL_MAKER_H

#include "../runner/test.h"

/* What the tests need of a config.json. A bigram has vocab and positions only, the rest is 0. */
typedef struct tm_shape {
    bool llama;
    bool tied;
    size_t vocab, hidden, inter, layers, heads, kv_heads, head_dim, positions;
    double theta;
    uint32_t eos[16];
    size_t n_eos;
    const char *tokenizer; /* as it stands in the file */
} tm_shape;

typedef struct tm_tensor {
    const char *name;
    const char *dtype; /* the format's own word */
    size_t dims[2];    /* rows, columns; columns is 1 when n_dims is 1 */
    size_t n_dims;     /* 1 or 2 */
    uint8_t *bytes;    /* [n_bytes] as in the file */
    size_t n_bytes;
    float *values; /* [rows * columns] widened; NULL for types that are not read as f32 */
} tm_tensor;

typedef struct tm_model {
    tm_shape shape;
    const char *config; /* the text of config.json */
    size_t config_len;
    tm_tensor *tensors; /* [n_tensors], in the order of the file */
    size_t n_tensors;
    size_t int4_group; /* 0: not quantized */
} tm_model;

/* The shape that a config.json states, with the defaults of the page. */
tm_shape tm_shape_of(ol_test *t, const ol_case *c, const char *model);

/* A Llama of this shape with weights from the test's generator, all stored as `dtype` ("F32",
 * "F16", "BF16"; the values are exactly what the file holds). The embedding is the first tensor of
 * the file, so that an id past the vocabulary reads into the next one and not past the end. The
 * scale of the weights is that of the goldens: K and V in f16 move the logits by a fraction of the
 * bound, wrong attention by many bounds. */
tm_model *tm_draw(ol_test *t, const tm_shape *shape, const char *dtype);

/* A bigram in which the bytes a to y are each most likely followed by the next letter. */
tm_model *tm_draw_bigram(ol_test *t);

/* A model of the goldens ("models/NAME") that is one file of plain weights. */
tm_model *tm_read(ol_test *t, const ol_case *c, const char *model);

/* The same model as an int4 file, and the model whose quantized weights stand there as F32. Group
 * must be even and divide the columns of every quantized weight. */
tm_model *tm_int4(ol_test *t, const tm_model *m, size_t group);
tm_model *tm_dequantized(ol_test *t, const tm_model *m, size_t group);

/* The tensor of this name; NULL if there is none. */
const tm_tensor *tm_find(const tm_model *m, const char *name);

/* Is this weight among those that int4 quantizes? */
bool tm_is_quantized(const tm_model *m, const tm_tensor *tensor);

/* Write DIR/config.json and DIR/model.safetensors into the child's directory. */
void tm_put(ol_test *t, const tm_model *m, const char *dir);

/* ------------------------------------------------------------------ numbers (model_numbers.c) */

/* n values as they lie in a file of dtype F32, F16 or BF16, widened. false: another dtype. */
bool tm_widen(const char *dtype, const uint8_t *bytes, size_t n, float *values);
/* Store n values as dtype; what does not fit exactly is rounded and `values` set to what is
 * stored. */
void tm_store(const char *dtype, float *values, size_t n, uint8_t *bytes);
size_t tm_dtype_bytes(const char *dtype); /* of F32, F16, BF16, U8; 0 for others */

/* One group of g weights: the stored scale and g quotients, by safetensors#int4. */
uint16_t tm_quantize_group(const float *w, size_t g, int8_t *q);

#endif
