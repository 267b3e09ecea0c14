"""Graphs of boxes and arrows, laid out in layers from top to bottom.

K. Sugiyama, S. Tagawa, M. Toda, "Methods for Visual Understanding of Hierarchical System Structures", IEEE Transactions
on Systems, Man, and Cybernetics 11(2), 1981: boxes in layers by their longest path, each layer in the order of the
means of its neighbours, arrows through points of their own in the layers that they pass.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tilewright.runtime.partial_files import write_whole

_CHARACTER, _LINE, _PAD = 7.0, 16, 8
_GAP, _LAYER_GAP = 18.0, 34.0
_SWEEPS = 4  # of ordering, down and up
_COLORS = ("#e8eef7", "#fde2c4", "#d8f0d2", "#f3d6ef", "#d3eff0", "#f6efc0", "#e3d9f7", "#f9d5d5")


@dataclass(frozen=True)
class Box:
    """A node: lines of text, the group that its colour stands for ("" is the plain one), and its name in the model."""

    lines: tuple[str, ...]
    group: str = ""
    source: str = ""


@dataclass(frozen=True)
class Drawing:
    """Boxes and the arrows between them, by number; Jupyter shows one as a picture."""

    boxes: tuple[Box, ...]
    arrows: tuple[tuple[int, int], ...]

    def _repr_svg_(self) -> str:
        return self.svg()

    def dot(self) -> str:
        """Return the graph in Graphviz's language."""
        colors = _colors(self.boxes)
        lines = ["digraph {", '  node [shape=box, style="filled,rounded", fontname="monospace"];']
        for number, box in enumerate(self.boxes):
            lines.append(f'  n{number} [label="{_quoted(box.lines)}", fillcolor="{colors[box.group]}"];')
        lines += [f"  n{a} -> n{b};" for a, b in self.arrows]
        return "\n".join([*lines, "}"]) + "\n"

    def svg(self) -> str:
        """Return the picture."""
        layout = _Layout(self)
        colors = _colors(self.boxes)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{layout.width:.0f}" height="{layout.height:.0f}" '
            f'viewBox="0 0 {layout.width:.0f} {layout.height:.0f}" font-family="monospace" font-size="12">',
            '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
        ]
        for points in layout.paths():
            parts.append(f'<path d="{_curve(points)}" fill="none" stroke="#667" marker-end="url(#end)"/>')
        for number, box in enumerate(self.boxes):
            x, y = layout.x[number], layout.y[number]
            width, height = _size(box)
            parts.append(
                f'<g><rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="5" '
                f'fill="{colors[box.group]}" stroke="#889"/>'
            )
            for row, line in enumerate(box.lines):
                at = y + _PAD + 11 + _LINE * row
                parts.append(f'<text x="{x:.1f}" y="{at:.1f}" text-anchor="middle">{html.escape(line)}</text>')
            parts.append(f"<title>{html.escape(box.group)}</title></g>" if box.group else "</g>")
        return "\n".join([*parts, "</svg>"]) + "\n"

    def write(self, path: Path) -> None:
        """Write the picture to a file, which appears whole or not at all."""
        write_whole(path, self.svg())


def _colors(boxes: Sequence[Box]) -> dict[str, str]:
    groups = dict.fromkeys(["", *(box.group for box in boxes)])
    return {group: _COLORS[min(i, 1 + (i - 1) % (len(_COLORS) - 1))] for i, group in enumerate(groups)}


def _quoted(lines: Sequence[str]) -> str:
    return "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)


def _size(box: Box) -> tuple[float, int]:
    longest = max((len(line) for line in box.lines), default=0)
    return _CHARACTER * longest + 2 * _PAD, _LINE * len(box.lines) + 2 * _PAD - 4


def _curve(points: Sequence[tuple[float, float]]) -> str:
    text = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        text += f"C{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f} {x1:.1f},{y1:.1f}"
    return text


class _Layout:
    """Places of boxes, and of the points at which arrows pass layers; ``x`` is the middle, ``y`` the top."""

    def __init__(self, drawing: Drawing) -> None:
        self.boxes, self.arrows = drawing.boxes, drawing.arrows
        rank = self._ranks()
        self.layers: list[list[int]] = [[] for _ in range(max(rank, default=-1) + 1)]
        for number, layer in enumerate(rank):
            self.layers[layer].append(number)
        self.chains = [self._chain(a, b, rank) for a, b in self.arrows]
        self.x = [0.0] * len(rank)
        self._order()
        self._place()

    def _ranks(self) -> list[int]:
        """Return the layer of each box: one below the lowest that leads to it."""
        rank, inputs = [0] * len(self.boxes), [0] * len(self.boxes)
        below: list[list[int]] = [[] for _ in self.boxes]
        for a, b in self.arrows:
            below[a].append(b)
            inputs[b] += 1
        ready = [number for number, count in enumerate(inputs) if not count]
        while ready:
            a = ready.pop()
            for b in below[a]:
                rank[b] = max(rank[b], rank[a] + 1)
                inputs[b] -= 1
                if not inputs[b]:
                    ready.append(b)
        return rank

    def _chain(self, a: int, b: int, rank: list[int]) -> list[int]:
        """Return the points of an arrow: its boxes, and a new point in each layer between."""
        chain = [a]
        for layer in range(rank[a] + 1, rank[b]):
            chain.append(len(rank))
            self.layers[layer].append(len(rank))
            rank.append(layer)
        return [*chain, b]

    def _order(self) -> None:
        above: dict[int, list[int]] = {}
        below: dict[int, list[int]] = {}
        for chain in self.chains:
            for a, b in pairwise(chain):
                above.setdefault(b, []).append(a)
                below.setdefault(a, []).append(b)
        for sweep in range(_SWEEPS):
            near = below if sweep % 2 else above
            position = {number: i for layer in self.layers for i, number in enumerate(layer)}
            for layer in reversed(self.layers) if sweep % 2 else self.layers:
                mean = {
                    n: sum(position[m] for m in near[n]) / len(near[n]) if n in near else float(position[n])
                    for n in layer
                }
                layer.sort(key=lambda n, mean=mean: mean[n])  # type: ignore[misc]
                position.update((number, i) for i, number in enumerate(layer))

    def _width(self, number: int) -> float:
        return _size(self.boxes[number])[0] if number < len(self.boxes) else 4.0

    def _place(self) -> None:
        widths = [sum(self._width(n) + _GAP for n in layer) for layer in self.layers]
        self.width = max(widths, default=0.0) + _GAP
        self.y = [0.0] * len(self.x)
        top = _GAP
        for layer, width in zip(self.layers, widths, strict=True):
            left, height = (self.width - width + _GAP) / 2, _LINE
            for n in layer:
                self.x[n], self.y[n] = left + self._width(n) / 2, top
                left += self._width(n) + _GAP
                height = max(height, _size(self.boxes[n])[1] if n < len(self.boxes) else 0)
            top += height + _LAYER_GAP
        self.height = top

    def paths(self) -> list[list[tuple[float, float]]]:
        """Return the points of each arrow, from the bottom of a box to the top of another."""
        found = []
        for chain in self.chains:
            start = self.y[chain[0]] + _size(self.boxes[chain[0]])[1]
            found.append([(self.x[chain[0]], start), *((self.x[n], self.y[n]) for n in chain[1:])])
        return found
