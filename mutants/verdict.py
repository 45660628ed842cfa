"""What became of a mutant: one word (MEANING), and the check that says so.

Only `killed` (and `needs-NAME`) is what it should be; anything else makes the run exit with 6.

Standard library only.
"""
import re

from cells import KILLS

GOOD = "killed"
_NO_CHECK = "its named test ended that way, and no check failed it"
MEANING = {
    "killed": "its named test failed, and through every check that the catalogue names",
    "killed-elsewhere": "its named test failed, but a check that must see it held: the check has become weaker",
    "killed-by-other": "its named test passed, and another one failed",
    "survived": "every test passed",
    "crash": _NO_CHECK,
    "timeout": _NO_CHECK,
    "resource": _NO_CHECK,
    "no-result": _NO_CHECK,
    "integrity": _NO_CHECK,
    "patch-stale": "the patch does not fit the source as it stands (mutants.py refresh, when lines only moved)",
    "does-not-build": "the patched source does not compile without warnings",
    "same-object": "the patched source compiles to the same object",
    "needs-avx2": "its checks can only fail on a machine with AVX2, which this one has not",
    "harness-error": "the judge failed",
}


def exit_code(results):
    """Of a list of results."""
    words = {result["verdict"] for result in results}
    if "harness-error" in words:
        return 70
    return 6 if any(word != GOOD and not word.startswith("needs-") for word in words) else 0


def _failed(cell):
    return {check["id"]: check for check in cell["failed"]}


def _words(check):
    """got and wanted of a failed check, as far as it tells them apart."""
    first = check.get("first", {})
    if "got" in first:
        return first["got"], first["want"]
    message = first.get("message", "")
    if first.get("n_got") != first.get("n_want"):
        return f"{first['n_got']} elements", f"{first['n_want']} elements"
    match = re.search(r"must be (refused with [\w|]+|accepted), was (accepted|refused with \w+)", message)
    if match:
        return match[2], match[1]
    match = re.search(r"^(.*?)[,:;] (?:want(?:ed)?|must be|should be|expected) (.*)$", message)
    return (match[1], match[2]) if match else (message, "")


def _killed(mutant, cell):
    failed = _failed(cell)
    lost = [check for check in mutant.checks if check not in failed]
    shown = failed[mutant.checks[0]] if not lost else failed.get(cell["check"]) or cell["failed"][0]
    got, wanted = _words(shown)
    result = {"verdict": GOOD, "check": shown["id"], "class": shown.get("class", cell["class"]), "got": got,
              "wanted": wanted}
    if lost:
        result.update(verdict="killed-elsewhere", why="did not fail " + ", ".join(lost))
    return result


def judge(mutant, cells):
    """The verdict from the cells that were run; None when the other tests must be asked first."""
    mine = cells[mutant.killer]
    if mine["class"] in KILLS:
        return _killed(mutant, mine)
    if mine["class"] != "pass":
        word = mine["class"]
        return {"verdict": word, "check": "", "class": word, "got": mine["why"], "wanted": "", "why": mine["why"]}
    others = [name for name, cell in cells.items() if cell["class"] in KILLS]
    if others:
        other = cells[others[0]]
        got, wanted = _words(_failed(other).get(other["check"]) or other["failed"][0])
        return {"verdict": "killed-by-other", "check": other["check"], "class": other["class"], "got": got,
                "wanted": wanted, "why": "killed by " + ", ".join(others)}
    if len(cells) == 1:
        return None
    ended = "".join(f"; {n} ended with {c['class']}" for n, c in cells.items() if c["class"] != "pass")
    return {"verdict": "survived", "check": "", "class": "pass", "got": "", "wanted": "",
            "why": "no check failed" + ended}
