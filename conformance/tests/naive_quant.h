/* naive_quant.h: 16-bit floats and int4 by integer arithmetic, and products in f64.
 *
 * Source: conformance/spec/safetensors.md, int4 tensors; forward.md, linear. */
#ifndef OL_NAIVE_QUANT_H
#define OL_NAIVE_QUANT_H

#include "tests.h"

uint32_t naive_f32_bits(float x);
float naive_f32_of(uint32_t bits);

/* The f32 with these bits, rounded to f16: nearest, ties to even, by integer division. A NaN gives
 * 0x7e00 with its sign. */
uint16_t naive_f16_round(uint32_t f32_bits);
/* The f32 bits of an f16, exactly; of a NaN, its payload moved up. */
uint32_t naive_f16_widen(uint16_t h);
bool naive_f16_is_nan(uint16_t h);

/* The two values of a packed byte: column 2b in the low nibble. */
void naive_unpack(uint8_t byte, int8_t q[2]);

/* A matrix W^ [n_out, n_in] in memory, for products. */
typedef struct naive_matrix {
    size_t n_out, n_in;
    const float *w; /* [n_out * n_in], widened or dequantized */
} naive_matrix;

/* y = x W^T in f64, and for each element 2 K 2^-24 sum |x W^| with K = n_in: what f32 arithmetic in
 * any order may be off by. y, allowed [m * n_out]. */
void naive_product(const naive_matrix *w, const float *x, size_t m, double *y, double *allowed);

#endif
