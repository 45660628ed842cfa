/* file_cases.c: see file_cases.h. */
#include "file_cases.h"

#include <string.h>

/* The outcomes so far. */
typedef struct book {
    const file_suite *suite;
    file_outcome *outcomes; /* [cap] */
    size_t n, cap;
} book;

bool file_is_refusal(ol_test *t, const ol_case *c) {
    return strcmp(ol_get_text(t, c, c->body, "verdict"), "refuse") == 0;
}

bool file_put(ol_test *t, const ol_case *c, const char *path, const json_t *pieces,
              const char *node) {
    if (node != NULL && strcmp(node, "link") != 0) {
        return ol_put_node(t, path, node);
    }
    ol_put_pieces(t, c, path, pieces);
    return node == NULL || ol_put_node(t, path, node);
}

static const char *check_of(ol_test *t, const file_suite *suite, const ol_case *c) {
    for (const char *const *name = suite->checks; *name != NULL; name++) {
        if (strcmp(*name, c->group) == 0) {
            return *name;
        }
    }
    return suite->fallback(t, c);
}

static const file_outcome *outcome_of(ol_test *t, book *b, const ol_case *c) {
    for (size_t i = 0; i < b->n; i++) {
        const ol_case *known = b->outcomes[i].c;
        bool same = known->src == c->src && strcmp(known->file, c->file) == 0;
        if (same && strcmp(known->id, c->id) == 0) {
            return &b->outcomes[i];
        }
    }
    if (b->n == b->cap) {
        size_t cap = b->cap == 0 ? 256 : 2 * b->cap;
        file_outcome *more = ol_alloc(t, cap * sizeof *more);
        if (b->n > 0) {
            memcpy(more, b->outcomes, b->n * sizeof *more);
        }
        b->outcomes = more;
        b->cap = cap;
    }
    file_outcome made = b->suite->run(t, c, b->n);
    made.c = c;
    b->outcomes[b->n] = made;
    return &b->outcomes[b->n++];
}

/* ["FORMAT", "IO"] as "FORMAT|IO". */
static const char *statuses_of(ol_test *t, const ol_case *c) {
    const json_t *list = ol_get_array(t, c, c->body, "status");
    const char *text = "";
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *status = json_string_value(json_array_get(list, i));
        text = ol_text(t, "%s%s%s", text, i == 0 ? "" : "|", status == NULL ? "" : status);
    }
    return text;
}

static void judge_refusal(ol_test *t, book *b, const file_outcome *o, const char *check) {
    const ol_case *c = o->c;
    const char *what = ol_text(t, "%s", ol_get_text_or(t, c, c->body, "comment", c->id));
    bool refused = ol_check_refused(t, check, o->answer, statuses_of(t, c), NULL, -1, what);
    const char *subject = ol_get_text_or(t, c, c->body, "subject", NULL);
    if (refused && subject != NULL) {
        (void)ol_check_named(t, b->suite->subject_check(check), o->answer, subject, what);
    }
    uint64_t offset = ol_get_count_or(t, c, c->body, "offset", UINT64_MAX);
    if (refused && offset != UINT64_MAX && b->suite->offset_check != NULL) {
        (void)ol_check_refused(t, b->suite->offset_check, o->answer, statuses_of(t, c), NULL,
                               (int64_t)offset, what);
    }
}

static void judge_sound(ol_test *t, book *b, const file_outcome *o, const char *check,
                        const char *what) {
    if (!o->left_out && ol_check_ok(t, check, o->answer, what)) {
        b->suite->look(t, check, o);
    }
}

static void judge_twin(ol_test *t, book *b, const ol_case *c) {
    const char *id = ol_get_text_or(t, c, c->body, "twin", NULL);
    const ol_case *twin = id == NULL ? NULL : ol_case_find(t, c, id);
    if (twin != NULL) {
        const file_outcome *o = outcome_of(t, b, twin);
        judge_sound(t, b, o, "sound_twins", ol_text(t, "%s, the sound twin of %s", id, c->id));
    }
}

void file_cases_run(ol_test *t, const file_suite *suite) {
    book b = {.suite = suite};
    for (size_t i = 0; i < ol_n_cases(t, suite->suite); i++) {
        const ol_case *c = ol_case_at(t, suite->suite, i);
        ol_begin_case(t, c);
        const char *check = check_of(t, suite, c);
        const file_outcome *o = outcome_of(t, &b, c);
        if (!file_is_refusal(t, c)) {
            judge_sound(t, &b, o, check, ol_get_text_or(t, c, c->body, "comment", c->id));
            continue;
        }
        if (!o->left_out) {
            judge_refusal(t, &b, o, check);
        }
        judge_twin(t, &b, c);
    }
}
