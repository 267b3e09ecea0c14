"""Scalar expressions: the integers of shapes and indices, and the arithmetic inside kernels.

Grammar (all nodes are hash-consed; ``dtype`` may have lanes, then the operation is element-wise)::

    e ::= Var(name, dtype) | SizeVar(name, dtype)            identity matters, the name is a hint
        | IntImm(dtype, value) | FloatImm(dtype, value) | StringImm(value)
        | Cast(dtype, e)
        | Add(e, e) | Sub(e, e) | Mul(e, e) | Div(e, e) | Mod(e, e) | FloorDiv(e, e) | FloorMod(e, e)
        | Min(e, e) | Max(e, e)
        | EQ(e, e) | NE(e, e) | LT(e, e) | LE(e, e) | GT(e, e) | GE(e, e)
        | And(e, e) | Or(e, e) | Not(e)
        | Select(e, e, e)                                    both values are evaluated
        | Ramp(base, stride, lanes) | Broadcast(e, lanes)
        | Shuffle(e*, e*)                                    lanes picked from concatenated vectors
        | Let(var, e, e)
        | Call(dtype, op, e*)                                op is an ``Op`` such as tir.exp, tir.likely
        | Any()                                              an unknown dimension of a shape

``Div``/``Mod`` truncate towards zero like C; ``FloorDiv``/``FloorMod`` round down like Python.
Loads, which speak of buffers and tensors, are in ``ir.memory``; reductions in ``ir.iter_var``.
Python operators on expressions match dtypes and fold constants (``ir.prim_ops``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any as AnyType
from typing import ClassVar, NoReturn, Self

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError
from tilewright.ir.node import BaseExpr, InternedNode, Node
from tilewright.ir.op_table import find_op


class PrimExpr(BaseExpr, InternedNode):
    """A scalar (or short vector) expression with a ``dtype``."""

    dtype: str

    def __add__(self, other: ExprLike) -> PrimExpr:
        try:
            return ops.add(self, other)
        except TypeError:
            return _left_to_other(other, "__radd__")

    def __radd__(self, other: ExprLike) -> PrimExpr:
        return ops.add(other, self)

    def __sub__(self, other: ExprLike) -> PrimExpr:
        try:
            return ops.sub(self, other)
        except TypeError:
            return _left_to_other(other, "__rsub__")

    def __rsub__(self, other: ExprLike) -> PrimExpr:
        return ops.sub(other, self)

    def __mul__(self, other: ExprLike) -> PrimExpr:
        try:
            return ops.mul(self, other)
        except TypeError:
            return _left_to_other(other, "__rmul__")

    def __rmul__(self, other: ExprLike) -> PrimExpr:
        return ops.mul(other, self)

    def __truediv__(self, other: ExprLike) -> PrimExpr:
        try:
            return ops.div(self, other)
        except TypeError:
            return _left_to_other(other, "__rtruediv__")

    def __rtruediv__(self, other: ExprLike) -> PrimExpr:
        return ops.div(other, self)

    def __floordiv__(self, other: ExprLike) -> PrimExpr:
        return ops.floordiv(self, other)

    def __rfloordiv__(self, other: ExprLike) -> PrimExpr:
        return ops.floordiv(other, self)

    def __mod__(self, other: ExprLike) -> PrimExpr:
        return ops.floormod(self, other)

    def __rmod__(self, other: ExprLike) -> PrimExpr:
        return ops.floormod(other, self)

    def __neg__(self) -> PrimExpr:
        return ops.neg(self)

    def __lshift__(self, other: ExprLike) -> PrimExpr:
        return ops.shift_left(self, other)

    def __rlshift__(self, other: ExprLike) -> PrimExpr:
        return ops.shift_left(other, self)

    def __rshift__(self, other: ExprLike) -> PrimExpr:
        return ops.shift_right(self, other)

    def __rrshift__(self, other: ExprLike) -> PrimExpr:
        return ops.shift_right(other, self)

    def __and__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise_and(self, other)

    def __rand__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise_and(other, self)

    def __or__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise_or(self, other)

    def __ror__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise_or(other, self)

    def __xor__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise_xor(self, other)

    def __rxor__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise_xor(other, self)

    def __invert__(self) -> PrimExpr:
        return ops.bitwise_not(self)

    def __lt__(self, other: ExprLike) -> PrimExpr:
        return ops.less(self, other)

    def __le__(self, other: ExprLike) -> PrimExpr:
        return ops.less_equal(self, other)

    def __gt__(self, other: ExprLike) -> PrimExpr:
        return ops.greater(self, other)

    def __ge__(self, other: ExprLike) -> PrimExpr:
        return ops.greater_equal(self, other)

    def __eq__(self, other: object) -> PrimExpr:  # type: ignore[override]
        return ops.equal(self, other)

    def __ne__(self, other: object) -> PrimExpr:  # type: ignore[override]
        return ops.not_equal(self, other)

    __hash__ = Node.__hash__

    def __bool__(self) -> bool:
        raise ValueError(
            f"the truth of the symbolic expression {self} is not known while compiling; "
            "use tir.all, tir.any or tir.Select to build conditions"
        )

    def astype(self, dtype: str) -> PrimExpr:
        """This value converted to ``dtype``."""
        return ops.cast(dtype, self)

    def equal(self, other: ExprLike) -> PrimExpr:
        """The comparison ``self == other`` as an expression."""
        return ops.equal(self, other)


def _left_to_other(other: AnyType, method: str) -> AnyType:
    """Return NotImplemented if ``other`` is no scalar and has its own arithmetic, like whole tensors."""
    if hasattr(type(other), method) and not isinstance(other, (PrimExpr, int, float)):
        return NotImplemented
    raise


ExprLike = PrimExpr | int | float | bool


class Var(PrimExpr):
    """A variable. Two variables are the same only if they are the same object; ``name`` is a hint."""

    _unique: ClassVar[bool] = True
    name: str
    type_annotation: AnyType
    identity: object

    def __new__(cls, name: str = "tindex", dtype: AnyType = "int32", span: object = None) -> Self:
        # ``dtype`` may be a Type (PointerType for a buffer variable), as in TVM.
        if not isinstance(name, str):
            raise TilewrightError(f"the name of a variable is a string, got {name!r}")
        if isinstance(dtype, str):
            return cls._of(dt.in_full(dtype), name, None, _Identity())
        else:
            return cls._of(dtype.dtype_of_value(), name, dtype, _Identity())

    @property
    def name_hint(self) -> str:
        """TVM's second name of ``name``."""
        return self.name


class SizeVar(Var):
    """A variable that is known to be non-negative, such as a dimension of a shape."""


class DimVar(SizeVar):
    """A named dimension: from ``low`` to ``high`` (None: no bound), in steps of ``multiple``."""

    low: int
    high: int | None
    multiple: int

    def __new__(cls, name: str, low: int = 0, high: int | None = None, multiple: int = 1) -> Self:
        if low < 0 or multiple < 1 or (high is not None and high < low):
            raise TilewrightError(f"the dimension {name}: no number is in {low}:{high}:{multiple}")
        return cls._of("int32", name, None, _Identity(), low, high, multiple)

    def widened(self) -> DimVar:
        """Return another variable of 64 bits, with the same name and range."""
        return DimVar._of("int64", self.name, None, _Identity(), self.low, self.high, self.multiple)

    @property
    def limits(self) -> str:
        """The text ``1:512``, ``8:512:8``, or ``0:`` if nothing is known."""
        step = f":{self.multiple}" if self.multiple != 1 else ""
        return f"{self.low}:{'' if self.high is None else self.high}{step}"


class _Identity:
    """Distinguishes variables of the same name."""

    __slots__ = ()


class LiteralRangeError(ValueError):
    """A literal does not fit its dtype."""


class ConstExpr(PrimExpr):
    """A literal."""


class IntImm(ConstExpr):
    """Integer or bool literal."""

    value: int

    def __new__(cls, dtype: str, value: int, span: object = None) -> Self:
        value = int(value)
        low, high = dt.int_range(dtype)
        if not low <= value <= high:
            raise LiteralRangeError(f"the literal {value} does not fit {dtype}, which holds {low} to {high}")
        return cls._of(dtype, value)

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return self.value != 0


class FloatImm(ConstExpr):
    """Floating-point literal."""

    value: float

    def __new__(cls, dtype: str, value: float, span: object = None) -> Self:
        return cls._of(dtype, float(value))

    def __float__(self) -> float:
        return self.value

    def __int__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return self.value != 0


class StringImm(ConstExpr):
    """String literal."""

    value: str

    def __new__(cls, value: str, span: object = None) -> Self:
        return cls._of("handle", value)

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        return self is other or self.value == other

    def __ne__(self, other: object) -> bool:  # type: ignore[override]
        return not self == other

    def __hash__(self) -> int:
        return hash(self.value)


class Cast(PrimExpr):
    """``value`` converted to ``dtype``; float to integer truncates."""

    value: PrimExpr

    def __new__(cls, dtype: str, value: PrimExpr, span: object = None) -> Self:
        return cls._of(dt.in_full(dtype), value)


class BinaryExpr(PrimExpr):
    """Two operands ``a`` and ``b`` of the same dtype; the subclasses set the result's."""

    a: PrimExpr
    b: PrimExpr

    def __new__(cls, a: ExprLike, b: ExprLike, span: object = None) -> Self:
        try:
            dtype = a.dtype  # type: ignore[union-attr]
            same = dtype == b.dtype  # type: ignore[union-attr]
        except AttributeError:  # a plain number
            a, b = ops.match_dtypes(a, b)
            dtype, same = a.dtype, a.dtype == b.dtype
        if not same:
            _refuse_dtypes(cls.__name__, a, b)
        return cls._of(cls.result_dtype(dtype), a, b)

    @staticmethod
    @cache
    def result_dtype(operand: str) -> str:
        """The dtype of the result for operands of a dtype."""
        return operand


class ArithExpr(BinaryExpr):
    """Arithmetic: the result has the dtype of the operands."""


class CompareExpr(BinaryExpr):
    """Comparison: the result is bool, with the lanes of the operands."""

    @staticmethod
    @cache
    def result_dtype(operand: str) -> str:
        """Bool, with the operands' lanes."""
        return dt.make("bool", 1, dt.lanes(operand))

    def __bool__(self) -> bool:
        raise ValueError(f"the truth of {self} is not known while compiling; use tir.all or tir.any")


class LogicalExpr(BinaryExpr):
    """Logic on bool operands."""

    @staticmethod
    @cache
    def result_dtype(operand: str) -> str:
        """The operands' own dtype, which must be bool."""
        if not dt.is_bool(operand):
            raise ValueError(f"a logical operator takes bool operands, got {operand}")
        return operand


def _refuse_dtypes(name: str, a: AnyType, b: AnyType) -> NoReturn:
    raise ValueError(f"{name} takes two operands of one dtype, got {a.dtype} ({a}) and {b.dtype} ({b})")


class Add(ArithExpr):
    """a + b"""


class Sub(ArithExpr):
    """a - b"""


class Mul(ArithExpr):
    """a * b"""


class Div(ArithExpr):
    """a / b, truncating towards zero on integers."""


class Mod(ArithExpr):
    """Remainder of ``Div``: takes the sign of ``a``."""


class FloorDiv(ArithExpr):
    """a // b, rounding down."""


class FloorMod(ArithExpr):
    """Remainder of ``FloorDiv``: takes the sign of ``b``."""


class Min(ArithExpr):
    """min(a, b)"""


class Max(ArithExpr):
    """max(a, b)"""


class EQ(CompareExpr):
    """a == b. Its truth value in Python is identity, so that expressions may stand in lists and dictionaries."""

    def __bool__(self) -> bool:
        return self.a is self.b


class NE(CompareExpr):
    """a != b. Its truth value in Python is non-identity."""

    def __bool__(self) -> bool:
        return self.a is not self.b


class LT(CompareExpr):
    """a < b"""


class LE(CompareExpr):
    """a <= b"""


class GT(CompareExpr):
    """a > b"""


class GE(CompareExpr):
    """a >= b"""


class And(LogicalExpr):
    """a && b"""


class Or(LogicalExpr):
    """a || b"""


class Not(PrimExpr):
    """!a"""

    a: PrimExpr

    def __new__(cls, a: PrimExpr, span: object = None) -> Self:
        return cls._of(a.dtype, a)


class Select(PrimExpr):
    """``condition ? true_value : false_value``; both values are evaluated, so both must be safe."""

    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr

    def __new__(cls, condition: PrimExpr, true_value: ExprLike, false_value: ExprLike, span: object = None) -> Self:
        true_value, false_value = ops.match_dtypes(true_value, false_value)
        return cls._of(true_value.dtype, condition, true_value, false_value)


class Ramp(PrimExpr):
    """The vector ``base, base + stride, ... `` of ``lanes`` lanes."""

    base: PrimExpr
    stride: PrimExpr
    lanes: int

    def __new__(cls, base: ExprLike, stride: ExprLike, lanes: int, span: object = None) -> Self:
        base, stride = ops.match_dtypes(base, stride)
        return cls._of(dt.with_lanes(base.dtype, int(lanes)), base, stride, int(lanes))


class Broadcast(PrimExpr):
    """The vector of ``lanes`` copies of ``value``."""

    value: PrimExpr
    lanes: int

    def __new__(cls, value: ExprLike, lanes: int, span: object = None) -> Self:
        value = ops.as_expr(value)
        return cls._of(dt.with_lanes(value.dtype, int(lanes)), value, int(lanes))


class Shuffle(PrimExpr):
    """The lanes ``indices`` of the concatenation of ``vectors``."""

    vectors: tuple[PrimExpr, ...]
    indices: tuple[PrimExpr, ...]

    def __new__(cls, vectors: Sequence[PrimExpr], indices: Sequence[AnyType], span: object = None) -> Self:
        indices = tuple(ops.as_expr(i) for i in indices)
        return cls._of(dt.with_lanes(vectors[0].dtype, len(indices)), tuple(vectors), indices)


class Let(PrimExpr):
    """``let var = value in body``"""

    var: Var
    value: PrimExpr
    body: PrimExpr

    def __new__(cls, var: Var, value: ExprLike, body: ExprLike, span: object = None) -> Self:
        value, body = ops.as_expr(value), ops.as_expr(body)
        if value.dtype != var.dtype:
            raise TilewrightError(
                f"let {var.name} = ...: the variable is {var.dtype}, the value {value.dtype}; cast the value"
            )
        return cls._of(body.dtype, var, value, body)


class Call(PrimExpr):
    """Call of an intrinsic operator (``Op``) or of a global function."""

    op: AnyType
    args: tuple[PrimExpr, ...]

    def __new__(cls, dtype: str, op: AnyType, args: AnyType, span: object = None) -> Self:
        if isinstance(op, str):
            op = find_op(op)
        return cls._of(dtype, op, tuple(ops.as_expr(a) for a in args))


class Any(PrimExpr):
    """A dimension that is not known before the model runs."""

    identity: object

    def __new__(cls, span: object = None) -> Self:
        return cls._of("int32", _Identity())


from tilewright.ir import prim_ops as ops  # noqa: E402  (mutual: the operators build the nodes above)
