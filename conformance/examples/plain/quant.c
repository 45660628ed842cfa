/* quant.c: 16-bit floats and int4, by arithmetic where the page speaks of numbers.
 *
 * Rounding to f16 is done on values and not on bits: an f16 is a whole number of steps, the step
 * hangs on the size of the value alone, and rint rounds half to even. A carry into the next power
 * of two then needs no line of its own.
 *
 * Source: conformance/spec/forward.md (f16, widen) and conformance/spec/safetensors.md (int4). */
#include "tl/quant.h"

#include <math.h>
#include <stdlib.h>

#include "util.h"

float tl_f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h >> 15) << 31;
    const uint32_t exponent = (h >> 10) & 31;
    const uint32_t mantissa = h & 1023;
    if (exponent == 31) { /* infinity, or a NaN, which becomes quiet */
        const uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
        return tli_f32_from_bits(sign | 0x7f800000 | quiet | (mantissa << 13));
    }
    if (exponent == 0) { /* zero or subnormal: steps of 2^-24 */
        const float value = (float)mantissa * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    return tli_f32_from_bits(sign | ((exponent + 127 - 15) << 23) | (mantissa << 13));
}

uint16_t tl_f32_to_f16(float x) {
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const double size = fabs((double)x);
    if (isnan(x)) {
        return (uint16_t)(sign | 0x7e00 | ((tli_f32_bits(x) >> 13) & 0x3ff));
    }
    if (size >= 65520) {
        return (uint16_t)(sign | 0x7c00);
    }
    if (size < 0x1p-14) { /* 1024 steps are the smallest normal number, whose bits are 1024 too */
        return (uint16_t)(sign | (uint16_t)rint(size * 0x1p24));
    }
    int exponent; /* size is in [2^(exponent - 1), 2^exponent) */
    (void)frexp(size, &exponent);
    const int steps = (int)rint(ldexp(size, 11 - exponent)); /* 1024 to 2048 */
    return (uint16_t)(sign | (((exponent + 14) << 10) + (steps - 1024)));
}

float tl_bf16_to_f32(uint16_t h) {
    return tli_f32_from_bits((uint32_t)h << 16);
}

/* ------------------------------------------------------------------ nibbles */

tl_status tl_int4_packed_size(size_t rows, size_t cols, size_t *n_bytes, tl_error *err) {
    if (n_bytes == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "n_bytes is NULL");
    }
    if (cols % 2 != 0) {
        return tli_fail(err, TL_ERR_INVALID, "cols is %zu, an even number is needed", cols);
    }
    size_t size;
    if (!tli_mul(rows, cols / 2, &size)) {
        return tli_fail(err, TL_ERR_NOMEM, "%zu x %zu values overflow", rows, cols);
    }
    *n_bytes = size;
    return TL_OK;
}

static int nibble_value(unsigned nibble) {
    return nibble < 8 ? (int)nibble : (int)nibble - 16;
}

tl_status tl_int4_pack(const int8_t *q, size_t q_len, size_t rows, size_t cols, uint8_t *packed,
                       size_t packed_len, tl_error *err) {
    size_t size = 0;
    TLI_TRY(tl_int4_packed_size(rows, cols, &size, err));
    if (packed_len != size || q_len / 2 != size || q_len % 2 != 0) {
        return tli_fail(err, TL_ERR_INVALID, "%zu values and %zu bytes for %zu x %zu values", q_len,
                        packed_len, rows, cols);
    }
    if (size > 0 && (q == NULL || packed == NULL)) {
        return tli_fail(err, TL_ERR_INVALID, "q or packed is NULL");
    }
    for (size_t i = 0; i < q_len; i++) {
        if (q[i] < -8 || q[i] > 7) {
            return tli_fail(err, TL_ERR_INVALID, "q[%zu] is %d, -8 to 7 is allowed", i, q[i]);
        }
    }
    for (size_t b = 0; b < size; b++) {
        const unsigned low = (unsigned)q[2 * b] & 15;
        const unsigned high = (unsigned)q[2 * b + 1] & 15;
        packed[b] = (uint8_t)(low | (high << 4));
    }
    return TL_OK;
}

tl_status tl_int4_unpack(const uint8_t *packed, size_t packed_len, int8_t *q, size_t q_len,
                         tl_error *err) {
    if (q_len % 2 != 0 || q_len / 2 != packed_len) {
        return tli_fail(err, TL_ERR_INVALID, "%zu values from %zu bytes, two a byte are needed",
                        q_len, packed_len);
    }
    if (packed_len > 0 && (q == NULL || packed == NULL)) {
        return tli_fail(err, TL_ERR_INVALID, "q or packed is NULL");
    }
    for (size_t b = 0; b < packed_len; b++) {
        q[2 * b] = (int8_t)nibble_value(packed[b] & 15);
        q[2 * b + 1] = (int8_t)nibble_value(packed[b] >> 4);
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ quantized matrices */

static tl_status check_shape(size_t n_out, size_t n_in, size_t group, tl_error *err) {
    if (n_out == 0 || n_in == 0) {
        return tli_fail(err, TL_ERR_INVALID, "n_out is %zu and n_in %zu, at least 1 is needed",
                        n_out, n_in);
    }
    if (group == 0 || group % 2 != 0 || n_in % group != 0) {
        return tli_fail(err, TL_ERR_INVALID,
                        "the group is %zu, an even divisor of the %zu columns is needed", group,
                        n_in);
    }
    return TL_OK;
}

/* One group of a row, from element `first` of the matrix on: its scale, and its nibbles. */
static tl_status quantize_group(const float *matrix, size_t first, size_t group, uint8_t *qweight,
                                uint8_t *scale, tl_error *err) {
    const float *w = matrix + first;
    float max = 0;
    for (size_t i = 0; i < group; i++) {
        if (!isfinite(w[i])) {
            return tli_fail(err, TL_ERR_INVALID, "w[%zu] is %g, which is not finite", first + i,
                            (double)w[i]);
        }
        max = fmaxf(max, fabsf(w[i]));
    }
    const uint16_t stored = tl_f32_to_f16(max / 7);
    const float s = tl_f16_to_f32(stored);
    if (!isfinite(s)) {
        return tli_fail(err, TL_ERR_INVALID, "the scale of the largest weight, %g, is infinite",
                        (double)max);
    }
    for (size_t i = 0; i < group; i++) {
        float q = 0;
        if (s > 0) {
            q = fminf(fmaxf(rintf(w[i] / s), -8), 7);
        }
        const unsigned nibble = (unsigned)(int)q & 15;
        qweight[i / 2] = (uint8_t)(i % 2 == 0 ? nibble : qweight[i / 2] | (nibble << 4));
    }
    tli_store_u16(scale, stored);
    return TL_OK;
}

static tl_status quantize_rows(const float *w, const tl_qlinear *shape, uint8_t *memory,
                               tl_error *err) {
    const size_t groups = shape->n_in / shape->group;
    uint8_t *scales = memory + shape->qweight_len;
    for (size_t row = 0; row < shape->n_out; row++) {
        for (size_t g = 0; g < groups; g++) {
            const size_t at = row * shape->n_in + g * shape->group;
            tl_error why;
            const tl_status status = quantize_group(w, at, shape->group, memory + at / 2,
                                                    scales + 2 * (row * groups + g), &why);
            if (status != TL_OK) {
                return tli_fail(err, status, "row %zu, group %zu: %s", row, g, why.text);
            }
        }
    }
    return TL_OK;
}

tl_status tl_qlinear_quantize(tl_qlinear *out, const float *w, size_t w_len, size_t n_out,
                              size_t n_in, size_t group, tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = (tl_qlinear){0};
    TLI_TRY(check_shape(n_out, n_in, group, err));
    size_t n_weights;
    if (w == NULL || !tli_mul(n_out, n_in, &n_weights) || n_weights != w_len) {
        return tli_fail(err, TL_ERR_INVALID, "w is NULL, or w_len is %zu and not %zu x %zu", w_len,
                        n_out, n_in);
    }
    /* A group has at least two weights, so both parts are at most as long as the weights. */
    tl_qlinear made = {.n_out = n_out,
                       .n_in = n_in,
                       .group = group,
                       .qweight_len = n_weights / 2,
                       .scales_len = n_weights / group * 2};
    uint8_t *memory = tli_calloc(made.qweight_len + made.scales_len, 1);
    if (memory == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for %zu int4 weights", n_weights);
    }
    const tl_status status = quantize_rows(w, &made, memory, err);
    if (status != TL_OK) {
        free(memory);
        return status;
    }
    made.qweight = memory;
    made.scales = memory + made.qweight_len;
    made.owned = memory;
    *out = made;
    return TL_OK;
}

/* Fields that contradict each other are the caller's mistake, found before a byte is read. */
static tl_status check_qlinear(const tl_qlinear *q, tl_error *err) {
    if (q == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "the layer q is NULL");
    }
    TLI_TRY(check_shape(q->n_out, q->n_in, q->group, err));
    size_t n_weights;
    if (!tli_mul(q->n_out, q->n_in, &n_weights) || q->qweight_len != n_weights / 2 ||
        q->scales_len != n_weights / q->group * 2 || q->qweight == NULL || q->scales == NULL) {
        return tli_fail(err, TL_ERR_INVALID,
                        "qweight_len is %zu and scales_len %zu, for %zu x %zu in groups "
                        "of %zu; or qweight or scales is NULL",
                        q->qweight_len, q->scales_len, q->n_out, q->n_in, q->group);
    }
    return TL_OK;
}

static float scale_at(const tl_qlinear *q, size_t row, size_t g) {
    return tl_f16_to_f32(tli_load_u16(q->scales + 2 * (row * (q->n_in / q->group) + g)));
}

static int value_at(const tl_qlinear *q, size_t row, size_t col) {
    const unsigned byte = q->qweight[row * (q->n_in / 2) + col / 2];
    return nibble_value(col % 2 == 0 ? byte & 15 : byte >> 4);
}

tl_status tl_qlinear_dequantize(const tl_qlinear *q, float *w, size_t w_len, tl_error *err) {
    TLI_TRY(check_qlinear(q, err));
    if (w == NULL || w_len != q->n_out * q->n_in) {
        return tli_fail(err, TL_ERR_INVALID, "w is NULL, or w_len is %zu and not %zu x %zu", w_len,
                        q->n_out, q->n_in);
    }
    for (size_t row = 0; row < q->n_out; row++) {
        for (size_t col = 0; col < q->n_in; col++) {
            const float s = scale_at(q, row, col / q->group);
            w[row * q->n_in + col] = (float)value_at(q, row, col) * s;
        }
    }
    return TL_OK;
}

/* One sum in f64, whatever else is computed in the same call: a product of two f32 is exact in it,
 * and q * s is exact in f32. */
static double dot_row(const tl_qlinear *q, size_t row, const float *x) {
    double sum = 0;
    for (size_t g = 0; g < q->n_in / q->group; g++) {
        const float s = scale_at(q, row, g);
        for (size_t k = g * q->group; k < (g + 1) * q->group; k++) {
            const float w = (float)value_at(q, row, k) * s;
            sum += (double)x[k] * (double)w;
        }
    }
    return sum;
}

tl_status tl_qlinear_forward(const tl_qlinear *q, size_t row_begin, size_t row_end, const float *x,
                             size_t x_len, size_t m, float *y, size_t y_len, tl_work *work,
                             tl_error *err) {
    TLI_TRY(check_qlinear(q, err));
    size_t x_need;
    size_t y_need;
    if (!tli_mul(m, q->n_in, &x_need) || x_len != x_need || !tli_mul(m, q->n_out, &y_need) ||
        y_len != y_need) {
        return tli_fail(err, TL_ERR_INVALID,
                        "x_len is %zu and y_len %zu, for %zu rows of %zu in and %zu out", x_len,
                        y_len, m, q->n_in, q->n_out);
    }
    if (row_begin > row_end || row_end > q->n_out) {
        return tli_fail(err, TL_ERR_INVALID, "rows %zu to %zu of %zu", row_begin, row_end,
                        q->n_out);
    }
    if (work == NULL || tl_work_max_n_in(work) < q->n_in || (m > 0 && (x == NULL || y == NULL))) {
        return tli_fail(err, TL_ERR_INVALID, "x, y or work is NULL, or work is for shorter rows");
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t row = row_begin; row < row_end; row++) {
            y[i * q->n_out + row] = (float)dot_row(q, row, x + i * q->n_in);
        }
    }
    return TL_OK;
}

void tl_qlinear_clear(tl_qlinear *q) {
    if (q != NULL) {
        free(q->owned);
        *q = (tl_qlinear){0};
    }
}
