"""Words that several views use: what a class means and what to do then, and a failure as lines.

The meanings are those that `ol explain` prints; a test compares them.
"""

EXITS = {
    70: "the judge itself failed: a bug of ours, a full disk, or a report that cannot be written; "
        "nobody's score changes",
    5: "a golden, the catalogue or a policy is broken: for the staff; nothing was graded",
    2: "the command line is wrong: for the caller",
    4: "nothing was selected: for the caller; a misspelt name gets the nearest ones",
    3: "the engine does not build, does not load, or is built for another ABI: for the learner",
    7: "mutants: the engine without a mutant already fails, or is not repeatable",
    6: "mutants: one ended in another way than killed by its named test",
    1: "at least one selected test did not pass: for the learner",
    0: "every selected test passed; a partial selection is marked incomplete and is no grade",
}
CLASSES = {
    "pass": "every check of the test held, the record is complete, the engine's process ended "
            "cleanly and nothing survived it",
    "fail": "a check did not hold: an answer is wrong",
    "refused-wrong": "accepted what must be refused, refused what must be accepted, or refused for "
                     "another reason than the true one",
    "crash": "the engine's process was ended by a signal or by a sanitizer's report",
    "timeout": "the engine used more time than the test allows; its CPU time decides",
    "resource": "the engine ran into the memory, file, output or process limit",
    "no-result": "the engine's process ended, or stopped to answer, before the record was "
                 "complete, whatever its exit status",
    "integrity": "the engine did what no engine may do: a forbidden call, a process left behind, a "
                 "forged answer, a changed floating-point environment or a changed input",
    "blocked": "an answer is wrong, and a test that this one rests on did not pass: repair that "
               "one first",
    "harness-error": "the judge's own fault; nothing is said about the engine",
}
# What else could be the verdict of a stub.
UNFINISHED = "This report is not finished: ol check was started and has not ended."


def place(clause):
    """Where a clause stands, as a path and an anchor."""
    page, _, anchor = clause.partition("#")
    page = "kv-block" if page == "kv" else page
    return f"conformance/spec/{page}.md" + (f", {anchor}" if anchor else "")


def clean(text, keep="\n\t"):
    """Text of an engine made inert: control characters, and what UTF-8 does not have, are marked."""
    return "".join(c if c in keep or (ord(c) >= 32 and not 0x7f <= ord(c) < 0xa0
                                      and not 0xd800 <= ord(c) < 0xe000
                                      and c not in "\u2028\u2029\ufffe\uffff"
                                      and not 0x202a <= ord(c) <= 0x202e
                                      and not 0x2066 <= ord(c) <= 0x2069) else "\ufffd"
                   for c in str(text))


def one_line(text):
    return " ".join(clean(text).split())


def cut(text, limit, note="\n[cut here]"):
    """At most `limit` bytes of UTF-8, with a note where something was cut."""
    data = text.encode("utf-8")
    if len(data) <= limit:
        return text
    return data[:max(0, limit - len(note.encode()))].decode("utf-8", "ignore") + note


def number(value):
    return f"{value:.4g}" if isinstance(value, (int, float)) else "not a number"


def checks_held(record):
    return sum(c.get("state") == "held" for c in record["checks"]), len(record["checks"])


def first_of(record):
    return (record.get("cause") or {}).get("first_divergence") or {}


def like(record):
    """The known bug that fails the same way, in words, or that none does; "" when nobody looked."""
    mutant = (record.get("cause") or {}).get("mutant_like")
    if isinstance(mutant, dict):
        return clean(mutant.get("text") or " ".join(
            str(mutant[k]) for k in ("id", "title") if mutant.get(k)))
    return clean(mutant or "")


def named(record):
    """The same, "" when none of the known bugs does."""
    mutant = (record.get("cause") or {}).get("mutant_like")
    return "" if isinstance(mutant, dict) and mutant.get("id") is None else like(record)


def diagnosis(log):
    """Which known bug the whole run looks like, as lines; none for a pass, or without hints."""
    return [clean(line) for line in ((log.footer or {}).get("diagnosis") or {}).get("lines") or []]


def headline(record):
    """Why it did not pass, in one line."""
    cause = record.get("cause") or {}
    return one_line(cause.get("rationale") or CLASSES[record["class"]])


def _numbers(first):
    if "index" not in first:
        return
    yield "index", (f"{first['index']} of {first.get('n_want')} "
                    f"(first of {first.get('n_over')} that differ)")
    yield "want", clean(first.get("want", ""))
    yield "got", clean(first.get("got", ""))
    if "ulp" in first:
        yield "apart", f"{first['ulp']:.0f} ulp"
    if "ratio" in first:
        yield "ratio", (f"{number(first['ratio'])} of what is allowed, at the worst place "
                        f"(allowed here: {number(first.get('allowed'))})")


def _also(record, shown):
    for check in record["checks"]:
        if check.get("state") == "failed" and check.get("id") != shown:
            name = check["id"].partition(".")[2] or check["id"]
            yield "also", f"{name}: {one_line((check.get('first') or {}).get('message', ''))}"


def failure_lines(record, tails=True):
    """A failure as pairs of a label and a text, in the order in which to read them."""
    cause = record.get("cause") or {}
    first = first_of(record)
    for name in record.get("blocked_by") or []:
        yield "rests on", name
    yield "because", clean(cause.get("rationale") or CLASSES[record["class"]])
    if first:
        yield "check", clean(cause.get("check", ""))
        yield "rule", clean(cause.get("what", ""))
        if first.get("message") != cause.get("rationale"):
            yield "first", clean(first.get("message", ""))
    if first.get("case") or cause.get("case"):
        case = clean(first.get("case") or cause["case"])
        yield "case", case + (f" ({clean(first['file'])})" if first.get("file") else "")
    yield from _numbers(first)
    yield from _also(record, cause.get("check"))
    if tails:
        for key in ("stdout", "stderr"):
            if record.get(key + "_tail"):
                yield key, clean(record[key + "_tail"])
    if like(record):
        yield "looks like", like(record)
    if cause.get("clause"):
        yield "read", place(cause["clause"])
    if cause.get("pitfall"):
        yield "pitfall", cause["pitfall"]
    if record.get("replay"):
        yield "replay", clean(record["replay"])


def failure_text(record, tails=True, indent=""):
    """The same as text, a label in front of each first line."""
    out = []
    for label, text in failure_lines(record, tails):
        lines = text.rstrip("\n").split("\n")
        out.append(f"{indent}{label:<11}{lines[0]}")
        out += [f"{indent}{'':<11}{line}" for line in lines[1:]]
    return "\n".join(out)


def totals_text(log):
    parts = [f"{n} {c}" for c, n in log.count().items() if n]
    return ", ".join(parts) or "no test ran"


def root_cause(log):
    """The failure to begin with: the first that rests on no other failed one."""
    failures = [t for t in log.failures if t["class"] != "blocked"] or log.failures
    return failures[0] if failures else None


def resting_on(log, name):
    return [t["name"] for t in log.failures if name in (t.get("blocked_by") or [])]


def next_step(log):
    """What to do now, in one or two sentences."""
    code = log.exit_code
    if log.footer is None:
        return "Wait for the run to end, or look why it did not."
    if log.is_ours:
        return "This is not the engine's fault and no score comes of it. Tell the staff, with the log."
    if code == 3:
        return "Repair what the compiler or the loader says, then run ol check again."
    first = root_cause(log)
    if first is None:
        return ("All of the selection passed; run ol check without a selection for a grade."
                if not log.complete else "Nothing is left to do.")
    waiting = resting_on(log, first["name"])
    rest = (f" {len(waiting)} other test{'s' if len(waiting) != 1 else ''} rest"
            f"{'s' if len(waiting) == 1 else ''} on it." if waiting else "")
    return f"Begin with {first['name']}.{rest} Replay it: {clean(first.get('replay', ''))}"


def verdict_line(log):
    if log.footer is None:
        return UNFINISHED
    if log.exit_code == 3:
        return "Not judged: the engine does not build or load"
    if log.is_ours:
        return f"No verdict: {EXITS[log.exit_code].partition(':')[0]}"
    n_pass = log.count()["pass"]
    n_all = log.footer.get("expected", len(log.catalog.tests))
    words = {"pass": "Passed", "fail": "Not passed", "ungradable": "Cannot be graded",
             "expected": "As expected"}
    return (f"{words.get(log.verdict, log.verdict)}: {n_pass} of {n_all} tests passed"
            + ("" if log.complete else " (an incomplete selection, no grade can come of it)"))


def verdict_meaning(log):
    """The exit code in the words of this run."""
    if log.exit_code != 0:
        return EXITS[log.exit_code]
    return ("every test passed" if log.complete else
            "every selected test passed; a part of the tests is no grade")


def fresh_text(mode):
    """The seed of inputs that were drawn anew and where what was expected came from; "" without."""
    if mode.get("fresh_seed") is None:
        return ""
    told = mode.get("fresh") or {}
    source = f", expected of models by the reference engine ({told['reference']})" if "reference" in told else ""
    return f"seed {mode['fresh_seed']}{source}"


def engine_text(log):
    engine = log.header["engine"]
    name = clean(engine.get("given") or "") or "built-in"
    if engine.get("name"):
        abi = engine.get("abi") or 0
        name += (f": {clean(engine['name'])} {clean(engine.get('version', ''))} "
                 f"({clean(engine.get('language', ''))}), ABI {abi >> 16}.{abi & 0xffff}")
    return name


def grade_text(log):
    """The grade in one line, "" when there is none."""
    grade = (log.footer or {}).get("grade")
    if not grade:
        return ""
    text = f"{number(grade['points'])} of {number(grade['max_points'])} points"
    if grade.get("minimum") is not None:
        text += (f" (the minimum of {number(grade['minimum'])} is "
                 f"{'reached' if grade['reached'] else 'not reached'})")
    return text
