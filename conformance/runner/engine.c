/* engine.c: where things are, and the engine as a command line; see engine.h.
 *
 * The run's directory holds the copies (bin/) and the children's directories. It is made where
 * programs may be started from, since /tmp is often mounted without that. */
#include "engine.h"

#include "context.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define RUN_NAME_LEN 9 /* ol-XXXXXX */
#define CATALOG_PATH "conformance/catalog.json"
#define LIBRARY_NAME "libtl.so.1"
#define ROOM_MIN ((uint64_t)1 << 30)
#define COPY_MAX ((size_t)512 << 20)

const char *ol_engine_kind_name(ol_engine_kind kind) {
    static const char *const names[] = {"built-in", "library", "sources", "testee"};
    return names[kind];
}

/* ------------------------------------------------------------------ paths */

static bool has_catalog(const char *root) {
    char path[PATH_MAX + 64];
    ol_format(path, sizeof path, "%s/" CATALOG_PATH, root);
    return access(path, R_OK) == 0;
}

/* Cut the last part of a path; false at the top. */
static bool go_up(char *path) {
    char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path) {
        return false;
    }
    *slash = '\0';
    return true;
}

bool ol_paths_find(ol_paths *paths, const char *root_option, ol_fault *fault) {
    ssize_t n = readlink("/proc/self/exe", paths->bin_dir, sizeof paths->bin_dir - 1);
    paths->run_dir[0] = '\0';
    if (n <= 0) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "/proc/self/exe: %s", strerror(errno));
    }
    paths->bin_dir[n] = '\0';
    (void)go_up(paths->bin_dir);
    const char *given = root_option != NULL ? root_option : getenv("OL_ROOT");
    if (given != NULL) {
        char *real = realpath(given, NULL);
        ol_format(paths->root, sizeof paths->root, "%s", real == NULL ? given : real);
        free(real);
        return has_catalog(paths->root) ||
               ol_fault_set(fault, OL_EXIT_USAGE, "%s holds no " CATALOG_PATH, paths->root);
    }
    /* The tree that was built, from build/VARIANT/bin upwards; so it can be moved as a whole. */
    ol_format(paths->root, sizeof paths->root, "%s", paths->bin_dir);
    while (!has_catalog(paths->root)) {
        if (!go_up(paths->root)) {
            return ol_fault_set(fault, OL_EXIT_USAGE,
                                "no " CATALOG_PATH
                                " above %s; name the project's folder with --root or OL_ROOT",
                                paths->bin_dir);
        }
    }
    return true;
}

static bool may_start_programs(const char *dir) {
    struct statvfs info;
    return statvfs(dir, &info) == 0 && (info.f_flag & (ST_NOEXEC | ST_RDONLY)) == 0 &&
           access(dir, W_OK | X_OK) == 0;
}

/* /dev/shm where it is a file system in memory with room for several of the largest files that
 * tests write; containers often make it tiny. */
static const char *roomy_memory(void) {
    const char *dir = "/dev/shm";
    struct statfs info;
    bool fits = statfs(dir, &info) == 0 && info.f_type == TMPFS_MAGIC &&
                (uint64_t)info.f_bavail * (uint64_t)info.f_bsize >= ROOM_MIN;
    return fits ? dir : NULL;
}

/* Can another uid come here? The children must. */
static bool is_open(const char *dir) {
    char path[PATH_MAX];
    ol_format(path, sizeof path, "%s", dir);
    do {
        struct stat info;
        if (stat(path, &info) != 0 || (info.st_mode & S_IXOTH) == 0) {
            return false;
        }
    } while (go_up(path));
    return true;
}

/* A run that was killed could not clear its directory. Its lock is free then, whoever has its
 * number now; that of a living run is held by it and its workers. */
static void sweep(const char *place) {
    DIR *dir = opendir(place);
    for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL; e = readdir(dir)) {
        char path[PATH_MAX + 300];
        char lock[sizeof path + 8];
        struct stat info;
        ol_format(path, sizeof path, "%s/%s", place, e->d_name);
        ol_format(lock, sizeof lock, "%s/lock", path);
        if (strncmp(e->d_name, "ol-", 3) != 0 || strlen(e->d_name) != RUN_NAME_LEN ||
            lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) {
            continue;
        }
        int fd = open(lock, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            ol_dir_remove(path);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

/* false too where somebody swept it away in the moment before it was locked. */
static bool lock_run_dir(ol_paths *paths) {
    char path[sizeof paths->run_dir + 8];
    struct stat info;
    ol_format(path, sizeof path, "%s/lock", paths->run_dir);
    int fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok =
        fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &info) == 0 && info.st_nlink > 0;
    if (!ok && fd >= 0) {
        (void)close(fd);
    }
    paths->run_lock = ok ? fd : -1;
    return ok;
}

bool ol_paths_need_run_dir(ol_paths *paths, ol_fault *fault) {
    if (paths->run_dir[0] != '\0') {
        return true;
    }
    /* Memory first: 1300 small files cost a disk's file system more time than all the rest. */
    const char *places[] = {getenv("TMPDIR"), roomy_memory(), "/tmp", "/var/tmp", paths->bin_dir};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *real = places[i] == NULL ? NULL : realpath(places[i], NULL);
        if (real != NULL && may_start_programs(real) && (geteuid() != 0 || is_open(real))) {
            sweep(real);
            ol_format(paths->run_dir, sizeof paths->run_dir, "%s/ol-XXXXXX", real);
            free(real);
            char bin[PATH_MAX + 16];
            if (mkdtemp(paths->run_dir) == NULL || !lock_run_dir(paths)) {
                (void)rmdir(paths->run_dir);
                paths->run_dir[0] = '\0';
                continue;
            }
            ol_format(bin, sizeof bin, "%s/bin", paths->run_dir);
            /* Others may pass through, and read only what is named to them. */
            if (chmod(paths->run_dir, 0711) == 0 && mkdir(bin, 0755) == 0 &&
                chmod(bin, 0755) == 0) {
                return true;
            }
            return ol_fault_set(fault, OL_EXIT_INTERNAL, "%s: %s", bin, strerror(errno));
        }
        free(real);
    }
    return ol_fault_set(
        fault, OL_EXIT_INTERNAL,
        "no folder to work in: TMPDIR, /tmp, /var/tmp and /dev/shm are not writable, or no program "
        "can be started there");
}

void ol_paths_remove_run_dir(ol_paths *paths) {
    if (paths->run_dir[0] != '\0') {
        ol_dir_remove(paths->run_dir);
        (void)close(paths->run_lock);
        paths->run_dir[0] = '\0';
    }
}

/* ------------------------------------------------------------------ copies */

/* The runtimes that change what a process may use: memory, a second process, exit status. */
bool ol_holds_sanitizer(const char *bytes, size_t n) {
    static const char *const marks[] = {"__asan_init", "__tsan_init", "__msan_init",
                                        "__ubsan_handle_", "__lsan_"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (memmem(bytes, n, marks[i], strlen(marks[i])) != NULL) {
            return true;
        }
    }
    return false;
}

/* Copy into the run's bin/; hash (NULL: not wanted) and mark sanitizers on the way. */
static bool copy_in(ol_engine *engine, const ol_paths *paths, const char *from, const char *name,
                    char to[4096], char *sha256, int exit_code, ol_fault *fault) {
    size_t n_bytes = 0;
    char *bytes = ol_read_file(from, COPY_MAX, &n_bytes);
    if (bytes == NULL) {
        return ol_fault_set(fault, exit_code, "%s: %s", from, strerror(errno));
    }
    if (sha256 != NULL) {
        ol_sha256 hash;
        ol_sha256_init(&hash);
        ol_sha256_add(&hash, bytes, n_bytes);
        ol_sha256_text(&hash, sha256);
    }
    engine->sanitized = engine->sanitized || ol_holds_sanitizer(bytes, n_bytes);
    ol_format(to, 4096, "%s/bin/%s", paths->run_dir, name);
    (void)unlink(to);
    int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    bool ok = fd >= 0 && ol_write_all(fd, bytes, n_bytes) && fchmod(fd, 0555) == 0;
    int why = errno;
    ok = (fd < 0 || close(fd) == 0) && ok;
    free(bytes);
    return ok || ol_fault_set(fault, OL_EXIT_INTERNAL, "%s: %s", to, strerror(why));
}

/* ------------------------------------------------------------------ command lines */

static bool add_arg(ol_engine *engine, const char *text, size_t n, ol_fault *fault) {
    size_t count = 0;
    while (engine->argv[count] != NULL) {
        count++;
    }
    char *copy = count < OL_ENGINE_ARGS_MAX ? strndup(text, n) : NULL;
    if (copy == NULL) {
        return ol_fault_set(fault, OL_EXIT_USAGE, "a command of more than %d words",
                            OL_ENGINE_ARGS_MAX);
    }
    engine->argv[count] = copy;
    return true;
}

/* The program that a first word means, as a path: exec is told a path and looks nowhere. */
static bool add_program(ol_engine *engine, const char *word, size_t n, ol_fault *fault) {
    char name[PATH_MAX];
    char path[PATH_MAX * 2];
    ol_format(name, sizeof name, "%.*s", (int)n, word);
    if (strchr(name, '/') != NULL) {
        struct stat info;
        bool is_program =
            stat(name, &info) == 0 && S_ISREG(info.st_mode) && access(name, X_OK) == 0;
        return is_program ? add_arg(engine, name, strlen(name), fault)
                          : ol_fault_set(fault, OL_EXIT_USAGE, "--wrap: %s is no program", name);
    }
    static const char *const places[] = {"/usr/local/bin", "/usr/bin", "/bin"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        ol_format(path, sizeof path, "%s/%s", places[i], name);
        if (access(path, X_OK) == 0) {
            return add_arg(engine, path, strlen(path), fault);
        }
    }
    return ol_fault_set(fault, OL_EXIT_USAGE, "--wrap: there is no program %s", name);
}

/* Words between spaces; a quoted part ('…' or "…") is one word. */
static bool add_wrap(ol_engine *engine, const char *wrap, ol_fault *fault) {
    for (const char *at = wrap; *at != '\0';) {
        if (*at == ' ' || *at == '\t') {
            at++;
            continue;
        }
        char quote = *at == '\'' || *at == '"' ? *at : '\0';
        at += quote != '\0' ? 1 : 0;
        size_t n = quote != '\0' ? strcspn(at, quote == '"' ? "\"" : "'") : strcspn(at, " \t");
        bool ok = engine->argv[0] == NULL ? add_program(engine, at, n, fault)
                                          : add_arg(engine, at, n, fault);
        if (!ok) {
            return false;
        }
        at += n;
        at += quote != '\0' && *at == quote ? 1 : 0;
        engine->n_wrap++;
    }
    return true;
}

static bool open_library(ol_engine *engine, const ol_paths *paths, const char *given,
                         ol_fault *fault) {
    char from[PATH_MAX + 64];
    char host[PATH_MAX + 64];
    bool is_builtin = engine->kind == OL_ENGINE_BUILTIN;
    if (is_builtin) {
        ol_format(from, sizeof from, "%s/../lib/" LIBRARY_NAME, paths->bin_dir);
    } else {
        ol_format(from, sizeof from, "%s", given);
    }
    ol_format(host, sizeof host, "%s/ol-host", paths->bin_dir);
    return copy_in(engine, paths, host, "ol-host", engine->host, NULL, OL_EXIT_INTERNAL, fault) &&
           copy_in(engine, paths, from, is_builtin ? LIBRARY_NAME : "engine.so", engine->file,
                   engine->sha256, OL_EXIT_ENGINE, fault) &&
           add_arg(engine, engine->host, strlen(engine->host), fault) &&
           add_arg(engine, engine->file, strlen(engine->file), fault);
}

/* A program runs where it lies, since it may need what lies beside it; only one that the child's
 * uid cannot reach is copied. */
static bool open_testee(ol_engine *engine, const ol_paths *paths, const char *given,
                        ol_fault *fault) {
    char *real = realpath(given, NULL);
    struct stat info;
    if (real == NULL || stat(real, &info) != 0 || !S_ISREG(info.st_mode) ||
        access(real, X_OK) != 0) {
        (void)ol_fault_set(fault, OL_EXIT_ENGINE, "%s is no program: %s", given,
                           real == NULL ? strerror(errno) : "no regular file that can be executed");
        free(real);
        return false;
    }
    char folder[4096];
    ol_format(folder, sizeof folder, "%s", real);
    (void)go_up(folder);
    bool in_place = geteuid() != 0 || (is_open(folder) && (info.st_mode & 0005) == 0005);
    uint64_t n_bytes = 0;
    bool ok = ol_sha256_file(real, &n_bytes, engine->sha256) ||
              ol_fault_set(fault, OL_EXIT_ENGINE, "%s: %s", real, strerror(errno));
    if (ok && in_place) {
        ol_format(engine->file, sizeof engine->file, "%s", real);
        ol_format(engine->read_dir, sizeof engine->read_dir, "%s", folder);
    } else if (ok) {
        const char *name = strrchr(real, '/');
        ok = copy_in(engine, paths, real, name + 1, engine->file, NULL, OL_EXIT_ENGINE, fault);
    }
    free(real);
    return ok && add_arg(engine, engine->file, strlen(engine->file), fault);
}

bool ol_engine_open(ol_engine *engine, const ol_paths *paths, ol_engine_kind kind,
                    const char *given, const char *wrap, ol_fault *fault) {
    *engine = (ol_engine){.kind = kind};
    ol_format(engine->given, sizeof engine->given, "%s", given == NULL ? "" : given);
    engine->may_exec = kind == OL_ENGINE_TESTEE || wrap != NULL;
    if (wrap != NULL && !add_wrap(engine, wrap, fault)) {
        return false;
    }
    if (kind == OL_ENGINE_TESTEE) {
        return open_testee(engine, paths, given, fault);
    }
    return open_library(engine, paths, given, fault);
}

bool ol_engine_is_unchanged(const ol_engine *engine) {
    char sha256[OL_SHA256_TEXT];
    uint64_t n_bytes = 0;
    return engine->read_dir[0] == '\0' ||
           (ol_sha256_file(engine->file, &n_bytes, sha256) && strcmp(sha256, engine->sha256) == 0);
}

void ol_engine_clear(ol_engine *engine) {
    for (size_t i = 0; i < OL_ENGINE_ARGS_MAX; i++) {
        free(engine->argv[i]);
        engine->argv[i] = NULL;
    }
}
