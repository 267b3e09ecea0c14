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
    """Rows of a table of few bits, with a scale for each block of an axis, as floating-point numbers.

    A byte of uint8 holds one number of 8 bits, two of 4 or four of 2 along the last axis, the low ones first; without
    zero points their middle stands for 0. int4 and uint4 are numbers of their own, whose zero is 0.
    """
    table, scales = ctx.input(0), ctx.input(2)
    rank, packed = ctx.rank(table), ctx.dtype(table) == "uint8"
    bits, block = ctx.attr("bits", 4), ctx.attr("block_size", 128)
    gathered, blocked = (
        ctx.normalize_axis(ctx.attr(n, d), rank) for n, d in (("gather_axis", 0), ("quantize_axis", 1))
    )
    if block < 1:
        ctx.fail(f"attribute 'block_size' is {block}; a block has at least one number")
    if bits not in ((2, 4, 8) if packed else (4,)):
        ctx.unsupported(f"{ctx.dtype(table)} of {bits} bits; supported are uint8 of 2, 4 and 8 bits, int4 and uint4")
    if packed and (gathered, blocked) != (0, rank - 1):
        ctx.fail(
            f"gather_axis {gathered} and quantize_axis {blocked} of packed bytes; those are gathered along axis 0 and "
            f"quantized along the last, {rank - 1}"
        )
    each = 8 // bits if packed else 1
    whole = [ctx.extent(table, i) * (each if i == rank - 1 else 1) for i in range(rank)]
    _check_blocks(ctx, whole, blocked, block, each)
    places = checked_indices(ctx, 1, table, [gathered])
    moved = blocked + (ctx.rank(places) - 1 if blocked > gathered else 0)  # the blocks' axis in what is gathered

    def rows(parameter: RelayExpr) -> RelayExpr:
        """The gathered rows of an array, a number for each column or block, in the result's type."""
        found = typed(relay_op.take(parameter, places, axis=gathered, mode="fast"))
        if each > 1 and ctx.dtype(parameter) == "uint8":
            found = _numbers(found, ctx.rank(found), bits)
        return typed(relay_op.cast(found, ctx.dtype(scales)))

    def spread(parameter: RelayExpr) -> RelayExpr:
        """Repeat the gathered values of blocks for each of their numbers; where blocks are gathered, a row has one."""
        if blocked == gathered:
            every = typed(relay_op.repeat(parameter, block, axis=blocked))
            return rows(typed(relay_op.strided_slice(every, [0], [whole[blocked]], axes=[blocked])))
        wide = typed(relay_op.repeat(rows(parameter), block, axis=moved))
        return relay_op.strided_slice(wide, [0], [whole[blocked]], axes=[moved])

    zero = spread(ctx.input(3)) if ctx.has_input(3) else const(float(packed << (bits - 1)), ctx.dtype(scales))
    return relay_op.multiply(relay_op.subtract(rows(table), zero), spread(scales))


def _check_blocks(ctx: NodeContext, whole: list[int], axis: int, block: int, each: int) -> None:
    """Check that scales, and zero points of which a byte holds ``each``, belong to the blocks of a tensor."""
    wanted = [-(-n // block) if i == axis else n for i, n in enumerate(whole)]
    for index, what, of_byte in ((2, "scales", 1), (3, "zero points", each)):
        if ctx.has_input(index):
            shape = [*wanted[:-1], -(-wanted[-1] // of_byte)]
            found = ctx.dims(ctx.input(index))
            if list(found) != shape:
                ctx.fail(
                    f"{what} of shape {tuple(found)} do not fit blocks of {block} along axis {axis} of {tuple(whole)} "
                    f"numbers; expected {tuple(shape)}"
                )


def _numbers(data: RelayExpr, rank: int, bits: int) -> RelayExpr:
    """Split each byte along the last axis into its numbers of ``bits`` bits."""
    mask = const((1 << bits) - 1, "uint8")
    parts = [relay_op.right_shift(data, const(shift, "uint8")) for shift in range(0, 8, bits)]
    masked = [relay_op.bitwise_and(part, mask) for part in parts]
    return typed(relay_op.reshape(relay_op.stack(masked, axis=rank), (*([0] * (rank - 1)), -1)))


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
