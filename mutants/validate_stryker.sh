#!/bin/sh
# Ask the schema itself: does REPORT (of --report stryker:REPORT) satisfy npm's mutation-testing-report-schema?
# Needs npm, the network and python3-jsonschema; not part of `make check`, which checks the structure.
set -eu
report=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent mutation-testing-report-schema@3 >/dev/null
tar xzf mutation-testing-report-schema-*.tgz
schema=$(find package -name 'mutation-testing-report-schema.json' | head -n 1)
/usr/bin/python3 -c 'import json, sys, jsonschema
jsonschema.validate(json.load(open(sys.argv[1])), json.load(open(sys.argv[2])))
print("valid")' "$report" "$schema"
