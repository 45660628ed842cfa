/* catalog.h: the 24 tests as conformance/catalog.json has them, checked and tied to the functions
 * that run them.
 *
 * A catalogue that lacks a test, has one twice, names a check twice or rests on a test that does
 * not exist is broken, and so is one whose names are not those of ol_test_entries: exit 5.
 * Everything is borrowed from the JSON value. */
#ifndef OL_CATALOG_H
#define OL_CATALOG_H

#include "judge.h"
#include "test.h"

typedef struct ol_check_def {
    const char *id;   /* "hand_example_sampling.token" */
    const char *name; /* "token" */
    const char *what;
    bool strict;
} ol_check_def;

typedef struct ol_test_def {
    size_t number; /* 1 to OL_N_TESTS, its place in the catalogue */
    const char *name;
    const json_t *kinds; /* arrays of strings */
    const json_t *suites;
    const json_t *mutants;
    const char *module;
    const char *clause;
    const char *title;
    const char *why;
    const char *pitfall;
    size_t rests_on[OL_N_TESTS]; /* indexes of tests, all before this one */
    size_t n_rests_on;
    ol_check_def *checks;
    size_t n_checks;
    ol_test_fn *run; /* NULL when there is none, see ol_catalog_load */
} ol_test_def;

typedef struct ol_catalog {
    json_t *root;
    char sha256[65];
    ol_test_def tests[OL_N_TESTS];
} ol_catalog;

/* Load and check; false with the fault. The functions of ol_test_entries are tied to the names. */
bool ol_catalog_load(ol_catalog *catalog, const char *path, ol_fault *fault);
void ol_catalog_clear(ol_catalog *catalog);

const ol_test_def *ol_catalog_find(const ol_catalog *catalog, const char *name); /* NULL if none */
/* The test that runs a suite's files; NULL if none. */
const ol_test_def *ol_catalog_of_suite(const ol_catalog *catalog, const char *suite);
const ol_check_def *ol_test_check(const ol_test_def *test, const char *name, size_t *index);
bool ol_test_has_kind(const ol_test_def *test, const char *kind);
/* "forward#batch" as "conformance/spec/forward.md, batch". */
void ol_clause_text(const char *clause, char *text, size_t cap);
/* The names nearest to a misspelt one, as "a, b or c", into text. */
void ol_catalog_nearest(const ol_catalog *catalog, const char *name, char *text, size_t cap);

#endif
