/* cmd_golden.c: `ol golden verify` checks a goldens folder as `ol check` does, and that no
 * tolerance is without a reason; `ol golden show` lists what is there. */
#include "commands.h"

#include <stdio.h>
#include <string.h>

static void put_file(const ol_source *source, const ol_vectors *v) {
    ol_fault fault = {0};
    json_t *doc = ol_source_load(source, v->name, &fault);
    const json_t *tolerance = json_object_get(doc, "tolerance");
    const json_t *reference = json_object_get(doc, "reference");
    const json_t *generator = json_object_get(doc, "generator");
    const char *mode = json_string_value(json_object_get(tolerance, "mode"));
    if (doc == NULL || mode == NULL) {
        (void)printf("%s: %s\n", v->name, fault.text);
        json_decref(doc);
        return;
    }
    (void)printf("%-28s %-12s %5zu cases  %-8s sha256 %.16s\n", v->name, v->suite, v->n_cases, mode,
                 v->sha256);
    (void)printf("    from      %s %s, %s on %s\n",
                 json_string_value(json_object_get(reference, "name")),
                 json_string_value(json_object_get(reference, "version")),
                 json_string_value(json_object_get(reference, "dtype")),
                 json_string_value(json_object_get(reference, "device")));
    (void)printf("    made by   %s\n", json_string_value(json_object_get(generator, "command")));
    (void)printf("    tolerance %s\n", json_string_value(json_object_get(tolerance, "derivation")));
    const json_t *groups = json_object_get(doc, "groups");
    for (size_t g = 0; g < json_array_size(groups); g++) {
        const json_t *group = json_array_get(groups, g);
        (void)printf("    group     %s: %zu cases\n",
                     json_string_value(json_object_get(group, "name")),
                     json_array_size(json_object_get(group, "cases")));
    }
    json_decref(doc);
}

static void show(const ol_setup *setup, bool in_full) {
    for (size_t s = 0; s < setup->n_sources; s++) {
        const ol_source *source = &setup->sources[s];
        size_t n_cases = 0;
        for (size_t f = 0; f < source->n_vectors; f++) {
            n_cases += source->vectors[f].n_cases;
            if (in_full) {
                put_file(source, &source->vectors[f]);
            }
        }
        for (size_t m = 0; in_full && m < source->n_models; m++) {
            (void)printf("%s\n", source->models[m]);
        }
        (void)printf("%s: %zu files as the manifest says, %zu vectors files with %zu cases, %zu "
                     "models: good\n",
                     source->dir, source->n_paths, source->n_vectors, n_cases, source->n_models);
    }
}

int ol_cmd_golden(int argc, char **argv) {
    ol_options o;
    ol_fault fault = {0};
    ol_run run = {.options = &o};
    bool ok =
        ol_options_parse(&o, argc, argv, 2, OL_TAKES_GOLDENS, &fault) && ol_take_module(&o, &fault);
    bool is_show = ok && o.n_words == 1 && strcmp(o.words[0], "show") == 0;
    bool is_verify = ok && o.n_words == 1 && strcmp(o.words[0], "verify") == 0;
    if (ok && !is_show && !is_verify) {
        ok = ol_fault_set(&fault, OL_EXIT_USAGE,
                          "ol golden takes verify or show, and --goldens DIR");
    }
    ok = ok && ol_setup_catalog(&run, &o, &fault) && ol_setup_sources(&run, &o, &fault);
    int code = OL_EXIT_PASS;
    if (ok) {
        show(&run.setup, is_show);
    } else {
        code = ol_complain(&fault);
    }
    ol_setup_close(&run);
    return code;
}
