"""``tilewright compile`` and ``tilewright show``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tilewright.driver.options import check_writable, format_bytes, parse_input_shapes, parse_pass_config
from tilewright.ir.instrument import PassInstrument
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext, PassInfo
from tilewright.relay import build_module
from tilewright.relay.backend.progress import BuildReport, ProgressEvent, watch
from tilewright.relay.frontend.onnx.importer import from_onnx, load_model
from tilewright.target.target import Target

_STAGES = {
    "import": "importing",
    "optimize": "optimizing the graph",
    "fuse": "fusing operators",
    "lower": "scheduling and lowering kernels",
    "codegen": "generating code",
    "export": "linking",
}


class DumpIR(PassInstrument):
    """Writes the module after each pass to a numbered file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.count = 0

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Write the module's text."""
        self.write(info.name, str(mod))

    def write(self, name: str, text: str, suffix: str = "txt") -> None:
        """Write one numbered file."""
        self.count += 1
        safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
        (self.folder / f"{self.count:03d}_{safe}.{suffix}").write_text(text)


def compile_model(
    model: Path,
    output: Path,
    target: str,
    opt_level: int,
    input_shape: list[str] | None,
    dump_ir: Path | None,
    pass_config: list[str] | None,
    cc: str | None,
    quiet: bool,
) -> None:
    """Compile ``model`` to ``output`` and print a summary."""
    start = time.perf_counter()
    shapes, config = parse_input_shapes(input_shape), parse_pass_config(pass_config)
    check_writable(output)
    chosen = Target(target)
    dump = DumpIR(dump_ir) if dump_ir is not None else None
    console = Console(quiet=quiet, stderr=True)
    with _progress(console):
        report = BuildReport()
        with report.stage("import"):
            mod, params = from_onnx(load_model(model), shapes)
        if dump:
            dump.write("import", str(mod))
        with PassContext(opt_level=opt_level, instruments=[dump] if dump else None, config=config):
            factory = build_module.build(mod, target=chosen, params=params)
        if dump:
            _dump_code(dump, factory)
        with report.stage("export"):
            options: dict[str, Any] = {"cc": cc} if cc else {}
            factory.export_library(str(output), **options)
    built: BuildReport = factory.function_metadata
    built.stage_seconds = {**report.stage_seconds, **built.stage_seconds}
    if not quiet:
        _summary(Console(), model, output, built, chosen, time.perf_counter() - start)


def _dump_code(dump: DumpIR, factory: Any) -> None:
    library = factory.get_lib()
    for fmt, suffix in (("", "ll"), ("asm", "s")):
        with contextlib.suppress(RuntimeError):
            dump.write("code", library.get_source(fmt), suffix)
    dump.write("graph", factory.get_graph_json(), "json")


def _summary(console: Console, model: Path, output: Path, report: BuildReport, target: Target, seconds: float) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("model", str(model))
    table.add_row("library", f"{output}  ({format_bytes(output.stat().st_size)})")
    table.add_row("target", str(target))
    table.add_row("CPU features needed", ", ".join(report.cpu_features) or "none beyond the baseline")
    table.add_row("operators", f"{report.operators}, in {report.kernel_calls} kernel calls of {report.kernels} kernels")
    for what, counts in ("convolutions", report.convolutions), ("dense layers", report.dense_layers):
        if counts:
            table.add_row(what, ", ".join(f"{count} {algorithm}" for algorithm, count in counts.items()))
    weights = format_bytes(report.parameter_bytes)
    if report.prepared_bytes:
        weights += f", and {format_bytes(report.prepared_bytes)} made of them when the library is loaded"
    table.add_row("weights", weights)
    table.add_row("activation memory, peak", format_bytes(report.activation_bytes))
    stages = ", ".join(f"{name} {report.stage_seconds[name]:.1f}" for name in _STAGES if name in report.stage_seconds)
    table.add_row("time", f"{seconds:.1f} s  ({stages})")
    console.print(table)


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[None]:
    """A bar for each stage."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[item]}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def update(event: ProgressEvent) -> None:
            if event.stage not in tasks:
                tasks[event.stage] = bars.add_task(_STAGES.get(event.stage, event.stage), total=event.total, item="")
            item = event.item.removeprefix("tvmgen_default_")[:48]
            bars.update(tasks[event.stage], completed=event.done, total=event.total, item=item)

        with watch(update):
            yield


def show_model(model: Path, input_shape: list[str] | None, opt_level: int | None, target: str) -> None:
    """Print the model's Relay text, imported or optimized."""
    mod, params = from_onnx(load_model(model), parse_input_shapes(input_shape))
    if opt_level is None:
        from tilewright.relay.transform.infer_type import InferType

        print(InferType()(mod).astext(show_meta_data=False))
        return
    with PassContext(opt_level=opt_level):
        mod, _ = build_module.optimize(mod, target, params)
    print(mod.astext(show_meta_data=False))
