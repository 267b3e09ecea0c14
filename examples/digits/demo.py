"""Compile the digit classifier to a shared library, load the library, and let it read handwritten digits.

This is what ``make demo`` runs. It uses nothing but Tilewright's public interface: an ONNX file is imported
(`relay.frontend.from_onnx`), compiled (`relay.build`), written (`export_library`), loaded again
(`runtime.load_module`) and run (`graph_executor.GraphModule`). The pictures were held out of training
(see ``train.py``).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from rich.columns import Columns
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.backend.progress import BuildReport

HERE = Path(__file__).resolve().parent
INPUT_NAME = "pixels"
PIXEL_MAX = 16
SHOWN = 8


@dataclass(frozen=True)
class Reading:
    """What the classifier said of one picture."""

    picture: np.ndarray
    label: int
    answer: int
    confidence: float
    run_seconds: float
    call_seconds: float


def compile_to_library(model: Path, library: Path, target: str, opt_level: int) -> BuildReport:
    """Compile the ONNX file `model` to the shared library `library`; returns what the build did."""
    module, params = relay.frontend.from_onnx(onnx.load(str(model)), {INPUT_NAME: (1, 1, 8, 8)})
    with tvm.transform.PassContext(opt_level=opt_level):
        factory = relay.build(module, target=target, params=params)
    library.parent.mkdir(parents=True, exist_ok=True)
    factory.export_library(str(library))
    report: BuildReport = factory.build_report
    return report


def read_digits(library: Path, pictures: np.ndarray, labels: np.ndarray) -> Iterator[Reading]:
    """Load `library` and classify `pictures` (n, 8, 8; uint8 0 to 16) one at a time."""
    module = graph_executor.GraphModule(tvm.runtime.load_module(str(library))["default"](tvm.cpu(0)))
    for picture, label in zip(pictures, labels, strict=True):
        pixels = picture[None, None].astype("float32") / PIXEL_MAX
        start = time.perf_counter()
        module.set_input(INPUT_NAME, pixels)
        before_run = time.perf_counter()
        module.run()
        after_run = time.perf_counter()
        probabilities = module.get_output(0).numpy()[0]
        end = time.perf_counter()
        answer = int(probabilities.argmax())
        confidence = float(probabilities[answer])
        yield Reading(picture, int(label), answer, confidence, after_run - before_run, end - start)


def draw(picture: np.ndarray, shades: str) -> str:
    """`picture` (8 x 8) as eight lines of text, two characters a pixel."""
    levels = np.rint(picture.astype(float) * (len(shades) - 1) / PIXEL_MAX).astype(int)
    return "\n".join("".join(shades[level] * 2 for level in row) for row in levels)


def panel(reading: Reading, shades: str) -> Panel:
    """One picture with the answer and the confidence below it; a wrong answer also names the right one."""
    right = reading.answer == reading.label
    verdict = f"{reading.answer}  {100 * reading.confidence:.1f} %" + ("" if right else f" (is {reading.label})")
    lines = Text(draw(reading.picture, shades))
    lines.append("\n" + verdict.center(16), style="bold green" if right else "bold red")
    return Panel(lines, width=18, padding=0)


def describe_features(features: Sequence[str]) -> str:
    """The vector extensions by name, and how many other features there are."""
    vector = [name for name in features if name.startswith(("avx", "fma", "neon", "sve", "rvv"))]
    others = len(features) - len(vector)
    if not features:
        return "any of this architecture"
    return ", ".join([*vector, f"and {others} more"] if others else vector)


def summary(readings: list[Reading], library: Path, model: Path, report: BuildReport, seconds: float) -> Table:
    """The figures: accuracy over the whole held-out set, latency, size, and what CPU the library needs."""
    right = sum(reading.answer == reading.label for reading in readings)
    run = 1e6 * float(np.median([reading.run_seconds for reading in readings]))
    call = 1e6 * float(np.median([reading.call_seconds for reading in readings]))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column()
    table.add_row("Accuracy", f"{100 * right / len(readings):.2f} % ({right} of {len(readings)} held-out pictures)")
    table.add_row("Latency", f"{run:.1f} us a picture (median), {call:.1f} us with copying in and out")
    table.add_row("Library", f"{library}, {library.stat().st_size:,} bytes ({model.name}: {model.stat().st_size:,})")
    table.add_row("Compiled", f"in {seconds:.1f} s: {report.operators} operators into {report.kernels} kernels")
    table.add_row(
        "Memory", f"{report.activation_bytes:,} bytes between operators, {report.parameter_bytes:,} of weights"
    )
    table.add_row("CPU needed", describe_features(report.cpu_features))
    return table


def main() -> None:
    """Compile, classify and print."""
    options = argparse.ArgumentParser(description="Compile a digit classifier and read held-out digits with it.")
    options.add_argument("--model", type=Path, default=HERE / "digits.onnx")
    options.add_argument("--pictures", type=Path, default=HERE / "heldout.npz")
    options.add_argument("--output", type=Path, default=Path("build") / "demo" / "digits.so")
    options.add_argument("--target", default="llvm")
    options.add_argument("--opt-level", type=int, default=3, choices=range(4))
    arguments = options.parse_args()

    console = Console(highlight=False)
    start = time.perf_counter()
    unicode_output = (sys.stdout.encoding or "").lower().startswith("utf")
    shades = " ░▒▓█" if unicode_output else " .:*#"
    with console.status("Compiling"):
        report = compile_to_library(arguments.model, arguments.output, arguments.target, arguments.opt_level)
    seconds = time.perf_counter() - start
    with np.load(arguments.pictures) as heldout:
        readings = list(read_digits(arguments.output, heldout["pictures"], heldout["labels"]))

    hardest = sorted(readings, key=lambda reading: (reading.answer == reading.label, reading.confidence))
    console.print(
        Group(
            Text(f"\nThe first {SHOWN} held-out pictures, and what the compiled library reads", style="bold"),
            Columns([panel(reading, shades) for reading in readings[:SHOWN]]),
            Text("\nThe four it finds hardest", style="bold"),
            Columns([panel(reading, shades) for reading in hardest[:4]]),
            "",
            summary(readings, arguments.output, arguments.model, report, seconds),
        )
    )


if __name__ == "__main__":
    main()
