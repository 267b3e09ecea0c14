"""Runs cases from the command line: ``python -m tests.random_operators --seed 1 --cases 1000 [--operator Conv ...]``.

``--case N`` runs one case, shows it, and with ``--shrink`` the smallest that fails alike; ``--save`` writes the model
and its inputs beside a script that runs them.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from pathlib import Path

from tests.random_operators.check import OPERATORS, nth_case, run, smallest
from tests.random_operators.onnx_runtime import server
from tests.random_operators.report import report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--case", type=int)
    parser.add_argument("--operator", nargs="*", default=[])
    parser.add_argument("--save", type=Path, help="folder for failures")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--show", action="store_true", help="the tally of each operator")
    given = parser.parse_args()
    operators = given.operator or OPERATORS
    numbers = [given.case] if given.case is not None else range(given.start, given.start + given.cases)
    tally: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    failures, began = 0, time.monotonic()
    for number in numbers:
        case = nth_case(given.seed, number, operators)
        result = run(case)
        tally[case.operator][result.kind] += 1
        if (number + 1) % 1000 == 0:
            print(
                f"{number + 1} cases, {failures} failed, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True
            )
        if not result.failed:
            continue
        failures += 1
        if tally[case.operator][result.kind] > 1:
            print(f"== again {case.operator}: {result.kind} (case {number})", flush=True)
            continue
        small = case if given.no_shrink else smallest(case, result.kind)
        print(report(given.seed, number, small, run(small), given.save), flush=True)
    total = sum(tally.values(), collections.Counter())
    if given.show:
        for operator, counts in sorted(tally.items()):
            print(f"{operator:22}", dict(counts))
    seconds, deaths = time.monotonic() - began, server().deaths
    print(f"seed {given.seed}: {dict(total)} in {seconds:.0f} s; ONNX Runtime died {deaths} times")
    return 1 if failures else 0


sys.exit(main())
