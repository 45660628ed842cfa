#!/usr/bin/python3
"""Time and memory of the largest inputs, against their bounds: a table, and `N passed, N failed`.

Each file is made here by rule and read once by the engine (fuzz-replay --measure), in a process whose private memory
the kernel limits to the size of the input and 64 MiB. The table has the engine's own bytes at the most, and its CPU
time: another's load on the machine is no part of it. Run as `ol fuzz limits`; with --write the table in README.md is
made anew. Standard library only.
"""
import json
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "fuzz", "README.md")
SECONDS_MAX = 3.0
EXTRA_BYTES_MAX = 64 << 20
HEADER_MAX, INDEX_MAX, CONFIG_MAX = 100_000_000, 16 << 20, 1 << 20
INDEX = "model.safetensors.index.json"


def tensors(header, n_data=0):
    """A safetensors file; the header is bytes."""
    return struct.pack("<Q", len(header)) + header + bytes(n_data)


def padded(header):
    return header + b" " * (HEADER_MAX - len(header))


def filled(begin, piece, end, size=HEADER_MAX):
    """begin, as many pieces with commas as there is room for, end."""
    n = (size - len(begin) - len(end) + 1) // (len(piece) + 1)
    return begin + b",".join([piece] * n) + end


def many(n, name, shape="[0]"):
    """n tensors without bytes, their names by a format."""
    return ("{" + ",".join(f'"{name % i}":{{"dtype":"U8","shape":{shape},"data_offsets":[0,0]}}' for i in range(n)) + "}").encode()


def shapes(n_dims):
    """Tensors of 240,000 dimensions."""
    one = b'"%d":{"dtype":"U8","data_offsets":[0,0],"shape":[' + b",".join([b"0"] * 240_000) + b"]}"
    return b"{" + b",".join(one % i for i in range(n_dims // 240_000)) + b"}"


def folder(files):
    return b"".join(name.encode() + b"\0" + struct.pack("<I", len(data)) + data for name, data in files.items())


def index(n, size):
    """n tensors in one shard and an index of so many bytes."""
    text = json.dumps({"weight_map": {f"model.layers.{i:06}.weight": "a.safetensors" for i in range(n)}}).encode()
    return folder({INDEX: text + b" " * (size - len(text)), "a.safetensors": tensors(many(n, "model.layers.%06d.weight"))})


def config(extra, size):
    """A sound config with more in it, in so many bytes."""
    text = json.dumps({"tl_arch": "bigram", "tl_tokenizer": "byte", "vocab_size": 256, "max_position_embeddings": 64}).encode()
    text = text[:-1] + b',"x":' + extra + b"}"
    return text + b" " * (size - len(text))


# what, target, verdict, a function that makes the bytes
CASES = [
    ("header of 100 MB, spaces", "safetensors", "OK", lambda: tensors(padded(b"{}"))),
    ("header of 100 MB and one byte", "safetensors", "FORMAT", lambda: tensors(padded(b"{}") + b" ")),
    ("header of 100 MB, of `[`", "safetensors", "FORMAT", lambda: tensors(b'{"a":' + b"[" * (HEADER_MAX - 5))),
    ("header of 100 MB, of `{}`", "safetensors", "FORMAT", lambda: tensors(filled(b'{"a":[', b"{}", b"]}"))),
    ("header of 100 MB, one string", "safetensors", "OK",
     lambda: tensors(filled(b'{"__metadata__":{"a":"', b"q" * 999, b'"}}'))),
    ("header of 100 MB, one name in escapes", "safetensors", "OK",
     lambda: tensors(b'{"' + b"\\u0041" * 16_600_000 + b'":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')),
    ("header of 100 MB, not UTF-8 at its end", "safetensors", "FORMAT", lambda: tensors(padded(b"{}")[:-1] + b"\xff")),
    ("1,000,000 tensors", "safetensors", "OK", lambda: tensors(many(1_000_000, "model.layers.%07d.weight", "[1,2,0,3]"))),
    ("1,000,000 tensors of one name", "safetensors", "FORMAT", lambda: tensors(many(1_000_000, "a%.0s"))),
    ("7,920,000 dimensions", "safetensors", "OK", lambda: tensors(shapes(7_920_000))),
    ("15,600,000 dimensions", "safetensors", "FORMAT", lambda: tensors(shapes(15_600_000))),
    ("16,000,001 nodes", "safetensors", "FORMAT",
     lambda: tensors(b"{" + b",".join(b'"%d":[%s]' % (i, b",".join([b"0"] * 249_998)) for i in range(65)) + b"}")),
    ("JSON 64 deep", "safetensors", "OK",
     lambda: tensors(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":' + b"[" * 62 + b"]" * 62 + b"}}")),
    ("JSON 65 deep", "safetensors", "FORMAT",
     lambda: tensors(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":' + b"[" * 63 + b"]" * 63 + b"}}")),
    ("index of 16 MiB, 99,990 tensors", "index", "OK", lambda: index(99_990, INDEX_MAX)),
    ("index of 16 MiB and one byte", "index", "FORMAT", lambda: index(10, INDEX_MAX + 1)),
    ("index of 16 MiB, of `{}`", "index", "FORMAT",
     lambda: folder({INDEX: filled(b'{"weight_map":[', b"{}", b"]}", INDEX_MAX), "a.safetensors": tensors(b"{}")})),
    ("config of 1 MiB, 99,990 nodes", "config", "OK",
     lambda: config(b"[" + b",".join([b"0"] * 99_980) + b"]", CONFIG_MAX)),
    ("config of 1 MiB, one string", "config", "OK", lambda: config(b'"' + b"q" * 1_000_000 + b'"', CONFIG_MAX)),
    ("config of 1 MiB and one byte", "config", "FORMAT", lambda: config(b"0", CONFIG_MAX + 1)),
    ("config of 1 MiB, of `[`", "config", "FORMAT", lambda: b'{"x":' + b"[" * (CONFIG_MAX - 5)),
]


def measure(program, target, data, path):
    """Status, seconds, bytes; the status is a word of the shell when it did not end well."""
    with open(path, "wb") as file:
        file.write(data)
    # The harness has a copy of a directory's files; of a single file it has none.
    room = len(data) * (2 if target == "index" else 1) + EXTRA_BYTES_MAX
    done = subprocess.run([program, "--measure", target, path], capture_output=True, text=True, errors="replace", check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (room, room)))
    if done.returncode != 0:
        return f"exit {done.returncode}: {done.stderr.strip()[-200:]}", 0.0, 0
    status, seconds, peak, _ = done.stdout.rstrip("\n").split("\t")
    return status, float(seconds), int(peak)


def size_of(n):
    return f"{n / 1e6:.1f} MB" if n >= 100_000 else f"{n / 1e3:.1f} kB"


def run(program, cases=None, out=print):
    """The rows of the table, and how many are wrong."""
    rows, n_wrong = [], 0
    with tempfile.TemporaryDirectory(prefix="ol-limits-") as place:
        for what, target, verdict, make in cases or CASES:
            data = make()
            status, seconds, peak = measure(program, target, data, os.path.join(place, "input"))
            bad = [f"{status}, it should be {verdict}"] if status != verdict else []
            bad += [f"{seconds:.2f} s, {SECONDS_MAX} are allowed"] if seconds > SECONDS_MAX else []
            bad += [f"{peak} bytes, {len(data) + EXTRA_BYTES_MAX} are allowed"] if peak > len(data) + EXTRA_BYTES_MAX else []
            n_wrong += bool(bad)
            verdict = "loaded" if status == "OK" else status
            rows.append(f"| {what} | {size_of(len(data))} | {verdict} | {seconds:.2f} s | {size_of(peak)} |")
            out(rows[-1] + ("  WRONG: " + "; ".join(bad) if bad else ""))
    return rows, n_wrong


def main(program, write):
    rows, n_wrong = run(program)
    if write:
        table = "\n".join(["| input | size | verdict | CPU time | private memory |", "| --- | --- | --- | --- | --- |", *rows])
        with open(PAGE, encoding="utf-8") as file:
            page = file.read()
        page = re.sub(r"(<!-- limits -->\n).*?(<!-- end -->)", lambda m: m[1] + table + "\n" + m[2], page, flags=re.S)
        with open(PAGE + ".part", "w", encoding="utf-8") as file:
            file.write(page)
        os.replace(PAGE + ".part", PAGE)
    print(f"{len(rows) - n_wrong} passed, {n_wrong} failed")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit("use: ol fuzz limits")
