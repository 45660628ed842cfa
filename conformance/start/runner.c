/* runner.c: a model, a pool and a scratch under one roof.
 *
 * To be written. tl_runner_run_once takes blocks of its own and gives them back whatever happens.
 *
 * Read conformance/spec/forward.md, run_once; the header says what each call promises.
 * Tests: ol check L10.1 --engine . --only 'run_once_*' (and bigram_*, int4_runner_*). */
#include "tl/runner.h"

#include "util.h"

/* Every call refuses until it is written. */
static tl_status not_written(const char *call, tl_error *err) {
    return tli_fail(err, TL_ERR_INTERNAL, "%s is not written yet", call);
}

tl_engine_cfg tl_engine_cfg_default(void) {
    return (tl_engine_cfg){0};
}

tl_status tl_runner_new(tl_runner **out, const tl_model *model, const tl_engine_cfg *cfg,
                        tl_error *err) {
    (void)model;
    (void)cfg;
    if (out != NULL) {
        *out = NULL;
    }
    return not_written("tl_runner_new", err);
}

tl_status tl_runner_load(tl_runner **out, const char *dir, const tl_engine_cfg *cfg,
                         tl_error *err) {
    (void)dir;
    (void)cfg;
    if (out != NULL) {
        *out = NULL;
    }
    return not_written("tl_runner_load", err);
}

void tl_runner_free(tl_runner *runner) {
    (void)runner;
}

tl_status tl_runner_forward(tl_runner *runner, const tl_forward_batch *batch, tl_logits *logits,
                            tl_error *err) {
    (void)runner;
    (void)batch;
    (void)logits;
    return not_written("tl_runner_forward", err);
}

tl_status tl_runner_run_once(tl_runner *runner, const uint32_t *tokens, size_t n_tokens,
                             float *hidden, size_t hidden_len, float *logits, size_t logits_len,
                             tl_error *err) {
    (void)runner;
    (void)tokens;
    (void)n_tokens;
    (void)hidden;
    (void)hidden_len;
    (void)logits;
    (void)logits_len;
    return not_written("tl_runner_run_once", err);
}

tl_kv_pool *tl_runner_pool(tl_runner *runner) {
    (void)runner;
    return NULL;
}

uint32_t tl_runner_block_tokens(const tl_runner *runner) {
    (void)runner;
    return 0;
}

const tl_model_config *tl_runner_config(const tl_runner *runner) {
    (void)runner;
    return NULL;
}

const tl_limits *tl_runner_limits(const tl_runner *runner) {
    (void)runner;
    return NULL;
}
