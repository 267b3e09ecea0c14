"""Operators of com.microsoft that exporters and ONNX Runtime's optimizer emit, by its ContribOperators.md."""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.indices import checked_numbers
from tilewright.relay.frontend.onnx.linear import matmul
from tilewright.relay.frontend.onnx.microsoft_attention import places_along
from tilewright.relay.frontend.onnx.registry import converter

_DOMAIN = "com.microsoft"


def _scalar(ctx: NodeContext, value: float, like: RelayExpr) -> RelayExpr:
    return const(value, ctx.dtype(like))


# --------------------------------------------------------------------------------------------- products, activations


@converter("FusedMatMul", domain=_DOMAIN, in_float32=True)
def convert_fused_matmul(ctx: NodeContext) -> RelayExpr:
    """``alpha * A' B'``: transposed as the attributes say."""
    sides = []
    for index, name in enumerate("AB"):
        side = ctx.input(index)
        order = list(range(ctx.rank(side)))
        if ctx.attr(f"transBatch{name}", 0):  # the first axis goes before the last one
            order = [*order[1:-1], 0, order[-1]]
        if ctx.attr(f"trans{name}", 0) and len(order) > 1:
            order[-2:] = order[:-3:-1]
        sides.append(side if order == sorted(order) else typed(relay_op.transpose(side, order)))
    product = typed(matmul(ctx, sides[0], sides[1]))
    alpha = ctx.attr("alpha", 1.0)
    return product if alpha == 1.0 else relay_op.multiply(product, _scalar(ctx, alpha, product))


@converter("BiasGelu", "Gelu", domain=_DOMAIN, in_float32=True)
def convert_bias_gelu(ctx: NodeContext) -> RelayExpr:
    """gelu(x + bias)"""
    return relay_op.nn.gelu(_biased(ctx), "none")


@converter("FastGelu", domain=_DOMAIN, in_float32=True)
def convert_fast_gelu(ctx: NodeContext) -> RelayExpr:
    """gelu(x + bias) by tanh."""
    return relay_op.nn.gelu(_biased(ctx), "tanh")


def _biased(ctx: NodeContext) -> RelayExpr:
    return typed(relay_op.add(ctx.input(0), ctx.input(1))) if ctx.has_input(1) else ctx.input(0)


@converter("QuickGelu", domain=_DOMAIN, in_float32=True)
def convert_quick_gelu(ctx: NodeContext) -> RelayExpr:
    """x * sigmoid(alpha * x)"""
    data = ctx.input(0)
    scaled = relay_op.multiply(data, _scalar(ctx, ctx.attr("alpha", 1.702), data))
    return relay_op.multiply(data, relay_op.sigmoid(scaled))


# ---------------------------------------------------------------------------------------------------- normalization


def _normalized(
    ctx: NodeContext,
    data: RelayExpr,
    gamma: RelayExpr,
    beta: RelayExpr | None,
    centred: bool,
    epsilon: float = 1e-12,
    axes: tuple[int, ...] = (-1,),
) -> tuple[RelayExpr, RelayExpr, RelayExpr]:
    """Return the normalized ``axes``, their mean, and one over their deviation."""
    mean = typed(relay_op.mean(data, axis=axes, keepdims=True))
    middle = typed(relay_op.subtract(data, mean)) if centred else data
    power = relay_op.mean(relay_op.multiply(middle, middle), axis=axes, keepdims=True)
    factor = typed(relay_op.rsqrt(relay_op.add(power, _scalar(ctx, ctx.attr("epsilon", epsilon), data))))
    result = relay_op.multiply(relay_op.multiply(middle, factor), gamma)
    return typed(relay_op.add(result, beta) if beta is not None else result), mean, factor


def _skip(ctx: NodeContext, beta: int | None, bias: int, centred: bool) -> list[Any]:
    total: RelayExpr = relay_op.add(ctx.input(0), ctx.input(1))
    total = typed(relay_op.add(total, ctx.input(bias)) if ctx.has_input(bias) else total)
    shift = ctx.optional(beta) if beta is not None else None
    return [*_normalized(ctx, total, ctx.input(2), shift, centred), total][: ctx.num_outputs]


@converter("SkipLayerNormalization", domain=_DOMAIN, in_float32=True)
def convert_skip_layer_norm(ctx: NodeContext) -> Any:
    """Layer normalization of a sum: the result, mean, one over the deviation, and the sum."""
    return _skip(ctx, 3, 4, True)


@converter("SkipSimplifiedLayerNormalization", domain=_DOMAIN, in_float32=True)
def convert_skip_rms_norm(ctx: NodeContext) -> Any:
    """Normalization of a sum by its root mean square."""
    return _skip(ctx, None, 3, False)


@converter("SimplifiedLayerNormalization", domain=_DOMAIN, in_float32=True)
def convert_rms_norm(ctx: NodeContext) -> Any:
    """Normalization of the axes from ``axis`` on by their root mean square; ONNX Runtime writes it in ONNX's domain."""
    data = ctx.input(0)
    rank = ctx.rank(data)
    axis = ctx.normalize_axis(ctx.attr("axis", -1), rank)
    result, _, factor = _normalized(ctx, data, ctx.input(1), None, False, 1e-5, tuple(range(axis, rank)))
    return [result, factor][: ctx.num_outputs]


def embedded(ctx: NodeContext, table: int, places: int) -> RelayExpr:
    """Return the rows of the table in one input at the indices in another."""
    rows = ctx.input(table)
    return typed(relay_op.take(rows, checked_numbers(ctx, places, rows, 0, "index"), axis=0, mode="fast"))


def embedded_by_place(ctx: NodeContext, table: int) -> RelayExpr:
    """Return the first rows of a table, one for each column of the first input."""
    rows, places = ctx.input(table), places_along(ctx, ctx.input(0), 1)
    return typed(relay_op.take(rows, checked_numbers(ctx, table, rows, 0, "place", typed(places)), axis=0, mode="fast"))


@converter("EmbedLayerNormalization", domain=_DOMAIN, in_float32=True)
def convert_embed_layer_norm(ctx: NodeContext) -> Any:
    """Sums of embeddings by word, position and segment, normalized; the lengths of the sequences; and the sums."""
    total: RelayExpr = relay_op.add(
        embedded(ctx, 2, 0), embedded(ctx, 3, 8) if ctx.has_input(8) else embedded_by_place(ctx, 3)
    )
    total = typed(relay_op.add(total, embedded(ctx, 4, 1)) if ctx.has_input(1) else total)
    return [*normalized_embeddings(ctx, total, ctx.input(5), ctx.input(6)), total][: ctx.num_outputs]


def normalized_embeddings(ctx: NodeContext, total: RelayExpr, gamma: RelayExpr, beta: RelayExpr) -> list[RelayExpr]:
    """Return normalized sums of embeddings, and the lengths of the sequences by the mask in input 7."""
    mask = ctx.input(7) if ctx.has_input(7) else relay_op.zeros_like(ctx.input(0))
    lengths = relay_op.cast(relay_op.sum(relay_op.cast(mask, "int32"), axis=1), "int32")
    return [_normalized(ctx, total, gamma, beta, True)[0], lengths]
