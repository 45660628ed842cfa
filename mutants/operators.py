#!/usr/bin/python3
"""Score the 24 tests by ordinary mutations: operators, relations, constants and statements of the engine's source.

  mutants.py --operators [FILE...] [-j N] [--sample N] [--seed S] [--fuzz SECONDS] [--report json:PATH] [--after REPORT]

The mutants are those of PyPI's universalmutator, held to one version and hash and put into a venv below build/mutants/;
it works on the text of a line, so it needs no front end for C, and its rules are a page. Nothing of it is part of
`make check`. Each mutant is known by the file, the function, the line of the source and what becomes of it. Their order
is that of the hashes of that with the seed: a change elsewhere in a file leaves the sample as it is. From that order are
taken the first N (150) of each file that compile without warnings, to another object than the engine's own and than
that of an earlier one; the others are counted. Each meets the 24 tests until one does not pass. The test that saw a
mutant in an earlier run (build/mutants/killers.json, or the report after --after) is asked first and alone. A survivor
meets the engine's own tests under ASan (survivors.py); the score is of the 24 tests, a column beside it of both.

operators.ignore.json says of mutants why none of the 24 tests sees them:
  equivalent   no allowed call can tell it from the engine; left out of the score
  unit         the engine's own tests see it, and must; counted as survived
  standing     a call could, and no test can be asked to make it; counted as survived
An entry whose line is no longer in the source is stale; one whose mutant is caught after all, or by the engine's own
tests and not called unit, is wrong. With --fuzz, they meet those called equivalent, too, and each mutant that nothing
saw is fuzzed for so long against the second implementation (needs clang), one that is called equivalent for a tenth of
that; it must not be found out.
FILE is a source of engine/src or a module; without one, all of sample, pcg32, quant, kv and model, which must each have
90 % of their mutants caught.

Exit codes: 0; 2 usage; 4 no such file; 6 a module below 90 %, a survivor without a reason, or an entry that is stale or
wrong; 7 baseline red; 70 no venv or no variant asan, or the judge failed. Standard library only, but for the tool.
"""
import argparse
import collections
import concurrent.futures
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import report  # noqa: E402
from build import Build, Unbuildable  # noqa: E402
from catalog import ROOT, read, sha  # noqa: E402
from cells import Judge, JudgeBroken  # noqa: E402
from survivors import Fuzzer, OwnTests, Stop, module, stem  # noqa: E402

TOOL = "universalmutator==1.14.1"
TOOL_SHA256 = "c2bb39fd143c22d905dd3f8c5d151308f5b7726887a1b3429f894b0e1ebf3b01"
RULES = ["universal.rules", "c_like.rules", "c.rules"]
IGNORE = os.path.join(HERE, "operators.ignore.json")
MODULES = ("sample", "pcg32", "quant", "kv", "model")  # those that are held to LEAST_SCORE
LEAST_SCORE = 0.9
SAMPLE, SEED = 150, 1
DETECTED = ("killed", "crash", "timeout", "resource", "no-result", "integrity")
# The beginnings of tests that are likely to see a module's mistakes; "|" ends a group that one run of the judge takes.
FIRST = {
    "sample": "hand_ top_p penalties greedy_takes seeded | sampler",
    "pcg32": "pcg32 hand_ seeded",
    "quant": "int4_hand f16 q4_linear int4_runner",
    "kv": "kv_pool_rejects kv_pool_evicts run_once | kv_pool_exports | kv_pool_bounds",
    "kv_envelope": "kv_pool_exports",
    "model": "bigram int4_runner tiny_llama_logits | config | safetensors",
    "model_config": "bigram | config",
    "model_layout": "bigram | safetensors",
    "model_tensors": "bigram | safetensors",
}
LATE = ("safetensors", "kv_pool_bounds", "sampler", "batched", "config")  # those that take long, each by itself
ASK = """
import contextlib, json, sys
from universalmutator import mutator
with contextlib.redirect_stdout(sys.stderr):
    found = mutator.mutants_regexp(sys.stdin.readlines(), sys.argv[1:], ignorePatterns=[], ignoreStringOnly=True)
json.dump([[m[0], m[1].rstrip(), m[2][0].split(" ==> ")[0]] for m in found], sys.stdout)
"""


# ---------------------------------------------------------------- the mutants


def bare(source):
    """The text without comments, its lines and strings kept: the tool passes over lines that hold a comment, and takes
    `{-` for the beginning of one."""
    def blank(match):
        word = match[0]
        return word if word[0] in "\"'" else re.sub(r"[^\n]+", "", word)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', blank, source, flags=re.S)
    return re.sub(r"[ \t]+$", "", text.replace("{-", "{ -"), flags=re.M)


def functions(source):
    """For each line the function that it stands in; "" between them."""
    names, at, open_ = [], "", False
    for line in source.split("\n"):
        head = re.match(r"(?:[\w*]+[ *]+)+\**(\w+)\(", line)
        if head and not line.endswith(";"):
            at, open_ = head[1], True
        names.append(at if open_ else "")
        if line.startswith("}"):
            at, open_ = "", False
    return names


class Mutant:
    """One changed line: where, what it was, what it becomes. Lines that stand twice in a function share an id."""

    def __init__(self, file, number, function, line, text, rule):
        self.file, self.number, self.function, self.rule = file, number, function, rule
        self.line, self.text, self.raw = line.strip(), text.strip(), text
        self.id = sha(self.file, self.function, self.line, self.text)[:8]
        self.made = self.digest = None

    def rank(self, seed):
        return hashlib.sha256(f"{seed} {self.id}".encode()).digest()

    def source(self, lines):
        return "\n".join(lines[:self.number - 1] + [self.raw] + lines[self.number:])


def python(cache):
    """The venv's interpreter, with the tool in it."""
    folder = os.path.join(cache, "universalmutator-" + TOOL.partition("==")[2])
    interpreter = os.path.join(folder, "bin", "python")
    wanted = os.path.join(folder, "wanted.txt")
    if not os.path.exists(wanted):
        commands = [[sys.executable, "-m", "venv", folder],
                    [interpreter, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "-r", wanted + ".part"]]
        os.makedirs(folder, exist_ok=True)
        with open(wanted + ".part", "w", encoding="utf-8") as file:
            file.write(f"{TOOL} --hash=sha256:{TOOL_SHA256}\n")
        for command in commands:
            done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if done.returncode != 0:
                raise Stop(70, f"{TOOL} cannot be put into {folder}: {done.stdout.strip()[-500:]}")
        os.replace(wanted + ".part", wanted)
    return interpreter


def generate(interpreter, file):
    """All mutants of a source, in the order of its lines."""
    source = read(os.path.join(ROOT, file))
    lines, names = bare(source).split("\n"), functions(source)
    done = subprocess.run([interpreter, "-I", "-c", ASK, *RULES], input="\n".join(lines), text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise Stop(70, f"{TOOL}: {done.stderr.strip()[-500:]}")
    found, seen = [], set()
    for number, text, rule in json.loads(done.stdout):
        mutant = Mutant(file, number, names[number - 1], lines[number - 1], text, rule)
        if mutant.text != mutant.line and (number, mutant.text) not in seen:
            seen.add((number, mutant.text))
            found.append(mutant)
    return found, lines


def select(words, sources):
    """The sources that the words name: paths, names of files, modules."""
    chosen = []
    for word in words or MODULES:
        found = [s for s in sources if word in (s, os.path.basename(s), module(s))]
        if not found:
            raise Stop(4, f"there is no {word} below engine/src, neither a source nor a module")
        chosen += [s for s in found if s not in chosen]
    return chosen


# ---------------------------------------------------------------- the ignore list


class Ignored:
    """Reasons, by file, function, line and what becomes of it. A place may share a reason among several mutants."""

    def __init__(self, path, sources):
        self.by_id, self.stale = {}, []
        for entry in json.loads(read(path))["mutants"] if os.path.exists(path) else []:
            keys = {"file", "function", "line", "becomes", "verdict", "reason"}
            if set(entry) != keys or entry["verdict"] not in ("equivalent", "unit", "standing") or len(entry["reason"]) < 20:
                raise Stop(2, f"{os.path.basename(path)}: an entry has {', '.join(sorted(keys))}: {entry}")
            here = sources.get(entry["file"], set())
            if (entry["function"], entry["line"]) not in here:
                self.stale.append(f"{entry['file']}: {entry['function'] or 'outside of functions'}: {entry['line']}")
            for text in entry["becomes"]:
                key = sha(entry["file"], entry["function"], entry["line"], text)[:8]
                self.by_id[key] = (entry["verdict"], entry["reason"])


def places(sources):
    """What an entry may name: of each source the functions with their lines, without comments."""
    found = {}
    for file in sources:
        source = read(os.path.join(ROOT, file))
        found[file] = {(name, line.strip()) for name, line in zip(functions(source), bare(source).split("\n"))}
    return found


# ---------------------------------------------------------------- judging


class Reach:
    """Which tests run which functions, by gcov: one that never enters a function cannot tell its mutants."""

    def __init__(self, code, judge, options):
        path = os.path.join(options.cache, "reach", sha(code, judge.version()["judge"])[:16] + ".json")
        if not os.path.exists(path):
            lines = self.measure(os.path.join(options.cache, "coverage"), options.jobs)
            if sorted(lines) != sorted(judge.tests) or not all(lines.values()):
                raise Stop(70, "no counters came out of some test of the cov variant")
            report.put(path, json.dumps(lines))
        self.lines = json.loads(read(path))
        self.names = {}

    @staticmethod
    def measure(folder, jobs):
        """In a process of its own: coverage.py needs numpy, which this one may be started without."""
        code = "import coverage, json, sys; json.dump(coverage.judged(sys.argv[1], int(sys.argv[2])), sys.stdout)"
        done = subprocess.run([sys.executable, "-c", code, folder, str(jobs)], text=True, check=False,
                              cwd=os.path.join(ROOT, "conformance", "tools"), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise Stop(70, f"what the tests reach cannot be measured: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout)

    def tests(self, file, function):
        """Those that run a line of the function; of the file when the mutant stands in none."""
        if file not in self.names:
            self.names[file] = functions(read(os.path.join(ROOT, file)))
        names = self.names[file]
        return {test for test, files in self.lines.items()
                if any(not function or names[n - 1] == function for n in files.get(file, []))}


class Killers:
    """What saw a mutant the last time: {id: [test of the 24, test of the engine]}. It is asked first, and decides nothing."""

    def __init__(self, path, reports):
        self.path, self.lock = path, threading.Lock()
        try:
            self.known = {row["id"]: [row["test"], (row.get("own") or {}).get("program", "")]
                          for name in reports for part in json.loads(read(name))["files"] for row in part["mutants"]}
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise Stop(2, f"--after takes a report of --operators: {error!r}") from error
        self.known.update(json.loads(read(path)) if os.path.exists(path) else {})

    def of(self, mutant):
        return self.known.get(mutant.id, ["", ""])

    def note(self, mutant, test, own):
        """A mutant that nothing saw keeps what saw it before."""
        with self.lock:
            now = [test or self.of(mutant)[0], own or self.of(mutant)[1]]
            if now != self.of(mutant):
                self.known[mutant.id] = now
                report.put(self.path, json.dumps(self.known, sort_keys=True))


class Scorer:
    def __init__(self, build, judge, reach, options):
        self.build, self.judge, self.reach, self.options = build, judge, reach, options
        self.lock = threading.Lock()
        self.killers = Killers(os.path.join(options.cache, "killers.json"), options.after or [])
        self.own = OwnTests(options.cache, options.jobs)
        self.fuzzer = Fuzzer(options.cache) if options.fuzz else None

    def baseline(self, library):
        """The engine itself must pass, twice alike; the tests' times are those that it took."""
        runs = self.judge.baseline(library, self.judge.tests, True, self.options.jobs)
        for name in self.judge.tests:
            if runs[0][name]["class"] != "pass" or runs[0][name] != runs[1][name]:
                raise Stop(7, f"the unmutated engine does not pass {name} twice alike")

    def order(self, file, reached, first=""):
        """The tests in groups that one run of the judge takes: after each the mutant may be done with."""
        likely = FIRST.get(stem(file)) or FIRST.get(module(file), "")
        groups = [[first]] + [[t for part in group.split() for t in self.judge.tests if t.startswith(part) and t != first]
                              for group in likely.split("|")]
        rest = [t for t in self.judge.tests if not any(t in group for group in groups)]
        groups.append([t for t in rest if not t.startswith(LATE)])
        groups += [[t] for t in rest if t.startswith(LATE)]
        return [group for group in ([t for t in group if t in reached] for group in groups) if group]

    def compile(self, mutant, lines):
        """"" or why it is not judged; its object's hash in the mutant."""
        try:
            mutant.made, mutant.digest = self.build.object(mutant.file, mutant.source(lines))
        except Unbuildable:
            return "unbuildable"
        return "same object" if mutant.digest == self.build.objects[mutant.file][1] else ""

    def sample(self, file, mutants, lines, pool):
        """The first of the order that can be judged, and how many of each other kind came before them."""
        ordered = sorted(mutants, key=lambda m: (m.rank(self.options.seed), m.number))
        counts, chosen, seen = collections.Counter(), [], set()
        step = 4 * self.options.jobs
        for at in range(0, len(ordered), step):
            part = ordered[at:at + step]
            for mutant, why in zip(part, pool.map(lambda m: self.compile(m, lines), part)):
                if len(chosen) == self.options.sample:
                    return chosen, counts
                counts["drawn"] += 1
                why = why or ("twin" if mutant.digest in seen else "")
                if why:
                    counts[why] += 1
                    continue
                seen.add(mutant.digest)
                chosen.append(mutant)
            report.progress(f"{file}: {len(chosen)} of {counts['drawn']} drawn can be judged")
        return chosen, counts

    def judged(self, mutant):
        """{verdict, test, check}: the first test, in the order for the mutant, that does not pass."""
        code = self.build.code(mutant.file, mutant.digest)
        groups = self.order(mutant.file, self.reach.tests(mutant.file, mutant.function), self.killers.of(mutant)[0])
        for group in groups:
            bad = self.first_bad(group, {t: self.judge.cached(code, t, True) for t in group})
            if bad:
                return bad
        with tempfile.TemporaryDirectory(prefix="operators-") as folder:
            library = functools.cache(lambda: self.build.library(os.path.join(folder, "engine.so"), mutant.file, mutant.made))
            for group in groups:
                bad = self.first_bad(group, self.judge.cells(code, library, group)[0])
                if bad:
                    return bad
        return {"verdict": "survived", "test": "", "check": ""}

    @staticmethod
    def first_bad(group, cells):
        for test in group:
            cell = cells[test]
            if cell is not None and cell["class"] != "pass":
                word = "killed" if cell["class"] in ("fail", "refused-wrong") else cell["class"]
                return {"verdict": word, "test": test, "check": cell["check"]}
        return None

    def file(self, interpreter, file, ignored, pool):
        """One row of the table, with its mutants."""
        mutants, lines = generate(interpreter, file)
        chosen, counts = self.sample(file, mutants, lines, pool)
        done, begin = [0], time.monotonic()

        def one(mutant):
            result, own = self.judged(mutant), None
            verdict, reason = ignored.by_id.get(mutant.id, ("", ""))
            # All of them pass an equivalent one, which takes the longest: it is left to the long run, with --fuzz.
            if result["verdict"] == "survived" and (verdict != "equivalent" or self.fuzzer):
                own = result["own"] = self.own.judged(mutant, lines, self.killers.of(mutant)[1])
            self.killers.note(mutant, result["test"], own["program"] if own else "")
            with self.lock:
                done[0] += 1
                each = (time.monotonic() - begin) / done[0]
                report.progress(f"{file}: {done[0]} of {len(chosen)} judged, {each:.1f} s each")
            if self.fuzzer and result["verdict"] == "survived" and not own:
                seconds = self.options.fuzz if verdict != "equivalent" else max(1, self.options.fuzz // 10)
                result["fuzzed"] = self.fuzzer.run(mutant, lines, seconds)
            return {"id": mutant.id, "line": mutant.number, "function": mutant.function, "was": mutant.line,
                    "becomes": mutant.text, "rule": mutant.rule, **result, "ignored": verdict, "reason": reason}
        rows = list(pool.map(one, chosen))
        return {"file": file, "all": len(mutants), **{k: counts[k] for k in ("drawn", "unbuildable", "same object", "twin")},
                "mutants": rows}


# ---------------------------------------------------------------- what came out


def figures(rows):
    """Counts and the score of the mutants of a file or a module."""
    words = collections.Counter(r["verdict"] for r in rows if not r["ignored"] == "equivalent")
    detected = sum(words[word] for word in DETECTED)
    n = sum(words.values())
    own = sum(bool(r.get("own")) for r in rows if r["ignored"] != "equivalent")
    return {"judged": len(rows), "equivalent": len(rows) - n, "killed": words["killed"],
            "ended": detected - words["killed"], "survived": n - detected, "score": detected / n if n else 1.0,
            "own": own, "both": (detected + own) / n if n else 1.0}


def as_table(files):
    head = ("file", "mutants", "drawn", "unbuildable", "same object", "twins", "judged", "killed", "crash or timeout",
            "equivalent", "survived", "score", "engine's tests", "both")
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]

    def add(name, parts):
        rows = [r for part in parts for r in part["mutants"]]
        sums = [sum(p[k] for p in parts) for k in ("all", "drawn", "unbuildable", "same object", "twin")]
        f = figures(rows)
        cells = [name, *sums, f["judged"], f["killed"], f["ended"], f["equivalent"], f["survived"],
                 f"{100 * f['score']:.1f} %", f["own"], f"{100 * f['both']:.1f} %"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    for part in files:
        add(os.path.basename(part["file"]), [part])
    for name in dict.fromkeys(module(p["file"]) for p in files):
        add(f"**{name}**", [p for p in files if module(p["file"]) == name])
    return "\n".join(lines)


def faults(files, ignored, least=LEAST_SCORE):
    """What makes the run end with 6, in words."""
    words = [f"stale: {place}" for place in ignored.stale]
    for name in dict.fromkeys(module(p["file"]) for p in files):
        score = figures([r for p in files if module(p["file"]) == name for r in p["mutants"]])["score"]
        if name in MODULES and score < least:
            words.append(f"{name}: {100 * score:.1f} % are seen, {100 * least:.0f} are needed")
    for part in files:
        survivors = {row["id"] for row in part["mutants"] if row["verdict"] == "survived"}
        seen = {row["id"] for row in part["mutants"] if row.get("own")}
        for row in part["mutants"]:
            place = f"{part['file']}:{row['line']}: {row['id']} {row['was']}  ->  {row['becomes']}"
            own = row.get("own") and f"{row['own']['program']}: {row['own']['case']} {row['own']['how']}"
            # Lines that stand twice in a function share an id, and perhaps not their fate.
            if row["verdict"] != "survived" and row["ignored"] and row["id"] not in survivors:
                words.append(f"in the ignore list, and {row['verdict']} by {row['test']}: {place}")
            elif row["verdict"] == "survived" and not row["ignored"]:
                words.append(f"survived{f', and seen by {own}' if own else ''}: {place}")
            elif row["ignored"] == "unit" and row["id"] not in seen:
                words.append(f"called unit in the ignore list, and no test of the engine's own sees it: {place}")
            elif row["ignored"] in ("equivalent", "standing") and own:
                words.append(f"called {row['ignored']} in the ignore list, and seen by {own}: {place}")
            if (row.get("fuzzed") or {}).get("found"):
                words.append(f"survived, and found by fuzzing {row['fuzzed']['target']}: {row['fuzzed']['found']}: {place}")
    return words


def run(options):
    build = Build(options.build, options.cache)
    judge = Judge(options.build, options.cache)
    chosen = select(options.files, build.sources)
    ignored = Ignored(IGNORE, places(build.sources))
    interpreter = python(options.cache)
    code = build.baseline()
    scorer = Scorer(build, judge, Reach(code, judge, options), options)
    with tempfile.TemporaryDirectory(prefix="operators-") as folder:
        scorer.baseline(build.library(os.path.join(folder, "baseline.so")))
    files = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for file in chosen:
            begin = time.monotonic()
            files.append(scorer.file(interpreter, file, ignored, pool))
            f = figures(files[-1]["mutants"])
            print(f"{file}: {f['judged']} judged, {f['survived']} survived, {100 * f['score']:.1f} % "
                  f"({time.monotonic() - begin:.0f} s)", flush=True)
    for item in options.report or []:
        kind, _, path = item.partition(":")
        if kind != "json" or not path:
            raise Stop(2, f"--report takes json:PATH here, not {item}")
        report.put(path, report.dumps({"schema": "ol.operators/1", "tool": TOOL, "seed": options.seed, "files": files}))
    words = faults(files, ignored)
    print("\n" + as_table(files) + "\n", *words, sep="\n")
    return 6 if words else 0


def parser():
    p = argparse.ArgumentParser(prog="ol mutants --operators", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="*", metavar="FILE")
    p.add_argument("-j", dest="jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--sample", type=int, default=SAMPLE)
    p.add_argument("--seed", type=int, default=SEED)
    p.add_argument("--fuzz", type=int, default=0, metavar="SECONDS")
    p.add_argument("--report", action="append")
    p.add_argument("--after", action="append", metavar="REPORT")
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--cache", default=os.path.join(ROOT, "build", "mutants"))
    return p


def main(argv):
    try:
        return run(parser().parse_args(argv))
    except Stop as stop:
        print(f"ol mutants --operators: {stop}", file=sys.stderr)
        return stop.code
    except JudgeBroken as broken:
        print(f"ol mutants --operators: {broken}", file=sys.stderr)
        return 70
    except FileNotFoundError as missing:
        print(f"ol mutants --operators: the engine and the judge must be built first (make all): {missing}",
              file=sys.stderr)
        return 70


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
