"""SmallTypes: store numbers of 8 bits and fewer as bytes, and make their conversions arithmetic.

Before and after::

    C[i] = cast(int4, (int32*)A[i])
    C[i] = shift_right(shift_left(cast(int8, (int32*)A[i]), 4), 4)

An integer of 2 or 4 bits is the low bits of an int8 or uint8, whose other bits are ignored, as in ml_dtypes; a small
floating-point number (``float8_e4m3fn``, ``float4_e2m1fn``, ...) is the uint8 of its code. Conversions to floating
point go through float32 and round to the nearest, ties to even (up for float8_e8m0fnu, which has only powers of two);
overflow becomes infinity if the type has it, else NaN, else the largest number, as in ml_dtypes. Arithmetic on them was
moved to float32 before this pass (BF16Legalize).
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.dtype import SMALL_FLOATS, SmallFloat
from tilewright.ir.prim_expr import BinaryExpr, Broadcast, Call, Cast, FloatImm, IntImm, Let, PrimExpr, Select, Var
from tilewright.ir.transform import Pass
from tilewright.tir import op as T
from tilewright.tir.expr import Load
from tilewright.tir.stmt import Allocate, LetStmt, Stmt, Store
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtExprMutator, post_order_visit


def is_small(dtype: str) -> bool:
    """Return whether ``dtype`` becomes a byte."""
    return dt.is_small_float(dtype) or dt.is_small_int(dtype)


def _like(dtype: str, e: PrimExpr) -> str:
    return dt.with_lanes(dtype, dt.lanes(e.dtype))


def _bits(e: PrimExpr) -> PrimExpr:
    return T.reinterpret(_like("uint32", e), e)


def _number(bits: PrimExpr) -> PrimExpr:
    return T.reinterpret(_like("float32", bits), bits)


def _choose(condition: PrimExpr, yes: PrimExpr, no: PrimExpr) -> PrimExpr:
    return Select(condition, yes, no)


def _word(value: int, like: PrimExpr) -> PrimExpr:
    return ops.const(value, _like("uint32", like))


def _shifted(value: PrimExpr, left: int) -> PrimExpr:
    if not left:
        return value
    return T.shift_left(value, _word(left, value)) if left > 0 else T.shift_right(value, _word(-left, value))


def decode(code: PrimExpr, kind: SmallFloat) -> PrimExpr:
    """The float32 of a uint8 code."""
    code = ops.cast(_like("uint32", code), code)
    if kind.specials == "e8m0":  # 2 ** -127 is no normal number
        power = _choose(ops.equal(code, _word(0, code)), _word(0x00400000, code), _shifted(code, 23))
        return _number(_choose(ops.equal(code, _word(255, code)), _word(0x7FC00000, code), power))
    places = kind.exponent + kind.mantissa
    size = T.bitwise_and(code, _word((1 << places) - 1, code))
    normal = ops.add(_shifted(size, 23 - kind.mantissa), _word((127 - kind.bias) << 23, code))
    step = ops.const(2.0 ** (1 - kind.bias - kind.mantissa), _like("float32", code))
    tiny = ops.mul(ops.cast(_like("float32", code), ops.cast(_like("int32", code), size)), step)
    bits = _choose(ops.less(size, _word(1 << kind.mantissa, code)), _bits(tiny), normal)
    bits = T.bitwise_or(bits, _shifted(_shifted(code, -places), 31))
    nan = _word(0x7FC00000, code)
    if kind.specials == "fnuz":
        bits = _choose(ops.equal(code, _word(1 << places, code)), nan, bits)
    elif kind.specials == "fn":
        bits = _choose(ops.equal(size, _word((1 << places) - 1, code)), nan, bits)
    elif kind.specials == "ieee":
        top = ((1 << kind.exponent) - 1) << kind.mantissa
        infinite = T.bitwise_or(_word(0x7F800000, code), T.bitwise_and(bits, _word(1 << 31, code)))
        bits = _choose(ops.equal(size, _word(top, code)), infinite, bits)
        bits = _choose(ops.greater(size, _word(top, code)), nan, bits)
    return _number(bits)


def encode(value: PrimExpr, kind: SmallFloat) -> PrimExpr:
    """The uint8 code of a float32."""
    bits = _bits(value)
    size = T.bitwise_and(bits, _word(0x7FFFFFFF, value))
    code = _encode_power(bits, size) if kind.specials == "e8m0" else _encode_number(bits, size, kind)
    return ops.cast(_like("uint8", value), code)


def _encode_power(bits: PrimExpr, size: PrimExpr) -> PrimExpr:
    """Return the exponent of the nearest power of two, ties up, at least 2 ** -127; NaN if there is none."""
    code = _shifted(ops.add(size, _word(0x400000, size)), -23)
    # Below 2 ** -126 powers of two are not equally spaced in the bits: 2 ** -127 from half of it on.
    low = _choose(ops.greater(size, _word(0x00600000, size)), _word(1, size), _word(0, size))
    code = _choose(ops.less(size, _word(0x00800000, size)), low, code)
    bad = ops.logical_or(ops.equal(size, _word(0, size)), ops.greater_equal(bits, _word(0x7F800000, size)))
    return _choose(bad, _word(255, size), code)


def _encode_number(bits: PrimExpr, size: PrimExpr, kind: SmallFloat) -> PrimExpr:
    places, drop = kind.exponent + kind.mantissa, 23 - kind.mantissa
    least = (128 - kind.bias) << 23  # the least normal number, 2 ** (1 - bias)
    odd = T.bitwise_and(_shifted(size, -drop), _word(1, size))
    rounded = ops.add(ops.add(size, _word((1 << (drop - 1)) - 1, size)), odd)
    normal = ops.sub(_shifted(rounded, -drop), _word((127 - kind.bias) << kind.mantissa, size))
    # Added to this, a number is rounded to whole steps of the subnormal ones.
    magic = ops.const(2.0 ** (1 - kind.bias - kind.mantissa + 23), _like("float32", size))
    tiny = ops.sub(_bits(ops.add(_number(size), magic)), _bits(magic))
    code = _choose(ops.less(size, _word(least, size)), tiny, normal)
    largest, over, nan = _codes(kind)
    code = _choose(ops.greater(code, _word(largest, size)), _word(over, size), code)
    # Sizes that would overflow the difference above are far beyond the largest number.
    code = _choose(ops.greater_equal(size, _word(0x7F800000, size)), _word(over, size), code)
    not_a_number = ops.greater(size, _word(0x7F800000, size))
    sign = _shifted(_shifted(bits, -31), places)
    if kind.specials == "fnuz":
        code = _choose(ops.equal(code, _word(0, size)), code, _choose(
            ops.equal(code, _word(nan, size)), code, T.bitwise_or(code, sign)))  # fmt: skip
        return _choose(not_a_number, _word(nan, size), code)
    if kind.specials == "none":
        return _choose(not_a_number, _word(1 << places, size), T.bitwise_or(code, sign))
    return T.bitwise_or(_choose(not_a_number, _word(nan, size), code), sign)


def _codes(kind: SmallFloat) -> tuple[int, int, int]:
    """Return the codes, without sign, of the largest number, of overflow, and of NaN."""
    last = (1 << (kind.exponent + kind.mantissa)) - 1
    if kind.specials == "ieee":
        infinity = last - (1 << kind.mantissa) + 1
        return infinity - 1, infinity, infinity + (1 << (kind.mantissa - 1))
    if kind.specials == "fn":
        return last - 1, last, last
    return (last, last + 1, last + 1) if kind.specials == "fnuz" else (last, last, last + 1)


class _AsBytes(StmtExprMutator):
    """Expressions of small types as expressions of bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.variables: dict[Var, Var] = {}

    def visit_var(self, e: Var) -> PrimExpr:
        return self.variables.get(e, e)

    def _variable(self, var: Var) -> Var:
        if not is_small(var.dtype):
            return var
        self.variables[var] = Var(var.name, dt.storage(var.dtype))
        return self.variables[var]

    def visit_int_imm(self, e: IntImm) -> PrimExpr:
        return IntImm(dt.storage(e.dtype), e.value) if is_small(e.dtype) else e

    def visit_float_imm(self, e: FloatImm) -> PrimExpr:
        return encode(FloatImm("float32", e.value), _kind(e.dtype)) if is_small(e.dtype) else e

    def visit_load(self, e: Load) -> PrimExpr:
        made = super().visit_load(e)
        if not is_small(e.dtype):
            return made
        assert isinstance(made, Load)
        byte = made.replace(dtype=dt.storage(e.dtype))
        return _wrapped(byte, e.dtype) if dt.is_small_int(e.dtype) else byte

    def visit_binary(self, e: BinaryExpr) -> PrimExpr:
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if a is e.a and b is e.b:
            return e
        made = type(e)(a, b)
        return _wrapped(made, e.dtype) if dt.is_small_int(e.dtype) else made

    def visit_select(self, e: Select) -> PrimExpr:
        return Select(*[self.visit_expr(x) for x in (e.condition, e.true_value, e.false_value)])

    def visit_broadcast(self, e: Broadcast) -> PrimExpr:
        return Broadcast(self.visit_expr(e.value), e.lanes)

    def visit_cast(self, e: Cast) -> PrimExpr:
        source, dest = e.value.dtype, e.dtype
        value = self.visit_expr(e.value)
        if dt.is_small_float(source):
            value = decode(value, _kind(source))
        if dt.is_small_float(dest):
            return encode(ops.cast(_like("float32", value), value), _kind(dest))
        if dt.is_small_int(dest):
            wide = ops.cast(_like("int32", value), value) if dt.is_float(value.dtype) else value
            return _wrapped(ops.cast(dt.storage(dest), wide), dest)
        return ops.cast(dest, value)

    def visit_call(self, e: Call) -> PrimExpr:
        args = list(self.visit_exprs(e.args))
        if getattr(e.op, "name", "") == "tir.reinterpret":
            return T.reinterpret(dt.storage(e.dtype), args[0])
        return Call(dt.storage(e.dtype) if is_small(e.dtype) else e.dtype, e.op, args)

    def visit_let(self, e: Let) -> PrimExpr:
        value = self.visit_expr(e.value)
        return Let(self._variable(e.var), value, self.visit_expr(e.body))

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        value = self.visit_expr(s.value)
        return LetStmt(self._variable(s.var), value, self.visit_stmt(s.body))

    def visit_allocate(self, s: Allocate) -> Stmt:
        made = super().visit_allocate(s)
        assert isinstance(made, Allocate)
        return made.replace(dtype=dt.storage(s.dtype)) if is_small(s.dtype) else made

    def visit_store(self, s: Store) -> Stmt:
        return Store(s.buffer_var, self.visit_expr(s.value), self.visit_expr(s.index), self.visit_expr(s.predicate))


def _kind(dtype: str) -> SmallFloat:
    return SMALL_FLOATS[dt.element(dtype)]


def _wrapped(value: PrimExpr, dtype: str) -> PrimExpr:
    """The low bits of a byte, as the integer of ``dtype`` that they are."""
    bits = dt.bits(dtype)
    if not dt.is_signed(dtype):
        return T.bitwise_and(value, ops.const((1 << bits) - 1, value.dtype))
    by = ops.const(8 - bits, value.dtype)
    return T.shift_right(T.shift_left(value, by), by)


def _uses_small(stmt: Stmt) -> bool:
    found = False

    def look(node: Any) -> None:
        nonlocal found
        if isinstance(node, (PrimExpr, Allocate)):
            found = found or is_small(node.dtype)

    post_order_visit(stmt, look)
    return found


def small_types(stmt: Stmt) -> Stmt:
    """Rewrite small types of ``stmt`` to bytes; the same object when it has none."""
    return _AsBytes().visit_stmt(stmt) if _uses_small(stmt) else stmt


def SmallTypes() -> Pass:
    """Store numbers of 8 bits and fewer as bytes, and make their conversions arithmetic."""
    return body_pass("SmallTypes", small_types)
