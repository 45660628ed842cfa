/* memory.c: memory that ends with the test, how a test is left, and the judge's own draws; see
 * test.h.
 *
 * A stack of blocks and JSON references. A test that leaves by longjmp loses nothing, since all of
 * it is freed by whoever called the test. */
#include "context.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct ol_block {
    ol_block *older;
    json_t *value; /* when it stands for a reference */
    uint64_t number;
    max_align_t bytes[];
};

static ol_block *push(ol_test *t, size_t n_bytes) {
    ol_block *block = NULL;
    if (n_bytes <= SIZE_MAX - sizeof *block) {
        block = calloc(1, sizeof *block + n_bytes);
    }
    if (block == NULL) {
        return NULL;
    }
    block->older = t->memory;
    block->number = ++t->memory_mark;
    t->memory = block;
    return block;
}

void *ol_alloc(ol_test *t, size_t n_bytes) {
    ol_block *block = push(t, n_bytes);
    if (block == NULL) {
        ol_leave_fault(t, OL_EXIT_INTERNAL, "out of memory for %zu bytes", n_bytes);
    }
    return block->bytes;
}

const json_t *ol_keep(ol_test *t, json_t *value) {
    ol_block *block = value == NULL ? NULL : push(t, 0);
    if (block == NULL) {
        json_decref(value);
        ol_leave_fault(t, OL_EXIT_INTERNAL, "out of memory for a JSON value");
    }
    block->value = value;
    return value;
}

uint64_t ol_mark(const ol_test *t) {
    return t->memory == NULL ? 0 : t->memory->number;
}

void ol_release(ol_test *t, uint64_t mark) {
    while (t->memory != NULL && t->memory->number > mark) {
        ol_block *block = t->memory;
        t->memory = block->older;
        json_decref(block->value);
        free(block);
    }
}

void ol_memory_clear(ol_test *t) {
    ol_release(t, 0);
}

char *ol_text(ol_test *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = ol_alloc(t, n < 0 ? 1 : (size_t)n + 1);
    if (n >= 0) {
        (void)vsnprintf(text, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    return text;
}

bool ol_strict(const ol_test *t) {
    return t->setup->strict;
}

/* ------------------------------------------------------------------ leaving */

OL_NORETURN void ol_leave(ol_test *t) {
    (void)t;
    fail();
    abort(); /* fail() jumps; the compiler does not know */
}

OL_NORETURN void ol_leave_fault(ol_test *t, int exit_code, const char *fmt, ...) {
    char text[900];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)ol_fault_set(&t->fault, exit_code, "%s", text);
    ol_leave(t);
}

/* ------------------------------------------------------------------ draws */

uint32_t ol_rand_u32(ol_test *t) {
    uint64_t old = t->draw.state;
    t->draw.state = old * UINT64_C(6364136223846793005) + t->draw.inc;
    uint32_t xorshifted = (uint32_t)(((old >> 18) ^ old) >> 27);
    unsigned rotation = (unsigned)(old >> 59);
    return (xorshifted >> rotation) | (xorshifted << ((32 - rotation) & 31));
}

uint32_t ol_rand_below(ol_test *t, uint32_t n) {
    if (n <= 1) {
        return 0;
    }
    /* The highest draws that would favour the low numbers are drawn again. */
    uint32_t limit = UINT32_MAX - UINT32_MAX % n;
    uint32_t value = ol_rand_u32(t);
    while (value >= limit) {
        value = ol_rand_u32(t);
    }
    return value % n;
}

double ol_rand_unit(ol_test *t) {
    uint64_t high = ol_rand_u32(t) >> 5;
    uint64_t low = ol_rand_u32(t) >> 6;
    return (double)((high << 26) | low) * 0x1p-53;
}

float ol_rand_normal(ol_test *t) {
    /* Twelve uniforms less six: variance 1, no libm, so the same bits on every host. */
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        sum += ol_rand_unit(t);
    }
    return (float)(sum - 6);
}
