/* quant.h: 16-bit floats and 4-bit weights.
 *
 * int4: a weight matrix W [n_out, n_in] in groups of g columns (g even, divides n_in). A group has
 *   s = f16(max|W| / 7), rounded to nearest, ties to even, and q = clamp(rint(W / s), -8, 7) with
 *   s the stored f16 value widened to f32, the division in f32 and rint half to even. W^ = q * s
 *   is exact in f32.
 *   Column 2b is in the low nibble of byte b, column 2b + 1 in the high one, in 4-bit two's
 *   complement.
 *   A group whose scale rounds to 0 stores q = 0 throughout.
 *
 * Source: conformance/spec/safetensors.md, int4 tensors; conformance/spec/forward.md, linear. */
#ifndef TL_QUANT_H
#define TL_QUANT_H

#include "tl/base.h"
#include "tl/ops.h"

typedef struct tl_qlinear {
    size_t n_out, n_in, group;
    const uint8_t *qweight; /* [n_out, n_in / 2], low nibble first */
    size_t qweight_len;     /* bytes: n_out * n_in / 2 */
    const uint8_t *scales;  /* [n_out, n_in / group] f16, little-endian, unaligned */
    size_t scales_len;      /* bytes: n_out * (n_in / group) * 2 */
    void *owned; /* memory that tl_qlinear_clear frees; NULL: the pointers are borrowed */
} tl_qlinear;

TL_BEGIN_DECLS

float tl_f16_to_f32(uint16_t h); /* exact */
/* To nearest, ties to even; 65520 and beyond to infinity; subnormals kept; a NaN stays a NaN of
 * its sign. */
uint16_t tl_f32_to_f16(float x);
float tl_bf16_to_f32(uint16_t h); /* exact */

/* Bytes of rows * cols packed values. INVALID: cols is odd. NOMEM: overflow. */
TL_MUST_USE tl_status tl_int4_packed_size(size_t rows, size_t cols, size_t *n_bytes, tl_error *err);

/* Pack two values a byte, row by row.
 * q [q_len = rows * cols] i8, packed [packed_len = rows * cols / 2] u8
 * INVALID: a length that does not match, odd cols, or a q outside -8 to 7 (named with its
 * index). */
TL_MUST_USE tl_status tl_int4_pack(const int8_t *q, size_t q_len, size_t rows, size_t cols,
                                   uint8_t *packed, size_t packed_len, tl_error *err);

/* The way back: packed [packed_len] u8, q [q_len] i8. INVALID: q_len is not 2 * packed_len. */
TL_MUST_USE tl_status tl_int4_unpack(const uint8_t *packed, size_t packed_len, int8_t *q,
                                     size_t q_len, tl_error *err);

/* Quantize w [n_out, n_in] f32 into memory of *out's own. On failure *out is left as {0}.
 * INVALID: w_len, group odd, zero or not dividing n_in, a zero dimension, a weight that is NaN or
 * infinite, or a group whose scale would round to infinity (row and group named). NOMEM. */
TL_MUST_USE tl_status tl_qlinear_quantize(tl_qlinear *out, const float *w, size_t w_len,
                                          size_t n_out, size_t n_in, size_t group, tl_error *err);

/* w [w_len = n_out * n_in] f32 = q * s. INVALID: w_len, or fields of *q that contradict each
 * other. */
TL_MUST_USE tl_status tl_qlinear_dequantize(const tl_qlinear *q, float *w, size_t w_len,
                                            tl_error *err);

/* Columns [row_begin, row_end) of y = x W^T over the dequantized rows: each output is tl_ops_dot
 * of a row of x with a row of W^, so the bits are those of a linear over the dequantized matrix.
 * x [x_len = m * n_in] f32; y [y_len = m * n_out] f32, only those columns are written
 * work: one thread's, tl_work_max_n_in(work) >= n_in. Allocates nothing.
 * INVALID: fields of *q that contradict each other, a dimension of 0, a length, row_begin >
 * row_end, row_end > n_out, a work that is too small, NULL. */
TL_MUST_USE tl_status tl_qlinear_forward(const tl_qlinear *q, size_t row_begin, size_t row_end,
                                         const float *x, size_t x_len, size_t m, float *y,
                                         size_t y_len, tl_work *work, tl_error *err);

void tl_qlinear_clear(tl_qlinear *q);

TL_END_DECLS

#endif
