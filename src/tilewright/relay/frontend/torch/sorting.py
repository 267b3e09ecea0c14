"""Sorting, the greatest elements, and searching."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.dynamic import filled
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.registry import converter
from tilewright.relay.op.transform.checks import CheckIndicesAttrs, check_indices

_MOST_COUNTED = 1 << 40  # by bincount; the counts of as many numbers do not fit memory


def _sorted(ctx: TorchContext, x: RelayExpr, dim: int, descending: bool) -> list[RelayExpr]:
    if not ctx.rank(x):
        return [x, ctx.full([], 0, "int64")]
    axis = ctx.axis(dim, ctx.rank(x))
    if 0 in ctx.dims(x):
        return [x, ctx.cast(x, "int64")]
    numbers = ctx.cast(x, "uint8") if ctx.dtype(x) == "bool" else x
    places = typed(relay_op.argsort(numbers, axis=axis, is_ascend=not descending, dtype="int64"))
    return [typed(relay_op.gather(x, axis, places)), places]


@converter("sort")
def convert_sort(ctx: TorchContext, x: RelayExpr, dim: int = -1, descending: bool = False) -> list[RelayExpr]:
    """The elements in order along a dimension, and where they were."""
    return _sorted(ctx, x, dim, descending)


@converter("sort.stable")
def convert_stable_sort(
    ctx: TorchContext, x: RelayExpr, stable: bool | None, dim: int = -1, descending: bool = False
) -> list[RelayExpr]:
    """The elements in order, equal ones in the order that they had."""
    return _sorted(ctx, x, dim, descending)


@converter("argsort", "argsort.default")
def convert_argsort(ctx: TorchContext, x: RelayExpr, dim: int = -1, descending: bool = False) -> RelayExpr:
    """The positions that put elements in order."""
    return _sorted(ctx, x, dim, descending)[1]


@converter("topk")
def convert_topk(
    ctx: TorchContext, x: RelayExpr, k: Any, dim: int = -1, largest: bool = True, in_order: bool = True
) -> Any:
    """The k largest or smallest elements, and where they are."""
    if not ctx.rank(x):
        return [x, ctx.full([], 0, "int64")]
    axis = ctx.axis(dim, ctx.rank(x))
    return ctx.part("TopK", [x, ctx.vector([k])], axis=axis, largest=int(largest), outputs=2)


@converter("kthvalue")
def convert_kthvalue(ctx: TorchContext, x: RelayExpr, k: int, dim: int = -1, keepdim: bool = False) -> list[RelayExpr]:
    """The k-th smallest element along a dimension, and where it is."""
    return _one_of_sorted(ctx, x, dim, keepdim, k - 1)


@converter("median.dim")
def convert_median(ctx: TorchContext, x: RelayExpr, dim: int, keepdim: bool = False) -> list[RelayExpr]:
    """The median, of an even number of elements the lower one."""
    if not ctx.rank(x):
        return [x, ctx.full([], 0, "int64")]
    return _one_of_sorted(ctx, x, dim, keepdim, (ctx.extent(x, ctx.axis(dim, ctx.rank(x))) - 1) // 2)


@converter("median")
def convert_median_of_all(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """The median of all elements."""
    flat = ctx.reshape(x, [-1])
    return _one_of_sorted(ctx, flat, 0, False, (ctx.extent(flat, 0) - 1) // 2)[0]


def _one_of_sorted(ctx: TorchContext, x: RelayExpr, dim: int, keepdim: bool, place: int) -> list[RelayExpr]:
    axis = ctx.axis(dim, ctx.rank(x))
    found = [relay_op.strided_slice(v, [place], [place + 1], axes=[axis]) for v in _sorted(ctx, x, dim, False)]
    return [typed(v if keepdim else relay_op.squeeze(v, axis=[axis])) for v in found]


@converter("searchsorted.Tensor")
def convert_searchsorted(
    ctx: TorchContext, row: RelayExpr, values: RelayExpr, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Any = None,
) -> RelayExpr:  # fmt: skip
    """Where elements would be put into sorted rows."""
    if sorter is not None:
        ctx.unsupported("an order of the row other than its own")
    row, values = ctx.promoted(row, values)
    return _searched(ctx, row, values, right or side == "right")


@converter("bucketize.Tensor")
def convert_bucketize(
    ctx: TorchContext, values: RelayExpr, row: RelayExpr, out_int32: bool = False, right: bool = False
) -> RelayExpr:
    """Which of the intervals between boundaries holds each element."""
    row, values = ctx.promoted(row, values)
    return _searched(ctx, row, values, right)


def _searched(ctx: TorchContext, row: RelayExpr, values: RelayExpr, right: bool) -> RelayExpr:
    if ctx.rank(values):
        return relay_op.searchsorted(row, values, right=right, dtype="int64")
    found = relay_op.searchsorted(row, ctx.reshape(values, [1]), right=right, dtype="int64")
    return ctx.reshape(typed(found), [])


@converter("histc", in_float32=True)
def convert_histc(ctx: TorchContext, x: RelayExpr, bins: int = 100, low: Any = 0, high: Any = 0) -> RelayExpr:
    """How many elements lie in each of so many equal parts of a range: that of the elements where none is given."""
    dtype, flat = ctx.dtype(x), ctx.as_float(ctx.reshape(x, [-1]))
    own = ctx.dtype(flat)
    least, most = ctx.number(float(low), own), ctx.number(float(high), own)
    if low == high:
        least, most = (typed(extreme(flat)) for extreme in (relay_op.min, relay_op.max))
        same = relay_op.equal(least, most)
        one = const(1.0, own)
        least, most = (
            relay_op.where(same, relay_op.subtract(least, one), least),
            relay_op.where(same, relay_op.add(most, one), most),
        )
    steps = relay_op.multiply(relay_op.subtract(flat, least), const(float(bins), own))
    place = relay_op.floor(relay_op.divide(steps, relay_op.subtract(most, least)))
    place = relay_op.where(relay_op.equal(flat, most), const(float(bins - 1), own), place)
    hits = relay_op.equal(relay_op.expand_dims(place, axis=1), const(np.arange(bins), own))
    return ctx.cast(typed(relay_op.sum(relay_op.cast(hits, "int64"), axis=[0])), dtype)


@converter("bincount")
def convert_bincount(ctx: TorchContext, x: RelayExpr, weights: Any = None, least: int = 0) -> RelayExpr:
    """How often each number from 0 to the greatest one occurs, or the sums of its weights; negative ones raise."""
    dtype = ctx.result_dtype()
    if 0 in ctx.dims(x):
        return ctx.full([least], 0, dtype)
    allowed = CheckIndicesAttrs(f"{ctx.place}: the number", extents=(_MOST_COUNTED,))
    numbers = typed(check_indices(ctx.cast(x, "int64"), allowed))
    some = relay_op.minimum(ctx.scalar(ctx.dim_size(x, 0)), ctx.scalar(1))  # of no element the greatest is no number
    count = relay_op.maximum(
        relay_op.add(relay_op.max(numbers), ctx.scalar(1)), relay_op.maximum(some, ctx.scalar(least))
    )
    empty = typed(filled(ctx.number(0, dtype), [None], relay_op.reshape(count, (1,)), dtype))
    each = ctx.full(ctx.sizes(x), 1, dtype) if weights is None else ctx.cast(weights, dtype)
    found: RelayExpr = ctx.part("ScatterElements", [empty, numbers, each], axis=0, reduction="add")
    return found


@converter("_unique2", "unique_dim", "unique_consecutive")
def convert_unique(
    ctx: TorchContext, x: RelayExpr, in_order: bool = True, inverse: bool = False, counts: bool = False
) -> Any:
    """The distinct elements, in order."""
    flat = ctx.reshape(x, [-1])
    values, _, places, number = ctx.part("Unique", [flat], outputs=4, sorted=1)
    if inverse and not is_number(ctx.rank(x) - 1):
        places = ctx.reshape(places, ctx.sizes(x))
    return [values, ctx.reshape(places, ctx.sizes(x)), number]
