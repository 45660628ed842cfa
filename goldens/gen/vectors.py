"""Writer and checker of golden files (schema ol.vectors/1, conformance/spec/vectors.md).

Every generator of this folder hands its cases to write_vectors(), which fixes the key order and the
layout, checks the whole file against the page and only then writes it.  The same checks serve
verify.py.  Standard library only; nothing here depends on the time, the user or the folder, so that
a second run gives the same bytes.
"""

import argparse
import json
import os
import platform
import re
import struct
import sys

SCHEMA = "ol.vectors/1"
SUITES = ("rng", "sampler", "f16", "int4", "linear", "logits", "greedy", "kv", "safetensors",
          "config")
TOP_KEYS = ("schema", "suite", "generator", "reference", "n_cases", "tolerance", "notes", "groups")
STATUSES = ("IO", "FORMAT", "UNSUPPORTED", "NOT_FOUND", "INVALID", "CAPACITY", "STATE", "NOMEM")
VECTORS_BYTES_MAX = 2000000
GOLDENS_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


# ---------------------------------------------------------------------------- numbers as hex

def u32hex(value):
    """Eight digits of an integer below 2^32 (also the bits of an f32)."""
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value} is no u32")
    return f"{value:08x}"


def u64hex(value):
    """Sixteen digits of an integer below 2^64."""
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} is no u64")
    return f"{value:016x}"


def f16hex(bits):
    """Four digits of the bits of an f16 or bf16; takes the bits, not the value."""
    bits = int(bits)
    if not 0 <= bits < 1 << 16:
        raise ValueError(f"{bits} are no 16 bits")
    return f"{bits:04x}"


def f32hex(value):
    """The bits of a number that is exactly an f32; a number that would be rounded is refused."""
    value = float(value)
    packed = struct.pack(">f", value)
    if value == value and struct.unpack(">f", packed)[0] != value:
        raise ValueError(f"{value!r} is not an f32")
    return packed.hex()


def f64hex(value):
    """The bits of an f64."""
    return struct.pack(">d", float(value)).hex()


def f32list(values):
    return [f32hex(v) for v in values]


def f64list(values):
    return [f64hex(v) for v in values]


def f16list(bits):
    return [f16hex(b) for b in bits]


def f32_of_hex(text):
    return struct.unpack(">f", bytes.fromhex(text))[0]


def f64_of_hex(text):
    return struct.unpack(">d", bytes.fromhex(text))[0]


def round_f32(value):
    """The f32 nearest to an f64, ties to even, as an f64; overflow gives an infinity."""
    try:
        return struct.unpack(">f", struct.pack(">f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


# ------------------------------------------------------------------------------ layout

def _scalar(value):
    return value is None or isinstance(value, (bool, int, str))


def _flat(value):
    """One line for arrays of scalars and for small objects of scalars."""
    if isinstance(value, list):
        return all(_scalar(v) for v in value)
    if isinstance(value, dict) and all(_scalar(v) for v in value.values()):
        return len(json.dumps(value, ensure_ascii=True)) <= 100
    return _scalar(value)


def dumps(value, indent=0):
    """JSON with two-space indent, ASCII, keys in the order given; arrays of scalars on one line."""
    if isinstance(value, float):
        raise TypeError("a float must be written as the hex of its bits")
    if _flat(value):
        return json.dumps(value, ensure_ascii=True)
    inner = "  " * (indent + 1)
    if isinstance(value, dict):
        items = [f"{json.dumps(k)}: {dumps(v, indent + 1)}" for k, v in value.items()]
        opening, closing = "{", "}"
    else:
        items = [dumps(v, indent + 1) for v in value]
        opening, closing = "[", "]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(items) + f"\n{'  ' * indent}{closing}"


def write_text(path, text):
    """Writes beside the target first, so that a reader never sees half a file."""
    temporary = path + ".tmp"
    with open(temporary, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
    os.replace(temporary, path)


# --------------------------------------------------------------------------- provenance

def host_platform():
    """System, machine and C library, without anything that changes between two runs."""
    libc = " ".join(part for part in platform.libc_ver() if part)
    return f"{platform.system()} {platform.machine()} {libc}".strip()


def generator_info(name, command, version="1", libraries=None):
    """The generator object: name is the script below goldens/, command makes the file again."""
    known = {"python": platform.python_version()}
    known.update(libraries or {})
    return {"name": name, "version": version, "command": command,
            "libraries": dict(sorted(known.items())), "platform": host_platform()}


def bits_tolerance(derivation):
    return {"mode": "bits", "bound": f64hex(0.0), "derivation": derivation}


def max_abs_tolerance(bound, derivation):
    return {"mode": "max_abs", "bound": f64hex(bound), "derivation": derivation}


def note(bug, effect, mutants=(), links=()):
    return {"bug": bug, "effect": effect, "mutants": list(mutants), "links": list(links)}


def write_vectors(path, suite, generator, reference, tolerance, notes, groups):
    """Checks and writes one golden.  Notes that no case uses are an error, as the page demands."""
    doc = {"schema": SCHEMA, "suite": suite, "generator": generator, "reference": reference,
           "n_cases": sum(len(g["cases"]) for g in groups), "tolerance": tolerance,
           "notes": dict(sorted(notes.items())), "groups": groups}
    faults = check_vectors(doc)
    if faults:
        raise ValueError(f"{path}: " + "; ".join(faults[:10]))
    text = dumps(doc) + "\n"
    if len(text) >= VECTORS_BYTES_MAX:
        raise ValueError(f"{path}: {len(text)} bytes, {VECTORS_BYTES_MAX} allowed")
    write_text(path, text)
    print(f"{os.path.basename(path)}: {doc['n_cases']} cases, {len(text)} bytes")
    return doc


def arguments(description, argv=None):
    """--seed N and --out DIR, which every generator takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other cases")
    parser.add_argument("--out", default=GOLDENS_DIR, help="folder to write to")
    args = parser.parse_args(argv)
    os.makedirs(args.out, exist_ok=True)
    return args


def command_of(script, args):
    return f"python3 goldens/gen/{script} --seed {args.seed}"


# ------------------------------------------------------------------------- schema checks

def load_strict(path):
    """JSON with duplicate keys, floats and non-JSON constants refused."""
    def pairs(items):
        result = {}
        for key, value in items:
            if key in result:
                raise ValueError(f"duplicate key {key!r}")
            result[key] = value
        return result

    def refuse(text):
        raise ValueError(f"number {text} is no plain integer")

    with open(path, "rb") as stream:
        text = stream.read().decode("utf-8")
    return json.loads(text, object_pairs_hook=pairs, parse_float=refuse, parse_constant=refuse)


def _hex(digits):
    pattern = re.compile(r"[0-9a-f]{%d}" % digits)
    return lambda v: isinstance(v, str) and pattern.fullmatch(v) is not None


def _list(check, minimum=0):
    return lambda v: isinstance(v, list) and len(v) >= minimum and all(check(x) for x in v)


def _maybe(check):
    return lambda v: v is None or check(v)


def _one_of(*names):
    return lambda v: isinstance(v, str) and v in names


def _int(low, high):
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and low <= v <= high


def _string(v):
    return isinstance(v, str)


def _bool(v):
    return isinstance(v, bool)


def _bytes(v):
    return isinstance(v, str) and len(v) % 2 == 0 and re.fullmatch(r"[0-9a-f]*", v) is not None


def _object(fields, optional=()):
    def check(v):
        return isinstance(v, dict) and not faults_of(v, fields, optional)
    return check


def _map(check):
    return lambda v: isinstance(v, dict) and all(check(x) for x in v.values())


def _piece(v):
    if not isinstance(v, dict) or "count" in v and not _count(v["count"]):
        return False
    keys = set(v) - {"count"}
    if keys == {"byte"}:
        return "count" in v and _int(0, 255)(v["byte"])
    return keys == {"hex"} and _bytes(v["hex"]) or keys == {"text"} and _string(v["text"])


_u32, _u64, _f16, _f32, _f64 = _hex(8), _hex(16), _hex(4), _hex(8), _hex(16)
_count = _int(0, (1 << 63) - 1)
_id = _int(0, (1 << 32) - 1)
_ids = _list(_id)
_pieces = _list(_piece)
_shape = _list(_count)
_statuses = _list(_one_of(*STATUSES), 1)
_params = _object({"temperature": _f64, "top_k": _count, "top_p": _f64, "min_p": _f64,
                   "repetition_penalty": _f64, "presence_penalty": _f64,
                   "frequency_penalty": _f64})
_step = _object({"id": _id, "logprob": _f64}, {"logits": _list(_f32, 1), "logits_of": _count})
_pool = _object({"n_blocks": _count, "block_tokens": _count, "n_layers": _count,
                 "n_kv_heads": _count, "head_dim": _count, "prefix_cache": _bool})
_layer = _object({"k": _list(_f16), "v": _list(_f16)})
_block = _object({"fill": _count, "key": _maybe(_hex(32))}, {"layers": _list(_layer, 1)})
_tensor = _object({"name": _string, "dtype": _string, "shape": _shape}, {"f32": _list(_f32)})
_node = _one_of("missing", "directory", "fifo", "zero-device", "unreadable", "link")
_parsed = _object({"arch": _one_of("llama", "bigram"), "tokenizer": _one_of("byte", "bpe"),
                   "vocab_size": _count, "max_positions": _count, "eos_token_ids": _ids},
                  {"hidden_size": _count, "intermediate_size": _count, "n_layers": _count,
                   "n_heads": _count, "n_kv_heads": _count, "head_dim": _count,
                   "rope_theta": _f64, "rms_norm_eps": _f64, "tie_word_embeddings": _bool})

REFUSAL = {"verdict": _one_of("refuse"), "status": _statuses, "twin": _string}
REFUSAL_EXTRA = {"subject": _string, "offset": _count}
VERDICT = {"verdict": _one_of("accept", "refuse")}
VERDICT_EXTRA = {"status": _statuses, "twin": _string, **REFUSAL_EXTRA}

# (suite, group or None for any other group) -> (required keys, optional keys)
CASES = {
    ("rng", "next_u32"): ({"seed": _u64, "seq": _u64, "outputs": _list(_u32, 1)},
                          {"skip": _count}),
    ("rng", "uniform_f64"): ({"seed": _u64, "seq": _u64, "values": _list(_f64, 1)},
                             {"skip": _count}),
    ("rng", "child_seed"): ({"seed": _u64, "purpose": _u64, "value": _u64}, {}),
    ("rng", "stream"): ({"seed": _u64, "purpose": _u64, "outputs": _list(_u32, 1),
                         "uniforms": _list(_f64, 1)}, {}),
    ("sampler", None): ({"seed": _u64, "params": _params, "prompt": _ids,
                         "steps": _list(_step, 1)}, {}),
    ("f16", None): ({"f32": _list(_f32, 1), "f16": _list(_f16, 1)}, {}),
    ("int4", "refused"): ({"weights": _list(_f32), "n_out": _count, "n_in": _count,
                           "group": _count, **REFUSAL}, REFUSAL_EXTRA),
    ("int4", "pack"): ({"q": _list(_int(-128, 127)), "n_out": _count, "n_in": _count},
                       {"qweight": _bytes, **VERDICT, **VERDICT_EXTRA}),
    ("int4", None): ({"weights": _list(_f32), "n_out": _count, "n_in": _count, "group": _count,
                      "scales": _list(_f16), "q": _list(_int(-8, 7)), "qweight": _bytes}, {}),
    ("linear", None): ({"dtype": _one_of("f32", "bf16", "f16", "int4"), "n_out": _count,
                        "n_in": _count, "m": _count, "x": _list(_f32), "y": _list(_f32)},
                       {"weights": lambda v: _list(_f32)(v) or _list(_f16)(v),
                        "qweight": _bytes, "scales": _list(_f16), "group": _count}),
    ("logits", None): ({"model": _string, "prompt": _list(_id, 1), "logits": _list(_f32, 1)},
                       {"hidden": _list(_f32, 1)}),
    ("greedy", None): ({"model": _string, "prompt": _list(_id, 1), "tokens": _list(_id, 32),
                        "top_ids": _list(_list(_id, 5), 32),
                        "top_logits": _list(_list(_f32, 5), 32), "max_abs": _list(_f32, 32)}, {}),
    ("kv", "refused"): ({"config": _pool, "model_tag": _u64, "envelope": _bytes, **REFUSAL},
                        {"ids_cap": _count, **REFUSAL_EXTRA}),
    ("kv", "adopted"): ({"config": _pool, "model_tag": _u64, "blocks": _list(_block),
                         "envelope": _bytes}, {"cached": _list(_hex(32))}),
    ("kv", None): ({"config": _pool, "model_tag": _u64, "blocks": _list(_block),
                    "envelope": _bytes}, {}),
    ("safetensors", None): ({**VERDICT, "rule": _int(1, 13)},
                            {"file": _pieces, "files": _map(_pieces), "node": _node,
                             "node_of": _string, "config": _pieces, "int4_group": _count,
                             "read": _object({"name": _string, "shape": _shape}),
                             "tensors": _list(_tensor), **VERDICT_EXTRA}),
    ("config", None): ({**VERDICT}, {"file": _pieces, "node": _node, "weights": _pieces,
                                     "locale": _string, "parsed": _parsed,
                                     "schema_says": _one_of("accept", "none"),
                                     **VERDICT_EXTRA}),
}


def faults_of(value, required, optional):
    """The names of the keys of an object that are missing, unknown or of the wrong type."""
    checks = {**dict(required), **dict(optional)}
    faults = [f"{key} is missing" for key in required if key not in value]
    for key, item in value.items():
        if key in checks:
            if not checks[key](item):
                faults.append(f"{key} is malformed")
        elif not key.endswith("_text"):
            faults.append(f"{key} is not a key of this object")
    return faults


def _case_faults(suite, group, case):
    required, optional = CASES.get((suite, group)) or CASES.get((suite, None), ({}, {}))
    common = {"id": _string, "comment": _string, "flags": _list(_string)}
    faults = faults_of(case, {**common, **required}, optional)
    if not faults:
        faults = _cross_faults(suite, group, case)
    return faults


def _cross_faults(suite, group, case):
    """Lengths and combinations that a key alone cannot tell."""
    faults = []

    def want(condition, text):
        if not condition:
            faults.append(text)

    if case.get("verdict") == "refuse":
        want("status" in case and "twin" in case, "a refusal has a status and a twin")
    if case.get("verdict") == "accept":
        want("status" not in case and "subject" not in case and "twin" not in case,
             "an accepted case has no status, subject or twin")
    if suite == "f16":
        want(len(case["f32"]) == len(case["f16"]), "f32 and f16 have the same length")
    if suite == "int4" and group not in ("refused", "pack"):
        n = case["n_out"] * case["n_in"]
        want(len(case["weights"]) == n and len(case["q"]) == n, "weights and q are [n_out, n_in]")
        want(len(case["qweight"]) == n, "qweight is [n_out, n_in / 2] bytes")
        want(len(case["scales"]) * case["group"] == n, "scales is [n_out, n_in / group]")
    if suite == "linear":
        n = case["n_out"] * case["n_in"]
        if case["dtype"] == "int4":
            want(len(case.get("qweight", "")) == n, "qweight is [n_out, n_in / 2] bytes")
            want(len(case.get("scales", [])) * case.get("group", 0) == n,
                 "scales is [n_out, n_in / group]")
            want("weights" not in case, "int4 has no weights")
        else:
            digits = 8 if case["dtype"] == "f32" else 4
            want(len(case.get("weights", [])) == n, "weights is [n_out, n_in]")
            want(all(len(w) == digits for w in case.get("weights", [])), "weights fit the dtype")
        want(len(case["x"]) == case["m"] * case["n_in"], "x is [m, n_in]")
        want(len(case["y"]) == case["m"] * case["n_out"], "y is [m, n_out]")
    if suite == "sampler":
        faults += _sampler_faults(case)
    if suite == "greedy":
        want(all(len(case[k]) == 32 for k in ("tokens", "top_ids", "top_logits", "max_abs")),
             "32 steps")
        want(all(len(x) == 5 for k in ("top_ids", "top_logits") for x in case[k]), "five best")
    if suite == "kv" and group not in ("refused", "adopted"):
        faults += _kv_faults(case)
    if suite == "safetensors":
        want(("file" in case) + ("files" in case) == 1 or "node" in case, "file or files")
        if case["verdict"] == "accept" and "config" not in case:
            want("tensors" in case, "an accepted file says its tensors")
    if suite == "config":
        want("file" in case or "node" in case, "file or node")
        if case["verdict"] == "accept":
            want("parsed" in case, "an accepted config says what was parsed")
    return faults


def _sampler_faults(case):
    faults = []
    lengths = {}
    for number, step in enumerate(case["steps"]):
        if ("logits" in step) == ("logits_of" in step):
            faults.append(f"step {number} needs logits or logits_of")
        elif "logits" in step:
            lengths[number] = len(step["logits"])
        elif step["logits_of"] not in lengths:
            faults.append(f"step {number} repeats a step without logits")
    if len(set(lengths.values())) > 1:
        faults.append("the vocabulary changes")
    elif lengths:
        size = min(lengths.values())
        if any(i >= size for i in case["prompt"] + [s["id"] for s in case["steps"]]):
            faults.append("an id is past the vocabulary")
    return faults


def _kv_faults(case):
    cfg = case["config"]
    n = cfg["n_kv_heads"] * cfg["block_tokens"] * cfg["head_dim"]
    for number, block in enumerate(case["blocks"]):
        layers = block.get("layers", [])
        if len(layers) != cfg["n_layers"] or any(len(l[s]) != n for l in layers for s in "kv"):
            return [f"block {number} has slabs of the wrong size"]
    return []


def check_vectors(doc):
    """Every fault of a vectors file as a list of sentences; empty when there is none."""
    if not isinstance(doc, dict) or tuple(doc) != TOP_KEYS:
        return [f"the top-level keys are not {', '.join(TOP_KEYS)} in this order"]
    faults = []
    if doc["schema"] != SCHEMA:
        faults.append(f"schema is not {SCHEMA}")
    if doc["suite"] not in SUITES:
        faults.append("unknown suite")
    strings = _map(_string)
    if not _object({"name": _string, "version": _string, "command": _string,
                    "libraries": strings, "platform": _string})(doc["generator"]):
        faults.append("generator is malformed")
    if not _object({k: _string for k in ("name", "version", "dtype", "device")})(
            doc["reference"]):
        faults.append("reference is malformed")
    if not _object({"mode": _one_of("bits", "max_abs"), "bound": _f64,
                    "derivation": _string})(doc["tolerance"]):
        faults.append("tolerance is malformed")
    one_note = _object({"bug": _string, "effect": _string, "mutants": _list(_string),
                        "links": _list(_string)})
    if not _map(one_note)(doc["notes"]):
        faults.append("notes are malformed")
    if not _list(_object({"name": _string, "cases": _list(lambda c: isinstance(c, dict))}))(
            doc["groups"]):
        return faults + ["groups are malformed"]
    return faults + _groups_faults(doc)


def _groups_faults(doc):
    faults = []
    cases = {}
    used = set()
    names = [group["name"] for group in doc["groups"]]
    if len(set(names)) != len(names):
        faults.append("a group name is repeated")
    if not names or not all(group["cases"] for group in doc["groups"]):
        faults.append("there is no group, or one without a case")
    for group in doc["groups"]:
        for case in group["cases"]:
            where = f"{group['name']}/{case.get('id')}"
            faults += [f"{where}: {f}" for f in _case_faults(doc["suite"], group["name"], case)]
            if case.get("id") in cases:
                faults.append(f"{where}: the id is repeated")
            cases[case.get("id")] = case
            used.update(case.get("flags", []))
    if len(cases) != doc["n_cases"]:
        faults.append(f"n_cases is {doc['n_cases']}, {len(cases)} found")
    faults += [f"flag {f} has no note" for f in sorted(used - set(doc["notes"]))]
    faults += [f"note {n} has no case" for n in sorted(set(doc["notes"]) - used)]
    for case_id, case in cases.items():
        if "twin" in case:
            twin = cases.get(case["twin"])
            if twin is None or twin.get("verdict", "accept") != "accept":
                faults.append(f"{case_id}: twin {case['twin']} is no accepted case")
    return faults


if __name__ == "__main__":
    sys.exit("vectors.py is a module; run all.py")
