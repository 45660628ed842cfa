/* json.h: jansson behind the checks that it does not make.
 *
 * jansson swallows a NUL byte after a number, true, false or null, counts no nodes and, on a
 * header of 100 MB, takes gigabytes. So a scan of our own goes over the bytes first: UTF-8, NUL
 * (raw or escaped), lone surrogates, nesting, nodes. Only then does jansson see them, with
 * duplicate keys refused.
 *
 * Private, but given to learners as it is; never graded. Source: conformance/spec/config.md (the
 * JSON rules) and conformance/spec/safetensors.md, rules 3 and 4. */
#ifndef TLI_JSON_H
#define TLI_JSON_H

#include <jansson.h>

#include "tl/base.h"

typedef struct tli_json_limits {
    size_t max_bytes;
    size_t max_depth;
    size_t max_nodes;
} tli_json_limits;

/* Parse one JSON object. `what` names the file in messages; offsets in errors count from bytes and
 * have `base` added. On success *out is a new reference.
 * FORMAT: everything that is wrong with the bytes. NOMEM. */
TL_MUST_USE tl_status tli_json_object(json_t **out, const char *bytes, size_t n_bytes,
                                      uint64_t base, const tli_json_limits *limits,
                                      const char *what, tl_error *err);

/* A top-level object taken one entry at a time, so that a header of any size costs the memory of
 * its largest entry. tli_json_open makes the whole scan; each tli_json_next hands out the next key
 * (decoded, NUL-ended, valid until the following call) and its value (a new reference, of at most
 * max_entry_nodes nodes). */
typedef struct tli_json_walk tli_json_walk;

TL_MUST_USE tl_status tli_json_open(tli_json_walk **out, const char *bytes, size_t n_bytes,
                                    uint64_t base, const tli_json_limits *limits,
                                    size_t max_entry_nodes, const char *what, tl_error *err);
/* *value is NULL after the last entry. *at is the byte where the key starts. */
TL_MUST_USE tl_status tli_json_next(tli_json_walk *walk, const char **key, size_t *key_len,
                                    json_t **value, uint64_t *at, tl_error *err);
void tli_json_close(tli_json_walk *walk);

#endif
