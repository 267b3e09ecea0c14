"""``python -m tilewright.testing.backend_kit MODULE:NAME``: run the checks that apply to a back end."""

from __future__ import annotations

import argparse
import importlib
import sys

from tilewright.testing.backend_kit.backend import Backend
from tilewright.testing.backend_kit.report import checks, run


def main(arguments: list[str] | None = None) -> int:
    """0 when all pass."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.testing.backend_kit", description=__doc__)
    parser.add_argument("backend", help="where the Backend is: my_package.kit:BACKEND")
    parser.add_argument("--only", default="", help="checks whose names have this, such as 'numerics.' or 'scopes'")
    parser.add_argument("--cases", type=int, default=4, help="random operators of each family")
    parser.add_argument("--seed", type=int, default=0, help="what they are drawn from")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks of failures")
    options = parser.parse_args(arguments)
    module, _, name = options.backend.partition(":")
    backend = getattr(importlib.import_module(module), name or "BACKEND")
    if not isinstance(backend, Backend):
        parser.error(f"{options.backend} is no tilewright.testing.backend_kit.Backend")
    chosen = [check for check in checks(backend, options.cases, options.seed) if options.only in str(check)]
    return 1 if run(chosen, options.verbose) > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
