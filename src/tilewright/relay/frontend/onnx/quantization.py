"""Linear quantization: QuantizeLinear, DequantizeLinear, products and convolutions of quantized tensors."""

from __future__ import annotations

import onnx

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.attributes import dtype_of
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.conv import convolution
from tilewright.relay.frontend.onnx.elementwise import small_float
from tilewright.relay.frontend.onnx.linear import matmul
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
    scale = ctx.input(1)
    shape = ctx.shape(scale)
    axis = 0 if not shape or shape == (1,) else ctx.normalize_axis(ctx.attr("axis", 1), ctx.rank(ctx.input(0)))
    return _in_float32(ctx, scale), ctx.input(2) if ctx.has_input(2) else const(0), axis


def _in_float32(ctx: NodeContext, value: RelayExpr) -> RelayExpr:
    return value if ctx.dtype(value) == "float32" else typed(relay_op.cast(value, "float32"))


def _spread(ctx: NodeContext, parameter: RelayExpr) -> RelayExpr:
    """A scale or zero point as float32 that broadcasts: one for all, for each entry of ``axis`` or each block."""
    data = ctx.shape(ctx.input(0))
    shape, block = ctx.shape(parameter), ctx.attr("block_size", 0)
    number = _in_float32(ctx, parameter)
    if not shape or shape == (1,):
        return typed(relay_op.reshape(number, ()))
    axis = ctx.normalize_axis(ctx.attr("axis", 1), len(data))
    if block:
        if len(shape) != len(data) or shape[axis] != -(-data[axis] // block):
            ctx.fail(f"scales of shape {shape} do not fit blocks of {block} along axis {axis} of {data}")
        whole = relay_op.repeat(number, block, axis)
        return typed(relay_op.strided_slice(whole, [0] * len(data), list(data)))
    if len(shape) != 1 or shape[0] != data[axis]:
        ctx.fail(f"scales of shape {shape} do not fit axis {axis} of {data}")
    return typed(relay_op.reshape(number, tuple(shape[0] if i == axis else 1 for i in range(len(data)))))


def _is_plain(ctx: NodeContext, dtype: str) -> bool:
    """Whether Relay's operators have the data type, and a scale for all or for each entry of an axis."""
    return dt.is_int(dtype) and 8 <= dt.bits(dtype) <= 16 and not ctx.attr("block_size", 0)


@converter("QuantizeLinear")
def convert_quantize(ctx: NodeContext) -> RelayExpr:
    """``saturate(round(x / scale) + zero_point)``, halves rounded to even; to float8 and float4 by conversion."""
    given = ctx.dtype(ctx.input(2)) if ctx.has_input(2) else ""
    out = given or dtype_of(ctx.attr("output_dtype", 0) or 2, "attribute 'output_dtype'")
    if _is_plain(ctx, out):
        scale, zero, axis = _parameters(ctx)
        return qnn.quantize(_in_float32(ctx, ctx.input(0)), scale, zero, axis, out)
    steps = typed(relay_op.divide(_in_float32(ctx, ctx.input(0)), _spread(ctx, ctx.input(1))))
    if dt.is_small_float(out):
        return small_float(ctx, steps, out, bool(ctx.attr("saturate", 1)))
    numbers = relay_op.nearbyint(steps)
    if ctx.has_input(2):
        numbers = relay_op.add(numbers, _spread(ctx, ctx.input(2)))
    low, high = dt.int_range(out)
    return relay_op.cast(relay_op.cast(relay_op.clip(numbers, low, high), "int32"), out)


@converter("DynamicQuantizeLinear", since=11)
def convert_dynamic_quantize(ctx: NodeContext) -> tuple[RelayExpr, ...]:
    """To uint8, with the scale and zero point of the tensor's own range and 0; of zeros alone the scale is 1."""
    data, zero = ctx.input(0), const(0.0, "float32")
    low, high = relay_op.minimum(relay_op.min(data), zero), relay_op.maximum(relay_op.max(data), zero)
    steps = const(255.0, "float32")
    span = relay_op.divide(relay_op.subtract(high, low), steps)
    scale = typed(relay_op.where(relay_op.equal(low, high), const(1.0, "float32"), span))
    point = relay_op.clip(relay_op.nearbyint(relay_op.divide(relay_op.negative(low), scale)), 0.0, 255.0)
    whole = typed(relay_op.cast(point, "uint8"))
    return qnn.quantize(data, scale, whole, 0, "uint8"), scale, whole


@converter("DequantizeLinear")
def convert_dequantize(ctx: NodeContext) -> RelayExpr:
    """``(x - zero_point) * scale``"""
    data, dtype = ctx.input(0), ctx.dtype(ctx.input(1))
    if ctx.attr("output_dtype", 0):
        dtype = dtype_of(ctx.attr("output_dtype"), "attribute 'output_dtype'")
    given = ctx.dtype(data)
    if dt.is_int(given) and dt.bits(given) >= 8 and not ctx.attr("block_size", 0):
        scale, zero, axis = _parameters(ctx)
        numbers = qnn.dequantize(data, scale, zero, axis)
    else:
        numbers = relay_op.cast(data, "float32")
        if ctx.has_input(2):
            numbers = relay_op.subtract(numbers, _spread(ctx, ctx.input(2)))
        numbers = relay_op.multiply(numbers, _spread(ctx, ctx.input(1)))
    return relay_op.cast(numbers, dtype) if dtype != "float32" else numbers


# ------------------------------------------------------------------------------------------- operators on integers


def shifted(ctx: NodeContext, data: RelayExpr, zero: RelayExpr | None, axis: int | None = None) -> RelayExpr:
    """``data - zero`` in int32; a zero point for each entry of ``axis`` is a vector."""
    wide = relay_op.cast(data, "int32")
    if zero is None:
        return wide
    offset = relay_op.cast(zero, "int32")
    shape = ctx.shape(zero)
    if len(shape) == 1 and shape != (1,) and axis is not None:
        sizes = [1] * ctx.rank(data)
        sizes[axis] = shape[0]
        offset = relay_op.reshape(offset, newshape=tuple(sizes))
    return typed(relay_op.subtract(wide, offset if shape != (1,) else relay_op.reshape(offset, newshape=())))


def _requantized(ctx: NodeContext, sums: RelayExpr, scale: RelayExpr, index: int) -> RelayExpr:
    """``sums * scale / y_scale + y_zero_point`` in y's data type; inputs ``index`` and the next are y's parameters."""
    out = ctx.dtype(ctx.input(index + 1))
    factor = relay_op.divide(scale, _in_float32(ctx, ctx.input(index)))
    numbers = relay_op.multiply(relay_op.cast(sums, "float32"), factor)
    return qnn.quantize(typed(numbers), const(1.0, "float32"), ctx.input(index + 1), 0, out)


@converter("MatMulInteger", since=10)
def convert_matmul_integer(ctx: NodeContext) -> RelayExpr:
    """The product of integers less their zero points, in int32."""
    a, b = ctx.input(0), ctx.input(1)
    return matmul(ctx, shifted(ctx, a, ctx.optional(2), -2), shifted(ctx, b, ctx.optional(3), -1))


@converter("QLinearMatMul", since=10)
def convert_qlinear_matmul(ctx: NodeContext) -> RelayExpr:
    """A product of quantized matrices, summed in int32 and quantized anew."""
    a, a_scale, a_zero, b, b_scale, b_zero = (ctx.input(i) for i in range(6))
    sums = typed(matmul(ctx, shifted(ctx, a, a_zero, -2), shifted(ctx, b, b_zero, -1)))
    scale = relay_op.multiply(
        along(ctx, _in_float32(ctx, a_scale), -2, ctx.rank(sums)),
        along(ctx, _in_float32(ctx, b_scale), -1, ctx.rank(sums)),
    )
    return _requantized(ctx, sums, typed(scale), 6)


def along(ctx: NodeContext, scale: RelayExpr, axis: int, rank: int) -> RelayExpr:
    """A scale, or one for each entry of an axis, that broadcasts with a tensor of ``rank``."""
    (size,) = ctx.shape(scale) or (1,)
    return typed(relay_op.reshape(scale, newshape=tuple(size if i == axis % rank else 1 for i in range(rank))))


@converter("ConvInteger", since=10)
def convert_conv_integer(ctx: NodeContext) -> RelayExpr:
    """The convolution of integers less their zero points, in int32; what is padded is a zero point."""
    data, weight = shifted(ctx, ctx.input(0), ctx.optional(2)), shifted(ctx, ctx.input(1), ctx.optional(3), 0)
    return convolution(ctx, data, weight)


@converter("QLinearConv", since=10)
def convert_qlinear_conv(ctx: NodeContext) -> RelayExpr:
    """A convolution of quantized tensors, summed in int32 with a bias of int32, and quantized anew."""
    data, x_scale, x_zero, weight, w_scale, w_zero = (ctx.input(i) for i in range(6))
    sums = typed(convolution(ctx, shifted(ctx, data, x_zero), shifted(ctx, weight, w_zero, 0)))
    bias = ctx.optional(8)
    if bias is not None:
        sums = typed(relay_op.nn.bias_add(sums, bias))
    scale = relay_op.multiply(
        along(ctx, _in_float32(ctx, w_scale), 1, ctx.rank(sums)), relay_op.reshape(_in_float32(ctx, x_scale), ())
    )
    return _requantized(ctx, sums, typed(scale), 6)
