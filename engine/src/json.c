/* json.c: prove that bytes are JSON, then build jansson's values from them.
 *
 * The scan is a loop over tokens with one bit a level for what is open, so that hostile nesting
 * costs no stack. It gives the byte of every fault, which jansson does not.
 *
 * Why the grammar is proved here and not left to jansson's parser: inside it a refused malloc looks
 * like a syntax error, or worse: it collects each token in a buffer, goes on with a token cut short
 * where the buffer cannot grow, and then reads and writes past its end. So once the text is proved,
 * the tokens are walked again, jansson is asked for a value of each, and NULL is want of memory.
 *
 * Source: conformance/spec/config.md, config#json; conformance/spec/safetensors.md, rules 3 and
 * 4. */
#include "json.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

#define KEY_SHOWN 48   /* bytes of a key that a message quotes */
#define TOKEN_SHOWN 20 /* bytes of a wrong token that a message quotes */
#define LEVELS_MAX 64  /* bits of scan.objects */

/* ------------------------------------------------------------------ the scan */

typedef enum want {
    WANT_VALUE,
    WANT_VALUE_OR_END, /* after [ */
    WANT_KEY,
    WANT_KEY_OR_END, /* after { */
    WANT_COLON,
    WANT_COMMA_OR_END,
    WANT_NOTHING
} want;

typedef enum level_kind { LEVEL_ARRAY, LEVEL_OBJECT } level_kind;

typedef struct scan {
    const uint8_t *text;
    size_t n;
    size_t at;
    uint64_t base;
    const tli_json_limits *limits;
    const char *what;
    tl_error *err;
    want next;
    size_t depth;
    uint64_t objects; /* bit d: level d + 1 is an object */
    size_t n_nodes;
    size_t n_member_nodes;
    size_t n_members;
    size_t key_at, key_len; /* the last key of level 1, for messages; key_len 0 before the first */
} scan;

static tl_status refuse(const scan *s, size_t at, const char *fmt, ...) TLI_PRINTF(3, 4);

static tl_status refuse(const scan *s, size_t at, const char *fmt, ...) {
    char reason[128];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    const uint64_t byte = s->base + at;
    const char *text = n < 0 ? "" : reason;
    if (s->key_len == 0) {
        return tli_fail_at(s->err, TL_ERR_FORMAT, byte, "%s: %s at byte %llu", s->what, text,
                           (unsigned long long)byte);
    }
    const int shown = s->key_len < KEY_SHOWN ? (int)s->key_len : KEY_SHOWN;
    return tli_fail_at(s->err, TL_ERR_FORMAT, byte, "%s: %s at byte %llu, in %.*s", s->what, text,
                       (unsigned long long)byte, shown, (const char *)s->text + s->key_at);
}

/* Length of the UTF-8 sequence at p, 0 when it is none. n >= 1. */
static size_t utf8_sequence(const uint8_t *p, size_t n) {
    const uint8_t first = p[0];
    if (first < 0x80) {
        return 1;
    }
    const size_t length = first < 0xc2   ? 0
                          : first < 0xe0 ? 2
                          : first < 0xf0 ? 3
                          : first < 0xf5 ? 4
                                         : 0;
    if (length == 0 || length > n) {
        return 0;
    }
    /* Overlong forms, surrogates and what lies past U+10FFFF show in the second byte. */
    const uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

/* UTF-8 throughout and no NUL, before any token is looked at. */
static tl_status check_bytes(const scan *s) {
    size_t i = 0;
    while (i < s->n) {
        const uint8_t byte = s->text[i];
        if (byte == 0) {
            return refuse(s, i, "a NUL byte");
        }
        if (byte < 0x80) {
            i++;
            continue;
        }
        const size_t length = utf8_sequence(s->text + i, s->n - i);
        if (length == 0) {
            return refuse(s, i, "bytes that are no UTF-8 (0x%02x)", byte);
        }
        i += length;
    }
    return TL_OK;
}

static bool is_space(uint8_t c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_punctuation(char c) {
    return c == ',' || c == ':' || c == '{' || c == '}' || c == '[' || c == ']';
}

static bool is_digit(uint8_t c) {
    return c >= '0' && c <= '9';
}

/* The byte at `at`, or 0, which no token has inside, past the end. */
static uint8_t peek(const scan *s, size_t at) {
    return at < s->n ? s->text[at] : 0;
}

/* Value of the four hex digits at p, or -1. */
static int32_t hex4(const uint8_t *p) {
    int32_t value = 0;
    for (size_t i = 0; i < 4; i++) {
        const uint8_t c = p[i];
        const int digit = is_digit(c)            ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

static bool is_high_surrogate(int32_t unit) {
    return unit >= 0xd800 && unit <= 0xdbff;
}

static bool is_low_surrogate(int32_t unit) {
    return unit >= 0xdc00 && unit <= 0xdfff;
}

/* The unit of the \uXXXX at `at`, or -1 when there is none. */
static int32_t unicode_escape(const scan *s, size_t at) {
    if (s->n - at < 6 || s->text[at] != '\\' || s->text[at + 1] != 'u') {
        return -1;
    }
    return hex4(s->text + at + 2);
}

/* s->at is at a backslash. */
static tl_status scan_escape(scan *s) {
    const size_t at = s->at;
    const uint8_t kind = peek(s, at + 1);
    if (kind != 'u') {
        if (kind == 0 || strchr("\"\\/bfnrt", kind) == NULL) {
            return refuse(s, at, "an escape that JSON does not have");
        }
        s->at += 2;
        return TL_OK;
    }
    const int32_t unit = unicode_escape(s, at);
    if (unit < 0) {
        return refuse(s, at, "a \\u without four hex digits");
    }
    if (unit == 0) {
        return refuse(s, at, "an escaped NUL");
    }
    s->at += 6;
    if (is_low_surrogate(unit)) {
        return refuse(s, at, "a lone surrogate");
    }
    if (is_high_surrogate(unit)) {
        if (!is_low_surrogate(unicode_escape(s, s->at))) {
            return refuse(s, at, "a lone surrogate");
        }
        s->at += 6;
    }
    return TL_OK;
}

/* s->at is at a quote; leaves it behind the closing one. */
static tl_status scan_string(scan *s) {
    const size_t begin = s->at;
    s->at++;
    while (s->at < s->n) {
        const uint8_t c = s->text[s->at];
        if (c == '"') {
            s->at++;
            return TL_OK;
        }
        if (c == '\\') {
            TLI_TRY(scan_escape(s));
        } else if (c < 0x20) {
            return refuse(s, s->at, "a control byte (0x%02x) inside a string", c);
        } else {
            s->at++;
        }
    }
    return refuse(s, begin, "a string without an end");
}

static bool skip_digits(scan *s) {
    const size_t begin = s->at;
    while (is_digit(peek(s, s->at))) {
        s->at++;
    }
    return s->at > begin;
}

/* s->at is at a digit or a minus sign. What follows the number is the next token's business, and
 * after 0 no digit is a token that may stand there. */
static tl_status scan_number(scan *s) {
    const size_t begin = s->at;
    if (s->text[s->at] == '-') {
        s->at++;
    }
    bool whole = true;
    if (peek(s, s->at) == '0') {
        s->at++;
    } else {
        whole = skip_digits(s);
    }
    if (whole && peek(s, s->at) == '.') {
        s->at++;
        whole = skip_digits(s);
    }
    if (whole && (peek(s, s->at) == 'e' || peek(s, s->at) == 'E')) {
        s->at++;
        if (peek(s, s->at) == '+' || peek(s, s->at) == '-') {
            s->at++;
        }
        whole = skip_digits(s);
    }
    return whole ? TL_OK : refuse(s, begin, "a number that is not complete");
}

static tl_status refuse_token(const scan *s) {
    size_t n = 0;
    while (n < TOKEN_SHOWN && s->at + n < s->n && !is_space(s->text[s->at + n]) &&
           !is_punctuation((char)s->text[s->at + n])) {
        n++;
    }
    if (n == 0) {
        n = 1;
    }
    return refuse(s, s->at, "'%.*s' where JSON does not allow it", (int)n,
                  (const char *)s->text + s->at);
}

static tl_status scan_literal(scan *s) {
    static const char *const literals[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof literals / sizeof literals[0]; i++) {
        const size_t n = strlen(literals[i]);
        if (s->n - s->at >= n && memcmp(s->text + s->at, literals[i], n) == 0) {
            s->at += n;
            return TL_OK;
        }
    }
    return refuse_token(s);
}

static bool wants_value(const scan *s) {
    return s->next == WANT_VALUE || s->next == WANT_VALUE_OR_END;
}

static bool inside_object(const scan *s) {
    return s->depth > 0 && (s->objects >> (s->depth - 1) & 1u) != 0;
}

static tl_status add_node(scan *s) {
    s->n_nodes++;
    s->n_member_nodes++;
    if (s->n_nodes > s->limits->max_nodes) {
        return refuse(s, s->at, "more than %zu nodes", s->limits->max_nodes);
    }
    if (s->n_member_nodes > s->limits->max_member_nodes) {
        return refuse(s, s->at, "more than %zu nodes in one member", s->limits->max_member_nodes);
    }
    return TL_OK;
}

static void end_value(scan *s) {
    s->next = s->depth == 0 ? WANT_NOTHING : WANT_COMMA_OR_END;
}

static tl_status open_level(scan *s, level_kind kind) {
    if (!wants_value(s)) {
        return refuse_token(s);
    }
    TLI_TRY(add_node(s));
    if (s->depth == s->limits->max_depth) {
        return refuse(s, s->at, "more than %zu levels", s->limits->max_depth);
    }
    const bool is_object = kind == LEVEL_OBJECT;
    const uint64_t bit = UINT64_C(1) << s->depth;
    s->objects = is_object ? s->objects | bit : s->objects & ~bit;
    s->depth++;
    s->at++;
    s->next = is_object ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
    return TL_OK;
}

static tl_status close_level(scan *s, level_kind kind) {
    const bool is_object = kind == LEVEL_OBJECT;
    const want empty = is_object ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
    const bool may_end = s->next == WANT_COMMA_OR_END || s->next == empty;
    if (s->depth == 0 || inside_object(s) != is_object || !may_end) {
        return refuse_token(s);
    }
    s->depth--;
    s->at++;
    end_value(s);
    return TL_OK;
}

static tl_status scan_key(scan *s) {
    const size_t begin = s->at;
    if (s->depth == 1) {
        s->key_at = begin;
        s->key_len = 0;
        s->n_member_nodes = 0;
        s->n_members++;
    }
    TLI_TRY(scan_string(s));
    if (s->depth == 1) {
        s->key_len = s->at - begin;
    }
    s->next = WANT_COLON;
    return TL_OK;
}

static tl_status scan_scalar(scan *s) {
    const uint8_t c = s->text[s->at];
    if (!wants_value(s)) {
        return refuse_token(s);
    }
    TLI_TRY(add_node(s));
    TLI_TRY(c == '"' ? scan_string(s) : c == '-' || is_digit(c) ? scan_number(s) : scan_literal(s));
    end_value(s);
    return TL_OK;
}

static tl_status scan_separator(scan *s, want before, want after) {
    if (s->next != before) {
        return refuse_token(s);
    }
    s->at++;
    s->next = after;
    return TL_OK;
}

static tl_status scan_token(scan *s) {
    switch (s->text[s->at]) {
    case '{':
        return open_level(s, LEVEL_OBJECT);
    case '[':
        return open_level(s, LEVEL_ARRAY);
    case '}':
        return close_level(s, LEVEL_OBJECT);
    case ']':
        return close_level(s, LEVEL_ARRAY);
    case ':':
        return scan_separator(s, WANT_COLON, WANT_VALUE);
    case ',':
        return scan_separator(s, WANT_COMMA_OR_END, inside_object(s) ? WANT_KEY : WANT_VALUE);
    case '"':
        if (s->next == WANT_KEY || s->next == WANT_KEY_OR_END) {
            return scan_key(s);
        }
        return scan_scalar(s);
    default:
        return scan_scalar(s);
    }
}

static tl_status check_structure(scan *s) {
    while (s->at < s->n) {
        if (is_space(s->text[s->at])) {
            s->at++;
            continue;
        }
        if (s->depth == 0 && s->next == WANT_VALUE && s->text[s->at] != '{') {
            return refuse(s, s->at, "no object: the first byte is not '{'");
        }
        TLI_TRY(scan_token(s));
    }
    return s->next == WANT_NOTHING ? TL_OK : refuse(s, s->n, "the text ends too early");
}

tl_status tli_json_check(tli_json_span text, const tli_json_limits *limits, const char *what,
                         size_t *n_members, tl_error *err) {
    TLI_ASSERT(limits->max_depth >= 1 && limits->max_depth <= LEVELS_MAX);
    scan s = {.text = (const uint8_t *)text.text,
              .n = text.len,
              .base = text.at,
              .limits = limits,
              .what = what,
              .err = err,
              .next = WANT_VALUE};
    if (s.n > limits->max_bytes) {
        return tli_fail(err, TL_ERR_FORMAT, "%s: %zu bytes, at most %zu are allowed", what, s.n,
                        limits->max_bytes);
    }
    if (s.n >= 3 && memcmp(s.text, "\xef\xbb\xbf", 3) == 0) {
        return refuse(&s, 0, "a byte-order mark");
    }
    TLI_TRY(check_bytes(&s));
    TLI_TRY(check_structure(&s));
    *n_members = s.n_members;
    return TL_OK;
}

/* ------------------------------------------------------------------ walking a checked text */

static size_t skip_spaces(const char *text, size_t n, size_t at) {
    while (at < n && is_space((uint8_t)text[at])) {
        at++;
    }
    return at;
}

/* text[at] is a quote; returns the byte behind the closing one. */
static size_t skip_string(const char *text, size_t n, size_t at) {
    at++;
    while (at < n && text[at] != '"') {
        at += text[at] == '\\' ? 2 : 1;
    }
    return at + 1;
}

static size_t skip_scalar(const char *text, size_t n, size_t at) {
    while (at < n && !is_space((uint8_t)text[at]) && !is_punctuation(text[at])) {
        at++;
    }
    return at;
}

static size_t skip_container(const char *text, size_t n, size_t at) {
    size_t depth = 0;
    while (at < n) {
        const char c = text[at];
        if (c == '"') {
            at = skip_string(text, n, at);
            continue;
        }
        at++;
        if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            depth--;
            if (depth == 0) {
                break;
            }
        }
    }
    return at;
}

static size_t skip_value(const char *text, size_t n, size_t at) {
    const char c = text[at];
    if (c == '"') {
        return skip_string(text, n, at);
    }
    return c == '{' || c == '[' ? skip_container(text, n, at) : skip_scalar(text, n, at);
}

static tli_json_span subspan(tli_json_span whole, size_t begin, size_t end) {
    const tli_json_span part = {
        .text = whole.text + begin, .len = end - begin, .at = whole.at + begin};
    return part;
}

tli_json_walk tli_json_members(tli_json_span object) {
    const size_t brace = skip_spaces(object.text, object.len, 0);
    const tli_json_walk walk = {.object = object, .at = brace + 1};
    return walk;
}

bool tli_json_next(tli_json_walk *walk, tli_json_span *key, tli_json_span *value) {
    const char *text = walk->object.text;
    const size_t n = walk->object.len;
    size_t at = skip_spaces(text, n, walk->at);
    if (at < n && text[at] == ',') {
        at = skip_spaces(text, n, at + 1);
    }
    if (at >= n || text[at] != '"') {
        return false;
    }
    const size_t key_end = skip_string(text, n, at);
    *key = subspan(walk->object, at, key_end);
    at = skip_spaces(text, n, key_end) + 1; /* behind the colon */
    at = skip_spaces(text, n, at);
    walk->at = skip_value(text, n, at);
    *value = subspan(walk->object, at, walk->at);
    return true;
}

static size_t put_utf8(uint32_t point, char *dst) {
    if (point < 0x80) {
        dst[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        dst[0] = (char)(0xc0 | point >> 6);
        dst[1] = (char)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        dst[0] = (char)(0xe0 | point >> 12);
        dst[1] = (char)(0x80 | (point >> 6 & 0x3f));
        dst[2] = (char)(0x80 | (point & 0x3f));
        return 3;
    }
    dst[0] = (char)(0xf0 | point >> 18);
    dst[1] = (char)(0x80 | (point >> 12 & 0x3f));
    dst[2] = (char)(0x80 | (point >> 6 & 0x3f));
    dst[3] = (char)(0x80 | (point & 0x3f));
    return 4;
}

/* Unescape what starts with the backslash at src; *n_read bytes of src give the bytes written. */
static size_t decode_escape(const uint8_t *src, char *dst, size_t *n_read) {
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    if (src[1] != 'u') {
        *n_read = 2;
        dst[0] = meanings[strchr(letters, src[1]) - letters];
        return 1;
    }
    const int32_t unit = hex4(src + 2);
    if (!is_high_surrogate(unit)) {
        *n_read = 6;
        return put_utf8((uint32_t)unit, dst);
    }
    const int32_t low = hex4(src + 8);
    *n_read = 12;
    return put_utf8(0x10000u + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00), dst);
}

size_t tli_json_decode(tli_json_span string, char *dst) {
    const uint8_t *src = (const uint8_t *)string.text + 1;
    const uint8_t *end = (const uint8_t *)string.text + string.len - 1;
    size_t n = 0;
    while (src < end) {
        if (*src != '\\') {
            dst[n] = (char)*src;
            n++;
            src++;
            continue;
        }
        size_t n_read = 0;
        n += decode_escape(src, dst + n, &n_read);
        src += n_read;
    }
    dst[n] = '\0';
    return n;
}

/* ------------------------------------------------------------------ values */

/* A string value that is longer is read as an empty one: no value of that size means anything here.
 * Keys are never cut: whether two are equal would be lost. */
#define STRING_MAX ((size_t)64 * 1024)

/* Room for one token, unescaped. */
typedef struct room {
    char *bytes;
    size_t n;
} room;

typedef struct builder {
    tli_json_span text;
    size_t at; /* next byte to look at */
    room key, value;
    const char *what;
    tl_error *err;
} builder;

static tl_status no_memory(const builder *b) {
    return tli_fail(b->err, TL_ERR_NOMEM, "%s: no memory for its JSON", b->what);
}

/* What is wrong with the token that ends at b->at. */
static tl_status refuse_value(const builder *b, tli_json_span token, const char *reason) {
    const uint64_t byte = b->text.at + b->at;
    const int shown = token.len < KEY_SHOWN ? (int)token.len : KEY_SHOWN;
    return tli_fail_at(b->err, TL_ERR_FORMAT, byte, "%s: %s, %.*s, before byte %llu", b->what,
                       reason, shown, token.text, (unsigned long long)byte);
}

/* Make it hold n bytes; what was in it is lost. */
static bool want_room(room *r, size_t n) {
    if (r->bytes == NULL || n > r->n) {
        free(r->bytes);
        r->bytes = (char *)malloc(n);
        r->n = n;
    }
    return r->bytes != NULL;
}

/* The next string or scalar; b->at is behind it then. */
static tli_json_span take_token(builder *b) {
    const size_t begin = b->at;
    b->at = skip_value(b->text.text, b->text.len, begin);
    return subspan(b->text, begin, b->at);
}

/* The next byte that is no white space. */
static char look(builder *b) {
    b->at = skip_spaces(b->text.text, b->text.len, b->at);
    return b->text.text[b->at];
}

static tl_status decode_token(const builder *b, tli_json_span token, room *r) {
    if (!want_room(r, token.len)) {
        return no_memory(b);
    }
    (void)tli_json_decode(token, r->bytes);
    return TL_OK;
}

/* strtod in the C locale, whatever the program has set for itself; false without memory. */
static bool read_real(const char *text, double *x) {
    const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0) {
        return false;
    }
    const locale_t before = uselocale(c);
    *x = strtod(text, NULL);
    (void)uselocale(before);
    freelocale(c);
    return true;
}

static tl_status build_number(builder *b, tli_json_span token, json_t **out) {
    if (!want_room(&b->value, token.len + 1)) {
        return no_memory(b);
    }
    char *text = b->value.bytes;
    memcpy(text, token.text, token.len);
    text[token.len] = '\0';
    errno = 0;
    if (strpbrk(text, ".eE") == NULL) {
        const long long n = strtoll(text, NULL, 10);
        const bool fits = errno != ERANGE;
        *out = fits ? json_integer(n) : NULL;
        return fits ? TL_OK : refuse_value(b, token, "an integer past 64 bits");
    }
    double x = 0.0;
    *out = read_real(text, &x) ? json_real(x) : NULL;
    return isinf(x) ? refuse_value(b, token, "a number past the range of a double") : TL_OK;
}

/* Sets *out, to NULL when there is no memory. */
static tl_status build_scalar(builder *b, json_t **out) {
    const tli_json_span token = take_token(b);
    const char first = token.text[0];
    if (first == 't' || first == 'f' || first == 'n') {
        *out = first == 'n' ? json_null() : json_boolean(first == 't');
        return TL_OK;
    }
    if (first == '"') {
        const bool is_cut = token.len > STRING_MAX;
        TLI_TRY(is_cut ? TL_OK : decode_token(b, token, &b->value));
        *out = json_string_nocheck(is_cut ? "" : b->value.bytes);
        return TL_OK;
    }
    return build_number(b, token, out);
}

/* The key and the colon in front of a member's value. */
static tl_status take_key(builder *b, const json_t *object) {
    (void)look(b);
    const tli_json_span key = take_token(b);
    TLI_TRY(decode_token(b, key, &b->key));
    if (json_object_get(object, b->key.bytes) != NULL) {
        return refuse_value(b, key, "a duplicate key");
    }
    (void)look(b);
    b->at++;
    return TL_OK;
}

/* A container, or whatever else stands there. */
static tl_status begin_value(builder *b, json_t **out) {
    const char c = look(b);
    *out = NULL;
    if (c == '{' || c == '[') {
        b->at++;
        *out = c == '{' ? json_object() : json_array();
    } else {
        TLI_TRY(build_scalar(b, out));
    }
    return *out == NULL ? no_memory(b) : TL_OK;
}

/* One value into the container, and *added is it, borrowed. */
static tl_status add_value(builder *b, json_t *container, json_t **added) {
    const bool is_member = json_is_object(container);
    if (is_member) {
        TLI_TRY(take_key(b, container));
    }
    TLI_TRY(begin_value(b, added));
    const int failed = is_member ? json_object_set_new_nocheck(container, b->key.bytes, *added)
                                 : json_array_append_new(container, *added);
    return failed == 0 ? TL_OK : no_memory(b);
}

/* Fill the root and all that is in it, level by level. */
static tl_status fill(builder *b, json_t *root) {
    json_t *open[LEVELS_MAX] = {root};
    size_t depth = 1;
    while (depth > 0) {
        json_t *added = NULL;
        const char c = look(b);
        b->at += c == ',' || c == '}' || c == ']' ? 1 : 0;
        if (c == '}' || c == ']') {
            depth--;
            continue;
        }
        TLI_TRY(add_value(b, open[depth - 1], &added));
        if (json_is_object(added) || json_is_array(added)) {
            TLI_ASSERT(depth < LEVELS_MAX);
            open[depth++] = added;
        }
    }
    return TL_OK;
}

tl_status tli_json_load(json_t **out, tli_json_span value, const char *what, tl_error *err) {
    builder b = {.text = value, .what = what, .err = err};
    json_t *root = NULL;
    tl_status status = begin_value(&b, &root);
    if (status == TL_OK && (json_is_object(root) || json_is_array(root))) {
        status = fill(&b, root);
    }
    free(b.key.bytes);
    free(b.value.bytes);
    if (status != TL_OK) {
        json_decref(root);
    }
    *out = status == TL_OK ? root : NULL;
    return status;
}

/* Tell the error again with the member that it is in. */
static tl_status name_member(tli_json_span text, const char *what, tl_error *err) {
    tli_json_walk walk = tli_json_members(text);
    tli_json_span key = {0};
    tli_json_span value = {0};
    if (err == NULL || err->status != TL_ERR_FORMAT) {
        return TL_ERR_FORMAT;
    }
    while (tli_json_next(&walk, &key, &value)) {
        if (err->offset <= value.at + value.len) {
            const int shown = key.len < KEY_SHOWN ? (int)key.len : KEY_SHOWN;
            const char *reason = err->text + strlen(what) + 2;
            return tli_fail_at(err, TL_ERR_FORMAT, err->offset, "%s: %s, in %.*s", what, reason,
                               shown, key.text);
        }
    }
    return TL_ERR_FORMAT;
}

tl_status tli_json_object(json_t **out, tli_json_span text, const tli_json_limits *limits,
                          const char *what, tl_error *err) {
    size_t n_members = 0;
    *out = NULL;
    TLI_TRY(tli_json_check(text, limits, what, &n_members, err));
    const tl_status status = tli_json_load(out, text, what, err);
    return status == TL_ERR_FORMAT ? name_member(text, what, err) : status;
}
