/* judge.c: names of classes and exit codes, faults, and the few helpers that several files need;
 * see judge.h. */
#include "judge.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

static const struct {
    int code;
    const char *meaning;
} exit_codes[] = {
    /* in the order in which they win */
    {OL_EXIT_INTERNAL, "the judge itself failed: a bug of ours, a full disk, or a report that "
                       "cannot be written; nobody's score changes"},
    {OL_EXIT_GOLDEN,
     "a golden, the catalogue or a policy is broken: for the staff; nothing was graded"},
    {OL_EXIT_USAGE, "the command line is wrong: for the caller"},
    {OL_EXIT_NOTHING,
     "nothing was selected: for the caller; a misspelt name gets the nearest ones"},
    {OL_EXIT_ENGINE,
     "the engine does not build, does not load, or is built for another ABI: for the learner"},
    {OL_EXIT_BASELINE, "mutants: the engine without a mutant already fails, or is not repeatable"},
    {OL_EXIT_MUTANT, "mutants: one ended in another way than killed by its named test"},
    {OL_EXIT_FAIL, "at least one selected test did not pass: for the learner"},
    {OL_EXIT_PASS,
     "every selected test passed; a partial selection is marked incomplete and is no grade"},
};

int ol_exit_worse(int a, int b) {
    for (size_t i = 0; i < sizeof exit_codes / sizeof *exit_codes; i++) {
        if (exit_codes[i].code == a || exit_codes[i].code == b) {
            return exit_codes[i].code;
        }
    }
    return OL_EXIT_INTERNAL;
}

const char *ol_exit_meaning(int code) {
    for (size_t i = 0; i < sizeof exit_codes / sizeof *exit_codes; i++) {
        if (exit_codes[i].code == code) {
            return exit_codes[i].meaning;
        }
    }
    return NULL;
}

static const struct {
    const char *name;
    const char *meaning;
} classes[OL_N_CLASSES] = {
    [OL_PASS] = {"pass",
                 "every check of the test held, the record is complete, the engine's process "
                 "ended cleanly and nothing survived it"},
    [OL_FAIL] = {"fail", "a check did not hold: an answer is wrong"},
    [OL_REFUSED_WRONG] =
        {"refused-wrong",
         "accepted what must be refused, refused what must be accepted, or refused "
         "for another reason than the true one"},
    [OL_CRASH] = {"crash", "the engine's process was ended by a signal or by a sanitizer's report"},
    [OL_TIMEOUT] = {"timeout",
                    "the engine used more time than the test allows; its CPU time decides"},
    [OL_RESOURCE] = {"resource", "the engine ran into the memory, file, output or process limit"},
    [OL_NO_RESULT] = {"no-result",
                      "the engine's process ended, or stopped to answer, before the record was "
                      "complete, whatever its exit status"},
    [OL_INTEGRITY] = {"integrity",
                      "the engine did what no engine may do: a forbidden call, a process left "
                      "behind, a forged answer, a changed floating-point environment or a "
                      "changed input"},
    [OL_BLOCKED] = {"blocked",
                    "an answer is wrong, and a test that this one rests on did not pass: repair "
                    "that one first"},
    [OL_HARNESS_ERROR] = {"harness-error",
                          "the judge's own fault; nothing is said about the engine"},
};

const char *ol_class_name(ol_class c) {
    return classes[c].name;
}

const char *ol_class_meaning(ol_class c) {
    return classes[c].meaning;
}

bool ol_class_parse(const char *name, ol_class *c) {
    for (int i = 0; i < OL_N_CLASSES; i++) {
        if (strcmp(name, classes[i].name) == 0) {
            *c = (ol_class)i;
            return true;
        }
    }
    return false;
}

static void *malloc_or_end(size_t n) {
    void *block = malloc(n);
    if (block == NULL) {
        (void)fprintf(stderr, "ol: out of memory\n");
        _exit(OL_EXIT_INTERNAL);
    }
    return block;
}

void ol_end_without_memory(void) {
    json_set_alloc_funcs(malloc_or_end, free);
}

int ol_exit_of_file(int error_number) {
    static const int wants[] = {ENOMEM, EMFILE, ENFILE, EIO, EINTR};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        if (error_number == wants[i]) {
            return OL_EXIT_INTERNAL;
        }
    }
    return OL_EXIT_GOLDEN;
}

bool ol_fault_set(ol_fault *fault, int exit_code, const char *fmt, ...) {
    if (fault->exit_code == 0) {
        va_list args;
        va_start(args, fmt);
        fault->exit_code = exit_code;
        (void)vsnprintf(fault->text, sizeof fault->text, fmt, args);
        va_end(args);
    }
    return false;
}

int ol_complain(const ol_fault *fault) {
    (void)fprintf(stderr, "ol: %s\n", fault->text);
    return fault->exit_code;
}

void ol_format(char *text, size_t cap, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, cap, fmt, args);
    va_end(args);
}

bool ol_glob(const char *pattern, const char *name) {
    const char *star = NULL; /* the last star, and where its text began */
    const char *from = NULL;
    while (*name != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t ol_edit_distance(const char *a, const char *b) {
    enum { CAP = 64 };
    size_t rows[3][CAP]; /* two rows back, one back, this one */
    size_t n_a = least(strlen(a), CAP - 1);
    size_t n_b = least(strlen(b), CAP - 1);
    for (size_t j = 0; j <= n_b; j++) {
        rows[1][j] = j;
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        rows[2][0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
            size_t cost = least(rows[1][j] + 1, rows[2][j - 1] + 1);
            cost = least(cost, rows[1][j - 1] + change);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                cost = least(cost, rows[0][j - 2] + 1);
            }
            rows[2][j] = cost;
        }
        memcpy(rows[0], rows[1], sizeof rows[0]);
        memcpy(rows[1], rows[2], sizeof rows[1]);
    }
    return rows[1][n_b];
}

bool ol_read_all(int fd, void *bytes, size_t n) {
    char *at = bytes;
    while (n > 0) {
        ssize_t got = read(fd, at, n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            errno = got == 0 ? EIO : errno;
            return false;
        }
        at += got;
        n -= (size_t)got;
    }
    return true;
}

bool ol_write_all(int fd, const void *bytes, size_t n) {
    const char *at = bytes;
    while (n > 0) {
        ssize_t sent = write(fd, at, n);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            errno = sent == 0 ? EIO : errno;
            return false;
        }
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* The bytes of an open regular file; NULL with errno set. */
static char *read_open(int fd, size_t max, size_t *n_bytes) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return NULL;
    }
    if (!S_ISREG(info.st_mode)) {
        errno = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
        return NULL;
    }
    if ((uintmax_t)info.st_size > max) {
        errno = EFBIG;
        return NULL;
    }
    size_t n = (size_t)info.st_size;
    char *bytes = malloc(n + 1);
    if (bytes == NULL) {
        return NULL;
    }
    if (!ol_read_all(fd, bytes, n)) {
        int why = errno;
        free(bytes);
        errno = why;
        return NULL;
    }
    bytes[n] = '\0';
    *n_bytes = n;
    return bytes;
}

char *ol_read_file(const char *path, size_t max, size_t *n_bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return NULL;
    }
    char *bytes = read_open(fd, max, n_bytes);
    int why = errno;
    (void)close(fd);
    errno = why;
    return bytes;
}

uint64_t ol_now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
