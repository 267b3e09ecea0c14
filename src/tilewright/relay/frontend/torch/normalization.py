"""Normalizations and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.elementwise import refuse_training
from tilewright.relay.frontend.torch.registry import converter


def _softmax(ctx: TorchContext, build: Any, x: RelayExpr, dim: int) -> RelayExpr:
    x = ctx.cast(x, ctx.result_dtype())
    if not ctx.rank(x):
        return ctx.reshape(typed(build(ctx.reshape(x, [1]), axis=0)), [])
    return build(x, axis=ctx.axis(dim, ctx.rank(x)))


@converter("softmax.int", "_softmax")
def convert_softmax(ctx: TorchContext, x: RelayExpr, dim: int, _: Any = None) -> RelayExpr:
    """Softmax along a dimension."""
    return _softmax(ctx, relay_op.nn.softmax, x, dim)


@converter("log_softmax.int", "_log_softmax")
def convert_log_softmax(ctx: TorchContext, x: RelayExpr, dim: int, _: Any = None) -> RelayExpr:
    """Logarithm of softmax along a dimension."""
    return _softmax(ctx, relay_op.nn.log_softmax, x, dim)


@converter("_safe_softmax")
def convert_safe_softmax(ctx: TorchContext, x: RelayExpr, dim: int, _: Any = None) -> RelayExpr:
    """Softmax; zeros where a whole row is minus infinity."""
    none = relay_op.equal(relay_op.max(x, axis=dim, keepdims=True), const(float("-inf"), ctx.dtype(x)))
    made = _softmax(ctx, relay_op.nn.softmax, x, dim)
    return relay_op.where(none, const(0.0, ctx.dtype(made)), made)


def _vector(ctx: TorchContext, given: RelayExpr | None, channels: Any, value: float, dtype: str) -> RelayExpr:
    return ctx.full([channels], value, dtype) if given is None else ctx.cast(given, dtype)


def normalized_by(
    ctx: TorchContext, x: RelayExpr, weight: RelayExpr | None, bias: RelayExpr | None, mean: RelayExpr, var: RelayExpr,
    eps: float,
) -> RelayExpr:  # fmt: skip
    """Return (x - mean) / sqrt(var + eps) * weight + bias, by channels."""
    dtype, channels = ctx.dtype(x), ctx.dims(x)[1]
    scale = _vector(ctx, weight, channels, 1.0, dtype)
    shift = _vector(ctx, bias, channels, 0.0, dtype)
    found = relay_op.nn.batch_norm(x, scale, shift, ctx.cast(mean, dtype), ctx.cast(var, dtype), axis=1, epsilon=eps)
    return typed(found[0])


@converter("batch_norm")
def convert_batch_norm(
    ctx: TorchContext, x: RelayExpr, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
    eps: float, _: bool = False,
) -> RelayExpr:  # fmt: skip
    """Normalization by running statistics; of the batch's own where there are none."""
    if training and mean is not None:
        refuse_training(ctx, "normalizes by each batch's own mean and variance")
    if training or mean is None:
        return _by_own_statistics(ctx, x, weight, bias, eps)[0]
    return normalized_by(ctx, x, weight, bias, mean, var, eps)


@converter("_native_batch_norm_legit_no_training")
def convert_batch_norm_no_training(
    ctx: TorchContext,
    x: RelayExpr,
    weight: Any,
    bias: Any,
    mean: RelayExpr,
    var: RelayExpr,
    momentum: float,
    eps: float,
) -> list[Any]:
    """Normalization by running statistics; nothing is saved for training."""
    nothing = ctx.full([0], 0.0, "float32")
    return [normalized_by(ctx, x, weight, bias, mean, var, eps), nothing, nothing]


def _by_own_statistics(ctx: TorchContext, x: RelayExpr, weight: Any, bias: Any, eps: float) -> list[RelayExpr]:
    """Normalize by the batch's own mean and variance; return also the mean and 1 / sqrt(variance + eps)."""
    axes = [axis for axis in range(ctx.rank(x)) if axis != 1]
    wide = ctx.cast(x, "float32") if dt.is_half(ctx.dtype(x)) else x
    mean, var = typed(relay_op.mean(wide, axis=axes)), typed(relay_op.variance(wide, axis=axes))
    made = normalized_by(ctx, wide, weight, bias, mean, var, eps)
    inverse = relay_op.rsqrt(relay_op.add(var, const(eps, ctx.dtype(wide))))
    return [ctx.cast(made, ctx.dtype(x)), mean, typed(inverse)]


@converter("_native_batch_norm_legit.no_stats")
def convert_batch_norm_no_stats(
    ctx: TorchContext, x: RelayExpr, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> list[RelayExpr]:
    """Normalization by the batch's own mean and variance, as instance normalization does."""
    return _by_own_statistics(ctx, x, weight, bias, eps)


@converter("_native_batch_norm_legit", "native_batch_norm")
def convert_native_batch_norm(
    ctx: TorchContext, x: RelayExpr, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
    eps: float,
) -> list[Any]:  # fmt: skip
    """Normalization by running statistics, or by the batch's own."""
    if training or mean is None:
        return _by_own_statistics(ctx, x, weight, bias, eps)
    return convert_batch_norm_no_training(ctx, x, weight, bias, mean, var, momentum, eps)


@converter("_native_batch_norm_legit_functional")
def convert_functional_batch_norm(
    ctx: TorchContext, x: RelayExpr, weight: Any, bias: Any, mean: RelayExpr, var: RelayExpr, training: bool,
    momentum: float, eps: float,
) -> list[RelayExpr]:  # fmt: skip
    """Normalization by the batch's own statistics, which also move the running ones."""
    made, own, inverse = _by_own_statistics(ctx, x, weight, bias, eps)
    axes = [axis for axis in range(ctx.rank(x)) if axis != 1]
    count = ctx.full([], 1.0, "float32")
    for axis in axes:
        count = typed(relay_op.multiply(count, ctx.cast(ctx.scalar(ctx.dim_size(x, axis)), "float32")))
    dtype = ctx.dtype(mean)
    spread = relay_op.variance(ctx.cast(x, dtype), axis=axes)
    unbiased = relay_op.multiply(spread, relay_op.divide(count, relay_op.subtract(count, const(1.0, "float32"))))
    keep, take = const(1 - momentum, dtype), const(momentum, dtype)
    moved = [
        typed(relay_op.add(relay_op.multiply(old, keep), relay_op.multiply(new, take)))
        for old, new in ((mean, own), (var, unbiased))
    ]
    return [made, own, inverse, *moved]


@converter("layer_norm")
def convert_layer_norm(
    ctx: TorchContext, x: RelayExpr, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5,
    _: bool = True,
) -> RelayExpr:  # fmt: skip
    """Normalization over the trailing dimensions."""
    return _layer_norm(ctx, x, shape, weight, bias, eps, 1)[0]


@converter("native_layer_norm")
def convert_native_layer_norm(
    ctx: TorchContext, x: RelayExpr, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> list[Any]:
    """Normalization over the trailing dimensions, with the mean and 1 / sqrt(variance + eps)."""
    users = {user.args[1] for user in ctx.node.users if len(user.args) > 1}
    if users <= {0}:
        return [_layer_norm(ctx, x, shape, weight, bias, eps, 1)[0], None, None]
    return _layer_norm(ctx, x, shape, weight, bias, eps, 3)


def _layer_norm(
    ctx: TorchContext, x: RelayExpr, shape: Sequence[Any], weight: Any, bias: Any, eps: float, outputs: int
) -> list[RelayExpr]:
    axis, dtype = ctx.rank(x) - len(shape), ctx.dtype(x)
    if not all(map(is_number, shape)):
        ctx.unsupported("normalization over dimensions that are not known while compiling")
    scale = ctx.full(shape, 1.0, dtype) if weight is None else weight
    if 0 in ctx.dims(x):
        return [x]
    made = ctx.part("LayerNormalization", [x, scale, bias], axis=axis, epsilon=eps, outputs=outputs)
    return made if outputs > 1 else [made]


@converter("rms_norm", in_float32=True)
def convert_rms_norm(
    ctx: TorchContext, x: RelayExpr, shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> RelayExpr:
    """x divided by the root of the mean of its squares over the trailing dimensions, times the weight."""
    dtype, axes = ctx.dtype(x), list(range(ctx.rank(x) - len(shape), ctx.rank(x)))
    small = eps if eps is not None else {"float64": 2.220446049250313e-16}.get(dtype, 1.1920928955078125e-07)
    mean = relay_op.mean(relay_op.multiply(x, x), axis=axes, keepdims=True)
    made = relay_op.multiply(x, relay_op.rsqrt(relay_op.add(mean, const(small, dtype))))
    return made if weight is None else relay_op.multiply(made, weight)


@converter("group_norm")
def convert_group_norm(
    ctx: TorchContext,
    x: RelayExpr,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    _: bool = True,
) -> RelayExpr:
    """Normalization of groups of channels."""
    dtype, channels = ctx.dtype(x), ctx.dims(x)[1]
    if 0 in ctx.dims(x):
        return x
    if ctx.is_dynamic(x):
        return _group_norm_of_any_size(ctx, x, groups, weight, bias, eps)
    scale, shift = _vector(ctx, weight, channels, 1.0, dtype), _vector(ctx, bias, channels, 0.0, dtype)
    return relay_op.nn.group_norm(x, scale, shift, int(groups), axis=1, epsilon=eps)


def _group_norm_of_any_size(
    ctx: TorchContext, x: RelayExpr, groups: int, weight: RelayExpr | None, bias: RelayExpr | None, eps: float
) -> RelayExpr:
    """Normalize groups of channels by the mean and variance of each, of sizes that are known at run time only."""
    wide = ctx.cast(x, "float32") if dt.is_half(ctx.dtype(x)) else x
    sizes = ctx.sizes(wide)
    rows = ctx.reshape(wide, [sizes[0], groups, -1])
    off = relay_op.subtract(rows, relay_op.mean(rows, axis=[2], keepdims=True))
    spread = relay_op.mean(relay_op.multiply(off, off), axis=[2], keepdims=True)
    made = relay_op.multiply(off, relay_op.rsqrt(relay_op.add(spread, const(eps, ctx.dtype(rows)))))
    found = typed(relay_op.reshape_like(made, wide))
    for parameter, join in ((weight, relay_op.multiply), (bias, relay_op.add)):
        if parameter is not None:
            column = relay_op.expand_dims(parameter, axis=1, num_newaxis=ctx.rank(x) - 2)
            found = typed(join(found, ctx.cast(typed(column), ctx.dtype(found))))
    return found


@converter("native_group_norm")
def convert_native_group_norm(
    ctx: TorchContext,
    x: RelayExpr,
    weight: Any,
    bias: Any,
    batch: Any,
    channels: Any,
    size: Any,
    groups: int,
    eps: float,
) -> list[RelayExpr]:
    """Normalization of groups of channels, with the mean and 1 / sqrt(variance + eps) of each group."""
    rows = ctx.reshape(x, [batch, groups, -1])
    rows = ctx.cast(rows, "float32") if dt.is_half(ctx.dtype(x)) else rows
    mean, var = typed(relay_op.mean(rows, axis=[2])), typed(relay_op.variance(rows, axis=[2]))
    inverse = typed(relay_op.rsqrt(relay_op.add(var, const(eps, ctx.dtype(rows)))))
    return [convert_group_norm(ctx, x, groups, weight, bias, eps), mean, inverse]


@converter("instance_norm")
def convert_instance_norm(
    ctx: TorchContext, x: RelayExpr, weight: Any, bias: Any, mean: Any, var: Any, own: bool, momentum: float,
    eps: float, _: bool = False,
) -> RelayExpr:  # fmt: skip
    """Normalization of each channel of each item by its own statistics."""
    if not own:
        return normalized_by(ctx, x, weight, bias, mean, var, eps)
    dtype, channels = ctx.dtype(x), ctx.dims(x)[1]
    scale, shift = _vector(ctx, weight, channels, 1.0, dtype), _vector(ctx, bias, channels, 0.0, dtype)
    return relay_op.nn.instance_norm(x, scale, shift, axis=1, epsilon=eps)
