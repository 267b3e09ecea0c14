"""Deformable convolution by sampling whole pixels and multiplying with a packed kernel.

The four pixels around a moved tap and their shares are the same for all channels of a group of offsets, so they are
computed once. The channels of a pixel are contiguous; a row of zeros after the last one stands for pixels outside of
the image::

    place(k, n, g, dy, dx, i, j)                        # which pixel, k = 0 to 3
    share(k, n, g, dy, dx, i, j)
    taken(n, i, j, dy, dx, c) = sum over k of share * pixels(n, place, c)
    vec(n, group, chunk, i, j, o) = sum over dy, dx, c of taken * packed(group, chunk, dy, dx, c, o)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.autotvm.task.choices import choose
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import nn
from tilewright.topi.cpu.common import vector_lanes
from tilewright.topi.kinds import DEFORMABLE_VECTORS
from tilewright.topi.nn.conv import per_dim
from tilewright.topi.utils import get_const_tuple, get_pad_tuple

SAMPLES, PIXELS, TABLES, KERNEL = "taken", "pixels", ("place", "share"), "packed_kernel"  # names of the others


@dataclass(frozen=True)
class _Taps:
    """Positions of the kernel's taps. ``window``: rows and columns of the kernel."""

    offset: te.Tensor
    window: tuple[int, int]
    strides: Sequence[Any]
    dilation: Sequence[Any]
    before: Sequence[Any]
    size: Sequence[Any]
    groups: int
    first: bool

    def tables(self, dtype: str) -> tuple[te.Tensor, te.Tensor]:
        """Return the four pixels around each tap, as row numbers of ``pixels``, and their weights."""
        batch = self.offset.shape[0]
        out = self.offset.shape[2:] if self.first else self.offset.shape[1:3]
        shape = (4, batch, self.groups, *self.window, *out)
        height, width = self.size

        def corner(k: PrimExpr, n: PrimExpr, *at: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
            found = []
            for axis, step in ((0, tir.indexdiv(k, 2)), (1, tir.indexmod(k, 2))):
                position, inside = self._position(axis, n, *at), ops.cast(self.offset.dtype, self.size[axis])
                reached = tir.all(position >= 0.0, position < inside)
                low = tir.floor(ops.minimum(ops.maximum(position, ops.const(-1, position.dtype)), inside))
                pixel, part = ops.cast("int32", low) + step, position - low
                share = tir.Select(ops.equal(step, 1), part, ops.const(1, part.dtype) - part)
                found.append((pixel, share, tir.all(reached, pixel < self.size[axis])))
            (row, down, in_row), (column, right, in_column) = found
            return row * width + column, down * right, tir.all(in_row, in_column)

        def place(*at: PrimExpr) -> PrimExpr:
            pixel, _, inside = corner(*at)
            return tir.Select(inside, pixel, ops.cast("int32", height * width))

        def share(*at: PrimExpr) -> PrimExpr:
            _, part, inside = corner(*at)
            return tir.Select(inside, ops.cast(dtype, part), ops.const(0, dtype))

        return te.compute(shape, place, name=TABLES[0]), te.compute(shape, share, name=TABLES[1])

    def _position(self, axis: int, n: PrimExpr, g: PrimExpr, dy: PrimExpr, dx: PrimExpr, *out: PrimExpr) -> PrimExpr:
        rows, columns = self.window
        channel = ((g * rows + dy) * columns + dx) * 2 + axis
        moved = self.offset(n, channel, *out) if self.first else self.offset(n, *out, channel)
        start = out[axis] * self.strides[axis] + (dy, dx)[axis] * self.dilation[axis] - self.before[axis]
        return ops.cast(moved.dtype, start) + moved


def _pixels(data: te.Tensor, first: bool) -> te.Tensor:
    """Return rows of pixels (batch, height + 1, width, channels), the last one of zeros."""
    batch, channels, height, width = (data.shape["NCHW".index(x) if first else "NHWC".index(x)] for x in "NCHW")

    def pixel(n: PrimExpr, y: PrimExpr, x: PrimExpr, c: PrimExpr) -> PrimExpr:
        value = data(n, c, y, x) if first else data(n, y, x, c)
        return tir.if_then_else(y < height, value, ops.const(0, data.dtype))

    return te.compute((batch, height + 1, width, channels), pixel, name=PIXELS)


def deformable_conv2d_packed(
    data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, strides: Any, padding: Sequence[int], dilation: Any,
    deformable_groups: int, groups: int, out_dtype: str | None = None, layout: str = "NCHW",
) -> te.Tensor:  # fmt: skip
    """Compute ``topi.nn.deformable_conv2d_nchw``, or ``_nhwc`` for that layout; the parameters are the same.

    Channels or windows of unknown extents take the computation of ``topi.nn``.
    """
    first = layout == "NCHW"
    kernel_shape = get_const_tuple(kernel.shape)
    extents = [kernel_shape["OIHW".index(x) if first else "HWIO".index(x)] for x in "OIHW"]
    if not all(isinstance(extent, int) for extent in extents):
        plain = nn.deformable_conv2d_nchw if first else nn.deformable_conv2d_nhwc
        return plain(data, offset, kernel, strides, padding, dilation, deformable_groups, groups, out_dtype)
    outputs, per_group, rows, columns = extents
    dtype = out_dtype or data.dtype
    size = data.shape[2:] if first else data.shape[1:3]
    places = per_dim(strides, 2), per_dim(dilation, 2), get_pad_tuple(padding, (rows, columns))[:2]
    taps = _Taps(offset, (rows, columns), *places, size, deformable_groups, first)
    taken = _taken(_pixels(data, first), taps, per_group * groups // deformable_groups)
    batch, out_rows, out_columns, *_ = taken.shape
    per_output = outputs // groups
    lanes = _block(per_output, dtype)
    chunks = -(-per_output // lanes)

    def pack(g: PrimExpr, b: PrimExpr, dy: PrimExpr, dx: PrimExpr, c: PrimExpr, o: PrimExpr) -> PrimExpr:
        channel = b * lanes + o
        at = g * per_output + channel
        value = kernel(at, c, dy, dx) if first else kernel(dy, dx, c, at)
        if per_output % lanes == 0:
            return value
        return tir.if_then_else(channel < per_output, value, ops.const(0, value.dtype))

    packed = te.compute((groups, chunks, rows, columns, per_group, lanes), pack, name=KERNEL)
    dy, dx = te.reduce_axis((0, rows), name="dy"), te.reduce_axis((0, columns), name="dx")
    ci = te.reduce_axis((0, per_group), name="ci")

    def body(n: PrimExpr, g: PrimExpr, b: PrimExpr, i: PrimExpr, j: PrimExpr, o: PrimExpr) -> Any:
        value = taken(n, i, j, dy, dx, ci if groups == 1 else g * per_group + ci)
        return te.sum(ops.cast(dtype, value) * ops.cast(dtype, packed(g, b, dy, dx, ci, o)), axis=[dy, dx, ci])

    shape = (batch, groups, chunks, out_rows, out_columns, lanes)
    vec = te.compute(shape, body, name="deformable_vec", tag=DEFORMABLE_VECTORS)

    def unpack(n: PrimExpr, o: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        group, inside = (0, o) if groups == 1 else (tir.indexdiv(o, per_output), tir.indexmod(o, per_output))
        return vec(n, group, tir.indexdiv(inside, lanes), i, j, tir.indexmod(inside, lanes))

    if first:
        return te.compute((batch, outputs, out_rows, out_columns), unpack, name="deformable_conv2d_nchw")
    last = (batch, out_rows, out_columns, outputs)
    return te.compute(last, lambda n, i, j, o: unpack(n, o, i, j), name="deformable_conv2d_nhwc")


def _taken(pixels: te.Tensor, taps: _Taps, per_offset: int) -> te.Tensor:
    place, share = taps.tables(pixels.dtype)
    _, batch, _, rows, columns, *out = place.shape
    width = pixels.shape[2]

    def sample(n: PrimExpr, i: PrimExpr, j: PrimExpr, dy: PrimExpr, dx: PrimExpr, c: PrimExpr) -> PrimExpr:
        group = 0 if taps.groups == 1 else tir.indexdiv(c, per_offset)
        parts = []
        for k in range(4):
            at = (k, n, group, dy, dx, i, j)
            pixel = place(*at)
            parts.append(share(*at) * pixels(n, tir.indexdiv(pixel, width), tir.indexmod(pixel, width), c))
        return parts[0] + parts[1] + parts[2] + parts[3]

    return te.compute((batch, *out, rows, columns, pixels.shape[3]), sample, name=SAMPLES)


def _block(outputs: int, dtype: str) -> int:
    """Return how many outputs to sum in registers side by side: two vectors if they are as full as one."""
    lanes = vector_lanes(dtype)
    if outputs <= lanes:
        return 1 << max(outputs - 1, 0).bit_length()
    filled = math.ceil(outputs / lanes) % 2 == 0
    return choose("vectors_at_once", [1, 2, 3, 4], 2 if filled else 1) * lanes
