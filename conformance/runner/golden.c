/* golden.c: check a vectors file against the page, and the host's libm against the probe; see
 * golden.h.
 *
 * The walk keeps the key path of where it is, so that every fault says it. Values are checked by
 * the tables of golden_rules.c, what hangs together by golden_cross.c. */
#include "golden.h"

#include "golden_cross.h"
#include "golden_rules.h"
#include "wire.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ the walk */

typedef struct walk {
    const char *file;
    ol_fault *fault;
    char path[512];
} walk;

static bool bad(walk *w, const char *what) {
    return ol_fault_set(w->fault, OL_EXIT_GOLDEN, "%s: %s: %s", w->file,
                        w->path[0] == '\0' ? "top" : w->path, what);
}

static size_t enter(walk *w, const char *fmt, ...) OL_FORMAT(2, 3);
static size_t enter(walk *w, const char *fmt, ...) {
    size_t len = strlen(w->path);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(w->path + len, sizeof w->path - len, fmt, args);
    va_end(args);
    return len;
}

static void leave(walk *w, size_t len) {
    w->path[len] = '\0';
}

static bool ends_in_text(const char *key) {
    size_t n = strlen(key);
    return n > 5 && strcmp(key + n - 5, "_text") == 0;
}

static bool is_word(const char *words, const json_t *value) {
    const char *text = json_string_value(value);
    size_t n = text == NULL ? 0 : strlen(text);
    for (const char *at = words; n > 0 && at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ' ? 1 : 0;
        if (strncmp(at, text, n) == 0 && (at[n] == '\0' || at[n] == ' ')) {
            return true;
        }
    }
    return false;
}

static bool is_hex(const json_t *value, size_t n_digits) {
    const char *text = json_string_value(value);
    return text != NULL && json_string_length(value) == n_digits &&
           strspn(text, "0123456789abcdef") == n_digits;
}

static bool is_bytes(const json_t *value) {
    return json_is_string(value) && json_string_length(value) % 2 == 0 &&
           is_hex(value, json_string_length(value));
}

static bool is_int(const json_t *value, long long low, long long high) {
    return json_is_integer(value) && json_integer_value(value) >= low &&
           json_integer_value(value) <= high;
}

static bool is_piece(const json_t *value) {
    const json_t *count = json_object_get(value, "count");
    size_t n_keys = json_object_size(value) - (count == NULL ? 0 : 1);
    if (n_keys != 1 || (count != NULL && !is_int(count, 0, INT64_MAX))) {
        return false;
    }
    if (json_object_get(value, "byte") != NULL) {
        return count != NULL && is_int(json_object_get(value, "byte"), 0, 255);
    }
    return is_bytes(json_object_get(value, "hex")) ||
           json_is_string(json_object_get(value, "text"));
}

/* One element of an array rule, or the value of a scalar rule. NULL, or what it should be. */
static const char *scalar_fault(const key_rule *rule, const json_t *value, char text[96]) {
    switch (rule->kind) {
    case RULE_WORD:
    case RULE_WORDS:
        ol_format(text, 96, "is none of: %s", rule->words);
        return is_word(rule->words, value) ? NULL : text;
    case RULE_INT:
    case RULE_INTS:
    case RULE_INTS_LISTS:
        ol_format(text, 96, "is no integer of %lld to %lld", rule->low, rule->high);
        return is_int(value, rule->low, rule->high) ? NULL : text;
    case RULE_HEX:
    case RULE_HEXES:
    case RULE_HEX_LISTS:
        ol_format(text, 96, "is not %u lower-case hex digits", rule->digits);
        return is_hex(value, rule->digits) ? NULL : text;
    case RULE_HEXES_4_8:
        return is_hex(value, 4) || is_hex(value, 8) ? NULL : "is not 4 or 8 lower-case hex digits";
    case RULE_BYTES:
        return is_bytes(value) ? NULL : "is no hex string of whole bytes";
    case RULE_KEY:
        return json_is_null(value) || is_hex(value, 32) ? NULL
                                                        : "is neither 32 hex digits nor null";
    case RULE_BOOL:
        return json_is_boolean(value) ? NULL : "is no boolean";
    case RULE_COUNT:
        return is_int(value, 0, INT64_MAX) ? NULL : "is no count";
    case RULE_PIECES:
    case RULE_FILES:
        return is_piece(value) ? NULL : "is no piece";
    default:
        return json_is_string(value) ? NULL : "is no string";
    }
}

static bool check_scalar(walk *w, const key_rule *rule, const json_t *value) {
    char text[96];
    const char *what = scalar_fault(rule, value, text);
    return what == NULL || bad(w, what);
}

static bool check_list(walk *w, const key_rule *rule, const json_t *list) {
    if (!json_is_array(list)) {
        return bad(w, "is no array");
    }
    if (rule->kind == RULE_WORDS && json_array_size(list) == 0) {
        return bad(w, "is empty");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        char text[96];
        const char *what = scalar_fault(rule, json_array_get(list, i), text);
        if (what != NULL) {
            (void)enter(w, "[%zu]", i);
            return bad(w, what);
        }
    }
    return true;
}

static bool check_lists(walk *w, const key_rule *rule, const json_t *lists) {
    if (!json_is_array(lists)) {
        return bad(w, "is no array");
    }
    for (size_t i = 0; i < json_array_size(lists); i++) {
        size_t len = enter(w, "[%zu]", i);
        if (!check_list(w, rule, json_array_get(lists, i))) {
            return false;
        }
        leave(w, len);
    }
    return true;
}

static bool check_map(walk *w, const key_rule *rule, json_t *map) {
    if (!json_is_object(map)) {
        return bad(w, "is no object");
    }
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value) {
        size_t len = enter(w, ".%.80s", name);
        bool ok =
            rule->kind == RULE_FILES ? check_list(w, rule, value) : check_scalar(w, rule, value);
        if (!ok) {
            return false;
        }
        leave(w, len);
    }
    return true;
}

static bool check_object(walk *w, const key_rule *rules, const json_t *object);

static bool check_objects(walk *w, const key_rule *rules, const json_t *list) {
    if (!json_is_array(list)) {
        return bad(w, "is no array");
    }
    for (size_t i = 0; rules != NULL && i < json_array_size(list); i++) {
        size_t len = enter(w, "[%zu]", i);
        if (!check_object(w, rules, json_array_get(list, i))) {
            return false;
        }
        leave(w, len);
    }
    return true;
}

static bool check_value(walk *w, const key_rule *rule, json_t *value) {
    switch (rule->kind) {
    case RULE_WORDS:
    case RULE_INTS:
    case RULE_HEXES:
    case RULE_HEXES_4_8:
    case RULE_TEXTS:
    case RULE_PIECES:
        return check_list(w, rule, value);
    case RULE_INTS_LISTS:
    case RULE_HEX_LISTS:
        return check_lists(w, rule, value);
    case RULE_TEXT_MAP:
    case RULE_FILES:
        return check_map(w, rule, value);
    case RULE_OBJECT:
        if (rule->below == NULL) {
            return json_is_object(value) || bad(w, "is no object");
        }
        return check_object(w, rule->below, value);
    case RULE_OBJECTS:
        return check_objects(w, rule->below, value);
    default:
        return check_scalar(w, rule, value);
    }
}

static const key_rule *find_rule(const key_rule *rules, const char *key) {
    for (const key_rule *rule = rules; rule->key != NULL; rule++) {
        if (strcmp(rule->key, key) == 0) {
            return rule;
        }
    }
    return NULL;
}

/* Every key known and well formed, every required key there. The tables are at most four deep, and
 * so is the recursion. */
static bool check_object(walk *w, const key_rule *rules, const json_t *object) {
    if (!json_is_object(object)) {
        return bad(w, "is no object");
    }
    for (const key_rule *rule = rules; rule->key != NULL; rule++) {
        if (rule->required && json_object_get(object, rule->key) == NULL) {
            (void)enter(w, ".%s", rule->key);
            return bad(w, "is missing");
        }
    }
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at != NULL;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
        const char *key = json_object_iter_key(at);
        const key_rule *rule = find_rule(rules, key);
        size_t len = enter(w, ".%.80s", key);
        if (rule == NULL && !ends_in_text(key)) {
            return bad(w, "is no key of this page");
        }
        if (rule != NULL && !check_value(w, rule, json_object_iter_value(at))) {
            return false;
        }
        leave(w, len);
    }
    return true;
}

/* ------------------------------------------------------------------ the file */

static bool check_top(walk *w, const json_t *doc) {
    if (!json_is_object(doc)) {
        return bad(w, "is no object");
    }
    /* The order is part of the page, so that a file is made by the writer and by nothing else. No
     * text twins here. */
    const key_rule *rule = golden_top_rules;
    for (void *at = json_object_iter((json_t *)(uintptr_t)doc); at != NULL;
         at = json_object_iter_next((json_t *)(uintptr_t)doc, at), rule++) {
        const char *key = json_object_iter_key(at);
        if (find_rule(golden_top_rules, key) == NULL) {
            (void)enter(w, "%.80s", key);
            return bad(w, "is no key of this page");
        }
        if (rule->key == NULL || strcmp(rule->key, key) != 0) {
            (void)enter(w, "%s", rule->key == NULL ? key : rule->key);
            return bad(w, "is missing or out of order");
        }
    }
    if (rule->key != NULL) {
        (void)enter(w, "%s", rule->key);
        return bad(w, "is missing");
    }
    return check_object(w, golden_top_rules, doc);
}

static bool check_notes(walk *w, json_t *notes) {
    const char *flag;
    json_t *note;
    json_object_foreach(notes, flag, note) {
        size_t len = enter(w, "notes.%.80s", flag);
        if (!check_object(w, golden_note_rules, note)) {
            return false;
        }
        leave(w, len);
    }
    return true;
}

/* The tables of a file while it is walked: ids to cases, and which notes were used. */
typedef struct tables {
    json_t *ids;
    json_t *used;
} tables;

static bool check_case(walk *w, const ol_source *source, const char *suite, const char *group,
                       const json_t *body, const json_t *notes, tables *seen) {
    const key_rule *rules = golden_case_rules(suite, group);
    if (rules == NULL) {
        return bad(w, "its group is no group of the suite");
    }
    if (!check_object(w, rules, body)) {
        return false;
    }
    const char *id = json_string_value(json_object_get(body, "id"));
    if (json_object_get(seen->ids, id) != NULL) {
        (void)enter(w, ".id");
        return bad(w, "stands twice in the file");
    }
    (void)json_object_set(seen->ids, id, (json_t *)(uintptr_t)body);
    const json_t *flags = json_object_get(body, "flags");
    for (size_t i = 0; i < json_array_size(flags); i++) {
        const char *flag = json_string_value(json_array_get(flags, i));
        if (json_object_get(notes, flag) == NULL) {
            (void)enter(w, ".flags[%zu]: %.80s", i, flag);
            return bad(w, "has no note");
        }
        (void)json_object_set_new(seen->used, flag, json_true());
    }
    char what[256];
    if (!golden_cross_check(source, suite, group, body, what, sizeof what)) {
        return bad(w, what);
    }
    return true;
}

static bool check_group(walk *w, const ol_source *source, const char *suite, const json_t *group,
                        const json_t *notes, tables *seen) {
    if (!check_object(w, golden_group_rules, group)) {
        return false;
    }
    const char *name = json_string_value(json_object_get(group, "name"));
    const json_t *cases = json_object_get(group, "cases");
    if (json_array_size(cases) == 0) {
        (void)enter(w, ".cases");
        return bad(w, "has no case, so nothing would be asked");
    }
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *body = json_array_get(cases, i);
        const char *id = json_string_value(json_object_get(body, "id"));
        size_t len = enter(w, ".cases[%zu]", i);
        if (id != NULL) {
            (void)enter(w, " (%.80s)", id);
        }
        if (!check_case(w, source, suite, name, body, notes, seen)) {
            return false;
        }
        leave(w, len);
    }
    return true;
}

static bool check_groups(walk *w, const ol_source *source, const json_t *doc, tables *seen) {
    const char *suite = json_string_value(json_object_get(doc, "suite"));
    const json_t *groups = json_object_get(doc, "groups");
    if (json_array_size(groups) == 0) {
        (void)enter(w, "groups");
        return bad(w, "has no group, so nothing would be asked");
    }
    for (size_t g = 0; g < json_array_size(groups); g++) {
        const char *name = json_string_value(json_object_get(json_array_get(groups, g), "name"));
        size_t len = enter(w, "groups[%zu]", g);
        for (size_t h = 0; name != NULL && h < g; h++) {
            const json_t *other = json_object_get(json_array_get(groups, h), "name");
            if (strcmp(name, json_string_value(other)) == 0) {
                (void)enter(w, ".name");
                return bad(w, "stands twice in the file");
            }
        }
        if (!check_group(w, source, suite, json_array_get(groups, g), json_object_get(doc, "notes"),
                         seen)) {
            return false;
        }
        leave(w, len);
    }
    return true;
}

/* What can be told only at the end: the count, the notes that no case uses, the twins. */
static bool check_whole(walk *w, const json_t *doc, const tables *seen) {
    size_t n_cases = json_object_size(seen->ids);
    json_int_t n_said = json_integer_value(json_object_get(doc, "n_cases"));
    if ((json_int_t)n_cases != n_said) {
        char what[96];
        ol_format(what, sizeof what, "says %lld, the file has %zu cases", (long long)n_said,
                  n_cases);
        (void)enter(w, "n_cases");
        return bad(w, what);
    }
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(doc, "notes"), name, value) {
        if (json_object_get(seen->used, name) == NULL) {
            (void)enter(w, "notes.%.80s", name);
            return bad(w, "is used by no case");
        }
    }
    json_object_foreach(seen->ids, name, value) {
        const char *twin = json_string_value(json_object_get(value, "twin"));
        const json_t *other = twin == NULL ? NULL : json_object_get(seen->ids, twin);
        const char *verdict = json_string_value(json_object_get(other, "verdict"));
        bool is_accepted = other != NULL && (verdict == NULL || strcmp(verdict, "accept") == 0);
        if (twin != NULL && !is_accepted) {
            (void)enter(w, "case %.80s.twin", name);
            return bad(w, "is no accepted case of this file");
        }
    }
    return true;
}

bool ol_golden_check(const ol_source *source, const char *name, const json_t *doc,
                     ol_fault *fault) {
    char file[4400];
    ol_format(file, sizeof file, "%s/%s", source->dir, name);
    walk w = {.file = file, .fault = fault};
    tables seen = {.ids = json_object(), .used = json_object()};
    bool ok = seen.ids != NULL && seen.used != NULL && check_top(&w, doc) &&
              check_notes(&w, json_object_get(doc, "notes")) &&
              check_groups(&w, source, doc, &seen) && check_whole(&w, doc, &seen);
    json_decref(seen.ids);
    json_decref(seen.used);
    return ok || ol_fault_set(fault, OL_EXIT_INTERNAL, "out of memory for %s", file);
}

/* ------------------------------------------------------------------ the libm probe */

static bool probe_function(walk *w, const json_t *doc, const char *name,
                           double (*function)(double)) {
    const json_t *table = json_object_get(doc, name);
    const json_t *x = json_object_get(table, "x");
    const json_t *y = json_object_get(table, "y");
    (void)enter(w, "%s", name);
    if (json_array_size(x) == 0 || json_array_size(x) != json_array_size(y)) {
        return bad(w, "needs x and y of the same length");
    }
    for (size_t i = 0; i < json_array_size(x); i++) {
        uint64_t x_bits = 0;
        uint64_t y_bits = 0;
        const char *x_text = json_string_value(json_array_get(x, i));
        const char *y_text = json_string_value(json_array_get(y, i));
        if (x_text == NULL || y_text == NULL || !ol_wire_u64_parse(x_text, &x_bits) ||
            !ol_wire_u64_parse(y_text, &y_bits)) {
            (void)enter(w, "[%zu]", i);
            return bad(w, "is not 16 lower-case hex digits");
        }
        volatile double value;
        memcpy((void *)(uintptr_t)&value, &x_bits, sizeof x_bits);
        double got = function(value);
        uint64_t got_bits;
        memcpy(&got_bits, &got, sizeof got_bits);
        if (got_bits != y_bits) {
            char what[200];
            ol_format(what, sizeof what,
                      "this host cannot be judged bit for bit: its %s(0x%016llx) is 0x%016llx, the "
                      "goldens were "
                      "made with 0x%016llx",
                      name, (unsigned long long)x_bits, (unsigned long long)got_bits,
                      (unsigned long long)y_bits);
            return bad(w, what);
        }
    }
    w->path[0] = '\0';
    return true;
}

bool ol_probe_check(const char *dir, ol_fault *fault) {
    char path[4400];
    size_t n_bytes = 0;
    ol_format(path, sizeof path, "%s/libm.probe.json", dir);
    char *bytes = ol_read_file(path, OL_VECTORS_BYTES_MAX, &n_bytes);
    if (bytes == NULL && errno == ENOENT) {
        return true; /* a folder without sampler cases needs none; the manifest tells a lost one */
    }
    if (bytes == NULL) {
        return ol_fault_set(fault, ol_exit_of_file(errno), "%s: %s", path, strerror(errno));
    }
    json_error_t error;
    json_t *doc = json_loadb(bytes, n_bytes, JSON_REJECT_DUPLICATES, &error);
    free(bytes);
    if (doc == NULL) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "%s: line %d: %s", path, error.line, error.text);
    }
    walk w = {.file = path, .fault = fault};
    const char *schema = json_string_value(json_object_get(doc, "schema"));
    bool ok = schema != NULL && strcmp(schema, "ol.probe/1") == 0;
    if (!ok) {
        (void)bad(&w, "schema is not ol.probe/1");
    }
    ok = ok && probe_function(&w, doc, "exp", exp) && probe_function(&w, doc, "log", log);
    json_decref(doc);
    return ok;
}
