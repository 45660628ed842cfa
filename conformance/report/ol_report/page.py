"""A run as one HTML page: the verdict at the top, what to do next, the table, each failure drawn."""
from . import bits, plot, words
from .style import chip, e, name, page


def _verdict(log):
    tone = {"pass": "good", "expected": "good", "fail": "bad"}.get(log.verdict, "odd")
    out = [f'<div class="verdict {tone}">', f"<h1>{e(words.verdict_line(log))}</h1>"]
    if log.tests and log.exit_code != 3:
        out.append("<p>" + " ".join(f"{chip(c)} {n}" for c, n in log.count().items() if n) + "</p>")
    if words.grade_text(log):
        out.append(f"<p><strong>{e(words.grade_text(log))}</strong></p>")
    if log.borrowed:
        out.append(f"<p>Borrowed from the reference: {e(log.borrowed)}.</p>")
    if log.fault:
        out.append(f"<p>{e(log.fault.rstrip(':'))}</p>")
    out.append(f'<p class="small dim">{e(words.engine_text(log))} · '
               f"{e(log.header.get('started', ''))} · {log.seconds:.1f} s</p></div>")
    return out


def _next(log):
    out = ["<h2>What to do next</h2>"]
    first = words.root_cause(log)
    if log.is_ours or log.exit_code == 3 or first is None:
        out.append(f"<p>{e(words.next_step(log))}</p>")
        if log.build_log:
            out.append(f"<pre>{e(log.build_log)}</pre>")
        return out
    waiting = words.resting_on(log, first["name"])
    rest = "rests" if len(waiting) == 1 else "rest"
    out.append(f'<p>Begin with <a href="#{e(first["name"])}">{name(first["name"])}</a>'
               + (f"; {len(waiting)} more {rest} on it" if waiting else "")
               + f".</p><pre>{e(first.get('replay', ''))}</pre>")
    if words.diagnosis(log):
        out += ["<h2>Which mistake it may be</h2>", f"<pre>{e(chr(10).join(words.diagnosis(log)))}</pre>"]
    return out


def _row(log, record):
    entry = log.catalog.of(record["name"])
    held, every = words.checks_held(record)
    cases, label = record["cases"], name(record["name"])
    if record["class"] != "pass" and log.exit_code != 3:
        label = f'<a href="#{e(record["name"])}">{label}</a>'
    points = ""
    if record.get("max_points") is not None:
        points = (f'<td class="n extra" data-label="points">{words.number(record["points"])}/'
                  f'{words.number(record["max_points"])}</td>')
    return (f'<tr><td class="n dim">{entry["number"]}</td><td>{label}<br>'
            f'<span class="small dim">{e(entry["title"])}</span></td>'
            f"<td>{chip(record['class'])}</td>"
            f'<td class="n extra" data-label="checks">{held}/{every}</td>'
            f'<td class="n extra" data-label="cases">{cases.get("passed", 0)}/'
            f"{cases.get('total', 0)}</td>"
            f'<td class="n extra" data-label="seconds">{record.get("wall_ms", 0) / 1000:.2f}</td>'
            f"{points}</tr>")


def _table(log):
    points = any(t.get("max_points") is not None for t in log.tests.values())
    head = ('<tr><th class="n">#</th><th>test</th><th>class</th><th class="n">checks</th>'
            '<th class="n">cases</th><th class="n">seconds</th>'
            + ('<th class="n">points</th>' if points else "") + "</tr>")
    return ["<h2>The tests</h2>", f'<table class="tests"><thead>{head}</thead><tbody>',
            *(_row(log, r) for r in log.tests.values()), "</tbody></table>"]


def _marked(mine, other):
    return "".join(f"<b>{c}</b>" if c != o else c for c, o in zip(mine, other))


def _bits(first):
    want, got = bits.Value(first.get("want", "")), bits.Value(first.get("got", ""))
    parts = bits.fields(want, got)
    if not parts:
        return []
    n_apart = sum(a != b for a, b in zip(want.bits, got.bits))
    groups = "".join(f"<span><i>{e(name)}</i>{_marked(w, g)}\n{_marked(g, w)}</span>"
                     for name, w, g in parts)
    return [f'<div class="bits" role="img" aria-label="bit patterns, {n_apart} bits differ">'
            f'<span><i>{bits.kind(want, got)}</i>want\ngot</span>{groups}</div>',
            f'<p class="small dim">{n_apart} of {want.width} bits differ.</p>']


LABELS = {"because": "What happened", "rule": "What was asked", "check": "Check",
          "first": "First divergence", "case": "Case", "index": "Index", "want": "Wanted",
          "got": "Came", "apart": "Apart", "ratio": "Size", "rests on": "Blocked: it rests on",
          "stdout": "It printed", "stderr": "On stderr", "read": "Read", "pitfall": "Often it is",
          "replay": "Replay", "looks like": "Looks like"}
ORDER = ("rests on", "rule", "because", "first", "case", "index", "want", "got", "apart", "ratio")


def _definition(label, text):
    shown = f"<pre>{e(text)}</pre>" if label in ("stdout", "stderr", "replay") else e(text)
    if label in ("check", "want", "got"):
        shown = f"<code>{e(text)}</code>"
    return f"<dt>{LABELS[label]}</dt><dd>{shown}</dd>"


def _failure(log, record):
    lines = list(words.failure_lines(record))
    entry, first = log.catalog.of(record["name"]), words.first_of(record)
    lines.sort(key=lambda pair: ORDER.index(pair[0]) if pair[0] in ORDER else len(ORDER))
    upper = [p for p in lines if p[0] in ORDER]
    lower = [p for p in lines if p[0] in ("looks like", "read", "pitfall", "replay")]
    also = [t for label, t in lines if label == "also"]
    tails = [p for p in lines if p[0] in ("stdout", "stderr")]
    out = [f'<section class="fail" id="{e(record["name"])}">',
           f"<h3>{name(record['name'])} {chip(record['class'])}</h3>",
           f'<p class="dim">{e(entry["title"])}. {e(entry["why"])}</p>',
           f'<p class="small">{e(record["class"])}: {e(words.CLASSES[record["class"]])}.</p>',
           "<dl>", *(_definition(*p) for p in upper), "</dl>", *_bits(first),
           plot.draw(first.get("profile"), first.get("index"))]
    if also:
        out.append(f"<details><summary>{len(also)} more check{'s' * (len(also) > 1)} did not hold"
                   "</summary><ul>" + "".join(f"<li>{e(t)}</li>" for t in also)
                   + "</ul></details>")
    if tails:
        out += ["<dl>", *(_definition(*p) for p in tails), "</dl>"]
    if lower:
        out += ["<dl>", *(_definition(*p) for p in lower), "</dl>"]
    out.append("</section>")
    return out


def _groups(log):
    grade = (log.footer or {}).get("grade") or {}
    rows = "".join(f"<tr><td>{e(g['title'])}</td><td class=n>{words.number(g['points'])} of "
                   f"{words.number(g['max_points'])}</td></tr>" for g in grade.get("groups") or [])
    return [f"<h2>Points</h2><table>{rows}</table>"] if rows else []


def _surprises(log):
    expect = (log.footer or {}).get("expect") or {}
    lines = [f"<li>{e(s)}</li>" for s in expect.get("surprises") or []]
    known = [f"<li>{e(k['test'])}: {e(k['reason'])}</li>" for k in expect.get("as_expected") or []]
    out = []
    if lines:
        out += ["<h2>Not as expected</h2>", "<ul>", *lines, "</ul>"]
    if known:
        out += ["<h2>Known failures</h2>", "<ul>", *known, "</ul>"]
    return out


def _about(log):
    header, mode, host = log.header, log.header["mode"], log.header["host"]
    limits = ", ".join(f"{k} {v:g}" for k, v in (mode.get("limits") or {}).items())
    rows = [("Judge", f"{header['harness'].get('name')} {header['harness'].get('version')} "
             f"{header['harness'].get('commit', '')}, module {header.get('module')}"),
            ("Engine", f"{words.engine_text(log)}, sha256 {header['engine'].get('sha256')}"),
            ("Sandbox", mode.get("sandbox", "")), ("It lacks", mode.get("sandbox_lacks", "")),
            ("Mode", "strict" if mode.get("strict") else "not strict"),
            ("Fresh inputs", words.fresh_text(mode)), ("Limits", limits),
            ("Machine", " ".join(str(host.get(k, "")) for k in ("os", "release", "arch", "cpu"))),
            ("Catalogue", header["catalog"].get("sha256", ""))]
    rows += [("Golden", f"{g.get('path')} {g.get('sha256')}") for g in header["goldens"]]
    return ["<details><summary>About this run</summary><dl class=small>",
            *(f"<dt>{e(k)}</dt><dd>{e(v)}</dd>" for k, v in rows if v), "</dl></details>"]


def render(log, options):
    if log.footer is None:
        body = "\n".join(_verdict(log) + _about(log))
        return page("ol check: not finished", body)
    out = _verdict(log) + _next(log) + _surprises(log) + _groups(log)
    if log.tests and log.exit_code != 3:
        out += _table(log)
    if log.failures and log.exit_code != 3:
        out.append("<h2>Failures</h2>")
        for record in log.failures:
            out += _failure(log, record)
    out += _about(log)
    return page(words.verdict_line(log), "\n".join(out))
