/* coverage_hooks.c: how the counters of the judge's own processes and of caged engines reach the
 * coverage report. Linked into the cov variant only, by wraps of the linker; no product file knows
 * of it, and the cage is not one hole wider.
 *
 * gcov writes at exit(), to absolute paths. The judge's workers leave by _exit(); an engine may
 * write to its own folder only. So: _exit() writes first; before exec, and in ol-host, the
 * counters go below the working directory, which is the engine's own; and before the judge removes
 * that folder they are copied out. Processes that dropped their uid write to a folder of their
 * own. GCOV_PREFIX names the place (conformance/tools/coverage.py sets it); without it nothing is
 * kept. */
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The linker gives these names: __real_X is the X that __wrap_X stands in for. */
_Noreturn void __real__exit(int code);
void __real_ol_dir_remove(const char *path);
int __real_execve(const char *path, char *const argv[], char *const env[]);
_Noreturn void __wrap__exit(int code);
void __wrap_ol_dir_remove(const char *path);
int __wrap_execve(const char *path, char *const argv[], char *const env[]);
void __gcov_dump(void);

static size_t n_source;          /* characters of the folder that is copied */
static char target_folder[4096]; /* where to */

/* A folder beside the others of this run that no other process uses. */
static bool own_folder(const char *word, char *text, size_t cap) {
    static unsigned n;
    const char *prefix = getenv("GCOV_PREFIX");
    if (prefix == NULL || prefix[0] != '/') {
        return false;
    }
    int len = snprintf(text, cap, "%s.%s-%d-%u", prefix, word, (int)getpid(), n++);
    return len > 0 && (size_t)len < cap;
}

/* May this process, whatever its uid is by now, write where the run started? */
static bool can_write(void) {
    const char *prefix = getenv("GCOV_PREFIX");
    return geteuid() == 0 || (prefix != NULL && access(prefix, W_OK) == 0);
}

_Noreturn void __wrap__exit(int code) {
    char folder[4096];
    if (!can_write() && own_folder("dropped", folder, sizeof folder)) {
        (void)setenv("GCOV_PREFIX", folder, 1);
    }
    __gcov_dump();
    __real__exit(code);
}

/* Between fork and exec the process is caged already. */
int __wrap_execve(const char *path, char *const argv[], char *const env[]) {
    (void)setenv("GCOV_PREFIX", ".", 1);
    __gcov_dump();
    return __real_execve(path, argv, env);
}

static int copy_one(const char *path, const struct stat *info, int kind, struct FTW *ftw) {
    (void)info;
    (void)ftw;
    static char block[1 << 16];
    char to[8192];
    size_t n_path = strlen(path);
    (void)snprintf(to, sizeof to, "%s%s", target_folder, path + n_source);
    if (kind == FTW_D) {
        (void)mkdir(to, 0755);
    } else if (kind == FTW_F && n_path > 5 && strcmp(path + n_path - 5, ".gcda") == 0) {
        FILE *in = fopen(path, "rbe");
        FILE *out = fopen(to, "wbe");
        for (size_t n = 1; in != NULL && out != NULL && n > 0;) {
            n = fread(block, 1, sizeof block, in);
            (void)fwrite(block, 1, n, out);
        }
        (void)(in != NULL && fclose(in));
        (void)(out != NULL && fclose(out));
    }
    return 0;
}

void __wrap_ol_dir_remove(const char *path) {
    if (own_folder("caged", target_folder, sizeof target_folder)) {
        n_source = strlen(path);
        (void)nftw(path, copy_one, 16, FTW_PHYS);
    }
    __real_ol_dir_remove(path);
}
