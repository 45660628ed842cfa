/* cases.c: the cases of the goldens as a test sees them, and the readers of their fields; see
 * test.h.
 *
 * A suite is loaded when a test first asks for it: every file of every source that has it, in
 * order. A field that is missing or malformed is a broken golden and ends the run with exit 5 and
 * the key path. */
#include "context.h"

#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ loading */

typedef struct suite_more {
    ol_suite suite;
    json_t *docs; /* array of the files' values */
} suite_more;

static bool add_case(ol_test *t, ol_suite *suite, size_t *cap, const ol_case *c) {
    if (suite->n_cases == *cap) {
        size_t more = *cap == 0 ? 64 : 2 * *cap;
        ol_case *cases = realloc(suite->cases, more * sizeof *cases);
        if (cases == NULL) {
            return ol_fault_set(&t->fault, OL_EXIT_INTERNAL, "out of memory for cases");
        }
        suite->cases = cases;
        *cap = more;
    }
    suite->cases[suite->n_cases++] = *c;
    return true;
}

static double bound_of(const json_t *doc) {
    const json_t *tolerance = json_object_get(doc, "tolerance");
    const char *mode = json_string_value(json_object_get(tolerance, "mode"));
    const char *text = json_string_value(json_object_get(tolerance, "bound"));
    uint64_t bits = 0;
    double bound = 0;
    if (mode != NULL && strcmp(mode, "max_abs") == 0 && text != NULL &&
        ol_wire_u64_parse(text, &bits)) {
        memcpy(&bound, &bits, sizeof bound);
    }
    return bound;
}

static bool add_file(ol_test *t, ol_suite *suite, size_t *cap, const ol_source *source,
                     const ol_vectors *file, const json_t *doc) {
    const json_t *groups = json_object_get(doc, "groups");
    for (size_t g = 0; g < json_array_size(groups); g++) {
        const json_t *group = json_array_get(groups, g);
        const json_t *list = json_object_get(group, "cases");
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *body = json_array_get(list, i);
            ol_case c = {.id = json_string_value(json_object_get(body, "id")),
                         .file = file->name,
                         .group = json_string_value(json_object_get(group, "name")),
                         .body = body,
                         .bound = bound_of(doc),
                         .src = source};
            if (c.id == NULL || c.group == NULL) {
                return ol_fault_set(&t->fault, OL_EXIT_GOLDEN,
                                    "%s: groups[%zu].cases[%zu] has no id", file->name, g, i);
            }
            if (!add_case(t, suite, cap, &c)) {
                return false;
            }
        }
    }
    return true;
}

static ol_suite *load_suite(ol_test *t, const char *name) {
    suite_more *more = calloc(1, sizeof *more);
    if (more == NULL || (more->docs = json_array()) == NULL) {
        free(more);
        ol_leave_fault(t, OL_EXIT_INTERNAL, "out of memory for a suite");
    }
    more->suite.suite = name;
    more->suite.next = t->suites;
    t->suites = &more->suite;
    size_t cap = 0;
    for (size_t s = 0; s < t->setup->n_sources; s++) {
        const ol_source *source = &t->setup->sources[s];
        for (size_t f = 0; f < source->n_vectors; f++) {
            const ol_vectors *file = &source->vectors[f];
            if (strcmp(file->suite, name) != 0) {
                continue;
            }
            json_t *doc = ol_source_load(source, file->name, &t->fault);
            if (doc == NULL || json_array_append_new(more->docs, doc) != 0 ||
                !add_file(t, &more->suite, &cap, source, file, doc)) {
                ol_leave(t);
            }
        }
    }
    return &more->suite;
}

static ol_suite *find_suite(ol_test *t, const char *name) {
    for (ol_suite *s = t->suites; s != NULL; s = s->next) {
        if (strcmp(s->suite, name) == 0) {
            return s;
        }
    }
    return load_suite(t, name);
}

void ol_cases_clear(ol_test *t) {
    while (t->suites != NULL) {
        /* The first member, so the pointers are one. */
        suite_more *more = (suite_more *)(void *)t->suites;
        t->suites = more->suite.next;
        free(more->suite.cases);
        json_decref(more->docs);
        free(more);
    }
}

size_t ol_cases_of_golden(const ol_test *t) {
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(t->def->suites); i++) {
        const char *suite = json_string_value(json_array_get(t->def->suites, i));
        for (size_t s = 0; s < t->setup->n_sources; s++) {
            const ol_source *source = &t->setup->sources[s];
            for (size_t f = 0; f < source->n_vectors; f++) {
                n += strcmp(source->vectors[f].suite, suite) == 0 ? source->vectors[f].n_cases : 0;
            }
        }
    }
    return n;
}

/* ------------------------------------------------------------------ selecting */

/* With --case only the case of that id. Whatever else is offered is remembered if it is the
 * nearest, for a name that turns out to be none. */
static bool is_selected(ol_test *t, const char *id) {
    const char *wanted = t->setup->case_id;
    if (wanted == NULL || strcmp(wanted, id) == 0) {
        return true;
    }
    size_t distance = ol_edit_distance(wanted, id);
    if (t->nearest_case[0] == '\0' || distance < t->nearest_distance) {
        ol_format(t->nearest_case, sizeof t->nearest_case, "%s", id);
        t->nearest_distance = distance;
    }
    return false;
}

size_t ol_n_cases(ol_test *t, const char *suite) {
    const ol_suite *s = find_suite(t, suite);
    size_t n = 0;
    for (size_t i = 0; i < s->n_cases; i++) {
        n += is_selected(t, s->cases[i].id) ? 1 : 0;
    }
    return n;
}

const ol_case *ol_case_at(ol_test *t, const char *suite, size_t index) {
    const ol_suite *s = find_suite(t, suite);
    if (t->setup->case_id == NULL && index < s->n_cases) {
        return &s->cases[index];
    }
    size_t n = 0;
    for (size_t i = 0; i < s->n_cases; i++) {
        if (is_selected(t, s->cases[i].id) && n++ == index) {
            return &s->cases[i];
        }
    }
    ol_leave_fault(t, OL_EXIT_INTERNAL, "%s asked for case %zu of %zu of suite %s", t->def->name,
                   index, n, suite);
}

const ol_case *ol_case_find(ol_test *t, const ol_case *like, const char *id) {
    for (const ol_suite *s = t->suites; s != NULL; s = s->next) {
        for (size_t i = 0; i < s->n_cases; i++) {
            const ol_case *c = &s->cases[i];
            if (c->src == like->src && strcmp(c->file, like->file) == 0 && strcmp(c->id, id) == 0) {
                return c;
            }
        }
    }
    return NULL;
}

/* Make a case current, with its record; a case may be taken up again. */
static void begin(ol_test *t, const char *id, const char *file, const void *src) {
    for (size_t i = t->n_cases; i-- > 0;) {
        const ol_case_state *known = &t->cases[i];
        if (strcmp(known->id, id) == 0 && strcmp(known->file, file) == 0 && known->src == src) {
            t->current = i;
            return;
        }
    }
    if (t->n_cases == t->cases_cap) {
        size_t cap = t->cases_cap == 0 ? 64 : 2 * t->cases_cap;
        ol_case_state *cases = realloc(t->cases, cap * sizeof *cases);
        if (cases == NULL) {
            ol_leave_fault(t, OL_EXIT_INTERNAL, "out of memory for cases");
        }
        t->cases = cases;
        t->cases_cap = cap;
    }
    /* The id may lie in memory of the caller's that ends sooner. */
    char *copy = strdup(id);
    if (copy == NULL) {
        ol_leave_fault(t, OL_EXIT_INTERNAL, "out of memory for a case");
    }
    t->cases[t->n_cases] = (ol_case_state){.id = copy, .file = file, .src = src};
    t->current = t->n_cases++;
}

bool ol_begin(ol_test *t, const char *case_id) {
    if (!is_selected(t, case_id)) {
        return false;
    }
    begin(t, case_id, "", NULL);
    return true;
}

void ol_begin_case(ol_test *t, const ol_case *c) {
    begin(t, c->id, c->file, c->src);
}

/* ------------------------------------------------------------------ fields */

static OL_NORETURN void broken(ol_test *t, const ol_case *c, const char *key, const char *what) {
    const ol_source *source = c->src;
    ol_leave_fault(t, OL_EXIT_GOLDEN, "%s/%s: group %s, case %s, key %s: %s", source->dir, c->file,
                   c->group, c->id, key, what);
}

static const json_t *field(ol_test *t, const ol_case *c, const json_t *obj, const char *key) {
    const json_t *value = json_object_get(obj, key);
    if (value == NULL) {
        broken(t, c, key, "is missing");
    }
    return value;
}

/* n_digits lower-case hex digits, most significant first. */
static bool parse_hex(const json_t *value, size_t n_digits, uint64_t *bits) {
    const char *text = json_string_value(value);
    if (text == NULL || json_string_length(value) != n_digits) {
        return false;
    }
    *bits = 0;
    for (size_t i = 0; i < n_digits; i++) {
        const char *digits = "0123456789abcdef";
        const char *at = strchr(digits, text[i]);
        if (text[i] == '\0' || at == NULL) {
            return false;
        }
        *bits = (*bits << 4) | (uint64_t)(at - digits);
    }
    return true;
}

uint64_t ol_get_u64(ol_test *t, const ol_case *c, const json_t *obj, const char *key) {
    uint64_t bits = 0;
    if (!parse_hex(field(t, c, obj, key), 16, &bits)) {
        broken(t, c, key, "is not 16 hex digits");
    }
    return bits;
}

double ol_get_f64(ol_test *t, const ol_case *c, const json_t *obj, const char *key) {
    uint64_t bits = ol_get_u64(t, c, obj, key);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint64_t ol_get_count(ol_test *t, const ol_case *c, const json_t *obj, const char *key) {
    const json_t *value = field(t, c, obj, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        broken(t, c, key, "is not a count");
    }
    return (uint64_t)json_integer_value(value);
}

uint64_t ol_get_count_or(ol_test *t, const ol_case *c, const json_t *obj, const char *key,
                         uint64_t none) {
    return json_object_get(obj, key) == NULL ? none : ol_get_count(t, c, obj, key);
}

const char *ol_get_text(ol_test *t, const ol_case *c, const json_t *obj, const char *key) {
    const char *text = json_string_value(field(t, c, obj, key));
    if (text == NULL) {
        broken(t, c, key, "is not a string");
    }
    return text;
}

const char *ol_get_text_or(ol_test *t, const ol_case *c, const json_t *obj, const char *key,
                           const char *none) {
    return json_object_get(obj, key) == NULL ? none : ol_get_text(t, c, obj, key);
}

const json_t *ol_get_array(ol_test *t, const ol_case *c, const json_t *obj, const char *key) {
    const json_t *value = field(t, c, obj, key);
    if (!json_is_array(value)) {
        broken(t, c, key, "is not an array");
    }
    return value;
}

const json_t *ol_get_object(ol_test *t, const ol_case *c, const json_t *obj, const char *key) {
    const json_t *value = field(t, c, obj, key);
    if (!json_is_object(value)) {
        broken(t, c, key, "is not an object");
    }
    return value;
}

/* An array of hex strings into elements of `size` bytes. */
static void *get_hexes(ol_test *t, const ol_case *c, const json_t *obj, const char *key,
                       size_t size, size_t *n) {
    const json_t *list = ol_get_array(t, c, obj, key);
    *n = json_array_size(list);
    uint8_t *out = ol_alloc(t, *n * size + 1);
    for (size_t i = 0; i < *n; i++) {
        uint64_t bits = 0;
        if (!parse_hex(json_array_get(list, i), 2 * size, &bits)) {
            char what[80];
            ol_format(what, sizeof what, "element %zu is not %zu hex digits", i, 2 * size);
            broken(t, c, key, what);
        }
        uint16_t u16 = (uint16_t)bits;
        uint32_t u32 = (uint32_t)bits;
        const void *from = size == 2 ? (const void *)&u16 : size == 4 ? (const void *)&u32 : &bits;
        memcpy(out + i * size, from, size);
    }
    return out;
}

float *ol_get_f32s(ol_test *t, const ol_case *c, const json_t *obj, const char *key, size_t *n) {
    return get_hexes(t, c, obj, key, sizeof(float), n);
}

double *ol_get_f64s(ol_test *t, const ol_case *c, const json_t *obj, const char *key, size_t *n) {
    return get_hexes(t, c, obj, key, sizeof(double), n);
}

uint16_t *ol_get_u16s(ol_test *t, const ol_case *c, const json_t *obj, const char *key, size_t *n) {
    return get_hexes(t, c, obj, key, sizeof(uint16_t), n);
}

uint32_t *ol_get_u32s(ol_test *t, const ol_case *c, const json_t *obj, const char *key, size_t *n) {
    return get_hexes(t, c, obj, key, sizeof(uint32_t), n);
}

/* An array of plain integers between low and high. */
static json_int_t get_integer(ol_test *t, const ol_case *c, const char *key, const json_t *list,
                              size_t i, json_int_t low, json_int_t high) {
    const json_t *value = json_array_get(list, i);
    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > high) {
        char what[96];
        ol_format(what, sizeof what, "element %zu is not an integer of %lld to %lld", i,
                  (long long)low, (long long)high);
        broken(t, c, key, what);
    }
    return json_integer_value(value);
}

uint32_t *ol_get_ids(ol_test *t, const ol_case *c, const json_t *obj, const char *key, size_t *n) {
    const json_t *list = ol_get_array(t, c, obj, key);
    *n = json_array_size(list);
    uint32_t *out = ol_alloc(t, *n * sizeof *out + 1);
    for (size_t i = 0; i < *n; i++) {
        out[i] = (uint32_t)get_integer(t, c, key, list, i, 0, UINT32_MAX);
    }
    return out;
}

int8_t *ol_get_i8s(ol_test *t, const ol_case *c, const json_t *obj, const char *key, size_t *n) {
    const json_t *list = ol_get_array(t, c, obj, key);
    *n = json_array_size(list);
    int8_t *out = ol_alloc(t, *n + 1);
    for (size_t i = 0; i < *n; i++) {
        out[i] = (int8_t)get_integer(t, c, key, list, i, INT8_MIN, INT8_MAX);
    }
    return out;
}

uint8_t *ol_get_bytes(ol_test *t, const ol_case *c, const json_t *obj, const char *key, size_t *n) {
    const char *text = ol_get_text(t, c, obj, key);
    size_t n_text = strlen(text);
    uint8_t *out = ol_alloc(t, n_text / 2 + 1);
    if (!ol_wire_unhex(text, n_text, out)) {
        broken(t, c, key, "is not a hex string of whole bytes");
    }
    *n = n_text / 2;
    return out;
}
