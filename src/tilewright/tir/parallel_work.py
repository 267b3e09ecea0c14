"""How the work of a kernel is shared among cores: a model of its loops, in vector instructions.

A kernel is a sequence of parts. One that is not parallel runs on one core; of a parallel loop each core takes one
contiguous piece of iterations, as generated code does (``FunctionEmitter.shared_out``)::

    for (i: int32, 0, 6) "parallel" { ... 10 instructions ... }     parts: [Part((10, 10, 10, 10, 10, 10), 1)]

    on 4 cores: pieces of 2 iterations, 20 instructions on the first three cores, 15 for each if shared evenly
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.memory import Load
from tilewright.ir.prim_expr import Add, BinaryExpr, Broadcast, Call, IntImm, Mul, PrimExpr, Ramp, Var
from tilewright.ir.prim_functor import ExprVisitor
from tilewright.tir.function import PrimFunc
from tilewright.tir.functor import StmtVisitor
from tilewright.tir.stmt import Allocate, AttrStmt, Evaluate, For, ForKind, IfThenElse, LetStmt, Stmt, Store, While
from tilewright.tir.visitor import substitute, uses_var

_CALL = 12.0  # vector instructions of a function such as exp


def most_tasks(loop: For, vector_bits: int, least: float) -> int | None:
    """Return how many tasks of ``least`` instructions a parallel loop is worth, two at least; None if not known."""
    counter = _Counter(vector_bits)
    counter.visit_stmt(loop)
    if not counter.exact:
        return None
    return max(2, int(math.fsum(part.total for part in counter.parts) / least))


def least_of_task(element_operations: int, lanes: int) -> float:
    """Return the instructions that a task has at least, where two cores pay from so many operations of elements on."""
    return element_operations / (2 * lanes)


@dataclass(frozen=True)
class Part:
    """Instructions of each iteration that cores share between two launches, and how often they run.

    ``launched``: a loop that the pool of threads runs; else one core does. ``tasks``: of the launch; 0: one for each
    core.
    """

    costs: tuple[float, ...]
    times: float
    launched: bool = True
    tasks: int = 0

    @property
    def total(self) -> float:
        """Return the instructions of all cores."""
        return math.fsum(self.costs) * self.times

    def on(self, cores: int) -> float:
        """Return the instructions of the core that has most of them."""
        if not self.launched:
            return self.total
        piece = -(-len(self.costs) // min(cores, self.tasks or cores))
        sums = [math.fsum(self.costs[i : i + piece]) for i in range(0, len(self.costs), piece)]
        return max(sums, default=0.0) * self.times


def parts_of(func: PrimFunc, vector_bits: int, least: float = 0.0) -> list[Part]:
    """Return the parts of a lowered kernel for vectors of so many bits, in order.

    Extents that are not known while compiling count as one iteration. ``least``: of a task, in instructions.
    """
    counter = _Counter(vector_bits)
    counter.visit_stmt(func.body)
    counter.end_part()
    if not counter.exact or not least:
        return counter.parts
    return [replace(p, tasks=max(2, int(math.fsum(p.costs) / least))) for p in counter.parts]


def makespan(kernels: Sequence[tuple[Sequence[Part], int]], cores: int) -> float:
    """Return the instructions of a run, kernel after kernel, each with the times that it is called."""
    return math.fsum(part.on(cores) * calls for parts, calls in kernels for part in parts)


def imbalance(kernels: Sequence[tuple[Sequence[Part], int]], cores: int) -> float:
    """Return by how much a run takes longer than if all its work were shared evenly: 0.1 is 10 %."""
    work = makespan(kernels, 1)
    return makespan(kernels, cores) * cores / work - 1 if work else 0.0


class _Expression(ExprVisitor):
    """Instructions of a value; a part that occurs twice is computed once, and indices are free."""

    def __init__(self, vector_bits: int) -> None:
        super().__init__()
        self.vector_bits, self.count = vector_bits, 0.0

    def vectors(self, dtype: str) -> float:
        """Return how many registers a value fills, at least one."""
        if dtype == "handle":
            return 1.0
        return max(1.0, dt.lanes(dtype) * dt.bits(dtype) / self.vector_bits)

    def visit_load(self, e: Load) -> Any:
        """A load; its index costs nothing."""
        self.count += self.vectors(e.dtype)

    def visit_ramp(self, e: Ramp) -> Any:
        """An index."""

    def visit_broadcast(self, e: Broadcast) -> Any:
        """Part of the instruction that reads it."""
        self.visit_expr(e.value)

    def visit_binary(self, e: BinaryExpr) -> Any:
        """An instruction; a product that is added is one with the sum."""
        self.count += self.vectors(e.dtype)
        for operand in (e.a, e.b):
            if isinstance(e, Add) and type(operand) is Mul and operand not in self.memo:
                self.memo[operand] = True
                super().visit_binary(operand)
            else:
                self.visit_expr(operand)

    def visit_call(self, e: Call) -> Any:
        """A function of numbers, or an instruction of the target."""
        self.count += _CALL * self.vectors(e.dtype)
        super().visit_call(e)


@dataclass
class _Scope:
    """The cost of a loop body so far, and the values of the loops around it."""

    cost: float = 0.0
    values: dict[Var, PrimExpr] = field(default_factory=dict)


class _Counter(StmtVisitor):
    """Walks the loops, with values for the variables of those around, and cuts the kernel into parts."""

    def __init__(self, vector_bits: int) -> None:
        super().__init__()
        self.vector_bits = vector_bits
        self.parts: list[Part] = []
        self.scope = _Scope()
        self.times = 1.0
        self.inside = False
        self.exact = True  # all extents are known, and no function is called whose work is not

    def end_part(self) -> None:
        """Close what one core does."""
        if self.scope.cost:
            self.parts.append(Part((self.scope.cost,), self.times, launched=False))
        self.scope.cost = 0.0

    def number(self, expr: PrimExpr) -> int | None:
        """Return the value of an expression where it is known."""
        found = expr if isinstance(expr, IntImm) or not self.scope.values else substitute(expr, self.scope.values)
        return found.value if isinstance(found, IntImm) else None

    def cost_of(self, body: Stmt, var: Var, value: int) -> float:
        """Return what a body costs with a value of a loop's variable."""
        outside = self.scope
        self.scope = _Scope(0.0, {**outside.values, var: IntImm(var.dtype, value)})
        self.visit_stmt(body)
        cost, self.scope = self.scope.cost, outside
        return cost

    def visit_for(self, s: For) -> None:
        low, extent = self.number(s.min) or 0, self.number(s.extent)
        count = 1 if extent is None else max(0, extent)
        self.exact = self.exact and extent is not None
        if s.kind == ForKind.PARALLEL and not self.inside:
            self._shared(s, low, count)
        elif not self.inside and _launches(s.body):
            self.end_part()
            outside, self.times = self.times, self.times * count
            self.scope.cost += self.cost_of(s.body, s.loop_var, low)
            self.end_part()
            self.times = outside
        elif count:
            at = [low, low + count // 2, low + count - 1] if count > 2 and _shapes(s.body, s.loop_var) else [low]
            costs = [self.cost_of(s.body, s.loop_var, value) for value in at]
            ends = costs[0] + costs[-1] if len(at) > 1 else 0.0
            self.scope.cost += ends + costs[len(at) // 2] * (count - 2) if len(at) > 1 else costs[0] * count

    def _shared(self, s: For, low: int, count: int) -> None:
        self.end_part()
        self.inside = True
        varies = _shapes(s.body, s.loop_var)
        costs = [self.cost_of(s.body, s.loop_var, low + i) for i in range(count if varies else min(count, 1))]
        self.inside = False
        shared = costs if varies else itertools.repeat(costs[0], count) if costs else ()
        self.parts.append(Part(tuple(shared), self.times))

    def visit_while(self, s: While) -> None:
        """One turn: how many there are is in the data."""
        self.exact = False
        self.visit_stmt(s.body)

    def visit_if_then_else(self, s: IfThenElse) -> None:
        """The branch that is taken; where that is not known, the first."""
        holds = self.number(s.condition)
        if holds is None or holds:
            self.visit_stmt(s.then_case)
        elif s.else_case is not None:
            self.visit_stmt(s.else_case)

    def visit_let_stmt(self, s: LetStmt) -> None:
        self._evaluate(s.value)
        known = self.number(s.value) if s.value.dtype in ("int32", "int64") else None
        if known is not None:
            self.scope.values[s.var] = IntImm(s.var.dtype, known)
        self.visit_stmt(s.body)

    def visit_allocate(self, s: Allocate) -> None:
        self.visit_stmt(s.body)

    def visit_attr(self, s: AttrStmt) -> None:
        """The body; tasks that wait for one another are one for each thread."""
        self.exact = self.exact and s.attr_key != "pragma_parallel_barrier_when_finish"
        self.visit_stmt(s.body)

    def visit_store(self, s: Store) -> None:
        self._evaluate(s.value)
        self.scope.cost += max(1.0, dt.lanes(s.value.dtype) * dt.bits(s.value.dtype) / self.vector_bits)

    def visit_evaluate(self, s: Evaluate) -> None:
        """An instruction of the target, or a function: what these do is not known."""
        self.exact = self.exact and not isinstance(s.value, Call)
        self._evaluate(s.value)

    def _evaluate(self, value: PrimExpr) -> None:
        counted = _Expression(self.vector_bits)
        counted.visit_expr(value)
        self.scope.cost += counted.count


class _Launches(StmtVisitor):
    found = False

    def visit_for(self, s: For) -> None:
        self.found = self.found or s.kind == ForKind.PARALLEL
        super().visit_for(s)


def _launches(body: Stmt) -> bool:
    seen = _Launches()
    seen.visit_stmt(body)
    return seen.found


class _Shapes(StmtVisitor):
    """Whether extents and conditions depend on some variables."""

    def __init__(self, var: Var) -> None:
        super().__init__()
        self.vars: dict[Var, None] = {var: None}
        self.found = False

    def look(self, *exprs: PrimExpr) -> None:
        """Look at an extent or a condition."""
        unknown = [e for e in exprs if not isinstance(e, IntImm)]
        self.found = self.found or any(uses_var(e, lambda v: v in self.vars) for e in unknown)

    def visit_for(self, s: For) -> None:
        self.look(s.min, s.extent)
        self.visit_stmt(s.body)

    def visit_if_then_else(self, s: IfThenElse) -> None:
        self.look(s.condition)
        super().visit_if_then_else(s)

    def visit_let_stmt(self, s: LetStmt) -> None:
        if uses_var(s.value, lambda v: v in self.vars):
            self.vars[s.var] = None
        self.visit_stmt(s.body)


def _shapes(body: Stmt, var: Var) -> bool:
    seen = _Shapes(var)
    seen.visit_stmt(body)
    return seen.found


__all__ = ["Part", "imbalance", "least_of_task", "makespan", "most_tasks", "parts_of"]
