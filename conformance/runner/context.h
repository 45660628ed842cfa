/* context.h: what stands behind test.h: one test while it runs in its worker process. Private to
 * the runner.
 *
 * The worker is a fork of the main process, so the tables of the run are there without being sent.
 * What the worker finds goes back as one JSON object (record.c). */
#ifndef OL_CONTEXT_H
#define OL_CONTEXT_H

#include "catalog.h"
#include "child.h"
#include "compare.h"
#include "engine.h"
#include "source.h"
#include "test.h"

/* A run: the same for all its tests. */
typedef struct ol_setup {
    ol_catalog catalog;
    ol_paths paths;
    ol_sandbox sandbox;
    ol_limits limits;
    ol_source *sources; /* the first is the published one */
    size_t n_sources;
    ol_engine engine;
    ol_engine
        reference; /* the built-in engine, for the CPU baseline; argv[0] NULL when there is none */
    bool strict;
    const char *case_id; /* --case; NULL for all */
    uint64_t draw_seed;  /* moves the judge's own draws; 0 but with --fresh */
} ol_setup;

typedef struct ol_check_state {
    uint64_t n_done;
    uint64_t n_failed;
    ol_class cls;  /* of the first failure */
    json_t *first; /* the first failure in full; owned */
} ol_check_state;

typedef struct ol_case_state {
    const char *id;
    const char *file;     /* "" for a case that is of no golden */
    const ol_source *src; /* NULL then */
    uint64_t n_failed;
} ol_case_state;

typedef struct ol_suite {
    const char *suite;
    ol_case *cases;
    size_t n_cases;
    struct ol_suite *next;
} ol_suite;

typedef struct ol_block ol_block; /* of the test's memory, memory.c */

/* The judge's own PCG32; nothing of the engine's. */
typedef struct ol_draw {
    uint64_t state;
    uint64_t inc;
} ol_draw;

struct ol_test {
    const ol_setup *setup;
    const ol_test_def *def;
    size_t index; /* of def */
    ol_child child;
    unsigned n_starts;
    char dir[4096]; /* of the child */
    int dir_fd;
    ol_draw draw;

    ol_block *memory; /* a stack, newest first */
    uint64_t memory_mark;
    ol_suite *suites;
    ol_check_state *checks; /* [def->n_checks] */
    json_t *numeric; /* worst ratio seen of each check with a tolerance; check name -> number */
    ol_case_state *cases;
    size_t n_cases;
    size_t cases_cap;
    size_t current; /* index of the current case, SIZE_MAX before the first */
    size_t n_left_out;
    char nearest_case[128]; /* to the one of --case, "" for none */
    size_t nearest_distance;
    json_t *violations; /* array of texts */
    char wrong[512];    /* what the testee says is wrong with an answer, until a check tells */

    json_t *hello;   /* of the last start; owned */
    bool has_failed; /* a check did not hold; the first one's class is in failed_class */
    ol_class failed_class;
    const char *failed_check;
    bool is_complete; /* the test function returned */
    ol_fault fault;   /* the judge's or a golden's */
};

/* Leave the test at once; why is in t->fault or t->child.event. */
OL_NORETURN void ol_leave(ol_test *t);
OL_NORETURN void ol_leave_fault(ol_test *t, int exit_code, const char *fmt, ...) OL_FORMAT(3, 4);

/* memory.c: JSON references that end with the test. */
const json_t *ol_keep(ol_test *t, json_t *value); /* steals; a NULL is out of memory and leaves */
void ol_memory_clear(ol_test *t);

/* cases.c */
void ol_cases_clear(ol_test *t);
size_t
ol_cases_of_golden(const ol_test *t); /* how many the suites of the test have in all sources */

/* files.c: the directory of the child. */
bool ol_dir_make(const ol_setup *setup, const char *path, uid_t uid, ol_fault *fault);
void ol_dir_remove(const char *path); /* with all that is in it, whatever it is */

/* client.c */
bool ol_start(ol_test *t);         /* first process and hello; false: fault or event */
void ol_stop(ol_test *t);          /* end the process, remove its directory */
json_t *ol_hello(ol_child *child); /* NULL: an event is set */
void ol_note_violations(ol_test *t, const json_t *response);

/* A JSON string of text that need not be UTF-8, since it may be cut or come from an engine: other
 * bytes become `?`. */
json_t *ol_json_text(const char *text);

/* record.c: {"stdout_tail", "stderr_tail"} of the engine's process. New reference. */
json_t *ol_printed(const ol_test *t);
/* record.c: the test line of the log, without what only the main process knows. New reference. */
json_t *ol_record(ol_test *t, uint64_t wall_ns, int cmocka_failed);

/* worker.c: does the engine load and answer? {"hello": {...}} whatever it answered, {"event":
 * {"class", "text", ...}} when no answer came, or {"fault": ...}. */
json_t *ol_run_probe(const ol_setup *setup);

/* worker.c: run one test from start to end; the record, or an object {"fault": {"exit", "text"}}.
 */
json_t *ol_run_test(const ol_setup *setup, const ol_engine *engine, size_t index);
/* In the worker process: run (OL_PROBE: the probe), write the record to a descriptor, end. */
#define OL_PROBE SIZE_MAX
OL_NORETURN void ol_worker_main(const ol_setup *setup, size_t index, int to);

#endif
