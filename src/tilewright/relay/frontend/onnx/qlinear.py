"""Operators whose tensors are integers with scales (QOperator form), as what they mean in QDQ form.

``QLinearConv`` is a convolution between ``qnn.dequantize`` and ``qnn.quantize``, and so on: ``relay.qnn.groups`` makes
the same integers of a file in either form. Where a scale or weight comes when the model runs, sums are of int32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.conv import convolution
from tilewright.relay.frontend.onnx.linear import matmul
from tilewright.relay.frontend.onnx.quantization import along, checked_scale, checked_zero, folded, in_float32, shifted
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.qnn import op as qnn

_DOMAIN = "com.microsoft"


# ------------------------------------------------------------------------------------------------- numbers, integers


def _parameter(ctx: NodeContext, value: RelayExpr, rank: int, axis: int) -> RelayExpr:
    """A scale or zero point as a number, or a vector for the entries of an axis."""
    shape = ctx.shape(value)
    if len(shape) < 2:
        return value
    if len(shape) != rank or any(d != 1 for i, d in enumerate(shape) if i != axis % rank):
        ctx.unsupported(f"scales of shape {shape}; one for all, and one for each entry of axis {axis} are supported")
    return folded(ctx, relay_op.reshape(value, newshape=(-1,)), value)


def numbers(ctx: NodeContext, index: int, scale: int, zero: int, axis: int = 0, factor: float = 1.0) -> RelayExpr:
    """The numbers, times ``factor``, that the integers in an input stand for."""
    return numbers_of(ctx, ctx.input(index), scale, zero, axis, factor)


def numbers_of(
    ctx: NodeContext, data: RelayExpr, scale: int, zero: int, axis: int = 0, factor: float = 1.0
) -> RelayExpr:
    """The numbers, times ``factor``, that integers stand for by the scale and zero point in inputs."""
    rank, steps = ctx.rank(data), checked_scale(ctx, scale)
    point = checked_zero(ctx, zero, ctx.dtype(data), steps)
    steps = _parameter(ctx, in_float32(ctx, steps), rank, axis)
    if factor != 1.0:
        steps = folded(ctx, relay_op.multiply(steps, const(factor, "float32")), steps)
    point = const(0) if point is None else _parameter(ctx, point, rank, axis)
    _check_extent(ctx, data, steps, axis)
    return typed(qnn.dequantize(data, steps, point, axis % rank if rank else 0))


def _check_extent(ctx: NodeContext, data: RelayExpr, steps: RelayExpr, axis: int) -> None:
    shape, dims = ctx.shape(steps), ctx.dims(data)
    if math.prod(shape) != 1 and shape[0] != dims[axis]:
        ctx.fail(f"{shape[0]} scales do not fit axis {axis} of a tensor of {dims}")


def scaled_numbers(ctx: NodeContext, data: RelayExpr, scale: int, axis: int = 0) -> RelayExpr:
    """The numbers that integers with a zero point of 0 stand for by the scale in an input."""
    return numbers_of(ctx, data, scale, ctx.num_inputs, axis)


def scaled_integers(ctx: NodeContext, value: RelayExpr, scale: int) -> RelayExpr:
    """The int8, with a zero point of 0, that stand for ``value`` by the scale in an input."""
    return integers(ctx, value, scale, ctx.num_inputs, "int8")


def integers(ctx: NodeContext, value: RelayExpr, scale: int, zero: int, dtype: str = "") -> RelayExpr:
    """The integers, of the zero point's type, that stand for ``value`` by the scale in an input."""
    out = dtype or ctx.dtype(ctx.input(zero))
    steps = checked_scale(ctx, scale)
    point = checked_zero(ctx, zero, out, steps)
    steps = _parameter(ctx, in_float32(ctx, steps), 0, 0)
    point = const(0) if point is None else _parameter(ctx, point, 0, 0)
    if math.prod(ctx.shape(steps)) != 1:
        ctx.unsupported(f"{ctx.shape(steps)[0]} scales of the result; one is supported")
    return typed(qnn.quantize(typed(value), steps, point, 0, out))


def _units(ctx: NodeContext, left: int, right: int, factor: float = 1.0) -> RelayExpr:
    """Return the unit of the sums of products: the product of two scales, a number or a vector, in float32."""
    sides = [ctx.constant(i, "a scale").astype("float32") for i in (left, right)]
    found = (sides[0].reshape(-1) * sides[1].reshape(-1) * np.float32(factor)).astype("float32")
    return const(found[0] if found.size == 1 else found)


def _biases(ctx: NodeContext, index: int, units: RelayExpr) -> RelayExpr:
    """The numbers of an int32 bias, which counts units of the sums."""
    bias = ctx.input(index)
    if ctx.dtype(bias) != "int32":
        ctx.fail(f"input {index}, {ctx.node.input[index]!r}: the bias is {ctx.dtype(bias)}, expected int32")
    shape = ctx.shape(bias)
    if len(shape) == 2 and shape[0] == 1:
        bias = folded(ctx, relay_op.reshape(bias, newshape=(-1,)), bias)
    return typed(qnn.dequantize(bias, units, const(0), max(ctx.rank(bias) - 1, 0)))


# ------------------------------------------------------------------------------------------------------------ products


@converter("QLinearConv", since=10)
@converter("QLinearConv", domain=_DOMAIN)
def convert_qlinear_conv(ctx: NodeContext) -> RelayExpr:
    """A convolution of quantized tensors with a bias of int32; ``channels_last`` has data and result in NHWC."""
    data, rank, last = ctx.input(0), ctx.rank(ctx.input(0)), ctx.attr("channels_last", 0)
    if last:
        data = typed(relay_op.transpose(data, axes=(0, rank - 1, *range(1, rank - 1))))
    out = _convolved(ctx, data) if ctx.is_known(1, 2, 3, 4, 5, 6, 7, 8) else _convolved_in_integers(ctx, data)
    return relay_op.transpose(out, axes=(0, *range(2, rank), 1)) if last else out


def _convolved(ctx: NodeContext, data: RelayExpr) -> RelayExpr:
    found = typed(convolution(ctx, numbers_of(ctx, data, 1, 2), numbers(ctx, 3, 4, 5)))
    if ctx.has_input(8):
        found = typed(relay_op.nn.bias_add(found, _biases(ctx, 8, _units(ctx, 1, 4))))
    return integers(ctx, found, 6, 7)


def _convolved_in_integers(ctx: NodeContext, data: RelayExpr) -> RelayExpr:
    weight = shifted(ctx, ctx.input(3), ctx.input(5), 0)
    sums = typed(convolution(ctx, shifted(ctx, data, ctx.input(2)), weight))
    if ctx.has_input(8):
        sums = typed(relay_op.nn.bias_add(sums, ctx.input(8)))
    scale = relay_op.multiply(
        along(ctx, in_float32(ctx, ctx.input(4)), 1, ctx.rank(sums)),
        relay_op.reshape(in_float32(ctx, ctx.input(1)), ()),
    )
    return _requantized(ctx, sums, typed(scale), 6)


def _requantized(ctx: NodeContext, sums: RelayExpr, scale: RelayExpr, index: int) -> RelayExpr:
    """``sums * scale / y_scale + y_zero_point`` in y's data type; inputs ``index`` and the next are y's parameters."""
    out = ctx.dtype(ctx.input(index + 1))
    factor = relay_op.divide(scale, in_float32(ctx, checked_scale(ctx, index)))
    found = relay_op.multiply(relay_op.cast(sums, "float32"), factor)
    return qnn.quantize(typed(found), const(1.0, "float32"), ctx.input(index + 1), 0, out)


@converter("QLinearMatMul", since=10)
def convert_qlinear_matmul(ctx: NodeContext) -> RelayExpr:
    """A product of quantized matrices."""
    whole = all(math.prod(ctx.shape(ctx.input(i))) == 1 for i in (1, 4))
    if ctx.is_known(1, 2, 4, 5, 6, 7) and (whole or ctx.is_known(3)):
        left, right = numbers(ctx, 0, 1, 2, -2), numbers(ctx, 3, 4, 5, -1)
        return integers(ctx, matmul(ctx, left, right), 6, 7)
    a, b = (shifted(ctx, ctx.input(i), ctx.input(i + 2), axis) for i, axis in ((0, -2), (3, -1)))
    sums = typed(matmul(ctx, a, b))
    scale = relay_op.multiply(
        *(along(ctx, in_float32(ctx, ctx.input(i)), axis, ctx.rank(sums)) for i, axis in ((1, -2), (4, -1)))
    )
    return _requantized(ctx, sums, typed(scale), 6)


@converter("QGemm", domain=_DOMAIN)
def convert_qgemm(ctx: NodeContext) -> RelayExpr:
    """``alpha * A' B' + C`` of quantized matrices; C counts units of the sums. Without a result's scale in float32."""
    alpha, turned = ctx.attr("alpha", 1.0), bool(ctx.attr("transB", 0))
    if not ctx.is_known(1, 4, 6):
        ctx.unsupported("scales or a bias that come when the model runs")
    data = ctx.input(0)
    if ctx.attr("transA", 0):
        data = typed(relay_op.transpose(data, axes=(1, 0)))
    inputs = [numbers_of(ctx, data, 1, 2), numbers(ctx, 3, 4, 5, 0 if turned else 1, alpha)]
    if ctx.has_input(6):
        inputs.append(_biases(ctx, 6, _units(ctx, 1, 4, alpha)))
    found = ctx.called("Gemm", inputs, {"transB": int(turned)})
    return integers(ctx, found, 7, 8, ctx.dtype(data)) if ctx.has_input(7) else found


# ----------------------------------------------------------------------------------------- element by element, windows


def _of_two(ctx: NodeContext, op_type: str) -> RelayExpr:
    """An operator of two tensors, which adds the zero point before it rounds, as ``groups`` knows by that sum."""
    found = ctx.called(op_type, [numbers(ctx, 0, 1, 2), numbers(ctx, 3, 4, 5)], {})
    dtype = ctx.dtype(ctx.input(0))
    if not ctx.has_input(7) or not ctx.is_known(6, 7) or not int(ctx.scalar(7, "the zero point")) % 2:
        return integers(ctx, found, 6, 7, dtype)
    checked_zero(ctx, 7, dtype, scale := in_float32(ctx, checked_scale(ctx, 6)))
    zero = np.float32(ctx.scalar(7, "the zero point")) * np.float32(ctx.scalar(6, "the scale"))
    return qnn.quantize(relay_op.add(found, const(zero)), scale, const(0, dtype), 0, dtype)


@converter("QLinearAdd", domain=_DOMAIN)
def convert_qlinear_add(ctx: NodeContext) -> RelayExpr:
    """The sum of quantized tensors."""
    return _of_two(ctx, "Add")


@converter("QLinearMul", domain=_DOMAIN)
def convert_qlinear_mul(ctx: NodeContext) -> RelayExpr:
    """The product of quantized tensors."""
    return _of_two(ctx, "Mul")


def _of_one(ctx: NodeContext, op_type: str, attributes: Sequence[str] = (), opset: int | None = None) -> RelayExpr:
    """An operator of one quantized tensor, with the attributes of these names."""
    given = {name: ctx.attrs[name] for name in attributes if name in ctx.attrs}
    found = ctx.called(op_type, [numbers(ctx, 0, 1, 2)], given, opset)
    return integers(ctx, found, 3, 4, ctx.dtype(ctx.input(0)))


@converter("QLinearSigmoid", domain=_DOMAIN)
def convert_qlinear_sigmoid(ctx: NodeContext) -> RelayExpr:
    """The sigmoid of a quantized tensor."""
    return _of_one(ctx, "Sigmoid")


@converter("QLinearLeakyRelu", domain=_DOMAIN)
def convert_qlinear_leaky_relu(ctx: NodeContext) -> RelayExpr:
    """The leaky relu of a quantized tensor."""
    return _of_one(ctx, "LeakyRelu", ("alpha",))


@converter("QLinearSoftmax", domain=_DOMAIN)
def convert_qlinear_softmax(ctx: NodeContext) -> RelayExpr:
    """The softmax of a quantized tensor, as the attribute ``opset`` defines it."""
    opset = ctx.required("opset")
    axis = ctx.attr("axis", -1)
    return integers(ctx, ctx.called("Softmax", [numbers(ctx, 0, 1, 2)], {"axis": axis}, opset), 3, 4)


@converter("QLinearReduceMean", domain=_DOMAIN)
def convert_qlinear_reduce_mean(ctx: NodeContext) -> RelayExpr:
    """The mean of a quantized tensor over axes, which are an attribute."""
    return _of_one(ctx, "ReduceMean", ("axes", "keepdims"), min(ctx.opset, 13))


_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


@converter("QLinearAveragePool", domain=_DOMAIN)
def convert_qlinear_average_pool(ctx: NodeContext) -> RelayExpr:
    """Means of windows of a quantized tensor."""
    return _pooled(ctx, "AveragePool", {name: ctx.attrs[name] for name in _POOL if name in ctx.attrs})


@converter("QLinearGlobalAveragePool", domain=_DOMAIN)
def convert_qlinear_global_average_pool(ctx: NodeContext) -> RelayExpr:
    """Means of the channels of a quantized tensor."""
    return _pooled(ctx, "GlobalAveragePool", {})


def _pooled(ctx: NodeContext, op_type: str, attributes: dict[str, Any]) -> RelayExpr:
    data, rank, last = ctx.input(0), ctx.rank(ctx.input(0)), ctx.attr("channels_last", 0)
    if last:
        data = typed(relay_op.transpose(data, axes=(0, rank - 1, *range(1, rank - 1))))
    out = integers(ctx, ctx.called(op_type, [numbers_of(ctx, data, 1, 2)], attributes), 3, 4, ctx.dtype(data))
    return relay_op.transpose(out, axes=(0, *range(2, rank), 1)) if last else out


@converter("QLinearConcat", domain=_DOMAIN)
def convert_qlinear_concat(ctx: NodeContext) -> RelayExpr:
    """Quantized tensors joined; scale and zero point of the result come first."""
    parts = [numbers(ctx, i, i + 1, i + 2) for i in range(2, ctx.num_inputs, 3)]
    return integers(ctx, ctx.called("Concat", parts, {"axis": ctx.required("axis")}), 0, 1)


@converter("QLinearWhere", domain=_DOMAIN)
def convert_qlinear_where(ctx: NodeContext) -> RelayExpr:
    """Elements of two quantized tensors, as a condition chooses."""
    found = ctx.called("Where", [ctx.input(0), numbers(ctx, 1, 2, 3), numbers(ctx, 4, 5, 6)], {})
    return integers(ctx, found, 7, 8)
