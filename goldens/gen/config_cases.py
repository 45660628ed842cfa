"""config.vectors.json: every row of conformance/spec/config.md, a twin for each fault.

The base is a plain tiny Llama; a case changes one thing in it (or the few that belong together).
Verdict, status and subject are written by hand and must be the oracle's too (oracle.py); what an
accepted file says is the oracle's reading, held against the values that a case names itself.
Two allowed statuses stand where a value is of the wrong JSON type in a row whose refusal is
UNSUPPORTED: the page's general sentence and the row name different ones.
"""

import json
import os
import random

import files as f
import fit_cases
import oracle
import vectors as v
from config_carried import (BASE, BASE_ID, CARRIED, CARRIED_OK, EITHER, FLAG_OF_GROUP, NO_ROPE,
                            base, raw, render)


def judge(inputs):
    if "node" in inputs:
        raise oracle.Fault("IO", 0)
    parsed = oracle.parse_config(f.materialise(inputs["file"]))
    want, _ = oracle.tensors_of(parsed)
    for name, shape in want.items() if parsed.get("n_layers", 0) <= 64 else ():
        if shape[0] * shape[-1] * 4 >= 1 << 64:
            raise oracle.Fault("FORMAT", 0, name)
    if "weights" in inputs:
        tensors, metadata = oracle.parse_safetensors(f.materialise(inputs["weights"]))
        oracle.load_model(parsed, tensors, metadata)
    return parsed


def parsed_json(parsed):
    return {k: v.f64hex(x) if k in ("rope_theta", "rms_norm_eps") else x
            for k, x in parsed.items()}


def is_document(data):
    """Whether a lenient JSON reader finds a document, which is what a schema is applied to."""
    def finite(text):
        if text.strip("-") in ("NaN", "Infinity") or float(text) in (float("inf"), -float("inf")):
            raise ValueError(text)
        return float(text)
    try:
        json.loads(data.decode("utf-8"), parse_constant=finite, parse_float=finite)
        return True
    except RecursionError:
        return True
    except ValueError:
        return False


class Cases(f.Book):
    file_name = "config.json"

    def ok(self, group, case_id, comment, inputs, flags=(), want=None):
        def expected(parsed):
            for key, value in (want or {}).items():
                if parsed[key] != value:
                    raise SystemExit(f"{case_id}: {key} is {parsed[key]!r}, not {value!r}")
            return {"parsed": parsed_json(parsed)}
        self.accept(group, case_id, comment, flags, inputs, expected)

    def bad(self, group, case_id, comment, inputs, status="FORMAT", subject=None, twin=BASE_ID,
            flags=(), beyond=False):
        """beyond: only the page can refuse this, a JSON Schema accepts it."""
        if isinstance(twin, dict):
            inputs_of_twin, twin = twin, self.known(twin) or case_id + "-twin"
            if twin not in self.ids:
                self.ok(group, twin, f"the twin of {case_id}", inputs_of_twin, flags)
        more = {}
        if "node" in inputs or "weights" not in inputs and not is_document(
                f.materialise(inputs["file"])):
            more["schema_says"] = "none"
        elif beyond or "weights" in inputs:
            more["schema_says"] = "accept"
        self.refuse(group, case_id, comment, flags, inputs, status, twin, subject, **more)


# --------------------------------------------------------------------- carried-over cases

def carried_inputs(case):
    special = {"cf-bad-huge": {"file": f.text(render()) + f.fill(32, 8 << 20)},
               "cf-bad-directory": {"node": "directory"},
               "cf-bad-missing-file": {"node": "missing"},
               "cf-ok-locale": {**base(), "locale": "de_DE.UTF-8"}}
    if case["id"] in special:
        return special[case["id"]]
    if "config_hex" in case:
        return {"file": f.raw(bytes.fromhex(case["config_hex"]))}
    if "config_text" in case:
        return raw(case["config_text"])
    return base(case.get("unset", ()), **case["set"])


def carried_over(book):
    cases = f.carried(lambda i: i.startswith("cf-"))
    for case_id, case in cases.items():
        if case["verdict"] == "accept":
            group, want = CARRIED_OK[case_id]
            book.ok(group, case_id, f.comment_of(case), carried_inputs(case),
                    [FLAG_OF_GROUP[group]], want)
    limits(book)
    for case_id, case in cases.items():
        if case["verdict"] == "refuse":
            group, status, subject, twin, beyond = CARRIED[case_id]
            book.bad(group, case_id, f.comment_of(case), carried_inputs(case), status, subject,
                     twin or BASE_ID, [FLAG_OF_GROUP[group]], beyond)


# ------------------------------------------------------------------------------ the rows

def limits(book):
    """The accepted side of the limits of a file, which refused cases name as twins."""
    text = render()
    deep = '"x": ' + "[" * 63 + "]" * 63
    book.ok("json_rules", "depth-64", "64 levels", raw(text[:-1] + ", " + deep + "}"), ["json"])
    book.ok("json_rules", "size-1-mib", "1 MiB to the byte",
            {"file": f.text(text) + f.fill(32, (1 << 20) - len(text))}, ["json"])
    head = f.text(text[:-1] + ', "x": [')
    book.ok("json_rules", "nodes-99000", "99,000 zeros",
            {"file": head + f.text("0,", 98999) + f.text("0]}")}, ["json"])


def json_rules(book):
    text = render()

    def bad(case_id, comment, content, twin=BASE_ID, beyond=False):
        inputs = content if isinstance(content, dict) else raw(content)
        book.bad("json_rules", case_id, comment, inputs, "FORMAT", None, twin, ["json"], beyond)

    def plus(more):
        return text[:-1] + more + "}"

    bad("depth-65", "65 levels", plus(', "x": ' + "[" * 64 + "]" * 64), "depth-64", True)
    bad("size-1-mib-plus-1", "1 MiB and one byte",
        {"file": f.text(text) + f.fill(32, (1 << 20) + 1 - len(text))}, "size-1-mib", True)
    bad("nodes-101000", "101,000 zeros", {"file": f.text(text[:-1] + ', "x": [') +
                                          f.text("0,", 100999) + f.text("0]}")},
        "nodes-99000", True)
    bad("dup-same", "a key twice with one value", plus(', "hidden_size": 64'), beyond=True)
    bad("dup-other", "a key twice with two values", plus(', "rope_theta": 500000.0'), beyond=True)
    bad("dup-escaped", "a key twice, once with an escape", plus(', "hidden_\\u0073ize": 64'),
        beyond=True)
    bad("dup-null", "a key twice, once null", plus(', "eos_token_id": null'), beyond=True)
    bad("dup-nested", "a key twice inside an ignored object", plus(', "x": {"k": 1, "k": 2}'),
        raw(plus(', "x": {"k": 1, "j": 2}')), True)
    for name, before, after in (("number", '"x": 1', ""), ("true", '"x": true', ""),
                                ("null", '"x": null', ""), ("in-array", '"x": [1', "]"),
                                ("in-string", '"x": "a', 'b"')):
        bad(f"nul-{name}", "a NUL byte, which a JSON library may swallow",
            (text[:-1] + ", " + before).encode() + b"\0" + (after + "}").encode(),
            raw(text[:-1] + ", " + before + after + "}"))
    bad("nul-end", "a NUL byte after the object", text.encode() + b"\0")
    bad("nul-escaped", "an escaped NUL in an ignored value", plus(', "x": "\\u0000"'),
        raw(plus(', "x": "\\u0001"')), True)
    bad("nul-escaped-key", "an escaped NUL in an ignored key", plus(', "x\\u0000y": 1'),
        raw(plus(', "x\\u0001y": 1')), True)
    bad("surrogate", "a surrogate alone", plus(', "x": "\\ud83d"'),
        raw(plus(', "x": "\\ud83d\\ude00"')), True)
    bad("surrogate-low", "a low surrogate alone", plus(', "x": "\\ude00"'),
        raw(plus(', "x": "\\ud83d\\ude00"')), True)
    for name, wrong, good in (("overlong", b"\xc0\xaf", "/"), ("surrogate", b"\xed\xa0\x80",
                              "\ud7ff"), ("cut", b"\xe2\x82", "\u20ac"),
                              ("past", b"\xf4\x90\x80\x80", "\U0010ffff")):
        bad(f"utf8-{name}", f"bytes {wrong.hex()}",
            text[:-1].encode() + b', "x": "' + wrong + b'"}', raw(
                (text[:-1] + f', "x": "{good}"' + "}").encode()))
    for name, content in (("two", text + "{}"), ("text", text + " x"), ("comma", text + ","),
                          ("brace", text + "}"), ("open", text[:-1]), ("array", f"[{text}]"),
                          ("string", '"llama"'), ("number", "1"), ("null", "null"),
                          ("blank", "   "), ("trailing-comma", text[:-1] + ",}"),
                          ("single-quotes", text.replace('"', "'")),
                          ("minus-infinity", plus(', "x": -Infinity')),
                          ("leading-zero", plus(', "x": 007')), ("plus", plus(', "x": +1')),
                          ("utf-16", text.encode("utf-16-le"))):
        bad(f"json-{name}", "no JSON object", content)
    book.ok("json_rules", "json-spaces", "white space around the object, and inside",
            raw("\r\n\t " + text.replace(", ", " ,\t\n") + " \r\n\n"), ["json"])
    book.ok("json_rules", "json-escapes", "keys written with escapes",
            raw(text.replace('"hidden_size"', '"\\u0068idden_si\\u007ae"')), ["json"])
    book.ok("json_rules", "json-unicode", "any UTF-8 in what is ignored",
            raw(text[:-1] + ', "\u00fc\u20ac\U0001f600": "\u007f\uffff"}'), ["json"])
    for node in ("fifo", "unreadable"):
        inputs = {"node": node} if node == "fifo" else {**base(), "node": node}
        book.bad("json_rules", f"node-{node}", f"config.json is a {node}", inputs, "IO",
                 flags=["json"])


def families(book):
    def bad(group, case_id, comment, inputs, status, subject, twin=BASE_ID):
        book.bad(group, case_id, comment, inputs, status, subject, twin, ["family"])

    for key, values, right in (("tl_arch", ("Llama", "gpt2", ""), "llama bigram"),
                               ("tl_tokenizer", ("bytes", "BPE", ""), "byte bpe")):
        for value in values:
            bad("arch_and_tokenizer", f"{key}-{value or 'empty'}", f"{key} {value!r}",
                base(**{key: value}), "UNSUPPORTED", " ".join(filter(None, (key, value, right))))
        for name, value in (("null", None), ("number", 1), ("true", True), ("list", ["llama"])):
            bad("arch_and_tokenizer", f"{key}-{name}", f"{key} is {name}", base(**{key: value}),
                EITHER, key)
    for value in ("Llama", "llama4", "qwen2", "mistral3", "smollm3", ""):
        bad("model_family", f"model_type-{value or 'empty'}", f"model_type {value!r}",
            base(model_type=value), "UNSUPPORTED",
            " ".join(filter(None, ("model_type", value, "llama mistral"))))
    bad("model_family", "model_type-long", "model_type of 200 letters, more than a message must show",
        base(model_type="x" * 200), "UNSUPPORTED", "model_type llama mistral")
    bad("model_family", "model_type-number", "model_type is a number", base(model_type=1), EITHER,
        "model_type")
    for name, value, status in (
            ("empty", [], "UNSUPPORTED"), ("two", ["LlamaForCausalLM", "MistralForCausalLM"],
                                           "UNSUPPORTED"),
            ("same-twice", ["LlamaForCausalLM"] * 2, "UNSUPPORTED"),
            ("lower", ["llamaforcausallm"], "UNSUPPORTED"), ("model", ["LlamaModel"],
                                                             "UNSUPPORTED"),
            ("string", "LlamaForCausalLM", EITHER), ("number", [1], EITHER),
            ("object", {"0": "LlamaForCausalLM"}, EITHER)):
        bad("model_family", f"architectures-{name}", f"architectures {value!r}",
            base(architectures=value), status, "architectures")
    for name, unset, changed in (("no-model_type", ["model_type"], {}),
                                 ("no-architectures", ["architectures"], {}),
                                 ("neither", ["model_type", "architectures"], {}),
                                 ("both-null", [], {"model_type": None, "architectures": None}),
                                 ("mistral-names", [], {"model_type": "mistral",
                                                        "architectures": ["MistralForCausalLM"]})):
        book.ok("model_family", f"family-{name}", "a family that is run", base(unset, **changed),
                ["family"])
    book.ok("arch_and_tokenizer", "tokenizer-bpe", "bpe, with a vocabulary of 1",
            base(tl_tokenizer="bpe", vocab_size=1, eos_token_id=0), ["family"],
            {"tokenizer": "bpe", "vocab_size": 1, "eos_token_ids": [0]})


COUNTS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
          "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings")
REQUIRED = COUNTS[:5] + ("rms_norm_eps",)


def numbers(book):
    def bad(group, case_id, comment, inputs, subject, twin=BASE_ID, beyond=False):
        book.bad(group, case_id, comment, inputs, "FORMAT", subject, twin, [FLAG_OF_GROUP[group]],
                 beyond)

    full = {**BASE, "head_dim": 16}
    twin = base(head_dim=16)
    for key in REQUIRED:
        if f"cf-bad-missing-{key}" not in CARRIED and key != "rms_norm_eps":
            bad("required_keys", f"missing-{key}", f"no {key}", base([key]), key)
        bad("required_keys", f"null-{key}", f"{key} is null", base(**{key: None}), key)
    for key in COUNTS:
        good = full[key]
        for name, value in (("real", float(good)), ("string", str(good)), ("true", True),
                            ("list", [good]), ("object", {})):
            if key == "hidden_size" and name in ("real", "string"):
                continue
            bad("number_types", f"{key}-{name}", f"{key} is {value!r}",
                base(**{"head_dim": 16, key: value}), key, twin, name == "real")
        for name, value in (("zero", 0), ("minus", -good), ("2-32", (1 << 32) + good),
                            ("int64-min", -(1 << 63)),
                            ("over", (oracle.LAYERS_MAX if key == "num_hidden_layers" else
                                      oracle.COUNT_MAX) + 1)):
            bad("number_ranges", f"{key}-{name}", f"{key} is {value}",
                base(**{"head_dim": 16, key: value}), key, twin)
    bad("number_types", "hidden_size-exponent", "hidden_size is 64e0",
        raw(render().replace('"hidden_size": 64', '"hidden_size": 64e0')), "hidden_size",
        beyond=True)
    for key, tiny in (("rope_theta", 1e-46), ("rms_norm_eps", 1e-50)):
        for name, value in (("zero", 0.0), ("minus", -1.0), ("minus-zero", -0.0),
                            ("f32-zero", tiny), ("zero-int", 0), ("f32-infinite", 3.5e38)):
            if (key, name) != ("rope_theta", "zero-int"):
                bad("number_ranges", f"{key}-{name}", f"{key} is {value!r}", base(**{key: value}),
                    key)
        for name, value in (("string", "1e-5"), ("true", True), ("list", [1.0])):
            bad("number_types", f"{key}-{name}", f"{key} is {value!r}", base(**{key: value}), key)
        bad("number_ranges", f"{key}-1e999", f"{key} is 1e999",
            raw(render().replace(f'"{key}": {json.dumps(BASE[key])}', f'"{key}": 1e999')), None)
        book.ok("number_ranges", f"{key}-least", f"{key} is 1e-45, the least f32",
                base(**{key: 1e-45}), ["number-range"], {key: 1e-45})
        book.ok("number_ranges", f"{key}-most", f"{key} is 3.4e38, near the largest f32",
                base(**{key: 3.4e38}), ["number-range"], {key: 3.4e38})
        book.ok("number_types", f"{key}-int", f"{key} is written as an integer",
                base(**{key: 1}), ["number-type"], {key: 1.0})
    for name, value in (("number", 1), ("list", []), ("zero", 0)):
        bad("number_types", f"tie-{name}", f"tie_word_embeddings is {value!r}",
            base(tie_word_embeddings=value), "tie_word_embeddings")
    bad("number_ranges", "vocab_size-255", "255 is too few for bytes", base(vocab_size=255),
        "vocab_size")
    book.ok("number_ranges", "limits", "every count at its limit, where products stay small",
            base(vocab_size=1 << 24, num_hidden_layers=1 << 16, eos_token_id=(1 << 24) - 1,
                 max_position_embeddings=1 << 24), ["number-range"],
            {"vocab_size": 1 << 24, "n_layers": 1 << 16, "max_positions": 1 << 24})
    wide = dict(hidden_size=1 << 24, num_attention_heads=1 << 24, num_key_value_heads=1,
                head_dim=1 << 24)
    bad("number_ranges", "product-2-72", "heads x head_dim x hidden_size is 2^72", base(**wide),
        None, base(**{**wide, "head_dim": 2, "num_attention_heads": 2}), True)


def geometry(book):
    def bad(case_id, comment, inputs, subject, twin=BASE_ID, beyond=True):
        book.bad("head_geometry", case_id, comment, inputs, "FORMAT", subject, twin,
                 ["head-geometry"], beyond)

    bad("hidden-not-whole", "66 / 4 is not whole and no head_dim is given", base(hidden_size=66),
        None, base(hidden_size=72))
    bad("head-dim-derived-odd", "60 / 4 = 15 is odd", base(hidden_size=60), None,
        base(hidden_size=56))
    bad("head-dim-derived-one", "4 / 4 = 1 is odd", base(hidden_size=4), None,
        base(hidden_size=8))
    bad("heads-more-than-hidden", "64 / 128 is not whole", base(
        num_attention_heads=128, num_key_value_heads=2), None, base(
        num_attention_heads=32, num_key_value_heads=2))
    bad("head-dim-one", "head_dim 1", base(head_dim=1), "head_dim", base(head_dim=2), False)
    bad("kv-two-of-three", "3 heads, 2 KV heads", base(num_attention_heads=3, hidden_size=48),
        "num_key_value_heads", base(num_attention_heads=2, hidden_size=48))
    for name, changed, want in (
            ("head-dim-larger", {"head_dim": 32}, {"head_dim": 32}),
            ("head-dim-smaller", {"head_dim": 8}, {"head_dim": 8}),
            ("head-dim-hidden-odd", {"head_dim": 10, "hidden_size": 37}, {"head_dim": 10}),
            ("head-dim-two", {"head_dim": 2}, {"head_dim": 2}),
            ("mqa", {"num_key_value_heads": 1}, {"n_kv_heads": 1}),
            ("mha", {"num_key_value_heads": 4}, {"n_kv_heads": 4}),
            ("kv-null", {"num_key_value_heads": None}, {"n_kv_heads": 4})):
        if name != "mqa":
            book.ok("head_geometry", f"geometry-{name}", "what is given stands", base(**changed),
                    ["head-geometry", "parsed"], want)


ROPE_TYPES = ("linear", "dynamic", "yarn", "longrope", "llama3", "ntk", "Default", "")


def rope(book):
    def bad(case_id, comment, inputs, status, subject, twin=BASE_ID, group="rope_scaling",
            beyond=False):
        book.bad(group, case_id, comment, inputs, status, subject, twin, [FLAG_OF_GROUP[group]],
                 beyond)

    default = {"rope_theta": 10000.0, "rope_type": "default"}
    for key in ("rope_scaling", "rope_parameters"):
        ok = base(NO_ROPE, **{key: default})
        for name in ROPE_TYPES:
            bad(f"{key}-{name or 'empty-type'}", f"{key} of type {name!r}",
                base(NO_ROPE, **{key: {**default, "rope_type": name}}), "UNSUPPORTED",
                name or key, ok)
        bad(f"{key}-old-spelling", "the type under its old name",
            base(NO_ROPE, **{key: {"type": "yarn", "rope_theta": 10000.0}}), "UNSUPPORTED", "yarn",
            base(NO_ROPE, **{key: {"type": "default", "rope_theta": 10000.0}}))
        for name, first, second in (("new-wins", "linear", "default"),
                                    ("old-wins", "default", "linear")):
            bad(f"{key}-{name}", "two types that disagree", base(NO_ROPE, **{
                key: {**default, "rope_type": first, "type": second}}), "UNSUPPORTED", "linear",
                base(NO_ROPE, **{key: {**default, "type": "default"}}))
        for extra, value in (("factor", 2.0), ("factor", 1.0), ("attention_factor", 1.0),
                             ("low_freq_factor", 1.0), ("original_max_position_embeddings", 128),
                             ("mrope_section", [2, 3, 3])):
            bad(f"{key}-{extra}-{str(value).replace(' ', '')}", f"{extra} beside the default type",
                base(NO_ROPE, **{key: {**default, extra: value}}), "UNSUPPORTED", None, ok)
        bad(f"{key}-partial", "half of each head", base(NO_ROPE, **{
            key: {**default, "partial_rotary_factor": 0.5}}), "UNSUPPORTED",
            "partial_rotary_factor", base(NO_ROPE, **{
                key: {**default, "partial_rotary_factor": 1}}))
        bad(f"{key}-partial-string", "a factor that is a string", base(NO_ROPE, **{
            key: {**default, "partial_rotary_factor": "1"}}), EITHER, None, ok)
        bad(f"{key}-type-list", "a type that is a list", base(NO_ROPE, **{
            key: {**default, "rope_type": ["default"]}}), EITHER, None, ok)
        for name, value in (("number", 2), ("list", [default]), ("true", True), ("false", False)):
            bad(f"{key}-is-{name}", f"{key} is {name}", base(**{key: value}), EITHER, key)
        bad(f"{key}-nested", "settings by layer type", base(NO_ROPE, **{
            key: {"full_attention": default}}), "UNSUPPORTED", None, ok)
        for name, value in (("zero", 0.0), ("minus", -10000.0), ("f32-zero", 1e-46),
                            ("f32-infinite", 3.5e38)):
            bad(f"{key}-theta-{name}", f"theta {value!r}", base(NO_ROPE, **{
                key: {**default, "rope_theta": value}}), "FORMAT", "rope_theta", ok,
                "number_ranges")
        bad(f"{key}-theta-string", "theta is a string", base(NO_ROPE, **{
            key: {**default, "rope_theta": "10000"}}), "FORMAT", "rope_theta", ok, "number_types")
        bad(f"{key}-theta-disagrees", "two thetas, 10000 and 500000", base(["rope_scaling"], **{
            key: {**default, "rope_theta": 500000.0}}), "FORMAT", "rope_theta",
            base(["rope_scaling"], **{key: default}), "rope_theta", True)
        book.ok("rope_theta", f"{key}-theta", "theta inside", base(NO_ROPE, **{
            key: {**default, "rope_theta": 250000.0}}), ["theta-place"], {"rope_theta": 250000.0})
        book.ok("rope_theta", f"{key}-theta-int", "theta inside, as an integer, and agreeing",
                base(**{"rope_theta": 500000.0, key: {**default, "rope_theta": 500000}}),
                ["theta-place"], {"rope_theta": 500000.0})
        book.ok("rope_scaling", f"{key}-null-inside", "null inside counts as absent", base(
            NO_ROPE, **{key: {**default, "factor": None, "type": None, "rope_theta": None,
                              "partial_rotary_factor": None}}), ["rope-scaling", "null"],
            {"rope_theta": 10000.0})
    bad("rope-scaling-theta-only", "rope_scaling with a theta and no type", base(
        NO_ROPE, rope_scaling={"rope_theta": 10000.0}), "UNSUPPORTED", "rope_scaling",
        base(NO_ROPE, rope_scaling=default))
    bad("rope-scaling-type-null", "rope_scaling whose type is null", base(
        NO_ROPE, rope_scaling={"rope_type": None, "type": None}), "UNSUPPORTED", "rope_scaling",
        base(NO_ROPE, rope_scaling={"rope_type": "default", "type": None}))
    bad("thetas-inside-disagree", "rope_scaling and rope_parameters disagree", base(
        NO_ROPE, rope_scaling=default, rope_parameters={**default, "rope_theta": 500000.0}),
        "FORMAT", "rope_theta", base(NO_ROPE, rope_scaling=default, rope_parameters=default),
        "rope_theta", True)
    book.ok("rope_theta", "thetas-agree", "three places that agree, written differently", raw(
        render(rope_theta=10000, rope_scaling={"type": "default", "rope_theta": 10000.0},
               rope_parameters={"rope_theta": 10000.0}).replace(
                   '"rope_parameters": {"rope_theta": 10000.0}',
                   '"rope_parameters": {"rope_theta": 1e4}')), ["theta-place"],
        {"rope_theta": 10000.0})
    book.ok("rope_theta", "rope-parameters-empty", "an empty rope_parameters", base(
        NO_ROPE, rope_parameters={}), ["theta-place"], {"rope_theta": 10000.0})
    for name, value, status in (("zero", 0.0, "UNSUPPORTED"), ("half", 0.5, "UNSUPPORTED"),
                                ("two", 2, "UNSUPPORTED"), ("true", True, EITHER),
                                ("string", "1.0", EITHER)):
        bad(f"partial-{name}", f"partial_rotary_factor {value!r}", base(
            partial_rotary_factor=value), status, "partial_rotary_factor",
            base(partial_rotary_factor=1.0))
    book.ok("rope_scaling", "partial-int", "partial_rotary_factor 1", base(
        partial_rotary_factor=1), ["rope-scaling"])
    for value, status in (("relative_key", "UNSUPPORTED"), ("ROPE", "UNSUPPORTED"),
                          ("", "UNSUPPORTED"), (1, EITHER)):
        bad(f"position-{value}", f"position_embedding_type {value!r}", base(
            position_embedding_type=value), status, "position_embedding_type",
            base(position_embedding_type="rope"))


def switches(book):
    def bad(group, case_id, comment, inputs, status, subject, twin=BASE_ID):
        book.bad(group, case_id, comment, inputs, status, subject, twin, [FLAG_OF_GROUP[group]])

    off = base(use_sliding_window=False, sliding_window=64)
    book.ok("attention_window", "window-off", "a window that is switched off", off, ["window"])
    book.ok("attention_window", "window-on-none", "switched on without a window", base(
        use_sliding_window=True), ["window"])
    for name, value in (("true", True), ("null", None)):
        bad("attention_window", f"window-use-{name}", "a window that is not switched off", base(
            use_sliding_window=value, sliding_window=64), "UNSUPPORTED", "sliding_window", off)
    bad("attention_window", "window-beyond", "a window beyond the context is a window",
        base(sliding_window=4096), "UNSUPPORTED", "sliding_window")
    bad("attention_window", "window-zero", "a window of 0", base(sliding_window=0), "UNSUPPORTED",
        "sliding_window")
    for name, value in (("string", "4096"), ("empty-string", ""), ("real", 4096.5),
                        ("real-whole", 4096.0), ("true", True), ("false", False),
                        ("list", [4096]), ("object", {}), ("negative", -1)):
        bad("attention_window", f"window-is-{name}", f"sliding_window {value!r}: no absent window",
            base(sliding_window=value), "UNSUPPORTED", "sliding_window")
    bad("attention_window", "window-use-string", "use_sliding_window is a string", base(
        use_sliding_window="false", sliding_window=64), EITHER, None, off)
    full = base(layer_types=["full_attention"] * 2)
    book.ok("attention_window", "layers-full", "every layer full", full, ["window"])
    for name, value, status in (
            ("last", ["full_attention", "sliding_attention"], "UNSUPPORTED"),
            ("chunked", ["chunked_attention"] * 2, "UNSUPPORTED"),
            ("linear", ["full_attention", "linear_attention"], "UNSUPPORTED"),
            ("string", "full_attention", EITHER), ("number", [1, 1], EITHER)):
        bad("attention_window", f"layers-{name}", f"layer_types {value!r}", base(
            layer_types=value), status, "layer_types", full)
    book.ok("biases_and_norms", "biases-false", "every switch off", base(
        **{k: False for k in oracle.BIASES}), ["bias"])
    book.ok("biases_and_norms", "biases-null", "every switch null", base(
        **{k: None for k in oracle.BIASES}), ["bias", "null"])
    for key in oracle.BIASES:
        for name, value in (("one", 1), ("string", "true"), ("list", [])):
            bad("biases_and_norms", f"{key}-{name}", f"{key} is {value!r}", base(**{key: value}),
                EITHER, key, "biases-false")
    for key in ("hidden_act", "hidden_activation"):
        for value in ("gelu_new", "quick_gelu", "SiLU", "mish", ""):
            bad("activation", f"{key}-{value or 'empty'}", f"{key} {value!r}",
                base(**{key: value}), "UNSUPPORTED", key, base(**{key: "silu"}))
        bad("activation", f"{key}-number", f"{key} is a number", base(**{key: 1}), EITHER, key,
            base(**{key: "silu"}))
        book.ok("activation", f"{key}-is-swish-too", "swish is silu", base(
            **{"hidden_act": "silu", key: "swish"}), ["activation"])
    book.ok("foreign_keys", "foreign-null", "every foreign key null", base(
        **{k: None for k in oracle.FOREIGN_KEYS}), ["foreign-key", "null"])
    values = ({}, False, 1.0, 0, [], "x")
    for number, key in enumerate(oracle.FOREIGN_KEYS):
        for value in (values[number % 6], values[(number + 1) % 6], values[(number + 3) % 6]):
            bad("foreign_keys", f"{key}-{json.dumps(value)}", f"{key} is {value!r}", base(
                **{key: value}), "UNSUPPORTED", key, "foreign-null")


def ids_and_nulls(book):
    def bad(case_id, comment, inputs, beyond=False, twin=BASE_ID):
        book.bad("eos_ids", case_id, comment, inputs, "FORMAT", "eos_token_id", twin, ["eos"],
                 beyond)

    book.ok("eos_ids", "eos-sixteen", "sixteen ids, in the file's order", base(
        eos_token_id=list(range(255, 239, -1))), ["eos"],
        {"eos_token_ids": list(range(255, 239, -1))})
    book.ok("eos_ids", "eos-list-of-one", "a list of one", base(eos_token_id=[255]), ["eos"],
            {"eos_token_ids": [255]})
    book.ok("eos_ids", "eos-zero", "id 0", base(eos_token_id=0), ["eos"], {"eos_token_ids": [0]})
    bad("eos-seventeen", "seventeen ids", base(eos_token_id=list(range(17))), twin="eos-sixteen")
    bad("eos-twice", "one id twice", base(eos_token_id=[2, 3, 2]), twin=base(
        eos_token_id=[2, 3, 4]))
    bad("eos-list-range", "the last id of a list is past the vocabulary", base(
        eos_token_id=[2, 3, 256]), True, base(eos_token_id=[2, 3, 255]))
    for name, value in (("real", 2.0), ("string", "2"), ("true", True), ("object", {}),
                        ("nested", [[2]]), ("list-real", [2, 3.0]), ("list-string", [2, "3"]),
                        ("list-null", [2, None]), ("list-minus", [2, -1])):
        bad(f"eos-{name}", f"eos_token_id {value!r}", base(eos_token_id=value),
            name in ("real", "list-real"))
    for name, value in (("2-32", (1 << 32) + 2), ("2-24", 1 << 24), ("int64-max", (1 << 63) - 1)):
        bad(f"eos-{name}", f"eos_token_id {value}", base(eos_token_id=value))
    optional = ("num_key_value_heads", "head_dim", "max_position_embeddings", "rope_theta",
                "rope_scaling", "rope_parameters", "sliding_window", "use_sliding_window",
                "layer_types", "partial_rotary_factor", "position_embedding_type", "hidden_act",
                "hidden_activation", "tie_word_embeddings", "eos_token_id", "model_type",
                "architectures")
    defaults = {"n_kv_heads": 4, "head_dim": 16, "max_positions": 2048, "rope_theta": 10000.0,
                "tie_word_embeddings": False, "eos_token_ids": []}
    book.ok("null_and_unknown", "all-null", "every optional key null: the defaults", base(
        **{k: None for k in optional}), ["null"], defaults)
    book.ok("null_and_unknown", "all-absent", "every optional key absent: the same", base(
        optional), ["null"], defaults)
    book.ok("null_and_unknown", "near-names", "keys that only look like ours are ignored", base(
        Head_dim=7, head_dims=7, rope_thetas=1, sliding_windows=8, text_configs={},
        attention_biases=True, bias_=True, eos_token_ids=[1]), ["null"], {"head_dim": 16})
    book.ok("null_and_unknown", "unknown-any", "unknown keys of every type", base(
        a=None, b=True, c=-1.5e300, d="x", e=[{}], f={"g": [1, {"h": None}]},
        i=-9223372036854775808), ["null"])


def bigram(book):
    small = {"tl_arch": "bigram", "tl_tokenizer": "byte", "vocab_size": 256}

    def text(**changed):
        return raw(json.dumps({k: x for k, x in {**small, **changed}.items()
                               if x is not ...}))

    book.ok("bigram_rows", "bigram-all-five", "the five keys that it reads", text(
        max_position_embeddings=64, eos_token_id=[10, 0]), ["bigram"],
        {"max_positions": 64, "eos_token_ids": [10, 0]})
    book.ok("bigram_rows", "bigram-bpe", "bpe with a vocabulary of 3", text(
        tl_tokenizer="bpe", vocab_size=3), ["bigram"], {"vocab_size": 3})
    book.ok("bigram_rows", "bigram-other-rows", "what would stop a Llama is ignored", text(
        model_type="gpt2", architectures=["A", "B"], hidden_size="x", num_attention_heads=0,
        num_key_value_heads=7.5, head_dim=3, rms_norm_eps=-1, rope_theta="y",
        rope_scaling={"type": "yarn"}, rope_parameters=5, sliding_window=3,
        layer_types=["sliding_attention"], attention_bias=True, partial_rotary_factor=0.5,
        position_embedding_type="alibi", hidden_act="gelu", tie_word_embeddings="z",
        quantization_config={}, auto_map=1, text_config={}), ["bigram"])
    for name, changed, subject, beyond in (
            ("no-vocab", {"vocab_size": ...}, "vocab_size", False),
            ("vocab-null", {"vocab_size": None}, "vocab_size", False),
            ("vocab-255", {"vocab_size": 255}, "vocab_size", False),
            ("vocab-real", {"vocab_size": 256.0}, "vocab_size", True),
            ("positions-0", {"max_position_embeddings": 0}, "max_position_embeddings", False),
            ("eos-range", {"eos_token_id": 256}, "eos_token_id", True),
            ("eos-string", {"eos_token_id": "2"}, "eos_token_id", False)):
        book.bad("bigram_rows", f"bigram-{name}", f"bigram with {name}", text(**changed), "FORMAT",
                 subject, "cf-ok-bigram", ["bigram"], beyond)
    for name, changed, subject in (("no-tokenizer", {"tl_tokenizer": ...}, "tl_tokenizer"),):
        book.bad("bigram_rows", f"bigram-{name}", f"bigram with {name}", text(**changed), EITHER,
                 subject, "cf-ok-bigram", ["bigram"])
    book.bad("bigram_rows", "bigram-tokenizer-word", "bigram with another tokenizer",
             text(tl_tokenizer="word"), "UNSUPPORTED", "tl_tokenizer", "cf-ok-bigram", ["bigram"])


# ----------------------------------------------------------------------------- drawn files

def published(book):
    """Whole files as they are on the Hub, with the two keys of this project added."""
    def text(changed, unset=()):
        top = {"architectures": ["LlamaForCausalLM"], "attention_bias": False,
               "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
               "hidden_act": "silu", "initializer_range": 0.02, "mlp_bias": False,
               "model_type": "llama", "pretraining_tp": 1, "rms_norm_eps": 1e-05,
               "rope_scaling": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
               "transformers_version": "4.43.0", "use_cache": True, **changed,
               "tl_arch": "llama", "tl_tokenizer": "bpe"}
        return raw(json.dumps({k: x for k, x in top.items() if k not in unset}))

    smollm = {"bos_token_id": 0, "eos_token_id": 0, "hidden_size": 576,
              "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
              "is_llama_config": True, "max_position_embeddings": 8192, "num_attention_heads": 9,
              "num_hidden_layers": 30, "num_key_value_heads": 3, "rope_interleaved": False,
              "rope_theta": 100000, "tie_word_embeddings": True, "vocab_size": 49152}
    seven_b = {"hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
               "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 32000}
    llama_3 = {**seven_b, "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009],
               "intermediate_size": 14336, "max_position_embeddings": 131072,
               "num_key_value_heads": 8, "rope_theta": 500000.0, "vocab_size": 128256}
    mistral = {**seven_b, "architectures": ["MistralForCausalLM"], "model_type": "mistral",
               "intermediate_size": 14336, "max_position_embeddings": 32768,
               "num_key_value_heads": 8, "sliding_window": None}
    old = ["mlp_bias", "attention_bias", "num_key_value_heads", "rope_scaling"]
    for name, inputs, want in (
            ("smollm2", text(smollm), {"head_dim": 64, "rope_theta": 1e5, "n_kv_heads": 3}),
            ("llama-1", text({**seven_b, "rms_norm_eps": 1e-06}, old),
             {"n_kv_heads": 32, "rope_theta": 1e4, "rms_norm_eps": 1e-06}),
            ("code-llama", text({**seven_b, "rope_theta": 1000000, "vocab_size": 32016}, old),
             {"rope_theta": 1e6}),
            ("llama-3", text(llama_3), {"eos_token_ids": [128001, 128008, 128009]}),
            ("mistral-nemo", text({**mistral, "head_dim": 128, "hidden_size": 5120,
                                   "rope_theta": 1000000.0}), {"head_dim": 128})):
        book.ok("parsed_fields", f"published-{name}", f"{name}'s file", inputs, ["parsed"], want)
    book.bad("rope_scaling", "published-llama-3.1", "Llama 3.1's file: the rope is scaled", text({
        **llama_3, "rope_scaling": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}}), "UNSUPPORTED",
             "llama3", "published-llama-3", [FLAG_OF_GROUP["rope_scaling"]])
    book.bad("attention_window", "published-mistral-0.1", "Mistral 0.1's file: a window of 4096",
             text({**mistral, "sliding_window": 4096}), "UNSUPPORTED", "sliding_window",
             text(mistral), [FLAG_OF_GROUP["attention_window"]])


def drawn(book, rng):
    """Sound configs drawn at random, keys shuffled, and each with one number made wrong."""
    for number in range(12):
        heads = rng.choice((1, 2, 3, 4, 6, 8))
        kv = rng.choice([k for k in range(1, heads + 1) if heads % k == 0])
        dim = 2 * rng.randrange(1, 33)
        theta, eps = rng.choice((1e4, 5e5, 1e6, 123456.5)), rng.choice((1e-5, 1e-6, 3e-6, 1e-3))
        vocab = rng.randrange(256, 5000)
        eos = rng.sample(range(vocab), rng.randrange(1, 5))
        changed = {"num_attention_heads": heads, "num_key_value_heads": kv,
                   "hidden_size": heads * dim, "vocab_size": vocab, "rms_norm_eps": eps,
                   "num_hidden_layers": rng.randrange(1, 40), "eos_token_id": eos,
                   "intermediate_size": rng.randrange(1, 4000),
                   "tie_word_embeddings": rng.random() < 0.5,
                   "max_position_embeddings": rng.randrange(1, 100000)}
        if rng.random() < 0.5:
            changed["rope_parameters"] = {"rope_theta": theta, "rope_type": "default"}
            unset = NO_ROPE
        else:
            changed["rope_theta"], unset = theta, []
        if rng.random() < 0.4:
            changed["head_dim"] = dim = 2 * rng.randrange(1, 40)
        top = json.loads(render(unset, **changed))
        keys = rng.sample(list(top), len(top))
        name = f"drawn-{number}"

        def text(**wrong):
            return raw(json.dumps({k: {**top, **wrong}[k] for k in keys}))

        book.ok("parsed_fields", name, "drawn", text(), ["parsed"], {
            "head_dim": dim, "n_kv_heads": kv, "rope_theta": theta, "rms_norm_eps": eps,
            "eos_token_ids": eos})
        key, value, beyond = rng.choice((
            ("eos_token_id", eos + [vocab], True), ("num_key_value_heads", heads + 1, True),
            ("rms_norm_eps", 0, False), ("hidden_size", str(heads * dim), False),
            ("vocab_size", 0, False)))
        group = {"eos_token_id": "eos_ids", "num_key_value_heads": "head_geometry",
                 "hidden_size": "number_types"}.get(key, "number_ranges")
        book.bad(group, name + "-bad", f"{key} is {value!r}", text(**{key: value}), "FORMAT", key,
                 name, [FLAG_OF_GROUP[group]], beyond)


NOTES = {
    "json": v.note("The JSON reader is lenient: duplicate keys, NUL, NaN, any depth and size.",
                   "Two readers load two models; a NUL hides what follows."),
    "family": v.note("Another architecture is run as a Llama because its keys fit.",
                     "Fluent nonsense: norms, biases or scales are missing."),
    "default-for-missing": v.note("A missing size is filled with a default.",
                                  "A guess that fails late, or worse, fits."),
    "number-type": v.note("Numbers are converted: 64.0, true, \"64\".",
                          "A damaged file loads with other sizes."),
    "number-range": v.note("Zero, negative, huge or vanishing numbers pass.",
                           "Division by zero, wrapped products, infinite norms."),
    "head-geometry": v.note("KV heads need not divide, or head_dim is always hidden / heads.",
                            "Heads read another head's keys.", [],
                            ["huggingface/candle#2358"]),
    "theta-place": v.note("theta is read at one of its three places only.",
                          "10000 instead of 500000: worse text, no error.", [],
                          ["vllm-project/vllm#42624", "deepspeedai/DeepSpeed#8341"]),
    "rope-scaling": v.note("A scaled, partial or nested rope is run as the plain one.",
                           "A few good tokens, then noise.", [], ["ollama/ollama#5924"]),
    "window": v.note("A sliding window is ignored.", "Right up to the window, wrong beyond it.",
                     [], ["huggingface/candle#1789"]),
    "bias": v.note("A bias or query-key norm is dropped.", "Fluent garbage.", [],
                   ["mlc-ai/mlc-llm#3494"]),
    "activation": v.note("Any activation is run as silu.", "Slightly worse, for months.", [],
                         ["huggingface/candle#3745"]),
    "foreign-key": v.note("A key that changes the result is ignored.",
                          "Scales and quantization are lost.", [],
                          ["turboderp-org/exllamav3#218"]),
    "eos": v.note("The list is cut to its first id, or ids are not range-checked.",
                  "Generation never stops.", [], ["turboderp-org/exllamav2#566"]),
    "null": v.note("null is taken for a value, or an unknown key for an error.",
                   "Files from the Hub are refused.", [], ["modular/modular#6665"]),
    "bigram": v.note("The bigram is held to Llama's rows, or to none.",
                     "The tracer model stops loading, or loads broken."),
    "parsed": v.note("A field is read from another key, cut, or defaulted wrongly.",
                     "Another model than the file's."),
    "fit": v.note("Tensors are looked up but not accounted for.",
                  "A bias, a norm or a layer is silently dropped.", [],
                  ["sbryngelson/ANEForge#253"]),
    "tied": v.note("A stored head is ignored, or a missing one replaced.",
                   "Gibberish from a model that boots normally.", [],
                   ["sgl-project/sglang#1508", "huggingface/transformers#43429"]),
}


def main(argv=None):
    args = v.arguments(__doc__.split("\n")[0], argv)
    book = Cases(judge)
    carried_over(book)
    json_rules(book)
    families(book)
    numbers(book)
    geometry(book)
    rope(book)
    switches(book)
    ids_and_nulls(book)
    bigram(book)
    fit_cases.weights_fit(book, base)
    drawn(book, random.Random(f"config-{args.seed}"))
    published(book)
    elsewhere = {"ld-bad-int4-scales-short"}     # in safetensors.vectors.json
    missing = [i for i in f.carried(lambda i: i[:3] in ("cf-", "ld-"))
               if i not in book.ids and i not in elsewhere]
    if missing:
        raise SystemExit(f"carried-over cases that are not in the book: {missing}")
    v.write_vectors(os.path.join(args.out, "config.vectors.json"), "config",
                    v.generator_info("gen/config_cases.py", v.command_of("config_cases.py", args)),
                    {"name": "the page, by hand and by a reader in Python", "version": "1",
                     "dtype": "any", "device": "cpu"},
                    v.bits_tolerance("verdicts and parsed fields"), NOTES, book.finish(args.seed))


if __name__ == "__main__":
    main()
