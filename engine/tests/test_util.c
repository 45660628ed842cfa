/* Status names, versions, error texts, checked sizes and little-endian loads.
 *
 * Source: engine/include/tl/base.h and engine/src/util.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

static void status_names(void **state) {
    (void)state;
    static const char *const names[] = {"OK",     "INVALID",     "NOMEM",    "IO",
                                        "FORMAT", "UNSUPPORTED", "CAPACITY", "NOT_FOUND",
                                        "STATE",  "INTERNAL"};
    for (int i = 0; i < 10; i++) {
        assert_string_equal(tl_status_name((tl_status)i), names[i]);
    }
    assert_string_equal(tl_status_name((tl_status)10), "UNKNOWN");
    assert_string_equal(tl_status_name((tl_status)-1), "UNKNOWN");
}

static void versions(void **state) {
    (void)state;
    assert_string_equal(tl_version(), "0.1.0");
    assert_int_equal(tl_abi_version(), 0x00010000);
}

static void failure_fills_the_error(void **state) {
    (void)state;
    tl_error err = {TL_OK, 0, ""};
    assert_int_equal(tli_fail(&err, TL_ERR_STATE, "block %d of %s", 7, "nine"), TL_ERR_STATE);
    assert_int_equal(err.status, TL_ERR_STATE);
    assert_true(err.offset == TL_NO_OFFSET);
    assert_string_equal(err.text, "block 7 of nine");
    assert_int_equal(tli_fail_at(&err, TL_ERR_FORMAT, 99, "again: %s", err.text), TL_ERR_FORMAT);
    assert_true(err.offset == 99);
    assert_string_equal(err.text, "again: block 7 of nine");
    assert_int_equal(tli_fail(NULL, TL_ERR_IO, "nobody listens"), TL_ERR_IO);
    assert_int_equal(tli_fail_at(NULL, TL_ERR_IO, 1, "nobody listens"), TL_ERR_IO);
}

/* Bytes of a file may be quoted in a message; callers print it and put it into JSON. */
static void texts_are_clean_utf8(void **state) {
    (void)state;
    static const struct {
        const char *in;
        const char *out;
    } cases[] = {
        {"plain", "plain"},
        {"tab\tline\nend\x7f\x01", "tab?line?end??"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"lone \x80 \xbf", "lone ? ?"},
        {"overlong \xc0\xaf \xe0\x80\x80", "overlong ?? ???"},
        {"surrogate \xed\xa0\x80", "surrogate ???"},
        {"past the end \xf4\x90\x80\x80 \xff", "past the end ???? ?"},
        {"unfinished \xe2\x82", "unfinished ??"},
        {"unfinished \xe2\x82.", "unfinished ?\?."},
        {"last \xf4\x8f\xbf\xbf \xed\x9f\xbf", "last \xf4\x8f\xbf\xbf \xed\x9f\xbf"},
    };
    tl_error err = {TL_OK, 0, ""};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(tli_fail(&err, TL_ERR_FORMAT, "%s", cases[i].in), TL_ERR_FORMAT);
        assert_string_equal(err.text, cases[i].out);
    }
}

/* A text too long is cut before, never inside, a sequence, whichever of its bytes the cut falls
 * on. */
static void long_texts_are_cut_between_characters(void **state) {
    (void)state;
    static const char *const sequences[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t s = 0; s < 3; s++) {
        const size_t length = strlen(sequences[s]);
        for (size_t lead = 240; lead < 260; lead++) {
            char text[400];
            memset(text, 'a', lead);
            memcpy(text + lead, sequences[s], length);
            memset(text + lead + length, 'b', 60);
            text[lead + length + 60] = '\0';
            tl_error err = {TL_OK, 0, ""};
            assert_int_equal(tli_fail(&err, TL_ERR_FORMAT, "%s", text), TL_ERR_FORMAT);
            const size_t n = strlen(err.text);
            const size_t most = TL_ERROR_TEXT_CAP - 1;
            const bool sequence_is_cut = lead < most && lead + length > most;
            assert_int_equal(n, sequence_is_cut ? lead : most);
            assert_memory_equal(err.text, text, n);
        }
    }
}

static void sizes_are_checked(void **state) {
    (void)state;
    size_t n = 77;
    assert_true(tli_mul(SIZE_MAX, 1, &n) && n == SIZE_MAX);
    assert_true(tli_mul(0, SIZE_MAX, &n) && n == 0);
    assert_true(tli_mul(SIZE_MAX, 0, &n) && n == 0);
    assert_true(tli_mul(SIZE_MAX / 3, 3, &n) && n == SIZE_MAX / 3 * 3);
    n = 77;
    assert_false(tli_mul(SIZE_MAX / 2 + 1, 2, &n));
    assert_false(tli_mul(SIZE_MAX, SIZE_MAX, &n));
    assert_false(tli_add(SIZE_MAX, 1, &n));
    assert_true(n == 77);
    assert_true(tli_add(SIZE_MAX - 1, 1, &n) && n == SIZE_MAX);
    uint64_t v = 78;
    assert_false(tli_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &v));
    assert_false(tli_add_u64(UINT64_MAX, 1, &v));
    assert_true(v == 78);
    assert_true(tli_mul_u64(UINT32_MAX, UINT32_MAX, &v) && v == UINT64_C(0xfffffffe00000001));
    assert_true(tli_add_u64(UINT64_MAX, 0, &v) && v == UINT64_MAX);
}

static void memory_is_zeroed_and_checked(void **state) {
    (void)state;
    uint8_t *p = tli_calloc(100, 3);
    assert_non_null(p);
    for (size_t i = 0; i < 300; i++) {
        assert_int_equal(p[i], 0);
    }
    free(p);
    p = tli_calloc(0, 8);
    assert_non_null(p);
    free(p);
    assert_null(tli_calloc(SIZE_MAX / 2, 3));
    assert_null(tli_calloc((size_t)PTRDIFF_MAX + 1, 1));
}

static void loads_and_stores_are_little_endian(void **state) {
    (void)state;
    const uint8_t bytes[9] = {0xee, 0x01, 0x82, 0x03, 0x84, 0x05, 0x86, 0x07, 0x88};
    assert_int_equal(tli_load_u16(bytes + 1), 0x8201);
    assert_true(tli_load_u32(bytes + 1) == 0x84038201u);
    assert_true(tli_load_u64(bytes + 1) == UINT64_C(0x8807860584038201));
    uint8_t out[9] = {0xee, 0, 0, 0, 0, 0, 0, 0, 0};
    tli_store_u64(out + 1, UINT64_C(0x8807860584038201));
    assert_memory_equal(out, bytes, 9);
    memset(out + 1, 0, 8);
    tli_store_u32(out + 1, 0x84038201u);
    tli_store_u16(out + 5, 0x8605);
    tli_store_u16(out + 7, 0x8807);
    assert_memory_equal(out, bytes, 9);
}

static void float_bits(void **state) {
    (void)state;
    assert_true(tli_f32_bits(1.0f) == 0x3f800000u);
    assert_true(tli_f32_bits(-0.0f) == 0x80000000u);
    assert_true(tli_f32_from_bits(0x40490fdbu) == 3.14159274f);
    assert_true(tli_f32_bits(tli_f32_from_bits(0x00000001u)) == 1u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_names),
        cmocka_unit_test(versions),
        cmocka_unit_test(failure_fills_the_error),
        cmocka_unit_test(texts_are_clean_utf8),
        cmocka_unit_test(long_texts_are_cut_between_characters),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(memory_is_zeroed_and_checked),
        cmocka_unit_test(loads_and_stores_are_little_endian),
        cmocka_unit_test(float_bits),
    };
    return cmocka_run_group_tests_name("util", tests, NULL, NULL);
}
