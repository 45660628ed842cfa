/* cmd_parity.c: `ol parity sampler rng`: two implementations and one file: the first draw in which
 * they part, with both bit patterns. It runs the tests that the suites belong to and shows only
 * what differs. */
#include "commands.h"

#include <stdio.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static void put_suite(const char *suite, const json_t *record) {
    const json_t *cause = json_object_get(record, "cause");
    const json_t *first = json_object_get(cause, "first_divergence");
    const json_t *cases = json_object_get(record, "cases");
    long long n = (long long)json_integer_value(json_object_get(cases, "total"));
    if (strcmp(text_of(record, "class"), "pass") == 0) {
        (void)printf("%s: identical, %lld cases\n", suite, n);
        return;
    }
    (void)printf("%s: %s\n", suite, first == NULL ? text_of(record, "class") : "DIFFERS");
    (void)printf("    first   %s\n",
                 first == NULL ? text_of(cause, "rationale") : text_of(first, "message"));
    if (text_of(first, "case")[0] != '\0') {
        (void)printf("    case    %s\n", text_of(first, "case"));
    }
    if (json_object_get(first, "index") != NULL) {
        (void)printf("    index   %lld\n    want    %s\n    got     %s\n",
                     (long long)json_integer_value(json_object_get(first, "index")),
                     text_of(first, "want"), text_of(first, "got"));
    }
    (void)printf("    replay  %s\n", text_of(record, "replay"));
}

/* Select the tests of the suites; all words are suites. */
static bool select_suites(ol_run *run, const ol_options *o, ol_fault *fault) {
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        run->selected[k] = false;
    }
    run->n_selected = 0;
    for (size_t i = 0; i < o->n_words; i++) {
        const ol_test_def *test = ol_catalog_of_suite(&run->setup.catalog, o->words[i]);
        if (test == NULL) {
            return ol_fault_set(
                fault, OL_EXIT_NOTHING,
                "there is no suite %s; parity is for sampler and rng, and takes any of "
                "f16 int4 linear logits greedy kv safetensors config",
                o->words[i]);
        }
        run->n_selected += run->selected[test->number - 1] ? 0 : 1;
        run->selected[test->number - 1] = true;
    }
    return true;
}

int ol_cmd_parity(int argc, char **argv) {
    ol_options o;
    ol_fault fault = {0};
    ol_run run = {.options = &o};
    bool ok = ol_options_parse(&o, argc, argv, 2, OL_TAKES_ENGINE | OL_TAKES_GOLDENS, &fault) &&
              ol_take_module(&o, &fault);
    if (ok && o.n_words == 0) {
        o.words[o.n_words++] = "sampler";
        o.words[o.n_words++] = "rng";
    }
    ok = ok && ol_setup_begin(&run, &o, &fault) && ol_setup_goldens(&run, &fault) &&
         select_suites(&run, &o, &fault) && ol_setup_engine(&run, &fault) &&
         ol_run_probe_engine(&run, &fault);
    if (!ok) {
        int code = ol_complain(&fault);
        ol_setup_close(&run);
        return code;
    }
    ol_run_tests(&run);
    ol_run_finish(&run);
    for (size_t i = 0; run.fault.exit_code == 0 && i < o.n_words; i++) {
        const ol_test_def *test = ol_catalog_of_suite(&run.setup.catalog, o.words[i]);
        put_suite(o.words[i], run.records[test->number - 1]);
    }
    if (run.fault.exit_code != 0) {
        (void)ol_complain(&run.fault);
    }
    int code = run.exit_code;
    ol_setup_close(&run);
    return code;
}
