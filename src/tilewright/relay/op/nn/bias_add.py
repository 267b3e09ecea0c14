"""nn.bias_add: add a vector along one dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations, slice_rules
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import builder, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients
from tilewright.relay.op.relations import known
from tilewright.relay.type_infer.describe import describe_shape
from tilewright.relay.type_infer.dimensions import note_equal


class BiasAddAttrs(Attrs):
    """The dimension that the bias runs along."""

    axis: int = 1


def expand_bias_to_match_axis(bias: RelayExpr, rank: int, axis: int) -> RelayExpr:
    """Reshape a vector so that it broadcasts along ``axis`` of a tensor of ``rank`` dimensions."""
    behind = rank - 1 - axis % rank
    return ops.expand_dims(bias, 1, behind) if behind else bias


def shape_along(array: Array, rank: int, axis: int) -> Array:
    """Reshape a numpy vector so that it broadcasts along ``axis``."""
    return array.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


class BiasAdd(OpDef[BiasAddAttrs]):
    """``data`` plus the vector ``bias`` along ``axis``."""

    name = "nn.bias_add"
    support_level = 1
    inputs = ("data", "bias")
    pattern = OpPattern.BROADCAST

    slice_operands = staticmethod(slice_rules.bias_add)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: BiasAddAttrs, solver: TypeSolver) -> Type | None:
        """The type of the data; infer a missing type of the bias."""
        data, bias = relations.tensor(types[0], "data"), relations.tensor_or_none(types[1], "bias")
        axis = relations.normalize_axis(attrs.axis, len(data.shape))
        extent = data.shape[axis]
        if bias is None:
            solver.assign(types[1], TensorType((extent,), data.dtype))
            return data
        relations.require_rank(bias, 1, "bias")
        have = known(bias.shape[0])
        if have != 1:  # a single element serves any extent, as in TVM
            note_equal(extent, bias.shape[0])
        if have is not None and known(extent) is not None and have != known(extent):
            raise TypeInferenceError(
                f"the bias has {have} elements, but dimension {axis} of the data {describe_shape(data.shape)} "
                f"is {known(extent)}"
            )
        return data

    @staticmethod
    def compute(attrs: BiasAddAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        data, bias = inputs
        behind = len(data.shape) - 1 - attrs.axis % len(data.shape)
        return [topi.add(data, topi.expand_dims(bias, 1, behind) if behind else bias)]

    @staticmethod
    def evaluate(attrs: BiasAddAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0] + shape_along(inputs[1], inputs[0].ndim, attrs.axis)]

    @staticmethod
    def canonicalize(attrs: BiasAddAttrs, args: Sequence[RelayExpr], typed: Call) -> RelayExpr:
        """Add the bias, expanded to the rank of the data."""
        rank = len(typed.args[0].checked_type.shape)  # type: ignore[attr-defined]
        return call("add", [args[0], expand_bias_to_match_axis(args[1], rank, attrs.axis)])

    @staticmethod
    def gradient(attrs: BiasAddAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """The bias gets the sum over all other axes."""
        return [grad, ops.sum(grad, axis=attrs.axis, exclude=True)]


bias_add = builder(BiasAdd)
