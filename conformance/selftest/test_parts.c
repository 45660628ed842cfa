/* test_parts.c: the small parts that everything else rests on: frames and numbers on the wire,
 * SHA-256, patterns, near names, the order of exit codes. */
#include "../runner/judge.h"
#include "../runner/sha256.h"
#include "../runner/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

/* ------------------------------------------------------------------ wire */

/* Put bytes into a pipe, close it, read a frame. */
static ol_wire_status read_bytes(const void *bytes, size_t n, ol_wire_buf *frame) {
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], bytes, n), n);
    (void)close(fds[1]);
    ol_wire_status status = ol_wire_read(fds[0], frame);
    (void)close(fds[0]);
    return status;
}

static void frames_come_whole_or_not(void **state) {
    (void)state;
    ol_wire_buf frame = {0};
    assert_int_equal(read_bytes("\2\0\0\0{}", 6, &frame), OL_WIRE_OK);
    assert_int_equal(frame.len, 2);
    assert_memory_equal(frame.bytes, "{}", 2);
    assert_int_equal(read_bytes("\0\0\0\0", 4, &frame), OL_WIRE_OK);
    assert_int_equal(frame.len, 0);
    assert_int_equal(read_bytes("", 0, &frame), OL_WIRE_END);
    assert_int_equal(read_bytes("\2\0\0", 3, &frame), OL_WIRE_CUT);
    assert_int_equal(read_bytes("\2\0\0\0{", 5, &frame), OL_WIRE_CUT);
    assert_int_equal(read_bytes("\1\0\0\4", 4, &frame), OL_WIRE_TOO_LONG);
    assert_int_equal(read_bytes("\377\377\377\377", 4, &frame), OL_WIRE_TOO_LONG);
    /* The largest length that is allowed costs no memory before its bytes come. */
    ol_wire_clear(&frame);
    assert_int_equal(read_bytes("\0\0\0\4", 4, &frame), OL_WIRE_CUT);
    assert_true(frame.cap <= (size_t)2 << 20);
    ol_wire_clear(&frame);
    assert_int_equal(ol_wire_read(-1, &frame), OL_WIRE_IO);
}

/* Never fewer than the parser builds, whatever stands in the strings. */
static void values_are_counted_before_they_are_built(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t n;
    } rows[] = {{"", 1},
                {"{}", 2},
                {"[1,[],{\"a\":2}]", 7},
                {"{\"a,[:{\":\"\\\",[\\\\\",\"b\":[]}", 6},
                {"\"\\", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = ol_wire_values((const uint8_t *)rows[i].text, strlen(rows[i].text));
        assert_int_equal(n, rows[i].n);
    }
}

static void arrays_travel_little_endian(void **state) {
    (void)state;
    float x[] = {1, 2};
    json_t *value = ol_wire_array("f32", x, 2);
    char *text = json_dumps(value, JSON_COMPACT);
    assert_string_equal(text, "{\"f32\":\"0000803f00000040\"}");
    free(text);
    float y[2] = {0, 0};
    size_t n = 0;
    assert_true(ol_wire_array_len(value, "f32", &n));
    assert_int_equal(n, 2);
    assert_true(ol_wire_array_get(value, "f32", y, 2));
    assert_memory_equal(x, y, sizeof x);
    assert_false(ol_wire_array_get(value, "f32", y, 1));
    assert_false(ol_wire_array_len(value, "u32", &n));
    json_decref(value);
    assert_null(ol_wire_array("f16", x, 2));
    static const char *const types[] = {"u8", "i8", "u16", "u32", "u64", "f32", "f64"};
    uint8_t bytes[800];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    }
    for (size_t i = 0; i < LEN(types); i++) {
        for (size_t count = 0; count <= 100; count += 50) {
            uint8_t back[800] = {0};
            value = ol_wire_array(types[i], bytes, count);
            assert_true(ol_wire_array_get(value, types[i], back, count));
            assert_memory_equal(bytes, back, count * ol_wire_type_bytes(types[i]));
            json_decref(value);
        }
    }
}

static void broken_arrays_are_no_arrays(void **state) {
    (void)state;
    static const char *const texts[] = {"{\"f32\":\"0000803\"}",
                                        "{\"f32\":\"0000803f00\"}",
                                        "{\"f32\":1}",
                                        "{\"f32\":\"0000803F\"}",
                                        "{\"f32\":\"0000803g\"}",
                                        "{\"f32\":\"\",\"u8\":\"\"}",
                                        "{}",
                                        "[\"0000803f\"]",
                                        "\"0000803f\"",
                                        "null"};
    for (size_t i = 0; i < LEN(texts); i++) {
        json_t *value = json_loads(texts[i], JSON_DECODE_ANY, NULL);
        size_t n = 0;
        float x[2];
        bool good = ol_wire_array_len(value, "f32", &n) && ol_wire_array_get(value, "f32", x, n);
        assert_false(good);
        json_decref(value);
    }
}

static void scalars_are_sixteen_digits(void **state) {
    (void)state;
    char text[OL_WIRE_U64_DIGITS + 1];
    uint64_t v = 0;
    ol_wire_u64_text(0x0123456789abcdefu, text);
    assert_string_equal(text, "0123456789abcdef");
    assert_true(ol_wire_u64_parse(text, &v));
    assert_true(v == 0x0123456789abcdefu);
    static const char *const wrong[] = {"",
                                        "0123456789abcde",
                                        "0123456789abcdef0",
                                        "0123456789ABCDEF",
                                        "0x23456789abcdef",
                                        " 123456789abcdef"};
    for (size_t i = 0; i < LEN(wrong); i++) {
        assert_false(ol_wire_u64_parse(wrong[i], &v));
    }
}

/* ------------------------------------------------------------------ sha256 */

static void hash_in_steps(const char *text, size_t n, size_t step, char hex[OL_SHA256_TEXT]) {
    ol_sha256 h;
    ol_sha256_init(&h);
    for (size_t i = 0; i < n; i += step) {
        ol_sha256_add(&h, text + i, n - i < step ? n - i : step);
    }
    ol_sha256_text(&h, hex);
}

static void sha256_gives_the_standards_examples(void **state) {
    (void)state;
    char hex[OL_SHA256_TEXT];
    hash_in_steps("", 0, 1, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash_in_steps("abc", 3, 1, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    static const size_t steps[] = {1, 3, 55, 56, 64};
    for (size_t i = 0; i < LEN(steps); i++) {
        hash_in_steps(two, strlen(two), steps[i], hex);
        assert_string_equal(hex,
                            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
    char *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    static const size_t long_steps[] = {63, 64, 65, 4096, 1000000};
    for (size_t i = 0; i < LEN(long_steps); i++) {
        hash_in_steps(million, 1000000, long_steps[i], hex);
        assert_string_equal(hex,
                            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
    free(million);
}

/* ------------------------------------------------------------------ words */

static void patterns_match_whole_names(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        const char *name;
        bool match;
    } rows[] = {{"", "", true},           {"", "a", false},          {"*", "", true},
                {"*", "abc", true},       {"a*", "abc", true},       {"*c", "abc", true},
                {"a*c", "abc", true},     {"a*c", "abcd", false},    {"*b*", "abc", true},
                {"a?c", "abc", true},     {"a?c", "ac", false},      {"abc", "abcd", false},
                {"a*b*c", "aXbYc", true}, {"a*b*c", "aXcYb", false}, {"**a**", "bab", true},
                {"*ab", "aab", true},     {"a", "A", false}};
    for (size_t i = 0; i < LEN(rows); i++) {
        assert_int_equal(ol_glob(rows[i].pattern, rows[i].name), rows[i].match);
    }
}

static void edits_are_counted(void **state) {
    (void)state;
    static const struct {
        const char *a;
        const char *b;
        size_t distance;
    } rows[] = {{"", "", 0},          {"abc", "abc", 0},       {"", "abc", 3},   {"abc", "", 3},
                {"abc", "abd", 1},    {"abc", "acb", 1},       {"abc", "ab", 1}, {"abc", "abcd", 1},
                {"check", "chek", 1}, {"kitten", "sitting", 3}};
    for (size_t i = 0; i < LEN(rows); i++) {
        assert_int_equal(ol_edit_distance(rows[i].a, rows[i].b), rows[i].distance);
        assert_int_equal(ol_edit_distance(rows[i].b, rows[i].a), rows[i].distance);
    }
    /* Longer than is looked at: cut, not overrun. */
    char a[200];
    char b[300];
    memset(a, 'a', sizeof a);
    memset(b, 'a', sizeof b);
    a[199] = '\0';
    b[299] = '\0';
    assert_int_equal(ol_edit_distance(a, b), 0);
}

static void exit_codes_have_an_order(void **state) {
    (void)state;
    static const int order[] = {70, 5, 2, 4, 3, 7, 6, 1, 0};
    for (size_t i = 0; i < LEN(order); i++) {
        for (size_t k = 0; k < LEN(order); k++) {
            int worse = order[i < k ? i : k];
            assert_int_equal(ol_exit_worse(order[i], order[k]), worse);
        }
        assert_non_null(ol_exit_meaning(order[i]));
    }
    assert_null(ol_exit_meaning(8));
    assert_int_equal(ol_exit_worse(99, 98), 70);
}

static void classes_are_ten(void **state) {
    (void)state;
    for (int i = 0; i < OL_N_CLASSES; i++) {
        ol_class cls = OL_PASS;
        assert_true(ol_class_parse(ol_class_name((ol_class)i), &cls));
        assert_int_equal((int)cls, i);
        assert_non_null(ol_class_meaning((ol_class)i));
    }
    ol_class cls = OL_PASS;
    assert_false(ol_class_parse("skip", &cls));
}

static void the_first_fault_stands(void **state) {
    (void)state;
    ol_fault fault = {0};
    assert_false(ol_fault_set(&fault, 5, "first %d", 1));
    assert_false(ol_fault_set(&fault, 70, "second"));
    assert_int_equal(fault.exit_code, 5);
    assert_string_equal(fault.text, "first 1");
}

static void files_are_read_whole_or_not(void **state) {
    (void)state;
    size_t n = 0;
    char path[] = "/tmp/ol-parts-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "ab\0c", 4), 4);
    (void)close(fd);
    char *bytes = ol_read_file(path, 4, &n);
    assert_non_null(bytes);
    assert_int_equal(n, 4);
    assert_memory_equal(bytes, "ab\0c", 5);
    free(bytes);
    assert_null(ol_read_file(path, 3, &n));
    assert_int_equal(errno, EFBIG);
    (void)unlink(path);
    assert_null(ol_read_file(path, 4, &n));
    assert_int_equal(errno, ENOENT);
    assert_null(ol_read_file("/", 4, &n));
    assert_int_equal(errno, EISDIR);
    assert_null(ol_read_file("/dev/zero", 4, &n));
    assert_int_equal(errno, EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_whole_or_not),
        cmocka_unit_test(values_are_counted_before_they_are_built),
        cmocka_unit_test(arrays_travel_little_endian),
        cmocka_unit_test(broken_arrays_are_no_arrays),
        cmocka_unit_test(scalars_are_sixteen_digits),
        cmocka_unit_test(sha256_gives_the_standards_examples),
        cmocka_unit_test(patterns_match_whole_names),
        cmocka_unit_test(edits_are_counted),
        cmocka_unit_test(exit_codes_have_an_order),
        cmocka_unit_test(classes_are_ten),
        cmocka_unit_test(the_first_fault_stands),
        cmocka_unit_test(files_are_read_whole_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) == 0 ? 0 : 1;
}
