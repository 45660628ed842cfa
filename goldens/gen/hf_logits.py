#!/usr/bin/env python3
"""hf_logits.vectors.json: last-token logits of each prompt, and one prompt's hidden states a model.

    python3 hf_logits.py [--seed N] [--out DIR]     after models.py with the same arguments

Every condition under which models.py kept a model is checked again here, on the files as they are
and on the trained model too.
"""
from pathlib import Path

import hf_run
import models_forward as fw
import vectors
from models import BOUND, complaint, measure
from models_spec import logits_prompts, specs_of

WORK_MAX = 200e6
NOTES = {
    "KvSlabs": ("K is written to the V slab.", "Attention sums keys, or scores against nothing.",
                ["s15"], ("s15-v-slab-holds-k", "s15-k-slab-empty")),
    "FinalNorm": ("The norm after the last layer is skipped.",
                  "Hidden states and logits keep the residual stream's scale and miss its weights.",
                  ["s16"], ("s16-no-final-norm",)),
    "RopeOrder": ("The RoPE frequencies run in reverse order.",
                  "Right at position 0 and wrong at every later one.", ["s20"],
                  ("s20-rope-reversed",)),
    "RopePairs": ("RoPE turns neighbours (2i, 2i + 1) instead of halves (i, i + D/2).",
                  "Right at position 0 and wrong at every later one.", [], ("rope-interleaved",)),
    "SiluGate": ("silu is applied to the up projection instead of the gate.",
                 "Every MLP is wrong by a little.", ["s22"], ("s22-silu-on-up",)),
    "GqaRepeat": ("Query head h reads KV head h mod H_kv instead of h / (H / H_kv).",
                  "Heads read their neighbour's keys.", [], ("gqa-tiled",)),
    "RopeTheta": ("rope_theta is not found where the config has it and 10000 is taken.",
                  "Late positions turn at the wrong speed.", [], ("theta-10000",)),
    "HeadDim": ("Scores are scaled by hidden / heads instead of the given head_dim.",
                "Attention is too sharp or too flat.", [], ("scale-of-hidden",)),
    "NormEps": ("rms_norm_eps is fixed instead of read.",
                "Every norm is a little too large.", [], ("eps-1e-6",)),
}


def flags_for(golden, ids):
    """The notes whose bug moves this very case by more than four bounds, each of its ways."""
    bugs = {bug for bug, shows in {**fw.MUTANTS, **fw.EXTRA}.items() if shows(golden.c)}
    own = fw.forward(golden.c, golden.weights, ids)[1]
    seen = {bug for bug in bugs
            if fw.moved(fw.forward(golden.c, golden.weights, ids, bug=bug)[1], own) > 4 * BOUND}
    return [flag for flag, (_, _, _, ways) in NOTES.items() if set(ways) <= seen]


def model_group(golden, seed):
    """(group, one line of measured figures, multiply-adds that an engine needs for it)."""
    spec, prompts = golden.spec, logits_prompts(golden.spec, seed)
    figures = measure(golden.c, golden.weights, prompts)
    fault = complaint(figures)
    if fault:
        raise SystemExit(f"{golden.name}: {fault}")
    cases, work, apart = [], 0, 0.0
    for ids in prompts:
        hidden, logits = golden.run(ids)
        apart = max(apart, golden.check(ids, hidden, logits)[2])
        work += fw.multiply_adds(golden.c, len(ids))
        case = {"id": f"{golden.name}-{len(ids)}",
                "comment": f"{len(ids)} tokens, {len(set(ids))} distinct: {spec['about']}",
                "flags": flags_for(golden, ids), "model": golden.path, "prompt": ids,
                "logits": vectors.f32list(logits)}
        if golden.name == "kjv":
            case["prompt_text"] = bytes(ids).decode()
        if len(ids) == spec["hidden"]:
            case["hidden"] = vectors.f32list(hidden.reshape(-1))
            work += fw.multiply_adds(golden.c, len(ids))
        cases.append(case)
    if not any("hidden" in case for case in cases):
        raise SystemExit(f"{golden.name}: no prompt has {spec['hidden']} tokens")
    bugs = {k: v for k, v in figures.items() if not k.startswith("f16-kv")}
    least = min(bugs, key=bugs.get)
    line = (f"{golden.name}: f16 K and V move logits by {figures['f16-kv'] / BOUND:.2f} bounds and "
            f"hidden by {figures['f16-kv-hidden'] / BOUND:.2f}, the mildest bug ({least}) by "
            f"{bugs[least] / BOUND:.3g}, float32 from float64 {apart:.1e}")
    return {"name": golden.name, "cases": cases}, line, work


def main():
    args = vectors.arguments(__doc__.splitlines()[0])
    out = Path(args.out)
    groups, lines, work = [], [], 0
    for spec in specs_of(out):
        group, line, needed = model_group(hf_run.Golden(out, spec), args.seed)
        groups.append(group)
        lines.append(line)
        work += needed
        print(f"{line}; {needed / 1e6:.1f} million multiply-adds")
    derivation = (
        "The engine keeps K and V as f16 (relative error 2^-11) where Hugging Face keeps float32; "
        "this is the only rounding that counts. Kept are models and prompts on which it moves the "
        "result by at most half of the bound and on which each simulated bug (s15 both ways, s16, "
        "s20, s22 and, where the shape shows them, wrong GQA, RoPE pairs, theta, head_dim and eps) "
        "moves every prompt of four tokens or more by more than four bounds, measured in float64. "
        + "; ".join(lines) + ".")
    used = {flag for group in groups for case in group["cases"] for flag in case["flags"]}
    vectors.write_vectors(
        str(out / "hf_logits.vectors.json"), "logits",
        vectors.generator_info("gen/hf_logits.py", vectors.command_of("hf_logits.py", args),
                               libraries=hf_run.libraries()),
        hf_run.reference(), vectors.max_abs_tolerance(BOUND, derivation),
        {flag: vectors.note(*NOTES[flag][:3]) for flag in sorted(used)}, groups)
    print(f"hf_logits: {work / 1e6:.1f} million multiply-adds in all, {WORK_MAX / 1e6:.0f} allowed")
    if work > WORK_MAX:
        raise SystemExit("an engine under Valgrind could not run these goldens in its time")


if __name__ == "__main__":
    main()
