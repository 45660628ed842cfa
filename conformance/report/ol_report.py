#!/usr/bin/python3
"""Views of the log of a run: `ol report` and the foreign formats of `ol check --report`.

See README.md beside. Standard library only; the package beside is the whole of it.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from ol_report import cli  # noqa: E402

if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
