/* cmd_tests.c: `ol tests`: the catalogue for people or as JSON, and the checks that nothing proves.
 *
 * A check is proven by a wrong engine that fails it. conformance/proofs.json holds, for each such
 * engine, the checks that it was seen to fail: {"schema": "ol.proofs/1", "engines": [{"id", "kind":
 * "mutant" | "engine", "fails": [check ids]}]}. The mutant matrix writes it; a check id that the
 * catalogue does not have makes it broken. */
#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROOFS_MAX ((size_t)4 << 20)

static const ol_check_def *check_of_id(const ol_catalog *catalog, const char *id) {
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        for (size_t i = 0; i < catalog->tests[k].n_checks; i++) {
            if (strcmp(catalog->tests[k].checks[i].id, id) == 0) {
                return &catalog->tests[k].checks[i];
            }
        }
    }
    return NULL;
}

/* Check id -> array of the engines that fail it. */
static bool add_engine(const ol_catalog *catalog, json_t *proofs, const json_t *engine,
                       ol_fault *fault) {
    const char *name = json_string_value(json_object_get(engine, "id"));
    const json_t *fails = json_object_get(engine, "fails");
    if (name == NULL || !json_is_array(fails)) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN,
                            "conformance/proofs.json: an engine needs id and fails");
    }
    for (size_t i = 0; i < json_array_size(fails); i++) {
        const char *id = json_string_value(json_array_get(fails, i));
        if (id == NULL || check_of_id(catalog, id) == NULL) {
            return ol_fault_set(fault, OL_EXIT_GOLDEN,
                                "conformance/proofs.json: %s fails %s, which is no check", name,
                                id == NULL ? "?" : id);
        }
        json_t *list = json_object_get(proofs, id);
        if (list == NULL) {
            list = json_array();
            (void)json_object_set_new(proofs, id, list);
        }
        (void)json_array_append_new(list, json_string(name));
    }
    return true;
}

/* New reference; empty when there is no file yet. NULL: the fault. */
static json_t *load_proofs(const ol_run *run, ol_fault *fault) {
    char path[4200];
    size_t n_bytes = 0;
    json_error_t error;
    json_t *proofs = json_object();
    ol_format(path, sizeof path, "%s/conformance/proofs.json", run->setup.paths.root);
    char *bytes = ol_read_file(path, PROOFS_MAX, &n_bytes);
    if (bytes == NULL && errno == ENOENT) {
        return proofs;
    }
    json_t *root =
        bytes == NULL ? NULL : json_loadb(bytes, n_bytes, JSON_REJECT_DUPLICATES, &error);
    free(bytes);
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const json_t *engines = json_object_get(root, "engines");
    bool ok = schema != NULL && strcmp(schema, "ol.proofs/1") == 0 && json_is_array(engines);
    if (!ok) {
        (void)ol_fault_set(fault, OL_EXIT_GOLDEN, "%s: cannot be read as ol.proofs/1", path);
    }
    for (size_t i = 0; ok && i < json_array_size(engines); i++) {
        ok = add_engine(&run->setup.catalog, proofs, json_array_get(engines, i), fault);
    }
    json_decref(root);
    if (!ok) {
        json_decref(proofs);
        proofs = NULL;
    }
    return proofs;
}

static bool is_shown(const ol_options *o, const ol_test_def *test) {
    for (size_t i = 0; i < o->n_kinds; i++) {
        if (ol_test_has_kind(test, o->kinds[i])) {
            return true;
        }
    }
    return o->n_kinds == 0;
}

static void put_joined(const char *label, const json_t *list) {
    if (json_array_size(list) == 0) {
        return;
    }
    (void)printf("    %-9s", label);
    for (size_t i = 0; i < json_array_size(list); i++) {
        (void)printf("%s%s", i == 0 ? "" : ", ", json_string_value(json_array_get(list, i)));
    }
    (void)printf("\n");
}

static void put_test(const ol_catalog *catalog, const ol_test_def *test) {
    char place[128];
    ol_clause_text(test->clause, place, sizeof place);
    (void)printf("%2zu  %s: %s\n", test->number, test->name, test->title);
    put_joined("kind", test->kinds);
    (void)printf("    %-9s%s\n    %-9s%s\n", "why", test->why, "read", place);
    put_joined("goldens", test->suites);
    put_joined("mutants", test->mutants);
    for (size_t i = 0; i < test->n_rests_on; i++) {
        (void)printf("    %-9s%s\n", i == 0 ? "rests on" : "",
                     catalog->tests[test->rests_on[i]].name);
    }
    for (size_t i = 0; i < test->n_checks; i++) {
        const ol_check_def *check = &test->checks[i];
        (void)printf("    %-9s%s%s: %s\n", i == 0 ? "checks" : "", check->name,
                     check->strict ? " (strict)" : "", check->what);
    }
}

/* The checks that no known wrong engine fails. */
static json_t *unproven_of(const ol_run *run, const json_t *proofs) {
    json_t *list = json_array();
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        const ol_test_def *test = &run->setup.catalog.tests[k];
        for (size_t i = 0; is_shown(run->options, test) && i < test->n_checks; i++) {
            if (json_object_get(proofs, test->checks[i].id) == NULL) {
                (void)json_array_append_new(list, json_string(test->checks[i].id));
            }
        }
    }
    return list;
}

static void put_unproven(const ol_run *run, const json_t *proofs) {
    json_t *list = unproven_of(run, proofs);
    for (size_t i = 0; i < json_array_size(list); i++) {
        (void)printf("%s\n", json_string_value(json_array_get(list, i)));
    }
    json_decref(list);
}

static int put_json(const ol_run *run, const json_t *proofs) {
    json_t *root = json_deep_copy(run->setup.catalog.root);
    json_t *tests = json_object_get(root, "tests");
    for (size_t k = OL_N_TESTS; k-- > 0;) {
        if (!is_shown(run->options, &run->setup.catalog.tests[k])) {
            (void)json_array_remove(tests, k);
        }
    }
    for (size_t t = 0; t < json_array_size(tests); t++) {
        json_t *checks = json_object_get(json_array_get(tests, t), "checks");
        for (size_t i = 0; i < json_array_size(checks); i++) {
            json_t *check = json_array_get(checks, i);
            json_t *by = json_object_get(proofs, json_string_value(json_object_get(check, "id")));
            (void)json_object_set_new(check, "proven_by",
                                      by == NULL ? json_array() : json_incref(by));
        }
    }
    (void)json_object_set_new(root, "unproven", unproven_of(run, proofs));
    int failed = json_dumpf(root, stdout, JSON_INDENT(2));
    (void)printf("\n");
    json_decref(root);
    return failed == 0 ? OL_EXIT_PASS : OL_EXIT_INTERNAL;
}

static int show(const ol_run *run, const json_t *proofs) {
    if (run->options->json) {
        return put_json(run, proofs);
    }
    if (run->options->unproven) {
        put_unproven(run, proofs);
        return OL_EXIT_PASS;
    }
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        if (is_shown(run->options, &run->setup.catalog.tests[k])) {
            put_test(&run->setup.catalog, &run->setup.catalog.tests[k]);
        }
    }
    return OL_EXIT_PASS;
}

int ol_cmd_tests(int argc, char **argv) {
    ol_options o;
    ol_fault fault = {0};
    ol_run run = {.options = &o};
    json_t *proofs = NULL;
    bool ok =
        ol_options_parse(&o, argc, argv, 2, OL_TAKES_TESTS, &fault) && ol_take_module(&o, &fault);
    if (ok && o.n_words > 0) {
        ok = ol_fault_set(&fault, OL_EXIT_USAGE, "%s: ol tests takes " OL_MODULE " and options",
                          o.words[0]);
    }
    ok = ok && ol_setup_catalog(&run, &o, &fault) && ol_run_select(&run, &fault);
    proofs = ok ? load_proofs(&run, &fault) : NULL;
    int code = proofs == NULL ? ol_complain(&fault) : show(&run, proofs);
    json_decref(proofs);
    ol_setup_close(&run);
    return code;
}
