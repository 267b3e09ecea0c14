"""Functions of mathematics in kernels: instructions, the polynomials of ``codegen/llvm/math.py``, or float64's."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_ops import const
from tilewright.target.codegen.llvm import math as polynomials
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.statements import StatementEmitter
from tilewright.target.codegen.nvptx import float64, reduction
from tilewright.tir import op as T
from tilewright.tir.expr import Call, Cast, PrimExpr, Select, Var

_INSTRUCTIONS = ("sqrt", "floor", "ceil", "trunc", "round", "nearbyint", "fabs", "fma", "copysign")


def _nextafter(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """The bits of x, one more or less."""
    dtype = x.dtype
    whole = f"int{dt.bits(dtype)}"
    zero, one = const(0, whole), const(1, whole)
    bits = T.reinterpret(whole, x)
    away = ops.equal(x < y, bits >= zero)  # from 0
    moved = T.reinterpret(dtype, Select(away, bits + one, bits - one))
    smallest = Call(dtype, "tir.copysign", (T.reinterpret(dtype, one), y))
    result = Select(ops.equal(x, const(0.0, dtype)), smallest, moved)
    result = Select(ops.equal(x, y), y, result)
    return Select(ops.logical_and(ops.equal(x, x), ops.equal(y, y)), result, x + y)


class MathEmitter(StatementEmitter):
    """Emits mathematical functions without a library."""

    def _math(self, name: str, dtype: str, args: list[str]) -> str:
        lanes, element = dt.lanes(dtype), dt.element(dtype)
        if name == "rsqrt" and element == "float32" and lanes == 1:
            self.unit.declare("llvm.nvvm.rsqrt.approx.f", "float", "float")
            return self.emit(f"call float @llvm.nvvm.rsqrt.approx.f(float {args[0]})")  # within 2 units
        if name in _INSTRUCTIONS or name == "rsqrt":
            return super()._math(name, dtype, args)
        if lanes > 1:
            return self._lane_by_lane(name, dtype, args)
        if element == "float32" and name in polynomials.FUNCTIONS:
            if name in ("sin", "cos"):
                self._define_large_angle(name)
            return super()._math(name, dtype, args)
        if element == "float32" and name != "nextafter":
            wide = [self.cast(a, "float32", "float64") for a in args]
            return self.cast(self._of_float64(name, wide), "float64", "float32")
        return self._of_float64(name, args) if name != "nextafter" else self._call_helper(name, dtype, _nextafter, args)

    def _lane_by_lane(self, name: str, dtype: str, args: list[str]) -> str:
        reg, element, made = ty.register(dtype), dt.element(dtype), "poison"
        for i in range(dt.lanes(dtype)):
            lane = [self.emit(f"extractelement {reg} {a}, i64 {i}") for a in args]
            made = self.emit(
                f"insertelement {reg} {made}, {ty.scalar(dtype)} {self._math(name, element, lane)}, i64 {i}"
            )
        return made

    def _of_float64(self, name: str, args: list[str]) -> str:
        if name in float64.OF_ANGLES:
            return self._of_angle(name, args[0])
        return self._call_helper(name, "float64", float64.FUNCTIONS[name], args)

    def _of_angle(self, name: str, angle: str) -> str:
        result = reduction.RESULT
        reduced = self.emit(f"call {result} @{reduction.define(self.unit)}(double {angle})")
        rest, quarter = (self.emit(f"extractvalue {result} {reduced}, {i}") for i in (0, 1))
        return self._call_helper(name, "float64", float64.OF_ANGLES[name], [rest, quarter], ("float64", "int32"))

    def _call_helper(
        self, name: str, dtype: str, function: Callable[..., PrimExpr], args: list[str], dtypes: tuple[str, ...] = ()
    ) -> str:
        """Call the function that computes an expression, which is defined at first use."""
        dtypes, reg = dtypes or (dtype,) * len(args), ty.register(dtype)
        symbol = f".tw.{name}.f{dt.bits(dtype)}"
        if symbol not in self.unit.definitions:
            self._define(symbol, dtype, function, dtypes)
        typed = ", ".join(f"{ty.register(d)} {a}" for d, a in zip(dtypes, args, strict=True))
        return self.emit(f"call {reg} @{symbol}({typed})")

    def _define(self, symbol: str, dtype: str, function: Callable[..., PrimExpr], dtypes: tuple[str, ...]) -> None:
        self.unit.definitions[symbol] = ""  # its place, before those that it calls
        body = type(self)(self.unit)
        body.float_flags = ""  # what an operation rounds, the next may need
        variables = [Var(f"x{i}", d) for i, d in enumerate(dtypes)]
        for i, var in enumerate(variables):
            body.define(var, f"%x{i}")
        result, reg = body.value(function(*variables)), ty.register(dtype)
        params = ", ".join(f"{ty.register(d)} %x{i}" for i, d in enumerate(dtypes))
        self.unit.definitions[symbol] = (
            f"define internal {reg} @{symbol}({params}) alwaysinline nounwind {{\n{body.body_text()}\n"
            f"  ret {reg} {result}\n}}"
        )

    def _define_large_angle(self, name: str) -> None:
        """Define the float32 function beyond its polynomial's range, by that of float64."""
        symbol = f".tw.libm_{name}.f32"
        if symbol in self.unit.definitions:
            return
        self.unit.definitions[symbol] = ""
        body = type(self)(self.unit)
        wide = body.cast("%x", "float32", "float64")
        result = body.cast(body._of_angle(name, wide), "float64", "float32")
        self.unit.definitions[symbol] = (
            f"define internal float @{symbol}(float %x) noinline cold nounwind {{\n{body.body_text()}\n"
            f"  ret float {result}\n}}"
        )

    def _call_ldexp(self, e: Call) -> str:
        x, power = e.args
        dtype = "float64" if e.dtype == "float64" else "float32"
        wide = self.cast(self.cast(self.value(x), x.dtype, dtype), dtype, "float64")
        exponent = self.cast(self.value(power), power.dtype, "float64")
        scaled = self._call_helper("ldexp", "float64", _ldexp, [wide, exponent])
        return self.cast(self.cast(scaled, "float64", dtype), dtype, e.dtype)


def _ldexp(x: PrimExpr, n: PrimExpr) -> PrimExpr:
    """x * 2**n in three steps, each with a power that float64 has."""
    most = const(2000.0, "float64")
    bounded = Select(n > most, most, Select(n < const(0.0, "float64") - most, const(0.0, "float64") - most, n))
    whole = Cast("int64", bounded)
    third = ops.truncdiv(whole, const(3, "int64"))
    result = x
    for part in (third, third, whole - third - third):
        result = result * T.reinterpret("float64", ops.shift_left(part + const(1023, "int64"), const(52, "int64")))
    return result
