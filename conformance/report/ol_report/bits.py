"""Numbers as they stand in a report, "-0.19 (0xbe42f3b5)", and the fields of their bit patterns."""
import math
import re
import struct

TEXT = re.compile(r"^(-?[0-9.]+(?:e[+-]?[0-9]+)?|-?inf|-?nan) \(0x([0-9a-f]+)\)$")
# Sign, exponent and mantissa of the floats of that many bits; their names; how struct unpacks them.
FLOATS = {16: (1, 5, 10), 32: (1, 8, 23), 64: (1, 11, 52)}
NAMES = {16: "f16", 32: "f32", 64: "f64"}
UNPACK = {16: ">e", 32: ">f", 64: ">d"}


class Value:
    """A number with its pattern; `width` is the number of bits."""

    def __init__(self, text):
        match = TEXT.match(text)
        self.text = text
        self.ok = bool(match) and len(match[2]) in (2, 4, 8, 16)
        if self.ok:
            self.number, self.width = match[1], 4 * len(match[2])
            self.bits = f"{int(match[2], 16):0{self.width}b}"

    def is_integer(self):
        return self.number == str(int(self.bits, 2))

    def is_float(self):
        if self.width not in FLOATS:
            return False
        value = struct.unpack(UNPACK[self.width], int(self.bits, 2).to_bytes(self.width // 8,
                                                                             "big"))[0]
        if not math.isfinite(value):
            return self.number.lstrip("-") in ("inf", "nan")
        digits = {16: 5, 32: 9, 64: 17}[self.width]
        return math.isclose(float(self.number), value, rel_tol=10.0 ** (1 - digits), abs_tol=0)


def fields(want, got):
    """Parts of both patterns, aligned: (name, want's bits, got's bits); [] when they do not align.

    Floats are cut into sign, exponent and mantissa, the mantissa and integers into eights."""
    if not (want.ok and got.ok) or want.width != got.width:
        return []
    both_integer = want.is_integer() and got.is_integer()
    parts = []
    if not both_integer and want.is_float() and got.is_float():
        sizes = zip(("sign", "exponent", "mantissa"), FLOATS[want.width])
    else:
        sizes = [("bits", want.width)]
    at = 0
    for name, size in sizes:
        end = at + size
        most = 8 if name in ("mantissa", "bits") else size
        while at < end:
            step = min(end - at, most)
            parts.append((name, want.bits[at:at + step], got.bits[at:at + step]))
            name, at = "", at + step
    return parts


def kind(want, got):
    """"f32", "16 bits", for the caption."""
    if want.is_float() and got.is_float() and not (want.is_integer() and got.is_integer()):
        return NAMES[want.width]
    return f"{want.width} bits"
