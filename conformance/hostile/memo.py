#!/usr/bin/python3
"""A testee without an engine: it knows the answers to the published run by heart, and nothing else.

    memo.py                     replay: `index` and `answers` beside it
    memo.py, `record` beside it record: the file names a host and a library, which are asked

An answer is found by everything that went before it in this process: the requests, the files that
they name, the locale. So it passes the run that was recorded, to the last bit, and knows no answer to
any other. conformance/selftest/fresh.py records it, joins what was recorded, and has it judged.
"""
import hashlib
import json
import os
import stat
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ENTRY = struct.Struct("<16sQQ")    # key, place and length of the answer
STEP = 1 << 20


def receive(fd):
    """A frame without its length, b"" at the end."""
    data, size = b"", 4
    while len(data) < size:
        part = os.read(fd, min(size - len(data), STEP))
        if not part:
            return b""
        data += part
        if len(data) == size == 4:
            data, size = b"", struct.unpack("<I", data)[0]
    return data


def send(fd, body):
    frame = struct.pack("<I", len(body)) + body
    while frame:
        frame = frame[os.write(fd, frame[:STEP]):]


def add_file(history, path):
    """What stands there: its kind, its permissions, and the bytes of what is a file or a link to one."""
    for name, info in ((path, os.lstat(path)), ("", os.stat(path) if os.path.exists(path) else None)):
        history.update(f"{name} {stat.S_IFMT(info.st_mode) if info else None}\n".encode())
    if info and stat.S_ISREG(info.st_mode):
        try:
            with open(path, "rb") as stream:
                while block := stream.read(STEP):
                    history.update(block)
        except PermissionError:
            history.update(b"unreadable")


class History:
    """Everything that the answer to a request can hang on, as one hash."""

    def __init__(self):
        self.hash = hashlib.blake2b(os.environ.get("LC_ALL", "").encode(), digest_size=16)

    def look(self, path):
        """At what a path names: the names alone would be the same in every run."""
        if path is None or not os.path.lexists(path):
            return
        add_file(self.hash, path)
        for folder, names, files in os.walk(path):
            names.sort()
            for name in sorted(files + names):
                add_file(self.hash, os.path.join(folder, name))

    def key(self, request):
        self.hash.update(request)
        if b'"path"' in request or b'"dir"' in request:
            whole = json.loads(request)
            for call in whole.get("calls", [whole]):
                for path in (call.get("path"), call.get("dir")):
                    self.look(path)
        return self.hash.copy().digest()


def record(host, library, folder):
    requests, to = os.pipe()
    answers, from_child = os.pipe()
    child = subprocess.Popen(["/bin/sh", "-c", f'exec "$0" "$1" 3<&{requests} 4>&{from_child}', host,
                              library], pass_fds=(requests, from_child))
    os.close(requests)
    os.close(from_child)
    history, part, out = History(), 0, None
    while request := receive(3):
        send(to, request)
        key = history.key(request)
        answer = receive(answers)
        if out is None or out.tell() + len(answer) > 12 * STEP:    # a file may not be large in there
            out = open(os.path.join(folder, f"{os.getpid()}-{part}"), "wb")
            part += 1
        out.write(ENTRY.pack(key, 0, len(answer)) + answer)
        out.flush()
        send(4, answer)
    os.close(to)
    sys.exit(child.wait())


def replay():
    with open(os.path.join(HERE, "index"), "rb") as stream:
        known = {key: (at, size) for key, at, size in ENTRY.iter_unpack(stream.read())}
    answers = os.open(os.path.join(HERE, "answers"), os.O_RDONLY)
    history = History()
    while request := receive(3):
        found = known.get(history.key(request))
        answer = os.pread(answers, found[1], found[0]) if found else json.dumps({
            "seq": json.loads(request)["seq"], "ok": False, "status": "INTERNAL", "offset": None,
            "text": "this question was not in the published run"}).encode()
        send(4, answer)


if __name__ == "__main__":
    try:
        with open(os.path.join(HERE, "record"), encoding="utf-8") as stream:
            what = stream.read().split("\n")
    except OSError:
        replay()
    else:
        record(*what[:3])
