/* model_checkpoint.c: the tensors of a folder: of one file, or of the shards that an index names.
 *
 * Source: conformance/spec/safetensors.md, rule 13. */
#include <stdlib.h>
#include <string.h>

#include "model_json.h"
#include "model_plain.h"
#include "util.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define ENDING ".safetensors"
enum { MAX_INDEX = 16 << 20, MAX_NODES = 100000 };

/* What one call of open needs. */
typedef struct opener {
    tl_checkpoint *ckpt;
    const plain_folder *folder;
    tl_weights_mode mode;
    tl_error *err;
} opener;

/* Open one more file and keep it in the checkpoint. */
static tl_status add_file(opener *o, const char *name) {
    tl_checkpoint *ckpt = o->ckpt;
    const size_t n = ckpt->n_files + 1;
    tl_safetensors *files = realloc(ckpt->files, n * sizeof *files);
    if (files == NULL) {
        return tli_fail(o->err, TL_ERR_NOMEM, "no memory for %zu files", n);
    }
    ckpt->files = files;
    plain_file file;
    TLI_TRY(plain_folder_open(o->folder, name, o->mode, SIZE_MAX, &file, o->err));
    TLI_TRY(plain_safetensors_init(&files[n - 1], file, name, o->err));
    ckpt->n_files = n;
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
           strpbrk(name, "/\\") == NULL;
}

static tl_status read_entries(weight_map *map, const char *object, tl_error *err) {
    char *text = map->text;
    plain_walk walk = plain_walk_of(object);
    while (plain_walk_next(&walk)) {
        entry *e = &map->entries[map->n++];
        e->tensor = text;
        text = plain_json_decode(walk.key, text);
        if (plain_json_kind(walk.value) != PLAIN_STRING) {
            return tli_fail(err, TL_ERR_FORMAT, INDEX ": the file of tensor %s is no string",
                            e->tensor);
        }
        e->file = text;
        text = plain_json_decode(walk.value, text);
        if (!is_shard_name(e->file)) {
            return tli_fail(err, TL_ERR_FORMAT,
                            INDEX ": the file of tensor %s is %s, a base name "
                                  "that ends in " ENDING " is needed",
                            e->tensor, e->file);
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
        return tli_fail(err, TL_ERR_FORMAT, INDEX " has no weight_map that names tensors");
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
                            "%s has tensor %s, which the index does not have there", file,
                            key.tensor);
        }
    }
    return TL_OK;
}

static tl_status open_shards(opener *o, const weight_map *map) {
    size_t begin = 0;
    while (begin < map->n) {
        size_t end = begin + 1;
        while (end < map->n && strcmp(map->entries[begin].file, map->entries[end].file) == 0) {
            end++;
        }
        TLI_TRY(add_file(o, map->entries[begin].file));
        const tl_layout *layout = o->ckpt->files[o->ckpt->n_files - 1].layout;
        TLI_TRY(check_shard(map, begin, end, layout, o->err));
        begin = end;
    }
    return TL_OK;
}

/* Rule 12: every shard has the same `quant`, or none has one. */
static tl_status check_quant(const opener *o) {
    for (size_t i = 1; i < o->ckpt->n_files; i++) {
        const char *first = tl_layout_metadata(o->ckpt->files[0].layout, "quant");
        const char *quant = tl_layout_metadata(o->ckpt->files[i].layout, "quant");
        first = first == NULL ? "(none)" : first;
        quant = quant == NULL ? "(none)" : quant;
        if (strcmp(first, quant) != 0) {
            return tli_fail(o->err, TL_ERR_FORMAT, "the shards disagree on quant: %s and %s", first,
                            quant);
        }
    }
    return TL_OK;
}

static tl_status open_sharded(opener *o) {
    plain_file file;
    TLI_TRY(plain_folder_open(o->folder, INDEX, TL_WEIGHTS_COPY, MAX_INDEX, &file, o->err));
    weight_map map = {0};
    tl_status status = read_map(&map, &file, o->err);
    if (status == TL_OK) {
        status = open_shards(o, &map);
    }
    free(map.entries);
    free(map.text);
    plain_file_close(&file);
    return status == TL_OK ? check_quant(o) : status;
}

/* ------------------------------------------------------------------ a checkpoint */

static tl_status open_any(opener *o) {
    bool single = false;
    bool sharded = false;
    TLI_TRY(plain_folder_has(o->folder, SINGLE, &single, o->err));
    TLI_TRY(plain_folder_has(o->folder, INDEX, &sharded, o->err));
    if (single && sharded) {
        return tli_fail(o->err, TL_ERR_FORMAT, "there are both " SINGLE " and " INDEX);
    }
    return sharded ? open_sharded(o) : add_file(o, SINGLE);
}

tl_status plain_checkpoint_open(tl_checkpoint **out, const plain_folder *folder,
                                tl_weights_mode mode, tl_error *err) {
    if (mode != TL_WEIGHTS_MAP && mode != TL_WEIGHTS_COPY) {
        return tli_fail(err, TL_ERR_INVALID, "the mode %d is neither map nor copy", (int)mode);
    }
    opener o = {.ckpt = tli_calloc(1, sizeof *o.ckpt), .folder = folder, .mode = mode, .err = err};
    if (o.ckpt == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a checkpoint");
    }
    const tl_status status = open_any(&o);
    if (status != TL_OK) {
        tl_checkpoint_free(o.ckpt);
        return status;
    }
    *out = o.ckpt;
    return TL_OK;
}

tl_status tl_checkpoint_open(tl_checkpoint **out, const char *dir, tl_weights_mode mode,
                             tl_error *err) {
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    if (dir == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "dir is NULL");
    }
    return plain_checkpoint_open(out, &(plain_folder){.dir = dir}, mode, err);
}

tl_status tl_checkpoint_view(tl_checkpoint **out, const tl_file_view *files, size_t n_files,
                             tl_error *err) {
    const plain_folder folder = {.files = files, .n_files = n_files};
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "out is NULL");
    }
    *out = NULL;
    TLI_TRY(plain_folder_check(&folder, err));
    return plain_checkpoint_open(out, &folder, TL_WEIGHTS_MAP, err);
}

void tl_checkpoint_free(tl_checkpoint *ckpt) {
    if (ckpt == NULL) {
        return;
    }
    for (size_t i = 0; i < ckpt->n_files; i++) {
        plain_safetensors_clear(&ckpt->files[i]);
    }
    free(ckpt->files);
    free(ckpt);
}

size_t tl_checkpoint_count(const tl_checkpoint *ckpt) {
    size_t n = 0;
    for (size_t i = 0; ckpt != NULL && i < ckpt->n_files; i++) {
        n += tl_layout_count(ckpt->files[i].layout);
    }
    return n;
}

const tl_tensor_info *tl_checkpoint_at(const tl_checkpoint *ckpt, size_t index) {
    for (size_t i = 0; ckpt != NULL && i < ckpt->n_files; i++) {
        const size_t n = tl_layout_count(ckpt->files[i].layout);
        if (index < n) {
            return tl_layout_at(ckpt->files[i].layout, index);
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
        const char *value = tl_layout_metadata(ckpt->files[i].layout, key);
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
        return tli_fail(err, TL_ERR_NOT_FOUND, "tensor %s is missing", name);
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
