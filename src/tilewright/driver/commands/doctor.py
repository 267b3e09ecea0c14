"""The command ``tilewright doctor`` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.driver.commands.arguments import InputShape, Json, Model


def add_commands(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(doctor)


def doctor(
    model: Model,
    threads: Annotated[
        str | None, typer.Option(metavar="N[,N...]", help="Threads to run on, one after another; 1 by default.")
    ] = None,
    target: Annotated[str, typer.Option(help="This machine's processor, or one whose code it runs.")] = "llvm",
    input_shape: InputShape = None,
    html: Annotated[Path | None, typer.Option(metavar="PAGE.html", help="Write all kernels to a page.")] = None,
    most: Annotated[int, typer.Option("--top", min=1, help="Kernels to print, those that lose most.")] = 20,
    alternatives: Annotated[
        bool, typer.Option(help="Build the model in other ways, too, to see which kernels are faster there.")
    ] = True,
    search: Annotated[
        int,
        typer.Option(metavar="TRIALS", min=0, help="Let the auto-scheduler try so many schedules a kernel (minutes)."),
    ] = 0,
    processor: Annotated[
        bool, typer.Option("--processor", help="Take processor time on one thread: other programs use the machine.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tell which kernels of a model lose time on this machine, and why."""
    from tilewright.driver.doctor import examine
    from tilewright.driver.options import check_is_file, check_writable, parse_input_shapes, parse_threads

    check_is_file(model)
    if html is not None:
        check_writable(html)
    shapes = parse_input_shapes(input_shape) or None
    examine(model, shapes, target, parse_threads(threads) or (1,), html, most, alternatives, search, processor, as_json)
