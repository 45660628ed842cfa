/* cmd_report.c: `ol report`, `start`, `mutants`, `fuzz` and `coverage`: commands that are scripts
 * of the project. No engine runs in them. */
#include "commands.h"
#include "views.h"

int ol_cmd_report(int argc, char **argv) {
    return ol_script_become("conformance/report/ol_report.py", argc, argv);
}

int ol_cmd_start(int argc, char **argv) {
    return ol_script_become("conformance/start/start.py", argc, argv);
}

int ol_cmd_mutants(int argc, char **argv) {
    return ol_script_become("mutants/mutants.py", argc, argv);
}

int ol_cmd_fuzz(int argc, char **argv) {
    return ol_script_become("fuzz/fuzz.py", argc, argv);
}

int ol_cmd_coverage(int argc, char **argv) {
    return ol_script_become("conformance/tools/coverage.py", argc, argv);
}
