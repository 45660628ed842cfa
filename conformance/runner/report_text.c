/* report_text.c: the log for people: a line for each test as it ends, then a table, the failures,
 * the verdict.
 *
 * On a terminal a live line shows what is running. A failure says what was asked, what came and
 * what was wanted with both bit patterns, where it stands, how far off it is, where to read, and
 * how to replay just that case. */
#include "report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static long long int_of(const json_t *object, const char *key) {
    return (long long)json_integer_value(json_object_get(object, key));
}

static double seconds_of(const json_t *record) {
    return (double)int_of(record, "wall_ms") / 1000;
}

static void count_checks(const json_t *record, size_t *n_held, size_t *n_all) {
    const json_t *checks = json_object_get(record, "checks");
    *n_all = json_array_size(checks);
    *n_held = 0;
    for (size_t i = 0; i < *n_all; i++) {
        *n_held += strcmp(text_of(json_array_get(checks, i), "state"), "held") == 0 ? 1 : 0;
    }
}

static void kinds_text(const json_t *kinds, char *text, size_t cap) {
    text[0] = '\0';
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        size_t len = strlen(text);
        ol_format(text + len, cap - len, "%s%s", i == 0 ? "" : ", ",
                  json_string_value(json_array_get(kinds, i)));
    }
}

/* ------------------------------------------------------------------ while it runs */

static void put_engine(const ol_run *run, FILE *to) {
    const ol_engine *engine = &run->setup.engine;
    (void)fprintf(to, "engine    %s", engine->given[0] == '\0' ? "built-in" : engine->given);
    if (engine->name[0] != '\0') {
        (void)fprintf(to, ": %s %s (%s), ABI %llu.%llu", engine->name, engine->version,
                      engine->language, (unsigned long long)(engine->abi >> 16),
                      (unsigned long long)(engine->abi & 0xffff));
    }
    (void)fprintf(to, ", sha256 %.12s%s\n", engine->sha256,
                  engine->sanitized ? ", with sanitizers" : "");
    if (engine->borrowed[0] != '\0') {
        (void)fprintf(to, "borrowed  %s from the reference\n", engine->borrowed);
    }
}

static void put_fresh(const ol_run *run, FILE *to) {
    if (run->fresh == NULL) {
        return;
    }
    (void)fprintf(to, "fresh     seed %u: inputs drawn anew, manifest %.12s",
                  (unsigned)run->options->fresh_seed, run->setup.sources[0].sha256);
    if (json_object_get(run->fresh, "reference") == NULL) {
        (void)fprintf(to, "; no model was needed\n");
        return;
    }
    bool second = json_is_true(json_object_get(run->fresh, "second"));
    (void)fprintf(to,
                  "; what is expected of models came from the\n          reference engine (%s); %s "
                  "within %.3f bounds of it\n",
                  text_of(run->fresh, "reference"),
                  second ? "a second engine and a float64 forward are"
                         : "without a second engine; a float64 forward is",
                  json_number_value(json_object_get(run->fresh, "apart")));
}

void ol_text_begin(const ol_run *run, FILE *to) {
    const ol_setup *setup = &run->setup;
    char have[256];
    char lack[512];
    ol_sandbox_text(&setup->sandbox, have, sizeof have, lack, sizeof lack);
    (void)fprintf(to, "ol " OL_HARNESS_VERSION " check " OL_MODULE "\n");
    put_engine(run, to);
    put_fresh(run, to);
    for (size_t s = run->fresh == NULL ? 0 : 1; s < setup->n_sources; s++) {
        (void)fprintf(to, "goldens   %s: %zu files, manifest %.12s\n", setup->sources[s].dir,
                      setup->sources[s].n_paths, setup->sources[s].sha256);
    }
    (void)fprintf(to, "sandbox   %s%s\n", have,
                  setup->engine.interactive ? "; for a debugger neither seccomp nor landlock"
                  : setup->engine.may_exec  ? "; exec is allowed to this engine"
                                            : "");
    if (lack[0] != '\0') {
        (void)fprintf(to, "          lacks %s\n", lack);
    }
    (void)fprintf(to, "mode      %s, %zu of %d tests%s\n", setup->strict ? "strict" : "not strict",
                  run->n_selected, OL_N_TESTS,
                  run->n_selected < OL_N_TESTS || setup->case_id != NULL
                      ? ": INCOMPLETE, no grade can come of this"
                      : "");
    (void)fflush(to);
}

void ol_text_progress(FILE *to, const ol_run *run, const json_t *record, size_t n_done) {
    size_t n_held = 0;
    size_t n_all = 0;
    count_checks(record, &n_held, &n_all);
    (void)fprintf(to, "[%2zu/%zu] %-13s %-46s %4zu/%zu checks %8.2f s\n", n_done, run->n_selected,
                  text_of(record, "class"), text_of(record, "name"), n_held, n_all,
                  seconds_of(record));
    (void)fflush(to);
}

/* ------------------------------------------------------------------ the table */

static void put_table(const ol_run *run, FILE *to) {
    (void)fprintf(to, "\n%-46s %-20s %-13s %8s %12s %9s\n", "test", "kinds", "class", "checks",
                  "cases", "time");
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        const json_t *record = run->records[k];
        if (record == NULL) {
            continue;
        }
        char kinds[64];
        char checks[32];
        char cases[48];
        size_t n_held = 0;
        size_t n_all = 0;
        const json_t *c = json_object_get(record, "cases");
        kinds_text(json_object_get(record, "kinds"), kinds, sizeof kinds);
        count_checks(record, &n_held, &n_all);
        ol_format(checks, sizeof checks, "%zu/%zu", n_held, n_all);
        ol_format(cases, sizeof cases, "%lld/%lld", int_of(c, "passed"), int_of(c, "total"));
        (void)fprintf(to, "%-46s %-20s %-13s %8s %12s %7.2f s\n", text_of(record, "name"), kinds,
                      text_of(record, "class"), checks, cases, seconds_of(record));
    }
}

/* ------------------------------------------------------------------ failures */

/* Text with every further line indented like the first. */
static void put_indented(FILE *to, const char *label, const char *text) {
    (void)fprintf(to, "    %-10s", label);
    for (const char *at = text; *at != '\0'; at++) {
        (void)fputc(*at, to);
        if (*at == '\n' && at[1] != '\0') {
            (void)fprintf(to, "    %-10s", "");
        }
    }
    if (text[0] == '\0' || text[strlen(text) - 1] != '\n') {
        (void)fputc('\n', to);
    }
}

static void put_case_line(FILE *to, const json_t *first) {
    const char *id = text_of(first, "case");
    if (id[0] != '\0') {
        const char *file = text_of(first, "file");
        (void)fprintf(to, "    %-10s%s%s%s%s\n", "case", id, file[0] == '\0' ? "" : " (", file,
                      file[0] == '\0' ? "" : ")");
    }
}

static void put_numbers(FILE *to, const json_t *first) {
    if (json_object_get(first, "index") == NULL) {
        return;
    }
    (void)fprintf(to, "    %-10s%lld of %lld (first of %lld that differ)\n", "index",
                  int_of(first, "index"), int_of(first, "n_want"), int_of(first, "n_over"));
    (void)fprintf(to, "    %-10s%s\n    %-10s%s\n", "want", text_of(first, "want"), "got",
                  text_of(first, "got"));
    const json_t *ulp = json_object_get(first, "ulp");
    if (ulp != NULL) {
        (void)fprintf(to, "    %-10s%.0f ulp\n", "apart", json_real_value(ulp));
    }
    const json_t *ratio = json_object_get(first, "ratio");
    if (ratio != NULL) {
        (void)fprintf(to,
                      "    %-10s%.4g of what is allowed, at the worst place (allowed here: %.3g)\n",
                      "ratio", json_number_value(ratio),
                      json_number_value(json_object_get(first, "allowed")));
    }
}

static void put_other_checks(FILE *to, const json_t *record, const char *shown) {
    const json_t *checks = json_object_get(record, "checks");
    for (size_t i = 0; i < json_array_size(checks); i++) {
        const json_t *check = json_array_get(checks, i);
        const char *id = text_of(check, "id");
        if (strcmp(text_of(check, "state"), "failed") == 0 && strcmp(id, shown) != 0) {
            const char *dot = strchr(id, '.');
            (void)fprintf(to, "    %-10s%s: %s\n", "also", dot == NULL ? id : dot + 1,
                          text_of(json_object_get(check, "first"), "message"));
        }
    }
}

static void put_tails(FILE *to, const json_t *record) {
    if (text_of(record, "stdout_tail")[0] != '\0') {
        put_indented(to, "stdout", text_of(record, "stdout_tail"));
    }
    if (text_of(record, "stderr_tail")[0] != '\0') {
        put_indented(to, "stderr", text_of(record, "stderr_tail"));
    }
}

static void put_blockers(FILE *to, const json_t *record) {
    const json_t *blockers = json_object_get(record, "blocked_by");
    for (size_t i = 0; i < json_array_size(blockers); i++) {
        (void)fprintf(to, "    %-10s%s\n", i == 0 ? "rests on" : "",
                      json_string_value(json_array_get(blockers, i)));
    }
}

static void put_failure(const ol_run *run, FILE *to, const json_t *record) {
    const json_t *cause = json_object_get(record, "cause");
    const json_t *first = json_object_get(cause, "first_divergence");
    char kinds[64];
    kinds_text(json_object_get(record, "kinds"), kinds, sizeof kinds);
    (void)fprintf(to, "\n%s  %s  (%s)\n", text_of(record, "class"), text_of(record, "name"), kinds);
    put_blockers(to, record);
    put_indented(to, "because", text_of(cause, "rationale"));
    if (first != NULL) {
        (void)fprintf(to, "    %-10s%s\n", "check", text_of(cause, "check"));
        put_indented(to, "rule", text_of(cause, "what"));
        if (strcmp(text_of(first, "message"), text_of(cause, "rationale")) != 0) {
            put_indented(to, "first", text_of(first, "message"));
        }
        put_case_line(to, first);
        put_numbers(to, first);
        put_other_checks(to, record, text_of(cause, "check"));
    } else if (text_of(cause, "case")[0] != '\0') {
        (void)fprintf(to, "    %-10s%s\n", "case", text_of(cause, "case"));
    }
    put_tails(to, record);
    const char *like = text_of(json_object_get(cause, "mutant_like"), "text");
    if (like[0] != '\0') {
        (void)fprintf(to, "    looks like %s\n", like);
    }
    if (!run->options->no_hints) {
        char place[128];
        ol_clause_text(text_of(cause, "clause"), place, sizeof place);
        put_indented(to, "read", place);
        put_indented(to, "pitfall", text_of(cause, "pitfall"));
    }
    (void)fprintf(to, "    %-10s%s\n", "replay", text_of(record, "replay"));
}

/* ------------------------------------------------------------------ the end */

/* What --grade and --expect found. */
static void put_rules(const ol_run *run, FILE *to) {
    const json_t *grade = json_object_get(run->footer, "grade");
    const json_t *expect = json_object_get(run->footer, "expect");
    const json_t *surprises = json_object_get(expect, "surprises");
    if (json_is_object(grade)) {
        (void)fprintf(
            to, "grade     %.6g of %.6g points%s\n",
            json_number_value(json_object_get(grade, "points")),
            json_number_value(json_object_get(grade, "max_points")),
            json_is_true(json_object_get(grade, "reached")) ? "" : ": the minimum is not reached");
    }
    for (size_t i = 0; i < json_array_size(surprises); i++) {
        (void)fprintf(to, "expected  %s\n", json_string_value(json_array_get(surprises, i)));
    }
}

/* The exit code in the words of this run: "every selected test" may be all of them or not. */
static const char *verdict_meaning(const ol_run *run) {
    if (run->exit_code != OL_EXIT_PASS) {
        return ol_exit_meaning(run->exit_code);
    }
    return json_is_true(json_object_get(run->footer, "complete"))
               ? "every test passed"
               : "every selected test passed; a part of the tests is no grade";
}

static void put_verdict(const ol_run *run, FILE *to) {
    (void)fprintf(to, "\n");
    bool any = false;
    const json_t *totals = json_object_get(run->footer, "totals");
    for (int c = 0; c < OL_N_CLASSES; c++) {
        long long n = int_of(totals, ol_class_name((ol_class)c));
        if (n > 0) {
            (void)fprintf(to, "%s%lld %s", any ? ", " : "", n, ol_class_name((ol_class)c));
            any = true;
        }
    }
    (void)fprintf(to, "%s%lld of %d tests ran in %.1f s%s\n", any ? "; " : "",
                  int_of(run->footer, "executed"), OL_N_TESTS,
                  (double)int_of(run->footer, "wall_ms") / 1000,
                  json_is_true(json_object_get(run->footer, "complete")) ? "" : " (INCOMPLETE)");
    if (run->fault.exit_code != 0) {
        (void)fprintf(to, "%s\n", run->fault.text);
    }
    put_rules(run, to);
    (void)fprintf(to, "verdict   %s, exit code %d: %s\n", text_of(run->footer, "verdict"),
                  run->exit_code, verdict_meaning(run));
}

/* With one cause behind all failures, one is enough. */
static void put_failures(const ol_run *run, FILE *to) {
    bool shown = false;
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        const json_t *record = run->records[k];
        if (record == NULL || strcmp(text_of(record, "class"), "pass") == 0) {
            continue;
        }
        if (run->untested && shown) {
            continue;
        }
        put_failure(run, to, record);
        shown = true;
    }
}

static void put_diagnosis(const ol_run *run, FILE *to) {
    const json_t *lines = json_object_get(json_object_get(run->footer, "diagnosis"), "lines");
    for (size_t i = 0; i < json_array_size(lines); i++) {
        (void)fprintf(to, "%s%s\n", i == 0 ? "\n" : "",
                      json_string_value(json_array_get(lines, i)));
    }
}

static void put_result(const ol_run *run, FILE *to) {
    bool any = false;
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        any = any || run->records[k] != NULL;
    }
    if (any) {
        put_table(run, to);
        put_failures(run, to);
        put_diagnosis(run, to);
    }
    put_verdict(run, to);
}

void ol_text_end(const ol_run *run, FILE *to) {
    put_result(run, to);
    (void)fflush(to);
}

char *ol_text_final(const ol_run *run, size_t *n_bytes) {
    char *text = NULL;
    FILE *to = open_memstream(&text, n_bytes);
    if (to == NULL) {
        return NULL;
    }
    ol_text_begin(run, to);
    put_result(run, to);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
