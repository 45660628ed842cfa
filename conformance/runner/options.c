/* options.c: see options.h. A misspelt option gets the nearest one; an option without its value is
 * named. */
#include "options.h"

#include "views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef enum option_id {
    OPT_ROOT,
    OPT_ENGINE,
    OPT_TESTEE,
    OPT_REF_DEPS,
    OPT_ONLY,
    OPT_KIND,
    OPT_CASE,
    OPT_GOLDENS,
    OPT_JOBS,
    OPT_TIMEOUT,
    OPT_STRICT,
    OPT_FRESH,
    OPT_REPORT,
    OPT_WRAP,
    OPT_NO_HINTS,
    OPT_GRADE,
    OPT_EXPECT,
    OPT_VISIBILITY,
    OPT_JSON,
    OPT_UNPROVEN,
} option_id;

typedef enum value_need { VALUE_NONE, VALUE_NEEDED, VALUE_MAY, VALUE_NUMBER } value_need;

static const struct {
    const char *name;
    option_id id;
    value_need value; /* VALUE_MAY: after = only; VALUE_NUMBER: or a word of digits behind it */
    unsigned takes;   /* 0: every command */
} table[] = {
    {"--root", OPT_ROOT, VALUE_NEEDED, 0},
    {"--engine", OPT_ENGINE, VALUE_NEEDED, OL_TAKES_CHECK | OL_TAKES_ENGINE},
    {"--testee", OPT_TESTEE, VALUE_NEEDED, OL_TAKES_CHECK | OL_TAKES_ENGINE},
    {"--ref-deps", OPT_REF_DEPS, VALUE_MAY, OL_TAKES_CHECK | OL_TAKES_ENGINE},
    {"--only", OPT_ONLY, VALUE_NEEDED, OL_TAKES_CHECK},
    {"--kind", OPT_KIND, VALUE_NEEDED, OL_TAKES_CHECK | OL_TAKES_TESTS},
    {"--case", OPT_CASE, VALUE_NEEDED, OL_TAKES_CHECK},
    {"--goldens", OPT_GOLDENS, VALUE_NEEDED, OL_TAKES_CHECK | OL_TAKES_GOLDENS},
    {"-j", OPT_JOBS, VALUE_NEEDED, OL_TAKES_CHECK | OL_TAKES_ENGINE},
    {"--timeout", OPT_TIMEOUT, VALUE_NEEDED, OL_TAKES_CHECK | OL_TAKES_ENGINE},
    {"--strict", OPT_STRICT, VALUE_NONE, OL_TAKES_CHECK},
    {"--fresh", OPT_FRESH, VALUE_NUMBER, OL_TAKES_CHECK},
    {"--report", OPT_REPORT, VALUE_NEEDED, OL_TAKES_CHECK},
    {"--wrap", OPT_WRAP, VALUE_NEEDED, OL_TAKES_CHECK | OL_TAKES_ENGINE},
    {"--no-hints", OPT_NO_HINTS, VALUE_NONE, OL_TAKES_CHECK},
    {"--grade", OPT_GRADE, VALUE_NEEDED, OL_TAKES_CHECK},
    {"--expect", OPT_EXPECT, VALUE_NEEDED, OL_TAKES_CHECK},
    {"--visibility", OPT_VISIBILITY, VALUE_NEEDED, OL_TAKES_CHECK},
    {"--json", OPT_JSON, VALUE_NONE, OL_TAKES_TESTS},
    {"--unproven", OPT_UNPROVEN, VALUE_NONE, OL_TAKES_TESTS},
};

#define N_OPTIONS (sizeof table / sizeof *table)

static bool usage(ol_fault *fault, const char *what, const char *name) {
    return ol_fault_set(fault, OL_EXIT_USAGE, "%s: %s", name, what);
}

static bool add(const char **list, size_t *n, size_t cap, const char *value, const char *name,
                ol_fault *fault) {
    if (*n == cap) {
        return usage(fault, "given too often", name);
    }
    list[(*n)++] = value;
    return true;
}

static bool parse_number(const char *text, double low, double high, double *value) {
    char *end = NULL;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && *value >= low && *value <= high;
}

static bool set_case(ol_options *o, const char *value, ol_fault *fault) {
    const char *colon = strchr(value, ':');
    size_t n = colon == NULL ? 0 : (size_t)(colon - value);
    if (n == 0 || n >= sizeof o->case_test || colon[1] == '\0' || o->case_id != NULL) {
        return usage(fault, "needs TEST:ID, once", "--case");
    }
    memcpy(o->case_test, value, n);
    o->case_test[n] = '\0';
    o->case_id = colon + 1;
    return true;
}

static bool add_report(ol_options *o, const char *value, ol_fault *fault) {
    size_t n = strcspn(value, ":");
    const char *path = value[n] == ':' ? value + n + 1 : NULL;
    ol_format_kind format;
    if (!ol_format_parse(value, n, &format)) {
        char what[200];
        char formats[128];
        ol_format_list(formats, sizeof formats);
        ol_format(what, sizeof what, "the formats are %s, each as FORMAT or FORMAT:PATH", formats);
        return usage(fault, what, "--report");
    }
    if (o->n_reports == sizeof o->reports / sizeof *o->reports ||
        (path != NULL && path[0] == '\0')) {
        return usage(fault, "too many, or an empty path", "--report");
    }
    o->reports[o->n_reports++] = (ol_report_option){.format = format, .path = path};
    return true;
}

static bool set_visibility(ol_options *o, const char *value, ol_fault *fault) {
    static const char *const words[] = {"visible", "hidden", "after_due_date", "after_published"};
    o->visibility = value;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i], value) == 0) {
            return true;
        }
    }
    return usage(fault, "needs visible, hidden, after_due_date or after_published", "--visibility");
}

static bool set_engine(ol_options *o, ol_engine_kind kind, const char *value, ol_fault *fault) {
    struct stat info;
    if (o->engine != NULL) {
        return usage(fault, "one engine at a time", "--engine, --testee");
    }
    if (value[0] == '\0') {
        return usage(fault, "needs a path", "--engine, --testee");
    }
    if (kind == OL_ENGINE_LIBRARY && stat(value, &info) == 0 && S_ISDIR(info.st_mode)) {
        kind = OL_ENGINE_SOURCES;
    }
    o->kind = kind;
    o->engine = value;
    return true;
}

static bool set_fresh(ol_options *o, const char *value, ol_fault *fault) {
    double number = 0;
    o->fresh = true;
    o->has_seed = value[0] != '\0';
    if (o->has_seed && (strspn(value, "0123456789") != strlen(value) ||
                        !parse_number(value, 0, UINT32_MAX, &number))) {
        return usage(fault, "needs a seed of 0 to 4294967295, or none", "--fresh");
    }
    o->fresh_seed = (uint32_t)number;
    return true;
}

static bool set(ol_options *o, option_id id, const char *value, ol_fault *fault) {
    double number = 0;
    switch (id) {
    case OPT_ROOT:
        o->root = value;
        return true;
    case OPT_ENGINE:
        return set_engine(o, OL_ENGINE_LIBRARY, value, fault);
    case OPT_TESTEE:
        return set_engine(o, OL_ENGINE_TESTEE, value, fault);
    case OPT_REF_DEPS:
        o->ref_deps = value;
        return true;
    case OPT_ONLY:
        return add(o->only, &o->n_only, OL_LIST_MAX, value, "--only", fault);
    case OPT_KIND:
        return add(o->kinds, &o->n_kinds, OL_LIST_MAX, value, "--kind", fault);
    case OPT_CASE:
        return set_case(o, value, fault);
    case OPT_GOLDENS:
        return add(o->goldens, &o->n_goldens, sizeof o->goldens / sizeof *o->goldens, value,
                   "--goldens", fault);
    case OPT_JOBS:
        if (!parse_number(value, 1, 256, &number) || number != (double)(unsigned)number) {
            return usage(fault, "needs a number of 1 to 256", "-j");
        }
        o->jobs = (unsigned)number;
        return true;
    case OPT_TIMEOUT:
        return parse_number(value, 0.05, 86400, &o->timeout_s) ||
               usage(fault, "needs seconds, 0.05 to 86400", "--timeout");
    case OPT_STRICT:
        o->strict = true;
        return true;
    case OPT_FRESH:
        return set_fresh(o, value, fault);
    case OPT_REPORT:
        return add_report(o, value, fault);
    case OPT_WRAP:
        o->wrap = value;
        return value[strspn(value, " \t")] != '\0' || usage(fault, "needs a command", "--wrap");
    case OPT_NO_HINTS:
        o->no_hints = true;
        return true;
    case OPT_GRADE:
        o->grade = value;
        return true;
    case OPT_EXPECT:
        o->expect = value;
        return true;
    case OPT_VISIBILITY:
        return set_visibility(o, value, fault);
    case OPT_JSON:
        o->json = true;
        return true;
    case OPT_UNPROVEN:
        o->unproven = true;
        return true;
    }
    return false;
}

static bool unknown(const char *word, unsigned takes, ol_fault *fault) {
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        size_t distance = ol_edit_distance(word, table[i].name);
        bool fits = table[i].takes == 0 || (table[i].takes & takes) != 0;
        if (fits && distance < best_distance) {
            best = table[i].name;
            best_distance = distance;
        }
    }
    return ol_fault_set(fault, OL_EXIT_USAGE, "%s is no option of this command; did you mean %s?",
                        word, best);
}

/* The row of an option, N_OPTIONS if there is none; *value: what stands behind = or, for -jN,
 * behind the letter. */
static size_t find(const char *word, unsigned takes, const char **value) {
    size_t n = strcspn(word, "=");
    *value = word[n] == '=' ? word + n + 1 : NULL;
    if (strncmp(word, "-j", 2) == 0 && word[2] != '\0') {
        *value = word + 2;
        n = 2;
    }
    for (size_t i = 0; i < N_OPTIONS; i++) {
        bool fits = table[i].takes == 0 || (table[i].takes & takes) != 0;
        if (fits && strlen(table[i].name) == n && strncmp(table[i].name, word, n) == 0) {
            return i;
        }
    }
    return N_OPTIONS;
}

bool ol_options_parse(ol_options *o, int argc, char **argv, int first, unsigned takes,
                      ol_fault *fault) {
    *o = (ol_options){0};
    for (int i = first; i < argc; i++) {
        const char *word = argv[i];
        const char *value = NULL;
        if (word[0] != '-' || word[1] == '\0') {
            if (!add(o->words, &o->n_words, sizeof o->words / sizeof *o->words, word, "arguments",
                     fault)) {
                return false;
            }
            continue;
        }
        size_t row = find(word, takes, &value);
        if (row == N_OPTIONS) {
            return unknown(word, takes, fault);
        }
        if (table[row].value == VALUE_NONE && value != NULL) {
            return usage(fault, "takes no value", table[row].name);
        }
        if (table[row].value == VALUE_NEEDED && value == NULL) {
            if (i + 1 == argc) {
                return usage(fault, "needs a value", table[row].name);
            }
            value = argv[++i];
        }
        bool may_follow = table[row].value == VALUE_NUMBER && value == NULL && i + 1 < argc;
        if (may_follow && argv[i + 1][0] != '\0' &&
            strspn(argv[i + 1], "0123456789") == strlen(argv[i + 1])) {
            value = argv[++i];
        }
        if (!set(o, table[row].id, value == NULL ? "" : value, fault)) {
            return false;
        }
    }
    return true;
}

/* In single quotes where a shell would see more than a word. */
static void add_quoted(char *text, size_t cap, const char *word) {
    size_t len = strlen(text);
    bool plain = word[0] != '\0' && strpbrk(word, " \t\n'\"\\$`*?[]{}()<>|&;#~!") == NULL;
    if (plain) {
        ol_format(text + len, cap - len, "%s", word);
        return;
    }
    ol_format(text + len, cap - len, "'");
    for (const char *at = word; *at != '\0'; at++) {
        len = strlen(text);
        ol_format(text + len, cap - len, *at == '\'' ? "'\\''" : "%c", *at);
    }
    len = strlen(text);
    ol_format(text + len, cap - len, "'");
}

static void add_option(char *text, size_t cap, const char *name, const char *value) {
    size_t len = strlen(text);
    ol_format(text + len, cap - len, " %s ", name);
    add_quoted(text, cap, value);
}

void ol_options_engine_text(const ol_options *o, char *text, size_t cap) {
    text[0] = '\0';
    if (o->root != NULL) {
        add_option(text, cap, "--root", o->root);
    }
    if (o->engine != NULL) {
        add_option(text, cap, o->kind == OL_ENGINE_TESTEE ? "--testee" : "--engine", o->engine);
    }
    if (o->ref_deps != NULL) {
        size_t len = strlen(text);
        ol_format(text + len, cap - len, o->ref_deps[0] == '\0' ? " --ref-deps" : " --ref-deps=%s",
                  o->ref_deps);
    }
    for (size_t i = 0; i < o->n_goldens; i++) {
        add_option(text, cap, "--goldens", o->goldens[i]);
    }
    size_t len = strlen(text);
    ol_format(text + len, cap - len, o->strict ? " --strict" : "");
    len = strlen(text);
    if (o->fresh) {
        ol_format(text + len, cap - len, " --fresh %u", (unsigned)o->fresh_seed);
    }
}
