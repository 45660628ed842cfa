#!/usr/bin/python3
"""Hold the specification together: pages, catalogue, schema and goldens must say the same.

  spec.py          check, and count
  spec.py --write  write the check tables of tests.md from the catalogue first

Standard library only: the JSON Schema is read by a small validator that knows exactly the keywords which
config.schema.json uses, and refuses any other.
"""
import json
import math
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPEC = os.path.join(ROOT, "conformance", "spec")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


class Tally:
    def __init__(self):
        self.passed = self.failed = 0

    def test(self, held, words):
        if held:
            self.passed += 1
        else:
            self.failed += 1
            print(words)


# ---------------------------------------------------------------- the schema

KEYWORDS = {"$schema", "$id", "title", "description", "type", "required", "properties", "enum", "$ref", "anyOf",
            "minItems", "maxItems", "uniqueItems", "items", "allOf", "if", "then", "else", "const", "minimum",
            "maximum", "exclusiveMinimum", "exclusiveMaximum", "additionalProperties", "multipleOf", "$defs", "not"}


def is_type(value, name):
    if name == "integer":  # to a schema, 64.0 is one
        return not isinstance(value, bool) and (isinstance(value, int)
                                                or isinstance(value, float) and value.is_integer())
    if name == "number":
        return not isinstance(value, bool) and isinstance(value, (int, float))
    return isinstance(value, {"object": dict, "array": list, "string": str, "boolean": bool,
                              "null": type(None)}[name])


def same(a, b):
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def valid(value, schema, root):
    """Does the value satisfy the schema? Draft 2020-12, the keywords above."""
    if isinstance(schema, bool):
        return schema
    unknown = set(schema) - KEYWORDS
    if unknown:
        raise ValueError(f"the validator does not know {sorted(unknown)}")
    if "$ref" in schema:
        target = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        if not valid(value, target, root):
            return False
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(is_type(value, name) for name in types):
        return False
    if "const" in schema and not same(value, schema["const"]):
        return False
    if "enum" in schema and not any(same(value, one) for one in schema["enum"]):
        return False
    if is_type(value, "number"):
        if value < schema.get("minimum", -math.inf) or value > schema.get("maximum", math.inf):
            return False
        if value <= schema.get("exclusiveMinimum", -math.inf) and "exclusiveMinimum" in schema:
            return False
        if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
            return False
        if "multipleOf" in schema and value % schema["multipleOf"] != 0:
            return False
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return False
        if schema.get("uniqueItems") and len({json.dumps(v) for v in value}) != len(value):
            return False
        if not all(valid(item, schema.get("items", True), root) for item in value):
            return False
    if isinstance(value, dict):
        if any(key not in value for key in schema.get("required", [])):
            return False
        known = schema.get("properties", {})
        for key, item in value.items():
            if not valid(item, known.get(key, schema.get("additionalProperties", True)), root):
                return False
    if not all(valid(value, part, root) for part in schema.get("allOf", [])):
        return False
    if "anyOf" in schema and not any(valid(value, part, root) for part in schema["anyOf"]):
        return False
    if "not" in schema and valid(value, schema["not"], root):
        return False
    if "if" in schema:
        branch = "then" if valid(value, schema["if"], root) else "else"
        return valid(value, schema.get(branch, True), root)
    return True


def piece_bytes(pieces):
    out = b""
    for piece in pieces:
        one = (bytes.fromhex(piece["hex"]) if "hex" in piece else
               piece["text"].encode() if "text" in piece else bytes([piece["byte"]]))
        out += one * piece.get("count", 1)
    return out


def schema_verdict(data, schema):
    """What a reader with a JSON parser and a validator would say of the bytes; None: no parser gets that far."""
    def no_constant(name):
        raise ValueError(name)
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=no_constant)
    except ValueError:
        return "refuse"
    except RecursionError:
        return None
    return "accept" if valid(value, schema, schema) else "refuse"


def check_schema(tally):
    """Every config case gets the same verdict from the schema as from the page, or says that it cannot."""
    schema = json.loads(read("conformance", "spec", "config.schema.json"))
    folder, seen = os.path.join(ROOT, "goldens"), 0
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json") or name == "MANIFEST.json":
            continue
        golden = json.loads(read("goldens", name))
        if golden.get("suite") != "config":
            continue
        for group in golden["groups"]:
            for case in group["cases"]:
                if "weights" in case or "node" in case or "file" not in case:
                    continue  # about files and weights, not about the object
                seen += 1
                says = schema_verdict(piece_bytes(case["file"]), schema)
                want = case.get("schema_says", case["verdict"])
                if want == "none" or says is None:  # JSON parsers differ before a schema sees anything
                    continue
                tally.test(says == want, f"{name}: {case['id']}: the schema says {says}, the case {want}")
    tally.test(seen > 50, f"only {seen} config cases were given to the schema")


# ---------------------------------------------------------------- catalogue and pages

def anchors(page):
    text = read("conformance", "spec", page)
    return set(re.findall(r'<a id="([^"]+)">', text))


def check_clauses(tally, catalog):
    pages = {p[:-3].replace("kv-block", "kv"): p for p in os.listdir(SPEC) if p.endswith(".md")}
    known = {page: anchors(file) for page, file in pages.items()}
    places = [("catalog.json", t["clause"]) for t in catalog["tests"]]
    for file in sorted(pages.values()):
        places += [(file, c) for c in re.findall(r"`((?:%s)#[\w.\-]+)`" % "|".join(pages),
                                                 read("conformance", "spec", file))]
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", read("conformance", "spec", file)):
            tally.test(os.path.exists(os.path.join(SPEC, link)), f"{file}: no file {link}")
    for where, clause in places:
        page, anchor = clause.split("#")
        if anchor in ("name", "N"):  # a page speaking of its own clauses in general
            continue
        tally.test(anchor in known.get(page, ()), f"{where}: no clause {clause}")


def check_catalog(tally, catalog):
    tests = catalog["tests"]
    names = [t["name"] for t in tests]
    tally.test(len(names) == 24 and len(set(names)) == 24, f"{len(names)} tests in the catalogue, 24 are fixed")
    tally.test([t["number"] for t in tests] == list(range(1, 25)), "the numbers are not 1 to 24")
    ids = [c["id"] for t in tests for c in t["checks"]]
    tally.test(len(ids) == len(set(ids)), "a check id stands twice")
    for test in tests:
        tally.test(all(c["id"].startswith(test["name"] + ".") for c in test["checks"]), f"{test['name']}: check ids")
        tally.test(set(test["rests_on"]) <= set(names[:]) - {test["name"]}, f"{test['name']}: rests_on")


def tables(catalog):
    """The check table of each test, as tests.md has it."""
    for test in catalog["tests"]:
        rows = ["| # | check | | |", "| --- | --- | --- | --- |"]
        for number, check in enumerate(test["checks"], 1):
            strict = "strict" if check["strict"] else ""
            short = check["id"].split(".", 1)[1]
            rows.append(f"| {test['number']}.{number} | `{short}` | {check['what']} | {strict} |")
        yield test, "\n".join(rows)


def check_tests_page(tally, catalog, write):
    path = os.path.join(SPEC, "tests.md")
    text = read("conformance", "spec", "tests.md")
    parts = re.split(r"(?m)^(?=## \d+\. )", text)
    for test, table in tables(catalog):
        section = parts[test["number"]]
        fresh = re.sub(r"(?ms)^\| # \| check \|.*?(?=\n\n|\Z)", lambda _: table.rstrip(), section, count=1)
        if not write:
            tally.test(fresh.rstrip() == section.rstrip() and f"`{test['name']}`" in section,
                       f"tests.md: section {test['number']} is not what the catalogue says (spec.py --write)")
        parts[test["number"]] = fresh
    if write:
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write("".join(parts))
        os.replace(path + ".part", path)


# ---------------------------------------------------------------- terms of refusals

def terms_of_tests():
    """Every name that a test asks of a sentence: the literals of OL_TERMS without their numbers and %-directives."""
    folder, found = os.path.join(ROOT, "conformance", "tests"), set()
    for name in sorted(os.listdir(folder)):
        text = re.sub(r'"\s*\\?\s*"', "", read("conformance", "tests", name))  # literals side by side
        for literal in re.findall(r'OL_TERMS\(\s*"([^"]*)"', text):
            found |= {t for t in literal.split() if "%" not in t and not all(map(is_numeral, t.split("|")))}
    return found


def is_numeral(text):
    return re.fullmatch(r"-?(0x[0-9a-f]+|[0-9.]+(e-?[0-9]+)?)", text) is not None


def check_terms(tally):
    """tests.md lists what is asked of sentences: the last column of the table below tests#terms."""
    clause = read("conformance", "spec", "tests.md").split('<a id="terms">')[1].split("<a id=")[0]
    listed = set()
    for row in re.findall(r"(?m)^\| \d.*$", clause):
        cells = re.split(r"(?<!\\)\|", row)
        listed |= {t.replace("\\|", "|") for t in re.findall(r"`([^`]+)`", cells[4])}
    listed -= {"subject", "kv#envelope", "tl_arch", "tl_tokenizer", "model_type"}  # of a golden; no term
    asked = terms_of_tests()
    tally.test(len(asked) > 30, f"only {len(asked)} terms were found in the tests")
    for term in sorted(asked ^ listed):
        tally.test(False, f"tests#terms: `{term}` is {'asked, and not listed' if term in asked else 'listed, and not asked'}")
    tally.test(asked == listed, "tests#terms: the table is not what the tests ask")


def main():
    catalog = json.loads(read("conformance", "catalog.json"))
    tally = Tally()
    if "--write" in sys.argv[1:]:
        check_tests_page(tally, catalog, True)
    check_catalog(tally, catalog)
    check_clauses(tally, catalog)
    check_tests_page(tally, catalog, False)
    check_schema(tally)
    check_terms(tally)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
