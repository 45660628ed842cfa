/* target_safetensors.c: a safetensors file, header and data.
 *
 * Both readers must take or refuse it with the same status, list the same tensors, and read the
 * same numbers out of it. An accepted file's tensors tile its data buffer; its layout, written
 * down again as a header, is a file with the same layout. A refusal leaves no object.
 *
 * Source: conformance/spec/safetensors.md, rules 1 to 12. */
#include "fuzz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_MAX 4096 /* elements of a tensor that are read */

/* ------------------------------------------------------------------ written down again */

typedef struct out {
    char *text;
    size_t n;
} out;

static void put(out *o, const char *text) {
    const size_t n = strlen(text);
    memcpy(o->text + o->n, text, n);
    o->n += n;
}

/* A name with everything that JSON would not take as it is written as an escape. */
static void put_name(out *o, const tl_tensor_info *info) {
    char piece[8];
    for (size_t i = 0; i < info->name_len; i++) {
        const unsigned char c = (unsigned char)info->name[i];
        if (c < 0x20 || c == '"' || c == '\\') {
            (void)snprintf(piece, sizeof piece, "\\u%04x", c);
            put(o, piece);
        } else {
            o->text[o->n++] = (char)c;
        }
    }
}

static void put_entry(const host_api *tl, out *o, const tl_tensor_info *info) {
    char piece[64];
    put(o, "\"");
    put_name(o, info);
    put(o, "\":{\"data_offsets\":[");
    (void)snprintf(piece, sizeof piece, "%" PRIu64 ",%" PRIu64 "],\"dtype\":\"", info->begin,
                   info->end);
    put(o, piece);
    put(o, tl->dtype_name(info->dtype));
    put(o, "\",\"shape\":[");
    for (size_t i = 0; i < info->n_dims; i++) {
        (void)snprintf(piece, sizeof piece, "%s%" PRIu64, i == 0 ? "" : ",", info->dims[i]);
        put(o, piece);
    }
    put(o, "]}");
}

/* A file with the same tensors and zeros for data; exact length. */
static uint8_t *write_again(const host_api *tl, const tl_layout *layout, size_t n_data,
                            size_t *n_file) {
    size_t room = 16;
    for (size_t i = 0; i < tl->layout_count(layout); i++) {
        const tl_tensor_info *info = tl->layout_at(layout, i);
        room += 6 * info->name_len + 21 * info->n_dims + 128;
    }
    out o = {.text = fuzz_alloc(room)};
    put(&o, "{");
    for (size_t i = tl->layout_count(layout); i-- > 0;) { /* the other way round: order is free */
        put_entry(tl, &o, tl->layout_at(layout, i));
        put(&o, i == 0 ? "" : ",");
    }
    put(&o, "}");
    *n_file = 8 + o.n + n_data;
    uint8_t *file = fuzz_alloc(*n_file);
    for (unsigned i = 0; i < 8; i++) {
        file[i] = (uint8_t)(o.n >> (8 * i));
    }
    memcpy(file + 8, o.text, o.n);
    free(o.text);
    return file;
}

static void check_again(fuzz_case *f, const tl_layout *layout, size_t n_bytes) {
    const size_t n_data = n_bytes - (size_t)f->tl->layout_data_start(layout);
    size_t n_file = 0;
    uint8_t *file = write_again(f->tl, layout, n_data, &n_file);
    tl_layout *again = NULL;
    tl_error err = fuzz_error();
    if (f->tl->layout_parse(&again, file, n_file, &err) != TL_OK) {
        (void)fuzz_wrong(f, "the layout, written again, is refused: %.200s", err.text);
    }
    for (size_t i = 0; again != NULL && i < f->tl->layout_count(layout); i++) {
        const tl_tensor_info *info = f->tl->layout_at(layout, i);
        const tl_tensor_info *other = f->tl->layout_at(again, i);
        if (info->begin == info->end) {
            other = f->tl->layout_find(again, info->name);
        }
        if (other == NULL || !fuzz_same_tensor(info, other)) {
            (void)fuzz_wrong(f, "tensor %zu comes back as another one", i);
        }
    }
    f->tl->layout_free(again);
    free(file);
}

/* ------------------------------------------------------------------ numbers */

/* Read a tensor from both by its name; a shape that is not its own must be refused. */
static void compare_f32(fuzz_case *f, const tl_safetensors *a, const tl_safetensors *b,
                        const tl_tensor_info *info, uint64_t n_bytes) {
    size_t shape[8] = {0};
    size_t n = 1;
    for (size_t i = 0; i < info->n_dims && i < 8; i++) {
        shape[i] = (size_t)info->dims[i];
        n = n > READ_MAX || shape[i] > READ_MAX ? READ_MAX + 1 : n * shape[i];
    }
    if (info->n_dims > 8 || n > READ_MAX) {
        return;
    }
    float *x = fuzz_alloc(n * sizeof *x);
    float *y = fuzz_alloc(n * sizeof *y);
    tl_error err = fuzz_error();
    const tl_status got = f->tl->safetensors_f32(a, info->name, shape, info->n_dims, x, n, &err);
    const tl_status want =
        f->second->safetensors_f32(b, info->name, shape, info->n_dims, y, n, NULL);
    fuzz_check_error(f, "safetensors_f32", got, &err, n_bytes);
    if (got != want || !fuzz_same_floats(x, y, n)) {
        (void)fuzz_wrong(f, "f32 of '%.60s': %s, the second says %s, or other bits", info->name,
                         f->tl->status_name(got), f->tl->status_name(want));
    }
    if (info->n_dims > 0) {
        shape[0]++;
        const tl_status other =
            f->tl->safetensors_f32(a, info->name, shape, info->n_dims, x, n, &err);
        if (other != (got == TL_ERR_UNSUPPORTED ? got : TL_ERR_FORMAT)) {
            (void)fuzz_wrong(f, "f32 of '%.60s' in another shape: %s", info->name,
                             f->tl->status_name(other));
        }
    }
    free(x);
    free(y);
}

/* What is wrong with one of a pair; several faults leave the choice of the status. */
static unsigned part_faults(fuzz_case *f, const tl_layout *layout, const char *name,
                            const char *suffix, tl_dtype dtype, size_t rows, size_t cols) {
    char whole[80];
    (void)snprintf(whole, sizeof whole, "%s%s", name, suffix);
    const tl_tensor_info *info = f->tl->layout_find(layout, whole);
    if (info == NULL) {
        return 1u << TL_ERR_NOT_FOUND;
    }
    const bool fits = info->n_dims == 2 && info->dims[0] == rows && info->dims[1] == cols;
    return (info->dtype == dtype ? 0 : 1u << TL_ERR_UNSUPPORTED) | (fits ? 0 : 1u << TL_ERR_FORMAT);
}

typedef struct pair {
    char name[64];
    size_t n_out, n_in, group;
} pair;

static void compare_pair(fuzz_case *f, const tl_safetensors *a, const tl_safetensors *b,
                         const pair *p, uint64_t n_bytes) {
    tl_qlinear x;
    tl_qlinear y;
    tl_error err = fuzz_error();
    memset(&x, 0, sizeof x);
    memset(&y, 0, sizeof y);
    tl_status got = f->tl->safetensors_q4(a, p->name, p->n_out, p->n_in, p->group, &x, &err);
    const tl_status want =
        f->second->safetensors_q4(b, p->name, p->n_out, p->n_in, p->group, &y, NULL);
    fuzz_check_error(f, "safetensors_q4", got, &err, n_bytes);
    if (got != want && got != TL_OK && p->group != 0) {
        const tl_layout *layout = f->tl->safetensors_layout(a);
        const unsigned right =
            part_faults(f, layout, p->name, ".qweight", TL_DTYPE_U8, p->n_out, p->n_in / 2) |
            part_faults(f, layout, p->name, ".scales", TL_DTYPE_F16, p->n_out, p->n_in / p->group);
        got = (right >> got & 1) != 0 && (right >> want & 1) != 0 ? want : got;
    }
    const bool same =
        got != TL_OK || (x.qweight == y.qweight && x.scales == y.scales &&
                         x.qweight_len == y.qweight_len && x.scales_len == y.scales_len);
    if (got != want || !same) {
        (void)fuzz_wrong(f, "q4 of '%s' by %zu: %s, the second says %s", p->name, p->group,
                         f->tl->status_name(got), f->tl->status_name(want));
    }
}

/* Ask for int4 pairs under every name that ends in .qweight, with the shape that it has. */
static void compare_q4(fuzz_case *f, const tl_safetensors *a, const tl_safetensors *b,
                       const tl_tensor_info *info, uint64_t n_bytes) {
    static const char suffix[] = ".qweight";
    const size_t n_suffix = sizeof suffix - 1;
    pair p = {.name = ""};
    if (info->name_len < n_suffix || info->name_len >= sizeof p.name + n_suffix ||
        memcmp(info->name + info->name_len - n_suffix, suffix, n_suffix) != 0 ||
        info->n_dims != 2 || info->dims[1] > READ_MAX || info->begin == info->end) {
        return; /* what asking for a matrix without elements gives is not said */
    }
    memcpy(p.name, info->name, info->name_len - n_suffix);
    p.n_out = (size_t)info->dims[0];
    p.n_in = 2 * (size_t)info->dims[1];
    for (p.group = 0; p.group <= 8; p.group++) {
        compare_pair(f, a, b, &p, n_bytes);
    }
}

static void compare_views(fuzz_case *f, const tl_layout *layout, const uint8_t *data, size_t n) {
    tl_safetensors *a = NULL;
    tl_safetensors *b = NULL;
    if (f->tl->safetensors_view(&a, data, n, NULL) != TL_OK ||
        f->second->safetensors_view(&b, data, n, NULL) != TL_OK) {
        (void)fuzz_wrong(f, "a sound layout has no view");
    }
    for (size_t i = 0; a != NULL && b != NULL && i < f->tl->layout_count(layout); i++) {
        const tl_tensor_info *info = f->tl->layout_at(layout, i);
        compare_f32(f, a, b, info, n);
        compare_q4(f, a, b, info, n);
    }
    f->tl->safetensors_free(a);
    f->second->safetensors_free(b);
}

/* ------------------------------------------------------------------ the same from a file */

static void check_disk(fuzz_case *f, const uint8_t *data, size_t n, tl_status status,
                       const tl_layout *layout) {
    char path[FUZZ_PATH_MAX];
    tl_safetensors *st = (tl_safetensors *)(uintptr_t)data; /* a refusal must clear it */
    tl_error err = fuzz_error();
    fuzz_file_write(f, "a.safetensors", data, n, path);
    if (path[0] == '\0') {
        return;
    }
    /* Mapped or copied, as the length has it; what is mapped stays when the name goes. */
    const tl_weights_mode mode = n % 2 == 0 ? TL_WEIGHTS_MAP : TL_WEIGHTS_COPY;
    const tl_status got = f->tl->safetensors_open(&st, path, mode, &err);
    (void)remove(path);
    fuzz_check_error(f, "safetensors_open", got, &err, n);
    if (got != status || (got != TL_OK && st != NULL)) {
        (void)fuzz_wrong(f, "safetensors_open: %s, from memory it is %s", f->tl->status_name(got),
                         f->tl->status_name(status));
        return;
    }
    const tl_layout *opened = got == TL_OK ? f->tl->safetensors_layout(st) : NULL;
    for (size_t i = 0; got == TL_OK && i < f->tl->layout_count(layout); i++) {
        if (!fuzz_same_tensor(f->tl->layout_at(layout, i), f->tl->layout_at(opened, i))) {
            (void)fuzz_wrong(f, "safetensors_open: tensor %zu is another one", i);
        }
    }
    f->tl->safetensors_free(st);
}

/* A sound file, for calls that are not. */
static bool refuses_calls(const host_api *tl) {
    static const char text[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
                               "\"data_offsets\":[0,4]}}";
    uint8_t file[8 + sizeof text - 1 + 4] = {sizeof text - 1};
    const size_t one[1] = {1};
    tl_safetensors *st = NULL;
    tl_safetensors *none = NULL;
    tl_qlinear q;
    float x[2] = {0.0f, 0.0f};
    memcpy(file + 8, text, sizeof text - 1);
    const bool good =
        tl->safetensors_view(&st, file, sizeof file, NULL) == TL_OK &&
        tl->safetensors_f32(st, "b", one, 1, x, 1, NULL) == TL_ERR_NOT_FOUND &&
        tl->safetensors_f32(st, "a", one, 1, x, 2, NULL) == TL_ERR_INVALID &&
        tl->safetensors_f32(st, NULL, one, 1, x, 1, NULL) == TL_ERR_INVALID &&
        tl->safetensors_f32(st, "a", NULL, 1, x, 1, NULL) == TL_ERR_INVALID &&
        tl->safetensors_f32(st, "a", one, 1, NULL, 1, NULL) == TL_ERR_INVALID &&
        tl->safetensors_q4(st, "a", 0, 2, 2, &q, NULL) == TL_ERR_INVALID &&
        tl->safetensors_q4(st, "a", 2, 0, 2, &q, NULL) == TL_ERR_INVALID &&
        tl->safetensors_q4(st, "a", 2, 2, 0, &q, NULL) == TL_ERR_INVALID &&
        tl->safetensors_q4(st, "a", 2, 3, 3, &q, NULL) == TL_ERR_INVALID &&
        tl->safetensors_q4(st, "a", 2, 2, 4, &q, NULL) == TL_ERR_INVALID &&
        tl->safetensors_q4(st, NULL, 2, 2, 2, &q, NULL) == TL_ERR_INVALID &&
        tl->safetensors_q4(st, "a", 2, 2, 2, NULL, NULL) == TL_ERR_INVALID &&
        tl->layout_find(tl->safetensors_layout(st), NULL) == NULL &&
        tl->layout_metadata(tl->safetensors_layout(st), NULL) == NULL &&
        tl->safetensors_open(&none, "a", (tl_weights_mode)7, NULL) == TL_ERR_INVALID &&
        strcmp(tl->dtype_name((tl_dtype)1000), "unknown") == 0;
    tl->safetensors_free(st);
    return good;
}

/* What base.h says of arguments that are NULL: INVALID, or nothing there. */
static void check_misuse(fuzz_case *f, const uint8_t *data, size_t n) {
    const host_api *tl = f->tl;
    tl_layout *layout = NULL;
    tl_safetensors *st = NULL;
    tl_qlinear q;
    float x = 0.0f;
    const bool good = tl->layout_parse(NULL, data, n, NULL) == TL_ERR_INVALID &&
                      tl->layout_parse(&layout, NULL, 1, NULL) == TL_ERR_INVALID &&
                      tl->safetensors_view(NULL, data, n, NULL) == TL_ERR_INVALID &&
                      tl->safetensors_view(&st, NULL, 1, NULL) == TL_ERR_INVALID &&
                      tl->safetensors_open(NULL, "a", TL_WEIGHTS_MAP, NULL) == TL_ERR_INVALID &&
                      tl->safetensors_open(&st, NULL, TL_WEIGHTS_MAP, NULL) == TL_ERR_INVALID &&
                      tl->safetensors_f32(NULL, "a", NULL, 0, &x, 1, NULL) == TL_ERR_INVALID &&
                      tl->safetensors_q4(NULL, "a", 2, 2, 2, &q, NULL) == TL_ERR_INVALID &&
                      tl->layout_count(NULL) == 0 && tl->layout_at(NULL, 0) == NULL &&
                      tl->layout_find(NULL, "a") == NULL && tl->layout_data_start(NULL) == 0 &&
                      tl->layout_metadata(NULL, "a") == NULL &&
                      tl->safetensors_layout(NULL) == NULL;
    tl->layout_free(NULL);
    tl->safetensors_free(NULL);
    if (!good || !refuses_calls(tl)) {
        (void)fuzz_wrong(f, "a call that asks for nothing sensible is not refused");
    }
}

static tl_status read_once(const host_api *tl, const uint8_t *data, size_t n, tl_error *err) {
    tl_safetensors *st = NULL;
    const tl_status status = tl->safetensors_view(&st, data, n, err);
    tl->safetensors_free(st);
    return status;
}

static void run(fuzz_case *f, const uint8_t *data, size_t n) {
    tl_layout *a = (tl_layout *)(uintptr_t)data; /* no layout: a refusal must clear it */
    tl_layout *b = NULL;
    tl_safetensors *view = NULL;
    tl_error err = fuzz_error();
    const tl_status got = f->tl->layout_parse(&a, data, n, &err);
    fuzz_check_error(f, "layout_parse", got, &err, n);
    const tl_status want = f->second->layout_parse(&b, data, n, &err);
    check_disk(f, data, n, got, a);
    check_misuse(f, data, n);
    if (got != TL_OK && a != NULL) {
        (void)fuzz_wrong(f, "layout_parse: refused, and *out is not NULL");
        a = NULL;
    }
    if (fuzz_agree(f, "layout_parse", got, want)) {
        fuzz_compare_layouts(f, a, b, n);
        check_again(f, a, n);
        compare_views(f, a, data, n);
    } else if (f->tl->safetensors_view(&view, data, n, &err) != got) {
        (void)fuzz_wrong(f, "view: another status than layout_parse");
    }
    f->tl->safetensors_free(view);
    f->tl->layout_free(a);
    f->second->layout_free(b);
}

const fuzz_target fuzz_safetensors = {
    .name = "safetensors", .run = run, .mutate = fuzz_mutate_safetensors, .read = read_once};
