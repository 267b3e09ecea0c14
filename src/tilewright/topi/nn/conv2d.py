"""Two-dimensional convolution in the unpacked layouts, and of packed channels."""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.kinds import CONV2D_NCHWC, CONV2D_NCHWC_INT8
from tilewright.topi.nn.conv import conv, inside, output_extent, per_dim
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, get_pad_tuple

ADDED_LANES = "conv2d_NCHWc_added"  # the operations of conv2d_NCHWc that add up lanes


def _spatial(kernel: te.Tensor, layout: str) -> tuple[Any, Any]:
    return kernel.shape[layout.index("H")], kernel.shape[layout.index("W")]


def dilated_padding(padding: Any, kernel: te.Tensor, kernel_layout: str, dilation: Any) -> tuple[Any, ...]:
    """Return the padding (top, left, bottom, right), with "SAME" resolved for the dilated kernel."""
    dh, dw = dilation if isinstance(dilation, (list, tuple)) else (dilation, dilation)
    kh, kw = _spatial(kernel, kernel_layout)
    return get_pad_tuple(padding, ((kh - 1) * dh + 1, (kw - 1) * dw + 1))


def conv2d(
    input: te.Tensor,
    filter: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    layout: str = "NCHW",
    out_dtype: str | None = None,
) -> te.Tensor:
    """Convolution by layout: "NCHW" (filter OIHW), "NHWC" or "HWCN" (filter HWIO)."""
    if layout == "NCHW":
        return conv2d_nchw(input, filter, strides, padding, dilation, out_dtype)
    if layout == "NHWC":
        return conv2d_nhwc(input, filter, strides, padding, dilation, out_dtype)
    if layout == "HWCN":
        return conv2d_hwcn(input, filter, strides, padding, dilation, out_dtype)
    raise InvalidShapeError(f"conv2d takes layout NCHW, NHWC or HWCN, found {layout!r}")


def conv2d_nchw(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any,
                out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Convolution of Input (n, c, h, w) with Filter (o, c, kh, kw)."""
    pads = dilated_padding(padding, Filter, "OIHW", dilation)
    return conv(Input, Filter, stride, pads, dilation, 1, "NCHW", "OIHW", out_dtype or Input.dtype,
                "conv2d_nchw")  # fmt: skip


def conv2d_nhwc(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any,
                out_dtype: str | None = "float32", auto_scheduler_rewritten_layout: str = "") -> te.Tensor:  # fmt: skip
    """Convolution of Input (n, h, w, c) with Filter (kh, kw, c, o)."""
    pads = dilated_padding(padding, Filter, "HWIO", dilation)
    return conv(Input, Filter, stride, pads, dilation, 1, "NHWC", "HWIO", out_dtype or Input.dtype,
                "conv2d_nhwc")  # fmt: skip


def conv2d_hwcn(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any,
                out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Convolution of Input (h, w, c, n) with Filter (kh, kw, c, o)."""
    pads = dilated_padding(padding, Filter, "HWIO", dilation)
    return conv(Input, Filter, stride, pads, dilation, 1, "HWCN", "HWIO", out_dtype or Input.dtype,
                "conv2d_hwcn")  # fmt: skip


def group_conv2d_nchw(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any, groups: int,
                      out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Compute a convolution whose output channels, in ``groups`` parts, each read one part of the input channels."""
    pads = dilated_padding(padding, Filter, "OIHW", dilation)
    return conv(Input, Filter, stride, pads, dilation, groups, "NCHW", "OIHW", out_dtype or Input.dtype,
                "group_conv2d_nchw")  # fmt: skip


def group_conv2d_nhwc(Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any, groups: int,
                      out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Compute ``group_conv2d_nchw`` on data (n, h, w, c) with Filter (kh, kw, c / groups, o)."""
    pads = dilated_padding(padding, Filter, "HWIO", dilation)
    return conv(Input, Filter, stride, pads, dilation, groups, "NHWC", "HWIO", out_dtype or Input.dtype,
                "group_conv2d_nhwc")  # fmt: skip


def conv2d_NCHWc(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str = "",
    out_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """Convolution of data (n, C, h, w, c) with kernel (O, C / groups, kh, kw, c, o) to (n, O, oh, ow, o).

    The number of groups is the data's C divided by the kernel's. If the kernel's c is smaller than the data's, a block
    holds several groups of c channels: output o reads channels o // c * c + (0 ... c - 1). A kernel (O, C / groups, kh,
    kw, c / 2, o, 2) has the weights of two inputs side by side, summed in separate lanes.
    """
    out_dtype = out_dtype or data.dtype
    strides, dilation = per_dim(stride, 2), per_dim(dilation, 2)
    n, in_chunks, h, w, in_block = get_const_tuple(data.shape)
    out_chunks, group_chunks, kh, kw, steps, out_block, *pair = get_const_tuple(kernel.shape)
    side = pair[0] if pair else 1  # inputs whose weights lie side by side
    kernel_block = steps * side
    groups = in_chunks // group_chunks
    shared = kernel_block < in_block
    matching = in_chunks % group_chunks == 0 and out_chunks % groups == 0 and in_block % kernel_block == 0
    if not matching or (shared and (group_chunks, out_chunks, out_block) != (1, in_chunks, in_block)):
        raise InvalidShapeError(
            f"conv2d_NCHWc: data {get_const_tuple(data.shape)} and kernel {get_const_tuple(kernel.shape)} do not fit"
        )
    top, left, bottom, right = get_pad_tuple(padding, ((kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1))
    oh = output_extent(h, kh, strides[0], dilation[0], top, bottom)
    ow = output_extent(w, kw, strides[1], dilation[1], left, right)
    ico, ici = te.reduce_axis((0, group_chunks), name="ic_outer"), te.reduce_axis((0, steps), name="ic_inner")
    rh, rw = te.reduce_axis((0, kh), name="kh"), te.reduce_axis((0, kw), name="kw")
    chunks_per_group = out_chunks // groups

    def body(b: PrimExpr, oc: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Any:
        chunk = ico if groups == 1 else tir.indexdiv(oc, chunks_per_group) * group_chunks + ico
        row = y * strides[0] + rh * dilation[0] - top
        column = x * strides[1] + rw * dilation[1] - left
        lane: PrimExpr = ici.var
        if pair:
            lane = ici * side + tir.indexmod(o, side)
        elif shared:
            lane = tir.indexdiv(o, kernel_block) * kernel_block + ici
        lanes = (tir.indexdiv(o, side), tir.indexmod(o, side)) if pair else (o,)
        value, weight = data(b, chunk, row, column, lane), kernel(oc, ico, rh, rw, ici, *lanes)
        where = inside((row, column), (h, w), (top, left), (bottom, right))
        return te.sum(ops.cast(out_dtype, value) * ops.cast(out_dtype, weight), axis=[ico, rh, rw, ici], where=where)

    out = te.compute((n, out_chunks, oh, ow, out_block * side), body, name="conv2d_NCHWc", tag=CONV2D_NCHWC)
    return _added_up(out, side)


def _added_up(sums: te.Tensor, side: int) -> te.Tensor:
    """Add the ``side`` neighbouring lanes of each sum, in pairs."""
    while side > 1:
        wide, side = sums, side // 2
        *outer, lanes = get_const_tuple(wide.shape)

        def added(*index: PrimExpr, wide: te.Tensor = wide) -> PrimExpr:
            *position, o = index
            return wide(*position, o * 2) + wide(*position, o * 2 + 1)

        sums = te.compute((*outer, lanes // 2), added, name=ADDED_LANES, tag=tag.INJECTIVE)
    return sums


def conv2d_NCHWc_int8(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str = "",
    out_layout: str = "",
    out_dtype: str | None = "int32",
    small_weights: bool = False,
) -> te.Tensor:
    """Convolution of bytes (n, C, h, w, c) with kernel (O, C / groups, kh, kw, c / k, o, k) to (n, O, oh, ow, o).

    The weights of ``k`` neighbouring channels, 4 or 2, lie together: what one instruction multiplies and adds up.
    Padding is 0. ``small_weights``: no product of two bytes with two neighbouring weights exceeds 16 bits.
    """
    out_dtype = out_dtype or "int32"
    strides, dilation = per_dim(stride, 2), per_dim(dilation, 2)
    n, in_chunks, h, w, in_block = get_const_tuple(data.shape)
    out_chunks, group_chunks, kh, kw, steps, out_block, together = get_const_tuple(kernel.shape)
    groups = in_chunks // max(group_chunks, 1)
    if groups * group_chunks != in_chunks or out_chunks % max(groups, 1) or steps * together != in_block:
        raise InvalidShapeError(
            f"conv2d_NCHWc_int8: data {get_const_tuple(data.shape)} and kernel {get_const_tuple(kernel.shape)} "
            "do not fit"
        )
    top, left, bottom, right = get_pad_tuple(padding, ((kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1))
    oh = output_extent(h, kh, strides[0], dilation[0], top, bottom)
    ow = output_extent(w, kw, strides[1], dilation[1], left, right)
    axes = [
        te.reduce_axis((0, extent), name=name)
        for name, extent in (("ic_outer", group_chunks), ("kh", kh), ("kw", kw), ("ic_inner", steps), ("k", together))
    ]
    ico, rh, rw, ici, k = axes
    chunks_per_group = out_chunks // max(groups, 1)

    def body(b: PrimExpr, oc: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Any:
        chunk = ico if groups == 1 else tir.indexdiv(oc, chunks_per_group) * group_chunks + ico
        row = y * strides[0] + rh * dilation[0] - top
        column = x * strides[1] + rw * dilation[1] - left
        value, weight = data(b, chunk, row, column, ici * together + k), kernel(oc, ico, rh, rw, ici, o, k)
        where = inside((row, column), (h, w), (top, left), (bottom, right))
        return te.sum(ops.cast(out_dtype, value) * ops.cast(out_dtype, weight), axis=axes, where=where)

    shape = (n, out_chunks, oh, ow, out_block)
    attrs = {"strides": tuple(strides), "dilation": tuple(dilation), "small_weights": small_weights}
    return te.compute(shape, body, name="conv2d_NCHWc_int8", tag=CONV2D_NCHWC_INT8, attrs=attrs)
