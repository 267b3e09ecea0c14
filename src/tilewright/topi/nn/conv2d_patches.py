"""Patches (im2col) of a packed image, which turn its convolution into one with a 1x1 kernel."""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.kinds import CONV2D_PATCHES
from tilewright.topi.nn.conv import inside, output_extent, per_dim
from tilewright.topi.utils import get_const_tuple, get_pad_tuple


def conv2d_patches(
    data: te.Tensor, kernel_size: Any, strides: Any, padding: Any, dilation: Any, rows: int
) -> te.Tensor:
    """Copy the windows of data (n, C, h, w, c), zero-padded, merging ``rows`` of the result's oh rows into one.

    Returns (n, C * kh * kw, oh / rows, rows * ow, c): with a kernel (O, C, kh, kw, c, o) read as
    (O, C * kh * kw, 1, 1, c, o), their 1x1 convolution is that of the windows.
    """
    n, chunks, h, w, block = get_const_tuple(data.shape)
    (kh, kw), strides, dilation = per_dim(kernel_size, 2), per_dim(strides, 2), per_dim(dilation, 2)
    top, left, bottom, right = get_pad_tuple(padding, ((kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1))
    height = int(output_extent(h, kh, strides[0], dilation[0], top, bottom))
    width = int(output_extent(w, kw, strides[1], dilation[1], left, right))

    def body(b: PrimExpr, tap: PrimExpr, y: PrimExpr, x: PrimExpr, c: PrimExpr) -> PrimExpr:
        row = (y * rows + tir.indexdiv(x, width)) * strides[0] + tir.indexmod(tir.indexdiv(tap, kw), kh) * dilation[0]
        column = tir.indexmod(x, width) * strides[1] + tir.indexmod(tap, kw) * dilation[1]
        where = inside((row - top, column - left), (h, w), (top, left), (bottom, right))
        value = data(b, tir.indexdiv(tap, kh * kw), row - top, column - left, c)
        return value if ops.is_const_int(where, 1) else tir.if_then_else(where, value, ops.const(0, data.dtype))

    shape = (n, chunks * kh * kw, height // rows, rows * width, block)
    attrs = {"kernel_size": (kh, kw), "width": width}
    return te.compute(shape, body, name="conv2d_patches", tag=CONV2D_PATCHES, attrs=attrs)
