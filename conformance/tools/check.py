#!/usr/bin/python3
"""Everything that proves the project, stage by stage; ends with `N passed, N failed, N skipped`.

A stage is a list of commands and a way to count what they ran. A command that exits badly without a failed
test of its own is a failure too, and a stage that ran nothing is one: nothing passes by being absent. Stages are
run in order, each to its end; the shares of time are printed. `check.py NAME...` runs some stages only.

Standard library only.
"""
import json
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
JOBS = str(os.cpu_count() or 1)
SAN_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1",
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
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **SAN_ENV, **(env or {})}, text=True,
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


def cmocka(variant, target, pattern, prefix=(), env=None):
    """Build `target` in the variant and run every program there that matches; TAP lines count.

    cmocka's own status is not enough: a filter that matches nothing, or a failed teardown, exits with 0. So the plan
    must be there and met."""
    count = plain(["make", "-j", JOBS, f"VARIANT={variant}", "WERROR=1", target])
    count.passed = 0
    folder = os.path.join(ROOT, "build", variant, "bin", "tests")
    names = sorted(n for n in (os.listdir(folder) if os.path.isdir(folder) else [])
                   if re.fullmatch(pattern, n) and os.access(os.path.join(folder, n), os.X_OK))
    if not names and not count.failed:
        count.fail(f"{variant}: no test program matches {pattern}")
    for name in names:
        status, output = run([*prefix, os.path.join("build", variant, "bin", "tests", name)],
                             {"CMOCKA_MESSAGE_OUTPUT": "TAP", **(env or {})})
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


def judged(variant, extra=(), prefix=(), env=None, want=24):
    """Build the variant and judge its engine: 24 tests."""
    count = plain(["make", "-j", JOBS, f"VARIANT={variant}", "WERROR=1", "all"])
    count.passed = 0
    if count.failed:
        return count
    log = os.path.join("build", variant, "check.jsonl")
    status, output = run([*prefix, f"build/{variant}/bin/ol", "check", "L10.1", "-j", JOBS, "--report",
                          f"jsonl:{log}", *extra], env)
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


def stages():
    tools = "conformance/tools/"
    return [
        ("format", lambda: plain(["bash", tools + "format.sh"])),
        ("house rules", lambda: counted([sys.executable, "engine/tools/tidy.py"])),
        ("spec pages", lambda: counted([sys.executable, tools + "spec.py"])),
        ("goldens", lambda: plain([sys.executable, "goldens/gen/verify.py"])),
        ("build gcc", lambda: plain(["make", "-j", JOBS, "WERROR=1", "all"])),
        ("24 tests, gcc", lambda: judged("release")),
        ("build clang", lambda: plain(["make", "-j", JOBS, "VARIANT=clang", "WERROR=1", "all"])),
        ("24 tests, clang", lambda: judged("clang")),
        ("reports", lambda: counted([sys.executable, "conformance/report/test_report.py"])),
        ("judge itself", lambda: counted(["bash", "conformance/selftest/run.sh"])),
        ("unit tests, debug", lambda: cmocka("debug", "engine-tests", r"test_.*")),
        ("unit tests, asan", lambda: cmocka("asan", "engine-tests", r"test_.*")),
        ("24 tests, asan", lambda: judged("asan")),
        ("24 tests, clang asan", lambda: judged("clangasan")),
        ("unit tests, tsan", lambda: cmocka("tsan", "engine-tests", r"test_(forward|runner|ops)")),
        ("unit tests, valgrind", lambda: cmocka(
            "valgrind", "engine-tests", r"test_(?!ops).*",
            prefix=["valgrind", "-q", "--error-exitcode=99", "--leak-check=full"])),
        ("static analysis", lambda: counted(["bash", tools + "lint.sh"])),
        ("install", lambda: counted(["bash", tools + "install_test.sh"])),
    ]


def main(names):
    chosen = [s for s in stages() if not names or s[0] in names]
    unknown = [n for n in names if n not in [s[0] for s in stages()]]
    if unknown or not chosen:
        print(f"no stage {unknown}; there are: {', '.join(s[0] for s in stages())}", file=sys.stderr)
        return 2
    total, times, start = Count(), [], time.monotonic()
    for number, (name, action) in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {name} ...", end="", flush=True)
        began = time.monotonic()
        count = action()
        if count.passed + count.failed + count.skipped == 0:
            count.fail(f"{name}: ran nothing")
        times.append((time.monotonic() - began, name))
        total.add(count)
        print(f" {count.passed} passed, {count.failed} failed, {count.skipped} skipped"
              f" ({times[-1][0]:.0f} s)", flush=True)
        for words in count.words:
            print("    " + words.replace("\n", "\n    "), flush=True)
    whole = time.monotonic() - start
    print(f"\n{whole:.0f} s in all; shares: "
          + ", ".join(f"{name} {100 * spent / whole:.0f} %" for spent, name in sorted(times, reverse=True)))
    if total.words:
        print("\nFailed:")
        for words in total.words:
            print("  " + words.splitlines()[0])
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
