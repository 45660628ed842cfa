/* build.c: see build.h.
 *
 * Three folders below the run's: src (a copy of the learner's files, the compiler's own folder),
 * inc (the given headers), ref (the members of libtl.a that are linked). Links in the learner's
 * folder are refused, since as root a copy of what they point at would be a way to read it. */
#include "build.h"

#include "tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOURCE_MAX ((size_t)4 << 20) /* bytes of one file */
#define FILES_MAX 256
#define LOG_MAX 65536
#define TOOL_MEMORY_MAX ((uint64_t)2 << 30)
#define COMPILE_S 120.0
#define LINK_S 60.0

typedef struct module {
    const char *name;
    const char *prefix; /* of its files */
} module;

/* pcg32 counts with sample, but its file may be there or not. */
static const module modules[] = {
    {"kv", "kv"},         {"quant", "quant"},   {"model", "model"},  {"forward", "forward"},
    {"runner", "runner"}, {"sample", "sample"}, {"sample", "pcg32"},
};

#define N_MODULES (sizeof modules / sizeof *modules)

typedef struct build {
    const ol_setup *setup;
    const char *dir; /* the learner's */
    const char *ref_deps;
    char src[4096];
    char inc[4096];
    char ref[4096];
    char *sources[FILES_MAX]; /* names in src of what is compiled */
    size_t n_sources;
    char *members[FILES_MAX]; /* names in ref of what is linked */
    size_t n_members;
    bool has[N_MODULES];   /* the folder has a file of it */
    bool takes[N_MODULES]; /* it comes from the reference */
    ol_fault *fault;
} build;

static bool learner(build *b, const char *fmt, ...) OL_FORMAT(2, 3);
static bool learner(build *b, const char *fmt, ...) {
    char text[900];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return ol_fault_set(b->fault, OL_EXIT_ENGINE, "%s: %s", b->dir, text);
}

static bool ours(build *b, const char *what) {
    return ol_fault_set(b->fault, OL_EXIT_INTERNAL, "building %s: %s: %s", b->dir, what,
                        strerror(errno));
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name);
    size_t n_end = strlen(end);
    return n > n_end && strcmp(name + n - n_end, end) == 0;
}

/* The module whose file this is; N_MODULES for none. */
static size_t module_of(const char *name) {
    for (size_t i = 0; i < N_MODULES; i++) {
        if (strncmp(name, modules[i].prefix, strlen(modules[i].prefix)) == 0) {
            return i;
        }
    }
    return N_MODULES;
}

static bool keep_name(build *b, char **list, size_t *n, const char *name) {
    char *copy = *n < FILES_MAX ? strdup(name) : NULL;
    if (copy == NULL) {
        return learner(b, "more than %d files", FILES_MAX);
    }
    list[(*n)++] = copy;
    return true;
}

/* ------------------------------------------------------------------ copies */

/* The bytes of a regular file of an open folder; no link is followed. */
static char *read_at(int dir, const char *name, size_t *n_bytes) {
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    char path[64];
    if (fd < 0) {
        return NULL;
    }
    ol_format(path, sizeof path, "/proc/self/fd/%d", fd);
    char *bytes = ol_read_file(path, SOURCE_MAX, n_bytes);
    int why = errno;
    (void)close(fd);
    errno = why;
    return bytes;
}

static bool write_new(const char *path, const char *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (file == NULL) {
        return false;
    }
    bool ok = fwrite(bytes, 1, n, file) == n && fchmod(fd, 0644) == 0;
    return fclose(file) == 0 && ok;
}

/* Copy the files of a folder that `wanted` chooses; *strange is a name that could not be read. */
static bool copy_files(build *b, const char *from, const char *to, bool (*wanted)(const char *),
                       char strange[256]) {
    int fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    bool ok = true;
    strange[0] = '\0';
    if (dir == NULL) {
        ol_format(strange, 256, ".");
        return false;
    }
    for (struct dirent *e = readdir(dir); ok && e != NULL; e = readdir(dir)) {
        char path[4400];
        size_t n = 0;
        if (!wanted(e->d_name)) {
            continue;
        }
        char *bytes = read_at(dirfd(dir), e->d_name, &n);
        if (bytes == NULL) {
            ol_format(strange, 256, "%s", e->d_name);
            ok = false;
            continue;
        }
        ol_format(path, sizeof path, "%s/%s", to, e->d_name);
        ok = write_new(path, bytes, n) || ours(b, path);
        free(bytes);
    }
    int why = errno;
    (void)closedir(dir);
    errno = why;
    return ok;
}

static bool is_source(const char *name) {
    return name[0] != '.' && (ends_with(name, ".c") || ends_with(name, ".h"));
}

static bool is_header(const char *name) {
    return ends_with(name, ".h");
}

static bool is_given_header(const char *name) {
    return is_header(name) && module_of(name) == N_MODULES;
}

static bool make_folders(build *b) {
    const char *run = b->setup->paths.run_dir;
    char deep[4200];
    ol_format(b->src, sizeof b->src, "%s/src", run);
    ol_format(b->inc, sizeof b->inc, "%s/inc", run);
    ol_format(b->ref, sizeof b->ref, "%s/ref", run);
    ol_format(deep, sizeof deep, "%s/tl", b->inc);
    if (mkdir(b->inc, 0755) != 0 || mkdir(deep, 0755) != 0) {
        return ours(b, "folders");
    }
    uid_t uid = ol_sandbox_uid(&b->setup->sandbox, 900);
    return ol_dir_make(b->setup, b->src, uid, b->fault) &&
           ol_dir_make(b->setup, b->ref, uid, b->fault);
}

static bool copy_all(build *b) {
    char from[4300];
    char to[4300];
    char strange[256];
    if (!copy_files(b, b->dir, b->src, is_source, strange)) {
        return learner(b, "%s cannot be read: %s", strange,
                       errno == ELOOP ? "it is a link" : strerror(errno));
    }
    ol_format(from, sizeof from, "%s/engine/include/tl", b->setup->paths.root);
    ol_format(to, sizeof to, "%s/tl", b->inc);
    if (!copy_files(b, from, to, is_header, strange)) {
        return ours(b, from);
    }
    ol_format(from, sizeof from, "%s/engine/src", b->setup->paths.root);
    return copy_files(b, from, b->inc, is_given_header, strange) || ours(b, from);
}

/* ------------------------------------------------------------------ what comes from where */

static bool is_named(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; *at != '\0'; at += *at == ',' ? 1 : 0) {
        size_t n_word = strcspn(at, ",");
        if (n_word == n && strncmp(at, name, n) == 0) {
            return true;
        }
        at += n_word;
    }
    return false;
}

/* Every word of --ref-deps=LIST is a module. */
static bool check_list(build *b) {
    for (const char *at = b->ref_deps; at != NULL && *at != '\0'; at += *at == ',' ? 1 : 0) {
        char word[64];
        size_t n = strcspn(at, ",");
        bool known = false;
        ol_format(word, sizeof word, "%.*s", (int)n, at);
        for (size_t i = 0; i < N_MODULES; i++) {
            known = known || strcmp(word, modules[i].prefix) == 0;
        }
        if (!known) {
            return ol_fault_set(b->fault, OL_EXIT_USAGE,
                                "--ref-deps: %s is no module; they are kv, quant, model, forward, "
                                "runner, sample and pcg32, with commas between",
                                word);
        }
        at += n;
    }
    return true;
}

static void look(build *b) {
    DIR *dir = opendir(b->src);
    for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL; e = readdir(dir)) {
        size_t m = ends_with(e->d_name, ".c") ? module_of(e->d_name) : N_MODULES;
        if (m < N_MODULES) {
            b->has[m] = true;
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

/* A module that is named or missing is taken; pcg32 is missing only when sample.c is there without
 * it, and may be part of it: settled when it is linked. */
static bool settle(build *b) {
    char missing[256] = "";
    for (size_t i = 0; i < N_MODULES; i++) {
        const char *list = b->ref_deps == NULL ? "" : b->ref_deps;
        b->takes[i] =
            !b->has[i] || is_named(list, modules[i].name) || is_named(list, modules[i].prefix);
        bool is_part = strcmp(modules[i].prefix, "pcg32") == 0;
        if (!b->has[i] && !is_part) {
            size_t len = strlen(missing);
            ol_format(missing + len, sizeof missing - len, "%s%s*.c", len == 0 ? "" : ", ",
                      modules[i].prefix);
        }
    }
    if (b->ref_deps == NULL && missing[0] != '\0') {
        return learner(b, "there is no %s; --ref-deps takes what is missing from the reference",
                       missing);
    }
    return true;
}

static bool list_sources(build *b) {
    DIR *dir = opendir(b->src);
    bool ok = dir != NULL;
    for (struct dirent *e = ok ? readdir(dir) : NULL; ok && e != NULL; e = readdir(dir)) {
        size_t m = ends_with(e->d_name, ".c") ? module_of(e->d_name) : N_MODULES;
        if (m < N_MODULES && !b->takes[m]) {
            ok = keep_name(b, b->sources, &b->n_sources, e->d_name);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return ok;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* ------------------------------------------------------------------ tools */

typedef struct command {
    char *argv[2 * FILES_MAX + 48];
    size_t n;
} command;

static void word(command *c, const char *text) {
    if (c->n + 1 < sizeof c->argv / sizeof *c->argv) {
        c->argv[c->n++] = strdup(text);
        c->argv[c->n] = NULL;
    }
}

static void forget(command *c) {
    for (size_t i = 0; i < c->n; i++) {
        free(c->argv[i]);
    }
    c->n = 0;
}

/* The compiler that the caller names, else cc: as a path. */
static bool find_tool(const char *name, char path[4096]) {
    static const char *const places[] = {"/usr/local/bin", "/usr/bin", "/bin"};
    if (strchr(name, '/') != NULL) {
        ol_format(path, 4096, "%s", name);
        return access(path, X_OK) == 0;
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        ol_format(path, 4096, "%s/%s", places[i], name);
        if (access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

static bool tool(build *b, command *c, const char *name) {
    char path[4096];
    const char *given = strcmp(name, "cc") == 0 ? getenv("CC") : NULL;
    if (!find_tool(given == NULL ? name : given, path)) {
        return ol_fault_set(b->fault, OL_EXIT_INTERNAL, "building %s: there is no %s here", b->dir,
                            given == NULL ? name : given);
    }
    word(c, path);
    return true;
}

static int run(build *b, command *c, const char *dir, double wall_s, char *text, size_t cap) {
    ol_limits limits = b->setup->limits;
    limits.address_max = TOOL_MEMORY_MAX;
    limits.file_max = (uint64_t)256 << 20;
    limits.wall_s = wall_s;
    ol_cage cage = {.sandbox = &b->setup->sandbox,
                    .limits = &limits,
                    .uid = ol_sandbox_uid(&b->setup->sandbox, 900),
                    .dir = dir,
                    .readable = {b->inc, b->ref, b->src},
                    .may_fork = true, /* the compiler starts an assembler */
                    .may_exec = true,
                    .wide_reads = true};
    int status = ol_tool_run(&cage, c->argv, wall_s, text, cap);
    forget(c);
    return status;
}

/* The first lines of a compiler, as many as the fault holds. */
static bool not_built(build *b, const char *step, const char *log) {
    const size_t lines_max = 40;
    const char *end = log;
    for (size_t i = 0; i < lines_max && *end != '\0'; i++) {
        end += strcspn(end, "\n");
        end += *end == '\n' ? 1 : 0;
    }
    return ol_fault_set(b->fault, OL_EXIT_ENGINE, "%s does not %s:\n%.*s%s", b->dir, step,
                        (int)(end - log), log, *end == '\0' ? "" : "...\n");
}

static bool compile(build *b, char *log) {
    command c = {.n = 0};
    static const char *const flags[] = {
        "-std=gnu11",        "-O2",         "-g1",      "-fPIC",    "-fvisibility=hidden",
        "-ffp-contract=off", "-fno-common", "-DNDEBUG", "-I../inc", "-c"};
    if (b->n_sources == 0) {
        return true;
    }
    if (!tool(b, &c, "cc")) {
        return false;
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        word(&c, flags[i]);
    }
    /* The same sources give the same library, whatever the run's directory is called: shards of one
     * run are told by its hash. */
    char map[4200];
    ol_format(map, sizeof map, "-ffile-prefix-map=%s=.", b->setup->paths.run_dir);
    word(&c, map);
    for (size_t i = 0; i < b->n_sources; i++) {
        word(&c, b->sources[i]);
    }
    return run(b, &c, b->src, COMPILE_S, log, LOG_MAX) == 0 || not_built(b, "compile", log);
}

/* Do the learner's objects define the symbol? */
static bool defines(build *b, const char *symbol, char *log) {
    command c = {.n = 0};
    if (b->n_sources == 0 || !tool(b, &c, "nm")) {
        return false;
    }
    word(&c, "-g");
    word(&c, "--defined-only");
    for (size_t i = 0; i < b->n_sources; i++) {
        char object[300];
        size_t n = strlen(b->sources[i]);
        ol_format(object, sizeof object, "%.*s.o", (int)(n - 2), b->sources[i]);
        word(&c, object);
    }
    if (run(b, &c, b->src, LINK_S, log, LOG_MAX) != 0) {
        return false;
    }
    char line[128];
    ol_format(line, sizeof line, " T %s\n", symbol);
    return strstr(log, line) != NULL;
}

/* Copy libtl.a in and unpack what is linked from it: what no module owns, and the modules taken. */
static bool unpack(build *b, char *log) {
    char path[4400];
    size_t n = 0;
    ol_format(path, sizeof path, "%s/../lib/libtl.a", b->setup->paths.bin_dir);
    char *bytes = ol_read_file(path, (size_t)256 << 20, &n);
    if (bytes == NULL) {
        return ours(b, path);
    }
    ol_format(path, sizeof path, "%s/libtl.a", b->ref);
    bool ok = write_new(path, bytes, n);
    free(bytes);
    command c = {.n = 0};
    if (!ok || !tool(b, &c, "ar")) {
        return ours(b, path);
    }
    word(&c, "x");
    word(&c, "libtl.a");
    return run(b, &c, b->ref, LINK_S, log, LOG_MAX) == 0 || ours(b, log);
}

static bool list_members(build *b) {
    DIR *dir = opendir(b->ref);
    bool ok = dir != NULL;
    for (struct dirent *e = ok ? readdir(dir) : NULL; ok && e != NULL; e = readdir(dir)) {
        size_t m = module_of(e->d_name);
        if (ends_with(e->d_name, ".o") && (m == N_MODULES || b->takes[m])) {
            ok = keep_name(b, b->members, &b->n_members, e->d_name);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return ok || ours(b, b->ref);
}

/* Were the members built with a sanitizer? */
static bool holds_sanitizer(const build *b) {
    char path[4400];
    size_t n = 0;
    ol_format(path, sizeof path, "%s/base.o", b->ref);
    char *bytes = ol_read_file(path, SOURCE_MAX, &n);
    bool holds = bytes != NULL && ol_holds_sanitizer(bytes, n);
    free(bytes);
    return holds;
}

static bool link_library(build *b, char *log) {
    command c = {.n = 0};
    if (!tool(b, &c, "cc")) {
        return false;
    }
    word(&c, "-shared");
    word(&c, "-o");
    word(&c, "engine.so");
    for (size_t i = 0; i < b->n_sources; i++) {
        char object[300];
        size_t n = strlen(b->sources[i]);
        ol_format(object, sizeof object, "%.*s.o", (int)(n - 2), b->sources[i]);
        word(&c, object);
    }
    for (size_t i = 0; i < b->n_members; i++) {
        char object[300];
        ol_format(object, sizeof object, "../ref/%s", b->members[i]);
        word(&c, object);
    }
    static const char *const libraries[] = {"-Wl,-z,defs", "-ljansson", "-lz", "-lm", "-lpthread"};
    /* A sanitizer's runtime is in the host; its symbols stay open here. */
    for (size_t i = holds_sanitizer(b) ? 1 : 0; i < sizeof libraries / sizeof *libraries; i++) {
        word(&c, libraries[i]);
    }
    return run(b, &c, b->src, LINK_S, log, LOG_MAX) == 0 || not_built(b, "link", log);
}

static void say_borrowed(const build *b, char *borrowed, size_t cap) {
    borrowed[0] = '\0';
    for (size_t i = 0; i < N_MODULES; i++) {
        if (b->takes[i]) {
            size_t len = strlen(borrowed);
            ol_format(borrowed + len, cap - len, "%s%s", len == 0 ? "" : ", ", modules[i].prefix);
        }
    }
}

static bool make(build *b, char *log) {
    if (!check_list(b) || !make_folders(b) || !copy_all(b)) {
        return false;
    }
    look(b);
    if (!settle(b) || !list_sources(b)) {
        return false;
    }
    /* The order of a folder is no order: the same sources, the same command. */
    qsort(b->sources, b->n_sources, sizeof *b->sources, by_name);
    if (!compile(b, log)) {
        return false;
    }
    size_t pcg32 = N_MODULES - 1;
    if (!b->has[pcg32] && defines(b, "tl_pcg32_new", log)) {
        b->takes[pcg32] = false;
    } else if (!b->has[pcg32] && b->ref_deps == NULL) {
        return learner(b,
                       "no file defines tl_pcg32_new; --ref-deps takes pcg32 from the reference");
    }
    if (!unpack(b, log) || !list_members(b)) {
        return false;
    }
    qsort(b->members, b->n_members, sizeof *b->members, by_name);
    return link_library(b, log);
}

bool ol_build_sources(const ol_setup *setup, const char *dir, const char *ref_deps,
                      char library[4096], char *borrowed, size_t borrowed_cap, ol_fault *fault) {
    build *b = calloc(1, sizeof *b);
    char *log = calloc(1, LOG_MAX);
    bool ok = b != NULL && log != NULL;
    if (ok) {
        b->setup = setup;
        b->dir = dir;
        b->ref_deps = ref_deps;
        b->fault = fault;
        ok = make(b, log);
        say_borrowed(b, borrowed, borrowed_cap);
        ol_format(library, 4096, "%s/engine.so", b->src);
    } else {
        (void)ol_fault_set(fault, OL_EXIT_INTERNAL, "out of memory");
    }
    for (size_t i = 0; b != NULL && i < b->n_sources; i++) {
        free(b->sources[i]);
    }
    for (size_t i = 0; b != NULL && i < b->n_members; i++) {
        free(b->members[i]);
    }
    free(b);
    free(log);
    return ok;
}
