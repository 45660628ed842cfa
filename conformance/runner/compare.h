/* compare.h: the judge's own comparisons. cmocka's float asserts are never used: in 1.1.5 a NaN
 * passes them.
 *
 * Rules, the same for every type: another length is a difference by itself; bits mode tells +0 from
 * -0; a NaN equals any NaN and nothing else, since payload and sign of a NaN are nobody's promise;
 * where the wanted value is finite and the result is not, that is said before any tolerance. A
 * comparison of nothing with nothing holds. */
#ifndef OL_COMPARE_H
#define OL_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ol_mode {
    OL_MODE_BITS = 0,
    OL_MODE_MAX_ABS = 1, /* bound times the largest |want| */
    OL_MODE_WITHIN = 2,  /* an allowance for each element */
} ol_mode;

typedef enum ol_type {
    OL_TYPE_U8 = 0,
    OL_TYPE_I8 = 1,
    OL_TYPE_U16 = 2,
    OL_TYPE_F16 = 3, /* patterns of 16 bits, shown as numbers too */
    OL_TYPE_U32 = 4,
    OL_TYPE_U64 = 5,
    OL_TYPE_I64 = 6,
    OL_TYPE_F32 = 7,
    OL_TYPE_F64 = 8,
} ol_type;

#define OL_VALUE_TEXT 80

/* What a comparison found. Everything but held, mode, n_got, n_want and the ratio is about the
 * first element that does not hold, and is meaningless when all hold. */
typedef struct ol_diff {
    bool held;
    ol_mode mode;
    ol_type type;
    size_t n_got;
    size_t n_want;
    bool wrong_length;
    bool nonfinite;          /* got NaN or infinity where want is finite */
    size_t index;            /* first element that does not hold */
    size_t n_over;           /* how many do not */
    char got[OL_VALUE_TEXT]; /* number and bit pattern */
    char want[OL_VALUE_TEXT];
    bool has_ulp;
    uint64_t ulp;   /* representable values between the two, 0 for +0 and -0 */
    double error;   /* |got - want| at index */
    double allowed; /* at index */
    double worst;   /* largest error / allowed over all elements; 0 in bits mode */
    size_t worst_index;
    double bound; /* as given, for OL_MODE_MAX_ABS */
} ol_diff;

/* Bit for bit. want and got are arrays of the type's C type (F16: uint16_t). */
ol_diff ol_compare_bits(ol_type type, const void *got, size_t n_got, const void *want,
                        size_t n_want);

/* |got - want| <= bound * max|want|, in f64; finite wants only make the maximum. */
ol_diff ol_compare_max_abs(const float *got, size_t n_got, const float *want, size_t n_want,
                           double bound);

/* |got[i] - want[i]| <= allowed[i]. */
ol_diff ol_compare_within(const float *got, size_t n_got, const double *want, const double *allowed,
                          size_t n_want);

/* Representable values between two numbers; false when one is a NaN. Infinity counts as the number
 * after the largest. */
bool ol_ulp_f32(float a, float b, uint64_t *ulp);
bool ol_ulp_f64(double a, double b, uint64_t *ulp);
/* The same of two values of a type; false for types that are no floats, too. */
bool ol_ulp(ol_type type, const void *a, const void *b, uint64_t *ulp);

size_t ol_type_bytes(ol_type type);
void ol_value_text(ol_type type, const void *value, char text[OL_VALUE_TEXT]);
/* The bits of the value, widened. */
uint64_t ol_value_bits(ol_type type, const void *value);

/* "element 17 of 96 is the first of 5 that differ: got ..., want ..., 3 ulp apart" into text. */
void ol_diff_text(const ol_diff *diff, char *text, size_t cap);

#endif
