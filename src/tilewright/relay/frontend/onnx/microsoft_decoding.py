"""Attention of com.microsoft for one new token of each sequence, as decoders that search among beams take it.

The cache grows by the token, or is a buffer (``past_present_share_buffer``) in which its place is
``past_sequence_length``. Each entry of the cache may be that of another beam: ``cache_indirection`` says which.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.indices import checked_range
from tilewright.relay.frontend.onnx.linear import matmul
from tilewright.relay.frontend.onnx.microsoft_attention import (
    attended,
    heads_of,
    key_mask,
    lowest_where_not,
    places_along,
)
from tilewright.relay.frontend.onnx.registry import converter

_DOMAIN = "com.microsoft"


@converter("DecoderMaskedSelfAttention", domain=_DOMAIN, in_float32=True)
def convert_decoder_self_attention(ctx: NodeContext) -> Any:
    """Attention of a new token, (batch, 1, features), by joint weights; keys and values are one cache."""
    if ctx.attr("do_rotary", 0):
        ctx.unsupported("attribute do_rotary")
    joint = typed(relay_op.add(matmul(ctx, ctx.input(0), ctx.input(1)), ctx.input(2)))
    parts = relay_op.split(joint, 3, axis=2)
    caches = [typed(relay_op.squeeze(part, [0])) for part in relay_op.split(ctx.input(4), 2, axis=0)]
    found, keys, values = _decoded(ctx, [typed(part) for part in parts], caches, (3, 5, 6))
    return [found, relay_op.stack([keys, values], axis=0)][: ctx.num_outputs]


@converter("DecoderMaskedMultiHeadAttention", domain=_DOMAIN, in_float32=True)
def convert_decoder_multi_head_attention(ctx: NodeContext) -> Any:
    """Attention of a new token to a cache and itself, or to keys and values of another sequence, by heads."""
    if ctx.attr("output_qk", 0) or ctx.num_outputs > 3:
        ctx.unsupported("the output qk (attribute 'output_qk')")
    if ctx.has_input(2) and ctx.rank(ctx.input(2)) == 4:
        return _of_another(ctx)
    parts = [ctx.input(i) for i in range(3)] if ctx.has_input(2) else list(relay_op.split(ctx.input(0), 3, axis=2))
    parts = [typed(part) for part in parts]
    if ctx.has_input(10):
        biases = relay_op.split(ctx.input(10), 3, axis=0)
        parts = [typed(relay_op.add(part, bias)) for part, bias in zip(parts, biases, strict=True)]
    return _decoded(ctx, parts, [ctx.input(5), ctx.input(6)], (3, 4, 7))[: ctx.num_outputs]


def _of_another(ctx: NodeContext) -> RelayExpr:
    if ctx.num_outputs > 1:
        ctx.fail("keys and values of another sequence are no cache: the node has one output")
    first: RelayExpr = ctx.input(0)
    if ctx.has_input(10):
        width = ctx.extent(first, 2)
        first = relay_op.add(first, relay_op.strided_slice(ctx.input(10), [0], [width], axes=[0]))
    q, k, v = heads_of(ctx, typed(first), ctx.required("num_heads")), ctx.input(1), ctx.input(2)
    additions = [key_mask(ctx, ctx.input(3), k)] if ctx.has_input(3) else []
    return attended(ctx, (q, k, v), additions + ([ctx.input(4)] if ctx.has_input(4) else []))


def _decoded(
    ctx: NodeContext, parts: list[RelayExpr], caches: list[RelayExpr], inputs: tuple[int, int, int]
) -> list[RelayExpr]:
    """Return the result, keys and values; ``inputs`` are the mask, additions and the length of the past."""
    mask, addition, past = inputs
    if ctx.extent(parts[0], 1) != 1:
        ctx.fail(f"{ctx.extent(parts[0], 1)} tokens a sequence; the operator takes 1")
    q, *new = (heads_of(ctx, part, ctx.required("num_heads")) for part in parts)
    known = [_of_beams(ctx, cache, past + 1) for cache in caches]
    if not ctx.attr("past_present_share_buffer", 0):
        join: Callable[[RelayExpr, RelayExpr], RelayExpr] = _appended
        place = None
    else:
        given = checked_range(ctx, past, ctx.extent(caches[0], 2), "place in the buffer")
        place = typed(relay_op.reshape(relay_op.cast(given, "int32"), (1,)))
        join = partial(_written, ctx, place)
    present, seen = ([join(*pair) for pair in zip(old, new, strict=True)] for old in (caches, known))
    additions = _additions(ctx, q, seen[0], place, (mask, addition))
    return [attended(ctx, (q, seen[0], seen[1]), additions), *present]


def _appended(cache: RelayExpr, new: RelayExpr) -> RelayExpr:
    return typed(relay_op.concatenate([cache, new], axis=2))


def _written(ctx: NodeContext, place: RelayExpr, cache: RelayExpr, new: RelayExpr) -> RelayExpr:
    """Return (batch, heads, capacity, size) with the new entry at ``place``."""
    return typed(relay_op.write_rows(cache, new, typed(relay_op.reshape(place, (1,))), axis=2))


def _additions(
    ctx: NodeContext, q: RelayExpr, keys: RelayExpr, place: RelayExpr | None, inputs: tuple[int, int]
) -> list[RelayExpr]:
    """Return what is added to scores; entries of a buffer behind ``place`` are none, and masks end there."""
    mask, addition = (i if ctx.has_input(i) else None for i in inputs)
    if place is None:
        masks = [] if mask is None else [key_mask(ctx, ctx.input(mask), keys)]
        return masks + ([] if addition is None else [ctx.input(addition)])
    at = places_along(ctx, keys, 2)
    keep = relay_op.reshape(relay_op.less_equal(at, place), (1, 1, 1, -1))
    found, near = [lowest_where_not(ctx, typed(keep), q)], relay_op.minimum(at, place)
    if mask is not None:
        found.append(key_mask(ctx, _along_buffer(ctx, mask, near), keys))
    if addition is not None:
        found.append(_along_buffer(ctx, addition, near))
    return found


def _along_buffer(ctx: NodeContext, index: int, places: RelayExpr) -> RelayExpr:
    """Return an input of a number for each key as one of a number for each entry of the buffer."""
    given = ctx.input(index)
    axis = ctx.rank(given) - 1
    last = relay_op.subtract(relay_op.take(relay_op.shape_of(given, "int32"), const(axis, "int32")), const(1, "int32"))
    return typed(relay_op.take(given, typed(relay_op.minimum(places, last)), axis=axis))


def _of_beams(ctx: NodeContext, cache: RelayExpr, index: int) -> RelayExpr:
    """Return the cache whose entries are those that ``cache_indirection``, (batch, beams, entries), says.

    ``index`` is the input with the number of beams, which comes before it.
    """
    if not ctx.has_input(index + 1):
        return cache
    origin = ctx.input(index + 1)
    batch, beams, entries = (ctx.extent(origin, axis) for axis in range(3))
    rows, length = ctx.extent(cache, 0), ctx.extent(cache, 2)
    if rows != batch * beams or entries < length:
        ctx.fail(
            f"cache_indirection of {batch} by {beams} beams and {entries} entries for a cache of {rows} sequences and "
            f"{length} entries; expected as many sequences, and no fewer entries"
        )
    origins = relay_op.cast(relay_op.strided_slice(origin, [0], [length], axes=[2]), "int32")
    chosen = checked_range(ctx, index + 1, beams, "beam", values=typed(origins))
    first = const(np.arange(batch, dtype="int32").reshape(-1, 1, 1) * beams)
    own = relay_op.reshape(relay_op.add(chosen, first), (-3, 0))
    places = relay_op.add(relay_op.multiply(own, const(length, "int32")), const(np.arange(length, dtype="int32")))
    flat = relay_op.reshape(relay_op.transpose(cache, (0, 2, 1, 3)), (-3, 0, 0))
    return typed(relay_op.transpose(relay_op.take(flat, typed(places), axis=0), (0, 2, 1, 3)))
