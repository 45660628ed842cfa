/* test_incremental.c: incremental_decode_equals_full_prefill: how a prompt was cut must not show.
 *
 * The reference is always the same engine's prefill in one step. Two models are drawn: grouped
 * heads in F32 with a head of its own, and one KV head, odd widths, BF16 and tied. Multiply-adds
 * counted in the project's engine: 141 million. */
#include "model_maker.h"
#include "steps.h"
#include "tests.h"

#include <string.h>

#define SHORT_PROMPT 40
#define LONG_PROMPT 131

static const tm_shape grouped = {.vocab = 61,
                                 .hidden = 32,
                                 .inter = 48,
                                 .layers = 2,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 8,
                                 .positions = 160};
static const tm_shape odd = {.vocab = 37,
                             .hidden = 20,
                             .inter = 28,
                             .layers = 2,
                             .heads = 3,
                             .kv_heads = 1,
                             .head_dim = 6,
                             .positions = 64,
                             .tied = true};

/* Put the model of this shape into `dir` and load it. The weights are drawn for each part anew. */
static bool load(ol_test *t, const char *check, const tm_shape *shape, const char *dtype,
                 const char *dir, size_t n_blocks, size_t block_tokens, step_runner *r) {
    tm_put(t, tm_draw(t, shape, dtype), dir);
    step_cfg cfg = {.n_blocks = n_blocks, .block_tokens = block_tokens};
    return step_load(t, check, dir, &cfg, r);
}

/* Feed a prompt in two steps on new blocks; the last row, and the slabs when asked for. */
static float *two_steps(ol_test *t, const char *check, const step_runner *r, const uint32_t *tokens,
                        size_t n, size_t cut, uint16_t **slabs, size_t *n_slabs) {
    size_t n_blocks = step_blocks_for(r, n);
    uint32_t *blocks = step_alloc(t, check, r, n_blocks);
    float *row = NULL;
    if (blocks != NULL) {
        row = cut == 0 ? NULL : step_piece(t, check, r, tokens, 0, cut, blocks, n_blocks);
        if (cut == 0 || row != NULL) {
            row = step_piece(t, check, r, tokens, cut, n, blocks, n_blocks);
        }
        if (slabs != NULL) {
            *slabs = step_slabs(t, r, blocks, n_blocks, n, n_slabs);
        }
        step_release(t, check, r, blocks, n_blocks);
    }
    return row;
}

/* ------------------------------------------------------------------ one token a step */

static void by_token(ol_test *t, const step_runner *r, const uint32_t *tokens, size_t n) {
    size_t n_blocks = step_blocks_for(r, n);
    uint32_t *blocks = step_alloc(t, "token_by_token", r, n_blocks);
    for (size_t i = 0; i < n && blocks != NULL; i++) {
        const float *want = step_cold(t, "token_by_token", r, tokens, i + 1);
        const float *got = step_piece(t, "token_by_token", r, tokens, i, i + 1, blocks, n_blocks);
        step_same(t, "token_by_token", "chunk_bits", got, want, r->vocab,
                  ol_text(t, "logits at position %zu, fed token by token", i));
        step_check_fills(t, "fill_follows", r, blocks, n_blocks, i + 1);
    }
    if (blocks != NULL) {
        step_release(t, "token_by_token", r, blocks, n_blocks);
    }
}

static void part_token_by_token(ol_test *t) {
    step_runner r;
    if (load(t, "token_by_token", &grouped, "F32", "grouped", 24, 4, &r)) {
        by_token(t, &r, step_prompt(t, r.vocab, SHORT_PROMPT), SHORT_PROMPT);
        step_free(t, &r);
    }
    if (load(t, "token_by_token", &odd, "BF16", "odd", 24, 5, &r)) {
        by_token(t, &r, step_prompt(t, r.vocab, SHORT_PROMPT), SHORT_PROMPT);
        step_free(t, &r);
    }
}

/* ------------------------------------------------------------------ splits */

static void split_at(ol_test *t, const char *check, const step_runner *r, const uint32_t *tokens,
                     size_t n, size_t cut, const float *want, const uint16_t *slabs,
                     size_t n_slabs) {
    uint16_t *got_slabs = NULL;
    size_t n_got = 0;
    float *got = two_steps(t, check, r, tokens, n, cut, slabs == NULL ? NULL : &got_slabs, &n_got);
    const char *what = ol_text(t, "%zu tokens split after %zu", n, cut);
    step_same(t, check, "chunk_bits", got, want, r->vocab, what);
    if (slabs != NULL && got != NULL) {
        (void)ol_check_u16s(t, "slab_bits", got_slabs, n_got, slabs, n_slabs, what);
    }
}

static void every_split(ol_test *t, const step_runner *r) {
    uint32_t *tokens = step_prompt(t, r->vocab, SHORT_PROMPT);
    uint16_t *slabs = NULL;
    size_t n_slabs = 0;
    float *want = two_steps(t, "every_split", r, tokens, SHORT_PROMPT, 0,
                            ol_strict(t) ? &slabs : NULL, &n_slabs);
    for (size_t cut = 1; cut < SHORT_PROMPT && want != NULL; cut++) {
        split_at(t, "every_split", r, tokens, SHORT_PROMPT, cut, want, slabs, n_slabs);
    }
}

static void part_every_split(ol_test *t) {
    step_runner r;
    if (load(t, "every_split", &grouped, "F32", "grouped", 24, 4, &r)) {
        every_split(t, &r);
        step_free(t, &r);
    }
    if (load(t, "every_split", &odd, "BF16", "odd", 24, 5, &r)) {
        every_split(t, &r);
        step_free(t, &r);
    }
}

/* Borders of blocks of 16 that are also borders of any tile of 16, 32, 64 or 128 keys. */
static void part_block_borders(ol_test *t) {
    static const size_t borders[] = {16, 64, 128};
    step_runner r;
    if (!load(t, "block_borders", &grouped, "F32", "grouped", 24, 16, &r)) {
        return;
    }
    uint32_t *tokens = step_prompt(t, r.vocab, LONG_PROMPT);
    float *want = step_cold(t, "block_borders", &r, tokens, LONG_PROMPT);
    for (size_t i = 0; i < TEST_COUNT(borders) && want != NULL; i++) {
        for (size_t cut = borders[i] - 1; cut <= borders[i] + 1; cut++) {
            split_at(t, "block_borders", &r, tokens, LONG_PROMPT, cut, want, NULL, 0);
        }
    }
    step_free(t, &r);
}

/* ------------------------------------------------------------------ block sizes */

static void shuffle(ol_test *t, uint32_t *ids, size_t n) {
    for (size_t i = n; i > 1; i--) {
        size_t j = ol_rand_below(t, (uint32_t)i);
        uint32_t id = ids[i - 1];
        ids[i - 1] = ids[j];
        ids[j] = id;
    }
}

static float *with_block_size(ol_test *t, size_t block_tokens, const uint32_t *tokens, size_t cut) {
    step_runner r;
    step_cfg cfg = {.n_blocks = LONG_PROMPT / block_tokens + 3, .block_tokens = block_tokens};
    if (!step_load(t, "block_sizes", "grouped", &cfg, &r)) {
        return NULL;
    }
    /* One block more than needed: the tail of the table is neither read nor written. */
    size_t n_blocks = step_blocks_for(&r, LONG_PROMPT) + 1;
    uint32_t *blocks = step_alloc(t, "block_sizes", &r, n_blocks);
    float *row = NULL;
    if (blocks != NULL) {
        shuffle(t, blocks, n_blocks);
        row = step_piece(t, "block_sizes", &r, tokens, 0, cut, blocks, n_blocks);
        row = row == NULL
                  ? NULL
                  : step_piece(t, "block_sizes", &r, tokens, cut, LONG_PROMPT, blocks, n_blocks);
    }
    step_free(t, &r);
    return row;
}

static void part_block_sizes(ol_test *t) {
    static const size_t sizes[] = {1, 2, 3, 5, 7, 8, 13, 16, 17, 32, 33, 64};
    step_runner r;
    if (!load(t, "block_sizes", &grouped, "F32", "grouped", 12, 16, &r)) {
        return;
    }
    uint32_t *tokens = step_prompt(t, r.vocab, LONG_PROMPT);
    float *want = step_cold(t, "block_sizes", &r, tokens, LONG_PROMPT);
    step_free(t, &r);
    for (size_t i = 0; i < TEST_COUNT(sizes) && want != NULL; i++) {
        size_t cut = 1 + ol_rand_below(t, LONG_PROMPT - 1);
        float *got = with_block_size(t, sizes[i], tokens, cut);
        step_same(t, "block_sizes", "block_size_bits", got, want, r.vocab,
                  ol_text(t, "blocks of %zu positions, a shuffled table, split after %zu", sizes[i],
                          cut));
    }
}

/* Blocks whose ids need more than 16 bits, and those that have the same lower 16. */
static void part_far_blocks(ol_test *t) {
    enum { FAR = 65536, MANY = FAR + 40, FAR_N = 30 };
    const step_cfg cfg = {.n_blocks = MANY, .block_tokens = 1};
    static const tm_shape shape = {.vocab = 40,
                                   .hidden = 12,
                                   .inter = 16,
                                   .layers = 1,
                                   .heads = 2,
                                   .kv_heads = 1,
                                   .head_dim = 2,
                                   .positions = 64};
    step_runner r;
    tm_put(t, tm_draw(t, &shape, "F32"), "far");
    if (!step_load(t, "block_sizes", "far", &cfg, &r)) {
        return;
    }
    uint32_t *tokens = step_prompt(t, r.vocab, FAR_N);
    float *want = step_cold(t, "block_sizes", &r, tokens, FAR_N);
    /* What the first blocks hold is another text's. */
    (void)step_cold(t, "block_sizes", &r, step_prompt(t, r.vocab, FAR_N), FAR_N);
    uint32_t *blocks = step_alloc(t, "block_sizes", &r, MANY);
    uint32_t far_blocks[FAR_N] = {0};
    size_t n = 0;
    for (size_t i = 0; i < MANY && blocks != NULL && n < FAR_N; i++) {
        if (blocks[i] >= FAR) {
            far_blocks[n++] = blocks[i];
        }
    }
    if (blocks != NULL &&
        ol_check_int(t, "block_sizes", (int64_t)n, FAR_N, "blocks past 16 bits")) {
        float *got = step_piece(t, "block_sizes", &r, tokens, 0, FAR_N, far_blocks, FAR_N);
        step_same(t, "block_sizes", "block_size_bits", got, want, r.vocab,
                  "logits on blocks whose ids are past 16 bits");
    }
    step_free(t, &r);
}

/* ------------------------------------------------------------------ prefix hits */

enum { HIT_B = 4, HIT_FULL = 5, HIT_N = HIT_FULL * HIT_B + 2, HIT_POOL = 14 };

/* Run a prompt cold and leave its full blocks in the index, all of them without a reference. */
static float *leave_cached(ol_test *t, const step_runner *r, const uint32_t *tokens) {
    uint32_t *blocks = step_alloc(t, "prefix_hit", r, HIT_FULL + 1);
    if (blocks == NULL) {
        return NULL;
    }
    float *row = step_piece(t, "prefix_hit", r, tokens, 0, HIT_N, blocks, HIT_FULL + 1);
    for (size_t i = 0; i < HIT_FULL && row != NULL; i++) {
        const json_t *answer =
            ol_call(t, "kv_register", "{s:I, s:I, s:s}", "pool", (json_int_t)r->pool, "id",
                    (json_int_t)blocks[i], "key", step_key(t, 0, i));
        (void)ol_check_ok(t, "prefix_hit", answer, "register of a full block");
    }
    step_release(t, "prefix_hit", r, blocks, HIT_FULL + 1);
    return row;
}

/* Look the first n blocks of the prompt up and take new ones for the rest. */
static uint32_t *hit_table(ol_test *t, const step_runner *r, size_t n) {
    uint32_t *blocks = ol_alloc(t, (HIT_FULL + 1) * sizeof *blocks);
    for (size_t i = 0; i < n; i++) {
        const json_t *answer = ol_call(t, "kv_lookup", "{s:I, s:s}", "pool", (json_int_t)r->pool,
                                       "key", step_key(t, 0, i));
        if (!ol_check_ok(t, "prefix_hit", answer, ol_text(t, "look-up of block %zu", i))) {
            return NULL;
        }
        blocks[i] = (uint32_t)ol_int(t, answer, "id");
    }
    uint32_t *fresh = step_alloc(t, "prefix_hit", r, HIT_FULL + 1 - n);
    if (fresh == NULL) {
        return NULL;
    }
    memcpy(blocks + n, fresh, (HIT_FULL + 1 - n) * sizeof *blocks);
    return blocks;
}

static void hit(ol_test *t, const step_runner *r, const uint32_t *tokens, size_t n_hit,
                const float *want, const char *when) {
    uint32_t *blocks = hit_table(t, r, n_hit);
    if (blocks == NULL) {
        return;
    }
    float *got = step_piece(t, "prefix_hit", r, tokens, n_hit * HIT_B, HIT_N, blocks, HIT_FULL + 1);
    step_same(t, "prefix_hit", "prefix_hit_bits", got, want, r->vocab,
              ol_text(t, "a start behind %zu cached blocks%s", n_hit, when));
    step_release(t, "prefix_hit", r, blocks, HIT_FULL + 1);
}

/* Two requests at once behind the same cached blocks, in one step. */
static void hit_together(ol_test *t, const step_runner *r, const uint32_t *tokens,
                         const float *want) {
    uint32_t *first = hit_table(t, r, 3);
    uint32_t *second = hit_table(t, r, 3);
    if (first == NULL || second == NULL) {
        return;
    }
    step_seq seqs[2] = {{.tokens = tokens + 3 * HIT_B,
                         .n_tokens = HIT_N - 3 * HIT_B,
                         .start = 3 * HIT_B,
                         .blocks = first,
                         .n_blocks = HIT_FULL + 1}};
    seqs[1] = seqs[0];
    seqs[1].blocks = second;
    const float *rows = step_run(t, "prefix_hit", r, seqs, 2);
    for (size_t i = 0; i < 2 && rows != NULL; i++) {
        step_same(t, "prefix_hit", "prefix_hit_bits", rows + i * r->vocab, want, r->vocab,
                  "two sequences that share three cached blocks");
    }
    step_release(t, "prefix_hit", r, first, HIT_FULL + 1);
    step_release(t, "prefix_hit", r, second, HIT_FULL + 1);
}

/* Take every block of the pool, so that the index is empty, and leave other values in them. */
static void evict_all(ol_test *t, const step_runner *r) {
    size_t n = HIT_POOL * HIT_B;
    uint32_t *blocks = step_alloc(t, "prefix_hit", r, HIT_POOL);
    if (blocks != NULL) {
        (void)step_piece(t, "prefix_hit", r, step_prompt(t, r->vocab, n), 0, n, blocks, HIT_POOL);
        step_release(t, "prefix_hit", r, blocks, HIT_POOL);
    }
}

static void part_prefix_hit(ol_test *t) {
    step_runner r;
    if (!load(t, "prefix_hit", &grouped, "F32", "grouped", HIT_POOL, HIT_B, &r)) {
        return;
    }
    uint32_t *tokens = step_prompt(t, r.vocab, HIT_N);
    float *want = leave_cached(t, &r, tokens);
    if (want != NULL) {
        hit(t, &r, tokens, HIT_FULL, want, "");
        hit(t, &r, tokens, 3, want, "");
        hit_together(t, &r, tokens, want);
        evict_all(t, &r);
        float *again = leave_cached(t, &r, tokens);
        step_same(t, "prefix_hit", "prefix_hit_bits", again, want, r.vocab,
                  "computed again after eviction");
        if (again != NULL) {
            hit(t, &r, tokens, HIT_FULL, want, ", after eviction and recomputation");
            hit(t, &r, tokens, 1, want, ", after eviction and recomputation");
        }
    }
    step_free(t, &r);
}

/* ------------------------------------------------------------------ poison */

static void poisoned(ol_test *t, const step_runner *r) {
    enum { N = 22, TAIL = 2 };
    uint32_t *tokens = step_prompt(t, r->vocab, N);
    float *want = step_cold(t, "poison", r, tokens, N);
    size_t n_blocks = step_blocks_for(r, N) + TAIL;
    uint32_t *blocks = step_alloc(t, "poison", r, n_blocks);
    if (want == NULL || blocks == NULL) {
        return;
    }
    static const size_t ends[] = {9, 10, 15, 16, N};
    size_t begin = 0;
    float *got = NULL;
    for (size_t i = 0; i < TEST_COUNT(ends); i++) {
        step_poison(t, "poison", r, blocks, n_blocks, begin);
        got = step_piece(t, "poison", r, tokens, begin, ends[i], blocks, n_blocks);
        begin = ends[i];
    }
    step_same(t, "poison", "poison_bits", got, want, r->vocab,
              "NaN in every slot past the fill and in the table's tail before each step");
    step_release(t, "poison", r, blocks, n_blocks);
}

static void part_poison(ol_test *t) {
    step_runner r;
    if (load(t, "poison", &grouped, "F32", "grouped", 24, 4, &r)) {
        poisoned(t, &r);
        step_free(t, &r);
    }
    if (load(t, "poison", &odd, "BF16", "odd", 24, 16, &r)) {
        poisoned(t, &r);
        step_free(t, &r);
    }
}

/* ------------------------------------------------------------------ rewind */

enum { REWIND_B = 4, REWIND_BLOCKS = 6, REWIND_N = 22 };

/* tokens [0, keep) of a prompt and then others: what stands there after the rewind. */
static uint32_t *spliced(ol_test *t, const uint32_t *tokens, size_t keep, const uint32_t *others,
                         size_t n_others) {
    uint32_t *all = ol_alloc(t, (keep + n_others + 1) * sizeof *all);
    memcpy(all, tokens, keep * sizeof *all);
    memcpy(all + keep, others, n_others * sizeof *all);
    return all;
}

static void check_fill(ol_test *t, const step_info *infos, const size_t *wanted, const char *when) {
    for (size_t i = 0; i < REWIND_BLOCKS; i++) {
        (void)ol_check_int(t, "rewind", (int64_t)infos[i].fill, (int64_t)wanted[i],
                           ol_text(t, "fill of block %zu of the table %s", i, when));
    }
}

/* Back to position `start` with n new tokens; the logits are those of the new text. */
static void rewind_to(ol_test *t, const step_runner *r, const uint32_t *tokens, size_t start,
                      size_t n, const uint32_t *blocks, const size_t *fills) {
    uint32_t *others = step_prompt(t, r->vocab, n);
    uint32_t *text = spliced(t, tokens, start, others, n);
    float *want = step_cold(t, "rewind", r, text, start + n);
    float *got = step_piece(t, "rewind", r, text, start, start + n, blocks, REWIND_BLOCKS);
    const char *when =
        ol_text(t, "after going back from %d to %zu with %zu tokens", REWIND_N, start, n);
    step_same(t, "rewind", "chunk_bits", got, want, r->vocab, ol_text(t, "logits %s", when));
    check_fill(t, step_infos(t, r, blocks, REWIND_BLOCKS), fills, when);
    /* The rest of the old text is gone: a start behind the new end is refused, at it is not. */
    step_seq past = {.tokens = others,
                     .n_tokens = 1,
                     .start = start + n + 1,
                     .blocks = blocks,
                     .n_blocks = REWIND_BLOCKS};
    (void)ol_check_refused(t, "rewind", step_try(t, r, &past, 1), "STATE", NULL, -1,
                           ol_text(t, "a start one behind the fill %s", when));
    uint32_t *longer = spliced(t, text, start + n, others, 1);
    want = step_cold(t, "rewind", r, longer, start + n + 1);
    got = step_piece(t, "rewind", r, longer, start + n, start + n + 1, blocks, REWIND_BLOCKS);
    step_same(t, "rewind", "chunk_bits", got, want, r->vocab,
              ol_text(t, "the next token %s", when));
}

static uint32_t *filled_table(ol_test *t, const step_runner *r, const uint32_t *tokens) {
    uint32_t *blocks = step_alloc(t, "rewind", r, REWIND_BLOCKS);
    if (blocks == NULL ||
        step_piece(t, "rewind", r, tokens, 0, REWIND_N, blocks, REWIND_BLOCKS) == NULL) {
        return NULL;
    }
    step_check_fills(t, "fill_follows", r, blocks, REWIND_BLOCKS, REWIND_N);
    return blocks;
}

static void rewind_private(ol_test *t, const step_runner *r, size_t start, size_t n,
                           const size_t *fills) {
    uint32_t *tokens = step_prompt(t, r->vocab, REWIND_N);
    uint32_t *blocks = filled_table(t, r, tokens);
    if (blocks != NULL) {
        rewind_to(t, r, tokens, start, n, blocks, fills);
        step_release(t, "rewind", r, blocks, REWIND_BLOCKS);
    }
}

/* Later blocks that others hold, or that have a key, keep their fill. */
static void rewind_shared(ol_test *t, const step_runner *r) {
    static const size_t fills[REWIND_BLOCKS] = {4, 4, 2, 0, 4, 2};
    uint32_t *tokens = step_prompt(t, r->vocab, REWIND_N);
    uint32_t *blocks = filled_table(t, r, tokens);
    if (blocks == NULL) {
        return;
    }
    const json_t *answer = ol_call(t, "kv_register", "{s:I, s:I, s:s}", "pool", (json_int_t)r->pool,
                                   "id", (json_int_t)blocks[4], "key", step_key(t, 1, 4));
    (void)ol_check_ok(t, "rewind", answer, "register of a full block");
    answer = ol_call(t, "kv_retain", "{s:I, s:I}", "pool", (json_int_t)r->pool, "id",
                     (json_int_t)blocks[5]);
    (void)ol_check_ok(t, "rewind", answer, "retain of the last block");
    float *row = step_piece(t, "rewind", r, tokens, 9, 10, blocks, REWIND_BLOCKS);
    if (row != NULL) {
        check_fill(t, step_infos(t, r, blocks, REWIND_BLOCKS), fills,
                   "after going back, one later block keyed and one held twice");
    }
    step_release(t, "rewind", r, blocks, REWIND_BLOCKS);
    step_release(t, "rewind", r, &blocks[5], 1);
}

/* An empty block in the middle of the table does not end it. */
static void rewind_over_empty(ol_test *t, const step_runner *r) {
    static const size_t fills[REWIND_BLOCKS] = {4, 4, 2, 0, 0, 0};
    uint32_t *tokens = step_prompt(t, r->vocab, REWIND_N);
    uint32_t *blocks = filled_table(t, r, tokens);
    if (blocks == NULL) {
        return;
    }
    const json_t *answer = ol_call(t, "kv_set_fill", "{s:I, s:I, s:i}", "pool", (json_int_t)r->pool,
                                   "id", (json_int_t)blocks[3], "fill", 0);
    (void)ol_check_ok(t, "rewind", answer, "set_fill of a later block");
    if (step_piece(t, "rewind", r, tokens, 9, 10, blocks, REWIND_BLOCKS) != NULL) {
        check_fill(t, step_infos(t, r, blocks, REWIND_BLOCKS), fills,
                   "after going back, the next block empty");
    }
    step_release(t, "rewind", r, blocks, REWIND_BLOCKS);
}

/* What another sequence of the step reads is not this one's alone. */
static void rewind_beside_reader(ol_test *t, const step_runner *r) {
    static const size_t fills[REWIND_BLOCKS] = {4, 4, 2, 0, 4, 0};
    uint32_t *tokens = step_prompt(t, r->vocab, REWIND_N);
    uint32_t *blocks = filled_table(t, r, tokens);
    uint32_t *more = step_alloc(t, "rewind", r, 1);
    if (blocks == NULL || more == NULL) {
        return;
    }
    const uint32_t reads[2] = {blocks[4], more[0]};
    step_seq seqs[2] = {
        {.tokens = tokens + 9,
         .n_tokens = 1,
         .start = 9,
         .blocks = blocks,
         .n_blocks = REWIND_BLOCKS},
        {.tokens = tokens, .n_tokens = 1, .start = REWIND_B, .blocks = reads, .n_blocks = 2}};
    for (size_t turn = 0; turn < 2; turn++) {
        if (step_run(t, "rewind", r, seqs, 2) != NULL) {
            check_fill(t, step_infos(t, r, blocks, REWIND_BLOCKS), fills,
                       "after going back, a later block read by another of the step");
        }
        const step_seq first = seqs[0];
        seqs[0] = seqs[1];
        seqs[1] = first;
    }
    step_release(t, "rewind", r, blocks, REWIND_BLOCKS);
    step_release(t, "rewind", r, more, 1);
}

static void part_rewind(ol_test *t) {
    static const size_t into_block[REWIND_BLOCKS] = {4, 4, 2, 0, 0, 0};
    static const size_t to_border[REWIND_BLOCKS] = {4, 4, 4, 0, 0, 0};
    static const size_t to_start[REWIND_BLOCKS] = {1, 0, 0, 0, 0, 0};
    step_runner r;
    if (!load(t, "rewind", &grouped, "F32", "grouped", 24, REWIND_B, &r)) {
        return;
    }
    rewind_private(t, &r, 9, 1, into_block);
    rewind_private(t, &r, 7, 5, to_border);
    rewind_private(t, &r, 0, 1, to_start);
    rewind_shared(t, &r);
    rewind_over_empty(t, &r);
    rewind_beside_reader(t, &r);
    step_free(t, &r);
}

void test_incremental_decode_equals_full_prefill(ol_test *t) {
    static const test_part parts[] = {
        {"token-by-token", part_token_by_token},
        {"every-split", part_every_split},
        {"block-borders", part_block_borders},
        {"block-sizes", part_block_sizes},
        {"far-blocks", part_far_blocks},
        {"prefix-hit", part_prefix_hit},
        {"poison", part_poison},
        {"rewind", part_rewind},
    };
    test_run_parts(t, parts, TEST_COUNT(parts));
}
