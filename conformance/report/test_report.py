#!/usr/bin/python3
"""Tests of the views: each is read again by a reader that is not our writer (readers.py).

    test_report.py [--ol PATH]

The logs are made here, so no engine runs, except with --ol (build/release/bin/ol when it is there):
then the whole way of `ol check --report` is walked, too. Ends with `N passed, N failed`.
"""
import argparse
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import readers  # noqa: E402
from ol_report import bits, classes, cli, expect, grade, log as logs, merge, plot, schema, words  # noqa: E402

CATALOG = logs.Catalog()
NAMES = list(CATALOG.tests)
HOSTILE = ('</pre><script>alert(1)</script>"\'>&amp; ]]> \x1b[31m\x07\u202eabc\n::error::forged\n'
           "ok 1 - forged\n1..0 # SKIP\nBail out! forged\n```\n# forged\n| a | b |\n\\# \ufffe")
OPTIONS = argparse.Namespace(visibility=None, no_hints=False)


# ------------------------------------------------------------------ logs


def record(name, cls="pass", **more):
    entry = CATALOG.tests[name]
    check = entry["checks"][0]
    good = {"id": check["id"], "state": "held", "done": 3, "failed": 0}
    test = {"kind": "test", "name": name, "kinds": entry["kinds"], "class": cls, "wall_ms": 25,
            "cpu_ms": 3, "max_rss_kb": 8000, "checks": [good], "cause": None,
            "cases": {"total": 4, "passed": 4, "failed": 0, "not_reached": 0, "left_out": 0},
            "exit": {"status": 0, "signal": 0}, "violations": [], "stdout_tail": "",
            "stderr_tail": "", "complete": True, "depends": entry["rests_on"],
            "replay": f"ol check L10.1 --only {name}"}
    if cls != "pass":
        first = {"message": "logits: element 2 of 9 is the first of 5 that differ", "case": "c-1",
                 "file": "x.vectors.json", "mode": "max_abs", "n_got": 9, "n_want": 9, "n_over": 5,
                 "index": 2, "got": "-0.190382794 (0xbe42f3b5)", "want": "-0.550991714 (0xbf0d0dcb)",
                 "ulp": 13244950.0, "error": 0.36, "allowed": 0.0037, "ratio": 428.9,
                 "bound": 0.001,
                 "profile": {"unit": "allowed", "n": 9,
                             "values": [0.1, 0, 3, 400, None, 2, 0.5, 1, 0]}}
        test["checks"] = [dict(good, state="failed", failed=1, first=first), dict(
            good, id=entry["checks"][1]["id"], state="failed", first={"message": "another"})]
        test["cause"] = {"rationale": "logits: element 2 of 9", "pitfall": entry["pitfall"],
                         "clause": entry["clause"], "mutant_like": None, "check": check["id"],
                         "what": check["what"], "first_divergence": first, "case": "c-1"}
    test.update(more)
    return test


def header(**mode):
    return {"schema": "ol.result/1", "kind": "header",
            "harness": {"name": "ol", "version": "0.1.0", "commit": ""}, "module": "L10.1",
            "catalog": {"tests": 24, "sha256": "c" * 64},
            "goldens": [{"path": "MANIFEST.json", "sha256": "a" * 64},
                        {"path": "f16.vectors.json", "suite": "f16", "sha256": "b" * 64}],
            "engine": {"kind": "library", "given": "mine.so", "name": "mine", "version": "1",
                       "language": "C", "abi": 65536, "sha256": "e" * 64, "sanitized": False,
                       "borrowed": ""},
            "host": {"os": "Linux", "release": "6", "arch": "x86_64", "cpu": "x", "compiler": "cc"},
            "mode": {"complete": True, "strict": False, "selected": NAMES, "case": None,
                     "fresh_seed": None, "sandbox": "own process, limits, own uid, seccomp",
                     "sandbox_lacks": "", "limits": {"wall_s": 60.0}, **mode},
            "started": "2026-01-02T03:04:05Z"}


def footer(tests, code=None, fault=None):
    totals = {c: sum(t["class"] == c for t in tests) for c in logs.CLASSES}
    if code is None:
        code = 70 if totals["harness-error"] else 0 if totals["pass"] == len(tests) else 1
    verdict = {0: "pass", 1: "fail", 70: "harness-error"}.get(code, "ungradable")
    return {"kind": "footer", "totals": totals, "executed": len(tests), "selected": len(tests),
            "expected": 24, "complete": len(tests) == 24, "verdict": verdict, "exit_code": code,
            "fault": fault, "wall_ms": 1234, "judge": {"cpu_ms": 900, "max_rss_kb": 9000}}


def dump(head, tests, foot):
    """As the judge writes it: not by our writer."""
    body = b"".join(json.dumps(v).encode() + b"\n" for v in [head, *tests])
    if foot is None:
        return body
    foot = dict(foot, sha256_of_lines=hashlib.sha256(body).hexdigest())
    return body + json.dumps(foot).encode() + b"\n"


def make(changes=None, code=None, fault=None, names=NAMES, engine=None, **mode):
    """Bytes of a log in which the named tests have the given class or record."""
    changes = changes or {}
    tests = []
    for i, name in enumerate(names, 1):
        change = changes.get(name, "pass")
        test = change if isinstance(change, dict) else record(name, change)
        tests.append(dict(test, seq=i))
    head = header(**({"complete": len(names) == 24, "selected": names} | mode))
    head["engine"].update(engine or {})
    return dump(head, tests, footer(tests, code, fault))


def parse(data, unfinished=False):
    return logs.Log.parse(data, "log", CATALOG, unfinished)


def every_class():
    kinds = [c for c in logs.CLASSES if c not in ("harness-error",)]
    changes = {n: kinds[i % len(kinds)] for i, n in enumerate(NAMES)}
    changes[NAMES[8]] = record(NAMES[8], "blocked", blocked_by=[NAMES[1]])
    return make(changes)


def hostile():
    cause = dict(record(NAMES[0], "fail")["cause"], rationale=HOSTILE, case=HOSTILE)
    cause["first_divergence"] = {"message": HOSTILE, "case": HOSTILE, "file": HOSTILE,
                                 "got": HOSTILE, "want": HOSTILE, "index": 1, "n_want": 2,
                                 "n_over": 1}
    bad = record(NAMES[0], "crash", stdout_tail=HOSTILE * 40, stderr_tail=HOSTILE, cause=cause,
                 replay=HOSTILE)
    return make({NAMES[0]: bad}, engine={"given": HOSTILE, "name": HOSTILE, "borrowed": HOSTILE})


UNBUILT = "kv.c:12:5: error: expected ';' before '}' token\nkv.c:14:1: warning: unused\n"


def unbuilt():
    empty = {n: dict(record(n, "no-result"), checks=[], cause={
        "rationale": "the engine does not build", "pitfall": "p", "clause": "kv#states"})
        for n in NAMES}
    return make(empty, 3, "hw/src does not compile:\n" + UNBUILT, engine={
        "kind": "sources", "given": "hw/src"})


def broken_golden():
    return dump(header(), [], footer([], 5, "kv.vectors.json: case 3: broken"))


def stub():
    return dump(header(), [], None)


SAMPLES = {"all pass": make, "every class": every_class, "hostile": hostile, "unbuilt": unbuilt,
           "broken golden": broken_golden, "stub": stub,
           "selection": lambda: make({NAMES[3]: "fail"}, names=NAMES[:5]),
           "harness error": lambda: make({NAMES[3]: "harness-error"})}


def view(data, name, unfinished=False, options=OPTIONS):
    return cli.render(parse(data, unfinished), name, options).decode("utf-8")


def sample_view(sample, name):
    return view(SAMPLES[sample](), name, sample == "stub")


# ------------------------------------------------------------------ tests

TESTS = []


def test(function):
    TESTS.append(function)
    return function


def refused(code, action, word=""):
    """The action ends with this exit code and says the word."""
    try:
        action()
    except logs.Stop as stop:
        assert stop.code == code, f"exit {stop.code}, not {code}: {stop}"
        assert word in str(stop), f"{stop} does not say {word}"
        return str(stop)
    raise AssertionError(f"nothing was refused where exit {code} was due")


@test
def broken_logs_are_refused():
    good = make()
    lines = good.split(b"\n")
    refused(70, lambda: parse(b"\n".join(lines[:-2]) + b"\n"), "no footer")
    refused(70, lambda: parse(good[:-1]), "cut")
    refused(70, lambda: parse(good.replace(b'"wall_ms": 25', b'"wall_ms": 26', 1)), "changed")
    refused(70, lambda: parse(b""), "header")
    refused(70, lambda: parse(b"\xff\n" + good), "line 1")
    refused(70, lambda: parse(b"[" * 100000 + b"\n"), "line 1")
    refused(70, lambda: parse(good.replace(b'"kind": "test"', b'"kind": "test", "kind": "test"', 1)),
            "repeated")
    refused(70, lambda: parse(b"\n".join(lines[1:])), "header")
    tests = [record(n) for n in NAMES]
    refused(70, lambda: parse(dump(header(), tests + tests[:1], footer(tests))), "twice")
    wrong = footer(tests)
    wrong["totals"] = dict(wrong["totals"], fail=1)
    refused(70, lambda: parse(dump(header(), tests, wrong)), "totals")
    refused(70, lambda: parse(dump(header(), [dict(tests[0], **{"class": "skip"})],
                                   footer(tests[:1]))), "class")
    assert parse(good).exit_code == 0


@test
def a_log_comes_out_as_it_went_in():
    for sample in SAMPLES:
        if sample != "stub":
            assert cli.render(parse(SAMPLES[sample]()), "jsonl", OPTIONS) == SAMPLES[sample]()


@test
def tap_is_tap_14():
    for sample in SAMPLES:
        read = readers.tap(sample_view(sample, "tap"))
        if sample in ("broken golden", "harness error", "stub"):
            assert read["bail"] is not None, sample
            continue
        log = parse(SAMPLES[sample](), True)
        assert read["bail"] is None and len(read["points"]) == len(log.selected)
        for (ok, name, block), wanted in zip(read["points"], log.selected):
            cls = log.tests[wanted]["class"] if wanted in log.tests else "no-result"
            assert name == wanted and ok == (cls == "pass"), (name, ok, cls)
            assert ok or block["class"] == cls
            severity = {"fail": "fail", "refused-wrong": "fail", "blocked": "blocked"}
            assert ok or block["severity"] == severity.get(cls, "error")
    block = readers.tap(sample_view("every class", "tap"))["points"][1][2]
    assert block["found"] == "-0.190382794 (0xbe42f3b5)" and block["first_divergence"]["index"] == 2


@test
def the_tap_reader_is_strict():
    good = sample_view("every class", "tap")
    for old, new in (("TAP version 14\n", ""), ("1..24\n", ""), ("ok 1 - ", "ok 2 - "),
                     ("  ...\n", ""), ("ok 1 - ", "ok 1 - # SKIP "), ("1..24", "1..25")):
        try:
            readers.tap(good.replace(old, new, 1))
        except readers.Bad:
            continue
        raise AssertionError(f"the reader takes {old!r} -> {new!r}")


@test
def junit_is_junit():
    for sample in SAMPLES:
        log = parse(SAMPLES[sample](), True)
        for name, tag, kind in readers.junit(sample_view(sample, "junit")):
            cls = log.tests[name]["class"] if name in log.tests else None
            if cls == "pass":
                assert tag is None
            elif cls in ("fail", "refused-wrong"):
                assert (tag, kind) == ("failure", cls)
            else:
                wanted = {None: kind, "harness-error": "harness"}.get(cls, cls)
                assert (tag, kind) == ("error", wanted), (name, cls, tag, kind)


@test
def gradescope_is_gradescope():
    for sample in SAMPLES:
        log = parse(SAMPLES[sample](), True)
        value = readers.gradescope(sample_view(sample, "gradescope"))
        if sample in ("broken golden", "harness error", "stub"):
            assert "tests" not in value and "score" not in value and value["output"], sample
            continue
        assert [t["name"] for t in value["tests"]] == log.selected
        for t in value["tests"]:
            passed = t["name"] in log.tests and log.tests[t["name"]]["class"] == "pass"
            assert (t["status"] == "passed") == passed and t["score"] == (1 if passed else 0)
            assert t["number"] == str(CATALOG.tests[t["name"]]["number"])
        assert "leaderboard" not in value
    shown = readers.gradescope(view(make(), "gradescope", options=argparse.Namespace(
        visibility="after_published", no_hints=False)))
    assert shown["visibility"] == shown["tests"][0]["visibility"] == "after_published"


@test
def exercism_is_exercism():
    for sample, status in (("all pass", "pass"), ("every class", "fail"), ("hostile", "fail"),
                           ("unbuilt", "error"), ("broken golden", "error"), ("stub", "error"),
                           ("harness error", "error")):
        value = readers.exercism(sample_view(sample, "exercism"))
        assert value["status"] == status, sample
        assert status == "error" or len(value["tests"]) == 24
    assert "expected ';'" in readers.exercism(sample_view("unbuilt", "exercism"))["message"]


@test
def prairielearn_is_prairielearn():
    for sample, gradable, score in (("all pass", True, 1), ("every class", True, 3 / 24),
                                    ("unbuilt", False, 0), ("broken golden", False, 0),
                                    ("stub", False, 0), ("harness error", False, 0)):
        value = readers.prairielearn(sample_view(sample, "prairielearn"))
        assert value["gradable"] == gradable and abs(value["score"] - score) < 1e-9, sample
    long = make({n: record(n, "crash", stderr_tail="\x01\u00e9" * (1 << 15)) for n in NAMES})
    assert len(readers.prairielearn(view(long, "prairielearn"))["tests"]) == 24


@test
def github_is_workflow_commands():
    for sample in SAMPLES:
        found = readers.github(sample_view(sample, "github"))
        assert found and not any(f[2].startswith("forged") for f in found), sample
    many = readers.github(view(make({n: "fail" for n in NAMES}), "github"))
    assert len(many) == 10 and "15 more" in many[-1][2]
    lines = readers.github(sample_view("unbuilt", "github"))
    assert lines[0] == ("error", {"file": "hw/src/kv.c", "line": "12", "col": "5",
                                  "title": "compiler"}, "expected ';' before '}' token")
    assert readers.github(sample_view("all pass", "github"))[0][0] == "notice"


@test
def markdown_keeps_engines_in_code():
    for sample in SAMPLES:
        outside, rows, blocks = readers.markdown(sample_view(sample, "md"))
        bare = outside.replace("<br>", "")
        for i, c in enumerate(bare):
            assert c not in "<>`" or bare[i - 1] == "\\", bare[max(0, i - 40):i + 20]
        log = parse(SAMPLES[sample](), True)
        if log.footer and log.tests and log.exit_code != 3:
            assert len(rows) == len(log.tests) + 2 and len(blocks) == len(log.failures)
    huge = make({n: record(n, "crash", stderr_tail="x" * 100000) for n in NAMES})
    readers.markdown(view(huge, "md"))


@test
def html_is_one_inert_page():
    for sample in SAMPLES:
        log = parse(SAMPLES[sample](), True)
        page = readers.Page(sample_view(sample, "html"))
        assert page.headings[0] == words.verdict_line(log), "the verdict is not at the top"
        wanted = [t["name"] for t in log.failures] if log.exit_code != 3 and log.footer else []
        assert page.sections == wanted, sample
        if log.tests and log.exit_code != 3:
            assert page.tags.count("tr") >= len(log.tests) + 1
        if sample not in ("stub",):
            assert "What to do next" in page.headings
    text = " ".join(readers.Page(sample_view("hostile", "html")).words)
    assert "<script>alert(1)</script>" in text, "text of an engine is lost"
    whole = sample_view("hostile", "html")
    assert "<script" not in whole and "\u202e" not in whole and "\x1b" not in whole


@test
def html_draws_the_first_divergence():
    page = sample_view("every class", "html")
    assert page.count('<svg class="plot"') == 24 - 3 and "19 of 32 bits differ" in page
    want, got = bits.Value("-0.550991714 (0xbf0d0dcb)"), bits.Value("-0.190382794 (0xbe42f3b5)")
    parts = bits.fields(want, got)
    assert "".join(p[1] for p in parts) == f"{0xbf0d0dcb:032b}"
    assert "".join(p[2] for p in parts) == f"{0xbe42f3b5:032b}"
    assert [len(p[1]) for p in parts] == [1, 8, 8, 8, 7]
    assert [p[0] for p in parts] == ["sign", "exponent", "mantissa", "", ""]


@test
def bit_patterns_are_told_apart():
    for text, width, is_float in (
            ("1.001 (0x3c01)", 16, True), ("212 (0xd4)", 8, False), ("7 (0x00000007)", 32, False),
            ("-0 (0x8000)", 16, True), ("inf (0x7c00)", 16, True), ("nan (0x7fc00000)", 32, True),
            ("-0.03597629974819324 (0xbfa26b7c4db2fc8b)", 64, True),
            ("5.9605e-08 (0x0001)", 16, True), ("1 (0x3f800000)", 32, True),
            ("1065353216 (0x3f800000)", 32, False)):
        value = bits.Value(text)
        assert value.ok and value.width == width, text
        assert (value.is_float() and not value.is_integer()) == is_float, text
    assert not bits.Value("-3").ok and not bits.Value("x (0xzz)").ok
    assert bits.fields(bits.Value("3"), bits.Value("4")) == []
    assert bits.fields(bits.Value("0 (0x00)"), bits.Value("0 (0x0000)")) == []


@test
def plots_show_what_is_there():
    def bars(values, unit):
        drawn = plot.draw({"unit": unit, "n": 100, "values": values}, 3)
        readers.Page(f"<svg>{drawn}</svg>".replace("<title>", "<text>").replace("</title>",
                                                                                 "</text>"))
        return [drawn.count(f'class="{c}"') for c in ("po", "pk", "pn")]
    assert bars([0.5, 2, 0, None, 0, 0, 0, 0], "allowed") == [1, 1, 1]
    assert bars([0, 1e16, 1, 0, 0, 0, 0, 0], "ulp") == [2, 0, 0]
    assert bars([0.25, 0, 1, 1, 0, 0, 0, 0], "differs") == [3, 0, 0]
    assert bars([None] * 8, "ulp") == [0, 0, 8]
    for bad in (None, {}, {"unit": "x", "n": 9, "values": [1] * 9},
                {"unit": "ulp", "n": 9, "values": [1]}, {"unit": "ulp", "n": 9, "values": ["1"] * 9}):
        assert plot.draw(bad, 0) == ""


@test
def text_says_the_verdict():
    for sample in SAMPLES:
        text = sample_view(sample, "text")
        log = parse(SAMPLES[sample](), True)
        assert log.footer is None or f"verdict   {log.verdict}, exit code {log.exit_code}" in text


@test
def no_hints_means_none():
    log = parse(every_class())
    cli._strip_hints(log)
    for name in cli.FORMATS:
        out = cli.render(log, name, OPTIONS).decode()
        for entry in CATALOG.tests.values():
            assert entry["pitfall"] not in out, name


def looks_like_s03(names=NAMES):
    """A log of ol check with the diagnosis of s03."""
    with open(os.path.join(ROOT, "mutants", "fingerprints.json"), encoding="utf-8") as file:
        row = next(m for m in json.load(file)["mutants"] if m["id"] == "s03")
    name = "sampler_matches_l81_golden"
    bad = record(name, "fail")
    bad["checks"] = [{"id": c, "state": "failed", "class": way["class"], "done": 10000,
                      "failed": round(way["share"] * 10000), "first": dict(way, n_got=1, n_want=1)}
                     for c, way in row["checks"].items()]
    bad["cause"]["mutant_like"] = {"id": "s03", "text": f"s03: {row['title']}"}
    data = make({name: bad}, names=names)
    lines = data.split(b"\n")[:-1]
    tests = [json.loads(line) for line in lines[1:-1]]
    foot = dict(footer(tests), diagnosis={"names": ["s03"], "lines": [f"looks like s03: {row['title']}", "    SYMPTOM"]})
    return row, dump(json.loads(lines[0]), tests, foot)


@test
def every_view_names_the_pitfall():
    row, data = looks_like_s03()
    for name in cli.FORMATS:
        assert f"s03: {row['title']}" in view(data, name), name
    for name in ("text", "md", "html"):
        assert "SYMPTOM" in view(data, name), name
    log = parse(data)
    cli._strip_hints(log)
    for name in cli.FORMATS:
        out = cli.render(log, name, OPTIONS).decode()
        assert "s03" not in out and "SYMPTOM" not in out, name
    none = record(NAMES[0], "fail")
    none["cause"]["mutant_like"] = {"id": None, "text": "none of the known pitfalls"}
    assert words.like(none) == "none of the known pitfalls" and words.named(none) == ""


@test
def merged_shards_are_diagnosed_anew():
    row, a = looks_like_s03(NAMES[:12])
    b = make(names=NAMES[12:])
    merged = merge.merge([parse(b), parse(a)])
    assert merged.footer["diagnosis"]["names"] == ["s03"], merged.footer
    assert merged.tests["sampler_matches_l81_golden"]["cause"]["mutant_like"]["symptom"] == row["symptom"]
    assert f"looks like s03: {row['title']}" in words.diagnosis(parse(merged.dump()))
    plain = make({NAMES[0]: "fail"}, names=NAMES[:12])
    assert "diagnosis" not in merge.merge([parse(plain), parse(b)]).footer
    a_log = parse(a)
    a_log.catalog = logs.Catalog()
    a_log.catalog.root = "/nonexistent"
    merged = merge.merge([a_log, parse(b)])
    assert merged.footer["diagnosis"]["lines"][0].startswith("not compared with the known pitfalls: ")
    assert merged.exit_code == 1 and parse(merged.dump()).exit_code == 1


# ------------------------------------------------------------------ grades


def policy(**value):
    return grade.Policy({"schema": "ol.policy/1", **value}, CATALOG)


def graded(data, **value):
    log = parse(data)
    cli.settle(log, policy(**value), None)
    return log


@test
def points_are_what_the_policy_says():
    log = graded(make({NAMES[0]: "fail"}), points={"default": 2, NAMES[0]: 10})
    assert log.footer["grade"]["points"] == 46 and log.footer["grade"]["max_points"] == 56
    assert log.tests[NAMES[0]]["max_points"] == 10 and log.tests[NAMES[0]]["points"] == 0
    assert parse(log.dump()).footer["grade"] == log.footer["grade"], "the graded log is no log"
    log = graded(make({NAMES[0]: "fail"}), scale=100)
    assert abs(log.footer["grade"]["points"] - 100 * 23 / 24) < 1e-3
    groups = [{"title": "kv", "tests": ["kv_*"], "points": 40, "all_or_nothing": True}]
    log = graded(make({"kv_pool_rejects_zero_capacity": "fail"}), groups=groups)
    assert log.footer["grade"]["points"] == 20 and log.footer["grade"]["max_points"] == 60
    assert log.footer["grade"]["groups"] == [{"title": "kv", "points": 0, "max_points": 40}]
    assert graded(make(), groups=groups).footer["grade"]["points"] == 60


@test
def blocked_tests_can_be_left_out():
    blocked = record(NAMES[2], "blocked", blocked_by=[NAMES[1]])
    data = make({NAMES[1]: "fail", NAMES[2]: blocked})
    assert graded(data).footer["grade"]["points"] == 22
    got = graded(data, blocked="excluded").footer["grade"]
    assert abs(got["points"] - 24 * 22 / 23) < 1e-3 and got["excluded"] == [NAMES[2]]
    every = make({n: record(n, "blocked", blocked_by=[NAMES[0]]) for n in NAMES})
    assert graded(every, blocked="excluded").footer["grade"]["points"] == 0


@test
def fresh_inputs_are_told():
    """The seed, and whose word what was expected of the models is, in every view that has a place for it."""
    log = parse(make(fresh_seed="20417", fresh={"reference": "tl 1.2.3", "second": True, "apart": 0.1}))
    for name in ("text", "tap", "gradescope", "prairielearn", "md", "html"):
        shown = cli.render(log, name, OPTIONS).decode().replace("\\", "")
        assert "20417" in shown and "reference engine (tl 1.2.3)" in shown, (name, shown[:2000])
    assert '"fresh_seed" value="20417"' in cli.render(log, "junit", OPTIONS).decode()
    part = cli.render(parse(make(fresh_seed="20417", fresh={"models": 1})), "text", OPTIONS).decode()
    assert "20417" in part and "reference engine" not in part, part


@test
def minimum_and_visibility_and_leaderboard():
    data = make({NAMES[0]: "fail"})
    assert graded(data, minimum=23).footer["grade"]["reached"] is True
    assert graded(data, minimum=24).footer["grade"]["reached"] is False
    log = graded(data, groups=[{"title": "h", "tests": ["kv_*"], "visibility": "hidden"}],
                 leaderboard=["speed", "passed", "mutants"])
    value = readers.gradescope(cli.render(log, "gradescope", OPTIONS).decode())
    hidden = [t["name"] for t in value["tests"] if t.get("visibility") == "hidden"]
    assert hidden == [n for n in NAMES if n.startswith("kv_")]
    rows = {r["name"]: r["value"] for r in value["leaderboard"]}
    assert list(rows) == ["engine CPU seconds", "tests passed", "named mutants that it is not"]
    every = {n: len(t["mutants"]) for n, t in CATALOG.tests.items()}
    assert rows["named mutants that it is not"] == sum(every.values()) - every[NAMES[0]] > 40
    assert value["score"] == 23
    assert readers.prairielearn(cli.render(log, "prairielearn", OPTIONS).decode())["score"] == 23 / 24
    for name in cli.FORMATS:
        cli.render(log, name, OPTIONS)


@test
def some_runs_have_no_grade():
    for data, value, code, word in (
            (make(names=NAMES[:3]), {}, 2, "incomplete"),
            (make(engine={"borrowed": "kv, model"}), {"borrowed": ["kv"]}, 2, "model"),
            (make(), {"sandbox": ["landlock"]}, 5, "landlock"),
            (make(), {"fresh": True}, 2, "--fresh"),
            (make({NAMES[0]: "harness-error"}), {}, 70, "judge"),
            (broken_golden(), {}, 5, "")):
        log = graded(data, **value)
        assert log.footer["grade"] is None and log.exit_code == code, (word, log.exit_code)
        assert word in log.fault
        assert "tests" not in readers.gradescope(cli.render(log, "gradescope", OPTIONS).decode())
    assert graded(make(engine={"borrowed": "kv"}), borrowed=["kv"]).exit_code == 0
    assert graded(make(fresh_seed="7"), fresh=True, sandbox=["seccomp"]).exit_code == 0
    assert graded(unbuilt()).footer["grade"]["points"] == 0


@test
def broken_policies_are_exit_5():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "p.json")
        for text, word in (
                ("{", "no JSON"), ("[]", "object"), ("{}", "no schema"),
                ('{"schema": "ol.policy/2"}', "ol.policy/1"),
                ('{"schema": "ol.policy/1", "schema": "ol.policy/1"}', "repeated"),
                ('{"schema": "ol.policy/1", "pionts": {}}', "pionts"),
                ('{"schema": "ol.policy/1", "points": {"hand_exmaple_sampling": 1}}', "hand_example_s"),
                ('{"schema": "ol.policy/1", "points": {"default": -1}}', "at least 0"),
                ('{"schema": "ol.policy/1", "points": {"default": true}}', "number"),
                ('{"schema": "ol.policy/1", "points": {"default": NaN}}', "NaN"),
                ('{"schema": "ol.policy/1", "points": {"default": 0}}', "no test has points"),
                ('{"schema": "ol.policy/1", "groups": [{"title": "a", "tests": ["zz*"]}]}', "zz*"),
                ('{"schema": "ol.policy/1", "groups": [{"title": "a", "tests": []}]}', "empty"),
                ('{"schema": "ol.policy/1", "groups": [{"title": "a", "tests": ["kv*"]}, '
                 '{"title": "b", "tests": ["*zero*"]}]}', "two groups"),
                ('{"schema": "ol.policy/1", "minimum": 25}', "minimum"),
                ('{"schema": "ol.policy/1", "blocked": "free"}', "excluded")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            refused(5, lambda: grade.Policy.load(path, CATALOG), word)
        refused(5, lambda: grade.Policy.load(path + "x", CATALOG), "No such file")


@test
def expectations_are_read_both_ways():
    one = {"test": NAMES[0], "class": "fail", "reason": "known"}

    def run(entries, changes):
        log = parse(make(changes))
        footer_of = log.footer
        footer_of["expect"] = expect.apply(entries, log)
        log.raw = None
        return footer_of["expect"]
    assert run([one], {NAMES[0]: "fail"})["surprises"] == []
    assert "take it off" in run([one], {})["surprises"][0]
    assert "crash" in run([one], {NAMES[0]: "crash"})["surprises"][0]
    assert "nobody expected" in run([], {NAMES[1]: "fail"})["surprises"][0]
    other = dict(one, check=CATALOG.tests[NAMES[0]]["checks"][1]["id"])
    assert "was expected" in run([other], {NAMES[0]: "fail"})["surprises"][0]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "e.json")
        for entries, code in (([one], 0), ([], 1)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"schema": "ol.expect/1", "failures": entries}, file)
            log = parse(make({NAMES[0]: "fail"}))
            cli.settle(log, None, expect.load(path, CATALOG))
            assert log.exit_code == code
            assert log.verdict == ("expected" if code == 0 else "fail")
            assert parse(log.dump()).exit_code == code
        for entries, word in (([dict(one, test="x")], "no test"), ([one, one], "twice"),
                              ([dict(one, reason="")], "empty"), ([dict(one, check="a.b")], "check"),
                              ([{"test": NAMES[0]}], "class")):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"schema": "ol.expect/1", "failures": entries}, file)
            refused(5, lambda: expect.load(path, CATALOG), word)


# ------------------------------------------------------------------ shards and classes


@test
def shards_become_one_log():
    a = parse(make({NAMES[1]: "fail"}, names=NAMES[:12]))
    b = parse(make({NAMES[12]: "fail"}, names=NAMES[12:]))
    whole = merge.merge([b, a])
    again = parse(whole.dump())
    assert again.complete and list(again.tests) == NAMES and again.exit_code == 1
    assert [t["seq"] for t in again.tests.values()] == list(range(1, 25))
    refused(2, lambda: merge.merge([a, a]), "two of the logs")
    refused(2, lambda: merge.merge([a]), "no log has")
    part = merge.merge([a], partial=True)
    assert not part.complete and parse(part.dump()).header["mode"]["complete"] is False
    other = parse(make(names=NAMES[12:], engine={"sha256": "f" * 64}))
    refused(2, lambda: merge.merge([a, other]), "sha256")
    fresh = parse(make(names=NAMES[12:], fresh_seed="1"))
    refused(2, lambda: merge.merge([a, fresh]), "fresh_seed")
    # 3 rests on 2, which is in the other shard: only together it is seen to be blocked.
    one = parse(make({NAMES[1]: "fail"}, names=NAMES[:2]))
    two = parse(make({NAMES[2]: "fail"}, names=NAMES[2:]))
    assert merge.merge([one, two]).tests[NAMES[2]]["class"] == "blocked"
    harness = parse(make({NAMES[13]: "harness-error"}, names=NAMES[12:]))
    assert merge.merge([a, harness]).exit_code == 70


def class_rows(folder):
    old = header()
    old["goldens"][1]["sha256"] = "0" * 64
    fresh = header(fresh_seed="7")    # its goldens were drawn for it: they are of no day
    fresh["goldens"] = old["goldens"]
    tests = [record(n) for n in NAMES]
    files = {"anna": make(), "bert": make({NAMES[0]: "fail", NAMES[2]: "crash"}),
             "carl": make({NAMES[0]: "fail"}), "dora": make()[:-40], "emil": unbuilt(),
             "fritz": broken_golden(), "gabi": dump(old, tests, footer(tests)),
             "hans": dump(fresh, tests, footer(tests)),
             "=cmd|x": make(names=NAMES[:3])}
    paths = []
    for name, data in files.items():
        paths.append(os.path.join(folder, name + ".jsonl"))
        with open(paths[-1], "wb") as file:
            file.write(data)
    rows = classes.read(paths, CATALOG)
    classes.mark_old(rows, {"f16.vectors.json": "b" * 64, "MANIFEST.json": "a" * 64})
    return rows


@test
def a_class_is_one_table():
    with tempfile.TemporaryDirectory() as folder:
        rows = class_rows(folder)
    assert [r.name for r in rows if r.counts] == ["anna", "bert", "carl", "emil", "gabi", "hans"]
    assert classes.pass_rate(rows, NAMES[0]) == (3, 6)
    found = classes.pitfalls(rows)
    assert found[0][0] == NAMES[0] and found[0][3] == ["bert", "carl"]
    assert [r.name for r in rows if r.old] == ["gabi"]
    assert classes.touched(CATALOG, rows) == ["f16_rounds_to_nearest_even"]
    table = list(csv.reader(io.StringIO(classes.to_csv(rows, CATALOG))))
    assert len({len(r) for r in table}) == 1 and len(table) == 1 + 9 + 1
    assert table[0][11:] == NAMES
    by_name = {r[0]: r for r in table}
    assert by_name["bert"][11] == "fail" and by_name["bert"][3] == "22"
    assert by_name["gabi"][9] == "f16.vectors.json" and by_name["dora"][1] == "broken"
    assert by_name["pass rate"][11] == "0.5000"
    assert all(c[:1] not in "=+@" for r in table[1:] for c in r if c), "a cell is a formula"
    page = readers.Page(classes.to_html(rows, CATALOG))
    assert page.headings[0] == "9 submissions, 3 with every test passed"
    assert any("other goldens" in h for h in page.headings)
    text = classes.to_text(rows, CATALOG)
    assert "gabi: f16.vectors.json" in text and "dora: " in text


@test
def names_of_submissions_tell_apart():
    assert classes.names_of(["a/x.jsonl", "a/y.jsonl"]) == ["x", "y"]
    assert classes.names_of(["a/log.jsonl", "b/log.jsonl"]) == ["a", "b"]
    assert classes.names_of(["a/log.jsonl", "c/a/log.jsonl"]) == ["a/log.jsonl", "c/a/log.jsonl"]


# ------------------------------------------------------------------ the pages


@test
def pages_are_true():
    """Links lead somewhere, the example of a policy is one, the words are those of the code."""
    import re
    for page in ("README.md", "docs/STAFF.md", "report/README.md", *(
            f"examples/{d}/README.md" for d in ("gradescope", "prairielearn", "github-classroom",
                                                "container", "parallel", "slurm"))):
        path = os.path.join(ROOT, "conformance", page)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for link in re.findall(r"\]\(([^)#]+)", text):
            assert os.path.exists(os.path.join(os.path.dirname(path), link)), (page, link)
        for anchor in re.findall(r"\]\(#([^)]+)\)", text):
            titles = [re.sub(r"[^a-z -]", "", h.lower()).replace(" ", "-")
                      for h in re.findall(r"^#+ (.*)$", text, re.M)]
            assert anchor in titles, (page, anchor)
        for block in re.findall(r"```json\n(.*?)```", text, re.S):
            grade.Policy(json.loads(block), CATALOG)
            assert not list(schema.faults(json.loads(block), json.load(
                open(os.path.join(HERE, "policy.schema.json"), encoding="utf-8"))))
    with open(os.path.join(ROOT, "conformance", "README.md"), encoding="utf-8") as file:
        text = file.read()
    assert all(name in text for name in (*cli.FORMATS, *logs.CLASSES))


# ------------------------------------------------------------------ the command line


def script(*args, stdin=b"", cwd=None):
    done = subprocess.run([sys.executable, "-I", "-B", os.path.join(HERE, "ol_report.py"), *args],
                          input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd)
    return done.returncode, done.stdout, done.stderr.decode()


@test
def the_command_line():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log.jsonl")
        with open(path, "wb") as file:
            file.write(every_class())
        for name in cli.FORMATS:
            code, out, err = script("convert", name, path)
            assert code == 0 and out == cli.render(parse(every_class()), name, OPTIONS), err
            assert script("render", name, stdin=every_class())[1] == out
        target = os.path.join(folder, "r.html")
        assert script("convert", "html", path, "-o", target)[0] == 0
        assert sorted(os.listdir(folder)) == ["log.jsonl", "r.html"], "something is left behind"
        code, _, err = script("convert", "html", path, "-o", os.path.join(folder, "no/r.html"))
        assert code == 70 and "cannot be written" in err
        assert script("convert", "pdf", path)[0] == 2 and script()[0] == 2
        assert script("convert", "html", path + "x")[0] == 2
        with open(path, "ab") as file:
            file.write(b"x")
        assert script("convert", "html", path)[0] == 70
        assert script("show", path)[0] == 70
        assert script("class", path)[0] == 70
        assert script("rules", "--grade", path)[0] == 5


# ------------------------------------------------------------------ with ol


def ol_tests(ol):
    """What only the whole way shows. Each is a function without arguments."""
    def run(*args, **more):
        return subprocess.run([ol, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, **more)

    def words_are_those_of_explain():
        for cls, meaning in words.CLASSES.items():
            assert meaning in run("explain", cls).stdout, cls
        for code, meaning in words.EXITS.items():
            assert meaning in run("explain", str(code)).stdout, code

    def every_name_is_explained():
        for name, entry in CATALOG.tests.items():
            said = run("explain", name).stdout
            assert entry["why"] in said and entry["pitfall"] in said, name
        for path in ("mutants/catalog.json", "mutants/probes/catalog.json"):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                mutants = json.load(file)["mutants"]
            for mutant in mutants:
                said = run("explain", mutant["id"]).stdout
                assert mutant["title"] in said and mutant["killer"] in said, mutant["id"]
        assert run("explain", "nothing").returncode == 4

    def every_format_in_one_run():
        with tempfile.TemporaryDirectory() as folder:
            targets = {f: os.path.join(folder, "r." + f) for f in cli.FORMATS}
            done = run("check", "L10.1", "--only", "hand_*", "--only", "pcg32*",
                       *(a for f, p in targets.items() for a in ("--report", f"{f}:{p}")))
            assert done.returncode == 0, done.stderr
            assert sorted(os.listdir(folder)) == sorted(os.path.basename(p)
                                                        for p in targets.values())
            read = {f: open(p, encoding="utf-8").read() for f, p in targets.items()}
            log = parse(read["jsonl"].encode())
            assert readers.tap(read["tap"])["plan"] == 2 and len(readers.junit(read["junit"])) == 2
            assert len(readers.gradescope(read["gradescope"])["tests"]) == 2
            readers.exercism(read["exercism"])
            readers.prairielearn(read["prairielearn"])
            readers.github(read["github"])
            readers.markdown(read["md"])
            assert readers.Page(read["html"]).headings[0] == words.verdict_line(log)
            # Both writers of JUnit say the same.
            assert readers.junit(view(read["jsonl"].encode(), "junit")) == readers.junit(read["junit"])

    def a_stub_from_the_first_moment():
        with tempfile.TemporaryDirectory() as folder:
            slow = os.path.join(folder, "slow.sh")
            with open(slow, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\nsleep 100\n")
            os.chmod(slow, 0o755)
            os.chmod(folder, 0o755)
            names = ("html", "gradescope", "tap", "md")
            targets = [os.path.join(folder, n) for n in names]
            child = subprocess.Popen([ol, "check", "L10.1", "--testee", slow, "--timeout", "3", *(
                a for n, t in zip(names, targets) for a in ("--report", f"{n}:{t}"))],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                deadline = time.monotonic() + 20
                while not all(map(os.path.exists, targets)) and time.monotonic() < deadline:
                    time.sleep(0.02)
                texts = [open(t, encoding="utf-8").read() for t in targets]
                assert child.poll() is None, "it ended before a stub could be seen"
                assert all(words.UNFINISHED in t for t in texts), texts
                assert not readers.gradescope(texts[1]).keys() & {"tests", "score"}
                assert readers.tap(texts[2])["bail"] and not readers.tap(texts[2])["points"]
                assert child.wait(60) == 1
                assert all(words.UNFINISHED not in open(t, encoding="utf-8").read()
                           for t in targets)
            finally:
                child.kill()
                child.wait()

    def a_killed_judge_gives_nobody_a_score():
        """Killed between two tests, the first passed: no view of what is left, and no command, makes a score of it."""
        with tempfile.TemporaryDirectory() as folder:
            formats = ("jsonl", "text", "gradescope", "exercism", "prairielearn", "tap", "junit", "github", "md", "html")
            targets = {f: os.path.join(folder, f) for f in formats}
            whole = os.path.join(folder, "whole")
            policy = os.path.join(folder, "policy.json")
            with open(policy, "w", encoding="utf-8") as file:
                json.dump({"schema": "ol.policy/1"}, file)
            child = subprocess.Popen([ol, "check", "L10.1", "-j", "1", "--grade", policy, "--report", "text", *(
                a for f, t in targets.items() for a in ("--report", f"{f}:{t}"))],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            while not child.stdout.readline().startswith("[ 1/"):
                assert child.poll() is None
            child.kill()
            child.wait()
            child.stdout.close()
            assert child.returncode == -9
            read = {f: open(t, encoding="utf-8").read() for f, t in targets.items()}
            assert not readers.gradescope(read["gradescope"]).keys() & {"tests", "score", "leaderboard"}
            assert readers.exercism(read["exercism"])["status"] == "error"
            assert not readers.prairielearn(read["prairielearn"])["gradable"]
            assert readers.tap(read["tap"])["bail"]
            assert all(tag == "error" for _, tag, _ in readers.junit(read["junit"]))
            for name in ("text", "github", "md", "html"):
                assert words.UNFINISHED in read[name] and "points" not in read[name], read[name]
            assert run("check", "L10.1", "--only", "hand*", "--report", f"jsonl:{whole}").returncode == 0
            for command in (("show", targets["jsonl"]), ("merge", targets["jsonl"], whole),
                            ("class", targets["jsonl"]), *(("convert", f, targets["jsonl"]) for f in formats),
                            ("convert", "gradescope", targets["jsonl"], "--grade", policy)):
                done = run("report", *command)
                assert done.returncode == 70 and (command[0] == "class" or done.stdout == ""), (command, done)
                assert "footer" in done.stdout + done.stderr, (command, done)
            done = run("report", "class", targets["jsonl"], whole)
            assert done.returncode == 0 and "2 submissions, 0 counted" in done.stdout, done.stdout

    def places_that_cannot_be_written():
        done = run("check", "L10.1", "--only", "hand*", "--report", "html:/nowhere/at/all.html")
        assert done.returncode == 70 and "/nowhere/at/all.html" in done.stderr

    def rules_and_exits():
        with tempfile.TemporaryDirectory() as folder:
            bad = os.path.join(folder, "bad.json")
            open(bad, "w", encoding="utf-8").close()
            assert run("check", "L10.1", "--grade", bad).returncode == 5
            assert run("check", "L10.1", "--expect", bad).returncode == 5
            assert run("check", "L10.1", "--grade", bad, "--only", "hand*").returncode == 2
            assert run("check", "L10.1", "--report", "pdf:x").returncode == 2
            assert run("check", "L10.1", "--visibility", "no").returncode == 2
            assert run("report").returncode == 2
            with open(bad, "w", encoding="utf-8") as file:
                json.dump({"schema": "ol.expect/1", "failures": [
                    {"test": NAMES[0], "class": "fail", "reason": "none"}]}, file)
            assert run("check", "L10.1", "--only", NAMES[0], "--expect", bad).returncode == 1
            assert run("check", "L10.1", "--only", NAMES[1], "--expect", bad).returncode == 0

    return [words_are_those_of_explain, every_name_is_explained, every_format_in_one_run,
            a_stub_from_the_first_moment, a_killed_judge_gives_nobody_a_score,
            places_that_cannot_be_written, rules_and_exits]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ol", default=os.path.join(ROOT, "build/release/bin/ol"))
    args = parser.parse_args()
    tests = list(TESTS)
    skipped = 0
    if os.access(args.ol, os.X_OK):
        tests += ol_tests(os.path.abspath(args.ol))
    else:
        skipped = len(ol_tests(args.ol))
        print(f"{args.ol} is not there: what needs it is left out")
    failed = 0
    for function in tests:
        try:
            function()
        except Exception:  # noqa: BLE001 - whatever it is, the test failed
            failed += 1
            print(f"FAILED {function.__name__}\n{traceback.format_exc()}")
    tail = f", {skipped} skipped" if skipped else ""
    print(f"{len(tests) - failed} passed, {failed} failed{tail}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
