#!/usr/bin/env bash
# Static analysis of every C file: clang-tidy (.clang-tidy) and cppcheck. Ends with a count. LINT_FILES: only these.
set -uo pipefail
cd "$(dirname "$0")/../.."
mkdir -p build
out=$(mktemp -d build/lint.XXXXXX)
trap 'rm -rf "$out"' EXIT
flags="-std=c11 -D_GNU_SOURCE -Iengine/include -Iengine/src -Iconformance -Ifuzz -ffp-contract=off"
files=${LINT_FILES:-$(git ls-files -c -o --exclude-standard '*.c')}

# One process a file, the large ones first, as many at once as there are cores; what is said about a file is kept
# apart. The path-sensitive analyzer takes nine tenths of the time. It does not look at the engine's unit tests: after
# each of their asserts it doubles its paths, and ASan, MSan and Valgrind run every one of those lines.
export flags out
one() {
  local log=$out/${1//\//_} checks=
  case $1 in engine/tests/*) checks='--checks=-clang-analyzer-*' ;; esac
  clang-tidy --quiet $checks "$1" -- $flags >"$log.log" 2>"$log.err" && touch "$log.ok"
}
export -f one
ls -S $files | xargs -P "$(nproc)" -I{} bash -c 'one "$1"' _ {}
cat "$out"/*.log
passed=$(find "$out" -name '*.ok' | wc -l)
failed=$(($(wc -w <<<"$files") - passed))

# cppcheck sees all files together. Its own limits are switched off by name, with the reason.
#   missingIncludeSystem, checkersReport: about cppcheck's view of the system, not about the code
#   unusedFunction is not asked for: the library is one
if cppcheck --quiet --std=c11 --language=c --error-exitcode=1 --inline-suppr -j "$(nproc)" \
  --enable=warning,portability,performance --suppress=missingIncludeSystem --suppress=checkersReport \
  -D__x86_64__ -Iengine/include -Iengine/src -Iconformance $files; then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
