"""Operators before opset 7: broadcasting by attributes, shapes in attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.onnx.attributes import parse_attributes
from tilewright.relay.frontend.onnx.context import NodeContext, describe, typed
from tilewright.relay.frontend.onnx.registry import converter

NUMPY_BROADCASTING = 7
"""The opset from which operators broadcast as numpy does."""


def aligned(node: onnx.NodeProto, inputs: Sequence[Any], ranks: Sequence[int]) -> list[Any]:
    """Return the inputs of a binary operator so that they broadcast by numpy's rule.

    Where ``broadcast`` is 1 and ``axis`` is present, the dimensions of the second begin at that axis of the first:
    trailing ones are added.
    """
    attributes = parse_attributes(node)
    if len(inputs) != 2 or not attributes.get("broadcast", 0) or "axis" not in attributes:
        return list(inputs)
    axis = attributes["axis"] % max(ranks[0], 1)
    missing = ranks[0] - axis - ranks[1]
    if missing < 0:
        raise ValueError(f"{describe(node)}: axis {axis} leaves too few dimensions of {ranks[0]} for {ranks[1]}")
    second = relay_op.expand_dims(inputs[1], ranks[1], missing) if missing else inputs[1]
    return [inputs[0], typed(second)]


@converter("Tile", since=1)
def convert_tile(ctx: NodeContext) -> RelayExpr:
    """Repeat along one axis (before opset 6)."""
    repeats = [1] * ctx.rank(ctx.input(0))
    axis = ctx.normalize_axis(int(ctx.scalar(2, "the axis")), len(repeats))
    repeats[axis] = ctx.count(1, "the number of tiles", 0)
    return relay_op.tile(ctx.input(0), repeats)
