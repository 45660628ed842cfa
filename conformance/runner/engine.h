/* engine.h: what is judged and how its processes are started.
 *
 * Whatever was given on the command line ends as an ol_engine: a command line for the child. Files
 * that are judged are copied once into the run's private directory and hashed there, so that all 24
 * tests see the same bytes, a link that is turned between two tests has no effect, and an
 * unprivileged child can read them wherever the original lies. */
#ifndef OL_ENGINE_H
#define OL_ENGINE_H

#include "judge.h"
#include "sha256.h"

typedef enum ol_engine_kind {
    OL_ENGINE_BUILTIN = 0, /* the project's own shared library */
    OL_ENGINE_LIBRARY = 1, /* a shared library, loaded by ol-host */
    OL_ENGINE_SOURCES = 2, /* a directory of module sources, built into a library */
    OL_ENGINE_TESTEE = 3,  /* a program that speaks the protocol */
} ol_engine_kind;

#define OL_ENGINE_ARGS_MAX 32

typedef struct ol_engine {
    ol_engine_kind kind;
    char given[512]; /* as on the command line; "" for the built-in one */
    char file[4096]; /* the library or program that is judged, in the run's directory where it was
                        copied */
    char host[4096]; /* the host that loads it; "" for a testee */
    char sha256[OL_SHA256_TEXT];
    char borrowed[256]; /* modules taken from the reference, "kv, model"; "" for none */
    char *argv[OL_ENGINE_ARGS_MAX + 1]; /* NULL-ended; malloc'ed */
    bool sanitized;      /* host or engine holds a sanitizer's runtime: limits are laid wider */
    bool may_exec;       /* --testee and --wrap: the filter lets execve pass */
    bool interactive;    /* --wrap with --case at a terminal: no capture, no clock, no walls */
    size_t n_wrap;       /* words of argv that are --wrap's */
    char read_dir[4096]; /* a folder that the child may read besides; "" for none */
    /* what it said of itself, filled by the probe */
    char name[128];
    char version[64];
    char language[64];
    uint64_t abi;
} ol_engine;

const char *ol_engine_kind_name(ol_engine_kind kind);

/* The folders and files of this installation, from the executable's own place, or from --root and
 * OL_ROOT. */
typedef struct ol_paths {
    char root[4096];    /* holds conformance/catalog.json and goldens/ */
    char bin_dir[4096]; /* holds ol and ol-host */
    char run_dir[4096]; /* the run's private directory; removed at the end */
    int run_lock;       /* held as long as the run lives, -1 without */
} ol_paths;

bool ol_paths_find(ol_paths *paths, const char *root_option, ol_fault *fault);
/* Make the run's directory, once, below TMPDIR or /tmp. */
bool ol_paths_need_run_dir(ol_paths *paths, ol_fault *fault);
void ol_paths_remove_run_dir(ol_paths *paths);

/* Find, copy and hash. `given` is NULL or "" for the built-in engine; `wrap` is NULL or a command
 * line that is put in front. */
bool ol_engine_open(ol_engine *engine, const ol_paths *paths, ol_engine_kind kind,
                    const char *given, const char *wrap, ol_fault *fault);
void ol_engine_clear(ol_engine *engine);

/* Is what was judged still what was hashed? Everything but a testee that runs where it lies is a
 * copy of the run's own. */
bool ol_engine_is_unchanged(const ol_engine *engine);

/* Do the bytes of a program, library or object name a sanitizer's runtime? */
bool ol_holds_sanitizer(const char *bytes, size_t n);

#endif
