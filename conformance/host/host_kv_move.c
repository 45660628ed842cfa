/* host_kv_move.c: the ops that carry blocks out of a pool and into one. */
#include "host.h"

#define UNSET_COUNT ((size_t)0x5a5a5a5a)

/* A refusal for want of room says how much is needed; any other leaves the count as it was. */
static void put_needed(host *h, json_t *out, tl_status status, size_t n) {
    if (status == TL_ERR_CAPACITY && n != UNSET_COUNT) {
        host_put_int(out, "needed", n);
    }
    if (status != TL_OK && status != TL_ERR_CAPACITY && n != UNSET_COUNT) {
        host_violation(h, "a refusal other than CAPACITY wrote the count");
    }
}

static bool op_kv_export(host *h, const json_t *in, json_t *out) {
    const tl_kv_pool *pool = host_arg_handle(h, in, "pool", HOST_POOL, NULL);
    size_t n_ids = 0;
    const uint32_t *ids = host_arg_array(h, in, "ids", "u32", &n_ids);
    tl_error err = host_error();
    size_t cap = 0;
    if (host_is_bad(h)) {
        return false;
    }
    if (json_object_get(in, "cap") != NULL) {
        cap = (size_t)host_arg_count(h, in, "cap", SIZE_MAX);
    } else if (!host_answer(out, h->tl.kv_pool_export_size(pool, n_ids, &cap, &err), &err)) {
        return false;
    }
    uint8_t *bytes = host_output(h, "buf", cap);
    if (!host_ready(h)) {
        return false;
    }
    size_t n_written = UNSET_COUNT;
    tl_status status = h->tl.kv_pool_export(pool, ids, n_ids, bytes, cap, &n_written, &err);
    put_needed(h, out, status, n_written);
    if (!host_answer(out, status, &err)) {
        return false;
    }
    if (n_written > cap) {
        host_bad(h, "the engine wrote %zu bytes by its own count, there was room for %zu",
                 n_written, cap);
        return false;
    }
    host_put_array(out, "bytes", "u8", bytes, n_written);
    return true;
}

static bool op_kv_import(host *h, const json_t *in, json_t *out) {
    tl_kv_pool *pool = host_arg_handle(h, in, "pool", HOST_POOL, NULL);
    size_t n_bytes = 0;
    const uint8_t *bytes = host_arg_array(h, in, "bytes", "u8", &n_bytes);
    if (host_is_bad(h)) {
        return false;
    }
    /* No envelope that can be imported has more blocks than the pool. */
    const tl_kv_cfg *cfg = h->tl.kv_pool_cfg(pool);
    size_t cap = host_arg_size_or(h, in, "cap", cfg == NULL ? 0 : cfg->n_blocks);
    uint32_t *ids = host_output(h, "ids", host_mul(h, cap, sizeof *ids));
    if (!host_ready(h)) {
        return false;
    }
    tl_error err = host_error();
    size_t n_ids = UNSET_COUNT;
    tl_status status = h->tl.kv_pool_import(pool, bytes, n_bytes, ids, cap, &n_ids, &err);
    put_needed(h, out, status, n_ids);
    if (!host_answer(out, status, &err)) {
        return false;
    }
    if (n_ids > cap) {
        host_bad(h, "the engine gave %zu ids by its own count, there was room for %zu", n_ids, cap);
        return false;
    }
    host_put_array(out, "ids", "u32", ids, n_ids);
    return true;
}

const host_op host_kv_move_ops[] = {
    {"kv_export", op_kv_export}, {"kv_import", op_kv_import}, {NULL, NULL}};
