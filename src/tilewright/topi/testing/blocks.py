"""Moves between spatial blocks, channels and the batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Convert (n, c, h * b, w * b) to (n, b * b * c, h, w)."""
    n, c, height, width = data.shape
    h, w = height // block_size, width // block_size
    parts = data.reshape(n, c, h, block_size, w, block_size)
    return parts.transpose(0, 3, 5, 1, 2, 4).reshape(n, c * block_size**2, h, w)


def depth_to_space_python(data: Array, block_size: int, mode: str = "DCR") -> Array:
    """Convert (n, b * b * c, h, w) to (n, c, h * b, w * b); ``mode`` "CRD" has channels before block positions."""
    n, channels, h, w = data.shape
    b, c = block_size, channels // block_size**2
    parts = data.reshape(n, b, b, c, h, w).transpose(0, 3, 4, 1, 5, 2) if mode == "DCR" else None
    if parts is None:
        parts = data.reshape(n, c, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c, h * b, w * b)


def space_to_batch_nd_python(
    data: Array, block_shape: Sequence[int], pad_before: Sequence[int], pad_after: Sequence[int], pad_value: float = 0
) -> Array:
    """Pad the dimensions after the first, and move positions in blocks of them to the first."""
    blocks, count = tuple(block_shape), len(block_shape)
    pads = [(0, 0), *zip(pad_before, pad_after, strict=True), *[(0, 0)] * (data.ndim - 1 - count)]
    padded = np.pad(data, pads, constant_values=pad_value)
    outer = [n // b for n, b in zip(padded.shape[1:], blocks, strict=False)]
    split = [n for pair in zip(outer, blocks, strict=True) for n in pair]
    rest = padded.shape[1 + count :]
    parts = padded.reshape(padded.shape[0], *split, *rest)
    inner = range(2, 2 + 2 * count, 2)
    order = [*inner, 0, *(i - 1 for i in inner), *range(1 + 2 * count, parts.ndim)]
    return parts.transpose(order).reshape(-1, *outer, *rest)


def batch_to_space_nd_python(
    data: Array, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> Array:
    """Invert ``space_to_batch_nd_python``; the padding is cropped."""
    blocks, count = tuple(block_shape), len(block_shape)
    outer, rest = data.shape[1 : 1 + count], data.shape[1 + count :]
    batch = data.shape[0] // int(np.prod(blocks))
    parts = data.reshape(*blocks, batch, *outer, *rest)
    order = [count, *(i for k in range(count) for i in (count + 1 + k, k)), *range(2 * count + 1, parts.ndim)]
    whole = parts.transpose(order).reshape(batch, *(n * b for n, b in zip(outer, blocks, strict=True)), *rest)
    ends = zip(whole.shape[1:], crop_begin_list, crop_end_list, strict=False)
    return whole[(slice(None), *(slice(begin, n - end) for n, begin, end in ends))]
