/* model_checkpoint.c: the tensors of a directory: of one file, or of the shards that an index names.
 *
 * A directory and a list of files in memory differ only in how a file is found and opened, which
 * is what `folder` hides.
 *
 * Source: conformance/spec/safetensors.md, rule 13. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model_json.h"
#include "model_plain.h"
#include "util.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define ENDING ".safetensors"
enum { MAX_INDEX = 16 << 20, MAX_NODES = 100000 };

typedef struct folder {
    const char *dir; /* NULL: files in memory */
    tl_weights_mode mode;
    const tl_file_view *files; /* [n_files] */
    size_t n_files;
} folder;

static const tl_file_view *view_of(const folder *f, const char *name) {
    for (size_t i = 0; i < f->n_files; i++) {
        if (strcmp(f->files[i].name, name) == 0) {
            return &f->files[i];
        }
    }
    return NULL;
}

static tl_status exists(const folder *f, const char *name, bool *there, tl_error *err) {
    if (f->dir == NULL) {
        *there = view_of(f, name) != NULL;
        return TL_OK;
    }
    char *path = plain_path(f->dir, name);
    if (path == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a path");
    }
    struct stat st;
    *there = stat(path, &st) == 0;
    free(path);
    return TL_OK;
}

static tl_status open_index(const folder *f, plain_file *out, tl_error *err) {
    if (f->dir == NULL) {
        const tl_file_view *view = view_of(f, INDEX);
        *out = (plain_file){.bytes = view->bytes, .n_bytes = view->n_bytes};
        return TL_OK;
    }
    char *path = plain_path(f->dir, INDEX);
    if (path == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a path");
    }
    const tl_status status = plain_file_open(out, path, TL_WEIGHTS_COPY, MAX_INDEX, err);
    free(path);
    return status;
}

static tl_status open_shard(const folder *f, const char *name, tl_safetensors **out,
                            tl_error *err) {
    tl_status status;
    if (f->dir != NULL) {
        char *path = plain_path(f->dir, name);
        if (path == NULL) {
            return tli_fail(err, TL_ERR_NOMEM, "no memory for a path");
        }
        status = tl_safetensors_open(out, path, f->mode, err);
        free(path);
        return status;
    }
    const tl_file_view *view = view_of(f, name);
    if (view == NULL) {
        return tli_fail(err, TL_ERR_IO, "there is no file %s", name);
    }
    tl_error why;
    status = tl_safetensors_view(out, view->bytes, view->n_bytes, &why);
    return status == TL_OK ? TL_OK : tli_fail_at(err, status, why.offset, "%s: %s", name, why.text);
}

/* Open one more file and keep it in the checkpoint. */
static tl_status add_file(tl_checkpoint *ckpt, const folder *f, const char *name, tl_error *err) {
    const size_t n = ckpt->n_files;
    tl_safetensors **files = realloc(ckpt->files, (n + 1) * sizeof *files);
    if (files == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for %zu files", n + 1);
    }
    ckpt->files = files;
    tl_safetensors *st;
    TLI_TRY(open_shard(f, name, &st, err));
    files[n] = st;
    ckpt->n_files++;
    return TL_OK;
}

/* ------------------------------------------------------------------ the index */

/* One line of the weight map. */
typedef struct entry {
    const char *file;
    const char *tensor;
} entry;

typedef struct weight_map {
    entry *entries; /* [n], sorted by file, then tensor */
    size_t n;
    char *text; /* what the entries point into */
} weight_map;

static int compare_entries(const void *a, const void *b) {
    const entry *e = a;
    const entry *f = b;
    const int order = strcmp(e->file, f->file);
    return order != 0 ? order : strcmp(e->tensor, f->tensor);
}

/* A base name in the same directory, and a safetensors file by its name. */
static bool is_shard_name(const char *name) {
    const size_t n = strlen(name);
    const size_t n_ending = strlen(ENDING);
    return n >= n_ending && strcmp(name + n - n_ending, ENDING) == 0 &&
           strpbrk(name, "/\\") == NULL && strstr(name, "..") == NULL;
}

static tl_status read_entries(weight_map *map, const char *object, tl_error *err) {
    char *text = map->text;
    plain_walk walk = plain_walk_of(object);
    while (plain_walk_next(&walk)) {
        entry *e = &map->entries[map->n++];
        e->tensor = text;
        text = plain_json_decode(walk.key, text);
        if (plain_json_kind(walk.value) != PLAIN_STRING) {
            return tli_fail(err, TL_ERR_FORMAT,
                            "%s: the file of tensor %s is %.*s, a string is "
                            "needed",
                            INDEX, e->tensor, plain_json_show(walk.value), walk.value);
        }
        e->file = text;
        text = plain_json_decode(walk.value, text);
        if (!is_shard_name(e->file)) {
            return tli_fail(err, TL_ERR_FORMAT,
                            "%s: the file of tensor %s is %s, a base name that "
                            "ends in .safetensors is needed",
                            INDEX, e->tensor, e->file);
        }
    }
    qsort(map->entries, map->n, sizeof *map->entries, compare_entries);
    return TL_OK;
}

static tl_status read_map(weight_map *map, const plain_file *file, tl_error *err) {
    static const plain_json_limits limits = {MAX_INDEX, MAX_NODES, MAX_NODES};
    const char *text = (const char *)file->bytes;
    TLI_TRY(plain_json_check(text, file->n_bytes, 0, &limits, INDEX, err));
    const char *object = plain_json_find(strchr(text, '{'), "weight_map");
    if (object == NULL || plain_json_kind(object) != PLAIN_OBJECT ||
        plain_json_count(object) == 0) {
        return tli_fail(err, TL_ERR_FORMAT, "%s has no weight_map that names tensors", INDEX);
    }
    map->entries = tli_calloc(plain_json_count(object), sizeof *map->entries);
    map->text = tli_calloc(file->n_bytes, 1); /* no text gets longer by being unescaped */
    if (map->entries == NULL || map->text == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for the index");
    }
    return read_entries(map, object, err);
}

/* The entries [begin, end) name one file. Its tensors are theirs and no others: then no tensor can
 * be in two files either, since the map names each once. */
static tl_status check_shard(const weight_map *map, size_t begin, size_t end,
                             const tl_layout *layout, tl_error *err) {
    const char *file = map->entries[begin].file;
    for (size_t i = begin; i < end; i++) {
        if (tl_layout_find(layout, map->entries[i].tensor) == NULL) {
            return tli_fail(err, TL_ERR_FORMAT, "tensor %s is not in %s, where the index has it",
                            map->entries[i].tensor, file);
        }
    }
    for (size_t i = 0; i < tl_layout_count(layout); i++) {
        const entry key = {.file = file, .tensor = tl_layout_at(layout, i)->name};
        if (bsearch(&key, map->entries + begin, end - begin, sizeof key, compare_entries) == NULL) {
            return tli_fail(err, TL_ERR_FORMAT,
                            "%s has tensor %s, which the index does not have "
                            "there",
                            file, key.tensor);
        }
    }
    return TL_OK;
}

static tl_status open_shards(tl_checkpoint *ckpt, const folder *f, const weight_map *map,
                             tl_error *err) {
    size_t begin = 0;
    while (begin < map->n) {
        size_t end = begin + 1;
        while (end < map->n && strcmp(map->entries[begin].file, map->entries[end].file) == 0) {
            end++;
        }
        TLI_TRY(add_file(ckpt, f, map->entries[begin].file, err));
        const tl_layout *layout = tl_safetensors_layout(ckpt->files[ckpt->n_files - 1]);
        TLI_TRY(check_shard(map, begin, end, layout, err));
        begin = end;
    }
    return TL_OK;
}

/* Rule 12: every shard has the same `quant`, or none has one. */
static tl_status check_quant(const tl_checkpoint *ckpt, tl_error *err) {
    const char *first = tl_layout_metadata(ckpt->files[0]->layout, "quant");
    for (size_t i = 1; i < ckpt->n_files; i++) {
        const char *quant = tl_layout_metadata(ckpt->files[i]->layout, "quant");
        if ((quant == NULL) != (first == NULL) || (quant != NULL && strcmp(quant, first) != 0)) {
            return tli_fail(err, TL_ERR_FORMAT, "the shards disagree on quant: %s and %s",
                            first == NULL ? "none" : first, quant == NULL ? "none" : quant);
        }
    }
    return TL_OK;
}

static tl_status open_index_and_shards(tl_checkpoint *ckpt, const folder *f, tl_error *err) {
    plain_file file;
    TLI_TRY(open_index(f, &file, err));
    weight_map map = {0};
    tl_status status = read_map(&map, &file, err);
    if (status == TL_OK) {
        status = open_shards(ckpt, f, &map, err);
    }
    free(map.entries);
    free(map.text);
    plain_file_close(&file);
    TLI_TRY(status);
    return check_quant(ckpt, err);
}

/* ------------------------------------------------------------------ a checkpoint */

static tl_status open_any(tl_checkpoint *ckpt, const folder *f, tl_error *err) {
    bool single;
    bool sharded;
    TLI_TRY(exists(f, SINGLE, &single, err));
    TLI_TRY(exists(f, INDEX, &sharded, err));
    if (single && sharded) {
        return tli_fail(err, TL_ERR_FORMAT, "there are both %s and %s, one of them is needed",
                        SINGLE, INDEX);
    }
    return sharded ? open_index_and_shards(ckpt, f, err) : add_file(ckpt, f, SINGLE, err);
}

static tl_status open_folder(tl_checkpoint **out, const folder *f, tl_error *err) {
    tl_checkpoint *ckpt = tli_calloc(1, sizeof *ckpt);
    if (ckpt == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a checkpoint");
    }
    const tl_status status = open_any(ckpt, f, err);
    if (status != TL_OK) {
        tl_checkpoint_free(ckpt);
        return status;
    }
    *out = ckpt;
    return TL_OK;
}

tl_status tl_checkpoint_open(tl_checkpoint **out, const char *dir, tl_weights_mode mode,
                             tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    if (dir == NULL || (mode != TL_WEIGHTS_MAP && mode != TL_WEIGHTS_COPY)) {
        return tli_fail(err, TL_ERR_INVALID, "dir is NULL, or the mode is neither map nor copy");
    }
    return open_folder(out, &(folder){.dir = dir, .mode = mode}, err);
}

tl_status tl_checkpoint_view(tl_checkpoint **out, const tl_file_view *files, size_t n_files,
                             tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    if (files == NULL && n_files > 0) {
        return tli_fail(err, TL_ERR_INVALID, "files is NULL");
    }
    for (size_t i = 0; i < n_files; i++) {
        if (files[i].name == NULL || (files[i].bytes == NULL && files[i].n_bytes > 0)) {
            return tli_fail(err, TL_ERR_INVALID, "file %zu has no name or no bytes", i);
        }
    }
    return open_folder(out, &(folder){.files = files, .n_files = n_files}, err);
}

void tl_checkpoint_free(tl_checkpoint *ckpt) {
    if (ckpt == NULL) {
        return;
    }
    for (size_t i = 0; i < ckpt->n_files; i++) {
        tl_safetensors_free(ckpt->files[i]);
    }
    free(ckpt->files);
    free(ckpt);
}

size_t tl_checkpoint_count(const tl_checkpoint *ckpt) {
    size_t n = 0;
    for (size_t i = 0; ckpt != NULL && i < ckpt->n_files; i++) {
        n += tl_layout_count(ckpt->files[i]->layout);
    }
    return n;
}

const tl_tensor_info *tl_checkpoint_at(const tl_checkpoint *ckpt, size_t index) {
    for (size_t i = 0; ckpt != NULL && i < ckpt->n_files; i++) {
        const size_t n = tl_layout_count(ckpt->files[i]->layout);
        if (index < n) {
            return tl_layout_at(ckpt->files[i]->layout, index);
        }
        index -= n;
    }
    return NULL;
}

const tl_tensor_info *tl_checkpoint_find(const tl_checkpoint *ckpt, const char *name) {
    plain_place place;
    const bool found =
        ckpt != NULL && name != NULL && plain_find(ckpt->files, ckpt->n_files, name, &place);
    return found ? place.info : NULL;
}

const char *tl_checkpoint_metadata(const tl_checkpoint *ckpt, const char *key) {
    const char *first = NULL;
    for (size_t i = 0; ckpt != NULL && i < ckpt->n_files; i++) {
        const char *value = tl_layout_metadata(ckpt->files[i]->layout, key);
        if (value == NULL || (first != NULL && strcmp(value, first) != 0)) {
            return NULL;
        }
        first = value;
    }
    return first;
}

tl_status tl_checkpoint_f32(const tl_checkpoint *ckpt, const char *name, const size_t *shape,
                            size_t n_shape, float *dst, size_t dst_len, tl_error *err) {
    plain_place place;
    if (ckpt == NULL || name == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "the checkpoint or the name is NULL");
    }
    if (!plain_find(ckpt->files, ckpt->n_files, name, &place)) {
        return tli_fail(err, TL_ERR_NOT_FOUND, "there is no tensor %s", name);
    }
    return tl_safetensors_f32(place.st, name, shape, n_shape, dst, dst_len, err);
}

tl_status tl_checkpoint_q4(const tl_checkpoint *ckpt, const char *name, size_t n_out, size_t n_in,
                           size_t group, tl_qlinear *out, tl_error *err) {
    if (ckpt == NULL || name == NULL || out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "an argument is NULL");
    }
    return plain_q4(ckpt->files, ckpt->n_files, name, n_out, n_in, group, out, err);
}
