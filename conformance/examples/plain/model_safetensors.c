/* model_safetensors.c: read tensors out of files whose layouts are sound.
 *
 * Source: conformance/spec/safetensors.md, rules 11 and 12. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_plain.h"
#include "util.h"

/* ------------------------------------------------------------------ one file */

tl_status plain_safetensors_init(tl_safetensors *out, plain_file file, const char *name,
                                 tl_error *err) {
    tl_error why;
    *out = (tl_safetensors){.file = file};
    const tl_status status = tl_layout_parse(&out->layout, file.bytes, file.n_bytes, &why);
    if (status != TL_OK) {
        plain_file_close(&out->file);
        return tli_fail_at(err, status, why.offset, "%s: %s", name, why.text);
    }
    return TL_OK;
}

void plain_safetensors_clear(tl_safetensors *st) {
    tl_layout_free(st->layout);
    plain_file_close(&st->file);
}

static tl_status make(tl_safetensors **out, plain_file file, const char *name, tl_error *err) {
    tl_safetensors *st = tli_calloc(1, sizeof *st);
    if (st == NULL) {
        plain_file_close(&file);
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a safetensors file");
    }
    const tl_status status = plain_safetensors_init(st, file, name, err);
    if (status != TL_OK) {
        free(st);
        return status;
    }
    *out = st;
    return TL_OK;
}

tl_status tl_safetensors_open(tl_safetensors **out, const char *path, tl_weights_mode mode,
                              tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    if (path == NULL || (mode != TL_WEIGHTS_MAP && mode != TL_WEIGHTS_COPY)) {
        return tli_fail(err, TL_ERR_INVALID, "path is NULL, or the mode is neither map nor copy");
    }
    plain_file file;
    TLI_TRY(plain_file_open(&file, path, mode, SIZE_MAX, err));
    return make(out, file, path, err);
}

tl_status tl_safetensors_view(tl_safetensors **out, const uint8_t *bytes, size_t n_bytes,
                              tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    return make(out, (plain_file){.bytes = bytes, .n_bytes = n_bytes}, "the file", err);
}

void tl_safetensors_free(tl_safetensors *st) {
    if (st != NULL) {
        plain_safetensors_clear(st);
        free(st);
    }
}

const tl_layout *tl_safetensors_layout(const tl_safetensors *st) {
    return st == NULL ? NULL : st->layout;
}

/* ------------------------------------------------------------------ one tensor */

bool plain_find(const tl_safetensors *files, size_t n_files, const char *name, plain_place *place) {
    size_t before = 0; /* tensors in the files before this one */
    for (size_t i = 0; i < n_files; i++) {
        const tl_layout *layout = files[i].layout;
        const tl_tensor_info *info = tl_layout_find(layout, name);
        if (info != NULL) {
            const size_t index = (size_t)(info - tl_layout_at(layout, 0));
            *place = (plain_place){&files[i], info, before + index};
            return true;
        }
        before += tl_layout_count(layout);
    }
    return false;
}

const uint8_t *plain_tensor_bytes(const plain_place *place) {
    const uint8_t *data = place->st->file.bytes + tl_layout_data_start(place->st->layout);
    return data + place->info->begin;
}

size_t plain_float_size(tl_dtype dtype) {
    return dtype == TL_DTYPE_F32 ? 4 : dtype == TL_DTYPE_F16 || dtype == TL_DTYPE_BF16 ? 2 : 0;
}

/* "6 7": the first sizes of a shape. */
typedef struct sizes {
    char text[100];
} sizes;

static void add_size(sizes *s, unsigned long long size) {
    const size_t n = strlen(s->text);
    (void)snprintf(s->text + n, sizeof s->text - n, "%s%llu", n == 0 ? "" : " ", size);
}

tl_status plain_check_shape(const tl_tensor_info *info, const size_t *shape, size_t n_shape,
                            tl_error *err) {
    bool same = info->n_dims == n_shape;
    for (size_t i = 0; same && i < n_shape; i++) {
        same = info->dims[i] == shape[i];
    }
    if (!same) {
        sizes got = {""};
        sizes want = {""};
        for (size_t i = 0; i < info->n_dims; i++) {
            add_size(&got, info->dims[i]);
        }
        for (size_t i = 0; i < n_shape; i++) {
            add_size(&want, shape[i]);
        }
        return tli_fail(err, TL_ERR_FORMAT, "tensor %s has the shape (%s), (%s) is needed",
                        info->name, got.text, want.text);
    }
    return TL_OK;
}

tl_status tl_safetensors_f32(const tl_safetensors *st, const char *name, const size_t *shape,
                             size_t n_shape, float *dst, size_t dst_len, tl_error *err) {
    if (st == NULL || name == NULL || (shape == NULL && n_shape > 0)) {
        return tli_fail(err, TL_ERR_INVALID, "the file, the name or the shape is NULL");
    }
    plain_place place;
    if (!plain_find(st, 1, name, &place)) {
        return tli_fail(err, TL_ERR_NOT_FOUND, "tensor %s is missing", name);
    }
    const tl_tensor_info *info = place.info;
    const size_t size = plain_float_size(info->dtype);
    if (size == 0) {
        return tli_fail(err, TL_ERR_UNSUPPORTED, "tensor %s is %s, F32, F16 and BF16 can be read",
                        name, tl_dtype_name(info->dtype));
    }
    TLI_TRY(plain_check_shape(info, shape, n_shape, err));
    const size_t n = (size_t)(info->end - info->begin) / size;
    if (dst_len != n || (dst == NULL && n > 0)) {
        return tli_fail(err, TL_ERR_INVALID,
                        "tensor %s has %zu values, there is room for %zu, or dst is NULL", name, n,
                        dst_len);
    }
    const uint8_t *bytes = plain_tensor_bytes(&place);
    for (size_t i = 0; i < n; i++) {
        if (info->dtype == TL_DTYPE_F32) {
            dst[i] = tli_f32_from_bits(tli_load_u32(bytes + 4 * i));
        } else if (info->dtype == TL_DTYPE_F16) {
            dst[i] = tl_f16_to_f32(tli_load_u16(bytes + 2 * i));
        } else {
            dst[i] = tl_bf16_to_f32(tli_load_u16(bytes + 2 * i));
        }
    }
    return TL_OK;
}

/* ------------------------------------------------------------------ int4 */

/* A scale is a finite f16 without a sign. */
static tl_status check_scales(const plain_place *scales, tl_error *err) {
    const uint8_t *bytes = plain_tensor_bytes(scales);
    for (uint64_t i = 0; i < scales->info->end - scales->info->begin; i += 2) {
        const uint16_t scale = tli_load_u16(bytes + i);
        if (scale >= 0x7c00) {
            const uint64_t at = (uint64_t)(bytes - scales->st->file.bytes) + i;
            return tli_fail_at(err, TL_ERR_FORMAT, at,
                               "tensor %s: the scale %04x is negative or not finite",
                               scales->info->name, scale);
        }
    }
    return TL_OK;
}

/* Borrow NAME with an ending: the qweight, or the scales, which are looked at as well. */
static tl_status borrow(const tl_safetensors *files, size_t n_files, const char *name,
                        bool is_scales, const size_t shape[2], const uint8_t **bytes,
                        size_t *n_bytes, tl_error *err) {
    const tl_dtype dtype = is_scales ? TL_DTYPE_F16 : TL_DTYPE_U8;
    const char *ending = is_scales ? ".scales" : ".qweight";
    const size_t n = strlen(name) + strlen(ending) + 1;
    plain_place place;
    char *whole = malloc(n);
    if (whole == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a name");
    }
    (void)snprintf(whole, n, "%s%s", name, ending);
    const bool found = plain_find(files, n_files, whole, &place);
    free(whole);
    if (!found) {
        return tli_fail(err, TL_ERR_NOT_FOUND, "tensor %s%s is missing", name, ending);
    }
    if (place.info->dtype != dtype) {
        return tli_fail(err, TL_ERR_UNSUPPORTED, "tensor %s%s is %s, %s is needed", name, ending,
                        tl_dtype_name(place.info->dtype), tl_dtype_name(dtype));
    }
    TLI_TRY(plain_check_shape(place.info, shape, 2, err));
    *bytes = plain_tensor_bytes(&place);
    *n_bytes = (size_t)(place.info->end - place.info->begin);
    return is_scales ? check_scales(&place, err) : TL_OK;
}

tl_status plain_q4(const tl_safetensors *files, size_t n_files, const char *name, size_t n_out,
                   size_t n_in, size_t group, tl_qlinear *out, tl_error *err) {
    if (group == 0 || group % 2 != 0 || n_in % group != 0) {
        return tli_fail(err, TL_ERR_INVALID,
                        "%s: the group is %zu, an even divisor of the %zu columns is needed", name,
                        group, n_in);
    }
    tl_qlinear q = {.n_out = n_out, .n_in = n_in, .group = group};
    const size_t packed[] = {n_out, n_in / 2};
    const size_t groups[] = {n_out, n_in / group};
    TLI_TRY(borrow(files, n_files, name, false, packed, &q.qweight, &q.qweight_len, err));
    TLI_TRY(borrow(files, n_files, name, true, groups, &q.scales, &q.scales_len, err));
    *out = q;
    return TL_OK;
}

tl_status tl_safetensors_q4(const tl_safetensors *st, const char *name, size_t n_out, size_t n_in,
                            size_t group, tl_qlinear *out, tl_error *err) {
    if (st == NULL || name == NULL || out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "an argument is NULL");
    }
    return plain_q4(st, 1, name, n_out, n_in, group, out, err);
}
