"""Parts of a graph that can be computed in bands of rows: which rows of each tensor a band of the result depends on.

Images are (1, h, w, c), so that a band of rows is one piece of memory. A band of a convolution's result depends on
some rows more of its data; these are computed anew for each band.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.nn.integer_conv2d import IntegerConv2D
from tilewright.relay.op.nn.pooling import MaxPool2D
from tilewright.relay.op.transform.layout import LayoutTransform
from tilewright.relay.transform.common import concrete_shape, pattern_of

ROWS = 1
"""The axis of rows in NHWC."""


@dataclass(frozen=True)
class Rows:
    """Rows ``begin`` to ``end`` of a tensor, along ``axis``."""

    begin: int
    end: int
    axis: int = ROWS

    def __or__(self, other: Rows) -> Rows:
        return Rows(min(self.begin, other.begin), max(self.end, other.end), self.axis)

    @property
    def count(self) -> int:
        """Return how many they are."""
        return self.end - self.begin


@dataclass(frozen=True)
class Step:
    """How a call computes rows of its result: of rows of each operand (None: all of it), and of windows with so much
    padding above and below.
    """

    operands: Sequence[Rows | None]
    padding: tuple[int, int] | None = None

    def attrs_of(self, call: Call) -> Any:
        """Return the attributes of the call that computes the rows."""
        attrs: Any = call.attrs
        if self.padding is None:
            return attrs
        _, left, _, right = padding_of(attrs.padding, 2)
        fixed = {"ceil_mode": False} if call.op is MaxPool2D.op else {}
        return attrs.replace(padding=(self.padding[0], left, self.padding[1], right), **fixed)


def step_of(call: Call, rows: Rows) -> Step | None:
    """Return how a typed call computes rows of its result; None where it cannot."""
    shapes = [concrete_shape(arg) for arg in call.args]
    shape = concrete_shape(call)
    if shape is None or len(shape) != 4 or shape[0] != 1 or None in shapes:
        return None
    rule = _RULES.get(call.op)
    if rule is not None:
        return rule(call, rows, shapes)
    return _element_wise(call, rows, shape, shapes) if pattern_of(call) <= OpPattern.BROADCAST else None


def _windows(call: Call, rows: Rows, shapes: Sequence[Any]) -> Step | None:
    """Rows of windows: those in the image, and padding for the others."""
    attrs: Any = call.attrs
    if (attrs.layout if call.op is MaxPool2D.op else attrs.data_layout) != "NHWC":
        return None
    height = ints(attrs.pool_size)[0] if call.op is MaxPool2D.op else shapes[1][attrs.kernel_layout.index("H")]
    stride, dilation, top = ints(attrs.strides)[0], ints(attrs.dilation)[0], padding_of(attrs.padding, 2)[0]
    begin = rows.begin * stride - top
    end = (rows.end - 1) * stride - top + (height - 1) * dilation + 1
    extent = shapes[0][ROWS]
    inside = Rows(max(begin, 0), min(end, extent))
    if inside.count <= 0:
        return None
    return Step([inside, *(None for _ in call.args[1:])], (max(-begin, 0), max(end - extent, 0)))


def _to_channels_last(call: Call, rows: Rows, shapes: Sequence[Any]) -> Step | None:
    attrs: Any = call.attrs
    if (attrs.src_layout, attrs.dst_layout) != ("NCHW", "NHWC"):
        return None
    return Step([Rows(rows.begin, rows.end, 2)])


def _element_wise(call: Call, rows: Rows, shape: Sequence[int], shapes: Sequence[Any]) -> Step | None:
    """The same rows of operands of the result's shape; single numbers whole."""
    operands: list[Rows | None] = []
    for operand in shapes:
        if tuple(operand) != tuple(shape) and any(extent != 1 for extent in operand[:-1]):
            return None
        operands.append(rows if tuple(operand) == tuple(shape) else None)
    return Step(operands) if any(operands) else None


_RULES: Mapping[Any, Callable[[Call, Rows, Sequence[Any]], Step | None]] = {
    IntegerConv2D.op: _windows,
    MaxPool2D.op: _windows,
    LayoutTransform.op: _to_channels_last,
}


@dataclass
class Band:
    """How a band of a region's result is computed: rows of each call, how, and which rows of the start."""

    rows: dict[Call, Rows]
    steps: dict[Call, Step]
    start: Rows | None


class Bands:
    """Bands of regions of one function; what a call's rows depend on is found once."""

    def __init__(self) -> None:
        self._steps = cache(step_of)

    def of(self, region: Sequence[Call], start: RelayExpr, rows: Rows) -> Band | None:
        """Return how ``rows`` of the last call of a region are computed from ``start``; None where they cannot.

        Parameters
        ----------
        region : calls in the order in which they run; all but the last are used by others of it alone
        start : the tensor outside of the region that its calls read, besides constants
        """
        band = Band({region[-1]: rows}, {}, None)
        for call in reversed(region):
            step = self._steps(call, band.rows[call]) if call in band.rows else None
            if step is None:
                return None
            band.steps[call] = step
            for arg, part in zip(call.args, step.operands, strict=True):
                if arg is start:
                    if part is None:
                        return None
                    band.start = part if band.start is None else band.start | part
                elif isinstance(arg, Call):
                    if part is None:
                        return None
                    band.rows[arg] = band.rows[arg] | part if arg in band.rows else part
        return band if band.start is not None else None
