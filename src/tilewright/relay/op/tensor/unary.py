"""Element-wise functions of one tensor: exp, tanh, floor, isnan, ..."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations, value_ranges
from tilewright.relay.op.builder import builder, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array, Elementwise, unary
from tilewright.relay.op.gradients import Gradients, no_gradient, number, tensor_type
from tilewright.runtime.ndarray import numpy_dtype


def _to_bool(types: Sequence[Type], attrs: Any, solver: TypeSolver) -> Type | None:
    data = relations.tensor(types[0])
    return TensorType(data.shape, "bool")


def erf_array(x: Array) -> Array:
    """Return the error function of every element, computed in float64."""
    values = [math.erf(float(v)) for v in np.asarray(x).reshape(-1)]
    return np.asarray(values, np.float64).reshape(np.shape(x))


def sigmoid_array(x: Array) -> Array:
    """Return 1 / (1 + e ** -x), rounded to the dtype of ``x``; float16 is computed in float32, where powers fit."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    one = np.asarray(1, wide.dtype)
    return np.asarray(one / (one + np.exp(-wide))).astype(x.dtype)


def _round_away(x: Array) -> Array:
    return np.asarray(np.trunc(x + np.copysign(np.asarray(0.5, x.dtype), x))) if x.dtype.kind == "f" else x


def _float_only(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """Return a rounding function that leaves integers unchanged."""
    return lambda x: function(x) if x.dtype.kind not in "iub" else x


_transcendental = functools.partial(unary, transcendental=True)

exp = _transcendental(
    "exp", "e ** data", topi.exp, np.exp, fast="fast_exp", support_level=1, derivative=lambda x, y, g, n: g * y
)
expm1 = _transcendental(
    "expm1", "e ** data - 1, also where that is small. Not in TVM 0.8.", topi.expm1, np.expm1,
    derivative=lambda x, y, g, n: g * (y + n(1)),
)  # fmt: skip
log = _transcendental(
    "log", "Natural logarithm of ``data``.", topi.log, np.log, support_level=1, derivative=lambda x, y, g, n: g / x,
)  # fmt: skip
log1p = _transcendental(
    "log1p", "Natural logarithm of 1 + ``data``, also where that is small. Not in TVM 0.8.", topi.log1p, np.log1p,
    derivative=lambda x, y, g, n: g / (x + n(1)),
)  # fmt: skip
log2 = _transcendental(
    "log2", "Logarithm to base 2.", topi.log2, np.log2, derivative=lambda x, y, g, n: g / (x * n(math.log(2)))
)
log10 = _transcendental(
    "log10", "Logarithm to base 10.", topi.log10, np.log10, derivative=lambda x, y, g, n: g / (x * n(math.log(10))),
)  # fmt: skip
sqrt = unary(
    "sqrt", "Square root.", topi.sqrt, np.sqrt, fixed_points=(0, 1), support_level=1,
    derivative=lambda x, y, g, n: g / (y * n(2)),
)  # fmt: skip
rsqrt = unary(
    "rsqrt", "1 / sqrt(data)", topi.rsqrt, lambda x: 1 / np.sqrt(x), in_float32=True, support_level=1,
    derivative=lambda x, y, g, n: g * (y * n(-0.5) / x),  # y / x, since x y^2 = 1
)  # fmt: skip
tanh = _transcendental(
    "tanh", "Hyperbolic tangent.", topi.tanh, np.tanh, fast="fast_tanh", finite=True, support_level=1,
    derivative=lambda x, y, g, n: g * (n(1) - y * y),
)  # fmt: skip
sigmoid = _transcendental(
    "sigmoid", "1 / (1 + exp(-data))", topi.sigmoid, sigmoid_array, finite=True, support_level=1,
    derivative=lambda x, y, g, n: g * (y * (n(1) - y)),
)  # fmt: skip
erf = _transcendental(
    "erf", "Error function.", topi.erf, erf_array, fast="fast_erf",
    derivative=lambda x, y, g, n: g * (n(2 / math.sqrt(math.pi)) * ops.exp(-(x * x))),
)  # fmt: skip
sin = _transcendental("sin", "Sine.", topi.sin, np.sin, derivative=lambda x, y, g, n: g * ops.cos(x))
cos = _transcendental("cos", "Cosine.", topi.cos, np.cos, derivative=lambda x, y, g, n: -(g * ops.sin(x)))
tan = _transcendental(
    "tan", "Tangent.", topi.tan, np.tan, derivative=lambda x, y, g, n: g * (n(1) + y * y)
)  # 1 / cos(x)^2
asin = _transcendental(
    "asin", "Arc sine.", topi.asin, np.arcsin, derivative=lambda x, y, g, n: g / ops.sqrt(n(1) - x * x)
)
acos = _transcendental(
    "acos", "Arc cosine.", topi.acos, np.arccos, derivative=lambda x, y, g, n: -(g / ops.sqrt(n(1) - x * x))
)
atan = _transcendental("atan", "Arc tangent.", topi.atan, np.arctan, derivative=lambda x, y, g, n: g / (n(1) + x * x))
sinh = _transcendental("sinh", "Hyperbolic sine.", topi.sinh, np.sinh, derivative=lambda x, y, g, n: g * ops.cosh(x))
cosh = _transcendental("cosh", "Hyperbolic cosine.", topi.cosh, np.cosh, derivative=lambda x, y, g, n: g * ops.sinh(x))
asinh = _transcendental(
    "asinh", "Inverse hyperbolic sine.", topi.asinh, np.arcsinh,
    derivative=lambda x, y, g, n: g / ops.sqrt(n(1) + x * x),
)  # fmt: skip
acosh = _transcendental(
    "acosh", "Inverse hyperbolic cosine.", topi.acosh, np.arccosh,
    derivative=lambda x, y, g, n: g / ops.sqrt(x * x - n(1)),
)  # fmt: skip
atanh = _transcendental(
    "atanh", "Inverse hyperbolic tangent.", topi.atanh, np.arctanh, derivative=lambda x, y, g, n: g / (n(1) - x * x),
)  # fmt: skip
abs = unary(
    "abs", "Absolute value.", topi.abs, np.abs, fixed_points=(0, 1), support_level=3,
    derivative=lambda x, y, g, n: g * ops.sign(x),  # 0 at 0
)  # fmt: skip
sign = unary("sign", "-1, 0 or 1.", topi.sign, np.sign, support_level=3, gradient=no_gradient)
negative = unary(
    "negative", "-data", topi.negative, np.negative, fixed_points=(0,), support_level=3,
    derivative=lambda x, y, g, n: -g,
)  # fmt: skip
ceil = unary("ceil", "Round up; integers stay.", topi.ceil, _float_only(np.ceil), support_level=3, gradient=no_gradient)
floor = unary(
    "floor", "Round down; integers stay.", topi.floor, _float_only(np.floor), support_level=3, gradient=no_gradient,
)  # fmt: skip
round = unary(
    "round", "Round to the nearest integer, halves away from zero.",
    topi.round, _float_only(_round_away), support_level=3, gradient=no_gradient,
)  # fmt: skip
nearbyint = unary(
    "nearbyint", "Round to the nearest integer, halves to even.", topi.nearbyint, _float_only(np.rint),
    gradient=no_gradient,
)  # fmt: skip
trunc = unary("trunc", "Round towards zero.", topi.trunc, _float_only(np.trunc), support_level=3, gradient=no_gradient)
logical_not = unary(
    "logical_not", "Whether ``data`` is false.", topi.logical_not, np.logical_not, support_level=4,
    gradient=no_gradient,
)  # fmt: skip
bitwise_not = unary("bitwise_not", "All bits inverted.", topi.bitwise_not, np.bitwise_not, gradient=no_gradient)
copy = unary(
    "copy", "A copy of ``data``.", topi.identity, np.copy, moves=True, support_level=3, derivative=lambda x, y, g, n: g,
)  # fmt: skip
fast_exp = _transcendental(
    "fast_exp", "Approximation of exp.", topi.fast_exp, np.exp, derivative=lambda x, y, g, n: g * y
)
fast_tanh = _transcendental(
    "fast_tanh", "Approximation of tanh.", topi.fast_tanh, np.tanh, derivative=lambda x, y, g, n: g * (n(1) - y * y),
)  # fmt: skip
fast_erf = _transcendental(
    "fast_erf", "Approximation of erf.", topi.fast_erf, erf_array,
    derivative=lambda x, y, g, n: g * (n(2 / math.sqrt(math.pi)) * ops.exp(-(x * x))),
)  # fmt: skip
isnan = unary(
    "isnan", "Whether each element is not a number; bool.", topi.isnan, np.isnan, _to_bool, gradient=no_gradient,
)  # fmt: skip
isfinite = unary(
    "isfinite", "Whether each element is finite; bool.", topi.isfinite, np.isfinite, _to_bool, gradient=no_gradient,
)  # fmt: skip
isinf = unary("isinf", "Whether each element is infinite; bool.", topi.isinf, np.isinf, _to_bool, gradient=no_gradient)


class FixedPointMultiplyAttrs(Attrs):
    """The factor ``multiplier * 2 ** (shift - 31)``."""

    multiplier: int
    shift: int


class FixedPointMultiply(Elementwise[FixedPointMultiplyAttrs]):
    """Multiply integers by a fixed-point factor: ``round(data * multiplier * 2 ** (shift - 31))``, halves up."""

    name = "fixed_point_multiply"

    @staticmethod
    def compute(attrs: FixedPointMultiplyAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.fixed_point_multiply(inputs[0], attrs.multiplier, attrs.shift)]

    @staticmethod
    def evaluate(attrs: FixedPointMultiplyAttrs, inputs: Sequence[Array]) -> list[Array]:
        """Multiply in 64-bit integers."""
        left, right = (attrs.shift, 0) if attrs.shift > 0 else (0, -attrs.shift)
        product = (inputs[0].astype(np.int64) << left) * attrs.multiplier
        total = right + 31
        return [((product + (1 << (total - 1))) >> total).astype(inputs[0].dtype)]


fixed_point_multiply = builder(FixedPointMultiply)


class ClipAttrs(Attrs):
    """Bounds of clip."""

    a_min: float
    a_max: float


class Clip(Elementwise[ClipAttrs]):
    """Limit every element to [a_min, a_max]."""

    name = "clip"
    support_level = 3
    inputs = ("a",)
    finite = True

    value_range = staticmethod(value_ranges.limited)

    @staticmethod
    def compute(attrs: ClipAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.clip(inputs[0], attrs.a_min, attrs.a_max)]

    @staticmethod
    def evaluate(attrs: ClipAttrs, inputs: Sequence[Array]) -> list[Array]:
        """Clip in the dtype of the data."""
        data = inputs[0]
        low, high = attrs.a_min, attrs.a_max
        if data.dtype.kind in "iu":
            info = np.iinfo(data.dtype)
            low, high = int(max(low, info.min)), int(min(high, info.max))
        return [np.clip(data, np.asarray(low, data.dtype), np.asarray(high, data.dtype))]

    @staticmethod
    def gradient(attrs: ClipAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        x = orig.args[0]
        lowest, highest = (number(float(end), x) for end in (attrs.a_min, attrs.a_max))
        within = ops.logical_and(ops.greater_equal(x, lowest), ops.less_equal(x, highest))
        return [ops.where(within, grad, number(0, x))]


clip = builder(Clip)


class CastAttrs(Attrs):
    """The target dtype."""

    dtype: str


def _cast_type(types: Sequence[Type], attrs: CastAttrs, solver: TypeSolver) -> Type | None:
    data = relations.tensor(types[0])
    return TensorType(data.shape, attrs.dtype)


def _numpy_dtype(dtype: str) -> Any:
    return numpy_dtype(dtype)


class Cast(Elementwise[CastAttrs]):
    """Convert elements to another dtype; floats to integers towards zero."""

    name = "cast"
    support_level = 3
    fixed_points = (0, 1)

    value_range = staticmethod(value_ranges.converted)

    infer_type = staticmethod(_cast_type)

    @staticmethod
    def compute(attrs: CastAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.cast(inputs[0], attrs.dtype)]

    @staticmethod
    def evaluate(attrs: CastAttrs, inputs: Sequence[Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            return [inputs[0].astype(_numpy_dtype(attrs.dtype))]

    @staticmethod
    def gradient(attrs: CastAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        dtype = tensor_type(orig.args[0]).dtype
        return [None if dtype == "bool" else cast(grad, dtype), None][: len(orig.args)]


cast = builder(Cast)


class Reinterpret(Elementwise[CastAttrs]):
    """The same bits as another dtype of the same width."""

    name = "reinterpret"
    gradient = staticmethod(no_gradient)
    support_level = 3

    infer_type = staticmethod(_cast_type)

    @staticmethod
    def compute(attrs: CastAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.reinterpret(inputs[0], attrs.dtype)]

    @staticmethod
    def evaluate(attrs: CastAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.ascontiguousarray(inputs[0]).view(_numpy_dtype(attrs.dtype)).reshape(inputs[0].shape)]


reinterpret = builder(Reinterpret)


class CastLike(OpDef[None]):
    """``data`` converted to the dtype of ``dtype_like``."""

    name = "cast_like"
    inputs = ("data", "dtype_like")
    pattern = OpPattern.ELEMWISE
    gradient = staticmethod(Cast.gradient)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        """Shape of the first, dtype of the second."""
        found = relations.tensors(types, CastLike.inputs)
        return TensorType(found[0].shape, found[1].dtype)

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.cast(inputs[0], inputs[1].dtype)]

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0].astype(inputs[1].dtype)]


cast_like = builder(CastLike)
