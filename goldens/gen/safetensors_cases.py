"""safetensors.vectors.json: every rule of the reader with refused files and their accepted twins.

Three sources: the worked-out cases of carried_cases.json (from readers, reviews and reports of
bugs), whose expectation by this project's pages stands in CARRIED; the edges of each rule (those of
int4 and shards in shard_cases.py); and drawn files, sound ones and the same with one fault.  Every
verdict is written by hand and given again by oracle.py; files.py stops the generator where they
differ.
"""

import os
import random
import struct

import files as f
import oracle
import shard_cases
import vectors as v
from files import entry, header, one, safetensors

MIN, NONE = "st-ok-minimal", "st-ok-empty-object"
F32_PROBE = [0x3F800000, 0xC0490FDB, 0x00000001, 0x80000000, 0x7F800000, 0x7FC00001, 0x7F7FFFFF,
             0x807FFFFF]
F16_PROBE = [0x3C00, 0xC248, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x8000]
BF16_PROBE = [0x3F80, 0xC049, 0x0001, 0x007F, 0x0080, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0x8000]


def judge(inputs):
    """What the oracle makes of a case's inputs; a node stands for what the file system says."""
    data = {name: f.materialise(p) for name, p in inputs.get("files", {}).items()}
    if inputs.get("node", "link") != "link":
        raise oracle.Fault("IO", 1 if "files" not in inputs else 13)
    if "config" in inputs:
        if "file" in inputs:
            data = {"model.safetensors": f.materialise(inputs["file"])}
        cfg = oracle.parse_config(f.materialise(inputs["config"]))
        tensors, metadata = oracle.parse_checkpoint(data)
        oracle.load_model(cfg, tensors, metadata, inputs.get("int4_group", 0))
        return {}
    tensors, _ = (oracle.parse_checkpoint(data) if "files" in inputs else
                  oracle.parse_safetensors(f.materialise(inputs["file"])))
    if "read" in inputs:
        oracle.read_f32(tensors, inputs["read"]["name"], inputs["read"]["shape"])
    return tensors


def tensors_json(tensors):
    out = []
    for name in sorted(tensors):
        t = tensors[name]
        item = {"name": name, "dtype": t.dtype, "shape": t.shape}
        if t.dtype in ("F32", "F16", "BF16") and t.end - t.begin <= 256:
            item["f32"] = [v.u32hex(b) for b in t.f32()]
        out.append(item)
    return out


class Cases(f.Book):
    """The book with the defaults of this suite: the rule, and tensors of what is accepted."""

    def facts(self, case):
        found = super().facts(case)
        return tensors_json(found) if isinstance(found, dict) else found

    def ok(self, group, case_id, comment, rule, inputs, flags=()):
        def expected(result):
            more = {"rule": rule}
            if "config" not in inputs:
                more["tensors"] = tensors_json(result)
            return more
        self.accept(group, case_id, comment, flags, inputs, expected)

    def bad(self, group, case_id, comment, rule, inputs, twin, status="FORMAT", subject=None,
            flags=(), offset=None):
        """twin is an id, or the inputs of an accepted case, which is added when it is new."""
        if isinstance(twin, dict):
            inputs_of_twin, twin = twin, self.known(twin) or case_id + "-twin"
            if twin not in self.ids:
                self.ok(group, twin, f"the twin of {case_id}", rule, inputs_of_twin, flags)
        self.refuse(group, case_id, comment, flags, inputs, status, twin, subject, offset,
                    rule=rule)


A1 = header(a=entry("F32", [1], 0, 4))
ZERO4, ZERO8, ZERO16 = bytes(4), bytes(8), bytes(16)


# --------------------------------------------------------------------- carried-over cases

def name_of(text_or_bytes):
    """A header with one F32 scalar vector under this raw name."""
    raw = text_or_bytes if isinstance(text_or_bytes, bytes) else text_or_bytes.encode()
    return b'{"' + raw + b'":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'


def pair(first, second):
    return header(a=first, b=second)


AB = pair(entry("F32", [1], 0, 4), entry("F32", [1], 4, 8))
# id: (group, rule, subject, twin, flags)
CARRIED = {
    "st-bad-empty-file": ("foreign_files", 1, "empty", MIN, ["foreign"]),
    "st-bad-8-zero-bytes": ("foreign_files", 3, "zero|zeros", NONE, ["foreign"]),
    "st-bad-zeroed-file": ("foreign_files", 3, "zero|zeros", MIN, ["foreign"]),
    "st-bad-lfs-pointer": ("foreign_files", 2, "LFS", MIN, ["foreign"]),
    "st-bad-html": ("foreign_files", 2, "HTML", MIN, ["foreign"]),
    "st-bad-zip": ("foreign_files", 2, "ZIP", MIN, ["foreign"]),
    "st-bad-gguf": ("foreign_files", 2, "GGUF", MIN, ["foreign"]),
    "st-bad-len-off-by-one": ("header_length", 2, None, NONE, ["length"]),
    "st-bad-len-u64-max": ("header_length", 2, None, NONE, ["length"]),
    "st-bad-len-wrap-zero": ("header_length", 2, None, NONE, ["length"]),
    "st-bad-len-2-63": ("header_length", 2, None, NONE, ["length"]),
    "st-bad-len-100mb-plus-1": ("header_length", 2, None, NONE, ["length"]),
    "st-bad-truncated-header": ("header_length", 2, None, MIN, ["length"]),
    "st-bad-truncated-data": ("tiling", 9, None, MIN, ["tiling"]),
    "st-bad-trailing-newline": ("tiling", 9, None, MIN, ["tiling"]),
    "st-bad-data-without-tensors": ("tiling", 9, None, NONE, ["tiling"]),
    "st-bad-hole-start": ("tiling", 9, "a", one(A1, ZERO4), ["tiling"]),
    "st-bad-overlap": ("tiling", 9, "b", one(pair(
        entry("F32", [2], 0, 8), entry("F32", [1], 8, 12)), bytes(12)), ["overlap"]),
    "st-bad-alias": ("tiling", 9, "b", one(pair(
        entry("F32", [4], 0, 16), entry("F32", [4], 16, 32)), bytes(32)), ["overlap"]),
    "st-bad-size-short": ("shape_product", 8, "weight", one(
        header(weight=entry("F64", [2], 0, 16)), ZERO16), ["shape-size"]),
    "st-bad-size-huge-shape": ("shape_product", 8, "t", one(
        header(t=entry("F32", [1], 0, 4)), ZERO4), ["shape-size"]),
    "st-bad-offset-past-eof": ("tiling", 9, "a", one(
        header(a=entry("U8", [4], 0, 4)), ZERO4), ["tiling"]),
    "st-bad-overflow-dims": ("integers", 6, "test", one(
        header(test=entry("I32", [2, 2], 0, 16)), ZERO16), ["integer"]),
    "st-bad-overflow-bytes": ("shape_product", 8, "test", one(
        header(test=entry("I32", [2, 2], 0, 16)), ZERO16), ["shape-wraps"]),
    "st-bad-overflow-wrap-small": ("shape_product", 8, "overflow_tensor", one(
        header(overflow_tensor=entry("F32", [4, 1, 1], 0, 16)), ZERO16), ["shape-wraps"]),
    "st-bad-overflow-wrap-zero-oob": ("shape_product", 8, "a", one(
        header(a=entry("F32", [1, 1], 0, 4)), ZERO4), ["shape-wraps"]),
    "st-bad-huge-times-zero": ("shape_product", 8, "a", one(
        header(a=entry("F32", [9223372036854775807, 0], 0, 0))), ["shape-wraps"]),
    "st-bad-zero-times-u64max": ("integers", 6, "a", one(
        header(a=entry("F32", [0, 9223372036854775807], 0, 0))), ["integer"]),
    "st-bad-neg-dims": ("integers", 6, "a", MIN, ["integer"]),
    "st-bad-neg-offset": ("integers", 6, "a", MIN, ["integer"]),
    "st-bad-f4-odd": ("shape_product", 8, "a", one(
        header(a=entry("F4", [4], 0, 2)), bytes(2)), ["shape-size"]),
    "st-bad-dim-float": ("integers", 6, "a", MIN, ["integer"]),
    "st-bad-dim-string": ("integers", 6, "a", MIN, ["integer"]),
    "st-bad-dim-bool": ("integers", 6, "a", one(A1, ZERO4), ["integer"]),
    "st-bad-shape-null": ("entry_fields", 6, "a", one(A1, ZERO4), ["field"]),
    "st-bad-offsets-missing": ("entry_fields", 6, "a", one(A1, ZERO4), ["field"]),
    "st-bad-offsets-one": ("entry_fields", 6, "a", one(A1, ZERO4), ["field"]),
    "st-bad-offsets-three": ("entry_fields", 6, "a", one(A1, ZERO4), ["field"]),
    "st-bad-dtype-unknown": ("known_dtypes", 7, "a", one(A1, ZERO4), ["dtype"]),
    "st-bad-dtype-lower": ("known_dtypes", 7, "a", one(A1, ZERO4), ["dtype"]),
    "st-bad-dtype-missing": ("entry_fields", 6, "a", one(A1, ZERO4), ["field"]),
    "st-bad-dtype-map": ("entry_fields", 6, "a", one(A1, ZERO4), ["field"]),
    "st-bad-entry-array": ("entry_fields", 6, "a", one(A1, ZERO4), ["field"]),
    "st-bad-entry-null": ("entry_fields", 6, "a", one(header(a=entry("F32", [0], 0, 0))),
                          ["field"]),
    "st-bad-meta-number": ("metadata_strings", 5, "step", one('{"__metadata__":{"step":"100"}}'),
                           ["metadata"]),
    "st-bad-meta-nested": ("metadata_strings", 5, "config", one('{"__metadata__":{"config":"b"}}'),
                           ["metadata"]),
    "st-bad-dup-name": ("header_json", 4, "a", one(AB, ZERO8), ["duplicate"]),
    "st-bad-dup-name-same": ("header_json", 4, "a", one(A1, ZERO4), ["duplicate"]),
    "st-bad-dup-name-shadow": ("header_json", 4, "a", one(A1, ZERO4), ["duplicate"]),
    "st-bad-dup-escape": ("header_json", 4, "a", one(A1, ZERO4), ["duplicate"]),
    "st-bad-dup-meta-key": ("header_json", 4, "a", one('{"__metadata__":{"a":"b","c":"c"}}'),
                            ["duplicate"]),
    "st-bad-not-json": ("header_json", 4, None, NONE, ["grammar"]),
    "st-bad-top-array": ("header_bytes", 3, None, NONE, ["first-byte"]),
    "st-bad-two-objects": ("header_json", 4, None, NONE, ["grammar"]),
    "st-bad-trailing-comma": ("header_json", 4, None, one(A1, ZERO4), ["grammar"]),
    "st-bad-comment": ("header_json", 4, None, NONE, ["grammar"]),
    "st-bad-bom": ("header_bytes", 3, None, NONE, ["first-byte"]),
    "st-bad-utf16": ("header_bytes", 3, None, NONE, ["nul"]),
    "st-bad-utf8-ff": ("header_bytes", 3, None, NONE, ["first-byte"]),
    "st-bad-utf8-name": ("header_bytes", 3, None, one(name_of("\u00ff"), ZERO4), ["utf-8"]),
    "st-bad-utf8-overlong": ("header_bytes", 3, None, one(name_of("/"), ZERO4), ["utf-8"]),
    "st-bad-utf8-surrogate": ("header_bytes", 3, None, one(name_of("\ud7ff"), ZERO4), ["utf-8"]),
    "st-bad-lone-surrogate": ("header_bytes", 3, None, one(
        name_of("\\ud83d\\ude00"), ZERO4), ["surrogate"]),
    "st-bad-nul-padding": ("header_bytes", 3, None, one(
        header(a=entry("F32", [2, 2], 0, 16)) + " " * 7, ZERO16), ["nul"]),
    "st-bad-nul-after-number": ("header_bytes", 3, None, MIN, ["nul"]),
    "st-bad-leading-space": ("header_bytes", 3, None, MIN, ["first-byte"]),
    "st-bad-deep-nesting": ("header_json", 4, None, one(
        header(a=entry("F32", [1], 0, 4, ',"x":' + "[" * 62 + "]" * 62)), ZERO4), ["depth"]),
    "st-bad-deep-100k": ("header_bytes", 3, None, NONE, ["first-byte"]),
    "st-bad-infinity": ("header_json", 4, None, one(A1, ZERO4), ["grammar"]),
    "st-bad-1e999": ("header_json", 4, None, one(A1, ZERO4), ["grammar"]),
}
OK_GROUPS = {
    "st-ok-minimal": ("sound_twins", 9), "st-ok-empty-object": ("header_json", 4),
    "st-ok-trailing-spaces": ("header_bytes", 3), "st-ok-metadata-only": ("metadata_strings", 5),
    "st-ok-scalar": ("shape_product", 8), "st-ok-zero-size-middle": ("tiling", 9),
    "st-ok-unordered": ("tiling", 9), "st-ok-unaligned-header": ("unaligned", 10),
    "st-ok-all-dtypes": ("known_dtypes", 7), "st-ok-escaped-name": ("header_json", 4),
    "st-ok-unknown-field": ("entry_fields", 6), "st-ok-nan-data": ("reads_f32", 11),
    "st-ok-rank-12": ("shape_product", 8), "st-ok-header-100mb-exact": ("header_length", 2),
}
SPECIAL = {
    "st-ok-header-100mb-exact": lambda: {"file": f.raw((100000000).to_bytes(8, "little")) +
                                         f.text("{}") + f.fill(32, 99999998)},
    "st-bad-zeroed-file": lambda: {"file": f.fill(0, 1 << 20)},
    "st-bad-deep-100k": lambda: {"file": f.raw((100000).to_bytes(8, "little")) +
                                 f.fill(ord("["), 100000)},
}


def carried_inputs(case):
    """The bytes that a carried-over case describes."""
    if case["id"] in SPECIAL:
        return SPECIAL[case["id"]]()
    if "whole_file_hex" in case:
        return {"file": f.raw(bytes.fromhex(case["whole_file_hex"]))}
    if "whole_file_text" in case:
        return {"file": f.text(case["whole_file_text"])}
    head = (bytes.fromhex(case["header_hex"]) if "header_hex" in case else
            case["header"].encode()) + bytes.fromhex(case.get("pad_hex", ""))
    data = bytes(case["data_len"])
    if "data_fill" in case:
        data = bytes.fromhex(case["data_fill"].removeprefix("hex "))
    return {"file": safetensors(head, data, n=case.get("header_len_field"),
                                after=case.get("after_data_text", "").encode())}


def carried_over(book):
    cases = f.carried(lambda i: i.startswith("st-"))
    for case_id, case in cases.items():
        if case["verdict"] == "accept":
            group, rule = OK_GROUPS[case_id]
            book.ok(group, case_id, f.comment_of(case), rule, carried_inputs(case))
    for case_id, case in cases.items():
        if case["verdict"] == "refuse" and case_id in CARRIED:
            group, rule, subject, twin, flags = CARRIED[case_id]
            book.bad(group, case_id, f.comment_of(case), rule, carried_inputs(case), twin, "FORMAT",
                     subject, flags)
    for case_id, node in (("st-bad-devzero", "zero-device"), ("st-bad-unreadable", "unreadable")):
        inputs = {"node": node}
        if node == "unreadable":
            inputs = {**one(A1, ZERO4), **inputs}
        book.bad("regular_file", case_id, f.comment_of(cases[case_id]), 1, inputs, MIN, "IO", None,
                 ["regular-file"])


# --------------------------------------------------------------------------- rules 1 to 4

def rule_1_and_2(book):
    def bad(*rest, **more):
        book.bad("regular_file", *rest, **more)

    for node, subject in (("missing", "model.safetensors No|no|not|missing"),
                          ("directory", "model.safetensors directory|regular"), ("fifo", "model.safetensors regular")):
        bad(f"node-{node}", f"a {node} stands at the path", 1, {"node": node}, MIN, "IO", subject,
            flags=["regular-file"])
    book.ok("regular_file", "node-link", "a symbolic link to a sound file", 1,
            {**one(A1, b"\0\0\x80\x3f"), "node": "link"}, ["regular-file"])
    for size in (1, 7):
        bad(f"size-{size}", f"a file of {size} bytes", 1, {"file": f.raw(b"\2" * size)}, NONE,
            subject=f"{size} 8", flags=["length"])
    for name, n in (("plus-2", 39), ("plus-8", 45), ("2-32", (1 << 32) + 2), ("2-31", (1 << 31) + 2),
                    ("2-63-minus-1", (1 << 63) - 1), ("top-only", (1 << 56) + 2)):
        book.bad("header_length", f"length-{name}", f"a length field of {n}, 37 bytes follow", 2,
                 one("{}", bytes(35), n=n), NONE, flags=["length"],
                 subject=f"{n} {'37|45' if n <= 100000000 else 100000000}")
    book.bad("header_length", "length-100mb-plus-1-there",
             "100,000,001 bytes of header that are all there", 2,
             {"file": f.raw((100000001).to_bytes(8, "little")) + f.text("{}") +
              f.fill(32, 99999999)}, "st-ok-header-100mb-exact", flags=["length"])
    book.bad("header_length", "length-one-less", "the last brace falls into the data", 4,
             one(A1, ZERO4, n=len(A1) - 1), one(A1, ZERO4), flags=["length"])
    for name, magic, subject in (
            ("appledouble", b"\x00\x05\x16\x07\x00\x02\x00\x00" + bytes(74), "AppleDouble"),
            ("html-lower", b"<html><body>Not Found</body></html>", "HTML"),
            ("lfs-short", b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
            ("zip-empty", b"PK\x03\x04" + bytes(range(1, 60)), "ZIP"),
            ("zip-no-members", b"PK\x05\x06" + bytes(18), "ZIP"),
            ("html-doctype", b" \n<!DOCTYPE html><html></html>", "HTML"),
            ("html-head", b"\t\r\n<HEAD></HEAD><p>Not Found", "HTML"),
            ("html-body", b"\r <Body>Access denied</Body>", "HTML"),
            ("html-nul", b"<html\0\0<p>Not Found", "HTML")):
        book.bad("foreign_files", f"foreign-{name}", f"the file is {subject}", 2,
                 {"file": f.raw(magic)}, MIN, "FORMAT", subject, ["foreign"])
    # What only looks like one of them, and must not be called that: two bytes, and a sound length of 100 million.
    none_of_them = "!ZIP !GGUF !AppleDouble !HTML !LFS !zero|zeros"
    for name, magic in (("zip", b"PK\x03\x05"), ("zip-2", b"PK\x05\x07"), ("gguf", b"GGUE"),
                        ("appledouble", b"\0\x05\x16\x08"), ("html", b"<htm>"), ("head", b"<hea d>"),
                        ("body", b" <bodi>"), ("doctype", b"<!doctyqe"), ("newline", b"\v<html>"),
                        ("below-tab", b"\b<html>"), ("first-letter", b"!html>"),
                        ("lfs", b"version https://git-lft")):
        book.bad("foreign_files", f"foreign-nearly-{name}", f"{magic!r} is no foreign file that is known", 2,
                 {"file": f.raw(magic + bytes(range(200, 216)))}, MIN, "FORMAT", none_of_them, ["foreign"])
    # Nothing follows, so whoever looks for more reads past the end.
    for name, magic in (("blanks", b" \t\r\n"), ("cut", b"  <htm")):
        book.bad("foreign_files", f"foreign-nearly-{name}", f"{magic!r} and no more", 1,
                 {"file": f.raw(magic)}, MIN, "FORMAT", none_of_them, ["foreign"])
    for name, magic, subject in (
            ("zip-cut", b"PK\x03\x04", "ZIP"), ("zip-no-members-cut", b"PK\x05\x06", "ZIP"),
            ("gguf-cut", b"GGUF", "GGUF"), ("appledouble-cut", b"\0\x05\x16\x07", "AppleDouble"),
            ("html-cut", b"<html", "HTML"), ("zero-cut", b"\0\0\0", "zero|zeros")):
        book.bad("foreign_files", f"foreign-{name}", f"the first bytes of {subject.split('|')[0]} alone", 1,
                 {"file": f.raw(magic)}, MIN, "FORMAT", subject, ["foreign"])


def rule_3(book):
    def bad(case_id, comment, head, twin, flag, data=ZERO4):
        book.bad("header_bytes", case_id, comment, 3, one(head, data), twin, flags=[flag])

    twin = one(A1, ZERO4)
    for name, byte in (("tab", b"\t"), ("lf", b"\n"), ("cr", b"\r"), ("brace-open", b"]"),
                       ("letter", b"x"), ("nbsp", b"\xc2\xa0")):
        bad(f"tail-{name}", f"{byte!r} after the last brace", A1.encode() + byte, twin, "tail")
        bad(f"tail-spaces-{name}", f"two spaces, then {byte!r}", A1.encode() + b"  " + byte + b" ",
            one(A1 + "    ", ZERO4), "tail")
    for name, byte in (("tab", b"\t"), ("lf", b"\n"), ("digit", b"0"), ("quote", b'"')):
        book.bad("header_bytes", f"first-{name}", f"{byte!r} before the first brace", 3,
                 one(byte + A1.encode(), ZERO4), twin, "FORMAT", f"{byte[0]}|{name}", ["first-byte"])
    text = A1.encode()
    for name, at in (("after-brace", 1), ("in-name", 3), ("after-colon", 5),
                     ("in-dtype", text.index(b"F32") + 1), ("after-dim", text.index(b"[1") + 2),
                     ("after-offset", text.index(b"4]") + 1), ("before-end", len(text) - 1)):
        bad(f"nul-{name}", "a NUL byte that JSON libraries may swallow or stop at",
            text[:at] + b"\0" + text[at:], twin, "nul")
    for name, inside in (("true", b"true\0"), ("false", b"false\0"), ("null", b"null\0"),
                         ("number", b"1\0")):
        bad(f"nul-after-{name}", f"a NUL after {inside[:-1].decode()} in an ignored key",
            header(a=entry("F32", [1], 0, 4, ',"x":')).encode()[:-2] + inside + b"}}",
            one(header(a=entry("F32", [1], 0, 4, ',"x":' + inside[:-1].decode())), ZERO4), "nul")
    bad("escaped-nul-name", "an escaped NUL in a name", name_of("w\\u0000x"),
        one(name_of("w\\u0001x"), ZERO4), "nul")
    bad("escaped-nul-metadata", "an escaped NUL in a metadata value",
        '{"__metadata__":{"k":"\\u0000"}}', one('{"__metadata__":{"k":"\\u0001"}}'), "nul", b"")
    bad("escaped-nul-ignored", "an escaped NUL in a key that is ignored",
        header(a=entry("F32", [1], 0, 4, ',"x":"\\u0000"')),
        one(header(a=entry("F32", [1], 0, 4, ',"x":"\\u0020"')), ZERO4), "nul")
    for name, code, fixed in (("low-alone", "\\udc00", "\\ud800\\udc00"),
                              ("high-high", "\\ud800\\ud800", "\\ud800\\udfff"),
                              ("high-text", "\\ud83dx", "\\ud83d\\ude00x"),
                              ("swapped", "\\ude00\\ud83d", "\\ud83d\\ude00y")):
        bad(f"surrogate-{name}", "a surrogate without its partner", name_of(code),
            one(name_of(fixed), ZERO4), "surrogate")
    for name, wrong, fixed in (
            ("continuation", b"\x80", "\u0080"), ("short-2", b"\xc3", "\u00c3"),
            ("short-3", b"\xe2\x82", "\u20ac"), ("short-4", b"\xf0\x9f\x98", "\U0001f600"),
            ("overlong-2", b"\xc1\xbf", "\u007f"), ("overlong-3", b"\xe0\x9f\xbf", "\u07ff"),
            ("overlong-4", b"\xf0\x8f\xbf\xbf", "\uffff"),
            ("past-unicode", b"\xf4\x90\x80\x80", "\U0010ffff"),
            ("five-bytes", b"\xf8\x88\x80\x80\x80", "\U00010000"),
            ("surrogate-top", b"\xed\xbf\xbf", "\ue000"), ("fe", b"\xfe", "\u00fe"),
            ("latin-1", b"caf\xe9", "caf\u00e9")):
        bad(f"utf8-{name}", f"bytes {wrong.hex()} in a name", name_of(wrong),
            one(name_of(fixed), ZERO4), "utf-8")
    bad("utf8-metadata", "a wrong byte in a metadata value", b'{"__metadata__":{"k":"\xff"}}',
        one('{"__metadata__":{"k":"y"}}'), "utf-8", b"")


def spread(*names):
    """Empty tensors, each with an ignored key of that many zeros, as pieces."""
    out = f.text("{")
    for number, (name, zeros) in enumerate(names):
        out += f.text(("," if number else "") + f'"{name}":{{"dtype":"F32","shape":[0],'
                      '"data_offsets":[0,0],"x":[') + f.text("0,", zeros - 1) + f.text("0]}")
    return {"file": safetensors(out + f.text("}"))}


def rule_4(book):
    def bad(case_id, comment, head, twin, flag, data=ZERO4, subject=None):
        book.bad("header_json", case_id, comment, 4, one(head, data), twin, "FORMAT", subject,
                 [flag])

    twin = one(A1, ZERO4)
    x = '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]%s}}'
    bad("dup-dtype", "dtype twice in an entry", x % ',"dtype":"F32"', twin, "duplicate",
        subject="dtype")
    bad("dup-shape", "shape twice in an entry", x % ',"shape":[1]', twin, "duplicate",
        subject="shape")
    bad("dup-ignored", "a key twice inside an ignored object", x % ',"x":{"k":1,"k":1}',
        one(x % ',"x":{"k":1,"j":1}', ZERO4), "duplicate")
    bad("dup-deep", "a key twice, six levels down", x % ',"x":[[[{"k":{"q":1,"q":2}}]]]',
        one(x % ',"x":[[[{"k":{"q":1,"r":2}}]]]', ZERO4), "duplicate")
    bad("metadata-after-end", "the object ends before its metadata [safetensors#466]",
        '{},"__metadata__":{"key":"value"}', one('{"__metadata__":{"key":"value"}}'), "grammar",
        b"")
    bad("dup-metadata", "__metadata__ twice", '{"__metadata__":{"k":"v"},"__metadata__":{}}',
        one('{"__metadata__":{"k":"v"}}'), "duplicate", b"", "__metadata__")
    bad("dup-metadata-escape", "__metadata__ twice, once with an escape",
        '{"__metadata__":{},"__m\\u0065tadata__":{}}', one('{"__metadata__":{}}'), "duplicate",
        b"", "__metadata__")
    escaped = "".join(f"\\u{ord(c):04x}" for c in "__metadata__")
    bad("dup-metadata-escapes", "__metadata__ twice, once with nothing but escapes",
        '{"__metadata__":{},"%s":{}}' % escaped, one('{"%s":{"k":"v"}}' % escaped), "duplicate",
        b"", "__metadata__")
    bad("dup-far-apart", "a name twice with 40 others between",
        header(**{f"w{i}": entry("U8", [0], 0, 0) for i in range(41)})[:-1] + ',"w0":' +
        entry("U8", [0], 0, 0) + "}",
        one(header(**{f"w{i}": entry("U8", [0], 0, 0) for i in range(42)})), "duplicate", b"",
        "w0")
    for name, more, fixed in (
            ("leading-zero", ',"x":01', ',"x":1'), ("plus", ',"x":+1', ',"x":1'),
            ("no-fraction", ',"x":1.', ',"x":1.0'), ("no-integer", ',"x":.5', ',"x":0.5'),
            ("nan", ',"x":NaN', ',"x":0'), ("minus-alone", ',"x":-', ',"x":-1'),
            ("single-quotes", ",'x':1", ',"x":1'), ("no-colon", ',"x" 1', ',"x":1'),
            ("bad-escape", ',"x":"\\x41"', ',"x":"\\u0041"'),
            ("short-escape", ',"x":"\\u41"', ',"x":"\\u0041"'), ("True", ',"x":True', ',"x":true'),
            ("open-string", ',"x":"', ',"x":""'), ("two-commas", ',,"x":1', ',"x":1'),
            ("comma-in-array", ',"x":[1,]', ',"x":[1]'), ("open-array", ',"x":[1', ',"x":[1]'),
            ("hex", ',"x":0x10', ',"x":16')):
        bad(f"grammar-{name}", f"{more[1:]} is no JSON", x % more, one(x % fixed, ZERO4),
            "grammar")
    bad("grammar-control", "a raw control character in a string",
        (x % ',"x":"\x01"').encode(), one(x % ',"x":"\\u0001"', ZERO4), "grammar")
    bad("grammar-no-brace", "the last brace is missing", A1[:-1], twin, "grammar")
    book.ok("header_json", "depth-64", "64 levels in all", 4,
            one(x % (',"x":' + "[" * 62 + "]" * 62), ZERO4), ["depth"])
    bad("depth-65", "65 levels", x % (',"x":' + "[" * 63 + "]" * 63), "depth-64", "depth")
    bad("depth-65-objects", "65 levels of objects",
        x % (',"x":' + '{"k":' * 62 + "{}" + "}" * 62),
        one(x % (',"x":' + '{"k":' * 61 + "{}" + "}" * 61), ZERO4), "depth")
    book.ok("header_json", "brackets-in-strings", "brackets in strings are no levels", 4,
            one(x % (',"x":"' + "[{" * 200 + '\\"[["'), ZERO4), ["depth"])
    book.ok("header_json", "spaces-inside", "space, tab and line ends inside the object", 4,
            one('{ "a" :\t{"dtype":"F32",\r\n"shape":[ 1 ],"data_offsets":[0 ,4]}\n}', ZERO4),
            ["grammar"])
    book.ok("header_json", "names-any", "an empty name, a name of escapes, DEL", 4,
            one(header(**{"": entry("U8", [1], 0, 1), "\u007f": entry("U8", [1], 1, 2)})[:-1] +
                ',"\\"\\\\\\/\\b\\f\\n\\r\\t":' + entry("U8", [1], 2, 3) + "}", bytes(3)),
            ["grammar"])
    book.ok("header_json", "names-nfc-nfd", "two names that differ in normal form only", 4,
            one(('{"\u00e9":%s,"e\u0301":%s}' % (entry("U8", [1], 0, 1), entry("U8", [1], 1, 2))
                 ).encode(), bytes(2)), ["duplicate"])
    book.ok("header_json", "nodes-entry", "240,000 nodes in one entry", 4,
            spread(("a", 240000)), ["nodes"])
    book.bad("header_json", "nodes-entry-over", "260,000 nodes in one entry", 4,
             spread(("a", 260000)), "nodes-entry", flags=["nodes"])
    book.ok("header_json", "nodes-many", "a million nodes in four entries", 4,
            spread(*((f"t{i}", 245000) for i in range(4))), ["nodes"])
    book.bad("header_json", "nodes-many-over", "16,170,000 nodes in 66 entries", 4,
             spread(*((f"t{i}", 245000) for i in range(66))), "nodes-many", flags=["nodes"])


# Names that share 32 bits of an FNV-1a hash (the halves of 64 bits, xor), all but two of them begin with the first:
# a reader that sorts or finds by a short key must go on to compare the names.
COLLIDING = ("weight", "weightnlclk3", "weightyjxaqk", "weight468ud2")
COLLIDING_PAIR = ("layers.15439.weight", "layers.67130.weight")
COLLIDING_LENGTHS = ("layers.79890.weight", "layers.155922.weight")  # the shorter one is the later in order


def named(*names):
    """A header of scalars under these names, in this order."""
    return "{" + ",".join(f'"{name}":' + entry("F32", [1], 4 * i, 4 * i + 4)
                          for i, name in enumerate(names)) + "}"


def colliding_names(book):
    a, b, c, d = COLLIDING
    orders = {"rising": (a, d, b, c), "falling": (c, b, d, a), "mixed": (b, a, c, d),
              "pair": COLLIDING_PAIR, "pair-back": COLLIDING_PAIR[::-1],
              "lengths": COLLIDING_LENGTHS, "lengths-back": COLLIDING_LENGTHS[::-1]}
    for name, names in orders.items():
        book.ok("header_json", f"collide-{name}", "names that share a short hash are found apart",
                4, one(named(*names), bytes(range(4 * len(names)))), ["collision"])
    for name, names, fixed in (
            ("first", (a, b, c, d, a), (a, b, c, d, "e")), ("long", (b, a, b), (b, a, "e")),
            ("inner", (c, d, a, b, d), (c, d, a, b, "e")),
            ("lengths", (*COLLIDING_LENGTHS, COLLIDING_LENGTHS[0]), (*COLLIDING_LENGTHS, "e")),
            ("pair", (*COLLIDING_PAIR, COLLIDING_PAIR[0]), (*COLLIDING_PAIR, "e"))):
        book.bad("header_json", f"collide-twice-{name}",
                 f"{names[-1]} twice among names that share its short hash", 4,
                 one(named(*names), bytes(4 * len(names))),
                 one(named(*fixed), bytes(4 * len(names))), "FORMAT", names[-1], ["collision"])


# -------------------------------------------------------------------------- rules 5 to 10

def rule_5_to_7(book):
    for name, value, fixed in (("null", "null", "{}"), ("array", "[]", "{}"),
                               ("string", '"k"', '{"k":"v"}'), ("number", "1", "{}"),
                               ("true", "true", "{}")):
        book.bad("metadata_strings", f"metadata-{name}", f"__metadata__ is {value}", 5,
                 one('{"__metadata__":%s}' % value), one('{"__metadata__":%s}' % fixed), "FORMAT",
                 "__metadata__", ["metadata"])
    for name, value in (("null", "null"), ("bool", "false"), ("array", '["v"]'), ("real", "1.5")):
        book.bad("metadata_strings", f"metadata-value-{name}", f"a value is {value}", 5,
                 one('{"__metadata__":{"format":"pt","origin":%s}}' % value),
                 one('{"__metadata__":{"format":"pt","origin":"v"}}'), "FORMAT", "origin",
                 ["metadata"])
    book.bad("metadata_strings", "metadata-is-tensor", "a writer took the reserved name for a "
             "tensor's [safetensors#849]", 5,
             one('{"__metadata__":%s}' % entry("I32", [2], 0, 8), ZERO8),
             one('{"metadata":%s}' % entry("I32", [2], 0, 8), ZERO8), "FORMAT", "__metadata__",
             ["metadata"])
    name = "layers.3.weight"
    good = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    twin = one('{"%s":%s}' % (name, good), ZERO4)
    for case_id, was, now in (
            ("entry-string", good, '"F32"'), ("entry-number", good, "4"),
            ("entry-true", good, "true"), ("entry-empty", good, "{}"),
            ("dtype-null", '"F32"', "null"), ("dtype-number", '"F32"', "32"),
            ("dtype-array", '"F32"', '["F32"]'), ("shape-missing", '"shape":[1],', ""),
            ("shape-number", "[1]", "1"), ("shape-object", "[1]", '{"0":1}'),
            ("shape-string", "[1]", '"1"'), ("shape-nested", "[1]", "[[1]]"),
            ("shape-dim-null", "[1]", "[null]"), ("offsets-null", "[0,4]", "null"),
            ("offsets-object", "[0,4]", '{"begin":0,"end":4}'), ("offsets-empty", "[0,4]", "[]"),
            ("offsets-string", "[0,4]", '["0","4"]'), ("offsets-null-end", "[0,4]", "[0,null]"),
            ("dtype-upper", '"dtype"', '"DTYPE"'), ("offsets-name", '"data_offsets"', '"offsets"')):
        book.bad("entry_fields", case_id, f"{now or 'nothing'} for {was}", 6,
                 one('{"%s":%s}' % (name, good.replace(was, now)), ZERO4), twin, "FORMAT", name,
                 ["field"])
    for case_id, was, now in (
            ("dim-real", "[1]", "[1.0]"), ("dim-exponent", "[1]", "[1e0]"),
            ("dim-negative", "[1]", "[-1]"), ("dim-negative-pair", "[1]", "[-1,-1]"),
            ("dim-2-63", "[1]", "[9223372036854775808]"), ("dim-huge", "[1]", "[" + "9" * 40 + "]"),
            ("offset-real", "[0,4]", "[0,4.0]"), ("offset-exponent", "[0,4]", "[0,4e0]"),
            ("offset-negative", "[0,4]", "[-4,0]"), ("offset-true", "[0,4]", "[false,4]"),
            ("offset-2-64", "[0,4]", "[0,18446744073709551620]"),
            ("offset-minus-zero-real", "[0,4]", "[-0.0,4]")):
        book.bad("integers", case_id, f"{now} is no list of integers of int64 that are >= 0", 6,
                 one('{"%s":%s}' % (name, good.replace(was, now)), ZERO4), twin, "FORMAT", name,
                 ["integer"])
    book.ok("integers", "minus-zero", "-0 is 0", 6,
            one(header(a=entry("F32", ["-0"], "-0", 0))), ["integer"])
    book.ok("integers", "int64-max", "the largest int64, beside a 0", 6,
            one(header(a=entry("F32", [0, 9223372036854775807], 0, 0))), ["integer"])
    book.ok("entry_fields", "ignored-keys", "further keys of any kind are ignored", 6,
            one('{"a":{"x":null,"shape":[1],"y":{"dtype":"I8"},"data_offsets":[0,4],"z":[1.5],'
                '"dtype":"F32","Shape":7}}', ZERO4), ["field"])
    for dtype in ("F8", "BF32", "F32 ", "", "BOOLEAN", "FLOAT", "bf16", "U4", "F8_E4M3FN", "I128"):
        label = dtype.replace(" ", "-space") or "empty"
        book.bad("known_dtypes", f"dtype-{label}", f"dtype {dtype!r}", 7,
                 one('{"%s":%s}' % (name, good.replace("F32", dtype)), ZERO4), twin, "FORMAT",
                 name, ["dtype"])
        for width in (1, 2):
            n = 4 // width
            sized = '{"dtype":"%s","shape":[%d],"data_offsets":[0,4]}'
            book.bad("known_dtypes", f"dtype-{label}-as-{8 * width}-bits", f"dtype {dtype!r}, and a "
                     f"range of {width} bytes an element", 7,
                     one('{"%s":%s}' % (name, sized % (dtype, n)), ZERO4),
                     one('{"%s":%s}' % (name, sized % (f"U{8 * width}", n)), ZERO4), "FORMAT", name,
                     ["dtype"])
    for dtype, bits in oracle.BITS.items():
        n = 8 // bits if bits in (4,) else 4 if bits == 6 else 1
        size = n * bits // 8
        book.ok("known_dtypes", f"takes-{dtype}", f"{n} of {bits} bits are {size} bytes", 7,
                one(header(t=entry(dtype, [n], 0, size)), bytes(size)), ["dtype"])
        book.bad("shape_product", f"size-of-{dtype}", f"one byte more than {n} of {bits} bits", 8,
                 one(header(tensor_t=entry(dtype, [n], 0, size + 1)), bytes(size + 1)),
                 one(header(tensor_t=entry(dtype, [n], 0, size)), bytes(size)), "FORMAT",
                 "tensor_t", ["shape-size"])


def rule_8(book):
    def bad(case_id, comment, dtype, shape, begin, end, twin_shape, flag="shape-wraps", data=None):
        size = end if data is None else data
        book.bad("shape_product", case_id, comment, 8,
                 one(header(wrapper=entry(dtype, shape, begin, end)), bytes(size)),
                 one(header(wrapper=entry(dtype, twin_shape, 0, size)), bytes(size)), "FORMAT",
                 "wrapper", [flag])

    bad("wrap-to-zero-bits", "2^61 x 8 bits wraps to 0", "U8", [1 << 61], 0, 0, [0])
    bad("wrap-to-zero", "2^32 x 2^32 wraps to 0", "U8", [1 << 32, 1 << 32], 0, 0, [0, 1])
    bad("wrap-to-four", "a product that wraps to 4", "U8", [(1 << 62) + 1, 4], 0, 4, [1, 4])
    bad("wrap-bits-only", "elements and bytes fit, the bits do not", "F64", [1 << 58], 0, 0, [0])
    bad("wrap-before-zero", "the overflow is refused though a 0 follows", "U8",
        [1 << 40, 1 << 40, 0], 0, 0, [0, 1 << 40, 1 << 40])
    bad("wrap-many", "twelve dimensions of 64", "F32", [64] * 12, 0, 0, [0] * 12)
    bad("wrap-32-bit", "2^16 x 2^16 + 1: right in 32 bits only", "U8", [65536, 65536, 1], 0, 0,
        [0, 1, 1])
    bad("one-more", "one element more than the bytes hold", "F32", [3], 0, 8, [2], "shape-size")
    bad("one-less", "one element less", "F32", [1], 0, 8, [2], "shape-size")
    bad("reversed", "end before begin", "F32", [1], 4, 0, [0], "shape-size", 0)
    bad("f4-one", "one F4 is half a byte", "F4", [1], 0, 1, [2], "shape-size")
    bad("f6-two", "two F6 are a byte and a half", "F6_E2M3", [2], 0, 0, [0], "shape-size", 0)
    bad("f4-one-in-none", "one F4 in no byte: half a byte cut off", "F4", [1], 0, 0, [0], "shape-size")
    bad("f4-three-in-one", "three F4 in one byte: half a byte cut off", "F4", [3], 0, 1, [2],
        "shape-size")
    bad("scalar-empty", "a scalar is one element, not none", "F32", [], 0, 0, [0], "shape-size")
    book.ok("shape_product", "f6-four", "four F6 are three bytes", 8,
            one(header(t=entry("F6_E3M2", [2, 2], 0, 3)), bytes(3)), ["shape-size"])
    book.ok("shape_product", "rank-40", "forty dimensions", 8,
            one(header(t=entry("F32", [1] * 39 + [2], 0, 8)), ZERO8), ["shape-size"])


def rule_9_and_10(book):
    def bad(case_id, comment, entries, size, fixed, fixed_size, flag, subject=None):
        book.bad("tiling", case_id, comment, 9, one(header(**entries), bytes(size)),
                 one(header(**fixed), bytes(fixed_size)), "FORMAT", subject, [flag])

    def f32(begin, end):
        return entry("F32", [(end - begin) // 4], begin, end)

    three = {"first": f32(0, 4), "middle": f32(4, 12), "last": f32(12, 16)}
    bad("hole-middle", "four bytes that nobody names", {**three, "last": f32(16, 20)}, 20, three,
        16, "tiling", "last")
    bad("hole-end", "four bytes after the last tensor", three, 20, three, 16, "tiling")
    bad("trailing-byte", "one byte after the last tensor", three, 17, three, 16, "tiling")
    bad("short-by-one", "the last byte is missing", three, 15, three, 16, "tiling")
    bad("short-all", "no data at all", three, 0, three, 16, "tiling")
    bad("overlap-by-one-element", "the last element of one is the first of the next",
        {**three, "middle": f32(0, 8), "last": f32(8, 16)}, 16, three, 16, "overlap")
    bad("inside", "one tensor inside another", {"outer": f32(0, 16), "inner": f32(4, 8)}, 16,
        {"outer": f32(0, 16), "inner": f32(16, 20)}, 20, "overlap", "inner")
    bad("same-end", "two tensors that end together",
        {"outer": f32(0, 16), "inner": f32(8, 16)}, 16,
        {"outer": f32(0, 16), "inner": f32(16, 24)}, 24, "overlap", "inner")
    bad("alias-three", "three names for one range", {n: f32(0, 4) for n in ("p", "q", "r")}, 4,
        {"p": f32(0, 4), "q": f32(4, 8), "r": f32(8, 12)}, 12, "overlap")
    bad("sum-is-right", "a hole and an overlap that cancel in the sum",
        {"first": f32(0, 8), "middle": f32(4, 8), "last": f32(12, 16)}, 16,
        {"first": f32(0, 8), "middle": f32(8, 12), "last": f32(12, 16)}, 16, "overlap")
    bad("from-file-start", "offsets that count from the start of the file",
        {"first": f32(128, 132)}, 4, {"first": f32(0, 4)}, 4, "offsets-from-start", "first")
    bad("empty-past-end", "an empty tensor beyond the data", {**three, "none": f32(20, 20)}, 16,
        {**three, "none": f32(16, 16)}, 16, "tiling", "none")
    bad("begin-past-end", "begin far beyond the data", {"far": f32(1 << 40, (1 << 40) + 4)}, 4,
        {"far": f32(0, 4)}, 4, "tiling", "far")
    book.ok("tiling", "empties", "empty tensors at the start, twice in the middle and at the end",
            9, one(header(z3=f32(8, 8), b=f32(4, 8), z0=f32(0, 0), z1=f32(4, 4), z2=f32(4, 4),
                          a=f32(0, 4)), ZERO8), ["tiling"])
    book.ok("tiling", "only-empties", "nothing but empty tensors", 9,
            one(header(a=f32(0, 0), b=entry("F64", [3, 0], 0, 0))), ["tiling"])
    probe = struct.pack("<8I", *F32_PROBE)
    book.ok("offsets_from_data", "values-in-order", "values that differ in every element", 9,
            one(header(w=f32(0, 16), x=f32(16, 32)), probe), ["offsets-from-start"])
    book.ok("offsets_from_data", "values-out-of-order", "the same, the entries the other way round",
            9, one(header(x=f32(16, 32), w=f32(0, 16)), probe), ["offsets-from-start"])
    book.ok("offsets_from_data", "values-after-metadata", "metadata and padding before the data", 9,
            one('{"__metadata__":{"format":"pt"},' + header(w=f32(0, 32))[1:] + "   ", probe),
            ["offsets-from-start"])
    for shift in range(1, 8):
        name = "n" * shift
        book.ok("unaligned", f"data-at-{shift}", "F32, F16 and BF16 at odd addresses", 10,
                one(header(**{"byte": entry("U8", [shift], 0, shift), name: entry(
                    "F32", [8], shift, shift + 32), "h": entry("F16", [2], shift + 32, shift + 36),
                    "i": entry("BF16", [2], shift + 36, shift + 40)}),
                    bytes(range(1, shift + 1)) + probe + struct.pack(
                        "<4H", 0x3C00, 0x0001, 0x3F80, 0xC049)), ["unaligned"])


def rule_11(book):
    data = {"f": ("F32", struct.pack("<8I", *F32_PROBE)),
            "h": ("F16", struct.pack("<10H", *F16_PROBE)),
            "b": ("BF16", struct.pack("<10H", *BF16_PROBE))}
    for name, (dtype, raw) in data.items():
        n = len(raw) // (4 if dtype == "F32" else 2)
        inputs = one(header(**{name: entry(dtype, [n], 0, len(raw))}), raw)
        book.ok(f"reads_{dtype.lower()}", f"reads-{dtype}",
                "ordinary values, subnormals, zeros, infinities and NaN", 11, inputs,
                ["bf16-as-f16" if dtype != "F32" else "reading"])
    every = [(h * 257 + 13) & 0xFFFF for h in range(0, 65536, 521)]
    quiet = {"F16": (0x7C00, 0x200), "BF16": (0x7F80, 0x40)}
    for dtype, (infinity, quiet_bit) in quiet.items():
        words = [h for h in every if h & 0x7FFF <= infinity or h & quiet_bit]
        raw = struct.pack(f"<{len(words)}H", *words)
        book.ok(f"reads_{dtype.lower()}", f"reads-{dtype}-swept",
                "bit patterns from the whole range, no signalling NaN", 11,
                one(header(w=entry(dtype, [len(words)], 0, len(raw))), raw), ["bf16-as-f16"])
    mixed = header(weight=entry("F32", [2, 3], 0, 24), count=entry("I64", [1], 24, 32),
                   mask=entry("BOOL", [4], 32, 36), packed=entry("U8", [4], 36, 40),
                   wide=entry("F64", [1], 40, 48), small=entry("F8_E4M3", [4], 48, 52))
    raw = struct.pack("<6I", *F32_PROBE[:6]) + bytes(range(28))
    good = {**one(mixed, raw), "read": {"name": "weight", "shape": [2, 3]}}
    book.ok("read_refusals", "read-ok", "a tensor read with its own shape", 11, good, ["reading"])
    for name, shape, status in (
            ("count", [1], "UNSUPPORTED"), ("mask", [4], "UNSUPPORTED"),
            ("packed", [4], "UNSUPPORTED"), ("wide", [1], "UNSUPPORTED"),
            ("small", [4], "UNSUPPORTED"), ("weigh", [2, 3], "NOT_FOUND"),
            ("weight2", [2, 3], "NOT_FOUND"), ("WEIGHT", [2, 3], "NOT_FOUND"),
            ("__metadata__", [1], "NOT_FOUND")):
        book.bad("read_refusals", f"read-{name}", f"reading {name} as f32", 11,
                 {**good, "read": {"name": name, "shape": shape}}, "read-ok", status, name,
                 ["reading"])
    for shape in ([3, 2], [6], [2, 3, 1], [1, 2, 3], [2, 2], [2], [], [2, 4], [0]):
        label = "x".join(map(str, shape)) or "scalar"
        book.bad("read_refusals", f"read-as-{label}", f"reading a [2, 3] as {shape}", 11,
                 {**good, "read": {"name": "weight", "shape": shape}}, "read-ok", "FORMAT",
                 "weight", ["reading"])


# ----------------------------------------------------------------------------- drawn files

DRAWN_DTYPES = ("F32", "F16", "BF16", "U8", "I64", "F64", "BOOL", "I16")


def drawn(book, rng):
    """Sound files with several tensors in any order, and each with one fault."""
    for number in range(10):
        tensors, at = [], 0
        for i in range(rng.randrange(2, 6)):
            dtype = rng.choice(DRAWN_DTYPES)
            shape = [rng.randrange(1, 4) for _ in range(rng.randrange(0, 4))]
            size = oracle.BITS[dtype] // 8
            for d in shape:
                size *= d
            tensors.append([f"layer.{number}.{i}.weight", dtype, shape, at, at + size])
            at += size
        data = rng.randbytes(at)
        order = rng.sample(range(len(tensors)), len(tensors))

        def build(items, payload):
            return one(header(**{items[i][0]: entry(*items[i][1:]) for i in order}), payload)

        good = build(tensors, data)
        name = f"drawn-{number}"
        book.ok("sound_twins", name, "drawn: several dtypes, any order", 9, good, ["reading"])
        victim = rng.randrange(len(tensors))
        label, *rest = tensors[victim]
        wrong = [list(t) for t in tensors]
        kind = number % 3
        if kind == 0:
            wrong[victim][2] = wrong[victim][2] + [2]
            book.bad("shape_product", name + "-size", "one dimension of 2 too many", 8,
                     build(wrong, data), name, "FORMAT", label, ["shape-size"])
        elif kind == 1:
            book.bad("tiling", name + "-cut", "the last byte cut off", 9, build(tensors, data[:-1]),
                     name, "FORMAT", None, ["tiling"])
        else:
            for t in wrong:
                t[3], t[4] = t[3] + 1, t[4] + 1
            book.bad("tiling", name + "-shift", "every range one byte later", 9,
                     build(wrong, data + b"\0"), name, "FORMAT", None, ["tiling"])


NOTES = {
    "regular-file": v.note("The path is opened and mapped without asking what it is.",
                           "A FIFO blocks for ever; a device maps and reads as zeros."),
    "length": v.note("8 + n is formed before it is compared, or n is cut to 32 bits.",
                     "A huge length wraps and the header is read past the file.", [],
                     ["ztxz16/fastllm#712"]),
    "foreign": v.note("Another kind of file is reported as a huge header.",
                      "The user is not told what the file is.", [],
                      ["huggingface/transformers#27923", "lmstudio-ai/mlx-engine#117"]),
    "first-byte": v.note("White space, a byte-order mark or another value may lead.",
                         "Two readers see two headers."),
    "tail": v.note("Any white space may trail.", "Readers disagree about where the header ends."),
    "nul": v.note("A NUL byte is swallowed after a number, true, false or null, or ends the text.",
                  "What follows it is not seen."),
    "utf-8": v.note("UTF-8 is not checked, or overlong forms and surrogates pass.",
                    "Names that look equal are not."),
    "surrogate": v.note("Half of a surrogate pair passes.", "A name that is no text."),
    "grammar": v.note("The JSON parser is lenient.", "What other readers refuse is served."),
    "duplicate": v.note("The last of two equal keys wins, or the first.",
                        "Two readers load two models from one file.", [],
                        ["safetensors/safetensors#401"]),
    "collision": v.note("Names are told apart by a hash alone.",
                        "A tensor is found under another one's name, or two are taken for one.", []),
    "depth": v.note("Depth is unbounded or off by one.", "The stack overflows."),
    "nodes": v.note("Nodes are not bounded before a JSON library sees them.",
                    "A 100 MB header takes gigabytes."),
    "metadata": v.note("__metadata__ may be null, or hold anything.",
                       "Strings are expected later and are not there."),
    "field": v.note("A field is read with a default when it is missing or of another type.",
                    "A damaged entry becomes an empty tensor."),
    "integer": v.note("Reals, negatives or numbers past int64 are converted.",
                      "(-2) x (-2) is 4; 2^64 + 4 is 4.", [], ["kekzl/imp#1605"]),
    "dtype": v.note("An unknown dtype is skipped or matched without case.",
                    "Its bytes cannot be checked, so the tiling is not."),
    "shape-wraps": v.note("The product of the dimensions wraps.",
                          "A huge shape passes as a small one and is read past its range.", [],
                          ["google-ai-edge/LiteRT#9255"]),
    "shape-size": v.note("The range is believed and not compared with shape and dtype.",
                         "Reads past the range.", [], ["ml-explore/mlx#3363"]),
    "tiling": v.note("Holes, trailing bytes or a short file are let through.",
                     "Hidden payloads; a cut download is served.", [],
                     ["safetensors/safetensors#206"]),
    "overlap": v.note("Ranges are not compared with each other.",
                      "Two tensors share bytes; sizes add up to more than the file."),
    "offsets-from-start": v.note("data_offsets are counted from the start of the file.",
                                 "Header bytes are served as weights.", ["s11"]),
    "unaligned": v.note("Data is read through a cast pointer.",
                        "A bus error, or undefined behaviour.", [], ["mudler/vllm.cpp#2558"]),
    "bf16-as-f16": v.note("BF16 is read as F16, or the reverse.",
                          "Every weight has another size.", ["s12"]),
    "reading": v.note("Only the number of elements is compared, or another dtype is converted.",
                      "A transposed matrix is served."),
    "int4": v.note("Part of an int4 checkpoint is believed without its counterpart.",
                   "Noise, a read past the scales, or a NaN in every row."),
    "shards": v.note("The index is believed: names lead out of the directory, shards may lack.",
                     "Files from elsewhere, or random weights, are served.", [],
                     ["sgl-project/sglang#32279", "huggingface/transformers#46913"]),
}


def main(argv=None):
    args = v.arguments(__doc__.split("\n")[0], argv)
    rng = random.Random(f"safetensors-{args.seed}")
    book = Cases(judge)
    carried_over(book)
    rule_1_and_2(book)
    rule_3(book)
    rule_4(book)
    colliding_names(book)
    rule_5_to_7(book)
    rule_8(book)
    rule_9_and_10(book)
    rule_11(book)
    shard_cases.int4_rules(book, rng)
    shard_cases.shard_rules(book, rng)
    drawn(book, rng)
    missing = [i for i in f.carried(lambda i: i[:3] in ("st-", "ix-")) if i not in book.ids]
    if missing:
        raise SystemExit(f"carried-over cases that are not in the book: {missing}")
    v.write_vectors(os.path.join(args.out, "safetensors.vectors.json"), "safetensors",
                    v.generator_info("gen/safetensors_cases.py",
                                     v.command_of("safetensors_cases.py", args)),
                    {"name": "the page, by hand and by a reader in Python", "version": "1",
                     "dtype": "any", "device": "cpu"},
                    v.bits_tolerance("verdicts, and exact widening"), NOTES, book.finish(args.seed))


if __name__ == "__main__":
    main()
