/* ops_exp.h: the numbers of our exp, shared by its scalar and vector forms.
 *
 *   t = fma(x, log2 e, 1.5 * 2^23)   the low bits of t are n = rint(x / ln 2), in two's complement
 *   n = t - 1.5 * 2^23               exact
 *   r = x - n ln 2                   two fma with ln 2 = HI + LO; HI has 9 bits, so n * HI is exact
 *   p = 1 + r + r^2 (c2 + ...)       degree 6 by Horner, one fma a step; c0 = c1 = 1 make exp(+-0)
 * = 1
 *   e = p * 2^n                      n added to the exponent field; no overflow inside [-87, 88]
 *
 * The coefficients are a minimax fit on |r| <= ln(2) / 2 rounded to f32: at most 0.91 ulp over all
 * arguments (engine/tests/exhaustive_exp.c). Below -87 the result is +0, above 88 infinity; a NaN
 * gives the one NaN below, so that every form has the same bits for every argument.
 *
 * Source: conformance/spec/forward.md, clause exp. */
#ifndef TLI_OPS_EXP_H
#define TLI_OPS_EXP_H

#define TLI_EXP_MIN (-87.0f)
#define TLI_EXP_MAX 88.0f
#define TLI_EXP_NAN_BITS 0x7fc00000u

#define TLI_EXP_LOG2E 1.44269504f
#define TLI_EXP_SHIFT 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer, ties to even */
#define TLI_EXP_LN2_HI 0.693359375f
#define TLI_EXP_LN2_LO (-2.12194440e-4f)

#define TLI_EXP_C2 0.49999994f
#define TLI_EXP_C3 0.166665196f
#define TLI_EXP_C4 0.0416683927f
#define TLI_EXP_C5 0.00836878084f
#define TLI_EXP_C6 0.00138144637f

#endif
