/* judge.h: words that every file of the judge uses: verdict classes, exit codes, faults.
 *
 * A fault is why the judge itself cannot go on: the exit code that it leads to and one sentence.
 * The first fault stands. What an engine does wrong is never a fault; it is a class of a test.
 * See README.md beside. */
#ifndef OL_JUDGE_H
#define OL_JUDGE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OL_HARNESS_NAME "ol"
#define OL_HARNESS_VERSION "0.1.0"
#define OL_MODULE "L10.1"
#define OL_N_TESTS 24

/* The protocol's ABI: what `hello` must answer in its upper 16 bits. */
#define OL_ABI_MAJOR 1u
#define OL_ABI_MINOR 0u

#if defined(__GNUC__) || defined(__clang__)
#define OL_FORMAT(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define OL_FORMAT(fmt, args)
#endif
/* Said as an attribute, which every checker understands. */
#define OL_NORETURN __attribute__((noreturn))

/* Is the judge itself built with a sanitizer? Its address space is then beyond any limit, and it
 * must be able to look at itself. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OL_JUDGE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define OL_JUDGE_SANITIZED 1
#endif
#endif
#ifndef OL_JUDGE_SANITIZED
#define OL_JUDGE_SANITIZED 0
#endif

typedef enum ol_exit {
    OL_EXIT_PASS = 0,
    OL_EXIT_FAIL = 1,
    OL_EXIT_USAGE = 2,
    OL_EXIT_ENGINE = 3,
    OL_EXIT_NOTHING = 4,
    OL_EXIT_GOLDEN = 5,
    OL_EXIT_MUTANT = 6,
    OL_EXIT_BASELINE = 7,
    OL_EXIT_INTERNAL = 70,
} ol_exit;

/* Which of two exit codes is reported when both apply: 70, 5, 2, 4, 3, 7, 6, 1, 0, in this order.
 */
int ol_exit_worse(int a, int b);
const char *ol_exit_meaning(int code); /* NULL for a number that is no exit code */

typedef enum ol_class {
    OL_PASS = 0,
    OL_FAIL = 1,
    OL_REFUSED_WRONG = 2,
    OL_CRASH = 3,
    OL_TIMEOUT = 4,
    OL_RESOURCE = 5,
    OL_NO_RESULT = 6,
    OL_INTEGRITY = 7,
    OL_BLOCKED = 8,
    OL_HARNESS_ERROR = 9,
    OL_N_CLASSES = 10,
} ol_class;

const char *ol_class_name(ol_class c);
const char *ol_class_meaning(ol_class c);
bool ol_class_parse(const char *name, ol_class *c);

typedef struct ol_fault {
    int exit_code;   /* 0: no fault */
    char text[8192]; /* long enough for the first lines of a compiler */
} ol_fault;

/* From here on jansson is never refused memory: the process ends instead, with exit code 70. Its
 * parser would go on with a token cut short and write past its buffer, so that a golden, or the
 * answer of a right engine, would be read as another one. The end of a worker is a harness-error
 * of its test; that of the main process leaves a log without a footer. */
void ol_end_without_memory(void);

/* The exit code of a file of ours that cannot be read: broken, unless it is the machine that lacks
 * something. */
int ol_exit_of_file(int error_number);

/* Note a fault unless there is one; always false, so that a failing function ends in one line. */
bool ol_fault_set(ol_fault *fault, int exit_code, const char *fmt, ...) OL_FORMAT(3, 4);
/* Say why on standard error; the exit code. */
int ol_complain(const ol_fault *fault);

/* snprintf that cannot fail and always ends the text. */
void ol_format(char *text, size_t cap, const char *fmt, ...) OL_FORMAT(3, 4);

/* Does `name` match a pattern with * and ? ? */
bool ol_glob(const char *pattern, const char *name);
/* Edits (insert, delete, change, swap of neighbours) from a to b, for "did you mean"; texts longer
 * than 63 bytes are cut. */
size_t ol_edit_distance(const char *a, const char *b);

/* A file as one block, NUL-ended behind its bytes. NULL with errno set; at most `max` bytes
 * (EFBIG). free() it. */
char *ol_read_file(const char *path, size_t max, size_t *n_bytes);
/* All n bytes, whatever interrupts and however little goes at once; false with errno set, which is
 * EIO when the other end has no more to give or takes none. */
bool ol_read_all(int fd, void *bytes, size_t n);
bool ol_write_all(int fd, const void *bytes, size_t n);

uint64_t ol_now_ns(void); /* monotonic */

#endif
