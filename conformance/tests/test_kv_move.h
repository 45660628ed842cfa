/* test_kv_move.h: what the files of kv_pool_exports_and_imports_rust_owned_blocks share. */
#ifndef OL_TEST_KV_MOVE_H
#define OL_TEST_KV_MOVE_H

#include "envelope.h"

/* One case of the suite `kv`, in test_kv_golden.c. */
void test_kv_golden(ol_test *t, const ol_case *c);

/* Parts, in test_kv_envelope.c. */
ol_test_fn test_kv_envelope_flips;
ol_test_fn test_kv_envelope_cuts;
ol_test_fn test_kv_envelope_faults;
ol_test_fn test_kv_envelope_order;
ol_test_fn test_kv_envelope_second_record;

#endif
