"""Makes every golden again, in order, then the manifest, and verifies the folder.

    python3 goldens/gen/all.py [--seed N] [--out DIR] [--plain]

First of all the generators' own tests: a model that proves nothing must be turned away.
--plain leaves out what needs torch and transformers (models, logits, greedy): what is there of them
stays as it is.  The trained model is an input and is never made here; see train_kjv.py.
"""

import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PLAIN = ("rng.py", "sampler.py", "f16.py", "int4.py", "linear.py", "kv.py",
         "safetensors_cases.py", "config_cases.py")
WITH_TORCH = ("models.py", "hf_logits.py", "hf_greedy.py")


def run(script, arguments):
    path = os.path.join(HERE, script)
    done = subprocess.run([sys.executable, "-B", path, *arguments])
    if done.returncode != 0:
        sys.exit(f"{script} ended with {done.returncode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=os.path.dirname(HERE))
    parser.add_argument("--plain", action="store_true", help="without torch and transformers")
    args = parser.parse_args()
    common = ["--seed", str(args.seed), "--out", os.path.abspath(args.out)]
    if not args.plain:
        run("models_test.py", [])
    for script in PLAIN + (() if args.plain else WITH_TORCH) + ("manifest.py",):
        run(script, common)
    run("verify.py", [os.path.abspath(args.out)])


if __name__ == "__main__":
    main()
