/* host_memory.c: the op that looks whether memory comes back: every kind of object is made and
 * freed, and refused, over and over; after some rounds no more may be in use than before.
 *
 * Counted is what malloc has given and not got back, by glibc's own numbers. Under a sanitizer, or
 * with another C library, there are none, and nothing is found. What is mapped is not counted.
 *
 * Source: conformance/spec/testee.md, Memory. */
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#define WARM_UP 8 /* rounds: what is kept once, or in malloc's caches, is there after these */
#define ROUNDS 64
#define FILE_CAP 4096

/* A Llama of one layer in memory, all weights 0; vocabulary 2, 4 columns, one head of 4. */
typedef struct small_model {
    uint8_t bytes[FILE_CAP];
    tl_file_view files[2];
} small_model;

typedef struct round_of {
    host *h;
    const host_api *tl;
    const small_model *llama;
} round_of;

/* Either outcome will do. */
static void try(tl_status status) {
    (void)status;
}

static size_t in_use(void) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

/* ------------------------------------------------------------------ the model */

static const char llama_config[] =
    "{\"tl_arch\":\"llama\",\"tl_tokenizer\":\"bpe\",\"vocab_size\":2,\"hidden_size\":4,"
    "\"intermediate_size\":4,\"num_hidden_layers\":1,\"num_attention_heads\":1,"
    "\"max_position_embeddings\":8,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true}";

static const struct {
    const char *name;
    int rows; /* of 4 columns; 0: one row, without a dimension of its own */
} tensors[] = {{"embed_tokens", 2},
               {"layers.0.input_layernorm", 0},
               {"layers.0.self_attn.q_proj", 4},
               {"layers.0.self_attn.k_proj", 4},
               {"layers.0.self_attn.v_proj", 4},
               {"layers.0.self_attn.o_proj", 4},
               {"layers.0.post_attention_layernorm", 0},
               {"layers.0.mlp.gate_proj", 4},
               {"layers.0.mlp.up_proj", 4},
               {"layers.0.mlp.down_proj", 4},
               {"norm", 0}};

static void make_llama(small_model *m) {
    char *header = (char *)m->bytes + 8;
    size_t n = 0;
    int at = 0;
    memset(m->bytes, 0, sizeof m->bytes);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char shape[16] = "4";
        const int end = at + 16 * (tensors[i].rows == 0 ? 1 : tensors[i].rows);
        if (tensors[i].rows != 0) {
            (void)snprintf(shape, sizeof shape, "%d,4", tensors[i].rows);
        }
        n += (size_t)snprintf(header + n, FILE_CAP - 8 - n,
                              "%s\"model.%s.weight\":{\"dtype\":\"F32\",\"shape\":[%s],"
                              "\"data_offsets\":[%d,%d]}",
                              i == 0 ? "{" : ",", tensors[i].name, shape, at, end);
        at = end;
    }
    header[n++] = '}';
    m->bytes[0] = (uint8_t)(n & 0xff);
    m->bytes[1] = (uint8_t)(n >> 8);
    m->files[0] =
        (tl_file_view){"config.json", (const uint8_t *)llama_config, sizeof llama_config - 1};
    m->files[1] = (tl_file_view){"model.safetensors", m->bytes, 8 + n + (size_t)at};
}

/* ------------------------------------------------------------------ rounds */

static void round_pool(const round_of *r) {
    const host_api *tl = r->tl;
    const tl_kv_cfg cfg = {.n_blocks = 8,
                           .block_tokens = 4,
                           .n_layers = 1,
                           .n_kv_heads = 1,
                           .head_dim = 4,
                           .dtype = TL_KV_DTYPE_F16,
                           .format = TL_KV_FORMAT_V1,
                           .prefix_cache = TL_PREFIX_CACHE_ON};
    uint8_t envelope[1024];
    uint32_t ids[2] = {0};
    size_t n = 0;
    size_t n_ids = 0;
    tl_kv_pool *pool = NULL;
    if (tl->kv_pool_new(&pool, &cfg, NULL) != TL_OK) {
        return;
    }
    try(tl->kv_pool_alloc(pool, ids, 2, NULL));
    try(tl->kv_pool_export(pool, ids, 2, envelope, sizeof envelope, &n, NULL));
    try(tl->kv_pool_import(pool, envelope, n, ids, 2, &n_ids, NULL));
    try(tl->kv_pool_import(pool, envelope, n - 1, ids, 2, &n_ids, NULL));
    tl->kv_pool_free(pool);
}

static void round_sampler(const round_of *r) {
    static const float logits[64] = {0};
    tl_sampling_params params = r->tl->sampling_params_default();
    tl_pcg32 rng = r->tl->stream(1, TL_PURPOSE_SAMPLE);
    tl_sampler *sampler = NULL;
    uint32_t token = 0;
    double logprob = 0;
    params.top_k = 5;
    if (r->tl->sampler_new(&sampler, 64, NULL) == TL_OK) {
        try(r->tl->sample(sampler, logits, 64, &params, NULL, 0, NULL, 0, &rng, &token, &logprob,
                          NULL));
        r->tl->sampler_free(sampler);
    }
}

static void round_quant(const round_of *r) {
    float w[64] = {0};
    tl_qlinear q4 = {0};
    tl_work *work = NULL;
    if (r->tl->qlinear_quantize(&q4, w, 64, 8, 8, 4, NULL) == TL_OK) {
        tl_linear linear = {.kind = TL_LINEAR_Q4, .as.q4 = q4};
        r->tl->linear_clear(&linear);
    }
    if (r->tl->qlinear_quantize(&q4, w, 64, 8, 8, 4, NULL) == TL_OK) {
        r->tl->qlinear_clear(&q4);
    }
    w[63] = 1e30f; /* refused late: its scale is no f16 */
    if (r->tl->qlinear_quantize(&q4, w, 64, 8, 8, 4, NULL) == TL_OK) {
        r->tl->qlinear_clear(&q4);
    }
    if (r->tl->work_new(&work, TL_ISA_AUTO, 64, NULL) == TL_OK) {
        r->tl->work_free(work);
    }
}

static void round_files(const round_of *r) {
    const host_api *tl = r->tl;
    const tl_file_view *file = &r->llama->files[1];
    for (size_t cut = 0; cut < 2; cut++) { /* whole, and a byte too short */
        const tl_file_view one = {file->name, file->bytes, file->n_bytes - cut};
        tl_layout *layout = NULL;
        tl_safetensors *st = NULL;
        tl_checkpoint *ckpt = NULL;
        if (tl->layout_parse(&layout, one.bytes, one.n_bytes, NULL) == TL_OK) {
            tl->layout_free(layout);
        }
        if (tl->safetensors_view(&st, one.bytes, one.n_bytes, NULL) == TL_OK) {
            tl->safetensors_free(st);
        }
        if (tl->checkpoint_view(&ckpt, &one, 1, NULL) == TL_OK) {
            tl->checkpoint_free(ckpt);
        }
    }
}

static void load_model(const round_of *r, const tl_file_view files[2], size_t int4_group) {
    const tl_model_load_cfg cfg = {.weights = TL_WEIGHTS_COPY, .quant = {int4_group}};
    tl_model *model = NULL;
    if (r->tl->model_view(&model, files, 2, &cfg, NULL) == TL_OK) {
        r->tl->model_free(model);
    }
}

static void round_model(const round_of *r) {
    tl_file_view bad[2] = {r->llama->files[0], r->llama->files[1]};
    load_model(r, r->llama->files, 0);
    load_model(r, r->llama->files, 2);
    load_model(r, r->llama->files, 3); /* refused: does not divide the columns */
    bad[1].n_bytes--;                  /* refused: the file is cut */
    load_model(r, bad, 0);
    bad[1] = r->llama->files[1];
    bad[0].n_bytes--; /* refused: the config is cut */
    load_model(r, bad, 0);
    try(r->tl->model_load(&(tl_model *){NULL}, "nowhere", NULL, NULL));
}

static void round_runner(const round_of *r) {
    const host_api *tl = r->tl;
    static const uint32_t token = 1;
    tl_engine_cfg cfg = tl->engine_cfg_default();
    tl_model *model = NULL;
    tl_runner *runner = NULL;
    float logits[2];
    cfg.max_batch_tokens = 4;
    cfg.max_seqs = 1;
    cfg.n_threads = 1;
    cfg.kv_n_blocks = 2;
    if (tl->model_view(&model, r->llama->files, 2, NULL, NULL) != TL_OK) {
        return;
    }
    if (tl->runner_new(&runner, model, &cfg, NULL) == TL_OK) {
        try(tl->runner_run_once(runner, &token, 1, NULL, 0, logits, 2, NULL));
        try(tl->runner_run_once(runner, &token, 0, NULL, 0, logits, 2, NULL));
        tl->runner_free(runner);
    }
    cfg.kv_n_blocks = 0; /* refused */
    if (tl->runner_new(&runner, model, &cfg, NULL) == TL_OK) {
        tl->runner_free(runner);
    }
    tl->model_free(model);
}

static bool op_memory(host *h, const json_t *in, json_t *out) {
    static const struct {
        const char *name;
        void (*once)(const round_of *r);
    } rounds[] = {{"a pool", round_pool},       {"a sampler", round_sampler},
                  {"int4 layers", round_quant}, {"files", round_files},
                  {"a model", round_model},     {"a runner", round_runner}};
    static small_model llama;
    const round_of r = {.h = h, .tl = &h->tl, .llama = &llama};
    (void)in;
    if (!host_ready(h)) {
        return false;
    }
    make_llama(&llama);
    tl_error err = host_error();
    tl_model *model = NULL;
    if (!host_answer(out, h->tl.model_view(&model, llama.files, 2, NULL, &err), &err)) {
        return false;
    }
    h->tl.model_free(model);
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        for (size_t n = 0; n < WARM_UP; n++) {
            rounds[i].once(&r);
        }
        const size_t before = in_use();
        for (size_t n = 0; n < ROUNDS; n++) {
            rounds[i].once(&r);
        }
        const size_t after = in_use();
        host_expect(h, after < before + ROUNDS, TL_OK,
                    "%d rounds of making, refusing and freeing %s leave %zu bytes in use", ROUNDS,
                    rounds[i].name, after - before);
    }
    return true;
}

const host_op host_memory_ops[] = {{"memory", op_memory}, {NULL, NULL}};
