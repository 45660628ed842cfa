/* test_scratch_oom.c: work, logits, scratch and runner with each of their allocations refused in
 * turn, and the scratch with each of its threads refused: NOMEM, *out is empty, nothing is lost
 * (which a sanitizer or Valgrind checks). And a step asks for no memory at all.
 *
 * Linked with the wraps of malloc, calloc and realloc; pthread_create is this program's own.
 *
 * Source: engine/include/tl/base.h, the rule on failure; engine/include/tl/forward.h. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "forward_fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

/* Allocations still granted; afterwards all are refused. */
static size_t n_granted = SIZE_MAX;
static size_t n_asked = 0;

static bool is_granted(void) {
    n_asked++;
    if (n_granted == 0) {
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

/* Sanitizers have a pthread_create of their own that must not be replaced. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_REFUSE_THREADS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define CAN_REFUSE_THREADS 0
#else
#define CAN_REFUSE_THREADS 1
#endif
#else
#define CAN_REFUSE_THREADS 1
#endif

#if CAN_REFUSE_THREADS
static size_t n_threads_granted = SIZE_MAX;

typedef int create_thread(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg);

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                   void *(*start)(void *), void *restrict arg) {
    if (n_threads_granted == 0) {
        return EAGAIN;
    }
    n_threads_granted--;
    create_thread *real = NULL;
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real, &symbol, sizeof real); /* ISO C has no cast from object to function pointer */
    return real(thread, attributes, start, arg);
}
#endif

static const fx_shape shape = {24, 40, 2, 6, 2, 10, 37, TL_MATRIX_F32, 0, false};
static const tl_limits limits = {
    .max_batch_tokens = 20, .max_seqs = 3, .n_threads = 4, .max_blocks = 8};

static fixture *fx;

/* Makes one object and frees it; *empty tells whether *out was left empty. */
typedef tl_status (*make)(bool *empty, tl_error *err);

static tl_status make_work(bool *empty, tl_error *err) {
    int dummy = 0;
    tl_work *work = (void *)&dummy;
    const tl_status status = tl_work_new(&work, TL_ISA_AUTO, 100, err);
    *empty = work == NULL;
    tl_work_free(work);
    return status;
}

static tl_status make_logits(bool *empty, tl_error *err) {
    tl_logits logits = {.vocab = 9};
    const tl_status status = tl_logits_init(&logits, 3, 50, err);
    *empty = logits.data == NULL && logits.vocab == 0;
    tl_logits_clear(&logits);
    return status;
}

static tl_status make_scratch(bool *empty, tl_error *err) {
    int dummy = 0;
    tl_scratch *scratch = (void *)&dummy;
    const tl_status status = tl_scratch_new(&scratch, &fx->cfg, &limits, err);
    *empty = scratch == NULL;
    tl_scratch_free(scratch);
    return status;
}

static tl_status make_runner(bool *empty, tl_error *err) {
    static const char config[] =
        "{\"tl_arch\":\"bigram\",\"tl_tokenizer\":\"bpe\",\"vocab_size\":2}";
    static const char header[] =
        "{\"bigram.weight\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}";
    uint8_t bytes[8 + sizeof header - 1 + 8] = {sizeof header - 1};
    memcpy(bytes + 8, header, sizeof header - 1);
    const tl_file_view views[] = {{"config.json", (const uint8_t *)config, sizeof config - 1},
                                  {"model.safetensors", bytes, sizeof bytes}};
    const size_t n_left = n_granted;
    n_granted = SIZE_MAX; /* loading has its own test */
    tl_model *model = NULL;
    assert_int_equal(tl_model_view(&model, views, 2, NULL, NULL), TL_OK);
    n_granted = n_left;
    tl_engine_cfg cfg = tl_engine_cfg_default();
    cfg.n_threads = 2;
    int dummy = 0;
    tl_runner *runner = (void *)&dummy;
    const tl_status status = tl_runner_new(&runner, model, &cfg, err);
    *empty = runner == NULL;
    tl_runner_free(runner);
    tl_model_free(model);
    return status;
}

/* Refuse the first allocation, then the second, ... until the object gets made. */
static void refuse_each(make make_one) {
    bool empty = false;
    tl_status status = TL_ERR_NOMEM;
    size_t n = 0;
    for (; status != TL_OK && n < 1000; n++) {
        tl_error err = {0};
        n_granted = n;
        status = make_one(&empty, &err);
        n_granted = SIZE_MAX;
        if (status != TL_OK) {
            assert_int_equal(status, TL_ERR_NOMEM);
            assert_int_equal(err.status, TL_ERR_NOMEM);
            assert_true(err.text[0] != '\0');
            assert_true(empty);
        }
    }
    assert_int_equal(status, TL_OK);
    assert_true(n > 1); /* it did ask for memory */
}

static void test_every_allocation_refused(void **state) {
    (void)state;
    fx = fx_llama(&shape);
    refuse_each(make_work);
    refuse_each(make_logits);
    refuse_each(make_scratch);
    refuse_each(make_runner);
    fx_free(fx);
}

#if CAN_REFUSE_THREADS
static void test_every_thread_refused(void **state) {
    (void)state;
    fx = fx_llama(&shape);
    for (size_t n = 0; n < 3; n++) {
        bool empty = false;
        tl_error err = {0};
        n_threads_granted = n;
        assert_int_equal(make_scratch(&empty, &err), TL_ERR_NOMEM);
        n_threads_granted = SIZE_MAX;
        assert_true(empty);
        assert_non_null(strstr(err.text, "of 3 worker threads"));
    }
    bool empty = true;
    assert_int_equal(make_scratch(&empty, NULL), TL_OK);
    fx_free(fx);
}
#endif

static void test_a_step_asks_for_no_memory(void **state) {
    (void)state;
    fx = fx_llama(&shape);
    tl_kv_pool *pool = fx_pool(fx, 8, 4);
    tl_scratch *scratch = NULL;
    tl_logits logits;
    uint32_t ids[8];
    uint32_t tokens[20];
    fx_tokens(fx, tokens, 20, 1);
    assert_int_equal(tl_scratch_new(&scratch, &fx->cfg, &limits, NULL), TL_OK);
    assert_int_equal(tl_logits_init(&logits, 1, 37, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_alloc(pool, ids, 8, NULL), TL_OK);
    const tl_forward_seq seq = {tokens, 20, 0, ids, 8};
    const tl_forward_batch batch = {&seq, 1};
    const size_t before = n_asked;
    n_granted = 0;
    const tl_status status =
        tl_forward(&fx->cfg, &fx->weights, pool, scratch, &batch, NULL, 0, &logits, NULL);
    n_granted = SIZE_MAX;
    assert_int_equal(status, TL_OK);
    assert_int_equal(n_asked, before);
    tl_logits_clear(&logits);
    tl_scratch_free(scratch);
    tl_kv_pool_free(pool);
    fx_free(fx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_refused),
#if CAN_REFUSE_THREADS
        cmocka_unit_test(test_every_thread_refused),
#endif
        cmocka_unit_test(test_a_step_asks_for_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
