/* golden.h: is a folder of goldens what the page says? The manifest, the vectors files, the libm
 * probe.
 *
 * Every fault is exit 5 and names the file and the key path. Source: conformance/spec/vectors.md.
 */
#ifndef OL_GOLDEN_H
#define OL_GOLDEN_H

#include "source.h"

typedef struct ol_entry {
    const char *path; /* borrowed from the manifest's JSON */
    uint64_t n_bytes;
    char sha256[OL_SHA256_TEXT];
} ol_entry;

typedef struct ol_manifest {
    json_t *root;
    ol_entry *entries; /* sorted by path */
    size_t n_entries;
    char sha256[OL_SHA256_TEXT];
} ol_manifest;

/* Read DIR/MANIFEST.json and check its own rules. */
bool ol_manifest_load(ol_manifest *manifest, const char *dir, ol_fault *fault);
/* Compare with the folder: nothing missing, nothing besides, sizes and hashes. */
bool ol_manifest_verify(const ol_manifest *manifest, const char *dir, ol_fault *fault);
void ol_manifest_clear(ol_manifest *manifest);

/* Does this host's libm give the bits that the goldens were made with? */
bool ol_probe_check(const char *dir, ol_fault *fault);

/* Check a parsed vectors file in full. The models of the source are known. */
bool ol_golden_check(const ol_source *source, const char *name, const json_t *doc, ol_fault *fault);

#endif
