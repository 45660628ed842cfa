/* replay.c: run targets on files, without any fuzzing engine.
 *
 *   fuzz-replay [--lib LIBRARY] [--disk FOLDER] [--refuse] TARGET FILE_OR_FOLDER...
 *   fuzz-replay --measure TARGET FILE
 *   fuzz-replay --list
 *
 * For each file one line: verdict, a tab, the path, a tab, what is wrong (empty when nothing is).
 * A file on which the target crashes ends this process; the line before it names the file, so that
 * a driver (fuzz.py) can go on behind it. --lib replays another library with the public interface
 * instead of the engine that is linked in; --disk reads the same from files in an empty folder,
 * too; --refuse lets the engine run short of memory at each of its allocations in turn. --measure
 * reads the file once and prints status, seconds, bytes of the engine at the most, and its
 * sentence. Exit: 0 nothing wrong, 1 something, 2 usage, 70 the harness. */
#include "fuzz.h"

#include "host/host.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

/* What the command line asks for. */
typedef struct options {
    const host_api *tl;
    const char *disk;
    bool refuse, measure;
} options;

static bool run_file(const options *o, const fuzz_target *target, const char *path) {
    fuzz_case f = {.tl = o->tl, .second = &fuzz_second_api, .disk = o->disk};
    size_t n = 0;
    uint8_t *bytes = read_file(path, &n);
    /* Said before: after a crash this is the last thing that is known. */
    (void)printf("> %s\n", path);
    (void)fflush(stdout);
    fuzz_run(&f, target, bytes, n);
    if (o->refuse && target->read != NULL) {
        fuzz_run_short_of_memory(&f, target, bytes, n);
    }
    (void)printf("%s\t%s\t%s\n", f.verdict, path, f.wrong);
    free(bytes);
    return f.wrong[0] == '\0';
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

/* A file, or every file of a folder in the order of names. */
static bool run_path(const options *o, const fuzz_target *target, const char *path) {
    struct dirent **entries = NULL;
    const int n = scandir(path, &entries, is_visible, alphasort);
    bool ok = true;
    if (n < 0) {
        return run_file(o, target, path);
    }
    for (int i = 0; i < n; i++) {
        char full[4096];
        (void)snprintf(full, sizeof full, "%s/%s", path, entries[i]->d_name);
        ok = run_file(o, target, full) && ok;
        free(entries[i]);
    }
    free(entries);
    return ok;
}

/* Of this process: what else the machine does is no part of it. */
static double cpu_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The file is mapped, as the engine itself would have it: its bytes are nobody's memory. */
static bool measure(const host_api *tl, const fuzz_target *target, const char *path) {
    struct stat info;
    tl_error err = fuzz_error();
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *bytes = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0) {
        bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (bytes == MAP_FAILED || target->read == NULL) {
        (void)fprintf(stderr, "fuzz-replay: cannot map %s\n", path);
        exit(70);
    }
    const double begin = cpu_s();
    fuzz_memory_begin(0, false);
    const tl_status status = target->read(tl, (const uint8_t *)bytes, (size_t)info.st_size, &err);
    const fuzz_memory memory = fuzz_memory_end();
    (void)printf("%s\t%.3f\t%zu\t%s\n", tl->status_name(status), cpu_s() - begin, memory.peak,
                 status == TL_OK ? "" : err.text);
    (void)munmap(bytes, (size_t)info.st_size);
    (void)close(fd);
    return memory.left == 0;
}

static int usage(void) {
    (void)fprintf(stderr, "fuzz-replay [--lib LIBRARY] [--disk FOLDER] [--refuse] TARGET "
                          "FILE_OR_FOLDER...\nfuzz-replay --measure TARGET FILE\n"
                          "fuzz-replay --list\n");
    return 2;
}

static int list(void) {
    for (size_t i = 0; targets[i] != NULL; i++) {
        (void)printf("%s\n", targets[i]->name);
    }
    return 0;
}

static void load_other(host_api *other, const char *path) {
    char text[HOST_TEXT_CAP];
    if (!host_load(other, path, text)) {
        (void)fprintf(stderr, "fuzz-replay: %s\n", text);
        exit(70);
    }
}

int main(int argc, char **argv) {
    static host_api other;
    options o = {.tl = &fuzz_engine_api};
    int at = 1;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--list") == 0) {
            return list();
        }
        if (strcmp(argv[at], "--refuse") == 0) {
            o.refuse = true;
        } else if (strcmp(argv[at], "--measure") == 0) {
            o.measure = true;
        } else if (strcmp(argv[at], "--disk") == 0 && at + 1 < argc) {
            o.disk = argv[++at];
        } else if (strcmp(argv[at], "--lib") == 0 && at + 1 < argc) {
            load_other(&other, argv[++at]);
            o.tl = &other;
        } else {
            return usage();
        }
    }
    const fuzz_target *target = at < argc ? find_target(argv[at]) : NULL;
    bool ok = true;
    if (target == NULL || at + 1 >= argc) {
        return usage();
    }
    for (int i = at + 1; i < argc; i++) {
        ok = (o.measure ? measure(o.tl, target, argv[i]) : run_path(&o, target, argv[i])) && ok;
    }
    return ok ? 0 : 1;
}
