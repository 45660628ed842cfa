"""sampler.golden.json and libm.probe.json: conformance/spec/sampling.md in plain Python loops.

sample() follows the page step by step with math.exp, math.log and left-to-right sums, and shares
nothing with the C code.  The bits of exp and log are those of the host's libm, so everything is
computed a second time in a process whose glibc has FMA masked; a case with any difference is drawn
again.  sample() can also make the mistakes that the goldens hunt (BUGS): every one of them must
change at least one step, or the file is not written.
"""

import json
import math
import os
import random
import subprocess
import sys

import rng as pcg
import vectors as v

PURPOSE_SAMPLE = 4
ATTEMPTS = 200
NO_FMA = "glibc.cpu.hwcaps=-FMA"
# First uniform of stream(seed, 4); found by inverting the seeding over all states, checked below.
SEED_U_ZERO = 0x633945CBF17FE634
SEED_U_LAST = 0x9EB7F06E63C47B81
INF = math.inf

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0,
       "presence_penalty": 0.0, "frequency_penalty": 0.0}

BUGS = {
    "s03": "logprob taken after temperature",
    "s04": "> instead of >= in the nucleus walk",
    "s05": "the distribution walked in probability order",
    "s06": "presence and frequency over the prompt too",
    "s07": "negative logits divided by the repetition penalty",
    "order-of-penalties": "presence and frequency before repetition",
    "repetition-per-occurrence": "repetition once for each occurrence",
    "presence-per-occurrence": "presence counted like frequency",
    "ties-by-high-id": "ties go to the higher id",
    "order-by-logit": "top-k by l instead of t",
    "f32-sum": "nucleus summed in f32",
    "pairwise-sum": "nucleus summed pairwise",
    "no-draw-when-one": "no draw when one id is left",
    "exclusive-nucleus": "the crossing id is dropped",
    "top-p-of-all": "top-p over all ids instead of those that top-k kept",
    "min-p-strict": "> instead of >= in min-p",
    "past-the-end": "when rounding leaves no id, the vocabulary size",
    "last-of-all": "when rounding leaves no id, the last kept one though its p is 0",
    "masked-at-zero": "u <= c: a masked first id wins at u = 0",
    "logprob-f32": "logprob rounded to f32",
    "logprob-of-kept": "logprob over the ids that the filters kept",
    "z-descending": "Z summed in descending order of logits",
    "greedy-raw": "greedy over the logits before penalties",
    "k-all-on-zero": "top-k 0 keeps one id",
    "output-window": "penalties count the last 64 ids of the output",
    "prompt-window": "the repetition penalty sees the last 64 ids of the prompt",
    "coarse-order": "ids thrown into buckets by t and not sorted inside",
}


def penalised(x, par, prompt, output, bug):
    l = [float(a) for a in x]
    output = output[-64:] if bug == "output-window" else output
    prompt = prompt[-64:] if bug == "prompt-window" else prompt
    counted = prompt + output if bug == "s06" else output

    def repetition():
        seen = prompt + output if bug == "repetition-per-occurrence" else set(prompt + output)
        r = par["repetition_penalty"]
        for i in seen:
            l[i] = l[i] / r if l[i] > 0 or bug == "s07" else l[i] * r

    def presence_and_frequency():
        for i in set(counted):
            c = counted.count(i)
            a_p = par["presence_penalty"] * (c if bug == "presence-per-occurrence" else 1)
            l[i] = l[i] - (par["frequency_penalty"] * c + a_p)

    stages = [repetition, presence_and_frequency]
    for stage in reversed(stages) if bug == "order-of-penalties" else stages:
        stage()
    return l


def left_sum(values):
    total = 0.0
    for value in values:
        total = total + value
    return total


def nucleus(order, q, p, bug):
    """The ids up to and including the first whose running sum reaches p."""
    kept = []
    c = 0.0
    for position, i in enumerate(order):
        if bug == "f32-sum":
            c = v.round_f32(c + v.round_f32(q[i]))
        elif bug == "pairwise-sum":
            c = pairwise([q[j] for j in order[:position + 1]])
        else:
            c = c + q[i]
        reached = c > p if bug == "s04" else c >= p
        if reached and bug == "exclusive-nucleus" and kept:
            return kept
        kept.append(i)
        if reached:
            return kept
    return kept


def pairwise(values):
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return pairwise(values[:half]) + pairwise(values[half:])


def filtered(l, t, par, bug):
    """Steps 7 to 9: the kept ids in the order (t descending, id ascending)."""
    n = len(t)
    if bug == "ties-by-high-id":
        order = sorted(range(n), key=lambda i: (-t[i], -i))
    elif bug == "order-by-logit":
        order = sorted(range(n), key=lambda i: (-l[i], i))
    elif bug == "coarse-order":
        order = sorted(range(n), key=lambda i: (-round(max(t[i], -1e6) * 64.0), i))
    else:
        order = sorted(range(n), key=lambda i: (-t[i], i))
    k = par["top_k"]
    if bug == "k-all-on-zero" and k == 0:
        k = 1
    kept = order[:k] if 0 < k < n else order
    top = max(t)
    base = range(n) if bug == "top-p-of-all" else sorted(kept)
    z = left_sum(math.exp(t[i] - top) for i in base)
    q = {i: math.exp(t[i] - top) / z for i in base}
    if par["top_p"] < 1.0:
        kept = nucleus(kept, q, par["top_p"], bug)
    if par["min_p"] > 0.0:
        edge = par["min_p"] * max(q[i] for i in kept)
        if bug == "min-p-strict":
            kept = [i for i in kept if q[i] > edge] or kept[:1]
        else:
            kept = [i for i in kept if q[i] >= edge]
    return kept, top


def walk(kept, prob, u, n_vocab, bug):
    c = 0.0
    for i in kept if bug == "s05" else sorted(kept):
        c = c + prob[i]
        if u < c or bug == "masked-at-zero" and u <= c:
            return i
    if bug == "past-the-end":
        return n_vocab
    if bug == "last-of-all":
        return max(kept)
    return max(i for i in kept if prob[i] > 0)


def sample(x, par, prompt, output, generator, bug=None):
    """One token: its id, its logprob and the uniform that was drawn (None when greedy)."""
    l = penalised(x, par, prompt, output, bug)
    temperature = par["temperature"]
    top = max(l)
    assert math.isfinite(top) and not any(a != a for a in l)
    terms = [math.exp(a - top) for a in l]
    log_z = math.log(left_sum(sorted(terms, reverse=True) if bug == "z-descending" else terms))

    def logprob(i):
        if bug == "s03" and temperature > 0.0:
            hot = [a / temperature for a in l]
            return (hot[i] - max(hot)) - math.log(left_sum(math.exp(a - max(hot)) for a in hot))
        value = (l[i] - top) - log_z
        return v.round_f32(value) if bug == "logprob-f32" else value

    if temperature == 0.0:
        scores = [float(a) for a in x] if bug == "greedy-raw" else l
        best = scores.index(max(scores))
        if bug == "ties-by-high-id":
            best = max(i for i, a in enumerate(scores) if a == max(scores))
        return best, logprob(best), None
    t = [a / temperature for a in l]
    kept, top_t = filtered(l, t, par, bug)
    if bug == "no-draw-when-one" and len(kept) == 1:
        return kept[0], logprob(kept[0]), None
    z = left_sum(math.exp(t[i] - top_t) for i in sorted(kept))
    prob = {i: math.exp(t[i] - top_t) / z for i in kept}
    u = generator.uniform_f64()
    chosen = walk(kept, prob, u, len(l), bug)
    if bug == "logprob-of-kept":
        log_z = math.log(z)     # logprob() looks log_z up when it is called
    return chosen, logprob(chosen) if chosen < len(l) else 0.0, u


# ------------------------------------------------------------------------------ the cases

class Case:
    """One case before its expected values: steps are logits, or the number of an earlier step."""

    def __init__(self, name, comment, flags, prompt, steps, seed=None, require=None, **params):
        self.name, self.comment, self.flags = name, comment, flags
        self.params = {**OFF, **params}
        self.prompt, self.steps, self.seed, self.require = prompt, steps, seed, require

    def logits(self, number):
        step = self.steps[number]
        return self.steps[step] if isinstance(step, int) else step

    def run(self, seed, bug=None):
        generator = pcg.stream(seed, PURPOSE_SAMPLE)
        output, results = [], []
        for number in range(len(self.steps)):
            chosen, logprob, u = sample(self.logits(number), self.params, self.prompt, output,
                                        generator, bug)
            results.append((chosen, v.f64hex(logprob), u))
            if chosen >= len(self.logits(number)):
                break
            output.append(chosen)
        return results


def f32(value):
    return v.round_f32(value)


def drawn(rng, n, scale=3.0):
    return [f32(rng.gauss(0.0, scale)) for _ in range(n)]


def fresh(rng, n, steps=12, scale=3.0):
    return [drawn(rng, n, scale) for _ in range(steps)]


def repeated(logits, steps=12):
    return [logits] + [0] * (steps - 1)


def sees(*ids):
    return lambda results: set(ids) <= {r[0] for r in results}


def basic_cases(rng):
    ties = [f32(a) for a in (2.5, 0.5, 2.5, -1.0, 2.5, 0.5, -0.0, 0.0)]
    zeros = [-3.0, -0.0, 0.0, -1.0]
    return [
        Case("plain", "everything off, T = 1", ["cdf-order"], [3, 1, 4], fresh(rng, 16)),
        Case("greedy", "T = 0: the largest logit, no draw", ["greedy"], [0, 1],
             fresh(rng, 16, 9) + [ties + [-0.0] * 8, 9, 9], temperature=0.0),
        Case("greedy-signed-zero", "T = 0 where -0 and +0 tie: id 1", ["greedy", "ties"], [],
             repeated(zeros), temperature=0.0),
        Case("greedy-penalised", "T = 0 after penalties, ties moved by them",
             ["greedy", "presence-frequency"], [2], repeated(ties), temperature=0.0,
             repetition_penalty=1.25, presence_penalty=0.5, frequency_penalty=0.25),
        Case("temperature", "T alone", ["logprob-before-temperature"], [], fresh(rng, 24),
             temperature=0.7),
        Case("temperature-lowest", "T = 1e-5, the smallest allowed", ["temperature-edge"], [],
             fresh(rng, 12), temperature=1e-5),
        Case("temperature-high", "T = 1e6: nearly uniform", ["temperature-edge"], [],
             fresh(rng, 12), temperature=1e6),
        Case("top-k", "top-k alone", ["top-k"], [], fresh(rng, 20), top_k=5),
        Case("top-k-one", "k = 1 still takes its draw", ["one-draw"], [],
             fresh(rng, 20, 11) + [ties[:5] + [2.5] * 15], top_k=1),
        Case("top-k-above", "k >= V is off", ["top-k"], [], fresh(rng, 9), top_k=9),
        Case("top-k-huge", "k far above V", ["top-k"], [], fresh(rng, 9), top_k=1 << 31),
        Case("top-p", "top-p alone", ["nucleus-sum"], [], fresh(rng, 20), top_p=0.9),
        Case("top-p-zero", "p = 0 keeps the first id, and draws", ["nucleus-edge", "one-draw"],
             [], fresh(rng, 20, 11) + [ties + [0.0] * 12], top_p=0.0),
        Case("min-p", "min-p alone", ["min-p"], [], fresh(rng, 20), min_p=0.1),
        Case("min-p-one", "m = 1 keeps all that tie with the best", ["min-p", "ties"], [],
             repeated(ties), min_p=1.0, require=sees(0, 2, 4)),
        Case("repetition", "r alone, above 1, positive and negative logits",
             ["repetition-sign", "repetition-once"], [0, 1, 2, 3, 4, 5, 5, 5, 5, 5],
             fresh(rng, 12), repetition_penalty=1.3),
        Case("repetition-below", "r below 1 favours what was seen", ["repetition-sign"],
             [1, 3, 5, 7], fresh(rng, 12), repetition_penalty=0.8),
        Case("presence", "presence alone: once for each id, output only", ["presence-frequency"],
             [0, 0, 1, 2], repeated(drawn(rng, 6, 0.5)), presence_penalty=1.5),
        Case("frequency", "frequency alone: by count, output only", ["presence-frequency"],
             [0, 0, 1, 2], repeated(drawn(rng, 6, 0.5)), frequency_penalty=0.7),
        Case("presence-negative", "negative penalties reward", ["presence-frequency"], [1],
             fresh(rng, 10), presence_penalty=-0.9, frequency_penalty=-0.4),
    ]


def joint_cases(rng):
    big = drawn(rng, 49152, 2.0)
    masked = drawn(rng, 14)
    for i in (0, 3, 7, 13):
        masked[i] = -INF
    cases = [
        Case(f"all-{number}", "all seven parameters at once", ["penalty-order", "top-p-after-k"],
             [rng.randrange(32) for _ in range(8)], fresh(rng, 32), temperature=t, top_k=k,
             top_p=p, min_p=m, repetition_penalty=r, presence_penalty=a, frequency_penalty=f)
        for number, (t, k, p, m, r, a, f) in enumerate((
            (0.8, 12, 0.95, 0.02, 1.1, 0.3, 0.2), (1.3, 20, 0.9, 0.05, 0.9, -0.2, 0.4),
            (2.0, 7, 0.7, 0.01, 1.4, 0.0, -0.1), (0.6, 31, 0.99, 0.001, 1.05, 0.6, 0.6)))]
    return cases + [
        Case("top-k-then-p", "the mass of top-p is that of the ids that top-k kept",
             ["top-p-after-k"], [], repeated(drawn(rng, 40, 0.6)), top_k=8, top_p=0.6),
        Case("masked", "-inf logits are never chosen; the first and the last id among them",
             ["masked"], [0, 3, 5], repeated(masked), temperature=0.9, repetition_penalty=1.2),
        Case("masked-all-but-one", "one finite logit", ["masked", "one-draw"], [],
             repeated([-INF, -INF, 1.5, -INF])),
        Case("vocab-one", "a vocabulary of 1", ["one-draw"], [], repeated([-7.25]), top_p=0.3,
             top_k=3),
        Case("vocab-two", "a vocabulary of 2", ["cdf-order"], [], fresh(rng, 2, scale=1.0)),
        Case("vocab-49152", "a vocabulary of 49,152, filtered", ["z-order"],
             [rng.randrange(49152) for _ in range(20)], repeated(big), temperature=0.9,
             top_k=40, top_p=0.95, repetition_penalty=1.1),
        Case("flat-300", "300 ids with nearly the same logit: the sums are long", ["nucleus-sum"],
             [], repeated([f32(rng.uniform(-0.01, 0.01)) for _ in range(300)]), top_p=0.75),
        Case("extreme-range", "logits from -1e30 to 80: most terms are 0", ["last-positive"], [],
             [[f32(rng.choice((-1e30, -900.0, -700.0, 0.0, 79.5, 80.0))) for _ in range(12)]
              for _ in range(12)], temperature=1.5),
    ]


def worked_cases():
    ten = [1.0] * 10
    worked = [1.0, 3.0, 2.0, 3.0, -1.0]
    return [
        Case("worked-example", "the page's worked example: id 3 first", ["nucleus-edge"], [],
             repeated(worked), seed=0, top_k=3, top_p=0.8),
        Case("ten-equal-p-0.8", "ten equal logits, p = 0.8: nine are kept", ["nucleus-sum"], [],
             repeated(ten), top_p=0.8, require=sees(8)),
        Case("ten-equal-p-1", "ten equal logits, p = 1: ten are kept", ["nucleus-sum"], [],
             repeated(ten), require=sees(9)),
        Case("quarters-p-half", "four equal logits, p = 0.5: two are kept", ["nucleus-edge"], [],
             repeated([2.0] * 4), top_p=0.5, require=sees(0, 1)),
        Case("quarters-p-three", "four equal logits, p = 0.75: three", ["nucleus-edge"], [],
             repeated([-1.5] * 4), top_p=0.75, require=sees(0, 1, 2)),
        Case("halves-p-half", "two equal logits, p = 0.5: one, and a draw",
             ["nucleus-edge", "one-draw"], [], [[0.5, 0.5]] + [0] * 7 + [[0.25, 0.75]] + [8] * 3,
             top_p=0.5),
        Case("top-k-ties", "[1, 2, 2, 2, 3], k = 3: ids 4, 1, 2", ["ties"], [],
             repeated([1.0, 2.0, 2.0, 2.0, 3.0]), top_k=3, require=sees(4, 1, 2)),
        Case("u-last", "ten equal logits and u = 1 - 2^-53: id 9", ["last-positive"], [],
             repeated(ten), seed=SEED_U_LAST),
        Case("u-last-then-zero-mass", "the same, followed by an id whose p is 0: id 9",
             ["last-positive"], [], repeated(ten + [-1000.0]), seed=SEED_U_LAST),
        Case("u-last-then-masked", "the same, followed by a masked id: id 9",
             ["last-positive", "masked"], [], repeated(ten + [-INF]), seed=SEED_U_LAST),
        Case("u-zero-masked", "the first id masked and u = 0: id 1", ["masked"], [],
             repeated([-INF, 0.5, 0.25, 1.0]), seed=SEED_U_ZERO),
        Case("u-zero-no-mass", "the first id with p = 0 and u = 0: id 1", ["last-positive"], [],
             repeated([-1000.0, 0.5, 0.25, 1.0]), seed=SEED_U_ZERO),
        Case("penalty-order", "logit 1, r = 2, a_p = 2, once in the output: -1.5",
             ["penalty-order"], [], [[9.0, -INF, -INF]] + [[1.0, -1.5, 0.5]] + [1] * 10,
             temperature=0.5, repetition_penalty=2.0, presence_penalty=2.0),
        Case("prompt-five-times", "five times in the prompt, never in the output: repetition once",
             ["repetition-once", "presence-frequency"], [0, 0, 0, 0, 0],
             repeated([2.0, 1.0, 0.5, -INF]), repetition_penalty=2.0, presence_penalty=0.5,
             frequency_penalty=0.5),
        shared_t_case(),
    ] + [Case(f"logprob-T-{name}", "the logprob is the same for any T, k, p and m",
              ["logprob-before-temperature"], [2],
              repeated([f32(a) for a in (0.3, 1.7, -0.4, 2.2, 0.9, -2.0)]), temperature=t,
              top_k=k, top_p=p, min_p=m, seed=20)
         for name, t, k, p, m in (("0.1", 0.1, 0, 1.0, 0.0), ("1", 1.0, 4, 0.9, 0.0),
                                  ("5", 5.0, 5, 0.97, 0.01))]


def shared_t_case():
    """Two l one ulp apart that share a t: the order is by t, so the lower id is first."""
    nudge, t = 2.0 ** -52, 3.0
    high = next(1.5 + n / 1024 for n in range(512)
                if (1.5 + n / 1024 - nudge) / t == (1.5 + n / 1024) / t)
    assert high - nudge < high
    return Case("shared-t", f"l[0] = {high} - 2^-52 and l[1] = {high} give one t at T = 3: id 0",
                ["ties"], [], [[9.0, -INF, -INF]] + [[high, high, 0.0]] + [1] * 10,
                temperature=t, top_k=1, presence_penalty=nudge)


def min_p_edge_case(rng):
    """m such that m * max q equals the q of an id to the bit: >= keeps it."""
    for _ in range(100000):
        x = drawn(rng, 5, 0.7)
        z = left_sum(math.exp(a - max(x)) for a in x)
        q = [math.exp(a - max(x)) / z for a in x]
        i = q.index(sorted(q)[-3])
        m = q[i] / max(q)
        if m * max(q) == q[i]:
            return Case("min-p-edge", f"m x max q equals the q of id {i} to the bit: it is kept",
                        ["min-p"], [], repeated(x), min_p=m, require=sees(i))
    raise SystemExit("no exact min-p edge was found")


def nucleus_edge_case(rng):
    """p equal to a running sum to the bit: >= stops there, > goes on."""
    x = drawn(rng, 8, 0.6)
    z = left_sum(math.exp(a - max(x)) for a in x)
    q = [math.exp(a - max(x)) / z for a in x]
    order = sorted(range(8), key=lambda i: (-x[i], i))
    p = left_sum(q[i] for i in order[:4])
    return Case("top-p-edge", "p is the running sum of four ids to the bit: four are kept",
                ["nucleus-edge"], [], repeated(x), top_p=p, require=sees(order[3]))


def close_cases(rng):
    """A hundred ids whose logits differ by 2^-17 each, in no order, among 300 that spread over 20."""
    x = [f32(rng.uniform(-20.0, 0.0)) for _ in range(400)]
    near = [8.0 + n / 131072 for n in range(100)]
    rng.shuffle(near)
    for place, value in zip(rng.sample(range(400), 100), near):
        x[place] = value
    best = [x.index(8.0 + n / 131072) for n in (99, 98, 97)]
    return [Case(f"close-{name}", f"a hundred logits close together, {name}: what is kept hangs on "
                 "their order", ["close-logits"], [], repeated(x), **params)
            for name, params in (("k = 20", {"top_k": 20}), ("p = 0.5", {"top_p": 0.5}),
                                 ("p = 0.3 at T = 0.5", {"top_p": 0.3, "temperature": 0.5}),
                                 ("k = 50 and p = 0.4", {"top_k": 50, "top_p": 0.4}))] + [
        Case("close-k = 3", "the best three of them", ["close-logits"], [], repeated(x), top_k=3,
             require=sees(*best))]


def history_case(rng):
    """Penalties reach back over the whole of prompt and output, however long."""
    x = drawn(rng, 12, 0.4)
    prompt = [0, 1, 2] + [rng.randrange(3, 8) for _ in range(200)]
    return Case("long-history", "200 ids of prompt and 96 of output: the oldest count like the newest", ["history"],
                prompt, repeated(x, 96), repetition_penalty=1.2, presence_penalty=0.2,
                frequency_penalty=0.03)


def all_cases(seed):
    rng = random.Random(f"sampler-{seed}")
    return (worked_cases() + basic_cases(rng) + joint_cases(rng) +
            [min_p_edge_case(rng), nucleus_edge_case(rng)] +
            close_cases(random.Random(f"sampler-close-{seed}")) +
            [history_case(random.Random(f"sampler-history-{seed}"))])


def seed_of(case, seed, attempt):
    if case.seed is not None:
        return case.seed
    return random.Random(f"sampler-{seed}-{case.name}-{attempt}").getrandbits(64)


# ------------------------------------------------------------------------- two libm variants

def probe_arguments(seed):
    """Arguments as the sampler has them: exp of differences at or below 0, log of sums."""
    rng = random.Random(f"probe-{seed}")
    exps = [0.0, -0.0, -745.0, -708.5, -1e-300, -1e-17, -0.5, -1.0, -2.0, -INF]
    exps += [-rng.expovariate(0.2) for _ in range(1500)]
    exps += [f32(-rng.expovariate(0.3)) for _ in range(700)]
    logs = [1.0, 2.0, 10.0, 1.0 + 2.0 ** -52, 49152.0, 1e300]
    logs += [rng.uniform(1.0, 2.0) for _ in range(500)]
    logs += [math.exp(rng.uniform(0.0, 11.0)) for _ in range(700)]
    return exps, logs


def answers(seed, attempts):
    """What this process computes: every case with its attempt, and the probe table."""
    exps, logs = probe_arguments(seed)
    return {"cases": {c.name: [[r[0], r[1]] for r in
                               c.run(seed_of(c, seed, attempts.get(c.name, 0)))]
                      for c in all_cases(seed) if c.name in attempts},
            "exp": [v.f64hex(math.exp(a)) for a in exps],
            "log": [v.f64hex(math.log(a)) for a in logs]}


def answers_without_fma(seed, attempts):
    environment = {**os.environ, "GLIBC_TUNABLES": NO_FMA}
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--answers", str(seed)],
                          input=json.dumps(attempts), env=environment, check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)


def settle(seed):
    """The attempt of each case that meets its condition and gives the same bits both ways."""
    cases = {c.name: c for c in all_cases(seed)}
    attempts = {}
    open_cases = set(cases)
    redrawn = 0
    while open_cases:
        for name in sorted(open_cases):
            case = cases[name]
            attempt = attempts.get(name, -1) + 1
            while case.require and not case.require(case.run(seed_of(case, seed, attempt))):
                attempt += 1
                if attempt > ATTEMPTS:
                    raise SystemExit(f"{name}: its condition is never met")
            attempts[name] = attempt
        trial = {name: attempts[name] for name in open_cases}
        here, there = answers(seed, trial), answers_without_fma(seed, trial)
        bad = {n for n in open_cases if here["cases"][n] != there["cases"][n]}
        if any(cases[n].seed is not None or attempts[n] > ATTEMPTS for n in bad):
            raise SystemExit(f"{sorted(bad)}: other bits without FMA in every draw")
        redrawn += len(bad)
        open_cases = bad
    differ = sum(a != b for f in ("exp", "log") for a, b in zip(here[f], there[f]))
    print(f"{redrawn} cases drawn again; {differ} probe arguments hang on FMA")
    if differ == 0:
        print("warning: FMA could not be masked here, nothing was filtered", file=sys.stderr)
    return attempts, here, there


# ------------------------------------------------------------------------------- the files

NOTES = {
    "logprob-before-temperature": v.note(
        "The logprob is taken after temperature, or over the ids that the filters kept.",
        "Ids are right, every logprob changes with T, k, p or m.", ["s03"]),
    "nucleus-edge": v.note(
        "The nucleus walk stops at > instead of >=, or drops the id that crosses.",
        "Where a running sum equals p one id too many or too few is kept.", ["s04"]),
    "cdf-order": v.note(
        "The distribution is walked in order of probability instead of ascending id.",
        "The same u picks another id.", ["s05"]),
    "presence-frequency": v.note(
        "Presence and frequency count the prompt too, or presence counts occurrences.",
        "Ids of the prompt are pushed down though they were never put out.", ["s06"]),
    "repetition-sign": v.note(
        "A negative logit is divided by the repetition penalty.",
        "A repeated unlikely id becomes more likely.", ["s07"]),
    "repetition-once": v.note(
        "The repetition penalty is applied once for each occurrence.",
        "An id that stands five times in the prompt is punished five times."),
    "penalty-order": v.note(
        "Presence and frequency are subtracted before the repetition penalty.",
        "Logit 1, r = 2, presence 2 gives -2 instead of -1.5."),
    "ties": v.note(
        "An unstable sort, ties to the higher id, -0 below +0, or an order by l instead of t.",
        "Equal candidates are kept or dropped by chance."),
    "nucleus-sum": v.note(
        "The nucleus is summed in f32, pairwise or with compensation.",
        "Ten equal logits at p = 0.8 keep eight ids instead of nine."),
    "greedy": v.note(
        "Greedy breaks ties upward, orders -0 below +0 or ignores the penalties.",
        "Another id than the lowest of the best."),
    "one-draw": v.note(
        "No draw is taken when one id is left.",
        "Every later step of the stream is off by one draw."),
    "top-k": v.note(
        "k = 0, k = V or k > V is not off.",
        "Ids are missing, or the selection reads past the vocabulary."),
    "top-p-after-k": v.note(
        "Top-p takes its mass from the whole vocabulary instead of what top-k kept.",
        "More ids are kept than the rule allows."),
    "min-p": v.note(
        "Min-p compares with >, or with the maximum of another distribution.",
        "The id at the edge is dropped."),
    "masked": v.note(
        "A masked id can win at u = 0, or exp(-inf - -inf) makes a NaN.",
        "A forbidden token comes out."),
    "last-positive": v.note(
        "When rounding leaves no id with u < c, the answer is past the end or has no mass.",
        "An id out of range, once in 10^16 draws."),
    "temperature-edge": v.note(
        "A very low or very high temperature overflows or is clamped.",
        "Infinities, or a distribution that is not the asked one."),
    "history": v.note(
        "Penalties look at a window of the last ids.",
        "What was said early comes back unpunished in a long answer."),
    "close-logits": v.note(
        "Ids are put into buckets by their logit, and not sorted inside a bucket.",
        "Where logits are close together, the kept ids are not the best."),
    "z-order": v.note(
        "Z is summed in another order, in f32 or in several lanes.",
        "The last bits of the logprob differ on a large vocabulary."),
}


def case_json(case, seed, attempt):
    used = seed_of(case, seed, attempt)
    steps = []
    for number, (chosen, logprob, u) in enumerate(case.run(used)):
        step = case.steps[number]
        entry = {"logits_of": step} if isinstance(step, int) else {"logits": v.f32list(step)}
        steps.append({**entry, "id": chosen, "logprob": logprob,
                      "uniform_text": "none" if u is None else repr(u)})
    params = {k: x if k == "top_k" else v.f64hex(x) for k, x in case.params.items()}
    return {"id": case.name, "comment": case.comment, "flags": case.flags,
            "seed": v.u64hex(used), "params": params, "prompt": case.prompt, "steps": steps}


def prove(cases, seed, attempts):
    """Every bug of BUGS changes a step of some case, else the goldens would not see it."""
    right = {c.name: [r[:2] for r in c.run(seed_of(c, seed, attempts[c.name]))] for c in cases}
    for bug in BUGS:
        killers = [c.name for c in cases if c.name != "vocab-49152" or bug == "z-descending"
                   if [r[:2] for r in c.run(seed_of(c, seed, attempts[c.name]), bug)] !=
                   right[c.name]]
        if not killers:
            raise SystemExit(f"no case sees {bug}: {BUGS[bug]}")


def write_probe(args, here, there):
    exps, logs = probe_arguments(args.seed)
    table = {}
    for name, xs in (("exp", exps), ("log", logs)):
        same = [i for i in range(len(xs)) if here[name][i] == there[name][i]]
        table[name] = {"x": [v.f64hex(xs[i]) for i in same],
                       "y": [here[name][i] for i in same]}
    doc = {"schema": "ol.probe/1",
           "generator": v.generator_info("gen/sampler.py", v.command_of("sampler.py", args)),
           **table}
    v.write_text(os.path.join(args.out, "libm.probe.json"), v.dumps(doc) + "\n")


def check_anchors(groups):
    """What the page says in numbers, read back from the finished cases."""
    cases = {c["id"]: c for g in groups for c in g["cases"]}
    first = cases["worked-example"]["steps"][0]
    assert first["id"] == 3 and first["uniform_text"] == "0.8020949661137535"
    assert abs(v.f64_of_hex(first["logprob"]) + 0.92487) < 5e-6
    seen = {}
    for name in ("logprob-T-0.1", "logprob-T-1", "logprob-T-5"):
        for step in cases[name]["steps"]:
            assert seen.setdefault(step["id"], step["logprob"]) == step["logprob"]
    for step in cases["ten-equal-p-0.8"]["steps"]:
        assert v.f64_of_hex(step["logprob"]) == -math.log(10.0)
    assert cases["u-last-then-masked"]["steps"][0]["id"] == 9
    assert cases["u-zero-masked"]["steps"][0]["id"] == 1


def main(argv=None):
    args = v.arguments(__doc__.split("\n")[0], argv)
    assert pcg.stream(SEED_U_ZERO, PURPOSE_SAMPLE).uniform_f64() == 0.0
    assert pcg.stream(SEED_U_LAST, PURPOSE_SAMPLE).uniform_f64() == 1.0 - 2.0 ** -53
    attempts, here, there = settle(args.seed)
    cases = all_cases(args.seed)
    prove(cases, args.seed, attempts)
    by_group = [("worked", worked_cases()), ("drawn", cases[len(worked_cases()):])]
    groups = [{"name": name, "cases": [case_json(c, args.seed, attempts[c.name]) for c in some]}
              for name, some in by_group]
    check_anchors(groups)
    v.write_vectors(
        os.path.join(args.out, "sampler.golden.json"), "sampler",
        v.generator_info("gen/sampler.py", v.command_of("sampler.py", args)),
        {"name": "sampling.md in Python with math.exp and math.log", "dtype": "f64",
         "version": v.host_platform(), "device": "cpu"},
        v.bits_tolerance("the same with and without FMA in libm; checked by a second process with "
                         "GLIBC_TUNABLES=" + NO_FMA), NOTES, groups)
    write_probe(args, here, there)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--answers"]:
        print(json.dumps(answers(int(sys.argv[2]), json.load(sys.stdin))))
    else:
        main()
