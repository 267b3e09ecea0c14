"""``tilewright quantize --weights``: matrices of few bits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.driver.images import ImageOptions
from tilewright.driver.options import check_is_file, check_writable, format_bytes
from tilewright.driver.quantize import Progress, read_picture
from tilewright.driver.report import print_json, print_rows, print_table, print_text
from tilewright.quantization.graph import Graph
from tilewright.quantization.measure import float_reasons
from tilewright.quantization.save import file_bytes
from tilewright.quantization.weights import QuantizedWeights, quantize_weights

HEADINGS = ("layer", "rows, columns", "weight error")


@dataclass(frozen=True)
class WeightOptions:
    """Options of the command."""

    model: Path
    output: Path
    data: Path | None
    weights: str
    block: int
    method: str
    zero_points: bool
    accuracy_level: int
    exclude: tuple[str, ...]
    image: ImageOptions
    target: str


def quantize_weights_of_model(options: WeightOptions, quiet: bool, as_json: bool) -> None:
    """Quantize a model's matrices, write it, and print each one's error."""
    check_is_file(options.model)
    check_writable(options.output)
    with Progress(quiet or as_json) as progress:
        made = quantize_weights(
            options.model,
            options.weights,
            options.data,
            block=options.block,
            method=options.method,
            zero_points=options.zero_points,
            accuracy_level=options.accuracy_level,
            exclude=options.exclude,
            target=options.target,
            progress=progress.show,
            read_other=lambda file, inputs: read_picture(file, inputs, options.image),
        )
        made.save(options.output)
    sizes = file_bytes(options.model), file_bytes(options.output)
    if as_json:
        print_json(_json(options, made, sizes))
    elif not quiet:
        _print(made, sizes)


def _layers(made: QuantizedWeights) -> list[tuple[str, int, int, float]]:
    """Return name, rows, columns and error of each layer, those with the largest errors first."""
    attributes = {
        node.name: {a.name: a.i for a in node.attribute} for node in made.model.graph.node if node.name in made.errors
    }
    rows = [(name, attributes[name]["N"], attributes[name]["K"], error) for name, error in made.errors.items()]
    return sorted(rows, key=lambda row: -row[3])


def _reasons(made: QuantizedWeights) -> list[tuple[str, str, str]]:
    return float_reasons(made.plan, Graph(made.float_model))


def _print(made: QuantizedWeights, sizes: tuple[int, int]) -> None:
    print_table(HEADINGS, [(name, f"{n}, {k}", f"{error:.2%}") for name, n, k, error in _layers(made)])
    for name, kind, why in _reasons(made):
        print_text(f"in float: {name} ({kind}): {why}")
    before, after = sizes
    print_rows([
        ("quantized", f"the weights of {len(made.errors)} layers"),
        ("file", f"{format_bytes(after)}, {after / before:.2f} of {format_bytes(before)}"),
    ])  # fmt: skip


def _json(options: WeightOptions, made: QuantizedWeights, sizes: tuple[int, int]) -> dict[str, Any]:
    return {
        "model": str(options.model), "output": str(options.output), "float_bytes": sizes[0], "bytes": sizes[1],
        "layers": [{"node": name, "rows": n, "columns": k, "error": error} for name, n, k, error in _layers(made)],
        "in_float": [{"node": name, "operator": kind, "reason": why} for name, kind, why in _reasons(made)],
    }  # fmt: skip
