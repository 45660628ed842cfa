/* source.h: a folder of goldens: its manifest, its vectors files by suite, its models.
 *
 * The main process opens every source once: hashes all files, checks every vectors file against the
 * page, checks the libm probe, and keeps only the table. A worker reads again just the files of its
 * test. So the judge's memory is that of one file, and nothing is graded on a broken golden.
 * Source: conformance/spec/vectors.md. */
#ifndef OL_SOURCE_H
#define OL_SOURCE_H

#include "catalog.h"
#include "sha256.h"

#include <jansson.h>

#define OL_VECTORS_BYTES_MAX ((size_t)64 << 20)

typedef struct ol_vectors {
    char *name; /* base name, "pcg32.vectors.json" */
    char *suite;
    char sha256[OL_SHA256_TEXT];
    size_t n_cases;
} ol_vectors;

typedef struct ol_source {
    char *dir;           /* absolute */
    ol_vectors *vectors; /* sorted by name */
    size_t n_vectors;
    char **paths; /* every file of the manifest, sorted */
    size_t n_paths;
    char **models; /* "models/NAME", sorted */
    size_t n_models;
    char sha256[OL_SHA256_TEXT]; /* of the manifest */
} ol_source;

bool ol_source_open(ol_source *source, const char *dir, ol_fault *fault);
void ol_source_clear(ol_source *source);

/* Parse a vectors file of the source; the fault names it. New reference. */
json_t *ol_source_load(const ol_source *source, const char *name, ol_fault *fault);

bool ol_source_has_model(const ol_source *source, const char *model);

#endif
