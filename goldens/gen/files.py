"""Files as pieces, and the book of cases of safetensors_cases.py and config_cases.py.

A file is a list of pieces (conformance/spec/vectors.md).  Book.accept and Book.refuse take what the
author of a case expects, materialise the file, ask the oracle, and stop the generator when the two
disagree.  A twin is given by the id of an accepted case or as pieces, from which an accepted case
is made unless the same file is there already.
"""

import json
import os
import random

import oracle
import respell

HERE = os.path.dirname(os.path.abspath(__file__))


def text(value, count=None):
    piece = {"text": value}
    return [piece if count is None else {**piece, "count": count}]


def raw(data):
    return [{"hex": data.hex()}] if data else []


def fill(byte, count):
    return [{"byte": byte, "count": count}]


def piece_bytes(piece):
    if "byte" in piece:
        return bytes([piece["byte"]]) * piece["count"]
    data = bytes.fromhex(piece["hex"]) if "hex" in piece else piece["text"].encode()
    return data * piece.get("count", 1)


def materialise(pieces):
    return b"".join(piece_bytes(p) for p in pieces)


def shortest(data):
    """Text where it is printable, hex where it is not, runs of one byte as a fill."""
    if len(data) > 64 and len(set(data)) == 1:
        return fill(data[0], len(data))
    try:
        value = data.decode("ascii")
        if all(31 < ord(c) < 127 or c in "\t\r\n" for c in value):
            return text(value) if value else []
    except UnicodeDecodeError:
        pass
    return raw(data)


def safetensors(header, data=b"", n=None, after=b""):
    """Pieces: the length field, the header (str, bytes or pieces), data and what follows."""
    if isinstance(header, str):
        header = text(header) if header else []
    elif isinstance(header, bytes):
        header = shortest(header)
    if isinstance(data, (bytes, bytearray)):
        data = shortest(bytes(data))
    size = len(materialise(header)) if n is None else n
    return raw(size.to_bytes(8, "little")) + header + data + shortest(after)


def entry(dtype, shape, begin, end, more=""):
    dims = ",".join(str(d) for d in shape)
    return f'{{"dtype":"{dtype}","shape":[{dims}],"data_offsets":[{begin},{end}]{more}}}'


def header(**entries):
    """A header from name=text; __metadata__ goes first."""
    return "{" + ",".join(f'{json.dumps(k)}:{x}' for k, x in entries.items()) + "}"


def one(header_text, data=b"", **rest):
    """Inputs of a case with one file."""
    return {"file": safetensors(header_text, data, **rest)}


def comment_of(case):
    """What a carried-over case says, why, and where it comes from."""
    return f"{case['comment']}: {case['why']} [{case['source']}]"


def carried(kind):
    """The worked-out cases of one kind, which were collected from readers and reports."""
    with open(os.path.join(HERE, "carried_cases.json"), encoding="utf-8") as stream:
        return {c["id"]: c for c in json.load(stream) if kind(c["id"])}


class Book:
    file_name = "model.safetensors"    # what a case's `file` is

    def __init__(self, judge):
        self.judge = judge        # case -> parsed result, or raises oracle.Fault
        self.groups, self.ids, self.files = {}, {}, {}

    def put(self, group, case):
        if case["id"] in self.ids:
            raise SystemExit(f"{case['id']} stands twice")
        self.ids[case["id"]] = case
        self.groups.setdefault(group, []).append(case)

    def accept(self, group, case_id, comment, flags, inputs, expected):
        """expected is a dict of keys, or a function from the oracle's result to such a dict."""
        try:
            result = self.judge(inputs)
        except oracle.Fault as fault:
            raise SystemExit(f"{case_id}: accepted by hand, refused by the oracle: {fault}")
        if callable(expected):
            expected = expected(result)
        case = {"id": case_id, "comment": comment, "flags": list(flags), **inputs,
                "verdict": "accept", **expected}
        self.put(group, case)
        self.files.setdefault(json.dumps(inputs, sort_keys=True), case_id)

    def refuse(self, group, case_id, comment, flags, inputs, status, twin, subject=None,
               offset=None, **more):
        """The first status is the one the oracle must give; twin is an id."""
        statuses = status.split()
        try:
            self.judge(inputs)
        except oracle.Fault as fault:
            if fault.status not in statuses:
                raise SystemExit(f"{case_id}: {statuses} by hand, oracle {fault}") from None
            if offset is not None and fault.offset != offset:
                raise SystemExit(f"{case_id}: offset {offset} by hand, oracle {fault}") from None
            if more.get("rule") and fault.rule not in (0, more["rule"]):
                raise SystemExit(
                    f"{case_id}: rule {more['rule']} by hand, oracle {fault}") from None
            more = {"offset": fault.offset, **more} if fault.offset is not None else more
        else:
            raise SystemExit(f"{case_id}: refused by hand, accepted by the oracle")
        case = {"id": case_id, "comment": comment, "flags": list(flags), **inputs,
                "verdict": "refuse", **more, "status": statuses}
        if subject is not None:
            case["subject"] = subject
        case["twin"] = twin
        self.put(group, case)

    def known(self, inputs):
        """The id of an accepted case with the same inputs, or None."""
        return self.files.get(json.dumps(inputs, sort_keys=True))

    def facts(self, case):
        """What the oracle makes of a case, as something that can be compared."""
        try:
            return self.judge(case)
        except oracle.Fault as fault:
            return str(fault)

    def spell_anew(self, case, rng):
        """The case's files in another spelling, where that changes nothing that is said of them."""
        def spell(pieces, name):
            if sum(p.get("count", 1) for p in pieces) > respell.BYTES_MAX:
                return pieces
            data = materialise(pieces)
            if name.endswith(".json"):
                other = respell.json_object(data, rng)
                return pieces if other is None else shortest(other)
            other = respell.safetensors(data, rng)
            return pieces if other is None else safetensors(*other)
        names = {"config": "config.json", "weights": "model.safetensors", "file": self.file_name}
        if "offset" in case or "locale" in case:
            return
        other = dict(case)
        for key, name in names.items():
            if key in case:
                other[key] = spell(case[key], name)
        if "files" in case:
            other["files"] = {name: spell(p, name) for name, p in case["files"].items()}
        if other != case and self.facts(other) == self.facts(case):
            case.update(other)

    def finish(self, seed):
        """Groups in the order of their first case, after every twin is known to be accepted. The
        published seed keeps every file as its author wrote it, others spell them anew."""
        for case in self.ids.values():
            twin = case.get("twin")
            if twin is not None and self.ids.get(twin, {}).get("verdict") != "accept":
                raise SystemExit(f"{case['id']}: its twin {twin} is no accepted case")
            if seed != 1:
                self.spell_anew(case, random.Random(f"{case['id']}-{seed}"))
        return [{"name": name, "cases": cases} for name, cases in self.groups.items()]
