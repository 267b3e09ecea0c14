"""``tilewright quantize``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.status import Status

from tilewright.driver.images import ImageOptions, image_layout, is_image, read_image
from tilewright.driver.options import check_is_file, check_writable, format_bytes
from tilewright.driver.report import print_json, print_rows, print_table, print_text
from tilewright.quantization.graph import Graph
from tilewright.quantization.measure import Costs, float_reasons, measure
from tilewright.quantization.save import file_bytes
from tilewright.quantization.static import Quantized, quantize
from tilewright.report.quantization import HEADINGS, cells, write_page
from tilewright.runtime.error import TVMError
from tilewright.runtime.interface import TensorInfo

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class QuantizeOptions:
    """Options of the command; ``table`` is how many seconds single layers are measured, 0 for no table."""

    model: Path
    output: Path
    data: Path | None
    method: str
    percentile: float
    per_channel: bool
    activations: str
    exclude: tuple[str, ...]
    image: ImageOptions
    target: str
    table: float
    dynamic: bool = False
    computed: bool = False
    report: Path | None = None


def quantize_model(options: QuantizeOptions, quiet: bool, as_json: bool) -> None:
    """Quantize a model, write it, and print what each layer costs and gains."""
    check_is_file(options.model)
    for path in filter(None, (options.output, options.report)):
        check_writable(path)
    if options.data is None and not options.dynamic:
        raise TVMError("--data is missing: samples of the inputs to calibrate with (or --dynamic, which needs none)")
    with Progress(quiet or as_json) as progress:
        quantized = quantize(
            options.model,
            options.data,
            method=options.method,
            percentile=options.percentile,
            per_channel=options.per_channel,
            activations=options.activations,
            exclude=options.exclude,
            dynamic=options.dynamic,
            computed=options.computed,
            target=options.target,
            progress=progress.show,
            read_other=lambda file, inputs: read_picture(file, inputs, options.image),
        )
        quantized.save(options.output)
        costs = measure(quantized, progress.show, options.table) if options.table and options.data else None
    if options.report is not None:
        summary = [f"{name}: {text}" for name, text in _summary(options, quantized, costs)]
        write_page(options.report, f"{options.model.name} in 8 bits", quantized, costs, summary)
    if as_json:
        print_json(_json(options, quantized, costs))
    elif not quiet:
        _print(options, quantized, costs)


class Progress:
    """A line on the terminal that says what goes on; nothing elsewhere."""

    def __init__(self, quiet: bool) -> None:
        console = Console(stderr=True)
        self._status: Status | None = console.status("read the model") if console.is_terminal and not quiet else None

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, stage: str, done: int, total: int) -> None:
        """Show how far a stage is."""
        if self._status is not None:
            of = f" of {total}" if total > 1 else ""
            self._status.update(f"{stage}{f': {done}{of}' if done else ''}")


def read_picture(file: Path, inputs: Mapping[str, TensorInfo], image: ImageOptions) -> dict[str, Array]:
    """Read a picture of a folder of samples for the input that takes one."""
    data = file.read_bytes()
    takers = [name for name, info in inputs.items() if image_layout(_single(info))]
    if not is_image(data):
        raise TVMError(f"{file}: neither .npz, .npy, PNG nor JPEG; a folder of samples holds nothing else")
    if len(inputs) != 1 or not takers:
        shown = ", ".join(f"{name} ({info})" for name, info in inputs.items())
        raise TVMError(f"{file}: pictures are samples of models with one input that takes one; the inputs are {shown}")
    return {takers[0]: read_image(data, str(file), takers[0], _single(inputs[takers[0]]), image)}


def _single(info: TensorInfo) -> TensorInfo:
    """Return an input with a batch of 1 in place of a named one."""
    first = 1 if info.shape and isinstance(info.shape[0], str) else None
    return info if first is None else TensorInfo((1, *info.shape[1:]), info.dtype)


# ---- what is printed ----


def _print(options: QuantizeOptions, quantized: Quantized, costs: Costs | None) -> None:
    if costs is not None:
        print_table(HEADINGS, [cells(cost) for cost in costs.layers])
    for name, kind, why in float_reasons(quantized.plan, Graph(quantized.float_model)):
        print_text(f"in float: {name} ({kind}): {why}")
    print_rows(_summary(options, quantized, costs))


def _summary(options: QuantizeOptions, quantized: Quantized, costs: Costs | None) -> list[tuple[str, str]]:
    before, after = file_bytes(options.model), file_bytes(options.output)
    plan = quantized.plan
    tables = f", {len(plan.tables)} tables of weights" if plan.tables else ""
    rows = [
        ("quantized", f"{len(plan.layers)} layers and {len(plan.followers)} operators between them{tables}"),
        ("file", f"{format_bytes(after)}, {after / before:.2f} of {format_bytes(before)}"),
    ]
    if costs is not None:
        rows.append(("output error", f"{costs.error:.3%} on {costs.samples} batches"))
        if costs.accuracy is not None:
            rows.append(("accuracy", f"{costs.accuracy[1]:.2%}, {costs.accuracy[0]:.2%} in float"))
        rows.append(("kernels", f"{costs.times[1] / 1e3:.3f} ms, {costs.times[0] / 1e3:.3f} ms in float"))
    return rows


def _json(options: QuantizeOptions, quantized: Quantized, costs: Costs | None) -> dict[str, Any]:
    before, after = file_bytes(options.model), file_bytes(options.output)
    report: dict[str, Any] = {
        "model": str(options.model), "output": str(options.output), "float_bytes": before, "bytes": after,
        "tensors": {
            name: {"low": low, "high": high, "scale": float(quantized.scales[name].scale),
                   "zero_point": quantized.scales[name].zero}
            for name, (low, high) in quantized.ranges.items()
        },
        "in_float": [
            {"node": name, "operator": kind, "reason": why}
            for name, kind, why in float_reasons(quantized.plan, Graph(quantized.float_model))
        ],
    }  # fmt: skip
    if costs is None:
        return report
    report |= {"output_error": costs.error, "samples": costs.samples, "samples_of_layers": costs.layer_samples}
    report |= {"float_us": costs.times[0], "int8_us": costs.times[1]}
    if costs.accuracy is not None:
        report |= {"float_accuracy": costs.accuracy[0], "accuracy": costs.accuracy[1]}
    report["layers"] = [
        {
            "node": c.node, "operator": c.operator, "decibels": c.decibels if math.isfinite(c.decibels) else None,
            "output_error": c.error, "accuracy_loss": c.accuracy_loss, "float_us": c.float_us, "int8_us": c.int8_us,
            "saved_us": c.saved_us,
        }
        for c in costs.layers
    ]  # fmt: skip
    return report
