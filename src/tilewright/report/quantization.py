"""The page about a quantization: what each layer costs and gains, what stays in float, the ranges of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.quantization.graph import Graph
from tilewright.quantization.measure import Costs, LayerCost, float_reasons
from tilewright.quantization.static import Quantized
from tilewright.report import page
from tilewright.report.page import Section


def write_page(path: Path, title: str, quantized: Quantized, costs: Costs | None, summary: Sequence[str]) -> None:
    """Write the page, which appears whole or not at all."""
    sections = []
    if costs is not None:
        sections.append(Section("layers", "Layers", _layers(costs)))
    reasons = float_reasons(quantized.plan, Graph(quantized.float_model))
    if reasons:
        sections.append(Section("float", "In float", page.table(("node", "operator", "why"), reasons)))
    if quantized.ranges:
        rows = [
            (n, f"{low:.5g}", f"{high:.5g}", f"{quantized.scales[n].scale:.5g}", str(quantized.scales[n].zero))
            for n, (low, high) in quantized.ranges.items()
        ]
        heads = ("tensor", "least", "largest", "scale", "zero point")
        sections.append(Section("tensors", "Tensors", page.table(heads, rows, numbers=bool)))
    page.write_page(path, title, sections, summary)


HEADINGS = (
    "layer", "operator", "signal/noise (dB)", "output error", "accuracy lost", "float (us)", "int8 (us)", "saved (us)",
)  # fmt: skip


def cells(cost: LayerCost) -> list[str]:
    """Return a layer's row under ``HEADINGS``."""
    loss = "" if cost.accuracy_loss is None else f"{cost.accuracy_loss:.2%}"
    times = ["" if t is None else f"{t:.1f}" for t in (cost.float_us, cost.int8_us, cost.saved_us)]
    return [cost.node, cost.operator, f"{cost.decibels:.1f}", f"{cost.error:.3%}", loss, *times]


def _layers(costs: Costs) -> str:
    worst = max((c.error for c in costs.layers), default=0) or 1
    bars = [cost.error / worst for cost in costs.layers]
    return page.table(HEADINGS, [cells(cost) for cost in costs.layers], bars, numbers=lambda column: column > 1)
