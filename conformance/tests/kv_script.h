/* kv_script.h: a scenario of one pool, written as a list of steps.
 *
 * A script belongs to one check. Each step makes one call and says what must come of it; what does
 * not is recorded as a failure of the check. Where a step that the rest stands on fails, the script
 * is broken: the remaining steps make no call and record nothing, so that one fault is told
 * once. */
#ifndef OL_KV_SCRIPT_H
#define OL_KV_SCRIPT_H

#include "tests.h"

typedef struct kv_shape {
    uint32_t n_blocks, block_tokens, n_layers, n_kv_heads, head_dim;
    bool cache_off;
    uint64_t model_tag;
} kv_shape;

typedef struct kv_script {
    ol_test *t;
    const char *check;
    kv_shape shape;
    int64_t pool;
    bool broken;
} kv_script;

#define KV_NO_KEY (-1)
#define KV_ZEROS_KEY (-2) /* fifteen zero bytes and a 1, as a counter makes them */
#define KV_KEY_TEXT 33    /* bytes of a key's text */

/* The key of this number, in `text`: 32 hex digits, each byte of it differing between numbers. */
const char *kv_key(int number, char text[KV_KEY_TEXT]);
size_t kv_slab_len(const kv_shape *shape);
json_t *kv_shape_args(const kv_shape *shape); /* of kv_new; new reference */

kv_script kv_open(ol_test *t, const char *check, kv_shape shape); /* must succeed */
void kv_close(kv_script *k);

/* Steps that must succeed. */
void kv_alloc(kv_script *k, uint32_t *ids, size_t n);
uint32_t kv_take(kv_script *k);                        /* alloc of one */
void kv_do(kv_script *k, const char *op, uint32_t id); /* kv_retain, kv_release */
void kv_set_fill(kv_script *k, uint32_t id, uint32_t fill);
void kv_register(kv_script *k, uint32_t id, int key);
uint32_t kv_lookup(kv_script *k, int key);
void kv_finds(kv_script *k, int key, uint32_t id); /* lookup gives this block */
void kv_fill_and_register(kv_script *k, uint32_t id, int key);
void kv_cache(kv_script *k, uint32_t id, int key); /* and its one reference given back */
void kv_write(kv_script *k, uint32_t id, uint32_t layer, const char *side, const uint16_t *values,
              size_t n);
/* The whole slab; NULL when the script is broken. Its length is checked. */
const uint16_t *kv_read(kv_script *k, uint32_t id, uint32_t layer, const char *side);
uint64_t kv_digest(kv_script *k);

/* Steps that must be refused. `statuses` as in ol_check_refused. */
void kv_alloc_refused(kv_script *k, size_t n, const char *what); /* CAPACITY */
void kv_refused(kv_script *k, const char *op, uint32_t id, const char *statuses, const char *what);
void kv_set_fill_refused(kv_script *k, uint32_t id, uint32_t fill, const char *statuses,
                         const char *what);
void kv_register_refused(kv_script *k, uint32_t id, int key, const char *statuses,
                         const char *what);
void kv_lookup_refused(kv_script *k, int key, const char *statuses, const char *what);
void kv_read_refused(kv_script *k, uint32_t id, uint32_t layer, const char *side,
                     const char *statuses, const char *what);
/* Every call that takes an id and a used block: retain, release, set_fill, register, both slab
 * calls. */
void kv_all_refused(kv_script *k, uint32_t id, const char *statuses, const char *what);

/* Steps that look. */
void kv_stats_are(kv_script *k, uint32_t n_free, uint32_t n_cached, uint32_t n_used,
                  const char *what);
/* key: a number or KV_NO_KEY. fill -1: not looked at. */
void kv_info_is(kv_script *k, uint32_t id, uint32_t refs, int64_t fill, int key, const char *what);
void kv_digest_is(kv_script *k, uint64_t want, const char *what);
/* Two sets of ids are equal, whatever their order. */
void kv_same_ids(kv_script *k, const uint32_t *got, const uint32_t *want, size_t n,
                 const char *what);

#endif
