"""Moves of elements between spatial dimensions, channels and the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.nn.pad import pad
from tilewright.topi.transform import reshape, strided_slice, transpose
from tilewright.topi.utils import InvalidShapeError, get_const_int, get_const_tuple, prod


def _check_layout(name: str, layout: str) -> None:
    if layout not in ("NCHW", "NHWC"):
        raise InvalidShapeError(f"{name} takes layout NCHW or NHWC, found {layout!r}")


def depth_to_space(data: te.Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> te.Tensor:
    """Move groups of block_size**2 channels to blocks of pixels.

    Mode "DCR" takes the block's position from the leading part of the channel index, "CRD" from the trailing part.
    """
    _check_layout("depth_to_space", layout)
    c, h, w = (layout.index(x) for x in "CHW")
    channels = get_const_int(data.shape[c]) // block_size**2
    shape: list[Any] = list(data.shape)
    shape[c], shape[h], shape[w] = channels, data.shape[h] * block_size, data.shape[w] * block_size

    def body(*i: PrimExpr) -> PrimExpr:
        at = list(i)
        row, column = tir.indexmod(i[h], block_size), tir.indexmod(i[w], block_size)
        block = row * block_size + column
        at[c] = block * channels + i[c] if mode == "DCR" else i[c] * block_size**2 + block
        at[h], at[w] = tir.indexdiv(i[h], block_size), tir.indexdiv(i[w], block_size)
        return data(*at)

    return te.compute(shape, body, name="depth_to_space", tag=tag.INJECTIVE)


def space_to_depth(data: te.Tensor, block_size: int, layout: str = "NCHW") -> te.Tensor:
    """Move blocks of pixels to channels; the inverse of ``depth_to_space`` in mode "DCR"."""
    _check_layout("space_to_depth", layout)
    c, h, w = (layout.index(x) for x in "CHW")
    channels = data.shape[c]
    shape: list[Any] = list(data.shape)
    shape[c] = channels * block_size**2
    shape[h], shape[w] = tir.indexdiv(data.shape[h], block_size), tir.indexdiv(data.shape[w], block_size)

    def body(*i: PrimExpr) -> PrimExpr:
        at = list(i)
        block = tir.indexdiv(i[c], channels)
        at[c] = tir.indexmod(i[c], channels)
        at[h] = i[h] * block_size + tir.indexdiv(block, block_size)
        at[w] = i[w] * block_size + tir.indexmod(block, block_size)
        return data(*at)

    return te.compute(shape, body, name="space_to_depth", tag=tag.INJECTIVE)


def space_to_batch_nd(
    data: te.Tensor,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0.0,
) -> te.Tensor:
    """Pad dimensions 1 to M, and move blocks of ``block_shape`` of them to the batch."""
    m = len(block_shape)
    rest = data.ndim - m - 1
    padded = pad(data, [0, *pad_before, *[0] * rest], [0, *pad_after, *[0] * rest], pad_value)
    batch, *dims = get_const_tuple(padded.shape)
    blocks = [get_const_int(b) for b in block_shape]
    for k, (extent, block) in enumerate(zip(dims, blocks, strict=False)):
        if extent % block:
            raise InvalidShapeError(
                f"space_to_batch_nd: padded dimension {k + 1} of extent {extent} is no multiple of its block {block}"
            )
    split = [v for extent, block in zip(dims[:m], blocks, strict=True) for v in (extent // block, block)]
    parts = reshape(padded, (batch, *split, *dims[m:]))
    order = (
        [2 * k + 2 for k in range(m)] + [0] + [2 * k + 1 for k in range(m)] + list(range(2 * m + 1, 2 * m + 1 + rest))
    )
    shape = (prod(blocks) * batch, *(e // b for e, b in zip(dims, blocks, strict=False)), *dims[m:])
    return reshape(transpose(parts, order), shape)


def batch_to_space_nd(
    data: te.Tensor, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> te.Tensor:
    """Move parts of the batch to blocks of ``block_shape`` in dimensions 1 to M, and crop these."""
    m = len(block_shape)
    blocks = [get_const_int(b) for b in block_shape]
    total, *dims = get_const_tuple(data.shape)
    batch = total // prod(blocks)
    parts = reshape(data, (*blocks, batch, *dims))
    order = [m] + [v for k in range(m) for v in (m + 1 + k, k)] + list(range(2 * m + 1, parts.ndim))
    extents = [e * b for e, b in zip(dims, blocks, strict=False)]
    whole = reshape(transpose(parts, order), (batch, *extents, *dims[m:]))
    begin: list[Any] = [0, *(int(c) for c in crop_begin_list)]
    end = [batch, *(e - int(c) for e, c in zip(extents, crop_end_list, strict=True))]
    return strided_slice(whole, begin, end)
