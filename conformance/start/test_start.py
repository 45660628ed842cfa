#!/usr/bin/python3
"""Tests of `ol start`: nothing is written over, the stubs compile without a warning, and none of the
tests takes a bare stub for an engine or dies of one.

    test_start.py [--ol PATH]

Ends with `N passed, N failed`.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MODULES = ("kv", "quant", "model", "forward", "runner", "sample", "pcg32")
FLAGS = ("-std=c11 -D_POSIX_C_SOURCE=200809L -O2 -fPIC -fno-common -fvisibility=hidden "
         "-ffp-contract=off -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion "
         "-Wstrict-prototypes -Wmissing-prototypes -Wcast-qual -Wcast-align -Wpointer-arith -Wundef "
         "-Wvla -Wdouble-promotion -Werror").split()


def run(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **more)


def start(ol, folder):
    done = run(ol, "start", "L10.1", "--into", folder)
    assert done.returncode == 0, done.stdout
    return done.stdout


def never_over_a_file(ol, folder):
    kept = {"kv.c": "mine\n", "given/util.h": "mine too\n", "Makefile": ""}
    os.makedirs(os.path.join(folder, "given"))
    for name, text in kept.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    os.symlink("/nowhere/at/all", os.path.join(folder, "model.c"))
    said = start(ol, folder)
    for name, text in kept.items():
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            assert file.read() == text, name
        assert f"kept {name}" in said, said
    assert os.readlink(os.path.join(folder, "model.c")) == "/nowhere/at/all"
    assert "kept model.c" in said and not os.path.exists("/nowhere")
    assert os.path.exists(os.path.join(folder, "quant.c"))
    assert start(ol, folder).count("  kept ") == len(said.split("kept ")) - 1 + int(
        said.split("wrote ")[1].split()[0])


def wrong_words(ol, folder):
    assert run(ol, "start", "L10.2", cwd=folder).returncode == 2
    assert run(ol, "start", "--onto", "x", cwd=folder).returncode == 2
    with open(os.path.join(folder, "file"), "w", encoding="utf-8"):
        assert run(ol, "start", "--into", "file", cwd=folder).returncode == 2
    assert os.listdir(folder) == ["file"]


def stubs_compile_without_a_warning(ol, folder):
    start(ol, folder)
    for compiler in ("gcc", "clang"):
        if run("sh", "-c", f"command -v {compiler}").returncode:
            continue
        for module in MODULES:
            done = run(compiler, *FLAGS, "-Iinclude", "-Igiven", "-c", f"{module}.c", "-o", "x.o",
                       cwd=folder)
            assert done.returncode == 0 and not done.stdout, done.stdout
    done = run("make", cwd=folder)
    assert done.returncode == 0 and "warning" not in done.stdout, done.stdout
    assert os.path.exists(os.path.join(folder, "libmine.so"))


def no_test_passes_a_stub(ol, folder):
    start(ol, folder)
    for strict in ([], ["--strict"]):
        log = os.path.join(folder, "log.jsonl")
        done = run(ol, "check", "L10.1", "--engine", folder, "--report", f"jsonl:{log}", *strict)
        assert done.returncode == 1, done.stdout
        with open(log, encoding="utf-8") as file:
            tests = [t for t in map(json.loads, file) if t["kind"] == "test"]
        assert len(tests) == 24
        for test in tests:
            assert test["class"] in ("fail", "refused-wrong", "blocked"), (test["name"],
                                                                            test["class"])


def each_module_can_stand_alone(ol, folder):
    """One module of the plain engine, everything else from the reference: its own tests pass."""
    plain = os.path.join(ROOT, "conformance", "examples", "plain")
    only = {"kv": "kv_pool_rejects*", "quant": "int4_hand*", "model": "config_*",
            "forward": "batched_*", "runner": "run_once_*", "sample": "hand_*",
            "pcg32": "pcg32_*"}
    for module, pattern in only.items():
        mine = os.path.join(folder, module)
        os.makedirs(mine)
        for name in os.listdir(plain):
            if name.startswith(module) or name.endswith(".h"):
                with open(os.path.join(plain, name), encoding="utf-8") as file:
                    text = file.read()
                with open(os.path.join(mine, name), "w", encoding="utf-8") as file:
                    file.write(text)
        log = os.path.join(folder, "log.jsonl")
        done = run(ol, "check", "L10.1", "--engine", mine, "--ref-deps", "--only", pattern,
                   "--report", f"jsonl:{log}")
        assert done.returncode == 0, done.stdout
        with open(log, encoding="utf-8") as file:
            borrowed = json.loads(file.readline())["engine"]["borrowed"].split(", ")
        wanted = [m for m in MODULES if m != module]
        assert borrowed == wanted, (module, borrowed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ol", default=os.path.join(ROOT, "build/release/bin/ol"))
    ol = os.path.abspath(parser.parse_args().ol)
    tests = [never_over_a_file, wrong_words, stubs_compile_without_a_warning,
             no_test_passes_a_stub, each_module_can_stand_alone]
    failed = 0
    for function in tests:
        with tempfile.TemporaryDirectory() as folder:
            try:
                function(ol, folder)
            except Exception:  # noqa: BLE001 - whatever it is, the test failed
                failed += 1
                print(f"FAILED {function.__name__}\n{traceback.format_exc()}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
