/* catalog.c: load and check the catalogue; see catalog.h.
 *
 * Every rule that a report, a fingerprint or a grade relies on is checked here once, so that the
 * rest of the judge can trust the tables. Each complaint names the place in the file. */
#include "catalog.h"

#include "sha256.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CATALOG_BYTES_MAX ((size_t)4 << 20)

static const char *const all_kinds[] = {"unit",     "golden",      "differential", "property",
                                        "boundary", "statistical", "conformance"};

static const char *const test_keys[] = {"number", "name",     "kinds",   "module",
                                        "suites", "rests_on", "mutants", "clause",
                                        "title",  "why",      "pitfall", "checks"};

static bool is_text_array(const json_t *value) {
    if (!json_is_array(value)) {
        return false;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (!json_is_string(json_array_get(value, i))) {
            return false;
        }
    }
    return true;
}

static bool check_kinds(const ol_test_def *test, ol_fault *fault) {
    if (json_array_size(test->kinds) == 0) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: %s has no kind", test->name);
    }
    for (size_t i = 0; i < json_array_size(test->kinds); i++) {
        const char *kind = json_string_value(json_array_get(test->kinds, i));
        bool known = false;
        for (size_t k = 0; k < sizeof all_kinds / sizeof *all_kinds; k++) {
            known = known || strcmp(kind, all_kinds[k]) == 0;
        }
        if (!known) {
            return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: %s has the unknown kind %s",
                                test->name, kind);
        }
    }
    return true;
}

static bool load_check(ol_test_def *test, size_t index, const json_t *from, ol_fault *fault) {
    ol_check_def *check = &test->checks[index];
    const json_t *strict = json_object_get(from, "strict");
    check->id = json_string_value(json_object_get(from, "id"));
    check->what = json_string_value(json_object_get(from, "what"));
    check->strict = json_is_true(strict);
    size_t n_name = strlen(test->name);
    if (check->id == NULL || check->what == NULL || !json_is_boolean(strict)) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN,
                            "catalogue: check %zu of %s needs id, strict and what", index,
                            test->name);
    }
    if (strncmp(check->id, test->name, n_name) != 0 || check->id[n_name] != '.' ||
        check->id[n_name + 1] == '\0') {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: check id %s does not start with %s.",
                            check->id, test->name);
    }
    check->name = check->id + n_name + 1;
    for (size_t i = 0; i < index; i++) {
        if (strcmp(check->id, test->checks[i].id) == 0) {
            return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: check id %s stands twice",
                                check->id);
        }
    }
    return true;
}

static bool load_checks(ol_test_def *test, const json_t *list, ol_fault *fault) {
    test->n_checks = json_array_size(list);
    if (test->n_checks == 0) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: %s has no checks", test->name);
    }
    test->checks = calloc(test->n_checks, sizeof *test->checks);
    if (test->checks == NULL) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "out of memory");
    }
    for (size_t i = 0; i < test->n_checks; i++) {
        if (!load_check(test, i, json_array_get(list, i), fault)) {
            return false;
        }
    }
    return true;
}

/* A test rests on earlier ones only, so the order of the catalogue is an order of repair and there
 * is no circle. */
static bool load_rests_on(ol_catalog *catalog, size_t index, const json_t *list, ol_fault *fault) {
    ol_test_def *test = &catalog->tests[index];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        size_t other = 0;
        while (other < index && strcmp(catalog->tests[other].name, name) != 0) {
            other++;
        }
        if (other == index || test->n_rests_on == OL_N_TESTS) {
            return ol_fault_set(fault, OL_EXIT_GOLDEN,
                                "catalogue: %s rests on %s, which is no test before it", test->name,
                                name);
        }
        test->rests_on[test->n_rests_on++] = other;
    }
    return true;
}

static bool load_texts(ol_test_def *test, const json_t *from, size_t index, ol_fault *fault) {
    struct {
        const char *key;
        const char **to;
    } texts[] = {{"name", &test->name},   {"module", &test->module}, {"clause", &test->clause},
                 {"title", &test->title}, {"why", &test->why},       {"pitfall", &test->pitfall}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        *texts[i].to = json_string_value(json_object_get(from, texts[i].key));
        if (*texts[i].to == NULL) {
            return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: tests[%zu].%s is no string",
                                index, texts[i].key);
        }
    }
    return true;
}

static bool check_keys(const json_t *from, size_t index, ol_fault *fault) {
    const size_t n_keys = sizeof test_keys / sizeof *test_keys;
    for (size_t i = 0; i < n_keys; i++) {
        if (json_object_get(from, test_keys[i]) == NULL) {
            return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: tests[%zu].%s is missing", index,
                                test_keys[i]);
        }
    }
    if (json_object_size(from) != n_keys) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN,
                            "catalogue: tests[%zu] has a key that is unknown", index);
    }
    return true;
}

static bool load_test(ol_catalog *catalog, size_t index, const json_t *from, ol_fault *fault) {
    ol_test_def *test = &catalog->tests[index];
    if (!check_keys(from, index, fault) || !load_texts(test, from, index, fault)) {
        return false;
    }
    test->number = (size_t)json_integer_value(json_object_get(from, "number"));
    test->kinds = json_object_get(from, "kinds");
    test->suites = json_object_get(from, "suites");
    test->mutants = json_object_get(from, "mutants");
    const json_t *rests_on = json_object_get(from, "rests_on");
    if (test->number != index + 1) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: %s has number %zu at place %zu",
                            test->name, test->number, index + 1);
    }
    if (!is_text_array(test->kinds) || !is_text_array(test->suites) ||
        !is_text_array(test->mutants) || !is_text_array(rests_on)) {
        return ol_fault_set(
            fault, OL_EXIT_GOLDEN,
            "catalogue: kinds, suites, mutants and rests_on of %s are arrays of strings",
            test->name);
    }
    for (size_t i = 0; i < index; i++) {
        if (strcmp(test->name, catalog->tests[i].name) == 0) {
            return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: %s stands twice", test->name);
        }
    }
    return check_kinds(test, fault) && load_rests_on(catalog, index, rests_on, fault) &&
           load_checks(test, json_object_get(from, "checks"), fault);
}

/* The catalogue and the compiled tests must be the same 24 names. */
static bool tie_entries(ol_catalog *catalog, ol_fault *fault) {
    for (size_t i = 0; i < ol_n_test_entries; i++) {
        const ol_test_entry *entry = &ol_test_entries[i];
        size_t place = 0;
        while (place < OL_N_TESTS && strcmp(catalog->tests[place].name, entry->name) != 0) {
            place++;
        }
        if (place == OL_N_TESTS || catalog->tests[place].run != NULL) {
            return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: it has not exactly one %s",
                                entry->name);
        }
        catalog->tests[place].run = entry->run;
    }
    for (size_t i = 0; i < OL_N_TESTS; i++) {
        if (catalog->tests[i].run == NULL) {
            return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: no test is compiled for %s",
                                catalog->tests[i].name);
        }
    }
    return true;
}

static bool load_tests(ol_catalog *catalog, ol_fault *fault) {
    const char *schema = json_string_value(json_object_get(catalog->root, "schema"));
    const char *module = json_string_value(json_object_get(catalog->root, "module"));
    const json_t *tests = json_object_get(catalog->root, "tests");
    if (schema == NULL || strcmp(schema, "ol.catalog/1") != 0) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: schema is not ol.catalog/1");
    }
    if (module == NULL || strcmp(module, OL_MODULE) != 0) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: module is not " OL_MODULE);
    }
    if (json_array_size(tests) != OL_N_TESTS) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: %zu tests found, %d are needed",
                            json_array_size(tests), OL_N_TESTS);
    }
    for (size_t i = 0; i < OL_N_TESTS; i++) {
        if (!load_test(catalog, i, json_array_get(tests, i), fault)) {
            return false;
        }
    }
    return tie_entries(catalog, fault);
}

bool ol_catalog_load(ol_catalog *catalog, const char *path, ol_fault *fault) {
    *catalog = (ol_catalog){0};
    size_t n_bytes = 0;
    char *bytes = ol_read_file(path, CATALOG_BYTES_MAX, &n_bytes);
    if (bytes == NULL) {
        return ol_fault_set(fault, ol_exit_of_file(errno), "catalogue: %s: %s", path,
                            strerror(errno));
    }
    ol_sha256 hash;
    ol_sha256_init(&hash);
    ol_sha256_add(&hash, bytes, n_bytes);
    ol_sha256_text(&hash, catalog->sha256);
    json_error_t error;
    catalog->root = json_loadb(bytes, n_bytes, JSON_REJECT_DUPLICATES, &error);
    free(bytes);
    if (catalog->root == NULL) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "catalogue: %s: line %d: %s", path, error.line,
                            error.text);
    }
    return load_tests(catalog, fault);
}

void ol_catalog_clear(ol_catalog *catalog) {
    for (size_t i = 0; i < OL_N_TESTS; i++) {
        free(catalog->tests[i].checks);
    }
    json_decref(catalog->root);
    *catalog = (ol_catalog){0};
}

const ol_test_def *ol_catalog_find(const ol_catalog *catalog, const char *name) {
    for (size_t i = 0; i < OL_N_TESTS; i++) {
        if (strcmp(catalog->tests[i].name, name) == 0) {
            return &catalog->tests[i];
        }
    }
    return NULL;
}

static bool array_has(const json_t *list, const char *text) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (strcmp(json_string_value(json_array_get(list, i)), text) == 0) {
            return true;
        }
    }
    return false;
}

const ol_test_def *ol_catalog_of_suite(const ol_catalog *catalog, const char *suite) {
    for (size_t i = 0; i < OL_N_TESTS; i++) {
        if (array_has(catalog->tests[i].suites, suite)) {
            return &catalog->tests[i];
        }
    }
    return NULL;
}

const ol_check_def *ol_test_check(const ol_test_def *test, const char *name, size_t *index) {
    for (size_t i = 0; i < test->n_checks; i++) {
        if (strcmp(test->checks[i].name, name) == 0) {
            *index = i;
            return &test->checks[i];
        }
    }
    return NULL;
}

bool ol_test_has_kind(const ol_test_def *test, const char *kind) {
    return array_has(test->kinds, kind);
}

void ol_clause_text(const char *clause, char *text, size_t cap) {
    int n_page = (int)strcspn(clause, "#");
    bool is_kv = n_page == 2 && strncmp(clause, "kv", 2) == 0;
    ol_format(text, cap, "conformance/spec/%.*s%s.md%s%s", n_page, clause, is_kv ? "-block" : "",
              clause[n_page] == '#' ? ", " : "", clause[n_page] == '#' ? clause + n_page + 1 : "");
}

/* How far a misspelt name is from a test's: edits, and less when it is a part of the name. */
static size_t name_distance(const char *name, const char *test) {
    size_t distance = ol_edit_distance(name, test);
    bool is_part = strlen(name) >= 3 && strstr(test, name) != NULL;
    return is_part ? distance / 8 : distance;
}

void ol_catalog_nearest(const ol_catalog *catalog, const char *name, char *text, size_t cap) {
    enum { N_SHOWN = 3 };
    bool shown[OL_N_TESTS] = {false};
    text[0] = '\0';
    for (size_t n = 0; n < N_SHOWN; n++) {
        size_t best = OL_N_TESTS;
        size_t best_distance = SIZE_MAX;
        for (size_t i = 0; i < OL_N_TESTS; i++) {
            size_t distance = name_distance(name, catalog->tests[i].name);
            if (!shown[i] && distance < best_distance) {
                best = i;
                best_distance = distance;
            }
        }
        shown[best] = true;
        size_t len = strlen(text);
        const char *between = n == 0 ? "" : n + 1 == N_SHOWN ? " or " : ", ";
        ol_format(text + len, cap - len, "%s%s", between, catalog->tests[best].name);
    }
}
