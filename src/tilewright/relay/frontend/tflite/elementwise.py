"""Operators on each element: arithmetic, comparisons, activations, conversions between types."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.tflite.context import ACTIVATION, OperatorContext, typed
from tilewright.relay.frontend.tflite.integers import product, requantized, total
from tilewright.relay.frontend.tflite.model import Tensor
from tilewright.relay.frontend.tflite.registry import ANY, converter

Binary = Callable[[RelayExpr, RelayExpr], RelayExpr]


def _integers(ctx: OperatorContext) -> bool:
    """Return whether both operands and the result are quantized to 8 bits."""
    tensors = [ctx.tensor(0), ctx.tensor(1), ctx.out()]
    return all(t.is_quantized and not t.is_per_axis and t.dtype in ("int8", "uint8") for t in tensors)


@converter("ADD", form=ANY)
def convert_add(ctx: OperatorContext) -> RelayExpr:
    """Sum, and its fused activation."""
    return total(ctx, 1) if _integers(ctx) else ctx.finished(relay_op.add(ctx.real(0), ctx.real(1)))


@converter("SUB", form=ANY)
def convert_sub(ctx: OperatorContext) -> RelayExpr:
    """Difference, and its fused activation."""
    return total(ctx, -1) if _integers(ctx) else ctx.finished(relay_op.subtract(ctx.real(0), ctx.real(1)))


@converter("MUL", form=ANY)
def convert_mul(ctx: OperatorContext) -> RelayExpr:
    """Product, and its fused activation."""
    return product(ctx) if _integers(ctx) else ctx.finished(relay_op.multiply(ctx.real(0), ctx.real(1)))


@converter("DIV", form=ANY)
def convert_div(ctx: OperatorContext) -> RelayExpr:
    """Quotient, of integers rounded towards 0, and its fused activation."""
    return ctx.finished(relay_op.divide(ctx.real(0), ctx.real(1)))


@converter("ADD_N", form=ANY)
def convert_add_n(ctx: OperatorContext) -> RelayExpr:
    """Sum of all inputs."""
    value, *others = ctx.reals()
    for other in others:
        value = relay_op.add(value, other)
    return ctx.result(value)


@converter("FLOOR_DIV", form=ANY)
def convert_floor_div(ctx: OperatorContext) -> RelayExpr:
    """Quotient, rounded down."""
    return ctx.result(relay_op.floor_divide(ctx.real(0), ctx.real(1)))


@converter("FLOOR_MOD", form=ANY)
def convert_floor_mod(ctx: OperatorContext) -> RelayExpr:
    """Remainder with the sign of the divisor."""
    return ctx.result(relay_op.floor_mod(ctx.real(0), ctx.real(1)))


@converter("POW", form=ANY)
def convert_pow(ctx: OperatorContext) -> RelayExpr:
    """Power."""
    a, b = ctx.real(0), ctx.real(1)
    if dt.is_float(ctx.dtype(a)):
        return ctx.result(relay_op.power(a, b))
    wide = relay_op.power(relay_op.cast(a, "float64"), relay_op.cast(b, "float64"))
    return relay_op.cast(relay_op.nearbyint(wide), ctx.dtype(a))


@converter("SQUARED_DIFFERENCE", form=ANY)
def convert_squared_difference(ctx: OperatorContext) -> RelayExpr:
    """Square of the difference."""
    difference = typed(relay_op.subtract(ctx.real(0), ctx.real(1)))
    return ctx.result(relay_op.multiply(difference, difference))


@converter("ATAN2", form=ANY)
def convert_atan2(ctx: OperatorContext) -> RelayExpr:
    """Angle of the point (x, y), from -pi to pi."""
    y, x = ctx.real(0), ctx.real(1)
    dtype = ctx.dtype(x)
    zero = const(0.0, dtype)
    turn = relay_op.where(relay_op.less(y, zero), const(-math.pi, dtype), const(math.pi, dtype))
    angle = relay_op.atan(relay_op.divide(y, x))
    beside = relay_op.where(relay_op.less(x, zero), relay_op.add(angle, turn), angle)
    upright = relay_op.multiply(relay_op.sign(y), const(math.pi / 2, dtype))
    return relay_op.where(relay_op.equal(x, zero), upright, beside)


def _choice(build: Binary, name: str) -> None:
    """Register the greater or the lesser of two."""

    @converter(name, form=ANY)
    def convert(ctx: OperatorContext) -> RelayExpr:
        a, b, out = ctx.tensor(0), ctx.tensor(1), ctx.out()
        alike = all(same_scale(t, out) for t in (a, b))
        return build(ctx.raw(0), ctx.raw(1)) if alike else ctx.result(build(ctx.real(0), ctx.real(1)))


def same_scale(a: Tensor, b: Tensor) -> bool:
    """Return whether integers of two tensors stand for the same numbers."""
    if a.scale is None or b.scale is None:
        return a.scale is None and b.scale is None
    return bool(np.array_equal(a.scale, b.scale) and np.array_equal(a.zero, b.zero))


_choice(relay_op.maximum, "MAXIMUM")
_choice(relay_op.minimum, "MINIMUM")


def _comparison(name: str, build: Binary) -> None:
    @converter(name, form=ANY)
    def convert(ctx: OperatorContext) -> RelayExpr:
        alike = same_scale(ctx.tensor(0), ctx.tensor(1))
        return build(ctx.raw(0), ctx.raw(1)) if alike else build(ctx.real(0), ctx.real(1))


for _name, _build in {
    "EQUAL": relay_op.equal,
    "NOT_EQUAL": relay_op.not_equal,
    "GREATER": relay_op.greater,
    "GREATER_EQUAL": relay_op.greater_equal,
    "LESS": relay_op.less,
    "LESS_EQUAL": relay_op.less_equal,
}.items():
    _comparison(_name, _build)


def _bits(name: str, build: Binary) -> None:
    @converter(name, form=ANY)
    def convert(ctx: OperatorContext) -> RelayExpr:
        return build(ctx.raw(0), ctx.raw(1))


for _name, _build in {
    "LOGICAL_AND": relay_op.logical_and,
    "LOGICAL_OR": relay_op.logical_or,
    "BITWISE_XOR": relay_op.bitwise_xor,
    "RIGHT_SHIFT": relay_op.right_shift,
}.items():
    _bits(_name, _build)


@converter("LOGICAL_NOT", form=ANY)
def convert_logical_not(ctx: OperatorContext) -> RelayExpr:
    """Negation of truth values."""
    return relay_op.logical_not(ctx.raw(0))


# ------------------------------------------------------------------------------------------- of one tensor


def gelu(value: RelayExpr, approximate: bool) -> RelayExpr:
    """Return ``x * Phi(x)``, Phi by the error function, or by tanh."""
    return relay_op.nn.gelu(value, "tanh" if approximate else "none")


def hard_swish(value: RelayExpr) -> RelayExpr:
    """Return ``x * clip(x + 3, 0, 6) / 6``."""
    gate = relay_op.clip(relay_op.add(value, const(3.0)), 0.0, 6.0)
    return relay_op.multiply(relay_op.multiply(value, gate), const(np.float32(1 / 6)))


def elu(value: RelayExpr) -> RelayExpr:
    """Return x, and ``exp(x) - 1`` below 0."""
    below = relay_op.expm1(relay_op.minimum(value, const(0.0)))
    return relay_op.where(relay_op.greater(value, const(0.0)), value, below)


def _round(value: RelayExpr) -> RelayExpr:
    return relay_op.nearbyint(value)


def _unary(name: str, build: Callable[[RelayExpr], RelayExpr]) -> None:
    @converter(name, form=ANY)
    def convert(ctx: OperatorContext) -> RelayExpr:
        return ctx.result(build(ctx.real(0)))


for _name, _apply in {
    "ABS": relay_op.abs,
    "CEIL": relay_op.ceil,
    "COS": relay_op.cos,
    "ELU": elu,
    "EXP": relay_op.exp,
    "FLOOR": relay_op.floor,
    "HARD_SWISH": hard_swish,
    "LOG": relay_op.log,
    "LOGISTIC": relay_op.sigmoid,
    "NEG": relay_op.negative,
    "RELU": ACTIVATION["RELU"],
    "RELU6": ACTIVATION["RELU6"],
    "RELU_0_TO_1": lambda value: relay_op.clip(value, 0.0, 1.0),
    "RELU_N1_TO_1": ACTIVATION["RELU_N1_TO_1"],
    "ROUND": _round,
    "RSQRT": relay_op.rsqrt,
    "SIGN": relay_op.sign,
    "SIN": relay_op.sin,
    "SQRT": relay_op.sqrt,
    "SQUARE": lambda value: relay_op.multiply(value, value),
    "TANH": relay_op.tanh,
    "TAN": relay_op.tan,
}.items():
    _unary(_name, _apply)


@converter("GELU", form=ANY)
def convert_gelu(ctx: OperatorContext) -> RelayExpr:
    """Gaussian error linear unit."""
    return ctx.result(gelu(ctx.real(0), bool(ctx.option("approximate", False))))


@converter("LEAKY_RELU", form=ANY)
def convert_leaky_relu(ctx: OperatorContext) -> RelayExpr:
    """x, and ``alpha * x`` below 0."""
    return ctx.result(relay_op.nn.leaky_relu(ctx.real(0), float(ctx.option("alpha"))))


@converter("PRELU", form=ANY)
def convert_prelu(ctx: OperatorContext) -> RelayExpr:
    """x, and ``slope * x`` below 0; slopes broadcast."""
    value, slope = ctx.real(0), ctx.real(1)
    below = relay_op.multiply(value, slope)
    return ctx.result(relay_op.where(relay_op.less(value, const(0.0, ctx.dtype(value))), below, value))


@converter("ZEROS_LIKE", form=ANY)
def convert_zeros_like(ctx: OperatorContext) -> RelayExpr:
    """Zeros."""
    return relay_op.zeros_like(ctx.raw(0))


@converter("SELECT", "SELECT_V2", form=ANY)
def convert_select(ctx: OperatorContext) -> RelayExpr:
    """Elements of one tensor where a condition holds, else of another."""
    condition, a, b = (ctx.raw(i) for i in range(3))
    rank = ctx.rank(a)
    if ctx.operator.name == "SELECT" and ctx.rank(condition) == 1 and rank > 1:  # of rows
        condition = relay_op.reshape(condition, (-1, *(1,) * (rank - 1)))
    alike = same_scale(ctx.tensor(1), ctx.out()) and same_scale(ctx.tensor(2), ctx.out())
    if alike:
        return relay_op.where(condition, a, b)
    return ctx.result(relay_op.where(condition, ctx.real(1), ctx.real(2)))


# ------------------------------------------------------------------------------------------- types


@converter("CAST", form=ANY)
def convert_cast(ctx: OperatorContext) -> RelayExpr:
    """Another data type; floats are rounded towards 0."""
    value, dtype = ctx.raw(0), ctx.out().dtype
    if dt.is_bool(dtype) and not dt.is_bool(ctx.dtype(value)):
        return relay_op.not_equal(value, const(0, ctx.dtype(value)))
    return relay_op.cast(value, dtype)


@converter("BITCAST")
def convert_bitcast(ctx: OperatorContext) -> RelayExpr:
    """The same bits as another type of as many bits."""
    value, dtype = ctx.raw(0), ctx.out().dtype
    if dt.bits(dtype) != dt.bits(ctx.dtype(value)):
        ctx.unsupported(f"a bit cast of {ctx.dtype(value)} to {dtype}")
    return relay_op.reinterpret(value, dtype)


@converter("QUANTIZE", form=ANY)
def convert_quantize(ctx: OperatorContext) -> RelayExpr:
    """Numbers, or integers of another scale, as integers."""
    if not ctx.out().is_quantized:
        ctx.fail(f"its result {ctx.out().name!r} has no scale")
    source = ctx.tensor(0)
    if source.is_quantized and not source.is_per_axis and dt.is_int(source.dtype):
        return requantized(ctx, ctx.raw(0), source, ctx.out())
    return ctx.result(ctx.real(0))


@converter("DEQUANTIZE", form=ANY)
def convert_dequantize(ctx: OperatorContext) -> RelayExpr:
    """The numbers that integers stand for; float16 as float32."""
    value = ctx.real(0)
    return value if ctx.dtype(value) == "float32" else relay_op.cast(value, "float32")


@converter("FAKE_QUANT", form=ANY)
def convert_fake_quant(ctx: OperatorContext) -> RelayExpr:
    """Floats rounded to the numbers that integers of ``num_bits`` have between ``min`` and ``max``."""
    least, most = float(ctx.option("min")), float(ctx.option("max"))
    low, high = int(ctx.option("narrow_range")), (1 << int(ctx.option("num_bits"))) - 1
    if not least < most or not low < high:
        ctx.fail(f"its range is {least} to {most}, its integers are {low} to {high}")
    scale = np.float32((np.float32(most) - np.float32(least)) / (high - low))
    zero = low - np.float32(least) / scale
    nudged = low if zero < low else high if zero > high else int(np.floor(zero + 0.5))
    bottom, top = np.float32((low - nudged) * scale), np.float32((high - nudged) * scale)
    steps = relay_op.divide(
        relay_op.subtract(relay_op.clip(ctx.real(0), float(bottom), float(top)), const(bottom)), const(scale)
    )
    whole = relay_op.floor(relay_op.add(steps, const(0.5)))
    return relay_op.add(relay_op.multiply(whole, const(scale)), const(bottom))
