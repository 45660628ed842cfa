/* setup.c: from options to a run that can start; see commands.h.
 *
 * Order: what is cheap and the caller's mistake first, then the goldens, then the engine. Nothing
 * is graded on a broken golden, so all of them are checked whatever is selected. */
#include "commands.h"

#include "build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool ol_take_module(ol_options *o, ol_fault *fault) {
    if (o->n_words > 0 && strcmp(o->words[0], OL_MODULE) == 0) {
        o->n_words--;
        memmove(o->words, o->words + 1, o->n_words * sizeof *o->words);
    }
    for (size_t i = 0; i < o->n_words; i++) {
        if (o->words[i][0] == 'L' && strpbrk(o->words[i], "0123456789") == o->words[i] + 1) {
            return ol_fault_set(fault, OL_EXIT_USAGE,
                                "there is no module %s here; this is " OL_MODULE, o->words[i]);
        }
    }
    return true;
}

bool ol_setup_catalog(ol_run *run, const ol_options *o, ol_fault *fault) {
    ol_setup *setup = &run->setup;
    char path[4200];
    if (!ol_paths_find(&setup->paths, o->root, fault)) {
        return false;
    }
    ol_format(path, sizeof path, "%s/conformance/catalog.json", setup->paths.root);
    return ol_catalog_load(&setup->catalog, path, fault);
}

/* The published goldens come first, or those of --fresh in their place, since tests take their
 * models from the first source; --goldens adds folders. A course may ship without the published. */
bool ol_setup_sources(ol_run *run, const ol_options *o, ol_fault *fault) {
    ol_setup *setup = &run->setup;
    char published[4200];
    ol_format(published, sizeof published, "%s/goldens", setup->paths.root);
    if (o->fresh && !ol_fresh_draw(run, published, fault)) {
        return false;
    }
    bool has_published = o->n_goldens == 0 || access(published, F_OK) == 0;
    setup->sources = calloc(o->n_goldens + 1, sizeof *setup->sources);
    if (setup->sources == NULL) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "out of memory");
    }
    if (has_published && !ol_source_open(&setup->sources[setup->n_sources++], published, fault)) {
        return false;
    }
    for (size_t i = 0; i < o->n_goldens; i++) {
        char *real = realpath(o->goldens[i], NULL);
        const char *first = setup->sources[0].dir;
        bool is_known = real != NULL && first != NULL && strcmp(real, first) == 0;
        free(real);
        if (!is_known &&
            !ol_source_open(&setup->sources[setup->n_sources++], o->goldens[i], fault)) {
            return false;
        }
    }
    return true;
}

static void open_sandbox(ol_setup *setup) {
    ol_sandbox *sandbox = &setup->sandbox;
    ol_sandbox_probe(sandbox);
    for (size_t s = 0;
         s < setup->n_sources && sandbox->n_hide < sizeof sandbox->hide / sizeof *sandbox->hide;
         s++) {
        sandbox->hide[sandbox->n_hide++] = setup->sources[s].dir;
    }
}

bool ol_setup_begin(ol_run *run, const ol_options *o, ol_fault *fault) {
    ol_catch_interrupts();
    *run = (ol_run){.options = o, .start_ns = ol_now_ns(), .n_oom = ol_oom_kills()};
    ol_setup *setup = &run->setup;
    setup->limits = ol_limits_default();
    if (o->timeout_s > 0) {
        setup->limits.wall_s = o->timeout_s;
    }
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    run->jobs = o->jobs != 0 ? o->jobs : n_cpus > 0 && n_cpus < 256 ? (unsigned)n_cpus : 1;
    setup->strict = o->strict || o->engine == NULL;
    return ol_setup_catalog(run, o, fault) && ol_run_select(run, fault);
}

bool ol_setup_goldens(ol_run *run, ol_fault *fault) {
    if (!ol_setup_sources(run, run->options, fault)) {
        return false;
    }
    open_sandbox(&run->setup);
    return true;
}

static bool open_engine(ol_setup *setup, const ol_options *o, ol_fault *fault) {
    ol_engine *engine = &setup->engine;
    ol_engine_kind kind = o->engine == NULL ? OL_ENGINE_BUILTIN : o->kind;
    if (kind != OL_ENGINE_SOURCES) {
        return (o->ref_deps == NULL ||
                ol_fault_set(fault, OL_EXIT_USAGE,
                             "--ref-deps goes with a folder of sources (--engine DIR)")) &&
               ol_engine_open(engine, &setup->paths, kind, o->engine, o->wrap, fault);
    }
    char library[4096];
    char borrowed[sizeof engine->borrowed];
    /* What does not build is named in the reports, too. */
    engine->kind = kind;
    ol_format(engine->given, sizeof engine->given, "%s", o->engine);
    if (!ol_build_sources(setup, o->engine, o->ref_deps, library, borrowed, sizeof borrowed,
                          fault) ||
        !ol_engine_open(engine, &setup->paths, kind, library, o->wrap, fault)) {
        return false;
    }
    ol_format(engine->given, sizeof engine->given, "%s", o->engine);
    ol_format(engine->borrowed, sizeof engine->borrowed, "%s", borrowed);
    return true;
}

bool ol_setup_engine(ol_run *run, ol_fault *fault) {
    ol_setup *setup = &run->setup;
    const ol_options *o = run->options;
    if (!ol_paths_need_run_dir(&setup->paths, fault) || !open_engine(setup, o, fault)) {
        return false;
    }
    setup->engine.interactive = o->wrap != NULL && o->case_id != NULL && isatty(STDIN_FILENO) != 0;
    if (o->wrap != NULL) {
        setup->limits.address_max = 0; /* a debugger or Valgrind lays out memory of its own */
        setup->limits.resident_max *= 4;
    }
    /* Only to time it, if a test runs beyond its limit; without it the plain limit stands. */
    ol_fault none = {0};
    if (setup->engine.kind != OL_ENGINE_BUILTIN) {
        (void)ol_engine_open(&setup->reference, &setup->paths, OL_ENGINE_BUILTIN, NULL, NULL,
                             &none);
    }
    if (none.exit_code != 0) {
        ol_engine_clear(&setup->reference);
    }
    return true;
}

void ol_setup_close(ol_run *run) {
    ol_setup *setup = &run->setup;
    ol_engine_clear(&setup->engine);
    ol_engine_clear(&setup->reference);
    for (size_t s = 0; s < setup->n_sources; s++) {
        ol_source_clear(&setup->sources[s]);
    }
    free(setup->sources);
    ol_catalog_clear(&setup->catalog);
    ol_paths_remove_run_dir(&setup->paths);
    ol_run_clear(run);
}
