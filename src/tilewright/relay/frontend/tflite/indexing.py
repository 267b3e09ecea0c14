"""Operators that look elements up, and that put them in places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dynamic import first
from tilewright.relay.frontend.onnx.data_dependent import non_zero
from tilewright.relay.frontend.tflite.context import OperatorContext, typed
from tilewright.relay.frontend.tflite.registry import converter


@converter("GATHER")
def convert_gather(ctx: OperatorContext) -> RelayExpr:
    """Entries of an axis by their numbers; numbers out of range are those at the ends."""
    data, indices = ctx.raw(0), ctx.raw(1)
    batch = int(ctx.option("batch_dims", 0))
    batch += ctx.rank(indices) if batch < 0 else 0
    axis = ctx.axis(int(ctx.option("axis", 0)), ctx.rank(data))
    if not 0 <= batch <= min(axis, ctx.rank(indices)):
        ctx.fail(f"{batch} batch dimensions, and axis {axis}")
    return relay_op.take(data, indices, axis=axis, batch_dims=batch)


@converter("GATHER_ND")
def convert_gather_nd(ctx: OperatorContext) -> RelayExpr:
    """Entries by their places, one along the last axis of the indices."""
    indices = ctx.raw(1)
    rank = ctx.rank(indices)
    return relay_op.gather_nd(ctx.raw(0), relay_op.transpose(indices, axes=(rank - 1, *range(rank - 1))))


@converter("SCATTER_ND")
def convert_scatter_nd(ctx: OperatorContext) -> RelayExpr:
    """Zeros with updates added at their places."""
    indices, updates, shape = ctx.raw(0), ctx.raw(1), ctx.ints(2, "its shape")
    ctx.check_size(shape, ctx.dtype(updates))
    rank = ctx.rank(indices)
    places = relay_op.transpose(indices, axes=(rank - 1, *range(rank - 1)))
    return relay_op.scatter_nd(relay_op.zeros(shape, ctx.dtype(updates)), places, updates, mode="add")


@converter("WHERE")
def convert_where(ctx: OperatorContext) -> RelayExpr:
    """The places of what is not 0, a row each; how many there are is known when the model runs."""
    return relay_op.transpose(typed(non_zero(ctx, ctx.raw(0))), axes=(1, 0))


@converter("UNIQUE")
def convert_unique(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """The different elements in the order of their first places, and which of them each element is."""
    values, _, inverse, count = relay_op.unique(ctx.raw(0), False)
    return [first(values, relay_op.cast(count, "int64")), relay_op.cast(inverse, ctx.out(1).dtype)]


@converter("ONE_HOT")
def convert_one_hot(ctx: OperatorContext) -> RelayExpr:
    """Rows with one value at each index, and another elsewhere."""
    (depth,) = ctx.ints(1, "its depth")
    on, off = (relay_op.reshape(ctx.raw(i), ()) for i in (2, 3))
    dtype = ctx.dtype(ctx.raw(2))
    ctx.check_size((*ctx.shape(ctx.raw(0)), depth), dtype)
    return relay_op.one_hot(ctx.raw(0), on, off, depth, int(ctx.option("axis", -1)), dtype)


@converter("TOPK_V2")
def convert_topk_v2(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """The largest elements along the last axis, and their places."""
    (count,) = ctx.ints(1, "how many")
    if not 0 < count <= ctx.shape(ctx.raw(0))[-1]:
        ctx.fail(f"the {count} largest of {ctx.shape(ctx.raw(0))[-1]}")
    return list(relay_op.topk(ctx.raw(0), k=count, axis=-1, ret_type="both", dtype="int32"))


@converter("SPARSE_TO_DENSE")
def convert_sparse_to_dense(ctx: OperatorContext) -> RelayExpr:
    """A default value with others at their places."""
    shape, default = ctx.ints(1, "its shape"), ctx.raw(3)
    ctx.check_size(shape, ctx.dtype(default))
    indices, values = ctx.raw(0), ctx.raw(2)
    if ctx.rank(indices) < 2:
        indices = relay_op.reshape(indices, (-1, len(shape)))
    count = ctx.shape(indices)[0]
    if ctx.rank(values) == 0:
        values = relay_op.broadcast_to(values, (count,))
    places = relay_op.transpose(indices, axes=(1, 0))
    return relay_op.scatter_nd(relay_op.broadcast_to(default, shape), places, values)


@converter("MATRIX_DIAG")
def convert_matrix_diag(ctx: OperatorContext) -> RelayExpr:
    """Matrices of zeros with given diagonals."""
    diagonal = ctx.raw(0)
    shape = ctx.shape(diagonal)
    ctx.check_size((*shape, shape[-1]), ctx.dtype(diagonal))
    return relay_op.matrix_set_diag(relay_op.zeros((*shape, shape[-1]), ctx.dtype(diagonal)), diagonal)


@converter("MATRIX_SET_DIAG")
def convert_matrix_set_diag(ctx: OperatorContext) -> RelayExpr:
    """Matrices with their diagonals replaced."""
    return relay_op.matrix_set_diag(ctx.raw(0), ctx.raw(1))


@converter("SEGMENT_SUM")
def convert_segment_sum(ctx: OperatorContext) -> RelayExpr:
    """Sums of the rows with the same number; numbers are sorted."""
    ids = ctx.constant(1, "the numbers of its rows")
    return relay_op.segment_sum(ctx.raw(0), ctx.raw(1), int(ids.max(initial=-1)) + 1)


@converter("UNSORTED_SEGMENT_SUM")
def convert_unsorted_segment_sum(ctx: OperatorContext) -> RelayExpr:
    """Sums of the rows with the same number; rows with negative ones do not count."""
    (count,) = ctx.ints(2, "how many sums")
    data, ids = ctx.raw(0), ctx.raw(1)
    if ctx.rank(ids) != 1:
        ctx.unsupported(f"numbers of rows of rank {ctx.rank(ids)}")
    shape = (count + 1, *ctx.shape(data)[1:])
    ctx.check_size(shape, ctx.dtype(data))
    kept = relay_op.where(relay_op.less(ids, const(0, ctx.dtype(ids))), const(count, ctx.dtype(ids)), ids)
    sums = relay_op.scatter_nd(relay_op.zeros(shape, ctx.dtype(data)), relay_op.expand_dims(kept, 0), data, mode="add")
    return relay_op.strided_slice(sums, [0], [count], axes=[0])


@converter("BUCKETIZE")
def convert_bucketize(ctx: OperatorContext) -> RelayExpr:
    """How many boundaries are not above each number."""
    limits = np.asarray(ctx.option("boundaries"), "float32")
    data = relay_op.cast(ctx.real(0), "float32")
    above = relay_op.greater_equal(relay_op.expand_dims(data, ctx.rank(ctx.raw(0))), const(limits))
    return relay_op.sum(relay_op.cast(above, "int32"), axis=[-1])
