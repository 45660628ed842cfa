/* workers.c: the threads behind n_threads.
 *
 * Every hand-over goes through a mutex: a helper's own for the way in, the owner's for the way out.
 * The atomic signals only say that looking is worthwhile, so that a waiting thread can spin without
 * holding anything; they are changed by read-modify-write alone, which thread checkers take for
 * what it is.
 *
 * The caller takes pieces like everyone else. When none is left it takes back what a helper has not
 * begun to look at, so that a job never waits for a sleeping thread to wake up only to find nothing
 * to do: that is what makes 64 threads on 2 CPUs bearable.
 *
 * Source: conformance/spec/forward.md, property threads. */
#include "workers.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "util.h"

#define STACK_BYTES ((size_t)512 * 1024)
/* How often a waiting thread looks before it sleeps: 10 to 50 microseconds, by CPU, which is longer
 * than the pause between two stages. 0 (the valgrind variant): threads only block. */
#ifndef TLI_SPINS
#define TLI_SPINS 2000u
#endif

typedef struct helper {
    tli_workers *owner;
    size_t worker;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards has_job and must_end */
    pthread_cond_t wake;
    bool has_job;
    bool must_end;
    atomic_uint signal; /* changes whenever one of the two does */
    char own_cache_line[64];
} helper;

struct tli_workers {
    size_t n_threads;
    size_t n_helpers; /* that run */
    unsigned n_spins;

    tli_piece_fn *fn; /* the job; written while no helper works */
    void *ctx;
    size_t n_pieces;
    atomic_size_t next_piece;

    pthread_mutex_t mutex; /* guards n_working */
    pthread_cond_t done;
    size_t n_working;        /* helpers that were given the job and have not finished */
    atomic_uint done_signal; /* changes when n_working gets 0 */

    helper *helpers; /* [n_threads - 1] */
};

/* Tell the CPU that this is a wait. */
static void spin_once(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void spin_until_changed(atomic_uint *signal, unsigned seen, unsigned n_spins) {
    for (unsigned i = 0; i < n_spins && atomic_load(signal) == seen; i++) {
        spin_once();
    }
}

static void take_pieces(tli_workers *workers, size_t worker) {
    for (;;) {
        const size_t piece = atomic_fetch_add(&workers->next_piece, 1);
        if (piece >= workers->n_pieces) {
            return;
        }
        workers->fn(workers->ctx, worker, piece);
    }
}

static void report_done(tli_workers *workers) {
    pthread_mutex_lock(&workers->mutex);
    workers->n_working--;
    if (workers->n_working == 0) {
        atomic_fetch_add(&workers->done_signal, 1);
        pthread_cond_signal(&workers->done);
    }
    pthread_mutex_unlock(&workers->mutex);
}

/* Wait for a job; false when the thread has to end. *seen is the signal that was answered last: a
 * job that came and was taken back changes it too, and then the wait begins again with spinning. */
static bool await_job(helper *self, unsigned *seen) {
    for (;;) {
        spin_until_changed(&self->signal, *seen, self->owner->n_spins);
        pthread_mutex_lock(&self->mutex);
        while (atomic_load(&self->signal) == *seen) {
            pthread_cond_wait(&self->wake, &self->mutex);
        }
        *seen = atomic_load(&self->signal);
        const bool has_job = self->has_job;
        const bool must_end = self->must_end;
        self->has_job = false;
        pthread_mutex_unlock(&self->mutex);
        if (has_job || must_end) {
            return has_job;
        }
    }
}

static void *helper_main(void *arg) {
    helper *self = arg;
    unsigned seen = 0;
    while (await_job(self, &seen)) {
        take_pieces(self->owner, self->worker);
        report_done(self->owner);
    }
    return NULL;
}

/* ------------------------------------------------------------------ running a job */

static void give_job(helper *h) {
    pthread_mutex_lock(&h->mutex);
    h->has_job = true;
    atomic_fetch_add(&h->signal, 1);
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->mutex);
}

/* Whether the helper had not looked yet. */
static bool take_back(helper *h) {
    pthread_mutex_lock(&h->mutex);
    const bool untouched = h->has_job;
    h->has_job = false;
    pthread_mutex_unlock(&h->mutex);
    return untouched;
}

static void await_helpers(tli_workers *workers, size_t n_given, unsigned seen) {
    size_t n_back = 0;
    for (size_t i = 0; i < n_given; i++) {
        n_back += take_back(&workers->helpers[i]);
    }
    pthread_mutex_lock(&workers->mutex);
    workers->n_working -= n_back;
    const bool all_done = workers->n_working == 0;
    pthread_mutex_unlock(&workers->mutex);
    if (all_done) {
        return;
    }
    spin_until_changed(&workers->done_signal, seen, workers->n_spins);
    pthread_mutex_lock(&workers->mutex);
    while (workers->n_working != 0) {
        pthread_cond_wait(&workers->done, &workers->mutex);
    }
    pthread_mutex_unlock(&workers->mutex);
}

void tli_workers_run(tli_workers *workers, tli_piece_fn *fn, void *ctx, size_t n_pieces) {
    if (workers->n_threads == 1 || n_pieces < 2) {
        for (size_t piece = 0; piece < n_pieces; piece++) {
            fn(ctx, 0, piece);
        }
        return;
    }
    const size_t n_wanted = n_pieces < workers->n_threads ? n_pieces : workers->n_threads;
    const size_t n_given = n_wanted - 1;
    workers->fn = fn;
    workers->ctx = ctx;
    workers->n_pieces = n_pieces;
    atomic_exchange(&workers->next_piece, 0);
    pthread_mutex_lock(&workers->mutex);
    workers->n_working = n_given;
    pthread_mutex_unlock(&workers->mutex);
    const unsigned seen = atomic_load(&workers->done_signal);
    for (size_t i = 0; i < n_given; i++) {
        give_job(&workers->helpers[i]);
    }
    take_pieces(workers, 0);
    await_helpers(workers, n_given, seen);
}

/* ------------------------------------------------------------------ beginning and end */

/* Spinning helps only while nobody who has work waits for the CPU of a spinner. */
static unsigned choose_spins(size_t n_threads) {
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return n_cpus > 0 && n_threads <= (size_t)n_cpus ? TLI_SPINS : 0;
}

/* Start one helper; false when the system refuses. */
static bool start_helper(tli_workers *workers, size_t index, const pthread_attr_t *attributes) {
    helper *h = &workers->helpers[index];
    h->owner = workers;
    h->worker = index + 1;
    atomic_init(&h->signal, 0);
    if (pthread_mutex_init(&h->mutex, NULL) != 0) {
        return false;
    }
    if (pthread_cond_init(&h->wake, NULL) != 0) {
        pthread_mutex_destroy(&h->mutex);
        return false;
    }
    if (pthread_create(&h->thread, attributes, helper_main, h) != 0) {
        pthread_cond_destroy(&h->wake);
        pthread_mutex_destroy(&h->mutex);
        return false;
    }
    return true;
}

/* Start all helpers with every signal blocked, so that the program's handlers run in its own
 * threads. */
static bool start_helpers(tli_workers *workers) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    const bool sized = pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (sized && workers->n_helpers + 1 < workers->n_threads) {
        if (!start_helper(workers, workers->n_helpers, &attributes)) {
            break;
        }
        workers->n_helpers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return workers->n_helpers + 1 == workers->n_threads;
}

static void end_helper(helper *h) {
    pthread_mutex_lock(&h->mutex);
    h->must_end = true;
    atomic_fetch_add(&h->signal, 1);
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->mutex);
    pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->wake);
    pthread_mutex_destroy(&h->mutex);
}

/* The owner's own synchronization; false when the system refuses. */
static bool init_owner(tli_workers *workers) {
    atomic_init(&workers->next_piece, 0);
    atomic_init(&workers->done_signal, 0);
    if (pthread_mutex_init(&workers->mutex, NULL) != 0) {
        return false;
    }
    if (pthread_cond_init(&workers->done, NULL) != 0) {
        pthread_mutex_destroy(&workers->mutex);
        return false;
    }
    return true;
}

tl_status tli_workers_new(tli_workers **out, size_t n_threads, tl_error *err) {
    *out = NULL;
    TLI_ASSERT(n_threads >= 1 && n_threads <= TLI_THREADS_MAX);
    tli_workers *workers = tli_calloc(1, sizeof *workers);
    helper *helpers = tli_calloc(n_threads - 1, sizeof *helpers);
    if (workers == NULL || helpers == NULL || !init_owner(workers)) {
        free(workers);
        free(helpers);
        return tli_fail(err, TL_ERR_NOMEM, "no memory for %zu threads", n_threads);
    }
    workers->n_threads = n_threads;
    workers->n_spins = choose_spins(n_threads);
    workers->helpers = helpers;
    if (!start_helpers(workers)) {
        const size_t n_started = workers->n_helpers;
        tli_workers_free(workers);
        return tli_fail(err, TL_ERR_NOMEM, "the system started %zu of %zu worker threads",
                        n_started, n_threads - 1);
    }
    *out = workers;
    return TL_OK;
}

void tli_workers_free(tli_workers *workers) {
    if (workers == NULL) {
        return;
    }
    for (size_t i = 0; i < workers->n_helpers; i++) {
        end_helper(&workers->helpers[i]);
    }
    pthread_cond_destroy(&workers->done);
    pthread_mutex_destroy(&workers->mutex);
    free(workers->helpers);
    free(workers);
}
