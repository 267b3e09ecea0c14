"""Gathering, slicing, masks, diagonals, one-hot and search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    """Gather elements of ``data`` along ``axis`` at ``indices``."""
    places: list[Array] = list(np.indices(indices.shape))
    places[axis] = indices
    return data[tuple(places)]


def gather_nd_python(a_np: Array, indices_np: Array) -> Array:
    """Gather slices of ``a_np`` at the coordinates in the first dimension of ``indices_np`` (coordinates, ...)."""
    return a_np[tuple(indices_np)]


def _slices(begin: Sequence[Any], end: Sequence[Any], strides: Sequence[Any] | None) -> tuple[slice, ...]:
    longest = max(len(begin), len(end), len(strides or ()))
    padded = ([*part, *[None] * (longest - len(part))] for part in (begin, end, strides or ()))
    return tuple(slice(*each) for each in zip(*padded, strict=True))


def strided_slice_python(
    data: Array,
    begin: Sequence[Any],
    end: Sequence[Any],
    strides: Sequence[Any] | None,
    slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> Array:
    """Slice ``data[begin:end:strides]`` in each of ``axes``, or in the leading dimensions.

    With ``slice_mode`` "size", ``end`` is the number of elements, -1 being all, and ``strides`` are ignored.
    """
    if slice_mode == "size":
        end = [None if n < 0 else b + n for b, n in zip(begin, end, strict=True)]
        strides = None
    slices = _slices(begin, end, strides)
    if axes is not None:
        chosen = {axis % data.ndim: part for axis, part in zip(axes, slices, strict=False)}
        slices = tuple(chosen.get(i, slice(None)) for i in range(data.ndim))
    return data[slices]


def strided_set_python(
    data: Array, v: Array, begin: Sequence[Any], end: Sequence[Any], strides: Sequence[Any] | None
) -> Array:
    """Replace ``data[begin:end:strides]`` by ``v``."""
    result = data.copy()
    result[_slices(begin, end, strides)] = v
    return result


def slice_axis_python(data: Array, axis: int, begin: int, end: int | None = None) -> Array:
    """Slice ``data`` from ``begin`` to ``end`` along ``axis``; an ``end`` of 0 or less counts from the end."""
    stop = data.shape[axis] + end if end is not None and end <= 0 else end
    return data[(*(slice(None),) * (axis % data.ndim), slice(begin, stop))]


def sequence_mask(data: Array, valid_length: Array, mask_value: float, axis: int) -> Array:
    """Write ``mask_value`` from ``valid_length`` on along ``axis``; of axes 0 and 1, the other is the batch."""
    step = np.arange(data.shape[axis]).reshape([-1 if i == axis else 1 for i in range(data.ndim)])
    length = valid_length.reshape([-1 if i == 1 - axis else 1 for i in range(data.ndim)])
    return np.where(step >= length, np.asarray(mask_value, data.dtype), data)


def one_hot(indices: Array, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str) -> Array:
    """Return ``on_value`` where the position along the new ``axis`` of ``depth`` is the index, else ``off_value``."""
    marks = np.expand_dims(indices, axis)
    place = np.arange(depth).reshape([-1 if i == axis % marks.ndim else 1 for i in range(marks.ndim)])
    return np.where(marks == place, on_value, off_value).astype(dtype)


def matrix_set_diag(input_np: Array, diagonal: Array, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT") -> Array:
    """Replace diagonals of ``input_np`` (..., rows, columns).

    Parameters
    ----------
    diagonal : (..., length), or (..., diagonals, length) of several, the highest first
    k : which diagonal, or (lowest, highest); 0 is the main one, positive ones are above it
    align : to which side diagonals shorter than ``length`` are put: those above the main one, and those below it
    """
    lowest, highest = (k, k) if isinstance(k, int) else (k[0], k[-1])
    result = input_np.copy()
    rows, columns = input_np.shape[-2:]
    several = diagonal if lowest != highest else diagonal[..., None, :]
    above, below = align.split("_")
    for offset in range(lowest, highest + 1):
        length = min(columns - max(offset, 0), rows + min(offset, 0))
        skipped = several.shape[-1] - length if (above if offset >= 0 else below) == "RIGHT" else 0
        along = np.arange(length)
        values = several[..., highest - offset, skipped : skipped + length]
        result[..., along - min(offset, 0), along + max(offset, 0)] = values
    return result


def searchsorted_ref(sorted_sequence: Array, values: Array, right: bool, out_dtype: str) -> Array:
    """Return insertion positions of ``values`` (..., n) in ``sorted_sequence`` (m) or (..., m); after equals if
    ``right``.
    """
    side = "right" if right else "left"
    rows = values.reshape(-1, values.shape[-1])
    sequences = np.broadcast_to(sorted_sequence, (*values.shape[:-1], sorted_sequence.shape[-1]))
    found = [
        np.searchsorted(s, v, side=side)  # type: ignore[call-overload]
        for s, v in zip(sequences.reshape(-1, sequences.shape[-1]), rows, strict=True)
    ]
    return np.array(found, out_dtype).reshape(values.shape)
