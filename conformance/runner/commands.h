/* commands.h: the subcommands of `ol`. Each takes the whole command line, argv[1] being its name,
 * and returns the exit code. */
#ifndef OL_COMMANDS_H
#define OL_COMMANDS_H

#include "run.h"

int ol_cmd_check(int argc, char **argv);
int ol_cmd_tests(int argc, char **argv);
int ol_cmd_parity(int argc, char **argv);
int ol_cmd_golden(int argc, char **argv);
int ol_cmd_explain(int argc, char **argv);
int ol_cmd_doctor(int argc, char **argv);
int ol_cmd_report(int argc, char **argv);
int ol_cmd_start(int argc, char **argv);
int ol_cmd_mutants(int argc, char **argv);
int ol_cmd_fuzz(int argc, char **argv);
int ol_cmd_coverage(int argc, char **argv);

/* The module that every command may be told, "L10.1", is taken off the words; another one is a
 * usage fault. */
bool ol_take_module(ol_options *o, ol_fault *fault);

/* Paths and catalogue, and the folders of goldens: the parts of what follows. */
bool ol_setup_catalog(ol_run *run, const ol_options *o, ol_fault *fault);
bool ol_setup_sources(ol_run *run, const ol_options *o, ol_fault *fault);
/* Fill a run from its options as far as it needs no engine: paths, catalogue, selection, limits;
 * then the goldens, which --fresh draws, and the sandbox. */
bool ol_setup_begin(ol_run *run, const ol_options *o, ol_fault *fault);
bool ol_setup_goldens(ol_run *run, ol_fault *fault);
/* Draw the folder of goldens of --fresh into the run's directory; its path. */
bool ol_fresh_draw(ol_run *run, char dir[4200], ol_fault *fault);
/* The run's directory and the engine in it. */
bool ol_setup_engine(ol_run *run, ol_fault *fault);
/* Remove the run's directory, free everything. */
void ol_setup_close(ol_run *run);

#endif
