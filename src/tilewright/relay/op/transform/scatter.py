"""Writing elements by index: scatter, scatter_add, scatter_nd."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import Type
from tilewright.relay.expr import Call, const
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder, exported, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, zeros_of
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.op.transform.checks import checked


class ScatterAttrs(Attrs):
    """The dimension that is indexed."""

    axis: int = 0


class ScatterNDAttrs(Attrs):
    """How updates are combined with the data: update, add, mul, min, max."""

    mode: str = "update"


def _elements_type(types: Sequence[Type], attrs: ScatterAttrs, solver: TypeSolver) -> Type | None:
    data, indices, updates = relations.tensors(types, ("data", "indices", "updates"))
    relations.require_same_dtype((data, updates), "data and updates")
    relations.require_rank(indices, len(data.shape), "indices")
    relations.require_rank(updates, len(data.shape), "updates")
    axis = relations.normalize_axis(attrs.axis, len(data.shape))
    for i, (a, b) in enumerate(zip(indices.shape, updates.shape, strict=True)):
        solver.assert_equal(a, b, f"dimension {i} of the updates")
    for i, (a, b) in enumerate(zip(data.shape, indices.shape, strict=True)):
        if i != axis:
            relations.require_at_least(a, b, f"dimension {i} of the indices is {b}, of the data {a}")
    return data


def _places(indices: Array, axis: int, extent: int) -> tuple[Array, ...]:
    places: list[Array] = list(np.indices(indices.shape))
    places[axis] = np.where(indices < 0, indices + extent, indices).astype(np.int64)
    return tuple(places)


class Scatter(OpDef[ScatterAttrs]):
    """``data`` with elements at ``indices`` along ``axis`` replaced by ``updates``."""

    name = "scatter"
    indirect = True
    inputs = ("data", "indices", "updates")
    pattern = OpPattern.OPAQUE

    infer_type = staticmethod(_elements_type)
    strategy = strategies.scatter_strategy

    @staticmethod
    def check_indices(attrs: ScatterAttrs, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Indices must lie within ``axis``."""
        data, indices, updates = args
        return [data, checked("scatter", indices, data, [attrs.axis]), updates]

    @staticmethod
    def evaluate(attrs: ScatterAttrs, inputs: Sequence[Array]) -> list[Array]:
        """Assign through index arrays; of duplicate indices the last one wins."""
        data, indices, updates = inputs
        axis = attrs.axis % data.ndim
        result = data.copy()
        places = [p.reshape(-1) for p in _places(indices, axis, data.shape[axis])]
        for position, value in zip(zip(*places, strict=True), updates.reshape(-1), strict=True):
            result[position] = value
        return [result]

    @staticmethod
    def gradient(attrs: ScatterAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """Replaced elements have gradient 0; of updates to one place, each counts as the last one."""
        _, indices, updates = orig.args
        kept = scatter(grad, indices, zeros_of(updates, "scatter"), attrs.axis)
        return [kept, None, ops.gather(grad, attrs.axis, indices)]


scatter = builder(Scatter, axis=...)


class ScatterAdd(Scatter):
    """``data`` with ``updates`` added at ``indices`` along ``axis``."""

    name = "scatter_add"

    strategy = strategies.scatter_add_strategy
    in_float32 = True

    @staticmethod
    def evaluate(attrs: ScatterAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, indices, updates = inputs
        axis = attrs.axis % data.ndim
        result = data.copy()
        np.add.at(result, _places(indices, axis, data.shape[axis]), updates)
        return [result]

    @staticmethod
    def gradient(attrs: ScatterAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        return [grad, None, ops.gather(grad, attrs.axis, orig.args[1])]


scatter_add = builder(ScatterAdd, axis=...)


_COMBINE = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


class ScatterND(OpDef[ScatterNDAttrs]):
    """data with slices replaced (or combined) at index tuples, which are in the first dimension of the indices."""

    name = "scatter_nd"
    indirect = True
    inputs = ("data", "indices", "updates")
    pattern = OpPattern.OPAQUE

    strategy = strategies.scatter_nd_strategy

    @staticmethod
    def in_float32(attrs: ScatterNDAttrs) -> bool:
        """Updates that are added or multiplied."""
        return attrs.mode in ("add", "mul")

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ScatterNDAttrs, solver: TypeSolver) -> Type | None:
        data, indices, updates = relations.tensors(types, ScatterND.inputs)
        relations.require_same_dtype((data, updates), "data and updates")
        count = known(indices.shape[0])
        if count is not None:
            relations.require(count <= len(data.shape), f"{count} index values for {len(data.shape)} dimensions")
            expected = (*indices.shape[1:], *data.shape[count:])
            relations.require_rank(updates, len(expected), "updates")
            for i, (a, b) in enumerate(zip(expected, updates.shape, strict=True)):
                solver.assert_equal(a, b, f"dimension {i} of the updates")
        return data

    @staticmethod
    def check_indices(attrs: ScatterNDAttrs, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Coordinates index the leading dimensions of the data."""
        data, indices, updates = args
        count = known(indices.checked_type.shape[0])  # type: ignore[attr-defined]
        return [data, checked("scatter_nd", indices, data, range(count)) if count else indices, updates]

    @staticmethod
    def evaluate(attrs: ScatterNDAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, indices, updates = inputs
        result = data.copy()
        count = indices.shape[0]
        places = indices.reshape(count, -1).astype(np.int64).T
        values = updates.reshape(places.shape[0], *data.shape[count:])
        for place, value in zip(places, values, strict=True):
            at = tuple(place)
            result[at] = value if attrs.mode == "update" else _COMBINE[attrs.mode](result[at], value)
        return [result]

    @staticmethod
    def gradient(attrs: ScatterNDAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        _, indices, updates = orig.args
        if attrs.mode not in ("add", "update"):
            raise UnsupportedError(
                f"the gradient of scatter_nd is there for modes add and update, found {attrs.mode!r}"
            )
        kept = grad
        if attrs.mode == "update":
            kept = scatter_nd(grad, indices, zeros_of(updates, "scatter_nd"))
        return [kept, None, ops.gather_nd(grad, indices)]


scatter_nd = builder(ScatterND)


@exported
def segment_sum(data: RelayExpr, segment_ids: RelayExpr, num_segments: int | RelayExpr | None = None) -> Call:
    """Sum the rows of ``data`` (n, ...) that have one number in ``segment_ids`` (n,): (num_segments, ...).

    Without ``num_segments`` there are as many as the largest number in ``segment_ids`` asks for. Then, and where
    ``num_segments`` is an integer that the program computes, the result's rows are counted when the program runs.
    """
    row = ops.sum(ops.zeros_like(data), 0, keepdims=True)
    if isinstance(num_segments, int):
        nothing = ops.repeat(row, num_segments, 0)
    else:
        if num_segments is None:
            num_segments = ops.add(ops.cast(ops.max(segment_ids), "int64"), const(1, "int64"))
        count = ops.cast(ops.reshape(num_segments, (1,)), "int64")
        inner = ops.strided_slice(ops.shape_of(data, "int64"), [1], [-1], slice_mode="size")
        nothing = ops.broadcast_to(row, ops.concatenate([count, inner], 0))
    return scatter_nd(nothing, ops.expand_dims(segment_ids, 0), data, "add")
