"""Checks a goldens folder without making anything: manifest, hashes, schema, counts, models.

    python3 goldens/gen/verify.py [DIR]

Standard library only.  Prints every fault with its file and exits with 1, or one line and 0.
"""

import hashlib
import os
import sys

import manifest
import vectors as v

TOTAL_BYTES_MAX = 16 << 20


def manifest_faults(folder):
    path = os.path.join(folder, "MANIFEST.json")
    try:
        doc = v.load_strict(path)
    except (OSError, ValueError) as error:
        return [f"MANIFEST.json: {error}"]
    if list(doc) != ["schema", "files"] or doc["schema"] != "ol.manifest/1":
        return ["MANIFEST.json: not an ol.manifest/1"]
    faults = []
    listed = [e["path"] for e in doc["files"]]
    if listed != sorted(set(listed)):
        faults.append("MANIFEST.json: paths are not sorted or stand twice")
    present = manifest.files_of(folder)
    faults += [f"{p}: not in the manifest" for p in sorted(set(present) - set(listed))]
    faults += [f"{p}: in the manifest, but not there" for p in sorted(set(listed) - set(present))]
    for entry in doc["files"]:
        if list(entry) != ["path", "bytes", "sha256", "generator", "args"]:
            faults.append(f"MANIFEST.json: the entry of {entry.get('path')} has other keys")
        elif entry["path"] in present:
            with open(os.path.join(folder, entry["path"]), "rb") as stream:
                data = stream.read()
            if len(data) != entry["bytes"]:
                faults.append(f"{entry['path']}: {len(data)} bytes, {entry['bytes']} in the "
                              "manifest")
            elif hashlib.sha256(data).hexdigest() != entry["sha256"]:
                faults.append(f"{entry['path']}: another hash than in the manifest")
    if sum(e["bytes"] for e in doc["files"]) > TOTAL_BYTES_MAX:
        faults.append("the folder is larger than 16 MiB")
    return faults


def probe_faults(doc):
    if list(doc) != ["schema", "generator", "exp", "log"] or doc["schema"] != "ol.probe/1":
        return ["not an ol.probe/1"]
    return [f"{name}: x and y differ in length" for name in ("exp", "log")
            if len(doc[name]["x"]) != len(doc[name]["y"])]


def vectors_faults(folder, name):
    try:
        doc = v.load_strict(os.path.join(folder, name))
    except (OSError, ValueError) as error:
        return [str(error)], 0
    if name == "libm.probe.json":
        return probe_faults(doc), 0
    faults = v.check_vectors(doc)
    if not faults:
        models = {c["model"] for g in doc["groups"] for c in g["cases"] if "model" in c}
        faults += [f"model {m} is not there" for m in sorted(models)
                   if not os.path.isfile(os.path.join(folder, m, "config.json"))]
    return faults, doc.get("n_cases", 0)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else v.GOLDENS_DIR
    faults, cases, names = manifest_faults(folder), 0, []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json") and name != "MANIFEST.json":
            found, count = vectors_faults(folder, name)
            faults += [f"{name}: {fault}" for fault in found]
            cases += count
            names.append(name)
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        sys.exit(1)
    print(f"{len(names)} files, {cases} cases: manifest, hashes, schema and counts hold")


if __name__ == "__main__":
    main()
