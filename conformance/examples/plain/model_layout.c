/* model_layout.c: one safetensors file: the eleven rules, in their order.
 *
 * The header is walked twice. The first walk counts tensors and dimensions, so that each array is
 * allocated once; the second one reads. Then the tensors are sorted by their ranges, which makes
 * holes and overlaps a matter of neighbours.
 *
 * Source: conformance/spec/safetensors.md, rules 1 to 11. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model_json.h"
#include "model_plain.h"
#include "util.h"

enum {
    MAX_HEADER = 100000000,
    MAX_NODES = 16000000,
    MAX_MEMBER_NODES = 250000,
    MAX_DIMS = 8000000
};

/* A tensor's place in the order of names. */
typedef struct named {
    const char *name;
    size_t index; /* in the order of ranges */
} named;

struct tl_layout {
    uint64_t data_start;
    size_t n_tensors;
    tl_tensor_info *tensors; /* sorted by begin, then end */
    named *by_name;          /* sorted by name */
    uint64_t *dims;          /* of all tensors, one after the other */
    char *text;              /* every name, then key and value of the metadata, NUL-ended */
    const char *metadata;    /* where the latter start */
    size_t n_metadata;
};

static const struct {
    const char *name;
    tl_dtype dtype;
    unsigned bits;
} dtypes[] = {{"F32", TL_DTYPE_F32, 32},
              {"F16", TL_DTYPE_F16, 16},
              {"BF16", TL_DTYPE_BF16, 16},
              {"U8", TL_DTYPE_U8, 8},
              {"BOOL", TL_DTYPE_BOOL, 8},
              {"I8", TL_DTYPE_I8, 8},
              {"F8_E5M2", TL_DTYPE_F8_E5M2, 8},
              {"F8_E4M3", TL_DTYPE_F8_E4M3, 8},
              {"F8_E8M0", TL_DTYPE_F8_E8M0, 8},
              {"F8_E4M3FNUZ", TL_DTYPE_F8_E4M3FNUZ, 8},
              {"F8_E5M2FNUZ", TL_DTYPE_F8_E5M2FNUZ, 8},
              {"F4", TL_DTYPE_F4, 4},
              {"F6_E2M3", TL_DTYPE_F6_E2M3, 6},
              {"F6_E3M2", TL_DTYPE_F6_E3M2, 6},
              {"I16", TL_DTYPE_I16, 16},
              {"U16", TL_DTYPE_U16, 16},
              {"I32", TL_DTYPE_I32, 32},
              {"U32", TL_DTYPE_U32, 32},
              {"C64", TL_DTYPE_C64, 64},
              {"F64", TL_DTYPE_F64, 64},
              {"I64", TL_DTYPE_I64, 64},
              {"U64", TL_DTYPE_U64, 64}};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

const char *tl_dtype_name(tl_dtype dtype) {
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].name;
        }
    }
    return "unknown";
}

static uint64_t bits_of(tl_dtype dtype) {
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].bits;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ one entry: rules 6 to 8 */

/* Refuse a tensor, by its name and with what stands there. */
static tl_status refuse(tl_error *err, const char *name, const char *why, const char *value) {
    return tli_fail(err, TL_ERR_FORMAT, "tensor %s: %s%s%.*s", name, why, value == NULL ? "" : ": ",
                    value == NULL ? 0 : plain_json_show(value), value == NULL ? "" : value);
}

static tl_status read_integers(const char *list, const char *what, uint64_t *out, const char *name,
                               tl_error *err) {
    plain_walk walk = plain_walk_of(list);
    while (plain_walk_next(&walk)) {
        int64_t number;
        if (plain_json_kind(walk.value) != PLAIN_NUMBER || !plain_json_int(walk.value, &number) ||
            number < 0) {
            return refuse(err, name, what, walk.value);
        }
        *out++ = (uint64_t)number;
    }
    return TL_OK;
}

static tl_status read_dtype(const char *entry, tl_tensor_info *t, tl_error *err) {
    const char *value = plain_json_find(entry, "dtype");
    if (value == NULL || plain_json_kind(value) != PLAIN_STRING) {
        return refuse(err, t->name, "dtype must be a string", value);
    }
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (plain_json_equal(value, dtypes[i].name)) {
            t->dtype = dtypes[i].dtype;
            return TL_OK;
        }
    }
    return refuse(err, t->name, "an unknown dtype", value);
}

/* Rule 8: each product is checked, also where a later 0 would hide that it is too large. */
static tl_status check_size(const tl_tensor_info *t, tl_error *err) {
    uint64_t n = 1;
    for (size_t i = 0; i < t->n_dims; i++) {
        if (!tli_mul_u64(n, t->dims[i], &n)) {
            return refuse(err, t->name, "the product of the shape overflows", NULL);
        }
    }
    if (!tli_mul_u64(n, bits_of(t->dtype), &n)) {
        return refuse(err, t->name, "the size in bits overflows", NULL);
    }
    if (n % 8 != 0) {
        return refuse(err, t->name, "the size is no whole number of bytes", NULL);
    }
    if (t->begin > t->end || t->end - t->begin != n / 8) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "tensor %s: shape and dtype need %" PRIu64 " bytes, "
                        "data_offsets are %" PRIu64 " to %" PRIu64,
                        t->name, n / 8, t->begin, t->end);
    }
    return TL_OK;
}

static const char *shape_of(const char *entry) {
    const char *shape =
        plain_json_kind(entry) == PLAIN_OBJECT ? plain_json_find(entry, "shape") : NULL;
    return shape != NULL && plain_json_kind(shape) == PLAIN_ARRAY ? shape : NULL;
}

static tl_status read_entry(const char *entry, tl_tensor_info *t, uint64_t *dims, tl_error *err) {
    if (plain_json_kind(entry) != PLAIN_OBJECT) {
        return refuse(err, t->name, "the entry must be an object", entry);
    }
    TLI_TRY(read_dtype(entry, t, err));
    const char *shape = shape_of(entry);
    if (shape == NULL) {
        return refuse(err, t->name, "shape must be a list", NULL);
    }
    TLI_TRY(read_integers(shape, "shape must hold integers of at least 0", dims, t->name, err));
    t->n_dims = plain_json_count(shape);
    t->dims = t->n_dims == 0 ? NULL : dims;
    const char *offsets = plain_json_find(entry, "data_offsets");
    uint64_t range[2] = {0};
    if (offsets == NULL || plain_json_kind(offsets) != PLAIN_ARRAY ||
        plain_json_count(offsets) != 2) {
        return refuse(err, t->name, "data_offsets must be a list of two", offsets);
    }
    TLI_TRY(read_integers(offsets, "data_offsets must hold integers of at least 0", range, t->name,
                          err));
    t->begin = range[0];
    t->end = range[1];
    return check_size(t, err);
}

/* ------------------------------------------------------------------ the header: rules 2 to 5 */

static tl_status check_header(const uint8_t *bytes, size_t n_bytes, size_t *n_header,
                              tl_error *err) {
    const char *kind = plain_foreign(bytes, n_bytes);
    if (n_bytes < 8) {
        return tli_fail(err, TL_ERR_FORMAT, "the file has %zu bytes, at least 8 are needed%s",
                        n_bytes, kind);
    }
    const uint64_t n = tli_load_u64(bytes);
    if (n > MAX_HEADER || n > n_bytes - 8) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "a header of %" PRIu64 " bytes in a file of %zu, at "
                        "most 100000000 are allowed%s",
                        n, n_bytes, kind);
    }
    if (n == 0) {
        return tli_fail(err, TL_ERR_FORMAT, "the header is empty%s", kind);
    }
    if (bytes[8] != '{') {
        return tli_fail_at(err, TL_ERR_FORMAT, 8,
                           "the header starts with byte 0x%02x and not with {%s", bytes[8], kind);
    }
    const size_t bad = plain_bad_byte((const char *)bytes + 8, (size_t)n);
    if (bad < n) {
        return tli_fail_at(err, TL_ERR_FORMAT, 8 + bad, "byte %02x of the header is %s",
                           bytes[8 + bad], bytes[8 + bad] == 0 ? "NUL" : "no UTF-8");
    }
    size_t last = (size_t)n; /* one past the last brace; there is the first one at least */
    while (bytes[8 + last - 1] != '}' && last > 1) {
        last--;
    }
    for (size_t i = last; last > 1 && i < n; i++) {
        if (bytes[8 + i] != ' ') {
            return tli_fail_at(err, TL_ERR_FORMAT, 8 + i,
                               "byte %02x behind the header's last }, spaces are allowed",
                               bytes[8 + i]);
        }
    }
    static const plain_json_limits limits = {MAX_HEADER, MAX_NODES, MAX_MEMBER_NODES};
    *n_header = (size_t)n;
    return plain_json_check((const char *)bytes + 8, (size_t)n, 8, &limits, "the header", err);
}

static tl_status check_metadata(const char *metadata, tl_error *err) {
    if (plain_json_kind(metadata) != PLAIN_OBJECT) {
        return tli_fail(err, TL_ERR_FORMAT, "__metadata__ is %.*s, an object of strings is needed",
                        plain_json_show(metadata), metadata);
    }
    plain_walk walk = plain_walk_of(metadata);
    while (plain_walk_next(&walk)) {
        if (plain_json_kind(walk.value) != PLAIN_STRING) {
            return tli_fail(err, TL_ERR_FORMAT, "__metadata__: %.*s is %.*s, a string is needed",
                            plain_json_show(walk.key), walk.key, plain_json_show(walk.value),
                            walk.value);
        }
    }
    return TL_OK;
}

static bool is_metadata(const plain_walk *member) {
    return plain_json_equal(member->key, "__metadata__");
}

/* The first walk: how much of everything there is. */
static tl_status allocate(tl_layout *layout, const char *header, size_t n_header, tl_error *err) {
    size_t n_dims = 0;
    plain_walk walk = plain_walk_of(header);
    while (plain_walk_next(&walk)) {
        const char *shape = shape_of(walk.value);
        layout->n_tensors += is_metadata(&walk) ? 0 : 1;
        n_dims += shape == NULL ? 0 : plain_json_count(shape);
    }
    if (n_dims > MAX_DIMS) {
        return tli_fail(err, TL_ERR_FORMAT, "%zu dimensions in all shapes, at most %d are allowed",
                        n_dims, MAX_DIMS);
    }
    /* One more than needed, so that none is of size 0. */
    layout->tensors = tli_calloc(layout->n_tensors + 1, sizeof *layout->tensors);
    layout->by_name = tli_calloc(layout->n_tensors + 1, sizeof *layout->by_name);
    layout->dims = tli_calloc(n_dims + 1, sizeof *layout->dims);
    layout->text = tli_calloc(n_header, 1); /* no text gets longer by being unescaped */
    if (layout->tensors == NULL || layout->by_name == NULL || layout->dims == NULL ||
        layout->text == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for %zu tensors", layout->n_tensors);
    }
    return TL_OK;
}

/* The second walk. */
static tl_status read_header(tl_layout *layout, const char *header, tl_error *err) {
    tl_tensor_info *t = layout->tensors;
    uint64_t *dims = layout->dims;
    char *text = layout->text;
    const char *metadata = NULL;
    plain_walk walk = plain_walk_of(header);
    while (plain_walk_next(&walk)) {
        if (is_metadata(&walk)) {
            metadata = walk.value;
            continue;
        }
        t->name = text;
        text = plain_json_decode(walk.key, text);
        t->name_len = (size_t)(text - t->name) - 1;
        TLI_TRY(read_entry(walk.value, t, dims, err));
        dims += t->n_dims;
        t++;
    }
    layout->metadata = text;
    if (metadata == NULL) {
        return TL_OK;
    }
    TLI_TRY(check_metadata(metadata, err));
    walk = plain_walk_of(metadata);
    while (plain_walk_next(&walk)) {
        text = plain_json_decode(walk.key, text);
        text = plain_json_decode(walk.value, text);
        layout->n_metadata++;
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ the ranges: rule 9 */

static int compare_ranges(const void *a, const void *b) {
    const tl_tensor_info *s = a;
    const tl_tensor_info *t = b;
    if (s->begin != t->begin) {
        return s->begin < t->begin ? -1 : 1;
    }
    return (s->end > t->end) - (s->end < t->end);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

static tl_status check_tiling(const tl_layout *layout, uint64_t n_data, tl_error *err) {
    uint64_t covered = 0;
    for (size_t i = 0; i < layout->n_tensors; i++) {
        const tl_tensor_info *t = &layout->tensors[i];
        if (t->end > n_data) {
            return tli_fail(err, TL_ERR_FORMAT,
                            "tensor %s: data_offsets are %" PRIu64 " to %" PRIu64
                            ", there are %" PRIu64 " bytes of data",
                            t->name, t->begin, t->end, n_data);
        }
        if (t->begin != covered) { /* an empty one has its place between others, too */
            return tli_fail(err, TL_ERR_FORMAT,
                            "tensor %s starts at byte %" PRIu64 " of the data, "
                            "which is covered up to %" PRIu64 ": %s",
                            t->name, t->begin, covered,
                            t->begin < covered ? "an overlap" : "a hole");
        }
        covered = t->end;
    }
    if (covered != n_data) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "%" PRIu64 " bytes of data, the tensors end at %" PRIu64, n_data, covered);
    }
    return TL_OK;
}

static tl_status parse(tl_layout *layout, const uint8_t *bytes, size_t n_bytes, tl_error *err) {
    size_t n_header = 0;
    TLI_TRY(check_header(bytes, n_bytes, &n_header, err));
    const char *header = (const char *)bytes + 8;
    layout->data_start = 8 + n_header;
    TLI_TRY(allocate(layout, header, n_header, err));
    TLI_TRY(read_header(layout, header, err));
    const size_t n = layout->n_tensors;
    qsort(layout->tensors, n, sizeof *layout->tensors, compare_ranges);
    for (size_t i = 0; i < n; i++) {
        layout->by_name[i] = (named){.name = layout->tensors[i].name, .index = i};
    }
    qsort(layout->by_name, n, sizeof *layout->by_name, compare_names);
    return check_tiling(layout, n_bytes - layout->data_start, err);
}

tl_status tl_layout_parse(tl_layout **out, const uint8_t *bytes, size_t n_bytes, tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    if (bytes == NULL && n_bytes > 0) {
        return tli_fail(err, TL_ERR_INVALID, "bytes is NULL");
    }
    tl_layout *layout = tli_calloc(1, sizeof *layout);
    if (layout == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a layout");
    }
    const tl_status status = parse(layout, bytes, n_bytes, err);
    if (status != TL_OK) {
        tl_layout_free(layout);
        return status;
    }
    *out = layout;
    return TL_OK;
}

void tl_layout_free(tl_layout *layout) {
    if (layout != NULL) {
        free(layout->tensors);
        free(layout->by_name);
        free(layout->dims);
        free(layout->text);
        free(layout);
    }
}

/* ------------------------------------------------------------------ questions */

size_t tl_layout_count(const tl_layout *layout) {
    return layout == NULL ? 0 : layout->n_tensors;
}

const tl_tensor_info *tl_layout_at(const tl_layout *layout, size_t index) {
    return layout == NULL || index >= layout->n_tensors ? NULL : &layout->tensors[index];
}

const tl_tensor_info *tl_layout_find(const tl_layout *layout, const char *name) {
    if (layout == NULL || name == NULL) {
        return NULL;
    }
    const named key = {.name = name};
    const named *found =
        bsearch(&key, layout->by_name, layout->n_tensors, sizeof key, compare_names);
    return found == NULL ? NULL : &layout->tensors[found->index];
}

const char *tl_layout_metadata(const tl_layout *layout, const char *key) {
    if (layout == NULL || key == NULL) {
        return NULL;
    }
    const char *p = layout->metadata;
    for (size_t i = 0; i < layout->n_metadata; i++) {
        const char *value = p + strlen(p) + 1;
        if (strcmp(p, key) == 0) {
            return value;
        }
        p = value + strlen(value) + 1;
    }
    return NULL;
}

uint64_t tl_layout_data_start(const tl_layout *layout) {
    return layout == NULL ? 0 : layout->data_start;
}
