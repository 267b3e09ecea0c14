"""Element-wise operators, activations, comparisons and logic."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.attributes import dtype_of
from tilewright.relay.frontend.onnx.context import NodeContext, describe, typed
from tilewright.relay.frontend.onnx.randomness import dropout
from tilewright.relay.frontend.onnx.registry import converter, simple

simple(
    Relu=relay_op.nn.relu, Sigmoid=relay_op.sigmoid, Tanh=relay_op.tanh, Exp=relay_op.exp, Log=relay_op.log,
    Sqrt=relay_op.sqrt, Abs=relay_op.abs, Neg=relay_op.negative, Floor=relay_op.floor, Ceil=relay_op.ceil,
    Sin=relay_op.sin, Cos=relay_op.cos, Tan=relay_op.tan, Asin=relay_op.asin, Acos=relay_op.acos,
    Atan=relay_op.atan, Sinh=relay_op.sinh, Cosh=relay_op.cosh, Asinh=relay_op.asinh, Acosh=relay_op.acosh,
    Atanh=relay_op.atanh, Sign=relay_op.sign, IsNaN=relay_op.isnan, Not=relay_op.logical_not,
    Add=relay_op.add, Sub=relay_op.subtract, Mul=relay_op.multiply, And=relay_op.logical_and, Or=relay_op.logical_or,
    Xor=relay_op.logical_xor, Equal=relay_op.equal, Less=relay_op.less, LessOrEqual=relay_op.less_equal,
    Greater=relay_op.greater, GreaterOrEqual=relay_op.greater_equal, BitwiseAnd=relay_op.bitwise_and,
    BitwiseOr=relay_op.bitwise_or, BitwiseXor=relay_op.bitwise_xor, BitwiseNot=relay_op.bitwise_not,
    Round=relay_op.nearbyint, Softplus=relay_op.nn.softplus,
)  # fmt: skip


def _like(ctx: NodeContext, value: float, expr: RelayExpr) -> RelayExpr:
    return const(value, ctx.dtype(expr))


@converter("Erf")
def convert_erf(ctx: NodeContext) -> RelayExpr:
    """The error function; of integers, rounded towards zero."""
    return ctx.through_float(ctx.input(0), relay_op.erf)


@converter("Div")
def convert_div(ctx: NodeContext) -> RelayExpr:
    """Division; of integers, truncating."""
    return relay_op.divide(ctx.input(0), ctx.input(1))


@converter("Pow")
def convert_pow(ctx: NodeContext) -> RelayExpr:
    """Power; small constant exponents become multiplications and square roots."""
    base = ctx.input(0)
    dtype = ctx.dtype(base)
    value = ctx.constant_or_none(ctx.input(1))
    if value is not None and value.size == 1 and value.ndim <= ctx.rank(base) and dt.is_float(dtype):
        exponent = float(value.reshape(-1)[0])
        if exponent == 2.0:
            return relay_op.multiply(base, base)
        if exponent == 3.0:
            return relay_op.multiply(relay_op.multiply(base, base), base)
        if exponent == 0.5:
            return relay_op.sqrt(base)
        if exponent == 1.0:
            return base
    exponents = ctx.input(1)
    computed = _dtype_of_power(dtype, ctx.dtype(exponents))
    power = relay_op.power(_cast(ctx, base, computed), _cast(ctx, exponents, computed))
    return power if computed == dtype else relay_op.cast(power, dtype)


def _dtype_of_power(base: str, exponent: str) -> str:
    """Return a type that holds every exponent: that of the base, or a wider one."""
    if base == exponent or not dt.is_float(exponent):
        return base
    if not dt.is_float(base):
        return "float64"
    if dt.bits(base) == dt.bits(exponent):  # float16 and bfloat16
        return "float32"
    return max(base, exponent, key=dt.bits)


def _cast(ctx: NodeContext, value: RelayExpr, dtype: str) -> RelayExpr:
    return value if ctx.dtype(value) == dtype else relay_op.cast(value, dtype)


@converter("Mod")
def convert_mod(ctx: NodeContext) -> RelayExpr:
    """Remainder: of the divisor's sign, or with ``fmod`` of the dividend's."""
    data, divisor = ctx.input(0), ctx.input(1)
    if ctx.attr("fmod", 0):
        return relay_op.mod(data, divisor)
    if not dt.is_float(ctx.dtype(data)):
        return relay_op.floor_mod(data, divisor)
    # x - floor(x / y) * y is not a number where y is infinite.
    zero = _like(ctx, 0.0, data)
    rest = relay_op.mod(data, divisor)
    signs_differ = relay_op.less(relay_op.multiply(relay_op.sign(rest), relay_op.sign(divisor)), zero)
    return relay_op.where(signs_differ, relay_op.add(rest, divisor), rest)


@converter("BitShift")
def convert_bit_shift(ctx: NodeContext) -> RelayExpr:
    """Shift left or right; by the type's width or more the result is 0 (or -1, of a negative number to the right)."""
    data, amount = ctx.input(0), ctx.input(1)
    dtype = ctx.dtype(data)
    zero, widest = _like(ctx, 0, data), _like(ctx, dt.bits(dtype) - 1, data)
    too_far = relay_op.greater(amount, widest)
    if dt.is_signed(dtype):
        too_far = relay_op.logical_or(too_far, relay_op.less(amount, zero))
    within = relay_op.where(too_far, widest, amount)
    if ctx.required("direction") == "LEFT":
        return relay_op.where(too_far, zero, relay_op.left_shift(data, within))
    shifted = relay_op.right_shift(data, within)
    return shifted if dt.is_signed(dtype) else relay_op.where(too_far, zero, shifted)


@converter("Reciprocal")
def convert_reciprocal(ctx: NodeContext) -> RelayExpr:
    """1 / x"""
    return relay_op.divide(_like(ctx, 1.0, ctx.input(0)), ctx.input(0))


@converter("Shrink")
def convert_shrink(ctx: NodeContext) -> RelayExpr:
    """Towards zero by ``bias`` beyond ``lambd`` on either side, 0 between."""
    limit, bias = ctx.attr("lambd", 0.5), ctx.attr("bias", 0.0)

    def shrink(data: RelayExpr) -> RelayExpr:
        zero, offset = _like(ctx, 0, data), _like(ctx, bias, data)
        above = relay_op.where(relay_op.greater(data, _like(ctx, limit, data)), relay_op.subtract(data, offset), zero)
        return relay_op.where(relay_op.less(data, _like(ctx, -limit, data)), relay_op.add(data, offset), above)

    return ctx.through_float(ctx.input(0), shrink)


@converter("IsInf")
def convert_is_inf(ctx: NodeContext) -> RelayExpr:
    """Whether infinite, of one or both signs."""
    data = ctx.input(0)
    zero = _like(ctx, 0.0, data)
    found = relay_op.isinf(data)
    if not ctx.attr("detect_negative", 1):
        found = relay_op.logical_and(found, relay_op.greater(data, zero))
    if not ctx.attr("detect_positive", 1):
        found = relay_op.logical_and(found, relay_op.less(data, zero))
    return found


def _variadic(ctx: NodeContext, build: Any) -> RelayExpr:
    first, *rest = ctx.inputs()
    for other in rest:
        first = build(first, other)
    return first


@converter("Sum", in_float32=True)
def convert_sum(ctx: NodeContext) -> RelayExpr:
    """Element-wise sum of any number of inputs."""
    return _variadic(ctx, relay_op.add)


@converter("Max")
def convert_max(ctx: NodeContext) -> RelayExpr:
    """Element-wise maximum of any number of inputs."""
    return _variadic(ctx, relay_op.maximum)


@converter("Min")
def convert_min(ctx: NodeContext) -> RelayExpr:
    """Element-wise minimum of any number of inputs."""
    return _variadic(ctx, relay_op.minimum)


@converter("Mean", in_float32=True)
def convert_mean(ctx: NodeContext) -> RelayExpr:
    """Element-wise mean of any number of inputs."""
    total = _variadic(ctx, relay_op.add)
    return relay_op.divide(total, _like(ctx, float(ctx.num_inputs), ctx.input(0)))


@converter("LeakyRelu")
def convert_leaky_relu(ctx: NodeContext) -> RelayExpr:
    """max(x, 0) + alpha * min(x, 0)"""
    return relay_op.nn.leaky_relu(ctx.input(0), ctx.attr("alpha", 0.01))


@converter("PRelu")
def convert_prelu(ctx: NodeContext) -> RelayExpr:
    """Leaky relu with a slope that broadcasts."""
    data, slope = ctx.input(0), ctx.input(1)
    if ctx.opset < 7 and ctx.rank(data) > 2 and ctx.shape(slope) == ctx.shape(data)[1:2]:  # one for each channel
        slope = relay_op.expand_dims(slope, 1, ctx.rank(data) - 2)
    zero = _like(ctx, 0.0, data)
    return relay_op.where(relay_op.less(data, zero), relay_op.multiply(data, slope), data)


@converter("Elu", in_float32=True)
def convert_elu(ctx: NodeContext) -> RelayExpr:
    """x above 0, alpha * (exp(x) - 1) below."""
    data = ctx.input(0)
    zero = _like(ctx, 0.0, data)
    negative = relay_op.expm1(relay_op.minimum(data, zero))
    return relay_op.maximum(data, zero) + _like(ctx, ctx.attr("alpha", 1.0), data) * negative


@converter("Selu", in_float32=True)
def convert_selu(ctx: NodeContext) -> RelayExpr:
    """Scaled elu."""
    data = ctx.input(0)
    alpha, gamma = ctx.attr("alpha", 1.6732632423543772), ctx.attr("gamma", 1.0507009873554805)
    zero = _like(ctx, 0.0, data)
    negative = _like(ctx, alpha, data) * relay_op.expm1(relay_op.minimum(data, zero))
    return _like(ctx, gamma, data) * (relay_op.maximum(data, zero) + negative)


@converter("Celu", in_float32=True)
def convert_celu(ctx: NodeContext) -> RelayExpr:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))"""
    data = ctx.input(0)
    alpha, zero = _like(ctx, ctx.attr("alpha", 1.0), data), _like(ctx, 0.0, data)
    negative = alpha * relay_op.expm1(relay_op.minimum(data, zero) / alpha)
    return relay_op.maximum(data, zero) + relay_op.minimum(zero, negative)


@converter("ThresholdedRelu")
def convert_thresholded_relu(ctx: NodeContext) -> RelayExpr:
    """x where above alpha, else 0."""
    data = ctx.input(0)
    above = relay_op.greater(data, _like(ctx, ctx.attr("alpha", 1.0), data))
    return relay_op.where(above, data, _like(ctx, 0.0, data))


@converter("HardSigmoid", in_float32=True)
def convert_hard_sigmoid(ctx: NodeContext) -> RelayExpr:
    """clip(alpha * x + beta, 0, 1)"""
    data = ctx.input(0)
    line = data * _like(ctx, ctx.attr("alpha", 0.2), data) + _like(ctx, ctx.attr("beta", 0.5), data)  # type: ignore[operator]
    return relay_op.clip(line, 0.0, 1.0)


@converter("HardSwish", in_float32=True)
def convert_hard_swish(ctx: NodeContext) -> RelayExpr:
    """x * clip(x / 6 + 0.5, 0, 1)"""
    data = ctx.input(0)
    sixth = float(np.float32(1 / 6))  # HardSigmoid's attribute, by which the specification defines this
    line = relay_op.add(relay_op.multiply(data, _like(ctx, sixth, data)), _like(ctx, 0.5, data))
    return relay_op.multiply(data, relay_op.clip(line, 0.0, 1.0))


@converter("Softsign", in_float32=True)
def convert_softsign(ctx: NodeContext) -> RelayExpr:
    """x / (1 + |x|)"""
    data = ctx.input(0)
    return relay_op.divide(data, relay_op.add(_like(ctx, 1.0, data), relay_op.abs(data)))


@converter("Mish", in_float32=True)
def convert_mish(ctx: NodeContext) -> RelayExpr:
    """x * tanh(softplus(x)): of m = e + e * e / 2 with e = exp(x) that is x * m / (m + 1), and x itself from 20 on."""
    data = ctx.input(0)
    e = relay_op.exp(relay_op.minimum(data, _like(ctx, 20.0, data)))
    m = relay_op.add(e, relay_op.multiply(e, relay_op.multiply(e, _like(ctx, 0.5, data))))
    return relay_op.multiply(data, relay_op.divide(m, relay_op.add(m, _like(ctx, 1.0, data))))


@converter("Gelu")
def convert_gelu(ctx: NodeContext) -> RelayExpr:
    """Gaussian error linear unit, exact or by tanh."""
    return relay_op.nn.gelu(ctx.input(0), ctx.attr("approximate", "none"))


@converter("Clip")
def convert_clip_attributes(ctx: NodeContext) -> RelayExpr:
    """Clip with limits as attributes (before opset 11)."""
    return _clipped(ctx.input(0), ctx.attr("min", -3.4028234e38), ctx.attr("max", 3.4028234e38))


def _clipped(data: RelayExpr, low: float, high: float) -> RelayExpr:
    """Clip with the upper limit where it is below the lower one, as ONNX specifies."""
    return relay_op.clip(data, min(low, high), high)


@converter("Clip", since=11)
def convert_clip(ctx: NodeContext) -> RelayExpr:
    """Clip with optional limits as inputs, by default the least and greatest finite numbers."""
    data = ctx.input(0)
    dtype = ctx.dtype(data)
    limits = [ctx.optional(1), ctx.optional(2)]
    if dt.is_float(dtype):
        largest = float(ml_dtypes.finfo(dtype).max)
        limits = [const(d, dtype) if v is None else v for v, d in zip(limits, (-largest, largest), strict=True)]
        values = [ctx.constant_or_none(limit) for limit in limits if limit is not None]
        if all(v is not None for v in values):
            low, high = (float(v.item()) for v in values if v is not None)
            return _clipped(data, low, high)
    if limits[0] is not None:
        data = relay_op.maximum(data, limits[0])
    if limits[1] is not None:
        data = relay_op.minimum(data, limits[1])
    return data


@converter("Cast")
def convert_cast(ctx: NodeContext) -> RelayExpr:
    """Conversion of the data type."""
    to = ctx.required("to")
    if isinstance(to, str):  # before opset 6
        to = onnx.TensorProto.DataType.Value(to)
    return _converted(ctx, ctx.input(0), dtype_of(to, f"{describe(ctx.node)}: attribute 'to'"))


@converter("CastLike")
def convert_cast_like(ctx: NodeContext) -> RelayExpr:
    """Conversion to the data type of the second input."""
    return _converted(ctx, ctx.input(0), ctx.dtype(ctx.input(1)))


def _converted(ctx: NodeContext, data: RelayExpr, dtype: str) -> RelayExpr:
    """Convert the data type; to float8 and float4, clip to finite numbers first unless ``saturate`` is 0."""
    if not dt.is_small_float(dtype) or ctx.dtype(data) == dtype:
        return relay_op.cast(data, dtype)
    data = data if dt.is_float(ctx.dtype(data)) else relay_op.cast(data, "float32")
    if dtype == "float8_e8m0fnu":
        return relay_op.cast(_power_of_two(ctx, relay_op.cast(data, "float32")), dtype)
    return small_float(ctx, data, dtype, bool(ctx.attr("saturate", 1)))


def small_float(ctx: NodeContext, data: RelayExpr, dtype: str, saturate: bool) -> RelayExpr:
    """Convert numbers to float8 or float4."""
    if saturate:
        largest = float(ml_dtypes.finfo(dtype).max)
        wide = data if ctx.dtype(typed(data)) == "float64" else relay_op.cast(data, "float32")
        data = relay_op.minimum(relay_op.maximum(typed(wide), _like(ctx, -largest, wide)), _like(ctx, largest, wide))
    return relay_op.cast(typed(data), dtype)


def _power_of_two(ctx: NodeContext, data: RelayExpr) -> RelayExpr:
    """Round float32 numbers to powers of two by ``round_mode``; clip to the greatest one if saturated."""
    mode = ctx.attr("round_mode", "up")
    bits = typed(relay_op.reinterpret(typed(data), "int32"))
    add = {"up": 0x7FFFFF, "down": 0, "nearest": 0x400000}.get(mode)
    if add is None:
        ctx.unsupported(f"round_mode {mode!r}; up, down and nearest are supported")
    power = relay_op.bitwise_and(relay_op.add(bits, const(add, "int32")), const(-(1 << 23), "int32"))
    top = const(0x7F000000, "int32")  # 2 ** 127
    if ctx.attr("saturate", 1):
        power = relay_op.minimum(typed(power), top)
    finite = relay_op.logical_and(
        relay_op.greater(bits, const(0x007FFFFF, "int32")), relay_op.less_equal(bits, const(0x7F800000, "int32"))
    )
    if not ctx.attr("saturate", 1):
        finite = relay_op.logical_and(finite, relay_op.less(bits, const(0x7F800000, "int32")))
    zero = relay_op.equal(data, const(0.0, "float32"))  # which the type has not: the least power, 2 ** -127
    power = relay_op.where(zero, const(0x00400000, "int32"), relay_op.where(finite, power, bits))
    return typed(relay_op.reinterpret(typed(power), "float32"))


@converter("Where")
def convert_where(ctx: NodeContext) -> RelayExpr:
    """Choice by condition, with broadcasting."""
    return relay_op.where(ctx.input(0), ctx.input(1), ctx.input(2))


@converter("Dropout")
def convert_dropout(ctx: NodeContext) -> Any:
    """Identity at inference; the mask, where asked for, is all true (before opset 10, of the data's type)."""
    data = ctx.input(0)
    if ctx.has_input(2) and ctx.scalar(2, "the training mode") and ctx.scalar(1, "the ratio", 0.5):
        ctx.runs_as_in_training("drops elements at random")
        return dropout(ctx, data, ctx.scalar(1, "the ratio", 0.5))[: ctx.num_outputs]
    if ctx.num_outputs == 1:
        return data
    return [data, relay_op.ones(ctx.shape(data), "bool" if ctx.opset >= 10 else ctx.dtype(data))]
