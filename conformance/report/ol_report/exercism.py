"""results.json of an exercism test runner, version 3."""
import json

from . import words

OUTPUT_MAX = 500
MESSAGE_MAX = 65535
ERRORS = ("crash", "timeout", "resource", "no-result", "integrity", "harness-error")
# The files that are to be written, in the chapter's order; the generator counts with the sampler.
TASKS = {"kv": 1, "quant": 2, "model": 3, "forward": 4, "runner": 5, "sample": 6, "pcg32": 6}


def _status(record):
    if record is None or record["class"] in ERRORS:
        return "error"
    return "pass" if record["class"] == "pass" else "fail"


def _code(log, name, record):
    first = words.first_of(record or {})
    cause = (record or {}).get("cause") or {}
    lines = [log.catalog.of(name)["why"]]
    if cause.get("what"):
        lines.append(f"rule: {cause['what']}")
    if first.get("case"):
        lines.append(f"case: {words.clean(first['case'])}")
    if (record or {}).get("replay"):
        lines.append(words.clean(record["replay"]))
    return "\n".join(lines)


def _test(log, name):
    record = log.tests.get(name)
    status = _status(record)
    test = {"name": log.catalog.of(name)["title"], "status": status,
            "test_code": _code(log, name, record),
            "task_id": TASKS.get(log.catalog.of(name)["module"], 0), "message": None}
    if record is None:
        test["message"] = words.UNFINISHED
    elif status != "pass":
        test["message"] = words.cut(words.failure_text(record, tails=False), MESSAGE_MAX)
    printed = "".join((record or {}).get(k) or "" for k in ("stdout_tail", "stderr_tail"))
    if printed:
        test["output"] = words.cut(words.clean(printed), OUTPUT_MAX, "\n[the rest is left out]")
    return test


def _shorten(log, text):
    given = log.header["engine"].get("given") or ""
    return words.clean(text.replace(given.rstrip("/") + "/", "<solution-dir>/") if given else text)


def render(log, options):
    stopped = log.is_ours or log.exit_code == 3
    if stopped:
        message = "\n\n".join(p for p in (log.fault or words.verdict_line(log), log.build_log) if p)
        result = {"version": 3, "status": "error",
                  "message": words.cut(_shorten(log, message), MESSAGE_MAX), "tests": []}
    else:
        names = [n for n in log.catalog.tests if n in log.selected or n in log.tests]
        tests = [_test(log, n) for n in names]
        all_pass = bool(tests) and all(t["status"] == "pass" for t in tests)
        result = {"version": 3, "status": "pass" if all_pass else "fail", "message": None,
                  "tests": tests}
    return json.dumps(result, indent=1, ensure_ascii=True) + "\n"
