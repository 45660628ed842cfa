/* file_cases.h: golden cases that give a file and say whether it must be taken: what the tests of
 * safetensors and config share.
 *
 * A case is carried out at most once in a test; its outcome is kept, since most accepted cases are
 * also the twin of refused ones. Which check a case is about is the name of its group, where that
 * is one of the test's checks, else what the test falls back to. */
#ifndef OL_TESTS_FILE_CASES_H
#define OL_TESTS_FILE_CASES_H

#include "../runner/test.h"

typedef struct file_outcome {
    const ol_case *c;
    bool left_out;         /* what the case needs cannot be made on this machine */
    const json_t *answer;  /* to the request that the verdict is about */
    const json_t *opened;  /* to the request that opened the file; NULL when it was no such */
    const json_t **values; /* [n_tensors of the case] answers to reads, NULL where none was made */
} file_outcome;

/* Carry a case out. `number` is another one for each case, for the name of its directory. */
typedef file_outcome file_run_fn(ol_test *t, const ol_case *c, size_t number);
/* Look at a sound outcome beyond its being accepted, under this check. */
typedef void file_look_fn(ol_test *t, const char *check, const file_outcome *o);

typedef struct file_suite {
    const char *suite;
    const char *const *checks; /* names that a group can have, NULL at the end */
    const char *(*fallback)(ol_test *t, const ol_case *c);
    file_run_fn *run;
    file_look_fn *look;
    const char *(*subject_check)(const char *check); /* strict check for the message */
    const char *offset_check;                        /* NULL: the suite has no offsets */
} file_suite;

/* Every selected case of the suite with all checks that it and its twin are about. */
void file_cases_run(ol_test *t, const file_suite *suite);

bool file_is_refusal(ol_test *t, const ol_case *c);

/* Put a file of pieces, or the node that stands in its place. false: cannot be made here. */
bool file_put(ol_test *t, const ol_case *c, const char *path, const json_t *pieces,
              const char *node);

#endif
