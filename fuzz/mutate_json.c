/* mutate_json.c: changes on the level of JSON tokens and of a safetensors file; see fuzz.h.
 *
 * jansson is not instrumented, and a header whose length or offsets do not fit stops at the first
 * rule: bytes alone would seldom get past either. So most changes keep the text JSON and the rest
 * of the file in step with it, and some break exactly one of the two. The text is taken as it
 * comes: nothing here demands that it is valid. */
#include "fuzz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX 2048

/* s string, n number, w word (true, null, ...), or the sign itself. */
typedef struct token {
    size_t at, n;
    char kind;
} token;

bool fuzz_splice(fuzz_text *t, size_t at, size_t del, const char *bytes, size_t n) {
    if (at > t->n || del > t->n - at || t->n - del > t->cap || n > t->cap - (t->n - del)) {
        return false;
    }
    memmove(t->text + at + n, t->text + at + del, t->n - at - del);
    if (n > 0) {
        memcpy(t->text + at, bytes, n);
    }
    t->n = t->n - del + n;
    return true;
}

/* ------------------------------------------------------------------ tokens */

static size_t string_end(const fuzz_text *t, size_t at) {
    size_t i = at + 1;
    while (i < t->n && t->text[i] != '"') {
        i += t->text[i] == '\\' ? 2 : 1;
    }
    return i < t->n ? i + 1 : t->n;
}

static size_t run_end(const fuzz_text *t, size_t at) {
    size_t i = at + 1;
    while (i < t->n && strchr("{}[],:\" \t\r\n", t->text[i]) == NULL) {
        i++;
    }
    return i;
}

static size_t tokenize(const fuzz_text *t, token *tokens) {
    size_t n = 0;
    for (size_t i = 0; i < t->n && n < TOKENS_MAX;) {
        const char c = t->text[i];
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            i++;
            continue;
        }
        token *k = &tokens[n++];
        k->at = i;
        k->kind = c;
        if (c == '"') {
            k->kind = 's';
            i = string_end(t, i);
        } else if (c != '\0' && strchr("{}[],:", c) != NULL) {
            i++;
        } else {
            k->kind = c == '-' || (c >= '0' && c <= '9') ? 'n' : 'w';
            i = run_end(t, i);
        }
        k->n = i - k->at;
    }
    return n;
}

/* The token after the value that starts at i. */
static size_t value_end(const token *tokens, size_t n, size_t i) {
    size_t depth = 0;
    for (; i < n; i++) {
        const char kind = tokens[i].kind;
        depth += kind == '{' || kind == '[' ? 1 : 0;
        if (kind == '}' || kind == ']') {
            if (depth == 0) {
                return i;
            }
            depth--;
        }
        if (depth == 0) {
            return i + 1;
        }
    }
    return n;
}

static bool starts_value(const token *tokens, size_t n, size_t i) {
    return i < n && strchr("snw{[", tokens[i].kind) != NULL;
}

static bool is_key(const token *tokens, size_t n, size_t i) {
    return tokens[i].kind == 's' && i + 1 < n && tokens[i + 1].kind == ':';
}

/* A token of these kinds, SIZE_MAX when there is none. */
static size_t choose(const token *tokens, size_t n, const char *kinds, fuzz_rng *rng) {
    const size_t start = fuzz_below(rng, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        const size_t j = (start + i) % n;
        if (strchr(kinds, tokens[j].kind) != NULL) {
            return j;
        }
    }
    return SIZE_MAX;
}

/* ------------------------------------------------------------------ single changes */

static size_t new_number(const fuzz_text *t, const token *tokens, size_t n, const token *old,
                         char text[64], fuzz_rng *rng) {
    static const char *const edges[] = {"0",
                                        "1",
                                        "2",
                                        "-1",
                                        "-0",
                                        "3",
                                        "4",
                                        "7",
                                        "8",
                                        "16",
                                        "32",
                                        "63",
                                        "64",
                                        "65",
                                        "255",
                                        "256",
                                        "65535",
                                        "65536",
                                        "16777216",
                                        "16777217",
                                        "2147483647",
                                        "2147483648",
                                        "4294967295",
                                        "4294967296",
                                        "9007199254740993",
                                        "4611686018427387904",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "-9223372036854775808",
                                        "-9223372036854775809",
                                        "2.0",
                                        "1e3",
                                        "1.5",
                                        "1e308",
                                        "1e309",
                                        "1e-308",
                                        "1e-400",
                                        "1e-45",
                                        "3.5e38",
                                        "0.0",
                                        "-0.0",
                                        "00",
                                        "1.",
                                        ".5",
                                        "+1",
                                        "1e",
                                        "0x10"};
    const size_t other = choose(tokens, n, "n", rng);
    const int64_t mine = strtoll(t->text + old->at, NULL, 10);
    const int64_t its = other == SIZE_MAX ? 0 : strtoll(t->text + tokens[other].at, NULL, 10);
    const uint64_t a = (uint64_t)mine;
    const uint64_t b = (uint64_t)its;
    switch (fuzz_below(rng, 7)) {
    case 0:
        return (size_t)snprintf(text, 64, "%" PRId64, (int64_t)(a + 1));
    case 1:
        return (size_t)snprintf(text, 64, "%" PRId64, (int64_t)(a - 1));
    case 2:
        return (size_t)snprintf(text, 64, "%" PRId64, (int64_t)(a + b));
    case 3:
        return (size_t)snprintf(text, 64, "%" PRId64, (int64_t)(b - a));
    case 4:
        return (size_t)snprintf(text, 64, "%" PRId64, its);
    case 5:
        return (size_t)snprintf(text, 64, "%" PRIu64,
                                (UINT64_C(1) << fuzz_below(rng, 64)) - fuzz_below(rng, 2));
    default:
        return (size_t)snprintf(text, 64, "%s",
                                edges[fuzz_below(rng, sizeof edges / sizeof *edges)]);
    }
}

static void change_number(fuzz_text *t, const token *tokens, size_t n, fuzz_rng *rng) {
    char text[64];
    const size_t i = choose(tokens, n, "n", rng);
    if (i != SIZE_MAX) {
        /* strtoll stops at a sign of the text, or at this NUL when the number ends it. */
        const size_t n_text = new_number(t, tokens, n, &tokens[i], text, rng);
        (void)fuzz_splice(t, tokens[i].at, tokens[i].n, text, n_text);
    }
}

static size_t random_word(char text[128], const char *const *words, fuzz_rng *rng) {
    size_t n_words = 0;
    while (words[n_words] != NULL) {
        n_words++;
    }
    return (size_t)snprintf(text, 128, "\"%.100s\"", words[fuzz_below(rng, (uint32_t)n_words)]);
}

static void change_string(fuzz_text *t, const token *tokens, size_t n, const char *const *words,
                          fuzz_rng *rng) {
    char text[128];
    const size_t i = choose(tokens, n, "s", rng);
    const size_t other = choose(tokens, n, "s", rng);
    if (i == SIZE_MAX) {
        return;
    }
    if (fuzz_chance(rng, 3)) {
        char *copy = fuzz_copy(t->text + tokens[other].at, tokens[other].n);
        (void)fuzz_splice(t, tokens[i].at, tokens[i].n, copy, tokens[other].n);
        free(copy);
    } else {
        const size_t n_text = random_word(text, words, rng);
        (void)fuzz_splice(t, tokens[i].at, tokens[i].n, text, n_text);
    }
}

/* Inside a string: a character as its escape, an escape of every kind, a byte that is no text. */
static void change_inside(fuzz_text *t, const token *tokens, size_t n, fuzz_rng *rng) {
    static const char *const pieces[] = {"\\u0000",      "\\ud800",
                                         "\\udc00",      "\\ud83d\\ude00",
                                         "\\n",          "\\/",
                                         "\\\"",         "\\\\",
                                         "\\x",          "\\u12",
                                         "\xc3\xa9",     "\xc0\x80",
                                         "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                         "\xff",         "\xe2\x82",
                                         "\x7f",         "\t",
                                         "\\u0041",      "\xf0\x9f\x98\x80"};
    char text[16];
    const size_t i = choose(tokens, n, "s", rng);
    if (i == SIZE_MAX || tokens[i].n < 2) {
        return;
    }
    const size_t at = tokens[i].at + 1 + fuzz_below(rng, (uint32_t)(tokens[i].n - 1));
    if (fuzz_chance(rng, 2)) {
        const unsigned c = (unsigned char)t->text[at];
        (void)snprintf(text, sizeof text, "\\u%04x", c);
        (void)fuzz_splice(t, at, c == '"' ? 0 : 1, text, 6);
    } else {
        const char *piece = pieces[fuzz_below(rng, sizeof pieces / sizeof *pieces)];
        (void)fuzz_splice(t, at, 0, piece, strlen(piece));
    }
}

static void change_value(fuzz_text *t, const token *tokens, size_t n, fuzz_rng *rng) {
    static const char *const values[] = {
        "null", "true",      "false",   "[]",  "{}",  "\"\"",     "0",   "[0,0]", "[0]",
        "[[]]", "{\"a\":1}", "[1,2,3]", "1.0", "NaN", "Infinity", "nul", "'a'",   ""};
    size_t i = choose(tokens, n, "snw{[", rng);
    if (i == SIZE_MAX) {
        return;
    }
    i += is_key(tokens, n, i) && i + 2 < n ? 2 : 0;
    const size_t end = value_end(tokens, n, i);
    const char *value = values[fuzz_below(rng, sizeof values / sizeof *values)];
    if (end > i && starts_value(tokens, n, i)) {
        const size_t at = tokens[i].at;
        const size_t del = tokens[end - 1].at + tokens[end - 1].n - at;
        (void)fuzz_splice(t, at, del, value, strlen(value));
    }
}

/* The bytes of a member or an element: a key with its value, or a value. */
static bool item_span(const token *tokens, size_t n, size_t i, size_t *at, size_t *len) {
    size_t value = is_key(tokens, n, i) ? i + 2 : i;
    if (value >= n || !starts_value(tokens, n, value)) {
        return false;
    }
    const size_t end = value_end(tokens, n, value);
    *at = tokens[i].at;
    *len = end > value ? tokens[end - 1].at + tokens[end - 1].n - *at : 0;
    return *len > 0;
}

static void delete_item(fuzz_text *t, const token *tokens, size_t n, fuzz_rng *rng) {
    const size_t i = choose(tokens, n, "s{[n", rng);
    size_t at = 0;
    size_t len = 0;
    if (i == SIZE_MAX || !item_span(tokens, n, i, &at, &len)) {
        return;
    }
    /* The comma goes along, mostly. */
    if (!fuzz_chance(rng, 8)) {
        const size_t after = at + len;
        if (after < t->n && t->text[after] == ',') {
            len++;
        } else if (at > 0 && t->text[at - 1] == ',') {
            at--;
            len++;
        }
    }
    (void)fuzz_splice(t, at, len, "", 0);
}

/* A copy of one item in front of another. */
static void copy_item(fuzz_text *t, const token *tokens, size_t n, fuzz_rng *rng) {
    const size_t i = choose(tokens, n, "s{[n", rng);
    const size_t j = choose(tokens, n, "s{[n", rng);
    size_t at = 0;
    size_t len = 0;
    if (i == SIZE_MAX || !item_span(tokens, n, i, &at, &len) || len > 4096) {
        return;
    }
    char *copy = fuzz_alloc(len + 1);
    memcpy(copy, t->text + at, len);
    copy[len] = ',';
    (void)fuzz_splice(t, fuzz_chance(rng, 2) ? at : tokens[j].at, 0, copy, len + 1);
    free(copy);
}

static void add_member(fuzz_text *t, const token *tokens, size_t n, const char *const *words,
                       fuzz_rng *rng) {
    static const char *const values[] = {"null",
                                         "true",
                                         "false",
                                         "0",
                                         "1",
                                         "1.0",
                                         "\"default\"",
                                         "{}",
                                         "[]",
                                         "[0]",
                                         "{\"rope_type\":\"default\"}",
                                         "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                                         "{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}",
                                         "{\"quant\":\"int4-g2-sym\"}",
                                         "\"silu\"",
                                         "{\"rope_theta\":10000.0}",
                                         "[\"full_attention\"]"};
    char word[128];
    char text[256];
    const size_t i = choose(tokens, n, "{", rng);
    if (i == SIZE_MAX) {
        return;
    }
    const bool is_empty = i + 1 < n && tokens[i + 1].kind == '}';
    (void)random_word(word, words, rng);
    const int len =
        snprintf(text, sizeof text, "%s:%s%s", word,
                 values[fuzz_below(rng, sizeof values / sizeof *values)], is_empty ? "" : ",");
    (void)fuzz_splice(t, tokens[i].at + 1, 0, text, (size_t)len);
}

/* Wrap a value into lists, so that depth is reached from both sides of 64. */
static void nest(fuzz_text *t, const token *tokens, size_t n, fuzz_rng *rng) {
    char brackets[80];
    const size_t i = choose(tokens, n, "nw", rng);
    const size_t depth = fuzz_chance(rng, 2) ? 1 + fuzz_below(rng, 3) : 58 + fuzz_below(rng, 10);
    if (i == SIZE_MAX) {
        return;
    }
    const size_t after = tokens[i].at + tokens[i].n;
    memset(brackets, ']', depth);
    if (fuzz_splice(t, after, 0, brackets, depth)) {
        memset(brackets, '[', depth);
        (void)fuzz_splice(t, tokens[i].at, 0, brackets, depth);
    }
}

static void raw_bytes(fuzz_text *t, fuzz_rng *rng) {
    static const char *const pieces[] = {
        " ", "  ", "\n",    "\t", "\r",           ",",  ":", "}", "{", "]",
        "[", "\"", "/* */", "//", "\xef\xbb\xbf", "\f", "#", "{}"};
    const size_t at = fuzz_chance(rng, 3) ? t->n : fuzz_below(rng, (uint32_t)t->n + 1);
    if (fuzz_chance(rng, 6)) {
        (void)fuzz_splice(t, at, 0, "\0", 1);
    } else if (fuzz_chance(rng, 6) && at < t->n) {
        (void)fuzz_splice(t, at, 1, "", 0);
    } else {
        const char *piece = pieces[fuzz_below(rng, sizeof pieces / sizeof *pieces)];
        (void)fuzz_splice(t, at, 0, piece, strlen(piece));
    }
}

void fuzz_mutate_json(fuzz_text *t, const char *const *words, fuzz_rng *rng) {
    token *tokens = fuzz_alloc(TOKENS_MAX * sizeof *tokens);
    /* A NUL behind the text, which strtoll needs; the text may be as long as its buffer. */
    char *ended = fuzz_alloc(t->cap + 1);
    memcpy(ended, t->text, t->n);
    fuzz_text work = {.text = ended, .n = t->n, .cap = t->cap};
    const size_t n = tokenize(&work, tokens);
    const uint32_t what = n == 0 ? 10 : fuzz_below(rng, 11);
    switch (what) {
    case 0:
    case 1:
        change_number(&work, tokens, n, rng);
        break;
    case 2:
        change_string(&work, tokens, n, words, rng);
        break;
    case 3:
        change_inside(&work, tokens, n, rng);
        break;
    case 4:
        change_value(&work, tokens, n, rng);
        break;
    case 5:
        delete_item(&work, tokens, n, rng);
        break;
    case 6:
        copy_item(&work, tokens, n, rng);
        break;
    case 7:
    case 8:
        add_member(&work, tokens, n, words, rng);
        break;
    case 9:
        nest(&work, tokens, n, rng);
        break;
    default:
        raw_bytes(&work, rng);
    }
    memcpy(t->text, work.text, work.n);
    t->n = work.n;
    free(ended);
    free(tokens);
}

/* ------------------------------------------------------------------ safetensors */

static bool token_is(const fuzz_text *t, const token *k, const char *word) {
    const size_t n = strlen(word);
    return k->n == n + 2 && memcmp(t->text + k->at + 1, word, n) == 0;
}

static uint64_t dtype_bits(const fuzz_text *t, const token *k) {
    static const struct {
        const char *name;
        uint64_t bits;
    } table[] = {{"F32", 32}, {"F16", 16}, {"BF16", 16}, {"U8", 8},      {"I8", 8},     {"BOOL", 8},
                 {"F64", 64}, {"I64", 64}, {"U64", 64},  {"C64", 64},    {"I32", 32},   {"U32", 32},
                 {"I16", 16}, {"U16", 16}, {"F4", 4},    {"F6_E2M3", 6}, {"F6_E3M2", 6}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (token_is(t, k, table[i].name)) {
            return table[i].bits;
        }
    }
    return 8;
}

#define BYTES_SANE (UINT64_C(1) << 16)

/* Elements of the shape whose list starts at token i; 0 when that is no sensible number. */
static uint64_t shape_elements(const fuzz_text *t, const token *tokens, size_t n, size_t i) {
    uint64_t product = 1;
    for (i++; i < n && tokens[i].kind != ']'; i++) {
        if (tokens[i].kind == 'n') {
            const long long dim = strtoll(t->text + tokens[i].at, NULL, 10);
            if (dim < 0 || (uint64_t)dim > BYTES_SANE || product > BYTES_SANE) {
                return 0;
            }
            product *= (uint64_t)dim;
        }
    }
    return product > BYTES_SANE ? 0 : product;
}

typedef struct range {
    size_t at, n; /* of the list's text */
    uint64_t size;
} range;

#define RANGES_MAX 128

/* The ranges of all entries, in their order. Keys at depth 2 belong to an entry. */
static size_t find_ranges(const fuzz_text *t, const token *tokens, size_t n, range *ranges) {
    size_t depth = 0;
    size_t n_ranges = 0;
    uint64_t bits = 8;
    uint64_t elements = 0;
    size_t list = SIZE_MAX;
    for (size_t i = 0; i < n && n_ranges < RANGES_MAX; i++) {
        const char kind = tokens[i].kind;
        depth += kind == '{' ? 1 : 0;
        if (kind == '{' && depth == 2) {
            bits = 8;
            elements = 0;
            list = SIZE_MAX;
        }
        if (kind == '}' && depth == 2 && list != SIZE_MAX) {
            const size_t end = value_end(tokens, n, list);
            const size_t at = tokens[list].at;
            ranges[n_ranges++] =
                (range){at, tokens[end - 1].at + tokens[end - 1].n - at, elements * bits / 8};
        }
        depth -= kind == '}' && depth > 0 ? 1 : 0;
        if (depth == 2 && is_key(tokens, n, i) && i + 2 < n) {
            bits = token_is(t, &tokens[i], "dtype") ? dtype_bits(t, &tokens[i + 2]) : bits;
            if (tokens[i + 2].kind == '[' && token_is(t, &tokens[i], "shape")) {
                elements = shape_elements(t, tokens, n, i + 2);
            }
            if (tokens[i + 2].kind == '[' && token_is(t, &tokens[i], "data_offsets")) {
                list = i + 2;
            }
        }
    }
    return n_ranges;
}

uint64_t fuzz_retile(fuzz_text *header) {
    token *tokens = fuzz_alloc(TOKENS_MAX * sizeof *tokens);
    range ranges[RANGES_MAX];
    char *ended = fuzz_alloc(header->n + 1);
    memcpy(ended, header->text, header->n);
    const fuzz_text text = {.text = ended, .n = header->n, .cap = header->n};
    const size_t n = tokenize(&text, tokens);
    const size_t n_ranges = find_ranges(&text, tokens, n, ranges);
    uint64_t total = 0;
    for (size_t i = 0; i < n_ranges; i++) {
        total += ranges[i].size;
    }
    uint64_t end = total;
    for (size_t i = n_ranges; i-- > 0;) { /* from the back, so that positions stay */
        char list[64];
        const int len =
            snprintf(list, sizeof list, "[%" PRIu64 ",%" PRIu64 "]", end - ranges[i].size, end);
        (void)fuzz_splice(header, ranges[i].at, ranges[i].n, list, (size_t)len);
        end -= ranges[i].size;
    }
    free(ended);
    free(tokens);
    return total;
}

static uint64_t load_length(const uint8_t *data) {
    uint64_t n = 0;
    for (unsigned i = 0; i < 8; i++) {
        n |= (uint64_t)data[i] << (8 * i);
    }
    return n;
}

/* A length that is wrong: near the right one, near the file's size, or at an edge. */
static uint64_t broken_length(uint64_t n_header, uint64_t n_file, fuzz_rng *rng) {
    static const uint64_t edges[] = {0,
                                     1,
                                     UINT64_C(1) << 31,
                                     UINT64_C(1) << 32,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX,
                                     UINT64_MAX - 7,
                                     100000000,
                                     100000001,
                                     UINT64_MAX - 8};
    switch (fuzz_below(rng, 4)) {
    case 0:
        return n_header + 1;
    case 1:
        return n_header - 1;
    case 2:
        return n_file - 8 + fuzz_below(rng, 3) - 1;
    default:
        return edges[fuzz_below(rng, sizeof edges / sizeof *edges)];
    }
}

size_t fuzz_mutate_safetensors(uint8_t *data, size_t n, size_t cap, fuzz_rng *rng) {
    static const char minimal[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    if (cap < 128) {
        return n;
    }
    const bool is_file = n >= 8 && load_length(data) <= n - 8;
    const size_t n_header = is_file ? (size_t)load_length(data) : n >= 8 ? n - 8 : 0;
    fuzz_text header = {.text = fuzz_alloc(cap - 8), .n = n_header, .cap = cap - 8};
    size_t n_data = n >= 8 ? n - 8 - n_header : 0;
    uint8_t *bytes = fuzz_copy(data + (n >= 8 ? 8 + n_header : 0), n_data);
    if (n >= 8) {
        memcpy(header.text, data + 8, n_header);
    } else {
        (void)fuzz_splice(&header, 0, header.n, minimal, sizeof minimal - 1);
    }
    for (uint32_t i = fuzz_below(rng, 3) + 1; i > 0; i--) {
        fuzz_mutate_json(&header, fuzz_words_safetensors, rng);
    }
    size_t wanted = n_data;
    if (!fuzz_chance(rng, 4)) {
        wanted = (size_t)fuzz_retile(&header);
    }
    wanted += fuzz_chance(rng, 16) ? 1 : 0;
    wanted -= wanted > 0 && fuzz_chance(rng, 16) ? 1 : 0;
    const size_t room = cap - 8 - header.n;
    wanted = wanted < room ? wanted : room;
    memcpy(data + 8, header.text, header.n);
    for (size_t i = 0; i < wanted; i++) {
        data[8 + header.n + i] = i < n_data ? bytes[i] : (uint8_t)(i * 31 + 7);
    }
    const size_t n_file = 8 + header.n + wanted;
    const uint64_t length = fuzz_chance(rng, 16) ? broken_length(header.n, n_file, rng) : header.n;
    for (unsigned i = 0; i < 8; i++) {
        data[i] = (uint8_t)(length >> (8 * i));
    }
    free(header.text);
    free(bytes);
    return n_file;
}
