"""nn.contrib_integer_softmax: softmax of integers of 8 bits with its requantization, for microcontrollers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright import te
from tilewright.ir.attrs import Attrs
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.prim_ops import cast, const
from tilewright.ir.type import TensorType, Type
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.nn.integer_conv2d import in_c
from tilewright.tir import op as tir_op
from tilewright.topi import reduction
from tilewright.topi.micro import integer_softmax
from tilewright.topi.utils import get_const_tuple

_ENTRIES = 256


class IntegerSoftmaxAttrs(Attrs):
    """The axis; the factor of shares, a float32: one over the result's scale; and the result's zero point, limits and
    type.
    """

    axis: int = -1
    multiplier: float = 1.0
    out_zero: int = 0
    low: int = -128
    high: int = 127
    out_dtype: str = "int8"


class IntegerSoftmax(OpDef[IntegerSoftmaxAttrs]):
    """``clip(rint(float32(e) * (multiplier / float32(sum(e)))) + out_zero, low, high)``, ``e = exponentials[max - x]``.

    ``exponentials`` has 256 numbers of int32, by how far an element is below the largest along the axis.
    """

    name = "nn.contrib_integer_softmax"
    inputs = ("data", "exponentials")

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: IntegerSoftmaxAttrs, solver: TypeSolver) -> Type | None:
        """The shape of the data, of ``out_dtype``."""
        data, exponentials = relations.tensors(types, IntegerSoftmax.inputs)
        relations.require(data.dtype in ("int8", "uint8"), f"the data are int8 or uint8, found {data.dtype}")
        found = (exponentials.dtype, tuple(map(relations.known, exponentials.shape)))
        relations.require(found == ("int32", (_ENTRIES,)), f"the exponentials are 256 of int32, found {found}")
        rank = len(data.shape)
        relations.require(-rank <= attrs.axis < rank, f"axis {attrs.axis} is none of {rank} dimensions")
        return TensorType(data.shape, attrs.out_dtype)

    @staticmethod
    def evaluate(attrs: IntegerSoftmaxAttrs, inputs: Sequence[Array]) -> list[Array]:
        data = inputs[0].astype(np.int64)
        powers = inputs[1][data.max(attrs.axis, keepdims=True) - data]
        total = powers.sum(attrs.axis, keepdims=True, dtype=np.int64).astype(np.float32)
        steps = np.rint(powers.astype(np.float32) * (np.float32(attrs.multiplier) / total)) + attrs.out_zero
        return [np.clip(steps, attrs.low, attrs.high).astype(attrs.out_dtype)]

    @staticmethod
    def compute(attrs: IntegerSoftmaxAttrs, inputs: Sequence[te.Tensor], out_type: Type) -> list[te.Tensor]:
        """Call the kernel in C, where the code is freestanding; else loops."""
        if not in_c():
            return [_in_loops(attrs, *inputs)]
        extents = get_const_tuple(inputs[0].shape)
        axis = attrs.axis % len(extents)
        factor = int(np.float32(attrs.multiplier).view(np.uint32))
        shape = {"outer": math.prod(extents[:axis]), "extent": extents[axis], "inner": math.prod(extents[axis + 1 :])}
        shape |= {"factor": factor, "zero": attrs.out_zero, "low": attrs.low, "high": attrs.high}
        return [integer_softmax(inputs[0], inputs[1], shape, attrs.out_dtype)]


contrib_integer_softmax = builder(IntegerSoftmax)


def _in_loops(attrs: IntegerSoftmaxAttrs, data: te.Tensor, exponentials: te.Tensor) -> te.Tensor:
    """Look up and sum in int32, and divide in float32."""
    axis = attrs.axis % data.ndim
    most = reduction.max(data, axis, keepdims=True)

    def along(i: Sequence[PrimExpr]) -> list[PrimExpr]:
        return [const(0, v.dtype) if k == axis else v for k, v in enumerate(i)]

    def power(*i: PrimExpr) -> PrimExpr:
        return exponentials(cast("int32", most(*along(i))) - cast("int32", data(*i)))

    powers = te.compute(data.shape, power, "powers")
    total = reduction.sum(powers, axis, keepdims=True)

    def share(*i: PrimExpr) -> PrimExpr:
        factor = const(float(np.float32(attrs.multiplier)), "float32") / cast("float32", total(*along(i)))
        steps = tir_op.nearbyint(cast("float32", powers(*i)) * factor) + const(float(attrs.out_zero), "float32")
        low, high = (const(float(v), "float32") for v in (attrs.low, attrs.high))
        return cast(attrs.out_dtype, tir_op.max(tir_op.min(steps, high), low))

    return te.compute(data.shape, share, "shares")
