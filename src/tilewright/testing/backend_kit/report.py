"""All checks of a back end, and their results as a table."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from tilewright.testing.backend_kit import devices, faults, numerics, partitioning
from tilewright.testing.backend_kit.backend import Backend, Check


def checks(backend: Backend, cases: int = numerics.CASES, seed: int = 0) -> list[Check]:
    """Return the checks that apply to a back end.

    Args:
        backend: what it says of itself.
        cases: random operators of each family.
        seed: what they are drawn from.
    """
    found = [*devices.checks(backend), *partitioning.checks(backend), *numerics.checks(backend, cases, seed)]
    return [*found, *faults.checks(backend)]


def run(chosen: Sequence[Check], verbose: bool = False) -> int:
    """Run checks and print a line for each, failures with the reason; return the number of failures."""
    failed = 0
    width = max((len(str(check)) for check in chosen), default=0)
    for check in chosen:
        try:
            check()
        except Exception as error:
            failed += 1
            print(f"FAILED  {check!s:{width}}  {check.meaning}")
            reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            text = traceback.format_exc() if verbose else reason
            print("        " + text.strip().replace("\n", "\n        "))
        else:
            print(f"ok      {check!s:{width}}  {check.meaning}")
    print(f"{len(chosen) - failed} of {len(chosen)} checks passed")
    return failed
