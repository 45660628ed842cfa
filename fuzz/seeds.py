"""Seeds by rule: for each rule of the format pages at least one input that is accepted and one that is refused.

The verdicts stand here, written from the pages; nothing is asked of any implementation. `rules()` are committed under
corpus/ by name; `golden_cases()` are the project's goldens as further starting points for fuzzing.

Standard library only; the same output on every run.
"""
import json
import os
import struct
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN_BYTES_MAX = 16384


# ---------------------------------------------------------------- makers


def st(header, data=b"", length=None):
    """A safetensors file; header is text, bytes, or an object."""
    if not isinstance(header, (str, bytes)):
        header = json.dumps(header, separators=(",", ":"))
    if isinstance(header, str):
        header = header.encode()
    if isinstance(data, int):
        data = bytes((i * 31 + 7) & 255 for i in range(data))
    return struct.pack("<Q", len(header) if length is None else length & (2 ** 64 - 1)) + header + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def one(dtype="F32", shape=(1,), end=4, **more):
    return st({"a": {**entry(dtype, list(shape), 0, end), **more}}, end)


def folder(files):
    """A directory as one input, as target_checkpoint.c reads it."""
    out = b""
    for name, data in files.items():
        data = data.encode() if isinstance(data, str) else data
        out += name.encode() + b"\0" + struct.pack("<I", len(data)) + data
    return out


LLAMA = {"tl_arch": "llama", "tl_tokenizer": "bpe", "vocab_size": 6, "hidden_size": 4, "intermediate_size": 6,
         "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5}
BIGRAM = {"tl_arch": "bigram", "tl_tokenizer": "bpe", "vocab_size": 3}
ABSENT = object()


def config(base=None, **changes):
    """The base with keys set, or taken out by ABSENT; as text."""
    made = {**(base or LLAMA), **changes}
    return json.dumps({k: v for k, v in made.items() if v is not ABSENT}, separators=(",", ":"))


def swap(text, old, new):
    assert text.count(old) == 1, (text, old)
    return text.replace(old, new)


# ---------------------------------------------------------------- safetensors


def safetensors_rules():
    plain = st({"a": entry("F32", [1], 0, 4)}, 4)
    two = {"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 4, 8)}
    text = '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    yield "1", "OK", "eight-bytes-and-a-header", st("{}")
    yield "1", "FORMAT", "seven-bytes", plain[:7]
    yield "1", "FORMAT", "empty", b""
    yield "1", "FORMAT", "eight-bytes", struct.pack("<Q", 2)
    yield "2", "OK", "length-fits", plain
    for name, n in [("past-end", len(plain)), ("wraps", 2 ** 64 - 8), ("all-ones", 2 ** 64 - 1), ("over-cap", 100000001),
                    ("sign", 2 ** 63), ("2-32", 2 ** 32 + 53)]:
        yield "2", "FORMAT", f"length-{name}", st({"a": entry("F32", [1], 0, 4)}, 4, n)
    yield "3", "OK", "trailing-spaces", st("{}      ")
    yield "3", "OK", "space-inside", st(' {"a"'[1:] + ' : \t{"dtype":"U8",\r\n"shape":[ 1 ],"data_offsets":[0,1]}}', 1)
    yield "3", "OK", "escaped-name", st('{"\\u0061\\n\\ud83d\\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1)
    yield "3", "OK", "utf-8-name", st('{"\u00e9\u20ac\U0001f600\x7f":' + text[5:], 1)
    for name, header in [("leading-space", " " + text), ("leading-bom", "\ufeff" + text), ("trailing-newline", text + "\n"),
                         ("trailing-nul", text + "\0"), ("trailing-brace", text + "}"), ("two-objects", text + "{}"),
                         ("array", "[]"), ("nul-after-number", swap(text, "[1]", "[1\0]")),
                         ("nul-after-word", swap(text, '"U8"', '"U8","x":null\0')),
                         ("nul-escaped", swap(text, '"a"', '"a\\u0000"')),
                         ("nul-escaped-value", swap(text, '"U8"', '"U8\\u0000"')),
                         ("lone-high", swap(text, '"a"', '"\\ud800"')), ("lone-low", swap(text, '"a"', '"\\udc00"')),
                         ("high-high", swap(text, '"a"', '"\\ud800\\ud800"')), ("control", swap(text, '"a"', '"\x1f"')),
                         ("empty-header", ""), ("spaces-only", "  ")]:
        yield "3", "FORMAT", name, st(header, 1 if "a" in header else 0)
    for name, bad in [("overlong", b"\xc0\x80"), ("surrogate", b"\xed\xa0\x80"), ("past-10ffff", b"\xf4\x90\x80\x80"),
                      ("cut", b"\xe2\x82"), ("continuation", b"\x80"), ("ff", b"\xff"), ("overlong-3", b"\xe0\x80\x80"),
                      ("overlong-4", b"\xf0\x80\x80\x80")]:
        yield "3", "FORMAT", f"utf-8-{name}", st(text.encode().replace(b'"a"', b'"' + bad + b'"'), 1)
    yield "4", "OK", "depth-64", st('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":%s}}'
                                    % ("[" * 62 + "]" * 62), 1)
    yield "4", "FORMAT", "depth-65", st('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":%s}}'
                                        % ("[" * 63 + "]" * 63), 1)
    yield "4", "OK", "same-key-two-objects", st(two, 8)
    # Each of these has the same 32-bit FNV-1a hash as the one that it begins with.
    for pair in [("a457", "a457fgnih"), ("a1156vgmyc", "a1156")]:
        yield "4", "OK", f"names-one-hash-{pair[0]}", st({name: entry("U8", [0], 0, 0) for name in pair})
    yield "4", "FORMAT", "name-twice", st('{"a":%s,"a":%s}' % (text[5:-1], text[5:-1]), 1)
    yield "4", "FORMAT", "name-twice-escaped", st(
        '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', 2)
    yield "4", "FORMAT", "key-twice", st(swap(text, '"shape"', '"dtype":"U8","shape"'), 1)
    yield "4", "FORMAT", "key-twice-ignored", st(swap(text, '"shape"', '"x":{"y":1,"y":1},"shape"'), 1)
    yield "4", "FORMAT", "metadata-twice", st('{"__metadata__":{},"__metadata__":{}}')
    for name, old, new in [("comma-missing", ',"shape"', '"shape"'), ("comma-trailing", "[0,1]", "[0,1,]"),
                           ("colon-missing", '"shape":', '"shape"'), ("comment", "[1]", "[1/**/]"),
                           ("leading-zero", "[1]", "[01]"), ("plus", "[1]", "[+1]"), ("nan", "[1]", "[NaN]"),
                           ("point", "[1]", "[1.]"), ("exponent", "[1]", "[1e]"), ("quote", '"U8"', "'U8'"),
                           ("unclosed", "]}}", "]}"), ("escape", '"U8"', '"\\U8"'), ("word", "[1]", "[nul]"),
                           ("minus", "[1]", "[-]"), ("cut-string", ']}}', ']},"b')]:
        yield "4", "FORMAT", f"grammar-{name}", st(swap(text, old, new), 1)
    yield "5", "OK", "metadata", st('{"__metadata__":{"format":"pt","a":""}}')
    yield "5", "OK", "metadata-empty", st('{"__metadata__":{}}')
    for name, value in [("null", "null"), ("array", "[]"), ("string", '"x"'), ("of-number", '{"a":1}'),
                        ("of-null", '{"a":null}'), ("of-object", '{"a":{}}')]:
        yield "5", "FORMAT", f"metadata-{name}", st('{"__metadata__":%s}' % value)
    yield "5", "FORMAT", "metadata-key-twice", st('{"__metadata__":{"a":"1","a":"1"}}')
    yield "6", "OK", "scalar", one(shape=())
    yield "6", "OK", "rank-9", one("U8", [1] * 9, 1)
    yield "6", "OK", "ignored-keys", one(x={"y": [1, None, True, 1.5e3]}, dtypes="U8")
    yield "6", "OK", "minus-zero", st(swap(text, "[0,1]", "[-0,1]"), 1)
    yield "6", "OK", "empty-name", st({"": entry("U8", [1], 0, 1)}, 1)
    yield "6", "OK", "largest-number-ignored", st(swap(text, '"shape"', '"x":9223372036854775807,"shape"'), 1)
    for name, old, new in [("no-dtype", '"dtype":"U8",', ""), ("no-shape", '"shape":[1],', ""),
                           ("no-offsets", ',"data_offsets":[0,1]', ""), ("dtype-number", '"U8"', "8"),
                           ("dtype-object", '"U8"', '{"U8":null}'), ("dtype-null", '"U8"', "null"),
                           ("shape-number", "[1]", "1"), ("shape-object", "[1]", "{}"), ("shape-real", "[1]", "[1.0]"),
                           ("shape-exponent", "[1]", "[1e0]"), ("shape-negative", "[1]", "[-1]"),
                           ("shape-string", "[1]", '["1"]'), ("shape-null", "[1]", "[null]"), ("shape-list", "[1]", "[[1]]"),
                           ("shape-2-63", "[1]", "[9223372036854775808]"), ("shape-2-64", "[1]", "[18446744073709551617]"),
                           ("offsets-one", "[0,1]", "[1]"), ("offsets-three", "[0,1]", "[0,1,1]"),
                           ("offsets-none", "[0,1]", "[]"), ("offsets-real", "[0,1]", "[0.0,1]"),
                           ("offsets-negative", "[0,1]", "[-1,0]"), ("offsets-string", "[0,1]", '["0",1]'),
                           ("offsets-object", "[0,1]", "{}"), ("number-past-int64-ignored", '"shape"',
                                                               '"x":9223372036854775808,"shape"'),
                           ("real-past-f64-ignored", '"shape"', '"x":1e999,"shape"')]:
        yield "6", "FORMAT", name, st(swap(text, old, new), 1)
    for name, value in [("array", '["U8",[1],[0,1]]'), ("null", "null"), ("string", '"U8"'), ("empty", "{}")]:
        yield "6", "FORMAT", f"entry-{name}", st('{"a":%s}' % value, 1)
    bits = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
            "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
            "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}
    at, every = 0, {}
    for dtype, n_bits in bits.items():
        every[dtype.lower()] = entry(dtype, [4], at, at + n_bits * 4 // 8)
        at += n_bits * 4 // 8
    yield "7", "OK", "all-22", st(every, at)
    for name in ["f32", "F128", "", "F8", "F8_E4M3 ", "U4"]:
        yield "7", "FORMAT", f"dtype-{name.strip() or 'empty'}{'-space' if name.endswith(' ') else ''}", one(name)
    yield "8", "OK", "zero-then-huge", one("U8", [0, 2 ** 63 - 1], 0)
    yield "8", "OK", "six-bits-by-four", one("F6_E2M3", [4], 3)
    for name, dtype, shape, end in [("wraps-to-0", "U8", [2 ** 32, 2 ** 32], 0), ("wraps-to-4", "F32", [2 ** 62 + 1], 4),
                                    ("wraps-before-0", "U8", [2 ** 63 - 1, 4, 0], 0), ("bits-wrap", "F64", [2 ** 58], 0),
                                    ("half-byte", "F4", [1], 0), ("six-bits", "F6_E3M2", [1], 0), ("too-few", "F32", [2], 4),
                                    ("too-many", "F32", [1], 8), ("empty-with-bytes", "F32", [0], 4)]:
        yield "8", "FORMAT", name, one(dtype, shape, end)
    yield "9", "OK", "order-free", st({"b": two["b"], "a": two["a"]}, 8)
    yield "9", "OK", "empties", st({"z": entry("F32", [0], 4, 4), "b": entry("F32", [1], 4, 8), "a": entry("F32", [1], 0, 4),
                                   "y": entry("U8", [3, 0], 0, 0), "x": entry("U8", [0], 8, 8)}, 8)
    for name, header, n in [("hole", {"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 5, 9)}, 9),
                            ("hole-at-0", {"a": entry("U8", [4], 1, 5)}, 5), ("trailing-byte", two, 9), ("cut", two, 7),
                            ("overlap", {"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 3, 7)}, 7),
                            ("alias", {"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 0, 4)}, 4),
                            ("reversed", {"a": entry("U8", [0], 4, 0)}, 4),
                            ("empty-inside", {"a": entry("U8", [4], 0, 4), "b": entry("U8", [0], 2, 2)}, 4),
                            ("empty-past-end", {"a": entry("U8", [4], 0, 4), "b": entry("U8", [0], 5, 5)}, 4),
                            ("past-end", {"a": entry("U8", [2 ** 40], 0, 2 ** 40)}, 4),
                            ("from-file-start", {"a": entry("U8", [4], 60, 64)}, 4), ("data-without-tensor", {}, 1)]:
        yield "9", "FORMAT", name, st(header, n)
    yield "10", "OK", "odd-address", st('{"a":{"dtype":"F64","shape":[2],"data_offsets":[1,17]},"b":{"dtype":"I8",'
                                        '"shape":[1],"data_offsets":[0,1]}} ', 17)
    yield "11", "OK", "three-kinds", st({"f": entry("F32", [2, 2], 0, 16), "h": entry("F16", [4], 16, 24),
                                        "b": entry("BF16", [1, 4], 24, 32), "u": entry("U8", [1], 32, 33)}, 33)
    yield "12", "OK", "pair", st({"w.qweight": entry("U8", [2, 4], 0, 8), "w.scales": entry("F16", [2, 2], 8, 16),
                                 "__metadata__": {"quant": "int4-g4-sym"}}, bytes(8) + b"\0\x3c" * 4)
    yield "12", "OK", "scale-is-nan-but-not-read", st({"w.qweight": entry("U8", [1, 1], 0, 1),
                                                      "w.scales": entry("F16", [1, 1], 1, 3)}, b"\x10\0\x7e")
    for name, start in [("lfs", b"version https://git-lfs.github.com/spec/v1\n"), ("zip", b"PK\3\4" + bytes(30)),
                        ("gguf", b"GGUF" + bytes(20)), ("html", b"<!DOCTYPE html><html>"), ("zeros", bytes(64)),
                        ("appledouble", bytes.fromhex("0005160700020000") + bytes(40))]:
        yield "foreign", "FORMAT", name, start


# ---------------------------------------------------------------- shards

SHARD_A = "model-00001-of-00002.safetensors"
SHARD_B = "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def index_rules():
    a = st({"a": entry("F32", [1], 0, 4), "c": entry("U8", [0], 4, 4)}, 4)
    b = st({"b": entry("F16", [2], 0, 4)}, 4)
    mapped = {"a": SHARD_A, "b": SHARD_B, "c": SHARD_A}

    def made(mapping=None, files=None, text=None, **more):
        text = json.dumps({"weight_map": mapped if mapping is None else mapping, **more}) if text is None else text
        return folder({INDEX: text, **({SHARD_A: a, SHARD_B: b} if files is None else files)})

    yield "index", "OK", "two-shards", made(metadata={"total_size": 8})
    one_hash = {name: st({name: entry("U8", [0], 0, 0)}) for name in ("a457", "a457fgnih")}
    yield "index", "OK", "names-one-hash", made({"a457": SHARD_A, "a457fgnih": SHARD_B},
                                                {SHARD_A: one_hash["a457"], SHARD_B: one_hash["a457fgnih"]})
    yield "index", "OK", "white-space-and-more-keys", made(text=" \n" + json.dumps({"x": [None], "weight_map": mapped}) + "\t\n")
    for name, text in [("no-map", "{}"), ("map-empty", '{"weight_map":{}}'), ("map-array", '{"weight_map":[]}'),
                       ("map-null", '{"weight_map":null}'), ("array", "[]"), ("empty", ""), ("cut", '{"weight_map":{"a":'),
                       ("file-number", '{"weight_map":{"a":1}}'), ("file-null", '{"weight_map":{"a":null}}'),
                       ("key-twice", '{"weight_map":{"a":"%s","a":"%s"}}' % (SHARD_A, SHARD_A)),
                       ("map-twice", '{"weight_map":{"a":"x.safetensors"},"weight_map":{"a":"x.safetensors"}}'),
                       ("bom", "\ufeff" + json.dumps({"weight_map": mapped})), ("nul", json.dumps({"weight_map": mapped}) + "\0"),
                       ("two-documents", json.dumps({"weight_map": mapped}) + "{}"),
                       ("depth-65", '{"x":%s}' % ("[" * 64 + "]" * 64))]:
        yield "index", "FORMAT", name, made(text=text)
    yield "names", "OK", "any-base-name", folder({INDEX: json.dumps({"weight_map": {"a": "x y.safetensors"}}),
                                                  "x y.safetensors": st({"a": entry("U8", [0], 0, 0)})})
    for name, file in [("slash", "d/x.safetensors"), ("backslash", "d\\x.safetensors"), ("up", "../x.safetensors"),
                       ("absolute", "/x.safetensors"), ("ending", "x.bin"), ("empty", ""),
                       ("ending-cut", "xsafetensors"), ("ending-case", "x.SAFETENSORS"), ("up-inside", "x..safetensors"),
                       ("ending-alone", ".safetensors")]:
        verdict = "OK" if name in ("up-inside", "ending-alone") else "FORMAT"
        yield "names", verdict, name, folder({INDEX: json.dumps({"weight_map": {"a": file}}),
                                              file: st({"a": entry("U8", [0], 0, 0)})})
    yield "files", "IO", "shard-missing", made(files={SHARD_A: a})
    yield "files", "FORMAT", "shard-broken", made(files={SHARD_A: a, SHARD_B: b[:-1]})
    yield "files", "FORMAT", "shard-empty", made(files={SHARD_A: a, SHARD_B: b""})
    yield "match", "OK", "no-tensor-without-map", made(files={SHARD_A: a, SHARD_B: b, "other.safetensors": a})
    yield "match", "FORMAT", "tensor-in-other-file", made({"a": SHARD_B, "b": SHARD_A, "c": SHARD_A})
    yield "match", "FORMAT", "tensor-in-two-files", made(files={SHARD_A: a, SHARD_B: st({
        "b": entry("F16", [2], 0, 4), "a": entry("F32", [1], 4, 8)}, 8)})
    yield "match", "FORMAT", "tensor-not-mapped", made({"a": SHARD_A, "b": SHARD_B})
    yield "match", "FORMAT", "tensor-nowhere", made({**mapped, "d": SHARD_B})
    yield "size", "OK", "total-size-wrong", made(metadata={"total_size": "many"})
    yield "size", "OK", "metadata-null", made(metadata=None)
    yield "both", "OK", "single", folder({"model.safetensors": a})
    yield "both", "FORMAT", "both", made(files={SHARD_A: a, SHARD_B: b, "model.safetensors": a})
    yield "both", "IO", "neither", folder({"x.safetensors": a})
    yield "both", "IO", "nothing", b""

    def quant(text):
        return {} if text is None else {"__metadata__": {"quant": text}}
    for name, status, x, y in [("same", "OK", "int4-g2-sym", "int4-g2-sym"), ("differs", "FORMAT", "int4-g2-sym", "int4-g4-sym"),
                               ("one-only", "FORMAT", "int4-g2-sym", None), ("other-only", "FORMAT", None, "x")]:
        yield "quant", status, f"quant-{name}", made({"a": SHARD_A, "b": SHARD_B}, {
            SHARD_A: st({"a": entry("U8", [0], 0, 0), **quant(x)}), SHARD_B: st({"b": entry("U8", [0], 0, 0), **quant(y)})})


# ---------------------------------------------------------------- config.json


def config_rows():
    """(clause, status, name, changes)"""
    for key, good, bad in [("tl_arch", [], ["gpt2", "Llama", ""]), ("tl_tokenizer", [], ["BPE", "spm"]),
                           ("model_type", ["llama", "mistral", None], ["qwen2", "Llama", ""]),
                           ("position_embedding_type", ["rope", None], ["absolute"]),
                           ("hidden_act", ["silu", "swish", None], ["gelu", "SiLU"]),
                           ("hidden_activation", ["silu", None], ["gelu"])]:
        for value in good:
            yield key, "OK", f"{key}-{value}", {key: value}
        for value in bad:
            yield key, "UNSUPPORTED", f"{key}-{value or 'empty'}", {key: value}
        yield key, "FORMAT", f"{key}-number", {key: 5}
    yield "tl_arch", "UNSUPPORTED", "tl_arch-absent", {"tl_arch": ABSENT}
    yield "tl_tokenizer", "UNSUPPORTED", "tl_tokenizer-null", {"tl_tokenizer": None}
    for value, status in [(["LlamaForCausalLM"], "OK"), (["MistralForCausalLM"], "OK"), (None, "OK"), ([], "UNSUPPORTED"),
                          (["LlamaForCausalLM", "MistralForCausalLM"], "UNSUPPORTED"), (["GPT2LMHeadModel"], "UNSUPPORTED"),
                          ("LlamaForCausalLM", "FORMAT"), ([5], "FORMAT")]:
        yield "architectures", status, f"architectures-{len(str(value))}-{status}", {"architectures": value}
    for key in ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"]:
        clause = "vocab_size" if key == "vocab_size" else "shape"
        for name, value in [("absent", ABSENT), ("null", None), ("zero", 0), ("negative", -2), ("real", 4.0), ("string", "4"),
                            ("true", True), ("2-24-and-1", 2 ** 24 + 2), ("2-63-1", 2 ** 63 - 1), ("list", [4])]:
            yield clause, "FORMAT", f"{key}-{name}", {key: value}
    yield "vocab_size", "OK", "vocab-2-24", {"vocab_size": 2 ** 24}
    yield "vocab_size", "OK", "byte-256", {"tl_tokenizer": "byte", "vocab_size": 256}
    yield "vocab_size", "FORMAT", "byte-255", {"tl_tokenizer": "byte", "vocab_size": 255}
    yield "numbers", "OK", "layers-2-16", {"num_hidden_layers": 2 ** 16}
    yield "numbers", "FORMAT", "layers-2-16-and-1", {"num_hidden_layers": 2 ** 16 + 1}
    yield "numbers", "FORMAT", "product-wraps", {"num_attention_heads": 2 ** 24, "num_key_value_heads": 1, "head_dim": 2 ** 24,
                                                 "hidden_size": 2 ** 24}
    for name, value, status in [("absent", ABSENT, "OK"), ("null", None, "OK"), ("all", 2, "OK"), ("one", 1, "OK"),
                                ("more", 4, "FORMAT"), ("zero", 0, "FORMAT"), ("real", 1.0, "FORMAT"), ("string", "1", "FORMAT")]:
        yield "kv_heads", status, f"kv-heads-{name}", {"num_key_value_heads": value}
    yield "kv_heads", "FORMAT", "kv-heads-not-divisor", {"num_attention_heads": 4, "num_key_value_heads": 3, "head_dim": 2}
    for name, changes, status in [("given", {"head_dim": 6}, "OK"), ("null", {"head_dim": None}, "OK"),
                                  ("odd", {"head_dim": 3}, "FORMAT"), ("zero", {"head_dim": 0}, "FORMAT"),
                                  ("one", {"head_dim": 1}, "FORMAT"), ("real", {"head_dim": 2.0}, "FORMAT"),
                                  ("not-whole", {"hidden_size": 5}, "FORMAT"), ("comes-out-odd", {"hidden_size": 6}, "FORMAT"),
                                  ("not-whole-but-given", {"hidden_size": 5, "head_dim": 2}, "OK")]:
        yield "head_dim", status, f"head-dim-{name}", changes
    for name, value, status in [("absent", ABSENT, "OK"), ("one", 1, "OK"), ("2-24", 2 ** 24, "OK"), ("zero", 0, "FORMAT"),
                                ("over", 2 ** 24 + 1, "FORMAT"), ("string", "8", "FORMAT"), ("real", 8.0, "FORMAT")]:
        yield "positions", status, f"positions-{name}", {"max_position_embeddings": value}
    for name, value, status in [("integer", 1, "OK"), ("tiny", 1e-44, "OK"), ("absent", ABSENT, "FORMAT"), ("zero", 0.0, "FORMAT"),
                                ("negative", -1e-5, "FORMAT"), ("vanishes-in-f32", 1e-46, "FORMAT"),
                                ("infinite-in-f32", 1e39, "FORMAT"), ("string", "1e-5", "FORMAT"), ("true", True, "FORMAT")]:
        yield "eps", status, f"eps-{name}", {"rms_norm_eps": value}
    for name, changes, status in [("top", {"rope_theta": 5e5}, "OK"), ("integer", {"rope_theta": 10000}, "OK"),
                                  ("parameters", {"rope_parameters": {"rope_theta": 7e4}}, "OK"),
                                  ("scaling", {"rope_scaling": {"type": "default", "rope_theta": 7e4}}, "OK"),
                                  ("agree", {"rope_theta": 10000, "rope_parameters": {"rope_theta": 1e4}}, "OK"),
                                  ("disagree", {"rope_theta": 10000, "rope_parameters": {"rope_theta": 5e5}}, "FORMAT"),
                                  ("disagree-nested", {"rope_scaling": {"type": "default", "rope_theta": 1e4},
                                                       "rope_parameters": {"rope_theta": 5e5}}, "FORMAT"),
                                  ("zero", {"rope_theta": 0}, "FORMAT"), ("negative", {"rope_theta": -1.0}, "FORMAT"),
                                  ("string", {"rope_theta": "10000"}, "FORMAT"), ("f32-infinite", {"rope_theta": 1e39}, "FORMAT"),
                                  ("nested-zero", {"rope_parameters": {"rope_theta": 0}}, "FORMAT")]:
        yield "rope_theta", status, f"theta-{name}", changes
    for where in ["rope_scaling", "rope_parameters"]:
        for name, value, status in [
                ("null", None, "OK"), ("default", {"rope_type": "default"}, "OK"), ("type", {"type": "default"}, "OK"),
                ("both", {"type": "default", "rope_type": "default"}, "OK"), ("nulls", {"rope_type": "default", "factor": None}, "OK"),
                ("partial-1", {"rope_type": "default", "partial_rotary_factor": 1}, "OK"),
                ("partial-half", {"rope_type": "default", "partial_rotary_factor": 0.5}, "UNSUPPORTED"),
                ("partial-string", {"rope_type": "default", "partial_rotary_factor": "1"}, "FORMAT"),
                ("empty", {}, "OK" if where == "rope_parameters" else "UNSUPPORTED"),
                ("linear", {"type": "linear", "factor": 2.0}, "UNSUPPORTED"), ("llama3", {"rope_type": "llama3"}, "UNSUPPORTED"),
                ("two-types", {"type": "linear", "rope_type": "default"}, "UNSUPPORTED"),
                ("factor", {"rope_type": "default", "factor": 1.0}, "UNSUPPORTED"),
                ("nested", {"rope_type": "default", "full_attention": {"rope_type": "default"}}, "UNSUPPORTED"),
                ("type-number", {"rope_type": 1}, "FORMAT"), ("string", "linear", "FORMAT"), ("list", [], "FORMAT")]:
            yield "rope_scaling", status, f"{where}-{name}", {where: value}
    for name, changes, status in [("null", {"sliding_window": None}, "OK"),
                                  ("off", {"sliding_window": 4096, "use_sliding_window": False}, "OK"),
                                  ("true-and-none", {"use_sliding_window": True}, "OK"),
                                  ("window", {"sliding_window": 4096}, "UNSUPPORTED"),
                                  ("window-true", {"sliding_window": 4096, "use_sliding_window": True}, "UNSUPPORTED"),
                                  ("use-number", {"use_sliding_window": 0}, "FORMAT"),
                                  ("mistral-window", {"model_type": "mistral", "sliding_window": 4096}, "UNSUPPORTED"),
                                  ("full", {"layer_types": ["full_attention"]}, "OK"), ("types-empty", {"layer_types": []}, "OK"),
                                  ("types-sliding", {"layer_types": ["full_attention", "sliding_attention"]}, "UNSUPPORTED"),
                                  ("types-string", {"layer_types": "full_attention"}, "FORMAT"),
                                  ("types-of-number", {"layer_types": [1]}, "FORMAT")]:
        yield "window", status, f"window-{name}", changes
    for key in ["attention_bias", "mlp_bias", "bias", "qkv_bias", "use_qk_norm"]:
        for name, value, status in [("false", False, "OK"), ("null", None, "OK"), ("true", True, "UNSUPPORTED"),
                                    ("number", 0, "FORMAT")]:
            yield "bias", status, f"{key}-{name}", {key: value}
    for name, value, status in [("one", 1, "OK"), ("one-real", 1.0, "OK"), ("null", None, "OK"), ("half", 0.5, "UNSUPPORTED"),
                                ("string", "1", "FORMAT")]:
        yield "partial", status, f"partial-{name}", {"partial_rotary_factor": value}
    for name, value, status in [("true", True, "OK"), ("null", None, "OK"), ("number", 1, "FORMAT"), ("string", "true", "FORMAT")]:
        yield "tie", status, f"tie-{name}", {"tie_word_embeddings": value}
    for name, value, status in [("one", 5, "OK"), ("zero", 0, "OK"), ("list", [5, 0, 3], "OK"), ("null", None, "OK"),
                                ("vocab", 6, "FORMAT"), ("negative", -1, "FORMAT"), ("real", 2.0, "FORMAT"), ("string", "2", "FORMAT"),
                                ("empty", [], "FORMAT"), ("twice", [1, 1], "FORMAT"), ("list-past", [1, 6], "FORMAT"),
                                ("list-null", [1, None], "FORMAT"), ("true", True, "FORMAT")]:
        yield "eos", status, f"eos-{name}", {"eos_token_id": value}
    yield "eos", "OK", "eos-16", {"vocab_size": 20, "eos_token_id": list(range(16))}
    yield "eos", "FORMAT", "eos-17", {"vocab_size": 20, "eos_token_id": list(range(17))}
    for key in ["quantization_config", "quantization", "compression_config", "text_config", "num_local_experts",
                "no_rope_layers", "attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "logits_scaling",
                "embedding_multiplier", "residual_multiplier", "attention_multiplier", "auto_map"]:
        yield "foreign", "OK", f"{key}-null", {key: None}
        yield "foreign", "UNSUPPORTED", f"{key}-there", {key: 1.0 if "multi" in key else {}}
    yield "null", "OK", "unknown-keys", {"torch_dtype": "bfloat16", "bos_token_id": 1, "x": {"y": [1, 2.5e3, True]}}


def config_rules():
    yield "keys", "OK", "plain", config().encode()
    for clause, status, name, changes in config_rows():
        yield clause, status, name, config(**changes).encode()
    text = config()
    yield "json", "OK", "white-space", ("\n\t " + text.replace(",", ",\r\n  ") + "\n").encode()
    yield "json", "OK", "escaped-key", swap(text, '"tl_arch"', '"tl\\u005farch"').encode()
    yield "json", "OK", "depth-64", swap(text, "{", '{"x":%s,' % ("[" * 63 + "]" * 63)).encode()
    yield "json", "FORMAT", "depth-65", swap(text, "{", '{"x":%s,' % ("[" * 64 + "]" * 64)).encode()
    for name, bad in [("empty", ""), ("space", " "), ("array", "[" + text + "]"), ("bom", "\ufeff" + text), ("nul", text + "\0"),
                      ("two", text + text), ("word-behind", text + "x"), ("cut", text[:-1]), ("nan", swap(text, "1e-05", "NaN")),
                      ("infinity", swap(text, "1e-05", "Infinity")), ("comma", text[:-1] + ",}"),
                      ("key-twice", text[:-1] + ',"vocab_size":6}'), ("key-twice-escaped", text[:-1] + ',"vocab\\u005fsize":6}'),
                      ("key-twice-deep", text[:-1] + ',"x":[{"a":1,"a":1}]}'), ("nul-escaped", text[:-1] + ',"x":"\\u0000"}'),
                      ("nul-after-number", swap(text, ":6,\"hidden", ":6\0,\"hidden")), ("surrogate", text[:-1] + ',"x":"\\udc00"}'),
                      ("number-past-int64", text[:-1] + ',"x":9223372036854775808}'), ("real-past-f64", text[:-1] + ',"x":-1e400}'),
                      ("comment", text[:-1] + "/*x*/}"), ("single-quotes", text.replace('"', "'"))]:
        yield "json", "FORMAT", name, bad.encode()
    yield "json", "OK", "real-below-f64", (text[:-1] + ',"x":1e-400}').encode()
    yield "json", "FORMAT", "utf-8", text.encode()[:-1] + b',"x":"\xe9"}'
    yield "bigram", "OK", "bigram", config(BIGRAM).encode()
    yield "bigram", "OK", "bigram-other-rows", config(BIGRAM, hidden_act="gelu", num_hidden_layers="x", model_type="gpt2").encode()
    yield "bigram", "FORMAT", "bigram-no-vocab", config(BIGRAM, vocab_size=ABSENT).encode()
    yield "bigram", "FORMAT", "bigram-eos-past", config(BIGRAM, eos_token_id=3).encode()
    yield "bigram", "FORMAT", "bigram-positions-0", config(BIGRAM, max_position_embeddings=0).encode()


# ---------------------------------------------------------------- config and weights


def llama_tensors(dtype="F32", tied=False, d=4, vocab=6, inter=6, q=4, kv=2):
    shapes = {"model.embed_tokens.weight": [vocab, d], "model.norm.weight": [d]}
    layer = "model.layers.0."
    for name, shape in [("input_layernorm", [d]), ("post_attention_layernorm", [d]), ("self_attn.q_proj", [q, d]),
                        ("self_attn.k_proj", [kv, d]), ("self_attn.v_proj", [kv, d]), ("self_attn.o_proj", [d, q]),
                        ("mlp.gate_proj", [inter, d]), ("mlp.up_proj", [inter, d]), ("mlp.down_proj", [d, inter])]:
        shapes[layer + name + ".weight"] = shape
    if not tied:
        shapes["lm_head.weight"] = [vocab, d]
    return {name: (dtype, shape) for name, shape in shapes.items()}


def quantized(tensors, group):
    """The same with int4 pairs in place of the linears."""
    out = {}
    for name, (dtype, shape) in tensors.items():
        if "_proj" in name or name == "lm_head.weight":
            base = name[:-len(".weight")]
            out[base + ".qweight"] = ("U8", [shape[0], shape[1] // 2])
            out[base + ".scales"] = ("F16", [shape[0], shape[1] // group])
        else:
            out[name] = (dtype, shape)
    return out


SIZES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1, "F64": 8, "I32": 4}


def weights(tensors, metadata=None, data=None):
    """A file of {name: (dtype, shape)}; numbers are small and finite."""
    header, at, parts = ({"__metadata__": metadata} if metadata is not None else {}), 0, b""
    for name, (dtype, shape) in tensors.items():
        n = SIZES[dtype]
        for dim in shape:
            n *= dim
        header[name] = entry(dtype, shape, at, at + n)
        # 0x3a in the upper byte is a moderate number in all three float types.
        part = bytes((0x3a if i % SIZES[dtype] == SIZES[dtype] - 1 else (i * 29) & 127) for i in range(n))
        parts += (data or {}).get(name, part)
        at += n
    return st(header, parts)


def model(cfg, tensors, metadata=None, group=None, data=None):
    files = {"config.json": cfg, "model.safetensors": weights(tensors, metadata, data)}
    if group is not None:
        files["@int4_group"] = str(group)
    return folder(files)


def changed(tensors, **changes):
    """Keys written with _ for dots are awkward, so: pairs of name and value, None takes one out."""
    out = dict(tensors)
    for name, value in changes.get("pairs", []):
        if value is None:
            out.pop(name)
        else:
            out[name] = value
    return out


def checkpoint_rules():
    base, q2 = llama_tensors(), quantized(llama_tensors(), 2)
    cfg, tied_cfg = config(), config(tie_word_embeddings=True)
    layer = "model.layers.0."
    for dtype in ["F32", "F16", "BF16"]:
        yield "names", "OK", f"llama-{dtype.lower()}", model(cfg, llama_tensors(dtype))
    yield "names", "OK", "bigram", model(config(BIGRAM), {"bigram.weight": ("F16", [3, 3])})
    yield "names", "NOT_FOUND", "bigram-missing", model(config(BIGRAM), {})
    yield "names", "OK", "wide-heads", model(config(head_dim=6), llama_tensors(q=12, kv=6))
    for name in base:
        yield "fit.missing", "NOT_FOUND", f"missing-{name.replace('model.layers.0.', '')}", model(
            cfg, changed(base, pairs=[(name, None)]))
    for name in ["model.norm.weight", layer + "self_attn.k_proj.weight", "lm_head.weight", "model.embed_tokens.weight"]:
        dtype, shape = base[name]
        short = name.replace("model.", "").replace("layers.0.", "")
        yield "fit.shape", "FORMAT", f"shape-{short}", model(cfg, changed(base, pairs=[(name, (dtype, shape[:-1] + [5]))]))
        yield "fit.shape", "FORMAT", f"rank-{short}", model(cfg, changed(base, pairs=[(name, (dtype, shape + [1]))]))
        yield "fit.dtype", "UNSUPPORTED", f"dtype-{short}", model(cfg, changed(base, pairs=[(name, ("I32", shape))]))
    yield "fit.shape", "FORMAT", "transposed", model(cfg, changed(base, pairs=[(layer + "mlp.up_proj.weight", ("F32", [4, 6]))]))
    yield "fit.left", "OK", "inv-freq", model(cfg, changed(base, pairs=[(layer + "self_attn.rotary_emb.inv_freq", ("F32", [1]))]))
    for name in [layer + "self_attn.q_proj.bias", layer + "self_attn.q_norm.weight", "model.layers.1.input_layernorm.weight", "x"]:
        yield "fit.left", "UNSUPPORTED", f"left-{name.replace('model.', '')}", model(cfg, changed(base, pairs=[(name, ("F32", [4]))]))
    tied = llama_tensors(tied=True)
    embed = bytes(range(96))
    yield "fit.tied", "OK", "tied", model(tied_cfg, tied)
    yield "fit.tied", "OK", "tied-stored-equal", model(tied_cfg, base, data={"lm_head.weight": embed, "model.embed_tokens.weight": embed})
    yield "fit.tied", "UNSUPPORTED", "tied-stored-other", model(
        tied_cfg, base, data={"lm_head.weight": embed[::-1], "model.embed_tokens.weight": embed})
    yield "fit.tied", "UNSUPPORTED", "tied-stored-f16", model(tied_cfg, changed(base, pairs=[("lm_head.weight", ("F16", [6, 4]))]))
    yield "fit.tied", "UNSUPPORTED", "tied-stored-shape", model(tied_cfg, changed(base, pairs=[("lm_head.weight", ("F32", [4, 6]))]))
    yield "fit.untied", "NOT_FOUND", "untied-without-head", model(cfg, tied)
    quant = {"quant": "int4-g2-sym"}
    yield "int4.metadata", "OK", "int4-g2", model(cfg, q2, quant)
    yield "int4.metadata", "OK", "int4-tied", model(tied_cfg, quantized(tied, 2), quant)
    for name, text, status in [("zeros", "int4-g02-sym", "FORMAT"), ("odd", "int4-g3-sym", "FORMAT"), ("zero", "int4-g0-sym", "FORMAT"),
                               ("not-a-divisor", "int4-g8-sym", "FORMAT"), ("huge", "int4-g18446744073709551618-sym", "FORMAT"),
                               ("other", "int8-g2-sym", "UNSUPPORTED"), ("empty", "", "UNSUPPORTED"), ("tail", "int4-g2-symx", "UNSUPPORTED"),
                               ("no-number", "int4-g-sym", "UNSUPPORTED"), ("sign", "int4-g+2-sym", "UNSUPPORTED")]:
        yield "int4.metadata", status, f"quant-{name}", model(cfg, q2, {"quant": text})
    yield "int4.metadata", "UNSUPPORTED", "no-quant", model(cfg, {**q2, **base})
    yield "int4.metadata", "UNSUPPORTED", "bigram-quant", model(config(BIGRAM), {"bigram.weight": ("F32", [3, 3])}, quant)
    yield "int4.set", "NOT_FOUND", "pair-missing", model(cfg, changed(q2, pairs=[(layer + "mlp.up_proj.scales", None)]), quant)
    yield "int4.set", "NOT_FOUND", "one-left-plain", model(cfg, changed(q2, pairs=[
        ("lm_head.qweight", None), ("lm_head.scales", None), ("lm_head.weight", ("F32", [6, 4]))]), quant)
    yield "int4.set", "UNSUPPORTED", "plain-beside-pair", model(cfg, changed(q2, pairs=[("lm_head.weight", ("F32", [6, 4]))]), quant)
    yield "int4.set", "UNSUPPORTED", "pair-for-embedding", model(cfg, changed(q2, pairs=[
        ("model.embed_tokens.qweight", ("U8", [6, 2])), ("model.embed_tokens.scales", ("F16", [6, 2]))]), quant)
    yield "int4.names", "FORMAT", "pair-shape", model(cfg, changed(q2, pairs=[("lm_head.scales", ("F16", [6, 1]))]), quant)
    yield "int4.names", "UNSUPPORTED", "pair-dtype", model(cfg, changed(q2, pairs=[("lm_head.scales", ("F32", [6, 2]))]), quant)
    for name, bits, status in [("nan", b"\1\x7e", "FORMAT"), ("infinite", b"\0\x7c", "FORMAT"), ("negative", b"\0\xbc", "FORMAT"),
                               ("minus-zero", b"\0\x80", "FORMAT"), ("zero", b"\0\0", "OK"), ("largest", b"\xff\x7b", "OK")]:
        yield "int4.refuse", status, f"scale-{name}", model(cfg, q2, quant, data={"lm_head.scales": b"\0\x3c" * 11 + bits})
    yield "int4.twice", "INVALID", "quantized-twice", model(cfg, q2, quant, 2)
    yield "int4.scale", "OK", "at-load", model(cfg, base, group=2)
    for name, group in [("odd", 3), ("not-a-divisor", 8)]:
        yield "int4.scale", "INVALID", f"at-load-{name}", model(cfg, base, group=group)
    yield "int4.scale", "INVALID", "at-load-nan", model(cfg, base, group=2, data={"lm_head.weight": b"\0\0\xc0\x7f" * 24})
    yield "int4.scale", "INVALID", "at-load-scale-infinite", model(cfg, base, group=2, data={"lm_head.weight": b"\0\0\0\x7f" * 24})
    yield "int4.zero", "OK", "at-load-zeros", model(cfg, base, group=2, data={"lm_head.weight": bytes(96)})
    yield "int4.twice", "INVALID", "at-load-bigram", model(config(BIGRAM), {"bigram.weight": ("F32", [3, 3])}, group=2)
    yield "status", "IO", "no-config", folder({"model.safetensors": weights(base)})
    yield "status", "IO", "no-weights", folder({"config.json": cfg})
    yield "status", "FORMAT", "config-broken", folder({"config.json": cfg[:-1], "model.safetensors": weights(base)})
    yield "status", "FORMAT", "weights-broken", folder({"config.json": cfg, "model.safetensors": weights(base)[:-1]})
    names = list(base)
    shards = {SHARD_A: {n: base[n] for n in names[:5]}, SHARD_B: {n: base[n] for n in names[5:]}}
    yield "shards", "OK", "sharded", folder({"config.json": cfg, INDEX: json.dumps({"weight_map": {
        n: shard for shard, part in shards.items() for n in part}}), **{s: weights(p) for s, p in shards.items()}})


# ---------------------------------------------------------------- envelopes

POOL = dict(n_blocks=4, block_tokens=2, n_layers=1, n_kv_heads=1, head_dim=2)
KEY = bytes([2] + [0] * 14 + [82])


def pool(options=0, ids_cap=5, calls=b"", **changes):
    shape = {**POOL, **changes}
    return bytes([options, shape["n_blocks"], shape["block_tokens"], shape["n_layers"], shape["n_kv_heads"],
                  shape["head_dim"], ids_cap, len(calls) // 4]) + calls


def record(fill, key=None, k=(1, 2, 3, 4), v=(5, 6, 7, 8), has_key=None):
    return struct.pack("<II", fill, (key is not None) if has_key is None else has_key) + (key or bytes(16)) + struct.pack(
        "<8H", *k, *v)


def envelope(records=(), fields=None, payload=None, cut=0, more=b"", crc=0, header_crc=0):
    """fields: offset -> bytes, put in before the header's checksum."""
    payload = b"".join(records) if payload is None else payload
    header = bytearray(struct.pack("<4sIIIIIIIIIQQI", b"TLKV", 1, 64, 1, len(records), POOL["block_tokens"], POOL["n_layers"],
                                   POOL["n_kv_heads"], POOL["head_dim"], 0, len(payload), 0, zlib.crc32(payload) ^ crc))
    for at, value in (fields or {}).items():
        header[at:at + len(value)] = value
    made = bytes(header) + struct.pack("<I", zlib.crc32(bytes(header)) ^ header_crc) + payload + more
    return made[:len(made) - cut] if cut else made


def u32(v):
    return struct.pack("<I", v)


def kv_import_rules():
    full, part = record(2, KEY), record(1, None, (1, 2, 0, 0), (3, 4, 0, 0))
    sound = envelope([full, part])
    yield "import", "OK", "two-blocks", pool() + sound
    yield "import", "OK", "no-block", pool() + envelope()
    yield "import.1", "FORMAT", "63-bytes", pool() + envelope()[:63]
    yield "import.1", "FORMAT", "nothing", pool()
    yield "import.2", "FORMAT", "magic", pool() + envelope([full], {0: b"TLKW"})
    yield "import.3", "FORMAT", "header-crc", pool() + envelope([full], header_crc=1)
    for clause, status, name, at, value in [
            ("4", "UNSUPPORTED", "version-2", 4, u32(2)), ("4", "UNSUPPORTED", "version-0", 4, u32(0)),
            ("5", "FORMAT", "header-bytes", 8, u32(65)), ("6", "FORMAT", "flags", 36, u32(1)),
            ("7", "UNSUPPORTED", "dtype", 12, u32(2)), ("7", "UNSUPPORTED", "block-tokens", 20, u32(3)),
            ("7", "UNSUPPORTED", "layers", 24, u32(2)), ("7", "UNSUPPORTED", "heads", 28, u32(2)),
            ("7", "UNSUPPORTED", "head-dim", 32, u32(4)), ("9", "FORMAT", "blocks-more", 16, u32(2)),
            ("9", "FORMAT", "blocks-wrap", 16, u32(2 ** 32 - 1)), ("9", "FORMAT", "payload-bytes-less", 40, struct.pack("<Q", 39)),
            ("9", "FORMAT", "payload-bytes-huge", 40, struct.pack("<Q", 2 ** 64 - 24))]:
        yield f"import.{clause}", status, name, pool() + envelope([full], {at: value})
    tag = struct.pack("<Q", 0x0123456789abcdef)
    yield "import.8", "OK", "tag-equal", pool(2) + envelope([full], {48: tag})
    yield "import.8", "OK", "tag-of-pool-0", pool() + envelope([full], {48: tag})
    yield "import.8", "OK", "tag-of-envelope-0", pool(2) + envelope([full])
    yield "import.8", "UNSUPPORTED", "tag-other", pool(2) + envelope([full], {48: tag[::-1]})
    yield "import.9", "FORMAT", "cut", pool() + envelope([full], cut=1)
    yield "import.9", "FORMAT", "longer", pool() + envelope([full], more=b"\0")
    yield "import.10", "FORMAT", "payload-crc", pool() + envelope([full], crc=1)
    yield "import.11", "FORMAT", "fill-past", pool() + envelope([record(3)])
    yield "import.12", "FORMAT", "has-key-2", pool() + envelope([record(2, KEY, has_key=2)])
    yield "import.13", "FORMAT", "key-on-part", pool() + envelope([record(1, KEY, (1, 2, 0, 0), (3, 4, 0, 0))])
    yield "import.13", "FORMAT", "key-without-has-key", pool() + envelope([record(2, KEY, has_key=0)])
    yield "import.13", "OK", "key-of-zeros", pool() + envelope([record(2, bytes(16))])
    yield "import.14", "FORMAT", "stale-k", pool() + envelope([record(1, None, (1, 2, 0, 9), (3, 4, 0, 0))])
    yield "import.14", "FORMAT", "stale-minus-zero", pool() + envelope([record(1, None, (1, 2, 0, 0), (3, 4, 0x8000, 0))])
    yield "import.15", "CAPACITY", "no-room", pool(n_blocks=1) + sound
    yield "import.15", "CAPACITY", "all-used", pool(calls=bytes([0, 3, 0, 0])) + sound
    yield "import.16", "CAPACITY", "ids-cap", pool(ids_cap=1) + sound
    yield "import.take", "OK", "key-twice", pool() + envelope([full, full])
    yield "import.take", "OK", "caching-off", pool(1) + envelope([full])
    # alloc 1, fill 2, register key 2, release: cached under the envelope's key
    cached = bytes([0, 1, 0, 0, 5, 0, 2, 0, 6, 0, 2, 0])
    yield "import.take", "OK", "key-there", pool(calls=cached) + envelope([full])
    yield "import.take", "OK", "evicts", pool(n_blocks=1, calls=cached + bytes([4, 0, 0, 0])) + envelope([full])


# ---------------------------------------------------------------- the rest: no verdict but OK or a class


def call_seeds():
    shape = bytes([0, 4, 2, 1, 1, 2])
    life = bytes([0, 2, 7, 0, 0, 0, 5, 5, 0, 2, 6, 0, 1, 4, 0, 1, 1, 2, 1, 0])
    yield "states", "OK", "life", shape + life
    yield "alloc", "OK", "more-than-there", shape + bytes([0, 5, 0, 4, 0, 1])
    yield "release", "OK", "twice", shape + bytes([0, 1, 4, 0, 4, 0, 4, 220, 4, 250])
    yield "retain", "OK", "maximum", shape + bytes([0, 1, 3, 0, 255, 3, 0, 1, 4, 0])
    yield "lookup", "OK", "evicts-oldest", shape + bytes([0, 4] + sum(([5, i, 2, 6, i, i] for i in range(4)), [])
                                                         + [4, 2, 4, 0, 4, 0, 4, 0, 0, 1, 1, 2, 1, 0, 1, 3])
    yield "export", "OK", "listed-twice", shape + bytes([0, 2, 2, 2, 0, 0, 2, 130, 0, 1, 2, 3, 0, 1, 250])
    yield "new", "INVALID", "no-blocks", bytes([0, 0, 2, 1, 1, 2])
    yield "new", "INVALID", "format", bytes([64, 4, 2, 1, 1, 2])
    yield "new", "OK", "caching-off", bytes([1, 4, 2, 1, 1, 2, 0, 1, 5, 0, 2, 6, 0, 1, 1, 1])


def quant_seeds():
    words = [0, 0x80000000, 0x3f800000, 0x3f801000, 0x3f803000, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x387fc000,
             0x7f800000, 0x7fc00001, 0xff800001, 0x38800000]
    yield "f16", "OK", "edges", b"\0" + b"".join(u32(w) for w in words)
    yield "pack", "OK", "two-rows", bytes([1, 2, 4, 1, 0, 15, 7, 8, 1, 2, 3, 4])
    yield "pack", "INVALID", "odd-columns", bytes([1, 2, 3, 1, 0, 15, 7, 8, 1, 2])
    yield "pack", "INVALID", "past-7", bytes([1, 1, 2, 0, 18, 0])
    yield "int4.scale", "OK", "small", bytes([2, 0x81, 2, 2, 2, 1]) + b"".join(u32(i * 77) for i in range(40))
    yield "int4.scale", "INVALID", "odd-group", bytes([2, 0x81, 2, 3, 2, 1]) + bytes(64)
    yield "int4.refuse", "INVALID", "nan", bytes([2, 0, 1, 2, 1, 1]) + u32(0x7fc00000) * 4
    yield "int4.refuse", "INVALID", "infinite-scale", bytes([2, 0, 1, 2, 1, 1]) + u32(0x7f000000) * 4
    yield "int4.zero", "OK", "zeros", bytes([2, 0, 1, 2, 1, 1]) + bytes(32)


def sampler_seeds():
    def ask(vocab, params, k, prompt=(), output=(), logits=(), rng=b"\1\2\3\4\5\6\7\x08\x09\0\0\0"):
        return (bytes([vocab - 1]) + rng + bytes(params) + bytes([k, len(prompt), *prompt, len(output), *output, *logits]))
    usual = [0] * 6
    ramp = [124 + i for i in range(12)]
    yield "sampling", "OK", "plain", ask(12, usual, 0, logits=ramp)
    yield "sampling", "OK", "greedy", ask(12, [96] + usual[1:], 0, logits=ramp)
    yield "sampling", "OK", "ties", ask(12, [0, 100], 3, logits=[130] * 12)
    yield "sampling", "OK", "penalties", ask(12, [0, 0, 0, 103, 105, 99], 0, [1, 2, 3], [3, 3, 4], ramp)
    yield "sampling", "OK", "min-p", ask(12, [0, 0, 106, 0, 0, 0], 0, logits=ramp)
    yield "sampling", "INVALID", "temperature-nan", ask(12, [229] + usual[1:], 0, logits=ramp)
    yield "sampling", "INVALID", "id-past", ask(12, usual, 0, [255], [], ramp)
    yield "sampling", "INVALID", "logit-nan", ask(2, usual, 0, logits=[252, 0, 0, 0xc0, 0x7f, 130])
    yield "sampling", "INVALID", "all-minus-infinity", ask(2, usual, 0, logits=[248, 248])


def forward_seeds():
    alloc = [0, 0, 3]
    step = [1, 1, 0, 3, 1, 2, 3, 2, 0, 1]          # one sequence from 0, three tokens, two blocks
    more = [1, 1, 3, 1, 4, 2, 0, 1]                # goes on at 3
    for i, name in enumerate(["llama-f32", "llama-bf16-tied", "llama-int4", "bigram"]):
        yield "forward", "OK", name, bytes([i, 7, 1, 15, 3, 0] + alloc + step + more)
    for name, batch in [("no-sequence", [1, 0]), ("id-past", [1, 1, 0, 1, 255, 1, 0]), ("short-table", [1, 1, 0, 3, 1, 2, 3, 1, 0]),
                        ("twice", [1, 1, 0, 3, 1, 2, 3, 2, 0, 0]), ("past-context", [1, 1, 21, 1, 1, 1, 0]),
                        ("wraps", [1, 1, 255, 3, 1, 2, 3, 1, 0])]:
        yield "checks", "INVALID", name, bytes([0, 7, 1, 15, 3, 0] + alloc + batch)
    yield "checks", "STATE", "never-filled", bytes([0, 7, 1, 15, 3, 0] + alloc + more)
    yield "checks", "STATE", "not-used", bytes([0, 7, 1, 15, 3, 0] + alloc + [1, 1, 0, 1, 1, 1, 210])
    yield "checks", "STATE", "two-write-one", bytes([0, 7, 1, 15, 3, 0] + alloc + [1, 2, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0])
    yield "checks", "STATE", "other-layers", bytes([255, 7, 1, 15, 3, 0] + alloc + step)
    yield "checks", "CAPACITY", "tokens", bytes([0, 7, 1, 1, 3, 0] + alloc + step)
    yield "checks", "CAPACITY", "context", bytes([0, 7, 1, 15, 3, 2] + alloc + step)


def golden_seeds():
    base = {"schema": "ol.vectors/1", "suite": "rng", "generator": {"name": "g", "version": "1", "command": "c", "libraries": {},
                                                                   "platform": "p"},
            "reference": {"name": "r", "version": "1", "dtype": "u64", "device": "cpu"}, "n_cases": 1, "tolerance": {"mode": "bits", "bound": "0" * 16, "derivation": "d"}, "notes": {},
            "groups": [{"name": "child_seed", "cases": [{"id": "a", "comment": "c", "flags": [], "seed": "0" * 16,
                                                        "purpose": "0" * 16, "value": "0" * 16}]}]}

    def text(**changes):
        return json.dumps({**base, **changes}, indent=2).encode() + b"\n"
    yield "vectors", "OK", "rng", text()
    yield "vectors", "GOLDEN", "another-schema", text(schema="ol.vectors/2")
    yield "vectors", "GOLDEN", "suite", text(suite="x")
    yield "vectors", "GOLDEN", "count", text(n_cases=2)
    yield "vectors", "GOLDEN", "order", json.dumps(dict(reversed(list(base.items())))).encode()
    yield "vectors", "GOLDEN", "note-without-case", text(notes={"x": {"bug": "b", "effect": "e", "mutants": [], "links": []}})
    yield "vectors", "JSON", "cut", text()[:-3]
    yield "vectors", "JSON", "key-twice", text().replace(b'"suite"', b'"schema"')
    yield "manifest", "OK", "manifest-empty", b'{"schema":"ol.manifest/1","files":[]}\n'
    yield "manifest", "GOLDEN", "manifest-path", json.dumps({"schema": "ol.manifest/1", "files": [
        {"path": "../x", "bytes": 1, "sha256": "0" * 64, "generator": "gen/x.py", "args": []}]}).encode()
    yield "manifest", "GOLDEN", "manifest-missing-file", json.dumps({"schema": "ol.manifest/1", "files": [
        {"path": "x", "bytes": 1, "sha256": "0" * 64, "generator": "gen/x.py", "args": []}]}).encode()
    yield "probe", "OK", "probe", json.dumps({"schema": "ol.probe/1", "exp": {"x": ["0" * 16], "y": ["3ff" + "0" * 13]},
                                              "log": {"x": ["3ff" + "0" * 13], "y": ["0" * 16]}}).encode()
    yield "probe", "GOLDEN", "probe-differs", json.dumps({"schema": "ol.probe/1", "exp": {"x": ["0" * 16], "y": ["0" * 16]},
                                                          "log": {"x": ["3ff" + "0" * 13], "y": ["0" * 16]}}).encode()


def frame(value):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return u32(len(text)) + text


def frame_seeds():
    yield "frames", "OK", "answer", frame({"seq": 1, "ok": True, "value": "3ff0000000000000"})
    yield "frames", "OK", "two", frame({"ok": False, "status": "FORMAT", "offset": None, "text": "x"}) + frame({})
    yield "frames", "OK", "arrays", frame({"a": {"f32": "0000803f"}, "b": {"u8": ""}, "c": {"f64": "00"}, "d": {"u16": "zz00"}})
    yield "frames", "OK", "no-json", frame(b"\xff{")
    yield "frames", "OK", "nothing", b""
    yield "frames", "CUT", "cut-length", b"\1\0"
    yield "frames", "CUT", "cut", frame({"ok": True})[:-1]
    yield "frames", "TOO_LONG", "too-long", u32(64 * 1024 * 1024 + 1) + b"{}"


def log_seeds():
    yield "log", "OK", "words", b"it failed\0at <here> & \"there\"\0]]>\0\x1b[31mred\x07"
    yield "log", "OK", "bytes", bytes(range(1, 256)) + b"\0" + "\ufffe\uffff\U0010ffff\u2028".encode()
    yield "log", "OK", "surrogates", b"\xed\xa0\x80\0\xf4\x90\x80\x80\0\xc0\x80\0\xe2\x82"


RULES = {"safetensors": safetensors_rules, "index": index_rules, "config": config_rules, "checkpoint": checkpoint_rules,
         "kv_import": kv_import_rules, "kv_calls": call_seeds, "quant": quant_seeds, "sampler": sampler_seeds,
         "forward": forward_seeds, "golden": golden_seeds, "frames": frame_seeds, "log": log_seeds}
PAGES = {"safetensors": "safetensors#", "index": "safetensors#shards.", "config": "config#", "checkpoint": "",
         "kv_import": "kv#", "kv_calls": "kv#", "quant": "", "sampler": "", "forward": "forward#", "golden": "",
         "frames": "", "log": ""}


def rules(target):
    """[(name, verdict, clause, bytes)], names unique."""
    out, seen = [], set()
    for clause, verdict, name, data in RULES[target]():
        full = f"{clause}-{name}" if clause not in name else name
        full = "".join(c if c.isalnum() or c in "-_." else "_" for c in full)
        assert full not in seen, f"{target}/{full} twice"
        seen.add(full)
        out.append((full, verdict, PAGES[target] + clause, data))
    return out


# ---------------------------------------------------------------- goldens as seeds


def pieces(parts):
    out = b""
    for part in parts:
        if "hex" in part:
            piece = bytes.fromhex(part["hex"])
        elif "text" in part:
            piece = part["text"].encode()
        else:
            piece = bytes([part["byte"]])
        if len(piece) * part.get("count", 1) + len(out) > GOLDEN_BYTES_MAX:
            return None
        out += piece * part.get("count", 1)
    return out


def small_goldens():
    """Of each golden file one small file for each group: a case, and its twin."""
    folder_ = os.path.join(ROOT, "goldens")
    for name in sorted(n for n in os.listdir(folder_) if n.endswith((".vectors.json", ".golden.json"))):
        with open(os.path.join(folder_, name), encoding="utf-8") as file:
            doc = json.load(file)
        by_id = {c["id"]: (g["name"], c) for g in doc["groups"] for c in g["cases"]}
        for group in doc["groups"]:
            for case in sorted(group["cases"], key=lambda c: len(json.dumps(c)))[:2]:
                cases = {group["name"]: [case]}
                if case.get("twin") in by_id:
                    other, twin = by_id[case["twin"]]
                    cases.setdefault(other, []).append(twin)
                every = [c for part in cases.values() for c in part]
                flags = {f for c in every for f in c["flags"]}
                made = {**doc, "n_cases": len(every), "notes": {f: doc["notes"][f] for f in sorted(flags)},
                        "groups": [{"name": g, "cases": part} for g, part in cases.items()]}
                text = json.dumps(made, indent=1)
                for model_name in os.listdir(os.path.join(folder_, "models")):
                    text = text.replace(f'"models/{model_name}"', '"models/m"')
                if len(text) <= GOLDEN_BYTES_MAX:
                    yield f"{name.split('.')[0]}-{group['name']}-{case['id']}", text.encode() + b"\n"


def golden_cases(target):
    """[(id, bytes)] of the goldens' own cases that fit the target and are small."""
    if target == "golden":
        yield from small_goldens()
    suite = {"safetensors": "safetensors", "index": "safetensors", "config": "config", "checkpoint": "config"}.get(target)
    if suite is None:
        return
    with open(os.path.join(ROOT, "goldens", suite + ".vectors.json"), encoding="utf-8") as file:
        groups = json.load(file)["groups"]
    for case in [c for g in groups for c in g["cases"]]:
        files = {}
        if target in ("safetensors", "config") and "file" in case and "weights" not in case:
            files = {"": pieces(case["file"])}
        elif target == "index" and "files" in case and "config" not in case:
            files = {name: pieces(p) for name, p in case["files"].items()}
        elif target == "checkpoint" and "weights" in case and ("config" in case or "file" in case):
            files = {"config.json": pieces(case.get("config") or case["file"]), "model.safetensors": pieces(case["weights"])}
        if files and all(v is not None for v in files.values()) and len(files) <= 8:
            yield case["id"], files[""] if "" in files else folder(files)
