"""Linear quantization, computed in floating point: QuantizeLinear, DequantizeLinear."""

from __future__ import annotations

import onnx

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.onnx.attributes import dtype_of
from tilewright.relay.frontend.onnx.context import NodeContext
from tilewright.relay.frontend.onnx.registry import converter


def dequantized_operators(model: onnx.ModelProto) -> int:
    """How many operators of a quantized (QDQ) model are computed in floating point, and not in integers as meant.

    That is all that read what a DequantizeLinear gives.
    """
    given = {name for node in model.graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    return sum(
        node.op_type != "QuantizeLinear" and any(name in given for name in node.input) for node in model.graph.node
    )


def _along_axis(ctx: NodeContext, parameter: RelayExpr) -> RelayExpr:
    """A scale or zero point, shaped to broadcast: one for the tensor, or one for each entry of ``axis``."""
    if ctx.attr("block_size", 0):
        ctx.unsupported("attribute block_size: a scale for each block")
    shape = ctx.shape(parameter)
    if not shape or shape == (1,):
        return relay_op.reshape(parameter, newshape=())
    if len(shape) != 1:
        ctx.unsupported(f"scales of rank {len(shape)}: a scale for each block")
    rank = ctx.rank(ctx.input(0))
    axis = ctx.normalize_axis(ctx.attr("axis", 1), rank)
    return relay_op.reshape(parameter, newshape=tuple(-1 if i == axis else 1 for i in range(rank)))


@converter("QuantizeLinear")
def convert_quantize(ctx: NodeContext) -> RelayExpr:
    """``saturate(round(x / scale) + zero_point)``, halves rounded to even."""
    data, scale = ctx.input(0), ctx.input(1)
    if ctx.has_input(2):
        out = ctx.dtype(ctx.input(2))
    else:
        out = dtype_of(ctx.attr("output_dtype", 0) or 2, "attribute 'output_dtype'")
    if not dt.is_int(out) or dt.bits(out) > 16:
        ctx.unsupported(f"quantization to {out}; int8, uint8, int16 and uint16 are supported")
    scaled = relay_op.divide(relay_op.cast(data, "float32"), relay_op.cast(_along_axis(ctx, scale), "float32"))
    rounded = relay_op.nearbyint(scaled)
    if ctx.has_input(2):
        rounded = relay_op.add(rounded, relay_op.cast(_along_axis(ctx, ctx.input(2)), "float32"))
    low, high = dt.int_range(out)
    return relay_op.cast(relay_op.clip(rounded, float(low), float(high)), out)


@converter("DequantizeLinear")
def convert_dequantize(ctx: NodeContext) -> RelayExpr:
    """``(x - zero_point) * scale``"""
    data, scale = ctx.input(0), ctx.input(1)
    dtype = ctx.dtype(scale)
    whole = relay_op.cast(data, "int32")
    if ctx.has_input(2):
        whole = relay_op.subtract(whole, relay_op.cast(_along_axis(ctx, ctx.input(2)), "int32"))
    scaled = relay_op.multiply(relay_op.cast(whole, "float32"), relay_op.cast(_along_axis(ctx, scale), "float32"))
    return relay_op.cast(scaled, dtype) if dtype != "float32" else scaled
