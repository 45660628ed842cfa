/* record.c: what a worker tells the main process about a test: one object, the test line of the log
 * without what only the main process knows (its place, who blocks it, how to replay it).
 *
 * Class of a test, the worst first: the judge's own fault; integrity; what ended the process; the
 * first failed check. "blocked" is put in by the main process. */
#include "context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Length of the UTF-8 sequence at `at`, 0 when it is none. */
static size_t utf8_length(const unsigned char *at) {
    if (at[0] < 0x80) {
        return 1;
    }
    size_t n = at[0] >= 0xc2 && at[0] < 0xe0   ? 2
               : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
               : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                               : 0;
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return n;
}

json_t *ol_json_text(const char *text) {
    json_t *value = json_string(text);
    if (value != NULL) {
        return value;
    }
    size_t n = strlen(text);
    char *clean = malloc(n + 1);
    if (clean == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < n;) {
        size_t length = utf8_length((const unsigned char *)text + i);
        if (length == 0) {
            clean[i++] = '?';
        } else {
            memcpy(clean + i, text + i, length);
            i += length;
        }
    }
    clean[n] = '\0';
    value = json_string(clean);
    if (value == NULL) {
        /* Surrogates and overlong forms that jansson refuses and the table above lets pass. */
        for (size_t i = 0; i < n; i++) {
            clean[i] = (unsigned char)clean[i] < 0x80 ? clean[i] : '?';
        }
        value = json_string(clean);
    }
    free(clean);
    return value;
}

/* ------------------------------------------------------------------ parts */

static json_t *tail_json(const ol_tail *tail) {
    char text[OL_TAIL_BYTES * 4 + 1];
    ol_tail_text(tail, text, sizeof text);
    return ol_json_text(text);
}

static bool counts(const ol_test *t, size_t i) {
    return !t->def->checks[i].strict || t->setup->strict;
}

/* One entry for each check that counts: held, failed or not-reached. */
static json_t *checks_json(ol_test *t) {
    json_t *list = json_array();
    for (size_t i = 0; i < t->def->n_checks; i++) {
        const ol_check_state *check = &t->checks[i];
        if (!counts(t, i)) {
            continue;
        }
        const char *state = check->n_failed > 0 ? "failed"
                            : check->n_done > 0 ? "held"
                                                : "not-reached";
        json_t *entry =
            json_pack("{s:s, s:s, s:I, s:I}", "id", t->def->checks[i].id, "state", state, "done",
                      (json_int_t)check->n_done, "failed", (json_int_t)check->n_failed);
        if (check->first != NULL) {
            (void)json_object_set_new(entry, "class", json_string(ol_class_name(check->cls)));
            (void)json_object_set(entry, "first", check->first);
        }
        const json_t *ratio = json_object_get(t->numeric, t->def->checks[i].name);
        if (ratio != NULL) {
            (void)json_object_set_new(entry, "worst_ratio", json_real(json_real_value(ratio)));
        }
        (void)json_array_append_new(list, entry);
    }
    return list;
}

static json_t *cases_json(const ol_test *t) {
    size_t n_failed = 0;
    size_t n_golden = 0; /* of the suites of this test, as far as they were begun */
    for (size_t i = 0; i < t->n_cases; i++) {
        n_failed += t->cases[i].n_failed > 0 ? 1 : 0;
        n_golden += t->cases[i].file[0] != '\0' ? 1 : 0;
    }
    size_t n_all = t->setup->case_id == NULL ? ol_cases_of_golden(t) : 0;
    size_t n_not_reached = n_all > n_golden ? n_all - n_golden : 0;
    n_not_reached = t->is_complete ? 0 : n_not_reached;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I}", "total", (json_int_t)t->n_cases + (json_int_t)n_not_reached,
        "passed", (json_int_t)t->n_cases - (json_int_t)n_failed, "failed", (json_int_t)n_failed,
        "not_reached", (json_int_t)n_not_reached, "left_out", (json_int_t)t->n_left_out);
}

/* A complete run evaluates every check that counts. With --case, those of the case; which ones,
 * only the test knows. */
static const ol_check_def *never_evaluated(const ol_test *t) {
    for (size_t i = 0; i < t->def->n_checks; i++) {
        if (counts(t, i) && t->checks[i].n_done == 0) {
            return &t->def->checks[i];
        }
    }
    return NULL;
}

typedef struct verdict {
    ol_class cls;
    char text[1024];
} verdict;

static verdict judge(const ol_test *t, int cmocka_failed) {
    verdict v = {.cls = OL_PASS};
    const ol_event *event = &t->child.event;
    const ol_check_def *silent = NULL;
    if (event->set && event->cls == OL_HARNESS_ERROR) {
        v.cls = OL_HARNESS_ERROR;
        ol_format(v.text, sizeof v.text, "the judge: %s", event->text);
    } else if (json_array_size(t->violations) > 0) {
        v.cls = OL_INTEGRITY;
        ol_format(v.text, sizeof v.text, "%s", json_string_value(json_array_get(t->violations, 0)));
    } else if (event->set) {
        v.cls = event->cls;
        ol_format(v.text, sizeof v.text, "the engine's process %s", event->text);
    } else if (!t->is_complete) {
        v.cls = OL_HARNESS_ERROR;
        ol_format(v.text, sizeof v.text, "the test ended early and nobody knows why");
    } else if (t->has_failed) {
        /* A failure may well keep a later check from being reached. */
        v.cls = t->failed_class;
    } else if (t->setup->case_id == NULL && (silent = never_evaluated(t)) != NULL) {
        v.cls = OL_HARNESS_ERROR;
        ol_format(v.text, sizeof v.text, "the check %s was never evaluated", silent->id);
    }
    /* cmocka saw the same test; two opinions mean a bug. */
    bool passed = v.cls == OL_PASS;
    bool cmocka_passed = cmocka_failed == 0;
    if (passed && !cmocka_passed) {
        v.cls = OL_HARNESS_ERROR;
        ol_format(v.text, sizeof v.text, "cmocka reports a failure that no check recorded");
    }
    if (cmocka_passed && t->has_failed) {
        v.cls = OL_HARNESS_ERROR;
        ol_format(v.text, sizeof v.text, "cmocka reports success though a check failed");
    }
    return v;
}

static json_t *failed_check_of(const ol_test *t, size_t *index) {
    if (t->has_failed && ol_test_check(t->def, t->failed_check, index) != NULL) {
        return t->checks[*index].first;
    }
    return NULL;
}

/* Why it did not pass, for people and machines; NULL for a pass. */
static json_t *cause_json(const ol_test *t, const verdict *v) {
    if (v->cls == OL_PASS) {
        return json_null();
    }
    size_t index = 0;
    json_t *first = failed_check_of(t, &index);
    json_t *cause = json_object();
    const char *text = v->text;
    if (text[0] == '\0' && first != NULL) {
        text = json_string_value(json_object_get(first, "message"));
    }
    (void)json_object_set_new(cause, "rationale", ol_json_text(text == NULL ? "" : text));
    (void)json_object_set_new(cause, "pitfall", json_string(t->def->pitfall));
    (void)json_object_set_new(cause, "clause", json_string(t->def->clause));
    (void)json_object_set_new(cause, "mutant_like", json_null());
    if (first != NULL) {
        (void)json_object_set_new(cause, "check", json_string(t->def->checks[index].id));
        (void)json_object_set_new(cause, "what", json_string(t->def->checks[index].what));
        (void)json_object_set(cause, "first_divergence", first);
    }
    /* Where the process was lost, the case in hand is the one to replay. */
    if (t->child.event.set && t->current != SIZE_MAX) {
        (void)json_object_set_new(cause, "case", ol_json_text(t->cases[t->current].id));
    } else if (first != NULL && json_object_get(first, "case") != NULL) {
        (void)json_object_set(cause, "case", json_object_get(first, "case"));
    }
    return cause;
}

json_t *ol_printed(const ol_test *t) {
    return json_pack("{s:o, s:o}", "stdout_tail", tail_json(&t->child.stdout_tail), "stderr_tail",
                     tail_json(&t->child.stderr_tail));
}

json_t *ol_record(ol_test *t, uint64_t wall_ns, int cmocka_failed) {
    if (t->fault.exit_code != 0) {
        return json_pack("{s:{s:i, s:o}}", "fault", "exit", t->fault.exit_code, "text",
                         ol_json_text(t->fault.text));
    }
    verdict v = judge(t, cmocka_failed);
    const ol_event *event = &t->child.event;
    json_t *record = json_pack("{s:s, s:s, s:O, s:s}", "kind", "test", "name", t->def->name,
                               "kinds", t->def->kinds, "class", ol_class_name(v.cls));
    json_t *more = json_pack(
        "{s:I, s:I, s:I, s:o, s:o, s:o, s:{s:i, s:i}, s:O, s:o, s:o, s:b}", "wall_ms",
        (json_int_t)(wall_ns / 1000000), "cpu_ms", (json_int_t)(t->child.usage.cpu_ns / 1000000),
        "max_rss_kb", (json_int_t)(t->child.usage.max_rss_bytes / 1024), "cases", cases_json(t),
        "checks", checks_json(t), "cause", cause_json(t, &v), "exit", "status", event->exit_status,
        "signal", event->signal, "violations", t->violations, "stdout_tail",
        tail_json(&t->child.stdout_tail), "stderr_tail", tail_json(&t->child.stderr_tail),
        "complete", (int)t->is_complete);
    if (record == NULL || more == NULL || json_object_update(record, more) != 0) {
        json_decref(record);
        record = json_pack("{s:{s:i, s:s}}", "fault", "exit", OL_EXIT_INTERNAL, "text",
                           "the record of a test could not be built");
    }
    json_decref(more);
    if (t->nearest_case[0] != '\0' && t->n_cases == 0) {
        (void)json_object_set_new(record, "nearest_case", ol_json_text(t->nearest_case));
    }
    return record;
}
