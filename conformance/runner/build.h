/* build.h: a folder of a learner's module sources as a shared library.
 *
 * The modules are kv, quant, model, forward, runner and sample (sample.c and pcg32.c); a file
 * belongs to the module that its name starts with. base, util, json and ops are given: they and
 * everything that no module owns come from the project's own library, whatever the folder has. With
 * --ref-deps a module that is missing, or named, comes from there as well, and every report says
 * so. */
#ifndef OL_BUILD_H
#define OL_BUILD_H

#include "context.h"

/* Build what `dir` holds to a library below the run's directory; its path into `library` [4096],
 * the modules that were borrowed into `borrowed`. ref_deps: NULL, "" for every missing module, or a
 * list "kv,model". false: exit 3 with the compiler's own lines, their paths relative to dir; exit 2
 * for a module that is none. */
bool ol_build_sources(const ol_setup *setup, const char *dir, const char *ref_deps,
                      char library[4096], char *borrowed, size_t borrowed_cap, ol_fault *fault);

#endif
