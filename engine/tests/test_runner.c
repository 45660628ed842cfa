/* test_runner.c: a runner from memory and from a directory; run_once: its results, its chunks, and
 * that its blocks come back whatever happens, without touching the prefix index.
 *
 * Source: conformance/spec/forward.md, run_once. */
#include "forward_fixture.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ a checkpoint in memory */

#define V 29u
#define D 12u

typedef struct file {
    char header[8192];
    size_t header_len;
    uint8_t *bytes;
    size_t n_bytes; /* of the data so far, then of the whole file */
    fixture *fx;
} file;

static void add_tensor(file *f, const char *name, size_t rows, size_t cols, float center) {
    const size_t n = rows * (cols == 0 ? 1 : cols);
    char shape[64];
    (void)snprintf(shape, sizeof shape, cols == 0 ? "%zu" : "%zu,%zu", rows, cols);
    f->header_len += (size_t)snprintf(
        f->header + f->header_len, sizeof f->header - f->header_len,
        "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
        f->header_len == 1 ? "" : ",", name, shape, f->n_bytes, f->n_bytes + 4 * n);
    assert_true(f->header_len + 2 < sizeof f->header);
    f->bytes = (uint8_t *)realloc(f->bytes, f->n_bytes + 4 * n);
    assert_non_null(f->bytes);
    for (size_t i = 0; i < n; i++) {
        const float w = center + fx_float(f->fx, 0.5f);
        tli_store_u32(f->bytes + f->n_bytes + 4 * i, tli_f32_bits(w));
    }
    f->n_bytes += 4 * n;
}

/* Header length, header, data, in one buffer. */
static void close_file(file *f) {
    f->header[f->header_len++] = '}';
    uint8_t *whole = (uint8_t *)malloc(8 + f->header_len + f->n_bytes);
    assert_non_null(whole);
    tli_store_u64(whole, f->header_len);
    memcpy(whole + 8, f->header, f->header_len);
    memcpy(whole + 8 + f->header_len, f->bytes, f->n_bytes);
    free(f->bytes);
    f->bytes = whole;
    f->n_bytes += 8 + f->header_len;
}

static file *llama_file(void) {
    file *f = (file *)calloc(1, sizeof *f);
    assert_non_null(f);
    fixture *fx = fx_bigram(4); /* for its random numbers */
    f->fx = fx;
    f->header[0] = '{';
    f->header_len = 1;
    add_tensor(f, "model.embed_tokens.weight", V, D, 0);
    add_tensor(f, "model.norm.weight", D, 0, 1);
    add_tensor(f, "lm_head.weight", V, D, 0);
    for (size_t i = 0; i < 2; i++) {
        const struct {
            const char *name;
            size_t rows, cols;
        } parts[] = {{"self_attn.q_proj", 8, D},        {"self_attn.k_proj", 4, D},
                     {"self_attn.v_proj", 4, D},        {"self_attn.o_proj", D, 8},
                     {"mlp.gate_proj", 20, D},          {"mlp.up_proj", 20, D},
                     {"mlp.down_proj", D, 20},          {"input_layernorm", D, 0},
                     {"post_attention_layernorm", D, 0}};
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            char name[128];
            (void)snprintf(name, sizeof name, "model.layers.%zu.%s.weight", i, parts[p].name);
            add_tensor(f, name, parts[p].rows, parts[p].cols, parts[p].cols == 0 ? 1 : 0);
        }
    }
    close_file(f);
    return f;
}

static void file_free(file *f) {
    fx_free(f->fx);
    free(f->bytes);
    free(f);
}

static const char config[] =
    "{\"tl_arch\":\"llama\",\"tl_tokenizer\":\"bpe\",\"vocab_size\":29,\"hidden_size\":12,"
    "\"intermediate_size\":20,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"head_dim\":4,\"max_position_embeddings\":64,"
    "\"rms_norm_eps\":1e-5}";

static tl_model *model_new(const file *f) {
    const tl_file_view views[] = {{"config.json", (const uint8_t *)config, sizeof config - 1},
                                  {"model.safetensors", f->bytes, f->n_bytes}};
    tl_model *model = NULL;
    tl_error err = {0};
    if (tl_model_view(&model, views, 2, NULL, &err) != TL_OK) {
        fail_msg("%s: %s", tl_status_name(err.status), err.text);
    }
    return model;
}

/* ------------------------------------------------------------------ the scene */

typedef struct scene {
    file *f;
    tl_model *model;
    tl_runner *runner;
    fixture page; /* config and weights for page_forward */
    uint32_t tokens[64];
    float hidden[64 * D];
    float logits[V];
} scene;

static scene *scene_new(size_t max_batch_tokens, uint32_t n_blocks, uint32_t block_tokens) {
    scene *s = (scene *)calloc(1, sizeof *s);
    assert_non_null(s);
    s->f = llama_file();
    s->model = model_new(s->f);
    tl_engine_cfg cfg = tl_engine_cfg_default();
    cfg.max_batch_tokens = max_batch_tokens;
    cfg.kv_n_blocks = n_blocks;
    cfg.kv_block_tokens = block_tokens;
    assert_int_equal(tl_runner_new(&s->runner, s->model, &cfg, NULL), TL_OK);
    s->page.cfg = *tl_model_config_of(s->model);
    s->page.weights = *tl_model_weights(s->model);
    fx_tokens(&s->page, s->tokens, 64, 3);
    for (size_t i = 0; i < V; i++) {
        s->logits[i] = 5.0f;
    }
    return s;
}

static void scene_free(scene *s) {
    tl_runner_free(s->runner);
    tl_model_free(s->model);
    file_free(s->f);
    free(s);
}

static tl_status once(scene *s, size_t n, tl_error *err) {
    return tl_runner_run_once(s->runner, s->tokens, n, s->hidden, n * D, s->logits, V, err);
}

static tl_kv_stats stats(const scene *s) {
    return tl_kv_pool_stats(tl_runner_pool(s->runner));
}

static void assert_untouched(const scene *s) {
    for (size_t i = 0; i < V; i++) {
        assert_true(s->logits[i] == 5.0f);
    }
    for (size_t i = 0; i < 64 * D; i++) {
        assert_true(s->hidden[i] == 0.0f);
    }
}

/* ------------------------------------------------------------------ run_once */

static void check_once_at(size_t max_batch_tokens, uint32_t n_blocks, uint32_t block_tokens) {
    scene *s = scene_new(max_batch_tokens, n_blocks, block_tokens);
    const size_t n = 45;
    float *hidden = fx_floats(n * D);
    float *logits = fx_floats(n * V);
    page_forward(&s->page, s->tokens, n, hidden, logits);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(once(s, n, NULL), TL_OK);
        assert_same_floats(s->hidden, hidden, n * D, "hidden");
        assert_same_floats(s->logits, logits + (n - 1) * V, V, "logits");
        assert_int_equal(stats(s).n_free, n_blocks);
    }
    assert_int_equal(tl_runner_run_once(s->runner, s->tokens, 7, NULL, 0, s->logits, V, NULL),
                     TL_OK);
    assert_same_floats(s->logits, logits + 6 * V, V, "logits without hidden");
    free(hidden);
    free(logits);
    scene_free(s);
}

/* In one step, in chunks that do and do not fit the blocks, token by token. */
static void test_run_once_gives_the_bits_of_the_page(void **state) {
    (void)state;
    check_once_at(64, 16, 4);
    check_once_at(45, 3, 16);
    check_once_at(7, 12, 4);
    check_once_at(1, 45, 1);
    check_once_at(16, 1, 64);
}

static void test_run_once_refuses_and_gives_its_blocks_back(void **state) {
    (void)state;
    scene *s = scene_new(16, 8, 4); /* 32 positions */
    tl_error err = {0};
    const uint32_t good = s->tokens[20];
    s->tokens[20] = V; /* in the second chunk */
    assert_int_equal(once(s, 30, &err), TL_ERR_INVALID);
    assert_non_null(strstr(err.text, "token 20"));
    s->tokens[20] = good;
    assert_int_equal(once(s, 0, &err), TL_ERR_INVALID);
    assert_int_equal(once(s, 65, &err), TL_ERR_INVALID);
    assert_int_equal(once(s, 33, &err), TL_ERR_CAPACITY);
    assert_int_equal(tl_runner_run_once(s->runner, NULL, 3, NULL, 0, s->logits, V, NULL),
                     TL_ERR_INVALID);
    assert_int_equal(tl_runner_run_once(s->runner, s->tokens, 3, NULL, 0, NULL, V, NULL),
                     TL_ERR_INVALID);
    assert_int_equal(tl_runner_run_once(s->runner, s->tokens, 3, NULL, 0, s->logits, V + 1, NULL),
                     TL_ERR_INVALID);
    assert_int_equal(
        tl_runner_run_once(s->runner, s->tokens, 3, s->hidden, 3 * D + 1, s->logits, V, NULL),
        TL_ERR_INVALID);
    assert_int_equal(tl_runner_run_once(s->runner, s->tokens, 3, NULL, 3 * D, s->logits, V, NULL),
                     TL_ERR_INVALID);
    assert_int_equal(tl_runner_run_once(NULL, s->tokens, 3, NULL, 0, s->logits, V, NULL),
                     TL_ERR_INVALID);
    assert_untouched(s);
    assert_int_equal(stats(s).n_free, 8);
    assert_int_equal(once(s, 32, &err), TL_OK);
    assert_int_equal(stats(s).n_free, 8);
    scene_free(s);
}

/* Cached blocks would do, and are not taken: every key is still found afterwards. */
static void test_run_once_takes_free_blocks_only(void **state) {
    (void)state;
    scene *s = scene_new(16, 8, 4);
    tl_kv_pool *pool = tl_runner_pool(s->runner);
    uint32_t ids[6];
    assert_int_equal(tl_kv_pool_alloc(pool, ids, 6, NULL), TL_OK);
    for (uint8_t i = 0; i < 6; i++) {
        const tl_prefix_key key = {.bytes = {i, 1}};
        assert_int_equal(tl_kv_pool_set_fill(pool, ids[i], 4, NULL), TL_OK);
        assert_int_equal(tl_kv_pool_register(pool, ids[i], &key, NULL), TL_OK);
        assert_int_equal(tl_kv_pool_release(pool, ids[i], NULL), TL_OK);
    }
    assert_int_equal(stats(s).n_cached, 6);
    assert_int_equal(once(s, 9, NULL), TL_ERR_CAPACITY); /* 3 blocks, 2 are free */
    assert_untouched(s);
    assert_int_equal(once(s, 8, NULL), TL_OK);
    assert_int_equal(stats(s).n_cached, 6);
    assert_int_equal(stats(s).n_free, 2);
    for (uint8_t i = 0; i < 6; i++) {
        const tl_prefix_key key = {.bytes = {i, 1}};
        uint32_t id = UINT32_MAX;
        assert_int_equal(tl_kv_pool_lookup(pool, &key, &id, NULL), TL_OK);
        assert_int_equal(id, ids[i]);
    }
    scene_free(s);
}

/* A step beside run_once: blocks of a running sequence are not touched. */
static void test_run_once_beside_a_sequence(void **state) {
    (void)state;
    scene *s = scene_new(16, 8, 4);
    tl_kv_pool *pool = tl_runner_pool(s->runner);
    float *hidden = fx_floats(12 * D);
    float *logits = fx_floats(12 * V);
    uint32_t ids[3];
    tl_logits out;
    page_forward(&s->page, s->tokens, 12, hidden, logits);
    assert_int_equal(tl_logits_init(&out, 1, V, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_alloc(pool, ids, 3, NULL), TL_OK);
    tl_forward_seq seq = {s->tokens, 6, 0, ids, 3};
    const tl_forward_batch batch = {&seq, 1};
    assert_int_equal(tl_runner_forward(s->runner, &batch, &out, NULL), TL_OK);
    assert_int_equal(once(s, 20, NULL), TL_OK);
    seq = (tl_forward_seq){s->tokens + 6, 6, 6, ids, 3};
    assert_int_equal(tl_runner_forward(s->runner, &batch, &out, NULL), TL_OK);
    assert_same_floats(tl_logits_row(&out, 0), logits + 11 * V, V, "beside run_once");
    assert_int_equal(tl_runner_forward(NULL, &batch, &out, NULL), TL_ERR_INVALID);
    assert_int_equal(stats(s).n_free, 5);
    tl_logits_clear(&out);
    free(hidden);
    free(logits);
    scene_free(s);
}

/* ------------------------------------------------------------------ making one */

static void test_defaults(void **state) {
    (void)state;
    const tl_engine_cfg cfg = tl_engine_cfg_default();
    assert_int_equal(cfg.max_batch_tokens, 512);
    assert_int_equal(cfg.max_seqs, 16);
    assert_int_equal(cfg.prefill_chunk, 512);
    assert_int_equal(cfg.prefix_cache, TL_PREFIX_CACHE_ON);
    assert_int_equal(cfg.kv_n_blocks, 256);
    assert_int_equal(cfg.kv_block_tokens, 16);
    assert_int_equal(cfg.policy, TL_SCHED_FCFS);
    assert_int_equal(cfg.n_threads, 1);
    assert_int_equal(cfg.isa, TL_ISA_AUTO);
    assert_int_equal(cfg.weights, TL_WEIGHTS_MAP);
    assert_int_equal(cfg.quant.int4_group, 0);
}

static void test_runner_refuses(void **state) {
    (void)state;
    scene *s = scene_new(16, 8, 4);
    const tl_engine_cfg good = tl_engine_cfg_default();
    tl_engine_cfg bad[8];
    for (size_t i = 0; i < 8; i++) {
        bad[i] = good;
    }
    bad[0].max_batch_tokens = 0;
    bad[1].max_seqs = 0;
    bad[2].kv_n_blocks = 0;
    bad[3].kv_block_tokens = 0;
    bad[4].n_threads = 0;
    bad[5].n_threads = 65;
    bad[6].policy = (tl_sched_policy)2;
    bad[7].isa = TL_ISA_NEON;
    for (size_t i = 0; i < 8; i++) {
        tl_error err = {0};
        tl_runner *runner = s->runner;
        const tl_status due = i == 7 ? TL_ERR_UNSUPPORTED : TL_ERR_INVALID;
        assert_int_equal(tl_runner_new(&runner, s->model, &bad[i], &err), due);
        assert_null(runner);
        assert_int_equal(err.status, due);
    }
    tl_runner *runner = NULL;
    assert_int_equal(tl_runner_new(NULL, s->model, &good, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_runner_new(&runner, NULL, &good, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_runner_new(&runner, s->model, NULL, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_runner_load(&runner, NULL, &good, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_runner_load(&runner, "/", NULL, NULL), TL_ERR_INVALID);
    assert_int_equal(tl_runner_load(&runner, "/nowhere", &good, NULL), TL_ERR_IO);
    assert_null(runner);
    assert_null(tl_runner_pool(NULL));
    assert_null(tl_runner_config(NULL));
    assert_null(tl_runner_limits(NULL));
    assert_int_equal(tl_runner_block_tokens(NULL), 0);
    tl_runner_free(NULL);
    scene_free(s);
}

static void test_parts(void **state) {
    (void)state;
    scene *s = scene_new(16, 8, 4);
    const tl_kv_cfg *pool = tl_kv_pool_cfg(tl_runner_pool(s->runner));
    assert_int_equal(pool->n_layers, 2);
    assert_int_equal(pool->n_kv_heads, 1);
    assert_int_equal(pool->head_dim, 4);
    assert_int_equal(pool->model_tag, 0);
    assert_int_equal(pool->prefix_cache, TL_PREFIX_CACHE_ON);
    assert_int_equal(tl_runner_block_tokens(s->runner), 4);
    assert_ptr_equal(tl_runner_config(s->runner), tl_model_config_of(s->model));
    assert_int_equal(tl_runner_limits(s->runner)->max_context, 32);
    assert_int_equal(tl_runner_limits(s->runner)->max_blocks, 8);
    assert_int_not_equal(tl_runner_limits(s->runner)->isa, TL_ISA_AUTO);
    scene_free(s);
}

/* ------------------------------------------------------------------ from a directory */

static void write_file(const char *dir, const char *name, const void *bytes, size_t n) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

static void test_load_from_a_directory(void **state) {
    (void)state;
    scene *s = scene_new(64, 16, 4);
    char dir[] = "/tmp/tl-runner-XXXXXX";
    assert_non_null(mkdtemp(dir));
    write_file(dir, "config.json", config, sizeof config - 1);
    write_file(dir, "model.safetensors", s->f->bytes, s->f->n_bytes);
    assert_int_equal(once(s, 30, NULL), TL_OK);
    for (int mode = TL_WEIGHTS_MAP; mode <= TL_WEIGHTS_COPY; mode++) {
        tl_engine_cfg cfg = tl_engine_cfg_default();
        cfg.weights = (tl_weights_mode)mode;
        tl_runner *runner = NULL;
        float logits[V];
        assert_int_equal(tl_runner_load(&runner, dir, &cfg, NULL), TL_OK);
        assert_int_equal(tl_runner_run_once(runner, s->tokens, 30, NULL, 0, logits, V, NULL),
                         TL_OK);
        assert_same_floats(logits, s->logits, V, "loaded");
        tl_runner_free(runner);
    }
    tl_engine_cfg bad = tl_engine_cfg_default();
    tl_runner *runner = NULL;
    bad.max_seqs = 0; /* fails after the model is loaded */
    assert_int_equal(tl_runner_load(&runner, dir, &bad, NULL), TL_ERR_INVALID);
    assert_null(runner);
    char path[256];
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    rmdir(dir);
    scene_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_once_gives_the_bits_of_the_page),
        cmocka_unit_test(test_run_once_refuses_and_gives_its_blocks_back),
        cmocka_unit_test(test_run_once_takes_free_blocks_only),
        cmocka_unit_test(test_run_once_beside_a_sequence),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_runner_refuses),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_load_from_a_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
