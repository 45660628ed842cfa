/* model.c: config and weights under one roof, from a directory or from memory.
 *
 * Immutable once it is handed out, so that runners and threads can share it.
 *
 * Source: conformance/spec/config.md, config#fit. */
#include "tl/model.h"

#include <stdlib.h>

#include "model_internal.h"
#include "util.h"

struct tl_model {
    tl_model_config config;
    tl_weights weights;
};

/* Takes the checkpoint over on success only. */
static tl_status new_model(tl_model **out, const tl_model_config *config, tl_checkpoint **ckpt,
                           const tl_model_load_cfg *cfg, tl_error *err) {
    tl_model *model = (tl_model *)tli_calloc(1, sizeof *model);
    if (model == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a model");
    }
    model->config = *config;
    const tl_status status =
        tl_weights_load(&model->weights, ckpt, &model->config, &cfg->quant, err);
    if (status != TL_OK) {
        free(model);
        return status;
    }
    *out = model;
    return TL_OK;
}

static tl_status check_mode(tl_weights_mode mode, tl_error *err) {
    if (mode != TL_WEIGHTS_MAP && mode != TL_WEIGHTS_COPY) {
        return tli_fail(err, TL_ERR_INVALID, "loading a model: weights mode %d is none", (int)mode);
    }
    return TL_OK;
}

tl_status tl_model_load(tl_model **out, const char *dir, const tl_model_load_cfg *cfg,
                        tl_error *err) {
    const tl_model_load_cfg defaults = {.weights = TL_WEIGHTS_MAP};
    const tl_model_load_cfg *how = cfg == NULL ? &defaults : cfg;
    tl_model_config config = {0};
    tl_checkpoint *ckpt = NULL;
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "tl_model_load: out is NULL");
    }
    *out = NULL;
    if (dir == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "tl_model_load: dir is NULL");
    }
    TLI_TRY(check_mode(how->weights, err));
    TLI_TRY(tl_model_config_load(&config, dir, err));
    TLI_TRY(tl_checkpoint_open(&ckpt, dir, how->weights, err));
    const tl_status status = new_model(out, &config, &ckpt, how, err);
    tl_checkpoint_free(ckpt);
    return status;
}

static tl_status view_config(tl_model_config *config, const tl_file_view *files, size_t n_files,
                             tl_error *err) {
    const tl_file_view *view = NULL;
    TLI_TRY(tli_view_find(files, n_files, TLI_CONFIG_NAME, &view, err));
    if (view == NULL) {
        return tli_fail(err, TL_ERR_IO, "%s is not among the files", TLI_CONFIG_NAME);
    }
    return tl_model_config_parse(config, (const char *)view->bytes, view->n_bytes, err);
}

tl_status tl_model_view(tl_model **out, const tl_file_view *files, size_t n_files,
                        const tl_model_load_cfg *cfg, tl_error *err) {
    const tl_model_load_cfg defaults = {.weights = TL_WEIGHTS_MAP};
    const tl_model_load_cfg *how = cfg == NULL ? &defaults : cfg;
    tl_model_config config = {0};
    tl_checkpoint *ckpt = NULL;
    if (out == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "tl_model_view: out is NULL");
    }
    *out = NULL;
    TLI_TRY(check_mode(how->weights, err));
    TLI_TRY(view_config(&config, files, n_files, err));
    TLI_TRY(tl_checkpoint_view(&ckpt, files, n_files, err));
    const tl_status status = new_model(out, &config, &ckpt, how, err);
    tl_checkpoint_free(ckpt);
    return status;
}

void tl_model_free(tl_model *model) {
    if (model == NULL) {
        return;
    }
    tl_weights_clear(&model->weights);
    free(model);
}

const tl_model_config *tl_model_config_of(const tl_model *model) {
    return model == NULL ? NULL : &model->config;
}

const tl_weights *tl_model_weights(const tl_model *model) {
    return model == NULL ? NULL : &model->weights;
}
