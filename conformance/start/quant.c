/* quant.c: 16-bit floats and 4-bit weights.
 *
 * To be written. Begin with tl_f32_to_f16: the pool stores what it gives, and most other tests
 * rest on it.
 *
 * Read conformance/spec/safetensors.md, int4 tensors; the header says what each call promises.
 * Tests: ol check L10.1 --engine . --only 'f16_*' (and int4_hand_example, q4_linear_*). */
#include "tl/quant.h"

#include "util.h"

/* Every call refuses until it is written. */
static tl_status not_written(const char *call, tl_error *err) {
    return tli_fail(err, TL_ERR_INTERNAL, "%s is not written yet", call);
}

float tl_f16_to_f32(uint16_t h) {
    (void)h;
    return 0;
}

uint16_t tl_f32_to_f16(float x) {
    (void)x;
    return 0;
}

float tl_bf16_to_f32(uint16_t h) {
    (void)h;
    return 0;
}

tl_status tl_int4_packed_size(size_t rows, size_t cols, size_t *n_bytes, tl_error *err) {
    (void)rows;
    (void)cols;
    (void)n_bytes;
    return not_written("tl_int4_packed_size", err);
}

tl_status tl_int4_pack(const int8_t *q, size_t q_len, size_t rows, size_t cols, uint8_t *packed,
                       size_t packed_len, tl_error *err) {
    (void)q;
    (void)q_len;
    (void)rows;
    (void)cols;
    (void)packed;
    (void)packed_len;
    return not_written("tl_int4_pack", err);
}

tl_status tl_int4_unpack(const uint8_t *packed, size_t packed_len, int8_t *q, size_t q_len,
                         tl_error *err) {
    (void)packed;
    (void)packed_len;
    (void)q;
    (void)q_len;
    return not_written("tl_int4_unpack", err);
}

tl_status tl_qlinear_quantize(tl_qlinear *out, const float *w, size_t w_len, size_t n_out,
                              size_t n_in, size_t group, tl_error *err) {
    (void)w;
    (void)w_len;
    (void)n_out;
    (void)n_in;
    (void)group;
    if (out != NULL) {
        *out = (tl_qlinear){0};
    }
    return not_written("tl_qlinear_quantize", err);
}

tl_status tl_qlinear_dequantize(const tl_qlinear *q, float *w, size_t w_len, tl_error *err) {
    (void)q;
    (void)w;
    (void)w_len;
    return not_written("tl_qlinear_dequantize", err);
}

tl_status tl_qlinear_forward(const tl_qlinear *q, size_t row_begin, size_t row_end, const float *x,
                             size_t x_len, size_t m, float *y, size_t y_len, tl_work *work,
                             tl_error *err) {
    (void)q;
    (void)row_begin;
    (void)row_end;
    (void)x;
    (void)x_len;
    (void)m;
    (void)y;
    (void)y_len;
    (void)work;
    return not_written("tl_qlinear_forward", err);
}

void tl_qlinear_clear(tl_qlinear *q) {
    (void)q;
}
