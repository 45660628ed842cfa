/* lib_sample.c: an engine whose tl_sample first does its act and then, mostly, answers rightly; and
 * acts before the first and after the last call.
 *
 * Acts here are those that change the answer or belong to loading and ending. */
#include "hostile.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void run_from(const hostile_act *acts) {
    for (; acts->name != NULL; acts++) {
        if (hostile_is(acts->name)) {
            acts->run();
        }
    }
}

static void exit_3(void) {
    _exit(3);
}

static void exit_0(void) {
    _exit(0);
}

/* On the way in. */
__attribute__((constructor)) static void enter(void) {
    if (hostile_is("constructor_exits")) {
        _exit(0);
    }
    if (hostile_is("atexit_exits_0") || hostile_is("atexit_exits_0_wrong")) {
        (void)atexit(exit_0);
    }
    if (hostile_is("atexit_exits_3")) {
        (void)atexit(exit_3);
    }
    if (hostile_is("constructor_sleeps")) {
        (void)sleep(20);
    }
}

/* On the way out. */
__attribute__((destructor)) static void quit(void) {
    if (hostile_is("destructor_exits_0") || hostile_is("destructor_exits_0_wrong")) {
        _exit(0);
    }
    if (hostile_is("destructor_aborts")) {
        abort();
    }
    if (hostile_is("destructor_sleeps")) {
        (void)sleep(20);
    }
}

static sigjmp_buf before;

static void jump_back(int signal) {
    (void)signal;
    siglongjmp(before, 1);
}

static void bend(uint32_t *token, double *logprob) {
    if (hostile_is("nan_logprob")) {
        *logprob = (double)NAN;
    } else if (hostile_is("infinite_logprob")) {
        *logprob = -(double)INFINITY;
    } else if (hostile_is("one_ulp")) {
        *logprob = nextafter(*logprob, 0.0);
    } else if (hostile_is("wrong_token") || hostile_is("atexit_exits_0_wrong") ||
               hostile_is("destructor_exits_0_wrong")) {
        *token ^= 1u;
    }
}

tl_status tl_sample(tl_sampler *sampler, const float *logits, size_t n_logits,
                    const tl_sampling_params *params, const uint32_t *prompt, size_t n_prompt,
                    const uint32_t *output, size_t n_output, tl_pcg32 *rng, uint32_t *token,
                    double *logprob, tl_error *err) {
    static bool done;
    bool is_first = !done;
    if (hostile_is("handler_longjmps")) {
        /* "Nothing happened", and no answer. */
        (void)signal(SIGSEGV, jump_back);
        if (sigsetjmp(before, 1) == 0) {
            (void)raise(SIGSEGV);
        }
        return TL_OK;
    }
    if (!done) {
        done = true;
        run_from(hostile_process_acts);
        run_from(hostile_output_acts);
        run_from(hostile_state_acts);
    }
    if (hostile_is("changes_input") && n_logits > 0) {
        /* The caller's array is const; a library that sorts in place forgets that. */
        union {
            const float *given;
            float *own;
        } x = {.given = logits};
        x.own[0] += 0.0f;
        x.own[0] = -x.own[0];
    }
    if (hostile_is("writes_past_output")) {
        token[1] = 7;
    }
    tl_status status = real_tl_sample(sampler, logits, n_logits, params, prompt, n_prompt, output,
                                      n_output, rng, token, logprob, err);
    if (status == TL_OK) {
        bend(token, logprob);
    }
    if (status == TL_OK && hostile_is("right_once") && !is_first) {
        *token ^= 1u;
    }
    return status;
}
