"""The matrix as one HTML file: no script, no network, nothing from anywhere else.

From the top: the verdicts in numbers; the matrix, a row for each mutant and a column for each test; each mutant with
its patch, its killer and what was seen; the sources, with the places that mutants change.

Standard library only.
"""
import html
import os

import report
import verdict
from catalog import ROOT, read
from cells import KILLS

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --soft: #f2f2ef; --line: #d4d4cf; --dim: #6b6b66;
  --good: #2e7d32; --bad: #b3261e; --warn: #9a6700; --add: #e3f4e1; --del: #fbe3e1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e3; --paper: #181816; --soft: #232320; --line: #3c3c38;
  --dim: #a0a09a; --good: #7fcf83; --bad: #ff8a80; --warn: #e3b341; --add: #1d3320; --del: #3d2120; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  padding: 1.5rem; max-width: 78rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
a { color: inherit; } code, pre { font: 13px/1.45 ui-monospace, monospace; }
.dim { color: var(--dim); } .good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.sums { display: flex; flex-wrap: wrap; gap: .7rem; padding: 0; list-style: none; }
.sums li { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .4rem .8rem; }
.sums b { font-size: 1.25rem; margin-right: .4rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; } .matrix td, .matrix th { padding: 1px 5px; text-align: center; white-space: nowrap;
  border-bottom: 1px solid var(--line); font: 12px/1.5 ui-monospace, monospace; }
.matrix th.row { text-align: left; font-weight: normal; position: sticky; left: 0; background: var(--paper); }
.matrix td.kill { color: var(--bad); font-weight: bold; } .matrix td.named { outline: 2px solid var(--good);
  outline-offset: -2px; } .matrix td.pass { color: var(--dim); } .matrix td.other { color: var(--warn); }
.matrix .wrap { white-space: normal; text-align: left; min-width: 22rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0; padding: 0 .8rem; }
details[open] { padding-bottom: .8rem; } summary { cursor: pointer; padding: .45rem 0; }
dl { display: grid; grid-template-columns: 7rem 1fr; gap: .15rem 1rem; margin: .3rem 0 .8rem; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .5rem 0; overflow-x: auto;
  margin: .4rem 0; } pre span { display: block; padding: 0 .8rem; min-height: 1.45em; }
pre .add { background: var(--add); } pre .del { background: var(--del); } pre .at { color: var(--dim); }
.source .hit { background: var(--del); } .source i { color: var(--dim); font-style: normal; display: inline-block;
  width: 3.2em; user-select: none; } .source b { float: right; font-weight: normal; }
"""


def esc(text):
    return html.escape(str(text), quote=True)


def sums(matrix):
    counts = {}
    for row in matrix["mutants"]:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    items = [f'<li><b>{len(matrix["mutants"])}</b>mutants</li>']
    for word, n in sorted(counts.items(), key=lambda item: (item[0] != verdict.GOOD, item[0])):
        items.append(f'<li class="{"good" if word == verdict.GOOD else "bad"}"><b>{n}</b>{esc(word)}</li>')
    return f'<ul class="sums">{"".join(items)}</ul>'


def cell(row, test):
    if test not in row["cells"]:
        return "<td></td>"
    cls = row["cells"][test]["class"]
    kind = "kill" if cls in KILLS else "pass" if cls == "pass" else "other"
    named = " named" if test == row["killer"] else ""
    checks = ", ".join(c["id"].split(".")[1] for c in row["cells"][test]["failed"])
    return f'<td class="{kind}{named}" title="{esc(test)}: {esc(cls)} {esc(checks)}">{report.LETTERS[cls]}</td>'


def corpus_words(row):
    corpus = row["corpus"]
    by = ", ".join(f"{n} of {target}" for target, n in sorted(corpus["by"].items()))
    return f"{by}: {'; '.join(corpus['seeds'])}" if by else "no seed notices it"


def corpus_cell(row):
    if "corpus" not in row:
        return "<td></td>"
    cls = row["corpus"]["class"]
    return (f'<td class="{"kill" if cls == "fail" else "pass"}" title="{esc(corpus_words(row))}">'
            f"{report.LETTERS[cls]}</td>")


def matrix_table(matrix):
    head = "".join(f'<th title="{esc(test)}">{i}</th>' for i, test in enumerate(matrix["tests"], 1))
    has_corpus = any("corpus" in row for row in matrix["mutants"])
    head += '<th title="the fuzzing corpora, replayed">corpora</th>' if has_corpus else ""
    lines = [f'<tr><th class="row"></th>{head}</tr>']
    for row in matrix["mutants"]:
        cells = "".join(cell(row, test) for test in matrix["tests"]) + (corpus_cell(row) if has_corpus else "")
        lines.append(f'<tr><th class="row"><a href="#{esc(row["id"])}">{esc(row["id"])}</a></th>{cells}</tr>')
    letters = ", ".join(f"{letter} {word}" for word, letter in report.LETTERS.items())
    names = " ".join(f"{i}&nbsp;{esc(test)}" for i, test in enumerate(matrix["tests"], 1))
    return (f'<div class="scroll"><table class="matrix">{"".join(lines)}</table></div>'
            f'<p class="dim">{letters}; a frame is the test that must kill. {names}</p>')


def patch_lines(patch):
    out = []
    for line in patch.diff.splitlines()[2:]:
        kind = {"+": "add", "-": "del", "@": "at"}.get(line[:1], "")
        out.append(f'<span class="{kind}">{esc(line)}</span>')
    return f'<pre>{"".join(out)}</pre>'


def mutant_details(row, mutant):
    good = row["verdict"] == verdict.GOOD
    place = f"{row['file']}:{row['line']}"
    tone = "good" if good else "bad"
    seen = f"{row['check']}: got {row['got']}" + (f", wanted {row['wanted']}" if row["wanted"] else "")
    fields = [("verdict", f'<span class="{tone}">{esc(row["verdict"])}</span> '
                          + esc(row.get("why", "") if not good else "")),
              ("killer", f"<code>{esc(row['killer'])}</code>"),
              ("through", ", ".join(f"<code>{esc(check)}</code>" for check in row["checks"])),
              ("seen", esc(seen if row["check"] else row["got"])),
              ("place", f'<a href="#{esc(place)}"><code>{esc(place)}</code></a>')]
    also = [test for test, c in row["cells"].items() if c["class"] in KILLS and test != row["killer"]]
    if also:
        fields.append(("killed also by", ", ".join(esc(test) for test in also)))
    if "corpus" in row:
        fields.append(("corpora", esc(corpus_words(row))))
    for key in ("symptom", "pitfall", "clause"):
        if key in mutant.row:
            fields.append((key, esc(mutant.row[key])))
    if mutant.patch.header.get("thinking"):
        fields.append(("thought", esc(mutant.patch.header["thinking"])))
    if mutant.row.get("links"):
        fields.append(("seen in", ", ".join(esc(link) for link in mutant.row["links"])))
    listed = "".join(f"<dt>{key}</dt><dd>{value}</dd>" for key, value in fields)
    return (f'<details id="{esc(row["id"])}"{"" if good else " open"}><summary><code>{esc(row["id"])}</code> '
            f'{esc(mutant.row["title"])} <span class="{tone}">{esc(row["verdict"])}</span></summary>'
            f'<dl>{listed}</dl>{patch_lines(mutant.patch)}</details>')


def source_details(name, rows, by_id):
    hits = {}
    for row in rows:
        first, end, _ = by_id[row["id"]].patch.span()
        for line in range(first, end):
            hits.setdefault(line, []).append(row["id"])
    lines, told = [], set()
    for number, line in enumerate(read(os.path.join(ROOT, name)).splitlines(), 1):
        ids = [i for i in hits.get(number, []) if i not in told]
        told.update(ids)
        marks = f'<b>{" ".join(f"<a href=#{esc(i)}>{esc(i)}</a>" for i in ids)}</b>' if ids else ""
        lines.append(f'<span{" class=hit" if number in hits else ""} id="{esc(name)}:{number}">'
                     f"{marks}<i>{number}</i>{esc(line)}</span>")
    return (f'<details><summary><code>{esc(name)}</code> <span class="dim">{len(rows)} mutants</span></summary>'
            f'<pre class="source">{"".join(lines)}</pre></details>')


def tests_part(matrix, by_id):
    kills = report.kills_of(matrix)
    unique = report.unique_kills(kills)
    rows = "".join(f"<tr><td>{esc(test)}</td><td>{len(ids)}</td><td>{esc(', '.join(unique[test]) or '-')}</td></tr>"
                   for test, ids in kills.items())
    head = "<tr><th>test</th><th>kills</th><th>that no other kills</th></tr>"
    out = [f'<div class="scroll"><table class="matrix">{head}{rows}</table></div>',
           f"<p>Smallest set that kills them all: {esc(', '.join(report.smallest_set(kills)))}</p>"]
    out += [f"<p>{esc(line)}</p>" for line in report.about_corpora(matrix) if line]
    gaps = report.coverage_gaps(matrix, by_id)
    if gaps is not None:
        rows = "".join(f'<tr><th class="row">{esc(name)}</th><td>{gap.n_run}</td><td>{gap.n_hit}</td>'
                       f'<td class="wrap">{esc(", ".join(gap.functions))}</td></tr>'
                       for name, gap in sorted(gaps.items()))
        out.append("<h2>What tests run and no kill touches</h2>"
                   '<div class="scroll"><table class="matrix"><tr><th class="row">source</th>'
                   "<th>lines that the 24 tests run</th><th>that a killed mutant changes</th>"
                   f'<th class="wrap">functions without such a line</th></tr>{rows}</table></div>')
    return "".join(out)


def as_html(matrix, by_id):
    files = {}
    for row in matrix["mutants"]:
        files.setdefault(row["file"], []).append(row)
    whole = any(len(row["cells"]) > 1 for row in matrix["mutants"])
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
             f"<title>Mutants</title><style>{STYLE}</style>", "<h1>Mutants</h1>",
             f'<p class="dim">engine {matrix["version"]["engine"][:12]}, judge {matrix["version"]["judge"][:12]}, '
             f'goldens {matrix["version"]["goldens"][:12]}</p>', sums(matrix)]
    if whole:
        parts += ["<h2>Matrix</h2>", matrix_table(matrix), "<h2>Tests</h2>", tests_part(matrix, by_id)]
    parts.append("<h2>Mutants</h2>")
    parts += [mutant_details(row, by_id[row["id"]]) for row in matrix["mutants"]]
    parts.append("<h2>Sources</h2>")
    parts += [source_details(name, rows, by_id) for name, rows in sorted(files.items())]
    return "".join(parts) + "</html>\n"
