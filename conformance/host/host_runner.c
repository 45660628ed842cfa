/* host_runner.c: the ops of a loaded model: load, forward, run_once. */
#include "host.h"

#include <string.h>

/* ------------------------------------------------------------------ load */

static tl_engine_cfg arg_engine_cfg(host *h, const json_t *in) {
    tl_engine_cfg cfg = h->tl.engine_cfg_default();
    cfg.max_batch_tokens = host_arg_size_or(h, in, "max_batch_tokens", 512);
    cfg.max_seqs = host_arg_size_or(h, in, "max_seqs", 16);
    cfg.prefix_cache =
        host_arg_bool_or(h, in, "prefix_cache", true) ? TL_PREFIX_CACHE_ON : TL_PREFIX_CACHE_OFF;
    cfg.kv_n_blocks = (uint32_t)host_arg_count_or(h, in, "n_blocks", UINT32_MAX, 256);
    cfg.kv_block_tokens = (uint32_t)host_arg_count_or(h, in, "block_tokens", UINT32_MAX, 16);
    cfg.n_threads = host_arg_size_or(h, in, "threads", 1);
    cfg.isa = host_arg_isa(h, in);
    cfg.weights = host_arg_weights(h, in);
    cfg.quant.int4_group = host_arg_size_or(h, in, "int4_group", 0);
    return cfg;
}

static bool op_load(host *h, const json_t *in, json_t *out) {
    const char *dir = host_arg_text(h, in, "dir");
    tl_engine_cfg cfg = arg_engine_cfg(h, in);
    const tl_engine_cfg *given = host_const(h, "cfg", &cfg, sizeof cfg);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_runner *runner = host_unset();
    tl_status status = h->tl.runner_load(&runner, dir, given, &err);
    void *object = runner;
    if (!host_made(h, out, status, &err, &object)) {
        return false;
    }
    int64_t number = host_handle_add(h, HOST_RUNNER, runner, 0);
    tl_kv_pool *pool = h->tl.runner_pool(runner);
    const tl_model_config *config = h->tl.runner_config(runner);
    if (pool == NULL || config == NULL) {
        host_bad(h, "the runner has no pool or no config");
        return false;
    }
    host_put_int(out, "runner", (uint64_t)number);
    host_put_int(out, "pool", (uint64_t)host_handle_add(h, HOST_POOL, pool, number));
    json_t *fields = json_object();
    host_put_config(fields, config);
    host_put(out, "config", fields);
    return true;
}

static bool op_runner_free(host *h, const json_t *in, json_t *out) {
    (void)out;
    int64_t number = 0;
    (void)host_arg_handle(h, in, "runner", HOST_RUNNER, &number);
    if (!host_ready(h)) {
        return false;
    }
    host_handle_free(h, number);
    return true;
}

/* ------------------------------------------------------------------ forward */

/* An integer, or 16 hex digits where a JSON integer does not reach. */
static size_t arg_start(host *h, const json_t *in) {
    if (json_is_string(json_object_get(in, "start"))) {
        return (size_t)host_arg_u64(h, in, "start");
    }
    return (size_t)host_arg_count(h, in, "start", SIZE_MAX);
}

static const tl_forward_seq *arg_seqs(host *h, const json_t *in, size_t *n_seqs) {
    const json_t *list = json_object_get(in, "seqs");
    *n_seqs = json_array_size(list);
    if (!json_is_array(list)) {
        host_bad(h, "`seqs` is no array");
    }
    tl_forward_seq *seqs = host_input(h, "seqs", host_mul(h, *n_seqs, sizeof *seqs));
    for (size_t i = 0; seqs != NULL && i < *n_seqs; i++) {
        const json_t *seq = json_array_get(list, i);
        memset(&seqs[i], 0, sizeof seqs[i]);
        seqs[i].tokens = host_arg_array(h, seq, "tokens", "u32", &seqs[i].n_tokens);
        seqs[i].start = arg_start(h, seq);
        seqs[i].blocks = host_arg_array(h, seq, "blocks", "u32", &seqs[i].n_blocks);
    }
    return seqs;
}

static bool op_forward(host *h, const json_t *in, json_t *out) {
    tl_runner *runner = host_arg_handle(h, in, "runner", HOST_RUNNER, NULL);
    size_t n_seqs = 0;
    const tl_forward_seq *seqs = arg_seqs(h, in, &n_seqs);
    size_t max_rows = host_arg_size_or(h, in, "rows_cap", n_seqs);
    if (host_is_bad(h)) {
        return false;
    }
    tl_logits logits = {.vocab = h->tl.runner_config(runner)->vocab_size, .max_rows = max_rows};
    logits.data_len = host_mul(h, max_rows, logits.vocab);
    logits.data = host_output(h, "logits", host_mul(h, logits.data_len, sizeof *logits.data));
    tl_forward_batch batch = {.seqs = seqs, .n_seqs = n_seqs};
    const tl_forward_batch *given = host_const(h, "batch", &batch, sizeof batch);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = h->tl.runner_forward(runner, given, &logits, &err);
    if (status != TL_OK && logits.n_rows != 0) {
        host_violation(h, "a refused step changed the number of rows");
    }
    if (!host_answer(out, status, &err)) {
        return false;
    }
    if (logits.n_rows != n_seqs) {
        host_bad(h, "the engine gave %zu rows of logits for %zu sequences", logits.n_rows, n_seqs);
        return false;
    }
    host_put_array(out, "logits", "f32", logits.data, n_seqs * logits.vocab);
    return true;
}

static bool op_run_once(host *h, const json_t *in, json_t *out) {
    tl_runner *runner = host_arg_handle(h, in, "runner", HOST_RUNNER, NULL);
    size_t n_tokens = 0;
    const uint32_t *tokens = host_arg_array(h, in, "tokens", "u32", &n_tokens);
    bool with_hidden = host_arg_bool_or(h, in, "hidden", false);
    if (host_is_bad(h)) {
        return false;
    }
    const tl_model_config *cfg = h->tl.runner_config(runner);
    size_t hidden_len = with_hidden ? host_mul(h, n_tokens, cfg->hidden_size) : 0;
    float *hidden = host_output(h, "hidden", host_mul(h, hidden_len, sizeof *hidden));
    float *logits = host_output(h, "logits", host_mul(h, cfg->vocab_size, sizeof *logits));
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = h->tl.runner_run_once(runner, tokens, n_tokens, hidden, hidden_len, logits,
                                             cfg->vocab_size, &err);
    if (!host_answer(out, status, &err)) {
        return false;
    }
    host_put_array(out, "logits", "f32", logits, cfg->vocab_size);
    if (with_hidden) {
        host_put_array(out, "hidden", "f32", hidden, hidden_len);
    }
    return true;
}

const host_op host_runner_ops[] = {
    {"load", op_load},
    {"forward", op_forward},
    {"run_once", op_run_once},
    {"runner_free", op_runner_free},
    {NULL, NULL},
};
