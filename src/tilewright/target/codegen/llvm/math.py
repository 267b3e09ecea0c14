"""exp, exp2, log, tanh, sigmoid and erf of float32, of any number of lanes, within 2 units in the last place.

Each is a reduction of the argument followed by a polynomial, evaluated the same way for a scalar and for a vector. The
coefficients are minimax fits of the functions named beside them (Lawson's iteration on Chebyshev nodes, weighted for
relative error), rounded to float32. Multiplications and additions may fuse (``contract``) where the processor can.
``tests/target/test_math.py`` measures the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import dtype as dt
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.builder import Unit
from tilewright.target.codegen.llvm.expr import overload

# (exp(r) - 1 - r) / r**2 on |r| <= log(2) / 2
_EXP = (
    0.5,
    0.1666666567325592,
    0.04166629537940025,
    0.008333497680723667,
    0.0013944758102297783,
    0.00019790243823081255,
)
# (2**f - 1) / f on |f| <= 1 / 2
_EXP2 = (
    0.6931471824645996, 0.24022647738456726, 0.055503323674201965, 0.00961843691766262, 0.0013398873852565885,
    0.00015353361959569156,
)  # fmt: skip
# (log(1 + f) - f + f**2 / 2) / f**3 on sqrt(1/2) - 1 <= f <= sqrt(2) - 1
_LOG = (
    0.3333331346511841, -0.25000008940696716, 0.2000211924314499, -0.1666799634695053, 0.14219552278518677,
    -0.1240558922290802, 0.11888162791728973, -0.11675651371479034, 0.0674663856625557,
)  # fmt: skip
# (tanh(x) - x) / x**3 in x**2, on |x| <= 0.625
_TANH = (-0.3333328068256378, 0.13331441581249237, -0.05373971536755562, 0.02063908614218235, -0.005704986397176981)
# erf(x) / x - 1 in x**2, on |x| <= 1
_ERF = (
    0.12837916612625122, -0.3761262595653534, 0.1128358542919159, -0.026853812858462334, 0.005188327748328447,
    -0.0008010193705558777, 7.853860734030604e-05,
)  # fmt: skip
# (-log(erfc(t)) - t) / t on 0.95 <= t <= 3.95
_ERFC = (
    0.12866568565368652, 0.6350820660591125, 0.10635055601596832, -0.023859264329075813, 0.0036881044507026672,
    -0.00033395926584489644, 1.2339348359091673e-05,
)  # fmt: skip

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.1219444005469058e-4  # few bits in the high part: its multiples are exact
_ROUND = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
_ROUND_BITS = 0x4B400000
_SQRT_HALF_BITS = 0x3F3504F3
_WIDE_LANES = 16  # of AVX-512's operations on whole registers


class _Body:
    """The instructions of one helper function; values are their names."""

    def __init__(self, unit: Unit, lanes: int) -> None:
        self.unit, self.dtype = unit, dt.with_lanes("float32", lanes)
        self.integers = dt.with_lanes("int32", lanes)
        self.flags = dt.with_lanes("bool", lanes)
        self.lines: list[str] = []

    def emit(self, text: str) -> str:
        name = f"%h{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def _literal(self, dtype: str, text: str) -> str:
        return text if dt.lanes(dtype) == 1 else ty.splat_literal(dtype, text)

    def number(self, value: float | str) -> str:
        return value if isinstance(value, str) else self._literal(self.dtype, ty.float_literal("float32", value))

    def integer(self, value: int | str) -> str:
        return value if isinstance(value, str) else self._literal(self.integers, str(value))

    def _float(self, op: str, a: float | str, b: float | str) -> str:
        return self.emit(f"{op} {ty.register(self.dtype)} {self.number(a)}, {self.number(b)}")

    def add(self, a: float | str, b: float | str) -> str:
        return self._float("fadd contract", a, b)

    def sub(self, a: float | str, b: float | str) -> str:
        return self._float("fsub contract", a, b)

    def mul(self, a: float | str, b: float | str) -> str:
        return self._float("fmul contract", a, b)

    def div(self, a: float | str, b: float | str) -> str:
        return self._float("fdiv", a, b)

    def mul_add(self, a: float | str, b: float | str, c: float | str) -> str:
        return self.add(self.mul(a, b), c)

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """Horner's scheme; the coefficients go from the constant term up."""
        result: float | str = coefficients[-1]
        for c in coefficients[-2::-1]:
            result = self.mul_add(result, x, c)
        return self.number(result)

    def compare(self, test: str, a: float | str, b: float | str) -> str:
        return self.emit(f"fcmp {test} {ty.register(self.dtype)} {self.number(a)}, {self.number(b)}")

    def select(self, flag: str, a: float | str, b: float | str) -> str:
        reg = ty.register(self.dtype)
        return self.emit(f"select {ty.register(self.flags)} {flag}, {reg} {self.number(a)}, {reg} {self.number(b)}")

    def int_op(self, op: str, a: int | str, b: int | str) -> str:
        return self.emit(f"{op} {ty.register(self.integers)} {self.integer(a)}, {self.integer(b)}")

    def bits(self, x: str) -> str:
        return self.emit(f"bitcast {ty.register(self.dtype)} {x} to {ty.register(self.integers)}")

    def from_bits(self, x: str) -> str:
        return self.emit(f"bitcast {ty.register(self.integers)} {x} to {ty.register(self.dtype)}")

    def to_float(self, x: str) -> str:
        return self.emit(f"sitofp {ty.register(self.integers)} {x} to {ty.register(self.dtype)}")

    def call(self, helper: str, x: str) -> str:
        reg = ty.register(self.dtype)
        return self.emit(f"call {reg} @{define(self.unit, helper, self.dtype)}({reg} {x})")

    def _intrinsic(self, name: str, *args: str) -> str:
        reg, full = ty.register(self.dtype), f"llvm.{name}.{overload(self.dtype)}"
        self.unit.declare(full, reg, ", ".join([reg] * len(args)))
        return self.emit(f"call {reg} @{full}({', '.join(f'{reg} {a}' for a in args)})")

    def can_scale(self) -> bool:
        """Whether the processor has `scale` and `fraction` for whole registers of such vectors."""
        has = self.unit.features.has
        return has("avx512f") and has("avx512dq") and dt.lanes(self.dtype) % _WIDE_LANES == 0

    def scale(self, y: str, n: str) -> str:
        """``y * 2**n``, rounded once, for any whole ``n``; where `can_scale`."""
        return self._wide("scalef", (y, n))

    def fraction(self, x: str) -> str:
        """``x`` less the nearest whole number, 0 of infinity; where `can_scale`."""
        return self._wide("reduce", (x,), "i32 8")

    def _wide(self, name: str, values: Sequence[str], *control: str) -> str:
        """AVX-512's operation ``name`` on each register of ``values``, with nothing masked and the usual rounding."""
        whole, part = ty.register(self.dtype), ty.register(dt.with_lanes("float32", _WIDE_LANES))
        names = overload(self.dtype), overload(dt.with_lanes("float32", _WIDE_LANES))
        extract, insert = f"llvm.vector.extract.{names[1]}.{names[0]}", f"llvm.vector.insert.{names[0]}.{names[1]}"
        operation = f"llvm.x86.avx512.mask.{name}.ps.512"
        self.unit.declare(extract, part, f"{whole}, i64 immarg")
        self.unit.declare(insert, whole, f"{whole}, {part}, i64 immarg")
        result = "poison"
        for i in range(0, dt.lanes(self.dtype), _WIDE_LANES):
            parts = [f"{part} " + self.emit(f"call {part} @{extract}({whole} {v}, i64 {i})") for v in values]
            operands = [*parts, *control, parts[0], "i16 -1", "i32 4"]
            self.unit.declare(operation, part, ", ".join(operand.rsplit(" ", 1)[0] for operand in operands))
            done = self.emit(f"call {part} @{operation}({', '.join(operands)})")
            result = self.emit(f"call {whole} @{insert}({whole} {result}, {part} {done}, i64 {i})")
        return result

    def absolute(self, x: str) -> str:
        return self._intrinsic("fabs", x)

    def copysign(self, x: str, sign: str) -> str:
        return self._intrinsic("copysign", x, sign)


def _between(b: _Body, x: str, low: float, high: float) -> str:
    """``x``, but no less than ``low`` and no more than ``high``; what is no number stays."""
    x = b.select(b.compare("olt", x, low), low, x)
    return b.select(b.compare("ogt", x, high), high, x)


def _times_power_of_two(b: _Body, y: str, shifted: str, n: str) -> str:
    """``y * 2**n`` with ``n = shifted - _ROUND``; in two steps, so that tiny results are rounded and not lost."""
    if b.can_scale():
        return b.scale(y, n)
    whole = b.int_op("sub", b.bits(shifted), _ROUND_BITS)
    half = b.int_op("ashr", whole, 1)
    for part in (half, b.int_op("sub", whole, half)):
        y = b.mul(y, b.from_bits(b.int_op("shl", b.int_op("add", part, 127), 23)))
    return y


def _exp(b: _Body, x: str, close: bool = False) -> str:
    """2**n * exp(r) with x = n * log(2) + r.

    ``close`` adds up 1 + r with its rounding error, which brings the result within 0.6 units in the last place.
    """
    x = _between(b, x, -104.0, 89.0)
    shifted = b.mul_add(x, _LOG2_E, _ROUND)
    n = b.sub(shifted, _ROUND)
    r = b.mul_add(n, -_LN2_LOW, b.mul_add(n, -_LN2_HIGH, x))
    if close:
        most = b.add(1.0, r)
        rest = b.add(b.sub(1.0, most), r)
        y = b.add(most, b.mul_add(b.mul(r, r), b.polynomial(r, _EXP), rest))
    else:
        y = b.add(b.mul_add(b.mul(r, r), b.polynomial(r, _EXP), r), 1.0)
    return _times_power_of_two(b, y, shifted, n)


def _exp2(b: _Body, x: str) -> str:
    """2**n * 2**f with x = n + f."""
    if b.can_scale():
        f = b.fraction(x)
        return b.scale(b.mul_add(f, b.polynomial(f, _EXP2), 1.0), b.sub(x, f))
    x = _between(b, x, -152.0, 129.0)
    shifted = b.add(x, _ROUND)
    n = b.sub(shifted, _ROUND)
    f = b.sub(x, n)
    return _times_power_of_two(b, b.mul_add(f, b.polynomial(f, _EXP2), 1.0), shifted, n)


def _log(b: _Body, x: str) -> str:
    """e * log(2) + log(1 + f) with x = 2**e * (1 + f)."""
    tiny = b.compare("olt", x, 1.1754943508222875e-38)
    scaled = b.bits(b.select(tiny, b.mul(x, 8388608.0), x))
    offset = b.int_op("sub", scaled, _SQRT_HALF_BITS)
    e = b.add(b.to_float(b.int_op("ashr", offset, 23)), b.select(tiny, -23.0, 0.0))
    f = b.sub(b.from_bits(b.int_op("add", b.int_op("and", offset, 0x7FFFFF), _SQRT_HALF_BITS)), 1.0)
    square = b.mul(f, f)
    y = b.mul_add(e, _LN2_LOW, b.mul(b.mul(f, square), b.polynomial(f, _LOG)))
    y = b.mul_add(square, -0.5, y)
    y = b.mul_add(e, _LN2_HIGH, b.add(y, f))
    y = b.select(b.compare("oeq", x, float("inf")), x, y)
    y = b.select(b.compare("ult", x, 0.0), float("nan"), y)
    return b.select(b.compare("oeq", x, 0.0), float("-inf"), y)


def _sigmoid(b: _Body, x: str) -> str:
    """exp(-|x|) / (1 + exp(-|x|)), or its complement for positive x: neither overflows.

    What the denominator lost in rounding is put back with its reciprocal, 1 - q or q.
    """
    e = _exp(b, b.sub(-0.0, b.absolute(x)), close=True)
    negative = b.compare("olt", x, 0.0)
    below = b.add(1.0, e)
    lost = b.add(b.sub(1.0, below), e)
    q = b.div(b.select(negative, e, 1.0), below)
    reciprocal = b.select(negative, b.sub(1.0, q), q)
    return b.sub(q, b.mul(b.mul(q, lost), reciprocal))


def _tanh(b: _Body, x: str) -> str:
    """A polynomial near 0, else 1 - 2 / (exp(2 |x|) + 1) with the sign of x."""
    size, square = b.absolute(x), b.mul(x, x)
    small = b.mul_add(b.mul(x, square), b.polynomial(square, _TANH), x)
    e = b.call("exp", b.add(size, size))
    large = b.sub(1.0, b.div(2.0, b.add(e, 1.0)))
    return b.select(b.compare("olt", size, 0.625), small, b.copysign(large, x))


def _erf(b: _Body, x: str) -> str:
    """A polynomial up to 1, else 1 - erfc(|x|) with the sign of x; erfc by its logarithm."""
    size, square = b.absolute(x), b.mul(x, x)
    small = b.mul_add(x, b.polynomial(square, _ERF), x)
    size = b.select(b.compare("ogt", size, 4.0), 4.0, size)
    exponent = b.mul_add(size, b.polynomial(size, _ERFC), size)
    large = b.sub(1.0, b.call("exp", b.sub(-0.0, exponent)))
    return b.select(b.compare("olt", size, 1.0), small, b.copysign(large, x))


FUNCTIONS: dict[str, Callable[[_Body, str], str]] = {
    "exp": _exp,
    "exp2": _exp2,
    "log": _log,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _erf,
}


def define(unit: Unit, name: str, dtype: str) -> str:
    """The helper that computes ``name`` on float32 vectors of ``dtype``; defined in ``unit`` at first use."""
    symbol = f".tw.{name}.{overload(dtype)}"
    if symbol not in unit.definitions:
        unit.definitions[symbol] = ""
        body, reg = _Body(unit, dt.lanes(dtype)), ty.register(dtype)
        result = FUNCTIONS[name](body, "%x")
        lines = "\n".join(body.lines)
        unit.definitions[symbol] = (
            f"define internal {reg} @{symbol}({reg} %x) alwaysinline nounwind {{\n{lines}\n  ret {reg} {result}\n}}"
        )
    return symbol
