"""The signatures of the named mutants, and the proofs of the checks: made from the matrix, never by hand.

  mutants/fingerprints.json   for each named mutant: the checks that it fails without --strict, and how (diagnose.py)
  conformance/proofs.json     for each mutant and probe: the checks that it was seen to fail, strict ones too

Both are written by `mutants.py write`, which runs (or takes from the cache) the whole matrix twice, with --strict and
without. Every run with killers compares what it saw with the fingerprints, so that a stale file is noticed.

Standard library only.
"""
import json
import os

import catalog
import diagnose
from catalog import HERE, ROOT

PATH = os.path.join(HERE, "fingerprints.json")
PROOFS = os.path.join(ROOT, "conformance", "proofs.json")
KEPT = ("id", "title", "symptom", "pitfall", "clause", "family")


def of_cells(cells):
    """Failed check -> feature, of some tests."""
    found = {}
    for cell in cells.values():
        for check in cell["failed"]:
            found[check["id"]] = diagnose.feature(check)
    return dict(sorted(found.items()))


def fingerprints(matrix, by_id):
    """From a whole matrix without --strict."""
    rows = []
    for row in matrix["mutants"]:
        mutant = by_id[row["id"]]
        if not mutant.is_probe:
            rows.append({**{key: mutant.row[key] for key in KEPT}, "checks": of_cells(row["cells"])})
    return {"schema": "ol.fingerprints/1", "mutants": rows}


def proofs(matrix):
    """From a matrix with --strict."""
    engines = []
    for row in matrix["mutants"]:
        fails = sorted({check["id"] for cell in row["cells"].values() for check in cell["failed"]})
        engines.append({"id": row["id"], "kind": "mutant", "fails": fails})
    return {"schema": "ol.proofs/1", "engines": engines}


def beside(path, data, key, by_id):
    """The rows that a file has, with those of data in the place of their own, in the order of the catalogue."""
    rows = {row["id"]: row for row in json.loads(catalog.read(path))[key]}
    rows.update((row["id"], row) for row in data[key])
    return {**data, key: [rows[i] for i in by_id if i in rows]}


def dumps(data, key):
    """One line for each entry of the list, so that changes can be read."""
    head = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in data.items() if k != key)
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in data[key])
    return f'{{{head}, "{key}": [\n{rows}\n]}}\n'


def stale(matrix, by_id):
    """What of a strict run differs from the fingerprints, as far as the run looked: a sentence for each mutant."""
    strict = {c["id"] for test in catalog.judge_catalog() for c in test["checks"] if c["strict"]}
    try:
        kept = {row["id"]: row["checks"] for row in json.loads(catalog.read(PATH))["mutants"]}
    except OSError:
        return ["there are no fingerprints: mutants.py write makes them"]
    found = []
    for row in matrix["mutants"]:
        if row["id"] not in kept:
            if not by_id[row["id"]].is_probe and row["cells"]:
                found.append(f"{row['id']} has no fingerprint")
            continue
        for test, cell in row["cells"].items():
            # Some checks are evaluated more often with --strict, so shares are not compared.
            seen = {c["id"]: {**diagnose.feature(c), "share": 0} for c in cell["failed"]
                    if c["id"] not in strict and not diagnose.names_only(c)}
            want = {c: {**way, "share": 0} for c, way in kept[row["id"]].items() if c.startswith(test + ".")}
            if seen != want and cell["class"] != "timeout":
                differ = sorted(c for c in set(seen) | set(want) if seen.get(c) != want.get(c))
                found.append(f"{row['id']}: the fingerprint of {', '.join(differ)} is another")
    return found
