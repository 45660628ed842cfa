/* target_checkpoint.c: whole directories in memory: the sharded index alone (fuzz_index), and
 * config.json with weights (fuzz_checkpoint).
 *
 * Both implementations must open or refuse them with the same status, see the same tensors and
 * bind the same weights. What is loaded in one call is what the three calls give; a refusal leaves
 * *out NULL and the checkpoint with its owner, as usable as before. A file named @int4_group is
 * not part of the directory: its digits ask for quantization at load.
 *
 * Source: conformance/spec/safetensors.md, rules 12 and 13; conformance/spec/config.md. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define READ_MAX 4096 /* elements of a tensor that are read */
#define OPTION "@int4_group"

static uint64_t bytes_of(const fuzz_folder *folder) {
    uint64_t n = 0;
    for (size_t i = 0; i < folder->n; i++) {
        n = folder->views[i].n_bytes > n ? folder->views[i].n_bytes : n;
    }
    return n;
}

/* ------------------------------------------------------------------ the checkpoint */

static void compare_tensor(fuzz_case *f, const tl_checkpoint *a, const tl_checkpoint *b,
                           const tl_tensor_info *info) {
    size_t shape[8] = {0};
    size_t n = 1;
    const tl_tensor_info *other = f->second->checkpoint_find(b, info->name);
    if (other == NULL || !fuzz_same_tensor(info, other) ||
        f->tl->checkpoint_find(a, info->name) != info) {
        (void)fuzz_wrong(f, "checkpoint: tensor '%.60s' differs", info->name);
        return;
    }
    for (size_t i = 0; i < info->n_dims && i < 8; i++) {
        shape[i] = (size_t)info->dims[i];
        n = n > READ_MAX || shape[i] > READ_MAX ? READ_MAX + 1 : n * shape[i];
    }
    if (info->n_dims > 8 || n > READ_MAX) {
        return;
    }
    float *x = fuzz_alloc(n * sizeof *x);
    float *y = fuzz_alloc(n * sizeof *y);
    const tl_status got = f->tl->checkpoint_f32(a, info->name, shape, info->n_dims, x, n, NULL);
    const tl_status want =
        f->second->checkpoint_f32(b, info->name, shape, info->n_dims, y, n, NULL);
    if (got != want || !fuzz_same_floats(x, y, n)) {
        (void)fuzz_wrong(f, "checkpoint: f32 of '%.60s' differs", info->name);
    }
    free(x);
    free(y);
}

static void compare_checkpoints(fuzz_case *f, const tl_checkpoint *a, const tl_checkpoint *b) {
    const size_t n = f->tl->checkpoint_count(a);
    const char *x = f->tl->checkpoint_metadata(a, "quant");
    const char *y = f->second->checkpoint_metadata(b, "quant");
    if (n != f->second->checkpoint_count(b) || f->tl->checkpoint_at(a, n) != NULL ||
        (x == NULL || y == NULL ? x != y : strcmp(x, y) != 0)) {
        (void)fuzz_wrong(f, "checkpoint: another count of tensors, or another quant");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const tl_tensor_info *info = f->tl->checkpoint_at(a, i);
        if (strlen(info->name) == info->name_len) {
            compare_tensor(f, a, b, info);
        }
    }
}

/* The same directory on a disk, mapped and copied. */
static void check_index_disk(fuzz_case *f, const fuzz_folder *folder, tl_status status) {
    if (!fuzz_folder_write(f, folder)) {
        return;
    }
    for (int mode = TL_WEIGHTS_MAP; mode <= TL_WEIGHTS_COPY; mode++) {
        tl_checkpoint *ckpt = NULL;
        tl_error err = fuzz_error();
        const tl_status got = f->tl->checkpoint_open(&ckpt, f->disk, (tl_weights_mode)mode, &err);
        fuzz_check_error(f, "checkpoint_open", got, &err, bytes_of(folder));
        if (got != status) {
            (void)fuzz_wrong(f, "checkpoint_open: %s, from memory it is %s",
                             f->tl->status_name(got), f->tl->status_name(status));
        }
        f->tl->checkpoint_free(ckpt);
    }
    fuzz_folder_remove(f, folder);
}

static void check_misuse(fuzz_case *f, const fuzz_folder *folder) {
    const host_api *tl = f->tl;
    const tl_file_view nameless = {NULL, (const uint8_t *)"", 0};
    tl_checkpoint *ckpt = NULL;
    tl_qlinear q;
    float x = 0.0f;
    const bool good = tl->checkpoint_view(NULL, folder->views, folder->n, NULL) == TL_ERR_INVALID &&
                      tl->checkpoint_view(&ckpt, NULL, 1, NULL) == TL_ERR_INVALID &&
                      tl->checkpoint_view(&ckpt, &nameless, 1, NULL) == TL_ERR_INVALID &&
                      tl->checkpoint_open(NULL, ".", TL_WEIGHTS_MAP, NULL) == TL_ERR_INVALID &&
                      tl->checkpoint_open(&ckpt, NULL, TL_WEIGHTS_MAP, NULL) == TL_ERR_INVALID &&
                      tl->checkpoint_open(&ckpt, ".", (tl_weights_mode)7, NULL) == TL_ERR_INVALID &&
                      tl->checkpoint_f32(NULL, "a", NULL, 0, &x, 1, NULL) == TL_ERR_INVALID &&
                      tl->checkpoint_q4(NULL, "a", 2, 2, 2, &q, NULL) == TL_ERR_INVALID &&
                      tl->checkpoint_count(NULL) == 0 && tl->checkpoint_at(NULL, 0) == NULL &&
                      tl->checkpoint_find(NULL, "a") == NULL &&
                      tl->checkpoint_metadata(NULL, "a") == NULL;
    tl->checkpoint_free(NULL);
    if (!good) {
        (void)fuzz_wrong(f, "an argument that is NULL is not INVALID");
    }
}

static tl_status read_index(const host_api *tl, const uint8_t *data, size_t n, tl_error *err) {
    fuzz_folder folder = fuzz_folder_read(data, n);
    tl_checkpoint *ckpt = NULL;
    fuzz_folder_point(&folder);
    const tl_status status = tl->checkpoint_view(&ckpt, folder.views, folder.n, err);
    tl->checkpoint_free(ckpt);
    fuzz_folder_clear(&folder);
    return status;
}

static void run_index(fuzz_case *f, const uint8_t *data, size_t n) {
    fuzz_folder folder = fuzz_folder_read(data, n);
    tl_checkpoint *a = (tl_checkpoint *)(uintptr_t)data; /* a refusal must clear it */
    tl_checkpoint *b = NULL;
    tl_error err = fuzz_error();
    fuzz_folder_point(&folder);
    const tl_status got = f->tl->checkpoint_view(&a, folder.views, folder.n, &err);
    fuzz_check_error(f, "checkpoint_view", got, &err, bytes_of(&folder));
    const tl_status want = f->second->checkpoint_view(&b, folder.views, folder.n, &err);
    if (got != TL_OK && a != NULL) {
        (void)fuzz_wrong(f, "checkpoint_view: refused, and *out is not NULL");
        a = NULL;
    }
    check_index_disk(f, &folder, got);
    check_misuse(f, &folder);
    const unsigned right = fuzz_lacks_shard(&folder) ? 1u << TL_ERR_IO | 1u << TL_ERR_FORMAT : 0;
    if (fuzz_agree_within(f, "checkpoint_view", got, want, right)) {
        compare_checkpoints(f, a, b);
    }
    f->tl->checkpoint_free(a);
    f->second->checkpoint_free(b);
    fuzz_folder_clear(&folder);
}

/* ------------------------------------------------------------------ the model */

/* Take the option out of the folder; its digits, or 0. */
static size_t take_option(fuzz_folder *folder) {
    size_t group = 0;
    for (size_t i = 0; i < folder->n; i++) {
        if (strcmp(folder->names[i], OPTION) != 0) {
            continue;
        }
        for (size_t k = 0; k < folder->views[i].n_bytes && k < 6; k++) {
            const uint8_t c = folder->views[i].bytes[k];
            group = c >= '0' && c <= '9' ? group * 10 + (size_t)(c - '0') : group;
        }
        free((void *)(uintptr_t)folder->views[i].bytes);
        folder->n--;
        folder->views[i] = folder->views[folder->n];
        memmove(folder->names[i], folder->names[folder->n], FUZZ_NAME_MAX);
    }
    return group;
}

/* The statuses that a load may end with when it does not succeed. */
static unsigned right_statuses(fuzz_case *f, const fuzz_folder *folder, size_t load_group) {
    const tl_file_view *json = fuzz_folder_find(folder, "config.json");
    tl_model_config cfg;
    tl_checkpoint *ckpt = NULL;
    if (json == NULL || f->second->model_config_parse(&cfg, (const char *)json->bytes,
                                                      json->n_bytes, NULL) != TL_OK) {
        return 0;
    }
    if (f->second->checkpoint_view(&ckpt, folder->views, folder->n, NULL) != TL_OK) {
        return fuzz_lacks_shard(folder) ? 1u << TL_ERR_IO | 1u << TL_ERR_FORMAT : 0;
    }
    const unsigned right = fuzz_fit_faults(f->second, &cfg, ckpt, load_group);
    f->second->checkpoint_free(ckpt);
    return right;
}

/* A config that no file gives: a caller's, with a field that would divide by 0 or wrap. */
static bool refuses_configs(const host_api *tl, tl_checkpoint *ckpt, const tl_model_config *cfg) {
    tl_weights weights;
    tl_model_config c[12];
    bool good = tl->weights_load(NULL, &ckpt, cfg, NULL, NULL) == TL_ERR_INVALID &&
                tl->weights_load(&weights, NULL, cfg, NULL, NULL) == TL_ERR_INVALID &&
                tl->weights_load(&weights, &ckpt, NULL, NULL, NULL) == TL_ERR_INVALID;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        c[i] = *cfg;
    }
    c[0].arch = (tl_arch)7;
    c[1].vocab_size = 0;
    c[2].hidden_size = 0;
    c[3].intermediate_size = 0;
    c[4].n_layers = 0;
    c[5].n_heads = 0;
    c[6].n_kv_heads = 0;
    c[7].head_dim = 0;
    c[8].n_kv_heads = c[8].n_heads + 1;
    c[9].n_heads = 3;
    c[9].n_kv_heads = 3;
    c[9].head_dim = SIZE_MAX / 2;
    c[10].rope_theta = 0.0;
    c[11].rms_norm_eps = (double)INFINITY;
    for (size_t i = 0; i < (cfg->arch == TL_ARCH_LLAMA ? sizeof c / sizeof *c : 2); i++) {
        good = tl->weights_load(&weights, &ckpt, &c[i], NULL, NULL) == TL_ERR_INVALID && good;
    }
    tl->weights_clear(NULL);
    return good && ckpt != NULL;
}

/* The same load by its three calls; its status. */
static tl_status load_by_parts(fuzz_case *f, const fuzz_folder *folder, const tl_quant_cfg *quant) {
    const tl_file_view *json = fuzz_folder_find(folder, "config.json");
    tl_model_config cfg;
    tl_checkpoint *ckpt = NULL;
    tl_weights weights;
    if (json == NULL) {
        return TL_ERR_IO;
    }
    tl_status status =
        f->tl->model_config_parse(&cfg, (const char *)json->bytes, json->n_bytes, NULL);
    if (status == TL_OK) {
        status = f->tl->checkpoint_view(&ckpt, folder->views, folder->n, NULL);
    }
    if (status != TL_OK) {
        return status;
    }
    const size_t n = f->tl->checkpoint_count(ckpt);
    if (!refuses_configs(f->tl, ckpt, &cfg)) {
        (void)fuzz_wrong(f, "weights_load: a config or an argument that cannot be is taken");
    }
    memset(&weights, 0xa5, sizeof weights);
    status = f->tl->weights_load(&weights, &ckpt, &cfg, quant, NULL);
    if (status == TL_OK) {
        if (ckpt != NULL) {
            (void)fuzz_wrong(f, "weights_load: the checkpoint has two owners");
        }
        f->tl->weights_clear(&weights);
    } else if (ckpt == NULL || f->tl->checkpoint_count(ckpt) != n) {
        (void)fuzz_wrong(f, "weights_load: refused, and the checkpoint is not as before");
    }
    f->tl->checkpoint_free(ckpt);
    return status;
}

/* The same directory on a disk. */
static void check_model_disk(fuzz_case *f, const fuzz_folder *folder, const tl_quant_cfg *quant,
                             tl_status status) {
    if (!fuzz_folder_write(f, folder)) {
        return;
    }
    for (int mode = TL_WEIGHTS_MAP; mode <= TL_WEIGHTS_COPY; mode++) {
        const tl_model_load_cfg load = {.weights = (tl_weights_mode)mode, .quant = *quant};
        tl_model *model = NULL;
        tl_error err = fuzz_error();
        const tl_status got = f->tl->model_load(&model, f->disk, &load, &err);
        fuzz_check_error(f, "model_load", got, &err, bytes_of(folder));
        if (got != status) {
            (void)fuzz_wrong(f, "model_load: %s, from memory it is %s", f->tl->status_name(got),
                             f->tl->status_name(status));
        }
        f->tl->model_free(model);
    }
    fuzz_folder_remove(f, folder);
}

static tl_status read_model(const host_api *tl, const uint8_t *data, size_t n, tl_error *err) {
    fuzz_folder folder = fuzz_folder_read(data, n);
    const tl_model_load_cfg load = {.quant = {.int4_group = take_option(&folder)}};
    tl_model *model = NULL;
    fuzz_folder_point(&folder);
    const tl_status status = tl->model_view(&model, folder.views, folder.n, &load, err);
    tl->model_free(model);
    fuzz_folder_clear(&folder);
    return status;
}

static void run_checkpoint(fuzz_case *f, const uint8_t *data, size_t n) {
    fuzz_folder folder = fuzz_folder_read(data, n);
    const tl_model_load_cfg load = {.quant = {.int4_group = take_option(&folder)}};
    tl_model *a = (tl_model *)(uintptr_t)data; /* a refusal must clear it */
    tl_model *b = NULL;
    tl_error err = fuzz_error();
    fuzz_folder_point(&folder);
    const tl_status got = f->tl->model_view(&a, folder.views, folder.n, &load, &err);
    fuzz_check_error(f, "model_view", got, &err, bytes_of(&folder));
    const tl_status want = f->second->model_view(&b, folder.views, folder.n, &load, &err);
    if (got != TL_OK && a != NULL) {
        (void)fuzz_wrong(f, "model_view: refused, and *out is not NULL");
        a = NULL;
    }
    const unsigned right = got == want ? 0 : right_statuses(f, &folder, load.quant.int4_group);
    if (fuzz_agree_within(f, "model_view", got, want, right)) {
        fuzz_compare_configs(f, f->tl->model_config_of(a), f->second->model_config_of(b));
        fuzz_compare_weights(f, f->tl->model_weights(a), f->second->model_weights(b));
    }
    const tl_status parts = load_by_parts(f, &folder, &load.quant);
    if (parts != got) {
        (void)fuzz_wrong(f, "model_view: %s, its three calls say %s", f->tl->status_name(got),
                         f->tl->status_name(parts));
    }
    check_model_disk(f, &folder, &load.quant, got);
    f->tl->model_free(a);
    f->second->model_free(b);
    fuzz_folder_clear(&folder);
}

const fuzz_target fuzz_index = {
    .name = "index", .run = run_index, .mutate = fuzz_mutate_folder, .read = read_index};
const fuzz_target fuzz_checkpoint = {
    .name = "checkpoint", .run = run_checkpoint, .mutate = fuzz_mutate_folder, .read = read_model};
