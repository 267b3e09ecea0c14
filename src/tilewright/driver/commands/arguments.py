"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

InputShape = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        metavar="NAME:1,3,224,224",
        help="Shape of an input; repeat for several. NAME:batch,128: a dimension that is known at run time only.",
    ),
]
DimLimits = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=1:8",
        help="Least and greatest value of a named dimension, or its number; seq=8:512:8 is in steps of 8. Repeat for "
        "several.",
    ),
]
DimNumbers = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", metavar="NAME=16", help="Value of a named dimension, for generated inputs; repeat for several."
    ),
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
Precision = Annotated[
    str,
    typer.Option(
        metavar="fp16|bf16|mixed|auto|float32",
        help="What weights are kept in: float16 or bfloat16 take half the memory; auto is bf16 where the processor "
        "multiplies it, else float32; mixed has float16 between operators too.",
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(metavar="NODE", help="A node that stays float32 with --precision; repeat for several."),
]
MatmulPrecision = Annotated[
    str,
    typer.Option(
        metavar="highest|high|medium",
        help="How float32 products are computed where the processor has AMX: to float32's error, or to 16 or 8 bits of "
        "each factor.",
    ),
]
Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", help="The model's file: ONNX, or a format of an installed front end.", show_default=False
    ),
]
Library = Annotated[
    Path, typer.Argument(metavar="LIBRARY", help="A library from `tilewright compile`.", show_default=False)
]
LibraryOrModel = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A library from `tilewright compile`, or an ONNX file, which is compiled for this run.",
        show_default=False,
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME=]FILE",
        help="Values of inputs: .npz, .npy, .json, a PNG or JPEG image, or - for standard input; repeat for several.",
    ),
]
Image = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Conversion of images to numbers; repeat for several. range=0,1: values of black and white; "
        "mean=0.5,0.4,0.4 and std=...: then subtracted, divided by; order=bgr; fit=crop: cut out the middle instead of "
        "stretching.",
    ),
]
Server = Annotated[
    str | None,
    typer.Option("--rpc", metavar="HOST:PORT", help="Run on the board with this RPC server.", show_default=False),
]
Tracker = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Run on a board from this RPC tracker.", show_default=False),
]
BoardKey = Annotated[str | None, typer.Option("--rpc-key", help="The kind of board.", show_default=False)]
CompileFirst = Annotated[
    bool, typer.Option("--compile", help="The file is an ONNX model, whatever its name: compile it first.")
]
Timeout = Annotated[float | None, typer.Option(min=0.001, metavar="SECONDS", help="Time limit.")]
MaxSteps = Annotated[
    int | None,
    typer.Option(min=1, help="Limit of calls and backward jumps in one run of the virtual machine."),
]
Report = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a page in HTML: graph, kernels, memory, passes, code."),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but errors.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Print more.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def check_verbosity(quiet: bool, verbose: bool, as_json: bool) -> None:
    """Raise where more than one of them is given."""
    if quiet + verbose + as_json > 1:
        raise typer.BadParameter("--quiet, --verbose and --json exclude one another")
