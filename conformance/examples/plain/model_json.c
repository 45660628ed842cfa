/* model_json.c: see model_json.h.
 *
 * The check is a recursive descent with one function for each production of the grammar, and at
 * most 64 calls deep. Names that stand twice are found when an object ends: its names are listed,
 * sorted and compared with their neighbours.
 *
 * Source: conformance/spec/config.md (config#json) and conformance/spec/safetensors.md, rules 3
 * and 4. */
#include "model_json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

enum { MAX_DEPTH = 64 };
#define NUMBER_ENDS ",]} \t\r\n"

/* ------------------------------------------------------------------ bytes */

/* Bytes of the UTF-8 sequence at p, of which `left` bytes are there; 0 when it is none. The second
 * byte's range is what keeps out longer forms than needed, surrogates and what is past 10FFFF. */
static size_t utf8_length(const unsigned char *p, size_t left) {
    unsigned low = 0x80;
    unsigned high = 0xbf;
    size_t n;
    if (p[0] < 0x80) {
        return 1;
    } else if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        n = 2;
    } else if (p[0] >= 0xe0 && p[0] <= 0xef) {
        n = 3;
        low = p[0] == 0xe0 ? 0xa0 : low;
        high = p[0] == 0xed ? 0x9f : high;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        n = 4;
        low = p[0] == 0xf0 ? 0x90 : low;
        high = p[0] == 0xf4 ? 0x8f : high;
    } else {
        return 0;
    }
    if (left < n || p[1] < low || p[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < n; i++) {
        if (p[i] < 0x80 || p[i] > 0xbf) {
            return 0;
        }
    }
    return n;
}

size_t plain_bad_byte(const char *text, size_t len) {
    const unsigned char *p = (const unsigned char *)text;
    size_t at = 0;
    while (at < len) {
        const size_t n = p[at] == 0 ? 0 : utf8_length(p + at, len - at);
        if (n == 0) {
            return at;
        }
        at += n;
    }
    return len;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The value of a hexadecimal digit, or -1. */
static int hex_value(char c) {
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *found = c == '\0' ? NULL : strchr(digits, c);
    return found == NULL ? -1 : (int)((found - digits) % 16);
}

/* ------------------------------------------------------------------ checked texts */

plain_kind plain_json_kind(const char *value) {
    switch (*value) {
    case '{':
        return PLAIN_OBJECT;
    case '[':
        return PLAIN_ARRAY;
    case '"':
        return PLAIN_STRING;
    case 't':
    case 'f':
        return PLAIN_BOOL;
    case 'n':
        return PLAIN_NULL;
    default:
        return PLAIN_NUMBER;
    }
}

static const char *skip_spaces(const char *p) {
    while (is_space(*p)) {
        p++;
    }
    return p;
}

static const char *skip_string(const char *p) {
    for (p++; *p != '"'; p++) {
        if (*p == '\\') {
            p++;
        }
    }
    return p + 1;
}

static const char *skip_value(const char *p) {
    size_t open = 0;
    do {
        if (*p == '"') {
            p = skip_string(p);
            continue;
        }
        if (*p == '{' || *p == '[') {
            open++;
        } else if (*p == '}' || *p == ']') {
            open--;
        } else if (open == 0) { /* a number or a word: up to whatever cannot be part of it */
            return p + strcspn(p, NUMBER_ENDS);
        }
        p++;
    } while (open > 0);
    return p;
}

plain_walk plain_walk_of(const char *value) {
    return (plain_walk){.at = value + 1, .has_keys = *value == '{'};
}

bool plain_walk_next(plain_walk *walk) {
    const char *p = skip_spaces(walk->at);
    if (*p == ',') {
        p = skip_spaces(p + 1);
    }
    if (*p == '}' || *p == ']') {
        return false;
    }
    if (walk->has_keys) {
        walk->key = p;
        p = skip_spaces(skip_string(p));
        p = skip_spaces(p + 1); /* the colon */
    }
    walk->value = p;
    walk->at = skip_value(p);
    return true;
}

size_t plain_json_count(const char *value) {
    size_t n = 0;
    plain_walk walk = plain_walk_of(value);
    while (plain_walk_next(&walk)) {
        n++;
    }
    return n;
}

const char *plain_json_find(const char *object, const char *key) {
    plain_walk walk = plain_walk_of(object);
    while (plain_walk_next(&walk)) {
        if (plain_json_equal(walk.key, key)) {
            return walk.value;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------ strings */

static uint32_t hex4(const char *p) {
    uint32_t code = 0;
    for (int i = 0; i < 4; i++) {
        code = code * 16 + (uint32_t)hex_value(p[i]);
    }
    return code;
}

/* A string as a stream of bytes after unescaping. */
typedef struct unescaped {
    const char *p;         /* the next byte of the literal */
    unsigned char utf8[4]; /* an escape that stands for several bytes: those left of it */
    size_t n_left;         /* the last n_left of the four */
} unescaped;

static unescaped unescape(const char *string) {
    return (unescaped){.p = string + 1};
}

/* The escape \uXXXX at s->p, or two of them when it is the first half of a surrogate pair; that
 * the other half follows has been checked. */
static void read_unicode(unescaped *s) {
    uint32_t code = hex4(s->p + 2);
    s->p += 6;
    if (code >= 0xd800 && code <= 0xdbff) {
        code = 0x10000 + ((code - 0xd800) << 10) + (hex4(s->p + 2) - 0xdc00);
        s->p += 6;
    }
    static const uint32_t marks[] = {0, 0x00, 0xc0, 0xe0, 0xf0};
    const size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    s->n_left = n;
    for (size_t i = 3; i > 4 - n; i--) {
        s->utf8[i] = (unsigned char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    s->utf8[4 - n] = (unsigned char)(marks[n] | code);
}

/* The next byte, and 0 at the end: no string contains a NUL. */
static unsigned char next_byte(unescaped *s) {
    static const char letters[] = "bfnrt";
    static const char meanings[] = "\b\f\n\r\t";
    if (s->n_left == 0 && *s->p == '"') {
        return 0;
    }
    if (s->n_left == 0 && *s->p != '\\') {
        return (unsigned char)*s->p++;
    }
    if (s->n_left == 0 && s->p[1] != 'u') {
        const char letter = s->p[1];
        const char *found = strchr(letters, letter);
        s->p += 2;
        return (unsigned char)(found == NULL ? letter : meanings[found - letters]);
    }
    if (s->n_left == 0) {
        read_unicode(s);
    }
    s->n_left--;
    return s->utf8[3 - s->n_left];
}

bool plain_json_equal(const char *string, const char *want) {
    unescaped s = unescape(string);
    unsigned char byte;
    do {
        byte = next_byte(&s);
        if (byte != (unsigned char)*want++) {
            return false;
        }
    } while (byte != 0);
    return true;
}

char *plain_json_decode(const char *string, char *dst) {
    unescaped s = unescape(string);
    do {
        *dst = (char)next_byte(&s);
    } while (*dst++ != '\0');
    return dst;
}

/* The order of two strings after unescaping, for qsort over an array of pointers to literals. */
static int compare_strings(const void *a, const void *b) {
    unescaped s = unescape(*(const char *const *)a);
    unescaped t = unescape(*(const char *const *)b);
    unsigned char x;
    unsigned char y;
    do {
        x = next_byte(&s);
        y = next_byte(&t);
    } while (x == y && x != 0);
    return (x > y) - (x < y);
}

/* ------------------------------------------------------------------ numbers */

bool plain_json_true(const char *value) {
    return *value == 't';
}

bool plain_json_int(const char *number, int64_t *out) {
    const size_t len = strcspn(number, NUMBER_ENDS);
    if (strspn(number, "-0123456789") < len) {
        return false;
    }
    errno = 0;
    const long long value = strtoll(number, NULL, 10);
    if (errno == ERANGE) {
        return false;
    }
    *out = value;
    return true;
}

/* strtod reads the decimal point of the process's locale, so it gets the number without one: the
 * digits as an integer, and the exponent to match. 768 digits decide any rounding to f64, and a
 * digit that is not zero behind them only matters by being there. */
double plain_json_real(const char *number) {
    enum { MAX_DIGITS = 768 };
    char text[MAX_DIGITS + 32];
    size_t n = 0;
    long long exponent = 0;
    bool fraction = false;
    bool more = false;
    const char *p = *number == '-' ? number + 1 : number;
    for (; is_digit(*p) || *p == '.'; p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        const bool keep = n < MAX_DIGITS && (n > 0 || *p != '0');
        const bool dropped = n == MAX_DIGITS;
        if (keep) {
            text[n++] = *p;
        }
        more = more || (dropped && *p != '0');
        exponent += (dropped ? 1 : 0) - (fraction ? 1 : 0);
    }
    if (n == 0) {
        return *number == '-' ? -0.0 : 0.0;
    }
    if (more) {
        text[n++] = '1';
        exponent--;
    }
    if (*p == 'e' || *p == 'E') {
        const long long written = strtoll(p + 1, NULL, 10); /* at its limits when out of range */
        exponent += written > 1000000000    ? 1000000000
                    : written < -1000000000 ? -1000000000
                                            : written;
    }
    (void)snprintf(text + n, sizeof text - n, "e%lld", exponent);
    const double size = strtod(text, NULL);
    return *number == '-' ? -size : size;
}

int plain_json_show(const char *value) {
    size_t len = (size_t)(skip_value(value) - value);
    if (len > 60) {
        for (len = 60; ((unsigned char)value[len] & 0xc0) == 0x80; len--) { /* in a character */
        }
    }
    return (int)len;
}

/* ------------------------------------------------------------------ the check */

typedef struct checker {
    const char *text;
    size_t len;
    size_t at; /* the next byte to read */
    uint64_t start;
    size_t nodes;
    size_t member_nodes;
    const char *member; /* the key of the outermost object that is being read, or NULL */
    const plain_json_limits *limits;
    const char *what;
    tl_error *err;
} checker;

static tl_status refuse(checker *c, size_t at, const char *why) {
    return tli_fail_at(c->err, TL_ERR_FORMAT, c->start + at, "%s: %s at byte %" PRIu64 "%s%.*s",
                       c->what, why, c->start + at, c->member == NULL ? "" : ", in ",
                       c->member == NULL ? 0 : plain_json_show(c->member),
                       c->member == NULL ? "" : c->member);
}

/* The next byte, and NUL at the end, which the text itself does not contain. */
static char peek(const checker *c) {
    return c->at < c->len ? c->text[c->at] : '\0';
}

static void check_spaces(checker *c) {
    while (is_space(peek(c))) {
        c->at++;
    }
}

static bool take(checker *c, char want) {
    if (peek(c) != want) {
        return false;
    }
    c->at++;
    return true;
}

/* The four digits behind \u. */
static tl_status check_hex4(checker *c, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_value(peek(c));
        if (digit < 0) {
            return refuse(c, c->at, "an escape without four hexadecimal digits");
        }
        *code = *code * 16 + (uint32_t)digit;
        c->at++;
    }
    return TL_OK;
}

static tl_status check_unicode_escape(checker *c, size_t start) {
    uint32_t code;
    TLI_TRY(check_hex4(c, &code));
    if (code == 0) {
        return refuse(c, start, "an escaped NUL");
    }
    if (code >= 0xdc00 && code <= 0xdfff) {
        return refuse(c, start, "a low surrogate alone");
    }
    if (code < 0xd800 || code > 0xdbff) {
        return TL_OK;
    }
    if (!take(c, '\\') || !take(c, 'u')) {
        return refuse(c, start, "a high surrogate alone");
    }
    TLI_TRY(check_hex4(c, &code));
    if (code < 0xdc00 || code > 0xdfff) {
        return refuse(c, start, "a high surrogate alone");
    }
    return TL_OK;
}

static tl_status check_string(checker *c) {
    if (!take(c, '"')) {
        return refuse(c, c->at, "no string where one must be");
    }
    while (!take(c, '"')) {
        const size_t start = c->at;
        const unsigned char byte = (unsigned char)peek(c);
        if (byte < 0x20) {
            return refuse(c, start,
                          start == c->len ? "a string that does not end"
                                          : "a control character in a string");
        }
        c->at++;
        if (byte != '\\') {
            continue;
        }
        const char letter = peek(c);
        if (letter == '\0' || strchr("\"\\/bfnrtu", letter) == NULL) {
            return refuse(c, start, "an escape that JSON does not have");
        }
        c->at++;
        if (letter == 'u') {
            TLI_TRY(check_unicode_escape(c, start));
        }
    }
    return TL_OK;
}

static bool take_digits(checker *c) {
    const size_t start = c->at;
    while (is_digit(peek(c))) {
        c->at++;
    }
    return c->at > start;
}

static tl_status check_number(checker *c) {
    const size_t start = c->at;
    (void)take(c, '-');
    bool good = take(c, '0') || take_digits(c);
    bool integer = true;
    if (good && take(c, '.')) {
        integer = false;
        good = take_digits(c);
    }
    if (good && (take(c, 'e') || take(c, 'E'))) {
        integer = false;
        (void)(take(c, '+') || take(c, '-'));
        good = take_digits(c);
    }
    /* What follows is part of the check: a number that is read back ends there. */
    const char end = peek(c);
    if (!good || end == '\0' || strchr(NUMBER_ENDS, end) == NULL) {
        return refuse(c, start, "no JSON value");
    }
    int64_t ignored;
    if (integer && !plain_json_int(c->text + start, &ignored)) {
        return refuse(c, start, "an integer outside int64");
    }
    if (!integer && !isfinite(plain_json_real(c->text + start))) {
        return refuse(c, start, "a number outside f64");
    }
    return TL_OK;
}

static tl_status check_word(checker *c, const char *word) {
    const size_t n = strlen(word);
    if (c->len - c->at < n || memcmp(c->text + c->at, word, n) != 0) {
        return refuse(c, c->at, "no JSON value");
    }
    c->at += n;
    return TL_OK;
}

/* No name stands twice in this object, which has been checked in every other way. */
static tl_status check_names(checker *c, size_t object, size_t n_names) {
    if (n_names < 2) {
        return TL_OK;
    }
    const char **names = tli_calloc(n_names, sizeof *names);
    if (names == NULL) {
        return tli_fail(c->err, TL_ERR_NOMEM, "no memory for %zu names", n_names);
    }
    plain_walk walk = plain_walk_of(c->text + object);
    for (size_t i = 0; i < n_names && plain_walk_next(&walk); i++) {
        names[i] = walk.key;
    }
    qsort(names, n_names, sizeof *names, compare_strings);
    tl_status status = TL_OK;
    for (size_t i = 1; i < n_names && status == TL_OK; i++) {
        if (compare_strings(&names[i - 1], &names[i]) == 0) {
            const uint64_t at = c->start + (uint64_t)(names[i] - c->text);
            status = tli_fail_at(c->err, TL_ERR_FORMAT, at, "%s: the keys %.*s and %.*s are one",
                                 c->what, plain_json_show(names[i - 1]), names[i - 1],
                                 plain_json_show(names[i]), names[i]);
        }
    }
    free(names);
    return status;
}

static tl_status check_value(checker *c, size_t depth);

static tl_status check_members(checker *c, size_t depth) {
    const size_t object = c->at - 1;
    size_t n_names = 0;
    check_spaces(c);
    if (take(c, '}')) {
        return TL_OK;
    }
    do {
        check_spaces(c);
        const size_t key = c->at;
        TLI_TRY(check_string(c));
        if (depth == 1) {
            c->member = c->text + key;
            c->member_nodes = 0;
        }
        check_spaces(c);
        if (!take(c, ':')) {
            return refuse(c, c->at, "no colon behind a key");
        }
        TLI_TRY(check_value(c, depth));
        n_names++;
    } while (take(c, ','));
    if (!take(c, '}')) {
        return refuse(c, c->at, "neither a comma nor the end of an object");
    }
    return check_names(c, object, n_names);
}

static tl_status check_elements(checker *c, size_t depth) {
    check_spaces(c);
    if (take(c, ']')) {
        return TL_OK;
    }
    do {
        TLI_TRY(check_value(c, depth));
    } while (take(c, ','));
    if (!take(c, ']')) {
        return refuse(c, c->at, "neither a comma nor the end of an array");
    }
    return TL_OK;
}

/* One value with the white space around it, inside `depth` levels. */
static tl_status check_value(checker *c, size_t depth) {
    check_spaces(c);
    c->nodes++;
    c->member_nodes++;
    if (c->nodes > c->limits->max_nodes || c->member_nodes > c->limits->max_member_nodes) {
        return refuse(c, c->at, "too many values");
    }
    const char first = peek(c);
    tl_status status;
    if ((first == '{' || first == '[') && depth == MAX_DEPTH) {
        return refuse(c, c->at, "a level past the 64th");
    }
    if (take(c, '{')) {
        status = check_members(c, depth + 1);
    } else if (take(c, '[')) {
        status = check_elements(c, depth + 1);
    } else if (first == '"') {
        status = check_string(c);
    } else if (first == 't' || first == 'f' || first == 'n') {
        status = check_word(c, first == 't' ? "true" : first == 'f' ? "false" : "null");
    } else {
        status = check_number(c);
    }
    check_spaces(c);
    return status;
}

tl_status plain_json_check(const char *text, size_t len, uint64_t at,
                           const plain_json_limits *limits, const char *what, tl_error *err) {
    checker c = {.text = text, .len = len, .start = at, .limits = limits, .what = what, .err = err};
    if (len > limits->max_bytes) {
        return tli_fail(err, TL_ERR_FORMAT, "%s has %zu bytes, at most %zu are allowed", what, len,
                        limits->max_bytes);
    }
    const size_t bad = plain_bad_byte(text, len);
    if (bad < len) {
        return refuse(&c, bad, text[bad] == '\0' ? "a NUL byte" : "a byte that is no UTF-8");
    }
    check_spaces(&c);
    if (peek(&c) != '{') {
        return refuse(&c, c.at, "no object (a byte-order mark is not allowed either)");
    }
    TLI_TRY(check_value(&c, 0));
    if (c.at < len) {
        return refuse(&c, c.at, "something behind the object");
    }
    return TL_OK;
}
