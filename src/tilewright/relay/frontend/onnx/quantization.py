"""Linear quantization: QuantizeLinear, DequantizeLinear."""

from __future__ import annotations

import onnx

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.attributes import dtype_of
from tilewright.relay.frontend.onnx.context import NodeContext
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.qnn import op as qnn


def dequantized_operators(model: onnx.ModelProto) -> int:
    """How many operators of a quantized (QDQ) model are computed in float32, most of them on whole numbers.

    That is all that read what a DequantizeLinear gives; ``relay.qnn.groups`` says how.
    """
    given = {name for node in model.graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    return sum(
        node.op_type != "QuantizeLinear" and any(name in given for name in node.input) for node in model.graph.node
    )


def _parameters(ctx: NodeContext) -> tuple[RelayExpr, RelayExpr, int]:
    """Scale (float32), zero point, and the axis along which they vary."""
    if ctx.attr("block_size", 0):
        ctx.unsupported("attribute block_size: a scale for each block")
    scale = ctx.input(1)
    shape = ctx.shape(scale)
    if len(shape) > 1:
        ctx.unsupported(f"scales of rank {len(shape)}: a scale for each block")
    axis = 0 if not shape or shape == (1,) else ctx.normalize_axis(ctx.attr("axis", 1), ctx.rank(ctx.input(0)))
    return _in_float32(ctx, scale), ctx.input(2) if ctx.has_input(2) else const(0), axis


def _in_float32(ctx: NodeContext, value: RelayExpr) -> RelayExpr:
    return value if ctx.dtype(value) == "float32" else relay_op.cast(value, "float32")


@converter("QuantizeLinear")
def convert_quantize(ctx: NodeContext) -> RelayExpr:
    """``saturate(round(x / scale) + zero_point)``, halves rounded to even."""
    scale, zero, axis = _parameters(ctx)
    given = ctx.dtype(zero) if ctx.has_input(2) else ""
    out = given or dtype_of(ctx.attr("output_dtype", 0) or 2, "attribute 'output_dtype'")
    if not dt.is_int(out) or dt.bits(out) > 16:
        ctx.unsupported(f"quantization to {out}; int8, uint8, int16 and uint16 are supported")
    return qnn.quantize(_in_float32(ctx, ctx.input(0)), scale, zero, axis, out)


@converter("DequantizeLinear")
def convert_dequantize(ctx: NodeContext) -> RelayExpr:
    """``(x - zero_point) * scale``"""
    scale, zero, axis = _parameters(ctx)
    dtype, given = ctx.dtype(ctx.input(1)), ctx.dtype(ctx.input(0))
    if not dt.is_int(given):
        ctx.unsupported(f"dequantization of {given}; integers are supported")
    numbers = qnn.dequantize(ctx.input(0), scale, zero, axis)
    return relay_op.cast(numbers, dtype) if dtype != "float32" else numbers
