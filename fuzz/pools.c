/* pools.c: see pools.h. */
#include "pools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

tl_kv_cfg pools_shape(fuzz_tape *tape) {
    const uint8_t options = fuzz_u8(tape);
    tl_kv_cfg cfg = {.dtype = TL_KV_DTYPE_F16 + (options >> 7),
                     .format = TL_KV_FORMAT_V1 + ((options >> 6) & 1),
                     .prefix_cache = (options & 1) == 0 ? TL_PREFIX_CACHE_ON : TL_PREFIX_CACHE_OFF,
                     .model_tag = (options & 2) == 0 ? 0 : UINT64_C(0x0123456789abcdef)};
    cfg.n_blocks = fuzz_u8(tape) % POOL_BLOCKS_MAX;
    cfg.block_tokens = fuzz_u8(tape) % 5;
    cfg.n_layers = fuzz_u8(tape) % 3;
    cfg.n_kv_heads = fuzz_u8(tape) % 3;
    cfg.head_dim = fuzz_u8(tape) % 5;
    return cfg;
}

bool pools_new(pools *p, fuzz_case *f, fuzz_tape *tape) {
    tl_error err = fuzz_error();
    memset(p, 0, sizeof *p);
    p->f = f;
    p->cfg = pools_shape(tape);
    const tl_status got = f->tl->kv_pool_new(&p->a, &p->cfg, &err);
    fuzz_check_error(f, "kv_pool_new", got, &err, 0);
    return fuzz_agree(f, "kv_pool_new", got, f->second->kv_pool_new(&p->b, &p->cfg, &err));
}

void pools_free(pools *p) {
    p->f->tl->kv_pool_free(p->a);
    p->f->second->kv_pool_free(p->b);
}

/* ------------------------------------------------------------------ slots */

static uint32_t slot_of_a(const pools *p, uint32_t id) {
    uint32_t i = 0;
    while (i < p->n_slots && p->slots[i].a != id) {
        i++;
    }
    return i;
}

static uint32_t slot_of_b(const pools *p, uint32_t id) {
    uint32_t i = 0;
    while (i < p->n_slots && p->slots[i].b != id) {
        i++;
    }
    return i;
}

static void drop_slot(pools *p, uint32_t i) {
    p->n_slots--;
    p->slots[i] = p->slots[p->n_slots];
}

/* A block that has no slot, in each pool: both are free. n_blocks when there is none. */
static slot free_block(const pools *p) {
    slot s = {0, 0};
    while (s.a < p->cfg.n_blocks && slot_of_a(p, s.a) < p->n_slots) {
        s.a++;
    }
    while (s.b < p->cfg.n_blocks && slot_of_b(p, s.b) < p->n_slots) {
        s.b++;
    }
    return s;
}

slot pools_pick(const pools *p, fuzz_tape *tape) {
    const uint8_t byte = fuzz_u8(tape);
    if (byte < 200 && p->n_slots > 0) {
        return p->slots[byte % p->n_slots];
    }
    if (byte < 240) {
        return free_block(p);
    }
    const uint32_t past = byte == 255 ? UINT32_MAX : p->cfg.n_blocks + byte - 240;
    return (slot){past, past};
}

void pools_took(pools *p, const uint32_t *ids_a, const uint32_t *ids_b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t evicted = slot_of_a(p, ids_a[i]);
        if (evicted == p->n_slots) {
            continue;
        }
        bool is_there = false;
        for (size_t k = 0; k < n; k++) {
            is_there = is_there || ids_b[k] == p->slots[evicted].b;
        }
        if (!is_there) {
            (void)fuzz_wrong(p->f, "alloc: the two evicted different blocks");
            return;
        }
        drop_slot(p, evicted);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids_a[i] >= p->cfg.n_blocks || slot_of_a(p, ids_a[i]) < p->n_slots ||
            slot_of_b(p, ids_b[i]) < p->n_slots) {
            (void)fuzz_wrong(p->f, "alloc: block %u is no block, or not to be had", ids_a[i]);
            return;
        }
        p->slots[p->n_slots] = (slot){ids_a[i], ids_b[i]};
        p->n_slots++;
    }
}

/* ------------------------------------------------------------------ looking at everything */

static void compare_slot(pools *p, const slot *s) {
    tl_kv_block_info x;
    tl_kv_block_info y;
    memset(&x, 0, sizeof x);
    memset(&y, 0, sizeof y);
    const tl_status got = p->f->tl->kv_pool_block_info(p->a, s->a, &x, NULL);
    const tl_status want = p->f->second->kv_pool_block_info(p->b, s->b, &y, NULL);
    if (got != want || x.n_refs != y.n_refs || x.n_filled != y.n_filled ||
        x.registered != y.registered || memcmp(&x.key, &y.key, sizeof x.key) != 0) {
        (void)fuzz_wrong(p->f, "block %u: refs %u fill %u key %d, the second has %u %u %d", s->a,
                         x.n_refs, x.n_filled, x.registered, y.n_refs, y.n_filled, y.registered);
    }
}

/* The used blocks in the order of the slots. */
static size_t used_slots(const pools *p, uint32_t *ids_a, uint32_t *ids_b) {
    size_t n = 0;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        tl_kv_block_info info;
        if (p->f->tl->kv_pool_block_info(p->a, p->slots[i].a, &info, NULL) == TL_OK &&
            info.n_refs > 0) {
            ids_a[n] = p->slots[i].a;
            ids_b[n] = p->slots[i].b;
            n++;
        }
    }
    return n;
}

static void compare_exports(pools *p) {
    uint32_t ids_a[POOL_BLOCKS_MAX];
    uint32_t ids_b[POOL_BLOCKS_MAX];
    size_t n_a = 0;
    size_t n_b = 0;
    const size_t n = used_slots(p, ids_a, ids_b);
    tl_status got = p->f->tl->kv_pool_export_size(p->a, n, &n_a, NULL);
    const tl_status want = p->f->second->kv_pool_export_size(p->b, n, &n_b, NULL);
    if (got != TL_OK || want != TL_OK || n_a != n_b) {
        (void)fuzz_wrong(p->f, "export_size of %zu blocks: %zu, the second says %zu", n, n_a, n_b);
        return;
    }
    uint8_t *x = fuzz_alloc(n_a);
    uint8_t *y = fuzz_alloc(n_a);
    got = p->f->tl->kv_pool_export(p->a, ids_a, n, x, n_a, &n_b, NULL);
    if (got != TL_OK || n_b != n_a ||
        p->f->second->kv_pool_export(p->b, ids_b, n, y, n_a, &n_b, NULL) != TL_OK ||
        memcmp(x, y, n_a) != 0) {
        (void)fuzz_wrong(p->f, "export of %zu used blocks: %s, or other bytes", n,
                         p->f->tl->status_name(got));
    }
    free(x);
    free(y);
}

void pools_compare(pools *p) {
    const tl_kv_stats x = p->f->tl->kv_pool_stats(p->a);
    const tl_kv_stats y = p->f->second->kv_pool_stats(p->b);
    if (x.n_free != y.n_free || x.n_cached != y.n_cached || x.n_used != y.n_used ||
        x.n_free + x.n_cached + x.n_used != p->cfg.n_blocks) {
        (void)fuzz_wrong(p->f, "stats: %u free %u cached %u used, the second has %u %u %u",
                         x.n_free, x.n_cached, x.n_used, y.n_free, y.n_cached, y.n_used);
    }
    for (uint32_t i = 0; i < p->n_slots; i++) {
        compare_slot(p, &p->slots[i]);
    }
    compare_exports(p);
}

/* Any NaN as one: which it is may change when a step is made again (forward#nan). */
static void copy_slab(const uint16_t *slab, size_t n, uint8_t *to) {
    for (size_t i = 0; i < n; i++) {
        const uint16_t value = (slab[i] & 0x7fff) > 0x7c00 ? 0x7e00 : slab[i];
        memcpy(to + 2 * i, &value, 2);
    }
}

pool_picture pools_picture(const pools *p) {
    const size_t slab_len = (size_t)p->cfg.n_kv_heads * p->cfg.block_tokens * p->cfg.head_dim;
    const size_t n_slabs = 2 * (size_t)p->cfg.n_layers;
    const size_t per_block = 32 + n_slabs * slab_len * 2;
    pool_picture picture = {.n = p->cfg.n_blocks * per_block};
    picture.bytes = fuzz_alloc(picture.n);
    for (uint32_t id = 0; id < p->cfg.n_blocks; id++) {
        uint8_t *to = picture.bytes + id * per_block;
        tl_kv_block_info info;
        if (p->f->tl->kv_pool_block_info(p->a, id, &info, NULL) != TL_OK) {
            continue;
        }
        memcpy(to, &info.n_refs, 4);
        memcpy(to + 4, &info.n_filled, 4);
        to[8] = info.registered;
        memcpy(to + 16, info.key.bytes, 16);
        for (size_t i = 0; info.n_refs > 0 && i < n_slabs; i++) {
            const uint16_t *slab = NULL;
            size_t n = 0;
            if (p->f->tl->kv_pool_slab(p->a, id, (uint32_t)(i / 2), (tl_kv_side)(i % 2), &slab, &n,
                                       NULL) == TL_OK &&
                n == slab_len) {
                copy_slab(slab, slab_len, to + 32 + i * slab_len * 2);
            }
        }
    }
    return picture;
}

void pools_unchanged(pools *p, const char *call, pool_picture *before) {
    pool_picture now = pools_picture(p);
    if (now.n != before->n || memcmp(now.bytes, before->bytes, now.n) != 0) {
        (void)fuzz_wrong(p->f, "%s: refused, and the pool has changed", call);
    }
    free(now.bytes);
    free(before->bytes);
    before->bytes = NULL;
}

/* x [n_kv_heads][B][head_dim] against y, up to the fill; y becomes x. */
static bool take_slab(const pools *p, const uint16_t *x, uint16_t *y, uint32_t fill) {
    const size_t per_head = (size_t)p->cfg.block_tokens * p->cfg.head_dim;
    float largest = 0.0f;
    bool near = true;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < p->cfg.n_kv_heads * per_head; i++) {
            if (i % per_head >= (size_t)fill * p->cfg.head_dim) {
                continue;
            }
            const float a = p->f->tl->f16_to_f32(x[i]);
            const float b = p->f->tl->f16_to_f32(y[i]);
            largest = isfinite(a) && fabsf(a) > largest ? fabsf(a) : largest;
            if (pass == 1 && isfinite(a) && isfinite(b)) {
                near = near && fabsf(a - b) <= largest * 0x1p-9f;
            }
        }
    }
    memcpy(y, x, p->cfg.n_kv_heads * per_head * sizeof *y);
    return near;
}

void pools_take_slabs(pools *p) {
    for (uint32_t i = 0; i < p->n_slots * 2 * p->cfg.n_layers; i++) {
        const slot *s = &p->slots[i / (2 * p->cfg.n_layers)];
        const uint32_t layer = i / 2 % p->cfg.n_layers;
        const tl_kv_side side = (tl_kv_side)(i % 2);
        const uint16_t *x = NULL;
        uint16_t *y = NULL;
        size_t n = 0;
        tl_kv_block_info info;
        if (p->f->tl->kv_pool_block_info(p->a, s->a, &info, NULL) == TL_OK && info.n_refs > 0 &&
            p->f->tl->kv_pool_slab(p->a, s->a, layer, side, &x, &n, NULL) == TL_OK &&
            p->f->second->kv_pool_slab_mut(p->b, s->b, layer, side, &y, &n, NULL) == TL_OK &&
            !take_slab(p, x, y, info.n_filled)) {
            (void)fuzz_wrong(p->f, "forward: a slab of block %u is not near the second's", s->a);
        }
    }
}

/* ------------------------------------------------------------------ calls */

static tl_prefix_key key_of(uint8_t number) {
    tl_prefix_key key;
    memset(&key, 0, sizeof key);
    key.bytes[0] = number % 6; /* few, so that they meet */
    key.bytes[15] = (uint8_t)(number % 6 * 41);
    return key;
}

/* What a fresh block holds is not said, and set_fill may show it: the same in both from here on. */
static void clear_slabs(pools *p, uint32_t a, uint32_t b) {
    for (uint32_t i = 0; i < 2 * p->cfg.n_layers; i++) {
        uint16_t *x = NULL;
        uint16_t *y = NULL;
        size_t n_x = 0;
        size_t n_y = 0;
        const tl_kv_side side = (tl_kv_side)(i % 2);
        if (p->f->tl->kv_pool_slab_mut(p->a, a, i / 2, side, &x, &n_x, NULL) != TL_OK ||
            p->f->second->kv_pool_slab_mut(p->b, b, i / 2, side, &y, &n_y, NULL) != TL_OK) {
            (void)fuzz_wrong(p->f, "slab_mut: block %u was taken and has no slab", a);
            return;
        }
        memset(x, 0, n_x * sizeof *x);
        memset(y, 0, n_y * sizeof *y);
    }
}

static tl_status do_alloc(pools *p, fuzz_tape *tape, tl_status *want, tl_error *err) {
    uint32_t ids_a[2 * POOL_BLOCKS_MAX];
    uint32_t ids_b[2 * POOL_BLOCKS_MAX];
    const size_t n = fuzz_u8(tape) % (p->cfg.n_blocks + 2);
    memset(ids_a, 0xa5, sizeof ids_a);
    const tl_status got = p->f->tl->kv_pool_alloc(p->a, ids_a, n, err);
    *want = p->f->second->kv_pool_alloc(p->b, ids_b, n, NULL);
    if (got == TL_OK && *want == TL_OK) {
        pools_took(p, ids_a, ids_b, n);
        for (size_t i = 0; i < n && p->f->wrong[0] == '\0'; i++) {
            clear_slabs(p, ids_a[i], ids_b[i]);
        }
    } else if (ids_a[0] != 0xa5a5a5a5) {
        (void)fuzz_wrong(p->f, "alloc: refused, and ids were written");
    }
    return got;
}

/* A block without references that has no key any more is no slot. */
static void settle(pools *p, slot s) {
    tl_kv_block_info info;
    const uint32_t i = slot_of_a(p, s.a);
    if (i < p->n_slots && p->f->tl->kv_pool_block_info(p->a, s.a, &info, NULL) == TL_OK &&
        info.n_refs == 0 && !info.registered) {
        drop_slot(p, i);
    }
}

static tl_status do_lookup(pools *p, const tl_prefix_key *key, tl_status *want, tl_error *err) {
    uint32_t a = 0xa5a5a5a5;
    uint32_t b = 0;
    const tl_status got = p->f->tl->kv_pool_lookup(p->a, key, &a, err);
    *want = p->f->second->kv_pool_lookup(p->b, key, &b, NULL);
    if (got == TL_OK && *want == TL_OK) {
        const uint32_t i = slot_of_a(p, a);
        if (i == p->n_slots || p->slots[i].b != b) {
            (void)fuzz_wrong(p->f, "lookup: block %u, the second has another one", a);
        }
    } else if (got != TL_OK && a != 0xa5a5a5a5) {
        (void)fuzz_wrong(p->f, "lookup: refused, and the id was written");
    }
    return got;
}

/* Write the same values into a slab of both. */
static tl_status do_write(pools *p, slot s, fuzz_tape *tape, tl_status *want, tl_error *err) {
    uint16_t *x = NULL;
    uint16_t *y = NULL;
    size_t n_x = 0;
    size_t n_y = 0;
    const uint32_t layer = fuzz_u8(tape) % 4;
    const tl_kv_side side = (tl_kv_side)(fuzz_u8(tape) % 3);
    fuzz_rng rng = {.state = fuzz_u8(tape)};
    const tl_status got = p->f->tl->kv_pool_slab_mut(p->a, s.a, layer, side, &x, &n_x, err);
    *want = p->f->second->kv_pool_slab_mut(p->b, s.b, layer, side, &y, &n_y, NULL);
    if (got == TL_OK && *want == TL_OK && n_x == n_y) {
        for (size_t i = 0; i < n_x; i++) {
            x[i] = (uint16_t)fuzz_next(&rng);
            y[i] = x[i];
        }
    } else if (n_x != n_y) {
        (void)fuzz_wrong(p->f, "slab: %zu elements, the second has %zu", n_x, n_y);
    }
    return got;
}

static tl_status do_register(pools *p, slot s, fuzz_tape *tape, tl_status *want, tl_error *err) {
    const tl_prefix_key key = key_of(fuzz_u8(tape));
    const tl_status got = p->f->tl->kv_pool_register(p->a, s.a, &key, err);
    *want = p->f->second->kv_pool_register(p->b, s.b, &key, NULL);
    return got;
}

/* Many references at once, so that their limit is met. */
static tl_status do_retain(pools *p, slot s, size_t times, tl_status *want, tl_error *err) {
    tl_status got = TL_OK;
    *want = TL_OK;
    for (size_t i = 0; i < times && got == TL_OK && *want == TL_OK; i++) {
        got = p->f->tl->kv_pool_retain(p->a, s.a, err);
        *want = p->f->second->kv_pool_retain(p->b, s.b, NULL);
    }
    return got;
}

/* Export the slots that the tape names, also twice, also unused ones, into a buffer that may be
 * short. */
static tl_status do_export(pools *p, fuzz_tape *tape, tl_status *want, tl_error *err) {
    uint32_t ids_a[6];
    uint32_t ids_b[6];
    const uint8_t byte = fuzz_u8(tape);
    const size_t n = byte % 6;
    size_t n_bytes = 0;
    size_t written_a = 12345;
    size_t written_b = 12345;
    for (size_t i = 0; i < n; i++) {
        const slot s = pools_pick(p, tape);
        ids_a[i] = s.a;
        ids_b[i] = s.b;
    }
    if (p->f->tl->kv_pool_export_size(p->a, n, &n_bytes, NULL) != TL_OK) {
        (void)fuzz_wrong(p->f, "export_size of %zu blocks fails", n);
        return *want = TL_OK;
    }
    const size_t cap = byte < 128 ? n_bytes : n_bytes - (size_t)(byte % 5) * n_bytes / 5;
    uint8_t *x = fuzz_alloc(cap);
    uint8_t *y = fuzz_alloc(cap);
    memset(x, 0xa5, cap);
    memset(y, 0xa5, cap);
    const tl_status got = p->f->tl->kv_pool_export(p->a, ids_a, n, x, cap, &written_a, err);
    *want = p->f->second->kv_pool_export(p->b, ids_b, n, y, cap, &written_b, NULL);
    if (written_a != written_b || memcmp(x, y, cap) != 0) {
        (void)fuzz_wrong(p->f, "export: wrote %zu, the second %zu, or other bytes", written_a,
                         written_b);
    }
    free(x);
    free(y);
    return got;
}

static tl_status call(pools *p, uint8_t op, fuzz_tape *tape, tl_status *want, tl_error *err) {
    const host_api *tl = p->f->tl;
    tl_status got = TL_OK;
    if (op == 0) {
        return do_alloc(p, tape, want, err);
    }
    if (op == 1) {
        const tl_prefix_key key = key_of(fuzz_u8(tape));
        return do_lookup(p, &key, want, err);
    }
    if (op == 2) {
        return do_export(p, tape, want, err);
    }
    const slot s = pools_pick(p, tape);
    switch (op) {
    case 3: {
        const bool is_many = fuzz_u8(tape) == 255 && !p->was_full;
        p->was_full = p->was_full || is_many;
        return do_retain(p, s, is_many ? TL_KV_REFS_MAX : 1, want, err);
    }
    case 4:
        got = tl->kv_pool_release(p->a, s.a, err);
        *want = p->f->second->kv_pool_release(p->b, s.b, NULL);
        settle(p, s);
        return got;
    case 5: {
        const uint32_t fill = fuzz_u8(tape) % (p->cfg.block_tokens + 2);
        got = tl->kv_pool_set_fill(p->a, s.a, fill, err);
        *want = p->f->second->kv_pool_set_fill(p->b, s.b, fill, NULL);
        return got;
    }
    case 6:
        return do_register(p, s, tape, want, err);
    default:
        return do_write(p, s, tape, want, err);
    }
}

void pools_step(pools *p, fuzz_tape *tape) {
    static const char *const names[] = {"alloc",   "lookup",   "export",   "retain",
                                        "release", "set_fill", "register", "slab_mut"};
    const uint8_t op = fuzz_u8(tape) % 8;
    tl_status want = TL_OK;
    tl_error err = fuzz_error();
    pool_picture before = pools_picture(p);
    const tl_status got = call(p, op, tape, &want, &err);
    fuzz_check_error(p->f, names[op], got, &err, 0);
    if (got != want) {
        (void)fuzz_wrong(p->f, "%s: %s, the second says %s", names[op], p->f->tl->status_name(got),
                         p->f->tl->status_name(want));
    }
    if (got != TL_OK && !(op == 3)) {
        pools_unchanged(p, names[op], &before);
    }
    free(before.bytes);
}
