#!/usr/bin/env python3
"""Draw the random golden models and the bigram, and refuse those that would prove nothing.

    python3 models.py [--seed N] [--out DIR]      writes DIR/models/NAME/

A model is kept when, on its golden prompts,
  - K and V rounded to f16, as the engine keeps them, move logits and hidden states by at most half
    of the bound: a right engine passes with room to spare;
  - each simulated bug (models_forward.MUTANTS, and EXTRA where the shape shows it) moves the logits
    of every prompt of four tokens or more by more than four bounds: a wrong engine fails;
  - its greedy streams hold at least eight distinct ids.
More than three in four of all drawings refused is an error: then the drawing is wrong.
The trained model is not drawn; with --out elsewhere its files are copied.
"""
import argparse
import shutil
import sys
from pathlib import Path

import numpy as np

import models_file as mf
import models_forward as fw
from models_spec import SPECS, TRAINED, generator_for, greedy_candidates, logits_prompts

HERE = Path(__file__).resolve().parent
BOUND = 1e-3
TRIES = 12
GREEDY_STEPS = 32


def tensor_shapes(c):
    """Hugging Face's names in the order of the network, the embedding first."""
    q, kv = c["heads"] * c["head_dim"], c["kv"] * c["head_dim"]
    shapes = [("model.embed_tokens.weight", (c["vocab"], c["hidden"]))]
    for layer in range(c["layers"]):
        at = f"model.layers.{layer}."
        shapes += [
            (at + "input_layernorm.weight", (c["hidden"],)),
            (at + "self_attn.q_proj.weight", (q, c["hidden"])),
            (at + "self_attn.k_proj.weight", (kv, c["hidden"])),
            (at + "self_attn.v_proj.weight", (kv, c["hidden"])),
            (at + "self_attn.o_proj.weight", (c["hidden"], q)),
            (at + "post_attention_layernorm.weight", (c["hidden"],)),
            (at + "mlp.gate_proj.weight", (c["ffn"], c["hidden"])),
            (at + "mlp.up_proj.weight", (c["ffn"], c["hidden"])),
            (at + "mlp.down_proj.weight", (c["hidden"], c["ffn"])),
        ]
    shapes.append(("model.norm.weight", (c["hidden"],)))
    if not c["tied"]:
        shapes.append(("lm_head.weight", (c["vocab"], c["hidden"])))
    return shapes


def draw_weights(c, rng):
    """Normal weights that keep every stage of order one. Hugging Face's 0.02 would leave the
    residual stream nearly untouched by the layers, and most bugs invisible in the logits. The
    attention's share is kept below the MLP's, since it carries the f16 rounding. A tied model's
    final norm has signs, or each token would do little but predict itself."""
    gain = {"o_proj": 0.6}
    weights = {}
    for name, shape in tensor_shapes(c):
        kind = name.split(".")[-2]
        draw = rng.standard_normal(shape, dtype=np.float32)
        if "norm" in kind:
            weights[name] = 1 + np.float32(0.25) * draw
            if name == "model.norm.weight" and c["tied"]:
                weights[name] *= rng.choice(np.float32([-1, 1]), size=shape)
        else:
            fan_in = 1 if kind == "embed_tokens" else shape[1]
            weights[name] = np.float32(gain.get(kind, 1.0) / np.sqrt(fan_in)) * draw
    return weights


def dtype_of(spec, name):
    if isinstance(spec["dtype"], str):
        return spec["dtype"]
    return next(dtype for part, dtype in spec["dtype"].items() if part in name)


def stored_tensors(spec, weights):
    """The (name, dtype, array) list of the file, int4 packed where the spec says so."""
    tensors = []
    for name, values in weights.items():
        base = name[:-len(".weight")]
        if spec.get("int4") and (base.endswith("_proj") or base == "lm_head"):
            q, scales = mf.quantize_int4(values, spec["int4"])
            tensors.append((base + ".qweight", "U8", mf.pack_int4(q)))
            tensors.append((base + ".scales", "F16", scales))
        else:
            tensors.append((name, dtype_of(spec, name), values))
    if spec.get("store_tied"):
        name = "model.embed_tokens.weight"
        tensors.append(("lm_head.weight", dtype_of(spec, name), weights[name]))
    if spec.get("order") == "last":
        tensors = tensors[1:] + tensors[:1]
    return tensors


def write_config(directory, spec):
    config = {"tl_arch": "llama", **spec["config"]}
    mf.write_json(directory / "config.json", config)


def write_model(place, spec, weights):
    with mf.NewFolder(place) as directory:
        fill_model(directory, spec, weights)


def fill_model(directory, spec, weights):
    write_config(directory, spec)
    tensors = stored_tensors(spec, weights)
    meta = {"format": "pt"}
    if spec.get("int4"):
        meta["quant"] = f"int4-g{spec['int4']}-sym"
    shards = spec.get("shards", 1)
    if shards == 1:
        mf.write_safetensors(directory / "model.safetensors", tensors, meta, spec.get("pad", True))
        return
    where, total = {}, 0
    for at in range(shards):
        part = tensors[at::shards]
        name = f"model-{at + 1:05d}-of-{shards:05d}.safetensors"
        mf.write_safetensors(directory / name, part, meta)
        where.update({tensor: name for tensor, _, _ in part})
        total += sum(values.size * mf.BYTES[dtype] for _, dtype, values in part)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    mf.write_json(directory / "model.safetensors.index.json", index)


def measure(c, weights, prompts):
    """{figure: value}: the f16 twin's worst movement, and for each bug the least movement over
    the prompts of four tokens or more."""
    found = {"f16-kv": 0.0, "f16-kv-hidden": 0.0}
    bugs = [bug for bug, shows in {**fw.MUTANTS, **fw.EXTRA}.items() if shows(c)]
    for prompt in prompts:
        hidden, logits = fw.forward(c, weights, prompt)
        twin_hidden, twin = fw.forward(c, weights, prompt, f16_kv=True)
        found["f16-kv"] = max(found["f16-kv"], fw.moved(twin, logits))
        found["f16-kv-hidden"] = max(found["f16-kv-hidden"], fw.moved(twin_hidden, hidden))
        if len(prompt) < 4:
            continue
        for bug in bugs:
            wrong = fw.forward(c, weights, prompt, f16_kv=True, bug=bug)[1]
            found[bug] = min(found.get(bug, np.inf), fw.moved(wrong, logits))
    return found


def complaint(figures):
    """Why this model proves nothing, or None."""
    for name, value in figures.items():
        if name.startswith("f16-kv"):
            if not value <= BOUND / 2:
                return f"{name} moves by {value / BOUND:.2f} bounds, at most 0.5 is allowed"
        elif not value > 4 * BOUND:
            return f"{name} moves by {value / BOUND:.2f} bounds only, more than 4 are needed"
    return None


def stale(c, weights, spec, seed):
    """Why its greedy streams say too little, or None."""
    seen = set()
    for length in spec["greedy"]:
        prompt = greedy_candidates(spec, seed, length, 1)[0]
        seen.update(fw.greedy(c, weights, prompt, GREEDY_STEPS if length < 200 else 4))
    return None if len(seen) >= 8 else f"its greedy streams hold {len(seen)} distinct ids only"


def draw_model(spec, seed, out):
    """Draw until one is kept; returns the number of drawings."""
    directory = out / "models" / spec["name"]
    c = fw.shape_of(spec["config"])
    for attempt in range(TRIES):
        drawn = draw_weights(c, generator_for(seed, spec["name"], "weights", attempt))
        write_model(directory, spec, drawn)
        weights = mf.load_model(directory)
        figures = measure(c, weights, logits_prompts(spec, seed))
        fault = complaint(figures) or stale(c, weights, spec, seed)
        if not fault:
            text = ", ".join(f"{k} {v / BOUND:.3g}" for k, v in figures.items())
            print(f"{spec['name']}: kept drawing {attempt} (bounds moved: {text})")
            return attempt + 1
        print(f"{spec['name']}: refused drawing {attempt}: {fault}")
    sys.exit(f"{spec['name']}: {TRIES} drawings refused, the drawing is wrong")


def write_bigram(seed, out):
    """Row c of the table is best at c + 1, so that greedy from "a" goes on b c d; every value is
    a multiple of 1/64 and so exact in F16. Each row's best four beside it are distinct too."""
    rng = generator_for(seed, "bigram")
    table = rng.integers(-256, 256, size=(256, 256)).astype(np.float32) / 64
    for row in range(256):
        table[row, (row + 1) % 256] = 5 + rng.integers(0, 64) / 64
    config = {"tl_arch": "bigram", "tl_tokenizer": "byte", "vocab_size": 256,
              "max_position_embeddings": 64, "eos_token_id": 0}
    with mf.NewFolder(out / "models" / "bigram") as directory:
        mf.write_json(directory / "config.json", config)
        mf.write_safetensors(directory / "model.safetensors", [("bigram.weight", "F16", table)],
                             {"format": "pt"})


def copy_trained(out):
    source, target = HERE.parent / "models" / TRAINED, out / "models" / TRAINED
    if source.is_dir() and source.resolve() != target.resolve():
        with mf.NewFolder(target) as directory:
            shutil.copytree(source, directory, dirs_exist_ok=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--out", type=Path, default=HERE.parent)
    args = ap.parse_args()
    drawings = sum(draw_model(spec, args.seed, args.out) for spec in SPECS)
    print(f"{len(SPECS)} random models kept of {drawings} drawn")
    if drawings > 4 * len(SPECS):
        sys.exit("more than three in four random models were refused: the drawing is wrong")
    write_bigram(args.seed, args.out)
    copy_trained(args.out)


if __name__ == "__main__":
    main()
