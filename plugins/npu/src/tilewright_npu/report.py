"""Cycles and use by layer, beside what the chip would need at least.

Two roofs bound a layer from below. With all data in the SRAM it takes what its busiest unit needs: the matrix unit a
block of 16 x 16 x 16 a cycle (four cycles in float32), the vector unit 64 elements a cycle. From the DDR come, and to
it go, 64 bytes a cycle each. The higher of the two is the layer's roof; its use is the roof's share of the cycles it
took.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright_npu.isa import BLOCK, Dma, DType, Engine, Gemm
from tilewright_npu.timeline import Chart

_DDR_BYTES = 64  # a cycle, each way


@dataclass
class LayerUse:
    """What a layer did.

    Attributes:
        cycles: from the end of the layer before to its own.
        macs: multiplications of the matrix unit, without the padding of its blocks.
        blocks: cycles of the matrix unit at work on blocks.
        vector: cycles of the vector unit.
        loaded, stored: bytes from and to the DDR.
    """

    name: str
    cycles: int = 0
    macs: int = 0
    blocks: int = 0
    vector: int = 0
    loaded: int = 0
    stored: int = 0

    @property
    def sram_roof(self) -> int:
        """Cycles at least, were all data in the SRAM."""
        return max(self.blocks, self.vector)

    @property
    def ddr_roof(self) -> int:
        """Cycles at least for what comes from the DDR, or goes to it."""
        return -(-max(self.loaded, self.stored) // _DDR_BYTES)

    @property
    def roof(self) -> int:
        """The higher of both."""
        return max(self.sram_roof, self.ddr_roof)


def layers(chart: Chart) -> list[LayerUse]:
    """The layers of a program that ran, in order."""
    uses = [LayerUse(name) for name in chart.program.layers]
    ends = [0] * len(uses)
    for interval in chart.trace:
        command = chart.program.commands[interval.command]
        layer = command.header.layer
        if layer >= len(uses):
            continue
        use = uses[layer]
        ends[layer] = max(ends[layer], interval.end)
        if isinstance(command, Dma):
            moved = command.n[0] * command.n[1] * command.n[2] * command.n[3] * command.element
            if interval.engine == Engine.LOAD:
                use.loaded += moved
            else:
                use.stored += moved
        elif isinstance(command, Gemm):
            _count_product(use, command)
        else:
            use.vector += interval.end - interval.start
    last = 0
    for use, end in zip(uses, ends, strict=True):
        use.cycles, last = max(end - last, 0), max(end, last)
    return [use for use, end in zip(uses, ends, strict=True) if end]


def _count_product(use: LayerUse, command: Gemm) -> None:
    rows, steps = command.m[0] * command.m[1], command.k[0] * command.k[1] * command.k[2]
    use.macs += rows * steps * command.depth * command.columns
    groups, depth, columns = (-(-n // BLOCK) for n in (rows, command.depth, command.columns))
    use.blocks += groups * steps * depth * columns * (4 if command.dtype == DType.F32 else 1)


def table(chart: Chart) -> Iterable[str]:
    """Lines: layers with their cycles, roofs and use, then the sums."""
    uses = layers(chart)
    width = max((len(use.name) for use in uses), default=5)
    titles = ("cycles", "matrix", "SRAM roof", "DDR roof")
    yield f"{'layer':{width}}  {titles[0]:>9} {titles[1]:>9} {'vector':>8} {titles[2]:>9} {titles[3]:>9} {'of roof':>7}"
    for use in uses:
        share = use.roof / use.cycles if use.cycles else 1.0
        yield (
            f"{use.name:{width}}  {use.cycles:9,} {use.blocks:9,} {use.vector:8,} {use.sram_roof:9,} {use.ddr_roof:9,} "
            f"{min(share, 1.0):7.0%}"
        )
    cycles, roof = chart.counters.cycles, sum(use.roof for use in uses)
    blocks = chart.counters.block_cycles
    yield (
        f"{'all':{width}}  {cycles:9,} {blocks:9,} {sum(u.vector for u in uses):8,} "
        f"{sum(u.sram_roof for u in uses):9,} {sum(u.ddr_roof for u in uses):9,} {roof / cycles:7.0%}"
    )
    floats = any(isinstance(c, Gemm) and c.dtype == DType.F32 for c in chart.program.commands)
    useful = chart.counters.macs / (BLOCK**3 / (4 if floats else 1)) / cycles
    yield f"matrix unit: at work {blocks / cycles:.0%} of all cycles; {useful:.0%} of its peak in multiplications"
