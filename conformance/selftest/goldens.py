"""Break a goldens folder in every way that the page forbids: exit 5, with the file and the key path.

    goldens.py BUILD

Each case copies a small folder of the goldens (one file a suite and one model), breaks one thing, makes
the manifest right again where the manifest is not what is broken, and asks `ol golden verify`. The
unbroken copy is good, so every refusal is for the fault alone. A few are asked of `ol check` too: nothing
is graded then. Ends with `N passed, N failed`.
"""

import copy
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SHA = "0" * 64


class Folder:
    """A goldens folder in memory: name -> JSON value or bytes."""

    def __init__(self, files):
        self.files = files
        self.manifest = None
        self.after = None  # called with the path once everything is written

    def write(self, path):
        entries = []
        for name, value in sorted(self.files.items()):
            data = value if isinstance(value, bytes) else (json.dumps(value, indent=2) + "\n").encode()
            target = os.path.join(path, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as out:
                out.write(data)
            entries.append({"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(),
                            "generator": "gen/test.py", "args": ["--seed", "1"]})
        manifest = {"schema": "ol.manifest/1", "files": entries}
        if self.manifest:
            manifest = self.manifest(manifest)
        if manifest is not None:
            text = manifest if isinstance(manifest, bytes) else (json.dumps(manifest, indent=2) + "\n").encode()
            with open(os.path.join(path, "MANIFEST.json"), "wb") as out:
                out.write(text)
        if self.after:
            self.after(path)


def small(doc, n=2):
    """The first cases of each group, with the twins they need, and the notes that are used."""
    doc = copy.deepcopy(doc)
    by_id = {c["id"]: c for g in doc["groups"] for c in g["cases"]}
    keep = {c["id"] for g in doc["groups"] for c in g["cases"][:n]}
    keep |= {by_id[i]["twin"] for i in list(keep) if "twin" in by_id[i]}
    for group in doc["groups"]:
        group["cases"] = [c for c in group["cases"] if c["id"] in keep]
    doc["groups"] = [g for g in doc["groups"] if g["cases"]]
    flags = {f for g in doc["groups"] for c in g["cases"] for f in c["flags"]}
    doc["notes"] = {k: v for k, v in doc["notes"].items() if k in flags}
    doc["n_cases"] = sum(len(g["cases"]) for g in doc["groups"])
    return doc


def load():
    folder = os.path.join(ROOT, "goldens")
    files = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.endswith(".json") and name not in ("MANIFEST.json", "libm.probe.json"):
            with open(path, encoding="utf-8") as stream:
                doc = json.load(stream)
            files[doc["suite"] + ".json"] = small(doc)
    model = sorted(os.listdir(os.path.join(folder, "models")))[0]
    for suite in ("logits.json", "greedy.json"):
        for group in files[suite]["groups"]:
            for case in group["cases"]:
                case["model"] = "models/" + model
    for name in os.listdir(os.path.join(folder, "models", model)):
        with open(os.path.join(folder, "models", model, name), "rb") as stream:
            files[f"models/{model}/{name}"] = stream.read()
    with open(os.path.join(folder, "libm.probe.json"), encoding="utf-8") as stream:
        files["libm.probe.json"] = json.load(stream)
    return files, model


def case_of(folder, suite, key=None, group=None):
    """The first case of a suite's file that has the key."""
    for g in folder.files[suite + ".json"]["groups"]:
        for c in g["cases"]:
            if (key is None or key in c) and (group is None or g["name"] == group):
                return c
    raise KeyError((suite, key, group))


CASES = []


def broken(*says):
    """Register a way to break a folder; the words that the refusal must have."""
    def register(function):
        CASES.append((function.__name__, function, says))
        return function
    return register


# ------------------------------------------------------------------------------ the manifest

@broken("MANIFEST.json")
def no_manifest(f):
    f.manifest = lambda m: None


@broken("MANIFEST.json", "line")
def manifest_is_no_json(f):
    f.manifest = lambda m: b"{ \n"


@broken("MANIFEST.json", "ol.manifest/1")
def manifest_of_another_schema(f):
    f.manifest = lambda m: {**m, "schema": "ol.manifest/2"}


@broken("MANIFEST.json")
def manifest_with_another_key(f):
    f.manifest = lambda m: {**m, "more": 1}


def entry(**change):
    def apply(m):
        m["files"][0].update(change)
        return m
    return apply


@broken("f16.json", "sha256")
def wrong_hash(f):
    f.manifest = lambda m: {**m, "files": [dict(e, sha256=SHA) if e["path"] == "f16.json" else e
                                           for e in m["files"]]}


@broken("config.json", "bytes")
def wrong_size(f):
    f.manifest = lambda m: {**m, "files": [dict(e, bytes=1) if e["path"] == "config.json" else e
                                           for e in m["files"]]}


@broken("files[0].sha256")
def hash_is_no_hex(f):
    f.manifest = entry(sha256="x" * 64)


@broken("files[0].sha256")
def hash_in_capitals(f):
    f.manifest = lambda m: entry(sha256=m["files"][0]["sha256"].upper())(m)


@broken("files[0].bytes")
def negative_size(f):
    f.manifest = entry(bytes=-1)


@broken("files[0].path")
def path_leaves_the_folder(f):
    f.manifest = entry(path="../x")


@broken("files[0].generator")
def generator_leaves_the_folder(f):
    f.manifest = entry(generator="/usr/bin/env")


@broken("files[0].args")
def args_of_numbers(f):
    f.manifest = entry(args=[1])


@broken("files[0]")
def entry_with_another_key(f):
    f.manifest = entry(more=1)


@broken("MANIFEST.json", "order")
def manifest_out_of_order(f):
    f.manifest = lambda m: {**m, "files": m["files"][::-1]}


@broken("MANIFEST.json")
def entry_twice(f):
    f.manifest = lambda m: {**m, "files": [m["files"][0], *m["files"]]}


@broken("kv.json", "does not list")
def missing_entry(f):
    f.manifest = lambda m: {**m, "files": [e for e in m["files"] if e["path"] != "kv.json"]}


@broken("kv.json", "not there")
def missing_file(f):
    f.after = lambda path: os.unlink(os.path.join(path, "kv.json"))


@broken("stray.txt", "does not list")
def stray_file(f):
    f.after = lambda path: open(os.path.join(path, "stray.txt"), "w", encoding="utf-8").close()


@broken("models", "not there")
def missing_model_file(f):
    f.after = lambda path: shutil.rmtree(os.path.join(path, "models"))


@broken("link.json")
def link_in_the_folder(f):
    f.after = lambda path: os.symlink("f16.json", os.path.join(path, "link.json"))


@broken("f16.json", "sha256")
def changed_byte(f):
    def change(path):
        with open(os.path.join(path, "f16.json"), "r+b") as stream:
            stream.seek(200)
            byte = stream.read(1)
            stream.seek(200)
            stream.write(bytes([byte[0] ^ 1]))
    f.after = change


# ------------------------------------------------------------------------------ the file

@broken("f16.json", "line")
def truncated_file(f):
    f.files["f16.json"] = (json.dumps(f.files["f16.json"], indent=2) + "\n").encode()[:500]


@broken("f16.json", "newline")
def no_last_newline(f):
    f.files["f16.json"] = json.dumps(f.files["f16.json"], indent=2).encode()


@broken("f16.json", "line 1")
def byte_order_mark(f):
    f.files["f16.json"] = b"\xef\xbb\xbf" + (json.dumps(f.files["f16.json"]) + "\n").encode()


@broken("f16.json")
def not_utf8(f):
    text = json.dumps(f.files["f16.json"]).replace('"comment": "', '"comment": "@@', 1) + "\n"
    f.files["f16.json"] = text.encode().replace(b"@@", b"\xff\xfe")


@broken("f16.json", "duplicate")
def duplicate_key(f):
    text = json.dumps(f.files["f16.json"]) + "\n"
    f.files["f16.json"] = text.replace('"suite": "f16"', '"suite": "f16", "suite": "f16"').encode()


@broken("f16.json", "duplicate")
def duplicate_key_in_a_case(f):
    text = json.dumps(f.files["f16.json"]) + "\n"
    f.files["f16.json"] = text.replace('"flags": ', '"flags": [], "flags": ', 1).encode()


@broken("f16.json", "more")
def unknown_key(f):
    f.files["f16.json"]["more"] = 1


@broken("f16.json", "reference")
def missing_key(f):
    del f.files["f16.json"]["reference"]


@broken("f16.json", "order")
def keys_out_of_order(f):
    doc = f.files["f16.json"]
    f.files["f16.json"] = {k: doc[k] for k in ("suite", "schema", *list(doc)[2:])}


@broken("f16.json", "schema")
def another_schema(f):
    f.files["f16.json"]["schema"] = "ol.vectors/2"


@broken("f16.json", "suite")
def unknown_suite(f):
    f.files["f16.json"]["suite"] = "f32"


@broken("f16.json", "n_cases")
def wrong_count(f):
    f.files["f16.json"]["n_cases"] += 1


@broken("f16.json", "groups", "no group")
def no_groups(f):
    f.files["f16.json"].update(groups=[], notes={}, n_cases=0)


@broken("f16.json", "groups[0].cases", "no case")
def group_without_cases(f):
    f.files["f16.json"]["groups"].insert(0, {"name": "empty", "cases": []})


@broken("f16.json", "n_cases")
def count_is_text(f):
    f.files["f16.json"]["n_cases"] = str(f.files["f16.json"]["n_cases"])


@broken("f16.json", "generator.libraries.python")
def library_is_a_number(f):
    f.files["f16.json"]["generator"]["libraries"] = {"python": 3}


@broken("f16.json", "generator.version")
def no_generator_version(f):
    del f.files["f16.json"]["generator"]["version"]


@broken("f16.json", "tolerance.mode")
def unknown_mode(f):
    f.files["f16.json"]["tolerance"]["mode"] = "about"


@broken("f16.json", "tolerance.bound")
def bound_is_a_number(f):
    f.files["f16.json"]["tolerance"]["bound"] = 0.001


@broken("f16.json", "flags", "has no note")
def flag_without_a_note(f):
    case_of(f, "f16")["flags"] = [*case_of(f, "f16")["flags"], "new-flag"]


@broken("f16.json", "notes.unused", "no case")
def note_without_a_case(f):
    f.files["f16.json"]["notes"]["unused"] = {"bug": "", "effect": "", "mutants": [], "links": []}


@broken("f16.json", "notes.", "mutants")
def note_without_mutants(f):
    doc = f.files["f16.json"]
    flag = next(iter(doc["notes"]))
    del doc["notes"][flag]["mutants"]


@broken("f16.json", "name", "twice")
def group_twice(f):
    f.files["f16.json"]["groups"].append({"name": f.files["f16.json"]["groups"][0]["name"], "cases": []})


@broken("f16.json", ".id", "twice")
def id_twice(f):
    group = f.files["f16.json"]["groups"][0]
    group["cases"].append(copy.deepcopy(group["cases"][0]))
    f.files["f16.json"]["n_cases"] += 1


@broken("f16.json", "comment")
def case_without_a_comment(f):
    del case_of(f, "f16")["comment"]


@broken("f16.json", "cases[0]", "hint")
def unknown_key_in_a_case(f):
    case_of(f, "f16")["hint"] = "1"


@broken("rng.json", "cases[0]", "value")
def key_of_another_group(f):
    case_of(f, "rng", group="next_u32")["value"] = "0" * 16


@broken("rng.json", "group")
def unknown_group(f):
    f.files["rng.json"]["groups"][0]["name"] = "next_u33"


# ------------------------------------------------------------------------------ values

@broken("f16.json", ".f32[0]")
def capital_hex(f):
    case_of(f, "f16")["f32"][0] = "3F800000"


@broken("f16.json", ".f32[0]")
def short_hex(f):
    case_of(f, "f16")["f32"][0] = "3f80000"


@broken("f16.json", ".f32[0]")
def hex_with_a_prefix(f):
    case_of(f, "f16")["f32"][0] = "0x3f8000"


@broken("f16.json", ".f32[0]")
def hex_is_a_number(f):
    case_of(f, "f16")["f32"][0] = 1


@broken("f16.json", "same length")
def another_length(f):
    case_of(f, "f16")["f16"].pop()


@broken("rng.json", ".seed")
def seed_is_a_number(f):
    case_of(f, "rng")["seed"] = 42


@broken("sampler.json", ".params.top_k")
def negative_count(f):
    case_of(f, "sampler")["params"]["top_k"] = -1


@broken("sampler.json", ".params.min_p")
def missing_parameter(f):
    del case_of(f, "sampler")["params"]["min_p"]


@broken("sampler.json", ".params.extra")
def unknown_parameter(f):
    case_of(f, "sampler")["params"]["extra"] = 1


@broken("sampler.json", ".steps[0].logprob")
def step_without_a_logprob(f):
    del case_of(f, "sampler")["steps"][0]["logprob"]


@broken("sampler.json", "steps")
def step_without_logits(f):
    case_of(f, "sampler")["steps"][0].pop("logits")


@broken("sampler.json", "logits_of")
def step_repeats_a_later_one(f):
    step = case_of(f, "sampler")["steps"][0]
    step.pop("logits")
    step["logits_of"] = 0


@broken("sampler.json", "vocabulary")
def id_past_the_vocabulary(f):
    case_of(f, "sampler")["steps"][0]["id"] = 4000000


@broken("int4.json", ".q[0]")
def q_out_of_range(f):
    case_of(f, "int4", "scales")["q"][0] = 8


@broken("int4.json", ".qweight")
def odd_bytes(f):
    case_of(f, "int4", "scales")["qweight"] += "0"


@broken("int4.json", "elements")
def weights_of_another_shape(f):
    case_of(f, "int4", "scales")["n_out"] += 1


@broken("linear.json", ".dtype")
def unknown_dtype(f):
    case_of(f, "linear")["dtype"] = "f64"


@broken("linear.json", "elements")
def x_of_another_shape(f):
    case_of(f, "linear")["m"] += 1


@broken("logits.json", "model")
def model_that_is_not_there(f):
    case_of(f, "logits")["model"] = "models/none"


@broken("logits.json", "model")
def model_outside(f):
    case_of(f, "logits")["model"] = "../models"


@broken("logits.json", "prompt")
def empty_prompt(f):
    case_of(f, "logits")["prompt"] = []


@broken("greedy.json", "32")
def too_few_tokens(f):
    case_of(f, "greedy")["tokens"].pop()


@broken("greedy.json", ".top_ids[3]")
def top_ids_of_text(f):
    case_of(f, "greedy")["top_ids"][3] = "a"


@broken("greedy.json", "five")
def four_best(f):
    case_of(f, "greedy")["top_logits"][31].pop()


@broken("kv.json", ".blocks[0].key")
def short_key(f):
    case_of(f, "kv", "blocks")["blocks"][0]["key"] = "00"


@broken("kv.json", ".cached[0]")
def kv_cached_key_too_short(f):
    case_of(f, "kv", group="adopted")["cached"] = ["00"]


@broken("kv.json", "slab")
def short_slab(f):
    case_of(f, "kv", "blocks")["blocks"][0]["layers"][0]["k"].pop()


@broken("kv.json", ".config.prefix_cache")
def boolean_is_a_number(f):
    case_of(f, "kv")["config"]["prefix_cache"] = 1


@broken("kv.json", ".twin")
def twin_that_is_not_there(f):
    case_of(f, "kv", group="refused")["twin"] = "nobody"


@broken("kv.json", ".twin")
def twin_that_is_refused(f):
    case = case_of(f, "kv", group="refused")
    case["twin"] = case["id"]


@broken("kv.json", ".status")
def no_status(f):
    case_of(f, "kv", group="refused")["status"] = []


@broken("kv.json", ".status[0]")
def unknown_status(f):
    case_of(f, "kv", group="refused")["status"] = ["TL_ERR_FORMAT"]


@broken("safetensors.json", ".file[0]")
def unknown_piece(f):
    case_of(f, "safetensors", "file")["file"][0] = {"base64": "AA=="}


@broken("safetensors.json", ".file[0]")
def piece_with_two_contents(f):
    case_of(f, "safetensors", "file")["file"][0] = {"hex": "00", "text": "a"}


@broken("safetensors.json", ".file[0]")
def byte_without_a_count(f):
    case_of(f, "safetensors", "file")["file"][0] = {"byte": 0}


@broken("safetensors.json", ".rule")
def unknown_rule(f):
    case_of(f, "safetensors")["rule"] = 99


@broken("safetensors.json", ".verdict")
def unknown_verdict(f):
    case_of(f, "safetensors")["verdict"] = "maybe"


@broken("safetensors.json", "status and twin")
def refusal_without_a_twin(f):
    for group in f.files["safetensors.json"]["groups"]:
        for case in group["cases"]:
            if case["verdict"] == "refuse":
                del case["twin"]
                return


@broken("safetensors.json", "tensors")
def accepted_without_tensors(f):
    del case_of(f, "safetensors", "tensors")["tensors"]


@broken("config.json", ".parsed.depth")
def unknown_field(f):
    case_of(f, "config", "parsed")["parsed"]["depth"] = 1


@broken("config.json", "parsed")
def accepted_without_fields(f):
    del case_of(f, "config", "parsed")["parsed"]


# ------------------------------------------------------------------------------ the probe

@broken("libm.probe.json", "cannot be judged bit for bit")
def another_libm(f):
    y = f.files["libm.probe.json"]["exp"]["y"]
    y[0] = f"{int(y[0], 16) ^ 1:016x}"


@broken("libm.probe.json", "log")
def probe_of_other_length(f):
    f.files["libm.probe.json"]["log"]["y"].pop()


@broken("libm.probe.json", "schema")
def probe_of_another_schema(f):
    f.files["libm.probe.json"]["schema"] = "ol.probe/2"


# ------------------------------------------------------------------------------ the run

def ask(build, command, folder):
    done = subprocess.run([os.path.join(build, "bin", "ol"), *command, "--goldens", folder],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "OL_ROOT": ROOT}, timeout=120)
    return done.returncode, done.stdout


def main(argv):
    build = os.path.abspath(argv[0])
    files, _ = load()
    passed, faults = 0, []

    def expect(name, condition, text):
        nonlocal passed
        if condition:
            passed += 1
        else:
            faults.append(f"{name}: {text.strip()[-400:]}")

    with tempfile.TemporaryDirectory(prefix="ol-goldens.") as top:
        good = os.path.join(top, "good")
        os.mkdir(good)
        Folder(copy.deepcopy(files)).write(good)
        status, text = ask(build, ["golden", "verify"], good)
        expect("unbroken", status == 0 and "good" in text, text)
        status, text = ask(build, ["golden", "show"], good)
        expect("shown", status == 0 and "f16.json" in text, text)
        for name, change, says in CASES:
            path = os.path.join(top, name)
            os.mkdir(path)
            folder = Folder(copy.deepcopy(files))
            change(folder)
            folder.write(path)
            status, text = ask(build, ["golden", "verify"], path)
            lacking = [word for word in says if word not in text]
            expect(name, status == 5 and not lacking, f"exit {status}, without {lacking}: {text}")
            if name in ("wrong_hash", "unknown_key_in_a_case", "missing_model_file"):
                status, text = ask(build, ["check", "L10.1", "--only", "f16*"], path)
                expect(name + " (check)", status == 5 and "0 of 24 tests ran" in text, f"exit {status}: {text}")
            shutil.rmtree(path)
    for fault in faults:
        print("FAIL " + fault)
    print(f"{passed} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
