"""The command line: ``tilewright compile | run | bench | show | cache``; a file for each command."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the ``tilewright`` command; Ctrl-C counts from the first import on."""
    try:
        from tilewright.driver.cli import main as run_command_line
    except KeyboardInterrupt:
        sys.exit(130)
    run_command_line()
