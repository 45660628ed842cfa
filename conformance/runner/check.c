/* check.c: record the evaluations of checks; see test.h.
 *
 * Each check counts how often it was evaluated and how often it did not hold, and keeps its first
 * failure in full: what was asked, what came, what was wanted, where, and how far off. The class of
 * a test is that of its first failure. */
#include "context.h"
#include "profile.h"
#include "terms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of a check; NULL when it does not count in this run. A name that the catalogue does not
 * have is our bug. */
static ol_check_state *find(ol_test *t, const char *name) {
    size_t index = 0;
    const ol_check_def *def = ol_test_check(t->def, name, &index);
    if (def == NULL) {
        ol_leave_fault(t, OL_EXIT_INTERNAL, "%s has no check %s in the catalogue", t->def->name,
                       name);
    }
    return def->strict && !t->setup->strict ? NULL : &t->checks[index];
}

static json_t *describe(const ol_test *t, const char *message) {
    json_t *first = json_pack("{s:o}", "message", ol_json_text(message));
    if (t->current != SIZE_MAX) {
        const ol_case_state *c = &t->cases[t->current];
        (void)json_object_set_new(first, "case", ol_json_text(c->id));
        if (c->src != NULL) {
            /* By its name where it is one of the published, with its folder otherwise. */
            char path[4400];
            bool is_first = c->src == &t->setup->sources[0];
            ol_format(path, sizeof path, "%s%s%s", is_first ? "" : c->src->dir, is_first ? "" : "/",
                      c->file);
            (void)json_object_set_new(first, "file", ol_json_text(path));
        }
    }
    return first;
}

/* Record a failure; `first` (stolen, may be NULL) describes it if it is the check's first. */
static bool failed(ol_test *t, ol_check_state *check, const char *name, ol_class cls,
                   json_t *first) {
    check->n_done++;
    check->n_failed++;
    if (t->current != SIZE_MAX) {
        t->cases[t->current].n_failed++;
    }
    if (!t->has_failed) {
        t->has_failed = true;
        t->failed_class = cls;
        t->failed_check = name;
    }
    if (check->first == NULL) {
        check->cls = cls;
        check->first = first;
    } else {
        json_decref(first);
    }
    return false;
}

static bool failed_text(ol_test *t, ol_check_state *check, const char *name, ol_class cls,
                        const char *fmt, ...) OL_FORMAT(5, 6);
static bool failed_text(ol_test *t, ol_check_state *check, const char *name, ol_class cls,
                        const char *fmt, ...) {
    char text[1024] = "";
    if (check->first == NULL) {
        va_list args;
        va_start(args, fmt);
        (void)vsnprintf(text, sizeof text, fmt, args);
        va_end(args);
    }
    return failed(t, check, name, cls, check->first == NULL ? describe(t, text) : NULL);
}

/* It holds: unless the testee itself said that an answer is wrong, which the next check tells. */
static bool held(ol_test *t, ol_check_state *check, const char *name) {
    if (t->wrong[0] != '\0') {
        const bool holds = failed_text(t, check, name, OL_FAIL, "%s", t->wrong);
        t->wrong[0] = '\0';
        return holds;
    }
    check->n_done++;
    return true;
}

bool ol_check(ol_test *t, const char *name, bool holds, const char *fmt, ...) {
    ol_check_state *check = find(t, name);
    if (check == NULL) {
        return true;
    }
    if (holds) {
        return held(t, check, name);
    }
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return failed_text(t, check, name, OL_FAIL, "%s", text);
}

void ol_held(ol_test *t, const char *name) {
    ol_check_state *check = find(t, name);
    if (check != NULL) {
        (void)held(t, check, name);
    }
}

/* ------------------------------------------------------------------ refusals */

static const char *status_of(const json_t *response) {
    const char *status = json_string_value(json_object_get(response, "status"));
    return status == NULL ? "?" : status;
}

static const char *text_of(const json_t *response) {
    const char *text = json_string_value(json_object_get(response, "text"));
    return text == NULL ? "" : text;
}

bool ol_check_ok(ol_test *t, const char *name, const json_t *response, const char *what) {
    ol_check_state *check = find(t, name);
    bool ok = ol_ok(response);
    if (check == NULL) {
        return ok;
    }
    if (ok) {
        return held(t, check, name);
    }
    return failed_text(t, check, name, OL_REFUSED_WRONG,
                       "%s: must be accepted, was refused with %s (%s)", what, status_of(response),
                       text_of(response));
}

/* Is the status one of "A|B"? */
static bool among(const char *status, const char *statuses) {
    size_t n = strlen(status);
    for (const char *at = statuses; at != NULL; at = strchr(at, '|')) {
        at += *at == '|' ? 1 : 0;
        if (strncmp(at, status, n) == 0 && (at[n] == '\0' || at[n] == '|')) {
            return true;
        }
    }
    return false;
}

static bool offset_is(const json_t *response, int64_t offset) {
    const json_t *got = json_object_get(response, "offset");
    return json_is_integer(got) && json_integer_value(got) == (json_int_t)offset;
}

static bool why_not_refused(const ol_test *t, const json_t *response, const char *statuses,
                            const char *terms, int64_t offset, char *text, size_t cap) {
    if (ol_ok(response)) {
        ol_format(text, cap, "must be refused with %s, was accepted", statuses);
    } else if (!among(status_of(response), statuses)) {
        ol_format(text, cap, "must be refused with %s, was refused with %s (%s)", statuses,
                  status_of(response), text_of(response));
    } else if (offset >= 0 && !offset_is(response, offset)) {
        char *got = json_dumps(json_object_get(response, "offset"), JSON_ENCODE_ANY);
        ol_format(text, cap, "must point at byte %lld, points at %s (%s)", (long long)offset,
                  got == NULL ? "nothing" : got, text_of(response));
        free(got);
    } else {
        return t->setup->strict && terms != NULL && !ol_names(text_of(response), terms, text, cap);
    }
    return true;
}

bool ol_check_refused(ol_test *t, const char *name, const json_t *response, const char *statuses,
                      const char *terms, int64_t offset, const char *what) {
    ol_check_state *check = find(t, name);
    char why[768];
    bool holds = !why_not_refused(t, response, statuses, terms, offset, why, sizeof why);
    if (check == NULL) {
        return holds;
    }
    if (holds) {
        return held(t, check, name);
    }
    return failed_text(t, check, name, OL_REFUSED_WRONG, "%s: %s", what, why);
}

bool ol_check_named(ol_test *t, const char *name, const json_t *response, const char *terms,
                    const char *what) {
    char why[768];
    const bool named = ol_names(text_of(response), terms, why, sizeof why);
    return ol_check(t, name, named, "%s: %s", what, why);
}

/* ------------------------------------------------------------------ values */

/* JSON has no infinity; the largest number stands for it. */
static json_t *number(double v) {
    if (isnan(v)) {
        return json_null();
    }
    return json_real(isinf(v) ? (v > 0 ? 1.7976931348623157e308 : -1.7976931348623157e308) : v);
}

static json_t *describe_diff(const ol_test *t, const ol_diff *diff, const char *what) {
    static const char *const modes[] = {"bits", "max_abs", "within"};
    char text[512];
    char message[768];
    ol_diff_text(diff, text, sizeof text);
    ol_format(message, sizeof message, "%s: %s", what, text);
    json_t *first = describe(t, message);
    json_t *more =
        json_pack("{s:o, s:s, s:i, s:i, s:i, s:b}", "what", ol_json_text(what), "mode",
                  modes[diff->mode], "n_got", (int)diff->n_got, "n_want", (int)diff->n_want,
                  "n_over", (int)diff->n_over, "nonfinite", (int)diff->nonfinite);
    (void)json_object_update(first, more);
    json_decref(more);
    if (diff->n_over > 0) {
        (void)json_object_set_new(first, "index", json_integer((json_int_t)diff->index));
        (void)json_object_set_new(first, "got", json_string(diff->got));
        (void)json_object_set_new(first, "want", json_string(diff->want));
    }
    if (diff->n_over > 0 && diff->has_ulp) {
        /* A distance may not fit a JSON integer; it is for people and for fingerprints. */
        (void)json_object_set_new(first, "ulp", json_real((double)diff->ulp));
    }
    if (diff->mode != OL_MODE_BITS) {
        (void)json_object_set_new(first, "error", number(diff->error));
        (void)json_object_set_new(first, "allowed", number(diff->allowed));
        (void)json_object_set_new(first, "ratio", number(diff->worst));
        (void)json_object_set_new(first, "bound", number(diff->bound));
    }
    return first;
}

/* The worst ratio that each tolerance check saw, in passing too: a pass at 0.35 of the bound is
 * worth knowing. */
static void note_ratio(ol_test *t, const char *name, double ratio) {
    const json_t *old = json_object_get(t->numeric, name);
    if (old == NULL || !(ratio <= json_real_value(old))) {
        (void)json_object_set_new(t->numeric, name, number(ratio));
    }
}

/* Will the comparison be described in full? */
static bool is_first(ol_test *t, const char *name, const ol_diff *diff) {
    const ol_check_state *check = diff->held ? NULL : find(t, name);
    return check != NULL && check->first == NULL;
}

/* `profile` (stolen) is NULL when the check holds. */
static bool record_diff(ol_test *t, const char *name, const ol_diff *diff, const char *what,
                        json_t *profile) {
    ol_check_state *check = find(t, name);
    if (check == NULL) {
        json_decref(profile);
        return true;
    }
    if (diff->mode != OL_MODE_BITS) {
        note_ratio(t, name, diff->worst);
    }
    if (diff->held) {
        return held(t, check, name);
    }
    json_t *first = check->first == NULL ? describe_diff(t, diff, what) : NULL;
    if (profile != NULL && first != NULL) {
        (void)json_object_set(first, "profile", profile);
    }
    json_decref(profile);
    return failed(t, check, name, OL_FAIL, first);
}

static bool check_bits(ol_test *t, const char *name, ol_type type, const void *got, size_t n_got,
                       const void *want, size_t n_want, const char *what) {
    ol_diff diff = ol_compare_bits(type, got, n_got, want, n_want);
    json_t *profile =
        is_first(t, name, &diff) ? ol_profile_bits(type, got, n_got, want, n_want) : NULL;
    return record_diff(t, name, &diff, what, profile);
}

bool ol_check_int(ol_test *t, const char *name, int64_t got, int64_t want, const char *what) {
    return check_bits(t, name, OL_TYPE_I64, &got, 1, &want, 1, what);
}

bool ol_check_u64(ol_test *t, const char *name, uint64_t got, uint64_t want, const char *what) {
    return check_bits(t, name, OL_TYPE_U64, &got, 1, &want, 1, what);
}

bool ol_check_f64_bits(ol_test *t, const char *name, double got, double want, const char *what) {
    return check_bits(t, name, OL_TYPE_F64, &got, 1, &want, 1, what);
}

bool ol_check_u8s(ol_test *t, const char *name, const uint8_t *got, size_t n_got,
                  const uint8_t *want, size_t n_want, const char *what) {
    return check_bits(t, name, OL_TYPE_U8, got, n_got, want, n_want, what);
}

bool ol_check_i8s(ol_test *t, const char *name, const int8_t *got, size_t n_got, const int8_t *want,
                  size_t n_want, const char *what) {
    return check_bits(t, name, OL_TYPE_I8, got, n_got, want, n_want, what);
}

bool ol_check_u16s(ol_test *t, const char *name, const uint16_t *got, size_t n_got,
                   const uint16_t *want, size_t n_want, const char *what) {
    return check_bits(t, name, OL_TYPE_U16, got, n_got, want, n_want, what);
}

bool ol_check_f16s(ol_test *t, const char *name, const uint16_t *got, size_t n_got,
                   const uint16_t *want, size_t n_want, const char *what) {
    return check_bits(t, name, OL_TYPE_F16, got, n_got, want, n_want, what);
}

bool ol_check_u32s(ol_test *t, const char *name, const uint32_t *got, size_t n_got,
                   const uint32_t *want, size_t n_want, const char *what) {
    return check_bits(t, name, OL_TYPE_U32, got, n_got, want, n_want, what);
}

bool ol_check_f32_bits(ol_test *t, const char *name, const float *got, size_t n_got,
                       const float *want, size_t n_want, const char *what) {
    return check_bits(t, name, OL_TYPE_F32, got, n_got, want, n_want, what);
}

bool ol_check_f64s_bits(ol_test *t, const char *name, const double *got, size_t n_got,
                        const double *want, size_t n_want, const char *what) {
    return check_bits(t, name, OL_TYPE_F64, got, n_got, want, n_want, what);
}

bool ol_check_f32_max_abs(ol_test *t, const char *name, const float *got, size_t n_got,
                          const float *want, size_t n_want, double bound, const char *what) {
    ol_diff diff = ol_compare_max_abs(got, n_got, want, n_want, bound);
    json_t *profile = diff.held ? NULL : ol_profile_max_abs(got, n_got, want, n_want, diff.allowed);
    return record_diff(t, name, &diff, what, profile);
}

bool ol_check_f32_within(ol_test *t, const char *name, const float *got, size_t n_got,
                         const double *want, const double *allowed, size_t n_want,
                         const char *what) {
    ol_diff diff = ol_compare_within(got, n_got, want, allowed, n_want);
    json_t *profile =
        is_first(t, name, &diff) ? ol_profile_within(got, n_got, want, allowed, n_want) : NULL;
    return record_diff(t, name, &diff, what, profile);
}
