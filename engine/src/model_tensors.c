/* model_tensors.c: an open safetensors file: its bytes, its layout, and reading tensors out of
 * it.
 *
 * Offsets of a layout count from the start of the data buffer, and data is not aligned:
 * everything is read through place_tensor and little-endian loads.
 *
 * Source: conformance/spec/safetensors.md, rules 1, 10 and 11, and safetensors#12. */
#include "tl/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_internal.h"
#include "tl/quant.h"
#include "util.h"

#define NAME_SHOWN 80 /* bytes of a name that a message quotes */
#define DIMS_SHOWN 4  /* dimensions that a message tells */
#define SHAPE_TEXT (DIMS_SHOWN * 22 + 8)
#define F16_INFINITY 0x7c00u

struct tl_safetensors {
    tli_bytes bytes;
    tl_layout *layout;
};

/* ------------------------------------------------------------------ opening */

static tl_status open_bytes(tl_safetensors *st, const char *path, tl_weights_mode mode,
                            tl_error *err) {
    uint8_t head[TLI_HEAD_BYTES];
    tli_file file = {.fd = -1};
    TLI_TRY(tli_file_open(&file, path, err));
    const size_t n_head = file.n_bytes < sizeof head ? file.n_bytes : sizeof head;
    tl_status status = tli_file_peek(&file, head, n_head, err);
    if (status == TL_OK) {
        status = tli_layout_check_head(head, n_head, file.n_bytes, err);
    }
    if (status == TL_OK) {
        status = tli_file_bytes(&file, mode, &st->bytes, err);
    }
    tli_file_close(&file);
    return status;
}

tl_status tli_name_file(tl_status status, const char *path, tl_error *err) {
    if (status == TL_ERR_FORMAT && err != NULL) {
        return tli_fail_at(err, status, err->offset, "%s: %s", path, err->text);
    }
    return status;
}

static tl_status open_file(tl_safetensors *st, const char *path, tl_weights_mode mode,
                           tl_error *err) {
    TLI_TRY(tli_name_file(open_bytes(st, path, mode, err), path, err));
    return tli_name_file(tli_layout_parse(&st->layout, &st->bytes, err), path, err);
}

tl_status tl_safetensors_open(tl_safetensors **out, const char *path, tl_weights_mode mode,
                              tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "tl_safetensors_open: out is NULL");
    }
    *out = NULL;
    if (path == NULL || (mode != TL_WEIGHTS_MAP && mode != TL_WEIGHTS_COPY)) {
        return tli_fail(err, TL_ERR_INVALID,
                        "tl_safetensors_open: path is NULL, or mode %d is none", (int)mode);
    }
    tl_safetensors *st = (tl_safetensors *)tli_calloc(1, sizeof *st);
    if (st == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "%s: no memory to open it", path);
    }
    const tl_status status = open_file(st, path, mode, err);
    if (status != TL_OK) {
        tl_safetensors_free(st);
        return status;
    }
    *out = st;
    return TL_OK;
}

tl_status tl_safetensors_view(tl_safetensors **out, const uint8_t *bytes, size_t n_bytes,
                              tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "tl_safetensors_view: out is NULL");
    }
    *out = NULL;
    tl_safetensors *st = (tl_safetensors *)tli_calloc(1, sizeof *st);
    if (st == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a view of a safetensors file");
    }
    st->bytes.data = bytes;
    st->bytes.n = n_bytes;
    const tl_status status = tl_layout_parse(&st->layout, bytes, n_bytes, err);
    if (status != TL_OK) {
        tl_safetensors_free(st);
        return status;
    }
    *out = st;
    return TL_OK;
}

void tl_safetensors_free(tl_safetensors *st) {
    if (st == NULL) {
        return;
    }
    tl_layout_free(st->layout);
    tli_bytes_clear(&st->bytes);
    free(st);
}

const tl_layout *tl_safetensors_layout(const tl_safetensors *st) {
    return st == NULL ? NULL : st->layout;
}

/* Where a tensor's bytes are: its offsets count from the data buffer, not from the file's start. */
static tli_tensor place_tensor(const tl_safetensors *st, size_t index) {
    const tl_tensor_info *info = tl_layout_at(st->layout, index);
    const uint64_t at = tl_layout_data_start(st->layout) + info->begin;
    const tli_tensor tensor = {
        .index = index, .info = info, .data = st->bytes.data + at, .file_offset = at};
    return tensor;
}

bool tli_safetensors_tensor(const void *from, const char *name, tli_tensor *out) {
    const tl_safetensors *st = (const tl_safetensors *)from;
    size_t index = 0;
    if (!tli_layout_index(st->layout, name, &index)) {
        return false;
    }
    *out = place_tensor(st, index);
    return true;
}

/* ------------------------------------------------------------------ reading */

bool tli_dtype_matrix_kind(tl_dtype dtype, tl_matrix_kind *kind) {
    switch (dtype) {
    case TL_DTYPE_F32:
        *kind = TL_MATRIX_F32;
        return true;
    case TL_DTYPE_F16:
        *kind = TL_MATRIX_F16;
        return true;
    case TL_DTYPE_BF16:
        *kind = TL_MATRIX_BF16;
        return true;
    default:
        return false;
    }
}

void tli_widen(tl_matrix_kind kind, const uint8_t *data, size_t n, float *dst) {
    switch (kind) {
    case TL_MATRIX_F32:
        for (size_t i = 0; i < n; i++) {
            dst[i] = tli_f32_from_bits(tli_load_u32(data + 4 * i));
        }
        break;
    case TL_MATRIX_F16:
        for (size_t i = 0; i < n; i++) {
            dst[i] = tl_f16_to_f32(tli_load_u16(data + 2 * i));
        }
        break;
    case TL_MATRIX_BF16:
        for (size_t i = 0; i < n; i++) {
            dst[i] = tl_bf16_to_f32(tli_load_u16(data + 2 * i));
        }
        break;
    default:
        TLI_ASSERT(kind == TL_MATRIX_F32); /* int4 is no dtype */
        break;
    }
}

/* "[2, 3]"; of a rank above DIMS_SHOWN the first ones, and dots. */
static void shape_text(const uint64_t *dims, size_t n_dims, char text[SHAPE_TEXT]) {
    size_t at = 1;
    text[0] = '[';
    text[1] = '\0';
    for (size_t i = 0; i < n_dims && i < DIMS_SHOWN; i++) {
        const int n = snprintf(text + at, SHAPE_TEXT - at, "%s%llu", i == 0 ? "" : ", ",
                               (unsigned long long)dims[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    (void)snprintf(text + at, SHAPE_TEXT - at, "%s]", n_dims > DIMS_SHOWN ? ", ..." : "");
}

static tl_status check_shape(const tl_tensor_info *info, const size_t *shape, size_t n_shape,
                             tl_error *err) {
    bool same = info->n_dims == n_shape;
    for (size_t i = 0; same && i < n_shape; i++) {
        same = info->dims[i] == shape[i];
    }
    if (same) {
        return TL_OK;
    }
    uint64_t asked[DIMS_SHOWN] = {0};
    char found[SHAPE_TEXT];
    char wanted[SHAPE_TEXT];
    for (size_t i = 0; i < n_shape && i < DIMS_SHOWN; i++) {
        asked[i] = shape[i];
    }
    shape_text(info->dims, info->n_dims, found);
    shape_text(asked, n_shape, wanted);
    return tli_fail(err, TL_ERR_FORMAT, "tensor '%.*s' has the shape %s, it must be %s", NAME_SHOWN,
                    info->name, found, wanted);
}

tl_status tli_tensor_expect(const tl_tensor_info *info, const size_t *shape, size_t n_shape,
                            tl_matrix_kind *kind, tl_error *err) {
    if (!tli_dtype_matrix_kind(info->dtype, kind)) {
        return tli_fail(err, TL_ERR_UNSUPPORTED,
                        "tensor '%.*s' is %s; only F32, F16 and BF16 are read as numbers",
                        NAME_SHOWN, info->name, tl_dtype_name(info->dtype));
    }
    return check_shape(info, shape, n_shape, err);
}

static tl_status not_found(const char *name, tl_error *err) {
    return tli_fail(err, TL_ERR_NOT_FOUND, "there is no tensor '%.*s'", NAME_SHOWN, name);
}

tl_status tli_read_f32(const void *from, tli_lookup lookup, const char *name, const size_t *shape,
                       size_t n_shape, float *dst, size_t dst_len, tl_error *err) {
    tl_matrix_kind kind = TL_MATRIX_F32;
    tli_tensor tensor = {0};
    if (from == NULL || name == NULL || (shape == NULL && n_shape > 0) ||
        (dst == NULL && dst_len > 0)) {
        return tli_fail(err, TL_ERR_INVALID, "reading a tensor as f32: an argument is NULL");
    }
    if (!lookup(from, name, &tensor)) {
        return not_found(name, err);
    }
    TLI_TRY(tli_tensor_expect(tensor.info, shape, n_shape, &kind, err));
    const size_t element = kind == TL_MATRIX_F32 ? 4 : 2;
    const size_t n = tli_tensor_size(&tensor) / element;
    if (dst_len != n) {
        return tli_fail(err, TL_ERR_INVALID, "tensor '%.*s' has %zu elements, dst has %zu",
                        NAME_SHOWN, name, n, dst_len);
    }
    tli_widen(kind, tensor.data, n, dst);
    return TL_OK;
}

tl_status tl_safetensors_f32(const tl_safetensors *st, const char *name, const size_t *shape,
                             size_t n_shape, float *dst, size_t dst_len, tl_error *err) {
    return tli_read_f32(st, tli_safetensors_tensor, name, shape, n_shape, dst, dst_len, err);
}

/* ------------------------------------------------------------------ int4 pairs */

static tl_status check_dtype(const tl_tensor_info *info, tl_dtype wanted, tl_error *err) {
    if (info->dtype == wanted) {
        return TL_OK;
    }
    return tli_fail(err, TL_ERR_UNSUPPORTED, "tensor '%.*s' is %s, an int4 pair has %s there",
                    NAME_SHOWN, info->name, tl_dtype_name(info->dtype), tl_dtype_name(wanted));
}

static tl_status check_scales(const tli_tensor *scales, tl_error *err) {
    const size_t n = tli_tensor_size(scales) / 2;
    for (size_t i = 0; i < n; i++) {
        const uint16_t scale = tli_load_u16(scales->data + 2 * i);
        /* The sign bit is the highest: one comparison finds infinity, NaN and all that is
         * signed. */
        if (scale >= F16_INFINITY) {
            return tli_fail_at(err, TL_ERR_FORMAT, scales->file_offset + 2 * i,
                               "tensor '%.*s': scale %zu is 0x%04x, it must be finite and have no "
                               "sign",
                               NAME_SHOWN, scales->info->name, i, (unsigned)scale);
        }
    }
    return TL_OK;
}

static tl_status bind_q4(const tli_tensor *qweight, const tli_tensor *scales,
                         const tl_qlinear *wanted, tl_qlinear *out, tl_error *err) {
    const size_t qweight_shape[2] = {wanted->n_out, wanted->n_in / 2};
    const size_t scales_shape[2] = {wanted->n_out, wanted->n_in / wanted->group};
    TLI_TRY(check_dtype(qweight->info, TL_DTYPE_U8, err));
    TLI_TRY(check_dtype(scales->info, TL_DTYPE_F16, err));
    TLI_TRY(check_shape(qweight->info, qweight_shape, 2, err));
    TLI_TRY(check_shape(scales->info, scales_shape, 2, err));
    TLI_TRY(check_scales(scales, err));
    *out = *wanted;
    out->qweight = qweight->data;
    out->qweight_len = tli_tensor_size(qweight);
    out->scales = scales->data;
    out->scales_len = tli_tensor_size(scales);
    return TL_OK;
}

/* "NAME" and a suffix; NULL for want of memory. */
static char *join_name(const char *name, const char *suffix) {
    const size_t n_name = strlen(name);
    const size_t n_suffix = strlen(suffix);
    char *joined = (char *)malloc(n_name + n_suffix + 1);
    if (joined != NULL) {
        memcpy(joined, name, n_name);
        memcpy(joined + n_name, suffix, n_suffix);
        joined[n_name + n_suffix] = '\0';
    }
    return joined;
}

static tl_status find_suffixed(const void *from, tli_lookup lookup, const char *name,
                               const char *suffix, tli_tensor *tensor, tl_error *err) {
    char *joined = join_name(name, suffix);
    if (joined == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for the name of an int4 tensor");
    }
    const tl_status status = lookup(from, joined, tensor) ? TL_OK : not_found(joined, err);
    free(joined);
    return status;
}

tl_status tli_read_q4(const void *from, tli_lookup lookup, const char *name,
                      const tl_qlinear *wanted, tl_qlinear *out, tl_error *err) {
    tli_tensor qweight = {0};
    tli_tensor scales = {0};
    if (from == NULL || name == NULL || out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "binding an int4 pair: an argument is NULL");
    }
    if (wanted->n_out == 0 || wanted->n_in == 0 || wanted->group == 0 || wanted->group % 2 != 0 ||
        wanted->n_in % wanted->group != 0) {
        return tli_fail(err, TL_ERR_INVALID,
                        "'%.*s' [%zu, %zu]: the group %zu must be even and divide the columns",
                        NAME_SHOWN, name, wanted->n_out, wanted->n_in, wanted->group);
    }
    TLI_TRY(find_suffixed(from, lookup, name, ".qweight", &qweight, err));
    TLI_TRY(find_suffixed(from, lookup, name, ".scales", &scales, err));
    return bind_q4(&qweight, &scales, wanted, out, err);
}

tl_status tl_safetensors_q4(const tl_safetensors *st, const char *name, size_t n_out, size_t n_in,
                            size_t group, tl_qlinear *out, tl_error *err) {
    const tl_qlinear wanted = {.n_out = n_out, .n_in = n_in, .group = group};
    return tli_read_q4(st, tli_safetensors_tensor, name, &wanted, out, err);
}
