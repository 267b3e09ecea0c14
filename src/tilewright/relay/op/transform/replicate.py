"""Repeating elements and broadcasting: repeat, tile, broadcast_to(_like), and its reverse collapse_sum_to(_like)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call, const
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call, dims
from tilewright.relay.op.builder import builder, exported, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, collapsed, require_shape, spread
from tilewright.relay.op.relations import normalize_axis
from tilewright.relay.op.tensor.creation import InitOpAttrs


class RepeatAttrs(Attrs):
    """Number of repeats and the dimension (None: of the flattened data)."""

    repeats: int
    axis: int | None = None


class TileAttrs(Attrs):
    """Number of repeats of each dimension."""

    reps: tuple[int, ...]


class Repeat(OpDef[RepeatAttrs]):
    """Each element ``repeats`` times along ``axis`` (None: of the flattened data)."""

    name = "repeat"
    support_level = 3
    inputs = ("data",)
    pattern = OpPattern.BROADCAST
    moves = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: RepeatAttrs, solver: TypeSolver) -> Type | None:
        """The dimension times the repeats."""
        data = relations.tensor(types[0])
        relations.require(attrs.repeats >= 1, f"repeats should be at least 1, found {attrs.repeats}")
        if attrs.axis is None:
            return TensorType((relations.dim_mul(*data.shape, attrs.repeats),), data.dtype)
        shape = list(data.shape)
        axis = relations.normalize_axis(attrs.axis, len(shape))
        shape[axis] = relations.dim_mul(shape[axis], attrs.repeats)
        return TensorType(shape, data.dtype)

    @staticmethod
    def compute(attrs: RepeatAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        data = inputs[0]
        if attrs.axis is None:
            data = topi.reshape(data, (relations.dim_mul(*data.shape),))
        return [topi.repeat(data, attrs.repeats, attrs.axis or 0)]

    @staticmethod
    def evaluate(attrs: RepeatAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.repeat(inputs[0], attrs.repeats, attrs.axis)]

    @staticmethod
    def gradient(attrs: RepeatAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """The sum over an element's copies."""
        x = orig.args[0]
        shape = require_shape(x, "repeat")
        if attrs.axis is None:
            return [ops.reshape(ops.sum(ops.reshape(grad, (-1, attrs.repeats)), axis=1), shape)]
        axis = normalize_axis(attrs.axis, len(shape))
        apart = ops.reshape(grad, (*shape[: axis + 1], attrs.repeats, *shape[axis + 1 :]))
        return [ops.sum(apart, axis=axis + 1)]


repeat = builder(Repeat, axis=...)


class Tile(OpDef[TileAttrs]):
    """The whole of ``data`` repeated, ``reps`` times along each dimension."""

    name = "tile"
    support_level = 3
    inputs = ("data",)
    pattern = OpPattern.BROADCAST
    moves = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: TileAttrs, solver: TypeSolver) -> Type | None:
        data = relations.tensor(types[0])
        relations.require(all(r >= 0 for r in attrs.reps), f"repeats should be 0 or more, found {tuple(attrs.reps)}")
        rank = max(len(data.shape), len(attrs.reps))
        shape = [as_expr(1)] * (rank - len(data.shape)) + list(data.shape)
        reps = [1] * (rank - len(attrs.reps)) + list(attrs.reps)
        return TensorType([relations.dim_mul(d, r) for d, r in zip(shape, reps, strict=True)], data.dtype)

    @staticmethod
    def compute(attrs: TileAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.tile(inputs[0], list(attrs.reps))]

    @staticmethod
    def evaluate(attrs: TileAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.tile(inputs[0], attrs.reps)]

    @staticmethod
    def gradient(attrs: TileAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """The sum over the copies of the whole."""
        shape = require_shape(orig.args[0], "tile")
        rank = max(len(shape), len(attrs.reps))
        extents = [1] * (rank - len(shape)) + list(shape)
        reps = [1] * (rank - len(attrs.reps)) + list(attrs.reps)
        apart = ops.reshape(grad, [d for pair in zip(reps, extents, strict=True) for d in pair])
        return [ops.reshape(ops.sum(apart, axis=list(range(0, 2 * rank, 2))), shape)]


tile = builder(Tile, computed="reps")


def _check_broadcast(data: TensorType, shape: Sequence[Any]) -> None:
    result = relations.broadcast_shapes(data.shape, shape)
    relations.require(len(result) == len(shape), "the data has more dimensions than the shape")
    for dim, wanted in zip(result, shape, strict=True):
        x, y = relations.known(dim), relations.known(as_expr(wanted))
        relations.require(x is None or y is None or x == y, f"dimension {x} cannot become {y}")


class BroadcastTo(OpDef[InitOpAttrs]):
    """``data`` broadcast to ``shape``."""

    name = "broadcast_to"
    support_level = 4
    inputs = ("data",)
    pattern = OpPattern.BROADCAST
    moves = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: InitOpAttrs, solver: TypeSolver) -> Type | None:
        data = relations.tensor(types[0])
        _check_broadcast(data, attrs.shape)
        return TensorType(attrs.shape, data.dtype)

    @staticmethod
    def compute(attrs: InitOpAttrs, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi.broadcast_to(inputs[0], out_type.shape)]

    @staticmethod
    def evaluate(attrs: InitOpAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.broadcast_to(inputs[0], tuple(attrs.shape)).copy()]

    @staticmethod
    def gradient(attrs: object, orig: Call, grad: RelayExpr) -> Gradients:
        """The sum over an element's copies."""
        return [collapsed(grad, orig, orig.args[0]), *[None] * (len(orig.args) - 1)]


broadcast_to = builder(BroadcastTo, order="data shape", computed="shape")


class BroadcastToLike(OpDef[None]):
    """``data`` broadcast to the shape of ``broadcast_type``."""

    name = "broadcast_to_like"
    inputs = ("data", "broadcast_type")
    pattern = OpPattern.BROADCAST
    gradient = staticmethod(BroadcastTo.gradient)
    moves = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        data, like = relations.tensors(types, BroadcastToLike.inputs)
        _check_broadcast(data, like.shape)
        return TensorType(like.shape, data.dtype)

    compute = staticmethod(BroadcastTo.compute)

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        return [np.broadcast_to(inputs[0], inputs[1].shape).copy()]


broadcast_to_like = builder(BroadcastToLike)


def _collapse_array(data: Array, shape: Sequence[int]) -> Array:
    head = data.ndim - len(shape)
    axes = [*range(head), *[head + i for i, d in enumerate(shape) if d == 1 and data.shape[head + i] != 1]]
    return data.sum(axis=tuple(axes), keepdims=True).reshape(tuple(shape)).astype(data.dtype)


class CollapseSumTo(OpDef[InitOpAttrs]):
    """Sum over the dimensions along which a tensor of the shape would broadcast to the data's."""

    name = "collapse_sum_to"
    inputs = ("data", "shape")
    pattern = OpPattern.COMM_REDUCE
    fixed_points = (0,)
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: InitOpAttrs, solver: TypeSolver) -> Type | None:
        data = relations.tensor(types[0])
        return TensorType(attrs.shape, data.dtype)

    @staticmethod
    def compute(attrs: InitOpAttrs, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi.collapse_sum(inputs[0], out_type.shape)]

    @staticmethod
    def evaluate(attrs: InitOpAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [_collapse_array(inputs[0], attrs.shape)]

    @staticmethod
    def gradient(attrs: object, orig: Call, grad: RelayExpr) -> Gradients:
        """To all elements of a sum."""
        return [spread(grad, orig.args[0]), None]


class CollapseSumLike(OpDef[None]):
    """Sum over the dimensions along which the other tensor would broadcast to the data's shape."""

    name = "collapse_sum_like"
    inputs = ("data", "collapse_type")
    pattern = OpPattern.COMM_REDUCE
    gradient = staticmethod(CollapseSumTo.gradient)
    fixed_points = (0,)
    in_float32 = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        found = relations.tensors(types, CollapseSumLike.inputs)
        return TensorType(found[1].shape, found[0].dtype)

    compute = staticmethod(CollapseSumTo.compute)

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        return [_collapse_array(inputs[0], inputs[1].shape)]


collapse_sum_like = builder(CollapseSumLike)


@exported
def collapse_sum_to(data: RelayExpr, shape: Any) -> Call:
    """Sum ``data`` to ``shape``, the reverse of broadcasting."""
    values = dims(shape)
    operand = shape if isinstance(shape, RelayExpr) else const([int(d) for d in values])
    return call("collapse_sum_to", [data, operand], InitOpAttrs(values))
