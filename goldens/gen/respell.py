"""Another spelling of a file that means the same: keys in another order, white space between tokens,
characters of strings as escapes.

A reader that knows the published bytes by heart does not know these. Only sound JSON objects are
spelled anew, numbers keep their digits; files.Book asks the oracle again afterwards and keeps the
first spelling where the answer is another.
"""

import json
import struct

BYTES_MAX = 1 << 14


class Number(str):
    """The digits of a number as they stand in the file."""


class Twice(Exception):
    """A key stands twice: what such a file means hangs on its order."""


def _pairs(items):
    if len({key for key, _ in items}) < len(items):
        raise Twice
    return dict(items)


def _space(rng):
    return "".join(rng.choice(" \n\t") for _ in range(rng.choice((0, 0, 0, 1, 2))))


def _string(text, rng):
    out = json.dumps(text, ensure_ascii=False)[1:-1]
    if out != text or not text:    # has escapes already
        return json.dumps(text)
    at = rng.randrange(3 * len(text) + 1)
    if at < len(text) and ord(text[at]) < 0xD800:
        out = f"{text[:at]}\\u{ord(text[at]):04x}{text[at + 1:]}"
    return f'"{out}"'


def _value(value, rng):
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        return _string(value, rng)
    if isinstance(value, dict):
        keys = rng.sample(list(value), len(value))
        inner = ",".join(f"{_space(rng)}{_string(k, rng)}{_space(rng)}:{_space(rng)}"
                         f"{_value(value[k], rng)}{_space(rng)}" for k in keys)
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ",".join(_space(rng) + _value(x, rng) + _space(rng) for x in value) + "]"
    return json.dumps(value)


def json_object(data, rng):
    """The bytes of a JSON object spelled anew, or None where they are none."""
    if not data.startswith(b"{") or len(data) > BYTES_MAX:
        return None
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_pairs, parse_int=Number,
                           parse_float=Number, parse_constant=Number)
        return _value(value, rng).encode("utf-8")
    except (ValueError, Twice, RecursionError):
        return None


def safetensors(data, rng):
    """(header, data) of a file whose header is spelled anew, or None. The data begins at a place
    of the same remainder by 16, so that what is unaligned stays so."""
    if len(data) < 8 or len(data) > BYTES_MAX:
        return None
    size, = struct.unpack_from("<Q", data)
    if size > len(data) - 8:
        return None
    header = json_object(data[8:8 + size].rstrip(b" "), rng)
    if header is None:
        return None
    return header + b" " * ((size - len(header)) % 16), data[8 + size:]
