"""The log ol.result/1: one header, a line for each test, one footer; and the catalogue of tests.

A log is believed only as a whole: every line an object without repeated keys, each test once, a
footer whose counts and whose hash of all bytes before it are right. Anything else is a broken log,
which is nobody's score. Only the stub of a report that is not finished yet is made from less.
"""
import hashlib
import json
import os

SCHEMA = "ol.result/1"
CLASSES = ("pass", "fail", "refused-wrong", "crash", "timeout", "resource", "no-result",
           "integrity", "blocked", "harness-error")
MODULES = ("kv", "quant", "model", "forward", "runner", "sample")
EXIT_ORDER = (70, 5, 2, 4, 3, 7, 6, 1, 0)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.realpath(__file__)))))


class Stop(Exception):
    """Ends the program with an exit code and one sentence, in which a foreign file may be quoted."""

    def __init__(self, code, words):
        super().__init__("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words))
        self.code = code


class BrokenLog(Stop):
    """The file is no log that could be trusted: the judge's own fault, never a learner's."""

    def __init__(self, where, words):
        super().__init__(70, f"{where}: {words}")


def worse_exit(a, b):
    """Which of two exit codes is reported when both apply."""
    return min(a, b, key=EXIT_ORDER.index)


def strict_json(text):
    """Parse JSON; repeated keys and numbers that JSON does not have are refused."""
    def pairs(items):
        keys = [k for k, _ in items]
        if len(set(keys)) != len(keys):
            raise ValueError(f"a key is repeated: {sorted(k for k in keys if keys.count(k) > 1)[0]}")
        return dict(items)

    def constant(word):
        raise ValueError(f"{word} is no number of JSON")
    return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)


def dump_line(value):
    """One compact line as bytes, as the judge writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"),
                      allow_nan=False).encode("utf-8") + b"\n"


class Catalog:
    """The tests that there are, in order; empty when the file is not there."""

    def __init__(self, root=ROOT):
        self.root = root
        try:
            with open(os.path.join(root, "conformance", "catalog.json"), encoding="utf-8") as file:
                tests = json.load(file)["tests"]
        except (OSError, ValueError, KeyError) as why:
            raise Stop(5, f"{root}/conformance/catalog.json cannot be read: {why}") from None
        self.tests = {t["name"]: t for t in tests}
        self.rules = {c["id"]: c["what"] for t in tests for c in t["checks"]}

    def of(self, name):
        """The entry of a test; a plain one for a name of another catalogue."""
        return self.tests.get(name) or {"name": name, "title": name, "module": "?", "number": 0,
                                        "kinds": [], "suites": [], "why": "", "checks": []}


class Log:
    """One run. `tests` maps names to test lines in the order of the log."""

    def __init__(self, header, tests, footer, catalog, where="log"):
        self.header, self.tests, self.footer = header, tests, footer
        self.catalog, self.where = catalog, where
        self.raw = None  # the bytes that it was read from, as long as nothing was changed

    # -------------------------------------------------------------- reading

    @classmethod
    def parse(cls, data, where, catalog, unfinished=False):
        """From bytes. With `unfinished` a log without a footer is taken as it is."""
        lines = data.split(b"\n")
        if lines and lines[-1] == b"":
            lines.pop()
        elif not unfinished:
            raise BrokenLog(where, "the last line is cut: this is no finished log")
        records = []
        for number, line in enumerate(lines, 1):
            try:
                record = strict_json(line.decode("utf-8"))
            except (ValueError, RecursionError) as why:
                raise BrokenLog(where, f"line {number} is no JSON: {why}") from None
            if not isinstance(record, dict):
                raise BrokenLog(where, f"line {number} is no object")
            records.append(record)
        return cls._build(records, lines, where, catalog, unfinished)

    @classmethod
    def read(cls, path, catalog):
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as why:
            raise Stop(2, f"{path}: {why.strerror}") from None
        return cls.parse(data, path, catalog)

    @classmethod
    def _build(cls, records, lines, where, catalog, unfinished):
        kinds = [r.get("kind") for r in records]
        if not records or kinds[0] != "header" or records[0].get("schema") != SCHEMA:
            raise BrokenLog(where, f"does not begin with a header of {SCHEMA}")
        has_footer = kinds[-1] == "footer"
        if not has_footer and not unfinished:
            raise BrokenLog(where, "has no footer: the run was not finished")
        middle = records[1:-1] if has_footer else records[1:]
        tests = {}
        for record in middle:
            name = record.get("name")
            if record.get("kind") != "test" or record.get("class") not in CLASSES:
                raise BrokenLog(where, f"{name}: no test line of a known class")
            if name in tests:
                raise BrokenLog(where, f"{name} stands there twice")
            tests[name] = record
        log = cls(records[0], tests, records[-1] if has_footer else None, catalog, where)
        log._check_parts()
        log.raw = b"".join(line + b"\n" for line in lines)
        if has_footer:
            log._check_footer(b"".join(line + b"\n" for line in lines[:-1]))
        return log

    def _check_parts(self):
        for key in ("harness", "catalog", "engine", "host", "mode"):
            if not isinstance(self.header.get(key), dict):
                raise BrokenLog(self.where, f"the header has no {key}")
        if not isinstance(self.header.get("goldens"), list):
            raise BrokenLog(self.where, "the header has no goldens")
        for name, record in self.tests.items():
            for key, kind in (("kinds", list), ("checks", list), ("cases", dict), ("exit", dict)):
                if not isinstance(record.get(key), kind):
                    raise BrokenLog(self.where, f"{name} has no {key}")
            if record["class"] != "pass" and not isinstance(record.get("cause"), dict):
                raise BrokenLog(self.where, f"{name} did not pass and has no cause")

    def _check_footer(self, before):
        footer = self.footer
        if footer.get("sha256_of_lines") != hashlib.sha256(before).hexdigest():
            raise BrokenLog(self.where, "was changed after it was written: the footer's hash is "
                            "that of other lines")
        totals = self.count()
        if any((footer.get("totals") or {}).get(c) != totals[c] for c in CLASSES):
            raise BrokenLog(self.where, "the totals are not those of the lines")
        if footer.get("executed") != len(self.tests) or footer.get("exit_code") not in EXIT_ORDER:
            raise BrokenLog(self.where, "the footer's counts or exit code cannot be")

    # -------------------------------------------------------------- writing

    def dump(self):
        """The whole log as bytes, with the hash of its lines."""
        if self.raw is not None:
            return self.raw
        body = dump_line(self.header) + b"".join(dump_line(t) for t in self.tests.values())
        if self.footer is None:
            return body
        self.footer["sha256_of_lines"] = hashlib.sha256(body).hexdigest()
        return body + dump_line(self.footer)

    # -------------------------------------------------------------- asking

    def count(self):
        totals = dict.fromkeys(CLASSES, 0)
        for record in self.tests.values():
            totals[record["class"]] += 1
        return totals

    @property
    def selected(self):
        return self.header["mode"].get("selected") or list(self.tests)

    @property
    def complete(self):
        return bool(self.header["mode"].get("complete"))

    @property
    def exit_code(self):
        return self.footer["exit_code"] if self.footer else 70

    @property
    def verdict(self):
        return self.footer["verdict"] if self.footer else "not finished"

    @property
    def fault(self):
        """Why the run ended early, in one sentence; "" when it did not."""
        return ((self.footer or {}).get("fault") or "").partition("\n")[0]

    @property
    def is_ours(self):
        """The judge or the staff broke it, or it is not finished: no score may come of this log."""
        return self.exit_code in (70, 5, 2, 4)

    @property
    def build_log(self):
        """What the compiler or linker said, its lines below the sentence; "" without."""
        return ((self.footer or {}).get("fault") or "").partition("\n")[2]

    @property
    def borrowed(self):
        return self.header["engine"].get("borrowed") or ""

    @property
    def failures(self):
        return [t for t in self.tests.values() if t["class"] != "pass"]

    @property
    def seconds(self):
        return (self.footer or {}).get("wall_ms", 0) / 1000
