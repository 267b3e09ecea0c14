"""Draws what the engines did over a launch: ``python -m tilewright_npu timeline LIB -o x.svg``.

How long commands take depends on no data, so the programs run on empty buffers. Each engine is a row; commands of a
layer have its colour, and those that follow one another closer than can be seen are one box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tilewright_npu.chip import Context, Counters, Interval
from tilewright_npu.isa import Engine, Program
from tilewright_npu.show import argument_bytes

WIDTH, ROW, GAP, LEFT, TOP, FOOT = 1400.0, 34.0, 10.0, 150.0, 74.0, 46.0
# Light enough for black text, far enough apart for neighbours.
COLOURS = ("#8dd3c7", "#fdb462", "#bebada", "#fb8072", "#80b1d3", "#b3de69", "#fccde5", "#ffed6f", "#bc80bd", "#d9d9d9")
VISIBLE = 0.4  # pixels


@dataclass(frozen=True)
class Chart:
    """A program and what a launch of it did."""

    program: Program
    counters: Counters
    trace: list[Interval]


def measure(program: Program, device: int = 0) -> Chart:
    """Run a program on empty buffers."""
    with Context(device) as context:
        buffers = [context.alloc(size) for size in argument_bytes(program)]
        with context.load(program) as model:
            model.set_trace()
            model.launch(*buffers)
            return Chart(program, model.counters(), model.trace())


@dataclass
class _Box:
    start: int
    end: int
    layer: int
    commands: int


def _boxes(chart: Chart, engine: Engine, unit: float) -> list[_Box]:
    """Commands of an engine, those of a layer joined where the gap between them is less than can be seen."""
    boxes: list[_Box] = []
    for interval in chart.trace:
        if interval.engine != engine:
            continue
        layer = chart.program.commands[interval.command].header.layer
        last = boxes[-1] if boxes else None
        if last is not None and last.layer == layer and (interval.start - last.end) * unit < VISIBLE:
            last.end, last.commands = interval.end, last.commands + 1
        else:
            boxes.append(_Box(interval.start, interval.end, layer, 1))
    return boxes


def _layer_name(program: Program, layer: int) -> str:
    return program.layers[layer] if layer < len(program.layers) else "no layer"


def _row(chart: Chart, engine: Engine, top: float, unit: float) -> list[str]:
    busy = chart.counters.busy[engine]
    share = 100 * busy / max(chart.counters.cycles, 1)
    middle = top + ROW / 2
    out = [
        f'<text x="{LEFT - 10}" y="{middle - 2}" text-anchor="end" class="engine">{engine.name}</text>',
        f'<text x="{LEFT - 10}" y="{middle + 12}" text-anchor="end" class="small">busy {share:.0f} %</text>',
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{ROW}" class="idle"/>',
    ]
    for box in _boxes(chart, engine, unit):
        name = escape(_layer_name(chart.program, box.layer))
        many = f"{box.commands} commands" if box.commands > 1 else "1 command"
        what = f"{name}: {many}, cycles {box.start} to {box.end}"
        x, width = LEFT + box.start * unit, max((box.end - box.start) * unit, VISIBLE)
        out.append(
            f'<rect x="{x:.2f}" y="{top}" width="{width:.2f}" height="{ROW}" '
            f'fill="{COLOURS[box.layer % len(COLOURS)]}"><title>{what}</title></rect>'
        )
        if width > 7 * len(name) + 6:
            out.append(
                f'<text x="{x + width / 2:.2f}" y="{middle + 4}" text-anchor="middle" class="small">{name}</text>'
            )
    return out


def _step(cycles: int) -> int:
    """Between ticks: 1, 2 or 5 times a power of ten, about ten of them."""
    power = 1
    while power * 10 <= max(cycles // 8, 1):
        power *= 10
    return next(power * m for m in (1, 2, 5, 10) if power * m * 11 >= cycles or m == 10)


def _axis(cycles: int, top: float, bottom: float, unit: float) -> list[str]:
    out = []
    for tick in range(0, cycles + 1, _step(cycles)):
        x = LEFT + tick * unit
        out.append(f'<line x1="{x:.2f}" y1="{top}" x2="{x:.2f}" y2="{bottom + 4}" class="tick"/>')
        out.append(f'<text x="{x:.2f}" y="{bottom + 18}" text-anchor="middle" class="small">{tick:,}</text>')
    return out


def _draw(chart: Chart, top: float) -> list[str]:
    counters = chart.counters
    cycles = max(counters.cycles, 1)
    unit = WIDTH / cycles
    bottom = top + TOP + len(Engine) * (ROW + GAP) - GAP
    peak = 100 * counters.block_cycles / cycles
    facts = (
        f"{counters.cycles:,} cycles; matrix unit multiplies in {peak:.0f} % of them, {counters.macs:,} MACs; "
        f"{counters.bytes_loaded:,} bytes loaded, {counters.bytes_stored:,} stored"
    )
    out = [
        f'<text x="{LEFT}" y="{top + 28}" class="title">{escape(chart.program.name)}</text>',
        f'<text x="{LEFT}" y="{top + 50}" class="small">{facts}</text>',
        *_axis(cycles, top + TOP - 6, bottom, unit),
    ]
    for engine in Engine:
        out += _row(chart, engine, top + TOP + engine * (ROW + GAP), unit)
    return out


def svg(charts: Sequence[Chart]) -> str:
    """A picture of launches, one below the other."""
    height = TOP + len(Engine) * (ROW + GAP) - GAP + FOOT
    body = [line for i, chart in enumerate(charts) for line in _draw(chart, i * height)]
    whole, tall = LEFT + WIDTH + 40, height * len(charts)
    style = (
        "text{font-family:sans-serif;fill:#222}.title{font-size:18px;font-weight:bold}.engine{font-size:14px}"
        ".small{font-size:11px}.idle{fill:#f4f4f4}.tick{stroke:#bbb;stroke-width:0.5}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole:.0f}" height="{tall:.0f}" '
            f'viewBox="0 0 {whole:.0f} {tall:.0f}">',
            f"<style>{style}</style>",
            f'<rect width="{whole:.0f}" height="{tall:.0f}" fill="white"/>',
            *body,
            "</svg>",
            "",
        ]
    )
