/* golden_rules.c: the tables of golden_rules.h. Read beside conformance/spec/vectors.md. */
#include "golden_rules.h"

#include <stdint.h>
#include <string.h>

#define TEXT(k)                                                                                    \
    { .key = (k), .kind = RULE_TEXT, .required = true }
#define TEXT_OR(k)                                                                                 \
    { .key = (k), .kind = RULE_TEXT }
#define WORD(k, w)                                                                                 \
    { .key = (k), .kind = RULE_WORD, .required = true, .words = (w) }
#define WORD_OR(k, w)                                                                              \
    { .key = (k), .kind = RULE_WORD, .words = (w) }
#define COUNT(k)                                                                                   \
    { .key = (k), .kind = RULE_COUNT, .required = true }
#define COUNT_OR(k)                                                                                \
    { .key = (k), .kind = RULE_COUNT }
#define BOOL(k)                                                                                    \
    { .key = (k), .kind = RULE_BOOL, .required = true }
#define BOOL_OR(k)                                                                                 \
    { .key = (k), .kind = RULE_BOOL }
#define HEX(k, d)                                                                                  \
    { .key = (k), .kind = RULE_HEX, .required = true, .digits = (d) }
#define HEX_OR(k, d)                                                                               \
    { .key = (k), .kind = RULE_HEX, .digits = (d) }
#define HEXES(k, d)                                                                                \
    { .key = (k), .kind = RULE_HEXES, .required = true, .digits = (d) }
#define HEXES_OR(k, d)                                                                             \
    { .key = (k), .kind = RULE_HEXES, .digits = (d) }
#define ID(k)                                                                                      \
    { .key = (k), .kind = RULE_INT, .required = true, .low = 0, .high = UINT32_MAX }
#define IDS(k)                                                                                     \
    { .key = (k), .kind = RULE_INTS, .required = true, .low = 0, .high = UINT32_MAX }
#define IDS_OR(k)                                                                                  \
    { .key = (k), .kind = RULE_INTS, .low = 0, .high = UINT32_MAX }
#define INTS(k, l, h)                                                                              \
    { .key = (k), .kind = RULE_INTS, .required = true, .low = (l), .high = (h) }
#define BYTES(k)                                                                                   \
    { .key = (k), .kind = RULE_BYTES, .required = true }
#define BYTES_OR(k)                                                                                \
    { .key = (k), .kind = RULE_BYTES }
#define PIECES_OR(k)                                                                               \
    { .key = (k), .kind = RULE_PIECES }
#define OBJECT(k, b)                                                                               \
    { .key = (k), .kind = RULE_OBJECT, .required = true, .below = (b) }
#define OBJECT_OR(k, b)                                                                            \
    { .key = (k), .kind = RULE_OBJECT, .below = (b) }
#define OBJECTS(k, b)                                                                              \
    { .key = (k), .kind = RULE_OBJECTS, .required = true, .below = (b) }
#define OBJECTS_OR(k, b)                                                                           \
    { .key = (k), .kind = RULE_OBJECTS, .below = (b) }
#define SHAPE(k)                                                                                   \
    { .key = (k), .kind = RULE_INTS, .required = true, .low = 0, .high = INT64_MAX }
#define END                                                                                        \
    { .key = NULL }

#define CASE                                                                                       \
    TEXT("id"), TEXT("comment"), {                                                                 \
        .key = "flags", .kind = RULE_TEXTS, .required = true                                       \
    }

#define STATUSES "IO FORMAT UNSUPPORTED NOT_FOUND INVALID CAPACITY STATE NOMEM"
#define NODES "missing directory fifo zero-device unreadable link"

/* Of a case that is always refused, and of one that may be either. */
#define REFUSED                                                                                    \
    WORD("verdict", "refuse"),                                                                     \
        {.key = "status", .kind = RULE_WORDS, .required = true, .words = STATUSES}, TEXT("twin"),  \
        TEXT_OR("subject"), COUNT_OR("offset")
#define EITHER                                                                                     \
    WORD("verdict", "accept refuse"), {.key = "status", .kind = RULE_WORDS, .words = STATUSES},    \
        TEXT_OR("twin"), TEXT_OR("subject"), COUNT_OR("offset")

/* ------------------------------------------------------------------ the file */

static const key_rule generator_rules[] = {
    TEXT("name"),     TEXT("version"),
    TEXT("command"),  {.key = "libraries", .kind = RULE_TEXT_MAP, .required = true},
    TEXT("platform"), END};

static const key_rule reference_rules[] = {TEXT("name"), TEXT("version"), TEXT("dtype"),
                                           TEXT("device"), END};

static const key_rule tolerance_rules[] = {WORD("mode", "bits max_abs"), HEX("bound", 16),
                                           TEXT("derivation"), END};

/* The notes and groups have names of their own; they are looked at one by one. */
const key_rule golden_top_rules[] = {
    WORD("schema", "ol.vectors/1"),
    WORD("suite", "rng sampler f16 int4 linear logits greedy kv safetensors config"),
    OBJECT("generator", generator_rules),
    OBJECT("reference", reference_rules),
    COUNT("n_cases"),
    OBJECT("tolerance", tolerance_rules),
    {.key = "notes", .kind = RULE_OBJECT, .required = true, .below = NULL},
    {.key = "groups", .kind = RULE_OBJECTS, .required = true, .below = NULL},
    END};

const key_rule golden_note_rules[] = {TEXT("bug"),
                                      TEXT("effect"),
                                      {.key = "mutants", .kind = RULE_TEXTS, .required = true},
                                      {.key = "links", .kind = RULE_TEXTS, .required = true},
                                      END};

const key_rule golden_group_rules[] = {
    TEXT("name"), {.key = "cases", .kind = RULE_OBJECTS, .required = true, .below = NULL}, END};

/* ------------------------------------------------------------------ rng, sampler, f16 */

static const key_rule next_u32_rules[] = {
    CASE, HEX("seed", 16), HEX("seq", 16), COUNT_OR("skip"), HEXES("outputs", 8), END};
static const key_rule uniform_rules[] = {
    CASE, HEX("seed", 16), HEX("seq", 16), COUNT_OR("skip"), HEXES("values", 16), END};
static const key_rule child_seed_rules[] = {CASE, HEX("seed", 16), HEX("purpose", 16),
                                            HEX("value", 16), END};
static const key_rule stream_rules[] = {
    CASE, HEX("seed", 16), HEX("purpose", 16), HEXES("outputs", 8), HEXES("uniforms", 16), END};

static const key_rule params_rules[] = {HEX("temperature", 16),
                                        COUNT("top_k"),
                                        HEX("top_p", 16),
                                        HEX("min_p", 16),
                                        HEX("repetition_penalty", 16),
                                        HEX("presence_penalty", 16),
                                        HEX("frequency_penalty", 16),
                                        END};
static const key_rule step_rules[] = {HEXES_OR("logits", 8), COUNT_OR("logits_of"), ID("id"),
                                      HEX("logprob", 16), END};
static const key_rule sampler_rules[] = {CASE,
                                         HEX("seed", 16),
                                         OBJECT("params", params_rules),
                                         IDS("prompt"),
                                         OBJECTS("steps", step_rules),
                                         END};

static const key_rule f16_rules[] = {CASE, HEXES("f32", 8), HEXES("f16", 4), END};

/* ------------------------------------------------------------------ int4, linear */

static const key_rule int4_rules[] = {CASE,
                                      HEXES("weights", 8),
                                      COUNT("n_out"),
                                      COUNT("n_in"),
                                      COUNT("group"),
                                      HEXES("scales", 4),
                                      INTS("q", -8, 7),
                                      BYTES("qweight"),
                                      END};
static const key_rule int4_refused_rules[] = {
    CASE, HEXES("weights", 8), COUNT("n_out"), COUNT("n_in"), COUNT("group"), REFUSED, END};
static const key_rule int4_pack_rules[] = {
    CASE, INTS("q", -128, 127), COUNT("n_out"), COUNT("n_in"), BYTES_OR("qweight"), EITHER, END};

static const key_rule linear_rules[] = {CASE,
                                        WORD("dtype", "f32 bf16 f16 int4"),
                                        {.key = "weights", .kind = RULE_HEXES_4_8},
                                        BYTES_OR("qweight"),
                                        HEXES_OR("scales", 4),
                                        COUNT_OR("group"),
                                        HEXES("x", 8),
                                        COUNT("n_out"),
                                        COUNT("n_in"),
                                        COUNT("m"),
                                        HEXES("y", 8),
                                        END};

/* ------------------------------------------------------------------ logits, greedy */

static const key_rule logits_rules[] = {
    CASE, TEXT("model"), IDS("prompt"), HEXES("logits", 8), HEXES_OR("hidden", 8), END};
static const key_rule greedy_rules[] = {
    CASE,
    TEXT("model"),
    IDS("prompt"),
    IDS("tokens"),
    {.key = "top_ids", .kind = RULE_INTS_LISTS, .required = true, .low = 0, .high = UINT32_MAX},
    {.key = "top_logits", .kind = RULE_HEX_LISTS, .required = true, .digits = 8},
    HEXES("max_abs", 8),
    END};

/* ------------------------------------------------------------------ kv */

static const key_rule pool_rules[] = {COUNT("n_blocks"),
                                      COUNT("block_tokens"),
                                      COUNT("n_layers"),
                                      COUNT("n_kv_heads"),
                                      COUNT("head_dim"),
                                      BOOL("prefix_cache"),
                                      END};
static const key_rule layer_rules[] = {HEXES("k", 4), HEXES("v", 4), END};
static const key_rule block_rules[] = {COUNT("fill"),
                                       {.key = "key", .kind = RULE_KEY, .required = true},
                                       OBJECTS("layers", layer_rules),
                                       END};
static const key_rule adopted_block_rules[] = {COUNT("fill"),
                                               {.key = "key", .kind = RULE_KEY, .required = true},
                                               OBJECTS_OR("layers", layer_rules),
                                               END};
static const key_rule kv_rules[] = {CASE,
                                    OBJECT("config", pool_rules),
                                    HEX("model_tag", 16),
                                    OBJECTS("blocks", block_rules),
                                    BYTES("envelope"),
                                    END};
static const key_rule kv_adopted_rules[] = {CASE,
                                            OBJECT("config", pool_rules),
                                            HEX("model_tag", 16),
                                            HEXES_OR("cached", 32),
                                            OBJECTS("blocks", adopted_block_rules),
                                            BYTES("envelope"),
                                            END};
static const key_rule kv_refused_rules[] = {CASE,
                                            OBJECT("config", pool_rules),
                                            HEX("model_tag", 16),
                                            BYTES("envelope"),
                                            COUNT_OR("ids_cap"),
                                            REFUSED,
                                            END};

/* ------------------------------------------------------------------ safetensors, config */

static const key_rule read_rules[] = {TEXT("name"), SHAPE("shape"), END};
static const key_rule tensor_rules[] = {TEXT("name"), TEXT("dtype"), SHAPE("shape"),
                                        HEXES_OR("f32", 8), END};
static const key_rule safetensors_rules[] = {
    CASE,
    PIECES_OR("file"),
    {.key = "files", .kind = RULE_FILES},
    WORD_OR("node", NODES),
    TEXT_OR("node_of"),
    PIECES_OR("config"),
    COUNT_OR("int4_group"),
    OBJECT_OR("read", read_rules),
    {.key = "rule", .kind = RULE_INT, .required = true, .low = 1, .high = 13},
    OBJECTS_OR("tensors", tensor_rules),
    EITHER,
    END};

static const key_rule parsed_rules[] = {WORD_OR("arch", "llama bigram"),
                                        WORD_OR("tokenizer", "byte bpe"),
                                        COUNT_OR("vocab_size"),
                                        COUNT_OR("hidden_size"),
                                        COUNT_OR("intermediate_size"),
                                        COUNT_OR("n_layers"),
                                        COUNT_OR("n_heads"),
                                        COUNT_OR("n_kv_heads"),
                                        COUNT_OR("head_dim"),
                                        COUNT_OR("max_positions"),
                                        HEX_OR("rope_theta", 16),
                                        HEX_OR("rms_norm_eps", 16),
                                        BOOL_OR("tie_word_embeddings"),
                                        IDS_OR("eos_token_ids"),
                                        END};
static const key_rule config_rules[] = {CASE,
                                        PIECES_OR("file"),
                                        WORD_OR("node", NODES),
                                        PIECES_OR("weights"),
                                        TEXT_OR("locale"),
                                        OBJECT_OR("parsed", parsed_rules),
                                        WORD_OR("schema_says", "accept refuse none"),
                                        EITHER,
                                        END};

/* ------------------------------------------------------------------ which rules */

static const struct {
    const char *suite;
    const char *group; /* NULL: any group that has no row of its own above */
    const key_rule *rules;
} case_rules[] = {
    {"rng", "next_u32", next_u32_rules},
    {"rng", "uniform_f64", uniform_rules},
    {"rng", "child_seed", child_seed_rules},
    {"rng", "stream", stream_rules},
    {"sampler", NULL, sampler_rules},
    {"f16", NULL, f16_rules},
    {"int4", "refused", int4_refused_rules},
    {"int4", "pack", int4_pack_rules},
    {"int4", NULL, int4_rules},
    {"linear", NULL, linear_rules},
    {"logits", NULL, logits_rules},
    {"greedy", NULL, greedy_rules},
    {"kv", "refused", kv_refused_rules},
    {"kv", "adopted", kv_adopted_rules},
    {"kv", NULL, kv_rules},
    {"safetensors", NULL, safetensors_rules},
    {"config", NULL, config_rules},
};

const key_rule *golden_case_rules(const char *suite, const char *group) {
    for (size_t i = 0; i < sizeof case_rules / sizeof *case_rules; i++) {
        bool group_fits = case_rules[i].group == NULL || strcmp(case_rules[i].group, group) == 0;
        if (strcmp(case_rules[i].suite, suite) == 0 && group_fits) {
            return case_rules[i].rules;
        }
    }
    return NULL;
}
