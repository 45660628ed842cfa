#!/usr/bin/env bash
# Judge every folder of a class and make one table, with GNU parallel:
#   class.sh SUBMISSIONS RESULTS [more options of ol check]
#
# SUBMISSIONS/NAME/ holds the module files of one learner. RESULTS gets NAME.jsonl and NAME.html for each, class.html and
# class.csv. Started again it goes on with those that have no finished log. JOBS: how many at a time (all processors).
set -uo pipefail
submissions=$(realpath "$1") results=$(realpath -m "$2")
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export OL=${OL:-$here/../../../build/release/bin/ol}
export results
mkdir -p "$results"

# shellcheck disable=SC2317  # called by parallel
one() {
  local folder=$1
  shift
  local name
  name=$(basename "$folder")
  "$OL" report show "$results/$name.jsonl" 2>/dev/null | grep -q '^verdict .*, exit code [013]:' && return 0
  "$OL" check L10.1 --engine "$folder" -j 1 --report "jsonl:$results/$name.jsonl" \
    --report "html:$results/$name.html" "$@" >"$results/$name.err" 2>&1
  case $? in
    0 | 1 | 3) rm -f "$results/$name.err" ;; # said in the log
    *) echo "$name: $(tail -1 "$results/$name.err")" >&2; return 1 ;;
  esac
}
export -f one

find "$submissions" -mindepth 1 -maxdepth 1 -type d -print0 | sort -z |
  SHELL=/bin/bash parallel -0 -j "${JOBS:-100%}" --will-cite one {} "$@"
failed=$?
# The pattern stands for logs of finished and unfinished runs alike; the table tells them apart.
"$OL" report class "$results"/*.jsonl --html "$results/class.html" --csv "$results/class.csv" || exit
exit $((failed > 0))
