/* log.c: header and footer of the log `ol.result/1`, and the log as JSON lines.
 *
 * A line a record: one header, a test line for each selected test in the order of the catalogue,
 * one footer. The footer holds the hash of all bytes before it: a log without a footer, or with
 * another hash, is not a log. */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#ifndef OL_COMMIT
#define OL_COMMIT ""
#endif

static json_t *goldens_json(const ol_setup *setup) {
    json_t *list = json_array();
    for (size_t s = 0; s < setup->n_sources; s++) {
        const ol_source *source = &setup->sources[s];
        (void)json_array_append_new(list,
                                    json_pack("{s:o, s:s}", "path", ol_json_text("MANIFEST.json"),
                                              "sha256", source->sha256));
        for (size_t f = 0; f < source->n_vectors; f++) {
            const ol_vectors *v = &source->vectors[f];
            (void)json_array_append_new(
                list, json_pack("{s:o, s:s, s:s, s:I}", "path", ol_json_text(v->name), "suite",
                                v->suite, "sha256", v->sha256, "n_cases", (json_int_t)v->n_cases));
        }
    }
    return list;
}

static json_t *engine_json(const ol_engine *engine) {
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:I, s:s, s:b, s:o}", "kind",
                     ol_engine_kind_name(engine->kind), "given", ol_json_text(engine->given),
                     "name", ol_json_text(engine->name), "version", ol_json_text(engine->version),
                     "language", ol_json_text(engine->language), "abi", (json_int_t)engine->abi,
                     "sha256", engine->sha256, "sanitized", (int)engine->sanitized, "borrowed",
                     ol_json_text(engine->borrowed));
}

/* The first "model name" of /proc/cpuinfo, "" where there is none. */
static void cpu_name(char *text, size_t cap) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    text[0] = '\0';
    while (file != NULL && text[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (colon != NULL) {
            ol_format(text, cap, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

static json_t *host_json(void) {
    struct utsname u = {.sysname = ""};
    char cpu[200];
    (void)uname(&u);
    cpu_name(cpu, sizeof cpu);
#if defined(__clang__)
    const char *compiler = "clang " __clang_version__;
#else
    const char *compiler = "gcc " __VERSION__;
#endif
    return json_pack("{s:o, s:o, s:o, s:o, s:s}", "os", ol_json_text(u.sysname), "release",
                     ol_json_text(u.release), "arch", ol_json_text(u.machine), "cpu",
                     ol_json_text(cpu), "compiler", compiler);
}

static json_t *selected_json(const ol_run *run) {
    json_t *list = json_array();
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        if (run->selected[k]) {
            (void)json_array_append_new(list, json_string(run->setup.catalog.tests[k].name));
        }
    }
    return list;
}

static bool is_complete(const ol_run *run) {
    return run->n_selected == OL_N_TESTS && run->setup.case_id == NULL;
}

static json_t *mode_json(const ol_run *run) {
    const ol_setup *setup = &run->setup;
    const ol_limits *l = &setup->limits;
    char have[256];
    char lack[512];
    ol_sandbox_text(&setup->sandbox, have, sizeof have, lack, sizeof lack);
    json_t *limits =
        json_pack("{s:f, s:f, s:I, s:I, s:I}", "wall_s", l->wall_s, "cpu_factor", l->cpu_factor,
                  "memory_mb", (json_int_t)(l->resident_max >> 20), "address_mb",
                  (json_int_t)(setup->engine.sanitized ? 0 : l->address_max >> 20), "file_mb",
                  (json_int_t)(l->file_max >> 20));
    char seed[16] = "";
    ol_format(seed, sizeof seed, "%u", (unsigned)run->options->fresh_seed);
    return json_pack("{s:b, s:b, s:o, s:o?, s:o?, s:O?, s:o, s:o, s:o, s:b, s:o?}", "complete",
                     (int)is_complete(run), "strict", (int)setup->strict, "selected",
                     selected_json(run), "case",
                     setup->case_id == NULL ? NULL : ol_json_text(setup->case_id), "fresh_seed",
                     run->options->fresh ? json_string(seed) : NULL, "fresh", run->fresh, "sandbox",
                     ol_json_text(have), "sandbox_lacks", ol_json_text(lack), "limits", limits,
                     "exec_allowed", (int)setup->engine.may_exec, "wrap",
                     run->options->wrap == NULL ? NULL : ol_json_text(run->options->wrap));
}

static void utc(char text[32]) {
    time_t now = time(NULL);
    struct tm parts;
    (void)gmtime_r(&now, &parts);
    (void)strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

json_t *ol_log_header(const ol_run *run) {
    char now[32];
    utc(now);
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:s}, s:s, s:{s:i, s:s}, s:o, s:o, s:o, s:o, s:s}",
                     "schema", "ol.result/1", "kind", "header", "harness", "name", OL_HARNESS_NAME,
                     "version", OL_HARNESS_VERSION, "commit", OL_COMMIT, "module", OL_MODULE,
                     "catalog", "tests", OL_N_TESTS, "sha256", run->setup.catalog.sha256, "goldens",
                     goldens_json(&run->setup), "engine", engine_json(&run->setup.engine), "host",
                     host_json(), "mode", mode_json(run), "started", now);
}

static const char *verdict_of(const ol_run *run) {
    switch (run->exit_code) {
    case OL_EXIT_PASS:
        return "pass";
    case OL_EXIT_FAIL:
        return "fail";
    case OL_EXIT_INTERNAL:
        return "harness-error";
    default:
        return "ungradable";
    }
}

/* CPU time and largest process of the judge itself, workers included. */
static json_t *own_cost(const ol_run *run) {
    struct rusage own = {.ru_maxrss = 0};
    (void)getrusage(RUSAGE_SELF, &own);
    json_int_t us = (json_int_t)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) * 1000000 +
                    own.ru_utime.tv_usec + own.ru_stime.tv_usec;
    json_int_t rss = own.ru_maxrss;
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        const json_t *judge = json_object_get(run->records[k], "judge");
        json_int_t worker = json_integer_value(json_object_get(judge, "max_rss_kb"));
        us += json_integer_value(json_object_get(judge, "cpu_us"));
        rss = worker > rss ? worker : rss;
    }
    return json_pack("{s:I, s:I}", "cpu_ms", us / 1000, "max_rss_kb", rss);
}

json_t *ol_log_footer(const ol_run *run) {
    json_t *totals = json_object();
    int n_executed = 0;
    for (int c = 0; c < OL_N_CLASSES; c++) {
        (void)json_object_set_new(totals, ol_class_name((ol_class)c), json_integer(0));
    }
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        const char *cls = json_string_value(json_object_get(run->records[k], "class"));
        if (cls != NULL) {
            json_int_t n = json_integer_value(json_object_get(totals, cls));
            (void)json_object_set_new(totals, cls, json_integer(n + 1));
            n_executed++;
        }
    }
    return json_pack("{s:s, s:o, s:i, s:i, s:i, s:b, s:s, s:i, s:o?, s:I, s:o}", "kind", "footer",
                     "totals", totals, "executed", n_executed, "selected", (int)run->n_selected,
                     "expected", OL_N_TESTS, "complete", (int)is_complete(run), "verdict",
                     verdict_of(run), "exit_code", run->exit_code, "fault",
                     run->fault.exit_code == 0 ? NULL : ol_json_text(run->fault.text), "wall_ms",
                     (json_int_t)((ol_now_ns() - run->start_ns) / 1000000), "judge", own_cost(run));
}

/* ------------------------------------------------------------------ lines */

static bool add_line(FILE *to, ol_sha256 *hash, const json_t *value) {
    char *line = json_dumps(value, JSON_COMPACT);
    if (line == NULL) {
        return false;
    }
    size_t n = strlen(line);
    line[n] = '\n'; /* in place of the NUL: bytes with a length from here on */
    ol_sha256_add(hash, line, n + 1);
    bool ok = fwrite(line, 1, n + 1, to) == n + 1;
    free(line);
    return ok;
}

char *ol_log_text(const ol_run *run, size_t *n_bytes) {
    char *text = NULL;
    FILE *to = open_memstream(&text, n_bytes);
    if (to == NULL) {
        return NULL;
    }
    ol_sha256 hash;
    char sha256[OL_SHA256_TEXT];
    ol_sha256_init(&hash);
    bool ok = run->header == NULL || add_line(to, &hash, run->header);
    for (size_t k = 0; ok && k < OL_N_TESTS; k++) {
        ok = run->records[k] == NULL || add_line(to, &hash, run->records[k]);
    }
    if (run->footer != NULL) {
        ol_sha256_text(&hash, sha256);
        (void)json_object_set_new(run->footer, "sha256_of_lines", json_string(sha256));
        ok = ok && add_line(to, &hash, run->footer);
    }
    if (fclose(to) != 0 || !ok) {
        free(text);
        return NULL;
    }
    return text;
}
