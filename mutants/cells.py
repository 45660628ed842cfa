"""A cell is one engine judged by one test: run by `ol check`, kept by the hash of everything that decides it.

That is the code of the engine, the test's own sources (those that it is linked with), the judge around it, the goldens
of its suites, the models, strict or not, and the machine's instruction sets. So a change of one test, one golden or one
engine source redoes only what it must.

The judge runs as for anybody: two processes, the goldens out of reach, the verdict from a process without engine code.

Standard library only.
"""
import json
import os
import platform
import re
import subprocess
import tempfile

from catalog import ROOT, judge_catalog, read, sha

VERSION = "1"  # of what a cell holds
LEAST_LIMIT_S = 2.0
CPU_FACTOR = 20
SECOND_LOOK = 15  # times the limit, before a timeout is believed
KILLS = ("fail", "refused-wrong")


class JudgeBroken(Exception):
    """`ol` itself could not judge: its exit code and words."""

    def __init__(self, code, words):
        super().__init__(words)
        self.code = code


def undefined_and_defined(path):
    out = subprocess.run(["nm", "-P", path], text=True, stdout=subprocess.PIPE, check=True).stdout
    undefined, defined = set(), set()
    for line in out.splitlines():
        name, kind = line.split()[:2]
        (undefined if kind in "Uw" else defined if kind.isupper() else set()).add(name)
    return undefined, defined


class TestSources:
    """Which sources of conformance/tests a test consists of, by following the symbols of its objects."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "obj", "conformance", "tests")
        self.uses, self.home = {}, {}
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".o") and name != "tests.o":
                undefined, defined = undefined_and_defined(os.path.join(self.folder, name))
                self.uses[name] = undefined
                self.home.update(dict.fromkeys(defined, name))

    def of(self, test):
        todo, seen = [self.home["test_" + test]], set()
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += [self.home[s] for s in self.uses[name] if s in self.home and s != "test_run_parts"]
        files = set()
        for name in seen:
            rule = read(os.path.join(self.folder, name[:-2] + ".d")).replace("\\\n", " ")
            files |= set(re.findall(r"conformance/[\w/]+\.[ch]", rule.split("\n")[0]))
        return sorted(files | {"conformance/tests/tests.c"})


def _tree(*folders):
    texts = []
    for folder in folders:
        for name in sorted(os.listdir(os.path.join(ROOT, folder))):
            if name.endswith((".c", ".h")):
                texts += [name, read(os.path.join(ROOT, folder, name))]
    return sha(*texts)


def machine():
    """What of this machine an engine's bits may depend on."""
    try:
        flags = re.search(r"^(?:flags|Features)\s*:(.*)$", read("/proc/cpuinfo"), re.M)
    except OSError:
        flags = None
    wanted = {"avx2", "fma", "f16c", "avx512f", "asimd"}
    found = sorted(wanted & set(flags[1].split())) if flags else []
    return " ".join([platform.system(), platform.machine(), *platform.libc_ver(), *found])


class Judge:
    """`ol` and what it depends on."""

    def __init__(self, folder, cache, wrap=()):
        self.ol = os.path.join(folder, "bin", "ol")
        self.cache = os.path.join(cache, "cells")
        self.wrap = list(wrap)
        self.catalog = {test["name"]: test for test in judge_catalog()}
        self.tests = list(self.catalog)
        self.limits = {}  # test -> seconds, from the baseline
        manifest = json.loads(read(os.path.join(ROOT, "goldens", "MANIFEST.json")))["files"]
        self.goldens = {}
        for file in manifest:
            if file["path"].endswith(".json") and "/" not in file["path"]:
                text = read(os.path.join(ROOT, "goldens", file["path"]))
                suite = re.search(r'"suite"\s*:\s*"(\w+)"', text)
                self.goldens[suite[1] if suite else file["path"]] = file["sha256"]
        models = [f"{f['path']} {f['sha256']}" for f in manifest if f["path"].startswith("models/")]
        shared = sha(VERSION, _tree("conformance/runner", "conformance/host"), *models, machine())
        sources = TestSources(folder)
        self.keys = {name: self._test_key(test, sources.of(name), shared) for name, test in self.catalog.items()}

    def _test_key(self, test, files, shared):
        goldens = [f"{suite} {self.goldens.get(suite, '')}" for suite in test["suites"]]
        checks = json.dumps([[c["id"], c["strict"]] for c in test["checks"]])
        texts = [read(os.path.join(ROOT, name)) for name in files]
        return sha(shared, test["name"], checks, *goldens, *texts)

    def version(self):
        return {"judge": sha(*[self.keys[name] for name in self.tests]),
                "goldens": sha(*[f"{k} {v}" for k, v in sorted(self.goldens.items())])}

    # ------------------------------------------------------------ running

    def run(self, library, tests, strict=True, jobs=1, timeout=None):
        """Judge a library by some tests: test -> the line of the log."""
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log.jsonl")
            command = [*self.wrap, self.ol, "check", "L10.1", "--root", ROOT, "--engine", library, "-j", str(jobs),
                       "--no-hints", "--report", f"jsonl:{log}", *(["--strict"] if strict else []),
                       *(["--timeout", f"{timeout:g}"] if timeout else [])]
            for test in tests:
                command += ["--only", test]
            done = subprocess.run(command, cwd=ROOT, text=True, errors="replace", stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if done.returncode not in (0, 1, 3, 70):
                raise JudgeBroken(done.returncode, done.stdout.strip()[-2000:])
            try:
                lines = [json.loads(line) for line in read(log).splitlines()]
            except (OSError, ValueError) as error:
                raise JudgeBroken(70, f"no log: {error}\n{done.stdout[-2000:]}") from error
        records = {line["name"]: line for line in lines if line.get("kind") == "test"}
        if done.returncode == 3 or set(records) != set(tests) or lines[-1].get("kind") != "footer":
            raise JudgeBroken(done.returncode or 70, f"the log is not complete\n{done.stdout[-2000:]}")
        return records

    @staticmethod
    def cell(record):
        """What of a test line lasts: nothing of time, place or replay."""
        cls = "fail" if record["class"] == "blocked" else record["class"]  # only failures are blocked
        failed = [{key: check[key] for key in ("id", "class", "done", "failed", "first") if key in check}
                  for check in record["checks"] if check["state"] == "failed"]
        return {"class": cls, "failed": failed,
                "not_reached": [c["id"] for c in record["checks"] if c["state"] == "not-reached"],
                "held": sum(1 for c in record["checks"] if c["state"] == "held"),
                "why": "" if cls in ("pass", *KILLS) else (record["cause"] or {}).get("rationale", ""),
                "check": (record["cause"] or {}).get("check", "") if cls in KILLS else ""}

    def baseline(self, library, tests, strict, jobs):
        """Judge the unmutated engine twice. The two runs, and the tests' limits from the first."""
        runs = [self.run(library, tests, strict, jobs) for _ in range(2)]
        for name, record in runs[0].items():
            cpu, wall = record["cpu_ms"] / 1000, record["wall_ms"] / 1000
            self.limits[name] = max(LEAST_LIMIT_S, CPU_FACTOR * cpu, 4 * wall)
        return [{name: self.cell(record) for name, record in run.items()} for run in runs]

    # ------------------------------------------------------------ the cache

    def _path(self, code, test, strict):
        key = sha(code, self.keys[test], "strict" if strict else "plain")
        return os.path.join(self.cache, key[:2], key + ".json")

    def cached(self, code, test, strict):
        try:
            return json.loads(read(self._path(code, test, strict)))
        except (OSError, ValueError):
            return None

    def keep(self, code, test, strict, cell):
        path = self._path(code, test, strict)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = f"{path}.{os.getpid()}"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(cell, file, sort_keys=True)
        os.replace(part, path)

    def cells(self, code, library, tests, strict=True, fresh=False):
        """Cells of one engine; library() links it when some are not kept yet. test -> cell, and how many were run."""
        found = {} if fresh else {test: self.cached(code, test, strict) for test in tests}
        missing = [test for test in tests if found.get(test) is None]
        if missing:
            path, idle = library(), set()  # idle: those that had not even half of their limit of a processor
            for group in self._groups(missing):
                limit = max(self.limits.get(test, LEAST_LIMIT_S) for test in group)
                for test, record in self.run(path, group, strict, 1, limit).items():
                    found[test] = self.cell(record)
                    idle |= {test} if record["cpu_ms"] < 500 * limit else set()
            for test in missing:
                if found[test]["class"] == "timeout" and test in idle:  # a busy machine is no verdict
                    limit = max(SECOND_LOOK * LEAST_LIMIT_S, self.limits.get(test, 0))
                    found[test] = self.cell(self.run(path, [test], strict, 1, limit)[test])
                self.keep(code, test, strict, found[test])
        return {test: found[test] for test in tests}, len(missing)

    def _groups(self, tests):
        """Tests that share a limit go into one run of the judge."""
        short = [t for t in tests if self.limits.get(t, LEAST_LIMIT_S) <= 2 * LEAST_LIMIT_S]
        return [short] * bool(short) + [[t] for t in tests if t not in short]
