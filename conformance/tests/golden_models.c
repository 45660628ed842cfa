/* golden_models.c: see golden_models.h. */
#include "golden_models.h"

#include <string.h>

#define BLOCK_TOKENS 16

void golden_free(ol_test *t, golden_model *m) {
    if (m->name != NULL && m->loaded) {
        step_free(t, &m->r);
    }
    m->name = NULL;
}

size_t golden_longest(ol_test *t, const char *suite, const char *model) {
    size_t longest = 1;
    for (size_t i = 0; i < ol_n_cases(t, suite); i++) {
        const ol_case *c = ol_case_at(t, suite, i);
        size_t n = json_array_size(json_object_get(c->body, "prompt"));
        if (strcmp(ol_get_text(t, c, c->body, "model"), model) == 0 && n > longest) {
            longest = n;
        }
    }
    return longest;
}

bool golden_load(ol_test *t, const char *check, golden_model *m, const ol_case *c, size_t room) {
    const char *name = ol_get_text(t, c, c->body, "model");
    const char *dir = ol_put_model(t, c, name);
    if (m->name != NULL && strcmp(m->dir, dir) == 0) {
        return m->loaded;
    }
    golden_free(t, m);
    m->name = name;
    m->dir = dir;
    step_cfg cfg = {.n_blocks = room / BLOCK_TOKENS + 2,
                    .block_tokens = BLOCK_TOKENS,
                    .max_batch_tokens = room};
    m->loaded = step_load(t, check, dir, &cfg, &m->r);
    return m->loaded;
}
