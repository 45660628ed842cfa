#!/bin/bash -eu
# Every target, its corpus, dictionary and options into $OUT, with the compilers, flags and engine of OSS-Fuzz's
# base-builder ($SRC, $OUT, $WORK, $CC, $CXX, $CFLAGS, $CXXFLAGS, $LIB_FUZZING_ENGINE). ClusterFuzzLite runs it, too.
set -eu
cd "$SRC/tl"
# The Dockerfile has installed what conformance/tools/deps.sh would.
mkdir -p build && touch build/deps.judge
# The flags come in as the variant; the libraries are linked in, since what runs the targets has none of them, and the
# one that comes without an archive goes along. A target is linked with $CXX, as an engine may be written in C++.
flags=$CFLAGS
unset CFLAGS LDFLAGS
targets=$(python3 fuzz/fuzz.py list --names)
make -s -j"$(nproc)" VARIANT=ossfuzz "CC=$CC" "variant-ossfuzz=$CC $flags" \
  "LIB_FUZZING_ENGINE=$LIB_FUZZING_ENGINE" "fuzz_ld=$CXX ${CXXFLAGS:-$flags}" \
  'FUZZ_LDLIBS=-Wl,-Bstatic -lseccomp -ljansson -lz -Wl,-Bdynamic -lcmocka -ldl -lm -lpthread -Wl,-rpath,$$ORIGIN/lib' \
  $(printf 'build/ossfuzz/bin/fuzz-%s ' $targets)
for target in $targets; do
  cp "build/ossfuzz/bin/fuzz-$target" "$OUT/"
done
mkdir -p "$OUT/lib"
cp "$(ldd "$OUT/fuzz-golden" | awk '/libcmocka/ {print $3}')" "$OUT/lib/"
python3 fuzz/fuzz.py package "$OUT"
