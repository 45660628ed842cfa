/* The safetensors reader: each rule with files that break it and twins that do not, the byte
 * that is to blame, and reading at odd addresses.
 *
 * Source: conformance/spec/safetensors.md. Mutants that this must notice: s11, s12, shape
 * products that wrap, overlap accepted. */
#include "model_fixture.h"
#include "model_internal.h"

#define FORMAT TL_ERR_FORMAT
#define ANY_OFFSET (TL_NO_OFFSET - 1)

/* ------------------------------------------------------------------ headers */

static tl_status open_blob(const blob *b, tl_error *err) {
    tl_safetensors *st = (tl_safetensors *)(uintptr_t)8;
    const tl_status status = tl_safetensors_view(&st, b->data, b->n, err);
    assert_true((st != NULL) == (status == TL_OK));
    tl_safetensors_free(st);
    return status;
}

typedef struct header_case {
    const char *header;
    size_t n_data;
    const char *subject; /* NULL: accepted */
    uint64_t offset;
} header_case;

static void check_headers(const header_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        tl_error err = fresh_error();
        blob b = make_text_file(cases[i].header, cases[i].n_data);
        const tl_status status = open_blob(&b, &err);
        if (cases[i].subject == NULL) {
            if (status != TL_OK) {
                fail_msg("%s: %s", cases[i].header, err.text);
            }
        } else {
            check_refusal(status, &err, FORMAT, cases[i].subject, cases[i].header);
            if (cases[i].offset != ANY_OFFSET && err.offset != cases[i].offset) {
                fail_msg("%s: offset %lld, wanted %lld", cases[i].header, (long long)err.offset,
                         (long long)cases[i].offset);
            }
        }
        blob_clear(&b);
    }
}

#define ONE(rest) "{\"a\":{" rest "}}"
#define F32_1 "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"

static void rule_3_header_bytes(void **state) {
    (void)state;
    static const header_case cases[] = {
        {"{}", 0, NULL, 0},
        {"{}      ", 0, NULL, 0},
        {ONE(F32_1) "   ", 4, NULL, 0},
        {" {}", 0, "rule 3", 8},
        {"[]", 0, "rule 3", 8},
        {"\xef\xbb\xbf{}", 0, "rule 3", 8},
        {"{}\n", 0, "rule 3", 10},
        {"{} \t ", 0, "rule 3", 11},
        {"{\"a\xff\":1}", 0, "UTF-8", 11},
        {"{\"a\":\"\\ud800\"}", 0, "surrogate", 14},
        {"{\"a\\u0000\":1}", 0, "NUL", 11},
    };
    check_headers(cases, COUNT_OF(cases));
    tl_error err = fresh_error();
    static const char nul_behind_number[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1\0],"
                                            "\"data_offsets\":[0,4]}}";
    blob b = make_file(nul_behind_number, sizeof nul_behind_number - 1, 4);
    check_refusal(open_blob(&b, &err), &err, FORMAT, "NUL", "NUL after a number");
    assert_int_equal(err.offset, 8 + 30);
    blob_clear(&b);
    b = make_file("{}\0\0\0", 5, 0);
    check_refusal(open_blob(&b, &err), &err, FORMAT, "NUL", "NUL padding");
    assert_int_equal(err.offset, 10);
    blob_clear(&b);
}

static void rule_4_json(void **state) {
    (void)state;
    static const header_case cases[] = {
        {"{", 0, "JSON", 9}, /* see below: the text ends too early */
        {"{}{}", 0, "rule", 10},
        {ONE(F32_1) ",}", 4, "rule", ANY_OFFSET},
        {"{\"a\":{" F32_1 "},}", 4, "rule", ANY_OFFSET},
        {"{\"a\":{" F32_1 "},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
         "'a'", 8 + 54},
        {"{\"a\":{" F32_1 "},\"a\":{" F32_1 "}}", 4, "'a'", 8 + 54},
        {"{\"a\":{" F32_1 "},\"\\u0061\":{" F32_1 "}}", 4, "'a'", 8 + 54},
        {"{\"__metadata__\":{},\"a\":{" F32_1 "},\"b\":{\"dtype\":\"U8\",\"shape\":[0],"
         "\"data_offsets\":[0,0]},\"a\":{" F32_1 "}}",
         4, "'a'", ANY_OFFSET},
        {ONE("\"dtype\":\"F32\"," F32_1), 4, "'a'", ANY_OFFSET},
        {ONE(F32_1 ",\"x\":{\"y\":1,\"y\":1}"), 4, "'a'", ANY_OFFSET},
        {"{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0, "'k'", ANY_OFFSET},
        {"{\"__metadata__\":{\"k\":\"v\"},\"__metadata__\":{}}", 0, "__metadata__", ANY_OFFSET},
        {"{\"__metadata__\":{\"k\":\"v\"},\"\\u005f_metadata__\":{}}", 0, "__metadata__",
         ANY_OFFSET},
    };
    check_headers(cases + 1, COUNT_OF(cases) - 1);
    tl_error err = fresh_error();
    blob b = make_text_file(cases[0].header, 0);
    assert_int_equal(open_blob(&b, &err), FORMAT);
    assert_int_equal(err.offset, cases[0].offset);
    blob_clear(&b);
}

/* 61 brackets make 64 levels with the object, the entry and its key's value. */
static void rule_4_depth(void **state) {
    (void)state;
    for (size_t n_extra = 0; n_extra < 2; n_extra++) {
        tl_error err = fresh_error();
        blob header = {0};
        blob_text(&header, "{\"a\":{" F32_1 ",\"x\":");
        for (size_t i = 0; i < 62 + n_extra; i++) {
            blob_text(&header, "[");
        }
        for (size_t i = 0; i < 62 + n_extra; i++) {
            blob_text(&header, "]");
        }
        blob_text(&header, "}}");
        blob b = make_file((const char *)header.data, header.n, 4);
        assert_int_equal(open_blob(&b, &err), n_extra == 0 ? TL_OK : FORMAT);
        blob_clear(&b);
        blob_clear(&header);
    }
}

static void rules_5_to_7(void **state) {
    (void)state;
    static const header_case cases[] = {
        {"{\"__metadata__\":{}}", 0, NULL, 0},
        {"{\"__metadata__\":{\"a\":\"\",\"b\":\"x\\n\"}}", 0, NULL, 0},
        {"{\"__metadata__\":null}", 0, "rule 5", 24},
        {"{\"__metadata__\":[]}", 0, "rule 5", 24},
        {"{\"__metadata__\":\"x\"}", 0, "rule 5", 24},
        {"{\"__metadata__\":{\"step\":100}}", 0, "step", 32},
        {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "rule 5", ANY_OFFSET},
        {ONE(F32_1), 4, NULL, 0},
        {ONE(F32_1 ",\"note\":[1,{\"x\":null}]"), 4, NULL, 0},
        {"{\"\":{" F32_1 "}}", 4, NULL, 0},
        {"{\"a\":null}", 0, "'a'", 9},
        {"{\"a\":[\"F32\",[1],[0,4]]}", 4, "'a'", 9},
        {"{\"a\":\"F32\"}", 0, "'a'", 9},
        {ONE("\"shape\":[1],\"data_offsets\":[0,4]"), 4, "no dtype", 9},
        {ONE("\"dtype\":null,\"shape\":[1],\"data_offsets\":[0,4]"), 4, "dtype", 9},
        {ONE("\"dtype\":{\"F32\":null},\"shape\":[1],\"data_offsets\":[0,4]"), 4, "dtype", 9},
        {ONE("\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "f32", 9},
        {ONE("\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "F33", 9},
        {ONE("\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "rule 7", 9},
        {ONE("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "no shape", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]"), 4, "shape", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]"), 4, "shape[0]", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[true],\"data_offsets\":[0,4]"), 4, "shape[0]", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[1,1.0],\"data_offsets\":[0,4]"), 4, "shape[1]", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]"), 4, "shape[0]", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[-1,-1],\"data_offsets\":[0,4]"), 4, "-1", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[1]"), 4, "no data_offsets", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]"), 4, "data_offsets", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4, "data_offsets", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{\"0\":0}"), 4, "data_offsets", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]"), 4, "data_offsets[1]", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]"), 4, "-4", 9},
        {ONE("\"dtype\":\"U8\",\"shape\":[-0],\"data_offsets\":[-0,-0]"), 0, NULL, 0},
        {ONE("\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,4]"), 4, "'a'",
         ANY_OFFSET},
    };
    check_headers(cases, COUNT_OF(cases));
}

static void rule_7_all_types(void **state) {
    (void)state;
    static const struct {
        const char *name;
        tl_dtype dtype;
        size_t bits;
    } types[] = {
        {"F4", TL_DTYPE_F4, 4},
        {"F6_E2M3", TL_DTYPE_F6_E2M3, 6},
        {"F6_E3M2", TL_DTYPE_F6_E3M2, 6},
        {"BOOL", TL_DTYPE_BOOL, 8},
        {"U8", TL_DTYPE_U8, 8},
        {"I8", TL_DTYPE_I8, 8},
        {"F8_E5M2", TL_DTYPE_F8_E5M2, 8},
        {"F8_E4M3", TL_DTYPE_F8_E4M3, 8},
        {"F8_E8M0", TL_DTYPE_F8_E8M0, 8},
        {"F8_E4M3FNUZ", TL_DTYPE_F8_E4M3FNUZ, 8},
        {"F8_E5M2FNUZ", TL_DTYPE_F8_E5M2FNUZ, 8},
        {"I16", TL_DTYPE_I16, 16},
        {"U16", TL_DTYPE_U16, 16},
        {"F16", TL_DTYPE_F16, 16},
        {"BF16", TL_DTYPE_BF16, 16},
        {"I32", TL_DTYPE_I32, 32},
        {"U32", TL_DTYPE_U32, 32},
        {"F32", TL_DTYPE_F32, 32},
        {"C64", TL_DTYPE_C64, 64},
        {"F64", TL_DTYPE_F64, 64},
        {"I64", TL_DTYPE_I64, 64},
        {"U64", TL_DTYPE_U64, 64},
    };
    assert_int_equal(COUNT_OF(types), 22);
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        char header[128];
        tl_error err = fresh_error();
        tl_layout *layout = NULL;
        const size_t n_bytes = types[i].bits / 2; /* of 4 elements */
        (void)snprintf(header, sizeof header,
                       "{\"a\":{\"dtype\":\"%s\",\"shape\":[4],\"data_offsets\":[0,%zu]}}",
                       types[i].name, n_bytes);
        blob b = make_text_file(header, n_bytes);
        assert_int_equal(tl_layout_parse(&layout, b.data, b.n, &err), TL_OK);
        assert_int_equal(tl_layout_find(layout, "a")->dtype, types[i].dtype);
        assert_string_equal(tl_dtype_name(types[i].dtype), types[i].name);
        tl_layout_free(layout);
        blob_clear(&b);
    }
    assert_string_equal(tl_dtype_name((tl_dtype)0), "unknown");
    assert_string_equal(tl_dtype_name((tl_dtype)23), "unknown");
}

static void rule_8_sizes(void **state) {
    (void)state;
    static const header_case cases[] = {
        {ONE("\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]"), 4, NULL, 0},
        {ONE("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), 4,
         NULL, 0},
        {ONE("\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]"), 0, NULL, 0},
        {ONE("\"dtype\":\"F32\",\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]"), 0, NULL,
         0},
        {ONE("\"dtype\":\"F32\",\"shape\":[9223372036854775807,0],\"data_offsets\":[0,0]"), 0, NULL,
         0},
        {ONE("\"dtype\":\"F32\",\"shape\":[9223372036854775807,4,0],\"data_offsets\":[0,0]"), 0,
         "'a'", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]"), 4,
         "'a'", 9},
        {ONE("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0,
         "'a'", 9},
        /* wraps to 4 elements */
        {ONE("\"dtype\":\"F32\",\"shape\":[4194305,4194305,211106198978564],\"data_offsets\":[0,"
             "16]"),
         16, "'a'", 9},
        /* fits as elements, wraps to 0 as bits */
        {ONE("\"dtype\":\"F32\",\"shape\":[576460752303423488],\"data_offsets\":[0,0]"), 0, "'a'",
         9},
        {ONE("\"dtype\":\"I32\",\"shape\":[2,9223372036854775807],\"data_offsets\":[0,16]"), 16,
         "'a'", 9},
        {ONE("\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]"), 1, NULL, 0},
        {ONE("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), 2, "F4", 9},
        {ONE("\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]"), 3, NULL, 0},
        {ONE("\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,2]"), 2, "F6_E2M3", 9},
        {ONE("\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[0,16]"), 16, "32", 9},
        {ONE("\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,5]"), 5, "rule 8", 9},
    };
    check_headers(cases, COUNT_OF(cases));
}

#define U8(name, n, begin, end)                                                                    \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" n "],\"data_offsets\":[" begin "," end "]}"

static void rule_9_tiling(void **state) {
    (void)state;
    static const header_case cases[] = {
        {"{" U8("b", "4", "4", "8") "," U8("a", "4", "0", "4") "}", 8, NULL, 0},
        {"{" U8("b", "4", "4", "8") "," U8("z", "0", "4", "4") "," U8("a", "4", "0", "4") "}", 8,
         NULL, 0},
        {"{" U8("y", "0", "0", "0") "," U8("a", "4", "0", "4") "," U8("z", "0", "4", "4") "," U8(
             "x", "0", "4", "4") "}",
         4, NULL, 0},
        {"{}", 4, "4 bytes", 10},
        {"{" U8("a", "4", "0", "4") "}", 5, "5 bytes", 8 + 53 + 4},
        {"{" U8("a", "4", "0", "4") "}", 3, "'a'", 9},
        {"{" U8("a", "4", "4", "8") "}", 8, "hole", 8 + 53},
        {"{" U8("a", "4", "0", "4") "," U8("b", "4", "5", "9") "}", 9, "'b'", ANY_OFFSET},
        {"{" U8("a", "8", "0", "8") "," U8("b", "4", "4", "8") "}", 8, "'b'", ANY_OFFSET},
        {"{" U8("a", "4", "0", "4") "," U8("b", "5", "3", "8") "}", 8, "'b'", ANY_OFFSET},
        {"{" U8("a", "4", "0", "4") "," U8("b", "4", "0", "4") "}", 4, "'b'", ANY_OFFSET},
        {"{" U8("a", "4", "0", "4") "," U8("z", "0", "2", "2") "}", 4, "'z'", ANY_OFFSET},
        {"{" U8("a", "4", "0", "4") "," U8("z", "0", "5", "5") "}", 4, "'z'", ANY_OFFSET},
        {"{" U8("a", "4", "4", "0") "}", 4, "backwards", 9},
        {"{" U8("a", "4", "9223372036854775803", "9223372036854775807") "}", 4, "'a'", 9},
    };
    check_headers(cases, COUNT_OF(cases));
}

/* Rules 1 and 2: whole files. */
static void check_whole(const char *bytes, size_t n, const char *subject) {
    tl_error err = fresh_error();
    blob b = {0};
    blob_add(&b, bytes, n);
    blob_fit(&b);
    check_refusal(open_blob(&b, &err), &err, FORMAT, subject, subject);
    blob_clear(&b);
}

/* A header of n bytes, {} and spaces, is accepted. */
static void check_spaces(size_t n) {
    char *header = (char *)malloc(n);
    assert_non_null(header);
    memset(header, ' ', n);
    header[0] = '{';
    header[1] = '}';
    tl_error err = fresh_error();
    blob b = make_file(header, n, 0);
    free(header);
    assert_int_equal(open_blob(&b, &err), TL_OK);
    blob_clear(&b);
}

static void rules_1_and_2_lengths(void **state) {
    (void)state;
    check_whole("", 0, "empty file");
    check_whole("1234567", 7, "7 bytes");
    check_whole("\0\0\0\0\0\0\0\0", 8, "zero");
    check_whole("\3\0\0\0\0\0\0\0{}", 10, "rule 2");
    check_whole("\0\0\0\0\0\0\0\x80{}", 10, "rule 2");
    check_whole("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "rule 2");
    check_whole("\xf8\xff\xff\xff\xff\xff\xff\xff{}", 10, "rule 2");
    check_whole("\x01\xe1\xf5\x05\0\0\0\0{}", 10, "100000000 are allowed");
    check_whole("\0\xe1\xf5\x05\0\0\0\0{}", 10, "ends after 2");
    char zeros[4096] = {0};
    check_whole(zeros, sizeof zeros, "all-zero");
    check_spaces(100000000); /* exactly the limit */
}

static void foreign_files_are_named(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *kind;
    } cases[] = {
#define CASE(text, kind) {text, sizeof(text) - 1, kind}
        CASE("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n", "Git LFS"),
        CASE("PK\3\4\0\0\10\0\0\0\0\0\0\0\0\0\0\0\0\0", "ZIP"),
        CASE("PK\3\4\0\0\0\0\0\0\0\0", "ZIP"),
        CASE("GGUF\3\0\0\0\0\0\0\0\0\0\0\0", "GGUF"),
        CASE("<!DOCTYPE html><html><body>404</body></html>", "HTML"),
        CASE("\n <HTML><head>", "HTML"),
        CASE("\0\5\26\7\0\2\0\0Mac OS X        ", "AppleDouble"),
#undef CASE
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        check_whole(cases[i].bytes, cases[i].n, cases[i].kind);
    }
}

/* A header may be as long as "PK\3\4" read as a length: what refuses is the rule, not the look. */
static void zip_signature_is_a_sound_length(void **state) {
    (void)state;
    check_spaces(0x04034b50);
}

/* ------------------------------------------------------------------ layouts */

static void layout_is_sorted_and_searchable(void **state) {
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"quant\":\"\\u0061\"},"
        "\"n\xc3\xa4me\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
        "\"first\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"none\":{\"dtype\":\"F64\",\"shape\":[0,7],\"data_offsets\":[4,4]}}";
    tl_error err = fresh_error();
    tl_layout *layout = NULL;
    blob b = make_text_file(header, 16);
    assert_int_equal(tl_layout_parse(&layout, b.data, b.n, &err), TL_OK);
    blob_clear(&b); /* the layout keeps nothing of the bytes */
    assert_int_equal(tl_layout_count(layout), 3);
    assert_string_equal(tl_layout_at(layout, 0)->name, "first");
    assert_int_equal(tl_layout_at(layout, 0)->n_dims, 0);
    assert_null(tl_layout_at(layout, 0)->dims);
    assert_string_equal(tl_layout_at(layout, 1)->name, "none");
    assert_string_equal(tl_layout_at(layout, 2)->name, "n\xc3\xa4me");
    assert_null(tl_layout_at(layout, 3));
    const tl_tensor_info *info = tl_layout_find(layout, "n\xc3\xa4me");
    assert_ptr_equal(info, tl_layout_at(layout, 2));
    assert_int_equal(info->name_len, 5);
    assert_int_equal(info->dtype, TL_DTYPE_BF16);
    assert_int_equal(info->n_dims, 2);
    assert_int_equal(info->dims[0], 2);
    assert_int_equal(info->dims[1], 3);
    assert_int_equal(info->begin, 4);
    assert_int_equal(info->end, 16);
    assert_null(tl_layout_find(layout, "firs"));
    assert_null(tl_layout_find(layout, "first "));
    assert_null(tl_layout_find(layout, "__metadata__"));
    assert_string_equal(tl_layout_metadata(layout, "format"), "pt");
    assert_string_equal(tl_layout_metadata(layout, "quant"), "a");
    assert_null(tl_layout_metadata(layout, "forma"));
    assert_int_equal(tl_layout_data_start(layout), 8 + strlen(header));
    tl_layout_free(layout);
    tl_layout_free(NULL);
    assert_int_equal(tl_layout_count(NULL), 0);
    assert_null(tl_layout_at(NULL, 0));
    assert_null(tl_layout_find(NULL, "a"));
    assert_null(tl_layout_metadata(NULL, "a"));
    assert_int_equal(tl_layout_data_start(NULL), 0);
}

/* 40,000 tensors with names and ranges in a shuffled order: sorted, found, and a name that
 * stands twice is seen wherever it stands. */
static void many_shuffled_tensors(void **state) {
    (void)state;
    const size_t n = 40000;
    size_t *order = (size_t *)calloc(n, sizeof *order);
    assert_non_null(order);
    uint64_t seed = 12345;
    for (size_t i = 0; i < n; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const size_t j = (size_t)(seed >> 33) % (i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t twice = 0; twice < 2; twice++) {
        blob header = {0};
        blob_text(&header, "{");
        for (size_t i = 0; i < n; i++) {
            char text[128];
            const size_t k = order[i];
            const size_t named = twice == 1 && i == n / 3 ? order[n / 5] : k;
            (void)snprintf(
                text, sizeof text,
                "%s\"t.%zu\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[%zu,%zu]}",
                i == 0 ? "" : ",", named, 2 * k, 2 * k + 2);
            blob_text(&header, text);
        }
        blob_text(&header, "}");
        blob b = make_file((const char *)header.data, header.n, 2 * n);
        tl_error err = fresh_error();
        tl_layout *layout = NULL;
        const tl_status status = tl_layout_parse(&layout, b.data, b.n, &err);
        char name[32];
        if (twice == 1) {
            (void)snprintf(name, sizeof name, "'t.%zu'", order[n / 5]);
            check_refusal(status, &err, FORMAT, name, "twice");
            (void)snprintf(name, sizeof name, "\"t.%zu\"", order[n / 5]);
            assert_memory_equal(b.data + err.offset, name, strlen(name));
        } else {
            assert_int_equal(status, TL_OK);
            for (size_t i = 0; i < n; i++) {
                (void)snprintf(name, sizeof name, "t.%zu", i);
                assert_ptr_equal(tl_layout_find(layout, name), tl_layout_at(layout, i));
            }
        }
        tl_layout_free(layout);
        blob_clear(&b);
        blob_clear(&header);
    }
    free(order);
}

/* Names whose 32-bit sort keys are equal, found by trying: the names themselves must tell them
 * apart. */
static void names_with_one_key(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"t.133807", "t.393743"}, {"t.36095", "t.145850"}, {"t.73291", "t.184339"}};
    made_list list = {.n = 0};
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        assert_int_equal(tli_name_key(pairs[i][0], strlen(pairs[i][0])),
                         tli_name_key(pairs[i][1], strlen(pairs[i][1])));
        add_tensor(&list, pairs[i][1], "U8", 1, i + 1, 0);
        add_tensor(&list, pairs[i][0], "U8", 1, i + 10, 0);
    }
    blob b = make_tensors(list.tensors, list.n, NULL);
    tl_layout *layout = NULL;
    tl_error err = fresh_error();
    assert_int_equal(tl_layout_parse(&layout, b.data, b.n, &err), TL_OK);
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        assert_int_equal(tl_layout_find(layout, pairs[i][1])->dims[0], i + 1);
        assert_int_equal(tl_layout_find(layout, pairs[i][0])->dims[0], i + 10);
    }
    tl_layout_free(layout);
    blob_clear(&b);
    assert_true(tli_name_compare("ab", 2, "abc", 3) < 0);
    assert_true(tli_name_compare("abc", 3, "ab", 2) > 0);
    assert_true(tli_name_compare("abd", 3, "abc", 3) > 0);
    assert_int_equal(tli_name_compare("abc", 3, "abc", 3), 0);
    /* In blocks that end with the names, so that a sanitizer sees who reads on. */
    blob two = {0};
    blob three = {0};
    blob_text(&two, "ab");
    blob_text(&three, "abc");
    blob_fit(&two);
    blob_fit(&three);
    assert_true(tli_name_compare((const char *)two.data, 2, (const char *)three.data, 3) < 0);
    assert_true(tli_name_compare((const char *)three.data, 3, (const char *)two.data, 2) > 0);
    blob_clear(&two);
    blob_clear(&three);
}

static int tie_none(const void *context, uint32_t a, uint32_t b) {
    (void)context;
    (void)a;
    (void)b;
    return 0;
}

static int tie_remainder(const void *context, uint32_t a, uint32_t b) {
    const uint32_t m = *(const uint32_t *)context;
    return a % m == b % m ? 0 : a % m < b % m ? -1 : 1;
}

/* Sorting is stable and right for every length around the powers of two, with distinct and equal
 * keys. */
static void sort_is_stable(void **state) {
    (void)state;
    const uint32_t m = 7;
    uint64_t items[70];
    uint64_t spare[70];
    for (size_t n = 0; n < COUNT_OF(items); n++) {
        for (uint32_t modulus = 1; modulus < 9; modulus++) {
            for (uint32_t i = 0; i < n; i++) {
                items[i] = tli_item((i * 2654435761u >> 7) % modulus, i);
            }
            tli_sort_items(items, spare, n, tie_none, NULL);
            for (size_t i = 1; i < n; i++) {
                assert_true(items[i - 1] < items[i]); /* by key, then by the index: stable */
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            items[i] = tli_item(3, i);
        }
        tli_sort_items(items, spare, n, tie_remainder, &m);
        for (size_t i = 1; i < n; i++) {
            const uint32_t a = tli_item_index(items[i - 1]);
            const uint32_t b = tli_item_index(items[i]);
            assert_true(a % m < b % m || (a % m == b % m && a < b));
        }
    }
}

/* ------------------------------------------------------------------ reading */

/* Every F16 and BF16 pattern and many F32 ones come back as they are, at odd addresses. */
static void reads_widen_exactly(void **state) {
    (void)state;
    const size_t n = 65536;
    const size_t shape[2] = {256, 256};
    static const char *const types[] = {"F16", "BF16", "F32"};
    float *got = (float *)calloc(n, sizeof *got);
    assert_non_null(got);
    for (size_t t = 0; t < 3; t++) {
        made_list list = {.n = 0};
        const size_t element = t == 2 ? 4 : 2;
        add_tensor(&list, "odd", "U8", 1, 3, 0);
        add_tensor(&list, "w", types[t], element, 256, 256);
        blob b = make_tensors(list.tensors, list.n, NULL);
        uint8_t *data = b.data + b.n - n * element;
        for (size_t i = 0; i < n; i++) {
            if (t == 2) {
                tli_store_u32(data + 4 * i, (uint32_t)(i * 65537u + 12345u));
            } else {
                tli_store_u16(data + 2 * i, (uint16_t)i);
            }
        }
        tl_safetensors *st = NULL;
        tl_error err = fresh_error();
        assert_int_equal(tl_safetensors_view(&st, b.data, b.n, &err), TL_OK);
        assert_int_equal(tl_safetensors_f32(st, "w", shape, 2, got, n, &err), TL_OK);
        for (size_t i = 0; i < n; i++) {
            const uint32_t wanted = t == 2   ? (uint32_t)(i * 65537u + 12345u)
                                    : t == 1 ? (uint32_t)i << 16
                                             : tli_f32_bits(tl_f16_to_f32((uint16_t)i));
            const uint32_t bits = tli_f32_bits(got[i]);
            if (bits != wanted && !(t == 1 && got[i] != got[i])) {
                fail_msg("%s pattern %zu: %08x, wanted %08x", types[t], i, bits, wanted);
            }
        }
        tl_safetensors_free(st);
        blob_clear(&b);
    }
    free(got);
}

static void read_refusals(void **state) {
    (void)state;
    made_list list = {.n = 0};
    add_tensor(&list, "w", "F32", 4, 2, 3);
    add_tensor(&list, "i", "I32", 4, 2, 3);
    blob b = make_tensors(list.tensors, list.n, NULL);
    tl_safetensors *st = NULL;
    tl_error err = fresh_error();
    assert_int_equal(tl_safetensors_view(&st, b.data, b.n, &err), TL_OK);
    float dst[6];
    float before[6];
    memset(dst, 0x5a, sizeof dst);
    memcpy(before, dst, sizeof dst);
    static const size_t good[2] = {2, 3};
    static const size_t transposed[2] = {3, 2};
    static const size_t flat[1] = {6};
    static const size_t deep[5] = {1, 1, 1, 1, 6};
    check_refusal(tl_safetensors_f32(st, "v", good, 2, dst, 6, &err), &err, TL_ERR_NOT_FOUND, "'v'",
                  "missing");
    check_refusal(tl_safetensors_f32(st, "i", good, 2, dst, 6, &err), &err, TL_ERR_UNSUPPORTED,
                  "I32", "dtype");
    check_refusal(tl_safetensors_f32(st, "w", transposed, 2, dst, 6, &err), &err, FORMAT,
                  "[2, 3], it must be [3, 2]", "transposed");
    check_refusal(tl_safetensors_f32(st, "w", flat, 1, dst, 6, &err), &err, FORMAT, "[6]", "flat");
    check_refusal(tl_safetensors_f32(st, "w", deep, 5, dst, 6, &err), &err, FORMAT,
                  "[1, 1, 1, 1, ...]", "deep");
    check_refusal(tl_safetensors_f32(st, "w", NULL, 0, dst, 6, &err), &err, FORMAT, "[]", "scalar");
    check_refusal(tl_safetensors_f32(st, "w", good, 2, dst, 5, &err), &err, TL_ERR_INVALID, "5",
                  "length");
    assert_int_equal(tl_safetensors_f32(NULL, "w", good, 2, dst, 6, &err), TL_ERR_INVALID);
    assert_int_equal(tl_safetensors_f32(st, NULL, good, 2, dst, 6, &err), TL_ERR_INVALID);
    assert_int_equal(tl_safetensors_f32(st, "w", NULL, 1, dst, 6, &err), TL_ERR_INVALID);
    assert_int_equal(tl_safetensors_f32(st, "w", good, 2, NULL, 6, &err), TL_ERR_INVALID);
    assert_memory_equal(dst, before, sizeof dst);
    tl_safetensors_free(st);
    assert_null(tl_safetensors_layout(NULL));
    assert_int_equal(tl_safetensors_view(NULL, b.data, b.n, &err), TL_ERR_INVALID);
    assert_int_equal(tl_safetensors_view(&st, NULL, 8, &err), TL_ERR_INVALID);
    assert_int_equal(tl_layout_parse(NULL, b.data, b.n, &err), TL_ERR_INVALID);
    assert_int_equal(tl_safetensors_open(NULL, "x", TL_WEIGHTS_MAP, &err), TL_ERR_INVALID);
    assert_int_equal(tl_safetensors_open(&st, NULL, TL_WEIGHTS_MAP, &err), TL_ERR_INVALID);
    assert_int_equal(tl_safetensors_open(&st, "x", (tl_weights_mode)7, &err), TL_ERR_INVALID);
    blob_clear(&b);
}

/* One scale after the other: what is refused, and at which byte of the file. */
static void check_scales(const blob *b, const tl_safetensors *st) {
    tl_error err = fresh_error();
    tl_qlinear q = {0};
    static const struct {
        uint16_t scale;
        bool is_sound;
    } scales[] = {{0x0000, true},  {0x0001, true},  {0x7bff, true},  {0x7c00, false},
                  {0x7e00, false}, {0x7fff, false}, {0x8000, false}, {0x8001, false},
                  {0xbc00, false}, {0xfc00, false}, {0xffff, false}};
    for (size_t i = 0; i < COUNT_OF(scales); i++) {
        tli_store_u16(b->data + b->n - 2, scales[i].scale);
        const tl_status status = tl_safetensors_q4(st, "z", 1, 4, 2, &q, &err);
        assert_int_equal(status, scales[i].is_sound ? TL_OK : FORMAT);
        if (!scales[i].is_sound) {
            assert_int_equal(err.offset, b->n - 2);
        }
    }
}

static void int4_pairs(void **state) {
    (void)state;
    made_list list = {.n = 0};
    add_tensor(&list, "p.qweight", "U8", 1, 3, 4);
    add_tensor(&list, "p.scales", "F16", 2, 3, 2)->fill = 0x11;
    add_tensor(&list, "half.qweight", "U8", 1, 3, 4);
    add_tensor(&list, "typed.qweight", "I8", 1, 3, 4);
    add_tensor(&list, "typed.scales", "F16", 2, 3, 2);
    add_tensor(&list, "bf.qweight", "U8", 1, 3, 4);
    add_tensor(&list, "bf.scales", "BF16", 2, 3, 2);
    add_tensor(&list, "z.qweight", "U8", 1, 1, 2);
    add_tensor(&list, "z.scales", "F16", 2, 1, 2)->fill = 0;
    blob b = make_tensors(list.tensors, list.n, NULL);
    tl_safetensors *st = NULL;
    tl_error err = fresh_error();
    tl_qlinear q = {0};
    assert_int_equal(tl_safetensors_view(&st, b.data, b.n, &err), TL_OK);
    assert_int_equal(tl_safetensors_q4(st, "p", 3, 8, 4, &q, &err), TL_OK);
    assert_int_equal(q.n_out, 3);
    assert_int_equal(q.n_in, 8);
    assert_int_equal(q.group, 4);
    assert_int_equal(q.qweight_len, 12);
    assert_int_equal(q.scales_len, 12);
    assert_null(q.owned);
    assert_int_equal(q.qweight[0], 7); /* the data buffer's first byte */
    assert_int_equal(q.qweight[11], (11 * 31 + 7) & 0xff);
    assert_int_equal(q.scales[0], 0x11);
    const tl_qlinear before = q;
    static const struct {
        const char *name;
        size_t n_out, n_in, group;
        tl_status status;
        const char *subject;
    } cases[] = {
        {"half", 3, 8, 4, TL_ERR_NOT_FOUND, "half.scales"},
        {"none", 3, 8, 4, TL_ERR_NOT_FOUND, "none.qweight"},
        {"typed", 3, 8, 4, TL_ERR_UNSUPPORTED, "typed.qweight"},
        {"bf", 3, 8, 4, TL_ERR_UNSUPPORTED, "bf.scales"},
        {"p", 4, 8, 4, FORMAT, "p.qweight"},
        {"p", 3, 16, 8, FORMAT, "p.qweight"},
        {"p", 3, 8, 8, FORMAT, "p.scales"},
        {"p", 3, 8, 2, FORMAT, "p.scales"},
        {"p", 3, 8, 0, TL_ERR_INVALID, "group"},
        {"p", 3, 8, 3, TL_ERR_INVALID, "group"},
        {"p", 3, 8, 6, TL_ERR_INVALID, "group"},
        {"p", 0, 8, 4, TL_ERR_INVALID, "'p'"},
        {"p", 3, 0, 4, TL_ERR_INVALID, "'p'"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const tl_status status = tl_safetensors_q4(st, cases[i].name, cases[i].n_out, cases[i].n_in,
                                                   cases[i].group, &q, &err);
        check_refusal(status, &err, cases[i].status, cases[i].subject, cases[i].name);
        assert_memory_equal(&q, &before, sizeof q);
    }
    assert_int_equal(tl_safetensors_q4(NULL, "p", 3, 8, 4, &q, &err), TL_ERR_INVALID);
    assert_int_equal(tl_safetensors_q4(st, NULL, 3, 8, 4, &q, &err), TL_ERR_INVALID);
    assert_int_equal(tl_safetensors_q4(st, "p", 3, 8, 4, NULL, &err), TL_ERR_INVALID);
    check_scales(&b, st);
    tl_safetensors_free(st);
    blob_clear(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule_3_header_bytes),
        cmocka_unit_test(rule_4_json),
        cmocka_unit_test(rule_4_depth),
        cmocka_unit_test(rules_5_to_7),
        cmocka_unit_test(rule_7_all_types),
        cmocka_unit_test(rule_8_sizes),
        cmocka_unit_test(rule_9_tiling),
        cmocka_unit_test(rules_1_and_2_lengths),
        cmocka_unit_test(foreign_files_are_named),
        cmocka_unit_test(zip_signature_is_a_sound_length),
        cmocka_unit_test(layout_is_sorted_and_searchable),
        cmocka_unit_test(many_shuffled_tensors),
        cmocka_unit_test(names_with_one_key),
        cmocka_unit_test(sort_is_stable),
        cmocka_unit_test(reads_widen_exactly),
        cmocka_unit_test(read_refusals),
        cmocka_unit_test(int4_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
