/* worker.c: one test from start to end, in a process of its own: start the engine, let cmocka drive
 * the test, end the engine, put the record together.
 *
 * cmocka runs a group of exactly one test, of the catalogue's name. It catches signals in the
 * test's code and jumps out of a test that is left; what it prints is of no use to anyone and is
 * muted. Its verdict is compared with our own. */
#include "child_private.h"
#include "context.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WORKER_CPU_S 600 /* two to three hundred times what any test needs */

/* FNV-1a of the name: a fixed seed for each test that does not hang on its place in the catalogue.
 */
static uint64_t seed_of(const char *name) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * UINT64_C(1099511628211);
    }
    return hash;
}

/* A fault that somebody sent is none of ours: the worker ends as if it had been killed, and the
 * main process decides whose doing that was. One that was made goes on to cmocka, or is the end. */
static struct sigaction cmocka_actions[NSIG];

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    if (info->si_code <= 0 && info->si_pid != getpid()) {
        (void)kill(getpid(), SIGKILL);
    }
    (void)sigaction(signal, &cmocka_actions[signal], NULL);
    (void)raise(signal);
}

static void watch_for_sent_faults(void) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGABRT, SIGTRAP};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        (void)sigaction(faults[i], &action, &cmocka_actions[faults[i]]);
    }
}

static void drive(void **state) {
    ol_test *t = *state;
    watch_for_sent_faults();
    t->def->run(t);
    t->is_complete = true;
    if (t->has_failed) {
        fail();
    }
}

/* cmocka's own words go nowhere. What the judge wants to say, it says through its record. */
static void mute(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
        child_close(&null);
    }
}

static int drive_by_cmocka(ol_test *t) {
    struct CMUnitTest tests[1] = {{t->def->name, drive, NULL, NULL, t}};
    return _cmocka_run_group_tests(t->def->name, tests, 1, NULL, NULL);
}

/* ------------------------------------------------------------------ baseline */

typedef struct baseline_ctx {
    const ol_setup *setup;
    ol_test *t;
} baseline_ctx;

/* In a process of its own that shares nothing with the child under test: close its pipes, or it
 * would not see their end. */
static OL_NORETURN void time_reference(const baseline_ctx *b, int to) {
    ol_child *other = &b->t->child;
    child_close(&other->to);
    child_close(&other->from);
    child_close(&other->out);
    child_close(&other->err);
    other->pid = 0;
    /* Its own time is not limited by what it is to set the limit for. */
    ol_setup setup = *b->setup;
    setup.limits.wall_s = ol_limits_default().wall_s;
    json_t *record = ol_run_test(&setup, &setup.reference, b->t->index);
    double cpu_s = (double)json_integer_value(json_object_get(record, "cpu_ms")) / 1000;
    _exit(ol_write_all(to, &cpu_s, sizeof cpu_s) ? 0 : 1);
}

/* The reference engine's CPU seconds for this test, 0 when they cannot be had. The child under test
 * runs on meanwhile, on its own clock. */
static double baseline(void *ctx) {
    baseline_ctx *b = ctx;
    int fds[2];
    double cpu_s = 0;
    if (b->setup->reference.argv[0] == NULL || pipe2(fds, O_CLOEXEC) != 0) {
        return 0;
    }
    pid_t pid = fork();
    if (pid == 0) {
        time_reference(b, fds[1]);
    }
    child_close(&fds[1]);
    if (pid < 0 || !ol_read_all(fds[0], &cpu_s, sizeof cpu_s)) {
        cpu_s = 0;
    }
    child_close(&fds[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return cpu_s;
}

/* ------------------------------------------------------------------ the test */

static void clear(ol_test *t) {
    for (size_t i = 0; t->checks != NULL && i < t->def->n_checks; i++) {
        json_decref(t->checks[i].first);
    }
    for (size_t i = 0; i < t->n_cases; i++) {
        /* Allocated here; const for everyone else. */
        union {
            const char *given;
            char *own;
        } id = {.given = t->cases[i].id};
        free(id.own);
    }
    free(t->checks);
    free(t->cases);
    json_decref(t->hello);
    json_decref(t->numeric);
    json_decref(t->violations);
    ol_cases_clear(t);
    ol_memory_clear(t);
    free(t);
}

static ol_test *make(const ol_setup *setup, const ol_engine *engine, size_t index) {
    ol_test *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return NULL;
    }
    t->setup = setup;
    t->def = &setup->catalog.tests[index];
    t->index = index;
    t->dir_fd = -1;
    t->current = SIZE_MAX;
    t->draw = (ol_draw){.state = seed_of(t->def->name) + setup->draw_seed, .inc = 2 * index + 1};
    t->checks = calloc(t->def->n_checks, sizeof *t->checks);
    t->numeric = json_object();
    t->violations = json_array();
    ol_child_init(&t->child, engine, &setup->limits);
    if (t->checks == NULL || t->numeric == NULL || t->violations == NULL) {
        (void)ol_fault_set(&t->fault, OL_EXIT_INTERNAL, "out of memory");
    }
    return t;
}

json_t *ol_run_test(const ol_setup *setup, const ol_engine *engine, size_t index) {
    uint64_t start_ns = ol_now_ns();
    ol_test *t = make(setup, engine, index);
    if (t == NULL) {
        return NULL;
    }
    baseline_ctx b = {.setup = setup, .t = t};
    if (engine->kind != OL_ENGINE_BUILTIN) {
        t->child.baseline = baseline;
        t->child.baseline_ctx = &b;
    }
    int cmocka_failed = 1;
    if (t->fault.exit_code == 0 && ol_start(t)) {
        cmocka_failed = drive_by_cmocka(t);
    }
    ol_stop(t);
    json_t *record = ol_record(t, ol_now_ns() - start_ns, cmocka_failed);
    clear(t);
    return record;
}

json_t *ol_run_probe(const ol_setup *setup) {
    /* Who sits at a debugger waits for the case, not for this. */
    ol_engine engine = setup->engine;
    if (engine.interactive) {
        engine.interactive = false;
        memmove(engine.argv, engine.argv + engine.n_wrap,
                sizeof engine.argv - engine.n_wrap * sizeof *engine.argv);
    }
    ol_test *t = make(setup, &engine, 0);
    if (t == NULL) {
        return NULL;
    }
    bool started = t->fault.exit_code == 0 && ol_start(t);
    bool refused = t->hello != NULL && !ol_ok(t->hello);
    if (!refused) {
        ol_stop(t);
        started = started && !t->child.event.set;
    } else {
        /* What it said counts, not how it ends. */
        (void)ol_child_event(&t->child, OL_NO_RESULT, "refused");
        ol_stop(t);
    }
    json_t *answer = NULL;
    if (t->fault.exit_code != 0) {
        answer = json_pack("{s:{s:i, s:o}}", "fault", "exit", t->fault.exit_code, "text",
                           ol_json_text(t->fault.text));
    } else if (started || refused) {
        answer = json_pack("{s:O}", "hello", t->hello);
    } else {
        const ol_event *event = &t->child.event;
        answer = json_pack("{s:{s:s, s:o, s:i, s:i}}", "event", "class", ol_class_name(event->cls),
                           "text", ol_json_text(event->text), "status", event->exit_status,
                           "signal", event->signal);
    }
    (void)json_object_set_new(answer, "printed", ol_printed(t));
    clear(t);
    return answer;
}

/* What the judge itself used for this test: a class of 300 pays for it. */
static void note_own_cost(json_t *record) {
    struct rusage own;
    if (getrusage(RUSAGE_SELF, &own) == 0 && record != NULL) {
        long us = (own.ru_utime.tv_sec + own.ru_stime.tv_sec) * 1000000 + own.ru_utime.tv_usec +
                  own.ru_stime.tv_usec;
        (void)json_object_set_new(record, "judge",
                                  json_pack("{s:I, s:I}", "cpu_us", (json_int_t)us, "max_rss_kb",
                                            (json_int_t)own.ru_maxrss));
    }
}

/* A loop without end in a test is our bug and must not hold up a class: SIGXCPU ends the worker,
 * and the main process reports that. The child sets limits of its own. */
static void bound_own_time(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_CPU, &limit) == 0) {
        limit.rlim_cur = WORKER_CPU_S < limit.rlim_max ? WORKER_CPU_S : limit.rlim_max;
        (void)setrlimit(RLIMIT_CPU, &limit);
    }
}

void ol_worker_main(const ol_setup *setup, size_t index, int to) {
    (void)signal(SIGPIPE, SIG_IGN);
    (void)umask(022);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (!setup->engine.interactive) {
        mute();
        bound_own_time();
    }
    json_t *record =
        index == OL_PROBE ? ol_run_probe(setup) : ol_run_test(setup, &setup->engine, index);
    note_own_cost(record);
    char *text = record == NULL ? NULL : json_dumps(record, JSON_COMPACT);
    size_t n = text == NULL ? 0 : strlen(text);
    _exit(n > 0 && ol_write_all(to, text, n) ? 0 : 1);
}
