/* golden_models.h: the models of the goldens as tests 18 and 19 go through them: one loaded at a
 * time, with room for the longest prompt of the cases. */
#ifndef OL_TESTS_GOLDEN_MODELS_H
#define OL_TESTS_GOLDEN_MODELS_H

#include "steps.h"

typedef struct golden_model {
    const char *name; /* "models/NAME" of the case; NULL: nothing is loaded */
    const char *dir;  /* in the child's directory */
    bool loaded;      /* the testee took it */
    step_runner r;
} golden_model;

/* Make the model of case c the loaded one, with a context of `room` positions (and steps as long)
 * in blocks of 16. false: the testee refused it, which is recorded under `check` once. */
bool golden_load(ol_test *t, const char *check, golden_model *m, const ol_case *c, size_t room);
void golden_free(ol_test *t, golden_model *m);

/* The longest prompt among the cases of `suite` that use this model. */
size_t golden_longest(ol_test *t, const char *suite, const char *model);

#endif
