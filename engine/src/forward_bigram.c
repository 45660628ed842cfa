/* forward_bigram.c: the tracer model: the logits after a token are that token's row of one table.
 *
 * It reads no position and writes no slab; positions, tables and block states are checked and fills
 * are raised by forward.c as for every model.
 *
 * Source: conformance/spec/forward.md, Bigram. */
#include "forward_internal.h"

/* The token whose row a sequence's logits are. */
static uint32_t last_token(const tl_forward_seq *seq) {
    return seq->tokens[seq->n_tokens - 1];
}

tl_status tli_bigram_forward(tli_step *step, tl_error *err) {
    (void)err;
    const tl_matrix *table = &step->weights->as.bigram.as.dense;
    for (size_t i = 0; i < step->batch->n_seqs; i++) {
        const uint32_t row = last_token(&step->batch->seqs[i]);
        tl_ops_widen_row(step->s->works[0], table, row, step->logits + i * step->cfg->vocab_size);
    }
    return TL_OK;
}
