/* envelope.c: see envelope.h. */
#include "envelope.h"

#include <string.h>

/* The polynomial of IEEE 802.3, reflected, bit by bit: nothing of zlib. */
uint32_t env_crc32(const uint8_t *bytes, size_t n_bytes) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xedb88320u : 0);
        }
    }
    return ~crc;
}

size_t env_record_bytes(const kv_shape *shape) {
    return ENV_SLABS + (size_t)shape->n_layers * 2 * kv_slab_len(shape) * 2;
}

size_t env_record_at(const kv_shape *shape, size_t i_block) {
    return ENV_HEADER + i_block * env_record_bytes(shape);
}

size_t env_element_at(const kv_shape *shape, size_t i_block, size_t i_slab, size_t at) {
    return env_record_at(shape, i_block) + ENV_SLABS + (i_slab * kv_slab_len(shape) + at) * 2;
}

bool env_is_stale(const kv_shape *shape, size_t at, uint32_t fill) {
    size_t position = at / shape->head_dim % shape->block_tokens;
    return position >= fill;
}

void env_put_u32(envelope *e, size_t at, uint32_t v) {
    for (unsigned i = 0; i < 4; i++) {
        e->bytes[at + i] = (uint8_t)(v >> (8 * i));
    }
}

void env_put_u64(envelope *e, size_t at, uint64_t v) {
    env_put_u32(e, at, (uint32_t)v);
    env_put_u32(e, at + 4, (uint32_t)(v >> 32));
}

uint32_t env_u32(const uint8_t *bytes, size_t at) {
    uint32_t v = 0;
    for (unsigned i = 0; i < 4; i++) {
        v |= (uint32_t)bytes[at + i] << (8 * i);
    }
    return v;
}

uint64_t env_u64(const uint8_t *bytes, size_t at) {
    return env_u32(bytes, at) | ((uint64_t)env_u32(bytes, at + 4) << 32);
}

void env_seal_header(envelope *e) {
    env_put_u32(e, ENV_HEADER_CRC, env_crc32(e->bytes, ENV_HEADER_CRC));
}

void env_seal(envelope *e) {
    env_put_u32(e, ENV_PAYLOAD_CRC, env_crc32(e->bytes + ENV_HEADER, e->n_bytes - ENV_HEADER));
    env_seal_header(e);
}

static void put_record(envelope *e, const kv_shape *shape, size_t i, const env_block *block) {
    size_t at = env_record_at(shape, i);
    size_t slab_len = kv_slab_len(shape);
    env_put_u32(e, at + ENV_FILL, block->fill);
    env_put_u32(e, at + ENV_HAS_KEY, block->key == KV_NO_KEY ? 0 : 1);
    if (block->key != KV_NO_KEY) {
        char text[KV_KEY_TEXT];
        (void)kv_key(block->key, text);
        for (size_t j = 0; j < 16; j++) {
            unsigned high =
                (unsigned)(text[2 * j] <= '9' ? text[2 * j] - '0' : text[2 * j] - 'a' + 10);
            unsigned low = (unsigned)(text[2 * j + 1] <= '9' ? text[2 * j + 1] - '0'
                                                             : text[2 * j + 1] - 'a' + 10);
            e->bytes[at + ENV_KEY + j] = (uint8_t)(high * 16 + low);
        }
    }
    for (size_t j = 0; j < 2 * shape->n_layers * slab_len; j++) {
        uint16_t value = env_is_stale(shape, j % slab_len, block->fill) ? 0 : block->slabs[j];
        size_t to = env_element_at(shape, i, 0, j);
        e->bytes[to] = (uint8_t)(value & 0xffu);
        e->bytes[to + 1] = (uint8_t)(value >> 8);
    }
}

envelope env_build(ol_test *t, const kv_shape *shape, const env_block *blocks, size_t n_blocks) {
    envelope e = {.n_bytes = ENV_HEADER + n_blocks * env_record_bytes(shape)};
    e.bytes = ol_alloc(t, e.n_bytes);
    memcpy(e.bytes, "TLKV", 4);
    env_put_u32(&e, ENV_VERSION, 1);
    env_put_u32(&e, ENV_HEADER_BYTES, ENV_HEADER);
    env_put_u32(&e, ENV_DTYPE, 1);
    env_put_u32(&e, ENV_N_BLOCKS, (uint32_t)n_blocks);
    env_put_u32(&e, ENV_BLOCK_TOKENS, shape->block_tokens);
    env_put_u32(&e, ENV_N_LAYERS, shape->n_layers);
    env_put_u32(&e, ENV_N_KV_HEADS, shape->n_kv_heads);
    env_put_u32(&e, ENV_HEAD_DIM, shape->head_dim);
    env_put_u64(&e, ENV_PAYLOAD_BYTES, e.n_bytes - ENV_HEADER);
    env_put_u64(&e, ENV_MODEL_TAG, shape->model_tag);
    for (size_t i = 0; i < n_blocks; i++) {
        put_record(&e, shape, i, &blocks[i]);
    }
    env_seal(&e);
    return e;
}

envelope env_copy(ol_test *t, const envelope *from, size_t n_bytes) {
    envelope e = {.bytes = ol_alloc(t, n_bytes + 1), .n_bytes = n_bytes};
    memcpy(e.bytes, from->bytes, n_bytes < from->n_bytes ? n_bytes : from->n_bytes);
    return e;
}

const json_t *env_import(kv_script *k, const envelope *e, int64_t cap) {
    if (k->broken) {
        return NULL;
    }
    json_t *args =
        json_pack("{s:I, s:o}", "pool", (json_int_t)k->pool, "bytes", ol_u8(e->bytes, e->n_bytes));
    if (cap >= 0) {
        (void)json_object_set_new(args, "cap", json_integer((json_int_t)cap));
    }
    return ol_call_object(k->t, "kv_import", args);
}

const json_t *env_export(kv_script *k, const uint32_t *ids, size_t n_ids, int64_t cap) {
    if (k->broken) {
        return NULL;
    }
    json_t *args = json_pack("{s:I, s:o}", "pool", (json_int_t)k->pool, "ids", ol_u32(ids, n_ids));
    if (cap >= 0) {
        (void)json_object_set_new(args, "cap", json_integer((json_int_t)cap));
    }
    return ol_call_object(k->t, "kv_export", args);
}

void env_take(kv_script *k, const envelope *e, uint32_t *ids, size_t n) {
    const json_t *answer = env_import(k, e, -1);
    memset(ids, 0, n * sizeof *ids);
    if (answer == NULL) {
        return;
    }
    size_t n_got = 0;
    if (!ol_check_ok(k->t, k->check, answer, "import")) {
        k->broken = true;
        return;
    }
    const uint32_t *got = ol_res_u32s(k->t, answer, "ids", &n_got);
    if (!ol_check_int(k->t, k->check, (int64_t)n_got, (int64_t)n, "number of ids from import")) {
        k->broken = true;
        return;
    }
    memcpy(ids, got, n * sizeof *ids);
}
