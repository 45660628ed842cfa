/* runner.c: a model, a pool, a scratch and a row of logits under one roof.
 *
 * Source: conformance/spec/forward.md (forward#run_once). */
#include "tl/runner.h"

#include <stdlib.h>
#include <string.h>

#include "util.h"

struct tl_runner {
    const tl_model *model;
    tl_model *owned; /* the same one when the runner loaded it, else NULL */
    tl_kv_pool *pool;
    tl_scratch *scratch;
    tl_logits row;    /* of run_once */
    uint32_t *blocks; /* [kv_n_blocks] of run_once */
};

tl_engine_cfg tl_engine_cfg_default(void) {
    return (tl_engine_cfg){.max_batch_tokens = 512,
                           .max_seqs = 16,
                           .prefill_chunk = 512,
                           .prefix_cache = TL_PREFIX_CACHE_ON,
                           .kv_n_blocks = 256,
                           .kv_block_tokens = 16,
                           .policy = TL_SCHED_FCFS,
                           .n_threads = 1,
                           .isa = TL_ISA_AUTO,
                           .weights = TL_WEIGHTS_MAP};
}

static tl_status set_up(tl_runner *runner, const tl_engine_cfg *cfg, tl_error *err) {
    const tl_model_config *m = tl_model_config_of(runner->model);
    const tl_kv_cfg kv = {.n_blocks = cfg->kv_n_blocks,
                          .block_tokens = cfg->kv_block_tokens,
                          .n_layers = (uint32_t)m->n_layers,
                          .n_kv_heads = (uint32_t)m->n_kv_heads,
                          .head_dim = (uint32_t)m->head_dim,
                          .dtype = TL_KV_DTYPE_F16,
                          .format = TL_KV_FORMAT_V1,
                          .prefix_cache = cfg->prefix_cache};
    const tl_limits limits = {.max_batch_tokens = cfg->max_batch_tokens,
                              .max_seqs = cfg->max_seqs,
                              .n_threads = cfg->n_threads,
                              .isa = cfg->isa,
                              .max_blocks = cfg->kv_n_blocks};
    TLI_TRY(tl_kv_pool_new(&runner->pool, &kv, err));
    TLI_TRY(tl_scratch_new(&runner->scratch, m, &limits, err));
    TLI_TRY(tl_logits_init(&runner->row, 1, m->vocab_size, err));
    runner->blocks = tli_calloc(cfg->kv_n_blocks, sizeof *runner->blocks);
    if (runner->blocks == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a block table");
    }
    return TL_OK;
}

static tl_status make(tl_runner **out, const tl_model *model, const tl_engine_cfg *cfg,
                      tl_model *owned, tl_error *err) {
    tl_runner *runner = tli_calloc(1, sizeof *runner);
    if (runner == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a runner");
    }
    runner->model = model;
    const tl_status status = set_up(runner, cfg, err);
    if (status != TL_OK) {
        tl_runner_free(runner);
        return status;
    }
    runner->owned = owned;
    *out = runner;
    return TL_OK;
}

tl_status tl_runner_new(tl_runner **out, const tl_model *model, const tl_engine_cfg *cfg,
                        tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    if (model == NULL || cfg == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "model or cfg is NULL");
    }
    return make(out, model, cfg, NULL, err);
}

tl_status tl_runner_load(tl_runner **out, const char *dir, const tl_engine_cfg *cfg,
                         tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    if (cfg == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "cfg is NULL");
    }
    tl_model *model = NULL;
    const tl_model_load_cfg load = {.weights = cfg->weights, .quant = cfg->quant};
    TLI_TRY(tl_model_load(&model, dir, &load, err));
    const tl_status status = make(out, model, cfg, model, err);
    if (status != TL_OK) {
        tl_model_free(model);
    }
    return status;
}

void tl_runner_free(tl_runner *runner) {
    if (runner != NULL) {
        free(runner->blocks);
        tl_logits_clear(&runner->row);
        tl_scratch_free(runner->scratch);
        tl_kv_pool_free(runner->pool);
        tl_model_free(runner->owned);
        free(runner);
    }
}

static tl_status step(tl_runner *runner, const tl_forward_batch *batch, float *hidden,
                      size_t hidden_len, tl_logits *logits, tl_error *err) {
    return tl_forward(tl_model_config_of(runner->model), tl_model_weights(runner->model),
                      runner->pool, runner->scratch, batch, hidden, hidden_len, logits, err);
}

tl_status tl_runner_forward(tl_runner *runner, const tl_forward_batch *batch, tl_logits *logits,
                            tl_error *err) {
    if (runner == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "runner is NULL");
    }
    return step(runner, batch, NULL, 0, logits, err);
}

/* ------------------------------------------------------------------ run_once */

/* All that can be wrong with a call, before a block is taken. */
static tl_status check_once(const tl_runner *runner, const uint32_t *tokens, size_t n_tokens,
                            const float *hidden, size_t hidden_len, const float *logits,
                            size_t logits_len, tl_error *err) {
    if (runner == NULL || tokens == NULL || n_tokens == 0 || logits == NULL) {
        return tli_fail(err, TL_ERR_INVALID,
                        "there is no token, or runner, tokens or logits is NULL");
    }
    const tl_model_config *cfg = tl_model_config_of(runner->model);
    if (n_tokens > cfg->max_positions) {
        return tli_fail(err, TL_ERR_INVALID, "%zu tokens, the context has %zu positions", n_tokens,
                        cfg->max_positions);
    }
    for (size_t i = 0; i < n_tokens; i++) {
        if (tokens[i] >= cfg->vocab_size) {
            return tli_fail(err, TL_ERR_INVALID, "token %zu is %lu, ids below %zu are allowed", i,
                            (unsigned long)tokens[i], cfg->vocab_size);
        }
    }
    const size_t needed = hidden == NULL ? 0 : n_tokens * cfg->hidden_size;
    if (hidden_len != needed || (hidden != NULL && cfg->arch == TL_ARCH_BIGRAM) ||
        logits_len != cfg->vocab_size) {
        return tli_fail(err, TL_ERR_INVALID,
                        "room for %zu hidden values and %zu logits, %zu and %zu are needed",
                        hidden_len, logits_len, needed, cfg->vocab_size);
    }
    return TL_OK;
}

/* The prompt in steps that are short enough; runner->row has the last logits then. */
static tl_status run_steps(tl_runner *runner, const uint32_t *tokens, size_t n_tokens,
                           size_t n_blocks, float *hidden, tl_error *err) {
    const size_t d = tl_model_config_of(runner->model)->hidden_size;
    const size_t most = tl_scratch_limits(runner->scratch)->max_batch_tokens;
    size_t start = 0;
    while (start < n_tokens) {
        const size_t n = n_tokens - start < most ? n_tokens - start : most;
        const tl_forward_seq seq = {.tokens = tokens + start,
                                    .n_tokens = n,
                                    .start = start,
                                    .blocks = runner->blocks,
                                    .n_blocks = n_blocks};
        const tl_forward_batch batch = {.seqs = &seq, .n_seqs = 1};
        TLI_TRY(step(runner, &batch, hidden == NULL ? NULL : hidden + start * d,
                     hidden == NULL ? 0 : n * d, &runner->row, err));
        start += n;
    }
    return TL_OK;
}

tl_status tl_runner_run_once(tl_runner *runner, const uint32_t *tokens, size_t n_tokens,
                             float *hidden, size_t hidden_len, float *logits, size_t logits_len,
                             tl_error *err) {
    TLI_TRY(check_once(runner, tokens, n_tokens, hidden, hidden_len, logits, logits_len, err));
    const size_t per_block = tl_kv_pool_cfg(runner->pool)->block_tokens;
    const size_t n_blocks = (n_tokens - 1) / per_block + 1;
    const tl_kv_stats stats = tl_kv_pool_stats(runner->pool);
    if (n_blocks > stats.n_free) { /* cached blocks would do, but they belong to the index */
        return tli_fail(err, TL_ERR_CAPACITY, "%zu blocks are needed, %lu are free", n_blocks,
                        (unsigned long)stats.n_free);
    }
    TLI_TRY(tl_kv_pool_alloc(runner->pool, runner->blocks, n_blocks, err));
    tl_status status = run_steps(runner, tokens, n_tokens, n_blocks, hidden, err);
    for (size_t i = 0; i < n_blocks; i++) {
        const tl_status released = tl_kv_pool_release(runner->pool, runner->blocks[i], NULL);
        status = status == TL_OK ? released : status;
    }
    if (status == TL_OK) {
        memcpy(logits, runner->row.data, logits_len * sizeof *logits);
    }
    return status;
}

tl_kv_pool *tl_runner_pool(tl_runner *runner) {
    return runner == NULL ? NULL : runner->pool;
}

uint32_t tl_runner_block_tokens(const tl_runner *runner) {
    return runner == NULL ? 0 : tl_kv_pool_cfg(runner->pool)->block_tokens;
}

const tl_model_config *tl_runner_config(const tl_runner *runner) {
    return runner == NULL ? NULL : tl_model_config_of(runner->model);
}

const tl_limits *tl_runner_limits(const tl_runner *runner) {
    return runner == NULL ? NULL : tl_scratch_limits(runner->scratch);
}
