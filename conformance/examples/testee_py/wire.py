"""Frames and numbers of spec/testee.md.

A frame is a u32 length and one JSON object. Scalars of 64 bits travel as 16 hex digits, arrays as
the hex of their little-endian bytes under the name of their type.
"""
import json
import os
import struct

import numpy as np

REQUESTS, RESPONSES = 3, 4
LONGEST_FRAME = 64 << 20
TYPES = {"u8": "u1", "i8": "i1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "f32": "<f4",
         "f64": "<f8"}


def read_exactly(descriptor, count):
    """That many bytes, or fewer when the descriptor ends."""
    parts = []
    while count:
        part = os.read(descriptor, min(count, 1 << 20))
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_frame():
    """The next request, or None at the end of descriptor 3."""
    head = read_exactly(REQUESTS, 4)
    if len(head) < 4:
        return None
    return json.loads(read_exactly(REQUESTS, struct.unpack("<I", head)[0]))


def write_frame(answer):
    body = json.dumps(answer, separators=(",", ":")).encode()
    if len(body) > LONGEST_FRAME:
        body = json.dumps({"seq": answer["seq"], "ok": False, "status": "INTERNAL",
                           "offset": None, "text": "the answer is longer than a frame"}).encode()
    rest = memoryview(struct.pack("<I", len(body)) + body)
    while rest:
        rest = rest[os.write(RESPONSES, rest):]


def get_u64(text):
    return int(text, 16)


def put_u64(value):
    return "%016x" % value


def get_f64(text):
    return struct.unpack(">d", bytes.fromhex(text))[0]


def put_f64(value):
    return struct.pack(">d", value).hex()


def get_count(value):
    """A `start` is an integer, and 16 hex digits where JSON's integers are not sure to hold it."""
    return int(value, 16) if isinstance(value, str) else value


def get_array(value):
    """An array of any type, as numpy's; it is read-only, like every input."""
    (kind, text), = value.items()
    return np.frombuffer(bytes.fromhex(text), dtype=TYPES[kind])


def put_array(kind, values):
    return {kind: np.ascontiguousarray(values, dtype=TYPES[kind]).tobytes().hex()}
