"""Iteration: ranges, variables that run over them, and reductions.

Grammar (added to that of ``ir.prim_expr``)::

    Range(min e, extent e)
    IterVar(dom Range, var, iter_type, thread_tag)
    e        ::= Reduce(combiner, source e*, IterVar*, condition, value_index, init e*)
    combiner ::= CommReducer(lhs Var*, rhs Var*, result e*, identity e*)
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any as AnyType
from typing import Self

from tilewright.ir import prim_ops as ops
from tilewright.ir.node import InternedNode, Node
from tilewright.ir.prim_expr import PrimExpr, Var


class Range(Node):
    """The integers ``min .. min + extent - 1``. ``Range(end)`` and ``Range(begin, end)`` as in TVM."""

    min: PrimExpr
    extent: PrimExpr

    def __init__(self, begin: AnyType, end: AnyType = None, span: object = None) -> None:
        begin, end = ops.whole(begin), ops.whole(end)
        if end is None:
            extent = ops.as_expr(begin)
            self._init(ops.const(0, extent.dtype), extent)
        else:
            begin, end = ops.match_dtypes(begin, end)
            self._init(begin, ops.sub(end, begin))

    @staticmethod
    def from_min_extent(min_value: AnyType, extent: AnyType, span: object = None) -> Range:
        """The range of ``extent`` integers from ``min_value``."""
        made = object.__new__(Range)
        made._init(*ops.match_dtypes(ops.whole(min_value), ops.whole(extent)))
        return made


class IterVarType(enum.IntEnum):
    """Kinds of iteration variables."""

    DataPar = 0
    ThreadIndex = 1
    CommReduce = 2
    Ordered = 3
    Opaque = 4
    Unrolled = 5
    Vectorized = 6
    Parallelized = 7
    Tensorized = 8


class IterVar(Node):
    """An iteration over ``dom``; identity matters. Arithmetic on it means its ``var``."""

    DataPar = IterVarType.DataPar
    ThreadIndex = IterVarType.ThreadIndex
    CommReduce = IterVarType.CommReduce
    Ordered = IterVarType.Ordered
    Opaque = IterVarType.Opaque
    Unrolled = IterVarType.Unrolled
    Vectorized = IterVarType.Vectorized
    Parallelized = IterVarType.Parallelized
    Tensorized = IterVarType.Tensorized

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
        """Return the variable, which stands for this in expressions."""
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

    def __new__(
        cls,
        lhs: Sequence[Var],
        rhs: Sequence[Var],
        result: Sequence[PrimExpr],
        identity_element: Sequence[PrimExpr],
        span: object = None,
    ) -> Self:
        return cls._of(tuple(lhs), tuple(rhs), tuple(result), tuple(identity_element))


class Reduce(PrimExpr):
    """The result ``value_index`` of reducing ``source`` over ``axis`` where ``condition`` holds."""

    combiner: CommReducer
    source: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...]
    condition: PrimExpr
    value_index: int
    init: tuple[PrimExpr, ...]

    def __new__(
        cls,
        combiner: CommReducer,
        source: Sequence[PrimExpr],
        axis: Sequence[IterVar],
        condition: PrimExpr,
        value_index: int,
        init: Sequence[PrimExpr] | None = None,
        span: object = None,
    ) -> Self:
        source = tuple(ops.as_expr(s) for s in source)
        return cls._of(
            source[value_index].dtype, combiner, source, tuple(axis), condition, value_index, tuple(init or ())
        )
