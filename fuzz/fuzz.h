/* fuzz.h: what every fuzz target, every mutator and both drivers share.
 *
 * A target is one function of bytes. It runs an engine on them (`tl`), a second implementation
 * that shares no parser with it (`second`), and says what came out (`verdict`) and the first thing
 * that is wrong (`wrong`): a promise of the headers that does not hold, or a disagreement of the
 * two. It never aborts on bad input, bounds what it allocates, and keeps nothing between inputs.
 *
 * The drivers: libfuzzer.c (one program a target, a wrong thing aborts) and replay.c (all targets
 * in one program, no clang needed; a wrong thing is counted). Both hand over a heap copy of
 * exactly the input's length. See README.md. */
#ifndef FUZZ_H
#define FUZZ_H

#include "host/api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define FUZZ_FORMAT(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define FUZZ_FORMAT(fmt, args)
#endif

/* One input on its way through a target. */
typedef struct fuzz_case {
    const host_api *tl;     /* under test */
    const host_api *second; /* written from the pages alone */
    char verdict[24];       /* "OK" or the name of a status, of `tl` */
    char wrong[512];        /* one sentence; "" when all is right */
    const char *disk;       /* an empty folder to put files into; NULL: everything from memory */
} fuzz_case;

/* A small generator for mutators and for content that does not matter. */
typedef struct fuzz_rng {
    uint64_t state;
} fuzz_rng;

typedef struct fuzz_target {
    const char *name;
    void (*run)(fuzz_case *f, const uint8_t *data, size_t n);
    /* Change data [n] in place, of at most cap bytes; the new length. NULL: bytes alone. */
    size_t (*mutate)(uint8_t *data, size_t n, size_t cap, fuzz_rng *rng);
    /* The engine's part alone: read the bytes once, free what came of them. NULL: no reader. */
    tl_status (*read)(const host_api *tl, const uint8_t *data, size_t n, tl_error *err);
} fuzz_target;

extern const fuzz_target fuzz_safetensors, fuzz_index, fuzz_config, fuzz_checkpoint, fuzz_kv_import,
    fuzz_kv_calls, fuzz_quant, fuzz_sampler, fuzz_forward, fuzz_golden, fuzz_frames, fuzz_log,
    fuzz_crash;

/* ------------------------------------------------------------------ api.c */

extern const host_api fuzz_engine_api; /* the engine that is linked in */
extern const host_api fuzz_second_api; /* the second implementation, its symbols renamed */

/* ------------------------------------------------------------------ fuzz.c */

/* Run a target on a heap copy of exactly n bytes. */
void fuzz_run(fuzz_case *f, const fuzz_target *target, const uint8_t *data, size_t n);

/* Refuse the engine's allocations one after the other while it reads the input: each refusal ends
 * in NOMEM, or changes nothing. Only in the replay (memory.c). */
void fuzz_run_short_of_memory(fuzz_case *f, const fuzz_target *target, const uint8_t *data,
                              size_t n);

/* Note what is wrong unless something is already. Always false. */
bool fuzz_wrong(fuzz_case *f, const char *fmt, ...) FUZZ_FORMAT(2, 3);

/* Note the verdict of `tl`, and compare with the status of `second`; true when both are TL_OK. */
bool fuzz_agree(fuzz_case *f, const char *call, tl_status tl, tl_status second);

/* The same, where several faults at once leave the choice: `right` has bit 1 << status for each
 * status that either may give; with one bit set this is fuzz_agree. */
bool fuzz_agree_within(fuzz_case *f, const char *call, tl_status tl, tl_status second,
                       unsigned right);

/* An error that nobody has touched yet. */
tl_error fuzz_error(void);

/* What base.h promises of a refusal: status, one printable sentence, an offset of the input (at
 * most n_bytes) or none; and of a success: nothing is promised. */
void fuzz_check_error(fuzz_case *f, const char *call, tl_status status, const tl_error *err,
                      uint64_t n_bytes);

/* A heap copy of exactly n bytes (of one byte when n is 0); ends the process without memory. */
void *fuzz_copy(const void *bytes, size_t n);
void *fuzz_alloc(size_t n); /* zeroed; at least one byte */

uint32_t fuzz_next(fuzz_rng *rng);
uint32_t fuzz_below(fuzz_rng *rng, uint32_t n); /* 0 when n is 0 */
bool fuzz_chance(fuzz_rng *rng, uint32_t one_in);

/* The input as a tape: reads past its end give zeros. */
typedef struct fuzz_tape {
    const uint8_t *data;
    size_t n, at;
} fuzz_tape;

uint8_t fuzz_u8(fuzz_tape *tape);
uint32_t fuzz_u32(fuzz_tape *tape);
uint64_t fuzz_u64(fuzz_tape *tape);
bool fuzz_ended(const fuzz_tape *tape);

/* ------------------------------------------------------------------ memory.c */

typedef struct fuzz_memory {
    size_t n_refused;
    size_t peak, left; /* bytes of the engine, most and at the end */
} fuzz_memory;

/* From here on the engine's allocations are counted; the nth (0: none) is refused, alone or with
 * all that follow. */
void fuzz_memory_begin(size_t nth, bool is_for_good);
fuzz_memory fuzz_memory_end(void);

/* ------------------------------------------------------------------ compare.c */

/* Do two layouts list the same tensors and metadata, and keep the promises of model.h? */
void fuzz_compare_layouts(fuzz_case *f, const tl_layout *a, const tl_layout *b, uint64_t n_bytes);
/* Of nothing there need not be a pointer. */
bool fuzz_same_bytes(const void *a, const void *b, size_t n);
/* What a float or a double is made of: `==` would take -0 for 0, and no NaN for itself. */
uint32_t fuzz_f32_bits(float x);
uint64_t fuzz_f64_bits(double x);
/* The same bits, or a NaN on both sides: which it is, is left open (forward#nan). */
bool fuzz_same_float(float x, float y);
bool fuzz_same_floats(const float *x, const float *y, size_t n);
bool fuzz_same_tensor(const tl_tensor_info *a, const tl_tensor_info *b);
void fuzz_compare_configs(fuzz_case *f, const tl_model_config *a, const tl_model_config *b);
void fuzz_compare_weights(fuzz_case *f, const tl_weights *a, const tl_weights *b);

/* ------------------------------------------------------------------ oracle_fit.c */

/* All that is wrong with the weights for the config: bit 1 << status for each kind of fault. */
unsigned fuzz_fit_faults(const host_api *tl, const tl_model_config *cfg, const tl_checkpoint *ckpt,
                         size_t load_group);

/* ------------------------------------------------------------------ mutate_json.c */

/* A text that is changed in place. */
typedef struct fuzz_text {
    char *text; /* [cap], the first n are valid */
    size_t n, cap;
} fuzz_text;

/* Make one change on the level of tokens and values: numbers to edges, sums and neighbours, names
 * to others of the format, members lost, doubled, swapped or nested. words [until NULL]: strings
 * of the format, unquoted. */
void fuzz_mutate_json(fuzz_text *t, const char *const *words, fuzz_rng *rng);

/* Take `del` bytes out at `at` and put n bytes in; false when they do not fit. */
bool fuzz_splice(fuzz_text *t, size_t at, size_t del, const char *bytes, size_t n);

/* Give every tensor of a safetensors header the range that its dtype and shape call for, one after
 * the other. The bytes of all of them; entries that say nothing sensible get an empty range. */
uint64_t fuzz_retile(fuzz_text *header);

/* A whole safetensors file: header changed, offsets and length repaired, or broken on purpose. */
size_t fuzz_mutate_safetensors(uint8_t *data, size_t n, size_t cap, fuzz_rng *rng);

extern const char *const fuzz_words_safetensors[],
    *const fuzz_words_config[], *const fuzz_words_index[], *const fuzz_words_judge[];

/* ------------------------------------------------------------------ files.c */

#define FUZZ_FILES_MAX 8
#define FUZZ_NAME_MAX 80
#define FUZZ_PATH_MAX 256

/* A directory in one input: for each file its name, a NUL, a u32 (little-endian) length, its
 * bytes. The last length may be wrong; a name that stands twice counts once. */
typedef struct fuzz_folder {
    char names[FUZZ_FILES_MAX][FUZZ_NAME_MAX];
    tl_file_view views[FUZZ_FILES_MAX]; /* heap copies of exact length */
    size_t n;
} fuzz_folder;

fuzz_folder fuzz_folder_read(const uint8_t *data, size_t n);
void fuzz_folder_clear(fuzz_folder *folder);
const tl_file_view *fuzz_folder_find(const fuzz_folder *folder, const char *name);
/* Does the index name a file that is not there? */
bool fuzz_lacks_shard(const fuzz_folder *folder);
/* Give every view the name that stands in the folder, where it stands now. */
void fuzz_folder_point(fuzz_folder *folder);
/* Put the files into f->disk, for one call; false, and nothing, when a name can be no file's. */
bool fuzz_folder_write(const fuzz_case *f, const fuzz_folder *folder);
void fuzz_folder_remove(const fuzz_case *f, const fuzz_folder *folder);
/* The same for one file; its path, or "" without a disk. */
void fuzz_file_write(const fuzz_case *f, const char *name, const uint8_t *bytes, size_t n,
                     char path[FUZZ_PATH_MAX]);
size_t fuzz_mutate_folder(uint8_t *data, size_t n, size_t cap, fuzz_rng *rng);

#endif
