/* host_kv.c: the ops of the KV pool, apart from the transfer of blocks (host_kv_move.c). */
#include "host.h"

#include <string.h>

static tl_kv_pool *arg_pool(host *h, const json_t *in) {
    return host_arg_handle(h, in, "pool", HOST_POOL, NULL);
}

static bool op_kv_new(host *h, const json_t *in, json_t *out) {
    tl_kv_cfg cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.n_blocks = host_arg_u32(h, in, "n_blocks");
    cfg.block_tokens = host_arg_u32(h, in, "block_tokens");
    cfg.n_layers = host_arg_u32(h, in, "n_layers");
    cfg.n_kv_heads = host_arg_u32(h, in, "n_kv_heads");
    cfg.head_dim = host_arg_u32(h, in, "head_dim");
    cfg.dtype = (int32_t)host_arg_count_or(h, in, "dtype", INT32_MAX, TL_KV_DTYPE_F16);
    cfg.format = (uint32_t)host_arg_count_or(h, in, "format", UINT32_MAX, TL_KV_FORMAT_V1);
    cfg.prefix_cache =
        host_arg_bool_or(h, in, "prefix_cache", true) ? TL_PREFIX_CACHE_ON : TL_PREFIX_CACHE_OFF;
    if (json_object_get(in, "model_tag") != NULL) {
        cfg.model_tag = host_arg_u64(h, in, "model_tag");
    }
    const tl_kv_cfg *given = host_const(h, "cfg", &cfg, sizeof cfg);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_kv_pool *pool = host_unset();
    tl_status status = h->tl.kv_pool_new(&pool, given, &err);
    void *object = pool;
    if (!host_made(h, out, status, &err, &object)) {
        return false;
    }
    host_put_int(out, "pool", (uint64_t)host_handle_add(h, HOST_POOL, object, 0));
    return true;
}

static bool op_kv_free(host *h, const json_t *in, json_t *out) {
    (void)out;
    int64_t number = 0;
    (void)host_arg_handle(h, in, "pool", HOST_POOL, &number);
    if (!host_ready(h)) {
        return false;
    }
    if (h->handles[number - 1].parent != 0) {
        host_bad(h, "the pool is its runner's to free");
        return false;
    }
    host_handle_free(h, number);
    return true;
}

static bool op_kv_alloc(host *h, const json_t *in, json_t *out) {
    tl_kv_pool *pool = arg_pool(h, in);
    size_t n = (size_t)host_arg_count(h, in, "n", SIZE_MAX);
    uint32_t *ids = host_output(h, "ids", host_mul(h, n, sizeof *ids));
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = h->tl.kv_pool_alloc(pool, ids, n, &err);
    if (!host_answer(out, status, &err)) {
        return false;
    }
    host_put_array(out, "ids", "u32", ids, n);
    return true;
}

static bool repeat(host *h, const json_t *in, json_t *out,
                   tl_status (*function)(tl_kv_pool *, uint32_t, tl_error *)) {
    tl_kv_pool *pool = arg_pool(h, in);
    uint32_t id = host_arg_u32(h, in, "id");
    size_t times = host_arg_size_or(h, in, "times", 1);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = TL_OK;
    size_t done = 0;
    while (done < times && (status = function(pool, id, &err)) == TL_OK) {
        done++;
    }
    host_put_int(out, "done", done);
    return host_answer(out, status, &err);
}

static bool op_kv_retain(host *h, const json_t *in, json_t *out) {
    return repeat(h, in, out, h->tl.kv_pool_retain);
}

static bool op_kv_release(host *h, const json_t *in, json_t *out) {
    return repeat(h, in, out, h->tl.kv_pool_release);
}

static bool op_kv_set_fill(host *h, const json_t *in, json_t *out) {
    tl_kv_pool *pool = arg_pool(h, in);
    uint32_t id = host_arg_u32(h, in, "id");
    uint32_t fill = host_arg_u32(h, in, "fill");
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    return host_answer(out, h->tl.kv_pool_set_fill(pool, id, fill, &err), &err);
}

static bool op_kv_register(host *h, const json_t *in, json_t *out) {
    tl_kv_pool *pool = arg_pool(h, in);
    uint32_t id = host_arg_u32(h, in, "id");
    const tl_prefix_key *key = host_arg_key(h, in, "key");
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    return host_answer(out, h->tl.kv_pool_register(pool, id, key, &err), &err);
}

static bool op_kv_lookup(host *h, const json_t *in, json_t *out) {
    tl_kv_pool *pool = arg_pool(h, in);
    const tl_prefix_key *key = host_arg_key(h, in, "key");
    uint32_t *id = host_output(h, "id", sizeof *id);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = h->tl.kv_pool_lookup(pool, key, id, &err);
    if (!host_answer(out, status, &err)) {
        return false;
    }
    host_put_int(out, "id", *id);
    return true;
}

/* ------------------------------------------------------------------ slabs */

static tl_kv_side arg_side(host *h, const json_t *in) {
    const char *side = host_arg_text(h, in, "side");
    if (strcmp(side, "k") == 0) {
        return TL_KV_K;
    }
    /* Any number that is neither: what a C caller could pass by mistake. */
    return strcmp(side, "v") == 0 ? TL_KV_V : (tl_kv_side)2;
}

/* The slab's address and length, as the engine's constructor-like call gives them; untouched after
 * a refusal. */
typedef struct slab {
    const uint16_t *data;
    uint16_t *data_mut;
    size_t len;
} slab;

#define UNSET_LEN ((size_t)0x5a5a5a5a)

static bool answer_slab(host *h, json_t *out, tl_status status, const tl_error *err,
                        const void *data, size_t len) {
    if (status != TL_OK && (data != host_unset() || len != UNSET_LEN)) {
        host_violation(h, "a refused slab call changed its outputs");
    }
    return host_answer(out, status, err);
}

/* Does [at, at + n) lie in the slab? The engine's word for the length is taken; the test compares
 * it. */
static bool fits(host *h, size_t at, size_t n, size_t len) {
    if (at > len || n > len - at) {
        host_bad(h, "elements %zu to %zu + %zu are past the slab of %zu", at, at, n, len);
        return false;
    }
    return true;
}

static bool op_kv_write(host *h, const json_t *in, json_t *out) {
    tl_kv_pool *pool = arg_pool(h, in);
    uint32_t id = host_arg_u32(h, in, "id");
    uint32_t layer = host_arg_u32(h, in, "layer");
    tl_kv_side side = arg_side(h, in);
    size_t at = host_arg_size_or(h, in, "at", 0);
    size_t n = 0;
    const uint16_t *values = host_arg_array(h, in, "values", "u16", &n);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    slab s = {.data_mut = host_unset(), .len = UNSET_LEN};
    tl_status status = h->tl.kv_pool_slab_mut(pool, id, layer, side, &s.data_mut, &s.len, &err);
    if (!answer_slab(h, out, status, &err, s.data_mut, s.len) || !fits(h, at, n, s.len)) {
        return false;
    }
    if (n > 0) {
        memcpy(s.data_mut + at, values, n * sizeof *values);
    }
    host_put_int(out, "slab_len", s.len);
    return true;
}

static bool op_kv_read(host *h, const json_t *in, json_t *out) {
    const tl_kv_pool *pool = arg_pool(h, in);
    uint32_t id = host_arg_u32(h, in, "id");
    uint32_t layer = host_arg_u32(h, in, "layer");
    tl_kv_side side = arg_side(h, in);
    size_t at = host_arg_size_or(h, in, "at", 0);
    size_t n = host_arg_size_or(h, in, "n", SIZE_MAX);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    slab s = {.data = host_unset(), .len = UNSET_LEN};
    tl_status status = h->tl.kv_pool_slab(pool, id, layer, side, &s.data, &s.len, &err);
    if (!answer_slab(h, out, status, &err, s.data, s.len)) {
        return false;
    }
    if (n == SIZE_MAX && at <= s.len) {
        n = s.len - at;
    }
    if (!fits(h, at, n, s.len)) {
        return false;
    }
    host_put_array(out, "values", "u16", s.data + at, n);
    host_put_int(out, "slab_len", s.len);
    return true;
}

/* ------------------------------------------------------------------ what a pool says of itself */

static bool op_kv_info(host *h, const json_t *in, json_t *out) {
    const tl_kv_pool *pool = arg_pool(h, in);
    uint32_t id = host_arg_u32(h, in, "id");
    tl_kv_block_info *info = host_output(h, "info", sizeof *info);
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    tl_status status = h->tl.kv_pool_block_info(pool, id, info, &err);
    if (!host_answer(out, status, &err)) {
        return false;
    }
    host_put_int(out, "refs", info->n_refs);
    host_put_int(out, "fill", info->n_filled);
    host_put_bool(out, "registered", info->registered);
    host_put_key(out, "key", &info->key);
    return true;
}

static bool op_kv_stats(host *h, const json_t *in, json_t *out) {
    const tl_kv_pool *pool = arg_pool(h, in);
    if (!host_ready(h)) {
        return false;
    }
    tl_kv_stats stats = h->tl.kv_pool_stats(pool);
    host_put_int(out, "free", stats.n_free);
    host_put_int(out, "cached", stats.n_cached);
    host_put_int(out, "used", stats.n_used);
    return true;
}

static uint64_t hash_u16s(uint64_t hash, const uint16_t *values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint8_t bytes[2] = {(uint8_t)(values[i] & 0xffu), (uint8_t)(values[i] >> 8)};
        hash = host_fnv1a(hash, bytes, sizeof bytes);
    }
    return hash;
}

static uint64_t hash_u32(uint64_t hash, uint32_t v) {
    uint8_t bytes[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    return host_fnv1a(hash, bytes, sizeof bytes);
}

/* Mix a used block's slabs into the hash. */
static tl_status hash_slabs(host *h, const tl_kv_pool *pool, uint32_t id, uint32_t n_layers,
                            uint64_t *hash, tl_error *err) {
    for (uint32_t i = 0; i < 2 * n_layers; i++) {
        const uint16_t *data = NULL;
        size_t len = 0;
        tl_kv_side side = i % 2 == 0 ? TL_KV_K : TL_KV_V;
        tl_status status = h->tl.kv_pool_slab(pool, id, i / 2, side, &data, &len, err);
        if (status != TL_OK) {
            return status;
        }
        *hash = hash_u16s(*hash, data, len);
    }
    return TL_OK;
}

static tl_status hash_block(host *h, const tl_kv_pool *pool, uint32_t id, uint32_t n_layers,
                            uint64_t *hash, tl_error *err) {
    tl_kv_block_info info;
    tl_status status = h->tl.kv_pool_block_info(pool, id, &info, err);
    if (status != TL_OK) {
        return status;
    }
    uint8_t registered = info.registered ? 1 : 0;
    *hash = hash_u32(*hash, info.n_refs);
    *hash = hash_u32(*hash, info.n_filled);
    *hash = host_fnv1a(*hash, &registered, 1);
    *hash = host_fnv1a(*hash, info.key.bytes, sizeof info.key.bytes);
    if (info.n_refs == 0) {
        return TL_OK;
    }
    return hash_slabs(h, pool, id, n_layers, hash, err);
}

static bool op_kv_digest(host *h, const json_t *in, json_t *out) {
    const tl_kv_pool *pool = arg_pool(h, in);
    if (!host_ready(h)) {
        return false;
    }
    const tl_kv_cfg *cfg = h->tl.kv_pool_cfg(pool);
    tl_error err = host_error();
    tl_status status = cfg == NULL ? TL_ERR_INTERNAL : TL_OK;
    uint64_t hash = HOST_FNV_START;
    for (uint32_t id = 0; status == TL_OK && id < cfg->n_blocks; id++) {
        status = hash_block(h, pool, id, cfg->n_layers, &hash, &err);
    }
    if (!host_answer(out, status, &err)) {
        return false;
    }
    host_put_u64(out, "digest", hash);
    return true;
}

const host_op host_kv_ops[] = {
    {"kv_new", op_kv_new},           {"kv_free", op_kv_free},
    {"kv_alloc", op_kv_alloc},       {"kv_retain", op_kv_retain},
    {"kv_release", op_kv_release},   {"kv_set_fill", op_kv_set_fill},
    {"kv_register", op_kv_register}, {"kv_lookup", op_kv_lookup},
    {"kv_write", op_kv_write},       {"kv_read", op_kv_read},
    {"kv_info", op_kv_info},         {"kv_stats", op_kv_stats},
    {"kv_digest", op_kv_digest},     {NULL, NULL},
};
