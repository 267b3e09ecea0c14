"""Shapes: views, transposes, joins, parts, and padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext, pairs
from tilewright.relay.frontend.torch.registry import converter

_FAR = np.iinfo(np.int64).max


@converter("view", "reshape", "_unsafe_view", "_reshape_copy", "view_copy")
def convert_view(ctx: TorchContext, x: RelayExpr, size: Any) -> RelayExpr:
    """The elements in another shape, or the bits as another type."""
    if not isinstance(size, (list, tuple)):
        return relay_op.reinterpret(x, ctx.result_dtype())
    known = [ctx.importer.symbols.dim(d) for d in ctx.meta().shape]
    sizes = [d if is_number(s) and s == -1 and is_number(d) else s for s, d in zip(size, known, strict=True)]
    return ctx.reshape(x, sizes)


@converter("alias", "detach", "clone", "contiguous", "lift_fresh_copy", "lift_fresh", "positive", "alias_copy",
           "detach_copy", "resolve_conj", "resolve_neg", "lift")  # fmt: skip
def convert_identity(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """The data themselves."""
    return x


@converter("_to_copy", "to.dtype", "to.dtype_layout", "prims::convert_element_type")
def convert_to_copy(ctx: TorchContext, x: RelayExpr, dtype: Any = None, *_: Any) -> RelayExpr:
    """The data in another type."""
    return ctx.cast(x, ctx.result_dtype())


@converter("copy")
def convert_copy(ctx: TorchContext, x: RelayExpr, source: RelayExpr) -> RelayExpr:
    """The source, broadcast, in the type of the data."""
    return ctx.expand(ctx.cast(source, ctx.dtype(x)), ctx.sizes(x))


@converter("permute", "permute_copy")
def convert_permute(ctx: TorchContext, x: RelayExpr, dims: Sequence[int]) -> RelayExpr:
    """Dimensions in another order."""
    return ctx.permute(x, [ctx.axis(d, ctx.rank(x)) for d in dims])


@converter("transpose.int")
def convert_transpose(ctx: TorchContext, x: RelayExpr, first: int, second: int) -> RelayExpr:
    """Two dimensions swapped."""
    order = list(range(ctx.rank(x)))
    if order:
        a, b = ctx.axis(first, len(order)), ctx.axis(second, len(order))
        order[a], order[b] = order[b], order[a]
    return ctx.permute(x, order)


@converter("t", "numpy_T")
def convert_t(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """Dimensions reversed."""
    return ctx.permute(x, list(reversed(range(ctx.rank(x)))))


@converter("unsqueeze", "unsqueeze_copy")
def convert_unsqueeze(ctx: TorchContext, x: RelayExpr, dim: int) -> RelayExpr:
    """A dimension of 1 inserted."""
    return relay_op.expand_dims(x, axis=ctx.axis(dim, ctx.rank(x) + 1))


@converter("squeeze", "squeeze_copy")
def convert_squeeze(ctx: TorchContext, x: RelayExpr, dim: Any = None) -> RelayExpr:
    """Dimensions of 1 removed."""
    dims = ctx.dims(x)
    if not dims:
        return x
    ones = [axis for axis in ctx.axes(dim, len(dims)) if is_number(dims[axis]) and dims[axis] == 1]
    return relay_op.squeeze(x, axis=ones) if ones and not (dim is not None and dim == []) else x


@converter("expand", "expand_copy", "broadcast_to")
def convert_expand(ctx: TorchContext, x: RelayExpr, size: Sequence[Any], _: bool = False) -> RelayExpr:
    """Broadcast; -1 keeps a dimension."""
    own = ctx.sizes(x)
    lead = len(size) - len(own)
    return ctx.expand(x, [own[i - lead] if is_number(s) and s == -1 else s for i, s in enumerate(size)])


@converter("repeat")
def convert_repeat(ctx: TorchContext, x: RelayExpr, repeats: Sequence[Any]) -> RelayExpr:
    """The whole repeated along each dimension."""
    missing = len(repeats) - ctx.rank(x)
    if missing:
        x = typed(relay_op.expand_dims(x, axis=0, num_newaxis=missing))
    if not repeats or all(is_number(r) and r == 1 for r in repeats):
        return x
    found: RelayExpr = ctx.part("Tile", [x, ctx.vector(repeats)])
    return found


@converter("cat", "concat", "concatenate")
def convert_cat(ctx: TorchContext, tensors: Sequence[RelayExpr], dim: int = 0) -> RelayExpr:
    """Tensors joined along a dimension; an empty vector joins anything."""
    kept = [t for t in tensors if ctx.dims(t) != [0]] or list(tensors)[:1]
    dtype = ctx.result_dtype()
    parts = [ctx.cast(t, dtype) for t in kept]
    return parts[0] if len(parts) == 1 else relay_op.concatenate(parts, axis=ctx.axis(dim, ctx.rank(parts[0])))


@converter("stack")
def convert_stack(ctx: TorchContext, tensors: Sequence[RelayExpr], dim: int = 0) -> RelayExpr:
    """Tensors joined along a new dimension."""
    dtype = ctx.result_dtype()
    parts = [typed(ctx.cast(t, dtype)) for t in tensors]
    return relay_op.stack(parts, axis=ctx.axis(dim, ctx.rank(parts[0]) + 1))


@converter("split_with_sizes", "split_with_sizes_copy", "split.sizes")
def convert_split_with_sizes(ctx: TorchContext, x: RelayExpr, sizes: Sequence[Any], dim: int = 0) -> Any:
    """Parts of given sizes along a dimension."""
    axis = ctx.axis(dim, ctx.rank(x))
    if len(sizes) == 1:
        return [x]
    extent = ctx.dims(x)[axis]
    if all(map(is_number, (*sizes, extent))):
        return relay_op.split(x, tuple(int(v) for v in np.cumsum(sizes)[:-1]), axis=axis)
    if any(size is None for size in ctx.elements(sizes)):
        return _parts_of_unknown_sizes(ctx, x, sizes, axis)
    return ctx.part("Split", [x, ctx.vector(sizes)], axis=axis, outputs=len(sizes))


def _parts_of_unknown_sizes(ctx: TorchContext, x: RelayExpr, sizes: Sequence[Any], axis: int) -> list[RelayExpr]:
    """Return parts whose sizes the program reads from tensors."""
    ends = relay_op.cumsum(ctx.vector(sizes), axis=0)
    bounds = [ctx.vector([0])]
    bounds += [typed(relay_op.strided_slice(ends, [i], [i + 1], axes=[0])) for i in range(len(sizes))]
    way = [ctx.vector([axis]), ctx.vector([1])]
    return [ctx.part("Slice", [x, *bounds[i : i + 2], *way]) for i in range(len(sizes))]


@converter("split.Tensor", "split_copy.Tensor")
def convert_split(ctx: TorchContext, x: RelayExpr, size: Any, dim: int = 0) -> Any:
    """Parts of one size along a dimension, the last maybe smaller."""
    axis = ctx.axis(dim, ctx.rank(x))
    sizes = [part.shape[axis] for part in ctx.meta()]
    return convert_split_with_sizes(ctx, x, [ctx.importer.symbols.size(s) for s in sizes], axis)


@converter("chunk", "unsafe_chunk")
def convert_chunk(ctx: TorchContext, x: RelayExpr, chunks: int, dim: int = 0) -> Any:
    """As many parts, or fewer."""
    return convert_split(ctx, x, None, dim)


@converter("unbind.int", "unbind_copy.int")
def convert_unbind(ctx: TorchContext, x: RelayExpr, dim: int = 0) -> list[RelayExpr]:
    """All slices along a dimension."""
    axis = ctx.axis(dim, ctx.rank(x))
    count = ctx.extent(x, axis)
    parts = relay_op.split(x, count, axis=axis) if count > 1 else [x] * count
    return [typed(relay_op.squeeze(parts[i], axis=[axis])) for i in range(count)]


@converter("flip")
def convert_flip(ctx: TorchContext, x: RelayExpr, dims: Sequence[int]) -> RelayExpr:
    """The order along dimensions reversed."""
    for dim in dims:
        x = typed(relay_op.reverse(x, axis=ctx.axis(dim, ctx.rank(x))))
    return x


@converter("roll")
def convert_roll(ctx: TorchContext, x: RelayExpr, shifts: Sequence[Any], dims: Sequence[int] = ()) -> RelayExpr:
    """Elements moved along dimensions, those that leave at the end to the front; by default of the flat data."""
    if not dims:
        flat = ctx.reshape(x, [-1])
        return ctx.reshape(convert_roll(ctx, flat, shifts, [0]), ctx.sizes(x))
    for shift, dim in zip(shifts, dims, strict=True):
        axis = ctx.axis(dim, ctx.rank(x))
        extent = ctx.dims(x)[axis]
        if is_number(extent) and extent == 0:
            continue
        places: RelayExpr
        if is_number(extent) and is_number(shift):
            if not shift % extent:
                continue
            cut = int(extent - shift % extent)
            parts = relay_op.split(x, (cut,), axis=axis)
            x = typed(relay_op.concatenate([parts[1], parts[0]], axis=axis))
        else:
            size = ctx.scalar(ctx.dim_size(x, axis))
            counted = ctx.part("Range", [ctx.scalar(0), size, ctx.scalar(1)])
            places = relay_op.floor_mod(relay_op.subtract(counted, ctx.scalar(shift)), size)
            x = typed(relay_op.take(x, places, axis=axis))
    return x


@converter("diagonal", "diagonal_copy")
def convert_diagonal(ctx: TorchContext, x: RelayExpr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> RelayExpr:
    """The diagonal of two dimensions, which becomes the last one."""
    rank = ctx.rank(x)
    a, b = ctx.axis(dim1, rank), ctx.axis(dim2, rank)
    rest = [axis for axis in range(rank) if axis not in (a, b)]
    x = ctx.permute(x, [*rest, a, b])
    rows, columns = ctx.extent(x, -2), ctx.extent(x, -1)
    flat = ctx.reshape(x, [*ctx.sizes(x)[:-2], rows * columns])
    return relay_op.take(flat, const(diagonal_places(rows, columns, offset)), axis=rank - 2)


def diagonal_places(rows: int, columns: int, offset: int) -> np.ndarray[Any, Any]:
    """Return where a diagonal lies in a flat matrix."""
    first_row, first_column = max(-offset, 0), max(offset, 0)
    length = np.arange(max(min(rows - first_row, columns - first_column), 0))
    return ((first_row + length) * columns + first_column + length).astype("int64")


@converter("unfold", "unfold_copy")
def convert_unfold(ctx: TorchContext, x: RelayExpr, dim: int, size: int, step: int) -> RelayExpr:
    """Windows along a dimension, whose elements become the last dimension."""
    rank = ctx.rank(x)
    if not rank:
        return ctx.reshape(x, [1])
    axis = ctx.axis(dim, rank)
    count = (ctx.extent(x, axis) - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)[None]
    windows = typed(relay_op.take(x, const(places.astype("int64")), axis=axis))
    order = [a for a in range(rank + 1) if a != axis + 1]
    return ctx.permute(windows, [*order, axis + 1])


# ---- padding ----


def _widths(rank: int, pad: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return (before, after) of each dimension; ``pad`` begins with the last one."""
    given = pairs(pad)[::-1]
    return [(0, 0)] * (rank - len(given)) + given


@converter("constant_pad_nd")
def convert_constant_pad(ctx: TorchContext, x: RelayExpr, pad: Sequence[Any], value: Any = 0) -> RelayExpr:
    """A border of one value; negative widths crop."""
    return _padded(ctx, x, pad, "constant", ctx.number(value, ctx.dtype(x)))


def _padded(ctx: TorchContext, x: RelayExpr, pad: Sequence[Any], mode: str, value: RelayExpr | None) -> RelayExpr:
    widths = _widths(ctx.rank(x), pad)
    flat = [*(before for before, _ in widths), *(after for _, after in widths)]
    if all(is_number(w) and w == 0 for w in flat):
        return x
    found: RelayExpr = ctx.part("Pad", [x, ctx.vector(flat), value], mode=mode)
    return found


def _register_pads() -> None:
    for rank in (1, 2, 3):
        for name, mode in (("reflection", "reflect"), ("replication", "edge")):
            converter(f"{name}_pad{rank}d")(lambda ctx, x, pad, mode=mode: _padded(ctx, x, pad, mode, None))


_register_pads()


@converter("_pad_circular")
def convert_pad_circular(ctx: TorchContext, x: RelayExpr, pad: Sequence[int]) -> RelayExpr:
    """A border that continues each dimension from its other end."""
    return _padded(ctx, x, pad, "wrap", None)


@converter("pad")
def convert_pad(
    ctx: TorchContext, x: RelayExpr, pad: Sequence[Any], mode: str = "constant", value: Any = None
) -> RelayExpr:
    """A border."""
    fill = ctx.number(value or 0, ctx.dtype(x)) if mode == "constant" else None
    return _padded(
        ctx, x, pad, {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode], fill
    )


@converter("pixel_shuffle")
def convert_pixel_shuffle(ctx: TorchContext, x: RelayExpr, factor: int) -> RelayExpr:
    """Blocks of channels become blocks of pixels."""
    return _blocks(ctx, x, lambda data: ctx.part("DepthToSpace", [data], blocksize=factor, mode="CRD"))


@converter("pixel_unshuffle")
def convert_pixel_unshuffle(ctx: TorchContext, x: RelayExpr, factor: int) -> RelayExpr:
    """Blocks of pixels become blocks of channels."""
    *lead, channels, height, width = ctx.sizes(x)
    rows, columns = (_divided(ctx, extent, factor) for extent in (height, width))
    cells = ctx.reshape(x, [*lead, channels, rows, factor, columns, factor])
    n = len(lead)
    moved = ctx.permute(cells, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return ctx.reshape(moved, [*lead, ctx.extent(x, n) * factor * factor, rows, columns])


def _divided(ctx: TorchContext, extent: Any, factor: int) -> Any:
    if not is_number(extent):
        ctx.unsupported("sizes that are not known while compiling")
    return extent // factor


def _blocks(ctx: TorchContext, x: RelayExpr, build: Any) -> RelayExpr:
    """Apply a function of (batch, channels, height, width) to data with more or fewer leading dimensions."""
    lead = ctx.sizes(x)[:-3]
    if len(lead) == 1:
        found: RelayExpr = build(x)
        return found
    made = build(ctx.reshape(x, [math.prod(lead) if lead else 1, *ctx.sizes(x)[-3:]]))
    return ctx.reshape(made, [*lead, *ctx.sizes(made)[1:]])


@converter("triu")
def convert_triu(ctx: TorchContext, x: RelayExpr, diagonal: int = 0) -> RelayExpr:
    """The upper triangle of matrices."""
    return _triangle(ctx, x, diagonal, 1)


@converter("tril")
def convert_tril(ctx: TorchContext, x: RelayExpr, diagonal: int = 0) -> RelayExpr:
    """The lower triangle of matrices."""
    return _triangle(ctx, x, diagonal, 0)


def _triangle(ctx: TorchContext, x: RelayExpr, diagonal: Any, upper: int) -> RelayExpr:
    found: RelayExpr = ctx.part("Trilu", [x, ctx.scalar(diagonal)], upper=upper)
    return found
