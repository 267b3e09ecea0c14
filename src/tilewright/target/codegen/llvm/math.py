"""exp, expm1, exp2, log, log1p, tanh, sigmoid, erf, sin and cos of float32 vectors, within 2 units in the last place.

Each is a reduction of the argument followed by a polynomial, evaluated the same way for a scalar and for a vector. The
coefficients here are minimax fits of the functions named beside them (Lawson's iteration on Chebyshev nodes, weighted
for relative error), rounded to float32; those of tanh and erf, whose polynomials differ from piece to piece of the
argument, are worked out (``_pieces``). Multiplications and additions may fuse (``contract``) where the processor can.
``tests/target/test_math.py`` measures the errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.target import intrinsics
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.builder import UNLIKELY, Builder, Unit
from tilewright.target.codegen.llvm.expr import overload

# (exp(r) - 1 - r) / r**2 on |r| <= log(2) / 2
_EXP = (0.4999999403953552, 0.1666652113199234, 0.04166828840970993, 0.008368703536689281, 0.0013818938750773668)
# (log(1 + f) - f + f**2 / 2) / f**3 on sqrt(1/2) - 1 <= f <= sqrt(2) - 1
_LOG = (
    0.3333331346511841, -0.25000008940696716, 0.2000211924314499, -0.1666799634695053, 0.14219552278518677,
    -0.1240558922290802, 0.11888162791728973, -0.11675651371479034, 0.0674663856625557,
)  # fmt: skip
# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2 / 2) / r**4 on |r| <= pi / 4 + 0.01, functions of r**2
_SIN = (-0.16666653752326965, 0.008332104422152042, -0.00019507446268107742)
_COS = (0.04166664555668831, -0.001388729433529079, 2.4429415134363808e-05)
_SINE_LIMIT = 131072.0  # of |x|: further on, the rounding of 2 / pi moves r out of these bounds
_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_WIDE_HALF_PI = (1.570796325802803, 9.920935796805404e-10)  # 30 bits, whose multiples are exact, and the rest
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.1219444005469058e-4  # few bits in the high part: its multiples are exact
_ROUND = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
_ROUND_BITS = 0x4B400000
_SQRT_HALF_BITS = 0x3F3504F3
_WIDE_LANES = 16  # of AVX-512's operations on whole registers
_ONE_BITS = 0x3F800000  # of 1.0: n is added in the exponent's place
_SIGN_BIT = -0x80000000

_PIECES = 16  # of a table: what AVX-512 looks up in one instruction
_ORIGINS, _CLOSE = (
    4096,
    48,
)  # origins of pieces are multiples of 1 / 4096, of which 48 either side of the middle are tried
_ERF_WIDTH, _ERF_MOST, _ERF_TERMS = 0.2578125, 3.92, 6  # beyond 3.92 erf rounds to 1
_TAIL_WIDTH, _TAIL_TERMS = 0.4140625, 7
_TANH_SCALE, _TANH_MOST, _TANH_TERMS = 1.65625, 9.02, 7  # beyond 9.02 tanh rounds to 1


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

    def polynomial(self, x: str, coefficients: Sequence[float | str]) -> str:
        """Horner's scheme; the coefficients go from the constant term up."""
        result = coefficients[-1]
        for c in coefficients[-2::-1]:
            result = self.mul_add(result, x, c)
        return self.number(result)

    def compare(self, test: str, a: float | str, b: float | str) -> str:
        return self.emit(f"fcmp {test} {ty.register(self.dtype)} {self.number(a)}, {self.number(b)}")

    def select(self, flag: str, a: float | str, b: float | str) -> str:
        reg = ty.register(self.dtype)
        return self.emit(f"select {ty.register(self.flags)} {flag}, {reg} {self.number(a)}, {reg} {self.number(b)}")

    def less_multiple(self, x: str, n: str, parts: Sequence[float], wide: Sequence[float]) -> str:
        """Emit ``x - n * sum(parts)``; without fused multiply-adds, subtract the parts ``wide`` in float64."""
        if self.unit.features.has_fma:
            for part in parts:
                x = self._intrinsic("fma", n, self.number(-part), x)
            return x
        dtype = dt.with_lanes("float64", dt.lanes(self.dtype))
        single, double = ty.register(self.dtype), ty.register(dtype)
        rest, times = (self.emit(f"fpext {single} {value} to {double}") for value in (x, n))
        for part in wide:
            number = self._literal(dtype, ty.float_literal("float64", part))
            product = self.emit(f"fmul {double} {times}, {number}")
            rest = self.emit(f"fsub {double} {rest}, {product}")
        return self.emit(f"fptrunc {double} {rest} to {single}")

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
        """Return whether the processor has `scale` and `fraction` for whole registers of such vectors."""
        has = self.unit.features.has
        return has("avx512f") and has("avx512dq") and dt.lanes(self.dtype) % _WIDE_LANES == 0

    def scale(self, y: str, n: str) -> str:
        """Emit ``y * 2**n``, rounded once, for any integer ``n``; requires `can_scale`."""
        return self._wide("scalef", (y, n))

    def fraction(self, x: str) -> str:
        """Emit ``x`` minus the nearest integer, 0 for infinity; requires `can_scale`."""
        return self._wide("reduce", (x,), "i32 8")

    def _wide(self, name: str, values: Sequence[str], *control: str) -> str:
        """AVX-512's operation ``name`` on each register of ``values``, with nothing masked and the usual rounding."""
        operation, part = f"llvm.x86.avx512.mask.{name}.ps.512", f"<{_WIDE_LANES} x float>"

        def operate(*parts: str) -> str:
            operands = [*(f"{part} {p}" for p in parts), *control, f"{part} {parts[0]}", "i16 -1", "i32 4"]
            self.unit.declare(operation, part, ", ".join(operand.rsplit(" ", 1)[0] for operand in operands))
            return self.emit(f"call {part} @{operation}({', '.join(operands)})")

        return self._in_parts(_WIDE_LANES, [(self.dtype, value) for value in values], operate)

    def _in_parts(self, lanes: int, values: Sequence[tuple[str, str]], operate: Callable[..., str]) -> str:
        """Apply ``operate`` to each ``lanes`` lanes of ``values`` ((dtype, value) pairs), and join the results."""
        whole, part = ty.register(self.dtype), ty.register(dt.with_lanes(self.dtype, lanes))
        insert = f"llvm.vector.insert.{overload(self.dtype)}.{overload(dt.with_lanes(self.dtype, lanes))}"
        self.unit.declare(insert, whole, f"{whole}, {part}, i64 immarg")
        result = "poison"
        for start in range(0, dt.lanes(self.dtype), lanes):
            done = operate(*(self._part(dtype, value, start, lanes) for dtype, value in values))
            result = self.emit(f"call {whole} @{insert}({whole} {result}, {part} {done}, i64 {start})")
        return result

    def _part(self, dtype: str, value: str, start: int, lanes: int) -> str:
        """Lanes ``start`` ... ``start + lanes - 1`` of a vector."""
        whole, part = ty.register(dtype), ty.register(dt.with_lanes(dtype, lanes))
        extract = f"llvm.vector.extract.{overload(dt.with_lanes(dtype, lanes))}.{overload(dtype)}"
        self.unit.declare(extract, part, f"{whole}, i64 immarg")
        return self.emit(f"call {part} @{extract}({whole} {value}, i64 {start})")

    def lookup(self, table: Sequence[float], index: str) -> str:
        """Look up the entries of a table of `_PIECES` numbers by the lowest bits of the lanes of ``index``."""
        has, lanes = self.unit.features.has, dt.lanes(self.dtype)
        numbers = ", ".join("float " + ty.float_literal("float32", value) for value in table)
        symbol = self.unit.constant(f"[{_PIECES} x float] [{numbers}]", 4 * _PIECES)
        if has("avx512f") and lanes % _PIECES == 0:
            return self._lookup_16(symbol, index)
        if has("avx2") and lanes % 8 == 0:
            return self._lookup_8(symbol, index)
        return self._lookup_1(symbol, index)

    def _lookup_16(self, table: str, index: str) -> str:
        name, numbers = "llvm.x86.avx512.permvar.sf.512", self.emit(f"load <16 x float>, ptr {table}, align 64")
        self.unit.declare(name, "<16 x float>", "<16 x float>, <16 x i32>")

        def look_up(part: str) -> str:
            return self.emit(f"call <16 x float> @{name}(<16 x float> {numbers}, <16 x i32> {part})")

        return self._in_parts(16, [(self.integers, index)], look_up)

    def _lookup_8(self, table: str, index: str) -> str:
        """Look up both halves of the table, and select by the fourth bit of the index."""
        name, low = "llvm.x86.avx2.permps", self.emit(f"load <8 x float>, ptr {table}, align 32")
        address = self.emit(f"getelementptr float, ptr {table}, i64 8")
        high = self.emit(f"load <8 x float>, ptr {address}, align 32")
        self.unit.declare(name, "<8 x float>", "<8 x float>, <8 x i32>")

        def look_up(part: str) -> str:
            found = [
                self.emit(f"call <8 x float> @{name}(<8 x float> {half}, <8 x i32> {part})") for half in (high, low)
            ]
            bit = self.emit(f"shl <8 x i32> {part}, {ty.splat_literal('int32x8', '28')}")
            flag = self.emit(f"icmp slt <8 x i32> {bit}, zeroinitializer")
            return self.emit(f"select <8 x i1> {flag}, <8 x float> {found[0]}, <8 x float> {found[1]}")

        return self._in_parts(8, [(self.integers, index)], look_up)

    def _lookup_1(self, table: str, index: str) -> str:
        """Lane by lane from memory."""
        index, lanes, result = self.int_op("and", index, _PIECES - 1), dt.lanes(self.dtype), "poison"
        if lanes == 1:
            return self.emit(f"load float, ptr {self.emit(f'getelementptr float, ptr {table}, i32 {index}')}")
        for lane in range(lanes):
            i = self.emit(f"extractelement {ty.register(self.integers)} {index}, i64 {lane}")
            number = self.emit(f"load float, ptr {self.emit(f'getelementptr float, ptr {table}, i32 {i}')}")
            result = self.emit(f"insertelement {ty.register(self.dtype)} {result}, float {number}, i64 {lane}")
        return result

    def absolute(self, x: str) -> str:
        return self._intrinsic("fabs", x)

    def copysign(self, x: str, sign: str) -> str:
        return self._intrinsic("copysign", x, sign)

    def rarely(self, flags: str, helper: str, x: str, usual: str) -> str:
        """Return ``usual``, with ``helper`` of ``x`` in the lanes of ``flags``; branches when there are any."""
        reg, lanes, some = ty.register(self.dtype), dt.lanes(self.dtype), flags
        if lanes > 1:
            name = f"llvm.vector.reduce.or.v{lanes}i1"
            self.unit.declare(name, "i1", f"<{lanes} x i1>")
            some = self.emit(f"call i1 @{name}(<{lanes} x i1> {flags})")
        before, rare, after = (f"{part}{len(self.lines)}" for part in ("before", "rare", "after"))
        self.lines += [f"  br label %{before}", f"{before}:"]
        self.lines += [f"  br i1 {some}, label %{rare}, label %{after}{UNLIKELY}", f"{rare}:"]
        chosen = self.select(flags, self.call(helper, x), usual)
        self.lines += [f"  br label %{after}", f"{after}:"]
        return self.emit(f"phi {reg} [ {usual}, %{before} ], [ {chosen}, %{rare} ]")


def libm(b: Builder | _Body, name: str, dtype: str, args: Sequence[str]) -> str:
    """The C library's function, for each lane."""
    element, lanes, reg = ty.scalar(dtype), dt.lanes(dtype), ty.register(dtype)
    symbol = intrinsics.libm_name(name, dt.bits(dtype))
    b.unit.declare(symbol, element, ", ".join([element] * len(args)), "nounwind willreturn memory(none)")
    if lanes == 1:
        return b.emit(f"call {element} @{symbol}({', '.join(f'{element} {a}' for a in args)})")
    made = "poison"
    for i in range(lanes):
        picked = [b.emit(f"extractelement {reg} {a}, i64 {i}") for a in args]
        lane = b.emit(f"call {element} @{symbol}({', '.join(f'{element} {p}' for p in picked)})")
        made = b.emit(f"insertelement {reg} {made}, {element} {lane}, i64 {i}")
    return made


def _no_less(b: _Body, x: str, low: float) -> str:
    """Return ``x`` clamped to at least ``low``; NaN stays."""
    return b.select(b.compare("olt", x, low), low, x)


def _no_more(b: _Body, x: str, high: float) -> str:
    """Return ``x`` clamped to at most ``high``; NaN stays."""
    return b.select(b.compare("ogt", x, high), high, x)


def _times_power_of_two(b: _Body, y: str, shifted: str, n: str) -> str:
    """Emit ``y * 2**n`` with ``n = shifted - _ROUND``, in two steps, so that tiny results are rounded and not lost."""
    if b.can_scale():
        return b.scale(y, n)
    whole = b.int_op("sub", b.bits(shifted), _ROUND_BITS)
    half = b.int_op("ashr", whole, 1)
    for part in (half, b.int_op("sub", whole, half)):
        y = b.mul(y, b.from_bits(b.int_op("add", b.int_op("shl", part, 23), _ONE_BITS)))
    return y


def _exp(b: _Body, x: str, negative: bool = False) -> str:
    """2**n * exp(r) with x = n * log(2) + r. ``negative``: x never is positive."""
    x = _no_less(b, x, -104.0)
    x = x if negative else _no_more(b, x, 89.0)
    shifted = b.mul_add(x, _LOG2_E, _ROUND)
    n = b.sub(shifted, _ROUND)
    r = b.mul_add(n, -_LN2_LOW, b.mul_add(n, -_LN2_HIGH, x))
    y = b.mul_add(r, b.mul_add(r, b.polynomial(r, _EXP), 1.0), 1.0)
    return _times_power_of_two(b, y, shifted, n)


def _expm1(b: _Body, x: str) -> str:
    """2 * (h * (exp(r) - 1) + (h - 1 / 2)) with h = 2**(n - 1) and x = n * log(2) + r."""
    t = _no_more(b, _no_less(b, x, -18.0), 89.0)
    shifted = b.mul_add(t, _LOG2_E, _ROUND)
    n = b.sub(shifted, _ROUND)
    high, low = b.mul_add(n, -_LN2_HIGH, t), b.mul(n, -_LN2_LOW)
    r = b.add(high, low)
    power = b.int_op("add", b.int_op("shl", b.bits(shifted), 23), _ONE_BITS - (1 << 23))
    h = b.from_bits(power)
    grown = b.mul_add(b.mul(r, r), b.polynomial(r, _EXP), r)
    y = b.mul_add(h, grown, b.sub(h, 0.5))
    # where x is small, h is 1 / 2 and nothing is added; tiny numbers must not lose bits when they are halved
    return b.select(b.compare("oeq", n, 0.0), grown, b.add(y, y))


def _exp2(b: _Body, x: str) -> str:
    """2**n * 2**f with x = n + f."""
    if b.can_scale():
        f = b.fraction(x)
        return b.scale(b.mul_add(f, b.polynomial(f, intrinsics.EXP2_POLYNOMIAL), 1.0), b.sub(x, f))
    x = _no_more(b, _no_less(b, x, -152.0), 129.0)
    shifted = b.add(x, _ROUND)
    n = b.sub(shifted, _ROUND)
    f = b.sub(x, n)
    return _times_power_of_two(b, b.mul_add(f, b.polynomial(f, intrinsics.EXP2_POLYNOMIAL), 1.0), shifted, n)


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


def _log1p(b: _Body, x: str) -> str:
    """Emit e * log(2) + log(1 + f) with 1 + x = 2**e * (1 + f): f is x if e is 0, else rounded once."""
    offset = b.int_op("sub", b.bits(b.add(x, 1.0)), _SQRT_HALF_BITS)
    whole = b.int_op("and", offset, -(1 << 23))
    e = b.to_float(b.int_op("ashr", offset, 23))
    scale = b.from_bits(b.int_op("sub", _ONE_BITS, whole))  # 2**-e
    of_sum = b.sub(b.from_bits(b.int_op("sub", b.int_op("add", offset, _SQRT_HALF_BITS), whole)), 1.0)
    # 1 is nothing beside x from 2**25 on, and 2**-e no float32 from 2**127 on
    f = b.select(b.compare("ogt", x, 33554432.0), of_sum, b.mul_add(x, scale, b.sub(scale, 1.0)))
    square = b.mul(f, f)
    y = b.mul_add(e, _LN2_LOW, b.mul(b.mul(f, square), b.polynomial(f, _LOG)))
    y = b.mul_add(square, -0.5, y)
    y = b.mul_add(e, _LN2_HIGH, b.add(y, f))
    y = b.select(b.compare("oeq", x, float("inf")), x, y)
    y = b.select(b.compare("ult", x, -1.0), float("nan"), y)
    y = b.select(b.compare("oeq", x, 0.0), x, y)
    return b.select(b.compare("oeq", x, -1.0), float("-inf"), y)


def _sigmoid(b: _Body, x: str) -> str:
    """s = e / (1 + e) with e = exp(-|x|), and of it 1 - s for positive x, for others e - e * s.

    Both equal the fraction that is wanted, and have less of the rounding errors of s.
    """
    e = _exp(b, b.sub(-0.0, b.absolute(x)), negative=True)
    s = b.div(e, b.add(1.0, e))
    whole = b.select(b.compare("olt", x, 0.0), e, 1.0)
    return b.sub(whole, b.mul(whole, s))


@cache
def _pieces(function: Callable[[float], float], edges: tuple[float, ...], terms: int) -> Sequence[Sequence[float]]:
    """Return polynomials of ``function`` between ``edges``: their origins, and their coefficients from c0 up.

    Each meets the function in Chebyshev nodes. Its origin lies where c0, which weighs most, is nearly a float32 itself.
    """
    rows = []
    for low, high in pairwise(edges):
        middle, half = (low + high) / 2, (high - low) / 2
        nearby = range(round(middle * _ORIGINS) - _CLOSE, round(middle * _ORIGINS) + _CLOSE + 1)
        values = [(function(i / _ORIGINS), i / _ORIGINS) for i in nearby]
        _, origin = min((abs(float(np.float32(value)) - value), t) for value, t in values)
        nodes = [middle + half * math.cos(math.pi * (k + 0.5) / terms) for k in range(terms)]
        fit = np.polynomial.polynomial.polyfit(np.subtract(nodes, origin), [function(t) for t in nodes], terms - 1)
        rows.append([origin, *fit.tolist()])
    return list(zip(*rows, strict=True))


def _piecewise(b: _Body, t: str, piece: str, pieces: Sequence[Sequence[float]]) -> str:
    """At ``t`` the polynomial that the low bits of ``piece`` choose."""
    origins, *coefficients = [b.lookup(row, piece) for row in pieces]
    return b.polynomial(b.sub(t, origins), coefficients)


def _middle_edges(width: float, end: float) -> tuple[float, ...]:
    """Return edges of pieces, number i being around ``i * width``."""
    return (0.0, *((i - 0.5) * width for i in range(1, _PIECES)), end)


def _tanh(b: _Body, x: str) -> str:
    """A polynomial of |x| between powers of 2 and their quarters, times x."""
    t = _no_more(b, b.absolute(x), _TANH_MOST)
    octaves = b.int_op("lshr", b.bits(b.mul_add(t, _TANH_SCALE, 1.0)), 21)  # the exponent and two bits of the mantissa
    edges = [(2**octave * (1 + quarter / 4) - 1) / _TANH_SCALE for octave in range(4) for quarter in range(4)]
    pieces = _pieces(_tanh_quotient, (*edges, _TANH_MOST), _TANH_TERMS)
    first = (_ONE_BITS >> 21) % _PIECES
    quotient = _piecewise(b, t, octaves, [(*row[-first:], *row[:-first]) for row in pieces])
    return b.copysign(b.mul(t, quotient), x)


def _tanh_quotient(t: float) -> float:
    return math.tanh(t) / t


def _erf(b: _Body, x: str) -> str:
    """A polynomial of |x| around multiples of a width, times x."""
    t = _no_more(b, b.absolute(x), _ERF_MOST)
    nearest = b.bits(b.mul_add(t, 1 / _ERF_WIDTH, _ROUND))
    pieces = _pieces(_erf_quotient, _middle_edges(_ERF_WIDTH, _ERF_MOST), _ERF_TERMS)
    return b.copysign(b.mul(t, _piecewise(b, t, nearest, pieces)), x)


def _erf_quotient(t: float) -> float:
    return math.erf(t) / t


def _normal_tail(b: _Body, x: str) -> str:
    """Evaluate a polynomial around multiples of a width; beyond the last piece but one, below 1e-9, return 0."""
    t = _no_more(b, x, _TAIL_WIDTH * (_PIECES - 1))
    nearest = b.bits(b.mul_add(t, 1 / _TAIL_WIDTH, _ROUND))
    pieces = _pieces(_tail, _middle_edges(_TAIL_WIDTH, _TAIL_WIDTH * _PIECES), _TAIL_TERMS)
    return _piecewise(b, t, nearest, [(*row[:-1], 0.0) for row in pieces])


def _tail(t: float) -> float:
    return math.erfc(t * math.sqrt(0.5)) / 2


def _sine(b: _Body, x: str, cosine: bool) -> str:
    """Emit the sine of r (cosine for odd n), |x| = n * pi / 2 + r, negated by n's second bit.

    The cosine of x is the sine a quarter turn on.
    """
    size = b.absolute(x)
    shifted = b.mul_add(size, 2 / math.pi, _ROUND)
    r = b.less_multiple(size, b.sub(shifted, _ROUND), _HALF_PI, _WIDE_HALF_PI)
    quarter = b.int_op("add", b.bits(shifted), 1) if cosine else b.bits(shifted)
    odd = b.emit(f"trunc {ty.register(b.integers)} {quarter} to {ty.register(b.flags)}")
    square = b.mul(r, r)
    sine = b.mul_add(b.mul(r, square), b.polynomial(square, _SIN), r)
    cosine_of_r = b.mul_add(b.mul(square, square), b.polynomial(square, _COS), b.mul_add(square, -0.5, 1.0))
    sign = b.int_op("shl", b.int_op("lshr", quarter, 1), 31)
    y = b.from_bits(b.int_op("xor", b.bits(b.select(odd, cosine_of_r, sine)), sign))
    y = b.rarely(b.compare("ogt", size, _SINE_LIMIT), "libm_cos" if cosine else "libm_sin", size, y)
    return y if cosine else b.from_bits(b.int_op("xor", b.bits(y), b.int_op("and", b.bits(x), _SIGN_BIT)))


def _sin(b: _Body, x: str) -> str:
    return _sine(b, x, cosine=False)


def _cos(b: _Body, x: str) -> str:
    return _sine(b, x, cosine=True)


FUNCTIONS: dict[str, Callable[[_Body, str], str]] = {
    "exp": _exp,
    "expm1": _expm1,
    "exp2": _exp2,
    "log": _log,
    "log1p": _log1p,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _erf,
    "normal_tail": _normal_tail,
    "sin": _sin,
    "cos": _cos,
}
# what FUNCTIONS call in a branch that is hardly taken
_RARE: dict[str, Callable[[_Body, str], str]] = {
    f"libm_{name}": partial(lambda name, b, x: libm(b, name, b.dtype, [x]), name) for name in ("sin", "cos")
}


def define(unit: Unit, name: str, dtype: str) -> str:
    """The helper that computes ``name`` on float32 vectors of ``dtype``; defined in ``unit`` at first use."""
    attributes = "noinline cold" if name in _RARE else "alwaysinline"
    symbol = f".tw.{name}.{overload(dtype)}"
    if symbol not in unit.definitions:
        unit.definitions[symbol] = ""
        body, reg = _Body(unit, dt.lanes(dtype)), ty.register(dtype)
        result = (_RARE.get(name) or FUNCTIONS[name])(body, "%x")
        lines = "\n".join(body.lines)
        unit.definitions[symbol] = (
            f"define internal {reg} @{symbol}({reg} %x) {attributes} nounwind {{\n{lines}\n  ret {reg} {result}\n}}"
        )
    return symbol
