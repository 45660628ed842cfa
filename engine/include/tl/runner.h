/* runner.h: a model, a pool and a scratch under one roof: what an application uses.
 *
 * Source: conformance/spec/forward.md (run_once) and conformance/spec/README.md. */
#ifndef TL_RUNNER_H
#define TL_RUNNER_H

#include "tl/base.h"
#include "tl/forward.h"

typedef enum tl_sched_policy { TL_SCHED_FCFS = 0, TL_SCHED_PRIORITY = 1 } tl_sched_policy;

typedef struct tl_engine_cfg {
    size_t max_batch_tokens; /* N, tokens a step */
    size_t max_seqs;         /* S, sequences a step */
    size_t prefill_chunk;    /* carried for the scheduler; the runner does not read it */
    tl_prefix_cache prefix_cache;
    uint32_t kv_n_blocks;
    uint32_t kv_block_tokens; /* B */
    tl_sched_policy policy;   /* one of the two; carried for the scheduler, changes nothing here */
    size_t n_threads;         /* 1 to 64; does not change a single bit of any result */
    tl_isa isa;               /* TL_ISA_AUTO: the best of this CPU; no bit depends on it */
    tl_weights_mode weights;  /* one of the two; used by tl_runner_load only */
    tl_quant_cfg quant;       /* tl_runner_load only */
} tl_engine_cfg;

typedef struct tl_runner tl_runner;

TL_BEGIN_DECLS

/* N 512, S 16, chunk 512, prefix cache on, 256 blocks of 16 positions, FCFS, 1 thread, AUTO,
 * mapped, no quantization. */
tl_engine_cfg tl_engine_cfg_default(void);

/* A runner on a model that is borrowed and must outlive it. Its pool has the model's shape (for
 * the bigram 1 layer, 1 KV head, head_dim 2) and the model tag 0. No sequence can be longer than
 * the pool's positions, kv_n_blocks * kv_block_tokens; the scratch is made for no more.
 * INVALID: no such policy or weights mode. INVALID, NOMEM, UNSUPPORTED as tl_kv_pool_new and
 * tl_scratch_new. */
TL_MUST_USE tl_status tl_runner_new(tl_runner **out, const tl_model *model,
                                    const tl_engine_cfg *cfg, tl_error *err);
/* tl_model_load and tl_runner_new in one; the runner owns the model. */
TL_MUST_USE tl_status tl_runner_load(tl_runner **out, const char *dir, const tl_engine_cfg *cfg,
                                     tl_error *err);
void tl_runner_free(tl_runner *runner);

/* One step on the runner's pool: tl_forward without hidden, with the same refusals. */
TL_MUST_USE tl_status tl_runner_forward(tl_runner *runner, const tl_forward_batch *batch,
                                        tl_logits *logits, tl_error *err);

/* One prompt on blocks of its own, which are given back whatever happens; a prompt longer than a
 * step is cut inside. Only free blocks are taken, never a cached one: the prefix index is as it
 * was.
 * tokens  [n_tokens] u32, at least 1
 * hidden  [hidden_len = n_tokens * d] f32, every row after the final norm; NULL and 0 to skip; for
 *         the bigram always NULL and 0
 * logits  [logits_len = V] f32, of the last token
 * INVALID: an id >= V, a prompt longer than the context, a length. CAPACITY: too few free
 * blocks. */
TL_MUST_USE tl_status tl_runner_run_once(tl_runner *runner, const uint32_t *tokens, size_t n_tokens,
                                         float *hidden, size_t hidden_len, float *logits,
                                         size_t logits_len, tl_error *err);

/* What a runner is made of; pointers are borrowed and live as long as the runner. NULL or 0 for
 * NULL. */
tl_kv_pool *tl_runner_pool(tl_runner *runner);
uint32_t tl_runner_block_tokens(const tl_runner *runner); /* B */
const tl_model_config *tl_runner_config(const tl_runner *runner);
const tl_limits *tl_runner_limits(const tl_runner *runner); /* isa resolved */

TL_END_DECLS

#endif
