/* model_plain.h: what the parts of the plain model module share. */
#ifndef PLAIN_MODEL_H
#define PLAIN_MODEL_H

#include "tl/model.h"

/* The bytes of a whole file: mapped, read into memory, or borrowed. */
typedef struct plain_file {
    const uint8_t *bytes;
    size_t n_bytes;
    void *mapped; /* what to unmap, or NULL */
    void *owned;  /* what to free, or NULL */
} plain_file;

/* IO unless path is a regular file that can be read; FORMAT when it has more than max_bytes. */
tl_status plain_file_open(plain_file *out, const char *path, tl_weights_mode mode, size_t max_bytes,
                          tl_error *err);
void plain_file_close(plain_file *file);
/* DIR/NAME in memory of its own; NULL when there is none. */
char *plain_path(const char *dir, const char *name);

/* What is wrong with a file that cannot be safetensors: " (it is a ZIP archive)"; "" if unknown. */
const char *plain_foreign(const uint8_t *bytes, size_t n);

/* A file of tensors. The bytes are the file's; `file` closes them. */
struct tl_safetensors {
    plain_file file;
    tl_layout *layout;
};

struct tl_checkpoint {
    tl_safetensors **files; /* [n_files] owned */
    size_t n_files;
};

/* Where a tensor is: its file, its description, and its number among those of all files. */
typedef struct plain_place {
    const tl_safetensors *st;
    const tl_tensor_info *info;
    size_t number;
} plain_place;

bool plain_find(tl_safetensors *const *files, size_t n_files, const char *name, plain_place *place);
/* The int4 pair NAME.qweight and NAME.scales, each of which may be in any of the files. Otherwise
 * as tl_safetensors_q4. */
tl_status plain_q4(tl_safetensors *const *files, size_t n_files, const char *name, size_t n_out,
                   size_t n_in, size_t group, tl_qlinear *out, tl_error *err);
const uint8_t *plain_tensor_bytes(const tl_safetensors *st, const tl_tensor_info *info);
tl_status plain_check_shape(const tl_tensor_info *info, const size_t *shape, size_t n_shape,
                            tl_error *err);
/* Bytes of one element of F32, F16 and BF16; 0 of every other type, which cannot be widened. */
size_t plain_float_size(tl_dtype dtype);

#endif
