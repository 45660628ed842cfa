"""The catalogue of wrong engines, and their patches: read, checked, applied to the line.

A mutant is a row of catalog.json (s and x, the named ones) or of probes/catalog.json (wrong engines that only prove a
check), and a patch. A patch is applied here and not by patch(1), since that one is content with a hunk that moved: an
offset means that somebody must look at the patch again.

Standard library only.
"""
import hashlib
import json
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HERE = os.path.join(ROOT, "mutants")
NAMED_KEYS = {"id", "title", "file", "patch", "killer", "checks", "pitfall", "symptom", "clause", "family", "links"}
PROBE_KEYS = {"id", "title", "file", "patch", "killer", "checks"}
OPTIONAL_KEYS = {"needs"}
HEADER_KEYS = ("id", "title", "thinking", "clause", "killer", "symptom")
HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class Broken(Exception):
    """The catalogue or a patch is not what it must be: exit 5."""


class Stale(Exception):
    """A patch does not fit the source as it stands."""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def sha(*parts):
    """One hash of texts and bytes, each with its length, so that no two lists meet."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(b"%d:" % len(data))
        whole.update(data)
    return whole.hexdigest()


class Hunk:
    """Lines of one place: (mark, text) with marks ' ', '-' and '+'."""

    def __init__(self, start, lines):
        self.start = start
        self.lines = lines

    def old(self):
        return [text for mark, text in self.lines if mark != "+"]

    def new(self):
        return [text for mark, text in self.lines if mark != "-"]


class Patch:
    def __init__(self, path):
        self.path = path
        try:
            self.text = read(path)
        except OSError as error:
            raise Broken(f"{os.path.relpath(path, ROOT)}: {error.strerror}") from error
        head, mark, self.diff = self.text.partition("\n--- ")
        if not mark:
            raise Broken(f"{os.path.basename(path)}: no diff in it")
        self.diff = "--- " + self.diff
        self.header = self._header(head)
        self.file, self.hunks = self._hunks()

    def _header(self, head):
        fields, last = {}, None
        for line in head.strip().splitlines():
            if line.startswith("  ") and last:
                fields[last] += " " + line.strip()
                continue
            last, colon, value = line.partition(": ")
            if not colon:
                raise Broken(f"{os.path.basename(self.path)}: header line without a key: {line}")
            fields[last] = value.strip()
        return fields

    def _hunks(self):
        lines = self.diff.splitlines()
        files = [line[6:] for line in lines if line.startswith("+++ b/")]
        if len(files) != 1 or not lines[0].startswith("--- a/" + files[0]):
            raise Broken(f"{os.path.basename(self.path)}: a patch is about one file")
        hunks, at = [], 2
        while at < len(lines):
            match = HUNK.match(lines[at])
            if not match:
                raise Broken(f"{os.path.basename(self.path)}: no hunk where one must begin: {lines[at]}")
            start, n_old, n_new = int(match[1]), int(match[2] or 1), int(match[4] or 1)
            hunk = Hunk(start, [])
            at += 1
            while at < len(lines) and not lines[at].startswith("@@"):
                hunk.lines.append((lines[at][:1] or " ", lines[at][1:]))
                at += 1
            if len(hunk.old()) != n_old or len(hunk.new()) != n_new:
                raise Broken(f"{os.path.basename(self.path)}: a hunk's lines are not as many as it says")
            hunks.append(hunk)
        return files[0], hunks

    def apply(self, source):
        """The patched text; every hunk at its line, every line of context as it is there."""
        lines, done, out = source.split("\n"), 0, []
        for hunk in self.hunks:
            begin, old = hunk.start - 1, hunk.old()
            if begin < done or lines[begin:begin + len(old)] != old:
                raise Stale(f"the hunk at line {hunk.start} does not fit {self.file} as it stands")
            out += lines[done:begin] + hunk.new()
            done = begin + len(old)
        return "\n".join(out + lines[done:])

    def moved(self, source):
        """The patch's text with each hunk at the one place where its lines stand now."""
        lines, shift, parts = source.split("\n"), 0, []
        head = self.text[:len(self.text) - len(self.diff)]
        parts += self.diff.splitlines()[:2]
        for hunk in self.hunks:
            old = hunk.old()
            places = [i for i in range(len(lines) - len(old) + 1) if lines[i:i + len(old)] == old]
            if len(places) != 1:
                raise Stale(f"the lines of the hunk at {hunk.start} stand at {len(places)} places of {self.file}")
            n_old, n_new = len(old), len(hunk.new())
            parts.append(f"@@ -{places[0] + 1},{n_old} +{places[0] + 1 + shift},{n_new} @@")
            parts += [mark + text for mark, text in hunk.lines]
            shift += n_new - n_old
        return head + "\n".join(parts) + "\n"

    def changed(self):
        """Lines of the source that go, or, where some only come, the line before them."""
        lines = set()
        for hunk in self.hunks:
            at, gone, came = hunk.start, set(), set()
            for mark, _ in hunk.lines:
                if mark == "-":
                    gone.add(at)
                elif mark == "+":
                    came.add(at - 1)
                at += mark != "+"
            lines |= gone or came
        return lines

    def span(self):
        """First changed line of the source, the line after that place, and what stands there instead."""
        hunk = self.hunks[0]
        marks = [mark for mark, _ in hunk.lines]
        first = next(i for i, mark in enumerate(marks) if mark != " ")
        last = next((i for i in range(first, len(marks)) if marks[i] == " "), len(marks))
        line = hunk.start + sum(1 for mark in marks[:first] if mark != "+")
        n_old = sum(1 for mark in marks[first:last] if mark == "-")
        new = "\n".join(text for mark, text in hunk.lines[first:last] if mark == "+")
        return line, line + max(n_old, 1), new


class Mutant:
    def __init__(self, row, folder, is_probe):
        self.id = row["id"]
        self.row = row
        self.is_probe = is_probe
        self.killer = row["killer"]
        self.checks = [f"{self.killer}.{name}" for name in row["checks"]]
        self.needs = row.get("needs")
        self.patch_path = os.path.relpath(os.path.join(folder, row["patch"]), ROOT)
        self.patch = Patch(os.path.join(folder, row["patch"]))

    @property
    def file(self):
        return self.row["file"]

    @property
    def line(self):
        return self.patch.span()[0]

    def fields(self):
        """What reports say about it."""
        keys = ("id", "title", "file", "killer", "pitfall", "symptom", "clause", "family", "links")
        return {key: self.row[key] for key in keys if key in self.row}


def judge_catalog():
    """The 24 tests as the judge has them."""
    return json.loads(read(os.path.join(ROOT, "conformance", "catalog.json")))["tests"]


def _load(path, keys, schema, known_checks):
    try:
        data = json.loads(read(path))
    except (OSError, ValueError) as error:
        raise Broken(f"{os.path.relpath(path, ROOT)}: {error}") from error
    if data.get("schema") != schema:
        raise Broken(f"{os.path.relpath(path, ROOT)}: schema must be {schema}")
    mutants = []
    for row in data["mutants"]:
        name = row.get("id", "?")
        if set(row) - OPTIONAL_KEYS != keys:
            raise Broken(f"{name}: its keys must be {', '.join(sorted(keys))}")
        mutant = Mutant(row, os.path.dirname(path), keys is PROBE_KEYS)
        if mutant.patch.file != row["file"]:
            raise Broken(f"{name}: the patch is about {mutant.patch.file}, the catalogue says {row['file']}")
        unknown = [check for check in mutant.checks if check not in known_checks]
        if unknown or not mutant.checks:
            raise Broken(f"{name}: checks must name some of {mutant.killer}'s: {', '.join(unknown) or 'none given'}")
        if not os.path.basename(row["patch"]).startswith(name + "_"):
            raise Broken(f"{name}: its patch must be called {name}_*.patch")
        for key in HEADER_KEYS:
            want = row.get(key)
            if key in row and mutant.patch.header.get(key) != want:
                raise Broken(f"{name}: the patch's header says {key}: {mutant.patch.header.get(key)}, not {want}")
        mutants.append(mutant)
    files = {name for name in os.listdir(os.path.dirname(path)) if name.endswith(".patch")}
    stray = files ^ {m.row["patch"] for m in mutants}
    if stray:
        raise Broken(f"patches and {os.path.relpath(path, ROOT)} differ: {', '.join(sorted(stray))}")
    return mutants


def load(folder=HERE):
    """Every mutant, the named ones first, in the order of the files."""
    checks = {check["id"] for test in judge_catalog() for check in test["checks"]}
    mutants = _load(os.path.join(folder, "catalog.json"), NAMED_KEYS, "ol.mutants/1", checks)
    probes = os.path.join(folder, "probes", "catalog.json")
    if os.path.exists(probes):
        mutants += _load(probes, PROBE_KEYS, "ol.probes/1", checks)
    ids = [m.id for m in mutants]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice:
        raise Broken(f"ids that stand twice: {', '.join(twice)}")
    return mutants
