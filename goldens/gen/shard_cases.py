"""The int4 and shard cases of safetensors.vectors.json (rules 12 and 13); see safetensors_cases.py.

A tiny Llama with plain or quantized projections is built in memory and spoilt in one place at a
time; directories of shards are spoilt in their index or in one shard.  The book that the functions
fill checks every verdict against oracle.py.
"""

import struct

import files as f
import oracle
from files import entry, header, safetensors

A1 = header(a=entry("F32", [1], 0, 4))
AB = header(a=entry("F32", [1], 0, 4), b=entry("F32", [1], 4, 8))
ZERO8 = bytes(8)


TINY = ('{"tl_arch":"llama","tl_tokenizer":"bpe","vocab_size":8,"hidden_size":4,'
        '"intermediate_size":8,"num_hidden_layers":2,"num_attention_heads":2,'
        '"num_key_value_heads":1,"rms_norm_eps":1e-5,"tie_word_embeddings":%s}')


class Model:
    """The tensors of a tiny Llama: name -> (dtype, shape, bytes), plain or in int4."""

    def __init__(self, rng, tied=True, group=2, quantized=True):
        self.config = f.text(TINY % ("true" if tied else "false"))
        cfg = oracle.parse_config(f.materialise(self.config))
        self.tensors, self.metadata = {}, {}
        want, linear = oracle.tensors_of(cfg)
        if quantized:
            self.metadata["quant"] = f"int4-g{group}-sym"
        for name, shape in want.items():
            if quantized and name in linear:
                base = name.removesuffix(".weight")
                rows, columns = shape
                self.put(f"{base}.qweight", "U8", [rows, columns // 2], rng.randbytes(
                    rows * columns // 2))
                self.put(f"{base}.scales", "F16", [rows, columns // group], b"".join(
                    struct.pack("<H", rng.randrange(0x2000, 0x3000))
                    for _ in range(rows * columns // group)))
            else:
                n = 1
                for d in shape:
                    n *= d
                self.put(name, "BF16", shape, b"".join(
                    struct.pack("<H", rng.randrange(0x3E00, 0x3F80)) for _ in range(n)))

    def put(self, name, dtype, shape, data):
        self.tensors[name] = (dtype, shape, data)

    def change(self, **changed):
        """A copy with metadata, removed names or replaced tensors."""
        copy = object.__new__(Model)
        copy.config = self.config
        copy.metadata = {**self.metadata, **changed.get("metadata", {})}
        copy.metadata = {k: x for k, x in copy.metadata.items() if x is not None}
        copy.tensors = {k: x for k, x in {**self.tensors, **changed.get("tensors", {})}.items()
                        if k not in changed.get("without", ())}
        return copy

    def file(self):
        entries, data = {}, b""
        if self.metadata:
            pairs = ",".join(f'"{k}":"{x}"' for k, x in self.metadata.items())
            entries["__metadata__"] = "{" + pairs + "}"
        for name, (dtype, shape, raw) in self.tensors.items():
            entries[name] = entry(dtype, shape, len(data), len(data) + len(raw))
            data += raw
        return safetensors(header(**entries), f.raw(data))

    def inputs(self, **more):
        return {"file": self.file(), "config": self.config, **more}


def int4_rules(book, rng):
    q4, untied = Model(rng), Model(rng, tied=False)
    plain = Model(rng, quantized=False)
    group, twin = "int4_tensors", "int4-ok"
    book.ok(group, twin, "the seven projections of both layers in groups of 2, tied", 12,
            q4.inputs(), ["int4"])
    book.ok(group, "int4-ok-untied", "untied: the head is quantized too", 12, untied.inputs(),
            ["int4"])
    book.ok(group, "int4-ok-at-load", "a plain file, quantized at load", 12,
            plain.inputs(int4_group=2), ["int4"])
    book.ok(group, "int4-ok-plain", "the same plain file as it is", 12, plain.inputs(), ["int4"])
    zero = "model.layers.0.self_attn.k_proj.scales"
    dtype, shape, raw = q4.tensors[zero]
    book.ok(group, "int4-ok-scale-zero", "zero and subnormal scales are legal", 12,
            q4.change(tensors={zero: (dtype, shape, b"\0\0\1\0" + raw[4:])}).inputs(), ["int4"])

    def bad(case_id, comment, model, status="FORMAT", subject=None, twin=twin, **more):
        book.bad(group, case_id, comment, 12, model.inputs(**more), twin, status, subject,
                 ["int4"])

    name = "model.layers.1.mlp.up_proj"
    for label, bits in (("nan", 0x7E00), ("nan-small", 0x7C01), ("inf", 0x7C00),
                        ("negative", 0xB000), ("minus-zero", 0x8000), ("minus-inf", 0xFC00)):
        dtype, shape, raw = q4.tensors[name + ".scales"]
        at = 2 * rng.randrange(1, len(raw) // 2)
        wrong = raw[:at] + struct.pack("<H", bits) + raw[at + 2:]
        bad(f"int4-scale-{label}", f"a stored scale of {bits:04x}", q4.change(tensors={
            name + ".scales": (dtype, shape, wrong)}), subject=name + ".scales")
    for label, quant in (("zero", "int4-g0-sym"), ("odd", "int4-g1-sym")):
        bad(f"int4-quant-{label}", f"quant = {quant}", q4.change(metadata={"quant": quant}),
            subject="quant")
    bad("int4-quant-no-divisor", "groups of 8 for rows of 4",
        q4.change(metadata={"quant": "int4-g8-sym"}))
    for label, quant in (("leading-zero", "int4-g02-sym"), ("minus", "int4-g-2-sym"),
                         ("no-number", "int4-g-sym"), ("asym", "int4-g2-asym"),
                         ("huge", "int4-g18446744073709551618-sym"), ("int8", "int8-g2-sym"),
                         ("space", "int4-g2-sym "), ("upper", "INT4-g2-sym"), ("empty", "")):
        bad(f"int4-quant-{label}", f"quant = {quant!r}", q4.change(metadata={"quant": quant}),
            "FORMAT UNSUPPORTED", "quant")
    bad("int4-group-four", "groups of 4 said, groups of 2 stored",
        q4.change(metadata={"quant": "int4-g4-sym"}))
    qweight, scales = q4.tensors[name + ".qweight"], q4.tensors[name + ".scales"]
    short = (scales[0], [scales[1][0], scales[1][1] - 1], scales[2][:scales[1][0] *
                                                                    (scales[1][1] - 1) * 2])
    bad("ld-bad-int4-scales-short", "the scales of one projection are a group short",
        q4.change(tensors={name + ".scales": short}), subject=name + ".scales")
    bad("int4-scales-flat", "scales of the right count and another shape", q4.change(tensors={
        name + ".scales": (scales[0], [scales[1][0] * scales[1][1]], scales[2])}),
        subject=name + ".scales")
    bad("int4-scales-turned", "scales [groups, out]", q4.change(tensors={
        name + ".scales": (scales[0], scales[1][::-1], scales[2])}), subject=name + ".scales")
    bad("int4-qweight-unpacked", "one byte a weight", q4.change(tensors={
        name + ".qweight": ("U8", [qweight[1][0], qweight[1][1] * 2], qweight[2] * 2)}),
        subject=name + ".qweight")
    bad("int4-qweight-i8", "qweight in I8", q4.change(tensors={
        name + ".qweight": ("I8", qweight[1], qweight[2])}), "UNSUPPORTED FORMAT",
        name + ".qweight")
    bad("int4-scales-f32", "scales in F32", q4.change(tensors={
        name + ".scales": ("F32", scales[1], scales[2] * 2)}), "UNSUPPORTED FORMAT",
        name + ".scales")
    bad("int4-scales-bf16", "scales in BF16", q4.change(tensors={
        name + ".scales": ("BF16", scales[1], scales[2])}), "UNSUPPORTED FORMAT",
        name + ".scales")
    bad("int4-no-scales", "qweight without its scales", q4.change(without=[name + ".scales"]),
        "NOT_FOUND FORMAT", name)
    bad("int4-no-qweight", "scales without their qweight", q4.change(without=[name + ".qweight"]),
        "NOT_FOUND FORMAT", name)
    mixed = q4.change(without=[name + ".qweight", name + ".scales"],
                      tensors={name + ".weight": plain.tensors[name + ".weight"]})
    bad("int4-one-plain", "one projection is not quantized", mixed, "NOT_FOUND UNSUPPORTED FORMAT",
        name)
    bad("int4-beside-plain", "a projection is there in both forms", q4.change(tensors={
        name + ".weight": plain.tensors[name + ".weight"]}), "UNSUPPORTED FORMAT", name)
    bad("int4-norm", "a norm is quantized too", q4.change(tensors={
        "model.norm.qweight": ("U8", [1, 2], bytes(2)),
        "model.norm.scales": ("F16", [1, 2], bytes(4))}), "UNSUPPORTED FORMAT", "model.norm")
    bad("int4-embedding", "the embedding is quantized", q4.change(
        without=["model.embed_tokens.weight"], tensors={
            "model.embed_tokens.qweight": ("U8", [8, 2], bytes(16)),
            "model.embed_tokens.scales": ("F16", [8, 2], bytes(32))}),
        "NOT_FOUND UNSUPPORTED FORMAT", "model.embed_tokens")
    bad("int4-head-plain", "untied, and the head is not quantized", untied.change(
        without=["lm_head.qweight", "lm_head.scales"],
        tensors={"lm_head.weight": ("BF16", [8, 4], bytes(64))}), "NOT_FOUND UNSUPPORTED FORMAT",
        "lm_head", twin="int4-ok-untied")
    bad("int4-quant-but-plain", "quant is said and nothing is quantized",
        plain.change(metadata={"quant": "int4-g2-sym"}), "NOT_FOUND UNSUPPORTED FORMAT",
        twin="int4-ok-plain")
    bad("int4-no-quant", "quantized tensors and no quant", q4.change(metadata={"quant": None}),
        "NOT_FOUND UNSUPPORTED FORMAT")
    bad("int4-twice", "an int4 file, and quantizing at load is asked for", q4, "INVALID",
        int4_group=2)
    for number, label in ((8, "no-divisor"), (3, "odd"), (1, "one")):
        bad(f"int4-load-{label}", f"quantizing at load with groups of {number}", plain, "INVALID",
            twin="int4-ok-at-load", int4_group=number)
    weight = plain.tensors[name + ".weight"]
    for label, bits in (("nan", 0x7FC0), ("inf", 0xFF80)):
        wrong = weight[2][:6] + struct.pack("<H", bits) + weight[2][8:]
        bad(f"int4-load-{label}", "quantizing a weight that is not finite", plain.change(tensors={
            name + ".weight": (weight[0], weight[1], wrong)}), "INVALID", name,
            twin="int4-ok-at-load", int4_group=2)


S1, S2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
SHARD_A = safetensors(A1, struct.pack("<f", 1.5))
SHARD_B = safetensors(header(b=entry("F32", [1], 0, 4)), struct.pack("<f", -2.5))
LFS = f.text("version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 +
             "\nsize 12345\n")


def directory(index, **shards):
    """Files of a directory: the index text, then shards a, b and single by short names."""
    names = {"a": S1, "b": S2, "single": SINGLE}
    out = {INDEX: f.text(index) if isinstance(index, str) else index}
    out.update({names.get(k, k): x for k, x in shards.items() if x is not None})
    return {"files": out}


def both(index):
    return directory(index, a=SHARD_A, b=SHARD_B)


# id: (subject, what the directory holds, twin)
CARRIED_INDEX = {
    "ix-bad-traversal": ("a", "one", "index-one-shard"),
    "ix-bad-absolute": ("a", "one", "index-one-shard"),
    "ix-bad-subdir": ("a", "one", "index-one-shard"),
    "ix-bad-empty-name": ("a", "one", "index-one-shard"),
    "ix-bad-dotdot-only": ("a", "one", "index-one-shard"),
    "ix-bad-value-number": ("a", "one", "index-one-shard"),
    "ix-bad-nul-name": (None, "one", "index-one-shard"),
    "ix-bad-no-weight-map": ("weight_map", "one", "index-one-shard"),
    "ix-bad-tensor-not-in-shard": ("b", "both", "ix-ok-two-shards"),
}


def shard_rules(book, rng):
    cases = f.carried(lambda i: i.startswith("ix-"))
    group, flags = "shards", ["shards"]

    def text_of(case_id):
        return f.comment_of(cases[case_id])

    for case_id in ("ix-ok-two-shards", "ix-ok-total-size-wrong"):
        book.ok(group, case_id, text_of(case_id), 13, both(cases[case_id]["index_text"]), flags)
    single_map = '{"weight_map": {"a": "%s"}}' % S1
    book.ok(group, "index-one-shard", "an index with one shard", 13,
            directory(single_map, a=SHARD_A), flags)
    for case_id, name in (("dots-inside", "a..b.safetensors"), ("dots-before", "..a.safetensors"),
                          ("ending-alone", ".safetensors"), ("dot-ending", "..safetensors"),
                          ("space", "model 1.safetensors")):
        book.ok(group, f"index-name-{case_id}", f"a base name with no separator in it: {name!r}",
                13, directory('{"weight_map": {"a": "%s"}}' % name, **{name: SHARD_A}), flags)
    book.ok(group, "ix-ok-symlink", text_of("ix-ok-symlink"), 13, {
        **directory(cases["ix-ok-symlink"]["index_text"], a=safetensors(
            header(a=entry("F32", [2], 0, 8)), struct.pack("<2f", 0.5, 2.0))),
        "node": "link", "node_of": S1}, flags)
    book.ok(group, "directory-single", "a directory with model.safetensors alone", 13,
            {"files": {SINGLE: SHARD_A}}, flags)
    two = cases["ix-ok-two-shards"]["index_text"]

    def bad(case_id, comment, inputs, twin="ix-ok-two-shards", status="FORMAT", subject=None,
            rule=13, more=()):
        book.bad(group, case_id, comment, rule, inputs, twin, status, subject, [*flags, *more])

    for case_id, (subject, holds, twin) in CARRIED_INDEX.items():
        index = cases[case_id]["index_text"]
        bad(case_id, text_of(case_id),
            both(index) if holds == "both" else directory(index, a=SHARD_A), twin, "FORMAT",
            subject)
    twice = safetensors(AB, ZERO8)
    bad("ix-bad-same-tensor-twice", text_of("ix-bad-same-tensor-twice"),
        directory(two, a=SHARD_A, b=twice), subject="a")
    bad("ix-bad-both-forms", text_of("ix-bad-both-forms"),
        directory(two, a=SHARD_A, b=SHARD_B, single=twice), subject=SINGLE)
    bad("ix-bad-shard-lfs", text_of("ix-bad-shard-lfs"), directory(two, a=SHARD_A, b=LFS),
        subject=f"{S2} LFS", rule=2)
    bad("ix-bad-shard-truncated", text_of("ix-bad-shard-truncated"),
        directory(two, a=SHARD_A, b=safetensors(header(b=entry("F32", [1], 0, 4)), b"\0\0")),
        subject=S2, rule=9)
    bad("shard-missing", "the second shard is not there", directory(two, a=SHARD_A),
        status="IO", subject=S2)
    bad("shard-directory", "a directory where a shard should be",
        {**directory(two, a=SHARD_A), "node": "directory", "node_of": S2}, status="IO",
        subject=S2)
    bad("shard-fifo", "a FIFO where a shard should be",
        {**directory(two, a=SHARD_A), "node": "fifo", "node_of": S2}, status="IO", subject=S2)
    bad("directory-empty", "a directory with neither form", {"files": {}}, "directory-single",
        "IO", rule=1)
    for case_id, index, subject in (
            ("map-empty", '{"weight_map": {}}', "weight_map"),
            ("map-array", '{"weight_map": ["a"]}', "weight_map"),
            ("map-null", '{"weight_map": null}', "weight_map"),
            ("map-dup", '{"weight_map": {"a": "%s", "a": "%s"}}' % (S1, S1), None),
            ("index-array", "[]", None), ("index-empty", "", None),
            ("index-trailing", single_map + "x", None),
            ("index-bom", "\ufeff" + single_map, None),
            ("map-backslash", '{"weight_map": {"a": "sub\\\\x.safetensors"}}', "a"),
            ("map-dot-prefix", '{"weight_map": {"a": "./%s"}}' % S1, "a"),
            ("map-extension", '{"weight_map": {"a": "model.bin"}}', "a"),
            ("map-extension-case", '{"weight_map": {"a": "%s"}}' % S1.upper(), "a"),
            ("map-dots", '{"weight_map": {"a": "..model.safetensors/../%s"}}' % S1, "a"),
            ("map-null-value", '{"weight_map": {"a": null}}', "a"),
            ("map-extra-name", '{"weight_map": {"a": "%s", "ghost": "%s"}}' % (S1, S1), "ghost")):
        bad(f"index-{case_id}" if not case_id.startswith("index") else case_id,
            f"the index is {index!r}"[:100], directory(index, a=SHARD_A), "index-one-shard",
            "FORMAT", subject)
    bad("index-nul", "a NUL after a number in the index", directory(
        f.text('{"metadata": {"total_size": 4') + f.raw(b"\0") + f.text('}, "weight_map": ' +
                                                                       single_map[15:]),
        a=SHARD_A), directory('{"metadata": {"total_size": 4}, "weight_map": ' + single_map[15:],
                              a=SHARD_A), more=["nul"])
    bad("left-over", "a shard holds a tensor that the map lacks",
        directory(single_map, a=twice), "index-one-shard", "FORMAT", "b")
    bad("swapped", "each tensor is in the other shard", directory(two, a=SHARD_B, b=SHARD_A))
    for case_id, size in (("text", '"8"'), ("real", "8.5"), ("negative", "-1"), ("null", "null")):
        book.ok(group, f"total-size-{case_id}", f"total_size is {size}", 13, both(
            two.replace('"total_size": 8', f'"total_size": {size}')), flags)
    depth = '{"metadata": %s, "weight_map": ' + single_map[15:]
    bad("index-depth", "65 levels in the index", directory(
        depth % ("[" * 64 + "]" * 64), a=SHARD_A), directory(depth % ("[" * 63 + "]" * 63),
                                                              a=SHARD_A), more=["depth"])
    nodes = f.text('{"weight_map": ' + single_map[15:-1] + ',"x":[')
    bad("index-nodes", "101,000 nodes in the index", directory(
        nodes + f.text("0,", 101000) + f.text("0]}"), a=SHARD_A), directory(
            nodes + f.text("0,", 99000) + f.text("0]}"), a=SHARD_A), more=["nodes"])
    bad("index-size", "an index of 16 MiB and one byte", directory(
        f.text(single_map) + f.fill(32, (16 << 20) + 1 - len(single_map)), a=SHARD_A), directory(
            f.text(single_map) + f.fill(32, (16 << 20) - len(single_map)), a=SHARD_A),
        more=["length"])
    sharded_int4(book, rng, bad)


def sharded_int4(book, rng, bad):
    """Two shards of an int4 model: both say the same quant, or the checkpoint is refused."""
    model = Model(rng)
    names = list(model.tensors)
    parts = [model.change(without=names[len(names) // 2:]),
             model.change(without=names[:len(names) // 2])]

    def inputs(second):
        where = {n: S1 for n in parts[0].tensors} | {n: S2 for n in second.tensors}
        index = "{\"weight_map\":{" + ",".join(f'"{n}":"{s}"' for n, s in where.items()) + "}}"
        return {**directory(index, a=parts[0].file(), b=second.file()), "config": model.config}

    book.ok("shards", "int4-sharded", "an int4 checkpoint in two shards", 13, inputs(parts[1]),
            ["shards", "int4"])
    for label, quant in (("missing", None), ("differs", "int4-g4-sym")):
        bad(f"int4-shard-quant-{label}", "the second shard says another quant",
            inputs(parts[1].change(metadata={"quant": quant})), "int4-sharded", "FORMAT", "quant",
            12, ["int4"])
