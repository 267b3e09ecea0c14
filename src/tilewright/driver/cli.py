"""The commands of ``tilewright`` and their options; each command is implemented in the file of its name."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tilewright.driver import cli_doctor, cli_rpc
from tilewright.runtime.environment import TRACEBACK, check_environment
from tilewright.runtime.error import TVMError
from tilewright.runtime.interrupt import heard_interrupts
from tilewright.runtime.text import printable

app = typer.Typer(
    help="Compile neural networks to small, fast libraries, and run them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli_rpc.add_commands(app)
cli_doctor.add_commands(app)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

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
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but errors.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Print more.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        import tilewright

        typer.echo(tilewright.__version__)
        raise typer.Exit


@app.callback()
def before(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compile neural networks to small, fast libraries, and run them."""
    for line in check_environment():
        errors.print(f"[bold yellow]warning:[/] {escape(printable(line))}")


@app.command()
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
    _check_verbosity(quiet, verbose, as_json)
    from tilewright.driver.limits import Limits, time_limit

    with time_limit(timeout, f"compiling {model}"):
        from tilewright.driver.compile import CompileOptions, compile_model

        options = CompileOptions(
            model, output, target, opt_level, input_shape, dump_ir, pass_config, cc, records, runtime, dim, specialize,
            Limits(max_nodes, max_memory, timeout), executor, unchecked_indices, tuple(partition or ()), frontend,
            symbol_prefix or "", precision, tuple(keep or ()), output_format, matmul_precision, weights,
            board, workspace_pools,
        )  # fmt: skip
        compile_model(options, quiet, verbose, as_json)


@app.command()
def about(as_json: Json = False) -> None:
    """Print what is installed here, for a report of a defect."""
    from tilewright.driver.about import show_installation

    show_installation(as_json)


@app.command()
def info(
    library: Library,
    as_json: Json = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the checksums of weights in a file beside the library.")
    ] = False,
) -> None:
    """Print a library's inputs, outputs, requirements and origin."""
    from tilewright.driver.info import show_info

    show_info(library, as_json, verify)


@app.command()
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
    _check_verbosity(quiet, verbose, as_json)
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


@app.command()
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
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print the median alone, in ms.")] = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Measure the latency of a compiled library."""
    _check_verbosity(quiet, verbose, as_json)
    from tilewright.driver.bench import BenchOptions, bench_library
    from tilewright.driver.board import Board
    from tilewright.driver.images import parse_image_options
    from tilewright.driver.limits import time_limit
    from tilewright.driver.options import parse_percentiles, parse_threads

    pictures, counts, wanted = parse_image_options(image), parse_threads(threads), parse_percentiles(percentiles)
    board = Board.of(server, tracker, board_key)
    options = BenchOptions(
        library,
        inputs,
        pictures,
        counts,
        warmup,
        repeat,
        seconds,
        wanted,
        profile,
        compile_first,
        input_shape,
        board,
        dim,
        max_steps,
    )
    with time_limit(timeout, f"measuring {library}"):
        bench_library(options, quiet, verbose, as_json)


@app.command()
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
    _check_verbosity(quiet, False, as_json)
    from tilewright.driver.compare import CompareOptions, compare_model
    from tilewright.driver.images import parse_image_options

    pictures = parse_image_options(image)
    options = CompareOptions(
        model, engine, inputs, pictures, dim, input_shape, tolerance, layers, precision, tuple(keep or ()),
        matmul_precision,
    )  # fmt: skip
    if not compare_model(options, quiet, as_json):
        raise typer.Exit(1)


@app.command()
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
) -> None:
    """Print the Relay text of an ONNX model."""
    from tilewright.driver.show import show_model, show_partition

    if partition is not None:
        show_partition(model, input_shape, partition)
        return
    show_model(model, input_shape, opt_level, target)


@app.command()
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


@app.command()
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


@app.command()
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
        typer.Option(metavar="int4|int8", help="Weights of matrix products alone, by block: for language models."),
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
    _check_verbosity(quiet, False, as_json)
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


@app.command()
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
    _check_verbosity(quiet, False, as_json)
    from tilewright.driver.board import Board
    from tilewright.driver.tune import TuneOptions, tune_model

    options = TuneOptions(
        model, output, tuner, trials, minutes, target, input_shape, pass_config, report, number, repeat, timeout, flush,
        Board.of(server, tracker, board_key), dask,
    )  # fmt: skip
    tune_model(options, quiet, as_json)


records_app = typer.Typer(help="Merge, thin out and show files of tuning records.", no_args_is_help=True)
app.add_typer(records_app, name="records")
RecordFiles = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of records.", show_default=False)]
RecordOutput = Annotated[Path, typer.Option("-o", "--output", help="The file to write.", show_default=False)]


@records_app.command("merge")
def merge(files: RecordFiles, output: RecordOutput) -> None:
    """Merge files of records, without duplicates."""
    from tilewright.driver.records import merge_records

    merge_records(files, output)


@records_app.command("best")
def best(files: RecordFiles, output: RecordOutput) -> None:
    """Write the fastest record of each workload to a file."""
    from tilewright.driver.records import keep_best

    keep_best(files, output)


@records_app.command("show")
def show_best(files: RecordFiles) -> None:
    """Print each workload, its fastest record and its configuration."""
    from tilewright.driver.records import show_records

    show_records(files)


@app.command()
def version() -> None:
    """Print the version."""
    _print_version(True)


def _check_verbosity(quiet: bool, verbose: bool, as_json: bool) -> None:
    if quiet + verbose + as_json > 1:
        raise typer.BadParameter("--quiet, --verbose and --json exclude one another")


def main() -> None:
    """Run the command; turn every error into one message and exit status 1.

    The status is 2 for wrong usage, 130 for Ctrl-C and 143 for SIGTERM.
    """
    format_before, warnings.formatwarning = warnings.formatwarning, _format_warning
    _replace_closed_streams()
    heard: list[int] = []
    try:
        try:
            with heard_interrupts(terminated=True) as heard:
                app(prog_name="tilewright")
        finally:
            warnings.formatwarning = format_before
            sys.stdout.flush()
    except (KeyboardInterrupt, SystemExit) as ended:
        well = isinstance(ended, SystemExit) and not ended.code  # as tuning ends, which goes to its finals
        if isinstance(ended, SystemExit) and (well or not heard):
            raise
        _quit(128 + heard[-1] if heard else 130)
    except BrokenPipeError:  # whoever read the output has seen enough
        _quit(1)
    except Exception as error:
        if TRACEBACK.read():
            raise
        _tell(error)
        _quit(1)


def _replace_closed_streams() -> None:
    """Give standard output and error, where the caller closed them, a place to write to; files would take it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # as long as the process


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Format a Python warning without its source line, which means nothing to users of the command."""
    return f"warning: {printable(str(message))}\n"


def _tell(error: Exception) -> None:
    errors.print(f"[bold red]error:[/] {escape(printable(_message(error)))}")
    if not isinstance(error, (TVMError, OSError, MemoryError)):
        errors.print(f"This is a defect of Tilewright. Set {TRACEBACK.name}=1 to see where it arose.")


def _message(error: Exception) -> str:
    text = str(error).strip()
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'writing the output'}: {error.strerror}"
    return text if isinstance(error, (TVMError, OSError)) else f"{type(error).__name__}: {text}"


def _quit(status: int) -> None:
    """Exit; buffered data of closed or full outputs is dropped instead of failing once more."""
    for stream in sys.stdout, sys.stderr:
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)
