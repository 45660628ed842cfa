#!/usr/bin/env bash
# Runs once, when Gradescope builds the image of the autograder: packages and the judge.
# Tried on Debian 12; Gradescope's images are Ubuntu, which has the same packages by the same names.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends gcc libc6-dev make pkg-config libcmocka-dev libjansson-dev \
  zlib1g-dev libseccomp-dev python3 python3-numpy
make -C "${AUTOGRADER:-/autograder}/source/tl" all
