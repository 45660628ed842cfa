/* libfuzzer.c: the entry points of libFuzzer (and of every engine that speaks its language) for
 * one target, chosen at compile time by -DFUZZ_TARGET=fuzz_NAME. What is wrong aborts, so that the
 * engine keeps the input. With FUZZ_LIB in the environment that library is fuzzed in the place of
 * the engine that is linked in, as by fuzz-replay --lib. */
#include "fuzz.h"

#include "host/host.h"

#ifndef FUZZ_TARGET
#define FUZZ_TARGET fuzz_crash /* for those who read the file without building a program */
#endif

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t cap, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t cap);

static const host_api *under_test = &fuzz_engine_api;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static host_api other;
    char text[HOST_TEXT_CAP];
    const char *library = getenv("FUZZ_LIB");
    (void)argc;
    (void)argv;
    if (library != NULL && !host_load(&other, library, text)) {
        (void)fprintf(stderr, "FUZZ_LIB: %s\n", text);
        exit(70);
    }
    under_test = library != NULL ? &other : under_test;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_case f = {.tl = under_test, .second = &fuzz_second_api};
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
