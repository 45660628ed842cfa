#!/usr/bin/python3
"""Everything that proves the project, stage by stage; ends with `N passed, N failed, N skipped`.

A stage is a command or a few and a way to count what they ran. A command that exits badly without a failed test of
its own is a failure too, and a stage that ran nothing is one: nothing passes by being absent. Two stages run at once,
each when those that it needs are done; the shares of time and the coverage table are printed. `check.py NAME...` runs
some stages only, with the builds that they need.

Standard library only.
"""
import json
import os
import re
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
JOBS = str(os.cpu_count() or 1)
LANES = min(2, os.cpu_count() or 1)  # stages at once; each runs JOBS processes where it can
ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1",
    # For every make below a stage, too: one with other flags would build a variant anew while others run it.
    "WERROR": "1",
}


class Count:
    """What was run: passed, failed, skipped, and the words for what failed."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.words = []

    def fail(self, words, output=""):
        self.failed += 1
        tail = "\n".join(output.strip().splitlines()[-30:])
        self.words.append(words + ("\n" + tail if tail else ""))

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.words += other.words


def run(command, env=None, timeout=900):
    """Exit status and the two outputs together. A timeout is status 124."""
    try:
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **ENV, **(env or {})}, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=timeout)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        out = late.stdout or b""
        return 124, (out if isinstance(out, str) else out.decode("utf-8", "replace")) + "\ntimed out"


def plain(command, env=None, timeout=900):
    """The exit status is the verdict: one test."""
    count = Count()
    status, output = run(command, env, timeout)
    if status == 0:
        count.passed += 1
    else:
        count.fail(f"{' '.join(command)}: exit status {status}", output)
    return count


def counted(command, env=None, timeout=1500):
    """The command's last line that says `N passed, N failed` (`, N skipped`) counts."""
    count = Count()
    status, output = run(command, env, timeout)
    lines = re.findall(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", output, re.M)
    if lines:
        count.passed, count.failed, count.skipped = (int(n or 0) for n in lines[-1])
    if count.failed:
        count.words.append(f"{' '.join(command)}:\n" + "\n".join(output.strip().splitlines()[-60:]))
    elif status != 0 or not lines:
        count.fail(f"{' '.join(command)}: exit status {status}", output)
    return count


def cmocka(variant, pattern, prefix=()):
    """Run every unit test program of the variant that matches; TAP lines count.

    cmocka's own status is not enough: a filter that matches nothing, or a failed teardown, exits with 0. So the plan
    must be there and met."""
    count = Count()
    folder = os.path.join(ROOT, "build", variant, "bin", "tests")
    sources = os.listdir(os.path.join(ROOT, "engine", "tests"))
    names = sorted(s[:-2] for s in sources if s.endswith(".c") and re.fullmatch(pattern, s[:-2]))
    if not names:
        count.fail(f"{variant}: no test program matches {pattern}")
    for name in names:
        status, output = run([*prefix, os.path.join("build", variant, "bin", "tests", name)],
                             {"CMOCKA_MESSAGE_OUTPUT": "TAP"})
        plan = re.findall(r"^1\.\.(\d+)$", output, re.M)
        good = len(re.findall(r"^ok \d+", output, re.M))
        skipped = len(re.findall(r"^(?:not )?ok \d+ # SKIP", output, re.M))
        bad = len(re.findall(r"^not ok \d+ (?!# SKIP)", output, re.M))
        count.passed += good
        count.skipped += skipped
        if bad or status != 0 or not plan or sum(map(int, plan)) != good + bad + skipped:
            for _ in range(max(bad, 1)):
                count.fail(f"{variant}/{name}: exit status {status}, {bad} failed", output)
                output = ""
    return count


def judged(variant, extra=(), want=24):
    """Judge the variant's engine: 24 tests."""
    count = Count()
    log = os.path.join("build", variant, "check.jsonl")
    if os.path.exists(os.path.join(ROOT, log)):
        os.unlink(os.path.join(ROOT, log))
    status, output = run([f"build/{variant}/bin/ol", "check", "L10.1", "-j", JOBS, "--report",
                          f"jsonl:{log}", *extra])
    try:
        with open(os.path.join(ROOT, log), encoding="utf-8") as lines:
            tests = [t for t in map(json.loads, lines) if t.get("kind") == "test"]
    except (OSError, ValueError) as broken:
        count.fail(f"{variant}: no log: {broken}", output)
        return count
    bad = [t for t in tests if t["class"] != "pass"]
    count.passed += len(tests) - len(bad)
    for test in bad:
        count.fail(f"{variant} {' '.join(extra)}: {test['name']}: {test['class']}")
    if bad or status != 0 or len(tests) != want:
        count.fail(f"{variant}: ol check ended with {status} and {len(tests)} of {want} tests", output)
    return count


def named_mutants():
    """Each named wrong engine is one test: killed by its own test, through every check that the catalogue names."""
    count, path = Count(), os.path.join("build", "mutants", "check.json")
    if os.path.exists(os.path.join(ROOT, path)):
        os.unlink(os.path.join(ROOT, path))
    status, output = run([sys.executable, "mutants/mutants.py", "named", "-j", JOBS, "--report", f"json:{path}",
                          "--report", "text"])
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            rows = json.load(file)["mutants"]
    except (OSError, ValueError) as broken:
        count.fail(f"mutants: no matrix: {broken}", output)
        return count
    for row in rows:
        if row["verdict"] == "killed":
            count.passed += 1
        elif row["verdict"].startswith("needs-"):
            count.skipped += 1
        else:
            count.fail(f"mutant {row['id']}: {row['verdict']}: {row.get('why', '')}")
    if status != 0 and not count.failed:
        count.fail(f"mutants: exit status {status}", output)
    return count


class Stage:
    """A name, an action that counts, and the stages that must have gone well before."""

    def __init__(self, name, action, *after):
        self.name, self.action, self.after = name, action, after
        self.count = self.seconds = None


def build(variant, *targets):
    return lambda: plain(["make", "-j", JOBS, f"VARIANT={variant}", *(targets or ("all", "engine-tests"))])


def python(*words, env=None, timeout=1500):
    return lambda: counted([sys.executable, *words], env, timeout)


# MSan needs every library instrumented that writes what we read: these are the tests that load no JSON.
NO_JSON = r"test_(kv|kv_envelope|pcg32|quant|sample|sample_drawn|ops|util|forward|forward_check)"
MEMCHECK = ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=all",
            "--errors-for-leak-kinds=all"]
# The loader keeps what it knows of an engine that stays loaded to the end: reachable, and not ours.
MEMCHECK_LOADED = MEMCHECK[:3] + ["--errors-for-leak-kinds=definite,indirect,possible"]


def stages():
    """Long ones first: two at a time, the last to begin should be short."""
    tools = "conformance/tools/"
    return [
        Stage("build gcc", build("release")),
        Stage("build valgrind", build("valgrind")),
        Stage("24 tests, gcc", lambda: judged("release"), "build gcc"),
        Stage("24 tests, valgrind", lambda: judged("valgrind", ["--wrap", " ".join(MEMCHECK_LOADED)]), "build valgrind"),
        Stage("build asan", build("asan")),
        Stage("static analysis", lambda: counted(["bash", tools + "lint.sh"])),
        Stage("judge itself", lambda: counted(["bash", "conformance/selftest/run.sh"], {"FRESH": "0"}), "build gcc"),
        Stage("fresh inputs", python("conformance/selftest/fresh.py", "build/release"), "build gcc"),
        Stage("coverage", python(tools + "coverage.py", timeout=3000), "build gcc"),
        Stage("judge itself, asan", lambda: counted(["make", "-s", "judge-asan"]), "build gcc", "build asan"),
        Stage("unit tests, valgrind", lambda: cmocka("valgrind", r"test_(?!ops).*", MEMCHECK), "build valgrind"),
        Stage("unit tests, gcc", lambda: cmocka("release", r"test_.*"), "build gcc"),
        Stage("unit tests, asan", lambda: cmocka("asan", r"test_.*"), "build asan"),
        Stage("24 tests, asan", lambda: judged("asan"), "build asan"),
        Stage("build clang asan", build("clangasan")),
        Stage("unit tests, clang asan", lambda: cmocka("clangasan", r"test_.*"), "build clang asan"),
        Stage("24 tests, clang asan", lambda: judged("clangasan"), "build clang asan"),
        Stage("threads, helgrind", lambda: cmocka(
            "valgrind", r"test_forward", ["valgrind", "--tool=helgrind", "-q", "--error-exitcode=99"]),
              "build valgrind"),
        Stage("threads, drd", lambda: cmocka(
            "valgrind", r"test_forward", ["valgrind", "--tool=drd", "-q", "--error-exitcode=99"]), "build valgrind"),
        Stage("build tsan", build("tsan")),
        Stage("threads, tsan", lambda: cmocka("tsan", r"test_(forward|runner|scratch_oom)"), "build tsan"),
        Stage("24 tests, tsan", lambda: judged("tsan"), "build tsan"),
        Stage("build msan", build("msan", "engine-tests")),
        Stage("unit tests, msan", lambda: cmocka("msan", NO_JSON), "build msan"),
        Stage("build clang", build("clang", "all")),
        Stage("24 tests, clang", lambda: judged("clang"), "build clang"),
        Stage("mutants", named_mutants, "build gcc"),
        Stage("mutants' runner", python("mutants/test_mutants.py"), "build gcc", "build asan"),
        Stage("reports", python("conformance/report/test_report.py"), "build gcc"),
        Stage("faults", python(tools + "faults.py"), "build gcc"),
        Stage("fuzz corpora", lambda: counted(["make", "-s", "-j", JOBS, "fuzz-replay"]), "build asan",
              "build valgrind"),
        Stage("fuzz corpora, clang asan", python("fuzz/fuzz.py", "replay", "--variant", "clangasan"), "build clang asan"),
        Stage("fuzz coverage", python("fuzz/fuzz.py", "cover")),
        Stage("fuzz limits", python("fuzz/fuzz.py", "limits"), "build gcc"),
        Stage("fuzz tools", python("fuzz/test_fuzz.py", timeout=3000), "build gcc", "build asan"),
        Stage("start", python("conformance/start/test_start.py"), "build gcc"),
        Stage("examples", python("conformance/examples/test_examples.py"), "build gcc"),
        Stage("install", lambda: counted(["bash", tools + "install_test.sh"]), "build gcc"),
        Stage("goldens", lambda: plain([sys.executable, "goldens/gen/verify.py"])),
        Stage("golden generators", lambda: plain([sys.executable, "-B", "goldens/gen/models_test.py"])),
        Stage("spec pages", python(tools + "spec.py")),
        Stage("house rules", python("engine/tools/tidy.py")),
        Stage("format", lambda: plain(["bash", tools + "format.sh"])),
    ]


class Board:
    """Hands out stages whose predecessors are done, prints each as it ends."""

    def __init__(self, chosen, known):
        self.waiting, self.running = list(chosen), set()
        names = {s.name for s in chosen}
        self.ended = {s.name: True for s in known if s.name not in names}  # not asked for: taken as done
        self.n_all, self.done, self.lock = len(chosen), [], threading.Condition()

    def take(self):
        """The next stage that can begin; None when there is none left. Waits while others may free one."""
        with self.lock:
            while self.waiting:
                for stage in self.waiting:
                    if all(name in self.ended for name in stage.after):
                        self.waiting.remove(stage)
                        self.running.add(stage.name)
                        return stage
                self.lock.wait()
            return None

    def end(self, stage):
        with self.lock:
            self.running.discard(stage.name)
            self.ended[stage.name] = stage.count.failed == 0
            self.done.append(stage)
            print(f"[{len(self.done)}/{self.n_all}] {stage.name}: {stage.count.passed} passed, {stage.count.failed} "
                  f"failed, {stage.count.skipped} skipped ({stage.seconds:.0f} s)", flush=True)
            for words in stage.count.words:
                print("    " + words.replace("\n", "\n    "), flush=True)
            self.lock.notify_all()


def work(board):
    for stage in iter(board.take, None):
        began = time.monotonic()
        broken = [name for name in stage.after if not board.ended[name]]
        if any(name.startswith("build ") for name in broken):
            stage.count = Count()
            stage.count.fail(f"{stage.name}: not run, {broken[0]} failed")
        else:
            try:
                stage.count = stage.action()
            except Exception as fault:  # pylint: disable=broad-except; a stage that breaks has failed, the rest goes on
                stage.count = Count()
                stage.count.fail(f"{stage.name}: {type(fault).__name__}: {fault}")
        if stage.count.passed + stage.count.failed + stage.count.skipped == 0:
            stage.count.fail(f"{stage.name}: ran nothing")
        stage.seconds = time.monotonic() - began
        board.end(stage)


def show_coverage():
    path = os.path.join(ROOT, "build", "coverage", "coverage.md")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            print("\n" + file.read())


def main(names):
    known = stages()
    if names in (["-h"], ["--help"]):
        print(__doc__.strip() + "\n\nStages:\n" + "\n".join("  " + s.name for s in known))
        return 0
    unknown = [n for n in names if n not in [s.name for s in known]]
    builds = {a for s in known if s.name in names for a in s.after if a.startswith("build ")}
    chosen = [s for s in known if not names or s.name in names or s.name in builds]
    if unknown or not chosen:
        print(f"no stage {unknown}; there are: {', '.join(s.name for s in known)}", file=sys.stderr)
        return 2
    start, board = time.monotonic(), Board(chosen, known)
    lanes = [threading.Thread(target=work, args=(board,)) for _ in range(LANES)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    total, whole = Count(), time.monotonic() - start
    for stage in board.done:
        total.add(stage.count)
    if "coverage" in [s.name for s in board.done]:
        show_coverage()
    busy = sum(s.seconds for s in board.done)
    shares = sorted(((s.seconds, s.name) for s in board.done), reverse=True)
    print(f"\n{whole:.0f} s in all, {LANES} stages at once; shares: "
          + ", ".join(f"{name} {100 * spent / busy:.0f} %" for spent, name in shares))
    if total.words:
        print("\nFailed:")
        for words in total.words:
            print("  " + words.splitlines()[0])
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
