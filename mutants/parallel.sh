#!/bin/sh
# The mutants in N shards by GNU parallel, on this machine or on others, and merged.
#
#   mutants/parallel.sh N [arguments of ol mutants]     e.g. mutants/parallel.sh 2 all --matrix
#   SSHLOGIN=host1,host2,: mutants/parallel.sh 8 all    the project at the same path on each host, built there
#
# A failed shard does not stop the others; the merge refuses what is not whole. --resume takes up where it ended.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
n=$1
shift
out=${OUT:-$root/build/mutants/shards}
mkdir -p "$out"
rm -f "$out"/shard-*.json
status=0
seq "$n" | parallel --will-cite --sshlogin "${SSHLOGIN:-:}" --joblog "$out/joblog" --jobs "${JOBS:-1}" \
  --workdir "$root" --quote \
  /usr/bin/python3 mutants/mutants.py "$@" --shard "{}/$n" --report "json:$out/shard-{}.json" >"$out/output" 2>&1 ||
  status=$?
# Exit codes of shards count in the merged result, too: it is computed from what they found.
[ "$(ls "$out"/shard-*.json 2>/dev/null | wc -l)" -gt 0 ] || { cat "$out/output"; exit "$status"; }
# shellcheck disable=SC2086 # MERGE_ARGS is a list of words
exec /usr/bin/python3 "$root/mutants/mutants.py" merge "$out"/shard-*.json ${MERGE_ARGS:-} \
  --report "json:$out/matrix.json" --report text
