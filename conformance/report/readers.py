"""Readers of every view for the tests, written from the formats' own pages and not from our writers.

Each returns what it read and raises Bad where the text is not what the format allows.
"""
import html.parser
import json
import re
import xml.etree.ElementTree as ET


class Bad(Exception):
    """The text is not of its format."""


def need(holds, words):
    if not holds:
        raise Bad(words)


# ------------------------------------------------------------------ TAP 14


def _unescape(text):
    out, i = [], 0
    while i < len(text):
        if text[i] == "\\":
            need(i + 1 < len(text) and text[i + 1] in "\\#", f"escape of nothing: {text}")
            i += 1
        elif text[i] == "#":
            raise Bad(f"a directive: {text}")
        out.append(text[i])
        i += 1
    return "".join(out)


def tap(text):
    """{"plan": n, "points": [(ok, description, diagnostics)], "bail": text or None}. Refused: another
    version, a plan that is missing, late or not met, ids that repeat or skip, directives, a YAML
    block that is not closed or follows nothing."""
    lines = text.split("\n")
    need(lines[-1] == "" and lines[0] == "TAP version 14", "no version line, or no end of line")
    plan, points, bail, block = None, [], None, None
    for line in lines[1:-1]:
        need(bail is None, f"after Bail out: {line}")
        if block is not None:
            if line == "  ...":
                points[-1] = (*points[-1][:2], block)
                block = None
                continue
            match = re.fullmatch(r"  ([a-z_]+): (.+)", line)
            need(match, f"no pair of the YAML block: {line}")
            need(match[1] not in block, f"key twice: {match[1]}")
            block[match[1]] = json.loads(match[2])
        elif line == "  ---":
            need(points and points[-1][2] is None, "a YAML block without a test point")
            block = {}
        elif re.fullmatch(r"1\.\.\d+", line):
            need(plan is None and not points, "a second plan, or a late one")
            plan = int(line[3:])
        elif line.startswith("Bail out!"):
            bail = line[9:].strip()
        elif line.startswith("#"):
            continue
        else:
            match = re.fullmatch(r"(ok|not ok) (\d+) - (.+)", line)
            need(match, f"neither test point nor comment: {line!r}")
            need(int(match[2]) == len(points) + 1, f"id {match[2]} in place {len(points) + 1}")
            points.append((match[1] == "ok", _unescape(match[3]), None))
    need(block is None, "a YAML block is not closed")
    need(plan is not None, "no plan")
    need(bail is not None or plan == len(points), f"plan {plan}, {len(points)} points")
    return {"plan": plan, "points": points, "bail": bail}


# ------------------------------------------------------------------ JUnit


def junit(data):
    """Cases as (name, tag of the fault or None, its type); the counts must be those of the elements."""
    root = ET.fromstring(data)
    need(root.tag == "testsuites", root.tag)
    cases = []

    def counts(element):
        mine = element.findall(".//testcase")
        faults = [c.find(t) for c in mine for t in ("failure", "error") if c.find(t) is not None]
        need(int(element.get("tests")) == len(mine), "tests")
        need(int(element.get("failures")) == sum(f.tag == "failure" for f in faults), "failures")
        need(int(element.get("errors")) == sum(f.tag == "error" for f in faults), "errors")
        need(element.get("skipped") == "0" and not element.findall(".//skipped"), "skipped")
        float(element.get("time"))

    counts(root)
    for suite in root:
        need(suite.tag == "testsuite" and suite.get("name"), "no suite")
        counts(suite)
        need(suite.find("properties") is not None, "no properties")
        for case in suite.findall("testcase"):
            need(case.get("name") and case.get("classname"), "a case without a name")
            fault = [c for c in case if c.tag in ("failure", "error")]
            need(len(fault) <= 1, "two faults")
            if fault:
                need(fault[0].get("type") and fault[0].get("message"), "no type or message")
                need("\n" not in fault[0].get("message"), "a message of two lines")
            cases.append((case.get("name"), fault[0].tag if fault else None,
                          fault[0].get("type") if fault else None))
    return cases


# ------------------------------------------------------------------ JSON by field tables

NUMBER, TEXT = (int, float), str


def fields(value, table, where):
    """Hold an object against {field: (types, is needed)}; nothing else may be there."""
    need(isinstance(value, dict), f"{where} is no object")
    for key in value:
        need(key in table, f"{where}.{key} is no field")
    for key, (types, needed) in table.items():
        need(key in value or not needed, f"{where}.{key} is missing")
        if key in value:
            good = isinstance(value[key], types) and not (isinstance(value[key], bool)
                                                           and types is NUMBER)
            need(good, f"{where}.{key} is {value[key]!r}")


VISIBILITIES = ("hidden", "after_due_date", "after_published", "visible")
FORMATS = ("text", "html", "simple_format", "md", "ansi")
GRADESCOPE = {"score": (NUMBER, False), "execution_time": (NUMBER, False), "output": (TEXT, False),
              "output_format": (TEXT, False), "test_output_format": (TEXT, False),
              "test_name_format": (TEXT, False), "visibility": (TEXT, False),
              "stdout_visibility": (TEXT, False), "extra_data": (dict, False),
              "tests": (list, False), "leaderboard": (list, False)}
GRADESCOPE_TEST = {"score": (NUMBER, True), "max_score": (NUMBER, True), "status": (TEXT, True),
                   "name": (TEXT, True), "name_format": (TEXT, True), "number": (TEXT, True),
                   "output": (TEXT, True), "output_format": (TEXT, True), "tags": (list, True),
                   "visibility": (TEXT, False), "extra_data": (dict, True)}


def gradescope(text):
    value = json.loads(text)
    fields(value, GRADESCOPE, "results")
    need("tests" in value or "output" in value, "neither tests nor output")
    need(value.get("stdout_visibility") == "hidden", "the engine's output is shown")
    need(value.get("visibility", "visible") in VISIBILITIES, "visibility")
    for test in value.get("tests", []):
        fields(test, GRADESCOPE_TEST, test.get("name", "a test"))
        need(test["status"] in ("passed", "failed"), test["status"])
        need(test["output_format"] == "text" and test["name_format"] == "text", "no inert text")
        need(0 <= test["score"] <= test["max_score"], f"{test['score']} of {test['max_score']}")
        need(test.get("visibility", "visible") in VISIBILITIES, "visibility of a test")
        need(len(test["output"].encode()) <= 16 << 10, "an output of more than 16 KiB")
        need(all(isinstance(t, str) for t in test["tags"]), "tags")
    for row in value.get("leaderboard", []):
        fields(row, {"name": (TEXT, True), "value": ((int, float, str), True),
                     "order": (TEXT, False)}, "leaderboard")
        need(row.get("order", "asc") in ("asc", "desc"), "order")
    return value


EXERCISM_TEST = {"name": (TEXT, True), "status": (TEXT, True), "test_code": (TEXT, True),
                 "message": ((str, type(None)), False), "output": (TEXT, False),
                 "task_id": (int, False)}


def exercism(text):
    value = json.loads(text)
    fields(value, {"version": (int, True), "status": (TEXT, True),
                   "message": ((str, type(None)), True), "tests": (list, True)}, "results")
    need(value["version"] == 3 and value["status"] in ("pass", "fail", "error"), "version, status")
    need((value["status"] == "error") == (value["message"] is not None), "message and status")
    need(value["status"] == "error" or value["tests"], "no tests")
    need(len((value["message"] or "").encode()) <= 65535, "a message of more than 65535 bytes")
    for test in value["tests"]:
        fields(test, EXERCISM_TEST, test.get("name", "a test"))
        need(test["status"] in ("pass", "fail", "error"), test["status"])
        need(len(test.get("output", "")) <= 500, "an output of more than 500 characters")
        need(test["status"] == "pass" or test["message"], "a failure without a message")
        need(1 <= test["task_id"] <= 6, "task_id")
    if value["status"] != "error":
        good = all(t["status"] == "pass" for t in value["tests"])
        need((value["status"] == "pass") == good, "the status is not that of the tests")
    return value


PRAIRIELEARN_TEST = {"name": (TEXT, True), "description": (TEXT, False), "points": (NUMBER, True),
                     "max_points": (NUMBER, True), "message": (TEXT, False),
                     "output": (TEXT, False)}


def prairielearn(text):
    need(len(text.encode()) <= 1 << 20, "more than 1 MB")
    value = json.loads(text)
    fields(value, {"gradable": (bool, True), "score": (NUMBER, True), "message": (TEXT, True),
                   "output": (TEXT, False), "tests": (list, True)}, "results")
    need(0 <= value["score"] <= 1, f"score {value['score']}")
    for test in value["tests"]:
        fields(test, PRAIRIELEARN_TEST, test.get("name", "a test"))
        need(0 <= test["points"] <= test["max_points"], "points")
    return value


# ------------------------------------------------------------------ GitHub


def github(text):
    """Commands as (kind, properties, message)."""
    need(text.endswith("\n"), "no end of line")

    def plain(word):
        for coded, raw in (("%0A", "\n"), ("%0D", "\r"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            word = word.replace(coded, raw)
        return word
    found = []
    for line in text[:-1].split("\n"):
        match = re.fullmatch(r"::(error|warning|notice)(?: ([^:]*))?::(.+)", line)
        need(match, f"no command: {line!r}")
        properties = {}
        for pair in (match[2] or "").split(",") if match[2] else []:
            key, sign, value = pair.partition("=")
            need(sign and key in ("file", "line", "endLine", "col", "title"), f"property {pair}")
            properties[key] = plain(value)
        found.append((match[1], properties, plain(match[3])))
    for kind in ("error", "warning", "notice"):
        need(sum(f[0] == kind for f in found) <= 10, f"more than ten of {kind}")
    return found


# ------------------------------------------------------------------ Markdown


def markdown(text):
    """(text outside of code, rows of tables, code blocks). Fences are read as CommonMark does."""
    need(len(text.encode()) <= 1 << 20, "more than 1 MiB")
    outside, blocks, fence = [], [], None
    for line in text.split("\n"):
        match = re.match(r" {0,3}(`{3,})([^`]*)$", line)
        if fence is None and match:
            fence = len(match[1])
            blocks.append([])
        elif fence is not None and match and len(match[1]) >= fence and not match[2].strip():
            fence = None
        elif fence is not None:
            blocks[-1].append(line)
        else:
            outside.append(line)
    need(fence is None, "a code block is not closed")
    rows = []
    for line in outside:
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)
            need(cells[0] == "" and cells[-1].strip() == "", f"no row: {line}")
            rows.append([c.strip() for c in cells[1:-1]])
    need(len({len(r) for r in rows}) <= 1, "rows of several widths")
    return "\n".join(outside), rows, ["\n".join(b) for b in blocks]


# ------------------------------------------------------------------ HTML

VOID = {"meta", "br", "wbr", "line", "rect", "path", "link", "img", "input", "hr"}
INERT = {"html", "head", "meta", "title", "style", "body", "main", "div", "h1", "h2", "h3", "p",
         "pre", "code", "span", "b", "i", "strong", "a", "table", "thead", "tbody", "tr", "th", "td",
         "section", "dl", "dt", "dd", "ul", "li", "details", "summary", "figure", "figcaption",
         "svg", "line", "rect", "path", "text", "br", "wbr"}


class Page(html.parser.HTMLParser):
    """Collects what the tests ask about, and refuses what a page of ours never has."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.ids, self.links, self.tags, self.words = [], [], [], [], []
        self.headings, self.sections = [], []
        self.feed(text)
        self.close()
        need(not self.stack, f"not closed: {self.stack}")
        need(len(set(self.ids)) == len(self.ids), "an id stands twice")
        for link in self.links:
            need(link[1:] in self.ids, f"{link} leads nowhere")

    def handle_starttag(self, tag, attrs):
        need(tag in INERT, f"the page has a {tag}")
        self.tags.append(tag)
        for key, value in attrs:
            need(not key.startswith("on"), f"{key} of {tag}")
            need(key not in ("src", "srcset", "data", "action", "srcdoc"), f"{key} of {tag}")
            if key == "href":
                need(value.startswith("#"), f"a link to {value}")
                self.links.append(value)
            if key == "id":
                self.ids.append(value)
                if tag == "section":
                    self.sections.append(value)
            if key == "style":
                need(re.fullmatch(r"width:[\d.]+rem", value), f"style {value}")
        if tag not in VOID:
            self.stack.append(tag)
        if tag in ("h1", "h2"):
            self.headings.append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag):
        need(tag not in VOID and self.stack and self.stack[-1] == tag,
             f"</{tag}> closes {self.stack[-1:]}")
        self.stack.pop()

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "style":
            need("url(" not in data and "@import" not in data, "the style sheet loads something")
            return
        self.words.append(data)
        if any(t in ("h1", "h2") for t in self.stack):
            self.headings[-1] += data
