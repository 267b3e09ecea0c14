"""The page about a quantization: one HTML file with its pictures inside."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from tilewright.quantization.graph import Graph
from tilewright.quantization.measure import Costs, LayerCost, float_reasons
from tilewright.quantization.save import write_text
from tilewright.quantization.static import Quantized

_WIDTH = 200  # pixels of the longest bar
_STYLE = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:.3em .8em;text-align:right}"
    "td:first-child,th:first-child{text-align:left}tr:nth-child(even){background:#f4f4f4}"
    "i{display:inline-block;height:.8em;background:#06c;margin-right:.5em}"
)


def write_page(path: Path, title: str, quantized: Quantized, costs: Costs | None, summary: Sequence[str]) -> None:
    """Write the page, which appears whole or not at all."""
    parts = [f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>"]
    parts += [f"<h1>{html.escape(title)}</h1>", *(f"<p>{html.escape(line)}</p>" for line in summary)]
    if costs is not None:
        parts += ["<h2>Layers</h2>", _layers(costs)]
    reasons = float_reasons(quantized.plan, Graph(quantized.float_model))
    if reasons:
        parts += ["<h2>In float</h2>", _table(("node", "operator", "why"), reasons)]
    if quantized.ranges:
        rows = [
            (n, f"{low:.5g}", f"{high:.5g}", f"{quantized.scales[n].scale:.5g}", str(quantized.scales[n].zero))
            for n, (low, high) in quantized.ranges.items()
        ]
        parts += ["<h2>Tensors</h2>", _table(("tensor", "least", "largest", "scale", "zero point"), rows)]
    write_text(path, "\n".join(parts))


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
    bars = [f'<i style="width:{cost.error / worst * _WIDTH:.0f}px"></i>' for cost in costs.layers]
    return _table(("", *HEADINGS), [cells(cost) for cost in costs.layers], bars)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], bars: Sequence[str] = ()) -> str:
    lines = []
    for index, row in enumerate(rows):
        bar = [f"<td>{bars[index]}</td>"] if bars else []
        lines.append(f"<tr>{''.join([*bar, *(f'<td>{html.escape(cell)}</td>' for cell in row)])}</tr>")
    return f"<table><tr>{''.join(f'<th>{h}</th>' for h in heads)}</tr>{''.join(lines)}</table>"
