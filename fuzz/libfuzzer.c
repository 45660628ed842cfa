/* libfuzzer.c: the entry points of libFuzzer (and of every engine that speaks its language) for
 * one target, chosen at compile time by -DFUZZ_TARGET=fuzz_NAME. What is wrong aborts, so that the
 * engine keeps the input. */
#include "fuzz.h"

#ifndef FUZZ_TARGET
#define FUZZ_TARGET fuzz_crash /* for those who read the file without building a program */
#endif

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t cap, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t cap);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_case f = {.tl = &fuzz_engine_api, .second = &fuzz_second_api};
    fuzz_run(&f, &FUZZ_TARGET, data, n);
    if (f.wrong[0] != '\0') {
        (void)fprintf(stderr, "WRONG %s: %s\n", FUZZ_TARGET.name, f.wrong);
        abort();
    }
    return 0;
}

/* One change in four is libFuzzer's own, which knows nothing of the format and everything about
 * comparisons and the dictionary. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t cap, unsigned seed) {
    fuzz_rng rng = {.state = seed};
    if (FUZZ_TARGET.mutate == NULL || fuzz_chance(&rng, 4)) {
        return LLVMFuzzerMutate(data, n, cap);
    }
    return FUZZ_TARGET.mutate(data, n, cap, &rng);
}
