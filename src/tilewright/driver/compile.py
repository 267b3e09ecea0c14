"""``tilewright compile``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.driver.c_bundle import (
    FOLDERS,
    LIBRARY,
    MLF,
    WASM,
    C,
    c_target,
    check_folder,
    check_format,
    write_bundle,
)
from tilewright.driver.dims import parse_dim_limits
from tilewright.driver.limits import Limits
from tilewright.driver.options import (
    check_is_file,
    check_is_library,
    check_writable,
    format_bytes,
    parse_input_shapes,
    recorder_for,
)
from tilewright.driver.pass_options import parse_pass_config, runtime_config
from tilewright.driver.report import print_json, print_rows
from tilewright.ir.instrument import PassInstrument
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext, PassInfo
from tilewright.micro.model_library_format import export_model_library_format
from tilewright.micro.names import check_identifier
from tilewright.micro.wasm import export_wasm
from tilewright.model.build import weights_and_state
from tilewright.relay import build_module
from tilewright.relay.backend.aot import NAME as AOT
from tilewright.relay.backend.executor_choice import AUTO
from tilewright.relay.backend.needs import Needs
from tilewright.relay.backend.progress import BuildReport, ProgressEvent, watch
from tilewright.relay.backend.vm_specialize import OPTION as SPECIALIZE
from tilewright.relay.budget import in_budget
from tilewright.relay.frontend import import_model
from tilewright.relay.op.strategy.dense_rows import OPTION as SHARED_LAYOUT
from tilewright.relay.transform.partition.partition_for import partition_for
from tilewright.relay.transform.precision.halve_weights import FLOAT32, precision_config
from tilewright.runtime.error import TVMError
from tilewright.runtime.export import check_symbol_prefix
from tilewright.runtime.state import keep_state
from tilewright.runtime.text import printable
from tilewright.runtime.vm import Executable
from tilewright.runtime.weights_file import check_weights_file
from tilewright.target.target import Target
from tilewright.topi.cpu.model.float_tiles import HIGHEST, matmul_precision_config

if TYPE_CHECKING:
    from tilewright.report.model import Measured, ModelPage
    from tilewright.report.passes import PassRecorder

_STAGES = {
    "import": "importing",
    "optimize": "optimizing the graph",
    "fuse": "fusing operators",
    "lower": "scheduling and lowering kernels",
    "codegen": "generating code",
    "export": "linking",
}


class DumpIR(PassInstrument):
    """Writes the module after each pass to a numbered file; for InferType only if it changes something."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.count = 0
        self._before: IRModule | None = None

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Record the module before InferType."""
        self._before = mod if info.name == "InferType" else None

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Write the module's text."""
        if mod is not self._before:
            self.write(info.name, str(mod))

    def write(self, name: str, text: str, suffix: str = "txt") -> None:
        """Write one numbered file."""
        self.count += 1
        safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
        (self.folder / f"{self.count:03d}_{safe}.{suffix}").write_text(text)


@dataclass(frozen=True)
class CompileOptions:
    """Options of the command: model, output and settings; ``runtime`` is that of ``--for``."""

    model: Path
    output: Path
    target: str = "llvm"
    opt_level: int = 3
    input_shape: list[str] | None = None
    dump_ir: Path | None = None
    pass_config: list[str] | None = None
    cc: str | None = None
    records: Path | None = None
    runtime: str | None = None
    dims: list[str] | None = None
    specialize: list[str] | None = None
    limits: Limits = field(default_factory=Limits)
    executor: str = AUTO
    unchecked_indices: bool = False
    partition: tuple[str, ...] = ()
    frontend: str | None = None
    symbol_prefix: str = ""
    precision: str = FLOAT32
    keep: tuple[str, ...] = ()
    format: str = LIBRARY
    matmul_precision: str = HIGHEST
    weights: Path | None = None
    board: str | None = None
    workspace_pools: str | None = None
    report: Path | None = None

    @property
    def name(self) -> str:
        """Return the network's name, with which symbols of C begin."""
        return self.symbol_prefix or "model"


@dataclass(frozen=True)
class Compiled:
    """A finished library: the build's report, and the seconds from the model's file to the library's.

    ``factory`` is what ``relay.build`` gave, ``recorder`` has its passes where a page was asked for.
    """

    options: CompileOptions
    target: Target
    build: BuildReport
    seconds: float
    factory: Any
    recorder: PassRecorder | None = None


def build_library(options: CompileOptions, quiet: bool = False, recorder: PassRecorder | None = None) -> Compiled:
    """Compile a model to a library; ``quiet`` hides the progress from a terminal, ``recorder`` notes the passes."""
    start = time.perf_counter()
    shapes = parse_input_shapes(options.input_shape)
    config = runtime_config(options.runtime) | parse_pass_config(options.pass_config) | options.limits.config()
    if options.specialize:
        config = config | {SPECIALIZE: ";".join(options.specialize)}
    if options.weights is not None:
        config = {SHARED_LAYOUT: True} | config
    if options.unchecked_indices:
        config = config | {"relay.unchecked_indices": True}
    config = config | precision_config(options.precision, options.keep)
    config = config | matmul_precision_config(options.matmul_precision)
    target = _checked_target(options)
    dump = DumpIR(options.dump_ir) if options.dump_ir is not None else None
    with _progress(Console(quiet=quiet, stderr=True)):
        report, instruments = BuildReport(), [item for item in (dump, recorder) if item]
        context = PassContext(opt_level=options.opt_level, instruments=instruments or None, config=config)
        with _records(options), context, in_budget():
            with report.stage("import"):
                mod, params = import_model(options.model, shapes, options.frontend, dims=parse_dim_limits(options.dims))
            _check_needs(options, Needs(mod, params, options.precision))
            if dump:
                dump.write("import", str(mod))
            params, state = weights_and_state(mod, params)
            for compiler in options.partition:
                mod, params = partition_for(compiler, mod, params), {}
            name = "default" if options.format == LIBRARY else options.name
            asked = None if options.executor == AUTO else options.executor  # None: as the target says
            own = {**dict.fromkeys(FOLDERS, AOT), MLF: asked}
            executor = own.get(options.format, options.executor)
            factory = build_module.build(mod, target=target, params=params, executor=executor, mod_name=name)
        if dump:
            _dump_code(dump, factory)
        if options.format == LIBRARY and not runtime_config(options.runtime):
            keep_state(factory.module, state)
        with report.stage("export"):
            _export(options, factory, mod, params)
    built: BuildReport = factory.build_report
    built.stage_seconds = {**report.stage_seconds, **built.stage_seconds}
    return Compiled(options, target, built, time.perf_counter() - start, factory, recorder)


def model_page(compiled: Compiled, run: Measured | None = None) -> ModelPage:
    """Return the page about a compiled model, with the times of a run if there are some."""
    from tilewright.report.model import ModelPage

    page = ModelPage(f"{compiled.options.model.name} for {compiled.target}", list(_summary(compiled)))
    if compiled.recorder is not None:
        page.add_passes(compiled.recorder)
    with _records(compiled.options), PassContext(opt_level=compiled.options.opt_level):
        page.add_build(compiled.factory, compiled.build, run)
    return page


def _checked_target(options: CompileOptions) -> Target:
    """Return the target; raise for an output that cannot be written, or is none of the format."""
    check_format(options.format)
    if options.weights is not None:
        _check_weights(options, options.weights)
    for name, value in (("--board", options.board), ("--workspace-pools", options.workspace_pools)):
        if value is not None and options.format != C:
            raise TVMError(f"{name} is for --format {C}, not for --format {options.format}")
    if options.format in FOLDERS:
        check_identifier(options.name)
        check_folder(options.output)
        return c_target(options.target, options.board, options.workspace_pools)
    check_is_library(options.output)
    check_writable(options.output)
    if options.format == MLF:
        check_identifier(options.name)
        return Target(options.target)
    if options.symbol_prefix:
        check_symbol_prefix(options.symbol_prefix, options.output)
    return Target(options.target)


def _check_weights(options: CompileOptions, weights: Path) -> None:
    if options.format != LIBRARY:
        raise TVMError(f"--weights is for libraries, not for --format {options.format}")
    if runtime_config(options.runtime):
        raise TVMError(f"--weights and --for {options.runtime} exclude each other: only Tilewright finds such a file")
    check_weights_file(options.output, weights)


def _export(options: CompileOptions, factory: Any, mod: IRModule, params: dict[str, Any]) -> None:
    """Write the output."""
    if options.format == C:
        write_bundle(factory, mod, params, options.output, options.name)
        return
    if options.format == WASM:
        export_wasm(factory, options.output, options.name)
        return
    if options.format == MLF:
        export_model_library_format(factory, options.output)
        return
    linker: dict[str, Any] = {"cc": options.cc} if options.cc else {}
    factory.export_library(str(options.output), symbol_prefix=options.symbol_prefix, weights=options.weights, **linker)


def _check_needs(options: CompileOptions, needs: Needs) -> None:
    """Raise ExportError where the disk has no room for the output; warn where there is too little memory.

    What a file of weights that is there already lacks is known at the end only.
    """
    needs.warn_of_memory()
    if options.weights is None or not options.weights.exists():
        needs.check_disk(options.weights or options.output)


def _records(options: CompileOptions) -> contextlib.AbstractContextManager[Any]:
    """Apply the tuning records of the options."""
    if options.records is None:
        return contextlib.nullcontext()
    check_is_file(options.records)
    return ApplyHistoryBest(options.records)


def compile_model(options: CompileOptions, quiet: bool, verbose: bool, as_json: bool) -> None:
    """Compile a model and report."""
    if options.report is not None:
        check_writable(options.report)
    compiled = build_library(options, quiet or as_json, recorder_for(options.report))
    if options.report is not None:
        model_page(compiled).write(options.report)
    if as_json:
        print_json(_json_report(compiled))
    elif not quiet:
        print_rows([*_summary(compiled), *(_kernel_rows(compiled.build) if verbose else ())])


def _dump_code(dump: DumpIR, factory: Any) -> None:
    library = factory.lib if isinstance(factory, Executable) else factory.get_lib()
    for fmt, suffix in (("", "ll"), ("asm", "s")):
        with contextlib.suppress(RuntimeError):
            dump.write("code", library.get_source(fmt), suffix)
    if isinstance(factory, Executable):
        dump.write("bytecode", factory.as_text())
    elif (graph := factory.get_executor_config()) is not None:
        dump.write("graph", graph, "json")


def _summary(compiled: Compiled) -> list[tuple[str, str]]:
    report, output = compiled.build, compiled.options.output
    rows = [
        ("model", str(compiled.options.model)),
        ("library", f"{output}  ({format_bytes(_size(output))})"),
        ("target", str(compiled.target)),
        ("CPU features needed", ", ".join(report.cpu_features) or "none beyond the baseline"),
        ("operators", f"{report.operators}, in {report.kernel_calls} kernel calls of {report.kernels} kernels"),
    ]
    for what, counts in ("convolutions", report.convolutions), ("dense layers", report.dense_layers):
        if counts:
            rows.append((what, ", ".join(f"{count} {algorithm}" for algorithm, count in counts.items())))
    rows += [("quantized", line) for line in report.quantization()]
    rows += [("precision", line) for line in report.precision()]
    weights = format_bytes(report.parameter_bytes)
    if report.prepared_bytes:
        weights += f", and {format_bytes(report.prepared_bytes)} made of them when the library is loaded"
    if report.dimensions:
        rows.append(("dimensions", ", ".join(report.dimensions)))
    rows += [("open extents", line) for line in report.specialization()]
    stages = ", ".join(f"{name} {report.stage_seconds[name]:.1f}" for name in _STAGES if name in report.stage_seconds)
    rows.append(("weights", weights))
    if report.activation_bytes:
        rows.append(("activation memory, peak", format_bytes(report.activation_bytes)))
    rows += [
        ("time", f"{compiled.seconds:.1f} s  ({stages})"),
    ]
    return rows


def _size(output: Path) -> int:
    files = output.iterdir() if output.is_dir() else [output]
    return sum(file.stat().st_size for file in files)


def _kernel_rows(report: BuildReport) -> list[tuple[str, str]]:
    """Return how each kernel is computed."""
    return [
        (f"kernel {name}", " ".join(filter(None, (how, report.schedules.get(name, "")))))
        for name, how in report.implementations.items()
    ]


def _json_report(compiled: Compiled) -> dict[str, Any]:
    """Return the summary as JSON, in bytes and seconds, with the implementation of each kernel."""
    report, options = compiled.build, compiled.options
    return {
        "model": str(options.model),
        "library": str(options.output),
        "library_bytes": _size(options.output),
        "target": str(compiled.target),
        "cpu_features": list(report.cpu_features),
        "operators": report.operators,
        "kernel_calls": report.kernel_calls,
        "kernels": {
            name: {
                "implementation": how,
                "schedule": report.schedules.get(name, ""),
                "schedule_reason": report.schedule_reasons.get(name, ""),
            }
            for name, how in report.implementations.items()
        },
        "convolutions": report.convolutions,
        "dense_layers": report.dense_layers,
        "quantized_operators": len(report.quantized),
        "quantized_operators_in_float32": [
            {"node": d.node, "operator": d.operator, "reason": d.reason} for d in report.quantized if d.reason
        ],
        "precision": [{"node": w.node, "bytes": w.bytes, "dtype": w.dtype, "reason": w.reason} for w in report.halved],
        "bfloat16_gain": min(report.bfloat16_gains, default=1.0),
        "weight_bytes": report.parameter_bytes,
        "prepared_bytes": report.prepared_bytes,
        "activation_bytes": report.activation_bytes,
        "seconds": compiled.seconds,
        "stage_seconds": report.stage_seconds,
    }


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[None]:
    """A bar for each stage."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[item]}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def update(event: ProgressEvent) -> None:
            if event.stage not in tasks:
                tasks[event.stage] = bars.add_task(_STAGES.get(event.stage, event.stage), total=event.total, item="")
            item = printable(event.item.removeprefix("tvmgen_default_")[:48], spared="")
            bars.update(tasks[event.stage], completed=event.done, total=event.total, item=item)

        with watch(update):
            yield
