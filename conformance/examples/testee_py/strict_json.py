"""JSON as config#json and safetensors#3, #4 have it, read from bytes so that faults have offsets.

Python's `json` takes what the pages refuse: a key that stands twice, NaN, a surrogate alone, any
depth. This reader is one regular expression for each step of the grammar, written so that none
looks back over what it has matched: the time is linear in the bytes. Only a string with an escape
is given to `json`, which knows those. (No group here is repeated possessively: Python before
3.11.5 gets that wrong.)

Values: dict, list, str, int, bool, None, and `Real` for a number that is not written as an
integer.
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
RUN = re.compile(rb"[-+.0-9eE, \t\n\r]*,")
WHOLE_NUMBER = re.compile(WS + NUMBER + WS).fullmatch
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


def number(text):
    """An int, or a Real. An integer of more than 40 digits passes every limit of every page, so
    it may stay a Real."""
    return int(text) if len(text) <= 40 and text.lstrip(b"-").isdigit() else Real(text)


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
            return number(match[2]), pos
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
            run = RUN.match(self.data, pos)
            if run:
                result += self.numbers(pos, run.end())
                pos = run.end()
            value, pos = self.value(pos, depth + 1)
            result.append(value)
            match = NEXT_IN_ARRAY.match(self.data, pos)
            if not match:
                self.refuse(pos, "the JSON has no comma or ] where one belongs")
            pos = match.end()
            if match[1] == b"]":
                return result, pos

    def numbers(self, pos, end):
        """A run of numbers in an array, each with its comma, at the speed of `split`."""
        self.count(self.data.count(b",", pos, end), pos)
        texts = self.data[pos:end - 1].split(b",")
        for text in texts:
            if not WHOLE_NUMBER(text):
                self.refuse(pos, "the JSON has no number where one belongs in the array")
        return [number(text.strip()) for text in texts]

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
            value, pos = self.value(behind, depth + 1)
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
