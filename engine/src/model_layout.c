/* model_layout.c: the bytes of a safetensors file to a list of tensors, rule by rule.
 *
 * Each rule of the page is a function or a line of its own here, and nothing of the file is
 * handed out before all of them hold. Numbers are 64 bits wide and every product is checked. The
 * header is taken one entry at a time, names and dimensions go into chunks, and duplicates are
 * found by sorting, so that a hostile header costs about its own size.
 *
 * Source: conformance/spec/safetensors.md, rules 1 to 9. */
#include "tl/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "model_internal.h"
#include "util.h"

#define CHUNK_BYTES ((size_t)64 * 1024)
#define FORGET_BYTES ((size_t)4 * 1024 * 1024)
#define NAME_SHOWN 80 /* bytes of a name that a message quotes */
#define DIMS_MAX ((size_t)8000000)

static const tli_json_limits header_limits = {
    .max_bytes = 100000000, .max_depth = 64, .max_nodes = 16000000, .max_member_nodes = 250000};

/* ------------------------------------------------------------------ types */

typedef struct dtype_row {
    const char *name;
    tl_dtype dtype;
    uint32_t bits;
} dtype_row;

static const dtype_row dtypes[] = {
    {"F32", TL_DTYPE_F32, 32},
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
    {"U64", TL_DTYPE_U64, 64},
};

#define N_DTYPES (sizeof dtypes / sizeof dtypes[0])

const char *tl_dtype_name(tl_dtype dtype) {
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].name;
        }
    }
    return "unknown";
}

static const dtype_row *find_dtype(const char *name) {
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            return &dtypes[i];
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------ memory of a layout */

/* Words grow from the front of a chunk, text from its back. */
typedef struct chunk {
    struct chunk *next;
    size_t front, back; /* bytes of words[] */
    uint64_t words[];
} chunk;

typedef struct metadata_entry {
    const char *key, *value;
    size_t key_len;
} metadata_entry;

struct tl_layout {
    tl_tensor_info *infos; /* [n] by (begin, end) */
    uint32_t *by_name;     /* [n] positions in infos, by (name key, name) */
    size_t n;
    metadata_entry *metadata; /* [n_metadata] in the header's order */
    size_t n_metadata;
    size_t n_dims; /* of all tensors */
    uint64_t data_start;
    chunk *chunks;
};

static chunk *add_chunk(tl_layout *layout, size_t n_bytes) {
    const size_t n_room = n_bytes > CHUNK_BYTES ? n_bytes : CHUNK_BYTES;
    chunk *added = NULL;
    if (n_room <= SIZE_MAX - sizeof *added - sizeof(uint64_t)) {
        added = (chunk *)malloc(sizeof *added + n_room);
    }
    if (added == NULL) {
        return NULL;
    }
    added->front = 0;
    added->back = n_room;
    /* A chunk that will be full at once goes behind the head, whose room can still be used. */
    chunk **place =
        layout->chunks != NULL && n_bytes > CHUNK_BYTES ? &layout->chunks->next : &layout->chunks;
    added->next = *place;
    *place = added;
    return added;
}

static chunk *chunk_with_room(tl_layout *layout, size_t n_bytes) {
    chunk *head = layout->chunks;
    if (head != NULL && head->back - head->front >= n_bytes) {
        return head;
    }
    return add_chunk(layout, n_bytes);
}

static uint64_t *take_words(tl_layout *layout, size_t n) {
    size_t n_bytes = 0;
    chunk *from = tli_mul(n, sizeof(uint64_t), &n_bytes) ? chunk_with_room(layout, n_bytes) : NULL;
    if (from == NULL) {
        return NULL;
    }
    uint64_t *words = from->words + from->front / sizeof(uint64_t);
    from->front += n_bytes;
    return words;
}

static char *take_text(tl_layout *layout, size_t n_bytes) {
    chunk *from = chunk_with_room(layout, n_bytes);
    if (from == NULL) {
        return NULL;
    }
    from->back -= n_bytes;
    return (char *)from->words + from->back;
}

/* Unescape a key or a string into the layout's memory. */
static const char *keep_string(tl_layout *layout, tli_json_span string, size_t *len) {
    char *text = take_text(layout, string.len);
    if (text == NULL) {
        return NULL;
    }
    *len = tli_json_decode(string, text);
    return text;
}

void tl_layout_free(tl_layout *layout) {
    if (layout == NULL) {
        return;
    }
    chunk *next = layout->chunks;
    while (next != NULL) {
        chunk *gone = next;
        next = gone->next;
        free(gone);
    }
    free(layout->infos);
    free(layout->by_name);
    free(layout->metadata);
    free(layout);
}

static tl_status no_memory(tl_error *err) {
    return tli_fail(err, TL_ERR_NOMEM, "no memory for the tensor list of a safetensors header");
}

/* ------------------------------------------------------------------ rule 3: padding */

/* Behind the last brace there are spaces and nothing else, not even the white space of JSON. */
static tl_status check_padding(tli_json_span header, tl_error *err) {
    size_t brace = header.len;
    while (brace > 0 && header.text[brace - 1] != '}') {
        brace--;
    }
    for (size_t i = brace; brace > 0 && i < header.len; i++) {
        if (header.text[i] != ' ') {
            return tli_fail_at(
                err, TL_ERR_FORMAT, header.at + i,
                "rule 3: byte 0x%02x behind the header's last '}', only spaces may stand there",
                (unsigned)(uint8_t)header.text[i]);
        }
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ rules 5 to 8: the entries */

/* What one entry is judged by. */
typedef struct entry_place {
    const char *name;
    uint64_t at; /* of its key, in the file */
    uint64_t n_data;
    tl_error *err;
} entry_place;

static tl_status refuse_entry(const entry_place *place, const char *fmt, ...) TLI_PRINTF(2, 3);

static tl_status refuse_entry(const entry_place *place, const char *fmt, ...) {
    char reason[160];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    return tli_fail_at(place->err, TL_ERR_FORMAT, place->at, "tensor '%.*s': %s", NAME_SHOWN,
                       place->name, n < 0 ? "" : reason);
}

/* An integer >= 0 that was written as one. jansson reads -0 as the integer 0, as the rule does. */
static tl_status read_count(const entry_place *place, const json_t *value, const char *what,
                            size_t index, uint64_t *out) {
    if (!json_is_integer(value)) {
        return refuse_entry(place, "rule 6: %s[%zu] is not an integer", what, index);
    }
    const json_int_t number = json_integer_value(value);
    if (number < 0) {
        return refuse_entry(place, "rule 6: %s[%zu] is %lld, below 0", what, index,
                            (long long)number);
    }
    *out = (uint64_t)number;
    return TL_OK;
}

static tl_status read_dtype(const entry_place *place, const json_t *entry, tl_tensor_info *info,
                            uint32_t *bits) {
    const json_t *value = json_object_get(entry, "dtype");
    if (!json_is_string(value)) {
        return refuse_entry(place, "rule 6: %s", value == NULL ? "no dtype" : "dtype is no string");
    }
    const dtype_row *row = find_dtype(json_string_value(value));
    if (row == NULL) {
        return refuse_entry(place, "rule 7: dtype '%.40s' is not known", json_string_value(value));
    }
    info->dtype = row->dtype;
    *bits = row->bits;
    return TL_OK;
}

static tl_status read_shape(const entry_place *place, const json_t *entry, tl_layout *layout,
                            tl_tensor_info *info) {
    const json_t *value = json_object_get(entry, "shape");
    if (!json_is_array(value)) {
        return refuse_entry(place, "rule 6: %s", value == NULL ? "no shape" : "shape is no array");
    }
    const size_t n_dims = json_array_size(value);
    if (n_dims == 0) {
        return TL_OK;
    }
    if (n_dims > DIMS_MAX - layout->n_dims) {
        return refuse_entry(place, "rule 6: more than %zu dimensions in all shapes", DIMS_MAX);
    }
    layout->n_dims += n_dims;
    uint64_t *dims = take_words(layout, n_dims);
    if (dims == NULL) {
        return no_memory(place->err);
    }
    for (size_t i = 0; i < n_dims; i++) {
        TLI_TRY(read_count(place, json_array_get(value, i), "shape", i, &dims[i]));
    }
    info->dims = dims;
    info->n_dims = n_dims;
    return TL_OK;
}

static tl_status read_offsets(const entry_place *place, const json_t *entry, tl_tensor_info *info) {
    const json_t *value = json_object_get(entry, "data_offsets");
    if (!json_is_array(value) || json_array_size(value) != 2) {
        return refuse_entry(place, "rule 6: %s",
                            value == NULL ? "no data_offsets"
                                          : "data_offsets is no array of two integers");
    }
    TLI_TRY(read_count(place, json_array_get(value, 0), "data_offsets", 0, &info->begin));
    TLI_TRY(read_count(place, json_array_get(value, 1), "data_offsets", 1, &info->end));
    if (info->begin > info->end) {
        return refuse_entry(place, "rule 9: data_offsets [%llu, %llu] run backwards",
                            (unsigned long long)info->begin, (unsigned long long)info->end);
    }
    if (info->end > place->n_data) {
        return refuse_entry(place, "rule 9: ends at %llu, past the data buffer of %llu bytes",
                            (unsigned long long)info->end, (unsigned long long)place->n_data);
    }
    return TL_OK;
}

/* Left to right, so that an overflow before a later 0 is still one. */
static tl_status check_size(const entry_place *place, const tl_tensor_info *info, uint32_t bits) {
    uint64_t n = 1;
    for (size_t i = 0; i < info->n_dims; i++) {
        if (!tli_mul_u64(n, info->dims[i], &n)) {
            return refuse_entry(place,
                                "rule 8: the product of its shape overflows at dimension %zu", i);
        }
    }
    if (!tli_mul_u64(n, bits, &n)) {
        return refuse_entry(place, "rule 8: its size in bits overflows");
    }
    if (n % 8 != 0) {
        return refuse_entry(place, "rule 8: %llu bits of %s are no whole bytes",
                            (unsigned long long)n, tl_dtype_name(info->dtype));
    }
    const uint64_t n_bytes = n / 8;
    if (n_bytes != info->end - info->begin) {
        return refuse_entry(
            place, "rule 8: shape and dtype make %llu bytes, data_offsets [%llu, %llu] %llu",
            (unsigned long long)n_bytes, (unsigned long long)info->begin,
            (unsigned long long)info->end, (unsigned long long)(info->end - info->begin));
    }
    return TL_OK;
}

static tl_status read_fields(const entry_place *place, const json_t *entry, tl_layout *layout,
                             tl_tensor_info *info) {
    uint32_t bits = 0;
    if (!json_is_object(entry)) {
        return refuse_entry(place, "rule 6: its entry is no object");
    }
    TLI_TRY(read_dtype(place, entry, info, &bits));
    TLI_TRY(read_shape(place, entry, layout, info));
    TLI_TRY(read_offsets(place, entry, info));
    return check_size(place, info, bits);
}

static tl_status read_tensor(tl_layout *layout, tli_json_span key, tli_json_span value,
                             uint64_t n_data, tl_error *err) {
    tl_tensor_info *info = &layout->infos[layout->n];
    info->name = keep_string(layout, key, &info->name_len);
    if (info->name == NULL) {
        return no_memory(err);
    }
    const entry_place place = {.name = info->name, .at = key.at, .n_data = n_data, .err = err};
    json_t *entry = NULL;
    tl_error inner = {.offset = TL_NO_OFFSET};
    tl_status status = tli_json_load(&entry, value, "rules 4 and 6", &inner);
    if (status != TL_OK) {
        return tli_fail_at(err, status, inner.offset, "tensor '%.*s': %s", NAME_SHOWN, info->name,
                           inner.text);
    }
    status = read_fields(&place, entry, layout, info);
    json_decref(entry);
    layout->n += status == TL_OK ? 1 : 0;
    return status;
}

static size_t count_members(tli_json_span object) {
    tli_json_walk walk = tli_json_members(object);
    tli_json_span key = {0};
    tli_json_span value = {0};
    size_t n = 0;
    while (tli_json_next(&walk, &key, &value)) {
        n++;
    }
    return n;
}

static tl_status read_metadata(tl_layout *layout, tli_json_span object, tl_error *err) {
    if (object.text[0] != '{') {
        return tli_fail_at(err, TL_ERR_FORMAT, object.at, "rule 5: __metadata__ is no object");
    }
    layout->metadata = (metadata_entry *)tli_calloc(count_members(object), sizeof(metadata_entry));
    if (layout->metadata == NULL) {
        return no_memory(err);
    }
    tli_json_walk walk = tli_json_members(object);
    tli_json_span key = {0};
    tli_json_span value = {0};
    while (tli_json_next(&walk, &key, &value)) {
        metadata_entry *entry = &layout->metadata[layout->n_metadata];
        size_t value_len = 0;
        entry->key = keep_string(layout, key, &entry->key_len);
        if (entry->key == NULL) {
            return no_memory(err);
        }
        if (value.text[0] != '"') {
            return tli_fail_at(err, TL_ERR_FORMAT, value.at,
                               "rule 5: the value of '%.*s' in __metadata__ is no string",
                               NAME_SHOWN, entry->key);
        }
        entry->value = keep_string(layout, value, &value_len);
        if (entry->value == NULL) {
            return no_memory(err);
        }
        layout->n_metadata++;
    }
    return TL_OK;
}

/* The raw key, since a name of 100 MB that is only compared need not be unescaped first: an
 * escape makes it longer, and a name as short as this one is unescaped into a few bytes. */
static bool is_metadata_key(tli_json_span key) {
    static const char name[] = "__metadata__";
    char text[6 * sizeof name + 2]; /* every character as \uXXXX, and the quotes */
    if (key.len > sizeof text) {
        return false;
    }
    return tli_json_decode(key, text) == strlen(name) && strcmp(text, name) == 0;
}

static tl_status read_entries(tl_layout *layout, const tli_bytes *bytes, tli_json_span header,
                              uint64_t n_data, tl_error *err) {
    size_t n_forgotten = 0;
    tli_json_walk walk = tli_json_members(header);
    tli_json_span key = {0};
    tli_json_span value = {0};
    while (tli_json_next(&walk, &key, &value)) {
        if (!is_metadata_key(key)) {
            TLI_TRY(read_tensor(layout, key, value, n_data, err));
        } else if (layout->metadata != NULL) {
            return tli_fail_at(err, TL_ERR_FORMAT, key.at, "rule 4: __metadata__ stands twice");
        } else {
            TLI_TRY(read_metadata(layout, value, err));
        }
        const size_t n_read = (size_t)value.at + value.len;
        if (n_read - n_forgotten >= FORGET_BYTES) {
            tli_bytes_forget(bytes, n_forgotten, n_read);
            n_forgotten = n_read;
        }
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ rule 4: no name twice */

static int tie_names(const void *context, uint32_t a, uint32_t b) {
    const tl_tensor_info *infos = (const tl_tensor_info *)context;
    return tli_name_compare(infos[a].name, infos[a].name_len, infos[b].name, infos[b].name_len);
}

static int tie_metadata(const void *context, uint32_t a, uint32_t b) {
    const metadata_entry *entries = (const metadata_entry *)context;
    return tli_name_compare(entries[a].key, entries[a].key_len, entries[b].key, entries[b].key_len);
}

/* The later of two sorted items that are equal, if there are any. */
static bool find_twice(const uint64_t *items, size_t n, tli_tie tie, const void *context,
                       uint32_t *index) {
    for (size_t i = 1; i < n; i++) {
        const bool same_key = items[i - 1] >> 32 == items[i] >> 32;
        const uint32_t later = tli_item_index(items[i]);
        if (same_key && tie(context, tli_item_index(items[i - 1]), later) == 0) {
            *index = later;
            return true;
        }
    }
    return false;
}

/* Where the key of the tensor that is `index`th in the header stands. */
static uint64_t key_offset(tli_json_span header, uint32_t index) {
    tli_json_walk walk = tli_json_members(header);
    tli_json_span key = {0};
    tli_json_span value = {0};
    uint32_t n_seen = 0;
    while (tli_json_next(&walk, &key, &value)) {
        if (is_metadata_key(key)) {
            continue;
        }
        if (n_seen == index) {
            break;
        }
        n_seen++;
    }
    return key.at;
}

/* Sort the names, which are in the header's order still. */
static tl_status index_names(tl_layout *layout, tli_json_span header, uint64_t *items,
                             uint64_t *spare, tl_error *err) {
    for (size_t i = 0; i < layout->n; i++) {
        const tl_tensor_info *info = &layout->infos[i];
        items[i] = tli_item(tli_name_key(info->name, info->name_len), (uint32_t)i);
    }
    tli_sort_items(items, spare, layout->n, tie_names, layout->infos);
    uint32_t twice = 0;
    if (find_twice(items, layout->n, tie_names, layout->infos, &twice)) {
        return tli_fail_at(err, TL_ERR_FORMAT, key_offset(header, twice),
                           "rule 4: tensor '%.*s' stands twice in the header", NAME_SHOWN,
                           layout->infos[twice].name);
    }
    for (size_t i = 0; i < layout->n; i++) {
        layout->by_name[i] = tli_item_index(items[i]);
    }
    return TL_OK;
}

static tl_status check_metadata_keys(const tl_layout *layout, uint64_t *items, uint64_t *spare,
                                     tl_error *err) {
    for (size_t i = 0; i < layout->n_metadata; i++) {
        const metadata_entry *entry = &layout->metadata[i];
        items[i] = tli_item(tli_name_key(entry->key, entry->key_len), (uint32_t)i);
    }
    tli_sort_items(items, spare, layout->n_metadata, tie_metadata, layout->metadata);
    uint32_t twice = 0;
    if (find_twice(items, layout->n_metadata, tie_metadata, layout->metadata, &twice)) {
        return tli_fail(err, TL_ERR_FORMAT, "rule 4: '%.*s' stands twice in __metadata__",
                        NAME_SHOWN, layout->metadata[twice].key);
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ rule 9: tiling */

static int tie_ranges(const void *context, uint32_t a, uint32_t b) {
    const tl_tensor_info *infos = (const tl_tensor_info *)context;
    if (infos[a].begin != infos[b].begin) {
        return infos[a].begin < infos[b].begin ? -1 : 1;
    }
    /* An empty tensor shares its begin with the next one and comes first. */
    if (infos[a].end != infos[b].end) {
        return infos[a].end < infos[b].end ? -1 : 1;
    }
    return 0;
}

/* Bring infos into the order of items, and let by_name follow. Overwrites spare and items. */
static void reorder(tl_layout *layout, uint64_t *items, uint64_t *spare) {
    const size_t n = layout->n;
    for (size_t i = 0; i < n; i++) {
        spare[tli_item_index(items[i])] = i;
    }
    for (size_t i = 0; i < n; i++) {
        layout->by_name[i] = (uint32_t)spare[layout->by_name[i]];
    }
    for (size_t i = 0; i < n; i++) {
        const tl_tensor_info first = layout->infos[i];
        size_t hole = i;
        /* Follow the cycle that i is on; a place that is done points at itself. */
        while (tli_item_index(items[hole]) != i) {
            const size_t from = tli_item_index(items[hole]);
            layout->infos[hole] = layout->infos[from];
            items[hole] = hole;
            hole = from;
        }
        layout->infos[hole] = first;
        items[hole] = hole;
    }
}

static void sort_by_range(tl_layout *layout, uint64_t n_data, uint64_t *items, uint64_t *spare) {
    uint32_t shift = 0; /* makes every begin fit the 32 bits of a sort key */
    while (n_data >> shift > UINT32_MAX) {
        shift++;
    }
    for (size_t i = 0; i < layout->n; i++) {
        items[i] = tli_item((uint32_t)(layout->infos[i].begin >> shift), (uint32_t)i);
    }
    tli_sort_items(items, spare, layout->n, tie_ranges, layout->infos);
    reorder(layout, items, spare);
}

/* infos are sorted by (begin, end): the ranges follow each other from 0 to the end of the data. */
static tl_status check_tiling(const tl_layout *layout, uint64_t n_data, tl_error *err) {
    uint64_t covered = 0;
    for (size_t i = 0; i < layout->n; i++) {
        const tl_tensor_info *info = &layout->infos[i];
        const uint64_t at = layout->data_start + info->begin;
        if (info->begin < covered) {
            return tli_fail_at(err, TL_ERR_FORMAT, at,
                               "rule 9: tensor '%.*s' begins at %llu, inside '%.*s', which ends at "
                               "%llu",
                               NAME_SHOWN, info->name, (unsigned long long)info->begin, NAME_SHOWN,
                               layout->infos[i - 1].name, (unsigned long long)covered);
        }
        if (info->begin > covered) {
            return tli_fail_at(err, TL_ERR_FORMAT, layout->data_start + covered,
                               "rule 9: tensor '%.*s' begins at %llu, with a hole from %llu before "
                               "it",
                               NAME_SHOWN, info->name, (unsigned long long)info->begin,
                               (unsigned long long)covered);
        }
        covered = info->end;
    }
    if (covered != n_data) {
        return tli_fail_at(err, TL_ERR_FORMAT, layout->data_start + covered,
                           "rule 9: the tensors end at %llu, the data buffer at %llu bytes",
                           (unsigned long long)covered, (unsigned long long)n_data);
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ a layout */

static tl_status sort_layout(tl_layout *layout, tli_json_span header, uint64_t n_data,
                             tl_error *err) {
    const size_t n = layout->n > layout->n_metadata ? layout->n : layout->n_metadata;
    uint64_t *items = (uint64_t *)tli_calloc(n, 2 * sizeof *items);
    if (items == NULL) {
        return no_memory(err);
    }
    uint64_t *spare = items + n;
    tl_status status = check_metadata_keys(layout, items, spare, err);
    if (status == TL_OK) {
        status = index_names(layout, header, items, spare, err);
    }
    if (status == TL_OK) {
        sort_by_range(layout, n_data, items, spare);
    }
    free(items);
    return status;
}

static tl_status fill_layout(tl_layout *layout, const tli_bytes *bytes, tli_json_span header,
                             uint64_t n_data, tl_error *err) {
    size_t n_members = 0;
    TLI_TRY(tli_json_check(header, &header_limits, "header, rules 3 and 4", &n_members, err));
    TLI_TRY(check_padding(header, err));
    layout->infos = (tl_tensor_info *)tli_calloc(n_members, sizeof(tl_tensor_info));
    layout->by_name = (uint32_t *)tli_calloc(n_members, sizeof(uint32_t));
    if (layout->infos == NULL || layout->by_name == NULL) {
        return no_memory(err);
    }
    TLI_TRY(read_entries(layout, bytes, header, n_data, err));
    TLI_TRY(sort_layout(layout, header, n_data, err));
    return check_tiling(layout, n_data, err);
}

tl_status tli_layout_parse(tl_layout **out, const tli_bytes *bytes, tl_error *err) {
    const size_t n_head = bytes->n < TLI_HEAD_BYTES ? bytes->n : TLI_HEAD_BYTES;
    *out = NULL;
    TLI_TRY(tli_layout_check_head(bytes->data, n_head, bytes->n, err));
    const uint64_t n_header = tli_load_u64(bytes->data);
    const tli_json_span header = {
        .text = (const char *)bytes->data + 8, .len = (size_t)n_header, .at = 8};
    tl_layout *layout = (tl_layout *)tli_calloc(1, sizeof *layout);
    if (layout == NULL) {
        return no_memory(err);
    }
    layout->data_start = 8 + n_header; /* rule 2 holds: no overflow */
    const uint64_t n_data = bytes->n - layout->data_start;
    const tl_status status = fill_layout(layout, bytes, header, n_data, err);
    if (status != TL_OK) {
        tl_layout_free(layout);
        return status;
    }
    *out = layout;
    return TL_OK;
}

tl_status tl_layout_parse(tl_layout **out, const uint8_t *bytes, size_t n_bytes, tl_error *err) {
    static const uint8_t none[1];
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "tl_layout_parse: out is NULL");
    }
    *out = NULL;
    if (bytes == NULL && n_bytes > 0) {
        return tli_fail(err, TL_ERR_INVALID, "tl_layout_parse: bytes is NULL");
    }
    /* An empty file has bytes that may not be read, but no null pointer to reckon with. */
    const tli_bytes borrowed = {.data = bytes == NULL ? none : bytes, .n = n_bytes};
    return tli_layout_parse(out, &borrowed, err);
}

size_t tl_layout_count(const tl_layout *layout) {
    return layout == NULL ? 0 : layout->n;
}

const tl_tensor_info *tl_layout_at(const tl_layout *layout, size_t index) {
    return layout == NULL || index >= layout->n ? NULL : &layout->infos[index];
}

/* Order of the i-th name against the one that is looked for. */
static int compare_name(const tl_layout *layout, size_t i, const char *name, size_t name_len) {
    const tl_tensor_info *info = &layout->infos[layout->by_name[i]];
    const uint32_t key = tli_name_key(info->name, info->name_len);
    const uint32_t wanted = tli_name_key(name, name_len);
    if (key != wanted) {
        return key < wanted ? -1 : 1;
    }
    return tli_name_compare(info->name, info->name_len, name, name_len);
}

bool tli_layout_index(const tl_layout *layout, const char *name, size_t *index) {
    const size_t name_len = strlen(name);
    size_t low = 0;
    size_t high = layout->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = compare_name(layout, middle, name, name_len);
        if (order == 0) {
            *index = layout->by_name[middle];
            return true;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}

const tl_tensor_info *tl_layout_find(const tl_layout *layout, const char *name) {
    size_t index = 0;
    if (layout == NULL || name == NULL || !tli_layout_index(layout, name, &index)) {
        return NULL;
    }
    return &layout->infos[index];
}

const char *tl_layout_metadata(const tl_layout *layout, const char *key) {
    for (size_t i = 0; layout != NULL && key != NULL && i < layout->n_metadata; i++) {
        if (strcmp(layout->metadata[i].key, key) == 0) {
            return layout->metadata[i].value;
        }
    }
    return NULL;
}

uint64_t tl_layout_data_start(const tl_layout *layout) {
    return layout == NULL ? 0 : layout->data_start;
}
