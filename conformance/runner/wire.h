/* wire.h: frames and numbers as they travel between the judge and a testee.
 *
 * The only source that both sides share. It knows the frame (a u32 little-endian length, then that
 * many bytes), the hex form of numbers, and nothing about ops. Blocking calls are for the testee's
 * side; the judge moves bytes by its own poll loop (child.c), since it must watch a clock and the
 * captured output while it waits.
 *
 * Nothing here prints or exits. Byte order: elements are written little-endian whatever the host
 * is. Source: conformance/spec/testee.md, "Frames" and "Numbers". */
#ifndef OL_WIRE_H
#define OL_WIRE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OL_WIRE_HEAD_BYTES 4u
#define OL_WIRE_FRAME_MAX (64u * 1024u * 1024u) /* bytes of JSON in one frame */
#define OL_WIRE_FD_REQUEST 3                    /* the testee reads requests here */
#define OL_WIRE_FD_RESPONSE 4                   /* and writes responses here */

typedef enum ol_wire_status {
    OL_WIRE_OK = 0,
    OL_WIRE_END = 1,      /* end of file before the first byte of a frame */
    OL_WIRE_CUT = 2,      /* end of file inside a frame */
    OL_WIRE_TOO_LONG = 3, /* a length beyond OL_WIRE_FRAME_MAX */
    OL_WIRE_IO = 4,       /* read or write failed; errno says why */
    OL_WIRE_NOMEM = 5,
    OL_WIRE_NO_JSON = 6, /* the object could not be written as JSON */
} ol_wire_status;

/* A buffer that grows; {0} is empty. */
typedef struct ol_wire_buf {
    uint8_t *bytes; /* [cap], the first len are valid */
    size_t len;
    size_t cap;
} ol_wire_buf;

/* Make room for n_bytes in all; false when memory is refused (the buffer is as it was). */
bool ol_wire_reserve(ol_wire_buf *buf, size_t n_bytes);
void ol_wire_clear(ol_wire_buf *buf); /* frees; the buffer is empty and usable after */

void ol_wire_put_len(uint8_t head[OL_WIRE_HEAD_BYTES], uint32_t n_bytes);
uint32_t ol_wire_get_len(const uint8_t head[OL_WIRE_HEAD_BYTES]);

/* How many values a text of JSON has at most: its commas, colons and opening brackets outside of
 * strings, and one. Any bytes may be asked about. */
size_t ol_wire_values(const uint8_t *text, size_t n);

/* Read one frame into buf (overwritten), waiting for it. Memory follows the bytes that came, not
 * the length that was announced. */
ol_wire_status ol_wire_read(int fd, ol_wire_buf *buf);
/* Write one frame, waiting until it is taken. A closed reader is OL_WIRE_IO with EPIPE if SIGPIPE
 * is ignored. */
ol_wire_status ol_wire_write(int fd, const uint8_t *bytes, size_t n_bytes);
/* Write one object as a frame. OL_WIRE_TOO_LONG when it does not fit: nothing is written then. */
ol_wire_status ol_wire_write_json(int fd, const json_t *object);

/* The 16 hex digits of a 64-bit scalar, most significant first. */
#define OL_WIRE_U64_DIGITS 16u
void ol_wire_u64_text(uint64_t v, char text[OL_WIRE_U64_DIGITS + 1]);
bool ol_wire_u64_parse(const char *text, uint64_t *v); /* exactly 16 digits, 0-9 a-f */
json_t *ol_wire_u64(uint64_t v);                       /* new reference, NULL without memory */
json_t *ol_wire_f64(double v);                         /* the bits of v */

/* Memory order hex: two digits a byte, lower case. ol_wire_hex ends text with NUL (2 * n_bytes +
 * 1). */
void ol_wire_hex(const uint8_t *bytes, size_t n_bytes, char *text);
bool ol_wire_unhex(const char *text, size_t n_text, uint8_t *bytes); /* writes n_text / 2 bytes */

/* An array of numbers as {"<type>": "<hex>"}: type is "u8", "i8", "u16", "u32", "u64", "f32" or
 * "f64"; the elements are read from memory at `data` in the host's byte order. New reference, NULL
 * without memory or for another type. */
json_t *ol_wire_array(const char *type, const void *data, size_t n);

/* The reverse, in two steps so that the caller owns the memory. _len checks that `value` is an
 * object with just the one key `type` and a hex string of whole elements, and gives their count;
 * _get writes them to `data`, which has room for all of them. false: not such an array, or a digit
 * that is none. */
bool ol_wire_array_len(const json_t *value, const char *type, size_t *n);
bool ol_wire_array_get(const json_t *value, const char *type, void *data, size_t n);

/* Bytes of one element, 0 for a word that is no type. */
size_t ol_wire_type_bytes(const char *type);

#endif
