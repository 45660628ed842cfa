#!/usr/bin/env bash
# The library as others get it: every exported symbol is tl_'s, each header stands alone (C11, gcc and clang, and C++17),
# and a program builds and runs from an installed copy through pkg-config, shared and static. Ends with a count.
set -uo pipefail
cd "$(dirname "$0")/../.."
passed=0 failed=0
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
try() {
  local what=$1
  shift
  if "$@" >"$root/log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "failed: $what"
    sed 's/^/    /' "$root/log" | head -20
  fi
}

only_tl() {
  nm -D --defined-only build/release/lib/libtl.so | awk '$3 !~ /^tl_/ {print; bad = 1} END {exit bad}'
}
all_declared() { # what the headers declare is exported, and nothing else
  grep -ohE 'tl_[a-z0-9_]+\(' engine/include/tl/*.h | tr -d '(' | sort -u >"$root/declared"
  nm -D --defined-only build/release/lib/libtl.so | awk '{print $3}' | sort -u >"$root/exported"
  comm -13 "$root/declared" "$root/exported" | awk '{print "exported, not declared: " $0; bad = 1} END {exit bad}'
}
try "make" make -s all
try "only tl_ symbols leave the library" only_tl
try "exported symbols are declared ones" all_declared
for header in engine/include/tl/*.h; do
  for cc in gcc clang; do
    try "$header alone, $cc" $cc -std=c11 -Wall -Wextra -Wpedantic -Werror -Iengine/include -fsyntax-only -x c "$header"
  done
  try "$header alone, C++" g++ -std=c++17 -Wall -Wextra -Werror -Iengine/include -fsyntax-only -x c++ "$header"
done
try "make install" make -s install DESTDIR="$root/stage" PREFIX=/opt/tl
try "the pkg-config file" test -s "$root/stage/opt/tl/lib/pkgconfig/libtl.pc"
sed -i "s|^prefix=.*|prefix=$root/stage/opt/tl|" "$root/stage/opt/tl/lib/pkgconfig/libtl.pc"
export PKG_CONFIG_PATH=$root/stage/opt/tl/lib/pkgconfig
try "a program on the shared library" bash -c \
  "gcc -std=c11 engine/examples/hello.c \$(pkg-config --cflags --libs libtl) -o $root/shared"
try "a program on the static library" bash -c "gcc -std=c11 engine/examples/hello.c \$(pkg-config --cflags libtl) \
  $root/stage/opt/tl/lib/libtl.a \$(pkg-config --static --libs-only-l libtl | sed 's/-ltl //') -o $root/static"
model=goldens/models/bigram
try "the shared program runs" env LD_LIBRARY_PATH="$root/stage/opt/tl/lib" "$root/shared" $model a
try "the static program runs" "$root/static" $model a
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
