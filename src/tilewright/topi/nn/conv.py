"""Convolutions of any number of spatial dimensions and any unpacked layout, grouped ones too.

``conv`` is the one compute behind conv1d, conv2d and conv3d; the functions with TVM's names are in the files
of those names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.kinds import CONVOLUTIONS
from tilewright.topi.nn.pad import pad
from tilewright.topi.utils import InvalidShapeError, as_list, get_const_int, get_const_tuple, simplify


def per_dim(values: Any, n: int) -> list[Any]:
    """Return one value, or a value for each of ``n`` spatial dimensions, as a list of ``n``."""
    result = as_list(values)
    return result * n if len(result) == 1 else result


def output_extent(extent: Any, kernel: Any, stride: Any, dilation: Any, before: Any, after: Any) -> Any:
    """Return the extent of a convolution's output along one spatial dimension."""
    span = (kernel - 1) * dilation + 1
    return simplify(tir.indexdiv(ops.as_expr(extent + before + after - span), stride) + 1)


def places_inside(extent: int, out: int, first: int, stride: int) -> int:
    """Return for how many of ``out`` windows an element of them lies in the data; in the first window, at ``first``."""
    return max(0, min(out, -(-(extent - first) // stride)) - max(0, -(first // stride)))


def share_inside(extent: int, out: int, kernel: int, stride: int = 1, dilation: int = 1, before: int = 0) -> float:
    """Return the share of all window elements along one dimension that are not padding."""
    inside = 0
    for first in range(-before, kernel * dilation - before, dilation):  # where an element is in the first window
        inside += places_inside(extent, out, first, stride)
    return inside / (kernel * out) if kernel * out else 1.0


def pad_spatial(
    data: te.Tensor, axes: Sequence[int], before: Sequence[Any], after: Sequence[Any], name: str = "pad_temp"
) -> te.Tensor:
    """Pad ``data`` with 0 along the spatial ``axes``; return it unchanged when there is nothing to add."""
    if all(ops.is_const_int(simplify(ops.as_expr(p)), 0) for p in (*before, *after)):
        return data
    pad_before, pad_after = [0] * data.ndim, [0] * data.ndim
    for axis, b, a in zip(axes, before, after, strict=True):
        pad_before[axis], pad_after[axis] = b, a
    return pad(data, pad_before, pad_after, 0, name)


def inside(positions: Sequence[Any], extents: Sequence[Any], before: Sequence[Any], after: Sequence[Any]) -> PrimExpr:
    """Return whether ``positions``, which may lie in the padding around an image, lie in the image.

    Used as the condition of a sum, it replaces padding with 0, so no padded copy is made. The tests are marked likely,
    for LoopPartition to take them out of the loops over the image's inner part.

    Parameters
    ----------
    positions : indices into the image, one for each of its dimensions, negative before its first element
    extents : of the image
    before, after : the amounts of padding; sides without padding need no test
    """
    condition: PrimExpr = ops.const(True)
    for position, extent, low, high in zip(positions, extents, before, after, strict=True):
        if not ops.is_const_int(simplify(ops.as_expr(low)), 0):
            condition = ops.logical_and(condition, tir.likely(position >= 0))
        if not ops.is_const_int(simplify(ops.as_expr(high)), 0):
            condition = ops.logical_and(condition, tir.likely(position < extent))
    return condition


def conv(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Sequence[Any],
    dilation: Any,
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_dtype: str,
    name: str,
) -> te.Tensor:
    """Compute the cross-correlation of ``data`` with ``kernel``.

    Parameters
    ----------
    padding : amounts before each spatial dimension, then those after each
    data_layout, kernel_layout : orders of N, C and the spatial letters, such as "NCHW", and of O, I and the
        same, such as "OIHW"; the kernel's I has C / groups elements
    out_dtype : type of the products and sums
    name : one of ``kinds.CONVOLUTIONS``, by which schedules find it
    """
    spatial = [letter for letter in data_layout if letter not in "NC"]
    n = len(spatial)
    strides, dilation = per_dim(strides, n), per_dim(dilation, n)
    axes = [data_layout.index(s) for s in spatial]
    kernel_axes = [kernel_layout.index(s) for s in spatial]
    channel, out_axis, in_axis = data_layout.index("C"), kernel_layout.index("O"), kernel_layout.index("I")
    in_group = get_const_int(kernel.shape[in_axis])
    out_channels = get_const_int(kernel.shape[out_axis])
    _check_channels(name, get_const_tuple(data.shape)[channel], in_group, out_channels, groups)
    before, after = list(padding[:n]), list(padding[n:])
    temp = pad_spatial(data, axes, before, after)
    shape: list[Any] = list(data.shape)
    shape[channel] = out_channels
    for k, axis in enumerate(axes):
        extent = kernel.shape[kernel_axes[k]]
        shape[axis] = output_extent(data.shape[axis], extent, strides[k], dilation[k], before[k], after[k])
    rc = te.reduce_axis((0, in_group), name="rc")
    windows = [
        te.reduce_axis((0, kernel.shape[a]), name=f"r{s.lower()}") for s, a in zip(spatial, kernel_axes, strict=True)
    ]
    per_group = out_channels // groups

    def body(*i: PrimExpr) -> Any:
        at, w_at = list(i), [i[channel]] * kernel.ndim
        group = 0 if groups == 1 else tir.indexdiv(i[channel], per_group) * in_group
        at[channel] = rc + group
        w_at[in_axis] = rc.var
        for k, axis in enumerate(axes):
            at[axis] = i[axis] * strides[k] + windows[k] * dilation[k]
            w_at[kernel_axes[k]] = windows[k].var
        return te.sum(ops.cast(out_dtype, temp(*at)) * ops.cast(out_dtype, kernel(*w_at)), axis=[rc, *windows])

    return te.compute(shape, body, name=name, tag=CONVOLUTIONS[name], attrs={"layout_free_placeholders": [kernel]})


def _check_channels(name: str, channels: Any, in_group: int, out_channels: int, groups: int) -> None:
    if isinstance(channels, int) and channels != in_group * groups:
        raise InvalidShapeError(
            f"{name}: the data has {channels} channels, the kernel takes {in_group} in each of {groups} groups"
        )
    if out_channels % groups:
        raise InvalidShapeError(f"{name}: {out_channels} output channels do not divide into {groups} groups")
