/* base.h: what every other header needs: status, error, version, linkage.
 *
 * The rules that hold for every function of the library, said once:
 *   status      0 is success; everything that can fail returns tl_status and must be looked at.
 *   message     the last parameter is `tl_error *err`, the caller's, NULL when not wanted. On
 *               failure it holds the status, a byte offset when input bytes are to blame, and one
 *               sentence with what was found, what was allowed and where. The first error of a
 *               call stands.
 *   failure     nothing that the caller can see changes, output buffers included. Two exceptions: a
 *               constructor leaves *out empty (NULL, or a struct of zeros), and CAPACITY writes
 *               the count or size needed.
 *   lengths     every pointer to more than one element is followed by its element count, and a
 *               count that could be derived is checked. NULL goes with a count of 0, and only with
 *               that. Every other NULL is TL_ERR_INVALID unless a comment allows it. `_free` and
 *               `_clear` accept NULL; a function that returns no status answers NULL, 0 or zeros.
 *               Only the kernels of ops.h (tl_ops_...) check nothing.
 *   threads     no locks inside. One object: one thread at a time, but any number of threads may
 *               read it (const calls) together. Different objects are independent.
 *   aliasing    outputs do not overlap inputs, except where a comment allows it.
 *   silence     the library prints nothing, ends nothing, reads no environment, keeps no global.
 *
 * Source: conformance/spec/README.md. */
#ifndef TL_BASE_H
#define TL_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define TL_MUST_USE __attribute__((warn_unused_result))
#else
#define TL_MUST_USE
#endif

#ifdef __cplusplus
#define TL_EXTERN_C_BEGIN extern "C" {
#define TL_EXTERN_C_END }
#else
#define TL_EXTERN_C_BEGIN
#define TL_EXTERN_C_END
#endif
/* C linkage and default visibility in one place; everything else in the library is hidden. */
#if defined(__GNUC__) || defined(__clang__)
#define TL_BEGIN_DECLS _Pragma("GCC visibility push(default)") TL_EXTERN_C_BEGIN
#define TL_END_DECLS TL_EXTERN_C_END _Pragma("GCC visibility pop")
#else
#define TL_BEGIN_DECLS TL_EXTERN_C_BEGIN
#define TL_END_DECLS TL_EXTERN_C_END
#endif

#define TL_VERSION_MAJOR 0
#define TL_VERSION_MINOR 1
#define TL_VERSION_PATCH 0

/* The binary interface. A caller that was built for another major must not use the library; the
 * major is also the soname's number. */
#define TL_ABI_MAJOR 1u
#define TL_ABI_MINOR 0u
#define TL_ABI_VERSION ((TL_ABI_MAJOR << 16) | TL_ABI_MINOR)

/* Explicit and permanent: a number is never given another meaning. */
typedef enum tl_status {
    TL_OK = 0,
    TL_ERR_INVALID = 1, /* an argument breaks its documented rule: the caller's mistake */
    TL_ERR_NOMEM = 2,   /* the C library refused memory, or a size overflowed */
    TL_ERR_IO = 3,      /* open, stat, map or read failed; the text carries the system's reason */
    TL_ERR_FORMAT = 4,  /* bytes do not follow the format; offset says where, if anywhere */
    TL_ERR_UNSUPPORTED = 5, /* well formed, and this engine would run it wrongly */
    TL_ERR_CAPACITY = 6,    /* a pool is exhausted, a limit or a caller's buffer is too small */
    TL_ERR_NOT_FOUND = 7,   /* no such tensor, key or cached prefix */
    TL_ERR_STATE = 8,       /* legal argument, wrong moment: releasing a free block */
    TL_ERR_INTERNAL = 9     /* an invariant of the library failed; please report */
} tl_status;

#define TL_ERROR_TEXT_CAP 256
#define TL_NO_OFFSET UINT64_MAX

typedef struct tl_error {
    tl_status status;
    uint64_t offset;              /* byte in the input, counted from its start, or TL_NO_OFFSET */
    char text[TL_ERROR_TEXT_CAP]; /* NUL-ended, one sentence, no newline, valid UTF-8 or ASCII */
} tl_error;

TL_BEGIN_DECLS

/* "OK", "INVALID", "NOMEM", ...; "UNKNOWN" for a number that is no status. Static text, never
 * NULL. */
const char *tl_status_name(tl_status status);

/* "0.1.0", of the library that is running (not of the header that was compiled in). */
const char *tl_version(void);

/* TL_ABI_VERSION of the library that is running: major in the upper 16 bits, minor below. */
uint32_t tl_abi_version(void);

TL_END_DECLS

#endif
