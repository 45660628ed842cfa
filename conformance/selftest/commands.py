"""Try the commands of the judge: every exit code, every report, what a kill or a full disk leaves.

    commands.py BUILD

BUILD holds bin/ol, bin/ol-host, lib/libtl.so.1 and lib/libtl.a. Ends with `N passed, N failed, N skipped`.
"""

import glob
import hashlib
import json
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import hostile  # noqa: E402

BUILD = TOP = SHOP = None
QUICK = ["--only", "hand_example_sampling"]


class Skip(Exception):
    """This machine cannot do it; the text says why."""


def ol(*args, env=None, **options):
    done = subprocess.run([os.path.join(BUILD, "bin", "ol"), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, errors="replace", timeout=300,
                          env={**os.environ, "OL_ROOT": ROOT, "TMPDIR": TOP, **(env or {})}, **options)
    done.all = done.stdout + done.stderr
    return done


def want(condition, text):
    if not condition:
        raise AssertionError(text)


def want_exit(done, code, *words):
    want(done.returncode == code, f"exit {done.returncode}, {code} is right: {done.all}")
    for word in words:
        want(word in done.all, f"`{word}` is not said: {done.all}")


def read_log(path):
    """The log, checked: one header, one footer, the hash of the lines before it."""
    with open(path, "rb") as stream:
        data = stream.read()
    lines = data.splitlines(keepends=True)
    records = [json.loads(line) for line in lines]
    want(records[0]["kind"] == "header" and records[0]["schema"] == "ol.result/1", "the first line is no header")
    want(records[-1]["kind"] == "footer", "the last line is no footer")
    want(all(r["kind"] == "test" for r in records[1:-1]), "another line between")
    digest = hashlib.sha256(b"".join(lines[:-1])).hexdigest()
    want(records[-1]["sha256_of_lines"] == digest, "the footer has another hash")
    return records


def engine(identity):
    with open(os.path.join(hostile.HOSTILE, "verdicts.json"), encoding="utf-8") as stream:
        row = next(r for r in json.load(stream) if r["id"] == identity)
    return SHOP.make(row)


def temporary(name):
    return os.path.join(TOP, name)


# ------------------------------------------------------------------------------ exit codes

def exit_0():
    want_exit(ol("check", "L10.1", *QUICK), 0, "INCOMPLETE", "exit code 0")


def exit_0_for_all_24():
    log = temporary("all.jsonl")
    done = ol("check", "L10.1", "--report", "text", "--report", f"jsonl:{log}")
    want_exit(done, 0, "24 pass", "exit code 0")
    want("INCOMPLETE" not in done.stdout, "a whole run is called incomplete")
    records = read_log(log)
    names = [r["name"] for r in records[1:-1]]
    with open(os.path.join(ROOT, "conformance/catalog.json"), encoding="utf-8") as stream:
        catalog = json.load(stream)
    want(names == [t["name"] for t in catalog["tests"]], "the log has other tests or another order")
    table = done.stdout.split("\ntest  ")[1].splitlines()
    want(sum(1 for line in table if line.split(" ")[0] in names) == 24, "the table has not 24 rows")
    for test, defined in zip(records[1:-1], catalog["tests"]):
        want([c["id"] for c in test["checks"]] == [c["id"] for c in defined["checks"]],
             f"{test['name']}: other checks than the catalogue's")
        want(all(c["state"] == "held" for c in test["checks"]), f"{test['name']}: a check was not held")
    if hostile.is_sanitized(BUILD):
        raise Skip("all held, but for the judge's own 64 MiB, which ASan's shadow memory is beyond")
    judge = records[-1]["judge"]
    want(judge["max_rss_kb"] <= 65536, f"the judge took {judge['max_rss_kb']} KiB, 64 MiB are allowed")


def exit_1():
    want_exit(ol("check", "L10.1", *engine("wrong_token"), *QUICK), 1, "exit code 1", "replay", "want", "got")


def exit_2_usage():
    for args in (["check", "--nothing"], ["check", "L10.1", "-j", "0"], ["check", "L10.1", "--timeout", "x"],
                 ["check", "L10.1", "--report", "pdf"], ["check", "L10.1", "--report", "jsonl:"],
                 ["check", "L10.1", "--report", "text", "--report", "jsonl"], ["check", "L9.1"],
                 ["check", "L10.1", "--case", "nothing"], ["check", "L10.1", "--only"],
                 ["check", "L10.1", "--strict=1"], ["check", "L10.1", "--engine", "a", "--testee", "b"],
                 ["check", "extra"], ["nothing"], [], ["golden"], ["golden", "burn"], ["explain"],
                 ["tests", "extra"], ["doctor", "extra"], ["check", "L10.1", "--root", "/nonexistent"]):
        want_exit(ol(*args), 2)


def exit_2_helps():
    want_exit(ol("chek"), 2, "did you mean check?")
    want_exit(ol("check", "--ony", "x"), 2, "did you mean --only?")
    for wrap in ("/nonexistent", "/etc/passwd", "/", "nonexistent -q"):
        want_exit(ol("check", "L10.1", *QUICK, "--wrap", wrap), 2, "--wrap", wrap.split()[0])


def exit_3():
    for args in (["--engine", "/nonexistent.so"], ["--testee", "/nonexistent"], ["--testee", "/etc/passwd"],
                 engine("no_library"), engine("refuses_hello")):
        want_exit(ol("check", "L10.1", *args, *QUICK), 3, "exit code 3", "no-result")


def probe_that_fails_is_heard():
    """What a process said before it died at its start is in the report."""
    shouts = temporary("shouts.sh")
    with open(shouts, "w", encoding="utf-8") as out:
        out.write("#!/bin/sh\necho nothing works >&2\nexit 3\n")
    os.chmod(shouts, 0o755)
    log = temporary("shouts.jsonl")
    want_exit(ol("check", "L10.1", "--testee", shouts, *QUICK, "--report", f"jsonl:{log}", "--report", "text"), 1,
              "nothing works", "status 3")
    want(read_log(log)[1]["stderr_tail"] == "nothing works\n", "the log lacks what was printed")


def exit_4():
    want_exit(ol("check", "L10.1", "--only", "hand_exampel_sampling"), 4, "hand_example_sampling")
    want_exit(ol("check", "L10.1", "--only", "f16*", "--kind", "golden"), 4)
    want_exit(ol("check", "L10.1", "--kind", "nothing"), 4, "statistical")
    want_exit(ol("check", "L10.1", "--case", "nothing:1"), 4, "nearest")
    want_exit(ol("check", "L10.1", "--case", "hand_example_sampling:tokn"), 4, "the nearest is token")
    want_exit(ol("parity", "nothing"), 4)
    want_exit(ol("explain", "nothing"), 4, "nearest")


def exit_5_without_goldens():
    want_exit(ol("check", "L10.1", *QUICK, "--goldens", "/nonexistent"), 5, "/nonexistent", "0 of 24 tests ran")


def exit_5_broken_catalogue():
    root = temporary("broken-root")
    os.makedirs(root + "/conformance")
    os.symlink(os.path.join(ROOT, "goldens"), root + "/goldens")
    with open(os.path.join(ROOT, "conformance/catalog.json"), encoding="utf-8") as stream:
        good = json.load(stream)

    def breaks(change, *words):
        catalog = json.loads(json.dumps(good))
        change(catalog)
        with open(root + "/conformance/catalog.json", "w", encoding="utf-8") as out:
            json.dump(catalog, out)
        want_exit(ol("check", "L10.1", *QUICK, env={"OL_ROOT": root}), 5, *words)

    breaks(lambda c: c["tests"].pop(), "23 tests")
    breaks(lambda c: c["tests"].append(c["tests"][0]), "25 tests")
    breaks(lambda c: c["tests"].__setitem__(1, dict(c["tests"][0], number=2)), "twice")
    breaks(lambda c: c["tests"][3].update(name="another"))
    breaks(lambda c: c["tests"][0]["checks"].append(c["tests"][0]["checks"][0]), "twice")
    breaks(lambda c: c["tests"][0].update(rests_on=["pcg32_reference_vectors"]), "rests on")
    breaks(lambda c: c["tests"][0].update(kinds=["new"]), "kind")
    breaks(lambda c: c["tests"][0].pop("why"), "why")
    breaks(lambda c: c.update(schema="ol.catalog/2"), "schema")


def exit_70_worker_killed():
    """The judge's own process is killed from outside: no verdict about the engine."""
    process = subprocess.Popen([os.path.join(BUILD, "bin", "ol"), "check", "L10.1", *engine("sleep"), *QUICK, "--report",
                                f"jsonl:{temporary('killed.jsonl')}"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env={**os.environ, "OL_ROOT": ROOT, "TMPDIR": TOP})
    deadline = time.monotonic() + 30
    worker = None
    # The worker that has a child is in the middle of its test.
    while worker is None and time.monotonic() < deadline:
        time.sleep(0.05)
        for pid in children_of(process.pid):
            if any(cwd_of(c).startswith(TOP) for c in children_of(pid)):
                time.sleep(0.5)
                worker = pid if children_of(pid) else None
    want(worker is not None, "no worker was seen")
    os.kill(worker, signal.SIGKILL)
    want(process.wait(60) == 70, f"exit {process.returncode}, 70 is right")
    want(read_log(temporary("killed.jsonl"))[1]["class"] == "harness-error", "another class")


def cwd_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as stream:
            return [int(p) for p in stream.read().split()]
    except OSError:
        return []


# ------------------------------------------------------------------------------ reports

def report_cannot_be_written():
    for path in ("/nonexistent/x.xml", TOP):
        want_exit(ol("check", "L10.1", *QUICK, "--report", f"junit:{path}"), 70, path)


def disk_is_full():
    want_exit(ol("check", "L10.1", *QUICK, "--report", "jsonl:/dev/full"), 70, "/dev/full")
    want(stat.S_ISCHR(os.stat("/dev/full").st_mode), "/dev/full was replaced")
    # A small file system of its own: room for the stub, none for the report.
    folder = temporary("small")
    os.mkdir(folder)
    script = ('mount -t tmpfs -o size=32k none "$1" || exit 99; cp /dev/zero "$1/fill" 2>/dev/null; '
              'truncate -s -8192 "$1/fill"; cd /; shift; "$@" >&2; echo "exit $?"; ls "$OLDPWD"/small; '
              'grep -c footer "$OLDPWD"/small/x.jsonl')
    done = subprocess.run(["unshare", "-m", "bash", "-c", script, "bash", folder, os.path.join(BUILD, "bin", "ol"), "check",
                           "L10.1", "--only", "kv*", "--only", "p*", "--only", "g*", "--report",
                           f"jsonl:{folder}/x.jsonl"], cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, env={**os.environ, "OL_ROOT": ROOT, "TMPDIR": TOP})
    if os.geteuid() != 0 or done.returncode == 99 or done.stderr.startswith("unshare:"):
        raise Skip("no small file system can be mounted here")
    want(done.stdout.split() == ["exit", "70", "fill", "x.jsonl", "0"], done.stdout + done.stderr[-500:])


def stub_is_there_from_the_start():
    paths = [temporary(n) for n in ("stub.txt", "stub.jsonl", "stub.xml")]
    process = subprocess.Popen([os.path.join(BUILD, "bin", "ol"), "check", "L10.1", *engine("sleep"), *QUICK,
                                "--report", f"text:{paths[0]}", "--report", f"jsonl:{paths[1]}", "--report",
                                f"junit:{paths[2]}"], env={**os.environ, "OL_ROOT": ROOT, "TMPDIR": TOP})
    deadline = time.monotonic() + 20
    while not all(os.path.exists(p) for p in paths) and time.monotonic() < deadline:
        time.sleep(0.05)
    with open(paths[0], encoding="utf-8") as stream:
        text = stream.read()
    with open(paths[1], encoding="utf-8") as stream:
        log = stream.read()
    suites = xml.parse(paths[2]).getroot()
    process.send_signal(signal.SIGINT)
    process.wait(60)
    want("not finished" in text, "the text stub does not say so")
    want('"footer"' not in log and '"header"' in log, "the log stub has a footer or no header")
    want(suites.get("errors") == "1" and suites.get("tests") == "1", "the JUnit stub does not count an error")
    want(process.returncode == 70, f"interrupted: exit {process.returncode}, 70 is right")
    want(read_log(paths[1])[-1]["exit_code"] == 70, "the log of an interrupted run says another code")
    want([n for n in os.listdir(TOP) if n.startswith("ol-")] == [], "an interrupted run leaves its folder")


def report_through_a_link():
    target, link = temporary("target.jsonl"), temporary("link.jsonl")
    with open(target, "w", encoding="utf-8") as out:
        out.write("old\n")
    os.symlink(target, link)
    want_exit(ol("check", "L10.1", *QUICK, "--report", f"jsonl:{link}"), 0)
    want(os.path.islink(link), "the link was replaced")
    read_log(target)


def junit_is_xml():
    path = temporary("x.xml")
    log = temporary("x.jsonl")
    done = ol("check", "L10.1", *engine("wrong_int4"), "--only", "*int4*", "--only", "q4*", "--report", f"junit:{path}",
              "--report", f"jsonl:{log}")
    want(done.returncode == 1, done.all)
    suites = xml.parse(path).getroot()
    cases = suites.findall("./testsuite/testcase")
    failures = suites.findall("./testsuite/testcase/failure")
    errors = suites.findall("./testsuite/testcase/error")
    want(suites.tag == "testsuites" and cases, "no testcases")
    for name, found in (("tests", cases), ("failures", failures), ("errors", errors)):
        want(int(suites.get(name)) == len(found), f"{name} says {suites.get(name)}, {len(found)} are there")
        parts = sum(int(s.get(name)) for s in suites.findall("testsuite"))
        want(parts == len(found), f"{name} of the suites are {parts}")
    want(suites.findall(".//skipped") == [] and suites.get("skipped") == "0", "something is skipped")
    classes = {r["name"]: r["class"] for r in read_log(log)[1:-1]}
    for case in cases:
        cls = classes[case.get("name")]
        kind = {"pass": None, "fail": "failure", "refused-wrong": "failure"}.get(cls, "error")
        elements = [e.tag for e in case if e.tag in ("failure", "error")]
        want(elements == ([kind] if kind else []), f"{case.get('name')} is {cls} and has {elements}")
        want(all(e.get("type") == cls for e in case if e.tag in ("failure", "error")), "another type")
    want("blocked" in classes.values(), "nothing is blocked")


def rubbish_is_inert():
    """An engine prints control characters, markup and broken UTF-8; every reader still reads."""
    path, log = temporary("r.xml"), temporary("r.jsonl")
    done = ol("check", "L10.1", *engine("print_some"), *QUICK, "--report", f"junit:{path}", "--report", f"jsonl:{log}",
              "--report", "text")
    want(done.returncode == 0, done.all)
    xml.parse(path)
    test = read_log(log)[1]
    want("\\x01" in test["stdout_tail"] and len(test["stdout_tail"]) <= 4 * 2048, "the tail is not escaped or too long")
    want("\\x1b" in test["stderr_tail"] and "\\xff" in test["stderr_tail"], "stderr is not escaped")
    want("\x1b[31m" not in done.stdout, "an escape sequence reaches the terminal")


def log_on_standard_output():
    done = ol("check", "L10.1", *QUICK, "--report", "jsonl")
    want(done.returncode == 0, done.all)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    want([r["kind"] for r in records] == ["header", "test", "footer"], "other lines")
    header = records[0]
    for key in ("harness", "module", "catalog", "goldens", "engine", "host", "mode", "started"):
        want(key in header, f"the header has no {key}")
    want(header["mode"]["complete"] is False and header["mode"]["strict"] is True, "another mode")
    for key in ("seq", "name", "kinds", "class", "wall_ms", "cpu_ms", "max_rss_kb", "cases", "exit", "cause", "depends",
                "stdout_tail", "stderr_tail", "replay"):
        want(key in records[1], f"the test line has no {key}")


# ------------------------------------------------------------------------------ selection and replay

def globs_and_kinds():
    log = temporary("g.jsonl")
    want_exit(ol("check", "L10.1", "--only", "kv_pool_*", "--kind", "boundary", "--report", f"jsonl:{log}"), 0)
    want([r["name"] for r in read_log(log)[1:-1]] == ["kv_pool_bounds_and_cache_lifecycle",
                                                     "kv_pool_evicts_the_oldest_cached_block",
                                                     "kv_pool_rejects_zero_capacity"], "other tests")


def replay_line_replays():
    log = temporary("p.jsonl")
    given = engine("one_ulp")
    ol("check", "L10.1", *given, *QUICK, "--report", f"jsonl:{log}")
    first = read_log(log)[1]
    want("--case" in first["replay"], f"no case in {first['replay']}")
    words = first["replay"].split()
    want(words[0] == "ol", "the replay line does not start with ol")
    ol(*words[1:], "--report", f"jsonl:{log}")
    again = read_log(log)[1]
    want(again["class"] == first["class"] and again["cases"]["total"] == 1, "the replay ends otherwise")
    want(again["cause"]["check"] == first["cause"]["check"], "another check")


def first_divergence_in_full():
    log = temporary("d.jsonl")
    done = ol("check", "L10.1", *engine("one_ulp"), *QUICK, "--report", "text", "--report", f"jsonl:{log}")
    first = read_log(log)[1]["cause"]["first_divergence"]
    want(first["ulp"] == 1 and "0x" in first["got"] and "0x" in first["want"], f"not in full: {first}")
    for word in ("want      -0.92", "got       -0.92", "1 ulp", "pitfall", "conformance/spec/", "--case"):
        want(word in done.stdout, f"`{word}` is not shown: {done.stdout}")


def no_hints():
    done = ol("check", "L10.1", *engine("one_ulp"), *QUICK, "--no-hints")
    want("pitfall" not in done.stdout and "replay" in done.stdout, "hints are shown")


def mutant(identity):
    """The sources of a named wrong engine."""
    with open(os.path.join(ROOT, "mutants/catalog.json"), encoding="utf-8") as stream:
        row = next(m for m in json.load(stream)["mutants"] if m["id"] == identity)
    folder = temporary(identity)
    shutil.copytree(os.path.join(ROOT, "engine/src"), folder)
    subprocess.run(["patch", "-s", os.path.join(folder, os.path.basename(row["file"])),
                    os.path.join(ROOT, "mutants", row["patch"])], check=True)
    return row, ["--engine", folder]


SAMPLER = ["--only", "sampler*", "--only", "hand*"]
NOT_COMPARED = "not compared with the known pitfalls: "


def known_pitfall_is_named():
    row, given = mutant("s03")
    log = temporary("s03.jsonl")
    done = ol("check", "L10.1", *given, *SAMPLER, "--report", "text", "--report", f"jsonl:{log}")
    want_exit(done, 1, f"\nlooks like s03: {row['title']}\n    margin    0.", row["symptom"], row["pitfall"],
              "conformance/spec/sampling.md, 4\n", f"    looks like s03: {row['title']}\n")
    records = read_log(log)
    causes = {r["name"]: r["cause"] for r in records[1:-1]}
    want(causes["hand_example_sampling"] is None, "a pass has a cause")
    like = causes["sampler_matches_l81_golden"]["mutant_like"]
    want(like["id"] == "s03" and like["margin"] > 0.05 and like["symptom"] == row["symptom"], f"{like}")
    want(records[-1]["diagnosis"]["names"] == ["s03"], "the footer has no diagnosis")
    for word in ("junit", "gradescope", "html"):
        want_exit(ol("check", "L10.1", *given, *SAMPLER, "--report", word), 1, "s03")
    done = ol("check", "L10.1", *given, *SAMPLER, "--no-hints", "--report", "text", "--report", f"jsonl:{log}")
    want_exit(done, 1)
    want("looks like" not in done.all and "diagnosis" not in read_log(log)[-1], "hints are shown")


def other_failures_are_no_known_pitfall():
    for given in (engine("one_ulp"), engine("segv")):
        done = ol("check", "L10.1", *given, *QUICK)
        want_exit(done, 1, "looks like none of the known pitfalls")
    done = ol("check", "L10.1", *QUICK)
    want("looks like" not in done.all, "a right engine gets a diagnosis")


def diagnosis_that_fails_changes_nothing():
    root = temporary("other-root")
    os.makedirs(root + "/mutants")
    for name in ("conformance", "goldens", "engine"):
        os.symlink(os.path.join(ROOT, name), os.path.join(root, name))
    given = engine("one_ulp")

    def judged(*words):
        log = temporary("other.jsonl")
        done = ol("check", "L10.1", *given, *QUICK, "--report", "text", "--report", f"jsonl:{log}",
                  env={"OL_ROOT": root})
        want_exit(done, 1, "\n" + NOT_COMPARED, "exit code 1", *words)
        footer = read_log(log)[-1]
        want(footer["exit_code"] == 1 and footer["diagnosis"]["lines"][0].startswith(NOT_COMPARED), f"{footer}")

    judged("diagnose.py", "No such file")
    for code, word in (("print('{}')", "another answer"), ("print('{')", "another answer"), ("raise SystemExit(5)", ""),
                       ("raise SystemExit(70)", ""), ("import os; os.kill(os.getpid(), 9)", "status 137"),
                       ("1 / 0", "status 1")):
        with open(root + "/mutants/diagnose.py", "w", encoding="utf-8") as out:
            out.write(code + "\n")
        judged(word)
    shutil.copy(os.path.join(ROOT, "mutants/diagnose.py"), root + "/mutants")
    judged("fingerprints.json")


def diagnosis_needs_python():
    given = engine("one_ulp")
    script = 'mount --bind /dev/null "$(realpath /usr/bin/python3)" || exit 99; exec "$@"'
    done = subprocess.run(["unshare", "-m", "bash", "-c", script, "bash", os.path.join(BUILD, "bin", "ol"), "check",
                           "L10.1", *given, *QUICK], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "OL_ROOT": ROOT, "TMPDIR": TOP}, check=False)
    if done.returncode == 99 or os.geteuid() != 0 or done.stdout.startswith("unshare:"):
        raise Skip("nothing can be mounted here")
    want(done.returncode == 1 and NOT_COMPARED + "this needs Python" in done.stdout, done.stdout)


def jobs_change_nothing():
    classes = []
    for jobs in ("1", "4"):
        log = temporary(f"j{jobs}.jsonl")
        ol("check", "L10.1", *engine("wrong_int4"), "-j" + jobs, "--only", "*int4*", "--only", "q4*", "--only", "pcg*",
           "--report", f"jsonl:{log}")
        classes.append([(r["name"], r["class"], r["seq"]) for r in read_log(log)[1:-1]])
    want(classes[0] == classes[1], f"{classes}")


def prerequisite_that_did_not_run_blocks_nothing():
    log = temporary("b.jsonl")
    ol("check", "L10.1", *engine("wrong_int4"), "--only", "q4*", "--report", f"jsonl:{log}")
    want(read_log(log)[1]["class"] == "fail", "blocked by a test that was not selected")


def slow_machine_fails_nobody():
    """Beyond the limit, twenty times the reference's own CPU time counts: a right engine passes."""
    log = temporary("slow.jsonl")
    library = os.path.join(BUILD, "lib", "libtl.so.1")
    want_exit(ol("check", "L10.1", "--engine", library, "--only", "kv_pool_bounds*", "--timeout", "0.2", "--report",
                 f"jsonl:{log}"), 0)
    want(read_log(log)[1]["cpu_ms"] > 200, "the test is too short to say anything")


def goldens_are_added():
    folder = temporary("more")
    shutil.copytree(os.path.join(ROOT, "goldens"), folder, ignore=shutil.ignore_patterns("gen"))
    log = temporary("more.jsonl")
    want_exit(ol("check", "L10.1", "--only", "pcg*", "--goldens", folder, "--report", f"jsonl:{log}"), 0)
    plain = temporary("plain.jsonl")
    ol("check", "L10.1", "--only", "pcg*", "--report", f"jsonl:{plain}")
    want(read_log(log)[1]["cases"]["total"] > read_log(plain)[1]["cases"]["total"], "no more cases than before")
    # A wrong value there is found there.
    path = os.path.join(folder, "pcg32.vectors.json")
    with open(path, encoding="utf-8") as stream:
        doc = json.load(stream)
    doc["groups"][0]["cases"][0]["outputs"][0] = "00000000"
    rewrite(folder, "pcg32.vectors.json", doc)
    want_exit(ol("check", "L10.1", "--only", "pcg*", "--goldens", folder), 1, "want      0 (0x00000000)")


def rewrite(folder, name, doc):
    data = (json.dumps(doc, indent=2) + "\n").encode()
    with open(os.path.join(folder, name), "wb") as out:
        out.write(data)
    path = os.path.join(folder, "MANIFEST.json")
    with open(path, encoding="utf-8") as stream:
        manifest = json.load(stream)
    for entry in manifest["files"]:
        if entry["path"] == name:
            entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    with open(path, "w", encoding="utf-8") as out:
        json.dump(manifest, out, indent=2)


# ------------------------------------------------------------------------------ the other commands

def tests_as_json():
    done = ol("tests", "L10.1", "--json")
    want(done.returncode == 0 and len(json.loads(done.stdout)["tests"]) == 24, done.all)
    want("hand_example_sampling" in ol("tests", "L10.1").stdout, "no names")
    want(ol("tests", "--kind", "statistical").stdout.count("why ") == 1, "kinds do not select")


def unproven_is_a_list_of_checks():
    with open(os.path.join(ROOT, "conformance/catalog.json"), encoding="utf-8") as stream:
        ids = {c["id"] for t in json.load(stream)["tests"] for c in t["checks"]}
    done = ol("tests", "L10.1", "--unproven")
    want(done.returncode == 0 and set(done.stdout.split()) <= ids, done.all)


def proofs_are_read():
    root = temporary("proof-root")
    os.makedirs(root + "/conformance")
    os.symlink(os.path.join(ROOT, "goldens"), root + "/goldens")
    shutil.copy(os.path.join(ROOT, "conformance/catalog.json"), root + "/conformance")

    def with_proofs(fails):
        proofs = {"schema": "ol.proofs/1", "engines": [{"id": "s02", "kind": "mutant", "fails": fails}]}
        with open(root + "/conformance/proofs.json", "w", encoding="utf-8") as out:
            json.dump(proofs, out)
        return ol("tests", "--unproven", env={"OL_ROOT": root})

    done = with_proofs(["hand_example_sampling.token"])
    want(done.returncode == 0 and "hand_example_sampling.token\n" not in done.stdout, done.all)
    want_exit(with_proofs(["hand_example_sampling.nothing"]), 5, "no check")


def parity_names_the_first_draw():
    want_exit(ol("parity", "sampler", "rng"), 0, "sampler: identical", "rng: identical")
    done = ol("parity", "sampler", *engine("one_ulp"))
    want_exit(done, 1, "sampler: DIFFERS", "want", "got", "0x")


def explain_everything():
    for word in ("hand_example_sampling", "hand_example_sampling.token", "s03", "70", "EXIT", "pass", "fail",
                 "refused-wrong", "crash", "timeout", "resource", "no-result", "integrity", "blocked", "harness-error",
                 "0", "1", "2", "3", "4", "5", "6", "7", "fresh"):
        done = ol("explain", word)
        want(done.returncode == 0 and len(done.stdout) > 20, f"{word}: {done.all}")
    with open(os.path.join(ROOT, "conformance", "catalog.json"), encoding="utf-8") as stream:
        tests = json.load(stream)["tests"]
    for test in tests:
        for word in (test["name"], test["checks"][0]["id"], *test["mutants"]):
            done = ol("explain", word)
            want(done.returncode == 0 and word in done.stdout and "read " in done.stdout, f"{word}: {done.all}")


def doctor_looks():
    want_exit(ol("doctor"), 0, "sandbox", "seccomp", "landlock", "goldens", "good")


def killed_run_is_swept():
    """The folder of a run that was killed goes with the next start; that of a living one stays."""
    sleeps = temporary("sleeps.sh")
    with open(sleeps, "w", encoding="utf-8") as out:
        out.write("#!/bin/sh\nexec sleep 100\n")
    os.chmod(sleeps, 0o755)

    def start(log):
        child = subprocess.Popen([os.path.join(BUILD, "bin", "ol"), "check", "L10.1", *QUICK, "--testee", sleeps,
                                  "--report", f"jsonl:{log}"], env={**os.environ, "OL_ROOT": ROOT, "TMPDIR": TOP},
                                 stderr=subprocess.DEVNULL)
        before = set(runs())
        while not set(runs()) - before or not glob.glob(os.path.join(TOP, "ol-*", "w*")):
            time.sleep(0.05)
        return child

    def runs():
        return [n for n in os.listdir(TOP) if n.startswith("ol-")]

    killed = start(temporary("killed.jsonl"))
    killed.kill()
    killed.wait()
    left = runs()
    want(len(left) == 1, f"a killed run left {left}")
    living = start(temporary("living.jsonl"))
    try:
        want(left[0] not in runs(), "the folder of the killed run was not swept")
        there = runs()
        want(len(there) == 1, f"there are {there}")
        want_exit(ol("check", "L10.1", *QUICK), 0)
        want(runs() == there, "the folder of a living run was touched")
    finally:
        living.terminate()
        want(living.wait() == 70, "a run that was ended in order")


def engine_changes_on_disk():
    """What is judged is copied once: a link that is turned while the tests run changes nothing."""
    link = temporary("link.so")
    os.symlink(os.path.join(BUILD, "lib", "libtl.so.1"), link)
    log = temporary("link.jsonl")
    child = subprocess.Popen([os.path.join(BUILD, "bin", "ol"), "check", "L10.1", "--engine", link, "-j", "1",
                              "--only", "*sampl*", "--report", "text", "--report", f"jsonl:{log}"], text=True,
                             env={**os.environ, "OL_ROOT": ROOT, "TMPDIR": TOP}, stdout=subprocess.PIPE)
    seen = []
    for line in child.stdout:
        seen.append(line)
        if line.startswith("[ 1/"):
            os.unlink(link)
            os.symlink("/etc/passwd", link)
    want(child.wait() == 0 and sum(line.startswith("[") for line in seen) == 4, "".join(seen))
    with open(os.path.join(BUILD, "lib", "libtl.so.1"), "rb") as stream:
        want(read_log(log)[0]["engine"]["sha256"] == hashlib.sha256(stream.read()).hexdigest(), "another hash")


def testee_changes_on_disk():
    """A testee runs where it lies: one that changes meanwhile passes nothing, one whose neighbours change is judged."""
    folder = temporary("testee")
    shutil.copytree(os.path.join(ROOT, "conformance", "examples"), folder)
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    for name, cls, code in (("testee.py", "integrity", 1), ("README.md", "pass", 0)):
        log = temporary("testee.jsonl")
        child = subprocess.Popen([os.path.join(BUILD, "bin", "ol"), "check", "L10.1", "--testee", f"{folder}/testee.py",
                                  "-j", "1", "--only", "hand*", "--only", "pcg32*", "--report", "text", "--report",
                                  f"jsonl:{log}"], text=True, env={**os.environ, "OL_ROOT": ROOT, "TMPDIR": TOP},
                                 stdout=subprocess.PIPE)
        seen = []
        for line in child.stdout:
            seen.append(line)
            if line.startswith("[ 1/"):
                with open(f"{folder}/{name}", "a", encoding="utf-8") as stream:
                    stream.write("\n")
        tests = [record for record in read_log(log) if record["kind"] == "test"]
        want(child.wait() == code and [t["class"] for t in tests] == [cls, cls], "".join(seen))
        want(code == 0 or "changed on disk" in "".join(seen), "".join(seen))


def host_knows_the_whole_interface():
    """The host's list, the headers and the library name the same functions."""
    declared = set()
    for path in glob.glob(os.path.join(ROOT, "engine", "include", "tl", "*.h")):
        with open(path, encoding="utf-8") as stream:
            text = re.sub(r"/\*.*?\*/|//[^\n]*", "", stream.read(), flags=re.S)
        declared |= set(re.findall(r"^(?!#|static)[^#;{}]*?\b(tl_\w+)\((?=[^;{]*\)\s*;)", text, flags=re.M | re.S))
    with open(os.path.join(ROOT, "conformance", "host", "api.h"), encoding="utf-8") as stream:
        listed = {"tl_" + name for name in re.findall(r"\bX\((\w+)\)", stream.read())}
    names = subprocess.run(["nm", "-D", "--defined-only", os.path.join(BUILD, "lib", "libtl.so.1")], check=True,
                           text=True, stdout=subprocess.PIPE).stdout
    exported = {line.split()[2] for line in names.splitlines() if line.split()[1] == "T"}
    want(len(listed) > 100 and listed == declared == {n for n in exported if n.startswith("tl_")},
         f"only in some: {sorted((listed ^ declared) | (listed ^ exported))}")


def help_is_there():
    want_exit(ol("help"), 0, "ol check", "ol doctor")
    want_exit(ol("--version"), 0, "ol ")
    for command in ("start", "check", "tests", "parity", "mutants", "fuzz", "coverage", "golden", "explain", "report",
                    "doctor"):
        for words in (["--help"], ["L10.1", "-h"] if command in ("check", "tests", "golden") else ["-h"]):
            done = ol(command, *words)
            want_exit(done, 0, command)
            want(done.stdout and not done.stderr, f"{command} {words}: help is not on standard output")
    want_exit(ol("check", "--help"), 0, "--fresh [SEED]")


# ------------------------------------------------------------------------------ places

def tree_can_be_moved():
    tree = temporary("moved")
    for part in ("bin/ol", "bin/ol-host", "lib/libtl.so.1"):
        os.makedirs(os.path.dirname(os.path.join(tree, "build/release", part)), exist_ok=True)
        shutil.copy(os.path.join(BUILD, part), os.path.join(tree, "build/release", part))
    os.makedirs(tree + "/conformance")
    shutil.copy(os.path.join(ROOT, "conformance/catalog.json"), tree + "/conformance")
    shutil.copytree(os.path.join(ROOT, "goldens"), tree + "/goldens", ignore=shutil.ignore_patterns("gen"))
    moved = temporary("moved again")
    os.rename(tree, moved)
    env = {k: v for k, v in os.environ.items() if k != "OL_ROOT"}
    done = subprocess.run([moved + "/build/release/bin/ol", "check", "L10.1", *QUICK], cwd="/", env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    want(done.returncode == 0, done.stdout)


def wrapped_by_valgrind():
    if shutil.which("valgrind") is None:
        raise Skip("valgrind is not here")
    want_exit(ol("check", "L10.1", *QUICK, "--wrap", "valgrind -q --error-exitcode=9"), 0, "exec is allowed")


def debugger_at_a_terminal():
    """As the README says: the replay of a case under gdb, which forks, traces, signals and wants the terminal."""
    if shutil.which("gdb") is None:
        raise Skip("gdb is not here")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(os.path.join(BUILD, "bin", "ol"), [
            "ol", "check", "L10.1", "--root", ROOT, "--case", "hand_example_sampling:uniform", "--wrap",
            "gdb -q -batch -ex 'set breakpoint pending on' -ex 'break tl_pcg32_new' -ex run -ex bt -ex continue --args"])
    seen = b""
    while True:
        try:
            more = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        seen += more
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    text = seen.decode("utf-8", "replace")
    want(status == 0 and "#0  tl_pcg32_new" in text and "Breakpoint 1, " in text, f"exit {status}\n{text}")
    want("neither seccomp nor landlock" in text and "INCOMPLETE" in text, text)


def empty_environment():
    done = subprocess.run([os.path.join(BUILD, "bin", "ol"), "check", "L10.1", *QUICK, "--root", ROOT], env={},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
    want(done.returncode == 0, done.stdout)


def closed_descriptors():
    done = subprocess.run(["bash", "-c", 'exec "$@" <&- >&-', "bash", os.path.join(BUILD, "bin", "ol"), "check", "L10.1", *QUICK,
                           "--root", ROOT, "--report", f"jsonl:{temporary('closed.jsonl')}"],
                          stderr=subprocess.PIPE, text=True)
    want(done.returncode == 0, done.stderr)
    read_log(temporary("closed.jsonl"))


CASES = [exit_0, exit_0_for_all_24, exit_1, exit_2_usage, exit_2_helps, exit_3, probe_that_fails_is_heard, exit_4, exit_5_without_goldens,
         exit_5_broken_catalogue, exit_70_worker_killed, report_cannot_be_written, disk_is_full,
         stub_is_there_from_the_start, report_through_a_link, junit_is_xml, rubbish_is_inert, log_on_standard_output,
         globs_and_kinds, replay_line_replays, first_divergence_in_full, no_hints, known_pitfall_is_named,
         other_failures_are_no_known_pitfall, diagnosis_that_fails_changes_nothing, diagnosis_needs_python,
         jobs_change_nothing,
         prerequisite_that_did_not_run_blocks_nothing, slow_machine_fails_nobody, goldens_are_added, tests_as_json,
         unproven_is_a_list_of_checks, proofs_are_read, parity_names_the_first_draw, explain_everything, doctor_looks,
         help_is_there, killed_run_is_swept, engine_changes_on_disk, testee_changes_on_disk,
         host_knows_the_whole_interface,
         tree_can_be_moved, wrapped_by_valgrind, debugger_at_a_terminal,
         empty_environment, closed_descriptors]


def main(argv):
    global BUILD, TOP, SHOP
    BUILD = os.path.abspath(argv[0])
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory(prefix="ol-self.") as folder:
        os.chmod(folder, 0o755)
        SHOP = hostile.Workshop(BUILD, folder)
        for case in CASES:
            if len(argv) > 1 and case.__name__ not in argv[1:]:
                continue
            TOP = os.path.join(folder, case.__name__)
            os.mkdir(TOP)
            try:
                case()
                want([n for n in os.listdir(TOP) if n.startswith("ol-")] == [], "a run's folder was left")
                passed += 1
            except Skip as why:
                skipped += 1
                print(f"skipped {case.__name__}: {why}")
            except Exception as fault:  # noqa: BLE001  whatever it is, the others go on
                failed += 1
                print(f"FAIL {case.__name__}: {type(fault).__name__}: {fault}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
