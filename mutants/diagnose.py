"""Which known pitfall does a failing engine look like?

  diagnose.py LOG.jsonl      the log of `ol check --report jsonl:LOG`; prints the diagnosis
  diagnose.py answer         the log on standard input; answers one JSON object (see answer below)

The answer comes from the failed checks alone: which ones, and how the first value of each differs. Every named mutant
has left such a signature (fingerprints.json); a stranger's engine is compared with them, and with pairs of them.

  likeness of two failures of one check, 0 to 1: 0.5 that both failed, and up to 0.5 for the way: the same case with the
    same answer, or a number nearer to the other's than to the truth; else the same kind of wrong (sign, length, share)
  likeness of two engines: the sum of weight x likeness over the checks that both fail, by the sum of weight over those
    that either fails. A check weighs the more, the fewer mutants fail it. A check that was not reached, since the
    engine was too dead or its test was not selected, counts for nobody; nor does what only --strict asks.
  two faults at once: the likeness of the engine to two mutants together, a little less (PAIR), since two explain more;
    and the weaker one counts only when most of its own signature is there (SECOND).

The best explanation is told when it is like enough (LEAST) and better than every other one by MARGIN; else the answer
is "none of the known pitfalls". The numbers were chosen from mutants judged as if they were unknown (test_mutants.py)
and from the same mistakes in another engine (strangers.py).

Standard library only.
"""
import json
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST = 0.6
MARGIN = 0.05
PAIR = 0.06
SECOND = 0.7


# ---------------------------------------------------------------- one failed check


def number(text):
    try:
        return float(str(text).split(" ")[0])
    except ValueError:
        return math.nan


def plain(message):
    """A message without what an engine said in it, and without numbers."""
    message = re.sub(r"\(.*", "", message, flags=re.S)
    return " ".join(re.sub(r"-?\d[\d.,]*(e[-+]\d+)?|0x[0-9a-f]+", "#", message).split())


def feature(check):
    """What a log's entry of a failed check tells, small enough to be kept."""
    first = check.get("first") or {}
    made = {"class": check.get("class", "fail"), "case": first.get("case", ""),
            "share": round(check["failed"] / max(check["done"], 1), 4)}
    if first.get("n_got") != first.get("n_want"):
        made["length"] = [first["n_got"], first["n_want"]]
    elif "got" in first:
        made.update(index=first["index"], got=first["got"], want=first["want"])
        if first.get("nonfinite"):
            made["nonfinite"] = True
    else:
        made["text"] = first.get("message", "").split(" (")[0][:160]
    return made


def like_numbers(a, b):
    """Same wrong number, or one much nearer to the other than to the truth."""
    if a["got"] == b["got"]:
        return 1.0
    got_a, got_b, want = number(a["got"]), number(b["got"]), number(a["want"])
    if not all(map(math.isfinite, (got_a, got_b, want))):
        return 0.5 if a.get("nonfinite") and b.get("nonfinite") else 0.0
    off = max(abs(got_a - want), abs(got_b - want))
    apart = abs(got_a - got_b) / off if off > 0 else 0.0
    return 0.9 if apart < 0.05 else 0.6 if apart < 0.3 else 0.25 if apart < 1 else 0.0


def like_ways(a, b):
    """0 to 1: do two failures of one check look the same?"""
    same_share = 1.0 - min(1.0, abs(a["share"] - b["share"]) * 4)
    if a["class"] != b["class"]:
        return 0.0
    if "length" in a or "length" in b:
        same = a.get("length") == b.get("length")
        return (0.8 if same and a["case"] == b["case"] else 0.3 * ("length" in a and "length" in b)) + 0.2 * same_share
    if "got" in a and "got" in b:
        if a["case"] == b["case"] and a["index"] == b["index"] and a["want"] == b["want"]:
            return 0.8 * like_numbers(a, b) + 0.2 * same_share
        side_a = number(a["got"]) > number(a["want"])
        side_b = number(b["got"]) > number(b["want"])
        return 0.2 * (side_a == side_b) + 0.2 * same_share
    if "text" in a and "text" in b:
        if a["case"] == b["case"] and a["text"] == b["text"]:
            return 0.8 + 0.2 * same_share
        return 0.4 * (plain(a["text"]) == plain(b["text"])) + 0.2 * same_share
    return 0.0


def like_failures(a, b):
    return 0.5 + 0.5 * like_ways(a, b)


# ---------------------------------------------------------------- an engine


def names_only(check):
    """Is this the failure of a strict run that a run without --strict does not have: a message without its subject?"""
    return "the message must name" in (check.get("first") or {}).get("message", "")


def signature(test_lines, strict=frozenset()):
    """(failed check -> feature, checks that were evaluated) of the test lines of a log, without the strict ones."""
    failed, asked = {}, set()
    for line in test_lines:
        for check in line.get("checks", []):
            if check["state"] != "not-reached" and check["id"] not in strict:
                asked.add(check["id"])
                if check["state"] == "failed" and not names_only(check):
                    failed[check["id"]] = feature(check)
    return failed, asked


class Diagnosis:
    """names: one or two mutants, or none; margin: by how much they are better than the next explanation."""

    def __init__(self, names=(), score=0.0, margin=0.0, next_best=()):
        self.names = list(names)
        self.score, self.margin, self.next_best = score, margin, list(next_best)


class Book:
    """The fingerprints, with the weight of each check."""

    def __init__(self, data, without=(), strict=()):
        self.strict = frozenset(strict)
        self.rows = [row for row in data["mutants"] if row["id"] not in without]
        self.by_id = {row["id"]: row for row in self.rows}
        count = {}
        for row in self.rows:
            for check in row["checks"]:
                count[check] = count.get(check, 0) + 1
        self.most = math.log(1 + len(self.rows))
        self.weights = {check: math.log(1 + len(self.rows) / n) for check, n in count.items()}

    def weight(self, check):
        return self.weights.get(check, self.most)

    def _explain(self, ids, likes, failed, asked):
        """The likeness of the engine to these mutants together."""
        shared = either = 0.0
        checks = set(failed).union(*(self.by_id[i]["checks"] for i in ids)) & asked
        for check in checks:
            weight = self.weight(check)
            either += weight
            shared += weight * max(likes[i].get(check, 0.0) for i in ids)
        return shared / either if either else 0.0

    def _present(self, name, likes, asked):
        """How much of a mutant's own signature the engine shows."""
        checks = [check for check in self.by_id[name]["checks"] if check in asked]
        shown = sum(self.weight(check) * likes[name].get(check, 0.0) for check in checks)
        return shown / sum(map(self.weight, checks)) if checks else 0.0

    def ranked(self, failed, asked):
        """Every explanation by one or two mutants, the best first: [(score, ids)]."""
        likes = {row["id"]: {check: like_failures(failed[check], way) for check, way in row["checks"].items()
                             if check in failed} for row in self.rows}
        known = [i for i, like in likes.items() if like]
        ones = {(i,): self._explain((i,), likes, failed, asked) for i in known}
        found = [(score, ids) for ids, score in ones.items()]
        present = {i: self._present(i, likes, asked) for i in known}
        for k, i in enumerate(known):
            for j in known[k + 1:]:
                ids = (i, j) if ones[i,] >= ones[j,] else (j, i)
                score = self._explain(ids, likes, failed, asked) - PAIR
                # The second one must earn its place.
                if score > ones[ids[0],] and present[ids[1]] >= SECOND:
                    found.append((score, ids))
        return sorted(found, key=lambda item: (-item[0], len(item[1]), item[1]))

    def diagnose(self, test_lines):
        failed, asked = signature(test_lines, self.strict)
        if not failed:
            return Diagnosis()
        found = self.ranked(failed, asked)
        if not found:
            return Diagnosis()
        best, ids = found[0]
        # Each name must be better than what stands there without it.
        sure, margin, rival = [], 1.0, ()
        for name in ids:
            other = next(((score, o) for score, o in found[1:] if name not in o), (0.0, ()))
            if best - other[0] < margin:
                margin, rival = best - other[0], other[1]
            if best - other[0] >= MARGIN:
                sure.append(name)
        if best < LEAST or not sure:
            return Diagnosis((), best, margin, ids)
        return Diagnosis(sure, best, margin, rival)


def load():
    """The fingerprints that are kept, and which checks only --strict has."""
    with open(os.path.join(HERE, "fingerprints.json"), encoding="utf-8") as file:
        data = json.load(file)
    with open(os.path.join(os.path.dirname(HERE), "conformance", "catalog.json"), encoding="utf-8") as file:
        tests = json.load(file)["tests"]
    return Book(data, strict=[check["id"] for test in tests for check in test["checks"] if check["strict"]])


def diagnose(test_lines, book=None):
    """(id of the pitfall or None, margin) of the test lines of a log."""
    found = (book or load()).diagnose(test_lines)
    return (found.names[0] if found.names else None), found.margin


def place(clause):
    """Where a clause stands, as a path and an anchor."""
    page, _, anchor = clause.partition("#")
    return f"conformance/spec/{'kv-block' if page == 'kv' else page}.md, {anchor}"


def words(found, book):
    """The lines that a report shows."""
    if not found.names:
        return ["looks like none of the known pitfalls"]
    lines = []
    for name in found.names:
        row = book.by_id[name]
        rival = " and ".join(found.next_best)
        lines += [f"looks like {name}: {row['title']}",
                  f"    margin    {found.margin:.2f}" + (f" before {rival}" if rival else "; nothing else comes near")
                  + f" ({found.score:.2f} alike, of 1)",
                  f"    symptom   {row['symptom']}", f"    right is  {row['pitfall']}",
                  f"    read      {place(row['clause'])}", f"    more      ol explain {name}"]
    return lines


def answer(test_lines, book):
    """For a program: names, score, margin, the lines for people, and for each failed test what it looks like.

    mutant_like: test -> {"id", "title", "text", "margin", "symptom", "clause"} of the named pitfall that explains one
    of its failed checks, or {"id": null, "text": "none of the known pitfalls"}, for each test that did not pass."""
    found = book.diagnose(test_lines)
    like = {}
    for line in test_lines:
        failed = {c["id"] for c in line.get("checks", []) if c["state"] == "failed"}
        names = [n for n in found.names if failed & set(book.by_id[n]["checks"])]
        if names:
            row = book.by_id[names[0]]
            like[line["name"]] = {"id": row["id"], "title": row["title"], "margin": round(found.margin, 3),
                                  "text": f"{row['id']}: {row['title']}", "symptom": row["symptom"],
                                  "clause": row["clause"]}
        elif line.get("class") != "pass":
            like[line["name"]] = {"id": None, "text": "none of the known pitfalls"}
    return {"schema": "ol.diagnosis/1", "names": found.names, "score": round(found.score, 3),
            "margin": round(found.margin, 3), "lines": words(found, book) if like else [], "mutant_like": like}


def tests_of(text):
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if line.get("kind") == "test"]


def main(argv):
    if len(argv) != 1:
        print(__doc__)
        return 2
    if argv[0] != "answer":
        with open(argv[0], encoding="utf-8") as file:
            tests = tests_of(file.read())
        book = load()
        print("\n".join(words(book.diagnose(tests), book)))
        return 0
    try:
        made = json.dumps(answer(tests_of(sys.stdin.read()), load()), ensure_ascii=False)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as fault:  # files or a log that are none
        print(f"ol: {os.path.relpath(__file__)}: {type(fault).__name__}: {fault}", file=sys.stderr)
        return 70
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
