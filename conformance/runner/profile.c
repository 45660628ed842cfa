/* profile.c: see profile.h. */
#include "profile.h"

#include <math.h>
#include <string.h>

enum { STRETCHES_MAX = 64, ELEMENTS_MIN = 4 };

typedef struct profile {
    size_t n; /* elements */
    size_t n_stretches;
    bool is_share; /* values are counted, not the largest kept */
    double values[STRETCHES_MAX];
} profile;

static profile begin(size_t n, bool is_share) {
    return (profile){
        .n = n, .n_stretches = n < STRETCHES_MAX ? n : STRETCHES_MAX, .is_share = is_share};
}

static size_t stretch_of(const profile *p, size_t i) {
    return (size_t)((double)i / (double)p->n * (double)p->n_stretches);
}

/* A stretch that once held something not finite stays marked: no number is larger than a NaN. */
static void take(profile *p, size_t i, double error) {
    double *value = &p->values[stretch_of(p, i)];
    if (!isfinite(error)) {
        *value = (double)NAN;
    } else if (p->is_share) {
        *value += error;
    } else if (error > *value) {
        *value = error;
    }
}

static json_t *end(profile *p, const char *unit) {
    double sizes[STRETCHES_MAX] = {0};
    json_t *values = json_array();
    for (size_t i = 0; i < p->n; i++) {
        sizes[stretch_of(p, i)]++;
    }
    for (size_t b = 0; b < p->n_stretches; b++) {
        double value = p->is_share && sizes[b] > 0 ? p->values[b] / sizes[b] : p->values[b];
        (void)json_array_append_new(values, isnan(value) ? json_null() : json_real(value));
    }
    return json_pack("{s:s, s:I, s:o}", "unit", unit, "n", (json_int_t)p->n, "values", values);
}

static bool is_worth_it(size_t n_got, size_t n_want) {
    return n_got == n_want && n_want >= ELEMENTS_MIN;
}

json_t *ol_profile_bits(ol_type type, const void *got, size_t n_got, const void *want,
                        size_t n_want) {
    bool is_float = type == OL_TYPE_F16 || type == OL_TYPE_F32 || type == OL_TYPE_F64;
    size_t size = ol_type_bytes(type);
    const uint8_t *got_at = got;
    const uint8_t *want_at = want;
    if (!is_worth_it(n_got, n_want)) {
        return NULL;
    }
    profile p = begin(n_want, !is_float);
    for (size_t i = 0; i < n_want; i++, got_at += size, want_at += size) {
        uint64_t ulp = 0;
        if (ol_compare_bits(type, got_at, 1, want_at, 1).held) {
            continue;
        }
        bool has_ulp = ol_ulp(type, got_at, want_at, &ulp);
        /* Zeros of two signs are 0 ulp apart and differ all the same. */
        take(&p, i, !is_float ? 1 : !has_ulp ? (double)NAN : ulp == 0 ? 1 : (double)ulp);
    }
    return end(&p, is_float ? "ulp" : "differs");
}

/* error / allowed, as compare.c has it. */
static double ratio(double got, double want, double allowed) {
    double error = fabs(got - want);
    if (error == 0 || (isnan(got) && isnan(want)) || (isinf(want) && got == want)) {
        return 0;
    }
    return error / allowed;
}

json_t *ol_profile_max_abs(const float *got, size_t n_got, const float *want, size_t n_want,
                           double allowed) {
    if (!is_worth_it(n_got, n_want)) {
        return NULL;
    }
    profile p = begin(n_want, false);
    for (size_t i = 0; i < n_want; i++) {
        take(&p, i, ratio((double)got[i], (double)want[i], allowed));
    }
    return end(&p, "allowed");
}

json_t *ol_profile_within(const float *got, size_t n_got, const double *want, const double *allowed,
                          size_t n_want) {
    if (!is_worth_it(n_got, n_want)) {
        return NULL;
    }
    profile p = begin(n_want, false);
    for (size_t i = 0; i < n_want; i++) {
        take(&p, i, ratio((double)got[i], want[i], allowed[i]));
    }
    return end(&p, "allowed");
}
