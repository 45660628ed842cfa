/* run.h: run the selected tests, each in a worker of its own, and put the log together.
 *
 * The log (ol.result/1) is the one truth; every report is a view of its three parts. */
#ifndef OL_RUN_H
#define OL_RUN_H

#include "context.h"
#include "options.h"

typedef struct ol_run {
    ol_setup setup;
    const ol_options *options;
    bool selected[OL_N_TESTS];
    size_t n_selected;
    unsigned jobs;
    uint64_t start_ns;
    uint64_t n_oom; /* processes that the kernel had ended for want of memory at the start */
    json_t *fresh;  /* what is told of --fresh; owned, NULL without */
    json_t *probe;  /* what the probe's process printed; owned, may be NULL */
    json_t *header; /* owned, from ol_run_header */
    json_t *records[OL_N_TESTS]; /* test lines of the selected tests, owned */
    json_t *footer;              /* owned, from ol_run_footer */
    int exit_code;
    ol_fault fault; /* ended the run: exit 3, 5 or 70 */
    bool untested;  /* the engine could not be started at all; the records say so */
    /* called for each test as it ends, with how many have ended; may be NULL */
    void (*progress)(void *ctx, const struct ol_run *run, const json_t *record, size_t n_done);
    /* called several times a second; may be NULL */
    void (*tick)(void *ctx, const struct ol_run *run, size_t n_done, size_t n_running,
                 const char *running);
    void *ctx;
} ol_run;

/* From here on SIGINT, SIGTERM and SIGHUP end a run in order: nothing is left, the reports say so.
 */
void ol_catch_interrupts(void);

/* Was one of them sent? Then the fault says which. */
bool ol_was_interrupted(ol_fault *fault);

/* How often the kernel has ended a process for want of memory; 0 where it does not tell. */
uint64_t ol_oom_kills(void);

/* Choose by --only, --kind and --case; a name that is none is exit 4 with the nearest. */
bool ol_run_select(ol_run *run, ol_fault *fault);

/* Ask the engine who it is. false: the fault (exit 3: it cannot be judged). An engine that gives no
 * answer for another reason marks every selected test with the class of that, and this is true. */
bool ol_run_probe_engine(ol_run *run, ol_fault *fault);

/* Run all selected tests. A fault of a golden ends the run and is in run->fault. */
void ol_run_tests(ol_run *run);

/* Every selected test without a record gets one of this class. */
void ol_run_fill(ol_run *run, ol_class cls, const char *text);

/* Name who is blocked, how to replay, in which order; compute the exit code; make the footer. */
void ol_run_finish(ol_run *run);

void ol_run_clear(ol_run *run);

/* log.c */
json_t *ol_log_header(const ol_run *run);
json_t *ol_log_footer(const ol_run *run);
/* The whole log as JSON lines; the footer's hash of the lines before it is put in here. free() it.
 */
char *ol_log_text(const ol_run *run, size_t *n_bytes);

#endif
