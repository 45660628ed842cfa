#!/usr/bin/python3
"""Tests of the ready folders: what can be run here is run.

    test_examples.py [--ol PATH]

What cannot be run here (an Ubuntu image, a container engine, a cluster, a grader's own service) is read by a checker of
its language where there is one, and named in the README of its folder. Ends with `N passed, N failed, N skipped`.
"""
import argparse
import csv
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "conformance", "report"))
sys.dont_write_bytecode = True
import readers  # noqa: E402

MODULES = ("kv", "quant", "model", "forward", "runner", "sample", "pcg32")
OL = os.path.join(ROOT, "build/release/bin/ol")


class Skip(Exception):
    """A tool that this machine does not have."""


def need(program):
    if shutil.which(program) is None:
        raise Skip(f"there is no {program}")


def run(*command, env=None, cwd=None, timeout=600):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
                          errors="replace", timeout=timeout, env={**os.environ, "OL": OL, **(env or {})})


def script(name):
    return os.path.join(HERE, name)


def copy_modules(source, folder, modules=MODULES):
    os.makedirs(folder, exist_ok=True)
    for path in glob.glob(os.path.join(source, "*.[ch]")):
        name = os.path.basename(path)
        if name.endswith(".h") or name.startswith(tuple(modules)):
            shutil.copy(path, folder)


def good(folder):
    copy_modules(os.path.join(ROOT, "engine", "src"), folder)


def stubs(folder):
    copy_modules(os.path.join(ROOT, "conformance", "start"), folder)


def broken(folder):
    stubs(folder)
    with open(os.path.join(folder, "kv.c"), "a", encoding="utf-8") as file:
        file.write("int x = ;\n")


def half(folder):
    """Its pool is written, everything else is a stub."""
    stubs(folder)
    copy_modules(os.path.join(ROOT, "engine", "src"), folder, ["kv"])


# ------------------------------------------------------------------ graders


def gradescope_runs(folder):
    base = os.path.join(folder, "autograder")
    os.makedirs(os.path.join(base, "source"))
    policy = os.path.join(base, "source", "policy.json")
    shutil.copy(script("gradescope/policy.json"), policy)
    results = os.path.join(base, "results", "results.json")

    def grade(make, code):
        shutil.rmtree(os.path.join(base, "submission"), ignore_errors=True)
        make(os.path.join(base, "submission"))
        done = run("bash", script("gradescope/run_autograder"), env={"AUTOGRADER": base})
        assert done.returncode == code, (done.returncode, done.stderr)
        with open(results, encoding="utf-8") as file:
            return readers.gradescope(file.read())
    value = grade(good, 0)
    assert value["score"] == 100 and len(value["tests"]) == 24
    assert all(t["status"] == "passed" for t in value["tests"])
    value = grade(half, 0)
    kv = [t for t in value["tests"] if t["name"].startswith("kv_") and t["status"] == "passed"]
    assert len(kv) == 4 and abs(value["score"] - 25) < 1e-3, value["score"]
    assert abs(sum(t["score"] for t in value["tests"]) - value["score"]) < 1e-2
    value = grade(broken, 0)
    assert value["score"] == 0 and "kv.c" in value["output"] and "error" in value["output"]
    assert all(t["status"] == "failed" for t in value["tests"])
    with open(policy, "w", encoding="utf-8") as file:
        file.write("{}")
    value = grade(stubs, 5)
    assert "tests" not in value and "score" not in value and "policy" in value["output"]


def gradescope_is_packed(folder):
    need("git")
    target = os.path.join(folder, "a.zip")
    done = run("bash", script("gradescope/pack.sh"), target)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(target) as packed:
        names = packed.namelist()
        for name in ("setup.sh", "run_autograder", "policy.json", "tl/Makefile",
                     "tl/conformance/catalog.json"):
            assert name in names, name
        assert packed.getinfo("run_autograder").external_attr >> 16 & 0o111, "cannot be executed"


def prairielearn_runs(folder):
    grade = os.path.join(folder, "grade")
    results = os.path.join(grade, "results", "results.json")
    os.makedirs(os.path.join(grade, "tests"))
    shutil.copy(script("prairielearn/policy.json"), os.path.join(grade, "tests"))

    def judge(make, **env):
        shutil.rmtree(os.path.join(grade, "student"), ignore_errors=True)
        make(os.path.join(grade, "student"))
        return run("bash", script("prairielearn/run.sh"), env={"GRADE": grade, **env}).returncode
    assert judge(half, POLICY="yes") == 0
    with open(results, encoding="utf-8") as file:
        value = readers.prairielearn(file.read())
    assert value["gradable"] and abs(value["score"] - 0.25) < 1e-6 and len(value["tests"]) == 24
    assert judge(broken) == 0
    with open(results, encoding="utf-8") as file:
        value = readers.prairielearn(file.read())
    assert not value["gradable"] and "kv.c" in value["output"]
    with open(os.path.join(grade, "tests", "policy.json"), "w", encoding="utf-8") as file:
        file.write("[]")
    assert judge(stubs, POLICY="yes") == 5 and not os.path.exists(results)
    with open(script("prairielearn/info.json"), encoding="utf-8") as file:
        info = json.load(file)
    assert info["externalGradingOptions"]["entrypoint"].startswith("/opt/tl/")
    assert os.access(os.path.join(ROOT, info["externalGradingOptions"]["entrypoint"][8:]), os.X_OK)


def github_runs(folder):
    half(os.path.join(folder, "engine"))
    summary = os.path.join(folder, "summary.md")
    open(summary, "w", encoding="utf-8").close()
    judge = script("github-classroom/judge.sh")
    done = run("bash", judge, OL, "engine", cwd=folder, env={"GITHUB_STEP_SUMMARY": summary})
    assert done.returncode == 1, done.stderr
    found = readers.github(done.stdout)
    assert len(found) == 10 and found[0][0] == "error"
    with open(summary, encoding="utf-8") as file:
        assert len(readers.markdown(file.read())[1]) == 26
    for name in ("log.jsonl", "report.html", "junit.xml"):
        assert os.path.getsize(os.path.join(folder, name)) > 0
    broken(os.path.join(folder, "engine"))
    found = readers.github(run("bash", judge, OL, "engine", cwd=folder).stdout)
    assert found[0][1]["file"] == "engine/kv.c" and found[0][1]["title"] == "compiler", found


def workflows_are_yaml(_folder):
    try:
        import yaml
    except ImportError:
        raise Skip("there is no python3-yaml") from None
    with open(script("github-classroom/judge.yml"), encoding="utf-8") as file:
        judge = yaml.safe_load(file)
    steps = judge["jobs"]["judge"]["steps"]
    assert judge["permissions"] == {"contents": "read"} and len(steps) == 5
    # An input in a script would be text that bash runs; it comes in by the environment.
    assert not any("${{" in s.get("run", "") for s in steps)
    with open(script("github-classroom/student.yml"), encoding="utf-8") as file:
        student = yaml.safe_load(file)
    assert set(student["jobs"]["judge"]["with"]) <= set(judge[True]["workflow_call"]["inputs"])


# ------------------------------------------------------------------ classes


def a_class_in_parallel(folder):
    need("parallel")
    submissions, results = os.path.join(folder, "in"), os.path.join(folder, "out")
    for name, make in (("ada", good), ("ben", half), ("cem", broken), ("dea o'hara", stubs)):
        make(os.path.join(submissions, name))
    done = run("bash", script("parallel/class.sh"), submissions, results)
    assert done.returncode == 0, done.stderr
    with open(os.path.join(results, "class.csv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(r["submission"], r["passed"]) for r in rows[:4]] == [
        ("ada", "24"), ("ben", "4"), ("cem", "0"), ("dea o'hara", "0")], rows
    assert all(r["trouble"] == r["old_goldens"] == "" for r in rows)
    with open(os.path.join(results, "class.html"), encoding="utf-8") as file:
        assert "4 submissions, 1 with" in readers.Page(file.read()).headings[0]
    # Once more: what is finished stays, what was cut is judged again.
    kept = os.stat(os.path.join(results, "ada.jsonl")).st_mtime_ns
    cut = os.path.join(results, "cem.jsonl")
    with open(cut, "rb+") as file:
        file.truncate(os.path.getsize(cut) - 10)
    assert run("bash", script("parallel/class.sh"), submissions, results).returncode == 0
    assert os.stat(os.path.join(results, "ada.jsonl")).st_mtime_ns == kept
    assert run(OL, "report", "show", cut).returncode == 0


def an_array_task(folder):
    stubs(os.path.join(folder, "in", "one"))
    broken(os.path.join(folder, "in", "two"))
    with open(os.path.join(folder, "list"), "w", encoding="utf-8") as file:
        file.write(f"{folder}/in/one/\n{folder}/in/two/\n")

    def task(number, *more):
        return run("bash", script("slurm/array.sh"), f"{folder}/list", f"{folder}/out", *more,
                   env={"SLURM_ARRAY_TASK_ID": number}).returncode
    assert task("1") == 0 and task("2") == 0 and task("3") == 2
    assert sorted(os.listdir(os.path.join(folder, "out"))) == ["one.jsonl", "two.jsonl"]
    assert task("1", "--grade", "/nowhere") == 5
    done = run(OL, "report", "class", f"{folder}/out/two.jsonl")
    assert done.returncode == 0 and "1 submissions, 1 counted" in done.stdout, done.stdout


def shards_of_one_run(folder):
    stubs(os.path.join(folder, "e"))
    with open(os.path.join(ROOT, "conformance", "catalog.json"), encoding="utf-8") as file:
        names = [t["name"] for t in json.load(file)["tests"]]
    parts = ([n for n in names if n.startswith("kv_")], [n for n in names if not n.startswith("kv_")])
    for number, part in enumerate(parts):
        only = [w for n in part for w in ("--only", n)]
        done = run(OL, "check", "L10.1", "--engine", f"{folder}/e", *only, "--report",
                   f"jsonl:{folder}/{number}.jsonl")
        assert done.returncode == 1, done.stderr
    done = run(OL, "report", "merge", f"{folder}/0.jsonl", f"{folder}/1.jsonl", "-o", f"{folder}/all")
    assert done.returncode == 0, done.stderr
    assert "; 24 of 24 tests ran" in run(OL, "report", "show", f"{folder}/all").stdout
    assert run(OL, "report", "merge", f"{folder}/0.jsonl").returncode == 2


def old_golden_is_told(folder):
    """After a golden was corrected, the class table names the logs that were made with the old one, and the tests
    that it touches."""
    for name in ("before", "after"):
        stubs(os.path.join(folder, name))
        assert run(OL, "check", "L10.1", "--engine", f"{folder}/{name}", "--report",
                   f"jsonl:{folder}/{name}.jsonl").returncode == 1
    today = os.path.join(folder, "goldens")
    shutil.copytree(os.path.join(ROOT, "goldens"), today)
    gen = os.path.join(today, "gen")
    for words in (["f16.py", "--seed", "2"], ["manifest.py"]):
        done = run("/usr/bin/python3", "-B", os.path.join(gen, words[0]), *words[1:], "--out", today)
        assert done.returncode == 0, done.stderr
    done = run(OL, "check", "L10.1", "--engine", f"{folder}/after", "--goldens", today, "--report",
               f"jsonl:{folder}/after.jsonl")
    assert done.returncode == 1, done.stderr
    done = run(OL, "report", "class", f"{folder}/before.jsonl", f"{folder}/after.jsonl", "--goldens", today,
               "--html", f"{folder}/class.html", "--csv", f"{folder}/class.csv")
    assert done.returncode == 0, done.stderr
    with open(f"{folder}/class.csv", encoding="utf-8") as file:
        old = {row["submission"]: row["old_goldens"] for row in csv.DictReader(file)}
    assert old["before"] == "MANIFEST.json f16.vectors.json" and old["after"] == "", old
    with open(f"{folder}/class.html", encoding="utf-8") as file:
        page = file.read()
    assert "Made with other goldens than today&#x27;s: 1" in page or "Made with other goldens than today's: 1" in page
    assert "f16_rounds_to_nearest_even" in page


def a_killed_judge_scores_nobody(folder):
    """On a kernel without seccomp an engine of the same user can kill `ol` itself: every folder stops there."""
    killed = os.path.join(folder, "ol")
    with open(killed, "w", encoding="utf-8") as file:
        # Killed as soon as the file of its last report is there, long before the end.
        file.write(f"""#!/bin/sh
[ "$1" = check ] || exec {OL} "$@"
{OL} "$@" & pid=$!
until [ -s "$SEEN" ]; do sleep 0.02; done
kill -9 $pid
wait $pid
""")
    os.chmod(killed, 0o755)
    base, grade, out = (os.path.join(folder, n) for n in ("autograder", "grade", "out"))
    for name in (f"{base}/source", f"{grade}/tests"):
        os.makedirs(name)
    shutil.copy(script("gradescope/policy.json"), f"{base}/source")
    shutil.copy(script("prairielearn/policy.json"), f"{grade}/tests")
    for name in (f"{base}/submission", f"{grade}/student", f"{folder}/in/one"):
        good(name)
    with open(f"{folder}/list", "w", encoding="utf-8") as file:
        file.write(f"{folder}/in/one/\n")

    def ends(code, seen, *command, **env):
        done = run("bash", *command, env={"OL": killed, "SEEN": seen, **env}, cwd=folder)
        assert done.returncode == code, (command, done.returncode, done.stderr)
        return done
    results = f"{base}/results/results.json"
    ends(137, f"{base}/results/log.jsonl", script("gradescope/run_autograder"), AUTOGRADER=base)
    with open(results, encoding="utf-8") as file:
        assert not readers.gradescope(file.read()).keys() & {"tests", "score"}
    results = f"{grade}/results/results.json"
    ends(137, results, script("prairielearn/run.sh"), GRADE=grade, POLICY="yes")
    assert not os.path.exists(results)
    ends(137, f"{folder}/junit.xml", script("github-classroom/judge.sh"), killed, "in/one")
    ends(137, f"{out}/one.jsonl", script("slurm/array.sh"), f"{folder}/list", out, SLURM_ARRAY_TASK_ID="1")
    done = run(OL, "report", "class", f"{out}/one.jsonl")
    assert done.returncode == 70 and "no footer" in done.stdout, done.stdout
    if shutil.which("parallel"):
        ends(70, f"{folder}/class/one.html", script("parallel/class.sh"), f"{folder}/in", f"{folder}/class")


# ------------------------------------------------------------------ engines


def plain_engine_is_right(folder):
    """The second implementation passes everything, and with --strict fails what only strict asks: bits of one order.
    The sentences of its refusals are its own, and name what tests#terms asks for."""
    plain = script("plain")
    assert run(OL, "check", "L10.1", "--engine", plain, "--report", f"jsonl:{folder}/plain").returncode == 0
    assert run(OL, "check", "L10.1", "--engine", plain, "--strict", "--report", f"jsonl:{folder}/strict").returncode == 1
    for name, failed in (("plain", set()), ("strict", {"q4_linear_matches_its_dequantized_weights.golden_bits"})):
        with open(f"{folder}/{name}", encoding="utf-8") as lines:
            tests = [t for t in map(json.loads, lines) if t["kind"] == "test"]
        assert len(tests) == 24
        wrong = {c["id"]: c["first"]["message"] for t in tests for c in t["checks"] if c["state"] == "failed"}
        assert set(wrong) == failed, (name, wrong)


def python_testee_is_right(folder):
    """A program in another language, written from the page of the protocol, passes all 24. It is copied, since the
    user that it runs as may not be able to enter the folder of the checks."""
    shutil.copy(script("testee.py"), folder)
    shutil.copytree(script("testee_py"), f"{folder}/testee_py")
    done = run(OL, "check", "L10.1", "--testee", f"{folder}/testee.py", "--report", f"jsonl:{folder}/log")
    assert done.returncode == 0, done.stderr
    assert "24 pass; 24 of 24 tests ran" in run(OL, "report", "show", f"{folder}/log").stdout
    for path in [script("testee.py"), *glob.glob(script("testee_py/*.py"))]:
        with open(path, encoding="utf-8") as file:
            used = set(re.findall(r"^\s*(?:from|import) (\w+)", file.read(), re.M))
        foreign = used - sys.stdlib_module_names - {"numpy", "testee_py"}
        assert not foreign and "ctypes" not in used, (path, foreign)


# ------------------------------------------------------------------ what is only read


def container_command(folder):
    """No container is run here; what would be run is looked at."""
    stubs(os.path.join(folder, "in"))
    os.mkdir(os.path.join(folder, "out"))
    done = run("bash", script("container/run.sh"), f"{folder}/in", f"{folder}/out", "--fresh", "7",
               env={"DOCKER": "echo", "IMAGE": "judge"})
    words = done.stdout.split()
    assert done.returncode == 0 and words[0] == "run", done
    assert words[words.index("--network") + 1] == "none" and "--read-only" in words, words
    assert f"{folder}/in:/work/engine:ro" in words and f"{folder}/out:/results" in words, words
    given = words[words.index("judge") + 1:]
    assert given[:4] == ["check", "L10.1", "--engine", "/work/engine"] and given[-2:] == ["--fresh", "7"], given


def scripts_are_sound(_folder):
    names = glob.glob(os.path.join(HERE, "*", "*.sh")) + [script("gradescope/run_autograder")]
    for name in names:
        assert os.access(name, os.X_OK), name
        done = run("bash", "-n", name)
        assert done.returncode == 0, done.stderr
    need("shellcheck")
    done = run("shellcheck", *names)
    assert done.returncode == 0, done.stdout


def what_was_not_tried_is_said(_folder):
    for name in ("gradescope", "prairielearn", "github-classroom", "container", "slurm"):
        with open(script(f"{name}/README.md"), encoding="utf-8") as file:
            assert "**Not tried:**" in file.read(), name


def packages_are_those_of_the_project(_folder):
    """The folders that install packages name the same ones as the project's own list."""
    with open(os.path.join(ROOT, "conformance", "tools", "deps.sh"), encoding="utf-8") as file:
        wanted = set(re.search(r"^judge='(.*)'", file.read(), re.M)[1].split())
    for name in ("gradescope/setup.sh", "container/Containerfile"):
        with open(script(name), encoding="utf-8") as file:
            text = file.read().replace("\\\n", " ")
        listed = set(re.search(r"--no-install-recommends ([\w\s.+-]+)", text)[1].split())
        assert wanted | {"python3", "python3-numpy"} <= listed, (name, wanted - listed)


def main():
    global OL
    parser = argparse.ArgumentParser()
    parser.add_argument("--ol", default=OL)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    OL = os.path.abspath(args.ol)
    tests = [scripts_are_sound, what_was_not_tried_is_said, packages_are_those_of_the_project,
             workflows_are_yaml, gradescope_runs, gradescope_is_packed, prairielearn_runs, github_runs,
             a_killed_judge_scores_nobody, a_class_in_parallel, an_array_task, shards_of_one_run, old_golden_is_told, container_command,
             plain_engine_is_right, python_testee_is_right]
    passed = failed = skipped = 0
    for function in tests:
        if args.names and function.__name__ not in args.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            try:
                function(folder)
                passed += 1
            except Skip as why:
                skipped += 1
                print(f"skipped {function.__name__}: {why}")
            except Exception:  # noqa: BLE001 - whatever it is, the test failed
                failed += 1
                print(f"FAILED {function.__name__}\n{traceback.format_exc()}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
