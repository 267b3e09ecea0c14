"""Products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.registry import converter


def product(ctx: TorchContext, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """Return numpy's ``matmul``; of integers, exact sums."""
    if ctx.dtype(a) != ctx.dtype(b):  # torch.export lets it pass, and eager torch does not
        ctx.fail(f"a product takes matrices of one data type, and they are {ctx.dtype(a)} and {ctx.dtype(b)}")
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
    same = ctx.dtype(x) == ctx.dtype(weight) and dt.is_float(ctx.dtype(x))
    if ctx.rank(x) == ctx.rank(weight) == 2 and 0 not in dims and is_number(units) and same:
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


@converter("_trilinear", in_float32=True)
def convert_trilinear(
    ctx: TorchContext, a: RelayExpr, b: RelayExpr, c: RelayExpr, expand_a: Sequence[int], expand_b: Sequence[int],
    expand_c: Sequence[int], sums: Sequence[int], unroll: int = 1,
) -> RelayExpr:  # fmt: skip
    """Products of three tensors with inserted dimensions, summed."""
    found: RelayExpr | None = None
    for x, places in ((a, expand_a), (b, expand_b), (c, expand_c)):
        for place in sorted(places):
            x = typed(relay_op.expand_dims(x, axis=place))
        found = x if found is None else typed(relay_op.multiply(found, x))
    assert found is not None
    return relay_op.sum(found, axis=tuple(sums)) if sums else found


def _distance(ctx: TorchContext, off: RelayExpr, p: float) -> RelayExpr:
    """Return the p-norm along the last dimension."""
    axis, dtype, size = ctx.rank(off) - 1, ctx.dtype(off), relay_op.abs(off)
    if p == 0:
        return relay_op.sum(relay_op.cast(relay_op.not_equal(off, const(0.0, dtype)), dtype), axis=axis)
    if p == 2:
        return relay_op.sqrt(relay_op.sum(relay_op.multiply(off, off), axis=axis))
    if p == math.inf:
        return relay_op.max(size, axis=axis)
    total = relay_op.sum(size if p == 1 else relay_op.power(size, const(float(p), dtype)), axis=axis)
    return total if p == 1 else relay_op.power(total, const(1.0 / p, dtype))


@converter("_cdist_forward", in_float32=True)
def convert_cdist(ctx: TorchContext, a: RelayExpr, b: RelayExpr, p: float, mode: Any = None) -> RelayExpr:
    """The distances of all pairs of rows."""
    off = relay_op.subtract(
        relay_op.expand_dims(a, axis=ctx.rank(a) - 1), relay_op.expand_dims(b, axis=ctx.rank(b) - 2)
    )
    return _distance(ctx, typed(off), p)


@converter("_pdist_forward", in_float32=True)
def convert_pdist(ctx: TorchContext, a: RelayExpr, p: float = 2.0) -> RelayExpr:
    """The distances of each row to those after it."""
    first, second = np.triu_indices(ctx.extent(a, 0), 1)
    rows = [relay_op.take(a, const(places.astype("int64")), axis=0) for places in (first, second)]
    return _distance(ctx, typed(relay_op.subtract(*rows)), p)
