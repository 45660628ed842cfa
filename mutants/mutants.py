#!/usr/bin/python3
"""Judge the named wrong engines: each must be caught by its named test, through a check that fails.

  mutants.py [ID...|named|probes|all] [--matrix] [-j N] [--shard K/N] [--report FORMAT:PATH]...
  mutants.py merge SHARD.json... [--report FORMAT:PATH]...
  mutants.py refresh [ID...]          move the hunks of patches whose lines only moved
  mutants.py write [ID...] [--check]  from a whole matrix, or their rows of it: mutants/fingerprints.json and
                                      conformance/proofs.json
  mutants.py list                     ids, titles, killers
  mutants.py --operators [FILE...]    ordinary mutations instead of named ones: operators.py

First the unmutated engine is judged twice; a failure or a difference ends the run (exit 7). Without --matrix a mutant
meets its named test, and the others only when that one let it pass; with --matrix it meets all 24, and no cell is left
out. Cells are kept below build/mutants/ by the hash of what decides them. FORMAT is text, json, html or stryker.

  --corpus         replay the fuzzing corpora on the wrong parsers, too: one more column (corpus.py)
  --fresh          take no cell from the cache
  --plain          without --strict, as a stranger's engine is judged (for fingerprints)
  --build DIR      another build than build/release
  --cache DIR      another place for what is kept than build/mutants
  --catalog DIR    another folder of mutants than mutants/
  --wrap COMMAND   run ol under a command

Exit codes: 0 all killed by their tests; 2 usage; 4 nothing selected; 5 catalogue or patch broken; 6 a mutant with any
other end; 7 baseline red or not repeatable; 70 the judge failed.

Standard library only.
"""
import argparse
import concurrent.futures
import difflib
import os
import shlex
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import catalog  # noqa: E402
import corpus  # noqa: E402
import fingerprint  # noqa: E402
import operators  # noqa: E402
import report  # noqa: E402
import verdict  # noqa: E402
from build import Build, Unbuildable  # noqa: E402
from cells import Judge, JudgeBroken, machine  # noqa: E402

FORMATS = ("text", "json", "html", "stryker")


class Stop(Exception):
    """End the run with an exit code and a sentence."""

    def __init__(self, code, words):
        super().__init__(words)
        self.code = code


# ---------------------------------------------------------------- selection


def select(mutants, words):
    """The mutants that the words name, in the order of the catalogue."""
    groups = {"all": lambda m: True, "named": lambda m: not m.is_probe, "probes": lambda m: m.is_probe}
    chosen = set()
    for word in words or ["all"]:
        found = {m.id for m in mutants if groups.get(word, lambda m, w=word: m.id == w)(m)}
        if not found:
            near = difflib.get_close_matches(word, [m.id for m in mutants] + list(groups), 3, 0.3)
            raise Stop(4, f"there is no mutant {word}; the nearest: {', '.join(near) or 'none'}")
        chosen |= found
    return [m for m in mutants if m.id in chosen]


def parse_shard(text):
    try:
        k, n = (int(part) for part in text.split("/"))
    except ValueError:
        k = n = 0
    if not 1 <= k <= n:
        raise Stop(2, f"--shard takes K/N with 1 <= K <= N, not {text}")
    return k, n


# ---------------------------------------------------------------- one mutant


class Runner:
    def __init__(self, build, judge, options):
        self.build, self.judge, self.options = build, judge, options
        self.corpus = corpus.Corpus(options.cache) if options.corpus else None
        self.strict = not options.plain
        self.has = set(machine().split())
        self.place = tempfile.TemporaryDirectory(prefix="mutants-")  # goes with the runner, whatever ends the run
        self.folder = self.place.name
        self.n_run = self.n_kept = 0
        self.lock = threading.Lock()

    def one(self, mutant):
        """The row of one mutant in the matrix."""
        row = {"id": mutant.id, "file": mutant.file, "line": mutant.line, "killer": mutant.killer,
               "checks": mutant.checks, "cells": {}}
        try:
            source = catalog.read(os.path.join(catalog.ROOT, mutant.file))
            text = mutant.patch.apply(source)
        except (catalog.Stale, OSError) as stale:
            return {**row, **self._end("patch-stale", str(stale))}
        try:
            made, digest = self.build.object(mutant.file, text)
        except Unbuildable as error:
            return {**row, **self._end("does-not-build", str(error))}
        if digest == self.build.objects[mutant.file][1]:
            return {**row, **self._end("same-object", "the patch changes nothing that is compiled")}
        return {**row, **self._judged(mutant, made, digest)}

    @staticmethod
    def _end(word, why):
        return {"verdict": word, "check": "", "class": "", "got": why.splitlines()[0] if why else "", "wanted": "",
                "why": why}

    def _judged(self, mutant, made, digest):
        code = self.build.code(mutant.file, digest)
        path = os.path.join(self.folder, mutant.id + ".so")

        def library():
            return self.build.library(path, mutant.file, made)
        try:
            others = [test for test in self.judge.tests if test != mutant.killer]
            whole = self.options.matrix and (self.options.everything or not mutant.is_probe)
            cells = self._cells(code, library, [mutant.killer] + (others if whole else []))
            result = verdict.judge(mutant, cells)
            if result is None:
                cells.update(self._cells(code, library, others))
                result = verdict.judge(mutant, cells)
            if self.corpus and mutant.file in corpus.FILES:
                result["corpus"] = self.corpus.cell(code, library)
        finally:
            if os.path.exists(path):
                os.unlink(path)
        if mutant.needs and mutant.needs not in self.has and result["verdict"] != verdict.GOOD:
            result.update(verdict="needs-" + mutant.needs)
        order = {name: i for i, name in enumerate(self.judge.tests)}
        return {**result, "cells": {name: cells[name] for name in sorted(cells, key=order.get)}}

    def _cells(self, code, library, tests):
        cells, n_run = self.judge.cells(code, library, tests, self.strict, self.options.fresh)
        with self.lock:
            self.n_run += n_run
            self.n_kept += len(tests) - n_run
        return cells


# ---------------------------------------------------------------- the run


def check_baseline(runs, tests):
    """Red or not repeatable: exit 7."""
    for name in tests:
        for run in runs:
            cell = run[name]
            if cell["class"] != "pass":
                what = cell["check"] or cell["why"]
                raise Stop(7, f"the unmutated engine does not pass {name}: {cell['class']} {what}")
        if runs[0][name] != runs[1][name]:
            raise Stop(7, f"two runs of the unmutated engine differ in {name}")


def run(options):
    mutants = select(catalog.load(options.catalog), options.ids)
    k, n = parse_shard(options.shard)
    mine = mutants[k - 1::n]
    try:
        build = Build(options.build, options.cache)
        judge = Judge(options.build, options.cache, shlex.split(options.wrap))
    except (FileNotFoundError, KeyError) as missing:
        raise Stop(70, f"the engine and the judge must be built first (make all): {missing}") from missing
    runner = Runner(build, judge, options)
    begin = time.monotonic()
    code = build.baseline()
    library = build.library(os.path.join(runner.folder, "baseline.so"))
    tests = judge.tests if options.matrix else [t for t in judge.tests if t in {m.killer for m in mutants}]
    runs = judge.baseline(library, tests, runner.strict, options.jobs)
    check_baseline(runs, tests)
    for test, cell in runs[0].items():
        judge.keep(code, test, runner.strict, cell)
    spent, rows = {}, []
    report.progress(f"baseline: {len(tests)} tests pass twice ({time.monotonic() - begin:.0f} s)")

    def timed(mutant):
        start = time.monotonic()
        row = runner.one(mutant)
        spent[mutant.id] = round(time.monotonic() - start, 3)
        return row
    if runner.corpus and runner.corpus.cell(code, lambda: library)["class"] != "pass":
        raise Stop(7, "the unmutated engine does not pass the corpora: ol fuzz replay")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done, row in enumerate(pool.map(timed, mine), 1):
            rows.append(row)
            report.progress(f"[{done}/{len(mine)}] {row['id']} {row['verdict']}")
    runner.place.cleanup()
    version = {"engine": code, **judge.version(), "machine": machine(),
               "corpus": runner.corpus.version if runner.corpus else None,
               "mutants": catalog.sha(*[m.id + m.patch.text + ",".join(m.checks) for m in mutants])}
    return {
        "schema": "ol.matrix/1",
        "version": version,
        "mode": {"matrix": options.matrix, "strict": runner.strict, "selection": [m.id for m in mutants]},
        "shard": {"k": k, "n": n},
        "tests": judge.tests,
        "baseline": {test: runs[0][test]["held"] for test in tests},
        "mutants": rows,
        "times": {"wall_s": round(time.monotonic() - begin, 1), "cells_run": runner.n_run,
                  "cells_kept": runner.n_kept, "mutants_s": {i: spent[i] for i in sorted(spent)}},
    }


def finish(matrix, options):
    """Reports and the exit code of a matrix."""
    by_id = {m.id: m for m in catalog.load(options.catalog)}
    reports = options.report or []
    for item in reports:
        kind, _, path = item.partition(":")
        if kind not in FORMATS or (not path and kind != "text"):
            raise Stop(2, f"--report takes {' or '.join(f + ':PATH' for f in FORMATS)}, not {item}")
    for item in reports:
        kind, _, path = item.partition(":")
        report.write(kind, path, matrix, by_id)
    if not any(item.partition(":")[0] == "text" for item in reports):
        report.write("text", "", matrix, by_id)
    code = verdict.exit_code(matrix["mutants"])
    looks = matrix["mode"]["strict"] and options.catalog == catalog.HERE
    for words in fingerprint.stale(matrix, by_id) if looks else []:
        print(f"ol mutants: fingerprints.json is stale: {words}")
        code = code or 6
    return code


# ---------------------------------------------------------------- other commands


def refresh(options, words):
    """Write patches anew whose hunks fit elsewhere, at exactly one place each."""
    n_moved = 0
    for mutant in select(catalog.load(options.catalog), words):
        source = catalog.read(os.path.join(catalog.ROOT, mutant.file))
        try:
            mutant.patch.apply(source)
            continue
        except catalog.Stale:
            pass
        try:
            text = mutant.patch.moved(source)
        except catalog.Stale as stale:
            print(f"{mutant.id}: {stale}")
            continue
        with open(os.path.join(catalog.ROOT, mutant.patch_path), "w", encoding="utf-8") as file:
            file.write(text)
        print(f"{mutant.id}: moved")
        n_moved += 1
    print(f"{n_moved} patches moved")
    return 0


def write(options, words):
    """Make the fingerprints and the proofs anew, of some mutants or of all; with --check, only say whether they are
    what they would be."""
    by_id = {m.id: m for m in catalog.load(options.catalog)}
    options.matrix, options.ids = True, words or ["all"]
    strict = run(options)
    code = verdict.exit_code(strict["mutants"])
    if code:
        report.write("text", "", strict, by_id)
        return code
    options.plain, options.ids = True, [row["id"] for row in strict["mutants"] if not by_id[row["id"]].is_probe]
    plain = run(options) if options.ids else {"mutants": []}
    report.progress("")
    made = [(fingerprint.PATH, fingerprint.fingerprints(plain, by_id), "mutants"),
            (fingerprint.PROOFS, fingerprint.proofs(strict), "engines")]
    for path, data, key in made:
        text = fingerprint.dumps(fingerprint.beside(path, data, key, by_id) if words else data, key)
        name = os.path.relpath(path, catalog.ROOT)
        same = os.path.exists(path) and catalog.read(path) == text
        print(f"{name}: {'as it was' if same else 'stale' if options.check else 'written'}")
        if not same and options.check:
            code = 6
        elif not same:
            with open(path + ".part", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(path + ".part", path)
    return code


def list_mutants(options, words):
    for mutant in select(catalog.load(options.catalog), words):
        print(f"{mutant.id:5} {mutant.killer:48} {mutant.row['title']}")
    return 0


def parser():
    p = argparse.ArgumentParser(prog="ol mutants", add_help=True, description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ids", nargs="*")
    p.add_argument("--matrix", action="store_true")
    p.add_argument("--everything", action="store_true", help="with --matrix: the probes meet all tests, too")
    p.add_argument("-j", dest="jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--shard", default="1/1")
    p.add_argument("--report", action="append")
    p.add_argument("--corpus", action="store_true")
    p.add_argument("--fresh", action="store_true")
    p.add_argument("--plain", action="store_true")
    p.add_argument("--check", action="store_true")
    p.add_argument("--build", default=os.path.join(catalog.ROOT, "build", "release"))
    p.add_argument("--cache", default=os.path.join(catalog.ROOT, "build", "mutants"))
    p.add_argument("--catalog", default=catalog.HERE)
    p.add_argument("--wrap", default="")
    return p


def main(argv):
    if "--operators" in argv:
        return operators.main([word for word in argv if word != "--operators"])
    options = parser().parse_args(argv)
    command = options.ids[0] if options.ids else ""
    try:
        if command == "refresh":
            return refresh(options, options.ids[1:])
        if command == "list":
            return list_mutants(options, options.ids[1:])
        if command == "merge":
            return finish(report.merge(options.ids[1:]), options)
        if command == "write":
            return write(options, options.ids[1:])
        return finish(run(options), options)
    except Stop as stop:
        print(f"ol mutants: {stop}", file=sys.stderr)
        return stop.code
    except report.Refused as refused:
        print(f"ol mutants: {refused}", file=sys.stderr)
        return 2
    except catalog.Broken as broken:
        print(f"ol mutants: {broken}", file=sys.stderr)
        return 5
    except corpus.Broken as broken:
        print(f"ol mutants: {broken}", file=sys.stderr)
        return 70
    except JudgeBroken as broken:
        print(f"ol mutants: the judge ended with {broken.code}: {broken}", file=sys.stderr)
        return broken.code if broken.code in (2, 4, 5) else 70


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
