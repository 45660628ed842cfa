/* terms.h: does the sentence of a refusal name what it is about?
 *
 * Asked are terms, not words of one engine: names that the C interface or the format gives, and
 * numbers. Each must stand in the sentence whole, in any order, among any other words.
 *
 * Source: conformance/spec/tests.md, clause terms. */
#ifndef OL_TERMS_H
#define OL_TERMS_H

#include <stdbool.h>
#include <stddef.h>

/* `terms`: separated by blanks; `a|b` asks for one of the two, `!a` that it does not stand there.
 * false: `why` [cap] says all of them and the first that is not as it must be. */
bool ol_names(const char *sentence, const char *terms, char *why, size_t cap);

#endif
