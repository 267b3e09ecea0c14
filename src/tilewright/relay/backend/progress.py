"""Progress of a build, for whoever watches it, and the report of its result.

>>> with watch(lambda event: print(event.stage, event.done, event.total)):
...     lib = relay.build(mod, "llvm", params=params)
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from tilewright.ir.budget import check_budget
from tilewright.ir.progress_bar import ProgressBar, progress_bar
from tilewright.relay.qnn.decisions import Decision, summary
from tilewright.relay.transform.precision import bfloat16_gain, halve_weights
from tilewright.relay.transform.precision.halve_weights import Halved
from tilewright.runtime.mapped_files import packed_bytes
from tilewright.runtime.saving import PACKED, watch_bytes


@dataclass(frozen=True)
class ProgressEvent:
    """Progress of a stage: ``done`` of ``total`` items are finished; ``item`` is the latest one."""

    stage: str
    done: int
    total: int
    item: str = ""


Watcher = Callable[[ProgressEvent], None]
_watcher: ContextVar[Watcher | None] = ContextVar("tilewright_build_watcher", default=None)


@contextlib.contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Call ``watcher`` with the progress of builds in this context, as those of enclosing blocks.

    While a library is written, ``done`` and ``total`` of its stage are bytes; an item tells the bytes of weights that
    were made of others.
    """
    outer, before, last = _watcher.get(), packed_bytes(), ProgressEvent("", 0, 1)

    def both(event: ProgressEvent) -> None:
        nonlocal last
        last = event
        watcher(event)
        if outer is not None:
            outer(event)

    def of_bytes(what: str, done: int, total: int) -> None:
        if what == PACKED:
            both(replace(last, item=f"{_megabytes(done - before)} of weights packed"))
        else:
            both(ProgressEvent(last.stage, done, total, f"{_megabytes(done)} of {_megabytes(total)}"))

    token = _watcher.set(both)
    try:
        with watch_bytes(of_bytes):
            yield
    finally:
        _watcher.reset(token)


@contextlib.contextmanager
def show_progress() -> Iterator[None]:
    """Show a bar for each stage of the builds in this block: a line of text, or in Jupyter a widget.

    >>> with tilewright.show_progress():
    ...     model = tilewright.compile("model.onnx")
    """
    bars: dict[str, ProgressBar] = {}

    def update(event: ProgressEvent) -> None:
        if event.stage not in bars:
            for bar in bars.values():
                bar.close()
            bars.clear()
            bars[event.stage] = progress_bar(event.stage, event.total)
        bars[event.stage].update(event.done, event.item[:48], event.total)

    try:
        with watch(update):
            yield
    finally:
        for bar in bars.values():
            bar.close()


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.0f} MB"


def report_progress(stage: str, done: int, total: int, item: str = "") -> None:
    """Call the watcher, if there is one; raise BudgetError where the build's time or memory are used up."""
    check_budget(f"stage {stage}, {item}" if item else f"stage {stage}")
    if watcher := _watcher.get():
        watcher(ProgressEvent(stage, done, total, item))


@dataclass
class BuildReport:
    """Report of a build: seconds of each stage, counts, memory in bytes.

    ``implementations`` and ``schedules`` describe each kernel's computation and the configuration of its template,
    if any; ``schedule_reasons`` which tuning record that is of, or why of none; ``convolutions`` counts the
    convolutions of each algorithm: "direct", "depthwise", "Winograd F(4x4)", ...; ``dense_layers`` the layers by
    "direct" products and by "Strassen"'s method. ``prepared_bytes`` is the size of weights that are computed from
    others when the library is loaded. ``dimensions`` are the named ones, with their limits. ``open_images`` are the
    kernels over images whose extents are known at run time only, with the model's nodes that they compute: known
    extents have faster ones. ``quantized`` tells what became of the operators of a quantized model, ``halved`` what
    became of weights that were to be in half precision. ``bfloat16_gains`` are how many times as fast each function
    of a float32 model would be with weights in bfloat16, by the cost model.
    """

    stage_seconds: dict[str, float] = field(default_factory=dict)
    operators: int = 0
    kernels: int = 0
    kernel_calls: int = 0
    implementations: dict[str, str] = field(default_factory=dict)
    schedules: dict[str, str] = field(default_factory=dict)
    schedule_reasons: dict[str, str] = field(default_factory=dict)
    convolutions: dict[str, int] = field(default_factory=dict)
    dense_layers: dict[str, int] = field(default_factory=dict)
    activation_bytes: int = 0
    parameter_bytes: int = 0
    prepared_bytes: int = 0
    cpu_features: tuple[str, ...] = ()
    dimensions: tuple[str, ...] = ()
    open_images: dict[str, list[str]] = field(default_factory=dict)
    quantized: tuple[Decision, ...] = ()
    halved: tuple[Halved, ...] = ()
    bfloat16_gains: tuple[float, ...] = ()

    def specialization(self) -> list[str]:
        """Return a line on what ``--specialize`` would make faster, if there is such."""
        if not self.open_images or not self.dimensions:
            return []
        nodes = [node for names in self.open_images.values() for node in names[:1]]
        shown = f" ({', '.join([*nodes[:3], *(['...'] if len(nodes) > 3 else [])])})" if nodes else ""
        numbers = ",".join(f"{dimension.split()[0]}=NUMBER" for dimension in self.dimensions)
        what = f"convolutions and pools over them: {len(self.open_images)} kernels{shown}"
        return [f"{what}; frequent sizes are faster with --specialize {numbers}"]

    def quantization(self) -> list[str]:
        """Return lines on what of a quantized model is computed on integers, and why the rest is not; else none."""
        return summary(self.quantized)

    def precision(self) -> list[str]:
        """Return lines on which weights are kept in half precision, or on what that would gain; else none."""
        return halve_weights.summary(self.halved) or bfloat16_gain.summary(self.bfloat16_gains)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage and announce it."""
        report_progress(name, 0, 1)
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self.stage_seconds[name] = self.stage_seconds.get(name, 0.0) + elapsed
        report_progress(name, 1, 1)
