"""A whole class as one table: submissions against tests, as an HTML page and as CSV.

A log that is broken or that the judge or the staff spoilt is a row of its own that counts nowhere.
A log whose goldens are not those of today is named, with the tests that a changed golden touches.
"""
import collections
import csv
import hashlib
import io
import os

from . import words
from .log import BrokenLog, Log, Stop
from .style import chip, e, page

LETTERS = {"pass": "✓", "fail": "F", "refused-wrong": "R", "crash": "C", "timeout": "T",
           "resource": "M", "no-result": "N", "integrity": "I", "blocked": "b",
           "harness-error": "?"}
CSS = """
table.class{width:auto;font-size:.8125rem}table.class td,table.class th{padding:.2rem .3rem;
text-align:center;white-space:nowrap}table.class th:first-child,table.class td:first-child{position:sticky;left:0;
background:var(--bg);text-align:left;max-width:min(14rem,38vw);overflow:hidden;
text-overflow:ellipsis;z-index:1}
table.class thead th{vertical-align:bottom}
table.class td.good{color:var(--good);background:var(--goodbg)}
table.class td.bad{color:var(--bad);background:var(--badbg);font-weight:700}
table.class td.odd{color:var(--odd);background:var(--oddbg);font-weight:700}
table.class td.wait{color:var(--wait);background:var(--waitbg)}
.bar{display:inline-block;height:.7rem;background:var(--good);vertical-align:middle}
"""


class Submission:
    """One row: a name and a log, or why there is none."""

    def __init__(self, name, log=None, trouble=""):
        self.name, self.log, self.trouble = name, log, trouble
        self.old = []

    @property
    def counts(self):
        return self.log is not None and not self.trouble


def names_of(paths):
    """Names that tell the logs apart: the file's, or the folder's where all files are called alike."""
    stems = [os.path.splitext(os.path.basename(p))[0] for p in paths]
    if len(paths) > 1 and len(set(stems)) < len(stems):
        folders = [os.path.basename(os.path.dirname(os.path.abspath(p))) for p in paths]
        if len(set(folders)) == len(folders):
            return folders
        return list(paths)
    return stems


def read(paths, catalog):
    rows = []
    for name, path in zip(names_of(paths), paths):
        try:
            log = Log.read(path, catalog)
        except BrokenLog as why:
            rows.append(Submission(name, trouble=str(why)))
            continue
        trouble = ""
        if log.is_ours or log.count()["harness-error"]:
            trouble = f"exit code {log.exit_code}: {log.fault or words.EXITS[log.exit_code]}"
        elif not log.complete:
            trouble = "an incomplete selection"
        rows.append(Submission(name, log, trouble))
    return sorted(rows, key=lambda r: r.name)


# ------------------------------------------------------------------ goldens of today


def today(folder):
    """Hashes of the golden files as they are now: file name to sha256."""
    hashes = {}
    try:
        for name in os.listdir(folder):
            if name.endswith(".json"):
                with open(os.path.join(folder, name), "rb") as file:
                    hashes[name] = hashlib.sha256(file.read()).hexdigest()
    except OSError as why:
        raise Stop(2, f"{folder}: {why.strerror}") from None
    return hashes


def mark_old(rows, hashes):
    """Name for each log the golden files that are others today. Logs of further folders of goldens
    list a file of the same name again, so one of the hashes must be today's."""
    for row in rows:
        if row.log is None or row.log.header["mode"].get("fresh_seed") is not None:
            continue    # inputs drawn anew are of no day
        seen = collections.defaultdict(set)
        for golden in row.log.header["goldens"]:
            seen[golden.get("path")].add(golden.get("sha256"))
        row.old = sorted(p for p, there in seen.items() if p in hashes and hashes[p] not in there)


def touched(catalog, rows):
    """Tests that read a golden which some log has in another version."""
    suites = {g.get("suite") for r in rows if r.log for g in r.log.header["goldens"]
              if g.get("path") in r.old and g.get("suite")}
    return [n for n, t in catalog.tests.items() if suites & set(t["suites"])]


# ------------------------------------------------------------------ numbers


def pass_rate(rows, name):
    counted = [r for r in rows if r.counts and name in r.log.tests]
    passed = sum(r.log.tests[name]["class"] == "pass" for r in counted)
    return passed, len(counted)


def pitfalls(rows):
    """(test, check, pitfall or known bug, who) by how many submissions have it; blocked tests do not
    count, since their cause is counted where it is."""
    who = collections.defaultdict(list)
    for row in rows:
        if not row.counts or row.log.exit_code == 3:
            continue
        for record in row.log.failures:
            if record["class"] != "blocked":
                cause = record.get("cause") or {}
                text = words.named(record) or cause.get("pitfall") or record["class"]
                who[record["name"], cause.get("check") or record["class"], text].append(row.name)
    return sorted(((*key, names) for key, names in who.items()),
                  key=lambda item: (-len(item[3]), item[0]))


def points(row):
    grade = (row.log.footer.get("grade") or {}) if row.counts else {}
    return grade.get("points"), grade.get("max_points")


# ------------------------------------------------------------------ CSV


def _cell(text):
    """A spreadsheet takes a cell that begins so for a formula."""
    text = words.one_line(text)
    return "'" + text if text[:1] in ("=", "+", "-", "@") else text


def to_csv(rows, catalog):
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(["submission", "verdict", "exit_code", "passed", "points", "max_points", "borrowed",
           "started", "engine_sha256", "old_goldens", "trouble", *catalog.tests])
    for row in rows:
        log = row.log
        got, most = points(row)
        classes = [(log.tests.get(n) or {}).get("class", "") if log else "" for n in catalog.tests]
        write([_cell(row.name), log.verdict if log else "broken", log.exit_code if log else "",
               log.count()["pass"] if log else "", "" if got is None else got,
               "" if most is None else most, _cell(log.borrowed) if log else "",
               log.header.get("started", "") if log else "",
               log.header["engine"].get("sha256", "") if log else "", " ".join(row.old),
               _cell(row.trouble), *classes])
    counted = [pass_rate(rows, n) for n in catalog.tests]
    write(["pass rate", *[""] * 10, *(f"{p / n:.4f}" if n else "" for p, n in counted)])
    return out.getvalue()


# ------------------------------------------------------------------ HTML


def _summary(rows):
    counted = [r for r in rows if r.counts]
    full = sum(not r.log.failures for r in counted)
    mean = sum(r.log.count()["pass"] for r in counted) / len(counted) if counted else 0
    out = [f"<h1>{len(rows)} submission{'s' * (len(rows) != 1)}, {full} with every test passed</h1>",
           f"<p>On average {mean:.1f} tests passed."]
    broken = sum(r.exit3 for r in map(_Exit, counted))
    if broken:
        out.append(f" {broken} did not build or load.")
    troubled = [r for r in rows if not r.counts]
    if troubled:
        out.append(f" {len(troubled)} count nowhere; see below.")
    return out + ["</p>"]


class _Exit:
    def __init__(self, row):
        self.exit3 = row.log.exit_code == 3


def _matrix(rows, catalog):
    graded = any(points(r)[1] is not None for r in rows)
    head = "".join(f'<th title="{e(n)}">{t["number"]}</th>' for n, t in catalog.tests.items())
    rate = "".join(f"<th>{100 * p // n if n else 0}</th>"
                   for p, n in (pass_rate(rows, name) for name in catalog.tests))
    tail = "<th>points</th>" if graded else ""
    out = ['<div class="scroll"><table class="class"><thead>',
           f"<tr><th>submission</th><th>passed</th>{tail}{head}</tr>",
           f"<tr><th>% passed</th><th></th>{'<th></th>' if graded else ''}{rate}</tr>",
           "</thead><tbody>"]
    for row in rows:
        if row.log is None:
            continue
        cells = "".join(_class_cell(row.log.tests.get(n)) for n in catalog.tests)
        got, most = points(row)
        grade = f"<td>{words.number(got) if most is not None else ''}</td>" if graded else ""
        note = (" *" if row.old else "") + (" (?)" if row.trouble else "")
        note += " (borrowed)" if row.log.borrowed else ""
        out.append(f"<tr><td>{e(row.name)}{e(note)}</td><td>{row.log.count()['pass']}</td>{grade}"
                   f"{cells}</tr>")
    out.append("</tbody></table></div>")
    legend = ", ".join(f"{letter} {cls}" for cls, letter in LETTERS.items())
    out.append(f'<p class="small dim">{e(legend)}. The numbers are those of the table below.</p>')
    return out


def _class_cell(record):
    if record is None:
        return "<td></td>"
    cls = record["class"]
    tone = {"pass": "good", "fail": "bad", "refused-wrong": "bad", "blocked": "wait"}.get(cls, "odd")
    return f'<td class="{tone}" title="{e(record["name"])}: {e(cls)}">{LETTERS[cls]}</td>'


def _tests(rows, catalog):
    out = ["<h2>Pass rate of each test</h2>",
           "<table><thead><tr><th class=n>#</th><th>test</th><th class=n>passed</th><th></th></tr>"
           "</thead><tbody>"]
    for name, entry in catalog.tests.items():
        passed, n = pass_rate(rows, name)
        width = 8 * passed / n if n else 0
        out.append(f"<tr><td class=n>{entry['number']}</td><td>{e(name)}<br><span "
                   f'class="small dim">{e(entry["title"])}</span></td><td class=n>{passed} of {n}'
                   f'</td><td><span class="bar" style="width:{width:.2f}rem"></span></td></tr>')
    return out + ["</tbody></table>"]


def _pitfalls(rows):
    found = pitfalls(rows)
    if not found:
        return []
    out = ["<h2>Pitfalls most seen</h2>"]
    for test, check, text, names in found[:20]:
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        out.append(f"<p><strong>{len(names)}</strong> {e(text)}<br><span class='small dim'>"
                   f"{e(check if check.startswith(test) else test + ', ' + check)}: {e(shown)}"
                   "</span></p>")
    return out


def _old(rows, catalog):
    old = [r for r in rows if r.old]
    if not old:
        return []
    out = [f"<h2>Made with other goldens than today's: {len(old)}</h2>",
           "<p>Marked * below. Judge these submissions again; the tests that the changed files touch "
           f"are {e(', '.join(touched(catalog, rows)) or 'none by a suite of their own')}.</p>"
           "<details><summary>Which</summary><ul>"]
    out += [f"<li>{e(r.name)}, {e(r.log.header.get('started', ''))}: {e(', '.join(r.old))}</li>"
            for r in old]
    return out + ["</ul></details>"]


def _troubles(rows):
    bad = [r for r in rows if not r.counts]
    if not bad:
        return []
    return ["<h2>Counted nowhere</h2><ul>",
            *(f"<li>{e(r.name)} {chip('harness-error')} {e(r.trouble)}</li>" for r in bad), "</ul>"]


def to_html(rows, catalog):
    out = (_summary(rows) + _old(rows, catalog) + _matrix(rows, catalog) + _troubles(rows)
           + _pitfalls(rows) + _tests(rows, catalog))
    return page(f"{len(rows)} submissions", "\n".join(out), CSS, wide=True)


def to_text(rows, catalog):
    """The short form for a terminal."""
    counted = [r for r in rows if r.counts]
    out = [f"{len(rows)} submissions, {len(counted)} counted, "
           f"{sum(not r.log.failures for r in counted)} with every test passed", ""]
    for name, entry in catalog.tests.items():
        passed, n = pass_rate(rows, name)
        out.append(f"{entry['number']:>3} {name:<46} {passed:>4} of {n}")
    for title, lines in (
            ("pitfalls most seen", [f"{len(names):>4}  {check}: {words.one_line(text)}"
                                    for _, check, text, names in pitfalls(rows)[:10]]),
            ("made with other goldens than today's", [f"{r.name}: {', '.join(r.old)}"
                                                       for r in rows if r.old]),
            ("counted nowhere", [f"{r.name}: {r.trouble}" for r in rows if not r.counts])):
        if lines:
            out += ["", title, *("  " + words.clean(line) for line in lines)]
    return "\n".join(out) + "\n"
