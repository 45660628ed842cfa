/* Every call of the library that can fail for want of memory, a file or a map, with the n-th such
 * call of it failing, for every n: the status is the right one, the sentence names path and reason,
 * *out is empty, and not a block, a descriptor or a map more is held than before. Interrupted and
 * short reads change nothing. A step asks the system for nothing at all.
 *
 * Linked with wraps of the calls below (engine.mk); jansson takes the same memory.
 *
 * Source: engine/include/tl/base.h, the rule on failure; conformance/spec/safetensors.md, rule 1.
 * */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "model_fixture.h"
#include "tl/runner.h"

/* ------------------------------------------------------------------ failing calls */

typedef enum call {
    CALL_ALLOC,
    CALL_OPEN,
    CALL_FSTAT,
    CALL_STAT,
    CALL_MMAP,
    CALL_PREAD,
    N_CALLS,
} call;

/* Which call fails, from the n-th on or it alone. n 0: none. */
static struct {
    call which;
    size_t n;
    bool is_for_good;
    int number; /* errno */
    size_t n_hit;
} plan;

static size_t n_asked[N_CALLS];
static bool is_rough; /* open and read are interrupted at every turn, reads are short */
static struct { size_t blocks, descriptors, maps; } held;

static bool fails(call which) {
    n_asked[which]++;
    if (plan.n == 0 || plan.which != which) {
        return false;
    }
    plan.n--;
    if (plan.n > 0) {
        return false;
    }
    plan.n = plan.is_for_good ? 1 : 0;
    plan.n_hit++;
    errno = plan.number;
    return true;
}

static bool is_interrupted(call which) {
    if (!is_rough || n_asked[which] % 3 == 0) {
        return false;
    }
    errno = EINTR;
    return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
int __real_open64(const char *path, int flags, ...);
int __real_fstat64(int fd, struct stat64 *st);
int __real_stat64(const char *path, struct stat64 *st);
void *__real_mmap64(void *at, size_t n, int rights, int flags, int fd, off64_t offset);
int __real_munmap(void *at, size_t n);
ssize_t __real_pread64(int fd, void *dst, size_t n, off64_t offset);
int __real_close(int fd);

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_fstat64(int fd, struct stat64 *st);
int __wrap_stat64(const char *path, struct stat64 *st);
void *__wrap_mmap64(void *at, size_t n, int rights, int flags, int fd, off64_t offset);
int __wrap_munmap(void *at, size_t n);
ssize_t __wrap_pread64(int fd, void *dst, size_t n, off64_t offset);
int __wrap_close(int fd);

static void *count_block(void *p) {
    held.blocks += p != NULL;
    return p;
}

void *__wrap_malloc(size_t n) {
    return fails(CALL_ALLOC) ? NULL : count_block(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size) {
    return fails(CALL_ALLOC) ? NULL : count_block(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n) {
    if (fails(CALL_ALLOC)) {
        return NULL;
    }
    void *moved = __real_realloc(p, n);
    held.blocks += p == NULL && moved != NULL;
    return moved;
}

void __wrap_free(void *p) {
    held.blocks -= p != NULL;
    __real_free(p);
}

int __wrap_open64(const char *path, int flags, ...) {
    if (fails(CALL_OPEN) || is_interrupted(CALL_OPEN)) {
        return -1;
    }
    const int fd = __real_open64(path, flags);
    held.descriptors += fd >= 0;
    return fd;
}

int __wrap_close(int fd) {
    held.descriptors -= fd >= 0;
    return __real_close(fd);
}

int __wrap_fstat64(int fd, struct stat64 *st) {
    return fails(CALL_FSTAT) ? -1 : __real_fstat64(fd, st);
}

int __wrap_stat64(const char *path, struct stat64 *st) {
    return fails(CALL_STAT) ? -1 : __real_stat64(path, st);
}

void *__wrap_mmap64(void *at, size_t n, int rights, int flags, int fd, off64_t offset) {
    if (fails(CALL_MMAP)) {
        return MAP_FAILED;
    }
    void *map = __real_mmap64(at, n, rights, flags, fd, offset);
    held.maps += map != MAP_FAILED;
    return map;
}

int __wrap_munmap(void *at, size_t n) {
    held.maps--;
    return __real_munmap(at, n);
}

ssize_t __wrap_pread64(int fd, void *dst, size_t n, off64_t offset) {
    if (fails(CALL_PREAD) || is_interrupted(CALL_PREAD)) {
        return -1;
    }
    const size_t most = n_asked[CALL_PREAD] % 997 + 1;
    return __real_pread64(fd, dst, is_rough && n > most ? most : n, offset);
}

/* ------------------------------------------------------------------ files */

static char single_dir[64]; /* config.json and model.safetensors */
static char shard_dir[64];  /* two shards and their index */

static void write_bytes(const char *dir, const char *name, const void *bytes, size_t n) {
    char path[160];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_index(const made_list *shards) {
    static const char *const ends[2] = {"\":\"model-0.safetensors\"", "\":\"model-1.safetensors\""};
    blob index = {0};
    blob_text(&index, "{\"weight_map\":{");
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < shards[s].n; i++) {
            blob_text(&index, s + i == 0 ? "\"" : ",\"");
            blob_text(&index, shards[s].tensors[i].name);
            blob_text(&index, ends[s]);
        }
    }
    blob_text(&index, "}}");
    write_bytes(shard_dir, "model.safetensors.index.json", index.data, index.n);
    blob_clear(&index);
}

static void write_tensors(const char *dir, const char *name, const made_list *list) {
    blob file = make_tensors(list->tensors, list->n, NULL);
    write_bytes(dir, name, file.data, file.n);
    blob_clear(&file);
}

static void write_model(void) {
    made_list all;
    made_list shards[2] = {{.n = 0}, {.n = 0}};
    make_tiny(&all, 0);
    for (size_t i = 0; i < all.n; i++) {
        made_list *shard = &shards[i % 2];
        all.tensors[i].fill = 0x3c;
        shard->tensors[shard->n++] = all.tensors[i];
    }
    write_bytes(single_dir, "config.json", tiny_config, sizeof tiny_config - 1);
    write_bytes(shard_dir, "config.json", tiny_config, sizeof tiny_config - 1);
    write_tensors(single_dir, "model.safetensors", &all);
    write_tensors(shard_dir, "model-0.safetensors", &shards[0]);
    write_tensors(shard_dir, "model-1.safetensors", &shards[1]);
    write_index(shards);
}

static int make_files(void **state) {
    (void)state;
    (void)snprintf(single_dir, sizeof single_dir, "/tmp/tl-fault-XXXXXX");
    (void)snprintf(shard_dir, sizeof shard_dir, "/tmp/tl-fault-XXXXXX");
    if (mkdtemp(single_dir) == NULL || mkdtemp(shard_dir) == NULL) {
        return -1;
    }
    write_model();
    return 0;
}

static int remove_files(void **state) {
    (void)state;
    static const char *const names[] = {"config.json", "model.safetensors", "model-0.safetensors",
                                        "model-1.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char path[160];
        (void)snprintf(path, sizeof path, "%s/%s", single_dir, names[i]);
        (void)unlink(path);
        (void)snprintf(path, sizeof path, "%s/%s", shard_dir, names[i]);
        (void)unlink(path);
    }
    return rmdir(single_dir) != 0 || rmdir(shard_dir) != 0 ? -1 : 0;
}

/* ------------------------------------------------------------------ attempts */

/* One call of the library on a directory; it checks *out, and frees what it made. */
typedef tl_status attempt(const char *dir, tl_weights_mode mode, tl_error *err);

static void *const dirt = &plan; /* what *out holds before */

static tl_status open_file(const char *dir, tl_weights_mode mode, tl_error *err) {
    char path[160];
    tl_safetensors *st = dirt;
    (void)snprintf(path, sizeof path, "%s/%s", dir,
                   dir == single_dir ? "model.safetensors" : "model-0.safetensors");
    const tl_status status = tl_safetensors_open(&st, path, mode, err);
    assert_true((st != NULL) == (status == TL_OK));
    tl_safetensors_free(st);
    return status;
}

static tl_status open_checkpoint(const char *dir, tl_weights_mode mode, tl_error *err) {
    tl_checkpoint *ckpt = dirt;
    const tl_status status = tl_checkpoint_open(&ckpt, dir, mode, err);
    assert_true((ckpt != NULL) == (status == TL_OK));
    tl_checkpoint_free(ckpt);
    return status;
}

static tl_status load_config(const char *dir, tl_weights_mode mode, tl_error *err) {
    (void)mode;
    tl_model_config cfg = {.n_layers = 77};
    const tl_status status = tl_model_config_load(&cfg, dir, err);
    assert_int_equal(cfg.n_layers, status == TL_OK ? 2 : 77);
    return status;
}

static tl_status load_model(const char *dir, tl_weights_mode mode, tl_error *err) {
    const tl_model_load_cfg cfg = {.weights = mode};
    tl_model *model = dirt;
    const tl_status status = tl_model_load(&model, dir, &cfg, err);
    assert_true((model != NULL) == (status == TL_OK));
    tl_model_free(model);
    return status;
}

static tl_status load_runner(const char *dir, tl_weights_mode mode, tl_error *err) {
    tl_engine_cfg cfg = tl_engine_cfg_default();
    cfg.weights = mode;
    cfg.n_threads = 3;
    tl_runner *runner = dirt;
    const tl_status status = tl_runner_load(&runner, dir, &cfg, err);
    assert_true((runner != NULL) == (status == TL_OK));
    tl_runner_free(runner);
    return status;
}

/* On failure the checkpoint is still the caller's, and out is as it was. */
static tl_status bind_weights(const char *dir, tl_weights_mode mode, tl_error *err) {
    const size_t n = plan.n;
    tl_model_config cfg = {0};
    tl_checkpoint *ckpt = NULL;
    plan.n = 0;
    assert_int_equal(tl_model_config_load(&cfg, dir, NULL), TL_OK);
    assert_int_equal(tl_checkpoint_open(&ckpt, dir, mode, NULL), TL_OK);
    plan.n = n;
    tl_weights weights = {.arch = (tl_arch)77};
    const tl_checkpoint *before = ckpt;
    const tl_quant_cfg quant = {.int4_group = mode == TL_WEIGHTS_MAP ? 32 : 0};
    const tl_status status = tl_weights_load(&weights, &ckpt, &cfg, &quant, err);
    if (status == TL_OK) {
        assert_null(ckpt);
        tl_weights_clear(&weights);
        return status;
    }
    assert_ptr_equal(ckpt, before);
    assert_int_equal(weights.arch, 77);
    assert_null(weights.ckpt);
    tl_checkpoint_free(ckpt);
    return status;
}

/* Pairs are found by names that are put together: memory that a query takes. */
static tl_status query(const char *dir, tl_weights_mode mode, tl_error *err) {
    const size_t n = plan.n;
    tl_checkpoint *ckpt = NULL;
    plan.n = 0;
    assert_int_equal(tl_checkpoint_open(&ckpt, dir, mode, NULL), TL_OK);
    plan.n = n;
    tl_qlinear q = {.group = 99};
    float norm[TINY_D] = {7.0f};
    const size_t shape[1] = {TINY_D};
    tl_status status = tl_checkpoint_q4(ckpt, "model.norm", 1, 4, 2, &q, err);
    assert_int_equal(q.group, 99);
    if (status == TL_ERR_NOT_FOUND) {
        status = tl_checkpoint_f32(ckpt, "model.norm.weight", shape, 1, norm, TINY_D, err);
        assert_true((norm[0] == 7.0f) == (status != TL_OK));
    }
    tl_checkpoint_free(ckpt);
    return status;
}

static const struct {
    attempt *run;
    const char *name;
} attempts[] = {
    {open_file, "tl_safetensors_open"},    {open_checkpoint, "tl_checkpoint_open"},
    {load_config, "tl_model_config_load"}, {load_model, "tl_model_load"},
    {load_runner, "tl_runner_load"},       {bind_weights, "tl_weights_load"},
    {query, "tl_checkpoint_q4"},
};

/* ------------------------------------------------------------------ in turn */

typedef struct fault {
    call which;
    int number;
    tl_status status;
    bool may_be_fine; /* another way is found */
} fault;

static void check_end(const fault *f, const char *name, tl_status status, const tl_error *err) {
    if (status == TL_OK && f->may_be_fine) {
        return;
    }
    const char *reason = f->status == TL_ERR_IO ? strerror(f->number) : "";
    check_refusal(status, err, f->status, reason, name);
    if (f->status == TL_ERR_IO) {
        assert_non_null(strstr(err->text, "/tmp/tl-fault-"));
    }
}

/* The 1st, the 2nd, ... until the attempt makes no more such call; how many times it failed. */
static size_t fail_in_turn(size_t i_attempt, const char *dir, tl_weights_mode mode, const fault *f,
                           bool is_for_good) {
    const char *name = attempts[i_attempt].name;
    for (size_t n = 1;; n++) {
        tl_error err = fresh_error();
        const size_t blocks = held.blocks;
        const size_t descriptors = held.descriptors;
        const size_t maps = held.maps;
        memset(&plan, 0, sizeof plan);
        plan.which = f->which;
        plan.n = n;
        plan.is_for_good = is_for_good;
        plan.number = f->number;
        const tl_status status = attempts[i_attempt].run(dir, mode, &err);
        plan.n = 0;
        assert_int_equal(held.blocks, blocks);
        assert_int_equal(held.descriptors, descriptors);
        assert_int_equal(held.maps, maps);
        if (plan.n_hit == 0) {
            assert_int_equal(status, TL_OK);
            return n - 1;
        }
        check_end(f, name, status, &err);
    }
}

/* Everywhere: each attempt, each directory, mapped and copied, once and for good. */
static size_t fail_everywhere(const fault *f) {
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(attempts); i++) {
        for (size_t k = 0; k < 8; k++) {
            const char *dir = (k & 1) != 0 ? shard_dir : single_dir;
            const tl_weights_mode mode = (k & 2) != 0 ? TL_WEIGHTS_COPY : TL_WEIGHTS_MAP;
            n += fail_in_turn(i, dir, mode, f, (k & 4) != 0);
        }
    }
    return n;
}

static void memory_is_refused(void **state) {
    (void)state;
    /* A hash table that cannot grow, for one, goes on with longer chains. */
    const fault f = {CALL_ALLOC, ENOMEM, TL_ERR_NOMEM, true};
    assert_true(fail_everywhere(&f) > 500);
}

static void files_cannot_be_opened(void **state) {
    (void)state;
    static const int numbers[] = {EACCES, EMFILE, ENFILE, EIO, ELOOP};
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        const fault f = {CALL_OPEN, numbers[i], TL_ERR_IO, false};
        assert_true(fail_everywhere(&f) > 20);
    }
}

static void files_cannot_be_looked_at(void **state) {
    (void)state;
    const fault when_open = {CALL_FSTAT, EIO, TL_ERR_IO, false};
    const fault before = {CALL_STAT, EACCES, TL_ERR_IO, false};
    assert_true(fail_everywhere(&when_open) > 20);
    assert_true(fail_everywhere(&before) > 20);
}

static void files_cannot_be_read(void **state) {
    (void)state;
    const fault f = {CALL_PREAD, EIO, TL_ERR_IO, false};
    assert_true(fail_everywhere(&f) > 20);
}

static void files_cannot_be_mapped(void **state) {
    (void)state;
    const fault no_room = {CALL_MMAP, ENOMEM, TL_ERR_NOMEM, false};
    const fault no_map = {CALL_MMAP, ENODEV, TL_ERR_IO, false};
    assert_true(fail_everywhere(&no_room) > 10);
    assert_true(fail_everywhere(&no_map) > 10);
}

/* ------------------------------------------------------------------ rough reads */

static void interruptions_change_nothing(void **state) {
    (void)state;
    float smooth[TINY_D];
    float rough[TINY_D];
    const size_t shape[1] = {TINY_D};
    for (size_t i = 0; i < 4; i++) {
        const char *dir = (i & 1) != 0 ? shard_dir : single_dir;
        const tl_weights_mode mode = (i & 2) != 0 ? TL_WEIGHTS_COPY : TL_WEIGHTS_MAP;
        for (size_t k = 0; k < 2; k++) {
            tl_checkpoint *ckpt = NULL;
            tl_model_config cfg = {0};
            is_rough = k == 1;
            assert_int_equal(tl_model_config_load(&cfg, dir, NULL), TL_OK);
            assert_int_equal(tl_checkpoint_open(&ckpt, dir, mode, NULL), TL_OK);
            is_rough = false;
            assert_int_equal(cfg.n_layers, 2);
            assert_int_equal(tl_checkpoint_f32(ckpt, "model.norm.weight", shape, 1,
                                               k == 0 ? smooth : rough, TINY_D, NULL),
                             TL_OK);
            tl_checkpoint_free(ckpt);
        }
        assert_memory_equal(smooth, rough, sizeof smooth);
    }
}

/* The system's own refusal, not a made one. */
static void descriptors_run_out(void **state) {
    (void)state;
    struct rlimit before;
    tl_error err = fresh_error();
    const int next = dup(STDIN_FILENO);
    assert_true(next > 0);
    assert_int_equal(__real_close(next), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {(rlim_t)next, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const tl_status status = load_model(single_dir, TL_WEIGHTS_MAP, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    check_refusal(status, &err, TL_ERR_IO, strerror(EMFILE), "no descriptor");
    assert_int_equal(load_model(single_dir, TL_WEIGHTS_MAP, &err), TL_OK);
}

/* ------------------------------------------------------------------ steps */

static tl_status all_steps(tl_runner *runner, const uint32_t *ids, tl_logits *logits, float *hidden,
                           float *row, const tl_weights *weights, tl_work *work) {
    static const uint32_t tokens[6] = {1, 2, 3, 4, 5, 6};
    tl_error err;
    const tl_forward_seq seq = {tokens, 6, 0, ids, 2};
    const tl_forward_batch batch = {&seq, 1};
    const tl_linear *head = &weights->as.llama.lm_head;
    tl_status status = tl_runner_forward(runner, &batch, logits, &err);
    if (status == TL_OK) {
        status =
            tl_runner_run_once(runner, tokens, 6, hidden, (size_t)6 * TINY_D, row, TINY_V, &err);
    }
    if (status == TL_OK) {
        status = tl_linear_forward(head, 0, TINY_V, hidden, TINY_D, 1, row, TINY_V, work, &err);
    }
    return status;
}

static void steps_ask_for_nothing(void **state) {
    (void)state;
    float hidden[6 * TINY_D];
    float row[TINY_V];
    uint32_t ids[2];
    tl_logits logits = {0};
    tl_engine_cfg cfg = tl_engine_cfg_default();
    tl_runner *runner = NULL;
    tl_model *model = NULL;
    tl_work *work = NULL;
    cfg.n_threads = 2;
    assert_int_equal(tl_model_load(&model, single_dir, NULL, NULL), TL_OK);
    assert_int_equal(tl_runner_new(&runner, model, &cfg, NULL), TL_OK);
    assert_int_equal(tl_logits_init(&logits, 2, TINY_V, NULL), TL_OK);
    assert_int_equal(tl_work_new(&work, TL_ISA_AUTO, TINY_D, NULL), TL_OK);
    assert_int_equal(tl_kv_pool_alloc(tl_runner_pool(runner), ids, 2, NULL), TL_OK);
    size_t before[N_CALLS];
    memcpy(before, n_asked, sizeof before);
    const tl_status status =
        all_steps(runner, ids, &logits, hidden, row, tl_model_weights(model), work);
    const bool is_same = memcmp(before, n_asked, sizeof before) == 0;
    assert_int_equal(status, TL_OK);
    assert_true(is_same);
    tl_work_free(work);
    tl_logits_clear(&logits);
    tl_runner_free(runner);
    tl_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_refused),         cmocka_unit_test(files_cannot_be_opened),
        cmocka_unit_test(files_cannot_be_looked_at), cmocka_unit_test(files_cannot_be_read),
        cmocka_unit_test(files_cannot_be_mapped),    cmocka_unit_test(interruptions_change_nothing),
        cmocka_unit_test(descriptors_run_out),       cmocka_unit_test(steps_ask_for_nothing),
    };
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    return cmocka_run_group_tests_name("fault", tests, make_files, remove_files);
}
