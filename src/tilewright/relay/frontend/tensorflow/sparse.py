"""Sparse tensors as rows of coordinates and values, and sums of segments."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.tensorflow.context import NodeContext
from tilewright.relay.frontend.tensorflow.registry import converter
from tilewright.relay.frontend.tensorflow.shape import vector


@converter("SparseToDense")
def convert_sparse_to_dense(ctx: NodeContext) -> RelayExpr:
    """A tensor with values at coordinates, and one number elsewhere."""
    indices, values, default = ctx.input(0), ctx.input(2), ctx.input(3)
    shape = ctx.ints(1, "the shape")
    return typed(relay_op.sparse_to_dense(indices, shape, values, default))


def _dense(ctx: NodeContext, indices: RelayExpr, values: RelayExpr, shape: RelayExpr) -> RelayExpr:
    zeros = ctx.part("Expand", [ctx.like(0, values), shape])
    return ctx.part("ScatterND", [zeros, ctx.cast(indices, "int64"), values], reduction="add")


@converter("SparseTensorDenseAdd")
def convert_sparse_tensor_dense_add(ctx: NodeContext) -> RelayExpr:
    """A tensor with the values of a sparse one added."""
    indices, values, _, data = ctx.inputs(0, 4)
    return ctx.part("ScatterND", [data, ctx.cast(indices, "int64"), values], reduction="add")


@converter("SparseTensorDenseMatMul")
def convert_sparse_tensor_dense_mat_mul(ctx: NodeContext) -> RelayExpr:
    """Product of a sparse matrix with a dense one, each perhaps transposed."""
    known = [ctx.constant_or_none(ctx.input(i)) for i in range(3)]
    data = ctx.input(3)
    turns = bool(ctx.attr("adjoint_a", False)), bool(ctx.attr("adjoint_b", False))
    rows = data if turns[1] else typed(relay_op.transpose(data, axes=(1, 0)))
    if known[0] is None or known[1] is None or known[2] is None or not dt.is_float(ctx.dtype(data)):
        matrix = _dense(ctx, ctx.input(0), ctx.input(1), vector(ctx, 2))
        left = ctx.part("Transpose", [matrix], perm=[1, 0]) if turns[0] else matrix
        return ctx.part("MatMul", [left, ctx.part("Transpose", [rows], perm=[1, 0])])
    return _product(ctx, known[0], known[1], [int(d) for d in known[2]], rows, turns[0])


def _product(ctx: NodeContext, places: Any, values: Any, shape: Any, rows: RelayExpr, turn: bool) -> RelayExpr:
    """Return the product of a known sparse matrix with a matrix whose transpose is ``rows``, by its rows."""
    if turn:
        places, shape = places[:, ::-1], shape[::-1]
    order = np.lexsort((places[:, 1], places[:, 0]))
    places, values = places[order], np.asarray(values)[order]
    starts = np.searchsorted(places[:, 0], np.arange(shape[0] + 1))
    parts = [values, places[:, 1].astype("int32"), starts.astype("int32")]
    sparse = [ctx.importer.constant_tensor(f"{ctx.node.name}/{n}", np.ascontiguousarray(p))
              for n, p in zip(("values", "columns", "rows"), parts, strict=True)]  # fmt: skip
    return typed(relay_op.nn.sparse_dense(rows, tuple(sparse), sparse_lhs=True))


@converter("SparseReshape")
def convert_sparse_reshape(ctx: NodeContext) -> list[RelayExpr]:
    """Coordinates in a tensor of another shape, and that shape with what is inferred."""
    made = relay_op.sparse_reshape(ctx.input(0), ctx.input(1), ctx.input(2))
    return [typed(made[0]), typed(made[1])]


@converter("SparseFillEmptyRows")
def convert_sparse_fill_empty_rows(ctx: NodeContext) -> list[RelayExpr]:
    """A value in each row that has none, in the order of the rows; which rows these are; where each value went."""
    indices, values, default = ctx.input(0), ctx.input(1), ctx.input(3)
    rank = ctx.dims(indices)[1]
    shape = vector(ctx, 2)
    rows = ctx.part("Gather", [indices, const(0, "int64")], axis=1)
    count = ctx.part("Slice", [shape, ctx.int64([0]), ctx.int64([1])])
    ones = typed(relay_op.ones_like(rows))
    column = ctx.part("Unsqueeze", [rows, ctx.int64([1])])
    tally = ctx.part("ScatterND", [ctx.part("Expand", [const(0, "int64"), count]), column, ones], reduction="add")
    empty = typed(relay_op.equal(tally, const(0, "int64")))
    missing = ctx.part("Transpose", [ctx.part("NonZero", [empty])], perm=[1, 0])
    width = ctx.int64([rank - 1]) if isinstance(rank, int) else _less_one(ctx, indices)
    tail = ctx.part("Expand", [const(0, "int64"), ctx.part("Concat", [_rows(ctx, missing), width], axis=0)])
    whole = ctx.part("Concat", [indices, ctx.part("Concat", [missing, tail], axis=1)], axis=0)
    filler = ctx.part("Expand", [default, _rows(ctx, missing)])
    order = _order(ctx, whole)
    all_values = ctx.part("Concat", [values, filler], axis=0)
    back = ctx.part("Slice", [_order_of(ctx, order), ctx.int64([0]), _rows(ctx, indices)])
    found = [ctx.part("Gather", [x, order], axis=0) for x in (whole, all_values)]
    return [*found, empty, back]


def _rows(ctx: NodeContext, data: RelayExpr) -> RelayExpr:
    return ctx.part("Shape", [data], end=1)


def _less_one(ctx: NodeContext, indices: RelayExpr) -> RelayExpr:
    return ctx.part("Sub", [ctx.part("Shape", [indices], start=1), ctx.int64([1])])


def _order(ctx: NodeContext, indices: RelayExpr) -> RelayExpr:
    """Return the places of coordinates in the order of their rows; those of one row keep theirs."""
    return _order_of(ctx, ctx.part("Gather", [indices, const(0)], axis=1))


def _order_of(ctx: NodeContext, values: RelayExpr) -> RelayExpr:
    return typed(relay_op.argsort(values, axis=0, dtype="int64"))


# ---- segments ----


def _segment_sum(ctx: NodeContext, data: RelayExpr, ids: RelayExpr, count: RelayExpr | None) -> RelayExpr:
    """Return the sums of rows with one id; of as many segments as the greatest id says, or a vector of one number."""
    number = _after_last(ctx, ids) if count is None else count
    shape = ctx.part("Concat", [number, ctx.part("Shape", [data], start=1)], axis=0) if ctx.rank(data) > 1 else number
    zeros = ctx.part("Expand", [ctx.like(0, data), shape])
    column = ctx.part("Unsqueeze", [ctx.cast(ids, "int64"), ctx.int64([1])])
    return ctx.part("ScatterND", [zeros, column, data], reduction="add")


def _after_last(ctx: NodeContext, ids: RelayExpr) -> RelayExpr:
    """Return one more than the last of sorted ids, 0 where there are none, as a vector."""
    wide = ctx.part("Concat", [ctx.int64([-1]), ctx.cast(ids, "int64")], axis=0)
    last = ctx.part("Slice", [wide, ctx.int64([-1]), ctx.int64([np.iinfo(np.int32).max])])
    one = ctx.part("Reshape", [ctx.part("Add", [last, ctx.int64([1])]), ctx.int64([1])])
    return one


@converter("SegmentSum")
def convert_segment_sum(ctx: NodeContext) -> RelayExpr:
    """Sums of rows with one id."""
    return _segment_sum(ctx, ctx.input(0), ctx.input(1), None)


@converter("UnsortedSegmentSum")
def convert_unsorted_segment_sum(ctx: NodeContext) -> RelayExpr:
    """Sums of rows with one id, for so many ids."""
    return _segment_sum(ctx, ctx.input(0), ctx.input(1), vector(ctx, 2))


@converter("SparseSegmentSum", "SparseSegmentSumWithNumSegments", "SparseSegmentMean",
           "SparseSegmentMeanWithNumSegments", "SparseSegmentSqrtN", "SparseSegmentSqrtNWithNumSegments")  # fmt: skip
def convert_sparse_segment(ctx: NodeContext) -> RelayExpr:
    """Sums of chosen rows with one id, over their number or its root."""
    data, indices, ids = ctx.inputs(0, 3)
    count = vector(ctx, 3) if ctx.node.op.endswith("Segments") else None
    total = _segment_sum(ctx, ctx.part("Gather", [data, indices], axis=0), ids, count)
    if "Sum" in ctx.node.op.removesuffix("WithNumSegments"):
        return total
    ones = typed(relay_op.cast(relay_op.ones_like(ids), ctx.dtype(data)))
    size = typed(relay_op.maximum(_segment_sum(ctx, ones, ids, count), ctx.like(1, data)))
    by = relay_op.sqrt(size) if "Sqrt" in ctx.node.op else size
    if ctx.rank(data) > 1:
        by = relay_op.expand_dims(by, axis=1, num_newaxis=ctx.rank(data) - 1)
    return ctx.part("Div", [total, typed(by)])
