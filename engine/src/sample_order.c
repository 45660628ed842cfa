/* sample_order.c: one pass that throws ids into buckets, then a merge sort inside the buckets that are needed.
 *
 * The bucket of an id is a rounded, but monotone, function of t: an id of an earlier bucket never has a
 * smaller t than one of a later bucket, and equal t share a bucket. So only the comparison below decides
 * the order, and the choice of widths decides nothing but the time.
 *
 * Source: conformance/spec/sampling.md, steps 7 and 8. */
#include "sample_order.h"

#include <stdlib.h>
#include <string.h>

#include "util.h"

#define N_BUCKETS 8192u
#define LAST_BUCKET (N_BUCKETS - 1u)
/* Runs of this length are sorted by insertion, longer ones by merging. */
#define RUN_LENGTH 16u

bool tli_order_before(const double *t, uint32_t a, uint32_t b) {
    if (t[a] > t[b]) {
        return true;
    }
    if (t[a] < t[b]) {
        return false;
    }
    return a < b;
}

bool tli_order_init(tli_order *order, const double *t, size_t n) {
    order->n = n;
    order->t = t;
    order->ids = tli_calloc(n, sizeof *order->ids);
    order->spare = tli_calloc(n, sizeof *order->spare);
    order->bucket_of = tli_calloc(n, sizeof *order->bucket_of);
    order->bucket_end = tli_calloc(N_BUCKETS, sizeof *order->bucket_end);
    return order->ids != NULL && order->spare != NULL && order->bucket_of != NULL &&
           order->bucket_end != NULL;
}

void tli_order_clear(tli_order *order) {
    free(order->ids);
    free(order->spare);
    free(order->bucket_of);
    free(order->bucket_end);
    *order = (tli_order){0};
}

/* Buckets for each unit of distance, so that most ids share the buckets evenly: the last one begins at four
 * times the mean distance of the ids within reach, which a few far ids (masks of -1e30) cannot spoil. */
static double buckets_per_unit(const tli_order *order, double top, double reach) {
    double sum = 0.0;
    double n_near = 0.0;
    for (size_t i = 0; i < order->n; i++) {
        const double distance = top - order->t[i];
        const bool near = distance <= reach;
        sum += near ? distance : 0.0;
        n_near += near ? 1.0 : 0.0;
    }
    const double width = 4.0 * sum / n_near; /* n_near >= 1: the top itself */
    return width > 0.0 ? LAST_BUCKET / width : 0.0;
}

/* An infinite distance, and the NaN of infinity times 0, land in the last bucket: both comparisons fail. */
static uint16_t bucket_of_distance(double distance, double per_unit) {
    const double place = distance * per_unit;
    return place < LAST_BUCKET ? (uint16_t)place : (uint16_t)LAST_BUCKET;
}

void tli_order_begin(tli_order *order, double top, double reach) {
    const double per_unit = buckets_per_unit(order, top, reach);
    size_t *end = order->bucket_end;
    memset(end, 0, N_BUCKETS * sizeof *end);
    for (size_t i = 0; i < order->n; i++) {
        const uint16_t bucket = bucket_of_distance(top - order->t[i], per_unit);
        order->bucket_of[i] = bucket;
        end[bucket]++;
    }
    size_t begin = 0;
    for (size_t b = 0; b < N_BUCKETS; b++) {
        const size_t count = end[b];
        end[b] = begin;
        begin += count;
    }
    /* Each id moves its bucket's end on, from the bucket's begin to where it belongs. */
    for (size_t i = 0; i < order->n; i++) {
        order->ids[end[order->bucket_of[i]]++] = (uint32_t)i;
    }
    order->n_sorted = 0;
    order->next_bucket = 0;
}

static void insertion_sort(uint32_t *ids, size_t n, const double *t) {
    for (size_t i = 1; i < n; i++) {
        const uint32_t id = ids[i];
        size_t place = i;
        while (place > 0 && tli_order_before(t, id, ids[place - 1])) {
            ids[place] = ids[place - 1];
            place--;
        }
        ids[place] = id;
    }
}

/* Merge the sorted halves ids[0..half) and ids[half..n) by way of spare. */
static void merge_halves(uint32_t *ids, uint32_t *spare, size_t half, size_t n, const double *t) {
    if (tli_order_before(t, ids[half - 1], ids[half])) {
        return; /* in order as it stands: many equal logits, whose ids ascend already */
    }
    memcpy(spare, ids, half * sizeof *ids);
    size_t left = 0;
    size_t right = half;
    size_t place = 0;
    while (left < half && right < n) {
        const bool take_right = tli_order_before(t, ids[right], spare[left]);
        ids[place++] = take_right ? ids[right++] : spare[left++];
    }
    memcpy(ids + place, spare + left, (half - left) * sizeof *ids);
}

static void sort_ids(uint32_t *ids, uint32_t *spare, size_t n, const double *t) {
    for (size_t begin = 0; begin < n; begin += RUN_LENGTH) {
        const size_t n_left = n - begin;
        insertion_sort(ids + begin, n_left < RUN_LENGTH ? n_left : RUN_LENGTH, t);
    }
    for (size_t run = RUN_LENGTH; run < n; run *= 2) {
        for (size_t begin = 0; begin + run < n; begin += 2 * run) {
            const size_t n_left = n - begin;
            merge_halves(ids + begin, spare, run, n_left < 2 * run ? n_left : 2 * run, t);
        }
    }
}

uint32_t tli_order_at(tli_order *order, size_t i) {
    TLI_ASSERT(i < order->n);
    while (order->n_sorted <= i) {
        const size_t begin = order->n_sorted;
        const size_t end = order->bucket_end[order->next_bucket];
        sort_ids(order->ids + begin, order->spare, end - begin, order->t);
        order->n_sorted = end;
        order->next_bucket++;
    }
    return order->ids[i];
}
