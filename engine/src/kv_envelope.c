/* kv_envelope.c: blocks as bytes that another process, on another machine perhaps, can take
 * over.
 *
 * An import looks at every byte before it changes the pool, in the order of the format's page,
 * so that a refused envelope leaves nothing behind. Lengths are compared with what they must be,
 * never added to a number from outside. The export takes no memory and changes nothing in the
 * pool.
 *
 * Source: conformance/spec/kv-block.md, envelope version 1. */
#include <string.h>
#include <zlib.h>

#include "kv_internal.h"
#include "util.h"

#define VERSION 1u
#define HEADER_BYTES 64u
#define RECORD_HEAD_BYTES 24u

/* Where the fields of the header lie, and those of a record. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_HEADER_BYTES = 8,
    AT_DTYPE = 12,
    AT_N_BLOCKS = 16,
    AT_BLOCK_TOKENS = 20,
    AT_N_LAYERS = 24,
    AT_N_KV_HEADS = 28,
    AT_HEAD_DIM = 32,
    AT_FLAGS = 36,
    AT_PAYLOAD_BYTES = 40,
    AT_MODEL_TAG = 48,
    AT_PAYLOAD_CRC = 56,
    AT_HEADER_CRC = 60,
    AT_RECORD_FILL = 0,
    AT_RECORD_HAS_KEY = 4,
    AT_RECORD_KEY = 8
};

static const uint8_t magic[4] = {0x54, 0x4c, 0x4b, 0x56}; /* "TLKV" */

static uint32_t crc_of(const uint8_t *bytes, size_t n_bytes) {
    return (uint32_t)(crc32_z(0, bytes, n_bytes) & UINT32_MAX);
}

/* Bytes of a block's record. It fits: the pool holds the slabs of at least one block, and 24
 * bytes more. */
static size_t record_bytes(const tl_kv_pool *pool) {
    return RECORD_HEAD_BYTES + pool->block_len * sizeof(uint16_t);
}

/* Elements of one head's part of a slab that belong to the first n_positions. */
static size_t head_len(const tl_kv_pool *pool, uint32_t n_positions) {
    return (size_t)n_positions * pool->cfg.head_dim;
}

/* ---- export ---------------------------------------------------------------------------------- */

static bool envelope_bytes(const tl_kv_pool *pool, size_t n_ids, size_t *n_bytes) {
    size_t payload = 0;
    return tli_mul(n_ids, record_bytes(pool), &payload) && tli_add(payload, HEADER_BYTES, n_bytes);
}

tl_status tl_kv_pool_export_size(const tl_kv_pool *pool, size_t n_ids, size_t *n_bytes,
                                 tl_error *err) {
    if (pool == NULL || n_bytes == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "kv export_size: %s is NULL",
                        pool == NULL ? "the pool" : "n_bytes");
    }
    size_t size = 0;
    if (!envelope_bytes(pool, n_ids, &size)) {
        return tli_fail(err, TL_ERR_NOMEM, "kv export_size: the size of %zu blocks overflows",
                        n_ids);
    }
    *n_bytes = size;
    return TL_OK;
}

#define WINDOW_IDS 32768u

/* No id twice. Readers of a pool may export at the same time and take no memory, so the marks
 * are on the stack, for one window of ids after the other. */
static tl_status check_distinct(const tl_kv_pool *pool, const uint32_t *ids, size_t n_ids,
                                tl_error *err) {
    uint64_t seen[WINDOW_IDS / 64];
    const uint32_t n_windows = (pool->cfg.n_blocks - 1) / WINDOW_IDS + 1;
    for (uint32_t window = 0; window < n_windows; window++) {
        memset(seen, 0, sizeof seen);
        for (size_t i = 0; i < n_ids; i++) {
            if (ids[i] / WINDOW_IDS != window) {
                continue;
            }
            const uint32_t bit = ids[i] % WINDOW_IDS;
            const uint64_t mark = UINT64_C(1) << (bit % 64);
            if ((seen[bit / 64] & mark) != 0) {
                return tli_fail(err, TL_ERR_INVALID, "kv export: block %lu is listed twice",
                                (unsigned long)ids[i]);
            }
            seen[bit / 64] |= mark;
        }
    }
    return TL_OK;
}

static tl_status check_exported(const tl_kv_pool *pool, const uint32_t *ids, size_t n_ids,
                                tl_error *err) {
    for (size_t i = 0; i < n_ids; i++) {
        TLI_TRY(tli_kv_check_id(pool, ids[i], "export", err));
    }
    TLI_TRY(check_distinct(pool, ids, n_ids, err));
    for (size_t i = 0; i < n_ids; i++) {
        const tli_kv_block *block = &pool->blocks[ids[i]];
        if (block->n_refs == 0) {
            return tli_fail(err, TL_ERR_STATE, "kv export: block %lu is %s, must be used",
                            (unsigned long)ids[i], block->registered ? "cached" : "free");
        }
    }
    return TL_OK;
}

/* One slab, with zeros from the fill on: what lies there is another request's. */
static uint8_t *write_slab(const tl_kv_pool *pool, const uint16_t *slab, uint32_t n_filled,
                           uint8_t *out) {
    const size_t n_head = head_len(pool, pool->cfg.block_tokens);
    const size_t n_shown = head_len(pool, n_filled);
    for (uint32_t head = 0; head < pool->cfg.n_kv_heads; head++) {
        for (size_t i = 0; i < n_shown; i++) {
            tli_store_u16(out + 2 * i, slab[i]);
        }
        memset(out + 2 * n_shown, 0, 2 * (n_head - n_shown));
        slab += n_head;
        out += 2 * n_head;
    }
    return out;
}

static uint8_t *write_record(const tl_kv_pool *pool, uint32_t id, uint8_t *out) {
    const tli_kv_block *block = &pool->blocks[id];
    tli_store_u32(out + AT_RECORD_FILL, block->n_filled);
    tli_store_u32(out + AT_RECORD_HAS_KEY, block->registered ? 1 : 0);
    memcpy(out + AT_RECORD_KEY, block->key.bytes, sizeof block->key.bytes);
    out += RECORD_HEAD_BYTES;
    for (uint32_t layer = 0; layer < pool->cfg.n_layers; layer++) {
        const uint16_t *k = tli_kv_slab_at(pool, id, layer, TL_KV_K);
        const uint16_t *v = tli_kv_slab_at(pool, id, layer, TL_KV_V);
        out = write_slab(pool, k, block->n_filled, out);
        out = write_slab(pool, v, block->n_filled, out);
    }
    return out;
}

/* After the payload, whose checksum it carries. n_ids <= n_blocks, since no id is listed twice. */
static void write_header(const tl_kv_pool *pool, size_t n_ids, size_t payload_bytes, uint8_t *buf) {
    const tl_kv_cfg *cfg = &pool->cfg;
    memcpy(buf + AT_MAGIC, magic, sizeof magic);
    tli_store_u32(buf + AT_VERSION, VERSION);
    tli_store_u32(buf + AT_HEADER_BYTES, HEADER_BYTES);
    tli_store_u32(buf + AT_DTYPE, (uint32_t)cfg->dtype);
    tli_store_u32(buf + AT_N_BLOCKS, (uint32_t)n_ids);
    tli_store_u32(buf + AT_BLOCK_TOKENS, cfg->block_tokens);
    tli_store_u32(buf + AT_N_LAYERS, cfg->n_layers);
    tli_store_u32(buf + AT_N_KV_HEADS, cfg->n_kv_heads);
    tli_store_u32(buf + AT_HEAD_DIM, cfg->head_dim);
    tli_store_u32(buf + AT_FLAGS, 0);
    tli_store_u64(buf + AT_PAYLOAD_BYTES, payload_bytes);
    tli_store_u64(buf + AT_MODEL_TAG, cfg->model_tag);
    tli_store_u32(buf + AT_PAYLOAD_CRC, crc_of(buf + HEADER_BYTES, payload_bytes));
    tli_store_u32(buf + AT_HEADER_CRC, crc_of(buf, AT_HEADER_CRC));
}

tl_status tl_kv_pool_export(const tl_kv_pool *pool, const uint32_t *ids, size_t n_ids, uint8_t *buf,
                            size_t buf_len, size_t *n_written, tl_error *err) {
    if (pool == NULL || n_written == NULL || (ids == NULL && n_ids != 0) ||
        (buf == NULL && buf_len != 0)) {
        return tli_fail(err, TL_ERR_INVALID, "kv export: %s is NULL",
                        pool == NULL                ? "the pool"
                        : n_written == NULL         ? "n_written"
                        : ids == NULL && n_ids != 0 ? "ids"
                                                    : "buf");
    }
    TLI_TRY(check_exported(pool, ids, n_ids, err));
    size_t size = 0;
    if (!envelope_bytes(pool, n_ids, &size)) {
        return tli_fail(err, TL_ERR_NOMEM, "kv export: the size of %zu blocks overflows", n_ids);
    }
    if (buf_len < size) {
        *n_written = size;
        return tli_fail(err, TL_ERR_CAPACITY, "kv export: the buffer has %zu bytes, %zu are needed",
                        buf_len, size);
    }
    TLI_ASSERT(buf != NULL); /* since its length is at least a header's */
    uint8_t *out = buf + HEADER_BYTES;
    for (size_t i = 0; i < n_ids; i++) {
        out = write_record(pool, ids[i], out);
    }
    write_header(pool, n_ids, size - HEADER_BYTES, buf);
    *n_written = size;
    return TL_OK;
}

/* ---- import: the checks, in the page's order ------------------------------------------------- */

static tl_status check_frame(const uint8_t *buf, size_t buf_len, tl_error *err) {
    if (buf_len < HEADER_BYTES) {
        return tli_fail_at(err, TL_ERR_FORMAT, buf_len,
                           "kv import: %zu bytes, a header alone has %u", buf_len, HEADER_BYTES);
    }
    if (memcmp(buf + AT_MAGIC, magic, sizeof magic) != 0) {
        return tli_fail_at(err, TL_ERR_FORMAT, AT_MAGIC,
                           "kv import: the first bytes are %02x %02x %02x %02x, must be "
                           "54 4c 4b 56 (TLKV)",
                           (unsigned)buf[0], (unsigned)buf[1], (unsigned)buf[2], (unsigned)buf[3]);
    }
    const uint32_t stored = tli_load_u32(buf + AT_HEADER_CRC);
    const uint32_t computed = crc_of(buf, AT_HEADER_CRC);
    if (stored != computed) {
        return tli_fail_at(err, TL_ERR_FORMAT, AT_HEADER_CRC,
                           "kv import: the header's checksum is %08lx, its bytes give %08lx",
                           (unsigned long)stored, (unsigned long)computed);
    }
    return TL_OK;
}

/* A field of the header that must have one value; `status` is the answer to any other. */
static tl_status check_field(const uint8_t *buf, size_t at, const char *name, uint32_t allowed,
                             tl_status status, tl_error *err) {
    const uint32_t found = tli_load_u32(buf + at);
    if (found != allowed) {
        return tli_fail_at(err, status, at, "kv import: %s is %lu, must be %lu", name,
                           (unsigned long)found, (unsigned long)allowed);
    }
    return TL_OK;
}

static tl_status check_model_tag(const tl_kv_pool *pool, const uint8_t *buf, tl_error *err) {
    const uint64_t theirs = tli_load_u64(buf + AT_MODEL_TAG);
    const uint64_t ours = pool->cfg.model_tag;
    const bool both_known = theirs != 0 && ours != 0;
    if (both_known && theirs != ours) {
        return tli_fail_at(err, TL_ERR_UNSUPPORTED, AT_MODEL_TAG,
                           "kv import: model_tag is %016llx, the pool's is %016llx",
                           (unsigned long long)theirs, (unsigned long long)ours);
    }
    return TL_OK;
}

static tl_status check_header(const tl_kv_pool *pool, const uint8_t *buf, tl_error *err) {
    const tl_kv_cfg *cfg = &pool->cfg;
    const tl_status other = TL_ERR_UNSUPPORTED;
    TLI_TRY(check_field(buf, AT_VERSION, "version", VERSION, other, err));
    TLI_TRY(check_field(buf, AT_HEADER_BYTES, "header_bytes", HEADER_BYTES, TL_ERR_FORMAT, err));
    TLI_TRY(check_field(buf, AT_FLAGS, "flags", 0, TL_ERR_FORMAT, err));
    TLI_TRY(check_field(buf, AT_DTYPE, "dtype", (uint32_t)cfg->dtype, other, err));
    TLI_TRY(check_field(buf, AT_BLOCK_TOKENS, "block_tokens", cfg->block_tokens, other, err));
    TLI_TRY(check_field(buf, AT_N_LAYERS, "n_layers", cfg->n_layers, other, err));
    TLI_TRY(check_field(buf, AT_N_KV_HEADS, "n_kv_heads", cfg->n_kv_heads, other, err));
    TLI_TRY(check_field(buf, AT_HEAD_DIM, "head_dim", cfg->head_dim, other, err));
    return check_model_tag(pool, buf, err);
}

static tl_status check_sizes(const tl_kv_pool *pool, const uint8_t *buf, size_t buf_len,
                             tl_error *err) {
    const uint32_t n_blocks = tli_load_u32(buf + AT_N_BLOCKS);
    uint64_t needed = 0;
    if (!tli_mul_u64(n_blocks, record_bytes(pool), &needed)) {
        return tli_fail_at(err, TL_ERR_FORMAT, AT_N_BLOCKS,
                           "kv import: the size of %lu blocks overflows", (unsigned long)n_blocks);
    }
    const uint64_t payload_bytes = tli_load_u64(buf + AT_PAYLOAD_BYTES);
    if (payload_bytes != needed) {
        return tli_fail_at(err, TL_ERR_FORMAT, AT_PAYLOAD_BYTES,
                           "kv import: payload_bytes is %llu, %lu blocks have %llu",
                           (unsigned long long)payload_bytes, (unsigned long)n_blocks,
                           (unsigned long long)needed);
    }
    const size_t n_there = buf_len - HEADER_BYTES;
    if (n_there != needed) {
        /* Either the length or this field is wrong; the field is what can be pointed at. */
        return tli_fail_at(err, TL_ERR_FORMAT, AT_PAYLOAD_BYTES,
                           "kv import: %zu bytes follow the header, must be %llu", n_there,
                           (unsigned long long)needed);
    }
    const uint32_t stored = tli_load_u32(buf + AT_PAYLOAD_CRC);
    const uint32_t computed = crc_of(buf + HEADER_BYTES, n_there);
    if (stored != computed) {
        return tli_fail_at(err, TL_ERR_FORMAT, AT_PAYLOAD_CRC,
                           "kv import: the payload's checksum is %08lx, its bytes give %08lx",
                           (unsigned long)stored, (unsigned long)computed);
    }
    return TL_OK;
}

/* Fill, has_key and key of the record at byte `at` of the envelope. */
static tl_status check_record_head(const tl_kv_pool *pool, const uint8_t *record, size_t at,
                                   tl_error *err) {
    static const uint8_t no_key[16] = {0};
    const uint32_t fill = tli_load_u32(record + AT_RECORD_FILL);
    const uint32_t has_key = tli_load_u32(record + AT_RECORD_HAS_KEY);
    const uint32_t block_tokens = pool->cfg.block_tokens;
    if (fill > block_tokens) {
        return tli_fail_at(err, TL_ERR_FORMAT, at + AT_RECORD_FILL,
                           "kv import: fill is %lu, a block has %lu positions", (unsigned long)fill,
                           (unsigned long)block_tokens);
    }
    if (has_key > 1) {
        return tli_fail_at(err, TL_ERR_FORMAT, at + AT_RECORD_HAS_KEY,
                           "kv import: has_key is %lu, must be 0 or 1", (unsigned long)has_key);
    }
    if (has_key == 1 && fill < block_tokens) {
        return tli_fail_at(err, TL_ERR_FORMAT, at + AT_RECORD_HAS_KEY,
                           "kv import: a key on a block with %lu of %lu positions filled",
                           (unsigned long)fill, (unsigned long)block_tokens);
    }
    if (has_key == 0 && memcmp(record + AT_RECORD_KEY, no_key, sizeof no_key) != 0) {
        return tli_fail_at(err, TL_ERR_FORMAT, at + AT_RECORD_KEY,
                           "kv import: the key of a block without one is not zero");
    }
    return TL_OK;
}

/* The record's values from the fill on, all zero bytes. */
static tl_status check_record_tail(const tl_kv_pool *pool, const uint8_t *record, size_t at,
                                   tl_error *err) {
    const size_t n_head = head_len(pool, pool->cfg.block_tokens);
    const size_t n_shown = head_len(pool, tli_load_u32(record + AT_RECORD_FILL));
    for (size_t start = 0; start < pool->block_len; start += n_head) {
        for (size_t i = start + n_shown; i < start + n_head; i++) {
            const size_t at_value = RECORD_HEAD_BYTES + 2 * i;
            const uint16_t value = tli_load_u16(record + at_value);
            if (value != 0) {
                return tli_fail_at(err, TL_ERR_FORMAT, at + at_value,
                                   "kv import: a value past the fill is %04x, must be 0000",
                                   (unsigned)value);
            }
        }
    }
    return TL_OK;
}

static tl_status check_records(const tl_kv_pool *pool, const uint8_t *buf, size_t buf_len,
                               tl_error *err) {
    const size_t step = record_bytes(pool);
    for (size_t at = HEADER_BYTES; at < buf_len; at += step) {
        TLI_TRY(check_record_head(pool, buf + at, at, err));
        TLI_TRY(check_record_tail(pool, buf + at, at, err));
    }
    return TL_OK;
}

static tl_status check_room(const tl_kv_pool *pool, size_t n_blocks, size_t ids_cap, size_t *n_ids,
                            tl_error *err) {
    const tl_kv_stats *stats = &pool->stats;
    const size_t n_available = (size_t)stats->n_free + stats->n_cached;
    if (n_blocks > n_available) {
        *n_ids = n_blocks;
        return tli_fail(err, TL_ERR_CAPACITY, "kv import: %zu blocks, %lu are free and %lu cached",
                        n_blocks, (unsigned long)stats->n_free, (unsigned long)stats->n_cached);
    }
    if (n_blocks > ids_cap) {
        *n_ids = n_blocks;
        return tli_fail(err, TL_ERR_CAPACITY, "kv import: %zu blocks, there is room for %zu ids",
                        n_blocks, ids_cap);
    }
    return TL_OK;
}

static tl_status check_envelope(const tl_kv_pool *pool, const uint8_t *buf, size_t buf_len,
                                tl_error *err) {
    TLI_TRY(check_frame(buf, buf_len, err));
    TLI_TRY(check_header(pool, buf, err));
    TLI_TRY(check_sizes(pool, buf, buf_len, err));
    return check_records(pool, buf, buf_len, err);
}

/* ---- import: the changes --------------------------------------------------------------------- */

static void read_record(tl_kv_pool *pool, uint32_t id, const uint8_t *record) {
    pool->blocks[id].n_filled = tli_load_u32(record + AT_RECORD_FILL);
    uint16_t *slabs = tli_kv_slab_at(pool, id, 0, TL_KV_K);
    for (size_t i = 0; i < pool->block_len; i++) {
        slabs[i] = tli_load_u16(record + RECORD_HEAD_BYTES + 2 * i);
    }
}

/* A key that the index has by now, from an earlier record perhaps, stays with the block that has
 * it. */
static void read_key(tl_kv_pool *pool, uint32_t id, const uint8_t *record) {
    const bool has_key = tli_load_u32(record + AT_RECORD_HAS_KEY) == 1;
    if (!has_key || pool->cfg.prefix_cache == TL_PREFIX_CACHE_OFF) {
        return;
    }
    tl_prefix_key key;
    memcpy(key.bytes, record + AT_RECORD_KEY, sizeof key.bytes);
    if (tli_kv_find(pool, &key) == TLI_KV_NONE) {
        tli_kv_enter(pool, id, &key);
    }
}

tl_status tl_kv_pool_import(tl_kv_pool *pool, const uint8_t *buf, size_t buf_len, uint32_t *ids,
                            size_t ids_cap, size_t *n_ids, tl_error *err) {
    if (pool == NULL || n_ids == NULL || (buf == NULL && buf_len != 0) ||
        (ids == NULL && ids_cap != 0)) {
        return tli_fail(err, TL_ERR_INVALID, "kv import: %s is NULL",
                        pool == NULL                  ? "the pool"
                        : n_ids == NULL               ? "n_ids"
                        : buf == NULL && buf_len != 0 ? "buf"
                                                      : "ids");
    }
    TLI_TRY(check_envelope(pool, buf, buf_len, err));
    const size_t n_blocks = tli_load_u32(buf + AT_N_BLOCKS);
    TLI_TRY(check_room(pool, n_blocks, ids_cap, n_ids, err));

    const size_t step = record_bytes(pool);
    for (size_t i = 0; i < n_blocks; i++) {
        ids[i] = tli_kv_take(pool);
    }
    for (size_t i = 0; i < n_blocks; i++) {
        read_record(pool, ids[i], buf + HEADER_BYTES + i * step);
    }
    for (size_t i = 0; i < n_blocks; i++) {
        read_key(pool, ids[i], buf + HEADER_BYTES + i * step);
    }
    *n_ids = n_blocks;
    return TL_OK;
}
