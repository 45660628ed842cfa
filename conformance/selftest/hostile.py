"""Run every engine of conformance/hostile and compare with verdicts.json.

    hostile.py BUILD [--user] [--bare] [--only ID...]

BUILD holds bin/ol, bin/ol-host and lib/. Each engine is judged by `ol check` on its test; its class, the
exit code and the words that the report must say are compared, and afterwards nothing may be left: no
process of the run, no run directory, no file outside. --user: the judge runs as an ordinary user (needs
root, to become one). --bare: as on a kernel without seccomp and Landlock. Ends with `N passed, N failed, N skipped`.

A row of verdicts.json: `id`, `kind` (how it is built, see Workshop.make), `test` (`*`: all 24, none may
pass), `class` and `exit` that must come, `expect` (classes of other tests), `says` (words of the report),
`args` (options), `bare` and `bare_user` (the class on a bare kernel where it is another), `threat` (its numbers
in the list of threats), `plain_judge` (why the row is skipped where the judge itself is built with a sanitizer),
`why`.
"""

import concurrent.futures
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HOSTILE = os.path.join(ROOT, "conformance", "hostile")
USER = 65533
LEFT_NAME = f"ol-hostile-left-{os.getpid()}"  # several of these scripts may run at once
CFLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-ffp-contract=off",
          "-I" + os.path.join(ROOT, "engine/include"), f'-DHOSTILE_ROOT="{ROOT}"',
          f'-DHOSTILE_LEFT="{LEFT_NAME}"']
LIBS = ["-ljansson", "-lz", "-lm", "-lpthread"]
RENAMED = {"sample": ["tl_sample"],
           "wrong": ["tl_kv_pool_new", "tl_int4_pack", "tl_qlinear_forward", "tl_abi_version",
                     "tl_runner_load", "tl_runner_run_once"],
           "lacking": ["tl_sample"], "interposed": []}
SOURCES = {"sample": ["lib_sample", "acts_process", "acts_output", "acts_state"], "wrong": ["lib_wrong"],
           "lacking": [], "interposed": ["lib_interposed"]}
LEFT = [f"{folder}/{LEFT_NAME}" for folder in ("/tmp", "/var/tmp", "/dev/shm")]


def cc(*args):
    subprocess.run(["cc", *CFLAGS, *args], check=True)


class Workshop:
    """Builds the engines into a folder that everybody can read."""

    def __init__(self, build, folder):
        self.folder = folder
        self.archive = os.path.join(build, "lib", "libtl.a")
        for source in sorted({s for names in SOURCES.values() for s in names} | {"testee"}):
            cc("-fno-builtin", "-c", f"{HOSTILE}/{source}.c", "-o", self.path(source + ".o"))
        cc("-c", os.path.join(ROOT, "conformance/runner/wire.c"), "-o", self.path("wire.o"))
        cc(os.path.join(HERE, "without.c"), "-o", self.path("without"), "-lseccomp")
        for kind, names in RENAMED.items():
            subprocess.run(["objcopy", *[f"--redefine-sym={n}=real_{n}" for n in names], self.archive,
                            self.path(kind + ".a")], check=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def act(self, row):
        target = self.path(f"act_{row['kind']}_{row['id']}.o")
        cc(f'-DHOSTILE_ACT="{row["id"]}"', "-c", f"{HOSTILE}/act.c", "-o", target)
        return target

    def make(self, row):
        """The option that gives the engine, and its path."""
        kind = row["kind"]
        target = self.path(f"{kind}_{row['id']}")
        if kind == "testee":
            cc(self.path("testee.o"), self.path("wire.o"), self.act(row), "-o", target, "-ljansson")
            return "--testee", target
        target += ".so"
        if kind == "text":
            with open(target, "w", encoding="utf-8") as out:
                out.write("this is no library\n")
        elif kind == "stub":
            self.make_stub(row, target)
        else:
            cc("-shared", *[self.path(s + ".o") for s in SOURCES[kind]],
               *([self.act(row)] if SOURCES[kind] else []),
               *(["-Wl,-Bsymbolic"] if kind == "interposed" else []), "-Wl,--whole-archive", self.path(kind + ".a"),
               "-Wl,--no-whole-archive", *LIBS, "-o", target)
        os.chmod(target, 0o755)
        return "--engine", target

    def make_stub(self, row, target):
        """All public symbols, each a function that answers one number and touches nothing."""
        value = {"stub_of_zeros": 0, "stub_of_refusals": 1}[row["id"]]
        names = subprocess.run(["nm", "-g", "--defined-only", self.archive], check=True, text=True,
                               stdout=subprocess.PIPE).stdout.split("\n")
        names = sorted({line.split()[2] for line in names if " T tl_" in line})
        source = target + ".c"
        with open(source, "w", encoding="utf-8") as out:
            for name in names:
                result, body = "long", str(value)
                if name == "tl_abi_version":
                    result, body = "int", "65536"
                elif name in ("tl_version", "tl_status_name"):
                    result, body = "const char *", '"0"'
                out.write(f"{result} {name}(void);\n{result} {name}(void) {{ return {body}; }}\n")
        cc("-shared", source, "-o", target)


def others_may_enter(folder):
    """Can a user who owns nothing here get into the folder?"""
    return os.stat(folder).st_mode & 1 and (folder == "/" or others_may_enter(os.path.dirname(folder)))


def become_user():
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)


class Mode:
    """How the judge runs: as whom, on which kernel, from which tree."""

    def __init__(self, build, folder, user, bare):
        self.build, self.folder, self.user, self.bare = build, folder, user, bare
        self.root = ROOT
        if user:
            self.root = os.path.join(folder, "tree")
            self.build = self.copy()

    def copy(self):
        """A tree that an ordinary user can read and run: programs, library, catalogue, goldens."""
        build = os.path.join(self.root, "build", "release")
        for part in ("bin/ol", "bin/ol-host", "lib/libtl.so.1"):
            os.makedirs(os.path.dirname(os.path.join(build, part)), exist_ok=True)
            shutil.copy(os.path.join(self.build, part), os.path.join(build, part))
        os.makedirs(os.path.join(self.root, "conformance"))
        shutil.copy(os.path.join(ROOT, "conformance/catalog.json"), os.path.join(self.root, "conformance"))
        shutil.copytree(os.path.join(ROOT, "goldens"), os.path.join(self.root, "goldens"),
                        ignore=shutil.ignore_patterns("gen"))
        subprocess.run(["chmod", "-R", "a+rX", self.root], check=True)
        return build

    def wanted(self, row):
        """The class and the exit code that must come in this mode."""
        cls = row["class"]
        if self.bare:
            cls = row.get("bare_user" if self.user and "bare_user" in row else "bare", cls)
        if cls == row["class"]:
            return cls, row["exit"]
        return cls, {"pass": 0, "harness-error": 70}.get(cls, 1)


def judge(mode, row, option, engine, runs):
    """Exit status, the log's lines, everything that was printed."""
    log = os.path.join(runs, "log.jsonl")
    only = sorted({row["test"], *row.get("expect", {})})
    selection = [] if row["test"] == "*" else [w for t in only for w in ("--only", t)]
    without = [os.path.join(mode.folder, "without")] if mode.bare else []
    done = subprocess.run([*without, os.path.join(mode.build, "bin", "ol"), "check", "L10.1", option, engine,
                           *selection, *row.get("args", []), "--report", f"jsonl:{log}", "--report", "text"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=300, preexec_fn=become_user if mode.user else None,
                          env={**os.environ, "TMPDIR": runs, "OL_ROOT": mode.root, "SECRET_OF_THE_GRADER": "1"})
    with open(log, encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    os.unlink(log)
    return done.returncode, records, done.stdout


def processes_of(runs):
    """Processes whose home was in that folder."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as stream:
                if b"HOME=" + runs.encode() + b"/" in stream.read():
                    found.append(path.split("/")[2])
        except OSError:
            pass
    return found


def left_behind(runs):
    faults = [name + " was left in the run's folder" for name in os.listdir(runs)]
    return faults + [f"process {pid} was left" for pid in processes_of(runs)]


def is_sanitized(build):
    """Is the judge itself built with ASan? Its address space then has no limit, and its memory is much more."""
    with open(os.path.join(build, "bin", "ol"), "rb") as stream:
        return b"__asan_report_" in stream.read()    # every judge knows the name __asan_init


def faults_of(row, wanted, status, records, text):
    cls, exit_code = wanted
    faults = []
    tests = {r["name"]: r for r in records if r["kind"] == "test"}
    footer = records[-1] if records else {}
    if footer.get("kind") != "footer":
        faults.append("the log has no footer")
    if status != exit_code:
        faults.append(f"exit code {status}, {exit_code} is right")
    if footer.get("exit_code") != status:
        faults.append("the log has another exit code")
    classes = {**row.get("expect", {})}
    if row["test"] == "*":
        faults += [f"{n} passes" for n, t in tests.items() if t["class"] == "pass"]
        faults += [f"{n} is {t['class']}" for n, t in tests.items() if t["class"] == "harness-error"]
        if len(tests) != 24:
            faults.append(f"{len(tests)} tests, 24 are right")
    else:
        classes[row["test"]] = cls
    for name, right in classes.items():
        got = tests.get(name, {}).get("class")
        if got != right:
            cause = (tests.get(name, {}).get("cause") or {}).get("rationale", "")
            faults.append(f"{name}: class {got}, {right} is right ({cause})")
    if row.get("says") and cls == row["class"] and row["says"] not in text:
        faults.append(f"the report does not say `{row['says']}`")
    return faults


def try_row(mode, shop, row):
    """The faults of one engine, as one line; empty when there is none."""
    option, engine = shop.make(row)
    runs = tempfile.mkdtemp(prefix="run.", dir=shop.folder)
    os.chmod(runs, 0o777)
    start = time.monotonic()
    status, records, text = judge(mode, row, option, engine, runs)
    faults = faults_of(row, mode.wanted(row), status, records, text) + left_behind(runs)
    if not faults:
        return ""
    shown = "\n" + text if os.environ.get("VERBOSE") else ""
    return f"{row['kind']} {row['id']} ({time.monotonic() - start:.1f} s): " + "; ".join(faults) + shown


def table_faults(rows):
    """What README.md and verdicts.json say of each threat must be the same, and what it names be there."""
    with open(os.path.join(HOSTILE, "README.md"), encoding="utf-8") as stream:
        lines = re.findall(r"^\| (h\d\d) \| [^|]+ \| ([^|]+) \|$", stream.read(), flags=re.M)
    faults = []
    if [number for number, _ in lines] != [f"h{i:02}" for i in range(1, 51)]:
        faults.append("README.md: not each of h01 to h50 once, in order")
    ids = {r["id"] for r in rows}
    for number, text in lines:
        tests = re.findall(r"`(selftest/\w+\.py)`(?:: (\w+(?:, \w+)*))?", text)
        tagged = {r["id"] for r in rows if number in r.get("threat", "").split()}
        told = set(re.findall(r"\b\w+\b", re.sub(r"`[^`]*`", "", text.partition(". ")[0]))) & ids
        if tagged != told:
            faults.append(f"README.md: {number}: {sorted(tagged ^ told)} in one of table and verdicts.json only")
        for file, names in tests:
            with open(os.path.join(ROOT, "conformance", file), encoding="utf-8") as stream:
                source = stream.read()
            faults += [f"README.md: {number}: {file} has no {n}" for n in names.split(", ")
                       if n and f"def {n}(" not in source]
        if not tagged and not tests and not text.startswith("none: "):
            faults.append(f"README.md: {number}: nothing stands for it, and no reason is given")
    return faults


def main(argv):
    user, bare = "--user" in argv, "--bare" in argv
    only = argv[argv.index("--only") + 1:] if "--only" in argv else []
    with open(os.path.join(HOSTILE, "verdicts.json"), encoding="utf-8") as stream:
        rows = [r for r in json.load(stream) if not only or r["id"] in only]
    if user and os.geteuid() != 0:
        print("only root can become another user; the run before was an ordinary user's")
        print(f"0 passed, 0 failed, {len(rows)} skipped")
        return 0
    faults = []
    with tempfile.TemporaryDirectory(prefix="ol-self.") as folder:
        os.chmod(folder, 0o755)
        shop = Workshop(os.path.abspath(argv[0]), folder)
        mode = Mode(os.path.abspath(argv[0]), folder, user, bare)
        skipped = [(r, r["plain_judge"]) for r in rows if "plain_judge" in r and is_sanitized(mode.build)]
        skipped += [(r, "another user cannot enter this folder") for r in rows
                    if r["id"] == "look_at_goldens" and user and not others_may_enter(ROOT)]
        chosen = [r for r in rows if r not in [row for row, _ in skipped]]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            faults = [f for f in pool.map(lambda r: try_row(mode, shop, r), chosen) if f]
    faults += [] if only or user or bare else table_faults(rows)
    if not bare:
        faults += [path + " was left" for path in LEFT if os.path.exists(path)]
    for path in LEFT:
        if os.path.exists(path):
            os.unlink(path)
    for row, why in skipped:
        print(f"skipped {row['kind']} {row['id']}: {why}")
    for fault in faults:
        print("FAIL " + fault)
    print(f"{len(chosen) - len(faults)} passed, {len(faults)} failed, {len(skipped)} skipped")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
