/* golden_rules.h: what may stand under each key of a case, as tables. Private to the golden checks.
 *
 * One row for a key; the tables follow conformance/spec/vectors.md suite by suite. */
#ifndef OL_GOLDEN_RULES_H
#define OL_GOLDEN_RULES_H

#include <stdbool.h>
#include <stddef.h>

typedef enum rule_kind {
    RULE_TEXT,
    RULE_WORD,  /* one of `words`, separated by spaces */
    RULE_WORDS, /* a non-empty array of them */
    RULE_BOOL,
    RULE_COUNT,     /* integer >= 0 */
    RULE_INT,       /* integer of low to high */
    RULE_INTS,      /* array of them */
    RULE_HEX,       /* `digits` hex digits */
    RULE_HEXES,     /* array of them */
    RULE_HEXES_4_8, /* array of 4 or of 8 digits */
    RULE_BYTES,     /* hex string of whole bytes */
    RULE_KEY,       /* 32 hex digits or null */
    RULE_TEXTS,     /* array of strings */
    RULE_TEXT_MAP,  /* object of strings */
    RULE_PIECES,
    RULE_FILES,      /* object of pieces */
    RULE_INTS_LISTS, /* array of arrays of RULE_INTS */
    RULE_HEX_LISTS,  /* array of arrays of RULE_HEXES */
    RULE_OBJECT,     /* by `below` */
    RULE_OBJECTS,    /* array of objects by `below` */
} rule_kind;

typedef struct key_rule {
    const char *key;
    rule_kind kind;
    bool required;
    unsigned digits;
    long long low, high;
    const char *words;
    const struct key_rule *below; /* ends with a row without a key */
} key_rule;

/* The rules of a case of a suite's group; NULL when the suite has no such group. */
const key_rule *golden_case_rules(const char *suite, const char *group);
/* The rules of the top of a file, of a group and of a note. */
extern const key_rule golden_top_rules[];
extern const key_rule golden_note_rules[];
extern const key_rule golden_group_rules[];

#endif
