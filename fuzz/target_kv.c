/* target_kv.c: sequences of calls on a pool (fuzz_kv_calls), and foreign envelopes
 * (fuzz_kv_import).
 *
 * The two pools must answer alike and be alike after every sequence. An envelope is taken or
 * refused with the same status; a refused one leaves the pool as it was, slabs included; what was
 * taken and is exported again is the same bytes from both.
 *
 * Source: conformance/spec/kv-block.md. */
#include "pools.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define STEPS_MAX 200

static void run_calls(fuzz_case *f, const uint8_t *data, size_t n) {
    fuzz_tape tape = {.data = data, .n = n};
    pools p;
    if (pools_new(&p, f, &tape)) {
        for (size_t i = 0; i < STEPS_MAX && !fuzz_ended(&tape) && f->wrong[0] == '\0'; i++) {
            pools_step(&p, &tape);
        }
        if (f->wrong[0] == '\0') {
            pools_compare(&p);
        }
    }
    pools_free(&p);
}

const fuzz_target fuzz_kv_calls = {.name = "kv_calls", .run = run_calls};

/* ------------------------------------------------------------------ envelopes */

/* Before the envelope: the pool's shape (6 bytes), ids_cap, and a count of calls with 4 bytes each
 * that put the pool into some state. */
#define ENVELOPE_CALLS_MAX 8

static void import(pools *p, const uint8_t *bytes, size_t n, size_t ids_cap) {
    uint32_t *ids_a = fuzz_alloc(ids_cap * sizeof *ids_a);
    uint32_t *ids_b = fuzz_alloc(ids_cap * sizeof *ids_b);
    size_t n_a = 12345;
    size_t n_b = 12345;
    tl_error err = fuzz_error();
    tl_error other = fuzz_error();
    pool_picture before = pools_picture(p);
    memset(ids_a, 0xa5, ids_cap * sizeof *ids_a);
    const tl_status got = p->f->tl->kv_pool_import(p->a, bytes, n, ids_a, ids_cap, &n_a, &err);
    const tl_status want =
        p->f->second->kv_pool_import(p->b, bytes, n, ids_b, ids_cap, &n_b, &other);
    fuzz_check_error(p->f, "import", got, &err, n);
    if (fuzz_agree(p->f, "import", got, want)) {
        if (n_a != n_b) {
            (void)fuzz_wrong(p->f, "import: %zu blocks, the second took %zu", n_a, n_b);
        } else {
            pools_took(p, ids_a, ids_b, n_a);
        }
    } else if (got != TL_OK && got == want) {
        if (n_a != n_b) {
            (void)fuzz_wrong(p->f, "import: %zu needed, the second says %zu", n_a, n_b);
        }
        if (got == TL_ERR_FORMAT && err.offset != other.offset) {
            (void)fuzz_wrong(p->f, "import: offset %llu, the second blames %llu",
                             (unsigned long long)err.offset, (unsigned long long)other.offset);
        }
        for (size_t i = 0; i < ids_cap; i++) {
            if (ids_a[i] != 0xa5a5a5a5) {
                (void)fuzz_wrong(p->f, "import: refused, and ids were written");
            }
        }
        pools_unchanged(p, "import", &before);
    }
    free(before.bytes);
    free(ids_a);
    free(ids_b);
}

/* Arguments that are NULL, and more blocks than any address space has room for. */
static void check_misuse(const pools *p, const uint8_t *bytes, size_t n) {
    const host_api *tl = p->f->tl;
    uint8_t buf[8];
    uint32_t ids[1] = {0};
    size_t got = 0;
    const bool good =
        tl->kv_pool_export_size(NULL, 1, &got, NULL) == TL_ERR_INVALID &&
        tl->kv_pool_export_size(p->a, 1, NULL, NULL) == TL_ERR_INVALID &&
        tl->kv_pool_export_size(p->a, SIZE_MAX, &got, NULL) == TL_ERR_NOMEM &&
        tl->kv_pool_export(NULL, ids, 0, buf, sizeof buf, &got, NULL) == TL_ERR_INVALID &&
        tl->kv_pool_export(p->a, NULL, 1, buf, sizeof buf, &got, NULL) == TL_ERR_INVALID &&
        tl->kv_pool_export(p->a, ids, 0, NULL, 1, &got, NULL) == TL_ERR_INVALID &&
        tl->kv_pool_export(p->a, ids, 0, buf, sizeof buf, NULL, NULL) == TL_ERR_INVALID &&
        tl->kv_pool_import(NULL, bytes, n, ids, 1, &got, NULL) == TL_ERR_INVALID &&
        tl->kv_pool_import(p->a, NULL, 1, ids, 1, &got, NULL) == TL_ERR_INVALID &&
        tl->kv_pool_import(p->a, bytes, n, NULL, 1, &got, NULL) == TL_ERR_INVALID &&
        tl->kv_pool_import(p->a, bytes, n, ids, 1, NULL, NULL) == TL_ERR_INVALID;
    if (!good) {
        (void)fuzz_wrong(p->f, "an argument that is NULL is not INVALID, or no size overflows");
    }
}

static void run_import(fuzz_case *f, const uint8_t *data, size_t n) {
    fuzz_tape tape = {.data = data, .n = n};
    pools p;
    if (!pools_new(&p, f, &tape)) {
        pools_free(&p);
        return;
    }
    const size_t ids_cap = fuzz_u8(&tape) % (POOL_BLOCKS_MAX + 2);
    const size_t n_calls = fuzz_u8(&tape) % (ENVELOPE_CALLS_MAX + 1);
    for (size_t i = 0; i < n_calls; i++) {
        const size_t at = tape.at;
        fuzz_tape one = {.data = data, .n = at + 4 < n ? at + 4 : n, .at = at};
        pools_step(&p, &one);
        tape.at = at + 4 < n ? at + 4 : n;
    }
    uint8_t *envelope = fuzz_copy(data + tape.at, n - tape.at);
    check_misuse(&p, envelope, n - tape.at);
    import(&p, envelope, n - tape.at, ids_cap);
    free(envelope);
    if (f->wrong[0] == '\0') {
        pools_compare(&p);
    }
    pools_free(&p);
}

/* The envelope alone, into a pool of its shape. */
static tl_status read_import(const host_api *tl, const uint8_t *data, size_t n, tl_error *err) {
    const size_t calls = n < 8 ? 0 : 4 * (size_t)(data[7] % (ENVELOPE_CALLS_MAX + 1));
    const size_t at = calls + 8 < n ? calls + 8 : n;
    fuzz_tape tape = {.data = data, .n = n};
    uint32_t ids[POOL_BLOCKS_MAX];
    size_t n_ids = 0;
    tl_kv_pool *pool = NULL;
    const tl_kv_cfg cfg = pools_shape(&tape);
    tl_status status = tl->kv_pool_new(&pool, &cfg, err);
    if (status == TL_OK) {
        status = tl->kv_pool_import(pool, data + at, n - at, ids, POOL_BLOCKS_MAX, &n_ids, err);
    }
    tl->kv_pool_free(pool);
    return status;
}

/* ------------------------------------------------------------------ changing envelopes */

static void store_u32(uint8_t *at, uint32_t v) {
    for (unsigned i = 0; i < 4; i++) {
        at[i] = (uint8_t)(v >> (8 * i));
    }
}

static uint32_t crc_of(const uint8_t *bytes, size_t n) {
    return (uint32_t)crc32_z(0, bytes, n);
}

/* Right checksums, and mostly the payload length, so that what is behind them is reached. */
static void seal(uint8_t *e, size_t n, fuzz_rng *rng) {
    if (!fuzz_chance(rng, 8)) {
        store_u32(e + 40, (uint32_t)(n - 64));
        store_u32(e + 44, 0);
    }
    if (!fuzz_chance(rng, 16)) {
        store_u32(e + 56, crc_of(e + 64, n - 64));
    }
    if (!fuzz_chance(rng, 16)) {
        store_u32(e + 60, crc_of(e, 60));
    }
}

/* A field of the header or of a record, or a byte. */
static void change_field(uint8_t *e, size_t n, fuzz_rng *rng) {
    static const uint32_t values[] = {0,          1,          2,          3,  4, 16,
                                      0x7fffffff, 0x80000000, 0xffffffff, 64, 65};
    const uint32_t value = values[fuzz_below(rng, sizeof values / sizeof *values)];
    if (fuzz_chance(rng, 3)) {
        store_u32(e + 4 * fuzz_below(rng, 14), value);
    } else if (n >= 64 + 24 && fuzz_chance(rng, 2)) {
        const size_t words = (n - 64) / 4;
        store_u32(e + 64 + 4 * fuzz_below(rng, (uint32_t)words), value);
    } else if (n > 64) {
        e[64 + fuzz_below(rng, (uint32_t)(n - 64))] = (uint8_t)fuzz_next(rng);
    }
}

/* The header that the pool in front would write, and as many records as there is room for. */
static size_t fit_header(uint8_t *data, size_t at, size_t cap, fuzz_rng *rng) {
    uint8_t *e = data + at;
    const uint32_t dims[4] = {data[2] % 5, data[3] % 3, data[4] % 3, data[5] % 5};
    const size_t record = 24 + (size_t)dims[0] * dims[1] * dims[2] * dims[3] * 4;
    const uint32_t n_blocks = fuzz_below(rng, 4);
    const size_t n = 64 + n_blocks * record;
    if (at + n > cap) {
        return at + 64;
    }
    memset(e, 0, n);
    store_u32(e, 0x564b4c54); /* TLKV */
    store_u32(e + 4, 1);
    store_u32(e + 8, 64);
    store_u32(e + 12, 1);
    store_u32(e + 16, n_blocks);
    for (unsigned i = 0; i < 4; i++) {
        store_u32(e + 20 + 4 * i, dims[i]);
    }
    for (uint32_t i = 0; i < n_blocks; i++) {
        uint8_t *r = e + 64 + i * record;
        const bool has_key = fuzz_chance(rng, 2);
        store_u32(r, has_key ? dims[0] : fuzz_below(rng, dims[0] + 1));
        r[4] = has_key;
        r[8] = has_key ? (uint8_t)fuzz_below(rng, 6) : 0;
        r[23] = (uint8_t)(r[8] * 41); /* a key of pools.c */
        for (size_t k = 24; fuzz_chance(rng, 2) && k < record; k++) {
            r[k] = (uint8_t)fuzz_next(rng);
        }
    }
    return at + n;
}

static size_t mutate_import(uint8_t *data, size_t n, size_t cap, fuzz_rng *rng) {
    if (cap < 512) {
        return n;
    }
    if (n < 8) {
        memcpy(data, "\0\3\2\1\1\2\4\0", 8);
        n = 8;
    }
    const size_t at = 8 + 4 * (size_t)(data[7] % (ENVELOPE_CALLS_MAX + 1));
    if (n < at + 64) {
        memset(data + n, 0, at + 64 - n);
        n = at + 64;
    }
    if (fuzz_chance(rng, 4)) {
        n = fit_header(data, at, cap, rng);
    } else if (fuzz_chance(rng, 6)) {
        data[fuzz_below(rng, (uint32_t)at)] = (uint8_t)fuzz_next(rng);
        return n;
    } else if (fuzz_chance(rng, 8) && n + 1 < cap) {
        data[n] = 0;
        n += fuzz_chance(rng, 2) ? 1 : 0;
        n -= n > at + 64 && fuzz_chance(rng, 2) ? 1 : 0;
    } else {
        change_field(data + at, n - at, rng);
    }
    seal(data + at, n - at, rng);
    return n;
}

const fuzz_target fuzz_kv_import = {
    .name = "kv_import", .run = run_import, .mutate = mutate_import, .read = read_import};
