/* target_forward.c: batches of sequences over tiny models, and everything about a batch that can be
 * wrong.
 *
 * Both implementations must refuse a batch with the same status, or give logits, hidden states and
 * slabs within the bound of the pages (they sum in different orders). The same batch again, by the
 * portable kernels, gives the same bits. A refused batch leaves the pool as it was. The models are
 * made here, once: two llamas (F32 untied; BF16 tied with wide heads), one of them quantized at
 * load, and a bigram.
 *
 * Source: conformance/spec/forward.md. */
#include "pools.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 24
#define SEQS_MAX 4
#define TOKENS_MAX 6
#define TABLE_MAX 6
#define CONTEXT 20

/* ------------------------------------------------------------------ models */

typedef struct recipe {
    const char *config;
    const char *dtype;
    size_t vocab, d, heads, kv_heads, head_dim, inter, layers;
    bool tied;
    size_t int4_group;
} recipe;

#define REST "\"tl_tokenizer\":\"bpe\",\"max_position_embeddings\":20,\"rms_norm_eps\":1e-5,"
static const recipe recipes[] = {
    {"{\"tl_arch\":\"llama\"," REST "\"vocab_size\":16,\"hidden_size\":8,\"intermediate_size\":12,"
     "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1}",
     "F32", 16, 8, 2, 1, 4, 12, 2, false, 0},
    {"{\"tl_arch\":\"llama\"," REST "\"vocab_size\":9,\"hidden_size\":6,\"intermediate_size\":10,"
     "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"head_dim\":4,"
     "\"tie_word_embeddings\":true}",
     "BF16", 9, 6, 2, 2, 4, 10, 1, true, 0},
    {"{\"tl_arch\":\"llama\"," REST "\"vocab_size\":16,\"hidden_size\":8,\"intermediate_size\":12,"
     "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1}",
     "F16", 16, 8, 2, 1, 4, 12, 1, false, 4},
    {"{\"tl_arch\":\"bigram\",\"tl_tokenizer\":\"bpe\",\"max_position_embeddings\":20,"
     "\"vocab_size\":7}",
     "F32", 7, 0, 1, 1, 2, 0, 1, false, 0},
};
#define N_RECIPES (sizeof recipes / sizeof *recipes)
#define FILE_CAP 16384

typedef struct writer {
    char header[4096];
    size_t n_header;
    uint8_t data[FILE_CAP - 4096 - 8];
    size_t n_data;
    fuzz_rng rng;
} writer;

/* Numbers of either sign whose bits are set freely and whose size is not: 2^-4 to 2. */
static void add_number(writer *w, const char *dtype) {
    const uint32_t r = fuzz_next(&w->rng);
    const uint32_t bits = (r & 0x807fffff) | (123 + (r >> 23) % 5) << 23;
    const uint32_t half =
        ((bits >> 16) & 0x8000) | ((((bits >> 23) & 0xff) - 112) << 10 | ((bits >> 13) & 0x3ff));
    const bool is_f32 = strcmp(dtype, "F32") == 0;
    const uint32_t v = is_f32 ? bits : strcmp(dtype, "BF16") == 0 ? bits >> 16 : half;
    for (unsigned i = 0; i < (is_f32 ? 4 : 2); i++) {
        w->data[w->n_data++] = (uint8_t)(v >> (8 * i));
    }
}

static void add(writer *w, const recipe *r, const char *name, size_t rows, size_t cols) {
    const size_t begin = w->n_data;
    char shape[32];
    for (size_t i = 0; i < rows * (cols == 0 ? 1 : cols); i++) {
        add_number(w, r->dtype);
    }
    (void)snprintf(shape, sizeof shape, cols == 0 ? "%zu" : "%zu,%zu", rows, cols);
    w->n_header +=
        (size_t)snprintf(w->header + w->n_header, sizeof w->header - w->n_header,
                         "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                         w->n_header == 1 ? "" : ",", name, r->dtype, shape, begin, w->n_data);
}

static void add_layer(writer *w, const recipe *r, size_t layer) {
    const size_t q = r->heads * r->head_dim;
    const size_t kv = r->kv_heads * r->head_dim;
    const struct {
        const char *name;
        size_t rows, cols;
    } parts[] = {{"input_layernorm", r->d, 0},      {"post_attention_layernorm", r->d, 0},
                 {"self_attn.q_proj", q, r->d},     {"self_attn.k_proj", kv, r->d},
                 {"self_attn.v_proj", kv, r->d},    {"self_attn.o_proj", r->d, q},
                 {"mlp.gate_proj", r->inter, r->d}, {"mlp.up_proj", r->inter, r->d},
                 {"mlp.down_proj", r->d, r->inter}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[96];
        (void)snprintf(name, sizeof name, "model.layers.%zu.%s.weight", layer, parts[i].name);
        add(w, r, name, parts[i].rows, parts[i].cols);
    }
}

/* The bytes of model.safetensors; exact length. */
static uint8_t *make_weights(const recipe *r, size_t *n) {
    writer *w = fuzz_alloc(sizeof *w);
    w->n_header = (size_t)snprintf(w->header, sizeof w->header, "{");
    w->rng.state = r->vocab;
    if (r->d == 0) {
        add(w, r, "bigram.weight", r->vocab, r->vocab);
    } else {
        add(w, r, "model.embed_tokens.weight", r->vocab, r->d);
        add(w, r, "model.norm.weight", r->d, 0);
        for (size_t i = 0; i < r->layers; i++) {
            add_layer(w, r, i);
        }
        if (!r->tied) {
            add(w, r, "lm_head.weight", r->vocab, r->d);
        }
    }
    w->header[w->n_header++] = '}';
    *n = 8 + w->n_header + w->n_data;
    uint8_t *bytes = fuzz_alloc(*n);
    bytes[0] = (uint8_t)w->n_header;
    bytes[1] = (uint8_t)(w->n_header >> 8);
    memcpy(bytes + 8, w->header, w->n_header);
    memcpy(bytes + 8 + w->n_header, w->data, w->n_data);
    free(w);
    return bytes;
}

/* Models are the same for every input: made when first needed, kept until the process ends. */
typedef struct made {
    const host_api *tl;
    tl_model *models[N_RECIPES];
    uint8_t *bytes[N_RECIPES];
} made;

static tl_model *model_of(fuzz_case *f, const host_api *tl, made *m, size_t i) {
    if (m->tl != tl) {
        memset(m, 0, sizeof *m);
        m->tl = tl;
    }
    if (m->models[i] == NULL) {
        const tl_model_load_cfg load = {.quant = {.int4_group = recipes[i].int4_group}};
        tl_error err = fuzz_error();
        size_t n = 0;
        m->bytes[i] = make_weights(&recipes[i], &n);
        const tl_file_view files[] = {
            {"config.json", (const uint8_t *)recipes[i].config, strlen(recipes[i].config)},
            {"model.safetensors", m->bytes[i], n}};
        if (tl->model_view(&m->models[i], files, 2, &load, &err) != TL_OK) {
            (void)fuzz_wrong(f, "the target's own model %zu is refused: %.200s", i, err.text);
        }
    }
    return m->models[i];
}

/* ------------------------------------------------------------------ a step */

typedef struct stage {
    pools p;
    const recipe *r;
    tl_model *model_a, *model_b;
    tl_scratch *a, *a_portable, *b;
    tl_limits limits;
} stage;

/* A batch as each of the two sees it; everything on the heap, of exact length. */
typedef struct batch {
    tl_forward_seq a[SEQS_MAX], b[SEQS_MAX];
    size_t n_seqs, n_tokens;
} batch;

static void read_table(stage *s, fuzz_tape *tape, tl_forward_seq *a, tl_forward_seq *b) {
    const size_t n = fuzz_u8(tape) % TABLE_MAX;
    uint32_t *x = fuzz_alloc(n * sizeof *x);
    uint32_t *y = fuzz_alloc(n * sizeof *y);
    for (size_t i = 0; i < n; i++) {
        const slot chosen = pools_pick(&s->p, tape);
        x[i] = chosen.a;
        y[i] = chosen.b;
    }
    a->blocks = x;
    b->blocks = y;
    a->n_blocks = n;
    b->n_blocks = n;
}

static batch read_batch(stage *s, fuzz_tape *tape) {
    batch made_batch = {.n_seqs = fuzz_u8(tape) % SEQS_MAX};
    for (size_t i = 0; i < made_batch.n_seqs; i++) {
        tl_forward_seq *a = &made_batch.a[i];
        const uint8_t start = fuzz_u8(tape);
        a->n_tokens = fuzz_u8(tape) % TOKENS_MAX;
        a->start = start == 255 ? SIZE_MAX - 1 : start % (CONTEXT + 2);
        uint32_t *tokens = fuzz_alloc(a->n_tokens * sizeof *tokens);
        for (size_t k = 0; k < a->n_tokens; k++) {
            const uint8_t byte = fuzz_u8(tape);
            tokens[k] = byte == 255 ? (uint32_t)s->r->vocab : byte % (uint32_t)s->r->vocab;
        }
        a->tokens = tokens;
        made_batch.b[i] = *a;
        read_table(s, tape, a, &made_batch.b[i]);
        made_batch.n_tokens += a->n_tokens;
    }
    return made_batch;
}

static void clear_batch(batch *made_batch) {
    for (size_t i = 0; i < made_batch->n_seqs; i++) {
        free((void *)(uintptr_t)made_batch->a[i].tokens);
        free((void *)(uintptr_t)made_batch->a[i].blocks);
        free((void *)(uintptr_t)made_batch->b[i].blocks);
    }
}

/* Within 1e-3 of the largest, as forward#tolerance has it; two NaN or two equal values are near,
 * and where one side has left the finite nothing is said. */
static bool is_near(const float *x, const float *y, size_t n) {
    float largest = 0.0f;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]) || !isfinite(y[i])) {
            return true;
        }
        largest = fabsf(y[i]) > largest ? fabsf(y[i]) : largest;
    }
    for (size_t i = 0; i < n; i++) {
        if (fabsf(x[i] - y[i]) > 1e-3f * largest) {
            return false;
        }
    }
    return true;
}

/* What one call of forward gives. */
typedef struct result {
    tl_status status;
    tl_logits logits;
    float *hidden;
    size_t n_hidden;
} result;

static result forward_by(const host_api *tl, const stage *s, const tl_model *model,
                         tl_kv_pool *pool, tl_scratch *scratch, const tl_forward_batch *seqs,
                         size_t n_tokens, tl_error *err) {
    result r = {.n_hidden = n_tokens * s->r->d};
    r.hidden = fuzz_alloc(r.n_hidden * sizeof(float));
    if (tl->logits_init(&r.logits, SEQS_MAX - 1, s->r->vocab, NULL) != TL_OK) {
        (void)fuzz_wrong(s->p.f, "there is no room for logits");
    }
    r.status = tl->forward(tl->model_config_of(model), tl->model_weights(model), pool, scratch,
                           seqs, r.n_hidden == 0 ? NULL : r.hidden, r.n_hidden, &r.logits, err);
    return r;
}

static void clear_result(const host_api *tl, result *r) {
    tl->logits_clear(&r->logits);
    free(r->hidden);
}

/* The same step once more, by the other kernels: a rewind that overwrites what is there. */
static void step_again(stage *s, const tl_forward_batch *a, size_t n_tokens, const result *first) {
    pool_picture before = pools_picture(&s->p);
    result again = forward_by(s->p.f->tl, s, s->model_a, s->p.a, s->a_portable, a, n_tokens, NULL);
    if (again.status != TL_OK || again.logits.n_rows != first->logits.n_rows ||
        !fuzz_same_floats(again.logits.data, first->logits.data,
                          first->logits.n_rows * first->logits.vocab) ||
        !fuzz_same_floats(again.hidden, first->hidden, first->n_hidden)) {
        (void)fuzz_wrong(s->p.f, "forward: the same step again, portable: %s, or other bits",
                         s->p.f->tl->status_name(again.status));
    }
    pools_unchanged(&s->p, "the same step again", &before);
    clear_result(s->p.f->tl, &again);
}

static void forward(stage *s, fuzz_tape *tape) {
    fuzz_case *f = s->p.f;
    batch made_batch = read_batch(s, tape);
    const tl_forward_batch a = {made_batch.a, made_batch.n_seqs};
    const tl_forward_batch b = {made_batch.b, made_batch.n_seqs};
    const size_t n = made_batch.n_tokens;
    tl_error err = fuzz_error();
    pool_picture before = pools_picture(&s->p);
    const tl_status checked =
        f->tl->forward_check(f->tl->model_config_of(s->model_a), s->p.a, s->a, &a, &err);
    result x = forward_by(f->tl, s, s->model_a, s->p.a, s->a, &a, n, &err);
    fuzz_check_error(f, "forward", x.status, &err, 0);
    result y = forward_by(f->second, s, s->model_b, s->p.b, s->b, &b, n, NULL);
    if (checked != x.status) {
        (void)fuzz_wrong(f, "forward: %s, the check says %s", f->tl->status_name(x.status),
                         f->tl->status_name(checked));
    }
    if (fuzz_agree(f, "forward", x.status, y.status)) {
        bool near = x.logits.n_rows == y.logits.n_rows && is_near(x.hidden, y.hidden, x.n_hidden);
        for (size_t i = 0; near && i < x.logits.n_rows; i++) {
            near = is_near(f->tl->logits_row(&x.logits, i), f->second->logits_row(&y.logits, i),
                           s->r->vocab);
        }
        if (!near) {
            (void)fuzz_wrong(f, "forward: logits or hidden states are not within the bound");
        }
        step_again(s, &a, n, &x);
        pools_take_slabs(&s->p);
    } else if (x.status != TL_OK) {
        pools_unchanged(&s->p, "forward", &before);
    }
    free(before.bytes);
    clear_result(f->tl, &x);
    clear_result(f->second, &y);
    clear_batch(&made_batch);
}

/* A pool of the model's shape, mostly; limits that a batch can pass. */
static bool begin(stage *s, fuzz_case *f, fuzz_tape *tape, made m[2]) {
    const uint8_t which = fuzz_u8(tape);
    const size_t i = which % N_RECIPES;
    memset(s, 0, sizeof *s);
    s->p.f = f;
    s->r = &recipes[i];
    s->model_a = model_of(f, f->tl, &m[0], i);
    s->model_b = model_of(f, f->second, &m[1], i);
    s->p.cfg = (tl_kv_cfg){.n_blocks = fuzz_u8(tape) % 16 + 1,
                           .block_tokens = fuzz_u8(tape) % 5 + 1,
                           .n_layers = (uint32_t)s->r->layers + (which == 255 ? 1 : 0),
                           .n_kv_heads = (uint32_t)s->r->kv_heads,
                           .head_dim = (uint32_t)s->r->head_dim,
                           .dtype = TL_KV_DTYPE_F16,
                           .format = TL_KV_FORMAT_V1,
                           .prefix_cache = TL_PREFIX_CACHE_ON};
    s->limits = (tl_limits){.max_batch_tokens = fuzz_u8(tape) % 16 + 1,
                            .max_seqs = fuzz_u8(tape) % 4 + 1,
                            .n_threads = 1,
                            .isa = TL_ISA_AUTO,
                            .max_context = fuzz_u8(tape) % (CONTEXT + 1),
                            .max_blocks = 16};
    tl_limits portable = s->limits;
    portable.isa = TL_ISA_PORTABLE;
    const tl_model_config *cfg = f->tl->model_config_of(s->model_a);
    return s->model_a != NULL && s->model_b != NULL &&
           f->tl->kv_pool_new(&s->p.a, &s->p.cfg, NULL) == TL_OK &&
           f->second->kv_pool_new(&s->p.b, &s->p.cfg, NULL) == TL_OK &&
           f->tl->scratch_new(&s->a, cfg, &s->limits, NULL) == TL_OK &&
           f->tl->scratch_new(&s->a_portable, cfg, &portable, NULL) == TL_OK &&
           f->second->scratch_new(&s->b, f->second->model_config_of(s->model_b), &s->limits,
                                  NULL) == TL_OK;
}

static void run(fuzz_case *f, const uint8_t *data, size_t n) {
    static made m[2];
    fuzz_tape tape = {.data = data, .n = n};
    stage s;
    if (!begin(&s, f, &tape, m)) {
        (void)fuzz_wrong(f, "a model, a pool or a scratch of the target cannot be made");
    }
    for (size_t i = 0; i < STEPS_MAX && !fuzz_ended(&tape) && f->wrong[0] == '\0'; i++) {
        if (fuzz_u8(&tape) % 2 == 0) {
            pools_step(&s.p, &tape);
        } else {
            forward(&s, &tape);
        }
    }
    if (f->wrong[0] == '\0') {
        pools_compare(&s.p);
    }
    f->tl->scratch_free(s.a);
    f->tl->scratch_free(s.a_portable);
    f->second->scratch_free(s.b);
    pools_free(&s.p);
}

const fuzz_target fuzz_forward = {.name = "forward", .run = run};
