"""Shards of one run to one log: the same engine, goldens, catalogue and mode; no test twice, none
missing. The shards of a matrix of mutants go to the code that made them."""
import importlib.util
import json
import os
import sys

from .log import CLASSES, Log, Stop, worse_exit

SAME = (("harness", "version"), ("catalog", "sha256"), ("engine", "sha256"), ("engine", "borrowed"),
        ("mode", "strict"), ("mode", "fresh_seed"))


def _check_same(first, log):
    for part, key in SAME:
        one, other = first.header[part].get(key), log.header[part].get(key)
        if one != other:
            raise Stop(2, f"{log.where}: {part} {key} is {other}, in {first.where} it is {one}")
    if first.header["goldens"] != log.header["goldens"]:
        raise Stop(2, f"{log.where} was made with other goldens than {first.where}")


def _set_blocked(tests):
    """Who blocks whom is seen only when all shards are together."""
    for record in tests.values():
        blockers = [n for n in record.get("depends") or []
                    if n in tests and tests[n]["class"] != "pass"]
        if record["class"] in ("fail", "blocked") and blockers:
            record["class"], record["blocked_by"] = "blocked", blockers


def _footer(logs, tests, expected):
    totals = {c: sum(t["class"] == c for t in tests.values()) for c in CLASSES}
    code, faults = 0, []
    for log in logs:
        code = worse_exit(code, log.exit_code)
        faults += [log.fault] if log.fault else []
    complete = len(tests) == expected
    verdict = {0: "pass", 1: "fail", 70: "harness-error"}.get(code, "ungradable")
    return {"kind": "footer", "totals": totals, "executed": len(tests), "selected": len(tests),
            "expected": expected, "complete": complete, "verdict": verdict, "exit_code": code,
            "fault": faults[0] if faults else None,
            "wall_ms": sum(log.footer.get("wall_ms", 0) for log in logs),
            "judge": {"cpu_ms": sum((log.footer.get("judge") or {}).get("cpu_ms", 0)
                                    for log in logs),
                      "max_rss_kb": max((log.footer.get("judge") or {}).get("max_rss_kb", 0)
                                        for log in logs)}}


def _load(root, name):
    """A module of the folder of mutants, by its place, since its name says little."""
    path = os.path.join(root, "mutants", name + ".py")
    spec = importlib.util.spec_from_file_location("mutants_" + name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _diagnose(log):
    """What the shards were said to look like was said of a part each."""
    try:
        module = _load(log.catalog.root, "diagnose")
        answer = module.answer(list(log.tests.values()), module.load())
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as why:
        answer = {"lines": [f"not compared with the known pitfalls: {why}"], "mutant_like": {}}
    for name, like in answer.pop("mutant_like").items():
        log.tests[name]["cause"] = dict(log.tests[name]["cause"], mutant_like=like)
    log.footer["diagnosis"] = answer


def is_matrix(path):
    """Is the file a matrix of mutants, and no log?"""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("schema") == "ol.matrix/1"


def merge_matrices(paths, root):
    """One matrix of shards, as text: what `ol mutants merge` gives."""
    sys.path.insert(0, os.path.join(root, "mutants"))
    module = _load(root, "report")
    try:
        return module.dumps(module.merge(paths))
    except module.Refused as why:
        raise Stop(2, str(why)) from None


def merge(logs, partial=False):
    """One log of all. `partial`: tests may be missing; the result is incomplete then."""
    first = logs[0]
    tests = {}
    for log in logs:
        _check_same(first, log)
        if log.header["mode"].get("case") is not None:
            raise Stop(2, f"{log.where} is a run of one case, which is no shard")
        for name, record in log.tests.items():
            if name in tests:
                raise Stop(2, f"{log.where}: {name} is in two of the logs")
            tests[name] = dict(record)
    names = list(first.catalog.tests)
    missing = [n for n in names if n not in tests]
    if missing and not partial:
        raise Stop(2, f"no log has {', '.join(missing[:3])}{' and more' if missing[3:] else ''}; "
                   "--partial merges what there is")
    order = sorted(tests, key=lambda n: names.index(n) if n in names else len(names))
    tests = {n: dict(tests[n], seq=i) for i, n in enumerate(order, 1)}
    _set_blocked(tests)
    header = dict(first.header, mode=dict(first.header["mode"], selected=order,
                                          complete=not missing),
                  started=min(log.header.get("started", "") for log in logs))
    log = Log(header, tests, _footer(logs, tests, len(names)), first.catalog, "the merged log")
    if log.exit_code == 1 and any("diagnosis" in part.footer for part in logs):
        _diagnose(log)
    return log
