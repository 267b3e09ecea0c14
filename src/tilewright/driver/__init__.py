"""The command line: ``tilewright compile | run | bench | show | cache``; a file for each command.

``build`` and ``lower`` are here by TVM's name (``build_module.py``).
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def main() -> None:
    """Entry point of the ``tilewright`` command; Ctrl-C counts from the first import on."""
    try:
        from tilewright.driver.cli import main as run_command_line
    except KeyboardInterrupt:
        sys.exit(130)
    run_command_line()


def __getattr__(name: str) -> Any:
    if name == "build_module":
        return importlib.import_module("tilewright.driver.build_module")
    if name in ("build", "lower"):
        return getattr(importlib.import_module("tilewright.driver.build_module"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
