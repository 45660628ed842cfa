/* host_c_arguments.c: the op of what only a caller in C can pass and no other op carries: NULL for
 * each pointer of each function, one at a time; numbers of no enum; a config that no parser made.
 *
 * Each such call must be refused as INVALID, in a sentence that names the argument, with and
 * without an error to fill, and leave what it was given as it was. Functions without a status
 * answer NULL with NULL or 0. The kernels of ops.h check nothing, and say so.
 *
 * engine/tools/tidy.py looks that every function of the public headers with a pointer stands here.
 *
 * Source: conformance/spec/testee.md, Arguments of C. */
#include "host.h"

#include "../runner/terms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct asking {
    host *h;
    const host_api *tl;
    size_t n_calls;
} asking;

static void check(asking *a, tl_status status, tl_error *err, const char *terms, const char *call) {
    a->n_calls++;
    host_expect(a->h, status == TL_ERR_INVALID, status, "%s is answered with status %d, must be %d",
                call, (int)status, (int)TL_ERR_INVALID);
    if (err != NULL) {
        char why[HOST_TEXT_CAP] = "";
        err->text[sizeof err->text - 1] = '\0';
        host_expect(a->h, err->text[0] != '\0', status, "%s: the refusal has no sentence", call);
        host_expect(a->h, ol_names(err->text, terms, why, sizeof why), status, "%s: %s", call, why);
        host_expect(a->h, err->status == TL_ERR_INVALID && err->offset == TL_NO_OFFSET, status,
                    "%s: the error filled has the status %d, must be %d, and no offset", call,
                    (int)err->status, (int)TL_ERR_INVALID);
    }
}

/* The call, which names `err`, once with an error to fill and once without; its words must name the
 * argument. */
#define REFUSED(terms, call)                                                                       \
    do {                                                                                           \
        tl_error filled = {0};                                                                     \
        tl_error *err = &filled;                                                                   \
        check(a, call, err, terms, #call);                                                         \
        err = NULL;                                                                                \
        check(a, call, err, terms, #call);                                                         \
    } while (0)
/* The same of a constructor: it must say so in what it would have made. */
#define REFUSED_NEW(terms, made, call)                                                             \
    do {                                                                                           \
        (made) = host_unset();                                                                     \
        REFUSED(terms, call);                                                                      \
        HOLDS((made) == NULL);                                                                     \
    } while (0)
#define HOLDS(what) host_expect(a->h, what, TL_OK, "after the calls with NULL: not %s", #what)
/* An object that the calls need; without it there is nothing to ask. */
#define MADE(call)                                                                                 \
    do {                                                                                           \
        tl_error err_ = host_error();                                                              \
        const tl_status status_ = call;                                                            \
        if (status_ != TL_OK) {                                                                    \
            host_bad(a->h, "%s: status %d: %s", #call, (int)status_, err_.text);                   \
        }                                                                                          \
    } while (0)
#define ERR &err_

/* ------------------------------------------------------------------ kv.h */

static void ask_pool(asking *a, const tl_kv_cfg *cfg, tl_kv_pool *pool, const uint32_t ids[4]) {
    const host_api *tl = a->tl;
    const tl_prefix_key key = {.bytes = {1}};
    const tl_kv_stats before = tl->kv_pool_stats(pool);
    tl_kv_pool *made = pool;
    uint32_t id = 77;
    const uint16_t *slab = NULL;
    uint16_t *slab_mut = NULL;
    size_t n = 77;
    tl_kv_block_info info = {.n_refs = 77};
    REFUSED("out", tl->kv_pool_new(NULL, cfg, err));
    REFUSED_NEW("cfg", made, tl->kv_pool_new(&made, NULL, err));
    HOLDS(made == NULL);
    REFUSED("pool", tl->kv_pool_alloc(NULL, &id, 1, err));
    REFUSED("ids", tl->kv_pool_alloc(pool, NULL, 1, err));
    REFUSED("pool", tl->kv_pool_retain(NULL, ids[0], err));
    REFUSED("pool", tl->kv_pool_release(NULL, ids[0], err));
    REFUSED("pool", tl->kv_pool_set_fill(NULL, ids[0], 1, err));
    REFUSED("pool", tl->kv_pool_register(NULL, ids[3], &key, err));
    REFUSED("key", tl->kv_pool_register(pool, ids[3], NULL, err));
    REFUSED("pool", tl->kv_pool_lookup(NULL, &key, &id, err));
    REFUSED("key", tl->kv_pool_lookup(pool, NULL, &id, err));
    REFUSED("id", tl->kv_pool_lookup(pool, &key, NULL, err));
    REFUSED("pool", tl->kv_pool_slab(NULL, ids[0], 0, TL_KV_K, &slab, &n, err));
    REFUSED("slab", tl->kv_pool_slab(pool, ids[0], 0, TL_KV_K, NULL, &n, err));
    REFUSED("slab_len", tl->kv_pool_slab(pool, ids[0], 0, TL_KV_K, &slab, NULL, err));
    REFUSED("pool", tl->kv_pool_slab_mut(NULL, ids[0], 0, TL_KV_K, &slab_mut, &n, err));
    REFUSED("slab", tl->kv_pool_slab_mut(pool, ids[0], 0, TL_KV_K, NULL, &n, err));
    REFUSED("slab_len", tl->kv_pool_slab_mut(pool, ids[0], 0, TL_KV_K, &slab_mut, NULL, err));
    REFUSED("pool", tl->kv_pool_block_info(NULL, ids[0], &info, err));
    REFUSED("info", tl->kv_pool_block_info(pool, ids[0], NULL, err));
    HOLDS(tl->kv_pool_alloc(pool, NULL, 0, NULL) == TL_OK);
    HOLDS(tl->kv_pool_cfg(NULL) == NULL && tl->kv_pool_stats(NULL).n_free == 0);
    tl->kv_pool_free(NULL);
    const tl_kv_stats after = tl->kv_pool_stats(pool);
    HOLDS(before.n_free == after.n_free && before.n_used == after.n_used);
    HOLDS(id == 77 && n == 77 && slab == NULL && slab_mut == NULL && info.n_refs == 77);
}

static void ask_envelope(asking *a, tl_kv_pool *pool, const uint32_t given[4]) {
    const host_api *tl = a->tl;
    uint8_t envelope[1024] = {0};
    uint8_t buf[1024] = {0};
    uint32_t ids[2] = {77, 77};
    size_t n_env = 0;
    size_t n = 77;
    MADE(tl->kv_pool_export(pool, given, 1, envelope, sizeof envelope, &n_env, ERR));
    const tl_kv_stats before = tl->kv_pool_stats(pool);
    REFUSED("pool", tl->kv_pool_export_size(NULL, 1, &n, err));
    REFUSED("n_bytes", tl->kv_pool_export_size(pool, 1, NULL, err));
    REFUSED("pool", tl->kv_pool_export(NULL, given, 1, buf, sizeof buf, &n, err));
    REFUSED("ids", tl->kv_pool_export(pool, NULL, 1, buf, sizeof buf, &n, err));
    REFUSED("buf", tl->kv_pool_export(pool, given, 1, NULL, 1, &n, err));
    REFUSED("n_written", tl->kv_pool_export(pool, given, 1, buf, sizeof buf, NULL, err));
    REFUSED("pool", tl->kv_pool_import(NULL, envelope, n_env, ids, 2, &n, err));
    REFUSED("buf", tl->kv_pool_import(pool, NULL, 1, ids, 2, &n, err));
    REFUSED("ids", tl->kv_pool_import(pool, envelope, n_env, NULL, 1, &n, err));
    REFUSED("n_ids", tl->kv_pool_import(pool, envelope, n_env, ids, 2, NULL, err));
    HOLDS(n == 77 && ids[0] == 77);
    /* NULL goes with a length of 0. */
    HOLDS(tl->kv_pool_export(pool, NULL, 0, buf, sizeof buf, &n, NULL) == TL_OK);
    HOLDS(tl->kv_pool_export(pool, given, 1, NULL, 0, &n, NULL) == TL_ERR_CAPACITY && n == n_env);
    HOLDS(tl->kv_pool_import(pool, NULL, 0, ids, 2, &n, NULL) == TL_ERR_FORMAT);
    HOLDS(tl->kv_pool_import(pool, envelope, n_env, NULL, 0, &n, NULL) == TL_ERR_CAPACITY &&
          n == 1);
    const tl_kv_stats after = tl->kv_pool_stats(pool);
    HOLDS(before.n_free == after.n_free && before.n_used == after.n_used);
}

static void ask_kv(asking *a) {
    const host_api *tl = a->tl;
    const tl_kv_cfg cfg = {.n_blocks = 8,
                           .block_tokens = 4,
                           .n_layers = 2,
                           .n_kv_heads = 2,
                           .head_dim = 10,
                           .dtype = TL_KV_DTYPE_F16,
                           .format = TL_KV_FORMAT_V1,
                           .prefix_cache = TL_PREFIX_CACHE_ON};
    tl_kv_pool *pool = NULL;
    uint32_t ids[4] = {0};
    MADE(tl->kv_pool_new(&pool, &cfg, ERR));
    if (host_is_bad(a->h)) {
        return;
    }
    MADE(tl->kv_pool_alloc(pool, ids, 4, ERR));
    MADE(tl->kv_pool_set_fill(pool, ids[3], 4, ERR));
    if (!host_is_bad(a->h)) {
        ask_pool(a, &cfg, pool, ids);
        ask_envelope(a, pool, ids);
    }
    tl->kv_pool_free(pool);
}

/* ------------------------------------------------------------------ sample.h */

static void ask_sample(asking *a) {
    enum { V = 5 };
    const host_api *tl = a->tl;
    static const float x[V] = {0};
    static const uint32_t seen[2] = {0, 1};
    const tl_sampling_params sound = tl->sampling_params_default();
    const tl_sampling_params *p = &sound;
    tl_pcg32 rng = tl->stream(1, TL_PURPOSE_SAMPLE);
    const tl_pcg32 before = rng;
    tl_pcg32 *r = &rng;
    uint32_t t = 77;
    double lp = 77;
    tl_sampler *s = NULL;
    MADE(tl->sampler_new(&s, V, ERR));
    if (host_is_bad(a->h)) {
        return;
    }
    REFUSED("out", tl->sampler_new(NULL, V, err));
    tl->sampler_free(NULL);
    REFUSED("sampler", tl->sample(NULL, x, V, p, seen, 2, seen, 2, r, &t, &lp, err));
    REFUSED("logits", tl->sample(s, NULL, V, p, seen, 2, seen, 2, r, &t, &lp, err));
    REFUSED("params", tl->sample(s, x, V, NULL, seen, 2, seen, 2, r, &t, &lp, err));
    REFUSED("prompt", tl->sample(s, x, V, p, NULL, 1, seen, 2, r, &t, &lp, err));
    REFUSED("output", tl->sample(s, x, V, p, seen, 2, NULL, 1, r, &t, &lp, err));
    REFUSED("rng", tl->sample(s, x, V, p, seen, 2, seen, 2, NULL, &t, &lp, err));
    REFUSED("token", tl->sample(s, x, V, p, seen, 2, seen, 2, r, NULL, &lp, err));
    REFUSED("logprob", tl->sample(s, x, V, p, seen, 2, seen, 2, r, &t, NULL, err));
    HOLDS(t == 77 && lp > 76.0 && rng.state == before.state && rng.inc == before.inc);
    HOLDS(tl->sample(s, x, V, p, NULL, 0, NULL, 0, r, &t, &lp, NULL) == TL_OK);
    HOLDS(tl->pcg32_next_u32(NULL) == 0 && tl->pcg32_uniform_f64(NULL) <= 0.0);
    tl->sampler_free(s);
}

/* ------------------------------------------------------------------ quant.h, and products */

enum { ROWS = 3, COLS = 8, GROUP = 4 };

static void ask_packing(asking *a, const tl_qlinear *q4) {
    const host_api *tl = a->tl;
    static const int8_t q[4] = {0};
    static const uint8_t packed[2] = {0};
    static const float w[ROWS * COLS] = {0};
    int8_t q_out[4] = {77};
    uint8_t packed_out[2] = {77};
    float w_out[ROWS * COLS] = {77};
    tl_qlinear made = *q4;
    REFUSED("n_bytes", tl->int4_packed_size(2, 2, NULL, err));
    REFUSED("q", tl->int4_pack(NULL, 4, 2, 2, packed_out, 2, err));
    REFUSED("packed", tl->int4_pack(q, 4, 2, 2, NULL, 2, err));
    REFUSED("packed", tl->int4_unpack(NULL, 2, q_out, 4, err));
    REFUSED("q", tl->int4_unpack(packed, 2, NULL, 4, err));
    REFUSED("3", tl->int4_unpack(packed, 2, q_out, 3, err));
    REFUSED("2", tl->int4_unpack(packed, 2, q_out, 2, err));
    REFUSED("out", tl->qlinear_quantize(NULL, w, ROWS * COLS, ROWS, COLS, GROUP, err));
    REFUSED("w", tl->qlinear_quantize(&made, NULL, ROWS * COLS, ROWS, COLS, GROUP, err));
    HOLDS(made.qweight == NULL && made.scales == NULL);
    REFUSED("layer|q", tl->qlinear_dequantize(NULL, w_out, ROWS * COLS, err));
    REFUSED("w", tl->qlinear_dequantize(q4, NULL, ROWS * COLS, err));
    REFUSED("w_len", tl->qlinear_dequantize(q4, w_out, ROWS * COLS - 1, err));
    REFUSED("w_len", tl->qlinear_dequantize(q4, w_out, ROWS * COLS + 1, err));
    HOLDS(packed_out[0] == 77 && q_out[0] == 77 && w_out[0] > 76.0f);
    tl->qlinear_clear(NULL);
}

static void ask_products(asking *a, const tl_qlinear *q4, tl_work *work) {
    const host_api *tl = a->tl;
    static const float x[COLS] = {0};
    static const float w[ROWS * COLS] = {0};
    float y[ROWS + 1] = {77};
    const tl_matrix matrix = {
        .kind = TL_MATRIX_F32, .n_out = ROWS, .n_in = COLS, .data = (const uint8_t *)w};
    const tl_linear dense = {.kind = TL_LINEAR_DENSE, .as.dense = matrix};
    tl_qlinear bad = *q4;
    REFUSED("linear", tl->linear_forward(NULL, 0, ROWS, x, COLS, 1, y, ROWS, work, err));
    REFUSED("x", tl->linear_forward(&dense, 0, ROWS, NULL, COLS, 1, y, ROWS, work, err));
    REFUSED("x_len", tl->linear_forward(&dense, 0, ROWS, x, COLS - 1, 1, y, ROWS, work, err));
    REFUSED("y", tl->linear_forward(&dense, 0, ROWS, x, COLS, 1, NULL, ROWS, work, err));
    REFUSED("y_len", tl->linear_forward(&dense, 0, ROWS, x, COLS, 1, y, ROWS - 1, work, err));
    REFUSED("y_len", tl->linear_forward(&dense, 0, ROWS, x, COLS, 1, y, ROWS + 1, work, err));
    REFUSED("work", tl->linear_forward(&dense, 0, ROWS, x, COLS, 1, y, ROWS, NULL, err));
    REFUSED("", tl->linear_forward(&dense, 0, ROWS + 1, x, COLS, 1, y, ROWS, work, err));
    REFUSED("layer|q", tl->qlinear_forward(NULL, 0, ROWS, x, COLS, 1, y, ROWS, work, err));
    REFUSED("x", tl->qlinear_forward(q4, 0, ROWS, NULL, COLS, 1, y, ROWS, work, err));
    REFUSED("x_len", tl->qlinear_forward(q4, 0, ROWS, x, COLS - 1, 1, y, ROWS, work, err));
    REFUSED("y", tl->qlinear_forward(q4, 0, ROWS, x, COLS, 1, NULL, ROWS, work, err));
    REFUSED("y_len", tl->qlinear_forward(q4, 0, ROWS, x, COLS, 1, y, ROWS - 1, work, err));
    REFUSED("y_len", tl->qlinear_forward(q4, 0, ROWS, x, COLS, 1, y, ROWS + 1, work, err));
    REFUSED("work", tl->qlinear_forward(q4, 0, ROWS, x, COLS, 1, y, ROWS, NULL, err));
    bad.qweight = NULL;
    REFUSED("qweight", tl->qlinear_forward(&bad, 0, ROWS, x, COLS, 1, y, ROWS, work, err));
    bad = *q4;
    bad.scales = NULL;
    REFUSED("scales", tl->qlinear_forward(&bad, 0, ROWS, x, COLS, 1, y, ROWS, work, err));
    HOLDS(y[0] > 76.0f);
    HOLDS(tl->linear_forward(&dense, 0, ROWS, NULL, 0, 0, NULL, 0, work, NULL) == TL_OK);
    HOLDS(tl->qlinear_forward(q4, 0, ROWS, NULL, 0, 0, NULL, 0, work, NULL) == TL_OK);
    HOLDS(y[0] > 76.0f);
    HOLDS(tl->linear_forward(&dense, 0, ROWS, x, COLS, 1, y, ROWS, work, NULL) == TL_OK);
    HOLDS(y[0] < 1.0f);
}

/* Linears and working memory as only C can put them together. */
static void ask_linears(asking *a, const tl_qlinear *q4, tl_work *work) {
    const host_api *tl = a->tl;
    static const float x[2 * COLS] = {0};
    static const float w[2 * ROWS * COLS] = {0};
    float y[ROWS] = {77};
    const tl_matrix matrix = {
        .kind = TL_MATRIX_F32, .n_out = ROWS, .n_in = COLS, .data = (const uint8_t *)w};
    const tl_linear dense = {.kind = TL_LINEAR_DENSE, .as.dense = matrix};
    tl_linear packed = {.kind = TL_LINEAR_Q4, .as.q4 = *q4};
    tl_linear c = dense;
    tl_work *none = work;
    c.as.dense.data = NULL;
    REFUSED("data|linear", tl->linear_forward(&c, 0, ROWS, x, COLS, 1, y, ROWS, work, err));
    c = dense;
    c.as.dense.n_in = 2 * COLS; /* more than the work is made for */
    REFUSED("work", tl->linear_forward(&c, 0, ROWS, x, 2 * COLS, 1, y, ROWS, work, err));
    c.as.dense.n_in = 0;
    REFUSED("", tl->linear_forward(&c, 0, ROWS, x, 0, 1, y, ROWS, work, err));
    c = dense;
    c.as.dense.n_out = 0;
    REFUSED("", tl->linear_forward(&c, 0, 0, x, COLS, 1, y, 0, work, err));
    const int kinds[] = {0, 3, -1};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        c = dense;
        c.kind = (tl_linear_kind)kinds[i];
        REFUSED("kind|linear", tl->linear_forward(&c, 0, ROWS, x, COLS, 1, y, ROWS, work, err));
    }
    const int matrices[] = {0, 4, -1};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        c = dense;
        c.as.dense.kind = (tl_matrix_kind)matrices[i];
        REFUSED("", tl->linear_forward(&c, 0, ROWS, x, COLS, 1, y, ROWS, work, err));
    }
    HOLDS(y[0] > 76.0f);
    HOLDS(tl->linear_forward(&packed, 0, ROWS, x, COLS, 1, y, ROWS, work, NULL) == TL_OK);
    HOLDS(y[0] < 1.0f);
    REFUSED("resolved", tl->isa_resolve(TL_ISA_AUTO, NULL, err));
    REFUSED("out", tl->work_new(NULL, TL_ISA_AUTO, COLS, err));
    REFUSED_NEW("max_n_in", none, tl->work_new(&none, TL_ISA_AUTO, 0, err));
    HOLDS(none == NULL);
    HOLDS(tl->work_isa(NULL) == TL_ISA_AUTO && tl->work_max_n_in(NULL) == 0);
    HOLDS(tl->linear_n_out(NULL) == 0 && tl->linear_n_in(NULL) == 0);
    HOLDS(tl->linear_n_out(&dense) == ROWS && tl->linear_n_in(&dense) == COLS);
    HOLDS(tl->linear_n_out(&packed) == ROWS && tl->linear_n_in(&packed) == COLS);
    tl->work_free(NULL);
    tl->linear_clear(NULL);
    c = dense;
    tl->linear_clear(&c);
    HOLDS(c.as.dense.data == NULL);
    /* A copy that owns nothing: its pointers are borrowed. */
    packed.as.q4.owned = NULL;
    tl->linear_clear(&packed);
    HOLDS(packed.as.q4.qweight == NULL && packed.as.q4.scales == NULL);
}

static void ask_quant(asking *a) {
    const host_api *tl = a->tl;
    static const float w[ROWS * COLS] = {0};
    tl_qlinear q4 = {0};
    tl_work *work = NULL;
    MADE(tl->qlinear_quantize(&q4, w, ROWS * COLS, ROWS, COLS, GROUP, ERR));
    MADE(tl->work_new(&work, TL_ISA_AUTO, COLS, ERR));
    if (!host_is_bad(a->h)) {
        ask_packing(a, &q4);
        ask_products(a, &q4, work);
        ask_linears(a, &q4, work);
    }
    tl->work_free(work);
    tl->qlinear_clear(&q4);
}

/* ------------------------------------------------------------------ model.h */

static const char bigram_config[] =
    "{\"tl_arch\":\"bigram\",\"tl_tokenizer\":\"bpe\",\"vocab_size\":2}";
/* A header of 104 bytes, and 2 x 2 f32. */
static const char bigram_file[] =
    "\x68\0\0\0\0\0\0\0{\"__metadata__\":{\"k\":\"v\"},"
    "\"bigram.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}          "
    "\0\0\0\0\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40";
static const tl_file_view files[2] = {
    {"config.json", (const uint8_t *)bigram_config, sizeof bigram_config - 1},
    {"model.safetensors", (const uint8_t *)bigram_file, sizeof bigram_file - 1}};

/* Are they 0, 1, 2 and 3? */
static bool are_bigram_values(const float x[4]) {
    static const uint32_t want[4] = {0, 0x3f800000u, 0x40000000u, 0x40400000u};
    uint32_t got[4];
    memcpy(got, x, sizeof got);
    return memcmp(got, want, sizeof got) == 0;
}

static void ask_layout(asking *a) {
    const host_api *tl = a->tl;
    const uint8_t *bytes = files[1].bytes;
    const size_t n = files[1].n_bytes;
    tl_layout *layout = NULL;
    tl_layout *none = NULL;
    MADE(tl->layout_parse(&layout, bytes, n, ERR));
    if (host_is_bad(a->h)) {
        return;
    }
    REFUSED("out", tl->layout_parse(NULL, bytes, n, err));
    REFUSED_NEW("bytes", none, tl->layout_parse(&none, NULL, 1, err));
    HOLDS(tl->layout_parse(&none, NULL, 0, NULL) == TL_ERR_FORMAT && none == NULL);
    HOLDS(tl->layout_count(NULL) == 0 && tl->layout_at(NULL, 0) == NULL);
    HOLDS(tl->layout_find(NULL, "bigram.weight") == NULL && tl->layout_find(layout, NULL) == NULL);
    HOLDS(tl->layout_metadata(NULL, "k") == NULL && tl->layout_metadata(layout, NULL) == NULL);
    HOLDS(strcmp(tl->layout_metadata(layout, "k"), "v") == 0);
    HOLDS(tl->layout_metadata(layout, "l") == NULL);
    HOLDS(tl->layout_data_start(NULL) == 0 && tl->layout_data_start(layout) == n - 16);
    tl->layout_free(NULL);
    tl->layout_free(layout);
}

static void ask_safetensors(asking *a) {
    const host_api *tl = a->tl;
    const uint8_t *bytes = files[1].bytes;
    const size_t n = files[1].n_bytes;
    static const size_t dims[2] = {2, 2};
    const char *name = "bigram.weight";
    float dst[5] = {77};
    tl_qlinear q4 = {.n_out = 77};
    tl_safetensors *st = NULL;
    tl_safetensors *none = NULL;
    MADE(tl->safetensors_view(&st, bytes, n, ERR));
    if (host_is_bad(a->h)) {
        return;
    }
    REFUSED("out", tl->safetensors_open(NULL, "nowhere", TL_WEIGHTS_MAP, err));
    REFUSED_NEW("path", none, tl->safetensors_open(&none, NULL, TL_WEIGHTS_MAP, err));
    REFUSED_NEW("mode", none, tl->safetensors_open(&none, "nowhere", (tl_weights_mode)2, err));
    REFUSED("out", tl->safetensors_view(NULL, bytes, n, err));
    REFUSED_NEW("bytes", none, tl->safetensors_view(&none, NULL, 1, err));
    REFUSED("NULL", tl->safetensors_f32(NULL, name, dims, 2, dst, 4, err));
    REFUSED("NULL", tl->safetensors_f32(st, NULL, dims, 2, dst, 4, err));
    REFUSED("NULL", tl->safetensors_f32(st, name, NULL, 2, dst, 4, err));
    REFUSED("NULL", tl->safetensors_f32(st, name, dims, 2, NULL, 4, err));
    REFUSED("NULL", tl->safetensors_f32(st, name, NULL, 1, dst, 4, err));
    REFUSED("3", tl->safetensors_f32(st, name, dims, 2, dst, 3, err));
    REFUSED("5", tl->safetensors_f32(st, name, dims, 2, dst, 5, err));
    REFUSED("NULL", tl->safetensors_q4(NULL, "bigram", 2, 2, 2, &q4, err));
    REFUSED("NULL", tl->safetensors_q4(st, NULL, 2, 2, 2, &q4, err));
    REFUSED("NULL", tl->safetensors_q4(st, "bigram", 2, 2, 2, NULL, err));
    REFUSED("0", tl->safetensors_q4(st, "bigram", 2, 2, 0, &q4, err));
    REFUSED("3", tl->safetensors_q4(st, "bigram", 2, 3, 3, &q4, err));
    REFUSED("4", tl->safetensors_q4(st, "bigram", 2, 2, 4, &q4, err));
    HOLDS(tl->safetensors_q4(st, "bigram", 1, 2, 2, &q4, NULL) == TL_ERR_NOT_FOUND);
    HOLDS(dst[0] > 76.0f && q4.n_out == 77 && none == NULL);
    HOLDS(tl->safetensors_f32(st, name, dims, 2, dst, 4, NULL) == TL_OK);
    HOLDS(are_bigram_values(dst));
    HOLDS(tl->safetensors_layout(NULL) == NULL);
    tl->safetensors_free(NULL);
    tl->safetensors_free(st);
}

static void ask_checkpoint(asking *a) {
    const host_api *tl = a->tl;
    static const size_t dims[2] = {2, 2};
    const char *name = "bigram.weight";
    float dst[5] = {77};
    tl_qlinear q4 = {.n_out = 77};
    tl_file_view bad[2] = {files[0], files[1]};
    tl_checkpoint *ckpt = NULL;
    tl_checkpoint *none = NULL;
    MADE(tl->checkpoint_view(&ckpt, files, 2, ERR));
    if (host_is_bad(a->h)) {
        return;
    }
    REFUSED("out", tl->checkpoint_open(NULL, "nowhere", TL_WEIGHTS_MAP, err));
    REFUSED_NEW("dir", none, tl->checkpoint_open(&none, NULL, TL_WEIGHTS_MAP, err));
    REFUSED_NEW("mode", none, tl->checkpoint_open(&none, "nowhere", (tl_weights_mode)-1, err));
    REFUSED("out", tl->checkpoint_view(NULL, files, 2, err));
    REFUSED_NEW("files", none, tl->checkpoint_view(&none, NULL, 1, err));
    bad[1].name = NULL;
    REFUSED_NEW("NULL", none, tl->checkpoint_view(&none, bad, 2, err));
    bad[1] = files[1];
    bad[1].bytes = NULL;
    bad[1].n_bytes = 1;
    REFUSED_NEW("NULL", none, tl->checkpoint_view(&none, bad, 2, err));
    bad[1].n_bytes = 0; /* an empty file, as good at NULL as anywhere */
    HOLDS(tl->checkpoint_view(&none, bad, 2, NULL) == TL_ERR_FORMAT);
    HOLDS(tl->checkpoint_view(&none, NULL, 0, NULL) == TL_ERR_IO);
    REFUSED("NULL", tl->checkpoint_f32(NULL, name, dims, 2, dst, 4, err));
    REFUSED("NULL", tl->checkpoint_f32(ckpt, NULL, dims, 2, dst, 4, err));
    REFUSED("NULL", tl->checkpoint_f32(ckpt, name, NULL, 2, dst, 4, err));
    REFUSED("NULL", tl->checkpoint_f32(ckpt, name, dims, 2, NULL, 4, err));
    REFUSED("NULL", tl->checkpoint_q4(NULL, "bigram", 2, 2, 2, &q4, err));
    REFUSED("NULL", tl->checkpoint_q4(ckpt, NULL, 2, 2, 2, &q4, err));
    REFUSED("NULL", tl->checkpoint_q4(ckpt, "bigram", 2, 2, 2, NULL, err));
    HOLDS(dst[0] > 76.0f && q4.n_out == 77 && none == NULL);
    HOLDS(tl->checkpoint_f32(ckpt, name, dims, 2, dst, 4, NULL) == TL_OK);
    HOLDS(are_bigram_values(dst));
    HOLDS(tl->checkpoint_count(NULL) == 0 && tl->checkpoint_at(NULL, 0) == NULL);
    HOLDS(tl->checkpoint_find(NULL, name) == NULL && tl->checkpoint_find(ckpt, NULL) == NULL);
    HOLDS(tl->checkpoint_metadata(NULL, "k") == NULL);
    HOLDS(tl->checkpoint_metadata(ckpt, NULL) == NULL);
    HOLDS(strcmp(tl->checkpoint_metadata(ckpt, "k"), "v") == 0);
    HOLDS(tl->checkpoint_metadata(ckpt, "l") == NULL);
    tl->checkpoint_free(NULL);
    tl->checkpoint_free(ckpt);
}

static void ask_files(asking *a) {
    ask_layout(a);
    ask_safetensors(a);
    ask_checkpoint(a);
}

/* A config that the parser would never make, with one field at a time that no model has. */
static void ask_configs(asking *a, tl_checkpoint **ckpt) {
    const host_api *tl = a->tl;
    const tl_model_config sound = {.arch = TL_ARCH_LLAMA,
                                   .tokenizer = TL_TOKENIZER_BPE,
                                   .vocab_size = 4,
                                   .hidden_size = 8,
                                   .intermediate_size = 8,
                                   .n_layers = 1,
                                   .n_heads = 2,
                                   .n_kv_heads = 1,
                                   .head_dim = 4,
                                   .max_positions = 8,
                                   .rope_theta = 10000,
                                   .rms_norm_eps = 1e-5};
    const tl_limits limits = {
        .max_batch_tokens = 2, .max_seqs = 1, .n_threads = 1, .max_blocks = 1};
    tl_model_config c = sound;
    size_t *const counts[] = {&c.vocab_size, &c.hidden_size, &c.intermediate_size, &c.n_layers,
                              &c.n_heads,    &c.n_kv_heads,  &c.head_dim};
    double *const reals[] = {&c.rope_theta, &c.rms_norm_eps};
    const double bad[] = {0, -1, -0.5, (double)INFINITY, (double)NAN, 1e-300, 1e300};
    tl_weights w = {.arch = TL_ARCH_BIGRAM};
    tl_scratch *scratch = NULL;
    size_t n = 77;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        c = sound;
        *counts[i] = 0;
        REFUSED("config|cfg", tl->weights_load(&w, ckpt, &c, NULL, err));
        REFUSED_NEW("", scratch, tl->scratch_new(&scratch, &c, &limits, err));
        REFUSED("", tl->scratch_size(&c, &limits, &n, err));
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        for (size_t j = 0; j < sizeof bad / sizeof *bad; j++) {
            c = sound;
            *reals[i] = bad[j];
            REFUSED("config|cfg", tl->weights_load(&w, ckpt, &c, NULL, err));
            REFUSED_NEW("", scratch, tl->scratch_new(&scratch, &c, &limits, err));
        }
    }
    c = sound;
    c.n_kv_heads = 3;
    REFUSED("config|cfg", tl->weights_load(&w, ckpt, &c, NULL, err));
    c = sound;
    c.arch = (tl_arch)3;
    REFUSED("config|cfg", tl->weights_load(&w, ckpt, &c, NULL, err));
    c = sound;
    HOLDS(tl->weights_load(&w, ckpt, &c, NULL, NULL) == TL_ERR_NOT_FOUND);
    HOLDS(w.arch == TL_ARCH_BIGRAM && *ckpt != NULL && scratch == NULL && n == 77);
}

static void ask_weights(asking *a) {
    const host_api *tl = a->tl;
    tl_model_config cfg = {.vocab_size = 77};
    tl_checkpoint *ckpt = NULL;
    tl_checkpoint *none = NULL;
    tl_weights w = {.arch = TL_ARCH_LLAMA};
    const char *json = bigram_config;
    const size_t n = sizeof bigram_config - 1;
    MADE(tl->checkpoint_view(&ckpt, files, 2, ERR));
    if (host_is_bad(a->h)) {
        return;
    }
    REFUSED("NULL", tl->model_config_parse(NULL, json, n, err));
    REFUSED("NULL", tl->model_config_parse(&cfg, NULL, 1, err));
    REFUSED("NULL", tl->model_config_load(NULL, "nowhere", err));
    REFUSED("NULL", tl->model_config_load(&cfg, NULL, err));
    HOLDS(cfg.vocab_size == 77);
    MADE(tl->model_config_parse(&cfg, json, n, ERR));
    REFUSED("NULL", tl->weights_load(NULL, &ckpt, &cfg, NULL, err));
    REFUSED("NULL", tl->weights_load(&w, NULL, &cfg, NULL, err));
    REFUSED("NULL", tl->weights_load(&w, &none, &cfg, NULL, err));
    REFUSED("NULL", tl->weights_load(&w, &ckpt, NULL, NULL, err));
    HOLDS(ckpt != NULL && w.arch == TL_ARCH_LLAMA);
    ask_configs(a, &ckpt);
    /* What is loaded takes the checkpoint with it. */
    HOLDS(tl->weights_load(&w, &ckpt, &cfg, NULL, NULL) == TL_OK && ckpt == NULL);
    HOLDS(w.arch == TL_ARCH_BIGRAM && tl->linear_n_out(&w.as.bigram) == 2);
    tl->weights_clear(&w);
    HOLDS(w.ckpt == NULL);
    tl->weights_clear(NULL);
    tl->checkpoint_free(ckpt);
}

/* A model in memory: with its files in either order, without one of them, and with a bad one. */
static void ask_model(asking *a) {
    const host_api *tl = a->tl;
    const tl_file_view swapped[2] = {files[1], files[0]};
    const tl_model_load_cfg copy = {.weights = TL_WEIGHTS_COPY};
    const tl_model_load_cfg no_mode = {.weights = (tl_weights_mode)2};
    const tl_model_load_cfg int4 = {.quant = {.int4_group = 2}};
    tl_model *model = NULL;
    tl_model *none = NULL;
    MADE(tl->model_view(&model, swapped, 2, &copy, ERR));
    if (host_is_bad(a->h)) {
        return;
    }
    HOLDS(tl->model_config_of(model)->vocab_size == 2);
    HOLDS(tl->linear_n_in(&tl->model_weights(model)->as.bigram) == 2);
    tl->model_free(model);
    REFUSED("out", tl->model_load(NULL, "nowhere", NULL, err));
    REFUSED_NEW("dir", none, tl->model_load(&none, NULL, NULL, err));
    REFUSED_NEW("mode|weights", none, tl->model_load(&none, "nowhere", &no_mode, err));
    REFUSED("out", tl->model_view(NULL, files, 2, NULL, err));
    REFUSED_NEW("files", none, tl->model_view(&none, NULL, 1, NULL, err));
    REFUSED_NEW("mode|weights", none, tl->model_view(&none, files, 2, &no_mode, err));
    REFUSED_NEW("int4|int4_group|group", none, tl->model_view(&none, files, 2, &int4, err));
    HOLDS(tl->model_view(&none, files, 1, NULL, NULL) == TL_ERR_IO);
    HOLDS(tl->model_view(&none, files + 1, 1, NULL, NULL) == TL_ERR_IO);
    HOLDS(tl->model_load(&none, "nowhere", &copy, NULL) == TL_ERR_IO);
    HOLDS(none == NULL);
    HOLDS(tl->model_config_of(NULL) == NULL && tl->model_weights(NULL) == NULL);
    tl->model_free(NULL);
}

static void ask_models(asking *a) {
    ask_weights(a);
    ask_model(a);
}

/* ------------------------------------------------------------------ forward.h and runner.h */

typedef struct scene {
    tl_model *model;
    tl_runner *runner;
    tl_scratch *scratch;
    tl_logits logits;
    tl_limits limits;
    tl_engine_cfg engine;
    uint32_t ids[1];
    uint32_t tokens[2];
} scene;

static void ask_scratch(asking *a, const scene *s) {
    const host_api *tl = a->tl;
    const tl_model_config *cfg = tl->model_config_of(s->model);
    tl_logits logits = {.max_rows = 77};
    tl_scratch *none = NULL;
    size_t n = 77;
    REFUSED("out", tl->logits_init(NULL, 1, 2, err));
    REFUSED("", tl->logits_init(&logits, 0, 2, err));
    REFUSED("", tl->logits_init(&logits, 1, 0, err));
    HOLDS(tl->logits_row(NULL, 0) == NULL);
    tl->logits_clear(NULL);
    REFUSED("out", tl->scratch_new(NULL, cfg, &s->limits, err));
    REFUSED_NEW("cfg", none, tl->scratch_new(&none, NULL, &s->limits, err));
    REFUSED_NEW("limits", none, tl->scratch_new(&none, cfg, NULL, err));
    REFUSED("cfg", tl->scratch_size(NULL, &s->limits, &n, err));
    REFUSED("limits", tl->scratch_size(cfg, NULL, &n, err));
    REFUSED("n_bytes", tl->scratch_size(cfg, &s->limits, NULL, err));
    HOLDS(none == NULL && n == 77 && tl->scratch_limits(NULL) == NULL);
    HOLDS(tl->scratch_limits(s->scratch)->max_seqs == s->limits.max_seqs);
    tl->scratch_free(NULL);
}

static void ask_step(asking *a, scene *s) {
    const host_api *tl = a->tl;
    const tl_model_config *cfg = tl->model_config_of(s->model);
    const tl_weights *w = tl->model_weights(s->model);
    tl_kv_pool *pool = tl->runner_pool(s->runner);
    const tl_forward_seq good = {s->tokens, 2, 0, s->ids, 1};
    tl_forward_seq seq = good;
    const tl_forward_batch batch = {&seq, 1};
    const tl_forward_batch no_seqs = {NULL, 1};
    tl_logits *out = &s->logits;
    tl_scratch *sc = s->scratch;
    float hidden[1] = {77};
    tl_kv_block_info info = {.n_filled = 77};
    REFUSED("cfg", tl->forward_check(NULL, pool, sc, &batch, err));
    REFUSED("pool", tl->forward_check(cfg, NULL, sc, &batch, err));
    REFUSED("scratch", tl->forward_check(cfg, pool, NULL, &batch, err));
    REFUSED("batch", tl->forward_check(cfg, pool, sc, NULL, err));
    REFUSED("", tl->forward_check(cfg, pool, sc, &no_seqs, err));
    seq.tokens = NULL;
    REFUSED("tokens", tl->forward_check(cfg, pool, sc, &batch, err));
    seq = good;
    seq.blocks = NULL;
    REFUSED("blocks", tl->forward_check(cfg, pool, sc, &batch, err));
    seq = good;
    REFUSED("cfg", tl->forward(NULL, w, pool, sc, &batch, NULL, 0, out, err));
    REFUSED("weights", tl->forward(cfg, NULL, pool, sc, &batch, NULL, 0, out, err));
    REFUSED("pool", tl->forward(cfg, w, NULL, sc, &batch, NULL, 0, out, err));
    REFUSED("scratch", tl->forward(cfg, w, pool, NULL, &batch, NULL, 0, out, err));
    REFUSED("batch", tl->forward(cfg, w, pool, sc, NULL, NULL, 0, out, err));
    REFUSED("hidden", tl->forward(cfg, w, pool, sc, &batch, NULL, 4, out, err));
    REFUSED("hidden", tl->forward(cfg, w, pool, sc, &batch, hidden, 1, out, err));
    REFUSED("logits", tl->forward(cfg, w, pool, sc, &batch, NULL, 0, NULL, err));
    HOLDS(tl->kv_pool_block_info(pool, s->ids[0], &info, NULL) == TL_OK && info.n_filled == 0);
    HOLDS(out->n_rows == 0 && hidden[0] > 76.0f);
    HOLDS(tl->forward(cfg, w, pool, sc, &batch, NULL, 0, out, NULL) == TL_OK && out->n_rows == 1);
}

static void ask_runner(asking *a, scene *s) {
    const host_api *tl = a->tl;
    const tl_forward_seq seq = {s->tokens, 2, 0, s->ids, 1};
    const tl_forward_batch batch = {&seq, 1};
    const tl_engine_cfg *how = &s->engine;
    const uint32_t token = 1;
    tl_runner *none = NULL;
    tl_runner *r = s->runner;
    float logits[2] = {77, 77};
    REFUSED("out", tl->runner_new(NULL, s->model, how, err));
    REFUSED_NEW("model", none, tl->runner_new(&none, NULL, how, err));
    REFUSED_NEW("cfg", none, tl->runner_new(&none, s->model, NULL, err));
    REFUSED("out", tl->runner_load(NULL, "nowhere", how, err));
    REFUSED_NEW("dir", none, tl->runner_load(&none, NULL, how, err));
    REFUSED_NEW("cfg", none, tl->runner_load(&none, "nowhere", NULL, err));
    HOLDS(none == NULL);
    REFUSED("runner", tl->runner_forward(NULL, &batch, &s->logits, err));
    REFUSED("batch", tl->runner_forward(r, NULL, &s->logits, err));
    REFUSED("logits", tl->runner_forward(r, &batch, NULL, err));
    REFUSED("runner", tl->runner_run_once(NULL, &token, 1, NULL, 0, logits, 2, err));
    REFUSED("token|tokens", tl->runner_run_once(r, NULL, 1, NULL, 0, logits, 2, err));
    REFUSED("hidden", tl->runner_run_once(r, &token, 1, NULL, 1, logits, 2, err));
    REFUSED("logits", tl->runner_run_once(r, &token, 1, NULL, 0, NULL, 2, err));
    REFUSED("logits", tl->runner_run_once(r, &token, 1, NULL, 0, logits, 1, err));
    HOLDS(logits[0] > 76.0f && logits[1] > 76.0f);
    HOLDS(tl->runner_pool(NULL) == NULL && tl->runner_config(NULL) == NULL);
    HOLDS(tl->runner_limits(NULL) == NULL && tl->runner_block_tokens(NULL) == 0);
    tl->runner_free(NULL);
}

static void ask_forward(asking *a) {
    const host_api *tl = a->tl;
    scene s = {.limits = {.max_batch_tokens = 8, .max_seqs = 2, .n_threads = 1, .max_blocks = 8},
               .engine = tl->engine_cfg_default()};
    s.engine.kv_n_blocks = 4;
    MADE(tl->model_view(&s.model, files, 2, NULL, ERR));
    if (!host_is_bad(a->h)) {
        MADE(tl->runner_new(&s.runner, s.model, &s.engine, ERR));
        MADE(tl->scratch_new(&s.scratch, tl->model_config_of(s.model), &s.limits, ERR));
        MADE(tl->logits_init(&s.logits, 2, 2, ERR));
    }
    if (!host_is_bad(a->h)) {
        MADE(tl->kv_pool_alloc(tl->runner_pool(s.runner), s.ids, 1, ERR));
        ask_scratch(a, &s);
        ask_step(a, &s);
        ask_runner(a, &s);
    }
    tl->logits_clear(&s.logits);
    tl->scratch_free(s.scratch);
    tl->runner_free(s.runner);
    tl->model_free(s.model);
}

/* ------------------------------------------------------------------ the op */

static bool op_c_arguments(host *h, const json_t *in, json_t *out) {
    static const struct {
        const char *name;
        void (*ask)(asking *a);
    } parts[] = {{"kv", ask_kv},       {"sample", ask_sample}, {"quant", ask_quant},
                 {"files", ask_files}, {"model", ask_models},  {"forward", ask_forward}};
    const char *of = host_arg_text(h, in, "of");
    asking a = {.h = h, .tl = &h->tl};
    if (!host_ready(h)) {
        return false;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(of, parts[i].name) == 0) {
            parts[i].ask(&a);
        }
    }
    host_put_int(out, "calls", a.n_calls);
    return !host_is_bad(h);
}

const host_op host_c_argument_ops[] = {{"c_arguments", op_c_arguments}, {NULL, NULL}};
