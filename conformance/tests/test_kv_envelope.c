/* test_kv_envelope.c: envelopes that must be refused, byte by byte and rule by rule.
 *
 * Property: any changed byte, any cut and any byte more is refused; behind right checksums each
 * rule of the header and of the records is checked, in the page's order; and a refused import
 * leaves the pool as it was. The pool that is asked has used, cached and free blocks, so that there
 * is something to spoil.
 *
 * Source: conformance/spec/kv-block.md, clause import. */
#include "test_kv_move.h"

#include <string.h>

static const kv_shape shape = {.n_blocks = 6,
                               .block_tokens = 2,
                               .n_layers = 2,
                               .n_kv_heads = 1,
                               .head_dim = 2,
                               .model_tag = 0x5100000051u};

enum { SLABS = 16 }; /* values of one block: 2 layers, K and V, 4 elements each */

static const uint16_t values[SLABS] = {0x3c00, 0x4000, 0xbc00, 0x7e00, 0x0001, 0xffff,
                                       0x1234, 0x5678, 0x9abc, 0x2def, 0x3555, 0x6aaa,
                                       0x0400, 0x8400, 0x7bff, 0xfbff};

/* Record 0 is full and keyed, record 1 is full, record 2 has one position of two, record 3 none. */
enum { N_RECORDS = 4 };
static const env_block records[N_RECORDS] = {
    {2, 40, values}, {2, KV_NO_KEY, values}, {1, KV_NO_KEY, values}, {0, KV_NO_KEY, values}};

/* ------------------------------------------------------------------ the pool that is asked */

/* A pool with one used block under key 1, two cached ones under keys 2 (older) and 3, and three
 * free ones. */
typedef struct bystander {
    kv_script k;
    uint32_t used, older, newer;
    uint64_t digest;
} bystander;

static bystander make_bystander(ol_test *t, const char *check) {
    bystander b = {.k = kv_open(t, check, shape)};
    uint32_t ids[3];
    kv_alloc(&b.k, ids, 3);
    b.used = ids[0];
    b.older = ids[2];
    b.newer = ids[1];
    for (size_t i = 0; i < 3; i++) {
        for (uint32_t j = 0; j < 4; j++) {
            kv_write(&b.k, ids[i], j / 2, j % 2 == 0 ? "k" : "v", values + 4 * j, 4);
        }
    }
    kv_fill_and_register(&b.k, b.used, 1);
    kv_cache(&b.k, b.older, 2);
    kv_cache(&b.k, b.newer, 3);
    b.digest = kv_digest(&b.k);
    return b;
}

/* After everything: counts, index, the order of eviction, and slabs are as they were. */
static void check_stands(bystander *b) {
    kv_script *k = &b->k;
    k->check = "refusal_leaves_pool";
    kv_digest_is(k, b->digest, "a refused import");
    kv_stats_are(k, 3, 2, 1, "after refused imports");
    kv_finds(k, 1, b->used);
    kv_do(k, "kv_release", b->used);
    uint32_t ids[3];
    kv_alloc(k, ids, 3);
    uint32_t order[2] = {kv_take(k), kv_take(k)};
    const uint32_t want[2] = {b->older, b->newer};
    if (!k->broken) {
        ol_check_u32s(k->t, k->check, order, 2, want, 2,
                      "blocks in the order of eviction, after refused imports");
    }
    kv_close(k);
}

/* A list of imports into a bystander, each followed by a digest. */
typedef struct import_list {
    bystander *b;
    ol_list *list;
    const char **what; /* [n] */
    size_t n, cap;
} import_list;

static import_list new_list(bystander *b, size_t cap) {
    import_list l = {.b = b, .list = ol_list_new(b->k.t), .cap = cap};
    l.what = ol_alloc(b->k.t, cap * sizeof *l.what);
    return l;
}

static void add_import(import_list *l, const envelope *e, const char *what) {
    ol_list_add(l->list, "kv_import", "{s:I, s:o}", "pool", (json_int_t)l->b->k.pool, "bytes",
                ol_u8(e->bytes, e->n_bytes));
    ol_list_add(l->list, "kv_digest", "{s:I}", "pool", (json_int_t)l->b->k.pool);
    l->what[l->n++] = what;
}

/* All of them must have been refused as FORMAT, and none may have changed the pool. */
static void run_list(import_list *l, const char *check) {
    ol_test *t = l->b->k.t;
    const json_t **answers = ol_list_run(l->list);
    for (size_t i = 0; i < l->n; i++) {
        const json_t *digest = answers[2 * i + 1];
        ol_check_refused(t, check, answers[2 * i], "FORMAT", NULL, -1, l->what[i]);
        if (ol_check_ok(t, "refusal_leaves_pool", digest, "digest")) {
            ol_check(t, "refusal_leaves_pool", ol_res_u64(t, digest, "digest") == l->b->digest,
                     "the pool has changed: %s", l->what[i]);
        }
    }
    check_stands(l->b);
}

/* ------------------------------------------------------------------ flips, cuts, more */

void test_kv_envelope_flips(ol_test *t) {
    envelope good = env_build(t, &shape, records, 3);
    bystander b = make_bystander(t, "flipped_byte");
    if (b.k.broken) {
        return;
    }
    import_list l = new_list(&b, 2 * good.n_bytes);
    for (size_t i = 0; i < good.n_bytes; i++) {
        const uint8_t masks[] = {(uint8_t)(1u << (i % 8)), (uint8_t)(1 + ol_rand_below(t, 255))};
        for (size_t j = 0; j < 2; j++) {
            envelope e = env_copy(t, &good, good.n_bytes);
            e.bytes[i] ^= masks[j];
            add_import(&l, &e, ol_text(t, "byte %zu changed by %02x", i, (unsigned)masks[j]));
        }
    }
    run_list(&l, "flipped_byte");
    /* The twin: unchanged, it is accepted. */
    kv_script k = kv_open(t, "flipped_byte", shape);
    uint32_t ids[3];
    env_take(&k, &good, ids, 3);
    kv_close(&k);
}

void test_kv_envelope_cuts(ol_test *t) {
    envelope good = env_build(t, &shape, records, 3);
    bystander b = make_bystander(t, "cut");
    bystander b2 = make_bystander(t, "appended_byte");
    if (b.k.broken || b2.k.broken) {
        return;
    }
    import_list l = new_list(&b, good.n_bytes);
    for (size_t n = 0; n < good.n_bytes; n++) {
        envelope e = env_copy(t, &good, n);
        add_import(&l, &e, ol_text(t, "cut to %zu of %zu bytes", n, good.n_bytes));
    }
    run_list(&l, "cut");
    static const uint8_t more[] = {0, 1, 0x54, 0xff};
    l = new_list(&b2, TEST_COUNT(more) + 2);
    for (size_t i = 0; i < TEST_COUNT(more); i++) {
        envelope e = env_copy(t, &good, good.n_bytes + 1);
        e.bytes[good.n_bytes] = more[i];
        add_import(&l, &e, ol_text(t, "a byte %02x more", (unsigned)more[i]));
    }
    /* The payload's checksum taken over the longer payload, and an empty envelope with a byte
     * behind it. */
    envelope e = env_copy(t, &good, good.n_bytes + 1);
    env_seal(&e);
    add_import(&l, &e, "a byte more, with the checksum of the longer payload");
    envelope none = env_build(t, &shape, NULL, 0);
    e = env_copy(t, &none, none.n_bytes + 1);
    add_import(&l, &e, "an envelope of no block and a byte more");
    run_list(&l, "appended_byte");
    kv_script k = kv_open(t, "cut", shape);
    uint32_t ids[3];
    env_take(&k, &good, ids, 3);
    k.check = "appended_byte";
    env_take(&k, &good, ids, 3);
    kv_close(&k);
}

/* ------------------------------------------------------------------ one fault, rightly sealed */

typedef struct fault {
    const char *check;
    const char *what;
    const char *status;
    size_t at; /* where the u32 is put */
    uint32_t value;
    size_t blame, n_blame; /* bytes in which the offset must lie; n_blame 0: not looked at */
} fault;

#define RECORD_BYTES (ENV_SLABS + SLABS * 2)
#define RECORD(i) (ENV_HEADER + (i) * (size_t)RECORD_BYTES)
#define ELEMENT(i, at) (RECORD(i) + ENV_SLABS + (size_t)(at)*2)

/* clang-format off */
static const fault faults[] = {
    {"header_mismatch", "version 0", "UNSUPPORTED", ENV_VERSION, 0, 0, 0},
    {"header_mismatch", "version 2", "UNSUPPORTED", ENV_VERSION, 2, 0, 0},
    {"header_mismatch", "version 2^16 + 1", "UNSUPPORTED", ENV_VERSION, 0x10001, 0, 0},
    {"header_mismatch", "dtype 0", "UNSUPPORTED", ENV_DTYPE, 0, 0, 0},
    {"header_mismatch", "dtype 2", "UNSUPPORTED", ENV_DTYPE, 2, 0, 0},
    {"header_mismatch", "block_tokens 1", "UNSUPPORTED", ENV_BLOCK_TOKENS, 1, 0, 0},
    {"header_mismatch", "block_tokens 0", "UNSUPPORTED", ENV_BLOCK_TOKENS, 0, 0, 0},
    {"header_mismatch", "block_tokens 3", "UNSUPPORTED", ENV_BLOCK_TOKENS, 3, 0, 0},
    {"header_mismatch", "n_layers 1", "UNSUPPORTED", ENV_N_LAYERS, 1, 0, 0},
    {"header_mismatch", "n_layers 3", "UNSUPPORTED", ENV_N_LAYERS, 3, 0, 0},
    {"header_mismatch", "n_kv_heads 0", "UNSUPPORTED", ENV_N_KV_HEADS, 0, 0, 0},
    {"header_mismatch", "n_kv_heads 2", "UNSUPPORTED", ENV_N_KV_HEADS, 2, 0, 0},
    {"header_mismatch", "head_dim 1", "UNSUPPORTED", ENV_HEAD_DIM, 1, 0, 0},
    {"header_mismatch", "head_dim 4", "UNSUPPORTED", ENV_HEAD_DIM, 4, 0, 0},
    {"header_mismatch", "a tag that differs below", "UNSUPPORTED", ENV_MODEL_TAG, 0x52, 0, 0},
    {"header_mismatch", "a tag that differs above", "UNSUPPORTED", ENV_MODEL_TAG + 4, 0x52, 0, 0},
    {"header_mismatch", "a tag that is 0 below", "UNSUPPORTED", ENV_MODEL_TAG, 0, 0, 0},
    {"header_mismatch", "a tag that is 0 above", "UNSUPPORTED", ENV_MODEL_TAG + 4, 0, 0, 0},
    {"header_format", "header_bytes 0", "FORMAT", ENV_HEADER_BYTES, 0, ENV_HEADER_BYTES, 4},
    {"header_format", "header_bytes 60", "FORMAT", ENV_HEADER_BYTES, 60, ENV_HEADER_BYTES, 4},
    {"header_format", "header_bytes 65", "FORMAT", ENV_HEADER_BYTES, 65, ENV_HEADER_BYTES, 4},
    {"header_format", "flags 1", "FORMAT", ENV_FLAGS, 1, ENV_FLAGS, 4},
    {"header_format", "flags 2^31", "FORMAT", ENV_FLAGS, 0x80000000u, ENV_FLAGS, 4},
    {"header_format", "payload_bytes one short", "FORMAT",
     ENV_PAYLOAD_BYTES, N_RECORDS * RECORD_BYTES - 1, 0, 0},
    {"header_format", "payload_bytes one more", "FORMAT",
     ENV_PAYLOAD_BYTES, N_RECORDS * RECORD_BYTES + 1, 0, 0},
    {"header_format", "payload_bytes 2^63 more", "FORMAT",
     ENV_PAYLOAD_BYTES + 4, 0x80000000u, 0, 0},
    {"header_format", "n_blocks one short", "FORMAT", ENV_N_BLOCKS, N_RECORDS - 1, 0, 0},
    {"header_format", "n_blocks one more", "FORMAT", ENV_N_BLOCKS, N_RECORDS + 1, 0, 0},
    {"header_format", "n_blocks 2^32 - 1", "FORMAT", ENV_N_BLOCKS, UINT32_MAX, 0, 0},
    {"record_format", "fill 3 of 2", "FORMAT", RECORD(1), 3, RECORD(1), 4},
    {"record_format", "fill 2^31", "FORMAT", RECORD(2), 0x80000000u, RECORD(2), 4},
    {"record_format", "fill 2^32 - 1", "FORMAT", RECORD(3), UINT32_MAX, RECORD(3), 4},
    {"record_format", "has_key 2", "FORMAT",
     RECORD(0) + ENV_HAS_KEY, 2, RECORD(0) + ENV_HAS_KEY, 4},
    {"record_format", "has_key 257", "FORMAT",
     RECORD(1) + ENV_HAS_KEY, 257, RECORD(1) + ENV_HAS_KEY, 4},
    {"record_format", "a key on a block with one position of two", "FORMAT",
     RECORD(2) + ENV_HAS_KEY, 1, RECORD(2), ENV_SLABS},
    {"record_format", "a key on an empty block", "FORMAT",
     RECORD(3) + ENV_HAS_KEY, 1, RECORD(3), ENV_SLABS},
    {"record_format", "key bytes, and has_key 0", "FORMAT",
     RECORD(0) + ENV_HAS_KEY, 0, RECORD(0) + ENV_HAS_KEY, 20},
    {"record_format", "one key byte, the last, and has_key 0", "FORMAT",
     RECORD(1) + ENV_KEY + 12, 0x01000000u, RECORD(1) + ENV_HAS_KEY, 20},
    {"record_format", "a value in the first K slab past the fill", "FORMAT",
     ELEMENT(2, 2), 1, ELEMENT(2, 2), 2},
    {"record_format", "a -0 in the last V slab past the fill", "FORMAT",
     ELEMENT(2, 14), 0x80000000u, ELEMENT(2, 15), 2},
    {"record_format", "a value in an empty block", "FORMAT",
     ELEMENT(3, 4), 0x3c00, ELEMENT(3, 4), 2},
    {"record_format", "a low byte alone in an empty block", "FORMAT",
     ELEMENT(3, 8), 0x00010000u, ELEMENT(3, 9), 2},
};
/* clang-format on */

/* The one value of a header field that the pool takes; 0: it depends on other fields. */
static uint32_t allowed_at(size_t at) {
    const uint32_t allowed[][2] = {
        {ENV_VERSION, 1},
        {ENV_HEADER_BYTES, ENV_HEADER},
        {ENV_DTYPE, 1},
        {ENV_BLOCK_TOKENS, shape.block_tokens},
        {ENV_N_LAYERS, shape.n_layers},
        {ENV_N_KV_HEADS, shape.n_kv_heads},
        {ENV_HEAD_DIM, shape.head_dim},
    };
    for (size_t i = 0; i < TEST_COUNT(allowed); i++) {
        if (at == allowed[i][0]) {
            return allowed[i][1];
        }
    }
    return 0;
}

/* What a refusal must name: the field, with which `what` begins where it is the only one at fault,
 * and mostly what it holds and should hold. */
static const char *terms_of(ol_test *t, const fault *f) {
    const int n_name = (int)strcspn(f->what, " ");
    const bool in_record = strcmp(f->check, "record_format") == 0;
    if (in_record && f->at == RECORD((f->at - ENV_HEADER) / RECORD_BYTES)) {
        return ol_text(t, OL_TERMS("fill|n_filled %u %u"), (unsigned)f->value,
                       (unsigned)shape.block_tokens);
    }
    if (in_record && f->value > 1 && strncmp(f->what, "has_key", (size_t)n_name) == 0) {
        return ol_text(t, OL_TERMS("has_key %u"), (unsigned)f->value);
    }
    if (in_record) {
        return strstr(f->what, "key") != NULL ? OL_TERMS("key|has_key") : OL_TERMS("fill|n_filled");
    }
    if (f->at == ENV_N_BLOCKS) {
        return OL_TERMS("n_blocks|blocks|payload_bytes");
    }
    if (f->at == ENV_MODEL_TAG || f->at == ENV_MODEL_TAG + 4) {
        return OL_TERMS("model_tag");
    }
    if (f->at == ENV_PAYLOAD_BYTES || f->at == ENV_PAYLOAD_BYTES + 4) {
        const uint64_t whole = N_RECORDS * RECORD_BYTES;
        const uint64_t found = f->at == ENV_PAYLOAD_BYTES ? f->value : whole + (UINT64_C(1) << 63);
        return ol_text(t, OL_TERMS("payload_bytes %llu"), (unsigned long long)found);
    }
    return ol_text(t, OL_TERMS("%.*s %u %u"), n_name, f->what, (unsigned)f->value,
                   (unsigned)allowed_at(f->at));
}

static void check_blame(ol_test *t, const fault *f, const json_t *answer) {
    const json_t *offset = json_object_get(answer, "offset");
    json_int_t at = json_integer_value(offset);
    size_t end = f->blame + f->n_blame;
    bool inside = json_is_integer(offset) && at >= (json_int_t)f->blame && at < (json_int_t)end;
    if (json_is_integer(offset)) {
        ol_check(t, "fault_offset", inside, "%s: the offset is %lld, the field is at %zu to %zu",
                 f->what, (long long)at, f->blame, end - 1);
    } else {
        ol_check(t, "fault_offset", false, "%s: no offset, the field is at %zu", f->what, f->blame);
    }
}

void test_kv_envelope_faults(ol_test *t) {
    envelope good = env_build(t, &shape, records, N_RECORDS);
    static const char *const checks[] = {"header_mismatch", "header_format", "record_format"};
    for (size_t c = 0; c < TEST_COUNT(checks); c++) {
        bystander b = make_bystander(t, checks[c]);
        for (size_t i = 0; !b.k.broken && i < TEST_COUNT(faults); i++) {
            const fault *f = &faults[i];
            if (strcmp(f->check, checks[c]) != 0) {
                continue;
            }
            envelope e = env_copy(t, &good, good.n_bytes);
            env_put_u32(&e, f->at, f->value);
            env_seal(&e);
            const json_t *answer = env_import(&b.k, &e, -1);
            bool refused =
                ol_check_refused(t, f->check, answer, f->status, terms_of(t, f), -1, f->what);
            if (f->n_blame > 0 && refused) {
                check_blame(t, f, answer);
            }
            b.k.check = "refusal_leaves_pool";
            kv_digest_is(&b.k, b.digest, f->what);
            b.k.check = f->check;
        }
        if (!b.k.broken) {
            check_stands(&b);
        }
        kv_script k = kv_open(t, checks[c], shape);
        uint32_t ids[N_RECORDS];
        env_take(&k, &good, ids, N_RECORDS);
        kv_close(&k);
    }
    /* Magic and checksums are the fault here, so these are not sealed. 0 is a checksum like any. */
    bystander b = make_bystander(t, "fault_offset");
    static const fault unsealed[] = {
        {"", "another magic", "FORMAT", ENV_MAGIC, 0x564b4c55u, ENV_MAGIC, 4},
        {"", "a wrong header checksum", "FORMAT", ENV_HEADER_CRC, 0x12345678u, ENV_HEADER_CRC, 4},
        {"", "a header checksum of 0", "FORMAT", ENV_HEADER_CRC, 0, ENV_HEADER_CRC, 4},
        {"", "a payload checksum of 0", "FORMAT", ENV_PAYLOAD_CRC, 0, ENV_PAYLOAD_CRC, 4}};
    /* As bytes, as letters or as a number; a checksum is hexadecimal, with 0x or without. */
    static const char *const named[] = {
        OL_TERMS("magic|TLKV 55|0x55|554c4b56|ULKV|0x564b4c55"),
        OL_TERMS("checksum|CRC|crc|crc32|header_crc|header_crc32 12345678|0x12345678"), NULL, NULL};
    for (size_t i = 0; !b.k.broken && i < TEST_COUNT(unsealed); i++) {
        envelope e = env_copy(t, &good, good.n_bytes);
        env_put_u32(&e, unsealed[i].at, unsealed[i].value);
        if (unsealed[i].at == ENV_PAYLOAD_CRC) {
            env_seal_header(&e);
        }
        const json_t *answer = env_import(&b.k, &e, -1);
        if (ol_check_refused(t, "fault_offset", answer, "FORMAT", named[i], -1, unsealed[i].what)) {
            check_blame(t, &unsealed[i], answer);
        }
    }
    kv_close(&b.k);
}

/* ------------------------------------------------------------------ two faults */

typedef struct two_faults {
    const char *what;
    const char *status;
    size_t at[2];
    uint32_t value[2];
    enum { SEAL_ALL, SEAL_HEADER, SEAL_NONE } seal;
    int64_t cap; /* -1: as many as fit */
} two_faults;

/* clang-format off */
static const two_faults pairs[] = {
    {"magic before version", "FORMAT", {ENV_MAGIC, ENV_VERSION}, {0, 2}, SEAL_ALL, -1},
    {"header checksum before version", "FORMAT", {ENV_VERSION, ENV_VERSION}, {2, 2}, SEAL_NONE, -1},
    {"version before header_bytes", "UNSUPPORTED",
     {ENV_VERSION, ENV_HEADER_BYTES}, {2, 60}, SEAL_ALL, -1},
    {"version before flags", "UNSUPPORTED", {ENV_FLAGS, ENV_VERSION}, {1, 2}, SEAL_ALL, -1},
    {"header_bytes before dtype", "FORMAT", {ENV_DTYPE, ENV_HEADER_BYTES}, {2, 60}, SEAL_ALL, -1},
    {"flags before dtype", "FORMAT", {ENV_DTYPE, ENV_FLAGS}, {2, 1}, SEAL_ALL, -1},
    {"flags before a dimension", "FORMAT", {ENV_N_LAYERS, ENV_FLAGS}, {3, 1}, SEAL_ALL, -1},
    {"flags before model_tag", "FORMAT", {ENV_MODEL_TAG, ENV_FLAGS}, {9, 1}, SEAL_ALL, -1},
    {"a dimension before payload_bytes", "UNSUPPORTED",
     {ENV_PAYLOAD_BYTES, ENV_N_LAYERS}, {8, 3}, SEAL_ALL, -1},
    {"model_tag before payload_bytes", "UNSUPPORTED",
     {ENV_PAYLOAD_BYTES, ENV_MODEL_TAG}, {8, 9}, SEAL_ALL, -1},
    {"model_tag before the payload checksum", "UNSUPPORTED",
     {ENV_PAYLOAD_CRC, ENV_MODEL_TAG}, {1, 9}, SEAL_HEADER, -1},
    {"dtype before a record", "UNSUPPORTED", {RECORD(1), ENV_DTYPE}, {3, 2}, SEAL_ALL, -1},
    {"payload checksum before room for ids", "FORMAT",
     {ENV_PAYLOAD_CRC, ENV_PAYLOAD_CRC}, {1, 1}, SEAL_HEADER, 1},
    {"fill before room for ids", "FORMAT", {RECORD(1), RECORD(1)}, {3, 3}, SEAL_ALL, 1},
    {"a stale value before room for ids", "FORMAT", {ELEMENT(3, 0), ELEMENT(3, 0)}, {1, 1},
     SEAL_ALL, 0},
    {"payload_bytes before room for ids", "FORMAT",
     {ENV_N_BLOCKS, ENV_N_BLOCKS}, {3, 3}, SEAL_ALL, 1},
};
/* clang-format on */

void test_kv_envelope_order(ol_test *t) {
    envelope good = env_build(t, &shape, records, N_RECORDS);
    bystander b = make_bystander(t, "check_order");
    for (size_t i = 0; !b.k.broken && i < TEST_COUNT(pairs); i++) {
        const two_faults *f = &pairs[i];
        envelope e = env_copy(t, &good, good.n_bytes);
        env_put_u32(&e, f->at[0], f->value[0]);
        env_put_u32(&e, f->at[1], f->value[1]);
        if (f->seal == SEAL_ALL) {
            env_seal(&e);
        } else if (f->seal == SEAL_HEADER) {
            env_seal_header(&e);
        }
        const json_t *answer = env_import(&b.k, &e, f->cap);
        ol_check_refused(t, "check_order", answer, f->status, NULL, -1, f->what);
    }
    /* More blocks than there is room for, and a fault in the last of them: the fault comes
     * first. */
    env_block many[8];
    for (size_t i = 0; i < TEST_COUNT(many); i++) {
        many[i] = records[i % N_RECORDS];
        many[i].key = KV_NO_KEY;
    }
    envelope e = env_build(t, &shape, many, TEST_COUNT(many));
    env_put_u32(&e, RECORD(TEST_COUNT(many) - 1), 3);
    env_seal(&e);
    const json_t *answer = env_import(&b.k, &e, -1);
    if (answer != NULL) {
        ol_check_refused(t, "check_order", answer, "FORMAT", NULL, -1,
                         "fill before room for blocks");
    }
    if (!b.k.broken) {
        check_stands(&b);
    }
}

/* The first records are good and there is room for all: an import that copies while it checks
 * leaves them behind. It asks for more than the free blocks, too, so that one which allocates
 * before it checks has evicted. */
void test_kv_envelope_second_record(ol_test *t) {
    bystander b = make_bystander(t, "refusal_leaves_pool");
    if (b.k.broken) {
        return;
    }
    envelope e = env_build(t, &shape, records, N_RECORDS);
    env_put_u32(&e, RECORD(3), 3);
    env_seal(&e);
    ol_check_refused(t, "record_format", env_import(&b.k, &e, -1), "FORMAT", NULL, -1,
                     "the last of four records is bad");
    env_block many[6];
    for (size_t i = 0; i < TEST_COUNT(many); i++) {
        many[i] = (env_block){2, (int)i + 60, values};
    }
    e = env_build(t, &shape, many, TEST_COUNT(many));
    ol_check_refused(t, "capacity", env_import(&b.k, &e, -1), "CAPACITY", NULL, -1,
                     "6 blocks into 3 free and 2 cached");
    e = env_build(t, &shape, many, 5);
    ol_check_refused(t, "capacity", env_import(&b.k, &e, 4), "CAPACITY", NULL, -1,
                     "5 blocks, room for 4 ids");
    check_stands(&b);
}
