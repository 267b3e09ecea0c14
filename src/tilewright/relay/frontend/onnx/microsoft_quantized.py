"""Operators of com.microsoft on quantized tensors, beside those of ``quantization.py``."""

from __future__ import annotations

from typing import Any

import onnx

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.indices import checked_indices
from tilewright.relay.frontend.onnx.linear import matmul
from tilewright.relay.frontend.onnx.microsoft import embedded, embedded_by_place, normalized_embeddings
from tilewright.relay.frontend.onnx.microsoft_attention import joint_attention
from tilewright.relay.frontend.onnx.qlinear import numbers, numbers_of
from tilewright.relay.frontend.onnx.quantization import (
    along,
    convert_dynamic_quantize,
    folded,
    integer_product,
    shifted,
)
from tilewright.relay.frontend.onnx.recurrent import Step, check_lstm, direction_slice, lstm_cell, unroll
from tilewright.relay.frontend.onnx.registry import converter

_DOMAIN = "com.microsoft"


@converter("MatMulIntegerToFloat", domain=_DOMAIN)
def convert_matmul_integer_to_float(ctx: NodeContext) -> RelayExpr:
    """The product of integers less their zero points, times the scales of both, and a bias: float32."""
    return _scaled_product(ctx, 2, 4, 6)


def _scaled_product(ctx: NodeContext, scales: int, zeros: int, bias: int) -> RelayExpr:
    """The product of the first two inputs, which are integers; the other numbers are those of inputs."""
    product = integer_product(ctx, *((ctx.input(i), ctx.optional(zeros + i)) for i in (0, 1)))
    sums = typed(relay_op.cast(product, "float32"))
    rank = ctx.rank(sums)
    scale = relay_op.multiply(along(ctx, ctx.input(scales), -2, rank), along(ctx, ctx.input(scales + 1), -1, rank))
    out = typed(relay_op.multiply(sums, scale))
    return typed(relay_op.add(out, ctx.input(bias))) if ctx.has_input(bias) else out


@converter("QAttention", domain=_DOMAIN)
def convert_qattention(ctx: NodeContext) -> Any:
    """Attention of a quantized input by quantized weights: what these give is floating point."""
    return joint_attention(ctx, _scaled_product(ctx, 3, 6, 2), mask=5, past=8, addition=None)


@converter("QEmbedLayerNormalization", domain=_DOMAIN)
def convert_quantized_embed_layer_norm(ctx: NodeContext) -> Any:
    """Sums of rows of quantized tables by word, position and segment, normalized; the lengths of the sequences."""
    total = relay_op.add(numbers_of(ctx, embedded(ctx, 2, 0), 8, 13), numbers_of(ctx, embedded_by_place(ctx, 3), 9, 14))
    if ctx.has_input(1):
        total = relay_op.add(total, numbers_of(ctx, embedded(ctx, 4, 1), 10, 15))
    gamma, beta = (numbers(ctx, 5 + i, 11 + i, 16 + i) for i in (0, 1))
    return normalized_embeddings(ctx, typed(total), gamma, beta)[: ctx.num_outputs]


@converter("MatMulInteger16", domain=_DOMAIN)
def convert_matmul_integer16(ctx: NodeContext) -> RelayExpr:
    """The product of matrices of 16 bits, in int32."""
    left, right = (relay_op.cast(ctx.input(i), "int32") for i in (0, 1))
    return matmul(ctx, left, right)


@converter("MulInteger", domain=_DOMAIN)
def convert_mul_integer(ctx: NodeContext) -> RelayExpr:
    """The product of integers less their zero points, element by element, in int32."""
    return relay_op.multiply(*(shifted(ctx, ctx.input(i), ctx.optional(i + 1)) for i in (0, 2)))


@converter("ReduceSumInteger", domain=_DOMAIN)
def convert_reduce_sum_integer(ctx: NodeContext) -> RelayExpr:
    """Sums of bytes over axes, which are an attribute: int32 of int8, uint32 of uint8."""
    wide = relay_op.cast(ctx.input(0), "int32" if ctx.dtype(ctx.input(0)) == "int8" else "uint32")
    return relay_op.sum(wide, axis=list(ctx.required("axes")), keepdims=bool(ctx.required("keepdims")))


@converter("NhwcMaxPool", domain=_DOMAIN)
def convert_nhwc_max_pool(ctx: NodeContext) -> RelayExpr:
    """The largest bytes of windows; channels are last."""
    rank = ctx.rank(ctx.input(0))
    data = typed(relay_op.transpose(ctx.input(0), axes=(0, rank - 1, *range(1, rank - 1))))
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    out = ctx.called("MaxPool", [data], {name: ctx.attrs[name] for name in names if name in ctx.attrs})
    return relay_op.transpose(out, axes=(0, *range(2, rank), 1))


def split_dynamic_products(model: onnx.ModelProto) -> None:
    """Replace ``DynamicQuantizeMatMul`` by the two operators that define it."""
    if all(node.op_type != "DynamicQuantizeMatMul" for node in model.graph.node):
        return
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        nodes += _split(node) if (node.domain, node.op_type) == (_DOMAIN, "DynamicQuantizeMatMul") else [node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _split(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    data, weight, scale, zero, bias = [*node.input, "", "", ""][:5]
    numbers, own_scale, own_zero = (f"{node.output[0]}_{part}" for part in ("quantized", "scale", "zero_point"))
    product = [numbers, weight, own_scale, scale, own_zero, zero, bias]
    return [
        onnx.helper.make_node("DynamicQuantizeLinear", [data], [numbers, own_scale, own_zero], name=node.name),
        onnx.helper.make_node("MatMulIntegerToFloat", product, node.output, name=node.name, domain=_DOMAIN),
    ]


@converter("GatherBlockQuantized", domain=_DOMAIN)
def convert_gather_block_quantized(ctx: NodeContext) -> RelayExpr:
    """Rows of a table of few bits, with a scale for each block of a row, as floating-point numbers.

    Bytes hold one number of 8 bits or two of 4, the low ones first; without zero points their middle stands for 0.
    """
    table, scales = ctx.input(0), ctx.input(2)
    dtype, rank = ctx.dtype(table), ctx.rank(table)
    bits, block = ctx.attr("bits", 4), ctx.attr("block_size", 128)
    last = ctx.normalize_axis(ctx.attr("quantize_axis", 1), rank) == rank - 1
    packed = dtype == "uint8"
    if ctx.normalize_axis(ctx.attr("gather_axis", 0), rank) or not last or bits not in ((4, 8) if packed else (4,)):
        ctx.unsupported(
            f"{dtype} of {bits} bits; supported are uint8 of 4 and 8 bits, int4, uint4; gathered along the first axis "
            "and quantized along the last"
        )
    columns = ctx.extent(table, -1) * (8 // bits if packed else 1)
    places = checked_indices(ctx, 1, table, [0])

    def rows(parameter: RelayExpr) -> RelayExpr:
        """The gathered rows of an array, a number for each column."""
        found = typed(relay_op.take(parameter, places, axis=0, mode="fast"))
        return _nibbles(found, ctx.rank(found)) if bits == 4 and ctx.dtype(parameter) == "uint8" else found

    def spread(parameter: RelayExpr) -> RelayExpr:
        """Repeat the values of a block for each of its columns."""
        wide = typed(relay_op.repeat(relay_op.cast(rows(parameter), ctx.dtype(scales)), block, axis=-1))
        return relay_op.strided_slice(wide, [0], [columns], axes=[ctx.rank(wide) - 1])

    zero = spread(ctx.input(3)) if ctx.has_input(3) else const(float(packed << (bits - 1)), ctx.dtype(scales))
    numbers = relay_op.subtract(relay_op.cast(rows(table), ctx.dtype(scales)), zero)
    return relay_op.multiply(numbers, spread(scales))


def _nibbles(data: RelayExpr, rank: int) -> RelayExpr:
    """Split each byte along the last axis into two numbers of 4 bits."""
    low = relay_op.bitwise_and(data, const(15, "uint8"))
    high = relay_op.right_shift(data, const(4, "uint8"))
    return relay_op.reshape(relay_op.stack([low, high], axis=rank), (*([0] * (rank - 1)), -1))


@converter("DynamicQuantizeLSTM", domain=_DOMAIN)
def convert_dynamic_quantize_lstm(ctx: NodeContext) -> Any:
    """An LSTM of quantized weights: what each product multiplies them with is quantized by its own range."""
    check_lstm(ctx)

    def product(rows: RelayExpr, index: int, direction: int) -> RelayExpr:
        """Of a weight, laid out (inner, gates), whose scale and zero point are inputs ``index + 7`` and the next."""
        quantized: Any = convert_dynamic_quantize(NodeContext(ctx.importer, ctx.node, [typed(rows)]))
        number, scale, zero = quantized
        places = (index, 6 + 2 * index, 7 + 2 * index)
        weight, own_scale, own_zero = (
            folded(ctx, direction_slice(ctx, ctx.input(i), direction), ctx.input(i)) for i in places
        )
        inputs = [typed(number), weight, scale, own_scale, zero, own_zero]
        found: Any = convert_matmul_integer_to_float(NodeContext(ctx.importer, ctx.node, inputs))
        return typed(found)

    def project(ctx: NodeContext, direction: int, rows: RelayExpr) -> RelayExpr:
        return product(rows, 1, direction)

    def step(ctx: NodeContext, direction: int, *_: Any) -> Step:
        return lstm_cell(ctx, direction, lambda output: product(output, 2, direction))

    return unroll(ctx, 4, 2, step, project=project)[: ctx.num_outputs]
