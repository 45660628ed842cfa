/* forward_stage.c: cutting a stage of a step into pieces, and collecting what went wrong in them.
 *
 * The cut follows the work, not the number of threads alone: a piece has at least MIN_PIECE_COST
 * multiply-adds, so that a step of a tiny model runs in the calling thread without a hand-over, and
 * there are some pieces for each thread, so that one that loses its CPU for a while does not hold
 * up the others.
 *
 * Source: conformance/spec/forward.md, property threads. */
#include "forward_internal.h"
#include "util.h"

/* About 5 microseconds of work, several times the price of a hand-over. */
#define MIN_PIECE_COST ((size_t)65536)
#define PIECES_PER_THREAD ((size_t)16)

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* How many pieces are worth their hand-over; a product too large to count is surely worth it. */
static size_t count_pieces(size_t n_threads, size_t n_units, size_t unit, size_t cost) {
    if (n_threads == 1) {
        return smaller(n_units, 1);
    }
    size_t total = 0;
    if (!tli_mul(n_units, unit, &total) || !tli_mul(total, cost, &total)) {
        total = SIZE_MAX;
    }
    const size_t n_worth = total / MIN_PIECE_COST + 1;
    return smaller(smaller(n_units, n_worth), n_threads * PIECES_PER_THREAD);
}

tl_status tli_run_stage(tli_step *step, tli_piece_fn *fn, size_t n_items, size_t unit, size_t cost,
                        tl_error *err) {
    const size_t n_threads = step->s->limits.n_threads;
    const size_t n_units = n_items / unit + (n_items % unit != 0);
    step->split.n_items = n_items;
    step->split.unit = unit;
    step->split.n_units = n_units;
    step->split.n_pieces = count_pieces(n_threads, n_units, unit, cost);
    tli_workers_run(step->s->workers, fn, step, step->split.n_pieces);
    for (size_t i = 0; i < n_threads; i++) {
        const tl_error *found = &step->s->errors[i];
        if (found->status != TL_OK) {
            return tli_fail(err, found->status, "%s", found->text);
        }
    }
    return TL_OK;
}

tli_range tli_piece_range(const tli_step *step, size_t piece) {
    const size_t n_units = step->split.n_units;
    const size_t n_pieces = step->split.n_pieces;
    /* The first n_units % n_pieces pieces have a unit more than the others. */
    const size_t n_each = n_units / n_pieces;
    const size_t n_more = n_units % n_pieces;
    const size_t first = piece * n_each + smaller(piece, n_more);
    const size_t n_here = n_each + (piece < n_more);
    const size_t begin = first * step->split.unit;
    const size_t end = (first + n_here) * step->split.unit;
    return (tli_range){begin, smaller(end, step->split.n_items)};
}

void tli_stage_failed(tli_step *step, size_t worker, tl_status status, const tl_error *err) {
    tl_error *slot = &step->s->errors[worker];
    if (slot->status == TL_OK) {
        *slot = *err;
        slot->status = status;
    }
}
