/* api.h: the library under test as a table of pointers, one for each function of the public
 * headers.
 *
 * The list is the whole of the interface: a library that lacks one of these symbols is refused by
 * name, also when no op calls it. A new public function is added here too. The types come from the
 * headers themselves, so that a changed prototype breaks the build here. */
#ifndef OL_HOST_API_H
#define OL_HOST_API_H

#include "tl/tl.h"

/* clang-format off */
#define HOST_SYMBOLS(X)                                                                            \
    /* base */                                                                                     \
    X(status_name) X(version) X(abi_version)                                                       \
    /* sample */                                                                                   \
    X(pcg32_new) X(pcg32_next_u32) X(pcg32_uniform_f64) X(child_seed) X(stream)                    \
    X(sampling_params_default) X(sampler_new) X(sampler_free) X(sample)                            \
    /* quant */                                                                                    \
    X(f16_to_f32) X(f32_to_f16) X(bf16_to_f32) X(int4_packed_size) X(int4_pack) X(int4_unpack)     \
    X(qlinear_quantize) X(qlinear_dequantize) X(qlinear_forward) X(qlinear_clear)                  \
    /* ops */                                                                                      \
    X(isa_name) X(isa_resolve) X(work_new) X(work_free) X(work_isa) X(work_max_n_in) X(ops_dot)    \
    X(ops_matmul) X(ops_widen_row) X(ops_rmsnorm) X(ops_rope_angles) X(ops_rope_inv_freq)          \
    X(ops_rope) X(ops_exp) X(ops_softmax_exp) X(ops_silu_mul) X(ops_axpy) X(ops_f16_widen)         \
    X(ops_f16_round)                                                                               \
    /* kv */                                                                                       \
    X(kv_pool_new) X(kv_pool_free) X(kv_pool_alloc) X(kv_pool_retain) X(kv_pool_release)           \
    X(kv_pool_set_fill) X(kv_pool_register) X(kv_pool_lookup) X(kv_pool_slab) X(kv_pool_slab_mut)  \
    X(kv_pool_export_size) X(kv_pool_export) X(kv_pool_import) X(kv_pool_block_info)               \
    X(kv_pool_cfg) X(kv_pool_stats)                                                                \
    /* model */                                                                                    \
    X(model_config_parse) X(model_config_load) X(dtype_name) X(layout_parse) X(layout_free)        \
    X(layout_count) X(layout_at) X(layout_find) X(layout_metadata) X(layout_data_start)            \
    X(safetensors_open) X(safetensors_view) X(safetensors_free) X(safetensors_layout)              \
    X(safetensors_f32) X(safetensors_q4) X(checkpoint_open) X(checkpoint_view) X(checkpoint_free)  \
    X(checkpoint_count) X(checkpoint_at) X(checkpoint_find) X(checkpoint_metadata)                 \
    X(checkpoint_f32) X(checkpoint_q4) X(weights_load) X(weights_clear) X(linear_forward)          \
    X(linear_n_out) X(linear_n_in) X(linear_clear) X(model_load) X(model_view) X(model_free)       \
    X(model_config_of) X(model_weights)                                                            \
    /* forward */                                                                                  \
    X(logits_init) X(logits_clear) X(logits_row) X(scratch_new) X(scratch_free) X(scratch_size)    \
    X(scratch_limits) X(forward_check) X(forward)                                                  \
    /* runner */                                                                                   \
    X(engine_cfg_default) X(runner_new) X(runner_load) X(runner_free) X(runner_forward)            \
    X(runner_run_once) X(runner_pool) X(runner_block_tokens) X(runner_config) X(runner_limits)
/* clang-format on */

typedef struct host_api {
/* A name, which parentheses would turn into no declarator. */
#define HOST_MEMBER(name) __typeof__(tl_##name) *name; /* NOLINT(bugprone-macro-parentheses) */
    HOST_SYMBOLS(HOST_MEMBER)
#undef HOST_MEMBER
} host_api;

#endif
