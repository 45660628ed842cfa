/* report.h: the views of a log, and how they get to their place.
 *
 * A report that goes to a file exists from the first moment, as a stub that says so; it is replaced
 * in one step by the finished one. A place that cannot be written is the judge's own fault (exit
 * 70) and leaves no half file; what a killed run leaves beside it, the next writer removes. */
#ifndef OL_REPORT_H
#define OL_REPORT_H

#include "run.h"

#include <stdio.h>

/* The finished view, or with stub=true the one that says the run is not finished. free() it; NULL
 * without memory. */
char *ol_report_make(const ol_run *run, ol_format_kind format, bool stub, size_t *n_bytes);

/* Write all reports of the options that go to files (stub) or all that are left (finished). */
bool ol_reports_stub(const ol_run *run, ol_fault *fault);
bool ol_reports_write(const ol_run *run, ol_fault *fault);

/* report_text.c: the text view prints as it goes when it stands on standard output. */
char *ol_text_final(const ol_run *run, size_t *n_bytes);
void ol_text_begin(const ol_run *run, FILE *to);
void ol_text_end(const ol_run *run, FILE *to);
void ol_text_progress(FILE *to, const ol_run *run, const json_t *record, size_t n_done);

/* report_junit.c */
char *ol_junit_make(const ol_run *run, bool stub, size_t *n_bytes);

#endif
