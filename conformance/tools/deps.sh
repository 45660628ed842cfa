#!/usr/bin/env bash
# Install the Debian packages of the named groups (judge, check) that are missing, and say so. Works as root or with
# sudo. TL_NO_INSTALL=1: only say what is missing and what to type.
set -euo pipefail

judge='gcc libc6-dev make pkg-config libcmocka-dev libjansson-dev zlib1g-dev libseccomp-dev'
check="$judge patch g++ clang clang-tidy clang-format cppcheck libclang-rt-14-dev llvm valgrind gcovr gdb parallel
  python3 python3-numpy git"

wanted=
for group in "$@"; do
  case $group in
    judge) wanted+=" $judge" ;;
    check) wanted+=" $check" ;;
    *) echo "deps.sh: no group '$group': judge or check" >&2; exit 2 ;;
  esac
done

# A package can be there for other architectures too, a line each; this machine's own counts.
arch=$(dpkg --print-architecture 2>/dev/null || true)
missing=
for package in $wanted; do
  states=$(dpkg-query -W -f '${Architecture} ${db:Status-Status}\n' "$package" 2>/dev/null || true)
  grep -qE "^(all|$arch) installed$" <<<"$states" || missing+=" $package"
done
[ -n "$missing" ] || exit 0
missing=$(tr ' ' '\n' <<<"$missing" | sort -u | tr '\n' ' ')

if ! command -v apt-get >/dev/null; then
  echo "These Debian packages (or their like on this system) are missing:$missing" >&2
  exit 1
fi
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
install="$as_root apt-get install -y --no-install-recommends $missing"
if [ "${TL_NO_INSTALL:-0}" = 1 ]; then
  echo "Missing packages. Type: $install" >&2
  exit 1
fi
if [ -n "$as_root" ] && ! command -v sudo >/dev/null; then
  echo "Missing packages, and neither root nor sudo. As root, type: ${install#sudo }" >&2
  exit 1
fi
echo "Installing Debian packages: $missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -q >/dev/null
mkdir -p build
$install >build/apt.log 2>&1 || { tail -20 build/apt.log >&2; exit 1; }
