"""Dense layers by Strassen's method: the product with a transformed weight, and the transform of the weight.

AlterOpLayout inserts them for layers of constant weights where they are faster on the target
(``relay.op.strategy.cpu``); FoldConstant then transforms the weights. ``relay.dense.strassen`` turns them off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.layout_rules import UNDEFINED, InferCorrectLayoutOutput
from tilewright.relay.op.nn import kernel_cost, kernel_work
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.type_infer.describe import describe_shape
from tilewright.tir.layout import Layout, layout
from tilewright.topi.nn import strassen

OPTION = "relay.dense.strassen"


class StrassenAttrs(Attrs):
    """Columns of a block and depth of a chunk; blocks and chunks are processed in pairs."""

    block: int = 16
    chunk: int = 64


class DenseStrassenAttrs(Attrs):
    """The tuned configuration (``choices_of``); empty if untuned."""

    tuned: str = ""

    internal = ("tuned",)


class ContribDenseStrassenWeightTransform(OpDef[StrassenAttrs]):
    """Transform of a weight (n, k) for ``nn.contrib_dense_strassen_without_weight_transform``."""

    name = "nn.contrib_dense_strassen_weight_transform"
    inputs = ("weight",)
    pattern = OpPattern.OPAQUE
    schedule = strategies.schedule_injective

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: StrassenAttrs, solver: TypeSolver) -> Type | None:
        """(k / 2 chunk, n / 2 block, 4, chunk, block)."""
        weight = relations.tensor(types[0], "weight")
        relations.require_rank(weight, 2, "weight")
        block, chunk = int(attrs.block), int(attrs.chunk)
        steps = 2 * block, 2 * chunk
        sizes = zip((known(d) for d in weight.shape), steps, strict=True)
        if min(steps) < 1 or any(size is not None and size % step for size, step in sizes):
            raise TypeInferenceError(
                f"pairs of {block} columns and of chunks of {chunk} should divide the weight, found "
                f"{describe_shape(weight.shape)}"
            )
        pairs, chunks = (relations.dim_floordiv(d, as_expr(step)) for d, step in zip(weight.shape, steps, strict=True))
        return TensorType((chunks, pairs, as_expr(4), as_expr(chunk), as_expr(block)), weight.dtype)

    @staticmethod
    def compute(attrs: StrassenAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """Transform the weight at run time, for a weight that is no constant."""
        return [strassen.strassen_weight_transform(inputs[0], int(attrs.block), int(attrs.chunk))]

    @staticmethod
    def evaluate(attrs: StrassenAttrs, inputs: Sequence[Array]) -> list[Array]:
        """Compute in float64 and round once."""
        return [strassen.transform_weight(inputs[0], int(attrs.block), int(attrs.chunk))]


contrib_dense_strassen_weight_transform = builder(ContribDenseStrassenWeightTransform, required=True)


class ContribDenseStrassen(OpDef[DenseStrassenAttrs]):
    """``data`` (m, k) times a weight transformed by ``contrib_dense_strassen_weight_transform``: (m, n)."""

    name = "nn.contrib_dense_strassen_without_weight_transform"
    inputs = ("data", "weight")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE
    kind = "dense"
    multiply_adds = staticmethod(kernel_work.product_multiply_adds)
    modelled_cost = staticmethod(kernel_cost.strassen_cost)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: DenseStrassenAttrs, solver: TypeSolver) -> Type | None:
        """(m, n)"""
        data, weight = relations.tensors(types[:2], ("data", "weight"))
        relations.require_rank(data, 2, "data")
        relations.require_rank(weight, 5, "weight")
        chunks, pairs, stored, chunk, block = weight.shape
        sizes = known(data.shape[1]), known(relations.dim_mul(as_expr(2), chunks, chunk))
        if known(stored) not in (4, None) or (None not in sizes and sizes[0] != sizes[1]):
            raise TypeInferenceError(
                f"data {describe_shape(data.shape)} and transformed weight {describe_shape(weight.shape)} do not fit; "
                "expected (m, k) and (k / 2 chunk, n / 2 block, 4, chunk, block)"
            )
        return TensorType((data.shape[0], relations.dim_mul(as_expr(2), pairs, block)), data.dtype)

    strategy = strategies.dense_strassen_strategy

    @staticmethod
    def infer_correct_layout(
        attrs: DenseStrassenAttrs,
        new_in_layouts: Sequence[Layout],
        old_in_layouts: Sequence[Layout],
        old_in_types: Sequence[Type],
    ) -> InferCorrectLayoutOutput:
        """Require row-major matrices; the transformed weight has no layout."""
        return InferCorrectLayoutOutput([layout("NC"), UNDEFINED], [layout("NC")], attrs)

    @staticmethod
    def evaluate(attrs: DenseStrassenAttrs, inputs: Sequence[Array]) -> list[Array]:
        """Undo the transform of the weight, then multiply in float64."""
        return [strassen.multiply(*inputs)]


contrib_dense_strassen_without_weight_transform = builder(ContribDenseStrassen)


def strassen_call(inputs: Sequence[RelayExpr], block: int, chunk: int, tuned: str = "") -> Call:
    """Return a dense layer by Strassen's method."""
    transformed = contrib_dense_strassen_weight_transform(inputs[1], block, chunk)
    return call(ContribDenseStrassen.name, [inputs[0], transformed], DenseStrassenAttrs(tuned))


__all__ = ["DenseStrassenAttrs", "StrassenAttrs", "contrib_dense_strassen_weight_transform",
           "contrib_dense_strassen_without_weight_transform", "strassen_call"]  # fmt: skip
