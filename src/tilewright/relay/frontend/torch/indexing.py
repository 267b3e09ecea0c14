"""Parts of tensors by positions: slices, gathers, scatters, and masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.elementwise import infinity_of
from tilewright.relay.frontend.torch.registry import converter
from tilewright.relay.frontend.torch.shape import diagonal_places

_FAR = np.iinfo(np.int32).max


@converter("select.int", "select_copy.int")
def convert_select(ctx: TorchContext, x: RelayExpr, dim: int, index: Any) -> RelayExpr:
    """The slice at an index, without that dimension."""
    axis = ctx.axis(dim, ctx.rank(x))
    extent = ctx.dims(x)[axis]
    if is_number(index) and is_number(extent):
        at = index % extent if extent else index
        return relay_op.squeeze(relay_op.strided_slice(x, [at], [at + 1], axes=[axis]), axis=[axis])
    found: RelayExpr = ctx.part("Gather", [x, ctx.scalar(index)], axis=axis)
    return found


def sliced(ctx: TorchContext, x: RelayExpr, axis: int, start: Any, end: Any, step: Any) -> RelayExpr:
    """Return a slice along a dimension, with Python's rules."""
    extent = ctx.dims(x)[axis]
    start = 0 if start is None else start
    end = _FAR if end is None or (is_number(end) and end > _FAR) else end
    if all(map(is_number, (extent, start, end, step))):
        first, last, stride = slice(start, end, step).indices(extent)
        if (first, stride) == (0, 1) and last >= extent:
            return x
        return typed(relay_op.strided_slice(x, [first], [max(last, first)], [stride], axes=[axis]))
    if is_number(start) and is_number(end) and start == 0 and end == _FAR and is_number(step) and step == 1:
        return x
    bounds = [ctx.vector([v]) for v in (start, end, axis, step)]
    found: RelayExpr = ctx.part("Slice", [x, *bounds])
    return found


@converter("slice.Tensor", "slice_copy.Tensor")
def convert_slice(
    ctx: TorchContext, x: RelayExpr, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> RelayExpr:
    """A slice along a dimension."""
    return sliced(ctx, x, ctx.axis(dim, ctx.rank(x)), start, end, step)


@converter("narrow", "narrow_copy")
def convert_narrow(ctx: TorchContext, x: RelayExpr, dim: int, start: Any, length: Any) -> RelayExpr:
    """So many slices along a dimension from an index on."""
    axis = ctx.axis(dim, ctx.rank(x))
    if is_number(start) and is_number(length):
        return sliced(ctx, x, axis, start, start + length if start >= 0 else start + length or None, 1)
    last = relay_op.add(ctx.scalar(start), ctx.scalar(length))
    bounds = [relay_op.reshape(v, newshape=(1,)) for v in (ctx.scalar(start), last)]
    found: RelayExpr = ctx.part("Slice", [x, *bounds, ctx.vector([axis]), ctx.vector([1])])
    return found


def _positions(ctx: TorchContext, x: RelayExpr, axis: int, start: Any, end: Any, step: Any) -> RelayExpr:
    """Return the positions of a slice along a dimension, as int64."""
    extent = ctx.dim_size(x, axis)
    counted = ctx.part("Range", [ctx.scalar(0), ctx.scalar(extent), ctx.scalar(1)])
    return sliced(ctx, counted, 0, start, end, step)


@converter("slice_scatter")
def convert_slice_scatter(
    ctx: TorchContext, x: RelayExpr, source: RelayExpr, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> RelayExpr:
    """x with a slice replaced."""
    axis = ctx.axis(dim, ctx.rank(x))
    extent = ctx.dims(x)[axis]
    source = ctx.cast(source, ctx.dtype(x))
    if all(is_number(v) for v in (extent, start or 0, 0 if end is None else end, step)):
        first, last, stride = slice(start, end, step).indices(extent)
        last = max(last, first)
        if (first, stride) == (0, 1) and last >= extent:
            return ctx.expand(source, ctx.sizes(x))
        if stride == 1:
            sizes = ctx.sizes(x)
            sizes[axis] = last - first
            parts = [
                sliced(ctx, x, axis, 0, first, 1), ctx.expand(source, sizes), sliced(ctx, x, axis, last, extent, 1)
            ]  # fmt: skip
            kept = [p for p in parts if ctx.dims(p)[axis] != 0]
            return relay_op.concatenate(kept, axis=axis) if kept else x
    places = _positions(ctx, x, axis, start, end, step)
    return _put_along(ctx, x, axis, places, source)


def _put_along(ctx: TorchContext, x: RelayExpr, axis: int, places: RelayExpr, source: RelayExpr) -> RelayExpr:
    """Replace the slices at positions along a dimension."""
    order = [axis, *(a for a in range(ctx.rank(x)) if a != axis)]
    back = [order.index(a) for a in range(ctx.rank(x))]
    sizes = ctx.sizes(x)
    sizes[axis] = ctx.dim_size(places, 0)
    moved = ctx.permute(ctx.expand(source, sizes), order)
    rows = typed(relay_op.expand_dims(places, axis=1))
    made = ctx.part("ScatterND", [ctx.permute(x, order), rows, moved])
    return ctx.permute(made, back)


@converter("select_scatter")
def convert_select_scatter(ctx: TorchContext, x: RelayExpr, source: RelayExpr, dim: int, index: Any) -> RelayExpr:
    """x with the slice at an index replaced."""
    axis = ctx.axis(dim, ctx.rank(x))
    source = typed(relay_op.expand_dims(source, axis=axis))
    if is_number(index):
        end = index + 1 if index != -1 else None
        return convert_slice_scatter(ctx, x, source, axis, index, end, 1)
    places = typed(relay_op.reshape(ctx.scalar(index), newshape=(1,)))
    return _put_along(ctx, x, axis, places, ctx.cast(source, ctx.dtype(x)))


@converter("embedding")
def convert_embedding(ctx: TorchContext, weight: RelayExpr, indices: RelayExpr, *_: Any) -> RelayExpr:
    """Rows of a table."""
    found: RelayExpr = ctx.part("Gather", [weight, indices], axis=0)
    return found


@converter("index_select")
def convert_index_select(ctx: TorchContext, x: RelayExpr, dim: int, index: RelayExpr) -> RelayExpr:
    """Slices along a dimension."""
    if not ctx.rank(x):
        return x
    if not ctx.rank(index):
        index = ctx.reshape(index, [1])
    found: RelayExpr = ctx.part("Gather", [x, index], axis=ctx.axis(dim, ctx.rank(x)))
    return found


@converter("take")
def convert_take(ctx: TorchContext, x: RelayExpr, index: RelayExpr) -> RelayExpr:
    """Elements of the flat data."""
    found: RelayExpr = ctx.part("Gather", [ctx.reshape(x, [-1]), index], axis=0)
    return found


@converter("gather")
def convert_gather(ctx: TorchContext, x: RelayExpr, dim: int, index: RelayExpr) -> RelayExpr:
    """Element by element along a dimension; the indices may cover the first part of the others."""
    if not ctx.rank(x):
        return ctx.expand(x, ctx.sizes(index))
    axis = ctx.axis(dim, ctx.rank(x))
    for other in range(ctx.rank(x)):
        if (
            other != axis
            and ctx.dims(x)[other] is not ctx.dims(index)[other]
            and ctx.dims(x)[other] != ctx.dims(index)[other]
        ):
            x = sliced(ctx, x, other, 0, ctx.dim_size(index, other), 1)
    found: RelayExpr = ctx.part("GatherElements", [x, index], axis=axis)
    return found


# ---- index: tensors of positions and masks ----


def _as_positions(ctx: TorchContext, x: RelayExpr, indices: Sequence[Any]) -> list[RelayExpr | None]:
    """Return a tensor of positions, or None, for each dimension: masks become the positions where they are true."""
    found: list[RelayExpr | None] = []
    for index in indices:
        if index is None:
            found.append(None)
        elif dt.is_bool(ctx.dtype(index)) or ctx.dtype(index) == "uint8":
            mask = ctx.cast(index, "bool")
            places = ctx.part("NonZero", [mask])
            rows = [relay_op.take(places, const(i, "int64"), axis=0) for i in range(ctx.rank(mask))]
            found.extend(typed(row) for row in rows)
        else:
            found.append(ctx.cast(index, "int64"))
    return found + [None] * (ctx.rank(x) - len(found))


def _tuples(ctx: TorchContext, positions: Sequence[RelayExpr]) -> RelayExpr:
    """Return tuples of positions, which broadcast, along a last dimension."""
    if len(positions) == 1:
        return typed(relay_op.expand_dims(positions[0], axis=ctx.rank(positions[0])))
    total = typed(positions[0])
    for other in positions[1:]:
        total = typed(relay_op.add(relay_op.multiply(total, ctx.scalar(0)), relay_op.multiply(other, ctx.scalar(0))))
    whole = [typed(relay_op.add(p, total)) for p in positions]
    return typed(relay_op.stack(whole, axis=ctx.rank(whole[0])))


@converter("index.Tensor", "_unsafe_index.Tensor")
def convert_index(ctx: TorchContext, x: RelayExpr, indices: Sequence[Any]) -> RelayExpr:
    """Elements at positions, or where a mask is true; None takes all of a dimension."""
    positions = _as_positions(ctx, x, indices)
    axes = [axis for axis, p in enumerate(positions) if p is not None]
    given = [p for p in positions if p is not None]
    if not axes:
        return x
    if len(axes) == 1:
        found: RelayExpr = ctx.part("Gather", [x, given[0]], axis=axes[0])
        return found
    rest = [axis for axis in range(ctx.rank(x)) if axis not in axes]
    tuples = _tuples(ctx, given)
    picked = ctx.part("GatherND", [ctx.permute(x, [*axes, *rest]), tuples])
    count = ctx.rank(tuples) - 1
    if axes != list(range(axes[0], axes[-1] + 1)) or not axes[0]:
        return picked
    before = len([axis for axis in rest if axis < axes[0]])  # the positions' dimensions stand where theirs were
    order = [*range(count, count + before), *range(count), *range(count + before, count + len(rest))]
    return ctx.permute(picked, order)


@converter("index_put", "_unsafe_index_put", "_index_put_impl")
def convert_index_put(
    ctx: TorchContext, x: RelayExpr, indices: Sequence[Any], values: RelayExpr, accumulate: bool = False, *_: Any
) -> RelayExpr:
    """x with elements at positions, or where a mask is true, replaced or added to."""
    values = ctx.cast(values, ctx.dtype(x))
    only = [index for index in indices if index is not None]
    if len(only) == 1 and indices[0] is only[0] and dt.is_bool(ctx.dtype(only[0])) and _is_one(ctx, values):
        mask = only[0]
        trailing = ctx.rank(x) - ctx.rank(mask)
        mask = typed(relay_op.expand_dims(mask, axis=ctx.rank(mask), num_newaxis=trailing)) if trailing else mask
        value = ctx.reshape(values, [])
        return relay_op.where(mask, typed(relay_op.add(x, value)) if accumulate else value, x)
    positions = _as_positions(ctx, x, indices)
    axes = [axis for axis, p in enumerate(positions) if p is not None]
    given = [p for p in positions if p is not None]
    rest = [axis for axis in range(ctx.rank(x)) if axis not in axes]
    order = [*axes, *rest]
    tuples = _tuples(ctx, given)
    count = ctx.rank(tuples) - 1
    sizes = ctx.sizes(x)
    adjacent = axes == list(range(axes[0], axes[-1] + 1))
    before = [axis for axis in rest if axis < axes[0]] if adjacent else []
    after = [axis for axis in rest if axis not in before]
    wanted = [*(sizes[a] for a in before), *ctx.sizes(tuples)[:-1], *(sizes[a] for a in after)]
    spread = ctx.expand(values, wanted)
    n = len(before)
    moved = ctx.permute(spread, [*range(n, n + count), *range(n), *range(n + count, ctx.rank(spread))])
    made = ctx.part("ScatterND", [ctx.permute(x, order), tuples, moved], reduction="add" if accumulate else "none")
    return ctx.permute(made, [order.index(a) for a in range(ctx.rank(x))])


def _is_one(ctx: TorchContext, values: RelayExpr) -> bool:
    return all(is_number(d) and d == 1 for d in ctx.dims(values))


@converter("index_fill.int_Scalar", "index_fill.int_Tensor")
def convert_index_fill(ctx: TorchContext, x: RelayExpr, dim: int, index: RelayExpr, value: Any) -> RelayExpr:
    """x with slices along a dimension set to a number."""
    return _put_along(ctx, x, ctx.axis(dim, ctx.rank(x)), ctx.cast(index, "int64"), ctx.number(value, ctx.dtype(x)))


@converter("index_copy")
def convert_index_copy(ctx: TorchContext, x: RelayExpr, dim: int, index: RelayExpr, source: RelayExpr) -> RelayExpr:
    """x with slices along a dimension replaced."""
    return _put_along(ctx, x, ctx.axis(dim, ctx.rank(x)), ctx.cast(index, "int64"), source)


@converter("index_add")
def convert_index_add(
    ctx: TorchContext, x: RelayExpr, dim: int, index: RelayExpr, source: RelayExpr, alpha: Any = 1
) -> RelayExpr:
    """x with slices added along a dimension."""
    axis = ctx.axis(dim, ctx.rank(x))
    if alpha != 1:
        source = typed(relay_op.multiply(source, ctx.number(alpha, ctx.dtype(source))))
    order = [axis, *(a for a in range(ctx.rank(x)) if a != axis)]
    rows = typed(relay_op.expand_dims(ctx.cast(index, "int64"), axis=1))
    made = ctx.part("ScatterND", [ctx.permute(x, order), rows, ctx.permute(source, order)], reduction="add")
    return ctx.permute(made, [order.index(a) for a in range(ctx.rank(x))])


@converter("nonzero")
def convert_nonzero(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """The positions of elements that are not zero, a row for each."""
    places = ctx.part("NonZero", [ctx.cast(x, "bool") if ctx.rank(x) else ctx.reshape(ctx.cast(x, "bool"), [1])])
    rows = ctx.permute(places, [1, 0])
    return rows if ctx.rank(x) else relay_op.strided_slice(rows, [0], [0], axes=[1])


@converter("masked_select")
def convert_masked_select(ctx: TorchContext, x: RelayExpr, mask: RelayExpr) -> RelayExpr:
    """The elements where the mask is true, in a row."""
    sizes = ctx.sizes(x) if ctx.rank(x) >= ctx.rank(mask) else ctx.sizes(mask)
    return convert_index(ctx, ctx.expand(x, sizes), [ctx.expand(mask, sizes)])


@converter("masked_scatter")
def convert_masked_scatter(ctx: TorchContext, x: RelayExpr, mask: RelayExpr, source: RelayExpr) -> RelayExpr:
    """x with the elements where the mask is true replaced by the first ones of the source, in order."""
    mask = ctx.expand(mask, ctx.sizes(x))
    flat = ctx.cast(ctx.reshape(mask, [-1]), "int64")
    place = relay_op.maximum(relay_op.subtract(relay_op.cumsum(flat, axis=0), ctx.scalar(1)), ctx.scalar(0))
    picked = relay_op.take(ctx.reshape(source, [-1]), ctx.reshape(typed(place), ctx.sizes(x)), axis=0)
    return relay_op.where(mask, ctx.cast(typed(picked), ctx.dtype(x)), x)


# ---- scatter ----


def _scattered(
    ctx: TorchContext, x: RelayExpr, dim: int, index: RelayExpr, source: RelayExpr, reduction: str
) -> RelayExpr:
    """Put elements of ``source`` at ``index`` along a dimension; the source may be larger than the indices."""
    if not ctx.rank(x):
        row, at, new = (ctx.reshape(v, [1]) for v in (x, index, source))
        return ctx.reshape(_scattered(ctx, row, 0, at, new, reduction), [])
    axis = ctx.axis(dim, ctx.rank(x))
    source = ctx.cast(source, ctx.dtype(x))
    if 0 in ctx.dims(index):
        return x
    for other in range(ctx.rank(x)):
        have, want = ctx.dims(source)[other], ctx.dims(index)[other]
        if have is not want and have != want:
            source = sliced(ctx, source, other, 0, ctx.dim_size(index, other), 1)
    same = all(
        other == axis or a is b or a == b for other, (a, b) in enumerate(zip(ctx.dims(x), ctx.dims(index), strict=True))
    )
    if same or reduction in ("mul", "max", "min"):
        found: RelayExpr = ctx.part("ScatterElements", [x, index, source], axis=axis, reduction=reduction)
        return found
    tuples = _places_along(ctx, index, axis)
    put: RelayExpr = ctx.part("ScatterND", [x, tuples, source], reduction=reduction)
    return put


def _places_along(ctx: TorchContext, index: RelayExpr, axis: int) -> RelayExpr:
    """Return the coordinates that indices along a dimension address, along a last dimension."""
    zero = typed(relay_op.multiply(index, ctx.number(0, ctx.dtype(index))))
    rows = []
    for other in range(ctx.rank(index)):
        if other == axis:
            rows.append(index)
            continue
        counted = ctx.part("Range", [ctx.scalar(0), ctx.scalar(ctx.dim_size(index, other)), ctx.scalar(1)])
        after = ctx.rank(index) - other - 1
        column = relay_op.expand_dims(counted, axis=1, num_newaxis=after) if after else counted
        rows.append(typed(relay_op.add(zero, column)))
    return typed(relay_op.stack(rows, axis=ctx.rank(index)))


@converter("scatter.src")
def convert_scatter(ctx: TorchContext, x: RelayExpr, dim: int, index: RelayExpr, source: RelayExpr) -> RelayExpr:
    """x with elements replaced along a dimension."""
    return _scattered(ctx, x, dim, index, source, "none")


@converter("scatter.value")
def convert_scatter_value(ctx: TorchContext, x: RelayExpr, dim: int, index: RelayExpr, value: Any) -> RelayExpr:
    """x with elements set to a number along a dimension."""
    return _scattered(ctx, x, dim, index, ctx.full(ctx.sizes(index), value, ctx.dtype(x)), "none")


@converter("scatter_add")
def convert_scatter_add(ctx: TorchContext, x: RelayExpr, dim: int, index: RelayExpr, source: RelayExpr) -> RelayExpr:
    """x with elements added along a dimension."""
    return _scattered(ctx, x, dim, index, source, "add")


_REDUCTIONS = {
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "mean": "add",
    "amax": "max",
    "amin": "min",
}
_NEUTRAL = {"add": 0, "mul": 1}


@converter("scatter.reduce")
def convert_scatter_with(
    ctx: TorchContext, x: RelayExpr, dim: int, index: RelayExpr, source: RelayExpr, reduce: str
) -> RelayExpr:
    """x with elements added to, or multiplied, along a dimension."""
    return _scattered(ctx, x, dim, index, source, _REDUCTIONS[reduce])


@converter("scatter_reduce.two")
def convert_scatter_reduce(
    ctx: TorchContext,
    x: RelayExpr,
    dim: int,
    index: RelayExpr,
    source: RelayExpr,
    reduce: str,
    include_self: bool = True,
) -> RelayExpr:
    """x with elements combined along a dimension; without ``include_self`` what is there does not count."""
    kind, dtype = _REDUCTIONS[reduce], ctx.dtype(x)
    start = x
    if not include_self:
        neutral = _NEUTRAL[kind] if kind in _NEUTRAL else infinity_of(dtype, -1 if kind == "max" else 1).item()
        start = _scattered(ctx, x, dim, index, ctx.full(ctx.sizes(index), neutral, dtype), "none")
    made = typed(_scattered(ctx, start, dim, index, source, kind))
    if reduce != "mean":
        return made
    ones = ctx.full(ctx.sizes(index), 1, dtype)
    none = ctx.full(ctx.sizes(x), 1 if include_self else 0, dtype)
    count = relay_op.maximum(_scattered(ctx, none, dim, index, ones, "add"), ctx.number(1, dtype))
    return relay_op.divide(made, count) if dt.is_float(dtype) else relay_op.floor_divide(made, count)


# ---- embedding bags ----


@converter("_embedding_bag", "_embedding_bag_forward_only")
def convert_embedding_bag(
    ctx: TorchContext, weight: RelayExpr, indices: RelayExpr, offsets: RelayExpr, scale: bool = False, mode: int = 0,
    sparse: bool = False, weights: RelayExpr | None = None, last: bool = False, padding: int = -1,
) -> list[Any]:  # fmt: skip
    """Sums (mode 0), means (1) or maxima (2) of rows of a table, a bag from each offset on."""
    rows = typed(ctx.part("Gather", [weight, indices], axis=0))
    dtype = ctx.dtype(rows)
    if weights is not None:
        rows = typed(relay_op.multiply(rows, relay_op.expand_dims(weights, axis=1)))
    starts = ctx.cast(offsets, "int64")
    bags = ctx.dim_size(offsets, 0)
    if last:
        starts = sliced(ctx, starts, 0, 0, -1, 1)
        bags = bags - 1 if is_number(bags) else ctx.dim_size(starts, 0)
    count = ctx.part("Range", [ctx.scalar(0), ctx.scalar(ctx.dim_size(indices, 0)), ctx.scalar(1)])
    begun = relay_op.greater_equal(relay_op.expand_dims(count, axis=1), relay_op.expand_dims(starts, axis=0))
    bag = relay_op.subtract(relay_op.sum(relay_op.cast(begun, "int64"), axis=1), ctx.scalar(1))
    member: RelayExpr = relay_op.equal(relay_op.expand_dims(bag, axis=0), _numbered(ctx, bags))
    if padding >= 0:
        kept = relay_op.not_equal(ctx.cast(indices, "int64"), ctx.scalar(padding))
        member = relay_op.logical_and(member, relay_op.expand_dims(kept, axis=0))
    member = typed(member)
    share = ctx.cast(member, dtype)
    size = typed(relay_op.sum(share, axis=1, keepdims=True))
    if mode == 2:
        chosen = relay_op.where(
            relay_op.expand_dims(member, axis=2), relay_op.expand_dims(rows, axis=0), const(-np.inf, dtype)
        )
        best = relay_op.where(
            relay_op.greater(size, const(0.0, dtype)), relay_op.max(chosen, axis=1), const(0.0, dtype)
        )
        return [best, None, None, None]
    total = ctx.part("MatMul", [share, rows])
    if mode == 1:
        total = typed(relay_op.divide(total, relay_op.maximum(size, const(1.0, dtype))))
    return [total, None, None, None]


def _numbered(ctx: TorchContext, count: Any) -> RelayExpr:
    """Return 0, 1, ... as a column."""
    return typed(relay_op.expand_dims(ctx.part("Range", [ctx.scalar(0), ctx.scalar(count), ctx.scalar(1)]), axis=1))


@converter("diagonal_scatter")
def convert_diagonal_scatter(
    ctx: TorchContext, x: RelayExpr, source: RelayExpr, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> RelayExpr:
    """x with the diagonal of two dimensions replaced."""
    rank = ctx.rank(x)
    a, b = ctx.axis(dim1, rank), ctx.axis(dim2, rank)
    order = [*(axis for axis in range(rank) if axis not in (a, b)), a, b]
    moved = ctx.permute(x, order)
    flat = ctx.reshape(moved, [*ctx.sizes(moved)[:-2], ctx.extent(moved, -2) * ctx.extent(moved, -1)])
    places = const(diagonal_places(ctx.extent(moved, -2), ctx.extent(moved, -1), offset))
    put = _put_along(ctx, flat, rank - 2, places, ctx.cast(source, ctx.dtype(x)))
    return ctx.permute(ctx.reshape(put, ctx.sizes(moved)), [order.index(axis) for axis in range(rank)])
