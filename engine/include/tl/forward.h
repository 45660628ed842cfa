/* forward.h: one step of the model over a batch of sequences.
 *
 * A sequence brings n_s new tokens that start at absolute position p_s, and a block table that
 * covers position 0 to its last new one. The step writes the K and V of the new positions into the
 * pool (f16), reads back every earlier one, and gives one row of logits a sequence, of its last
 * new token.
 *
 * The results do not depend, in any bit, on what else is in the batch, how a prompt is cut into
 * steps, the number of threads, block size, order of the table, or instruction set.
 *
 * Source: conformance/spec/forward.md. */
#ifndef TL_FORWARD_H
#define TL_FORWARD_H

#include "tl/base.h"
#include "tl/kv.h"
#include "tl/model.h"

typedef struct tl_forward_seq {
    const uint32_t *tokens; /* [n_tokens] new tokens of this sequence */
    size_t n_tokens;        /* n_s, at least 1 */
    size_t start;           /* p_s, absolute position of tokens[0] */
    const uint32_t *blocks; /* [n_blocks] block table from position 0 */
    size_t n_blocks;        /* may list more blocks than the positions need */
} tl_forward_seq;

typedef struct tl_forward_batch {
    const tl_forward_seq *seqs;
    size_t n_seqs;
} tl_forward_batch;

typedef struct tl_logits {
    size_t vocab;
    size_t max_rows; /* room */
    size_t n_rows;   /* valid rows: one a sequence, in batch order */
    float *data;     /* [max_rows, vocab] */
    size_t data_len;
} tl_logits;

/* What a scratch is made for. */
typedef struct tl_limits {
    size_t max_batch_tokens; /* N, new tokens a step, at least 1 */
    size_t max_seqs;         /* S, sequences a step, at least 1 */
    size_t n_threads;        /* at least 1, at most 64; changes no bit of any result */
    tl_isa isa;              /* TL_ISA_AUTO: the best of this CPU; changes no bit either */
    size_t max_context;      /* longest p_s + n_s; 0: the config's max_positions */
    uint32_t max_blocks;     /* blocks of the largest pool that will be used, at least 1 */
} tl_limits;

/* The working memory of steps and their worker threads (n_threads - 1, asleep between steps). */
typedef struct tl_scratch tl_scratch;

TL_BEGIN_DECLS

/* Room for max_rows rows of logits. INVALID: a zero. NOMEM. Pairs with tl_logits_clear. */
TL_MUST_USE tl_status tl_logits_init(tl_logits *out, size_t max_rows, size_t vocab, tl_error *err);
void tl_logits_clear(tl_logits *logits);
/* [vocab]; NULL past n_rows. */
const float *tl_logits_row(const tl_logits *logits, size_t row);

/* Take all memory that steps of this config within these limits need, and start the workers.
 * INVALID: a limit that is 0 or too large, a config that tl_model_config_parse would never make
 * (a count of 0, heads that do not fit, a real that is not above 0 and finite as f32), NULL.
 * UNSUPPORTED: the CPU lacks limits->isa. NOMEM: memory or threads. tl_scratch_size tells the bytes
 * beforehand. The scratch keeps a copy of the config and serves that one only. */
TL_MUST_USE tl_status tl_scratch_new(tl_scratch **out, const tl_model_config *cfg,
                                     const tl_limits *limits, tl_error *err);
void tl_scratch_free(tl_scratch *scratch);

/* Bytes that tl_scratch_new will take, by the formula (in 4-byte words; N, S, T threads, C =
 * max_context):
 *   N * (3 d + (2 H + 2 H_kv) D + 2 inter + D + 1) + S d + D + 4 (S + 1) + 12 max_blocks
 *   + T * (64 * (max(d, H D, inter) + 16) + 32 * (C + 24) + 88 D)
 * and at most 64 KiB + 4 KiB a thread beside it. Each thread but the caller's also gets 512 KiB of
 * address space for its stack. INVALID, UNSUPPORTED as tl_scratch_new. NOMEM: overflow. */
TL_MUST_USE tl_status tl_scratch_size(const tl_model_config *cfg, const tl_limits *limits,
                                      size_t *n_bytes, tl_error *err);
/* isa resolved, max_context filled in; NULL for NULL. */
const tl_limits *tl_scratch_limits(const tl_scratch *scratch);

/* Check a whole batch, changing nothing:
 * INVALID   no sequence, n_s = 0, an id >= V, p_s + n_s past max_positions, a table that does not
 *           cover the last position, an entry that is no block of the pool or is listed twice in
 *           its table; a scratch that was made for a config with any field different
 * CAPACITY  N or S past the scratch's limits, p_s + n_s past max_context, a pool of more than
 *           max_blocks
 * STATE     a listed block is not used; a position before p_s was never filled; a block that would
 *           be written is shared, registered, or listed by another sequence of the batch; the
 *           pool's shape (n_layers, n_kv_heads, head_dim) is not the model's
 * The text names the sequence. The scratch is used as working memory; its content is not said. */
TL_MUST_USE tl_status tl_forward_check(const tl_model_config *cfg, const tl_kv_pool *pool,
                                       tl_scratch *scratch, const tl_forward_batch *batch,
                                       tl_error *err);

/* Check the batch, then run the step. After a refusal every slab byte and every fill is as it was.
 * hidden  [N, d] f32, every new token's row after the final norm, batch order; NULL and 0 to skip
 *         (hidden_len must be N * d else; 0 for the bigram)
 * logits  one row a sequence; CAPACITY when max_rows < n_seqs, INVALID when vocab is not V
 * INVALID, CAPACITY and STATE as tl_forward_check; INVALID, too, when the weights are not of the
 * config, or one of them has no data.
 * A start before the fill rewinds: the block of the last new position gets that position's slot +
 * 1 as its fill, and later blocks of the table that this sequence alone holds and that have no key
 * get 0.
 * Allocates nothing. Nobody else may touch the pool until it returns. */
TL_MUST_USE tl_status tl_forward(const tl_model_config *cfg, const tl_weights *weights,
                                 tl_kv_pool *pool, tl_scratch *scratch,
                                 const tl_forward_batch *batch, float *hidden, size_t hidden_len,
                                 tl_logits *logits, tl_error *err);

TL_END_DECLS

#endif
