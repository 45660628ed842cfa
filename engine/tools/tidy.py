#!/usr/bin/python3
"""The house rules as a test: what a compiler does not look at.

Each rule is checked over every C file and counted as one test per file and rule. Standard library only.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAX_FUNCTION, MAX_FILE, MAX_COLUMNS = 70, 800, 100

# A header may be included by its own folder's files and by those named here. Public headers (tl/...) by everyone.
ENGINE_LAYERS = {  # module: what it may use besides itself, base and util
    "quant": {"ops"}, "model": {"quant", "ops", "json", "io"}, "json": set(), "io": set(), "kv": set(),
    "forward": {"kv", "model", "ops", "quant", "workers"}, "workers": set(), "ops": set(),
    "runner": {"forward", "kv", "model", "ops", "quant"}, "pcg32": {"sample"}, "sample": set(),
    "base": set(), "util": set(),
}
BANNED = {
    "engine/src": [(r"\b(abort|exit|_exit|printf|fprintf|puts|perror|getenv|setenv|alloca|strcpy|strcat|sprintf|gets"
                    r"|strtok|rand|srand|atoi|atof)\s*\(", "banned call in the library"),
                   (r"^static\s+(?!const\b|inline\b|_Thread_local\b)[^()=;]*\s\w+(\[[^\]]*\])?\s*(=|;)",
                    "mutable file-level variable"),
                   (r"^\s+static\s+(?!const\b)", "static local"),
                   (r"\b(_Thread_local|__thread)\b", "thread-local state")],
    "": [(r"\b(TODO|FIXME|XXX|HACK)\b", "unfinished"), (r"\t", "tab"), (r"\s+$", "trailing space"),
         (r"\bassert_float_equal\b|\bassert_float_not_equal\b", "cmocka's float asserts pass on NaN")],
}


def sources():
    names = subprocess.run(["git", "ls-files", "-c", "-o", "--exclude-standard", "*.c", "*.h"], cwd=ROOT, text=True,
                           capture_output=True, check=True).stdout.split()
    return sorted(n for n in names if os.path.exists(os.path.join(ROOT, n)))


def strip(text):
    """The text with comments and string contents blanked, lines kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", blank, text, flags=re.S)


def functions(lines):
    """(first line, length) of every function: a `{` that ends or is alone on an unindented line, to `}`."""
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and re.match(r"^[A-Za-z_].*\)\s*\{$|^\s+.*\)\s*\{$", line) and not line.startswith(" "):
            start = number
        elif start is None and line == "{":
            start = number
        elif line.startswith("}") and start is not None:
            yield start, number - start + 1
            start = None


def includes(name, text):
    """Words for every include that goes against the layers."""
    module = os.path.basename(name).split(".")[0].split("_")[0]
    for line in re.findall(r'^#include "([^"]+)"', text, re.M):
        if name.startswith("engine/") and re.search(r"(conformance|goldens|mutants|fuzz|ol)/", line):
            yield f"the engine includes {line}"
        if not name.startswith("engine/src/") or module not in ENGINE_LAYERS:
            continue
        used = os.path.basename(line).split(".")[0].split("_")[0]
        allowed = {module, "base", "util", "tl"} | ENGINE_LAYERS[module]
        if used not in allowed:
            yield f"{module} must not use {used} ({line})"
        if not line.startswith("tl/") and used not in (module, "util", "json", "io", "ops", "workers"):
            yield f"{line} is private to {used}"


def check(name):
    """Words for everything wrong with a file, by rule."""
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        text = file.read()
    lines, bare = text.split("\n"), strip(text).split("\n")
    wrong = {"length": [], "width": [], "function": [], "include": list(includes(name, text)), "banned": [],
             "head": []}
    if len(lines) - 1 > MAX_FILE:
        wrong["length"].append(f"{len(lines) - 1} lines, {MAX_FILE} are allowed")
    wrong["width"] += [f"{n}: {len(line)} columns" for n, line in enumerate(lines, 1) if len(line) > MAX_COLUMNS]
    wrong["function"] += [f"{n}: a function of {size} lines, {MAX_FUNCTION} are allowed"
                          for n, size in functions(bare) if size > MAX_FUNCTION]
    for folder, rules in BANNED.items():
        if name.startswith(folder):
            for pattern, words in rules:
                where = lines if pattern in (r"\t", r"\s+$") or "TODO" in pattern else bare
                wrong["banned"] += [f"{n}: {words}: {lines[n - 1].strip()}" for n, line in enumerate(where, 1)
                                    if re.search(pattern, line)]
    if not text.startswith("/*"):
        wrong["head"].append("no comment at the head says what the file is for")
    return wrong


ASKED = "conformance/host/host_c_arguments.c"


def never_asked():
    """Words for every public function with a pointer among its arguments that the host does not call with NULL. The
    kernels of ops.h check nothing, as it says."""
    with open(os.path.join(ROOT, ASKED), encoding="utf-8") as file:
        asked = strip(file.read())
    for name in sorted(os.listdir(os.path.join(ROOT, "engine/include/tl"))):
        with open(os.path.join(ROOT, "engine/include/tl", name), encoding="utf-8") as file:
            declared = re.findall(r"\btl_(\w+)\s*\(([^()]*\*[^()]*)\)\s*;", strip(file.read()))
        for function, _ in declared:
            if not function.startswith("ops_") and not re.search(rf"\btl->{function}\(", asked):
                yield f"tl/{name}: tl_{function} is not called with NULL"


def main():
    passed = failed = 0
    for name in sources():
        for rule, found in check(name).items():
            passed, failed = (passed, failed + 1) if found else (passed + 1, failed)
            for words in found[:5]:
                print(f"{name}: {rule}: {words}")
    found = list(never_asked())
    passed, failed = (passed, failed + 1) if found else (passed + 1, failed)
    for words in found:
        print(f"{ASKED}: {words}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
