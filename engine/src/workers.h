/* workers.h: a few threads that take the pieces of a job between them.
 *
 * A job is n pieces that do not depend on each other; which thread takes which is not said, so a
 * piece must give the same result in any. The calling thread is worker 0 and works along. Between
 * jobs the others spin for some microseconds (only when every thread can have a CPU of its own),
 * then sleep.
 *
 * Private. Source: conformance/spec/forward.md, property threads. */
#ifndef TLI_WORKERS_H
#define TLI_WORKERS_H

#include "tl/base.h"

#define TLI_THREADS_MAX 64u

typedef struct tli_workers tli_workers;

/* Do piece `piece` as worker `worker` (below n_threads, never two pieces of one worker at a
 * time). */
typedef void tli_piece_fn(void *ctx, size_t worker, size_t piece);

/* Start n_threads - 1 threads, each with an address space of 512 KiB for its stack and every signal
 * blocked. n_threads is 1 to TLI_THREADS_MAX. NOMEM: memory, or the system gives no thread. */
TL_MUST_USE tl_status tli_workers_new(tli_workers **out, size_t n_threads, tl_error *err);

/* End the threads. No job may be running. */
void tli_workers_free(tli_workers *workers);

/* Do the pieces 0 to n_pieces - 1, each once, and return when all are done. A single piece is done
 * by the caller without a word to the others. */
void tli_workers_run(tli_workers *workers, tli_piece_fn *fn, void *ctx, size_t n_pieces);

#endif
