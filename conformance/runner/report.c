/* report.c: make the views and put them in their place; see report.h. */
#include "report.h"

#include "views.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define BESIDE ".tmp-" /* between a report's name and the process id of its writer */

char *ol_report_make(const ol_run *run, ol_format_kind format, bool stub, size_t *n_bytes) {
    if (format == OL_REPORT_JUNIT) {
        return ol_junit_make(run, stub, n_bytes);
    }
    if (format == OL_REPORT_JSONL) {
        return ol_log_text(
            run, n_bytes); /* a log without a footer says by itself that it is not finished */
    }
    if (!stub) {
        return ol_text_final(run, n_bytes);
    }
    char *text = strdup("This report is not finished: ol check was started and has not ended.\n");
    *n_bytes = text == NULL ? 0 : strlen(text);
    return text;
}

/* A device, a pipe, a terminal: there is nothing to replace. */
static bool write_through(const char *path, const char *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool ok = ol_write_all(fd, bytes, n);
    int why = errno;
    ok = close(fd) == 0 && ok;
    errno = ok ? 0 : why;
    return ok;
}

/* Does "NAME.tmp-PID" stand here for NAME? */
static bool is_beside(const char *entry, const char *name) {
    size_t n = strlen(name);
    bool same = strncmp(entry, name, n) == 0 && strncmp(entry + n, BESIDE, strlen(BESIDE)) == 0;
    const char *digits = same ? entry + n + strlen(BESIDE) : "";
    return digits[0] != '\0' && digits[strspn(digits, "0123456789")] == '\0';
}

/* Remove what killed runs left beside this report. A writer that lives holds a lock on its file;
 * its process id would say less: another container has processes of the same number. (Two writers
 * of one report may still fail, in the moment before that lock or on a file system without locks;
 * neither leaves half a report.) */
static void remove_left(const char *path) {
    char folder[PATH_MAX + 32];
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    ol_format(folder, sizeof folder, "%.*s.", (int)(name - path), path);
    DIR *dir = opendir(folder);
    for (struct dirent *e = NULL; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (!is_beside(e->d_name, name)) {
            continue;
        }
        int fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        bool lives = fd < 0 || (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
        if (!lives) {
            (void)unlinkat(dirfd(dir), e->d_name, 0);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

/* Beside the target, so that the rename is one step; and to the disk before it, so that a crash
 * cannot leave an empty file under the name. */
static bool replace(const char *path, const char *bytes, size_t n) {
    char temporary[PATH_MAX + 32];
    ol_format(temporary, sizeof temporary, "%s" BESIDE "%d", path, (int)getpid());
    remove_left(path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) {
        return false;
    }
    (void)flock(fd, LOCK_EX);
    /* Renamed while it is locked. What close() could still say, fsync() has said. */
    bool ok = ol_write_all(fd, bytes, n) && fsync(fd) == 0 && rename(temporary, path) == 0;
    int why = errno;
    if (!ok) {
        (void)unlink(temporary);
    }
    (void)close(fd);
    errno = why;
    return ok;
}

static bool write_file(const char *path, const char *bytes, size_t n) {
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return write_through(path, bytes, n);
    }
    /* Through a link, not over it. */
    char *real = realpath(path, NULL);
    bool ok = replace(real == NULL ? path : real, bytes, n);
    int why = errno;
    free(real);
    errno = why;
    return ok;
}

static bool put(const ol_run *run, const ol_report_option *to, bool stub, ol_fault *fault) {
    size_t n = 0;
    bool is_ours = to->format <= OL_REPORT_JUNIT;
    char *bytes = is_ours ? ol_report_make(run, to->format, stub, &n)
                          : ol_view_make(run, to->format, &n, fault);
    if (bytes == NULL && !is_ours) {
        return false;
    }
    if (bytes == NULL) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "a report could not be made: out of memory");
    }
    bool ok =
        to->path == NULL ? ol_write_all(STDOUT_FILENO, bytes, n) : write_file(to->path, bytes, n);
    int why = errno;
    free(bytes);
    return ok || ol_fault_set(fault, OL_EXIT_INTERNAL, "the report %s cannot be written: %s",
                              to->path == NULL ? "on standard output" : to->path, strerror(why));
}

static bool is_replaceable(const char *path) {
    struct stat info;
    return path != NULL && (stat(path, &info) != 0 || S_ISREG(info.st_mode));
}

bool ol_reports_stub(const ol_run *run, ol_fault *fault) {
    for (size_t i = 0; i < run->options->n_reports; i++) {
        const ol_report_option *to = &run->options->reports[i];
        if (is_replaceable(to->path) && !put(run, to, true, fault)) {
            return false;
        }
    }
    return true;
}

bool ol_reports_write(const ol_run *run, ol_fault *fault) {
    bool ok = true;
    for (size_t i = 0; i < run->options->n_reports; i++) {
        ok = put(run, &run->options->reports[i], false, fault) && ok;
    }
    return ok;
}
