"""Questions about TIR: effects, structural equality of expressions, node counts, workspace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import TARGET
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import And, IntImm
from tilewright.tir.expr import BufferLoad, Call, Let, Load, PrimExpr, ProducerLoad, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import CALLING_CONV
from tilewright.tir.functor import StmtVisitor
from tilewright.tir.op import effect_of
from tilewright.tir.stmt import Allocate, AttrStmt, For, LetStmt, Stmt, Store
from tilewright.tir.verify import verify_well_formed
from tilewright.tir.verify_gpu_code import verify_gpu_code
from tilewright.tir.visitor import StmtExprVisitor, post_order_visit, stmt_vars

_ORDER = {"pure": 0, "read": 1, "update": 2, "opaque": 3}


class _Effect(StmtExprVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.effect = 0

    def visit_call(self, e: Call) -> None:
        self.effect = max(self.effect, _ORDER[effect_of(e)])
        super().visit_call(e)

    def visit_load(self, e: Load) -> None:
        self.effect = max(self.effect, 1)
        super().visit_load(e)

    def visit_buffer_load(self, e: BufferLoad) -> None:
        self.effect = max(self.effect, 1)
        super().visit_buffer_load(e)

    def visit_producer_load(self, e: ProducerLoad) -> None:
        self.effect = max(self.effect, 1)
        super().visit_producer_load(e)


class _Workspace(StmtVisitor):
    """The current and the peak workspace at the statement being visited."""

    def __init__(self, alignment: int, stack: int) -> None:
        super().__init__()
        self.alignment, self.stack = alignment, stack
        self.now = self.peak = 0

    def visit_allocate(self, s: Allocate) -> None:
        extents = [e.value for e in s.extents if isinstance(e, IntImm)]
        nbytes = math.prod(extents) * dt.nbytes(s.dtype) if len(extents) == len(s.extents) else 0
        nbytes = -(-nbytes // self.alignment) * self.alignment if nbytes > self.stack else 0
        self.now += nbytes
        self.peak = max(self.peak, self.now)
        super().visit_allocate(s)
        self.now -= nbytes


def calculate_workspace_bytes(func: PrimFunc, workspace_byte_alignment: int = 1, stack: int = 0) -> int:
    """The most that a function has allocated at a time, in bytes; each allocation is rounded up to the alignment.

    Allocations of unknown extents do not count, nor those of at most ``stack`` bytes, where these are on the stack.
    """
    visitor = _Workspace(workspace_byte_alignment, stack)
    visitor.visit_stmt(func.body)
    return visitor.peak


def side_effect(expr: PrimExpr) -> str:
    """The strongest effect of evaluating ``expr``: pure, read (of memory), update or opaque."""
    visitor = _Effect()
    visitor.visit_expr(expr)
    return next(name for name, rank in _ORDER.items() if rank == visitor.effect)


def is_pure(expr: PrimExpr) -> bool:
    """Return whether evaluating ``expr`` changes nothing (it may read memory)."""
    return side_effect(expr) in ("pure", "read")


def conjuncts(condition: PrimExpr) -> list[PrimExpr]:
    """The conditions that must all hold for ``condition``."""
    found, work = [], [condition]
    while work:
        c = work.pop()
        if isinstance(c, And):
            work += [c.b, c.a]
        else:
            found.append(c)
    return found


def expr_deep_equal(lhs: Any, rhs: Any) -> bool:
    """Return whether two expressions, or numbers, are structurally equal: equal expressions are one object."""
    return ops.as_expr(lhs) is ops.as_expr(rhs)


def is_intrinsic(expr: Any, name: str) -> bool:
    """Return whether ``expr`` is a call of the intrinsic ``name``."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == name


class _HostAccesses(StmtExprVisitor):
    """Arguments whose elements are read or written outside of all thread axes."""

    def __init__(self, func: PrimFunc) -> None:
        super().__init__()
        self.arguments = {buffer.data: buffer.name for buffer in func.buffer_map.values()}
        self.found: dict[str, tuple[str, ...]] = {}
        self.loops: list[str] = []

    def visit_for(self, s: For) -> None:
        self.loops.append(s.loop_var.name)
        super().visit_for(s)
        self.loops.pop()

    def visit_attr(self, s: AttrStmt) -> None:
        if s.attr_key not in ("thread_extent", "pipeline_exec_scope"):
            super().visit_attr(s)

    def visit_load(self, e: Load) -> None:
        self._note(e.buffer_var)
        super().visit_load(e)

    def visit_store(self, s: Store) -> None:
        self._note(s.buffer_var)
        super().visit_store(s)

    def _note(self, var: Var) -> None:
        if var in self.arguments:
            self.found.setdefault(self.arguments[var], tuple(self.loops))


def host_accesses(func: PrimFunc) -> dict[str, tuple[str, ...]]:
    """Return the tensor arguments that a lowered GPU or FPGA function accesses where no thread axis is bound.

    By name, with the names of the loops around the first access. That code is the host's, which cannot reach the
    device's memory. Other targets have no such code.
    """
    target = TARGET.get(func)
    if target is None:
        raise TilewrightError("VerifyMemory needs functions with the attribute target")
    if CALLING_CONV.get(func) or not {"gpu", "hls"} & set(target.keys):
        return {}
    accesses = _HostAccesses(func)
    accesses.visit_stmt(func.body)
    return accesses.found


def verify_memory(func: PrimFunc) -> bool:
    """Return whether the host's part of a function leaves the device's memory alone."""
    return not host_accesses(func)


def count_nodes(node: PrimExpr | Stmt) -> int:
    """Number of distinct expressions and statements in ``node``."""
    count = 0

    def add(_: Any) -> None:
        nonlocal count
        count += 1

    post_order_visit(node, add)
    return count


class _Definitions(StmtExprVisitor):
    """Counts variables that are defined again; a ``let`` expression may be used several times."""

    def __init__(self, params: Sequence[Var]) -> None:
        super().__init__()
        self.values: dict[Var, Any] = {}
        self.again: list[Var] = []
        for param in params:
            self._define(param)

    def _define(self, var: Var, value: Any = None) -> None:
        if var in self.values and (value is None or self.values[var] is not value):
            self.again.append(var)
        self.values.setdefault(var, value)

    def visit_let(self, e: Let) -> None:
        self._define(e.var, e.value)
        super().visit_let(e)

    def visit_let_stmt(self, s: LetStmt) -> None:
        self._define(s.var)
        super().visit_let_stmt(s)

    def visit_for(self, s: For) -> None:
        self._define(s.loop_var)
        super().visit_for(s)

    def visit_allocate(self, s: Allocate) -> None:
        self._define(s.buffer_var)
        super().visit_allocate(s)


def verify_ssa(func: PrimFunc) -> bool:
    """Return whether every variable of the function is defined in one place."""
    found = _Definitions(func.params)
    found.visit_stmt(func.body)
    return not found.again


__all__ = [
    "count_nodes", "expr_deep_equal", "is_intrinsic", "is_pure", "post_order_visit", "side_effect", "stmt_vars",
    "verify_gpu_code", "verify_ssa", "verify_well_formed",
]  # fmt: skip
