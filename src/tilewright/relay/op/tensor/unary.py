"""Element-wise functions of one tensor: exp, tanh, floor, isnan, ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.definition import OpDef, OpPattern
from tilewright.relay.op.families import Array, Elementwise, declare_unary
from tilewright.runtime.ndarray import numpy_dtype


def _to_bool(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
    data = relations.tensor(types[0])
    return None if data is None else TensorType(data.shape, "bool")


def erf_array(x: Array) -> Array:
    """The error function of every element, in double precision."""
    values = [math.erf(float(v)) for v in np.asarray(x).reshape(-1)]
    return np.asarray(values, np.float64).reshape(np.shape(x))


def sigmoid_array(x: Array) -> Array:
    """1 / (1 + e ** -x), rounded to the precision of ``x``; halves are computed in float32, where powers fit."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    one = np.asarray(1, wide.dtype)
    return np.asarray(one / (one + np.exp(-wide))).astype(x.dtype)


def _round_away(x: Array) -> Array:
    return np.asarray(np.trunc(x + np.copysign(np.asarray(0.5, x.dtype), x))) if x.dtype.kind == "f" else x


def _float_only(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """Rounding leaves integers as they are."""
    return lambda x: function(x) if x.dtype.kind not in "iub" else x


_UNARY: tuple[tuple[str, str, Callable[[Any], Any], Callable[[Array], Any]], ...] = (
    ("exp", "e ** data", topi.exp, np.exp),
    ("expm1", "e ** data - 1, also where that is small. Not in TVM 0.8.", topi.expm1, np.expm1),
    ("log", "Natural logarithm.", topi.log, np.log),
    ("log1p", "log(1 + data), also where that is small. Not in TVM 0.8.", topi.log1p, np.log1p),
    ("log2", "Logarithm to base 2.", topi.log2, np.log2),
    ("log10", "Logarithm to base 10.", topi.log10, np.log10),
    ("sqrt", "Square root.", topi.sqrt, np.sqrt),
    ("rsqrt", "1 / sqrt(data)", topi.rsqrt, lambda x: 1 / np.sqrt(x)),
    ("tanh", "Hyperbolic tangent.", topi.tanh, np.tanh),
    ("sigmoid", "1 / (1 + exp(-data))", topi.sigmoid, sigmoid_array),
    ("erf", "Error function.", topi.erf, erf_array),
    ("sin", "Sine.", topi.sin, np.sin),
    ("cos", "Cosine.", topi.cos, np.cos),
    ("tan", "Tangent.", topi.tan, np.tan),
    ("asin", "Arc sine.", topi.asin, np.arcsin),
    ("acos", "Arc cosine.", topi.acos, np.arccos),
    ("atan", "Arc tangent.", topi.atan, np.arctan),
    ("sinh", "Hyperbolic sine.", topi.sinh, np.sinh),
    ("cosh", "Hyperbolic cosine.", topi.cosh, np.cosh),
    ("asinh", "Inverse hyperbolic sine.", topi.asinh, np.arcsinh),
    ("acosh", "Inverse hyperbolic cosine.", topi.acosh, np.arccosh),
    ("atanh", "Inverse hyperbolic tangent.", topi.atanh, np.arctanh),
    ("abs", "Absolute value.", topi.abs, np.abs),
    ("sign", "-1, 0 or 1.", topi.sign, np.sign),
    ("negative", "-data", topi.negative, np.negative),
    ("ceil", "Round up.", topi.ceil, _float_only(np.ceil)),
    ("floor", "Round down.", topi.floor, _float_only(np.floor)),
    ("round", "Round to the nearest integer.", topi.round, _float_only(_round_away)),
    ("nearbyint", "Round to the nearest integer, halves to even.", topi.nearbyint, _float_only(np.rint)),
    ("trunc", "Round towards zero.", topi.trunc, _float_only(np.trunc)),
    ("logical_not", "Whether data is false (or 0).", topi.logical_not, np.logical_not),
    ("bitwise_not", "All bits inverted.", topi.bitwise_not, np.bitwise_not),
    ("copy", "A copy.", topi.identity, np.copy),
    ("fast_exp", "Approximation of exp (relative error 1e-7 from -87.3 to 88.37).", topi.fast_exp, np.exp),
    ("fast_tanh", "Approximation of tanh (relative error 1e-6 above 1e-30).", topi.fast_tanh, np.tanh),
    ("fast_erf", "Approximation of erf (absolute error 5e-7).", topi.fast_erf, erf_array),
)  # fmt: skip

for _name, _doc, _compute, _evaluate in _UNARY:
    declare_unary(_name, _doc, _compute, _evaluate, in_float32=_name == "rsqrt")  # of two steps

declare_unary("isnan", "Whether data is not a number.", topi.isnan, np.isnan, _to_bool)
declare_unary("isfinite", "Whether data is finite.", topi.isfinite, np.isfinite, _to_bool)
declare_unary("isinf", "Whether data is infinite.", topi.isinf, np.isinf, _to_bool)


def exp(data: RelayExpr) -> Call:
    """e ** data"""
    return call("exp", [data])


def expm1(data: RelayExpr) -> Call:
    """e ** data - 1"""
    return call("expm1", [data])


def log1p(data: RelayExpr) -> Call:
    """Natural logarithm of 1 + ``data``."""
    return call("log1p", [data])


def log(data: RelayExpr) -> Call:
    """Natural logarithm of ``data``."""
    return call("log", [data])


def log2(data: RelayExpr) -> Call:
    """Logarithm to base 2."""
    return call("log2", [data])


def log10(data: RelayExpr) -> Call:
    """Logarithm to base 10."""
    return call("log10", [data])


def sqrt(data: RelayExpr) -> Call:
    """Square root."""
    return call("sqrt", [data])


def rsqrt(data: RelayExpr) -> Call:
    """1 / sqrt(data)"""
    return call("rsqrt", [data])


def tanh(data: RelayExpr) -> Call:
    """Hyperbolic tangent."""
    return call("tanh", [data])


def sigmoid(data: RelayExpr) -> Call:
    """1 / (1 + exp(-data))"""
    return call("sigmoid", [data])


def erf(data: RelayExpr) -> Call:
    """Error function."""
    return call("erf", [data])


def sin(data: RelayExpr) -> Call:
    """Sine."""
    return call("sin", [data])


def cos(data: RelayExpr) -> Call:
    """Cosine."""
    return call("cos", [data])


def tan(data: RelayExpr) -> Call:
    """Tangent."""
    return call("tan", [data])


def asin(data: RelayExpr) -> Call:
    """Arc sine."""
    return call("asin", [data])


def acos(data: RelayExpr) -> Call:
    """Arc cosine."""
    return call("acos", [data])


def atan(data: RelayExpr) -> Call:
    """Arc tangent."""
    return call("atan", [data])


def sinh(data: RelayExpr) -> Call:
    """Hyperbolic sine."""
    return call("sinh", [data])


def cosh(data: RelayExpr) -> Call:
    """Hyperbolic cosine."""
    return call("cosh", [data])


def asinh(data: RelayExpr) -> Call:
    """Inverse hyperbolic sine."""
    return call("asinh", [data])


def acosh(data: RelayExpr) -> Call:
    """Inverse hyperbolic cosine."""
    return call("acosh", [data])


def atanh(data: RelayExpr) -> Call:
    """Inverse hyperbolic tangent."""
    return call("atanh", [data])


def abs(data: RelayExpr) -> Call:
    """Absolute value."""
    return call("abs", [data])


def sign(data: RelayExpr) -> Call:
    """-1, 0 or 1."""
    return call("sign", [data])


def negative(data: RelayExpr) -> Call:
    """-data"""
    return call("negative", [data])


def ceil(data: RelayExpr) -> Call:
    """Round up; integers stay."""
    return call("ceil", [data])


def floor(data: RelayExpr) -> Call:
    """Round down; integers stay."""
    return call("floor", [data])


def round(data: RelayExpr) -> Call:
    """Round to the nearest integer, halves away from zero."""
    return call("round", [data])


def nearbyint(data: RelayExpr) -> Call:
    """Round to the nearest integer, halves to even."""
    return call("nearbyint", [data])


def trunc(data: RelayExpr) -> Call:
    """Round towards zero."""
    return call("trunc", [data])


def logical_not(data: RelayExpr) -> Call:
    """Whether ``data`` is false."""
    return call("logical_not", [data])


def bitwise_not(data: RelayExpr) -> Call:
    """All bits inverted."""
    return call("bitwise_not", [data])


def copy(data: RelayExpr) -> Call:
    """A copy of ``data``."""
    return call("copy", [data])


def isnan(data: RelayExpr) -> Call:
    """Whether each element is not a number; bool."""
    return call("isnan", [data])


def isfinite(data: RelayExpr) -> Call:
    """Whether each element is finite; bool."""
    return call("isfinite", [data])


def isinf(data: RelayExpr) -> Call:
    """Whether each element is infinite; bool."""
    return call("isinf", [data])


def fast_exp(data: RelayExpr) -> Call:
    """Approximation of exp."""
    return call("fast_exp", [data])


def fast_tanh(data: RelayExpr) -> Call:
    """Approximation of tanh."""
    return call("fast_tanh", [data])


def fast_erf(data: RelayExpr) -> Call:
    """Approximation of erf."""
    return call("fast_erf", [data])


class FixedPointMultiplyAttrs(Attrs):
    """The factor ``multiplier * 2 ** (shift - 31)``."""

    multiplier: int
    shift: int


class FixedPointMultiply(Elementwise):
    """Multiply integers by a fixed-point factor: ``round(data * multiplier * 2 ** (shift - 31))``, halves up."""

    name = "fixed_point_multiply"
    attrs_type = FixedPointMultiplyAttrs

    @staticmethod
    def compute(attrs: Any, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """topi's kernel."""
        return [topi.fixed_point_multiply(inputs[0], attrs.multiplier, attrs.shift)]

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """In 64-bit integers."""
        left, right = (attrs.shift, 0) if attrs.shift > 0 else (0, -attrs.shift)
        product = (inputs[0].astype(np.int64) << left) * attrs.multiplier
        total = right + 31
        return [((product + (1 << (total - 1))) >> total).astype(inputs[0].dtype)]


def fixed_point_multiply(data: RelayExpr, multiplier: int, shift: int) -> Call:
    """``data`` (int32) times the fixed-point factor ``multiplier * 2 ** (shift - 31)``, rounded."""
    return call("fixed_point_multiply", [data], FixedPointMultiplyAttrs(int(multiplier), int(shift)))


class ClipAttrs(Attrs):
    """Bounds of clip."""

    a_min: float
    a_max: float


class Clip(Elementwise):
    """Limit every element to [a_min, a_max]."""

    name = "clip"
    attrs_type = ClipAttrs

    @staticmethod
    def compute(attrs: Any, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """topi's kernel."""
        return [topi.clip(inputs[0], attrs.a_min, attrs.a_max)]

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """numpy's clip, in the dtype of the data."""
        data = inputs[0]
        low, high = attrs.a_min, attrs.a_max
        if data.dtype.kind in "iu":
            info = np.iinfo(data.dtype)
            low, high = int(max(low, info.min)), int(min(high, info.max))
        return [np.clip(data, np.asarray(low, data.dtype), np.asarray(high, data.dtype))]


def clip(a: RelayExpr, a_min: float, a_max: float) -> Call:
    """``a`` limited to [a_min, a_max]."""
    return call("clip", [a], ClipAttrs(float(a_min), float(a_max)))


class CastAttrs(Attrs):
    """The target dtype."""

    dtype: str


def _cast_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
    data = relations.tensor(types[0])
    return None if data is None else TensorType(data.shape, attrs.dtype)


def _numpy_dtype(dtype: str) -> Any:
    return numpy_dtype(dtype)


class Cast(Elementwise):
    """Convert elements to another dtype; floats to integers towards zero."""

    name = "cast"
    attrs_type = CastAttrs

    infer_type = staticmethod(_cast_type)

    @staticmethod
    def compute(attrs: Any, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """topi's kernel."""
        return [topi.cast(inputs[0], attrs.dtype)]

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """numpy's conversion."""
        with np.errstate(all="ignore"):
            return [inputs[0].astype(_numpy_dtype(attrs.dtype))]


class Reinterpret(Elementwise):
    """The same bits as another dtype of the same width."""

    name = "reinterpret"
    attrs_type = CastAttrs

    infer_type = staticmethod(_cast_type)

    @staticmethod
    def compute(attrs: Any, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """topi's kernel."""
        return [topi.reinterpret(inputs[0], attrs.dtype)]

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """A view of the memory."""
        return [np.ascontiguousarray(inputs[0]).view(_numpy_dtype(attrs.dtype)).reshape(inputs[0].shape)]


class CastLike(OpDef):
    """Convert elements to the dtype of a second tensor."""

    name = "cast_like"
    inputs = ("data", "dtype_like")
    pattern = OpPattern.ELEMWISE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
        """Shape of the first, dtype of the second."""
        found = relations.tensors(types, CastLike.inputs)
        return None if found is None else TensorType(found[0].shape, found[1].dtype)

    @staticmethod
    def compute(attrs: Any, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """topi's kernel."""
        return [topi.cast(inputs[0], inputs[1].dtype)]

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """numpy's conversion."""
        return [inputs[0].astype(inputs[1].dtype)]


def cast(data: RelayExpr, dtype: str) -> Call:
    """``data`` converted to ``dtype``."""
    return call("cast", [data], CastAttrs(str(dtype)))


def cast_like(data: RelayExpr, dtype_like: RelayExpr) -> Call:
    """``data`` converted to the dtype of ``dtype_like``."""
    return call("cast_like", [data, dtype_like])


def reinterpret(data: RelayExpr, dtype: str) -> Call:
    """The bits of ``data`` as ``dtype``."""
    return call("reinterpret", [data], CastAttrs(str(dtype)))
