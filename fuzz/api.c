/* api.c: two implementations side by side in one program.
 *
 * The second one is conformance/examples/plain with base, util and ops, compiled as it is; the
 * build renames every symbol that it defines from tl_ to second_tl_ (fuzz.mk), so the two cannot
 * meet. The types are those of the public headers for both; what is behind a pointer is not. */
#include "fuzz.h"

#define ENGINE_ENTRY(name) .name = tl_##name,
const host_api fuzz_engine_api = {HOST_SYMBOLS(ENGINE_ENTRY)};

#define SECOND_DECLARE(name) extern __typeof__(tl_##name) second_tl_##name;
HOST_SYMBOLS(SECOND_DECLARE)
#define SECOND_ENTRY(name) .name = second_tl_##name,
const host_api fuzz_second_api = {HOST_SYMBOLS(SECOND_ENTRY)};
