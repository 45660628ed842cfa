#!/usr/bin/python3
"""`ol start`: a folder in which the modules can be written.

Writes a stub of each module, the public headers, the given sources and a small Makefile. A file that
is there is never written over: it is listed as kept. Standard library only.
"""
import argparse
import glob
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MODULE = "L10.1"
MODULES = ("kv", "quant", "model", "forward", "runner", "sample", "pcg32")
GIVEN = ("base", "util", "json", "workers", "ops*")


class Stop(Exception):
    """Ends the program with an exit code and one sentence."""

    def __init__(self, code, words):
        super().__init__(words)
        self.code = code


def sources():
    """What goes where: pairs of a path in the project and one in the new folder."""
    for module in MODULES:
        yield f"conformance/start/{module}.c", f"{module}.c"
    for path in sorted(glob.glob(os.path.join(ROOT, "engine/include/tl/*.h"))):
        name = os.path.basename(path)
        yield f"engine/include/tl/{name}", f"include/tl/{name}"
    for given in GIVEN:
        for ending in ("c", "h"):
            for path in sorted(glob.glob(os.path.join(ROOT, f"engine/src/{given}.{ending}"))):
                name = os.path.basename(path)
                yield f"engine/src/{name}", f"given/{name}"
    yield "conformance/start/Makefile.in", "Makefile"


def find_ol():
    """The judge to call in the Makefile: the built one when it is there."""
    built = os.path.join(ROOT, "build", "release", "bin", "ol")
    return built if os.access(built, os.X_OK) else "ol"


def text_of(path):
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            return file.read().replace("@OL@", find_ol())
    except OSError as why:
        raise Stop(70, f"{path}: {why.strerror}") from None


def put(folder, name, text):
    """Write a new file, whole or not at all; False when something stands there, a dangling link too."""
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        return False
    part = f"{path}.part-{os.getpid()}"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        os.link(part, path)  # unlike a rename it does not go over a file that was made in the meantime
    except FileExistsError:
        return False
    finally:
        os.unlink(part)
    return True


def parse(argv):
    parser = argparse.ArgumentParser(prog="ol start", allow_abbrev=False)
    parser.add_argument("module", nargs="?", default=MODULE)
    parser.add_argument("--into", metavar="DIR", default=MODULE)
    args = parser.parse_args(argv)
    if args.module != MODULE:
        raise Stop(2, f"there is no module {args.module} here; this is {MODULE}")
    return args


def main(argv):
    args = parse(argv)
    kept, written = [], []
    try:
        for source, name in sources():
            (written if put(args.into, name, text_of(source)) else kept).append(name)
    except OSError as why:
        raise Stop(2, f"{why.filename or args.into}: {why.strerror}") from None
    print(f"{args.into}: wrote {len(written)} files")
    for name in kept:
        print(f"  kept {name}: it was there already")
    print("write " + ", ".join(f"{m}.c" for m in MODULES)
          + f"; then\n  ol check {MODULE} --engine {args.into}"
          + f"\n  ol check {MODULE} --engine {args.into} --ref-deps=forward,model   "
            "(these two from the reference)\n"
          + f"  ol tests {MODULE}   (what the tests check, in the order to begin with)")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Stop as stop:
        print(f"ol: {stop}", file=sys.stderr)
        sys.exit(stop.code)
