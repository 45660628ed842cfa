/* json.h: jansson's values, by a reader of our own.
 *
 * jansson's parser swallows a NUL byte after a number, true, false or null, counts no nodes, writes
 * past its buffer when memory runs out inside a token and, on a header of 100 MB, takes gigabytes.
 * So a scan of our own goes over the bytes first and proves that they are JSON within the limits;
 * then the values are built, of the whole text or of one member at a time, and duplicate keys and
 * numbers out of range are found. Whatever else fails in that is memory.
 *
 * A node is a value (object, array, string, number, true, false, null); keys are not counted.
 * The outermost object is level 1.
 *
 * Private, but given to learners as it is; never graded. Source: conformance/spec/config.md
 * (config#json) and conformance/spec/safetensors.md, rules 3 and 4. */
#ifndef TLI_JSON_H
#define TLI_JSON_H

#include <jansson.h>

#include "tl/base.h"

typedef struct tli_json_limits {
    size_t max_bytes;
    size_t max_depth;        /* levels, at most 64 */
    size_t max_nodes;        /* in all */
    size_t max_member_nodes; /* in one member of the outermost object */
} tli_json_limits;

/* A piece of a text, and where it starts in the file that it is from, for offsets in errors. */
typedef struct tli_json_span {
    const char *text;
    size_t len;
    uint64_t at; /* byte of the file */
} tli_json_span;

/* Prove that `text` is one object in UTF-8 and valid JSON within the limits, but for duplicate
 * keys and the range of numbers. `what` names the file in messages. *n_members = members of the
 * outermost object. FORMAT, with the offset. */
TL_MUST_USE tl_status tli_json_check(tli_json_span text, const tli_json_limits *limits,
                                     const char *what, size_t *n_members, tl_error *err);

/* Build the value of a span that is checked, or is part of one that is. *out is a new reference. A
 * string value whose literal has more than 64 KiB comes out empty; keys are whole.
 * FORMAT: a key that stands twice, a number out of range, with the offset. NOMEM. */
TL_MUST_USE tl_status tli_json_load(json_t **out, tli_json_span value, const char *what,
                                    tl_error *err);

/* Both in one for a whole file; an error of the second kind names the member that it is in. */
TL_MUST_USE tl_status tli_json_object(json_t **out, tli_json_span text,
                                      const tli_json_limits *limits, const char *what,
                                      tl_error *err);

/* The members of a checked object, in their order. Allocates nothing. */
typedef struct tli_json_walk {
    tli_json_span object;
    size_t at; /* next byte to look at, counted from object.text */
} tli_json_walk;

tli_json_walk tli_json_members(tli_json_span object);
/* false after the last member. The key is a string literal with its quotes, escapes as they were
 * written; the value is without white space around it. */
bool tli_json_next(tli_json_walk *walk, tli_json_span *key, tli_json_span *value);

/* Unescape a checked string literal into dst, which has room for string.len bytes, and end it by
 * a NUL. Returns its length without the NUL, at most string.len - 2. */
size_t tli_json_decode(tli_json_span string, char *dst);

#endif
