/* target_crash.c: a target with a planted bug, to show that the rig sees one.
 *
 * A reader as they are in the wild: it believes a length in the input and writes one byte too far.
 * Never part of a replay; `fuzz.py selftest` demands that libFuzzer finds it, and that the
 * sanitizers, or Valgrind, name it. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static void run(fuzz_case *f, const uint8_t *data, size_t n) {
    (void)f;
    if (n < 6 || memcmp(data, "TLKV", 4) != 0) {
        return;
    }
    const size_t length = data[4];
    char *text = malloc(length + 1);
    if (text == NULL) {
        return;
    }
    for (size_t i = 0; i < length + (data[5] == '!' ? 2 : 1); i++) {
        text[i] = 'x';
    }
    free(text);
}

const fuzz_target fuzz_crash = {.name = "crash", .run = run};
