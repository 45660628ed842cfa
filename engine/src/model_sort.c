/* model_sort.c: one sort for names and for ranges, in bounded time for hostile ones.
 *
 * A header may have two million names, chosen by an enemy. A hash table needs a secret seed to
 * stand that, and the library has no place for secrets; a merge sort does not care. Items are 8
 * bytes, so that a million tensors cost 16 MB while they are sorted. The 32-bit key decides
 * nearly every comparison without a look at the tensor; equal keys only cost that look.
 *
 * Source: conformance/spec/safetensors.md, rules 4 and 9. */
#include "model_internal.h"

#include <string.h>

#include "util.h"

uint64_t tli_item(uint32_t key, uint32_t index) {
    return (uint64_t)key << 32 | index;
}

uint32_t tli_item_index(uint64_t item) {
    return (uint32_t)(item & UINT32_MAX);
}

static int compare_items(uint64_t a, uint64_t b, tli_tie tie, const void *context) {
    const uint64_t key_a = a >> 32;
    const uint64_t key_b = b >> 32;
    if (key_a != key_b) {
        return key_a < key_b ? -1 : 1;
    }
    return tie(context, tli_item_index(a), tli_item_index(b));
}

/* Merge [0, n_left) and [n_left, n) of items; the left run waits in spare. */
static void merge_runs(uint64_t *items, uint64_t *spare, size_t n_left, size_t n, tli_tie tie,
                       const void *context) {
    if (compare_items(items[n_left - 1], items[n_left], tie, context) <= 0) {
        return; /* in order already, as the headers of most writers are */
    }
    memcpy(spare, items, n_left * sizeof *items);
    size_t i_left = 0;
    size_t i_right = n_left;
    size_t i_out = 0;
    while (i_left < n_left && i_right < n) {
        const bool take_left = compare_items(spare[i_left], items[i_right], tie, context) <= 0;
        items[i_out] = take_left ? spare[i_left] : items[i_right];
        i_left += take_left ? 1 : 0;
        i_right += take_left ? 0 : 1;
        i_out++;
    }
    /* What is left of the right run lies where it belongs. */
    memcpy(items + i_out, spare + i_left, (n_left - i_left) * sizeof *items);
}

void tli_sort_items(uint64_t *items, uint64_t *spare, size_t n, tli_tie tie, const void *context) {
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t begin = 0; n - begin > width; begin += 2 * width) {
            const size_t n_pair = n - begin < 2 * width ? n - begin : 2 * width;
            merge_runs(items + begin, spare, width, n_pair, tie, context);
            if (n_pair < 2 * width) {
                break;
            }
        }
    }
}

uint32_t tli_name_key(const char *name, size_t name_len) {
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a, folded */
    for (size_t i = 0; i < name_len; i++) {
        h = (h ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
    }
    return (uint32_t)(h >> 32 ^ (h & UINT32_MAX));
}

int tli_name_compare(const char *a, size_t a_len, const char *b, size_t b_len) {
    const int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    if (order != 0 || a_len == b_len) {
        return order;
    }
    return a_len < b_len ? -1 : 1;
}
