/* compare.c: see compare.h. Each decision is written so that a NaN on either side ends as "does not
 * hold". */
#include "compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

size_t ol_type_bytes(ol_type type) {
    static const size_t sizes[] = {
        [OL_TYPE_U8] = 1,  [OL_TYPE_I8] = 1,  [OL_TYPE_U16] = 2,
        [OL_TYPE_F16] = 2, [OL_TYPE_U32] = 4, [OL_TYPE_U64] = 8,
        [OL_TYPE_I64] = 8, [OL_TYPE_F32] = 4, [OL_TYPE_F64] = 8,
    };
    return sizes[type];
}

uint64_t ol_value_bits(ol_type type, const void *value) {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (ol_type_bytes(type)) {
    case 1:
        memcpy(&u8, value, sizeof u8);
        return u8;
    case 2:
        memcpy(&u16, value, sizeof u16);
        return u16;
    case 4:
        memcpy(&u32, value, sizeof u32);
        return u32;
    default:
        memcpy(&u64, value, sizeof u64);
        return u64;
    }
}

static double f16_value(uint64_t bits) {
    double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
    int exponent = (int)((bits >> 10) & 31u);
    double mantissa = (double)(bits & 1023u);
    if (exponent == 31) {
        return mantissa > 0 ? (double)NAN : sign * (double)INFINITY;
    }
    if (exponent == 0) {
        return sign * ldexp(mantissa, -24);
    }
    return sign * ldexp(1024.0 + mantissa, exponent - 25);
}

/* The number that the bits stand for, exactly, for every type that fits f64. */
static double value_number(ol_type type, uint64_t bits) {
    float f32;
    double f64;
    uint32_t u32 = (uint32_t)bits;
    switch (type) {
    case OL_TYPE_F16:
        return f16_value(bits);
    case OL_TYPE_F32:
        memcpy(&f32, &u32, sizeof f32);
        return (double)f32;
    case OL_TYPE_F64:
        memcpy(&f64, &bits, sizeof f64);
        return f64;
    default:
        return (double)bits;
    }
}

static bool is_float(ol_type type) {
    return type == OL_TYPE_F16 || type == OL_TYPE_F32 || type == OL_TYPE_F64;
}

void ol_value_text(ol_type type, const void *value, char text[OL_VALUE_TEXT]) {
    uint64_t bits = ol_value_bits(type, value);
    int n_digits = (int)(2 * ol_type_bytes(type));
    if (is_float(type)) {
        int precision = type == OL_TYPE_F64 ? 17 : type == OL_TYPE_F32 ? 9 : 5;
        (void)snprintf(text, OL_VALUE_TEXT, "%.*g (0x%0*" PRIx64 ")", precision,
                       value_number(type, bits), n_digits, bits);
    } else if (type == OL_TYPE_I8) {
        (void)snprintf(text, OL_VALUE_TEXT, "%d", (int)(bits >= 128 ? (int)bits - 256 : (int)bits));
    } else if (type == OL_TYPE_I64) {
        (void)snprintf(text, OL_VALUE_TEXT, "%" PRId64, (int64_t)bits);
    } else {
        (void)snprintf(text, OL_VALUE_TEXT, "%" PRIu64 " (0x%0*" PRIx64 ")", bits, n_digits, bits);
    }
}

/* ------------------------------------------------------------------ ulp */

/* Fold sign and magnitude into one order: equal steps between neighbours, both zeros in one place.
 */
static int64_t ordered(uint64_t bits, unsigned n_bits) {
    uint64_t sign = (uint64_t)1 << (n_bits - 1);
    int64_t magnitude = (int64_t)(bits & (sign - 1));
    return (bits & sign) != 0 ? -magnitude : magnitude;
}

static uint64_t distance(int64_t a, int64_t b) {
    return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

static bool ulp_of(ol_type type, uint64_t a, uint64_t b, uint64_t *ulp) {
    if (!is_float(type) || isnan(value_number(type, a)) || isnan(value_number(type, b))) {
        return false;
    }
    unsigned n_bits = 8 * (unsigned)ol_type_bytes(type);
    *ulp = distance(ordered(a, n_bits), ordered(b, n_bits));
    return true;
}

bool ol_ulp(ol_type type, const void *a, const void *b, uint64_t *ulp) {
    return ulp_of(type, ol_value_bits(type, a), ol_value_bits(type, b), ulp);
}

bool ol_ulp_f32(float a, float b, uint64_t *ulp) {
    return ulp_of(OL_TYPE_F32, ol_value_bits(OL_TYPE_F32, &a), ol_value_bits(OL_TYPE_F32, &b), ulp);
}

bool ol_ulp_f64(double a, double b, uint64_t *ulp) {
    return ulp_of(OL_TYPE_F64, ol_value_bits(OL_TYPE_F64, &a), ol_value_bits(OL_TYPE_F64, &b), ulp);
}

/* ------------------------------------------------------------------ comparisons */

static ol_diff start(ol_mode mode, ol_type type, size_t n_got, size_t n_want) {
    ol_diff diff = {.mode = mode, .type = type, .n_got = n_got, .n_want = n_want};
    diff.wrong_length = n_got != n_want;
    diff.held = !diff.wrong_length;
    return diff;
}

/* Note an element that does not hold; the first one is kept. */
static void note(ol_diff *diff, size_t index, ol_type type, const void *got, ol_type want_type,
                 const void *want) {
    diff->held = false;
    diff->n_over++;
    if (diff->n_over > 1) {
        return;
    }
    uint64_t got_bits = ol_value_bits(type, got);
    uint64_t want_bits = ol_value_bits(want_type, want);
    diff->index = index;
    ol_value_text(type, got, diff->got);
    ol_value_text(want_type, want, diff->want);
    diff->has_ulp = type == want_type && ulp_of(type, got_bits, want_bits, &diff->ulp);
    if (is_float(type)) {
        double got_number = value_number(type, got_bits);
        double want_number = value_number(want_type, want_bits);
        diff->nonfinite = isfinite(want_number) && !isfinite(got_number);
        diff->error = fabs(got_number - want_number);
    }
}

static bool same_bits(ol_type type, uint64_t got, uint64_t want) {
    if (got == want) {
        return true;
    }
    return is_float(type) && isnan(value_number(type, got)) && isnan(value_number(type, want));
}

ol_diff ol_compare_bits(ol_type type, const void *got, size_t n_got, const void *want,
                        size_t n_want) {
    ol_diff diff = start(OL_MODE_BITS, type, n_got, n_want);
    size_t n = n_got < n_want ? n_got : n_want;
    size_t size = ol_type_bytes(type);
    const uint8_t *got_at = got;
    const uint8_t *want_at = want;
    for (size_t i = 0; i < n; i++, got_at += size, want_at += size) {
        if (!same_bits(type, ol_value_bits(type, got_at), ol_value_bits(type, want_at))) {
            note(&diff, i, type, got_at, type, want_at);
        }
    }
    return diff;
}

/* Does one element hold, and how much of its allowance does it use? */
static bool element_holds(double got, double want, double allowed, double *ratio) {
    *ratio = 0;
    if (!isfinite(want)) {
        bool same = isnan(want) ? isnan(got) : got == want;
        *ratio = same ? 0 : (double)INFINITY;
        return same;
    }
    double error = fabs(got - want);
    if (error == 0) {
        return true;
    }
    bool holds = error <= allowed;
    *ratio = isnan(error) ? (double)INFINITY : error / allowed;
    return holds;
}

static void take_element(ol_diff *diff, size_t i, const float *got, ol_type want_type,
                         const void *want, double want_number, double allowed) {
    double ratio = 0;
    bool holds = element_holds((double)*got, want_number, allowed, &ratio);
    if (!(ratio <= diff->worst)) {
        diff->worst = ratio;
        diff->worst_index = i;
    }
    if (!holds) {
        note(diff, i, OL_TYPE_F32, got, want_type, want);
        diff->allowed = diff->n_over == 1 ? allowed : diff->allowed;
    }
}

ol_diff ol_compare_max_abs(const float *got, size_t n_got, const float *want, size_t n_want,
                           double bound) {
    ol_diff diff = start(OL_MODE_MAX_ABS, OL_TYPE_F32, n_got, n_want);
    size_t n = n_got < n_want ? n_got : n_want;
    double largest = 0;
    for (size_t i = 0; i < n_want; i++) {
        double size = fabs((double)want[i]);
        largest = isfinite(size) && size > largest ? size : largest;
    }
    diff.bound = bound;
    diff.allowed = bound * largest;
    for (size_t i = 0; i < n; i++) {
        take_element(&diff, i, &got[i], OL_TYPE_F32, &want[i], (double)want[i], bound * largest);
    }
    return diff;
}

ol_diff ol_compare_within(const float *got, size_t n_got, const double *want, const double *allowed,
                          size_t n_want) {
    ol_diff diff = start(OL_MODE_WITHIN, OL_TYPE_F32, n_got, n_want);
    size_t n = n_got < n_want ? n_got : n_want;
    for (size_t i = 0; i < n; i++) {
        take_element(&diff, i, &got[i], OL_TYPE_F64, &want[i], want[i], allowed[i]);
    }
    return diff;
}

/* ------------------------------------------------------------------ words */

static void add(char *text, size_t cap, const char *part) {
    size_t len = strlen(text);
    (void)snprintf(text + len, cap - len, "%s", part);
}

void ol_diff_text(const ol_diff *diff, char *text, size_t cap) {
    char part[256];
    text[0] = '\0';
    if (diff->held) {
        add(text, cap, "all equal");
        return;
    }
    if (diff->wrong_length) {
        (void)snprintf(part, sizeof part, "%zu values came, %zu are wanted", diff->n_got,
                       diff->n_want);
        add(text, cap, part);
    }
    if (diff->n_over == 0) {
        return;
    }
    add(text, cap, diff->wrong_length ? "; " : "");
    add(text, cap, diff->nonfinite ? "not a finite number: " : "");
    if (diff->n_want != 1) {
        (void)snprintf(part, sizeof part,
                       "element %zu of %zu is the first of %zu that %s: ", diff->index,
                       diff->n_want, diff->n_over, diff->n_over == 1 ? "differs" : "differ");
        add(text, cap, part);
    }
    (void)snprintf(part, sizeof part, "got %s, want %s", diff->got, diff->want);
    add(text, cap, part);
    if (diff->has_ulp) {
        (void)snprintf(part, sizeof part, ", %" PRIu64 " ulp apart", diff->ulp);
        add(text, cap, part);
    }
    if (diff->mode != OL_MODE_BITS && !diff->nonfinite) {
        (void)snprintf(part, sizeof part,
                       "; off by %.3g where %.3g is allowed, the worst is %.3g times "
                       "that (element %zu)",
                       diff->error, diff->allowed, diff->worst, diff->worst_index);
        add(text, cap, part);
    }
}
