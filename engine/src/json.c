/* json.c: prove that bytes are JSON, then let jansson build the values.
 *
 * The scan is a loop over tokens with one bit a level for what is open, so that hostile nesting
 * costs no stack. It gives the byte of every fault, which jansson does not.
 *
 * Why it proves the grammar too and not only what jansson misses: inside jansson a refused
 * malloc looks like a syntax error. Once the grammar is proved, a failure of jansson that is
 * neither a duplicate key nor a number out of range can only be memory.
 *
 * Source: conformance/spec/config.md, config#json; conformance/spec/safetensors.md, rules 3 and
 * 4. */
#include "json.h"

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

/* ------------------------------------------------------------------ jansson */

/* jansson collects each token in a buffer of 16 bytes that grows, and where it cannot grow the
 * byte is dropped without a word: a number or a name would be read that nobody wrote. So a text
 * that has a longer token goes in as [PAD, text], with a string for PAD that is longer than its
 * longest token. Growing for the pad makes the room for every later token, and a pad that comes
 * back shorter tells that memory was refused. */
#define JANSSON_ROOM 15
#define PAD_OPEN "[\""
#define PAD_CLOSE "\","
#define PAD_END "]"
#define EMPTY_STRING "\"\""

/* A string value that is longer is read as an empty one: no value of that size means anything here,
 * and jansson would take several times its size for it. */
#define STRING_MAX ((size_t)64 * 1024)

/* The next string, number or literal from *at on. */
static bool next_token(tli_json_span value, size_t *at, tli_json_span *token) {
    size_t begin = *at;
    while (begin < value.len &&
           (is_space((uint8_t)value.text[begin]) || is_punctuation(value.text[begin]))) {
        begin++;
    }
    if (begin == value.len) {
        return false;
    }
    *at = value.text[begin] == '"' ? skip_string(value.text, value.len, begin)
                                   : skip_scalar(value.text, value.len, begin);
    *token = subspan(value, begin, *at);
    return true;
}

/* `at` is the byte behind the token. Keys are never cut: whether two are equal would be lost. */
static bool is_cut(tli_json_span value, tli_json_span token, size_t at) {
    if (token.len <= STRING_MAX || token.text[0] != '"') {
        return false;
    }
    const size_t next = skip_spaces(value.text, value.len, at);
    const bool is_key = next < value.len && value.text[next] == ':';
    return !is_key;
}

static size_t longest_token(tli_json_span value) {
    size_t longest = 0;
    size_t at = 0;
    tli_json_span token = {0};
    while (next_token(value, &at, &token)) {
        if (token.len > longest && !is_cut(value, token, at)) {
            longest = token.len;
        }
    }
    return longest;
}

#define FEED_PARTS 5
#define FEED_BODY 3 /* the part that is refilled until the text is used up */

typedef struct feed {
    const char *parts[FEED_PARTS]; /* NULL: that many letters */
    size_t left[FEED_PARTS];
    tli_json_span rest; /* of the text */
    size_t n_cut;       /* strings that were */
    bool is_at_cut;     /* rest starts with a string that goes in as an empty one */
} feed;

static void refill_body(feed *f) {
    if (f->is_at_cut) {
        f->parts[FEED_BODY] = EMPTY_STRING;
        f->left[FEED_BODY] = strlen(EMPTY_STRING);
        f->rest = subspan(f->rest, skip_string(f->rest.text, f->rest.len, 0), f->rest.len);
        f->is_at_cut = false;
        f->n_cut++;
        return;
    }
    size_t at = 0;
    size_t end = f->rest.len;
    tli_json_span token = {0};
    while (!f->is_at_cut && next_token(f->rest, &at, &token)) {
        f->is_at_cut = is_cut(f->rest, token, at);
        end = f->is_at_cut ? at - token.len : f->rest.len;
    }
    f->parts[FEED_BODY] = f->rest.text;
    f->left[FEED_BODY] = end;
    f->rest = subspan(f->rest, end, f->rest.len);
}

static size_t feed_jansson(void *buffer, size_t n_room, void *data) {
    feed *f = (feed *)data;
    for (size_t i = 0; i < FEED_PARTS; i++) {
        while (i == FEED_BODY && f->left[i] == 0 && f->rest.len > 0) {
            refill_body(f);
        }
        const size_t n = f->left[i] < n_room ? f->left[i] : n_room;
        if (n == 0) {
            continue;
        }
        f->left[i] -= n;
        if (f->parts[i] == NULL) {
            memset(buffer, 'x', n);
        } else {
            memcpy(buffer, f->parts[i], n);
            f->parts[i] += n;
        }
        return n;
    }
    return 0;
}

/* NULL without a word in *error: memory. *n_before is what jansson's positions count too much, or
 * SIZE_MAX when they tell nothing. */
static json_t *load_padded(tli_json_span value, size_t n_pad, json_error_t *error,
                           size_t *n_before) {
    feed f = {.parts = {PAD_OPEN, NULL, PAD_CLOSE, NULL, PAD_END},
              .left = {strlen(PAD_OPEN), n_pad, strlen(PAD_CLOSE), 0, strlen(PAD_END)},
              .rest = value};
    json_t *pair = json_load_callback(feed_jansson, &f, JSON_REJECT_DUPLICATES, error);
    *n_before = f.n_cut > 0 ? SIZE_MAX : strlen(PAD_OPEN) + n_pad + strlen(PAD_CLOSE);
    if (pair == NULL) {
        return NULL;
    }
    json_t *loaded = NULL;
    if (json_string_length(json_array_get(pair, 0)) == n_pad) {
        loaded = json_incref(json_array_get(pair, 1));
    }
    json_decref(pair);
    return loaded;
}

tl_status tli_json_load(json_t **out, tli_json_span value, const char *what, tl_error *err) {
    json_error_t error;
    memset(&error, 0, sizeof error);
    const size_t longest = longest_token(value);
    const bool fits = longest <= JANSSON_ROOM && value.len <= STRING_MAX;
    size_t n_before = 0;
    *out = fits
               ? json_loadb(value.text, value.len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error)
               : load_padded(value, longest, &error, &n_before);
    if (*out != NULL) {
        return TL_OK;
    }
    const enum json_error_code code = json_error_code(&error);
    const bool is_format = error.text[0] != '\0' && (code == json_error_duplicate_key ||
                                                     code == json_error_numeric_overflow);
    if (!is_format) {
        return tli_fail(err, TL_ERR_NOMEM, "%s: no memory for its JSON", what);
    }
    /* jansson points behind the token. */
    const size_t position = error.position < 0 ? 0 : (size_t)error.position;
    const uint64_t at = value.at + (position > n_before ? position - n_before : 0);
    return tli_fail_at(err, TL_ERR_FORMAT, at, "%s: %s before byte %llu", what, error.text,
                       (unsigned long long)at);
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
