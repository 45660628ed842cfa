/* guard.c: the watch over an op: guarded memory, the pattern in outputs, floating-point modes.
 *
 * Every array that the engine gets lies in a mapping of its own and ends exactly where an unmapped
 * page starts: one element too far is a SIGSEGV, with or without a sanitizer. The slack before the
 * array, inside its first page, holds the pattern and is compared, so a write before the start is
 * seen as well. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "host.h"

#include <fenv.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#define FNV_PRIME UINT64_C(0x100000001b3)
/* MXCSR without its six exception flags: denormals-are-zero, trap masks, rounding,
 * flush-to-zero. */
#define MXCSR_CONTROL_BITS 0xffc0u

uint64_t host_fnv1a(uint64_t hash, const void *bytes, size_t n_bytes) {
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n_bytes; i++) {
        hash = (hash ^ p[i]) * FNV_PRIME;
    }
    return hash;
}

void host_bad(host *h, const char *fmt, ...) {
    if (host_is_bad(h)) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(h->bad, sizeof h->bad, fmt, args);
    va_end(args);
}

bool host_is_bad(const host *h) {
    return h->bad[0] != '\0';
}

void host_violation(host *h, const char *fmt, ...) {
    char text[HOST_TEXT_CAP];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)json_array_append_new(h->violations, json_string(text));
}

void host_expect(host *h, bool holds, tl_status status, const char *fmt, ...) {
    const bool is_answer = status != TL_ERR_INTERNAL && status != TL_ERR_NOMEM;
    if (holds || !is_answer || h->wrong[0] != '\0') {
        return;
    }
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(h->wrong, sizeof h->wrong, fmt, args);
    va_end(args);
}

/* ------------------------------------------------------------------ memory */

/* No run of equal bytes, no zero, no small number and, read as floats, nothing special. */
uint8_t host_pattern(size_t i) {
    return (uint8_t)(0x51u + (i % 7u) * 0x13u);
}

static void fill_pattern(uint8_t *bytes, size_t first, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) {
        bytes[i] = host_pattern(first + i);
    }
}

bool host_untouched(const void *data, size_t first, size_t n_bytes) {
    const uint8_t *bytes = data;
    for (size_t i = first; i < first + n_bytes; i++) {
        if (bytes[i] != host_pattern(i)) {
            return false;
        }
    }
    return true;
}

static host_region *add_region(host *h) {
    if (h->n_regions == h->region_cap) {
        size_t cap = h->region_cap == 0 ? 16 : 2 * h->region_cap;
        host_region *regions = realloc(h->regions, cap * sizeof *regions);
        if (regions == NULL) {
            return NULL;
        }
        h->regions = regions;
        h->region_cap = cap;
    }
    return &h->regions[h->n_regions];
}

/* Map the body with a page on either side that nobody may touch. */
static uint8_t *map_guarded(size_t n_body, size_t page, size_t *map_len) {
    if (n_body > SIZE_MAX / 2 - 2 * page) {
        return NULL;
    }
    *map_len = n_body + 2 * page;
    uint8_t *map = mmap(NULL, *map_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return NULL;
    }
    if (mprotect(map + page, n_body, PROT_READ | PROT_WRITE) != 0) {
        (void)munmap(map, *map_len);
        return NULL;
    }
    return map;
}

static uint8_t *guarded(host *h, const char *name, size_t n_bytes, bool output) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (n_bytes == 0 || host_is_bad(h)) {
        return NULL;
    }
    size_t n_body = n_bytes <= SIZE_MAX / 4 ? (n_bytes + page - 1) / page * page : SIZE_MAX;
    host_region *region = add_region(h);
    uint8_t *map = NULL;
    size_t map_len = 0;
    if (region != NULL) {
        map = map_guarded(n_body, page, &map_len);
    }
    if (map == NULL) {
        host_bad(h, "no memory for %zu bytes of `%s`", n_bytes, name);
        return NULL;
    }
    size_t slack = n_body - n_bytes;
    fill_pattern(map + page, 0, slack);
    *region = (host_region){.name = name,
                            .map = map,
                            .map_len = map_len,
                            .data = map + page + slack,
                            .n_bytes = n_bytes,
                            .output = output};
    h->n_regions++;
    return region->data;
}

void *host_input(host *h, const char *name, size_t n_bytes) {
    return guarded(h, name, n_bytes, false);
}

void *host_output(host *h, const char *name, size_t n_bytes) {
    uint8_t *data = guarded(h, name, n_bytes, true);
    if (data != NULL) {
        fill_pattern(data, 0, n_bytes);
    }
    return data;
}

const void *host_const(host *h, const char *name, const void *value, size_t n_bytes) {
    uint8_t *data = host_input(h, name, n_bytes);
    if (data != NULL) {
        memcpy(data, value, n_bytes);
        h->regions[h->n_regions - 1].hash = host_fnv1a(HOST_FNV_START, data, n_bytes);
    }
    return data;
}

bool host_ready(host *h) {
    for (size_t i = 0; i < h->n_regions; i++) {
        host_region *region = &h->regions[i];
        if (!region->output) {
            region->hash = host_fnv1a(HOST_FNV_START, region->data, region->n_bytes);
        }
    }
    h->ready = !host_is_bad(h);
    return h->ready;
}

void host_refill(host *h) {
    for (size_t i = 0; i < h->n_regions; i++) {
        if (h->regions[i].output) {
            fill_pattern(h->regions[i].data, 0, h->regions[i].n_bytes);
        }
    }
}

static void look_at_region(host *h, const host_region *region, bool refused) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uint8_t *body = region->map + page;
    size_t slack = (size_t)(region->data - body);
    if (!host_untouched(body, 0, slack)) {
        host_violation(h, "wrote before the start of `%s`", region->name);
    }
    if (!region->output &&
        host_fnv1a(HOST_FNV_START, region->data, region->n_bytes) != region->hash) {
        host_violation(h, "changed its input `%s`", region->name);
    }
    if (region->output && refused && !host_untouched(region->data, 0, region->n_bytes)) {
        host_violation(h, "changed the output `%s` though the call was refused", region->name);
    }
}

/* ------------------------------------------------------------------ floating point */

void host_fp_read(host_fp *fp) {
    *fp = (host_fp){.rounding = fegetround()};
#if defined(__SSE__)
    fp->control = _mm_getcsr() & MXCSR_CONTROL_BITS;
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    fp->control = (uint32_t)fpcr;
#endif
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("fnstcw %0" : "=m"(fp->x87_control));
#endif
}

static void fp_write(const host_fp *fp) {
    (void)fesetround(fp->rounding);
#if defined(__SSE__)
    _mm_setcsr((_mm_getcsr() & ~MXCSR_CONTROL_BITS) | fp->control);
#elif defined(__aarch64__)
    uint64_t fpcr = fp->control;
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
#endif
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("fldcw %0" : : "m"(fp->x87_control));
#endif
}

static void settle_fp(host *h) {
    host_fp now;
    host_fp_read(&now);
    if (now.rounding != h->fp.rounding) {
        host_violation(h, "changed the rounding mode from %d to %d", h->fp.rounding, now.rounding);
    }
    if (now.control != h->fp.control || now.x87_control != h->fp.x87_control) {
        host_violation(h,
                       "changed the floating-point control word (denormal mode, rounding or traps) "
                       "from %04x to %04x",
                       (unsigned)h->fp.control, (unsigned)now.control);
    }
    fp_write(&h->fp);
}

void host_settle(host *h, bool refused) {
    settle_fp(h);
    for (size_t i = 0; i < h->n_regions; i++) {
        /* An op that never came to its calls has nothing to compare with. */
        if (h->ready) {
            look_at_region(h, &h->regions[i], refused);
        }
        (void)munmap(h->regions[i].map, h->regions[i].map_len);
    }
    h->n_regions = 0;
    h->ready = false;
}
