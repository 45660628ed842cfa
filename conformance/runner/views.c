/* views.c: see views.h. Standard input, output and error of a script are files in memory, so that
 * neither side can wait for the other. */
#include "views.h"

#include "commands.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"
#define REPORT_SCRIPT "conformance/report/ol_report.py"
#define PITFALL_SCRIPT "mutants/diagnose.py"
#define SCRIPT_S 120 /* a script that takes longer hangs */
#define LONG_S 3600  /* one that draws works for ten seconds, on a busy machine for minutes */
#define N_ARGS_MAX 24
#define ANSWER_MAX ((size_t)256 << 20)

static const char *const format_names[OL_N_FORMATS] = {
    [OL_REPORT_TEXT] = "text",
    [OL_REPORT_JSONL] = "jsonl",
    [OL_REPORT_JUNIT] = "junit",
    [OL_REPORT_TAP] = "tap",
    [OL_REPORT_GRADESCOPE] = "gradescope",
    [OL_REPORT_EXERCISM] = "exercism",
    [OL_REPORT_PRAIRIELEARN] = "prairielearn",
    [OL_REPORT_GITHUB] = "github",
    [OL_REPORT_MD] = "md",
    [OL_REPORT_HTML] = "html",
};

const char *ol_format_name(ol_format_kind format) {
    return format_names[format];
}

bool ol_format_parse(const char *name, size_t n, ol_format_kind *format) {
    for (size_t i = 0; i < OL_N_FORMATS; i++) {
        if (strlen(format_names[i]) == n && strncmp(format_names[i], name, n) == 0) {
            *format = (ol_format_kind)i;
            return true;
        }
    }
    return false;
}

void ol_format_list(char *text, size_t cap) {
    text[0] = '\0';
    for (size_t i = 0; i < OL_N_FORMATS; i++) {
        size_t len = strlen(text);
        ol_format(text + len, cap - len, "%s%s", i == 0 ? "" : ", ", format_names[i]);
    }
}

/* ------------------------------------------------------------------ calling a script */

typedef struct script {
    char path[4200];
    const char *args[N_ARGS_MAX + 1];
    size_t n_args;
    bool draws; /* one that draws: with packages, for long, not after an interruption */
    int fds[3]; /* its standard input, output, error */
    char *answer;
    size_t n_answer;
} script;

static void add_arg(script *s, const char *text) {
    if (s->n_args < N_ARGS_MAX) {
        s->args[s->n_args++] = text;
    }
}

/* Isolated from the environment and from what lies around: -I, and no bytecode left behind. One
 * that draws needs numpy, the others need no package: -S. */
static void begin_script(script *s, const ol_run *run, const char *name, bool draws) {
    *s = (script){.draws = draws, .fds = {-1, -1, -1}};
    ol_format(s->path, sizeof s->path, "%s/%s", run->setup.paths.root, name);
    static const char *const first[] = {PYTHON, "-I", "-B", "-Xutf8"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        add_arg(s, first[i]);
    }
    if (!draws) {
        add_arg(s, "-S");
    }
    add_arg(s, s->path);
}

static void begin(script *s, const ol_run *run, const char *command) {
    begin_script(s, run, REPORT_SCRIPT, false);
    add_arg(s, command);
}

static void end(script *s) {
    for (size_t i = 0; i < 3; i++) {
        if (s->fds[i] >= 0) {
            (void)close(s->fds[i]);
        }
    }
    free(s->answer);
    s->answer = NULL;
}

/* All that was written, NUL-ended; NULL when it cannot be had. */
static char *take_output(int fd, size_t *n) {
    struct stat info;
    if (fstat(fd, &info) != 0 || (size_t)info.st_size > ANSWER_MAX) {
        return NULL;
    }
    size_t size = (size_t)info.st_size;
    char *bytes = malloc(size + 1);
    size_t done = 0;
    while (bytes != NULL && done < size) {
        ssize_t got = pread(fd, bytes + done, size - done, (off_t)done);
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            break;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    if (bytes != NULL) {
        bytes[done] = '\0';
        *n = done;
    }
    return bytes;
}

static void become(const script *s) {
    char *argv[N_ARGS_MAX + 1] = {NULL};
    for (size_t i = 0; i < s->n_args; i++) {
        argv[i] = strdup(s->args[i]);
    }
    bool ok = prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0;
    for (int i = 0; i < 3; i++) {
        ok = ok && dup2(s->fds[i], i) == i;
    }
    if (s->draws) {
        (void)setpgid(0, 0); /* with all that it starts */
    }
    (void)alarm(s->draws ? LONG_S : SCRIPT_S);
    if (ok) {
        (void)execv(PYTHON, argv);
    }
    _exit(127);
}

/* What the script said on standard error, without the "ol: " that it begins with. */
static bool complain(const script *s, int code, ol_fault *fault) {
    size_t n = 0;
    char *text = take_output(s->fds[2], &n);
    const char *said = text == NULL ? "" : text;
    said += strncmp(said, "ol: ", 4) == 0 ? 4 : 0;
    if (code == 127) {
        (void)ol_fault_set(fault, OL_EXIT_INTERNAL,
                           "this needs Python 3.9 or later as " PYTHON ": it cannot be started");
    } else if (ol_exit_meaning(code) != NULL && code != OL_EXIT_FAIL) {
        (void)ol_fault_set(fault, code, "%.*s", (int)strcspn(said, "\n"), said);
    } else {
        (void)ol_fault_set(fault, OL_EXIT_INTERNAL, "%s ended with status %d: %s", s->path, code,
                           said);
    }
    free(text);
    return false;
}

static bool call(script *s, const char *input, size_t n_input, ol_fault *fault) {
    bool ok = true;
    for (size_t i = 0; i < 3; i++) {
        s->fds[i] = memfd_create("ol-report", MFD_CLOEXEC);
        ok = ok && s->fds[i] >= 3;
    }
    if (!ok || !ol_write_all(s->fds[0], input, n_input) || lseek(s->fds[0], 0, SEEK_SET) != 0) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "no memory for a report: %s", strerror(errno));
    }
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        become(s);
    }
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        if (s->draws && ol_was_interrupted(fault)) {
            (void)kill(-pid, SIGKILL);
        }
    }
    if (pid < 0) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "no process for a report: %s",
                            strerror(errno));
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return complain(s, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), fault);
    }
    s->answer = take_output(s->fds[1], &s->n_answer);
    return s->answer != NULL || ol_fault_set(fault, OL_EXIT_INTERNAL, "a report is too long");
}

/* ------------------------------------------------------------------ views */

static bool call_with_log(script *s, const ol_run *run, ol_fault *fault) {
    size_t n = 0;
    char *log = ol_log_text(run, &n);
    if (log == NULL) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "out of memory for the log");
    }
    bool ok = call(s, log, n, fault);
    free(log);
    return ok;
}

char *ol_view_make(const ol_run *run, ol_format_kind format, size_t *n_bytes, ol_fault *fault) {
    script s;
    begin(&s, run, "render");
    add_arg(&s, ol_format_name(format));
    if (run->options->visibility != NULL) {
        add_arg(&s, "--visibility");
        add_arg(&s, run->options->visibility);
    }
    char *answer = NULL;
    if (call_with_log(&s, run, fault)) {
        answer = s.answer;
        *n_bytes = s.n_answer;
        s.answer = NULL;
    }
    end(&s);
    return answer;
}

/* ------------------------------------------------------------------ rules */

static bool has_rules(const ol_run *run) {
    return run->options->grade != NULL || run->options->expect != NULL;
}

static void begin_rules(script *s, const ol_run *run, const char *command) {
    begin(s, run, command);
    if (run->options->grade != NULL) {
        add_arg(s, "--grade");
        add_arg(s, run->options->grade);
    }
    if (run->options->expect != NULL) {
        add_arg(s, "--expect");
        add_arg(s, run->options->expect);
    }
}

bool ol_rules_check(const ol_run *run, ol_fault *fault) {
    if (!has_rules(run)) {
        return true;
    }
    script s;
    begin_rules(&s, run, "rules");
    bool ok = call(&s, "", 0, fault);
    end(&s);
    return ok;
}

/* Put a line of the answered log in the place of ours. */
static void take_line(ol_run *run, json_t *line) {
    const char *kind = json_string_value(json_object_get(line, "kind"));
    const char *name = json_string_value(json_object_get(line, "name"));
    if (kind != NULL && strcmp(kind, "footer") == 0) {
        json_decref(run->footer);
        run->footer = json_incref(line);
    }
    for (size_t k = 0; kind != NULL && name != NULL && k < OL_N_TESTS; k++) {
        const char *ours = json_string_value(json_object_get(run->records[k], "name"));
        if (strcmp(kind, "test") == 0 && ours != NULL && strcmp(ours, name) == 0) {
            json_decref(run->records[k]);
            run->records[k] = json_incref(line);
        }
    }
}

static bool take_log(ol_run *run, const script *s, ol_fault *fault) {
    const char *at = s->answer;
    while (*at != '\0') {
        size_t n = strcspn(at, "\n");
        json_t *line = json_loadb(at, n, JSON_REJECT_DUPLICATES, NULL);
        if (line == NULL) {
            return ol_fault_set(fault, OL_EXIT_INTERNAL, "a graded log cannot be read");
        }
        take_line(run, line);
        json_decref(line);
        at += n + (at[n] == '\n' ? 1 : 0);
    }
    const char *why = json_string_value(json_object_get(run->footer, "fault"));
    int code = (int)json_integer_value(json_object_get(run->footer, "exit_code"));
    run->exit_code = code;
    return why == NULL || ol_fault_set(fault, code, "%s", why);
}

bool ol_rules_apply(ol_run *run, ol_fault *fault) {
    if (!has_rules(run)) {
        return true;
    }
    script s;
    begin_rules(&s, run, "settle");
    bool ok = call_with_log(&s, run, fault) && take_log(run, &s, fault);
    end(&s);
    return ok;
}

/* ------------------------------------------------------------------ known pitfalls */

/* What each failure looks like into its record, the rest of the answer into the footer. */
static bool take_pitfalls(ol_run *run, const script *s, ol_fault *fault) {
    json_t *answer = json_loadb(s->answer, s->n_answer, JSON_REJECT_DUPLICATES, NULL);
    const json_t *like = json_object_get(answer, "mutant_like");
    if (!json_is_object(like) || !json_is_array(json_object_get(answer, "lines"))) {
        json_decref(answer);
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "%s gave another answer than a diagnosis",
                            s->path);
    }
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        const char *name = json_string_value(json_object_get(run->records[k], "name"));
        json_t *cause = json_object_get(run->records[k], "cause");
        json_t *found = name == NULL ? NULL : json_object_get(like, name);
        if (json_is_object(cause) && found != NULL) {
            (void)json_object_set(cause, "mutant_like", found);
        }
    }
    (void)json_object_del(answer, "mutant_like");
    (void)json_object_set_new(run->footer, "diagnosis", answer);
    return true;
}

void ol_pitfalls_find(ol_run *run) {
    if (run->options->no_hints || run->exit_code != OL_EXIT_FAIL) {
        return;
    }
    script s;
    ol_fault fault = {0};
    begin_script(&s, run, PITFALL_SCRIPT, false);
    add_arg(&s, "answer");
    if (!call_with_log(&s, run, &fault) || !take_pitfalls(run, &s, &fault)) {
        char line[sizeof fault.text + 64];
        ol_format(line, sizeof line, "not compared with the known pitfalls: %.*s",
                  (int)strcspn(fault.text, "\n"), fault.text);
        (void)json_object_set_new(run->footer, "diagnosis",
                                  json_pack("{s:[o]}", "lines", ol_json_text(line)));
    }
    end(&s);
}

void ol_hints_remove(ol_run *run) {
    static const char *const hints[] = {"pitfall", "clause", "mutant_like"};
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        json_t *cause = json_object_get(run->records[k], "cause");
        for (size_t i = 0; json_is_object(cause) && i < sizeof hints / sizeof *hints; i++) {
            (void)json_object_del(cause, hints[i]);
        }
    }
}

char *ol_script_ask(const ol_run *run, const char *name, const char *const *args, size_t n_args,
                    ol_fault *fault) {
    script s;
    begin_script(&s, run, name, true);
    for (size_t i = 0; i < n_args; i++) {
        add_arg(&s, args[i]);
    }
    char *answer = NULL;
    if (call(&s, "", 0, fault)) {
        answer = s.answer;
        s.answer = NULL;
    }
    end(&s);
    return answer;
}

/* ------------------------------------------------------------------ a whole command */

int ol_script_become(const char *script_name, int argc, char **argv) {
    ol_paths paths;
    ol_fault fault = {0};
    char path[4200];
    if (!ol_paths_find(&paths, NULL, &fault)) {
        return ol_complain(&fault);
    }
    ol_format(path, sizeof path, "%s/%s", paths.root, script_name);
    char **args = calloc((size_t)argc + 8, sizeof *args);
    if (args == NULL) {
        (void)ol_fault_set(&fault, OL_EXIT_INTERNAL, "out of memory");
        return ol_complain(&fault);
    }
    static char *const first[] = {PYTHON, "-I", "-S", "-B", "-Xutf8"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        args[n++] = first[i];
    }
    args[n++] = path;
    for (int i = 2; i < argc; i++) {
        args[n++] = argv[i];
    }
    (void)fflush(NULL);
    (void)execv(PYTHON, args);
    (void)ol_fault_set(&fault, OL_EXIT_INTERNAL, "this needs Python 3 as " PYTHON ": %s",
                       strerror(errno));
    free(args);
    return ol_complain(&fault);
}
