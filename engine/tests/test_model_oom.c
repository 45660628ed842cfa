/* Every allocation of loading refused in turn: NOMEM, nothing leaked, nothing changed, and what
 * is loaded in spite of a refusal is right.
 *
 * The n-th call is refused, alone or with all that follow, of the library (linked with --wrap)
 * and of jansson (its own hooks). Leaks are the sanitizer's and Valgrind's to see.
 *
 * Source: engine/include/tl/base.h on failure; conformance/spec/README.md. */
#include <unistd.h>

#include <jansson.h>

#include "model_fixture.h"

/* ------------------------------------------------------------------ refusing */

static size_t n_until_refusal; /* 0: nothing is refused */
static bool is_for_good;
static size_t n_refused;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static bool is_refused(void) {
    if (n_until_refusal == 0 || n_until_refusal-- > 1) {
        return false;
    }
    n_until_refusal = is_for_good ? 1 : 0;
    n_refused++;
    return true;
}

void *__wrap_malloc(size_t n) {
    return is_refused() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size) {
    return is_refused() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n) {
    return is_refused() ? NULL : __real_realloc(p, n);
}

/* One call of the library; it checks and frees what it makes. */
typedef tl_status (*attempt)(const void *input, tl_error *err);

/* Refuse the 1st, 2nd, ... allocation until one attempt needs no more. */
static void refuse_in_turn(attempt run, const void *input) {
    json_set_alloc_funcs(__wrap_malloc, free);
    for (int for_good = 0; for_good < 2; for_good++) {
        size_t n_nomem = 0;
        bool is_done = false;
        is_for_good = for_good != 0;
        for (size_t nth = 1; !is_done; nth++) {
            tl_error err = fresh_error();
            n_refused = 0;
            n_until_refusal = nth;
            const tl_status status = run(input, &err);
            n_until_refusal = 0;
            is_done = n_refused == 0;
            if (status != TL_OK) {
                check_refusal(status, &err, TL_ERR_NOMEM, "memory", "refused");
                assert_false(is_done);
                n_nomem++;
            }
        }
        assert_true(n_nomem > 0);
    }
    json_set_alloc_funcs(malloc, free);
}

/* ------------------------------------------------------------------ attempts */

static tl_status parse_config(const void *input, tl_error *err) {
    const char *text = (const char *)input;
    tl_model_config cfg = {.n_layers = 77};
    const tl_status status = tl_model_config_parse(&cfg, text, strlen(text), err);
    assert_int_equal(cfg.n_layers, status == TL_OK ? 2 : 77);
    if (status == TL_OK) {
        assert_true(cfg.rms_norm_eps == 0.00001000000000000000001);
        assert_int_equal(cfg.max_positions, 128);
    }
    return status;
}

static void config_parse(void **state) {
    (void)state;
    static const char text[] =
        "{\"tl_arch\":\"llama\",\"tl_tokenizer\":\"byte\",\"vocab_size\":256,\"hidden_size\":64,"
        "\"intermediate_size\":128,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"max_position_embeddings\":128,\"rms_norm_eps\":0.00001000000000000000001,"
        "\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":\"default\"},"
        "\"eos_token_id\":[1,2,3]}";
    refuse_in_turn(parse_config, text);
}

static tl_status parse_layout(const void *input, tl_error *err) {
    const blob *b = (const blob *)input;
    tl_layout *layout = (tl_layout *)(uintptr_t)8;
    const tl_status status = tl_layout_parse(&layout, b->data, b->n, err);
    assert_true((layout != NULL) == (status == TL_OK));
    if (status == TL_OK) {
        const tl_tensor_info *info = tl_layout_find(layout, "a name that is longer than sixteen");
        assert_non_null(info);
        assert_int_equal(info->begin, 2);
        assert_int_equal(info->end, 6);
        assert_int_equal(info->n_dims, 3);
        assert_string_equal(tl_layout_metadata(layout, "a longer key of metadata"), "and a value");
    }
    tl_layout_free(layout);
    return status;
}

static void layout_parse(void **state) {
    (void)state;
    blob b = make_text_file(
        "{\"__metadata__\":{\"a longer key of metadata\":\"and a value\",\"k\":\"v\"},"
        "\"a name that is longer than sixteen\":{\"dtype\":\"F32\",\"shape\":[1,1,1],"
        "\"data_offsets\":[2,6],\"a key that nobody reads\":[\"and its long value\",1]},"
        "\"z\":{\"dtype\":\"F8_E4M3FNUZ\",\"shape\":[2],\"data_offsets\":[0,2],"
        "\"a_long_key\":123456789012345678}}",
        6);
    refuse_in_turn(parse_layout, &b);
    blob_clear(&b);
}

typedef struct view_list {
    tl_file_view views[4];
    size_t n;
} view_list;

static tl_status view_checkpoint(const void *input, tl_error *err) {
    const view_list *list = (const view_list *)input;
    tl_checkpoint *ckpt = (tl_checkpoint *)(uintptr_t)8;
    const tl_status status = tl_checkpoint_view(&ckpt, list->views, list->n, err);
    assert_true((ckpt != NULL) == (status == TL_OK));
    if (status == TL_OK) {
        assert_non_null(tl_checkpoint_find(ckpt, "model.layers.0.self_attn.q_proj.qweight"));
        assert_non_null(tl_checkpoint_find(ckpt, "model.layers.0.self_attn.q_proj.scales"));
        tl_qlinear q = {.group = 99};
        tl_error inner = fresh_error();
        const tl_status bound =
            tl_checkpoint_q4(ckpt, "model.layers.0.self_attn.q_proj", 1, 4, 2, &q, &inner);
        if (bound != TL_OK) {
            check_refusal(bound, &inner, TL_ERR_NOMEM, "memory", "q4");
            assert_int_equal(q.group, 99);
        }
    }
    tl_checkpoint_free(ckpt);
    return status;
}

static void sharded_checkpoint(void **state) {
    (void)state;
    static const char index[] = "{\"weight_map\":{\"model.layers.0.self_attn.q_proj.qweight\":"
                                "\"model-00001-of-00002.safetensors\","
                                "\"model.layers.0.self_attn.q_proj.scales\":"
                                "\"model-00002-of-00002.safetensors\"}}";
    blob one = make_text_file("{\"model.layers.0.self_attn.q_proj.qweight\":{\"dtype\":\"U8\","
                              "\"shape\":[1,2],\"data_offsets\":[0,2]}}",
                              2);
    blob two = make_text_file("{\"model.layers.0.self_attn.q_proj.scales\":{\"dtype\":\"F16\","
                              "\"shape\":[1,2],\"data_offsets\":[0,4]}}",
                              4);
    memset(two.data + two.n - 4, 0x11, 4);
    const view_list list = {
        {{"model.safetensors.index.json", (const uint8_t *)index, sizeof index - 1},
         {"model-00001-of-00002.safetensors", one.data, one.n},
         {"model-00002-of-00002.safetensors", two.data, two.n}},
        3};
    refuse_in_turn(view_checkpoint, &list);
    blob_clear(&one);
    blob_clear(&two);
}

static tl_status view_model(const void *input, tl_error *err) {
    const view_list *list = (const view_list *)input;
    const tl_model_load_cfg cfg = {.quant = {.int4_group = 32}};
    tl_model *model = (tl_model *)(uintptr_t)8;
    const tl_status status = tl_model_view(&model, list->views, list->n, &cfg, err);
    assert_true((model != NULL) == (status == TL_OK));
    if (status == TL_OK) {
        const tl_llama_weights *llama = &tl_model_weights(model)->as.llama;
        assert_int_equal(llama->layers[1].w_down.kind, TL_LINEAR_Q4);
        assert_int_equal(llama->lm_head.kind, TL_LINEAR_Q4);
    }
    tl_model_free(model);
    return status;
}

static void quantized_model(void **state) {
    (void)state;
    made_list made;
    make_tiny(&made, 0);
    for (size_t i = 0; i < made.n; i++) {
        made.tensors[i].fill = 0x3c;
    }
    add_tensor(&made, "lm_head.weight", "BF16", 2, TINY_V, TINY_D)->fill = 0x3c;
    blob file = make_tensors(made.tensors, made.n, NULL);
    const view_list list = {
        {{"config.json", (const uint8_t *)tiny_untied_config, sizeof tiny_untied_config - 1},
         {"model.safetensors", file.data, file.n}},
        2};
    refuse_in_turn(view_model, &list);
    blob_clear(&file);
}

static tl_status load_model(const void *input, tl_error *err) {
    const char *dir = (const char *)input;
    const tl_model_load_cfg cfg = {.weights = TL_WEIGHTS_COPY};
    tl_model *model = (tl_model *)(uintptr_t)8;
    const tl_status status = tl_model_load(&model, dir, &cfg, err);
    assert_true((model != NULL) == (status == TL_OK));
    tl_model_free(model);
    return status;
}

static void write_bytes(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void copied_directory(void **state) {
    (void)state;
    char dir[64] = "/tmp/tl-oom-XXXXXX";
    char path[2][96];
    made_list made;
    make_tiny(&made, 32);
    blob file = make_tensors(made.tensors, made.n, "{\"quant\":\"int4-g32-sym\"}");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path[0], sizeof path[0], "%s/config.json", dir);
    (void)snprintf(path[1], sizeof path[1], "%s/model.safetensors", dir);
    write_bytes(path[0], tiny_config, sizeof tiny_config - 1);
    write_bytes(path[1], file.data, file.n);
    refuse_in_turn(load_model, dir);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(unlink(path[i]), 0);
    }
    assert_int_equal(rmdir(dir), 0);
    blob_clear(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_parse),       cmocka_unit_test(layout_parse),
        cmocka_unit_test(sharded_checkpoint), cmocka_unit_test(quantized_model),
        cmocka_unit_test(copied_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
