/* kv_envelope.c: blocks as bytes and back.
 *
 * Import is the table of the page, row after row: first every check, then the one place where the
 * pool changes, in which nothing can fail any more.
 *
 * Source: conformance/spec/kv-block.md, from kv#envelope on. */
#include "tl/kv.h"

#include <string.h>

#include "kv_plain.h"
#include "util.h"

enum { HEADER = 64, RECORD_HEAD = 24 };
static const uint8_t magic[4] = {'T', 'L', 'K', 'V'};

/* The CRC-32 of zlib, one bit at a time. */
static uint32_t crc32_of(const uint8_t *bytes, size_t n) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 1) != 0 ? (crc >> 1) ^ 0xedb88320 : crc >> 1;
        }
    }
    return ~crc;
}

/* Cannot overflow, since the pool holds at least one block. */
static size_t record_size(const tl_kv_pool *pool) {
    return RECORD_HEAD + (size_t)pool->cfg.n_layers * 2 * pool->slab_len * 2;
}

/* Where in its record a slab starts. */
static size_t slab_offset(const tl_kv_pool *pool, uint32_t layer, uint32_t side) {
    return RECORD_HEAD + ((size_t)layer * 2 + side) * pool->slab_len * 2;
}

/* The position in its sequence's block that element i of a slab belongs to. */
static size_t position_of(const tl_kv_pool *pool, size_t i) {
    return i / pool->cfg.head_dim % pool->cfg.block_tokens;
}

/* ------------------------------------------------------------------ export */

tl_status tl_kv_pool_export_size(const tl_kv_pool *pool, size_t n_ids, size_t *n_bytes,
                                 tl_error *err) {
    if (pool == NULL || n_bytes == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "pool or n_bytes is NULL");
    }
    size_t size;
    if (!tli_mul(n_ids, record_size(pool), &size) || !tli_add(size, HEADER, &size)) {
        return tli_fail(err, TL_ERR_NOMEM, "the size of %zu blocks overflows", n_ids);
    }
    *n_bytes = size;
    return TL_OK;
}

static tl_status check_export(const tl_kv_pool *pool, const uint32_t *ids, size_t n_ids,
                              tl_error *err) {
    for (size_t i = 0; i < n_ids; i++) {
        if (ids[i] >= pool->cfg.n_blocks) {
            return tli_fail(err, TL_ERR_INVALID, "block %lu, but the pool has %lu blocks",
                            (unsigned long)ids[i], (unsigned long)pool->cfg.n_blocks);
        }
    }
    for (size_t i = 0; i < n_ids; i++) {
        for (size_t j = 0; j < i; j++) {
            if (ids[i] == ids[j]) {
                return tli_fail(err, TL_ERR_INVALID, "block %lu is listed twice",
                                (unsigned long)ids[i]);
            }
        }
    }
    for (size_t i = 0; i < n_ids; i++) {
        TLI_TRY(plain_kv_used(pool, ids[i], err));
    }
    return TL_OK;
}

/* Only what is filled: the rest of the slab may be another request's, and stays zero. */
static void write_slab(const tl_kv_pool *pool, uint32_t id, uint32_t layer, uint32_t side,
                       uint8_t *out) {
    const uint16_t *slab = plain_kv_slab(pool, id, layer, side);
    for (size_t i = 0; i < pool->slab_len; i++) {
        if (position_of(pool, i) < pool->blocks[id].n_filled) {
            tli_store_u16(out + 2 * i, slab[i]);
        }
    }
}

static void write_record(const tl_kv_pool *pool, uint32_t id, uint8_t *out) {
    const plain_block *b = &pool->blocks[id];
    memset(out, 0, record_size(pool));
    tli_store_u32(out, b->n_filled);
    tli_store_u32(out + 4, b->has_key ? 1 : 0);
    if (b->has_key) {
        memcpy(out + 8, b->key.bytes, 16);
    }
    for (uint32_t layer = 0; layer < pool->cfg.n_layers; layer++) {
        write_slab(pool, id, layer, TL_KV_K, out + slab_offset(pool, layer, TL_KV_K));
        write_slab(pool, id, layer, TL_KV_V, out + slab_offset(pool, layer, TL_KV_V));
    }
}

static void write_header(const tl_kv_pool *pool, uint32_t n_blocks, uint8_t *buf, size_t size) {
    memset(buf, 0, HEADER);
    memcpy(buf, magic, 4);
    tli_store_u32(buf + 4, TL_KV_FORMAT_V1);
    tli_store_u32(buf + 8, HEADER);
    tli_store_u32(buf + 12, TL_KV_DTYPE_F16);
    tli_store_u32(buf + 16, n_blocks);
    tli_store_u32(buf + 20, pool->cfg.block_tokens);
    tli_store_u32(buf + 24, pool->cfg.n_layers);
    tli_store_u32(buf + 28, pool->cfg.n_kv_heads);
    tli_store_u32(buf + 32, pool->cfg.head_dim);
    tli_store_u64(buf + 40, size - HEADER);
    tli_store_u64(buf + 48, pool->cfg.model_tag);
    tli_store_u32(buf + 56, crc32_of(buf + HEADER, size - HEADER));
    tli_store_u32(buf + 60, crc32_of(buf, 60));
}

tl_status tl_kv_pool_export(const tl_kv_pool *pool, const uint32_t *ids, size_t n_ids, uint8_t *buf,
                            size_t buf_len, size_t *n_written, tl_error *err) {
    if (pool == NULL || n_written == NULL || (ids == NULL && n_ids > 0) ||
        (buf == NULL && buf_len > 0)) {
        return tli_fail(err, TL_ERR_INVALID, "pool, ids, buf or n_written is NULL");
    }
    TLI_TRY(check_export(pool, ids, n_ids, err));
    size_t size = HEADER;
    TLI_TRY(tl_kv_pool_export_size(pool, n_ids, &size, err));
    if (buf == NULL || buf_len < size) {
        *n_written = size;
        return tli_fail(err, TL_ERR_CAPACITY, "the envelope has %zu bytes, there is room for %zu",
                        size, buf_len);
    }
    for (size_t i = 0; i < n_ids; i++) {
        write_record(pool, ids[i], buf + HEADER + i * record_size(pool));
    }
    write_header(pool, (uint32_t)n_ids, buf, size);
    *n_written = size;
    return TL_OK;
}

/* ------------------------------------------------------------------ import */

/* Checks 2 to 6. */
static tl_status check_frame(const uint8_t *buf, tl_error *err) {
    if (memcmp(buf, magic, 4) != 0) {
        return tli_fail_at(err, TL_ERR_FORMAT, 0, "the magic is %02x %02x %02x %02x, not TLKV",
                           (unsigned)buf[0], (unsigned)buf[1], (unsigned)buf[2], (unsigned)buf[3]);
    }
    if (tli_load_u32(buf + 60) != crc32_of(buf, 60)) {
        return tli_fail_at(err, TL_ERR_FORMAT, 60, "the header's checksum is %08lx, not %08lx",
                           (unsigned long)tli_load_u32(buf + 60), (unsigned long)crc32_of(buf, 60));
    }
    if (tli_load_u32(buf + 4) != TL_KV_FORMAT_V1) {
        return tli_fail_at(err, TL_ERR_UNSUPPORTED, 4, "version %lu, 1 is supported",
                           (unsigned long)tli_load_u32(buf + 4));
    }
    if (tli_load_u32(buf + 8) != HEADER) {
        return tli_fail_at(err, TL_ERR_FORMAT, 8, "header_bytes is %lu, 64 is needed",
                           (unsigned long)tli_load_u32(buf + 8));
    }
    if (tli_load_u32(buf + 36) != 0) {
        return tli_fail_at(err, TL_ERR_FORMAT, 36, "flags are %lu, 0 is needed",
                           (unsigned long)tli_load_u32(buf + 36));
    }
    return TL_OK;
}

/* Checks 7 and 8. */
static tl_status check_shape(const tl_kv_pool *pool, const uint8_t *buf, tl_error *err) {
    const struct {
        size_t at;
        const char *name;
        uint32_t want;
    } fields[] = {{12, "dtype", (uint32_t)pool->cfg.dtype},
                  {20, "block_tokens", pool->cfg.block_tokens},
                  {24, "n_layers", pool->cfg.n_layers},
                  {28, "n_kv_heads", pool->cfg.n_kv_heads},
                  {32, "head_dim", pool->cfg.head_dim}};
    for (size_t i = 0; i < 5; i++) {
        const uint32_t got = tli_load_u32(buf + fields[i].at);
        if (got != fields[i].want) {
            return tli_fail_at(err, TL_ERR_UNSUPPORTED, fields[i].at, "%s is %lu, the pool has %lu",
                               fields[i].name, (unsigned long)got, (unsigned long)fields[i].want);
        }
    }
    const uint64_t tag = tli_load_u64(buf + 48);
    if (tag != 0 && pool->cfg.model_tag != 0 && tag != pool->cfg.model_tag) {
        return tli_fail_at(err, TL_ERR_UNSUPPORTED, 48, "model_tag %016llx, the pool has %016llx",
                           (unsigned long long)tag, (unsigned long long)pool->cfg.model_tag);
    }
    return TL_OK;
}

/* Checks 9 and 10. */
static tl_status check_payload(const tl_kv_pool *pool, const uint8_t *buf, size_t len,
                               tl_error *err) {
    const uint32_t n_blocks = tli_load_u32(buf + 16);
    const uint64_t payload = tli_load_u64(buf + 40);
    uint64_t want;
    if (!tli_mul_u64(n_blocks, record_size(pool), &want) || payload != want) {
        return tli_fail_at(err, TL_ERR_FORMAT, 40, "payload_bytes is %llu, not %lu x %zu",
                           (unsigned long long)payload, (unsigned long)n_blocks, record_size(pool));
    }
    if (len - HEADER != payload) {
        return tli_fail_at(err, TL_ERR_FORMAT, 40,
                           "%zu bytes follow the header, payload_bytes is %llu", len - HEADER,
                           (unsigned long long)payload);
    }
    if (tli_load_u32(buf + 56) != crc32_of(buf + HEADER, len - HEADER)) {
        return tli_fail_at(err, TL_ERR_FORMAT, 56, "the payload's checksum does not match");
    }
    return TL_OK;
}

/* Check 14, of one slab that starts at byte `at`. */
static tl_status check_zeros(const tl_kv_pool *pool, const uint8_t *buf, size_t at, uint32_t fill,
                             tl_error *err) {
    for (size_t i = 0; i < pool->slab_len; i++) {
        if (position_of(pool, i) >= fill && tli_load_u16(buf + at + 2 * i) != 0) {
            return tli_fail_at(err, TL_ERR_FORMAT, at + 2 * i,
                               "a value past the fill of %lu is not zero", (unsigned long)fill);
        }
    }
    return TL_OK;
}

/* Checks 11 to 14, of the record that starts at byte `at`. */
static tl_status check_record(const tl_kv_pool *pool, const uint8_t *buf, size_t at,
                              tl_error *err) {
    static const uint8_t no_key[16];
    const uint32_t fill = tli_load_u32(buf + at);
    const uint32_t has_key = tli_load_u32(buf + at + 4);
    if (fill > pool->cfg.block_tokens) {
        return tli_fail_at(err, TL_ERR_FORMAT, at, "a fill of %lu, a block has %lu positions",
                           (unsigned long)fill, (unsigned long)pool->cfg.block_tokens);
    }
    if (has_key > 1) {
        return tli_fail_at(err, TL_ERR_FORMAT, at + 4, "has_key is %lu, 0 or 1 is needed",
                           (unsigned long)has_key);
    }
    if (has_key == 1 && fill < pool->cfg.block_tokens) {
        return tli_fail_at(err, TL_ERR_FORMAT, at + 4, "a key on a block with %lu of %lu positions",
                           (unsigned long)fill, (unsigned long)pool->cfg.block_tokens);
    }
    if (has_key == 0 && memcmp(buf + at + 8, no_key, 16) != 0) {
        return tli_fail_at(err, TL_ERR_FORMAT, at + 8, "a key that is not zeros, but has_key is 0");
    }
    for (uint32_t layer = 0; layer < pool->cfg.n_layers; layer++) {
        const size_t k_at = at + slab_offset(pool, layer, TL_KV_K);
        const size_t v_at = at + slab_offset(pool, layer, TL_KV_V);
        TLI_TRY(check_zeros(pool, buf, k_at, fill, err));
        TLI_TRY(check_zeros(pool, buf, v_at, fill, err));
    }
    return TL_OK;
}

static void take_slab(tl_kv_pool *pool, uint32_t id, uint32_t layer, uint32_t side,
                      const uint8_t *from) {
    uint16_t *slab = plain_kv_slab(pool, id, layer, side);
    for (size_t i = 0; i < pool->slab_len; i++) {
        slab[i] = tli_load_u16(from + 2 * i);
    }
}

static void take_record(tl_kv_pool *pool, uint32_t id, const uint8_t *record) {
    pool->blocks[id].n_filled = tli_load_u32(record);
    for (uint32_t layer = 0; layer < pool->cfg.n_layers; layer++) {
        take_slab(pool, id, layer, TL_KV_K, record + slab_offset(pool, layer, TL_KV_K));
        take_slab(pool, id, layer, TL_KV_V, record + slab_offset(pool, layer, TL_KV_V));
    }
    tl_prefix_key key;
    memcpy(key.bytes, record + 8, 16);
    const bool has_key = tli_load_u32(record + 4) == 1;
    const bool caching = pool->cfg.prefix_cache == TL_PREFIX_CACHE_ON;
    if (has_key && caching && plain_kv_find(pool, &key) == pool->cfg.n_blocks) {
        pool->blocks[id].has_key = true;
        pool->blocks[id].key = key;
    }
}

tl_status tl_kv_pool_import(tl_kv_pool *pool, const uint8_t *buf, size_t buf_len, uint32_t *ids,
                            size_t ids_cap, size_t *n_ids, tl_error *err) {
    if (pool == NULL || n_ids == NULL || (ids == NULL && ids_cap > 0) ||
        (buf == NULL && buf_len > 0)) {
        return tli_fail(err, TL_ERR_INVALID, "pool, buf, ids or n_ids is NULL");
    }
    if (buf_len < HEADER) {
        return tli_fail_at(err, TL_ERR_FORMAT, buf_len, "%zu bytes, an envelope has at least 64",
                           buf_len);
    }
    TLI_TRY(check_frame(buf, err));
    TLI_TRY(check_shape(pool, buf, err));
    TLI_TRY(check_payload(pool, buf, buf_len, err));
    const size_t n_blocks = tli_load_u32(buf + 16);
    for (size_t i = 0; i < n_blocks; i++) {
        TLI_TRY(check_record(pool, buf, HEADER + i * record_size(pool), err));
    }
    const tl_kv_stats stats = tl_kv_pool_stats(pool);
    const size_t room = (size_t)stats.n_free + stats.n_cached;
    if (n_blocks > room || n_blocks > ids_cap) {
        *n_ids = n_blocks;
        return tli_fail(err, TL_ERR_CAPACITY,
                        "the envelope has %zu blocks, %zu are free or cached "
                        "and there is room for %zu ids",
                        n_blocks, room, ids_cap);
    }
    TLI_TRY(tl_kv_pool_alloc(pool, ids, n_blocks, err));
    for (size_t i = 0; i < n_blocks; i++) {
        take_record(pool, ids[i], buf + HEADER + i * record_size(pool));
    }
    *n_ids = n_blocks;
    return TL_OK;
}
