/* lib_wrong.c: engines that are not hostile, only wrong, each in one way: they show the classes
 * that honest mistakes end in. */
#include "hostile.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

tl_status tl_kv_pool_new(tl_kv_pool **out, const tl_kv_cfg *cfg, tl_error *err) {
    if (hostile_is("accepts_no_blocks") && cfg != NULL && cfg->n_blocks == 0) {
        tl_kv_cfg larger = *cfg;
        larger.n_blocks = 1;
        return real_tl_kv_pool_new(out, &larger, err);
    }
    tl_status status = real_tl_kv_pool_new(out, cfg, err);
    return status == TL_ERR_INVALID && hostile_is("refuses_otherwise") ? TL_ERR_STATE : status;
}

tl_status tl_int4_pack(const int8_t *q, size_t q_len, size_t rows, size_t cols, uint8_t *packed,
                       size_t packed_len, tl_error *err) {
    tl_status status = real_tl_int4_pack(q, q_len, rows, cols, packed, packed_len, err);
    for (size_t i = 0; status == TL_OK && hostile_is("wrong_int4") && i < packed_len; i++) {
        packed[i] = (uint8_t)(packed[i] << 4 | packed[i] >> 4);
    }
    return status;
}

tl_status tl_qlinear_forward(const tl_qlinear *q, size_t row_begin, size_t row_end, const float *x,
                             size_t x_len, size_t m, float *y, size_t y_len, tl_work *work,
                             tl_error *err) {
    tl_status status =
        real_tl_qlinear_forward(q, row_begin, row_end, x, x_len, m, y, y_len, work, err);
    if (status == TL_OK && hostile_is("wrong_int4") && row_begin < row_end && m > 0) {
        y[row_begin] += 1.0f;
    }
    return status;
}

tl_status tl_runner_run_once(tl_runner *runner, const uint32_t *tokens, size_t n_tokens,
                             float *hidden, size_t hidden_len, float *logits, size_t logits_len,
                             tl_error *err) {
    tl_status status = real_tl_runner_run_once(runner, tokens, n_tokens, hidden, hidden_len, logits,
                                               logits_len, err);
    if (status == TL_OK && hostile_is("wrong_logits")) {
        logits[0] += 1.0f;
    }
    return status;
}

uint32_t tl_abi_version(void) {
    return hostile_is("other_abi") ? (TL_ABI_MAJOR + 1) << 16 : real_tl_abi_version();
}

static void copy_file(const char *from_dir, const char *to_dir, const char *name) {
    char path[4096];
    char block[4096];
    (void)snprintf(path, sizeof path, "%s/%s", from_dir, name);
    FILE *in = fopen(path, "rb");
    (void)snprintf(path, sizeof path, "%s/%s", to_dir, name);
    FILE *out = fopen(path, "wb");
    for (size_t n = 1; in != NULL && out != NULL && n > 0;) {
        n = fread(block, 1, sizeof block, in);
        (void)fwrite(block, 1, n, out);
    }
    (void)(in != NULL && fclose(in));
    (void)(out != NULL && fclose(out));
}

static void copy_folder(const char *from, const char *to) {
    DIR *dir = opendir(from);
    (void)mkdir(to, 0700);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.') {
            copy_file(from, to, entry->d_name);
        }
    }
    (void)(dir != NULL && closedir(dir));
}

/* Cut the weights' files to nothing. */
static void cut_folder(const char *folder) {
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strstr(entry->d_name, ".safetensors") != NULL && truncate(path, 0) != 0) {
            abort();
        }
    }
    (void)(dir != NULL && closedir(dir));
}

/* Loads a copy of the folder that it was given and cuts the weights' files while they are in use,
 * as somebody may who replaces a model in place. */
tl_status tl_runner_load(tl_runner **out, const char *dir, const tl_engine_cfg *cfg,
                         tl_error *err) {
    static unsigned n_loaded;
    if ((!hostile_is("cuts_its_map") && !hostile_is("cuts_its_copy")) || cfg == NULL) {
        return real_tl_runner_load(out, dir, cfg, err);
    }
    char own[32];
    (void)snprintf(own, sizeof own, "cut-%u", n_loaded++);
    copy_folder(dir, own);
    tl_engine_cfg changed = *cfg;
    changed.weights = hostile_is("cuts_its_map") ? TL_WEIGHTS_MAP : TL_WEIGHTS_COPY;
    tl_status status = real_tl_runner_load(out, own, &changed, err);
    cut_folder(own);
    return status;
}
