#!/usr/bin/python3
"""Fuzz what reads foreign bytes, replay the corpora, hand them to others.

  ol fuzz TARGET|all [--seconds N] [--jobs N] [--runs N --seed S] [--lib LIBRARY]
                                                 libFuzzer, from the corpus; exit 1 when something was found; without
                                                 clang the corpus is replayed instead, and that is said
  ol fuzz list [--names]                         the targets and the size of their corpora
  ol fuzz replay [TARGET...] [--variant V] [--valgrind] [--lib LIBRARY] [--json]
                                                 every seed once; ends with `N passed, N failed`
  ol fuzz merge TARGET|all                       take over what fuzzing found, minimised, with its verdicts
  ol fuzz seeds [--check]                        write (or compare) the seeds by rule, their verdicts and dictionaries
  ol fuzz export DIR [TARGET...]                 files, directories and verdicts for other parsers
  ol fuzz cover [--write]                        coverage of the parser files by the corpora alone, against the floors of
                                                 coverage.json; --write raises them
  ol fuzz selftest                               the target with the planted bug must crash
  ol fuzz limits [--write]                       time and memory of the largest inputs
  ol fuzz package DIR                            corpora, dictionaries and options as OSS-Fuzz wants them

A seed fails when its target finds something wrong, when it crashes or hangs, or when its verdict is not the
manifest's. --lib runs another library in the place of the engine (a mutant, or somebody's own). What a command needs
is built first. Exit codes: 0, 1 something was found or failed, 2 usage, 4 no such target. Standard library only.
"""
import argparse
import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import limits  # noqa: E402
import seeds  # noqa: E402

ROOT = seeds.ROOT
HERE = os.path.join(ROOT, "fuzz")
CORPUS = os.path.join(HERE, "corpus")
MANIFEST = os.path.join(CORPUS, "MANIFEST.tsv")
BUILD = os.path.join(ROOT, "build", "fuzz")
TARGETS = list(seeds.RULES)
BYTES_MAX = 4 << 20        # all corpora together
FOUND_BYTES_MAX = 4096     # one file that fuzzing found
TARGET_BYTES_MAX = 300000  # what fuzzing found, for each target
MAX_LEN = {"safetensors": 4096, "index": 4096, "config": 2048, "checkpoint": 8192, "golden": 4096}
HANG_S = 60
LIBFUZZER = ["-timeout=10", "-rss_limit_mb=1024", "-malloc_limit_mb=512", "-print_final_stats=1"]
ENV = {"ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:allocator_may_return_null=1:handle_abort=2",
       "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}
# The files that a corpus must reach, and how far.
COVERED = ["json", "model_layout", "model_tensors", "model_config", "model_checkpoint", "model_weights", "model_head",
           "model_sort", "kv_envelope"]
FLOORS = os.path.join(HERE, "coverage.json")
LEAST = {"lines": 95.0, "branches": 90.0}  # no floor is below


def fail(words, status=2):
    print(f"ol fuzz: {words}", file=sys.stderr)
    sys.exit(status)


def nearest(word, known):
    near = difflib.get_close_matches(word, known, 3, 0.3)
    fail(f"there is no target {word}; the nearest: {', '.join(near) or 'none'} (ol fuzz list)", 4)


def make(*words):
    """Build what a command needs; inside another make, too."""
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "VARIANT")}
    done = subprocess.run(["make", "-s", f"-j{os.cpu_count() or 1}", *words], cwd=ROOT, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    if done.returncode != 0:
        fail(f"make {' '.join(words)}:\n{done.stdout[-2000:]}", 70)


def replay_program(variant):
    program = f"build/{variant}/bin/fuzz-replay"
    make(f"VARIANT={variant}", program)
    return os.path.join(ROOT, program)


def chosen(words):
    """The targets that the words name."""
    if not words or words == ["all"]:
        return TARGETS
    for word in words:
        if word not in TARGETS:
            nearest(word, TARGETS + ["all"])
    return words


def names(target):
    folder = os.path.join(CORPUS, target)
    return sorted(n for n in os.listdir(folder) if not n.endswith(".part")) if os.path.isdir(folder) else []


def read_manifest():
    """{target/name: (verdict, clause)}"""
    out = {}
    if os.path.exists(MANIFEST):
        with open(MANIFEST, encoding="utf-8") as file:
            for line in file:
                path, verdict, clause = line.rstrip("\n").split("\t")
                out[path] = (verdict, clause)
    return out


def write_whole(path, data):
    """Beside the target first, so that nobody ever sees half a file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".part", "wb") as file:
        file.write(data)
    os.replace(path + ".part", path)


def write_manifest(rows):
    write_whole(MANIFEST, "".join(f"{path}\t{verdict}\t{clause}\n"
                                  for path, (verdict, clause) in sorted(rows.items())).encode())


# ---------------------------------------------------------------- replay


class Outcome:
    """Of one seed: its verdict, and what is wrong ("" for nothing)."""

    def __init__(self, verdict, wrong):
        self.verdict, self.wrong = verdict, wrong


def blame(stderr):
    """One line of what a sanitizer or Valgrind said."""
    for pattern in (r"(runtime error: .*)", r"ERROR: (\w+Sanitizer: [^\n]*)", r"==\d+== (Invalid [^\n]*|[^\n]*uninit[^\n]*)"):
        found = re.search(pattern, stderr)
        if found:
            return found.group(1)[:200]
    return stderr.strip().splitlines()[-1][:200] if stderr.strip() else ""


def replay_files(command, target, paths):
    """{path: Outcome}. A crash or a hang is the outcome of the file that it was at; the rest goes on behind it.

    Files are also read from a disk: each time in a folder of its own, since a crash leaves things behind."""
    outcomes, left = {}, list(paths)
    while left:
        with tempfile.TemporaryDirectory(prefix="ol-fuzz-") as disk:
            left = replay_some([*command, "--disk", disk], target, left, outcomes)
    return outcomes


def replay_some(command, target, left, outcomes):
    """Until a crash or the end; what is left after it."""
    try:
        done = subprocess.run([*command, target, *left], cwd=ROOT, capture_output=True, text=True, errors="replace",
                              env={**os.environ, **ENV}, timeout=HANG_S * (10 if "valgrind" in command[0] else 1),
                              check=False)
        out, err, status = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        out, err, status = ((late.stdout or b"").decode("utf-8", "replace"), "", 124)
    at = None
    for line in out.splitlines():
        if line.startswith("> "):
            at = line[2:]
        else:
            parts = line.split("\t")
            if len(parts) == 3:
                outcomes[parts[1]], at = Outcome(parts[0], parts[2]), None
    if status in (2, 70):
        fail(f"{' '.join(command)}: {err.strip()}")
    if at is None:
        # The end: leaks are found there, and belong to no file.
        if status not in (0, 1):
            outcomes[left[-1]] = Outcome("crash", f"at the end, status {status}: {blame(err)}")
        if any(path not in outcomes for path in left):
            fail(f"{target}: the replay ended early: {err.strip()[-300:]}")
        return []
    what = "hangs" if status == 124 else f"ends with {status}: {blame(err)}"
    outcomes[at] = Outcome("hang" if status == 124 else "crash", what)
    return left[left.index(at) + 1:]


def replay_target(command, target, manifest):
    """[(seed, what is wrong)] and the number of seeds."""
    folder = os.path.join("fuzz", "corpus", target)
    paths = [os.path.join(folder, name) for name in names(target)]
    outcomes = replay_files(command, target, paths) if paths else {}
    bad = []
    for path in paths:
        seed = os.path.join(target, os.path.basename(path))
        outcome = outcomes[path]
        want = manifest.get(seed, ("(none)", ""))[0]
        if outcome.wrong:
            bad.append((seed, outcome.wrong))
        elif outcome.verdict != want:
            bad.append((seed, f"verdict {outcome.verdict}, the manifest says {want}"))
    listed = {s for s in manifest if s.startswith(target + "/")}
    bad += [(s, "is in the manifest and not there") for s in sorted(listed - {f"{target}/{n}" for n in names(target)})]
    return bad, len(paths)


def replay(options):
    variant = options.variant or ("release" if options.lib else "asan")
    # Another library's allocations are its own; Valgrind would take minutes for each of them.
    command = [replay_program(variant)] + (["--lib", options.lib] if options.lib else ["--refuse"])
    runs = [(variant, command)]
    if options.valgrind:
        runs.append(("valgrind", ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", replay_program("valgrind")]))
    manifest, passed, all_bad = read_manifest(), 0, {}
    for label, prefix in runs:
        for target in chosen(options.targets):
            begin = time.monotonic()
            bad, n = replay_target(prefix, target, manifest)
            if n == 0:
                bad.append((target, "the corpus is empty"))
            passed += n - len({s for s, _ in bad if "/" in s})
            all_bad.update({f"{label} {seed}": words for seed, words in bad})
            if not options.json:
                print(f"{label:9} {target:12} {n:5} seeds, {len(bad)} wrong ({time.monotonic() - begin:.1f} s)", flush=True)
    if options.json:
        print(json.dumps({k.split(" ", 1)[1]: v for k, v in all_bad.items()}, indent=1, sort_keys=True))
        return 1 if all_bad else 0
    for seed, words in sorted(all_bad.items())[:50]:
        print(f"  {seed}: {words}")
    print(f"{passed} passed, {len(all_bad)} failed")
    return 1 if all_bad else 0


# ---------------------------------------------------------------- fuzzing


def start_folder(target):
    """Seeds to start from besides the corpus: the goldens' own cases."""
    folder = os.path.join(BUILD, "start", target)
    os.makedirs(folder, exist_ok=True)
    for name, data in seeds.golden_cases(target):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
    return folder


def fuzz_command(target, options, work, found):
    command = [os.path.join(BUILD, "bin", f"fuzz-{target}"), work, os.path.join(CORPUS, target), start_folder(target),
               f"-artifact_prefix={found}/", f"-max_len={MAX_LEN.get(target, 1024)}", *LIBFUZZER]
    dictionary = os.path.join(HERE, "dict", target + ".dict")
    if os.path.exists(dictionary):
        command.append(f"-dict={dictionary}")
    if options.runs:
        command += [f"-runs={options.runs}", f"-seed={options.seed}"]
    else:
        command.append(f"-max_total_time={options.seconds}")
    if options.jobs > 1:
        command.append(f"-fork={options.jobs}")
    return command


def statistics(target, text, seconds):
    """What the log of a run says, kept for the table."""
    def last(pattern):
        hits = re.findall(pattern, text)
        return int(hits[-1]) if hits else 0
    return {"target": target, "seconds": round(seconds), "executions": last(r"number_of_executed_units:\s+(\d+)")
            or last(r"#(\d+)"), "coverage": last(r"cov: (\d+)"), "features": last(r"ft: (\d+)"), "inputs": last(r"corp: (\d+)"),
            "peak_mb": last(r"peak_rss_mb:\s+(\d+)")}


def fuzz_one(target, options):
    place = os.path.join(BUILD, "lib", os.path.basename(options.lib)) if options.lib else BUILD
    work, found, log = (os.path.join(place, what, target) for what in ("work", "found", "log"))
    os.makedirs(work, exist_ok=True)
    os.makedirs(found, exist_ok=True)
    log += ".log"
    os.makedirs(os.path.dirname(log), exist_ok=True)
    begin = time.monotonic()
    with open(log, "wb") as out:
        status = subprocess.run(fuzz_command(target, options, work, found), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out,
                                stderr=subprocess.STDOUT, check=False, env={
                                    **os.environ, **ENV, **({"FUZZ_LIB": os.path.abspath(options.lib)} if options.lib else {})
                                }).returncode
    with open(log, encoding="utf-8", errors="replace") as file:
        text = file.read()
    row = statistics(target, text, time.monotonic() - begin)
    row["found"] = status != 0
    os.makedirs(os.path.join(place, "stats"), exist_ok=True)
    with open(os.path.join(place, "stats", target + ".json"), "w", encoding="utf-8") as file:
        json.dump(row, file)
    print(f"{target:12} {row['executions']:>10} executions in {row['seconds']} s, {row['coverage']} edges, "
          f"{row['features']} features, {row['inputs']} inputs, {row['peak_mb']} MB: "
          f"{'FOUND' if row['found'] else 'nothing found'}", flush=True)
    if row["found"]:
        print("\n".join(line for line in text.splitlines() if re.search(r"WRONG|ERROR|runtime error|Test unit", line)))
    if row["executions"] == 0:
        print(f"{target}: ran nothing", file=sys.stderr)
    return not row["found"] and row["executions"] > 0


def run(options):
    targets = chosen([options.target])
    if shutil.which("clang") is None:
        print("there is no clang, so nothing is fuzzed: the corpora are replayed")
        return main(["replay", *targets])
    make("fuzz-build")
    return 0 if all([fuzz_one(target, options) for target in targets]) else 1


def selftest(_options):
    """A rig that sees no crash would pass everything: the planted bug must be found, and named."""
    make("fuzz-build")
    folder = os.path.join(BUILD, "selftest")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "start"), "wb") as file:
        file.write(b"TLKV\x10?")
    done = subprocess.run([os.path.join(BUILD, "bin", "fuzz-crash"), folder, "-runs=2000000", "-seed=1",
                           f"-artifact_prefix={folder}/found-"], capture_output=True, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, check=False)
    seen = done.returncode != 0 and "heap-buffer-overflow" in done.stderr and any(
        n.startswith("found-crash") for n in os.listdir(folder))
    print(f"{int(seen)} passed, {int(not seen)} failed")
    return 0 if seen else 1


# ---------------------------------------------------------------- corpora


def rule_rows():
    """{target/name: (verdict, clause, bytes)} of all seeds by rule."""
    return {f"{t}/{name}": (verdict, clause, data) for t in TARGETS for name, verdict, clause, data in seeds.rules(t)}


def write_dicts():
    with open(os.path.join(HERE, "words.c"), encoding="utf-8") as file:
        source = file.read()
    out = {}
    for name, body in re.findall(r"fuzz_words_(\w+)\[\] = \{(.*?)NULL\};", source, re.S):
        words = re.findall(r'"((?:[^"\\]|\\.)*)"', body)
        out[name] = "".join(f'"\\"{w}\\""\n' for w in words if w and "\\" not in w)
    out["golden"] = out["frames"] = out.pop("judge")
    out["checkpoint"] = out["config"] + out["safetensors"] + out["index"]
    for name in ("safetensors", "config", "index", "checkpoint"):
        out[name] += "".join(f'"{w}"\n' for w in ("null", "true", "9223372036854775807", "9223372036854775808", "1e999", "-0",
                                                  "\\\\u0000", "\\\\ud800", "\\xef\\xbb\\xbf", "[[[[", "\\x00"))
    out["kv_import"] = '"TLKV"\n"TLKV\\x01\\x00\\x00\\x00\\x40\\x00\\x00\\x00\\x01\\x00\\x00\\x00"\n'
    return {os.path.join(HERE, "dict", name + ".dict"): "# Made by fuzz.py seeds.\n" + text for name, text in out.items()}


def make_seeds(options):
    rows, texts = rule_rows(), write_dicts()
    manifest = read_manifest()
    wanted = {os.path.join(CORPUS, path): data for path, (_, _, data) in rows.items()}
    wanted.update({path: text.encode() for path, text in texts.items()})
    changed = []
    for path, data in wanted.items():
        if not os.path.exists(path) or open(path, "rb").read() != data:
            changed.append(os.path.relpath(path, ROOT))
            if not options.check:
                write_whole(path, data)
    ours = {p: (v, c) for p, (v, c, _) in rows.items()}
    stale = [p for p in manifest if manifest[p][1] != "found" and p not in ours]
    off = [p for p in ours if manifest.get(p) != ours[p]]
    if not options.check:
        for path in stale:
            if os.path.exists(os.path.join(CORPUS, path)):
                os.unlink(os.path.join(CORPUS, path))
        kept = {p: r for p, r in manifest.items() if r[1] == "found" and os.path.exists(os.path.join(CORPUS, p))}
        write_manifest({**kept, **ours})
    bad = changed + stale + off
    for path in bad[:20] if options.check else []:
        print(f"  {path} is not what seeds.py makes")
    total = sum(os.path.getsize(os.path.join(CORPUS, t, n)) for t in TARGETS for n in names(t))
    bad += [f"{total} bytes of corpora, {BYTES_MAX} are allowed"] if total > BYTES_MAX else []
    print(f"{len(rows)} seeds by rule, {len(changed)} written, {total} bytes of corpora in all"
          if not options.check else f"{len(rows) + len(texts) - len(bad)} passed, {len(bad)} failed")
    return 1 if options.check and bad else 0


def merge_one(target):
    """Keep of what fuzzing found the smallest set that adds features to the seeds by rule."""
    base, out = os.path.join(BUILD, "merge", target, "rules"), os.path.join(BUILD, "merge", target, "all")
    shutil.rmtree(os.path.dirname(base), ignore_errors=True)
    os.makedirs(base)
    by_rule = {name for name, _, _, _ in seeds.rules(target)}
    for name, _, _, data in seeds.rules(target):
        with open(os.path.join(base, name), "wb") as file:
            file.write(data)
    shutil.copytree(base, out)
    work = os.path.join(BUILD, "work", target)
    os.makedirs(work, exist_ok=True)
    sources = [os.path.join(CORPUS, target), start_folder(target), work]
    done = subprocess.run([os.path.join(BUILD, "bin", f"fuzz-{target}"), "-set_cover_merge=1", f"-max_len={FOUND_BYTES_MAX}", *LIBFUZZER,
                           out, *sources], cwd=ROOT, capture_output=True, text=True, errors="replace",
                          env={**os.environ, **ENV}, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        fail(f"{target}: merge: {done.stderr[-400:]}")
    new = [os.path.join(out, n) for n in os.listdir(out) if n not in by_rule]
    new = sorted((p for p in new if os.path.getsize(p) <= FOUND_BYTES_MAX), key=lambda p: (os.path.getsize(p), p))
    total, kept = 0, set()
    for path in new:
        with open(path, "rb") as file:
            data = file.read()
        total += len(data)
        if total > TARGET_BYTES_MAX:
            break
        name = "found-" + hashlib.sha1(data).hexdigest()[:12]
        kept.add(name)
        write_whole(os.path.join(CORPUS, target, name), data)
    # The new ones are there before the old ones go: what ends in between has too many, and none is lost.
    for name in names(target):
        if name not in by_rule | kept and not name.startswith("regression-"):
            os.unlink(os.path.join(CORPUS, target, name))
    print(f"{target:12} {len(by_rule)} by rule, {len(kept)} found of {len(new)}", flush=True)


def note_verdicts(targets):
    """What the two implementations agree on is the verdict of a found seed; by rule, the page's stands."""
    program = replay_program("asan")
    manifest = read_manifest()
    for target in targets:
        by_rule = {f"{target}/{name}": (verdict, clause) for name, verdict, clause, _ in seeds.rules(target)}
        paths = [os.path.join("fuzz", "corpus", target, n) for n in names(target)]
        outcomes = replay_files([program], target, paths)
        manifest = {p: r for p, r in manifest.items() if not p.startswith(target + "/")}
        for path, outcome in outcomes.items():
            seed = f"{target}/{os.path.basename(path)}"
            if outcome.wrong:
                print(f"  {seed}: {outcome.wrong}")
            manifest[seed] = by_rule.get(seed, (outcome.verdict, "found"))
    write_manifest(manifest)


def merge(options):
    targets = chosen([options.target])
    make("fuzz-build")
    for target in targets:
        merge_one(target)
    note_verdicts(targets)
    return 0


# ---------------------------------------------------------------- export


def unfold(data):
    """{name: bytes} of a directory input, as files.c reads it."""
    out, at = {}, 0
    while at < len(data) and len(out) < 8:
        end = data.find(b"\0", at)
        end = len(data) if end < 0 else end
        name, head = data[at:end], data[end + 1:end + 5].ljust(4, b"\0")
        begin = min(end + 5, len(data))
        at = min(begin + int.from_bytes(head, "little"), len(data))
        out.setdefault(name[:79].decode("utf-8", "replace"), data[begin:at])
    return out


def export_seed(target, name, data, folder):
    """Write one seed in the form that a stranger's parser takes; its path below folder, or None."""
    if target in ("safetensors", "config"):
        path = os.path.join(target, name + (".safetensors" if target == "safetensors" else ".json"))
        files = {path: data}
    elif target in ("index", "checkpoint"):
        path = os.path.join(target, name)
        files = {os.path.join(path, n): d for n, d in unfold(data).items()}
        # A file that has no place in a directory can be given to nobody.
        if any("/" in n or n in ("", ".", "..") or "\ufffd" in n for n in unfold(data)):
            return None
    elif target == "kv_import" and len(data) >= 8 and data[7] % 9 == 0:
        path = os.path.join(target, name + ".tlkv")
        files = {path: data[8:]}
    else:
        return None
    os.makedirs(os.path.join(folder, path if target in ("index", "checkpoint") else target), exist_ok=True)
    for file, content in files.items():
        with open(os.path.join(folder, file), "wb") as out:
            out.write(content)
    return path


def export(options):
    rows = []
    for path, (verdict, clause) in sorted(read_manifest().items()):
        target, name = path.split("/", 1)
        if target not in chosen(options.targets):
            continue
        with open(os.path.join(CORPUS, path), "rb") as file:
            data = file.read()
        out = export_seed(target, name, data, options.dir)
        if out is None:
            continue
        row = {"path": out, "kind": target, "verdict": "accept" if verdict == "OK" else "refuse", "clause": clause}
        if verdict != "OK":
            row["status"] = verdict
        if target == "kv_import":
            keys = ("n_blocks", "block_tokens", "n_layers", "n_kv_heads", "head_dim", "ids_cap")
            limits = (24, 5, 3, 3, 5, 26)
            row["pool"] = {k: data[i + 1] % m for i, (k, m) in enumerate(zip(keys, limits))}
            row["pool"].update(prefix_cache=data[0] & 1 == 0, model_tag="0123456789abcdef" if data[0] & 2 else "0" * 16)
        rows.append(row)
    os.makedirs(options.dir, exist_ok=True)
    with open(os.path.join(options.dir, "MANIFEST.json"), "w", encoding="utf-8") as file:
        json.dump({"schema": "tl.corpus/1", "files": rows}, file, indent=1)
        file.write("\n")
    print(f"{len(rows)} seeds in {options.dir}")
    return 0


def package(options):
    """T_seed_corpus.zip, T.dict and T.options for every target."""
    os.makedirs(options.dir, exist_ok=True)
    for target in TARGETS:
        with zipfile.ZipFile(os.path.join(options.dir, f"fuzz-{target}_seed_corpus.zip"), "w") as pack:
            for name in names(target):
                pack.write(os.path.join(CORPUS, target, name), name)
        with open(os.path.join(options.dir, f"fuzz-{target}.options"), "w", encoding="utf-8") as file:
            file.write(f"[libfuzzer]\nmax_len = {MAX_LEN.get(target, 1024)}\ntimeout = 10\n")
            if os.path.exists(os.path.join(HERE, "dict", target + ".dict")):
                file.write(f"dict = fuzz-{target}.dict\n")
                shutil.copy(os.path.join(HERE, "dict", target + ".dict"), os.path.join(options.dir, f"fuzz-{target}.dict"))
    return 0


# ---------------------------------------------------------------- coverage, limits


def cover(options):
    """Lines and branches of the parser files that the corpora alone reach."""
    made = os.path.join(ROOT, "build", "fuzzcov")
    make("VARIANT=fuzzcov", "variant-fuzzcov=gcc -O0 -g --coverage -DNDEBUG", "build/fuzzcov/bin/fuzz-replay")
    for folder, _, files in os.walk(made):
        for name in files:
            if name.endswith(".gcda"):
                os.unlink(os.path.join(folder, name))
    for target in TARGETS:
        replay_files([os.path.join(made, "bin", "fuzz-replay"), "--refuse"], target,
                     [os.path.join("fuzz", "corpus", target, n) for n in names(target)])
    report = subprocess.run(["gcovr", "-r", ROOT, "--object-directory", os.path.join(made, "obj", "engine"), "--filter", "engine/src/",
                             "--exclude-unreachable-branches", "--json-summary", "-", os.path.join(made, "obj", "engine")],
                            cwd=ROOT, capture_output=True, text=True, check=True)
    measured = {row["filename"]: {"lines": row["line_percent"],
                                  "branches": row["branch_percent"] if row["branch_total"] else 100.0}
                for row in json.loads(report.stdout)["files"] if os.path.basename(row["filename"])[:-2] in COVERED}
    with open(FLOORS, encoding="utf-8") as file:
        floors = json.load(file)
    if options.write:
        # A floor rises and never falls; it is a little lower than what was measured, for the next compiler's sake.
        floors = {name: {k: max(v - 1.0, LEAST[k], floors.get(name, LEAST)[k]) for k, v in row.items()}
                  for name, row in sorted(measured.items())}
        write_whole(FLOORS, (json.dumps(floors, indent=1) + "\n").encode())
    n_failed = len(set(floors) ^ set(measured)) + len(COVERED) - len(measured)
    for name, row in sorted(measured.items()):
        floor = {k: max(LEAST[k], floors.get(name, LEAST)[k]) for k in row}
        below = [f"{k} below {floor[k]:.1f}" for k in row if row[k] < floor[k]]
        n_failed += bool(below)
        print(f"{name:34} {row['lines']:5.1f} % of lines, {row['branches']:5.1f} % of branches" + "".join(f"  {w}" for w in below))
    print(f"{len(measured) - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


def measure_limits(options):
    return limits.main(replay_program("release"), options.write)


def list_targets(options):
    if options.names:
        print("\n".join(TARGETS))
        return 0
    manifest = read_manifest()
    for target in TARGETS:
        mine = [c for p, (_, c) in manifest.items() if p.startswith(target + "/")]
        size = sum(os.path.getsize(os.path.join(CORPUS, target, n)) for n in names(target))
        print(f"{target:12} {len(mine):5} seeds ({sum(c != 'found' for c in mine)} by rule), {size} bytes")
    return 0


def main(argv):
    p = argparse.ArgumentParser(prog="ol fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="command", required=True)
    actions = [("list", list_targets, []), ("run", run, ["target"]), ("replay", replay, ["targets"]),
               ("merge", merge, ["target"]), ("seeds", make_seeds, []), ("export", export, ["dir", "targets"]),
               ("cover", cover, []), ("selftest", selftest, []), ("limits", measure_limits, []), ("package", package, ["dir"])]
    # A target is a command of its own.
    if argv and argv[0] in TARGETS + ["all"]:
        argv = ["run", *argv]
    elif argv and not argv[0].startswith("-") and argv[0] not in [name for name, _, _ in actions]:
        nearest(argv[0], TARGETS + ["all"] + [name for name, _, _ in actions])
    for name, action, words in actions:
        s = sub.add_parser(name)
        s.set_defaults(action=action)
        for word in words:
            s.add_argument(word, **({"nargs": "*"} if word == "targets" else {}))
        if name == "run":
            s.add_argument("--seconds", type=int, default=60)
            s.add_argument("--jobs", type=int, default=1)
            s.add_argument("--runs", type=int, default=0)
            s.add_argument("--seed", type=int, default=1)
            s.add_argument("--lib")
        if name == "replay":
            s.add_argument("--variant")
            s.add_argument("--lib")
            s.add_argument("--valgrind", action="store_true")
            s.add_argument("--json", action="store_true")
        if name == "seeds":
            s.add_argument("--check", action="store_true")
        if name == "list":
            s.add_argument("--names", action="store_true")
        if name in ("limits", "cover"):
            s.add_argument("--write", action="store_true")
    options = p.parse_args(argv)
    return options.action(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
