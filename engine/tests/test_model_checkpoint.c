/* Checkpoints: one file or shards, from memory and from a directory; index and shards must agree.
 *
 * Source: conformance/spec/safetensors.md, safetensors#13. */
#include <sys/stat.h>
#include <unistd.h>

#include "model_fixture.h"

#define FORMAT TL_ERR_FORMAT
#define SHARD_1 "model-00001-of-00002.safetensors"
#define SHARD_2 "model-00002-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"
#define F32_AT(name, offsets)                                                                      \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" offsets "]}"
#define HEADER_A_BODY F32_AT("a", "0,4") "}"
#define HEADER_B_BODY F32_AT("b", "0,4") "}"
#define HEADER_A "{" HEADER_A_BODY
#define HEADER_B "{" HEADER_B_BODY
#define HEADER_AB "{" F32_AT("b", "0,4") "," F32_AT("a", "4,8") "}"
#define MAP(members) "{\"weight_map\":{" members "}}"
#define A_AND_B "\"a\":\"" SHARD_1 "\",\"b\":\"" SHARD_2 "\""

#define FILES_MAX 4

/* Files by name; a safetensors header with n_data, or with n_data TEXT the text itself. */
#define TEXT SIZE_MAX

typedef struct made_file {
    const char *name, *content;
    size_t n_data;
} made_file;

typedef struct checkpoint_case {
    made_file files[FILES_MAX]; /* ends at the first without a name */
    tl_status status;
    const char *subject;
} checkpoint_case;

static blob make_content(const made_file *file) {
    if (file->n_data != TEXT) {
        return make_text_file(file->content, file->n_data);
    }
    blob b = {0};
    blob_text(&b, file->content);
    blob_fit(&b);
    return b;
}

static size_t make_files(const checkpoint_case *c, blob blobs[FILES_MAX],
                         tl_file_view views[FILES_MAX]) {
    size_t n = 0;
    while (n < FILES_MAX && c->files[n].name != NULL) {
        blobs[n] = make_content(&c->files[n]);
        views[n].name = c->files[n].name;
        views[n].bytes = blobs[n].data;
        views[n].n_bytes = blobs[n].n;
        n++;
    }
    return n;
}

/* ------------------------------------------------------------------ the same in a directory */

static char dir[64];

static int make_dir(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/tl-checkpoint-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : 0;
}

static int remove_dir(void **state) {
    (void)state;
    return rmdir(dir);
}

static void path_of(char path[160], const char *name) {
    assert_true(dir[0] != '\0'); /* else the files would lie in the root of the machine */
    (void)snprintf(path, 160, "%s/%s", dir, name);
}

static void write_views(const tl_file_view *views, size_t n) {
    char path[160];
    for (size_t i = 0; i < n; i++) {
        path_of(path, views[i].name);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(views[i].bytes, 1, views[i].n_bytes, f), views[i].n_bytes);
        assert_int_equal(fclose(f), 0);
    }
}

static void remove_views(const tl_file_view *views, size_t n) {
    char path[160];
    for (size_t i = 0; i < n; i++) {
        path_of(path, views[i].name);
        assert_int_equal(unlink(path), 0);
    }
}

/* From memory, mapped and copied: the same answer three times. */
static void check_case(const checkpoint_case *c) {
    blob blobs[FILES_MAX];
    tl_file_view views[FILES_MAX];
    const size_t n = make_files(c, blobs, views);
    write_views(views, n);
    for (int way = 0; way < 3; way++) {
        tl_error err = fresh_error();
        tl_checkpoint *ckpt = (tl_checkpoint *)(uintptr_t)8;
        const tl_weights_mode mode = way == 1 ? TL_WEIGHTS_MAP : TL_WEIGHTS_COPY;
        const tl_status status = way == 0 ? tl_checkpoint_view(&ckpt, views, n, &err)
                                          : tl_checkpoint_open(&ckpt, dir, mode, &err);
        if (c->status == TL_OK && status != TL_OK) {
            fail_msg("%s: %s", c->files[0].content, err.text);
        }
        if (c->status != TL_OK) {
            check_refusal(status, &err, c->status, c->subject, c->files[0].content);
            assert_null(ckpt);
        }
        tl_checkpoint_free(ckpt);
    }
    remove_views(views, n);
    for (size_t i = 0; i < n; i++) {
        blob_clear(&blobs[i]);
    }
}

/* ------------------------------------------------------------------ tests */

static void which_form(void **state) {
    (void)state;
    static const checkpoint_case cases[] = {
        {{{"model.safetensors", HEADER_AB, 8}}, TL_OK, NULL},
        {{{"model.safetensors", "{}", 0}}, TL_OK, NULL},
        {{{"model.safetensors", HEADER_AB, 7}}, FORMAT, "model.safetensors"},
        {{{INDEX, MAP(A_AND_B), TEXT}, {SHARD_1, HEADER_A, 4}, {SHARD_2, HEADER_B, 4}},
         TL_OK,
         NULL},
        {{{INDEX, MAP(A_AND_B), TEXT},
          {SHARD_1, HEADER_A, 4},
          {SHARD_2, HEADER_B, 4},
          {"model.safetensors", HEADER_AB, 8}},
         FORMAT,
         "both model.safetensors and model.safetensors.index.json"},
        {{{NULL, NULL, 0}}, TL_ERR_IO, "neither model.safetensors nor"},
        {{{"weights.safetensors", HEADER_A, 4}}, TL_ERR_IO, "neither"},
        /* files that nobody names are nobody's business */
        {{{INDEX, MAP("\"a\":\"" SHARD_1 "\""), TEXT},
          {SHARD_1, HEADER_A, 4},
          {SHARD_2, HEADER_B, 3}},
         TL_OK,
         NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        check_case(&cases[i]);
    }
}

static void index_rules(void **state) {
    (void)state;
    static const struct {
        const char *index, *subject; /* subject NULL: accepted */
    } cases[] = {
        {"{\"metadata\":{\"total_size\":\"x\"},\"weight_map\":{" A_AND_B "}}", NULL},
        {"\n{\"weight_map\":{" A_AND_B "}}\n", NULL},
        {"", INDEX},
        {"[]", INDEX},
        {"\xef\xbb\xbf" MAP(A_AND_B), "byte-order mark"},
        {MAP(A_AND_B) "x", INDEX},
        {"{\"metadata\":{\"total_size\":8}}", "weight_map"},
        {"{\"weight_map\":null}", "weight_map"},
        {"{\"weight_map\":[]}", "weight_map"},
        {"{\"weight_map\":{}}", "weight_map"},
        {MAP("\"a\":1"), "'a'"},
        {MAP("\"a\":null"), "'a'"},
        {MAP("\"a\":\"../" SHARD_1 "\""), "'a'"},
        {MAP("\"a\":\"/tmp/" SHARD_1 "\""), "'a'"},
        {MAP("\"a\":\"./" SHARD_1 "\""), "'a'"},
        {MAP("\"a\":\"sub/" SHARD_1 "\""), "'a'"},
        {MAP("\"a\":\"sub\\\\" SHARD_1 "\""), "'a'"},
        {MAP("\"a\":\"\""), "'a'"},
        {MAP("\"a\":\"..\""), "'a'"},
        {MAP("\"a\":\"" SHARD_1 ".bin\""), "'a'"},
        {MAP("\"a\":\"x\\u0000.safetensors\""), "NUL"},
        {MAP(A_AND_B ",\"a\":\"" SHARD_1 "\""), "duplicate"},
        {"{\"weight_map\":{" A_AND_B "},\"weight_map\":{" A_AND_B "}}", "duplicate"},
        /* index against shards */
        {MAP("\"a\":\"" SHARD_1 "\",\"b\":\"" SHARD_1 "\""), "'b'"},
        {MAP("\"a\":\"" SHARD_2 "\",\"b\":\"" SHARD_1 "\""), "'"},
        {MAP("\"b\":\"" SHARD_2 "\",\"c\":\"" SHARD_2 "\""), "'c'"},
        {MAP(A_AND_B ",\"c\":\"" SHARD_2 "\""), "'c'"},
        {MAP("\"x\":\"" SHARD_1 "\",\"b\":\"" SHARD_2 "\""), "'a'"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const checkpoint_case c = {
            {{INDEX, cases[i].index, TEXT}, {SHARD_1, HEADER_A, 4}, {SHARD_2, HEADER_B, 4}},
            cases[i].subject == NULL ? TL_OK : FORMAT,
            cases[i].subject};
        check_case(&c);
    }
}

/* What is no separator may stand in a name, dots at any place too. */
static void test_shard_names(void **state) {
    (void)state;
    static const char *const names[] = {
        "a..b.safetensors", "..a.safetensors", "..safetensors",           ".safetensors",
        "...safetensors",   "a b.safetensors", "caf\xc3\xa9.safetensors", "CON.safetensors",
    };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char index[96];
        (void)snprintf(index, sizeof index, "{\"weight_map\":{\"a\":\"%s\"}}", names[i]);
        const checkpoint_case good = {{{INDEX, index, TEXT}, {names[i], HEADER_A, 4}}, TL_OK, NULL};
        const checkpoint_case gone = {{{INDEX, index, TEXT}}, TL_ERR_IO, names[i]};
        check_case(&good);
        check_case(&gone);
    }
}

static void shard_rules(void **state) {
    (void)state;
    static const checkpoint_case cases[] = {
        {{{INDEX, MAP(A_AND_B), TEXT}, {SHARD_1, HEADER_A, 4}}, TL_ERR_IO, SHARD_2},
        {{{INDEX, MAP(A_AND_B), TEXT}, {SHARD_1, HEADER_A, 4}, {SHARD_2, HEADER_B, 3}},
         FORMAT,
         SHARD_2},
        {{{INDEX, MAP(A_AND_B), TEXT},
          {SHARD_1, HEADER_A, 4},
          {SHARD_2, "version https://git-lfs.github.com/spec/v1\noid", TEXT}},
         FORMAT,
         "Git LFS"},
        /* in two files, whichever the index names */
        {{{INDEX, MAP(A_AND_B), TEXT}, {SHARD_1, HEADER_A, 4}, {SHARD_2, HEADER_AB, 8}},
         FORMAT,
         "'a'"},
        /* left over */
        {{{INDEX, MAP("\"b\":\"" SHARD_1 "\""), TEXT}, {SHARD_1, HEADER_AB, 8}}, FORMAT, "'a'"},
        /* one shard's quant is not the other's */
        {{{INDEX, MAP(A_AND_B), TEXT},
          {SHARD_1, "{\"__metadata__\":{\"quant\":\"x\"}," HEADER_A_BODY, 4},
          {SHARD_2, HEADER_B, 4}},
         FORMAT,
         "quant"},
        {{{INDEX, MAP(A_AND_B), TEXT},
          {SHARD_1, "{\"__metadata__\":{\"quant\":\"x\"}," HEADER_A_BODY, 4},
          {SHARD_2, "{\"__metadata__\":{\"quant\":\"y\"}," HEADER_B_BODY, 4}},
         FORMAT,
         "quant"},
        {{{INDEX, MAP(A_AND_B), TEXT},
          {SHARD_1, "{\"__metadata__\":{\"quant\":\"x\"}," HEADER_A_BODY, 4},
          {SHARD_2, "{\"__metadata__\":{\"quant\":\"x\"}," HEADER_B_BODY, 4}},
         TL_OK,
         NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        check_case(&cases[i]);
    }
}

static void answers_by_name(void **state) {
    (void)state;
    static const checkpoint_case c = {
        {{INDEX, MAP(A_AND_B ",\"c\":\"" SHARD_2 "\""), TEXT},
         {SHARD_1, "{\"__metadata__\":{\"k\":\"v\",\"x\":\"1\",\"w\":\"2\"}," HEADER_A_BODY, 4},
         {SHARD_2,
          "{\"__metadata__\":{\"k\":\"v\",\"x\":\"2\",\"w\":\"1\"},\"c\":{\"dtype\":\"BF16\","
          "\"shape\":[2],"
          "\"data_offsets\":[4,8]}," HEADER_B_BODY,
          8}},
        TL_OK,
        NULL};
    blob blobs[FILES_MAX];
    tl_file_view views[FILES_MAX];
    const size_t n = make_files(&c, blobs, views);
    tl_checkpoint *ckpt = NULL;
    tl_error err = fresh_error();
    static const size_t one[1] = {1};
    static const size_t two[1] = {2};
    float got[2] = {0};
    assert_int_equal(tl_checkpoint_view(&ckpt, views, n, &err), TL_OK);
    assert_int_equal(tl_checkpoint_count(ckpt), 3);
    for (size_t i = 0; i < 3; i++) {
        const tl_tensor_info *info = tl_checkpoint_at(ckpt, i);
        assert_ptr_equal(tl_checkpoint_find(ckpt, info->name), info);
    }
    assert_string_equal(tl_checkpoint_at(ckpt, 0)->name, "a");
    assert_string_equal(tl_checkpoint_at(ckpt, 1)->name, "b");
    assert_string_equal(tl_checkpoint_at(ckpt, 2)->name, "c");
    assert_null(tl_checkpoint_at(ckpt, 3));
    assert_null(tl_checkpoint_find(ckpt, "d"));
    assert_null(tl_checkpoint_find(ckpt, NULL));
    assert_string_equal(tl_checkpoint_metadata(ckpt, "k"), "v");
    assert_null(tl_checkpoint_metadata(ckpt, "x"));
    assert_null(tl_checkpoint_metadata(ckpt, "w"));
    assert_null(tl_checkpoint_metadata(ckpt, "y"));
    assert_int_equal(tl_checkpoint_f32(ckpt, "a", one, 1, got, 1, &err), TL_OK);
    assert_int_equal(tli_f32_bits(got[0]), tli_load_u32(blobs[1].data + blobs[1].n - 4));
    assert_int_equal(tl_checkpoint_f32(ckpt, "c", two, 1, got, 2, &err), TL_OK);
    assert_int_equal(tli_f32_bits(got[1]) >> 16, tli_load_u16(blobs[2].data + blobs[2].n - 2));
    assert_int_equal(tl_checkpoint_f32(ckpt, "d", one, 1, got, 1, &err), TL_ERR_NOT_FOUND);
    assert_int_equal(tl_checkpoint_f32(NULL, "a", one, 1, got, 1, &err), TL_ERR_INVALID);
    tl_checkpoint_free(ckpt);
    tl_checkpoint_free(NULL);
    assert_int_equal(tl_checkpoint_count(NULL), 0);
    assert_null(tl_checkpoint_at(NULL, 0));
    assert_null(tl_checkpoint_find(NULL, "a"));
    assert_null(tl_checkpoint_metadata(NULL, "k"));
    for (size_t i = 0; i < n; i++) {
        blob_clear(&blobs[i]);
    }
}

/* The two halves of an int4 pair may lie in different shards. */
static void pair_across_shards(void **state) {
    (void)state;
    static const checkpoint_case c = {
        {{INDEX, MAP("\"p.qweight\":\"" SHARD_1 "\",\"p.scales\":\"" SHARD_2 "\""), TEXT},
         {SHARD_1, "{\"p.qweight\":{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[0,2]}}", 2},
         {SHARD_2, "{\"p.scales\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}", 4}},
        TL_OK,
        NULL};
    blob blobs[FILES_MAX];
    tl_file_view views[FILES_MAX];
    const size_t n = make_files(&c, blobs, views);
    tl_checkpoint *ckpt = NULL;
    tl_error err = fresh_error();
    tl_qlinear q = {0};
    memset(blobs[2].data + blobs[2].n - 4, 0x11, 4);
    assert_int_equal(tl_checkpoint_view(&ckpt, views, n, &err), TL_OK);
    assert_int_equal(tl_checkpoint_q4(ckpt, "p", 1, 4, 2, &q, &err), TL_OK);
    assert_ptr_equal(q.qweight, blobs[1].data + blobs[1].n - 2);
    assert_ptr_equal(q.scales, blobs[2].data + blobs[2].n - 4);
    blobs[2].data[blobs[2].n - 1] = 0x80;
    assert_int_equal(tl_checkpoint_q4(ckpt, "p", 1, 4, 2, &q, &err), FORMAT);
    assert_int_equal(err.offset, blobs[2].n - 2); /* in its own file */
    tl_checkpoint_free(ckpt);
    for (size_t i = 0; i < n; i++) {
        blob_clear(&blobs[i]);
    }
}

static void special_files(void **state) {
    (void)state;
    char path[160];
    char other[160];
    tl_error err = fresh_error();
    tl_checkpoint *ckpt = NULL;
    static const checkpoint_case c = {
        {{INDEX, MAP("\"a\":\"" SHARD_1 "\""), TEXT}, {"blob", HEADER_A, 4}}, TL_OK, NULL};
    blob blobs[FILES_MAX];
    tl_file_view views[FILES_MAX];
    const size_t n = make_files(&c, blobs, views);
    write_views(views, n);
    path_of(path, SHARD_1);
    /* A hub's cache is all links. */
    assert_int_equal(symlink("blob", path), 0);
    assert_int_equal(tl_checkpoint_open(&ckpt, dir, TL_WEIGHTS_MAP, &err), TL_OK);
    tl_checkpoint_free(ckpt);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    check_refusal(tl_checkpoint_open(&ckpt, dir, TL_WEIGHTS_MAP, &err), &err, TL_ERR_IO, SHARD_1,
                  "directory for a shard");
    assert_int_equal(rmdir(path), 0);
    /* A directory of that name is there, and no file: what opens it says so. */
    path_of(other, "model.safetensors");
    remove_views(views, n);
    assert_int_equal(mkdir(other, 0700), 0);
    check_refusal(tl_checkpoint_open(&ckpt, dir, TL_WEIGHTS_MAP, &err), &err, TL_ERR_IO,
                  "directory", "directory for the file");
    assert_int_equal(rmdir(other), 0);
    assert_int_equal(tl_checkpoint_open(&ckpt, "/nonexistent/x", TL_WEIGHTS_MAP, &err), TL_ERR_IO);
    path_of(other, INDEX);
    FILE *f = fopen(other, "wb");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(other, 16 * 1024 * 1024 + 1), 0);
    check_refusal(tl_checkpoint_open(&ckpt, dir, TL_WEIGHTS_MAP, &err), &err, FORMAT, "16777216",
                  "huge index");
    assert_int_equal(unlink(other), 0);
    for (size_t i = 0; i < n; i++) {
        blob_clear(&blobs[i]);
    }
}

static void bad_arguments(void **state) {
    (void)state;
    tl_error err = fresh_error();
    tl_checkpoint *ckpt = NULL;
    const tl_file_view twice[2] = {{"x", NULL, 0}, {"x", NULL, 0}};
    const tl_file_view same[2] = {{"model.safetensors", NULL, 0}, {"model.safetensors", NULL, 0}};
    const tl_file_view nameless[1] = {{NULL, NULL, 0}};
    const tl_file_view hollow[1] = {{"model.safetensors", NULL, 9}};
    assert_int_equal(tl_checkpoint_view(NULL, NULL, 0, &err), TL_ERR_INVALID);
    assert_int_equal(tl_checkpoint_view(&ckpt, NULL, 1, &err), TL_ERR_INVALID);
    assert_int_equal(tl_checkpoint_view(&ckpt, NULL, 0, &err), TL_ERR_IO);
    assert_int_equal(tl_checkpoint_view(&ckpt, twice, 2, &err), TL_ERR_IO);
    assert_int_equal(tl_checkpoint_view(&ckpt, same, 2, &err), TL_ERR_INVALID);
    assert_int_equal(tl_checkpoint_view(&ckpt, nameless, 1, &err), TL_ERR_INVALID);
    assert_int_equal(tl_checkpoint_view(&ckpt, hollow, 1, &err), TL_ERR_INVALID);
    assert_int_equal(tl_checkpoint_open(NULL, "x", TL_WEIGHTS_MAP, &err), TL_ERR_INVALID);
    assert_int_equal(tl_checkpoint_open(&ckpt, NULL, TL_WEIGHTS_MAP, &err), TL_ERR_INVALID);
    assert_int_equal(tl_checkpoint_open(&ckpt, "x", (tl_weights_mode)2, &err), TL_ERR_INVALID);
    assert_int_equal(tl_checkpoint_open(&ckpt, "", TL_WEIGHTS_MAP, &err), TL_ERR_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_shard_names, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(which_form, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(index_rules, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(shard_rules, make_dir, remove_dir),
        cmocka_unit_test(answers_by_name),
        cmocka_unit_test(pair_across_shards),
        cmocka_unit_test_setup_teardown(special_files, make_dir, remove_dir),
        cmocka_unit_test(bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
