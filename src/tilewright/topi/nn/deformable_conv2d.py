"""Convolutions with tap offsets from a tensor. Dai et al., Deformable Convolutional Networks, 2017."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.image.sample import bilinear_or_zero
from tilewright.topi.kinds import DEFORMABLE_SAMPLES
from tilewright.topi.nn.conv import per_dim
from tilewright.topi.utils import get_pad_tuple


def deformed_samples(
    data: te.Tensor, offset: te.Tensor, window: Sequence[Any], strides: Any, padding: Any, dilation: Any,
    deformable_groups: int, layout: str,
) -> te.Tensor:  # fmt: skip
    """Sample data at the moved taps: (batch, channels, window rows, window columns, out height, out width)."""
    first = layout == "NCHW"
    batch, channels, height, width = (data.shape[layout.index(letter)] for letter in "NCHW")
    rows, columns = window
    out = [offset.shape[layout.index(letter)] for letter in "HW"]
    per_offset = ops.floordiv(channels, deformable_groups)
    strides, dilation = per_dim(strides, 2), per_dim(dilation, 2)
    top, left = get_pad_tuple(padding, (rows, columns))[:2]

    def sample(n: PrimExpr, c: PrimExpr, dy: PrimExpr, dx: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        tap = ((ops.floordiv(c, per_offset) * rows + dy) * columns + dx) * 2

        def moved(axis: int, base: PrimExpr) -> PrimExpr:
            at = tap + axis
            return ops.cast(offset.dtype, base) + (offset(n, at, i, j) if first else offset(n, i, j, at))

        y = moved(0, i * strides[0] + dy * dilation[0] - top)
        x = moved(1, j * strides[1] + dx * dilation[1] - left)
        zero = ops.const(0, y.dtype)
        outside = tir.any(y < zero, y >= ops.cast(y.dtype, height), x < zero, x >= ops.cast(x.dtype, width))
        value = bilinear_or_zero(
            lambda r, k: data(n, c, r, k) if first else data(n, r, k, c), height, width, y, x, data.dtype
        )
        return tir.if_then_else(outside, ops.const(0, data.dtype), value)

    return te.compute((batch, channels, rows, columns, *out), sample, name="deformed", tag=DEFORMABLE_SAMPLES)


def _deformable(
    data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, strides: Any, padding: Sequence[int], dilation: Any,
    deformable_groups: int, groups: int, out_dtype: str | None, layout: str,
) -> te.Tensor:  # fmt: skip
    first = layout == "NCHW"
    dtype = out_dtype or data.dtype
    outputs, per_group, rows, columns = (kernel.shape["OIHW".index(x) if first else "HWIO".index(x)] for x in "OIHW")
    taken = deformed_samples(data, offset, (rows, columns), strides, padding, dilation, deformable_groups, layout)
    batch, *_, out_rows, out_columns = taken.shape
    out = [out_rows, out_columns]
    ci = te.reduce_axis((0, per_group), name="ci")
    dy, dx = te.reduce_axis((0, rows), name="dy"), te.reduce_axis((0, columns), name="dx")
    per_output = ops.floordiv(outputs, groups)

    def body(n: PrimExpr, o: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        value = taken(n, ops.floordiv(o, per_output) * per_group + ci, dy, dx, i, j)
        weight = kernel(o, ci, dy, dx) if first else kernel(dy, dx, ci, o)
        return te.sum(ops.cast(dtype, value) * ops.cast(dtype, weight), axis=[ci, dy, dx])

    if first:
        return te.compute((batch, outputs, *out), body, name="deformable_conv2d", tag="deformable_conv2d_nchw")
    return te.compute(
        (batch, *out, outputs), lambda n, i, j, o: body(n, o, i, j), name="deformable_conv2d",
        tag="deformable_conv2d_nhwc",
    )  # fmt: skip


def deformable_conv2d_nchw(
    data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any,
    deformable_groups: int, groups: int, out_dtype: str | None = None,
) -> te.Tensor:  # fmt: skip
    """Compute a convolution whose taps are moved by ``offset``, with bilinear interpolation and zeros outside.

    Parameters
    ----------
    data : (batch, channels, height, width)
    offset : (batch, deformable_groups * kernel_height * kernel_width * 2, out_height, out_width), y before x
    kernel : (out_channels, channels / groups, kernel_height, kernel_width)
    strides, dilation : of the two dimensions
    padding : top, left, bottom, right
    """
    return _deformable(data, offset, kernel, strides, padding, dilation, deformable_groups, groups, out_dtype, "NCHW")


def deformable_conv2d_nhwc(
    data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any,
    deformable_groups: int, groups: int, out_dtype: str | None = None,
) -> te.Tensor:  # fmt: skip
    """Compute ``deformable_conv2d_nchw`` with the channels of data, offset and result last, and the kernel in HWIO."""
    return _deformable(data, offset, kernel, strides, padding, dilation, deformable_groups, groups, out_dtype, "NHWC")
