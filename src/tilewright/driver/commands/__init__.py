"""The commands of ``tilewright`` and their options; each is implemented in the file of its name one folder up.

The implementations are imported when a command runs, not before: ``--help`` and a wrong option answer at once.
"""

from __future__ import annotations

import typer

from tilewright.driver.commands import compile, doctor, inspect, quantize, rpc, run, tune


def add_commands(app: typer.Typer) -> None:
    """Add all commands to the application, in the order in which ``--help`` lists them."""
    for group in compile, run, inspect, doctor, quantize, tune, rpc:
        group.add_commands(app)
