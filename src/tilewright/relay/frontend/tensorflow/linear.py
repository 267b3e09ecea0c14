"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.tensorflow.context import NodeContext
from tilewright.relay.frontend.tensorflow.registry import converter


def turned(ctx: NodeContext, data: RelayExpr, name: str) -> RelayExpr:
    """Return matrices, transposed where an attribute says so."""
    if not ctx.attr(name, False):
        return data
    rank = ctx.rank(data)
    return ctx.part("Transpose", [data], perm=[*range(rank - 2), rank - 1, rank - 2])


@converter("MatMul")
def convert_mat_mul(ctx: NodeContext) -> RelayExpr:
    """Product of two matrices, each perhaps transposed."""
    a, b = ctx.inputs()
    if not ctx.importer.config.get("use_dense", True):
        turns = [bool(ctx.attr(f"transpose_{side}", False)) for side in "ab"]
        return typed(relay_op.nn.matmul(a, b, transpose_a=turns[0], transpose_b=turns[1]))
    a, b = turned(ctx, a, "transpose_a"), turned(ctx, b, "transpose_b")
    return ctx.part("MatMul", [a, b])


@converter("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def convert_batch_mat_mul(ctx: NodeContext) -> RelayExpr:
    """Products of matrices; what is before the last two dimensions broadcasts."""
    a, b = ctx.inputs()
    wanted = ctx.attr("Tout") or ctx.dtype(a)
    if dt.is_int(ctx.dtype(a)) and wanted != ctx.dtype(a):
        a, b = ctx.cast(a, wanted), ctx.cast(b, wanted)
    return ctx.part("MatMul", [turned(ctx, a, "adj_x"), turned(ctx, b, "adj_y")])


@converter("Einsum")
def convert_einsum(ctx: NodeContext) -> RelayExpr:
    """Sums of products, as an equation says."""
    return ctx.part("Einsum", ctx.inputs(), equation=ctx.text("equation"))


@converter("Cross")
def convert_cross(ctx: NodeContext) -> RelayExpr:
    """Vectors at right angles to two others, along the last axis of 3."""
    a, b = ctx.inputs()
    axis = ctx.rank(a) - 1

    def rolled(x: RelayExpr, order: Sequence[int]) -> RelayExpr:
        return typed(relay_op.take(x, ctx.int64(order), axis=axis))

    left = relay_op.multiply(rolled(a, (1, 2, 0)), rolled(b, (2, 0, 1)))
    return typed(relay_op.subtract(left, relay_op.multiply(rolled(a, (2, 0, 1)), rolled(b, (1, 2, 0)))))


@converter("MatrixInverse")
def convert_matrix_inverse(ctx: NodeContext) -> RelayExpr:
    """Inverses of matrices."""
    found = ctx.part("Inverse", [ctx.input(0)], domain="com.microsoft")
    return turned(ctx, found, "adjoint")


@converter("MatrixDeterminant")
def convert_matrix_determinant(ctx: NodeContext) -> RelayExpr:
    """Determinants of matrices."""
    return ctx.part("Det", [ctx.input(0)])
