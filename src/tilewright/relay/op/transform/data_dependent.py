"""argwhere and sparse_fill_empty_rows: results whose size depends on all elements.

There is no kernel of them: ``WriteOutDynamic`` writes them out, by the functions here, as operators that select and
count elements, move them to the front, and cut off the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Tuple, TupleWrapper, const
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import builder, exported, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.dyn import iota
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import no_gradient


class Argwhere(OpDef[None]):
    """Indices of the elements that are not 0, in order: (n, rank) int32, n unknown."""

    name = "argwhere"
    inputs = ("condition",)
    pattern = OpPattern.OPAQUE
    gradient = staticmethod(no_gradient)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        condition = relations.tensor(types[0], "condition")
        relations.require(len(condition.shape) > 0, "condition should have a dimension")
        return TensorType((AnyDim(), len(condition.shape)), "int32")

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        return [np.argwhere(inputs[0]).astype("int32")]


argwhere = builder(Argwhere)


class SparseFillEmptyRows(OpDef[None]):
    """Coordinates (n, rank) in the order of rows, values and ``dense_shape`` of a sparse tensor, with a value in the
    first column of each row that has none: (m, rank) and (m,), m unknown, and which rows these are, as int64.
    """

    name = "sparse_fill_empty_rows"
    inputs = ("sparse_indices", "sparse_values", "dense_shape", "default_value")
    pattern = OpPattern.OPAQUE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        found = relations.tensors(types, SparseFillEmptyRows.inputs)
        indices, values, shape, default = found
        for type_, rank, what in zip(found, (2, 1, 1, 1), SparseFillEmptyRows.inputs, strict=True):
            relations.require_rank(type_, rank, what)
        relations.require_same_dtype((values, default), "sparse_values and default_value")
        solver.assert_equal(indices.shape[0], values.shape[0], "number of values")
        solver.assert_equal(indices.shape[1], shape.shape[0], "dimensions of dense_shape")
        fields = [((AnyDim(), indices.shape[1]), indices.dtype), ((AnyDim(),), values.dtype), ((AnyDim(),), "int64")]
        return TupleType([TensorType(dims, dtype) for dims, dtype in fields])

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        indices, values, shape, default = inputs
        empty = ~np.isin(np.arange(int(shape[0])), indices[:, 0])
        added = np.zeros((int(empty.sum()), indices.shape[1]), indices.dtype)
        added[:, 0] = np.flatnonzero(empty)
        rows = np.concatenate([indices, added])
        order = np.argsort(rows[:, 0], kind="stable")
        return [rows[order], np.concatenate([values, np.repeat(default, len(added))])[order], empty.astype("int64")]


@exported
def sparse_fill_empty_rows(
    sparse_indices: RelayExpr, sparse_values: RelayExpr, dense_shape: RelayExpr, default_value: RelayExpr
) -> Tuple:
    """Return coordinates (m, rank) and values (m,) of a sparse tensor with ``default_value`` (1,) in the first column
    of each row without a value, and which rows these are (bool).

    ``sparse_indices`` (n, rank) are in the order of rows; ``dense_shape`` is (rank,).
    """
    made = TupleWrapper(call("sparse_fill_empty_rows", [sparse_indices, sparse_values, dense_shape, default_value]), 3)
    return Tuple([made[0], made[1], ops.cast(made[2], "bool")])


def _vector(*values: int) -> RelayExpr:
    return const(np.array(values, "int64"), "int64")


def _extent(data: RelayExpr, axis: int) -> RelayExpr:
    """Return one dimension as a scalar of int64."""
    return ops.take(ops.shape_of(data, "int64"), const(axis, "int32"))


def places_of(chosen: RelayExpr) -> RelayExpr:
    """Return the indices of the true elements of a vector, rising: (n,) int64, n unknown."""
    chosen = ops.cast(chosen, "int64")
    size, one = _extent(chosen, 0), const(1, "int64")
    ends = ops.cumsum(chosen, axis=0, dtype="int64")
    # each chosen place goes to the number of those before it, the others behind all
    target = ops.where(ops.greater(chosen, const(0, "int64")), ops.subtract(ends, one), size)
    slots = ops.zeros(ops.reshape(ops.add(size, one), newshape=(1,)), "int64")
    moved = ops.scatter(slots, target, iota(size), axis=0)
    return ops.strided_slice(moved, _vector(0), ops.sum(chosen, axis=[0], keepdims=True), _vector(1), axes=[0])


def coordinates(data: RelayExpr, type_: TensorType) -> list[RelayExpr]:
    """Return the coordinates of the elements of ``data`` that are not 0: (n,) int64 for each axis, n unknown."""
    zero = const(np.zeros((), type_.dtype), type_.dtype)
    rest = places_of(ops.reshape(ops.not_equal(data, zero), newshape=(-1,)))
    found = []
    for axis in reversed(range(len(type_.shape))):
        extent = _extent(data, axis)
        found.append(ops.floor_mod(rest, extent) if axis else rest)
        rest = ops.floor_divide(rest, extent)
    return found[::-1]


def written_argwhere(call_: Call, type_: TensorType) -> RelayExpr:
    """Return ``argwhere`` of a tensor of ``type_``, written out."""
    return ops.cast(ops.stack(coordinates(call_.args[0], type_), axis=1), "int32")


def written_fill(call_: Call, type_: TensorType) -> RelayExpr:
    """Return ``sparse_fill_empty_rows`` of indices of ``type_``, written out."""
    indices, values, shape, default = call_.args
    first, zero = const(0, "int32"), const(0, "int64")
    rows = ops.cast(ops.take(indices, first, axis=1), "int64")
    count = ops.reshape(ops.cast(ops.take(shape, first), "int64"), newshape=(1,))
    tally = ops.scatter_add(ops.zeros(count, "int64"), rows, ops.ones_like(rows), axis=0)
    empty = ops.equal(tally, zero)
    missing = places_of(empty)
    in_first_column = ops.cast(ops.equal(iota(_extent(indices, 1)), zero), "int64")
    added = ops.multiply(ops.expand_dims(missing, axis=1), ops.expand_dims(in_first_column, axis=0))
    whole = ops.concatenate([indices, ops.cast(added, type_.dtype)], axis=0)
    filled = ops.concatenate([values, ops.take(default, ops.multiply(missing, zero))], axis=0)
    order = ops.argsort(ops.concatenate([rows, missing], axis=0), axis=0, dtype="int64")
    fields = [ops.take(whole, order, axis=0), ops.take(filled, order, axis=0), ops.cast(empty, "int64")]
    return Tuple(fields)
