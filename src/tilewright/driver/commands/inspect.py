"""Commands that show a model, a library, the cache and the installation, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.driver.commands.arguments import InputShape, Json, Library, Model, PassConfig, Quiet


def add_commands(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(about)
    app.command()(info)
    app.command()(show)
    app.command()(opt)
    app.command()(cache)


def about(as_json: Json = False) -> None:
    """Print what is installed here, for a report of a defect."""
    from tilewright.driver.about import show_installation

    show_installation(as_json)


def info(
    library: Library,
    as_json: Json = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the file, and weights beside it, with their checksums.")
    ] = False,
    graph: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write its graph JSON, which Netron opens, to this file.")
    ] = None,
) -> None:
    """Print a library's inputs, outputs, requirements and origin."""
    from tilewright.driver.info import show_info

    show_info(library, as_json, verify, graph)


def show(
    model: Model,
    input_shape: InputShape = None,
    opt_level: Annotated[int | None, typer.Option(min=0, max=4, help="Show it optimized at this level.")] = None,
    target: Annotated[str, typer.Option(help="Target to optimize for.")] = "llvm",
    partition: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Print which operators the external compiler NAME takes, and why not the others."
        ),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the graph to this file; with --partition its regions.")
    ] = None,
) -> None:
    """Print the Relay text of an ONNX model, or draw it."""
    from tilewright.driver.show import show_model, show_partition

    if partition is not None:
        show_partition(model, input_shape, partition, svg)
        return
    show_model(model, input_shape, opt_level, target, svg)


def opt(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Relay text, JSON, or an ONNX model.", show_default=False)
    ],
    passes: Annotated[
        list[str],
        typer.Option(
            "--pass",
            metavar="NAME[(OPTIONS)][,...]",
            help="Passes to run, in order, such as InferType,FuseOps(fuse_opt_level=2); repeat for more. optimize and "
            "fuse are the passes of compile.",
            show_default=False,
        ),
    ] = [],  # noqa: B006  (typer reads it)
    target: Annotated[str, typer.Option(help="Target of the passes.")] = "llvm",
    opt_level: Annotated[int, typer.Option(min=0, max=4, help="The PassContext's level.")] = 3,
    input_shape: InputShape = None,
    pass_config: PassConfig = None,
    verify: Annotated[bool, typer.Option("--verify", help="Verify the module after each pass.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File for the module, with its constants; opt reads it again.")
    ] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print the module after each pass.")] = False,
) -> None:
    """Print a module after passes."""
    from tilewright.driver.opt import OptOptions, optimize_file

    options = OptOptions(file, passes, target, opt_level, input_shape, pass_config, verify, output)
    optimize_file(options, verbose)


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove every kernel.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show or clear the cache of compiled kernels on disk."""
    from tilewright.driver.cache import clear_cache, show_cache

    if clear:
        clear_cache(quiet)
    elif not quiet:
        show_cache(as_json)
