/* cmd_check.c: `ol check`: judge an engine; the exit code is the verdict. */
#include "commands.h"

#include "report.h"
#include "views.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* Does the text view stand on standard output, and is that a terminal? */
typedef struct screen {
    bool is_on;
    bool is_tty;
} screen;

static void show_progress(void *ctx, const ol_run *run, const json_t *record, size_t n_done) {
    const screen *s = ctx;
    if (s->is_on) {
        if (s->is_tty) {
            (void)fputs("\r\033[K", stdout);
        }
        ol_text_progress(stdout, run, record, n_done);
    }
}

static void show_tick(void *ctx, const ol_run *run, size_t n_done, size_t n_running,
                      const char *running) {
    const screen *s = ctx;
    if (s->is_on && s->is_tty && n_running > 0 && !run->setup.engine.interactive) {
        (void)printf("\r\033[K[%2zu/%zu] running: %s%s", n_done, run->n_selected, running,
                     n_running > 1 ? " and more" : "");
        (void)fflush(stdout);
    }
}

/* Text on standard output, printed as it goes and not at the end, unless another report is to stand
 * there. At most one can. */
static bool settle_reports(ol_options *o, screen *s, ol_fault *fault) {
    size_t n_stdout = 0;
    size_t kept = 0;
    s->is_on = true;
    for (size_t i = 0; i < o->n_reports; i++) {
        const ol_report_option r = o->reports[i];
        n_stdout += r.path == NULL ? 1 : 0;
        if (r.path == NULL && r.format == OL_REPORT_TEXT) {
            continue;
        }
        s->is_on = s->is_on && r.path != NULL;
        o->reports[kept++] = r;
    }
    o->n_reports = kept;
    s->is_tty = s->is_on && isatty(STDOUT_FILENO) != 0;
    return n_stdout <= 1 ||
           ol_fault_set(fault, OL_EXIT_USAGE,
                        "--report: only one report can stand on standard output; give the others "
                        "a :PATH");
}

/* Nobody knows which program gave the answers of a test that passed, so none did. */
static void distrust_passes(ol_run *run) {
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        const char *cls = json_string_value(json_object_get(run->records[k], "class"));
        if (cls != NULL && strcmp(cls, ol_class_name(OL_PASS)) == 0) {
            json_decref(run->records[k]);
            run->records[k] = NULL;
        }
    }
    ol_run_fill(run, OL_INTEGRITY,
                "the program changed on disk while it was judged: its sha256 is another one than "
                "at the start");
}

/* Judge, or find out why not. The run's fault says why. */
static void judge(ol_run *run, const screen *s) {
    bool is_there = ol_setup_engine(run, &run->fault);
    bool may_run = is_there && ol_run_probe_engine(run, &run->fault);
    json_decref(run->header);
    run->header = ol_log_header(run);
    if (is_there && s->is_on) {
        ol_text_begin(run, stdout);
    }
    if (may_run) {
        ol_run_tests(run);
        if (run->fault.exit_code == 0 && !ol_engine_is_unchanged(&run->setup.engine)) {
            distrust_passes(run);
        }
    }
}

static bool stub_reports(ol_run *run) {
    run->header = ol_log_header(run);
    return ol_reports_stub(run, &run->fault);
}

/* Drawing takes longer than anybody waits without a word. */
static bool open_goldens(ol_run *run, const screen *s) {
    if (s->is_on && run->options->fresh) {
        (void)printf("drawing fresh inputs, seed %u\n", (unsigned)run->options->fresh_seed);
        (void)fflush(stdout);
    }
    bool ok = ol_setup_goldens(run, &run->fault);
    json_decref(run->header);
    run->header = ol_log_header(run);
    return ok;
}

/* The end of the run as every report shows it. */
static void finish(ol_run *run) {
    ol_run_finish(run);
    ol_pitfalls_find(run);
    if (run->options->no_hints) {
        ol_hints_remove(run);
    }
    if (!ol_rules_apply(run, &run->fault)) {
        run->exit_code = ol_exit_worse(run->exit_code, run->fault.exit_code);
    }
}

static bool check_grade_is_whole(const ol_options *o, ol_fault *fault) {
    bool is_part = o->n_only > 0 || o->n_kinds > 0 || o->case_id != NULL;
    return o->grade == NULL || !is_part ||
           ol_fault_set(fault, OL_EXIT_USAGE,
                        "--grade: a selection of tests cannot be graded; leave out --only, --kind "
                        "and --case");
}

int ol_cmd_check(int argc, char **argv) {
    ol_options o;
    ol_fault fault = {0};
    screen s = {0};
    if (!ol_options_parse(&o, argc, argv, 2, OL_TAKES_CHECK, &fault) ||
        !ol_take_module(&o, &fault) || !settle_reports(&o, &s, &fault) ||
        !check_grade_is_whole(&o, &fault)) {
        return ol_complain(&fault);
    }
    if (o.n_words > 0) {
        (void)ol_fault_set(&fault, OL_EXIT_USAGE, "%s: ol check takes " OL_MODULE " and options",
                           o.words[0]);
        return ol_complain(&fault);
    }
    if (o.fresh && !o.has_seed &&
        getrandom(&o.fresh_seed, sizeof o.fresh_seed, 0) != (ssize_t)sizeof o.fresh_seed) {
        (void)ol_fault_set(&fault, OL_EXIT_INTERNAL, "--fresh: no random number: %s",
                           strerror(errno));
        return ol_complain(&fault);
    }
    ol_run run;
    bool ready = ol_setup_begin(&run, &o, &run.fault);
    run.progress = show_progress;
    run.tick = show_tick;
    run.ctx = &s;
    if (run.fault.exit_code == OL_EXIT_USAGE || run.fault.exit_code == OL_EXIT_NOTHING) {
        int code = ol_complain(&run.fault);
        ol_setup_close(&run);
        return code;
    }
    if (stub_reports(&run) && ready && ol_rules_check(&run, &run.fault) && open_goldens(&run, &s)) {
        judge(&run, &s);
    }
    if (run.fault.exit_code == OL_EXIT_ENGINE) {
        /* No test ran, and none can be passed by an engine that is not there. */
        ol_run_fill(&run, OL_NO_RESULT, run.fault.text);
        run.untested = true;
    }
    finish(&run);
    if (!ol_reports_write(&run, &run.fault)) {
        run.exit_code = ol_exit_worse(run.exit_code, OL_EXIT_INTERNAL);
    }
    if (s.is_on) {
        ol_text_end(&run, stdout);
    }
    if (run.fault.exit_code != 0 && !(s.is_on && s.is_tty)) {
        (void)ol_complain(&run.fault);
    }
    int code = run.exit_code;
    ol_setup_close(&run);
    return code;
}
