"""The variables of scalar expressions, and their substitution. For statements: ``tir.visitor``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir import prim_ops as ops
from tilewright.ir.iter_var import IterVar, Reduce
from tilewright.ir.memory import BufferLoad, Load
from tilewright.ir.prim_expr import Let, PrimExpr, Var
from tilewright.ir.prim_functor import ExprMutator, ExprVisitor


class Substitute(ExprMutator):
    """Replaces variables by expressions, buffer variables included; constants that arise fold."""

    def __init__(self, value_map: Mapping[Var, PrimExpr]) -> None:
        super().__init__()
        self.value_map = value_map
        for var, value in value_map.items():
            self.memo[var] = value

    def visit_load(self, e: Load) -> PrimExpr:
        """A load through a replaced pointer reads from the new one."""
        new_var = self.value_map.get(e.buffer_var)
        if new_var is None:
            return super().visit_load(e)
        return Load(e.dtype, as_pointer(new_var), self.visit_expr(e.index), self.visit_expr(e.predicate))


def as_pointer(value: PrimExpr) -> Var:
    """Return the replacement of a buffer variable; raises TypeError when it is no variable."""
    if not isinstance(value, Var):
        raise TypeError(f"a buffer variable can be replaced by a variable only, got {value}")
    return value


def bindings(value_map: Mapping[Any, Any]) -> dict[Var, PrimExpr]:
    """Return ``value_map`` with variables as keys (an IterVar's own) and expressions as values."""
    binds: dict[Var, PrimExpr] = {}
    for var, value in value_map.items():
        key = var.var if isinstance(var, IterVar) else var
        binds[key] = ops.as_expr(value, key.dtype if isinstance(value, (int, float)) else None)
    return binds


def substitute(expr: PrimExpr, value_map: Mapping[Any, Any]) -> PrimExpr:
    """Replace variables in ``expr``; ``value_map`` may be keyed by IterVar as well.

    Before and after ``substitute(e, {i: 3})``::

        ((i*4) + j)        (12 + j)
    """
    return Substitute(bindings(value_map)).visit_expr(expr) if value_map else expr


class VarCollector(ExprVisitor):
    """Variables used and variables defined, each in order of appearance."""

    def __init__(self) -> None:
        super().__init__()
        self.used: dict[Var, None] = {}
        self.defined: dict[Var, None] = {}

    def visit_var(self, e: Var) -> None:
        """The variable is used."""
        self.used[e] = None

    def visit_let(self, e: Let) -> None:
        """Defines its variable."""
        self.defined[e.var] = None
        super().visit_let(e)

    def visit_reduce(self, e: Reduce) -> None:
        """Defines the variables of its axes."""
        self.defined.update(dict.fromkeys(a.var for a in e.axis))
        super().visit_reduce(e)

    def visit_load(self, e: Load) -> None:
        """Uses its pointer."""
        self.used[e.buffer_var] = None
        super().visit_load(e)

    def visit_buffer_load(self, e: BufferLoad) -> None:
        """Uses the buffer's pointer."""
        self.used[e.buffer.data] = None
        super().visit_buffer_load(e)


def expr_vars(expr: PrimExpr) -> list[Var]:
    """Every variable that ``expr`` uses, bound ones included, in order of appearance."""
    collector = VarCollector()
    collector.visit_expr(expr)
    return list(collector.used)
