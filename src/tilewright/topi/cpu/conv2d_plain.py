"""Convolutions of unpacked data: NCHW packs the kernel at run time, NHWC reads it directly, others run plainly."""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.autotvm.task.choices import choose
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir.expr import IterVar
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    find_anchor,
    inline_injective,
    machine,
    measured,
    output_tensors,
    padding_of,
    same_shape,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.loops import (
    fuse_all,
    schedule_padding,
    schedule_register_tiles,
    split_vector,
    unroll_and_vectorize,
)
from tilewright.topi.cpu.model.tiling import choose_tile
from tilewright.topi.kinds import (
    CONV2D_UNPACKED,
    CONV2D_VECTORS,
    CONVOLUTIONS,
    CONVOLUTIONS_CHANNELS_LAST,
    PACKED_KERNEL,
)
from tilewright.topi.nn.conv import output_extent, pad_spatial, per_dim
from tilewright.topi.nn.conv2d import dilated_padding
from tilewright.topi.utils import InvalidShapeError, get_const_tuple


def conv2d_nchw(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str | None = None,
    groups: int = 1,
) -> te.Tensor:
    """Convolution of data (n, c, h, w) with kernel (o, c / groups, kh, kw).

    The kernel is packed to (g, O, c, kh, kw, o) first, so that neighbouring output channels, which read the same data,
    form a vector; the last step unpacks the result.
    """
    out_dtype = out_dtype or data.dtype
    strides, dilation = per_dim(strides, 2), per_dim(dilation, 2)
    n, channels, h, w = get_const_tuple(data.shape)
    out_channels, in_group, kh, kw = get_const_tuple(kernel.shape)
    if channels != in_group * groups or out_channels % groups:
        raise InvalidShapeError(
            f"conv2d_nchw: data with {channels} channels and a kernel {get_const_tuple(kernel.shape)} do not fit "
            f"{groups} groups"
        )
    top, left, bottom, right = dilated_padding(padding, kernel, "OIHW", dilation)
    temp = pad_spatial(data, (2, 3), (top, left), (bottom, right), "data_pad")
    oh = output_extent(h, kh, strides[0], dilation[0], top, bottom)
    ow = output_extent(w, kw, strides[1], dilation[1], left, right)
    per_group = out_channels // groups
    lanes = min(vector_lanes(out_dtype), 1 << max(per_group - 1, 0).bit_length())
    chunks = -(-per_group // lanes)

    def pack(g: PrimExpr, c: PrimExpr, i: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> PrimExpr:
        channel = c * lanes + o
        element = kernel(g * per_group + channel, i, y, x)
        if per_group % lanes == 0:
            return element
        return tir.if_then_else(channel < per_group, element, ops.const(0, kernel.dtype))

    packed = te.compute((groups, chunks, in_group, kh, kw, lanes), pack, name="kernel_vec", tag=PACKED_KERNEL)
    rc = te.reduce_axis((0, in_group), name="rc")
    rh, rw = te.reduce_axis((0, kh), name="ry"), te.reduce_axis((0, kw), name="rx")

    def body(b: PrimExpr, g: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Any:
        channel = rc if groups == 1 else g * in_group + rc
        value = temp(b, channel, y * strides[0] + rh * dilation[0], x * strides[1] + rw * dilation[1])
        weight = packed(g, c, rc, rh, rw, o)
        return te.sum(ops.cast(out_dtype, value) * ops.cast(out_dtype, weight), axis=[rc, rh, rw])

    vec = te.compute((n, groups, chunks, oh, ow, lanes), body, name="conv2d_vec", tag=CONV2D_VECTORS)

    def unpack(b: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        if groups == 1:
            return vec(b, 0, tir.indexdiv(c, lanes), y, x, tir.indexmod(c, lanes))
        inside = tir.indexmod(c, per_group)
        return vec(b, tir.indexdiv(c, per_group), tir.indexdiv(inside, lanes), y, x, tir.indexmod(inside, lanes))

    return te.compute((n, out_channels, oh, ow), unpack, name="conv2d_nchw", tag=CONV2D_UNPACKED)


def group_conv2d_nchw(data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any, groups: int,
                      out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Compute ``conv2d_nchw`` in groups."""
    return conv2d_nchw(data, kernel, strides, padding, dilation, out_dtype, groups)


def schedule_conv2d_nchw(outs: Any) -> te.Schedule:
    """Schedule ``conv2d_nchw`` or ``conv2d_transpose_nchw`` with injective computes after it.

    One task computes a row of one block of channels into a buffer that stays in cache, and unpacks it.
    """
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    vec = find_anchor(tensors, CONV2D_VECTORS)
    if vec is None:
        return schedule_conv_direct(outs)
    pad = padding_of(vec)
    packed = next(t.op for t in vec.input_tensors if PACKED_KERNEL(t.op))
    unpack = find_anchor(tensors, CONV2D_UNPACKED)
    inline_injective(s, tensors, keep=[pad] if pad is not None else [])
    if any(constant_extent(a) == 0 for a in vec.axis):
        return s
    if unpack is not None and unpack not in s.outputs:
        s[unpack].compute_inline()
    parallel = worth_threads(vec, measured().threads.least_products)
    if _unpacks_by_rows(vec, unpack, tensors[0].op):
        row = _schedule_unpacking(s, tensors[0], constant_extent(vec.axis[-1]) or 1, parallel)
        _schedule_vec(s, vec, parallel=False, at=(s[tensors[0]], row))
    else:
        _schedule_vec(s, vec, parallel)
        schedule_injective_from_existing(s, tensors[0])
    stage = s[packed]
    stage.vectorize(packed.axis[-1])
    fused = stage.fuse(*packed.axis[:3])
    if worth_threads(packed):
        stage.parallel(fused)
    if pad is not None:
        schedule_padding(s, pad)
    return s


def _unpacks_by_rows(vec: Any, unpack: Any | None, last: Any) -> bool:
    """Return whether the last operation has the convolution's shape, with whole blocks of channels in each group."""
    if unpack is None or not same_shape(last, unpack):
        return False
    channels, groups, lanes = (constant_extent(a) or 0 for a in (unpack.axis[1], vec.axis[1], vec.axis[-1]))
    return channels * groups * lanes > 0 and channels % (groups * lanes) == 0


def _schedule_unpacking(s: te.Schedule, out: te.Tensor, lanes: int, parallel: bool) -> IterVar:
    """Loop over rows of channel blocks, channels outside of columns within a row; return the loop over rows."""
    stage = s[out]
    n, c, y, x = stage.op.axis
    block, channel = stage.split(c, factor=lanes)
    stage.reorder(n, block, y, channel, x)
    row = stage.fuse(n, block, y)
    if parallel:
        stage.parallel(row)
    split_vector(stage, x, constant_extent(x), vector_lanes(out.dtype))
    return row


def _schedule_vec(s: te.Schedule, vec: Any, parallel: bool, at: tuple[te.Stage, IterVar] | None = None) -> None:
    tensor = vec.output(0)
    tile = _column_tile(constant_extent(vec.axis[-2]) or 1)
    accumulators = s.cache_write(tensor, "local")
    out = s[tensor]
    *outer, ow, lanes = out.op.axis
    ow_outer, ow_inner = out.split(ow, factor=tile)
    if (constant_extent(ow) or 0) % tile:
        out.pragma(ow_outer, "loop_partition_hint", 1)
    if at is not None:
        out.compute_at(*at)
    elif parallel:
        out.parallel(out.fuse(*outer))
    unroll_and_vectorize(out, [ow_inner], lanes)
    inner = s[accumulators]
    inner.compute_at(out, ow_outer)
    *tile_outer, tow, tlanes = inner.op.axis
    inner.reorder(*tile_outer, *inner.op.reduce_axis, tow, tlanes)
    unroll_and_vectorize(inner, [tow], tlanes)


def _column_tile(extent: int) -> int:
    """Return the columns of a register tile: the model's, or the tuned ones."""
    registers = machine().vector_registers
    candidates = sorted({min(extent, n) for n in (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28) if n < registers})
    return choose("tile_columns", candidates, choose_tile(machine(), extent, [1]).spatial)


def schedule_conv2d_nhwc(outs: Any) -> te.Schedule:
    """Schedule an NHWC (or DHWC, WC) convolution: register tiles of columns times channels."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = CONVOLUTIONS_CHANNELS_LAST.among(tensors)
    pad = padding_of(anchor)
    inline_injective(s, tensors, keep=[pad] if pad is not None else [])
    if any(constant_extent(a) == 0 for a in anchor.axis):
        return s
    if pad is not None:
        schedule_padding(s, pad)
    conv, last = anchor.output(0), tensors[0].op
    if last is not anchor and not same_shape(last, anchor):
        schedule_injective_from_existing(s, tensors[0])
        last = anchor
    accumulators = s.cache_write(conv, "local") if last is anchor else conv
    out = s[last]
    if last is not anchor:
        s[conv].set_scope("local")
    axes = list(out.op.axis)
    lanes, channels = vector_lanes(conv.dtype), constant_extent(axes[-1]) or 1
    width = lanes if channels % lanes == 0 else max(d for d in (1, 2, 4, 8) if channels % d == 0 and d <= lanes)
    tile = _column_tile(constant_extent(axes[-2]) or 1)
    oc_outer, oc_inner = out.split(axes[-1], factor=width)
    ow_outer, ow_inner = out.split(axes[-2], factor=tile)
    if (constant_extent(axes[-2]) or 0) % tile:
        out.pragma(ow_outer, "loop_partition_hint", 1)
    out.reorder(*axes[:-2], ow_outer, oc_outer, ow_inner, oc_inner)
    fused = fuse_all(out, axes[:-2])
    if fused is not None and worth_threads(anchor, measured().threads.least_products):
        out.parallel(fused)
    unroll_and_vectorize(out, [ow_inner], oc_inner)
    inner = s[accumulators]
    inner.compute_at(out, oc_outer)
    inner_axes = list(inner.op.axis)
    inner.reorder(*inner_axes[:-2], *inner.op.reduce_axis, *inner_axes[-2:])
    unroll_and_vectorize(inner, [inner_axes[-2]], inner_axes[-1])
    return s


def schedule_conv_direct(outs: Any) -> te.Schedule:
    """Schedule any convolution: register tiles along the last two dimensions, vectors along the last one.

    Layouts with the channels last are scheduled by ``schedule_conv2d_nhwc``.
    """
    tensors = output_tensors(outs)
    anchor = CONVOLUTIONS.among(tensors)
    if CONVOLUTIONS_CHANNELS_LAST(anchor):
        return schedule_conv2d_nhwc(outs)
    s = create_schedule(tensors)
    pad = padding_of(anchor)
    inline_injective(s, tensors, keep=[pad] if pad is not None else [])
    if any(constant_extent(a) == 0 for a in anchor.axis):
        return s
    if pad is not None:
        schedule_padding(s, pad)
    if tensors[0].op is not anchor:
        schedule_injective_from_existing(s, tensors[0])
    schedule_register_tiles(s, anchor, worth_threads(anchor))
    return s


schedule_conv1d_ncw = schedule_conv_direct
schedule_conv3d_ncdhw = schedule_conv_direct
schedule_conv2d_transpose_nchw = schedule_conv2d_nchw
schedule_conv2d_hwcn = schedule_conv_direct
schedule_group_conv2d_nchw = schedule_conv2d_nchw
