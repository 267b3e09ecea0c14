"""Intrinsic calls: arithmetic helpers, conditionals, structs of the C API, external and packed functions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError
from tilewright.target import intrinsics
from tilewright.target.codegen.llvm import math as polynomials
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.builder import LIKELY, UNLIKELY
from tilewright.target.codegen.llvm.expr import overload
from tilewright.target.codegen.llvm.memory import MemoryEmitter, as_ramp
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

# The C API's structs; offsets follow from the target's data layout.
TENSOR = "{ ptr, { i32, i32 }, i32, { i8, i8, i16 }, ptr, ptr, i64 }"

# TVMStructFieldKind
ARRAY_ADDRESS, ARRAY_DATA, ARRAY_SHAPE, ARRAY_STRIDES, ARRAY_NDIM, ARRAY_TYPE_CODE, ARRAY_TYPE_BITS = range(7)
ARRAY_TYPE_LANES, ARRAY_BYTE_OFFSET, ARRAY_DEVICE_ID, ARRAY_DEVICE_TYPE, _, VALUE_CONTENT = range(7, 13)

_FIELD_PATHS: dict[int, tuple[str, str]] = {
    ARRAY_DATA: ("i32 0", "ptr"),
    ARRAY_DEVICE_TYPE: ("i32 1, i32 0", "i32"),
    ARRAY_DEVICE_ID: ("i32 1, i32 1", "i32"),
    ARRAY_NDIM: ("i32 2", "i32"),
    ARRAY_TYPE_CODE: ("i32 3, i32 0", "i8"),
    ARRAY_TYPE_BITS: ("i32 3, i32 1", "i8"),
    ARRAY_TYPE_LANES: ("i32 3, i32 2", "i16"),
    ARRAY_SHAPE: ("i32 4", "ptr"),
    ARRAY_STRIDES: ("i32 5", "ptr"),
    ARRAY_BYTE_OFFSET: ("i32 6", "i64"),
}
_FIELD_DTYPES = {"ptr": "handle", "i8": "uint8", "i16": "uint16", "i32": "int32", "i64": "uint64"}

_LLVM_UNARY = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "round",
    "nearbyint": "nearbyint",
    "fabs": "fabs",
}


class CallEmitter(MemoryEmitter, ABC):
    """Adds calls to expressions."""

    _calls: ClassVar[dict[str, Callable[[CallEmitter, Call], str]]] = {}

    @abstractmethod
    def fail(self) -> None:
        """Leave the function with -1; the message is set already. The current block ends here."""

    def _call(self, e: Call) -> str:
        name = e.op.name if hasattr(e.op, "name") else str(e.op)
        method = self._calls.get(name)
        if method is not None:
            return method(self, e)
        short = name.removeprefix("tir.")
        if short in intrinsics.FLOAT_MATH:
            return self._float_math(e, short)
        raise TilewrightError(f"{self.unit.name}: LLVM code generation has no rule for the intrinsic {name}")

    # ---- floating-point mathematics ----
    def _float_math(self, e: Call, name: str) -> str:
        """A mathematical function: by polynomial, LLVM intrinsic, or libm lane by lane; the half types in float32."""
        info = dt.parse(e.dtype)
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

    def _ldexp(self, e: Call) -> str:
        x, dtype = self.value(e.args[0]), e.dtype
        power = self.cast(self.value(e.args[1]), e.args[1].dtype, dtype)
        scale = polynomials.libm(self, "exp2", dtype, [power])
        return self.emit(f"fmul {ty.register(dtype)} {x}, {scale}")

    def _classify(self, e: Call) -> str:
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

    # ---- bits ----
    def _bitwise(self, e: Call) -> str:
        op = {"tir.bitwise_and": "and", "tir.bitwise_or": "or", "tir.bitwise_xor": "xor", "tir.shift_left": "shl"}.get(
            e.op.name
        )
        if op is None:
            op = "ashr" if dt.is_signed(e.dtype) else "lshr"
        return self.emit(f"{op} {ty.register(e.dtype)} {self.value(e.args[0])}, {self.value(e.args[1])}")

    def _bitwise_not(self, e: Call) -> str:
        ones = "true" if dt.is_bool(e.dtype) else "-1"
        operand = ones if dt.lanes(e.dtype) == 1 else ty.splat_literal(e.dtype, ones)
        return self.emit(f"xor {ty.register(e.dtype)} {self.value(e.args[0])}, {operand}")

    def _popcount(self, e: Call) -> str:
        return self._llvm_intrinsic("llvm.ctpop", e.dtype, [self.value(e.args[0])])

    def _clz(self, e: Call) -> str:
        dtype = e.args[0].dtype
        reg, name = ty.register(dtype), f"llvm.ctlz.{overload(dtype)}"
        self.unit.declare(name, reg, f"{reg}, i1")
        count = self.emit(f"call {reg} @{name}({reg} {self.value(e.args[0])}, i1 true)")
        return self.cast(count, dt.with_lanes(f"uint{dt.bits(dtype)}", dt.lanes(dtype)), e.dtype)

    def _reinterpret(self, e: Call) -> str:
        (arg,) = e.args
        return self.emit(f"bitcast {self.typed(arg)} to {ty.register(e.dtype)}")

    def _vector_half(self, e: Call) -> str:
        """vectorlow, vectorhigh: half of the lanes."""
        (arg,) = e.args
        half, reg = dt.lanes(e.dtype), ty.register(arg.dtype)
        first = half if e.op.name == "tir.vectorhigh" else 0
        mask = ", ".join(f"i32 {first + i}" for i in range(half))
        return self.emit(f"shufflevector {reg} {self.value(arg)}, {reg} poison, <{half} x i32> <{mask}>")

    def _vector_combine(self, e: Call) -> str:
        """Two vectors, one after the other."""
        a, b = e.args
        reg, count = ty.register(a.dtype), dt.lanes(e.dtype)
        mask = ", ".join(f"i32 {i}" for i in range(count))
        return self.emit(f"shufflevector {reg} {self.value(a)}, {reg} {self.value(b)}, <{count} x i32> <{mask}>")

    def _large_uint(self, e: Call) -> str:
        low, high = (int(a) for a in e.args[:2])  # type: ignore[call-overload]
        return str(high << 32 | low)

    def _q_multiply_shift(self, e: Call) -> str:
        """(x * y + rounding) >> (q - s), in 64 bits."""
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
    def _likely(self, e: Call) -> str:
        return self.value(e.args[0])

    def _if_then_else(self, e: Call) -> str:
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

    def _isnullptr(self, e: Call) -> str:
        return self.emit(f"icmp eq ptr {self.value(e.args[0])}, null")

    # ---- addresses ----
    def _address_of(self, e: Call) -> str:
        load = e.args[0]
        assert isinstance(load, Load)
        index = load.index
        ramp = as_ramp(index) if dt.lanes(index.dtype) > 1 else None
        base = ramp[0] if ramp is not None else index
        return self.element_address(self.value(load.buffer_var), load.dtype, base)

    def _access_ptr(self, e: Call) -> str:
        kind, data, offset = e.args[:3]
        return self.element_address(self.value(data), dt.element(kind.dtype), offset)

    def _prefetch(self, e: Call) -> str:
        address = e.args[0]
        numbers = [int(a) for a in e.args[1:4]]  # type: ignore[call-overload]
        write, locality, kind = (*numbers, 0, 3, 1)[:3] if len(numbers) == 3 else (0, 3, 1)
        self.unit.declare("llvm.prefetch.p0", "void", "ptr, i32 immarg, i32 immarg, i32 immarg")
        where = self._address_of(e) if isinstance(address, Load) else self.value(address)
        self.do(f"call void @llvm.prefetch.p0(ptr {where}, i32 {write}, i32 {locality}, i32 {kind})")
        return "0"

    # ---- structs of the C API ----
    def _field_address(self, struct: PrimExpr, index: PrimExpr, kind: int) -> str:
        base, at = self.value(struct), self.value(index)
        if kind == VALUE_CONTENT:
            return (
                self.emit(f"getelementptr inbounds i64, ptr {base}, {ty.scalar(index.dtype)} {at}")
                if at != "0"
                else base
            )
        path, _ = _FIELD_PATHS[kind]
        return self.emit(f"getelementptr inbounds {TENSOR}, ptr {base}, {ty.scalar(index.dtype)} {at}, {path}")

    def _struct_get(self, e: Call) -> str:
        self._reads += 1
        kind = int(e.args[2])  # type: ignore[call-overload]
        if kind == ARRAY_ADDRESS:
            base, at = self.value(e.args[0]), self.typed(e.args[1])
            return self.emit(f"getelementptr inbounds {TENSOR}, ptr {base}, {at}")
        where = self._field_address(e.args[0], e.args[1], kind)
        if kind == VALUE_CONTENT:
            stored = _value_dtype(e.dtype)
            loaded = self.emit(f"load {ty.scalar(stored)}, ptr {where}, align 8")
            return self.cast(loaded, stored, e.dtype)
        _, type_text = _FIELD_PATHS[kind]
        loaded = self.emit(f"load {type_text}, ptr {where}")
        return self.cast(loaded, _FIELD_DTYPES[type_text], e.dtype)

    def _struct_set(self, e: Call) -> str:
        struct, index, kind_expr, value = e.args
        kind = int(kind_expr)  # type: ignore[call-overload]
        where = self._field_address(struct, index, kind)
        if kind == VALUE_CONTENT:
            stored = _value_dtype(value.dtype)
        else:
            stored = _FIELD_DTYPES[_FIELD_PATHS[kind][1]]
        if stored == "handle" and isinstance(value, IntImm) and value.value == 0:
            text = "null"
        else:
            text = self.cast(self.value(value), value.dtype, stored)
        self.do(f"store {ty.scalar(stored)} {text}, ptr {where}")
        return "0"

    def _stack_alloca(self, e: Call) -> str:
        kind, count = e.args[0], int(e.args[1])  # type: ignore[call-overload]
        assert isinstance(kind, StringImm)
        type_text = {"shape": "i64", "arg_value": "i64", "arg_tcode": "i32", "array": TENSOR}[kind.value]
        return self.stack(type_text, 16, max(count, 1))

    # ---- functions ----
    def _extern(self, e: Call) -> str:
        name = e.args[0]
        assert isinstance(name, StringImm)
        return self._direct_call(e, name.value, e.args[1:])

    def _direct_call(self, e: Call, symbol: str, args: tuple[PrimExpr, ...]) -> str:
        result = "void" if dt.parse(e.dtype).kind == "void" else ty.register(e.dtype)
        typed = [self.typed(a) for a in args]
        self.unit.declare(symbol, result, ", ".join(ty.register(a.dtype) for a in args))
        call = f"call {result} @{symbol}({', '.join(typed)})"
        if result == "void":
            self.do(call)
            return "0"
        return self.emit(call)

    def _llvm_call(self, e: Call) -> str:
        """``call_llvm_intrin(name, [signature count,] args...)``."""
        name = e.args[0]
        if not isinstance(name, StringImm):
            raise TilewrightError(f"{self.unit.name}: call_llvm_intrin takes the intrinsic's name, such as 'llvm.sqrt'")
        args = e.args[1:]
        if args and isinstance(args[0], IntImm) and args[0].dtype == "uint32":
            args = args[1:]
        symbol = name.value
        is_overloaded = symbol.startswith("llvm.") and "." not in symbol.split(".", 2)[-1] and symbol.count(".") == 1
        if is_overloaded and args and dt.parse(args[0].dtype).kind in ("float", "int", "uint"):
            symbol = f"{symbol}.{overload(args[0].dtype)}"
        return self._direct_call(e, symbol, args)

    def runtime_call(self, name: str, result: str, args: str) -> str:
        """Call the runtime's function ``name`` through its pointer variable."""
        pointer = self.emit(f"load ptr, ptr {self.unit.runtime_pointer(name)}, align 8")
        if result == "void":
            self.do(f"call void {pointer}({args})")
            return "0"
        return self.emit(f"call {result} {pointer}({args})")

    def check_zero(self, code: str) -> None:
        """Leave the function with -1 when ``code`` is not zero."""
        failed, passed = self.new_label("fail"), self.new_label("ok")
        bad = self.emit(f"icmp ne i32 {code}, 0")
        self.branch(bad, failed, passed, UNLIKELY)
        self.start(failed)
        self.fail()
        self.start(passed)

    def _alloc_workspace(self, e: Call) -> str:
        device_type, device_id, size, code, bits = (self.value(a) for a in e.args)
        wide = self.cast(size, e.args[2].dtype, "uint64")
        args = f"i32 {device_type}, i32 {device_id}, i64 {wide}, i32 {code}, i32 {bits}"
        pointer = self.emit(f"load ptr, ptr {self.unit.runtime_pointer('TVMBackendAllocWorkspace')}, align 8")
        return self.emit(f"call noalias ptr {pointer}({args})")

    def _free_workspace(self, e: Call) -> str:
        device_type, device_id, data = (self.value(a) for a in e.args)
        return self.runtime_call("TVMBackendFreeWorkspace", "i32", f"i32 {device_type}, i32 {device_id}, ptr {data}")

    def _throw_last_error(self, e: Call) -> str:
        self.fail()
        self.start(self.new_label("dead"))
        return "0"

    def _packed_lowered(self, e: Call) -> str:
        """``(name, value stack, code stack, begin, end)``: TVMFuncCall of a function found by name, once."""
        name, values, codes, begin, end = e.args
        assert isinstance(name, StringImm) and isinstance(begin, IntImm) and isinstance(end, IntImm)
        handle = self._function_handle(name.value)
        where = self.emit(f"getelementptr inbounds i64, ptr {self.value(values)}, i64 {begin.value}")
        code = self.emit(f"getelementptr inbounds i32, ptr {self.value(codes)}, i64 {begin.value}")
        result, result_code = self.stack("i64", 8), self.stack("i32", 4)
        count = end.value - begin.value
        args = f"ptr {handle}, ptr {where}, ptr {code}, i32 {count}, ptr {result}, ptr {result_code}"
        self.check_zero(self.runtime_call("TVMFuncCall", "i32", args))
        stored = _value_dtype(e.dtype)
        if dt.parse(e.dtype).kind == "void":
            return "0"
        return self.cast(self.emit(f"load {ty.scalar(stored)}, ptr {result}, align 8"), stored, e.dtype)

    def _function_handle(self, name: str) -> str:
        """The function ``name`` of the module's imports or of the registry; looked up at the first call."""
        cell = f"@.func.{self.unit.name}.{name}"
        cell = '@"' + cell[1:] + '"'
        self.unit.globals.setdefault(cell, f"{cell} = internal global ptr null, align 8")
        self.unit.context["__tvm_module_ctx"] = None
        self.unit.globals.setdefault("@__tvm_module_ctx", "@__tvm_module_ctx = external global ptr, align 8")
        known = self.emit(f"load ptr, ptr {cell}, align 8")
        missing, found = self.new_label("lookup"), self.new_label("found")
        self.branch(self.emit(f"icmp eq ptr {known}, null"), missing, found, UNLIKELY)
        origin = self.block
        self.start(missing)
        context = self.emit("load ptr, ptr @__tvm_module_ctx, align 8")
        out = self.stack("ptr", 8)
        args = f"ptr {context}, ptr {self.unit.string(name)}, ptr {out}"
        self.check_zero(self.runtime_call("TVMBackendGetFuncFromEnv", "i32", args))
        fresh = self.emit(f"load ptr, ptr {out}, align 8")
        self.do(f"store ptr {fresh}, ptr {cell}, align 8")
        end = self.block
        self.jump(found)
        self.start(found)
        return self.emit(f"phi ptr [ {known}, %{origin} ], [ {fresh}, %{end} ]")

    def _cpacked_lowered(self, e: Call) -> str:
        """``(symbol, value stack, code stack, begin, end)``: a direct call of a function with the packed signature."""
        name, values, codes, begin, end = e.args
        assert isinstance(name, StringImm) and isinstance(begin, IntImm) and isinstance(end, IntImm)
        self.unit.declare(name.value, "i32", "ptr, ptr, i32, ptr, ptr, ptr")
        where = self.emit(f"getelementptr inbounds i64, ptr {self.value(values)}, i64 {begin.value}")
        code = self.emit(f"getelementptr inbounds i32, ptr {self.value(codes)}, i64 {begin.value}")
        result, result_code = self.stack("i64", 8), self.stack("i32", 4)
        count = end.value - begin.value
        args = f"ptr {where}, ptr {code}, i32 {count}, ptr {result}, ptr {result_code}, ptr null"
        status = self.emit(f"call i32 @{name.value}({args})")
        self.check_zero(status)
        return status


_CHEAP_NODES = 12


def _is_cheap(e: PrimExpr) -> bool:
    """Whether ``e`` may be evaluated in vain: no memory, no call, no division, a few operations."""
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


def is_likely(condition: PrimExpr) -> bool:
    """Whether a condition is marked as nearly always true."""
    return isinstance(condition, Call) and condition.op.name == "tir.likely"


def _value_dtype(dtype: str) -> str:
    """How a TVMValue holds a value of ``dtype``."""
    info = dt.parse(dtype)
    return {"int": "int64", "uint": "int64", "bool": "int64", "float": "float64", "bfloat": "float64"}.get(
        info.kind, "handle"
    )


CallEmitter._methods = {**MemoryEmitter._methods, Call: CallEmitter._call}
CallEmitter._calls = {
    **{f"tir.{n}": CallEmitter._classify for n in ("isnan", "isinf", "isfinite")},
    **{f"tir.bitwise_{n}": CallEmitter._bitwise for n in ("and", "or", "xor")},
    **{f"tir.shift_{n}": CallEmitter._bitwise for n in ("left", "right")},
    "tir.bitwise_not": CallEmitter._bitwise_not,
    "tir.popcount": CallEmitter._popcount,
    "tir.clz": CallEmitter._clz,
    "tir.ldexp": CallEmitter._ldexp,
    "tir.reinterpret": CallEmitter._reinterpret,
    "tir.large_uint_imm": CallEmitter._large_uint,
    "tir.vectorlow": CallEmitter._vector_half,
    "tir.vectorhigh": CallEmitter._vector_half,
    "tir.vectorcombine": CallEmitter._vector_combine,
    "tir.q_multiply_shift": CallEmitter._q_multiply_shift,
    "tir.likely": CallEmitter._likely,
    "tir.if_then_else": CallEmitter._if_then_else,
    "tir.isnullptr": CallEmitter._isnullptr,
    "tir.tvm_handle_is_null": CallEmitter._isnullptr,
    "tir.address_of": CallEmitter._address_of,
    "tir.tvm_access_ptr": CallEmitter._access_ptr,
    "tir.prefetch": CallEmitter._prefetch,
    "tir.tvm_struct_get": CallEmitter._struct_get,
    "tir.tvm_struct_set": CallEmitter._struct_set,
    "tir.tvm_stack_alloca": CallEmitter._stack_alloca,
    "tir.call_extern": CallEmitter._extern,
    "tir.call_pure_extern": CallEmitter._extern,
    "tir.call_llvm_intrin": CallEmitter._llvm_call,
    "tir.call_llvm_pure_intrin": CallEmitter._llvm_call,
    "tir.TVMBackendAllocWorkspace": CallEmitter._alloc_workspace,
    "tir.TVMBackendFreeWorkspace": CallEmitter._free_workspace,
    "tir.tvm_throw_last_error": CallEmitter._throw_last_error,
    "tir.tvm_call_packed_lowered": CallEmitter._packed_lowered,
    "tir.tvm_call_cpacked_lowered": CallEmitter._cpacked_lowered,
}
