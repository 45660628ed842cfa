/* test_kv.h: what the files of the KV tests share. */
#ifndef OL_TEST_KV_H
#define OL_TEST_KV_H

#include "kv_script.h"

/* Parts of kv_pool_bounds_and_cache_lifecycle, in test_kv_walk.c. */
ol_test_fn test_kv_walk;
ol_test_fn test_kv_walk_cache_off;
ol_test_fn test_kv_large_pool;

#endif
