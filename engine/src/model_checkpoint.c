/* model_checkpoint.c: a directory, or files in memory, as one set of tensors.
 *
 * A checkpoint is model.safetensors alone, or the shards that an index names; both at once would
 * leave open which one counts, and is refused. Index and shards must tell the same story in both
 * directions before anything is handed out. Positions count through the shards, one after the
 * other.
 *
 * Source: conformance/spec/safetensors.md, safetensors#13. */
#include "tl/model.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "model_internal.h"
#include "util.h"

#define INDEX_BYTES_MAX ((size_t)16 * 1024 * 1024)
#define NAME_SHOWN 72 /* bytes of a name that a message quotes */
#define SHARD_SUFFIX ".safetensors"

static const tli_json_limits index_limits = {
    .max_bytes = INDEX_BYTES_MAX, .max_depth = 64, .max_nodes = 100000, .max_member_nodes = 100000};

typedef struct shard {
    tl_safetensors *st;
    size_t first; /* position of its first tensor */
} shard;

struct tl_checkpoint {
    shard *shards; /* [n_shards] */
    size_t n_shards;
    size_t n; /* tensors in all */
    /* Positions by (name key, name); NULL with a single file, whose layout finds names itself. */
    uint32_t *by_name;
};

/* Where files come from: a directory, or memory. */
typedef struct source {
    const char *dir; /* NULL: memory */
    tl_weights_mode mode;
    const tl_file_view *files;
    size_t n_files;
} source;

static tl_status no_memory(tl_error *err) {
    return tli_fail(err, TL_ERR_NOMEM, "no memory for a checkpoint's list of tensors");
}

/* ------------------------------------------------------------------ sources */

tl_status tli_view_find(const tl_file_view *files, size_t n_files, const char *name,
                        const tl_file_view **out, tl_error *err) {
    *out = NULL;
    if (files == NULL && n_files > 0) {
        return tli_fail(err, TL_ERR_INVALID, "files is NULL");
    }
    for (size_t i = 0; i < n_files; i++) {
        if (files[i].name == NULL || (files[i].bytes == NULL && files[i].n_bytes > 0)) {
            return tli_fail(err, TL_ERR_INVALID, "files[%zu] has a NULL", i);
        }
        if (strcmp(files[i].name, name) != 0) {
            continue;
        }
        if (*out != NULL) {
            return tli_fail(err, TL_ERR_INVALID, "two of the files are named %.*s", NAME_SHOWN,
                            name);
        }
        *out = &files[i];
    }
    return TL_OK;
}

static tl_status source_has(const source *from, const char *name, bool *has, tl_error *err) {
    if (from->dir == NULL) {
        const tl_file_view *view = NULL;
        TLI_TRY(tli_view_find(from->files, from->n_files, name, &view, err));
        *has = view != NULL;
        return TL_OK;
    }
    char *path = tli_path_join(from->dir, name);
    if (path == NULL) {
        return no_memory(err);
    }
    const tl_status status = tli_file_exists(path, has, err);
    free(path);
    return status;
}

static tl_status open_view(const source *from, const char *name, tl_safetensors **out,
                           tl_error *err) {
    const tl_file_view *view = NULL;
    TLI_TRY(tli_view_find(from->files, from->n_files, name, &view, err));
    if (view == NULL) {
        return tli_fail(err, TL_ERR_IO, "%.*s is not among the files", NAME_SHOWN, name);
    }
    const tl_status status = tl_safetensors_view(out, view->bytes, view->n_bytes, err);
    return tli_name_file(status, name, err);
}

static tl_status source_open(const source *from, const char *name, tl_safetensors **out,
                             tl_error *err) {
    if (from->dir == NULL) {
        return open_view(from, name, out, err);
    }
    char *path = tli_path_join(from->dir, name);
    if (path == NULL) {
        return no_memory(err);
    }
    const tl_status status = tl_safetensors_open(out, path, from->mode, err);
    free(path);
    return status;
}

/* The index's bytes: borrowed from a view, or read and owned. */
static tl_status source_index(const source *from, tli_bytes *out, tl_error *err) {
    if (from->dir == NULL) {
        const tl_file_view *view = NULL;
        TLI_TRY(tli_view_find(from->files, from->n_files, TLI_INDEX_NAME, &view, err));
        out->data = view->bytes;
        out->n = view->n_bytes;
        return TL_OK;
    }
    char *path = tli_path_join(from->dir, TLI_INDEX_NAME);
    if (path == NULL) {
        return no_memory(err);
    }
    const tl_status status = tli_file_read(out, path, INDEX_BYTES_MAX, err);
    free(path);
    return status;
}

/* ------------------------------------------------------------------ one file */

static tl_status open_single(tl_checkpoint *ckpt, const source *from, tl_error *err) {
    ckpt->shards = (shard *)tli_calloc(1, sizeof(shard));
    if (ckpt->shards == NULL) {
        return no_memory(err);
    }
    TLI_TRY(source_open(from, TLI_SINGLE_NAME, &ckpt->shards[0].st, err));
    ckpt->n_shards = 1;
    ckpt->n = tl_layout_count(tl_safetensors_layout(ckpt->shards[0].st));
    return TL_OK;
}

/* ------------------------------------------------------------------ shards */

/* A plain base name that ends in .safetensors: without a separator it leads nowhere else, and `..`
 * alone does not end so. */
static bool is_shard_name(const char *name) {
    const size_t n = strlen(name);
    const size_t n_suffix = strlen(SHARD_SUFFIX);
    const bool has_suffix = n >= n_suffix && strcmp(name + n - n_suffix, SHARD_SUFFIX) == 0;
    return has_suffix && strpbrk(name, "/\\") == NULL;
}

static tl_status refuse_index(tl_error *err, const char *tensor, const char *reason) {
    return tli_fail(err, TL_ERR_FORMAT, "%s: weight_map: '%.*s': %s", TLI_INDEX_NAME, NAME_SHOWN,
                    tensor, reason);
}

/* Collect the distinct file names as the keys of *files, in their order. */
static tl_status list_shards(json_t *map, json_t *files, tl_error *err) {
    const char *tensor = NULL;
    json_t *value = NULL;
    json_object_foreach(map, tensor, value) {
        if (!json_is_string(value)) {
            return refuse_index(err, tensor, "its file is no string");
        }
        const char *name = json_string_value(value);
        if (!is_shard_name(name)) {
            return tli_fail(err, TL_ERR_FORMAT,
                            "%s: weight_map: '%.*s' is in '%.*s', which is no plain base name that "
                            "ends in %s",
                            TLI_INDEX_NAME, NAME_SHOWN, tensor, NAME_SHOWN, name, SHARD_SUFFIX);
        }
        const bool is_new = json_object_get(files, name) == NULL;
        if (is_new && json_object_set_new(files, name, json_true()) != 0) {
            return no_memory(err);
        }
    }
    return TL_OK;
}

/* Every tensor of the shard is one that the map places there. A tensor in two files fails here,
 * too: the map names one of them only. */
static tl_status check_shard(json_t *map, const char *file, const tl_layout *layout,
                             tl_error *err) {
    for (size_t i = 0; i < tl_layout_count(layout); i++) {
        const char *name = tl_layout_at(layout, i)->name;
        const char *wanted = json_string_value(json_object_get(map, name));
        if (wanted == NULL) {
            return tli_fail(err, TL_ERR_FORMAT, "%.*s has a tensor '%.*s' that the index lacks",
                            NAME_SHOWN, file, NAME_SHOWN, name);
        }
        if (strcmp(wanted, file) != 0) {
            return tli_fail(err, TL_ERR_FORMAT,
                            "tensor '%.*s' is in %.*s, the index places it in "
                            "%.*s",
                            NAME_SHOWN, name, NAME_SHOWN, file, NAME_SHOWN, wanted);
        }
    }
    return TL_OK;
}

static tl_status open_shards(tl_checkpoint *ckpt, const source *from, json_t *map, json_t *files,
                             tl_error *err) {
    const char *file = NULL;
    json_t *value = NULL;
    ckpt->shards = (shard *)tli_calloc(json_object_size(files), sizeof(shard));
    if (ckpt->shards == NULL) {
        return no_memory(err);
    }
    json_object_foreach(files, file, value) {
        shard *opened = &ckpt->shards[ckpt->n_shards];
        TLI_TRY(source_open(from, file, &opened->st, err));
        const tl_layout *layout = tl_safetensors_layout(opened->st);
        opened->first = ckpt->n;
        ckpt->n_shards++;
        ckpt->n += tl_layout_count(layout);
        TLI_TRY(check_shard(map, file, layout, err));
    }
    return TL_OK;
}

/* Every tensor of the map was found: none can be there twice by now, so the counts tell. */
static tl_status check_map(const tl_checkpoint *ckpt, json_t *map, tl_error *err) {
    const char *tensor = NULL;
    json_t *value = NULL;
    if (ckpt->n == json_object_size(map)) {
        return TL_OK;
    }
    json_object_foreach(map, tensor, value) {
        if (tl_checkpoint_find(ckpt, tensor) == NULL) {
            return tli_fail(err, TL_ERR_FORMAT,
                            "tensor '%.*s' is not in %.*s, where the index places it", NAME_SHOWN,
                            tensor, NAME_SHOWN, json_string_value(value));
        }
    }
    return tli_fail(err, TL_ERR_INTERNAL, "index and shards differ by no tensor");
}

static tl_status check_quant(const tl_checkpoint *ckpt, json_t *files, tl_error *err) {
    const char *file = NULL;
    json_t *value = NULL;
    const char *first = tl_layout_metadata(tl_safetensors_layout(ckpt->shards[0].st), "quant");
    size_t i = 0;
    json_object_foreach(files, file, value) {
        const tl_layout *layout = tl_safetensors_layout(ckpt->shards[i].st);
        const char *quant = tl_layout_metadata(layout, "quant");
        const bool both = first != NULL && quant != NULL;
        const bool same = both ? strcmp(first, quant) == 0 : first == quant;
        if (!same) {
            return tli_fail(err, TL_ERR_FORMAT,
                            "%.*s has the quant '%.40s', the first shard has '%.40s'", NAME_SHOWN,
                            file, quant == NULL ? "" : quant, first == NULL ? "" : first);
        }
        i++;
    }
    return TL_OK;
}

static int tie_tensors(const void *context, uint32_t a, uint32_t b) {
    const tl_checkpoint *ckpt = (const tl_checkpoint *)context;
    const tl_tensor_info *x = tl_checkpoint_at(ckpt, a);
    const tl_tensor_info *y = tl_checkpoint_at(ckpt, b);
    return tli_name_compare(x->name, x->name_len, y->name, y->name_len);
}

/* At most as many names as the index has nodes, so positions fit 32 bits. */
static tl_status index_names(tl_checkpoint *ckpt, tl_error *err) {
    uint64_t *items = (uint64_t *)tli_calloc(ckpt->n, 2 * sizeof *items);
    ckpt->by_name = (uint32_t *)tli_calloc(ckpt->n, sizeof(uint32_t));
    if (items == NULL || ckpt->by_name == NULL) {
        free(items);
        return no_memory(err);
    }
    for (size_t i = 0; i < ckpt->n; i++) {
        const tl_tensor_info *info = tl_checkpoint_at(ckpt, i);
        items[i] = tli_item(tli_name_key(info->name, info->name_len), (uint32_t)i);
    }
    tli_sort_items(items, items + ckpt->n, ckpt->n, tie_tensors, ckpt);
    for (size_t i = 0; i < ckpt->n; i++) {
        ckpt->by_name[i] = tli_item_index(items[i]);
    }
    free(items);
    return TL_OK;
}

static tl_status fill_shards(tl_checkpoint *ckpt, const source *from, json_t *map, json_t *files,
                             tl_error *err) {
    TLI_TRY(list_shards(map, files, err));
    TLI_TRY(open_shards(ckpt, from, map, files, err));
    TLI_TRY(index_names(ckpt, err));
    TLI_TRY(check_map(ckpt, map, err));
    return check_quant(ckpt, files, err);
}

static tl_status read_map(tl_checkpoint *ckpt, const source *from, json_t *root, tl_error *err) {
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0) {
        return tli_fail(err, TL_ERR_FORMAT,
                        "%s: weight_map must be an object {tensor: file} that is not empty",
                        TLI_INDEX_NAME);
    }
    json_t *files = json_object();
    if (files == NULL) {
        return no_memory(err);
    }
    const tl_status status = fill_shards(ckpt, from, map, files, err);
    json_decref(files);
    return status;
}

static tl_status open_sharded(tl_checkpoint *ckpt, const source *from, tl_error *err) {
    tli_bytes bytes = {0};
    json_t *root = NULL;
    TLI_TRY(source_index(from, &bytes, err));
    const tli_json_span text = {.text = (const char *)bytes.data, .len = bytes.n};
    tl_status status = tli_json_object(&root, text, &index_limits, TLI_INDEX_NAME, err);
    tli_bytes_clear(&bytes);
    if (status == TL_OK) {
        status = read_map(ckpt, from, root, err);
        json_decref(root);
    }
    return status;
}

/* ------------------------------------------------------------------ a checkpoint */

static tl_status open_either(tl_checkpoint *ckpt, const source *from, tl_error *err) {
    bool has_single = false;
    bool has_index = false;
    TLI_TRY(source_has(from, TLI_SINGLE_NAME, &has_single, err));
    TLI_TRY(source_has(from, TLI_INDEX_NAME, &has_index, err));
    const char *where = from->dir == NULL ? "the files" : from->dir;
    if (has_single && has_index) {
        return tli_fail(err, TL_ERR_FORMAT, "%s: both %s and %s are there, and one must count",
                        where, TLI_SINGLE_NAME, TLI_INDEX_NAME);
    }
    if (!has_single && !has_index) {
        return tli_fail(err, TL_ERR_IO, "%s: neither %s nor %s is there", where, TLI_SINGLE_NAME,
                        TLI_INDEX_NAME);
    }
    return has_index ? open_sharded(ckpt, from, err) : open_single(ckpt, from, err);
}

static tl_status open_source(tl_checkpoint **out, const source *from, tl_error *err) {
    tl_checkpoint *ckpt = (tl_checkpoint *)tli_calloc(1, sizeof *ckpt);
    if (ckpt == NULL) {
        return no_memory(err);
    }
    const tl_status status = open_either(ckpt, from, err);
    if (status != TL_OK) {
        tl_checkpoint_free(ckpt);
        return status;
    }
    *out = ckpt;
    return TL_OK;
}

tl_status tl_checkpoint_open(tl_checkpoint **out, const char *dir, tl_weights_mode mode,
                             tl_error *err) {
    const source from = {.dir = dir, .mode = mode};
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "tl_checkpoint_open: out is NULL");
    }
    *out = NULL;
    if (dir == NULL || (mode != TL_WEIGHTS_MAP && mode != TL_WEIGHTS_COPY)) {
        return tli_fail(err, TL_ERR_INVALID, "tl_checkpoint_open: dir is NULL, or mode %d is none",
                        (int)mode);
    }
    return open_source(out, &from, err);
}

tl_status tl_checkpoint_view(tl_checkpoint **out, const tl_file_view *files, size_t n_files,
                             tl_error *err) {
    const source from = {.files = files, .n_files = n_files};
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "tl_checkpoint_view: out is NULL");
    }
    *out = NULL;
    return open_source(out, &from, err);
}

void tl_checkpoint_free(tl_checkpoint *ckpt) {
    if (ckpt == NULL) {
        return;
    }
    for (size_t i = 0; i < ckpt->n_shards; i++) {
        tl_safetensors_free(ckpt->shards[i].st);
    }
    free(ckpt->shards);
    free(ckpt->by_name);
    free(ckpt);
}

size_t tl_checkpoint_count(const tl_checkpoint *ckpt) {
    return ckpt == NULL ? 0 : ckpt->n;
}

/* The shard that the position is in. index < ckpt->n. */
static const shard *shard_of(const tl_checkpoint *ckpt, size_t index) {
    size_t low = 0;
    size_t high = ckpt->n_shards;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (ckpt->shards[middle].first <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &ckpt->shards[low];
}

const tl_tensor_info *tl_checkpoint_at(const tl_checkpoint *ckpt, size_t index) {
    if (ckpt == NULL || index >= ckpt->n) {
        return NULL;
    }
    const shard *in = shard_of(ckpt, index);
    return tl_layout_at(tl_safetensors_layout(in->st), index - in->first);
}

/* The position of a name among sorted shards. */
static bool find_sharded(const tl_checkpoint *ckpt, const char *name, size_t *index) {
    const size_t name_len = strlen(name);
    const uint32_t wanted = tli_name_key(name, name_len);
    size_t low = 0;
    size_t high = ckpt->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const tl_tensor_info *info = tl_checkpoint_at(ckpt, ckpt->by_name[middle]);
        const uint32_t key = tli_name_key(info->name, info->name_len);
        const int order = key != wanted
                              ? (key < wanted ? -1 : 1)
                              : tli_name_compare(info->name, info->name_len, name, name_len);
        if (order == 0) {
            *index = ckpt->by_name[middle];
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

bool tli_checkpoint_tensor(const void *from, const char *name, tli_tensor *out) {
    const tl_checkpoint *ckpt = (const tl_checkpoint *)from;
    size_t index = 0;
    if (ckpt->by_name == NULL) {
        return tli_safetensors_tensor(ckpt->shards[0].st, name, out);
    }
    if (!find_sharded(ckpt, name, &index)) {
        return false;
    }
    const bool found = tli_safetensors_tensor(shard_of(ckpt, index)->st, name, out);
    out->index = index;
    return found;
}

const tl_tensor_info *tl_checkpoint_find(const tl_checkpoint *ckpt, const char *name) {
    tli_tensor tensor = {0};
    if (ckpt == NULL || name == NULL || !tli_checkpoint_tensor(ckpt, name, &tensor)) {
        return NULL;
    }
    return tensor.info;
}

const char *tl_checkpoint_metadata(const tl_checkpoint *ckpt, const char *key) {
    const char *value = NULL;
    for (size_t i = 0; ckpt != NULL && i < ckpt->n_shards; i++) {
        const tl_layout *layout = tl_safetensors_layout(ckpt->shards[i].st);
        const char *here = tl_layout_metadata(layout, key);
        if (here == NULL || (value != NULL && strcmp(here, value) != 0)) {
            return NULL;
        }
        value = here;
    }
    return value;
}

tl_status tl_checkpoint_f32(const tl_checkpoint *ckpt, const char *name, const size_t *shape,
                            size_t n_shape, float *dst, size_t dst_len, tl_error *err) {
    return tli_read_f32(ckpt, tli_checkpoint_tensor, name, shape, n_shape, dst, dst_len, err);
}

tl_status tl_checkpoint_q4(const tl_checkpoint *ckpt, const char *name, size_t n_out, size_t n_in,
                           size_t group, tl_qlinear *out, tl_error *err) {
    const tl_qlinear wanted = {.n_out = n_out, .n_in = n_in, .group = group};
    return tli_read_q4(ckpt, tli_checkpoint_tensor, name, &wanted, out, err);
}
