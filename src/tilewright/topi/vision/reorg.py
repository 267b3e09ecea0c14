"""YOLO's rearrangement of pixels into channels."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag


def reorg(data: te.Tensor, stride: int) -> te.Tensor:
    """Move blocks of ``stride`` x ``stride`` to channels, in the order of Darknet's layer ``reorg``.

    Parameters
    ----------
    data : (batch, channels, height, width); channels a multiple of stride**2

    Returns (batch, channels * stride**2, height / stride, width / stride).
    """
    batch, channels, height, width = data.shape
    few = ops.floordiv(channels, stride * stride)
    shape = (batch, channels * stride * stride, ops.floordiv(height, stride), ops.floordiv(width, stride))

    def body(n: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        # the result is written as (channels, height, width), and what is read there lies in an image that is larger
        at = (c * shape[2] + i) * shape[3] + j
        k, row, column = (
            ops.floordiv(at, height * width), ops.floormod(ops.floordiv(at, width), height), ops.floormod(at, width)
        )  # fmt: skip
        block = ops.floordiv(k, few)
        y, x = row * stride + ops.floordiv(block, stride), column * stride + ops.floormod(block, stride)
        source = x + width * stride * (y + height * stride * ops.floormod(k, few))
        return data(
            n, ops.floordiv(source, height * width), ops.floormod(ops.floordiv(source, width), height),
            ops.floormod(source, width),
        )  # fmt: skip

    return te.compute(shape, body, name="reorg", tag=tag.INJECTIVE)
