"""f16.vectors.json: f32 to f16 by an integer oracle, and its edges.

Rounding is done on exact integers (a 24-bit significand and an exponent), nearest with ties to
even; nothing is taken from a float library.  The oracle is held against struct's own "e" format,
another implementation, on every value of the file before it is written.
"""

import os
import random
import struct

import vectors as v


def f16_of_f32(bits):
    """The bits of the f16 nearest to an f32 given by its bits; NaN gives a quiet NaN."""
    sign = bits >> 16 & 0x8000
    exponent = bits >> 23 & 0xFF
    fraction = bits & 0x7FFFFF
    if exponent == 0xFF:
        return sign | (0x7E00 if fraction else 0x7C00)
    significand = fraction | (0x800000 if exponent else 0)
    scale = max(exponent, 1) - 150              # value = significand * 2^scale
    unit = max(max(exponent, 1) - 127, -14) - 10  # the f16 step around this value
    drop = unit - scale                          # always at least 13: f16 steps are coarser
    units = significand >> drop
    rest = significand - (units << drop)
    half = 1 << (drop - 1)
    if rest > half or rest == half and units & 1:
        units += 1
    if units >= 1 << 11:                         # a carry into the next binade
        units >>= 1
        unit += 1
    if units < 1 << 10:
        return sign | units                      # subnormal, unit is 2^-24
    biased = unit + 10 + 15
    return sign | (0x7C00 if biased >= 31 else biased << 10 | units & 0x3FF)


def f32_of_f16(bits):
    """The bits of the f32 that equals an f16."""
    sign = (bits & 0x8000) << 16
    exponent = bits >> 10 & 31
    fraction = bits & 0x3FF
    if exponent == 31:
        return sign | 0x7F800000 | fraction << 13
    if exponent:
        return sign | (exponent + 112) << 23 | fraction << 13
    if fraction == 0:
        return sign
    shift = 11 - fraction.bit_length()
    return sign | (113 - shift) << 23 | (fraction << shift & 0x3FF) << 13


def truncated(bits):
    """Mutant s08: the bits below the f16's are cut off."""
    up = f16_of_f32(bits)
    if up & 0x7C00 == 0x7C00 and bits & 0x7F800000 != 0x7F800000:
        up = up & 0x8000 | 0x7BFF
    value, got = (struct.unpack(">f", struct.pack(">I", b & 0x7FFFFFFF))[0]
                  for b in (bits, f32_of_f16(up)))
    return up - 1 if got > value else up


def check_oracle(bits):
    """The struct module must agree; it refuses what overflows, so those are left to the oracle."""
    value = struct.unpack(">f", struct.pack(">I", bits))[0]
    want = f16_of_f32(bits)
    if value != value:
        assert want & 0x7C00 == 0x7C00 and want & 0x3FF
        return
    try:
        got = int.from_bytes(struct.pack(">e", value), "big")
    except OverflowError:
        got = (want & 0x8000) | 0x7C00
    assert got == want, f"{bits:08x}: oracle {want:04x}, struct {got:04x}"


def midpoint(h):
    """The f32 halfway between the finite positive f16 h and the next one (exact: 12 bits)."""
    low = struct.unpack(">f", struct.pack(">I", f32_of_f16(h)))[0]
    step = 2.0 ** (max(h >> 10, 1) - 25)
    return struct.unpack(">I", struct.pack(">f", low + step / 2))[0]


def around(bits):
    return [bits - 1, bits, bits + 1]


def both_signs(values):
    return [s | b for b in values for s in (0, 0x80000000)]


def cases(seed):
    rng = random.Random(f"f16-{seed}")
    carry = [h for e in range(0, 31) for h in (e << 10 | 0x3FF, e << 10 | 0x3FE, e << 10)
             if h < 0x7BFF]
    subnormal = sorted({*range(0, 40), *range(0x3C0, 0x400), *rng.sample(range(0x400), 60)})
    normal = sorted(rng.sample(range(0x400, 0x7BFF), 220))
    top = struct.unpack(">I", struct.pack(">f", 65520.0))[0]
    nans = [0x7F800001, 0x7F801000, 0x7F802000, 0x7FC00000, 0x7FFFFFFF, 0x7F801FFF, 0x7FBFFFFF]
    words = [rng.getrandbits(32) for _ in range(400)]
    near = [(rng.randrange(100, 145) << 23 | rng.getrandbits(23)) | (rng.getrandbits(1) << 31)
            for _ in range(600)]
    return [
        ("worked", "1 + 2^-11 gives 3c00, 1 + 3 x 2^-11 gives 3c02", ["ties"],
         [0x3F801000, 0x3F803000, 0x3F800000, 0x3F802000]),
        ("ties-normal", "halfway between neighbours, and one f32 step to either side", ["ties"],
         both_signs(b for h in normal for b in around(midpoint(h)))),
        ("ties-carry", "halfway at the ends of every binade: the carry reaches the exponent",
         ["carry"], both_signs(b for h in carry for b in around(midpoint(h)))),
        ("overflow", "65504 to 65536: 65519.996 is the last finite one, 65520 ties to infinity",
         ["overflow"], both_signs([0x477FE000, 0x477FE001, top - 2, top - 1, top, top + 1,
                                   0x47800000, 0x47FFFFFF, 0x7F7FFFFF, 0x7F800000])),
        ("subnormal", "halfway between subnormals, down to 2^-25, which ties to zero",
         ["subnormal"], both_signs(b for h in subnormal for b in around(midpoint(h)))),
        ("subnormal-exact", "every bit of the subnormal range and its border to the normal one",
         ["subnormal"], both_signs([f32_of_f16(1 << i) for i in range(11)] +
                                   [f32_of_f16(h) for h in (3, 0x3FF, 0x3FE, 0x401, 0x2AA)])),
        ("vanishing", "below 2^-25 and f32 subnormals: signed zero", ["subnormal"],
         both_signs([0, 1, 2, 0x400000, 0x7FFFFF, 0x800000, 0x32FFFFFF, 0x33000000, 0x33000001,
                     0x33800000, 0x33C00000, 0x33BFFFFF])),
        ("nan", "a NaN stays a NaN, whichever bits it has", ["nan"], both_signs(nans)),
        ("drawn-bits", "any 32 bits", ["ties"], words),
        ("drawn-range", "drawn in and around the f16 range", ["ties"], near),
        ("cache-values", "what keys and values look like", ["ties"],
         [struct.unpack(">I", struct.pack(">f", v.round_f32(rng.gauss(0.0, 2.0))))[0]
          for _ in range(300)]),
    ]


NOTES = {
    "ties": v.note("f16 is truncated, or ties go up or away from zero instead of to even.",
                   "Half of all keys and values are off by one step.", ["s08"]),
    "carry": v.note("The rounding carry is joined by OR, or kept out of the exponent.",
                    "Values just below a power of two collapse to the one below.", ["s08"]),
    "overflow": v.note("Overflow starts at 65504 or at 65536, saturates, or wraps.",
                       "Large values become infinities too early, too late or not at all.",
                       ["s08"]),
    "subnormal": v.note("Subnormals are flushed to zero, or rounded at the wrong bit.",
                        "Small values vanish or are off by one step.", ["s08"]),
    "nan": v.note("A NaN whose upper mantissa bits are zero is cut to an infinity.",
                  "A poisoned value turns into a number that compares."),
}


def main(argv=None):
    args = v.arguments(__doc__.split("\n")[0], argv)
    entries = []
    for name, comment, flags, words in cases(args.seed):
        for bits in words:
            check_oracle(bits)
        entries.append({"id": name, "comment": comment, "flags": flags,
                        "f32": [v.u32hex(b) for b in words],
                        "f16": [v.f16hex(f16_of_f32(b)) for b in words]})
        if "s08" in NOTES[flags[0]]["mutants"]:
            assert any(truncated(b) != f16_of_f32(b) for b in words
                       if b & 0x7FFFFFFF <= 0x7F800000) or name == "subnormal-exact", name
    for h in range(0x10000):
        if h & 0x7C00 != 0x7C00 or h & 0x3FF == 0:
            assert f16_of_f32(f32_of_f16(h)) == h
    v.write_vectors(os.path.join(args.out, "f16.vectors.json"), "f16",
                    v.generator_info("gen/f16.py", v.command_of("f16.py", args)),
                    {"name": "integer oracle, checked against Python's struct", "version": "1",
                     "dtype": "f16", "device": "cpu"},
                    v.bits_tolerance("rounding to nearest with ties to even is exact; any NaN for "
                                     "a NaN"),
                    NOTES, [{"name": "round", "cases": entries}])


if __name__ == "__main__":
    main()
