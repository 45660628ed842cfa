/* tests.c: the table of the tests, in the catalogue's order. */
#include "tests.h"

const ol_test_entry ol_test_entries[] = {
    {"hand_example_sampling", test_hand_example_sampling},
    {"pcg32_reference_vectors", test_pcg32_reference_vectors},
    {"sampler_matches_l81_golden", test_sampler_matches_l81_golden},
    {"greedy_takes_no_draw_and_sampling_takes_one",
     test_greedy_takes_no_draw_and_sampling_takes_one},
    {"top_p_keeps_the_crossing_token", test_top_p_keeps_the_crossing_token},
    {"penalties_follow_hf_and_openai_semantics", test_penalties_follow_hf_and_openai_semantics},
    {"seeded_sampling_matches_the_distribution", test_seeded_sampling_matches_the_distribution},
    {"kv_pool_bounds_and_cache_lifecycle", test_kv_pool_bounds_and_cache_lifecycle},
    {"kv_pool_evicts_the_oldest_cached_block", test_kv_pool_evicts_the_oldest_cached_block},
    {"kv_pool_rejects_zero_capacity", test_kv_pool_rejects_zero_capacity},
    {"kv_pool_exports_and_imports_rust_owned_blocks",
     test_kv_pool_exports_and_imports_rust_owned_blocks},
    {"f16_rounds_to_nearest_even", test_f16_rounds_to_nearest_even},
    {"int4_hand_example", test_int4_hand_example},
    {"q4_linear_matches_its_dequantized_weights", test_q4_linear_matches_its_dequantized_weights},
    {"safetensors_reader_rules", test_safetensors_reader_rules},
    {"config_refuses_what_the_engine_cannot_run", test_config_refuses_what_the_engine_cannot_run},
    {"bigram_checkpoint_still_serves", test_bigram_checkpoint_still_serves},
    {"tiny_llama_logits_match_hf", test_tiny_llama_logits_match_hf},
    {"tiny_llama_greedy_matches_hf", test_tiny_llama_greedy_matches_hf},
    {"incremental_decode_equals_full_prefill", test_incremental_decode_equals_full_prefill},
    {"batched_forward_equals_single", test_batched_forward_equals_single},
    {"run_once_returns_its_blocks", test_run_once_returns_its_blocks},
    {"int4_runner_matches_its_dequantized_model", test_int4_runner_matches_its_dequantized_model},
    {"forward_refuses_bad_batches", test_forward_refuses_bad_batches},
};
const size_t ol_n_test_entries = TEST_COUNT(ol_test_entries);

void test_run_parts(ol_test *t, const test_part *parts, size_t n_parts) {
    for (size_t i = 0; i < n_parts; i++) {
        if (ol_begin(t, parts[i].id)) {
            parts[i].run(t);
        }
    }
}

void test_c_arguments(ol_test *t, const char *of) {
    if (!ol_strict(t) || !ol_begin(t, "c-arguments")) {
        return;
    }
    const json_t *answer = ol_call(t, "c_arguments", "{s:s}", "of", of);
    (void)ol_check_ok(t, "c_arguments", answer, ol_text(t, "NULL and the like to %s", of));
}
