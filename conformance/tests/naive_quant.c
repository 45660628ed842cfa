/* naive_quant.c: see naive_quant.h. */
#include "naive_quant.h"

#include <math.h>
#include <string.h>

uint32_t naive_f32_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float naive_f32_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* x is significand * 2^(exponent - 23). One unit of f16 near x is 2^(exponent - 10) for results
 * from 2^-14 up and 2^-24 below; both are a power of two of the significand's unit, so the quotient
 * and the remainder say it all. */
uint16_t naive_f16_round(uint32_t f32_bits) {
    uint16_t sign = (uint16_t)(f32_bits >> 16 & 0x8000u);
    uint32_t field = f32_bits >> 23 & 0xffu;
    uint32_t significand = f32_bits & 0x7fffffu;
    if (field == 0xff) {
        return (uint16_t)(sign | (significand != 0 ? 0x7e00u : 0x7c00u));
    }
    int exponent = field == 0 ? -126 : (int)field - 127;
    significand += field == 0 ? 0 : 0x800000u;
    if (exponent > 15) {
        return (uint16_t)(sign | 0x7c00u);
    }
    int log_unit = exponent >= -14 ? 13 : -1 - exponent;
    if (log_unit > 30) {
        return sign; /* far below half of the smallest subnormal */
    }
    uint32_t unit = UINT32_C(1) << log_unit;
    uint32_t quotient = significand / unit;
    uint32_t twice_rest = 2 * (significand % unit);
    if (twice_rest > unit || (twice_rest == unit && quotient % 2 == 1)) {
        quotient++;
    }
    /* For normal results the quotient has the implicit bit, which adds 1 to the exponent field; so
     * does a carry. */
    uint32_t base = exponent >= -14 ? (uint32_t)(exponent + 14) * 1024u : 0;
    uint32_t pattern = base + quotient;
    return (uint16_t)(sign | (pattern > 0x7c00u ? 0x7c00u : pattern));
}

uint32_t naive_f16_widen(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t field = h >> 10 & 0x1fu;
    uint32_t fraction = h & 0x3ffu;
    if (field == 0x1f) {
        return sign | 0x7f800000u | fraction << 13;
    }
    if (field == 0) {
        /* At most ten bits times 2^-24: exact. */
        return sign | naive_f32_bits((float)fraction * 0x1p-24f);
    }
    return sign | (field + 112u) << 23 | fraction << 13;
}

bool naive_f16_is_nan(uint16_t h) {
    return (h & 0x7fffu) > 0x7c00u;
}

static int8_t nibble(unsigned bits) {
    return (int8_t)(bits >= 8 ? (int)bits - 16 : (int)bits);
}

void naive_unpack(uint8_t byte, int8_t q[2]) {
    q[0] = nibble(byte % 16u);
    q[1] = nibble(byte / 16u);
}

void naive_product(const naive_matrix *w, const float *x, size_t m, double *y, double *allowed) {
    for (size_t i = 0; i < m * w->n_out; i++) {
        const float *row = w->w + i % w->n_out * w->n_in;
        const float *a = x + i / w->n_out * w->n_in;
        double sum = 0.0;
        double sum_abs = 0.0;
        for (size_t k = 0; k < w->n_in; k++) {
            double product = (double)a[k] * (double)row[k];
            sum += product;
            sum_abs += fabs(product);
        }
        y[i] = sum;
        allowed[i] = 2.0 * (double)w->n_in * 0x1p-24 * sum_abs;
    }
}
