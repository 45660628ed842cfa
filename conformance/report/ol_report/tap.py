"""TAP version 14: the plan first, a test point for each selected test, a YAML block where one failed.

No SKIP and no TODO: a reader must take those for success. `Bail out!` only for the judge's own fault.
"""
import json

from . import words

SEVERITY = {"fail": "fail", "refused-wrong": "fail", "blocked": "blocked"}


def _description(text):
    return words.one_line(text).replace("\\", "\\\\").replace("#", "\\#")


def _yaml(record):
    """Values are JSON, which YAML is a superset of; so text of an engine cannot leave its place."""
    first = words.first_of(record)
    cause = record.get("cause") or {}
    cls = record["class"]
    rows = [("message", words.headline(record)),
            ("severity", SEVERITY.get(cls, "error")), ("class", cls), ("kinds", record["kinds"]),
            ("duration_ms", record.get("wall_ms", 0))]
    if cause.get("check"):
        rows += [("check", cause["check"]), ("rule", cause.get("what", ""))]
    if "got" in first:
        rows += [("found", first["got"]), ("wanted", first["want"])]
    if first:
        rows.append(("first_divergence", {k: first[k] for k in ("case", "file", "index")
                                          if first.get(k) is not None}))
    if "ratio" in first:
        rows.append(("numeric", {k: first.get(k) for k in ("mode", "bound", "error", "allowed",
                                                           "ratio", "ulp", "n_over")}))
    if record.get("blocked_by"):
        rows.append(("blocked_by", record["blocked_by"]))
    if words.like(record):
        rows.append(("looks_like", words.like(record)))
    if cause.get("pitfall"):
        rows.append(("help", cause["pitfall"]))
    if cause.get("clause"):
        rows.append(("read", words.place(cause["clause"])))
    rows.append(("replay", words.clean(record.get("replay", ""))))
    yield "  ---"
    for key, value in rows:
        yield f"  {key}: {json.dumps(value, ensure_ascii=True)}"
    yield "  ..."


def _comments(log):
    header = log.header
    yield f"# {header['harness'].get('name')} {header['harness'].get('version')} check " \
          f"{header.get('module')}; engine {words.one_line(words.engine_text(log))}"
    if log.borrowed:
        yield f"# borrowed from the reference: {words.one_line(log.borrowed)}"
    if words.fresh_text(log.header["mode"]):
        yield "# fresh inputs: " + words.fresh_text(log.header["mode"])
    if not log.complete:
        yield "# an incomplete selection: no grade can come of it"


def render(log, options):
    names = [n for n in log.catalog.tests if n in log.selected or n in log.tests]
    out = ["TAP version 14", f"1..{len(names)}", *_comments(log)]
    for number, name in enumerate(names, 1):
        record = log.tests.get(name)
        if record is None and log.is_ours:
            break
        passed = record is not None and record["class"] == "pass"
        out.append(f"{'ok' if passed else 'not ok'} {number} - {_description(name)}")
        if record is None:
            out += ["  ---", f"  message: {json.dumps(log.fault or words.UNFINISHED)}",
                    '  severity: "error"', '  class: "no-result"', "  ..."]
        elif not passed:
            out += _yaml(record)
    if log.is_ours:
        out.append(f"Bail out! {words.one_line(log.fault) or words.verdict_line(log)}")
    else:
        out.append(f"# {words.verdict_line(log)}")
    return "\n".join(out) + "\n"
