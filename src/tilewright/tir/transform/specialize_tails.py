"""SpecializeTails: make a loop nest of its own for each number of rows that a partial tile (tail) may have.

Before and after::

    for (i: int32, 0, 2) {                              for (i: int32, 0, 2) {
      for (k: int32, 0, 5) {                              if ((floormod(n, 3) - (i*3)) == 1) {
        for (j: int32, 0, 3) "unroll" {                     for (k: int32, 0, 5) {
          if @tir.likely(((i*3) + j) < floormod(n, 3)) {      for (j: int32, 0, 1) "unroll" {
            B[j] = (B[j] + A[((j*5) + k)])                      B[j] = (B[j] + A[((j*5) + k)])
          }                                                   }
        }                                                   }
      }                                                   } else {
    }                                                       if ((floormod(n, 3) - (i*3)) >= 2) { ... 2 rows ... }
                                                          }
                                                        }

The test is made once for a tile, not for each row in an inner loop, so that sums stay in registers. Of statements side
by side those alone are written out that test rows again and again, unless registers hold what passes between them. Only
conditions marked ``likely`` count, of unrolled loops inside one that is not, over what loops outside leave: what
LoopPartition, which runs before, made of a tile of an extent that is not known. Where a number of rows beyond the
tile's cannot be excluded, the last ``else`` has the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.arith.affine import build
from tilewright.arith.bounds import INDEX_DTYPES
from tilewright.arith.simplifier import Simplifier
from tilewright.ir import prim_ops as ops
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import LE, LT, Call, FloorDiv, IntImm, PrimExpr, Var
from tilewright.ir.transform import Pass
from tilewright.tir.analysis import conjuncts
from tilewright.tir.stmt import Allocate, AttrStmt, For, ForKind, IfThenElse, SeqStmt, Stmt
from tilewright.tir.transform.common import ScopedMutator, body_pass
from tilewright.tir.transform.loop_partition import Assume
from tilewright.tir.transform.threads import storage_scope
from tilewright.tir.visitor import StmtExprVisitor, StmtMutator, StmtVisitor, stmt_vars, with_fresh_vars

_MOST_ROWS = 32  # of a tile: each number of them is code


@dataclass
class _Tail:
    """A tail: the ``count`` of its rows, at most ``rows``, the conditions that test it, and the loops over the rows."""

    count: PrimExpr
    rows: int = 0
    conditions: set[PrimExpr] = field(default_factory=set)
    loops: set[Var] = field(default_factory=set)
    repeated: bool = False  # whether a loop repeats the test


class _Tails(StmtExprVisitor):
    """Finds the tails in conditions below a loop over ``outer``."""

    def __init__(self, outer: Var, simplifier: Simplifier) -> None:
        super().__init__()
        self.outer = outer
        self.simplifier = simplifier
        self.unrolled: dict[Var, int] = {}
        self.inside: set[Var] = set()
        self.serial = 0
        self.found: dict[PrimExpr, _Tail] = {}

    def visit_for(self, s: For) -> None:
        self.inside.add(s.loop_var)
        known = isinstance(s.extent, IntImm) and ops.is_const_int(s.min, 0)
        unrolled = s.kind == ForKind.UNROLLED and known
        if unrolled and isinstance(s.extent, IntImm):
            self.unrolled[s.loop_var] = s.extent.value
        self.serial += s.kind == ForKind.SERIAL
        super().visit_for(s)
        self.serial -= s.kind == ForKind.SERIAL

    def visit_call(self, e: Call) -> None:
        if isinstance(e.op, Op) and e.op.name == "tir.likely":
            for condition in conjuncts(e.args[0]):
                self._add(condition)
        super().visit_call(e)

    def _add(self, condition: PrimExpr) -> None:
        if not isinstance(condition, (LT, LE)) or condition.a.dtype not in INDEX_DTYPES:
            return
        terms, const = self.simplifier.difference(condition.a, condition.b)
        rows = [v for v in terms if isinstance(v, Var) and v in self.unrolled and terms[v] == 1]
        if len(rows) != 1:
            return
        rest = {term: -count for term, count in terms.items() if term is not rows[0]}
        variables = [v for term in rest for v in stmt_vars(term)]
        if self.outer not in variables or self.inside.intersection(variables):
            return
        count = _remainder(rest, -const + isinstance(condition, LE), condition.a.dtype)
        item = self.found.setdefault(count, _Tail(count))
        item.rows = max(item.rows, self.unrolled[rows[0]])
        item.conditions.add(condition)
        item.loops.add(rows[0])
        item.repeated |= self.serial > 0


def _remainder(terms: dict[PrimExpr, int], const: int, dtype: str) -> PrimExpr:
    """Return the sum of ``terms`` and ``const`` with x - x // c * c as x % c, whose bounds are known; x may be a
    quotient, x // b - x // (b * c) * c.
    """
    for term, times in terms.items():
        if not isinstance(term, FloorDiv) or not isinstance(term.b, IntImm) or times >= 0:
            continue
        step = -times
        whole = term.a if step == term.b.value else FloorDiv(term.a, ops.const(term.b.value // step, dtype))
        if term.b.value % step == 0 and terms.get(whole) == 1:
            rest = {t: n for t, n in terms.items() if t is not term and t is not whole}
            return ops.floormod(whole, ops.const(step, dtype)) + build(rest, const, dtype)
    return build(terms, const, dtype)


class _Repeats(StmtVisitor):
    """Finds whether a loop of a statement repeats one of ``loops``, the tail's."""

    def __init__(self, loops: set[Var]) -> None:
        super().__init__()
        self.loops = loops
        self.serial = 0
        self.found = False

    def visit_for(self, s: For) -> None:
        self.found |= s.loop_var in self.loops and self.serial > 0
        self.serial += s.kind == ForKind.SERIAL
        super().visit_for(s)
        self.serial -= s.kind == ForKind.SERIAL


def _places(s: Stmt, loops: set[Var]) -> list[Stmt]:
    """Return the parts of ``s`` that repeat the tail's ``loops``, each as large as it is without its neighbours.

    What an allocation in registers is for is one part.
    """
    if isinstance(s, SeqStmt):
        inner = [_places(part, loops) for part in s.seq]
        whole = all(places == [part] for places, part in zip(inner, s.seq, strict=True))
        return [s] if whole else [place for places in inner for place in places]
    if isinstance(s, (For, Allocate, AttrStmt)) and not (
        isinstance(s, Allocate) and storage_scope(s.buffer_var) == "local"
    ):
        below = _places(s.body, loops)
        if below and below != [s.body]:
            return below
    repeats = _Repeats(loops)
    repeats.visit_stmt(s)
    return [s] if repeats.found else []


class _Shorten(StmtMutator):
    """Ends loops earlier."""

    def __init__(self, loops: set[Var], rows: int) -> None:
        super().__init__()
        self.loops, self.rows = loops, rows

    def visit_for(self, s: For) -> Stmt:
        new = super().visit_for(s)
        if s.loop_var not in self.loops:
            return new
        assert isinstance(new, For) and isinstance(new.extent, IntImm)
        return new.replace(extent=ops.const(min(self.rows, new.extent.value), new.extent.dtype))


class _Specialize(ScopedMutator):
    def __init__(self) -> None:
        super().__init__()
        self.places: dict[Stmt, _Tail] = {}  # what is to be written out, inside the loops around the current statement

    def visit_expr(self, expr: PrimExpr) -> PrimExpr:
        return expr

    def visit_stmt(self, stmt: Stmt) -> Stmt:
        tail = self.places.pop(stmt, None)
        new: Stmt = super().visit_stmt(stmt) if tail is None else self._choice(stmt, tail)
        return new

    def visit_for(self, s: For) -> Stmt:
        """Choose by the rows of the outermost loop's tail first: what inner loops test depends on them."""
        tail = self._tail(s)
        if tail is None:
            return super().visit_for(s)
        self.places.update(dict.fromkeys(_places(s.body, tail.loops) or [s.body], tail))
        return super().visit_for(s)

    def _tail(self, s: For) -> _Tail | None:
        if s.kind not in (ForKind.SERIAL, ForKind.PARALLEL):
            return None
        found = _Tails(s.loop_var, self.analyzer.simplifier)
        found.visit_stmt(s.body)
        tails = [t for t in found.found.values() if t.repeated and 1 < t.rows <= _MOST_ROWS]
        return tails[0] if len(tails) == 1 else None

    def _choice(self, body: Stmt, tail: _Tail) -> Stmt:
        """Choose between bodies for as many rows as there may be; the one for the most rows is the last ``else``."""
        proves, count = self.analyzer.can_prove, tail.count
        least = next((n for n in range(tail.rows, 0, -1) if proves(count >= n)), 0)
        most = next((n for n in range(max(least, 1), tail.rows + 1) if proves(count <= n)), None)
        whole = most or tail.rows  # the rows of the last body
        if most is not None or least > 0:
            last = self._body(body, tail, whole, count >= whole)
            if least == 0 and most is not None:
                last = IfThenElse(count >= most, last)
        else:
            last = self.visit_stmt(body)
        for n in range(whole - 1, max(least, 1) - 1, -1):
            last = IfThenElse(ops.equal(count, n), self._body(body, tail, n, ops.equal(count, n)), last)
        return last

    def _body(self, body: Stmt, tail: _Tail, rows: int, known: PrimExpr) -> Stmt:
        """Return the body for a number of rows, without tests of them."""
        shortened = _Shorten(tail.loops, rows).visit_stmt(Assume(tail.conditions).visit_stmt(body))
        return self.visit_under(known, with_fresh_vars(shortened))


def specialize_tails(stmt: Stmt) -> Stmt:
    """Specialize the partial tiles of ``stmt`` for each number of rows."""
    return _Specialize().visit_stmt(stmt)


def SpecializeTails() -> Pass:
    """Make a loop nest for each number of rows that a partial tile may have."""
    return body_pass("SpecializeTails", specialize_tails)
