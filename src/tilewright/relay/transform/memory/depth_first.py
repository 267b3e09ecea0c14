"""DepthFirst: compute the first layers of an image network band by band, so that less memory is in use at once.

Before, with images (1, h, w, c)::

    %1 = nn.contrib_integer_conv2d(%0, ...);                             // (1, 48, 48, 16)
    nn.contrib_integer_conv2d(%1, ..., strides=[2, 2], ...)              // (1, 24, 24, 16)

after::

    %1 = nn.contrib_integer_conv2d(strided_slice(%0, 0, 25), ...);       // (1, 25, 48, 16)
    %2 = nn.contrib_integer_conv2d(%1, ..., padding=[0, 0, 0, 1], ...);  // (1, 12, 24, 16)
    ...                                                                  // the other rows
    concatenate((%2, %4), axis=1)

The result lies in one piece of memory, into which each band is written. Rows at the edges of bands are computed twice:
memory is bought with time, as in MCUNetV2 (J. Lin et al., 2021). It is done where the memory that a program needs,
estimated, is above a limit; of the ways that keep the limit the one with the least work is taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function, Tuple
from tilewright.relay.op.nn.integer_conv2d import IntegerConv2D
from tilewright.relay.op.slice_rules import Cut
from tilewright.relay.op.views import ALIGNMENT, tensor_bytes
from tilewright.relay.transform.common import concrete_shape, open_children, typed_function_pass
from tilewright.relay.transform.memory.graph_memory import GraphMemory
from tilewright.relay.transform.memory.row_bands import ROWS, Band, Bands, rows_from
from tilewright.relay.visitor import ExprMutator

_BANDS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
_MOST_STEPS = 64  # of a region
_MOST_PLANS = 24  # whose tensors are placed: gaps between them may take more than the estimate


@dataclass(frozen=True)
class Region:
    """Calls between a tensor ``start`` and the last of them, with the bands of its result."""

    calls: tuple[Call, ...]
    start: RelayExpr
    bands: tuple[Band, ...]

    def work(self) -> float:
        """Return the products of convolutions, and elements of other calls, that are computed more than once."""
        more = 0.0
        for call in self.calls:
            shape = concrete_shape(call)
            assert shape is not None
            computed = sum(band.rows[call].extent for band in self.bands)
            each = 1.0
            if call.op is IntegerConv2D.op:
                each = math.prod(concrete_shape(call.args[1]) or ()) / shape[-1]
            more += (computed / shape[ROWS] - 1) * math.prod(shape) * each
        return more


def DepthFirst(limit: int) -> Pass:
    """Compute chains of layers in bands of rows, where a program's tensors need more than ``limit`` bytes at once."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        memory = GraphMemory(func)
        if memory.planned() <= limit:
            return func
        found = _best(memory, limit)
        return func if found is None else _Banded(found).visit(func)

    return typed_function_pass(run, "DepthFirst", 0)


def _best(memory: GraphMemory, limit: int) -> Region | None:
    """Return the region of least work that keeps the limit, else that which needs least memory; None of none."""
    found = []
    for region in _regions(memory):
        peak = memory.peak_with(region.calls, region.start, region.bands)
        if peak < memory.peak:
            found.append(((peak > limit, float(peak) if peak > limit else region.work()), region))
    best: tuple[int, Region] | None = None
    for _, region in sorted(found, key=lambda item: item[0])[:_MOST_PLANS]:
        planned = memory.planned_with(region.calls, region.start, region.bands)
        if planned < (memory.planned() if best is None else best[0]):
            best = planned, region
        if planned <= limit:
            break
    return None if best is None else best[1]


def _regions(memory: GraphMemory) -> Iterator[Region]:
    """Yield what can be computed in bands: from one tensor that alone is alive to a later one."""
    found = Bands()
    alone, fullest = memory.alone(), memory.steps.index(memory.peak)
    for at, (begin, start) in enumerate(alone):
        for end, last in alone[at + 1 :] if begin < fullest else []:
            calls = tuple(memory.calls[begin + 1 : end + 1])
            rows = found.of(calls, start, Cut(ROWS, 0, 1)) if len(calls) <= _MOST_STEPS else None
            if rows is None or not isinstance(last, Call):
                break
            for count in _BANDS if end >= fullest else []:
                bands = _in_bands(found, Region(calls, start, ()), last, count)
                if bands is not None:
                    yield Region(calls, start, bands)


def _in_bands(made: Bands, region: Region, last: Call, count: int) -> tuple[Band, ...] | None:
    """Return the bands of as many rows, but the last; None where they are not, or would not lie aligned."""
    shape = concrete_shape(last)
    assert shape is not None
    rows = -(-shape[ROWS] // count)
    while rows * (tensor_bytes(last.checked_type) // shape[ROWS]) % ALIGNMENT:  # type: ignore[arg-type]
        rows += 1
    edges = [*range(0, shape[ROWS], rows), shape[ROWS]]
    if len(edges) < 3:
        return None
    bands = [made.of(region.calls, region.start, Cut(ROWS, a, b)) for a, b in itertools.pairwise(edges)]
    found = tuple(band for band in bands if band is not None)
    return found if len(found) == len(bands) else None


class _Banded(ExprMutator):
    """Rewrites a region."""

    def __init__(self, region: Region) -> None:
        super().__init__()
        self.region = region

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        if expr is self.region.calls[-1]:
            return (self.region.start,)
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        if expr is not self.region.calls[-1]:
            return super().visit_call(expr)
        start = self.visit(self.region.start)
        return relay_op.concatenate(Tuple([self._band(band, start) for band in self.region.bands]), axis=ROWS)

    def _band(self, band: Band, start: RelayExpr) -> RelayExpr:
        assert band.start is not None
        whole = concrete_shape(self.region.start)
        assert whole is not None
        held: dict[RelayExpr, tuple[RelayExpr, Cut]] = {
            self.region.start: (
                rows_from(start, Cut(band.start.axis, 0, whole[band.start.axis]), band.start),
                band.start,
            )
        }
        for call in self.region.calls:
            step = band.steps[call]
            args = [
                arg if rows is None else rows_from(held[arg][0], held[arg][1], rows)
                for arg, rows in zip(call.args, step.operands, strict=True)
            ]
            held[call] = Call(call.op, args, step.attrs, (), call.span), band.rows[call]
        return held[self.region.calls[-1]][0]
