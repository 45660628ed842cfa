"""Gradescope's results.json.

Every test has a score, a maximum and a status; the text of an engine is shown as text, never as
HTML, and the platform's own copy of standard output stays hidden. A run that the judge or the staff
broke has no scores at all. Tests are worth one point each where no policy says otherwise.
"""
import json

from . import words

TEXT_MAX = 16 << 10
VISIBILITIES = ("visible", "hidden", "after_due_date", "after_published")


def _output(log, name, record):
    entry = log.catalog.of(name)
    if record is None:
        return log.fault or words.UNFINISHED
    if record["class"] == "pass":
        held, every = words.checks_held(record)
        return f"{entry['title']}: {held} of {every} checks held."
    text = f"{entry['title']}\n{entry['why']}\n\n" if entry["why"] else ""
    return words.cut(text + words.failure_text(record), TEXT_MAX)


def _test(log, name, options):
    record = log.tests.get(name)
    entry = log.catalog.of(name)
    cls = record["class"] if record else "no-result"
    most = (record or {}).get("max_points", 1)
    points = (record or {}).get("points", most if cls == "pass" else 0)
    test = {"number": str(entry["number"]), "name": name, "name_format": "text",
            "score": points, "max_score": most,
            "status": "passed" if cls == "pass" else "failed",
            "output": _output(log, name, record), "output_format": "text",
            "tags": [*entry["kinds"], cls]}
    visibility = (record or {}).get("visibility") or options.visibility
    if visibility:
        test["visibility"] = visibility
    extra = dict(record or {"name": name, "class": "no-result"})
    test["extra_data"] = {k: v for k, v in extra.items() if k not in ("stdout_tail", "stderr_tail")}
    return test


def _leaderboard(log):
    cpu = sum(t.get("cpu_ms", 0) for t in log.tests.values())
    rows = {"passed": {"name": "tests passed", "value": log.count()["pass"]},
            "mutants": {"name": "named mutants that it is not", "value": sum(
                len(log.catalog.of(n).get("mutants", [])) for n, t in log.tests.items() if t["class"] == "pass")},
            "speed": {"name": "engine CPU seconds", "value": round(cpu / 1000, 2), "order": "asc"}}
    wanted = ((log.footer or {}).get("grade") or {}).get("leaderboard") or []
    return [rows[w] for w in wanted]


def _summary(log):
    parts = [words.verdict_line(log)]
    if words.grade_text(log):
        parts.append("Grade: " + words.grade_text(log))
    if log.borrowed:
        parts.append(f"Borrowed from the reference: {words.clean(log.borrowed)}")
    if words.fresh_text(log.header["mode"]):
        parts.append("Fresh inputs: " + words.fresh_text(log.header["mode"]))
    if log.fault:
        parts.append(words.clean(log.fault))
    if log.build_log:
        parts.append(words.cut(words.clean(log.build_log), TEXT_MAX))
    parts.append("Next: " + words.next_step(log))
    return "\n\n".join(parts)


def render(log, options):
    header = log.header
    result = {"execution_time": log.seconds, "output": _summary(log), "output_format": "text",
              "test_output_format": "text", "test_name_format": "text",
              "stdout_visibility": "hidden",
              "extra_data": {"schema": header["schema"], "harness": header["harness"],
                             "catalog_sha256": header["catalog"].get("sha256"),
                             "engine_sha256": header["engine"].get("sha256"),
                             "borrowed": log.borrowed, "exit_code": log.exit_code,
                             "footer": log.footer}}
    if options.visibility:
        result["visibility"] = options.visibility
    if not log.is_ours:
        names = [n for n in log.catalog.tests if n in log.selected or n in log.tests]
        result["tests"] = [_test(log, n, options) for n in names]
        board = _leaderboard(log)
        if board:
            result["leaderboard"] = board
        grade = (log.footer or {}).get("grade")
        if grade:
            # Groups and excluded tests make more of a grade than the sum of the tests' points.
            result["score"] = grade["points"]
    return json.dumps(result, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
