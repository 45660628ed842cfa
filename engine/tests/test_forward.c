/* test_forward.c: the step gives the bits of the page's loops, whatever the batch, the chunks, the
 * threads, the blocks and the instruction set are; and how fills move.
 *
 * What a bad batch gets is in test_forward_check.c.
 *
 * Source: conformance/spec/forward.md. */
#include "forward_fixture.h"

#define T_MAX 75u

/* GQA of 3 with heads wider than d; MQA of 5, more than a tile's heads; MHA with tails; int4. */
static const fx_shape shapes[] = {
    {24, 40, 2, 6, 2, 10, 37, TL_MATRIX_F32, 0, false},
    {20, 24, 2, 5, 1, 6, 33, TL_MATRIX_BF16, 0, true},
    {16, 30, 2, 2, 2, 8, 40, TL_MATRIX_F16, 0, false},
    {32, 48, 2, 4, 2, 8, 41, TL_MATRIX_F16, 8, false},
    {24, 36, 1, 4, 4, 6, 35, TL_MATRIX_F32, 6, true},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

/* Big enough that stages are cut into several pieces. */
static const fx_shape big_shape = {72, 160, 2, 6, 3, 16, 200, TL_MATRIX_BF16, 0, true};

/* One sequence on its own pool: what it has written and what came out. */
typedef struct run {
    const fixture *fx;
    tl_kv_pool *pool;
    tl_scratch *scratch;
    uint32_t blocks[T_MAX];
    size_t n_blocks;
    tl_logits logits;
    float hidden[T_MAX * 80];
} run;

/* A pool of `block_tokens` whose blocks the sequence holds in a shuffled order. */
static run *run_new(const fixture *fx, uint32_t block_tokens, size_t n_threads, tl_isa isa) {
    run *r = (run *)calloc(1, sizeof *r);
    assert_non_null(r);
    r->fx = fx;
    r->n_blocks = (T_MAX + block_tokens - 1) / block_tokens;
    r->pool = fx_pool(fx, (uint32_t)r->n_blocks, block_tokens);
    r->scratch = fx_scratch(fx, n_threads, isa, (uint32_t)r->n_blocks);
    assert_int_equal(tl_logits_init(&r->logits, 4, fx->cfg.vocab_size, NULL), TL_OK);
    uint32_t ids[T_MAX];
    assert_int_equal(tl_kv_pool_alloc(r->pool, ids, r->n_blocks, NULL), TL_OK);
    for (size_t i = 0; i < r->n_blocks; i++) {
        r->blocks[(i * 7 + 3) % r->n_blocks] = ids[i];
    }
    if (r->n_blocks % 7 == 0) {
        memcpy(r->blocks, ids, r->n_blocks * sizeof *ids);
    }
    return r;
}

static void run_free(run *r) {
    tl_logits_clear(&r->logits);
    tl_scratch_free(r->scratch);
    tl_kv_pool_free(r->pool);
    free(r);
}

/* Positions [start, start + n) of `tokens`; hidden of the new ones goes to r->hidden[start..]. */
static void run_step(run *r, const uint32_t *tokens, size_t start, size_t n) {
    const size_t d = r->fx->cfg.hidden_size;
    const tl_forward_seq seq = {.tokens = tokens + start,
                                .n_tokens = n,
                                .start = start,
                                .blocks = r->blocks,
                                .n_blocks = r->n_blocks};
    const tl_forward_batch batch = {.seqs = &seq, .n_seqs = 1};
    tl_error err = {0};
    const tl_status status = tl_forward(&r->fx->cfg, &r->fx->weights, r->pool, r->scratch, &batch,
                                        r->hidden + start * d, n * d, &r->logits, &err);
    if (status != TL_OK) {
        fail_msg("%s: %s", tl_status_name(status), err.text);
    }
    assert_int_equal(r->logits.n_rows, 1);
}

/* The f16 of a position, as they lie in the slabs. */
static const uint16_t *slab_at(const run *r, size_t position, uint32_t layer, tl_kv_side side,
                               size_t head) {
    const uint32_t block_tokens = tl_kv_pool_cfg(r->pool)->block_tokens;
    const uint16_t *slab = NULL;
    size_t slab_len = 0;
    assert_int_equal(tl_kv_pool_slab(r->pool, r->blocks[position / block_tokens], layer, side,
                                     &slab, &slab_len, NULL),
                     TL_OK);
    return slab + (head * block_tokens + position % block_tokens) * r->fx->cfg.head_dim;
}

static void assert_same_slabs(const run *a, const run *b, size_t n) {
    for (size_t t = 0; t < n; t++) {
        for (uint32_t layer = 0; layer < a->fx->cfg.n_layers; layer++) {
            for (size_t head = 0; head < a->fx->cfg.n_kv_heads; head++) {
                const size_t size = a->fx->cfg.head_dim * sizeof(uint16_t);
                assert_memory_equal(slab_at(a, t, layer, TL_KV_K, head),
                                    slab_at(b, t, layer, TL_KV_K, head), size);
                assert_memory_equal(slab_at(a, t, layer, TL_KV_V, head),
                                    slab_at(b, t, layer, TL_KV_V, head), size);
            }
        }
    }
}

static void poison_slab(run *r, uint32_t id, uint32_t layer, tl_kv_side side, uint32_t first_slot) {
    const uint32_t block_tokens = tl_kv_pool_cfg(r->pool)->block_tokens;
    uint16_t *slab = NULL;
    size_t slab_len = 0;
    assert_int_equal(tl_kv_pool_slab_mut(r->pool, id, layer, side, &slab, &slab_len, NULL), TL_OK);
    for (size_t i = 0; i < slab_len; i++) {
        const size_t slot = i / r->fx->cfg.head_dim % block_tokens;
        slab[i] = slot >= first_slot ? 0x7e01 : slab[i];
    }
}

/* NaN in every slot of the run's blocks from `filled` positions on. */
static void poison_from(run *r, size_t filled) {
    const uint32_t block_tokens = tl_kv_pool_cfg(r->pool)->block_tokens;
    for (size_t b = 0; b < r->n_blocks; b++) {
        const size_t begin = b * block_tokens;
        const size_t n_filled = filled > begin ? filled - begin : 0;
        for (uint32_t layer = 0; layer < r->fx->cfg.n_layers; layer++) {
            poison_slab(r, r->blocks[b], layer, TL_KV_K, (uint32_t)n_filled);
            poison_slab(r, r->blocks[b], layer, TL_KV_V, (uint32_t)n_filled);
        }
    }
}

/* ------------------------------------------------------------------ against the page */

static void check_against_page(const fx_shape *shape, size_t n) {
    fixture *fx = fx_llama(shape);
    uint32_t tokens[T_MAX];
    fx_tokens(fx, tokens, n, 1);
    float *hidden = fx_floats(n * shape->d);
    float *logits = fx_floats(n * shape->vocab);
    page_forward(fx, tokens, n, hidden, logits);
    const size_t lengths[] = {1, 2, 7, 24, 25, 33, n};
    for (size_t i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
        const size_t length = lengths[i / 2];
        run *r = run_new(fx, 16, 1, i % 2 == 0 ? TL_ISA_AUTO : TL_ISA_PORTABLE);
        run_step(r, tokens, 0, length);
        assert_same_floats(r->hidden, hidden, length * shape->d, "hidden");
        assert_same_floats(tl_logits_row(&r->logits, 0), logits + (length - 1) * shape->vocab,
                           shape->vocab, "logits");
        run_free(r);
    }
    free(hidden);
    free(logits);
    fx_free(fx);
}

static void test_gives_the_bits_of_the_page(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        check_against_page(&shapes[i], i == 0 ? 67 : 43);
    }
    check_against_page(&big_shape, 35);
}

/* ------------------------------------------------------------------ chunks, blocks, poison */

/* A run of n tokens in steps of the given sizes (the last one repeats) equals `whole`. */
static void check_chunks(const run *whole, const uint32_t *tokens, size_t n, uint32_t block_tokens,
                         const size_t *sizes, size_t n_sizes, size_t n_threads, tl_isa isa) {
    run *r = run_new(whole->fx, block_tokens, n_threads, isa);
    poison_from(r, 0);
    size_t start = 0;
    for (size_t i = 0; start < n; i++) {
        const size_t size = sizes[i < n_sizes ? i : n_sizes - 1];
        const size_t n_now = n - start < size ? n - start : size;
        run_step(r, tokens, start, n_now);
        start += n_now;
        poison_from(r, start);
    }
    assert_same_floats(r->hidden, whole->hidden, n * whole->fx->cfg.hidden_size, "hidden");
    assert_same_floats(tl_logits_row(&r->logits, 0), tl_logits_row(&whole->logits, 0),
                       whole->fx->cfg.vocab_size, "logits");
    assert_same_slabs(r, whole, n);
    run_free(r);
}

/* Cuts at every `cut_step`-th position; other cuts and block sizes besides. */
static void check_splits(const fx_shape *shape, size_t cut_step) {
    fixture *fx = fx_llama(shape);
    const size_t n = 51;
    uint32_t tokens[T_MAX];
    fx_tokens(fx, tokens, n, 9);
    run *whole = run_new(fx, 16, 1, TL_ISA_AUTO);
    run_step(whole, tokens, 0, n);
    for (size_t cut = 1; cut < n; cut += cut_step) {
        check_chunks(whole, tokens, n, 16, (size_t[]){cut, n}, 2, 1, TL_ISA_AUTO);
    }
    check_chunks(whole, tokens, n, 16, (size_t[]){1}, 1, 1, TL_ISA_AUTO);
    check_chunks(whole, tokens, n, 16, (size_t[]){1}, 1, 1, TL_ISA_PORTABLE);
    check_chunks(whole, tokens, n, 16, (size_t[]){5, 1, 1, 17}, 4, 1, TL_ISA_PORTABLE);
    const uint32_t sizes[] = {1, 2, 3, 5, 8, 15, 17, 24, 31, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_chunks(whole, tokens, n, sizes[i], (size_t[]){n}, 1, 1, TL_ISA_AUTO);
        check_chunks(whole, tokens, n, sizes[i], (size_t[]){16, 1, 15, 2}, 4, 1, TL_ISA_AUTO);
    }
    run_free(whole);
    fx_free(fx);
}

static void test_chunks_and_blocks_change_no_bit(void **state) {
    (void)state;
    check_splits(&shapes[0], 1);
    check_splits(&shapes[1], 11);
    check_splits(&shapes[3], 11);
}

static void test_threads_change_no_bit(void **state) {
    (void)state;
    fixture *fx = fx_llama(&big_shape);
    const size_t n = 70;
    uint32_t tokens[T_MAX];
    fx_tokens(fx, tokens, n, 4);
    run *whole = run_new(fx, 16, 1, TL_ISA_AUTO);
    run_step(whole, tokens, 0, n);
    const size_t counts[] = {2, 3, 8, 64};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_chunks(whole, tokens, n, 16, (size_t[]){n}, 1, counts[i], TL_ISA_AUTO);
        check_chunks(whole, tokens, n, 7, (size_t[]){40, 1}, 2, counts[i], TL_ISA_AUTO);
    }
    run_free(whole);
    fx_free(fx);
}

/* ------------------------------------------------------------------ batches */

#define S_MAX 24u

/* S sequences of different lengths, each in three steps, in one batch or alone, in any order. */
typedef struct crowd {
    uint32_t tokens[S_MAX][40];
    size_t lengths[S_MAX];
    uint32_t blocks[S_MAX][5];
} crowd;

static crowd *crowd_new(const fixture *fx, tl_kv_pool *pool) {
    crowd *c = (crowd *)calloc(1, sizeof *c);
    assert_non_null(c);
    for (size_t i = 0; i < S_MAX; i++) {
        c->lengths[i] = 3 + i * 13 % 38;
        fx_tokens(fx, c->tokens[i], c->lengths[i], (uint32_t)(100 * i + 1));
        assert_int_equal(tl_kv_pool_alloc(pool, c->blocks[i], 5, NULL), TL_OK);
    }
    return c;
}

/* Where part `part` of 3 of sequence i begins. */
static size_t part_begin(const crowd *c, size_t i, size_t part) {
    return part * c->lengths[i] / 3;
}

static tl_forward_seq crowd_seq(const crowd *c, size_t i, size_t part) {
    const size_t begin = part_begin(c, i, part);
    return (tl_forward_seq){.tokens = c->tokens[i] + begin,
                            .n_tokens = part_begin(c, i, part + 1) - begin,
                            .start = begin,
                            .blocks = c->blocks[i],
                            .n_blocks = 5};
}

/* Logits [S_MAX, V] after every sequence's last part, `n_seqs` sequences a step, the k-th being
 * (k * stride) % S_MAX. */
static void run_crowd(const fixture *fx, size_t n_seqs, size_t stride, size_t n_threads,
                      float *out) {
    const size_t vocab = fx->cfg.vocab_size;
    tl_kv_pool *pool = fx_pool(fx, 5 * S_MAX, 8);
    tl_scratch *scratch = fx_scratch(fx, n_threads, TL_ISA_AUTO, 5 * S_MAX);
    crowd *c = crowd_new(fx, pool);
    tl_logits logits;
    assert_int_equal(tl_logits_init(&logits, S_MAX, vocab, NULL), TL_OK);
    for (size_t part = 0; part < 3; part++) {
        size_t n_now = 0;
        for (size_t k = 0; k < S_MAX; k += n_now) {
            n_now = S_MAX - k < n_seqs ? S_MAX - k : n_seqs;
            tl_forward_seq seqs[S_MAX];
            for (size_t i = 0; i < n_now; i++) {
                seqs[i] = crowd_seq(c, (k + i) * stride % S_MAX, part);
            }
            const tl_forward_batch batch = {.seqs = seqs, .n_seqs = n_now};
            assert_int_equal(
                tl_forward(&fx->cfg, &fx->weights, pool, scratch, &batch, NULL, 0, &logits, NULL),
                TL_OK);
            assert_int_equal(logits.n_rows, n_now);
            for (size_t i = 0; i < n_now; i++) {
                memcpy(out + (k + i) * stride % S_MAX * vocab, tl_logits_row(&logits, i),
                       vocab * sizeof *out);
            }
        }
    }
    tl_logits_clear(&logits);
    free(c);
    tl_scratch_free(scratch);
    tl_kv_pool_free(pool);
}

#define N_WAYS 5u

static void check_batches(const fx_shape *shape, size_t n_ways) {
    fixture *fx = fx_llama(shape);
    float *alone = fx_floats(S_MAX * shape->vocab);
    float *together = fx_floats(S_MAX * shape->vocab);
    run_crowd(fx, 1, 1, 1, alone);
    /* Sequences a step, stride through the crowd, threads. */
    const size_t ways[N_WAYS][3] = {{24, 23, 3}, {7, 7, 2}, {2, 1, 1}, {3, 5, 1}, {16, 11, 1}};
    for (size_t i = 0; i < n_ways; i++) {
        memset(together, 0, S_MAX * shape->vocab * sizeof *together);
        run_crowd(fx, ways[i][0], ways[i][1], ways[i][2], together);
        assert_same_floats(together, alone, S_MAX * shape->vocab, "batch");
    }
    free(alone);
    free(together);
    fx_free(fx);
}

static void test_the_batch_changes_no_bit(void **state) {
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        check_batches(&shapes[i], i == 0 ? N_WAYS : 2);
    }
}

/* Two sequences that share cached blocks of a prefix, in one batch: as if each had computed
 * them. */
static void test_a_shared_prefix_changes_no_bit(void **state) {
    (void)state;
    fixture *fx = fx_llama(&shapes[0]);
    uint32_t tokens[T_MAX];
    fx_tokens(fx, tokens, 40, 3);
    run *cold = run_new(fx, 8, 1, TL_ISA_AUTO);
    run_step(cold, tokens, 0, 40);

    run *warm = run_new(fx, 8, 1, TL_ISA_AUTO);
    run_step(warm, tokens, 0, 16);
    for (uint8_t i = 0; i < 2; i++) {
        const tl_prefix_key key = {.bytes = {i}};
        assert_int_equal(tl_kv_pool_register(warm->pool, warm->blocks[i], &key, NULL), TL_OK);
        assert_int_equal(tl_kv_pool_retain(warm->pool, warm->blocks[i], NULL), TL_OK);
    }
    uint32_t other[5] = {warm->blocks[0], warm->blocks[1], warm->blocks[5], warm->blocks[6],
                         warm->blocks[7]};
    const tl_forward_seq seqs[] = {{tokens + 16, 24, 16, warm->blocks, 5},
                                   {tokens + 16, 24, 16, other, 5}};
    const tl_forward_batch batch = {.seqs = seqs, .n_seqs = 2};
    assert_int_equal(tl_forward(&fx->cfg, &fx->weights, warm->pool, warm->scratch, &batch, NULL, 0,
                                &warm->logits, NULL),
                     TL_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_same_floats(tl_logits_row(&warm->logits, i), tl_logits_row(&cold->logits, 0),
                           fx->cfg.vocab_size, "shared prefix");
    }
    assert_same_slabs(warm, cold, 40);
    run_free(cold);
    run_free(warm);
    fx_free(fx);
}

/* int4 weights and the same weights dequantized to f32. */
static void test_int4_equals_its_twin(void **state) {
    (void)state;
    fixture *fx = fx_llama(&shapes[3]);
    fixture *twin = fx_llama(&shapes[3]);
    tl_llama_weights *w = &twin->weights.as.llama;
    tl_linear *linears[16] = {&w->lm_head};
    size_t n = 1;
    for (size_t i = 0; i < w->n_layers; i++) {
        tl_llama_layer *layer = &w->layers[i];
        tl_linear *of_layer[7] = {&layer->wq,     &layer->wk,   &layer->wv,    &layer->wo,
                                  &layer->w_gate, &layer->w_up, &layer->w_down};
        memcpy(linears + n, of_layer, sizeof of_layer);
        n += 7;
    }
    for (size_t i = 0; i < n; i++) {
        const tl_qlinear q = linears[i]->as.q4;
        const size_t n_values = q.n_out * q.n_in;
        float *dense = (float *)fx_part(twin, n_values, sizeof *dense);
        uint8_t *data = (uint8_t *)dense; /* each value in its own place, little-endian */
        assert_int_equal(tl_qlinear_dequantize(&q, dense, n_values, NULL), TL_OK);
        for (size_t k = 0; k < n_values; k++) {
            tli_store_u32(data + 4 * k, tli_f32_bits(dense[k]));
        }
        linears[i]->kind = TL_LINEAR_DENSE;
        linears[i]->as.dense =
            (tl_matrix){.kind = TL_MATRIX_F32, .n_out = q.n_out, .n_in = q.n_in, .data = data};
    }
    uint32_t tokens[T_MAX];
    fx_tokens(fx, tokens, 40, 5);
    run *a = run_new(fx, 16, 1, TL_ISA_AUTO);
    run *b = run_new(twin, 16, 1, TL_ISA_AUTO);
    run_step(a, tokens, 0, 40);
    run_step(b, tokens, 0, 40);
    assert_same_floats(a->hidden, b->hidden, 40 * fx->cfg.hidden_size, "int4 twin");
    assert_same_slabs(a, b, 40);
    run_free(a);
    run_free(b);
    fx_free(fx);
    fx_free(twin);
}

/* ------------------------------------------------------------------ fills */

static uint32_t fill_of(const run *r, size_t i_block) {
    tl_kv_block_info info;
    assert_int_equal(tl_kv_pool_block_info(r->pool, r->blocks[i_block], &info, NULL), TL_OK);
    return info.n_filled;
}

static void assert_fills(const run *r, const uint32_t *want, size_t n) {
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(fill_of(r, i), want[i]);
    }
}

static void check_fills(const fixture *fx) {
    uint32_t tokens[T_MAX];
    fx_tokens(fx, tokens, 60, 2);
    run *r = run_new(fx, 8, 1, TL_ISA_AUTO);
    const size_t d = fx->cfg.hidden_size;
    tl_forward_seq seq = {tokens, 20, 0, r->blocks, 7};
    const tl_forward_batch batch = {.seqs = &seq, .n_seqs = 1};
    const struct {
        size_t start, n;
        uint32_t fills[7];
    } steps[] = {
        {0, 20, {8, 8, 4, 0, 0, 0, 0}},  {20, 4, {8, 8, 8, 0, 0, 0, 0}},
        {24, 1, {8, 8, 8, 1, 0, 0, 0}},  {25, 23, {8, 8, 8, 8, 8, 8, 0}},
        {10, 3, {8, 5, 0, 0, 0, 0, 0}}, /* rewound inside a block */
        {13, 30, {8, 8, 8, 8, 8, 3, 0}}, {16, 8, {8, 8, 8, 0, 0, 0, 0}},
        {0, 1, {1, 0, 0, 0, 0, 0, 0}},
    };
    (void)d;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        seq.start = steps[i].start;
        seq.n_tokens = steps[i].n;
        seq.tokens = tokens + steps[i].start;
        assert_int_equal(tl_forward(&fx->cfg, &fx->weights, r->pool, r->scratch, &batch, NULL, 0,
                                    &r->logits, NULL),
                         TL_OK);
        assert_fills(r, steps[i].fills, 7);
    }
    run_free(r);
}

static void test_fills_rise_and_rewind(void **state) {
    (void)state;
    fixture *llama = fx_llama(&shapes[0]);
    fixture *bigram = fx_bigram(50);
    check_fills(llama);
    check_fills(bigram);
    fx_free(llama);
    fx_free(bigram);
}

/* After a rewind, blocks that somebody else holds, lists or finds by key keep what they have. */
static void test_a_rewind_leaves_other_holders_alone(void **state) {
    (void)state;
    fixture *fx = fx_llama(&shapes[0]);
    uint32_t tokens[T_MAX];
    fx_tokens(fx, tokens, 60, 2);
    run *r = run_new(fx, 8, 1, TL_ISA_AUTO);
    run_step(r, tokens, 0, 48);
    const tl_prefix_key key = {.bytes = {9}};
    assert_int_equal(tl_kv_pool_retain(r->pool, r->blocks[2], NULL), TL_OK);
    assert_int_equal(tl_kv_pool_register(r->pool, r->blocks[3], &key, NULL), TL_OK);
    const uint32_t other[2] = {r->blocks[7], r->blocks[4]};
    const tl_forward_seq seqs[] = {{tokens, 3, 0, r->blocks, 6}, {tokens, 2, 0, other, 2}};
    const tl_forward_batch batch = {.seqs = seqs, .n_seqs = 2};
    assert_int_equal(
        tl_forward(&fx->cfg, &fx->weights, r->pool, r->scratch, &batch, NULL, 0, &r->logits, NULL),
        TL_OK);
    assert_fills(r, (const uint32_t[]){3, 0, 8, 8, 8, 0}, 6);
    run_free(r);
    fx_free(fx);
}

/* What a rewound sequence computes is what a fresh one does. */
static void test_a_rewound_sequence_is_as_new(void **state) {
    (void)state;
    fixture *fx = fx_llama(&shapes[0]);
    uint32_t tokens[T_MAX];
    uint32_t before[T_MAX];
    fx_tokens(fx, tokens, 40, 2);
    memcpy(before, tokens, sizeof before);
    for (size_t i = 13; i < 40; i++) {
        before[i] = (tokens[i] + 1) % (uint32_t)fx->cfg.vocab_size;
    }
    run *fresh = run_new(fx, 8, 1, TL_ISA_AUTO);
    run *rewound = run_new(fx, 8, 1, TL_ISA_AUTO);
    run_step(fresh, tokens, 0, 40);
    run_step(rewound, before, 0, 40);
    run_step(rewound, tokens, 13, 27);
    assert_same_floats(tl_logits_row(&rewound->logits, 0), tl_logits_row(&fresh->logits, 0),
                       fx->cfg.vocab_size, "rewound");
    assert_same_slabs(rewound, fresh, 40);
    run_free(fresh);
    run_free(rewound);
    fx_free(fx);
}

/* ------------------------------------------------------------------ bigram */

static void test_bigram_answers_with_the_row_of_the_last_token(void **state) {
    (void)state;
    fixture *fx = fx_bigram(50);
    uint32_t tokens[T_MAX];
    fx_tokens(fx, tokens, 20, 1);
    run *r = run_new(fx, 8, 2, TL_ISA_AUTO);
    poison_from(r, 0);
    const tl_forward_seq seqs[] = {{tokens, 20, 0, r->blocks, 3}, {tokens, 1, 0, r->blocks + 3, 1}};
    const tl_forward_batch batch = {.seqs = seqs, .n_seqs = 2};
    assert_int_equal(
        tl_forward(&fx->cfg, &fx->weights, r->pool, r->scratch, &batch, NULL, 0, &r->logits, NULL),
        TL_OK);
    float row[50];
    page_row(&fx->weights.as.bigram, tokens[19], row);
    assert_same_floats(tl_logits_row(&r->logits, 0), row, 50, "bigram");
    page_row(&fx->weights.as.bigram, tokens[0], row);
    assert_same_floats(tl_logits_row(&r->logits, 1), row, 50, "bigram");
    assert_null(tl_logits_row(&r->logits, 2));
    for (size_t t = 0; t < 20; t++) {
        assert_int_equal(slab_at(r, t, 0, TL_KV_K, 0)[0], 0x7e01); /* no slab byte changed */
    }
    run_free(r);
    fx_free(fx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gives_the_bits_of_the_page),
        cmocka_unit_test(test_chunks_and_blocks_change_no_bit),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_the_batch_changes_no_bit),
        cmocka_unit_test(test_a_shared_prefix_changes_no_bit),
        cmocka_unit_test(test_int4_equals_its_twin),
        cmocka_unit_test(test_fills_rise_and_rewind),
        cmocka_unit_test(test_a_rewind_leaves_other_holders_alone),
        cmocka_unit_test(test_a_rewound_sequence_is_as_new),
        cmocka_unit_test(test_bigram_answers_with_the_row_of_the_last_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
