"""Engines given as folders of sources: what is built, borrowed and refused.

    sources.py BUILD

Uses the modules of engine/src as a learner's. Ends with `N passed, N failed, N skipped`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MODULES = ("kv", "quant", "model", "forward", "runner", "sample", "pcg32")
BUILD = TOP = None


def folder(name, modules=MODULES, **more):
    """A learner's folder with the sources of these modules; more: file names (__ for .) to text."""
    path = os.path.join(TOP, name)
    os.mkdir(path)
    source = os.path.join(ROOT, "engine/src")
    for file in os.listdir(source):
        if any(file.startswith(m) for m in modules):
            shutil.copy(os.path.join(source, file), path)
    for file, text in more.items():
        with open(os.path.join(path, file.replace("__", ".")), "a", encoding="utf-8") as out:
            out.write(text)
    return path


def check(path, *args, only="hand_example_sampling", **options):
    log = path + ".jsonl"
    done = subprocess.run([os.path.join(BUILD, "bin", "ol"), "check", "L10.1", "--engine", path, "--only", only, *args,
                           "--report", f"jsonl:{log}", "--report", "text"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=300,
                          env={**os.environ, "OL_ROOT": ROOT, "TMPDIR": TOP}, **options)
    records = []
    if os.path.exists(log):
        with open(log, encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
    return done.returncode, done.stdout, records


def want(path, code, *words, lacks=(), args=(), borrowed=None, only="hand_example_sampling"):
    status, text, records = check(path, *args, only=only)
    assert status == code, f"exit {status}, {code} is right: {text}"
    for word in words:
        assert word in text, f"`{word}` is not said: {text}"
    for word in lacks:
        assert word not in text, f"`{word}` is said: {text}"
    if borrowed is not None:
        got = records[0]["engine"]["borrowed"]
        assert got == borrowed, f"borrowed is `{got}`, `{borrowed}` is right"
        assert (borrowed == "") == ("borrowed " not in text), "the report says otherwise"
    assert [n for n in os.listdir(TOP) if n.startswith("ol-")] == [], "a run's folder was left"


def all_modules():
    want(folder("a"), 0, borrowed="", only="*_sampling")


def each_module_alone():
    for module in ("kv", "quant", "model", "forward", "runner", "sample"):
        mine = (module, "pcg32") if module == "sample" else (module,)
        rest = ", ".join(m for m in MODULES if m not in mine)
        want(folder("one-" + module, mine), 0, args=["--ref-deps"], borrowed=rest)


def nothing_but_the_reference():
    want(folder("none", ()), 0, args=["--ref-deps"], borrowed=", ".join(MODULES))


def missing_module():
    want(folder("m", ("kv", "quant", "sample", "pcg32")), 3, "there is no model*.c, forward*.c, runner*.c",
         "--ref-deps")


def missing_pcg32():
    want(folder("p", tuple(m for m in MODULES if m != "pcg32")), 3, "tl_pcg32_new")
    want(folder("q", tuple(m for m in MODULES if m != "pcg32")), 0, args=["--ref-deps"], borrowed="pcg32")


def pcg32_inside_sample():
    path = folder("i", tuple(m for m in MODULES if m != "pcg32"))
    with open(os.path.join(ROOT, "engine/src/pcg32.c"), encoding="utf-8") as stream:
        text = stream.read()
    with open(os.path.join(path, "sample_generator.c"), "w", encoding="utf-8") as out:
        out.write(text)
    want(path, 0, borrowed="")
    want(path, 0, args=["--ref-deps"], borrowed="")


def named_module():
    """A broken module is not even compiled when another is taken for it."""
    path = folder("n", kv__c="this is no C\n")
    want(path, 3, "kv.c:", lacks=["/src/kv.c", "/ol-"])
    want(path, 0, args=["--ref-deps=kv"], borrowed="kv")
    want(path, 0, args=["--ref-deps=kv,sample"], borrowed="kv, sample, pcg32")
    want(path, 3, "kv.c:", args=["--ref-deps=quant"])


def wrong_module_names():
    path = folder("w")
    want(path, 2, "is no module", args=["--ref-deps=ops"])
    want(path, 2, "is no module", args=["--ref-deps=kv,quand"])
    status, text, _ = check(os.path.join(BUILD, "lib", "libtl.so.1"), "--ref-deps")
    assert status == 2 and "folder of sources" in text, text


def compile_error():
    want(folder("c", sample__c="int tl_extra(void) { return undeclared_name; }\n"), 3,
         "does not compile", "sample.c:", "undeclared_name", lacks=["src/sample.c"])


def link_error():
    want(folder("l", sample__c="int not_there(int);\nint tl_extra(void);\nint tl_extra(void) { return not_there(1); }\n"),
         3, "does not link", "not_there")


def many_errors_are_cut():
    lines = "".join(f"int f{i}(void) {{ return g{i}; }}\n" for i in range(500))
    status, text, _ = check(folder("many", sample__c=lines))
    assert status == 3 and "..." in text and len(text) < 40000, text[-500:]


def link_in_the_folder():
    path = folder("s")
    os.symlink(os.path.join(ROOT, "goldens/MANIFEST.json"), os.path.join(path, "kv_extra.c"))
    want(path, 3, "kv_extra.c", "link")


def fifo_in_the_folder():
    path = folder("f")
    os.mkfifo(os.path.join(path, "kv_extra.c"))
    want(path, 3, "kv_extra.c")


def goldens_cannot_be_included():
    target = os.path.join(ROOT, "goldens/pcg32.vectors.json")
    want(folder("g", sample__c=f'__asm__(".incbin \\"{target}\\"");\n'), 3, "does not compile", "pcg32.vectors.json")


def reference_cannot_be_included():
    target = os.path.join(ROOT, "engine/src/kv.c")
    want(folder("r", sample__c=f'#include "{target}"\n'), 3, "does not compile", "kv.c")


def compiler_that_does_not_end():
    """A learner's file includes itself and takes a while; a device never ends."""
    want(folder("d", sample__c='#include "/dev/zero"\n'), 3)


def folder_that_is_not_there():
    status, text, _ = check(os.path.join(TOP, "nothing"))
    assert status == 3, text


def stray_files_do_not_count():
    path = folder("x", main__c="int main(void) { return 1; }\n", notes__txt="x", util__c="#error not mine\n",
                  base__c="#error not mine\n", json__c="#error\n", ops_mine__c="#error\n")
    want(path, 0, borrowed="")


CASES = [all_modules, each_module_alone, nothing_but_the_reference, missing_module, missing_pcg32,
         pcg32_inside_sample, named_module, wrong_module_names, compile_error, link_error, many_errors_are_cut,
         link_in_the_folder, fifo_in_the_folder, goldens_cannot_be_included, reference_cannot_be_included,
         compiler_that_does_not_end, folder_that_is_not_there, stray_files_do_not_count]


def main(argv):
    global BUILD, TOP
    BUILD = os.path.abspath(argv[0])
    passed = failed = skipped = 0
    for case in CASES:
        if len(argv) > 1 and case.__name__ not in argv[1:]:
            continue
        with tempfile.TemporaryDirectory(prefix="sources.") as TOP:
            os.chmod(TOP, 0o755)
            try:
                if "cannot_be_included" in case.__name__ and not ("landlock" in sandbox()):
                    skipped += 1
                    print(f"skipped {case.__name__}: this machine has no Landlock")
                    continue
                case()
                passed += 1
            except Exception as fault:  # noqa: BLE001  whatever it is, the others go on
                failed += 1
                print(f"FAIL {case.__name__}: {type(fault).__name__}: {fault}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def sandbox():
    done = subprocess.run([os.path.join(BUILD, "bin", "ol"), "doctor"], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "OL_ROOT": ROOT})
    return next(line for line in done.stdout.splitlines() if line.strip().startswith("sandbox"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
