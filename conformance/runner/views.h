/* views.h: the views that are written in Python (conformance/report/), called with the log.
 *
 * Text, jsonl and junit are made here in C, so that judging needs no Python; every other format,
 * grades and lists of known failures are. The script gets the log on its standard input and answers
 * on its standard output; it sees nothing else of the run, and no engine. */
#ifndef OL_VIEWS_H
#define OL_VIEWS_H

#include "run.h"

/* "tap", "gradescope", ... for a format of --report. */
const char *ol_format_name(ol_format_kind format);
bool ol_format_parse(const char *name, size_t n, ol_format_kind *format);
/* "text, jsonl, junit, ..." */
void ol_format_list(char *text, size_t cap);

/* A view of the log as it stands, with or without its footer. free() it. NULL: the fault is set. */
char *ol_view_make(const ol_run *run, ol_format_kind format, size_t *n_bytes, ol_fault *fault);

/* Are the files of --grade and --expect sound? true when there are none. */
bool ol_rules_check(const ol_run *run, ol_fault *fault);
/* Write grade and expectations into records and footer of the finished run, and settle its exit
 * code by them. Nothing to do without --grade and --expect. */
bool ol_rules_apply(ol_run *run, ol_fault *fault);

/* When the engine failed: which known pitfall does it look like (mutants/)? Into the records'
 * causes and the footer; what keeps it from being said is a line there, and changes no verdict.
 * Nothing to do with --no-hints. */
void ol_pitfalls_find(ol_run *run);

/* Take what is a hint out of the records. */
void ol_hints_remove(ol_run *run);

/* Run a script of the project, below its root, with numpy in reach; what it prints, NUL-ended, to
 * be freed. NULL: the fault, which the script may have named by its exit code and a line. */
char *ol_script_ask(const ol_run *run, const char *script, const char *const *args, size_t n_args,
                    ol_fault *fault);

/* Become a script of the project, below its root, with the rest of the command line. Returns only
 * when that fails: the exit code. */
int ol_script_become(const char *script, int argc, char **argv);

#endif
