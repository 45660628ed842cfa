/* test_null.c: NULL for each pointer argument of each public function, one at a time: refused as
 * INVALID with a sentence, or answered as the header says, and nothing has changed afterwards.
 *
 * engine/tools/tidy.py looks that every function of include/tl that takes a pointer stands here.
 * The kernels of ops.h (tl_ops_...) are the exception: they check nothing, and say so.
 *
 * Source: engine/include/tl/base.h, the rules on failure and lengths. */
#include "forward_fixture.h"
#include "model_fixture.h"

#define V 37u
#define D 24u
#define GROUP 4u

static const fx_shape shape = {D, 40, 2, 6, 2, 10, V, TL_MATRIX_F32, 0, false};

/* One good object of every kind; a call below is good but for its NULL. */
static struct {
    fixture *fx;
    tl_limits limits;
    tl_scratch *scratch;
    tl_kv_cfg kv;
    tl_kv_pool *pool;
    uint32_t ids[4];
    tl_prefix_key key;
    uint8_t envelope[8192];
    size_t envelope_len;
    tl_sampler *sampler;
    tl_sampling_params params;
    tl_pcg32 rng;
    tl_work *work;
    tl_linear linear;
    tl_qlinear q4;
    blob file;
    tl_layout *layout;
    tl_safetensors *st;
    tl_checkpoint *ckpt;
    tl_model *model;
    tl_runner *runner;
    tl_engine_cfg engine;
    tl_logits logits;
    uint32_t tokens[4];
    tl_forward_seq seq;
    tl_forward_batch batch;
} g;

static const char bigram_config[] =
    "{\"tl_arch\":\"bigram\",\"tl_tokenizer\":\"bpe\",\"vocab_size\":2}";
static const char bigram_header[] =
    "{\"__metadata__\":{\"k\":\"v\"},"
    "\"bigram.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}";
static tl_file_view files[2];

static void make_kv(void) {
    g.kv = (tl_kv_cfg){.n_blocks = 8,
                       .block_tokens = 4,
                       .n_layers = 2,
                       .n_kv_heads = 2,
                       .head_dim = 10,
                       .dtype = TL_KV_DTYPE_F16,
                       .format = TL_KV_FORMAT_V1,
                       .prefix_cache = TL_PREFIX_CACHE_ON};
    assert_int_equal(tl_kv_pool_new(&g.pool, &g.kv, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_alloc(g.pool, g.ids, 4, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_set_fill(g.pool, g.ids[3], 4, NULL), TL_OK);
    g.key.bytes[0] = 1;
    assert_int_equal(
        tl_kv_pool_export(g.pool, g.ids, 1, g.envelope, sizeof g.envelope, &g.envelope_len, NULL),
        TL_OK);
}

static void make_model(void) {
    g.file = make_text_file(bigram_header, 16);
    files[0] =
        (tl_file_view){"config.json", (const uint8_t *)bigram_config, sizeof bigram_config - 1};
    files[1] = (tl_file_view){"model.safetensors", g.file.data, g.file.n};
    assert_int_equal(tl_layout_parse(&g.layout, g.file.data, g.file.n, NULL), TL_OK);
    assert_int_equal(tl_safetensors_view(&g.st, g.file.data, g.file.n, NULL), TL_OK);
    assert_int_equal(tl_checkpoint_view(&g.ckpt, files, 2, NULL), TL_OK);
    assert_int_equal(tl_model_view(&g.model, files, 2, NULL, NULL), TL_OK);
    g.engine = tl_engine_cfg_default();
    assert_int_equal(tl_runner_new(&g.runner, g.model, &g.engine, NULL), TL_OK);
}

static int set_up(void **state) {
    (void)state;
    g.fx = fx_llama(&shape);
    g.limits = (tl_limits){.max_batch_tokens = 8, .max_seqs = 2, .n_threads = 1, .max_blocks = 8};
    assert_int_equal(tl_scratch_new(&g.scratch, &g.fx->cfg, &g.limits, NULL), TL_OK);
    assert_int_equal(tl_logits_init(&g.logits, 2, V, NULL), TL_OK);
    assert_int_equal(tl_sampler_new(&g.sampler, V, NULL), TL_OK);
    assert_int_equal(tl_work_new(&g.work, TL_ISA_AUTO, D, NULL), TL_OK);
    g.params = tl_sampling_params_default();
    g.rng = tl_stream(1, TL_PURPOSE_SAMPLE);
    g.linear = g.fx->weights.as.llama.lm_head;
    g.q4 = fx_int4(g.fx, V, D, GROUP).as.q4;
    make_kv();
    make_model();
    g.seq = (tl_forward_seq){g.tokens, 4, 0, g.ids, 1};
    g.batch = (tl_forward_batch){&g.seq, 1};
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    tl_runner_free(g.runner);
    tl_model_free(g.model);
    tl_checkpoint_free(g.ckpt);
    tl_safetensors_free(g.st);
    tl_layout_free(g.layout);
    blob_clear(&g.file);
    tl_kv_pool_free(g.pool);
    tl_work_free(g.work);
    tl_sampler_free(g.sampler);
    tl_logits_clear(&g.logits);
    tl_scratch_free(g.scratch);
    fx_free(g.fx);
    return 0;
}

static void check(tl_status status, const tl_error *err, const char *call) {
    if (status != TL_ERR_INVALID) {
        fail_msg("%s: %s, due is INVALID", call, tl_status_name(status));
    }
    if (err != NULL &&
        (err->status != TL_ERR_INVALID || err->text[0] == '\0' || err->offset != TL_NO_OFFSET)) {
        fail_msg("%s: %s at %llu, '%s'", call, tl_status_name(err->status),
                 (unsigned long long)err->offset, err->text);
    }
}

/* The call, which names `err`, once with an error to fill and once without. */
#define INVALID(call)                                                                              \
    do {                                                                                           \
        tl_error filled = {0};                                                                     \
        tl_error *err = &filled;                                                                   \
        check(call, err, #call);                                                                   \
        err = NULL;                                                                                \
        check(call, err, #call);                                                                   \
    } while (0)

/* ------------------------------------------------------------------ kv.h */

static void test_kv(void **state) {
    (void)state;
    tl_kv_pool *pool = g.pool;
    uint32_t id = 77;
    const uint16_t *slab = NULL;
    uint16_t *slab_mut = NULL;
    size_t n = 77;
    tl_kv_block_info info = {.n_refs = 77};
    const tl_kv_stats before = tl_kv_pool_stats(pool);
    INVALID(tl_kv_pool_new(NULL, &g.kv, err));
    INVALID(tl_kv_pool_new(&pool, NULL, err));
    assert_null(pool); /* a constructor says so in *out */
    pool = g.pool;
    INVALID(tl_kv_pool_alloc(NULL, &id, 1, err));
    INVALID(tl_kv_pool_alloc(pool, NULL, 1, err));
    INVALID(tl_kv_pool_retain(NULL, g.ids[0], err));
    INVALID(tl_kv_pool_release(NULL, g.ids[0], err));
    INVALID(tl_kv_pool_set_fill(NULL, g.ids[0], 1, err));
    INVALID(tl_kv_pool_register(NULL, g.ids[3], &g.key, err));
    INVALID(tl_kv_pool_register(pool, g.ids[3], NULL, err));
    INVALID(tl_kv_pool_lookup(NULL, &g.key, &id, err));
    INVALID(tl_kv_pool_lookup(pool, NULL, &id, err));
    INVALID(tl_kv_pool_lookup(pool, &g.key, NULL, err));
    INVALID(tl_kv_pool_slab(NULL, g.ids[0], 0, TL_KV_K, &slab, &n, err));
    INVALID(tl_kv_pool_slab(pool, g.ids[0], 0, TL_KV_K, NULL, &n, err));
    INVALID(tl_kv_pool_slab(pool, g.ids[0], 0, TL_KV_K, &slab, NULL, err));
    INVALID(tl_kv_pool_slab_mut(NULL, g.ids[0], 0, TL_KV_K, &slab_mut, &n, err));
    INVALID(tl_kv_pool_slab_mut(pool, g.ids[0], 0, TL_KV_K, NULL, &n, err));
    INVALID(tl_kv_pool_slab_mut(pool, g.ids[0], 0, TL_KV_K, &slab_mut, NULL, err));
    INVALID(tl_kv_pool_block_info(NULL, g.ids[0], &info, err));
    INVALID(tl_kv_pool_block_info(pool, g.ids[0], NULL, err));
    assert_int_equal(tl_kv_pool_alloc(pool, NULL, 0, NULL), TL_OK);
    assert_null(tl_kv_pool_cfg(NULL));
    assert_int_equal(tl_kv_pool_stats(NULL).n_free, 0);
    tl_kv_pool_free(NULL);
    const tl_kv_stats after = tl_kv_pool_stats(pool);
    assert_memory_equal(&before, &after, sizeof before);
    assert_true(id == 77 && n == 77 && slab == NULL && slab_mut == NULL && info.n_refs == 77);
}

static void test_envelope(void **state) {
    (void)state;
    uint8_t buf[8192];
    uint32_t ids[2] = {77, 77};
    size_t n = 77;
    const tl_kv_stats before = tl_kv_pool_stats(g.pool);
    INVALID(tl_kv_pool_export_size(NULL, 1, &n, err));
    INVALID(tl_kv_pool_export_size(g.pool, 1, NULL, err));
    INVALID(tl_kv_pool_export(NULL, g.ids, 1, buf, sizeof buf, &n, err));
    INVALID(tl_kv_pool_export(g.pool, NULL, 1, buf, sizeof buf, &n, err));
    INVALID(tl_kv_pool_export(g.pool, g.ids, 1, NULL, sizeof buf, &n, err));
    INVALID(tl_kv_pool_export(g.pool, g.ids, 1, buf, sizeof buf, NULL, err));
    INVALID(tl_kv_pool_import(NULL, g.envelope, g.envelope_len, ids, 2, &n, err));
    INVALID(tl_kv_pool_import(g.pool, NULL, g.envelope_len, ids, 2, &n, err));
    INVALID(tl_kv_pool_import(g.pool, g.envelope, g.envelope_len, NULL, 2, &n, err));
    INVALID(tl_kv_pool_import(g.pool, g.envelope, g.envelope_len, ids, 2, NULL, err));
    assert_true(n == 77 && ids[0] == 77);
    /* NULL goes with a length of 0. */
    assert_int_equal(tl_kv_pool_export(g.pool, NULL, 0, buf, sizeof buf, &n, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_export(g.pool, g.ids, 1, NULL, 0, &n, NULL), TL_ERR_CAPACITY);
    assert_int_equal(n, g.envelope_len);
    assert_int_equal(tl_kv_pool_import(g.pool, NULL, 0, ids, 2, &n, NULL), TL_ERR_FORMAT);
    assert_int_equal(tl_kv_pool_import(g.pool, g.envelope, g.envelope_len, NULL, 0, &n, NULL),
                     TL_ERR_CAPACITY);
    assert_int_equal(n, 1);
    const tl_kv_stats after = tl_kv_pool_stats(g.pool);
    assert_memory_equal(&before, &after, sizeof before);
}

/* ------------------------------------------------------------------ sample.h */

static void test_sampling(void **state) {
    (void)state;
    const float x[V] = {0};
    const tl_pcg32 before = g.rng;
    tl_pcg32 *r = &g.rng;
    uint32_t t = 77;
    double p = 77;
    tl_sampler *s = g.sampler;
    const tl_sampling_params *how = &g.params;
    INVALID(tl_sampler_new(NULL, V, err));
    tl_sampler_free(NULL);
    INVALID(tl_sample(NULL, x, V, how, g.tokens, 4, g.tokens, 4, r, &t, &p, err));
    INVALID(tl_sample(s, NULL, V, how, g.tokens, 4, g.tokens, 4, r, &t, &p, err));
    INVALID(tl_sample(s, x, V, NULL, g.tokens, 4, g.tokens, 4, r, &t, &p, err));
    INVALID(tl_sample(s, x, V, how, NULL, 4, g.tokens, 4, r, &t, &p, err));
    INVALID(tl_sample(s, x, V, how, g.tokens, 4, NULL, 4, r, &t, &p, err));
    INVALID(tl_sample(s, x, V, how, g.tokens, 4, g.tokens, 4, NULL, &t, &p, err));
    INVALID(tl_sample(s, x, V, how, g.tokens, 4, g.tokens, 4, r, NULL, &p, err));
    INVALID(tl_sample(s, x, V, how, g.tokens, 4, g.tokens, 4, r, &t, NULL, err));
    assert_true(t == 77 && p > 76.0);
    assert_memory_equal(&before, r, sizeof before);
    assert_int_equal(tl_sample(s, x, V, how, NULL, 0, NULL, 0, r, &t, &p, NULL), TL_OK);
    assert_int_equal(tl_pcg32_next_u32(NULL), 0);
    assert_true(tl_pcg32_uniform_f64(NULL) <= 0.0);
}

/* ------------------------------------------------------------------ quant.h and ops.h */

static void test_packing(void **state) {
    (void)state;
    const int8_t q[4] = {0};
    int8_t q_out[4] = {77};
    const uint8_t packed[2] = {0};
    uint8_t packed_out[2] = {77};
    const float w[V * D] = {0};
    float w_out[V * D] = {77};
    tl_qlinear made = g.q4;
    INVALID(tl_int4_packed_size(2, 2, NULL, err));
    INVALID(tl_int4_pack(NULL, 4, 2, 2, packed_out, 2, err));
    INVALID(tl_int4_pack(q, 4, 2, 2, NULL, 2, err));
    INVALID(tl_int4_unpack(NULL, 2, q_out, 4, err));
    INVALID(tl_int4_unpack(packed, 2, NULL, 4, err));
    INVALID(tl_qlinear_quantize(NULL, w, sizeof w / sizeof *w, V, D, GROUP, err));
    INVALID(tl_qlinear_quantize(&made, NULL, sizeof w / sizeof *w, V, D, GROUP, err));
    assert_null(made.qweight); /* a constructor leaves {0} */
    INVALID(tl_qlinear_dequantize(NULL, w_out, sizeof w / sizeof *w, err));
    INVALID(tl_qlinear_dequantize(&g.q4, NULL, sizeof w / sizeof *w, err));
    assert_true(packed_out[0] == 77 && q_out[0] == 77 && w_out[0] > 76.0f);
    tl_qlinear_clear(NULL);
}

static void test_products(void **state) {
    (void)state;
    const float x[D] = {0};
    float y[V] = {77};
    tl_linear bare = g.linear;
    tl_qlinear q4 = g.q4;
    bare.as.dense.data = NULL;
    INVALID(tl_linear_forward(NULL, 0, V, x, D, 1, y, V, g.work, err));
    INVALID(tl_linear_forward(&bare, 0, V, x, D, 1, y, V, g.work, err));
    INVALID(tl_linear_forward(&g.linear, 0, V, NULL, D, 1, y, V, g.work, err));
    INVALID(tl_linear_forward(&g.linear, 0, V, x, D, 1, NULL, V, g.work, err));
    INVALID(tl_linear_forward(&g.linear, 0, V, x, D, 1, y, V, NULL, err));
    INVALID(tl_qlinear_forward(NULL, 0, V, x, D, 1, y, V, g.work, err));
    INVALID(tl_qlinear_forward(&g.q4, 0, V, NULL, D, 1, y, V, g.work, err));
    INVALID(tl_qlinear_forward(&g.q4, 0, V, x, D, 1, NULL, V, g.work, err));
    INVALID(tl_qlinear_forward(&g.q4, 0, V, x, D, 1, y, V, NULL, err));
    q4.qweight = NULL;
    INVALID(tl_qlinear_forward(&q4, 0, V, x, D, 1, y, V, g.work, err));
    q4 = g.q4;
    q4.scales = NULL;
    INVALID(tl_qlinear_forward(&q4, 0, V, x, D, 1, y, V, g.work, err));
    assert_int_equal(tl_linear_forward(&g.linear, 0, V, NULL, 0, 0, NULL, 0, g.work, NULL), TL_OK);
    assert_int_equal(tl_qlinear_forward(&g.q4, 0, V, NULL, 0, 0, NULL, 0, g.work, NULL), TL_OK);
    assert_true(y[0] > 76.0f);
    INVALID(tl_isa_resolve(TL_ISA_AUTO, NULL, err));
    INVALID(tl_work_new(NULL, TL_ISA_AUTO, D, err));
    assert_int_equal(tl_work_isa(NULL), TL_ISA_AUTO);
    assert_int_equal(tl_work_max_n_in(NULL), 0);
    assert_int_equal(tl_linear_n_out(NULL), 0);
    assert_int_equal(tl_linear_n_in(NULL), 0);
    tl_work_free(NULL);
    tl_linear_clear(NULL);
}

/* ------------------------------------------------------------------ model.h */

static void test_config_and_layout(void **state) {
    (void)state;
    tl_model_config cfg = {.vocab_size = 77};
    tl_layout *layout = NULL;
    INVALID(tl_model_config_parse(NULL, bigram_config, sizeof bigram_config - 1, err));
    INVALID(tl_model_config_parse(&cfg, NULL, sizeof bigram_config - 1, err));
    INVALID(tl_model_config_load(NULL, "nowhere", err));
    INVALID(tl_model_config_load(&cfg, NULL, err));
    assert_int_equal(cfg.vocab_size, 77);
    INVALID(tl_layout_parse(NULL, g.file.data, g.file.n, err));
    INVALID(tl_layout_parse(&layout, NULL, g.file.n, err));
    assert_int_equal(tl_layout_parse(&layout, NULL, 0, NULL), TL_ERR_FORMAT);
    assert_null(layout);
    assert_int_equal(tl_layout_count(NULL), 0);
    assert_null(tl_layout_at(NULL, 0));
    assert_null(tl_layout_find(NULL, "bigram.weight"));
    assert_null(tl_layout_find(g.layout, NULL));
    assert_null(tl_layout_metadata(NULL, "k"));
    assert_null(tl_layout_metadata(g.layout, NULL));
    assert_int_equal(tl_layout_data_start(NULL), 0);
    tl_layout_free(NULL);
}

static void test_safetensors(void **state) {
    (void)state;
    const size_t dims[2] = {2, 2};
    float dst[4] = {77};
    tl_safetensors *st = NULL;
    tl_qlinear q4 = {.n_out = 77};
    INVALID(tl_safetensors_open(NULL, "nowhere", TL_WEIGHTS_MAP, err));
    INVALID(tl_safetensors_open(&st, NULL, TL_WEIGHTS_MAP, err));
    INVALID(tl_safetensors_view(NULL, g.file.data, g.file.n, err));
    INVALID(tl_safetensors_view(&st, NULL, g.file.n, err));
    INVALID(tl_safetensors_f32(NULL, "bigram.weight", dims, 2, dst, 4, err));
    INVALID(tl_safetensors_f32(g.st, NULL, dims, 2, dst, 4, err));
    INVALID(tl_safetensors_f32(g.st, "bigram.weight", NULL, 2, dst, 4, err));
    INVALID(tl_safetensors_f32(g.st, "bigram.weight", dims, 2, NULL, 4, err));
    INVALID(tl_safetensors_q4(NULL, "bigram", 2, 2, 2, &q4, err));
    INVALID(tl_safetensors_q4(g.st, NULL, 2, 2, 2, &q4, err));
    INVALID(tl_safetensors_q4(g.st, "bigram", 2, 2, 2, NULL, err));
    assert_true(dst[0] > 76.0f && q4.n_out == 77 && st == NULL);
    assert_null(tl_safetensors_layout(NULL));
    tl_safetensors_free(NULL);
}

static void test_checkpoint(void **state) {
    (void)state;
    const size_t dims[2] = {2, 2};
    float dst[4] = {77};
    tl_checkpoint *ckpt = NULL;
    tl_qlinear q4 = {.n_out = 77};
    tl_file_view bad[2] = {files[0], files[1]};
    INVALID(tl_checkpoint_open(NULL, "nowhere", TL_WEIGHTS_MAP, err));
    INVALID(tl_checkpoint_open(&ckpt, NULL, TL_WEIGHTS_MAP, err));
    INVALID(tl_checkpoint_view(NULL, files, 2, err));
    INVALID(tl_checkpoint_view(&ckpt, NULL, 2, err));
    bad[1].name = NULL;
    INVALID(tl_checkpoint_view(&ckpt, bad, 2, err));
    bad[1] = files[1];
    bad[1].bytes = NULL;
    INVALID(tl_checkpoint_view(&ckpt, bad, 2, err));
    assert_int_equal(tl_checkpoint_view(&ckpt, NULL, 0, NULL), TL_ERR_IO);
    INVALID(tl_checkpoint_f32(NULL, "bigram.weight", dims, 2, dst, 4, err));
    INVALID(tl_checkpoint_f32(g.ckpt, NULL, dims, 2, dst, 4, err));
    INVALID(tl_checkpoint_f32(g.ckpt, "bigram.weight", NULL, 2, dst, 4, err));
    INVALID(tl_checkpoint_f32(g.ckpt, "bigram.weight", dims, 2, NULL, 4, err));
    INVALID(tl_checkpoint_q4(NULL, "bigram", 2, 2, 2, &q4, err));
    INVALID(tl_checkpoint_q4(g.ckpt, NULL, 2, 2, 2, &q4, err));
    INVALID(tl_checkpoint_q4(g.ckpt, "bigram", 2, 2, 2, NULL, err));
    assert_true(dst[0] > 76.0f && q4.n_out == 77 && ckpt == NULL);
    assert_int_equal(tl_checkpoint_count(NULL), 0);
    assert_null(tl_checkpoint_at(NULL, 0));
    assert_null(tl_checkpoint_find(NULL, "bigram.weight"));
    assert_null(tl_checkpoint_find(g.ckpt, NULL));
    assert_null(tl_checkpoint_metadata(NULL, "k"));
    assert_null(tl_checkpoint_metadata(g.ckpt, NULL));
    tl_checkpoint_free(NULL);
}

static void test_model(void **state) {
    (void)state;
    tl_checkpoint *none = NULL;
    tl_checkpoint *ckpt = g.ckpt;
    tl_weights weights = {.arch = TL_ARCH_LLAMA};
    const tl_model_config *cfg = tl_model_config_of(g.model);
    tl_model *model = NULL;
    INVALID(tl_weights_load(NULL, &ckpt, cfg, NULL, err));
    INVALID(tl_weights_load(&weights, NULL, cfg, NULL, err));
    INVALID(tl_weights_load(&weights, &none, cfg, NULL, err));
    INVALID(tl_weights_load(&weights, &ckpt, NULL, NULL, err));
    assert_true(ckpt == g.ckpt && weights.arch == TL_ARCH_LLAMA);
    INVALID(tl_model_load(NULL, "nowhere", NULL, err));
    INVALID(tl_model_load(&model, NULL, NULL, err));
    INVALID(tl_model_view(NULL, files, 2, NULL, err));
    INVALID(tl_model_view(&model, NULL, 2, NULL, err));
    assert_null(model);
    assert_null(tl_model_config_of(NULL));
    assert_null(tl_model_weights(NULL));
    tl_weights_clear(NULL);
    tl_model_free(NULL);
}

/* ------------------------------------------------------------------ forward.h and runner.h */

static void test_scratch_and_logits(void **state) {
    (void)state;
    tl_scratch *scratch = NULL;
    size_t n = 77;
    INVALID(tl_logits_init(NULL, 1, V, err));
    assert_null(tl_logits_row(NULL, 0));
    tl_logits_clear(NULL);
    INVALID(tl_scratch_new(NULL, &g.fx->cfg, &g.limits, err));
    INVALID(tl_scratch_new(&scratch, NULL, &g.limits, err));
    INVALID(tl_scratch_new(&scratch, &g.fx->cfg, NULL, err));
    INVALID(tl_scratch_size(NULL, &g.limits, &n, err));
    INVALID(tl_scratch_size(&g.fx->cfg, NULL, &n, err));
    INVALID(tl_scratch_size(&g.fx->cfg, &g.limits, NULL, err));
    assert_true(scratch == NULL && n == 77);
    assert_null(tl_scratch_limits(NULL));
    tl_scratch_free(NULL);
}

static void test_forward(void **state) {
    (void)state;
    const tl_model_config *cfg = &g.fx->cfg;
    const tl_weights *w = &g.fx->weights;
    tl_forward_seq seq = g.seq;
    const tl_forward_batch batch = {&seq, 1};
    const tl_forward_batch no_seqs = {NULL, 1};
    tl_kv_block_info info;
    INVALID(tl_forward_check(NULL, g.pool, g.scratch, &batch, err));
    INVALID(tl_forward_check(cfg, NULL, g.scratch, &batch, err));
    INVALID(tl_forward_check(cfg, g.pool, NULL, &batch, err));
    INVALID(tl_forward_check(cfg, g.pool, g.scratch, NULL, err));
    INVALID(tl_forward_check(cfg, g.pool, g.scratch, &no_seqs, err));
    seq.tokens = NULL;
    INVALID(tl_forward_check(cfg, g.pool, g.scratch, &batch, err));
    seq = g.seq;
    seq.blocks = NULL;
    INVALID(tl_forward_check(cfg, g.pool, g.scratch, &batch, err));
    seq = g.seq;
    INVALID(tl_forward(NULL, w, g.pool, g.scratch, &batch, NULL, 0, &g.logits, err));
    INVALID(tl_forward(cfg, NULL, g.pool, g.scratch, &batch, NULL, 0, &g.logits, err));
    INVALID(tl_forward(cfg, w, NULL, g.scratch, &batch, NULL, 0, &g.logits, err));
    INVALID(tl_forward(cfg, w, g.pool, NULL, &batch, NULL, 0, &g.logits, err));
    INVALID(tl_forward(cfg, w, g.pool, g.scratch, NULL, NULL, 0, &g.logits, err));
    INVALID(tl_forward(cfg, w, g.pool, g.scratch, &batch, NULL, 4 * D, &g.logits, err));
    INVALID(tl_forward(cfg, w, g.pool, g.scratch, &batch, NULL, 0, NULL, err));
    assert_int_equal(tl_kv_pool_block_info(g.pool, g.ids[0], &info, NULL), TL_OK);
    assert_int_equal(info.n_filled, 0);
    assert_int_equal(g.logits.n_rows, 0);
}

/* Weights that a caller put together with a NULL in them are refused before the step begins. */
static void test_forward_with_incomplete_weights(void **state) {
    (void)state;
    tl_llama_layer *layer = &g.fx->weights.as.llama.layers[1];
    tl_llama_weights *llama = &g.fx->weights.as.llama;
    const void **const data[] = {
        (const void **)&layer->attn_norm,           (const void **)&layer->mlp_norm,
        (const void **)&llama->final_norm,          (const void **)&layer->wq.as.dense.data,
        (const void **)&layer->wk.as.dense.data,    (const void **)&layer->wv.as.dense.data,
        (const void **)&layer->wo.as.dense.data,    (const void **)&layer->w_gate.as.dense.data,
        (const void **)&layer->w_up.as.dense.data,  (const void **)&layer->w_down.as.dense.data,
        (const void **)&llama->embed.as.dense.data, (const void **)&llama->lm_head.as.dense.data};
    tl_kv_block_info info;
    for (size_t i = 0; i < COUNT_OF(data); i++) {
        const void *good = *data[i];
        *data[i] = NULL;
        INVALID(tl_forward(&g.fx->cfg, &g.fx->weights, g.pool, g.scratch, &g.batch, NULL, 0,
                           &g.logits, err));
        *data[i] = good;
    }
    tl_llama_layer *layers = llama->layers;
    llama->layers = NULL;
    INVALID(tl_forward(&g.fx->cfg, &g.fx->weights, g.pool, g.scratch, &g.batch, NULL, 0, &g.logits,
                       err));
    llama->layers = layers;
    const tl_linear dense = layer->wv;
    const tl_qlinear sound = fx_int4(g.fx, dense.as.dense.n_out, dense.as.dense.n_in, GROUP).as.q4;
    tl_qlinear bad[5] = {sound, sound, sound, sound, sound};
    bad[0].qweight = NULL;
    bad[1].scales = NULL;
    bad[2].group = 0;
    bad[3].qweight_len--;
    bad[4].scales_len--;
    layer->wv.kind = TL_LINEAR_Q4;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        layer->wv.as.q4 = bad[i];
        INVALID(tl_forward(&g.fx->cfg, &g.fx->weights, g.pool, g.scratch, &g.batch, NULL, 0,
                           &g.logits, err));
    }
    layer->wv = dense;
    assert_int_equal(tl_kv_pool_block_info(g.pool, g.ids[0], &info, NULL), TL_OK);
    assert_int_equal(info.n_filled, 0);
}

static void test_runner(void **state) {
    (void)state;
    tl_runner *runner = NULL;
    float logits[2] = {77};
    const uint32_t token = 1;
    INVALID(tl_runner_new(NULL, g.model, &g.engine, err));
    INVALID(tl_runner_new(&runner, NULL, &g.engine, err));
    INVALID(tl_runner_new(&runner, g.model, NULL, err));
    INVALID(tl_runner_load(NULL, "nowhere", &g.engine, err));
    INVALID(tl_runner_load(&runner, NULL, &g.engine, err));
    INVALID(tl_runner_load(&runner, "nowhere", NULL, err));
    assert_null(runner);
    INVALID(tl_runner_forward(NULL, &g.batch, &g.logits, err));
    INVALID(tl_runner_forward(g.runner, NULL, &g.logits, err));
    INVALID(tl_runner_forward(g.runner, &g.batch, NULL, err));
    INVALID(tl_runner_run_once(NULL, &token, 1, NULL, 0, logits, 2, err));
    INVALID(tl_runner_run_once(g.runner, NULL, 1, NULL, 0, logits, 2, err));
    INVALID(tl_runner_run_once(g.runner, &token, 1, NULL, 1, logits, 2, err));
    INVALID(tl_runner_run_once(g.runner, &token, 1, NULL, 0, NULL, 2, err));
    assert_true(logits[0] > 76.0f);
    assert_null(tl_runner_pool(NULL));
    assert_null(tl_runner_config(NULL));
    assert_null(tl_runner_limits(NULL));
    assert_int_equal(tl_runner_block_tokens(NULL), 0);
    tl_runner_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kv),          cmocka_unit_test(test_envelope),
        cmocka_unit_test(test_sampling),    cmocka_unit_test(test_packing),
        cmocka_unit_test(test_products),    cmocka_unit_test(test_config_and_layout),
        cmocka_unit_test(test_safetensors), cmocka_unit_test(test_checkpoint),
        cmocka_unit_test(test_model),       cmocka_unit_test(test_scratch_and_logits),
        cmocka_unit_test(test_forward),     cmocka_unit_test(test_forward_with_incomplete_weights),
        cmocka_unit_test(test_runner),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
