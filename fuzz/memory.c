/* memory.c: the engine's allocations, counted, and one of them refused; for the replay alone.
 *
 * The library that the replay links calls these instead of malloc and its kin (fuzz.mk), and
 * jansson is handed them while the engine reads, so what the harness and the second
 * implementation allocate is left out. */
#include "fuzz.h"

#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>

void *fuzz_malloc(size_t n);
void *fuzz_calloc(size_t n, size_t size);
void fuzz_free(void *p);

static struct {
    bool is_on;
    bool is_for_good;
    size_t n_until_refusal; /* 0: nothing is refused */
    size_t n_refused;
    size_t live, peak; /* bytes */
} now;

static bool is_refused(void) {
    if (!now.is_on || now.n_until_refusal == 0 || now.n_until_refusal-- > 1) {
        return false;
    }
    now.n_until_refusal = now.is_for_good ? 1 : 0;
    now.n_refused++;
    return true;
}

static void *counted(void *p) {
    if (now.is_on && p != NULL) {
        now.live += malloc_usable_size(p) + sizeof(size_t); /* its head */
        now.peak = now.live > now.peak ? now.live : now.peak;
    }
    return p;
}

void *fuzz_malloc(size_t n) {
    return is_refused() ? NULL : counted(malloc(n));
}

void *fuzz_calloc(size_t n, size_t size) {
    return is_refused() ? NULL : counted(calloc(n, size));
}

void fuzz_free(void *p) {
    const size_t n = p == NULL ? 0 : malloc_usable_size(p) + sizeof(size_t);
    now.live -= now.is_on && now.live >= n ? n : 0;
    free(p);
}

void fuzz_memory_begin(size_t nth, bool is_for_good) {
    now.is_on = true;
    now.is_for_good = is_for_good;
    now.n_until_refusal = nth;
    now.n_refused = 0;
    now.live = 0;
    now.peak = 0;
    json_set_alloc_funcs(fuzz_malloc, fuzz_free);
}

fuzz_memory fuzz_memory_end(void) {
    now.is_on = false;
    json_set_alloc_funcs(malloc, free);
    return (fuzz_memory){.n_refused = now.n_refused, .peak = now.peak, .left = now.live};
}
