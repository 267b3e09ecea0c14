"""Reductions and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.registry import converter

Build = Callable[..., RelayExpr]


def reduced(ctx: TorchContext, build: Build, x: RelayExpr, dim: Any = None, keepdim: bool = False) -> RelayExpr:
    """Reduce over dimensions; None and an empty list are all."""
    rank = ctx.rank(x)
    if not rank:
        return x
    return typed(build(x, axis=ctx.axes(dim, rank), keepdims=bool(keepdim)))


def count_of(ctx: TorchContext, x: RelayExpr, dim: Any, dtype: str) -> RelayExpr:
    """Return how many elements are reduced to one, as a scalar."""
    extents = [ctx.dim_size(x, axis) for axis in (ctx.axes(dim, ctx.rank(x)) if ctx.rank(x) else ())]
    if all(map(is_number, extents)):
        return ctx.number(math.prod(extents), dtype)
    total: RelayExpr = ctx.scalar(1)
    for extent in extents:
        total = relay_op.multiply(total, ctx.scalar(extent))
    return ctx.cast(typed(total), dtype)


@converter("sum.dim_IntList")
def convert_sum(
    ctx: TorchContext, x: RelayExpr, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> RelayExpr:
    """Sum; of integers and bools in int64."""
    return reduced(ctx, relay_op.sum, ctx.cast(x, ctx.result_dtype()), dim, keepdim)


@converter("sum")
def convert_sum_of_all(ctx: TorchContext, x: RelayExpr, dtype: Any = None) -> RelayExpr:
    """Sum of all elements."""
    return convert_sum(ctx, x)


@converter("mean.dim", in_float32=True)
def convert_mean(
    ctx: TorchContext, x: RelayExpr, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> RelayExpr:
    """Mean."""
    x = ctx.cast(x, ctx.result_dtype()) if dtype is not None else x
    total = reduced(ctx, relay_op.sum, x, dim, keepdim)
    if all(is_number(d) and d for d in ctx.dims(x)) and ctx.rank(x):
        return reduced(ctx, relay_op.mean, x, dim, keepdim)
    return relay_op.divide(total, count_of(ctx, x, dim, ctx.dtype(x)))


@converter("mean", in_float32=True)
def convert_mean_of_all(ctx: TorchContext, x: RelayExpr, dtype: Any = None) -> RelayExpr:
    """Mean of all elements."""
    return convert_mean(ctx, x, None, False, dtype)


@converter("prod.dim_int")
def convert_prod(ctx: TorchContext, x: RelayExpr, dim: Any, keepdim: bool = False, dtype: Any = None) -> RelayExpr:
    """Product."""
    return reduced(ctx, relay_op.prod, ctx.cast(x, ctx.result_dtype()), dim, keepdim)


@converter("prod")
def convert_prod_of_all(ctx: TorchContext, x: RelayExpr, dtype: Any = None) -> RelayExpr:
    """Product of all elements."""
    return convert_prod(ctx, x, None)


def _extreme(ctx: TorchContext, build: Build, x: RelayExpr, dim: Any = None, keepdim: bool = False) -> RelayExpr:
    numbers = ctx.cast(x, "uint8") if dt.is_bool(ctx.dtype(x)) else x
    return reduced(ctx, build, numbers, dim, keepdim)


@converter("amax")
def convert_amax(ctx: TorchContext, x: RelayExpr, dim: Any = (), keepdim: bool = False) -> RelayExpr:
    """Maximum."""
    return _extreme(ctx, relay_op.max, x, dim, keepdim)


@converter("amin")
def convert_amin(ctx: TorchContext, x: RelayExpr, dim: Any = (), keepdim: bool = False) -> RelayExpr:
    """Minimum."""
    return _extreme(ctx, relay_op.min, x, dim, keepdim)


@converter("aminmax")
def convert_aminmax(ctx: TorchContext, x: RelayExpr, dim: Any = None, keepdim: bool = False) -> list[RelayExpr]:
    """Minimum and maximum."""
    return [_extreme(ctx, build, x, dim, keepdim) for build in (relay_op.min, relay_op.max)]


@converter("max")
def convert_max_of_all(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """Maximum of all elements."""
    return _extreme(ctx, relay_op.max, x)


@converter("min")
def convert_min_of_all(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """Minimum of all elements."""
    return _extreme(ctx, relay_op.min, x)


def _place(ctx: TorchContext, name: str, x: RelayExpr, dim: int | None, keepdim: bool) -> RelayExpr:
    """Return the position of an extreme element, of all elements or along a dimension."""
    if not ctx.rank(x):
        return ctx.full([], 0, "int64")
    numbers = ctx.cast(x, "uint8") if dt.is_bool(ctx.dtype(x)) else x
    if dim is None:
        flat = ctx.reshape(numbers, [-1])
        found: RelayExpr = ctx.part(name, [flat], axis=0, keepdims=0)
        return ctx.reshape(found, [1] * ctx.rank(x)) if keepdim else found
    along: RelayExpr = ctx.part(name, [numbers], axis=ctx.axis(dim, ctx.rank(x)), keepdims=int(keepdim))
    return along


@converter("argmax")
def convert_argmax(ctx: TorchContext, x: RelayExpr, dim: int | None = None, keepdim: bool = False) -> RelayExpr:
    """The first position of the maximum."""
    return _place(ctx, "ArgMax", x, dim, keepdim)


@converter("argmin")
def convert_argmin(ctx: TorchContext, x: RelayExpr, dim: int | None = None, keepdim: bool = False) -> RelayExpr:
    """The first position of the minimum."""
    return _place(ctx, "ArgMin", x, dim, keepdim)


@converter("max.dim")
def convert_max(ctx: TorchContext, x: RelayExpr, dim: int, keepdim: bool = False) -> list[RelayExpr]:
    """Maximum, and its first position."""
    return [_extreme(ctx, relay_op.max, x, dim, keepdim), _place(ctx, "ArgMax", x, dim, keepdim)]


@converter("min.dim")
def convert_min(ctx: TorchContext, x: RelayExpr, dim: int, keepdim: bool = False) -> list[RelayExpr]:
    """Minimum, and its first position."""
    return [_extreme(ctx, relay_op.min, x, dim, keepdim), _place(ctx, "ArgMin", x, dim, keepdim)]


@converter("any")
def convert_any(ctx: TorchContext, x: RelayExpr, dim: Any = None, keepdim: bool = False) -> RelayExpr:
    """Whether an element is not zero."""
    return reduced(ctx, relay_op.any, ctx.cast(x, "bool"), dim, keepdim)


@converter("all")
def convert_all(ctx: TorchContext, x: RelayExpr, dim: Any = None, keepdim: bool = False) -> RelayExpr:
    """Whether no element is zero."""
    return reduced(ctx, relay_op.all, ctx.cast(x, "bool"), dim, keepdim)


def _variance(ctx: TorchContext, x: RelayExpr, dim: Any, correction: Any, keepdim: bool) -> list[RelayExpr]:
    """Return variance and mean."""
    if not ctx.rank(x):
        return [ctx.full([], math.nan if correction else 0.0, ctx.dtype(x)), x]
    dtype = ctx.dtype(x)
    count = count_of(ctx, x, dim, dtype)
    mean = typed(relay_op.divide(reduced(ctx, relay_op.sum, x, dim, True), count))
    off = typed(relay_op.subtract(x, mean))
    total = reduced(ctx, relay_op.sum, typed(relay_op.multiply(off, off)), dim, keepdim)
    left = relay_op.maximum(relay_op.subtract(count, ctx.number(correction, dtype)), const(0.0, dtype))
    if not keepdim:
        mean = typed(relay_op.squeeze(mean, axis=list(ctx.axes(dim, ctx.rank(x)))))
    return [typed(relay_op.divide(total, left)), mean]


def _correction(given: Any) -> Any:
    return 1 if given is None or given is True else 0 if given is False else given


@converter("var.correction", in_float32=True)
def convert_var(
    ctx: TorchContext, x: RelayExpr, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> RelayExpr:
    """Variance: squares summed, divided by their number less the correction."""
    return _variance(ctx, x, dim, _correction(correction), keepdim)[0]


@converter("var.dim", in_float32=True)
def convert_var_dim(
    ctx: TorchContext, x: RelayExpr, dim: Any, unbiased: bool = True, keepdim: bool = False
) -> RelayExpr:
    """Variance of a sample, or of all."""
    return _variance(ctx, x, dim, _correction(unbiased), keepdim)[0]


@converter("var_mean.correction", in_float32=True)
def convert_var_mean(
    ctx: TorchContext, x: RelayExpr, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> list[RelayExpr]:
    """Variance and mean."""
    return _variance(ctx, x, dim, _correction(correction), keepdim)


@converter("std.correction", in_float32=True)
def convert_std(
    ctx: TorchContext, x: RelayExpr, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> RelayExpr:
    """Standard deviation."""
    return relay_op.sqrt(_variance(ctx, x, dim, _correction(correction), keepdim)[0])


@converter("logsumexp", in_float32=True)
def convert_logsumexp(ctx: TorchContext, x: RelayExpr, dim: Any, keepdim: bool = False) -> RelayExpr:
    """Logarithm of the sum of exponentials."""
    return reduced(ctx, relay_op.logsumexp, ctx.as_float(x), dim, keepdim)


@converter("linalg_vector_norm", in_float32=True)
def convert_vector_norm(
    ctx: TorchContext, x: RelayExpr, order: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> RelayExpr:
    """The norm of an order, also infinite; of order 0 how many elements are not zero."""
    x = ctx.as_float(x) if dtype is None else ctx.cast(x, ctx.result_dtype())
    own, size = ctx.dtype(x), typed(relay_op.abs(x))
    if math.isinf(order):
        return reduced(ctx, relay_op.max if order > 0 else relay_op.min, size, dim, keepdim)
    if order == 0:
        return reduced(ctx, relay_op.sum, ctx.cast(ctx.cast(x, "bool"), own), dim, keepdim)
    if order == 1:
        return reduced(ctx, relay_op.sum, size, dim, keepdim)
    if order == 2:
        return relay_op.sqrt(reduced(ctx, relay_op.sum, typed(relay_op.multiply(x, x)), dim, keepdim))
    total = reduced(ctx, relay_op.sum, typed(relay_op.power(size, const(float(order), own))), dim, keepdim)
    return relay_op.power(total, const(1.0 / order, own))


@converter("count_nonzero")
def convert_count_nonzero(ctx: TorchContext, x: RelayExpr, dim: Any = None) -> RelayExpr:
    """How many elements are not zero."""
    return reduced(ctx, relay_op.sum, ctx.cast(ctx.cast(x, "bool"), "int64"), dim)


@converter("cumsum")
def convert_cumsum(ctx: TorchContext, x: RelayExpr, dim: int, dtype: Any = None) -> RelayExpr:
    """Running sums."""
    x = ctx.cast(x, ctx.result_dtype())
    return relay_op.cumsum(x, axis=ctx.axis(dim, ctx.rank(x))) if ctx.rank(x) else x


@converter("cumprod")
def convert_cumprod(ctx: TorchContext, x: RelayExpr, dim: int, dtype: Any = None) -> RelayExpr:
    """Running products."""
    x = ctx.cast(x, ctx.result_dtype())
    return relay_op.cumprod(x, axis=ctx.axis(dim, ctx.rank(x))) if ctx.rank(x) else x
