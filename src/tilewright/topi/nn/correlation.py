"""Correlation of the patches of one image with displaced patches of another."""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.nn.pad import pad
from tilewright.topi.utils import InvalidShapeError, get_const_int, get_const_tuple, get_pad_tuple


def correlation_nchw(
    data1: te.Tensor,
    data2: te.Tensor,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: Any,
    is_multiply: bool,
) -> te.Tensor:
    """Compute mean products of patches of ``data1`` and displaced ones of ``data2``; Fischer et al., FlowNet, 2015.

    Parameters
    ----------
    data1, data2 : (n, c, h, w)
    kernel_size : side of a patch, odd
    max_displacement : how far the patches of ``data2`` may lie, down and across
    stride1, stride2 : distance of patches, and of displacements
    padding : int, 2 or 4 ints (top, left, bottom, right) of zeros
    is_multiply : products, else absolute differences

    Returns (n, d * d, oh, ow), d = 2 * (max_displacement // stride2) + 1, the displacement down outermost.
    """
    shape = get_const_tuple(data1.shape)
    if get_const_tuple(data2.shape) != shape:
        raise InvalidShapeError(f"correlation of two shapes, {shape} and {get_const_tuple(data2.shape)}; one is needed")
    size, reach, step, between = (get_const_int(v) for v in (kernel_size, max_displacement, stride1, stride2))
    if size < 1 or size % 2 == 0:
        raise InvalidShapeError(f"correlation: the kernel's size is odd, found {size}")
    top, left, bottom, right = (get_const_int(p) for p in get_pad_tuple(padding, (size, size)))
    first, second = (pad(d, [0, 0, top, left], [0, 0, bottom, right]) for d in (data1, data2))
    batch, channels, height, width = shape
    border, radius = reach + (size - 1) // 2, reach // between
    side = 2 * radius + 1
    rows, columns = (
        max(-(-(n - 2 * border) // step), 0) for n in (height + top + bottom, width + left + right)
    )  # fmt: skip
    rc, ry, rx = (te.reduce_axis((0, n), name=name) for n, name in ((channels, "rc"), (size, "ry"), (size, "rx")))

    def body(n: PrimExpr, q: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        y, x = i * step + reach + ry, j * step + reach + rx
        down, across = (tir.indexdiv(q, side) - radius) * between, (tir.indexmod(q, side) - radius) * between
        a, b = first(n, rc, y, x), second(n, rc, y + down, x + across)
        return te.sum(a * b if is_multiply else tir.abs(a - b), axis=[rc, ry, rx])

    total = te.compute((batch, side * side, rows, columns), body, name="correlation", tag=tag.COMM_REDUCE)
    count = ops.const(size * size * channels, data1.dtype)
    return te.compute(total.shape, lambda *i: total(*i) / count, name="correlation_mean", tag=tag.ELEMWISE)
