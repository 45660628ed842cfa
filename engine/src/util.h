/* util.h: what the modules of the library share: checked sizes, little-endian loads, errors,
 * memory.
 *
 * Private, but given to learners as it is; never graded. */
#ifndef TLI_UTIL_H
#define TLI_UTIL_H

#include "tl/base.h"

#if defined(__GNUC__) || defined(__clang__)
#define TLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TLI_PRINTF(fmt, args)
#endif

/* Leave with the status of `expr` unless it is TL_OK. The only control-flow macro of the
 * project. */
#define TLI_TRY(expr)                                                                              \
    do {                                                                                           \
        const tl_status tli_try_status = (expr);                                                   \
        if (tli_try_status != TL_OK) {                                                             \
            return tli_try_status;                                                                 \
        }                                                                                          \
    } while (0)

/* Our own invariants, never input. Compiled out with NDEBUG. */
#ifdef NDEBUG
#define TLI_ASSERT(cond) ((void)0)
#else
#include <assert.h>
#define TLI_ASSERT(cond) assert(cond)
#endif

/* Fill *err (when wanted) and return status, so that a refusal is one line. Callers return at the
 * first failure, which keeps the first error. The text is cut at TL_ERROR_TEXT_CAP - 1 bytes,
 * never inside a
 * UTF-8 sequence; control bytes become '?'. */
tl_status tli_fail(tl_error *err, tl_status status, const char *fmt, ...) TLI_PRINTF(3, 4);
tl_status tli_fail_at(tl_error *err, tl_status status, uint64_t offset, const char *fmt, ...)
    TLI_PRINTF(4, 5);
#ifdef __clang_analyzer__
/* The static analyzer looks at one file at a time and cannot see that they return what they are
 * given; so it is told, and does not follow callers past a refusal. */
#define tli_fail(err, status, ...) ((void)(tli_fail)((err), (status), __VA_ARGS__), (status))
#define tli_fail_at(err, status, ...) ((void)(tli_fail_at)((err), (status), __VA_ARGS__), (status))
#endif

/* true and *out on success, false on overflow (*out untouched). */
bool tli_mul(size_t a, size_t b, size_t *out);
bool tli_add(size_t a, size_t b, size_t *out);
bool tli_mul_u64(uint64_t a, uint64_t b, uint64_t *out);
bool tli_add_u64(uint64_t a, uint64_t b, uint64_t *out);

/* Zeroed memory for n elements of `size` bytes; NULL when n * size overflows or memory is refused;
 * a pointer that free accepts when n is 0. */
void *tli_calloc(size_t n, size_t size);

uint16_t tli_load_u16(const uint8_t *p);
uint32_t tli_load_u32(const uint8_t *p);
uint64_t tli_load_u64(const uint8_t *p);
void tli_store_u16(uint8_t *p, uint16_t v);
void tli_store_u32(uint8_t *p, uint32_t v);
void tli_store_u64(uint8_t *p, uint64_t v);

float tli_f32_from_bits(uint32_t bits);
uint32_t tli_f32_bits(float x);

#endif
