#!/usr/bin/env bash
# Static analysis of every C file: clang-tidy (.clang-tidy) and cppcheck. Ends with a count. LINT_FILES: only these.
#
# A file that was clean is not looked at again while it, what it includes, the rules and the tools stay as they are:
# build/lint/ keeps the hash of all that for each file. A finding is shown until it is gone.
set -uo pipefail
cd "$(dirname "$0")/../.."
kept=build/lint
mkdir -p $kept
out=$(mktemp -d build/lint.XXXXXX)
trap 'rm -rf "$out"' EXIT
flags="-std=c11 -D_GNU_SOURCE -Iengine/include -Iengine/src -Iconformance -Ifuzz -ffp-contract=off"
files=${LINT_FILES:-$(git ls-files -c -o --exclude-standard '*.c')}
rules=$(cat .clang-tidy conformance/tools/lint.sh <(clang-tidy --version) | sha256sum)

# One process a file, the large ones first, as many at once as there are cores; what is said about a file is kept
# apart. The path-sensitive analyzer takes nine tenths of the time. It does not look at the engine's unit tests: after
# each of their asserts it doubles its paths, and ASan, MSan and Valgrind run every one of those lines.
export flags out kept rules
one() {
  local name=${1//\//_} checks= read_files key
  case $1 in engine/tests/*) checks='--checks=-clang-analyzer-*' ;; esac
  # What the preprocessor reads of ours; a file that it cannot read through is clang-tidy's to tell.
  read_files=$(clang $flags -MM "$1" 2>/dev/null | tr -d '\\' | cut -d: -f2-) || read_files=
  key=$(cat $read_files <(echo "$rules $1") | sha256sum)
  if [ -n "$read_files" ] && [ "$key" = "$(cat "$kept/$name" 2>/dev/null)" ]; then
    touch "$out/$name.ok"
  elif clang-tidy --quiet $checks "$1" -- $flags >"$out/$name.log" 2>"$out/$name.err"; then
    echo "$key" >"$kept/$name"
    touch "$out/$name.ok"
  else
    grep -q error: "$out/$name.log" || cat "$out/$name.err" >>"$out/$name.log"
  fi
}
export -f one
ls -S $files | xargs -P "$(nproc)" -I{} bash -c 'one "$1"' _ {}
cat "$out"/*.log 2>/dev/null
passed=$(find "$out" -name '*.ok' | wc -l)
failed=$(($(wc -w <<<"$files") - passed))

# cppcheck sees all files of a program together and keeps what it found of each; the examples are other programs, with
# functions of the same names. Its own limits are switched off by name:
#   missingIncludeSystem, checkersReport: about cppcheck's view of the system, not about the code
#   unusedFunction is not asked for: the library is one
together() {
  local store=$kept/cppcheck-$1
  shift
  mkdir -p "$store"
  if [ $# = 0 ] || cppcheck --quiet --std=c11 --language=c --error-exitcode=1 --inline-suppr -j "$(nproc)" \
    --cppcheck-build-dir="$store" --enable=warning,portability,performance --suppress=missingIncludeSystem \
    --suppress=checkersReport -D__x86_64__ -Iengine/include -Iengine/src -Iconformance "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
}
together project $(tr ' ' '\n' <<<"$files" | grep -v '/examples/')
together examples $(tr ' ' '\n' <<<"$files" | grep '/examples/')
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
