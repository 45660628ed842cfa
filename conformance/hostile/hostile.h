/* hostile.h: what the engines of this folder share.
 *
 * Each is a right engine (the project's own library, some of its functions tl_X renamed to
 * real_tl_X) with one act of misbehaviour, whose name is compiled into act.c. What the judge must
 * say of each stands in verdicts.json. An act is bounded by itself, in processes, memory, output
 * and seconds, and touches only processes of its own test, so that it does no harm where a judge
 * fails to stop it. */
#ifndef OL_HOSTILE_H
#define OL_HOSTILE_H

#include "tl/tl.h"

#include <stdbool.h>

typedef struct hostile_act {
    const char *name;
    void (*run)(void);
} hostile_act;

/* Each file of acts has a table that ends with a row without a name. */
extern const hostile_act hostile_process_acts[];
extern const hostile_act hostile_output_acts[];
extern const hostile_act hostile_state_acts[];

/* The act that was built in; is it this one? */
const char *hostile_act_name(void);
bool hostile_is(const char *name);

/* The functions under the names that the right library was given. */
tl_status real_tl_sample(tl_sampler *sampler, const float *logits, size_t n_logits,
                         const tl_sampling_params *params, const uint32_t *prompt, size_t n_prompt,
                         const uint32_t *output, size_t n_output, tl_pcg32 *rng, uint32_t *token,
                         double *logprob, tl_error *err);

tl_status real_tl_kv_pool_new(tl_kv_pool **out, const tl_kv_cfg *cfg, tl_error *err);
tl_status real_tl_int4_pack(const int8_t *q, size_t q_len, size_t rows, size_t cols,
                            uint8_t *packed, size_t packed_len, tl_error *err);
tl_status real_tl_qlinear_forward(const tl_qlinear *q, size_t row_begin, size_t row_end,
                                  const float *x, size_t x_len, size_t m, float *y, size_t y_len,
                                  tl_work *work, tl_error *err);
tl_status real_tl_runner_run_once(tl_runner *runner, const uint32_t *tokens, size_t n_tokens,
                                  float *hidden, size_t hidden_len, float *logits,
                                  size_t logits_len, tl_error *err);
uint32_t real_tl_abi_version(void);
tl_status real_tl_runner_load(tl_runner **out, const char *dir, const tl_engine_cfg *cfg,
                              tl_error *err);

#endif
