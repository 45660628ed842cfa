/* quant.c: 16-bit floats to f32 and back.
 *
 * Integer arithmetic only, so that no compiler flag, rounding mode or missing instruction can
 * change a bit. A NaN keeps its sign and the upper bits of its payload and becomes quiet, as the
 * conversion instructions of x86 and Arm make it; every other value is as IEEE 754 says.
 *
 * Source: conformance/spec/forward.md, f16; tests f16_rounds_to_nearest_even. */
#include "tl/quant.h"

#include "util.h"

#define F32_INFINITY 0x7f800000u
#define F32_QUIET 0x00400000u
#define F32_MANTISSA 0x007fffffu
#define F32_IMPLICIT 0x00800000u
#define F16_INFINITY 0x7c00u
#define F16_QUIET 0x0200u
#define F16_PAYLOAD 0x03ffu

/* Exponent biases differ by 127 - 15. */
#define BIAS_STEP 112u
/* 2^-14, the least normal f16, and 2^16, past which all is infinity, as f32 bits. */
#define F32_LEAST_NORMAL_F16 0x38800000u
#define F32_PAST_F16 0x47800000u

float tl_f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t magnitude = h & 0x7fffu;
    if (magnitude > F16_INFINITY) {
        const uint32_t payload = (magnitude & F16_PAYLOAD) << 13;
        return tli_f32_from_bits(sign | F32_INFINITY | F32_QUIET | payload);
    }
    if (magnitude == F16_INFINITY) {
        return tli_f32_from_bits(sign | F32_INFINITY);
    }
    if (magnitude < 0x0400u) {
        /* A subnormal counts units of 2^-24, and f32 holds that product exactly. */
        return tli_f32_from_bits(sign | tli_f32_bits((float)magnitude * 0x1p-24f));
    }
    return tli_f32_from_bits(sign | ((magnitude << 13) + (BIAS_STEP << 23)));
}

/* value / 2^shift rounded to nearest, ties to even. 1 <= shift <= 31. */
static uint32_t shift_right_rounding(uint32_t value, uint32_t shift) {
    const uint32_t kept = value >> shift;
    const uint32_t rest = value & ((1u << shift) - 1u);
    const uint32_t half = 1u << (shift - 1u);
    const uint32_t is_odd = kept & 1u; /* tips a tie, and nothing else, over the half */
    const uint32_t round_up = rest + is_odd > half;
    return kept + round_up;
}

/* f32 bits below 2^-14, without sign, to units of 2^-24. A full mantissa carries into the least
 * normal. */
static uint32_t round_to_subnormal(uint32_t magnitude) {
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102u) {
        return 0; /* below 2^-25, which is half of the smallest unit */
    }
    const uint32_t mantissa = (magnitude & F32_MANTISSA) | F32_IMPLICIT;
    const uint32_t shift = 126u - exponent; /* mantissa * 2^(exponent - 150) in units of 2^-24 */
    return shift_right_rounding(mantissa, shift);
}

/* f32 bits from 2^-14 on, without sign, to exponent and mantissa of f16. The two are added: a
 * mantissa that rounds up past its last bit raises the exponent, and from 65520 on the sum is
 * infinity's bits. */
static uint32_t round_to_normal(uint32_t magnitude) {
    const uint32_t exponent = ((magnitude >> 23) - BIAS_STEP) << 10;
    const uint32_t mantissa = shift_right_rounding(magnitude & F32_MANTISSA, 13);
    return exponent + mantissa;
}

uint16_t tl_f32_to_f16(float x) {
    const uint32_t bits = tli_f32_bits(x);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > F32_INFINITY) {
        const uint32_t payload = magnitude >> 13 & F16_PAYLOAD;
        return (uint16_t)(sign | F16_INFINITY | F16_QUIET | payload);
    }
    if (magnitude >= F32_PAST_F16) {
        return (uint16_t)(sign | F16_INFINITY);
    }
    if (magnitude < F32_LEAST_NORMAL_F16) {
        return (uint16_t)(sign | round_to_subnormal(magnitude));
    }
    return (uint16_t)(sign | round_to_normal(magnitude));
}

float tl_bf16_to_f32(uint16_t h) {
    return tli_f32_from_bits((uint32_t)h << 16);
}
