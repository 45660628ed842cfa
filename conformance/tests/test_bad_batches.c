/* test_bad_batches.c: forward_refuses_bad_batches: a scheduler's mistake comes back as a status.
 *
 * A scene is a pool with two running sequences, A and B, of six tokens each, and a sound next step
 * for both. Each fault is one way to spoil B, by its batch entry or by what the pool holds. It is
 * tried alone, and as the second of two; after each refusal the pool must be as it was, and the
 * sound step of a scene without the fault must be accepted. The embedding is the first tensor of
 * the file, so that an id past the vocabulary reads other weights. About 80 scenes, 6 million
 * multiply-adds in all. */
#include "model_maker.h"
#include "steps.h"
#include "tests.h"

#include <string.h>

enum {
    B = 4,
    POSITIONS = 40,
    POOL = 32,
    MAX_TOKENS = 24,
    MAX_SEQS = 4,
    TABLE = 12,
    DONE = 6 /* positions of A and of B that are filled in a scene */
};

static const tm_shape shape = {.vocab = 50,
                               .hidden = 16,
                               .inter = 24,
                               .layers = 2,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_dim = 8,
                               .positions = POSITIONS};

/* One sequence, with copies that a fault may change. */
typedef struct actor {
    uint32_t tokens[POSITIONS + 2];
    uint32_t blocks[TABLE];
    step_seq next; /* points into the two above; the sound step takes two tokens */
} actor;

typedef struct scene {
    step_runner r;
    const char *check; /* under which a refusal of something sound is recorded */
    actor a, b;
    uint32_t spare; /* a block that is used, empty, and in no table */
} scene;

typedef struct fault {
    const char *id, *check, *statuses, *what;
    /* Make the scene ready for the fault without being it: done in the sound twin, too. NULL: as
     * it is. */
    void (*prepare)(ol_test *t, scene *s);
    /* The fault. */
    void (*spoil)(ol_test *t, scene *s);
    bool crash_prone; /* only tried where an id of the next tensor was refused */
} fault;

/* ------------------------------------------------------------------ scenes */

/* A call on the pool that must succeed. */
static void on_pool(ol_test *t, scene *s, const char *op, uint32_t id) {
    const json_t *answer =
        ol_call(t, op, "{s:I, s:I}", "pool", (json_int_t)s->r.pool, "id", (json_int_t)id);
    (void)ol_check_ok(t, s->check, answer, op);
}

static void register_block(ol_test *t, scene *s, uint32_t id) {
    const json_t *answer =
        ol_call(t, "kv_register", "{s:I, s:I, s:s}", "pool", (json_int_t)s->r.pool, "id",
                (json_int_t)id, "key", step_key(t, 7, id));
    (void)ol_check_ok(t, s->check, answer, "register of a full block");
}

static bool fill(ol_test *t, scene *s, actor *x, size_t begin, size_t end) {
    return step_piece(t, s->check, &s->r, x->tokens, begin, end, x->blocks, x->next.n_blocks) !=
           NULL;
}

/* Three blocks, six positions filled, and a step of two more tokens to come: they fill the second
 * block. */
static bool enter(ol_test *t, scene *s, actor *x) {
    const uint32_t *blocks = step_alloc(t, s->check, &s->r, 3);
    if (blocks == NULL) {
        return false;
    }
    memcpy(x->blocks, blocks, 3 * sizeof *blocks);
    memcpy(x->tokens, step_prompt(t, s->r.vocab, POSITIONS + 2), sizeof x->tokens);
    x->next = (step_seq){.tokens = x->tokens + DONE,
                         .n_tokens = 2,
                         .start = DONE,
                         .blocks = x->blocks,
                         .n_blocks = 3};
    return fill(t, s, x, 0, DONE);
}

/* A new pool for each scene, since a wrong engine may have spoilt the last one. */
static bool open_scene(ol_test *t, const char *check, scene *s) {
    step_cfg cfg = {
        .n_blocks = POOL, .block_tokens = B, .max_batch_tokens = MAX_TOKENS, .max_seqs = MAX_SEQS};
    memset(s, 0, sizeof *s);
    s->check = check;
    if (!step_load(t, check, "model", &cfg, &s->r)) {
        return false;
    }
    const uint32_t *spare = step_alloc(t, check, &s->r, 1);
    bool ready = spare != NULL && enter(t, s, &s->a) && enter(t, s, &s->b);
    if (ready) {
        s->spare = *spare;
    } else {
        step_free(t, &s->r);
    }
    return ready;
}

/* ------------------------------------------------------------------ before and after */

typedef struct state {
    const char *digest;
    int64_t counts[3];
} state;

static state read_state(ol_test *t, const scene *s) {
    static const char *const names[] = {"free", "cached", "used"};
    const json_t *digest = ol_call(t, "kv_digest", "{s:I}", "pool", (json_int_t)s->r.pool);
    const json_t *stats = ol_call(t, "kv_stats", "{s:I}", "pool", (json_int_t)s->r.pool);
    state now = {.digest = ol_ok(digest) ? ol_res_text(t, digest, "digest") : "refused"};
    for (size_t i = 0; i < 3; i++) {
        now.counts[i] = ol_ok(stats) ? ol_int(t, stats, names[i]) : -1;
    }
    return now;
}

static void check_unchanged(ol_test *t, const state *before, const state *after, const char *what) {
    bool same = strcmp(before->digest, after->digest) == 0 &&
                memcmp(before->counts, after->counts, sizeof before->counts) == 0;
    (void)ol_check(t, "nothing_written", same,
                   "%s: slabs, fills, references or keys are not as they were (digest %s, was %s)",
                   what, after->digest, before->digest);
}

/* ------------------------------------------------------------------ one fault */

/* Refused under the fault's check, alone or as the second of two. */
static bool refuse(ol_test *t, const fault *f, const char *check, bool second) {
    scene s;
    if (!open_scene(t, check, &s)) {
        return false;
    }
    if (f->prepare != NULL) {
        f->prepare(t, &s);
    }
    const scene sound = s;
    const state untouched = read_state(t, &s);
    f->spoil(t, &s);
    step_seq seqs[2] = {s.a.next, s.b.next};
    state before = read_state(t, &s);
    const json_t *answer = second ? step_try(t, &s.r, seqs, 2) : step_try(t, &s.r, &seqs[1], 1);
    state after = read_state(t, &s);
    const char *what = ol_text(t, "%s%s", f->what, second ? ", in the second of two" : "");
    bool refused = ol_check_refused(t, check, answer, f->statuses, NULL, -1, what);
    if (!ol_ok(answer)) {
        check_unchanged(t, &before, &after, what);
        (void)ol_check_named(t, "names_sequence", answer,
                             ol_text(t, OL_TERMS("sequence|seq|seqs %d"), second ? 1 : 0), what);
    }
    /* Where the fault was the batch's and not the pool's, the sound one is taken right after. */
    if (refused && strcmp(untouched.digest, before.digest) == 0) {
        s = sound;
        step_seq again[2] = {s.a.next, s.b.next};
        (void)step_run(t, "sound_twins", &s.r, again, 2);
    }
    step_free(t, &s.r);
    return refused;
}

/* The same scene without the fault. */
static void accept_twin(ol_test *t, const fault *f) {
    scene s;
    if (!open_scene(t, "sound_twins", &s)) {
        return;
    }
    if (f->prepare != NULL) {
        f->prepare(t, &s);
    }
    step_seq seqs[2] = {s.a.next, s.b.next};
    (void)step_run(t, "sound_twins", &s.r, seqs, 2);
    step_free(t, &s.r);
}

/* ------------------------------------------------------------------ faults of the batch entry */

static void no_token(ol_test *t, scene *s) {
    (void)t;
    s->b.next.n_tokens = 0;
}

static void id_is_vocab(ol_test *t, scene *s) {
    (void)t;
    s->b.tokens[DONE + 1] = (uint32_t)s->r.vocab;
}

static void id_past_vocab(ol_test *t, scene *s) {
    (void)t;
    s->b.tokens[DONE] = (uint32_t)s->r.vocab + 3;
}

static void id_largest(ol_test *t, scene *s) {
    (void)t;
    s->b.tokens[DONE] = UINT32_MAX;
}

/* Three tokens go on into the third block. */
static void three_tokens(ol_test *t, scene *s) {
    (void)t;
    s->b.next.n_tokens = 3;
}

static void table_short(ol_test *t, scene *s) {
    (void)t;
    s->b.next.n_blocks = 2;
}

static void table_empty(ol_test *t, scene *s) {
    (void)t;
    s->b.next.n_blocks = 0;
}

static void widen_table(ol_test *t, scene *s, size_t n) {
    const uint32_t *more = step_alloc(t, s->check, &s->r, n - s->b.next.n_blocks);
    if (more != NULL) {
        memcpy(s->b.blocks + s->b.next.n_blocks, more, (n - s->b.next.n_blocks) * sizeof *more);
        s->b.next.n_blocks = n;
    }
}

/* B at its last two positions, its table one block longer than the context. */
static void at_the_end(ol_test *t, scene *s) {
    widen_table(t, s, POSITIONS / B + 1);
    (void)fill(t, s, &s->b, DONE, 22);
    (void)fill(t, s, &s->b, 22, POSITIONS - 2);
    s->b.next.start = POSITIONS - 2;
    s->b.next.tokens = s->b.tokens + POSITIONS - 2;
}

static void start_far(ol_test *t, scene *s) {
    (void)t;
    s->b.next.start = UINT64_C(1) << 40;
}

static void start_wraps_to_zero(ol_test *t, scene *s) {
    (void)t;
    s->b.next.start = UINT64_MAX - 1; /* + 2 is 0 */
}

static void start_wraps_past_zero(ol_test *t, scene *s) {
    (void)t;
    s->b.next.start = UINT64_MAX; /* + 2 is 1 */
}

static void unknown_block(ol_test *t, scene *s) {
    (void)t;
    s->b.blocks[2] = POOL;
}

static void unknown_large(ol_test *t, scene *s) {
    (void)t;
    s->b.blocks[2] = UINT32_C(0x80000000) | s->b.blocks[2];
}

static void long_table(ol_test *t, scene *s) {
    widen_table(t, s, 5);
}

static void unknown_in_tail(ol_test *t, scene *s) {
    (void)t;
    s->b.blocks[4] = POOL;
}

static void listed_twice(ol_test *t, scene *s) {
    (void)t;
    s->b.blocks[2] = s->b.blocks[0];
}

static void listed_twice_in_tail(ol_test *t, scene *s) {
    (void)t;
    s->b.blocks[4] = s->b.blocks[3];
}

static void start_behind_fill(ol_test *t, scene *s) {
    (void)t;
    s->b.next.start = DONE + 1;
}

static void shares_target(ol_test *t, scene *s) {
    (void)t;
    s->b.blocks[1] = s->a.blocks[1];
}

static void lists_target_in_tail(ol_test *t, scene *s) {
    (void)t;
    s->b.blocks[4] = s->a.blocks[1];
}

/* ------------------------------------------------------------------ faults of the pool's state */

static void free_block(ol_test *t, scene *s) {
    on_pool(t, s, "kv_release", s->b.blocks[2]);
}

static void free_in_tail(ol_test *t, scene *s) {
    on_pool(t, s, "kv_release", s->b.blocks[4]);
}

/* A full block behind the new positions, left by an earlier, longer run. */
static void keyed_tail(ol_test *t, scene *s) {
    widen_table(t, s, 5);
    const json_t *answer =
        ol_call(t, "kv_set_fill", "{s:I, s:I, s:i}", "pool", (json_int_t)s->r.pool, "id",
                (json_int_t)s->b.blocks[4], "fill", B);
    (void)ol_check_ok(t, s->check, answer, "set_fill");
    register_block(t, s, s->b.blocks[4]);
}

static void free_prefix(ol_test *t, scene *s) {
    on_pool(t, s, "kv_release", s->b.blocks[0]);
}

static void hole_in_fill(ol_test *t, scene *s) {
    const json_t *answer =
        ol_call(t, "kv_set_fill", "{s:I, s:I, s:i}", "pool", (json_int_t)s->r.pool, "id",
                (json_int_t)s->b.blocks[0], "fill", B - 1);
    (void)ol_check_ok(t, s->check, answer, "set_fill");
}

static void hold_target(ol_test *t, scene *s) {
    on_pool(t, s, "kv_retain", s->b.blocks[1]);
}

static void hold_next_target(ol_test *t, scene *s) {
    on_pool(t, s, "kv_retain", s->b.blocks[2]);
}

/* B goes back into its first block, which is full. */
static void go_back(ol_test *t, scene *s) {
    (void)t;
    s->b.next.start = B - 1;
    s->b.next.tokens = s->b.tokens + B - 1;
}

static void key_target(ol_test *t, scene *s) {
    register_block(t, s, s->b.blocks[0]);
}

static const fault faults[] = {
    {"no-token", "empty_batch", "INVALID", "a sequence without a token", NULL, no_token, false},
    {"id-vocab", "token_ids", "INVALID", "an id equal to the vocabulary", NULL, id_is_vocab, false},
    {"id-past-vocab", "token_ids", "INVALID", "an id past the vocabulary", NULL, id_past_vocab,
     true},
    {"id-largest", "token_ids", "INVALID", "the id 2^32 - 1", NULL, id_largest, true},
    {"table-short", "short_table", "INVALID", "a table that is one block short", three_tokens,
     table_short, false},
    {"table-empty", "short_table", "INVALID", "a table without a block", NULL, table_empty, false},
    {"past-context", "past_context", "INVALID", "a step one past the last position", at_the_end,
     three_tokens, false},
    {"start-far", "past_context", "INVALID", "a start at 2^40", NULL, start_far, false},
    {"start-wraps-0", "past_context", "INVALID", "a start whose end wraps to 0", NULL,
     start_wraps_to_zero, false},
    {"start-wraps-1", "past_context", "INVALID", "a start whose end wraps to 1", NULL,
     start_wraps_past_zero, false},
    {"unknown-block", "unknown_block", "INVALID", "a block id equal to the pool's size", NULL,
     unknown_block, false},
    {"unknown-large", "unknown_block", "INVALID", "a block id with its top bit set", NULL,
     unknown_large, false},
    {"unknown-tail", "unknown_block", "INVALID", "a block id past the pool in the unused tail",
     long_table, unknown_in_tail, false},
    {"twice", "listed_twice", "INVALID", "a block listed twice", NULL, listed_twice, false},
    {"twice-tail", "listed_twice", "INVALID", "a block listed twice in the unused tail", long_table,
     listed_twice_in_tail, false},
    {"free-block", "free_block", "STATE", "a free block in the table", NULL, free_block, false},
    {"free-tail", "free_block", "STATE", "a free block in the unused tail", long_table,
     free_in_tail, false},
    {"cached-tail", "free_block", "STATE", "a cached block in the unused tail", keyed_tail,
     free_in_tail, false},
    {"free-prefix", "free_block", "STATE", "a prefix whose block was released", NULL, free_prefix,
     false},
    {"unfilled", "unfilled_past", "STATE", "a start one behind the fill", NULL, start_behind_fill,
     false},
    {"hole", "unfilled_past", "STATE", "a first block that is not full before the second", NULL,
     hole_in_fill, false},
    {"held-target", "shared_target", "STATE", "a written block with two references", NULL,
     hold_target, false},
    {"held-next", "shared_target", "STATE", "a written block with two references, the second",
     three_tokens, hold_next_target, false},
    {"keyed-target", "registered_target", "STATE", "going back into a block with a key", go_back,
     key_target, false},
};

/* Those that are only wrong beside another sequence; which of the two is named is not said. */
static const fault pair_faults[] = {
    {"shares-target", "shared_target", "STATE", "a written block that both sequences list", NULL,
     shares_target, false},
    {"lists-target", "shared_target", "STATE", "a written block in the other's unused tail",
     long_table, lists_target_in_tail, false},
};

static void part_faults(ol_test *t) {
    bool ids_safe = true;
    for (size_t i = 0; i < TEST_COUNT(faults); i++) {
        const fault *f = &faults[i];
        if ((f->crash_prone && !ids_safe) || !ol_begin(t, f->id)) {
            continue;
        }
        bool refused = refuse(t, f, f->check, false);
        refused = refuse(t, f, "second_bad", true) && refused;
        if (strcmp(f->check, "token_ids") == 0) {
            ids_safe = ids_safe && refused;
        }
        accept_twin(t, f);
    }
}

static void part_pairs(ol_test *t) {
    for (size_t i = 0; i < TEST_COUNT(pair_faults); i++) {
        const fault *f = &pair_faults[i];
        scene s;
        if (!ol_begin(t, f->id) || !open_scene(t, f->check, &s)) {
            continue;
        }
        if (f->prepare != NULL) {
            f->prepare(t, &s);
        }
        f->spoil(t, &s);
        step_seq seqs[2] = {s.a.next, s.b.next};
        state before = read_state(t, &s);
        const json_t *answer = step_try(t, &s.r, seqs, 2);
        state after = read_state(t, &s);
        (void)ol_check_refused(t, f->check, answer, f->statuses, NULL, -1, f->what);
        if (!ol_ok(answer)) {
            check_unchanged(t, &before, &after, f->what);
            (void)ol_check_named(t, "names_sequence", answer, OL_TERMS("sequence|seq|seqs"),
                                 f->what);
        }
        step_free(t, &s.r);
        accept_twin(t, f);
    }
}

/* ------------------------------------------------------------------ limits and sharing */

/* The answer must be a refusal that leaves the pool as it was. */
static void refuse_rows(ol_test *t, scene *s, const char *check, const step_seq *seqs, size_t n,
                        size_t rows_cap, const char *status, const char *what) {
    state before = read_state(t, s);
    const json_t *answer = step_try_rows(t, &s->r, seqs, n, rows_cap);
    state after = read_state(t, s);
    (void)ol_check_refused(t, check, answer, status, NULL, -1, what);
    if (!ol_ok(answer)) {
        check_unchanged(t, &before, &after, what);
    }
}

static void refuse_here(ol_test *t, scene *s, const char *check, const step_seq *seqs, size_t n,
                        const char *status, const char *what) {
    refuse_rows(t, s, check, seqs, n, n, status, what);
}

static void part_empty(ol_test *t) {
    scene s;
    if (ol_begin(t, "empty-batch") && open_scene(t, "empty_batch", &s)) {
        refuse_here(t, &s, "empty_batch", NULL, 0, "INVALID", "a batch without a sequence");
        step_free(t, &s.r);
    }
}

static void part_tokens(ol_test *t) {
    scene s;
    if (!ol_begin(t, "too-many-tokens") || !open_scene(t, "too_many", &s)) {
        return;
    }
    widen_table(t, &s, POSITIONS / B);
    step_seq seqs[2] = {s.a.next, s.b.next};
    seqs[1].n_tokens = MAX_TOKENS + 1;
    refuse_here(t, &s, "too_many", &seqs[1], 1, "CAPACITY", "one token more than a step takes");
    seqs[1].n_tokens = MAX_TOKENS - 1;
    refuse_here(t, &s, "too_many", seqs, 2, "CAPACITY",
                "one token more than a step takes, of two sequences");
    seqs[1].n_tokens = MAX_TOKENS - 2;
    (void)step_run(t, "sound_twins", &s.r, seqs, 2);
    step_free(t, &s.r);
}

static void part_seqs(ol_test *t) {
    scene s;
    if (!ol_begin(t, "too-many-sequences") || !open_scene(t, "too_many", &s)) {
        return;
    }
    step_seq seqs[MAX_SEQS + 1];
    const uint32_t *blocks = step_alloc(t, "too_many", &s.r, MAX_SEQS + 1);
    for (size_t i = 0; i < MAX_SEQS + 1 && blocks != NULL; i++) {
        seqs[i] =
            (step_seq){.tokens = s.a.tokens, .n_tokens = 1, .blocks = blocks + i, .n_blocks = 1};
    }
    if (blocks != NULL) {
        refuse_here(t, &s, "too_many", seqs, MAX_SEQS + 1, "CAPACITY",
                    "one sequence more than a step takes");
        (void)step_run(t, "sound_twins", &s.r, seqs, MAX_SEQS);
    }
    step_free(t, &s.r);
}

static void part_rows(ol_test *t) {
    scene s;
    if (ol_begin(t, "no-room-for-rows") && open_scene(t, "too_many", &s)) {
        step_seq seqs[2] = {s.a.next, s.b.next};
        refuse_rows(t, &s, "too_many", seqs, 2, 1, "CAPACITY", "room for one row of two");
        (void)step_run(t, "sound_twins", &s.r, seqs, 2);
        step_free(t, &s.r);
    }
}

/* A prefix may be shared as long as nobody writes it: A and B read the first block of A. */
static void part_shared_prefix(ol_test *t) {
    scene s;
    if (!ol_begin(t, "shared-prefix") || !open_scene(t, "shared_target", &s)) {
        return;
    }
    on_pool(t, &s, "kv_retain", s.a.blocks[0]);
    s.b.blocks[0] = s.a.blocks[0];
    step_seq seqs[2] = {s.a.next, s.b.next};
    (void)step_run(t, "shared_target", &s.r, seqs, 2);
    register_block(t, &s, s.a.blocks[0]);
    seqs[0].start = seqs[1].start = DONE + 2;
    (void)step_run(t, "registered_target", &s.r, seqs, 2);
    step_free(t, &s.r);
}

void test_forward_refuses_bad_batches(ol_test *t) {
    tm_put(t, tm_draw(t, &shape, "F32"), "model");
    part_empty(t);
    part_faults(t);
    part_pairs(t);
    part_tokens(t);
    part_seqs(t);
    part_rows(t);
    part_shared_prefix(t);
    test_c_arguments(t, "forward");
}
