"""The command ``tilewright quantize`` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.driver.commands.arguments import Image, Json, Model, Quiet, check_verbosity


def add_commands(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(quantize)


def quantize(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="The ONNX file to write.", show_default=False)],
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE|FOLDER", help="Samples: .npz, .npy, or a folder of such files and of images."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Method that finds ranges of activations: minmax (by default), entropy, percentile or mse; with "
            "--weights how codes are chosen: rtn (by default), awq or gptq.",
            show_default=False,
        ),
    ] = None,
    percentile: Annotated[
        float, typer.Option(min=50, max=100, help="With --method percentile: percentage of the values in the range.")
    ] = 99.99,
    per_channel: Annotated[
        bool, typer.Option("--per-channel/--per-tensor", help="A scale for each output channel of weights, or one.")
    ] = True,
    activations: Annotated[str, typer.Option(help="uint8, with zero points, or int8, symmetric.")] = "uint8",
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="A node that stays in float; repeat for several.")
    ] = None,
    dynamic: Annotated[
        bool,
        typer.Option("--dynamic", help="Find ranges while the model runs: matrix products only; needs no samples."),
    ] = False,
    computed: Annotated[
        bool, typer.Option("--computed", help="Quantize products of two computed matrices, too, as attention has.")
    ] = False,
    weights: Annotated[
        str | None,
        typer.Option(metavar="int4|int8|int2", help="Weights of matrix products alone, by block: for language models."),
    ] = None,
    block: Annotated[int, typer.Option(help="With --weights: numbers that share a scale.")] = 32,
    zero_points: Annotated[
        bool, typer.Option("--zero-points", help="With --weights: blocks have zero points, too.")
    ] = False,
    accuracy_level: Annotated[
        int, typer.Option(help="With --weights: 4 lets products round activations to int8, 1 keeps float32.")
    ] = 4,
    image: Image = None,
    target: Annotated[str, typer.Option(help="Target of the float model for calibration.")] = "llvm",
    table_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds to measure single layers for the table; 0: no table.")
    ] = 60.0,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report in HTML.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make an int8 ONNX model of a float one, calibrated on samples; print what each layer costs and gains.

    With --weights, make one whose matrices alone are of few bits.
    """
    check_verbosity(quiet, False, as_json)
    from tilewright.driver.images import parse_image_options
    from tilewright.driver.quantize import QuantizeOptions, quantize_model
    from tilewright.driver.quantize_weights import WeightOptions, quantize_weights_of_model

    if weights is not None:
        if dynamic or computed or report is not None:
            raise typer.BadParameter("--dynamic, --computed and --report are not for --weights", param_hint="--weights")
        chosen = WeightOptions(
            model, output, data, weights, block, method or "rtn", zero_points, accuracy_level, tuple(exclude or ()),
            parse_image_options(image), target,
        )  # fmt: skip
        quantize_weights_of_model(chosen, quiet, as_json)
        return
    options = QuantizeOptions(
        model, output, data, method or "minmax", percentile, per_channel, activations, tuple(exclude or ()),
        parse_image_options(image), target, table_seconds, dynamic, computed, report,
    )  # fmt: skip
    quantize_model(options, quiet, as_json)
