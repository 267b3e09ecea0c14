"""Operators of com.microsoft on int8 matrices in an order of cuBLASLt, beside those of ``microsoft_quantized.py``.

A matrix of r rows and c columns lies in one of these orders; its declared shape is (..., r, c) in each:

0  column after column; so weights lie, as a matrix product reads them
1  row after row
2  blocks of 32 columns, row after row in each

Zero points are 0, and steps are rounded with halves to even. ONNX Runtime computes these operators on GPUs only.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.linear import matmul
from tilewright.relay.frontend.onnx.microsoft_attention import additions_to_scores, heads_of
from tilewright.relay.frontend.onnx.qlinear import scaled_integers, scaled_numbers
from tilewright.relay.frontend.onnx.quantization import folded, in_float32
from tilewright.relay.frontend.onnx.registry import converter

_DOMAIN = "com.microsoft"
_COLUMNS, _ROWS, _BLOCKS = range(3)
_BLOCK = 32  # columns


def _order(ctx: NodeContext, name: str, *allowed: int) -> int:
    order = int(ctx.attr(name, _ROWS))
    if order not in allowed:
        ctx.unsupported(f"attribute {name!r} is {order}; supported: {', '.join(map(str, allowed))}")
    return order


def _swapped(data: RelayExpr, rank: int) -> RelayExpr:
    """The last two axes of data in each other's place."""
    return typed(relay_op.transpose(data, axes=(*range(rank - 2), rank - 1, rank - 2)))


def _in_rows(ctx: NodeContext, data: RelayExpr, order: int) -> RelayExpr:
    """The matrices of a tensor that lies in ``order``."""
    shape = ctx.shape(data)
    if order == _ROWS or len(shape) < 2:
        return data
    *batch, rows, columns = shape
    if order == _COLUMNS:
        found = _swapped(relay_op.reshape(data, (*batch, columns, rows)), len(shape))
    else:
        blocks = typed(relay_op.reshape(data, (*batch, _blocks(ctx, columns), rows, _BLOCK)))
        n = len(batch)
        found = relay_op.reshape(relay_op.transpose(blocks, axes=(*range(n), n + 1, n, n + 2)), shape)
    return folded(ctx, found, data)


def _laid(ctx: NodeContext, data: RelayExpr, order: int) -> RelayExpr:
    """Matrices in the order in which they are to lie, with the shape that they have."""
    shape = ctx.shape(data)
    if order == _ROWS or len(shape) < 2:
        return data
    *batch, rows, columns = shape
    if order == _COLUMNS:
        return relay_op.reshape(_swapped(data, len(shape)), shape)
    blocks = relay_op.reshape(data, (*batch, rows, _blocks(ctx, columns), _BLOCK))
    n = len(batch)
    return relay_op.reshape(relay_op.transpose(blocks, axes=(*range(n), n + 1, n, n + 2)), shape)


def _blocks(ctx: NodeContext, columns: int) -> int:
    if columns % _BLOCK:
        ctx.fail(f"{columns} columns do not divide into the blocks of {_BLOCK} that order 2 has")
    return columns // _BLOCK


@converter("QuantizeWithOrder", domain=_DOMAIN)
def convert_quantize_with_order(ctx: NodeContext) -> RelayExpr:
    """Steps of the scale, int8, that lie in ``order_output``."""
    source, target = (_order(ctx, f"order_{side}", _COLUMNS, _ROWS, _BLOCKS) for side in ("input", "output"))
    data = in_float32(ctx, _in_rows(ctx, ctx.input(0), source))
    return _laid(ctx, scaled_integers(ctx, data, 1), target)


@converter("DequantizeWithOrder", domain=_DOMAIN)
def convert_dequantize_with_order(ctx: NodeContext) -> RelayExpr:
    """The numbers that int8 stands for, of the type that ``to`` tells, in ``order_output``."""
    source, target = (_order(ctx, f"order_{side}", _COLUMNS, _ROWS, _BLOCKS) for side in ("input", "output"))
    found = scaled_numbers(ctx, _in_rows(ctx, ctx.input(0), source), 1)
    return _laid(ctx, typed(relay_op.cast(found, ctx.onnx_dtype(ctx.required("to")))), target)


@converter("QOrderedMatMul", domain=_DOMAIN)
def convert_ordered_matmul(ctx: NodeContext) -> RelayExpr:
    """A product of rows and columns, a bias in steps of the result, and a tensor of a scale of its own."""
    for name, order in (("order_A", _ROWS), ("order_B", _COLUMNS), ("order_Y", _ROWS)):
        _order(ctx, name, order)
    weight = scaled_numbers(ctx, _in_rows(ctx, ctx.input(2), _COLUMNS), 3, -1)
    total = typed(matmul(ctx, scaled_numbers(ctx, ctx.input(0), 1), weight))
    if ctx.has_input(5):
        bias = relay_op.multiply(ctx.input(5), ctx.input(4))
        total = typed(relay_op.add(total, folded(ctx, bias, ctx.input(5)) if ctx.is_known(4, 5) else bias))
    if ctx.has_input(6):
        total = typed(relay_op.add(total, scaled_numbers(ctx, ctx.input(6), 7)))
    return scaled_integers(ctx, total, 4)


@converter("QOrderedGelu", domain=_DOMAIN)
def convert_ordered_gelu(ctx: NodeContext) -> RelayExpr:
    """Gelu of each element, in any order."""
    return scaled_integers(ctx, relay_op.nn.gelu(scaled_numbers(ctx, ctx.input(0), 1), "none"), 2)


@converter("QOrderedLayerNormalization", domain=_DOMAIN)
def convert_ordered_layer_norm(ctx: NodeContext) -> RelayExpr:
    """Layer normalization over the last axis; scale and bias are no integers."""
    orders = [_order(ctx, name, _ROWS, _BLOCKS) for name in ("order_X", "order_Y")]
    data = scaled_numbers(ctx, _in_rows(ctx, ctx.input(0), orders[0]), 1)
    if ctx.normalize_axis(ctx.attr("axis", -1), ctx.rank(data)) != ctx.rank(data) - 1:
        ctx.unsupported("an axis other than the last")
    gamma = in_float32(ctx, ctx.input(2))
    beta = in_float32(ctx, ctx.input(3)) if ctx.has_input(3) else relay_op.zeros_like(gamma)
    found = relay_op.nn.layer_norm(data, gamma, typed(beta), epsilon=ctx.attr("epsilon", 1e-5))
    return _laid(ctx, scaled_integers(ctx, found, 4), orders[1])


@converter("QOrderedAttention", domain=_DOMAIN)
def convert_ordered_attention(ctx: NodeContext) -> RelayExpr:
    """Attention that rounds to int8 behind each product and behind the softmax, each by its own scale."""
    for name, order in (("order_input", _ROWS), ("order_weight", _COLUMNS), ("order_output", _ROWS)):
        _order(ctx, name, order)
    if ctx.has_input(18) or ctx.has_input(19):
        ctx.unsupported("past keys and values, and a bias of the scores")
    heads, data = ctx.required("num_heads"), scaled_numbers(ctx, ctx.input(0), 1)

    def rounded(value: RelayExpr, scale: int) -> RelayExpr:
        return scaled_numbers(ctx, scaled_integers(ctx, typed(value), scale), scale)

    parts = []
    for i in range(3):
        weight = scaled_numbers(ctx, _in_rows(ctx, ctx.input(5 + i), _COLUMNS), 8 + i, -1)
        parts.append(heads_of(ctx, rounded(relay_op.add(matmul(ctx, data, weight), ctx.input(11 + i)), 2 + i), heads))
    q, k, v = parts
    scores = rounded(matmul(ctx, q, _swapped(k, 4)), 14)
    root = const(np.float32(1 / math.sqrt(ctx.shape(q)[3])))
    scores = relay_op.multiply(scores, root)
    for addition in additions_to_scores(ctx, q, k, 17, None, None):
        scores = relay_op.add(scores, addition)
    found = matmul(ctx, rounded(relay_op.nn.softmax(scores, axis=-1), 15), v)
    batch, length, width = ctx.shape(q)[0], ctx.shape(q)[2], ctx.shape(v)[3]
    joined = relay_op.reshape(relay_op.transpose(found, axes=(0, 2, 1, 3)), (batch, length, heads * width))
    return scaled_integers(ctx, typed(joined), 16)
