"""Views of a matrix: the terminal's table, JSON, the mutation-testing-report schema; and merging shards.

The matrix (ol.matrix/1) is the one truth. Nothing in it but `times` depends on when and where it was made, so that the
merged shards of a run equal the run in one piece byte for byte but for that part.

Standard library only.
"""
import json
import os
import sys

import cells
import verdict
from catalog import ROOT, read

WIDTH = 46  # of got and wanted in the table
LETTERS = {"pass": ".", "fail": "F", "refused-wrong": "R", "crash": "C", "timeout": "T", "resource": "M",
           "no-result": "N", "integrity": "I", "harness-error": "H"}


class Refused(Exception):
    """Shards that do not make one run."""


def progress(words):
    if sys.stderr.isatty():
        print("\r\033[K" + words[:100], end="", file=sys.stderr, flush=True)


def dumps(data):
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def put(path, text):
    """A file in one step, with the folders above it: the old one or the new one, never half of it. What a killed run
    leaves beside it (PATH.part), the next write takes."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    part = path + ".part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)


def write(kind, path, matrix, by_id):
    if kind == "text":
        text = as_text(matrix, by_id)
    elif kind == "json":
        text = dumps(matrix)
    elif kind == "stryker":
        text = dumps(as_stryker(matrix, by_id))
    else:
        import page
        text = page.as_html(matrix, by_id)
    if not path:
        progress("")
        print(text, end="")
        return
    put(path, text)


# ---------------------------------------------------------------- shards


def merge(paths):
    """One matrix of the shards, whatever their order. Refuses gaps, overlaps and shards of different runs."""
    if not paths:
        raise Refused("merge takes the JSON reports of all shards")
    shards = []
    for path in paths:
        try:
            shard = json.loads(read(path))
        except (OSError, ValueError) as error:
            raise Refused(f"{path}: {error}") from error
        if shard.get("schema") != "ol.matrix/1":
            raise Refused(f"{path}: its schema is not ol.matrix/1")
        shards.append((path, shard))
    first_path, first = shards[0]
    seen = {}
    for path, shard in shards:
        for key in ("version", "mode", "tests", "baseline"):
            if shard[key] != first[key]:
                names = [k for k in shard[key] if isinstance(shard[key], dict) and shard[key][k] != first[key].get(k)]
                raise Refused(f"{path} and {first_path} are not of one run: {key} {' '.join(names)} differs")
        if shard["shard"]["n"] != first["shard"]["n"]:
            raise Refused(f"{path} is of {shard['shard']['n']} shards, {first_path} of {first['shard']['n']}")
        k = shard["shard"]["k"]
        if k in seen:
            raise Refused(f"shard {k} is there twice: {seen[k]} and {path}")
        seen[k] = path
    missing = sorted(set(range(1, first["shard"]["n"] + 1)) - set(seen))
    if missing:
        raise Refused(f"of {first['shard']['n']} shards these are missing: {', '.join(map(str, missing))}")
    rows = {row["id"]: row for _, shard in shards for row in shard["mutants"]}
    selection = first["mode"]["selection"]
    if sorted(rows) != sorted(selection) or sum(len(s["mutants"]) for _, s in shards) != len(selection):
        raise Refused("the shards' mutants are not those that were selected, each once")
    times = [shard["times"] for _, shard in shards]
    return {**first, "shard": {"k": 1, "n": 1}, "mutants": [rows[i] for i in selection],
            "times": {"wall_s": max(t["wall_s"] for t in times), "cells_run": sum(t["cells_run"] for t in times),
                      "cells_kept": sum(t["cells_kept"] for t in times),
                      "mutants_s": {k: v for t in times for k, v in sorted(t["mutants_s"].items())}}}


# ---------------------------------------------------------------- what the matrix says about the tests


def kills_of(matrix):
    """Test -> ids of the mutants that it kills, of those that met every test: the others tell nothing of tests."""
    kills = {test: [] for test in matrix["tests"]}
    for row in [row for row in matrix["mutants"] if len(row["cells"]) == len(matrix["tests"])]:
        for test, cell in row["cells"].items():
            if cell["class"] in cells.KILLS:
                kills[test].append(row["id"])
    return kills


def unique_kills(kills):
    """Test -> mutants that no other test kills."""
    count = {}
    for ids in kills.values():
        for i in ids:
            count[i] = count.get(i, 0) + 1
    return {test: [i for i in ids if count[i] == 1] for test, ids in kills.items()}


def smallest_set(kills):
    """Fewest tests that kill every killable mutant: exact, by branch and bound over what is not forced."""
    todo = {i for ids in kills.values() for i in ids}
    chosen = [test for test, ids in unique_kills(kills).items() if ids]
    left = frozenset(todo - {i for test in chosen for i in kills[test]})
    options = {t: frozenset(ids) & left for t, ids in kills.items() if t not in chosen}
    best = [None]

    def search(open_ids, picked):
        if best[0] is not None and len(picked) >= len(best[0]):
            return
        if not open_ids:
            best[0] = picked
            return
        hardest = min(open_ids, key=lambda i: (sum(i in ids for ids in options.values()), i))
        able = [t for t, ids in options.items() if hardest in ids]
        for test in sorted(able, key=lambda t: (-len(options[t] & open_ids), t)):
            search(open_ids - options[test], picked + [test])
    search(left, [])
    order = {test: k for k, test in enumerate(kills)}
    return sorted(chosen + (best[0] or []), key=order.get)


class Gap:
    """Of a source: lines that the 24 tests run, how many of them a killed mutant changes, and the functions that are
    run and that no killed mutant changes: where nothing shows that a test looks at what comes out."""

    def __init__(self, run, hit, functions):
        self.n_run, self.n_hit, self.functions = len(run), len(run & hit), functions


def operator_kills(path):
    """File -> lines of which a mutation by rule was killed, as far as they still say the same: the report of
    `ol mutants --operators --report json:PATH`; empty without it."""
    try:
        parts = json.loads(read(path))["files"]
    except (OSError, ValueError):
        return {}
    found = {}
    for part in parts:
        source = read(os.path.join(ROOT, part["file"])).splitlines()
        found[part["file"]] = {row["line"] for row in part["mutants"] if row["verdict"] == "killed"
                               and source[row["line"] - 1:row["line"]] and
                               source[row["line"] - 1].split() == row["was"].split()}
    return found


def coverage_gaps(matrix, by_id, folder=None, operators=None):
    """File -> Gap; None without the data of `make coverage`, or when a source is newer than they are."""
    folder = folder or os.path.join(ROOT, "build", "coverage")
    try:
        files = json.loads(read(os.path.join(folder, "coverage.json")))["files"]
        items = json.loads(read(os.path.join(folder, "tests.json")))
        made = os.path.getmtime(os.path.join(folder, "tests.json"))
    except (OSError, ValueError):
        return None
    changed = operator_kills(operators or os.path.join(ROOT, "build", "mutants", "operators.json"))
    for row in matrix["mutants"]:
        if row["verdict"] == verdict.GOOD:
            changed.setdefault(row["file"], set()).update(by_id[row["id"]].patch.changed())
    gaps = {}
    for file in files:
        name = file["file"]
        run = {n for item, seen in items.items() if item.startswith("judged/") for n in seen.get(name, [])}
        if not name.startswith("engine/src/") or not run:
            continue
        if os.path.getmtime(os.path.join(ROOT, name)) > made:
            return None
        hit = changed.get(name, set())
        starts = sorted((f["lineno"], f["name"]) for f in file["functions"])
        ends = [start for start, _ in starts[1:]] + [1 << 30]
        gaps[name] = Gap(run, hit, [function for (start, function), end in zip(starts, ends)
                                    if any(start <= n < end for n in run) and not any(start <= n < end for n in hit)])
    return gaps


# ---------------------------------------------------------------- the terminal


def short(text, width):
    text = " ".join(str(text).split())
    return text if len(text) <= width else text[:width - 3] + "..."


def table(matrix):
    rows = [("mutant", "place", "verdict", "check", "got", "wanted")]
    for row in matrix["mutants"]:
        rows.append((row["id"], f"{os.path.basename(row['file'])}:{row['line']}", row["verdict"],
                     row["check"], short(row["got"], WIDTH), short(row["wanted"], WIDTH)))
    widths = [max(len(r[i]) for r in rows) for i in range(6)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(r, widths)).rstrip() for r in rows]


def cell_table(matrix):
    """A line for each mutant, a column for each test."""
    tests = matrix["tests"]
    lines = ["", "test        " + "".join(f"{i // 10 or ' '}" for i in range(1, len(tests) + 1)),
             "            " + "".join(str(i % 10) for i in range(1, len(tests) + 1)) + " corpora"]
    for row in matrix["mutants"]:
        if len(row["cells"]) > 1:
            lines.append((row["id"].ljust(12) + "".join(
                LETTERS[row["cells"][t]["class"]] if t in row["cells"] else " " for t in tests) + " "
                + (LETTERS[row["corpus"]["class"]] if "corpus" in row else "")).rstrip())
    return lines + ["  ".join(f"{letter} {word}" for word, letter in LETTERS.items())]


def about_corpora(matrix):
    """What replaying the corpora alone says of the wrong parsers."""
    rows = [row for row in matrix["mutants"] if "corpus" in row]
    caught = [row["id"] for row in rows if row["corpus"]["class"] == "fail"]
    left = [row["id"] for row in rows if row["corpus"]["class"] == "pass"]
    head = f"Wrong parsers that replaying the corpora alone catches: {len(caught)} of {len(rows)}"
    return ["", f"{head}: {' '.join(caught)}", f"And that it lets pass: {' '.join(left) or 'none'}"] if rows else []


def about_tests(matrix, by_id):
    kills = kills_of(matrix)
    none = [t for t, ids in unique_kills(kills).items() if not ids]
    lines = ["", f"Tests without a kill of their own: {', '.join(none) or 'none'}",
             f"Smallest set of tests that kills them all: {', '.join(smallest_set(kills))}"]
    gaps = coverage_gaps(matrix, by_id)
    if gaps is not None:
        lines += ["Lines that the 24 tests run, that a killed mutant changes, and functions without any such line",
                  "(their names are in the HTML page):"]
        lines += [f"  {name:36} {gap.n_run:5} {gap.n_hit:5} {len(gap.functions):4}"
                  for name, gap in sorted(gaps.items())]
    return lines


def as_text(matrix, by_id):
    lines = table(matrix)
    if matrix["mode"]["matrix"]:
        lines += cell_table(matrix) + about_tests(matrix, by_id)
    lines += about_corpora(matrix)
    counts = {}
    for row in matrix["mutants"]:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    for row in matrix["mutants"]:
        if row["verdict"] != verdict.GOOD:
            title = by_id[row["id"]].row["title"] if row["id"] in by_id else ""
            lines += ["", f"{row['id']} {row['verdict']}: {title}", f"    {verdict.MEANING.get(row['verdict'], '')}"]
            lines += ["    " + line for line in row.get("why", "").splitlines()]
    times = matrix["times"]
    lines += ["", f"{len(matrix['mutants'])} mutants: " + ", ".join(f"{n} {word}" for word, n in sorted(counts.items()))
              + f"; {times['cells_run']} cells run, {times['cells_kept']} kept, {times['wall_s']:.0f} s"]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- mutation-testing-report

STATUS = {"killed": "Killed", "killed-elsewhere": "Survived", "killed-by-other": "Survived", "survived": "Survived",
          "timeout": "Timeout", "does-not-build": "CompileError", "patch-stale": "CompileError",
          "same-object": "Ignored"}


def test_places():
    """Test -> (file, line) of its function."""
    places, folder = {}, os.path.join(ROOT, "conformance", "tests")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".c"):
            for number, line in enumerate(read(os.path.join(folder, name)).splitlines(), 1):
                if line.startswith("void test_") and "(ol_test *t) {" in line:
                    places[line[len("void test_"):line.index("(")]] = (f"conformance/tests/{name}", number)
    return places


def as_stryker(matrix, by_id):
    """The report as the mutation-testing-report schema, version 2, has it."""
    places = test_places()
    ids = {test: str(i) for i, test in enumerate(matrix["tests"], 1)}
    files, tests = {}, {}
    for row in matrix["mutants"]:
        mutant = by_id[row["id"]]
        entry = files.setdefault(row["file"], {"language": "c", "source": read(os.path.join(ROOT, row["file"])),
                                               "mutants": []})
        first, end, new = mutant.patch.span()
        killers = [ids[t] for t, cell in row["cells"].items() if cell["class"] in cells.KILLS]
        entry["mutants"].append({
            "id": row["id"], "mutatorName": mutant.row.get("family", "probe"), "replacement": new,
            "description": mutant.row["title"],
            "location": {"start": {"line": first, "column": 1}, "end": {"line": end, "column": 1}},
            "status": STATUS.get(row["verdict"], "RuntimeError"),
            "statusReason": (row.get("why") or f"{row['check']}: got {row['got']}, wanted {row['wanted']}"),
            "killedBy": killers, "coveredBy": [ids[t] for t in row["cells"]], "testsCompleted": len(row["cells"]),
            "static": False})
    for test in matrix["tests"]:
        file, line = places.get(test, ("conformance/tests/tests.c", 1))
        entry = tests.setdefault(file, {"source": read(os.path.join(ROOT, file)), "tests": []})
        entry["tests"].append({"id": ids[test], "name": test, "location": {"start": {"line": line, "column": 1}}})
    return {"schemaVersion": "2", "thresholds": {"high": 100, "low": 100}, "files": files, "testFiles": tests,
            "framework": {"name": "ol mutants"}}
