/* terms.c: find names and numbers in a sentence; see terms.h. */
#include "terms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TERM_MOST 256 /* a longer one is cut, and then not found */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Bytes of UTF-8 are no part of a numeral, so that signs like the multiplication cross end one. */
static bool joins_numeral(char c) {
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool joins_name(char c) {
    return joins_numeral(c) || (unsigned char)c >= 0x80;
}

/* ------------------------------------------------------------------ names */

static bool has_name(const char *sentence, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = strstr(sentence, name); at != NULL; at = strstr(at + 1, name)) {
        const bool cut_before = at != sentence && joins_name(at[-1]) && joins_name(at[0]);
        const bool cut_behind = joins_name(at[n - 1]) && joins_name(at[n]);
        if (!cut_before && !cut_behind) {
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------ numbers */

/* Length of the numeral that begins here, 0 if none does. */
static size_t numeral(const char *at, double *value) {
    if (*at == '\0' || strchr("+-.0123456789iInN", *at) == NULL) {
        return 0;
    }
    char *end = NULL;
    *value = strtod(at, &end);
    const size_t n = (size_t)(end - at);
    return n > 1 && end[-1] == '.' ? n - 1 : n; /* the end of a sentence, the dots of `-8..7` */
}

/* `2x6` is two numerals. */
static bool is_cross(const char *at) {
    return (*at == 'x' || *at == 'X') && is_digit(at[1]);
}

/* A numeral is not the end of a word, of a number, or of a name with dots. */
static bool may_begin(const char *sentence, const char *at) {
    if (at == sentence) {
        return true;
    }
    const char before = at[-1];
    const bool has_two = at - sentence >= 2;
    if (before == '.') {
        return !has_two || !joins_numeral(at[-2]);
    }
    return !joins_numeral(before) || (is_cross(at - 1) && has_two && is_digit(at[-2]));
}

static bool may_end(const char *end) {
    return *end == '.' ? !joins_numeral(end[1]) : !joins_numeral(*end) || is_cross(end);
}

static bool has_number(const char *sentence, double wanted) {
    const char *at = sentence;
    while (*at != '\0') {
        double value = 0;
        const size_t n = may_begin(sentence, at) ? numeral(at, &value) : 0;
        if (n > 0 && may_end(at + n) && (value == wanted || (isnan(value) && isnan(wanted)))) {
            return true;
        }
        at += n > 0 ? n : 1;
    }
    return false;
}

/* ------------------------------------------------------------------ terms */

/* Cut the next piece off *at, up to `mark` or the end. false: there is none. */
static bool next_piece(const char **at, char mark, char piece[TERM_MOST]) {
    *at += strspn(*at, (char[]){mark, '\0'});
    const size_t n = strcspn(*at, (char[]){mark, '\0'});
    (void)snprintf(piece, TERM_MOST, "%.*s", (int)n, *at);
    *at += n;
    return n > 0;
}

static bool has_term(const char *sentence, const char *term) {
    char one[TERM_MOST];
    while (next_piece(&term, '|', one)) {
        double value = 0;
        const size_t n = numeral(one, &value);
        if (n > 0 && one[n] == '\0' ? has_number(sentence, value) : has_name(sentence, one)) {
            return true;
        }
    }
    return false;
}

static void append(char *text, size_t cap, const char *between, const char *term) {
    const size_t len = strlen(text);
    (void)snprintf(text + len, cap - len, "%s", between);
    char one[TERM_MOST];
    char before[TERM_MOST] = "";
    for (const char *mark = ""; next_piece(&term, '|', one); mark = " or ") {
        const size_t so_far = strlen(text);
        if (strcmp(one, before) != 0) {
            (void)snprintf(text + so_far, cap - so_far, "%s`%s`", mark, one);
        }
        (void)snprintf(before, sizeof before, "%s", one);
    }
}

bool ol_names(const char *sentence, const char *terms, char *why, size_t cap) {
    char term[TERM_MOST];
    char wrong[TERM_MOST] = ""; /* the first term that is not as it must be */
    (void)snprintf(why, cap, "the message must name ");
    for (const char *at = terms, *between = ""; next_piece(&at, ' ', term); between = ", ") {
        const bool unwanted = term[0] == '!';
        append(why, cap, between, "");
        append(why, cap, unwanted ? "not " : "", term + (unwanted ? 1 : 0));
        if (wrong[0] == '\0' && has_term(sentence, term + (unwanted ? 1 : 0)) == unwanted) {
            (void)snprintf(wrong, sizeof wrong, "%s", term);
        }
    }
    if (wrong[0] == '\0') {
        return true;
    }
    const bool unwanted = wrong[0] == '!';
    append(why, cap, unwanted ? "; there is " : "; there is no ", wrong + (unwanted ? 1 : 0));
    const size_t len = strlen(why);
    (void)snprintf(why + len, cap - len, "; it says: %s", sentence);
    return false;
}
