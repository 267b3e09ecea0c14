"""Transposed convolutions: convolutions of the dilated input with the flipped kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.kinds import CONVOLUTIONS
from tilewright.topi.nn.conv import per_dim
from tilewright.topi.utils import (
    InvalidShapeError,
    get_const_int,
    get_const_tuple,
    get_pad_tuple,
    get_pad_tuple1d,
    get_pad_tuple3d,
    simplify,
)


def conv_transpose(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Sequence[Any],
    output_padding: Any,
    groups: int,
    out_dtype: str,
    name: str,
) -> te.Tensor:
    """Compute the transposed convolution of data (n, c, spatial...) with kernel (c, o / groups, spatial...).

    ``padding`` has the amounts cut before each spatial dimension, then those cut after each; ``output_padding`` is
    added after each. Each output element gathers the input elements that reach it, so nothing is multiplied by the
    zeros of the dilated input.
    """
    n = data.ndim - 2
    strides, output_padding = per_dim(strides, n), per_dim(output_padding, n)
    before, after = list(padding[:n]), list(padding[n:])
    channels, per_group = get_const_tuple(kernel.shape)[:2]
    check_transposed(name, channels, channels, groups, strides, output_padding)
    extents = list(kernel.shape[2:])
    dims = [
        simplify((d - 1) * s + ops.as_expr(k) - b - a + p)
        for d, s, k, b, a, p in zip(data.shape[2:], strides, extents, before, after, output_padding, strict=True)
    ]
    in_group = channels // groups
    rc = te.reduce_axis((0, in_group), name="dc")
    windows = [te.reduce_axis((0, k), name=f"d{x}") for k, x in zip(extents, "dhw"[3 - n :], strict=True)]

    def body(*i: PrimExpr) -> Any:
        group = 0 if groups == 1 else tir.indexdiv(i[1], per_group)
        channel = rc + group * in_group if groups > 1 else rc.var
        inside, at = [], []
        for position, window, stride, cut, extent in zip(i[2:], windows, strides, before, data.shape[2:], strict=True):
            reach = position + cut - window
            source = tir.floordiv(reach, stride)
            inside += [reach >= 0, source < extent]
            if not ops.is_const_int(ops.as_expr(stride), 1):
                inside.append(tir.floormod(reach, stride).equal(0))
            at.append(source)
        value = tir.if_then_else(tir.all(*inside), data(i[0], channel, *at), ops.const(0, data.dtype))
        out_channel = i[1] if groups == 1 else tir.indexmod(i[1], per_group)
        weight = kernel(channel, out_channel, *(w.var for w in windows))
        return te.sum(ops.cast(out_dtype, value) * ops.cast(out_dtype, weight), axis=[rc, *windows])

    return te.compute((data.shape[0], per_group * groups, *dims), body, name=name, tag=CONVOLUTIONS[name])


def check_transposed(
    name: str, channels: int, kernel_channels: int, groups: int, strides: Sequence[Any], output_padding: Sequence[Any]
) -> None:
    """Raise InvalidShapeError if channels, groups and output padding of a transposed convolution do not fit."""
    if channels != kernel_channels:
        raise InvalidShapeError(f"{name}: the data has {channels} channels, the kernel takes {kernel_channels}")
    if channels % groups:
        raise InvalidShapeError(f"{name}: {channels} input channels do not divide into {groups} groups")
    for extra, stride in zip(output_padding, strides, strict=True):
        if get_const_int(extra) >= get_const_int(stride):
            raise InvalidShapeError(f"{name}: output_padding {extra} is not smaller than the stride {stride}")


def conv1d_transpose_ncw(data: te.Tensor, kernel: te.Tensor, stride: Any, padding: Any, out_dtype: str,
                         output_padding: Any) -> te.Tensor:  # fmt: skip
    """Transposed convolution of data (n, c, w) with kernel (c, o, kw)."""
    pads = get_pad_tuple1d(padding, kernel.shape[2:])
    return conv_transpose(data, kernel, stride, pads, output_padding, 1, out_dtype, "conv1d_transpose_ncw")


def conv2d_transpose_nchw(Input: te.Tensor, Filter: te.Tensor, strides: Any, padding: Any, out_dtype: str,
                          output_padding: Any) -> te.Tensor:  # fmt: skip
    """Transposed convolution of Input (n, c, h, w) with Filter (c, o, kh, kw)."""
    pads = get_pad_tuple(padding, Filter.shape[2:])
    return conv_transpose(Input, Filter, strides, pads, output_padding, 1, out_dtype, "conv2d_transpose_nchw")


def group_conv2d_transpose_nchw(data: te.Tensor, kernel: te.Tensor, stride: Any, padding: Any, out_dtype: str,
                                output_padding: Any, groups: int) -> te.Tensor:  # fmt: skip
    """Grouped transposed convolution of data (n, c, h, w) with kernel (c, o / groups, kh, kw)."""
    pads = get_pad_tuple(padding, kernel.shape[2:])
    return conv_transpose(data, kernel, stride, pads, output_padding, groups, out_dtype, "group_conv2d_transpose_nchw")


def conv3d_transpose_ncdhw(Input: te.Tensor, Filter: te.Tensor, strides: Any, padding: Any, out_dtype: str,
                           output_padding: Any) -> te.Tensor:  # fmt: skip
    """Transposed convolution of Input (n, c, d, h, w) with Filter (c, o, kd, kh, kw)."""
    pads = get_pad_tuple3d(padding, Filter.shape[2:])
    return conv_transpose(Input, Filter, strides, pads, output_padding, 1, out_dtype, "conv3d_transpose_ncdhw")
