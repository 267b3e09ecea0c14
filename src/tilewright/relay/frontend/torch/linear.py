"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.onnx.context import typed
from tilewright.relay.frontend.onnx.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.registry import converter


def product(ctx: TorchContext, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """Return numpy's ``matmul``; of integers, exact sums."""
    a, b = ctx.promoted(a, b)
    found: RelayExpr = ctx.part("MatMul", [a, b])
    return found


@converter("mm", "bmm", "matmul", "mv", "dot")
def convert_matmul(ctx: TorchContext, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """Product of matrices, with broadcasting of the leading dimensions."""
    return product(ctx, a, b)


@converter("linear")
def convert_linear(ctx: TorchContext, x: RelayExpr, weight: RelayExpr, bias: RelayExpr | None = None) -> RelayExpr:
    """x times the transposed weight, plus the bias."""
    dims, units = ctx.dims(x), ctx.dims(weight)[0]
    if ctx.rank(x) == 2 and 0 not in dims and is_number(units) and dt.is_float(ctx.dtype(x)):
        made = typed(relay_op.nn.dense(x, weight, units=units))
    else:
        turned = typed(relay_op.transpose(weight, axes=(1, 0))) if ctx.rank(weight) == 2 else weight
        made = product(ctx, x, turned)
    return made if bias is None else plus_bias(ctx, made, bias)


def plus_bias(ctx: TorchContext, x: RelayExpr, bias: RelayExpr) -> RelayExpr:
    """Add a vector along the last dimension, or what broadcasts."""
    units = ctx.dims(x)[-1] if ctx.rank(x) else None
    if ctx.rank(bias) == 1 and ctx.rank(x) > 1 and is_number(units) and ctx.dims(bias) == [units]:
        return relay_op.nn.bias_add(x, bias, axis=-1)
    return relay_op.add(x, bias)


@converter("addmm", "baddbmm", "addmv")
def convert_addmm(
    ctx: TorchContext, x: RelayExpr, a: RelayExpr, b: RelayExpr, beta: Any = 1, alpha: Any = 1
) -> RelayExpr:
    """beta * x + alpha * (a @ b)"""
    made = product(ctx, a, b)
    dtype = ctx.dtype(made)
    if alpha != 1:
        made = typed(relay_op.multiply(made, ctx.number(alpha, dtype)))
    if beta == 0:
        return made
    x = ctx.cast(x, dtype)
    return plus_bias(ctx, made, x if beta == 1 else typed(relay_op.multiply(x, ctx.number(beta, dtype))))


@converter("addbmm")
def convert_addbmm(
    ctx: TorchContext, x: RelayExpr, a: RelayExpr, b: RelayExpr, beta: Any = 1, alpha: Any = 1
) -> RelayExpr:
    """beta * x + alpha * sum(a @ b)"""
    made = typed(relay_op.sum(product(ctx, a, b), axis=0))
    dtype = ctx.dtype(made)
    return relay_op.add(
        relay_op.multiply(x, ctx.number(beta, dtype)), relay_op.multiply(made, ctx.number(alpha, dtype))
    )


@converter("outer", "ger")
def convert_outer(ctx: TorchContext, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """Products of all pairs."""
    a, b = ctx.promoted(a, b)
    return relay_op.multiply(relay_op.expand_dims(a, axis=1), relay_op.expand_dims(b, axis=0))


@converter("einsum")
def convert_einsum(ctx: TorchContext, equation: str, operands: Sequence[RelayExpr], path: Any = None) -> RelayExpr:
    """A product summed over the subscripts that the result lacks."""
    found: RelayExpr = ctx.part("Einsum", ctx.promoted(*operands), equation=equation)
    return found


@converter("linalg_inv_ex", in_float32=True)
def convert_inverse(ctx: TorchContext, a: RelayExpr, check_errors: bool = False) -> list[RelayExpr]:
    """The inverse, and no error."""
    return [ctx.part("Inverse", [a], domain="com.microsoft"), ctx.full(ctx.sizes(a)[:-2], 0, "int32")]


@converter("_linalg_det", in_float32=True)
def convert_det(ctx: TorchContext, a: RelayExpr) -> list[Any]:
    """The determinant; what its gradient needs is not computed."""
    return [ctx.part("Det", [a]), None, None]
