#!/usr/bin/python3
"""Draw a folder of goldens that nobody has seen: what `ol check --fresh` runs.

    fresh.py --seed N --out DIR --host OL-HOST --engine LIBRARY [--second LIBRARY] [--jobs N]
             [--suites NAME,...] [--case ID]

The same seed gives the same folder, and with --suites or --case the part of it that is asked for: each
suite and each model has random numbers of its own. Suites that integers, fractions or a slow reader can answer come
from the generators of goldens/gen under another seed. The models are the golden ones, cut to another
shape and perturbed; the values expected of them come from the reference engine, in a process of its
own, which is asked as every testee is. A drawing is kept when
  - the float64 forward of goldens/gen, and the second engine where one is given, agree with the
    reference within a quarter of the bound, so that no right engine fails by its rounding;
  - each simulated bug moves it by more than four bounds, as in goldens/gen/models.py.
Ends with one line of JSON on standard output. Exit 5: no drawing was kept, which is no engine's
fault; 70: the reference engine or a generator could not be run.
"""
import argparse
import concurrent.futures
import contextlib
import io
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
GEN = ROOT / "goldens" / "gen"
EXIT_GOLDEN, EXIT_INTERNAL = 5, 70


def leave(code, why):
    print(f"ol: --fresh: {why}", file=sys.stderr)
    sys.exit(code)


try:
    import numpy as np
except ImportError:
    leave(EXIT_INTERNAL, "drawing models needs numpy (Debian: python3-numpy)")

if not (GEN / "models.py").is_file() or not (ROOT / "goldens" / "models").is_dir():
    leave(EXIT_GOLDEN, f"goldens/gen and goldens/models are needed below {ROOT}")
sys.dont_write_bytecode = True
sys.path.insert(0, str(GEN))
import manifest  # noqa: E402
import models  # noqa: E402
import models_file as mf  # noqa: E402
import models_forward as fw  # noqa: E402
import models_spec  # noqa: E402
import vectors  # noqa: E402

BOUND = models.BOUND
SCRIPTS = {"safetensors": "safetensors_cases.py", "sampler": "sampler.py", "config": "config_cases.py",
           "linear": "linear.py", "int4": "int4.py", "f16": "f16.py", "rng": "rng.py", "kv": "kv.py"}
MODEL_SUITES = ("logits", "greedy")
TRIES = 24
GREEDY_STEPS = 32
DISTINCT_MIN = 8
GREEDY_CANDIDATES = 6
CONTEXT_MAX = 1024
PHRASES = models_spec.TRAINED_LOGITS[1:] + models_spec.TRAINED_GREEDY
NOISE = 0.35    # of a matrix's own deviation
BLUR = 0.02     # the same for the trained model, which is to stay one that has learnt


# ------------------------------------------------------------------------------------ engines

class Engine:
    """A testee, talked to by the page testee.md: frames of JSON on descriptors 3 and 4."""

    def __init__(self, host, library, folder, models):
        self.name, self.seq, self.models = os.path.basename(library), 0, models
        requests, self.to = os.pipe()
        self.answers, answers = os.pipe()
        self.child = subprocess.Popen(
            ["/bin/sh", "-c", f'exec "$0" "$1" 3<&{requests} 4>&{answers}', host, library],
            cwd=folder, pass_fds=(requests, answers), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(requests)
        os.close(answers)
        self.hello = self.ask("hello")

    def read(self, size):
        data = b""
        while len(data) < size:
            part = os.read(self.answers, size - len(data))
            if not part:
                leave(EXIT_INTERNAL, f"{self.name} ended without an answer")
            data += part
        return data

    def ask(self, op, **arguments):
        self.seq += 1
        frame = json.dumps({"seq": self.seq, "op": op, **arguments}).encode()
        frame = struct.pack("<I", len(frame)) + frame
        while frame:
            frame = frame[os.write(self.to, frame):]
        answer = json.loads(self.read(struct.unpack("<I", self.read(4))[0]))
        if not answer["ok"]:
            leave(EXIT_INTERNAL, f"{self.name} refuses {op}: {answer['text']}")
        return answer

    def end(self):
        os.close(self.to)
        os.close(self.answers)
        self.child.wait()


def u32s(ids):
    return {"u32": struct.pack(f"<{len(ids)}I", *ids).hex()}


def floats(value):
    return np.frombuffer(bytes.fromhex(value["f32"]), dtype="<f4")


class Loaded:
    """A model in an engine."""

    def __init__(self, engine, path):
        self.engine = engine
        answer = engine.ask("load", dir=os.path.join(engine.models, path))
        self.runner, self.pool = answer["runner"], answer["pool"]

    def once(self, ids, hidden):
        """(logits of the last token, hidden values of all or None)."""
        answer = self.engine.ask("run_once", runner=self.runner, tokens=u32s(ids), hidden=hidden)
        return floats(answer["logits"]), floats(answer["hidden"]) if hidden else None

    def steps(self, ids, choose):
        """The logits of GREEDY_STEPS steps from a prompt; `choose` names the token to feed next."""
        engine, rows = self.engine, []
        n = len(ids) + GREEDY_STEPS
        blocks = engine.ask("kv_alloc", pool=self.pool, n=(n + 15) // 16)["ids"]
        fed, start = list(ids), 0
        for step in range(GREEDY_STEPS):
            row = engine.ask("forward", runner=self.runner, seqs=[
                {"tokens": u32s(fed), "start": start, "blocks": blocks}])
            rows.append(floats(row["logits"]))
            start += len(fed)
            fed = [choose(step, rows[-1])]
        for block in np.frombuffer(bytes.fromhex(blocks["u32"]), dtype="<u4"):
            engine.ask("kv_release", pool=self.pool, id=int(block))
        return rows

    def free(self):
        self.engine.ask("runner_free", runner=self.runner)


# ------------------------------------------------------------------------- shapes and weights

def jitter(rng, n, share):
    """A number near n, at least 1."""
    return max(1, n + int(rng.integers(-int(n * share), int(n * share) + 1)))


def reshape(spec, rng):
    """The spec with another vocabulary, MLP, context, theta, eos ids and other prompt lengths; what
    the golden shows by its shape (heads, ties, types, shards) stays."""
    config = dict(spec["config"])
    if spec["blurred"]:
        config["max_position_embeddings"] += int(rng.integers(0, 25))
        return {**spec, "config": config}
    floor = 256 if config["tl_tokenizer"] == "byte" else 8
    step = spec.get("int4", 1)
    config["vocab_size"] -= int(rng.integers(0, min(config["vocab_size"] - floor, 40) + 1))
    ffn = config["intermediate_size"]
    config["intermediate_size"] = max(step, (ffn - int(rng.integers(1, ffn // 2))) // step * step)
    context = config["max_position_embeddings"]
    config["max_position_embeddings"] = context + int(rng.integers(0, 25))
    for home in (config, config.get("rope_parameters") or {}, config.get("rope_scaling") or {}):
        theta = home.get("rope_theta")
        if theta and theta != 10000.0:    # the default, as somebody might take it, is far enough
            home["rope_theta"] = type(theta)(round(theta * math.exp(rng.uniform(-0.4, 0.4)), 1))
    eos = config.get("eos_token_id")
    if eos is not None:
        n = len(eos) if isinstance(eos, list) else 1
        ids = [int(i) for i in rng.choice(config["vocab_size"], size=n, replace=False)]
        config["eos_token_id"] = ids if isinstance(eos, list) else ids[0]
    lengths = {n: n if n == 1 else jitter(rng, n, 0.2) for n in spec["logits"] + spec["greedy"]}
    if context in lengths and context < CONTEXT_MAX:
        lengths[context] = config["max_position_embeddings"]
    room = config["max_position_embeddings"]
    return {**spec, "config": config,
            "logits": sorted({min(lengths[n], room) for n in spec["logits"]}),
            "hidden": min(lengths[spec["hidden"]], room),
            "greedy": sorted({min(lengths[n], room - GREEDY_STEPS) for n in spec["greedy"]})}


def deep_copy(spec):
    return json.loads(json.dumps({"blurred": False, **spec}))


def cut_and_perturb(c, golden, blurred, rng):
    """The golden's weights for the shape: rows and columns taken away, layers in another order,
    noise on all. A trained model is only blurred, or it would lose its sense."""
    shapes = dict(models.tensor_shapes(c))
    noise = BLUR if blurred else NOISE
    order = list(range(c["layers"])) if blurred else rng.permutation(c["layers"]).tolist()
    weights = {}
    for name, shape in shapes.items():
        parts = name.split(".")
        if parts[1] == "layers":
            parts[2] = str(order[int(parts[2])])
        values = golden[".".join(parts)][tuple(slice(n) for n in shape)]
        spread = values.std() if values.ndim == 2 else 0.25
        weights[name] = values + np.float32(noise * spread) * rng.standard_normal(
            shape, dtype=np.float32)
        if values.ndim == 2:    # as much spread as before
            weights[name] /= np.float32(math.sqrt(1 + noise * noise))
    return weights


def trained_spec():
    """The trained model as one of the table, with prompts of drawn ids."""
    folder = ROOT / "goldens" / "models" / models_spec.TRAINED
    config = json.loads((folder / "config.json").read_text())
    stored, _ = mf.read_safetensors(folder / "model.safetensors")
    return {"name": models_spec.TRAINED, "about": "the trained model, blurred", "config": config,
            "dtype": next(iter(stored.values()))[0], "blurred": True,
            "logits": [1, 5, 40], "hidden": 5, "greedy": [24, 60]}


# ------------------------------------------------------------------------------------- a model

class Refused(Exception):
    """Why a drawing is not kept."""


class Drawing:
    """One model, drawn once: its files, its prompts, what both engines say."""

    def __init__(self, out, spec, rng, number, engines):
        self.name, self.number, self.engines = spec["name"], number, engines
        self.spec = reshape(deep_copy(spec), rng)
        self.c = fw.shape_of(self.spec["config"])
        self.path = f"models/{self.name}"
        golden = mf.load_model(ROOT / "goldens" / "models" / self.name)
        models.write_model(out / "models" / self.name, self.spec,
                           cut_and_perturb(self.c, golden, self.spec["blurred"], rng))
        self.weights = mf.load_model(out / "models" / self.name)
        self.rng, self.apart = rng, 0.0

    def prompt(self, length):
        """Drawn ids; for the trained model phrases that it knows."""
        if not self.spec["blurred"]:
            return models_spec.draw_prompt(self.rng, self.c["vocab"], length)
        text = ""
        while len(text) < length + 8:
            text += PHRASES[self.rng.integers(len(PHRASES))]
        at = int(self.rng.integers(0, 8))
        return list(text[at:at + length].encode())

    def prompts(self):
        found = [self.prompt(length) for length in self.spec["logits"]]
        for ids in found if not self.spec["blurred"] else ():
            if len(ids) > 8:    # both ends of the embedding are read
                ids[1], ids[-2] = self.c["vocab"] - 1, 0
        return found

    def agree(self, got, want, what):
        """Two right engines are at most a quarter of the bound apart."""
        moved = fw.moved(got, want)
        self.apart = max(self.apart, moved)
        if not moved <= BOUND / 4:
            raise Refused(f"{what} are {moved / BOUND:.2f} bounds apart, a quarter is allowed")

    def logits_cases(self, loaded):
        prompts = self.prompts()
        fault = models.complaint(models.measure(self.c, self.weights, prompts))
        if fault:
            raise Refused(fault)
        cases = []
        for ids in prompts:
            with_hidden = len(ids) == self.spec["hidden"]
            logits, hidden = loaded[0].once(ids, with_hidden)
            own_hidden, own = fw.forward(self.c, self.weights, ids, f16_kv=True)
            self.agree(logits, own, "the reference engine and the float64 forward")
            for other in loaded[1:]:
                second, second_hidden = other.once(ids, with_hidden)
                self.agree(second, logits, "the two engines")
                if with_hidden:
                    self.agree(second_hidden, hidden, "the two engines' hidden values")
            case = {"id": f"{self.name}-{len(ids)}",
                    "comment": f"{len(ids)} tokens, drawing {self.number}", "flags": [],
                    "model": self.path, "prompt": ids, "logits": vectors.f32list(logits)}
            if with_hidden:
                self.agree(hidden, own_hidden.reshape(-1), "hidden values and the float64 forward")
                case["hidden"] = vectors.f32list(hidden)
            cases.append(case)
        return cases

    def greedy_case(self, loaded, ids):
        """A case, or None where a step is too near to a tie."""
        rows = loaded[0].steps(ids, lambda _, row: int(row.argmax()))
        best = [np.argsort(-row, kind="stable")[:5] for row in rows]
        peaks = [np.abs(row).max() for row in rows]
        ties = [step for step, row in enumerate(rows)
                if row[best[step][0]] - row[best[step][1]] <= 2 * BOUND * peaks[step]]
        if ties:
            return None
        tokens = [int(b[0]) for b in best]
        for other in loaded[1:]:
            for row, want in zip(other.steps(ids, lambda step, _: tokens[step]), rows):
                self.agree(row, want, "the two engines' steps")
        return {"id": f"{self.name}-{len(ids)}",
                "comment": f"{len(ids)} tokens, then {GREEDY_STEPS} greedy ones", "flags": [],
                "model": self.path, "prompt": ids, "tokens": tokens,
                "top_ids": [b.tolist() for b in best],
                "top_logits": [vectors.f32list(row[b]) for row, b in zip(rows, best)],
                "max_abs": [vectors.f32hex(p) for p in peaks]}

    def greedy_cases(self, loaded):
        cases = []
        for length in self.spec["greedy"]:
            best = None
            for _ in range(GREEDY_CANDIDATES):
                case = self.greedy_case(loaded, self.prompt(length))
                if case and (best is None or len(set(case["tokens"])) > len(set(best["tokens"]))):
                    best = case
                if best and len(set(best["tokens"])) >= DISTINCT_MIN:
                    break
            if best is None:
                raise Refused(f"{GREEDY_CANDIDATES} prompts of {length} tokens have near ties")
            cases.append(best)
        seen = {token for case in cases for token in case["tokens"]}
        if len(seen) < DISTINCT_MIN:
            raise Refused(f"its greedy streams hold {len(seen)} distinct ids only")
        return cases

    def cases(self):
        loaded = [Loaded(engine, self.path) for engine in self.engines]
        try:
            return self.logits_cases(loaded), self.greedy_cases(loaded)
        finally:
            for model in loaded:
                model.free()


def draw_model(out, spec, seed, engines):
    """(cases of logits, of greedy, the largest distance of two engines, drawings)."""
    why = ""
    for number in range(TRIES):
        rng = models_spec.generator_for(seed, "fresh", spec["name"], number)
        drawing = Drawing(out, spec, rng, number, engines)
        try:
            logits, greedy = drawing.cases()
            return logits, greedy, drawing.apart, number + 1
        except Refused as refused:
            why = refused
    leave(EXIT_GOLDEN, f"{TRIES} drawings of {spec['name']} were refused, the last one because "
          f"{why}; this is not the engine's fault")


# -------------------------------------------------------------------------------------- suites

def run_generator(script, seed, out):
    """None, or (exit code, why). A generator stops where a drawing would prove nothing: then
    another seed is taken."""
    for attempt in range(4):
        own = zlib.crc32(f"{script} {seed} {attempt}".encode()) + 2    # 1 is the published seed
        done = subprocess.run(
            [sys.executable, "-EsSB", str(GEN / script), "--seed", str(own), "--out", str(out)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = done.stderr.strip().split("\n")
        if done.returncode != 1 or said[0].startswith("Traceback"):
            break
    if done.returncode == 0:
        return None
    code = EXIT_GOLDEN if done.returncode == 1 and attempt == 3 else EXIT_INTERNAL
    return code, f"goldens/gen/{script} ended with {done.returncode}: {said[-1]}"


def write_suite(out, name, suite, seed, reference, groups, derivation):
    vectors.write_vectors(
        str(out / name), suite,
        vectors.generator_info("fresh/fresh.py", f"python3 conformance/fresh/fresh.py --seed {seed}",
                               libraries={"numpy": np.__version__}),
        reference, vectors.max_abs_tolerance(BOUND, derivation), {}, groups)


def specs_of(suites, case):
    """The models that the suites need: for one case its own, all where no model has a case of that
    name. A model is drawn with both suites whichever is asked, since each may refuse a drawing."""
    specs = models_spec.SPECS + [trained_spec()] if set(MODEL_SUITES) & set(suites) else []
    return [spec for spec in specs if case.startswith(spec["name"] + "-")] or specs


def draw_models(out, seed, engines, suites, case):
    """The suites of the models; what is worth telling."""
    groups, apart, drawings = {suite: [] for suite in MODEL_SUITES}, 0.0, 0
    for spec in specs_of(suites, case):
        *cases, own_apart, n = draw_model(out, spec, seed, engines)
        for suite, own in zip(MODEL_SUITES, cases):
            groups[suite].append({"name": spec["name"], "cases": own})
        apart, drawings = max(apart, own_apart), drawings + n
    models.write_bigram(zlib.crc32(f"bigram {seed}".encode()), out)
    hello = engines[0].hello
    reference = {"name": "the reference engine of this project, in a process of its own",
                 "version": f"{hello['name']} {hello['version']}", "dtype": "float32",
                 "device": "cpu"}
    derivation = (
        f"forward#tolerance. The float64 forward{' and the second engine' if engines[1:] else ''} "
        f"came within {apart / BOUND:.3f} bounds of the reference; a quarter is allowed.")
    for suite in set(MODEL_SUITES) & set(suites):
        write_suite(out, f"{suite}.vectors.json", suite, seed, reference, groups[suite], derivation)
    if not drawings:
        return {"models": 1}    # the bigram, of which the judge itself knows what is right
    return {"models": len(groups["logits"]) + 1, "drawings": drawings, "second": len(engines) > 1,
            "apart": round(apart / BOUND, 4), "reference": reference["version"]}


def draw(args, engines):
    """The folder, or the part of it that is asked for; what is worth telling."""
    suites = args.suites.split(",")
    with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
        running = [pool.submit(run_generator, script, args.seed, args.out)
                   for suite, script in SCRIPTS.items() if suite in suites]
        told = draw_models(args.out, args.seed, engines, suites, args.case)
        for fault in [future.result() for future in running]:
            if fault:
                leave(*fault)
    for engine in engines:
        engine.end()
    manifest.ORIGINS["models/"] = ("fresh/fresh.py", True)
    del manifest.ORIGINS["models/kjv/"]
    manifest.main(["--seed", str(args.seed), "--out", str(args.out)])
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--second")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--suites", default=",".join((*SCRIPTS, *MODEL_SUITES)))
    parser.add_argument("--case", default="")
    args = parser.parse_args()
    args.out.mkdir(mode=0o700, exist_ok=True)
    # Whatever an engine writes where it stands is no golden, so it does not stand in the folder.
    with tempfile.TemporaryDirectory(dir=args.out.parent) as aside:
        engines = [Engine(os.path.abspath(args.host), os.path.abspath(library), aside, args.out.absolute())
                   for library in (args.engine, args.second) if library]
        with contextlib.redirect_stdout(io.StringIO()):    # the generators' words
            told = draw(args, engines)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
