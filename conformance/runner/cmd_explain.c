/* cmd_explain.c: `ol explain`: what a test, a check, a verdict class or an exit code means, and
 * where to look. */
#include "commands.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What to do next, by class; the meaning itself is in judge.c. */
static const char *const next_steps[OL_N_CLASSES] = {
    [OL_PASS] = "Nothing to do.",
    [OL_FAIL] = "Start with the first divergence: the index, both bit patterns and the case. The "
                "replay line runs just "
                "that case; the pitfall is the mistake most seen here.",
    [OL_REFUSED_WRONG] = "Look at the status that was wanted. Each refusal has a twin that differs "
                         "in the fault alone and "
                         "must be accepted, so neither refusing all nor accepting all can pass.",
    [OL_CRASH] = "Replay the case with --wrap 'gdb --args' or --wrap valgrind; the signal and the "
                 "end of stderr are in the "
                 "report.",
    [OL_TIMEOUT] = "Time spent waiting for a processor is not charged, sleeping is. Look for a "
                   "loop that does not end, a lock, "
                   "or a read that waits for input.",
    [OL_RESOURCE] = "Look for an allocation whose size comes from the input without a check, or "
                    "output in a loop.",
    [OL_NO_RESULT] = "The process ended or fell silent before its record was complete. exit() in "
                     "library code ends here, with "
                     "status 0 too.",
    [OL_INTEGRITY] = "The report says which rule was broken. A library has no business with exec, "
                     "fork, sockets, signals, the "
                     "rounding mode or its const inputs.",
    [OL_BLOCKED] = "Repair the test named under `blocked by` first; this one rests on it, and its "
                   "own checks may well hold "
                   "then.",
    [OL_HARNESS_ERROR] = "Please report this with the log; the engine is not to blame.",
};

static bool explain_test(const ol_catalog *catalog, const char *word) {
    const ol_test_def *test = ol_catalog_find(catalog, word);
    if (test == NULL) {
        return false;
    }
    char place[128];
    ol_clause_text(test->clause, place, sizeof place);
    (void)printf("%s: %s\n\n%s\n\nread      %s\npitfall   %s\n", test->name, test->title, test->why,
                 place, test->pitfall);
    for (size_t i = 0; i < test->n_rests_on; i++) {
        (void)printf("%-10s%s\n", i == 0 ? "rests on" : "", catalog->tests[test->rests_on[i]].name);
    }
    (void)printf("run       ol check " OL_MODULE " --only %s\n\n", test->name);
    for (size_t i = 0; i < test->n_checks; i++) {
        (void)printf("  %s%s\n      %s\n", test->checks[i].name,
                     test->checks[i].strict ? " (with --strict)" : "", test->checks[i].what);
    }
    return true;
}

static bool explain_check(const ol_catalog *catalog, const char *word) {
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        const ol_test_def *test = &catalog->tests[k];
        for (size_t i = 0; i < test->n_checks; i++) {
            if (strcmp(test->checks[i].id, word) == 0) {
                char place[128];
                ol_clause_text(test->clause, place, sizeof place);
                (void)printf("%s%s\n\n%s\n\nread      %s\npitfall   %s\n", word,
                             test->checks[i].strict ? " (with --strict)" : "", test->checks[i].what,
                             place, test->pitfall);
                return true;
            }
        }
    }
    return false;
}

/* The entry of a mutant in a catalogue below the root, a new reference; NULL when it has none. */
static json_t *find_mutant(const char *root, const char *file, const char *id) {
    char path[4300];
    ol_format(path, sizeof path, "%s/%s", root, file);
    json_t *catalog = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    const json_t *list = json_object_get(catalog, "mutants");
    json_t *found = NULL;
    for (size_t i = 0; i < json_array_size(list) && found == NULL; i++) {
        json_t *entry = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(entry, "id"));
        found = name != NULL && strcmp(name, id) == 0 ? json_incref(entry) : NULL;
    }
    json_decref(catalog);
    return found;
}

static void put_text(const json_t *entry, const char *key, const char *label) {
    const char *text = json_string_value(json_object_get(entry, key));
    if (text != NULL) {
        (void)printf("%-10s%s\n", label, text);
    }
}

static bool explain_mutant(const char *root, const char *word) {
    json_t *entry = find_mutant(root, "mutants/catalog.json", word);
    entry = entry != NULL ? entry : find_mutant(root, "mutants/probes/catalog.json", word);
    if (entry == NULL) {
        return false;
    }
    const char *title = json_string_value(json_object_get(entry, "title"));
    const char *clause = json_string_value(json_object_get(entry, "clause"));
    (void)printf("%s: a wrong engine on purpose: %s\n\n", word, title == NULL ? "" : title);
    put_text(entry, "symptom", "symptom");
    put_text(entry, "pitfall", "right is");
    put_text(entry, "killer", "caught by");
    const json_t *checks = json_object_get(entry, "checks");
    for (size_t i = 0; i < json_array_size(checks); i++) {
        (void)printf("%-10s%s\n", i == 0 ? "checks" : "",
                     json_string_value(json_array_get(checks, i)));
    }
    if (clause != NULL) {
        char place[128];
        ol_clause_text(clause, place, sizeof place);
        (void)printf("%-10s%s\n", "read", place);
    }
    put_text(entry, "file", "in");
    json_decref(entry);
    return true;
}

static bool explain_class(const char *word) {
    ol_class cls = OL_PASS;
    if (!ol_class_parse(word, &cls)) {
        return false;
    }
    (void)printf("class %s: %s.\n\n%s\n", word, ol_class_meaning(cls), next_steps[cls]);
    return true;
}

static bool explain_exit(const char *word) {
    char *end = NULL;
    long code = strtol(word, &end, 10);
    const char *meaning =
        isdigit((unsigned char)word[0]) && *end == '\0' ? ol_exit_meaning((int)code) : NULL;
    if (meaning != NULL) {
        (void)printf("exit code %ld: %s\n", code, meaning);
    }
    return meaning != NULL;
}

static bool explain_fresh(const char *word) {
    if (strcmp(word, "fresh") != 0 && strcmp(word, "--fresh") != 0) {
        return false;
    }
    (void)printf(
        "--fresh [SEED]: all inputs are drawn anew, in place of the published goldens: seeds, "
        "prompts, models of\nother shapes and weights, the spelling of files.\n\n"
        "What is expected of the models comes from the reference engine, in a process of its own; "
        "a drawing on which\na second engine or a float64 forward differs by more than a quarter "
        "of the bound is drawn again. All else\ncomes from the generators in goldens/gen. An "
        "engine that knows the published answers by heart passes without\n--fresh and fails "
        "with it.\n\n"
        "The seed is printed and stands in the log and in every replay line; the same seed gives "
        "the same run, and\nwith --only or --case the part of it that is asked for. Test 7 keeps "
        "its seeds (see "
        "its page), and so do\nworked examples.\n"
        "read      conformance/spec/tests.md, fresh\n");
    return true;
}

static bool explain(const ol_catalog *catalog, const char *root, const char *word) {
    return explain_test(catalog, word) || explain_check(catalog, word) || explain_class(word) ||
           explain_exit(word) || explain_mutant(root, word) || explain_fresh(word);
}

static void explain_all_exits(void) {
    static const int codes[] = {0, 1, 2, 3, 4, 5, 6, 7, 70};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        (void)printf("%3d  %s\n", codes[i], ol_exit_meaning(codes[i]));
    }
    (void)printf("\nWhen several apply, the first of 70, 5, 2, 4, 3, 7, 6, 1 counts.\n");
}

int ol_cmd_explain(int argc, char **argv) {
    ol_options o;
    ol_fault fault = {0};
    ol_run run = {.options = &o};
    bool ok = ol_options_parse(&o, argc, argv, 2, 0, &fault) && ol_take_module(&o, &fault);
    if (ok && o.n_words != 1) {
        ok = ol_fault_set(&fault, OL_EXIT_USAGE,
                          "ol explain takes one word: a test, a check, a mutant, a class, an exit "
                          "code, EXIT for all codes, or fresh");
    }
    ok = ok && ol_setup_catalog(&run, &o, &fault);
    if (ok && strcmp(o.words[0], "EXIT") == 0) {
        explain_all_exits();
    } else if (ok && !explain(&run.setup.catalog, run.setup.paths.root, o.words[0])) {
        char near[512];
        ol_catalog_nearest(&run.setup.catalog, o.words[0], near, sizeof near);
        ok = ol_fault_set(&fault, OL_EXIT_NOTHING,
                          "%s is nothing that can be explained; the nearest tests are %s",
                          o.words[0], near);
    }
    int code = ok ? OL_EXIT_PASS : ol_complain(&fault);
    ol_setup_close(&run);
    return code;
}
