#!/usr/bin/env python3
"""hf_greedy.vectors.json: 32 greedy tokens for each prompt, with each step's five best logits.

    python3 hf_greedy.py [--seed N] [--out DIR]     after models.py with the same arguments

A prompt is dropped when its first step is a near tie, or more than one step is: a near tie is a
lead of the best logit of at most two bounds, as in the rule that the test goes by. Dropped too is
a prompt on which f16 K and V move the logits of a step by more than half of the bound.
"""
from pathlib import Path

import numpy as np

import hf_run
import models_forward as fw
import vectors
from models import BOUND
from models_spec import greedy_wanted, specs_of

STEPS = 32
WORK_MAX = 150e6


def greedy_case(golden, ids):
    """(case without id and comment, near ties as step numbers)."""
    fed, ties = list(ids), []
    case = {"flags": [], "model": golden.path, "prompt": ids, "tokens": [], "top_ids": [],
            "top_logits": [], "max_abs": []}
    for step in range(STEPS):
        logits = golden.run(fed)[1]
        best = np.argsort(-logits, kind="stable")[:5]
        peak = np.abs(logits).max()
        if logits[best[0]] - logits[best[1]] <= 2 * BOUND * peak:
            ties.append(step)
        case["tokens"].append(int(best[0]))
        case["top_ids"].append(best.tolist())
        case["top_logits"].append(vectors.f32list(logits[best]))
        case["max_abs"].append(vectors.f32hex(peak))
        fed.append(int(best[0]))
    return case, ties


def f16_moves(golden, ids, tokens):
    """The worst that f16 K and V move the logits of any step; all steps in one pass. Infinite where
    float64 chooses another token: such a tie was decided by float32 rounding alone."""
    fed = ids + tokens[:-1]
    head = fw.head(golden.c, golden.weights).T
    own = fw.forward(golden.c, golden.weights, fed)[0][-STEPS:] @ head
    twin = fw.forward(golden.c, golden.weights, fed, f16_kv=True)[0][-STEPS:] @ head
    if own.argmax(axis=1).tolist() != tokens:
        return np.inf
    return max(fw.moved(t, o) for t, o in zip(twin, own, strict=True))


def model_group(golden, seed):
    """(group, one line of measured figures, multiply-adds)."""
    cases, worst, work, dropped, ties_kept = [], 0.0, 0, 0, 0
    for candidates, wanted in greedy_wanted(golden.spec, seed):
        kept = 0
        for ids in candidates:
            if kept == wanted:
                break
            case, ties = greedy_case(golden, ids)
            moves = f16_moves(golden, ids, case["tokens"])
            if 0 in ties or len(ties) > 1 or moves > BOUND / 2:
                dropped += 1
                continue
            kept += 1
            ties_kept += len(ties)
            worst = max(worst, moves)
            work += fw.multiply_adds(golden.c, len(ids) + STEPS - 1, STEPS)
            where = f"a near tie at step {ties[0]}" if ties else "no near tie"
            twins = sum(len(other["prompt"]) == len(ids) for other in cases)
            head = {"id": f"{golden.name}-{len(ids)}" + (f"-{twins + 1}" if twins else ""),
                    "comment": f"{len(ids)} tokens, then 32 greedy ones, {where}"}
            if golden.name == "kjv":
                head["prompt_text"] = bytes(ids).decode()
                head["tokens_text"] = bytes(case["tokens"]).decode("latin-1")
            cases.append({**head, **case})
        if kept < wanted:
            raise SystemExit(f"{golden.name}: {kept} of {len(candidates)} prompts have no near "
                             f"ties, {wanted} are wanted")
    distinct = len({token for case in cases for token in case["tokens"]})
    if distinct < 8:
        raise SystemExit(f"{golden.name}: its greedy streams hold {distinct} distinct ids only")
    line = (f"{golden.name}: {distinct} distinct ids, {ties_kept} near ties kept, {dropped} "
            f"prompts dropped, f16 K and V move a step's logits by {worst / BOUND:.2f} bounds")
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
        "A token may differ from Hugging Face's where both lie within the error of the logits: the "
        "bound B of hf_logits on each side, 2 B in all. Kept are prompts with no such near tie at "
        "the first step and at most one in all, and on which f16 K and V move the logits of every "
        "step by at most half of the bound, so that a right engine gives these very tokens but for "
        "a kept near tie. " + "; ".join(lines) + ".")
    vectors.write_vectors(
        str(out / "hf_greedy.vectors.json"), "greedy",
        vectors.generator_info("gen/hf_greedy.py", vectors.command_of("hf_greedy.py", args),
                               libraries=hf_run.libraries()),
        hf_run.reference(), vectors.max_abs_tolerance(BOUND, derivation), {}, groups)
    print(f"hf_greedy: {work / 1e6:.1f} million multiply-adds in all, {WORK_MAX / 1e6:.0f} allowed")
    if work > WORK_MAX:
        raise SystemExit("an engine under Valgrind could not run these goldens in its time")


if __name__ == "__main__":
    main()
