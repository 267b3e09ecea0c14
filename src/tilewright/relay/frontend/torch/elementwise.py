"""Element-wise arithmetic, comparisons and activations, with torch's promotion of types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.torch.context import TorchContext, is_tensor
from tilewright.relay.frontend.torch.registry import converter

_OF_FLOATS = dict(
    acos=relay_op.acos, acosh=relay_op.acosh, asin=relay_op.asin, asinh=relay_op.asinh, atan=relay_op.atan,
    atanh=relay_op.atanh, cos=relay_op.cos, cosh=relay_op.cosh, erf=relay_op.erf, exp=relay_op.exp,
    expm1=relay_op.expm1, log=relay_op.log, log10=relay_op.log10, log1p=relay_op.log1p, log2=relay_op.log2,
    rsqrt=relay_op.rsqrt, sigmoid=relay_op.sigmoid, sin=relay_op.sin, sinh=relay_op.sinh, sqrt=relay_op.sqrt,
    tan=relay_op.tan, tanh=relay_op.tanh,
)  # fmt: skip
_OF_NUMBERS = dict(
    abs=relay_op.abs, ceil=relay_op.ceil, floor=relay_op.floor, neg=relay_op.negative, relu=relay_op.nn.relu,
    sign=relay_op.sign, trunc=relay_op.trunc,
)  # fmt: skip
_COMPARISONS = dict(
    eq=relay_op.equal, ne=relay_op.not_equal, lt=relay_op.less, le=relay_op.less_equal, gt=relay_op.greater,
    ge=relay_op.greater_equal,
)  # fmt: skip
_LOGICAL = dict(logical_and=relay_op.logical_and, logical_or=relay_op.logical_or, logical_xor=relay_op.logical_xor)
_BITWISE = dict(
    bitwise_and=(relay_op.bitwise_and, relay_op.logical_and), bitwise_or=(relay_op.bitwise_or, relay_op.logical_or),
    bitwise_xor=(relay_op.bitwise_xor, relay_op.logical_xor), __and__=(relay_op.bitwise_and, relay_op.logical_and),
    __or__=(relay_op.bitwise_or, relay_op.logical_or),
)  # fmt: skip


def _register_tables() -> None:
    for name, build in _OF_FLOATS.items():
        converter(name)(lambda ctx, x, build=build: build(ctx.as_float(x)))
    for name, build in _OF_NUMBERS.items():
        converter(name)(lambda ctx, x, build=build: build(x))
    for name, compare in _COMPARISONS.items():
        converter(name)(lambda ctx, a, b, build=compare: _compared(ctx, build, a, b))
    for name, join in _LOGICAL.items():
        converter(name)(lambda ctx, a, b, build=join: build(ctx.cast(a, "bool"), ctx.cast(b, "bool")))
    for name, (of_integers, of_bools) in _BITWISE.items():
        converter(name)(lambda ctx, a, b, ints=of_integers, bools=of_bools: _bitwise(ctx, ints, bools, a, b))


def _compared(ctx: TorchContext, build: Callable[..., RelayExpr], a: Any, b: Any) -> RelayExpr:
    x, y = ctx.promoted(a, b)
    if dt.is_bool(ctx.dtype(x)):
        x, y = ctx.cast(x, "uint8"), ctx.cast(y, "uint8")
    return build(x, y)


def _bitwise(ctx: TorchContext, of_integers: Any, of_bools: Any, a: Any, b: Any) -> RelayExpr:
    x, y = ctx.promoted(a, b)
    return of_bools(x, y) if dt.is_bool(ctx.dtype(x)) else of_integers(x, y)


_register_tables()


def like(ctx: TorchContext, value: float, x: RelayExpr) -> RelayExpr:
    """Return a number in the type of a tensor."""
    return const(value, ctx.dtype(x))


def _scaled(ctx: TorchContext, x: RelayExpr, alpha: Any) -> RelayExpr:
    if not is_tensor(alpha) and alpha == 1:
        return x
    return typed(relay_op.multiply(x, ctx.number(alpha, ctx.dtype(x))))


@converter("add")
def convert_add(ctx: TorchContext, a: Any, b: Any, alpha: Any = 1) -> RelayExpr:
    """a + alpha * b; of bools, whether one is true."""
    x, y = ctx.promoted(a, b)
    return relay_op.logical_or(x, y) if dt.is_bool(ctx.dtype(x)) else relay_op.add(x, _scaled(ctx, y, alpha))


@converter("sub")
def convert_sub(ctx: TorchContext, a: Any, b: Any, alpha: Any = 1) -> RelayExpr:
    """a - alpha * b"""
    x, y = ctx.promoted(a, b)
    return relay_op.subtract(x, _scaled(ctx, y, alpha))


@converter("rsub")
def convert_rsub(ctx: TorchContext, a: Any, b: Any, alpha: Any = 1) -> RelayExpr:
    """b - alpha * a"""
    return convert_sub(ctx, b, a, alpha)


@converter("mul")
def convert_mul(ctx: TorchContext, a: Any, b: Any) -> RelayExpr:
    """a * b"""
    x, y = ctx.promoted(a, b)
    return relay_op.logical_and(x, y) if dt.is_bool(ctx.dtype(x)) else relay_op.multiply(x, y)


@converter("div")
def convert_div(ctx: TorchContext, a: Any, b: Any, rounding_mode: str | None = None) -> RelayExpr:
    """a / b in floating point; or rounded, of integers as integers."""
    dtype = ctx.common(a, b)
    if rounding_mode is None:
        x, y = ctx.promoted(a, b, dtype=dtype if dt.is_float(dtype) else "float32")
        return relay_op.divide(x, y)
    x, y = ctx.promoted(a, b, dtype=dtype)
    if rounding_mode == "floor":
        return relay_op.floor_divide(x, y)
    quotient = relay_op.divide(x, y)
    return relay_op.trunc(typed(quotient)) if dt.is_float(dtype) else quotient


@converter("floor_divide")
def convert_floor_divide(ctx: TorchContext, a: Any, b: Any) -> RelayExpr:
    """a / b rounded down"""
    return convert_div(ctx, a, b, "floor")


@converter("remainder")
def convert_remainder(ctx: TorchContext, a: Any, b: Any) -> RelayExpr:
    """Remainder with the divisor's sign."""
    found: RelayExpr = ctx.part("Mod", ctx.promoted(a, b))
    return found


@converter("fmod")
def convert_fmod(ctx: TorchContext, a: Any, b: Any) -> RelayExpr:
    """Remainder with the dividend's sign."""
    return relay_op.mod(*ctx.promoted(a, b))


@converter("pow")
def convert_pow(ctx: TorchContext, base: Any, exponent: Any) -> RelayExpr:
    """Power; small constant exponents become products and square roots."""
    found: RelayExpr = ctx.part("Pow", ctx.promoted(base, exponent))
    return found


@converter("maximum", "max.other")
def convert_maximum(ctx: TorchContext, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """The larger; NaN where one is."""
    return _of_numbers(ctx, relay_op.maximum, a, b)


@converter("minimum", "min.other")
def convert_minimum(ctx: TorchContext, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """The smaller; NaN where one is."""
    return _of_numbers(ctx, relay_op.minimum, a, b)


def _of_numbers(ctx: TorchContext, build: Callable[..., RelayExpr], a: Any, b: Any) -> RelayExpr:
    """Apply an operator of numbers, which bools become for it."""
    x, y = ctx.promoted(a, b)
    return build(ctx.cast(x, "uint8"), ctx.cast(y, "uint8")) if dt.is_bool(ctx.dtype(x)) else build(x, y)


@converter("fmax")
def convert_fmax(ctx: TorchContext, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """The larger; a number where the other is NaN."""
    x, y = ctx.promoted(a, b)
    return relay_op.where(relay_op.isnan(x), y, relay_op.where(relay_op.isnan(y), x, relay_op.maximum(x, y)))


@converter("fmin")
def convert_fmin(ctx: TorchContext, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """The smaller; a number where the other is NaN."""
    x, y = ctx.promoted(a, b)
    return relay_op.where(relay_op.isnan(x), y, relay_op.where(relay_op.isnan(y), x, relay_op.minimum(x, y)))


@converter("atan2", in_float32=True)
def convert_atan2(ctx: TorchContext, y: RelayExpr, x: RelayExpr) -> RelayExpr:
    """The angle of the point (x, y)."""
    dtype = ctx.common(y, x)
    y, x = ctx.promoted(y, x, dtype=dtype if dt.is_float(dtype) else "float32")
    zero, half_turn = like(ctx, 0.0, x), like(ctx, math.pi, x)
    steep = relay_op.greater(relay_op.abs(y), relay_op.abs(x))  # the quotient is at most 1
    over, under = relay_op.where(steep, x, y), relay_op.where(steep, y, x)
    both_zero = relay_op.equal(under, zero)
    angle = relay_op.atan(relay_op.divide(over, relay_op.where(both_zero, like(ctx, 1.0, x), under)))
    quarter = relay_op.where(relay_op.less(y, zero), like(ctx, -math.pi / 2, x), like(ctx, math.pi / 2, x))
    flat = relay_op.where(
        relay_op.less(x, zero),
        relay_op.add(angle, relay_op.where(relay_op.less(y, zero), relay_op.negative(half_turn), half_turn)),
        angle,
    )
    return relay_op.where(steep, relay_op.subtract(quarter, angle), flat)


@converter("reciprocal")
def convert_reciprocal(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """1 / x"""
    x = ctx.as_float(x)
    return relay_op.divide(like(ctx, 1.0, x), x)


@converter("square")
def convert_square(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """x * x"""
    return relay_op.multiply(x, x)


@converter("round")
def convert_round(ctx: TorchContext, x: RelayExpr, decimals: int = 0) -> RelayExpr:
    """Rounded to the nearest number, halves to even; of ``decimals`` decimals."""
    if not dt.is_float(ctx.dtype(x)):
        return x
    if not decimals:
        return relay_op.nearbyint(x)
    scale = like(ctx, 10.0 ** abs(decimals), x)
    up, down = (relay_op.multiply, relay_op.divide) if decimals > 0 else (relay_op.divide, relay_op.multiply)
    return down(relay_op.nearbyint(up(x, scale)), scale)


@converter("exp2", in_float32=True)
def convert_exp2(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """2 to the power of x"""
    x = ctx.as_float(x)
    return relay_op.power(like(ctx, 2.0, x), x)


@converter("erfc", in_float32=True)
def convert_erfc(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """1 - erf(x)"""
    x = ctx.as_float(x)
    return relay_op.subtract(like(ctx, 1.0, x), relay_op.erf(x))


@converter("isnan")
def convert_isnan(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """Whether each element is no number."""
    return relay_op.isnan(x) if dt.is_float(ctx.dtype(x)) else ctx.full(ctx.sizes(x), False, "bool")


@converter("isinf")
def convert_isinf(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """Whether each element is infinite."""
    return relay_op.isinf(x) if dt.is_float(ctx.dtype(x)) else ctx.full(ctx.sizes(x), False, "bool")


@converter("isfinite")
def convert_isfinite(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """Whether each element is finite."""
    return relay_op.isfinite(x) if dt.is_float(ctx.dtype(x)) else ctx.full(ctx.sizes(x), True, "bool")


@converter("logical_not")
def convert_logical_not(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """Whether each element is zero."""
    return relay_op.logical_not(ctx.cast(x, "bool"))


@converter("bitwise_not")
def convert_bitwise_not(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """All bits inverted; of bools, whether they are false."""
    return relay_op.logical_not(x) if dt.is_bool(ctx.dtype(x)) else relay_op.bitwise_not(x)


@converter("bitwise_left_shift", "__lshift__")
def convert_left_shift(ctx: TorchContext, a: Any, b: Any) -> RelayExpr:
    """a << b"""
    return relay_op.left_shift(*ctx.promoted(a, b))


@converter("bitwise_right_shift", "__rshift__")
def convert_right_shift(ctx: TorchContext, a: Any, b: Any) -> RelayExpr:
    """a >> b"""
    return relay_op.right_shift(*ctx.promoted(a, b))


@converter("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def convert_where(ctx: TorchContext, condition: RelayExpr, a: Any, b: Any) -> RelayExpr:
    """a where the condition holds, else b."""
    return relay_op.where(ctx.cast(condition, "bool"), *ctx.promoted(a, b, dtype=ctx.result_dtype()))


@converter("masked_fill")
def convert_masked_fill(ctx: TorchContext, x: RelayExpr, mask: RelayExpr, value: Any) -> RelayExpr:
    """x, and ``value`` where the mask is true."""
    return relay_op.where(mask, ctx.number(value, ctx.dtype(x)), x)


@converter("clamp", "clip")
def convert_clamp(ctx: TorchContext, x: RelayExpr, low: Any = None, high: Any = None) -> RelayExpr:
    """x limited to the least and the greatest number; the latter wins."""
    dtype = ctx.common(*(v for v in (x, low, high) if v is not None))
    x = ctx.cast(x, dtype)
    numbers = [v for v in (low, high) if isinstance(v, (int, float))]
    if dt.is_float(dtype) and len(numbers) == 2 and not any(map(math.isnan, numbers)):
        return relay_op.clip(x, float(min(numbers)), float(numbers[1]))
    if low is not None:
        x = relay_op.maximum(x, ctx.number(low, dtype))
    if high is not None:
        x = relay_op.minimum(x, ctx.number(high, dtype))
    return x


@converter("clamp_min")
def convert_clamp_min(ctx: TorchContext, x: RelayExpr, low: Any) -> RelayExpr:
    """x, at least ``low``."""
    return convert_clamp(ctx, x, low)


@converter("clamp_max")
def convert_clamp_max(ctx: TorchContext, x: RelayExpr, high: Any) -> RelayExpr:
    """x, at most ``high``."""
    return convert_clamp(ctx, x, None, high)


@converter("hardtanh")
def convert_hardtanh(ctx: TorchContext, x: RelayExpr, low: float = -1.0, high: float = 1.0) -> RelayExpr:
    """x limited to a range."""
    return convert_clamp(ctx, x, low, high)


@converter("relu6")
def convert_relu6(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """x limited to 0 to 6."""
    return convert_clamp(ctx, x, 0, 6)


@converter("lerp")
def convert_lerp(ctx: TorchContext, start: RelayExpr, end: RelayExpr, weight: Any) -> RelayExpr:
    """start + weight * (end - start)"""
    return relay_op.add(start, relay_op.multiply(ctx.number(weight, ctx.dtype(start)), relay_op.subtract(end, start)))


@converter("addcmul")
def convert_addcmul(ctx: TorchContext, x: RelayExpr, a: RelayExpr, b: RelayExpr, value: Any = 1) -> RelayExpr:
    """x + value * a * b"""
    x, a, b = ctx.promoted(x, a, b)
    return relay_op.add(x, _scaled(ctx, typed(relay_op.multiply(a, b)), value))


@converter("addcdiv")
def convert_addcdiv(ctx: TorchContext, x: RelayExpr, a: RelayExpr, b: RelayExpr, value: Any = 1) -> RelayExpr:
    """x + value * a / b"""
    x, a, b = ctx.promoted(x, a, b)
    return relay_op.add(x, _scaled(ctx, typed(relay_op.divide(a, b)), value))


@converter("nan_to_num")
def convert_nan_to_num(
    ctx: TorchContext, x: RelayExpr, nan: Any = None, high: Any = None, low: Any = None
) -> RelayExpr:
    """x with numbers for NaN and the infinities."""
    dtype = ctx.dtype(x)
    if not dt.is_float(dtype):
        return x
    import ml_dtypes

    largest = float(ml_dtypes.finfo(dtype).max)
    high, low = largest if high is None else high, -largest if low is None else low
    infinity = like(ctx, math.inf, x)
    made = relay_op.where(relay_op.equal(x, infinity), like(ctx, high, x), x)
    made = relay_op.where(relay_op.equal(x, relay_op.negative(infinity)), like(ctx, low, x), made)
    return relay_op.where(relay_op.isnan(x), like(ctx, nan or 0.0, x), made)


# ---- activations ----


@converter("silu")
def convert_silu(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """x * sigmoid(x)"""
    return relay_op.nn.swish(x)


@converter("gelu")
def convert_gelu(ctx: TorchContext, x: RelayExpr, approximate: str = "none") -> RelayExpr:
    """Gaussian error linear unit, exact or by tanh."""
    return relay_op.nn.gelu(x, approximate)


@converter("leaky_relu")
def convert_leaky_relu(ctx: TorchContext, x: RelayExpr, slope: float = 0.01) -> RelayExpr:
    """x, of negative numbers ``slope`` times them."""
    return relay_op.nn.leaky_relu(x, float(slope))


@converter("prelu", "_prelu_kernel")
def convert_prelu(ctx: TorchContext, x: RelayExpr, slope: RelayExpr) -> RelayExpr:
    """Leaky relu with a slope of each channel, or slopes that broadcast."""
    if ctx.rank(slope) == 1 and ctx.rank(x) > 2 and ctx.dims(slope) != [1]:
        slope = relay_op.expand_dims(slope, axis=1, num_newaxis=ctx.rank(x) - 2)
    return relay_op.where(relay_op.less(x, like(ctx, 0.0, x)), relay_op.multiply(x, slope), x)


@converter("elu", in_float32=True)
def convert_elu(ctx: TorchContext, x: RelayExpr, alpha: float = 1, scale: float = 1, in_scale: float = 1) -> RelayExpr:
    """scale * x, of negative numbers scale * alpha * (exp(in_scale * x) - 1)"""
    zero = like(ctx, 0.0, x)
    negative = relay_op.expm1(relay_op.minimum(_scaled(ctx, x, in_scale), zero))
    made = relay_op.where(relay_op.greater(x, zero), x, _scaled(ctx, typed(negative), alpha))
    return _scaled(ctx, typed(made), scale)


@converter("selu", in_float32=True)
def convert_selu(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """Scaled elu."""
    return convert_elu(ctx, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@converter("celu", in_float32=True)
def convert_celu(ctx: TorchContext, x: RelayExpr, alpha: float = 1.0) -> RelayExpr:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))"""
    return convert_elu(ctx, x, alpha, 1, 1 / alpha)


@converter("softplus", in_float32=True)
def convert_softplus(ctx: TorchContext, x: RelayExpr, beta: float = 1, threshold: float = 20) -> RelayExpr:
    """log(1 + exp(beta * x)) / beta, and x itself beyond the threshold."""
    scaled = _scaled(ctx, x, beta)
    soft = relay_op.nn.softplus(scaled)
    soft = soft if beta == 1 else relay_op.divide(soft, like(ctx, beta, x))
    return relay_op.where(relay_op.greater(scaled, like(ctx, threshold, x)), x, soft)


@converter("log_sigmoid", in_float32=True)
def convert_log_sigmoid(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """log(sigmoid(x))"""
    return relay_op.negative(relay_op.nn.softplus(relay_op.negative(x)))


@converter("hardsigmoid", in_float32=True)
def convert_hardsigmoid(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """x / 6 + 1 / 2, limited to 0 to 1."""
    found: RelayExpr = ctx.part("HardSigmoid", [x], alpha=1 / 6, beta=0.5)
    return found


@converter("hardswish", in_float32=True)
def convert_hardswish(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """x * hardsigmoid(x)"""
    found: RelayExpr = ctx.part("HardSwish", [x])
    return found


@converter("mish", in_float32=True)
def convert_mish(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """x * tanh(softplus(x))"""
    found: RelayExpr = ctx.part("Mish", [x])
    return found


@converter("threshold")
def convert_threshold(ctx: TorchContext, x: RelayExpr, threshold: float, value: float) -> RelayExpr:
    """x where it is above the threshold, else ``value``."""
    dtype = ctx.dtype(x)
    return relay_op.where(relay_op.greater(x, ctx.number(threshold, dtype)), x, ctx.number(value, dtype))


@converter("logit", in_float32=True)
def convert_logit(ctx: TorchContext, x: RelayExpr, eps: float | None = None) -> RelayExpr:
    """log(x / (1 - x)), of x limited to eps to 1 - eps."""
    if eps is not None:
        x = typed(relay_op.clip(x, eps, 1 - eps))
    return relay_op.log(relay_op.divide(x, relay_op.subtract(like(ctx, 1.0, x), x)))


@converter("sinc", in_float32=True)
def convert_sinc(ctx: TorchContext, x: RelayExpr) -> RelayExpr:
    """sin(pi * x) / (pi * x), 1 at 0."""
    turn = typed(relay_op.multiply(x, like(ctx, math.pi, x)))
    none = relay_op.equal(x, like(ctx, 0.0, x))
    one = like(ctx, 1.0, x)
    return relay_op.where(none, one, relay_op.divide(relay_op.sin(turn), relay_op.where(none, one, turn)))


@converter("xlogy", in_float32=True)
def convert_xlogy(ctx: TorchContext, a: Any, b: Any) -> RelayExpr:
    """a * log(b), 0 where a is."""
    x, y = ctx.promoted(a, b)
    x, y = ctx.as_float(x), ctx.as_float(y)
    zero = like(ctx, 0.0, x)
    made = relay_op.where(relay_op.equal(x, zero), zero, relay_op.multiply(x, relay_op.log(y)))
    return relay_op.where(relay_op.isnan(y), y, made)


@converter("dropout", "feature_dropout", "alpha_dropout")
def convert_dropout(ctx: TorchContext, x: RelayExpr, p: float, train: bool) -> RelayExpr:
    """The data themselves, in evaluation mode."""
    if train and p:
        refuse_training(ctx, "drops elements at random")
    return x


@converter("native_dropout")
def convert_native_dropout(ctx: TorchContext, x: RelayExpr, p: float, train: bool | None) -> list[RelayExpr]:
    """The data and a mask that is all true, in evaluation mode."""
    return [convert_dropout(ctx, x, p, train is not False), ctx.full(ctx.sizes(x), True, "bool")]


def refuse_training(ctx: TorchContext, doing: str) -> None:
    """Refuse a program that was exported in training mode."""
    ctx.fail(f"the module is in training mode: this {doing}; call module.eval() before the export")


def infinity_of(dtype: str, sign: int) -> np.ndarray[Any, Any]:
    """Return the greatest (sign 1) or least number of a type."""
    if dt.is_float(dtype):
        return np.array(sign * math.inf)
    low, high = dt.int_range(dtype)
    return np.array(high if sign > 0 else low)
