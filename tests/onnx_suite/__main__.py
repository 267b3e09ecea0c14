"""How many cases of ONNX's backend suite pass, and why the others do not: ``python -m tests.onnx_suite``."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tests.onnx_suite import suite


def main() -> int:
    """Run the cases that match; 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_suite", description=__doc__)
    parser.add_argument("--match", default="", help="run the cases whose names have this regular expression")
    parser.add_argument("--names", type=Path, help="run the cases that this file names, one a line")
    parser.add_argument("--opt-level", type=int, default=3)
    parser.add_argument("--part", default="0/1", help="I/N: each Nth case, from the Ith on")
    options = parser.parse_args()
    names = [name for name in suite.cases() if re.search(options.match, name)]
    if options.names:
        wanted = set(options.names.read_text().split())
        names = [name for name in names if name in wanted]
    first, step = map(int, options.part.split("/"))
    outcomes = []
    for name in names[first::step]:
        outcomes.append(suite.run(name, options.opt_level))
        print(outcomes[-1].name, outcomes[-1].kind, flush=True)
    print(suite.summary(outcomes))
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
