#!/usr/bin/env bash
# Judge a folder in the container, with no network and nothing writable but the results:
#   run.sh SUBMISSION RESULTS [more options of ol check]
#
# It runs as root inside, which lets the judge drop each engine to a uid of its own; --cap-drop leaves it just what that
# takes. DOCKER=docker works as well.
set -euo pipefail
submission=$(realpath "$1") results=$(realpath "$2")
shift 2
exec "${DOCKER:-podman}" run --rm --network none --read-only --tmpfs /tmp:exec,size=2g --pids-limit 512 --memory 3g \
  --cap-drop ALL --cap-add SETUID --cap-add SETGID --cap-add CHOWN --cap-add KILL --cap-add DAC_OVERRIDE \
  --cap-add FOWNER -v "$submission:/work/engine:ro" -v "$results:/results" "${IMAGE:-tl-judge}" \
  check L10.1 --engine /work/engine --report jsonl:/results/log.jsonl --report html:/results/report.html "$@"
