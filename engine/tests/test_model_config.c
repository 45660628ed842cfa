/* config.json: every row of the page with its status, the twin that is taken, and what was parsed.
 *
 * Each case changes the one sound file in one place. Source: conformance/spec/config.md. */
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_fixture.h"

/* ------------------------------------------------------------------ configs in one place
 * changed */

typedef struct member {
    const char *key, *value;
} member;

static const member base_members[] = {
    {"tl_arch", "\"llama\""},
    {"tl_tokenizer", "\"byte\""},
    {"architectures", "[\"LlamaForCausalLM\"]"},
    {"model_type", "\"llama\""},
    {"vocab_size", "256"},
    {"hidden_size", "64"},
    {"intermediate_size", "128"},
    {"num_hidden_layers", "2"},
    {"num_attention_heads", "4"},
    {"num_key_value_heads", "2"},
    {"hidden_act", "\"silu\""},
    {"max_position_embeddings", "128"},
    {"rms_norm_eps", "1e-05"},
    {"rope_theta", "10000.0"},
    {"rope_scaling", "null"},
    {"tie_word_embeddings", "true"},
    {"eos_token_id", "2"},
};

/* The base with `change`: "key=value" sets, "key=" removes; several are parted by '|'. */
static blob changed(const char *change) {
    blob b = {0};
    char text[1024];
    const char *keys[8];
    const char *values[8];
    size_t n = 0;
    (void)snprintf(text, sizeof text, "%s", change);
    for (char *at = strtok(text, "|"); at != NULL; at = strtok(NULL, "|")) {
        assert_true(n < 8);
        char *equals = strchr(at, '=');
        assert_non_null(equals);
        *equals = '\0';
        keys[n] = at;
        values[n] = equals + 1;
        n++;
    }
    blob_text(&b, "{\"note\":\"x\"");
    for (size_t i = 0; i < COUNT_OF(base_members); i++) {
        bool is_changed = false;
        for (size_t j = 0; j < n; j++) {
            is_changed = is_changed || strcmp(keys[j], base_members[i].key) == 0;
        }
        if (!is_changed) {
            blob_text(&b, ",\"");
            blob_text(&b, base_members[i].key);
            blob_text(&b, "\":");
            blob_text(&b, base_members[i].value);
        }
    }
    for (size_t j = 0; j < n; j++) {
        if (values[j][0] != '\0') {
            blob_text(&b, ",\"");
            blob_text(&b, keys[j]);
            blob_text(&b, "\":");
            blob_text(&b, values[j]);
        }
    }
    blob_text(&b, "}");
    blob_fit(&b);
    return b;
}

static tl_status parse(const char *change, tl_model_config *cfg, tl_error *err) {
    blob b = changed(change);
    const tl_status status = tl_model_config_parse(cfg, (const char *)b.data, b.n, err);
    blob_clear(&b);
    return status;
}

static tl_model_config parse_ok(const char *change) {
    tl_model_config cfg = {0};
    tl_error err = fresh_error();
    if (parse(change, &cfg, &err) != TL_OK) {
        fail_msg("%s: %s", change, err.text);
    }
    return cfg;
}

typedef struct refusal {
    const char *change;
    tl_status status;
    const char *subject;
} refusal;

/* Refused as the table says, and *out is as it was. */
static void check_refusals(const refusal *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        tl_model_config cfg;
        tl_model_config before;
        tl_error err = fresh_error();
        memset(&cfg, 0x5a, sizeof cfg);
        memcpy(&before, &cfg, sizeof cfg);
        check_refusal(parse(cases[i].change, &cfg, &err), &err, cases[i].status, cases[i].subject,
                      cases[i].change);
        assert_memory_equal(&cfg, &before, sizeof cfg);
        assert_int_equal(parse(cases[i].change, &cfg, NULL), cases[i].status);
    }
}

#define FORMAT TL_ERR_FORMAT
#define UNSUPPORTED TL_ERR_UNSUPPORTED
#define X35 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X36 X35 "x"

/* ------------------------------------------------------------------ tests */

static void base_is_parsed(void **state) {
    (void)state;
    const tl_model_config cfg = parse_ok("");
    assert_int_equal(cfg.arch, TL_ARCH_LLAMA);
    assert_int_equal(cfg.tokenizer, TL_TOKENIZER_BYTE);
    assert_int_equal(cfg.vocab_size, 256);
    assert_int_equal(cfg.hidden_size, 64);
    assert_int_equal(cfg.intermediate_size, 128);
    assert_int_equal(cfg.n_layers, 2);
    assert_int_equal(cfg.n_heads, 4);
    assert_int_equal(cfg.n_kv_heads, 2);
    assert_int_equal(cfg.head_dim, 16);
    assert_int_equal(cfg.max_positions, 128);
    assert_true(cfg.rope_theta == 10000.0);
    assert_true(cfg.rms_norm_eps == 1e-5);
    assert_true(cfg.tie_word_embeddings);
    assert_int_equal(cfg.n_eos_token_ids, 1);
    assert_int_equal(cfg.eos_token_ids[0], 2);
}

static void identity(void **state) {
    (void)state;
    static const refusal cases[] = {
        {"tl_arch=", UNSUPPORTED, "tl_arch"},
        {"tl_arch=null", UNSUPPORTED, "tl_arch"},
        {"tl_arch=\"mamba\"", UNSUPPORTED, "mamba"},
        {"tl_arch=5", FORMAT, "tl_arch"},
        {"tl_tokenizer=", UNSUPPORTED, "tl_tokenizer"},
        {"tl_tokenizer=\"word\"", UNSUPPORTED, "word"},
        {"tl_tokenizer=[]", FORMAT, "tl_tokenizer"},
        {"model_type=\"qwen2\"", UNSUPPORTED, "qwen2"},
        {"model_type=\"" X36 X36 "\"", UNSUPPORTED, "model_type is \"" X36 X35 "...; "},
        {"model_type=1", FORMAT, "model_type"},
        {"architectures=[]", UNSUPPORTED, "architectures"},
        {"architectures=[\"LlamaForCausalLM\",\"LlamaForCausalLM\"]", UNSUPPORTED, "architectures"},
        {"architectures=[\"LlamaForSequenceClassification\"]", UNSUPPORTED,
         "LlamaForSequenceClassification"},
        {"architectures=\"LlamaForCausalLM\"", FORMAT, "architectures"},
        {"architectures=[1]", FORMAT, "architectures"},
        {"model_type=\"mistral\"|sliding_window=64", UNSUPPORTED, "sliding_window"},
    };
    check_refusals(cases, COUNT_OF(cases));
    assert_int_equal(parse_ok("tl_tokenizer=\"bpe\"").tokenizer, TL_TOKENIZER_BPE);
    (void)parse_ok("model_type=|architectures=");
    (void)parse_ok("model_type=null|architectures=null");
    (void)parse_ok("model_type=\"mistral\"|architectures=[\"MistralForCausalLM\"]|"
                   "sliding_window=null");
}

static void foreign_keys(void **state) {
    (void)state;
    static const char *const keys[] = {"quantization_config",
                                       "quantization",
                                       "compression_config",
                                       "text_config",
                                       "num_local_experts",
                                       "no_rope_layers",
                                       "attn_logit_softcapping",
                                       "final_logit_softcapping",
                                       "logit_scale",
                                       "logits_scaling",
                                       "embedding_multiplier",
                                       "residual_multiplier",
                                       "attention_multiplier",
                                       "auto_map"};
    static const char *const values[] = {"false", "0", "1.0", "\"\"", "[]", "{\"a\":1}"};
    char change[128];
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        for (size_t j = 0; j < COUNT_OF(values); j++) {
            (void)snprintf(change, sizeof change, "%s=%s", keys[i], values[j]);
            const refusal one = {change, UNSUPPORTED, keys[i]};
            check_refusals(&one, 1);
        }
        (void)snprintf(change, sizeof change, "%s=null", keys[i]);
        (void)parse_ok(change);
    }
    (void)parse_ok("attention_dropout=0.1|pretraining_tp=2|_name_or_path=\"x/y\"|use_cache=true");
}

static void switches(void **state) {
    (void)state;
    static const char *const off[] = {"attention_bias", "mlp_bias", "bias", "qkv_bias",
                                      "use_qk_norm"};
    char change[128];
    for (size_t i = 0; i < COUNT_OF(off); i++) {
        (void)snprintf(change, sizeof change, "%s=true", off[i]);
        const refusal on = {change, UNSUPPORTED, off[i]};
        check_refusals(&on, 1);
        (void)snprintf(change, sizeof change, "%s=1", off[i]);
        const refusal number = {change, FORMAT, off[i]};
        check_refusals(&number, 1);
        (void)snprintf(change, sizeof change, "%s=false", off[i]);
        (void)parse_ok(change);
        (void)snprintf(change, sizeof change, "%s=null", off[i]);
        (void)parse_ok(change);
    }
    static const refusal cases[] = {
        {"sliding_window=64", UNSUPPORTED, "sliding_window"},
        {"sliding_window=64|use_sliding_window=true", UNSUPPORTED, "sliding_window"},
        {"sliding_window=64|use_sliding_window=null", UNSUPPORTED, "sliding_window"},
        {"use_sliding_window=0", FORMAT, "use_sliding_window"},
        {"layer_types=[\"full_attention\",\"sliding_attention\"]", UNSUPPORTED,
         "sliding_attention"},
        {"layer_types=\"full_attention\"", FORMAT, "layer_types"},
        {"layer_types=[1]", FORMAT, "layer_types"},
        {"layer_types=[\"sliding_attention\",1]", FORMAT, "layer_types"},
        {"hidden_act=\"a name that is far longer than what a message is ready to quote of any "
         "value\"",
         UNSUPPORTED, "..."},
        {"partial_rotary_factor=0.5", UNSUPPORTED, "partial_rotary_factor"},
        {"partial_rotary_factor=\"1\"", FORMAT, "partial_rotary_factor"},
        {"position_embedding_type=\"alibi\"", UNSUPPORTED, "alibi"},
        {"hidden_act=\"gelu\"", UNSUPPORTED, "gelu"},
        {"hidden_act=5", FORMAT, "hidden_act"},
        {"hidden_activation=\"gelu_pytorch_tanh\"", UNSUPPORTED, "hidden_activation"},
    };
    check_refusals(cases, COUNT_OF(cases));
    (void)parse_ok("sliding_window=64|use_sliding_window=false");
    (void)parse_ok("use_sliding_window=true");
    (void)parse_ok("layer_types=[\"full_attention\",\"full_attention\"]");
    (void)parse_ok("layer_types=[]");
    (void)parse_ok("partial_rotary_factor=1");
    (void)parse_ok("partial_rotary_factor=1.0");
    (void)parse_ok("position_embedding_type=\"rope\"");
    (void)parse_ok("hidden_act=\"swish\"|hidden_activation=\"silu\"");
    (void)parse_ok("hidden_act=");
}

static void counts(void **state) {
    (void)state;
    static const refusal cases[] = {
        {"vocab_size=", FORMAT, "vocab_size"},
        {"vocab_size=-1", FORMAT, "-1"},
        {"vocab_size=0", FORMAT, "vocab_size"},
        {"vocab_size=255", FORMAT, "255"},
        {"vocab_size=16777217", FORMAT, "16777217"},
        {"hidden_size=", FORMAT, "hidden_size"},
        {"hidden_size=null", FORMAT, "hidden_size"},
        {"hidden_size=64.0", FORMAT, "64.0"},
        {"hidden_size=\"64\"", FORMAT, "hidden_size"},
        {"hidden_size=true", FORMAT, "hidden_size"},
        {"hidden_size=4294967296", FORMAT, "4294967296"},
        {"hidden_size=9223372036854775808", FORMAT, "hidden_size"},
        {"intermediate_size=", FORMAT, "intermediate_size"},
        {"intermediate_size=0", FORMAT, "intermediate_size"},
        {"num_hidden_layers=", FORMAT, "num_hidden_layers"},
        {"num_hidden_layers=0", FORMAT, "num_hidden_layers"},
        {"num_hidden_layers=65537", FORMAT, "65537"},
        {"num_attention_heads=", FORMAT, "num_attention_heads"},
        {"num_key_value_heads=3", FORMAT, "num_key_value_heads"},
        {"num_key_value_heads=8", FORMAT, "num_key_value_heads"},
        {"num_key_value_heads=0", FORMAT, "num_key_value_heads"},
        {"num_key_value_heads=[2,1]", FORMAT, "num_key_value_heads"},
        {"head_dim=15", FORMAT, "15"},
        {"head_dim=0", FORMAT, "head_dim"},
        {"head_dim=1", FORMAT, "head_dim"},
        {"hidden_size=66", FORMAT, "66"},
        {"hidden_size=60|num_key_value_heads=", FORMAT, "15"},
        {"max_position_embeddings=0", FORMAT, "max_position_embeddings"},
        {"max_position_embeddings=1.5", FORMAT, "1.5"},
        {"num_attention_heads=16777216|num_key_value_heads=1|head_dim=16777216|"
         "hidden_size=16777216",
         FORMAT, "num_attention_heads"},
    };
    check_refusals(cases, COUNT_OF(cases));
    assert_int_equal(parse_ok("vocab_size=16777216|hidden_size=64").vocab_size, 16777216);
    assert_int_equal(parse_ok("vocab_size=1|tl_tokenizer=\"bpe\"|eos_token_id=0").vocab_size, 1);
    assert_int_equal(parse_ok("num_hidden_layers=65536").n_layers, 65536);
    assert_int_equal(parse_ok("num_key_value_heads=").n_kv_heads, 4);
    assert_int_equal(parse_ok("num_key_value_heads=1").n_kv_heads, 1);
    assert_int_equal(parse_ok("head_dim=null").head_dim, 16);
    assert_int_equal(parse_ok("head_dim=128").head_dim, 128);
    assert_int_equal(parse_ok("head_dim=2|hidden_size=66").head_dim, 2);
    assert_int_equal(parse_ok("max_position_embeddings=").max_positions, 2048);
    assert_int_equal(parse_ok("max_position_embeddings=16777216").max_positions, 16777216);
}

static void reals(void **state) {
    (void)state;
    static const refusal cases[] = {
        {"rms_norm_eps=", FORMAT, "rms_norm_eps"},
        {"rms_norm_eps=0", FORMAT, "rms_norm_eps"},
        {"rms_norm_eps=-1e-5", FORMAT, "rms_norm_eps"},
        {"rms_norm_eps=\"1e-5\"", FORMAT, "rms_norm_eps"},
        {"rms_norm_eps=1e-46", FORMAT, "rms_norm_eps"},
        {"rms_norm_eps=1e-999", FORMAT, "rms_norm_eps"},
        {"rms_norm_eps=1e39", FORMAT, "rms_norm_eps"},
        {"rms_norm_eps=3.4028235677973366e38", FORMAT, "rms_norm_eps"},
        {"rms_norm_eps=7.006492321624085e-46", FORMAT, "rms_norm_eps"},
        {"rope_theta=0", FORMAT, "rope_theta"},
        {"rope_theta=1e999", FORMAT, "rope_theta"},
        {"rope_theta=\"10000\"", FORMAT, "rope_theta"},
        {"rope_theta=NaN", FORMAT, "rope_theta"},
    };
    check_refusals(cases, COUNT_OF(cases));
    assert_true(parse_ok("rms_norm_eps=1").rms_norm_eps == 1.0);
    assert_true(parse_ok("rms_norm_eps=7.1e-46").rms_norm_eps == 7.1e-46);
    assert_true(parse_ok("rms_norm_eps=3.4028235e38").rms_norm_eps == 3.4028235e38);
    assert_true(parse_ok("rope_theta=500000").rope_theta == 500000.0);
    assert_true(parse_ok("rope_theta=").rope_theta == 10000.0);
    assert_true(parse_ok("rope_theta=null").rope_theta == 10000.0);
}

static void rope(void **state) {
    (void)state;
    static const refusal cases[] = {
        {"rope_scaling={}", UNSUPPORTED, "rope_scaling"},
        {"rope_scaling={\"rope_theta\":10000.0}", UNSUPPORTED, "rope_scaling"},
        {"rope_scaling=\"linear\"", FORMAT, "rope_scaling"},
        {"rope_parameters=[]", FORMAT, "rope_parameters"},
        {"rope_scaling={\"rope_type\":\"linear\",\"factor\":2.0}", UNSUPPORTED, "linear"},
        {"rope_scaling={\"type\":\"dynamic\",\"factor\":2.0}", UNSUPPORTED, "dynamic"},
        {"rope_scaling={\"rope_type\":\"yarn\"}", UNSUPPORTED, "yarn"},
        {"rope_scaling={\"type\":\"llama3\",\"rope_type\":\"default\"}", UNSUPPORTED, "llama3"},
        {"rope_scaling={\"type\":\"default\",\"rope_type\":\"longrope\"}", UNSUPPORTED, "longrope"},
        {"rope_scaling={\"rope_type\":1}", FORMAT, "rope_type"},
        {"rope_scaling={\"rope_type\":\"default\",\"factor\":1.0}", UNSUPPORTED, "factor"},
        {"rope_parameters={\"rope_type\":\"yarn\",\"rope_theta\":1e4}", UNSUPPORTED, "yarn"},
        {"rope_parameters={\"full_attention\":{\"rope_theta\":1e6}}", UNSUPPORTED,
         "full_attention"},
        {"rope_parameters={\"partial_rotary_factor\":0.5}", UNSUPPORTED, "partial_rotary_factor"},
        {"rope_parameters={\"rope_theta\":500000.0}", FORMAT, "rope_theta"},
        {"rope_parameters={\"rope_theta\":0}|rope_theta=", FORMAT, "rope_theta"},
        {"rope_parameters={\"rope_theta\":\"1e6\"}|rope_theta=", FORMAT, "rope_theta"},
        {"rope_parameters={\"rope_theta\":1e6}|rope_theta=|"
         "rope_scaling={\"type\":\"default\",\"rope_theta\":1e5}",
         FORMAT, "rope_theta"},
    };
    check_refusals(cases, COUNT_OF(cases));
    static const struct {
        const char *change;
        double theta;
    } sound[] = {
        {"rope_parameters={\"rope_theta\":500000.0,\"rope_type\":\"default\"}|rope_theta=", 5e5},
        {"rope_parameters={\"rope_theta\":1000000}|rope_theta=null", 1e6},
        {"rope_parameters={}", 1e4},
        {"rope_parameters={\"type\":\"default\",\"factor\":null}|rope_theta=", 1e4},
        {"rope_parameters={\"rope_theta\":1e4}|rope_theta=10000", 1e4},
        {"rope_parameters={\"rope_theta\":null,\"partial_rotary_factor\":1}", 1e4},
        {"rope_scaling={\"rope_type\":\"default\"}", 1e4},
        {"rope_scaling={\"type\":\"default\",\"rope_theta\":250000.0}|rope_theta=", 2.5e5},
    };
    for (size_t i = 0; i < COUNT_OF(sound); i++) {
        assert_true(parse_ok(sound[i].change).rope_theta == sound[i].theta);
    }
}

static void tie_and_eos(void **state) {
    (void)state;
    static const refusal cases[] = {
        {"tie_word_embeddings=\"false\"", FORMAT, "tie_word_embeddings"},
        {"tie_word_embeddings=0", FORMAT, "tie_word_embeddings"},
        {"eos_token_id=256", FORMAT, "256"},
        {"eos_token_id=-1", FORMAT, "-1"},
        {"eos_token_id=2.0", FORMAT, "eos_token_id"},
        {"eos_token_id=\"2\"", FORMAT, "eos_token_id"},
        {"eos_token_id=[]", FORMAT, "eos_token_id"},
        {"eos_token_id=[1,2,1]", FORMAT, "eos_token_id"},
        {"eos_token_id=[1,256]", FORMAT, "256"},
        {"eos_token_id=[1,null]", FORMAT, "eos_token_id"},
        {"eos_token_id=[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", FORMAT, "eos_token_id"},
    };
    check_refusals(cases, COUNT_OF(cases));
    assert_false(parse_ok("tie_word_embeddings=").tie_word_embeddings);
    assert_false(parse_ok("tie_word_embeddings=null").tie_word_embeddings);
    assert_int_equal(parse_ok("eos_token_id=").n_eos_token_ids, 0);
    assert_int_equal(parse_ok("eos_token_id=null").n_eos_token_ids, 0);
    const tl_model_config last = parse_ok("eos_token_id=255");
    assert_int_equal(last.eos_token_ids[0], 255);
    const tl_model_config three = parse_ok("vocab_size=128256|eos_token_id=[128009,128001,128008]");
    assert_int_equal(three.n_eos_token_ids, 3);
    assert_int_equal(three.eos_token_ids[0], 128009);
    assert_int_equal(three.eos_token_ids[1], 128001);
    assert_int_equal(three.eos_token_ids[2], 128008);
    const tl_model_config many = parse_ok("eos_token_id=[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]");
    assert_int_equal(many.n_eos_token_ids, 16);
    assert_int_equal(many.eos_token_ids[15], 15);
}

/* UNSUPPORTED comes first: a file of another family is not told that it lacks a number. */
static void family_comes_before_numbers(void **state) {
    (void)state;
    static const refusal cases[] = {
        {"model_type=\"llava\"|hidden_size=", UNSUPPORTED, "llava"},
        {"tl_arch=|vocab_size=", UNSUPPORTED, "tl_arch"},
        {"text_config={}|hidden_size=", UNSUPPORTED, "text_config"},
        {"rope_scaling={\"rope_type\":\"yarn\"}|rms_norm_eps=", UNSUPPORTED, "yarn"},
    };
    check_refusals(cases, COUNT_OF(cases));
}

static void bigram_reads_five_rows(void **state) {
    (void)state;
    static const char text[] =
        "{\"tl_arch\":\"bigram\",\"tl_tokenizer\":\"byte\",\"vocab_size\":300,\"eos_token_id\":[7,"
        "299],"
        "\"model_type\":\"gpt2\",\"architectures\":5,\"hidden_size\":-1,\"rope_scaling\":\"x\","
        "\"quantization_config\":{},\"tie_word_embeddings\":\"no\",\"rms_norm_eps\":0}";
    tl_model_config cfg = {0};
    tl_error err = fresh_error();
    assert_int_equal(tl_model_config_parse(&cfg, text, strlen(text), &err), TL_OK);
    assert_int_equal(cfg.arch, TL_ARCH_BIGRAM);
    assert_int_equal(cfg.vocab_size, 300);
    assert_int_equal(cfg.max_positions, 2048);
    assert_int_equal(cfg.n_eos_token_ids, 2);
    assert_int_equal(cfg.n_layers, 1);
    assert_int_equal(cfg.n_heads, 1);
    assert_int_equal(cfg.n_kv_heads, 1);
    assert_int_equal(cfg.head_dim, 2);
    assert_int_equal(cfg.hidden_size, 0);
    static const refusal cases[] = {
        {"tl_arch=\"bigram\"|vocab_size=255", FORMAT, "vocab_size"},
        {"tl_arch=\"bigram\"|tl_tokenizer=", UNSUPPORTED, "tl_tokenizer"},
        {"tl_arch=\"bigram\"|max_position_embeddings=0", FORMAT, "max_position_embeddings"},
        {"tl_arch=\"bigram\"|eos_token_id=256", FORMAT, "eos_token_id"},
    };
    check_refusals(cases, COUNT_OF(cases));
}

static void bytes_that_are_no_config(void **state) {
    (void)state;
    tl_model_config cfg = {0};
    tl_error err = fresh_error();
    static const char *const texts[] = {"", "[]", "// x\n{}", "\xef\xbb\xbf{}",
                                        "{\"a\":1,\"a\":1}"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        const tl_status status = tl_model_config_parse(&cfg, texts[i], strlen(texts[i]), &err);
        check_refusal(status, &err, FORMAT, "config.json", texts[i]);
    }
    assert_int_equal(tl_model_config_parse(&cfg, NULL, 0, &err), FORMAT);
    assert_int_equal(tl_model_config_parse(&cfg, NULL, 1, &err), TL_ERR_INVALID);
    assert_int_equal(tl_model_config_parse(NULL, "{}", 2, &err), TL_ERR_INVALID);
    /* 1 MiB is taken, one byte more is not. */
    blob b = changed("");
    while (b.n < 1024 * 1024) {
        blob_text(&b, " ");
    }
    assert_int_equal(tl_model_config_parse(&cfg, (const char *)b.data, b.n, &err), TL_OK);
    blob_text(&b, " ");
    assert_int_equal(tl_model_config_parse(&cfg, (const char *)b.data, b.n, &err), FORMAT);
    assert_non_null(strstr(err.text, "1048576"));
    blob_clear(&b);
}

/* ------------------------------------------------------------------ files */

static char dir[64];

static int make_dir(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/tl-config-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : 0;
}

static int remove_dir(void **state) {
    (void)state;
    return rmdir(dir);
}

static void path_of(char path[96]) {
    (void)snprintf(path, 96, "%s/config.json", dir);
}

static void write_config(const blob *b) {
    char path[96];
    path_of(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->n, f), b->n);
    assert_int_equal(fclose(f), 0);
}

static void loads_from_a_directory(void **state) {
    (void)state;
    char path[96];
    tl_model_config cfg = {0};
    tl_error err = fresh_error();
    path_of(path);
    check_refusal(tl_model_config_load(&cfg, dir, &err), &err, TL_ERR_IO, path, "missing");
    assert_int_equal(mkdir(path, 0700), 0);
    check_refusal(tl_model_config_load(&cfg, dir, &err), &err, TL_ERR_IO, path, "directory");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_refusal(tl_model_config_load(&cfg, dir, &err), &err, TL_ERR_IO, path, "fifo");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    check_refusal(tl_model_config_load(&cfg, dir, &err), &err, TL_ERR_IO, path, "zero device");
    assert_int_equal(unlink(path), 0);
    blob b = changed("");
    write_config(&b);
    assert_int_equal(tl_model_config_load(&cfg, dir, &err), TL_OK);
    assert_int_equal(cfg.hidden_size, 64);
    /* Refused by its size, before anything is read: a sparse file of 1 GiB. */
    assert_int_equal(truncate(path, 1 << 30), 0);
    check_refusal(tl_model_config_load(&cfg, dir, &err), &err, FORMAT, "1048576", "huge");
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(tl_model_config_load(&cfg, dir, &err), FORMAT);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tl_model_config_load(NULL, dir, &err), TL_ERR_INVALID);
    assert_int_equal(tl_model_config_load(&cfg, NULL, &err), TL_ERR_INVALID);
    blob_clear(&b);
}

/* A decimal comma in the process changes no number; skipped where no such locale is installed. */
static void locale_changes_nothing(void **state) {
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    bool is_set = false;
    for (size_t i = 0; !is_set && i < COUNT_OF(names); i++) {
        is_set = setlocale(LC_ALL, names[i]) != NULL;
    }
    const tl_model_config cfg = parse_ok("rope_theta=10000.5");
    (void)setlocale(LC_ALL, "C");
    assert_true(cfg.rope_theta == 10000.5);
    assert_true(cfg.rms_norm_eps == 1e-5);
    if (!is_set) {
        skip();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base_is_parsed),
        cmocka_unit_test(identity),
        cmocka_unit_test(foreign_keys),
        cmocka_unit_test(switches),
        cmocka_unit_test(counts),
        cmocka_unit_test(reals),
        cmocka_unit_test(rope),
        cmocka_unit_test(tie_and_eos),
        cmocka_unit_test(family_comes_before_numbers),
        cmocka_unit_test(bigram_reads_five_rows),
        cmocka_unit_test(bytes_that_are_no_config),
        cmocka_unit_test_setup_teardown(loads_from_a_directory, make_dir, remove_dir),
        cmocka_unit_test(locale_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
