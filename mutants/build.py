"""One shared library for each mutant: a patched copy of one source, compiled and linked with the objects of the others.

Compiler and flags are those of the release build (build/release/flags), without debug information, so that an object
depends on the code alone and a changed comment changes nothing. Objects are kept by the hash of what made them.

Standard library only.
"""
import os
import re
import shlex
import subprocess
import tempfile

from catalog import ROOT, read, sha


class Unbuildable(Exception):
    """A mutant's source does not compile."""


class Build:
    def __init__(self, folder, cache):
        self.cache = cache
        lines = read(os.path.join(folder, "flags")).splitlines()
        keep = [word for word in shlex.split(lines[0]) if not re.fullmatch(r"-g\d?|-Werror", word)]
        self.compile = keep + ["-g0", "-Werror", "-Iengine/include", "-Iengine/src"]
        self.link = [w for w in shlex.split(lines[1]) if not w.startswith("-g")] + ["-shared", "-Wl,-z,defs"]
        rules = read(os.path.join(ROOT, "engine", "engine.mk"))
        self.libraries = re.search(r"^ENGINE_LDLIBS := (.*)$", rules, re.M)[1].split()
        self.sources = sorted(f"engine/src/{name}" for name in os.listdir(os.path.join(ROOT, "engine", "src"))
                              if name.endswith(".c"))
        self.headers = self._headers()
        self.objects = {}  # source -> (path, hash of the object)

    def _headers(self):
        texts = []
        for folder in ("engine/include/tl", "engine/src"):
            for name in sorted(os.listdir(os.path.join(ROOT, folder))):
                if name.endswith(".h"):
                    texts += [name, read(os.path.join(ROOT, folder, name))]
        return sha(*texts)

    def object(self, source, text):
        """Compile text in the place of source; the path of the object and the hash of its bytes."""
        made = os.path.join(self.cache, "obj", sha(" ".join(self.compile), self.headers, source, text) + ".o")
        if os.path.exists(made + ".no"):
            raise Unbuildable(read(made + ".no"))
        if not os.path.exists(made):
            self._compile(source, text, made)
        with open(made, "rb") as file:
            return made, sha(file.read())

    def _compile(self, source, text, made):
        os.makedirs(os.path.dirname(made), exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            # The name of the file is the source's own, in case it gets into the object.
            copy = os.path.join(folder, os.path.basename(source))
            out = os.path.join(folder, "out.o")
            with open(copy, "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run([*self.compile, f"-I{ROOT}/engine/src", "-c", copy, "-o", out], cwd=ROOT, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            words = "\n".join(done.stdout.strip().splitlines()[:12])
            if done.returncode != 0:
                if done.returncode == 1:  # the compiler's word, and no signal from outside
                    self._keep(made + ".no", words.encode())
                raise Unbuildable(words)
            with open(out, "rb") as file:
                self._keep(made, file.read())

    @staticmethod
    def _keep(path, data):
        part = f"{path}.{os.getpid()}.{id(data)}"
        with open(part, "wb") as file:
            file.write(data)
        os.replace(part, path)

    def baseline(self):
        """Compile every source as it stands."""
        self.objects = {source: self.object(source, read(os.path.join(ROOT, source))) for source in self.sources}
        return self.code()

    def code(self, source=None, digest=None):
        """The hash of an engine's code: its objects', one of them perhaps another."""
        return sha(*[digest if name == source else self.objects[name][1] for name in self.sources],
                   " ".join(self.link + self.libraries))

    def library(self, path, source=None, made=None):
        """Link an engine to path, with made in the place of source's object."""
        objects = [made if name == source else self.objects[name][0] for name in self.sources]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run([*self.link, "-o", path, *objects, *self.libraries], cwd=ROOT, check=True)
        return path
