"""linear.vectors.json: the dot product of conformance/spec/forward.md in exact arithmetic.

Eight lanes from +0; lane k mod 8 takes fma(a[k], b[k], lane); then ((0+4)+(2+6)) + ((1+5)+(3+7)).
Every fma and every sum is an exact integer multiple of a power of two, rounded once to f32, nearest
with ties to even, with subnormals, signed zeros and overflow.  No float operation is involved.
Other orders of summation (BUGS) must change at least one output, or the file is not written.
"""

import os
import random
import struct
from fractions import Fraction

import f16
import int4
import vectors as v

INF = 0x7F800000
NAN = 0x7FC00000
SIGN = 0x80000000
BUGS = {"no-fma": "product and sum rounded apart", "sequential": "one lane",
        "lanes-4": "four lanes", "lanes-16": "sixteen lanes", "tree": "lanes added in order",
        "flush": "subnormals flushed to zero", "tail": "the tail summed after the tree",
        "f64": "summed in f64, rounded at the end", "descending": "k descending"}


# A finite value is (sign, integer, exponent): exact, and keeps the sign of zero.

def parts(bits):
    exponent = bits >> 23 & 0xFF
    fraction = bits & 0x7FFFFF
    integer = fraction | (0x800000 if exponent else 0)
    return bits >> 31, integer, max(exponent, 1) - 150


def encode(sign, integer, exponent):
    """The f32 nearest to integer * 2^exponent (integer >= 0), ties to even."""
    if integer == 0:
        return sign << 31
    unit = max(integer.bit_length() + exponent - 24, -149)
    drop = unit - exponent
    if drop <= 0:
        units = integer << -drop
    else:
        units = integer >> drop
        rest = integer - (units << drop)
        half = 1 << (drop - 1)
        if rest > half or rest == half and units & 1:
            units += 1
    if units == 1 << 24:
        units >>= 1
        unit += 1
    if units < 1 << 23:
        return sign << 31 | units
    biased = unit + 150
    return sign << 31 | (INF if biased >= 255 else biased << 23 | units & 0x7FFFFF)


def is_nan(bits):
    return bits & 0x7FFFFFFF > INF


def is_inf(bits):
    return bits & 0x7FFFFFFF == INF


def exact_sum(terms):
    """Rounds the sum of finite exact terms; an exact zero is -0 only when every term is -0."""
    low = min(e for _, _, e in terms)
    total = sum((-n if s else n) << (e - low) for s, n, e in terms)
    if total == 0:
        return SIGN if all(s for s, _, _ in terms) else 0
    return encode(int(total < 0), abs(total), low)


def special_sum(signs):
    """Infinities of these signs added: NaN when they differ."""
    return NAN if len(signs) > 1 else signs.pop() << 31 | INF


def add(a, b):
    if is_nan(a) or is_nan(b):
        return NAN
    infinite = {x >> 31 for x in (a, b) if is_inf(x)}
    return special_sum(infinite) if infinite else exact_sum([parts(a), parts(b)])


def fma(a, b, c):
    if is_nan(a) or is_nan(b) or is_nan(c):
        return NAN
    sign = (a ^ b) >> 31
    if is_inf(a) or is_inf(b):
        if a & 0x7FFFFFFF == 0 or b & 0x7FFFFFFF == 0:
            return NAN
        return special_sum({sign} | ({c >> 31} if is_inf(c) else set()))
    if is_inf(c):
        return c
    (_, na, ea), (_, nb, eb) = parts(a), parts(b)
    return exact_sum([(sign, na * nb, ea + eb), parts(c)])


def tree(lanes):
    return add(add(add(lanes[0], lanes[4]), add(lanes[2], lanes[6])),
               add(add(lanes[1], lanes[5]), add(lanes[3], lanes[7])))


def dot(a, b):
    lanes = [0] * 8
    for k in range(len(a)):
        lanes[k % 8] = fma(a[k], b[k], lanes[k % 8])
    return tree(lanes)


def flushed(bits):
    return bits & SIGN if bits & 0x7F800000 == 0 else bits


def wrong_dot(a, b, bug):
    """What plausible other kernels compute; none of them follows the page's order."""
    n = len(a)
    if bug == "f64":
        total = exact_sum([(x >> 31 ^ y >> 31, parts(x)[1] * parts(y)[1],
                            parts(x)[2] + parts(y)[2]) for x, y in zip(a, b)])
        return total
    width = {"sequential": 1, "lanes-4": 4, "lanes-16": 16}.get(bug, 8)
    lanes = [0] * width
    whole = n - n % width if bug == "tail" else n
    order = range(whole - 1, -1, -1) if bug == "descending" else range(whole)
    for k in order:
        lane = lanes[k % width]
        if bug == "no-fma":
            lanes[k % width] = add(fma(a[k], b[k], SIGN), lane)
        elif bug == "flush":
            lanes[k % width] = flushed(fma(flushed(a[k]), flushed(b[k]), lane))
        else:
            lanes[k % width] = fma(a[k], b[k], lane)
    if width == 8 and bug != "tree":
        total = tree(lanes)
    elif width == 16:
        total = tree([add(lanes[i], lanes[i + 8]) for i in range(8)])
    else:
        total = lanes[0]
        for lane in lanes[1:]:
            total = add(total, lane)
    for k in range(whole, n):
        total = fma(a[k], b[k], total)
    return flushed(total) if bug == "flush" else total


# -------------------------------------------------------------------------------- weights

def widen(dtype, words):
    if dtype == "f32":
        return list(words)
    if dtype == "bf16":
        return [w << 16 for w in words]
    return [f16.f32_of_f16(w) for w in words]


def int4_values(scales, q, group):
    """q * s as f32 bits: at most 15 significant bits and far from the f32 limits, so exact."""
    return [f32_product(value, f16.f32_of_f16(scales[i // group])) for i, value in enumerate(q)]


def f32_product(q, s):
    sign, integer, exponent = parts(s)
    return encode(int(q < 0) ^ sign, abs(q) * integer, exponent)


class Problem:
    def __init__(self, name, comment, flags, dtype, stored, x, n_out, n_in, m):
        self.name, self.comment, self.flags, self.dtype = name, comment, flags, dtype
        self.stored, self.x, self.n_out, self.n_in, self.m = stored, x, n_out, n_in, m

    def weights(self):
        if self.dtype == "int4":
            return int4_values(*self.stored)
        return widen(self.dtype, self.stored)

    def y(self, rule=dot):
        w = self.weights()
        k = self.n_in
        return [rule(self.x[r * k:(r + 1) * k], w[o * k:(o + 1) * k])
                for r in range(self.m) for o in range(self.n_out)]

    def json(self):
        case = {"id": self.name, "comment": self.comment, "flags": self.flags,
                "dtype": self.dtype}
        if self.dtype == "int4":
            scales, q, group = self.stored
            case.update(qweight=int4.pack(q, self.n_in).hex(), scales=v.f16list(scales),
                        group=group)
        else:
            write = v.u32hex if self.dtype == "f32" else v.f16hex
            case["weights"] = [write(w) for w in self.stored]
        return {**case, "x": [v.u32hex(b) for b in self.x], "n_out": self.n_out,
                "n_in": self.n_in, "m": self.m, "y": [v.u32hex(b) for b in self.y()]}


def bits_of(value):
    return int.from_bytes(struct.pack(">f", v.round_f32(value)), "big")


def drawn(rng, n, scale=1.0):
    return [bits_of(rng.gauss(0.0, scale)) for _ in range(n)]


def stored_as(dtype, words):
    if dtype == "f32":
        return words
    if dtype == "bf16":
        return [w >> 16 for w in words]
    return [f16.f16_of_f32(w) for w in words]


def int4_stored(rng, n_out, n_in, group, scales=None):
    count = n_out * n_in // group
    scales = scales or [rng.randrange(0x1000, 0x3000) for _ in range(count)]
    return scales, [rng.randrange(-8, 8) for _ in range(n_out * n_in)], group


def shaped(rng):
    """Every shape that a kernel could treat apart: tails, single rows, tiles and one beyond."""
    out = []
    for n_in in (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 23, 31, 33, 64, 100):
        out.append(Problem(f"f32-k{n_in}", f"K = {n_in}", ["tail", "lanes"], "f32",
                           drawn(rng, 3 * n_in), drawn(rng, 2 * n_in), 3, n_in, 2))
    for n_out, n_in, m in ((1, 24, 1), (2, 11, 3), (5, 19, 4), (17, 12, 1), (16, 16, 7),
                           (33, 10, 2), (9, 40, 6), (4, 257, 5), (7, 13, 16), (1, 8, 33)):
        out.append(Problem(f"f32-{n_out}x{n_in}-m{m}", "rows and outputs beyond any tile",
                           ["tiles", "lanes"], "f32", drawn(rng, n_out * n_in),
                           drawn(rng, m * n_in), n_out, n_in, m))
    for dtype in ("bf16", "f16"):
        for n_out, n_in, m in ((3, 7, 1), (5, 16, 2), (4, 33, 3), (18, 9, 1), (2, 130, 4)):
            out.append(Problem(f"{dtype}-{n_out}x{n_in}-m{m}", f"{dtype} widened exactly",
                               ["widening", "tail"], dtype,
                               stored_as(dtype, drawn(rng, n_out * n_in)), drawn(rng, m * n_in),
                               n_out, n_in, m))
    for n_out, n_in, m, group in ((1, 4, 1, 4), (3, 8, 2, 2), (4, 12, 3, 6), (5, 32, 1, 16),
                                  (2, 40, 4, 10), (6, 64, 5, 32), (17, 16, 2, 8),
                                  (2, 130, 3, 26)):
        out.append(Problem(f"int4-{n_out}x{n_in}-g{group}-m{m}", f"groups of {group}",
                           ["int4-groups"], "int4", int4_stored(rng, n_out, n_in, group),
                           drawn(rng, m * n_in), n_out, n_in, m))
    return out


def edges(rng):
    tiny = [rng.getrandbits(23) | rng.getrandbits(1) << 31 for _ in range(48)]
    small = [(rng.randrange(1, 40) << 23 | rng.getrandbits(23)) | rng.getrandbits(1) << 31
             for _ in range(48)]
    near_one = [bits_of(rng.uniform(0.5, 2.0) * rng.choice((1, -1))) for _ in range(24)]
    big, one = 0x7F7FFFFF, 0x3F800000
    cancel = drawn(rng, 16, 1000.0)
    halves = [bits_of(1.0 + (2 * rng.randrange(2048) + 1) * 2.0 ** -12) for _ in range(8)]
    f16_sub = [rng.randrange(1, 0x400) | rng.getrandbits(1) << 15 for _ in range(24)]
    out = [
        Problem("subnormal-weights", "subnormal weights, x near 1", ["subnormal"], "f32",
                tiny, near_one, 2, 24, 1),
        Problem("subnormal-results", "products and sums that underflow", ["subnormal"], "f32",
                small, [bits_of(2.0 ** -30 * rng.uniform(-2, 2)) for _ in range(24)], 2, 24, 1),
        Problem("half-of-least", "products that tie between 0 and the least subnormal",
                ["subnormal", "zero-sign"], "f32", [1, 2, 3, 1 | SIGN, 3 | SIGN, 5],
                [bits_of(0.5)], 6, 1, 1),
        Problem("minus-zero", "tiny negative products in all eight lanes: the result is -0",
                ["zero-sign"], "f32", [1 | SIGN] * 8, [1] * 8, 1, 8, 1),
        Problem("plus-zero", "the same in seven lanes: +0", ["zero-sign"], "f32",
                [1 | SIGN] * 7, [1] * 7, 1, 7, 1),
        Problem("zeros", "products of signed zeros: +0, since the lanes start there",
                ["zero-sign"], "f32", [SIGN] * 8 + [0] * 8, [one] * 8, 2, 8, 1),
        Problem("cancels", "each lane cancels exactly: +0", ["zero-sign"], "f32",
                cancel[:8] + [c ^ SIGN for c in cancel[:8]], [one] * 16, 1, 16, 1),
        Problem("cancels-late", "two terms a lane, then their opposites", ["lanes"], "f32",
                cancel + [c ^ SIGN for c in cancel], [one] * 32, 1, 32, 1),
        Problem("fma-matters", "a rounded square less the square: only an fma keeps the rest",
                ["fma"], "f32", [w for h in halves for w in (one, 0, 0, 0, 0, 0, 0, 0, h)],
                [x for h in halves for x in (square(h), 0, 0, 0, 0, 0, 0, 0, h ^ SIGN)], 8, 9, 8),
        Problem("cancel-large", "large terms of both signs: the order of the sums shows",
                ["lanes"], "f32", drawn(rng, 80, 1e6), drawn(rng, 40, 1e6), 2, 40, 1),
        Problem("overflow", "a lane overflows to infinity and stays there", ["overflow"], "f32",
                [big, one, one, one, one, one, one, one, big, one] + [big ^ SIGN] * 10,
                [one] * 10, 2, 10, 1),
        Problem("overflow-by-order", "finite only in the page's order", ["overflow", "lanes"],
                "f32", [big, big ^ SIGN, big, big ^ SIGN, big ^ SIGN, big, big ^ SIGN, big],
                [one] * 8, 1, 8, 1),
        Problem("f16-subnormal", "f16 subnormal weights widen exactly", ["widening", "subnormal"],
                "f16", f16_sub, drawn(rng, 24), 1, 24, 1),
        Problem("bf16-subnormal", "bf16 subnormal weights are f32 subnormals",
                ["widening", "subnormal"], "bf16",
                [rng.randrange(1, 0x80) | rng.getrandbits(1) << 15 for _ in range(24)],
                [bits_of(2.0 ** 20 * rng.uniform(-1, 1)) for _ in range(24)], 1, 24, 1),
        Problem("int4-subnormal-scale", "subnormal scales", ["int4-groups", "subnormal"], "int4",
                int4_stored(rng, 2, 16, 4, [1, 2, 3, 0x3FF, 5, 0x10, 0x200, 1]), drawn(rng, 16),
                2, 16, 1),
        Problem("int4-zero-scale", "a zero scale: +0 and -0 weights", ["int4-groups", "zero-sign"],
                "int4", int4_stored(rng, 1, 16, 4, [0, 0x3000, 0, 0x2000]), drawn(rng, 16), 1, 16,
                1),
        Problem("int4-all-q", "every q from -8 to 7", ["int4-groups"], "int4",
                ([0x3266, 0x2E66], list(range(-8, 8)), 8), drawn(rng, 48), 1, 16, 3),
        Problem("x-zero", "x is zero, of either sign", ["zero-sign"], "f32", drawn(rng, 24),
                [0] * 12 + [SIGN] * 12, 2, 12, 2),
    ]
    return out


def square(h):
    return fma(h, h, SIGN)


NOTES = {
    "lanes": v.note("Another number of lanes, another tree, or sums in f64.",
                    "The last bits of every projection differ; batches stop being equal."),
    "tail": v.note("The tail is summed after the tree, or padded lanes start elsewhere.",
                   "Sizes that are no multiple of 8 differ in the last bits."),
    "tiles": v.note("A row beyond the last whole tile takes another path.",
                    "A token's result depends on its neighbours in the batch."),
    "fma": v.note("Product and sum are rounded apart, or the compiler contracts at will.",
                  "The low half of a product is lost."),
    "subnormal": v.note("Subnormals are flushed to zero (fast-math, FTZ, DAZ).",
                        "Small sums vanish."),
    "zero-sign": v.note("Lanes start from -0 or from the first product.",
                        "A zero has the wrong sign."),
    "overflow": v.note("Another order of sums overflows, or does not.",
                       "Infinity where the page's order is finite, or the reverse."),
    "widening": v.note("f16 and bf16 are mixed up, or subnormals are widened wrongly.",
                       "Weights of another size.", ["s12"]),
    "int4-groups": v.note("The scale of another group, or the nibbles the other way round.",
                          "Columns take a neighbour's weight.", ["s09"]),
}


def main(argv=None):
    args = v.arguments(__doc__.split("\n")[0], argv)
    rng = random.Random(f"linear-{args.seed}")
    shapes, special = shaped(rng), edges(rng)
    for bug in BUGS:
        if all(p.y() == p.y(lambda a, b: wrong_dot(a, b, bug)) for p in shapes + special
               if p.name not in ("overflow", "overflow-by-order")):
            raise SystemExit(f"no case sees {bug}: {BUGS[bug]}")
    check_against_struct(rng)
    v.write_vectors(os.path.join(args.out, "linear.vectors.json"), "linear",
                    v.generator_info("gen/linear.py", v.command_of("linear.py", args)),
                    {"name": "exact integers in Python", "version": "1", "dtype": "f32",
                     "device": "cpu"},
                    v.bits_tolerance("forward.md: eight lanes of correctly rounded fma, fixed "
                                     "tree; every operation exact, rounded once"),
                    NOTES, [{"name": "shapes", "cases": [p.json() for p in shapes]},
                            {"name": "edges", "cases": [p.json() for p in special]}])


def check_against_struct(rng):
    """fma against Fraction, add against struct's rounding of an f64 sum that is exact."""
    for _ in range(4000):
        a, b = (rng.randrange(60, 190) << 23 | rng.getrandbits(23) | rng.getrandbits(1) << 31
                for _ in range(2))
        exact = Fraction(int4.f32_value(a)) * Fraction(int4.f32_value(b))
        assert int4.f32_value(fma(a, b, 0)) == v.round_f32(float(exact))
        if abs((a >> 23 & 255) - (b >> 23 & 255)) < 25:
            assert int4.f32_value(add(a, b)) == v.round_f32(
                int4.f32_value(a) + int4.f32_value(b))


if __name__ == "__main__":
    main()
