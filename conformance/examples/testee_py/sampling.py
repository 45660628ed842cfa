"""spec/sampling.md: from logits to one token, in Python's floats, which are binary64.

Python never fuses or regroups; `math.exp` and `math.log` are the C library's. Sums are loops:
`sum()` of newer Pythons compensates, and numpy's adds in halves.
"""
import math
from bisect import bisect_right

import numpy as np

from .refusal import need

INF = math.inf


def ordered_sum(values):
    total = 0.0
    for value in values:
        total += value
    return total


def check_params(p):
    """sampling#refusal: checked in greedy mode too, also what greedy mode does not use."""
    t = p["temperature"]
    need(t == 0 or (math.isfinite(t) and t >= 1e-5), "INVALID",
         f"temperature is {t!r}, it must be 0 or finite and at least 1e-5")
    for name in "top_p", "min_p":
        need(0 <= p[name] <= 1, "INVALID", f"{name} is {p[name]!r}, it must be from 0 to 1")
    r = p["repetition_penalty"]
    need(math.isfinite(r) and r > 0, "INVALID",
         f"repetition_penalty is {r!r}, it must be finite and above 0")
    for name in "presence_penalty", "frequency_penalty":
        need(math.isfinite(p[name]), "INVALID", f"{name} is {p[name]!r}, it must be finite")


def check_inputs(logits, prompt, output):
    need(len(logits) > 0, "INVALID", "there are no logits, at least one is needed")
    wrong = np.flatnonzero(np.isnan(logits) | (logits == INF))
    need(len(wrong) == 0, "INVALID",
         "logits hold NaN or +inf, first at id %d" % (wrong[0] if len(wrong) else 0))
    need(np.isfinite(logits).any(), "INVALID", "no logit is finite, at least one must be")
    for name, ids in (("prompt", prompt), ("output", output)):
        for place, token in enumerate(ids):
            need(token < len(logits), "INVALID",
                 f"{name}[{place}] is {token}, the vocabulary has {len(logits)} ids")


def penalise(l, p, prompt, output):
    """Steps 2 and 3, in place."""
    r = p["repetition_penalty"]
    for i in set(prompt) | set(output):
        l[i] = l[i] / r if l[i] > 0 else l[i] * r
    counts = {}
    for i in output:
        counts[i] = counts.get(i, 0) + 1
    for i, c in counts.items():
        l[i] = l[i] - (p["frequency_penalty"] * c + p["presence_penalty"])
    need(not any(v != v or v == INF for v in l), "INVALID",
         "the penalties turn a logit into NaN or +inf")
    need(any(v > -INF for v in l), "INVALID", "the penalties leave no finite logit")


def keep_top_p(order, q, p):
    """sampling#8: up to and including the id that reaches p; p = 1 is no walk at all."""
    if p == 1:
        return order
    c = 0.0
    for place, i in enumerate(order):
        c = c + q[i]
        if c >= p:
            return order[:place + 1]
    return order


class Distribution:
    """Everything before the draw: the same for any number of draws from the same inputs."""

    def __init__(self, logits, params, prompt, output):
        check_params(params)
        prompt, output = prompt.tolist(), output.tolist()
        check_inputs(logits, prompt, output)
        l = logits.astype(np.float64).tolist()
        penalise(l, params, prompt, output)
        self.l = l
        self.peak = max(l)
        self.log_z = math.log(ordered_sum(math.exp(v - self.peak) for v in l))
        self.greedy = l.index(self.peak) if params["temperature"] == 0 else None
        if self.greedy is None:
            self.filter(params)

    def filter(self, params):
        """Steps 6 to 10: the ids that are left in ascending order, and where their sums stand."""
        t = [v / params["temperature"] for v in self.l]
        need(all(math.isfinite(a) or not math.isfinite(b) for a, b in zip(t, self.l)), "INVALID",
             "the temperature %r sends a finite logit to infinity" % params["temperature"])
        order = np.argsort(-np.array(t), kind="stable").tolist()
        if 0 < params["top_k"] < len(order):
            order = order[:params["top_k"]]
        peak = t[order[0]]
        e = {i: math.exp(t[i] - peak) for i in order}
        z = ordered_sum(e[i] for i in sorted(order))
        q = {i: e[i] / z for i in order}
        order = keep_top_p(order, q, params["top_p"])
        if params["min_p"] != 0:
            least = params["min_p"] * max(q[i] for i in order)
            order = [i for i in order if q[i] >= least]
        self.ids = sorted(order)
        z = ordered_sum(e[i] for i in self.ids)
        p = [e[i] / z for i in self.ids]
        self.sums = []
        c = 0.0
        for v in p:
            c = c + v
            self.sums.append(c)
        self.last = max(place for place, v in enumerate(p) if v > 0)

    def draw(self, rng):
        """sampling#11: the first id with u < c. The sums never fall, so a bisection finds it."""
        if self.greedy is not None:
            return self.greedy
        place = bisect_right(self.sums, rng.uniform())
        return self.ids[place if place < len(self.ids) else self.last]

    def logprob(self, i):
        return (self.l[i] - self.peak) - self.log_z
