"""Element-wise functions of one tensor, and the fast polynomial approximations that FastMath chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.te.broadcast import cast
from tilewright.topi import tag


def unary(x: te.Tensor, function: Callable[[PrimExpr], Any], name: str) -> te.Tensor:
    """Apply ``function`` to every element."""
    return te.compute(x.shape, lambda *i: function(x(*i)), name=name, tag=tag.ELEMWISE)


def identity(x: te.Tensor) -> te.Tensor:
    """Return x."""
    return unary(x, lambda v: v, "T_identity")


def negative(x: te.Tensor) -> te.Tensor:
    """Return -x."""
    return unary(x, ops.neg, "T_negative")


def exp(x: te.Tensor) -> te.Tensor:
    """e to the power x."""
    return unary(x, tir.exp, "T_exp")


def expm1(x: te.Tensor) -> te.Tensor:
    """e to the power x, less 1; small results keep their digits."""
    return unary(x, tir.expm1, "T_expm1")


def erf(x: te.Tensor) -> te.Tensor:
    """The Gauss error function."""
    return unary(x, tir.erf, "T_erf")


def tanh(x: te.Tensor) -> te.Tensor:
    """Hyperbolic tangent."""
    return unary(x, tir.tanh, "T_tanh")


def tan(x: te.Tensor) -> te.Tensor:
    """Tangent."""
    return unary(x, tir.tan, "T_tan")


def cos(x: te.Tensor) -> te.Tensor:
    """Cosine."""
    return unary(x, tir.cos, "T_cos")


def cosh(x: te.Tensor) -> te.Tensor:
    """Hyperbolic cosine."""
    return unary(x, tir.cosh, "T_cosh")


def sin(x: te.Tensor) -> te.Tensor:
    """Sine."""
    return unary(x, tir.sin, "T_sin")


def sinh(x: te.Tensor) -> te.Tensor:
    """Hyperbolic sine."""
    return unary(x, tir.sinh, "T_sinh")


def acos(x: te.Tensor) -> te.Tensor:
    """Inverse cosine."""
    return unary(x, tir.acos, "T_acos")


def acosh(x: te.Tensor) -> te.Tensor:
    """Inverse hyperbolic cosine."""
    return unary(x, tir.acosh, "T_acosh")


def asin(x: te.Tensor) -> te.Tensor:
    """Inverse sine."""
    return unary(x, tir.asin, "T_asin")


def asinh(x: te.Tensor) -> te.Tensor:
    """Inverse hyperbolic sine."""
    return unary(x, tir.asinh, "T_asinh")


def atan(x: te.Tensor) -> te.Tensor:
    """Inverse tangent."""
    return unary(x, tir.atan, "T_atan")


def atanh(x: te.Tensor) -> te.Tensor:
    """Inverse hyperbolic tangent."""
    return unary(x, tir.atanh, "T_atanh")


def _rounding(x: te.Tensor, function: Callable[[PrimExpr], Any], name: str) -> te.Tensor:
    return unary(x, function if dt.is_float(x.dtype) else lambda v: v, name)


def floor(x: te.Tensor) -> te.Tensor:
    """The largest integer not above x."""
    return _rounding(x, tir.floor, "T_floor")


def ceil(x: te.Tensor) -> te.Tensor:
    """The smallest integer not below x."""
    return _rounding(x, tir.ceil, "T_ceil")


def nearbyint(x: te.Tensor) -> te.Tensor:
    """The nearest integer, of two the even one."""
    return _rounding(x, tir.nearbyint, "T_nearbyint")


def trunc(x: te.Tensor) -> te.Tensor:
    """x without its fraction."""
    return _rounding(x, tir.trunc, "T_trunc")


def round(x: te.Tensor) -> te.Tensor:
    """The nearest integer."""
    return _rounding(x, tir.round, "T_round")


def sign(x: te.Tensor) -> te.Tensor:
    """-1, 0 or 1; NaN of NaN."""

    def body(v: PrimExpr) -> PrimExpr:
        zero, one = ops.const(0, v.dtype), ops.const(1, v.dtype)
        if not dt.is_float(v.dtype) and not dt.is_signed(v.dtype):
            return tir.Select(v > zero, one, zero)
        return tir.Select(v > zero, one, tir.Select(v < zero, ops.const(-1, v.dtype), v))

    return unary(x, body, "T_sign")


def abs(x: te.Tensor) -> te.Tensor:
    """Absolute value."""
    return unary(x, tir.abs, "T_abs")


def isnan(x: te.Tensor) -> te.Tensor:
    """Return whether x is not a number, as bool."""
    return unary(x, tir.isnan, "T_isnan")


def isfinite(x: te.Tensor) -> te.Tensor:
    """Return whether x is neither infinite nor NaN, as bool."""
    return unary(x, tir.isfinite, "T_isfinite")


def isinf(x: te.Tensor) -> te.Tensor:
    """Return whether x is infinite, as bool."""
    return unary(x, tir.isinf, "T_isinf")


def log(x: te.Tensor) -> te.Tensor:
    """Natural logarithm."""
    return unary(x, tir.log, "T_log")


def log1p(x: te.Tensor) -> te.Tensor:
    """Natural logarithm of 1 + x; small results keep their digits."""
    return unary(x, tir.log1p, "T_log1p")


def log2(x: te.Tensor) -> te.Tensor:
    """Logarithm to base 2."""
    return unary(x, tir.log2, "T_log2")


def log10(x: te.Tensor) -> te.Tensor:
    """Logarithm to base 10."""
    return unary(x, tir.log10, "T_log10")


def sqrt(x: te.Tensor) -> te.Tensor:
    """Square root."""
    return unary(x, tir.sqrt, "T_sqrt")


def rsqrt(x: te.Tensor) -> te.Tensor:
    """1 / square root."""
    return unary(x, tir.rsqrt, "T_rsqrt")


def sigmoid(x: te.Tensor) -> te.Tensor:
    """1 / (1 + exp(-x))"""
    return unary(x, tir.sigmoid, "T_sigmoid")


def clip(x: te.Tensor, a_min: Any, a_max: Any) -> te.Tensor:
    """x limited to [a_min, a_max]; bounds beyond what the dtype holds are brought into its range."""

    def bound(limit: Any) -> PrimExpr:
        if isinstance(limit, (int, float)) and not dt.is_float(x.dtype):
            low, high = dt.int_range(x.dtype)
            limit = int(min(max(limit, low), high))
        return ops.cast(x.dtype, ops.as_expr(limit)) if isinstance(limit, PrimExpr) else ops.const(limit, x.dtype)

    low, high = bound(a_min), bound(a_max)
    return unary(x, lambda v: ops.maximum(ops.minimum(v, high), low), "T_clip")


def reinterpret(x: te.Tensor, dtype: str) -> te.Tensor:
    """The same bits read as ``dtype``, which has as many bits as x's."""
    return unary(x, lambda v: tir.reinterpret(dtype, v), "T_reinterpret")


def fixed_point_multiply(x: te.Tensor, multiplier: int, shift: int) -> te.Tensor:
    """x * multiplier * 2**(shift - 31) on int32 with rounding to the nearest; ``multiplier`` is in Q31."""
    args = (ops.const(multiplier, "int32"), ops.const(31, "int32"), ops.const(shift, "int32"))
    return unary(x, lambda v: tir.q_multiply_shift(v, *args), "T_fixed_point_multiply")


def _horner(x: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
    """Polynomial in x, highest power first."""
    result = ops.const(coefficients[0], x.dtype)
    for c in coefficients[1:]:
        result = result * x + ops.const(c, x.dtype)
    return result


def _fast_exp(v: PrimExpr) -> PrimExpr:
    # exp(v) = 2**n * exp(r): n = round(v / ln 2), and a degree 5 minimax polynomial of r in [-ln2/2, ln2/2] (Cephes)
    v = ops.maximum(ops.minimum(v, ops.const(88.3762626647950, v.dtype)), ops.const(-87.3365447505531, v.dtype))
    n = tir.floor(v * ops.const(1.44269504088896341, v.dtype) + ops.const(0.5, v.dtype))
    r = v - n * ops.const(0.693359375, v.dtype) - n * ops.const(-2.12194440e-4, v.dtype)
    poly = _horner(
        r, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
    )
    mantissa = poly * r * r + r + ops.const(1.0, v.dtype)
    lanes = dt.lanes(v.dtype)
    int_type = dt.make("int", 32, lanes)
    exponent = (ops.cast(int_type, n) + ops.const(127, int_type)) << ops.const(23, int_type)
    return ops.maximum(tir.reinterpret(v.dtype, exponent) * mantissa, ops.const(0.0, v.dtype))


def _rational(v: PrimExpr, limit: float, odd: Sequence[float], even: Sequence[float]) -> PrimExpr:
    v = ops.maximum(ops.minimum(v, ops.const(limit, v.dtype)), ops.const(-limit, v.dtype))
    square = v * v
    return v * _horner(square, odd) / _horner(square, even)


def _fast_tanh(v: PrimExpr) -> PrimExpr:
    # Rational approximation of odd degree 13 over even degree 6 on [-9, 9]; outside, tanh is 1 to fp32 precision.
    odd = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
           1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03)  # fmt: skip
    even = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
    return _rational(v, 9.0, odd, even)


def _fast_erf(v: PrimExpr) -> PrimExpr:
    # Rational approximation of odd degree 13 over even degree 8 on [-4, 4]; outside, erf is 1 to fp32 precision.
    odd = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
           -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)  # fmt: skip
    even = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
            -1.42647390514189e-02)  # fmt: skip
    return _rational(v, 4.0, odd, even)


def _fast(x: te.Tensor, approximation: Callable[[PrimExpr], PrimExpr], exact: Callable[[PrimExpr], Any]) -> te.Tensor:
    if dt.element(x.dtype) == "float32":
        return unary(x, approximation, f"T{approximation.__name__}")
    return unary(x, exact, f"T{approximation.__name__}")


def fast_exp(x: te.Tensor) -> te.Tensor:
    """exp by a polynomial; other types than float32 as exp.

    Relative error 1e-7 from -87.3 to 88.37; below, 1.18e-38; above, infinite.
    """
    return _fast(x, _fast_exp, tir.exp)


def fast_tanh(x: te.Tensor) -> te.Tensor:
    """tanh by a rational polynomial on float32 (relative error 1e-6 above 1e-30); other types as tanh."""
    return _fast(x, _fast_tanh, tir.tanh)


def fast_erf(x: te.Tensor) -> te.Tensor:
    """erf by a rational polynomial on float32 (absolute error 5e-7); other types as erf."""
    return _fast(x, _fast_erf, tir.erf)


def ceil_log2(x: Any) -> Any:
    """The smallest integer n with 2**n >= x, for an integer scalar."""
    if isinstance(x, int):
        return (x - 1).bit_length()
    value = ops.as_expr(x)
    return ops.cast(value.dtype, tir.ceil(tir.log2(ops.cast("float64", value))))


def elemwise_sum(xs: Sequence[te.Tensor]) -> te.Tensor:
    """Sum of tensors of one shape."""

    def body(*i: PrimExpr) -> PrimExpr:
        total = xs[0](*i)
        for x in xs[1:]:
            total = total + x(*i)
        return total

    return te.compute(xs[0].shape, body, name="T_elemwise_sum", tag=tag.ELEMWISE)


def full(shape: Sequence[Any], dtype: str, fill_value: Any) -> te.Tensor:
    """A tensor of ``fill_value``, a number or a scalar expression."""
    value = ops.cast(dtype, ops.as_expr(fill_value, dtype if isinstance(fill_value, int | float) else None))
    return te.compute(shape, lambda *i: value, name="T_full", tag=tag.ELEMWISE)


def full_like(x: te.Tensor, fill_value: Any) -> te.Tensor:
    """A tensor of ``fill_value`` with the shape and dtype of ``x``."""
    return full(x.shape, x.dtype, fill_value)


__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cast",
    "ceil",
    "ceil_log2",
    "clip",
    "cos",
    "cosh",
    "elemwise_sum",
    "erf",
    "exp",
    "expm1",
    "fast_erf",
    "fast_exp",
    "fast_tanh",
    "fixed_point_multiply",
    "floor",
    "full",
    "full_like",
    "identity",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "nearbyint",
    "negative",
    "reinterpret",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]  # fmt: skip
