/* runner.c: puts model, pool and scratch together, and runs one prompt on blocks of its own.
 *
 * Composition only: every check of a batch is tl_forward's. run_once checks up front what its later
 * chunks would refuse, so that it either writes its outputs or leaves them alone.
 *
 * Source: conformance/spec/forward.md, run_once. */
#include "tl/runner.h"

#include <stdlib.h>

#include "util.h"

struct tl_runner {
    const tl_model *model;
    tl_model *owned_model; /* NULL when the model is the caller's */
    tl_kv_pool *pool;
    tl_scratch *scratch;
    uint32_t *once_blocks; /* [n_blocks] table of run_once */
    uint32_t block_tokens;
};

tl_engine_cfg tl_engine_cfg_default(void) {
    return (tl_engine_cfg){
        .max_batch_tokens = 512,
        .max_seqs = 16,
        .prefill_chunk = 512,
        .prefix_cache = TL_PREFIX_CACHE_ON,
        .kv_n_blocks = 256,
        .kv_block_tokens = 16,
        .policy = TL_SCHED_FCFS,
        .n_threads = 1,
        .isa = TL_ISA_AUTO,
        .weights = TL_WEIGHTS_MAP,
        .quant = {.int4_group = 0},
    };
}

/* ------------------------------------------------------------------ beginning and end */

static tl_status make_pool(tl_runner *runner, const tl_model_config *model,
                           const tl_engine_cfg *cfg, tl_error *err) {
    const tl_kv_cfg shape = {
        .n_blocks = cfg->kv_n_blocks,
        .block_tokens = cfg->kv_block_tokens,
        .n_layers = (uint32_t)model->n_layers, /* the counts of a config are at most 2^24 */
        .n_kv_heads = (uint32_t)model->n_kv_heads,
        .head_dim = (uint32_t)model->head_dim,
        .dtype = TL_KV_DTYPE_F16,
        .format = TL_KV_FORMAT_V1,
        .prefix_cache = cfg->prefix_cache,
        .model_tag = 0,
    };
    return tl_kv_pool_new(&runner->pool, &shape, err);
}

/* No sequence gets longer than the pool can hold, so the scratch need not be made for more. */
static size_t longest_context(const tl_model_config *model, const tl_engine_cfg *cfg) {
    const uint64_t pool_tokens = (uint64_t)cfg->kv_n_blocks * cfg->kv_block_tokens;
    return pool_tokens < model->max_positions ? (size_t)pool_tokens : model->max_positions;
}

static tl_status make_scratch(tl_runner *runner, const tl_model_config *model,
                              const tl_engine_cfg *cfg, tl_error *err) {
    const tl_limits limits = {
        .max_batch_tokens = cfg->max_batch_tokens,
        .max_seqs = cfg->max_seqs,
        .n_threads = cfg->n_threads,
        .isa = cfg->isa,
        .max_context = longest_context(model, cfg),
        .max_blocks = cfg->kv_n_blocks,
    };
    return tl_scratch_new(&runner->scratch, model, &limits, err);
}

/* Everything a runner has besides its model; on failure tl_runner_free cleans up. */
static tl_status build_runner(tl_runner *runner, const tl_engine_cfg *cfg, tl_error *err) {
    const tl_model_config *model = tl_model_config_of(runner->model);
    TLI_TRY(make_pool(runner, model, cfg, err));
    TLI_TRY(make_scratch(runner, model, cfg, err));
    runner->block_tokens = cfg->kv_block_tokens;
    runner->once_blocks = tli_calloc(cfg->kv_n_blocks, sizeof *runner->once_blocks);
    if (runner->once_blocks == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a table of %u blocks",
                        (unsigned)cfg->kv_n_blocks);
    }
    return TL_OK;
}

static tl_status check_engine_cfg(const tl_engine_cfg *cfg, tl_error *err) {
    if (cfg->policy != TL_SCHED_FCFS && cfg->policy != TL_SCHED_PRIORITY) {
        return tli_fail(err, TL_ERR_INVALID, "scheduling policy %d is not known", (int)cfg->policy);
    }
    if (cfg->weights != TL_WEIGHTS_MAP && cfg->weights != TL_WEIGHTS_COPY) {
        return tli_fail(err, TL_ERR_INVALID, "weights mode %d is not known", (int)cfg->weights);
    }
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
    TLI_TRY(check_engine_cfg(cfg, err));
    tl_runner *runner = tli_calloc(1, sizeof *runner);
    if (runner == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a runner");
    }
    runner->model = model;
    const tl_status status = build_runner(runner, cfg, err);
    if (status != TL_OK) {
        tl_runner_free(runner);
        return status;
    }
    *out = runner;
    return TL_OK;
}

tl_status tl_runner_load(tl_runner **out, const char *dir, const tl_engine_cfg *cfg,
                         tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    if (dir == NULL || cfg == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "dir or cfg is NULL");
    }
    TLI_TRY(check_engine_cfg(cfg, err));
    const tl_model_load_cfg load = {.weights = cfg->weights, .quant = cfg->quant};
    tl_model *model = NULL;
    TLI_TRY(tl_model_load(&model, dir, &load, err));
    const tl_status status = tl_runner_new(out, model, cfg, err);
    if (status != TL_OK) {
        tl_model_free(model);
        return status;
    }
    (*out)->owned_model = model;
    return TL_OK;
}

void tl_runner_free(tl_runner *runner) {
    if (runner == NULL) {
        return;
    }
    free(runner->once_blocks);
    tl_scratch_free(runner->scratch);
    tl_kv_pool_free(runner->pool);
    tl_model_free(runner->owned_model);
    free(runner);
}

/* ------------------------------------------------------------------ steps */

tl_status tl_runner_forward(tl_runner *runner, const tl_forward_batch *batch, tl_logits *logits,
                            tl_error *err) {
    if (runner == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "runner is NULL");
    }
    return tl_forward(tl_model_config_of(runner->model), tl_model_weights(runner->model),
                      runner->pool, runner->scratch, batch, NULL, 0, logits, err);
}

/* A prompt of run_once and where its results go. */
typedef struct once {
    const uint32_t *tokens;
    size_t n_tokens;
    float *hidden; /* [n_tokens, d] or NULL */
    size_t hidden_len;
    float *logits; /* [V] */
    size_t logits_len;
    size_t n_blocks;
} once;

static tl_status check_once_outputs(const tl_model_config *cfg, const once *o, tl_error *err) {
    if (o->logits == NULL || o->logits_len != cfg->vocab_size) {
        return tli_fail(err, TL_ERR_INVALID, "logits has %zu elements, the vocabulary has %zu",
                        o->logits_len, cfg->vocab_size);
    }
    size_t n_hidden = 0;
    if (o->hidden != NULL && !tli_mul(o->n_tokens, cfg->hidden_size, &n_hidden)) {
        return tli_fail(err, TL_ERR_INVALID, "hidden of %zu tokens overflows", o->n_tokens);
    }
    if (o->hidden_len != n_hidden || (o->hidden != NULL && n_hidden == 0)) {
        return tli_fail(err, TL_ERR_INVALID, "hidden has %zu elements, %zu tokens of %zu are due",
                        o->hidden_len, o->n_tokens, cfg->hidden_size);
    }
    return TL_OK;
}

static tl_status check_once(const tl_model_config *cfg, const once *o, tl_error *err) {
    if (o->n_tokens == 0 || o->tokens == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "the prompt has no token, at least 1 is needed");
    }
    if (o->n_tokens > cfg->max_positions) {
        return tli_fail(err, TL_ERR_INVALID, "a prompt of %zu tokens passes the context of %zu",
                        o->n_tokens, cfg->max_positions);
    }
    for (size_t i = 0; i < o->n_tokens; i++) {
        if (o->tokens[i] >= cfg->vocab_size) {
            return tli_fail(err, TL_ERR_INVALID, "token %zu has id %u, the vocabulary has %zu", i,
                            (unsigned)o->tokens[i], cfg->vocab_size);
        }
    }
    return check_once_outputs(cfg, o, err);
}

/* Take free blocks only: alloc would go on to the cached ones, which belong to the prefix index. */
static tl_status take_blocks(tl_runner *runner, const once *o, tl_error *err) {
    const uint32_t n_free = tl_kv_pool_stats(runner->pool).n_free;
    if (o->n_blocks > n_free) {
        return tli_fail(err, TL_ERR_CAPACITY,
                        "a prompt of %zu tokens needs %zu blocks, %u are free", o->n_tokens,
                        o->n_blocks, (unsigned)n_free);
    }
    return tl_kv_pool_alloc(runner->pool, runner->once_blocks, o->n_blocks, err);
}

/* Give every block of run_once back, whatever became of it. */
static tl_status give_blocks_back(tl_runner *runner, size_t n_blocks, tl_error *err) {
    tl_status first = TL_OK;
    for (size_t i = 0; i < n_blocks; i++) {
        tl_error *to = first == TL_OK ? err : NULL;
        const tl_status status = tl_kv_pool_release(runner->pool, runner->once_blocks[i], to);
        first = first == TL_OK ? status : first;
    }
    return first;
}

/* The prompt in steps of as many tokens as the scratch takes. */
static tl_status run_chunks(tl_runner *runner, const once *o, tl_error *err) {
    const tl_model_config *cfg = tl_model_config_of(runner->model);
    const size_t n_step = tl_scratch_limits(runner->scratch)->max_batch_tokens;
    tl_logits logits = {
        .vocab = cfg->vocab_size, .max_rows = 1, .data = o->logits, .data_len = o->logits_len};
    size_t n = 0;
    for (size_t start = 0; start < o->n_tokens; start += n) {
        n = o->n_tokens - start < n_step ? o->n_tokens - start : n_step;
        const tl_forward_seq seq = {.tokens = o->tokens + start,
                                    .n_tokens = n,
                                    .start = start,
                                    .blocks = runner->once_blocks,
                                    .n_blocks = o->n_blocks};
        const tl_forward_batch batch = {.seqs = &seq, .n_seqs = 1};
        float *hidden = o->hidden != NULL ? o->hidden + start * cfg->hidden_size : NULL;
        const size_t hidden_len = o->hidden != NULL ? n * cfg->hidden_size : 0;
        TLI_TRY(tl_forward(cfg, tl_model_weights(runner->model), runner->pool, runner->scratch,
                           &batch, hidden, hidden_len, &logits, err));
    }
    return TL_OK;
}

tl_status tl_runner_run_once(tl_runner *runner, const uint32_t *tokens, size_t n_tokens,
                             float *hidden, size_t hidden_len, float *logits, size_t logits_len,
                             tl_error *err) {
    if (runner == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "runner is NULL");
    }
    once o = {.tokens = tokens,
              .n_tokens = n_tokens,
              .hidden = hidden,
              .hidden_len = hidden_len,
              .logits = logits,
              .logits_len = logits_len};
    TLI_TRY(check_once(tl_model_config_of(runner->model), &o, err));
    o.n_blocks = (n_tokens - 1) / runner->block_tokens + 1;
    TLI_TRY(take_blocks(runner, &o, err));
    const tl_status ran = run_chunks(runner, &o, err);
    const tl_status given = give_blocks_back(runner, o.n_blocks, ran == TL_OK ? err : NULL);
    return ran != TL_OK ? ran : given;
}

/* ------------------------------------------------------------------ parts */

tl_kv_pool *tl_runner_pool(tl_runner *runner) {
    return runner != NULL ? runner->pool : NULL;
}

uint32_t tl_runner_block_tokens(const tl_runner *runner) {
    return runner != NULL ? runner->block_tokens : 0;
}

const tl_model_config *tl_runner_config(const tl_runner *runner) {
    return runner != NULL ? tl_model_config_of(runner->model) : NULL;
}

const tl_limits *tl_runner_limits(const tl_runner *runner) {
    return runner != NULL ? tl_scratch_limits(runner->scratch) : NULL;
}
