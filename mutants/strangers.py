#!/usr/bin/python3
"""Is the diagnosis more than a table look-up? The mistakes s01 to s22 made by hand in the plain engine of the examples,
which shares no source with ours and adds in another order, judged without --strict as a stranger's, and diagnosed.

  strangers.py [-j N] [--build DIR] [--keep DIR] [ID...]
  strangers.py --pairs N [--seed S]

The right name must be given for at least 18 of the 22, and a wrong one for none; the plain engine itself passes and
gets no diagnosis. With --pairs: our own engine with two of the patches s01 to s22 at once, N pairs of those that apply
together; every name that is given must be one of the two. Not part of `make check`; takes some minutes. Ends with
`N passed, N failed`.

Standard library only.
"""
import argparse
import concurrent.futures
import copy
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import catalog  # noqa: E402
import diagnose  # noqa: E402
from build import Build  # noqa: E402
from catalog import ROOT, read  # noqa: E402

PLAIN = os.path.join(ROOT, "conformance", "examples", "plain")
LEAST_RIGHT = 18
MISTAKES = [
    ("s01", [
        ("pcg32.c",
         '(double)(a >> 5) * 0x1p26 + (double)(b >> 6)',
         '(double)(a >> 6) * 0x1p26 + (double)(b >> 5)'),
    ]),
    ("s02", [
        ("pcg32.c",
         'return tl_pcg32_new(tl_child_seed(seed, purpose), purpose);',
         'return tl_pcg32_new(tl_child_seed(seed, purpose), 54);'),
    ]),
    ("s03", [
        ("sample.c",
         '        TLI_TRY(divide(s, params->temperature, err));\n',
         '        TLI_TRY(divide(s, params->temperature, err));\n'
         '        for (size_t i = 0; i < s->vocab; i++) {\n'
         '            s->ids[i].l = s->ids[i].t;\n'
         '        }\n'
         '        logprobs(s);\n'),
    ]),
    ("s04", [
        ("sample.c",
         'reached = c >= p;',
         'reached = c > p;'),
    ]),
    ("s05", [
        ("sample.c",
         '    uint32_t last = 0;\n'
         '    for (size_t i = 0; i < s->vocab; i++) {\n'
         '        if (!s->ids[i].kept) {',
         '    uint32_t last = 0;\n'
         '    for (size_t k = 0; k < s->vocab; k++) {\n'
         '        const uint32_t i = s->order[k];\n'
         '        if (!s->ids[i].kept) {'),
        ("sample.c",
         '            return (uint32_t)i;\n'
         '        }\n'
         '        if (s->ids[i].q > 0) {\n'
         '            last = (uint32_t)i;',
         '            return i;\n'
         '        }\n'
         '        if (s->ids[i].q > 0) {\n'
         '            last = i;'),
    ]),
    ("s06", [
        ("sample.c",
         '        s->ids[prompt[i]].seen = true;\n',
         '        s->ids[prompt[i]].seen = true;\n'
         '        s->ids[prompt[i]].count++;\n'),
    ]),
    ("s07", [
        ("sample.c",
         '        if (id->seen && id->l > 0) {\n'
         '            id->l = id->l / p->repetition_penalty;\n'
         '        } else if (id->seen) {\n'
         '            id->l = id->l * p->repetition_penalty;\n'
         '        }\n',
         '        if (id->seen) {\n'
         '            id->l = id->l / p->repetition_penalty;\n'
         '        }\n'),
    ]),
    ("s08", [
        ("quant.c",
         'rint(size * 0x1p24)',
         'floor(size * 0x1p24)'),
        ("quant.c",
         'rint(ldexp(size, 11 - exponent))',
         'floor(ldexp(size, 11 - exponent))'),
    ]),
    ("s09", [
        ("quant.c",
         '        const unsigned low = (unsigned)q[2 * b] & 15;\n'
         '        const unsigned high = (unsigned)q[2 * b + 1] & 15;',
         '        const unsigned low = (unsigned)q[2 * b + 1] & 15;\n'
         '        const unsigned high = (unsigned)q[2 * b] & 15;'),
        ("quant.c",
         'nibble_value(col % 2 == 0 ? byte & 15 : byte >> 4)',
         'nibble_value(col % 2 == 1 ? byte & 15 : byte >> 4)'),
        ("quant.c",
         '(uint8_t)(i % 2 == 0 ? nibble : qweight[i / 2] | (nibble << 4))',
         '(uint8_t)(i % 2 == 0 ? nibble << 4 : qweight[i / 2] | nibble)'),
        ("quant.c",
         '        q[2 * b] = (int8_t)nibble_value(packed[b] & 15);\n'
         '        q[2 * b + 1] = (int8_t)nibble_value(packed[b] >> 4);',
         '        q[2 * b] = (int8_t)nibble_value(packed[b] >> 4);\n'
         '        q[2 * b + 1] = (int8_t)nibble_value(packed[b] & 15);'),
    ]),
    ("s10", [
        ("quant.c",
         'q = fminf(fmaxf(rintf(w[i] / s), -8), 7);',
         'q = fminf(fmaxf(rintf(w[i] / (max / 7)), -8), 7);'),
    ]),
    ("s11", [
        ("model_safetensors.c",
         '    const uint8_t *data = place->st->file.bytes + tl_layout_data_start(place->st->layout);\n'
         '    return data + place->info->begin;',
         '    return place->st->file.bytes + place->info->begin;'),
    ]),
    ("s12", [
        ("model.c",
         '[TL_DTYPE_BF16] = TL_MATRIX_BF16',
         '[TL_DTYPE_BF16] = TL_MATRIX_F16'),
        ("model_safetensors.c",
         '            dst[i] = tl_bf16_to_f32(tli_load_u16(bytes + 2 * i));',
         '            dst[i] = tl_f16_to_f32(tli_load_u16(bytes + 2 * i));'),
    ]),
    ("s13", [
        ("forward.c",
         '    set_angles(scratch, t.position);',
         '    set_angles(scratch, i);'),
    ]),
    ("s14", [
        ("forward.c",
         '    double max = -(double)INFINITY;\n'
         '    double z = 0;\n'
         '    for (size_t j = 0; j <= t->position; j++) {',
         '    double max = -(double)INFINITY;\n'
         '    double z = 0;\n'
         '    const size_t last = t->seq->n_tokens == 1 ? 0 : t->position;\n'
         '    for (size_t j = 0; j <= last; j++) {'),
        ("forward.c",
         '    memset(o, 0, head_dim * sizeof *o);\n    for (size_t j = 0; j <= t->position; j++) {',
         '    memset(o, 0, head_dim * sizeof *o);\n    for (size_t j = 0; j <= last; j++) {'),
    ]),
    ("s15", [
        ("forward.c",
         'write_slab(t, TL_KV_K, scratch->k, err)',
         'write_slab(t, TL_KV_V, scratch->k, err)'),
    ]),
    ("s16", [
        ("forward.c",
         '        rms_norm(scratch->x, w->final_norm, d, scratch->cfg.rms_norm_eps, scratch->h);\n',
         '        memcpy(scratch->h, scratch->x, d * sizeof *scratch->h);\n'),
    ]),
    ("s17", [
        ("runner.c",
         '    for (size_t i = 0; i < n_blocks; i++) {\n        const tl_status released',
         '    for (size_t i = 0; status != TL_OK && i < n_blocks; i++) {\n'
         '        const tl_status released'),
    ]),
    ("s18", [
        ("kv.c",
         'b->released < pool->blocks[oldest].released',
         'b->released > pool->blocks[oldest].released'),
    ]),
    ("s19", [
        ("kv.c",
         '    for (size_t i = 0; i < 5; i++) {\n        if (sizes[i] == 0) {',
         '    for (size_t i = 1; i < 5; i++) {\n        if (sizes[i] == 0) {'),
    ]),
    ("s20", [
        ("forward.c",
         'const double exponent = -2.0 * (double)i / (double)scratch->cfg.head_dim;',
         'const double exponent = -2.0 * (double)(half - 1 - i) / (double)scratch->cfg.head_dim;'),
    ]),
    ("s21", [
        ("forward_check.c",
         '        if (seq->tokens[i] >= c->cfg->vocab_size) {',
         '        if (seq->tokens[i] == UINT32_MAX && seq->n_tokens > c->cfg->vocab_size) {'),
    ]),
    ("s22", [
        ("forward.c",
         '        const double g = (double)scratch->gate[i];\n',
         '        const double g = (double)scratch->up[i];\n'),
        ("forward.c",
         '(float)(silu * (double)scratch->up[i]);',
         '(float)(silu * (double)scratch->gate[i]);'),
    ]),
]


def check(options, name, engine, folder):
    """The test lines of an engine, judged as anybody's."""
    log = os.path.join(options.keep or folder, f"{name}.jsonl")
    command = [os.path.join(options.build, "bin", "ol"), "check", "L10.1", "--root", ROOT, "--engine", engine,
               "-j", "1", "--no-hints", "--report", f"jsonl:{log}"]
    done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{name}: ol ended with {done.returncode}: {done.stdout[-1500:]}")
    return [line for line in map(json.loads, read(log).splitlines()) if line["kind"] == "test"]


def judged(options, name, edits):
    """The test lines of the plain engine with these edits."""
    folder = tempfile.mkdtemp(prefix="stranger-")
    try:
        place = os.path.join(folder, "engine")
        shutil.copytree(PLAIN, place)
        for file, old, new in edits:
            path = os.path.join(place, file)
            text = read(path)
            if text.count(old) != 1:
                raise SystemExit(f"{name}: the text to change stands {text.count(old)} times in {file}: {old}")
            with open(path, "w", encoding="utf-8") as out:
                out.write(text.replace(old, new))
        return check(options, name, place, folder)
    finally:
        shutil.rmtree(folder)


def together(one, other):
    """{source: text} of two patches, one upon the other; None when they do not fit so."""
    texts = {}
    for mutant in (one, other):
        try:
            text = texts.get(mutant.file) or read(os.path.join(ROOT, mutant.file))
            texts[mutant.file] = mutant.patch.apply(text)
        except catalog.Stale:
            return None
    return texts


def run_pairs(options, book):
    named = [m for m in catalog.load() if m.id.startswith("s")]
    fitting = [(pair, texts) for pair in itertools.combinations(named, 2) if (texts := together(*pair))]
    chosen = random.Random(options.seed).sample(fitting, min(options.pairs, len(fitting)))
    build = Build(options.build, os.path.join(ROOT, "build", "mutants"))
    build.baseline()

    def one(item):
        pair, texts = item
        name = "+".join(m.id for m in pair)
        with tempfile.TemporaryDirectory(prefix="pair-") as folder:
            both = copy.copy(build)
            both.objects = {**build.objects, **{file: build.object(file, text) for file, text in texts.items()}}
            library = both.library(os.path.join(folder, "pair.so"))
            return {m.id for m in pair}, name, book.diagnose(check(options, name, library, folder))
    n_names, failed = [0, 0, 0], 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for ids, name, found in pool.map(one, chosen):
            n_names[len(found.names)] += 1
            failed += not set(found.names) <= ids
            print(f"{name} {', '.join(found.names) or 'none':8} score {found.score:.2f} margin {found.margin:.2f}",
                  flush=True)
    print(f"{len(fitting)} pairs fit; of {len(chosen)}, both named: {n_names[2]}, one: {n_names[1]}, none: {n_names[0]}")
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed or not chosen else 0


def main(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ids", nargs="*")
    p.add_argument("-j", dest="jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--keep", help="leave the logs in this folder")
    p.add_argument("--pairs", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    options = p.parse_args(argv)
    book = diagnose.load()
    if options.pairs:
        return run_pairs(options, book)
    todo = [("plain", [])] + MISTAKES
    todo = [m for m in todo if not options.ids or m[0] in options.ids]
    right, wrong, none = [], [], []

    def one(mistake):
        return mistake[0], book.diagnose(judged(options, *mistake))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, found in pool.map(one, todo):
            want = [] if name == "plain" else [name]
            kind = right if found.names == want else none if not found.names else wrong
            kind.append(name)
            said = ", ".join(found.names) or "none"
            print(f"{name:6} {said:12} score {found.score:.2f} margin {found.margin:.2f}"
                  f" next {', '.join(found.next_best) or '-'}", flush=True)
    n_least = LEAST_RIGHT + 1 if not options.ids else len(todo)
    failed = len(wrong) + max(0, n_least - len(right))
    print(f"named right: {len(right)}, not named: {len(none)}, named wrongly: {len(wrong)} {' '.join(wrong)}")
    print(f"{len(todo) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
