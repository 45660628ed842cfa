/* The JSON layer: what the scan takes and refuses, at which byte, and that jansson's blind spots
 * (NUL, memory) do not show.
 *
 * Source: conformance/spec/config.md, config#json; conformance/spec/safetensors.md, rules 3 and
 * 4. */
#include "model_fixture.h"

#include "json.h"

static const tli_json_limits limits = {
    .max_bytes = 1 << 20, .max_depth = 64, .max_nodes = 1000, .max_member_nodes = 500};

/* A copy without a byte behind it, so that a read past the end is seen. */
static tl_status check_bytes(const char *text, size_t n, size_t *n_members, tl_error *err) {
    blob b = {0};
    blob_add(&b, text, n);
    blob_fit(&b);
    const tli_json_span span = {.text = (const char *)b.data, .len = n, .at = 0};
    const tl_status status = tli_json_check(span, &limits, "test", n_members, err);
    blob_clear(&b);
    return status;
}

static void sound_texts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t n_members;
    } cases[] = {
        {"{}", 0},
        {" \t\r\n{ } \n", 0},
        {"{\"a\":1}", 1},
        {"{\"a\":-0,\"b\":0.5,\"c\":1e5,\"d\":1E+5,\"e\":-1.25e-7}", 5},
        {"{\"a\":[],\"b\":{},\"c\":[[]],\"d\":[{}],\"e\":[1,2,[3]]}", 5},
        {"{\"a\":true,\"b\":false,\"c\":null,\"d\":\"\"}", 4},
        {"{\"\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"}", 1},
        {"{\"\xc3\xa9\":\"\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\x7f\"}", 1},
        {"{\"a\":1,\"a\":2}", 2}, /* duplicates are jansson's to find */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        tl_error err = fresh_error();
        size_t n = 99;
        if (check_bytes(cases[i].text, strlen(cases[i].text), &n, &err) != TL_OK) {
            fail_msg("%s: %s", cases[i].text, err.text);
        }
        assert_int_equal(n, cases[i].n_members);
    }
}

/* Each fault, and the byte that is to blame. */
static const struct fault {
    const char *text;
    size_t n;
    uint64_t at;
} faults[] = {
#define CASE(text, at)                                                                             \
    { text, sizeof(text) - 1, at }
    CASE("", 0),
    CASE("[]", 0),
    CASE("1", 0),
    CASE("\xef\xbb\xbf{}", 0),
    CASE("{", 1),
    CASE("{}{}", 2),
    CASE("{}x", 2),
    CASE("{\"a\":1,}", 7),
    CASE("{,}", 1),
    CASE("{\"a\" 1}", 5),
    CASE("{\"a\":}", 5),
    CASE("{\"a\":1 \"b\":2}", 7),
    CASE("{\"a\"}", 4),
    CASE("{1:2}", 1),
    CASE("{\"a\":[1 2]}", 8),
    CASE("{\"a\":[1,]}", 8),
    CASE("{\"a\":[}", 6),
    CASE("{\"a\":[1}", 7),
    CASE("{\"a\":{]}", 6),
    CASE("{\"a\":01}", 6),
    CASE("{\"a\":+1}", 5),
    CASE("{\"a\":.5}", 5),
    CASE("{\"a\":1.}", 5),
    CASE("{\"a\":-}", 5),
    CASE("{\"a\":1e}", 5),
    CASE("{\"a\":1e+}", 5),
    CASE("{\"a\":tru}", 5),
    CASE("{\"a\":truex}", 9),
    CASE("{\"a\":NaN}", 5),
    CASE("{\"a\":-Infinity}", 5),
    CASE("{/*x*/}", 1),
    CASE("{\"a\":'b'}", 5),
    CASE("{\"a\":\"b}", 5),
    CASE("{\"a\":\"\t\"}", 6),
    CASE("{\"a\":\"\\x\"}", 6),
    CASE("{\"a\":\"\\u12\"}", 6),
    CASE("{\"a\":\"\\u12g4\"}", 6),
    CASE("{\"a\":\"\\u0000\"}", 6),
    CASE("{\"a\\u0000\":1}", 3),
    CASE("{\"a\":\"\\ud800\"}", 6),
    CASE("{\"a\":\"\\udc00\"}", 6),
    CASE("{\"a\":\"\\ud800\\u0041\"}", 6),
    CASE("{\"a\":\"\\ud800\\ud800\"}", 6),
    CASE("{\"a\":\"\\", 6),
    CASE("{\"a\":\"\xff\"}", 6),
    CASE("{\"a\":\"\xc0\xaf\"}", 6),
    CASE("{\"a\":\"\xe0\x9f\xbf\"}", 6),
    CASE("{\"a\":\"\xed\xa0\x80\"}", 6),
    CASE("{\"a\":\"\xf4\x90\x80\x80\"}", 6),
    CASE("{\"a\":\"\xf5\x80\x80\x80\"}", 6),
    CASE("{\"a\":\"\xc3\"}", 6),
    CASE("{\"a\":\"\xe2\x82", 6),
    CASE("{\"a\":1\0}", 6),
    CASE("{\"a\":[true\0,2]}", 10),
    CASE("{}\0", 2),
#undef CASE
};

static void faults_have_their_byte(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        tl_error err = fresh_error();
        size_t n = 99;
        const tl_status status = check_bytes(faults[i].text, faults[i].n, &n, &err);
        if (status != TL_ERR_FORMAT || err.offset != faults[i].at || n != 99) {
            fail_msg("case %zu '%s': %s at %lld: %s", i, faults[i].text, tl_status_name(status),
                     (long long)err.offset, err.text);
        }
    }
}

static tl_status check_blob(blob *b, const tli_json_limits *with, tl_error *err) {
    size_t n = 0;
    const tli_json_span span = {.text = (const char *)b->data, .len = b->n};
    const tl_status status = tli_json_check(span, with, "test", &n, err);
    blob_clear(b);
    return status;
}

/* n brackets inside the outermost object. */
static blob nested(size_t n) {
    blob b = {0};
    blob_text(&b, "{\"a\":");
    for (size_t i = 0; i < n; i++) {
        blob_text(&b, "[");
    }
    for (size_t i = 0; i < n; i++) {
        blob_text(&b, "]");
    }
    blob_text(&b, "}");
    return b;
}

/* An array of n numbers below the key. */
static void add_numbers(blob *b, const char *key, size_t n) {
    blob_text(b, key);
    blob_text(b, ":[1");
    for (size_t i = 1; i < n; i++) {
        blob_text(b, ",1");
    }
    blob_text(b, "]");
}

static void limits_are_exact(void **state) {
    (void)state;
    tl_error err = fresh_error();
    blob b = nested(63);
    assert_int_equal(check_blob(&b, &limits, &err), TL_OK);
    b = nested(64);
    assert_int_equal(check_blob(&b, &limits, &err), TL_ERR_FORMAT);
    assert_non_null(strstr(err.text, "64 levels"));
    b = nested(100000);
    assert_int_equal(check_blob(&b, &limits, &err), TL_ERR_FORMAT);
    /* An array of 499 and the array itself are 500 nodes, the limit of a member. */
    for (size_t extra = 0; extra < 2; extra++) {
        memset(&b, 0, sizeof b);
        blob_text(&b, "{");
        add_numbers(&b, "\"a\"", 499 + extra);
        blob_text(&b, "}");
        assert_int_equal(check_blob(&b, &limits, &err), extra == 0 ? TL_OK : TL_ERR_FORMAT);
    }
    assert_non_null(strstr(err.text, "500 nodes in one member"));
    /* 1 object, 2 arrays, 997 numbers. */
    for (size_t extra = 0; extra < 2; extra++) {
        memset(&b, 0, sizeof b);
        blob_text(&b, "{");
        add_numbers(&b, "\"a\"", 498);
        blob_text(&b, ",");
        add_numbers(&b, "\"b\"", 499);
        blob_text(&b, extra == 0 ? "}" : ",\"c\":1}");
        assert_int_equal(check_blob(&b, &limits, &err), extra == 0 ? TL_OK : TL_ERR_FORMAT);
    }
    const tli_json_limits small = {
        .max_bytes = 2, .max_depth = 64, .max_nodes = 9, .max_member_nodes = 9};
    memset(&b, 0, sizeof b);
    blob_text(&b, "{}");
    assert_int_equal(check_blob(&b, &small, &err), TL_OK);
    blob_text(&b, "{} ");
    assert_int_equal(check_blob(&b, &small, &err), TL_ERR_FORMAT);
}

static void messages_name_the_member(void **state) {
    (void)state;
    tl_error err = fresh_error();
    json_t *root = NULL;
    static const struct {
        const char *text, *subject;
    } cases[] = {
        {"{\"a\":1,\"eps\":NaN}", "\"eps\""},
        {"{\"a\":1,\"size\":9223372036854775808}", "\"size\""},
        {"{\"a\":1,\"theta\":1e999,\"b\":2}", "\"theta\""},
        {"{\"a\":1,\"deep\":{\"x\":1,\"x\":2},\"b\":2}", "\"deep\""},
        {"{\"twice\":1,\"b\":3,\"twice\":2}", "\"twice\""},
        {"{\"a\":1,\"\\u0061\":2}", "duplicate"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const tli_json_span span = {.text = cases[i].text, .len = strlen(cases[i].text)};
        const tl_status status = tli_json_object(&root, span, &limits, "test", &err);
        check_refusal(status, &err, TL_ERR_FORMAT, cases[i].subject, cases[i].text);
        assert_null(root);
        assert_int_equal(tli_json_object(&root, span, &limits, "test", NULL), TL_ERR_FORMAT);
    }
}

static void walk_gives_members_in_order(void **state) {
    (void)state;
    static const char text[] =
        " { \"a\" : 1 , \"\\u0062\\n\" :\t[ {\"x\":\"}]\\\"\"} , 2 ],\"c\":\"s\"}";
    const tli_json_span span = {.text = text, .len = strlen(text), .at = 100};
    static const char *const keys[] = {"a", "b\n", "c"};
    static const char *const values[] = {"1", "[ {\"x\":\"}]\\\"\"} , 2 ]", "\"s\""};
    tli_json_walk walk = tli_json_members(span);
    tli_json_span key = {0};
    tli_json_span value = {0};
    size_t n = 0;
    while (tli_json_next(&walk, &key, &value)) {
        char name[32];
        assert_true(n < 3);
        assert_int_equal(tli_json_decode(key, name), strlen(keys[n]));
        assert_string_equal(name, keys[n]);
        assert_int_equal(value.len, strlen(values[n]));
        assert_memory_equal(value.text, values[n], value.len);
        assert_int_equal(value.at, 100 + (uint64_t)(value.text - text));
        assert_int_equal(key.at, 100 + (uint64_t)(key.text - text));
        n++;
    }
    assert_int_equal(n, 3);
}

static void decode_unescapes(void **state) {
    (void)state;
    static const char text[] =
        "\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\\"\\\\\\/\\b\\f\\n\\r\\tz\xc3\xa9\"";
    char out[sizeof text];
    const tli_json_span span = {.text = text, .len = strlen(text)};
    static const char wanted[] = "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"\\/\b\f\n\r\tz\xc3\xa9";
    assert_int_equal(tli_json_decode(span, out), strlen(wanted));
    assert_string_equal(out, wanted);
}

static json_t *load_text(const char *text) {
    const tli_json_span span = {.text = text, .len = strlen(text)};
    tl_error err = fresh_error();
    json_t *out = NULL;
    if (tli_json_load(&out, span, "test", &err) != TL_OK) {
        fail_msg("%s: %s", text, err.text);
    }
    return out;
}

/* Values of every kind, short and longer than jansson's first buffer. */
static void values_come_out_whole(void **state) {
    (void)state;
    json_t *v = load_text("-0");
    assert_true(json_is_integer(v) && json_integer_value(v) == 0);
    json_decref(v);
    v = load_text("2.0");
    assert_false(json_is_integer(v));
    json_decref(v);
    v = load_text("1e3");
    assert_false(json_is_integer(v));
    json_decref(v);
    v = load_text("[9223372036854775807,-9223372036854775808]");
    assert_true(json_integer_value(json_array_get(v, 0)) == INT64_MAX);
    assert_true(json_integer_value(json_array_get(v, 1)) == INT64_MIN);
    json_decref(v);
    v = load_text("{\"a_key_that_is_longer_than_sixteen\":\"and a value that is longer, too\"}");
    assert_string_equal(json_string_value(json_object_get(v, "a_key_that_is_longer_than_sixteen")),
                        "and a value that is longer, too");
    json_decref(v);
}

/* A string of more than 64 KiB comes out empty, what stands around it is untouched, a long key
 * stays. */
static void giant_strings_are_cut(void **state) {
    (void)state;
    const size_t n_long = 70000;
    blob b = {0};
    char *letters = (char *)malloc(n_long);
    assert_non_null(letters);
    memset(letters, 'q', n_long);
    blob_text(&b, "{\"first\":17,\"x\":\"");
    blob_add(&b, letters, n_long);
    blob_text(&b, "\" ,\"y\":[\"");
    blob_add(&b, letters, n_long);
    blob_text(&b, "\"],\"");
    blob_add(&b, letters, n_long);
    blob_text(&b, "\" :\"kept\",\"last\":[1,2,3]}");
    blob_fit(&b);
    tl_error err = fresh_error();
    json_t *root = NULL;
    const tli_json_span span = {.text = (const char *)b.data, .len = b.n};
    assert_int_equal(tli_json_object(&root, span, &limits, "test", &err), TL_OK);
    assert_int_equal(json_object_size(root), 5);
    assert_int_equal(json_integer_value(json_object_get(root, "first")), 17);
    assert_string_equal(json_string_value(json_object_get(root, "x")), "");
    assert_string_equal(json_string_value(json_array_get(json_object_get(root, "y"), 0)), "");
    assert_int_equal(json_array_size(json_object_get(root, "last")), 3);
    size_t n_keys = 0;
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(root, key, value) {
        n_keys += strlen(key) == n_long && strcmp(json_string_value(value), "kept") == 0;
    }
    assert_int_equal(n_keys, 1);
    json_decref(root);
    free(letters);
    blob_clear(&b);
}

/* ------------------------------------------------------------------ memory */

static size_t n_until_refusal;
static bool is_refusing_for_good;

static void *counting_malloc(size_t n) {
    if (n_until_refusal == 0) {
        return malloc(n);
    }
    n_until_refusal--;
    if (n_until_refusal > 0) {
        return malloc(n);
    }
    if (is_refusing_for_good) {
        n_until_refusal = 1;
    }
    return NULL;
}

/* jansson drops a byte where its buffer cannot grow: every refused allocation must end in NOMEM,
 * and never in another value or a FORMAT. */
static void refused_memory_is_nomem(void **state) {
    (void)state;
    static const char text[] = "{\"a_key_that_is_longer_than_sixteen\":\"a value that is longer "
                               "than thirty-two bytes, and\","
                               "\"numbers\":[123456789012345678,1.2500000000000000000000000001,"
                               "true],\"b\":{\"c\":[null]}}";
    const tli_json_span span = {.text = text, .len = strlen(text)};
    json_t *wanted = load_text(text);
    json_set_alloc_funcs(counting_malloc, free);
    for (int for_good = 0; for_good < 2; for_good++) {
        size_t n_refused = 0;
        bool is_done = false;
        for (size_t nth = 1; !is_done; nth++) {
            tl_error err = fresh_error();
            json_t *got = NULL;
            n_until_refusal = nth;
            is_refusing_for_good = for_good != 0;
            const tl_status status = tli_json_object(&got, span, &limits, "test", &err);
            is_done = n_until_refusal > 1 || (n_until_refusal == 1 && for_good == 0);
            n_until_refusal = 0;
            if (status == TL_OK) {
                assert_true(json_equal(got, wanted));
            } else {
                assert_int_equal(status, TL_ERR_NOMEM);
                assert_null(got);
                n_refused++;
            }
            json_decref(got);
        }
        assert_true(n_refused > 10);
    }
    json_set_alloc_funcs(malloc, free);
    json_decref(wanted);
}

static void *small_pieces_only(size_t n) {
    return n > 1024 ? NULL : malloc(n);
}

/* Where large pieces are refused and small ones are not, jansson's parser would go on with tokens
 * cut short and write past its buffers, whatever the length of a token. */
static void large_pieces_refused_are_nomem(void **state) {
    (void)state;
    static const size_t lengths[] = {14, 30, 62, 510, 1150, 2046, 4094, 60000};
    json_set_alloc_funcs(small_pieces_only, free);
    for (size_t i = 0; i < 2 * COUNT_OF(lengths); i++) {
        const size_t n = lengths[i / 2];
        blob b = {0};
        tl_error err = fresh_error();
        json_t *got = NULL;
        blob_text(&b, i % 2 == 0 ? "{\"k\":\"" : "{\"");
        for (size_t k = 6; k < n; k++) {
            blob_text(&b, "q");
        }
        blob_text(&b, i % 2 == 0 ? "\\u0041\"}" : "\\u0041\":1}");
        blob_fit(&b);
        const tli_json_span span = {.text = (const char *)b.data, .len = b.n};
        const tl_status status = tli_json_object(&got, span, &limits, "test", &err);
        assert_int_equal(status, n < 1024 ? TL_OK : TL_ERR_NOMEM);
        json_decref(got);
        blob_clear(&b);
    }
    json_set_alloc_funcs(malloc, free);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_texts),
        cmocka_unit_test(faults_have_their_byte),
        cmocka_unit_test(limits_are_exact),
        cmocka_unit_test(messages_name_the_member),
        cmocka_unit_test(walk_gives_members_in_order),
        cmocka_unit_test(decode_unescapes),
        cmocka_unit_test(values_come_out_whole),
        cmocka_unit_test(giant_strings_are_cut),
        cmocka_unit_test(refused_memory_is_nomem),
        cmocka_unit_test(large_pieces_refused_are_nomem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
