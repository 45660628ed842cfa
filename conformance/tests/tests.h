/* tests.h: the 24 tests by name, and the few helpers that several of their files use.
 *
 * A test file has one function for each test, named like it in the catalogue without the module's
 * name where that would be too long, and below it one function for each check or group of checks (a
 * "part"). Parts are cases too: --case TEST:PART runs one alone.
 *
 * Source: conformance/spec/tests.md. */
#ifndef OL_TESTS_H
#define OL_TESTS_H

#include "../runner/test.h"

/* sample, pcg32 */
ol_test_fn test_hand_example_sampling;
ol_test_fn test_pcg32_reference_vectors;
ol_test_fn test_sampler_matches_l81_golden;
ol_test_fn test_greedy_takes_no_draw_and_sampling_takes_one;
ol_test_fn test_top_p_keeps_the_crossing_token;
ol_test_fn test_penalties_follow_hf_and_openai_semantics;
ol_test_fn test_seeded_sampling_matches_the_distribution;
/* kv */
ol_test_fn test_kv_pool_bounds_and_cache_lifecycle;
ol_test_fn test_kv_pool_evicts_the_oldest_cached_block;
ol_test_fn test_kv_pool_rejects_zero_capacity;
ol_test_fn test_kv_pool_exports_and_imports_rust_owned_blocks;
/* quant */
ol_test_fn test_f16_rounds_to_nearest_even;
ol_test_fn test_int4_hand_example;
ol_test_fn test_q4_linear_matches_its_dequantized_weights;
/* model */
ol_test_fn test_safetensors_reader_rules;
ol_test_fn test_config_refuses_what_the_engine_cannot_run;
/* forward, runner */
ol_test_fn test_bigram_checkpoint_still_serves;
ol_test_fn test_tiny_llama_logits_match_hf;
ol_test_fn test_tiny_llama_greedy_matches_hf;
ol_test_fn test_incremental_decode_equals_full_prefill;
ol_test_fn test_batched_forward_equals_single;
ol_test_fn test_run_once_returns_its_blocks;
ol_test_fn test_int4_runner_matches_its_dequantized_model;
ol_test_fn test_forward_refuses_bad_batches;

/* A part of a test that needs no golden. */
typedef struct test_part {
    const char *id; /* the case id, unique in the test */
    ol_test_fn *run;
} test_part;

/* Run the parts that are wanted, in order. */
void test_run_parts(ol_test *t, const test_part *parts, size_t n_parts);
/* The checks `twin_models` and `overflow_shows`. */
void test_model_twins(ol_test *t);
/* The strict check `c_arguments`: what only a caller in C can pass to the functions of this part of
 * the interface (testee.md) is refused. Without --strict it is not even passed: it may crash. */
void test_c_arguments(ol_test *t, const char *of);

#define TEST_COUNT(array) (sizeof(array) / sizeof *(array))

#endif
