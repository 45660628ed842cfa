/* test_terms.c: what stands whole in a sentence is found, in any order, and nothing else. */
#include "../runner/terms.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

typedef struct sample {
    const char *sentence, *terms;
    bool named;
} sample;

static void check(const sample *samples, size_t n) {
    char why[512];
    for (size_t i = 0; i < n; i++) {
        if (ol_names(samples[i].sentence, samples[i].terms, why, sizeof why) != samples[i].named) {
            fail_msg("`%s` %s in: %s", samples[i].terms,
                     samples[i].named ? "is not found" : "is found", samples[i].sentence);
        }
    }
}

static void names_stand_whole(void **state) {
    (void)state;
    static const sample samples[] = {
        {"top_p is 2", "top_p", true},
        {"stop_p is 2", "top_p", false},
        {"top_pp is 2", "top_p", false},
        {"my_top_p is 2", "top_p", false},
        {"top-p is 2", "top_p", false},
        {"Top_P is 2", "top_p", false},
        {"'top_p', 2", "top_p", true},
        {"\"top_p\": 2", "top_p", true},
        {"`top_p`=2", "top_p", true},
        {"params.top_p=2", "top_p", true},
        {"no_top_p, top_p", "top_p", true},
        {"logits[3] is nan", "logits", true},
        {"lm_head.weight is missing", "lm_head", true},
        {"lm_heads.weight is missing", "lm_head", false},
        {"tensor layers.3.weight", "layers.3.weight", true},
        {"tensor layers.3.weight_scale", "layers.3.weight", false},
        {"key \xc3\xa9t\xc3\xa9", "t", false},
        {"key \xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9", true},
        {"a key\xc3\xa9", "key", false},
        {"int4-g8-sym is refused", "int4-g8-sym", true},
        {"", "a", false},
        {"anything", "", true},
    };
    check(samples, LEN(samples));
}

static void numbers_stand_whole(void **state) {
    (void)state;
    static const sample samples[] = {
        {"it is 3", "3", true},
        {"it is 13", "3", false},
        {"it is 31", "3", false},
        {"it is 3.5", "3", false},
        {"it is 3.5", "5", false},
        {"it is 3.5", "3.5", true},
        {"it is .3", "3", false},
        {"it is 3.", "3", true},
        {"it is 3, not 4", "4 3", true},
        {"logits[3]", "3", true},
        {"logits[3]", "logits[3]", true},
        {"(3)", "3", true},
        {"'3' or \"4\" or `5`", "3 4 5", true},
        {"n=3;m=4", "3 4", true},
        {"w3 and 4k and 5_", "3", false},
        {"w3 and 4k and 5_", "4", false},
        {"w3 and 4k and 5_", "5", false},
        {"model.layers.3.weight", "3", false},
        {"version 1.2.3", "3", false},
        {"version 1.2.3", "1.2", false},
        {"it is -3", "3", false},
        {"it is -3", "-3", true},
        {"it is 3", "-3", false},
        {"0-3", "3 0", true},
        {"0-3", "-3", false},
        {"-8..7", "-8 7", true},
        {"2x6 and 3 x 7", "2 6 3 7", true},
        {"2\xc3\x97"
         "6",
         "2 6", true},
        {"2x6", "26", false},
        {"1e-300", "300", false},
        {"1e3", "3", false},
        {"1e3", "1", false},
        {"it is 1000 of 2", "1e3", true},
        {"it is 9.9999999999999991e-06", "9.999999999999999e-06", true},
        {"it is 1e-5", "0.00001", true},
        {"it is 1", "1.0000000000000002", false},
        {"it is +3.50", "3.5", true},
        {"crc 0x12345678", "305419896", true},
        {"crc 0x12345678", "12345678", false},
        {"crc 12345678", "12345678|0x12345678", true},
        {"55 4c 4b 56", "55", true},
        {"55 4c 4b 56", "4", false},
        {"-0", "0", true},
    };
    check(samples, LEN(samples));
}

static void numbers_that_are_none(void **state) {
    (void)state;
    static const sample samples[] = {
        {"it is nan", "nan", true},        {"it is -NaN", "nan", true},
        {"it is nano", "nan", false},      {"it is infinite", "inf", false},
        {"it is -infinity", "-inf", true}, {"it is -inf", "inf", false},
        {"it is +Inf.", "inf", true},      {"it is 1e999", "inf", true},
        {"it is 3", "nan", false},
    };
    check(samples, LEN(samples));
}

static void all_terms_in_any_order(void **state) {
    (void)state;
    static const sample samples[] = {
        {"top_p is 1.5, must be 0 to 1", "top_p 1.5 0 1", true},
        {"0 to 1 is allowed, 1.5 was found for top_p", "top_p 1.5 0 1", true},
        {"top_p is 1.5, must be at least 0", "top_p 1.5 0 1", false},
        {"1.5, must be 0 to 1", "top_p 1.5 0 1", false},
        {"", "top_p 1.5 0 1", false},
        {"block 3 is cached", "block|id 3 cached|used", true},
        {"id 3 is not used", "block|id 3 cached|used", true},
        {"number 3 is not used", "block|id 3 cached|used", false},
    };
    check(samples, LEN(samples));
}

static void what_must_not_stand(void **state) {
    (void)state;
    static const sample samples[] = {
        {"a header of 3 bytes", "!ZIP", true},       {"this is a ZIP", "!ZIP", false},
        {"this is a ZIPPER", "!ZIP", true},          {"3 bytes", "!ZIP|3", false},
        {"top_p is 3, not a ZIP", "3 !ZIP", false},  {"top_p is 3", "3 !ZIP !HTML", true},
        {"top_p is 3, HTML", "3 !ZIP !HTML", false}, {"top_p", "3 !ZIP", false},
    };
    check(samples, LEN(samples));
    char why[512];
    assert_false(ol_names("a ZIP", "!ZIP", why, sizeof why));
    assert_string_equal(why, "the message must name not `ZIP`; there is `ZIP`; it says: a ZIP");
}

static void what_is_missing_is_said(void **state) {
    (void)state;
    char why[128];
    assert_false(ol_names("a value is wrong", "top_p 1.5 0|1", why, sizeof why));
    assert_string_equal(why,
                        "the message must name `top_p`, `1.5`, `0` or `1`; there is no `top_p`; "
                        "it says: a value is wrong");
    assert_false(ol_names("top_p is 1.5", "top_p 1.5 0|1", why, sizeof why));
    assert_non_null(strstr(why, "there is no `0` or `1`; it says: top_p is 1.5"));
    char small[24]; /* cut, and nothing past its end */
    assert_false(ol_names("top_p is 1.5", "top_p 1.5 0|1", small, sizeof small));
    assert_int_equal(strlen(small), sizeof small - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_stand_whole),     cmocka_unit_test(numbers_stand_whole),
        cmocka_unit_test(numbers_that_are_none), cmocka_unit_test(all_terms_in_any_order),
        cmocka_unit_test(what_must_not_stand),   cmocka_unit_test(what_is_missing_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
