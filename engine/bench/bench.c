/* bench.c: how fast the engine is on this machine, as shares of what the machine can do: a prefill
 * of 512 tokens against the peak of the multiply-add units, decode against the rate of reading
 * memory.
 *
 * Every round measures both limits and both tasks, one right after the other, and a share is formed
 * inside its round: on a shared machine only that means anything. What is printed is the median of
 * the rounds. Nothing here passes or fails.
 *
 *   tl-bench [--quick]
 *
 * Source: none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define ROUNDS_MAX 9u
#define BLOCK_TOKENS 16u
#define DECODE_CONTEXT ((size_t)128)

typedef struct plan {
    size_t n_rounds;
    size_t n_prefill; /* tokens of a prefill */
    size_t n_decode;  /* tokens decoded behind DECODE_CONTEXT */
} plan;

/* What the rounds of one kind of weights with one number of threads gave. */
typedef struct results {
    double peak[ROUNDS_MAX];          /* GFLOP/s */
    double read_rate[ROUNDS_MAX];     /* GB/s */
    double prefill[ROUNDS_MAX];       /* tokens/s */
    double prefill_share[ROUNDS_MAX]; /* of the peak */
    double decode[ROUNDS_MAX];        /* tokens/s */
    double decode_share[ROUNDS_MAX];  /* of the read rate */
} results;

typedef struct engine {
    const bench_model *m;
    tl_kv_pool *pool;
    tl_scratch *scratch;
    tl_logits logits;
    uint32_t *blocks;
    size_t n_blocks;
    uint32_t *tokens;
} engine;

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *x, size_t n) {
    qsort(x, n, sizeof *x, compare_doubles);
    return n % 2 == 1 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* ------------------------------------------------------------------ the engine under test */

static void engine_free(engine *e) {
    tl_logits_clear(&e->logits);
    tl_scratch_free(e->scratch);
    tl_kv_pool_free(e->pool);
    free(e->blocks);
    free(e->tokens);
}

static tl_status engine_new(engine *e, const bench_model *m, const plan *p, size_t n_threads,
                            tl_error *err) {
    const tl_model_config *cfg = tl_model_config_of(m->model);
    const size_t longest =
        p->n_prefill > DECODE_CONTEXT + p->n_decode ? p->n_prefill : DECODE_CONTEXT + p->n_decode;
    *e = (engine){.m = m, .n_blocks = longest / BLOCK_TOKENS + 1};
    const tl_kv_cfg pool = {.n_blocks = (uint32_t)e->n_blocks,
                            .block_tokens = BLOCK_TOKENS,
                            .n_layers = (uint32_t)cfg->n_layers,
                            .n_kv_heads = (uint32_t)cfg->n_kv_heads,
                            .head_dim = (uint32_t)cfg->head_dim,
                            .dtype = TL_KV_DTYPE_F16,
                            .format = TL_KV_FORMAT_V1};
    const tl_limits limits = {.max_batch_tokens = p->n_prefill,
                              .max_seqs = 1,
                              .n_threads = n_threads,
                              .max_blocks = (uint32_t)e->n_blocks};
    e->blocks = calloc(e->n_blocks, sizeof *e->blocks);
    e->tokens = calloc(longest + 1, sizeof *e->tokens);
    if (e->blocks == NULL || e->tokens == NULL) {
        (void)snprintf(err->text, sizeof err->text, "no memory");
        return TL_ERR_NOMEM;
    }
    for (size_t i = 0; i <= longest; i++) {
        e->tokens[i] = (uint32_t)(i * 7919 % cfg->vocab_size);
    }
    tl_status status = tl_kv_pool_new(&e->pool, &pool, err);
    status = status == TL_OK ? tl_scratch_new(&e->scratch, cfg, &limits, err) : status;
    status = status == TL_OK ? tl_logits_init(&e->logits, 1, cfg->vocab_size, err) : status;
    return status == TL_OK ? tl_kv_pool_alloc(e->pool, e->blocks, e->n_blocks, err) : status;
}

static tl_status step(engine *e, size_t start, size_t n, tl_error *err) {
    const tl_forward_seq seq = {e->tokens + start, n, start, e->blocks, e->n_blocks};
    const tl_forward_batch batch = {&seq, 1};
    return tl_forward(tl_model_config_of(e->m->model), tl_model_weights(e->m->model), e->pool,
                      e->scratch, &batch, NULL, 0, &e->logits, err);
}

/* Seconds of a prefill of n tokens from position 0. */
static tl_status time_prefill(engine *e, size_t n, double *seconds, tl_error *err) {
    const double begin = bench_now();
    const tl_status status = step(e, 0, n, err);
    *seconds = bench_now() - begin;
    return status;
}

/* Seconds of n tokens one by one behind DECODE_CONTEXT. */
static tl_status time_decode(engine *e, size_t n, double *seconds, tl_error *err) {
    tl_status status = step(e, 0, DECODE_CONTEXT, err);
    const double begin = bench_now();
    for (size_t i = 0; status == TL_OK && i < n; i++) {
        status = step(e, DECODE_CONTEXT + i, 1, err);
    }
    *seconds = bench_now() - begin;
    return status;
}

/* ------------------------------------------------------------------ rounds */

/* Multiply-adds of a prefill: the layers' weights for every token, attention's two products with
 * the keys that each token sees, the head for one row. */
static double prefill_work(const bench_model *m, size_t n) {
    const tl_model_config *cfg = tl_model_config_of(m->model);
    const double n_pairs = (double)n * (double)(n + 1) / 2;
    const double attention = n_pairs * 2.0 * (double)(cfg->n_layers * cfg->n_heads * cfg->head_dim);
    return (double)n * m->n_layer_weights + attention + m->n_head_weights;
}

static tl_status run_round(engine *e, const plan *p, size_t n_threads, results *r, size_t i,
                           tl_error *err) {
    double prefill = 0;
    double decode = 0;
    r->peak[i] = bench_fma_peak(n_threads);
    tl_status status = time_prefill(e, p->n_prefill, &prefill, err);
    if (status != TL_OK) {
        return status;
    }
    r->read_rate[i] = bench_read_rate(e->m->file, e->m->n_file, n_threads);
    status = time_decode(e, p->n_decode, &decode, err);
    r->prefill[i] = (double)p->n_prefill / prefill;
    r->prefill_share[i] = 2 * prefill_work(e->m, p->n_prefill) / prefill / 1e9 / r->peak[i];
    r->decode[i] = (double)p->n_decode / decode;
    r->decode_share[i] =
        e->m->n_weight_bytes * (double)p->n_decode / decode / 1e9 / r->read_rate[i];
    return status;
}

static const char *const kind_names[] = {"F32", "BF16", "int4"};

static void print_row(bench_kind kind, size_t n_threads, results *r, size_t n) {
    /* The goals are set for one thread: with more, the memory's state decides. */
    const bool has_prefill_goal = kind == BENCH_F32 && n_threads == 1;
    const bool has_decode_goal = kind != BENCH_INT4 && n_threads == 1;
    printf("%-7s %7zu   %8.1f %6.2f %6s   %8.1f %6.2f %6s   %9.1f %8.1f\n", kind_names[kind],
           n_threads, bench_median(r->prefill, n), bench_median(r->prefill_share, n),
           has_prefill_goal ? "0.60" : "", bench_median(r->decode, n),
           bench_median(r->decode_share, n), has_decode_goal ? "0.60" : "",
           bench_median(r->peak, n), bench_median(r->read_rate, n));
    (void)fflush(stdout);
}

/* One kind of weights with 1 and 2 threads, the rounds of both interleaved. */
static tl_status run_kind(const bench_model *m, bench_kind kind, const plan *p, tl_error *err) {
    static results all[2];
    engine engines[2] = {{0}};
    tl_status status = engine_new(&engines[0], m, p, 1, err);
    status = status == TL_OK ? engine_new(&engines[1], m, p, 2, err) : status;
    for (size_t i = 0; status == TL_OK && i < p->n_rounds; i++) {
        for (size_t t = 0; status == TL_OK && t < 2; t++) {
            (void)fprintf(stderr, "\r%s: round %zu of %zu, %zu thread%s  ", kind_names[kind], i + 1,
                          p->n_rounds, t + 1, t == 0 ? " " : "s");
            status = run_round(&engines[t], p, t + 1, &all[t], i, err);
        }
    }
    (void)fprintf(stderr, "\r%40s\r", "");
    for (size_t t = 0; t < 2; t++) {
        if (status == TL_OK) {
            print_row(kind, t + 1, &all[t], p->n_rounds);
        }
        engine_free(&engines[t]);
    }
    return status;
}

static void print_head(const plan *p) {
    tl_isa isa = TL_ISA_PORTABLE;
    if (tl_isa_resolve(TL_ISA_AUTO, &isa, NULL) != TL_OK) {
        isa = TL_ISA_AUTO; /* cannot happen: portable kernels are always there */
    }
    printf("tl %s, kernels %s; SmolLM2-135M's shape, random weights; medians of %zu rounds\n",
           tl_version(), tl_isa_name(isa), p->n_rounds);
    printf(
        "prefill of %zu tokens, as a share of the FMA peak; decode of %zu tokens behind %zu, as a "
        "share of the read rate\n\n",
        p->n_prefill, p->n_decode, DECODE_CONTEXT);
    printf("%-7s %7s   %8s %6s %6s   %8s %6s %6s   %9s %8s\n", "weights", "threads", "prefill",
           "of", "goal", "decode", "of", "goal", "peak", "read");
    printf("%-7s %7s   %8s %6s %6s   %8s %6s %6s   %9s %8s\n", "", "", "tok/s", "peak", "", "tok/s",
           "read", "", "GFLOP/s", "GB/s");
    (void)fflush(stdout);
}

static int run_all(const plan *p) {
    print_head(p);
    for (int kind = BENCH_F32; kind <= BENCH_INT4; kind++) {
        bench_model m;
        tl_error err = {0};
        (void)fprintf(stderr, "\r%s: making weights  ", kind_names[kind]);
        const char *reason = bench_model_new(&m, (bench_kind)kind);
        if (reason == NULL && run_kind(&m, (bench_kind)kind, p, &err) != TL_OK) {
            reason = err.text;
        }
        if (reason != NULL) {
            (void)fprintf(stderr, "tl-bench: %s: %s\n", kind_names[kind], reason);
            bench_model_free(&m);
            return 1;
        }
        bench_model_free(&m);
    }
    return 0;
}

int main(int argc, char **argv) {
    plan p = {.n_rounds = 5, .n_prefill = 512, .n_decode = 32};
    if (argc == 2 && strcmp(argv[1], "--quick") == 0) {
        p = (plan){.n_rounds = 1, .n_prefill = 128, .n_decode = 8};
    } else if (argc != 1) {
        (void)fprintf(stderr, "usage: %s [--quick]\n", argv[0]);
        return 2;
    }
    return run_all(&p);
}
