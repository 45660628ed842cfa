#!/usr/bin/python3
"""Does the mutant runner say the truth? Each way in which a mutant, a test or a shard can be wrong is made and must be
named; ends with `N passed, N failed, N skipped`.

  test_mutants.py [--build DIR] [unittest arguments]

Needs a build (make all). Mutants are made here from the engine's own source, so that the suite does not depend on the
patches of the folder except where it looks at them.

Standard library only.
"""
import concurrent.futures
import contextlib
import copy
import difflib
import html.parser
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import build as build_module  # noqa: E402
import catalog  # noqa: E402
import cells  # noqa: E402
import corpus  # noqa: E402
import diagnose  # noqa: E402
import fingerprint  # noqa: E402
import mutants  # noqa: E402
import operators  # noqa: E402
import page  # noqa: E402
import report  # noqa: E402
import survivors  # noqa: E402
import verdict  # noqa: E402
from catalog import ROOT, read  # noqa: E402

BUILD = os.path.join(ROOT, "build", "release")
CACHE = os.path.join(ROOT, "build", "mutants")
NUCLEUS = "top_p_keeps_the_crossing_token"


def run(*args, **kwargs):
    command = [os.path.join(BUILD, "bin", "ol"), "mutants", "--build", BUILD, "-j", "2", *args]
    return subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, **kwargs)


class Folder:
    """A catalogue of its own, of mutants that are given as edits of the engine's sources."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="mutants-test-")
        self.cache = os.path.join(self.path, "cache")
        os.makedirs(self.cache)
        if os.path.isdir(os.path.join(CACHE, "obj")):  # objects of the engine are the same; cells are not shared
            os.symlink(os.path.join(CACHE, "obj"), os.path.join(self.cache, "obj"))
        self.rows = []

    def add(self, name, file, old, new, killer, checks, source=None):
        source = source or read(os.path.join(ROOT, file))
        assert source.count(old) == 1, (name, source.count(old))
        after = source.replace(old, new)
        diff = "".join(difflib.unified_diff(source.splitlines(True), after.splitlines(True), "a/" + file, "b/" + file))
        row = {"id": name, "title": f"test {name}", "file": file, "patch": f"{name}_test.patch", "killer": killer,
               "checks": checks, "pitfall": "p", "symptom": "s", "clause": "sampling#8", "family": "f", "links": []}
        head = "".join(f"{key}: {row[key]}\n" for key in ("id", "title", "clause", "killer", "symptom"))
        with open(os.path.join(self.path, row["patch"]), "w", encoding="utf-8") as out:
            out.write(head + "\n" + diff)
        self.rows.append(row)
        return self

    def save(self):
        with open(os.path.join(self.path, "catalog.json"), "w", encoding="utf-8") as out:
            json.dump({"schema": "ol.mutants/1", "mutants": self.rows}, out)
        return self

    def run(self, *args):
        out = os.path.join(self.path, "matrix.json")
        if os.path.exists(out):
            os.unlink(out)
        done = run("--catalog", self.path, "--cache", self.cache, "--report", f"json:{out}", "--report", "text", *args)
        matrix = json.loads(read(out)) if os.path.exists(out) else None
        return done, matrix


def reached(folder):
    """The nucleus walk that stops too late: a mutant that is killed."""
    return folder.add("s04", "engine/src/sample.c", "const bool reached = c >= p;", "const bool reached = c > p;",
                      NUCLEUS, ["exact_half"])


class Base(unittest.TestCase):
    def setUp(self):
        self.folder = Folder()
        self.addCleanup(shutil.rmtree, self.folder.path)

    def verdict_of(self, done, matrix):
        self.assertIsNotNone(matrix, done.stdout)
        return matrix["mutants"][0]


class Verdicts(Base):
    def test_killed(self):
        done, matrix = reached(self.folder).save().run()
        row = self.verdict_of(done, matrix)
        self.assertEqual((row["verdict"], done.returncode), ("killed", 0), done.stdout)
        self.assertEqual(row["check"], NUCLEUS + ".exact_half")
        self.assertEqual((row["got"], row["wanted"]), ("2 elements", "1 elements"))
        self.assertRegex(done.stdout, r"s04 +sample\.c:\d+ +killed +top_p\S+exact_half +2 elements +1 elements")

    def one(self, word, *edit, code=6):
        done, matrix = self.folder.add("x99", *edit).save().run()
        row = self.verdict_of(done, matrix)
        self.assertEqual((row["verdict"], done.returncode), (word, code), done.stdout)
        self.assertIn(f"x99 {word}", done.stdout)
        return row

    def test_survived(self):
        self.one("survived", "engine/src/sample.c", "#define EXP_REACH 746.0", "#define EXP_REACH 747.0", NUCLEUS,
                 ["exact_half"])

    def test_killed_by_another_test(self):
        row = self.one("killed-by-other", "engine/src/kv.c", 'TL_ERR_NOT_FOUND, "kv lookup: no block',
                       'TL_ERR_STATE, "kv lookup: no block', NUCLEUS, ["exact_half"])
        self.assertIn("kv_pool_bounds_and_cache_lifecycle", row["why"])

    def test_crash(self):
        row = self.one("crash", "engine/src/sample.c", "    double c = 0.0;\n    uint32_t last_with_mass",
                       "    double c = *(volatile double *)(uintptr_t)(s->n_kept & 0);\n    uint32_t last_with_mass",
                       NUCLEUS, ["exact_half"])
        self.assertIn("SIGSEGV", row["why"])

    def test_same_object(self):
        self.one("same-object", "engine/src/sample.c", "const bool reached = c >= p;", "const bool reached = p <= c;",
                 NUCLEUS, ["exact_half"])

    def test_does_not_build(self):
        row = self.one("does-not-build", "engine/src/sample.c", "const bool reached = c >= p;",
                       "const bool reached = c >= p;\n        int unused;", NUCLEUS, ["exact_half"])
        self.assertIn("unused", row["why"])

    def test_stale(self):
        source = "/* another line */\n" + read(os.path.join(ROOT, "engine/src/sample.c"))
        row = self.one("patch-stale", "engine/src/sample.c", "const bool reached = c >= p;",
                       "const bool reached = c > p;", NUCLEUS, ["exact_half"], source)
        self.assertIn("does not fit", row["why"])
        done = run("--catalog", self.folder.path, "refresh")
        self.assertIn("x99: moved", done.stdout)
        done, matrix = self.folder.run()
        self.assertEqual(matrix["mutants"][0]["verdict"], "killed", done.stdout)

    def test_killed_elsewhere(self):
        row = self.one("killed-elsewhere", "engine/src/sample.c", "const bool reached = c >= p;",
                       "const bool reached = c > p;", NUCLEUS, ["exact_half", "p_zero_keeps_one"])
        self.assertIn("p_zero_keeps_one", row["why"])


class Judged(Base):
    """The judge is wrapped, or built from a weakened test."""

    def wrapped(self, code):
        """Run ol and then change its log by some lines of Python over `test` records."""
        path = os.path.join(self.folder.path, "wrap.py")
        with open(path, "w", encoding="utf-8") as out:
            out.write("import json, subprocess, sys, os\nargs = sys.argv[1:]\ndone = subprocess.run(args)\n"
                      "log = args[args.index('--report') + 1].removeprefix('jsonl:')\n"
                      "lines = [json.loads(l) for l in open(log)]\nfor t in lines:\n    if t['kind'] == 'test':\n"
                      + "".join(f"        {line}\n" for line in code.splitlines())
                      + "open(log, 'w').write(''.join(json.dumps(l) + '\\n' for l in lines))\n"
                      "sys.exit(done.returncode)\n")
        return f"/usr/bin/python3 {path}"

    def test_red_baseline(self):
        wrap = self.wrapped("t['class'] = 'fail'; t['cause'] = {'check': 'x.y', 'rationale': ''}")
        done, matrix = reached(self.folder).save().run("--wrap", wrap)
        self.assertEqual(done.returncode, 7, done.stdout)
        self.assertIn("the unmutated engine does not pass", done.stdout)
        self.assertIsNone(matrix)

    def test_baseline_that_changes(self):
        wrap = self.wrapped("t['checks'] = t['checks'][:os.getpid() % 5 + 3]")
        reached(self.folder).save()
        codes = [self.folder.run("--wrap", wrap)[0] for _ in range(3)]
        self.assertIn(7, [done.returncode for done in codes])
        self.assertTrue(any("two runs of the unmutated engine differ" in done.stdout for done in codes))

    def weakened(self, old, new):
        """A build whose judge has another test_sample_nucleus.c."""
        place = os.path.join(self.folder.path, "build")
        shutil.copytree(BUILD, place, symlinks=True, ignore=shutil.ignore_patterns("tests", "*.a"))
        shutil.copytree(os.path.join(BUILD, "obj", "conformance", "tests"),
                        os.path.join(place, "obj", "conformance", "tests"), dirs_exist_ok=True)
        source = read(os.path.join(ROOT, "conformance/tests/test_sample_nucleus.c"))
        self.assertIn(old, source)
        copied = os.path.join(self.folder.path, "test_sample_nucleus.c")
        with open(copied, "w", encoding="utf-8") as out:
            out.write(source.replace(old, new))
        flags = read(os.path.join(BUILD, "flags")).splitlines()[0].split()
        obj = os.path.join(place, "obj", "conformance")
        made = os.path.join(obj, "tests", "test_sample_nucleus.o")
        subprocess.run([*[f for f in flags if f != "-Werror"], "-w", "-D_GNU_SOURCE", "-Iengine/include",
                        "-Iconformance", "-Iconformance/tests", "-c", copied, "-o", made], cwd=ROOT, check=True)
        objects = [os.path.join(folder, name) for folder, _, names in os.walk(obj) for name in names
                   if name.endswith(".o") and os.path.basename(folder) in ("runner", "tests")]
        subprocess.run(["gcc", "-o", os.path.join(place, "bin", "ol"), *objects, "-lcmocka", "-ljansson", "-lseccomp",
                        "-lm"], check=True)
        return place

    def test_removed_check(self):
        """A check that nobody evaluates is the judge's own fault, and seen before any mutant is."""
        place = self.weakened('check_equal(t, "exact_half", 2, 0.5, 1);', "")
        done, matrix = reached(self.folder).save().run("--build", place)
        self.assertEqual(done.returncode, 7, done.stdout)
        self.assertIn("exact_half was never evaluated", done.stdout)
        self.assertIsNone(matrix)

    def test_check_that_always_holds(self):
        place = self.weakened('check_equal(t, "exact_half", 2, 0.5, 1);', 'ol_held(t, "exact_half");')
        done, matrix = reached(self.folder).save().run("--build", place)
        self.assertIsNotNone(matrix, done.stdout)
        self.assertEqual((matrix["mutants"][0]["verdict"], done.returncode), ("killed-elsewhere", 6), done.stdout)
        self.assertIn("did not fail " + NUCLEUS + ".exact_half", done.stdout)


class Cache(Base):
    def test_second_run_runs_nothing(self):
        done, matrix = reached(self.folder).save().run()
        self.assertEqual(matrix["times"]["cells_run"], 1, done.stdout)
        done, again = self.folder.run()
        self.assertEqual((again["times"]["cells_run"], again["times"]["cells_kept"]), (0, 1), done.stdout)
        for one in (matrix, again):
            one["times"] = None
        self.assertEqual(matrix, again)

    def test_comment_changes_nothing(self):
        engine = build_module.Build(BUILD, CACHE)
        source = read(os.path.join(ROOT, "engine/src/pcg32.c"))
        _, one = engine.object("engine/src/pcg32.c", source)
        _, two = engine.object("engine/src/pcg32.c", source.replace("/* pcg32.c:", "/* A comment.\n * pcg32.c:"))
        self.assertEqual(one, two)

    def test_sources_of_a_test(self):
        sources = cells.TestSources(BUILD)
        hand, walk = sources.of("hand_example_sampling"), sources.of("kv_pool_bounds_and_cache_lifecycle")
        self.assertIn("conformance/tests/test_sample_hand.c", hand)
        self.assertNotIn("conformance/tests/test_kv.c", hand)
        self.assertIn("conformance/tests/test_kv_walk.c", walk)
        self.assertIn("conformance/tests/naive_kv.c", walk)
        self.assertNotIn("conformance/tests/test_sample_hand.c", walk)


class SecondLook(unittest.TestCase):
    def test_busy_machine(self):
        """A timeout of a test that hardly had a processor is no verdict; one that spent its time is not asked again."""
        for cpu_ms, asked, word in ((100, 2, "pass"), (1900, 1, "timeout")):
            judge, limits = cells.Judge.__new__(cells.Judge), []

            def run(library, tests, strict, jobs, limit):
                limits.append(limit)
                return {"t": {"class": "pass" if len(limits) > 1 else "timeout", "cpu_ms": cpu_ms, "checks": [], "cause": None}}
            judge.limits, judge.run, judge.cached, judge.keep = {}, run, mock.Mock(return_value=None), mock.Mock()
            found, _ = judge.cells("code", lambda: "library", ["t"])
            self.assertEqual((found["t"]["class"], len(limits)), (word, asked))
            self.assertEqual(judge.keep.call_args[0][3]["class"], word)


class Corpora(Base):
    """The corpora as a column: what replaying them says of wrong parsers."""

    def test_column(self):
        reached(self.folder)
        self.folder.add("x96", "engine/src/kv_envelope.c", 'if (stored != computed) {\n        return tli_fail_at(err, '
                        'TL_ERR_FORMAT, AT_HEADER_CRC', 'if (stored == 1) {\n        return tli_fail_at(err, '
                        'TL_ERR_FORMAT, AT_HEADER_CRC', "kv_pool_exports_and_imports_rust_owned_blocks",
                        ["flipped_byte"])
        self.folder.add("x97", "engine/src/kv_envelope.c", "#define VERSION 1u",
                        "#define VERSION 1u /* the same */\nstruct kv_unused;\n#define ONE 1\n"
                        "_Static_assert(ONE == 1, \"\");",
                        "kv_pool_exports_and_imports_rust_owned_blocks", ["flipped_byte"])
        done, matrix = self.folder.save().run("--corpus")
        rows = {row["id"]: row for row in matrix["mutants"]}
        self.assertNotIn("corpus", rows["s04"], done.stdout)
        self.assertEqual(rows["x96"]["corpus"]["class"], "fail")
        self.assertGreater(rows["x96"]["corpus"]["by"]["kv_import"], 0)
        self.assertEqual(rows["x97"]["verdict"], "same-object")
        self.assertIn("replaying the corpora alone catches: 1 of 1: x96", done.stdout)
        text = page.as_html({**matrix, "mutants": [rows["s04"], rows["x96"]]},
                            {m.id: m for m in catalog.load(self.folder.path)})
        self.assertIn("kv_import/", text)

    def test_replay_that_fails(self):
        column = corpus.Corpus(self.folder.cache)
        column.is_built = True
        for code in ("print('[]')", "print('{}'); raise SystemExit(70)", "print('{')"):
            script = os.path.join(self.folder.path, "fuzz.py")
            with open(script, "w", encoding="utf-8") as out:
                out.write(code + "\n")
            with mock.patch.object(corpus, "FUZZ", script), self.assertRaises(corpus.Broken):
                column.cell("code", lambda: "library.so")
        with open(script, "w", encoding="utf-8") as out:
            out.write("print('{\"config/a\": \"w\", \"config/b\": \"w\"}')\nraise SystemExit(1)\n")
        with mock.patch.object(corpus, "FUZZ", script):
            cell = column.cell("code", lambda: "library.so")
        self.assertEqual(cell, {"class": "fail", "by": {"config": 2}, "seeds": ["config/a: w", "config/b: w"]})
        reached(self.folder).save()
        words = io.StringIO()
        with mock.patch.object(corpus, "FUZZ", script), contextlib.redirect_stderr(words):
            code = mutants.main(["--catalog", self.folder.path, "--cache", self.folder.cache, "--build", BUILD,
                                 "--corpus"])
        self.assertEqual(code, 7)
        self.assertIn("the unmutated engine does not pass the corpora", words.getvalue())


class Shards(Base):
    def setUp(self):
        super().setUp()
        reached(self.folder)
        self.folder.add("x97", "engine/src/pcg32.c", "first >> 5", "first >> 6", "pcg32_reference_vectors",
                        ["uniform_f64"])
        self.folder.add("x98", "engine/src/sample.c", "return (s->logit[id] - top) - log_z;",
                        "return s->logit[id] - (top + log_z);", "sampler_matches_l81_golden", ["logprobs"])
        self.folder.save()

    def shard(self, text):
        out = os.path.join(self.folder.path, f"shard-{text.replace('/', '-')}.json")
        run("--catalog", self.folder.path, "--cache", self.folder.cache, "--shard", text, "--report", f"json:{out}")
        return out

    def merge(self, *paths):
        out = os.path.join(self.folder.path, "merged.json")
        done = run("--catalog", self.folder.path, "merge", *paths, "--report", f"json:{out}", "--report", "text")
        return done, out

    def report_merge(self, *paths):
        out = os.path.join(self.folder.path, "reported.json")
        done = subprocess.run([os.path.join(BUILD, "bin", "ol"), "report", "merge", *paths, "-o", out], text=True,
                              env={**os.environ, "OL_ROOT": ROOT}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False)
        return done, out

    def test_merged_equals_unsharded(self):
        whole, _ = self.folder.run()
        one, two = self.shard("1/2"), self.shard("2/2")
        done, merged = self.merge(two, one)
        self.assertEqual(done.returncode, whole.returncode, done.stdout)

        def timeless(path):
            return re.sub(r' "times": \{.*?\n \},?\n', "", read(path), flags=re.S)
        self.assertEqual(timeless(merged), timeless(os.path.join(self.folder.path, "matrix.json")))
        self.assertIn("3 mutants", done.stdout)
        done, by_report = self.report_merge(one, two)
        self.assertEqual((done.returncode, read(by_report)), (0, read(merged)), done.stdout)

    def test_refusals(self):
        one, two = self.shard("1/2"), self.shard("2/2")
        for paths, words in (((one,), "missing: 2"), ((one, one), "twice"), ((one, two, two), "twice"),
                             ((), "all shards")):
            done, _ = self.merge(*paths)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(words, done.stdout)
            if paths:
                done, out = self.report_merge(*paths)
                self.assertEqual((done.returncode, os.path.exists(out)), (2, False), done.stdout)
                self.assertIn(words, done.stdout)
        log = os.path.join(self.folder.path, "log.jsonl")
        with open(log, "w", encoding="utf-8") as out:
            out.write('{"schema": "ol.result/1", "kind": "header"}\n')
        for paths in ((one, log), (log, one, two), (one, two, "--partial")):
            done, _ = self.report_merge(*paths)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("is a matrix of mutants", done.stdout)
        other = json.loads(read(two))
        for change, words in ((("version", "engine"), "version engine"), (("version", "judge"), "version judge"),
                              (("mode", "selection"), "mode selection")):
            changed = copy.deepcopy(other)
            changed[change[0]][change[1]] = "another"
            path = os.path.join(self.folder.path, "changed.json")
            with open(path, "w", encoding="utf-8") as out:
                json.dump(changed, out)
            done, _ = self.merge(one, path)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(words, done.stdout)
        done, _ = self.merge(one, self.shard("2/3"))
        self.assertIn("is of 3 shards", done.stdout)
        with open(path, "w", encoding="utf-8") as out:
            out.write("{}")
        done, _ = self.merge(path)
        self.assertEqual(done.returncode, 2, done.stdout)

    @unittest.skipUnless(shutil.which("parallel"), "GNU parallel is not installed")
    def test_parallel_script(self):
        out = os.path.join(self.folder.path, "shards")
        env = {**os.environ, "OUT": out, "MERGE_ARGS": f"--catalog {self.folder.path}"}
        done = subprocess.run(["sh", os.path.join(HERE, "parallel.sh"), "2", "--catalog", self.folder.path, "--cache",
                               self.folder.cache, "--build", BUILD, "-j", "1"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=env, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        whole, matrix = self.folder.run()
        merged = json.loads(read(os.path.join(out, "matrix.json")))
        merged["times"] = matrix["times"] = None
        self.assertEqual(merged, matrix)
        self.assertEqual(len(read(os.path.join(out, "joblog")).splitlines()), 3)


class CommandLine(Base):
    def test_unknown_mutant(self):
        done = run("s30")
        self.assertEqual(done.returncode, 4, done.stdout)
        self.assertRegex(done.stdout, r"no mutant s30; the nearest: .*s20")

    def test_usage(self):
        self.assertEqual(run("--shard", "3/2", "s01").returncode, 2)
        self.assertEqual(run("--shard", "x", "s01").returncode, 2)
        done, _ = reached(self.folder).save().run("--report", "pdf:x")
        self.assertEqual(done.returncode, 2, done.stdout)

    def test_broken_catalogues(self):
        def broken(change):
            folder = Folder()
            self.addCleanup(shutil.rmtree, folder.path)
            reached(folder)
            change(folder)
            done = folder.save().run("list")[0]
            self.assertEqual(done.returncode, 5, done.stdout)
        broken(lambda f: f.rows[0].update(checks=["no_such_check"]))
        broken(lambda f: f.rows[0].update(checks=[]))
        broken(lambda f: f.rows[0].update(title="other"))
        broken(lambda f: f.rows[0].update(more=1))
        broken(lambda f: f.rows[0].pop("symptom"))
        broken(lambda f: f.rows[0].update(file="engine/src/kv.c"))
        broken(lambda f: f.rows.append(f.rows[0]))
        broken(lambda f: open(os.path.join(f.path, "stray.patch"), "w", encoding="utf-8").close())


class Patches(unittest.TestCase):
    """The folder as it is."""

    def setUp(self):
        self.mutants = catalog.load()

    def test_as_patch_does(self):
        """Every patch applies by patch(1) without fuzz or offset, and to what we make of it."""
        with tempfile.TemporaryDirectory() as folder:
            for mutant in self.mutants:
                source = read(os.path.join(ROOT, mutant.file))
                path = os.path.join(folder, mutant.file)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as out:
                    out.write(source)
                done = subprocess.run(["patch", "-p1", "--fuzz=0", "-d", folder, "-i", mutant.patch.path], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
                with self.subTest(mutant.id):
                    self.assertEqual(done.returncode, 0, done.stdout)
                    self.assertNotIn("offset", done.stdout)
                    self.assertNotIn("fuzz", done.stdout)
                    self.assertEqual(read(path), mutant.patch.apply(source))

    def test_every_check_is_pinned(self):
        """Each check of the catalogue is named by a mutant that must fail it, in its own test."""
        pinned = {check for mutant in self.mutants for check in mutant.checks}
        checks = {check["id"] for test in catalog.judge_catalog() for check in test["checks"]}
        self.assertEqual(checks - pinned, set())

    def test_named_by_the_judge(self):
        """Tests name their mutants as the mutants name their tests."""
        for test in catalog.judge_catalog():
            named = [m.id for m in self.mutants if m.killer == test["name"] and not m.is_probe]
            self.assertEqual(sorted(test["mutants"]), sorted(named), test["name"])
        self.assertEqual([m.id for m in self.mutants][:22], [f"s{i:02}" for i in range(1, 23)])

    def test_given_modules(self):
        """What a learner is given is not what a learner gets wrong."""
        for mutant in self.mutants:
            if mutant.id.startswith("s"):
                self.assertNotRegex(mutant.file, r"/(ops|json|util|base)")

    def test_clauses(self):
        pages = {"kv": "kv-block"}
        for mutant in self.mutants:
            if not mutant.is_probe:
                name, _, anchor = mutant.row["clause"].partition("#")
                text = read(os.path.join(ROOT, "conformance", "spec", pages.get(name, name) + ".md"))
                self.assertIn(f'id="{anchor}"', text, mutant.id)

    def test_proofs(self):
        """The proofs name every check, and what the mutants promise is among them."""
        engines = {e["id"]: set(e["fails"]) for e in json.loads(read(fingerprint.PROOFS))["engines"]}
        self.assertEqual(set(engines), {m.id for m in self.mutants})
        for mutant in self.mutants:
            self.assertEqual(set(mutant.checks) - engines[mutant.id], set(), mutant.id)


class Operators(unittest.TestCase):
    """What operators.py makes of the tool's mutants; the tool itself is not asked."""

    FILE = "engine/src/made.c"
    SOURCE = "/* head */\n#include <x.h>\n\nstatic int one(int a) { /* + */\n    return a + 1; // - here\n}\n\n" \
             "int two(const char *b,\n        int c) {\n    const int d[] = {-1};\n    f(\"/* no */\");\n    return a + 1;\n}\n"

    def mutants(self, n=40):
        return [operators.Mutant(self.FILE, 5, "one", "    return a + 1;", f"    return a + {i};", "r")
                for i in range(2, 2 + n)]

    def test_lines(self):
        bare = operators.bare(self.SOURCE).split("\n")
        self.assertEqual(len(bare), len(self.SOURCE.split("\n")))
        self.assertEqual((bare[3], bare[4]), ("static int one(int a) {", "    return a + 1;"))
        self.assertEqual((bare[9], bare[10]), ("    const int d[] = { -1};", '    f("/* no */");'))
        names = operators.functions(self.SOURCE)
        self.assertEqual([names[i] for i in (1, 3, 4, 5, 6, 7, 9, 12)], ["", "one", "one", "one", "", "two", "two", "two"])

    def test_order_is_seeded(self):
        def order(seed, mutants):
            return [m.text for m in sorted(mutants, key=lambda m: m.rank(seed))]
        mutants = self.mutants()
        self.assertEqual(order(1, mutants), order(1, self.mutants()[::-1]))
        self.assertNotEqual(order(1, mutants), order(2, mutants))
        for mutant in mutants:  # a line further down is still the same mutant
            mutant.number += 7
        self.assertEqual(order(1, mutants), order(1, self.mutants()))

    def sample(self, n, digests):
        """A sample from mutants whose objects are told: None does not build, "own" is the engine's object."""
        scorer = operators.Scorer.__new__(operators.Scorer)
        scorer.options = operators.parser().parse_args(["--sample", str(n)])
        by_text = {m.text: digest for m, digest in zip(self.mutants(len(digests)), digests)}

        def compiled(mutant, _):
            mutant.digest = by_text[mutant.text]
            return {None: "unbuildable", "own": "same object"}.get(mutant.digest, "")
        scorer.compile = compiled
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return scorer.sample(self.FILE, self.mutants(len(digests)), [], pool)

    def test_sample(self):
        chosen, counts = self.sample(150, [None, "own", "own", "a", "a", "a", "b", "c"])
        self.assertEqual(sorted(m.digest for m in chosen), ["a", "b", "c"])
        self.assertEqual(counts, {"drawn": 8, "unbuildable": 1, "same object": 2, "twin": 2})
        digests = [f"{i}" for i in range(30)]
        few, counts = self.sample(5, digests)
        more, _ = self.sample(9, digests)
        self.assertEqual(([m.text for m in few], counts["drawn"]), ([m.text for m in more[:5]], 5))

    OWN = {"program": "test_x", "case": "c", "how": "fails"}

    def rows(self, *verdicts):
        """A third word says that the engine's own tests see it."""
        return [{"id": str(i), "line": 1, "was": "w", "becomes": "b", "test": "t", "verdict": verdict, "ignored": ignored,
                 "own": self.OWN if seen else None} for i, (verdict, ignored, *seen) in enumerate(verdicts)]

    def test_score(self):
        rows = self.rows(("killed", ""), ("timeout", ""), ("crash", ""), ("survived", ""), ("survived", "equivalent"))
        self.assertEqual(operators.figures(rows)["score"], 0.75)
        rows = self.rows(("killed", ""), ("survived", "standing"), ("survived", "equivalent"))
        self.assertEqual(operators.figures(rows)["score"], 0.5)
        rows = self.rows(("killed", ""), ("survived", "standing"), ("survived", "unit", "seen"), ("survived", "equivalent"),
                         ("survived", "", "seen"))
        figures = operators.figures(rows)
        self.assertEqual((figures["score"], figures["own"], figures["both"]), (0.25, 2, 0.75))
        table = operators.as_table([{"file": "engine/src/kv.c", "mutants": rows, "all": 9, "drawn": 9, "unbuildable": 0,
                                     "same object": 0, "twin": 0}])
        self.assertIn("| 25.0 % | 2 | 75.0 % |", table)

    def test_faults(self):
        def faults(file, *verdicts, stale=()):
            ignored = operators.Ignored(os.devnull + "/none", {})
            ignored.stale += stale
            return operators.faults([{"file": f"engine/src/{file}.c", "mutants": self.rows(*verdicts)}], ignored)
        many = [("killed", "")] * 9
        self.assertEqual(faults("kv", *many, ("survived", "standing")), [])
        self.assertRegex(faults("kv", *many, ("survived", "standing"), ("survived", "standing"))[0], "kv: 81.8 % are seen")
        self.assertEqual(faults("forward", ("survived", "standing")), [])  # not one of those that are held to a score
        self.assertRegex(faults("kv", *many, ("survived", ""))[0], "survived: engine/src/kv.c:1")
        self.assertRegex(faults("kv", *many, ("killed", "equivalent"))[0], "in the ignore list, and killed by t")
        self.assertEqual(faults("kv", *many, stale=["x"]), ["stale: x"])
        self.assertEqual(faults("kv", *many, ("survived", "unit", "seen")), [])
        for row, words in ((("survived", "unit"), "called unit .* no test of the engine's own sees it"),
                           (("survived", "standing", "seen"), "called standing .* seen by test_x: c fails"),
                           (("survived", "equivalent", "seen"), "called equivalent .* seen by test_x: c fails"),
                           (("survived", "", "seen"), "survived, and seen by test_x: c fails: engine"),
                           (("killed", "unit"), "in the ignore list, and killed by t")):
            self.assertRegex("".join(faults("kv", *many, row)), words)

    def scorer(self, fails, known):
        """A scorer of kv.c whose judge is told what a mutant does not pass, and who has seen it; and what was asked."""
        scorer, asked = operators.Scorer.__new__(operators.Scorer), []

        def cells(_, library, tests):
            asked.append(tests)
            return {t: {"class": fails.get(t, "pass"), "check": ""} for t in tests}, len(tests)
        scorer.judge = mock.Mock(tests=[test["name"] for test in catalog.judge_catalog()], cells=cells,
                                 cached=lambda code, test, strict: None)
        scorer.build, scorer.reach = mock.Mock(), mock.Mock(tests=lambda file, function: set(scorer.judge.tests[1:]))
        scorer.killers = operators.Killers(os.devnull + "/none", [])
        scorer.killers.known = known
        return scorer, asked

    def test_killers_first(self):
        """Who saw a mutant is asked first and alone; it decides nothing, and who really fails is what is reported."""
        mutant = operators.Mutant("engine/src/kv.c", 5, "one", "a", "b", "r")
        unreached, *names = self.scorer({}, {})[0].judge.tests
        late = [name for name in names if name.startswith(operators.LATE)][-1]
        for fails in ({}, {late: "fail"}, {late: "timeout"}, {names[0]: "crash", late: "fail"}):
            plain = self.scorer(fails, {})[0].judged(mutant)
            self.assertEqual(plain["verdict"] == "survived", not fails)
            for killer in (*names, unreached, "gone"):
                scorer, asked = self.scorer(fails, {mutant.id: [killer, ""]})
                found = scorer.judged(mutant)
                self.assertEqual(found["verdict"] == "survived", not fails)
                self.assertEqual(fails.get(found["test"], "pass") == "pass", not fails)
                if killer in names:
                    self.assertEqual(asked[0], [killer])
                if killer in fails:
                    self.assertEqual((found["test"], len(asked)), (killer, 1))
                else:
                    self.assertEqual(found, plain)
                if not fails:
                    self.assertEqual(sorted(itertools.chain(*asked)), sorted(names))

    def test_killers_are_kept(self):
        folder = tempfile.mkdtemp(prefix="killers-")
        self.addCleanup(shutil.rmtree, folder)
        path, earlier = os.path.join(folder, "killers.json"), os.path.join(folder, "report.json")
        one, two, three = self.mutants(3)
        operators.Killers(path, []).note(one, "t1", "")
        rows = [{"id": one.id, "test": "old"}, {"id": two.id, "test": "", "own": self.OWN}]
        with open(earlier, "w", encoding="utf-8") as out:
            json.dump({"files": [{"mutants": rows}]}, out)
        killers = operators.Killers(path, [earlier])
        self.assertEqual([killers.of(m) for m in (one, two, three)], [["t1", ""], ["", "test_x"], ["", ""]])
        for report_of in (path, path + "no"):  # a report of something else; none at all
            self.assertRaisesRegex(operators.Stop, "--after takes a report", operators.Killers, path, [report_of])
        killers.note(one, "", "")  # let through by a fault of the tests that is mended later
        killers.note(two, "", "test_y")
        self.assertEqual(operators.Killers(path, []).known, {one.id: ["t1", ""], two.id: ["", "test_y"]})

    def test_ignore_list(self):
        """Every entry is about a line that is there, and an entry about another line is stale."""
        build = [f"engine/src/{name}" for name in os.listdir(os.path.join(ROOT, "engine", "src")) if name.endswith(".c")]
        there = operators.places(build)
        self.assertEqual(operators.Ignored(operators.IGNORE, there).stale, [])
        entry = {"file": "engine/src/kv.c", "function": "pop_free", "line": "pool->stats.n_free--;",
                 "becomes": ["pool->stats.n_free++;"], "verdict": "standing", "reason": "only an example of an entry"}

        def ignored(**change):
            with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
                json.dump({"mutants": [{**entry, **change}]}, file)
                file.flush()
                return operators.Ignored(file.name, there)
        mutant = operators.Mutant(entry["file"], 1, "pop_free", entry["line"], entry["becomes"][0], "r")
        self.assertEqual(ignored().by_id, {mutant.id: ("standing", entry["reason"])})
        self.assertEqual(ignored().stale, [])
        self.assertEqual(len(ignored(function="push_free").stale), 1)
        self.assertEqual(len(ignored(line="pool->stats.n_free -= 1;").stale), 1)
        for change in ({"verdict": "fine"}, {"reason": "short"}, {"more": 1}):
            self.assertRaises(operators.Stop, ignored, **change)

    def test_selection(self):
        sources = [f"engine/src/{n}.c" for n in ("kv", "kv_envelope", "ops", "sample", "pcg32", "quant", "model")]
        self.assertEqual(operators.select([], sources), [sources[i] for i in (3, 4, 5, 0, 1, 6)])
        self.assertEqual(operators.select(["kv"], sources), sources[:2])
        self.assertEqual(operators.select(["sample", "model"], ["m/model_io.c", "m/sample_order.c", "m/modern.c"]),
                         ["m/sample_order.c", "m/model_io.c"])
        self.assertEqual(operators.select(["engine/src/ops.c", "kv_envelope.c"], sources), [sources[2], sources[1]])
        self.assertEqual(run("--operators", "no_such.c").returncode, 4)


class OwnTests(unittest.TestCase):
    """The engine's own tests as a judge: what they see of the 24 tests' survivors, and what they do not."""

    FILE = "engine/src/kv.c"
    PROGRAMS = ("test_kv", "test_kv_envelope", "test_oom", "test_util")

    @classmethod
    def setUpClass(cls):
        links = survivors.OwnTests.link_lines
        with mock.patch.object(survivors.OwnTests, "link_lines",
                               lambda self, jobs: {k: v for k, v in links(self, jobs).items() if k in cls.PROGRAMS}):
            cls.folder = Folder()  # nothing kept from before
            cls.addClassCleanup(shutil.rmtree, cls.folder.path)
            cls.own = survivors.OwnTests(cls.folder.cache, 2)

    def seen(self, was, becomes, first=""):
        lines = read(os.path.join(ROOT, self.FILE)).split("\n")
        at = [i for i, line in enumerate(lines) if line.strip() == was]
        self.assertEqual(len(at), 1, was)
        return self.own.judged(operators.Mutant(self.FILE, at[0] + 1, "", lines[at[0]], becomes, "r"), lines, first)

    def test_null(self):
        """The case is the one that the program did not come back from."""
        seen = self.seen("if (pool == NULL || key == NULL || id == NULL) {", "if (pool == NULL || id == NULL) {")
        self.assertEqual((seen["program"], seen["case"]), ("test_kv", "nothing_there_is_answered"))
        self.assertIn("null", seen["how"])

    def test_memory_that_is_refused(self):
        seen = self.seen("return pool->slabs != NULL && pool->blocks != NULL && pool->slots != NULL;", "return true;", "test_oom")
        self.assertEqual((seen["program"], seen["case"]), ("test_oom", "pool_survives_refused_memory"))

    def test_memory_that_is_not_given_back(self):
        seen = self.seen("free(pool->slots);", "(void)pool;")
        self.assertEqual((seen["case"], seen["how"]), ("at its end", "LeakSanitizer: detected memory leaks"))

    def test_past_the_end(self):
        seen = self.seen("pool->slots = tli_calloc(pool->n_slots, sizeof *pool->slots);",
                         "pool->slots = tli_calloc(pool->n_slots - 1, sizeof *pool->slots);")
        self.assertEqual(seen["how"], "AddressSanitizer: heap-buffer-overflow")

    def test_not_seen(self):
        self.assertIsNone(self.seen("size_t n_bytes = 0;", "size_t n_bytes = 1;"))

    def test_order(self):
        """A program without the source in it cannot tell; who saw the mutant before comes first."""
        self.assertEqual(sorted(self.own.order(self.FILE)), ["test_kv", "test_kv_envelope", "test_oom"])
        self.assertEqual(self.own.order(self.FILE)[2], "test_oom")
        self.assertEqual(self.own.order(self.FILE, "test_oom")[0], "test_oom")
        self.assertEqual(self.own.order("engine/src/sample.c"), ["test_oom"])
        self.assertEqual(self.own.order(self.FILE, "test_util"), self.own.order(self.FILE))

    def test_red_baseline(self):
        """A test that the engine itself fails says nothing about a mutant; and it is asked again the next time."""
        cell = {"how": "fails", "case": "c", "cases": [], "members": [], "seconds": 0}
        with mock.patch.object(survivors.OwnTests, "link_lines", lambda self, jobs: {"test_oom": ["gcc"]}), \
             mock.patch.object(survivors.OwnTests, "run", lambda self, program, archive: cell):
            with self.assertRaisesRegex(survivors.Stop, "does not pass test_oom under ASan: c fails"):
                survivors.OwnTests(self.folder.cache, 1)
            cell["how"] = ""
            self.assertEqual(survivors.OwnTests(self.folder.cache, 1).clean, {"test_oom": cell})

    def test_words(self):
        """What a program prints, and how it ends."""
        def how(status, *lines):
            cell = survivors.as_cell(status, "\n".join(lines))
            return cell["case"], cell["how"]
        good = ["1..2", "ok 1 - a", "ok 2 - b"]
        self.assertEqual(how(0, *good), ("", ""))
        self.assertEqual(how(0, "1..2", "ok 1 - a", "not ok 2 # SKIP b"), ("", ""))
        self.assertEqual(how(1, "1..2", "not ok 1 - a", "ok 2 - b"), ("a", "fails"))
        self.assertEqual(how(0, *good[:2]), ("", "ends with 0 after 1 of 2 cases"))
        self.assertEqual(how(3, *good), ("", "ends with 3 after 2 of 2 cases"))
        self.assertEqual(how(0), ("", "ends with 0 after 0 of no cases"))
        self.assertEqual(how("timeout", *good[:2]), ("", "timeout"))
        self.assertEqual(how(1, *good[:2], "==1==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1 at"),
                         ("", "AddressSanitizer: heap-buffer-overflow"))
        self.assertEqual(how(1, *good[:2], "kv.c:3:5: runtime error: shift exponent 32"),
                         ("", "runtime error: shift exponent 32"))

    def test_fuzz_targets(self):
        """Each source that is scored has a target, or the word that none is for it; and each target is one."""
        done = subprocess.run([sys.executable, os.path.join(ROOT, "fuzz", "fuzz.py"), "list", "--names"], text=True,
                              stdout=subprocess.PIPE, check=True)
        self.assertEqual(set(survivors.FUZZ.values()) - set(done.stdout.split()), {""})
        self.assertEqual(set(operators.MODULES) - set(survivors.FUZZ), set())


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.ids, self.targets, self.open = [], set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for key, value in attrs:
            if key == "id":
                self.ids.add(value)
            if key in ("href", "src"):
                self.targets.append(value)


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Folder()
        reached(cls.folder)
        cls.folder.add("x98", "engine/src/sample.c", "#define EXP_REACH 746.0", "#define EXP_REACH 747.0", NUCLEUS,
                       ["exact_half"])
        cls.folder.save()
        cls.done, cls.matrix = cls.folder.run("--matrix")
        cls.by_id = {m.id: m for m in catalog.load(cls.folder.path)}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder.path)

    def test_matrix_is_complete(self):
        self.assertEqual([len(row["cells"]) for row in self.matrix["mutants"]], [24, 24], self.done.stdout)
        self.assertEqual([row["verdict"] for row in self.matrix["mutants"]], ["killed", "survived"])
        self.assertIn("Tests without a kill of their own", self.done.stdout)

    def test_stryker(self):
        """What the mutation-testing-report schema, version 2, asks for; validate_stryker.sh asks the schema itself."""
        data = report.as_stryker(self.matrix, self.by_id)
        self.assertEqual(set(data["thresholds"]), {"high", "low"})
        self.assertRegex(data["schemaVersion"], r"^[12](\.\d+)*$")
        tests = {t["id"] for file in data["testFiles"].values() for t in file["tests"]}
        self.assertEqual(len(tests), 24)
        for name, file in data["files"].items():
            self.assertFalse(os.path.isabs(name))
            self.assertEqual((file["language"], file["source"]), ("c", read(os.path.join(ROOT, name))))
            n_lines = len(file["source"].splitlines())
            for mutant in file["mutants"]:
                self.assertIn(mutant["status"], ("Killed", "Survived", "NoCoverage", "CompileError", "RuntimeError",
                                                 "Timeout", "Ignored", "Pending"))
                start, end = mutant["location"]["start"], mutant["location"]["end"]
                self.assertTrue(1 <= start["line"] < end["line"] <= n_lines + 1)
                self.assertTrue(set(mutant["killedBy"]) <= tests and set(mutant["coveredBy"]) <= tests)
        status = {m["id"]: m["status"] for f in data["files"].values() for m in f["mutants"]}
        self.assertEqual(status, {"s04": "Killed", "x98": "Survived"})

    def test_page(self):
        text = page.as_html(self.matrix, self.by_id)
        links = Links()
        links.feed(text)
        self.assertNotIn("script", links.tags)
        self.assertNotRegex(text, r"https?://|url\(|@import")
        for target in links.targets:
            self.assertTrue(target.startswith("#"), target)
            self.assertIn(target[1:], links.ids)
        self.assertTrue({"s04", "x98"} <= links.ids)
        self.assertIn("const bool reached = c &gt; p;", text)
        self.assertIn(NUCLEUS, text)

    def test_smallest_set(self):
        kills = {"a": ["1", "2"], "b": ["2", "3"], "c": ["3", "4"], "d": ["1", "4"], "e": ["5"], "f": []}

        def brute():
            ids = {i for k in kills.values() for i in k}
            for n in range(len(kills) + 1):
                for chosen in itertools.combinations(kills, n):
                    if {i for t in chosen for i in kills[t]} == ids:
                        return n
        found = report.smallest_set(kills)
        self.assertEqual({i for t in found for i in kills[t]}, set("12345"))
        self.assertEqual(len(found), brute())
        self.assertEqual(report.unique_kills(kills)["e"], ["5"])

    def test_coverage_gaps(self):
        """Lines that tests run and no kill touches, from the files of `make coverage`."""
        row = self.matrix["mutants"][0]
        line = next(iter(self.by_id["s04"].patch.changed()))
        self.assertIn("const bool reached = c >= p;", read(os.path.join(ROOT, row["file"])).splitlines()[line - 1])
        folder = tempfile.mkdtemp(prefix="coverage-")
        self.addCleanup(shutil.rmtree, folder)
        functions = [{"name": "above", "lineno": 1}, {"name": "walk", "lineno": line - 5},
                     {"name": "below", "lineno": line + 50}, {"name": "dead", "lineno": line + 90}]
        items = {"judged/" + NUCLEUS: {row["file"]: [2, line - 1, line]}, "judged/x": {row["file"]: [3, line + 60]},
                 "unit/test_sample": {row["file"]: [line + 95]}}
        for name, data in (("coverage.json", {"files": [{"file": row["file"], "functions": functions}]}),
                           ("tests.json", items)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
                json.dump(data, out)
        gap = report.coverage_gaps(self.matrix, self.by_id, folder)[row["file"]]
        self.assertEqual((gap.n_run, gap.n_hit, gap.functions), (5, 1, ["above", "below"]))
        source = read(os.path.join(ROOT, row["file"])).splitlines()
        kills = os.path.join(folder, "operators.json")
        with open(kills, "w", encoding="utf-8") as out:
            json.dump({"files": [{"file": row["file"], "mutants": [
                {"line": line - 1, "was": source[line - 2].strip(), "verdict": "killed"},
                {"line": 2, "was": "another text", "verdict": "killed"},
                {"line": 3, "was": source[2].strip(), "verdict": "survived"}]}]}, out)
        gap = report.coverage_gaps(self.matrix, self.by_id, folder, kills)[row["file"]]
        self.assertEqual((gap.n_run, gap.n_hit, gap.functions), (5, 2, ["above", "below"]))
        os.utime(os.path.join(folder, "tests.json"), (1, 1))
        self.assertIsNone(report.coverage_gaps(self.matrix, self.by_id, folder))
        self.assertIsNone(report.coverage_gaps(self.matrix, self.by_id, folder + "/none"))

    def test_words_have_meanings(self):
        for word in ("killed", "survived", "crash", "timeout", "killed-by-other", "patch-stale", "does-not-build",
                     "same-object", "killed-elsewhere", "harness-error"):
            self.assertIn(word, verdict.MEANING)
        self.assertEqual(verdict.exit_code([{"verdict": "killed"}]), 0)
        self.assertEqual(verdict.exit_code([{"verdict": "killed"}, {"verdict": "needs-avx2"}]), 0)
        self.assertEqual(verdict.exit_code([{"verdict": "killed"}, {"verdict": "survived"}]), 6)
        self.assertEqual(verdict.exit_code([{"verdict": "survived"}, {"verdict": "harness-error"}]), 70)


def lines_of(*rows):
    """The test lines of a whole log of an engine with these faults; a check shows the first one's."""
    checks = {}
    for row in rows:
        for name, way in row["checks"].items():
            checks.setdefault(name, way)
    tests = {test["name"]: [{"id": check["id"], "state": "held", "done": 1, "failed": 0} for check in test["checks"]
                            if not check["strict"] and check["id"] not in checks] for test in catalog.judge_catalog()}
    for name, way in checks.items():
        first = {"case": way["case"], "message": way.get("text", "")}
        if "length" in way:
            first.update(n_got=way["length"][0], n_want=way["length"][1])
        elif "got" in way:
            first.update(got=way["got"], want=way["want"], index=way["index"], n_got=1, n_want=1,
                         nonfinite=way.get("nonfinite", False))
        entry = {"id": name, "state": "failed", "class": way["class"], "done": 10000,
                 "failed": round(way["share"] * 10000), "first": first}
        tests[name.split(".")[0]].append(entry)
    return [{"kind": "test", "name": name, "checks": entries,
             "class": "fail" if any(e["state"] == "failed" for e in entries) else "pass"}
            for name, entries in tests.items()]


class Diagnosis(unittest.TestCase):
    def setUp(self):
        self.data = json.loads(read(fingerprint.PATH))
        self.book = diagnose.Book(self.data)
        self.named = [row for row in self.data["mutants"] if row["id"].startswith("s")]

    def test_each_named_mutant_is_named(self):
        # Another order of additions is legal without --strict, and no pitfall.
        self.assertEqual([row["id"] for row in self.data["mutants"] if not row["checks"]], ["x32"])
        for row in self.data["mutants"]:
            found = self.book.diagnose(lines_of(row))
            if row["id"].startswith("s"):
                self.assertEqual(found.names, [row["id"]], row["id"])
            else:
                self.assertIn(found.names, ([row["id"]], []), row["id"])

    def test_right_engine(self):
        self.assertEqual(self.book.diagnose(lines_of()).names, [])
        self.assertEqual(diagnose.answer(lines_of(), self.book)["lines"], [])
        self.assertEqual(diagnose.answer(lines_of(), self.book)["mutant_like"], {})

    def test_two_faults(self):
        """Every pair of s01 to s22: each name that is given is one of the two, and mostly one is given."""
        n_named = n_pairs = 0
        for one, other in itertools.permutations(self.named, 2):
            found = self.book.diagnose(lines_of(one, other))
            n_pairs += 1
            n_named += bool(found.names)
            self.assertTrue(set(found.names) <= {one["id"], other["id"]}, (one["id"], other["id"], found.names))
        self.assertGreater(n_named / n_pairs, 0.9)

    def test_unknown_fault(self):
        """A mutant whose fingerprint is not in the book is a stranger: few get a name, and then of their own family."""
        wrong = []
        for row in self.data["mutants"]:
            found = diagnose.Book(self.data, without=[row["id"]]).diagnose(lines_of(row))
            if any(self.book.by_id[name]["family"] != row["family"] for name in found.names):
                wrong.append((row["id"], found.names))
        self.assertLessEqual(len(wrong), 0.1 * len(self.data["mutants"]), wrong)

    def test_other_numbers(self):
        """Another order of additions changes last digits, not the diagnosis."""
        for row in self.named:
            lines = lines_of(row)
            for line in lines:
                for check in line["checks"]:
                    got = check.get("first", {}).get("got", "")
                    if "(0x" in got and "." in got:
                        check["first"]["got"] = f"{float(got.split(' ')[0]) * (1 + 2e-6):.9g} (0x0)"
            self.assertEqual(self.book.diagnose(lines).names, [row["id"]])

    def test_dead_tests_say_nothing(self):
        """What was never reached, or not selected, is neither for nor against."""
        lines = lines_of(next(r for r in self.named if r["id"] == "s16"))
        mine = [line for line in lines if line["name"] == "tiny_llama_logits_match_hf"]
        self.assertEqual(self.book.diagnose(mine).names, ["s16"])
        for line in lines:
            if line not in mine:
                dead = [{"id": c["id"], "state": "not-reached", "done": 0, "failed": 0} for c in line["checks"]]
                line.update({"class": "crash", "checks": dead})
        self.assertEqual(self.book.diagnose(lines).names, ["s16"])

    def test_strict_says_nothing(self):
        """The fingerprints are of runs without --strict: what only such a run asks does not count."""
        book = diagnose.load()
        lines = lines_of(next(r for r in self.named if r["id"] == "s20"))
        strict = [c["id"] for test in catalog.judge_catalog() for c in test["checks"] if c["strict"]]
        first = {"message": "x: the message must name y; it says: z"}
        for line in lines:
            line["checks"] += [{"id": c, "state": "failed", "class": "fail", "done": 1, "failed": 1, "first": first}
                               for c in strict if c.startswith(line["name"] + ".")]
        named = next(c for line in lines if line["name"] == "safetensors_reader_rules" for c in line["checks"])
        named.update({"state": "failed", "class": "refused-wrong", "failed": 1, "first": first})
        plain = book.diagnose(lines_of(next(r for r in self.named if r["id"] == "s20")))
        found = book.diagnose(lines)
        self.assertEqual((found.names, found.score, found.margin), (["s20"], plain.score, plain.margin))

    def test_answer(self):
        row = next(r for r in self.named if r["id"] == "s03")
        lines = lines_of(row)
        lines[-1].update({"class": "crash", "checks": []})
        answer = diagnose.answer(lines, self.book)
        self.assertEqual(answer["names"], ["s03"])
        text = "\n".join(answer["lines"])
        for word in (f"looks like s03: {row['title']}\n", row["symptom"], row["pitfall"], "margin",
                     "conformance/spec/sampling.md, 4\n"):
            self.assertIn(word, text)
        like = answer["mutant_like"]
        self.assertEqual(like["sampler_matches_l81_golden"]["id"], "s03")
        self.assertEqual(like[lines[-1]["name"]], {"id": None, "text": "none of the known pitfalls"})
        self.assertEqual(set(like), {line["name"] for line in lines if line["class"] != "pass"})

    def test_answer_of_nonsense(self):
        """No traceback, a sentence and 70: the judge prints it and goes on."""
        for text in ("{", "[]", '{"kind": "test", "name": "x", "class": "fail", "checks": [1]}',
                     '{"kind": "test", "name": "x", "class": "fail", "checks": [{"state": "failed"}]}'):
            done = subprocess.run(["/usr/bin/python3", "-I", "-S", os.path.join(HERE, "diagnose.py"), "answer"],
                                  input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            self.assertEqual((done.returncode, done.stdout), (70, ""), done.stderr)
            self.assertRegex(done.stderr, r"^ol: .*diagnose\.py: \w+: [^\n]+\n$")


def main():
    global BUILD, CACHE
    argv = sys.argv[:1]
    rest = iter(sys.argv[1:])
    for word in rest:
        if word == "--build":
            BUILD = os.path.abspath(next(rest))
        else:
            argv.append(word)
    stream = io.StringIO()
    program = unittest.main(argv=argv, exit=False, testRunner=unittest.TextTestRunner(
        stream=sys.stderr if "-v" in argv else stream))
    result = program.result
    n_bad = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    if "-v" not in argv:
        for test, words in result.failures + result.errors:
            print(f"{test}\n{words}")
    print(f"{result.testsRun - n_bad - len(result.skipped)} passed, {n_bad} failed, {len(result.skipped)} skipped")
    return 1 if n_bad or result.testsRun == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
