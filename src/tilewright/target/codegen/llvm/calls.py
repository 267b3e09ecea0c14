"""Intrinsic calls: arithmetic helpers, conditionals, structs of the C API, external and packed functions."""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError
from tilewright.target.codegen.common.emitter import is_likely
from tilewright.target.codegen.common.index import as_ramp
from tilewright.target.codegen.llvm import math as polynomials
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.builder import LIKELY
from tilewright.target.codegen.llvm.expr import overload
from tilewright.target.codegen.llvm.memory import MemoryEmitter
from tilewright.tir.expr import (
    Call,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Load,
    Mod,
    PrimExpr,
    StringImm,
)  # fmt: skip

_LLVM_UNARY = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "round",
    "nearbyint": "nearbyint",
    "fabs": "fabs",
}


class CallEmitter(MemoryEmitter):
    """Adds calls to expressions."""

    # ---- floating-point mathematics ----
    def float_math(self, e: Call) -> str:
        """A mathematical function: by polynomial, LLVM intrinsic, or libm lane by lane; the half types in float32."""
        name, info = e.op.name.removeprefix("tir."), dt.parse(e.dtype)
        args = [self.value(a) for a in e.args]
        exact = name in _LLVM_UNARY
        if info.kind == "bfloat" or (info.kind == "float" and info.bits == 16 and not exact):
            wide = dt.make("float", 32, info.lanes)
            widened = [self.cast(v, a.dtype, wide) for v, a in zip(args, e.args, strict=True)]
            return self.cast(self._math(name, wide, widened), wide, e.dtype)
        return self._math(name, e.dtype, args)

    def _math(self, name: str, dtype: str, args: list[str]) -> str:
        reg = ty.register(dtype)
        if name in _LLVM_UNARY:
            return self._llvm_intrinsic(f"llvm.{_LLVM_UNARY[name]}", dtype, args)
        if name == "rsqrt":
            root = self._llvm_intrinsic("llvm.sqrt", dtype, args)
            return self.emit(f"fdiv {reg} {self.literal(dtype, 1.0)}, {root}")
        if name == "fma":
            fused = "fma" if self.unit.features.has_fma else "fmuladd"
            return self._llvm_intrinsic(f"llvm.{fused}", dtype, args)
        if name == "copysign":
            return self._llvm_intrinsic("llvm.copysign", dtype, args)
        if name == "sigmoid" and dt.bits(dtype) == 64:
            minus = self.emit(f"fneg {reg} {args[0]}")
            grown = self.emit(f"fadd {reg} {self._math('exp', dtype, [minus])}, {self.literal(dtype, 1.0)}")
            return self.emit(f"fdiv {reg} {self.literal(dtype, 1.0)}, {grown}")
        if name == "normal_tail" and dt.bits(dtype) == 64:
            scaled = self.emit(f"fmul {reg} {args[0]}, {self.literal(dtype, math.sqrt(0.5))}")
            return self.emit(
                f"fmul {reg} {polynomials.libm(self, 'erfc', dtype, [scaled])}, {self.literal(dtype, 0.5)}"
            )
        if dt.bits(dtype) == 32 and name in polynomials.FUNCTIONS:
            helper = polynomials.define(self.unit, name, dtype)
            return self.emit(f"call {reg} @{helper}({reg} {args[0]})")
        return polynomials.libm(self, name, dtype, args)

    def _llvm_intrinsic(self, base: str, dtype: str, args: list[str]) -> str:
        reg, name = ty.register(dtype), f"{base}.{overload(dtype)}"
        self.unit.declare(name, reg, ", ".join([reg] * len(args)))
        return self.emit(f"call {reg} @{name}({', '.join(f'{reg} {a}' for a in args)})")

    def _call_ldexp(self, e: Call) -> str:
        x, dtype = self.value(e.args[0]), e.dtype
        power = self.cast(self.value(e.args[1]), e.args[1].dtype, dtype)
        scale = polynomials.libm(self, "exp2", dtype, [power])
        return self.emit(f"fmul {ty.register(dtype)} {x}, {scale}")

    def _call_isnan(self, e: Call) -> str:
        """isnan, isinf, isfinite."""
        x, dtype = self.value(e.args[0]), e.args[0].dtype
        if ty.is_bfloat(dtype):
            wide = dt.with_lanes("float32", dt.lanes(dtype))
            x, dtype = self.cast(x, dtype, wide), wide
        reg = ty.register(dtype)
        if e.op.name == "tir.isnan":
            return self.emit(f"fcmp uno {reg} {x}, {x}")
        size = self._llvm_intrinsic("llvm.fabs", dtype, [x])
        test = "oeq" if e.op.name == "tir.isinf" else "one"
        return self.emit(f"fcmp {test} {reg} {size}, {self.literal(dtype, float('inf'))}")

    _call_isinf = _call_isnan
    _call_isfinite = _call_isnan

    # ---- bits ----
    def _call_bitwise_and(self, e: Call) -> str:
        op = {"tir.bitwise_and": "and", "tir.bitwise_or": "or", "tir.bitwise_xor": "xor", "tir.shift_left": "shl"}.get(
            e.op.name
        )
        if op is None:
            op = "ashr" if dt.is_signed(e.dtype) else "lshr"
        return self.emit(f"{op} {ty.register(e.dtype)} {self.value(e.args[0])}, {self.value(e.args[1])}")

    _call_bitwise_or = _call_bitwise_and
    _call_bitwise_xor = _call_bitwise_and
    _call_shift_left = _call_bitwise_and
    _call_shift_right = _call_bitwise_and

    def _call_bitwise_not(self, e: Call) -> str:
        ones = "true" if dt.is_bool(e.dtype) else "-1"
        operand = ones if dt.lanes(e.dtype) == 1 else ty.splat_literal(e.dtype, ones)
        return self.emit(f"xor {ty.register(e.dtype)} {self.value(e.args[0])}, {operand}")

    def _call_popcount(self, e: Call) -> str:
        return self._llvm_intrinsic("llvm.ctpop", e.dtype, [self.value(e.args[0])])

    def _call_clz(self, e: Call) -> str:
        dtype = e.args[0].dtype
        reg, name = ty.register(dtype), f"llvm.ctlz.{overload(dtype)}"
        self.unit.declare(name, reg, f"{reg}, i1")
        count = self.emit(f"call {reg} @{name}({reg} {self.value(e.args[0])}, i1 true)")
        return self.cast(count, dt.with_lanes(f"uint{dt.bits(dtype)}", dt.lanes(dtype)), e.dtype)

    def _call_reinterpret(self, e: Call) -> str:
        (arg,) = e.args
        return self.emit(f"bitcast {self.typed(arg)} to {ty.register(e.dtype)}")

    def _call_byte_index(self, e: Call) -> str:
        (arg,) = e.args
        return self.cast(self.value(arg), arg.dtype, e.dtype)

    def _call_vectorlow(self, e: Call) -> str:
        """vectorlow, vectorhigh: half of the lanes."""
        (arg,) = e.args
        half, reg = dt.lanes(e.dtype), ty.register(arg.dtype)
        first = half if e.op.name == "tir.vectorhigh" else 0
        mask = ", ".join(f"i32 {first + i}" for i in range(half))
        return self.emit(f"shufflevector {reg} {self.value(arg)}, {reg} poison, <{half} x i32> <{mask}>")

    _call_vectorhigh = _call_vectorlow

    def _call_vectorcombine(self, e: Call) -> str:
        """Two vectors, one after the other."""
        a, b = e.args
        reg, count = ty.register(a.dtype), dt.lanes(e.dtype)
        mask = ", ".join(f"i32 {i}" for i in range(count))
        return self.emit(f"shufflevector {reg} {self.value(a)}, {reg} {self.value(b)}, <{count} x i32> <{mask}>")

    def _call_large_uint_imm(self, e: Call) -> str:
        low, high = (int(a) for a in e.args[:2])  # type: ignore[call-overload]
        return str(high << 32 | low)

    def _call_q_multiply_shift(self, e: Call) -> str:
        """Emit (x * y + rounding) >> (q - s), in 64 bits."""
        x, y, q, s = e.args
        wide = dt.with_lanes("int64", dt.lanes(e.dtype))
        reg = ty.register(wide)
        product = self.emit(
            f"mul {reg} {self.cast(self.value(x), x.dtype, wide)}, {self.cast(self._spread(y, e), e.dtype, wide)}"
        )
        q_wide, s_wide = (self.cast(self._spread(v, e), e.dtype, wide) for v in (q, s))
        one = self.literal(wide, 1)
        shift = self.emit(f"sub {reg} {q_wide}, {s_wide}")
        below = self.emit(f"sub {reg} {shift}, {one}")
        rounded = self.emit(f"add {reg} {product}, {self.emit(f'shl {reg} {one}, {below}')}")
        return self.cast(self.emit(f"ashr {reg} {rounded}, {shift}"), wide, e.dtype)

    def _spread(self, arg: PrimExpr, e: Call) -> str:
        value = self.value(arg)
        return self.splat(e.dtype, value) if dt.lanes(arg.dtype) < dt.lanes(e.dtype) else value

    # ---- control ----
    def _call_likely(self, e: Call) -> str:
        return self.value(e.args[0])

    def _call_if_then_else(self, e: Call) -> str:
        """Evaluates only the chosen value, unless both are cheap. A chain of else-ifs becomes blocks in a row."""
        if _is_cheap(e.args[1]) and _is_cheap(e.args[2]):
            flag, yes_value, no_value = (self.typed(a) for a in e.args)
            return self.emit(f"select {flag}, {yes_value}, {no_value}")
        reg, done = ty.register(e.dtype), self.new_label("chosen")
        incoming: list[str] = []
        rest: PrimExpr = e
        marks = []
        while isinstance(rest, Call) and rest.op.name == "tir.if_then_else":
            condition, chosen, other = rest.args
            yes, no = self.new_label("yes"), self.new_label("no")
            self.branch(self.value(condition), yes, no, LIKELY if is_likely(condition) else "")
            self.start(yes)
            mark = self.enter_scope()
            incoming.append(f"[ {self.value(chosen)}, %{self.block} ]")
            self.leave_scope(mark)
            self.jump(done)
            self.start(no)
            marks.append(self.enter_scope())
            rest = other
        incoming.append(f"[ {self.value(rest)}, %{self.block} ]")
        for mark in reversed(marks):
            self.leave_scope(mark)
        self.jump(done)
        self.start(done)
        return self.emit(f"phi {reg} {', '.join(incoming)}")

    def _call_isnullptr(self, e: Call) -> str:
        return self.emit(f"icmp eq ptr {self.value(e.args[0])}, null")

    _call_tvm_handle_is_null = _call_isnullptr

    # ---- addresses ----
    def _call_address_of(self, e: Call) -> str:
        load = e.args[0]
        assert isinstance(load, Load)
        index = load.index
        ramp = as_ramp(index) if dt.lanes(index.dtype) > 1 else None
        base = ramp[0] if ramp is not None else index
        return self.element_address(self.value(load.buffer_var), load.dtype, base)

    def _call_tvm_access_ptr(self, e: Call) -> str:
        kind, data, offset = e.args[:3]
        return self.element_address(self.value(data), dt.element(kind.dtype), offset)

    def _call_prefetch(self, e: Call) -> str:
        address = e.args[0]
        numbers = [int(a) for a in e.args[1:4]]  # type: ignore[call-overload]
        write, locality, kind = (*numbers, 0, 3, 1)[:3] if len(numbers) == 3 else (0, 3, 1)
        self.unit.declare("llvm.prefetch.p0", "void", "ptr, i32 immarg, i32 immarg, i32 immarg")
        where = self._call_address_of(e) if isinstance(address, Load) else self.value(address)
        self.do(f"call void @llvm.prefetch.p0(ptr {where}, i32 {write}, i32 {locality}, i32 {kind})")
        return "0"

    # ---- functions ----
    def _call_call_extern(self, e: Call) -> str:
        name = e.args[0]
        assert isinstance(name, StringImm)
        return self._direct_call(e, name.value, e.args[1:])

    _call_call_pure_extern = _call_call_extern

    def _direct_call(self, e: Call, symbol: str, args: tuple[PrimExpr, ...]) -> str:
        result = "void" if dt.parse(e.dtype).kind == "void" else ty.register(e.dtype)
        if e.op.get_attr("TCallEffectKind", "opaque") != "pure":
            self._reads += 1  # another such call may give another result
        typed = [self._argument(symbol, a) for a in args]
        self.unit.declare(symbol, result, ", ".join(kind for kind, _ in typed))
        call = f"call {result} @{symbol}({', '.join(f'{kind} {value}' for kind, value in typed)})"
        if result == "void":
            self.do(call)
            return "0"
        return self.emit(call)

    def _argument(self, symbol: str, arg: PrimExpr) -> tuple[str, str]:
        """Return the type and value of an argument; words stand for the pairs of bfloat16 that an intrinsic takes."""
        kind, value = ty.register(arg.dtype), self.value(arg)
        if symbol not in _TAKES_BFLOATS or not dt.is_int(arg.dtype):
            return kind, value
        pairs = f"<{dt.lanes(arg.dtype) * dt.bits(arg.dtype) // 16} x bfloat>"
        return pairs, self.emit(f"bitcast {kind} {value} to {pairs}")

    def _call_call_llvm_intrin(self, e: Call) -> str:
        """Emit ``call_llvm_intrin(name, [signature count,] args...)``."""
        name = e.args[0]
        if not isinstance(name, StringImm):
            raise TilewrightError(f"{self.name}: call_llvm_intrin takes the intrinsic's name, such as 'llvm.sqrt'")
        args = e.args[1:]
        if args and isinstance(args[0], IntImm) and args[0].dtype == "uint32":
            args = args[1:]
        symbol = name.value
        is_overloaded = symbol.startswith("llvm.") and "." not in symbol.split(".", 2)[-1] and symbol.count(".") == 1
        if is_overloaded and args and dt.parse(args[0].dtype).kind in ("float", "int", "uint"):
            symbol = f"{symbol}.{overload(args[0].dtype)}"
        return self._direct_call(e, symbol, args)

    _call_call_llvm_pure_intrin = _call_call_llvm_intrin

    def _call_atomic_add(self, e: Call) -> str:
        """Emit ``atomic_add(address, value)``; return the previous value."""
        address, value = self.value(e.args[0]), self.value(e.args[1])
        self._reads += 1
        what = "fadd" if dt.is_float(e.dtype) else "add"
        return self.emit(f"atomicrmw {what} ptr {address}, {ty.register(e.dtype)} {value} monotonic")


_TAKES_BFLOATS = frozenset(f"llvm.x86.avx512bf16.dpbf16ps.{bits}" for bits in (128, 256, 512))
_CHEAP_NODES = 12


def _is_cheap(e: PrimExpr) -> bool:
    """Return whether ``e`` may be evaluated in vain: no memory, no call, no division, a few operations."""
    stack: list[Any] = [e]
    for _ in range(_CHEAP_NODES):
        if not stack:
            return True
        node = stack.pop()
        if isinstance(node, (Load, Call, Let, Div, Mod, FloorDiv, FloorMod)):
            return False
        for _, child in node.field_values():
            stack += [c for c in (child if isinstance(child, tuple) else (child,)) if isinstance(c, PrimExpr)]
    return not stack
