/* envelope.h: the transfer envelope, built and read by the judge's own code.
 *
 * An envelope is built from fields and records and then sealed (both checksums, its own bitwise
 * CRC-32); a test changes bytes between building and sealing, so that a fault is reached behind
 * right checksums.
 *
 * Source: conformance/spec/kv-block.md, clause envelope. */
#ifndef OL_ENVELOPE_H
#define OL_ENVELOPE_H

#include "kv_script.h"

/* Where the fields of the header stand. */
enum {
    ENV_MAGIC = 0,
    ENV_VERSION = 4,
    ENV_HEADER_BYTES = 8,
    ENV_DTYPE = 12,
    ENV_N_BLOCKS = 16,
    ENV_BLOCK_TOKENS = 20,
    ENV_N_LAYERS = 24,
    ENV_N_KV_HEADS = 28,
    ENV_HEAD_DIM = 32,
    ENV_FLAGS = 36,
    ENV_PAYLOAD_BYTES = 40,
    ENV_MODEL_TAG = 48,
    ENV_PAYLOAD_CRC = 56,
    ENV_HEADER_CRC = 60,
    ENV_HEADER = 64,
    /* and of a record, from its start */
    ENV_FILL = 0,
    ENV_HAS_KEY = 4,
    ENV_KEY = 8,
    ENV_SLABS = 24
};

typedef struct envelope {
    uint8_t *bytes;
    size_t n_bytes;
} envelope;

/* One block to send. */
typedef struct env_block {
    uint32_t fill;
    int key;               /* number as in kv_key, or KV_NO_KEY */
    const uint16_t *slabs; /* [2 * n_layers * slab_len]: K and V of layer 0, of layer 1, ... */
} env_block;

uint32_t env_crc32(const uint8_t *bytes, size_t n_bytes);
size_t env_record_bytes(const kv_shape *shape);
size_t env_record_at(const kv_shape *shape, size_t i_block); /* where record i starts */
/* Where element `at` of slab i_slab (K and V in turn) of a record stands, from the start of the
 * envelope. */
size_t env_element_at(const kv_shape *shape, size_t i_block, size_t i_slab, size_t at);
/* Is this element of a slab at a position from `fill` on? */
bool env_is_stale(const kv_shape *shape, size_t at, uint32_t fill);

/* Build and seal; values at positions from the fill on become zeros. */
envelope env_build(ol_test *t, const kv_shape *shape, const env_block *blocks, size_t n_blocks);
envelope env_copy(ol_test *t, const envelope *from, size_t n_bytes); /* cut, or longer by zeros */
void env_put_u32(envelope *e, size_t at, uint32_t v);
void env_put_u64(envelope *e, size_t at, uint64_t v);
uint32_t env_u32(const uint8_t *bytes, size_t at);
uint64_t env_u64(const uint8_t *bytes, size_t at);
void env_seal(envelope *e);        /* both checksums */
void env_seal_header(envelope *e); /* the header's alone */

/* Make the calls on a script's pool; NULL when the script is broken. cap < 0: left out. */
const json_t *env_import(kv_script *k, const envelope *e, int64_t cap);
const json_t *env_export(kv_script *k, const uint32_t *ids, size_t n_ids, int64_t cap);
/* Import that must succeed with n blocks; their ids. */
void env_take(kv_script *k, const envelope *e, uint32_t *ids, size_t n);

#endif
