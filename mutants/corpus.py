"""The fuzzing corpora as one more column of the matrix: which wrong parsers does replaying them alone catch?

A mutant of a parser's source is put into the place of the engine (`fuzz.py replay --lib`), and each seed of the
parsers' targets must have the verdict of its manifest and agree with the second implementation. What a seed says is no
verdict on the mutant: the 24 tests must catch it anyway. Kept like cells, by the hash of what decides it.

Standard library only.
"""
import json
import os
import subprocess
import threading

from catalog import ROOT, read, sha

PARSERS = ("json", "model_layout", "model_tensors", "model_config", "model_checkpoint", "model_weights", "model_head",
           "model_sort", "kv_envelope")
FILES = {f"engine/src/{name}.c" for name in PARSERS}
TARGETS = ("safetensors", "index", "config", "checkpoint", "kv_import")
FUZZ = os.path.join(ROOT, "fuzz", "fuzz.py")
N_SEEDS = 3  # that a cell names


class Broken(Exception):
    """The replay itself failed."""


def _sources():
    folder = os.path.join(ROOT, "fuzz")
    names = sorted(name for name in os.listdir(folder) if name.endswith((".c", ".h", ".py", ".mk")))
    return [read(os.path.join(folder, name)) for name in names]


class Corpus:
    def __init__(self, cache):
        self.cache = os.path.join(cache, "corpus")
        manifest = read(os.path.join(ROOT, "fuzz", "corpus", "MANIFEST.tsv"))
        self.lock, self.is_built = threading.Lock(), False
        self.version = sha(manifest, *_sources(), " ".join(TARGETS))

    def cell(self, code, library):
        """{"class": pass or fail, "by": {target: seeds that say so}, "seeds": some of them} of an engine."""
        path = os.path.join(self.cache, sha(code, self.version) + ".json")
        try:
            return json.loads(read(path))
        except (OSError, ValueError):
            pass
        cell = self._replayed(library())
        os.makedirs(self.cache, exist_ok=True)
        part = f"{path}.{os.getpid()}"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(cell, file, sort_keys=True)
        os.replace(part, path)
        return cell

    def _build(self):
        """Once, and not by two threads at a time."""
        with self.lock:
            if not self.is_built:
                subprocess.run(["make", "-s", "VARIANT=release", "build/release/bin/fuzz-replay"], cwd=ROOT,
                               check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
                self.is_built = True

    def _replayed(self, library):
        self._build()
        done = subprocess.run(["/usr/bin/python3", FUZZ, "replay", *TARGETS, "--lib", library, "--json"], cwd=ROOT,
                              text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        try:
            wrong = json.loads(done.stdout)
        except ValueError:
            wrong = None
        if done.returncode not in (0, 1) or not isinstance(wrong, dict):
            raise Broken(f"fuzz.py replay ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        by = {}
        for seed in wrong:
            by[seed.split("/")[0]] = by.get(seed.split("/")[0], 0) + 1
        return {"class": "fail" if wrong else "pass", "by": by,
                "seeds": [f"{seed}: {wrong[seed]}" for seed in sorted(wrong)[:N_SEEDS]]}
