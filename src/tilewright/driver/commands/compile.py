"""The command ``tilewright compile`` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.driver.commands.arguments import (
    DimLimits,
    InputShape,
    Json,
    Keep,
    MatmulPrecision,
    Model,
    PassConfig,
    Precision,
    Quiet,
    Report,
    Timeout,
    Verbose,
    check_verbosity,
)


def add_commands(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(compile)


def compile(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="The library to write.", show_default=False)],
    target: Annotated[str, typer.Option(help="Target: llvm, c, or llvm with -mtriple/-mcpu.")] = "llvm",
    opt_level: Annotated[int, typer.Option(min=0, max=4, help="How much to optimize.")] = 3,
    input_shape: InputShape = None,
    dim: DimLimits = None,
    specialize: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=1,NAME=1:16",
            help="Add a specialization for these values, or narrower limits, of named dimensions; the first that "
            "fits the inputs runs. Repeat for several.",
        ),
    ] = None,
    executor: Annotated[
        str,
        typer.Option(
            help="Executor: graph (known shapes, no branches or loops), aot (the same as one function), vm, or auto: "
            "the one it needs."
        ),
    ] = "auto",
    report: Report = None,
    dump_ir: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the IR after each stage here.")] = None,
    pass_config: PassConfig = None,
    cc: Annotated[str | None, typer.Option(help="Compiler driver that links the library.")] = None,
    symbol_prefix: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Of an object file (.o, .a): its symbols begin with NAME_, so that a program links several.",
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Put the weights into this file, which several libraries may share."),
    ] = None,
    records: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Tuning records, of `tilewright tune`, to choose schedules by.")
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option("--for", metavar="RUNTIME", help="Runtime that will load it, if not Tilewright: tvm-0.8."),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Partition the model for the external compiler NAME; see `show --partition`. Repeat for several.",
        ),
    ] = None,
    frontend: Annotated[
        str | None, typer.Option(metavar="NAME", help="Front end that reads the model; by default found by the suffix.")
    ] = None,
    output_format: Annotated[
        str,
        typer.Option(
            "-f",
            "--format",
            metavar="library|c|wasm|mlf",
            help="What to write: a library; a folder of C99 that needs no runtime, for boards, or of "
            "WebAssembly for Node and browsers; or a .tar in TVM's "
            "Model Library Format.",
        ),
    ] = "library",
    board: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With -f c: the board whose memory it has to fit into; `make test` runs it in QEMU on those emulated.",
        ),
    ] = None,
    workspace_pools: Annotated[
        str | None,
        typer.Option(
            metavar="NAME:BYTES,...",
            help="With -f c: parts of the workspace, such as dtcm:65536,sram; a tensor is in the first that has room.",
        ),
    ] = None,
    precision: Precision = "float32",
    keep: Keep = None,
    matmul_precision: MatmulPrecision = "highest",
    max_nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Limit of nodes after functions and loops are expanded; 262144 by default."),
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option(metavar="4GiB", help="Memory limit of compiling; the machine's by default.")
    ] = None,
    timeout: Timeout = None,
    unchecked_indices: Annotated[
        bool,
        typer.Option(
            "--unchecked-indices",
            help="Vouch for the indices, lengths and counts in its inputs: one out of range then reads or writes other "
            "memory, or crashes.",
        ),
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Compile a model to a shared library."""
    check_verbosity(quiet, verbose, as_json)
    from tilewright.driver.limits import Limits, time_limit

    with time_limit(timeout, f"compiling {model}"):
        from tilewright.driver.compile import CompileOptions, compile_model

        options = CompileOptions(
            model, output, target, opt_level, input_shape, dump_ir, pass_config, cc, records, runtime, dim, specialize,
            Limits(max_nodes, max_memory, timeout), executor, unchecked_indices, tuple(partition or ()), frontend,
            symbol_prefix or "", precision, tuple(keep or ()), output_format, matmul_precision, weights,
            board, workspace_pools, report,
        )  # fmt: skip
        compile_model(options, quiet, verbose, as_json)
