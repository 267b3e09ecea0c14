"""Operators of com.microsoft that exporters and ONNX Runtime's optimizer emit, by its ContribOperators.md."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, int_const, typed
from tilewright.relay.frontend.onnx.indices import checked_numbers, checked_range
from tilewright.relay.frontend.onnx.linear import matmul
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.rotary import rotated

_DOMAIN = "com.microsoft"
Array = np.ndarray[Any, Any]


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


@converter("MatMulNBits", domain=_DOMAIN, in_float32=True)
def convert_matmul_of_bits(ctx: NodeContext) -> RelayExpr:
    """A product with constant weights of 2, 4 or 8 bits, with a scale and a zero point for each block of a column."""
    rows, columns = ctx.required("K"), ctx.required("N")
    bits, block = ctx.attr("bits", 4), ctx.required("block_size")
    if bits not in (2, 4, 8) or (ctx.has_input(4)):
        ctx.unsupported(f"weights of {bits} bits{' with group indices' if ctx.has_input(4) else ''}; 2, 4, 8 without")
    blocks = -(-rows // block)
    codes = _unpacked(ctx.constant(1, "the packed weights"), bits).reshape(columns, blocks, -1)[:, :, :block]
    scales = ctx.constant(2, "the scales").astype("float32").reshape(columns, blocks, 1)
    zeros: Any = float(1 << (bits - 1))
    if ctx.has_input(3):
        given = ctx.constant(3, "the zero points")
        plain = given if given.dtype.kind == "f" else _unpacked(given.reshape(columns, -1), bits)
        zeros = plain.reshape(columns, -1)[:, :blocks, None].astype("float32")
    weight = ((codes.astype("float32") - zeros) * scales).reshape(columns, -1)[:, :rows]
    data = ctx.input(0)
    shape = ctx.shape(data)
    flat = relay_op.reshape(data, (math.prod(shape[:-1]), rows))
    product = relay_op.nn.dense(flat, const(np.ascontiguousarray(weight, ctx.dtype(data))), units=columns)
    if ctx.has_input(5):
        product = relay_op.nn.bias_add(product, ctx.input(5), axis=-1)
    return relay_op.reshape(product, (*shape[:-1], columns))


def _unpacked(packed: Array, bits: int) -> Array:
    """Unpack numbers of few bits, the low ones of a byte first."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    return ((packed[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*packed.shape[:-1], -1)


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
    ctx: NodeContext, data: RelayExpr, gamma: RelayExpr, beta: RelayExpr | None, centred: bool
) -> tuple[RelayExpr, RelayExpr, RelayExpr]:
    """Return the normalized last axis, its mean, and one over its deviation."""
    mean = typed(relay_op.mean(data, axis=-1, keepdims=True))
    middle = typed(relay_op.subtract(data, mean)) if centred else data
    power = relay_op.mean(relay_op.multiply(middle, middle), axis=-1, keepdims=True)
    factor = typed(relay_op.rsqrt(relay_op.add(power, _scalar(ctx, ctx.attr("epsilon", 1e-12), data))))
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
    """Normalization of the last axis by its root mean square; ONNX Runtime writes it in ONNX's own domain."""
    data = ctx.input(0)
    if ctx.normalize_axis(ctx.attr("axis", -1), ctx.rank(data)) != ctx.rank(data) - 1:
        ctx.unsupported("an axis other than the last")
    result, _, factor = _normalized(ctx, data, ctx.input(1), None, False)
    return [result, factor][: ctx.num_outputs]


def _embedded(ctx: NodeContext, table: int, places: int) -> RelayExpr:
    """Return the rows of the table in one input at the indices in another."""
    rows = ctx.input(table)
    return relay_op.take(rows, checked_numbers(ctx, places, rows, 0, "index"), axis=0, mode="fast")


@converter("EmbedLayerNormalization", domain=_DOMAIN, in_float32=True)
def convert_embed_layer_norm(ctx: NodeContext) -> Any:
    """Sums of embeddings by word, position and segment, normalized; the lengths of the sequences; and the sums."""
    words = ctx.input(0)
    batch, length = ctx.shape(words)
    total = _embedded(ctx, 2, 0)
    if ctx.has_input(8):
        total = relay_op.add(total, _embedded(ctx, 3, 8))
    else:
        total = relay_op.add(total, relay_op.take(ctx.input(3), int_const(range(length)), axis=0))
    if ctx.has_input(1):
        total = relay_op.add(total, _embedded(ctx, 4, 1))
    total = typed(total)
    lengths: RelayExpr = relay_op.zeros((batch,), "int32")
    if ctx.has_input(7):
        lengths = relay_op.cast(relay_op.sum(relay_op.cast(ctx.input(7), "int32"), axis=1), "int32")
    result, _, _ = _normalized(ctx, total, ctx.input(5), ctx.input(6), True)
    return [result, lengths, total][: ctx.num_outputs]


# --------------------------------------------------------------------------------------------------------- attention


def _heads(ctx: NodeContext, data: RelayExpr, heads: int) -> RelayExpr:
    """Reshape (batch, length, heads * size) to (batch, heads, length, size)."""
    batch, length, width = ctx.shape(typed(data))
    if width % heads:
        ctx.fail(f"{width} features do not divide into {heads} heads")
    return typed(relay_op.transpose(relay_op.reshape(data, (batch, length, heads, width // heads)), (0, 2, 1, 3)))


def _attend(
    ctx: NodeContext, parts: tuple[RelayExpr, RelayExpr, RelayExpr], additions: list[RelayExpr], softcap: float = 0.0
) -> RelayExpr:
    """Return softmax(q k' * scale + additions) v of (batch, heads, length, size), as (batch, length, heads * size)."""
    q, k, v = parts
    batch, heads, length, size = ctx.shape(q)
    total, width = ctx.shape(k)[2], ctx.shape(v)[3]
    scale = ctx.attr("scale", 0.0) or 1 / math.sqrt(size)
    scores: RelayExpr = relay_op.nn.batch_matmul(
        relay_op.reshape(relay_op.multiply(q, _scalar(ctx, scale, q)), (batch * heads, length, size)),
        relay_op.reshape(k, (batch * heads, total, size)),
    )
    scores = relay_op.reshape(scores, (batch, heads, length, total))
    if softcap:
        cap = _scalar(ctx, softcap, q)
        scores = relay_op.multiply(relay_op.tanh(relay_op.divide(scores, cap)), cap)
    for addition in additions:
        scores = relay_op.add(scores, addition)
    shares = relay_op.reshape(relay_op.nn.softmax(scores, axis=-1), (batch * heads, length, total))
    columns = relay_op.transpose(relay_op.reshape(v, (batch * heads, total, width)), (0, 2, 1))
    found = relay_op.reshape(relay_op.nn.batch_matmul(shares, columns), (batch, heads, length, width))
    return relay_op.reshape(relay_op.transpose(found, (0, 2, 1, 3)), (batch, length, heads * width))


def _masked(ctx: NodeContext, keep: RelayExpr, like: RelayExpr, value: float) -> RelayExpr:
    """Return the addition to scores: 0 where ``keep`` is true, else ``value``."""
    return typed(relay_op.where(keep, _scalar(ctx, 0.0, like), _scalar(ctx, value, like)))


def _key_mask(ctx: NodeContext, mask: RelayExpr, total: int, like: RelayExpr) -> RelayExpr:
    """Return the addition by a mask of keys: (batch, total) or (batch, length, total) of 0 and 1, or (batch)
    lengths.
    """
    shape, filler = ctx.shape(mask), ctx.attr("mask_filter_value", -10000.0)
    if len(shape) == 1:
        batch = ctx.shape(like)[0]
        if shape != (batch,):
            ctx.unsupported(
                f"a mask of shape {shape}; (batch), (batch, total) and (batch, length, total) are supported"
            )
        keep = relay_op.less(const(np.arange(total, dtype="int32")), relay_op.reshape(mask, (batch, 1, 1, 1)))
        return _masked(ctx, typed(keep), like, filler)
    keep = relay_op.not_equal(mask, const(0, ctx.dtype(mask)))
    for axis in [1, 2] if len(shape) == 2 else [1]:
        keep = relay_op.expand_dims(keep, axis)
    return _masked(ctx, typed(keep), like, filler)


def _causal(ctx: NodeContext, length: int, total: int, like: RelayExpr) -> RelayExpr:
    return _masked(ctx, const(np.tri(length, total, total - length, dtype=bool)), like, float(np.finfo("float32").min))


@converter("Attention", domain=_DOMAIN, in_float32=True)
def convert_attention(ctx: NodeContext) -> Any:
    """Self-attention of one input by joint weights for queries, keys and values."""
    return _joint_attention(ctx, ctx.input(0), ctx.input(1), ctx.optional(2), mask=3, past=4, addition=5)


@converter("QAttention", domain=_DOMAIN)
def convert_qattention(ctx: NodeContext) -> Any:
    """Attention of a quantized input by quantized weights."""
    data, weight = (_dequantized(ctx, *places) for places in ((0, 3, 6), (1, 4, 7)))
    return _joint_attention(ctx, data, weight, ctx.optional(2), mask=5, past=8, addition=99)


def _dequantized(ctx: NodeContext, data: int, scale: int, zero: int) -> RelayExpr:
    number = relay_op.cast(ctx.input(data), "int32")
    if ctx.has_input(zero):
        number = relay_op.subtract(number, relay_op.cast(ctx.input(zero), "int32"))
    return typed(relay_op.multiply(relay_op.cast(number, "float32"), ctx.input(scale)))


def _joint_attention(
    ctx: NodeContext, data: RelayExpr, weight: RelayExpr, bias: RelayExpr | None, mask: int, past: int, addition: int
) -> Any:
    heads = ctx.required("num_heads")
    if ctx.attr("do_rotary", 0):
        ctx.unsupported("attribute do_rotary")
    joint = matmul(ctx, data, weight)
    joint = typed(relay_op.add(joint, bias) if bias is not None else joint)
    width = ctx.shape(joint)[2]
    sizes = ctx.attr("qkv_hidden_sizes") or (width // 3,) * 3
    q, k, v = (
        _heads(ctx, part, heads) for part in relay_op.split(joint, tuple(np.cumsum(sizes)[:-1].tolist()), axis=2)
    )
    if ctx.has_input(past):
        old = relay_op.split(ctx.input(past), 2, axis=0)
        k, v = (
            typed(relay_op.concatenate([relay_op.squeeze(o, [0]), n], axis=2)) for o, n in zip(old, (k, v), strict=True)
        )
    length, total = ctx.shape(q)[2], ctx.shape(k)[2]
    additions = [_key_mask(ctx, ctx.input(mask), total, q)] if ctx.has_input(mask) else []
    additions += [ctx.input(addition)] if ctx.has_input(addition) else []
    additions += [_causal(ctx, length, total, q)] if ctx.attr("unidirectional", 0) else []
    found = _attend(ctx, (q, k, v), additions)
    return [found, relay_op.stack([k, v], axis=0)] if ctx.num_outputs > 1 else found


@converter("MultiHeadAttention", domain=_DOMAIN, in_float32=True)
def convert_multi_head_attention(ctx: NodeContext) -> Any:
    """Attention of queries, keys and values, (batch, length, features) each."""
    heads = ctx.required("num_heads")
    if not ctx.has_input(1) or not ctx.has_input(2) or ctx.rank(ctx.input(1)) != 3:
        ctx.unsupported("packed queries, keys and values, or keys with an axis of heads; give three tensors of rank 3")
    inputs = [ctx.input(i) for i in range(3)]
    if ctx.has_input(3):
        widths = [ctx.shape(x)[2] for x in inputs]
        biases = relay_op.split(ctx.input(3), tuple(np.cumsum(widths)[:-1].tolist()), axis=0)
        inputs = [typed(relay_op.add(x, b)) for x, b in zip(inputs, biases, strict=True)]
    q, k, v = (_heads(ctx, x, heads) for x in inputs)
    if ctx.has_input(6):
        k = typed(relay_op.concatenate([ctx.input(6), k], axis=2))
        v = typed(relay_op.concatenate([ctx.input(7), v], axis=2))
    length, total = ctx.shape(q)[2], ctx.shape(k)[2]
    additions = [_key_mask(ctx, ctx.input(4), total, q)] if ctx.has_input(4) else []
    additions += [ctx.input(5)] if ctx.has_input(5) else []
    additions += [_causal(ctx, length, total, q)] if ctx.attr("unidirectional", 0) else []
    return [_attend(ctx, (q, k, v), additions), k, v][: ctx.num_outputs]


@converter("GroupQueryAttention", domain=_DOMAIN, in_float32=True)
def convert_group_query_attention(ctx: NodeContext) -> Any:
    """Causal attention whose heads share keys and values, with a cache and rotary embedding: result, keys, values."""
    heads, groups = ctx.required("num_heads"), ctx.required("kv_num_heads")
    if ctx.attr("local_window_size", -1) != -1 or any(ctx.has_input(i) for i in range(9, ctx.num_inputs)):
        ctx.unsupported("local_window_size, position_ids, attention_bias or head_sink")
    q, k, v = _query_key_value(ctx, heads, groups)
    batch, _, length, _ = ctx.shape(q)
    total = int(ctx.scalar(6))
    past = ctx.shape(ctx.input(3))[2] if ctx.has_input(3) else 0
    prompt = length == total
    capacity = max(past, total)
    if ctx.attr("do_rotary", 0) and not prompt:
        capacity = min(capacity, ctx.shape(ctx.input(7))[0])
    lasts = checked_range(ctx, 5, capacity, "last place", 0 if prompt else length - 1)
    ends = relay_op.reshape(relay_op.cast(lasts, "int32"), (batch, 1))
    start: RelayExpr = relay_op.zeros((batch, 1), "int32")
    if not prompt:
        start = typed(relay_op.subtract(ends, const(length - 1, "int32")))
    places = typed(relay_op.add(start, const(np.arange(length, dtype="int32"))))
    if ctx.attr("do_rotary", 0):
        caches, pairs = (ctx.input(7), ctx.input(8)), bool(ctx.attr("rotary_interleaved", 0))
        if length > ctx.shape(caches[0])[0]:
            ctx.fail(f"{length} places, and angles for {ctx.shape(caches[0])[0]}")
        q, k = (rotated(ctx, x, caches, places, 1, pairs) for x in (q, k))
    present = max(past, total)
    keys, values = (_cached(ctx, new, 3 + i, start, present) for i, new in enumerate((k, v)))
    wide = [typed(relay_op.repeat(x, heads // groups, 1)) for x in (keys, values)]
    seen = relay_op.less_equal(
        const(np.arange(present, dtype="int32")), relay_op.reshape(places, (batch, 1, length, 1))
    )
    addition = _masked(ctx, typed(seen), q, float(np.finfo("float32").min))
    return [_attend(ctx, (q, wide[0], wide[1]), [addition], ctx.attr("softcap", 0.0)), keys, values][: ctx.num_outputs]


def _query_key_value(ctx: NodeContext, heads: int, groups: int) -> list[RelayExpr]:
    """Return queries, keys and values by heads, from three tensors or one of all features."""
    if ctx.has_input(1):
        return [_heads(ctx, ctx.input(i), n) for i, n in enumerate((heads, groups, groups))]
    size = ctx.shape(ctx.input(0))[2] // (heads + 2 * groups)
    parts = relay_op.split(ctx.input(0), (heads * size, (heads + groups) * size), axis=2)
    return [_heads(ctx, part, n) for part, n in zip(parts, (heads, groups, groups), strict=True)]


def _cached(ctx: NodeContext, new: RelayExpr, index: int, start: RelayExpr, present: int) -> RelayExpr:
    """Return the cache before ``start``, then the new entries: (batch, groups, present, size)."""
    if not ctx.has_input(index):
        return new
    past = ctx.shape(ctx.input(index))[2]
    length = ctx.shape(new)[2]
    joined = relay_op.concatenate([ctx.input(index), new], axis=2)
    at = const(np.arange(present, dtype="int32")[None])
    behind = relay_op.subtract(relay_op.add(at, const(past, "int32")), start)
    last = const(past + length - 1, "int32")
    chosen = relay_op.where(relay_op.less(at, start), at, relay_op.minimum(behind, last))
    filled = relay_op.less(at, relay_op.add(start, const(length, "int32")))  # behind, the cache holds nothing
    filled = relay_op.reshape(filled, (-1, 1, present, 1))
    return typed(
        relay_op.where(filled, relay_op.take(joined, typed(chosen), axis=2, batch_dims=1), _scalar(ctx, 0, new))
    )
