"""Commands that run a model, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.driver.commands.arguments import (
    BoardKey,
    CompileFirst,
    DimNumbers,
    Image,
    Inputs,
    InputShape,
    Json,
    Keep,
    LibraryOrModel,
    MatmulPrecision,
    MaxSteps,
    Model,
    Precision,
    Quiet,
    Report,
    Server,
    Timeout,
    Tracker,
    Verbose,
    check_verbosity,
)


def add_commands(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(run)
    app.command()(bench)
    app.command()(compare)


def run(
    library: LibraryOrModel,
    inputs: Inputs = None,
    fill: Annotated[str | None, typer.Option(help="Generate inputs: random, zeros or ones.")] = None,
    image: Image = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File for the outputs: .npz, .npy or .json.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="File (.npz) of what the model keeps from run to run: read if there, written.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads to run on; all cores by default.")] = None,
    compile_first: CompileFirst = False,
    input_shape: InputShape = None,
    dim: DimNumbers = None,
    server: Server = None,
    tracker: Tracker = None,
    board_key: BoardKey = None,
    timeout: Timeout = None,
    max_steps: MaxSteps = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run a compiled library once."""
    check_verbosity(quiet, verbose, as_json)
    from tilewright.driver.board import Board
    from tilewright.driver.images import parse_image_options
    from tilewright.driver.limits import time_limit
    from tilewright.driver.run import RunOptions, run_library

    pictures, board = parse_image_options(image), Board.of(server, tracker, board_key)
    options = RunOptions(
        library, inputs, fill, pictures, output, threads or 0, compile_first, input_shape, board, dim, max_steps, state
    )
    with time_limit(timeout, f"running {library}"):
        run_library(options, quiet, verbose, as_json)


def bench(
    library: LibraryOrModel,
    inputs: Inputs = None,
    image: Image = None,
    threads: Annotated[
        str | None, typer.Option(metavar="N[,N...]", help="Threads to run on, one after another; all cores by default.")
    ] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Runs before measuring.")] = 1,
    repeat: Annotated[int, typer.Option(min=1, help="Number of measurements.")] = 10,
    seconds: Annotated[float, typer.Option(min=0.01, help="Least time of a measurement.")] = 0.2,
    percentiles: Annotated[
        str | None,
        typer.Option(metavar="P[,P...]", help="Time each run and print these percentiles, such as 50,90,99."),
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Print the time of each operator, too.")] = False,
    compile_first: CompileFirst = False,
    input_shape: InputShape = None,
    dim: DimNumbers = None,
    server: Server = None,
    tracker: Tracker = None,
    board_key: BoardKey = None,
    timeout: Timeout = None,
    max_steps: MaxSteps = None,
    report: Report = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a trace of a run for Perfetto, in JSON.")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print the median alone, in ms.")] = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Measure the latency of a compiled library."""
    check_verbosity(quiet, verbose, as_json)
    from tilewright.driver.bench import BenchOptions, bench_library
    from tilewright.driver.board import Board
    from tilewright.driver.images import parse_image_options
    from tilewright.driver.limits import time_limit
    from tilewright.driver.options import parse_percentiles, parse_threads

    pictures, counts, wanted = parse_image_options(image), parse_threads(threads), parse_percentiles(percentiles)
    board = Board.of(server, tracker, board_key)
    options = BenchOptions(
        library, inputs, pictures, counts, warmup, repeat, seconds, wanted, profile, compile_first, input_shape, board,
        dim, max_steps, report, trace,
    )  # fmt: skip
    with time_limit(timeout, f"measuring {library}"):
        bench_library(options, quiet, verbose, as_json)


def compare(
    model: Model,
    engine: Annotated[
        str, typer.Option("--with", help="onnxruntime, or reference: ONNX's own evaluator, which is slow and exact.")
    ] = "onnxruntime",
    inputs: Inputs = None,
    image: Image = None,
    dim: DimNumbers = None,
    input_shape: InputShape = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Largest difference, in parts of a tensor's largest magnitude.")
    ] = 1e-3,
    layers: Annotated[bool, typer.Option("--layers", help="Compare the result of every node, in order.")] = False,
    precision: Precision = "float32",
    keep: Keep = None,
    matmul_precision: MatmulPrecision = "highest",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing; see the exit status.")] = False,
    as_json: Json = False,
) -> None:
    """Compare a model's outputs with another engine's; exit status 1 where they differ. Generates missing inputs."""
    check_verbosity(quiet, False, as_json)
    from tilewright.driver.compare import CompareOptions, compare_model
    from tilewright.driver.images import parse_image_options

    pictures = parse_image_options(image)
    options = CompareOptions(
        model, engine, inputs, pictures, dim, input_shape, tolerance, layers, precision, tuple(keep or ()),
        matmul_precision,
    )  # fmt: skip
    if not compare_model(options, quiet, as_json):
        raise typer.Exit(1)
