"""Depthwise convolution: every channel has kernels of its own."""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.kinds import CONVOLUTIONS, DEPTHWISE_CONV2D_NCHWC
from tilewright.topi.nn.conv import inside, output_extent, pad_spatial, per_dim
from tilewright.topi.utils import get_const_int, get_pad_tuple


def _depthwise(data: te.Tensor, kernel: te.Tensor, stride: Any, padding: Any, dilation: Any, out_dtype: str,
               layout: str, kernel_layout: str) -> te.Tensor:  # fmt: skip
    strides, dilation = per_dim(stride, 2), per_dim(dilation, 2)
    axes = [layout.index(s) for s in "HW"]
    kernel_axes = [kernel_layout.index(s) for s in "HW"]
    channel_axis, c_axis, m_axis = layout.index("C"), kernel_layout.index("C"), kernel_layout.index("M")
    multiplier = get_const_int(kernel.shape[m_axis])
    extents = [kernel.shape[a] for a in kernel_axes]
    spans = [(e - 1) * d + 1 for e, d in zip(extents, dilation, strict=True)]
    top, left, bottom, right = get_pad_tuple(padding, spans)
    temp = pad_spatial(data, axes, (top, left), (bottom, right))
    shape: list[Any] = list(data.shape)
    shape[channel_axis] = kernel.shape[c_axis] * multiplier
    for k, (axis, before, after) in enumerate(zip(axes, (top, left), (bottom, right), strict=True)):
        shape[axis] = output_extent(data.shape[axis], extents[k], strides[k], dilation[k], before, after)
    windows = [te.reduce_axis((0, e), name=n) for e, n in zip(extents, ("rh", "rw"), strict=True)]

    def body(*i: PrimExpr) -> Any:
        source: list[Any] = list(i)
        w_at: list[Any] = [windows[0].var] * 4
        w_at[c_axis] = source[channel_axis] = tir.indexdiv(i[channel_axis], multiplier)
        w_at[m_axis] = tir.indexmod(i[channel_axis], multiplier)
        for k, axis in enumerate(axes):
            source[axis] = i[axis] * strides[k] + windows[k] * dilation[k]
            w_at[kernel_axes[k]] = windows[k].var
        return te.sum(ops.cast(out_dtype, temp(*source)) * ops.cast(out_dtype, kernel(*w_at)), axis=windows)

    name = f"depthwise_conv2d_{layout.lower()}"
    return te.compute(shape, body, name="DepthwiseConv2d", tag=CONVOLUTIONS[name])


def depthwise_conv2d_nchw(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any,
                          out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Depthwise convolution of Input (n, c, h, w) with Filter (c, m, kh, kw) to (n, c * m, oh, ow)."""
    return _depthwise(Input, Filter, stride, padding, dilation, out_dtype or Input.dtype, "NCHW", "CMHW")


def depthwise_conv2d_nhwc(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any,
                          out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Depthwise convolution of Input (n, h, w, c) with Filter (kh, kw, c, m) to (n, oh, ow, c * m)."""
    return _depthwise(Input, Filter, stride, padding, dilation, out_dtype or Input.dtype, "NHWC", "HWCM")


def depthwise_conv2d_NCHWc(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str = "",
    out_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """Compute the depthwise convolution of Input (n, C, h, w, c) with Filter (C, 1, kh, kw, 1, c): one kernel a
    channel.

    Padding is a condition of the sum, so that no padded copy is made.
    """
    out_dtype = out_dtype or Input.dtype
    strides, dilation = per_dim(stride, 2), per_dim(dilation, 2)
    kh, kw = Filter.shape[2], Filter.shape[3]
    top, left, bottom, right = get_pad_tuple(padding, ((kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1))
    n, chunks, h, w, block = Input.shape
    oh = output_extent(h, kh, strides[0], dilation[0], top, bottom)
    ow = output_extent(w, kw, strides[1], dilation[1], left, right)
    rh, rw = te.reduce_axis((0, kh), name="kh"), te.reduce_axis((0, kw), name="kw")

    def body(b: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr, ci: PrimExpr) -> Any:
        row = y * strides[0] + rh * dilation[0] - top
        column = x * strides[1] + rw * dilation[1] - left
        value, weight = Input(b, c, row, column, ci), Filter(c, 0, rh.var, rw.var, 0, ci)
        where = inside((row, column), (h, w), (top, left), (bottom, right))
        return te.sum(ops.cast(out_dtype, value) * ops.cast(out_dtype, weight), axis=[rh, rw], where=where)

    return te.compute((n, chunks, oh, ow, block), body, name="DepthwiseConv2d", tag=DEPTHWISE_CONV2D_NCHWC)
