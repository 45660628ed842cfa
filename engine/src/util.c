/* util.c: checked sizes, little-endian loads and stores, errors, memory.
 *
 * Bytes from outside are read one at a time, so that neither alignment nor the machine's byte
 * order matters. An error text may quote bytes of a file: what arrives in *err is valid UTF-8
 * without control bytes all the same, since callers print it and put it into JSON.
 *
 * Source: engine/include/tl/base.h, the rules on status and message. */
#include "util.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that a UTF-8 sequence with this first byte has; 0 for a byte that cannot start one. */
static size_t utf8_length(uint8_t first) {
    if (first < 0x80) {
        return 1;
    }
    if (first >= 0xc2 && first <= 0xdf) {
        return 2;
    }
    if (first >= 0xe0 && first <= 0xef) {
        return 3;
    }
    if (first >= 0xf0 && first <= 0xf4) {
        return 4;
    }
    return 0;
}

/* Whether `second` may follow `first`: rules out overlong forms, surrogates and what lies past
 * U+10FFFF. */
static bool utf8_second_is_legal(uint8_t first, uint8_t second) {
    const uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high;
}

/* How many bytes of the sequence that starts at s[0] are legal, at most its length. */
static size_t utf8_legal_prefix(const uint8_t *s, size_t n_left, size_t length) {
    size_t n_legal = 1;
    while (n_legal < length && n_legal < n_left) {
        const bool legal = n_legal == 1 ? utf8_second_is_legal(s[0], s[1])
                                        : s[n_legal] >= 0x80 && s[n_legal] <= 0xbf;
        if (!legal) {
            break;
        }
        n_legal++;
    }
    return n_legal;
}

/* Make text valid UTF-8 without control bytes, in place. `cut` says that vsnprintf ran out of
 * room, so that an unfinished sequence at the end is the cut's doing and goes, instead of
 * becoming '?'. */
static void clean_text(char *text, bool cut) {
    uint8_t *s = (uint8_t *)text;
    const size_t n = strlen(text);
    size_t i = 0;
    while (i < n) {
        const size_t length = utf8_length(s[i]);
        const size_t n_legal = length == 0 ? 0 : utf8_legal_prefix(s + i, n - i, length);
        if (cut && n_legal < length && i + n_legal == n) {
            s[i] = 0;
            return;
        }
        if (length == 0 || n_legal < length || s[i] < 0x20 || s[i] == 0x7f) {
            s[i] = '?';
            i++;
        } else {
            i += length;
        }
    }
}

static void set_error(tl_error *err, tl_status status, uint64_t offset, const char *fmt,
                      va_list args) TLI_PRINTF(4, 0);

static void set_error(tl_error *err, tl_status status, uint64_t offset, const char *fmt,
                      va_list args) {
    if (err == NULL) {
        return;
    }
    /* Not straight into err->text: an argument may be that very text, to be told again with
     * more. */
    char text[TL_ERROR_TEXT_CAP];
    const int n_wanted = vsnprintf(text, sizeof text, fmt, args);
    if (n_wanted < 0) {
        text[0] = '\0';
    }
    clean_text(text, n_wanted >= TL_ERROR_TEXT_CAP);
    err->status = status;
    err->offset = offset;
    memcpy(err->text, text, sizeof text);
}

tl_status(tli_fail)(tl_error *err, tl_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    set_error(err, status, TL_NO_OFFSET, fmt, args);
    va_end(args);
    return status;
}

tl_status(tli_fail_at)(tl_error *err, tl_status status, uint64_t offset, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    set_error(err, status, offset, fmt, args);
    va_end(args);
    return status;
}

bool tli_mul(size_t a, size_t b, size_t *out) {
    if (a != 0 && b > SIZE_MAX / a) {
        return false;
    }
    *out = a * b;
    return true;
}

bool tli_add(size_t a, size_t b, size_t *out) {
    if (b > SIZE_MAX - a) {
        return false;
    }
    *out = a + b;
    return true;
}

bool tli_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (a != 0 && b > UINT64_MAX / a) {
        return false;
    }
    *out = a * b;
    return true;
}

bool tli_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (b > UINT64_MAX - a) {
        return false;
    }
    *out = a + b;
    return true;
}

void *tli_calloc(size_t n, size_t size) {
    size_t n_bytes = 0;
    /* No object is larger than PTRDIFF_MAX, and memory checkers take such a request for a slip. */
    if (!tli_mul(n, size, &n_bytes) || n_bytes > PTRDIFF_MAX) {
        return NULL;
    }
    /* One byte instead of none: calloc may answer NULL for 0, which would look like a refusal. */
    return calloc(n_bytes == 0 ? 1 : n_bytes, 1);
}

uint16_t tli_load_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | (unsigned)p[1] << 8);
}

uint32_t tli_load_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t tli_load_u64(const uint8_t *p) {
    return (uint64_t)tli_load_u32(p) | (uint64_t)tli_load_u32(p + 4) << 32;
}

void tli_store_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)(v & 0xff);
    p[1] = (uint8_t)(v >> 8);
}

void tli_store_u32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v & 0xff);
    p[1] = (uint8_t)(v >> 8 & 0xff);
    p[2] = (uint8_t)(v >> 16 & 0xff);
    p[3] = (uint8_t)(v >> 24);
}

void tli_store_u64(uint8_t *p, uint64_t v) {
    tli_store_u32(p, (uint32_t)(v & UINT32_MAX));
    tli_store_u32(p + 4, (uint32_t)(v >> 32));
}

float tli_f32_from_bits(uint32_t bits) {
    float x = 0.0f;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t tli_f32_bits(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
