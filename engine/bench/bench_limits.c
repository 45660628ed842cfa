/* bench_limits.c: what the machine can do: multiply-adds in registers, and reading from memory.
 *
 * The peak runs 12 independent chains of 8 lanes, which is what hides the latency of an FMA on
 * every CPU with AVX2; elsewhere the compiler's fmaf is measured, which says little.
 *
 * Source: none. */
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define THREADS_MAX 64u
#define N_READS 4u
#define N_FMA 6000000u /* steps of 12 FMAs of 8 lanes: about 15 ms */

typedef struct job {
    void (*run)(struct job *job);
    const uint8_t *bytes;
    size_t n_bytes;
    pthread_barrier_t *start;
    double seconds;
    uint64_t result; /* so that no work is dead */
} job;

double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void fma_job(job *j) {
    __m256 chain[12];
    const __m256 factor = _mm256_set1_ps(0.999f);
    const __m256 term = _mm256_set1_ps(0.001f);
    for (size_t i = 0; i < 12; i++) {
        chain[i] = _mm256_set1_ps((float)i);
    }
    for (uint32_t n = 0; n < N_FMA; n++) {
        _Pragma("GCC unroll 12") for (size_t i = 0; i < 12; i++) {
            chain[i] = _mm256_fmadd_ps(chain[i], factor, term);
        }
    }
    __m256 sum = chain[0];
    for (size_t i = 1; i < 12; i++) {
        sum = _mm256_add_ps(sum, chain[i]);
    }
    j->result = _mm256_cvtss_f32(sum) > 0.0f;
}

__attribute__((target("avx2"))) static void read_job(job *j) {
    __m256i sum[8];
    for (size_t i = 0; i < 8; i++) {
        sum[i] = _mm256_setzero_si256();
    }
    for (size_t at = 0; at + 256 <= j->n_bytes; at += 256) {
        _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) {
            const void *p = j->bytes + at + 32 * i;
            sum[i] = _mm256_xor_si256(sum[i], _mm256_loadu_si256(p));
        }
    }
    for (size_t i = 0; i < 8; i++) {
        j->result ^= (uint64_t)_mm256_extract_epi64(sum[i], 0);
    }
}
#else

static void fma_job(job *j) {
    float chain[96];
    for (size_t i = 0; i < 96; i++) {
        chain[i] = (float)i;
    }
    for (uint32_t n = 0; n < N_FMA; n++) {
        for (size_t i = 0; i < 96; i++) {
            chain[i] = fmaf(chain[i], 0.999f, 0.001f);
        }
    }
    for (size_t i = 0; i < 96; i++) {
        j->result += chain[i] > 0.0f;
    }
}

static void read_job(job *j) {
    for (size_t at = 0; at + 8 <= j->n_bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, j->bytes + at, sizeof word);
        j->result ^= word;
    }
}
#endif

static void *thread_main(void *arg) {
    job *j = arg;
    pthread_barrier_wait(j->start);
    const double begin = bench_now();
    j->run(j);
    j->seconds = bench_now() - begin;
    return NULL;
}

/* Run the jobs at the same time; seconds that the slowest took, or 0 when a thread could not
 * start. */
static double run_together(job *jobs, size_t n) {
    pthread_t threads[THREADS_MAX];
    pthread_barrier_t start;
    double slowest = 0;
    if (pthread_barrier_init(&start, NULL, (unsigned)n) != 0) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        jobs[i].start = &start;
    }
    size_t n_started = 1; /* the caller does the first */
    while (n_started < n &&
           pthread_create(&threads[n_started], NULL, thread_main, &jobs[n_started]) == 0) {
        n_started++;
    }
    if (n_started == n) {
        thread_main(&jobs[0]);
        for (size_t i = 1; i < n; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    for (size_t i = 0; i < n; i++) {
        slowest = jobs[i].seconds > slowest ? jobs[i].seconds : slowest;
    }
    return n_started == n ? slowest : 0;
}

double bench_fma_peak(size_t n_threads) {
    job jobs[THREADS_MAX] = {{0}};
    for (size_t i = 0; i < n_threads; i++) {
        jobs[i].run = fma_job;
    }
    const double seconds = run_together(jobs, n_threads);
    return seconds > 0 ? 12.0 * 8.0 * 2.0 * N_FMA * (double)n_threads / seconds / 1e9 : 0;
}

double bench_read_rate(const uint8_t *bytes, size_t n_bytes, size_t n_threads) {
    job jobs[THREADS_MAX] = {{0}};
    const size_t n_each = n_bytes / n_threads;
    for (size_t i = 0; i < n_threads; i++) {
        jobs[i].run = read_job;
        jobs[i].bytes = bytes + i * n_each;
        jobs[i].n_bytes = n_each;
    }
    /* The best of some passes: decoding reads the same bytes again and again, too, and a part of
     * them may lie in a large cache. */
    double best = 0;
    for (size_t pass = 0; pass < N_READS; pass++) {
        const double seconds = run_together(jobs, n_threads);
        const double rate = seconds > 0 ? (double)(n_each * n_threads) / seconds / 1e9 : 0;
        best = rate > best ? rate : best;
    }
    return best;
}
