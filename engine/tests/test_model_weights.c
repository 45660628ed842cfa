/* Config and weights together: both ways, tied heads, int4 by file and at load, the linear
 * layer, models.
 *
 * Source: conformance/spec/config.md, config#fit; conformance/spec/safetensors.md,
 * safetensors#12. */
#include <sys/stat.h>
#include <unistd.h>

#include <math.h>

#include "model_fixture.h"

#define FORMAT TL_ERR_FORMAT
#define UNSUPPORTED TL_ERR_UNSUPPORTED
#define NOT_FOUND TL_ERR_NOT_FOUND

/* ------------------------------------------------------------------ models in memory */

typedef struct made_model {
    blob file;
    tl_file_view views[2];
} made_model;

static made_model make_model(const char *config, const made_list *list, const char *metadata) {
    made_model m;
    memset(&m, 0, sizeof m);
    m.file = make_tensors(list->tensors, list->n, metadata);
    m.views[0].name = "config.json";
    m.views[0].bytes = (const uint8_t *)config;
    m.views[0].n_bytes = strlen(config);
    m.views[1].name = "model.safetensors";
    m.views[1].bytes = m.file.data;
    m.views[1].n_bytes = m.file.n;
    return m;
}

static tl_status load(const char *config, const made_list *list, const char *metadata,
                      size_t int4_group, tl_error *err) {
    made_model m = make_model(config, list, metadata);
    const tl_model_load_cfg cfg = {.quant = {.int4_group = int4_group}};
    tl_model *model = (tl_model *)(uintptr_t)8;
    const tl_status status = tl_model_view(&model, m.views, 2, &cfg, err);
    assert_true((model != NULL) == (status == TL_OK));
    tl_model_free(model);
    blob_clear(&m.file);
    return status;
}

static void check_load(const char *config, const made_list *list, const char *metadata,
                       size_t int4_group, tl_status wanted, const char *subject) {
    tl_error err = fresh_error();
    const tl_status status = load(config, list, metadata, int4_group, &err);
    if (wanted == TL_OK) {
        if (status != TL_OK) {
            fail_msg("%s: %s", subject, err.text);
        }
        return;
    }
    check_refusal(status, &err, wanted, subject, subject);
}

static void remove_tensor(made_list *list, const char *name) {
    made_tensor *gone = find_made(list, name);
    *gone = list->tensors[list->n - 1];
    list->n--;
}

#define DOWN_0 "model.layers.0.mlp.down_proj.weight"
#define Q_1 "model.layers.1.self_attn.q_proj.weight"
#define NORM "model.norm.weight"
#define EMBED "model.embed_tokens.weight"

/* ------------------------------------------------------------------ both ways */

static void everything_is_there(void **state) {
    (void)state;
    made_list full;
    make_tiny(&full, 0);
    check_load(tiny_config, &full, NULL, 0, TL_OK, "tied");
    for (size_t i = 0; i < full.n; i++) {
        made_list list = full;
        char name[sizeof full.tensors[0].name + 2];
        (void)snprintf(name, sizeof name, "'%s'", full.tensors[i].name);
        remove_tensor(&list, full.tensors[i].name);
        check_load(tiny_config, &list, NULL, 0, NOT_FOUND, name);
    }
    check_load(tiny_untied_config, &full, NULL, 0, NOT_FOUND, "'lm_head.weight'");
    made_list untied = full;
    add_tensor(&untied, "lm_head.weight", "F16", 2, TINY_V, TINY_D);
    check_load(tiny_untied_config, &untied, NULL, 0, TL_OK, "untied");
}

static void shapes_and_types(void **state) {
    (void)state;
    made_list full;
    make_tiny(&full, 0);
    for (size_t i = 0; i < full.n; i++) {
        made_list list = full;
        made_tensor *t = &list.tensors[i];
        char name[sizeof full.tensors[0].name + 2];
        (void)snprintf(name, sizeof name, "'%s'", t->name);
        if (t->n_dims == 2 && t->dims[0] != t->dims[1]) {
            const size_t rows = t->dims[0]; /* as many bytes: only the shape tells */
            t->dims[0] = t->dims[1];
            t->dims[1] = rows;
            check_load(tiny_config, &list, NULL, 0, FORMAT, name);
        }
        list = full;
        if (t->n_dims == 1) {
            t->n_dims = 2;
            t->dims[1] = 1;
            check_load(tiny_config, &list, NULL, 0, FORMAT, name);
        }
        list = full;
        t->dtype = "I32";
        t->n_bytes = t->dims[0] * (t->n_dims == 2 ? t->dims[1] : 1) * 4;
        check_load(tiny_config, &list, NULL, 0, UNSUPPORTED, name);
        t->dtype = "F64";
        t->n_bytes *= 2;
        check_load(tiny_config, &list, NULL, 0, UNSUPPORTED, name);
        t->dtype = "F8_E4M3";
        t->n_bytes /= 8;
        check_load(tiny_config, &list, NULL, 0, UNSUPPORTED, "F8_E4M3");
    }
}

static void nothing_is_left_over(void **state) {
    (void)state;
    static const char *const extras[] = {"model.layers.0.self_attn.q_proj.bias",
                                         "model.layers.0.self_attn.q_norm.weight",
                                         "model.layers.2.self_attn.q_proj.weight",
                                         "model.layers.00.mlp.up_proj.weight",
                                         "rotary_emb.inv_freqs",
                                         "score.weight",
                                         "",
                                         "bigram.weight"};
    static const char *const tables[] = {"model.layers.0.self_attn.rotary_emb.inv_freq",
                                         "model.layers.1.self_attn.rotary_emb.inv_freq",
                                         "model.rotary_emb.inv_freq", "rotary_emb.inv_freq"};
    made_list full;
    make_tiny(&full, 0);
    for (size_t i = 0; i < COUNT_OF(extras); i++) {
        made_list list = full;
        char name[sizeof list.tensors[0].name + 2];
        (void)snprintf(name, sizeof name, "'%s'", extras[i]);
        add_tensor(&list, extras[i], "BF16", 2, 64, 0);
        check_load(tiny_config, &list, NULL, 0, UNSUPPORTED, name);
    }
    for (size_t i = 0; i < COUNT_OF(tables); i++) {
        add_tensor(&full, tables[i], i == 0 ? "I64" : "F32", i == 0 ? 8 : 4, 8, 0);
    }
    check_load(tiny_config, &full, NULL, 0, TL_OK, "tables of frequencies");
}

static void tied_heads(void **state) {
    (void)state;
    made_list full;
    make_tiny(&full, 0);
    made_list list = full;
    find_made(&list, EMBED)->fill = 0x3c;
    made_tensor *head = add_tensor(&list, "lm_head.weight", "BF16", 2, TINY_V, TINY_D);
    head->fill = 0x3c;
    check_load(tiny_config, &list, NULL, 0, TL_OK, "the same bytes");
    head->fill = 0x3d;
    check_load(tiny_config, &list, NULL, 0, UNSUPPORTED, "lm_head.weight");
    check_load(tiny_untied_config, &list, NULL, 0, TL_OK, "untied");
    head->fill = 0x3c;
    head->dtype = "F16";
    check_load(tiny_config, &list, NULL, 0, UNSUPPORTED, "lm_head.weight");
    head->dtype = "BF16";
    head->dims[0] = TINY_D;
    head->dims[1] = TINY_V;
    check_load(tiny_config, &list, NULL, 0, UNSUPPORTED, "lm_head.weight");
}

/* A config may promise more than any memory holds: the tensors are missed before memory is
 * taken. */
static void huge_promises_are_not_found(void **state) {
    (void)state;
    static const char config[] =
        "{\"tl_arch\":\"llama\",\"tl_tokenizer\":\"byte\",\"vocab_size\":256,\"hidden_size\":"
        "16777216,"
        "\"intermediate_size\":16777216,\"num_hidden_layers\":65536,\"num_attention_heads\":4,"
        "\"head_dim\":16,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true}";
    made_list full;
    make_tiny(&full, 0);
    check_load(config, &full, NULL, 0, FORMAT, "input_layernorm");
    remove_tensor(&full, "model.layers.0.input_layernorm.weight");
    check_load(config, &full, NULL, 0, NOT_FOUND, "input_layernorm");
}

static void values_lie_where_they_should(void **state) {
    (void)state;
    made_list list;
    make_tiny(&list, 0);
    made_model m = make_model(tiny_config, &list, NULL);
    tl_model *model = NULL;
    tl_error err = fresh_error();
    assert_int_equal(tl_model_view(&model, m.views, 2, NULL, &err), TL_OK);
    assert_int_equal(tl_model_config_of(model)->hidden_size, 64);
    const tl_weights *weights = tl_model_weights(model);
    const tl_llama_weights *llama = &weights->as.llama;
    assert_int_equal(weights->arch, TL_ARCH_LLAMA);
    assert_int_equal(llama->n_layers, 2);
    assert_memory_equal(&llama->lm_head, &llama->embed, sizeof llama->embed);
    static const size_t shape[2] = {64, 128};
    static const size_t norm_shape[1] = {64};
    float wide[64 * 128];
    const tl_linear *down = &llama->layers[1].w_down;
    assert_int_equal(down->kind, TL_LINEAR_DENSE);
    assert_int_equal(down->as.dense.kind, TL_MATRIX_BF16);
    assert_int_equal(tl_linear_n_out(down), 64);
    assert_int_equal(tl_linear_n_in(down), 128);
    assert_true(down->as.dense.data > m.file.data &&
                down->as.dense.data < m.file.data + m.file.n); /* where it lies, not a copy */
    assert_int_equal(tl_checkpoint_f32(weights->ckpt, "model.layers.1.mlp.down_proj.weight", shape,
                                       2, wide, 64 * 128, &err),
                     TL_OK);
    for (size_t i = 0; i < 64 * 128; i++) {
        assert_int_equal(tli_f32_bits(wide[i]) >> 16, tli_load_u16(down->as.dense.data + 2 * i));
    }
    static const char *const norms[] = {"model.layers.1.post_attention_layernorm.weight", NORM};
    const float *bound[] = {llama->layers[1].mlp_norm, llama->final_norm};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(tl_checkpoint_f32(weights->ckpt, norms[i], norm_shape, 1, wide, 64, &err),
                         TL_OK);
        assert_memory_equal(wide, bound[i], 64 * sizeof(float));
    }
    tl_model_free(model);
    blob_clear(&m.file);
}

/* ------------------------------------------------------------------ int4 */

#define QUANT(value) "{\"quant\":\"" value "\"}"

static void int4_files(void **state) {
    (void)state;
    made_list pairs;
    make_tiny(&pairs, 32);
    check_load(tiny_config, &pairs, QUANT("int4-g32-sym"), 0, TL_OK, "pairs");
    static const struct {
        const char *metadata;
        tl_status status;
    } quants[] = {
        {NULL, NOT_FOUND}, /* nothing says that pairs are meant */
        {QUANT("int4-g16-sym"), FORMAT},
        {QUANT("int4-g0-sym"), FORMAT},
        {QUANT("int4-g032-sym"), FORMAT},
        {QUANT("int4-g31-sym"), FORMAT},
        {QUANT("int4-g48-sym"), FORMAT},
        {QUANT("int4-g99999999999999999999-sym"), FORMAT},
        {QUANT("int4-g32"), UNSUPPORTED},
        {QUANT("int4-g-sym"), UNSUPPORTED},
        {QUANT("int4-g-32-sym"), UNSUPPORTED},
        {QUANT("int4-g32-symm"), UNSUPPORTED},
        {QUANT("int8-g32-sym"), UNSUPPORTED},
        {QUANT(""), UNSUPPORTED},
    };
    for (size_t i = 0; i < COUNT_OF(quants); i++) {
        check_load(tiny_config, &pairs, quants[i].metadata, 0, quants[i].status, "");
    }
    check_load(tiny_config, &pairs, QUANT("int4-g32-sym"), 32, TL_ERR_INVALID, "int4-g32-sym");
    made_list dense;
    make_tiny(&dense, 0);
    check_load(tiny_config, &dense, QUANT("int4-g32-sym"), 0, NOT_FOUND, "qweight");
}

static void int4_sets_are_whole(void **state) {
    (void)state;
    static const char metadata[] = QUANT("int4-g32-sym");
    made_list pairs;
    make_tiny(&pairs, 32);
    for (size_t i = 0; i < pairs.n; i++) {
        made_list list = pairs;
        char name[sizeof pairs.tensors[0].name + 2];
        (void)snprintf(name, sizeof name, "'%s'", pairs.tensors[i].name);
        remove_tensor(&list, pairs.tensors[i].name);
        check_load(tiny_config, &list, metadata, 0, NOT_FOUND, name);
        if (strstr(name, "scales") == NULL && strstr(name, "qweight") == NULL) {
            continue;
        }
        list = pairs;
        list.tensors[i].dims[1]--;
        list.tensors[i].n_bytes -= list.tensors[i].dims[0] * (strstr(name, "scales") ? 2 : 1);
        check_load(tiny_config, &list, metadata, 0, FORMAT, name);
        list = pairs;
        list.tensors[i].dtype = strstr(name, "scales") ? "BF16" : "I8";
        check_load(tiny_config, &list, metadata, 0, UNSUPPORTED, name);
    }
    made_list list = pairs;
    add_tensor(&list, Q_1, "BF16", 2, 64, 64);
    check_load(tiny_config, &list, metadata, 0, UNSUPPORTED, Q_1);
    list = pairs;
    add_tensor(&list, "model.embed_tokens.qweight", "U8", 1, TINY_V, TINY_D / 2);
    check_load(tiny_config, &list, metadata, 0, UNSUPPORTED, "embed_tokens.qweight");
    list = pairs;
    find_made(&list, "model.layers.1.mlp.up_proj.scales")->fill = 0xfc;
    check_load(tiny_config, &list, metadata, 0, FORMAT, "up_proj.scales");
    /* The head is a pair when it is not tied, and only then. */
    list = pairs;
    add_tensor(&list, "lm_head.weight", "BF16", 2, TINY_V, TINY_D);
    check_load(tiny_untied_config, &list, metadata, 0, NOT_FOUND, "lm_head.qweight");
    list = pairs;
    add_tensor(&list, "lm_head.qweight", "U8", 1, TINY_V, TINY_D / 2);
    add_tensor(&list, "lm_head.scales", "F16", 2, TINY_V, TINY_D / 32)->fill = 0x11;
    check_load(tiny_untied_config, &list, metadata, 0, TL_OK, "head as a pair");
    check_load(tiny_config, &list, metadata, 0, UNSUPPORTED, "lm_head.qweight");
}

/* Quantize-at-load gives what tl_qlinear_quantize gives of the widened matrix, and leaves norms
 * and the embedding alone. */
static void int4_at_load(void **state) {
    (void)state;
    made_list list;
    make_tiny(&list, 0);
    for (size_t i = 0; i < list.n; i++) {
        list.tensors[i].fill = 0x3c + (int)(i % 3); /* finite in BF16, F16 and F32 */
    }
    add_tensor(&list, "lm_head.weight", "BF16", 2, TINY_V, TINY_D)->fill = 0x3d;
    made_model m = make_model(tiny_untied_config, &list, NULL);
    const tl_model_load_cfg cfg = {.quant = {.int4_group = 16}};
    tl_model *model = NULL;
    tl_error err = fresh_error();
    if (tl_model_view(&model, m.views, 2, &cfg, &err) != TL_OK) {
        fail_msg("%s", err.text);
    }
    const tl_llama_weights *llama = &tl_model_weights(model)->as.llama;
    static const size_t shape[2] = {64, 128};
    float wide[64 * 128];
    tl_qlinear wanted = {0};
    const tl_linear *down = &llama->layers[0].w_down;
    assert_int_equal(
        tl_checkpoint_f32(tl_model_weights(model)->ckpt, DOWN_0, shape, 2, wide, 64 * 128, &err),
        TL_OK);
    assert_int_equal(tl_qlinear_quantize(&wanted, wide, 64 * 128, 64, 128, 16, &err), TL_OK);
    assert_int_equal(down->kind, TL_LINEAR_Q4);
    assert_int_equal(tl_linear_n_out(down), 64);
    assert_int_equal(tl_linear_n_in(down), 128);
    assert_memory_equal(down->as.q4.qweight, wanted.qweight, wanted.qweight_len);
    assert_memory_equal(down->as.q4.scales, wanted.scales, wanted.scales_len);
    assert_int_equal(llama->embed.kind, TL_LINEAR_DENSE);
    assert_int_equal(llama->lm_head.kind, TL_LINEAR_Q4);
    tl_qlinear_clear(&wanted);
    tl_model_free(model);
    blob_clear(&m.file);
    check_load(tiny_untied_config, &list, NULL, 3, TL_ERR_INVALID, "group 3");
    check_load(tiny_untied_config, &list, NULL, 48, TL_ERR_INVALID, "group 48");
    check_load(tiny_untied_config, &list, NULL, 128, TL_ERR_INVALID, "group 128");
    check_load(tiny_untied_config, &list, NULL, 64, TL_OK, "one group a row");
    find_made(&list, Q_1)->fill = 0xff; /* NaN */
    check_load(tiny_untied_config, &list, NULL, 16, TL_ERR_INVALID, Q_1);
    check_load(tiny_untied_config, &list, NULL, 0, TL_OK, "a NaN is a value");
    find_made(&list, Q_1)->fill = 0x7e; /* about 8e37: no f16 is a seventh of it */
    check_load(tiny_untied_config, &list, NULL, 16, TL_ERR_INVALID, Q_1);
}

/* ------------------------------------------------------------------ bigram */

static const char bigram_config[] =
    "{\"tl_arch\":\"bigram\",\"tl_tokenizer\":\"byte\",\"vocab_size\":256}";

static void bigrams(void **state) {
    (void)state;
    made_list list = {.n = 0};
    add_tensor(&list, "bigram.weight", "F16", 2, 256, 256);
    check_load(bigram_config, &list, NULL, 0, TL_OK, "bigram");
    check_load(bigram_config, &list, NULL, 32, TL_ERR_INVALID, "bigram");
    check_load(bigram_config, &list, QUANT("int4-g32-sym"), 0, UNSUPPORTED, "int4-g32-sym");
    check_load(bigram_config, &list, QUANT("int4-g32-sym"), 32, TL_ERR_INVALID, "int4");
    list.tensors[0].dtype = "I16";
    check_load(bigram_config, &list, NULL, 0, UNSUPPORTED, "I16");
    list.tensors[0].dtype = "BF16";
    list.tensors[0].dims[0] = 128;
    list.tensors[0].dims[1] = 512;
    check_load(bigram_config, &list, NULL, 0, FORMAT, "bigram.weight");
    list.tensors[0].dims[0] = 256;
    list.tensors[0].dims[1] = 256;
    add_tensor(&list, "bias", "F32", 4, 256, 0);
    check_load(bigram_config, &list, NULL, 0, UNSUPPORTED, "'bias'");
    made_list none = {.n = 0};
    check_load(bigram_config, &none, NULL, 0, NOT_FOUND, "bigram.weight");
}

/* ------------------------------------------------------------------ who owns what */

static void checkpoint_changes_hands_on_success(void **state) {
    (void)state;
    made_list list;
    make_tiny(&list, 0);
    made_model m = make_model(tiny_config, &list, NULL);
    tl_error err = fresh_error();
    tl_checkpoint *ckpt = NULL;
    tl_model_config cfg = {0};
    tl_model_config other = {0};
    tl_weights weights;
    tl_weights before;
    memset(&weights, 0x5a, sizeof weights);
    memcpy(&before, &weights, sizeof weights);
    assert_int_equal(tl_model_config_parse(&cfg, tiny_config, strlen(tiny_config), &err), TL_OK);
    assert_int_equal(tl_checkpoint_view(&ckpt, m.views, 2, &err), TL_OK);
    const tl_checkpoint *same = ckpt;
    other = cfg;
    other.n_layers = 3;
    assert_int_equal(tl_weights_load(&weights, &ckpt, &other, NULL, &err), NOT_FOUND);
    other = cfg;
    other.head_dim = 0;
    assert_int_equal(tl_weights_load(&weights, &ckpt, &other, NULL, &err), TL_ERR_INVALID);
    other = cfg;
    other.arch = (tl_arch)0;
    assert_int_equal(tl_weights_load(&weights, &ckpt, &other, NULL, &err), TL_ERR_INVALID);
    other = cfg;
    other.n_heads = SIZE_MAX;
    assert_int_equal(tl_weights_load(&weights, &ckpt, &other, NULL, &err), TL_ERR_INVALID);
    static const double bad_reals[] = {(double)NAN, (double)INFINITY, -1.0, 0.0, 0x1p-150, 1e300};
    for (size_t i = 0; i < 2 * COUNT_OF(bad_reals); i++) {
        other = cfg;
        *(i % 2 == 0 ? &other.rope_theta : &other.rms_norm_eps) = bad_reals[i / 2];
        assert_int_equal(tl_weights_load(&weights, &ckpt, &other, NULL, &err), TL_ERR_INVALID);
    }
    assert_int_equal(tl_weights_load(NULL, &ckpt, &cfg, NULL, &err), TL_ERR_INVALID);
    assert_int_equal(tl_weights_load(&weights, NULL, &cfg, NULL, &err), TL_ERR_INVALID);
    assert_int_equal(tl_weights_load(&weights, &ckpt, NULL, NULL, &err), TL_ERR_INVALID);
    assert_ptr_equal(ckpt, same);
    assert_memory_equal(&weights, &before, sizeof weights);
    assert_int_equal(tl_weights_load(&weights, &ckpt, &cfg, NULL, &err), TL_OK);
    assert_null(ckpt);
    assert_ptr_equal(weights.ckpt, same);
    assert_int_equal(tl_weights_load(&weights, &ckpt, &cfg, NULL, &err), TL_ERR_INVALID);
    tl_weights_clear(&weights);
    assert_null(weights.ckpt);
    tl_weights_clear(&weights);
    tl_weights_clear(NULL);
    blob_clear(&m.file);
}

static void model_arguments(void **state) {
    (void)state;
    tl_error err = fresh_error();
    tl_model *model = NULL;
    const tl_model_load_cfg bad = {.weights = (tl_weights_mode)5};
    const tl_file_view config = {"config.json", (const uint8_t *)tiny_config, strlen(tiny_config)};
    assert_int_equal(tl_model_load(NULL, "x", NULL, &err), TL_ERR_INVALID);
    assert_int_equal(tl_model_load(&model, NULL, NULL, &err), TL_ERR_INVALID);
    assert_int_equal(tl_model_load(&model, "x", &bad, &err), TL_ERR_INVALID);
    assert_int_equal(tl_model_view(&model, &config, 1, &bad, &err), TL_ERR_INVALID);
    assert_non_null(strstr(err.text, "mode 5"));
    assert_int_equal(tl_model_load(&model, "/nonexistent", NULL, &err), TL_ERR_IO);
    assert_int_equal(tl_model_view(NULL, &config, 1, NULL, &err), TL_ERR_INVALID);
    assert_int_equal(tl_model_view(&model, NULL, 1, NULL, &err), TL_ERR_INVALID);
    check_refusal(tl_model_view(&model, NULL, 0, NULL, &err), &err, TL_ERR_IO, "config.json",
                  "no files");
    check_refusal(tl_model_view(&model, &config, 1, NULL, &err), &err, TL_ERR_IO,
                  "model.safetensors", "config alone");
    assert_null(tl_model_config_of(NULL));
    assert_null(tl_model_weights(NULL));
    tl_model_free(NULL);
}

static void model_from_a_directory(void **state) {
    (void)state;
    char dir[64] = "/tmp/tl-weights-XXXXXX";
    char path[128];
    made_list list;
    make_tiny(&list, 0);
    made_model m = make_model(tiny_config, &list, NULL);
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, m.views[i].name);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(m.views[i].bytes, 1, m.views[i].n_bytes, f), m.views[i].n_bytes);
        assert_int_equal(fclose(f), 0);
    }
    for (int mode = 0; mode < 2; mode++) {
        const tl_model_load_cfg cfg = {.weights = (tl_weights_mode)mode};
        tl_model *model = NULL;
        tl_error err = fresh_error();
        if (tl_model_load(&model, dir, &cfg, &err) != TL_OK) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(tl_model_config_of(model)->n_layers, 2);
        tl_model_free(model);
    }
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, m.views[i].name);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
    blob_clear(&m.file);
}

/* ------------------------------------------------------------------ the linear layer */

static void linear_forward(void **state) {
    (void)state;
    static const float w[6] = {1, 2, 3, 4, 5, 6}; /* [3, 2] */
    uint8_t data[24];
    float x[4] = {1, 10, 2, 20};
    float y[6];
    tl_work *work = NULL;
    tl_error err = fresh_error();
    for (size_t i = 0; i < 6; i++) {
        tli_store_u32(data + 4 * i, tli_f32_bits(w[i]));
    }
    const tl_linear linear = {
        .kind = TL_LINEAR_DENSE,
        .as.dense = {.kind = TL_MATRIX_F32, .n_out = 3, .n_in = 2, .data = data}};
    assert_int_equal(tl_work_new(&work, TL_ISA_AUTO, 2, &err), TL_OK);
    assert_int_equal(tl_linear_forward(&linear, 0, 3, x, 4, 2, y, 6, work, &err), TL_OK);
    static const float wanted[6] = {21, 43, 65, 42, 86, 130};
    assert_memory_equal(y, wanted, sizeof y);
    /* Only the columns that were asked for are written. */
    for (size_t i = 0; i < 6; i++) {
        y[i] = -1.0f;
    }
    assert_int_equal(tl_linear_forward(&linear, 1, 2, x, 4, 2, y, 6, work, &err), TL_OK);
    static const float middle[6] = {-1, 43, -1, -1, 86, -1};
    assert_memory_equal(y, middle, sizeof y);
    assert_int_equal(tl_linear_forward(&linear, 1, 1, x, 4, 2, y, 6, work, &err), TL_OK);
    assert_int_equal(tl_linear_forward(&linear, 0, 3, NULL, 0, 0, NULL, 0, work, &err), TL_OK);
    const tl_linear none = {0};
    tl_linear bad = linear;
    bad.as.dense.kind = TL_MATRIX_INT4;
    tl_linear hollow = linear;
    hollow.as.dense.data = NULL;
    tl_linear wide = linear;
    wide.as.dense.n_in = 3;
    for (size_t i = 0; i < 4; i++) { /* no row, no column: a shape that no weight has */
        tl_linear flat = linear;
        flat.as.dense.n_out = i % 2 == 0 ? 3 : 0;
        flat.as.dense.n_in = i % 2 == 0 ? 0 : 2;
        flat.as.dense.data = i < 2 ? data : NULL;
        const size_t x_len = i % 2 == 0 ? 0 : 4;
        const size_t y_len = i % 2 == 0 ? 6 : 0;
        assert_int_equal(
            tl_linear_forward(&flat, 0, flat.as.dense.n_out, x, x_len, 2, y, y_len, work, &err),
            TL_ERR_INVALID);
    }
    static const struct {
        size_t row_begin, row_end, x_len, m, y_len;
    } cases[] = {{2, 1, 4, 2, 6},        {0, 4, 4, 2, 6}, {0, 3, 3, 2, 6}, {0, 3, 4, 2, 5},
                 {0, 3, 4, SIZE_MAX, 6}, {0, 3, 4, 1, 6}, {0, 3, 0, 0, 6}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(tl_linear_forward(&linear, cases[i].row_begin, cases[i].row_end, x,
                                           cases[i].x_len, cases[i].m, y, cases[i].y_len, work,
                                           &err),
                         TL_ERR_INVALID);
    }
    assert_int_equal(tl_linear_forward(NULL, 0, 3, x, 4, 2, y, 6, work, &err), TL_ERR_INVALID);
    assert_int_equal(tl_linear_forward(&none, 0, 3, x, 4, 2, y, 6, work, &err), TL_ERR_INVALID);
    assert_int_equal(tl_linear_forward(&bad, 0, 3, x, 4, 2, y, 6, work, &err), TL_ERR_INVALID);
    assert_int_equal(tl_linear_forward(&hollow, 0, 3, x, 4, 2, y, 6, work, &err), TL_ERR_INVALID);
    assert_int_equal(tl_linear_forward(&wide, 0, 3, x, 6, 2, y, 6, work, &err), TL_ERR_INVALID);
    assert_int_equal(tl_linear_forward(&linear, 0, 3, NULL, 4, 2, y, 6, work, &err),
                     TL_ERR_INVALID);
    assert_int_equal(tl_linear_forward(&linear, 0, 3, x, 4, 2, NULL, 6, work, &err),
                     TL_ERR_INVALID);
    assert_int_equal(tl_linear_forward(&linear, 0, 3, x, 4, 2, y, 6, NULL, &err), TL_ERR_INVALID);
    assert_memory_equal(y, middle, sizeof y);
    tl_work_free(work);
}

/* int4 through the same call: the bits of a linear over its dequantized twin. */
static void linear_forward_int4(void **state) {
    (void)state;
    float w[2 * 8];
    float wide[2 * 8];
    float x[3 * 8];
    float y[3 * 2];
    float twin[3 * 2];
    uint8_t data[sizeof wide];
    tl_work *work = NULL;
    tl_error err = fresh_error();
    tl_linear q4 = {.kind = TL_LINEAR_Q4};
    for (size_t i = 0; i < 16; i++) {
        w[i] = (float)i * 0.37f - 2.0f;
    }
    for (size_t i = 0; i < 24; i++) {
        x[i] = 1.0f / (float)(i + 1);
    }
    assert_int_equal(tl_work_new(&work, TL_ISA_AUTO, 8, &err), TL_OK);
    assert_int_equal(tl_qlinear_quantize(&q4.as.q4, w, 16, 2, 8, 4, &err), TL_OK);
    assert_int_equal(tl_qlinear_dequantize(&q4.as.q4, wide, 16, &err), TL_OK);
    for (size_t i = 0; i < 16; i++) {
        tli_store_u32(data + 4 * i, tli_f32_bits(wide[i]));
    }
    const tl_linear dense = {
        .kind = TL_LINEAR_DENSE,
        .as.dense = {.kind = TL_MATRIX_F32, .n_out = 2, .n_in = 8, .data = data}};
    assert_int_equal(tl_linear_forward(&q4, 0, 2, x, 24, 3, y, 6, work, &err), TL_OK);
    assert_int_equal(tl_linear_forward(&dense, 0, 2, x, 24, 3, twin, 6, work, &err), TL_OK);
    assert_memory_equal(y, twin, sizeof y);
    assert_int_equal(tl_linear_forward(&q4, 0, 3, x, 24, 3, y, 6, work, &err), TL_ERR_INVALID);
    tl_linear_clear(&q4);
    assert_null(q4.as.q4.owned);
    tl_work_free(work);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_there),
        cmocka_unit_test(shapes_and_types),
        cmocka_unit_test(nothing_is_left_over),
        cmocka_unit_test(tied_heads),
        cmocka_unit_test(huge_promises_are_not_found),
        cmocka_unit_test(values_lie_where_they_should),
        cmocka_unit_test(int4_files),
        cmocka_unit_test(int4_sets_are_whole),
        cmocka_unit_test(int4_at_load),
        cmocka_unit_test(bigrams),
        cmocka_unit_test(checkpoint_changes_hands_on_success),
        cmocka_unit_test(model_arguments),
        cmocka_unit_test(model_from_a_directory),
        cmocka_unit_test(linear_forward),
        cmocka_unit_test(linear_forward_int4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
