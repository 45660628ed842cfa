/* replay.c: run targets on files, without any fuzzing engine.
 *
 *   fuzz-replay [--lib LIBRARY] [--list] TARGET FILE_OR_FOLDER...
 *
 * For each file one line: verdict, a tab, the path, a tab, what is wrong (empty when nothing is).
 * A file on which the target crashes ends this process; the line before it names the file, so that
 * a driver (fuzz.py) can go on behind it. --lib replays another library with the public interface
 * instead of the engine that is linked in. Exit: 0 nothing wrong, 1 something, 2 usage, 70 the
 * harness. */
#include "fuzz.h"

#include "host/host.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MAX ((size_t)256 << 20)

static const fuzz_target *const targets[] = {&fuzz_safetensors, &fuzz_index,
                                             &fuzz_config,      &fuzz_checkpoint,
                                             &fuzz_kv_import,   &fuzz_kv_calls,
                                             &fuzz_quant,       &fuzz_sampler,
                                             &fuzz_forward,     &fuzz_golden,
                                             &fuzz_frames,      &fuzz_log,
                                             &fuzz_crash,       NULL};

static const fuzz_target *find_target(const char *name) {
    for (size_t i = 0; targets[i] != NULL; i++) {
        if (strcmp(targets[i]->name, name) == 0) {
            return targets[i];
        }
    }
    return NULL;
}

static uint8_t *read_file(const char *path, size_t *n) {
    struct stat info;
    FILE *file = fopen(path, "rb");
    if (file == NULL || fstat(fileno(file), &info) != 0 || (size_t)info.st_size > FILE_MAX) {
        (void)fprintf(stderr, "fuzz-replay: cannot read %s\n", path);
        exit(70);
    }
    *n = (size_t)info.st_size;
    uint8_t *bytes = fuzz_alloc(*n);
    if (*n > 0 && fread(bytes, 1, *n, file) != *n) {
        (void)fprintf(stderr, "fuzz-replay: cannot read all of %s\n", path);
        exit(70);
    }
    (void)fclose(file);
    return bytes;
}

static bool run_file(const host_api *tl, const fuzz_target *target, const char *path) {
    fuzz_case f = {.tl = tl, .second = &fuzz_second_api};
    size_t n = 0;
    uint8_t *bytes = read_file(path, &n);
    /* Said before: after a crash this is the last thing that is known. */
    (void)printf("> %s\n", path);
    (void)fflush(stdout);
    fuzz_run(&f, target, bytes, n);
    (void)printf("%s\t%s\t%s\n", f.verdict, path, f.wrong);
    free(bytes);
    return f.wrong[0] == '\0';
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

/* A file, or every file of a folder in the order of names. */
static bool run_path(const host_api *tl, const fuzz_target *target, const char *path) {
    struct dirent **entries = NULL;
    const int n = scandir(path, &entries, is_visible, alphasort);
    bool ok = true;
    if (n < 0) {
        return run_file(tl, target, path);
    }
    for (int i = 0; i < n; i++) {
        char full[4096];
        (void)snprintf(full, sizeof full, "%s/%s", path, entries[i]->d_name);
        ok = run_file(tl, target, full) && ok;
        free(entries[i]);
    }
    free(entries);
    return ok;
}

static int usage(void) {
    (void)fprintf(stderr,
                  "fuzz-replay [--lib LIBRARY] TARGET FILE_OR_FOLDER...; fuzz-replay --list\n");
    return 2;
}

int main(int argc, char **argv) {
    static host_api other;
    const host_api *tl = &fuzz_engine_api;
    int at = 1;
    if (at < argc && strcmp(argv[at], "--list") == 0) {
        for (size_t i = 0; targets[i] != NULL; i++) {
            (void)printf("%s\n", targets[i]->name);
        }
        return 0;
    }
    if (at + 1 < argc && strcmp(argv[at], "--lib") == 0) {
        char text[HOST_TEXT_CAP];
        if (!host_load(&other, argv[at + 1], text)) {
            (void)fprintf(stderr, "fuzz-replay: %s\n", text);
            return 70;
        }
        tl = &other;
        at += 2;
    }
    const fuzz_target *target = at < argc ? find_target(argv[at]) : NULL;
    bool ok = true;
    if (target == NULL || at + 1 >= argc) {
        return usage();
    }
    for (int i = at + 1; i < argc; i++) {
        ok = run_path(tl, target, argv[i]) && ok;
    }
    return ok ? 0 : 1;
}
