/* model_plain.h: what the parts of the plain model module share. */
#ifndef PLAIN_MODEL_H
#define PLAIN_MODEL_H

#include "tl/model.h"

/* ---- model_file.c ---- */

/* The bytes of a whole file: mapped, read into memory, or borrowed. */
typedef struct plain_file {
    const uint8_t *bytes;
    size_t n_bytes;
    void *mapped; /* what to unmap, or NULL */
    void *owned;  /* what to free, or NULL */
} plain_file;

/* Where the files of a model are: a directory, or (dir is NULL) a list in memory. */
typedef struct plain_folder {
    const char *dir;
    const tl_file_view *files;
    size_t n_files;
} plain_folder;

/* IO unless path is a regular file that can be read; FORMAT when it has more than max_bytes. */
tl_status plain_file_open(plain_file *out, const char *path, tl_weights_mode mode, size_t max_bytes,
                          tl_error *err);
void plain_file_close(plain_file *file);
/* INVALID when a file has no name or no bytes. */
tl_status plain_folder_check(const plain_folder *folder, tl_error *err);
tl_status plain_folder_has(const plain_folder *folder, const char *name, bool *there,
                           tl_error *err);
tl_status plain_folder_open(const plain_folder *folder, const char *name, tl_weights_mode mode,
                            size_t max_bytes, plain_file *out, tl_error *err);
/* What a file is that should have been safetensors: " (it is a ZIP archive)"; "" if unknown. */
const char *plain_foreign(const uint8_t *bytes, size_t n);

/* ---- model_config.c, model_safetensors.c, model_checkpoint.c ---- */

struct tl_safetensors {
    plain_file file;
    tl_layout *layout;
};

struct tl_checkpoint {
    tl_safetensors *files; /* [n_files] owned */
    size_t n_files;
};

/* Where a tensor is: its file, its description, and its number among those of all files. */
typedef struct plain_place {
    const tl_safetensors *st;
    const tl_tensor_info *info;
    size_t number;
} plain_place;

/* INVALID for a config that tl_model_config_parse would never make. */
tl_status plain_config_check(const tl_model_config *cfg, tl_error *err);
tl_status plain_config_load(tl_model_config *out, const plain_folder *folder, tl_error *err);
/* Check the layout of a file that is open and take it over, or close it. */
tl_status plain_safetensors_init(tl_safetensors *out, plain_file file, const char *name,
                                 tl_error *err);
void plain_safetensors_clear(tl_safetensors *st);
tl_status plain_checkpoint_open(tl_checkpoint **out, const plain_folder *folder,
                                tl_weights_mode mode, tl_error *err);

bool plain_find(const tl_safetensors *files, size_t n_files, const char *name, plain_place *place);
/* The int4 pair NAME.qweight and NAME.scales, each of which may be in any of the files. Otherwise
 * as tl_safetensors_q4. */
tl_status plain_q4(const tl_safetensors *files, size_t n_files, const char *name, size_t n_out,
                   size_t n_in, size_t group, tl_qlinear *out, tl_error *err);
const uint8_t *plain_tensor_bytes(const plain_place *place);
tl_status plain_check_shape(const tl_tensor_info *info, const size_t *shape, size_t n_shape,
                            tl_error *err);
/* Bytes of one element of F32, F16 and BF16; 0 of every other type, which cannot be widened. */
size_t plain_float_size(tl_dtype dtype);

#endif
