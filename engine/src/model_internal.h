/* model_internal.h: what the files of the model module share. Private to the module. */
#ifndef TLI_MODEL_INTERNAL_H
#define TLI_MODEL_INTERNAL_H

#include "model_io.h"
#include "tl/model.h"

#define TLI_CONFIG_NAME "config.json"
#define TLI_SINGLE_NAME "model.safetensors"
#define TLI_INDEX_NAME "model.safetensors.index.json"

/* ------------------------------------------------------------------ sorting (model_sort.c) */

/* An item is a 32-bit sort key above a 32-bit index. Items with equal keys are told apart by
 * `tie`: < 0, 0, > 0 as memcmp, for two indices. */
typedef int (*tli_tie)(const void *context, uint32_t a, uint32_t b);

uint64_t tli_item(uint32_t key, uint32_t index);
uint32_t tli_item_index(uint64_t item);

/* Sort, stable, in n log n steps whatever the keys are. spare [n] is working memory. */
void tli_sort_items(uint64_t *items, uint64_t *spare, size_t n, tli_tie tie, const void *context);

/* A key that spreads names; equal names have equal keys. */
uint32_t tli_name_key(const char *name, size_t name_len);

/* Order of two names, by their bytes. */
int tli_name_compare(const char *a, size_t a_len, const char *b, size_t b_len);

/* ------------------------------------------------------------------ one file (model_tensors.c) */

/* Bytes of a file's start that are looked at before it is mapped. */
#define TLI_HEAD_BYTES 64

/* Rules 1 to 3 as far as the first bytes tell: head holds min(TLI_HEAD_BYTES, n_bytes) of them. */
TL_MUST_USE tl_status tli_layout_check_head(const uint8_t *head, size_t n_head, uint64_t n_bytes,
                                            tl_error *err);

/* tl_layout_parse, for bytes that may be a map. */
TL_MUST_USE tl_status tli_layout_parse(tl_layout **out, const tli_bytes *bytes, tl_error *err);

/* How the elements of a dtype lie in a matrix. false: a type that is never read as numbers. */
bool tli_dtype_matrix_kind(tl_dtype dtype, tl_matrix_kind *kind);

/* n elements at data, of any alignment, to f32. Not for TL_MATRIX_INT4. */
void tli_widen(tl_matrix_kind kind, const uint8_t *data, size_t n, float *dst);

/* UNSUPPORTED: no numbers. FORMAT: another shape. */
TL_MUST_USE tl_status tli_tensor_expect(const tl_tensor_info *info, const size_t *shape,
                                        size_t n_shape, tl_matrix_kind *kind, tl_error *err);

/* The position of a name in the layout; false when it is not there. */
bool tli_layout_index(const tl_layout *layout, const char *name, size_t *index);

/* A tensor of a file or a checkpoint. */
typedef struct tli_tensor {
    size_t index; /* in tl_layout_at or tl_checkpoint_at */
    const tl_tensor_info *info;
    const uint8_t *data;  /* its bytes, as long as the file is open */
    uint64_t file_offset; /* of data, in its file */
} tli_tensor;

static inline size_t tli_tensor_size(const tli_tensor *tensor) {
    return (size_t)(tensor->info->end - tensor->info->begin);
}

/* Find a tensor by name in *from; false when there is none. */
typedef bool (*tli_lookup)(const void *from, const char *name, tli_tensor *out);

bool tli_safetensors_tensor(const void *from, const char *name, tli_tensor *out);

/* tl_safetensors_f32 and _q4, and the same of a checkpoint. Of *wanted n_out, n_in and group are
 * read. */
TL_MUST_USE tl_status tli_read_f32(const void *from, tli_lookup lookup, const char *name,
                                   const size_t *shape, size_t n_shape, float *dst, size_t dst_len,
                                   tl_error *err);
TL_MUST_USE tl_status tli_read_q4(const void *from, tli_lookup lookup, const char *name,
                                  const tl_qlinear *wanted, tl_qlinear *out, tl_error *err);

/* Say which file a FORMAT error is about. Returns status. */
tl_status tli_name_file(tl_status status, const char *path, tl_error *err);

/* ------------------------------------------------------------------ a checkpoint
 * (model_checkpoint.c) */

bool tli_checkpoint_tensor(const void *from, const char *name, tli_tensor *out);

/* The file of that name among views, or NULL. INVALID: two of one name, or a NULL. */
TL_MUST_USE tl_status tli_view_find(const tl_file_view *files, size_t n_files, const char *name,
                                    const tl_file_view **out, tl_error *err);

#endif
