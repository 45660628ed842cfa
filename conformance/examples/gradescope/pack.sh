#!/usr/bin/env bash
# Make autograder.zip for the page "Configure Autograder": setup.sh, run_autograder, policy.json and the project.
#   pack.sh [OUT.zip]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${1:-autograder.zip}")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir "$stage/tl"
git -C "$here/../../.." archive HEAD | tar -x -C "$stage/tl"
cp "$here/setup.sh" "$here/run_autograder" "$here/policy.json" "$stage"
chmod 755 "$stage/setup.sh" "$stage/run_autograder"
rm -f "$out"
/usr/bin/python3 -c 'import shutil, sys; shutil.make_archive(sys.argv[1], "zip", sys.argv[2])' "${out%.zip}" "$stage"
echo "$out"
