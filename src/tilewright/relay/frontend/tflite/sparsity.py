"""Sparse constants of TensorFlow Lite as dense ones."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewright.relay.frontend.tflite.flatbuffer import Reader

Array = np.ndarray[Any, Any]
_VECTORS = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}
_DENSE = 0
_MOST_ELEMENTS = 1 << 32


def dense(reader: Reader, name: str, sparsity: SimpleNamespace, shape: tuple[int, ...], values: Array) -> Array:
    """Return all elements of a sparse tensor.

    Its dimensions, and the blocks that some are cut into, are walked in ``traversal_order``. Each level lists either
    all entries, or (compressed rows) those that are there.
    """
    order = [int(d) for d in sparsity.traversal_order]
    rank, levels = len(shape), sparsity.dimensions
    blocks = [int(d) for d in sparsity.block_map]
    if (
        sorted(order) != list(range(rank + len(blocks)))
        or len(levels) != len(order)
        or math.prod(shape) > _MOST_ELEMENTS
    ):
        reader.fail(f"the sparse tensor {name!r} of shape {shape} has the traversal order {order}")
    if any(not 0 <= b < rank for b in blocks):
        reader.fail(f"the sparse tensor {name!r} has the block map {blocks}")
    at = np.zeros((1, len(order)), np.int64)
    parents = np.zeros(1, np.int64)
    for level, axis in zip(levels, order, strict=True):
        at, parents = _entered(reader, name, level, axis, at, parents)
    if len(at) != len(values):
        reader.fail(f"the sparse tensor {name!r} lists {len(at)} places and {len(values)} values")
    sizes = {
        rank + i: level.size
        for i, _ in enumerate(blocks)
        for level, a in zip(levels, order, strict=True)
        if a == rank + i
    }
    place = at[:, :rank].copy()
    for i, axis in enumerate(blocks):
        place[:, axis] = place[:, axis] * sizes[rank + i] + at[:, rank + i]
    if (place < 0).any() or (place >= np.array(shape)).any():
        reader.fail(f"the sparse tensor {name!r} of shape {shape} has an index out of range")
    whole = np.zeros(shape, values.dtype)
    whole[tuple(place.T)] = values
    return whole


def _entered(
    reader: Reader, name: str, level: SimpleNamespace, axis: int, at: Array, parents: Array
) -> tuple[Array, Array]:
    """Return the places one level deeper, and their numbers among all of that level."""
    if level.format == _DENSE:
        size = int(level.size)
        if size < 0 or len(at) * size > _MOST_ELEMENTS:
            reader.fail(f"the sparse tensor {name!r} has a dimension of {size}")
        inner = np.tile(np.arange(size), len(at))
        deeper = np.repeat(at, size, axis=0)
        numbers = np.repeat(parents * size, size) + inner
    else:
        segments, indices = _vector(reader, level, "segments"), _vector(reader, level, "indices")
        if parents.max(initial=-1) + 1 >= len(segments) or (np.diff(segments) < 0).any() or segments[-1] > len(indices):
            reader.fail(f"the sparse tensor {name!r} has segments that do not fit its indices")
        counts = np.diff(segments)[parents]
        deeper = np.repeat(at, counts, axis=0)
        numbers = np.concatenate([np.arange(segments[p], segments[p + 1]) for p in parents] or [parents[:0]])
        inner = indices[numbers]
    deeper[:, axis] = inner
    return deeper, numbers


def _vector(reader: Reader, level: SimpleNamespace, which: str) -> Array:
    kind, at = _VECTORS.get(getattr(level, f"{which}_type")), getattr(level, which)
    if kind is None or not at:
        return np.zeros(1, np.int64)
    values: Array = reader.table(kind, at).values
    return values.astype(np.int64)
