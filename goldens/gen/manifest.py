"""MANIFEST.json: size, hash and origin of every file of a goldens folder.

Generator and arguments of a vectors file are those that it names itself; other files are covered
by ORIGINS, by the longest prefix.  Everything below gen/ and the manifest itself are left out.
"""

import hashlib
import os

import vectors as v

# prefix: (generator, whether it takes --seed)
ORIGINS = {"libm.probe.json": ("gen/sampler.py", True), "models/": ("gen/models.py", True),
           "models/kjv/": ("gen/train_kjv.py", False), "README.md": ("by hand", False)}


def files_of(folder):
    """Paths below the folder with /, sorted, without gen/ and the manifest."""
    out = []
    for root, names, files in os.walk(folder):
        names[:] = [n for n in names if n != "__pycache__" and not (root == folder and n == "gen")]
        for name in files:
            path = os.path.relpath(os.path.join(root, name), folder).replace(os.sep, "/")
            if path != "MANIFEST.json":
                out.append(path)
    return sorted(out)


def origin_of(folder, path, seed):
    if path.endswith(".vectors.json") or path.endswith(".golden.json"):
        command = v.load_strict(os.path.join(folder, path))["generator"]["command"].split()
        script = command[1].removeprefix("goldens/")
        return script, command[2:]
    for prefix in sorted(ORIGINS, key=len, reverse=True):
        if path.startswith(prefix):
            script, seeded = ORIGINS[prefix]
            return script, ["--seed", str(seed)] if seeded else []
    raise SystemExit(f"{path}: nothing says which generator made it")


def main(argv=None):
    args = v.arguments(__doc__.split("\n")[0], argv)
    entries = []
    for path in files_of(args.out):
        with open(os.path.join(args.out, path), "rb") as stream:
            data = stream.read()
        script, rest = origin_of(args.out, path, args.seed)
        entries.append({"path": path, "bytes": len(data),
                        "sha256": hashlib.sha256(data).hexdigest(), "generator": script,
                        "args": rest})
    v.write_text(os.path.join(args.out, "MANIFEST.json"),
                 v.dumps({"schema": "ol.manifest/1", "files": entries}) + "\n")
    print(f"MANIFEST.json: {len(entries)} files, {sum(e['bytes'] for e in entries)} bytes")


if __name__ == "__main__":
    main()
