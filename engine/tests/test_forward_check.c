/* test_forward_check.c: every refusal of a batch: its status, the sequence that it names, and that
 * nothing changed: no slab byte, no fill, no logit.
 *
 * Each case differs from one good batch of two sequences in one thing; the good one is run too.
 *
 * Source: conformance/spec/forward.md, "Checked before anything is written". */
#include "forward_fixture.h"

#define B 4u
#define N_BLOCKS 16u
#define V 37u
#define MAX_POSITIONS 200u

static const fx_shape shape = {24, 40, 2, 6, 2, 10, V, TL_MATRIX_F32, 0, false};

/* A good batch: sequence 0 goes on at position 6 with 5 tokens, sequence 1 starts with 3. */
typedef struct scene {
    fixture *fx;
    tl_kv_pool *pool;
    tl_scratch *scratch;
    uint32_t tokens[2][64];
    uint32_t blocks[2][8];
    tl_forward_seq seqs[2];
    tl_forward_batch batch;
    tl_logits logits;
    uint32_t spare[8]; /* used blocks that no table lists */
    uint32_t free_id;  /* a block that is not used */
} scene;

static void fill_first_positions(scene *s) {
    const tl_forward_seq seq = {s->tokens[0], 6, 0, s->blocks[0], 3};
    const tl_forward_batch batch = {.seqs = &seq, .n_seqs = 1};
    assert_int_equal(tl_forward(&s->fx->cfg, &s->fx->weights, s->pool, s->scratch, &batch, NULL, 0,
                                &s->logits, NULL),
                     TL_OK);
}

static scene *scene_new(void) {
    scene *s = (scene *)calloc(1, sizeof *s);
    assert_non_null(s);
    s->fx = fx_llama(&shape);
    s->pool = fx_pool(s->fx, N_BLOCKS, B);
    const tl_limits limits = {.max_batch_tokens = 12,
                              .max_seqs = 2,
                              .n_threads = 1,
                              .max_context = 40,
                              .max_blocks = N_BLOCKS};
    assert_int_equal(tl_scratch_new(&s->scratch, &s->fx->cfg, &limits, NULL), TL_OK);
    assert_int_equal(tl_logits_init(&s->logits, 2, V, NULL), TL_OK);
    for (size_t i = 0; i < 2; i++) {
        fx_tokens(s->fx, s->tokens[i], 64, (uint32_t)(i + 1));
        assert_int_equal(tl_kv_pool_alloc(s->pool, s->blocks[i], 4, NULL), TL_OK);
    }
    assert_int_equal(tl_kv_pool_alloc(s->pool, s->spare, 7, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_alloc(s->pool, &s->free_id, 1, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_release(s->pool, s->free_id, NULL), TL_OK);
    fill_first_positions(s);
    s->seqs[0] = (tl_forward_seq){s->tokens[0] + 6, 5, 6, s->blocks[0], 4};
    s->seqs[1] = (tl_forward_seq){s->tokens[1], 3, 0, s->blocks[1], 2};
    s->batch = (tl_forward_batch){.seqs = s->seqs, .n_seqs = 2};
    return s;
}

static void scene_free(scene *s) {
    tl_logits_clear(&s->logits);
    tl_scratch_free(s->scratch);
    tl_kv_pool_free(s->pool);
    fx_free(s->fx);
    free(s);
}

/* Everything that a refused step must leave alone, as one sum. */
static uint32_t state_of(const scene *s) {
    uint32_t sum = 1;
    for (uint32_t id = 0; id < N_BLOCKS; id++) {
        tl_kv_block_info info;
        assert_int_equal(tl_kv_pool_block_info(s->pool, id, &info, NULL), TL_OK);
        sum = sum * 31 + info.n_refs * 7 + info.n_filled;
        for (uint32_t at = 0; info.n_refs != 0 && at < 2 * s->fx->cfg.n_layers; at++) {
            const uint16_t *slab = NULL;
            size_t slab_len = 0;
            assert_int_equal(
                tl_kv_pool_slab(s->pool, id, at / 2, (tl_kv_side)(at % 2), &slab, &slab_len, NULL),
                TL_OK);
            for (size_t i = 0; i < slab_len; i++) {
                sum = sum * 31 + slab[i];
            }
        }
    }
    for (size_t i = 0; i < s->logits.data_len; i++) {
        sum = sum * 31 + tli_f32_bits(s->logits.data[i]);
    }
    return sum * 31 + (uint32_t)s->logits.n_rows;
}

static tl_status forward(scene *s, tl_error *err) {
    return tl_forward(&s->fx->cfg, &s->fx->weights, s->pool, s->scratch, &s->batch, NULL, 0,
                      &s->logits, err);
}

/* ------------------------------------------------------------------ one thing wrong */

static void no_sequence(scene *s) {
    s->batch.n_seqs = 0;
}

static void no_tokens(scene *s) {
    s->seqs[1].n_tokens = 0;
}

static void null_tokens(scene *s) {
    s->seqs[1].tokens = NULL;
}

static void null_blocks(scene *s) {
    s->seqs[1].blocks = NULL;
}

static void id_is_vocab_size(scene *s) {
    s->tokens[1][2] = V;
}

static void id_is_huge(scene *s) {
    s->tokens[1][0] = UINT32_MAX;
}

static void past_the_context(scene *s) {
    s->seqs[1].start = MAX_POSITIONS - 2;
    s->seqs[1].n_blocks = 8;
}

static void position_wraps(scene *s) {
    s->seqs[1].start = SIZE_MAX - 1;
}

static void short_table(scene *s) {
    s->seqs[0].n_blocks = 2;
}

static void empty_table(scene *s) {
    s->seqs[1].n_blocks = 0;
    s->seqs[1].blocks = NULL;
}

static void unknown_block(scene *s) {
    s->blocks[1][0] = N_BLOCKS;
}

static void unknown_block_in_tail(scene *s) {
    s->blocks[1][1] = UINT32_MAX;
}

static void block_twice(scene *s) {
    s->blocks[1][1] = s->blocks[1][0];
}

static void block_twice_apart(scene *s) {
    s->blocks[0][3] = s->blocks[0][0];
}

/* Shared with the sequence before, and then twice in its own table: still twice. */
static void shared_block_twice(scene *s) {
    s->blocks[1][1] = s->blocks[0][0];
    s->blocks[1][2] = s->blocks[0][0];
    s->seqs[1].n_blocks = 3;
}

static void too_many_tokens(scene *s) {
    s->seqs[1].n_tokens = 8;
}

static void too_many_sequences(scene *s) {
    static tl_forward_seq three[3];
    memcpy(three, s->seqs, sizeof s->seqs);
    three[2] = (tl_forward_seq){s->tokens[1], 1, 0, s->spare, 1};
    s->batch = (tl_forward_batch){.seqs = three, .n_seqs = 3};
}

/* Two faults: a table that is wrong in itself, and more tokens than a step takes. */
static void block_twice_and_too_many(scene *s) {
    s->seqs[1].n_tokens = 8;
    s->blocks[1][1] = s->blocks[1][0];
}

static void past_the_scratch_context(scene *s) {
    memcpy(s->blocks[1] + 4, s->spare, 4 * sizeof(uint32_t));
    static uint32_t table[11];
    memcpy(table, s->blocks[1], 4 * sizeof *table);
    memcpy(table + 4, s->spare, 7 * sizeof *table);
    s->seqs[1].blocks = table;
    s->seqs[1].n_blocks = 11;
    s->seqs[1].start = 38; /* position 40 exists in the table, not in the scratch */
}

static void no_room_for_logits(scene *s) {
    s->logits.max_rows = 1;
}

static void logits_of_another_vocabulary(scene *s) {
    s->logits.vocab = V - 1;
}

static void logits_too_short(scene *s) {
    s->logits.data_len = 2 * V - 1;
}

static void free_block(scene *s) {
    s->blocks[1][0] = s->free_id;
}

static void free_block_in_tail(scene *s) {
    s->blocks[1][1] = s->free_id;
}

static void never_filled(scene *s) {
    s->seqs[1].start = 1;
}

static void gap_of_one(scene *s) {
    s->seqs[0].start = 7;
}

static void gap_in_an_earlier_block(scene *s) {
    assert_int_equal(tl_kv_pool_set_fill(s->pool, s->blocks[0][0], B - 1, NULL), TL_OK);
}

static void target_held_twice(scene *s) {
    assert_int_equal(tl_kv_pool_retain(s->pool, s->blocks[0][1], NULL), TL_OK);
}

static void target_is_registered(scene *s) {
    const tl_prefix_key key = {.bytes = {1}};
    assert_int_equal(tl_kv_pool_register(s->pool, s->blocks[0][0], &key, NULL), TL_OK);
    s->seqs[0].start = 3;
}

static void target_of_two(scene *s) {
    s->blocks[1][0] = s->blocks[0][2];
}

static void target_in_the_tail_of_another(scene *s) {
    s->blocks[1][1] = s->blocks[0][1];
}

static void other_layers(scene *s) {
    tl_kv_pool_free(s->pool);
    s->fx->cfg.n_layers++;
    s->pool = fx_pool(s->fx, N_BLOCKS, B);
    s->fx->cfg.n_layers--;
    uint32_t ids[N_BLOCKS];
    assert_int_equal(tl_kv_pool_alloc(s->pool, ids, N_BLOCKS, NULL), TL_OK);
    s->seqs[0].start = 0;
}

/* `who`: what the text must name; NULL where there is no sequence to blame. */
typedef struct bad_case {
    const char *name;
    void (*spoil)(scene *s);
    tl_status status;
    const char *who;
} bad_case;

static const bad_case bad_cases[] = {
    {"no sequence", no_sequence, TL_ERR_INVALID, NULL},
    {"no tokens", no_tokens, TL_ERR_INVALID, "sequence 1"},
    {"tokens NULL", null_tokens, TL_ERR_INVALID, "sequence 1"},
    {"blocks NULL", null_blocks, TL_ERR_INVALID, "sequence 1"},
    {"id = vocab_size", id_is_vocab_size, TL_ERR_INVALID, "sequence 1"},
    {"id = 2^32 - 1", id_is_huge, TL_ERR_INVALID, "sequence 1"},
    {"past the context", past_the_context, TL_ERR_INVALID, "sequence 1"},
    {"position wraps", position_wraps, TL_ERR_INVALID, "sequence 1"},
    {"short table", short_table, TL_ERR_INVALID, "sequence 0"},
    {"empty table", empty_table, TL_ERR_INVALID, "sequence 1"},
    {"unknown block", unknown_block, TL_ERR_INVALID, "sequence 1"},
    {"unknown block in the tail", unknown_block_in_tail, TL_ERR_INVALID, "sequence 1"},
    {"block twice", block_twice, TL_ERR_INVALID, "sequence 1"},
    {"block twice, apart", block_twice_apart, TL_ERR_INVALID, "sequence 0"},
    {"shared block twice", shared_block_twice, TL_ERR_INVALID, "sequence 1"},
    {"block twice, and too many tokens", block_twice_and_too_many, TL_ERR_INVALID, "sequence 1"},
    {"too many tokens", too_many_tokens, TL_ERR_CAPACITY, "sequence 1"},
    {"too many sequences", too_many_sequences, TL_ERR_CAPACITY, "3 sequences"},
    {"past the scratch's context", past_the_scratch_context, TL_ERR_CAPACITY, "sequence 1"},
    {"no room for logits", no_room_for_logits, TL_ERR_CAPACITY, NULL},
    {"logits of another vocabulary", logits_of_another_vocabulary, TL_ERR_INVALID, NULL},
    {"logits too short", logits_too_short, TL_ERR_INVALID, NULL},
    {"free block", free_block, TL_ERR_STATE, "sequence 1"},
    {"free block in the tail", free_block_in_tail, TL_ERR_STATE, "sequence 1"},
    {"never filled", never_filled, TL_ERR_STATE, "sequence 1"},
    {"a gap of one position", gap_of_one, TL_ERR_STATE, "sequence 0"},
    {"a gap in an earlier block", gap_in_an_earlier_block, TL_ERR_STATE, "sequence 0"},
    {"target held twice", target_held_twice, TL_ERR_STATE, "sequence 0"},
    {"target registered", target_is_registered, TL_ERR_STATE, "sequence 0"},
    {"target of two sequences", target_of_two, TL_ERR_STATE, "sequence"},
    {"target in another's tail", target_in_the_tail_of_another, TL_ERR_STATE, "sequence 0"},
    {"pool of another shape", other_layers, TL_ERR_STATE, "layers"},
};

static void check_bad_case(const bad_case *c) {
    scene *s = scene_new();
    tl_error err = {0};
    c->spoil(s);
    const uint32_t before = state_of(s);
    const tl_status status = forward(s, &err);
    if (status != c->status || err.status != c->status) {
        fail_msg("%s: %s (%s), due is %s", c->name, tl_status_name(status), err.text,
                 tl_status_name(c->status));
    }
    if (c->who != NULL && strstr(err.text, c->who) == NULL) {
        fail_msg("%s: \"%s\" does not name %s", c->name, err.text, c->who);
    }
    assert_int_equal(err.offset, TL_NO_OFFSET);
    assert_int_equal(state_of(s), before);
    assert_int_equal(forward(s, NULL), c->status);
    scene_free(s);
}

static void test_every_bad_batch_is_refused_and_changes_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++) {
        check_bad_case(&bad_cases[i]);
    }
}

/* ------------------------------------------------------------------ what is allowed */

static void test_the_good_batch_runs(void **state) {
    (void)state;
    scene *s = scene_new();
    const uint32_t before = state_of(s);
    assert_int_equal(tl_forward_check(&s->fx->cfg, s->pool, s->scratch, &s->batch, NULL), TL_OK);
    assert_int_equal(state_of(s), before);
    assert_int_equal(forward(s, NULL), TL_OK);
    assert_int_not_equal(state_of(s), before);
    assert_int_equal(s->logits.n_rows, 2);
    scene_free(s);
}

/* A full, shared, registered prefix may be read by everyone; a tail may be shared. */
static void test_shared_blocks_may_be_read(void **state) {
    (void)state;
    scene *s = scene_new();
    const tl_prefix_key key = {.bytes = {1}};
    assert_int_equal(tl_kv_pool_register(s->pool, s->blocks[0][0], &key, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_retain(s->pool, s->blocks[0][0], NULL), TL_OK);
    uint32_t other[3] = {s->blocks[0][0], s->blocks[1][0], s->blocks[0][3]};
    s->seqs[1] = (tl_forward_seq){s->tokens[1], 4, 4, other, 3};
    assert_int_equal(forward(s, NULL), TL_OK);
    scene_free(s);
}

/* The last position of the context and of the scratch. */
static void test_the_limits_themselves_are_allowed(void **state) {
    (void)state;
    scene *s = scene_new();
    s->seqs[1].n_tokens = 7; /* 5 + 7 = 12 */
    assert_int_equal(forward(s, NULL), TL_OK);
    scene_free(s);
}

/* Thousands of checks on one scratch: marks of one batch never speak for another. */
static void test_marks_do_not_outlive_a_batch(void **state) {
    (void)state;
    scene *s = scene_new();
    for (size_t i = 0; i < 2000; i++) {
        assert_int_equal(tl_forward_check(&s->fx->cfg, s->pool, s->scratch, &s->batch, NULL),
                         TL_OK);
    }
    scene_free(s);
}

/* ------------------------------------------------------------------ arguments of the call */

static void test_null_and_mismatched_arguments(void **state) {
    (void)state;
    scene *s = scene_new();
    const tl_model_config *cfg = &s->fx->cfg;
    const tl_weights *w = &s->fx->weights;
    tl_error err = {0};
    float hidden[8 * 24];
    assert_int_equal(tl_forward(NULL, w, s->pool, s->scratch, &s->batch, NULL, 0, &s->logits, &err),
                     TL_ERR_INVALID);
    assert_int_equal(
        tl_forward(cfg, NULL, s->pool, s->scratch, &s->batch, NULL, 0, &s->logits, &err),
        TL_ERR_INVALID);
    assert_int_equal(tl_forward(cfg, w, NULL, s->scratch, &s->batch, NULL, 0, &s->logits, &err),
                     TL_ERR_INVALID);
    assert_int_equal(tl_forward(cfg, w, s->pool, NULL, &s->batch, NULL, 0, &s->logits, &err),
                     TL_ERR_INVALID);
    assert_int_equal(tl_forward(cfg, w, s->pool, s->scratch, NULL, NULL, 0, &s->logits, &err),
                     TL_ERR_INVALID);
    assert_int_equal(tl_forward(cfg, w, s->pool, s->scratch, &s->batch, NULL, 0, NULL, &err),
                     TL_ERR_INVALID);
    assert_int_equal(
        tl_forward(cfg, w, s->pool, s->scratch, &s->batch, hidden, 8 * 24 - 1, &s->logits, &err),
        TL_ERR_INVALID);
    assert_int_equal(
        tl_forward(cfg, w, s->pool, s->scratch, &s->batch, NULL, 8 * 24, &s->logits, &err),
        TL_ERR_INVALID);
    assert_int_equal(
        tl_forward(cfg, w, s->pool, s->scratch, &s->batch, hidden, 8 * 24, &s->logits, &err),
        TL_OK);
    scene_free(s);
}

/* Weights or a scratch of another model are refused before a byte is written. */
static void test_weights_and_scratch_must_be_of_the_config(void **state) {
    (void)state;
    scene *s = scene_new();
    fx_shape other_shape = shape;
    other_shape.inter += 2;
    fixture *other = fx_llama(&other_shape);
    const uint32_t before = state_of(s);
    assert_int_equal(tl_forward(&s->fx->cfg, &other->weights, s->pool, s->scratch, &s->batch, NULL,
                                0, &s->logits, NULL),
                     TL_ERR_INVALID);
    assert_int_equal(tl_forward(&other->cfg, &other->weights, s->pool, s->scratch, &s->batch, NULL,
                                0, &s->logits, NULL),
                     TL_ERR_INVALID);
    tl_weights bigram = {.arch = TL_ARCH_BIGRAM};
    assert_int_equal(
        tl_forward(&s->fx->cfg, &bigram, s->pool, s->scratch, &s->batch, NULL, 0, &s->logits, NULL),
        TL_ERR_INVALID);
    assert_int_equal(state_of(s), before);
    fx_free(other);
    scene_free(s);
}

/* A scratch is for one config: each byte of each field counts, and only the bytes between the
 * fields do not. */
static void test_every_field_of_the_config_is_compared(void **state) {
    (void)state;
    scene *s = scene_new();
    const size_t after_tie = offsetof(tl_model_config, tie_word_embeddings) + sizeof(bool);
    const size_t after_eos =
        offsetof(tl_model_config, eos_token_ids) + sizeof(uint32_t[TL_EOS_IDS_MAX]);
    for (size_t i = 0; i < sizeof(tl_model_config); i++) {
        const bool is_padding = (i >= after_tie && i < offsetof(tl_model_config, eos_token_ids)) ||
                                (i >= after_eos && i < offsetof(tl_model_config, n_eos_token_ids));
        tl_model_config other;
        tl_error err = {0};
        memcpy(&other, &s->fx->cfg, sizeof other);
        ((unsigned char *)&other)[i] ^= 1;
        const tl_status status = tl_forward_check(&other, s->pool, s->scratch, &s->batch, &err);
        if (status != (is_padding ? TL_OK : TL_ERR_INVALID) ||
            (!is_padding && strstr(err.text, "another config") == NULL)) {
            fail_msg("byte %zu of a config: %s (%s)", i, tl_status_name(status), err.text);
        }
    }
    scene_free(s);
}

static void test_hidden_is_not_for_the_bigram(void **state) {
    (void)state;
    fixture *fx = fx_bigram(9);
    tl_kv_pool *pool = fx_pool(fx, 2, 4);
    tl_scratch *scratch = fx_scratch(fx, 1, TL_ISA_AUTO, 2);
    tl_logits logits;
    uint32_t id = 0;
    const uint32_t token = 3;
    float hidden[2];
    assert_int_equal(tl_logits_init(&logits, 1, 9, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_alloc(pool, &id, 1, NULL), TL_OK);
    const tl_forward_seq seq = {&token, 1, 0, &id, 1};
    const tl_forward_batch batch = {&seq, 1};
    assert_int_equal(
        tl_forward(&fx->cfg, &fx->weights, pool, scratch, &batch, hidden, 0, &logits, NULL),
        TL_ERR_INVALID);
    assert_int_equal(
        tl_forward(&fx->cfg, &fx->weights, pool, scratch, &batch, hidden, 2, &logits, NULL),
        TL_ERR_INVALID);
    assert_int_equal(
        tl_forward(&fx->cfg, &fx->weights, pool, scratch, &batch, NULL, 0, &logits, NULL), TL_OK);
    tl_logits_clear(&logits);
    tl_scratch_free(scratch);
    tl_kv_pool_free(pool);
    fx_free(fx);
}

/* ------------------------------------------------------------------ scratch and logits */

static void test_scratch_refuses(void **state) {
    (void)state;
    fixture *fx = fx_llama(&shape);
    const tl_limits good = {.max_batch_tokens = 8, .max_seqs = 2, .n_threads = 2, .max_blocks = 4};
    tl_limits bad[9];
    for (size_t i = 0; i < 9; i++) {
        bad[i] = good;
    }
    bad[0].max_batch_tokens = 0;
    bad[1].max_seqs = 0;
    bad[2].n_threads = 0;
    bad[3].n_threads = 65;
    bad[4].max_blocks = 0;
    bad[5].isa = (tl_isa)9;
    bad[6].isa = TL_ISA_NEON;
    bad[7].max_batch_tokens = SIZE_MAX / 8;
    bad[8].max_seqs = SIZE_MAX;
    const tl_status due[9] = {TL_ERR_INVALID,     TL_ERR_INVALID, TL_ERR_INVALID,
                              TL_ERR_INVALID,     TL_ERR_INVALID, TL_ERR_INVALID,
                              TL_ERR_UNSUPPORTED, TL_ERR_NOMEM,   TL_ERR_NOMEM};
    for (size_t i = 0; i < 9; i++) {
        tl_error err = {0};
        size_t n_bytes = 1;
        tl_scratch *scratch = (tl_scratch *)&err;
        assert_int_equal(tl_scratch_new(&scratch, &fx->cfg, &bad[i], &err), due[i]);
        assert_null(scratch);
        assert_int_equal(err.status, due[i]);
        assert_int_equal(tl_scratch_size(&fx->cfg, &bad[i], &n_bytes, NULL), due[i]);
        assert_int_equal(n_bytes, 1);
    }
    tl_scratch *scratch = NULL;
    assert_int_equal(tl_scratch_new(NULL, &fx->cfg, &good, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_scratch_new(&scratch, NULL, &good, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_scratch_new(&scratch, &fx->cfg, NULL, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_scratch_size(&fx->cfg, &good, NULL, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_scratch_new(&scratch, &fx->cfg, &good, NULL), TL_OK);
    assert_int_not_equal(tl_scratch_limits(scratch)->isa, TL_ISA_AUTO);
    assert_int_equal(tl_scratch_limits(scratch)->max_context, MAX_POSITIONS);
    assert_null(tl_scratch_limits(NULL));
    tl_scratch_free(scratch);
    tl_scratch_free(NULL);
    fx_free(fx);
}

/* What no real of a config may be: not a number, not above 0, or not so once rounded to f32. */
static const double bad_reals[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -1.0,  -0.0,
                                   0.0,         0x1p-150,         0x1.ffffffp127,    1e300, 1e-300};

static void refuse_real(fixture *fx, const tl_limits *limits, double *field, double bad) {
    const double good = *field;
    tl_scratch *scratch = NULL;
    size_t n_bytes = 0;
    tl_error err = {0};
    *field = bad;
    assert_int_equal(tl_scratch_new(&scratch, &fx->cfg, limits, &err), TL_ERR_INVALID);
    assert_non_null(strstr(err.text, "rope_theta"));
    assert_int_equal(tl_scratch_size(&fx->cfg, limits, &n_bytes, NULL), TL_ERR_INVALID);
    *field = good;
}

/* A config made by hand that would divide by zero, or multiply past a size. */
static void test_scratch_refuses_impossible_configs(void **state) {
    (void)state;
    fixture *fx = fx_llama(&shape);
    const tl_limits limits = {
        .max_batch_tokens = 8, .max_seqs = 2, .n_threads = 1, .max_blocks = 4};
    tl_model_config bad[10];
    for (size_t i = 0; i < 10; i++) {
        bad[i] = fx->cfg;
    }
    for (size_t i = 0; i < sizeof bad_reals / sizeof *bad_reals; i++) {
        refuse_real(fx, &limits, &fx->cfg.rope_theta, bad_reals[i]);
        refuse_real(fx, &limits, &fx->cfg.rms_norm_eps, bad_reals[i]);
    }
    bad[0].n_kv_heads = 0;
    bad[1].n_kv_heads = 4;
    bad[2].head_dim = 7;
    bad[3].head_dim = 0;
    bad[4].hidden_size = 0;
    bad[5].arch = (tl_arch)3;
    bad[6].n_layers = SIZE_MAX;
    bad[7].rope_theta = (double)NAN;
    bad[8].rms_norm_eps = 0;
    bad[9].max_positions = 0;
    for (size_t i = 0; i < 10; i++) {
        tl_scratch *scratch = NULL;
        assert_int_equal(tl_scratch_new(&scratch, &bad[i], &limits, NULL), TL_ERR_INVALID);
    }
    fx_free(fx);
}

/* The formula of the header, with a context that is no multiple of eight. */
static void test_scratch_size_follows_its_formula(void **state) {
    (void)state;
    fixture *fx = fx_llama(&shape);
    const tl_limits limits = {.max_batch_tokens = 100,
                              .max_seqs = 7,
                              .n_threads = 3,
                              .max_context = 61,
                              .max_blocks = 50};
    const size_t d = 24;
    const size_t inter = 40;
    const size_t q_width = 60;
    const size_t kv_width = 20;
    const size_t head_dim = 10;
    const size_t words = 100 * (3 * d + 2 * q_width + 2 * kv_width + 2 * inter + head_dim + 1) +
                         7 * d + head_dim + 4 * 8 + 12 * 50 +
                         3 * (64 * (q_width + 16) + 32 * (61 + 24) + 88 * head_dim);
    size_t n_bytes = 0;
    assert_int_equal(tl_scratch_size(&fx->cfg, &limits, &n_bytes, NULL), TL_OK);
    assert_true(n_bytes <= 4 * words + 4096);
    assert_true(n_bytes + 4096 >= 4 * words);
    fx_free(fx);
}

static void test_logits(void **state) {
    (void)state;
    tl_logits logits;
    assert_int_equal(tl_logits_init(NULL, 1, 1, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_logits_init(&logits, 0, 1, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_logits_init(&logits, 1, 0, NULL), TL_ERR_INVALID);
    assert_null(logits.data);
    assert_int_equal(tl_logits_init(&logits, SIZE_MAX / 2, 3, NULL), TL_ERR_NOMEM);
    assert_null(logits.data);
    assert_int_equal(tl_logits_init(&logits, 3, 5, NULL), TL_OK);
    assert_int_equal(logits.data_len, 15);
    assert_null(tl_logits_row(&logits, 0));
    logits.n_rows = 2;
    assert_ptr_equal(tl_logits_row(&logits, 1), logits.data + 5);
    assert_null(tl_logits_row(&logits, 2));
    assert_null(tl_logits_row(NULL, 0));
    tl_logits_clear(&logits);
    assert_null(logits.data);
    tl_logits_clear(&logits);
    tl_logits_clear(NULL);
}

/* Weights that a caller put together with a NULL in them, or with lengths that do not fit, are
 * refused before the step begins. */
static void test_incomplete_weights(void **state) {
    (void)state;
    scene *s = scene_new();
    tl_llama_weights *llama = &s->fx->weights.as.llama;
    tl_llama_layer *layer = &llama->layers[1];
    const void **const data[] = {
        (const void **)&layer->attn_norm,           (const void **)&layer->mlp_norm,
        (const void **)&llama->final_norm,          (const void **)&layer->wq.as.dense.data,
        (const void **)&layer->wk.as.dense.data,    (const void **)&layer->wv.as.dense.data,
        (const void **)&layer->wo.as.dense.data,    (const void **)&layer->w_gate.as.dense.data,
        (const void **)&layer->w_up.as.dense.data,  (const void **)&layer->w_down.as.dense.data,
        (const void **)&llama->embed.as.dense.data, (const void **)&llama->lm_head.as.dense.data};
    const uint32_t before = state_of(s);
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        const void *good = *data[i];
        *data[i] = NULL;
        assert_int_equal(forward(s, NULL), TL_ERR_INVALID);
        *data[i] = good;
    }
    tl_llama_layer *layers = llama->layers;
    llama->layers = NULL;
    assert_int_equal(forward(s, NULL), TL_ERR_INVALID);
    llama->layers = layers;
    const tl_linear dense = layer->wv;
    const tl_qlinear sound = fx_int4(s->fx, dense.as.dense.n_out, dense.as.dense.n_in, 4).as.q4;
    tl_qlinear bad[5] = {sound, sound, sound, sound, sound};
    bad[0].qweight = NULL;
    bad[1].scales = NULL;
    bad[2].group = 0;
    bad[3].qweight_len--;
    bad[4].scales_len--;
    layer->wv.kind = TL_LINEAR_Q4;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        layer->wv.as.q4 = bad[i];
        assert_int_equal(forward(s, NULL), TL_ERR_INVALID);
    }
    layer->wv = dense;
    assert_int_equal(state_of(s), before);
    assert_int_equal(forward(s, NULL), TL_OK);
    scene_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bad_batch_is_refused_and_changes_nothing),
        cmocka_unit_test(test_the_good_batch_runs),
        cmocka_unit_test(test_shared_blocks_may_be_read),
        cmocka_unit_test(test_the_limits_themselves_are_allowed),
        cmocka_unit_test(test_marks_do_not_outlive_a_batch),
        cmocka_unit_test(test_null_and_mismatched_arguments),
        cmocka_unit_test(test_weights_and_scratch_must_be_of_the_config),
        cmocka_unit_test(test_every_field_of_the_config_is_compared),
        cmocka_unit_test(test_hidden_is_not_for_the_bigram),
        cmocka_unit_test(test_scratch_refuses),
        cmocka_unit_test(test_scratch_refuses_impossible_configs),
        cmocka_unit_test(test_scratch_size_follows_its_formula),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_incomplete_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
