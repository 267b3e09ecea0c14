"""Operators that move data: reshape, slice, gather, scatter, pad, and the arithmetic of shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.random_operators.case import EXACT, Graph, Tolerance, generator
from tests.random_operators.draw import Discard

# Beyond every extent, up to what an attribute can hold.
FAR = (1, 2, 17, 100, 2**31 - 1, 2**63 - 1)


def one_axis(g: Graph, rank: int) -> int:
    """An axis of a tensor, counted from either end."""
    if not rank:
        raise Discard
    return int(g.draw.between(-rank, rank - 1))


def some_axes(g: Graph, rank: int) -> list[int]:
    """Some axes of a tensor, counted from either end, in any order."""
    chosen = g.draw.some(range(rank))
    order = g.draw.order(len(chosen))
    return [chosen[i] - (rank if g.draw.chance(3) else 0) for i in order]


@generator("Shape")
def shape_of(g: Graph) -> Tolerance:
    shape = g.draw.shape()
    attributes = {}
    if g.has("start"):
        attributes = {name: g.draw.between(-6, 6) for name in g.draw.some(("start", "end"))}
    g.emit([g.data(g.dtype(), shape)], **attributes)
    return EXACT


@generator("Size")
def size_of(g: Graph) -> Tolerance:
    g.emit([g.data(g.dtype(), g.draw.shape())])
    return EXACT


def _factors(g: Graph, total: int) -> list[int]:
    """Extents whose product is ``total``."""
    found: list[int] = []
    while total > 1 and len(found) < 5:
        options = [d for d in range(1, total + 1) if total % d == 0]
        found.append(g.draw.of(*options))
        total //= found[-1]
    return [*found, total] if total != 1 or g.draw.chance(3) else found


@generator("Reshape")
def reshape(g: Graph) -> Tolerance:
    shape = g.draw.shape()
    attributes = {"allowzero": g.draw.of(0, 1)} if g.has("allowzero") and g.draw.of(False, True) else {}
    total = math.prod(shape)
    wanted = _factors(g, total) if total else [*g.draw.shape(0, 2), 0, *g.draw.shape(0, 2)]
    if attributes.get("allowzero", 0) == 0:
        if 0 in wanted and any(d == 0 and (i >= len(shape) or shape[i]) for i, d in enumerate(wanted)):
            wanted = list(shape)  # a 0 is read as "keep", so that it cannot stand here
        wanted = [0 if i < len(shape) and shape[i] == d and g.draw.chance(3) else d for i, d in enumerate(wanted)]
    real = [shape[i] if d == 0 and not attributes.get("allowzero") else d for i, d in enumerate(wanted)]
    if wanted and 0 not in real and g.draw.of(False, True):
        wanted[g.draw.below(len(wanted))] = -1
    g.emit([g.data(g.dtype(), shape), g.ints(*wanted)], **attributes)
    return EXACT


@generator("Flatten")
def flatten(g: Graph) -> Tolerance:
    shape = g.draw.shape()
    low = -len(shape) if g.opset >= 11 else 0
    attributes = {"axis": g.draw.between(low, len(shape))} if g.draw.of(False, True) or not shape else {}
    g.emit([g.data(g.dtype(), shape)], **attributes)
    return EXACT


@generator("Transpose")
def transpose(g: Graph) -> Tolerance:
    shape = g.draw.shape(0, 5)
    attributes = {"perm": g.draw.order(len(shape))} if shape and g.draw.of(True, False) else {}
    g.emit([g.data(g.dtype(), shape)], **attributes)
    return EXACT


def _with_axes(g: Graph, data: str, axes: Sequence[int] | None) -> None:
    """A node whose axes are an attribute before opset 13 and an input from then on."""
    if axes is None:
        g.emit([data])
    elif g.has("axes"):
        g.emit([data], axes=list(axes))
    else:
        g.emit([data, g.ints(*axes)])


@generator("Unsqueeze")
def unsqueeze(g: Graph) -> Tolerance:
    shape, count = g.draw.shape(0, 3), g.draw.between(1, 2)
    rank = len(shape) + count
    axes = g.draw.order(rank)[:count]
    low = g.opset >= 11
    _with_axes(g, g.data(g.dtype(), shape), [a - rank if low and g.draw.chance(3) else a for a in axes])
    return EXACT


@generator("Squeeze")
def squeeze(g: Graph) -> Tolerance:
    shape = g.draw.shape(0, 5, extents=(1, 2, 1, 3, 0))
    ones = g.draw.some([i for i, d in enumerate(shape) if d == 1])
    low = g.opset >= 11
    axes = [a - len(shape) if low and g.draw.chance(3) else a for a in ones]
    _with_axes(g, g.data(g.dtype(), shape), axes if axes else None)
    return EXACT


@generator("Concat")
def concat(g: Graph) -> Tolerance:
    dtype, shape = g.dtype(), g.draw.shape(1, 4)
    axis = one_axis(g, len(shape)) if g.opset >= 11 else g.draw.below(len(shape))
    parts = []
    for _ in range(g.draw.between(1, 4)):
        extents = list(shape)
        extents[axis] = g.draw.of(1, 2, 0, 3, 8)
        parts.append(g.data(dtype, extents))
    g.emit(parts, axis=axis)
    return EXACT


@generator("Split")
def split(g: Graph) -> Tolerance:
    dtype, shape = g.dtype(), list(g.draw.shape(1, 4))
    axis = one_axis(g, len(shape)) if g.opset >= 11 else g.draw.below(len(shape))
    count = g.draw.between(1, 4)
    attributes: dict[str, Any] = {"axis": axis} if axis or g.draw.of(False, True) else {}
    if g.draw.of(False, True):
        sizes = [g.draw.of(1, 2, 0, 3, 5) for _ in range(count)]
        shape[axis] = sum(sizes)
        if g.has("split"):
            g.emit([g.data(dtype, shape)], count, **attributes, split=sizes)
        else:
            g.emit([g.data(dtype, shape), g.ints(*sizes)], count, **attributes)
        return EXACT
    if g.has("num_outputs"):
        each = -(-shape[axis] // count)
        if each * (count - 1) > shape[axis]:
            raise Discard  # a part of negative size
        attributes["num_outputs"] = count
    else:
        shape[axis] *= count
    g.emit([g.data(dtype, shape)], count, **attributes)
    return EXACT


def _bound(g: Graph, extent: int) -> int:
    """A start or an end: inside, at the edges, or far outside."""
    if g.draw.chance(4):
        far = g.draw.of(*FAR)
        return g.draw.of(far, -far, -far - 1)
    return int(g.draw.between(-extent - 3, extent + 3))


@generator("Slice")
def slice_(g: Graph) -> Tolerance:
    dtype, shape = g.dtype(), g.draw.shape(1, 4)
    axes = some_axes(g, len(shape)) or [0]
    if g.opset < 10:
        axes = [a % len(shape) for a in axes]
    starts, ends = ([_bound(g, shape[a]) for a in axes] for _ in range(2))
    given = axes != list(range(len(axes))) or g.draw.of(False, True)
    if g.opset < 10:
        g.emit([g.data(dtype, shape)], starts=starts, ends=ends, **({"axes": axes} if given else {}))
        return EXACT
    kind = "int64"
    if all(-(2**31) <= v < 2**31 for v in (*starts, *ends)):
        kind = g.draw.of("int64", "int32")
    steps = [g.draw.of(1, 2, -1, 3, -2, 1, 7, -(2**31) + 1) for _ in axes] if g.draw.of(False, True) else None
    names = [g.data(dtype, shape), g.ints(*starts, dtype=kind), g.ints(*ends, dtype=kind)]
    names.append(g.ints(*axes, dtype=kind) if given else "")
    names.append(g.ints(*steps, dtype=kind) if steps else "")
    g.emit(names)
    return EXACT


def _index_dtype(g: Graph) -> str:
    return str(g.draw.of("int64", "int32"))


@generator("Gather")
def gather(g: Graph) -> Tolerance:
    dtype, shape = g.dtype(), g.draw.shape(1, 4)
    axis = one_axis(g, len(shape))
    wanted = g.draw.shape(0, 3, extents=(1, 2, 3, 0, 5))
    low = -shape[axis] if g.opset >= 11 else 0
    indices = g.draw.integers(_index_dtype(g), wanted, low, shape[axis])
    g.emit([g.data(dtype, shape), g.input(indices)], **({"axis": axis} if axis or g.draw.of(False, True) else {}))
    return EXACT


@generator("GatherElements")
def gather_elements(g: Graph) -> Tolerance:
    dtype, shape = g.dtype(), g.draw.shape(1, 4)
    axis = one_axis(g, len(shape))
    wanted = [g.draw.between(0, d) if g.draw.of(False, True) else d for d in shape]
    wanted[axis] = g.draw.of(1, 2, 0, 5)
    indices = g.draw.integers(_index_dtype(g), wanted, -shape[axis], shape[axis])
    g.emit([g.data(dtype, shape), g.input(indices)], **({"axis": axis} if axis or g.draw.of(False, True) else {}))
    return EXACT


def _tuples(g: Graph, shape: Sequence[int], lead: Sequence[int], depth: int) -> np.ndarray[Any, Any]:
    """Index tuples of ``depth`` for a tensor, counted from either end."""
    columns = [g.draw.integers("int64", lead, -d, d) for d in shape[:depth]]
    return np.stack(columns, axis=-1) if columns else np.zeros((*lead, 0), "int64")


@generator("GatherND")
def gather_nd(g: Graph) -> Tolerance:
    dtype, shape = g.dtype(), g.draw.shape(1, 4)
    batch = g.draw.below(len(shape)) if g.has("batch_dims") and g.draw.of(False, True) else 0
    depth = g.draw.between(1, len(shape) - batch)
    lead = (*shape[:batch], *g.draw.shape(0, 2, extents=(1, 2, 3, 0)))
    if not lead:
        lead = (2,)
    indices = _tuples(g, shape[batch:], lead, depth)
    g.emit([g.data(dtype, shape), g.input(indices)], **({"batch_dims": batch} if batch else {}))
    return EXACT


def _distinct(g: Graph, extent: int, shape: Sequence[int], axis: int) -> np.ndarray[Any, Any]:
    """Indices along ``axis`` of which no two are the same."""
    rng = np.random.default_rng(g.draw.below(1 << 16))
    order = np.argsort(rng.random((*shape[:axis], extent, *shape[axis + 1 :])), axis=axis)
    found = np.take(order, np.arange(shape[axis]), axis=axis)
    return np.where(rng.random(found.shape) < 0.3, found - extent, found)


@generator("Scatter", "ScatterElements")
def scatter_elements(g: Graph) -> Tolerance:
    dtype, shape = g.dtype(), g.draw.shape(1, 4)
    axis = one_axis(g, len(shape)) if g.operator == "ScatterElements" else g.draw.below(len(shape))
    wanted = [g.draw.between(0, d) if g.draw.of(False, True) else d for d in shape]
    attributes = {"axis": axis} if axis or g.draw.of(False, True) else {}
    reductions = ("none", "add") if g.opset < 18 else ("none", "add", "mul", "max", "min")
    reduction = g.draw.of(*reductions) if g.has("reduction") else "none"
    if reduction != "none" and dtype == "bool":
        raise Discard
    if reduction == "none":
        indices = _distinct(g, shape[axis], wanted, axis % len(shape))
    else:
        attributes["reduction"] = reduction
        indices = g.draw.integers("int64", wanted, -shape[axis], shape[axis])
    kinds = "mild" if reduction in ("add", "mul") else "any"
    names = [g.data(dtype, shape, kinds), g.input(indices.astype(_index_dtype(g))), g.data(dtype, wanted, kinds)]
    g.emit(names, **attributes)
    return EXACT if reduction in ("none", "max", "min") else Tolerance("linear", 16)


@generator("ScatterND")
def scatter_nd(g: Graph) -> Tolerance:
    dtype, shape = g.dtype(), g.draw.shape(1, 4)
    depth = g.draw.between(1, len(shape))
    reductions = ("none", "add", "mul") if g.opset < 18 else ("none", "add", "mul", "max", "min")
    reduction = g.draw.of(*reductions) if g.has("reduction") else "none"
    lead = g.draw.shape(1, 2, extents=(1, 2, 3, 0))
    if reduction == "none":
        space, wanted = math.prod(shape[:depth]), math.prod(lead)
        if wanted > space:
            raise Discard
        flat = np.random.default_rng(g.draw.below(1 << 16)).permutation(space)[:wanted]
        indices = np.stack(np.unravel_index(flat, shape[:depth]), axis=-1) if wanted else np.zeros((0, depth))
        indices = indices.reshape((*lead, depth)).astype("int64")
        if g.draw.chance(3):
            indices = indices - np.array(shape[:depth]) * (indices % 2)
    else:
        if dtype == "bool":
            raise Discard
        indices = _tuples(g, shape, lead, depth)
    kinds = "mild" if reduction in ("add", "mul") else "any"
    updates = (*lead, *shape[depth:])
    names = [g.data(dtype, shape, kinds), g.input(indices), g.data(dtype, updates, kinds)]
    g.emit(names, **({"reduction": reduction} if reduction != "none" else {}))
    return EXACT if reduction in ("none", "max", "min") else Tolerance("linear", 16)


@generator("Expand")
def expand(g: Graph) -> Tolerance:
    shape = g.draw.shape()
    data, wanted = g.draw.broadcast(shape), g.draw.broadcast(shape)
    g.emit([g.data(g.dtype(), data), g.ints(*wanted)])
    return EXACT


@generator("Tile")
def tile(g: Graph) -> Tolerance:
    shape = g.draw.shape(0, 4, extents=(1, 2, 3, 0, 5))
    g.emit([g.data(g.dtype(), shape), g.ints(*(g.draw.of(1, 2, 3, 0) for _ in shape))])
    return EXACT


@generator("Pad")
def pad(g: Graph) -> Tolerance:
    dtype, shape = g.dtype(), g.draw.shape(0, 4, extents=(1, 2, 3, 5, 4, 7, 0))
    modes = ("constant", "edge", "reflect", "wrap") if g.opset >= 19 else ("constant", "edge", "reflect")
    mode = g.draw.of(*modes)
    axes = some_axes(g, len(shape)) if g.opset >= 18 and g.draw.chance(3) else None
    chosen = [shape[a] for a in axes] if axes is not None else list(shape)
    pads = [_pad_width(g, mode, extent) for _ in range(2) for extent in chosen]
    for i, extent in enumerate(chosen):
        if extent + min(pads[i], 0) + min(pads[i + len(chosen)], 0) < (0 if mode == "constant" else 1):
            pads[i] = pads[i + len(chosen)] = 0
        if mode != "constant" and extent and (pads[i] < 0 or pads[i + len(chosen)] < 0):
            left = extent + min(pads[i], 0) + min(pads[i + len(chosen)], 0)
            if mode == "reflect" and max(pads[i], pads[i + len(chosen)]) >= left:
                pads[i] = pads[i + len(chosen)] = 0
    attributes = {"mode": mode} if mode != "constant" or g.draw.of(False, True) else {}
    data = g.data(dtype, shape)
    if g.opset < 11:
        value = {"value": g.draw.of(1.5, -2.0)} if g.draw.of(False, True) else {}
        if not pads:
            raise Discard  # an empty list has no type
        g.emit([data], pads=pads, **attributes, **value)
        return EXACT
    value_name = g.fixed(g.draw.array(dtype, ())) if g.draw.of(False, True) else ""
    names = [data, g.ints(*pads), value_name, g.ints(*axes) if axes is not None else ""]
    g.emit(names, **attributes)
    return EXACT


def _pad_width(g: Graph, mode: str, extent: int) -> int:
    if mode == "reflect":
        return int(g.draw.between(0, max(extent - 1, 0)))
    if mode in ("edge", "wrap") and not extent:
        return 0
    if mode == "wrap":
        return int(g.draw.between(0, extent))
    return int(g.draw.of(0, 1, 2, 5, -1, -2))


@generator("ReverseSequence")
def reverse_sequence(g: Graph) -> Tolerance:
    dtype, shape = g.dtype(), g.draw.shape(2, 4)
    time = g.draw.of(0, 1)
    lengths = g.draw.integers("int64", (shape[1 - time],), 1 if shape[time] else 0, shape[time] + 1)
    attributes = {"batch_axis": 1 - time, "time_axis": time} if time or g.draw.of(False, True) else {}
    g.emit([g.data(dtype, shape), g.input(lengths)], **attributes)
    return EXACT


@generator("Trilu")
def trilu(g: Graph) -> Tolerance:
    attributes = {"upper": g.draw.of(0, 1)} if g.draw.of(False, True) else {}
    names = [g.data(g.dtype(), g.draw.shape(2, 4))]
    if g.draw.of(False, True):
        k = g.ints(g.draw.of(0, 1, -1, 5, -40, 2**40))
        g.constants[k] = g.constants[k].reshape(()) if g.draw.of(True, False) else g.constants[k]
        names.append(k)
    g.emit(names, **attributes)
    return EXACT


@generator("NonZero")
def non_zero(g: Graph) -> Tolerance:
    g.emit([g.fixed(g.draw.array(g.dtype(), g.draw.shape(0, 3)))])
    return EXACT


@generator("DepthToSpace", "SpaceToDepth")
def blocks(g: Graph) -> Tolerance:
    dtype, block = g.dtype(), g.draw.of(1, 2, 3)
    batch, channels, height, width = (g.draw.of(1, 2, 3, 0, 5) for _ in range(4))
    attributes: dict[str, Any] = {"blocksize": block}
    if g.has("mode") and g.draw.of(False, True):
        attributes["mode"] = g.draw.of("DCR", "CRD")
    if g.operator == "DepthToSpace":
        shape = (batch, channels * block * block, height, width)
    else:
        shape = (batch, channels, height * block, width * block)
    g.emit([g.data(dtype, shape)], **attributes)
    return EXACT
