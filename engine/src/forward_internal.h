/* forward_internal.h: what the files of the forward share: the scratch, and the state of one step.
 *
 * A step runs stage after stage. A stage is split into pieces (rows of a matrix, tokens, tiles of
 * attention) that the workers take; no sum is ever split, so no bit depends on who takes what.
 *
 * Private to forward*.c. Source: conformance/spec/forward.md. */
#ifndef TLI_FORWARD_INTERNAL_H
#define TLI_FORWARD_INTERNAL_H

#include "tl/forward.h"
#include "workers.h"

/* A tile of attention: query rows (positions x query heads of one KV head) that share a walk over
 * the keys. 32 rows keep the scores of a few thousand keys in the second-level cache; 24 keys are a
 * multiple of the product tile's 3 columns and of the 8 lanes. */
#define TLI_ATTN_ROWS 32u
#define TLI_ATTN_HEADS 4u
#define TLI_ATTN_KEYS 24u
/* Floats beside each row of scores, so that rows do not start at the same place of a cache. */
#define TLI_ATTN_PAD 24u

/* One worker's share of attention. */
typedef struct tli_attn_room {
    float *scores; /* [TLI_ATTN_ROWS, stride] */
    float *q;      /* [TLI_ATTN_ROWS, D] */
    float *o;      /* [TLI_ATTN_ROWS, D] */
    float *kv;     /* [TLI_ATTN_KEYS, D], widened keys or values */
} tli_attn_room;

/* What the batch says about a block of the pool; valid while last_table is of the batch at hand. */
typedef struct tli_block_mark {
    uint32_t last_table; /* epoch of the table that listed it last */
    uint32_t n_tables;   /* tables of the batch that list it */
} tli_block_mark;

/* Where the slabs of a block are, in the layer at hand. */
typedef struct tli_block_slabs {
    uint64_t lookup;         /* tl_scratch.lookup when they were asked for */
    const uint16_t *k, *v;   /* [H_kv, B, D] */
    uint16_t *k_mut, *v_mut; /* the same for a block that the step writes; else NULL */
} tli_block_slabs;

struct tl_scratch {
    tl_model_config cfg;
    tl_limits limits; /* isa resolved, max_context filled in */

    tli_workers *workers;
    tl_work *works[TLI_THREADS_MAX];     /* [n_threads] */
    tli_attn_room attn[TLI_THREADS_MAX]; /* [n_threads] */
    tl_error errors[TLI_THREADS_MAX];    /* [n_threads] what went wrong in a stage */
    size_t score_stride;                 /* floats from one row of scores to the next */

    float *x, *h, *t;       /* [N, d] residual stream, its norm, a linear's output */
    float *q, *o;           /* [N, H * D] */
    float *k, *v;           /* [N, H_kv * D] */
    float *gate, *up;       /* [N, inter] */
    float *cos, *sin;       /* [N, D / 2] */
    float *last;            /* [S, d] last tokens' rows after the final norm */
    float *inv_freq;        /* [D / 2] */
    uint32_t *token_seq;    /* [N] sequence of each token of the batch */
    size_t *first_token;    /* [S + 1] of each sequence; the last entry is the count */
    size_t *first_tile;     /* [S + 1] the same for attention's tiles */
    tli_block_mark *marks;  /* [max_blocks] */
    tli_block_slabs *slabs; /* [max_blocks] */
    uint32_t epoch;         /* of the last table that was marked */
    uint64_t lookup;        /* counts layers of all steps: which slabs are of the layer at hand */
    void *memory;           /* everything above */
};

/* One step. */
typedef struct tli_step {
    const tl_model_config *cfg;
    const tl_weights *weights;
    tl_kv_pool *pool;
    tl_scratch *s;
    const tl_forward_batch *batch;
    size_t n_tokens;     /* N of this batch */
    size_t block_tokens; /* B of the pool */
    float *hidden;       /* [N, d] or NULL */
    float *logits;       /* [S, V] */
    float eps;           /* of the norms, rounded to f32 */
    float score_scale;   /* 1 / sqrt(D), rounded to f32 */

    const tl_llama_layer *layer; /* the layer at hand */
    uint32_t layer_index;
    struct {
        size_t n_items, unit, n_units, n_pieces;
    } split; /* of the stage at hand */
} tli_step;

/* ------------------------------------------------------------------ stages, forward_stage.c */

/* Items [begin, end) of a piece. */
typedef struct tli_range {
    size_t begin, end;
} tli_range;

/* Run a stage over n_items, cut into pieces at multiples of `unit`; cost is the multiply-adds of an
 * item and keeps pieces from getting so small that handing them out costs more than doing them. The
 * first failure of the lowest worker comes back. */
TL_MUST_USE tl_status tli_run_stage(tli_step *step, tli_piece_fn *fn, size_t n_items, size_t unit,
                                    size_t cost, tl_error *err);
tli_range tli_piece_range(const tli_step *step, size_t piece);
/* Where a piece that fails leaves its reason; the first one of a worker stands. */
void tli_stage_failed(tli_step *step, size_t worker, tl_status status, const tl_error *err);

/* ------------------------------------------------------------------ the parts of a step */

/* The first block of its table that a sequence writes, and the last. */
tli_range tli_written_blocks(const tl_forward_seq *seq, size_t block_tokens);

/* After the step: fills of the blocks that were written, and of those that a rewind left behind. */
TL_MUST_USE tl_status tli_raise_fills(const tli_step *step, tl_error *err);

/* The blocks' slabs of the layer at hand, each asked for once. */
TL_MUST_USE tl_status tli_find_slabs(tli_step *step, tl_error *err);

TL_MUST_USE tl_status tli_attention(tli_step *step, tl_error *err);
/* Tiles that attention cuts a sequence's new tokens into. */
size_t tli_attention_tiles(const tl_model_config *cfg, size_t n_tokens);

TL_MUST_USE tl_status tli_llama_forward(tli_step *step, tl_error *err);
TL_MUST_USE tl_status tli_bigram_forward(tli_step *step, tl_error *err);

#endif
