"""Entry point of the ``tilewright`` command. Every failure is one message and a non-zero exit status."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

app = typer.Typer(
    help="Compile neural networks to small, fast libraries, and run them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

InputShape = Annotated[
    list[str] | None,
    typer.Option("--input-shape", metavar="NAME:1,3,224,224", help="Shape of an input; repeat for several."),
]
PassConfig = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="An option of PassContext; repeat for several. relay.conv2d.winograd=off, =2 or =4 bounds the rounding "
        "error of convolutions: direct only; tiles of 2x2, as exact as direct; the default, up to 2e-5 of the largest "
        "value. relay.dense.strassen=false: direct products only.",
    ),
]
Model = Annotated[Path, typer.Argument(help="The ONNX file.", show_default=False)]
Library = Annotated[Path, typer.Argument(help="A library that `tilewright compile` wrote.", show_default=False)]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads to run on; all cores by default.")]


@app.command()
def compile(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="The library to write.", show_default=False)],
    target: Annotated[str, typer.Option(help="Where it will run: llvm, c, or llvm with -mtriple/-mcpu.")] = "llvm",
    opt_level: Annotated[int, typer.Option(min=0, max=4, help="How much to optimize.")] = 3,
    input_shape: InputShape = None,
    dump_ir: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the IR after each stage here.")] = None,
    pass_config: PassConfig = None,
    cc: Annotated[str | None, typer.Option(help="Compiler driver that links the library.")] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Compile an ONNX model to a shared library."""
    from tilewright.driver.compile import compile_model

    compile_model(model, output, target, opt_level, input_shape, dump_ir, pass_config, cc, quiet)


@app.command()
def run(
    library: Library,
    inputs: Annotated[Path | None, typer.Option(help=".npz file with an array for each input.")] = None,
    fill: Annotated[str | None, typer.Option(help="Make up inputs: random, zeros or ones.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=".npz file for the outputs.")] = None,
    threads: Threads = None,
) -> None:
    """Run a compiled library once."""
    _set_threads(threads)
    from tilewright.driver.run import run_library

    run_library(library, inputs, fill, output)


@app.command()
def bench(
    library: Library,
    threads: Threads = None,
    repeat: Annotated[int, typer.Option(min=1, help="Number of measurements.")] = 10,
    seconds: Annotated[float, typer.Option(min=0.01, help="Least time of a measurement.")] = 0.2,
) -> None:
    """Measure the latency of a compiled library."""
    _set_threads(threads)
    from tilewright.driver.run import bench_library

    bench_library(library, repeat, seconds)


@app.command()
def show(
    model: Model,
    input_shape: InputShape = None,
    opt_level: Annotated[int | None, typer.Option(min=0, max=4, help="Show it optimized at this level.")] = None,
    target: Annotated[str, typer.Option(help="Target to optimize for.")] = "llvm",
) -> None:
    """Print the Relay text of an ONNX model."""
    from tilewright.driver.compile import show_model

    show_model(model, input_shape, opt_level, target)


@app.command()
def version() -> None:
    """Print the version."""
    import tilewright

    print(tilewright.__version__)


def _set_threads(threads: int | None) -> None:
    """Must happen before the runtime starts its pool."""
    if threads is not None:
        os.environ["TVM_NUM_THREADS"] = str(threads)


def main() -> None:
    """Run the command; turn every error into one message and exit status 1 (2 for wrong usage)."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if os.environ.get("TILEWRIGHT_TRACEBACK"):
        app()
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except MemoryError:
        errors.print("[bold red]error:[/] out of memory")
        sys.exit(1)
    except Exception as error:
        errors.print(f"[bold red]error:[/] {escape(_message(error))}")
        if not _expected(error):
            errors.print("This is a defect of Tilewright. Set TILEWRIGHT_TRACEBACK=1 to see where it arose.")
        sys.exit(1)


def _message(error: Exception) -> str:
    text = str(error).strip()
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return text if _expected(error) else f"{type(error).__name__}: {text}"


def _expected(error: Exception) -> bool:
    from tilewright.runtime.error import TVMError

    return isinstance(error, (TVMError, OSError))
