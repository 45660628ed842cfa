/* test_kv_golden.c: the golden envelopes: exported, imported, refused.
 *
 * Source: conformance/spec/vectors.md, suite kv; kv-block.md. */
#include "test_kv_move.h"

#include <string.h>

/* One block of a case. */
typedef struct golden_block {
    uint32_t fill;
    const char *key; /* 32 hex digits, or NULL */
    const json_t *layers;
} golden_block;

static kv_shape case_shape(ol_test *t, const ol_case *c) {
    const json_t *config = ol_get_object(t, c, c->body, "config");
    kv_shape shape = {.n_blocks = (uint32_t)ol_get_count(t, c, config, "n_blocks"),
                      .block_tokens = (uint32_t)ol_get_count(t, c, config, "block_tokens"),
                      .n_layers = (uint32_t)ol_get_count(t, c, config, "n_layers"),
                      .n_kv_heads = (uint32_t)ol_get_count(t, c, config, "n_kv_heads"),
                      .head_dim = (uint32_t)ol_get_count(t, c, config, "head_dim"),
                      .cache_off = !json_is_true(json_object_get(config, "prefix_cache")),
                      .model_tag = ol_get_u64(t, c, c->body, "model_tag")};
    return shape;
}

static envelope case_envelope(ol_test *t, const ol_case *c) {
    envelope e = {0};
    e.bytes = ol_get_bytes(t, c, c->body, "envelope", &e.n_bytes);
    return e;
}

static golden_block case_block(ol_test *t, const ol_case *c, const json_t *block) {
    golden_block b = {.fill = (uint32_t)ol_get_count(t, c, block, "fill"),
                      .layers = json_object_get(block, "layers")};
    b.key = json_string_value(json_object_get(block, "key"));
    return b;
}

/* ------------------------------------------------------------------ what came in */

static void check_state(kv_script *k, uint32_t id, const golden_block *b) {
    if (k->broken) {
        return;
    }
    const char *none = "00000000000000000000000000000000";
    const json_t *info =
        ol_call(k->t, "kv_info", "{s:I, s:I}", "pool", (json_int_t)k->pool, "id", (json_int_t)id);
    if (!ol_check_ok(k->t, k->check, info, "block_info")) {
        return;
    }
    ol_check_int(k->t, k->check, ol_int(k->t, info, "refs"), 1, "references of an imported block");
    ol_check_int(k->t, k->check, ol_int(k->t, info, "fill"), b->fill, "fill of an imported block");
    bool registered = json_is_true(json_object_get(info, "registered"));
    ol_check_int(k->t, k->check, registered ? 1 : 0, b->key != NULL ? 1 : 0,
                 "is the imported block registered");
    const char *got = ol_res_text(k->t, info, "key");
    const char *want = b->key == NULL ? none : b->key;
    ol_check(k->t, k->check, strcmp(got, want) == 0, "key of an imported block is %s, %s is right",
             got, want);
}

static void check_values(kv_script *k, const ol_case *c, uint32_t id, const golden_block *b) {
    size_t n = kv_slab_len(&k->shape);
    for (uint32_t i = 0; !k->broken && i < 2 * k->shape.n_layers; i++) {
        const char *side = i % 2 == 0 ? "k" : "v";
        size_t n_want = 0;
        uint16_t *want = ol_get_u16s(k->t, c, json_array_get(b->layers, i / 2), side, &n_want);
        for (size_t at = 0; at < n_want; at++) {
            want[at] = env_is_stale(&k->shape, at, b->fill) ? 0 : want[at];
        }
        const uint16_t *got = kv_read(k, id, i / 2, side);
        if (got != NULL) {
            ol_check_u16s(k->t, k->check, got, n, want, n_want,
                          ol_text(k->t, "%s slab of layer %u", side, (unsigned)(i / 2)));
        }
    }
}

static void register_key(kv_script *k, uint32_t id, const char *key) {
    if (!k->broken) {
        const json_t *answer = ol_call(k->t, "kv_register", "{s:I, s:I, s:s}", "pool",
                                       (json_int_t)k->pool, "id", (json_int_t)id, "key", key);
        k->broken = !ol_check_ok(k->t, k->check, answer, "register");
    }
}

/* Blocks that are in the cache before the import, released in this order. */
static void put_cached(kv_script *k, const json_t *keys) {
    size_t n = json_array_size(keys);
    uint32_t *ids = ol_alloc(k->t, (n + 1) * sizeof *ids);
    kv_alloc(k, ids, n);
    for (size_t i = 0; i < n; i++) {
        kv_set_fill(k, ids[i], k->shape.block_tokens);
        register_key(k, ids[i], json_string_value(json_array_get(keys, i)));
    }
    for (size_t i = 0; i < n; i++) {
        kv_do(k, "kv_release", ids[i]);
    }
}

/* Each key that came in finds its block. */
static void check_found(kv_script *k, uint32_t id, const golden_block *b) {
    if (k->broken || b->key == NULL) {
        return;
    }
    const json_t *answer =
        ol_call(k->t, "kv_lookup", "{s:I, s:s}", "pool", (json_int_t)k->pool, "key", b->key);
    if (ol_check_ok(k->t, k->check, answer, "look-up of an imported key")) {
        ol_check_int(k->t, k->check, ol_int(k->t, answer, "id"), id, "block that the key finds");
    }
}

/* Import the case's envelope; `blocks` may be missing (of a twin that is only to be accepted). */
static void check_import(ol_test *t, const ol_case *c, const char *check, bool look) {
    kv_shape shape = case_shape(t, c);
    envelope e = case_envelope(t, c);
    kv_script k = kv_open(t, check, shape);
    const json_t *blocks = json_object_get(c->body, "blocks");
    size_t n = e.n_bytes < ENV_HEADER ? 0 : env_u32(e.bytes, ENV_N_BLOCKS);
    uint32_t *ids = ol_alloc(t, (n + 1) * sizeof *ids);
    put_cached(&k, json_object_get(c->body, "cached"));
    env_take(&k, &e, ids, n);
    for (size_t i = 0; look && !k.broken && i < json_array_size(blocks); i++) {
        golden_block b = case_block(t, c, json_array_get(blocks, i));
        check_state(&k, ids[i], &b);
        if (b.layers != NULL) {
            check_values(&k, c, ids[i], &b);
        }
    }
    for (size_t i = 0; look && i < json_array_size(blocks); i++) {
        golden_block b = case_block(t, c, json_array_get(blocks, i));
        check_found(&k, ids[i], &b);
    }
    kv_close(&k);
}

/* ------------------------------------------------------------------ what goes out */

static void put_block(kv_script *k, const ol_case *c, uint32_t id, const golden_block *b) {
    for (uint32_t i = 0; i < 2 * k->shape.n_layers; i++) {
        const char *side = i % 2 == 0 ? "k" : "v";
        size_t n = 0;
        const uint16_t *values = ol_get_u16s(k->t, c, json_array_get(b->layers, i / 2), side, &n);
        kv_write(k, id, i / 2, side, values, n);
    }
    kv_set_fill(k, id, b->fill);
    if (b->key != NULL) {
        register_key(k, id, b->key);
    }
}

static void check_export(ol_test *t, const ol_case *c) {
    kv_script k = kv_open(t, "export_bytes", case_shape(t, c));
    const json_t *blocks = ol_get_array(t, c, c->body, "blocks");
    size_t n = json_array_size(blocks);
    uint32_t *ids = ol_alloc(t, (n + 1) * sizeof *ids);
    kv_alloc(&k, ids, n);
    for (size_t i = 0; i < n; i++) {
        golden_block b = case_block(t, c, json_array_get(blocks, i));
        put_block(&k, c, ids[i], &b);
    }
    const json_t *answer = env_export(&k, ids, n, -1);
    if (answer != NULL && ol_check_ok(t, k.check, answer, "export")) {
        envelope want = case_envelope(t, c);
        size_t n_got = 0;
        const uint8_t *got = ol_res_u8s(t, answer, "bytes", &n_got);
        ol_check_u8s(t, k.check, got, n_got, want.bytes, want.n_bytes, "envelope");
    }
    kv_close(&k);
}

/* ------------------------------------------------------------------ what is refused */

/* The statuses of a case in one text, and whether one of them is `word`. */
static const char *join_statuses(ol_test *t, const ol_case *c, const char *word, bool *has_word) {
    const json_t *list = ol_get_array(t, c, c->body, "status");
    const char *text = "";
    *has_word = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *status = json_string_value(json_array_get(list, i));
        status = status == NULL ? "" : status;
        *has_word = *has_word || strcmp(status, word) == 0;
        text = ol_text(t, "%s%s%s", text, i == 0 ? "" : "|", status);
    }
    return text;
}

/* Is the header sound, so that the fault lies in a record? */
static bool header_is_sound(const envelope *e, const kv_shape *shape) {
    if (e->n_bytes < ENV_HEADER) {
        return false;
    }
    uint64_t payload = (uint64_t)env_u32(e->bytes, ENV_N_BLOCKS) * env_record_bytes(shape);
    return env_u32(e->bytes, ENV_HEADER_CRC) == env_crc32(e->bytes, ENV_HEADER_CRC) &&
           env_u32(e->bytes, ENV_HEADER_BYTES) == ENV_HEADER && env_u32(e->bytes, ENV_FLAGS) == 0 &&
           env_u64(e->bytes, ENV_PAYLOAD_BYTES) == payload && e->n_bytes == ENV_HEADER + payload &&
           env_u32(e->bytes, ENV_PAYLOAD_CRC) ==
               env_crc32(e->bytes + ENV_HEADER, e->n_bytes - ENV_HEADER);
}

static const char *check_of_refusal(ol_test *t, const ol_case *c) {
    bool capacity = false;
    bool unsupported = false;
    (void)join_statuses(t, c, "CAPACITY", &capacity);
    (void)join_statuses(t, c, "UNSUPPORTED", &unsupported);
    if (capacity) {
        return "capacity";
    }
    if (unsupported) {
        return "header_mismatch";
    }
    envelope e = case_envelope(t, c);
    kv_shape shape = case_shape(t, c);
    return header_is_sound(&e, &shape) ? "record_format" : "header_format";
}

static void check_refused(ol_test *t, const ol_case *c) {
    const char *check = check_of_refusal(t, c);
    bool capacity = false;
    const char *statuses = join_statuses(t, c, "CAPACITY", &capacity);
    const char *subject = ol_get_text_or(t, c, c->body, "subject", NULL);
    envelope e = case_envelope(t, c);
    kv_script k = kv_open(t, check, case_shape(t, c));
    uint64_t before = kv_digest(&k);
    int64_t cap = (int64_t)ol_get_count_or(t, c, c->body, "ids_cap", 1000);
    const json_t *answer = env_import(&k, &e, cap);
    if (answer != NULL) {
        ol_check_refused(t, check, answer, statuses, subject, -1, "import");
        if (json_object_get(c->body, "offset") != NULL) {
            int64_t offset = (int64_t)ol_get_count(t, c, c->body, "offset");
            ol_check_refused(t, "fault_offset", answer, statuses, NULL, offset, "import");
        }
        if (capacity) {
            ol_check_int(t, check, json_integer_value(json_object_get(answer, "needed")),
                         env_u32(e.bytes, ENV_N_BLOCKS), "count needed");
        }
    }
    k.check = "refusal_leaves_pool";
    kv_digest_is(&k, before, "a refused import");
    kv_stats_are(&k, k.shape.n_blocks, 0, 0, "after a refused import");
    kv_close(&k);
    const ol_case *twin = ol_case_find(t, c, ol_get_text(t, c, c->body, "twin"));
    if (twin != NULL) {
        check_import(t, twin, check, false);
    }
}

void test_kv_golden(ol_test *t, const ol_case *c) {
    ol_begin_case(t, c);
    if (strcmp(c->group, "refused") == 0) {
        check_refused(t, c);
        return;
    }
    if (strcmp(c->group, "adopted") == 0) {
        bool beside = json_object_get(c->body, "cached") != NULL;
        check_import(t, c, beside ? "keys_after_allocation" : "import_golden", true);
        return;
    }
    check_export(t, c);
    check_import(t, c, "import_golden", true);
}
