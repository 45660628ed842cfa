"""pcg32.vectors.json: the generator, its seeding and its streams, in plain Python integers.

An implementation of conformance/spec/pcg32.md that shares nothing with the C code.  The first
case is the demonstration line of the PCG reference library, which ties both to their origin.
"""

import os
import random

import vectors as v

MASK = (1 << 64) - 1
MULTIPLIER = 6364136223846793005
GOLDEN_RATIO = 0x9E3779B97F4A7C15
DEMO = "a15c02b7 7b47f409 ba1d3330 83d2f293 bfa4784b cbed606e".split()


class Pcg32:
    def __init__(self, seed, seq):
        self.state = 0
        self.inc = (seq << 1 | 1) & MASK
        self.step()
        self.state = (self.state + seed) & MASK
        self.step()

    def step(self):
        self.state = (self.state * MULTIPLIER + self.inc) & MASK

    def next_u32(self):
        old = self.state
        self.step()
        x = ((old >> 18 ^ old) >> 27) & 0xFFFFFFFF
        r = old >> 59
        return (x >> r | x << (32 - r)) & 0xFFFFFFFF

    def uniform_f64(self):
        a = self.next_u32()
        b = self.next_u32()
        return ((a >> 5) * 67108864 + (b >> 6)) * 2.0 ** -53


def mix64(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def child_seed(seed, purpose):
    return mix64((seed + purpose * GOLDEN_RATIO) & MASK)


def stream(seed, purpose):
    return Pcg32(child_seed(seed, purpose), purpose)


NOTES = {
    "reference-demo": v.note(
        "The seeding differs from the reference library's (state 0, step, add the seed, step).",
        "Every output differs from the first one on."),
    "sequence-top-bit": v.note(
        "The top bit of the sequence is kept, or the shift is done in a signed or wider type.",
        "Sequences that differ in bit 63 alone must give one stream; they give two."),
    "extreme-seed": v.note(
        "64-bit arithmetic that saturates, is signed or is truncated to 32 bits.",
        "Seeds near 0 and 2^64 give other outputs."),
    "long-run": v.note(
        "A state that is kept in fewer than 64 bits, or a rotation by 0 that shifts by 32.",
        "The first outputs are right and later ones are not."),
    "two-draws": v.note(
        "The shifts of the two draws of a uniform are swapped, or the low draw comes first.",
        "Uniforms look random and differ in every bit.", ["s01"]),
    "purpose": v.note(
        "The stream is seeded on the demonstration's sequence 54 instead of its purpose.",
        "Outputs of a stream differ though child_seed is right.", ["s02"]),
    "child-seed": v.note(
        "The purpose is added without the golden ratio, or the finaliser lacks a step.",
        "Streams of neighbouring seeds or purposes coincide or correlate."),
}


def case(case_id, comment, flags, **rest):
    return {"id": case_id, "comment": comment, "flags": flags, **rest}


def seeded(rng):
    """Seed and sequence of each case that both next_u32 and uniform_f64 take."""
    top = 1 << 63
    fixed = [
        ("demo", 42, 54, "the (42, 54) line of the reference library's demonstration",
         ["reference-demo"]),
        ("seed-0-seq-0", 0, 0, "everything zero", ["extreme-seed"]),
        ("seed-0-seq-54", 0, 54, "seed 0", ["extreme-seed"]),
        ("seed-max-seq-0", MASK, 0, "seed 2^64 - 1, sequence 0", ["extreme-seed"]),
        ("seed-max-seq-54", MASK, 54, "seed 2^64 - 1", ["extreme-seed"]),
        ("seed-42-seq-0", 42, 0, "sequence 0", ["extreme-seed"]),
        ("seq-2-63", 42, top, "sequence 2^63: the shift drops its top bit, so it is sequence 0",
         ["sequence-top-bit"]),
        ("seq-2-63-plus-54", 42, top + 54, "the demonstration's stream again",
         ["sequence-top-bit"]),
        ("seq-below-2-63", 42, top - 1, "every bit of the increment set", ["sequence-top-bit"]),
        ("seed-max-seq-max", MASK, MASK, "every bit set", ["extreme-seed", "sequence-top-bit"]),
        ("seed-2-32", 1 << 32, 1 << 32, "only the upper halves are set", ["extreme-seed"]),
    ]
    drawn = [(f"drawn-{i}", rng.getrandbits(64), rng.getrandbits(64), "drawn", [])
             for i in range(8)]
    return fixed + drawn


def groups(seed):
    rng = random.Random(f"rng-{seed}")
    outputs, uniforms, children, streams = [], [], [], []
    for name, s, q, comment, flags in seeded(rng):
        g = Pcg32(s, q)
        outputs.append(case("next-" + name, comment, flags, seed=v.u64hex(s), seq=v.u64hex(q),
                            outputs=[v.u32hex(g.next_u32()) for _ in range(8)]))
        g = Pcg32(s, q)
        values = [g.uniform_f64() for _ in range(6)]
        uniforms.append(case("uniform-" + name, comment, flags + ["two-draws"],
                             seed=v.u64hex(s), seq=v.u64hex(q), values=v.f64list(values),
                             values_text=", ".join(repr(u) for u in values)))
    for name, s, q, skip in (("demo", 42, 54, 992), ("extreme", MASK, 1 << 63, 4088),
                             ("drawn", rng.getrandbits(64), rng.getrandbits(64), 99992)):
        g = Pcg32(s, q)
        for _ in range(skip):
            g.next_u32()
        outputs.append(case(f"next-run-{name}", f"the last eight of a run of {skip + 8}",
                            ["long-run"], seed=v.u64hex(s), seq=v.u64hex(q), skip=skip,
                            outputs=[v.u32hex(g.next_u32()) for _ in range(8)]))
    g = Pcg32(7, 4)
    for _ in range(996):
        g.uniform_f64()
    uniforms.append(case("uniform-run", "the last four of 1,000", ["long-run", "two-draws"],
                         seed=v.u64hex(7), seq=v.u64hex(4), skip=996,
                         values=v.f64list(g.uniform_f64() for _ in range(4))))
    pairs = [(s, p) for s in (0, 1, 42, MASK) for p in (0, 1, 4, 54, (1 << 32) - 1)]
    pairs += [(0, MASK), (1 << 63, 1 << 63)]
    pairs += [(rng.getrandbits(64), rng.getrandbits(32)) for _ in range(8)]
    for number, (s, p) in enumerate(pairs):
        flags = ["child-seed"] + (["extreme-seed"] if s in (0, MASK) else [])
        children.append(case(f"child-{number}", f"seed {s}, purpose {p}", flags,
                             seed=v.u64hex(s), purpose=v.u64hex(p),
                             value=v.u64hex(child_seed(s, p))))
        a, b = stream(s, p), stream(s, p)
        values = [b.uniform_f64() for _ in range(4)]
        streams.append(case(f"stream-{number}", f"seed {s}, purpose {p}",
                            ["purpose", "two-draws"], seed=v.u64hex(s), purpose=v.u64hex(p),
                            outputs=[v.u32hex(a.next_u32()) for _ in range(8)],
                            uniforms=v.f64list(values),
                            uniforms_text=", ".join(repr(u) for u in values)))
    return [{"name": "next_u32", "cases": outputs}, {"name": "uniform_f64", "cases": uniforms},
            {"name": "child_seed", "cases": children}, {"name": "stream", "cases": streams}]


def check_anchors():
    """The numbers that were worked out elsewhere: the generator stops when it disagrees."""
    g = Pcg32(42, 54)
    assert [v.u32hex(g.next_u32()) for _ in range(6)] == DEMO
    assert child_seed(0, 4) == 0xF88BB8A8724C81EC
    assert stream(0, 4).uniform_f64() == 0.8020949661137535


def main(argv=None):
    args = v.arguments(__doc__.split("\n")[0], argv)
    check_anchors()
    v.write_vectors(
        os.path.join(args.out, "pcg32.vectors.json"), "rng",
        v.generator_info("gen/rng.py", v.command_of("rng.py", args)),
        {"name": "PCG-XSH-RR 64/32 in Python integers", "version": "pcg_basic 0.9",
         "dtype": "u64", "device": "cpu"},
        v.bits_tolerance("integers and multiples of 2^-53 are exact"), NOTES, groups(args.seed))


if __name__ == "__main__":
    main()
