"""Expressions of TIR: the scalar expressions of ``ir.prim_expr``, and those that touch memory or reduce.

Grammar (added to that of ``ir.prim_expr``)::

    e ::= Load(dtype, buffer_var, index, predicate)      from flat memory; a vector when the index is one
        | BufferLoad(buffer, e*)                         before storage is flattened
        | ProducerLoad(producer, e*)                     element of a te.Tensor
        | Reduce(combiner, source e*, IterVar*, condition, value_index, init e*)
        | Shuffle(e*, e*)                                lanes picked from concatenated vectors
    combiner ::= CommReducer(lhs Var*, rhs Var*, result e*, identity e*)
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any as AnyType

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.node import InternedNode, Node
from tilewright.ir.prim_expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Any,
    ArithExpr,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    ConstExpr,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVarBase,
    Let,
    LogicalExpr,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    SizeVar,
    StringImm,
    Sub,
    Var,
)  # fmt: skip
from tilewright.tir.buffer import Buffer


class Range(Node):
    """The integers ``min .. min + extent - 1``. ``Range(end)`` and ``Range(begin, end)`` as in TVM."""

    min: PrimExpr
    extent: PrimExpr

    def __init__(self, begin: AnyType, end: AnyType = None, span: object = None) -> None:
        if end is None:
            extent = ops.as_expr(begin)
            self._init(ops.const(0, extent.dtype), extent)
        else:
            begin, end = ops.match_dtypes(begin, end)
            self._init(begin, ops.sub(end, begin))

    @staticmethod
    def from_min_extent(min_value: AnyType, extent: AnyType, span: object = None) -> Range:
        """The range of ``extent`` integers from ``min_value``."""
        low, size = ops.match_dtypes(min_value, extent)
        made = Range(size)
        return made.replace_min(low)

    def replace_min(self, low: PrimExpr) -> Range:
        """The same extent from another minimum."""
        made = object.__new__(Range)
        made._init(low, self.extent)
        return made


class IterVarType(enum.IntEnum):
    """What an iteration variable is for."""

    DataPar = 0
    ThreadIndex = 1
    CommReduce = 2
    Ordered = 3
    Opaque = 4
    Unrolled = 5
    Vectorized = 6
    Parallelized = 7
    Tensorized = 8


class IterVar(IterVarBase):
    """An iteration over ``dom``; identity matters. Arithmetic on it means its ``var``."""

    DataPar = IterVarType.DataPar
    ThreadIndex = IterVarType.ThreadIndex
    CommReduce = IterVarType.CommReduce
    Ordered = IterVarType.Ordered
    Opaque = IterVarType.Opaque

    dom: Range | None
    var: Var
    iter_type: IterVarType
    thread_tag: str

    def __init__(self, dom: AnyType, var: Var | str, iter_type: int, thread_tag: str = "", span: object = None) -> None:
        if dom is not None and not isinstance(dom, Range):
            dom = Range(*dom) if isinstance(dom, (list, tuple)) else Range(dom)
        if isinstance(var, str):
            var = Var(var, dom.extent.dtype if dom is not None else "int32")
        self._init(dom, var, IterVarType(iter_type), thread_tag)

    @property
    def dtype(self) -> str:
        """The dtype of the variable."""
        return self.var.dtype

    def asobject(self) -> PrimExpr:
        """The variable: what this means inside an expression."""
        return self.var

    def __add__(self, other: AnyType) -> PrimExpr:
        return self.var + other

    def __radd__(self, other: AnyType) -> PrimExpr:
        return other + self.var

    def __sub__(self, other: AnyType) -> PrimExpr:
        return self.var - other

    def __rsub__(self, other: AnyType) -> PrimExpr:
        return ops.sub(other, self.var)

    def __mul__(self, other: AnyType) -> PrimExpr:
        return self.var * other

    def __rmul__(self, other: AnyType) -> PrimExpr:
        return ops.mul(other, self.var)

    def __floordiv__(self, other: AnyType) -> PrimExpr:
        return self.var // other

    def __mod__(self, other: AnyType) -> PrimExpr:
        return self.var % other

    def __neg__(self) -> PrimExpr:
        return -self.var

    def __lt__(self, other: AnyType) -> PrimExpr:
        return self.var < other

    def __le__(self, other: AnyType) -> PrimExpr:
        return self.var <= other

    def __gt__(self, other: AnyType) -> PrimExpr:
        return self.var > other

    def __ge__(self, other: AnyType) -> PrimExpr:
        return self.var >= other

    def equal(self, other: AnyType) -> PrimExpr:
        """The comparison of the variable with ``other`` (``==`` on iteration variables is identity)."""
        return self.var.equal(other)


class CommReducer(InternedNode):
    """A commutative, associative combination of ``lhs`` and ``rhs`` with an identity element."""

    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[PrimExpr, ...]
    identity_element: tuple[PrimExpr, ...]

    def __init__(
        self,
        lhs: Sequence[Var],
        rhs: Sequence[Var],
        result: Sequence[PrimExpr],
        identity_element: Sequence[PrimExpr],
        span: object = None,
    ) -> None:
        self._init(tuple(lhs), tuple(rhs), tuple(result), tuple(identity_element))


class Reduce(PrimExpr):
    """Value ``value_index`` of reducing ``source`` over ``axis`` where ``condition`` holds."""

    combiner: CommReducer
    source: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...]
    condition: PrimExpr
    value_index: int
    init: tuple[PrimExpr, ...]

    def __init__(
        self,
        combiner: CommReducer,
        source: Sequence[PrimExpr],
        axis: Sequence[IterVar],
        condition: PrimExpr,
        value_index: int,
        init: Sequence[PrimExpr] | None = None,
        span: object = None,
    ) -> None:
        source = tuple(source)
        self._init(source[value_index].dtype, combiner, source, tuple(axis), condition, value_index, tuple(init or ()))


class Load(PrimExpr):
    """``buffer_var[index]`` in elements of ``dtype``; a ``Ramp`` index loads a vector."""

    buffer_var: Var
    index: PrimExpr
    predicate: PrimExpr

    def __init__(
        self, dtype: str, buffer_var: Var, index: PrimExpr, predicate: PrimExpr | None = None, span: object = None
    ) -> None:
        index = ops.as_expr(index)
        if predicate is None:
            predicate = ops.const(True, dt.make("bool", 1, dt.lanes(index.dtype)))
        self._init(dtype, buffer_var, index, predicate)


class BufferLoad(PrimExpr):
    """``buffer[indices]``"""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]

    def __init__(self, buffer: Buffer, indices: Sequence[AnyType], span: object = None) -> None:
        indices = tuple(ops.as_expr(i) for i in indices)
        lanes = dt.lanes(indices[-1].dtype) if indices else 1
        dtype = buffer.dtype if lanes == 1 else dt.with_lanes(buffer.dtype, lanes * dt.lanes(buffer.dtype))
        self._init(dtype, buffer, indices)


class ProducerLoad(PrimExpr):
    """Element ``indices`` of a tensor (``te.Tensor``)."""

    producer: AnyType
    indices: tuple[PrimExpr, ...]

    def __init__(self, producer: AnyType, indices: Sequence[AnyType], span: object = None) -> None:
        self._init(producer.dtype, producer, tuple(ops.as_expr(i) for i in indices))


class Shuffle(PrimExpr):
    """The lanes ``indices`` of the concatenation of ``vectors``."""

    vectors: tuple[PrimExpr, ...]
    indices: tuple[PrimExpr, ...]

    def __init__(self, vectors: Sequence[PrimExpr], indices: Sequence[AnyType], span: object = None) -> None:
        indices = tuple(ops.as_expr(i) for i in indices)
        self._init(dt.with_lanes(vectors[0].dtype, len(indices)), tuple(vectors), indices)


__all__ = [
    "EQ", "GE", "GT", "LE", "LT", "NE", "Add", "And", "Any", "ArithExpr", "BinaryExpr", "Broadcast", "Buffer",
    "BufferLoad", "Call", "Cast", "CommReducer", "CompareExpr", "ConstExpr", "Div", "FloatImm", "FloorDiv", "FloorMod",
    "IntImm", "IterVar", "IterVarType", "Let", "Load", "LogicalExpr", "Max", "Min", "Mod", "Mul", "Not", "Or",
    "PrimExpr", "ProducerLoad", "Ramp", "Range", "Reduce", "Select", "Shuffle", "SizeVar", "StringImm", "Sub", "Var",
]  # fmt: skip
