"""spec/pcg32.md: the generator as a plain value that is changed by whoever holds it."""

MASK64 = (1 << 64) - 1
MULTIPLIER = 6364136223846793005


class Pcg32:
    def __init__(self, state, inc):
        self.state = state
        self.inc = inc

    @classmethod
    def new(cls, seed, seq):
        rng = cls(0, (seq << 1 | 1) & MASK64)
        rng.step()
        rng.state = (rng.state + seed) & MASK64
        rng.step()
        return rng

    @classmethod
    def stream(cls, seed, purpose):
        return cls.new(child_seed(seed, purpose), purpose)

    def step(self):
        self.state = (self.state * MULTIPLIER + self.inc) & MASK64

    def next_u32(self):
        old = self.state
        self.step()
        x = ((old >> 18 ^ old) >> 27) & 0xFFFFFFFF
        r = old >> 59
        return (x >> r | x << (-r & 31)) & 0xFFFFFFFF

    def uniform(self):
        a = self.next_u32()
        b = self.next_u32()
        return ((a >> 5) * 2.0**26 + (b >> 6)) * 2.0**-53


def mix64(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
    return z ^ z >> 31


def child_seed(seed, purpose):
    return mix64((seed + purpose * 0x9E3779B97F4A7C15) & MASK64)
