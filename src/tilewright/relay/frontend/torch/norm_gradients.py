"""Gradients of normalizations and tables, which graphs of training hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.registry import converter, refuse

refuse("memory that changes its size", "resize_")


def _of_data(g: RelayExpr, normal: RelayExpr, inverse: RelayExpr, axes: Sequence[int]) -> RelayExpr:
    """Return the gradient of data that are normalized over ``axes``, from that of the normal numbers."""
    means = [relay_op.mean(v, axis=axes, keepdims=True) for v in (g, relay_op.multiply(g, normal))]
    inner = relay_op.subtract(relay_op.subtract(g, means[0]), relay_op.multiply(normal, means[1]))
    return typed(relay_op.multiply(inverse, inner))


@converter("native_layer_norm_backward", in_float32=True)
def convert_layer_norm_backward(
    ctx: TorchContext, grad: RelayExpr, x: RelayExpr, shape: Sequence[int], mean: RelayExpr, inverse: RelayExpr,
    weight: Any, bias: Any, mask: Sequence[bool],
) -> list[Any]:  # fmt: skip
    """The gradients of data, weight and bias."""
    rank = ctx.rank(x)
    axes, lead = list(range(rank - len(shape), rank)), list(range(rank - len(shape)))
    normal = typed(relay_op.multiply(relay_op.subtract(x, mean), inverse))
    scaled = grad if weight is None else relay_op.multiply(grad, weight)
    data = _of_data(scaled, normal, inverse, axes) if mask[0] else None
    product = relay_op.multiply(grad, normal)
    own = [typed(relay_op.sum(v, axis=lead) if lead else v) for v in (product, grad)]
    return [data, own[0] if mask[1] else None, own[1] if mask[2] else None]


@converter("native_group_norm_backward", in_float32=True)
def convert_group_norm_backward(
    ctx: TorchContext, grad: RelayExpr, x: RelayExpr, mean: RelayExpr, inverse: RelayExpr, weight: Any, batch: Any,
    channels: int, size: Any, groups: int, mask: Sequence[bool],
) -> list[Any]:  # fmt: skip
    """The gradients of data, weight and bias."""
    shape = [batch, groups, channels // groups, size]
    rows, g = ctx.reshape(x, shape), ctx.reshape(grad, shape)
    middle, scale = (ctx.reshape(v, [batch, groups, 1, 1]) for v in (mean, inverse))
    normal = typed(relay_op.multiply(relay_op.subtract(rows, middle), scale))
    factors = None if weight is None else ctx.reshape(weight, [1, groups, channels // groups, 1])
    scaled = g if factors is None else relay_op.multiply(g, factors)
    data = ctx.reshape(_of_data(scaled, normal, scale, [2, 3]), ctx.sizes(x)) if mask[0] else None
    sums = [typed(relay_op.sum(v, axis=[0, 3])) for v in (relay_op.multiply(g, normal), g)]
    own = [ctx.reshape(v, [channels]) for v in sums]
    return [data, own[0] if mask[1] else None, own[1] if mask[2] else None]


@converter("embedding_dense_backward", in_float32=True)
def convert_embedding_backward(
    ctx: TorchContext, grad: RelayExpr, indices: RelayExpr, rows: Any, padding: int, by_frequency: bool
) -> RelayExpr:
    """The gradient of a table: those of its rows, summed where they were read."""
    if by_frequency:
        ctx.unsupported("scale_grad_by_freq")
    width = ctx.dim_size(grad, ctx.rank(grad) - 1)
    flat = ctx.reshape(ctx.cast(indices, "int64"), [-1])
    updates = ctx.reshape(grad, [-1, width])
    if padding >= 0:
        kept = relay_op.expand_dims(relay_op.not_equal(flat, ctx.scalar(padding)), axis=1)
        updates = typed(relay_op.where(kept, updates, ctx.number(0.0, ctx.dtype(updates))))
    empty = ctx.full([rows, width], 0, ctx.dtype(grad))
    found: RelayExpr = ctx.part(
        "ScatterND", [empty, typed(relay_op.expand_dims(flat, axis=1)), updates], reduction="add"
    )
    return found
