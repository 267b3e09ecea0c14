"""sparse_to_dense, sparse_reshape and searchsorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, const
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call, computed, static_ints
from tilewright.relay.op.builder import builder, exported, tuple_builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import no_gradient
from tilewright.runtime.ndarray import numpy_dtype


class SparseToDenseAttrs(Attrs):
    """Shape of the result."""

    output_shape: tuple[int, ...]


class SparseToDense(OpDef[SparseToDenseAttrs]):
    """A tensor of a default value with sparse values at their indices."""

    name = "sparse_to_dense"
    inputs = ("sparse_indices", "sparse_values", "default_value")
    pattern = OpPattern.OPAQUE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: SparseToDenseAttrs, solver: TypeSolver) -> Type | None:
        indices, values, default = relations.tensors(types, SparseToDense.inputs)
        rank = len(attrs.output_shape)
        relations.require(len(indices.shape) <= 2, "sparse_indices should have at most 2 dimensions")
        relations.require(len(values.shape) <= 1, "sparse_values should have at most 1 dimension")
        relations.require(len(default.shape) == 0, "default_value should be a scalar")
        relations.require_same_dtype((values, default), "sparse_values and default_value")
        if len(indices.shape) == 2:
            solver.assert_equal(as_expr(rank), indices.shape[1], "coordinates of an index")
        else:
            relations.require(rank == 1, f"sparse_indices should have 2 dimensions for the shape {attrs.output_shape}")
        if indices.shape and values.shape:
            solver.assert_equal(indices.shape[0], values.shape[0], "number of values")
        return TensorType(attrs.output_shape, values.dtype)

    @staticmethod
    def compute(attrs: SparseToDenseAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        indices, values, default = inputs
        return [topi.sparse_to_dense(indices, attrs.output_shape, values, default)]

    @staticmethod
    def evaluate(attrs: SparseToDenseAttrs, inputs: Sequence[Array]) -> list[Array]:
        indices, values, default = inputs
        result = np.full(attrs.output_shape, default, values.dtype)
        places = indices.reshape(-1, len(attrs.output_shape))
        for place, value in zip(places, np.broadcast_to(values, len(places)), strict=True):
            result[tuple(place)] = value
        return [result]


class SparseReshape(OpDef[None]):
    """Indices of the elements of a sparse tensor of ``prev_shape`` after a reshape, and the new shape without -1."""

    name = "sparse_reshape"
    inputs = ("sparse_indices", "prev_shape", "new_shape")
    pattern = OpPattern.OPAQUE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        """(count, new rank) and (new rank,)"""
        found = relations.tensors(types, SparseReshape.inputs)
        indices, before, wanted = found
        for type_, rank, what in zip(found, (2, 1, 1), SparseReshape.inputs, strict=True):
            relations.require_rank(type_, rank, what)
        solver.assert_equal(indices.shape[1], before.shape[0], "dimensions of prev_shape")
        count, new_rank = indices.shape[0], wanted.shape[0]
        return TupleType([TensorType((count, new_rank), indices.dtype), TensorType((new_rank,), indices.dtype)])

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return list(topi.sparse_reshape(*inputs))

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        indices, before, wanted = (a.astype(np.int64) for a in inputs)
        rest = int(np.prod(wanted[wanted >= 0]))
        shape = np.where(wanted >= 0, wanted, int(np.prod(before)) // rest if rest else 0)
        flat = np.zeros(len(indices), np.int64)
        for column, extent in zip(indices.T, before, strict=True):
            flat = flat * extent + column
        places = np.zeros((len(indices), len(shape)), np.int64)
        for axis in reversed(range(len(shape))):
            flat, places[:, axis] = np.divmod(flat, max(shape[axis], 1))
        return [places.astype(inputs[0].dtype), shape.astype(inputs[0].dtype)]


sparse_reshape = tuple_builder(SparseReshape, results=2)


class SearchSortedAttrs(Attrs):
    """Whether equal values go before or after, and the dtype of the result."""

    right: bool = False
    dtype: str = "int32"


class SearchSorted(OpDef[SearchSortedAttrs]):
    """Indices at which ``values`` (..., m) keep rows (..., n), or one row (n,), sorted; after equals if ``right``."""

    name = "searchsorted"
    inputs = ("sorted_sequence", "values")
    pattern = OpPattern.OPAQUE
    gradient = staticmethod(no_gradient)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: SearchSortedAttrs, solver: TypeSolver) -> Type | None:
        found = relations.tensors(types, SearchSorted.inputs)
        rows, values = found
        relations.require_same_dtype(found)
        relations.require(len(rows.shape) > 0, "sorted_sequence should have a dimension")
        if len(rows.shape) > 1:
            relations.require_rank(values, len(rows.shape), "values")
            for a, b in zip(rows.shape[:-1], values.shape[:-1], strict=True):
                solver.assert_equal(a, b, "leading dimensions of the values")
        return TensorType(values.shape, attrs.dtype)

    @staticmethod
    def compute(attrs: SearchSortedAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.searchsorted(inputs[0], inputs[1], attrs.right, attrs.dtype)]

    @staticmethod
    def evaluate(attrs: SearchSortedAttrs, inputs: Sequence[Array]) -> list[Array]:
        rows, values = inputs
        side: Any = "right" if attrs.right else "left"
        dtype = numpy_dtype(attrs.dtype)
        if rows.ndim == 1:
            return [np.asarray(np.searchsorted(rows, values, side)).astype(dtype)]
        flat = zip(rows.reshape(-1, rows.shape[-1]), values.reshape(-1, values.shape[-1]), strict=True)
        found = [np.searchsorted(row, wanted, side) for row, wanted in flat]
        return [np.asarray(found, dtype).reshape(values.shape)]


searchsorted = builder(SearchSorted)


@exported
def sparse_to_dense(
    sparse_indices: RelayExpr, output_shape: Any, sparse_values: RelayExpr, default_value: Any = 0
) -> Call:
    """Return a tensor with ``sparse_values`` (count,) at ``sparse_indices`` (count, rank), else ``default_value``.

    ``output_shape`` must be known at compile time. Of duplicate indices the last one wins.
    """
    if not isinstance(default_value, RelayExpr):
        type_ = sparse_values.checked_type_or_none or getattr(sparse_values, "type_annotation", None)
        known_dtype = type_.dtype if isinstance(type_, TensorType) else None
        if known_dtype is None and hasattr(sparse_values, "data"):
            known_dtype = str(sparse_values.data.dtype)
        default_value = const(default_value, known_dtype)
    if computed(output_shape):
        arguments = [sparse_indices, output_shape, sparse_values, default_value]
        return call("dyn.sparse_to_dense", arguments, SparseToDenseAttrs(()))
    attrs = SparseToDenseAttrs(static_ints(output_shape, "output_shape"))
    return call("sparse_to_dense", [sparse_indices, sparse_values, default_value], attrs)
