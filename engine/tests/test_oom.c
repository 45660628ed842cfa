/* Constructors of numbers, pool and sampler with each of their allocations refused in turn: the
 * answer is NOMEM, *out is empty, and what was taken before is given back (which a sanitizer or
 * Valgrind checks). Linked with the wraps of malloc, calloc and realloc.
 *
 * Source: engine/include/tl/base.h, the rule on failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tl/kv.h"
#include "tl/quant.h"
#include "tl/sample.h"

/* Allocations still granted; afterwards one is refused, or all are. */
static size_t n_granted = SIZE_MAX;
static bool is_for_good = true;
static size_t n_asked = 0;

static bool is_granted(void) {
    n_asked++;
    if (n_granted == 0) {
        n_granted = is_for_good ? 0 : SIZE_MAX;
        return false;
    }
    n_granted--;
    return true;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

void *__wrap_malloc(size_t size) {
    return is_granted() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t n, size_t size) {
    return is_granted() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *p, size_t size) {
    return is_granted() ? __real_realloc(p, size) : NULL;
}

/* Makes one object and frees it; *empty tells whether *out was left empty. */
typedef tl_status (*make)(bool *empty, tl_error *err);

static tl_status make_pool(bool *empty, tl_error *err) {
    const tl_kv_cfg cfg = {5, 4, 2, 1, 2, 1, 1, TL_PREFIX_CACHE_ON, 0};
    int dummy = 0;
    tl_kv_pool *pool = (void *)&dummy;
    const tl_status status = tl_kv_pool_new(&pool, &cfg, err);
    *empty = pool == NULL;
    tl_kv_pool_free(pool);
    return status;
}

static tl_status make_sampler(bool *empty, tl_error *err) {
    int dummy = 0;
    tl_sampler *sampler = (void *)&dummy;
    const tl_status status = tl_sampler_new(&sampler, 100, err);
    *empty = sampler == NULL;
    tl_sampler_free(sampler);
    return status;
}

static tl_status make_qlinear(bool *empty, tl_error *err) {
    static const float w[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    tl_qlinear layer = {.n_out = 9};
    const tl_status status = tl_qlinear_quantize(&layer, w, 8, 2, 4, 2, err);
    *empty = layer.n_out == 0 && layer.qweight == NULL && layer.owned == NULL;
    tl_qlinear_clear(&layer);
    return status;
}

static void check_every_refusal(make object) {
    bool empty = false;
    tl_error err = {TL_OK, 0, ""};
    n_granted = SIZE_MAX;
    n_asked = 0;
    assert_int_equal(object(&empty, &err), TL_OK);
    assert_false(empty);
    const size_t n_needed = n_asked;
    assert_true(n_needed >= 1);
    for (size_t n = 0; n < 2 * n_needed; n++) {
        is_for_good = n < n_needed;
        n_granted = n % n_needed;
        const tl_status status = object(&empty, &err);
        n_granted = SIZE_MAX;
        assert_int_equal(status, TL_ERR_NOMEM);
        assert_int_equal(err.status, TL_ERR_NOMEM);
        assert_true(strlen(err.text) > 0);
        assert_true(empty);
    }
    is_for_good = true;
    n_granted = n_needed;
    const tl_status status = object(&empty, NULL);
    n_granted = SIZE_MAX;
    assert_int_equal(status, TL_OK);
}

static void pool_survives_refused_memory(void **state) {
    (void)state;
    check_every_refusal(make_pool);
}

static void sampler_survives_refused_memory(void **state) {
    (void)state;
    check_every_refusal(make_sampler);
}

static void qlinear_survives_refused_memory(void **state) {
    (void)state;
    check_every_refusal(make_qlinear);
}

/* What a step does takes no memory at all. */
static void steps_take_no_memory(void **state) {
    (void)state;
    const tl_kv_cfg cfg = {5, 1, 1, 1, 2, 1, 1, TL_PREFIX_CACHE_ON, 0};
    const tl_prefix_key key = {{1}};
    const float x[3] = {1, 2, 3};
    tl_sampling_params params = tl_sampling_params_default();
    tl_kv_pool *pool = NULL;
    tl_sampler *sampler = NULL;
    tl_pcg32 rng = tl_pcg32_new(1, 1);
    uint32_t ids[5];
    uint8_t buf[200];
    size_t n = 0;
    uint32_t token = 0;
    double logprob = 0.0;
    params.top_k = 2;
    params.top_p = 0.5;
    assert_int_equal(tl_kv_pool_new(&pool, &cfg, NULL), TL_OK);
    assert_int_equal(tl_sampler_new(&sampler, 3, NULL), TL_OK);
    n_granted = 0;
    tl_status statuses[7];
    statuses[0] = tl_kv_pool_alloc(pool, ids, 2, NULL);
    statuses[1] = tl_kv_pool_set_fill(pool, ids[0], 1, NULL);
    statuses[2] = tl_kv_pool_register(pool, ids[0], &key, NULL);
    statuses[3] = tl_kv_pool_export(pool, ids, 2, buf, sizeof buf, &n, NULL);
    statuses[4] = tl_kv_pool_import(pool, buf, n, ids + 2, 3, &n, NULL);
    statuses[5] = tl_kv_pool_release(pool, ids[0], NULL);
    statuses[6] = tl_sample(sampler, x, 3, &params, ids, 1, ids, 1, &rng, &token, &logprob, NULL);
    n_granted = SIZE_MAX;
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(statuses[i], TL_OK);
    }
    tl_kv_pool_free(pool);
    tl_sampler_free(sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_survives_refused_memory),
        cmocka_unit_test(sampler_survives_refused_memory),
        cmocka_unit_test(qlinear_survives_refused_memory),
        cmocka_unit_test(steps_take_no_memory),
    };
    return cmocka_run_group_tests_name("oom", tests, NULL, NULL);
}
