"""Functions of float64 as expressions of TIR, which a device without a library of mathematics evaluates.

Every function reduces its argument to where a short series holds. Multiplications and additions fuse only where ``fma``
says so, because some sums need the part of a product that its rounding has lost. ``tests/target/test_codegen_ptx.py``
measures the errors. Functions of float32 that are no polynomials of their own (``codegen/llvm/math.py``) are these,
rounded.

Series are Taylor's, except for erf and erfc: those are interpolated in Chebyshev nodes (60 digits).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_ops import const
from tilewright.tir import op as T
from tilewright.tir.expr import Call, Cast, PrimExpr, Select

_LOG2_E = 1.4426950408889634
_LN2, _LN2_REST = 0.6931471805599453, 2.3190468138462996e-17
_LN2_SHORT, _LN2_SHORT_REST = 0.6931471803691238, 1.9082149292705877e-10  # 32 bits: their multiples are exact
_LOG2_10, _LOG10_2 = 3.321928094887362, 0.30102999566398119521
_LN10, _LN10_REST = 2.302585092994046, -2.1707562233822494e-16
_LOG10_2_HIGH, _LOG10_2_LOW = 0.3010299956639812, -2.8037281277851704e-18
_ERF = (
    1.1283791670955126, -0.3761263890318375, 0.11283791670954879, -0.026866170645076792, 0.0052239776248180145,
    -0.000854832698083379, 0.0001205533111164271, -1.4925595266831182e-05, 1.6461000484121368e-06,
    -1.6350312701054695e-07, 1.4659775274047436e-08, -1.1372848856791674e-09, 5.957176147748911e-11,
)  # fmt: skip
"""erf(sqrt(z)) / sqrt(z) for 0 <= z <= 1, within 1.5e-19."""
_ERFC = (
    0.17900115118138996, -0.3262335600430372, 0.24560380171233087, -0.15011593650077695, 0.07166583719797939,
    -0.024392499318686835, 0.004269136332800511, 0.000707746439350924, -0.0005970619480729631, 4.5255291751496646e-05,
    6.4056555752771e-05, -1.2860434912821754e-05, -7.978188648676145e-06, 2.1196750010029676e-06,
    1.2530472711476831e-06, -2.9300148752457834e-07, -2.370746527443923e-07, 2.7790970180266214e-08,
    5.202817224920122e-08, -1.3942799869399773e-09, -1.2670078550317134e-08, 3.321802515543935e-09,
)  # fmt: skip
"""erfc(x) * exp(x**2) for 1 <= x <= 28, a polynomial of (x - 3) / (x + 3), within 8e-19."""
_INFINITY, _NAN = float("inf"), float("nan")


def _c(value: float) -> PrimExpr:
    return const(float(value), "float64")


def _i(value: int) -> PrimExpr:
    return const(value, "int64")


def _fma(a: PrimExpr, b: PrimExpr | float, c: PrimExpr | float) -> PrimExpr:
    parts = (p if isinstance(p, PrimExpr) else _c(p) for p in (a, b, c))
    return Call("float64", "tir.fma", tuple(parts))


def _negated(x: PrimExpr) -> PrimExpr:
    return _c(-0.0) - x


def _horner(x: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
    """The coefficients go from the constant term up."""
    result = _c(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = _fma(result, x, coefficient)
    return result


def _round(x: PrimExpr) -> PrimExpr:
    return Call("float64", "tir.nearbyint", (x,))


def _bits(x: PrimExpr) -> PrimExpr:
    return T.reinterpret("int64", x)


def _of_bits(x: PrimExpr) -> PrimExpr:
    return T.reinterpret("float64", x)


def _absolute(x: PrimExpr) -> PrimExpr:
    return Call("float64", "tir.fabs", (x,))


def _root(x: PrimExpr) -> PrimExpr:
    return Call("float64", "tir.sqrt", (x,))


def _copysign(x: PrimExpr, sign: PrimExpr) -> PrimExpr:
    return Call("float64", "tir.copysign", (x, sign))


def _no_less(x: PrimExpr, low: float) -> PrimExpr:
    """Clamp to at least ``low``; NaN stays."""
    return Select(x < _c(low), _c(low), x)


def _no_more(x: PrimExpr, high: float) -> PrimExpr:
    return Select(x > _c(high), _c(high), x)


def _power_of_2(n: PrimExpr) -> PrimExpr:
    """2**n for a whole n of -1022 to 1023."""
    return _of_bits(ops.shift_left(n + _i(1023), _i(52)))


def _scaled(y: PrimExpr, n: PrimExpr) -> PrimExpr:
    """y * 2**n in two steps, so that tiny results are rounded and not lost."""
    whole = Cast("int64", n)
    half = ops.shift_right(whole, _i(1))
    return y * _power_of_2(half) * _power_of_2(whole - half)


_EXP = [1 / math.factorial(k) for k in range(2, 14)]  # of (exp(r) - 1 - r) / r**2, |r| <= log(2) / 2


def _grown(r: PrimExpr) -> PrimExpr:
    """exp(r) - 1 for |r| <= log(2) / 2."""
    return _fma(r * r, _horner(r, _EXP), r)


def _exponent(x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """n and r with x = n * log(2) + r."""
    n = _round(x * _c(_LOG2_E))
    return n, _fma(_negated(n), _LN2_REST, _fma(_negated(n), _LN2, x))


def exp(x: PrimExpr) -> PrimExpr:
    """2**n * exp(r) with x = n * log(2) + r."""
    n, r = _exponent(_no_more(_no_less(x, -746.0), 710.0))
    return _scaled(_grown(r) + _c(1.0), n)


def exp2(x: PrimExpr) -> PrimExpr:
    """2**n * exp(f * log(2)) with x = n + f."""
    t = _no_more(_no_less(x, -1080.0), 1025.0)
    n = _round(t)
    return _scaled(_grown((t - n) * _c(_LN2)) + _c(1.0), n)


def exp10(x: PrimExpr) -> PrimExpr:
    """2**n * exp(r * log(10)) with x = n * log10(2) + r."""
    t = _no_more(_no_less(x, -330.0), 310.0)
    n = _round(t * _c(_LOG2_10))
    r = _fma(_negated(n), _LOG10_2_LOW, _fma(_negated(n), _LOG10_2_HIGH, t))
    return _scaled(_grown(_fma(r, _LN10, r * _c(_LN10_REST))) + _c(1.0), n)


def expm1(x: PrimExpr) -> PrimExpr:
    """Return 2 * (h * (exp(r) - 1) + (h - 1 / 2)) with h = 2**(n - 1); for n = 0, exp(r) - 1."""
    n, r = _exponent(_no_more(_no_less(x, -40.0), 710.0))
    h, grown = _power_of_2(Cast("int64", n) - _i(1)), _grown(r)
    y = _fma(h, grown, h - _c(0.5))
    return Select(ops.equal(n, _c(0.0)), grown, y + y)


_LOG = [2 / (2 * k + 1) for k in range(1, 12)]  # of (log((1 + s) / (1 - s)) - 2 * s) / s**3
_TINY = 2.2250738585072014e-308
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD


def _mantissa(x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """e and f with x = 2**e * (1 + f), sqrt(1 / 2) <= 1 + f < sqrt(2), for x > 0."""
    is_tiny = x < _c(_TINY)
    offset = _bits(Select(is_tiny, x * _c(2.0**54), x)) - _i(_SQRT_HALF_BITS)
    e = Cast("float64", ops.shift_right(offset, _i(52))) - Select(is_tiny, _c(54.0), _c(0.0))
    f = _of_bits(ops.bitwise_and(offset, _i((1 << 52) - 1)) + _i(_SQRT_HALF_BITS)) - _c(1.0)
    return e, f


def _log_of_mantissa(f: PrimExpr, scale: PrimExpr) -> PrimExpr:
    """log(1 + f) + scale, the latter small: f - (f**2 / 2 - (s * (f**2 / 2 + R) + scale)) with s = f / (2 + f)."""
    s, half_square = f / (f + _c(2.0)), f * f * _c(0.5)
    square = s * s
    rest = square * _horner(square, _LOG)
    return f - (half_square - _fma(s, half_square + rest, scale))


def _at_the_ends(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """Return the logarithm ``y`` of ``x`` corrected for 0, infinity, and negative numbers."""
    y = Select(ops.equal(x, _c(_INFINITY)), x, y)
    y = Select(ops.equal(x, _c(0.0)), _c(-_INFINITY), y)
    return Select(x >= _c(0.0), y, _c(_NAN))


def log(x: PrimExpr) -> PrimExpr:
    """e * log(2) + log(1 + f) with x = 2**e * (1 + f)."""
    e, f = _mantissa(x)
    return _at_the_ends(x, _fma(e, _LN2_SHORT, _log_of_mantissa(f, e * _c(_LN2_SHORT_REST))))


def log2(x: PrimExpr) -> PrimExpr:
    """e + log(1 + f) / log(2)."""
    e, f = _mantissa(x)
    return _at_the_ends(x, _fma(_log_of_mantissa(f, _c(0.0)), _LOG2_E, e))


def log10(x: PrimExpr) -> PrimExpr:
    """e * log10(2) + log(1 + f) / log(10)."""
    e, f = _mantissa(x)
    part = _fma(_log_of_mantissa(f, _c(0.0)), 1 / _LN10, e * _c(_LOG10_2_LOW))
    return _at_the_ends(x, _fma(e, _LOG10_2_HIGH, part))


def log1p(x: PrimExpr) -> PrimExpr:
    """Return log(u) plus the rounding error of u = 1 + x, divided by u."""
    u = x + _c(1.0)
    of_sum = Select(x > _c(1.0), _c(1.0) - (u - x), x - (u - _c(1.0)))
    lost = Select(ops.logical_and(u > _c(0.0), u < _c(1e300)), of_sum / u, _c(0.0))
    e, f = _mantissa(u)
    scale = _fma(e, _LN2_SHORT_REST, lost)
    y = _at_the_ends(u, _fma(e, _LN2_SHORT, _log_of_mantissa(f, scale)))
    return Select(_absolute(x) < _c(2.0**-54), x, y)


# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2 / 2) / r**4 on |r| <= pi / 4, functions of r**2
_SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(1, 9)]
_COS = [(-1) ** k / math.factorial(2 * k) for k in range(2, 9)]


def _sine(r: PrimExpr) -> PrimExpr:
    square = r * r
    return _fma(r * square, _horner(square, _SIN), r)


def _cosine(r: PrimExpr) -> PrimExpr:
    square = r * r
    half = square * _c(0.5)
    w = _c(1.0) - half
    return w + _fma(square * square, _horner(square, _COS), (_c(1.0) - w) - half)


def _turned(r: PrimExpr, quarter: PrimExpr) -> PrimExpr:
    """The sine of r and ``quarter`` quarters of a turn."""
    one, two = const(1, "int32"), const(2, "int32")
    y = Select(ops.equal(ops.bitwise_and(quarter, one), one), _cosine(r), _sine(r))
    return Select(ops.equal(ops.bitwise_and(quarter, two), two), _negated(y), y)


def sin(r: PrimExpr, quarter: PrimExpr) -> PrimExpr:
    """The sine of ``quarter`` * pi / 2 + r."""
    return _turned(r, quarter)


def cos(r: PrimExpr, quarter: PrimExpr) -> PrimExpr:
    """The sine a quarter turn on."""
    return _turned(r, quarter + 1)


def tan(r: PrimExpr, quarter: PrimExpr) -> PrimExpr:
    """sin / cos, and in odd quarters -cos / sin."""
    one = const(1, "int32")
    odd = ops.equal(ops.bitwise_and(quarter, one), one)
    return Select(odd, _negated(_cosine(r)), _sine(r)) / Select(odd, _sine(r), _cosine(r))


_ATAN_STEPS = 8
_ATAN = [(-1) ** k / (2 * k + 1) for k in range(1, 8)]  # of (atan(u) - u) / u**3, |u| <= 1 / 16


def _arc(t: PrimExpr) -> PrimExpr:
    """atan(t) for 0 <= t <= 1: of the nearest eighth c, and of (t - c) / (1 + t * c)."""
    k = _round(t * _c(_ATAN_STEPS))
    c = k * _c(1 / _ATAN_STEPS)
    u = (t - c) / _fma(t, c, 1.0)
    known = _c(0.0)
    for i in range(1, _ATAN_STEPS + 1):
        known = Select(ops.equal(k, _c(i)), _c(math.atan(i / _ATAN_STEPS)), known)
    square = u * u
    return known + _fma(u * square, _horner(square, _ATAN), u)


_PI, _HALF_PI, _HALF_PI_REST = math.pi, math.pi / 2, 6.123233995736766e-17


def atan(x: PrimExpr) -> PrimExpr:
    """Return pi / 2 - atan(1 / |x|) for |x| > 1."""
    t = _absolute(x)
    large = t > _c(1.0)
    y = _arc(Select(large, _c(1.0) / t, t))
    return _copysign(Select(large, _c(_HALF_PI) - (y - _c(_HALF_PI_REST)), y), x)


def atan2(y: PrimExpr, x: PrimExpr) -> PrimExpr:
    """atan of the smaller size over the larger, moved to the right eighth of the circle."""
    a, b = _absolute(y), _absolute(x)
    steep = a > b
    large, small = Select(steep, a, b), Select(steep, b, a)
    quotient = Select(ops.equal(large, small), _c(1.0), small / large)  # also of two infinities
    angle = _arc(Select(ops.equal(large, _c(0.0)), _c(0.0), quotient))
    angle = Select(steep, _c(_HALF_PI) - (angle - _c(_HALF_PI_REST)), angle)
    negative = _bits(x) < _i(0)
    angle = Select(negative, _c(_PI) - (angle - _c(2 * _HALF_PI_REST)), angle)
    angle = _copysign(angle, y)
    return Select(ops.logical_and(ops.equal(x, x), ops.equal(y, y)), angle, _c(_NAN))


def asin(x: PrimExpr) -> PrimExpr:
    """The angle whose sine is x."""
    return atan2(x, _root((_c(1.0) - x) * (x + _c(1.0))))


def acos(x: PrimExpr) -> PrimExpr:
    """The angle whose cosine is x."""
    return atan2(_root((_c(1.0) - x) * (x + _c(1.0))), x)


def sinh(x: PrimExpr) -> PrimExpr:
    """Return (g + g / (g + 1)) / 2 with g = exp(|x|) - 1; from 700 on by the exponential of |x| / 2."""
    t = _absolute(x)
    g, e = expm1(_no_more(t, 700.0)), exp(t * _c(0.5))
    y = (g + g / (g + _c(1.0))) * _c(0.5)
    return _copysign(Select(t > _c(700.0), e * _c(0.5) * e, y), x)


def cosh(x: PrimExpr) -> PrimExpr:
    """Return (e + 1 / e) / 2 with e = exp(|x|)."""
    t = _absolute(x)
    e, root = exp(_no_more(t, 700.0)), exp(t * _c(0.5))
    return Select(t > _c(700.0), root * _c(0.5) * root, _fma(e, 0.5, _c(0.5) / e))


def tanh(x: PrimExpr) -> PrimExpr:
    """g / (g + 2) with g = exp(2 * |x|) - 1."""
    g = expm1(_no_more(_absolute(x) * _c(2.0), 44.0))
    return _copysign(g / (g + _c(2.0)), x)


def asinh(x: PrimExpr) -> PrimExpr:
    """log1p(t + t**2 / (1 + sqrt(1 + t**2))) with t = |x|."""
    t = _absolute(x)
    small = _no_more(t, 1e9)
    square = small * small
    y = log1p(small + square / (_root(square + _c(1.0)) + _c(1.0)))
    return _copysign(Select(t > _c(1e9), log(t) + _c(_LN2), y), x)


def acosh(x: PrimExpr) -> PrimExpr:
    """log1p(t + sqrt(2 * t + t**2)) with t = x - 1."""
    t = _no_more(x, 1e9) - _c(1.0)
    return Select(x > _c(1e9), log(x) + _c(_LN2), log1p(t + _root(_fma(t, t, t + t))))


def atanh(x: PrimExpr) -> PrimExpr:
    """log1p(2 * t / (1 - t)) / 2 with t = |x|."""
    t = _absolute(x)
    return _copysign(log1p((t + t) / (_c(1.0) - t)) * _c(0.5), x)


def sigmoid(x: PrimExpr) -> PrimExpr:
    """e / (1 + e) or 1 / (1 + e) with e = exp(-|x|)."""
    e = exp(_negated(_absolute(x)))
    return Select(x < _c(0.0), e, _c(1.0)) / (e + _c(1.0))


def erf(x: PrimExpr) -> PrimExpr:
    """x times a polynomial of x**2 up to 1, from there on 1 - erfc(|x|)."""
    t = _absolute(x)
    inner = _no_more(t, 1.0)
    near = inner * _horner(inner * inner, _ERF)
    return _copysign(Select(t > _c(1.0), _c(1.0) - _tail(_no_more(t, 28.0)), near), x)


def _tail(t: PrimExpr) -> PrimExpr:
    """erfc(t) for t >= 1."""
    square = t * t
    lost = _fma(t, t, _negated(square))
    scale = exp(_negated(square))
    return _fma(scale, _negated(lost), scale) * _horner((t - _c(3.0)) / (t + _c(3.0)), _ERFC)


def erfc(x: PrimExpr) -> PrimExpr:
    """1 - erf(x) near 0."""
    t = _absolute(x)
    inner = _copysign(_no_more(t, 1.0), x)
    near = _c(1.0) - inner * _horner(inner * inner, _ERF)
    tail = _tail(_no_more(_no_less(t, 1.0), 28.0))
    far = Select(x < _c(0.0), _c(2.0) - tail, tail)
    return Select(t > _c(1.0), far, near)


def normal_tail(x: PrimExpr) -> PrimExpr:
    """Half of erfc(x * sqrt(1 / 2))."""
    return erfc(x * _c(math.sqrt(0.5))) * _c(0.5)


def hypot(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """m * sqrt(1 + (n / m)**2) with m the larger size and n the smaller."""
    a, b = _absolute(x), _absolute(y)
    large, small = Select(a > b, a, b), Select(a > b, b, a)
    quotient = small / Select(ops.equal(large, _c(0.0)), _c(1.0), large)
    length = large * _root(_fma(quotient, quotient, 1.0))
    infinite = ops.logical_or(ops.equal(a, _c(_INFINITY)), ops.equal(b, _c(_INFINITY)))
    return Select(infinite, _c(_INFINITY), Select(ops.equal(small, _c(0.0)), large + small, length))


def fmod(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """Return |x| minus the multiple of |y|, corrected if the quotient was rounded up.

    Exact while the quotient is below 2**53.
    """
    a, b = _absolute(x), _absolute(y)
    quotient = Call("float64", "tir.trunc", (a / b,))
    rest = _fma(_negated(quotient), b, a)
    rest = Select(rest < _c(0.0), rest + b, rest)
    rest = Select(rest >= b, rest - b, rest)
    rest = Select(ops.equal(b, _c(_INFINITY)), a, rest)
    undefined = ops.logical_or(ops.equal(b, _c(0.0)), ops.equal(a, _c(_INFINITY)))
    return _copysign(Select(undefined, _c(_NAN), rest), x)


def _log_in_two_parts(x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """log(x) for x > 0 as the sum of two numbers."""
    e, f = _mantissa(x)
    d = f + _c(2.0)
    d_lost = f - (d - _c(2.0))
    s = f / d
    s_lost = (_fma(_negated(s), d, f) - s * d_lost) / d
    square = s * s
    series = s * square * _horner(square, _LOG)
    high = _fma(e, _LN2_SHORT, s + s)
    low = _fma(e, _LN2_SHORT, high * _c(-1.0)) + (s + s)  # what rounding the sum has lost; |e * log(2)| is larger
    rest = (s_lost + s_lost) + series
    low = Select(ops.equal(e, _c(0.0)), rest, low + _fma(e, _LN2_SHORT_REST, rest))
    total = high + low
    return total, low - (total - high)


def pow(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """Return exp(y * log(|x|)), logarithm and product in two parts each; negative if x is and y is odd."""
    size = _absolute(x)
    high, low = _log_in_two_parts(size)
    product = y * high
    rest = _fma(y, high, _negated(product)) + y * low
    power = exp(product)
    finite = ops.logical_and(ops.logical_and(size > _c(0.0), size < _c(_INFINITY)), _absolute(y) < _c(_INFINITY))
    bounded = ops.logical_and(product > _c(-745.0), product < _c(709.79))
    corrected = Select(ops.logical_and(finite, bounded), _fma(power, rest, power), power)
    at_zero = Select(y > _c(0.0), _c(0.0), _c(_INFINITY))
    at_infinity = Select(y > _c(0.0), _c(_INFINITY), _c(0.0))
    result = Select(ops.equal(size, _c(0.0)), at_zero, corrected)
    result = Select(ops.equal(size, _c(_INFINITY)), at_infinity, result)
    of_one = ops.equal(size, _c(1.0))
    result = Select(of_one, _c(1.0), result)
    whole = ops.equal(Call("float64", "tir.trunc", (y,)), y)
    half = y * _c(0.5)
    odd = ops.logical_and(whole, ops.logical_not(ops.equal(Call("float64", "tir.trunc", (half,)), half)))
    negative = _bits(x) < _i(0)
    result = Select(ops.logical_and(negative, odd), _negated(result), result)
    undefined = ops.logical_and(ops.logical_and(x < _c(0.0), x > _c(-_INFINITY)), ops.logical_not(whole))
    result = Select(undefined, _c(_NAN), result)
    result = Select(ops.logical_and(ops.equal(x, x), ops.equal(y, y)), result, x + y)
    return Select(ops.logical_or(ops.equal(y, _c(0.0)), ops.equal(x, _c(1.0))), _c(1.0), result)


FUNCTIONS: dict[str, Callable[..., PrimExpr]] = {
    f.__name__: f
    for f in (
        exp, exp2, exp10, expm1, log, log2, log10, log1p, atan, asin, acos, sinh, cosh, tanh, asinh, acosh, atanh,
        sigmoid, erf, normal_tail, atan2, hypot, fmod, pow,
    )
}  # fmt: skip
"""Functions of one or two arguments."""
OF_ANGLES: dict[str, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {"sin": sin, "cos": cos, "tan": tan}
"""Functions of what ``reduction.py`` makes of an angle: the rest, and the number of quarter turns."""
