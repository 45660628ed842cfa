/* main.c: `ol`, the judge: the table of its commands.
 *
 * The exit code says whose move it is (`ol explain EXIT`); it is computed here, in a process that
 * never loads engine code. */
#include "commands.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage;
    const char *what;
} command;

static const command commands[] = {
    {"start", ol_cmd_start, "start L10.1 [--into DIR]",
     "stubs of the modules to be written; never over a file"},
    {"check", ol_cmd_check,
     "check L10.1 [--engine LIBRARY|DIR] [--testee PROGRAM] [--only GLOB]... [--kind K]...",
     "judge an engine; the project's own one when none is given"},
    {"tests", ol_cmd_tests, "tests L10.1 [--json] [--unproven] [--kind K]...",
     "the catalogue: names, kinds, checks, mutants, why each matters"},
    {"parity", ol_cmd_parity, "parity sampler rng [--engine X]",
     "the first draw that differs, both bit patterns"},
    {"mutants", ol_cmd_mutants, "mutants [ID...|all] [--matrix] [--shard K/N] [-j N]",
     "named wrong engines, each to be caught by its own test"},
    {"fuzz", ol_cmd_fuzz, "fuzz TARGET [--seconds N]",
     "libFuzzer where clang is there, else a replay of the corpus"},
    {"coverage", ol_cmd_coverage, "coverage", "lines, branches and functions, against floors"},
    {"golden", ol_cmd_golden, "golden verify|show [--goldens DIR]",
     "check hashes, schema and counts; list what is there"},
    {"explain", ol_cmd_explain, "explain NAME|CLASS|EXIT",
     "what a test, a class or an exit code means"},
    {"report", ol_cmd_report, "report convert FORMAT LOG | show LOG | merge LOG... | class LOG...",
     "logs to any format, shards to one log, a whole class as one table"},
    {"doctor", ol_cmd_doctor, "doctor", "what this machine can do"},
};

static int usage(FILE *to) {
    (void)fprintf(to, "ol " OL_HARNESS_VERSION ": the judge of a model runner\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        (void)fprintf(to, "  ol %s\n      %s\n", commands[i].usage, commands[i].what);
    }
    (void)fprintf(
        to, "\n"
            "options of check\n"
            "  --strict            demand what only this project's own pages promise (on for the "
            "built-in engine)\n"
            "  --case TEST:ID      one case of one test\n"
            "  --goldens DIR       run the vectors files of another folder, too\n"
            "  --fresh [SEED]      draw all inputs anew; the seed is printed and repeats them\n"
            "  --ref-deps[=M,...]  take modules that a source folder lacks, or these, from the "
            "reference\n"
            "  -j N                tests at a time (one for each processor)\n"
            "  --timeout S         seconds of a test (60)\n"
            "  --report F[:PATH]   text, jsonl, junit, tap, gradescope, exercism, prairielearn, "
            "github, md\n"
            "                      or html; may be repeated\n"
            "  --grade POLICY      points, by a policy file; needs a whole run\n"
            "  --expect FILE       known failures with reasons; what is listed must fail, the rest "
            "pass\n"
            "  --visibility WORD   for Gradescope: visible, hidden, after_due_date, "
            "after_published\n"
            "  --wrap 'CMD'        run the engine's process under a command\n"
            "  --no-hints          no pitfalls and pointers with the failures\n"
            "  --root DIR          the project's folder, when ol has been moved (also OL_ROOT)\n");
    return to == stdout ? OL_EXIT_PASS : OL_EXIT_USAGE;
}

static int unknown(const char *name) {
    const char *best = commands[0].name;
    for (size_t i = 1; i < sizeof commands / sizeof *commands; i++) {
        if (ol_edit_distance(name, commands[i].name) < ol_edit_distance(name, best)) {
            best = commands[i].name;
        }
    }
    (void)fprintf(stderr, "ol: there is no command %s; did you mean %s? (ol help lists them)\n",
                  name, best);
    return OL_EXIT_USAGE;
}

/* No child reads this process's memory, whatever its uid. (The leak sanitizer opens it again for
 * itself, at the end, when no engine is left.) */
static void close_memory(void) {
#ifndef OL_COVERAGE
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
}

/* Whoever starts us with a standard descriptor closed must not find a pipe of ours in its place. */
static bool fill_descriptors(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    return fd >= 0 && close(fd) == 0;
}

/* The commands that are scripts answer --help themselves. */
static bool is_script(const command *c) {
    return c->run == ol_cmd_start || c->run == ol_cmd_mutants || c->run == ol_cmd_fuzz ||
           c->run == ol_cmd_report;
}

static bool asks_for_help(int argc, char **argv) {
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

static int command_help(const command *c) {
    if (c->run == ol_cmd_check) {
        return usage(stdout);
    }
    (void)printf("ol %s\n    %s\n", c->usage, c->what);
    return OL_EXIT_PASS;
}

static int run_command(int argc, char **argv) {
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        return usage(stdout);
    }
    if (strcmp(name, "--version") == 0) {
        (void)printf("ol " OL_HARNESS_VERSION "\n");
        return OL_EXIT_PASS;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            bool help = !is_script(&commands[i]) && asks_for_help(argc, argv);
            return help ? command_help(&commands[i]) : commands[i].run(argc, argv);
        }
    }
    return unknown(name);
}

/* Words that were lost, on a full disk or to a reader who left, are no success. */
static int check_output(int code) {
    if (fflush(stdout) == 0 && ferror(stdout) == 0) {
        return code;
    }
    (void)fprintf(stderr, "ol: standard output cannot be written\n");
    return ol_exit_worse(code, OL_EXIT_INTERNAL);
}

int main(int argc, char **argv) {
    if (!fill_descriptors()) {
        return OL_EXIT_INTERNAL;
    }
    if (argc < 2) {
        return usage(stderr);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    close_memory();
    ol_end_without_memory();
    return check_output(run_command(argc, argv));
}
