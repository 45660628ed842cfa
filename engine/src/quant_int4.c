/* quant_int4.c: 4-bit weights: packing, quantizing, and the linear layer over them.
 *
 * A scale is rounded to f16 first and the weights are divided by the f16 value, because that is
 * the value a reader of the file multiplies with. A row times its weights is one call of
 * tl_ops_matmul, which widens to q * s, so that an int4 layer gives the bits of the dense layer
 * over its dequantized weights.
 *
 * Source: conformance/spec/safetensors.md, int4 tensors; conformance/spec/forward.md, linear. */
#include "tl/quant.h"

#include <math.h>
#include <stdlib.h>

#include "util.h"

#define Q_MIN (-8)
#define Q_MAX 7

/* ---- packing --------------------------------------------------------------------------------- */

static uint8_t pack_pair(int8_t even, int8_t odd) {
    const uint32_t low = (uint32_t)even & 0x0fu;
    const uint32_t high = (uint32_t)odd & 0x0fu;
    return (uint8_t)(high << 4 | low);
}

/* 4-bit two's complement to an integer: the sign bit is worth -8. */
static int8_t widen_nibble(uint32_t nibble) {
    return (int8_t)((int)(nibble ^ 8u) - 8);
}

static int8_t even_column(uint8_t byte) {
    return widen_nibble(byte & 0x0fu);
}

static int8_t odd_column(uint8_t byte) {
    return widen_nibble((uint32_t)byte >> 4);
}

tl_status tl_int4_packed_size(size_t rows, size_t cols, size_t *n_bytes, tl_error *err) {
    if (n_bytes == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "int4 packed size: n_bytes is NULL");
    }
    if (cols % 2 != 0) {
        return tli_fail(err, TL_ERR_INVALID, "int4 packed size: %zu columns, must be even", cols);
    }
    size_t size = 0;
    if (!tli_mul(rows, cols / 2, &size)) {
        return tli_fail(err, TL_ERR_NOMEM, "int4 packed size: %zu x %zu values overflow", rows,
                        cols);
    }
    *n_bytes = size;
    return TL_OK;
}

static tl_status check_pack(const int8_t *q, size_t q_len, size_t rows, size_t cols,
                            const uint8_t *packed, size_t packed_len, tl_error *err) {
    if ((q == NULL && q_len != 0) || (packed == NULL && packed_len != 0)) {
        return tli_fail(err, TL_ERR_INVALID, "int4 pack: %s is NULL, its length is not 0",
                        q == NULL && q_len != 0 ? "q" : "packed");
    }
    if (cols % 2 != 0) {
        return tli_fail(err, TL_ERR_INVALID, "int4 pack: %zu columns, must be even", cols);
    }
    size_t n_values = 0;
    if (!tli_mul(rows, cols, &n_values) || q_len != n_values) {
        return tli_fail(err, TL_ERR_INVALID, "int4 pack: q_len is %zu, must be %zu x %zu", q_len,
                        rows, cols);
    }
    if (packed_len != n_values / 2) {
        return tli_fail(err, TL_ERR_INVALID, "int4 pack: packed_len is %zu, must be %zu",
                        packed_len, n_values / 2);
    }
    for (size_t i = 0; i < q_len; i++) {
        if (q[i] < Q_MIN || q[i] > Q_MAX) {
            return tli_fail(err, TL_ERR_INVALID, "int4 pack: q[%zu] is %d, must be %d to %d", i,
                            (int)q[i], Q_MIN, Q_MAX);
        }
    }
    return TL_OK;
}

tl_status tl_int4_pack(const int8_t *q, size_t q_len, size_t rows, size_t cols, uint8_t *packed,
                       size_t packed_len, tl_error *err) {
    TLI_TRY(check_pack(q, q_len, rows, cols, packed, packed_len, err));
    for (size_t b = 0; b < packed_len; b++) {
        packed[b] = pack_pair(q[2 * b], q[2 * b + 1]);
    }
    return TL_OK;
}

tl_status tl_int4_unpack(const uint8_t *packed, size_t packed_len, int8_t *q, size_t q_len,
                         tl_error *err) {
    if ((packed == NULL && packed_len != 0) || (q == NULL && q_len != 0)) {
        return tli_fail(err, TL_ERR_INVALID, "int4 unpack: %s is NULL, its length is not 0",
                        q == NULL && q_len != 0 ? "q" : "packed");
    }
    /* Not 2 * packed_len, which could wrap. */
    if (q_len % 2 != 0 || q_len / 2 != packed_len) {
        return tli_fail(err, TL_ERR_INVALID, "int4 unpack: q_len is %zu, must be twice %zu", q_len,
                        packed_len);
    }
    for (size_t b = 0; b < packed_len; b++) {
        q[2 * b] = even_column(packed[b]);
        q[2 * b + 1] = odd_column(packed[b]);
    }
    return TL_OK;
}

/* ---- quantizing ------------------------------------------------------------------------------ */

static tl_status check_shape(size_t n_out, size_t n_in, size_t group, tl_error *err) {
    if (n_out == 0 || n_in == 0) {
        return tli_fail(err, TL_ERR_INVALID, "int4 linear: shape %zu x %zu has a zero", n_out,
                        n_in);
    }
    if (group == 0 || group % 2 != 0 || n_in % group != 0) {
        return tli_fail(err, TL_ERR_INVALID,
                        "int4 linear: group is %zu, must be even and divide %zu columns", group,
                        n_in);
    }
    return TL_OK;
}

/* The f16 scale of a group of weights. INVALID, naming the place: a weight that is not finite,
 * or a scale that is not. */
static tl_status group_scale(const float *w, size_t group, size_t row, size_t i_group,
                             uint16_t *scale, tl_error *err) {
    float peak = 0.0f;
    for (size_t i = 0; i < group; i++) {
        if (!isfinite(w[i])) {
            return tli_fail(err, TL_ERR_INVALID,
                            "int4 quantize: the weight in row %zu, column %zu is not finite", row,
                            i_group * group + i);
        }
        peak = fmaxf(peak, fabsf(w[i]));
    }
    const uint16_t rounded = tl_f32_to_f16(peak / 7.0f);
    if (isinf(tl_f16_to_f32(rounded))) {
        return tli_fail(err, TL_ERR_INVALID,
                        "int4 quantize: the scale of row %zu, group %zu would be infinite: its "
                        "largest weight is %g, and a seventh of it must stay below 65520",
                        row, i_group, (double)peak);
    }
    *scale = rounded;
    return TL_OK;
}

/* rint is half to even in the default rounding mode. A subnormal scale can be far below max|W| /
 * 7, and then the clamp cuts. */
static int8_t quantize_weight(float w, float scale) {
    if (scale == 0.0f) {
        return 0;
    }
    const float rounded = rintf(w / scale);
    const float above_min = rounded < (float)Q_MIN ? (float)Q_MIN : rounded;
    const float clamped = above_min > (float)Q_MAX ? (float)Q_MAX : above_min;
    return (int8_t)clamped;
}

static void quantize_group(const float *w, size_t group, uint16_t stored_scale, uint8_t *packed) {
    const float scale = tl_f16_to_f32(stored_scale);
    for (size_t b = 0; b < group / 2; b++) {
        const int8_t even = quantize_weight(w[2 * b], scale);
        const int8_t odd = quantize_weight(w[2 * b + 1], scale);
        packed[b] = pack_pair(even, odd);
    }
}

static tl_status quantize_all(const float *w, const tl_qlinear *q, uint8_t *qweight,
                              uint8_t *scales, tl_error *err) {
    const size_t n_groups = q->n_in / q->group;
    for (size_t row = 0; row < q->n_out; row++) {
        for (size_t g = 0; g < n_groups; g++) {
            const size_t i_group = row * n_groups + g;
            const float *group_w = w + i_group * q->group;
            uint16_t scale = 0;
            TLI_TRY(group_scale(group_w, q->group, row, g, &scale, err));
            tli_store_u16(scales + 2 * i_group, scale);
            quantize_group(group_w, q->group, scale, qweight + i_group * (q->group / 2));
        }
    }
    return TL_OK;
}

tl_status tl_qlinear_quantize(tl_qlinear *out, const float *w, size_t w_len, size_t n_out,
                              size_t n_in, size_t group, tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "int4 quantize: out is NULL");
    }
    *out = (tl_qlinear){0};
    if (w == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "int4 quantize: w is NULL");
    }
    TLI_TRY(check_shape(n_out, n_in, group, err));
    size_t n_values = 0;
    if (!tli_mul(n_out, n_in, &n_values) || w_len != n_values) {
        return tli_fail(err, TL_ERR_INVALID, "int4 quantize: w_len is %zu, must be %zu x %zu",
                        w_len, n_out, n_in);
    }
    const size_t qweight_len = n_values / 2;
    const size_t scales_len = n_values / group * 2;
    size_t n_bytes = 0;
    uint8_t *memory = NULL;
    if (tli_add(qweight_len, scales_len, &n_bytes)) {
        memory = tli_calloc(n_bytes, 1);
    }
    if (memory == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "int4 quantize: no memory for %zu x %zu values", n_out,
                        n_in);
    }
    const tl_qlinear q = {
        .n_out = n_out,
        .n_in = n_in,
        .group = group,
        .qweight = memory,
        .qweight_len = qweight_len,
        .scales = memory + qweight_len,
        .scales_len = scales_len,
        .owned = memory,
    };
    const tl_status status = quantize_all(w, &q, memory, memory + qweight_len, err);
    if (status != TL_OK) {
        free(memory);
        return status;
    }
    *out = q;
    return TL_OK;
}

void tl_qlinear_clear(tl_qlinear *q) {
    if (q == NULL) {
        return;
    }
    free(q->owned);
    *q = (tl_qlinear){0};
}

/* ---- use ------------------------------------------------------------------------------------- */

/* The fields are the caller's to fill, from a file perhaps: they must agree before any byte is
 * read. */
static tl_status check_qlinear(const tl_qlinear *q, tl_error *err) {
    if (q == NULL || q->qweight == NULL || q->scales == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "int4 linear: %s is NULL",
                        q == NULL            ? "the layer"
                        : q->qweight == NULL ? "qweight"
                                             : "scales");
    }
    TLI_TRY(check_shape(q->n_out, q->n_in, q->group, err));
    size_t qweight_len = 0;
    if (!tli_mul(q->n_out, q->n_in / 2, &qweight_len) || q->qweight_len != qweight_len) {
        return tli_fail(err, TL_ERR_INVALID,
                        "int4 linear: qweight_len is %zu, must be that of %zu x %zu values",
                        q->qweight_len, q->n_out, q->n_in);
    }
    /* At most 2 * qweight_len / (group / 2), which is at most twice a length that fits; checked
     * like the rest. */
    size_t n_scales = 0;
    size_t scales_len = 0;
    if (!tli_mul(q->n_out, q->n_in / q->group, &n_scales) || !tli_mul(n_scales, 2, &scales_len) ||
        q->scales_len != scales_len) {
        return tli_fail(err, TL_ERR_INVALID,
                        "int4 linear: scales_len is %zu, must be that of %zu x %zu scales",
                        q->scales_len, q->n_out, q->n_in / q->group);
    }
    return TL_OK;
}

static void dequantize_group(const uint8_t *packed, float scale, size_t group, float *w) {
    for (size_t b = 0; b < group / 2; b++) {
        w[2 * b] = (float)even_column(packed[b]) * scale;
        w[2 * b + 1] = (float)odd_column(packed[b]) * scale;
    }
}

tl_status tl_qlinear_dequantize(const tl_qlinear *q, float *w, size_t w_len, tl_error *err) {
    TLI_TRY(check_qlinear(q, err));
    if (w == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "int4 dequantize: w is NULL");
    }
    size_t n_values = 0;
    if (!tli_mul(q->n_out, q->n_in, &n_values) || w_len != n_values) {
        return tli_fail(err, TL_ERR_INVALID, "int4 dequantize: w_len is %zu, must be %zu x %zu",
                        w_len, q->n_out, q->n_in);
    }
    const size_t n_groups = n_values / q->group;
    for (size_t i = 0; i < n_groups; i++) {
        const float scale = tl_f16_to_f32(tli_load_u16(q->scales + 2 * i));
        const uint8_t *packed = q->qweight + i * (q->group / 2);
        dequantize_group(packed, scale, q->group, w + i * q->group);
    }
    return TL_OK;
}

static tl_status check_forward(const tl_qlinear *q, size_t row_begin, size_t row_end,
                               const float *x, size_t x_len, size_t m, const float *y, size_t y_len,
                               const tl_work *work, tl_error *err) {
    TLI_TRY(check_qlinear(q, err));
    if ((x == NULL && x_len != 0) || (y == NULL && y_len != 0) || work == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "int4 forward: %s is NULL",
                        work == NULL              ? "work"
                        : x == NULL && x_len != 0 ? "x"
                                                  : "y");
    }
    if (row_begin > row_end || row_end > q->n_out) {
        return tli_fail(err, TL_ERR_INVALID, "int4 forward: rows %zu to %zu, there are %zu",
                        row_begin, row_end, q->n_out);
    }
    size_t n_x = 0;
    if (!tli_mul(m, q->n_in, &n_x) || x_len != n_x) {
        return tli_fail(err, TL_ERR_INVALID, "int4 forward: x_len is %zu, must be %zu x %zu", x_len,
                        m, q->n_in);
    }
    size_t n_y = 0;
    if (!tli_mul(m, q->n_out, &n_y) || y_len != n_y) {
        return tli_fail(err, TL_ERR_INVALID, "int4 forward: y_len is %zu, must be %zu x %zu", y_len,
                        m, q->n_out);
    }
    if (tl_work_max_n_in(work) < q->n_in) {
        return tli_fail(err, TL_ERR_INVALID,
                        "int4 forward: the work was made for rows of %zu, this layer has %zu",
                        tl_work_max_n_in(work), q->n_in);
    }
    return TL_OK;
}

tl_status tl_qlinear_forward(const tl_qlinear *q, size_t row_begin, size_t row_end, const float *x,
                             size_t x_len, size_t m, float *y, size_t y_len, tl_work *work,
                             tl_error *err) {
    TLI_TRY(check_forward(q, row_begin, row_end, x, x_len, m, y, y_len, work, err));
    const tl_matrix w = {
        .kind = TL_MATRIX_INT4,
        .n_out = q->n_out,
        .n_in = q->n_in,
        .data = q->qweight,
        .scales = q->scales,
        .group = q->group,
    };
    if (m != 0) {
        tl_ops_matmul(work, &w, row_begin, row_end, x, m, y);
    }
    return TL_OK;
}
