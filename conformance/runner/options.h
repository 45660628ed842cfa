/* options.h: the command line of `ol check` and of the commands that share its options. */
#ifndef OL_OPTIONS_H
#define OL_OPTIONS_H

#include "engine.h"

#define OL_LIST_MAX 64

typedef enum ol_format_kind {
    OL_REPORT_TEXT = 0,
    OL_REPORT_JSONL = 1,
    OL_REPORT_JUNIT = 2,
    /* From here on made by conformance/report/. */
    OL_REPORT_TAP = 3,
    OL_REPORT_GRADESCOPE = 4,
    OL_REPORT_EXERCISM = 5,
    OL_REPORT_PRAIRIELEARN = 6,
    OL_REPORT_GITHUB = 7,
    OL_REPORT_MD = 8,
    OL_REPORT_HTML = 9,
    OL_N_FORMATS = 10
} ol_format_kind;

typedef struct ol_report_option {
    ol_format_kind format;
    const char *path; /* NULL: standard output */
} ol_report_option;

typedef struct ol_options {
    const char *root;
    ol_engine_kind kind;
    const char *engine; /* NULL: the built-in one */
    const char *only[OL_LIST_MAX];
    size_t n_only;
    const char *kinds[OL_LIST_MAX];
    size_t n_kinds;
    const char *goldens[8];
    size_t n_goldens;
    char case_test[128]; /* of --case TEST:ID */
    const char *case_id;
    unsigned jobs;    /* 0: one for each processor */
    double timeout_s; /* 0: the default */
    bool strict;
    bool fresh;          /* --fresh */
    bool has_seed;       /* --fresh SEED */
    uint32_t fresh_seed; /* given or, by then, drawn */
    const char *wrap;
    bool no_hints;
    const char *grade;      /* a policy; NULL for none */
    const char *expect;     /* a list of known failures; NULL for none */
    const char *visibility; /* for graders that hide results; NULL for their own default */
    ol_report_option reports[16];
    size_t n_reports;
    const char *ref_deps;  /* NULL: not asked; "": every missing module; else a list */
    bool json;             /* ol tests --json */
    bool unproven;         /* ol tests --unproven */
    const char *words[16]; /* what is no option */
    size_t n_words;
} ol_options;

/* Options that a command takes, as a set. */
enum {
    OL_TAKES_CHECK = 1,   /* engine, selection, limits, reports */
    OL_TAKES_TESTS = 2,   /* --json --unproven --kind */
    OL_TAKES_GOLDENS = 4, /* --goldens */
    OL_TAKES_ENGINE = 8,  /* --engine --testee --wrap --timeout -j */
};

/* Read argv[first..]; every word that is no option is kept. false: usage fault. --root is always
 * taken. */
bool ol_options_parse(ol_options *o, int argc, char **argv, int first, unsigned takes,
                      ol_fault *fault);

/* The options that name the engine and its treatment, as they would be typed again; for replay
 * lines. */
void ol_options_engine_text(const ol_options *o, char *text, size_t cap);

#endif
