/* run.c: scheduling; see run.h.
 *
 * A worker is a fork that runs one test and sends one JSON object through a pipe. One that dies,
 * hangs or sends something else is the judge's own fault and is reported as that, for its test
 * alone. */
#include "run.h"

#include "child_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RECORD_MAX ((size_t)16 << 20) /* bytes of one record */
#define TICK_MS 100
#define STOPS_MAX 20
#define LANDLOCK_SIGNALS 6 /* from this version on it keeps signals inside, too */

/* ------------------------------------------------------------------ selection */

static bool choose_only(ol_run *run, ol_fault *fault) {
    const ol_options *o = run->options;
    for (size_t i = 0; i < o->n_only; i++) {
        bool any = false;
        for (size_t k = 0; k < OL_N_TESTS; k++) {
            bool hit = ol_glob(o->only[i], run->setup.catalog.tests[k].name);
            any = any || hit;
            run->selected[k] = run->selected[k] || hit;
        }
        if (!any) {
            char near[512];
            ol_catalog_nearest(&run->setup.catalog, o->only[i], near, sizeof near);
            return ol_fault_set(fault, OL_EXIT_NOTHING,
                                "--only %s: no test has this name; the nearest are %s", o->only[i],
                                near);
        }
    }
    return true;
}

static bool is_of_kinds(const ol_options *o, const ol_test_def *test) {
    for (size_t i = 0; i < o->n_kinds; i++) {
        if (ol_test_has_kind(test, o->kinds[i])) {
            return true;
        }
    }
    return o->n_kinds == 0;
}

static bool choose_case(ol_run *run, ol_fault *fault) {
    const ol_options *o = run->options;
    const ol_test_def *test = ol_catalog_find(&run->setup.catalog, o->case_test);
    if (test == NULL) {
        char near[512];
        ol_catalog_nearest(&run->setup.catalog, o->case_test, near, sizeof near);
        return ol_fault_set(fault, OL_EXIT_NOTHING,
                            "--case %s: no test has this name; the nearest are %s", o->case_test,
                            near);
    }
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        run->selected[k] = run->selected[k] && k + 1 == test->number;
    }
    run->setup.case_id = o->case_id;
    return true;
}

bool ol_run_select(ol_run *run, ol_fault *fault) {
    const ol_options *o = run->options;
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        run->selected[k] = o->n_only == 0;
    }
    if (!choose_only(run, fault) || (o->case_id != NULL && !choose_case(run, fault))) {
        return false;
    }
    run->n_selected = 0;
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        run->selected[k] = run->selected[k] && is_of_kinds(o, &run->setup.catalog.tests[k]);
        run->n_selected += run->selected[k] ? 1 : 0;
    }
    if (run->n_selected == 0) {
        return ol_fault_set(
            fault, OL_EXIT_NOTHING,
            "no test is left; the kinds are unit, golden, differential, property, boundary, "
            "statistical and conformance");
    }
    return true;
}

/* ------------------------------------------------------------------ workers */

typedef struct worker {
    pid_t pid;
    int from;
    size_t index; /* of the test, or OL_PROBE */
    ol_wire_buf text;
    int n_stopped; /* how often it was woken */
} worker;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal) {
    interrupted = signal;
}

void ol_catch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_interrupt};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGHUP, &action, NULL);
}

bool ol_was_interrupted(ol_fault *fault) {
    if (interrupted != 0) {
        (void)ol_fault_set(fault, OL_EXIT_INTERNAL, "interrupted by SIG%s",
                           ol_signal_name(interrupted));
    }
    return interrupted != 0;
}

static bool start_worker(const ol_run *run, worker *w, size_t index) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return false;
    }
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)signal(SIGINT, SIG_DFL);
        (void)signal(SIGTERM, SIG_DFL);
        (void)signal(SIGHUP, SIG_DFL);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        ol_worker_main(&run->setup, index, fds[1]);
    }
    child_close(&fds[1]);
    if (pid < 0) {
        child_close(&fds[0]);
        return false;
    }
    *w = (worker){.pid = pid, .from = fds[0], .index = index};
    return true;
}

/* Read what is there; true at the end of file. */
static bool read_worker(worker *w) {
    if (!ol_wire_reserve(&w->text, w->text.len + (1 << 16)) || w->text.len > RECORD_MAX) {
        return true;
    }
    ssize_t n = read(w->from, w->text.bytes + w->text.len, 1 << 16);
    if (n > 0) {
        w->text.len += (size_t)n;
    }
    return n == 0 || (n < 0 && errno != EINTR);
}

/* Wait for the worker and take its object; NULL when it is not to be trusted. */
static json_t *end_worker(worker *w, int *signal, char *why, size_t cap) {
    int status = 0;
    json_error_t error = {.text = "nothing was sent"};
    child_close(&w->from);
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR) {
    }
    json_t *value = NULL;
    *signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (WIFSIGNALED(status)) {
        ol_format(why, cap, "the judge's worker was ended by SIG%s",
                  ol_signal_name(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) == OL_EXIT_INTERNAL) {
        ol_format(why, cap, "the judge's worker was out of memory");
    } else if (w->text.len == 0 || WEXITSTATUS(status) != 0) {
        ol_format(why, cap, "the judge's worker ended with status %d", WEXITSTATUS(status));
    } else {
        value = json_loadb((const char *)w->text.bytes, w->text.len, 0, &error);
        if (value == NULL) {
            ol_format(why, cap, "the judge's worker sent no record: %s", error.text);
        }
    }
    ol_wire_clear(&w->text);
    w->pid = 0;
    return value;
}

/* ------------------------------------------------------------------ records */

static json_t *plain_record(const ol_test_def *test, ol_class cls, const char *text) {
    return json_pack("{s:s, s:s, s:O, s:s, s:i, s:i, s:i, s:{s:i, s:i, s:i, s:i, s:i}, s:[], "
                     "s:{s:o, s:s, s:s, s:n}, "
                     "s:{s:i, s:i}, s:[], s:s, s:s, s:b}",
                     "kind", "test", "name", test->name, "kinds", test->kinds, "class",
                     ol_class_name(cls), "wall_ms", 0, "cpu_ms", 0, "max_rss_kb", 0, "cases",
                     "total", 0, "passed", 0, "failed", 0, "not_reached", 0, "left_out", 0,
                     "checks", "cause", "rationale", ol_json_text(text), "pitfall", test->pitfall,
                     "clause", test->clause, "mutant_like", "exit", "status", -1, "signal", 0,
                     "violations", "stdout_tail", "", "stderr_tail", "", "complete", 0);
}

void ol_run_fill(ol_run *run, ol_class cls, const char *text) {
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        if (run->selected[k] && run->records[k] == NULL) {
            run->records[k] = plain_record(&run->setup.catalog.tests[k], cls, text);
            (void)json_object_update(run->records[k], run->probe);
        }
    }
}

/* A fault that a worker met: a broken golden or an engine that cannot be started end the run, one
 * of our own is the record of its test. false: the run ends. */
static bool take_fault(ol_run *run, size_t index, const json_t *fault) {
    int code = (int)json_integer_value(json_object_get(fault, "exit"));
    const char *text = json_string_value(json_object_get(fault, "text"));
    if (code == OL_EXIT_INTERNAL) {
        run->records[index] =
            plain_record(&run->setup.catalog.tests[index], OL_HARNESS_ERROR, text);
        return true;
    }
    return ol_fault_set(&run->fault, code, "%s", text);
}

/* How many processes the kernel has ended for want of memory since it started; 0 if it does not
 * tell. */
uint64_t ol_oom_kills(void) {
    static const char name[] = "oom_kill ";
    const size_t n_name = sizeof name - 1;
    char line[128];
    uint64_t n = 0;
    FILE *file = fopen("/proc/vmstat", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, n_name) == 0) {
            n = strtoull(line + n_name, NULL, 10);
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return n;
}

/* Where nothing forbids an engine of the same user to signal its judge, a worker that was ended by
 * a signal from outside (one of its own faults ends it by another) was ended by the engine, or by
 * somebody who may do as that user does. It would be paid for ending its worker if that were
 * nobody's score. */
static bool was_ended_by_engine(const ol_run *run, int signal) {
    const ol_sandbox *sandbox = &run->setup.sandbox;
    bool is_open =
        !sandbox->seccomp && !sandbox->own_uid && sandbox->landlock_abi < LANDLOCK_SIGNALS;
    bool is_sent = signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP ||
                   signal == SIGQUIT || signal == SIGUSR1 || signal == SIGUSR2 ||
                   signal == SIGALRM || signal >= SIGRTMIN;
    return is_open && is_sent && interrupted == 0 && ol_oom_kills() == run->n_oom;
}

static bool take_record(ol_run *run, worker *w) {
    char why[256] = "";
    int signal = 0;
    json_t *value = end_worker(w, &signal, why, sizeof why);
    const json_t *fault = json_object_get(value, "fault");
    bool goes_on = true;
    if (fault != NULL) {
        goes_on = take_fault(run, w->index, fault);
        json_decref(value);
    } else if (value != NULL) {
        run->records[w->index] = value;
    } else {
        ol_class cls = was_ended_by_engine(run, signal) ? OL_INTEGRITY : OL_HARNESS_ERROR;
        run->records[w->index] = plain_record(&run->setup.catalog.tests[w->index], cls, why);
    }
    return goes_on;
}

/* ------------------------------------------------------------------ the loop */

typedef struct crew {
    worker workers[256];
    size_t n;
    size_t next; /* test to be looked at next */
    size_t n_done;
} crew;

static void report_tick(const ol_run *run, const crew *c) {
    if (run->tick != NULL) {
        const char *name = c->n == 0 ? "" : run->setup.catalog.tests[c->workers[0].index].name;
        run->tick(run->ctx, run, c->n_done, c->n, name);
    }
}

static bool hire(ol_run *run, crew *c) {
    while (c->n < run->jobs && c->next < OL_N_TESTS) {
        size_t index = c->next++;
        if (!run->selected[index] || run->records[index] != NULL) {
            continue;
        }
        if (!start_worker(run, &c->workers[c->n], index)) {
            return ol_fault_set(&run->fault, OL_EXIT_INTERNAL, "no process for a worker: %s",
                                strerror(errno));
        }
        c->n++;
    }
    return true;
}

/* Kill what is still running; the engines die with their workers. */
static void dismiss(crew *c) {
    for (size_t i = 0; i < c->n; i++) {
        char why[256];
        int signal = 0;
        (void)kill(c->workers[i].pid, SIGKILL);
        json_decref(end_worker(&c->workers[i], &signal, why, sizeof why));
    }
    c->n = 0;
    (void)ol_child_reap_orphans(0);
}

/* Where nothing forbids an engine of the same user to stop its judge, wake it; an engine that goes
 * on with it ends the worker. */
static void wake_stopped(worker *w) {
    siginfo_t info = {0};
    bool is_stopped =
        waitid(P_PID, (id_t)w->pid, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid == w->pid;
    if (is_stopped) {
        (void)kill(w->pid, ++w->n_stopped > STOPS_MAX ? SIGKILL : SIGCONT);
    }
}

static bool collect(ol_run *run, crew *c) {
    struct pollfd fds[256];
    for (size_t i = 0; i < c->n; i++) {
        fds[i] = (struct pollfd){.fd = c->workers[i].from, .events = POLLIN};
    }
    (void)poll(fds, c->n, TICK_MS);
    for (size_t i = c->n; i-- > 0;) {
        wake_stopped(&c->workers[i]);
        if (fds[i].revents == 0 || !read_worker(&c->workers[i])) {
            continue;
        }
        size_t index = c->workers[i].index;
        bool goes_on = take_record(run, &c->workers[i]);
        c->workers[i] = c->workers[--c->n];
        c->n_done++;
        if (!goes_on) {
            return false;
        }
        if (run->progress != NULL && run->setup.case_id == NULL) {
            run->progress(run->ctx, run, run->records[index], c->n_done);
        }
    }
    return true;
}

void ol_run_tests(ol_run *run) {
    crew c = {.n = 0};
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    bool goes_on = true;
    while (goes_on) {
        goes_on = hire(run, &c);
        if (goes_on && c.n == 0) {
            break;
        }
        report_tick(run, &c);
        goes_on = goes_on && collect(run, &c) && !ol_was_interrupted(&run->fault);
    }
    dismiss(&c);
}

/* ------------------------------------------------------------------ the probe */

static void take_hello(ol_engine *engine, const json_t *hello) {
    struct {
        const char *key;
        char *to;
        size_t cap;
    } texts[] = {{"name", engine->name, sizeof engine->name},
                 {"version", engine->version, sizeof engine->version},
                 {"language", engine->language, sizeof engine->language}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = json_string_value(json_object_get(hello, texts[i].key));
        ol_format(texts[i].to, texts[i].cap, "%s", text == NULL ? "" : text);
    }
    engine->abi = (uint64_t)json_integer_value(json_object_get(hello, "abi"));
}

static bool check_hello(ol_run *run, const json_t *hello, ol_fault *fault) {
    if (!ol_ok(hello)) {
        return ol_fault_set(fault, OL_EXIT_ENGINE, "the engine cannot be judged: %s",
                            json_string_value(json_object_get(hello, "text")));
    }
    take_hello(&run->setup.engine, hello);
    uint64_t major = run->setup.engine.abi >> 16;
    if (!json_is_integer(json_object_get(hello, "abi")) || major != OL_ABI_MAJOR) {
        return ol_fault_set(
            fault, OL_EXIT_ENGINE, "the engine has ABI %llu.%llu, the judge needs %u.x (%u.%u)",
            (unsigned long long)major, (unsigned long long)(run->setup.engine.abi & 0xffff),
            OL_ABI_MAJOR, OL_ABI_MAJOR, OL_ABI_MINOR);
    }
    return true;
}

bool ol_run_probe_engine(ol_run *run, ol_fault *fault) {
    worker w;
    char why[256] = "";
    if (!start_worker(run, &w, OL_PROBE)) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "no process for a worker: %s",
                            strerror(errno));
    }
    while (!read_worker(&w) && interrupted == 0) {
    }
    if (interrupted != 0) {
        (void)kill(w.pid, SIGKILL);
    }
    int signal = 0;
    json_t *value = end_worker(&w, &signal, why, sizeof why);
    const json_t *hello = json_object_get(value, "hello");
    const json_t *event = json_object_get(value, "event");
    const json_t *wrong = json_object_get(value, "fault");
    bool ok = true;
    json_decref(run->probe);
    run->probe = json_incref(json_object_get(value, "printed"));
    if (hello != NULL) {
        ok = check_hello(run, hello, fault);
    } else if (event != NULL) {
        /* The same start would end the same way in every test. */
        ol_class cls = OL_NO_RESULT;
        char text[1024];
        (void)ol_class_parse(json_string_value(json_object_get(event, "class")), &cls);
        ol_format(text, sizeof text, "at its start, before any test, the engine's process %s",
                  json_string_value(json_object_get(event, "text")));
        ol_run_fill(run, cls, text);
        run->untested = true;
    } else if (wrong != NULL) {
        ok = ol_fault_set(fault, (int)json_integer_value(json_object_get(wrong, "exit")), "%s",
                          json_string_value(json_object_get(wrong, "text")));
    } else {
        ok = !ol_was_interrupted(fault) && ol_fault_set(fault, OL_EXIT_INTERNAL, "%s", why);
    }
    json_decref(value);
    return ok && !ol_was_interrupted(fault);
}

/* ------------------------------------------------------------------ the end */

static bool has_class(const json_t *record, ol_class cls) {
    const char *name = json_string_value(json_object_get(record, "class"));
    return name != NULL && strcmp(name, ol_class_name(cls)) == 0;
}

/* Prerequisites that ran and did not pass. A failed test that has one is blocked: its checks stand
 * as they are. */
static void mark_blocked(ol_run *run, size_t index) {
    const ol_test_def *test = &run->setup.catalog.tests[index];
    json_t *record = run->records[index];
    json_t *depends = json_array();
    json_t *blockers = json_array();
    for (size_t i = 0; i < test->n_rests_on; i++) {
        size_t other = test->rests_on[i];
        const char *name = run->setup.catalog.tests[other].name;
        (void)json_array_append_new(depends, json_string(name));
        if (run->records[other] != NULL && !has_class(run->records[other], OL_PASS)) {
            (void)json_array_append_new(blockers, json_string(name));
        }
    }
    if (has_class(record, OL_FAIL) && json_array_size(blockers) > 0) {
        (void)json_object_set_new(record, "class", json_string(ol_class_name(OL_BLOCKED)));
        (void)json_object_set(record, "blocked_by", blockers);
    }
    (void)json_object_set_new(record, "depends", depends);
    json_decref(blockers);
}

static void add_replay(ol_run *run, size_t index) {
    char engine[2048];
    char line[4096];
    json_t *record = run->records[index];
    const char *name = run->setup.catalog.tests[index].name;
    const char *id = json_string_value(json_object_get(json_object_get(record, "cause"), "case"));
    ol_options_engine_text(run->options, engine, sizeof engine);
    if (id != NULL) {
        bool plain = strpbrk(id, " '\"\\$`*?[]{}()<>|&;#~!") == NULL;
        ol_format(line, sizeof line,
                  plain ? "ol check " OL_MODULE "%s --case %s:%s"
                        : "ol check " OL_MODULE "%s --case '%s:%s'",
                  engine, name, id);
    } else {
        ol_format(line, sizeof line, "ol check " OL_MODULE "%s --only %s", engine, name);
    }
    (void)json_object_set_new(record, "replay", ol_json_text(line));
}

/* A --case that the test does not have was not judged: no record, exit 4. */
static void check_case_was_there(ol_run *run) {
    for (size_t k = 0; run->setup.case_id != NULL && k < OL_N_TESTS; k++) {
        json_t *record = run->records[k];
        const json_t *cases = json_object_get(record, "cases");
        if (!has_class(record, OL_PASS) ||
            json_integer_value(json_object_get(cases, "total")) > 0) {
            continue;
        }
        const char *near = json_string_value(json_object_get(record, "nearest_case"));
        (void)ol_fault_set(&run->fault, OL_EXIT_NOTHING, "%s has no case %s%s%s",
                           run->setup.catalog.tests[k].name, run->setup.case_id,
                           near == NULL ? "" : "; the nearest is ", near == NULL ? "" : near);
        json_decref(record);
        run->records[k] = NULL;
    }
}

static void compute_exit(ol_run *run) {
    run->exit_code = run->fault.exit_code;
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        if (!run->selected[k]) {
            continue;
        }
        const json_t *record = run->records[k];
        if (has_class(record, OL_HARNESS_ERROR)) {
            run->exit_code = ol_exit_worse(run->exit_code, OL_EXIT_INTERNAL);
        } else if (record != NULL && !has_class(record, OL_PASS)) {
            run->exit_code = ol_exit_worse(run->exit_code, OL_EXIT_FAIL);
        }
    }
}

void ol_run_finish(ol_run *run) {
    check_case_was_there(run);
    int seq = 0;
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        if (run->records[k] != NULL) {
            (void)json_object_set_new(run->records[k], "seq", json_integer(++seq));
            mark_blocked(run, k);
            add_replay(run, k);
        }
    }
    compute_exit(run);
    json_decref(run->footer);
    run->footer = ol_log_footer(run);
}

void ol_run_clear(ol_run *run) {
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        json_decref(run->records[k]);
        run->records[k] = NULL;
    }
    json_decref(run->header);
    json_decref(run->footer);
    json_decref(run->fresh);
    json_decref(run->probe);
    run->fresh = NULL;
    run->probe = NULL;
    run->header = NULL;
    run->footer = NULL;
}
