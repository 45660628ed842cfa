"""A list of known failures, read in both directions (expect.schema.json).

A failure that is not listed is a surprise, and so is a listed one that did not come: a test that
passes now, or fails in another way, has to leave the list or be looked at.
"""
import difflib

from . import schema
from .log import Stop


def load(path, catalog):
    value = schema.load(path, "expect")
    seen = set()
    for entry in value["failures"]:
        name = entry["test"]
        if name not in catalog.tests:
            near = difflib.get_close_matches(name, catalog.tests, 1, 0)
            raise Stop(5, f"{path}: there is no test {name}; the nearest is "
                       f"{near[0] if near else 'none'}")
        if name in seen:
            raise Stop(5, f"{path}: {name} is listed twice")
        if "check" in entry and entry["check"] not in catalog.rules:
            raise Stop(5, f"{path}: there is no check {entry['check']}")
        seen.add(name)
    return value["failures"]


def _surprise(entry, record):
    """In one line what is not as the entry says; None when it is."""
    name, wanted = entry["test"], entry["class"]
    if record["class"] == "pass":
        return f"{name} passes, {wanted} was expected ({entry['reason']}): take it off the list"
    if record["class"] != wanted:
        return f"{name} is {record['class']}, {wanted} was expected ({entry['reason']})"
    check = (record.get("cause") or {}).get("check")
    if "check" in entry and check != entry["check"]:
        return f"{name} fails in {check or 'no check'}, {entry['check']} was expected"
    return None


def apply(entries, log):
    """What the footer keeps: how many came as expected, and the surprises."""
    listed = {e["test"]: e for e in entries}
    surprises, as_expected = [], []
    for name, record in log.tests.items():
        if name not in listed:
            if record["class"] != "pass":
                surprises.append(f"{name} is {record['class']}, which nobody expected")
            continue
        line = _surprise(listed[name], record)
        if line:
            surprises.append(line)
        else:
            as_expected.append({"test": name, "class": record["class"],
                                "reason": listed[name]["reason"],
                                "link": listed[name].get("link")})
    return {"as_expected": as_expected, "surprises": surprises,
            "not_run": [n for n in listed if n not in log.tests]}
