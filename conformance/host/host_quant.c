/* host_quant.c: the ops of 16-bit floats, int4 and the linear products.
 *
 * Matrices lie in guarded memory of exactly their size, unaligned as in a file. Of a product, only
 * the columns that were asked for may be written; the others must keep the pattern and travel as
 * 0. */
#include "host.h"

#include <string.h>

/* ------------------------------------------------------------------ 16-bit floats */

static bool op_f32_to_f16(host *h, const json_t *in, json_t *out) {
    size_t n = 0;
    const float *x = host_arg_array(h, in, "x", "f32", &n);
    uint16_t *values = host_output(h, "h", host_mul(h, n, sizeof *values));
    if (!host_ready(h)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        values[i] = h->tl.f32_to_f16(x[i]);
    }
    host_put_array(out, "h", "u16", values, n);
    return true;
}

static bool widen(host *h, const json_t *in, json_t *out, float (*function)(uint16_t)) {
    size_t n = 0;
    const uint16_t *values = host_arg_array(h, in, "h", "u16", &n);
    float *x = host_output(h, "x", host_mul(h, n, sizeof *x));
    if (!host_ready(h)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = function(values[i]);
    }
    host_put_array(out, "x", "f32", x, n);
    return true;
}

static bool op_f16_to_f32(host *h, const json_t *in, json_t *out) {
    return widen(h, in, out, h->tl.f16_to_f32);
}

static bool op_bf16_to_f32(host *h, const json_t *in, json_t *out) {
    return widen(h, in, out, h->tl.bf16_to_f32);
}

/* ------------------------------------------------------------------ int4 */

/* What the engine says that a packed matrix takes; n_packed where it refuses, or the values are not
 * there. */
static size_t packed_size(host *h, size_t rows, size_t cols, size_t n_packed) {
    tl_error err = host_error();
    size_t size = n_packed;
    tl_status status = h->tl.int4_packed_size(rows, cols, &size, &err);
    host_expect(h, (status == TL_ERR_INVALID) == (cols % 2 != 0), status,
                "int4_packed_size of %zu columns is answered with status %d", cols, (int)status);
    return status == TL_OK && size <= 2 * n_packed ? size : n_packed;
}

static bool op_int4_pack(host *h, const json_t *in, json_t *out) {
    size_t n = 0;
    const int8_t *q = host_arg_array(h, in, "q", "i8", &n);
    size_t rows = host_arg_size_or(h, in, "rows", 0);
    size_t cols = host_arg_size_or(h, in, "cols", 0);
    size_t n_packed = packed_size(h, rows, cols, n / 2);
    uint8_t *packed = host_output(h, "packed", n_packed);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = h->tl.int4_pack(q, n, rows, cols, packed, n_packed, &err);
    if (!host_answer(out, status, &err)) {
        return false;
    }
    host_put_array(out, "packed", "u8", packed, n_packed);
    return true;
}

static bool op_int4_unpack(host *h, const json_t *in, json_t *out) {
    size_t n = 0;
    const uint8_t *packed = host_arg_array(h, in, "packed", "u8", &n);
    int8_t *q = host_output(h, "q", host_mul(h, n, 2));
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = h->tl.int4_unpack(packed, n, q, 2 * n, &err);
    if (!host_answer(out, status, &err)) {
        return false;
    }
    host_put_array(out, "q", "i8", q, 2 * n);
    return true;
}

/* A little-endian u16 is two bytes in memory, whatever the machine; scales travel as u16 and lie as
 * bytes. */
static const uint8_t *arg_scales(host *h, const json_t *in, size_t *n_bytes) {
    size_t n = 0;
    uint16_t *values = host_arg_array(h, in, "scales", "u16", &n);
    uint8_t *bytes = (uint8_t *)values;
    for (size_t i = 0; !host_is_bad(h) && i < n; i++) {
        uint16_t value = values[i];
        bytes[2 * i] = (uint8_t)(value & 0xffu);
        bytes[2 * i + 1] = (uint8_t)(value >> 8);
    }
    *n_bytes = 2 * n;
    return bytes;
}

void host_put_q4(host *h, json_t *out, const tl_qlinear *q) {
    size_t n = q->scales_len / 2;
    uint16_t *scales = host_output(h, "scales", n * sizeof *scales);
    for (size_t i = 0; scales != NULL && i < n; i++) {
        scales[i] = (uint16_t)(q->scales[2 * i] | (unsigned)q->scales[2 * i + 1] << 8);
    }
    host_put_array(out, "qweight", "u8", q->qweight, q->qweight_len);
    host_put_array(out, "scales", "u16", scales, scales == NULL ? 0 : n);
}

static const tl_qlinear *arg_qlinear(host *h, const json_t *in) {
    tl_qlinear q = {.n_out = host_arg_size_or(h, in, "n_out", 0),
                    .n_in = host_arg_size_or(h, in, "n_in", 0),
                    .group = host_arg_size_or(h, in, "group", 0)};
    q.qweight = host_arg_array(h, in, "qweight", "u8", &q.qweight_len);
    q.scales = arg_scales(h, in, &q.scales_len);
    return host_const(h, "qlinear", &q, sizeof q);
}

/* Is every byte of the structure zero, as after a refused quantizer? */
static bool is_zero(const void *value, size_t n_bytes) {
    const uint8_t *bytes = value;
    for (size_t i = 0; i < n_bytes; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool op_quantize(host *h, const json_t *in, json_t *out) {
    size_t n = 0;
    const float *w = host_arg_array(h, in, "w", "f32", &n);
    size_t n_out = host_arg_size_or(h, in, "n_out", 0);
    size_t n_in = host_arg_size_or(h, in, "n_in", 0);
    size_t group = host_arg_size_or(h, in, "group", 0);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_qlinear q;
    memset(&q, 0x5a, sizeof q);
    tl_status status = h->tl.qlinear_quantize(&q, w, n, n_out, n_in, group, &err);
    if (!host_answer(out, status, &err)) {
        if (!is_zero(&q, sizeof q)) {
            host_violation(h, "a refused quantizer did not leave its result as zeros");
        }
        return false;
    }
    host_put_q4(h, out, &q);
    h->tl.qlinear_clear(&q);
    host_expect(h, is_zero(&q, sizeof q), TL_OK, "qlinear_clear does not leave the layer as zeros");
    return true;
}

static bool op_dequantize(host *h, const json_t *in, json_t *out) {
    const tl_qlinear *q = arg_qlinear(h, in);
    size_t n = host_is_bad(h) ? 0 : host_mul(h, q->n_out, q->n_in);
    float *w = host_output(h, "w", host_mul(h, n, sizeof *w));
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = h->tl.qlinear_dequantize(q, w, n, &err);
    if (!host_answer(out, status, &err)) {
        return false;
    }
    host_put_array(out, "w", "f32", w, n);
    return true;
}

/* ------------------------------------------------------------------ products */

/* The other side of a product and its place. */
typedef struct product {
    size_t n_out, n_in, m;
    size_t row_begin, row_end;
    const float *x; /* [x_len] */
    size_t x_len;
    float *y; /* [y_len] */
    size_t y_len;
    tl_isa isa;
    tl_work *work;
} product;

static product arg_product(host *h, const json_t *in) {
    product p = {.n_out = host_arg_size_or(h, in, "n_out", 0),
                 .n_in = host_arg_size_or(h, in, "n_in", 0),
                 .m = host_arg_size_or(h, in, "m", 0),
                 .isa = host_arg_isa(h, in)};
    p.x = host_arg_array(h, in, "x", "f32", &p.x_len);
    p.y_len = host_mul(h, p.m, p.n_out);
    p.y = host_output(h, "y", host_mul(h, p.y_len, sizeof *p.y));
    p.row_end = p.n_out;
    const json_t *rows = json_object_get(in, "rows");
    if (rows != NULL) {
        p.row_begin = (size_t)json_integer_value(json_array_get(rows, 0));
        p.row_end = (size_t)json_integer_value(json_array_get(rows, 1));
    }
    return p;
}

static bool make_work(host *h, product *p, json_t *out) {
    tl_error err = host_error();
    p->work = host_unset();
    tl_status status = h->tl.work_new(&p->work, p->isa, p->n_in, &err);
    void *work = p->work;
    bool made = host_made(h, out, status, &err, &work);
    p->work = work;
    return made;
}

/* Columns outside the range keep the pattern; they are 0 in the answer. */
static void blank_other_columns(host *h, const product *p) {
    for (size_t i = 0; i < p->y_len; i++) {
        size_t column = i % p->n_out;
        if (column >= p->row_begin && column < p->row_end) {
            continue;
        }
        if (!host_untouched(p->y, i * sizeof *p->y, sizeof *p->y)) {
            host_violation(h, "wrote column %zu of y outside of rows %zu to %zu", column,
                           p->row_begin, p->row_end);
            return;
        }
        p->y[i] = 0;
    }
}

static bool put_product(host *h, const product *p, tl_status status, const tl_error *err,
                        json_t *out) {
    if (!host_answer(out, status, err)) {
        return false;
    }
    blank_other_columns(h, p);
    host_put_array(out, "y", "f32", p->y, p->y_len);
    return true;
}

static bool op_q4_linear(host *h, const json_t *in, json_t *out) {
    const tl_qlinear *q = arg_qlinear(h, in);
    product p = arg_product(h, in);
    if (!host_ready(h) || !make_work(h, &p, out)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = h->tl.qlinear_forward(q, p.row_begin, p.row_end, p.x, p.x_len, p.m, p.y,
                                             p.y_len, p.work, &err);
    h->tl.work_free(p.work);
    return put_product(h, &p, status, &err, out);
}

static tl_matrix_kind arg_dtype(host *h, const json_t *in) {
    const char *name = host_arg_text(h, in, "dtype");
    if (strcmp(name, "f32") == 0) {
        return TL_MATRIX_F32;
    }
    if (strcmp(name, "f16") == 0) {
        return TL_MATRIX_F16;
    }
    if (strcmp(name, "bf16") != 0) {
        host_bad(h, "`dtype` is none of f32, f16 and bf16: %s", name);
    }
    return TL_MATRIX_BF16;
}

static const tl_linear *arg_dense(host *h, const json_t *in, const product *p) {
    tl_linear linear;
    memset(&linear, 0, sizeof linear);
    size_t n_bytes = 0;
    linear.kind = TL_LINEAR_DENSE;
    linear.as.dense = (tl_matrix){.kind = arg_dtype(h, in), .n_out = p->n_out, .n_in = p->n_in};
    linear.as.dense.data = host_arg_array(h, in, "weights", "u8", &n_bytes);
    size_t element = linear.as.dense.kind == TL_MATRIX_F32 ? 4 : 2;
    if (n_bytes != host_mul(h, host_mul(h, p->n_out, p->n_in), element)) {
        host_bad(h, "`weights` has another length than its shape");
    }
    return host_const(h, "linear", &linear, sizeof linear);
}

static bool op_linear(host *h, const json_t *in, json_t *out) {
    product p = arg_product(h, in);
    const tl_linear *linear = arg_dense(h, in, &p);
    if (!host_ready(h) || !make_work(h, &p, out)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = h->tl.linear_forward(linear, p.row_begin, p.row_end, p.x, p.x_len, p.m, p.y,
                                            p.y_len, p.work, &err);
    h->tl.work_free(p.work);
    return put_product(h, &p, status, &err, out);
}

const host_op host_quant_ops[] = {
    {"f32_to_f16", op_f32_to_f16},   {"f16_to_f32", op_f16_to_f32},
    {"bf16_to_f32", op_bf16_to_f32}, {"int4_pack", op_int4_pack},
    {"int4_unpack", op_int4_unpack}, {"quantize", op_quantize},
    {"dequantize", op_dequantize},   {"q4_linear", op_q4_linear},
    {"linear", op_linear},           {NULL, NULL},
};
