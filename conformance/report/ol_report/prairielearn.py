"""results.json of a PrairieLearn external grader: at most 1 MB, points on every test.

An engine that does not build or load is not gradable, which costs the student no attempt.
"""
import json

from . import words

BYTES_MAX = 1 << 20
OUTPUT_MAX = 16 << 10


def _test(log, name, limit):
    record = log.tests.get(name)
    entry = log.catalog.of(name)
    cls = record["class"] if record else "no-result"
    most = (record or {}).get("max_points", 1)
    passed = cls == "pass"
    test = {"name": name, "description": entry["title"],
            "points": (record or {}).get("points", most if passed else 0), "max_points": most,
            "message": cls if record else words.UNFINISHED}
    if record and not passed:
        test["message"] = f"{cls}: {words.headline(record)}"
        test["output"] = words.cut(words.failure_text(record), limit)
    return test


def _score(log, tests):
    grade = (log.footer or {}).get("grade")
    points = grade["points"] if grade else sum(t["points"] for t in tests)
    most = grade["max_points"] if grade else sum(t["max_points"] for t in tests)
    return min(1.0, max(0.0, points / most)) if most > 0 else 0.0


def _result(log, limit):
    names = [n for n in log.catalog.tests if n in log.selected or n in log.tests]
    gradable = not log.is_ours and log.exit_code != 3
    if not gradable:
        said = words.verdict_line(log)
        parts = [said, words.clean(log.fault), words.clean(log.build_log)]
        return {"gradable": False, "score": 0.0, "message": said,
                "output": words.cut("\n\n".join(p for p in parts if p), limit), "tests": []}
    tests = [_test(log, n, limit) for n in names]
    message = words.verdict_line(log)
    if words.grade_text(log):
        message += "\nGrade: " + words.grade_text(log)
    if log.borrowed:
        message += f"\nBorrowed from the reference: {words.clean(log.borrowed)}"
    if words.fresh_text(log.header["mode"]):
        message += "\nFresh inputs: " + words.fresh_text(log.header["mode"])
    return {"gradable": True, "score": _score(log, tests), "message": message,
            "output": "Next: " + words.next_step(log), "tests": tests}


def render(log, options):
    limit = OUTPUT_MAX
    while True:
        text = json.dumps(_result(log, limit), indent=1, ensure_ascii=True) + "\n"
        if len(text) < BYTES_MAX or limit < 64:
            return text
        limit //= 2
