"""Attention of com.microsoft: of joint weights, of several heads, and of heads that share keys and values."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from tilewright.arith.analyzer import Analyzer
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import is_number, same_element
from tilewright.relay.frontend.dynamic import counted, runtime_extent
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.indices import checked_numbers, checked_range
from tilewright.relay.frontend.onnx.linear import matmul
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.rotary import rotated
from tilewright.relay.op.nn.attention import attention

_DOMAIN = "com.microsoft"
_LOWEST = float(np.finfo("float32").min)

Parts = tuple[RelayExpr, RelayExpr, RelayExpr]


def _scalar(ctx: NodeContext, value: float, like: RelayExpr) -> RelayExpr:
    return const(value, ctx.dtype(like))


def _extent(ctx: NodeContext, data: RelayExpr, axis: int) -> RelayExpr:
    """Return a dimension as an int32 scalar."""
    dim = ctx.dims(data)[axis]
    return const(int(dim), "int32") if is_number(dim) else runtime_extent(data, axis, "int32")


def places_along(ctx: NodeContext, data: RelayExpr, axis: int) -> RelayExpr:
    """Return 0, 1, ... in int32, as many as a dimension says."""
    dim = ctx.dims(data)[axis]
    if is_number(dim):
        return const(np.arange(int(dim), dtype="int32"))
    return relay_op.cast(counted(runtime_extent(data, axis), [dim]), "int32")


def heads_of(ctx: NodeContext, data: RelayExpr, heads: int) -> RelayExpr:
    """Reshape (batch, length, heads * size) to (batch, heads, length, size)."""
    width = ctx.extent(typed(data), 2)
    if width % heads:
        ctx.fail(f"{width} features do not divide into {heads} heads")
    return typed(relay_op.transpose(relay_op.reshape(data, (0, 0, heads, width // heads)), (0, 2, 1, 3)))


def _joined(data: RelayExpr) -> RelayExpr:
    return relay_op.reshape(data, (-3, 0, 0))


def _split(data: RelayExpr, heads: int) -> RelayExpr:
    return typed(relay_op.reshape(data, (-4, -1, heads, -2)))


def attended(
    ctx: NodeContext,
    parts: Parts,
    additions: list[RelayExpr],
    softcap: float = 0.0,
    sink: RelayExpr | None = None,
) -> RelayExpr:
    """Return softmax(q k' * scale + additions) v of (batch, heads, length, size), as (batch, length, heads * size).

    Keys and values may have fewer heads, groups, that those of the queries share.
    ``softcap`` limits scores by tanh; ``sink`` is a score beside the others that weighs nothing, (heads, 1, 1) or (1).
    """
    q, k, v = parts
    heads, size = ctx.extent(q, 1), ctx.extent(q, 3)
    scale = ctx.attr("scale", 0.0) or 1 / math.sqrt(size)
    if not softcap and sink is None and _surely_positive(ctx.dims(k)[2]):
        mask = reduce(relay_op.add, additions) if additions else None
        return typed(relay_op.reshape(attention(q, k, v, mask, scale), (0, 0, -3)))
    if (groups := ctx.extent(k, 1)) != heads:
        k, v = (typed(relay_op.repeat(x, heads // groups, 1)) for x in (k, v))
    scaled = relay_op.multiply(q, _scalar(ctx, scale, q))
    scores: RelayExpr = _split(relay_op.nn.batch_matmul(_joined(scaled), _joined(k)), heads)
    if softcap:
        cap = _scalar(ctx, softcap, q)
        scores = relay_op.multiply(relay_op.tanh(relay_op.divide(scores, cap)), cap)
    for addition in additions:
        scores = relay_op.add(scores, addition)
    shares = relay_op.nn.softmax(scores, axis=-1) if sink is None else _softmax_beside(scores, sink)
    columns = relay_op.transpose(_joined(v), (0, 2, 1))
    found = _split(relay_op.nn.batch_matmul(_joined(shares), columns), heads)
    return typed(relay_op.reshape(relay_op.transpose(found, (0, 2, 1, 3)), (0, 0, -3)))


def _surely_positive(dim: Any) -> bool:
    """Return whether there is a key: a softmax of no scores weighs nothing, where attention would divide by 0."""
    return bool(Analyzer().const_int_bound(as_expr(dim)).min_value >= 1)


def _softmax_beside(scores: RelayExpr, sink: RelayExpr) -> RelayExpr:
    """Return the softmax of scores with one more score, ``sink``, whose share is left out."""
    most = relay_op.maximum(relay_op.max(scores, axis=-1, keepdims=True), sink)
    powers = relay_op.exp(relay_op.subtract(scores, most))
    total = relay_op.sum(powers, axis=-1, keepdims=True)
    return relay_op.divide(powers, relay_op.add(total, relay_op.exp(relay_op.subtract(sink, most))))


def _masked(ctx: NodeContext, keep: RelayExpr, like: RelayExpr, value: float) -> RelayExpr:
    """Return the addition to scores: 0 where ``keep`` is true, else ``value``."""
    return typed(relay_op.where(keep, _scalar(ctx, 0.0, like), _scalar(ctx, value, like)))


def key_mask(ctx: NodeContext, mask: RelayExpr, keys: RelayExpr) -> RelayExpr:
    """Return the addition by a mask of keys: (batch, total) or (batch, length, total) of 0 and 1, or numbers.

    Those are (batch) lengths; (2 * batch) ends, then starts; or (3 * batch + 2) lengths, then sums of lengths.
    """
    filler = ctx.attr("mask_filter_value", -10000.0)
    if ctx.rank(mask) == 1:
        return _masked(ctx, _within(ctx, mask, keys), keys, filler)
    keep = relay_op.not_equal(mask, const(0, ctx.dtype(mask)))
    for axis in [1, 2] if ctx.rank(mask) == 2 else [1]:
        keep = relay_op.expand_dims(keep, axis)
    return _masked(ctx, typed(keep), keys, filler)


def _within(ctx: NodeContext, mask: RelayExpr, keys: RelayExpr) -> RelayExpr:
    """Return which keys lie between the numbers of a mask, (batch, 1, 1, total)."""
    count, batch = ctx.dims(mask)[0], ctx.dims(keys)[0]
    places = places_along(ctx, keys, 2)
    if same_element(count, batch):
        return typed(relay_op.less(places, _of_examples(mask)))
    if not (is_number(count) and is_number(batch) and count in (2 * batch, 3 * batch + 2)):
        ctx.unsupported(
            f"a mask of shape ({count},) for a batch of {batch}; (batch), (2 * batch), (3 * batch + 2), "
            "(batch, total) and (batch, length, total) are supported"
        )
    ends, starts = (relay_op.strided_slice(mask, [i * batch], [(i + 1) * batch]) for i in range(2))
    keep = relay_op.less(places, _of_examples(ends))
    if count == 2 * batch:
        keep = relay_op.logical_and(keep, relay_op.greater_equal(places, _of_examples(starts)))
    return typed(keep)


def _of_examples(numbers: RelayExpr) -> RelayExpr:
    """Return a number for each example, (batch,), as (batch, 1, 1, 1)."""
    return relay_op.reshape(numbers, (-1, 1, 1, 1))


def _seen(ctx: NodeContext, keys: RelayExpr, places: RelayExpr, window: int = -1) -> RelayExpr:
    """Return the addition by which a query sees keys up to its own place, ``window`` of them if that is positive.

    ``places`` of queries are (batch or 1, length); the addition is (batch or 1, 1, length, total).
    """
    own = relay_op.expand_dims(relay_op.expand_dims(places, 1), 3)
    at = places_along(ctx, keys, 2)
    keep = relay_op.less_equal(at, own)
    if window > 0:
        near = relay_op.greater(at, relay_op.subtract(own, const(window, "int32")))
        keep = relay_op.logical_and(keep, near)
    return _masked(ctx, typed(keep), keys, _LOWEST)


def _causal(ctx: NodeContext, q: RelayExpr, k: RelayExpr, past: RelayExpr | None) -> RelayExpr:
    """Return the addition by which a query sees the keys of the past, and new ones up to its own place.

    The entries of ``past`` lie along its last dimension but one.
    """
    axis = 0 if past is None else ctx.rank(past) - 2
    behind = 0 if past is None else ctx.dims(past)[axis]
    length, total = ctx.dims(q)[2], ctx.dims(k)[2]
    if is_number(length) and is_number(total) and is_number(behind):
        keep = np.tri(length, total, behind, dtype=bool)[None, None]
        return _masked(ctx, const(keep), q, _LOWEST)
    steps = places_along(ctx, q, 2)
    places = steps if past is None else relay_op.add(steps, _extent(ctx, past, axis))
    return _seen(ctx, k, relay_op.expand_dims(places, 0))


def lowest_where_not(ctx: NodeContext, keep: RelayExpr, like: RelayExpr) -> RelayExpr:
    """Return the addition to scores by which only keys count where ``keep`` is true."""
    return _masked(ctx, keep, like, _LOWEST)


@converter("Attention", domain=_DOMAIN, in_float32=True)
def convert_attention(ctx: NodeContext) -> Any:
    """Self-attention of one input by joint weights for queries, keys and values."""
    joint = matmul(ctx, ctx.input(0), ctx.input(1))
    joint = typed(relay_op.add(joint, ctx.input(2)) if ctx.has_input(2) else joint)
    return joint_attention(ctx, joint, mask=3, past=4, addition=5)


def joint_attention(ctx: NodeContext, joint: RelayExpr, mask: int, past: int, addition: int | None) -> Any:
    """Return the attention of queries, keys and values that lie side by side; the numbers are those of inputs."""
    heads = ctx.required("num_heads")
    if ctx.attr("do_rotary", 0) or ctx.attr("past_present_share_buffer", 0):
        ctx.unsupported("attributes do_rotary and past_present_share_buffer")
    width = ctx.extent(joint, 2)
    sizes = ctx.attr("qkv_hidden_sizes") or (width // 3,) * 3
    q, k, v = (
        heads_of(ctx, part, heads) for part in relay_op.split(joint, tuple(np.cumsum(sizes)[:-1].tolist()), axis=2)
    )
    if ctx.has_input(past):
        old = relay_op.split(ctx.input(past), 2, axis=0)
        k, v = (
            typed(relay_op.concatenate([relay_op.squeeze(o, [0]), n], axis=2)) for o, n in zip(old, (k, v), strict=True)
        )
    found = attended(ctx, (q, k, v), additions_to_scores(ctx, q, k, mask, addition, past))
    return [found, relay_op.stack([k, v], axis=0)] if ctx.num_outputs > 1 else found


def additions_to_scores(
    ctx: NodeContext, q: RelayExpr, k: RelayExpr, mask: int, addition: int | None, past: int | None
) -> list[RelayExpr]:
    """Return what is added to scores: for a mask of keys, an input of additions, and causal attention."""
    found = [key_mask(ctx, ctx.input(mask), k)] if ctx.has_input(mask) else []
    found += [ctx.input(addition)] if addition is not None and ctx.has_input(addition) else []
    cache = None if past is None else ctx.optional(past)
    return found + ([_causal(ctx, q, k, cache)] if ctx.attr("unidirectional", 0) else [])


@converter("MultiHeadAttention", domain=_DOMAIN, in_float32=True)
def convert_multi_head_attention(ctx: NodeContext) -> Any:
    """Attention of queries, keys and values: (batch, length, features) each, packed, or keys and values by heads.

    A cache beside ``past_sequence_length`` is a buffer that is filled so far.
    """
    if ctx.has_input(9):
        ctx.unsupported("cache_indirection; take the input away")
    q, k, v = _three_parts(ctx, ctx.required("num_heads"))
    if ctx.has_input(8):
        return _attended_in_buffers(ctx, (q, k, v))[: ctx.num_outputs]
    if ctx.has_input(6):
        k = typed(relay_op.concatenate([ctx.input(6), k], axis=2))
        v = typed(relay_op.concatenate([ctx.input(7), v], axis=2))
    return [attended(ctx, (q, k, v), additions_to_scores(ctx, q, k, 4, 5, 6)), k, v][: ctx.num_outputs]


def _attended_in_buffers(ctx: NodeContext, parts: Parts) -> list[RelayExpr]:
    """Return the attention to buffers, (batch, heads, capacity, size), with new keys and values, and the buffers."""
    q, *new = parts
    if not (ctx.has_input(6) and ctx.has_input(7)):
        ctx.fail("past_sequence_length says how full past_key and past_value are, which are missing")
    if ctx.has_input(4) or ctx.has_input(5):
        ctx.unsupported("key_padding_mask and attention_bias beside past_sequence_length")
    buffers, length = [ctx.input(6), ctx.input(7)], ctx.dims(q)[2]
    capacity = ctx.extent(buffers[0], 2)
    most = capacity - (int(length) if is_number(length) else 1)
    if most < 0:
        ctx.fail(f"{length} new keys are more than past_key has room for, {capacity}")
    start = typed(relay_op.reshape(relay_op.cast(checked_range(ctx, 8, most + 1, "length"), "int32"), (-1,)))
    keys, values = (
        typed(relay_op.write_rows(buffer, x, start, axis=2)) for buffer, x in zip(buffers, new, strict=True)
    )
    steps = places_along(ctx, q, 2)
    if not ctx.attr("unidirectional", 0):  # all see what the last one sees
        steps = relay_op.expand_dims(relay_op.subtract(_extent(ctx, q, 2), const(1, "int32")), 0)
    places = typed(relay_op.expand_dims(relay_op.add(start, steps), 0))
    return [attended(ctx, (q, keys, values), [_seen(ctx, keys, places)]), keys, values]


def _three_parts(ctx: NodeContext, heads: int) -> Parts:
    """Return queries, keys and values, (batch, heads, length, size) each, with their biases added."""
    first = ctx.input(0)
    if ctx.rank(first) == 5:  # (batch, length, heads, 3, size)
        packed = [typed(relay_op.take(first, const(i, "int32"), axis=3)) for i in range(3)]
        q, k, v = (typed(relay_op.transpose(x, (0, 2, 1, 3))) for x in packed)
        return (q, k, v) if not ctx.has_input(3) else ctx.unsupported("a bias of packed queries, keys and values")
    inputs = [first]
    if not ctx.has_input(2) and ctx.rank(ctx.input(1)) == 5:  # (batch, length, heads, 2, size)
        pairs = [typed(relay_op.take(ctx.input(1), const(i, "int32"), axis=3)) for i in range(2)]
        inputs += [typed(relay_op.reshape(x, (0, 0, -3))) for x in pairs]
    else:
        inputs += [ctx.input(1), ctx.input(2)]
    by_heads = ctx.rank(inputs[1]) == 4  # keys and values of another sequence: (batch, heads, length, size)
    if ctx.has_input(3):
        widths = [ctx.extent(x, 2) if ctx.rank(x) == 3 else heads * ctx.extent(x, 3) for x in inputs]
        biases = relay_op.split(ctx.input(3), tuple(np.cumsum(widths)[:-1].tolist()), axis=0)
        inputs = [typed(relay_op.add(x, b)) if ctx.rank(x) == 3 else x for x, b in zip(inputs, biases, strict=True)]
    q, k, v = (x if by_heads and i else heads_of(ctx, x, heads) for i, x in enumerate(inputs))
    return q, k, v


# ------------------------------------------------------------------------------------- heads that share keys and values

_OF_GROUPS = {"k_quant_type": "NONE", "v_quant_type": "NONE", "qk_output": 0}


@converter("GroupQueryAttention", domain=_DOMAIN, in_float32=True)
def convert_group_query_attention(ctx: NodeContext) -> Any:
    """Causal attention whose heads share keys and values, with a cache and rotary embedding: result, keys, values.

    A cache of a known length is a buffer with room for what comes, of which each sequence of a batch fills as much as
    ``seqlens_k`` says. A cache whose length has a name is appended to, and is full: ``seqlens_k`` counts all of it.
    """
    heads, groups = ctx.required("num_heads"), ctx.required("kv_num_heads")
    for name, plain in _OF_GROUPS.items():
        if ctx.attr(name, plain) not in (plain, str(plain).encode()):
            ctx.unsupported(f"attribute {name}")
    q, k, v = _query_key_value(ctx, heads, groups)
    grows = not ctx.has_input(3) or not is_number(ctx.dims(ctx.input(3))[2])
    start = _after_all(ctx, q) if grows else _after_each(ctx, q)
    places = typed(relay_op.add(start, places_along(ctx, q, 2)))
    if ctx.attr("do_rotary", 0):
        q, k = _turned(ctx, q, k, places)
    join = _appended if grows else _cached
    keys, values = (join(ctx, new, 3 + i, start) for i, new in enumerate((k, v)))
    additions = [_seen(ctx, keys, places, ctx.attr("local_window_size", -1))]
    additions += [_along_all(ctx, ctx.input(10), keys)] if ctx.has_input(10) else []
    found = attended(ctx, (q, keys, values), additions, ctx.attr("softcap", 0.0), _sink(ctx, q))
    return [found, keys, values][: ctx.num_outputs]


def _along_all(ctx: NodeContext, addition: RelayExpr, keys: RelayExpr) -> RelayExpr:
    """Return additions to the scores of keys, with zeros for the entries of a buffer behind them."""
    dims, total = ctx.dims(addition), ctx.dims(keys)[2]
    if not (is_number(dims[3]) and is_number(total)) or dims[3] == total:
        return addition
    if dims[3] > total:
        ctx.fail(f"input 10 adds to {dims[3]} keys; the cache has {total}")
    return typed(relay_op.nn.pad(addition, ((0, 0), (0, 0), (0, 0), (0, int(total - dims[3])))))


def _query_key_value(ctx: NodeContext, heads: int, groups: int) -> list[RelayExpr]:
    """Return queries, keys and values by heads, from three tensors or one of all features."""
    if heads % groups:
        ctx.fail(f"{heads} heads do not divide into {groups} groups")
    if ctx.has_input(1):
        return [heads_of(ctx, ctx.input(i), n) for i, n in enumerate((heads, groups, groups))]
    size = ctx.extent(ctx.input(0), 2) // (heads + 2 * groups)
    parts = relay_op.split(ctx.input(0), (heads * size, (heads + groups) * size), axis=2)
    return [heads_of(ctx, part, n) for part, n in zip(parts, (heads, groups, groups), strict=True)]


def _sink(ctx: NodeContext, like: RelayExpr) -> RelayExpr | None:
    if ctx.has_input(11):
        return relay_op.reshape(ctx.input(11), (-1, 1, 1))
    return _scalar(ctx, 0.0, like) if ctx.attr("smooth_softmax", 0) == 1 else None


def _after_all(ctx: NodeContext, q: RelayExpr) -> RelayExpr:
    """Return where new entries begin, behind all of the cache, (batch, 1); check that ``seqlens_k`` says the same.

    In a prompt sequences may be shorter: what follows them is for nobody to see.
    """
    past: RelayExpr = _extent(ctx, ctx.input(3), 2) if ctx.has_input(3) else const(0, "int32")
    lasts = relay_op.reshape(relay_op.cast(ctx.input(5), "int32"), (-1, 1))
    start = relay_op.subtract(relay_op.add(lasts, const(1, "int32")), _extent(ctx, q, 2))
    empty = typed(relay_op.minimum(past, relay_op.subtract(past, start)))
    word = "entries of the cache behind a sequence's last (a cache that grows is full: its sequences are of one length)"
    return typed(relay_op.add(checked_range(ctx, 5, 1, word, values=empty), past))


def _after_each(ctx: NodeContext, q: RelayExpr) -> RelayExpr:
    """Return where each sequence's new entries begin in a buffer, (batch, 1): 0 in a prompt, else behind the last."""
    length, total = ctx.dims(q)[2], ctx.constant_if_known(6, "how long sequences may be")
    capacity = ctx.extent(ctx.input(3), 2)
    known = is_number(length) and total is not None
    if known and int(total.reshape(-1)[0]) == length:  # type: ignore[union-attr]
        lasts = checked_range(ctx, 5, max(capacity, int(length)), "last place")
        return relay_op.multiply(relay_op.reshape(relay_op.cast(lasts, "int32"), (-1, 1)), const(0, "int32"))
    most = max(capacity, int(total.reshape(-1)[0])) if total is not None else capacity
    if ctx.attr("do_rotary", 0):
        most = min(most, ctx.extent(ctx.input(7), 0))
    lasts = checked_range(ctx, 5, most, "last place", int(length) - 1 if known else 0)
    ends = relay_op.reshape(relay_op.cast(lasts, "int32"), (-1, 1))
    start = relay_op.subtract(relay_op.add(ends, const(1, "int32")), _extent(ctx, q, 2))
    if known:
        return typed(start)
    whole = relay_op.equal(relay_op.cast(ctx.input(6), "int32"), _extent(ctx, q, 2))
    zero = const(0, "int32")
    return typed(relay_op.where(whole, zero, relay_op.maximum(start, zero)))


def _turned(ctx: NodeContext, q: RelayExpr, k: RelayExpr, places: RelayExpr) -> tuple[RelayExpr, RelayExpr]:
    caches, pairs = (ctx.input(7), ctx.input(8)), bool(ctx.attr("rotary_interleaved", 0))
    number = 9 if ctx.has_input(9) else 5
    if number == 9:
        places = typed(relay_op.cast(ctx.input(9), "int32"))
    places = checked_numbers(ctx, number, caches[0], 0, "place", places)
    return rotated(ctx, q, caches, places, 1, pairs), rotated(ctx, k, caches, places, 1, pairs)


def _appended(ctx: NodeContext, new: RelayExpr, index: int, start: RelayExpr) -> RelayExpr:
    """Return the cache and the new entries behind it: (batch, groups, past + length, size)."""
    return typed(relay_op.concatenate([ctx.input(index), new], axis=2)) if ctx.has_input(index) else new


def _cached(ctx: NodeContext, new: RelayExpr, index: int, start: RelayExpr) -> RelayExpr:
    """Return the buffer with the new entries from ``start`` on, (batch, groups, rows, size).

    A buffer that ``total_sequence_length`` makes longer has zeros behind them.
    """
    past, total = ctx.extent(ctx.input(index), 2), ctx.constant_if_known(6, "how long sequences may be")
    present = past if total is None else max(past, int(total.reshape(-1)[0]))
    if present == past:
        return typed(relay_op.write_rows(ctx.input(index), new, typed(relay_op.reshape(start, (-1,))), axis=2))
    length = _extent(ctx, new, 2)
    joined = relay_op.concatenate([ctx.input(index), new], axis=2)
    at = const(np.arange(present, dtype="int32")[None])
    behind = relay_op.subtract(relay_op.add(at, const(past, "int32")), start)
    last = relay_op.add(length, const(past - 1, "int32"))
    chosen = relay_op.where(relay_op.less(at, start), at, relay_op.minimum(behind, last))
    filled = relay_op.less(at, relay_op.add(start, length))  # behind, the cache holds nothing
    filled = relay_op.reshape(filled, (-1, 1, present, 1))
    return typed(
        relay_op.where(filled, relay_op.take(joined, typed(chosen), axis=2, batch_dims=1), _scalar(ctx, 0, new))
    )
