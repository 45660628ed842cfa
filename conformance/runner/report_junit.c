/* report_junit.c: the log as JUnit XML in the dialect that Jenkins and its relatives read.
 *
 * One suite for each module. A value that is wrong (fail, refused-wrong) is a <failure>, every
 * other class an <error> with its name as type. Never <skipped>: a graded test cannot be skipped.
 * Text of an engine is inert: what XML 1.0 does not know becomes U+FFFD. */
#include "report.h"

#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static void put_escaped(FILE *to, const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        switch (*at) {
        case '&':
            (void)fputs("&amp;", to);
            break;
        case '<':
            (void)fputs("&lt;", to);
            break;
        case '>':
            (void)fputs("&gt;", to);
            break;
        case '"':
            (void)fputs("&quot;", to);
            break;
        case '\n':
            (void)fputs("&#10;", to);
            break;
        case '\t':
            (void)fputs("&#9;", to);
            break;
        case 0xef:
            /* U+FFFE and U+FFFF are no characters of XML. */
            if (at[1] == 0xbf && (at[2] == 0xbe || at[2] == 0xbf)) {
                (void)fputs("\xef\xbf\xbd", to);
                at += 2;
            } else {
                (void)fputc(*at, to);
            }
            break;
        default:
            if (*at < 0x20) {
                (void)fputs("\xef\xbf\xbd", to);
            } else {
                (void)fputc(*at, to);
            }
        }
    }
}

static void put_attribute(FILE *to, const char *name, const char *text) {
    (void)fprintf(to, " %s=\"", name);
    put_escaped(to, text);
    (void)fputc('"', to);
}

static void put_property(FILE *to, const char *name, const char *text) {
    (void)fputs("        <property", to);
    put_attribute(to, "name", name);
    put_attribute(to, "value", text);
    (void)fputs("/>\n", to);
}

typedef struct counts {
    int tests;
    int failures;
    int errors;
    double seconds;
} counts;

static bool is_failure(const char *cls) {
    return strcmp(cls, "fail") == 0 || strcmp(cls, "refused-wrong") == 0;
}

static bool is_of_module(const ol_run *run, size_t k, const char *module) {
    return run->selected[k] &&
           (module == NULL || strcmp(run->setup.catalog.tests[k].module, module) == 0);
}

static counts count(const ol_run *run, const char *module) {
    counts c = {0};
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        if (!is_of_module(run, k, module)) {
            continue;
        }
        const char *cls = run->records[k] == NULL ? "no-result" : text_of(run->records[k], "class");
        c.tests++;
        c.failures += is_failure(cls) ? 1 : 0;
        c.errors += !is_failure(cls) && strcmp(cls, "pass") != 0 ? 1 : 0;
        c.seconds += (double)json_integer_value(json_object_get(run->records[k], "wall_ms")) / 1000;
    }
    return c;
}

static void put_counts(FILE *to, const counts *c) {
    (void)fprintf(to, " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"0\" time=\"%.3f\"",
                  c->tests, c->failures, c->errors, c->seconds);
}

static void put_output(FILE *to, const char *element, const char *text) {
    if (text[0] != '\0') {
        (void)fprintf(to, "      <%s>", element);
        put_escaped(to, text);
        (void)fprintf(to, "</%s>\n", element);
    }
}

static void put_fault(FILE *to, const json_t *record, const char *cls) {
    const json_t *cause = json_object_get(record, "cause");
    const char *element = is_failure(cls) ? "failure" : "error";
    (void)fprintf(to, "      <%s", element);
    put_attribute(to, "type", strcmp(cls, "harness-error") == 0 ? "harness" : cls);
    put_attribute(to, "message", text_of(cause, "rationale"));
    (void)fputc('>', to);
    put_escaped(to, text_of(cause, "rationale"));
    if (json_object_get(cause, "check") != NULL) {
        put_escaped(to, "\ncheck: ");
        put_escaped(to, text_of(cause, "check"));
    }
    const char *like = text_of(json_object_get(cause, "mutant_like"), "text");
    if (like[0] != '\0') {
        put_escaped(to, "\nlooks like: ");
        put_escaped(to, like);
    }
    if (json_object_get(cause, "clause") != NULL) {
        put_escaped(to, "\nclause: ");
        put_escaped(to, text_of(cause, "clause"));
        put_escaped(to, "\npitfall: ");
        put_escaped(to, text_of(cause, "pitfall"));
    }
    put_escaped(to, "\nreplay: ");
    put_escaped(to, text_of(record, "replay"));
    (void)fprintf(to, "</%s>\n", element);
    put_output(to, "system-out", text_of(record, "stdout_tail"));
    put_output(to, "system-err", text_of(record, "stderr_tail"));
}

static void put_case(FILE *to, const ol_run *run, size_t k) {
    const ol_test_def *test = &run->setup.catalog.tests[k];
    const json_t *record = run->records[k];
    const char *cls = record == NULL ? "no-result" : text_of(record, "class");
    char classname[128];
    ol_format(classname, sizeof classname, OL_MODULE ".%s", test->module);
    (void)fputs("    <testcase", to);
    put_attribute(to, "name", test->name);
    put_attribute(to, "classname", classname);
    (void)fprintf(to, " time=\"%.3f\">\n",
                  (double)json_integer_value(json_object_get(record, "wall_ms")) / 1000);
    (void)fputs("      <properties>\n", to);
    char *kinds = json_dumps(test->kinds, 0);
    put_property(to, "kinds", kinds == NULL ? "" : kinds);
    free(kinds);
    put_property(to, "class", cls);
    (void)fputs("      </properties>\n", to);
    if (record == NULL) {
        (void)fputs("      <error", to);
        put_attribute(to, "type", run->fault.exit_code == 0 ? "no-result" : "harness");
        put_attribute(to, "message",
                      run->fault.exit_code == 0 ? "the run is not finished" : run->fault.text);
        (void)fputs("/>\n", to);
    } else if (strcmp(cls, "pass") != 0) {
        put_fault(to, record, cls);
    }
    (void)fputs("    </testcase>\n", to);
}

static void put_suite(FILE *to, const ol_run *run, const char *module) {
    counts c = count(run, module);
    if (c.tests == 0) {
        return;
    }
    char name[128];
    ol_format(name, sizeof name, OL_MODULE ".%s", module);
    (void)fputs("  <testsuite", to);
    put_attribute(to, "name", name);
    put_counts(to, &c);
    put_attribute(to, "timestamp", text_of(run->header, "started"));
    (void)fputs(">\n    <properties>\n", to);
    put_property(to, "harness", OL_HARNESS_NAME " " OL_HARNESS_VERSION);
    put_property(to, "catalog_sha256", run->setup.catalog.sha256);
    put_property(to, "engine_sha256", run->setup.engine.sha256);
    for (size_t s = 0; s < run->setup.n_sources; s++) {
        put_property(to, "goldens_sha256", run->setup.sources[s].sha256);
    }
    put_property(to, "sandbox", text_of(json_object_get(run->header, "mode"), "sandbox"));
    const char *seed = text_of(json_object_get(run->header, "mode"), "fresh_seed");
    if (seed[0] != '\0') {
        put_property(to, "fresh_seed", seed);
    }
    bool complete = json_is_true(json_object_get(json_object_get(run->header, "mode"), "complete"));
    put_property(to, "complete", complete ? "true" : "false");
    if (run->setup.engine.borrowed[0] != '\0') {
        put_property(to, "ref_deps", run->setup.engine.borrowed);
    }
    (void)fputs("    </properties>\n", to);
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        if (is_of_module(run, k, module)) {
            put_case(to, run, k);
        }
    }
    (void)fputs("  </testsuite>\n", to);
}

/* A module's suite is written where its first test stands. */
static bool is_first_of_module(const ol_run *run, size_t k) {
    for (size_t i = 0; i < k; i++) {
        if (strcmp(run->setup.catalog.tests[i].module, run->setup.catalog.tests[k].module) == 0) {
            return false;
        }
    }
    return true;
}

char *ol_junit_make(const ol_run *run, bool stub, size_t *n_bytes) {
    char *text = NULL;
    FILE *to = open_memstream(&text, n_bytes);
    if (to == NULL) {
        return NULL;
    }
    counts c = count(run, NULL);
    (void)fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites", to);
    put_attribute(to, "name",
                  stub ? "ol check " OL_MODULE " (not finished)" : "ol check " OL_MODULE);
    put_counts(to, &c);
    put_attribute(to, "timestamp", text_of(run->header, "started"));
    (void)fputs(">\n", to);
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        if (is_first_of_module(run, k)) {
            put_suite(to, run, run->setup.catalog.tests[k].module);
        }
    }
    (void)fputs("</testsuites>\n", to);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
