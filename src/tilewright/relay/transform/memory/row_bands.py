"""Parts of a graph that can be computed in bands of rows: which rows of each tensor a band of the result depends on.

Images are (1, h, w, c), so that a band of rows is one piece of memory. A band of a convolution's result depends on
some rows more of its data; these are computed anew for each band.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op.slice_rules import Cut, Part
from tilewright.relay.op.transform.slicing import strided_slice
from tilewright.relay.transform.common import concrete_shape
from tilewright.relay.transform.parts import part_of

ROWS = 1
"""The axis of rows in NHWC."""


def _part_of_rows(call: Call, rows: Cut) -> Part | None:
    """Return how a typed call computes rows of its result, an image; None where it cannot."""
    shape = concrete_shape(call)
    image = shape is not None and len(shape) == 4 and shape[0] == 1
    return part_of(call, rows, in_bands=True) if image else None


def hull(a: Cut | None, b: Cut) -> Cut:
    """Return the rows of both, and those between them."""
    return b if a is None else Cut(b.axis, min(a.begin, b.begin), max(a.end, b.end))


def rows_from(tensor: RelayExpr, held: Cut, wanted: Cut) -> RelayExpr:
    """Return the rows ``wanted`` of a tensor that has the rows ``held``."""
    if held == wanted:
        return tensor
    begin, end = wanted.begin - held.begin, wanted.end - held.begin
    return strided_slice(tensor, begin=[begin], end=[end], axes=[wanted.axis])


@dataclass
class Band:
    """How a band of a region's result is computed: rows of each call, how, and which rows of the start."""

    rows: dict[Call, Cut]
    steps: dict[Call, Part]
    start: Cut | None


class Bands:
    """Bands of regions of one function; what a call's rows depend on is found once."""

    def __init__(self) -> None:
        self._steps = cache(_part_of_rows)

    def of(self, region: Sequence[Call], start: RelayExpr, rows: Cut) -> Band | None:
        """Return how ``rows`` of the last call of a region are computed from ``start``; None where they cannot.

        Parameters
        ----------
        region : calls in the order in which they run; all but the last are used by others of it alone
        start : the tensor outside of the region that its calls read, besides constants
        """
        band = Band({region[-1]: rows}, {}, None)
        for call in reversed(region):
            step = self._steps(call, band.rows[call]) if call in band.rows else None
            if step is None or len(step.operands) != len(call.args):
                return None
            band.steps[call] = step
            for arg, part in zip(call.args, step.operands, strict=True):
                if arg is start:
                    if part is None:
                        return None
                    band.start = hull(band.start, part)
                elif isinstance(arg, Call):
                    if part is None:
                        return None
                    band.rows[arg] = hull(band.rows.get(arg), part)
        return band if band.start is not None else None
