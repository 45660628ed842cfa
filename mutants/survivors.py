"""What mutants are given to that the 24 tests let through: the engine's own tests, and the fuzzer.

The 24 tests judge any engine from outside. They cannot let memory run out or a system call fail, and they see neither
memory that is not given back nor a byte past the end; engine/tests does, under ASan, UBSan and LSan.

Standard library only; building needs gcc and cmocka, fuzzing clang.
"""
import concurrent.futures
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import report
from build import Build, Unbuildable
from catalog import ROOT, read, sha

VERSION = "1"  # of what is kept of a program that was run
CPU_S, WALL_S = 30, 600  # a program takes 5 at the most; a busy machine is no verdict, so what counts is the processor
ENV = {  # as in check.py; and an end for what takes memory for ever
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:allocator_may_return_null=1:hard_rss_limit_mb=4096",
    "UBSAN_OPTIONS": "print_stacktrace=0:halt_on_error=1", "CMOCKA_MESSAGE_OUTPUT": "TAP",
}
FUZZ = {  # targets that compare a source's work with the second implementation's; none reads files from a disk
    "sample": "sampler", "pcg32": "sampler", "quant": "quant", "kv": "kv_calls", "kv_envelope": "kv_import",
    "model": "checkpoint", "model_config": "config", "model_head": "safetensors", "model_io": "",
    "model_layout": "safetensors", "model_linear": "forward", "model_sort": "safetensors", "model_tensors": "safetensors",
}


class Stop(Exception):
    """End the run with an exit code and a sentence."""

    def __init__(self, code, words):
        super().__init__(words)
        self.code = code


def stem(file):
    return os.path.basename(file).removesuffix(".c")


def module(file):
    """The module of a source: the first word of its name."""
    return re.split(r"[_.]", os.path.basename(file))[0]


def lenient(folder, cache):
    """Objects with another variant's flags: the release build has said that they compile without warnings."""
    build = Build(os.path.join(ROOT, "build", folder), cache)
    build.compile.remove("-Werror")
    build.baseline()
    return build


# ---------------------------------------------------------------- the engine's own tests


def as_cell(status, text):
    """{how, case, cases} of what a test program printed; how is "" when all is well. The plan must be met: cmocka's
    status alone is not enough."""
    plan = re.search(r"^1\.\.(\d+)$", text, re.M)
    lines = re.findall(r"^(not )?ok \d+ (# SKIP )?(?:- )?(\w*)", text, re.M)
    cases = [name for _, _, name in lines]
    bad = [name for failed, skipped, name in lines if failed and not skipped]
    word = re.search(r"ERROR: (\w+Sanitizer: .*?)(?: on | \(|0x|$)|(runtime error: .*)|(hard rss limit)", text, re.M)
    if bad:
        how = "fails"
    elif status in ("timeout", -signal.SIGXCPU, -signal.SIGKILL):
        how = "timeout"
    elif word:
        how = (word[1] or word[2] or word[3]).strip()
    elif status != 0 or not plan or int(plan[1]) != len(cases):
        how = f"ends with {status} after {len(cases)} of {plan[1] if plan else 'no'} cases"
    else:
        how = ""
    return {"how": how, "case": bad[0] if bad else "", "cases": cases}


class OwnTests:
    """engine/tests/test_*: built in the asan variant, each linked again with the engine that has the mutant in it."""

    FOLDER, ARCHIVE = "build/asan/bin/tests/", "build/asan/lib/libtl.a"

    def __init__(self, cache, jobs):
        self.cache = os.path.join(cache, "own")
        self.links = self.link_lines(jobs)
        self.build = lenient("asan", cache)
        self.keys = {}
        for program, words in self.links.items():
            texts = [word for word in words if word.endswith(".o")]
            self.keys[program] = sha(VERSION, *words, *ENV.values(), *[self.bytes(word) for word in texts])
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool, tempfile.TemporaryDirectory(prefix="own-") as folder:
            archive = self.archive(folder)
            cells = pool.map(lambda program: self.cell(self.build.code(), program, lambda: archive), self.links)
            self.clean = dict(zip(self.links, cells))
        for program, cell in self.clean.items():
            if cell["how"]:
                os.unlink(self.path(self.build.code(), program))
                raise Stop(7, f"the unmutated engine does not pass {program} under ASan: {cell['case']} {cell['how']}")

    @staticmethod
    def bytes(path):
        with open(os.path.join(ROOT, path), "rb") as file:
            return sha(file.read())

    def link_lines(self, jobs):
        """Build the variant; program -> how make links it, asked as if the archive had just changed."""
        flags = os.path.join(ROOT, "build", "asan", "flags")
        strict = "1" if os.path.exists(flags) and "-Werror" in read(flags) else "0"  # others would build it anew
        command = ["make", "VARIANT=asan", "V=1", "WERROR=" + strict, "engine-tests"]
        for more in ([f"-j{jobs}"], ["-n", "-W", self.ARCHIVE]):
            done = subprocess.run(command + more, cwd=ROOT, text=True, check=False, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if done.returncode != 0:
                raise Stop(70, f"the engine's tests do not build under ASan: {done.stdout.strip()[-500:]}")
        found = {}
        for line in done.stdout.replace("\\\n", " ").split("\n"):
            words = shlex.split(line) if self.FOLDER in line and " -o " in line else []
            if "-o" in words and words[words.index("-o") + 1].startswith(self.FOLDER):
                found[words[words.index("-o") + 1][len(self.FOLDER):]] = words
        sources = os.listdir(os.path.join(ROOT, "engine", "tests"))
        if sorted(found) != sorted(s[:-2] for s in sources if re.fullmatch(r"test_\w+\.c", s)):
            raise Stop(70, f"make links other tests than engine/tests has: {' '.join(sorted(found))}")
        return found

    def archive(self, folder, source=None, made=None):
        """The library of the variant, one object perhaps another's."""
        path = os.path.join(folder, "libtl.a")
        if not os.path.exists(path):
            objects = [made if name == source else self.build.objects[name][0] for name in self.build.sources]
            subprocess.run(["ar", "rcs", path, *objects], check=True)
        return path

    def run(self, program, archive):
        """Link and run; what a cell holds, with the sources that the program has in it and the seconds it took."""
        with tempfile.TemporaryDirectory(prefix="own-") as folder:
            path = os.path.join(folder, program)
            words = [archive if w == self.ARCHIVE else path if w == self.FOLDER + program else w for w in self.links[program]]
            linked = subprocess.run([*words, "-Wl,-t,-t"], cwd=ROOT, text=True, check=True, stdout=subprocess.PIPE).stdout
            begin = time.monotonic()
            with open(path + ".txt", "w+", encoding="utf-8", errors="replace") as out:
                try:
                    status = subprocess.run(["sh", "-c", f"ulimit -t {CPU_S}; exec \"$0\"", path], cwd=ROOT, check=False,
                                            env={**os.environ, **ENV}, timeout=WALL_S, stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=subprocess.STDOUT).returncode
                except subprocess.TimeoutExpired:
                    status = "timeout"
                out.seek(0)
                text = out.read()
            objects = set(re.findall(r"\w+\.o\b", linked))
            members = [s for s in self.build.sources if os.path.basename(self.build.objects[s][0]) in objects]
            seconds = round(time.monotonic() - begin, 2)
            return {**as_cell(status, text), "members": members, "seconds": seconds}

    def path(self, code, program):
        key = sha(code, self.keys[program])
        return os.path.join(self.cache, key[:2], key + ".json")

    def cell(self, code, program, archive):
        path = self.path(code, program)
        if not os.path.exists(path):
            report.put(path, json.dumps(self.run(program, archive())))
        return json.loads(read(path))

    def order(self, file, first=""):
        """The programs that have the source in them: the one that saw the mutant before, those of its name, quick ones."""
        likely = [f"test_{stem(file)}", f"test_{module(file)}"]
        return sorted((p for p, cell in self.clean.items() if file in cell["members"]), key=lambda p: (
            p != first, *[not p.startswith(name) for name in likely], self.clean[p]["seconds"]))

    def judged(self, mutant, lines, first=""):
        """{program, case, how} of the first that does not pass; None when all do."""
        try:
            made, digest = self.build.object(mutant.file, mutant.source(lines))
        except Unbuildable as words:
            raise Stop(70, f"{mutant.id} compiles as release and not under ASan: {words}") from words
        code = self.build.code(mutant.file, digest)
        with tempfile.TemporaryDirectory(prefix="own-") as folder:
            for program in self.order(mutant.file, first):
                cell = self.cell(code, program, lambda: self.archive(folder, mutant.file, made))
                if cell["how"]:
                    at = self.clean[program]["cases"][len(cell["cases"]):]  # that which it did not come back from
                    return {"program": program, "case": cell["case"] or (at[0] if at else "at its end"), "how": cell["how"]}
        return None


# ---------------------------------------------------------------- fuzzing


class Fuzzer:
    """Survivors as libraries with the fuzz variant's flags, each given to a target for some seconds."""

    def __init__(self, cache):
        self.cache = os.path.join(cache, "fuzzed")
        self.build = lenient("fuzz", cache)
        self.build.link = [w for w in self.build.link if w != "-Wl,-z,defs"] + ["-Wl,-Bsymbolic"]

    def run(self, mutant, lines, seconds):
        """{target, seconds, executions, found}, kept by the code that was fuzzed; None when no target is for it."""
        target = FUZZ.get(stem(mutant.file), FUZZ.get(module(mutant.file), ""))
        if not target:
            return None
        made, digest = self.build.object(mutant.file, mutant.source(lines))
        code = self.build.code(mutant.file, digest)[:16]
        kept = os.path.join(self.cache, f"{code}-{target}-{seconds}.json")
        if not os.path.exists(kept):
            library = self.build.library(os.path.join(self.cache, code + ".so"), mutant.file, made)
            done = subprocess.run([sys.executable, os.path.join(ROOT, "fuzz", "fuzz.py"), "run", target, "--lib", library,
                                   "--seconds", str(seconds)], text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            found = re.search(r"^(.*) executions in (\d+) s.*: (FOUND|nothing found)$", done.stdout, re.M)
            if not found or done.returncode not in (0, 1):
                raise Stop(70, f"fuzz.py run {target}: {done.stdout.strip()[-500:]}")
            wrong = re.search(r"^(?:WRONG|.*ERROR|.*runtime error).*", done.stdout, re.M)
            result = {"target": target, "seconds": int(found[2]), "executions": int(found[1].split()[-1]),
                      "found": (wrong[0] if wrong else "an end without words") if found[3] == "FOUND" else ""}
            report.put(kept, json.dumps(result))
            os.unlink(library)
        return json.loads(read(kept))
