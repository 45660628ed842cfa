/* steps.c: requests and comparisons of the forward and runner tests; see steps.h. */
#include "steps.h"

#include <math.h>
#include <string.h>

#define F16_NAN 0x7e00u
#define COUNT_MAX (1 << 24)
#define LAYERS_MAX 64 /* no model whose slabs are read here has more */

static size_t or_default(size_t value, size_t none) {
    return value == 0 ? none : value;
}

/* ------------------------------------------------------------------ runners */

/* A field that is missing, or that no model of these tests can have, is 0; tests 16 and 17 look at
 * the fields themselves. */
static size_t config_count(const json_t *config, const char *key) {
    json_int_t value = json_integer_value(json_object_get(config, key));
    return value < 0 || value > COUNT_MAX ? 0 : (size_t)value;
}

const json_t *step_load_try(ol_test *t, const char *dir, const step_cfg *cfg, step_runner *r) {
    memset(r, 0, sizeof *r);
    r->n_blocks = or_default(cfg->n_blocks, 64);
    r->block_tokens = or_default(cfg->block_tokens, 16);
    const json_t *answer =
        ol_call(t, "load", "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "dir", dir, "isa",
                cfg->isa == NULL ? "auto" : cfg->isa, "weights",
                cfg->weights == NULL ? "map" : cfg->weights, "n_blocks", (json_int_t)r->n_blocks,
                "block_tokens", (json_int_t)r->block_tokens, "max_batch_tokens",
                (json_int_t)or_default(cfg->max_batch_tokens, 512), "max_seqs",
                (json_int_t)or_default(cfg->max_seqs, 16), "threads",
                (json_int_t)or_default(cfg->threads, 1), "int4_group", (json_int_t)cfg->int4_group);
    if (ol_ok(answer)) {
        const json_t *config = json_object_get(answer, "config");
        r->runner = ol_int(t, answer, "runner");
        r->pool = ol_int(t, answer, "pool");
        r->vocab = config_count(config, "vocab_size");
        r->hidden = config_count(config, "hidden_size");
        r->layers = config_count(config, "n_layers");
        r->layers = r->layers > LAYERS_MAX ? 0 : r->layers;
        r->head_dim = or_default(config_count(config, "head_dim"), 1);
    }
    return answer;
}

bool step_load(ol_test *t, const char *check, const char *dir, const step_cfg *cfg,
               step_runner *r) {
    const json_t *answer = step_load_try(t, dir, cfg, r);
    return ol_check_ok(t, check, answer, ol_text(t, "load of %s", dir));
}

void step_free(ol_test *t, const step_runner *r) {
    (void)ol_call(t, "runner_free", "{s:I}", "runner", (json_int_t)r->runner);
}

/* ------------------------------------------------------------------ blocks */

uint32_t *step_alloc(ol_test *t, const char *check, const step_runner *r, size_t n) {
    const json_t *answer =
        ol_call(t, "kv_alloc", "{s:I, s:I}", "pool", (json_int_t)r->pool, "n", (json_int_t)n);
    if (!ol_check_ok(t, check, answer, ol_text(t, "alloc of %zu blocks", n))) {
        return NULL;
    }
    size_t n_ids = 0;
    uint32_t *ids = ol_res_u32s(t, answer, "ids", &n_ids);
    return ol_check_int(t, check, (int64_t)n_ids, (int64_t)n, "number of ids") ? ids : NULL;
}

void step_release(ol_test *t, const char *check, const step_runner *r, const uint32_t *ids,
                  size_t n) {
    ol_list *list = ol_list_new(t);
    for (size_t i = 0; i < n; i++) {
        ol_list_add(list, "kv_release", "{s:I, s:I}", "pool", (json_int_t)r->pool, "id",
                    (json_int_t)ids[i]);
    }
    const json_t **answers = ol_list_run(list);
    for (size_t i = 0; i < n; i++) {
        (void)ol_check_ok(t, check, answers[i], ol_text(t, "release of block %u", ids[i]));
    }
}

size_t step_blocks_for(const step_runner *r, size_t n_tokens) {
    return (n_tokens + r->block_tokens - 1) / r->block_tokens;
}

step_info *step_infos(ol_test *t, const step_runner *r, const uint32_t *ids, size_t n) {
    step_info *infos = ol_alloc(t, (n + 1) * sizeof *infos);
    ol_list *list = ol_list_new(t);
    for (size_t i = 0; i < n; i++) {
        ol_list_add(list, "kv_info", "{s:I, s:I}", "pool", (json_int_t)r->pool, "id",
                    (json_int_t)ids[i]);
    }
    const json_t **answers = ol_list_run(list);
    for (size_t i = 0; i < n; i++) {
        if (ol_ok(answers[i])) {
            infos[i].refs = (size_t)ol_int(t, answers[i], "refs");
            infos[i].fill = (size_t)ol_int(t, answers[i], "fill");
            infos[i].registered = json_is_true(json_object_get(answers[i], "registered"));
        }
    }
    return infos;
}

/* How many of block i's positions are among the first n_filled of a sequence. */
static size_t fill_of(const step_runner *r, size_t i, size_t n_filled) {
    size_t before = i * r->block_tokens;
    size_t left = n_filled > before ? n_filled - before : 0;
    return left < r->block_tokens ? left : r->block_tokens;
}

void step_check_fills(ol_test *t, const char *check, const step_runner *r, const uint32_t *ids,
                      size_t n, size_t n_filled) {
    const step_info *infos = step_infos(t, r, ids, n);
    for (size_t i = 0; i < n; i++) {
        (void)ol_check_int(
            t, check, (int64_t)infos[i].fill, (int64_t)fill_of(r, i, n_filled),
            ol_text(t, "fill of block %zu of the table, %zu positions are filled", i, n_filled));
    }
}

void step_check_stats(ol_test *t, const char *check, const step_runner *r, size_t n_free,
                      size_t n_cached, size_t n_used, const char *when) {
    static const char *const names[] = {"free", "cached", "used"};
    size_t wanted[] = {n_free, n_cached, n_used};
    const json_t *answer = ol_call(t, "kv_stats", "{s:I}", "pool", (json_int_t)r->pool);
    if (!ol_check_ok(t, check, answer, "kv_stats")) {
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        if (wanted[i] != SIZE_MAX) {
            (void)ol_check_int(t, check, ol_int(t, answer, names[i]), (int64_t)wanted[i],
                               ol_text(t, "%s blocks %s", names[i], when));
        }
    }
}

const char *step_key(ol_test *t, unsigned prompt, size_t i) {
    return ol_text(t, "%016x%016zx", prompt + 1, i + 1);
}

/* ------------------------------------------------------------------ slabs */

static void add_reads(ol_list *list, const step_runner *r, uint32_t id) {
    for (size_t layer = 0; layer < r->layers; layer++) {
        for (size_t side = 0; side < 2; side++) {
            ol_list_add(list, "kv_read", "{s:I, s:I, s:I, s:s}", "pool", (json_int_t)r->pool, "id",
                        (json_int_t)id, "layer", (json_int_t)layer, "side", side == 0 ? "k" : "v");
        }
    }
}

/* A slab is [kv head][slot][element]: zero the slots from the fill on. */
static void blank(const step_runner *r, uint16_t *slab, size_t n, size_t fill) {
    for (size_t i = 0; i < n; i++) {
        if ((i / r->head_dim) % r->block_tokens >= fill) {
            slab[i] = 0;
        }
    }
}

uint16_t *step_slabs(ol_test *t, const step_runner *r, const uint32_t *ids, size_t n,
                     size_t n_filled, size_t *n_values) {
    ol_list *list = ol_list_new(t);
    for (size_t i = 0; i < n; i++) {
        add_reads(list, r, ids[i]);
    }
    size_t n_reads = ol_list_len(list);
    const json_t **answers = ol_list_run(list);
    uint16_t *all = NULL;
    size_t slab_len = 0;
    for (size_t i = 0; i < n_reads; i++) {
        size_t len = 0;
        uint16_t *slab = ol_ok(answers[i]) ? ol_res_u16s(t, answers[i], "values", &len) : NULL;
        if (all == NULL) {
            slab_len = len;
            all = ol_alloc(t, n_reads * slab_len * sizeof *all + 1);
        }
        if (len == slab_len && len > 0) {
            blank(r, slab, len, fill_of(r, i / (2 * r->layers), n_filled));
            memcpy(all + i * slab_len, slab, len * sizeof *slab);
        }
    }
    *n_values = n_reads * slab_len;
    return all;
}

void step_poison(ol_test *t, const char *check, const step_runner *r, const uint32_t *ids, size_t n,
                 size_t first) {
    ol_list *reads = ol_list_new(t);
    for (size_t i = 0; i < n; i++) {
        add_reads(reads, r, ids[i]);
    }
    size_t n_slabs = ol_list_len(reads);
    const json_t **answers = ol_list_run(reads);
    ol_list *writes = ol_list_new(t);
    for (size_t i = 0; i < n_slabs; i++) {
        size_t block = i / (2 * r->layers);
        size_t len = 0;
        if (!ol_check_ok(t, check, answers[i], "kv_read")) {
            continue;
        }
        uint16_t *slab = ol_res_u16s(t, answers[i], "values", &len);
        for (size_t e = 0; e < len; e++) {
            size_t slot = (e / r->head_dim) % r->block_tokens;
            slab[e] = block * r->block_tokens + slot >= first ? F16_NAN : slab[e];
        }
        ol_list_add(writes, "kv_write", "{s:I, s:I, s:I, s:s, s:i, s:o}", "pool",
                    (json_int_t)r->pool, "id", (json_int_t)ids[block], "layer",
                    (json_int_t)(i / 2 % r->layers), "side", i % 2 == 0 ? "k" : "v", "at", 0,
                    "values", ol_u16(slab, len));
    }
    size_t n_writes = ol_list_len(writes);
    const json_t **written = ol_list_run(writes);
    for (size_t i = 0; i < n_writes; i++) {
        (void)ol_check_ok(t, check, written[i], "kv_write");
    }
}

/* ------------------------------------------------------------------ steps */

static json_t *start_json(uint64_t start) {
    if (start < (UINT64_C(1) << 53)) {
        return json_integer((json_int_t)start);
    }
    return ol_u64(start);
}

static json_t *seqs_json(const step_seq *seqs, size_t n_seqs) {
    json_t *list = json_array();
    for (size_t i = 0; i < n_seqs; i++) {
        json_t *seq = json_pack(
            "{s:o, s:o, s:o}", "tokens", ol_u32(seqs[i].tokens, seqs[i].n_tokens), "start",
            start_json(seqs[i].start), "blocks", ol_u32(seqs[i].blocks, seqs[i].n_blocks));
        (void)json_array_append_new(list, seq);
    }
    return list;
}

const json_t *step_try(ol_test *t, const step_runner *r, const step_seq *seqs, size_t n_seqs) {
    return step_try_rows(t, r, seqs, n_seqs, n_seqs);
}

const json_t *step_try_rows(ol_test *t, const step_runner *r, const step_seq *seqs, size_t n_seqs,
                            size_t rows_cap) {
    return ol_call(t, "forward", "{s:I, s:o, s:I}", "runner", (json_int_t)r->runner, "seqs",
                   seqs_json(seqs, n_seqs), "rows_cap", (json_int_t)rows_cap);
}

float *step_run(ol_test *t, const char *check, const step_runner *r, const step_seq *seqs,
                size_t n_seqs) {
    const json_t *answer = step_try(t, r, seqs, n_seqs);
    const char *what =
        ol_text(t, "forward of %zu sequences, the first with %zu tokens at position %llu", n_seqs,
                seqs[0].n_tokens, (unsigned long long)seqs[0].start);
    if (!ol_check_ok(t, check, answer, what)) {
        return NULL;
    }
    size_t n = 0;
    float *rows = ol_res_f32s(t, answer, "logits", &n);
    return ol_check_int(t, check, (int64_t)n, (int64_t)(n_seqs * r->vocab), "number of logits")
               ? rows
               : NULL;
}

float *step_piece(ol_test *t, const char *check, const step_runner *r, const uint32_t *tokens,
                  size_t begin, size_t end, const uint32_t *blocks, size_t n_blocks) {
    step_seq seq = {.tokens = tokens + begin,
                    .n_tokens = end - begin,
                    .start = begin,
                    .blocks = blocks,
                    .n_blocks = n_blocks};
    return step_run(t, check, r, &seq, 1);
}

float *step_cold(ol_test *t, const char *check, const step_runner *r, const uint32_t *tokens,
                 size_t n_tokens) {
    size_t n_blocks = step_blocks_for(r, n_tokens);
    uint32_t *blocks = step_alloc(t, check, r, n_blocks);
    if (blocks == NULL) {
        return NULL;
    }
    float *row = step_piece(t, check, r, tokens, 0, n_tokens, blocks, n_blocks);
    step_release(t, check, r, blocks, n_blocks);
    return row;
}

float *step_once(ol_test *t, const char *check, const step_runner *r, const uint32_t *tokens,
                 size_t n_tokens, float **hidden, size_t *n_hidden) {
    const json_t *answer =
        ol_call(t, "run_once", "{s:I, s:o, s:b}", "runner", (json_int_t)r->runner, "tokens",
                ol_u32(tokens, n_tokens), "hidden", hidden != NULL ? 1 : 0);
    if (!ol_check_ok(t, check, answer, ol_text(t, "run_once of %zu tokens", n_tokens))) {
        return NULL;
    }
    if (hidden != NULL) {
        *hidden = ol_res_f32s(t, answer, "hidden", n_hidden);
    }
    size_t n = 0;
    float *row = ol_res_f32s(t, answer, "logits", &n);
    return ol_check_int(t, check, (int64_t)n, (int64_t)r->vocab, "number of logits") ? row : NULL;
}

/* ------------------------------------------------------------------ numbers */

uint32_t *step_prompt(ol_test *t, size_t vocab, size_t n) {
    uint32_t *tokens = ol_alloc(t, (n + 1) * sizeof *tokens);
    uint32_t n_ids = vocab < UINT32_MAX ? (uint32_t)vocab : UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        tokens[i] = ol_rand_below(t, n_ids);
        for (size_t j = 0; j < i && i < 4 && n_ids >= 4; j++) {
            if (tokens[i] == tokens[j]) {
                tokens[i] = (tokens[i] + 1) % n_ids;
                j = SIZE_MAX; /* look at all of them again */
            }
        }
    }
    return tokens;
}

size_t step_argmax(const float *row, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (row[i] > row[best] || isnan(row[best])) {
            best = i;
        }
    }
    return best;
}

bool step_finite(const float *values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) {
            return false;
        }
    }
    return true;
}

void step_same(ol_test *t, const char *check, const char *bits, const float *got, const float *want,
               size_t n, const char *what) {
    if (got == NULL || want == NULL) {
        return;
    }
    (void)ol_check_f32_max_abs(t, check, got, n, want, n, STEP_BOUND, what);
    if (bits != NULL) {
        (void)ol_check_f32_bits(t, bits, got, n, want, n, what);
    }
}
