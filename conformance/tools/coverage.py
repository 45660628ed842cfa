#!/usr/bin/python3
"""Coverage: what the tests reach, what each of them reaches, and floors that only rise.

    coverage.py              build the cov variant, run everything, write build/coverage/, hold the floors
    coverage.py FILE:LINE    which items of the last run reach that line
    coverage.py --raise      after a run: lift the floors to what was measured
    coverage.py --report     the views and the floors again, without running anything

Items are the unit test programs, the 24 judged tests, the judge's own tests and the corpora. Each writes its counters
to a folder of its own (GCOV_PREFIX; coverage_hooks.c brings those of caged engines out), which are added up; gcov says
what they reached, gcovr writes index.html, cobertura.xml and coverage.json. Ends with `N passed, N failed`: a test for
each floor, for each item, and for the rules on exclusions. Needs gcov, gcovr and numpy (Debian); nothing else.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build", "cov")
OUT = os.path.join(ROOT, "build", "coverage")
RAW = os.path.join(OUT, "raw")
FLOORS = "conformance/coverage.json"
JUDGE = "build/cov-judge"  # what the judge's own tests are run with
JOBS = os.cpu_count() or 1
# What a floor is for: the folders of a group, and the least that the group may ever be held to.
GROUPS = {
    "engine": (("engine/src/",), {"line": 98.0, "branch": 90.0}),
    "judge": (("conformance/runner/", "conformance/host/", "conformance/tests/"), {"line": 90.0}),
    "parsers": (("engine/src/json.c", "engine/src/model_config.c", "engine/src/model_layout.c",
                 "engine/src/model_checkpoint.c", "engine/src/kv_envelope.c"), {"line": 95.0, "branch": 90.0}),
}
# Objects that are no product: the corpora's harness, and its second implementation, which has engine sources in it.
OTHERS = ("obj/fuzz", "obj/second")
MARK = re.compile(r"GCOVR?_EXCL_(LINE|START|BR_LINE|BR_START)\b(.*)")


def run(command, **more):
    return subprocess.run(command, cwd=more.pop("cwd", ROOT), text=True, errors="replace", stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **more)


def programs(folder):
    return sorted(f[:-2] for f in os.listdir(os.path.join(ROOT, folder)) if re.fullmatch(r"test_.*\.c", f))


def items():
    """(name, command, environment)."""
    found = []
    folder = os.path.join(BUILD, "bin", "tests")
    found += [(f"unit/{program}", [os.path.join(folder, program)], {}) for program in programs("engine/tests")]
    found += [(f"judge/{program}", [os.path.join(folder, program)], {}) for program in programs("conformance/selftest")]
    ol = os.path.join(BUILD, "bin", "ol")
    with open(os.path.join(ROOT, "conformance", "catalog.json"), encoding="utf-8") as file:
        tests = [test["name"] for test in json.load(file)["tests"]]
    found += [(f"judged/{name}", [ol, "check", "L10.1", "--only", name, "-j", "1"], {}) for name in tests]
    # Long ones first: the judge's own tests, a script and its options as run.sh has them, and the corpora.
    with open(os.path.join(ROOT, "conformance/selftest/run.sh"), encoding="utf-8") as file:
        parts = re.findall(r'^ *part "([^"]+)" python3 (\S+) "\$build"(.*)$', file.read(), re.M)
    found = [(f"judge itself, {name}", [sys.executable, script, JUDGE, *rest.split()], {})
             for name, script, rest in parts] + found
    found.append(("corpora", [sys.executable, "fuzz/fuzz.py", "replay", "--variant", "cov"], {}))
    found.append(("reports", [sys.executable, "conformance/report/test_report.py", "--ol", "build/cov/bin/ol"], {}))
    return found


def tap():
    return {**os.environ, "CMOCKA_MESSAGE_OUTPUT": "TAP"}


def run_item(item):
    """Run one item with counters of its own; words when it failed."""
    name, command, env = item
    folder = os.path.join(RAW, name.replace("/", "_"), "own")
    os.makedirs(folder)
    os.chmod(os.path.dirname(folder), 0o1777)  # those who dropped their uid make folders beside
    done = run(command, env={**tap(), **env, "GCOV_PREFIX": folder,
                             "GCOV_ERROR_FILE": os.path.join(OUT, "gcov.log")})
    if done.returncode == 0:
        return None
    return f"{name}: exit status {done.returncode}\n" + "\n".join(done.stdout.splitlines()[-12:])


def counters(folder):
    """The trees of counters below: each repeats the path of the build in a folder of its own."""
    found = [os.path.join(folder, d, BUILD.lstrip("/")) for d in sorted(os.listdir(folder))]
    return [tree for tree in found if os.path.isdir(tree)]


HEAD_BYTES, ARCS = 16, 0x01a10000  # of a .gcda; gcc/gcov-io.h


def add_counters(sums, path):
    """Add the counters of a file to {head: records}: a file of another build has another head. A file that is cut, or
    has no zero at its end, is of a process that was killed while it wrote."""
    with open(path, "rb") as file:
        data = file.read()
    records, at = [], HEAD_BYTES
    while at + 8 <= len(data):
        tag, size = struct.unpack_from("<Ii", data, at)
        if at + 8 + size > len(data):
            return
        if tag == ARCS:  # a negative size: that many bytes of zeros, left out
            records.append(numpy.frombuffer(data[at + 8:at + 8 + size], "<u8") if size > 0 else numpy.zeros(-size // 8, "<u8"))
        else:
            records.append((tag, data[at + 8:at + 8 + size]))
        at += 8 + max(size, 0)
    if data[at:] != b"\0\0\0\0":
        return
    known = sums.setdefault(data[:HEAD_BYTES], records)
    if known is not records:
        if len(known) != len(records):
            sys.exit(f"{path}: counters of another build\n0 passed, 1 failed")
        for k, record in enumerate(records):
            if not isinstance(record, tuple):
                known[k] = known[k] + record


def add_up(trees, target):
    """The sum of trees of counters, with the notes of the compiler beside. gcov-tool merges two at a time, all files
    each time; for the thousand trees of a run that is most of an hour."""
    files = {}
    for tree in trees:
        for folder, _, names in os.walk(tree):
            part = os.path.relpath(folder, tree)
            if part.startswith(OTHERS):
                continue
            for name in names:
                if name.endswith(".gcda"):
                    add_counters(files.setdefault(os.path.join(part, name), {}), os.path.join(folder, name))
    shutil.rmtree(target, ignore_errors=True)
    for name, sums in files.items():
        if len(sums) > 1:
            sys.exit(f"{name}: counters of {len(sums)} builds\n0 passed, 1 failed")
        os.makedirs(os.path.dirname(os.path.join(target, name)), exist_ok=True)
        with open(os.path.join(target, name), "wb") as file:
            for head, records in sums.items():
                file.write(head)
                for record in records:
                    tag, data = record if isinstance(record, tuple) else (ARCS, record.tobytes())
                    file.write(struct.pack("<Ii", tag, len(data)) + data)
                file.write(b"\0\0\0\0")
    for note in notes() if files else ():
        to = os.path.join(target, os.path.relpath(note, BUILD))
        if os.path.exists(to[:-5] + ".gcda"):
            os.symlink(note, to)


def notes():
    for folder, _, files in os.walk(os.path.join(BUILD, "obj")):
        yield from (os.path.join(folder, f) for f in files if f.endswith(".gcno"))


def reached(tree):
    """{file: set of lines} of one item, as gcov tells it."""
    data = [os.path.join(folder, f) for folder, _, files in os.walk(tree) for f in files if f.endswith(".gcda")]
    found = {}
    # gcov writes one document after the other, and its warnings between them. Sources are named as the compiler was
    # given them, relative to the root.
    text, decoder, at = run(["gcov", "-j", "-t", *data]).stdout if data else "", json.JSONDecoder(), 0
    while (at := text.find('{"', at)) >= 0:
        document, at = decoder.raw_decode(text, at)
        for file in document["files"]:
            if file["file"].startswith(("engine/src/", "conformance/")):
                lines = found.setdefault(file["file"], set())
                lines.update(line["line_number"] for line in file["lines"] if line["count"] > 0)
    return found


def lay_out_judge():
    """The judge that counts over a library for engines that does not: what it links them with is no program of ours,
    and has no place for counters."""
    for part, source in {"bin/ol": "cov", "bin/ol-host": "cov", "lib/libtl.so.1": "cov", "lib/libtl-second.so": "cov",
                         "lib/libtl.a": "release"}.items():
        to = os.path.join(ROOT, JUDGE, part)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(os.path.join(ROOT, "build", source, part), to)


def measure():
    """Run all items; the words of those that failed."""
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(RAW)
    os.chmod(OUT, 0o1777)
    os.environ["WERROR"] = "1"  # for makes below items too: one with other flags would build the variant anew
    built = run(["make", "-j", str(JOBS), "VARIANT=cov", "all", "engine-tests", "judge-tests",
                 "build/cov/bin/fuzz-replay"])
    if built.returncode != 0:
        sys.exit(built.stdout + "the cov variant does not build\n0 passed, 1 failed")
    plain = run(["make", "-j", str(JOBS), "VARIANT=release", "all"])
    if plain.returncode != 0:
        sys.exit(plain.stdout + "the release variant does not build\n0 passed, 1 failed")
    lay_out_judge()
    chosen = items()
    with ThreadPoolExecutor(JOBS) as pool:
        failed = [words for words in pool.map(run_item, chosen) if words]
        names = [item[0] for item in chosen]
        trees = [os.path.join(OUT, "sum", name.replace("/", "_")) for name in names]
        list(pool.map(lambda n, t: add_up(counters(os.path.join(RAW, n.replace("/", "_"))), t), names, trees))
        lines = list(pool.map(reached, trees))
    with open(os.path.join(OUT, "tests.json"), "w", encoding="utf-8") as file:
        json.dump({name: {f: sorted(n) for f, n in sorted(found.items())} for name, found in zip(names, lines)}, file)
    add_up(trees, os.path.join(OUT, "total"))
    silent = [name for name, found in zip(names, lines) if not found]
    return len(chosen), failed + [f"{name}: no counters came out of it" for name in silent]


def judged(folder, jobs):
    """{test: {file: lines}} of the 24 tests alone, with what is written on the way below folder."""
    global OUT, RAW
    OUT, RAW = folder, os.path.join(folder, "raw")
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(RAW)
    os.chmod(OUT, 0o1777)
    built = run(["make", "-j", str(jobs), "VARIANT=cov", "all"])
    if built.returncode != 0:
        sys.exit(built.stdout + "the cov variant does not build")
    chosen = [item for item in items() if item[0].startswith("judged/")]

    def one(item):
        tree = os.path.join(OUT, "sum", os.path.basename(item[0]))
        words = run_item(item)
        if words:
            sys.exit(words)
        add_up(counters(os.path.join(RAW, item[0].replace("/", "_"))), tree)
        return {file: sorted(lines) for file, lines in reached(tree).items() if file.startswith("engine/src/")}
    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip([os.path.basename(item[0]) for item in chosen], pool.map(one, chosen)))


def report():
    """gcovr's views of the sum; its JSON, reduced to what the floors need."""
    done = run(["gcovr", "-r", ROOT, "--object-directory", os.path.join(OUT, "total"), "-j", str(JOBS),
                "-f", "engine/src/", "-f", "conformance/(runner|host|tests)/", "--exclude-unreachable-branches",
                "--json", os.path.join(OUT, "coverage.json"), "--html-details", os.path.join(OUT, "index.html"),
                "--html-title", "tl", "--cobertura", os.path.join(OUT, "cobertura.xml"),
                "--txt", os.path.join(OUT, "coverage.txt"), os.path.join(OUT, "total")])
    if done.returncode != 0:
        sys.exit(f"gcovr ended with {done.returncode}\n{done.stdout}\n0 passed, 1 failed")
    with open(os.path.join(OUT, "coverage.json"), encoding="utf-8") as file:
        return {entry["file"]: figures(entry) for entry in json.load(file)["files"]}


def figures(entry):
    """(reached, in all) for lines, branches and functions of a file."""
    lines = [line for line in entry["lines"] if not line.get("gcovr/noncode")]
    branches = [b for line in lines for b in line["branches"]]
    return {"line": (sum(line["count"] > 0 for line in lines), len(lines)),
            "branch": (sum(b["count"] > 0 for b in branches), len(branches)),
            "function": (sum(f["execution_count"] > 0 for f in entry["functions"]), len(entry["functions"]))}


def share(pair):
    return 100.0 * pair[0] / pair[1] if pair[1] else 100.0


def group_figures(files, folders):
    return {kind: tuple(sum(f[kind][i] for name, f in files.items() if name.startswith(folders)) for i in (0, 1))
            for kind in ("line", "branch", "function")}


def table(files, seen):
    """Markdown: a row for each group and each file; `items` counts what reaches the file."""
    rows = ["| file | lines | branches | functions | items |", "| --- | ---: | ---: | ---: | ---: |"]
    groups = [(f"**{name}**", group_figures(files, folders), "") for name, (folders, _) in GROUPS.items()]
    for name, f, n in groups + [(name, f, str(seen.get(name, 0))) for name, f in sorted(files.items())]:
        cells = [f"{share(f[kind]):.1f} % of {f[kind][1]}" for kind in ("line", "branch", "function")]
        rows.append(f"| {name} | {cells[0]} | {cells[1]} | {cells[2]} | {n} |")
    return "\n".join(rows) + "\n"


def exclusions():
    """Every marker in the sources with its reason; words for those without."""
    found, wrong = [], []
    listed = run(["git", "ls-files", "-c", "-o", "--exclude-standard", "*.c", "*.h"]).stdout.split()
    for name in listed:
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                mark = MARK.search(line)
                reason = mark.group(2).strip(" :*/\n") if mark else ""
                if mark and len(reason) < 10:
                    wrong.append(f"{name}:{number}: {mark.group(0).strip()}: an exclusion says why")
                elif mark:
                    found.append(f"{name}:{number}: {reason}")
    return found, wrong


def read_floors(text):
    floors = json.loads(text)
    return {**{("group", n, k): v for n, kinds in floors["groups"].items() for k, v in kinds.items()},
            **{("file", n, k): v for n, kinds in floors["files"].items() for k, v in kinds.items()}}, floors


def history_falls(now, lowered):
    """A floor that was higher in an earlier commit, while its file is still there and no reason is given."""
    commits = run(["git", "log", "--format=%H", "--", FLOORS]).stdout.split()
    wrong = []
    for commit in commits:
        shown = run(["git", "show", f"{commit}:{FLOORS}"])
        old = read_floors(shown.stdout)[0] if shown.returncode == 0 else {}
        for key, value in old.items():
            gone = key[0] == "file" and not os.path.exists(os.path.join(ROOT, key[1]))
            if now.get(key, 0) < value and not gone and key[1] not in lowered:
                wrong.append(f"{FLOORS}: {key[1]}: {key[2]} was held to {value} in {commit[:9]}")
        now = {**now, **{k: max(v, now.get(k, 0)) for k, v in old.items()}}
    return wrong


def hold(files):
    """(passed, skipped, words) of all floors."""
    with open(os.path.join(ROOT, FLOORS), encoding="utf-8") as file:
        now, floors = read_floors(file.read())
    passed, skipped, wrong = 0, 0, history_falls(now, floors.get("lowered", {}))
    for name, (_, least) in GROUPS.items():
        wrong += [f"{FLOORS}: {name}: {kind} may not be held to less than {value}"
                  for kind, value in least.items() if now.get(("group", name, kind), 0) < value]
    for (what, name, kind), floor in sorted(now.items()):
        if what == "file" and name not in files:
            wrong.append(f"{name}: has a floor and was not measured")
            continue
        if os.geteuid() != 0 and (name == "judge" or name.startswith(GROUPS["judge"][0])):
            skipped += 1  # only root can be root, another user and a kernel without filters
            continue
        value = share(files[name][kind] if what == "file" else group_figures(files, GROUPS[name][0])[kind])
        if value + 1e-9 < floor:
            wrong.append(f"{name}: {value:.2f} % of {kind}s, {floor} are needed")
        else:
            passed += 1
    found, bad = exclusions()
    wrong += bad
    if len(found) > floors["exclusions"]:
        wrong.append(f"{len(found)} exclusions, {floors['exclusions']} are allowed")
    passed += 1
    print(f"{len(found)} exclusions:", *found, sep="\n  ") if found else print("no exclusions")
    return passed, skipped, wrong


def raise_floors():
    """What was measured becomes the floor, less what may hang on time: one percent in the engine, three in the judge,
    two lines or branches at least. Never lower than before."""
    files = load_figures()
    path = os.path.join(ROOT, FLOORS)
    with open(path, encoding="utf-8") as file:
        floors = json.load(file)
    for name, figure in sorted(files.items()):
        if figure["line"][1] == 0:
            continue
        old = floors["files"].get(name, {})
        slack = 1.0 if name.startswith("engine/") else 3.0
        for kind in ("line", "branch") if name.startswith("engine/") else ("line",):
            n_reached, n = figure[kind]
            least = min(share((n_reached, n)) - slack, share((n_reached - 2, n)))
            floors["files"].setdefault(name, {})[kind] = max(old.get(kind, 0.0), float(max(0, int(least))))
    floors["files"] = {n: f for n, f in sorted(floors["files"].items()) if n in files}
    floors["exclusions"] = min(floors["exclusions"], len(exclusions()[0]))
    text = json.dumps(floors, indent=1)
    text = re.sub(r"\{\s+(\"line\": [\d.]+)(?:,\s+(\"branch\": [\d.]+))?\s+\}",
                  lambda m: "{" + ", ".join(p for p in m.groups() if p) + "}", text)
    part = path + ".part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    os.replace(part, path)
    return 0


def load_figures():
    with open(os.path.join(OUT, "coverage.json"), encoding="utf-8") as file:
        return {entry["file"]: figures(entry) for entry in json.load(file)["files"]}


def who(place):
    file, _, line = place.rpartition(":")
    with open(os.path.join(OUT, "tests.json"), encoding="utf-8") as data:
        found = [name for name, files in json.load(data).items() if int(line) in files.get(file, [])]
    print(*found, sep="\n") if found else print(f"nothing reaches {place}")
    return 0 if found else 1


def main(words):
    is_place = len(words) == 1 and re.fullmatch(r"[^:]+:\d+", words[0])
    if (words in (["--raise"], ["--report"]) or is_place) and not os.path.exists(os.path.join(OUT, "tests.json")):
        print(f"{words[0]}: nothing has been measured yet: run coverage.py first", file=sys.stderr)
        return 2
    if words == ["--raise"]:
        return raise_floors()
    if is_place:
        return who(words[0])
    if words not in ([], ["--report"]):
        print(__doc__, file=sys.stderr)
        return 2
    n_items, failed = (0, []) if words == ["--report"] else measure()
    files = report()
    with open(os.path.join(OUT, "tests.json"), encoding="utf-8") as data:
        tests = json.load(data).values()
    seen = {name: sum(bool(test.get(name)) for test in tests) for name in files}
    text = table(files, seen)
    with open(os.path.join(OUT, "coverage.md"), "w", encoding="utf-8") as file:
        file.write(text)
    print(text)
    passed, skipped, wrong = hold(files)
    wrong += failed
    print(*wrong, sep="\n")
    print(f"{passed + n_items - len(failed)} passed, {len(wrong)} failed, {skipped} skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
