/* naive_sampler.c: see naive_sampler.h. Compiled like the engine: contraction off, every operation
 * rounds once. */
#include "naive_sampler.h"

#include "naive_rng.h"

#include <math.h>
#include <stdlib.h>

naive_params naive_params_off(void) {
    naive_params params = {.temperature = 1.0, .top_p = 1.0, .repetition = 1.0};
    return params;
}

static size_t count_in(const uint32_t *ids, size_t n, size_t id) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ids[i] == id ? 1 : 0;
    }
    return count;
}

/* Steps 1 to 3. */
static void penalise(const naive_input *in, double *l) {
    const naive_params *p = &in->params;
    for (size_t i = 0; i < in->n; i++) {
        l[i] = (double)in->x[i];
    }
    if (in->n_prompt + in->n_output == 0) {
        return;
    }
    for (size_t i = 0; i < in->n; i++) {
        size_t count = count_in(in->output, in->n_output, i);
        if (count + count_in(in->prompt, in->n_prompt, i) > 0) {
            l[i] = l[i] > 0 ? l[i] / p->repetition : l[i] * p->repetition;
        }
        if (count > 0) {
            double product = p->frequency * (double)count;
            double loss = product + p->presence;
            l[i] = l[i] - loss;
        }
    }
}

static double largest(const double *v, size_t n) {
    double max = v[0];
    for (size_t i = 1; i < n; i++) {
        max = v[i] > max ? v[i] : max;
    }
    return max;
}

/* Step 4. */
static void take_logprobs(const double *l, size_t n, double *logprob) {
    double max = largest(l, n);
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum = sum + exp(l[i] - max);
    }
    /* cppcheck-suppress invalidFunctionArg ; the largest l's own term is 1 */
    double log_sum = log(sum);
    for (size_t i = 0; i < n; i++) {
        double shifted = l[i] - max;
        logprob[i] = shifted - log_sum;
    }
}

typedef struct ranked {
    double t;
    size_t id;
} ranked;

static int by_t_then_id(const void *a, const void *b) {
    const ranked *x = a;
    const ranked *y = b;
    if (x->t != y->t) {
        return x->t > y->t ? -1 : 1;
    }
    return x->id < y->id ? -1 : 1;
}

static void rank(ol_test *t, naive_result *r) {
    ranked *all = ol_alloc(t, r->n * sizeof *all);
    for (size_t i = 0; i < r->n; i++) {
        all[i] = (ranked){.t = r->t[i], .id = i};
    }
    qsort(all, r->n, sizeof *all, by_t_then_id);
    for (size_t i = 0; i < r->n; i++) {
        r->order[i] = all[i].id;
    }
}

/* The mass of the ids that are kept now, over their sum, ids ascending: steps 8 and 10. */
static void weigh(const naive_result *r, double *mass) {
    double max = r->t[r->order[0]];
    double sum = 0.0;
    for (size_t i = 0; i < r->n; i++) {
        if (r->kept[i]) {
            sum = sum + exp(r->t[i] - max);
        }
    }
    for (size_t i = 0; i < r->n; i++) {
        mass[i] = r->kept[i] ? exp(r->t[i] - max) / sum : 0.0;
    }
}

static void top_k(naive_result *r, uint64_t k) {
    bool off = k == 0 || k >= r->n;
    for (size_t i = 0; i < r->n; i++) {
        r->kept[r->order[i]] = off || i < k;
    }
}

static void top_p(naive_result *r, double p) {
    if (p >= 1.0) {
        return;
    }
    double c = 0.0;
    bool reached = false;
    for (size_t i = 0; i < r->n; i++) {
        size_t id = r->order[i];
        if (reached || !r->kept[id]) {
            r->kept[id] = false;
            continue;
        }
        c = c + r->q[id];
        reached = c >= p;
    }
}

static void min_p(naive_result *r, double m) {
    double max = 0.0;
    for (size_t i = 0; i < r->n; i++) {
        max = r->kept[i] && r->q[i] > max ? r->q[i] : max;
    }
    for (size_t i = 0; m > 0.0 && i < r->n; i++) {
        r->kept[i] = r->kept[i] && r->q[i] >= m * max;
    }
}

naive_result naive_sample(ol_test *t, const naive_input *in) {
    size_t bytes = in->n * sizeof(double);
    naive_result r = {.n = in->n,
                      .l = ol_alloc(t, bytes),
                      .logprob = ol_alloc(t, bytes),
                      .t = ol_alloc(t, bytes),
                      .order = ol_alloc(t, in->n * sizeof(size_t)),
                      .q = ol_alloc(t, bytes),
                      .kept = ol_alloc(t, in->n * sizeof(bool)),
                      .p = ol_alloc(t, bytes)};
    r.greedy = in->params.temperature == 0.0;
    penalise(in, r.l);
    take_logprobs(r.l, r.n, r.logprob);
    for (size_t i = 0; i < r.n; i++) {
        r.t[i] = r.greedy ? r.l[i] : r.l[i] / in->params.temperature;
    }
    rank(t, &r);
    if (r.greedy) {
        return r;
    }
    top_k(&r, in->params.top_k);
    weigh(&r, r.q);
    top_p(&r, in->params.top_p);
    min_p(&r, in->params.min_p);
    weigh(&r, r.p);
    return r;
}

uint32_t naive_pick(const naive_result *r, uint64_t u53) {
    if (r->greedy) {
        return (uint32_t)r->order[0];
    }
    double u = (double)u53 * 0x1p-53;
    double c = 0.0;
    size_t last = 0;
    for (size_t i = 0; i < r->n; i++) {
        c = c + r->p[i];
        if (r->kept[i] && u < c) {
            return (uint32_t)i;
        }
        last = r->p[i] > 0.0 ? i : last;
    }
    return (uint32_t)last;
}

size_t naive_edges(const naive_result *r, uint64_t *u53s) {
    size_t n = 0;
    double c = 0.0;
    u53s[n++] = 0;
    for (size_t i = 0; i < r->n; i++) {
        c = c + r->p[i];
        uint64_t at = (uint64_t)ceil(c * 0x1p53);
        if (r->p[i] > 0.0 && at > 0 && at <= NAIVE_U_LAST) {
            u53s[n++] = at - 1;
            u53s[n++] = at;
        }
    }
    u53s[n++] = NAIVE_U_LAST;
    return n;
}
