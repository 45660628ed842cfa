/* naive_kv.c: see naive_kv.h. */
#include "naive_kv.h"

#define REFS_MAX 65535u

naive_kv naive_kv_new(ol_test *t, uint32_t n_blocks, uint32_t block_tokens, bool cache_off) {
    naive_kv m = {.n_blocks = n_blocks, .block_tokens = block_tokens, .cache_off = cache_off};
    m.blocks = ol_alloc(t, n_blocks * sizeof *m.blocks);
    m.cached = ol_alloc(t, n_blocks * sizeof *m.cached);
    for (uint32_t i = 0; i < n_blocks; i++) {
        m.blocks[i].key = NAIVE_NO_KEY;
    }
    return m;
}

uint32_t naive_kv_used_blocks(const naive_kv *m) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_blocks; i++) {
        n += m->blocks[i].refs > 0 ? 1 : 0;
    }
    return n;
}

uint32_t naive_kv_free_blocks(const naive_kv *m) {
    return m->n_blocks - m->n_cached - naive_kv_used_blocks(m);
}

uint32_t naive_kv_find(const naive_kv *m, int key) {
    uint32_t id = 0;
    while (id < m->n_blocks && m->blocks[id].key != key) {
        id++;
    }
    return id;
}

/* ------------------------------------------------------------------ what must come */

static const char *expect_set_fill(const naive_kv *m, const naive_block *b, uint32_t fill) {
    bool state = b->refs == 0 || (b->key != NAIVE_NO_KEY && fill < m->block_tokens);
    bool invalid = fill > m->block_tokens;
    if (state && invalid) {
        return "INVALID|STATE";
    }
    if (invalid) {
        return "INVALID";
    }
    return state ? "STATE" : "OK";
}

static const char *expect_register(const naive_kv *m, const naive_block *b, int key) {
    bool full_and_used = b->refs > 0 && b->fill == m->block_tokens;
    bool other_key = b->key != NAIVE_NO_KEY && b->key != key;
    return full_and_used && !other_key && !m->cache_off ? "OK" : "STATE";
}

static const char *expect_lookup(const naive_kv *m, int key) {
    uint32_t id = naive_kv_find(m, key);
    if (m->cache_off || id == m->n_blocks) {
        return "NOT_FOUND";
    }
    return m->blocks[id].refs == REFS_MAX ? "STATE" : "OK";
}

const char *naive_kv_expect(const naive_kv *m, const naive_call *call) {
    if (call->op == NAIVE_ALLOC) {
        uint32_t room = naive_kv_free_blocks(m) + m->n_cached;
        return call->n <= room ? "OK" : "CAPACITY";
    }
    if (call->op == NAIVE_LOOKUP) {
        return expect_lookup(m, call->key);
    }
    if (call->id >= m->n_blocks) {
        return "INVALID";
    }
    const naive_block *b = &m->blocks[call->id];
    if (call->op == NAIVE_SET_FILL) {
        return expect_set_fill(m, b, call->n);
    }
    if (call->op == NAIVE_REGISTER) {
        return expect_register(m, b, call->key);
    }
    if (call->op == NAIVE_RETAIN && b->refs == REFS_MAX) {
        return "STATE";
    }
    return b->refs > 0 ? "OK" : "STATE";
}

/* ------------------------------------------------------------------ what came */

/* Take position `at` out of the list of cached blocks. */
static void uncache(naive_kv *m, uint32_t at) {
    for (uint32_t i = at; i + 1 < m->n_cached; i++) {
        m->cached[i] = m->cached[i + 1];
    }
    m->n_cached--;
}

static uint32_t place_in_cache(const naive_kv *m, uint32_t id) {
    uint32_t at = 0;
    while (at < m->n_cached && m->cached[at] != id) {
        at++;
    }
    return at;
}

/* The ids that alloc may give: any free ones, and exactly the oldest cached ones beyond these. */
static const char *apply_alloc(ol_test *t, naive_kv *m, const naive_call *call, const uint32_t *ids,
                               size_t n) {
    if (n != call->n) {
        return ol_text(t, "alloc of %u gave %zu ids", (unsigned)call->n, n);
    }
    uint32_t n_free = naive_kv_free_blocks(m);
    uint32_t n_evicted = n > n_free ? (uint32_t)n - n_free : 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= m->n_blocks || m->blocks[ids[i]].refs > 0) {
            return ol_text(t,
                           "alloc gave block %u, which is used, given twice or none of the pool's",
                           (unsigned)ids[i]);
        }
        if (m->blocks[ids[i]].key != NAIVE_NO_KEY && place_in_cache(m, ids[i]) >= n_evicted) {
            return ol_text(t,
                           "alloc evicted block %u, number %u of the cached ones by age, where %u "
                           "had to go",
                           (unsigned)ids[i], (unsigned)place_in_cache(m, ids[i]),
                           (unsigned)n_evicted);
        }
        m->blocks[ids[i]].refs = 1;
    }
    for (size_t i = 0; i < n; i++) {
        m->blocks[ids[i]] = (naive_block){.refs = 1, .key = NAIVE_NO_KEY};
    }
    for (uint32_t i = 0; i < n_evicted; i++) {
        uncache(m, 0);
    }
    return NULL;
}

static void apply_release(naive_kv *m, uint32_t id) {
    naive_block *b = &m->blocks[id];
    b->refs--;
    if (b->refs == 0 && b->key != NAIVE_NO_KEY) {
        m->cached[m->n_cached++] = id;
    }
}

static const char *apply_lookup(ol_test *t, naive_kv *m, int key, uint32_t got) {
    uint32_t id = naive_kv_find(m, key);
    if (got != id) {
        return ol_text(t, "look-up gave block %u, the key is block %u's", (unsigned)got,
                       (unsigned)id);
    }
    if (m->blocks[id].refs == 0) {
        uncache(m, place_in_cache(m, id));
    }
    m->blocks[id].refs++;
    return NULL;
}

const char *naive_kv_apply(ol_test *t, naive_kv *m, const naive_call *call, const uint32_t *ids,
                           size_t n) {
    switch (call->op) {
    case NAIVE_ALLOC:
        return apply_alloc(t, m, call, ids, n);
    case NAIVE_RETAIN:
        m->blocks[call->id].refs++;
        break;
    case NAIVE_RELEASE:
        apply_release(m, call->id);
        break;
    case NAIVE_SET_FILL:
        m->blocks[call->id].fill = call->n;
        break;
    case NAIVE_REGISTER:
        /* A key keeps its first block. */
        if (naive_kv_find(m, call->key) == m->n_blocks) {
            m->blocks[call->id].key = call->key;
        }
        break;
    case NAIVE_LOOKUP:
        return apply_lookup(t, m, call->key, ids[0]);
    case NAIVE_SLAB:
        break;
    }
    return NULL;
}
