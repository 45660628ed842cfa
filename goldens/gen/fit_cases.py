"""The cases of config.vectors.json where a config meets weights; see config_cases.py.

Tensors are fills of one byte, so a whole model is a few lines of JSON.  The tiny Llama of the base
config is spoilt in one tensor at a time; oracle.py checks that config and file fit both ways.
"""

import files as f
import oracle

FLAGS = {"weights_fit": "fit", "tied_head": "tied"}
SIZE = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I8": 1, "F8_E4M3": 1, "I32": 4, "U8": 1}


class Weights:
    """A set of tensors whose data are fills: name -> [dtype, shape, byte], and perhaps the last byte
    where that is another."""

    def __init__(self, config_inputs):
        self.config = config_inputs["file"]
        want, _ = oracle.tensors_of(oracle.parse_config(f.materialise(self.config)))
        self.tensors = {name: ["BF16", shape, 0x3B] for name, shape in want.items()}

    def change(self, without=(), **put):
        copy = object.__new__(Weights)
        copy.config = self.config
        copy.tensors = {k: x for k, x in self.tensors.items() if k not in without}
        copy.tensors.update(put)
        return copy

    def with_config(self, config):
        copy = self.change()
        copy.config = config
        return copy

    def inputs(self):
        entries, data, at = {}, [], 0
        for name, (dtype, shape, byte, *last) in self.tensors.items():
            size = SIZE[dtype]
            for d in shape:
                size *= d
            entries[name] = f.entry(dtype, shape, at, at + size)
            for value, count in ((byte, size - len(last)), *((b, 1) for b in last)):
                if data and data[-1]["byte"] == value:
                    data[-1] = {"byte": value, "count": data[-1]["count"] + count}
                else:
                    data += f.fill(value, count)
            at += size
        return {"file": self.config, "weights": f.safetensors(f.header(**entries), data)}


def weights_fit(book, base):
    """base(**changed) gives the inputs of the base config with some keys changed."""
    cases = f.carried(lambda i: i.startswith("ld-"))
    tied = Weights(base())
    untied = Weights(base(tie_word_embeddings=False))
    embed, head, norm = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
    q = "model.layers.0.self_attn.q_proj.weight"
    down = "model.layers.1.mlp.down_proj.weight"

    def text(case_id):
        return f.comment_of(cases[case_id]) if case_id in cases else None

    def ok(group, case_id, model, comment=None):
        book.ok(group, case_id, text(case_id) or comment, model.inputs(), [FLAGS[group]])

    def bad(group, case_id, model, status, subject, comment=None, twin="ld-ok-tied"):
        book.bad(group, case_id, text(case_id) or comment, model.inputs(), status, subject, twin,
                 [FLAGS[group]])

    ok("tied_head", "ld-ok-tied", tied)
    ok("tied_head", "ld-ok-tied-with-head", tied.change(**{head: tied.tensors[embed]}))
    bad("tied_head", "ld-bad-tied-head-differs", tied.change(**{head: ["BF16", [256, 64], 0x3F]}),
        "UNSUPPORTED", head, twin="ld-ok-tied-with-head")
    bad("tied_head", "tied-head-last-byte", tied.change(**{head: ["BF16", [256, 64], 0x3B, 0x3C]}),
        "UNSUPPORTED", head, "tied, and a head that differs in its last byte alone",
        "ld-ok-tied-with-head")
    for name, value, comment in (
            ("below", ["BF16", [256, 64], 0x3A], "of smaller bytes"),
            ("last-byte-below", ["BF16", [256, 64], 0x3B, 0x3A], "whose last byte is smaller"),
            ("more-rows", ["BF16", [257, 64], 0x3B], "with a row more"),
            ("fewer-rows", ["BF16", [255, 64], 0x3B], "with a row less")):
        bad("tied_head", f"tied-head-{name}", tied.change(**{head: value}), "UNSUPPORTED FORMAT", head,
            f"tied, and a head {comment}", "ld-ok-tied-with-head")
    bad("tied_head", "tied-head-shape", tied.change(**{head: ["BF16", [64, 256], 0x3B]}),
        "UNSUPPORTED FORMAT", head, "tied, and a head of the same bytes in another shape",
        "ld-ok-tied-with-head")
    bad("tied_head", "tied-head-dtype", tied.change(**{head: ["F32", [256, 64], 0x3B]}),
        "UNSUPPORTED", head, "tied, and a head of another type", "ld-ok-tied-with-head")
    ok("tied_head", "untied-with-head", untied.change(**{head: ["BF16", [256, 64], 0x3C]}),
       "untied, with a head of its own")
    bad("tied_head", "untied-without-head", untied.change([head]), "NOT_FOUND", head,
        "untied, and no head", "untied-with-head")
    rotary = {f"model.layers.{n}.self_attn.rotary_emb.inv_freq": ["F32", [8], 0x3B]
              for n in (0, 1)}
    ok("weights_fit", "ld-ok-inv-freq", tied.change(**rotary))
    ok("weights_fit", "inv-freq-elsewhere", tied.change(
        **{"model.rotary_emb.inv_freq": ["F32", [8], 0x3B]}), "one table for all layers")
    for case_id, name, shape in (
            ("ld-bad-extra-bias", "model.layers.0.self_attn.q_proj.bias", [64]),
            ("extra-q-norm", "model.layers.0.self_attn.q_norm.weight", [16]),
            ("extra-layer", "model.layers.2.input_layernorm.weight", [64]),
            ("extra-any", "model.layers.0.self_attn.q_proj.weight_scale_inv", [1]),
            ("extra-cos-cached", "model.layers.0.self_attn.rotary_emb.cos_cached", [8]),
            ("extra-empty", "model.layers.0.empty", [0])):
        bad("weights_fit", case_id, tied.change(**{name: ["BF16", shape, 0x3B]}), "UNSUPPORTED",
            name, "a tensor that the config does not call for")
    for name in (embed, norm, q, down, "model.layers.1.post_attention_layernorm.weight"):
        bad("weights_fit", f"without-{name}", tied.change([name]), "NOT_FOUND", name,
            "a tensor is missing")
    renamed = tied.change([q], **{q.replace("model.", ""): tied.tensors[q]})
    bad("weights_fit", "renamed", renamed, "NOT_FOUND UNSUPPORTED", None,
        "a tensor without the prefix")
    bad("weights_fit", "ld-bad-transposed", tied.change(**{down: ["BF16", [128, 64], 0x3B]}),
        "FORMAT", down)
    bad("weights_fit", "ld-bad-norm-rank", tied.change(**{norm: ["BF16", [1, 64], 0x3B]}),
        "FORMAT", norm)
    for case_id, name, shape in (
            ("shape-embed", embed, [255, 64]), ("shape-q", q, [64, 32]),
            ("shape-k", q.replace("q_proj", "k_proj"), [64, 64]),
            ("shape-norm", norm, [65]), ("shape-flat", q, [4096]),
            ("shape-scalar", norm, [])):
        bad("weights_fit", case_id, tied.change(**{name: ["BF16", shape, 0x3B]}), "FORMAT", name,
            f"shape {shape}")
    for case_id, name, dtype in (
            ("ld-bad-f64-weight", norm, "F64"), ("ld-bad-fp8-weight", q, "F8_E4M3"),
            ("ld-bad-i8-weight", q, "I8"), ("dtype-i32", embed, "I32"), ("dtype-u8", down, "U8")):
        bad("weights_fit", case_id, tied.change(**{name: [dtype, tied.tensors[name][1], 0x3B]}),
            "UNSUPPORTED", name, f"a weight in {dtype}")
    mixed = tied.change(**{n: ["F32" if "norm" in n else "F16" if n == embed else "BF16", s, b]
                           for n, (_, s, b) in tied.tensors.items()})
    ok("weights_fit", "ld-ok-mixed-dtype", mixed)
    wide = Weights(base(head_dim=32))
    ok("weights_fit", "fit-head-dim", wide, "heads x head_dim is twice the hidden size")
    bad("weights_fit", "fit-head-dim-ignored", Weights(base()).with_config(
        wide.config), "FORMAT", None, "head_dim 32 in the config, 16 in the file", "fit-head-dim")
    two = {"file": f.text('{"tl_arch":"bigram","tl_tokenizer":"bpe","vocab_size":8}')}
    table = Weights(two)
    ok("weights_fit", "fit-bigram", table, "the bigram's one tensor")
    for case_id, model, status, subject in (
            ("bigram-extra", table.change(**{"bias": ["BF16", [8], 1]}), "UNSUPPORTED", "bias"),
            ("bigram-shape", table.change(**{"bigram.weight": ["BF16", [8, 9], 1]}), "FORMAT",
             "bigram.weight"),
            ("bigram-dtype", table.change(**{"bigram.weight": ["I32", [8, 8], 1]}), "UNSUPPORTED",
             "bigram.weight"),
            ("bigram-none", table.change(["bigram.weight"]), "NOT_FOUND", "bigram.weight")):
        bad("weights_fit", case_id, model, status, subject, "a bigram that does not fit",
            "fit-bigram")
