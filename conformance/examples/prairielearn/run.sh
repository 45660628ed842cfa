#!/usr/bin/env bash
# Entry point of the external grader: judge /grade/student, write /grade/results/results.json.
#
# Without a results.json PrairieLearn reports the job as failed, which is what a fault of the judge should be; one of an
# earlier run is taken away first.
set -uo pipefail
grade=${GRADE:-/grade}
ol=${OL:-/opt/tl/build/release/bin/ol}
policy=$grade/tests/policy.json
mkdir -p "$grade/results"
rm -f "$grade/results/results.json"
"$ol" check L10.1 --engine "$grade/student" ${POLICY:+--grade "$policy"} \
  --report "prairielearn:$grade/results/results.json" --report text
code=$?
case $code in
  0 | 1 | 3) exit 0 ;;
  *) rm -f "$grade/results/results.json"; exit "$code" ;;
esac
