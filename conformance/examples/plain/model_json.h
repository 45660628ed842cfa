/* model_json.h: a JSON reader without a tree.
 *
 * plain_json_check goes over a text once and proves that it is one JSON object within the limits.
 * After that a value is only a pointer to its first byte, and everything else here walks over
 * bytes that are known to be good. The object's closing brace ends every walk. */
#ifndef PLAIN_MODEL_JSON_H
#define PLAIN_MODEL_JSON_H

#include "tl/base.h"

typedef struct plain_json_limits {
    size_t max_bytes;
    size_t max_nodes;        /* values of any kind, without the names of members */
    size_t max_member_nodes; /* the same in one member of the outermost object */
} plain_json_limits;

/* The depth is limited to 64 levels everywhere. `at` is the byte of the file that the text starts
 * at, for offsets. FORMAT, NOMEM. */
tl_status plain_json_check(const char *text, size_t len, uint64_t at,
                           const plain_json_limits *limits, const char *what, tl_error *err);

/* The offset of the first byte that is NUL or starts a sequence that is no UTF-8; len if none. */
size_t plain_bad_byte(const char *text, size_t len);

/* ---- of checked texts only ---- */

typedef enum plain_kind {
    PLAIN_OBJECT,
    PLAIN_ARRAY,
    PLAIN_STRING,
    PLAIN_NUMBER,
    PLAIN_BOOL,
    PLAIN_NULL
} plain_kind;

plain_kind plain_json_kind(const char *value);

/* The members of an object, or the elements of an array (whose key is NULL), in their order:
 *     plain_walk walk = plain_walk_of(value);
 *     while (plain_walk_next(&walk)) { ... walk.key, walk.value ... } */
typedef struct plain_walk {
    const char *at;
    bool has_keys;
    const char *key;
    const char *value;
} plain_walk;

plain_walk plain_walk_of(const char *value);
bool plain_walk_next(plain_walk *walk);
size_t plain_json_count(const char *value);
const char *plain_json_find(const char *object, const char *key); /* NULL if there is none */

bool plain_json_equal(const char *string, const char *want);
/* Unescape a string into dst, end it by a NUL and return the place after that. dst needs as many
 * bytes as the literal has, quotes included. */
char *plain_json_decode(const char *string, char *dst);
bool plain_json_true(const char *value); /* of a boolean */
/* false when the number is not written as an integer. */
bool plain_json_int(const char *number, int64_t *out);
double plain_json_real(const char *number);
/* The bytes of a value as they stand, for messages: printf("%.*s", plain_json_show(value), value).
 * Cut where it gets long. */
int plain_json_show(const char *value);

#endif
