/* cmd_doctor.c: `ol doctor`: what this machine can do, and what is lacking. Always exit 0 when it
 * could look: a lack is said, not judged. */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool find_program(const char *name, char path[4096]) {
    const char *places = getenv("PATH");
    for (const char *at = places == NULL ? "" : places; *at != '\0';) {
        size_t n = strcspn(at, ":");
        ol_format(path, 4096, "%.*s/%s", (int)n, at, name);
        if (access(path, X_OK) == 0) {
            return true;
        }
        at += n + (at[n] == ':' ? 1 : 0);
    }
    return false;
}

static void put(const char *what, const char *text) {
    (void)printf("  %-22s%s\n", what, text);
}

static void put_programs(void) {
    static const struct {
        const char *name;
        const char *use;
    } programs[] = {{"gcc", "builds a folder of sources"},
                    {"clang", "fuzzing"},
                    {"gcovr", "coverage"},
                    {"valgrind", "--wrap valgrind"},
                    {"gdb", "--wrap 'gdb --args'"},
                    {"python3", "testees in Python"}};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        char path[4096];
        char text[4400];
        bool there = find_program(programs[i].name, path);
        ol_format(text, sizeof text, "%s (%s)", there ? path : "not here", programs[i].use);
        put(programs[i].name, text);
    }
}

static void put_sandbox(void) {
    ol_sandbox sandbox;
    char have[256];
    char lack[512];
    char text[128];
    ol_sandbox_probe(&sandbox);
    ol_sandbox_text(&sandbox, have, sizeof have, lack, sizeof lack);
    put("sandbox", have);
    put("lacks", lack[0] == '\0' ? "nothing" : lack);
    put("running as", geteuid() == 0 ? "root: the engine is dropped to a uid without rights"
                                     : "an ordinary user");
    put("seccomp",
        sandbox.seccomp ? "yes" : "no: exec, fork, sockets and signals to others are not stopped");
    ol_format(text, sizeof text, sandbox.landlock_abi > 0 ? "version %d" : "no",
              sandbox.landlock_abi);
    put("landlock", text);
    put("mount namespace", geteuid() != 0     ? "not as an ordinary user"
                           : sandbox.mount_ns ? "yes"
                                              : "no");
    ol_limits l = ol_limits_default();
    ol_format(text, sizeof text, "%.0f s, %llu MiB memory, %llu MiB output, %u descriptors",
              l.wall_s, (unsigned long long)(l.resident_max >> 20),
              (unsigned long long)(l.output_max >> 20), l.descriptors_max);
    put("limits of a test", text);
}

static void put_installation(const ol_paths *paths) {
    char file[4400];
    put("project", paths->root);
    ol_format(file, sizeof file, "%s/ol-host", paths->bin_dir);
    put("ol-host", access(file, X_OK) == 0 ? file : "not built");
    ol_format(file, sizeof file, "%s/../lib/libtl.so.1", paths->bin_dir);
    put("built-in engine", access(file, R_OK) == 0 ? file : "not built");
}

static void put_goldens(ol_run *run, const ol_options *o) {
    ol_fault fault = {0};
    if (ol_setup_sources(run, o, &fault)) {
        char text[128];
        ol_format(text, sizeof text, "good, %zu files", run->setup.sources[0].n_paths);
        put("goldens", text);
    } else {
        put("goldens", fault.text);
    }
}

int ol_cmd_doctor(int argc, char **argv) {
    ol_options o;
    ol_fault fault = {0};
    ol_run run = {.options = &o};
    bool ok =
        ol_options_parse(&o, argc, argv, 2, OL_TAKES_GOLDENS, &fault) && ol_take_module(&o, &fault);
    if (ok && o.n_words > 0) {
        ok = ol_fault_set(&fault, OL_EXIT_USAGE, "%s: ol doctor takes no words", o.words[0]);
    }
    ok = ok && ol_setup_catalog(&run, &o, &fault);
    if (!ok) {
        int code = ol_complain(&fault);
        ol_setup_close(&run);
        return code;
    }
    (void)printf("ol " OL_HARNESS_VERSION "\n");
    put_installation(&run.setup.paths);
    put_goldens(&run, &o);
    put_sandbox();
    put_programs();
    (void)fflush(stdout);
    ol_setup_close(&run);
    return OL_EXIT_PASS;
}
