/* host_memory.c: the op that looks after memory. It comes back: every kind of object is made and
 * freed, and refused, over and over; after that no more may be held than before. And it may run
 * out: when one call for memory fails, whichever, or all from there on, what the engine was asked
 * for must succeed or be refused as NOMEM, and nothing stay behind.
 *
 * host_faults.c counts the calls, and lets them fail; where it cannot, nothing is found.
 *
 * Source: conformance/spec/testee.md, Memory. */
#include "host.h"

#include <stdio.h>
#include <string.h>

#define WARM_UP 8 /* rounds: what is kept once is there after these */
#define ROUNDS 32
#define FILE_CAP 4096
#define CALLS_MAX 20000 /* for memory in a round; ours make some hundreds */

/* A Llama of two layers in memory, all weights 0; vocabulary 2, 4 columns, one head of 4. */
typedef struct small_model {
    uint8_t bytes[FILE_CAP];
    tl_file_view files[2];
} small_model;

/* Two tensors of one byte, each in a file of its own. */
typedef struct two_shards {
    uint8_t bytes[2][128];
    tl_file_view files[3];
} two_shards;

typedef struct round_of {
    host *h;
    const host_api *tl;
    const small_model *llama;
    const two_shards *shards;
    const char *dir; /* of a model that loads */
    bool is_hungry;  /* there is no memory, or little */
} round_of;

/* Did the call succeed? Without memory there is no other outcome than that and NOMEM; with it, it
 * must, the hundredth time as the first: descriptors that are not closed come to an end. */
static bool made(const round_of *r, tl_status status, const char *what) {
    const tl_status due = r->is_hungry ? TL_ERR_NOMEM : TL_OK;
    host_expect(r->h, status == TL_OK || status == due, TL_OK,
                "%s %s memory is answered with status %d, must be %d", what,
                r->is_hungry ? "without" : "once more, with", (int)status, (int)due);
    return status == TL_OK;
}

/* For a call that is refused, or may be: either outcome will do. */
static void try(tl_status status) {
    (void)status;
}

/* ------------------------------------------------------------------ the model */

static const char llama_config[] =
    "{\"tl_arch\":\"llama\",\"tl_tokenizer\":\"bpe\",\"vocab_size\":2,\"hidden_size\":4,"
    "\"intermediate_size\":4,\"num_hidden_layers\":2,\"num_attention_heads\":1,"
    "\"max_position_embeddings\":8,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true}";

typedef struct small_tensor {
    const char *name;
    int rows; /* of 4 columns; 0: one row, without a dimension of its own */
} small_tensor;

static const small_tensor outer[] = {{"embed_tokens", 2}, {"norm", 0}};
static const small_tensor inner[] = {
    {"input_layernorm", 0},  {"self_attn.q_proj", 4}, {"self_attn.k_proj", 4},
    {"self_attn.v_proj", 4}, {"self_attn.o_proj", 4}, {"post_attention_layernorm", 0},
    {"mlp.gate_proj", 4},    {"mlp.up_proj", 4},      {"mlp.down_proj", 4}};

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* Where the next byte of a header goes, and the next of the data. */
typedef struct small_file {
    char *header;
    size_t n_cap;
    size_t n;
    size_t n_data;
} small_file;

static void add_tensor(small_file *f, const char *layer, const small_tensor *tensor) {
    char shape[16] = "4";
    const size_t n = 16 * (size_t)(tensor->rows == 0 ? 1 : tensor->rows);
    if (tensor->rows != 0) {
        (void)snprintf(shape, sizeof shape, "%d,4", tensor->rows);
    }
    f->n += (size_t)snprintf(f->header + f->n, f->n_cap - f->n,
                             "%s\"model.%s%s.weight\":{\"dtype\":\"F32\",\"shape\":[%s],"
                             "\"data_offsets\":[%zu,%zu]}",
                             f->n == 0 ? "{" : ",", layer, tensor->name, shape, f->n_data,
                             f->n_data + n);
    f->n_data += n;
}

/* The length of a header before it, in its lowest two bytes; the others are 0. */
static void put_length(uint8_t *bytes, size_t n) {
    bytes[0] = (uint8_t)(n & 0xff);
    bytes[1] = (uint8_t)(n >> 8);
}

static void make_llama(small_model *m) {
    small_file f = {.header = (char *)m->bytes + 8, .n_cap = FILE_CAP - 8};
    memset(m->bytes, 0, sizeof m->bytes);
    for (size_t i = 0; i < COUNT(outer); i++) {
        add_tensor(&f, "", &outer[i]);
    }
    for (size_t i = 0; i < COUNT(inner); i++) {
        add_tensor(&f, "layers.0.", &inner[i]);
        add_tensor(&f, "layers.1.", &inner[i]);
    }
    f.header[f.n++] = '}';
    put_length(m->bytes, f.n);
    m->files[0] =
        (tl_file_view){"config.json", (const uint8_t *)llama_config, sizeof llama_config - 1};
    m->files[1] = (tl_file_view){"model.safetensors", m->bytes, 8 + f.n + f.n_data};
}

static void make_shards(two_shards *s) {
    static const char index[] = "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
                                "\"b\":\"model-00002-of-00002.safetensors\"}}";
    static const char *const names[] = {"model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors"};
    s->files[0] =
        (tl_file_view){"model.safetensors.index.json", (const uint8_t *)index, sizeof index - 1};
    for (size_t i = 0; i < COUNT(names); i++) {
        uint8_t *bytes = s->bytes[i];
        memset(bytes, 0, sizeof s->bytes[i]);
        const int n =
            snprintf((char *)bytes + 8, sizeof s->bytes[i] - 8,
                     "{\"%c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "ab"[i]);
        put_length(bytes, (size_t)n);
        s->files[i + 1] = (tl_file_view){names[i], bytes, 8 + (size_t)n + 1};
    }
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
    if (made(r, tl->kv_pool_new(&pool, &cfg, NULL), "kv_pool_new")) {
        try(tl->kv_pool_alloc(pool, ids, 2, NULL));
        (void)made(r, tl->kv_pool_export(pool, ids, 2, envelope, sizeof envelope, &n, NULL),
                   "kv_pool_export");
        (void)made(r, tl->kv_pool_import(pool, envelope, n, ids, 2, &n_ids, NULL),
                   "kv_pool_import");
        try(tl->kv_pool_import(pool, envelope, n > 0 ? n - 1 : 0, ids, 2, &n_ids, NULL));
        tl->kv_pool_free(pool);
    }
}

static void round_sampler(const round_of *r) {
    static const float logits[512] = {0};
    tl_sampling_params params = r->tl->sampling_params_default();
    tl_pcg32 rng = r->tl->stream(1, TL_PURPOSE_SAMPLE);
    tl_sampler *sampler = NULL;
    uint32_t token = 0;
    double logprob = 0;
    params.top_k = 300;
    if (made(r, r->tl->sampler_new(&sampler, 512, NULL), "sampler_new")) {
        (void)made(r,
                   r->tl->sample(sampler, logits, 512, &params, NULL, 0, NULL, 0, &rng, &token,
                                 &logprob, NULL),
                   "sample");
        r->tl->sampler_free(sampler);
    }
}

static void round_quant(const round_of *r) {
    float w[64] = {0};
    tl_qlinear q4 = {0};
    tl_work *work = NULL;
    if (made(r, r->tl->qlinear_quantize(&q4, w, 64, 8, 8, 4, NULL), "qlinear_quantize")) {
        tl_linear linear = {.kind = TL_LINEAR_Q4, .as.q4 = q4};
        r->tl->linear_clear(&linear);
    }
    if (made(r, r->tl->qlinear_quantize(&q4, w, 64, 8, 8, 4, NULL), "qlinear_quantize")) {
        r->tl->qlinear_clear(&q4);
    }
    w[63] = 1e30f; /* refused late: its scale is no f16 */
    try(r->tl->qlinear_quantize(&q4, w, 64, 8, 8, 4, NULL));
    r->tl->qlinear_clear(&q4);
    if (made(r, r->tl->work_new(&work, TL_ISA_AUTO, 64, NULL), "work_new")) {
        r->tl->work_free(work);
    }
}

static void look_at_file(const round_of *r, const tl_file_view *file, bool is_sound) {
    const host_api *tl = r->tl;
    tl_layout *layout = NULL;
    tl_safetensors *st = NULL;
    tl_checkpoint *ckpt = NULL;
    const tl_status parsed = tl->layout_parse(&layout, file->bytes, file->n_bytes, NULL);
    const tl_status viewed = tl->safetensors_view(&st, file->bytes, file->n_bytes, NULL);
    const tl_status opened = tl->checkpoint_view(&ckpt, file, 1, NULL);
    if (is_sound) {
        (void)made(r, parsed, "layout_parse");
        (void)made(r, viewed, "safetensors_view");
        (void)made(r, opened, "checkpoint_view");
    }
    tl->layout_free(layout);
    tl->safetensors_free(st);
    tl->checkpoint_free(ckpt);
}

static void round_files(const round_of *r) {
    const tl_file_view *file = &r->llama->files[1];
    const tl_file_view cut = {file->name, file->bytes, file->n_bytes - 1};
    look_at_file(r, file, true);
    look_at_file(r, &cut, false);
}

static void round_shards(const round_of *r) {
    const host_api *tl = r->tl;
    tl_file_view files[3];
    tl_checkpoint *ckpt = NULL;
    memcpy(files, r->shards->files, sizeof files);
    (void)made(r, tl->checkpoint_view(&ckpt, files, 3, NULL), "checkpoint_view");
    tl->checkpoint_free(ckpt);
    ckpt = NULL;
    try(tl->checkpoint_view(&ckpt, files, 2, NULL)); /* refused: the second one is not there */
    tl->checkpoint_free(ckpt);
    files[2].n_bytes--; /* refused: it is cut */
    ckpt = NULL;
    try(tl->checkpoint_view(&ckpt, files, 3, NULL));
    tl->checkpoint_free(ckpt);
}

static void view_model(const round_of *r, const tl_file_view files[2], size_t int4_group,
                       bool is_sound) {
    const tl_model_load_cfg cfg = {.weights = TL_WEIGHTS_COPY, .quant = {int4_group}};
    tl_model *model = NULL;
    const tl_status status = r->tl->model_view(&model, files, 2, &cfg, NULL);
    if (is_sound) {
        (void)made(r, status, "model_view");
    }
    r->tl->model_free(model);
}

static void round_model(const round_of *r) {
    tl_file_view bad[2] = {r->llama->files[0], r->llama->files[1]};
    view_model(r, r->llama->files, 0, true);
    view_model(r, r->llama->files, 2, true);
    view_model(r, r->llama->files, 3, false); /* refused: does not divide the columns */
    bad[1].n_bytes--;                         /* refused: the file is cut */
    view_model(r, bad, 0, false);
    bad[1] = r->llama->files[1];
    bad[0].n_bytes--; /* refused: the config is cut */
    view_model(r, bad, 0, false);
}

static void load_model(const round_of *r, tl_weights_mode mode, size_t int4_group, bool is_sound) {
    const tl_model_load_cfg cfg = {.weights = mode, .quant = {int4_group}};
    tl_model *model = NULL;
    const tl_status status = r->tl->model_load(&model, r->dir, &cfg, NULL);
    if (is_sound) {
        (void)made(r, status, "model_load");
    }
    r->tl->model_free(model);
}

/* The rounds on a directory are short, since each is made anew for each of its calls for memory. */
static void round_mapped(const round_of *r) {
    load_model(r, TL_WEIGHTS_MAP, 0, true);
    load_model(r, TL_WEIGHTS_MAP, 3, false); /* refused, when all files are open: an odd group */
}

static void round_copied(const round_of *r) {
    tl_model *none = NULL;
    load_model(r, TL_WEIGHTS_COPY, 0, true);
    try(r->tl->model_load(&none, "nowhere", NULL, NULL));
    r->tl->model_free(none);
}

static void round_opened(const round_of *r) {
    const host_api *tl = r->tl;
    char path[HOST_TEXT_CAP];
    tl_safetensors *st = NULL;
    tl_checkpoint *ckpt = NULL;
    (void)snprintf(path, sizeof path, "%s/model.safetensors", r->dir);
    (void)made(r, tl->safetensors_open(&st, path, TL_WEIGHTS_COPY, NULL), "safetensors_open");
    tl->safetensors_free(st);
    (void)made(r, tl->checkpoint_open(&ckpt, r->dir, TL_WEIGHTS_MAP, NULL), "checkpoint_open");
    tl->checkpoint_free(ckpt);
}

static void round_loaded(const round_of *r) {
    tl_engine_cfg cfg = r->tl->engine_cfg_default();
    tl_runner *runner = NULL;
    cfg.kv_n_blocks = 2;
    (void)made(r, r->tl->runner_load(&runner, r->dir, &cfg, NULL), "runner_load");
    r->tl->runner_free(runner);
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
    cfg.n_threads = 2;
    cfg.kv_n_blocks = 2;
    if (!made(r, tl->model_view(&model, r->llama->files, 2, NULL, NULL), "model_view")) {
        return;
    }
    if (made(r, tl->runner_new(&runner, model, &cfg, NULL), "runner_new")) {
        (void)made(r, tl->runner_run_once(runner, &token, 1, NULL, 0, logits, 2, NULL),
                   "runner_run_once");
        try(tl->runner_run_once(runner, &token, 0, NULL, 0, logits, 2, NULL));
        tl->runner_free(runner);
    }
    cfg.kv_n_blocks = 0; /* refused */
    runner = NULL;
    try(tl->runner_new(&runner, model, &cfg, NULL));
    tl->runner_free(runner);
    tl->model_free(model);
}

static const struct {
    const char *name;
    void (*once)(const round_of *r);
} rounds[] = {{"a pool", round_pool},
              {"a sampler", round_sampler},
              {"int4 layers", round_quant},
              {"files", round_files},
              {"shards", round_shards},
              {"a model", round_model},
              {"a mapped model of a directory", round_mapped},
              {"a copied model of a directory", round_copied},
              {"files of a directory", round_opened},
              {"a runner of a directory", round_loaded},
              {"a runner", round_runner}};

/* ------------------------------------------------------------------ it comes back */

/* No more may be held than there was. */
static void check_held(const round_of *r, size_t round, host_holdings before, const char *when) {
    const host_holdings now = host_held();
    host_expect(r->h, now.n_blocks <= before.n_blocks, TL_OK,
                "making, refusing and freeing %s%s leaves %lld blocks of memory in use",
                rounds[round].name, when, (long long)(now.n_blocks - before.n_blocks));
    host_expect(r->h, now.n_maps <= before.n_maps, TL_OK,
                "making, refusing and freeing %s%s leaves %lld maps", rounds[round].name, when,
                (long long)(now.n_maps - before.n_maps));
}

static void look_for_leaks(const round_of *r, size_t round) {
    for (size_t n = 0; n < WARM_UP; n++) {
        rounds[round].once(r);
    }
    const host_holdings before = host_held();
    for (size_t n = 0; n < ROUNDS; n++) {
        rounds[round].once(r);
    }
    check_held(r, round, before, "");
}

/* ------------------------------------------------------------------ it runs out */

static void run_out(round_of *r, size_t round, bool is_lasting) {
    bool was_met = true;
    r->is_hungry = true;
    for (unsigned n = 0; was_met && n < CALLS_MAX; n++) {
        const host_holdings before = host_held();
        host_refuse_memory(n, is_lasting);
        rounds[round].once(r);
        was_met = host_grant_memory();
        check_held(r, round, before,
                   is_lasting ? " without memory" : " when one call for it fails");
    }
    r->is_hungry = false;
}

static bool op_memory(host *h, const json_t *in, json_t *out) {
    static small_model llama;
    static two_shards shards;
    round_of r = {.h = h,
                  .tl = &h->tl,
                  .llama = &llama,
                  .shards = &shards,
                  .dir = host_arg_text(h, in, "dir")};
    if (!host_ready(h)) {
        return false;
    }
    make_llama(&llama);
    make_shards(&shards);
    tl_error err = host_error();
    tl_model *model = NULL;
    if (!host_answer(out, h->tl.model_view(&model, llama.files, 2, NULL, &err), &err)) {
        return false;
    }
    h->tl.model_free(model);
    for (size_t i = 0; i < COUNT(rounds); i++) {
        look_for_leaks(&r, i);
        run_out(&r, i, false);
        run_out(&r, i, true);
    }
    return true;
}

const host_op host_memory_ops[] = {{"memory", op_memory}, {NULL, NULL}};
