/* kv_script.c: see kv_script.h. */
#include "kv_script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ keys and shapes */

const char *kv_key(int number, char text[KV_KEY_TEXT]) {
    for (unsigned i = 0; i < 16; i++) {
        unsigned byte = ((unsigned)number * 37u + i * 11u + 1u) & 0xffu;
        if (number == KV_ZEROS_KEY) {
            byte = i == 15 ? 1u : 0u;
        }
        (void)snprintf(text + (size_t)2 * i, 3, "%02x", byte);
    }
    return text;
}

size_t kv_slab_len(const kv_shape *shape) {
    return (size_t)shape->n_kv_heads * shape->block_tokens * shape->head_dim;
}

json_t *kv_shape_args(const kv_shape *s) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:o}", "n_blocks", (json_int_t)s->n_blocks,
                     "block_tokens", (json_int_t)s->block_tokens, "n_layers",
                     (json_int_t)s->n_layers, "n_kv_heads", (json_int_t)s->n_kv_heads, "head_dim",
                     (json_int_t)s->head_dim, "prefix_cache", s->cache_off ? 0 : 1, "model_tag",
                     ol_u64(s->model_tag));
}

/* ------------------------------------------------------------------ calls */

static json_t *id_args(const kv_script *k, uint32_t id) {
    return json_pack("{s:I, s:I}", "pool", (json_int_t)k->pool, "id", (json_int_t)id);
}

static json_t *with_key(json_t *args, int key) {
    char text[KV_KEY_TEXT];
    (void)json_object_set_new(args, "key", json_string(kv_key(key, text)));
    return args;
}

static json_t *pool_args(const kv_script *k) {
    return json_pack("{s:I}", "pool", (json_int_t)k->pool);
}

/* Make a call that the rest stands on. NULL: it was refused, or the script was broken before. */
static const json_t *must(kv_script *k, const char *op, json_t *args, const char *what) {
    if (k->broken) {
        json_decref(args);
        return NULL;
    }
    const json_t *answer = ol_call_object(k->t, op, args);
    if (!ol_check_ok(k->t, k->check, answer, what)) {
        k->broken = true;
        return NULL;
    }
    return answer;
}

static void refused(kv_script *k, const char *op, json_t *args, const char *statuses,
                    const char *terms, const char *what) {
    if (k->broken) {
        json_decref(args);
        return;
    }
    const json_t *answer = ol_call_object(k->t, op, args);
    (void)ol_check_refused(k->t, k->check, answer, statuses, terms, -1, what);
}

/* ------------------------------------------------------------------ steps that must succeed */

kv_script kv_open(ol_test *t, const char *check, kv_shape shape) {
    kv_script k = {.t = t, .check = check, .shape = shape};
    const json_t *answer = must(&k, "kv_new", kv_shape_args(&shape), "a new pool");
    if (answer != NULL) {
        k.pool = ol_int(t, answer, "pool");
    }
    return k;
}

void kv_close(kv_script *k) {
    if (k->pool != 0) {
        (void)ol_call_object(k->t, "kv_free", pool_args(k));
    }
    k->pool = 0;
    k->broken = true;
}

void kv_alloc(kv_script *k, uint32_t *ids, size_t n) {
    json_t *args = pool_args(k);
    (void)json_object_set_new(args, "n", json_integer((json_int_t)n));
    memset(ids, 0, n * sizeof *ids);
    const json_t *answer = must(k, "kv_alloc", args, "alloc");
    if (answer == NULL) {
        return;
    }
    size_t n_got = 0;
    const uint32_t *got = ol_res_u32s(k->t, answer, "ids", &n_got);
    if (!ol_check_int(k->t, k->check, (int64_t)n_got, (int64_t)n, "number of ids from alloc")) {
        k->broken = true;
        return;
    }
    memcpy(ids, got, n * sizeof *ids);
}

uint32_t kv_take(kv_script *k) {
    uint32_t id = 0;
    kv_alloc(k, &id, 1);
    return id;
}

void kv_do(kv_script *k, const char *op, uint32_t id) {
    (void)must(k, op, id_args(k, id), op);
}

void kv_set_fill(kv_script *k, uint32_t id, uint32_t fill) {
    json_t *args = id_args(k, id);
    (void)json_object_set_new(args, "fill", json_integer(fill));
    (void)must(k, "kv_set_fill", args, "set_fill");
}

void kv_register(kv_script *k, uint32_t id, int key) {
    (void)must(k, "kv_register", with_key(id_args(k, id), key), "register");
}

uint32_t kv_lookup(kv_script *k, int key) {
    const json_t *answer = must(k, "kv_lookup", with_key(pool_args(k), key), "look-up");
    return answer == NULL ? 0 : (uint32_t)ol_int(k->t, answer, "id");
}

void kv_finds(kv_script *k, int key, uint32_t id) {
    uint32_t found = kv_lookup(k, key);
    if (!k->broken) {
        (void)ol_check_int(k->t, k->check, found, id, "block that the key finds");
    }
}

void kv_fill_and_register(kv_script *k, uint32_t id, int key) {
    kv_set_fill(k, id, k->shape.block_tokens);
    kv_register(k, id, key);
}

void kv_cache(kv_script *k, uint32_t id, int key) {
    kv_fill_and_register(k, id, key);
    kv_do(k, "kv_release", id);
}

static json_t *slab_args(const kv_script *k, uint32_t id, uint32_t layer, const char *side) {
    json_t *args = id_args(k, id);
    (void)json_object_set_new(args, "layer", json_integer(layer));
    (void)json_object_set_new(args, "side", json_string(side));
    return args;
}

void kv_write(kv_script *k, uint32_t id, uint32_t layer, const char *side, const uint16_t *values,
              size_t n) {
    json_t *args = slab_args(k, id, layer, side);
    (void)json_object_set_new(args, "at", json_integer(0));
    (void)json_object_set_new(args, "values", ol_u16(values, n));
    (void)must(k, "kv_write", args, "slab_mut");
}

const uint16_t *kv_read(kv_script *k, uint32_t id, uint32_t layer, const char *side) {
    const json_t *answer = must(k, "kv_read", slab_args(k, id, layer, side), "slab");
    if (answer == NULL) {
        return NULL;
    }
    size_t n = 0;
    const uint16_t *values = ol_res_u16s(k->t, answer, "values", &n);
    int64_t want = (int64_t)kv_slab_len(&k->shape);
    bool right = ol_check_int(k->t, k->check, ol_int(k->t, answer, "slab_len"), want, "slab_len");
    if (!right || !ol_check_int(k->t, k->check, (int64_t)n, want, "elements of the slab")) {
        k->broken = true;
        return NULL;
    }
    return values;
}

uint64_t kv_digest(kv_script *k) {
    const json_t *answer = must(k, "kv_digest", pool_args(k), "digest");
    return answer == NULL ? 0 : ol_res_u64(k->t, answer, "digest");
}

/* ------------------------------------------------------------------ steps that must be refused */

void kv_alloc_refused(kv_script *k, size_t n, const char *what) {
    const json_t *stats = must(k, "kv_stats", pool_args(k), "stats");
    if (stats == NULL) {
        return;
    }
    json_t *args = pool_args(k);
    (void)json_object_set_new(args, "n", json_integer((json_int_t)n));
    const long long n_free = ol_int(k->t, stats, "free");
    const long long n_cached = ol_int(k->t, stats, "cached");
    /* What there is may be said in one number or in two. */
    refused(k, "kv_alloc", args, "CAPACITY",
            ol_text(k->t, OL_TERMS("n_ids|blocks %zu %lld|%lld %lld|%lld"), n, n_free,
                    n_free + n_cached, n_cached, n_free + n_cached),
            what);
}

/* What a refusal for a block must name: its id, and what stands against the call. */
static const char *of_block(kv_script *k, uint32_t id) {
    const unsigned n_blocks = k->shape.n_blocks;
    if (id >= n_blocks) {
        return ol_text(k->t, OL_TERMS("block|id %u %u|%u"), (unsigned)id, n_blocks, n_blocks - 1);
    }
    const json_t *info = must(k, "kv_info", id_args(k, id), "block_info");
    if (info == NULL || ol_int(k->t, info, "refs") != 0) {
        return ol_text(k->t, OL_TERMS("block|id %u"), (unsigned)id);
    }
    return json_is_true(json_object_get(info, "registered"))
               ? ol_text(k->t, OL_TERMS("block|id %u cached|used"), (unsigned)id)
               : ol_text(k->t, OL_TERMS("block|id %u free|used"), (unsigned)id);
}

void kv_refused(kv_script *k, const char *op, uint32_t id, const char *statuses, const char *what) {
    refused(k, op, id_args(k, id), statuses, of_block(k, id), what);
}

void kv_set_fill_refused(kv_script *k, uint32_t id, uint32_t fill, const char *statuses,
                         const char *what) {
    json_t *args = id_args(k, id);
    (void)json_object_set_new(args, "fill", json_integer(fill));
    const uint32_t most = k->shape.block_tokens;
    const char *terms = of_block(k, id);
    if (fill > most) {
        terms = ol_text(k->t, OL_TERMS("n_filled|fill|positions %u %u"), (unsigned)fill,
                        (unsigned)most);
    } else if (fill < most) {
        terms = ol_text(k->t, OL_TERMS("n_filled|fill|positions %u block|id %u"), (unsigned)fill,
                        (unsigned)id);
    }
    refused(k, "kv_set_fill", args, statuses, terms, what);
}

void kv_register_refused(kv_script *k, uint32_t id, int key, const char *statuses,
                         const char *what) {
    const char *terms = k->shape.cache_off ? OL_TERMS("prefix_cache|prefix") : of_block(k, id);
    refused(k, "kv_register", with_key(id_args(k, id), key), statuses, terms, what);
}

void kv_lookup_refused(kv_script *k, int key, const char *statuses, const char *what) {
    const char *terms = strcmp(statuses, "STATE") == 0 ? OL_TERMS("n_refs|refs|references 65535")
                        : k->shape.cache_off           ? OL_TERMS("prefix_cache|prefix|key")
                                                       : OL_TERMS("key");
    refused(k, "kv_lookup", with_key(pool_args(k), key), statuses, terms, what);
}

void kv_read_refused(kv_script *k, uint32_t id, uint32_t layer, const char *side,
                     const char *statuses, const char *what) {
    const unsigned n_layers = k->shape.n_layers;
    const char *terms = layer >= n_layers        ? ol_text(k->t, OL_TERMS("layer %u %u|%u"),
                                                           (unsigned)layer, n_layers, n_layers - 1)
                        : strcmp(side, "x") == 0 ? OL_TERMS("side")
                                                 : of_block(k, id);
    refused(k, "kv_read", slab_args(k, id, layer, side), statuses, terms,
            ol_text(k->t, "%s: slab", what));
    json_t *args = slab_args(k, id, layer, side);
    (void)json_object_set_new(args, "at", json_integer(0));
    (void)json_object_set_new(args, "values", ol_u16(NULL, 0));
    refused(k, "kv_write", args, statuses, terms, ol_text(k->t, "%s: slab_mut", what));
}

void kv_all_refused(kv_script *k, uint32_t id, const char *statuses, const char *what) {
    kv_refused(k, "kv_retain", id, statuses, ol_text(k->t, "%s: retain", what));
    kv_refused(k, "kv_release", id, statuses, ol_text(k->t, "%s: release", what));
    kv_set_fill_refused(k, id, k->shape.block_tokens, statuses,
                        ol_text(k->t, "%s: set_fill", what));
    kv_register_refused(k, id, 900, statuses, ol_text(k->t, "%s: register", what));
    kv_read_refused(k, id, 0, "k", statuses, what);
}

/* ------------------------------------------------------------------ steps that look */

void kv_stats_are(kv_script *k, uint32_t n_free, uint32_t n_cached, uint32_t n_used,
                  const char *what) {
    const json_t *answer = must(k, "kv_stats", pool_args(k), "stats");
    if (answer == NULL) {
        return;
    }
    ol_test *t = k->t;
    (void)ol_check_int(t, k->check, ol_int(t, answer, "free"), n_free,
                       ol_text(t, "free blocks %s", what));
    (void)ol_check_int(t, k->check, ol_int(t, answer, "cached"), n_cached,
                       ol_text(t, "cached blocks %s", what));
    (void)ol_check_int(t, k->check, ol_int(t, answer, "used"), n_used,
                       ol_text(t, "used blocks %s", what));
}

void kv_info_is(kv_script *k, uint32_t id, uint32_t refs, int64_t fill, int key, const char *what) {
    const json_t *answer = must(k, "kv_info", id_args(k, id), "block_info");
    if (answer == NULL) {
        return;
    }
    ol_test *t = k->t;
    char text[KV_KEY_TEXT] = "00000000000000000000000000000000";
    if (key != KV_NO_KEY) {
        (void)kv_key(key, text);
    }
    bool registered = json_is_true(json_object_get(answer, "registered"));
    (void)ol_check_int(t, k->check, ol_int(t, answer, "refs"), refs,
                       ol_text(t, "references of block %u %s", (unsigned)id, what));
    if (fill >= 0) {
        (void)ol_check_int(t, k->check, ol_int(t, answer, "fill"), fill,
                           ol_text(t, "fill of block %u %s", (unsigned)id, what));
    }
    (void)ol_check_int(t, k->check, registered ? 1 : 0, key != KV_NO_KEY ? 1 : 0,
                       ol_text(t, "is block %u registered %s", (unsigned)id, what));
    const char *got = ol_res_text(t, answer, "key");
    (void)ol_check(t, k->check, strcmp(got, text) == 0, "key of block %u %s is %s, %s is right",
                   (unsigned)id, what, got, text);
}

void kv_digest_is(kv_script *k, uint64_t want, const char *what) {
    uint64_t got = kv_digest(k);
    if (!k->broken) {
        (void)ol_check(k->t, k->check, got == want, "the pool has changed: %s", what);
    }
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

void kv_same_ids(kv_script *k, const uint32_t *got, const uint32_t *want, size_t n,
                 const char *what) {
    if (k->broken || n == 0) {
        return;
    }
    uint32_t *a = ol_alloc(k->t, 2 * n * sizeof *a);
    memcpy(a, got, n * sizeof *a);
    memcpy(a + n, want, n * sizeof *a);
    qsort(a, n, sizeof *a, by_value);
    qsort(a + n, n, sizeof *a, by_value);
    (void)ol_check_u32s(k->t, k->check, a, n, a + n, n, what);
}
