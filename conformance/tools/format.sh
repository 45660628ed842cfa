#!/usr/bin/env bash
# Every C file is as clang-format leaves it. `make format` mends.
set -euo pipefail
cd "$(dirname "$0")/../.."
git ls-files -z -c -o --exclude-standard '*.c' '*.h' | xargs -0 clang-format --dry-run -Werror
