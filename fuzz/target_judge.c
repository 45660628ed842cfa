/* target_judge.c: what the judge itself reads from strangers: golden files and manifests
 * (fuzz_golden), a testee's frames (fuzz_frames), and what a testee printed on its way into log and
 * reports (fuzz_log).
 *
 * A golden is taken, or refused as exit 5 with one sentence; asked twice, the answer is the same.
 * Frames come out as they went in, numbers and all, and memory follows the bytes that came. A log
 * is JSON lines under its hash, and a JUnit report is XML, whatever the texts hold.
 *
 * Source: conformance/spec/vectors.md, conformance/spec/testee.md. */
#include "fuzz.h"

#include "runner/golden.h"
#include "runner/report.h"
#include "runner/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void set_verdict(fuzz_case *f, const char *word) {
    (void)snprintf(f->verdict, sizeof f->verdict, "%s", word);
}

/* ------------------------------------------------------------------ golden files */

static void check_fault(fuzz_case *f, bool ok, const ol_fault *fault) {
    const bool is_said = fault->exit_code == OL_EXIT_GOLDEN && fault->text[0] != '\0';
    if (ok ? fault->exit_code != 0 : !is_said) {
        (void)fuzz_wrong(f, "the judge: %s, with exit %d: %.200s", ok ? "taken" : "refused",
                         fault->exit_code, fault->text);
    }
}

static void check_vectors(fuzz_case *f, const json_t *doc) {
    static char model[] = "models/m";
    static char config[] = "models/m/config.json";
    static char weights[] = "models/m/model.safetensors";
    char *models[] = {model};
    char *paths[] = {config, weights};
    const ol_source source = {
        .dir = model, .models = models, .n_models = 1, .paths = paths, .n_paths = 2};
    ol_fault fault = {0};
    ol_fault again = {0};
    const bool ok = ol_golden_check(&source, "x.vectors.json", doc, &fault);
    check_fault(f, ok, &fault);
    json_t *copy = json_deep_copy(doc);
    if (copy != NULL && ol_golden_check(&source, "x.vectors.json", copy, &again) != ok) {
        (void)fuzz_wrong(f, "the judge: a golden is taken once and refused once");
    }
    json_decref(copy);
    set_verdict(f, ok ? "OK" : "GOLDEN");
}

/* Manifest and probe are read by name from a folder. */
static void check_in_folder(fuzz_case *f, const char *name, const uint8_t *data, size_t n) {
    char dir[] = "/tmp/fuzz-golden-XXXXXX";
    char path[64];
    ol_fault fault = {0};
    if (mkdtemp(dir) == NULL) {
        return;
    }
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    if (file != NULL && fwrite(data, 1, n, file) == n && fflush(file) == 0) {
        ol_manifest manifest = {0};
        const bool is_probe = name[0] == 'l';
        const bool ok = is_probe ? ol_probe_check(dir, &fault)
                                 : ol_manifest_load(&manifest, dir, &fault) &&
                                       ol_manifest_verify(&manifest, dir, &fault);
        check_fault(f, ok, &fault);
        ol_manifest_clear(&manifest);
        set_verdict(f, ok ? "OK" : "GOLDEN");
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    (void)unlink(path);
    (void)rmdir(dir);
}

static void run_golden(fuzz_case *f, const uint8_t *data, size_t n) {
    json_error_t error;
    json_t *doc =
        json_loadb((const char *)data, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    const char *schema = json_string_value(json_object_get(doc, "schema"));
    if (schema != NULL && strcmp(schema, "ol.manifest/1") == 0) {
        check_in_folder(f, "MANIFEST.json", data, n);
    } else if (schema != NULL && strcmp(schema, "ol.probe/1") == 0) {
        check_in_folder(f, "libm.probe.json", data, n);
    } else if (doc != NULL) {
        check_vectors(f, doc);
    } else {
        set_verdict(f, "JSON");
    }
    json_decref(doc);
}

static size_t mutate_golden(uint8_t *data, size_t n, size_t cap, fuzz_rng *rng) {
    fuzz_text text = {.text = (char *)data, .n = n, .cap = cap};
    for (uint32_t i = fuzz_below(rng, 2) + 1; i > 0; i--) {
        fuzz_mutate_json(&text, fuzz_words_judge, rng);
    }
    return text.n;
}

const fuzz_target fuzz_golden = {.name = "golden", .run = run_golden, .mutate = mutate_golden};

/* ------------------------------------------------------------------ frames */

static void check_scalar(fuzz_case *f, const char *text) {
    uint64_t v = 0;
    char again[OL_WIRE_U64_DIGITS + 1];
    if (ol_wire_u64_parse(text, &v)) {
        ol_wire_u64_text(v, again);
        if (strcmp(text, again) != 0) {
            (void)fuzz_wrong(f, "frames: %.20s comes back as %s", text, again);
        }
    }
}

static void check_array(fuzz_case *f, const json_t *value) {
    static const char *const types[] = {"u8", "i8", "u16", "u32", "u64", "f32", "f64"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t n = 0;
        if (!ol_wire_array_len(value, types[i], &n)) {
            continue;
        }
        uint8_t *bytes = fuzz_alloc(n * ol_wire_type_bytes(types[i]));
        if (ol_wire_array_get(value, types[i], bytes, n)) {
            json_t *again = ol_wire_array(types[i], bytes, n);
            if (json_equal(again, value) != 1) {
                (void)fuzz_wrong(f, "frames: an array of %zu %s does not come back", n, types[i]);
            }
            json_decref(again);
        }
        free(bytes);
    }
}

static void check_frame(fuzz_case *f, const ol_wire_buf *frame) {
    json_error_t error;
    json_t *object =
        json_loadb((const char *)frame->bytes, frame->len, JSON_REJECT_DUPLICATES, &error);
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(object, key, value) {
        if (json_is_string(value)) {
            check_scalar(f, json_string_value(value));
        }
        check_array(f, value);
    }
    json_decref(object);
}

static void run_frames(fuzz_case *f, const uint8_t *data, size_t n) {
    static const char *const words[] = {"OK", "OK", "CUT", "TOO_LONG", "IO", "NOMEM", "NO_JSON"};
    ol_wire_buf frame = {0};
    ol_wire_status status = OL_WIRE_OK;
    size_t at = 0;
    const int fd = memfd_create("frames", 0);
    if (fd < 0 || (n > 0 && write(fd, data, n) != (ssize_t)n) || lseek(fd, 0, SEEK_SET) != 0) {
        (void)close(fd);
        return;
    }
    while ((status = ol_wire_read(fd, &frame)) == OL_WIRE_OK) {
        if (at + 4 + frame.len > n ||
            (frame.len > 0 && memcmp(frame.bytes, data + at + 4, frame.len) != 0)) {
            (void)fuzz_wrong(f, "frames: the frame at %zu is not what was sent", at);
        } else {
            check_frame(f, &frame);
        }
        at += 4 + frame.len;
    }
    if (frame.cap > 2 * n + ((size_t)4 << 20)) {
        (void)fuzz_wrong(f, "frames: %zu bytes of memory for %zu that came", frame.cap, n);
    }
    set_verdict(f, words[status]);
    ol_wire_clear(&frame);
    (void)close(fd);
}

/* The length in front of the first frame is repaired, mostly. */
static size_t mutate_frames(uint8_t *data, size_t n, size_t cap, fuzz_rng *rng) {
    if (n < 4 || cap < 64) {
        return n;
    }
    fuzz_text text = {.text = (char *)data + 4, .n = n - 4, .cap = cap - 4};
    fuzz_mutate_json(&text, fuzz_words_judge, rng);
    if (!fuzz_chance(rng, 8)) {
        ol_wire_put_len(data, (uint32_t)text.n);
    }
    return text.n + 4;
}

const fuzz_target fuzz_frames = {.name = "frames", .run = run_frames, .mutate = mutate_frames};

/* ------------------------------------------------------------------ log and reports */

/* One test's record with a stranger's texts. */
static json_t *record_of(const char *text, const char *cls, size_t number) {
    return json_pack("{s:s, s:I, s:s, s:s, s:I, s:{s:o, s:s, s:s, s:o}, s:o, s:o, s:o}", "kind",
                     "test", "number", (json_int_t)number, "name", "a_test", "class", cls,
                     "wall_ms", (json_int_t)3, "cause", "rationale", ol_json_text(text), "clause",
                     "kv#ids", "pitfall", "none", "case", ol_json_text(text), "stdout_tail",
                     ol_json_text(text), "stderr_tail", ol_json_text(text), "replay",
                     ol_json_text(text));
}

/* XML as far as it can be broken by texts: no byte that XML lacks, every < opens a tag that ends,
 * as many ends as starts. */
static bool is_xml(const char *text, size_t n) {
    long depth = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < 0x20 && c != '\n' && c != '\t') {
            return false;
        }
        if (c != '<') {
            continue;
        }
        const char *end = memchr(text + i, '>', n - i);
        if (end == NULL || memchr(text + i + 1, '<', (size_t)(end - text) - i - 1) != NULL) {
            return false;
        }
        depth += text[i + 1] == '/' ? -1 : text[i + 1] == '?' || end[-1] == '/' ? 0 : 1;
        i = (size_t)(end - text);
    }
    return depth == 0;
}

static void check_lines(fuzz_case *f, const char *text, size_t n) {
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        json_error_t error;
        json_t *line =
            end == NULL ? NULL : json_loadb(text + at, (size_t)(end - text) - at, 0, &error);
        if (!json_is_object(line)) {
            (void)fuzz_wrong(f, "log: the line at %zu is no object", at);
            json_decref(line);
            return;
        }
        json_decref(line);
        at = (size_t)(end - text) + 1;
    }
}

static void check_views(fuzz_case *f, const ol_run *run) {
    size_t n = 0;
    char *text = ol_log_text(run, &n);
    if (text == NULL || n == 0 || text[n - 1] != '\n') {
        (void)fuzz_wrong(f, "log: there is none");
    } else {
        check_lines(f, text, n);
    }
    free(text);
    text = ol_junit_make(run, false, &n);
    if (text == NULL || !is_xml(text, n)) {
        (void)fuzz_wrong(f, "junit: it is no XML");
    }
    free(text);
    text = ol_report_make(run, OL_REPORT_TEXT, false, &n);
    if (text == NULL || n == 0) {
        (void)fuzz_wrong(f, "text: there is none");
    }
    free(text);
}

/* Texts end at NUL; each becomes one record. */
static void run_log(fuzz_case *f, const uint8_t *data, size_t n) {
    static const ol_options options = {.root = ""};
    static const char *const classes[] = {"fail", "crash", "pass", "no-result"};
    ol_run *run = fuzz_alloc(sizeof *run);
    char *text = fuzz_alloc(n + 1);
    json_t *kinds = json_pack("[s]", "unit");
    json_t *none = json_array();
    memcpy(text, data, n);
    run->options = &options;
    size_t at = 0;
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        ol_test_def *def = &run->setup.catalog.tests[k];
        *def = (ol_test_def){.number = k + 1,
                             .name = "a_test",
                             .kinds = kinds,
                             .suites = none,
                             .mutants = none,
                             .module = "kv",
                             .clause = "kv#ids",
                             .title = "t",
                             .why = "w",
                             .pitfall = "p"};
        if (at < n) {
            run->selected[k] = true;
            run->n_selected++;
            run->records[k] = record_of(text + at, classes[k % 4], k + 1);
            at += strlen(text + at) + 1;
        }
    }
    run->exit_code = OL_EXIT_FAIL;
    run->header = json_pack("{s:s, s:s, s:{s:o, s:b}, s:{s:o}}", "schema", "ol.result/1", "started",
                            "now", "mode", "sandbox", ol_json_text(text), "complete", 0, "engine",
                            "name", ol_json_text(text));
    run->footer = ol_log_footer(run);
    check_views(f, run);
    for (size_t k = 0; k < OL_N_TESTS; k++) {
        json_decref(run->records[k]);
    }
    json_decref(run->header);
    json_decref(run->footer);
    json_decref(kinds);
    json_decref(none);
    free(text);
    free(run);
}

const fuzz_target fuzz_log = {.name = "log", .run = run_log};
