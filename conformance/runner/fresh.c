/* fresh.c: the goldens of `ol check --fresh`: a folder drawn for this run by
 * conformance/fresh/fresh.py, which asks the reference engine, in a process of its own, for what is
 * expected of its models. Only the judge may enter the folder. Of a selection of tests nothing is
 * drawn that they do not read: what is drawn is as it is in the whole. */
#include "commands.h"
#include "views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCRIPT "conformance/fresh/fresh.py"

/* The suites that the selected tests read, "" when they read none. */
static void list_suites(const ol_run *run, char *text, size_t cap) {
    text[0] = '\0';
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        const json_t *suites = run->setup.catalog.tests[k].suites;
        for (size_t i = 0; run->selected[k] && i < json_array_size(suites); i++) {
            size_t len = strlen(text);
            ol_format(text + len, cap - len, "%s%s", len == 0 ? "" : ",",
                      json_string_value(json_array_get(suites, i)));
        }
    }
}

bool ol_fresh_draw(ol_run *run, char dir[4200], ol_fault *fault) {
    ol_paths *paths = &run->setup.paths;
    char seed[16];
    char jobs[16];
    char host[4200];
    char engine[4200];
    char second[4200];
    char suites[512];
    char case_id[512];
    if (!ol_paths_need_run_dir(paths, fault)) {
        return false;
    }
    ol_format(dir, 4200, "%s/fresh", paths->run_dir);
    ol_format(seed, sizeof seed, "%u", (unsigned)run->options->fresh_seed);
    ol_format(jobs, sizeof jobs, "%u", run->jobs);
    ol_format(host, sizeof host, "%s/ol-host", paths->bin_dir);
    ol_format(engine, sizeof engine, "%s/../lib/libtl.so.1", paths->bin_dir);
    ol_format(second, sizeof second, "%s/../lib/libtl-second.so", paths->bin_dir);
    list_suites(run, suites, sizeof suites);
    ol_format(case_id, sizeof case_id, "--case=%s",
              run->setup.case_id == NULL ? "" : run->setup.case_id);
    const char *args[] = {"--seed",   seed,     "--out", dir,        "--host",
                          host,       "--jobs", jobs,    "--engine", engine,
                          "--suites", suites,   case_id, "--second", second};
    size_t n_args = sizeof args / sizeof *args - (access(second, R_OK) == 0 ? 0 : 2);
    char *told = ol_script_ask(run, SCRIPT, args, n_args, fault);
    if (told == NULL) {
        return false;
    }
    run->fresh = json_loads(told, JSON_REJECT_DUPLICATES, NULL);
    free(told);
    /* Never 0, and another one for each seed. */
    run->setup.draw_seed = (run->options->fresh_seed + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);
    return run->fresh != NULL || ol_fault_set(fault, OL_EXIT_INTERNAL, "%s: no answer", SCRIPT);
}
