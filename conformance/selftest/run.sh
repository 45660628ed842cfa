#!/usr/bin/env bash
# The judge judged: its parts (cmocka), broken goldens, its commands, and the hostile engines: as root and as a
# user, with and without the kernel's filters (HOSTILE_MODES=one: the first of these four only). BUILD: where bin/ and
# lib/ are. Ends with one line of counts.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD:-build/release}
out=$(mktemp -d "${TMPDIR:-/tmp}/ol-selftest.XXXXXX")
trap 'rm -rf "$out"' EXIT
passed=0 failed=0 skipped=0

# What a part prints last is its count; a part that ends without one has failed.
part() {
  local name=$1 line
  shift
  "$@" >"$out/log" 2>&1
  local status=$?
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$out/log" | tail -1)
  if [ -z "$line" ]; then
    line="0 passed, 1 failed"
    tail -20 "$out/log"
  fi
  read -r p _ f _ s _ <<<"${line//,/}"
  if [ "$f" = 0 ] && [ "$status" != 0 ]; then
    f=1
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + ${s:-0}))
  grep -E '^(FAIL|skipped)' "$out/log"
  echo "$name: $line"
}

# A program of cmocka: its TAP lines are counted, and must be as many as planned.
unit() {
  local name=$1
  shift
  cc -std=c11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all \
    -ffp-contract=off "conformance/selftest/$name.c" "$@" -o "$out/$name" -lcmocka -ljansson -lm || return 1
  CMOCKA_MESSAGE_OUTPUT=TAP "$out/$name" >"$out/tap" 2>"$out/err"
  local status=$? plan good bad
  plan=$(sed -n 's/^1\.\.//p' "$out/tap")
  good=$(grep -c '^ok ' "$out/tap")
  bad=$((${plan:-1} - good))
  grep '^not ok' "$out/tap" | sed 's/^/FAIL /'
  [ "$bad" = 0 ] && [ "$status" = 0 ] || cat "$out/err"
  echo "$good passed, $bad failed"
  return "$status"
}

r=conformance/runner
part "comparisons" unit test_compare $r/compare.c
part "terms of refusals" unit test_terms $r/terms.c
part "parts" unit test_parts $r/judge.c $r/sha256.c $r/wire.c
part "broken goldens" python3 conformance/selftest/goldens.py "$build"
part "commands" python3 conformance/selftest/commands.py "$build"
part "folders of sources" python3 conformance/selftest/sources.py "$build"
if [ "${FRESH:-1}" = 1 ]; then # 0: the whole of it is run elsewhere
  part "fresh inputs, in part" python3 conformance/selftest/fresh.py "$build" wrong_engine_fails interruption usage
fi
part "hostile engines" python3 conformance/selftest/hostile.py "$build"
if [ "${HOSTILE_MODES:-all}" = all ]; then
  part "hostile engines, as a user" python3 conformance/selftest/hostile.py "$build" --user
  part "hostile engines, bare kernel" python3 conformance/selftest/hostile.py "$build" --bare
  part "hostile engines, bare kernel, as a user" python3 conformance/selftest/hostile.py "$build" --bare --user
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
