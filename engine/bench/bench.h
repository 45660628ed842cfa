/* bench.h: what the parts of tl-bench share.
 *
 * Source: none; the figures are ratios to what the machine did in the same round. */
#ifndef BENCH_H
#define BENCH_H

#include "tl/tl.h"

double bench_now(void); /* seconds, monotonic */

/* The middle of n numbers, which are sorted in place. */
double bench_median(double *x, size_t n);

/* ------------------------------------------------------------------ bench_limits.c */

/* f32 multiply-adds of n_threads threads together, in GFLOP/s (a multiply-add is two). */
double bench_fma_peak(size_t n_threads);

/* Bytes per second, in GB/s, that n_threads threads together read from memory. bytes is much larger
 * than the caches. */
double bench_read_rate(const uint8_t *bytes, size_t n_bytes, size_t n_threads);

/* ------------------------------------------------------------------ bench_model.c */

typedef enum bench_kind { BENCH_F32 = 0, BENCH_BF16 = 1, BENCH_INT4 = 2 } bench_kind;

/* A model of SmolLM2-135M's shape with random weights, loaded from memory through the public
 * way. */
typedef struct bench_model {
    tl_model *model;
    uint8_t *file; /* what the model points into */
    size_t n_file;
    double n_layer_weights; /* multiply-adds of the layers for one token */
    double n_head_weights;  /* of the head for one row */
    double n_weight_bytes;  /* that one decoded token reads */
} bench_model;

/* NULL or the reason why it could not be made. */
const char *bench_model_new(bench_model *out, bench_kind kind);
void bench_model_free(bench_model *model);

#endif
