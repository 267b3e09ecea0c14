"""Visitors and mutators over scalar expressions.

A visitor overrides ``visit_<node>``: ``visit_var``, ``visit_add``, ``visit_buffer_load``, ... (the class name in snake
case). Where a class has none, the method of the nearest base class is used: ``visit_binary`` for every ``BinaryExpr``,
``visit_compare`` for comparisons, and so on. ``super()`` has only the methods defined here.

Expressions are hash-consed graphs, so results are memoised: an expression shared by many places is visited once. A
mutator whose result depends on the scope clears ``self.memo`` when the scope changes.

Nests as deep as users make them (a sum of 10,000 terms) are safe: Python 3.11 keeps the frames of pure-Python calls on
the heap, and ``ensure_stack`` raises the interpreter's limit as the nest deepens.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from tilewright.ir import prim_ops as ops
from tilewright.ir.iter_var import CommReducer, IterVar, Range, Reduce
from tilewright.ir.memory import BufferLoad, Load, ProducerLoad
from tilewright.ir.prim_expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    ConstExpr,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    Sub,
)  # fmt: skip

R = TypeVar("R")

DEPTH_STEP = 128
FRAMES_PER_STEP = 12 * DEPTH_STEP


def ensure_stack() -> None:
    """Raise the recursion limit when the stack is close to it."""
    depth, frame = 0, sys._getframe()
    while (back := frame.f_back) is not None:
        depth, frame = depth + 1, back
    if depth + FRAMES_PER_STEP > sys.getrecursionlimit():
        sys.setrecursionlimit(2 * depth + 2 * FRAMES_PER_STEP)


# Apart from the method of the expression Let, and from the entry to all statements.
_EXCEPTIONS = {"LetStmt": "visit_let_stmt", "Stmt": "visit_any_stmt"}


def _method_name(cls: type) -> str:
    name = cls.__name__
    if name in _EXCEPTIONS:
        return _EXCEPTIONS[name]
    for suffix in ("Expr", "Stmt"):
        if name.endswith(suffix) and name != suffix:
            name = name[: -len(suffix)]
    return "visit_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


class ExprFunctor(Generic[R]):
    """Finds the method for a node class, once for each visitor class."""

    _methods: ClassVar[dict[type, Callable[..., Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._methods = {}

    def __init__(self) -> None:
        self.memo: dict[PrimExpr, R] = {}
        self._depth = 0

    def _resolve(self, node_class: type) -> Callable[..., Any]:
        cls = type(self)
        for base in node_class.__mro__:
            method = getattr(cls, _method_name(base), None)
            if method is not None:
                cls._methods[node_class] = method
                return method
        raise TypeError(f"{cls.__name__} does not handle {node_class.__name__}")

    def _deeper(self, method: Callable[..., Any], node: Any) -> Any:
        """Call ``method`` one level down the nest."""
        depth = self._depth
        self._depth = depth + 1
        if not (depth + 1) % DEPTH_STEP:
            ensure_stack()
        result = method(self, node)
        self._depth = depth
        return result

    def visit_expr(self, expr: PrimExpr) -> R:
        """The result for ``expr``, from the memo when it was visited before."""
        memo = self.memo
        result = memo.get(expr)
        if result is None:
            method = self._methods.get(type(expr)) or self._resolve(type(expr))
            depth = self._depth
            self._depth = depth + 1
            if not (depth + 1) % DEPTH_STEP:
                ensure_stack()
            result = memo[expr] = method(self, expr)
            self._depth = depth
        return result


class ExprVisitor(ExprFunctor[bool]):
    """Visits each sub-expression once. Overriding methods return nothing, and call ``super()`` to go on below."""

    def visit_expr(self, expr: PrimExpr) -> Any:
        """Visit ``expr`` unless it was visited before."""
        memo = self.memo
        if expr not in memo:
            memo[expr] = True
            method = self._methods.get(type(expr)) or self._resolve(type(expr))
            if method is ExprVisitor.visit_prim:
                return
            depth = self._depth
            self._depth = depth + 1
            if not (depth + 1) % DEPTH_STEP:
                ensure_stack()
            method(self, expr)
            self._depth = depth

    def visit_prim(self, e: PrimExpr) -> Any:
        """A node without sub-expressions."""

    def visit_binary(self, e: BinaryExpr) -> Any:
        """Both operands."""
        self.visit_expr(e.a)
        self.visit_expr(e.b)

    def visit_not(self, e: Not) -> Any:
        """The operand."""
        self.visit_expr(e.a)

    def visit_cast(self, e: Cast) -> Any:
        """The value."""
        self.visit_expr(e.value)

    def visit_select(self, e: Select) -> Any:
        """Condition and both values."""
        self.visit_expr(e.condition)
        self.visit_expr(e.true_value)
        self.visit_expr(e.false_value)

    def visit_ramp(self, e: Ramp) -> Any:
        """Base and stride."""
        self.visit_expr(e.base)
        self.visit_expr(e.stride)

    def visit_broadcast(self, e: Broadcast) -> Any:
        """The value."""
        self.visit_expr(e.value)

    def visit_let(self, e: Let) -> Any:
        """Value and body."""
        self.visit_expr(e.value)
        self.visit_expr(e.body)

    def visit_call(self, e: Call) -> Any:
        """The arguments."""
        for arg in e.args:
            self.visit_expr(arg)

    def visit_load(self, e: Load) -> Any:
        """Visit index and predicate."""
        self.visit_expr(e.index)
        self.visit_expr(e.predicate)

    def visit_buffer_load(self, e: BufferLoad) -> Any:
        """The indices."""
        for index in e.indices:
            self.visit_expr(index)

    def visit_producer_load(self, e: ProducerLoad) -> Any:
        """The indices."""
        for index in e.indices:
            self.visit_expr(index)

    def visit_shuffle(self, e: Shuffle) -> Any:
        """Vectors and indices."""
        for item in (*e.vectors, *e.indices):
            self.visit_expr(item)

    def visit_reduce(self, e: Reduce) -> Any:
        """Domains, sources, initial values and condition."""
        for axis in e.axis:
            if axis.dom is not None:
                self.visit_expr(axis.dom.min)
                self.visit_expr(axis.dom.extent)
        for item in (*e.combiner.result, *e.combiner.identity_element, *e.source, *e.init, e.condition):
            self.visit_expr(item)


def same_items(new: tuple[Any, ...], old: tuple[Any, ...]) -> bool:
    """Return whether the tuples hold the same objects."""
    return all(map(operator.is_, new, old))


_FOLDING: dict[type[PrimExpr], Callable[[Any, Any], PrimExpr]] = {
    Add: ops.add, Sub: ops.sub, Mul: ops.mul, Div: lambda a, b: ops.truncdiv(a, b) if _is_int(a) else ops.div(a, b),
    Mod: ops.truncmod, FloorDiv: ops.floordiv, FloorMod: ops.floormod, Min: ops.minimum, Max: ops.maximum,
    EQ: ops.equal, NE: ops.not_equal, LT: ops.less, LE: ops.less_equal, GT: ops.greater, GE: ops.greater_equal,
    And: ops.logical_and, Or: ops.logical_or,
}  # fmt: skip


def _is_int(e: PrimExpr) -> bool:
    return not ops.dt.is_float(e.dtype)


class ExprMutator(ExprFunctor[PrimExpr]):
    """Rebuilds expressions; returns the same object when no part changed."""

    def visit_expr(self, expr: PrimExpr) -> PrimExpr:
        """The new expression, from the memo when it was visited before; a leaf that stays is not even called."""
        memo = self.memo
        result = memo.get(expr)
        if result is None:
            method = self._methods.get(type(expr)) or self._resolve(type(expr))
            if method is ExprMutator.visit_prim:
                return expr
            depth = self._depth
            self._depth = depth + 1
            if not (depth + 1) % DEPTH_STEP:
                ensure_stack()
            result = memo[expr] = method(self, expr)
            self._depth = depth
        return result

    def visit_prim(self, e: PrimExpr) -> PrimExpr:
        """A node without sub-expressions stays."""
        return e

    def visit_binary(self, e: BinaryExpr) -> PrimExpr:
        """Rebuild with the new operands; two constants fold, and a narrow operand becomes as wide as the other."""
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if a is e.a and b is e.b:
            return e
        if (isinstance(a, ConstExpr) or isinstance(b, ConstExpr)) and not _zero_divisor(e, b):
            return _FOLDING[type(e)](a, b)
        if a.dtype != b.dtype:  # a variable of another width took the place of one
            a, b = ops.match_dtypes(a, b)
        return type(e)(a, b)

    def visit_not(self, e: Not) -> PrimExpr:
        """Rebuild with the new operand."""
        a = self.visit_expr(e.a)
        return e if a is e.a else ops.logical_not(a)

    def visit_cast(self, e: Cast) -> PrimExpr:
        """Rebuild with the new value; a constant is converted at once."""
        value = self.visit_expr(e.value)
        if value is e.value:
            return e
        lanes = ops.dt.lanes(value.dtype)
        return ops.cast(ops.dt.with_lanes(e.dtype, lanes), value)

    def visit_select(self, e: Select) -> PrimExpr:
        """Rebuild; a constant condition picks its value."""
        cond = self.visit_expr(e.condition)
        if isinstance(cond, IntImm):
            return self.visit_expr(e.true_value if cond.value else e.false_value)
        a, b = self.visit_expr(e.true_value), self.visit_expr(e.false_value)
        if cond is e.condition and a is e.true_value and b is e.false_value:
            return e
        return Select(cond, a, b)

    def visit_ramp(self, e: Ramp) -> PrimExpr:
        """Rebuild with the new base and stride."""
        base, stride = self.visit_expr(e.base), self.visit_expr(e.stride)
        return e if base is e.base and stride is e.stride else Ramp(base, stride, e.lanes)

    def visit_broadcast(self, e: Broadcast) -> PrimExpr:
        """Rebuild with the new value."""
        value = self.visit_expr(e.value)
        return e if value is e.value else Broadcast(value, e.lanes)

    def visit_let(self, e: Let) -> PrimExpr:
        """Rebuild with the new value and body."""
        value, body = self.visit_expr(e.value), self.visit_expr(e.body)
        return e if value is e.value and body is e.body else Let(e.var, value, body)

    def visit_exprs(self, items: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        """The new items; the same tuple when none changed."""
        new = tuple([self.visit_expr(item) for item in items])
        return items if same_items(new, items) else new

    def visit_range(self, r: Range) -> Range:
        """The new range; the same object when nothing changed."""
        low, extent = self.visit_expr(r.min), self.visit_expr(r.extent)
        return r if low is r.min and extent is r.extent else Range.from_min_extent(low, extent)

    def visit_call(self, e: Call) -> PrimExpr:
        """Rebuild with the new arguments."""
        args = self.visit_exprs(e.args)
        return e if args is e.args else Call(e.dtype, e.op, args)

    def visit_load(self, e: Load) -> PrimExpr:
        """Rebuild with the new index and predicate."""
        index, predicate = self.visit_expr(e.index), self.visit_expr(e.predicate)
        if index is e.index and predicate is e.predicate:
            return e
        return Load(e.dtype, e.buffer_var, index, predicate)

    def visit_buffer_load(self, e: BufferLoad) -> PrimExpr:
        """Rebuild with the new indices."""
        indices = self.visit_exprs(e.indices)
        return e if indices is e.indices else BufferLoad(e.buffer, indices)

    def visit_producer_load(self, e: ProducerLoad) -> PrimExpr:
        """Rebuild with the new indices."""
        indices = self.visit_exprs(e.indices)
        return e if indices is e.indices else ProducerLoad(e.producer, indices)

    def visit_shuffle(self, e: Shuffle) -> PrimExpr:
        """Rebuild with the new vectors and indices."""
        vectors, indices = self.visit_exprs(e.vectors), self.visit_exprs(e.indices)
        return e if vectors is e.vectors and indices is e.indices else Shuffle(vectors, indices)

    def visit_reduce(self, e: Reduce) -> PrimExpr:
        """Rebuild with new domains, sources, initial values and condition."""
        axis = tuple([self._visit_axis(a) for a in e.axis])
        source, init = self.visit_exprs(e.source), self.visit_exprs(e.init)
        condition = self.visit_expr(e.condition)
        combiner = self._visit_combiner(e.combiner)
        same = combiner is e.combiner and source is e.source and init is e.init and condition is e.condition
        if same and same_items(axis, e.axis):
            return e
        return Reduce(combiner, source, axis, condition, e.value_index, init)

    def _visit_combiner(self, combiner: CommReducer) -> CommReducer:
        """A combiner may speak of the axes of the compute."""
        result, identity = self.visit_exprs(combiner.result), self.visit_exprs(combiner.identity_element)
        if result is combiner.result and identity is combiner.identity_element:
            return combiner
        return CommReducer(combiner.lhs, combiner.rhs, result, identity)

    def _visit_axis(self, axis: IterVar) -> IterVar:
        if axis.dom is None:
            return axis
        dom = self.visit_range(axis.dom)
        return axis if dom is axis.dom else IterVar(dom, axis.var, axis.iter_type, axis.thread_tag)


def _zero_divisor(e: PrimExpr, b: PrimExpr) -> bool:
    return isinstance(e, (Div, Mod, FloorDiv, FloorMod)) and ops.is_const_int(b, 0)
