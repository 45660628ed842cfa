/* sample_order.c: one pass that throws ids into buckets, then a merge sort inside the buckets
 * that are needed.
 *
 * The bucket of an id is a rounded, but monotone, function of t: an id of an earlier bucket
 * never has a smaller t than one of a later bucket, and equal t share a bucket. So only the
 * comparison below decides the order, and the choice of widths decides nothing but the time.
 *
 * Source: conformance/spec/sampling.md, steps 7 and 8. */
#include "sample_order.h"

#include <stdlib.h>
#include <string.h>

#include "util.h"

/* About one id a bucket; the number of a bucket is a u16. */
#define MAX_BUCKETS 65536u
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
    order->n_buckets = n < MAX_BUCKETS ? n : MAX_BUCKETS;
    order->t = t;
    order->ids = tli_calloc(n, sizeof *order->ids);
    order->spare = tli_calloc(n, sizeof *order->spare);
    order->bucket_of = tli_calloc(n, sizeof *order->bucket_of);
    order->bucket_end = tli_calloc(order->n_buckets, sizeof *order->bucket_end);
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

/* Buckets for each unit of distance, so that most ids share the buckets evenly: the last one
 * begins at three times the mean distance of the ids within reach, which a few far ids (masks of
 * -1e30) cannot spoil. */
static double buckets_per_unit(const tli_order *order, double top, double reach) {
    double sum = 0.0;
    double n_near = 0.0;
    for (size_t i = 0; i < order->n; i++) {
        const double distance = top - order->t[i];
        const bool near = distance <= reach;
        sum += near ? distance : 0.0;
        n_near += near ? 1.0 : 0.0;
    }
    const double width = 3.0 * sum / n_near; /* n_near >= 1: the top itself */
    const double last = (double)(order->n_buckets - 1);
    return width > 0.0 ? last / width : 0.0;
}

/* An infinite distance, and the NaN of infinity times 0, land in the last bucket: the comparison
 * fails. */
static uint16_t bucket_of_distance(double distance, double per_unit, double last) {
    const double place = distance * per_unit;
    return (uint16_t)(place < last ? place : last);
}

void tli_order_begin(tli_order *order, double top, double reach) {
    const double per_unit = buckets_per_unit(order, top, reach);
    const double last = (double)(order->n_buckets - 1);
    uint32_t *end = order->bucket_end;
    memset(end, 0, order->n_buckets * sizeof *end);
    for (size_t i = 0; i < order->n; i++) {
        const uint16_t bucket = bucket_of_distance(top - order->t[i], per_unit, last);
        order->bucket_of[i] = bucket;
        end[bucket]++;
    }
    uint32_t begin = 0;
    for (size_t b = 0; b < order->n_buckets; b++) {
        const uint32_t count = end[b];
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

/* Sort some more ids: whole buckets, enough of them to be worth the call. */
static void sort_more(tli_order *order) {
    const size_t begin = order->n_sorted;
    size_t end = begin;
    while (end - begin < RUN_LENGTH && end < order->n) {
        end = order->bucket_end[order->next_bucket];
        order->next_bucket++;
    }
    sort_ids(order->ids + begin, order->spare, end - begin, order->t);
    order->n_sorted = end;
}

uint32_t tli_order_at(tli_order *order, size_t i) {
    TLI_ASSERT(i < order->n);
    while (order->n_sorted <= i) {
        sort_more(order);
    }
    return order->ids[i];
}
