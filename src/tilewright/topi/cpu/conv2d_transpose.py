"""Transposed convolution as one small convolution for each phase of the output.

With stride s, output row y = q*s + r (phase r) gets input rows through the kernel rows k = (r + p) % s + s*j only:
each phase is a plain convolution with every s-th row of the kernel, and no product with the zeros between the
elements of a dilated input is formed. The sub-kernels are packed like those of ``conv2d_nchw``.
"""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.cpu.common import vector_lanes
from tilewright.topi.kinds import CONV2D_UNPACKED, CONV2D_VECTORS, PACKED_KERNEL
from tilewright.topi.nn.conv import pad_spatial, per_dim
from tilewright.topi.nn.conv2d_transpose import group_conv2d_transpose_nchw as direct
from tilewright.topi.utils import InvalidShapeError, get_const_int, get_const_tuple, get_pad_tuple


def conv2d_transpose_nchw(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Any,
    out_dtype: str | None = None,
    output_padding: Any = 0,
    groups: int = 1,
) -> te.Tensor:
    """Compute the transposed convolution of data (n, c, h, w) with kernel (c, o / groups, kh, kw), as ``topi.nn`` does.

    Data of unknown extents takes the direct form.
    """
    out_dtype = out_dtype or data.dtype
    n, channels, h, w = get_const_tuple(data.shape)
    channels_k, per_group, kh, kw = get_const_tuple(kernel.shape)
    (sh, sw), (eh, ew) = ([get_const_int(v) for v in per_dim(values, 2)] for values in (strides, output_padding))
    if not all(isinstance(d, int) for d in (h, w, kh, kw)):
        return direct(data, kernel, strides, padding, out_dtype, output_padding, groups)
    if channels != channels_k or channels % groups:
        raise InvalidShapeError(
            f"conv2d_transpose_nchw: data with {channels} channels and a kernel {get_const_tuple(kernel.shape)} do not "
            f"fit {groups} groups"
        )
    top, left, bottom, right = (get_const_int(p) for p in get_pad_tuple(padding, (kh, kw)))
    oh, ow = (h - 1) * sh + kh - top - bottom + eh, (w - 1) * sw + kw - left - right + ew
    rows, columns = -(-kh // sh), -(-kw // sw)  # kernel rows and columns of one phase
    qh, qw = -(-oh // sh), -(-ow // sw)
    reach_h, reach_w = qh - 1 + (sh - 1 + top) // sh - (h - 1), qw - 1 + (sw - 1 + left) // sw - (w - 1)
    temp = pad_spatial(data, (2, 3), (rows - 1, columns - 1), (max(reach_h, 0), max(reach_w, 0)), "data_pad")
    in_group = channels // groups
    lanes = min(vector_lanes(out_dtype), 1 << max(per_group - 1, 0).bit_length())
    chunks = -(-per_group // lanes)

    def pack(
        g: PrimExpr, c: PrimExpr, ry: PrimExpr, rx: PrimExpr, i: PrimExpr, j: PrimExpr, k: PrimExpr, o: PrimExpr
    ) -> PrimExpr:
        y, x = tir.indexmod(ry + top, sh) + j * sh, tir.indexmod(rx + left, sw) + k * sw
        channel = c * lanes + o
        inside = tir.all(y < kh, x < kw, channel < per_group)
        return tir.if_then_else(inside, kernel(g * in_group + i, channel, y, x), ops.const(0, kernel.dtype))

    shape = (groups, chunks, sh, sw, in_group, rows, columns, lanes)
    packed = te.compute(shape, pack, name="kernel_vec", tag=PACKED_KERNEL)
    rc = te.reduce_axis((0, in_group), name="rc")
    rj, rk = te.reduce_axis((0, rows), name="ry"), te.reduce_axis((0, columns), name="rx")

    def body(
        b: PrimExpr, g: PrimExpr, c: PrimExpr, ry: PrimExpr, rx: PrimExpr, q: PrimExpr, p: PrimExpr, o: PrimExpr
    ) -> Any:
        channel = rc if groups == 1 else g * in_group + rc
        y = q + tir.indexdiv(ry + top, sh) + (rows - 1) - rj
        x = p + tir.indexdiv(rx + left, sw) + (columns - 1) - rk
        value, weight = temp(b, channel, y, x), packed(g, c, ry, rx, rc, rj, rk, o)
        return te.sum(ops.cast(out_dtype, value) * ops.cast(out_dtype, weight), axis=[rc, rj, rk])

    vec = te.compute((n, groups, chunks, sh, sw, qh, qw, lanes), body, name="conv2d_transpose_vec", tag=CONV2D_VECTORS)

    def unpack(b: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        group, inside = (0, c) if groups == 1 else (tir.indexdiv(c, per_group), tir.indexmod(c, per_group))
        at = (tir.indexmod(y, sh), tir.indexmod(x, sw), tir.indexdiv(y, sh), tir.indexdiv(x, sw))
        return vec(b, group, tir.indexdiv(inside, lanes), *at, tir.indexmod(inside, lanes))

    return te.compute((n, per_group * groups, oh, ow), unpack, name="conv2d_transpose_nchw", tag=CONV2D_UNPACKED)
