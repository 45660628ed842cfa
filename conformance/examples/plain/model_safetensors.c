/* model_safetensors.c: read tensors out of one file, whose layout is sound.
 *
 * Source: conformance/spec/safetensors.md, rules 11 and 12. */
#include <stdlib.h>
#include <string.h>

#include "model_plain.h"
#include "util.h"

/* Take over a file's bytes, or close them when they are refused. */
static tl_status adopt(tl_safetensors **out, plain_file file, tl_error *err) {
    tl_safetensors *st = tli_calloc(1, sizeof *st);
    tl_status status = TL_OK;
    if (st == NULL) {
        status = tli_fail(err, TL_ERR_NOMEM, "no memory for a safetensors file");
    } else {
        status = tl_layout_parse(&st->layout, file.bytes, file.n_bytes, err);
    }
    if (status != TL_OK) {
        plain_file_close(&file);
        free(st);
        return status;
    }
    st->file = file;
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
    tl_error why;
    TLI_TRY(plain_file_open(&file, path, mode, SIZE_MAX, err));
    const tl_status status = adopt(out, file, &why);
    return status == TL_OK ? TL_OK : tli_fail_at(err, status, why.offset, "%s: %s", path, why.text);
}

tl_status tl_safetensors_view(tl_safetensors **out, const uint8_t *bytes, size_t n_bytes,
                              tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    return adopt(out, (plain_file){.bytes = bytes, .n_bytes = n_bytes}, err);
}

void tl_safetensors_free(tl_safetensors *st) {
    if (st != NULL) {
        tl_layout_free(st->layout);
        plain_file_close(&st->file);
        free(st);
    }
}

const tl_layout *tl_safetensors_layout(const tl_safetensors *st) {
    return st == NULL ? NULL : st->layout;
}

const uint8_t *plain_tensor_bytes(const tl_safetensors *st, const tl_tensor_info *info) {
    return st->file.bytes + tl_layout_data_start(st->layout) + info->begin;
}

size_t plain_float_size(tl_dtype dtype) {
    return dtype == TL_DTYPE_F32 ? 4 : dtype == TL_DTYPE_F16 || dtype == TL_DTYPE_BF16 ? 2 : 0;
}

tl_status plain_check_shape(const tl_tensor_info *info, const size_t *shape, size_t n_shape,
                            tl_error *err) {
    bool same = info->n_dims == n_shape;
    for (size_t i = 0; same && i < n_shape; i++) {
        same = info->dims[i] == shape[i];
    }
    if (!same) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "tensor %s has another shape than the one that is "
                        "needed: %zu dimensions, the first one %llu, against %zu and %zu",
                        info->name, info->n_dims,
                        info->n_dims > 0 ? (unsigned long long)info->dims[0] : 0, n_shape,
                        n_shape > 0 ? shape[0] : 0);
    }
    return TL_OK;
}

bool plain_find(tl_safetensors *const *files, size_t n_files, const char *name,
                plain_place *place) {
    size_t before = 0; /* tensors in the files before this one */
    for (size_t i = 0; i < n_files; i++) {
        const tl_layout *layout = files[i]->layout;
        const tl_tensor_info *info = tl_layout_find(layout, name);
        if (info != NULL) {
            const size_t index = (size_t)(info - tl_layout_at(layout, 0));
            *place = (plain_place){files[i], info, before + index};
            return true;
        }
        before += tl_layout_count(layout);
    }
    return false;
}

tl_status tl_safetensors_f32(const tl_safetensors *st, const char *name, const size_t *shape,
                             size_t n_shape, float *dst, size_t dst_len, tl_error *err) {
    if (st == NULL || name == NULL || (shape == NULL && n_shape > 0)) {
        return tli_fail(err, TL_ERR_INVALID, "the file, the name or the shape is NULL");
    }
    const tl_tensor_info *info = tl_layout_find(st->layout, name);
    if (info == NULL) {
        return tli_fail(err, TL_ERR_NOT_FOUND, "there is no tensor %s", name);
    }
    const size_t size = plain_float_size(info->dtype);
    if (size == 0) {
        return tli_fail(err, TL_ERR_UNSUPPORTED, "tensor %s is %s, F32, F16 and BF16 can be read",
                        name, tl_dtype_name(info->dtype));
    }
    TLI_TRY(plain_check_shape(info, shape, n_shape, err));
    const uint64_t n = (info->end - info->begin) / size;
    if (dst_len != n || (dst == NULL && n > 0)) {
        return tli_fail(err, TL_ERR_INVALID, "tensor %s has %llu values, there is room for %zu",
                        name, (unsigned long long)n, dst_len);
    }
    const uint8_t *bytes = plain_tensor_bytes(st, info);
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

/* NAME with an ending, found, of the right type and shape. */
static tl_status find_part(tl_safetensors *const *files, size_t n_files, const char *name,
                           const char *ending, tl_dtype dtype, const size_t shape[2],
                           plain_place *place, tl_error *err) {
    const size_t n = strlen(name);
    char *whole = malloc(n + strlen(ending) + 1);
    if (whole == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a name");
    }
    memcpy(whole, name, n);
    memcpy(whole + n, ending, strlen(ending) + 1);
    const bool found = plain_find(files, n_files, whole, place);
    free(whole);
    if (!found) {
        return tli_fail(err, TL_ERR_NOT_FOUND, "there is no tensor %s%s", name, ending);
    }
    if (place->info->dtype != dtype) {
        return tli_fail(err, TL_ERR_UNSUPPORTED, "tensor %s%s is %s, %s is needed", name, ending,
                        tl_dtype_name(place->info->dtype), tl_dtype_name(dtype));
    }
    return plain_check_shape(place->info, shape, 2, err);
}

/* A scale is a finite f16 without a sign. */
static tl_status check_scales(const plain_place *scales, tl_error *err) {
    const uint8_t *bytes = plain_tensor_bytes(scales->st, scales->info);
    for (uint64_t i = 0; i < scales->info->end - scales->info->begin; i += 2) {
        const uint16_t scale = tli_load_u16(bytes + i);
        if (scale >= 0x7c00) {
            const uint64_t at = (uint64_t)(bytes - scales->st->file.bytes) + i;
            return tli_fail_at(err, TL_ERR_FORMAT, at,
                               "tensor %s: scale %llu is %04x, which is "
                               "negative or not finite",
                               scales->info->name, (unsigned long long)i / 2, scale);
        }
    }
    return TL_OK;
}

tl_status plain_q4(tl_safetensors *const *files, size_t n_files, const char *name, size_t n_out,
                   size_t n_in, size_t group, tl_qlinear *out, tl_error *err) {
    if (group == 0 || group % 2 != 0 || n_in % group != 0) {
        return tli_fail(err, TL_ERR_INVALID,
                        "%s: the group is %zu, an even divisor of the %zu "
                        "columns is needed",
                        name, group, n_in);
    }
    plain_place qweight;
    plain_place scales;
    const size_t packed[] = {n_out, n_in / 2};
    const size_t groups[] = {n_out, n_in / group};
    TLI_TRY(find_part(files, n_files, name, ".qweight", TL_DTYPE_U8, packed, &qweight, err));
    TLI_TRY(find_part(files, n_files, name, ".scales", TL_DTYPE_F16, groups, &scales, err));
    TLI_TRY(check_scales(&scales, err));
    *out = (tl_qlinear){.n_out = n_out,
                        .n_in = n_in,
                        .group = group,
                        .qweight = plain_tensor_bytes(qweight.st, qweight.info),
                        .qweight_len = (size_t)(qweight.info->end - qweight.info->begin),
                        .scales = plain_tensor_bytes(scales.st, scales.info),
                        .scales_len = (size_t)(scales.info->end - scales.info->begin)};
    return TL_OK;
}

tl_status tl_safetensors_q4(const tl_safetensors *st, const char *name, size_t n_out, size_t n_in,
                            size_t group, tl_qlinear *out, tl_error *err) {
    if (st == NULL || name == NULL || out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "an argument is NULL");
    }
    tl_safetensors same =
        *st; /* a list of files is not const; nobody keeps a pointer to this one */
    tl_safetensors *const files[] = {&same};
    return plain_q4(files, 1, name, n_out, n_in, group, out, err);
}
