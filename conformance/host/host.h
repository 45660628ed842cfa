/* host.h: the insides of ol-host, the testee that holds a shared library.
 *
 * The host answers the ops of conformance/spec/testee.md by calling the library through a table of
 * pointers; it knows no expected value and decides nothing. What it adds is a watch over each op
 * (guard.c): inputs lie in memory that is hashed and ends at an unmapped page, outputs are filled
 * with a pattern, and the floating-point modes are compared afterwards. It does no floating-point
 * arithmetic of its own: numbers pass through as bits. The watch shares an address space with the
 * engine, so it catches mistakes, not forgers.
 *
 * An op is a function (request -> result). Arguments are decoded first, all of them; a missing or
 * malformed one sets host.bad, and the op returns before it calls the engine.
 *
 * Source: conformance/spec/testee.md. */
#ifndef OL_HOST_H
#define OL_HOST_H

#include "api.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The host ends with this status when the library does not load or is of another ABI; the reason
 * stands in the refused answer to `hello`. The judge turns it into its exit 3. */
#define HOST_EXIT_UNUSABLE 40
#define HOST_EXIT_PROTOCOL 41 /* requests ended inside a frame, or were no JSON */

#define HOST_TEXT_CAP 512 /* bytes of a sentence that the host itself says */

/* ------------------------------------------------------------------ state */

typedef enum host_kind {
    HOST_POOL = 1,
    HOST_RUNNER = 2,
    HOST_SAFETENSORS = 3, /* made by safetensors_open; a "checkpoint" of the protocol */
    HOST_CHECKPOINT = 4   /* made by checkpoint_open */
} host_kind;

typedef struct host_handle {
    host_kind kind;
    void *object;   /* NULL: freed */
    int64_t parent; /* handle of the runner that owns a pool; 0: nobody */
} host_handle;

/* One piece of guarded memory of the current op. */
typedef struct host_region {
    const char *name; /* for the sentence; static or borrowed from the request */
    uint8_t *map;     /* guard page, body pages, guard page */
    size_t map_len;
    uint8_t *data; /* ends where the last guard page starts */
    size_t n_bytes;
    bool output;
    uint64_t hash; /* of an input, when it was handed over */
} host_region;

/* The control bits of the floating-point unit, without its exception flags. */
typedef struct host_fp {
    int rounding;
    uint32_t control;     /* MXCSR or FPCR: rounding and denormal modes, trap masks */
    uint16_t x87_control; /* 0 where there is no x87 */
} host_fp;

typedef struct host {
    host_api tl;
    host_fp fp;            /* as it was when the host started, before any library code ran */
    json_t *violations;    /* array of sentences, of the current frame */
    const json_t *earlier; /* results so far inside `calls`, else NULL */
    host_handle *handles;  /* [n_handles]; handle number h is element h - 1 and never used again */
    size_t n_handles;
    host_region *regions; /* [n_regions], of the current op */
    size_t n_regions;
    size_t region_cap;
    tl_sampler *kept_sampler; /* NULL: none yet; for ids below kept_vocab; host_sample.c */
    size_t kept_vocab;
    bool ready;                /* the op's arguments were sound and its inputs are hashed */
    char bad[HOST_TEXT_CAP];   /* why the request cannot be carried out; "" while it can */
    char wrong[HOST_TEXT_CAP]; /* the first sentence of host_expect, of the current op */
} host;

/* true: done, `out` has the results. false: refused, `out` has status, offset and text (or host.bad
 * is set). */
typedef bool host_op_fn(host *h, const json_t *in, json_t *out);

typedef struct host_op {
    const char *name;
    host_op_fn *run;
} host_op;

/* Each ends with a NULL name. */
extern const host_op host_sample_ops[];
extern const host_op host_quant_ops[];
extern const host_op host_kv_ops[];
extern const host_op host_kv_move_ops[];
extern const host_op host_checkpoint_ops[];
extern const host_op host_runner_ops[];
extern const host_op host_c_argument_ops[];
extern const host_op host_memory_ops[];
extern const host_op host_fault_ops[];

/* ------------------------------------------------------------------ host_faults.c */

/* What this program and its engine hold now, by calls: blocks of malloc and its kin, and maps that
 * are not the C library's own. 0 under a sanitizer. */
typedef struct host_holdings {
    int64_t n_blocks;
    int64_t n_maps;
} host_holdings;
host_holdings host_held(void);
/* From here on the calls for memory after the next `skipped` fail: one, or all. */
void host_refuse_memory(unsigned skipped, bool is_lasting);
/* From here on no call fails; did one? */
bool host_grant_memory(void);

/* ------------------------------------------------------------------ host_sample.c */

void host_sampler_clear(host *h); /* the kept sampler, at the end */

/* ------------------------------------------------------------------ load.c */

/* Load the library and resolve every symbol of the public headers. false: the reason is in text.
 * The library stays loaded until the process ends: unloading it would hide where a leaked block was
 * made. */
bool host_load(host_api *tl, const char *path, char text[HOST_TEXT_CAP]);

/* ------------------------------------------------------------------ guard.c */

/* Memory for the engine of n_bytes, NULL for 0 bytes and when host.bad gets set. It ends with the
 * op. */
void *host_input(host *h, const char *name,
                 size_t n_bytes); /* to be filled by the op, then sealed */
/* The last thing before an op calls the engine: hash all inputs, which must not change from here
 * on. false when host.bad is set: the op returns then. */
bool host_ready(host *h);
void *host_output(host *h, const char *name, size_t n_bytes); /* filled with the pattern */
void host_refill(host *h); /* give all outputs the pattern again, before a further call */
/* A copy of a structure, or of bytes, as an input; also between calls. */
const void *host_const(host *h, const char *name, const void *value, size_t n_bytes);
/* A byte of the pattern: what output byte i holds before the call. */
uint8_t host_pattern(size_t i);
/* Is this part of an output as it was before the call? */
bool host_untouched(const void *data, size_t first, size_t n_bytes);

void host_fp_read(host_fp *fp);
/* Look at everything that the op's calls could have spoilt; say so, put it right, and give the
 * memory back. */
void host_settle(host *h, bool refused);
void host_violation(host *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A function that only the C interface has, and no op: what it answered must agree with the op's
 * answer. Where it does not, the first such sentence becomes the answer's `wrong`, and the next
 * check fails. `status` is that of the function (TL_OK where it has none): one that is not written
 * yet (INTERNAL) or had no memory says nothing about whether two functions agree. */
void host_expect(host *h, bool holds, tl_status status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The request is no request of the protocol, or the host itself is short of something: kept once,
 * answered instead of a result. */
void host_bad(host *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool host_is_bad(const host *h);

uint64_t host_fnv1a(uint64_t hash, const void *bytes, size_t n_bytes);
#define HOST_FNV_START UINT64_C(0xcbf29ce484222325)

/* ------------------------------------------------------------------ args.c */

uint64_t host_arg_count(host *h, const json_t *in, const char *key, uint64_t max);
uint64_t host_arg_count_or(host *h, const json_t *in, const char *key, uint64_t max, uint64_t none);
uint32_t host_arg_u32(host *h, const json_t *in, const char *key);
size_t host_arg_size_or(host *h, const json_t *in, const char *key, size_t none);
bool host_arg_bool_or(host *h, const json_t *in, const char *key, bool none);
const char *host_arg_text(host *h, const json_t *in, const char *key);
const char *host_arg_text_or(host *h, const json_t *in, const char *key, const char *none);
uint64_t host_arg_u64(host *h, const json_t *in, const char *key); /* 16 hex digits */
double host_arg_f64(host *h, const json_t *in, const char *key);
/* An array as guarded input memory; NULL with *n 0 when it is empty. */
void *host_arg_array(host *h, const json_t *in, const char *key, const char *type, size_t *n);
const tl_prefix_key *host_arg_key(host *h, const json_t *in, const char *key);
tl_isa host_arg_isa(host *h, const json_t *in); /* `isa`, "auto" when missing */
tl_weights_mode host_arg_weights(host *h, const json_t *in);
/* a * b; sets host.bad on overflow. */
size_t host_mul(host *h, size_t a, size_t b);

void host_put(json_t *out, const char *key, json_t *value); /* steals; NULL is dropped */
void host_put_int(json_t *out, const char *key, uint64_t v);
void host_put_bool(json_t *out, const char *key, bool v);
void host_put_text(json_t *out, const char *key, const char *text); /* ASCII if no UTF-8 */
void host_put_u64(json_t *out, const char *key, uint64_t v);
void host_put_f64(json_t *out, const char *key, double v);
void host_put_array(json_t *out, const char *key, const char *type, const void *v, size_t n);
void host_put_key(json_t *out, const char *key, const tl_prefix_key *v);
void host_put_config(json_t *out, const tl_model_config *cfg);
void host_put_q4(host *h, json_t *out, const tl_qlinear *q); /* `qweight` and `scales` */

/* An error object that the engine must fill. */
tl_error host_error(void);
/* true for TL_OK; else put status, offset and text into out. */
bool host_answer(json_t *out, tl_status status, const tl_error *err);
/* The same, for constructors: after a refusal *object must be NULL (a violation else, and it is
 * made NULL). */
bool host_made(host *h, json_t *out, tl_status status, const tl_error *err, void **object);
/* What a constructor's out parameter holds before the call: no NULL, no address. */
void *host_unset(void);

/* ------------------------------------------------------------------ handles.c */

int64_t host_handle_add(host *h, host_kind kind, void *object, int64_t parent);
/* The live object of argument `key`; sets host.bad when there is none. *number may be NULL. */
void *host_arg_handle(host *h, const json_t *in, const char *key, host_kind kind, int64_t *number);
/* A checkpoint of either kind. */
void *host_arg_checkpoint(host *h, const json_t *in, host_kind *kind, int64_t *number);
void host_handle_free(host *h, int64_t number); /* and the pools that it owns */
void host_handles_clear(host *h);               /* everything, newest first */

#endif
