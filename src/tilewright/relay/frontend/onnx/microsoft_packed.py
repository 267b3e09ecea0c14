"""Attention of com.microsoft over packed sequences: tokens of all of a batch one after the other, without padding.

Before, of sequences of 1, 2 and 4 tokens, 7 rows::

    PackedMultiHeadAttention(q, k, v, bias, token_offset (3, 4), [0, 1, 3, 7])

The rows go to their places in (3, 4), keys that are no tokens are masked, and the 7 rows are taken out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.indices import checked_range
from tilewright.relay.frontend.onnx.linear import matmul
from tilewright.relay.frontend.onnx.microsoft_attention import attended, heads_of, lowest_where_not, places_along
from tilewright.relay.frontend.onnx.registry import converter

_DOMAIN = "com.microsoft"


@converter("PackedAttention", domain=_DOMAIN, in_float32=True)
def convert_packed_attention(ctx: NodeContext) -> RelayExpr:
    """Self-attention of packed tokens by joint weights for queries, keys and values."""
    joint = typed(relay_op.add(matmul(ctx, ctx.input(0), ctx.input(1)), ctx.input(2)))
    sizes = ctx.attr("qkv_hidden_sizes") or (ctx.extent(joint, 1) // 3,) * 3
    parts = relay_op.split(joint, tuple(np.cumsum(sizes)[:-1].tolist()), axis=1)
    return _attention(ctx, [typed(part) for part in parts], 3)


@converter("PackedMultiHeadAttention", domain=_DOMAIN, in_float32=True)
def convert_packed_multi_head_attention(ctx: NodeContext) -> RelayExpr:
    """Attention of packed tokens: queries, keys and values, (tokens, features) each, or (tokens, heads, 3, size)."""
    first = ctx.input(0)
    parts: list[RelayExpr]
    if ctx.rank(first) == 4:
        parts = [relay_op.reshape(relay_op.take(first, const(i, "int32"), axis=2), (0, -3)) for i in range(3)]
    else:
        parts = [first, ctx.input(1), ctx.input(2)]
    parts = [typed(part) for part in parts]
    if ctx.has_input(3):
        widths = [ctx.extent(part, 1) for part in parts]
        biases = relay_op.split(ctx.input(3), tuple(np.cumsum(widths)[:-1].tolist()), axis=0)
        parts = [typed(relay_op.add(part, bias)) for part, bias in zip(parts, biases, strict=True)]
    return _attention(ctx, parts, 4)


@dataclass(frozen=True)
class _Places:
    """Where tokens are: ``starts`` and ``lengths`` of sequences, (batch, 1) in int32, and how many each may have."""

    starts: RelayExpr
    lengths: RelayExpr
    batch: int
    most: int


def _places(ctx: NodeContext, index: int) -> _Places:
    """Read ``token_offset``, of which the shape alone counts, and the ends of sequences behind it."""
    batch, most = (ctx.extent(ctx.input(index), axis) for axis in range(2))
    ends = typed(relay_op.reshape(relay_op.cast(ctx.input(index + 1), "int32"), (-1, 1)))
    if ctx.extent(ends, 0) != batch + 1:
        ctx.fail(f"{ctx.extent(ends, 0)} cumulative lengths for a batch of {batch}; expected {batch + 1}")
    starts, after = (relay_op.strided_slice(ends, [i], [batch + i], axes=[0]) for i in range(2))
    lengths = typed(relay_op.subtract(after, starts))
    return _Places(starts, checked_range(ctx, index + 1, most + 1, "length of a sequence", values=lengths), batch, most)


def _attention(ctx: NodeContext, parts: Sequence[RelayExpr], index: int) -> RelayExpr:
    """Return attention within sequences, (tokens, features); ``index`` is the input with the tokens' offsets."""
    places, heads = _places(ctx, index), ctx.required("num_heads")
    if not places.batch or not places.most or ctx.dims(parts[2])[0] == 0:
        return relay_op.zeros_like(parts[2])
    spread = [heads_of(ctx, _spread(ctx, part, places), heads) for part in parts]
    at = places_along(ctx, spread[1], 2)
    keep = typed(relay_op.expand_dims(relay_op.less(at, places.lengths), 1, 2))
    additions = [lowest_where_not(ctx, keep, spread[0])]
    additions += [ctx.input(index + 2)] if ctx.has_input(index + 2) else []
    found = attended(ctx, (spread[0], spread[1], spread[2]), additions)
    return _gathered(ctx, found, parts[2], places)


def _spread(ctx: NodeContext, tokens: RelayExpr, places: _Places) -> RelayExpr:
    """Return (batch, most, features) of (tokens, features); behind a sequence's end stand others' tokens."""
    at = relay_op.add(places.starts, const(np.arange(places.most, dtype="int32")))
    return typed(relay_op.take(tokens, _within(at, _count(ctx, tokens)), axis=0))


def _gathered(ctx: NodeContext, found: RelayExpr, tokens: RelayExpr, places: _Places) -> RelayExpr:
    """Return the tokens' rows of ``found``, (batch, most, features)."""
    own = places_along(ctx, tokens, 0)
    ends = relay_op.reshape(relay_op.add(places.starts, places.lengths), (1, -1))
    before = relay_op.less_equal(ends, relay_op.expand_dims(own, 1))
    sequence = relay_op.sum(relay_op.cast(before, "int32"), axis=[1])
    sequence = relay_op.minimum(sequence, const(places.batch - 1, "int32"))
    start = relay_op.take(relay_op.reshape(places.starts, (-1,)), sequence, axis=0)
    row = relay_op.subtract(relay_op.add(relay_op.multiply(sequence, const(places.most, "int32")), own), start)
    rows = typed(relay_op.reshape(found, (-3, 0)))
    return typed(relay_op.take(rows, _within(row, const(places.batch * places.most, "int32")), axis=0))


def _count(ctx: NodeContext, tokens: RelayExpr) -> RelayExpr:
    dim = ctx.dims(tokens)[0]
    if is_number(dim):
        return const(int(dim), "int32")
    return relay_op.take(relay_op.shape_of(tokens, "int32"), const(0, "int32"))


def _within(places: RelayExpr, extent: RelayExpr) -> RelayExpr:
    """Return numbers that are no indices as the nearest ones that are."""
    last = relay_op.subtract(extent, const(1, "int32"))
    return typed(relay_op.maximum(relay_op.minimum(places, last), const(0, "int32")))
