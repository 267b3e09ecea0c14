"""matrix_set_diag and trilu; shape_of and ndarray_size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te, tir, topi
from tilewright.ir import prim_ops
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call, ints
from tilewright.relay.op.builder import builder, exported
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, no_gradient
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.topi import tag


class MatrixSetDiagAttrs(Attrs):
    """First and last diagonal, and the end at which shorter ones are padded."""

    k1: int = 0
    k2: int = 0
    super_diag_right_align: bool = True
    sub_diag_right_align: bool = False


class MatrixSetDiag(OpDef[MatrixSetDiagAttrs]):
    """Matrices with diagonals replaced."""

    name = "matrix_set_diag"
    inputs = ("input", "diagonal")
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: MatrixSetDiagAttrs, solver: TypeSolver) -> Type | None:
        found = relations.tensors(types, MatrixSetDiag.inputs)
        relations.require(len(found[0].shape) >= 2, "input should have at least 2 dimensions")
        relations.require(attrs.k1 <= attrs.k2, f"the first diagonal {attrs.k1} is above the last, {attrs.k2}")
        return found[0]

    @staticmethod
    def compute(attrs: MatrixSetDiagAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        sides = ["RIGHT" if right else "LEFT" for right in (attrs.super_diag_right_align, attrs.sub_diag_right_align)]
        return [topi.matrix_set_diag(inputs[0], inputs[1], (attrs.k1, attrs.k2), "_".join(sides))]

    @staticmethod
    def evaluate(attrs: MatrixSetDiagAttrs, inputs: Sequence[Array]) -> list[Array]:
        result, diagonal = inputs[0].copy(), inputs[1]
        rows, columns = result.shape[-2:]
        if attrs.k1 == attrs.k2 and diagonal.ndim == result.ndim - 1:
            diagonal = diagonal[..., None, :]
        longest = diagonal.shape[-1]
        for at, d in enumerate(range(attrs.k2, attrs.k1 - 1, -1)):
            length = min(rows + min(d, 0), columns - max(d, 0))
            right = attrs.super_diag_right_align if d >= 0 else attrs.sub_diag_right_align
            first = longest - length if right else 0
            i = np.arange(length)
            result[..., i - min(d, 0), i + max(d, 0)] = diagonal[..., at, first : first + length]
        return [result]


class TriluAttrs(Attrs):
    """Whether the upper or the lower triangle is kept."""

    upper: bool = True


class Trilu(OpDef[TriluAttrs]):
    """Keep a triangle of each matrix, from the ``k``-th diagonal, which is a scalar tensor."""

    name = "trilu"
    inputs = ("data", "k")
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: TriluAttrs, solver: TypeSolver) -> Type | None:
        found = relations.tensors(types, Trilu.inputs)
        relations.require(len(found[0].shape) >= 2, "data should have at least 2 dimensions")
        return found[0]

    @staticmethod
    def compute(attrs: TriluAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        data, k = inputs

        def body(*i: Any) -> Any:
            border = i[-2] + prim_ops.cast("int32", k(*[0] * len(k.shape)))
            keep = i[-1] >= border if attrs.upper else i[-1] <= border
            return tir.Select(keep, data(*i), prim_ops.const(0, data.dtype))

        return [te.compute(data.shape, body, name="trilu", tag=tag.INJECTIVE)]

    @staticmethod
    def evaluate(attrs: TriluAttrs, inputs: Sequence[Array]) -> list[Array]:
        k = int(inputs[1].reshape(-1)[0])
        return [np.triu(inputs[0], k) if attrs.upper else np.tril(inputs[0], k)]

    @staticmethod
    def gradient(attrs: TriluAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        return [Call(orig.op, [grad, *orig.args[1:]], attrs), *[None] * (len(orig.args) - 1)]


trilu = builder(Trilu)


class ShapeOfAttrs(Attrs):
    """The dtype of the result."""

    dtype: str = "int32"


class ShapeOf(OpDef[ShapeOfAttrs]):
    """The shape of ``data`` as a tensor."""

    name = "shape_of"
    inputs = ("data",)
    pattern = OpPattern.OPAQUE
    gradient = staticmethod(no_gradient)
    reads_shape = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ShapeOfAttrs, solver: TypeSolver) -> Type | None:
        """A vector of (rank,) extents."""
        data = relations.tensor(types[0])
        return TensorType((len(data.shape),), attrs.dtype)

    @staticmethod
    def compute(attrs: ShapeOfAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.shape(inputs[0], attrs.dtype)]

    @staticmethod
    def evaluate(attrs: ShapeOfAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.asarray(inputs[0].shape, np.int64).astype(numpy_dtype(attrs.dtype))]


shape_of = builder(ShapeOf)


class NdarraySize(OpDef[ShapeOfAttrs]):
    """The number of elements of ``data`` as a scalar tensor."""

    name = "ndarray_size"
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE
    gradient = staticmethod(no_gradient)
    reads_shape = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ShapeOfAttrs, solver: TypeSolver) -> Type | None:
        relations.tensor(types[0])
        return TensorType((), attrs.dtype)

    @staticmethod
    def compute(attrs: ShapeOfAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.ndarray_size(inputs[0], attrs.dtype)]

    @staticmethod
    def evaluate(attrs: ShapeOfAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.asarray(inputs[0].size, np.int64).astype(numpy_dtype(attrs.dtype))]


ndarray_size = builder(NdarraySize)


@exported
def matrix_set_diag(data: RelayExpr, diagonal: RelayExpr, k: Any = 0, align: str = "RIGHT_LEFT") -> Call:
    """Replace the diagonals ``k`` (one, or first to last) of the matrices of ``data`` by ``diagonal``."""
    bounds = ints(k)
    upper, lower = align.split("_")
    attrs = MatrixSetDiagAttrs(bounds[0], bounds[-1], upper == "RIGHT", lower == "RIGHT")
    return call("matrix_set_diag", [data, diagonal], attrs)
