"""Try `ol check --fresh`: right engines pass under five seeds, wrong ones fail, the same seed is the same run,
and an engine that knows the published answers by heart passes the published run only.

    fresh.py BUILD [NAME...]

BUILD holds bin/ol, bin/ol-host and lib/. Ends with `N passed, N failed, N skipped`.
"""

import concurrent.futures
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "conformance", "hostile")]
import hostile  # noqa: E402
import memo  # noqa: E402

BUILD = TOP = SHOP = None
TIMES = {"wall_ms", "cpu_ms", "max_rss_kb", "started", "judge", "sha256_of_lines"}


class Skip(Exception):
    """This machine cannot do it; the text says why."""


def want(condition, text):
    if not condition:
        raise AssertionError(text)


def ol(folder, *args, build=None, root=ROOT, before=(), **options):
    """Exit status, what was printed, the log's lines."""
    log = os.path.join(folder, "log.jsonl")
    done = subprocess.run([*before, os.path.join(build or BUILD, "bin", "ol"), "check", "L10.1", *args,
                           "-j", "1", "--report", "text", "--report", f"jsonl:{log}"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=900,
                          env={**os.environ, "OL_ROOT": root, "TMPDIR": folder}, **options)
    with open(log, encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    os.unlink(log)
    want([n for n in os.listdir(folder) if n.startswith("ol-")] == [], "a run's folder was left")
    return done.returncode, done.stdout, records


def classes(records):
    return {r["name"]: r["class"] for r in records if r["kind"] == "test"}


def want_pass(seed, status, text, records):
    want(status == 0 and set(classes(records).values()) == {"pass"}, f"exit {status}: {text}")
    want(len(classes(records)) == 24, f"{len(classes(records))} tests")
    mode = records[0]["mode"]
    want(mode["fresh_seed"] == str(seed), f"the log says seed {mode['fresh_seed']}")
    want(f"seed {seed}:" in text and "reference engine" in text, f"seed or source is not said: {text}")
    want(mode["fresh"]["second"] and 0 < mode["fresh"]["apart"] <= 0.25, f"the two engines: {mode['fresh']}")


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in TIMES}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def same_seed_is_the_same_run(folder):
    """Two logs differ in times alone, and no golden of theirs is a published one."""
    first, second = (ol(folder, "--fresh", "20417") for _ in range(2))
    want_pass(20417, *first)
    want(without_times(first[2]) == without_times(second[2]), "two runs of one seed have different logs")
    with open(os.path.join(ROOT, "goldens", "MANIFEST.json"), encoding="utf-8") as stream:
        published = {f["path"]: f["sha256"] for f in json.load(stream)["files"]}
    for golden in first[2][0]["goldens"]:
        want(golden["sha256"] != published.get(golden["path"]), f"{golden['path']} is the published one")


def draw(folder, name, *args):
    """What conformance/fresh/fresh.py draws: path below its folder -> bytes."""
    out = os.path.join(folder, name)
    engines = [os.path.join(BUILD, "lib", n) for n in ("libtl.so.1", "libtl-second.so")]
    # By the interpreter that the judge takes.
    subprocess.run(["/usr/bin/python3", os.path.join(ROOT, "conformance", "fresh", "fresh.py"), "--seed", "20417",
                    "--out", out, "--host", os.path.join(BUILD, "bin", "ol-host"), "--engine", engines[0],
                    "--second", engines[1], "--jobs", "1", *args], check=True, stdout=subprocess.DEVNULL)
    found = {}
    for path in glob.glob(f"{out}/**", recursive=True):
        if os.path.isfile(path):
            with open(path, "rb") as stream:
                found[os.path.relpath(path, out)] = stream.read()
    found.pop("MANIFEST.json")
    return found


def cases_of(folder, suite, model):
    """The cases of a model among drawn files."""
    groups = json.loads(folder[f"{suite}.vectors.json"])["groups"]
    return next(group["cases"] for group in groups if group["name"] == model)


def a_part_is_that_part_of_the_whole(folder):
    """A selection draws what it reads and no more, as the whole draws it, and one case of a model this model alone."""
    whole = draw(folder, "whole", "--suites", "rng,f16,logits,greedy")
    part = draw(folder, "part", "--suites", "f16")
    want(set(part) == {"f16.vectors.json", "models/bigram/config.json", "models/bigram/model.safetensors"},
         f"f16 alone: {sorted(part)}")
    one = draw(folder, "one", "--suites", "greedy", "--case", "mha-f16-9999")
    want({path.split("/")[1] for path in one if "/" in path} == {"bigram", "mha-f16"}, f"one model: {sorted(one)}")
    want(cases_of(one, "greedy", "mha-f16") == cases_of(whole, "greedy", "mha-f16"), "its cases are other ones")
    one.pop("greedy.vectors.json")
    for path, data in {**part, **one}.items():
        want(whole[path] == data, f"{path} is another one in the whole")
    for args, suites, n_models in ((["--only", "f16_*"], ["f16"], 1), (["--only", "hand_*"], [], 1),
                                   (["--case", "tiny_llama_logits_match_hf:mha-f16-1"], ["logits"], 2)):
        status, text, records = ol(folder, "--fresh", "20417", *args)
        drawn = [golden["suite"] for golden in records[0]["goldens"] if "suite" in golden]
        want(status == 0 and drawn == suites, f"{args}: exit {status}, drawn {drawn}: {text}")
        want(records[0]["mode"]["fresh"]["models"] == n_models, f"{args}: {records[0]['mode']['fresh']}")
        want(("no model was needed" in text) == (n_models == 1), f"{args}: {text}")


def seeds(*some):
    def check(folder):
        """A right engine that adds in another order."""
        for seed in some:
            want_pass(seed, *ol(folder, f"--fresh={seed}", "--engine", os.path.join(BUILD, "lib", "libtl-second.so")))
    check.__name__ = "right_engine_passes_" + "_".join(map(str, some))
    return check


def ordinary_user(folder):
    """A seed of its own choice, which the log tells, in a tree that belongs to somebody else."""
    if os.geteuid() != 0:
        raise Skip("only root can become somebody else; the other runs were an ordinary user's")
    os.chmod(folder, 0o777)
    tree = copy_tree(folder, "libtl-second.so")
    status, text, records = ol(folder, "--fresh", build=os.path.join(tree, "build", "release"), root=tree,
                               preexec_fn=hostile.become_user)
    want_pass(int(records[0]["mode"]["fresh_seed"]), status, text, records)


def copy_tree(folder, second):
    """What a run needs, with `second` as the second engine."""
    tree = os.path.join(folder, "tree")
    for part in ("conformance/catalog.json", "conformance/fresh", "goldens"):
        target = os.path.join(tree, part)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        (shutil.copytree if os.path.isdir(os.path.join(ROOT, part)) else shutil.copy)(os.path.join(ROOT, part), target)
    for part in ("bin/ol", "bin/ol-host", "lib/libtl.so.1"):
        target = os.path.join(tree, "build", "release", part)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(os.path.join(BUILD, part), target)
    shutil.copy(os.path.join(BUILD, "lib", second), os.path.join(tree, "build", "release", "lib", "libtl-second.so"))
    subprocess.run(["chmod", "-R", "a+rX", tree], check=True)
    return tree


def engines_that_never_agree(folder):
    """No drawing is kept: exit 5, and not the fault of the engine that is judged."""
    wrong = SHOP.make({"kind": "wrong", "id": "wrong_logits"})[1]
    tree = copy_tree(folder, wrong)
    status, text, records = ol(folder, "--fresh", "1", build=os.path.join(tree, "build", "release"), root=tree)
    want(status == 5 and records[-1]["exit_code"] == 5, f"exit {status}: {text}")
    want("bounds apart" in text and "not the engine's fault" in text, text)


def wrong_engine_fails(folder):
    """Wrong in int4 alone; the line that the report gives replays the failure."""
    engine = SHOP.make({"kind": "wrong", "id": "wrong_int4"})[1]
    status, text, records = ol(folder, "--engine", engine, "--fresh", "3", "--only", "int4_hand_example")
    want(status == 1 and classes(records) == {"int4_hand_example": "fail"}, f"exit {status}: {text}")
    record = next(r for r in records if r["kind"] == "test")
    want("--fresh 3" in record["replay"], record["replay"])
    first = record["cause"]["first_divergence"]
    status, text, records = ol(folder, *record["replay"].split()[3:])
    again = next(r for r in records if r["kind"] == "test")["cause"]["first_divergence"]
    want(status == 1 and (again["got"], again["want"]) == (first["got"], first["want"]), f"replay: {text}")


def learn(folder):
    """The testee that answers by heart: record a run of the published goldens, join what was recorded."""
    parts, school, exam = (os.path.join(folder, n) for n in ("parts", "school", "exam"))
    for name in (parts, school, exam):
        os.mkdir(name)
    os.chmod(folder, 0o755)
    os.chmod(parts, 0o777)
    for name in ("bin/ol-host", "lib/libtl.so.1"):
        shutil.copy(os.path.join(BUILD, name), school)
    for target in (school, exam):
        shutil.copy(memo.__file__, target)
    with open(os.path.join(school, "record"), "w", encoding="utf-8") as out:
        out.write(f"{school}/ol-host\n{school}/libtl.so.1\n{parts}\n")
    subprocess.run(["chmod", "-R", "a+rX", school, exam], check=True)
    # Outside of the cage, which would let nothing be written down.
    status, text, _ = ol(folder, "--testee", f"{school}/memo.py", before=[SHOP.path("without")])
    want(status == 0, f"the recorded run ended with {status}: {text}")
    known = {}
    with open(f"{exam}/answers", "wb") as answers:
        for path in sorted(glob.glob(f"{parts}/*")):
            with open(path, "rb") as stream:
                while entry := stream.read(memo.ENTRY.size):
                    key, _, size = memo.ENTRY.unpack(entry)
                    answer = stream.read(size)
                    if key not in known:
                        known[key] = answers.tell(), size
                        answers.write(answer)
    with open(f"{exam}/index", "wb") as index:
        index.write(b"".join(memo.ENTRY.pack(key, *place) for key, place in known.items()))
    return f"{exam}/memo.py"


def answers_by_heart(folder):
    """24 of 24 of the published run without an engine; the fresh run finds it out."""
    testee = learn(folder)
    status, text, records = ol(folder, "--testee", testee)
    want(status == 0 and list(classes(records).values()) == ["pass"] * 24, f"published: exit {status}: {text}")
    status, text, records = ol(folder, "--testee", testee, "--fresh", "8")
    failed = [name for name, cls in classes(records).items() if cls != "pass"]
    want(status == 1 and len(classes(records)) == 24, f"fresh: exit {status}: {text}")
    with open(os.path.join(ROOT, "conformance", "catalog.json"), encoding="utf-8") as stream:
        for test in json.load(stream)["tests"]:
            if test["suites"] or test["name"].startswith(("bigram", "incremental", "batched", "run_once", "forward")):
                want(test["name"] in failed, f"{test['name']} passes without an engine")


def interruption(folder):
    """Whoever ends the judge while it draws does not wait for the drawing, and nothing is left of it."""
    seed = str(os.getpid())
    with subprocess.Popen([os.path.join(BUILD, "bin", "ol"), "check", "L10.1", "--fresh", seed], text=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          env={**os.environ, "OL_ROOT": ROOT, "TMPDIR": folder}) as child:
        while not glob.glob(f"{folder}/ol-*/fresh/*"):
            want(child.poll() is None, "it did not draw")
            time.sleep(0.05)
        began = time.monotonic()
        child.terminate()
        said = child.stderr.read()
        want(child.wait() == 70 and "SIGTERM" in said, f"exit {child.returncode}: {said}")
    want(time.monotonic() - began < 5, f"it went on for {time.monotonic() - began:.1f} s")
    want(not glob.glob(f"{folder}/ol-*"), "its folder was left")
    left = subprocess.run(["pgrep", "-f", f"fresh.py --seed {seed} "], stdout=subprocess.PIPE, text=True).stdout
    want(not left, f"a drawing goes on: {left}")


def goldens_that_are_not_there(folder):
    """A course that ships without what is drawn from: the staff's fault."""
    tree = copy_tree(folder, "libtl-second.so")
    shutil.rmtree(os.path.join(tree, "goldens", "gen"))
    status, text, _ = ol(folder, "--fresh", build=os.path.join(tree, "build", "release"), root=tree)
    want(status == 5 and "goldens/gen" in text, f"exit {status}: {text}")


def usage(folder):
    for word in ("4294967296", "-1", "x"):
        done = subprocess.run([os.path.join(BUILD, "bin", "ol"), "check", "L10.1", f"--fresh={word}"],
                              stderr=subprocess.PIPE, text=True, cwd=folder)
        want(done.returncode == 2 and "seed" in done.stderr, f"--fresh={word}: {done.returncode}: {done.stderr}")


CASES = [same_seed_is_the_same_run, a_part_is_that_part_of_the_whole, seeds(1), seeds(2, 4294967295),
         ordinary_user, answers_by_heart, engines_that_never_agree, wrong_engine_fails, interruption,
         goldens_that_are_not_there, usage]


def attempt(case):
    """"passed", "skipped ..." or "FAIL ..."."""
    folder = tempfile.mkdtemp(prefix="case.", dir=TOP)
    os.chmod(folder, 0o755)    # a root judge works only where its engines may come, too
    try:
        case(folder)
    except Skip as why:
        return f"skipped {case.__name__}: {why}"
    except Exception as fault:  # noqa: BLE001  whatever it is, the others go on
        return f"FAIL {case.__name__}: {type(fault).__name__}: {fault}"
    return "passed"


def main(argv):
    global BUILD, TOP, SHOP
    BUILD = os.path.abspath(argv[0])
    chosen = [c for c in CASES if len(argv) == 1 or c.__name__ in argv[1:]]
    with tempfile.TemporaryDirectory(prefix="ol-self.") as TOP:
        os.chmod(TOP, 0o755)
        SHOP = hostile.Workshop(BUILD, TOP)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            ends = list(pool.map(attempt, chosen))
    for end in ends:
        if end != "passed":
            print(end)
    n_failed = sum(end.startswith("FAIL") for end in ends)
    n_skipped = sum(end.startswith("skipped") for end in ends)
    print(f"{len(ends) - n_failed - n_skipped} passed, {n_failed} failed, {n_skipped} skipped")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
