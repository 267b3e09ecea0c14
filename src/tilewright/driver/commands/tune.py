"""The commands ``tilewright tune`` and ``tilewright records``, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.driver.commands.arguments import (
    BoardKey,
    InputShape,
    Json,
    Model,
    PassConfig,
    Quiet,
    Server,
    Tracker,
    check_verbosity,
)

RecordFiles = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of records.", show_default=False)]
RecordOutput = Annotated[Path, typer.Option("-o", "--output", help="The file to write.", show_default=False)]


def add_commands(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(tune)
    records = typer.Typer(help="Merge, thin out and show files of tuning records.", no_args_is_help=True)
    records.command("merge")(merge)
    records.command("best")(best)
    records.command("show")(show_best)
    app.add_typer(records, name="records")


def tune(
    model: Model,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File for records; MODEL.records.jsonl by default.", show_default=False),
    ] = None,
    tuner: Annotated[str, typer.Option(help="Tuner: auto, xgb, ga, random or grid.")] = "auto",
    trials: Annotated[int, typer.Option(min=1, help="Total number of configurations to measure.")] = 1000,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Time limit of the search.")] = None,
    target: Annotated[str, typer.Option(help="Target.")] = "llvm",
    input_shape: InputShape = None,
    pass_config: PassConfig = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report in HTML.")] = None,
    number: Annotated[int, typer.Option(min=1, help="Calls of a measurement.")] = 4,
    repeat: Annotated[int, typer.Option(min=1, help="Measurements of a configuration.")] = 3,
    timeout: Annotated[float, typer.Option(min=0.1, help="Time limit of a build, or of a run, in seconds.")] = 15,
    flush: Annotated[bool, typer.Option("--flush/--warm", help="Flush caches before each measurement.")] = True,
    server: Server = None,
    tracker: Tracker = None,
    board_key: BoardKey = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Measure on the workers of a Dask scheduler, tcp://host:port."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find the fastest schedules for a model and save them as records."""
    check_verbosity(quiet, False, as_json)
    from tilewright.driver.board import Board
    from tilewright.driver.tune import TuneOptions, tune_model

    options = TuneOptions(
        model, output, tuner, trials, minutes, target, input_shape, pass_config, report, number, repeat, timeout, flush,
        Board.of(server, tracker, board_key), dask,
    )  # fmt: skip
    tune_model(options, quiet, as_json)


def merge(files: RecordFiles, output: RecordOutput) -> None:
    """Merge files of records, without duplicates."""
    from tilewright.driver.records import merge_records

    merge_records(files, output)


def best(files: RecordFiles, output: RecordOutput) -> None:
    """Write the fastest record of each workload to a file."""
    from tilewright.driver.records import keep_best

    keep_best(files, output)


def show_best(files: RecordFiles) -> None:
    """Print each workload, its fastest record and its configuration."""
    from tilewright.driver.records import show_records

    show_records(files)
