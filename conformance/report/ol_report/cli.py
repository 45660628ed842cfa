"""The command line: `ol report ...`, and what `ol check` calls."""
import argparse
import importlib
import sys

from .log import Catalog, Log, Stop, worse_exit

# A format and the module that makes it.
FORMATS = {"text": "text", "jsonl": None, "junit": "junit", "tap": "tap",
           "gradescope": "gradescope", "exercism": "exercism", "prairielearn": "prairielearn",
           "github": "github", "md": "markdown", "html": "page"}
VISIBILITIES = ("visible", "hidden", "after_due_date", "after_published")


def render(log, name, options):
    """The log in a format, as bytes."""
    if name == "jsonl":
        return log.dump()
    module = importlib.import_module(f"{__package__}.{FORMATS[name]}")
    return module.render(log, options).encode("utf-8", "replace")


def _strip_hints(log):
    log.raw = None
    (log.footer or {}).pop("diagnosis", None)
    for record in log.tests.values():
        for key in ("pitfall", "clause", "mutant_like"):
            (record.get("cause") or {}).pop(key, None)


def settle(log, policy, expect):
    """Grade and expectations into the log; its exit code is settled with them."""
    footer, log.raw = log.footer, None
    if expect is not None:
        from . import expect as rules
        footer["expect"] = rules.apply(expect, log)
        if footer["exit_code"] in (0, 1):
            surprised = bool(footer["expect"]["surprises"])
            footer["exit_code"] = 1 if surprised else 0
            footer["verdict"] = "fail" if surprised else "expected" if log.failures else "pass"
    if policy is not None:
        refusal = policy.refusal(log)
        footer["grade"] = None if refusal else policy.apply(log)
        if refusal:
            code, words = refusal
            footer["exit_code"] = worse_exit(footer["exit_code"], code)
            footer["fault"] = footer.get("fault") or f"no grade: {words}"
            if footer["verdict"] in ("pass", "fail", "expected"):
                footer["verdict"] = "ungradable"


def _load_rules(args, catalog):
    policy = entries = None
    if args.grade:
        from .grade import Policy
        policy = Policy.load(args.grade, catalog)
    if args.expect:
        from . import expect as rules
        entries = rules.load(args.expect, catalog)
    return policy, entries


# ------------------------------------------------------------------ what ol check calls


def cmd_rules(args, catalog):
    """Are the policy and the list sound?"""
    _load_rules(args, catalog)
    return 0


def cmd_settle(args, catalog):
    """The log on standard input, graded, to standard output."""
    log = Log.parse(sys.stdin.buffer.read(), "the log", catalog)
    settle(log, *_load_rules(args, catalog))
    sys.stdout.buffer.write(log.dump())
    return 0


def cmd_render(args, catalog):
    """The log on standard input, perhaps without its footer, in one format to standard output."""
    log = Log.parse(sys.stdin.buffer.read(), "the log", catalog, unfinished=True)
    sys.stdout.buffer.write(render(log, args.format, args))
    return 0


# ------------------------------------------------------------------ what people call


def cmd_convert(args, catalog):
    from . import files
    log = Log.read(args.log, catalog)
    if args.grade or args.expect:
        settle(log, *_load_rules(args, catalog))
    if args.no_hints:
        _strip_hints(log)
    files.write(args.output, render(log, args.format, args))
    return log.exit_code if args.grade or args.expect else 0


def cmd_show(args, catalog):
    args.format, args.output, args.grade, args.expect = "text", None, None, None
    args.visibility = args.no_hints = None
    cmd_convert(args, catalog)
    return 0


def cmd_merge(args, catalog):
    from . import files, merge
    matrices = [merge.is_matrix(path) for path in args.logs]
    if any(matrices):
        if not all(matrices) or args.partial:
            raise Stop(2, f"{args.logs[matrices.index(True)]} is a matrix of mutants: it is merged with other "
                       "matrices, and with all of them")
        files.write(args.output, merge.merge_matrices(args.logs, catalog.root))
        return 0
    log = merge.merge([Log.read(p, catalog) for p in args.logs], args.partial)
    files.write(args.output, log.dump())
    return 0


def cmd_class(args, catalog):
    import os
    from . import classes, files
    if args.grade:
        from .grade import Policy
        policy = Policy.load(args.grade, catalog)
    rows = classes.read(args.logs, catalog)
    if args.grade:
        for row in rows:
            if row.counts:
                settle(row.log, policy, None)
    folder = args.goldens or os.path.join(catalog.root, "goldens")
    if args.goldens or os.path.isdir(folder):
        classes.mark_old(rows, classes.today(folder))
    if args.html:
        files.write(args.html, classes.to_html(rows, catalog))
    if args.csv:
        files.write(args.csv, classes.to_csv(rows, catalog))
    if not (args.html or args.csv):
        files.write(None, classes.to_text(rows, catalog))
    return 70 if rows and all(r.log is None for r in rows) else 0


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"ol report: {message}\n{self.format_usage().strip()}", file=sys.stderr)
        sys.exit(2)


def _rules_options(parser):
    parser.add_argument("--grade", metavar="POLICY")
    parser.add_argument("--expect", metavar="FILE")


def _view_options(parser):
    parser.add_argument("--visibility", choices=VISIBILITIES)
    parser.add_argument("--no-hints", action="store_true")


def parser():
    top = Parser(prog="ol report", allow_abbrev=False,
                 description="Views of logs that ol check --report jsonl:PATH wrote.")
    sub = top.add_subparsers(dest="command", required=True, metavar="COMMAND",
                             parser_class=Parser)
    formats = ", ".join(FORMATS)
    convert = sub.add_parser("convert", help=f"one log to a format: {formats}",
                             allow_abbrev=False)
    convert.add_argument("format", choices=FORMATS)
    convert.add_argument("log")
    convert.add_argument("-o", "--output", metavar="PATH")
    _rules_options(convert)
    _view_options(convert)
    convert.set_defaults(run=cmd_convert)
    show = sub.add_parser("show", help="one log as text", allow_abbrev=False)
    show.add_argument("log")
    show.set_defaults(run=cmd_show)
    merge = sub.add_parser("merge", help="shards of one run, or of one matrix of mutants", allow_abbrev=False)
    merge.add_argument("logs", nargs="+", metavar="LOG")
    merge.add_argument("-o", "--output", metavar="PATH")
    merge.add_argument("--partial", action="store_true", help="tests may be missing")
    merge.set_defaults(run=cmd_merge)
    classes = sub.add_parser("class", help="a whole class as one table", allow_abbrev=False)
    classes.add_argument("logs", nargs="+", metavar="LOG")
    classes.add_argument("--html", metavar="PATH")
    classes.add_argument("--csv", metavar="PATH")
    classes.add_argument("--grade", metavar="POLICY")
    classes.add_argument("--goldens", metavar="DIR", help="the goldens of today")
    classes.set_defaults(run=cmd_class)
    for name, run in (("rules", cmd_rules), ("settle", cmd_settle), ("render", cmd_render)):
        inner = sub.add_parser(name, allow_abbrev=False)
        if name == "render":
            inner.add_argument("format", choices=FORMATS)
            _view_options(inner)
        else:
            _rules_options(inner)
        inner.set_defaults(run=run)
    return top


def main(argv):
    args = parser().parse_args(argv)
    try:
        return args.run(args, Catalog())
    except Stop as stop:
        print(f"ol: {stop}", file=sys.stderr)
        return stop.code
    except BrokenPipeError:
        return 70
