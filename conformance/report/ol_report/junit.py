"""JUnit XML in the dialect that Jenkins reads: a suite for each module, never a skipped test."""
from . import words

FAILURES = ("fail", "refused-wrong")


def _escape(text):
    text = words.clean(text, keep="\n\t")
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"),
                      ("\n", "&#10;"), ("\t", "&#9;")):
        text = text.replace(raw, safe)
    return text


def _attributes(**pairs):
    return "".join(f' {k}="{_escape(v)}"' for k, v in pairs.items())


def _counts(records):
    classes = [r["class"] if r else "no-result" for r in records]
    failures = sum(c in FAILURES for c in classes)
    return {"tests": len(classes), "failures": failures,
            "errors": sum(c != "pass" for c in classes) - failures, "skipped": 0,
            "time": f"{sum((r or {}).get('wall_ms', 0) for r in records) / 1000:.3f}"}


def _properties(pairs, indent):
    yield f"{indent}<properties>"
    for name, value in pairs:
        yield f"{indent}  <property{_attributes(name=name, value=value)}/>"
    yield f"{indent}</properties>"


def _case(log, name, record):
    entry = log.catalog.of(name)
    cls = record["class"] if record else "no-result"
    seconds = (record or {}).get("wall_ms", 0) / 1000
    yield ("    <testcase" + _attributes(
        name=name, classname=f"{log.header.get('module')}.{entry['module']}",
        time=f"{seconds:.3f}") + ">")
    pairs = [("kinds", ", ".join(entry["kinds"])), ("class", cls)]
    if record and record.get("max_points") is not None:
        pairs += [("points", record["points"]), ("max_points", record["max_points"])]
    yield from _properties(pairs, "      ")
    if record is None:
        message = log.fault or words.UNFINISHED
        kind = "harness" if log.footer and log.is_ours else "no-result"
        yield f"      <error{_attributes(type=kind, message=message)}/>"
    elif cls != "pass":
        element = "failure" if cls in FAILURES else "error"
        kind = "harness" if cls == "harness-error" else cls
        attributes = _attributes(type=kind, message=words.headline(record))
        text = _escape(words.failure_text(record, tails=False))
        yield f"      <{element}{attributes}>{text}</{element}>"
        for key, tag in (("stdout_tail", "system-out"), ("stderr_tail", "system-err")):
            if record.get(key):
                yield f"      <{tag}>{_escape(record[key])}</{tag}>"
    yield "    </testcase>"


def render(log, options):
    header = log.header
    names = [n for n in log.catalog.tests if n in log.selected or n in log.tests]
    records = {n: log.tests.get(n) for n in names}
    stamp = header.get("started", "")
    title = f"ol check {header.get('module')}" + ("" if log.footer else " (not finished)")
    out = ['<?xml version="1.0" encoding="UTF-8"?>',
           "<testsuites" + _attributes(name=title, **_counts(list(records.values())),
                                       timestamp=stamp) + ">"]
    modules = list(dict.fromkeys(log.catalog.of(n)["module"] for n in names))
    shared = [("harness", f"{header['harness'].get('name')} {header['harness'].get('version')}"),
              ("catalog_sha256", header["catalog"].get("sha256", "")),
              ("engine_sha256", header["engine"].get("sha256", "")),
              *(("goldens_sha256", g.get("sha256", "")) for g in header["goldens"]
                if g.get("path") == "MANIFEST.json"),
              ("sandbox", header["mode"].get("sandbox", "")),
              *([("fresh_seed", header["mode"]["fresh_seed"])] if header["mode"].get("fresh_seed") else []),
              ("complete", "true" if log.complete else "false")]
    if log.borrowed:
        shared.append(("ref_deps", log.borrowed))
    for module in modules:
        mine = [n for n in names if log.catalog.of(n)["module"] == module]
        out.append("  <testsuite" + _attributes(
            name=f"{header.get('module')}.{module}", **_counts([records[n] for n in mine]),
            timestamp=stamp) + ">")
        out += _properties(shared, "    ")
        for name in mine:
            out += _case(log, name, records[name])
        out.append("  </testsuite>")
    out.append("</testsuites>")
    return "\n".join(out) + "\n"
