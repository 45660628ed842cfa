"""Markdown, for a step summary or a comment: at most 1 MiB, what an engine said inside fences."""
import re

from . import words

BYTES_MAX = 1 << 20
MARKS = {"pass": "✅", "blocked": "⏸️", "harness-error": "⚠️"}


def _inline(text):
    """Text without any meaning to Markdown or HTML."""
    text = words.one_line(text)
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&@$-])", r"\\\1", text)


def fence(text):
    """A code block that its content cannot leave: longer than any run of backticks inside."""
    longest = max((len(r) for r in re.findall(r"`+", text)), default=0)
    bar = "`" * max(3, longest + 1)
    return f"{bar}text\n{words.clean(text).rstrip()}\n{bar}"


def _table(log):
    yield "| | test | class | checks | cases | seconds |"
    yield "| --- | --- | --- | ---: | ---: | ---: |"
    for record in log.tests.values():
        held, every = words.checks_held(record)
        cases = record["cases"]
        name = _inline(record["name"])
        name = name if record["class"] == "pass" else f"**{name}**"
        yield (f"| {MARKS.get(record['class'], '❌')} | {name}<br>"
               f"{_inline(log.catalog.of(record['name'])['title'])} | {_inline(record['class'])} | "
               f"{held}/{every} | {cases.get('passed', 0)}/{cases.get('total', 0)} | "
               f"{record.get('wall_ms', 0) / 1000:.2f} |")


def _failures(log):
    for record in log.failures:
        yield f"### {_inline(record['name'])}: {_inline(record['class'])}"
        yield ""
        yield _inline(words.headline(record))
        yield ""
        yield fence(words.failure_text(record))
        yield ""


def _head(log):
    yield f"## {_inline(words.verdict_line(log))}"
    yield ""
    rows = [("Grade", words.grade_text(log)), ("Engine", words.engine_text(log)),
            ("Borrowed from the reference", log.borrowed),
            ("Fresh inputs", words.fresh_text(log.header["mode"])), ("Why", log.fault),
            ("Next", words.next_step(log))]
    for label, text in rows:
        if text:
            yield f"- {label}: {_inline(text)}"
    yield ""


def _notes(log):
    if words.diagnosis(log):
        yield fence("\n".join(words.diagnosis(log)))
        yield ""
    for line in ((log.footer or {}).get("expect") or {}).get("surprises") or []:
        yield f"- Not as expected: {_inline(line)}"
    if log.build_log:
        yield fence(log.build_log)
        yield ""


def render(log, options):
    out = list(_head(log)) + list(_notes(log))
    if log.tests and log.exit_code != 3:
        out += [*_table(log), "", *_failures(log)]
    text = "\n".join(out).rstrip() + "\n"
    if len(text.encode()) > BYTES_MAX:
        text = words.cut("\n".join([*_head(log), *_table(log)]), BYTES_MAX) + "\n"
    return text
