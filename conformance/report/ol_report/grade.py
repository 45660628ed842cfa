"""What a run is worth under a policy (policy.schema.json).

Points go to tests that passed. A group may give its points only as a whole; blocked tests may be
left out of the reckoning. A run that the judge or the staff broke, or that is incomplete, is worth
nothing at all, which is not zero: it has no grade.
"""
import difflib
import fnmatch

from . import schema
from .log import Stop


class Policy:
    """A policy that was held against the schema and the catalogue."""

    def __init__(self, value, catalog, where="policy"):
        self.value, self.where = value, where
        self.weights = self._weights(catalog)
        self.groups = self._groups(catalog)
        self._share()
        if sum(self.weights.values()) <= 0:
            raise Stop(5, f"{where}: no test has points")
        most = value.get("scale", sum(self.weights.values()))
        if value.get("minimum", 0) > most:
            raise Stop(5, f"{where}: minimum is {value['minimum']}, all points are {most:g}")

    @classmethod
    def load(cls, path, catalog):
        return cls(schema.load(path, "policy"), catalog, path)

    def _weights(self, catalog):
        points = dict(self.value.get("points", {}))
        default = points.pop("default", 1)
        for name in points:
            if name not in catalog.tests:
                near = difflib.get_close_matches(name, catalog.tests, 1, 0)
                raise Stop(5, f"{self.where}: points: there is no test {name}; the nearest is "
                           f"{near[0] if near else 'none'}")
        return {name: points.get(name, default) for name in catalog.tests}

    def _groups(self, catalog):
        taken, groups = {}, []
        for number, group in enumerate(self.value.get("groups", [])):
            tests = []
            for pattern in group["tests"]:
                found = fnmatch.filter(catalog.tests, pattern)
                if not found:
                    raise Stop(5, f"{self.where}: groups[{number}]: no test is {pattern}")
                tests += [n for n in found if n not in tests]
            for name in tests:
                if name in taken:
                    raise Stop(5, f"{self.where}: {name} is in two groups, {taken[name]} and "
                               f"{group['title']}")
                taken[name] = group["title"]
            groups.append((group, tests))
        return groups

    def _share(self):
        for group, tests in self.groups:
            if "points" in group:
                whole = sum(self.weights[n] for n in tests)
                if whole <= 0 < group["points"]:
                    raise Stop(5, f"{self.where}: group {group['title']} shares points among tests "
                               "that have none")
                for name in tests:
                    self.weights[name] *= group["points"] / whole if whole else 0

    # -------------------------------------------------------------- use

    def refusal(self, log):
        """Why no grade can come of the log: (exit code, sentence), or None."""
        mode, allowed = log.header["mode"], self.value.get("borrowed", [])
        if not log.complete:
            return 2, "an incomplete selection cannot be graded"
        borrowed = [m.strip() for m in log.borrowed.split(",") if m.strip()]
        foreign = [m for m in borrowed if m not in allowed]
        if foreign:
            return 2, f"the policy does not allow {', '.join(foreign)} from the reference"
        have = mode.get("sandbox", "")
        lacking = [w for w in self.value.get("sandbox", []) if w not in have]
        if lacking:
            return 5, (f"the policy asks for {', '.join(lacking)}, this machine's sandbox is "
                       f"{have}")
        if self.value.get("fresh") and mode.get("fresh_seed") is None:
            return 2, "the policy asks for a run with --fresh"
        if log.is_ours or log.count()["harness-error"]:
            return log.exit_code, "the judge failed, so nothing is graded"
        return None

    def _earned(self, log):
        passed = {n for n in self.weights
                  if n in log.tests and log.tests[n]["class"] == "pass"}
        for group, tests in self.groups:
            if group.get("all_or_nothing") and not passed.issuperset(tests):
                passed -= set(tests)
        return {n: self.weights[n] if n in passed else 0 for n in self.weights}

    def apply(self, log):
        """Write points into the test lines; the grade as the footer keeps it."""
        earned = self._earned(log)
        whole = sum(self.weights.values())
        excluded = [n for n, t in log.tests.items() if t["class"] == "blocked"
                    and self.value.get("blocked") == "excluded"]
        counted = whole - sum(self.weights[n] for n in excluded)
        scale = self.value.get("scale", whole) / whole
        share = sum(earned.values()) / counted if counted > 0 else 0
        visibility = {n: g["visibility"] for g, tests in self.groups for n in tests
                      if "visibility" in g}
        for name, record in log.tests.items():
            record["points"] = round(earned.get(name, 0) * scale, 4)
            record["max_points"] = round(self.weights.get(name, 0) * scale, 4)
            if name in visibility:
                record["visibility"] = visibility[name]
        points = round(share * whole * scale, 4)
        minimum = self.value.get("minimum")
        return {"title": self.value.get("title", ""), "points": points,
                "max_points": round(whole * scale, 4), "minimum": minimum,
                "reached": minimum is None or points >= minimum, "excluded": excluded,
                "groups": [{"title": g["title"], "points": sum(log.tests[n]["points"] for n in ts
                                                               if n in log.tests),
                            "max_points": sum(log.tests[n]["max_points"] for n in ts
                                              if n in log.tests)} for g, ts in self.groups],
                "leaderboard": self.value.get("leaderboard", [])}
