/* hello.c: load a model directory and print its greedy continuation of a text. The tokens here are
 * bytes, so any model whose tokenizer is "byte" will do. `make` builds it as tl-hello:
 *
 *   tl-hello MODEL_DIR "And the LORD said unto " */
#include <stdio.h>
#include <stdlib.h>

#include "tl/tl.h"

enum { ROOM = 256, N_BLOCKS = ROOM / 16 }; /* positions, in blocks of 16 */

static void check(tl_status status, const tl_error *err) {
    if (status != TL_OK) {
        (void)fprintf(stderr, "%s: %s\n", tl_status_name(status), err->text);
        exit(1);
    }
}

static uint32_t largest(const float *row, size_t n) {
    uint32_t best = 0;
    for (uint32_t id = 1; id < n; id++) {
        best = row[id] > row[best] ? id : best;
    }
    return best;
}

int main(int argc, char **argv) {
    uint32_t tokens[ROOM], blocks[N_BLOCKS];
    size_t n = 0, done = 0;
    for (; argc == 3 && argv[2][n] != '\0' && n < ROOM / 2; n++) {
        tokens[n] = (unsigned char)argv[2][n];
    }
    if (n == 0) {
        (void)fprintf(stderr, "usage: %s MODEL_DIR TEXT\n", argv[0]);
        return 2;
    }
    const tl_engine_cfg cfg = tl_engine_cfg_default();
    tl_runner *runner = NULL;
    tl_logits logits = {0};
    tl_error err;
    check(tl_runner_load(&runner, argv[1], &cfg, &err), &err);
    check(tl_logits_init(&logits, 1, tl_runner_config(runner)->vocab_size, &err), &err);
    check(tl_kv_pool_alloc(tl_runner_pool(runner), blocks, N_BLOCKS, &err), &err);
    for (; n < ROOM && n < tl_runner_config(runner)->max_positions; n++) {
        /* The whole text in one step, then one new token a step. */
        const tl_forward_seq seq = {tokens + done, n - done, done, blocks, N_BLOCKS};
        const tl_forward_batch batch = {&seq, 1};
        check(tl_runner_forward(runner, &batch, &logits, &err), &err);
        done = n;
        tokens[n] = largest(tl_logits_row(&logits, 0), logits.vocab);
        putchar((int)tokens[n]);
    }
    putchar('\n');
    tl_logits_clear(&logits);
    tl_runner_free(runner);
    return 0;
}
