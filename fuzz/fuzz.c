/* fuzz.c: the parts that every target uses; see fuzz.h. */
#include "fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_run(fuzz_case *f, const fuzz_target *target, const uint8_t *data, size_t n) {
    uint8_t *copy = fuzz_copy(data, n);
    (void)snprintf(f->verdict, sizeof f->verdict, "OK");
    f->wrong[0] = '\0';
    target->run(f, copy, n);
    free(copy);
}

/* Read with one refusal; true while there was one. */
static bool read_short(fuzz_case *f, const fuzz_target *target, const uint8_t *data, size_t n,
                       size_t nth, bool is_for_good, tl_status plain) {
    tl_error err = fuzz_error();
    fuzz_memory_begin(nth, is_for_good);
    const tl_status got = target->read(f->tl, data, n, &err);
    const fuzz_memory memory = fuzz_memory_end();
    fuzz_check_error(f, "read", got, &err, UINT64_MAX);
    if (got != TL_ERR_NOMEM && (got != plain || memory.n_refused > 1)) {
        (void)fuzz_wrong(f, "allocation %zu refused%s: %s instead of NOMEM", nth,
                         is_for_good ? " with all behind it" : "", f->tl->status_name(got));
    }
    if (memory.left != 0) {
        (void)fuzz_wrong(f, "allocation %zu refused: %zu bytes are left behind", nth, memory.left);
    }
    return memory.n_refused > 0;
}

void fuzz_run_short_of_memory(fuzz_case *f, const fuzz_target *target, const uint8_t *data,
                              size_t n) {
    uint8_t *copy = fuzz_copy(data, n);
    const tl_status plain = target->read(f->tl, copy, n, NULL);
    /* All of the first ones; then, since they repeat from tensor to tensor, ever fewer. */
    for (size_t nth = 1; read_short(f, target, copy, n, nth, nth % 2 == 0, plain);) {
        nth += nth < 48 ? 1 : nth / 16;
    }
    free(copy);
}

bool fuzz_wrong(fuzz_case *f, const char *fmt, ...) {
    va_list args;
    if (f->wrong[0] == '\0') {
        va_start(args, fmt);
        (void)vsnprintf(f->wrong, sizeof f->wrong, fmt, args);
        va_end(args);
    }
    return false;
}

bool fuzz_agree(fuzz_case *f, const char *call, tl_status tl, tl_status second) {
    if (tl != TL_OK && strcmp(f->verdict, "OK") == 0) {
        (void)snprintf(f->verdict, sizeof f->verdict, "%s", fuzz_engine_api.status_name(tl));
    }
    if (tl != second) {
        return fuzz_wrong(f, "%s: %s, the second implementation says %s", call,
                          fuzz_engine_api.status_name(tl), fuzz_engine_api.status_name(second));
    }
    return tl == TL_OK;
}

bool fuzz_agree_within(fuzz_case *f, const char *call, tl_status tl, tl_status second,
                       unsigned right) {
    const bool is_free =
        tl != TL_OK && second != TL_OK && (right >> tl & 1) != 0 && (right >> second & 1) != 0;
    return fuzz_agree(f, call, tl, is_free ? tl : second);
}

tl_error fuzz_error(void) {
    tl_error err;
    memset(&err, 0x5a, sizeof err);
    return err;
}

/* Bytes of the UTF-8 sequence at p, 0 when it is none. */
static size_t utf8_step(const unsigned char *p) {
    const size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return p[0] > 0xf4 ? 0 : n;
}

static bool is_sentence(const char *text) {
    const unsigned char *p = (const unsigned char *)text;
    if (memchr(text, 0, TL_ERROR_TEXT_CAP) == NULL || text[0] == '\0') {
        return false;
    }
    while (*p != 0) {
        const size_t n = utf8_step(p);
        if (n == 0 || *p < 0x20 || *p == 0x7f) {
            return false;
        }
        p += n;
    }
    return true;
}

void fuzz_check_error(fuzz_case *f, const char *call, tl_status status, const tl_error *err,
                      uint64_t n_bytes) {
    if (status == TL_OK) {
        return;
    }
    if (err->status != status) {
        (void)fuzz_wrong(f, "%s: returned %d, the error says %d", call, (int)status,
                         (int)err->status);
    } else if (!is_sentence(err->text)) {
        (void)fuzz_wrong(f, "%s: the error's text is no printable sentence", call);
    } else if (err->offset != TL_NO_OFFSET && err->offset > n_bytes) {
        (void)fuzz_wrong(f, "%s: the offset %llu is past the %llu bytes of the input", call,
                         (unsigned long long)err->offset, (unsigned long long)n_bytes);
    } else if (status == TL_ERR_INTERNAL) {
        (void)fuzz_wrong(f, "%s: INTERNAL: %.200s", call, err->text);
    }
}

void *fuzz_alloc(size_t n) {
    void *memory = calloc(n == 0 ? 1 : n, 1);
    if (memory == NULL) {
        (void)fprintf(stderr, "fuzz: no memory for %zu bytes of the harness\n", n);
        exit(70);
    }
    return memory;
}

void *fuzz_copy(const void *bytes, size_t n) {
    void *memory = fuzz_alloc(n);
    if (n > 0) {
        memcpy(memory, bytes, n);
    }
    return memory;
}

uint32_t fuzz_next(fuzz_rng *rng) {
    rng->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = rng->state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(z >> 32);
}

uint32_t fuzz_below(fuzz_rng *rng, uint32_t n) {
    return n == 0 ? 0 : fuzz_next(rng) % n;
}

bool fuzz_chance(fuzz_rng *rng, uint32_t one_in) {
    return fuzz_below(rng, one_in) == 0;
}

uint8_t fuzz_u8(fuzz_tape *tape) {
    const uint8_t byte = tape->at < tape->n ? tape->data[tape->at] : 0;
    tape->at += tape->at < tape->n ? 1 : 0;
    return byte;
}

uint32_t fuzz_u32(fuzz_tape *tape) {
    uint32_t v = 0;
    for (unsigned i = 0; i < 4; i++) {
        v |= (uint32_t)fuzz_u8(tape) << (8 * i);
    }
    return v;
}

uint64_t fuzz_u64(fuzz_tape *tape) {
    const uint64_t low = fuzz_u32(tape);
    return low | (uint64_t)fuzz_u32(tape) << 32;
}

bool fuzz_ended(const fuzz_tape *tape) {
    return tape->at >= tape->n;
}
