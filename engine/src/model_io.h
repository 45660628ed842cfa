/* model_io.h: files into memory, mapped or copied. Private to the model module.
 *
 * The only file of the module that asks the system for anything but memory. */
#ifndef TLI_MODEL_IO_H
#define TLI_MODEL_IO_H

#include "tl/base.h"
#include "tl/model.h"

/* The bytes of a file. Borrowed when owned is NULL. */
typedef struct tli_bytes {
    const uint8_t *data; /* NULL when n is 0 */
    size_t n;
    void *owned; /* what tli_bytes_clear gives back */
    tl_weights_mode mode;
} tli_bytes;

/* A regular file that is open. Its size is taken once and holds for all that follows. */
typedef struct tli_file {
    int fd;
    size_t n_bytes;
    const char *path; /* borrowed, for messages */
} tli_file;

/* Open without blocking on a FIFO. IO: not there, not regular, not readable, larger than memory
 * can be addressed. */
TL_MUST_USE tl_status tli_file_open(tli_file *out, const char *path, tl_error *err);
void tli_file_close(tli_file *file);

/* Read the first bytes, min(n, size) of them. IO. */
TL_MUST_USE tl_status tli_file_peek(const tli_file *file, uint8_t *dst, size_t n, tl_error *err);

/* Map the file, or read it whole. IO: a file that got shorter meanwhile, among others. NOMEM. */
TL_MUST_USE tl_status tli_file_bytes(const tli_file *file, tl_weights_mode mode, tli_bytes *out,
                                     tl_error *err);
void tli_bytes_clear(tli_bytes *bytes);

/* Bytes [begin, end) were read and are not needed soon: of a map, their pages go back to the
 * system, and come again when they are looked at. */
void tli_bytes_forget(const tli_bytes *bytes, size_t begin, size_t end);

/* Open, read whole and close a file of at most max_bytes. FORMAT: larger. IO. NOMEM. */
TL_MUST_USE tl_status tli_file_read(tli_bytes *out, const char *path, size_t max_bytes,
                                    tl_error *err);

/* Whether something stands at the path, readable or not. IO: that cannot be told. */
TL_MUST_USE tl_status tli_file_exists(const char *path, bool *out, tl_error *err);

/* "DIR/NAME" in memory that the caller frees; NULL for want of it. */
char *tli_path_join(const char *dir, const char *name);

#endif
