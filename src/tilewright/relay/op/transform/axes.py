"""Moving, adding and dropping dimensions: transpose, expand_dims, squeeze, reverse, reverse_sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import layout_rules, relations, slice_rules
from tilewright.relay.op.attributes import SomeAxes
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, reshaped_gradient
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy.generic import schedule_transpose


class TransposeAttrs(Attrs):
    """The source dimension of each result dimension; None reverses them."""

    axes: SomeAxes = None


class Transpose(OpDef[TransposeAttrs]):
    """``data`` with dimensions in the order ``axes``, reversed by default."""

    name = "transpose"
    reorders = True
    support_level = 3
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE

    slice_operands = staticmethod(slice_rules.transpose)
    moves = True

    schedule = schedule_transpose
    infer_correct_layout = staticmethod(layout_rules.permutation)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: TransposeAttrs, solver: TypeSolver) -> Type | None:
        """The permuted shape."""
        data = relations.tensor(types[0])
        rank = len(data.shape)
        order = list(range(rank))[::-1] if attrs.axes is None else attrs.axes
        relations.require(len(order) == rank, f"axes {tuple(order)} should name {rank} dimensions")
        order = [relations.normalize_axis(a, rank) for a in order]
        relations.require(len(set(order)) == rank, f"axes {attrs.axes} names a dimension twice")
        return TensorType([data.shape[a] for a in order], data.dtype)

    @staticmethod
    def compute(attrs: TransposeAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.transpose(inputs[0], attrs.axes)]

    @staticmethod
    def evaluate(attrs: TransposeAttrs, inputs: Sequence[Array]) -> list[Array]:
        """Return a view, so that a weight is not copied before it is packed."""
        return [np.transpose(inputs[0], attrs.axes)]

    @staticmethod
    def gradient(attrs: TransposeAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        if not attrs.axes:
            return [transpose(grad)]
        axes = [int(a) % len(attrs.axes) for a in attrs.axes]
        return [transpose(grad, [axes.index(i) for i in range(len(axes))])]


transpose = builder(Transpose)


class ExpandDimsAttrs(Attrs):
    """Position and number of the new dimensions."""

    axis: int
    num_newaxis: int = 1


class ExpandDims(OpDef[ExpandDimsAttrs]):
    """``num_newaxis`` dimensions of extent 1 inserted before ``axis``."""

    name = "expand_dims"
    support_level = 1
    inputs = ("data",)
    pattern = OpPattern.BROADCAST
    gradient = staticmethod(reshaped_gradient)
    reshapes = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ExpandDimsAttrs, solver: TypeSolver) -> Type | None:
        """The shape with 1s inserted."""
        data = relations.tensor(types[0])
        at = relations.normalize_axis(attrs.axis, len(data.shape) + 1)
        ones = (as_expr(1),) * attrs.num_newaxis
        return TensorType((*data.shape[:at], *ones, *data.shape[at:]), data.dtype)

    @staticmethod
    def compute(attrs: ExpandDimsAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.expand_dims(inputs[0], attrs.axis, attrs.num_newaxis)]

    @staticmethod
    def evaluate(attrs: ExpandDimsAttrs, inputs: Sequence[Array]) -> list[Array]:
        shape, at = inputs[0].shape, attrs.axis % (inputs[0].ndim + 1)
        return [inputs[0].reshape((*shape[:at], *[1] * attrs.num_newaxis, *shape[at:]))]


expand_dims = builder(ExpandDims, computed="axis")


class SqueezeAttrs(Attrs):
    """The dimensions to drop; None: all of extent 1."""

    axis: tuple[int, ...] | None = None


def _squeezed_axes(shape: Sequence[Any], axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(i for i, d in enumerate(shape) if known(d) == 1)
    return relations.normalize_axes(axis, len(shape))


class Squeeze(OpDef[SqueezeAttrs]):
    """Drop dimensions of extent 1."""

    name = "squeeze"
    support_level = 3
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE
    gradient = staticmethod(reshaped_gradient)
    reshapes = True

    infer_correct_layout = staticmethod(layout_rules.squeezing)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: SqueezeAttrs, solver: TypeSolver) -> Type | None:
        """The shape without the squeezed dimensions."""
        data = relations.tensor(types[0])
        if attrs.axis is None and any(known(d) is None for d in data.shape):
            raise TypeInferenceError("which dimensions are 1 is not known; give axis")
        gone = _squeezed_axes(data.shape, attrs.axis)
        for a in gone:
            relations.require(known(data.shape[a]) in (1, None), f"dimension {a} is {data.shape[a]}, not 1")
        return TensorType([d for i, d in enumerate(data.shape) if i not in gone], data.dtype)

    @staticmethod
    def compute(attrs: SqueezeAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.squeeze(inputs[0], attrs.axis)]

    @staticmethod
    def evaluate(attrs: SqueezeAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.squeeze(inputs[0], _squeezed_axes(inputs[0].shape, attrs.axis))]


squeeze = builder(Squeeze, computed="axis")


class ReverseAttrs(Attrs):
    """The dimension to reverse."""

    axis: int = 0


class Reverse(OpDef[ReverseAttrs]):
    """Reverse the order along a dimension."""

    name = "reverse"
    support_level = 3
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE
    moves = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ReverseAttrs, solver: TypeSolver) -> Type | None:
        data = relations.tensor(types[0])
        relations.normalize_axis(attrs.axis, len(data.shape))
        return data

    @staticmethod
    def compute(attrs: ReverseAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.flip(inputs[0], attrs.axis)]

    @staticmethod
    def evaluate(attrs: ReverseAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.ascontiguousarray(np.flip(inputs[0], attrs.axis))]

    @staticmethod
    def gradient(attrs: ReverseAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        return [reverse(grad, attrs.axis)]


reverse = builder(Reverse, axis=...)


class ReverseSequenceAttrs(Attrs):
    """The time dimension and the batch dimension."""

    seq_axis: int = 1
    batch_axis: int = 0


class ReverseSequence(OpDef[ReverseSequenceAttrs]):
    """The first ``seq_lengths[b]`` elements of batch item b reversed along ``seq_axis``."""

    name = "reverse_sequence"
    inputs = ("data", "seq_lengths")
    pattern = OpPattern.INJECTIVE
    moves = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ReverseSequenceAttrs, solver: TypeSolver) -> Type | None:
        data, lengths = relations.tensors(types, ReverseSequence.inputs)
        relations.require_rank(lengths, 1, "seq_lengths")
        batch = relations.normalize_axis(attrs.batch_axis, len(data.shape), "batch_axis")
        relations.normalize_axis(attrs.seq_axis, len(data.shape), "seq_axis")
        solver.assert_equal(data.shape[batch], lengths.shape[0], "number of seq_lengths")
        return data

    @staticmethod
    def compute(attrs: ReverseSequenceAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.reverse_sequence(inputs[0], inputs[1], attrs.seq_axis, attrs.batch_axis)]

    @staticmethod
    def evaluate(attrs: ReverseSequenceAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, lengths = inputs
        moved = np.moveaxis(data, (attrs.batch_axis, attrs.seq_axis), (0, 1)).copy()
        for row, length in zip(moved, lengths, strict=True):
            row[: max(length, 0)] = row[: max(length, 0)][::-1].copy()
        return [np.ascontiguousarray(np.moveaxis(moved, (0, 1), (attrs.batch_axis, attrs.seq_axis)))]

    @staticmethod
    def gradient(attrs: ReverseSequenceAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        return [reverse_sequence(grad, orig.args[1], attrs.seq_axis, attrs.batch_axis), None]


reverse_sequence = builder(ReverseSequence)


__all__ = ["expand_dims", "reverse", "reverse_sequence", "squeeze", "transpose"]
