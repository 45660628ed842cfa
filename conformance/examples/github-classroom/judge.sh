#!/usr/bin/env bash
# The step of the workflow: judge a folder, annotate, summarize, keep the log.
#   judge.sh OL ENGINE [more options of ol check]
#
# The annotations are the only thing on standard output: a line of an engine that begins with :: would be a command.
set -uo pipefail
ol=$1 engine=$2
shift 2
"$ol" check L10.1 --engine "$engine" --report github --report "md:${GITHUB_STEP_SUMMARY:-summary.md}" \
  --report jsonl:log.jsonl --report html:report.html --report junit:junit.xml "$@"
