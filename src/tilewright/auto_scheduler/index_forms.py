"""Indices as numeric sums of axes, for bounds and features of thousands of states.

An index is ``const + sum(coefficient * axis)``, rounded down to steps (``//``) and cut to a period (``%``); an index of
another kind may be anywhere in its dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilewright.ir.prim_expr import Add, Cast, FloorDiv, FloorMod, IntImm, Mul, PrimExpr, Sub, Var
from tilewright.te.operation import ComputeOp, Operation, producer_loads

Terms = tuple[tuple[int, float], ...]
"""(number of an axis, coefficient)"""


class Form(NamedTuple):
    """An index. ``slack``: how much rounding may widen a range; ``period``: a bound on its values, 0 for none.

    ``known`` is False where the index is none of these sums, and may be any; ``terms`` then tells the axes that it
    depends on.
    """

    terms: Terms
    const: float = 0
    slack: int = 0
    period: int = 0
    known: bool = True


Access = tuple[int, tuple[Form, ...]]
"""(number of the operation that is read, one form for each dimension)"""


def form_of(expr: PrimExpr, axes: Mapping[Var, int]) -> Form:
    """Return the form of an index over numbered axes."""
    if isinstance(expr, IntImm):
        return Form((), expr.value)
    if isinstance(expr, Var):
        return Form(((axes[expr], 1.0),)) if expr in axes else Form((), known=False)
    if isinstance(expr, Cast):
        return form_of(expr.value, axes)
    if isinstance(expr, (Add, Sub)):
        return _sum(form_of(expr.a, axes), form_of(expr.b, axes), 1.0 if isinstance(expr, Add) else -1.0)
    if isinstance(expr, Mul):
        a, b = form_of(expr.a, axes), form_of(expr.b, axes)
        if not a.terms and a.known:
            return _scaled(b, a.const)
        if not b.terms and b.known:
            return _scaled(a, b.const)
        return _unknown(a, b)
    if isinstance(expr, (FloorDiv, FloorMod)) and isinstance(expr.b, IntImm) and expr.b.value > 0:
        a, by = form_of(expr.a, axes), expr.b.value
        if isinstance(expr, FloorMod):
            return a._replace(period=min(by, a.period or by), const=0)
        divided = _scaled(a, 1.0 / by)
        return divided._replace(slack=-(-a.slack // by) + 1, period=-(-a.period // by))
    return _unknown(*[form_of(child, axes) for child in _children(expr)])


def _children(expr: PrimExpr) -> list[PrimExpr]:
    found: list[PrimExpr] = []
    for _, value in expr.field_values():
        values: Sequence[Any] = value if isinstance(value, tuple) else (value,)
        found += [v for v in values if isinstance(v, PrimExpr)]
    return found


def _merged(*groups: Terms) -> Terms:
    total: dict[int, float] = {}
    for terms in groups:
        for axis, coefficient in terms:
            total[axis] = total.get(axis, 0.0) + coefficient
    return tuple((a, c) for a, c in total.items() if c)


def _sum(a: Form, b: Form, sign: float) -> Form:
    if not a.known or not b.known:
        return _unknown(a, b)
    b = _scaled(b, sign)
    period = a.period + b.period - 1 if a.period and b.period else 0
    if a.period and not b.terms:
        period = a.period
    elif b.period and not a.terms:
        period = b.period
    return Form(_merged(a.terms, b.terms), a.const + b.const, a.slack + b.slack, period)


def _scaled(form: Form, by: float) -> Form:
    terms = tuple((axis, c * by) for axis, c in form.terms if c * by)
    period = int((form.period - 1) * abs(by)) + 1 if form.period else 0
    return form._replace(terms=terms, const=form.const * by, slack=int(form.slack * max(1.0, abs(by))), period=period)


def _unknown(*forms: Form) -> Form:
    return Form(_merged(*[tuple((axis, 1.0) for axis, _ in f.terms) for f in forms]), known=False)


def _composed(outer: Form, inner: Sequence[Form]) -> Form:
    """Compose ``outer``, over an inlined operation's axes, with the indices ``inner`` of its reader."""
    result = Form((), outer.const, outer.slack, 0, outer.known)
    for axis, coefficient in outer.terms:
        result = _sum(result, _scaled(inner[axis], coefficient), 1.0)
    if not outer.known:
        return _unknown(result)
    return result._replace(period=outer.period) if outer.period else result


class AccessForms:
    """The accesses of all operations of a computation, by the operations' numbers."""

    def __init__(self, ops: Sequence[Operation]) -> None:
        number = {op: i for i, op in enumerate(ops)}
        self.shapes = [tuple(_extent(d) for d in op.output_shape(0)) for op in ops]
        self.axes: list[tuple[int, ...]] = []
        self._reads: list[list[Access]] = []
        for op in ops:
            self.axes.append(tuple(_extent(iv.dom.extent) for iv in op.root_iter_vars if iv.dom is not None))
            reads: list[Access] = []
            if isinstance(op, ComputeOp):
                numbers = {iv.var: i for i, iv in enumerate(op.root_iter_vars)}
                for load in producer_loads(op.body):
                    access = number[load.producer.op], tuple(form_of(i, numbers) for i in load.indices)
                    if access not in reads:
                        reads.append(access)
            self._reads.append(reads)
        self._through: dict[tuple[int, frozenset[int]], list[Access]] = {}

    def reads(self, op: int, inlined: frozenset[int]) -> list[Access]:
        """Return the reads of an operation when others are inlined."""
        key = op, inlined
        found = self._through.get(key)
        if found is None:
            found = self._through[key] = self._resolve(op, inlined)
        return found

    def _resolve(self, op: int, inlined: frozenset[int]) -> list[Access]:
        found: list[Access] = []
        for read, forms in self._reads[op]:
            if read not in inlined:
                inner = [(read, forms)]
            else:
                inner = [(p, tuple(_composed(f, forms) for f in fs)) for p, fs in self.reads(read, inlined)]
            found += [access for access in inner if access not in found]
        return found


def _extent(expr: PrimExpr) -> int:
    return expr.value if isinstance(expr, IntImm) else 1
