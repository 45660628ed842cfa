#!/usr/bin/python3
"""Tests of the fuzzing tools, and of the judge's readers that are no C: grade policies, lists of known failures, logs.

    test_fuzz.py [NAME...]

The readers in Python are mutated by rule with fixed seeds instead of by libFuzzer, which sees nothing of an
interpreter: a text is taken and means the same when it is written again, or it is refused with the reader's own
exception, exit code and one printable sentence. Ends with `N passed, N failed, N skipped`. Standard library only.
"""
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import traceback
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, os.path.join(ROOT, "conformance", "report"), os.path.join(ROOT, "goldens", "gen")]
import fuzz  # noqa: E402
import limits  # noqa: E402
import seeds  # noqa: E402
import test_report as logs_made  # noqa: E402
import vectors  # noqa: E402
from ol_report import expect, grade, log as logs  # noqa: E402

TESTS = []


class Skip(Exception):
    """What the test needs is not on this machine."""


def test(action):
    TESTS.append(action)
    return action


def tool(*words):
    done = subprocess.run([sys.executable, os.path.join(HERE, "fuzz.py"), *words], cwd=ROOT, capture_output=True, text=True,
                          errors="replace", check=False)
    return done.returncode, done.stdout, done.stderr


# ---------------------------------------------------------------- the judge's readers in Python

WORDS = ["schema", "points", "default", "groups", "title", "tests", "all_or_nothing", "visibility", "scale", "minimum",
         "borrowed", "sandbox", "fresh", "blocked", "excluded", "leaderboard", "hidden", "kv_*", "*", "[", "hand_example_sampling",
         "failures", "test", "class", "reason", "check", "fail", "ol.policy/1", "ol.expect/1", "", "\ud800", "\x00", "\x1b[31m"]
VALUES = [None, True, False, 0, -1, 1, 0.5, 1e308, -1e308, 5e-324, 10 ** 400, "", "x", [], {}, [[]], [""], {"a": 1}, ["kv_*"]]
TEXTS = ["NaN", "Infinity", "-", "1e999", "00", "\ufeff", "\\ud800", ",", "{", "}", "[" * 3000, "\"", "1" * 5000]


def paths_of(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths_of(item, (*path, key))


def mutated(value, rng):
    """A text: the value with a few changes on the level of JSON, now and then one of bytes."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(list(paths_of(value)))
        if not path:
            continue
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        kind = rng.randrange(4)
        if kind == 0:
            holder[path[-1]] = rng.choice(VALUES)
        elif kind == 1:
            holder[path[-1]] = rng.choice(WORDS)
        elif kind == 2:
            del holder[path[-1]]
        elif isinstance(holder, dict):
            holder[rng.choice(WORDS)] = holder[path[-1]]
        else:
            holder.append(holder[path[-1]])
    text = json.dumps(value)
    if rng.randrange(4) == 0:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(TEXTS) + text[at + rng.randrange(3):]
    return text


def hold(load, text, codes):
    """What the reader makes of the text, None when it refuses as it may; anything else is a fault."""
    try:
        return load(text)
    except logs.Stop as stop:
        words = str(stop)
        assert stop.code in codes, f"exit code {stop.code}"
        assert words.strip() and words.isprintable(), f"no printable sentence: {words!r}"
        return None


def from_file(load):
    def reader(text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "f.json")
            with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(text)
            return load(path, logs_made.CATALOG)
    return reader


POLICIES = [
    {"schema": "ol.policy/1"},
    {"schema": "ol.policy/1", "title": "t", "points": {"default": 2, "hand_example_sampling": 10}, "scale": 100, "minimum": 40},
    {"schema": "ol.policy/1", "blocked": "excluded", "sandbox": ["landlock"], "fresh": True,
     "groups": [{"title": "kv", "tests": ["kv_*"], "points": 40, "all_or_nothing": True, "visibility": "hidden"},
                {"title": "one", "tests": ["hand_example_sampling"]}]},
]


def check_policy(policy):
    """What a policy gives is finite, all of it for a run without a fault, nothing for one that passes nothing."""
    log = logs_made.parse(logs_made.make())
    result = policy.apply(log)
    assert all(math.isfinite(w) and w >= 0 for w in policy.weights.values()), policy.weights
    assert math.isfinite(result["points"]) and abs(result["points"] - result["max_points"]) < 1e-3, result
    again = grade.Policy(json.loads(json.dumps(policy.value)), logs_made.CATALOG)
    assert again.weights == policy.weights and again.value == policy.value, "it reads as another one"
    nothing = policy.apply(logs_made.parse(logs_made.make({name: "fail" for name in logs_made.NAMES})))
    assert nothing["points"] == 0, nothing


@test
def policies_are_read_or_refused():
    taken = 0
    for seed in range(3000):
        rng = random.Random(seed)
        policy = hold(from_file(grade.Policy.load), mutated(rng.choice(POLICIES), rng), {5})
        if policy is not None:
            check_policy(policy)
            taken += 1
    assert 300 < taken < 2700, f"{taken} of 3000 are taken: the mutations are worth nothing"


@test
def known_failures_are_read_or_refused():
    base = {"schema": "ol.expect/1", "failures": [{"test": "hand_example_sampling", "class": "fail", "reason": "r"},
                                                  {"test": "kv_pool_rejects_zero_capacity", "class": "crash", "reason": "s"}]}
    taken = 0
    for seed in range(1500):
        entries = hold(from_file(expect.load), mutated(base, random.Random(seed)), {5})
        if entries is not None:
            names = [e["test"] for e in entries]
            assert len(set(names)) == len(names) and set(names) <= set(logs_made.NAMES), names
            taken += 1
    assert 50 < taken < 1450, f"{taken} of 1500 are taken"


@test
def logs_are_believed_whole_or_not_at_all():
    """What is believed of a log with changed bytes, lines or fields is what the judge wrote: verdict, exit code, classes."""
    whole = logs_made.every_class()
    sound = logs_made.parse(whole)
    truth = (sound.footer["verdict"], sound.exit_code, {n: t["class"] for n, t in sound.tests.items()})
    lines = whole.split(b"\n")[:-1]
    for seed in range(1200):
        rng = random.Random(seed)
        at, i = rng.randrange(len(whole)), rng.randrange(len(lines))
        kind = rng.randrange(5)
        data = [whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1:], whole[:at],
                b"\n".join(lines[:i] + lines[i + 1:]) + b"\n", b"\n".join(lines[:i] + [lines[i]] + lines[i:]) + b"\n",
                b"\n".join(lines[:i] + [mutated(json.loads(lines[i]), rng).encode("utf-8", "surrogatepass")] + lines[i + 1:])
                + b"\n"][kind]
        log = hold(logs_made.parse, data, {70})
        if log is not None:
            told = (log.footer["verdict"], log.exit_code, {n: t["class"] for n, t in log.tests.items()})
            assert told == truth, f"seed {seed}: a log that was changed tells {told}"


@test
def goldens_are_taken_by_both_checkers_or_by_neither():
    """The generators' own check of a vectors file shares nothing with the judge's, whose verdicts the corpus has. (A
    type that it does not expect is a TypeError there; manifests and the probe are read in a folder only.)"""
    seen = []
    for path, (verdict, _) in fuzz.read_manifest().items():
        if not path.startswith("golden/"):
            continue
        try:
            doc = vectors.load_strict(os.path.join(fuzz.CORPUS, path))
            if isinstance(doc, dict) and doc.get("schema") in ("ol.manifest/1", "ol.probe/1"):
                continue
            faults = vectors.check_vectors(doc)
        except (TypeError, ValueError) as why:
            faults = [str(why)]
        assert (verdict == "OK") == (not faults), f"{path}: the judge says {verdict}, the generators' check {faults}"
        seen.append(verdict)
    assert len(seen) > 80 and set(seen) == {"OK", "GOLDEN", "JSON"}, seen


# ---------------------------------------------------------------- the tool


@test
def a_target_is_a_command():
    status, _, err = tool("smapler")
    assert status == 4 and "sampler" in err, (status, err)
    status, _, err = tool("replay", "confg")
    assert status == 4 and "config" in err, (status, err)
    status, out, _ = tool("list", "--names")
    assert status == 0 and out.split() == fuzz.TARGETS
    assert tool()[0] == 2


@test
def replay_sees_wrong_verdicts_and_crashes():
    program = fuzz.replay_program("asan")
    manifest = fuzz.read_manifest()
    sound = {**manifest, "config/arch-OK": manifest[next(p for p in manifest if p.startswith("config/"))]}
    path = next(p for p, (verdict, _) in manifest.items() if p.startswith("log/") and verdict == "OK")
    bad, _ = fuzz.replay_target([program], "log", {**manifest, path: ("FORMAT", "")})
    assert [p for p, _ in bad] == [path], bad
    bad, _ = fuzz.replay_target([program], "log", {p: row for p, row in manifest.items() if p != path})
    assert [p for p, _ in bad] == [path], bad
    bad, _ = fuzz.replay_target([program], "config", sound)
    assert [p for p, _ in bad] == ["config/arch-OK"], "a seed that is not there is not missed"
    with tempfile.TemporaryDirectory() as folder:
        files = {"a": b"quiet", "b": b"TLKV\x10!", "c": b"quiet, too"}
        for name, data in files.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        outcomes = fuzz.replay_files([program], "crash", [os.path.join(folder, n) for n in files])
    verdicts = [(o.verdict, "heap-buffer-overflow" in o.wrong) for o in outcomes.values()]
    assert sorted(verdicts) == [("OK", False), ("OK", False), ("crash", True)], verdicts


@test
def the_planted_bug_is_found():
    if shutil.which("clang") is None:
        raise Skip("no clang")
    assert tool("selftest")[0] == 0


@test
def limits_can_fail():
    program = fuzz.replay_program("release")
    sound = ("a", "safetensors", "OK", lambda: limits.tensors(b"{}"))
    wrong = ("b", "safetensors", "FORMAT", lambda: limits.tensors(b"{}"))
    rows, n_wrong = limits.run(program, [sound, wrong], out=lambda _: None)
    assert len(rows) == 2 and n_wrong == 1
    most, limits.EXTRA_BYTES_MAX = limits.EXTRA_BYTES_MAX, 1 << 20
    try:
        case = ("c", "safetensors", "OK", lambda: limits.tensors(limits.many(40_000, "model.layers.%07d.weight")))
        assert limits.run(program, [case], out=lambda _: None)[1] == 1, "no limit of memory is seen"
    finally:
        limits.EXTRA_BYTES_MAX = most


@test
def the_export_has_every_seed_with_its_verdict():
    with tempfile.TemporaryDirectory() as folder:
        assert tool("export", folder)[0] == 0
        with open(os.path.join(folder, "MANIFEST.json"), encoding="utf-8") as file:
            rows = json.load(file)["files"]
        manifest = fuzz.read_manifest()
        kinds = {row["kind"] for row in rows}
        assert kinds == {"safetensors", "index", "config", "checkpoint", "kv_import"}, kinds
        for row in rows:
            name = os.path.basename(row["path"])
            known = [n for n in (name, name.rsplit(".", 1)[0]) if f"{row['kind']}/{n}" in manifest]
            verdict = manifest[f"{row['kind']}/{known[0]}"][0]
            assert (row["verdict"] == "accept") == (verdict == "OK") and row.get("status", "OK") == verdict, row
            assert os.path.exists(os.path.join(folder, row["path"])), row
            if row["kind"] == "safetensors":
                with open(os.path.join(folder, row["path"]), "rb") as out, open(
                        os.path.join(fuzz.CORPUS, "safetensors", known[0]), "rb") as seed:
                    assert out.read() == seed.read(), row
        by_rule = {f"{t}/{name}" for t in ("safetensors", "config") for name, _, _, _ in seeds.rules(t)}
        out = {f"{r['kind']}/{os.path.basename(r['path']).rsplit('.', 1)[0]}" for r in rows}
        assert by_rule <= out, sorted(by_rule - out)[:3]


@test
def oss_fuzz_builds_what_runs():
    """build.sh with the variables of OSS-Fuzz's base-builder, in a copy that has only what git has; each target runs."""
    if shutil.which("clang++") is None:
        raise Skip("no clang")
    with tempfile.TemporaryDirectory(prefix="oss-fuzz-") as place:
        src, out, work = (os.path.join(place, n) for n in ("src", "out", "work"))
        for folder in (os.path.join(src, "tl"), out, work):
            os.makedirs(folder)
        names = subprocess.run(["git", "ls-files", "-c", "-o", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True,
                               check=True).stdout
        pack = subprocess.run(["tar", "--exclude=goldens/models", "--null", "-T-", "-c"], cwd=ROOT, input=names,
                              capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", os.path.join(src, "tl")], input=pack.stdout, check=True)
        flags = "-O1 -fno-omit-frame-pointer -gline-tables-only -Wno-error -fsanitize=address -fsanitize=fuzzer-no-link"
        env = {"PATH": os.environ["PATH"], "SRC": src, "OUT": out, "WORK": work, "CC": "clang", "CXX": "clang++", "CFLAGS": flags,
               "CXXFLAGS": flags, "LIB_FUZZING_ENGINE": "-fsanitize=fuzzer", "SANITIZER": "address", "FUZZING_ENGINE": "libfuzzer"}
        done = subprocess.run(["bash", "-eu", os.path.join(src, "tl", "fuzz", "oss-fuzz", "build.sh")], env=env, text=True,
                              cwd=src, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        shutil.rmtree(src)
        for target in fuzz.TARGETS:
            name = os.path.join(out, "fuzz-" + target)
            corpus = os.path.join(work, target)
            with zipfile.ZipFile(name + "_seed_corpus.zip") as pack:
                pack.extractall(corpus)
                assert pack.namelist(), target
            words = subprocess.run([name, "-runs=100", "-seed=1", "-max_len=2048", corpus], env=env, cwd=work, text=True,
                                   capture_output=True, errors="replace", check=False)
            assert words.returncode == 0 and "Done " in words.stderr, f"{target}: {words.stderr[-500:]}"


def main(names):
    counts = [0, 0, 0]
    for action in TESTS:
        if names and action.__name__ not in names:
            continue
        try:
            action()
            counts[0] += 1
        except Skip as why:
            counts[2] += 1
            print(f"skipped {action.__name__}: {why}")
        except Exception:  # pylint: disable=broad-except; every test is run
            counts[1] += 1
            words = f"FAILED {action.__name__}\n{traceback.format_exc()}"
            print(words.encode("utf-8", "backslashreplace").decode())
    print("{} passed, {} failed, {} skipped".format(*counts))
    return 1 if counts[1] or not sum(counts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
