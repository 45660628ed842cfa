#!/usr/bin/python3
"""The judge and the engine on a machine that fails: no memory, no descriptors, no processes, no disk, killed at any
moment, stopped and continued, a reader that sleeps or leaves, a testee whose bytes come one by one.

    faults.py [BUILD]        BUILD (build/release) holds bin/ol, bin/ol-host, bin/tl-hello

What is asked: a right engine is never called wrong; whoever cannot go on says why and ends with the code for it; a
report is the old one or a whole new one; nothing is left running. Ends with `N passed, N failed, N skipped`.
Standard library only.
"""
import ast
import fcntl
import glob
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/release"))
OL, HELLO = os.path.join(BUILD, "bin/ol"), os.path.join(BUILD, "bin/tl-hello")
BIGRAM = os.path.join(ROOT, "goldens/models/bigram")
QUICK = ["check", "L10.1", "--only", "hand_example_sampling", "--only", "pcg32_reference_vectors", "-j", "2"]
PASS, INTERNAL = 0, 70
MIB = 1 << 20


class Fault(Exception):
    """What was found, in words."""


def need(condition, words):
    if not condition:
        raise Fault(words)


def run(command, limits=(), **more):
    """Run with resource limits in the new process. stdin is empty, outputs are caught unless given."""
    def set_limits():
        for what, value in limits:
            resource.setrlimit(what, (value, value))
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
               "errors": "replace", "timeout": 300, "cwd": ROOT, "check": False, "restore_signals": True, **more}
    return subprocess.run(command, preexec_fn=set_limits, **options)


def classes(text):
    """The classes in the table of a text report."""
    return re.findall(r"^(?:hand_example_sampling|pcg32_reference_vectors) +\S+ +(\S+)", text, re.M)


def check_judged(done, what):
    """A run in want: it passed, or it says that the judge could not do its work, or that memory lacked."""
    need(done.returncode >= 0, f"{what}: ol was ended by signal {-done.returncode}")
    if done.returncode == PASS:
        need(classes(done.stdout) == ["pass", "pass"], f"{what}: passed without its tests:\n{done.stdout}")
        return True
    words = done.stdout + done.stderr
    need(words.strip() != "", f"{what}: exit code {done.returncode} and not a word")
    if done.returncode == 1:
        wrong = [c for c in classes(done.stdout) if c not in ("pass", "resource", "harness-error")]
        need(not wrong, f"{what}: a right engine is called {wrong}:\n{done.stdout}")
    else:
        # 127: the loader had no room for the libraries; 3: the engine's process had none.
        need(done.returncode in (INTERNAL, 127, 3), f"{what}: exit code {done.returncode}: {words}")
    return False


# ------------------------------------------------------------------ the tests


def engine_in_a_tiny_address_space(_):
    right = run([HELLO, BIGRAM, "a"])
    need(right.returncode == 0, f"tl-hello: {right.stderr}")
    outcomes = set()
    for mib in [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64, 128]:
        done = run([HELLO, BIGRAM, "a"], [(resource.RLIMIT_AS, mib * MIB)])
        # Below some MiB the kernel itself ends a program that it cannot even begin.
        begins = done.stderr != "" or done.stdout != ""
        need(done.returncode >= 0 or (not begins and mib < 4), f"{mib} MiB: ended by signal {-done.returncode}")
        need(done.returncode != 0 or done.stdout == right.stdout, f"{mib} MiB: another output: {done.stdout}")
        need(done.returncode == 0 or done.stderr != "" or not begins, f"{mib} MiB: not a word")
        outcomes.add(done.returncode == 0)
    need(outcomes == {True, False}, "the sweep met only one end")


def judge_in_a_tiny_address_space(_):
    outcomes = {check_judged(run([OL, *QUICK], [(resource.RLIMIT_AS, mib * MIB)]), f"{mib} MiB")
                for mib in [4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 256]}
    need(outcomes == {True, False}, "the sweep met only one end")


# Between a program and the C library: one malloc of the sizes that jansson's buffers grow to is refused, the TURN-th of
# each worker, or with a minus of the main process.
REFUSING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
void *malloc(size_t n) {
    static void *(*real)(size_t);
    static pid_t first;
    static long turn, left;
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "malloc");
        first = getpid();
        turn = atol(getenv("TURN"));
        left = labs(turn);
    }
    int counts = n >= 256 && (n & (n - 1)) == 0 && (getpid() == first) == (turn < 0);
    return counts && left-- == 0 ? NULL : real(n);
}
"""


def judge_refused_memory_inside_json(folder):
    """jansson's parser goes on with a token cut short: nothing right must be called wrong by it."""
    shim, ends = os.path.join(folder, "refusing.so"), set()
    made = run(["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", shim], stdin=None, input=REFUSING)
    need(made.returncode == 0, f"the shim does not build: {made.stderr}")
    for turn in [*range(24), *range(-2000, 0, 197), 10 ** 9]:
        done = run([OL, *QUICK], env={**os.environ, "LD_PRELOAD": shim, "TURN": str(turn)})
        check_judged(done, f"TURN={turn}")
        need({*classes(done.stdout)} <= {"pass", "harness-error"}, f"TURN={turn}: {done.stdout}")
        ends.add(done.returncode)
    need(ends == {PASS, INTERNAL}, f"the runs ended with {ends} only")


def judge_without_descriptors(_):
    outcomes = {check_judged(run([OL, *QUICK], [(resource.RLIMIT_NOFILE, n)]), f"{n} descriptors")
                for n in [3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 64]}
    need(outcomes == {True, False}, "the sweep met only one end")


def judge_without_processes(folder):
    if os.geteuid() != 0:
        return "needs root, to become a user of whom nothing runs"
    os.chmod(folder, 0o777)
    for n in (1, 2, 3, 4):
        try:
            done = run([OL, *QUICK], [(resource.RLIMIT_NPROC, n)], user=65531, group=65531, extra_groups=[],
                       env={**os.environ, "TMPDIR": folder})
        except PermissionError:
            return "another user cannot enter this folder"
        check_judged(done, f"{n} processes")
    return None


def judge_stopped_and_continued(_):
    """Clocks jump while it stands still, and its children run on."""
    child = subprocess.Popen([OL, "check", "L10.1", "--only", "kv_pool_b*", "--only", "sampler*", "-j", "2"], cwd=ROOT,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    rounds = 0
    while child.poll() is None and rounds < 200:
        for number in (signal.SIGSTOP, signal.SIGCONT):
            if child.poll() is None:
                os.killpg(child.pid, number)
            time.sleep(0.01)
        rounds += 1
    output = child.communicate(timeout=120)[0]
    need(child.returncode == PASS, f"exit code {child.returncode} after {rounds} stops:\n{output}")
    need(rounds > 5, "it was over before it could be stopped")


def reader_sleeps(_):
    """A pipe of one page that nobody empties for a while."""
    reader, writer = os.pipe()
    import fcntl  # pylint: disable=import-outside-toplevel
    fcntl.fcntl(writer, 1031, 4096)  # F_SETPIPE_SZ
    child = subprocess.Popen([OL, *QUICK, "--report", "jsonl"], cwd=ROOT, stdout=writer, stderr=subprocess.DEVNULL)
    os.close(writer)
    time.sleep(2)
    with open(reader, encoding="utf-8") as pipe:
        text = pipe.read()
    need(child.wait(60) == PASS, f"exit code {child.returncode}")
    records = [json.loads(line) for line in text.splitlines()]
    need(records[-1]["kind"] == "footer", "the log has no footer")


def reader_leaves(_):
    reader, writer = os.pipe()
    child = subprocess.Popen([OL, *QUICK], cwd=ROOT, stdout=writer, stderr=subprocess.DEVNULL)
    os.close(writer)
    os.close(reader)
    need(child.wait(60) != PASS, "output that went nowhere is called a pass")


def old_report(path):
    with open(path, "w", encoding="utf-8") as file:
        file.write("the old one\n")


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def check_whole(folder):
    """Each report is the old one, or whole: as its format demands, with its end."""
    log, junit = read(os.path.join(folder, "log.jsonl")), read(os.path.join(folder, "junit.xml"))
    kinds = set()
    if log != "the old one\n":
        records = [json.loads(line) for line in log.splitlines()]
        need(log.endswith("\n") and records[0]["kind"] == "header", "a log that was cut")
        kinds.add("log whole" if records[-1]["kind"] == "footer" else "log stub")
    if junit != "the old one\n":
        tree = xml.etree.ElementTree.fromstring(junit)
        kinds.add(f"junit {tree.tag}")
    return kinds


def reports(folder):
    return ["--report", f"jsonl:{folder}/log.jsonl", "--report", f"junit:{folder}/junit.xml"]


def killed_at_any_moment(folder):
    seen, draw = set(), random.Random(1)
    begin = time.monotonic()
    need(run([OL, *QUICK, *reports(folder)]).returncode == PASS, "the run to measure did not pass")
    whole_s = time.monotonic() - begin
    for _ in range(40):
        for name in ("log.jsonl", "junit.xml"):
            old_report(os.path.join(folder, name))
        child = subprocess.Popen([OL, *QUICK, *reports(folder)], cwd=ROOT, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0, 1.2 * whole_s))
        child.kill()
        child.wait()
        seen |= check_whole(folder)
    need(seen, "every kill came before the first report")
    time.sleep(1)
    need(not survivors(), f"still running: {survivors()}")


def survivors():
    """Processes of engines of this build whose judge is gone."""
    found = []
    for path in glob.glob("/proc/[0-9]*/status"):
        try:
            text = read(path)
            exe = os.readlink(os.path.join(os.path.dirname(path), "exe"))
        except OSError:
            continue
        if re.search(r"^PPid:\t1$", text, re.M) and exe.startswith("/") and "/ol-" in exe and exe.endswith("ol-host"):
            found.append(exe)
    return found


def no_room_for_reports(folder):
    """The size of a file is limited, and the signal for it ignored: write fails with EFBIG half way."""
    for name in ("log.jsonl", "junit.xml"):
        old_report(os.path.join(folder, name))
    ignore = lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN),  # noqa: E731
                      resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700)))
    done = subprocess.run([OL, *QUICK, *reports(folder)], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=120, check=False, preexec_fn=ignore, restore_signals=False)
    need(done.returncode == INTERNAL, f"exit code {done.returncode}: {done.stdout}{done.stderr}")
    need(not check_whole(folder), "an old report is gone")
    need(not glob.glob(os.path.join(folder, "*.tmp-*")), "a temporary file was left")


def full_device(folder):
    done = run([OL, *QUICK, "--report", "jsonl:/dev/full"])
    need(done.returncode == INTERNAL, f"a log to a full device ends with {done.returncode}")
    need("space" in done.stdout + done.stderr, f"the reason is not said: {done.stderr}")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = run([OL, *QUICK], stdout=full)
    need(done.returncode != PASS, "a text that could not be written is called a pass")
    _ = folder


def full_file_system(folder):
    if os.geteuid() != 0:
        return "needs root, to mount a small file system"
    if run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", folder]).returncode != 0:
        return "a file system cannot be mounted here"
    try:
        for name in ("log.jsonl", "junit.xml"):
            old_report(os.path.join(folder, name))
        done = run([OL, *QUICK, *reports(folder)])
        need(done.returncode == INTERNAL, f"exit code {done.returncode}: {done.stdout}{done.stderr}")
        check_whole(folder)
        need(not glob.glob(os.path.join(folder, "*.tmp-*")), "a temporary file was left")
    finally:
        run(["umount", folder])
    return None


def bytes_one_by_one(folder):
    """A testee whose every read takes at most 5 bytes and every write gives at most 7."""
    examples = os.path.join(ROOT, "conformance/examples")
    shutil.copytree(os.path.join(examples, "testee_py"), os.path.join(folder, "testee_py"))
    drip = os.path.join(folder, "drip.py")
    with open(drip, "w", encoding="utf-8") as file:
        file.write("#!/usr/bin/python3\nimport os\nread, write = os.read, os.write\n"
                   "os.read = lambda fd, n: read(fd, min(n, 5) if fd == 3 else n)\n"
                   "os.write = lambda fd, b: write(fd, b[:7])\n")
        file.write(read(os.path.join(examples, "testee.py")).split("\n", 1)[1])
    os.chmod(folder, 0o755)
    os.chmod(drip, 0o755)
    done = run([OL, *QUICK, "--testee", drip])
    need(done.returncode == PASS, f"exit code {done.returncode}:\n{done.stdout}{done.stderr}")


# Between a program and the C library: two of three calls are interrupted, the third does a part of what was asked.
ROUGH = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))
static int interrupted(unsigned *n) { errno = EINTR; return ++*n % 3 != 0; }
ssize_t read(int fd, void *at, size_t n) {
    static unsigned turn;
    return interrupted(&turn) ? -1 : REAL(read)(fd, at, n > 1021 ? 1021 : n > 1 ? n / 2 : n);
}
ssize_t write(int fd, const void *at, size_t n) {
    static unsigned turn;
    return interrupted(&turn) ? -1 : REAL(write)(fd, at, n > 1021 ? 1021 : n > 1 ? n / 2 : n);
}
int poll(struct pollfd *fds, nfds_t n, int ms) {
    static unsigned turn;
    return interrupted(&turn) ? -1 : REAL(poll)(fds, n, ms);
}
pid_t waitpid(pid_t pid, int *status, int options) {
    static unsigned turn;
    return interrupted(&turn) ? -1 : REAL(waitpid)(pid, status, options);
}
pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage) {
    static unsigned turn;
    return interrupted(&turn) ? -1 : REAL(wait4)(pid, status, options, usage);
}
"""


def interrupted_calls_and_short_reads(folder):
    """The judge first; then the host of an engine, as a testee whose calls go through the same."""
    shim, rough = os.path.join(folder, "rough.so"), os.path.join(folder, "rough")
    made = run(["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", shim], stdin=None, input=ROUGH)
    need(made.returncode == 0, f"the shim does not build: {made.stderr}")
    ask = [*QUICK, "--only", "f16_rounds_to_nearest_even"]  # frames of half a megabyte
    done = run([OL, *ask], env={**os.environ, "LD_PRELOAD": shim})
    need(done.returncode == PASS, f"the judge: exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    os.chmod(folder, 0o755)
    for part in ("bin/ol-host", "lib/libtl.so.1"):
        shutil.copy(os.path.join(BUILD, part), folder)
    with open(rough, "w", encoding="utf-8") as file:
        # The loader passes over a shim that it cannot read; the redirection does not.
        file.write(f"#!/bin/sh\ncd {folder} || exit 9\n: < rough.so || exit 9\n"
                   "LD_PRELOAD=./rough.so exec ./ol-host ./libtl.so.1\n")
    os.chmod(rough, 0o755)
    done = run([OL, *ask, "--testee", rough])
    need(done.returncode == PASS, f"the host: exit code {done.returncode}:\n{done.stdout}{done.stderr}")


# ------------------------------------------------------------------ files that scripts write

# How each script writes a file: what it imports, and the write of `text` to `path`. The first is no script of ours: it
# writes in place, and must be caught, or the test would see nothing.
WRITERS = {
    "in place": ("", "with open(path, 'w') as file: file.write(text)"),
    "goldens": ("sys.path.insert(0, 'goldens/gen'); import vectors", "vectors.write_text(path, text)"),
    "models": ("sys.path.insert(0, 'goldens/gen'); import models_file, pathlib",
               "models_file.write_whole(pathlib.Path(path), text.encode())"),
    "reports": ("sys.path.insert(0, 'conformance/report'); from ol_report import files", "files.write(path, text)"),
    "matrix": ("sys.path.insert(0, 'mutants'); import report", "report.write('json', path, text, {})"),
    "cells": ("sys.path.insert(0, 'mutants'); import cells\n"
              "judge = cells.Judge.__new__(cells.Judge); judge._path = lambda *_: path",
              "judge.keep('', '', True, text)"),
    "corpora": ("sys.path.insert(0, 'fuzz'); import fuzz", "fuzz.write_whole(path, text.encode())"),
}
WRITER = """import sys
path = sys.argv[1]
{imports}
for i in range(int(sys.argv[2])):
    text = "ab"[i % 2] * 4000000
    {write}
    if i == 1:
        print("begun", flush=True)
"""


def is_torn(path):
    """Anything but one text as a whole; writers of JSON add quotes and a line's end."""
    text = read(path).strip('"\n')
    return len(text) != 4000000 or len(set(text)) != 1


def scripts_killed_in_the_middle(folder):
    draw, torn, left = random.Random(2), set(), {}
    for name, (imports, write) in WRITERS.items():
        path = os.path.join(folder, "file")
        for _ in range(60 if name == "in place" else 8):
            child = subprocess.Popen([sys.executable, "-B", "-c", WRITER.format(imports=imports, write=write), path,
                                      "1000000"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
            begun = child.stdout.readline()
            time.sleep(draw.uniform(0, 0.05))
            child.kill()
            child.wait()
            child.stdout.close()
            need(begun == "begun\n", f"{name}: the writer does not run")
            if is_torn(path):
                torn.add(name)
                break
        done = run([sys.executable, "-B", "-c", WRITER.format(imports=imports, write=write), path, "1"])
        need(done.returncode == 0, f"{name}: {done.stderr}")
        left[name] = set(os.listdir(folder)) - {"file"}
        for part in left[name]:
            os.unlink(os.path.join(folder, part))
    need("in place" in torn, "a file that is written in place was never caught half written: this test sees nothing")
    need(torn == {"in place"}, f"half a file was left by: {', '.join(sorted(torn - {'in place'}))}")
    del left["cells"]    # a cache in build/, which goes with it
    need(not any(left.values()), f"the next write leaves what a killed one left: {left}")


def leftovers_of_killed_runs_are_no_hindrance(folder):
    """Process ids come again, in containers always: what a killed run left must not stop one of its number."""
    path = os.path.join(folder, "report")
    program = ("import os, sys; sys.path.insert(0, 'conformance/report'); from ol_report import files\n"
               "path = sys.argv[1]; open(f'{path}.tmp-{os.getpid()}', 'w').write('half')\nfiles.write(path, 'new')")
    done = run([sys.executable, "-B", "-c", program, path])
    need(done.returncode == 0 and read(path) == "new", f"reports: exit code {done.returncode}: {done.stderr}")
    need(os.listdir(folder) == ["report"], f"left: {os.listdir(folder)}")
    # The judge's own writer, whose number is the shell's that became it.
    done = run(["sh", "-c", 'echo half > "$1.tmp-$$"; shift; exec "$@"', "sh", path, OL, *QUICK, "--report",
                f"jsonl:{path}"])
    need(done.returncode == PASS, f"the judge: exit code {done.returncode}: {done.stdout}{done.stderr}")
    need(os.listdir(folder) == ["report"], f"left: {os.listdir(folder)}")


def leftovers_go_with_the_next_write(folder):
    """Killed before the rename: who writes this report next removes what is left, but nothing of a writer that lives."""
    path, shim = os.path.join(folder, "report"), os.path.join(folder, "killed.so")
    made = run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", shim], stdin=None, input=(
        "#include <signal.h>\n#include <unistd.h>\n"
        "int rename(const char *from, const char *to) { (void)from, (void)to; return kill(getpid(), SIGKILL); }\n"))
    need(made.returncode == 0, f"the shim does not build: {made.stderr}")
    writer = WRITER.format(imports=WRITERS["reports"][0], write=WRITERS["reports"][1])
    lives, others = f"{path}.tmp-1", ["report.tmp-1", "report.tmp-x", "other.tmp-1"]
    for name in others:
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write("half")
    with open(lives, encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for command in ([OL, *QUICK, "--report", f"jsonl:{path}"], [sys.executable, "-B", "-c", writer, path, "1"]):
            done = run(command, env={**os.environ, "LD_PRELOAD": shim})
            left = set(os.listdir(folder)) - {"killed.so", *others}
            need(done.returncode == -signal.SIGKILL and len(left) == 1, f"{done.returncode}, {left}: {done.stderr}")
            done = run(command)
            need(done.returncode == PASS, f"{command[0]}: exit code {done.returncode}: {done.stdout}{done.stderr}")
            need(set(os.listdir(folder)) == {"killed.so", "report", *others}, f"there are: {os.listdir(folder)}")
            os.unlink(path)


def scripts_without_room(folder):
    """The second text does not fit any more: the writer fails, and the first is still there."""
    ignore = lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # noqa: E731
    for name, (imports, write) in list(WRITERS.items())[1:]:
        path = os.path.join(folder, name)
        program = WRITER.format(imports=imports, write=write)
        need(run([sys.executable, "-B", "-c", program, path, "1"]).returncode == 0, f"{name}: the writer does not run")
        before = read(path)
        done = subprocess.run([sys.executable, "-B", "-c", "import resource, sys\n" + program.replace(
            "for i in", "resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))\nfor i in"), path, "2"], cwd=ROOT,
                              capture_output=True, text=True, check=False, preexec_fn=ignore, restore_signals=False)
        need(done.returncode != 0 and done.returncode > 0, f"{name}: a write without room is called good")
        need(done.stderr.strip() != "", f"{name}: a write without room, and not a word")
        need(read(path) == before, f"{name}: the old file is gone")


# Scripts whose files are made again by their next run, or are nobody's but their own.
DERIVED = {
    "conformance/tools/coverage.py": "build/coverage, which each run makes anew",
    "conformance/tools/check.py": "build/",
    "conformance/tools/faults.py": "a folder of its own",
    "engine/tools/tidy.py": "a folder of its own",
    "fuzz/fuzz.py: fuzz_one": "the fuzzer's words, in build/",
    "fuzz/limits.py": "a folder of its own",
    "mutants/strangers.py": "a copy in build/",
}


def scripts_write_beside(_):
    """Every function of a script that opens a file to write also moves it into place, or stands above with a reason."""
    listed = run(["git", "ls-files", "-c", "-o", "--exclude-standard", "*.py"])
    if listed.returncode != 0:
        return "needs git, to list the scripts"
    wrong, n_found = [], 0
    for name in listed.stdout.split():
        base = os.path.basename(name)
        if base.startswith("test_") or "/selftest/" in name or "/examples/" in name or name in DERIVED:
            continue
        for scope in ast.walk(ast.parse(read(os.path.join(ROOT, name)))):
            if not isinstance(scope, ast.FunctionDef):
                continue
            text = ast.unparse(scope)
            if re.search(r"open\([^()]*'[wax]b?\+?'|O_CREAT|(?<!\bv)\.write_(text|bytes)\(", text):
                n_found += 1  # v.write_text is the goldens' own, which is asked here too
                moves = re.search(r"os\.(replace|rename|link)\(|TemporaryDirectory", text)
                if not moves and f"{name}: {scope.name}" not in DERIVED:
                    wrong.append(f"{name}: {scope.name}")
    need(n_found > 5, "no writer was found at all")
    need(not wrong, "writes into place, where a kill leaves half a file: " + ", ".join(wrong))
    return None


TESTS = [engine_in_a_tiny_address_space, judge_in_a_tiny_address_space, judge_refused_memory_inside_json,
         judge_without_descriptors, judge_without_processes, judge_stopped_and_continued, reader_sleeps,
         reader_leaves, killed_at_any_moment, no_room_for_reports, full_device, full_file_system, bytes_one_by_one,
         interrupted_calls_and_short_reads, leftovers_of_killed_runs_are_no_hindrance,
         leftovers_go_with_the_next_write, scripts_killed_in_the_middle, scripts_without_room, scripts_write_beside]


def main():
    passed = failed = skipped = 0
    only = sys.argv[2:]
    for test in TESTS:
        if only and test.__name__ not in only:
            continue
        with tempfile.TemporaryDirectory(prefix="ol-faults.") as folder:
            try:
                why = test(folder)
                passed += why is None
                skipped += why is not None
                if why is not None:
                    print(f"skipped {test.__name__}: {why}")
            except (Fault, OSError, ValueError, subprocess.SubprocessError, xml.etree.ElementTree.ParseError) as found:
                failed += 1
                print(f"FAIL {test.__name__}: {found}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
