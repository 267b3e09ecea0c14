"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.elementwise import like, refuse_training
from tilewright.relay.frontend.torch.linear import product
from tilewright.relay.frontend.torch.registry import converter
from tilewright.relay.op.nn.attention import attention


@converter("scaled_dot_product_attention")
def convert_attention(
    ctx: TorchContext, query: RelayExpr, key: RelayExpr, value: RelayExpr, mask: RelayExpr | None = None,
    dropout: float = 0.0, causal: bool = False, scale: float | None = None, grouped: bool = False,
) -> RelayExpr:  # fmt: skip
    """softmax(query @ key.T * scale + mask) @ value; rows that see no key are 0."""
    if dropout:
        refuse_training(ctx, "drops elements at random")
    if grouped:
        key, value = (_heads_repeated(ctx, query, x) for x in (key, value))
    seen = None
    if causal:
        mask = _causal(ctx, query, key)
    elif mask is not None and dt.is_bool(ctx.dtype(mask)):
        seen = typed(relay_op.any(mask, axis=[ctx.rank(mask) - 1], keepdims=True))
    added = None if mask is None else _added(ctx, mask, ctx.dtype(query))
    made = _attended(ctx, query, key, value, added, scale)
    return made if seen is None else relay_op.where(seen, made, const(0.0, ctx.dtype(made)))


def _added(ctx: TorchContext, mask: RelayExpr, dtype: str) -> RelayExpr:
    """Return what is added to the scores: 0 for true and a least number for false: infinity would become NaN."""
    if not dt.is_bool(ctx.dtype(mask)):
        return ctx.cast(mask, dtype)
    least = -65504.0 if dtype == "float16" else -3.0e38
    return typed(relay_op.where(mask, const(0.0, dtype), const(least, dtype)))


def _heads_repeated(ctx: TorchContext, query: RelayExpr, x: RelayExpr) -> RelayExpr:
    heads, own = ctx.extent(query, -3), ctx.extent(x, -3)
    return x if heads == own else typed(relay_op.repeat(x, heads // own, axis=ctx.rank(x) - 3))


def _causal(ctx: TorchContext, query: RelayExpr, key: RelayExpr) -> RelayExpr:
    """Return which keys each row sees: those up to its own place."""
    rows, keys = ctx.dim_size(query, -2 % ctx.rank(query)), ctx.dim_size(key, -2 % ctx.rank(key))
    if is_number(rows) and is_number(keys):
        return const(np.tri(rows, keys, dtype=bool), "bool")
    a, b = (ctx.part("Range", [ctx.scalar(0), ctx.scalar(n), ctx.scalar(1)]) for n in (rows, keys))
    return typed(relay_op.greater_equal(relay_op.expand_dims(a, axis=1), b))


def _attended(
    ctx: TorchContext, query: RelayExpr, key: RelayExpr, value: RelayExpr, mask: RelayExpr | None, scale: float | None
) -> RelayExpr:
    """Compute attention by Relay's operator where it has the form for it."""
    factor = _known_scale(ctx, query, scale)
    ranks = {ctx.rank(x) for x in (query, key, value)}
    sizes = [ctx.dims(x)[:2] for x in (query, key, value)]
    same = all(len(set(map(id, pair))) == 1 or _equal(pair) for pair in zip(*sizes, strict=True))
    some = 0 not in (*ctx.dims(query), *ctx.dims(value))
    if ranks == {4} and same and dt.is_float(ctx.dtype(query)) and some and factor is not None:
        if mask is not None:
            lead = 4 - ctx.rank(mask)
            mask = typed(relay_op.expand_dims(mask, axis=0, num_newaxis=lead)) if lead else mask
        return ctx.permute(typed(attention(query, key, value, mask, factor)), [0, 2, 1, 3])
    scores = _scores(ctx, query, key, mask, False, scale)
    return product(ctx, typed(relay_op.nn.softmax(scores, axis=ctx.rank(scores) - 1)), value)


def _equal(values: Any) -> bool:
    return all(is_number(v) for v in values) and len(set(values)) == 1


@converter("_scaled_dot_product_flash_attention_for_cpu")
def convert_flash_attention(
    ctx: TorchContext, query: RelayExpr, key: RelayExpr, value: RelayExpr, dropout: float = 0.0, causal: bool = False,
    mask: RelayExpr | None = None, scale: float | None = None,
) -> list[Any]:  # fmt: skip
    """Attention; and the logarithm of the sum of each row's exponentials where something reads it, as gradients do."""
    if not ctx.reads(1):
        return [convert_attention(ctx, query, key, value, mask, dropout, causal, scale), None]
    if dropout:
        refuse_training(ctx, "drops elements at random")
    dtype = ctx.dtype(query)
    wide, _ = ctx.in_float32([query, key, value])
    scores = _scores(ctx, wide[0], wide[1], mask, causal, scale)
    last = ctx.rank(scores) - 1
    top = typed(relay_op.max(scores, axis=last, keepdims=True))
    top = typed(relay_op.where(relay_op.isinf(top), like(ctx, 0.0, top), top))
    shares = typed(relay_op.exp(relay_op.subtract(scores, top)))
    total = typed(relay_op.sum(shares, axis=last, keepdims=True))
    empty = typed(relay_op.equal(total, like(ctx, 0.0, total)))
    total = typed(relay_op.where(empty, like(ctx, 1.0, total), total))
    made = relay_op.divide(product(ctx, shares, wide[2]), total)
    sums = relay_op.where(empty, like(ctx, 0.0, top), relay_op.add(top, relay_op.log(total)))
    return [ctx.cast(typed(made), dtype), typed(relay_op.squeeze(sums, axis=[last]))]


def _scores(
    ctx: TorchContext, query: RelayExpr, key: RelayExpr, mask: RelayExpr | None, causal: bool, scale: float | None
) -> RelayExpr:
    """Return scaled products of queries and keys; minus infinity where a row does not see a key."""
    scores = typed(relay_op.multiply(product(ctx, query, _turned(ctx, key)), _scale(ctx, query, scale)))
    unseen = const(-math.inf, ctx.dtype(scores))
    if causal:
        return typed(relay_op.where(_causal(ctx, query, key), scores, unseen))
    if mask is None:
        return scores
    if dt.is_bool(ctx.dtype(mask)):
        return typed(relay_op.where(mask, scores, unseen))
    return typed(relay_op.add(scores, ctx.cast(mask, ctx.dtype(scores))))


def _turned(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    rank = ctx.rank(x)
    return ctx.permute(x, [*range(rank - 2), rank - 1, rank - 2])


def _known_scale(ctx: TorchContext, query: RelayExpr, scale: float | None) -> float | None:
    """Return the factor of scores, one over the root of the queries' depth by default; None where that has a name."""
    depth = ctx.dims(query)[-1]
    if scale is not None or not is_number(depth):
        return scale
    return 1 / math.sqrt(depth) if depth else 1.0


def _scale(ctx: TorchContext, query: RelayExpr, scale: float | None) -> RelayExpr:
    """Return the factor of scores as a scalar; of a named depth it is computed."""
    known = _known_scale(ctx, query, scale)
    if known is not None:
        return const(known, ctx.dtype(query))
    depth = ctx.number(ctx.dim_size(query, ctx.rank(query) - 1), "float32")
    return ctx.cast(typed(relay_op.rsqrt(depth)), ctx.dtype(query))


@converter("_scaled_dot_product_flash_attention_for_cpu_backward", in_float32=True)
def convert_flash_attention_backward(
    ctx: TorchContext, grad: RelayExpr, query: RelayExpr, key: RelayExpr, value: RelayExpr, out: RelayExpr,
    sums: RelayExpr, dropout: float = 0.0, causal: bool = False, mask: RelayExpr | None = None,
    scale: float | None = None,
) -> list[RelayExpr]:  # fmt: skip
    """The gradients of queries, keys and values: FlashAttention (Dao et al., 2022), appendix B.2, in one piece."""
    if dropout:
        refuse_training(ctx, "drops elements at random")
    last = ctx.rank(query) - 1
    scores = _scores(ctx, query, key, mask, causal, scale)
    shares = typed(relay_op.exp(relay_op.subtract(scores, relay_op.expand_dims(sums, axis=last))))
    inner = relay_op.sum(relay_op.multiply(grad, out), axis=last, keepdims=True)
    own = product(ctx, grad, _turned(ctx, value))
    of_scores = typed(relay_op.multiply(shares, relay_op.subtract(own, inner)))
    of_scores = typed(relay_op.multiply(of_scores, _scale(ctx, query, scale)))
    return [
        product(ctx, of_scores, key),
        product(ctx, _turned(ctx, of_scores), query),
        product(ctx, _turned(ctx, shares), grad),
    ]


@converter("_scaled_dot_product_attention_math")
def convert_attention_math(
    ctx: TorchContext, query: RelayExpr, key: RelayExpr, value: RelayExpr, mask: RelayExpr | None = None,
    dropout: float = 0.0, causal: bool = False, dropout_mask: Any = None, scale: float | None = None,
    grouped: bool = False,
) -> list[Any]:  # fmt: skip
    """Attention; the weights are not returned."""
    return [convert_attention(ctx, query, key, value, mask, dropout, causal, scale, grouped), None]
