"""JSON as config#json and safetensors#3, #4 have it, read from bytes so that faults have offsets.

Python's `json` takes what the pages refuse: a key that stands twice, NaN, a surrogate alone, any
depth. This reader is one regular expression for each step of the grammar, written so that none
looks back over what it has matched: the time is linear in the bytes. Only a string with an escape
is given to `json`, which knows those. Integers in arrays, which are what large hostile files are
made of, are matched thousands at a time. (No group here is repeated possessively: Python before
3.11.5 gets that wrong.)

Values: dict, list, str, int of 64 bits, bool, None, and `Real` for a number that is not written
as an integer.
"""
import json
import re

from .refusal import Refusal, need

WS = rb"[ \t\n\r]*+"
PLAIN_STRING = rb'"([^"\\\x00-\x1f]*+)"'
NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
VALUE = re.compile(WS + rb"(?:" + PLAIN_STRING + rb"|(" + NUMBER + rb")|(true|false|null)"
                   rb"|([\[{\"]))")
KEY = re.compile(WS + PLAIN_STRING + WS + rb":")
QUOTE = re.compile(WS + rb'"')
COLON = re.compile(WS + rb":")
UNESCAPED = re.compile(rb'[^"\\]*+')
INTEGERS = re.compile(rb"(?:" + WS + rb"-?(?:0|[1-9][0-9]{0,17})" + WS + rb",){1,10000}")
BLANK = re.compile(WS)
NEXT_IN_OBJECT = re.compile(WS + rb"([,}])")
NEXT_IN_ARRAY = re.compile(WS + rb"([,\]])")
END_OF_OBJECT = re.compile(WS + rb"}")
END_OF_ARRAY = re.compile(WS + rb"]")
WORDS = {b"true": True, b"false": False, b"null": None}
DEEPEST = 64


class Real(bytes):
    """The text of a number with a fraction or an exponent."""

    def __repr__(self):
        return self.decode()


def check_bytes(data, base=0):
    """No NUL, and UTF-8 throughout. In pieces, so that a large text is never held twice."""
    nul = data.find(b"\0")
    need(nul < 0, "FORMAT", f"byte {base + nul} is NUL, which no JSON holds", base + nul)
    at = 0
    while at < len(data):
        end = min(at + (1 << 20), len(data))
        for _ in range(3):
            if end < len(data) and data[end] & 0xC0 == 0x80:
                end -= 1
        try:
            data[at:end].decode("utf-8")
        except UnicodeDecodeError as e:
            wrong = base + at + e.start
            raise Refusal("FORMAT", f"the bytes at {wrong} are no UTF-8", wrong) from None
        at = end


class Reader:
    """One text. `base` is what is added to an offset to make it one of the file."""

    def __init__(self, data, most_nodes, base=0):
        self.data = data
        self.base = base
        self.nodes = 0
        self.most_nodes = most_nodes
        self.limit = most_nodes

    def refuse(self, pos, text):
        pos = BLANK.match(self.data, min(pos, len(self.data))).end()
        raise Refusal("FORMAT", f"{text} at byte {self.base + pos}", self.base + pos)

    def count(self, more, pos):
        self.nodes += more
        if self.nodes > self.limit:
            self.refuse(pos, f"the JSON has more nodes than allowed ({self.most_nodes} in all)")

    def escaped(self, begin):
        """A string with an escape in it, from its opening quote on, and the position behind it."""
        end = begin + 1
        while True:
            end = UNESCAPED.match(self.data, end).end()
            if self.data[end:end + 1] != b"\\":
                break
            end += 2
        try:
            text = json.loads(self.data[begin:end + 1].decode())
            text.encode()
        except UnicodeEncodeError:
            self.refuse(begin, "the JSON has a string with half a surrogate pair")
        except ValueError:
            self.refuse(begin, "the JSON has a string with a wrong escape or byte, or no end")
        if "\0" in text:
            self.refuse(begin, "the JSON has a string with an escaped NUL")
        return text, end + 1

    def number(self, match):
        """An int, or a Real; it has to fit int64 or f64, wherever it stands."""
        text = match[2]
        if text.lstrip(b"-").isdigit():
            if len(text) > 20 or not -2**63 <= int(text) < 2**63:
                self.refuse(match.start(2), "the JSON has an integer that int64 does not hold")
            return int(text)
        if abs(float(text)) == float("inf"):
            self.refuse(match.start(2), "the JSON has a number that f64 does not hold")
        return Real(text)

    def key(self, pos):
        """The name of a member, and the position behind its colon."""
        match = KEY.match(self.data, pos)
        if match:
            return match[1].decode(), match.end()
        match = QUOTE.match(self.data, pos)
        if not match:
            self.refuse(pos, "the JSON has no key where one belongs")
        key, pos = self.escaped(match.end() - 1)
        match = COLON.match(self.data, pos)
        if not match:
            self.refuse(pos, "the JSON has no colon where one belongs")
        return key, match.end()

    def value(self, pos, depth):
        """The value at pos and the position behind it; depth is that of a container found here."""
        match = VALUE.match(self.data, pos)
        if not match:
            self.refuse(pos, "the JSON has no value where one belongs")
        self.count(1, pos)
        pos = match.end()
        kind = match.lastindex
        if kind == 1:
            return match[1].decode(), pos
        if kind == 2:
            return self.number(match), pos
        if kind == 3:
            return WORDS[match[3]], pos
        if match[4] == b'"':
            return self.escaped(pos - 1)
        if depth > DEEPEST:
            self.refuse(pos - 1, f"the JSON is nested more than {DEEPEST} levels deep")
        if match[4] == b"[":
            return self.array(pos, depth)
        result = {}
        return result, self.members(pos, depth, result.__setitem__)

    def array(self, pos, depth):
        """What follows a `[`."""
        result = []
        match = END_OF_ARRAY.match(self.data, pos)
        if match:
            return result, match.end()
        while True:
            while run := INTEGERS.match(self.data, pos):
                integers = run[0][:-1].split(b",")
                self.count(len(integers), pos)
                result += map(int, integers)
                pos = run.end()
            value, pos = self.value(pos, depth + 1)
            result.append(value)
            match = NEXT_IN_ARRAY.match(self.data, pos)
            if not match:
                self.refuse(pos, "the JSON has no comma or ] where one belongs")
            pos = match.end()
            if match[1] == b"]":
                return result, pos

    def members(self, pos, depth, visit, most_nodes=None):
        """What follows a `{`: calls visit(key, value) for each member and returns the position
        behind the `}`. `most_nodes` is a limit for the value of each member alone."""
        match = END_OF_OBJECT.match(self.data, pos)
        if match:
            return match.end()
        seen = set()
        while True:
            key, behind = self.key(pos)
            if key in seen:
                self.refuse(pos, f"the key {key!r} stands twice in one JSON object")
            seen.add(key)
            if most_nodes is not None:
                self.limit = min(self.most_nodes, self.nodes + most_nodes)
            try:
                value, pos = self.value(behind, depth + 1)
            except Refusal as e:
                e.text += f", in {key!r}"
                raise
            match = NEXT_IN_OBJECT.match(self.data, pos)
            if not match:
                self.refuse(pos, "the JSON has no comma or } where one belongs")
            visit(key, value)
            pos = match.end()
            if match[1] == b"}":
                return pos


def parse_object(data, most_bytes, most_nodes, name):
    """config#json: the dict of a whole text that is one object."""
    need(len(data) <= most_bytes, "FORMAT",
         f"{name} has {len(data)} bytes, at most {most_bytes} are allowed")
    check_bytes(data)
    reader = Reader(data, most_nodes)
    result, pos = reader.value(0, 1)
    need(isinstance(result, dict), "FORMAT", f"{name} is no JSON object", 0)
    pos = BLANK.match(data, pos).end()
    need(pos == len(data), "FORMAT", f"{name} goes on after its object at byte {pos}", pos)
    return result
