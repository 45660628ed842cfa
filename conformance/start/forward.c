/* forward.c: one step of the model over a batch.
 *
 * To be written. tl/ops.h gives every product, norm and rotation in the order of sums that the
 * page asks for.
 * Begin with tl_scratch_new and one sequence; tl_forward_check comes before anything is written.
 *
 * Read conformance/spec/forward.md; the header says what each call promises.
 * Tests: ol check L10.1 --engine . --only 'tiny_llama_*' (and incremental_*, batched_*,
 * forward_refuses_*). */
#include "tl/forward.h"

#include "util.h"

/* Every call refuses until it is written. */
static tl_status not_written(const char *call, tl_error *err) {
    return tli_fail(err, TL_ERR_INTERNAL, "%s is not written yet", call);
}

tl_status tl_logits_init(tl_logits *out, size_t max_rows, size_t vocab, tl_error *err) {
    (void)out;
    (void)max_rows;
    (void)vocab;
    return not_written("tl_logits_init", err);
}

void tl_logits_clear(tl_logits *logits) {
    (void)logits;
}

const float *tl_logits_row(const tl_logits *logits, size_t row) {
    (void)logits;
    (void)row;
    return NULL;
}

tl_status tl_scratch_new(tl_scratch **out, const tl_model_config *cfg, const tl_limits *limits,
                         tl_error *err) {
    (void)cfg;
    (void)limits;
    if (out != NULL) {
        *out = NULL;
    }
    return not_written("tl_scratch_new", err);
}

void tl_scratch_free(tl_scratch *scratch) {
    (void)scratch;
}

tl_status tl_scratch_size(const tl_model_config *cfg, const tl_limits *limits, size_t *n_bytes,
                          tl_error *err) {
    (void)cfg;
    (void)limits;
    (void)n_bytes;
    return not_written("tl_scratch_size", err);
}

const tl_limits *tl_scratch_limits(const tl_scratch *scratch) {
    (void)scratch;
    return NULL;
}

tl_status tl_forward_check(const tl_model_config *cfg, const tl_kv_pool *pool, tl_scratch *scratch,
                           const tl_forward_batch *batch, tl_error *err) {
    (void)cfg;
    (void)pool;
    (void)scratch;
    (void)batch;
    return not_written("tl_forward_check", err);
}

tl_status tl_forward(const tl_model_config *cfg, const tl_weights *weights, tl_kv_pool *pool,
                     tl_scratch *scratch, const tl_forward_batch *batch, float *hidden,
                     size_t hidden_len, tl_logits *logits, tl_error *err) {
    (void)cfg;
    (void)weights;
    (void)pool;
    (void)scratch;
    (void)batch;
    (void)hidden;
    (void)hidden_len;
    (void)logits;
    return not_written("tl_forward", err);
}
