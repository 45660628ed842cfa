"""The log for people, without colour: header, table, failures, verdict."""
from . import words


def _header(log):
    mode, harness = log.header["mode"], log.header["harness"]
    yield f"{harness.get('name')} {harness.get('version')} check {log.header.get('module')}"
    yield f"engine    {words.engine_text(log)}, sha256 {log.header['engine'].get('sha256', '')[:12]}"
    if log.borrowed:
        yield f"borrowed  {words.clean(log.borrowed)} from the reference"
    for golden in log.header["goldens"]:
        if golden.get("path") == "MANIFEST.json":
            yield f"goldens   manifest {golden.get('sha256', '')[:12]}"
    yield f"sandbox   {mode.get('sandbox', '')}"
    if mode.get("sandbox_lacks"):
        yield f"          lacks {mode['sandbox_lacks']}"
    if mode.get("fresh_seed") is not None:
        yield f"fresh     {words.fresh_text(mode)}"
    yield (f"mode      {'strict' if mode.get('strict') else 'not strict'}, {len(log.selected)} of "
           f"{len(log.catalog.tests)} tests"
           + ("" if log.complete else ": INCOMPLETE, no grade can come of this"))


def _table(log):
    yield f"{'test':<46} {'kinds':<20} {'class':<13} {'checks':>8} {'cases':>12} {'time':>9}"
    for record in log.tests.values():
        held, all_checks = words.checks_held(record)
        cases = record["cases"]
        yield (f"{record['name']:<46} {', '.join(record['kinds']):<20} {record['class']:<13} "
               f"{f'{held}/{all_checks}':>8} "
               f"{str(cases.get('passed', 0)) + '/' + str(cases.get('total', 0)):>12} "
               f"{record.get('wall_ms', 0) / 1000:7.2f} s")


def render(log, options):
    if log.footer is None:
        return words.UNFINISHED + "\n"
    out = list(_header(log))
    if log.tests and log.exit_code != 3:
        out += [""] + list(_table(log))
    if log.build_log:
        out += ["", "the build says", words.clean(log.build_log).rstrip()]
    elif log.exit_code != 3:
        for record in log.failures:
            out += ["", f"{record['class']}  {record['name']}  ({', '.join(record['kinds'])})",
                    words.failure_text(record, indent="    ")]
    if words.diagnosis(log):
        out += ["", *words.diagnosis(log)]
    out += ["", f"{words.totals_text(log)}; {log.footer.get('executed')} of "
                f"{log.footer.get('expected')} tests ran in {log.seconds:.1f} s"
                + ("" if log.complete else " (INCOMPLETE)")]
    if log.fault:
        out.append(words.clean(log.fault))
    if words.grade_text(log):
        out.append(f"grade     {words.grade_text(log)}")
    for line in ((log.footer.get("expect") or {}).get("surprises")) or []:
        out.append(f"expected  {words.clean(line)}")
    out.append(f"verdict   {log.verdict}, exit code {log.exit_code}: {words.verdict_meaning(log)}")
    return "\n".join(out) + "\n"
