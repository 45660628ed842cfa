/* wire.c: frames and numbers of the testee protocol; see wire.h.
 *
 * Invariant: a frame that is announced longer than the limit is never read, and memory grows with
 * the bytes that arrived, so a peer cannot make the other side allocate by announcing. */
#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads grow by at most this much ahead of the data. */
#define READ_STEP_BYTES ((size_t)1 << 20)

bool ol_wire_reserve(ol_wire_buf *buf, size_t n_bytes) {
    if (n_bytes <= buf->cap) {
        return true;
    }
    size_t cap = buf->cap < 4096 ? 4096 : buf->cap;
    while (cap < n_bytes) {
        if (cap > SIZE_MAX / 2) {
            return false;
        }
        cap *= 2;
    }
    uint8_t *bytes = realloc(buf->bytes, cap);
    if (bytes == NULL) {
        return false;
    }
    buf->bytes = bytes;
    buf->cap = cap;
    return true;
}

void ol_wire_clear(ol_wire_buf *buf) {
    free(buf->bytes);
    *buf = (ol_wire_buf){0};
}

void ol_wire_put_len(uint8_t head[OL_WIRE_HEAD_BYTES], uint32_t n_bytes) {
    for (unsigned i = 0; i < OL_WIRE_HEAD_BYTES; i++) {
        head[i] = (uint8_t)(n_bytes >> (8 * i));
    }
}

uint32_t ol_wire_get_len(const uint8_t head[OL_WIRE_HEAD_BYTES]) {
    uint32_t n_bytes = 0;
    for (unsigned i = 0; i < OL_WIRE_HEAD_BYTES; i++) {
        n_bytes |= (uint32_t)head[i] << (8 * i);
    }
    return n_bytes;
}

/* Read n_bytes or less if the end comes first; false on an error. */
static bool read_fully(int fd, uint8_t *bytes, size_t n_bytes, size_t *n_read) {
    *n_read = 0;
    while (*n_read < n_bytes) {
        ssize_t n = read(fd, bytes + *n_read, n_bytes - *n_read);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return false;
        }
        if (n == 0) {
            return true;
        }
        *n_read += (size_t)n;
    }
    return true;
}

ol_wire_status ol_wire_read(int fd, ol_wire_buf *buf) {
    uint8_t head[OL_WIRE_HEAD_BYTES];
    size_t n_read = 0;
    buf->len = 0;
    if (!read_fully(fd, head, sizeof head, &n_read)) {
        return OL_WIRE_IO;
    }
    if (n_read < sizeof head) {
        return n_read == 0 ? OL_WIRE_END : OL_WIRE_CUT;
    }
    size_t n_bytes = ol_wire_get_len(head);
    if (n_bytes > OL_WIRE_FRAME_MAX) {
        return OL_WIRE_TOO_LONG;
    }
    while (buf->len < n_bytes) {
        size_t step = n_bytes - buf->len;
        step = step < READ_STEP_BYTES ? step : READ_STEP_BYTES;
        if (!ol_wire_reserve(buf, buf->len + step)) {
            return OL_WIRE_NOMEM;
        }
        if (!read_fully(fd, buf->bytes + buf->len, step, &n_read)) {
            return OL_WIRE_IO;
        }
        buf->len += n_read;
        if (n_read < step) {
            return OL_WIRE_CUT;
        }
    }
    return OL_WIRE_OK;
}

static bool write_fully(int fd, const uint8_t *bytes, size_t n_bytes) {
    while (n_bytes > 0) {
        ssize_t n = write(fd, bytes, n_bytes);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return false;
        }
        bytes += n;
        n_bytes -= (size_t)n;
    }
    return true;
}

ol_wire_status ol_wire_write(int fd, const uint8_t *bytes, size_t n_bytes) {
    if (n_bytes > OL_WIRE_FRAME_MAX) {
        return OL_WIRE_TOO_LONG;
    }
    uint8_t head[OL_WIRE_HEAD_BYTES];
    ol_wire_put_len(head, (uint32_t)n_bytes);
    if (!write_fully(fd, head, sizeof head) || !write_fully(fd, bytes, n_bytes)) {
        return OL_WIRE_IO;
    }
    return OL_WIRE_OK;
}

ol_wire_status ol_wire_write_json(int fd, const json_t *object) {
    char *text = json_dumps(object, JSON_COMPACT);
    if (text == NULL) {
        return OL_WIRE_NO_JSON;
    }
    ol_wire_status status = ol_wire_write(fd, (const uint8_t *)text, strlen(text));
    free(text);
    return status;
}

size_t ol_wire_values(const uint8_t *text, size_t n) {
    size_t n_values = 1;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"') {
            in_string = !in_string;
        } else if (in_string) {
            i += text[i] == '\\' ? 1 : 0;
        } else if (text[i] == ',' || text[i] == ':' || text[i] == '[' || text[i] == '{') {
            n_values++;
        }
    }
    return n_values;
}

static int digit_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return -1;
}

void ol_wire_u64_text(uint64_t v, char text[OL_WIRE_U64_DIGITS + 1]) {
    for (unsigned i = 0; i < OL_WIRE_U64_DIGITS; i++) {
        text[i] = "0123456789abcdef"[(v >> (60 - 4 * i)) & 15];
    }
    text[OL_WIRE_U64_DIGITS] = '\0';
}

bool ol_wire_u64_parse(const char *text, uint64_t *v) {
    uint64_t value = 0;
    for (unsigned i = 0; i < OL_WIRE_U64_DIGITS; i++) {
        int digit = digit_value(text[i]);
        if (digit < 0) {
            return false;
        }
        value = (value << 4) | (uint64_t)digit;
    }
    if (text[OL_WIRE_U64_DIGITS] != '\0') {
        return false;
    }
    *v = value;
    return true;
}

json_t *ol_wire_u64(uint64_t v) {
    char text[OL_WIRE_U64_DIGITS + 1];
    ol_wire_u64_text(v, text);
    return json_string_nocheck(text);
}

json_t *ol_wire_f64(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return ol_wire_u64(bits);
}

void ol_wire_hex(const uint8_t *bytes, size_t n_bytes, char *text) {
    for (size_t i = 0; i < n_bytes; i++) {
        text[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    text[2 * n_bytes] = '\0';
}

bool ol_wire_unhex(const char *text, size_t n_text, uint8_t *bytes) {
    if (n_text % 2 != 0) {
        return false;
    }
    for (size_t i = 0; i < n_text / 2; i++) {
        int high = digit_value(text[2 * i]);
        int low = digit_value(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        bytes[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

size_t ol_wire_type_bytes(const char *type) {
    static const struct {
        const char *name;
        size_t n_bytes;
    } types[] = {{"u8", 1}, {"i8", 1}, {"u16", 2}, {"u32", 4}, {"u64", 8}, {"f32", 4}, {"f64", 8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(type, types[i].name) == 0) {
            return types[i].n_bytes;
        }
    }
    return 0;
}

/* On a big-endian host the bytes of each element are turned round, in either direction. */
static void swap_elements(uint8_t *bytes, size_t n, size_t size) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < size / 2; j++) {
            uint8_t other = bytes[i * size + j];
            bytes[i * size + j] = bytes[i * size + size - 1 - j];
            bytes[i * size + size - 1 - j] = other;
        }
    }
#else
    (void)bytes, (void)n, (void)size;
#endif
}

json_t *ol_wire_array(const char *type, const void *data, size_t n) {
    size_t size = ol_wire_type_bytes(type);
    /* Half the address space, so that the digits and the NUL can be counted. */
    if (size == 0 || n > SIZE_MAX / 4 / size) {
        return NULL;
    }
    size_t n_bytes = n * size;
    char *text = malloc(2 * n_bytes + 1);
    if (text == NULL) {
        return NULL;
    }
    /* The bytes wait in the second half of the text while the digits fill it from the front: digit
     * pair i is written after byte i was read, since 2 i + 1 < n_bytes + i + 1 for every i <
     * n_bytes. */
    uint8_t *bytes = (uint8_t *)text + n_bytes + 1;
    if (n_bytes > 0) {
        memcpy(bytes, data, n_bytes);
    }
    swap_elements(bytes, n, size);
    ol_wire_hex(bytes, n_bytes, text);
    json_t *value = json_object();
    json_t *digits = json_stringn_nocheck(text, 2 * n_bytes);
    free(text);
    if (value == NULL || digits == NULL || json_object_set_new_nocheck(value, type, digits) != 0) {
        json_decref(value);
        return NULL;
    }
    return value;
}

bool ol_wire_array_len(const json_t *value, const char *type, size_t *n) {
    size_t size = ol_wire_type_bytes(type);
    if (size == 0 || !json_is_object(value) || json_object_size(value) != 1) {
        return false;
    }
    const json_t *digits = json_object_get(value, type);
    if (!json_is_string(digits) || json_string_length(digits) % (2 * size) != 0) {
        return false;
    }
    *n = json_string_length(digits) / (2 * size);
    return true;
}

bool ol_wire_array_get(const json_t *value, const char *type, void *data, size_t n) {
    size_t n_there = 0;
    if (!ol_wire_array_len(value, type, &n_there) || n_there != n) {
        return false;
    }
    const json_t *digits = json_object_get(value, type);
    if (!ol_wire_unhex(json_string_value(digits), json_string_length(digits), data)) {
        return false;
    }
    swap_elements(data, n, ol_wire_type_bytes(type));
    return true;
}
