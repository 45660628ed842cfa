"""Annotations of a GitHub Actions step: workflow commands, one a line, and nothing else.

Ten of a kind are shown for a step, so nine failures and a summary are written. A compiler's line
becomes an annotation of its file. Whatever an engine printed is left out: a line of it that begins
with :: would be a command.
"""
import re

from . import words

SHOWN = 9
COMPILER = re.compile(r"^([\w./+-]+):(\d+):(?:(\d+):)? (?:fatal )?(error|warning): (.*)$", re.M)


def _data(text):
    return words.clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text):
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _command(kind, message, **properties):
    pairs = ",".join(f"{k}={_property(str(v))}" for k, v in properties.items() if v)
    return f"::{kind}{' ' + pairs if pairs else ''}::{_data(message)}"


def _compiler(log):
    folder = (log.header["engine"].get("given") or "").rstrip("/")
    for file, line, column, kind, message in COMPILER.findall(log.build_log)[:SHOWN]:
        path = f"{folder}/{file}" if folder else file
        yield _command(kind, message, file=path, line=line, col=column, title="compiler")


LABELS = {"because": "", "rule": "asked: ", "case": "case: ", "want": "wanted: ", "got": "came: ",
          "read": "read: ", "pitfall": "often: ", "looks like": "looks like: ",
          "replay": "replay: "}


def _failure(record):
    lines = [LABELS[label] + text for label, text in words.failure_lines(record, tails=False)
             if label in LABELS]
    return _command("error", "\n".join(lines), title=f"{record['class']}: {record['name']}")


def render(log, options):
    out = []
    if log.footer is None:
        out.append(_command("warning", words.UNFINISHED, title="ol check"))
    elif log.is_ours or log.exit_code == 3:
        out += _compiler(log)
        out.append(_command("error", log.fault or words.EXITS[log.exit_code], title="ol check"))
    else:
        shown = [t for t in log.failures if t["class"] != "blocked"]
        shown = (shown + [t for t in log.failures if t["class"] == "blocked"])[:SHOWN]
        out += [_failure(t) for t in shown]
        left = len(log.failures) - len(shown)
        text = words.verdict_line(log) + (f"; {left} more failed" if left else "")
        text += f"\n{words.next_step(log)}" if log.failures else ""
        out.append(_command("error" if log.exit_code else "notice", text, title="ol check"))
    return "\n".join(out) + "\n"
