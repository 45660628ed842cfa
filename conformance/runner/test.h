/* test.h: what one of the 24 tests sees.
 *
 * A test is a function of (cases, expected values, client): it is given its cases, asks the
 * testee, and reports numbered checks. It never opens a golden, so hidden goldens and fresh inputs
 * are just other sources. It runs in a judge process that has no engine code in it.
 *
 * Nothing here returns an error to the test. When the testee is gone (ended, killed, out of time,
 * or its answer is no answer), the call does not return: cmocka's fail() leaves the test by
 * longjmp, and what is recorded so far is the result. So a test keeps no resources of its own:
 * memory comes from ol_alloc, JSON from the calls below, and both end with the test.
 *
 * Checks have fixed names from the catalogue ("token" in test hand_example_sampling is the check
 * hand_example_sampling.token). A test evaluates every one of its checks at least once (with
 * --case: those of the case); a check that was never evaluated in a complete run is the judge's
 * own fault. Evaluation goes on after a failed check, so that a wrong engine leaves a signature of
 * many bits; each check keeps its first failure in full.
 *
 * Source: conformance/spec/tests.md, testee.md. */
#ifndef OL_TEST_H
#define OL_TEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define OL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define OL_PRINTF(fmt, args)
#endif

typedef struct ol_test ol_test;

/* ------------------------------------------------------------------ mode */

bool ol_strict(const ol_test *t); /* --strict: checks marked strict count, messages are looked at */

/* The judge's own generator for drawn inputs (PCG32, its own code): fixed seed for each test,
 * another with --fresh. */
uint32_t ol_rand_u32(ol_test *t);
uint32_t ol_rand_below(ol_test *t, uint32_t n); /* 0 to n - 1, n >= 1 */
double ol_rand_unit(ol_test *t);                /* [0, 1) */
float ol_rand_normal(ol_test *t);               /* about N(0, 1), f32 */

void *ol_alloc(ol_test *t,
               size_t n_bytes); /* zeroed, aligned for anything, freed at the end of the test */
char *ol_text(ol_test *t, const char *fmt, ...) OL_PRINTF(2, 3); /* formatted into such memory */
/* For loops over much data: everything that came from ol_alloc, a response or a getter after the
 * mark is freed. The judge may hold 64 MiB in all, so a sweep releases what it has looked at. Cases
 * of goldens stay. */
uint64_t ol_mark(const ol_test *t);
void ol_release(ol_test *t, uint64_t mark);

/* ------------------------------------------------------------------ cases */

/* One case of a golden. Everything is borrowed until the end of the test. */
typedef struct ol_case {
    const char *id;
    const char *file;  /* base name of the golden file */
    const char *group; /* name of its group */
    const json_t *body;
    double bound;    /* of the file's tolerance; 0 for bits */
    const void *src; /* the source that it came from (for ol_put_model) */
} ol_case;

/* The cases of a suite, in order, of every file of every source; only the selected one with
 * --case. */
size_t ol_n_cases(ol_test *t, const char *suite);
const ol_case *ol_case_at(ol_test *t, const char *suite, size_t index);
/* The case `id` of the same file as `like`, whether selected or not; NULL if there is none. */
const ol_case *ol_case_find(ol_test *t, const ol_case *like, const char *id);
/* Is a case of this id wanted? For cases that are not of a golden: with --case only the named one
 * is.
 * Also makes it the current case: what is recorded from here on carries its name. */
bool ol_begin(ol_test *t, const char *case_id);
void ol_begin_case(ol_test *t, const ol_case *c); /* make a golden's case the current one */

/* Read a case's fields. A field that is missing or malformed is a broken golden (exit 5, with the
 * key path); these do not return then. `optional` variants give NULL / the default when the key is
 * not there. */
uint64_t ol_get_u64(ol_test *t, const ol_case *c, const json_t *obj,
                    const char *key); /* 16 hex digits */
double ol_get_f64(ol_test *t, const ol_case *c, const json_t *obj,
                  const char *key); /* 16 hex digits */
uint64_t ol_get_count(ol_test *t, const ol_case *c, const json_t *obj,
                      const char *key); /* JSON integer >= 0 */
uint64_t ol_get_count_or(ol_test *t, const ol_case *c, const json_t *obj, const char *key,
                         uint64_t none);
const char *ol_get_text(ol_test *t, const ol_case *c, const json_t *obj, const char *key);
const char *ol_get_text_or(ol_test *t, const ol_case *c, const json_t *obj, const char *key,
                           const char *none);
const json_t *ol_get_array(ol_test *t, const ol_case *c, const json_t *obj, const char *key);
const json_t *ol_get_object(ol_test *t, const ol_case *c, const json_t *obj, const char *key);
float *ol_get_f32s(ol_test *t, const ol_case *c, const json_t *obj, const char *key, size_t *n);
double *ol_get_f64s(ol_test *t, const ol_case *c, const json_t *obj, const char *key, size_t *n);
uint16_t *ol_get_u16s(ol_test *t, const ol_case *c, const json_t *obj, const char *key,
                      size_t *n); /* f16, bf16 */
uint32_t *ol_get_u32s(ol_test *t, const ol_case *c, const json_t *obj, const char *key,
                      size_t *n); /* hex u32[] */
uint32_t *ol_get_ids(ol_test *t, const ol_case *c, const json_t *obj, const char *key,
                     size_t *n); /* integers */
int8_t *ol_get_i8s(ol_test *t, const ol_case *c, const json_t *obj, const char *key,
                   size_t *n); /* integers */
uint8_t *ol_get_bytes(ol_test *t, const ol_case *c, const json_t *obj, const char *key,
                      size_t *n); /* one hex string */

/* ------------------------------------------------------------------ files of the child */

/* Put a file into the child's directory (parents of `path` are made). */
void ol_put_file(ol_test *t, const char *path, const uint8_t *bytes, size_t n_bytes);
/* Write a list of pieces (vectors.md) to a file of the child, without holding it in memory. */
void ol_put_pieces(ol_test *t, const ol_case *c, const char *path, const json_t *pieces);
/* The bytes of pieces, for ops that take them inline; at most 4 MiB, else a broken golden. */
uint8_t *ol_pieces_bytes(ol_test *t, const ol_case *c, const json_t *pieces, size_t *n);
/* What stands at a path instead of a file: "missing", "directory", "fifo", "zero-device",
 * "unreadable", "link". false: cannot be made here (unreadable as root); the case is then left out
 * and counted as such. */
bool ol_put_node(ol_test *t, const char *path, const char *node);
/* Copy a model directory of the goldens (below the source's folder, "models/NAME") into the
 * child's directory; returns the relative path to name in requests. Once for each model and test.
 * c may be NULL: the first source. */
const char *ol_put_model(ol_test *t, const ol_case *c, const char *model);
/* Read a whole file of a model directory into the parent, to make variants of it. */
uint8_t *ol_model_file(ol_test *t, const ol_case *c, const char *model, const char *file,
                       size_t *n);
/* The models of the first source, sorted by name ("models/NAME"). */
size_t ol_n_models(ol_test *t);
const char *ol_model_at(ol_test *t, size_t index);

/* ------------------------------------------------------------------ requests */

/* Build a request's arguments with jansson's json_pack format; the op and seq are added. Examples:
 *   ol_call(t, "kv_alloc", "{s:i, s:i}", "pool", pool, "n", 3)
 *   ol_call(t, "f32_to_f16", "{s:o}", "x", ol_f32(x, n))
 * Send it, wait for the response, check frame, seq and shape. The response is owned by the test. */
const json_t *ol_call(ol_test *t, const char *op, const char *fmt, ...);
/* The same with arguments given as an object (stolen). */
const json_t *ol_call_object(ol_test *t, const char *op, json_t *args);
/* A list of calls in as many frames as needed; results in order. ol_list_add packs one call. */
typedef struct ol_list ol_list;
ol_list *ol_list_new(ol_test *t);
void ol_list_add(ol_list *list, const char *op, const char *fmt, ...);
size_t ol_list_len(const ol_list *list);
const json_t **ol_list_run(ol_list *list); /* [ol_list_len] responses; empties the list */

/* End the child and start another with an empty directory (the same test goes on). Handles are
 * gone. */
void ol_restart(ol_test *t);

/* The same with LC_ALL set to `locale` in the new child; false, and no new child, where it is not
 * installed. */
bool ol_restart_locale(ol_test *t, const char *locale);

/* Numbers into requests: new references. */
json_t *ol_u64(uint64_t v);
json_t *ol_f64(double v);
json_t *ol_u8(const uint8_t *v, size_t n);
json_t *ol_i8(const int8_t *v, size_t n);
json_t *ol_u16(const uint16_t *v, size_t n);
json_t *ol_u32(const uint32_t *v, size_t n);
json_t *ol_u64s(const uint64_t *v, size_t n);
json_t *ol_f32(const float *v, size_t n);

/* Did the call succeed? */
bool ol_ok(const json_t *response);
/* Numbers out of responses. A missing or malformed result of a response that says ok ends the test
 * (no-result:
 * "answer without `ids`"). Must not be called on a refusal. */
int64_t ol_int(ol_test *t, const json_t *response, const char *key);
uint64_t ol_res_u64(ol_test *t, const json_t *response, const char *key);
double ol_res_f64(ol_test *t, const json_t *response, const char *key);
const char *ol_res_text(ol_test *t, const json_t *response, const char *key);
uint8_t *ol_res_u8s(ol_test *t, const json_t *response, const char *key, size_t *n);
int8_t *ol_res_i8s(ol_test *t, const json_t *response, const char *key, size_t *n);
uint16_t *ol_res_u16s(ol_test *t, const json_t *response, const char *key, size_t *n);
uint32_t *ol_res_u32s(ol_test *t, const json_t *response, const char *key, size_t *n);
float *ol_res_f32s(ol_test *t, const json_t *response, const char *key, size_t *n);
double *ol_res_f64s(ol_test *t, const json_t *response, const char *key, size_t *n);

/* ------------------------------------------------------------------ checks */

/* Every function records one evaluation of the check `name` for the current case and returns
 * whether it held.
 * A strict check is recorded only with --strict (and then returns its truth; else true without
 * looking). */

/* Any condition; the message says what was asked, what came, what was allowed. Class fail. */
bool ol_check(ol_test *t, const char *name, bool held, const char *fmt, ...) OL_PRINTF(4, 5);
/* Note that the check was evaluated and held. */
void ol_held(ol_test *t, const char *name);

/* The call must have succeeded. Class refused-wrong else (status and text of the refusal are
 * shown). */
bool ol_check_ok(ol_test *t, const char *name, const json_t *response, const char *what);
/* Terms that the sentence of a refusal must name (tests#terms): names and numbers, separated by
 * blanks, in any order; `a|b` is one of two. Literals are marked, so that spec.py can hold them and
 * the table of tests.md together; each %-directive stands for one number or name. */
#define OL_TERMS(literal) literal

/* The call must have been refused with one of `statuses` ("FORMAT" or "FORMAT|IO"); in strict mode
 * the message must name `terms` (NULL: any), and the offset be `offset` (-1: any; compared in every
 * mode). Class refused-wrong else. */
bool ol_check_refused(ol_test *t, const char *name, const json_t *response, const char *statuses,
                      const char *terms, int64_t offset, const char *what);
/* The message of a refusal must name `terms`, whatever the mode: for strict checks. Class fail. */
bool ol_check_named(ol_test *t, const char *name, const json_t *response, const char *terms,
                    const char *what);

/* Integers and bits. `what` names the value in words. */
bool ol_check_int(ol_test *t, const char *name, int64_t got, int64_t want, const char *what);
bool ol_check_u64(ol_test *t, const char *name, uint64_t got, uint64_t want, const char *what);
bool ol_check_f64_bits(ol_test *t, const char *name, double got, double want, const char *what);

/* Arrays: the lengths are compared too; a NaN equals any NaN and nothing else; the first difference
 * is recorded with index, both bit patterns and the ulp distance. Where `want` is finite and `got`
 * is not, the message says so before any tolerance. */
bool ol_check_u8s(ol_test *t, const char *name, const uint8_t *got, size_t n_got,
                  const uint8_t *want, size_t n_want, const char *what);
bool ol_check_i8s(ol_test *t, const char *name, const int8_t *got, size_t n_got, const int8_t *want,
                  size_t n_want, const char *what);
bool ol_check_u16s(ol_test *t, const char *name, const uint16_t *got, size_t n_got,
                   const uint16_t *want, size_t n_want, const char *what);
/* f16 patterns; any NaN equals any NaN. */
bool ol_check_f16s(ol_test *t, const char *name, const uint16_t *got, size_t n_got,
                   const uint16_t *want, size_t n_want, const char *what);
bool ol_check_u32s(ol_test *t, const char *name, const uint32_t *got, size_t n_got,
                   const uint32_t *want, size_t n_want, const char *what);
bool ol_check_f32_bits(ol_test *t, const char *name, const float *got, size_t n_got,
                       const float *want, size_t n_want, const char *what);
bool ol_check_f64s_bits(ol_test *t, const char *name, const double *got, size_t n_got,
                        const double *want, size_t n_want, const char *what);
/* |got[i] - want[i]| <= bound * max|want|, in f64; the worst / allowed ratio is recorded. */
bool ol_check_f32_max_abs(ol_test *t, const char *name, const float *got, size_t n_got,
                          const float *want, size_t n_want, double bound, const char *what);
/* |got[i] - want[i]| <= allowed[i]. */
bool ol_check_f32_within(ol_test *t, const char *name, const float *got, size_t n_got,
                         const double *want, const double *allowed, size_t n_want,
                         const char *what);

/* ------------------------------------------------------------------ the tests */

typedef void ol_test_fn(ol_test *t);

typedef struct ol_test_entry {
    const char *name; /* the catalogue's */
    ol_test_fn *run;
} ol_test_entry;

/* In conformance/tests/tests.c: one entry for each name of the catalogue. */
extern const ol_test_entry ol_test_entries[];
extern const size_t ol_n_test_entries;

#endif
